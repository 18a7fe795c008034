/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define ROW_CALLS 64.0
#define ROW_LEAST 10e3 /* nanoseconds */
#define ROW_MOST 100e3 /* nanoseconds */
#define ROW_TRIES 3

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

uint64_t bench_cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
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
	*out = (struct bench_stats){ .samples = n };
	if (!n)
		return;
	qsort(v, n, sizeof(*v), by_value);
	out->median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
	out->p99 = v[n - n / 100 - 1]; /* n - floor(n / 100) = ceil(0.99 n) */
	out->min = v[0];
	out->max = v[n - 1];
	out->q1 = v[n / 4];
	out->q3 = v[n - 1 - n / 4];
}

void bench_histogram_add(struct bench_histogram *h, double ns)
{
	unsigned i = 0;

	while (i < BENCH_BUCKETS - 1 && ns >= (double)((uint64_t)2 << i))
		i++;
	h->bucket[i]++;
}

/* ---- the clock --------------------------------------------------------------------------- */

#define CLOCK_READS 1001
#define TICK_MOST 110   /* nanoseconds: slower clocks are rare */
#define TICK_LEAST 5    /* less cannot be told from none, the readings being whole nanoseconds */
#define TICK_SPAN 150   /* longer times are interruptions, and multiples that no longer fit */

/* Are nearly all times of @v, up to TICK_SPAN, multiples of @tick give or take 1 ns? */
static bool is_tick(const double *v, size_t n, unsigned tick)
{
	size_t fit = 0, tried = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned left = (unsigned)lesser(v[i], TICK_SPAN) % tick;

		if (v[i] >= TICK_SPAN)
			continue;
		tried++;
		fit += left <= 1 || left >= tick - 1;
	}
	return tried > n / 4 && fit >= tried - tried / 50;
}

double bench_clock_tick(void)
{
	static double known = -1;
	static double v[CLOCK_READS];
	unsigned tick = TICK_MOST;

	if (known >= 0)
		return known;
	for (size_t i = 0; i < CLOCK_READS; i++) {
		uint64_t began = bench_now();

		/* times of many lengths, lest all are alike and pass for a tick */
		for (volatile size_t k = 0; k < i % 61; k++)
			;
		v[i] = (double)(bench_now() - began);
	}
	while (tick >= TICK_LEAST && !is_tick(v, CLOCK_READS, tick))
		tick--;
	known = tick >= TICK_LEAST ? tick : 1;
	return known;
}

/*
 * The value that @share of the sorted times are below, where each time stands for all those within
 * half a tick of it. Where clocks tick every 10 ns (TSC of AMD's Zen) the plain one could only say
 * 0, 10 or 20.
 */
static double between_ticks(const double *v, size_t n, double share)
{
	double half = bench_clock_tick() / 2, middle = v[(size_t)((double)n * share)];
	size_t below = 0, same = 0;

	for (size_t i = 0; i < n; i++) {
		below += v[i] < middle - half;
		same += v[i] >= middle - half && v[i] <= middle + half;
	}
	return middle - half + 2 * half * ((double)n * share - (double)below) / (double)same;
}

/* Median and quartiles, in their order. */
static void refine(const double *v, size_t n, struct bench_stats *s)
{
	s->median = between_ticks(v, n, 0.5);
	s->q1 = greater(lesser(between_ticks(v, n, 0.25), s->median), s->min);
	s->q3 = lesser(greater(between_ticks(v, n, 0.75), s->median), s->max);
}

double bench_clock_cost(void)
{
	static double cost = -1;
	double v[CLOCK_READS];
	struct bench_stats s;
	uint64_t last;

	if (cost >= 0)
		return cost;
	last = bench_now();
	for (size_t i = 0; i < CLOCK_READS; i++) {
		uint64_t now = bench_now();

		v[i] = (double)(now - last);
		last = now;
	}
	bench_stats(v, CLOCK_READS, &s);
	cost = greater(between_ticks(v, CLOCK_READS, 0.5), 0);
	return cost;
}

/* ---- the run ----------------------------------------------------------------------------- */

/* What one operation has gathered. */
struct track {
	double *alone;  /* times of single runs */
	double *row;    /* mean times in a row; unused where calls is 1 */
	double expect;  /* of one run, from the warm-up */
	unsigned calls; /* in a row */
	double cpu;     /* of all rows */
};

/* Times @times runs in a row; @ns is for one, and below 0 where the clock's cost was less. */
static int sample(const struct bench_op *op, unsigned times, double *ns)
{
	uint64_t from, to;
	int ret = op->before ? op->before(op->arg) : 0;

	if (ret < 0)
		return ret;
	from = bench_now();
	for (unsigned i = 0; i < times && ret >= 0; i++)
		ret = op->run(op->arg);
	if (op->finish && ret >= 0)
		ret = op->finish(op->arg);
	to = bench_now();
	*ns = ((double)(to - from) - bench_clock_cost()) / times;
	return ret < 0 ? ret : 0;
}

static bool warm_enough(const struct bench_plan *plan, unsigned rounds, uint64_t began)
{
	if (plan->warmup_set && plan->warmup >= WARMUP_MIN)
		return rounds >= plan->warmup;
	if (rounds < WARMUP_MIN)
		return false; /* without them there is no estimate to choose a row by */
	return plan->warmup_set || rounds >= WARMUP_MAX ||
	       (double)(bench_now() - began) > WARMUP_SHARE * plan->seconds * 1e9;
}

