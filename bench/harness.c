/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_CLOCKS 20.0 /* below this many clock costs, the clock would be over 5 percent of it */
#define BATCH_MAX 1000.0

#define WARMUP_SHARE 0.05 /* of plan.seconds */
#define WARMUP_MIN 2
#define WARMUP_MAX 100

#define NEVER 1e300 /* nanoseconds */

uint64_t bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double bench_clock_cost(void)
{
	static double cost = -1;
	double v[1001];
	struct bench_stats s;
	uint64_t last = bench_now();

	if (cost >= 0)
		return cost;
	for (size_t i = 0; i < 1001; i++) {
		uint64_t now = bench_now();

		v[i] = (double)(now - last);
		last = now;
	}
	bench_stats(v, 1001, &s);
	cost = s.median;
	return cost;
}

/* Here, so that nothing needs libm. */
static double lesser(double a, double b)
{
	return a < b ? a : b;
}

static double greater(double a, double b)
{
	return a > b ? a : b;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_stats(double *v, size_t n, struct bench_stats *out)
{
	*out = (struct bench_stats){ .samples = n, .batch = 1 };
	if (!n)
		return;
	qsort(v, n, sizeof(*v), by_value);
	out->median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
	out->p99 = v[n - n / 100 - 1]; /* n - floor(n / 100) = ceil(0.99 n) */
	out->min = v[0];
	out->max = v[n - 1];
}

/* What one operation has gathered. */
struct track {
	double *alone; /* times of single runs */
	double *mean;  /* mean times in a batch; NULL where batch is 1 */
	double expect; /* of one run, from the warm-up */
	unsigned batch;
};

static double without_clock(uint64_t from, uint64_t to)
{
	double t = (double)(to - from) - bench_clock_cost();

	return t > 0 ? t : 0;
}

/* Times @times runs in a row; @ns is for one. */
static int sample(const struct bench_op *op, unsigned times, double *ns)
{
	uint64_t from, to;
	int ret = op->before ? op->before(op->arg) : 0;

	if (ret < 0)
		return ret;
	from = bench_now();
	for (unsigned i = 0; i < times && ret >= 0; i++)
		ret = op->run(op->arg);
	to = bench_now();
	*ns = without_clock(from, to) / times;
	return ret < 0 ? ret : 0;
}

static bool warm_enough(const struct bench_plan *plan, unsigned rounds, uint64_t began)
{
	if (plan->warmup_set && plan->warmup >= WARMUP_MIN)
		return rounds >= plan->warmup;
	if (rounds < WARMUP_MIN)
		return false; /* without them there is no estimate to choose a batch by */
	return plan->warmup_set || rounds >= WARMUP_MAX ||
	       (double)(bench_now() - began) > WARMUP_SHARE * plan->seconds * 1e9;
}

static int warm_up(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
		   struct track *tracks)
{
	uint64_t began = bench_now();

	for (size_t i = 0; i < n; i++)
		tracks[i].expect = NEVER;
	for (unsigned round = 0; !warm_enough(plan, round, began); round++) {
		for (size_t i = 0; i < n; i++) {
			double ns;
			int ret = sample(&ops[i], 1, &ns);

			if (ret < 0)
				return ret;
			tracks[i].expect = lesser(tracks[i].expect, ns);
		}
	}
	return 0;
}

static void choose_batch(const struct bench_op *op, struct track *t)
{
	double least = BATCH_CLOCKS * bench_clock_cost();

	t->batch = 1;
	if (!op->single && t->expect < least)
		t->batch = (unsigned)lesser(least / greater(t->expect, 1) + 1, BATCH_MAX);
}

static int one_round(const struct bench_op *ops, size_t n, unsigned round, struct track *tracks)
{
	for (size_t k = 0; k < n; k++) {
		size_t i = (round + k) % n;
		int ret = sample(&ops[i], 1, &tracks[i].alone[round]);

		if (ret >= 0 && tracks[i].batch > 1)
			ret = sample(&ops[i], tracks[i].batch, &tracks[i].mean[round]);
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int all_rounds(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
		      struct track *tracks, unsigned *rounds)
{
	uint64_t began = bench_now();
	unsigned most = plan->reps ? plan->reps : BENCH_MAX_REPS;
	unsigned round;

	for (round = 0; round < most; round++) {
		int ret;

		if (!plan->reps && round >= BENCH_MIN_REPS &&
		    (double)(bench_now() - began) > plan->seconds * 1e9)
			break;
		ret = one_round(ops, n, round, tracks);
		if (ret < 0)
			return ret;
	}
	*rounds = round;
	return 0;
}

static void summarise(struct track *t, unsigned rounds, struct bench_stats *out)
{
	struct bench_stats alone;

	bench_stats(t->alone, rounds, &alone);
	*out = alone;
	if (t->batch == 1)
		return;
	bench_stats(t->mean, rounds, out);
	out->batch = t->batch;
	out->p99 = greater(out->p99, alone.p99);
	out->max = greater(out->max, alone.max);
}

int bench_run(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
	      struct bench_stats *out)
{
	size_t most = plan->reps ? plan->reps : BENCH_MAX_REPS;
	struct track *tracks = calloc(n, sizeof(*tracks));
	unsigned rounds = 0;
	int ret = tracks ? 0 : -ENOMEM;

	if (ret == 0)
		ret = warm_up(ops, n, plan, tracks);
	for (size_t i = 0; i < n && ret == 0; i++) {
		/* calloc and a write to each: no page fault while the clock runs */
		choose_batch(&ops[i], &tracks[i]);
		tracks[i].alone = malloc(most * sizeof(double));
		tracks[i].mean = malloc(most * sizeof(double));
		if (!tracks[i].alone || !tracks[i].mean)
			ret = -ENOMEM;
		for (size_t k = 0; k < most && ret == 0; k++)
			tracks[i].alone[k] = tracks[i].mean[k] = 0;
	}
	if (ret == 0)
		ret = all_rounds(ops, n, plan, tracks, &rounds);
	for (size_t i = 0; i < n && tracks; i++) {
		if (ret == 0)
			summarise(&tracks[i], rounds, &out[i]);
		free(tracks[i].alone);
		free(tracks[i].mean);
	}
	free(tracks);
	return ret;
}
