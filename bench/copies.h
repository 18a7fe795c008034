/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/copies: copies to and from GPU memory, by each way there is, side by side in one run and
 * checked with data. One thread uses it.
 */
#ifndef BENCH_COPIES_H
#define BENCH_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "barway.h"
#include "bench/cuda.h"
#include "bench/harness.h"
#include "bench/methods.h"

enum copies_direction {
	COPIES_TO,   /* host to GPU memory */
	COPIES_FROM, /* GPU memory to host */
	COPIES_DIRECTIONS,
};

struct copies {
	struct barway_context *ctx;
	struct barway_mapping *map;
	unsigned char *ptr;    /* of the mapping */
	uint64_t addr;         /* of the allocation that is mapped */
	size_t offset;         /* copies begin here */
	size_t max;            /* the largest copy */
	unsigned char *data;   /* random: what is copied to the GPU, and what reading must give */
	unsigned char *work;   /* where reading puts it */
	unsigned char *pinned; /* Barway's pinned memory, for both; NULL: no method wants it */
	size_t n;              /* size of the copy that is measured now */
	unsigned methods;      /* those to measure that are there, bits (1 << method) */
	unsigned refused;      /* those that were chosen and that Barway refuses */
	bool own_memory;       /* @addr is of the baseline's cuMemAlloc */
	struct bench_cuda *cuda; /* NULL: no baseline */
	char no_cuda[256];     /* and why */
	const char *error;     /* the sentence of the last failure here, not to be freed */
};

struct copies_options {
	size_t offset, max;   /* copies of up to @max bytes begin at @offset of the allocation */
	const char *cuda_lib; /* the CUDA driver library for the baseline; NULL: none wanted */
	bool cu_mem_alloc;    /* allocate by cuMemAlloc rather than by barway_mem_alloc() */
	unsigned methods;     /* those to measure, bits (1 << method); COPIES_ALL */
};

/* Each method is tried once: what Barway does not support here is not measured (@refused). */
/*
 * Allocates and maps memory on @dev, which has been activated. On failure @c->error is the sentence
 * and nothing has to be closed.
 */
int copies_open(struct copies *c, struct barway_context *ctx, struct barway_device *dev,
		const struct copies_options *options);
void copies_close(struct copies *c);

/* Is it chosen, and is there such a way in this direction on this device? */
bool copies_has(const struct copies *c, enum copies_direction dir, enum copies_method method);

struct copies_mismatch {
	size_t bytes; /* how many differ; 0: the data is right */
	size_t first; /* the first of them, from the start of the copy */
	unsigned char got, want;
};

struct copies_result {
	enum copies_direction direction;
	size_t bytes;
	bool has[COPIES_METHODS];
	struct bench_result times[COPIES_METHODS];
	struct copies_mismatch mismatch[COPIES_METHODS];
};

/*
 * Measures one size, then checks each method. Before each copy to the GPU alone and before each
 * row of them the last one has ARRIVED, which is not timed. With @plan->rows_only a row is timed
 * until its last copy has ARRIVED. Fails where a copy failed, not on a mismatch.
 */
int copies_measure(struct copies *c, enum copies_direction dir, size_t bytes,
		   const struct bench_plan *plan, struct copies_result *out);

/*
 * The parts of it, for who measures in his own way: makes data for copies of that size; one copy;
 * waits until all that was copied to the GPU has ARRIVED; checks one method.
 */
int copies_prepare(struct copies *c, enum copies_direction dir, size_t bytes);
int copies_one(struct copies *c, enum copies_direction dir, enum copies_method method);
int copies_arrived(struct copies *c, enum copies_direction dir, enum copies_method method);
int copies_check(struct copies *c, enum copies_direction dir, enum copies_method method,
		 struct copies_mismatch *m);

/* barway_flush() when nothing is under way. */
int copies_measure_flush(struct copies *c, const struct bench_plan *plan, struct bench_result *out);

#endif
