/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every operation between two endpoints of one process, on the network in NET_NETWORK, with
 * NET_THREADS progress threads and NET_RAILS rails: sizes, offsets, pieces, both kinds of memory.
 */
#include "net_test.h"


static void begin(void)
{
	pair_open(network, threads, rails);
}

/* ---- one transfer ---------------------------------------------------------------------------- */

static void same(struct end *e, const struct memory *m, size_t at, const unsigned char *want,
		 size_t n)
{
	unsigned char *got = malloc(n + 1);

	CHECK(got);
	read_from(e, m, at, got, n);
	if (memcmp(got, want, n)) {
		size_t i = 0;

		while (got[i] == want[i])
			i++;
		FAIL("%zu bytes at %zu: byte %zu is 0x%02x, expected 0x%02x", n, at, i, got[i],
		     want[i]);
	}
	free(got);
}

/*
 * That the bytes of a get are here says that the other end has read them. The thread sanitizer does
 * not see what goes through the system, so it is told of this one.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:write_after_get\n";
}

__attribute__((noinline))
static void write_after_get(struct end *e, struct memory *m, size_t at, const void *src, size_t n)
{
	write_to(e, m, at, src, n);
}

/* @op of @n bytes, between @from of one end and @to of the other, at these offsets. */
static void move(unsigned op, struct memory *from, size_t from_at, struct memory *to, size_t to_at,
		 size_t n, uint64_t seed)
{
	bool get = op == BARWAY_GET;
	struct end *source = get ? &b : &a, *sink = get ? &a : &b;
	struct barway_part mine = { .local = get ? to_at : from_at, .remote = get ? from_at : to_at,
				    .bytes = n };
	struct barway_part theirs = { .local = to_at, .bytes = n };
	struct barway_transfer_options o = { .operation = op, .tag = seed }, r = {
		.operation = BARWAY_RECV, .tag = seed };
	struct barway_transfer *t, *receive = NULL;
	unsigned char *data = malloc(n + 16), guard[8] = { 0 };

	CHECK(data);
	test_fill(data, n, seed);
	if (get)
		write_after_get(source, from, from_at, data, n);
	else
		write_to(source, from, from_at, data, n);
	memory_zero(sink, to);
	o.key = get ? &from->key : op == BARWAY_PUT ? &to->key : NULL;
	t = prepare(&a, get ? to : from, &mine, 1, &o);
	if (op == BARWAY_SEND) {
		receive = prepare(&b, to, &theirs, 1, &r);
		OK(barway_transfer_post(receive));
	}
	OK(barway_transfer_post(t));
	OK(wait_both(t, BARWAY_VISIBLE));
	if (receive) {
		OK(wait_both(receive, BARWAY_VISIBLE));
		CHECK_EQ(info_of(receive).bytes, n);
		CHECK_EQ(info_of(receive).tag, seed);
		OK(barway_transfer_free(receive));
	}
	same(sink, to, to_at, data, n);
	if (to_at >= 8)
		same(sink, to, to_at - 8, guard, 8);
	if (to_at + n + 8 <= to->bytes)
		same(sink, to, to_at + n, guard, 8);
	OK(barway_transfer_free(t));
	free(data);
}

static void sizes_of(unsigned op, bool gpu_a, bool gpu_b)
{
	static const size_t sizes[] = { 0, 1, 7, 8, 64, 1000, 4096, 8191, 8192, 8193, 65536, 100001,
					1048576, 1048577, 3000000, 16777216 };
	struct memory ma, mb;
	uint64_t random = 7 + op;

	begin();
	memory_open(&a, &ma, gpu_a, 17 * MIB, 0);
	memory_open(&b, &mb, gpu_b, 17 * MIB, BARWAY_REGION_PUT | BARWAY_REGION_GET);
	for (unsigned i = 0; i < N(sizes); i++)
		for (unsigned k = 0; k < 3; k++) {
			size_t from_at = test_random(&random) % 4099;
			size_t to_at = k ? test_random(&random) % 4099 : 0;

			move(op, op == BARWAY_GET ? &mb : &ma, from_at,
			     op == BARWAY_GET ? &ma : &mb, to_at, sizes[i], 1 + i * 3 + k);
			if (sizes[i] > MIB && k)
				break;
		}
	memory_close(&a, &ma);
	memory_close(&b, &mb);
	pair_close();
}

static void path_has(struct memory *from, struct memory *to, size_t n, const char *text)
{
	struct barway_transfer_options o = { .operation = BARWAY_PUT, .key = &to->key };
	struct barway_part part = { .bytes = n };
	struct barway_transfer *t = prepare(&a, from, &part, 1, &o);

	OK(barway_transfer_post(t));
	OK(wait_both(t, BARWAY_VISIBLE));
	CHECK_EQ(info_of(t).eager, 1);
	CHECK_HAS(info_of(t).path, text);
	OK(barway_transfer_free(t));
}

static void begin_on_gpus(struct memory *ma, struct memory *mb)
{
	begin();
	memory_open(&a, ma, true, MIB, 0);
	memory_open(&b, mb, true, MIB, BARWAY_REGION_PUT | BARWAY_REGION_GET);
}

static void end_of(struct memory *ma, struct memory *mb)
{
	memory_close(&a, ma);
	memory_close(&b, mb);
	pair_close();
}

/* Of a context with helper threads: they load a part of what is long, and that is said. */
static void helpers(void)
{
	static const size_t sizes[] = { 64, 1024, 4096, 5000, 8192 };
	struct memory ma, mb;

	param("copy_threads", "3");
	begin_on_gpus(&ma, &mb);
	for (unsigned i = 0; i < N(sizes); i++)
		for (unsigned at = 0; at < 130; at += 43) {
			move(BARWAY_PUT, &ma, at, &mb, 8, sizes[i], 1 + i);
			move(BARWAY_SEND, &ma, at, &mb, 8, sizes[i], 2 + i);
			move(BARWAY_GET, &mb, at, &ma, 8, sizes[i], 3 + i);
		}
	path_has(&ma, &mb, 64, "read by the CPU through");
	path_has(&ma, &mb, 2048, "read by the CPU through");
	path_has(&ma, &mb, 4096, "read by several CPU threads through");
	end_of(&ma, &mb);
	/* not of a program that wants its copies by another method */
	param("copy_method", "ce");
	begin_on_gpus(&ma, &mb);
	path_has(&ma, &mb, 64, "read by the CPU through");
	path_has(&ma, &mb, 4096, "read by the CPU through");
	end_of(&ma, &mb);
	param("copy_method", "auto");
	param("copy_threads", "0");
}

#define SIZES(op, name) \
static void name##_host_host(void) { sizes_of(op, false, false); } \
static void name##_gpu_gpu(void) { sizes_of(op, true, true); } \
static void name##_host_gpu(void) { sizes_of(op, false, true); } \
static void name##_gpu_host(void) { sizes_of(op, true, false); }
SIZES(BARWAY_PUT, put)
SIZES(BARWAY_GET, get)
SIZES(BARWAY_SEND, send)

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(put_host_host), TEST(put_gpu_gpu), TEST(put_host_gpu), TEST(put_gpu_host),
		TEST(get_host_host), TEST(get_gpu_gpu), TEST(get_host_gpu), TEST(get_gpu_host),
		TEST(send_host_host), TEST(send_gpu_gpu), TEST(send_host_gpu), TEST(send_gpu_host),
		TEST(helpers),
		{ 0 },
	};

	return net_main(argc, argv, cases);
}
