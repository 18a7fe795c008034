/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/copies: the latency of copies to and from GPU memory, by each way there is, side by side in
 * one run and checked with data. One thread uses it.
 */
#ifndef BENCH_COPIES_H
#define BENCH_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "barway.h"
#include "bench/cuda.h"
#include "bench/harness.h"

enum copies_direction {
	COPIES_TO,   /* host to GPU memory */
	COPIES_FROM, /* GPU memory to host */
	COPIES_DIRECTIONS,
};

enum copies_method {
	COPIES_BARWAY,    /* barway_copy_to() or barway_copy_from(), until it RETURNED */
	COPIES_VISIBLE,   /* barway_copy_to() and barway_flush(), until it is VISIBLE; TO only */
	COPIES_REFERENCE, /* the plain loop over the pointer of the mapping */
	COPIES_CUMEMCPY,  /* cuMemcpy, the same pageable memory as the ones above */
	COPIES_PINNED,    /* cuMemcpyAsync and cuStreamSynchronize, pinned memory */
	COPIES_METHODS,
};

/* "barway", "barway_visible", "reference", "cumemcpy", "cumemcpy_async_pinned" */
extern const char *const copies_method_names[COPIES_METHODS];

struct copies {
	struct barway_context *ctx;
	struct barway_mapping *map;
	unsigned char *ptr;    /* of the mapping */
	uint64_t addr;         /* of the allocation that is mapped */
	size_t offset;         /* copies begin here */
	size_t max;            /* the largest copy */
	unsigned char *data;   /* random: what is copied to the GPU, and what reading must give */
	unsigned char *work;   /* where reading puts it */
	size_t n;              /* size of the copy that is measured now */
	struct bench_cuda *cuda; /* NULL: no baseline */
	char no_cuda[256];     /* and why */
	const char *error;     /* the sentence of the last failure here, not to be freed */
};

/*
 * Allocates and maps @offset + @max bytes on @dev, which has been activated. @lib: the CUDA driver
 * library for the baseline; NULL: none wanted. On failure @c->error is the sentence and nothing has
 * to be closed.
 */
int copies_open(struct copies *c, struct barway_context *ctx, struct barway_device *dev,
		size_t offset, size_t max, const char *lib);
void copies_close(struct copies *c);

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
 * row of them the last one has ARRIVED, which is not timed. Fails where a copy failed, not on
 * a mismatch.
 */
int copies_measure(struct copies *c, enum copies_direction dir, size_t bytes,
		   const struct bench_plan *plan, struct copies_result *out);

/* barway_flush() when nothing is under way. */
int copies_measure_flush(struct copies *c, const struct bench_plan *plan, struct bench_result *out);

#define COPIES_MAP_BYTES 65536u

struct copies_map_times {
	double self_test_ns;           /* the process's first mapping, with the self-test */
	struct bench_stats first;      /* made anew each time */
	struct bench_stats from_cache; /* found in the cache; no samples where it never was */
};

/* What it takes to map 64 KiB of @dev. Call it before anything else has been mapped. */
int copies_measure_map(struct barway_context *ctx, struct barway_device *dev,
		       const struct bench_plan *plan, struct copies_map_times *out);

#endif
