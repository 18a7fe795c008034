/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_int: the objects of the layer, between its own files.
 *
 * Locks, in the order in which they are taken:
 *    rail->polling  whoever polls a rail and handles what came; only tried
 *    ep->lock       everything that has no lock of its own
 *    rail->lock     around each call of the engine; who polls only tries it, see bw_rail_lock()
 * What a post takes is ep->lock where it is free, and a list without a lock where it is not; so no
 * caller waits for whoever moves bytes.
 */
#ifndef BW_NET_NET_INT_H
#define BW_NET_NET_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "copy/copy.h"
#include "copy/pause.h"
#include "copy/request.h"
#include "core/err.h"
#include "core/param.h"
#include "net/control.h"
#include "net/engine.h"
#include "net/net.h"
#include "net/wire.h"

#define BW_NET_DEPTH 16u           /* chunks of a transfer, at most */
#define BW_NET_FLOWS 65536u
#define BW_NET_EAGER_HELD (512u << 10) /* bytes of messages that no receive has taken, per peer */
#define BW_NET_BUCKETS 64u
#define BW_NET_RINGS 8u            /* of one device and side */
#define BW_NET_BATCH 16u
#define BW_NET_ACKS 4u
#define BW_NET_SPENT 16u     /* receives that are posted again together, at most */
#define BW_NET_HOLD_TURNS 8u /* of threads that find nothing, until an end is told by itself */
#define BW_NET_LOOK_TURNS 64u /* between looks at the clock */
/*
 * Up to so many bytes a transfer stays on rail 0 and with the thread that has it: to register it on
 * other rails, and to wake their threads, would take longer than to copy it.
 */
#define BW_NET_SPLIT (256u << 10)

/* ---- what is given to an engine as a context: its first member ------------------------------- */

enum bw_token_kind { BW_TOKEN_TX = 1, BW_TOKEN_RX, BW_TOKEN_CHUNK };

struct bw_token {
	uint8_t kind;
};

/* Buffers of messages. One that a peer took with it when it failed is never used again. */
struct bw_tx {
	struct bw_token token;
	struct bw_peer *peer; /* NULL: lost */
	struct bw_tx *next;
	struct bw_netrail *rail;
	unsigned char *at;
	void *desc;
};

struct bw_rx {
	struct bw_token token;
	uint8_t rail;
	struct bw_rx *next; /* to be posted again */
	unsigned char *at;
	void *desc;
};

/* Memory of the two above, registered. */
struct bw_slab {
	struct bw_slab *next;
	struct bw_netrail *rail;
	struct bw_reg reg;
	void *memory, *heads;
	unsigned n;
	bool tx;
};

/* ---- rails ----------------------------------------------------------------------------------- */

struct bw_netrail {
	pthread_mutex_t polling, lock;
	_Atomic unsigned wanted; /* how many wait for @lock */
	_Atomic bool arming;     /* who has it is about to sleep, and that may take long */
	_Atomic unsigned quiet;  /* polls since there was something */
	struct bw_rail *rail;
	struct bw_rail_info info;
	unsigned index;
	char interface[64];
	bool broken;
	struct bw_tx *tx;        /* free; under ep->lock, as what follows */
	struct bw_rx *again;     /* not posted yet */
	struct bw_rx *spent;     /* to be posted when nothing comes; @polling is held as well */
	unsigned nspent;
	/* writes that its thread has to post; who posts holds @polling, and @lock from when it has
	 * set @posting until @posted says how it went */
	struct bw_chunk *out, **out_tail, *posting;
	int posted;
	_Atomic unsigned nout;
	unsigned load;           /* writes that it has or had, of transfers under way */
	unsigned spare;          /* receives posted for peers that are gone */
	size_t address_bytes;
	unsigned char address[256];
};

/* ---- staging: pinned memory, or plain memory for host to host -------------------------------- */

struct bw_ring {
	struct bw_ring *next;
	struct bw_device *dev;   /* NULL: plain memory */
	unsigned char *at;
	bool sink, plain;
	unsigned nregs;
	struct bw_reg reg[BW_WIRE_RAILS];
};

/* ---- regions --------------------------------------------------------------------------------- */

