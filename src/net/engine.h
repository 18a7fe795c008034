/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/engine: what moves messages and writes between processes. The contract of every engine;
 * tests/contract/engine_test.c runs on each that is listed in engine.c.
 *
 * An engine makes rails. A rail is one address on one interface of one network with a completion
 * queue of its own; it sends messages to, and writes the registered memory of, rails of other
 * processes. One thread at a time uses a rail: whoever has it locks it. Nothing here blocks but
 * open, close, connect and registration.
 *
 * What may not be assumed, because some network does otherwise: that writes arrive in order; that a
 * completion of a write means that it arrived; that a message or a write to a process that has died
 * ever completes, or that posting ever stops to answer -EAGAIN; that a write with a wrong key
 * fails; that anything moves while the target does not poll; that what was given to a peer which
 * was disconnected is no longer read or written, before the rail is closed.
 *
 * What may be assumed: messages between two rails arrive in the order in which they were sent, and
 * a message or a write is either not there or complete when its event comes.
 */
#ifndef BW_NET_ENGINE_H
#define BW_NET_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct bw_rail;

struct bw_rail_options {
	const char *network;   /* "tcp", "shm", "verbs", ...; "auto": the best on @interface */
	const char *interface; /* address of the interface, "10.0.0.1"; NULL: loopback */
	unsigned peers;        /* how many are expected: queues are sized by it */
	size_t message_bytes;  /* the longest message that will be sent */
};

struct bw_rail_info {
	char network[32];      /* "tcp" */
	char provider[64];     /* the engine's own name for it: "net", "verbs;ofi_rxm" */
	size_t inject_bytes;   /* messages up to it are copied by send: LOCAL when it returns */
	uint64_t write_bytes;  /* the longest write */
	unsigned data_bytes;   /* of data that a write brings to the target's queue: 0, 4, 8 */
	bool target_polls;     /* nothing arrives unless the target polls */
	bool by_cpu;           /* CPUs move the bytes: a mapping of GPU memory may be a target */
	bool reaches_gpu;      /* the network card may reach GPU memory: registration will tell */
	int fd;                /* readable when there may be something to poll, once it was armed;
				* -1: poll */
};

/* Memory to be registered. */
struct bw_reg_request {
	void *ptr;             /* CPU address; GPU memory: its device address as a pointer */
	size_t bytes;
	bool gpu;              /* GPU memory by its device address: by @dmabuf, or peer memory */
	int dmabuf;            /* a descriptor of it, the engine does not keep it; -1: none */
	uint64_t dmabuf_offset; /* of @ptr in it, as far into a host page as @ptr */
	const char *no_dmabuf; /* why there is none; NULL: nobody asked */
	struct bw_reason *passed; /* gets why it is not of a better rung, and is left alone where
				   * there is none; NULL: not wanted */
	bool remote_write, remote_read; /* else for this process's own sends and writes only */
};

struct bw_reg {
	void *handle;          /* the engine's */
	void *desc;            /* given to send, recv, write and read of this memory */
	uint64_t key;          /* what a peer's write needs */
	uint64_t addr;         /* and the address it begins at, as peers have to name it */
	char rung[16];         /* "host", "dmabuf", "peermem" */
};

enum bw_event_kind {
	BW_EVENT_SENT = 1,     /* the message's memory may be reused */
	BW_EVENT_RECEIVED,     /* a message is in the buffer of bw_rail_recv() */
	BW_EVENT_WRITTEN,      /* a write's source may be reused; with BW_WRITE_ARRIVED: arrived */
	BW_EVENT_READ,         /* the bytes of a read are here */
	BW_EVENT_REMOTE,       /* a peer's write with data has arrived here */
};

struct bw_event {
	enum bw_event_kind kind;
	void *ctx;             /* as given to the call; REMOTE: NULL */
	size_t bytes;          /* RECEIVED: of the message; of others 0: networks do not tell */
	uint64_t data;         /* REMOTE: the write's */
	int error;             /* 0, or -errno: what has @ctx failed; the rail goes on */
	char text[128];        /* the network's words for it */
};

