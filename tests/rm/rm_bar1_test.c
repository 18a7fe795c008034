/* SPDX-License-Identifier: BSD-3-Clause */
/* An aperture that is too small: what is idle gives way, then it is said, and nothing is lost. */
#include "rm_test.h"

#define MIB (1ull << 20)

static struct barway_mapping *live[64];
static int nlive;

static uint64_t bar1_free(void)
{
	struct barway_device_info info = { .size = sizeof(info) };
	struct barway_device *dev;

	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_device_query(dev, &info));
	CHECK_EQ(info.bar1_total, 64 * MIB);
	return info.bar1_free;
}

static void unmap_all(void)
{
	while (nlive)
		OK(barway_unmap(live[--nlive]));
}

/* Idle windows fill it: they are given up for one that is wanted. */
static void idle_gives_way(void)
{
	struct barway_mapping *m;
	uint64_t a, b;

	start();
	a = gpu_alloc(62 * MIB);
	b = gpu_alloc(20 * MIB);
	for (uint64_t at = 0; at < 62 * MIB; at += 2 * MIB) {
		OK(barway_map(ctx, a + at, 2 * MIB, NULL, &m));
		OK(barway_unmap(m));
	}
	CHECK_EQ(counters().cache_evictions, 0);
	CHECK_EQ(counters().cache_bytes, 62 * MIB);
	CHECK_EQ(bar1_free(), 2 * MIB);
	prove_ends(b + 3, 19 * MIB);
	CHECK(counters().cache_evictions >= 9);
	/* some in use, some idle: only those are given up */
	OK(barway_cache_flush(ctx));
	for (uint64_t at = 0; at < 60 * MIB; at += 2 * MIB) {
		OK(barway_map(ctx, a + at, 2 * MIB, NULL, &m));
		if (at % (8 * MIB))
			OK(barway_unmap(m));
		else
			live[nlive++] = m;
	}
	prove_ends(b, 6 * MIB); /* the pieces between those in use are of 6 MiB */
	for (int i = 0; i < nlive; i++)
		memset(barway_mapping_ptr(live[i]), i, 2 * MIB);
	for (int i = 0; i < nlive; i++)
		CHECK_EQ(((unsigned char *)barway_mapping_ptr(live[i]))[12345], i);
	unmap_all();
	gpu_free(a);
	gpu_free(b);
	finish();
}

static void full(void)
{
	struct barway_mapping *m = (void *)1;
	struct live before;
	uint64_t a, b;
	unsigned n;

	start();
	a = gpu_alloc(64 * MIB);
	b = gpu_alloc(20 * MIB);
	prove(b, 100, b, 100, BARWAY_MAP_UNCACHED); /* the self-test needs some room too */
	for (uint64_t at = 0; at < 64 * MIB; at += 4 * MIB)
		OK(barway_map(ctx, a + at, 4 * MIB, NULL, &live[nlive++]));
	CHECK_EQ(bar1_free(), 0);
	before = live_now();
	REFUSED(barway_map(ctx, b, 4 * MIB, NULL, &m), ENOMEM, "BAR1 aperture of GPU 0 is full");
	CHECK_HAS(barway_errmsg(), "needed 4194304 bytes, free 0 of 67108864");
	CHECK_HAS(barway_errmsg(), "unmap something");
	REFUSED(barway_map(ctx, b, 100, NULL, &m), ENOMEM, "needed 4096 bytes, free 0 of 67108864");
	CHECK(m == (void *)1);
	check_live(&before, "after the refused maps");
	CHECK_EQ(counters().self_test_failures, 0);
	/* the same range is in the cache: no room needed */
	OK(barway_map(ctx, a + 100, 1000, NULL, &m));
	OK(barway_unmap(m));
	/* room for a small one */
	OK(barway_unmap(live[--nlive]));
	OK(barway_map(ctx, b, 4096, NULL, &m));
	OK(barway_unmap(m));
	n = (unsigned)nlive;
	CHECK_EQ(n, 15);
	unmap_all();
	prove_ends(b + 1, 15 * MIB);
	gpu_free(a);
	gpu_free(b);
	finish();
}

/* Enough room, but not in one piece: before 565 that is not enough. */
static void in_pieces(void)
{
	struct barway_mapping *m;
	uint64_t a;

	start();
	a = gpu_alloc(64 * MIB);
	prove(a, 100, a, 100, BARWAY_MAP_UNCACHED);
	for (uint64_t at = 0; at < 64 * MIB; at += 4 * MIB)
		OK(barway_map(ctx, a + at, 4 * MIB, NULL, &live[nlive++]));
	for (int i = 0; i < nlive; i += 2)
		OK(barway_unmap(live[i]));
	OK(barway_cache_flush(ctx));
	CHECK_EQ(bar1_free(), 32 * MIB);
	if (rm_arg) {
		REFUSED(barway_map(ctx, a + MIB, 8 * MIB, NULL, &m), ENOMEM, rm_arg);
	} else {
		prove_ends(a + MIB, 8 * MIB);
	}
	for (int i = 1; i < nlive; i += 2)
		OK(barway_unmap(live[i]));
	prove_ends(a + MIB, 8 * MIB);
	gpu_free(a);
	finish();
}

