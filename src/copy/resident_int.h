/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the resident copier share; nobody else includes it. */
#ifndef BW_COPY_RESIDENT_INT_H
#define BW_COPY_RESIDENT_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "channel/channel.h"
#include "copy/resident.h"
#include "copy/resident_abi.h"

/* From a start to the stop that follows; what was started and not stepped to its end keeps it. */
struct resident {
	_Atomic unsigned refs;
	struct bw_device *dev;
	void *owner;          /* the context */
	uint64_t owner_id;    /* its identity; 0: not to be had */
	struct bw_channel *ch;
	void *stream, *loaded;
	struct bw_resident_param param;
	uint64_t *done;       /* the word */
	uint64_t done_id;     /* of its memory: while that is there, so is the context */
	uint64_t scratch;     /* of the proof */
	bool active;          /* the device was activated for it */
	pthread_mutex_t lock; /* of who sends: values ascend in the order of the requests */
	uint64_t value;       /* the last one sent, under the lock */
	pthread_mutex_t launching; /* a launch is over before, or sees, that it is broken */
	_Atomic bool broken;  /* it is never launched again */
	_Atomic bool ended;   /* what is above is gone, but for @final */
	uint64_t final;       /* what the word said last */
};

/* One for each device that ever had one. */
struct copier {
	struct copier *next;
	struct bw_device *dev;
	struct resident *_Atomic now; /* NULL: it is not started */
	_Atomic unsigned users;       /* who may look at @now; what it points to stays meanwhile */
};

extern const struct bw_kernel bw_resident_kernel_def;

struct copier *resident_of(const struct bw_device *dev); /* NULL: never had one */
/* The started one, until resident_leave(); NULL: there is none. */
struct resident *resident_enter(struct copier *c);
void resident_leave(struct copier *c);
void resident_put(struct resident *r);

/* The requests of one copy; 0: none was sent. */
struct resident_values {
	uint64_t first, last;
};

/* Device addresses. As requests of BW_RESIDENT_MOST bytes at most. 0, or why the last of them may
 * not be done. */
int resident_send(struct resident *r, uint64_t to, uint64_t from, size_t bytes,
		  struct resident_values *v);
/* Until they are done. -EIO; -EAGAIN: none was begun, and none will be. */
int resident_await(struct resident *r, const struct resident_values *v);

static inline bool resident_reached(const struct resident *r, uint64_t value)
{
	return __atomic_load_n(r->done, __ATOMIC_ACQUIRE) >= value;
}

/* Did its memory go with its context? Then nothing of it may be touched. */
static inline bool resident_lost(const struct resident *r)
{
	return r->dev->ops->identity((uintptr_t)r->done) != r->done_id;
}

#endif
