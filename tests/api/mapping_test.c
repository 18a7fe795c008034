/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings: what can be mapped and what not, pointers, handles, the aperture, letting go of all. */
#include "api_test.h"

static unsigned char image[2 * MIB], back[2 * MIB];

/* ---- ranges -------------------------------------------------------------------------------- */

static void one_range(uint64_t base, size_t bytes, size_t at, size_t n)
{
	size_t from = at < 100 ? 0 : at - 100, to = bytes - at - n < 100 ? bytes : at + n + 100;
	struct barway_mapping *m = map(base + at, n);
	unsigned char *p = barway_mapping_ptr(m);
	struct barway_mapping_info i = info_of(m);

	CHECK(p && i.ptr == p && i.addr == base + at && i.bytes == n);
	CHECK(!memcmp(p, image + at, n)); /* loads */
	test_fill(image + at, n, at + n);
	memcpy(p, image + at, n); /* stores */
	OK(barway_flush(m));
	gpu_read(back + from, base + from, to - from);
	if (memcmp(back + from, image + from, to - from))
		FAIL("%zu bytes at %zu", n, at);
	OK(barway_unmap(m));
}

static void any_address_and_size(void)
{
	static const size_t sizes[] = { 1,    2,    3,    8,     63,    64,    65,
					4095, 4096, 4097, 65535, 65537, 300000 };
	static const size_t offsets[] = { 0, 1, 7, 4095, 4096, 65535, 65536, 100001 };
	uint64_t a;

	begin();
	a = alloc(0, MIB);
	test_fill(image, MIB, 1);
	gpu_write(a, image, MIB);
	for (unsigned o = 0; o < N(offsets); o++)
		for (unsigned s = 0; s < N(sizes); s++)
			one_range(a, MIB, offsets[o], sizes[s]);
	one_range(a, MIB, 0, MIB);
	one_range(a, MIB, MIB - 1, 1);
	release(a);
	end();
}

/* Side by side in device addresses: one mapping, in pieces. */
static uint64_t neighbours(unsigned n, size_t each, const unsigned *device, uint64_t *a)
{
	for (unsigned i = 0; i < n; i++)
		a[i] = alloc(device[i], each);
	for (unsigned i = 0; i + 1 < n; i++)
		if (a[i] + each != a[i + 1]) {
			for (unsigned k = 0; k < n; k++)
				release(a[k]);
			end();
			SKIP("allocations are not side by side");
		}
	return a[0];
}

static void over_allocations(void)
{
	static const unsigned same[3] = { 0, 0, 0 }, both[3] = { 1, 0, 1 };

	for (unsigned round = 0; round < 2; round++) {
		uint64_t a[3], base;
		struct barway_mapping *m;
		struct barway_mapping_info i;

		begin();
		base = neighbours(3, 2 * GRANULE, round ? both : same, a);
		test_fill(image, 6 * GRANULE, 2);
		for (unsigned k = 0; k < 3; k++)
			gpu_write(a[k], image + 2 * k * GRANULE, 2 * GRANULE);
		m = map(base + 5, 6 * GRANULE - 10);
		i = info_of(m);
		CHECK_EQ(i.pieces, 3);
		CHECK(i.device == gpu[round]); /* of the first byte */
		CHECK(!memcmp(i.ptr, image + 5, i.bytes));
		test_fill(image + 5, i.bytes, 3);
		OK(barway_copy_to(m, 0, image + 5, i.bytes));
		OK(barway_flush(m));
		for (unsigned k = 0; k < 3; k++) {
			gpu_read(back, a[k], 2 * GRANULE);
			CHECK(!memcmp(back, image + 2 * k * GRANULE, 2 * GRANULE));
		}
		OK(barway_copy_from_by(m, BARWAY_METHOD_CE, back, 0, i.bytes));
		CHECK(!memcmp(back, image + 5, i.bytes));
		OK(barway_unmap(m));
		/* a part of it, out of the cache: what it lies in is what is told */
		m = map(base + 2 * GRANULE - 1, 2);
		CHECK_EQ(info_of(m).pieces, 2);
		CHECK(!memcmp(barway_mapping_ptr(m), image + 2 * GRANULE - 1, 2));
		OK(barway_unmap(m));
		m = map(base + 2 * GRANULE, 2);
		CHECK_EQ(info_of(m).pieces, 1);
		CHECK(info_of(m).device == gpu[0]);
		OK(barway_unmap(m));
		for (unsigned k = 0; k < 3; k++)
			release(a[k]);
		end();
	}
}

