/* SPDX-License-Identifier: BSD-3-Clause */
/* copy/ce_ring: how threads share what comes from the GPU. The test itself is the engine. */
#include <pthread.h>
#include <sched.h>

#include "copy/ce_int.h"
#include "test.h"

enum { CHUNK = 36864, DEPTH = 3, PIECES = 4, THREADS = 3, CHUNKS = 300 };

static _Alignas(4096) unsigned char ring[DEPTH * CHUNK];
static unsigned char host[CHUNKS * CHUNK];
static uint64_t word;
static struct ce_stream stream;
static struct ce_ring r;

static void begin(void)
{
	word = 0;
	stream = (struct ce_stream){ .word = &word };
	r = (struct ce_ring){ .base = ring, .chunk = CHUNK, .depth = DEPTH, .pieces = PIECES };
	memset(host, 0, sizeof(host));
}

/* The values of the stream are the chunks' numbers from 1. */
static void give(uint64_t n, size_t bytes)
{
	ce_ring_give(&r, n, &stream, n + 1, host + n * CHUNK, bytes);
}

static void arrive(uint64_t n, size_t bytes)
{
	test_fill(ce_ring_chunk(&r, n), bytes, n);
	__atomic_store_n(&word, n + 1, __ATOMIC_RELEASE);
}

static bool is_right(uint64_t n, size_t bytes)
{
	unsigned char want[CHUNK];

	test_fill(want, bytes, n);
	return !memcmp(host + n * CHUNK, want, bytes);
}

static void nothing_before_it_is_here(void)
{
	begin();
	CHECK(!ce_ring_has(&r) && !ce_ring_piece(&r));
	give(0, CHUNK);
	CHECK(!ce_ring_has(&r) && !ce_ring_piece(&r));
	arrive(0, CHUNK);
	CHECK(ce_ring_has(&r) && !ce_ring_is_out(&r, 0));
	for (unsigned i = 0; i < PIECES; i++)
		CHECK(ce_ring_piece(&r));
	CHECK(!ce_ring_has(&r) && !ce_ring_piece(&r) && ce_ring_is_out(&r, 0));
	CHECK(is_right(0, CHUNK));
}

/* Any size of a chunk, and not a byte more. */
static void sizes(void)
{
	for (size_t bytes = 1; bytes <= CHUNK; bytes += bytes < 300 ? 1 : 509) {
		begin();
		give(0, bytes);
		arrive(0, CHUNK);
		while (ce_ring_piece(&r))
			;
		CHECK(ce_ring_is_out(&r, 0) && is_right(0, bytes));
		CHECK_EQ(host[bytes], 0);
	}
}

/* Who has taken a piece and is slow at it holds up that chunk, and nobody else. */
static void one_that_is_slow(void)
{
	begin();
	for (uint64_t n = 0; n < DEPTH; n++) {
		give(n, CHUNK);
		arrive(n, CHUNK);
	}
	r.piece++; /* its own */
	for (unsigned i = 1; i < DEPTH * PIECES; i++)
		CHECK(ce_ring_piece(&r));
	CHECK(!ce_ring_piece(&r));
	CHECK(!ce_ring_is_out(&r, 0));
	for (uint64_t n = 1; n < DEPTH; n++)
		CHECK(ce_ring_is_out(&r, n) && is_right(n, CHUNK));
}

static void *help(void *arg)
{
	while (!r.over)
		if (!ce_ring_piece(&r))
			sched_yield();
	return arg;
}

static void many_at_once(void)
{
	uint64_t given = 0, here = 0, out = 0;
	pthread_t t[THREADS];

	begin();
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, help, NULL), 0);
	while (out < CHUNKS) {
		bool did = false;

		if (given < CHUNKS && given - out < DEPTH) {
			give(given, CHUNK - given % 77);
			given++;
			did = true;
		}
		if (here < given) {
			arrive(here, CHUNK - here % 77);
			here++;
			did = true;
		}
		if (out < here && ce_ring_is_out(&r, out)) {
			out++;
			did = true;
		}
		if (!did && !ce_ring_piece(&r))
			sched_yield();
	}
	r.over = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (uint64_t n = 0; n < CHUNKS; n++)
		if (!is_right(n, CHUNK - n % 77))
			FAIL("chunk %llu is wrong", (unsigned long long)n);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(nothing_before_it_is_here), TEST(sizes), TEST(one_that_is_slow),
		TEST(many_at_once), { 0 },
	};

	return test_main(argc, argv, cases);
}
