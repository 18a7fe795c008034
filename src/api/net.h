/* SPDX-License-Identifier: BSD-3-Clause */
/* api/net: handles of what is between processes. All of an endpoint end with it. */
#ifndef BW_API_NET_H
#define BW_API_NET_H

#include <barway_net.h>

#include "api/api.h"
#include "net/net.h"

/* Peers, regions and transfers alike. */
struct bw_net_object {
	struct bw_slot slot;
	enum bw_object kind;
	union {
		struct bw_peer *peer;
		struct bw_region *region;
		struct bw_xfer *xfer;
	};
	struct barway_mapping *map; /* of a region of GPU memory */
	struct bw_endpoint_object *ep;
	struct bw_net_object *prev, *next; /* of the endpoint, under its lock */
};

struct bw_endpoint_object {
	struct bw_slot slot;
	struct bw_ep *ep;
	struct bw_context *ctx;
	struct bw_endpoint_object *prev, *next; /* of the context, under its lock */
	pthread_mutex_t lock;                   /* of the list */
	struct bw_net_object *objects;
};
_Static_assert(sizeof(struct bw_net_object) <= BW_SLOT_BYTES, "bw_net_object");
_Static_assert(sizeof(struct bw_endpoint_object) <= BW_SLOT_BYTES, "bw_endpoint_object");

static inline struct bw_endpoint_object *bw_endpoint_object_get(const struct barway_endpoint *h)
{
	return bw_object_get(h, BW_OBJECT_ENDPOINT);
}

static inline struct bw_net_object *bw_peer_object_get(const struct barway_peer *h)
{
	return bw_object_get(h, BW_OBJECT_PEER);
}

static inline struct bw_net_object *bw_region_object_get(const struct barway_region *h)
{
	return bw_object_get(h, BW_OBJECT_REGION);
}

static inline struct bw_net_object *bw_xfer_object_get(const struct barway_transfer *h)
{
	return bw_object_get(h, BW_OBJECT_TRANSFER);
}

/* NULL: no memory, with the sentence. */
struct bw_net_object *bw_net_object_new(struct bw_endpoint_object *ep, enum bw_object kind);
void *bw_net_object_publish(struct bw_net_object *o);
/* Off the list, after it was retired. */
void bw_net_object_unlist(struct bw_net_object *o);

#endif
