/* SPDX-License-Identifier: BSD-3-Clause */
/* How long things live: memory freed under a mapping, the cache, release_all, close. */
#include "rm_test.h"

#define MIB (1ull << 20)

static long get(const char *key)
{
	return fakenv_get(key);
}

/* Waits until the counter has the value; tells how long that took, ms. */
static double until(const char *key, long want, double limit_ms)
{
	double from = now_ms();

	while (get(key) != want) {
		if (now_ms() - from > limit_ms)
			FAIL("%s is %ld after %.0f ms, expected %ld", key, get(key), limit_ms,
			     want);
		usleep(1000);
	}
	return now_ms() - from;
}

static void cached(uint64_t addr, size_t n)
{
	struct barway_mapping *m;

	OK(barway_map(ctx, addr, n, NULL, &m));
	OK(barway_unmap(m));
}

static void freed_under_a_mapping(void)
{
	struct barway_mapping *m;
	unsigned char b[4096], c[4096];
	uint64_t a, before;

	start();
	cached(a = gpu_alloc(512), 512); /* the self-test is done */
	gpu_free(a);
	OK(barway_cache_flush(ctx));
	a = gpu_alloc(4 * MIB);
	before = a;
	OK(barway_map(ctx, a, 4 * MIB, NULL, &m));
	test_fill(b, sizeof(b), ++seed);
	OK(barway_copy_to(m, MIB, b, sizeof(b)));
	gpu_free(a);
	CHECK_EQ(get("fb_used"), at_start.n[8] + (long)(4 * MIB)); /* still there */
	for (int i = 0; i < 6; i++)
		witness(4 * MIB);
	CHECK_EQ(witnesses[0].addr, before); /* the same address, other memory */
	OK(barway_copy_from(m, c, MIB, sizeof(c)));
	CHECK(!memcmp(b, c, sizeof(b)));
	memset(barway_mapping_ptr(m), 0xa5, 4 * MIB);
	OK(barway_flush(m));
	check_witnesses("through the old mapping");
	CHECK_EQ(((unsigned char *)barway_mapping_ptr(m))[4 * MIB - 1], 0xa5);
	OK(barway_unmap(m));
	free_witnesses();
	OK(barway_cache_flush(ctx));
	finish();
}

/* The copy engine does not know the freed memory; what is at its address now is not touched. */
static void freed_under_a_mapping_and_the_copy_engine(void)
{
	struct barway_mapping *m;
	unsigned char b[512];
	uint64_t a;

	start();
	a = gpu_alloc(2 * MIB);
	OK(barway_map(ctx, a, 2 * MIB, NULL, &m));
	gpu_free(a);
	CHECK_EQ(witness(2 * MIB), a);
	memset(b, 1, sizeof(b));
	REFUSED(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, b, sizeof(b)), EFAULT, "was freed");
	REFUSED(barway_copy_from_by(m, BARWAY_METHOD_CE, b, 0, sizeof(b)), EFAULT, "was freed");
	OK(barway_copy_to_by(m, BARWAY_METHOD_CPU, 0, b, sizeof(b)));
	OK(barway_unmap(m));
	check_witnesses("by the copy engine");
	free_witnesses();
	OK(barway_cache_flush(ctx));
	finish();
}

static void stale_address_is_never_hit(void)
{
	static const size_t sizes[] = { 2 * MIB, 600, 70000 };
	unsigned char b[512], c[512];
	struct barway_mapping *m;
	int same = 0;

	start();
	for (int i = 0; i < 150; i++) {
		size_t n = sizes[i % 3];
		uint64_t a = gpu_alloc(n), again;

		cached(a, 512);
		gpu_free(a);
		REFUSED(barway_map(ctx, a, 512, NULL, &m), EFAULT, "freed");
		again = gpu_alloc(n);
		same += again == a;
		test_fill(b, sizeof(b), ++seed);
		gpu_write(again, b, sizeof(b));
		OK(barway_map(ctx, again, 512, NULL, &m));
		OK(barway_copy_from(m, c, 0, sizeof(c)));
		CHECK(!memcmp(b, c, sizeof(b)));
		OK(barway_unmap(m));
		gpu_free(again);
	}
	CHECK_EQ(same, 150); /* the fake reuses addresses at once */
	finish();
}

