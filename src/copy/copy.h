/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy: move bytes by the best method. Read it in this order:
 *
 *   copy.h     what a method is, the one list of them, the part that is inlined
 *   plan.h     which method for which copy: figures, and the choice made of them
 *   request.h  copies that go on after the call
 *
 * The contract of every method; tests/contract/copy_test.c runs on each that is listed in copy.c.
 * [offset, offset + bytes) lies inside the mapping: the caller checks.
 */
#ifndef BW_COPY_H
#define BW_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "map/map.h"
#include "mmio/fence.h"
#include "mmio/pieces.h"

enum bw_method { /* as enum barway_method */
	BW_METHOD_AUTO = 0,
	BW_METHOD_CPU,
	BW_METHOD_CE,
	BW_METHOD_THREADS,
	BW_METHOD_RESIDENT,
	BW_METHODS, /* one more than the last */
};

enum bw_direction { /* as enum barway_direction */
	BW_TO_GPU = 1,
	BW_FROM_GPU = 2,
};

/* What a method is asked about. */
struct bw_copy {
	struct bw_mapping *map;
	size_t offset;
	void *host;        /* only read where the direction is BW_TO_GPU */
	size_t bytes;
	enum bw_direction direction;
	bool pinned;       /* the device reaches all of the host side by itself */
	uint64_t host_addr; /* pinned: the device address of @host */
	void *host_owner;  /* pinned: the CUDA context in which; NULL: any reaches it */
};

/*
 * A copy under way, for methods that can be started: the caller allocates BW_JOB_BYTES, zeroed,
 * with this at its start, and the method keeps the rest.
 */
struct bw_job {
	const struct bw_copy_method *method;
	struct bw_copy copy;
};
#define BW_JOB_BYTES 512

struct bw_copy_method {
	const char *name;  /* "cpu", "ce", "threads", "resident" */
	enum bw_method id;

	/*
	 * Could it do this copy? Negative refuses, with the reason; else the reason says how it
	 * would (@why NULL: nobody wants it). How good it is at it is the plan's matter (plan.h).
	 * Looks at nothing that a call to the driver would be needed for.
	 */
	int (*score)(const struct bw_copy *copy, struct bw_reason *why);

	/*
	 * All of it, blocking. -EFAULT: the memory was freed under the mapping and the method
	 * cannot reach it; -ENOTSUP, -ENOMEM, -EAGAIN: it cannot; after any of these no byte has
	 * moved and another method may be tried. -EIO: failed in the middle.
	 */
	int (*copy)(const struct bw_copy *copy);

	/*
	 * NULL: it cannot be started, only done. start: as copy, but returns when the device is at
	 * work. step: -EBUSY not done yet; 0 or -EIO: done, everything given back. It does a
	 * bounded piece of CPU work where the method needs the CPU; *@idle: there was none to do
	 * now. notify: calls @fn once, from any thread, when the device has done what it was given
	 * so far; -ENOTSUP: it cannot tell.
	 */
	int (*start)(struct bw_job *job);
	int (*step)(struct bw_job *job, bool *idle);
	int (*notify)(struct bw_job *job, void (*fn)(void *arg), void *arg);
};

/* The one list where methods are registered; ends with NULL. */
extern const struct bw_copy_method *const bw_copy_methods[];
const struct bw_copy_method *bw_copy_method(uint32_t id);
/* One that was asked for by name: 0, or -ENOTSUP with its reason where it cannot. */
int bw_copy_refused(const struct bw_copy_method *method, const struct bw_copy *copy);

/* Fills @pinned and @host_addr: asks the device layer whose memory @host is. */
void bw_copy_find_host(struct bw_copy *copy);

/* Segment by segment of the mapping, where they are alive: what methods that go by device address
 * share. @fn is called for each part with its segment and device address; -EFAULT before the first
 * call where a part of the range was freed. */
int bw_copy_segments(const struct bw_copy *copy,
		     int (*fn)(void *arg, const struct bw_segment *seg, uint64_t addr, void *host,
			       size_t bytes),
		     void *arg);

/*
 * One CPU thread: no call but the kernel chosen when the mapping was made, and for a word, which is
 * the same access in all of them, not even that.
 */
static inline void bw_copy_store(const struct bw_mapping *m, unsigned char *at, const void *src,
				 size_t n)
{
	if (n <= 8 && bw_store_word(at, src, n)) {
		bw_fence_publish();
		return;
	}
	m->store(at, src, n);
	bw_fence_publish();
}

static inline void bw_copy_load(const struct bw_mapping *m, void *dst, const unsigned char *at,
				size_t n)
{
	bw_fence_read();
	if (n <= 8 && bw_load_word(at, dst, n))
		return;
	m->load(dst, at, n);
}

static inline void bw_copy_cpu_to(struct bw_mapping *m, size_t offset, const void *src, size_t n)
{
	bw_copy_store(m, m->ptr + offset, src, n);
}

static inline void bw_copy_cpu_from(struct bw_mapping *m, void *dst, size_t offset, size_t n)
{
	bw_copy_load(m, dst, m->ptr + offset, n);
}

/* Everything written through the mapping before is VISIBLE when it returns. */
void bw_copy_flush(struct bw_mapping *m);

#endif
