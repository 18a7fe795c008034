/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/harness: take times of short operations so that their ratios can be believed.
 *
 * Operations that are compared run interleaved, one after the other in every round and starting
 * with another one each round, so that a change of the machine's mood meets all of them alike. The
 * harness pins nothing: start the program under taskset or numactl.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC_RAW: not slewed, no system call since Linux 5.3. */
uint64_t bench_now(void);

/* Nanoseconds between two calls of bench_now() in a row, median. Measured at its first call. */
double bench_clock_cost(void);

struct bench_stats {
	double median, p99, min, max; /* nanoseconds for one operation */
	size_t samples;               /* how many times were taken of it */
	unsigned batch;               /* operations in one sample of the median; 1: timed singly */
};

/*
 * Sorts @v. The median of an even number of values is the mean of the middle two; p99 is the
 * smallest value that at least 99 percent of the values do not exceed (nearest rank), which for
 * fewer than 100 values is the greatest one.
 */
void bench_stats(double *v, size_t n, struct bench_stats *out);

struct bench_op {
	int (*run)(void *arg);    /* the operation: 0 or a negative errno value */
	int (*before)(void *arg); /* not timed, before each sample; NULL: nothing */
	void *arg;
	bool single;              /* must not run twice without @before between */
};

struct bench_plan {
	unsigned reps;     /* rounds, exactly; 0: as many as fit in @seconds */
	unsigned warmup;   /* rounds before, not counted; used where @warmup_set */
	bool warmup_set;
	double seconds;    /* bound of the time, where @reps is 0 */
};

#define BENCH_MIN_REPS 7     /* even where they take longer than plan.seconds */
#define BENCH_MAX_REPS 10000 /* even where more would fit */

/*
 * Runs @n operations interleaved and fills @out[0..n).
 *
 * An operation that takes less than 20 times what reading the clock costs is timed twice in each
 * round: in a batch, whose mean gives median and min without the clock's cost, and alone, because a
 * mean hides the tail. Its p99 and max are the greater of both. The clock's cost is subtracted.
 *
 * Returns 0, the first error of an operation, or -ENOMEM; then @out is not written.
 */
int bench_run(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
	      struct bench_stats *out);

#endif
