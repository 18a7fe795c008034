/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/calls: the time of single calls, of Barway's interface and of libgdrapi.so.2's. Calls that
 * undo each other take turns, each timed in a run of its own. One thread uses it.
 */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "barway.h"
#include "bench/cuda.h"
#include "bench/harness.h"

#define CALLS_SIZES 32
#define CALLS_LEAST 65536u /* bytes of the smallest mapping, unless less is the most */

struct gdrapi;

struct calls {
	struct barway_context *ctx;
	struct barway_device *dev;
	uint64_t addr;           /* @max bytes of GPU memory */
	size_t max;
	struct bench_cuda *cuda; /* where it is of cuMemAlloc; else NULL */
	struct barway_mapping *map; /* of the first bytes, all the time */
	struct barway_mapping *temp; /* what is mapped and unmapped */
	struct barway_context *opened;
	uint64_t allocated;
	size_t bytes;            /* of what is mapped and allocated now */
	unsigned char word[8];   /* what is copied */
	struct gdrapi *gdrapi;   /* NULL: not there */
	char no_gdrapi[256];     /* and why */
	char reason[256];
	double self_test_ns;     /* the process's first mapping, with the self-test */
	const char *error;       /* the sentence of the last failure */
};

struct calls_result {
	const char *call; /* "barway_map" */
	const char *how;  /* "cold": made anew; "cached"; NULL: there is only one way */
	size_t bytes;     /* 0: it has no size */
	struct bench_stats time;
	struct bench_histogram histogram;
};

/*
 * Allocates and maps on @dev, which has been activated; before anything else has been mapped.
 * @cuda_lib: allocate by cuMemAlloc of that library; NULL: by barway_mem_alloc(). On failure
 * @c->error is the sentence and nothing has to be closed.
 */
int calls_open(struct calls *c, struct barway_context *ctx, struct barway_device *dev, size_t max,
	       const char *cuda_lib);
void calls_close(struct calls *c);

/* Loads libgdrapi.so.2 and opens it; else @c->no_gdrapi says why it is not measured. */
void calls_open_gdrapi(struct calls *c);

/* Where libgdrapi.so.2 was found; "" where it is not there. */
const char *calls_gdrapi_path(const struct calls *c, char *buf, size_t n);

/*
 * Measures the case at a place in the list and checks its data, if it moves any. Returns 1, 0 at
 * the end of the list, or a negative errno value.
 */
int calls_measure(struct calls *c, size_t index, const struct bench_plan *plan,
		  struct calls_result *out);
size_t calls_count(const struct calls *c);

#endif