/* One of two handles is freed and another is put there: a window over both is not hit. */
static void second_part_is_stale(void)
{
	unsigned char b[512], c[512];
	struct barway_mapping *m;
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct cuf_prop p = { .type = 1, .location = { CUF_LOCATION_DEVICE, 0 } };
	struct vmm v;

	start();
	vmm_alloc(&v, 2, 0, NULL);
	cached(v.addr, 2 * VMM_STEP);
	OK(barway_map(ctx, v.addr + 10, 2 * VMM_STEP - 20, NULL, &m));
	OK(barway_mapping_query(m, &info));
	CHECK_EQ(info.from_cache, 1);
	OK(barway_unmap(m));
	CU_OK(cuMemUnmap(v.addr + VMM_STEP, VMM_STEP));
	CU_OK(cuMemRelease(v.handle[1]));
	REFUSED(barway_map(ctx, v.addr + 10, 2 * VMM_STEP - 20, NULL, &m), EFAULT, "ends beyond");
	CU_OK(cuMemCreate(&v.handle[1], VMM_STEP, &p, 0));
	CU_OK(cuMemMap(v.addr + VMM_STEP, VMM_STEP, 0, v.handle[1], 0));
	test_fill(b, sizeof(b), ++seed);
	gpu_write(v.addr + VMM_STEP, b, sizeof(b));
	OK(barway_map(ctx, v.addr + 10, 2 * VMM_STEP - 20, NULL, &m));
	OK(barway_mapping_query(m, &info));
	CHECK_EQ(info.from_cache, 0);
	OK(barway_copy_from(m, c, VMM_STEP - 10, sizeof(c)));
	CHECK(!memcmp(b, c, sizeof(b)));
	OK(barway_unmap(m));
	vmm_free(&v);
	finish();
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void hits_and_shares(void)
{
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct barway_mapping *m[3];
	uint64_t a;
	long ioctls;

	start();
	a = gpu_alloc(100000);
	cached(a, 100000);
	ioctls = get("ioctls");
	for (int i = 0; i < 3; i++) {
		OK(barway_map(ctx, a + 100u * (unsigned)i, 5000, NULL, &m[i]));
		OK(barway_mapping_query(m[i], &info));
		CHECK_EQ(info.from_cache, 1);
	}
	CHECK_EQ(get("ioctls"), ioctls);
	CHECK_EQ(get("vmas"), 1);
	CHECK_EQ(counters().cache_bytes, 0);
	for (int i = 0; i < 3; i++)
		OK(barway_unmap(m[i]));
	CHECK_EQ(get("ioctls"), ioctls);
	CHECK(counters().cache_bytes > 0);
	CHECK_EQ(counters().live_mappings, 0);
	OK(barway_cache_flush(ctx));
	CHECK_EQ(get("vmas"), 0);
	CHECK_EQ(get("mappings"), 0);
	CHECK_EQ(get("dups"), 0);
	CHECK_EQ(counters().cache_bytes, 0);
	gpu_free(a);
	finish();
}

/* The sweeper: BARWAY_CACHE_SWEEP_MS=50. */
static void freeing_frees_soon(void)
{
	double ms;

	start();
	for (int i = 0; i < 8; i++) {
		uint64_t a = gpu_alloc(4 * MIB);

		cached(a, 4 * MIB);
		CHECK_EQ(counters().cache_bytes, 4 * MIB);
		gpu_free(a);
		ms = until("fb_used", at_start.n[8], 5000);
		if (ms > 2000)
			FAIL("memory came back after %.0f ms", ms);
	}
	CHECK_EQ(counters().cache_stale, 8);
	CHECK_EQ(counters().cache_bytes, 0);
	/* what is still allocated stays */
	{
		uint64_t a = gpu_alloc(MIB);

		cached(a, 4096);
		usleep(300000);
		CHECK_EQ(get("vmas"), 1);
		gpu_free(a);
		until("vmas", 0, 2000);
	}
	finish();
}

/* The sweeper sleeps for good when there is nothing to do, and wakes up again. */
static void sweeper_wakes_up(void)
{
	start();
	for (int i = 0; i < 3; i++) {
		uint64_t a = gpu_alloc(2 * MIB);

		cached(a, 4096);
		gpu_free(a);
		until("fb_used", at_start.n[8], 2000);
		usleep(400000); /* more than ten rounds of 10 ms without work */
	}
	finish();
}

static void large_ones_are_not_kept(void)
{
	uint64_t a;

	start();
	a = gpu_alloc(40 * MIB);
	cached(a, 4096);
	OK(barway_cache_flush(ctx));
	cached(a, 17 * MIB); /* more than a quarter of 64 MiB */
	CHECK_EQ(get("vmas"), 0);
	CHECK_EQ(counters().cache_bytes, 0);
	cached(a, 16 * MIB);
	CHECK_EQ(get("vmas"), 1);
	gpu_free(a);
	OK(barway_cache_flush(ctx));
	a = gpu_alloc(40 * MIB);
	cached(a, 40 * MIB);
	gpu_free(a);
	CHECK_EQ(get("fb_used"), at_start.n[8]);
	finish();
}

/* BARWAY_CACHE_BYTES=1M */
static void bytes_are_bounded(void)
{
	uint64_t a, most = 0;

	start();
	a = gpu_alloc(8 * MIB);
	for (uint64_t at = 0; at < 8 * MIB; at += 65536) {
		cached(a + at, 65536);
		most = counters().cache_bytes > most ? counters().cache_bytes : most;
		CHECK(get("vmas") <= 16);
	}
	CHECK_EQ(most, MIB);
	CHECK_EQ(counters().cache_evictions, 128 - 16);
	/* the latest are the ones that stayed */
	cached(a + 8 * MIB - 65536, 65536);
	cached(a + 7 * MIB, 65536);
	CHECK_EQ(counters().cache_hits, 2);
	cached(a, 65536);
	CHECK_EQ(counters().cache_hits, 2);
	gpu_free(a);
	finish();
}

/* BARWAY_CACHE_BYTES=0 */
static void no_cache(void)
{
	uint64_t a;

	start();
	a = gpu_alloc(100000);
	for (int i = 0; i < 5; i++) {
		cached(a, 4096);
		CHECK_EQ(get("vmas"), 0);
		CHECK_EQ(get("dups"), 0);
	}
	CHECK_EQ(counters().cache_hits, 0);
	gpu_free(a);
	finish();
}

/* BARWAY_CACHE_MS=60, BARWAY_CACHE_SWEEP_MS=10 */
static void time_is_bounded(void)
{
	uint64_t a;
	double from;

	start();
	a = gpu_alloc(100000);
	from = now_ms();
	cached(a, 4096);
	until("vmas", 0, 5000);
	CHECK(now_ms() - from >= 59);
	CHECK_EQ(counters().cache_evictions, 1);
	CHECK_EQ(counters().cache_stale, 0);
	/* one in use is no candidate */
	{
		struct barway_mapping *m;

		OK(barway_map(ctx, a, 4096, NULL, &m));
		usleep(200000);
		CHECK_EQ(get("vmas"), 1);
		OK(barway_unmap(m));
		until("vmas", 0, 2000);
	}
	gpu_free(a);
	finish();
}

/* ---- release, close -------------------------------------------------------------------------- */

static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(fault_jump, 1);
}

