/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barway_net.h: from one process's GPU to another's, on this server or another.
 *
 *     server 0                                       server 1
 *     A: GPU 0 computes x                            B: GPU 1 doubles what it received
 *     send x, ordered on the stream                 receive into y, ordered on the stream
 *
 * A has finished before the send reads x, and B does not begin before x is VISIBLE in y; neither
 * program synchronises with its stream. What lies between is one of two paths: STAGED, GPU memory
 * to pinned host memory to the network and into GPU memory again; or DIRECT, the network card reads
 * and writes GPU memory itself. barway_transfer_query() says which, and why not the better one.
 *
 * The network is libfabric's, which is opened at run time. What holds for every function is said at
 * the top of barway.h; what is said there of the four moments holds here of the far end as well:
 *
 *    LOCAL     the source may be reused
 *    ARRIVED   all bytes are in the destination's memory; counted there, never inferred from order
 *    VISIBLE   a kernel of the GPU that they are in may use them; so may a program there
 *
 * Data is not encrypted, nor is it authenticated: whoever can change packets on the network can
 * change data. The control connections authenticate both ends by a secret that is never sent; use
 * networks that you trust.
 */
#ifndef BARWAY_NET_H
#define BARWAY_NET_H

#include <barway.h>

#ifdef __cplusplus
extern "C" {
#endif

struct barway_endpoint; /* this process's end: engines, progress threads, peers, regions */
struct barway_peer;     /* another process's endpoint, connected */
struct barway_region;   /* memory that transfers go to and come from */
struct barway_transfer; /* one transfer, or a list of them, that can be posted */

/* ---- endpoints ------------------------------------------------------------------------------- */

enum barway_path {
	BARWAY_PATH_AUTO = 0,   /* the best that works; the report says why not the better one */
	BARWAY_PATH_STAGED = 1, /* through pinned host memory */
	BARWAY_PATH_DIRECT = 2, /* only the network card touches GPU memory; else an error */
};

struct barway_endpoint_options {
	size_t size;            /* sizeof(struct barway_endpoint_options) */
	const char *listen;     /* ADDRESS or ADDRESS:PORT on which peers may connect and between
				 * which control connections go; NULL: the parameter net_listen,
				 * 127.0.0.1 */
	const char *network;    /* "tcp", "shm", "verbs", "efa", "cxi", or "auto"; NULL: the
				 * parameter net_network, auto */
	const char *interfaces; /* addresses of the interfaces for data, comma-separated; NULL:
				 * that of @listen; several: rails */
	const void *secret;     /* both ends have it; NULL: what is in the file that the
				 * parameter net_secret_file names */
	size_t secret_bytes;    /* 16 to 1024 */
	uint32_t path;          /* enum barway_path */
	uint32_t rails;         /* connections in parallel to each peer, 1 to 16; 0: the parameter
				 * net_rails, which is 0: as many as large transfers gain from */
	int32_t threads;        /* progress threads; 0: none, calls of this endpoint's make
				 * progress; -1: the parameter net_threads, which is 0 on machines
				 * with fewer than four CPUs, else one for each rail */
	uint32_t reserved;      /* 0 */
	uint64_t deadline_ns;   /* of each transfer from its posting; 0: the parameter
				 * net_deadline_ms, 10 s */
	uint64_t liveness_ns;   /* a peer of which nothing was heard for so long is dead; 0: the
				 * parameter net_liveness_ms, 2 s */
};

/**
 * barway_endpoint_open() - open an endpoint
 * @ctx:     the context whose devices' memory it moves
 * @options: NULL for the defaults; copied
 * @out:     owned by the caller, to barway_endpoint_close()
 *
 * Errors: -EINVAL an option, the message names it; -ENOKEY no secret was given or it is too short;
 * -ENOTSUP libfabric is not there, or has no such network (the message says which there are);
 * -EADDRNOTAVAIL, -EADDRINUSE @listen; -EMFILE, -ENOMEM; -EAGAIN no thread; -ESTALE. Blocks.
 */
BARWAY_API int barway_endpoint_open(struct barway_context *ctx,
				    const struct barway_endpoint_options *options,
				    struct barway_endpoint **out);

/**
 * barway_endpoint_close() - end it, with its peers, regions and transfers
 * Transfers that are not done fail; peers are told. Errors: -ESTALE. Blocks.
 */
BARWAY_API int barway_endpoint_close(struct barway_endpoint *ep);

/**
 * barway_endpoint_name() - "ADDRESS:PORT" for barway_peer_connect(), to be shipped by any means
 * @name: room for @room bytes, its end included. Errors: -ENOSPC, -ESTALE. Does not block.
 */
BARWAY_API int barway_endpoint_name(struct barway_endpoint *ep, char *name, size_t room);

/**
 * barway_endpoint_progress() - move on what is under way, for endpoints without progress threads
 *
 * The polling and waiting functions do it too; a program that exposes regions and waits for nothing
 * has to call it. Returns how many events it handled, or -ESTALE. Does not block.
 */
BARWAY_API int barway_endpoint_progress(struct barway_endpoint *ep);

/* ---- peers ----------------------------------------------------------------------------------- */

/**
 * barway_peer_connect() - connect to another endpoint
 * @name:       what its barway_endpoint_name() gave
 * @timeout_ns: nanoseconds for all of it
 *
 * Both ends prove that they have the secret. Errors: -EINVAL the name; -ECONNREFUSED nobody listens
 * there; -EACCES the other end does not have our secret; -EPROTO it is not Barway, or another
 * version; -ENOTSUP the two have no network in common; -EAGAIN too many knock there at once;
 * -ETIMEDOUT; -ENOSPC, -ENOMEM; -ESTALE. Blocks.
 */
BARWAY_API int barway_peer_connect(struct barway_endpoint *ep, const char *name,
				   uint64_t timeout_ns, struct barway_peer **out);

/**
 * barway_peer_accept() - the next peer that has connected
 * @timeout_ns: nanoseconds; 0: -EAGAIN where there is none now. Those without the secret are never
 * seen here. Errors: -EAGAIN, -ETIMEDOUT, -ESTALE. Blocks.
 */
BARWAY_API int barway_peer_accept(struct barway_endpoint *ep, uint64_t timeout_ns,
				  struct barway_peer **out);

/** barway_peer_close() - disconnect; its transfers fail with -ECANCELED. Errors: -ESTALE. Blocks */
BARWAY_API int barway_peer_close(struct barway_peer *peer);

struct barway_peer_info {
	size_t size;            /* sizeof(struct barway_peer_info) */
	char name[64];          /* "192.0.2.7:41234" */
	char host[64];          /* the machine's name, as it says */
	uint32_t pid;
	uint32_t alive;         /* 0: it failed; transfers end with its error */
	char network[32];       /* "tcp", and libfabric's own name for it: "net" */
	uint32_t rails;
	uint32_t reserved;
	char failure[256];      /* what ended it; "" */
};

/** barway_peer_query() - Errors: -ESTALE, -EINVAL, -E2BIG. Does not block. */
BARWAY_API int barway_peer_query(struct barway_peer *peer, struct barway_peer_info *info);

/* ---- regions --------------------------------------------------------------------------------- */

#define BARWAY_REGION_PUT 1u /* peers that have the key may write it */
#define BARWAY_REGION_GET 2u /* and read it */

/**
 * barway_region_open() - memory for transfers
 * @addr:   host memory (a CPU address), pinned memory, or GPU memory (a device address); any
 *          alignment; it has to stay until the region is closed
 * @access: BARWAY_REGION_..., 0: for this process's own transfers only
 *
 * Errors: those of barway_map() for GPU memory; -EINVAL 0 bytes, unknown access; -EFAULT host
 * memory that is not all there, or that BARWAY_REGION_PUT would let peers write and this process
 * may not; -ENOTSUP the endpoint requires the direct path and this memory cannot have it, with each
 * rung's reason; -ESTALE. Blocks: the first region of a device over a network card is proved with
 * data, which may take half a second, and five where nothing comes back.
 */
BARWAY_API int barway_region_open(struct barway_endpoint *ep, uint64_t addr, size_t bytes,
				  uint32_t access, struct barway_region **out);

/**
 * barway_region_close() - its key is worth nothing from then on
 * Peers begin nothing with it while this waits, 50 ms at most, for what they have begun. Errors:
 * -EBUSY a transfer of this process is under way, or one of a peer's is still: try again, or
 * barway_peer_close(); -ESTALE. Blocks.
 */
BARWAY_API int barway_region_close(struct barway_region *region);

/* What another process needs to address a region: opaque, random, shipped by any means. */
struct barway_key {
	unsigned char bytes[64];
};

/** barway_region_key() - Errors: -EACCES the region was opened for no peer, -ESTALE. Does not
 * block. */
BARWAY_API int barway_region_key(struct barway_region *region, struct barway_key *key);

struct barway_region_info {
	size_t size;        /* sizeof(struct barway_region_info) */
	uint64_t addr, bytes;
	uint32_t access;
	uint32_t direct;    /* 1: the network card reaches it by itself */
	char rung[16];      /* "dmabuf", "peermem", "staged", "host" */
	char reason[512];   /* why each better rung was refused */
};

/** barway_region_query() - Errors: -ESTALE, -EINVAL, -E2BIG. Does not block. */
BARWAY_API int barway_region_query(struct barway_region *region, struct barway_region_info *info);

/* ---- transfers ------------------------------------------------------------------------------- */

enum barway_operation {
	BARWAY_PUT = 1,  /* from my region to the peer's, by its key */
	BARWAY_GET = 2,  /* from the peer's region to mine */
	BARWAY_SEND = 3, /* from my region to where the peer has a matching receive */
	BARWAY_RECV = 4,
};

/* A piece: offsets from the starts of the regions, bytes. @remote is for put and get only. */
struct barway_part {
	uint64_t local, remote, bytes;
};

struct barway_transfer_options {
	size_t size;               /* sizeof(struct barway_transfer_options) */
	uint32_t operation;        /* enum barway_operation */
	uint32_t path;             /* enum barway_path; AUTO: the endpoint's */
	const struct barway_key *key;    /* put, get: the peer's region */
	uint64_t tag, ignore;      /* send, receive: the tag; receive: bits that need not match */
	const struct barway_key *signal; /* put: NULL none; a region of the peer's, open for PUT,
				    * where @signal_value is stored, 8 bytes, when the data is
				    * VISIBLE */
	uint64_t signal_offset;    /* a multiple of 8 */
	uint64_t signal_value;
	uint64_t deadline_ns;      /* 0: the endpoint's */
};

/**
 * barway_transfer_prepare() - make a transfer that can be posted, and posted again
 * @peer:   the other end
 * @region: the local memory
 * @parts:  copied; of a send and a receive the pieces of one message, in order
 * @n:      1 to 65536
 * @out:    owned by the caller, to barway_transfer_free()
 *
 * Errors: -EINVAL an option, or a part outside @region; -EACCES a key that is not one; -ENOTSUP the
 * direct path is required and not to be had, with the reasons; -ENOMEM, -ESTALE. Does not block.
 */
BARWAY_API int barway_transfer_prepare(struct barway_peer *peer, struct barway_region *region,
				       const struct barway_part *parts, size_t n,
				       const struct barway_transfer_options *options,
				       struct barway_transfer **out);

/**
 * barway_transfer_post() - begin
 * Its deadline runs from here; one that passes is told at the latest when the endpoint's
 * liveness_ns have passed too, as the peer may still touch the memory until it answers. Errors:
 * -EBUSY it is under way; -EIO the peer has failed, with what ended it; -ESTALE. Does not wait for
 * the network or the GPU, but may wait for a thread that is giving a chunk to the network.
 */
BARWAY_API int barway_transfer_post(struct barway_transfer *t);

/**
 * barway_transfer_post_on_stream() - begin when the stream's earlier work is done
 * @stream: a stream of the local memory's device; one of another GPU is not told from it, and sees
 *          the data only with net_read_back=always
 * @hold:   not 0: the stream's later work waits until the transfer is VISIBLE (a receive, a get) or
 *          LOCAL (a put, a send); where it fails the stream goes on, and the transfer says why
 *
 * No thread waits for the stream. Kernels that come after it have to be loaded before it: CUDA's
 * lazy loading would wait for it. Errors: as barway_transfer_post(); -ENOTSUP the device has no
 * stream operations. Does not block.
 */
BARWAY_API int barway_transfer_post_on_stream(struct barway_transfer *t, void *stream, int hold);

enum barway_moment {
	BARWAY_LOCAL = 1,
	BARWAY_ARRIVED = 2,
	BARWAY_VISIBLE = 3,
};

/**
 * barway_transfer_poll() - has it come so far?
 * @moment: enum barway_moment
 * 0: yes. -EBUSY: not yet. Its error, with peer, path, network and errno in the sentence:
 * -ETIMEDOUT the deadline; -EIO the peer died or the network failed; -EACCES the peer refuses the
 * key; -ERANGE outside the peer's region; -EMSGSIZE a message longer than the receive; -ECANCELED.
 * -EINVAL not posted; -ESTALE. Does not block.
 */
BARWAY_API int barway_transfer_poll(struct barway_transfer *t, uint32_t moment);

/** barway_transfer_wait() - the same, waiting for it at most @timeout_ns: -EAGAIN when that is over
 * and the transfer goes on. Blocks. */
BARWAY_API int barway_transfer_wait(struct barway_transfer *t, uint32_t moment,
				    uint64_t timeout_ns);

/** barway_transfer_fd() - a descriptor that becomes readable when it is VISIBLE or has failed, and
 * is not readable again after the next posting. Owned by the transfer. -EMFILE, -ESTALE. */
BARWAY_API int barway_transfer_fd(struct barway_transfer *t);

/** barway_transfer_cancel() - give up: it ends with -ECANCELED, unless it is done already. What of
 * it has reached the peer's memory is not said. Waits until nobody uses the local memory for it.
 * Errors: -EINVAL not posted; -ESTALE. May block. */
BARWAY_API int barway_transfer_cancel(struct barway_transfer *t);

/** barway_transfer_free() - forget it; one that is under way is cancelled. Errors: -ESTALE. May
 * block. */
BARWAY_API int barway_transfer_free(struct barway_transfer *t);

struct barway_transfer_info {
	size_t size;             /* sizeof(struct barway_transfer_info) */
	uint32_t direct;         /* 1: direct; 0: staged */
	uint32_t rails;          /* connections that carried it */
	uint64_t bytes;          /* of the last posting; of a receive: of the message */
	uint64_t tag;            /* of a receive: the message's */
	uint64_t posted_ns;      /* CLOCK_MONOTONIC: it was posted; 0: it was not */
	uint64_t returned_ns;    /* the call came back */
	uint64_t ready_ns;       /* the data was ready: at once, or when the stream came there */
	uint64_t local_ns, arrived_ns, visible_ns; /* 0: not yet */
	uint32_t chunks;
	uint32_t eager;          /* 1: the bytes went in the first message */
	char path[512];          /* each leg: by what the bytes moved, and why not by better */
};

/** barway_transfer_query() - Errors: -ESTALE, -EINVAL, -E2BIG. Does not block. */
BARWAY_API int barway_transfer_query(struct barway_transfer *t, struct barway_transfer_info *info);

/* ---- counters -------------------------------------------------------------------------------- */

struct barway_net_counters {
	size_t size;                 /* sizeof(struct barway_net_counters) */
	uint64_t bytes_out, bytes_in;
	uint64_t eager_out, eager_in; /* messages that carried their bytes */
	uint64_t chunks_out, chunks_in;
	uint64_t done, failed;       /* transfers */
	uint64_t again;              /* postings that the network put off */
	uint64_t sleeps, wakes;      /* of progress threads */
	uint64_t peers_lost, peers_refused;
	uint64_t read_backs;         /* loads from GPU memory before what arrived was VISIBLE */
};

/** barway_net_counters_get() - Errors: -ESTALE, -EINVAL, -E2BIG. Does not block. */
BARWAY_API int barway_net_counters_get(struct barway_endpoint *ep,
				       struct barway_net_counters *counters);

#ifdef __cplusplus
}
#endif
#endif
