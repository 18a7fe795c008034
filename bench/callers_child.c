/* SPDX-License-Identifier: BSD-3-Clause */
/* What one process of bench/callers does. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench/callers_int.h"

#define WARM_NS 20e6
#define WARM_CALLS 100

/* The callers of this process meet before they copy and after it: so its CPU time is known. */
struct process {
	unsigned first, threads; /* slots */
	atomic_uint begun, ended;
	atomic_uint over;        /* number of the measurement that all have ended */
	uint64_t cpu;            /* when the first began */
};

struct caller {
	struct callers_shared *shared;
	struct callers_slot *slot;
	struct process *process;
	unsigned index; /* of the slot */
	struct barway_context *ctx;
	struct barway_device *dev;
	struct copies copies;
	pthread_t thread;
};

/* The number of the next command after @seen that is for this caller; 0: to end. */
static unsigned next_command(struct callers_shared *s, unsigned index, unsigned seen)
{
	for (;;) {
		unsigned now = atomic_load_explicit(&s->command, memory_order_acquire);

		if (atomic_load(&s->quit))
			return 0;
		if (now / CALLERS_ACTIVE != seen && index < now % CALLERS_ACTIVE)
			return now / CALLERS_ACTIVE;
		callers_sleep(&s->command, now);
	}
}

static int fail(struct callers_slot *slot, int ret, const char *why)
{
	if (ret < 0) {
		slot->error = ret;
		snprintf(slot->message, sizeof(slot->message), "%s",
			 why && *why ? why : strerror(-ret));
	}
	return ret;
}

/* ---- one measurement --------------------------------------------------------------------- */

static int warm_up(struct caller *x)
{
	const struct callers_what *what = &x->shared->what;
	uint64_t began = bench_now(), from;

	x->slot->expect = 1e300;
	for (unsigned i = 0; i < WARM_CALLS && (i < 2 || bench_now() - began < WARM_NS); i++) {
		int ret;

		from = bench_now();
		ret = copies_one(&x->copies, what->direction, what->method);
		if (ret < 0)
			return ret;
		if ((double)(bench_now() - from) < x->slot->expect)
			x->slot->expect = (double)(bench_now() - from);
	}
	return copies_arrived(&x->copies, what->direction, what->method);
}

/* Until the moment that all have been told. */
static bool wait_for_start(struct caller *x, unsigned number)
{
	struct callers_shared *s = x->shared;

	while (atomic_load_explicit(&s->go, memory_order_acquire) != number) {
		if (atomic_load(&s->quit))
			return false;
		sched_yield();
	}
	while (bench_now() < s->start)
		sched_yield();
	return true;
}

static int one_row(struct caller *x, unsigned calls)
{
	const struct callers_what *what = &x->shared->what;
	int ret = 0;

	for (unsigned i = 0; i < calls && ret >= 0; i++)
		ret = copies_one(&x->copies, what->direction, what->method);
	if (ret >= 0 && what->arrived)
		ret = copies_arrived(&x->copies, what->direction, what->method);
	return ret;
}

/* Rows until the end. The last one goes over it and counts, with all the time that it took. */
static int copy_until_end(struct caller *x)
{
	struct callers_slot *slot = x->slot;
	unsigned calls = bench_row_calls(slot->expect);
	uint64_t to;

	slot->samples = 0;
	slot->calls = 0;
	do {
		uint64_t from = bench_now();
		int ret = one_row(x, calls);

		if (ret < 0)
			return ret;
		to = bench_now();
		if (slot->samples < CALLERS_SAMPLES)
			slot->time[slot->samples++] =
				((double)(to - from) - bench_clock_cost()) / calls;
		slot->calls += calls;
	} while (to < x->shared->end);
	slot->elapsed = (double)(to - x->shared->start);
	return 0;
}

static void meet_before(struct process *p)
{
	if (atomic_fetch_add(&p->begun, 1) == 0)
		p->cpu = bench_cpu_now();
}

/* Returns the CPU time of the process to the last of its callers, 0 to the others. */
static uint64_t meet_after(struct process *p, unsigned active, unsigned number)
{
	unsigned here = active - p->first < p->threads ? active - p->first : p->threads, seen;
	uint64_t cpu;

	if (atomic_fetch_add(&p->ended, 1) + 1 < here) {
		while ((seen = atomic_load(&p->over)) != number)
			callers_sleep(&p->over, seen);
		return 0;
	}
	cpu = bench_cpu_now() - p->cpu;
	atomic_store(&p->begun, 0);
	atomic_store(&p->ended, 0);
	atomic_store(&p->over, number);
	callers_wake(&p->over);
	return cpu;
}