static int warm_up(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
		   struct track *tracks, uint64_t began)
{
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

unsigned bench_row_calls(double ns)
{
	double calls = greater(ROW_CALLS, ROW_LEAST / greater(ns, 1));

	return (unsigned)greater(lesser(calls, ROW_MOST / greater(ns, 1)), 1);
}

/* What one takes in a row can be many times what it takes alone: try some. */
static int choose_row(const struct bench_op *op, struct track *t)
{
	double least = NEVER, ns;

	t->calls = op->single ? 1 : bench_row_calls(greater(t->expect, ROW_LEAST / ROW_CALLS));
	if (t->calls == 1)
		return 0;
	for (int i = 0; i < ROW_TRIES; i++) {
		int ret = sample(op, t->calls, &ns);

		if (ret < 0)
			return ret;
		least = lesser(least, ns);
	}
	t->calls = bench_row_calls(least);
	return 0;
}

static int row_with_cpu(const struct bench_op *op, struct track *t, unsigned round)
{
	uint64_t cpu = bench_cpu_now();
	int ret = sample(op, t->calls, &t->row[round]);

	t->cpu += (double)(bench_cpu_now() - cpu);
	return ret;
}

static int one_round(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
		     unsigned round, struct track *tracks)
{
	for (size_t k = 0; k < n; k++) {
		size_t i = (round + k) % n;
		int ret = 0;

		if (plan->rows_only)
			ret = row_with_cpu(&ops[i], &tracks[i], round);
		else if (tracks[i].calls > 1)
			ret = sample(&ops[i], tracks[i].calls, &tracks[i].row[round]);
		if (ret >= 0 && !plan->rows_only)
			ret = sample(&ops[i], 1, &tracks[i].alone[round]);
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int all_rounds(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
		      struct track *tracks, uint64_t began, unsigned *rounds)
{
	unsigned most = plan->reps ? plan->reps : BENCH_MAX_REPS;
	unsigned round;

	for (round = 0; round < most; round++) {
		int ret;

		if (!plan->reps && round >= BENCH_MIN_REPS &&
		    (double)(bench_now() - began) > plan->seconds * 1e9)
			break;
		ret = one_round(ops, n, plan, round, tracks);
		if (ret < 0)
			return ret;
	}
	*rounds = round;
	return 0;
}

static int make_room(struct track *t, size_t samples)
{
	t->alone = malloc(samples * sizeof(double));
	t->row = malloc(samples * sizeof(double));
	if (!t->alone || !t->row)
		return -ENOMEM;
	for (size_t k = 0; k < samples; k++)
		t->alone[k] = t->row[k] = 0; /* no page fault while the clock runs */
	return 0;
}

static void not_below_zero(struct bench_stats *s)
{
	s->median = greater(s->median, 0);
	s->p99 = greater(s->p99, 0);
	s->min = greater(s->min, 0);
	s->max = greater(s->max, 0);
	s->q1 = greater(s->q1, 0);
	s->q3 = greater(s->q3, 0);
}

static void summarise_row(struct track *t, unsigned rounds, struct bench_result *out)
{
	bench_stats(t->row, rounds, &out->row);
	not_below_zero(&out->row);
}

static void summarise(const struct bench_op *op, const struct bench_plan *plan, struct track *t,
		      unsigned rounds, struct bench_result *out)
{
	*out = (struct bench_result){ .calls = t->calls };
	if (plan->rows_only) {
		summarise_row(t, rounds, out);
		out->cpu = t->cpu / rounds / t->calls;
		return;
	}
	for (unsigned i = 0; i < rounds && op->histogram; i++)
		bench_histogram_add(op->histogram, t->alone[i]);
	bench_stats(t->alone, rounds, &out->alone);
	refine(t->alone, rounds, &out->alone);
	not_below_zero(&out->alone);
	if (t->calls > 1)
		summarise_row(t, rounds, out);
	else if (!op->single)
		out->row = out->alone;
}

int bench_run(const struct bench_op *ops, size_t n, const struct bench_plan *plan,
	      struct bench_result *out)
{
	struct track *tracks = calloc(n, sizeof(*tracks));
	unsigned rounds = 0;
	int ret = tracks ? 0 : -ENOMEM;
	uint64_t began;

	bench_clock_cost(); /* and the tick: before anything is timed */
	for (size_t i = 0; i < n && ret == 0; i++)
		ret = make_room(&tracks[i], plan->reps ? plan->reps : BENCH_MAX_REPS);
	began = bench_now();
	if (ret == 0)
		ret = warm_up(ops, n, plan, tracks, began);
	for (size_t i = 0; i < n && ret == 0; i++)
		ret = choose_row(&ops[i], &tracks[i]);
	if (ret == 0)
		ret = all_rounds(ops, n, plan, tracks, began, &rounds);
	for (size_t i = 0; i < n && tracks; i++) {
		if (ret == 0)
			summarise(&ops[i], plan, &tracks[i], rounds, &out[i]);
		free(tracks[i].alone);
		free(tracks[i].row);
	}
	free(tracks);
	return ret;
}