struct bw_region {
	struct bw_region *next, *prev;
	struct bw_ep *ep;
	unsigned char *host;     /* the CPU's address; GPU memory: of the mapping */
	struct bw_mapping *map;  /* NULL: host memory */
	struct bw_device *dev;
	struct bw_device *sole;  /* the GPU that all of it is on; NULL: several, or host memory */
	uint64_t addr;
	size_t bytes;
	uint32_t access, id;     /* id: place in ep->regions, and a generation */
	unsigned uses, own, refs; /* flows under way; those of transfers; prepared transfers */
	bool closed, direct;
	bool closing;            /* peers can begin nothing with it */
	bool read_back;          /* before what arrived is VISIBLE */
	unsigned nregs;          /* 0: engines need none, or take the range of each transfer */
	struct bw_reg reg[BW_WIRE_RAILS];
	unsigned char secret[16];
	char rung[16];
	struct bw_reason reason;
};

/* ---- flows: one movement of bytes, as one of its ends sees it -------------------------------- */

enum bw_flow_side { BW_SOURCE = 1, BW_SINK };

enum bw_flow_state {
	BW_FLOW_IDLE,
	BW_FLOW_STREAM,    /* waits for the caller's stream */
	BW_FLOW_MATCH,     /* a receive that has no message */
	BW_FLOW_PARTS,     /* the peer's pieces are still coming */
	BW_FLOW_QUEUED,    /* its first message has not gone out */
	BW_FLOW_ASKED,     /* it has; no answer yet */
	BW_FLOW_RING,      /* waits for staging memory */
	BW_FLOW_MOVING,    /* bytes move */
	BW_FLOW_WRITTEN,   /* source: everything is, the sink has not answered */
	BW_FLOW_LEAVING,   /* given up: waits until nobody touches its memory any more */
};

/* What a flow has to send, in this order. */
#define BW_TX_ASK 1u    /* PUT, SEND, GET */
#define BW_TX_GRANT 2u
#define BW_TX_PARTS 4u
#define BW_TX_DATA 8u

struct bw_flow;

enum bw_chunk_state { BW_CHUNK_FREE, BW_CHUNK_COPYING, BW_CHUNK_READY, BW_CHUNK_WRITING };

struct bw_chunk {
	struct bw_token token;
	uint8_t state, slot;     /* slot: of the sink's ring */
	struct bw_flow *flow;    /* NULL: lost */
	struct bw_request *copy;
	const unsigned char *src;
	uint32_t lap;            /* and the how manieth that goes there */
	uint64_t to;             /* direct: offset in the sink's region */
	size_t bytes;
	unsigned staging;        /* which chunk of the source's ring; UINT_MAX: none */
	struct bw_netrail *rail; /* that is to post it; NULL: it has been */
	struct bw_netrail *on;   /* counted in its load; NULL: none */
	struct bw_chunk *next_out;
	uint64_t from;           /* offset in the source's region where there is no staging */
};

struct bw_slot_in {
	bool busy;
	uint32_t laps;           /* how often it was filled */
	size_t bytes;
	struct bw_request *copy;
};

/* What flows need that are not eager. */
struct bw_bulk {
	struct bw_bulk *next;
	struct bw_ring *ring;
	uint32_t count;          /* writes: posted, or arrived */
	/* source */
	struct bw_wire_grant grant;
	struct bw_wire_part *to; /* the receive's pieces; NULL: the flow's own */
	size_t nto, got_to;
	size_t i_from, i_to;     /* the next byte to be chunked: pieces, and how far in them */
	uint64_t in_from, in_to, at;
	unsigned outstanding, next_rail, next_chunk;
	uint64_t free_slots, rails_used;
	uint32_t laps[BW_NET_DEPTH];
	bool sent;
	struct bw_chunk chunk[BW_NET_DEPTH];
	/* sink */
	unsigned nregs;
	struct bw_reg reg[BW_WIRE_RAILS];
	uint64_t base;           /* offset in the region where they begin */
	uint32_t expected;       /* writes; UINT32_MAX: not known yet */
	bool abandoned;          /* the source said that no more comes */
	uint64_t landed;         /* bytes that were copied on from the ring */
	size_t ring_chunk;
	struct bw_slot_in slot[BW_NET_DEPTH];
};

