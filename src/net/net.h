/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net: the other end is another process. Read it in this order:
 *
 *   wire.h       what endpoints say to each other
 *   net.h        what the layer above calls
 *   net_int.h    the objects
 *   proxy.c      who moves things on; idle.c: how it waits, sleeps and is woken
 *   prepare.c, transfer.c   making transfers, posting; source.c, sink.c: the two ends of one
 *                movement of bytes
 *   receive.c    what comes in; serve.c: what peers ask for; match.c: which receive takes which
 *                message
 *   peer.c, endpoint.c, region.c, stage.c, stream.c
 *
 * below it: control.h, connections that say who is there; engine.h, what moves the bytes.
 *
 * All functions return 0 or -errno with bw_err() set; those that the layer above documents as
 * non-blocking do not block here either.
 */
#ifndef BW_NET_NET_H
#define BW_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "map/map.h"

struct bw_ep;
struct bw_peer;
struct bw_region;
struct bw_xfer;

enum bw_path { BW_PATH_AUTO, BW_PATH_STAGED, BW_PATH_DIRECT }; /* as enum barway_path */

/* Is a load from GPU memory made after what arrived there, before that is VISIBLE? */
enum bw_read_back { BW_READ_BACK_AUTO, BW_READ_BACK_ALWAYS, BW_READ_BACK_NEVER };

struct bw_ep_options {
	const char *listen, *network, *interfaces;
	const void *secret;
	size_t secret_bytes;
	uint32_t path, rails;
	int32_t threads;
	uint64_t deadline_ns, liveness_ns;
	size_t eager, chunk;
	unsigned depth;
	uint64_t spin_ns;
	enum bw_read_back read_back;
};

/* Reads the parameters into what the caller left open, and checks. */
int bw_ep_defaults(struct bw_ep_options *o, unsigned char *secret_room, size_t room);
int bw_ep_open(const struct bw_ep_options *options, struct bw_ep **out);
/* Ends its threads, then its peers and transfers; its regions have to be closed after this. */
void bw_ep_shut(struct bw_ep *ep);
void bw_ep_free(struct bw_ep *ep);
const char *bw_ep_name(const struct bw_ep *ep);
int bw_ep_progress(struct bw_ep *ep);

enum bw_net_counter {
	BW_N_BYTES_OUT, BW_N_BYTES_IN, BW_N_EAGER_OUT, BW_N_EAGER_IN, BW_N_CHUNKS_OUT,
	BW_N_CHUNKS_IN, BW_N_DONE, BW_N_FAILED, BW_N_AGAIN, BW_N_SLEEPS, BW_N_WAKES, BW_N_LOST,
	BW_N_READ_BACKS, BW_N_COUNT
};
uint64_t bw_ep_counter(const struct bw_ep *ep, enum bw_net_counter c);
uint64_t bw_ep_refused(struct bw_ep *ep);

/* ---- peers ----------------------------------------------------------------------------------- */

int bw_peer_connect(struct bw_ep *ep, const char *name, uint64_t timeout_ns, struct bw_peer **out);
int bw_peer_accept(struct bw_ep *ep, uint64_t timeout_ns, struct bw_peer **out);
void bw_peer_close(struct bw_peer *peer);

struct bw_peer_view {
	const char *name, *host, *network, *provider;
	uint32_t pid, rails;
	char failure[256];
	bool alive;
};
void bw_peer_view(struct bw_peer *peer, struct bw_peer_view *view);

/* ---- regions --------------------------------------------------------------------------------- */

#define BW_REGION_PUT 1u
#define BW_REGION_GET 2u
#define BW_KEY_BYTES 64u

/* @map: of [addr, addr + bytes), NULL: host memory; it stays the caller's until the region is
 * closed. @dev: whose streams may post it; NULL: not known. */
int bw_region_open(struct bw_ep *ep, uint64_t addr, size_t bytes, uint32_t access,
		   struct bw_mapping *map, struct bw_device *dev, struct bw_region **out);
int bw_region_close(struct bw_region *region);      /* -EBUSY */
int bw_region_key(struct bw_region *region, unsigned char key[BW_KEY_BYTES]);
void bw_region_drop(struct bw_region *region);      /* after bw_ep_shut() */

struct bw_region_view {
	uint64_t addr, bytes;
	uint32_t access;
	bool direct;
	const char *rung, *reason;
};
void bw_region_view(const struct bw_region *region, struct bw_region_view *view);

/* ---- transfers ------------------------------------------------------------------------------- */

enum bw_operation { BW_PUT = 1, BW_GET, BW_SEND, BW_RECV }; /* as enum barway_operation */
enum bw_moment { BW_LOCAL = 1, BW_ARRIVED, BW_VISIBLE };

struct bw_part { /* as struct barway_part */
	uint64_t local, remote, bytes;
};

struct bw_xfer_options {
	uint32_t operation, path;
	const unsigned char *key, *signal;
	uint64_t tag, ignore, signal_offset, signal_value, deadline_ns;
};

int bw_xfer_prepare(struct bw_peer *peer, struct bw_region *region, const struct bw_part *parts,
		    size_t n, const struct bw_xfer_options *options, struct bw_xfer **out);
int bw_xfer_post(struct bw_xfer *t);
int bw_xfer_post_on_stream(struct bw_xfer *t, struct bw_device *dev, void *stream, bool hold);
int bw_xfer_poll(struct bw_xfer *t, uint32_t moment);
int bw_xfer_wait(struct bw_xfer *t, uint32_t moment, uint64_t timeout_ns);
int bw_xfer_fd(struct bw_xfer *t);
int bw_xfer_cancel(struct bw_xfer *t);
void bw_xfer_free(struct bw_xfer *t);
struct bw_device *bw_xfer_device(const struct bw_xfer *t);

struct bw_xfer_view {
	bool direct, eager;
	uint32_t rails, chunks;
	uint64_t bytes, tag;
	uint64_t posted_ns, returned_ns, ready_ns, local_ns, arrived_ns, visible_ns;
	char path[512];
};
void bw_xfer_view(struct bw_xfer *t, struct bw_xfer_view *view);

#endif