static void several_of_the_same(void)
{
	struct barway_mapping *m[12];
	uint64_t a;

	begin();
	a = alloc(0, 4 * PAGE);
	for (unsigned i = 0; i < N(m); i++)
		m[i] = i % 3 ? map(a + i, 2 * PAGE) : map_uncached(a + i, 2 * PAGE);
	for (unsigned i = 0; i < N(m); i++) {
		volatile unsigned char *p = barway_mapping_ptr(m[i]);

		p[100 - i] = (unsigned char)(i + 1); /* the same byte for all */
		barway_fence_mixed();
		for (unsigned k = 0; k < N(m); k++)
			CHECK_EQ(((volatile unsigned char *)barway_mapping_ptr(m[k]))[100 - k],
				 i + 1);
	}
	CHECK_EQ(counters().live_mappings, N(m));
	for (unsigned i = 0; i < N(m); i++) {
		OK(barway_unmap(m[(i * 5) % N(m)]));
		if (i + 1 < N(m)) /* the others stay */
			CHECK_EQ(((unsigned char *)barway_mapping_ptr(m[((i + 1) * 5) % N(m)]))
					 [100 - ((i + 1) * 5) % N(m)], N(m));
	}
	release(a);
	end();
}

static void errors(void)
{
	struct barway_mapping *const none = (struct barway_mapping *)7, *m = none;
	char *heap = malloc(100);
	uint64_t a, gone;
	int host = 0;

	begin();
	a = alloc(0, 2 * GRANULE);
	gone = alloc(1, GRANULE);
	release(gone);
	FAILS(barway_map(ctx, a, 0, NULL, &m), EINVAL, "0 bytes");
	FAILS(barway_map(ctx, a, SIZE_MAX, NULL, &m), EINVAL, "wraps");
	FAILS(barway_map(ctx, UINT64_MAX, 1, NULL, &m), EINVAL, "wraps");
	FAILS(barway_map(ctx, UINT64_MAX - 100, 200, NULL, &m), EINVAL, "wraps");
	FAILS(barway_map(ctx, a, 1, NULL, NULL), EINVAL, "out is NULL");
	FAILS(barway_map(ctx, (uintptr_t)&host, 1, NULL, &m), EFAULT, "not GPU memory");
	FAILS(barway_map(ctx, (uintptr_t)heap, 1, NULL, &m), EFAULT, "not GPU memory");
	FAILS(barway_map(ctx, (uintptr_t)&errors, 1, NULL, &m), EFAULT, "not GPU memory");
	FAILS(barway_map(ctx, 0, 1, NULL, &m), EFAULT, "not GPU memory");
	FAILS(barway_map(ctx, gone, 1, NULL, &m), EFAULT, "freed");
	FAILS(barway_map(ctx, a - 1, 2, NULL, &m), EFAULT, "not GPU memory");
	FAILS(barway_map(ctx, a, 2 * GRANULE + 1, NULL, &m), EFAULT, "ends beyond its memory");
	CHECK_HAS(barway_errmsg(), "only 131072 bytes");
	FAILS(barway_map(ctx, a + 100, 2 * GRANULE, NULL, &m), EFAULT, "only 130972 bytes");
	FAILS(barway_map(ctx, a, SIZE_MAX / 2 + 1, NULL, &m), EFAULT, "ends beyond its memory");
	FAILS(barway_map(ctx, a + 2 * GRANULE, 1, NULL, &m), EFAULT, "not GPU memory");
	CHECK(m == none);
	/* the sentence begins with the operation and its object */
	CHECK_HAS(barway_errmsg(), "barway_map(0x");
	release(a);
	free(heap);
	end();
}

/* Also after a smaller range was mapped: what the cache has does not make memory longer. */
static void beyond_the_end_of_cached(void)
{
	struct barway_mapping *m = NULL, *live;
	uint64_t a;

	begin();
	a = alloc(0, 100);
	OK(barway_unmap(map(a, GRANULE)));
	FAILS(barway_map(ctx, a, GRANULE + 1, NULL, &m), EFAULT, "ends beyond its memory");
	live = map(a, 10);
	FAILS(barway_map(ctx, a, GRANULE + 1, NULL, &m), EFAULT, "ends beyond its memory");
	OK(barway_unmap(live));
	release(a);
	FAILS(barway_map(ctx, a, 10, NULL, &m), EFAULT, "freed");
	end();
}