struct bw_flow {
	struct bw_flow *next, *prev;    /* of the peer */
	struct bw_flow *next_tx;        /* in a queue of the peer's */
	struct bw_queue *in;
	struct bw_flow *next_busy, *prev_busy; /* of the endpoint: needs turns */
	struct bw_peer *peer;
	struct bw_xfer *xfer;           /* NULL: the peer's */
	struct bw_region *region;
	uint32_t id, other;
	uint8_t side, op, state, tx;
	bool listed, queued, busy, eager, signal, counted, answered;
	uint8_t flags;                  /* BW_WIRE_STAGED, _DIRECT */
	int error;                      /* what it ends with, when it leaves */
	struct bw_wire_part *parts;
	size_t n, nparts_done;          /* pieces sent, or received */
	uint64_t bytes;
	uint64_t leave_by;
	struct bw_bulk *bulk;
	/* the peer's */
	struct bw_wire_part one;
	struct bw_wire_signal sig;
	struct bw_region *sig_region;   /* which it keeps open; NULL: none */
};

/* ---- transfers ------------------------------------------------------------------------------- */

/* bw_xfer.reached */
#define BW_REACHED_NEW 0x100u    /* never posted */
#define BW_REACHED_FAILED 0x200u
#define BW_REACHED_DONE 0x400u   /* may be posted again */
#define BW_REACHED_SLEEPER 0x800u /* a thread sleeps on the word */
#define BW_REACHED_MOMENT 0xffu

struct bw_xfer {
	_Atomic uint32_t reached;
	uint32_t path;
	struct bw_xfer *inbox;
	struct bw_flow flow;
	struct bw_wire head;
	struct bw_wire_signal signal;
	uint64_t bytes, deadline_ns, deadline_at;
	bool fits;               /* it may be eager */
	uint64_t tag, ignore, order;
	struct bw_xfer *match_next, *match_prev;
	bool matching;
	/* the last posting */
	_Atomic int error;
	uint64_t posted_ns, ready_ns, local_ns, arrived_ns, visible_ns;
	_Atomic uint64_t returned_ns;
	uint64_t message_bytes, message_tag;
	uint32_t chunks, rails;
	bool was_eager, was_ring_in, was_ring_out;
	char why[384];
	/* a descriptor and streams */
	_Atomic int fd;
	struct bw_word *word;
	bool hold, on_stream;
	struct bw_xfer *stream_next;
};

/* ---- messages that no receive has taken ------------------------------------------------------ */

struct bw_early {
	struct bw_early *next, *prev;               /* in the order in which they came */
	struct bw_early *bucket_next, *bucket_prev;
	struct bw_wire head;
	unsigned char data[];                       /* eager */
};

/* ---- peers ----------------------------------------------------------------------------------- */

struct bw_say { /* a message without bytes that could not be sent at once */
	struct bw_say *next;
	struct bw_wire head;
};

struct bw_queue {
	struct bw_flow *head, **tail;
};

struct bw_xfer_list {
	struct bw_xfer *head, *tail;
};

struct bw_peer {
	struct bw_peer *next, *prev;
	struct bw_ep *ep;
	struct bw_link *link;
	uint64_t token, their_token;
	uint64_t rail[BW_WIRE_RAILS];
	unsigned nrails, index, refs;
	unsigned eager;
	size_t chunk;
	_Atomic int failed;        /* errno; 0: alive */
	_Atomic bool up;
	bool closed, connects, stuck, given;
	uint64_t dying_since;      /* its control connection is over */
	uint64_t since_ns;
	uint32_t hello_todo, hello_seen; /* rails */
	/* sending */
	unsigned credits, owed, sends_out, ops_out;
	unsigned unsent;           /* messages that the network still has */
	size_t eager_out;
	/* ends that were not told yet, and whether waiting for a message to tell them with pays */
	uint32_t acks[BW_NET_ACKS];
	unsigned nacks, replies_soon;
	uint64_t acked_at, held_at; /* ep->idle_turns */
	struct bw_say *say, **say_tail;
	struct bw_queue replies, ops, sends;
	struct bw_flow *flows;
	/* receiving */
	unsigned ops_in, sends_in;
	size_t early_bytes;
	struct bw_xfer_list posted[BW_NET_BUCKETS], wild;
	struct bw_early *early, *early_last;
	struct bw_early *bucket[BW_NET_BUCKETS], *bucket_last[BW_NET_BUCKETS];
	/* who it is */
	char name[64], failure[256];
	struct bw_wire_hello hello;
};