static void measure(struct caller *x, unsigned number)
{
	const struct callers_what what = x->shared->what;
	struct callers_slot *slot = x->slot;
	int ret = copies_prepare(&x->copies, what.direction, what.bytes);

	if (ret == 0)
		ret = warm_up(x);
	fail(slot, ret, x->copies.error);
	atomic_store_explicit(&slot->ready, number, memory_order_release);
	if (ret < 0 || !wait_for_start(x, number))
		return;
	meet_before(x->process);
	ret = copy_until_end(x);
	slot->cpu = meet_after(x->process, what.active, number);
	slot->mismatch = (struct copies_mismatch){ 0 };
	if (ret == 0)
		ret = copies_check(&x->copies, what.direction, what.method, &slot->mismatch);
	fail(slot, ret, x->copies.error);
	atomic_store_explicit(&slot->done, number, memory_order_release);
}

/* ---- threads ----------------------------------------------------------------------------- */

static void *live(void *arg)
{
	struct caller *x = arg;
	struct callers_shared *s = x->shared;
	unsigned number = 1; /* to open */
	struct copies_options options = s->options;
	int ret;

	options.cuda_lib = s->has_cuda_lib ? s->cuda_lib : NULL;
	ret = copies_open(&x->copies, x->ctx, x->dev, &options);
	fail(x->slot, ret, x->copies.error);
	atomic_store_explicit(&x->slot->ready, number, memory_order_release);
	while (!x->slot->error) {
		number = next_command(s, x->index, number);
		if (!number)
			break;
		measure(x, number);
	}
	if (x->copies.ctx)
		copies_close(&x->copies);
	return NULL;
}

static int open_device(struct callers_shared *s, const struct callers_options *o, struct caller *x)
{
	const struct barway_open_options options = {
		.size = sizeof(options),
		.copy_threads = o->helpers,
	};
	int ret;

	barway_set_log(NULL, NULL, 0); /* who tells us what to do has said it once */
	ret = barway_open(&options, &x->ctx);
	if (ret == 0)
		ret = barway_device_count(x->ctx) < 0 ? -ENODEV : 0;
	if (ret == 0)
		ret = barway_device_get(x->ctx, s->device, &x->dev);
	if (ret == 0)
		ret = barway_device_activate(x->dev);
	if (ret == 0 && o->resident)
		ret = barway_resident_start(x->dev, NULL);
	return ret;
}

static void all_fail(struct callers_slot *slots, unsigned n, int ret, const char *why)
{
	for (unsigned i = 0; i < n; i++) {
		fail(&slots[i], ret, why);
		atomic_store_explicit(&slots[i].ready, 1, memory_order_release);
	}
}

static void run_threads(struct caller *callers, unsigned n)
{
	unsigned started = 0;

	for (; started < n; started++) {
		int error = pthread_create(&callers[started].thread, NULL, live, &callers[started]);

		if (error) {
			all_fail(callers[started].slot, n - started, -error, "no more threads");
			break;
		}
	}
	for (unsigned i = 0; i < started; i++)
		pthread_join(callers[i].thread, NULL);
}

_Noreturn void callers_child(struct callers_shared *s, const struct callers_options *options,
			     unsigned first)
{
	struct caller *callers = calloc(options->threads, sizeof(*callers));
	struct process process = { .first = first, .threads = options->threads };
	struct caller *x = callers;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!next_command(s, first, 0) || !callers)
		_exit(1);
	bench_clock_cost(); /* measured at its first call, which is not for many threads */
	if (options->bind)
		options->bind(options->arg, s->node);
	ret = open_device(s, options, x);
	if (ret < 0) {
		all_fail(&s->slots[first], options->threads, ret, barway_errmsg());
	} else {
		for (unsigned i = 0; i < options->threads; i++)
			callers[i] = (struct caller){
				.shared = s,
				.slot = &s->slots[first + i],
				.process = &process,
				.index = first + i,
				.ctx = x->ctx,
				.dev = x->dev,
			};
		run_threads(callers, options->threads);
	}
	if (x->ctx)
		barway_close(x->ctx);
	_exit(0);
}
