/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of struct bw_copy_method, on every method that is listed and every device. */
#include "copy/copy.h"

#include <barway.h>
#include <errno.h>

#include "api/api.h"
#include "device/soft.h"
#include "test.h"

#define BYTES (4u << 20)
#define GUARD 96

static const struct bw_copy_method *method;
static struct barway_context *ctx;
static struct bw_device *device;
static struct barway_mapping *handle;
static struct bw_mapping *m;

static uint64_t alloc(size_t bytes)
{
	uint64_t addr;

	if (device->ops->mem_alloc(device, bytes, &addr))
		FAIL("%zu bytes: %s", bytes, bw_err_text());
	return addr;
}

static void map(uint64_t addr, size_t bytes)
{
	if (barway_map(ctx, addr, bytes, NULL, &handle))
		FAIL("%s", barway_errmsg());
	m = bw_mapping_get(handle);
	CHECK(m);
}

static void unmap(void)
{
	CHECK_EQ(barway_unmap(handle), 0);
}

/* Runs @fn with each method on the first two devices of each kind whose memory can be mapped. */
static void each(void (*fn)(void))
{
	char reasons[400] = "";
	bool any = false;

	barway_close(ctx); /* what a failed case left */
	for (unsigned k = 0; bw_device_kinds[k]; k++) {
		struct barway_open_options o = { .size = sizeof(o) };
		struct bw_device **list;
		struct bw_reason why;
		int n = bw_device_kinds[k]->enumerate(&list, &why);

		o.devices = bw_device_kinds[k]->kind;
		CHECK_EQ(barway_open(&o, &ctx), 0);
		for (int d = 0; d < n && d < 2; d++) {
			struct bw_segment seg;
			uint64_t a;

			device = list[d];
			CHECK_EQ(device->ops->activate(device), 0);
			a = alloc(4096);
			CHECK_EQ(device->ops->resolve(a, &seg), 0);
			if (!bw_mappable(&seg, &why)) {
				snprintf(reasons, sizeof(reasons), "%s: %.300s", device->name,
					 why.text);
				CHECK_EQ(device->ops->mem_free(a), 0);
				continue;
			}
			CHECK_EQ(device->ops->mem_free(a), 0);
			any = true;
			for (unsigned i = 0; bw_copy_methods[i]; i++) {
				method = bw_copy_methods[i];
				fn();
			}
			device->ops->deactivate(device);
		}
		CHECK_EQ(barway_close(ctx), 0);
		ctx = NULL;
	}
	if (!any)
		SKIP("%s", reasons);
}

/* The memory, segment by segment, by the copy engine. */
static void gpu(bool write, uint64_t addr, unsigned char *host, size_t bytes)
{
	while (bytes) {
		struct bw_segment seg;
		size_t n;
		int ret;

		CHECK_EQ(device->ops->resolve(addr, &seg), 0);
		n = seg.base + seg.bytes - addr < bytes ? seg.base + seg.bytes - addr : bytes;
		ret = write ? device->ops->ce_copy_to(seg.dev, addr, host, n) :
			      device->ops->ce_copy_from(seg.dev, host, addr, n);
		if (ret)
			FAIL("%s", bw_err_text());
		addr += n;
		host += n;
		bytes -= n;
	}
}

static unsigned char image[BYTES], back[BYTES], host[BYTES + 2 * GUARD];

/* One copy each way at @at; @image is what the @bytes of memory at @addr hold. */
static void one(uint64_t addr, size_t bytes, size_t at, size_t n, unsigned skew)
{
	size_t from = at < GUARD ? 0 : at - GUARD;
	size_t to = bytes - at - n < GUARD ? bytes : at + n + GUARD;

	test_fill(host + skew, n, at * 31 + n);
	memcpy(image + at, host + skew, n);
	CHECK_EQ(method->to(m, at, n || at % 2 ? host + skew : NULL, n), 0);
	bw_copy_flush(m);
	gpu(false, addr + from, back + from, to - from);
	if (memcmp(back + from, image + from, to - from))
		FAIL("%s: to: %zu bytes at %zu, host at +%u", method->name, n, at, skew);

	test_fill(image + at, n, at * 37 + n);
	gpu(true, addr + at, image + at, n);
	memset(host, 0xee, n + 2 * GUARD);
	CHECK_EQ(method->from(m, host + GUARD + skew % 64, at, n), 0);
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
	CHECK(method->score(m, &why) >= 0 || *why.text);
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
		struct bw_device *d = bw_soft_device((int)i % 2);

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
		uint64_t value[8], seen[8];

		for (unsigned k = 0; k < 8; k++)
			p[k] = value[k] = i * 1000 + k;
		CHECK_EQ(method->from(m, seen, 0, sizeof(seen)), 0);
		CHECK(!memcmp(seen, value, sizeof(seen)));
		for (unsigned k = 0; k < 8; k++)
			p[k] = 1;
		CHECK_EQ(method->to(m, 0, value, sizeof(value)), 0);
		bw_copy_flush(m);
		gpu(false, a, (unsigned char *)seen, sizeof(seen));
		CHECK(!memcmp(seen, value, sizeof(seen)));
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

	map(a, 65536);
	for (unsigned i = 0; bw_copy_methods[i]; i++) {
		test_fill(host, 5000, i + 90);
		CHECK_EQ(method->to(m, 123, host, 5000), 0);
		CHECK_EQ(bw_copy_methods[i]->from(m, back, 123, 5000), 0);
		CHECK(!memcmp(back, host, 5000));
	}
	unmap();
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

	barway_param_set("soft_devices", "2");
	barway_param_set("soft_memory", "64M");
	barway_param_set("soft_bar1", "32M");
	barway_param_set("log", "none");
	return test_main(argc, argv, cases);
}