static void options(void)
{
	struct {
		struct barway_map_options o;
		char tail[8];
	} big;
	struct barway_map_options o = { .size = sizeof(o) };
	struct barway_mapping *m = NULL;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	OK(barway_map(ctx, a, 10, &o, &m));
	OK(barway_unmap(m));
	m = NULL;
	o.providers = "soft";
	OK(barway_map(ctx, a, 10, &o, &m));
	CHECK_STR(info_of(m).provider, "soft");
	OK(barway_unmap(m));
	m = NULL;
	o.providers = "teapot";
	FAILS(barway_map(ctx, a, 10, &o, &m), EINVAL, "teapot");
	o.providers = "rm"; /* each one's reason */
	FAILS(barway_map(ctx, a, 10, &o, &m), ENOTSUP, "rm: ");
	CHECK_HAS(barway_errmsg(), "soft: not among the allowed providers (rm)");
	o.providers = NULL;
	for (unsigned bit = 2; bit < 32; bit++) {
		o.flags = 1u << bit;
		FAILS(barway_map(ctx, a, 10, &o, &m), EINVAL, "flags");
	}
	o.flags = 0;
	o.reserved = 1;
	FAILS(barway_map(ctx, a, 10, &o, &m), EINVAL, "reserved");
	o.reserved = 0;
	for (o.size = 0; o.size < 16; o.size++)
		FAILS(barway_map(ctx, a, 10, &o, &m), EINVAL, "size");
	o.size = 16;
	o.flags = 0xffff; /* not read */
	OK(barway_map(ctx, a, 10, &o, &m));
	OK(barway_unmap(m));
	m = NULL;
	memset(&big, 0, sizeof(big));
	big.o.size = sizeof(big);
	OK(barway_map(ctx, a, 10, &big.o, &m));
	OK(barway_unmap(m));
	m = NULL;
	big.tail[5] = 1;
	FAILS(barway_map(ctx, a, 10, &big.o, &m), E2BIG, "not zero");
	CHECK(!m);
	release(a);
	end();
}

/* The context's list is the default of its maps. */
static void context_providers(void)
{
	struct barway_open_options o = { .size = sizeof(o), .providers = "rm" };
	struct barway_mapping *m = NULL;
	struct barway_context *c;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	OK(barway_unmap(
		map(a, 10))); /* a cached one of a provider that is not allowed is not taken */
	OK(barway_open(&o, &c));
	FAILS(barway_map(c, a, 10, NULL, &m), ENOTSUP, "not among the allowed providers (rm)");
	CHECK(!m);
	OK(barway_close(c));
	end();
	param("providers", "rm"); /* the parameter is the default of the context */
	begin();
	FAILS(barway_map(ctx, a, 10, NULL, &m), ENOTSUP, "not among the allowed providers (rm)");
	end();
	param("providers", "");
	begin();
	release(a);
	end();
}

/* ---- ranges that are larger than their memory ---------------------------------------------- */

static struct barway_mapping *map_clamped(uint64_t addr, size_t bytes)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_CLAMP };
	struct barway_mapping *m = NULL;

	OK(barway_map(ctx, addr, bytes, &o, &m));
	return m;
}

