/* SPDX-License-Identifier: BSD-3-Clause */
/* Many threads on the same pages, and many cycles that leave nothing behind. */
#include <stdatomic.h>

#include "api_test.h"

#define THREADS 8
#define ROUNDS (SANITIZED ? 1500 : 5000)
#define CYCLES (SANITIZED ? 20000 : 100000)
#define SPAN (4 * GRANULE)

static uint64_t base;
static pthread_barrier_t gate;

static const char *one_round(unsigned id, unsigned i, uint64_t *random)
{
	/* every thread has its own 16 bytes of each 128, in pages that all of them share */
	size_t offset = test_random(random) % (SPAN / 128) * 128 + id * 16;
	size_t before = test_random(random) % (offset + 1), n = 1 + test_random(random) % 16;
	size_t bytes = offset - before + 16 + test_random(random) % 64;
	unsigned char mine[16], back[16];
	struct barway_map_options o = { .size = sizeof(o) };
	struct barway_mapping *m;
	uint64_t start = base + before;

	if (bytes > SPAN - before)
		bytes = SPAN - before;
	o.flags = i % 64 ? 0 : BARWAY_MAP_UNCACHED;
	if (barway_map(ctx, start, bytes, &o, &m))
		return "map";
	test_fill(mine, sizeof(mine), i * THREADS + id);
	if (barway_copy_to(m, offset - before, mine, n))
		return "copy to";
	if (i % 16 == 0 && (barway_flush(m) || !barway_mapping_ptr(m)))
		return "flush";
	if (i % 50 ? barway_copy_from(m, back, offset - before, n) :
		     barway_copy_from_by(m, BARWAY_METHOD_CE, back, offset - before, n))
		return "copy from";
	if (memcmp(mine, back, n))
		return "data";
	if (barway_unmap(m))
		return "unmap";
	return barway_unmap(m) == -ESTALE ? NULL : "unmap twice";
}

static void *worker(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;
	const char *wrong = NULL;

	pthread_barrier_wait(&gate);
	for (unsigned i = 0; i < ROUNDS && !wrong; i++)
		wrong = one_round((unsigned)(uintptr_t)arg, i, &random);
	return wrong ? strdup(*barway_errmsg() ? barway_errmsg() : wrong) : NULL;
}

static void on_shared_pages(void)
{
	struct barway_counters before, c;
	char *wrong[THREADS], first[1024] = "";
	pthread_t t[THREADS];

	begin();
	base = alloc(0, SPAN);
	before = counters();
	CHECK_EQ(pthread_barrier_init(&gate, NULL, THREADS), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, worker, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(t[i], (void **)&wrong[i]);
		if (wrong[i])
			snprintf(first, sizeof(first), "thread %u: %s", i, wrong[i]);
		free(wrong[i]);
	}
	pthread_barrier_destroy(&gate);
	if (*first)
		FAIL("%s", first);
	c = counters();
	CHECK_EQ(c.maps - before.maps, THREADS * ROUNDS);
	CHECK_EQ(c.unmaps - before.unmaps, THREADS * ROUNDS);
	CHECK_EQ(c.live_mappings, 0);
	CHECK_EQ(c.live_bytes, 0);
	CHECK_EQ(c.map_errors, before.map_errors);
	OK(barway_cache_flush(ctx));
	CHECK_EQ(bar1_used(0), 0);
	release(base);
	end();
}

/* One mapping, many threads, no lock. */
static struct barway_mapping *shared;

static void *copier(void *arg)
{
	size_t at = (uintptr_t)arg * 3001;
	unsigned char mine[3001], back[3001];

	for (unsigned i = 0; i < ROUNDS / 2; i++) {
		size_t n = i % sizeof(mine);

		memset(mine, (int)(i + (uintptr_t)arg), n);
		if (barway_copy_to(shared, at, mine, n) || barway_copy_from(shared, back, at, n) ||
		    memcmp(mine, back, n))
			return "data";
	}
	return NULL;
}

static void on_one_mapping(void)
{
	void *wrong[THREADS];
	pthread_t t[THREADS];
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	shared = map(a + 11, THREADS * 3001);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, copier, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], &wrong[i]);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(!wrong[i]);
	OK(barway_unmap(shared));
	release(a);
	end();
}

/* Memory comes and goes under threads that map it: a mapping of it, or an error, and no more. */
static _Atomic uint64_t moving;
static atomic_bool stop;

static void *chaser(void *arg)
{
	unsigned char byte;

	(void)arg;
	while (!stop) {
		struct barway_mapping *m;
		uint64_t a = moving;
		int ret = a ? barway_map(ctx, a, GRANULE, NULL, &m) : -EFAULT;

		if (ret && ret != -EFAULT)
			return strdup(barway_errmsg());
		if (!ret && (barway_copy_from(m, &byte, 5, 1) || barway_copy_to(m, 6, &byte, 1) ||
			     barway_unmap(m)))
			return strdup("copy");
	}
	return NULL;
}

