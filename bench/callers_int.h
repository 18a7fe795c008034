/* SPDX-License-Identifier: BSD-3-Clause */
/* What the processes of bench/callers share: memory that all of them see. */
#ifndef BENCH_CALLERS_INT_H
#define BENCH_CALLERS_INT_H

#include <stdatomic.h>

#include "bench/callers.h"

#define CALLERS_SAMPLES 16384
#define CALLERS_NAP_US 200
#define CALLERS_ACTIVE 256u /* callers are fewer */

/* One caller's. It writes, who tells it what to do reads after @ready or @done has the number. */
struct callers_slot {
	atomic_uint ready, done;  /* number of the last command so far */
	int error;                /* 0 or a negative errno value, with @message */
	char message[512];
	double expect;            /* nanoseconds of one copy, while the others warm up, too */
	double elapsed;           /* nanoseconds from the start to the end of the last row */
	uint64_t calls;           /* in that time */
	uint64_t cpu;             /* of its process in that time; the first thread's alone counts */
	struct copies_mismatch mismatch;
	size_t samples;
	double time[CALLERS_SAMPLES]; /* mean of one row each, nanoseconds */
};

struct callers_shared {
	atomic_uint command;      /* CALLERS_ACTIVE * number + how many callers it is for; number
				   * 1: open, then measurements, which look at @what */
	atomic_uint go;           /* number of the measurement that begins at @start */
	atomic_bool quit;
	int device, node;
	struct copies_options options;
	char cuda_lib[256];       /* for options.cuda_lib, which is no pointer of theirs */
	bool has_cuda_lib;
	struct callers_what what;
	uint64_t start, end;      /* of bench_now() */
	struct callers_slot slots[];
};

/* The whole life of a process: @first is the slot of its first thread. Does not return. */
_Noreturn void callers_child(struct callers_shared *shared, const struct callers_options *options,
			     unsigned first);

#endif