static void clamped(void)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_CLAMP };
	struct barway_mapping *m, *none = NULL;
	uint64_t a[3];
	unsigned char *p;
	char word[8];

	begin();
	for (unsigned i = 0; i < 3; i++)
		a[i] = alloc(0, 2 * GRANULE);
	if (a[0] + 2 * GRANULE != a[1] || a[1] + 2 * GRANULE != a[2]) {
		for (unsigned i = 0; i < 3; i++)
			release(a[i]);
		end();
		SKIP("allocations are not side by side");
	}
	release(a[0]);
	release(a[2]);
	FAILS(barway_map(ctx, a[1], 3 * GRANULE, NULL, &none), EFAULT, "ends beyond its memory");
	m = map_clamped(a[1] - GRANULE, 4 * GRANULE);
	p = barway_mapping_ptr(m);
	CHECK(faults(p) && faults(p + GRANULE - 1)); /* no memory: its pages fault */
	CHECK(!faults(p + GRANULE) && !faults(p + 3 * GRANULE - 1));
	CHECK(faults(p + 3 * GRANULE) && faults(p + 4 * GRANULE - 1));
	CHECK_EQ(info_of(m).bytes, 4 * GRANULE);
	FAILS(barway_copy_to(m, 0, "x", 1), EINVAL, "clamped");
	FAILS(barway_copy_to(m, GRANULE - 1, "xy", 2), EINVAL, "clamped");
	FAILS(barway_copy_from(m, word, 3 * GRANULE - 1, 2), EINVAL, "clamped");
	FAILS(barway_copy_to_by(m, BARWAY_METHOD_CE, GRANULE - 1, "xy", 2), EINVAL, "clamped");
	FAILS(barway_copy_from_by(m, BARWAY_METHOD_CE, word, 4 * GRANULE - 1, 1), EINVAL,
	      "clamped");
	OK(barway_copy_to(m, GRANULE, "first", 5));
	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 3 * GRANULE - 4, "last", 4));
	OK(barway_flush(m));
	OK(barway_copy_from(m, word, 3 * GRANULE - 4, 4));
	CHECK(!memcmp(word, "last", 4));
	gpu_read(word, a[1], 5);
	CHECK(!memcmp(word, "first", 5));
	OK(barway_unmap(m));
	/* what was clamped is no answer to a request that was not */
	FAILS(barway_map(ctx, a[1], 3 * GRANULE, NULL, &none), EFAULT, "ends beyond its memory");
	m = map_clamped(a[1], 2 * GRANULE); /* nothing to clamp */
	OK(barway_copy_to(m, 2 * GRANULE - 1, "x", 1));
	OK(barway_unmap(m));
	release(a[1]);
	FAILS(barway_map(ctx, a[1] - GRANULE, 4 * GRANULE, &o, &none), EFAULT, "not GPU memory");
	CHECK(!none);
	end();
}

/* A hole that is filled later is not seen as it was. */
static void clamped_again(void)
{
	struct barway_mapping *m;
	uint64_t a, b;
	unsigned char *p;

	begin();
	a = alloc(0, GRANULE);
	b = alloc(0, GRANULE);
	if (a + GRANULE != b) {
		release(a);
		release(b);
		end();
		SKIP("allocations are not side by side");
	}
	release(b);
	m = map_clamped(a, 2 * GRANULE);
	CHECK(faults((unsigned char *)barway_mapping_ptr(m) + GRANULE));
	OK(barway_unmap(m));
	b = alloc(0, GRANULE);
	CHECK(a + GRANULE == b);
	m = map(a, 2 * GRANULE);
	CHECK_EQ(info_of(m).pieces, 2);
	p = barway_mapping_ptr(m);
	CHECK(!faults(p + GRANULE));
	OK(barway_unmap(m));
	release(a);
	release(b);
	end();
}

/* ---- the path ------------------------------------------------------------------------------ */

static void query(void)
{
	struct barway_mapping_info i, again;
	struct {
		struct barway_mapping_info i;
		char tail[8];
	} big;
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(1, GRANULE);
	m = map(a + 77, 1000);
	i = info_of(m);
	CHECK(i.size == sizeof(i) && i.ptr == barway_mapping_ptr(m));
	CHECK(i.addr == a + 77 && i.bytes == 1000 && i.device == gpu[1] && i.pieces == 1);
	CHECK_EQ(i.caching, BARWAY_WRITE_COMBINED); /* the soft GPU is handled as a GPU */
	CHECK(i.keeps_alive == 1 && !i.from_cache);
	CHECK_STR(i.provider, "soft");
	CHECK_STR(i.route, "page table");
	CHECK(*i.store_kernel && *i.load_kernel);
	CHECK_HAS(i.reason, "soft: ");
	CHECK_HAS(i.reason, "not rm: "); /* and why not the others */
	OK(barway_unmap(m));
	m = map(a + 78, 999);
	again = info_of(m);
	CHECK(again.from_cache == 1 && again.addr == a + 78 && again.bytes == 999);
	CHECK_STR(again.reason, i.reason);
	CHECK_STR(again.route, i.route);

	memset(&i, 0x66, sizeof(i));
	for (i.size = 0; i.size < 16; i.size++)
		FAILS(barway_mapping_query(m, &i), EINVAL, "size");
	i.size = 16;
	OK(barway_mapping_query(m, &i));
	CHECK(i.ptr == barway_mapping_ptr(m) && i.addr == 0x6666666666666666);
	memset(&big, 0, sizeof(big));
	big.i.size = sizeof(big);
	OK(barway_mapping_query(m, &big.i));
	CHECK(big.i.ptr == i.ptr);
	big.tail[1] = 1;
	FAILS(barway_mapping_query(m, &big.i), E2BIG, "not zero");
	FAILS(barway_mapping_query(m, NULL), EINVAL, "NULL");
	OK(barway_unmap(m));
	release(a);
	end();
}

