/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The threads of a block, played by one thread of the CPU: what barway_device.cuh is given instead
 * of a GPU where BARWAY_GPU_LANES names this file. So the forms for warps and blocks run without
 * one, as they stand, in random order between the points at which the threads meet; and where they
 * do not meet, which hangs a GPU or is undefined there, lanes_run() says so.
 *
 * What this does not play: memory that is seen in another order than it was written in.
 */
#ifndef TEST_LANES_H
#define TEST_LANES_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#define LANES_MOST 128u
#define LANES_STACK 262144u

enum lane_state { LANE_READY, LANE_AT_WARP, LANE_AT_BLOCK, LANE_ENDED };

static struct {
	ucontext_t scheduler;
	unsigned n, now;
	uint64_t random;
	void (*body)(void *arg);
	void *arg;
	char wrong[128];
	struct {
		ucontext_t context;
		void *stack;
		enum lane_state state;
		const char *at;    /* what it does with the others of its warp */
		uint32_t value;
		uint32_t seen[32]; /* the values of its warp, when all had come */
	} lane[LANES_MOST];
} lanes;

/* ---- the scheduler --------------------------------------------------------------------------- */

static inline uint32_t lanes_random(uint32_t below)
{
	lanes.random = lanes.random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(lanes.random >> 33) % below;
}

static inline void lanes_leave(enum lane_state state, const char *at)
{
	unsigned me = lanes.now;

	lanes.lane[me].state = state;
	lanes.lane[me].at = at;
	swapcontext(&lanes.lane[me].context, &lanes.scheduler);
}

static void lanes_enter(void)
{
	lanes.body(lanes.arg);
	lanes.lane[lanes.now].state = LANE_ENDED;
}

static inline void lanes_wrong(unsigned a, unsigned b)
{
	static const char *const names[] = { "goes on", "", "waits for the block", "has ended" };

	snprintf(lanes.wrong, sizeof(lanes.wrong), "thread %u is at %s, thread %u %s%s", a,
		 lanes.lane[a].at, b, names[lanes.lane[b].state],
		 lanes.lane[b].state == LANE_AT_WARP ? lanes.lane[b].at : "");
}

/* Lets the warp from @first on go on, where all of it has come to the same point. */
static inline void lanes_meet_warp(unsigned first)
{
	unsigned at = first;
	uint32_t seen[32];

	for (unsigned i = first; i < first + 32; i++)
		if (lanes.lane[i].state == LANE_READY)
			return;
		else if (lanes.lane[i].state == LANE_AT_WARP)
			at = i;
	if (lanes.lane[at].state != LANE_AT_WARP)
		return;
	for (unsigned i = first; i < first + 32; i++) {
		if (lanes.lane[i].state != LANE_AT_WARP ||
		    strcmp(lanes.lane[i].at, lanes.lane[at].at)) {
			lanes_wrong(at, i);
			return;
		}
		seen[i - first] = lanes.lane[i].value;
	}
	for (unsigned i = first; i < first + 32; i++) {
		memcpy(lanes.lane[i].seen, seen, sizeof(seen));
		lanes.lane[i].state = LANE_READY;
	}
}

static inline void lanes_meet_block(void)
{
	unsigned here = 0, ended = 0;

	for (unsigned i = 0; i < lanes.n; i++) {
		here += lanes.lane[i].state == LANE_AT_BLOCK;
		ended += lanes.lane[i].state == LANE_ENDED;
	}
	if (!here || here + ended < lanes.n)
		return;
	if (ended)
		snprintf(lanes.wrong, sizeof(lanes.wrong), "%u threads wait for the block, %u have "
			 "ended", here, ended);
	for (unsigned i = 0; i < lanes.n && !ended; i++)
		lanes.lane[i].state = LANE_READY;
}

/* A thread that can go on, at random; lanes.n: none can. */
static inline unsigned lanes_next(void)
{
	unsigned from = lanes_random(lanes.n);

	for (unsigned i = 0; i < lanes.n; i++)
		if (lanes.lane[(from + i) % lanes.n].state == LANE_READY)
			return (from + i) % lanes.n;
	return lanes.n;
}

/* Apart: getcontext() returns twice for all that the compiler knows. */
static __attribute__((noinline)) void lanes_make(unsigned i)
{
	ucontext_t *c = &lanes.lane[i].context;

	getcontext(c);
	lanes.lane[i].stack = malloc(LANES_STACK);
	c->uc_stack.ss_sp = lanes.lane[i].stack;
	c->uc_stack.ss_size = LANES_STACK;
	c->uc_link = &lanes.scheduler;
	makecontext(c, lanes_enter, 0);
	lanes.lane[i].state = LANE_READY;
}

/* @n threads, whole warps, each calls @body. NULL, or what they did wrong. */
static inline const char *lanes_run(unsigned n, void (*body)(void *arg), void *arg, uint64_t seed)
{
	lanes.n = n;
	lanes.body = body;
	lanes.arg = arg;
	lanes.random = seed;
	lanes.wrong[0] = 0;
	for (unsigned i = 0; i < n; i++)
		lanes_make(i);
	while (!lanes.wrong[0] && (lanes.now = lanes_next()) < n) {
		swapcontext(&lanes.scheduler, &lanes.lane[lanes.now].context);
		lanes_meet_warp(lanes.now & ~31u);
		lanes_meet_block();
	}
	for (unsigned i = 0; i < n; i++) {
		if (!lanes.wrong[0] && lanes.lane[i].state != LANE_ENDED)
			lanes_wrong(i, i);
		free(lanes.lane[i].stack);
	}
	return lanes.wrong[0] ? lanes.wrong : NULL;
}

