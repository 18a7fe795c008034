/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress threads between transfers: they cost nothing while there is nothing to do, the first
 * transfer after a rest does not wait for a timer of theirs, what is short wakes only the one that
 * it concerns, and more of them do no harm to what is short.
 */
#include <dirent.h>
#include <stdio.h>

#include "net_test.h"
#include "sanitizers.h"

#define ROUNDS 15u
#define MANY 64u
#define SLOWNESS (SANITIZED ? 10 : 1)

static struct memory ma, mb;

static void begin(int nthreads, unsigned nrails)
{
	pair_open(network, nthreads, nrails);
	memory_open(&a, &ma, true, 4 * MIB, BARWAY_REGION_PUT);
	memory_open(&b, &mb, true, 4 * MIB, BARWAY_REGION_PUT);
}

static void end(void)
{
	memory_close(&a, &ma);
	memory_close(&b, &mb);
	pair_close();
}

static struct barway_transfer *put(size_t bytes)
{
	struct barway_part part = { 0, 0, bytes };
	struct barway_transfer_options o = { .operation = BARWAY_PUT, .key = &mb.key };

	return prepare(&a, &ma, &part, 1, &o);
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/*
 * Seconds of a transfer, of many of which eight are under way at once. The best of some: others may
 * have wanted the CPU meanwhile, but not each time.
 */
static double best_of_many(size_t bytes)
{
	struct barway_transfer *t[8];
	double best = 1e9;

	for (unsigned i = 0; i < N(t); i++)
		t[i] = put(bytes);
	for (unsigned round = 0; round < ROUNDS; round++) {
		double from = seconds(), took;

		for (unsigned i = 0; i < N(t); i++)
			OK(barway_transfer_post(t[i]));
		for (unsigned i = 0; i < MANY; i++) {
			OK(barway_transfer_wait(t[i % N(t)], BARWAY_VISIBLE, 10 * SECOND));
			if (i + N(t) < MANY)
				OK(barway_transfer_post(t[i % N(t)]));
		}
		took = (seconds() - from) / MANY;
		best = took < best ? took : best;
	}
	for (unsigned i = 0; i < N(t); i++)
		OK(barway_transfer_free(t[i]));
	return best;
}

static double best_with(int nthreads, unsigned nrails)
{
	double best;

	begin(nthreads, nrails);
	best = best_of_many(16 * KIB);
	end();
	return best;
}

/* More threads than short transfers need do not get into each other's way. */
static void threads_do_no_harm(void)
{
	double one = 0, four = 0;

	for (unsigned i = 0; i < 5; i++) { /* others may want the CPU */
		one = best_with(1, 1);
		four = best_with(4, 4);
		if (four < 1.5 * one)
			return;
	}
	FAIL("%.0f us with one thread, %.0f us with four", one * 1e6, four * 1e6);
}

/*
 * From rest: each step of a transfer goes on from the last, none waits for a timer, which would be
 * 25 ms on average. Others may want the CPU now and then.
 */
static void after_rest(int nthreads, unsigned nrails, size_t bytes)
{
	struct barway_transfer *t;
	double best = 1e9;
	unsigned late = 0;

	begin(nthreads, nrails);
	t = put(bytes);
	for (unsigned i = 0; i < ROUNDS; i++) {
		double from, took;

		sleep_ms(30);
		from = seconds();
		OK(barway_transfer_post(t));
		/* what moves it on are the threads alone */
		while (barway_transfer_poll(t, BARWAY_VISIBLE) == -EBUSY)
			sched_yield();
		took = seconds() - from;
		best = took < best ? took : best;
		late += took > 0.015 * SLOWNESS;
	}
	if (best > (bytes > MIB ? 0.01 : 0.002) * SLOWNESS || late > ROUNDS / 3)
		FAIL("%d threads, %u rails: %.0f us at best, %u of %u late", nthreads, nrails,
		     best * 1e6, late, ROUNDS);
	OK(barway_transfer_free(t));
	end();
}

static void soon_after_rest(void)
{
	after_rest(4, 4, 64 * KIB);
	after_rest(1, 4, 4 * MIB); /* rails that are mostly passed by */
	after_rest(2, 1, 64 * KIB);
}

static void rest_costs_nothing(void)
{
	struct barway_transfer *t;
	double cpu;

	begin(4, 4);
	t = put(4 * MIB);
	OK(barway_transfer_post(t));
	OK(barway_transfer_wait(t, BARWAY_VISIBLE, 10 * SECOND));
	sleep_ms(100);
	cpu = cpu_seconds();
	sleep_ms(1000);
	cpu = cpu_seconds() - cpu;
	if (cpu > 0.1 * SLOWNESS)
		FAIL("8 threads of two ends at rest took %.0f ms of a second", cpu * 1e3);
	OK(barway_transfer_free(t));
	end();
}

static uint64_t switches_of(const char *task)
{
	char path[300], line[200], name[32] = "";
	unsigned long long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Name: %31s", name) != 1)
			sscanf(line, "voluntary_ctxt_switches: %llu", &n);
	if (f)
		fclose(f);
	return strcmp(name, "barway-net") ? 0 : n;
}

/* How many progress threads have slept more often than @n times? */
static unsigned threads_that_slept(uint64_t n)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned found = 0;
	struct dirent *e;

	CHECK(dir);
	while ((e = readdir(dir)))
		found += e->d_name[0] != '.' && switches_of(e->d_name) > n;
	closedir(dir);
	return found;
}

/* Four threads of each end, of which one has to do with it. Each looks 20 times a second. */
static void short_ones_wake_one(void)
{
	struct barway_transfer *t;
	double from = seconds();
	unsigned woken;

	begin(4, 4);
	t = put(8);
	for (unsigned i = 0; i < 300; i++) {
		OK(barway_transfer_post(t));
		OK(barway_transfer_wait(t, BARWAY_VISIBLE, 10 * SECOND));
		sleep_ms(2);
	}
	woken = threads_that_slept(150 + (uint64_t)((seconds() - from) * 30));
	if (woken > 2)
		FAIL("short puts woke %u of 8 threads again and again", woken);
	OK(barway_transfer_free(t));
	end();
}

static unsigned rails_of(size_t bytes)
{
	struct barway_transfer *t = put(bytes);
	struct barway_transfer_info i;

	OK(barway_transfer_post(t));
	OK(barway_transfer_wait(t, BARWAY_VISIBLE, 10 * SECOND));
	i = info_of(t);
	OK(barway_transfer_free(t));
	return i.rails;
}

static void short_ones_stay_together(void)
{
	begin(4, 4);
	for (unsigned i = 0; i < 8; i++)
		CHECK_EQ(rails_of(256 * KIB), 1);
	CHECK_EQ(rails_of(4 * MIB), 4);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(threads_do_no_harm), TEST(soon_after_rest), TEST(rest_costs_nothing),
		TEST(short_ones_wake_one), TEST(short_ones_stay_together), { 0 },
	};

	return net_main(argc, argv, cases);
}
