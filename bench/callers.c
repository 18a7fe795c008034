/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/callers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/callers_int.h"

#define SILENCE_NS 120e9   /* for so long nobody is silent who lives */
#define LEAD_NS 2e6        /* from the word to the start */
#define CALLS_LEAST 8.0    /* in an interval, where that is not longer than */
#define SECONDS_MOST 3.0
#define NAP_US 2000        /* of this process, which must not take CPU time from callers */
#define FAREWELL 100       /* naps of 50 ms before who does not end is killed */

struct callers {
	struct callers_options options;
	unsigned n; /* all callers */
	struct callers_shared *shared;
	size_t shared_bytes;
	pid_t *pids; /* 0: has ended */
	unsigned command;
	char error[768];
};

static int refuse(struct callers *c, int ret, const char *text)
{
	snprintf(c->error, sizeof(c->error), "%s", text);
	return ret;
}

static void fork_all(struct callers *c)
{
	for (unsigned i = 0; i < c->options.processes; i++) {
		c->pids[i] = fork();
		if (c->pids[i] == 0)
			callers_child(c->shared, &c->options, i * c->options.threads);
		if (c->pids[i] < 0) {
			c->pids[i] = 0;
			c->options.processes = 0; /* what remains is to end the others */
		}
	}
}

struct callers *callers_fork(const struct callers_options *options)
{
	struct callers *c = calloc(1, sizeof(*c));
	unsigned wanted = options->processes;