/* ---- endpoints ------------------------------------------------------------------------------- */

/*
 * Where one sleeps: a descriptor of its own, so that nobody takes a wake-up that was another's.
 * Whoever calls counts first and looks then for one who sleeps; the sleeper says that it does, and
 * looks then whether that was counted since it last looked for work. So one of the two sees it.
 */
struct bw_bed {
	_Atomic bool taken, asleep;
	int fd;                  /* eventfd; -1: none yet */
};

#define BW_NET_BEDS 8u           /* of callers; more of them sleep for a short time only */

/* Of one who makes progress, while it waits. */
struct bw_idle {
	uint64_t since;          /* when there was something to do last; 0: just now */
	unsigned turns, seen;    /* calls that its next look for work is after */
	bool again;              /* it looks once more before it sleeps */
};

struct bw_net_thread {
	pthread_t id;
	struct bw_ep *ep;
	unsigned first, step;    /* rails: @first, @first + @step ... */
	_Atomic unsigned calls;
	struct bw_bed bed;
};

struct bw_word;

struct bw_ep {
	pthread_mutex_t lock;
	_Atomic(struct bw_xfer *) inbox;
	_Atomic uint32_t attention; /* there is something to do besides polling rails */
	_Atomic bool holding;       /* ends that are told by themselves when nothing comes */
	_Atomic uint64_t idle_turns;
	_Atomic unsigned outs;      /* writes that wait for their rails' threads */
	_Atomic uint64_t next_look; /* at the control connections */
	_Atomic uint64_t next_deadline;
	_Atomic bool stopping, shut;
	_Atomic bool rouse;         /* somebody has to be awake for what is new to do */
	_Atomic unsigned calls, sleepers; /* of callers */
	struct bw_bed bed[BW_NET_BEDS];
	unsigned nrails, nthreads;
	unsigned threaded;          /* with how many progress threads it was opened */
	bool crowded;               /* they have to share CPUs with whoever waits for them */
	uint64_t spin_ns;
	struct bw_netrail rail[BW_WIRE_RAILS];
	struct bw_ep_options options;
	size_t message_bytes;
	struct bw_control *control;
	struct bw_peer *peers;
	_Atomic unsigned npeers;    /* for those who have no lock */
	struct bw_peer **by_index;
	unsigned nby_index;
	struct bw_slab *slabs;
	struct bw_flow *busy;       /* have something to do that no event tells of */
	struct bw_flow **flows;     /* by the low 16 bits of their ids */
	uint16_t *generations;
	unsigned nflows, next_flow;
	struct bw_flow *free_flows;
	struct bw_bulk *free_bulks, *lost_bulks;
	struct bw_ring *rings, *lost_rings; /* free; until the rails are closed */
	unsigned nrings[2];
	struct bw_region *regions;
	struct bw_region **region_by_id;
	uint16_t *region_generations;
	unsigned nregion_ids;
	struct bw_xfer *on_stream;  /* wait for their streams */
	struct bw_word_page *words;
	uint64_t order;
	struct bw_net_thread thread[BW_WIRE_RAILS];
	_Atomic uint64_t counter[BW_N_COUNT];
	char interfaces[256];
};

static inline void bw_n_count(struct bw_ep *ep, enum bw_net_counter c, uint64_t n)
{
	/* written under ep->lock, or where a lost one does no harm */
	atomic_store_explicit(&ep->counter[c],
			      atomic_load_explicit(&ep->counter[c], memory_order_relaxed) + n,
			      memory_order_relaxed);
}

#define BW_CALL(r, fn, ...) ((r)->rail->engine->fn((r)->rail, ##__VA_ARGS__))

/* One whose owner gives it back soon: who waits for it looks again a few times, then sleeps. */
static inline void bw_mutex_init(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
#ifdef __GLIBC__
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
	pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
}

/*
 * For whoever has something for the rail. A mutex that is given back goes to who asks next, and one
 * who polls without a pause has asked again before any other has woken: it does not while somebody
 * waits.
 */
static inline void bw_rail_lock(struct bw_netrail *r)
{
	if (!pthread_mutex_trylock(&r->lock))
		return;
	atomic_fetch_add(&r->wanted, 1);
	if (atomic_load(&r->arming) && r->rail->engine->interrupt)
		BW_CALL(r, interrupt);
	pthread_mutex_lock(&r->lock);
	atomic_fetch_sub_explicit(&r->wanted, 1, memory_order_relaxed);
}