static bool faults(const volatile unsigned char *p)
{
	struct sigaction act = { .sa_handler = on_fault }, old;
	volatile bool yes = false;

	sigaction(SIGSEGV, &act, &old);
	if (!sigsetjmp(fault_jump, 1))
		(void)*p;
	else
		yes = true;
	sigaction(SIGSEGV, &old, NULL);
	return yes;
}

static void release_all(void)
{
	struct barway_mapping *m, *other;
	struct live before;
	unsigned char b[64], c[64];
	volatile unsigned char *p;
	uint64_t a;

	start();
	a = gpu_alloc(70000);
	before = live_now();
	cached(a, 70000);
	OK(barway_release_all(ctx, 0));
	check_live(&before, "after release_all");
	CHECK_EQ(get("fds"), at_start.n[0]);
	CHECK_EQ(get("clients"), at_start.n[2]);
	OK(barway_map(ctx, a, 70000, NULL, &m));
	CHECK_EQ(counters().self_tests, 2);
	test_fill(b, sizeof(b), ++seed);
	OK(barway_copy_to(m, 5, b, sizeof(b)));
	cached(a + 65536, 100);
	REFUSED(barway_release_all(ctx, 0), EBUSY, "in use");
	CHECK_EQ(get("vmas"), 1); /* the idle one is gone, the live one is not */
	OK(barway_copy_from(m, c, 5, sizeof(c)));
	CHECK(!memcmp(b, c, sizeof(b)));
	REFUSED(barway_release_all(ctx, 2), EINVAL, "flags");
	p = barway_mapping_ptr(m);
	CHECK(!faults(p));
	OK(barway_release_all(ctx, BARWAY_RELEASE_FORCE));
	check_live(&before, "after a forced release_all");
	CHECK(faults(p));
	CHECK(faults(p + 69999));
	/* afresh, while the handle of the revoked one is still there */
	OK(barway_map(ctx, a, 70000, NULL, &other));
	OK(barway_copy_from(other, c, 5, sizeof(c)));
	CHECK(!memcmp(b, c, sizeof(b)));
	CHECK(faults(p));
	OK(barway_unmap(m));
	REFUSED(barway_unmap(m), ESTALE, "barway_unmap");
	prove(a, 70000, a, 70000, 0);
	OK(barway_unmap(other));
	gpu_free(a);
	finish();
}

