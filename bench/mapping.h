/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/mapping: what it takes to map GPU memory. */
#ifndef BENCH_MAPPING_H
#define BENCH_MAPPING_H

#include "barway.h"
#include "bench/harness.h"

#define MAPPING_BYTES 65536u

struct mapping_times {
	double self_test_ns;           /* the process's first mapping, with the self-test */
	struct bench_stats first;      /* made anew each time */
	struct bench_stats from_cache; /* found in the cache; no samples where it never was */
};

/* What it takes to map 64 KiB of @dev. Call it before anything else has been mapped. */
int mapping_measure(struct barway_context *ctx, struct barway_device *dev,
		    const struct bench_plan *plan, struct mapping_times *out);

#endif
