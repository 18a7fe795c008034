/* SPDX-License-Identifier: BSD-3-Clause */
/* Scatter and gather, and copies on streams of the caller's. */
#include <barway_soft.h>

#include "api_test.h"

#define BYTES (4u * MIB)
#define PIECES 60u

static unsigned char image[BYTES], host[BYTES], back[BYTES];

/* ---- pieces -------------------------------------------------------------------------------- */

static struct barway_piece pieces[PIECES];

/* Random pieces that do not overlap on either side, in random order; some are empty. */
static void cut(unsigned char *p, size_t most, uint64_t seed)
{
	uint64_t random = seed * 77 + 1;

	for (unsigned i = 0; i < PIECES; i++) {
		size_t n = test_random(&random) % 5 ? test_random(&random) % most : 0;
		size_t skew = test_random(&random) % (BYTES / PIECES - most);

		pieces[i] = (struct barway_piece){ i * (BYTES / PIECES) + skew,
						   p + (i * 7 % PIECES) * (BYTES / PIECES) + skew,
						   n };
	}
	for (unsigned i = PIECES - 1; i; i--) {
		unsigned k = (unsigned)(test_random(&random) % (i + 1));
		struct barway_piece t = pieces[i];

		pieces[i] = pieces[k];
		pieces[k] = t;
	}
}

static void both_ways(struct barway_mapping *m, uint64_t a, uint32_t method, unsigned char *p,
		      size_t most)
{
	test_fill(image, BYTES, most + method);
	gpu_write(a, image, BYTES);
	cut(p, most, most + method);
	test_fill(p, BYTES, most * 3 + method);
	for (unsigned i = 0; i < PIECES; i++)
		memcpy(image + pieces[i].offset, pieces[i].host, pieces[i].bytes);
	OK(barway_copy_pieces(m, BARWAY_TO_GPU, method, pieces, PIECES));
	OK(barway_flush(m));
	gpu_read(back, a, BYTES);
	if (memcmp(back, image, BYTES))
		FAIL("method %u, pieces up to %zu: scattered wrong", method, most);
	memset(p, 0xee, BYTES);
	memset(back, 0xee, BYTES);
	OK(barway_copy_pieces(m, BARWAY_FROM_GPU, method, pieces, PIECES));
	for (unsigned i = 0; i < PIECES; i++)
		memcpy(back + ((unsigned char *)pieces[i].host - p), image + pieces[i].offset,
		       pieces[i].bytes);
	if (memcmp(back, p, BYTES))
		FAIL("method %u, pieces up to %zu: gathered wrong", method, most);
}

static void scatter_and_gather(void)
{
	static const size_t most[] = { 9, 300, 5000, BYTES / PIECES - 64 };
	struct barway_mapping *m;
	uint64_t a;
	void *p;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	OK(barway_host_alloc(gpu[0], BYTES, &p, NULL));
	for (unsigned i = 0; i < N(most); i++)
		for (uint32_t method = 0; method <= BARWAY_METHOD_CE; method++) {
			both_ways(m, a, method, host, most[i]);
			both_ways(m, a, method, p, most[i]);
		}
	OK(barway_host_free(ctx, p));
	OK(barway_unmap(m));
	release(a);
	end();
}