static void close_with_live_mappings(void)
{
	struct barway_mapping *m[3];
	struct barway_context *second = NULL;
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };
	volatile unsigned char *p[3];
	uint64_t a;

	start();
	OK(barway_open(&o, &second));
	a = gpu_alloc(70000);
	for (int i = 0; i < 3; i++) {
		OK(barway_map(i == 2 ? second : ctx, a + 4096u * (unsigned)i, 4096, NULL, &m[i]));
		p[i] = barway_mapping_ptr(m[i]);
	}
	gpu_free(a); /* also when its memory is gone */
	OK(barway_close(ctx));
	REFUSED(barway_unmap(m[0]), ESTALE, "barway_unmap");
	REFUSED(barway_close(ctx), ESTALE, "barway_close");
	CHECK(!faults(p[2])); /* the other context's */
	OK(barway_cache_flush(second));
	CHECK(faults(p[0]) && faults(p[1]) && !faults(p[2]));
	ctx = second;
	finish();
	CHECK(faults(p[2]));
}

/* The context's memory is gone with it; windows too, when they are given back. */
static void context_destroyed_under_a_mapping(void)
{
	struct barway_mapping *m;
	unsigned char b[512], c[512];
	void *other, *popped;
	uint64_t a;

	start();
	CU_OK(cuCtxCreate_v2(&other, 0, 0));
	own_contexts++;
	a = gpu_alloc(3 * MIB);
	OK(barway_map(ctx, a, 3 * MIB, NULL, &m));
	CU_OK(cuCtxPopCurrent_v2(&popped));
	CU_OK(cuCtxDestroy_v2(other));
	test_fill(b, sizeof(b), ++seed);
	OK(barway_copy_to(m, 100, b, sizeof(b)));
	OK(barway_copy_from(m, c, 100, sizeof(c)));
	CHECK(!memcmp(b, c, sizeof(b)));
	REFUSED(barway_map(ctx, a, 100, NULL, &(struct barway_mapping *){ NULL }), EFAULT, "freed");
	OK(barway_unmap(m));
	finish();
}

/* Files and clients of many rounds of open, map, close. */
static void open_and_close_many_times(void)
{
	uint64_t a;

	start();
	a = gpu_alloc(70000);
	for (int i = 0; i < 30; i++) {
		cached(a, 70000);
		OK(barway_close(ctx));
		CHECK_EQ(get("fds"), at_start.n[0]);
		CHECK_EQ(get("clients"), at_start.n[2]);
		CHECK_EQ(get("vmas"), 0);
		open_context();
		CHECK_EQ(counters().self_tests, 1); /* the verdict stays */
	}
	gpu_free(a);
	finish();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(freed_under_a_mapping),
		CASE_ENV(freed_under_a_mapping, "FAKENV=bar1=dynamic,driver=550.163.01"),
		CASE(freed_under_a_mapping_and_the_copy_engine),
		CASE(stale_address_is_never_hit),
		CASE_ENV(stale_address_is_never_hit, "BARWAY_CACHE_SWEEP_MS=1"),
		CASE(second_part_is_stale),
		CASE(hits_and_shares),
		CASE_ENV(freeing_frees_soon, "BARWAY_CACHE_SWEEP_MS=50"),
		CASE_ENV(sweeper_wakes_up, "BARWAY_CACHE_SWEEP_MS=10"),
		CASE(large_ones_are_not_kept),
		CASE_ENV(bytes_are_bounded, "BARWAY_CACHE_BYTES=1M BARWAY_CACHE_SWEEP_MS=100000"),
		CASE_ENV(no_cache, "BARWAY_CACHE_BYTES=0"),
		CASE_ENV(time_is_bounded, "BARWAY_CACHE_MS=60 BARWAY_CACHE_SWEEP_MS=10"),
		CASE(release_all),
		CASE(close_with_live_mappings),
		CASE(context_destroyed_under_a_mapping),
		CASE(open_and_close_many_times),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