/* ---- ending -------------------------------------------------------------------------------- */

static void unmap_twice(void)
{
	struct barway_mapping *m, *other;
	struct barway_mapping_info i = { .size = sizeof(i) };
	char byte = 1;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	m = map(a, 100);
	OK(barway_unmap(m));
	FAILS(barway_unmap(m), ESTALE, "closed before");
	other = map(a, 100);
	CHECK(other != m);
	FAILS(barway_unmap(m), ESTALE, "closed before");
	FAILS(barway_copy_to(m, 0, &byte, 1), ESTALE, "closed before");
	FAILS(barway_copy_from(m, &byte, 0, 1), ESTALE, "closed before");
	FAILS(barway_copy_to_by(m, BARWAY_METHOD_CPU, 0, &byte, 1), ESTALE, "closed before");
	FAILS(barway_copy_from_by(m, BARWAY_METHOD_CE, &byte, 0, 1), ESTALE, "closed before");
	FAILS(barway_flush(m), ESTALE, "closed before");
	FAILS(barway_mapping_query(m, &i), ESTALE, "closed before");
	CHECK(!barway_mapping_ptr(m));
	CHECK_HAS(barway_errmsg(), "closed before");
	OK(barway_copy_to(other, 0, &byte, 1));
	OK(barway_unmap(other));
	release(a);
	end();
}

static pthread_barrier_t gate;

static void *unmapper(void *arg)
{
	pthread_barrier_wait(&gate);
	return (void *)(intptr_t)barway_unmap(arg);
}

static void unmap_from_8_threads(void)
{
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	CHECK_EQ(pthread_barrier_init(&gate, NULL, 8), 0);
	for (unsigned round = 0; round < 100; round++) {
		struct barway_mapping *m = map(a, 100);
		unsigned won = 0;
		pthread_t t[8];
		void *ret;

		for (unsigned i = 0; i < 8; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, unmapper, m), 0);
		for (unsigned i = 0; i < 8; i++) {
			pthread_join(t[i], &ret);
			won += !ret;
			CHECK(!ret || (intptr_t)ret == -ESTALE);
		}
		CHECK_EQ(won, 1);
	}
	pthread_barrier_destroy(&gate);
	CHECK_EQ(counters().live_mappings, 0);
	release(a);
	end();
}

static void close_with_live(void)
{
	struct barway_mapping *m[3];
	unsigned char *p[3];
	uint64_t a;

	begin();
	a = alloc(0, 4 * GRANULE);
	for (unsigned i = 0; i < 3; i++) {
		m[i] = i == 2 ? map_uncached(a, 2 * GRANULE) : map(a + i * GRANULE, 2 * GRANULE);
		p[i] = barway_mapping_ptr(m[i]);
		p[i][0] = 1;
	}
	end();
	for (unsigned i = 0; i < 3; i++) {
		CHECK(faults(p[i]));
		CHECK(faults(p[i] + 2 * GRANULE - 1));
		FAILS(barway_unmap(m[i]), ESTALE, "closed before");
	}
	begin();
	CHECK_EQ(counters().live_mappings, 0);
	CHECK_EQ(counters().live_bytes, 0);
	CHECK_EQ(counters().cache_bytes, 0);
	CHECK_EQ(bar1_used(0), 0);
	release(a);
	end();
}