/* Memory of both GPUs in one mapping, host memory of both kinds in one call. */
static void over_devices(void)
{
	struct barway_piece list[4];
	struct barway_mapping *m;
	uint64_t a, b;
	void *p;

	begin();
	a = alloc(0, MIB);
	b = alloc(1, MIB);
	if (a + MIB != b) {
		release(a);
		release(b);
		end();
		SKIP("allocations are not side by side");
	}
	m = map(a, 2 * MIB);
	OK(barway_host_alloc(gpu[0], MIB, &p, NULL));
	test_fill(p, MIB, 1);
	test_fill(host, MIB, 2);
	list[0] = (struct barway_piece){ MIB - 1000, p, 2000 };
	list[1] = (struct barway_piece){ 5, host, 700000 };
	list[2] = (struct barway_piece){ MIB + 100000, host + 700000, 300000 };
	list[3] = (struct barway_piece){ MIB + 500000, (char *)p + 5000, 300000 };
	OK(barway_copy_pieces(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, list, 4));
	gpu_read(back, a, 2 * MIB);
	for (unsigned i = 0; i < 4; i++)
		CHECK(!memcmp(back + list[i].offset, list[i].host, list[i].bytes));
	memcpy(image, host, MIB);
	memset(host, 0, MIB);
	memset(p, 0, MIB);
	OK(barway_copy_pieces(m, BARWAY_FROM_GPU, BARWAY_METHOD_CE, list, 4));
	for (unsigned i = 0; i < 4; i++)
		CHECK(!memcmp(back + list[i].offset, list[i].host, list[i].bytes));
	CHECK(!memcmp(host, image, MIB - 48576));
	OK(barway_host_free(ctx, p));
	OK(barway_unmap(m));
	release(a);
	release(b);
	end();
}

static void checked_first(void)
{
	struct barway_piece list[3] = { { 0, host, 100 }, { 200, host, 100 }, { 901, host, 100 } };
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	memset(image, 0, GRANULE);
	gpu_write(a, image, GRANULE);
	memset(host, 0xaa, 4096);
	m = map(a, 1000);
	for (uint32_t method = 0; method <= BARWAY_METHOD_CE; method++) {
		FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, method, list, 3), EINVAL,
		      "piece 2: 100 bytes at offset 901");
		FAILS(barway_copy_pieces(m, BARWAY_FROM_GPU, method, list, 3), EINVAL, "piece 2");
		CHECK_EQ(host[0], 0xaa);
	}
	list[2] = (struct barway_piece){ 0, NULL, 1 };
	FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, 0, list, 3), EINVAL, "piece 2: the host");
	list[2].bytes = 0;
	list[1] = (struct barway_piece){ SIZE_MAX, host, 2 };
	FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, 0, list, 3), EINVAL, "piece 1");
	FAILS(barway_copy_pieces(m, 0, 0, list, 1), EINVAL, "direction 0");
	FAILS(barway_copy_pieces(m, 3, 0, list, 1), EINVAL, "direction 3");
	FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, 0, NULL, 1), EINVAL, "pieces is NULL");
	FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, 99, list, 1), ENOTSUP, "method 99");
	gpu_read(back, a, GRANULE);
	CHECK(!memcmp(back, image, GRANULE));
	OK(barway_copy_pieces(m, BARWAY_TO_GPU, 0, NULL, 0));
	OK(barway_copy_pieces(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, list, 0));
	OK(barway_unmap(m));
	FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, 0, list, 1), ESTALE, "closed before");
	release(a);
	end();
}

/* By its own choice the call copies what only the CPU can reach; asked for by name it refuses. */
static void freed(void)
{
	struct barway_piece list[2] = { { 0, host, 100 }, { 100, host + 100, 2 * MIB } };
	struct barway_mapping *m;
	uint64_t a, b;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	test_fill(host, BYTES, 12);
	OK(barway_mem_free(ctx, a));
	b = alloc(0, BYTES);
	memset(image, 0, BYTES);
	gpu_write(b, image, BYTES);
	FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, list, 2), EFAULT, "freed");
	OK(barway_copy_pieces(m, BARWAY_TO_GPU, BARWAY_METHOD_AUTO, list, 2));
	memcpy(back, host, 2 * MIB + 100);
	memset(host, 0, BYTES);
	OK(barway_copy_pieces(m, BARWAY_FROM_GPU, BARWAY_METHOD_AUTO, list, 2));
	CHECK(!memcmp(host, back, 2 * MIB + 100));
	OK(barway_unmap(m));
	gpu_read(back, b, BYTES);
	CHECK(!memcmp(back, image, BYTES));
	release(b);
	end();
}

/* ---- on a stream --------------------------------------------------------------------------- */

struct sum {
	uint64_t addr, out;
	size_t bytes;
};