	if (!c)
		return NULL;
	c->options = *options;
	c->n = options->processes * options->threads;
	c->shared_bytes = sizeof(*c->shared) + c->n * sizeof(c->shared->slots[0]);
	c->pids = calloc(options->processes, sizeof(*c->pids));
	c->shared = mmap(NULL, c->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	if (c->shared == MAP_FAILED || !c->pids) {
		if (c->shared != MAP_FAILED)
			munmap(c->shared, c->shared_bytes);
		free(c->pids);
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	fflush(NULL); /* or each of them had what is still to be written */
	fork_all(c);
	if (c->options.processes == wanted)
		return c;
	c->options.processes = wanted;
	callers_close(c);
	errno = EAGAIN;
	return NULL;
}

const char *callers_error(const struct callers *c)
{
	return c->error;
}

/* Has one of them ended, which none does by itself? */
static int look_for_the_dead(struct callers *c)
{
	for (unsigned i = 0; i < c->options.processes; i++) {
		int status;

		if (!c->pids[i] || waitpid(c->pids[i], &status, WNOHANG) != c->pids[i])
			continue;
		c->pids[i] = 0;
		for (unsigned k = 0; k < c->options.threads; k++) {
			struct callers_slot *s = &c->shared->slots[i * c->options.threads + k];

			if (s->error)
				return refuse(c, s->error, s->message);
		}
		if (WIFSIGNALED(status))
			snprintf(c->error, sizeof(c->error), "process %u of %u was ended by signal "
				 "%d: its core or the kernel's log says why", i + 1,
				 c->options.processes, WTERMSIG(status));
		else
			snprintf(c->error, sizeof(c->error), "process %u of %u ended by itself",
				 i + 1, c->options.processes);
		return -ECHILD;
	}
	return 0;
}

/* Until the first @active slots have the command's number: in @done, or else in @ready. */
static int wait_for(struct callers *c, unsigned active, bool done)
{
	uint64_t began = bench_now();

	for (unsigned i = 0; i < active;) {
		struct callers_slot *s = &c->shared->slots[i];
		int ret;

		if (atomic_load_explicit(done ? &s->done : &s->ready, memory_order_acquire) ==
		    c->command) {
			if (s->error)
				return refuse(c, s->error, s->message);
			i++;
			continue;
		}
		ret = look_for_the_dead(c);
		if (ret < 0)
			return ret;
		if ((double)(bench_now() - began) > SILENCE_NS)
			return refuse(c, -ETIMEDOUT, "a caller has not answered for two minutes: "
				      "choose a smaller size");
		usleep(NAP_US);
	}
	return 0;
}

static void command(struct callers *c, unsigned active)
{
	c->command++;
	atomic_store_explicit(&c->shared->command, c->command * CALLERS_ACTIVE + active,
			      memory_order_release);
	callers_wake(&c->shared->command);
}

int callers_open(struct callers *c, int device, int node, const struct copies_options *options)
{
	struct callers_shared *s = c->shared;

	s->device = device;
	s->node = node;
	s->options = *options;
	s->has_cuda_lib = options->cuda_lib;
	snprintf(s->cuda_lib, sizeof(s->cuda_lib), "%s",
		 options->cuda_lib ? options->cuda_lib : "");
	command(c, c->n);
	return wait_for(c, c->n, false);
}

/* ---- measuring --------------------------------------------------------------------------- */

static double interval(const struct callers *c, const struct callers_what *what)
{
	double slowest = 0, seconds;

	for (unsigned i = 0; i < what->active; i++) {
		if (c->shared->slots[i].expect > slowest)
			slowest = c->shared->slots[i].expect;
	}
	seconds = CALLS_LEAST * slowest / 1e9;
	if (seconds > SECONDS_MOST)
		seconds = SECONDS_MOST;
	return seconds > what->seconds ? seconds : what->seconds;
}

static void add_caller(struct callers_slot *s, double *all, size_t *n, struct callers_result *out)
{
	double rate = s->elapsed > 0 ? (double)s->calls / s->elapsed : 0;
	struct bench_stats stats;

	memcpy(all + *n, s->time, s->samples * sizeof(*all));
	*n += s->samples;
	bench_stats(s->time, s->samples, &stats);
	if (!out->callers || stats.median > out->slowest)
		out->slowest = stats.median;
	if (!out->callers || stats.median < out->fastest)
		out->fastest = stats.median;
	if (!out->callers || rate < out->rate_least)
		out->rate_least = rate;
	if (!out->callers || rate > out->rate_most)
		out->rate_most = rate;
	out->rate += rate;
	out->callers++;
	if (s->mismatch.bytes && !out->mismatch.bytes)
		out->mismatch = s->mismatch;
}

static int gather(struct callers *c, const struct callers_what *what, struct callers_result *out)
{
	double *all = malloc(what->active * sizeof(c->shared->slots[0].time));
	double cpu = 0, calls = 0;
	size_t n = 0;

	if (!all)
		return refuse(c, -ENOMEM, "out of memory for the samples");
	*out = (struct callers_result){ 0 };
	for (unsigned i = 0; i < what->active; i++) {
		struct callers_slot *s = &c->shared->slots[i];

		add_caller(s, all, &n, out);
		cpu += (double)s->cpu;
		calls += (double)s->calls;
	}
	bench_stats(all, n, &out->time);
	out->cpu = calls > 0 ? cpu / calls : 0;
	free(all);
	return 0;
}

int callers_measure(struct callers *c, const struct callers_what *what, struct callers_result *out)
{
	struct callers_shared *s = c->shared;
	int ret;

	s->what = *what;
	command(c, what->active);
	ret = wait_for(c, what->active, false);
	if (ret < 0)
		return ret;
	s->start = bench_now() + (uint64_t)LEAD_NS;
	s->end = s->start + (uint64_t)(interval(c, what) * 1e9);
	atomic_store_explicit(&s->go, c->command, memory_order_release);
	ret = wait_for(c, what->active, true);
	return ret < 0 ? ret : gather(c, what, out);
}

void callers_close(struct callers *c)
{
	if (!c)
		return;
	atomic_store(&c->shared->quit, true);
	command(c, 0); /* which wakes all */
	for (unsigned i = 0; i < c->options.processes; i++) {
		for (int naps = 0; c->pids[i]; naps++) {
			if (waitpid(c->pids[i], NULL, WNOHANG))
				c->pids[i] = 0;
			else if (naps == FAREWELL)
				kill(c->pids[i], SIGKILL);
			else
				usleep(naps ? 50000 : 1000);
		}
	}
	munmap(c->shared, c->shared_bytes);
	free(c->pids);
	free(c);
}
