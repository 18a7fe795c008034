/* SPDX-License-Identifier: BSD-3-Clause */
/* What a forked child may do with what it inherited: nothing, and harm nobody. */
#include <stdatomic.h>

#include "api_test.h"

#define SENTENCE "was made by the parent process before fork()"

static struct barway_mapping *live, *uncached;
static unsigned char *live_ptr, *uncached_ptr;
static uint64_t memory;

static void set_up(void)
{
	begin();
	memory = alloc(0, 4 * GRANULE);
	live = map(memory, GRANULE);
	uncached = map_uncached(memory + GRANULE, GRANULE);
	live_ptr = barway_mapping_ptr(live);
	uncached_ptr = barway_mapping_ptr(uncached);
	OK(barway_unmap(map(memory + 2 * GRANULE, GRANULE))); /* cached */
	memset(live_ptr, 'p', GRANULE);
	memset(uncached_ptr, 'q', GRANULE);
}

/* The parent does not notice. */
static void still_works(void)
{
	unsigned char text[64];

	CHECK(live_ptr[100] == 'p' && uncached_ptr[100] == 'q');
	OK(barway_copy_to(live, 5, "works", 5));
	OK(barway_flush(live));
	gpu_read(text, memory, 10);
	CHECK(!memcmp(text, "pppppworks", 10));
	OK(barway_copy_from_by(uncached, BARWAY_METHOD_CE, text, 0, 64));
	CHECK_EQ(text[63], 'q');
	memset(live_ptr, 'p', GRANULE);
	OK(barway_unmap(map(memory + 2 * GRANULE, GRANULE)));
	OK(barway_unmap(map(memory + 3 * GRANULE, GRANULE)));
	CHECK_EQ(counters().live_mappings, 2);
}

static void tear_down(void)
{
	OK(barway_unmap(live));
	OK(barway_unmap(uncached));
	release(memory);
	end();
}

static void no_tsan(void)
{
	if (TSAN)
		SKIP("the thread sanitizer allows no threads in the child");
}

/* ---- what was inherited -------------------------------------------------------------------- */

static void all_stale(void)
{
	struct barway_device_info di = { .size = sizeof(di) };
	struct barway_provider_info pi = { .size = sizeof(pi) };
	struct barway_pointer_info po = { .size = sizeof(po) };
	struct barway_mapping_info mi = { .size = sizeof(mi) };
	struct barway_counters co = { .size = sizeof(co) };
	struct barway_mapping *m = NULL;
	struct barway_device *d = NULL;
	uint64_t a = 0;
	char byte = 0;

	FAILS(barway_device_count(ctx), ESTALE, SENTENCE);
	FAILS(barway_device_get(ctx, 0, &d), ESTALE, SENTENCE);
	FAILS(barway_device_find(ctx, "0", &d), ESTALE, SENTENCE);
	FAILS(barway_provider_query(ctx, gpu[0], 0, &pi), ESTALE, SENTENCE);
	FAILS(barway_pointer_query(ctx, memory, &po), ESTALE, SENTENCE);
	FAILS(barway_mem_free(ctx, memory), ESTALE, SENTENCE);
	FAILS(barway_map(ctx, memory, 1, NULL, &m), ESTALE, SENTENCE);
	FAILS(barway_cache_flush(ctx), ESTALE, SENTENCE);
	FAILS(barway_release_all(ctx, BARWAY_RELEASE_FORCE), ESTALE, SENTENCE);
	FAILS(barway_counters_get(ctx, &co), ESTALE, SENTENCE);
	FAILS(barway_close(ctx), ESTALE, SENTENCE);
	CHECK_HAS(barway_errmsg(), "context");
	FAILS(barway_device_query(gpu[0], &di), ESTALE, SENTENCE);
	FAILS(barway_device_activate(gpu[1]), ESTALE, SENTENCE);
	FAILS(barway_mem_alloc(gpu[0], 1, &a), ESTALE, SENTENCE);
	CHECK_HAS(barway_errmsg(), "device");
	FAILS(barway_unmap(live), ESTALE, SENTENCE);
	FAILS(barway_unmap(uncached), ESTALE, SENTENCE);
	FAILS(barway_mapping_query(live, &mi), ESTALE, SENTENCE);
	FAILS(barway_copy_to(live, 0, &byte, 1), ESTALE, SENTENCE);
	FAILS(barway_copy_from(live, &byte, 0, 1), ESTALE, SENTENCE);
	FAILS(barway_copy_to_by(live, BARWAY_METHOD_CE, 0, &byte, 1), ESTALE, SENTENCE);
	FAILS(barway_copy_from_by(live, BARWAY_METHOD_CPU, &byte, 0, 1), ESTALE, SENTENCE);
	FAILS(barway_flush(live), ESTALE, SENTENCE);
	CHECK_HAS(barway_errmsg(), "mapping");
	CHECK(!barway_mapping_ptr(live));
	CHECK_HAS(barway_errmsg(), SENTENCE);
	CHECK(!m && !d && !a);
}

static void loads_fault(void)
{
	CHECK(faults(live_ptr) && faults(live_ptr + GRANULE - 1));
	CHECK(faults(uncached_ptr) && faults(uncached_ptr + GRANULE - 1));
	CHECK(faults((void *)(uintptr_t)memory));
}

static void inherits(void)
{
	all_stale();
	loads_fault();
	begin(); /* handles of its own do not bring the parent's to life */
	ctx = NULL;
	OK(barway_open(NULL, &ctx));
	FAILS(barway_unmap(live), ESTALE, SENTENCE);
	loads_fault();
}

static void inherited(void)
{
	set_up();
	for (unsigned i = 0; i < 3; i++) {
		struct barway_context *mine = ctx;
		pid_t pid = child_start(inherits, i == 2);

		CHECK_EQ(child_end(pid), 0);
		CHECK(ctx == mine);
		still_works();
	}
	tear_down();
}