static inline void bw_rail_unlock(struct bw_netrail *r)
{
	pthread_mutex_unlock(&r->lock);
}

/* Of something new no descriptor may tell: one who makes progress has to look; with ep->lock. */
static inline void bw_ep_news(struct bw_ep *ep)
{
	atomic_store_explicit(&ep->rouse, true, memory_order_relaxed);
}

/* The same, and it is nothing that polling shows. */
static inline void bw_ep_attend(struct bw_ep *ep)
{
	atomic_store_explicit(&ep->attention, 1, memory_order_relaxed);
	bw_ep_news(ep);
}

/* Is there something to do that polling does not show? @idle: polling has shown nothing. */
static inline bool bw_ep_wants_turn(const struct bw_ep *ep, bool idle)
{
	return atomic_load_explicit(&ep->attention, memory_order_relaxed) ||
	       (idle && atomic_load_explicit(&ep->holding, memory_order_relaxed));
}

/* ---- endpoint.c ------------------------------------------------------------------------------ */

int bw_tx_add(struct bw_ep *ep, struct bw_netrail *r); /* more buffers */
int bw_rx_add(struct bw_ep *ep, struct bw_netrail *r, unsigned n);
void bw_rx_post(struct bw_ep *ep, struct bw_rx *rx);
void bw_rx_retry(struct bw_ep *ep, struct bw_netrail *r);
/* Its message was handled: it is posted again with others, or when nothing comes. */
void bw_rx_spent(struct bw_ep *ep, struct bw_rx *rx);
void bw_rx_renew(struct bw_ep *ep, struct bw_netrail *r);

/* ---- proxy.c --------------------------------------------------------------------------------- */

void bw_ep_lock(struct bw_ep *ep);
bool bw_ep_trylock(struct bw_ep *ep);
void bw_ep_unlock(struct bw_ep *ep);  /* also begins what was posted meanwhile */
int bw_ep_start_threads(struct bw_ep *ep);
void bw_ep_stop_threads(struct bw_ep *ep);
/* One turn over rails @first, @first + @step ...; @mine: by their own thread. How much came. */
int bw_ep_turn(struct bw_ep *ep, unsigned first, unsigned step, bool mine, unsigned *turns);
void bw_ep_before_sleep(struct bw_ep *ep);
/* Has something to post that waits for its thread? */
static inline bool bw_rail_has_out(const struct bw_netrail *r)
{
	return atomic_load_explicit(&r->nout, memory_order_relaxed);
}

/* ---- idle.c: spinning, sleeping, waking ------------------------------------------------------ */

int bw_beds_open(struct bw_ep *ep);
void bw_beds_close(struct bw_ep *ep);
/* Somebody who makes progress, after what it is to see was stored. */
void bw_ep_rouse(struct bw_ep *ep);
void bw_ep_wake(struct bw_ep *ep);         /* everybody */
void bw_ep_wake_callers(struct bw_ep *ep); /* who wait for something that has come */
void bw_ep_wake_rail(struct bw_ep *ep, unsigned rail); /* its thread */
/* Is the rail looked after by a thread that is awake, so that others need not look? */
bool bw_rail_attended(const struct bw_ep *ep, unsigned rail);
/* Moves things on, then waits a little for more. Callers look for what they wait for between two
 * steps, and are woken when it came after they looked. @idle: zero at first. */
int bw_ep_step(struct bw_ep *ep, struct bw_idle *idle, uint64_t until_ns);
/* The same, but true instead of sleeping. */
bool bw_ep_step_awake(struct bw_ep *ep, struct bw_idle *idle);
void *bw_net_thread_main(void *thread);
/* @flow has something to do that no event tells of: it gets turns until it has not. */
void bw_flow_busy(struct bw_flow *f, bool busy);
void bw_ep_look_by(struct bw_ep *ep, uint64_t at_ns);

/* ---- send.c: messages, with ep->lock held ---------------------------------------------------- */

