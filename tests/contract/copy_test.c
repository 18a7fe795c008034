/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of struct bw_copy_method, on every method that is listed and every device. */
#include "copy_test.h"

#include "device/soft.h"

/* One copy each way at @at; @image is what the @bytes of memory at @addr hold. */
static void one(uint64_t addr, size_t bytes, size_t at, size_t n, unsigned skew)
{
	size_t from = at < GUARD ? 0 : at - GUARD;
	size_t to = bytes - at - n < GUARD ? bytes : at + n + GUARD;

	test_fill(host + skew, n, at * 31 + n);
	memcpy(image + at, host + skew, n);
	CHECK_EQ(to_by(method, at, n || at % 2 ? host + skew : NULL, n), 0);
	bw_copy_flush(m);
	gpu(false, addr + from, back + from, to - from);
	if (memcmp(back + from, image + from, to - from))
		FAIL("%s: to: %zu bytes at %zu, host at +%u", method->name, n, at, skew);

	test_fill(image + at, n, at * 37 + n);
	gpu(true, addr + at, image + at, n);
	memset(host, 0xee, n + 2 * GUARD);
	CHECK_EQ(from_by(method, host + GUARD + skew % 64, at, n), 0);
	if (memcmp(host + GUARD + skew % 64, image + at, n))
		FAIL("%s: from: %zu bytes at %zu, host at +%u", method->name, n, at, skew);
	for (size_t i = 0; i < GUARD - 64; i++)
		if (host[i + skew % 64] != 0xee || host[GUARD + skew % 64 + n + i] != 0xee)
			FAIL("%s: from: %zu bytes at %zu: host bytes outside were written",
			     method->name, n, at);
}

static void describes(void)
{
	struct bw_reason why = { "" };
	uint64_t a = alloc(4096);

	map(a, 4096);
	CHECK(*method->name && method->id);
	CHECK(bw_copy_method(method->id) == method);
	CHECK(method->score(&(struct bw_copy){ .map = m, .host = host, .bytes = 64,
					       .direction = BW_TO_GPU }, &why) >= 0 || *why.text);
	CHECK(*why.text);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
	CHECK(!bw_copy_method(0) && !bw_copy_method(99));
}

static void description(void)
{
	each(describes);
}