static void freed_under_them(void)
{
	char *wrong[4], first[1024] = "";
	pthread_t t[4];

	begin_cache("64M", "1000", "5");
	stop = false;
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, chaser, NULL), 0);
	for (unsigned i = 0; i < 300; i++) {
		uint64_t a = 0;
		int ret = barway_mem_alloc(gpu[i % 2], GRANULE, &a);

		moving = a;
		if (ret)
			snprintf(first, sizeof(first), "%s", barway_errmsg());
		sched_yield();
		if (i % 10 == 0)
			sleep_ms(1);
		if (a && barway_mem_free(ctx, a))
			snprintf(first, sizeof(first), "free");
	}
	moving = 0;
	stop = true;
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], (void **)&wrong[i]);
		if (wrong[i])
			snprintf(first, sizeof(first), "%s", wrong[i]);
		free(wrong[i]);
	}
	if (*first)
		FAIL("%s", first);
	OK(barway_cache_flush(ctx));
	CHECK_EQ(bar1_used(0) + bar1_used(1), 0);
	CHECK_EQ(memory_used(0) + memory_used(1), 0);
	end();
}

/* Contexts come and go, beside one that works and without. */
static void *opener(void *arg)
{
	for (unsigned i = 0; i < ROUNDS / 10; i++) {
		struct barway_context *c;
		struct barway_mapping *m;

		if (barway_open(NULL, &c))
			return strdup(barway_errmsg());
		if (barway_map(c, base, GRANULE, NULL, &m)) {
			barway_close(c);
			return strdup(barway_errmsg());
		}
		if (barway_copy_to(m, (uintptr_t)arg, &i, 1) || barway_close(c))
			return strdup(barway_errmsg());
	}
	return NULL;
}

static void openers(char *first, size_t bytes)
{
	char *wrong[4];
	pthread_t t[4];

	for (uintptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, opener, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], (void **)&wrong[i]);
		if (wrong[i])
			snprintf(first, bytes, "%s", wrong[i]);
		free(wrong[i]);
	}
}

static void contexts_come_and_go(void)
{
	char first[1024] = "";

	begin();
	base = alloc(0, GRANULE);
	openers(first, sizeof(first));
	CHECK_STR(first, "");
	CHECK_EQ(counters().live_mappings, 0);
	end();
	openers(first, sizeof(first)); /* each may be the last to close */
	CHECK_STR(first, "");
	begin();
	CHECK_EQ(counters().live_mappings, 0);
	CHECK_EQ(bar1_used(0), 0);
	release(base);
	end();
}

/* ---- cycles -------------------------------------------------------------------------------- */

static void cycle(unsigned i)
{
	size_t at = i * 997 % (SPAN - 5000), n = 1 + i % 5000;
	struct barway_mapping *m = i % 16 ? map(base + at, n) : map_uncached(base + at, n);

	OK(barway_copy_to(m, 0, &i, n < 4 ? n : 4));
	OK(barway_unmap(m));
}

static void flat(void)
{
	unsigned files, areas;
	size_t memory;

	begin();
	base = alloc(0, SPAN);
	for (unsigned i = 0; i < 3000; i++)
		cycle(i);
	OK(barway_cache_flush(ctx));
	files = open_files();
	areas = maps();
	memory = resident();
	for (unsigned i = 0; i < CYCLES; i++)
		cycle(i);
	CHECK_EQ(counters().live_mappings, 0);
	OK(barway_cache_flush(ctx));
	CHECK_EQ(open_files(), files);
	CHECK_EQ(bar1_used(0), 0);
	CHECK_EQ(memory_used(0), SPAN);
	if (!SANITIZED && !emulated()) {
		CHECK(maps() <= areas + 4);
		if (resident() > memory + 512 * KIB)
			FAIL("resident memory grew from %zu to %zu bytes", memory, resident());
	}
	release(base);
	end();
}

/* Handles too: a context is opened and closed over and over. */
static void flat_contexts(void)
{
	unsigned files = 0, areas = 0;
	size_t memory = 0;

	for (unsigned i = 0; i < CYCLES / 50; i++) {
		uint64_t a;

		begin();
		a = alloc(0, 1);
		map(a, 1); /* left to barway_close() */
		release(a);
		end();
		if (i == CYCLES / 100) {
			files = open_files();
			areas = maps();
			memory = resident();
		}
	}
	CHECK_EQ(open_files(), files);
	if (!SANITIZED && !emulated()) {
		CHECK(maps() <= areas + 4);
		if (resident() > memory + 512 * KIB)
			FAIL("resident memory grew from %zu to %zu bytes", memory, resident());
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(on_shared_pages),
		TEST(on_one_mapping),
		TEST(freed_under_them),
		TEST(contexts_come_and_go),
		TEST(flat),
		TEST(flat_contexts),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