void bw_queue_init(struct bw_queue *q);
/* Sends it, or keeps it until it can be sent. */
void bw_peer_say(struct bw_peer *p, const struct bw_wire *head);
/* Its transfer @id has ended well. */
void bw_peer_ack(struct bw_peer *p, uint32_t id);
void bw_peer_say_acks(struct bw_peer *p);
void bw_flow_send(struct bw_flow *f, unsigned tx); /* BW_TX_... */
void bw_flow_unsend(struct bw_flow *f);            /* takes it out of the queues */
void bw_peer_push(struct bw_peer *p);
/* HELLO and WELCOME, on any rail; -EAGAIN. */
int bw_peer_greet(struct bw_peer *p, unsigned rail);
/* How many turns without anything ends may wait for a message that tells them besides. */
static inline unsigned bw_ack_turns(const struct bw_ep *ep)
{
	return ep->threaded ? BW_NET_HOLD_TURNS : 0;
}

/* ---- receive.c, serve.c --------------------------------------------------------------------- */

struct bw_message {
	const struct bw_wire *head;
	const unsigned char *at; /* what follows the header */
	size_t left;
};

/* The next @bytes of it; NULL: there are fewer. */
const void *bw_message_take(struct bw_message *m, uint64_t bytes);
/* The peer sent @what, which cannot be. */
void bw_message_wrong(struct bw_peer *p, const char *what);

void bw_serve_put(struct bw_peer *p, struct bw_message *m);
void bw_serve_get(struct bw_peer *p, struct bw_message *m);
void bw_serve_begin(struct bw_flow *f); /* all pieces of it are here */

void bw_ep_event(struct bw_ep *ep, struct bw_netrail *r, struct bw_event *event);

/* ---- flow.c: what both sides share ----------------------------------------------------------- */

int bw_flow_id(struct bw_ep *ep, struct bw_flow *f);   /* a place; -ENOSPC */
void bw_flow_new_id(struct bw_ep *ep, struct bw_flow *f); /* the next generation */
void bw_flow_no_id(struct bw_ep *ep, struct bw_flow *f);
struct bw_flow *bw_flow_find(struct bw_peer *p, uint32_t id);
struct bw_flow *bw_flow_of_other(struct bw_peer *p, uint32_t other, enum bw_flow_side side);
struct bw_flow *bw_flow_take(struct bw_peer *p, enum bw_flow_side side, enum bw_operation op);
void bw_flow_list(struct bw_flow *f);
/* It is over: gives back what it held; ends its transfer, or forgets the peer's flow. @error:
 * errno, with @text; 0. */
void bw_flow_end(struct bw_flow *f, int error, const char *text);
/* Tells the peer that it ended, with -@error or well. */
void bw_flow_tell(struct bw_flow *f, int error);
int bw_flow_bulk(struct bw_flow *f);                   /* -ENOMEM */
/* Begins to give up: ends at once where nobody else touches its memory. */
void bw_flow_leave(struct bw_flow *f, int error);
void bw_flow_turn(struct bw_flow *f);

/* ---- source.c, sink.c ------------------------------------------------------------------------ */

void bw_source_granted(struct bw_flow *f, const struct bw_wire_grant *grant);
void bw_source_turn(struct bw_flow *f);
void bw_source_written(struct bw_chunk *c, const struct bw_event *event);
/* Posts writes that were left to the rail's thread, which holds rail->polling. */
void bw_source_post(struct bw_ep *ep, struct bw_netrail *r);
void bw_source_unload(struct bw_chunk *c); /* it is of no rail's load any more */
void bw_source_leave(struct bw_flow *f, int error);

/* All its pieces are known: checks, registers, grants. */
void bw_sink_begin(struct bw_flow *f);
void bw_sink_grant(struct bw_flow *f, struct bw_wire_grant *out);
void bw_sink_arrived(struct bw_flow *f, unsigned slot);
void bw_sink_expect(struct bw_flow *f, uint32_t n);
void bw_sink_turn(struct bw_flow *f);
void bw_sink_leave(struct bw_flow *f, int error);
/* Bytes that came in a message. */
void bw_sink_eager(struct bw_flow *f, const unsigned char *data);
/* Before it may be used: a fence, what the GPU needs besides, the signal in @word's region. */
void bw_sink_publish(struct bw_region *r, struct bw_region *word, const struct bw_wire_signal *sig);
void bw_sink_let_go(struct bw_flow *f);
void bw_source_let_go(struct bw_flow *f);

/* ---- match.c --------------------------------------------------------------------------------- */