/* After an uncached unmap nothing is left. */
static void unmapped_faults(void)
{
	struct barway_mapping *m;
	unsigned char *p;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	m = map_uncached(a, 100);
	p = barway_mapping_ptr(m);
	CHECK(!faults(p));
	OK(barway_unmap(m));
	CHECK(faults(p));
	release(a);
	end();
}

/* Memory freed under a mapping: keeps_alive is what happens; another's data are never seen. */
static void freed_under_mapping(void)
{
	struct barway_mapping *m;
	uint64_t a, b[8], used;

	begin();
	used = memory_used(0);
	a = alloc(0, GRANULE);
	m = map(a, GRANULE);
	CHECK_EQ(info_of(m).keeps_alive, 1);
	memset(image, 0x11, GRANULE);
	OK(barway_copy_to(m, 0, image, GRANULE));
	release(a);
	for (unsigned i = 0; i < N(b); i++) {
		b[i] = alloc(0, GRANULE);
		memset(back, 0x22, GRANULE);
		gpu_write(b[i], back, GRANULE);
	}
	CHECK(!memcmp(barway_mapping_ptr(m), image, GRANULE));
	memset(image, 0x33, GRANULE);
	OK(barway_copy_to(m, 0, image, GRANULE));
	for (unsigned i = 0; i < N(b); i++) {
		gpu_read(image, b[i], GRANULE);
		CHECK(!memcmp(image, back, GRANULE));
	}
	OK(barway_unmap(m));
	OK(barway_cache_flush(ctx));
	for (unsigned i = 0; i < N(b); i++)
		release(b[i]);
	CHECK_EQ(memory_used(0), used);
	end();
}

/* ---- the aperture -------------------------------------------------------------------------- */

static void aperture_full(void)
{
	struct barway_mapping *m, *big, *none = NULL;
	struct barway_counters before;
	uint64_t a, b;

	begin();
	a = alloc(0, BAR1);
	b = alloc(0, BAR1);
	OK(barway_unmap(map(a, 1))); /* the self-test is done */
	OK(barway_cache_flush(ctx));
	CHECK_EQ(bar1_used(0), 0);

	m = map(a, BAR1 / 2);
	OK(barway_unmap(m));
	m = map(a + BAR1 / 2, BAR1 / 2);
	OK(barway_unmap(m));
	CHECK_EQ(bar1_used(0), BAR1); /* full of what nobody uses */
	before = counters();
	big = map(b, BAR1 - GRANULE); /* so that gives way */
	CHECK(counters().cache_evictions > before.cache_evictions);
	CHECK_EQ(bar1_used(0), BAR1 - GRANULE);

	FAILS(barway_map(ctx, a, 2 * GRANULE, NULL, &none), ENOMEM, "needs 131072 bytes");
	CHECK_HAS(barway_errmsg(), "65536 are free");
	CHECK(!none);
	m = map(a, GRANULE); /* a smaller one fits */
	CHECK_EQ(bar1_used(0), BAR1);
	OK(barway_copy_to(m, 0, "fits", 4));
	FAILS(barway_map(ctx, a + GRANULE, 1, NULL, &none), ENOMEM, "0 are free");
	OK(barway_unmap(m));
	m = map(a + GRANULE, 1);
	OK(barway_unmap(m));
	OK(barway_unmap(big));
	/* nor may the self-test or a failed map have kept anything */
	OK(barway_cache_flush(ctx));
	CHECK_EQ(bar1_used(0), 0);
	release(a);
	release(b);
	end();
}

/* A mapping of several pieces of which the last does not fit leaves nothing. */
static void aperture_full_half_way(void)
{
	static const unsigned both[2] = { 0, 1 };
	struct barway_mapping *hog, *none = NULL;
	uint64_t a[2], b;

	begin();
	neighbours(2, MIB, both, a);
	b = alloc(1, BAR1);
	hog = map(b, BAR1);
	FAILS(barway_map(ctx, a[0], 2 * MIB, NULL, &none), ENOMEM, "needs 1048576 bytes");
	CHECK_HAS(barway_errmsg(), "soft GPU 1");
	OK(barway_cache_flush(ctx));
	CHECK_EQ(bar1_used(0), 0);
	OK(barway_unmap(hog));
	OK(barway_unmap(map(a[0], 2 * MIB)));
	release(a[0]);
	release(a[1]);
	release(b);
	end();
}

/* ---- letting go of everything -------------------------------------------------------------- */