/* Adds up the bytes at .addr, into the word at .out. */
static void sum_kernel(struct barway_soft_block *block, void *arg)
{
	const struct sum *s = arg;
	const unsigned char *p = barway_soft_deref(block, s->addr, s->bytes);
	uint64_t *out = barway_soft_deref(block, s->out, 8), total = 0;

	for (size_t i = 0; p && i < s->bytes; i++)
		total += p[i];
	if (out)
		barway_soft_store64(block, out, total);
}

static void in_order(void)
{
	struct barway_soft_stream *s;
	struct barway_mapping *m;
	uint64_t a, total = 0, seen = 0;
	void *p;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	OK(barway_soft_stream_create(gpu[0], &s));
	OK(barway_host_alloc(gpu[0], BYTES, &p, NULL));
	for (unsigned i = 0; i < 10; i++) {
		struct sum sum = { a + 100, a + BYTES - 8, 1000000 + i };
		unsigned char *from = i % 2 ? p : host;

		test_fill(from, sum.bytes, i);
		total = 0;
		for (size_t k = 0; k < sum.bytes; k++)
			total += from[k];
		OK(barway_copy_on_stream(m, BARWAY_TO_GPU, 100, from, sum.bytes, s));
		OK(barway_soft_launch(s, sum_kernel, 1, &sum, sizeof(sum)));
		OK(barway_copy_on_stream(m, BARWAY_FROM_GPU, BYTES - 8, &seen, 8, s));
		OK(barway_soft_stream_sync(s));
		CHECK_EQ(seen, total);
	}
	/* the mapping may go; what the CPU stored before is copied */
	memset(barway_mapping_ptr(m), 0x5a, 4096);
	OK(barway_copy_on_stream(m, BARWAY_FROM_GPU, 0, back, 4096, s));
	OK(barway_unmap(m));
	OK(barway_soft_stream_sync(s));
	for (unsigned i = 0; i < 4096; i++)
		CHECK_EQ(back[i], 0x5a);
	OK(barway_soft_stream_destroy(s));
	OK(barway_host_free(ctx, p));
	release(a);
	end();
}

static void on_stream_refuses(void)
{
	struct barway_soft_stream *s, *other;
	struct barway_mapping *m;
	uint64_t a, b;

	begin();
	a = alloc(0, MIB);
	b = alloc(1, MIB);
	OK(barway_soft_stream_create(gpu[0], &s));
	OK(barway_soft_stream_create(gpu[1], &other));
	m = map(a, 1000);
	FAILS(barway_copy_on_stream(m, BARWAY_TO_GPU, 1, host, 1000, s), EINVAL, "outside");
	FAILS(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, NULL, 1, s), EINVAL, "NULL");
	FAILS(barway_copy_on_stream(m, 7, 0, host, 1, s), EINVAL, "direction 7");
	FAILS(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, host, 1, other), EINVAL,
	      "the stream is one of soft GPU 1");
	OK(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, host, 0, s));
	OK(barway_unmap(m));
	FAILS(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, host, 1, s), ESTALE, "closed before");
	if (a + MIB == b) { /* nothing is put on it for the first device's part either */
		m = map(a, 2 * MIB);
		memset(image, 3, 2 * MIB);
		gpu_write(a, image, MIB);
		FAILS(barway_copy_on_stream(m, BARWAY_TO_GPU, MIB - 10, host, 20, s), EINVAL,
		      "another device");
		OK(barway_soft_stream_sync(s));
		gpu_read(back, a, MIB);
		CHECK(!memcmp(back, image, MIB));
		OK(barway_unmap(m));
	}
	m = map(a, 1000);
	release(a);
	FAILS(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, host, 1000, s), EFAULT, "freed");
	OK(barway_unmap(m));
	OK(barway_soft_stream_destroy(other));
	OK(barway_soft_stream_destroy(s));
	m = map(b, 1000);
	FAILS(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, host, 1, other), ESTALE, "stream");
	OK(barway_unmap(m));
	release(b);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(scatter_and_gather),
		TEST(over_devices),
		TEST(checked_first),
		TEST(freed),
		TEST(in_order),
		TEST(on_stream_refuses),
		{ 0 },
	};

	if (barway_set_log(NULL, NULL, 0)) /* what falls back says so */
		return 1;
	return api_main(argc, argv, cases);
}