void bw_match_post(struct bw_xfer *t);    /* a receive: takes a message, or waits for one */
void bw_match_remove(struct bw_xfer *t);
void bw_match_message(struct bw_peer *p, const struct bw_wire *head, const unsigned char *data);
bool bw_match_forget(struct bw_peer *p, uint32_t src); /* a message whose sender gave up */
void bw_match_free(struct bw_peer *p);

/* ---- region.c -------------------------------------------------------------------------------- */

struct bw_region *bw_region_find(struct bw_ep *ep, uint32_t id, const unsigned char *secret);
void bw_region_unref(struct bw_region *r);
bool bw_key_parse(const unsigned char *key, uint32_t *id, unsigned char secret[16]);
void bw_region_store(struct bw_region *r, uint64_t offset, const void *src, size_t n);
void bw_region_load(struct bw_region *r, void *dst, uint64_t offset, size_t n);
bool bw_region_shares_load(const struct bw_region *r, size_t n); /* with helper threads? */
/* Before bw_region_load() of GPU memory; bw_sink_publish() comes after bw_region_store(). */
static inline void bw_region_before_load(const struct bw_region *r)
{
	if (r->map)
		bw_fence_read();
}
static inline bool bw_region_has(const struct bw_region *r, uint64_t offset, uint64_t bytes)
{
	return offset <= r->bytes && bytes <= r->bytes - offset;
}

/* ---- stage.c --------------------------------------------------------------------------------- */

/* -EAGAIN: all are in use, wait. */
int bw_ring_get(struct bw_ep *ep, struct bw_device *dev, bool sink, struct bw_ring **out);
/* @lost: the network may still read or write it. */
void bw_ring_put(struct bw_ep *ep, struct bw_ring *ring, bool lost);
void bw_rings_unregister(struct bw_ep *ep);
void bw_rings_free(struct bw_ep *ep);         /* after the rails are closed */
/* Starts to copy [at, at + bytes) of the stream of @parts from or to @memory. *@req NULL: it is
 * done already. */
int bw_stage_copy(struct bw_region *r, const struct bw_wire_part *parts, size_t n, uint64_t at,
		  unsigned char *memory, size_t bytes, bool to_region, struct bw_request **req);

/* ---- stream.c -------------------------------------------------------------------------------- */

struct bw_word {
	struct bw_word *next;
	struct bw_device *dev;
	volatile uint64_t *at;    /* [0] the stream writes, [8] it waits for */
	uint64_t addr;            /* as the device sees it */
	uint64_t turn;
	bool late;                /* a stream may still store it: nobody else's */
};

void bw_stream_turn(struct bw_ep *ep);
void bw_stream_release(struct bw_xfer *t);   /* what the stream waits for has come, or failed */
void bw_stream_forget(struct bw_xfer *t);
void bw_stream_drop(struct bw_xfer *t);      /* its word */
void bw_words_free(struct bw_ep *ep);

/* ---- peer.c ---------------------------------------------------------------------------------- */

/* Everything with it ends with -@err; others go on. */
void bw_peer_fail(struct bw_peer *p, int err, const char *fmt, ...) BW_PRINTF(3, 4);
void bw_peer_greeted(struct bw_peer *p, unsigned rail, bool welcome);
/* Greets on rails that did not take it before. true: one does not yet. */
bool bw_peer_greet_on(struct bw_peer *p);
void bw_peer_unref(struct bw_peer *p);
void bw_peers_look(struct bw_ep *ep);        /* control connections */
struct bw_peer *bw_peer_of(struct bw_ep *ep, uint64_t token);

/* ---- transfer.c ------------------------------------------------------------------------------ */

int bw_xfer_claim(struct bw_xfer *t);        /* -EBUSY, -EIO, -ESTALE: it cannot be posted */
void bw_xfer_launch(struct bw_xfer *t);
void bw_xfer_begin(struct bw_xfer *t);       /* it is ready; ep->lock held */
void bw_xfer_start(struct bw_xfer *t);       /* from the inbox */
void bw_xfer_reach(struct bw_xfer *t, enum bw_moment moment);
void bw_xfer_end(struct bw_xfer *t, int error, const char *text);
void bw_xfer_why(struct bw_xfer *t, const char *text); /* for its end, where there is no better */
uint64_t bw_xfers_look(struct bw_ep *ep, uint64_t now); /* deadlines; the next one */

#endif
