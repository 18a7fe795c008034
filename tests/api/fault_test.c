/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open, map, copy, unmap, close, with the Nth call of each kind failing, for every N: an error with
 * a sentence, outputs untouched, nothing lost, and the next try works.
 */
#include "api_test.h"
#include "core/fault.h"

#define MOST 400 /* no walk makes as many calls of one kind */

static const char *const kinds[] = {
	[BW_FAULT_ALLOC] = "alloc", [BW_FAULT_OPEN] = "open", [BW_FAULT_IOCTL] = "ioctl",
	[BW_FAULT_MMAP] = "mmap", [BW_FAULT_DEVICE_ALLOC] = "device-alloc",
	[BW_FAULT_APERTURE] = "aperture", [BW_FAULT_COPY] = "copy", [BW_FAULT_THREAD] = "thread",
	[BW_FAULT_CUDA] = "cuda",
};

static const char *at; /* the call that failed */

/* Is it one of the errors that such a fault may have? */
static bool is_error(int ret)
{
	return (ret == -ENOMEM || ret == -EIO || ret == -ENODEV || ret == -EAGAIN ||
		ret == -EMFILE || ret == -EACCES) &&
	       *barway_errmsg();
}

#define STEP(call) do { \
	at = #call; \
	ret = (call); \
	if (ret < 0) \
		goto out; \
} while (0)

static struct barway_context *const no_ctx = (struct barway_context *)1;
static struct barway_mapping *const no_map = (struct barway_mapping *)2;

/* 0, or the first error; whatever came of it is given back. */
static int walk(void)
{
	struct barway_context *c = no_ctx;
	struct barway_mapping *m = no_map, *again = no_map, *both = no_map;
	struct barway_pointer_info pi = { .size = sizeof(pi) };
	struct barway_device_info di = { .size = sizeof(di) };
	struct barway_mapping_info mi = { .size = sizeof(mi) };
	struct barway_device *d[2] = { NULL, NULL };
	uint64_t a[2] = { 0, 0 };
	char text[16] = "";
	int ret;

	STEP(barway_open(NULL, &c));
	STEP(barway_device_count(c));
	STEP(barway_device_get(c, 0, &d[0]));
	STEP(barway_device_find(c, "1", &d[1]));
	STEP(barway_device_query(d[0], &di));
	STEP(barway_device_activate(d[1]));
	STEP(barway_mem_alloc(d[0], GRANULE, &a[0]));
	STEP(barway_mem_alloc(d[1], GRANULE, &a[1]));
	STEP(barway_pointer_query(c, a[0], &pi));
	STEP(barway_map(c, a[0] + 1, 1000, NULL, &m));
	STEP(barway_mapping_query(m, &mi));
	STEP(barway_copy_to(m, 0, "through the walk", 16));
	STEP(barway_copy_from_by(m, BARWAY_METHOD_CE, text, 0, 16));
	if (memcmp(text, "through the walk", 16))
		FAIL("wrong data");
	STEP(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, "again", 5));
	STEP(barway_copy_from(m, text, 0, 8));
	if (memcmp(text, "again", 5))
		FAIL("wrong data");
	STEP(barway_map(c, a[0], 5000, NULL, &again));
	if (a[0] + GRANULE == a[1])
		STEP(barway_map(c, a[0], 2 * GRANULE, NULL, &both)); /* in two pieces */
	STEP(barway_unmap(m));
	m = no_map;
	STEP(barway_cache_flush(c));
	at = "nothing";
out:
	if (c == no_ctx)
		return ret;
	/* what was not made was not written either, and what was made can be given back */
	if (m != no_map && ret && strstr(at, "&m)"))
		FAIL("%s: an output was written", at);
	if (m != no_map && barway_unmap(m))
		FAIL("unmap: %s", barway_errmsg());
	if (again != no_map && barway_unmap(again))
		FAIL("unmap: %s", barway_errmsg());
	for (unsigned i = 0; i < 2; i++)
		if (a[i] && barway_mem_free(c, a[i]))
			FAIL("free: %s", barway_errmsg());
	if (barway_close(c)) /* @both is left to it */
		FAIL("close: %s", barway_errmsg());
	return ret < 0 ? ret : 0;
}

struct held {
	unsigned files;
	uint64_t memory[2], bar1[2], live, live_bytes, cached;
};

static struct held held(void)
{
	struct held h = { .files = 0 };

	if (ctx)
		barway_close(ctx);
	OK(barway_open(NULL, &ctx));
	CHECK_EQ(barway_device_count(ctx), 2);
	for (unsigned i = 0; i < 2; i++) {
		OK(barway_device_get(ctx, (int)i, &gpu[i]));
		h.memory[i] = memory_used(i);
		h.bar1[i] = bar1_used(i);
	}
	h.live = counters().live_mappings;
	h.live_bytes = counters().live_bytes;
	h.cached = counters().cache_bytes;
	/* also the verdicts of self-tests that a fault made fail */
	OK(barway_release_all(ctx, 0));
	end();
	h.files = open_files();
	return h;
}

