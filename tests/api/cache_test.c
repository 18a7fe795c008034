/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache and the counters: what stays after an unmap, for how long, and what is told of it. */
#include "api_test.h"

static unsigned char image[GRANULE], back[GRANULE];

/* Waits up to 5 s; how long it took, seconds, or -1. */
static double until_cached(uint64_t bytes)
{
	double start = seconds();

	while (seconds() < start + 5) {
		if (counters().cache_bytes == bytes)
			return seconds() - start;
		sleep_ms(2);
	}
	return -1;
}

static void counts(void)
{
	struct barway_counters before, c;
	struct barway_mapping *m, *other, *none = NULL;
	uint64_t a;

	begin();
	a = alloc(0, 4 * GRANULE);
	before = counters();
	CHECK(!before.live_mappings && !before.live_bytes && !before.cache_bytes);
	m = map(a + 10, 100); /* a window of one page */
	c = counters();
	CHECK_EQ(c.maps, before.maps + 1);
	CHECK_EQ(c.cache_misses, before.cache_misses + 1);
	CHECK_EQ(c.cache_hits, before.cache_hits);
	CHECK_EQ(c.driver_maps, before.driver_maps + 1);
	CHECK_EQ(c.driver_unmaps, before.driver_unmaps);
	CHECK_EQ(c.live_mappings, 1);
	CHECK_EQ(c.live_bytes, PAGE);
	CHECK_EQ(c.self_tests, before.self_tests + !before.maps);
	CHECK_EQ(c.self_test_failures, 0);
	other = map(a, PAGE); /* shares it */
	c = counters();
	CHECK_EQ(c.maps, before.maps + 2);
	CHECK_EQ(c.cache_hits, before.cache_hits + 1);
	CHECK_EQ(c.driver_maps, before.driver_maps + 1);
	CHECK_EQ(c.live_mappings, 2);
	CHECK_EQ(c.live_bytes, PAGE);
	CHECK_EQ(c.cache_bytes, 0); /* held by mappings */
	CHECK(info_of(other).from_cache && !info_of(m).from_cache);
	OK(barway_unmap(m));
	CHECK_EQ(counters().live_bytes, PAGE);
	OK(barway_unmap(other));
	c = counters();
	CHECK_EQ(c.unmaps, before.unmaps + 2);
	CHECK_EQ(c.live_mappings, 0);
	CHECK_EQ(c.live_bytes, 0);
	CHECK_EQ(c.cache_bytes, PAGE);
	CHECK_EQ(c.driver_unmaps, before.driver_unmaps);
	m = map(a + 5, 10); /* any part of it is a hit */
	c = counters();
	CHECK_EQ(c.cache_hits, before.cache_hits + 2);
	CHECK_EQ(c.cache_bytes, 0);
	CHECK_EQ(c.live_bytes, PAGE);
	OK(barway_unmap(m));
	m = map(a, PAGE + 1); /* more than it has is a miss */
	c = counters();
	CHECK_EQ(c.cache_misses, before.cache_misses + 2);
	CHECK_EQ(c.live_bytes, 2 * PAGE);
	OK(barway_unmap(m));
	FAILS(barway_map(ctx, 4096, 1, NULL, &none), EFAULT, "not GPU memory");
	FAILS(barway_map(ctx, a, 0, NULL, &none), EINVAL, "0 bytes");
	FAILS(barway_map(NULL, a, 1, NULL, &none), ESTALE, "NULL");
	c = counters();
	CHECK_EQ(c.map_errors, before.map_errors + 3);
	CHECK_EQ(c.maps, before.maps + 4);
	CHECK_EQ(barway_unmap(m), -ESTALE);
	CHECK_EQ(counters().unmaps, before.unmaps + 4);
	OK(barway_cache_flush(ctx));
	c = counters();
	CHECK_EQ(c.cache_bytes, 0);
	CHECK_EQ(c.driver_unmaps, before.driver_unmaps + 2);
	CHECK_EQ(c.driver_maps, before.driver_maps + 2);
	/* evicted is what had to give way, not what was asked to go */
	CHECK_EQ(c.cache_evictions, before.cache_evictions);
	CHECK_EQ(c.cache_stale, before.cache_stale);
	release(a);
	end();
}

