/* SPDX-License-Identifier: BSD-3-Clause */
/* net/imitation_int: between the files of the imitation. Its state is under one lock. */
#ifndef BW_NET_IMITATION_INT_H
#define BW_NET_IMITATION_INT_H

#include <pthread.h>

#include "net/imitation.h"

#define FLIGHTS_MAX 256u /* of a rail */
#define PEER_TAKES 128u  /* of these for one peer: a slow one does not fill the queue */
#define DEAD_TAKES 8u    /* what a dead peer's connection still swallows */

struct note { /* an event that is to come; had when posting, so that nothing fails later */
	struct note *next;
	uint64_t peer; /* that it was given to; 0: none */
	struct bw_event event;
};

struct receive {
	struct receive *next;
	void *message;
	size_t room;
	struct note *note;
};

struct memory {
	struct memory *next;
	char *ptr;        /* where the CPU finds it */
	uint64_t addr;    /* as peers name it */
	uint64_t base;    /* as its owner names it */
	size_t bytes;
	uint64_t key;
	void *mapped;     /* the dma-buf; NULL */
	size_t mapped_bytes;
	bool remote_write, remote_read;
};

struct flight { /* a message, a write or a read on its way */
	struct flight *next;
	uint64_t target;
	enum bw_event_kind kind;
	char *here;       /* the memory of the rail that posted it */
	char *taken;      /* a copy, when it is LOCAL */
	size_t bytes, done;
	uint64_t addr, key;
	unsigned flags;
	unsigned local_in, arrives_in, waited; /* polls */
	struct note *own, *remote; /* NULL: given away, or none */
};

struct imitation_rail {
	struct bw_rail rail;
	struct imitation_rail *next;
	uint64_t id;
	bool rdma, dead, loud;
	struct flight *flights, **last;
	unsigned nflights;
	struct receive *receives, **last_receive;
	struct memory *memories;
	struct note *notes, **last_note;
};

extern pthread_mutex_t bw_imitation_lock;
extern struct imitation_rail *bw_imitation_rails;
extern struct bw_imitation bw_imitation_how;

/* With the lock held. */
uint64_t bw_imitation_random(uint64_t below);
struct imitation_rail *bw_imitation_find(uint64_t id);
void bw_imitation_tell(struct imitation_rail *r, struct note **note);
void bw_imitation_drop(struct imitation_rail *r, struct flight **at); /* *@at goes */
/* One poll of @r. */
void bw_imitation_move(struct imitation_rail *r);

/* imitation_memory.c; the lock is free */
int bw_imitation_reg(struct bw_rail *rail, const struct bw_reg_request *request,
		     struct bw_reg *out);
void bw_imitation_unreg(struct bw_rail *rail, struct bw_reg *reg);
void bw_imitation_free_memory(struct memory *m);
/* Where the CPU finds what its owner names @p, with the descriptor of its memory; -EINVAL. */
int bw_imitation_locate(const struct imitation_rail *r, const void *p, size_t bytes,
			const void *desc, char **out);

#endif