/* ---- afresh -------------------------------------------------------------------------------- */

static void opens_afresh(void)
{
	double start;

	for (unsigned round = 0; round < 4; round++) {
		struct barway_mapping *m;
		char text[16];
		uint64_t a;

		ctx = NULL; /* the parent's; the second time its own closed one */
		begin_cache("64M", "100000", "20");
		CHECK_EQ(counters().live_mappings, 0);
		CHECK_EQ(counters().live_bytes, 0);
		CHECK_EQ(counters().cache_bytes, 0);
		CHECK_EQ(bar1_used(0), 0); /* its own soft GPU */
		CHECK_EQ(memory_used(0), 0);
		a = alloc(0, MIB);
		m = map(a, MIB);
		CHECK(!info_of(m).from_cache);
		OK(barway_copy_to(m, 7, "fresh", 5));
		OK(barway_copy_from_by(m, BARWAY_METHOD_CE, text, 7, 5));
		CHECK(!memcmp(text, "fresh", 5));
		OK(barway_unmap(m));
		sleep_ms(round * 150); /* the sweeper is at work, or sleeps */
		release(a);
		/* it leaves the count first, then the memory */
		for (start = seconds(); memory_used(0) && seconds() < start + 5;)
			sleep_ms(2);
		CHECK_EQ(counters().cache_bytes, 0);
		CHECK_EQ(memory_used(0), 0);
		end();
	}
}

static void afresh(void)
{
	no_tsan();
	set_up();
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(child_end(child_start(opens_afresh, i == 2)), 0);
		still_works();
		sleep_ms(i * 700); /* with a sweeper at work, and with one that sleeps */
	}
	tear_down();
}

static void grandchild(void)
{
	set_up();
	CHECK_EQ(in_child(inherits), 0);
	still_works();
	tear_down();
}

static void child_of_child(void)
{
	no_tsan();
	set_up();
	CHECK_EQ(in_child(grandchild), 0);
	still_works();
	tear_down();
}

/* A child that is killed in the middle of its work. */
static void never_ends(void)
{
	ctx = NULL;
	begin();
	memory = alloc(1, MIB);
	for (;;) {
		live = map(memory, MIB);
		OK(barway_copy_to(live, 0, "x", 1));
		OK(barway_unmap(live));
	}
}

static void killed_child(void)
{
	pid_t pid;

	no_tsan();
	set_up();
	pid = child_start(never_ends, false);
	sleep_ms(50);
	kill(pid, SIGKILL);
	CHECK_EQ(child_end(pid), 128 + SIGKILL);
	still_works();
	tear_down();
}

/* ---- forks while threads are at work ------------------------------------------------------- */

static atomic_bool stop;
static atomic_uint rounds;

static void *worker(void *arg)
{
	uint64_t at = memory + (uintptr_t)arg * 64;
	unsigned char mine[64], back[64];

	memset(mine, 'A' + (int)(uintptr_t)arg, sizeof(mine));
	while (!stop) {
		struct barway_map_options o = { .size = sizeof(o) };
		struct barway_mapping *m;

		o.flags = rounds % 8 ? 0 : BARWAY_MAP_UNCACHED;
		if (barway_map(ctx, at, 64, &o, &m))
			return strdup(barway_errmsg());
		if (barway_copy_to(m, 0, mine, 64) || barway_copy_from(m, back, 0, 64) ||
		    memcmp(mine, back, 64))
			return strdup("data");
		if (rounds % 4 == 0 && (barway_copy_from_by(m, BARWAY_METHOD_CE, back, 0, 64) ||
					memcmp(mine, back, 64)))
			return strdup("data by the copy engine");
		if (barway_unmap(m))
			return strdup("unmap");
		rounds++;
	}
	return NULL;
}

static void short_life(void)
{
	struct barway_mapping *m;
	char text[8];
	uint64_t a;

	FAILS(barway_unmap(live), ESTALE, SENTENCE);
	CHECK(faults(live_ptr));
	ctx = NULL;
	begin();
	a = alloc(0, GRANULE);
	m = map(a, 100);
	OK(barway_copy_to(m, 3, "child", 5));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, text, 3, 5));
	CHECK(!memcmp(text, "child", 5));
	OK(barway_unmap(m));
	release(a);
	end();
}

/* Without a thread. */
static void shortest_life(void)
{
	FAILS(barway_unmap(live), ESTALE, SENTENCE);
	FAILS(barway_close(ctx), ESTALE, SENTENCE);
}

static void while_busy(void)
{
	void (*life)(void) = TSAN ? shortest_life : short_life;
	char *wrong[4];
	pthread_t t[4];
	unsigned bad = 0;

	if (ASAN)
		SKIP("the address sanitizer's own locks are not free in the child");
	set_up();
	stop = false;
	rounds = 0;
	for (uintptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, worker, (void *)i), 0);
	for (unsigned i = 0; i < 50; i++) {
		unsigned before = rounds;
		int ret = child_end(child_start(life, false));

		if (ret)
			printf("child %u ended with %d\n", i, ret);
		bad += ret != 0;
		for (double start = seconds(); rounds == before && seconds() < start + 20;)
			sched_yield(); /* the parent goes on */
		bad += rounds == before;
	}
	stop = true;
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], (void **)&wrong[i]);
		if (wrong[i])
			printf("thread %u: %s\n", i, wrong[i]);
		bad += wrong[i] != NULL;
		free(wrong[i]);
	}
	CHECK_EQ(bad, 0);
	tear_down();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(inherited),
		TEST(afresh),
		TEST(child_of_child),
		TEST(killed_child),
		TEST(while_busy),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