/* One walk with a fault, one without. True: the fault did not come up, there are no more calls. */
static bool try_one(enum bw_fault kind, unsigned n, const struct held *clean)
{
	struct held h;
	bool fired;
	int ret;

	bw_fault_arm(kind, n);
	ret = walk();
	fired = !bw_fault_pending(kind);
	bw_fault_disarm_all();
	if (ret && (!fired || !is_error(ret)))
		FAIL("%s@%u: %s: %d: %s", kinds[kind], n, at, ret, barway_errmsg());
	h = held();
	if (clean && memcmp(&h, clean, sizeof(h)))
		FAIL("%s@%u: %s: lost something: %u files (%u), memory %llu %llu, aperture %llu "
		     "%llu, live "
		     "%llu, cached %llu",
		     kinds[kind], n, at, h.files, clean->files, (unsigned long long)h.memory[0],
		     (unsigned long long)h.memory[1], (unsigned long long)h.bar1[0],
		     (unsigned long long)h.bar1[1], (unsigned long long)h.live,
		     (unsigned long long)h.cached);
	ret = walk();
	if (ret)
		FAIL("%s@%u: and then without a fault: %s: %d: %s", kinds[kind], n, at, ret,
		     barway_errmsg());
	return !fired;
}

/* In this process, where the soft GPU and the handles are there already. */
static void every_call(enum bw_fault kind)
{
	struct held clean;
	unsigned n = 1;

	OK(walk());
	OK(walk());
	clean = held();
	CHECK(!clean.live && !clean.live_bytes && !clean.cached && !clean.bar1[0] &&
	      !clean.memory[0]);
	while (n < MOST && !try_one(kind, n, &clean))
		n++;
	CHECK(n < MOST);
}

/* And in children, where the first use of everything is among the calls. */
static enum bw_fault child_kind;
static unsigned child_n;
enum { NO_MORE = 99 };

static void first_use(void)
{
	if (try_one(child_kind, child_n, NULL))
		_exit(NO_MORE);
}

static void every_first_call(enum bw_fault kind)
{
	int ret = 0;

	if (TSAN)
		return;
	child_kind = kind;
	for (child_n = 1; child_n < MOST && ret != NO_MORE; child_n++) {
		ret = in_child(first_use);
		if (ret && ret != NO_MORE)
			FAIL("%s@%u: the child ended with %d", kinds[kind], child_n, ret);
	}
	CHECK(child_n < MOST);
}

#define KIND(name, kind) \
	static void name(void) \
	{ \
		every_call(kind); \
		every_first_call(kind); \
	}

KIND(allocations, BW_FAULT_ALLOC)
KIND(mmaps, BW_FAULT_MMAP)
KIND(opens, BW_FAULT_OPEN)
KIND(threads, BW_FAULT_THREAD)
KIND(device_allocations, BW_FAULT_DEVICE_ALLOC)
KIND(apertures, BW_FAULT_APERTURE)
KIND(copies, BW_FAULT_COPY)
KIND(libcuda_calls, BW_FAULT_CUDA)

/* The self-test: a device that fails proves nothing about the provider, so it is made again. */
static void self_test_again(void)
{
	struct barway_counters before;
	struct barway_mapping *m = NULL;
	uint64_t a, b;

	begin();
	OK(barway_release_all(ctx, 0));
	a = alloc(0, GRANULE);
	b = alloc(1, GRANULE);
	before = counters();
	bw_fault_arm(BW_FAULT_COPY, 1);
	FAILS(barway_map(ctx, a, 1, NULL, &m), EIO, "self-test of provider soft on soft 0");
	bw_fault_disarm_all();
	CHECK(!m);
	CHECK_EQ(counters().self_tests, before.self_tests + 1);
	OK(barway_unmap(map(a, 1)));
	CHECK_EQ(counters().self_tests, before.self_tests + 2);
	OK(barway_unmap(map(b, 1))); /* the other device has its own */
	OK(barway_unmap(map_uncached(a, 1)));
	OK(barway_unmap(map_uncached(b, 1)));
	CHECK_EQ(counters().self_tests, before.self_tests + 3); /* once for each */
	CHECK_EQ(counters().self_test_failures, before.self_test_failures);
	OK(barway_release_all(ctx, 0));
	OK(barway_unmap(map(a, 1)));
	CHECK_EQ(counters().self_tests, before.self_tests + 4);
	release(a);
	release(b);
	end();
}

/* A copy engine that fails says so; the memory may be written later. */
static void engine_fails(void)
{
	struct barway_mapping *m;
	char byte = 'x';
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	m = map(a, 100);
	bw_fault_arm(BW_FAULT_COPY, 1);
	FAILS(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, &byte, 1), EIO,
	      "soft GPU 0: the copy engine failed");
	bw_fault_arm(BW_FAULT_COPY, 1);
	FAILS(barway_copy_from_by(m, BARWAY_METHOD_CE, &byte, 0, 1), EIO, "barway_copy_from_by");
	CHECK_EQ(byte, 'x');
	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, &byte, 1));
	byte = 0;
	OK(barway_copy_from(m, &byte, 0, 1));
	CHECK_EQ(byte, 'x');
	OK(barway_unmap(m));
	release(a);
	end();
}

/* The parameter does the same, from the outside. */
static void by_parameter(void)
{
	struct barway_context *c;
	uint64_t a = 0;

	param("fault", "device-alloc@1");
	OK(barway_open(NULL, &c));
	OK(barway_device_get(c, 0, &gpu[0]));
	FAILS(barway_mem_alloc(gpu[0], 1, &a), ENOMEM, "fault injected");
	CHECK(!a);
	OK(barway_mem_alloc(gpu[0], 1, &a));
	OK(barway_mem_free(c, a));
	OK(barway_close(c));
	param("fault", "");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(allocations),
		TEST(mmaps),
		TEST(opens),
		TEST(threads),
		TEST(device_allocations),
		TEST(apertures),
		TEST(copies),
		TEST(libcuda_calls),
		TEST(self_test_again),
		TEST(engine_fails),
		TEST(by_parameter),
		{ 0 },
	};

	if (barway_set_log(NULL, NULL, 0))
		return 1;
	return api_main(argc, argv, cases);
}