static void small_sizes(void)
{
	static const unsigned offsets[] = { 0, 1, 7, 8, 61, 4090 };
	uint64_t a = alloc(8192);

	test_fill(image, 8192, 1);
	gpu(true, a, image, 8192);
	map(a, 8192);
	for (unsigned o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++)
		for (size_t n = 0; n <= 300; n++)
			one(a, 8192, offsets[o], n, (unsigned)(n * 7 + o) % 64);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void sizes_0_to_300(void)
{
	each(small_sizes);
}

static void large_sizes(void)
{
	static const size_t sizes[] = { 4095, 4097, 65537, 131071, 1000003, 3145727 };
	uint64_t a = alloc(BYTES), random = 3;

	test_fill(image, BYTES, 2);
	gpu(true, a, image, BYTES);
	map(a, BYTES);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		one(a, BYTES, test_random(&random) % (BYTES - sizes[i]), sizes[i], i * 5);
	one(a, BYTES, 0, BYTES, 0);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void sizes_large(void)
{
	each(large_sizes);
}

/* A mapping that begins in the middle of a page: offsets are of the mapping. */
static void odd_mapping(void)
{
	uint64_t a = alloc(65536);

	test_fill(image, 20000, 4);
	gpu(true, a + 4097, image, 20000);
	map(a + 4097, 20000);
	for (size_t n = 1; n < 12000; n = n * 3 + 1) {
		one(a + 4097, 20000, 0, n, 3);
		one(a + 4097, 20000, 20000 - n, n, 9);
	}
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void in_the_middle(void)
{
	each(odd_mapping);
}

/* Over the seams of @bytes at @addr, that lie every @step. */
static void over_seams(uint64_t addr, size_t bytes, size_t step)
{
	uint64_t random = 77;

	test_fill(image, bytes, 6);
	gpu(true, addr, image, bytes);
	map(addr, bytes);
	for (size_t seam = step; seam < bytes; seam += step)
		for (unsigned i = 0; i < 20; i++) {
			size_t before = test_random(&random) % 300,
			       after = test_random(&random) % 300;

			one(addr, bytes, seam - before, before + after, i);
		}
	one(addr, bytes, 0, bytes, 0);
	one(addr, bytes, 1, bytes - 2, 11);
	unmap();
}

static void soft_handles(void)
{
	enum { N = 4, EACH = 2 * BW_SOFT_PAGE };
	struct bw_soft_handle *h;
	uint64_t a;

	CHECK_EQ(bw_soft_reserve(N * EACH, &a), 0);
	for (unsigned i = 0; i < N; i++) {
		/* a resident copier reaches its own device's memory */
		struct bw_device *d = method->id == BW_METHOD_RESIDENT ? device :
				      bw_soft_device((int)i % 2);

		CHECK_EQ(bw_soft_handle_create(d, EACH, &h), 0);
		CHECK_EQ(bw_soft_mem_map(a + i * EACH, h), 0);
		bw_soft_handle_release(h);
	}
	over_seams(a, N * EACH, EACH);
	for (unsigned i = 0; i < N; i++)
		CHECK_EQ(bw_soft_mem_unmap(a + i * EACH), 0);
	CHECK_EQ(bw_soft_unreserve(a, N * EACH), 0);
}

static void segments(void)
{
	uint64_t a[6], step;
	struct bw_segment seg;

	if (device->ops->kind == BW_DEVICE_SOFT)
		soft_handles();
	/* where the device puts allocations side by side */
	for (unsigned i = 0; i < 6; i++)
		a[i] = alloc(100000);
	CHECK_EQ(device->ops->resolve(a[0], &seg), 0);
	step = seg.bytes;
	for (unsigned i = 0; i + 1 < 6; i++)
		if (a[i] + step == a[i + 1] && 2 * step <= BYTES) {
			over_seams(a[i], 2 * step, step);
			break;
		}
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQ(device->ops->mem_free(a[i]), 0);
}

static void several_segments(void)
{
	each(segments);
}

/* A copy comes after this thread's earlier stores to the same bytes, and sees them. */
static void after_stores(void)
{
	uint64_t a = alloc(4096);

	map(a, 4096);
	for (unsigned i = 0; i < 200; i++) {
		volatile uint64_t *p = (volatile uint64_t *)m->ptr;
		uint64_t value[8];

		for (unsigned k = 0; k < 8; k++)
			p[k] = value[k] = i * 1000 + k;
		memcpy(host, value, sizeof(value));
		CHECK_EQ(from_by(method, back, 0, sizeof(value)), 0);
		CHECK(!memcmp(back, value, sizeof(value)));
		for (unsigned k = 0; k < 8; k++)
			p[k] = 1;
		CHECK_EQ(to_by(method, 0, host, sizeof(value)), 0);
		bw_copy_flush(m);
		gpu(false, a, back, sizeof(value));
		CHECK(!memcmp(back, value, sizeof(value)));
		for (unsigned k = 0; k < 8; k++)
			CHECK_EQ(p[k], value[k]);
	}
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void order(void)
{
	each(after_stores);
}

/* What one method wrote every method reads. */
static void with_others(void)
{
	uint64_t a = alloc(65536);

	if (!only_pinned)
		pin();
	map(a, 65536);
	for (unsigned i = 0; bw_copy_methods[i]; i++) {
		if (!can(bw_copy_methods[i], true))
			continue;
		test_fill(host, 5000, i + 90);
		CHECK_EQ(to_by(method, 123, host, 5000), 0);
		CHECK_EQ(from_by(bw_copy_methods[i], back, 123, 5000), 0);
		CHECK(!memcmp(back, host, 5000));
	}
	unmap();
	if (!only_pinned)
		unpin();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void methods_together(void)
{
	each(with_others);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(description),
		TEST(sizes_0_to_300),
		TEST(sizes_large),
		TEST(in_the_middle),
		TEST(several_segments),
		TEST(order),
		TEST(methods_together),
		{ 0 },
	};

	return copy_main(argc, argv, cases);
}