/* Part of a range is mapped when the room ends: that part is undone. */
static void full_in_the_middle(void)
{
	struct barway_mapping *m;
	struct live before;
	struct vmm v;
	uint64_t a;

	start();
	a = gpu_alloc(60 * MIB);
	prove(a, 100, a, 100, BARWAY_MAP_UNCACHED);
	OK(barway_map(ctx, a, 60 * MIB, NULL, &live[nlive++]));
	vmm_alloc(&v, 4, 0, NULL);
	before = live_now();
	REFUSED(barway_map(ctx, v.addr, 4 * VMM_STEP, NULL, &m), ENOMEM, "free 0 of 67108864");
	check_live(&before, "after the refused map");
	prove_ends(v.addr, 2 * VMM_STEP);
	unmap_all();
	prove_ends(v.addr, 4 * VMM_STEP);
	vmm_free(&v);
	gpu_free(a);
	finish();
}

static void larger_than_all_of_it(void)
{
	struct barway_mapping *m;
	uint64_t a;

	start();
	a = gpu_alloc(130 * MIB);
	REFUSED(barway_map(ctx, a, 130 * MIB, NULL, &m), ENOMEM,
		"needed 136314880 bytes, free 67108864 of 67108864");
	CHECK_HAS(barway_errmsg(), "Resizable BAR");
	REFUSED(barway_map(ctx, a, 64 * MIB + 1, NULL, &m), ENOMEM,
		"BAR1 aperture of GPU 0 is full");
	/* smaller than it, but touching more pages than it has */
	REFUSED(barway_map(ctx, a + 2 * MIB - 4096, 64 * MIB - 4096, NULL, &m), ENOMEM,
		"BAR1 aperture of GPU 0 is in too small pieces");
	CHECK_EQ(counters().self_test_failures, 0);
	OK(barway_map(ctx, a, 64 * MIB, NULL, &m));
	OK(barway_unmap(m));
	prove(a + 5, 1000, a, 2000, 0);
	gpu_free(a);
	finish();
}

/* The smallest that there are: the self-test takes less. */
static void tiny(void)
{
	uint64_t a;

	start();
	a = gpu_alloc(100000);
	prove(a, 100000, a, 100000, 0);
	prove(a + 70000, 2000, a, 100000, 0);
	gpu_free(a);
	finish();
}

/* Not even the self-test fits: no verdict, the reason is the room. */
static void too_tiny(void)
{
	struct barway_mapping *m;
	uint64_t a;

	start();
	a = gpu_alloc(100000);
	REFUSED(barway_map(ctx, a, 100, NULL, &m), ENOMEM, "BAR1 aperture of GPU 0 is full");
	REFUSED(barway_map(ctx, a, 100, NULL, &m), ENOMEM, "BAR1 aperture of GPU 0 is full");
	CHECK_EQ(counters().self_test_failures, 0);
	gpu_free(a);
	finish();
}

#define BIG_CACHE " BARWAY_CACHE_BYTES=256M"
#define EACH(fn) \
	{ #fn " 550", fn, "FAKENV=bar1=dynamic,bar1_mb=64,driver=550.163.01" BIG_CACHE, NULL }, \
	{ #fn " 570", fn, "FAKENV=bar1=dynamic,bar1_mb=64,driver=570.211.01" BIG_CACHE, NULL }, \
	{ #fn " 580", fn, "FAKENV=bar1=dynamic,bar1_mb=64" BIG_CACHE, NULL }

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		EACH(idle_gives_way),
		EACH(full),
		EACH(full_in_the_middle),
		EACH(larger_than_all_of_it),
		{ "in_pieces 550", in_pieces,
		  "FAKENV=bar1=dynamic,bar1_mb=64,driver=550.163.01" BIG_CACHE,
		  "in too small pieces: needed 8388608 bytes, free 33554432 of 67108864" },
		{ "in_pieces 570", in_pieces,
		  "FAKENV=bar1=dynamic,bar1_mb=64,driver=570.211.01" BIG_CACHE, NULL },
		CASE_ENV(tiny, "FAKENV=bar1=dynamic,bar1_mb=4,bar1_page_kb=64,driver=550.163.01"),
		CASE_ENV(tiny, "FAKENV=bar1=dynamic,bar1_mb=8,driver=515.43.04"),
		CASE_ENV(too_tiny, "FAKENV=bar1=dynamic,bar1_mb=2,driver=550.163.01"),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
