/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for a device: little CPU time for what takes long, little delay for what comes soon. */
#include "copy/pause.h"

#include <time.h>

#include "test.h"

#define MS 1000000ull
#define BYTES_PER_MS 50000000ull /* as pause.c expects it */

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

/* Waits for something that comes after @ns. How long that took, and of it how long the CPU. */
static uint64_t wait_for(uint64_t bytes, uint64_t ns, uint64_t *cpu)
{
	uint64_t start = bw_now_ns(), now = start, before = cpu_ns();
	struct bw_pause p;

	bw_pause_begin(&p, bytes);
	while (now - start < ns) {
		bw_pause(&p, UINT64_MAX);
		now = bw_now_ns();
	}
	*cpu = cpu_ns() - before;
	return now - start;
}

static uint64_t least_of(unsigned times, uint64_t bytes, uint64_t ns, uint64_t *cpu)
{
	uint64_t least = UINT64_MAX, used;

	*cpu = UINT64_MAX;
	for (unsigned i = 0; i < times; i++) {
		uint64_t took = wait_for(bytes, ns, &used);

		least = took < least ? took : least;
		*cpu = used < *cpu ? used : *cpu;
	}
	return least;
}

static void what_is_long_is_slept_for(void)
{
	uint64_t cpu, took = least_of(3, 100 * BYTES_PER_MS, 100 * MS, &cpu);

	CHECK(took >= 100 * MS && took < 110 * MS);
	CHECK(cpu < 10 * MS);
}

static void what_is_late_is_slept_for(void)
{
	uint64_t cpu, took = least_of(3, 0, 100 * MS, &cpu);

	CHECK(took >= 100 * MS && took < 115 * MS);
	CHECK(cpu < 30 * MS);
}

static void what_is_soon_is_polled_for(void)
{
	uint64_t cpu, took = least_of(50, 1 << 20, MS / 50, &cpu);

	CHECK(took >= MS / 50 && took < MS / 10);
}

static void not_beyond_the_end(void)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < 5; i++) {
		struct bw_pause p;
		uint64_t start = bw_now_ns(), took;

		bw_pause_begin(&p, 10000 * BYTES_PER_MS);
		while (bw_now_ns() < start + 2 * MS)
			bw_pause(&p, start + 2 * MS);
		took = bw_now_ns() - start;
		least = took < least ? took : least;
	}
	CHECK(least < 20 * MS);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(what_is_long_is_slept_for),
		TEST(what_is_late_is_slept_for),
		TEST(what_is_soon_is_polled_for),
		TEST(not_beyond_the_end),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