static void counters_struct(void)
{
	struct {
		struct barway_counters c;
		char tail[8];
	} big;
	struct barway_counters c;

	begin();
	memset(&c, 0x77, sizeof(c));
	for (c.size = 0; c.size < 16; c.size++)
		FAILS(barway_counters_get(ctx, &c), EINVAL, "size");
	c.size = 16;
	OK(barway_counters_get(ctx, &c));
	CHECK_EQ(c.map_errors, 0x7777777777777777);
	CHECK(c.maps != c.map_errors);
	memset(&big, 0, sizeof(big));
	big.c.size = sizeof(big);
	OK(barway_counters_get(ctx, &big.c));
	big.tail[2] = 1;
	FAILS(barway_counters_get(ctx, &big.c), E2BIG, "not zero");
	FAILS(barway_counters_get(ctx, NULL), EINVAL, "NULL");
	end();
}

/* Freed memory is never found again, whatever is at its address now. */
static void never_old_data(void)
{
	uint64_t a, last = 0, again = 0;

	begin();
	for (unsigned i = 0; i < 100; i++) {
		struct barway_mapping *m;

		a = alloc(0, GRANULE);
		again += a == last;
		last = a;
		test_fill(image, GRANULE, i);
		gpu_write(a, image, GRANULE);
		m = map(a, GRANULE);
		CHECK(!info_of(m).from_cache);
		OK(barway_copy_from(m, back, 0, GRANULE));
		CHECK(!memcmp(back, image, GRANULE));
		test_fill(image, GRANULE, i + 1000);
		OK(barway_copy_to(m, 0, image, GRANULE));
		OK(barway_unmap(m));
		gpu_read(back, a, GRANULE);
		CHECK(!memcmp(back, image, GRANULE));
		release(a);
	}
	CHECK(again);
	end();
}

/* The second of two neighbours is freed and another comes in its place. */
static void never_old_neighbour(void)
{
	uint64_t a = 0, b;

	begin();
	a = alloc(0, GRANULE);
	b = alloc(0, GRANULE);
	if (a + GRANULE != b) {
		release(a);
		release(b);
		end();
		SKIP("allocations are not side by side");
	}
	for (unsigned i = 0; i < 20; i++) {
		struct barway_mapping *m = map(a, 2 * GRANULE);

		memset(image, (int)i, GRANULE);
		OK(barway_copy_to(m, GRANULE, image, GRANULE));
		OK(barway_unmap(m));
		release(b);
		FAILS(barway_map(ctx, a, 2 * GRANULE, NULL, &m), EFAULT, "ends beyond its memory");
		m = map(a, GRANULE); /* the part that is still there */
		OK(barway_unmap(m));
		b = alloc(0, GRANULE);
		CHECK_EQ(b, a + GRANULE);
		memset(image, (int)i + 100, GRANULE);
		gpu_write(b, image, GRANULE);
		m = map(a, 2 * GRANULE);
		CHECK(!memcmp((char *)barway_mapping_ptr(m) + GRANULE, image, GRANULE));
		OK(barway_unmap(m));
	}
	release(a);
	release(b);
	end();
}

static void bounded(void)
{
	struct barway_counters before, c;
	uint64_t a;

	begin_cache("1M", "100000", "100");
	a = alloc(0, 8 * MIB);
	before = counters();
	for (unsigned i = 0; i < 64; i++) {
		OK(barway_unmap(map(a + i * 2 * GRANULE, 2 * GRANULE)));
		CHECK(counters().cache_bytes <= MIB);
	}
	c = counters();
	CHECK_EQ(c.cache_bytes, MIB);
	CHECK_EQ(c.cache_evictions, before.cache_evictions + 64 - 8);
	OK(barway_unmap(map(a, 4 * MIB))); /* one that is too large by itself */
	CHECK(counters().cache_bytes <= MIB);
	/* the oldest went first */
	CHECK_EQ(counters().cache_hits, before.cache_hits);
	OK(barway_unmap(map(a + 63 * 2 * GRANULE, 1)));
	CHECK_EQ(counters().cache_hits, before.cache_hits + 1);
	release(a);
	end();
}