/* ---- what barway_device.cuh asks for --------------------------------------------------------- */

#define BARWAY_GPU_FN static inline __attribute__((unused))
#define BARWAY_GPU_SHARED static

/* Now and then others go first. */
static inline void lanes_yield(void)
{
	if (!lanes_random(16))
		lanes_leave(LANE_READY, "");
}

static inline void lanes_meet(const char *at, uint32_t value)
{
	lanes.lane[lanes.now].value = value;
	lanes_leave(LANE_AT_WARP, at);
}

BARWAY_GPU_FN uint64_t barway_gpu_ld(uint64_t at)
{
	lanes_yield();
	return __atomic_load_n((const uint64_t *)(uintptr_t)at, __ATOMIC_RELAXED);
}

BARWAY_GPU_FN void barway_gpu_ld2(uint64_t at, uint64_t *a, uint64_t *b)
{
	*b = barway_gpu_ld(at + 8);
	*a = barway_gpu_ld(at);
}

BARWAY_GPU_FN uint64_t barway_gpu_ld_acquire(uint64_t at)
{
	lanes_yield();
	return __atomic_load_n((const uint64_t *)(uintptr_t)at, __ATOMIC_ACQUIRE);
}

BARWAY_GPU_FN void barway_gpu_st(uint64_t at, uint64_t v)
{
	lanes_yield();
	__atomic_store_n((uint64_t *)(uintptr_t)at, v, __ATOMIC_RELEASE);
}

BARWAY_GPU_FN void barway_gpu_st2(uint64_t at, uint64_t a, uint64_t b)
{
	barway_gpu_st(at + 8, b);
	barway_gpu_st(at, a);
}

BARWAY_GPU_FN void barway_gpu_st_if(uint32_t yes, uint64_t at, uint64_t v)
{
	if (yes)
		barway_gpu_st(at, v);
}

BARWAY_GPU_FN void barway_gpu_st2_if(uint32_t yes, uint64_t at, uint64_t a, uint64_t b)
{
	if (yes)
		barway_gpu_st2(at, a, b);
}

BARWAY_GPU_FN void barway_gpu_fence(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

BARWAY_GPU_FN uint64_t barway_gpu_add(uint64_t at, uint64_t v)
{
	lanes_yield();
	return __atomic_fetch_add((uint64_t *)(uintptr_t)at, v, __ATOMIC_RELAXED);
}

BARWAY_GPU_FN uint64_t barway_gpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

BARWAY_GPU_FN void barway_gpu_pause(unsigned polls)
{
	(void)polls;
	sched_yield();
}

BARWAY_GPU_FN void barway_gpu_back_off(uint32_t ns)
{
	(void)ns;
	lanes_leave(LANE_READY, "");
	sched_yield();
}

BARWAY_GPU_FN uint32_t barway_gpu_place(void)
{
	return lanes_random(4);
}

BARWAY_GPU_FN uint32_t barway_gpu_distance(uint64_t at)
{
	(void)at;
	return lanes_random(16);
}

BARWAY_GPU_FN unsigned barway_gpu_thread(void)
{
	return lanes.now;
}

BARWAY_GPU_FN unsigned barway_gpu_lane(void)
{
	return lanes.now & 31;
}

BARWAY_GPU_FN uint32_t barway_gpu_shfl(uint32_t v, unsigned lane)
{
	lanes_meet("a shuffle", v);
	return lanes.lane[lanes.now].seen[lane & 31];
}

BARWAY_GPU_FN uint64_t barway_gpu_shfl64(uint64_t v, unsigned lane)
{
	uint64_t high = barway_gpu_shfl((uint32_t)(v >> 32), lane);

	return high << 32 | barway_gpu_shfl((uint32_t)v, lane);
}

BARWAY_GPU_FN uint32_t barway_gpu_ballot(int yes)
{
	uint32_t out = 0;

	lanes_meet("a vote", yes != 0);
	for (unsigned i = 0; i < 32; i++)
		out |= lanes.lane[lanes.now].seen[i] << i;
	return out;
}

BARWAY_GPU_FN int barway_gpu_all(int yes)
{
	return barway_gpu_ballot(yes) == ~0u;
}

BARWAY_GPU_FN void barway_gpu_sync_warp(void)
{
	lanes_meet("the warp's barrier", 0);
}

BARWAY_GPU_FN void barway_gpu_sync_block(void)
{
	lanes_leave(LANE_AT_BLOCK, "the block's barrier");
}

BARWAY_GPU_FN uint32_t barway_gpu_nth_bit(uint32_t bits, uint32_t n)
{
	for (uint32_t i = 0; i < 32; i++)
		if (bits >> i & 1 && !--n)
			return i;
	return ~0u;
}

BARWAY_GPU_FN uint32_t barway_gpu_count_bits(uint32_t bits)
{
	return (uint32_t)__builtin_popcount(bits);
}

#endif