static void release_busy(void)
{
	struct barway_counters before;
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, 4 * GRANULE);
	OK(barway_unmap(map(a + GRANULE, 100))); /* cached */
	m = map(a, 100);
	before = counters();
	CHECK(before.cache_bytes);
	FAILS(barway_release_all(ctx, 0), EBUSY, "BARWAY_RELEASE_FORCE");
	CHECK_EQ(counters().cache_bytes, 0); /* the cache is undone, nothing else */
	CHECK_EQ(counters().live_mappings, 1);
	OK(barway_copy_to(m, 0, "alive", 5));
	CHECK(!memcmp(barway_mapping_ptr(m), "alive", 5));
	OK(barway_unmap(m));
	FAILS(barway_release_all(ctx, 2), EINVAL, "flags 0x2");
	FAILS(barway_release_all(ctx, 3), EINVAL, "flags 0x3");
	OK(barway_release_all(ctx, 0));
	CHECK_EQ(bar1_used(0), 0);
	before = counters();
	m = map(a, 100); /* afresh, self-test and all */
	CHECK_EQ(counters().self_tests, before.self_tests + 1);
	CHECK(!info_of(m).from_cache);
	CHECK(!memcmp(barway_mapping_ptr(m), "alive", 5));
	OK(barway_unmap(m));
	release(a);
	end();
}

static void release_force(void)
{
	struct barway_mapping *m[4], *fresh;
	unsigned char *p[4];
	struct barway_context *other;
	uint64_t a, b;

	begin();
	a = alloc(0, 4 * GRANULE);
	b = alloc(1, 4 * GRANULE);
	OK(barway_open(NULL, &other));
	m[0] = map(a + 100, GRANULE);
	m[1] = map(a + 200, GRANULE); /* shares its window */
	m[2] = map_uncached(b, 2 * GRANULE);
	OK(barway_map(other, b, GRANULE, NULL, &m[3])); /* process-wide */
	for (unsigned i = 0; i < 4; i++) {
		p[i] = barway_mapping_ptr(m[i]);
		CHECK(!faults(p[i]));
	}
	OK(barway_release_all(ctx, BARWAY_RELEASE_FORCE));
	for (unsigned i = 0; i < 4; i++) {
		CHECK(faults(p[i]));
		CHECK(faults(p[i] + 1000));
	}
	CHECK_EQ(bar1_used(0), 0);
	CHECK_EQ(bar1_used(1), 0);
	CHECK_EQ(counters().live_mappings, 4); /* their handles are valid for barway_unmap() */
	fresh = map(a + 100, GRANULE);
	CHECK(!info_of(fresh).from_cache);
	OK(barway_copy_to(fresh, 0, "new", 3));
	for (unsigned i = 0; i < 4; i++) {
		CHECK(faults(p[i]));
		OK(barway_unmap(m[i]));
		FAILS(barway_unmap(m[i]), ESTALE, "closed before");
	}
	CHECK(!memcmp(barway_mapping_ptr(fresh), "new", 3));
	OK(barway_unmap(fresh));
	OK(barway_release_all(ctx, BARWAY_RELEASE_FORCE));
	OK(barway_close(other));
	CHECK_EQ(counters().live_mappings, 0);
	CHECK_EQ(counters().live_bytes, 0);
	release(a);
	release(b);
	end();
}

static void close_revoked(void)
{
	struct barway_mapping *m;
	unsigned char *p;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	m = map(a, 100);
	p = barway_mapping_ptr(m);
	OK(barway_release_all(ctx, BARWAY_RELEASE_FORCE));
	end();
	CHECK(faults(p));
	begin();
	CHECK_EQ(counters().live_mappings, 0);
	release(a);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(any_address_and_size),
		TEST(over_allocations),
		TEST(several_of_the_same),
		TEST(errors),
		TEST(beyond_the_end_of_cached),
		TEST(options),
		TEST(context_providers),
		TEST(clamped),
		TEST(clamped_again),
		TEST(query),
		TEST(unmap_twice),
		TEST(unmap_from_8_threads),
		TEST(close_with_live),
		TEST(unmapped_faults),
		TEST(freed_under_mapping),
		TEST(aperture_full),
		TEST(aperture_full_half_way),
		TEST(release_busy),
		TEST(release_force),
		TEST(close_revoked),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