static void kept_for_a_while(void)
{
	struct barway_counters before;
	uint64_t a, used;

	begin_cache("64M", "50", "10");
	a = alloc(0, MIB);
	OK(barway_unmap(map(a, 1)));
	OK(barway_cache_flush(ctx));
	used = bar1_used(0);
	before = counters();
	OK(barway_unmap(map(a, MIB)));
	CHECK(until_cached(0) >= 0);
	CHECK_EQ(counters().cache_evictions, before.cache_evictions + 1);
	CHECK_EQ(counters().cache_stale, before.cache_stale);
	for (double from = seconds(); bar1_used(0) != used;) /* let go of after it is counted */
		CHECK(seconds() - from < 10);
	release(a);
	end();
	begin_cache("64M", "100000", "10"); /* and not before */
	a = alloc(0, MIB);
	OK(barway_unmap(map(a, MIB)));
	sleep_ms(300);
	CHECK_EQ(counters().cache_bytes, MIB);
	release(a);
	end();
}

/* Freeing frees: the sweeper lets go of it, also after it has slept for long. */
static void swept(void)
{
	begin_cache("64M", "100000", "20");
	for (unsigned round = 0; round < 4; round++) {
		struct barway_counters before = counters();
		uint64_t used = memory_used(0), a, b;
		double took;

		a = alloc(0, 4 * MIB);
		b = alloc(0, MIB);
		OK(barway_unmap(map(a, MIB)));
		OK(barway_unmap(map(b, MIB)));
		release(a);
		took = until_cached(MIB);
		CHECK(took >= 0);
		if (!SANITIZED)
			CHECK(took < 2); /* 20 ms, and a machine that is busy with other things */
		CHECK_EQ(counters().cache_stale, before.cache_stale + 1);
		CHECK_EQ(counters().cache_evictions, before.cache_evictions);
		CHECK_EQ(memory_used(0), used + MIB);
		CHECK_EQ(bar1_used(0), MIB);
		CHECK(info_of(map(b, MIB)).from_cache); /* what is not freed stays */
		end();
		begin_cache("64M", "100000", "20");
		release(b);
		CHECK_EQ(memory_used(0), used);
		sleep_ms(round * 200);
	}
	end();
}

/* With something in the cache; a time so long that it does not fit a clock is a long time, too. */
static void sleeps(void)
{
	static const char *const sweep_ms[] = {
		"18446744073709551615", "9223372036854775807", "50"
	};
	struct timespec before, after;

	for (unsigned i = 0; i < N(sweep_ms); i++) {
		double used;
		uint64_t a;

		begin_cache("64M", "10000", sweep_ms[i]);
		a = alloc(0, GRANULE);
		OK(barway_unmap(map(a, 1)));
		CHECK(counters().cache_bytes);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
		sleep_ms(500);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
		used = (double)(after.tv_sec - before.tv_sec) +
		       (double)(after.tv_nsec - before.tv_nsec) / 1e9;
		if (used > 0.1)
			FAIL("cache_sweep_ms %s: %.3f s of CPU time in 0.5 s", sweep_ms[i], used);
		CHECK(counters().cache_bytes); /* nor was it taken for due */
		release(a);
		end();
	}
}

static void off(void)
{
	struct barway_mapping *m;
	uint64_t a;

	begin_cache("0", "10000", "100");
	a = alloc(0, MIB);
	for (unsigned i = 0; i < 3; i++) {
		m = map(a, MIB);
		CHECK(!info_of(m).from_cache);
		CHECK_EQ(bar1_used(0), MIB);
		OK(barway_unmap(m));
		CHECK_EQ(bar1_used(0), 0);
		CHECK_EQ(counters().cache_bytes, 0);
	}
	release(a);
	CHECK_EQ(memory_used(0), 0);
	end();
}