#define BW_WRITE_ARRIVED 1u /* its completion comes when the bytes are in the target's memory */

struct bw_net_engine {
	const char *name;      /* "libfabric" */
	bool for_tests;        /* by the names of its networks only */

	/* Can it be used? Cheap; opens what it takes. -ENOTSUP with the reason and remedy. */
	int (*usable)(struct bw_reason *why);
	/* "tcp, shm": what there is, for people. */
	void (*networks)(struct bw_reason *list);

	/* -ENOTSUP with the reason where this engine has no such network or interface;
	 * -EADDRNOTAVAIL no interface has that address; -EINVAL, -EMSGSIZE, -ENOMEM. */
	int (*open)(const struct bw_rail_options *options, struct bw_rail **out);
	void (*close)(struct bw_rail *rail);
	void (*info)(const struct bw_rail *rail, struct bw_rail_info *info);

	/* The rail's address for peers: at most 256 bytes; *n is the room, then the length. */
	int (*address)(struct bw_rail *rail, void *address, size_t *n);
	/*
	 * Gives the rail that has the address a name, for what goes to it; both rails do so.
	 * Nothing is sent: the first message or write makes the connection. It is best sent by one
	 * end only, which the other answers: both at once may take a quarter of a second.
	 */
	int (*connect)(struct bw_rail *rail, const void *address, size_t n, uint64_t *peer);
	/* No event of what was given to @peer comes from then on. Polling may say afterwards that
	 * the rail is broken, where the network completes nothing after what the peer left. */
	void (*disconnect)(struct bw_rail *rail, uint64_t peer);

	/* -ENOTSUP with each rung's reason for GPU memory that it cannot reach. */
	int (*reg)(struct bw_rail *rail, const struct bw_reg_request *request, struct bw_reg *out);
	/* Before the rail is closed. */
	void (*unreg)(struct bw_rail *rail, struct bw_reg *reg);

	/* 0: posted, an event with @ctx will come (of an injected message: none). -EAGAIN: poll,
	 * and try again. Other errors: nothing was posted. */
	int (*send)(struct bw_rail *rail, uint64_t peer, const void *message, size_t bytes,
		    void *desc, void *ctx);
	int (*recv)(struct bw_rail *rail, void *message, size_t room, void *desc, void *ctx);
	/* @data goes to the target's queue unless @has_data is false. */
	int (*write)(struct bw_rail *rail, uint64_t peer, const void *src, size_t bytes, void *desc,
		     uint64_t addr, uint64_t key, bool has_data, uint64_t data, unsigned flags,
		     void *ctx);
	int (*read)(struct bw_rail *rail, uint64_t peer, void *dst, size_t bytes, void *desc,
		    uint64_t addr, uint64_t key, void *ctx);

	/* Moves the rail on; the number of events, at most @n, or -errno: the rail is broken. */
	int (*poll)(struct bw_rail *rail, struct bw_event *events, unsigned n);
	/* Before sleeping on the descriptor: 0: it will become readable when there is something to
	 * poll; -EAGAIN: do not sleep, poll. When it is readable poll, and arm it again. It need
	 * not tell of what another thread's call has completed or left to be polled meanwhile. May
	 * take a millisecond, where the network has to be helped to fall asleep. */
	int (*arm)(struct bw_rail *rail);
	/* An arm that takes long returns soon. The one call that any thread may make meanwhile; it
	 * may come too late. NULL: none takes long. */
	void (*interrupt)(struct bw_rail *rail);
};

/* First member of every engine's rail. */
struct bw_rail {
	const struct bw_net_engine *engine;
};

/* The one list where engines are registered; ends with NULL. */
extern const struct bw_net_engine *const bw_net_engines[];

/* Opens a rail with the first engine that has the network; -ENOTSUP with each one's reason. */
int bw_rail_open(const struct bw_rail_options *options, struct bw_rail **out);

#endif
