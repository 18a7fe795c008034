/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soft_range: device addresses of the soft GPUs. One region of the process is reserved for all of
 * them and cut into ranges; a range stands for a block of memory, for pinned host memory, or
 * (between reserve and map) for nothing. The caller holds soft_lock.
 */
#ifndef BW_DEVICE_SOFT_RANGE_H
#define BW_DEVICE_SOFT_RANGE_H

#include "device/soft_int.h"

#define SOFT_CPU_PAGE 4096u /* windows are made of these */

struct soft_alloc {
	uint64_t base, bytes, id;
};

enum range_kind {
	RANGE_WHOLE,    /* bw_soft_malloc(), large */
	RANGE_MEM,      /* soft_mem_alloc() */
	RANGE_SHARED,   /* block of small allocations */
	RANGE_RESERVED, /* nothing mapped */
	RANGE_MAPPED,   /* a handle, inside a reserved one */
	RANGE_IMPORTED,
	RANGE_PINNED,   /* host memory */
};

struct soft_range {
	struct soft_range *prev, *next;
	enum range_kind kind;
	struct soft_card *card;
	uint32_t page;             /* first of the block */
	uint64_t addr, bytes;      /* device addresses, whole pages */
	struct soft_alloc one;     /* what is there, unless RANGE_SHARED */
	struct soft_alloc **step;  /* RANGE_SHARED: one for each BW_SOFT_STEP bytes */
	unsigned used;             /* allocations in it; mapped handles in it */
	struct soft_range *parent; /* RANGE_MAPPED: the reserved one */
	unsigned char *host;       /* RANGE_PINNED: where it begins, whole pages */
	const void *given;         /* what the caller registered; NULL: host_alloc() made it */
};

static inline uint64_t soft_round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* soft_memory.c */
struct soft_range *soft_range_at(uint64_t addr); /* the innermost one */
/* A range of its own addresses (unless @at gives them), not yet in the table. */
int soft_range_new(enum range_kind kind, uint64_t bytes, uint64_t at, struct soft_range **out);
void soft_range_add(struct soft_range *r, struct soft_card *c, uint32_t page);
void soft_range_delete(struct soft_range *r);
struct soft_alloc *soft_alloc_at(struct soft_range *r, uint64_t addr);
uint64_t soft_next_id(void); /* never used before */
int soft_may_alloc(struct soft_card *c, size_t bytes); /* what every allocation asks first */
enum bw_mem_kind soft_mem_kind(const struct soft_range *r);

/* soft_pinned.c */
struct soft_range *soft_pinned_at(uint64_t host); /* by CPU address */
void soft_pinned_forget(void);

#endif