static void uncached(void)
{
	struct barway_counters before;
	struct barway_mapping *m, *other;
	uint64_t a;

	begin();
	a = alloc(0, MIB);
	OK(barway_unmap(map(a, GRANULE)));
	before = counters();
	m = map_uncached(a, GRANULE); /* made anew, although there is one */
	CHECK(!info_of(m).from_cache);
	CHECK_EQ(counters().driver_maps, before.driver_maps + 1);
	CHECK_EQ(counters().cache_bytes, GRANULE);
	CHECK_EQ(counters().cache_hits, before.cache_hits);
	OK(barway_unmap(m)); /* and undone */
	CHECK_EQ(counters().driver_unmaps, before.driver_unmaps + 1);
	CHECK_EQ(counters().cache_bytes, GRANULE);
	m = map_uncached(a + 2 * GRANULE, GRANULE);
	other = map(a + 2 * GRANULE, GRANULE); /* nobody else gets it */
	CHECK(!info_of(other).from_cache);
	CHECK(barway_mapping_ptr(m) != barway_mapping_ptr(other));
	OK(barway_unmap(m));
	OK(barway_unmap(other));
	release(a);
	end();
}

static void flush(void)
{
	struct barway_mapping *live;
	uint64_t a, b;

	begin();
	a = alloc(0, MIB);
	b = alloc(1, MIB);
	for (unsigned i = 0; i < 8; i++) {
		OK(barway_unmap(map(a + i * GRANULE, GRANULE)));
		OK(barway_unmap(map(b + i * GRANULE, GRANULE)));
	}
	live = map(a, GRANULE);
	CHECK_EQ(counters().cache_bytes, 15 * GRANULE);
	OK(barway_cache_flush(ctx));
	CHECK_EQ(counters().cache_bytes, 0);
	CHECK_EQ(bar1_used(0), GRANULE); /* what is in use stays */
	CHECK_EQ(bar1_used(1), 0);
	OK(barway_copy_to(live, 0, "x", 1));
	OK(barway_unmap(live));
	OK(barway_cache_flush(ctx));
	OK(barway_cache_flush(ctx)); /* nothing to do */
	CHECK_EQ(bar1_used(0), 0);
	release(a);
	release(b);
	end();
}

/* The last context to close leaves nothing behind; one of several leaves the cache alone. */
static void closing(void)
{
	struct barway_context *other;
	uint64_t a;

	begin();
	a = alloc(0, MIB);
	OK(barway_open(NULL, &other));
	OK(barway_unmap(map(a, MIB)));
	OK(barway_close(other));
	CHECK_EQ(counters().cache_bytes, MIB);
	end();
	begin();
	CHECK_EQ(counters().cache_bytes, 0);
	CHECK_EQ(bar1_used(0), 0);
	release(a);
	end();
}

/* Live mappings never fill the aperture here, so whoever asks finds room. */
static uint64_t base;

static void *crowd(void *arg)
{
	uint64_t mine = base + (uintptr_t)arg * 8 * MIB;

	for (unsigned i = 0; i < 400; i++) {
		struct barway_mapping *m;

		if (barway_map(ctx, mine + (i % 7) * MIB, MIB, NULL, &m))
			return strdup(barway_errmsg());
		if (barway_unmap(m))
			return strdup("unmap");
	}
	return NULL;
}

static void evicts_from_threads(void)
{
	char *wrong[4], first[1024] = "";
	pthread_t t[4];

	begin();
	base = alloc(0, 32 * MIB);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, crowd, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], (void **)&wrong[i]);
		if (wrong[i])
			snprintf(first, sizeof(first), "%s", wrong[i]);
		free(wrong[i]);
	}
	if (*first)
		FAIL("%s", first);
	release(base);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(counts),
		TEST(counters_struct),
		TEST(never_old_data),
		TEST(never_old_neighbour),
		TEST(bounded),
		TEST(kept_for_a_while),
		TEST(swept),
		TEST(sleeps),
		TEST(off),
		TEST(uncached),
		TEST(flush),
		TEST(closing),
		TEST(evicts_from_threads),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
