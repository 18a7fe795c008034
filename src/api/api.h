/* SPDX-License-Identifier: BSD-3-Clause */
/* api: argument checks, contexts, errors; the only code that sees option structs. */
#ifndef BW_API_H
#define BW_API_H

#include <barway.h>
#include <pthread.h>
#include <stdbool.h>

#include "core/err.h"
#include "core/handle.h"
#include "device/device.h"
#include "map/map.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct bw_context {
	struct bw_slot slot;
	pthread_mutex_t lock; /* of what follows */
	struct bw_mapping *mappings;
	struct bw_request_object *requests;
	struct bw_channel_object *channels;
	struct bw_endpoint_object *endpoints;
	struct bw_device_object **devices;
	_Atomic int ndevices; /* -1: not enumerated yet; never changes after */
	uint32_t kinds, fallback;
	uint32_t copy_method, copy_threads;
	char *providers;
};
_Static_assert(sizeof(struct bw_context) <= BW_SLOT_BYTES, "bw_context");

struct bw_device_object {
	struct bw_slot slot;
	struct bw_context *ctx;
	struct bw_device *dev;
	bool active;
};

static inline struct bw_context *bw_context_get(const struct barway_context *handle)
{
	return bw_object_get(handle, BW_OBJECT_CONTEXT);
}

static inline struct bw_device_object *bw_device_object_get(const struct barway_device *handle)
{
	return bw_object_get(handle, BW_OBJECT_DEVICE);
}

static inline struct bw_mapping *bw_mapping_get(const struct barway_mapping *handle)
{
	return bw_object_get(handle, BW_OBJECT_MAPPING);
}

/* The context's devices, found at the first call. Their number, or -errno. */
int bw_context_devices(struct bw_context *ctx);
/* The context's handle of a device; NULL where it is not one of them. */
struct barway_device *bw_context_device(struct bw_context *ctx, const struct bw_device *dev);

void bw_context_close_channels(struct bw_context *ctx);
void bw_context_close_endpoints(struct bw_context *ctx);

/* Ends a mapping that was retired and is on no list any more. */
void bw_mapping_end(struct bw_mapping *m);

/* Waits for the context's requests and ends them. */
void bw_context_end_requests(struct bw_context *ctx);

/* The names in a caller's option of providers; -EINVAL names the unknown one. */
int bw_check_providers(const char *list);

/* How many contexts are open. */
unsigned bw_open_contexts(void);

#endif
