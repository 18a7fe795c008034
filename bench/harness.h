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

/* Nanoseconds of CPU time of this process, all threads, user and system. A system call. */
uint64_t bench_cpu_now(void);

/* Nanoseconds between two calls of bench_now() in a row, median. Measured at its first call. */
double bench_clock_cost(void);

/* Nanoseconds from one value of the clock to the next; 1: finer than 5. Measured at first call. */
double bench_clock_tick(void);

struct bench_stats {
	double median, p99, min, max; /* nanoseconds for one operation */
	double q1, q3;                /* a quarter of the times is below q1, another above q3 */
	size_t samples;               /* how many times were taken */
};

#define BENCH_BUCKETS 40

/* How many times took from 2^i up to 2^(i+1) nanoseconds; [0]: also all that is shorter. */
struct bench_histogram {
	size_t bucket[BENCH_BUCKETS];
};

void bench_histogram_add(struct bench_histogram *h, double ns);

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
	bool single;              /* must not run twice without @before between: has no row */
	int (*finish)(void *arg); /* timed with what it ends: once a row; NULL: nothing */
	struct bench_histogram *histogram; /* of the times alone, added to; NULL: not wanted */
};

struct bench_plan {
	unsigned reps;     /* rounds, exactly; 0: as many as fit in @seconds */
	unsigned warmup;   /* rounds before, not counted; used where @warmup_set */
	bool warmup_set;
	double seconds;    /* bound of the time with the warm-up, where @reps is 0 */
	bool rows_only;    /* nothing alone: a row each round, even of one run; and its CPU time */
};

#define BENCH_MIN_REPS 5     /* even where they take longer than plan.seconds */
#define BENCH_MAX_REPS 10000 /* even where more would fit */

struct bench_result {
	struct bench_stats alone; /* of one run by itself, after @before; between ticks */
	struct bench_stats row;   /* of the mean of @calls runs in a row; no samples: single */
	unsigned calls;           /* 1: a row would be too long, its times are those of @alone */
	double cpu;               /* rows_only: nanoseconds of CPU time of the whole process for
				   * one run, mean over all rows; else 0 */
};

/*
 * How many runs to have in a row, where one run in a row takes @ns: at least 64 and at least 10 us,
 * unless that takes more than about 100 us; then what fits in that, and at least one.
 */
unsigned bench_row_calls(double ns);

/*
 * Runs @n operations interleaved and fills @out[0..n).
 *
 * Each is timed in two ways, because what only posts its work returns sooner than the next one can
 * do the same. In each round an operation makes a row, with @before once in front of all of it, and
 * then one run alone, with @before in front of it. The clock's cost is subtracted from both, and
 * the median and the quartiles of those alone take each time for one that is spread over the
 * clock's tick.
 *
 * Returns 0, the first error of an operation, or -ENOMEM; then @out is not written.
 */
int bench_run(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
	      struct bench_result *out);

#endif
