/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In order with a stream: A computes x, x is sent; x is received into y, B reads y. Neither program
 * waits for its stream, and no thread does.
 */
#include "net_test.h"

#define WORDS 4096u
#define BYTES (WORDS * 8)

static struct memory ma, mb;
static struct barway_soft_stream *sa, *sb;

struct job {
	uint64_t addr, value;
	uint64_t *result; /* host memory */
	unsigned ms;
};

/* Slowly, so that whoever does not wait reads too early. */
static void compute(struct barway_soft_block *block, void *arg)
{
	struct job *j = arg;
	uint64_t *p = barway_soft_deref(block, j->addr, BYTES);

	sleep_ms(j->ms);
	for (unsigned i = 0; p && i < WORDS; i++)
		p[i] = j->value + i;
}

static void sum(struct barway_soft_block *block, void *arg)
{
	struct job *j = arg;
	uint64_t *p = barway_soft_deref(block, j->addr, BYTES), n = 0;

	for (unsigned i = 0; p && i < WORDS; i++)
		n += p[i];
	__atomic_store_n(j->result, n, __ATOMIC_RELEASE);
}

static uint64_t sum_of(uint64_t value)
{
	return value * WORDS + (uint64_t)WORDS * (WORDS - 1) / 2;
}

static void begin(void)
{
	pair_open(network, threads, rails);
	memory_open(&a, &ma, true, BYTES, BARWAY_REGION_PUT | BARWAY_REGION_GET);
	memory_open(&b, &mb, true, BYTES, BARWAY_REGION_PUT | BARWAY_REGION_GET);
	OK(barway_soft_stream_create(a.gpu, &sa));
	OK(barway_soft_stream_create(b.gpu, &sb));
}

static void end(void)
{
	OK(barway_soft_stream_destroy(sa));
	OK(barway_soft_stream_destroy(sb));
	memory_close(&a, &ma);
	memory_close(&b, &mb);
	pair_close();
}

static struct barway_transfer *whole(struct end *e, struct memory *m, unsigned op, size_t n)
{
	struct barway_part part = { 0, 0, n };
	struct barway_transfer_options o = { .operation = op, .tag = 1 };

	o.key = op == BARWAY_GET || op == BARWAY_PUT ? &mb.key : NULL;
	return prepare(e, m, &part, 1, &o);
}

static void launch(struct barway_soft_stream *s, barway_soft_kernel *k, struct job j)
{
	OK(barway_soft_launch(s, k, 1, &j, sizeof(j)));
}

/* Both ends make progress until the stream has done its work. */
static int sync_both(struct barway_soft_stream *s)
{
	double until = seconds() + 30;
	int ret;

	while ((ret = barway_soft_stream_query(s)) == -EBUSY && seconds() < until) {
		barway_endpoint_progress(a.ep);
		barway_endpoint_progress(b.ep);
	}
	return ret;
}

/* ---- A, send, receive, B --------------------------------------------------------------------- */

static void in_order(void)
{
	struct barway_transfer *s, *r;
	uint64_t result = 0;

	begin();
	s = whole(&a, &ma, BARWAY_SEND, BYTES);
	r = whole(&b, &mb, BARWAY_RECV, BYTES);
	for (uint64_t k = 1; k <= 30; k++) {
		/* the whole chain is given out before anything of it is done */
		launch(sa, compute,
		       (struct job){ .addr = ma.addr, .value = k * 1000, .ms = k % 3 });
		OK(barway_transfer_post_on_stream(s, sa, 1));
		/* over x, after */
		launch(sa, compute, (struct job){ .addr = ma.addr, .value = 7 });
		OK(barway_transfer_post_on_stream(r, sb, 1));
		launch(sb, sum, (struct job){ .addr = mb.addr, .result = &result });
		OK(sync_both(sb));
		CHECK_EQ(__atomic_load_n(&result, __ATOMIC_ACQUIRE), sum_of(k * 1000));
		OK(sync_both(sa));
		OK(wait_both(s, BARWAY_VISIBLE));
		OK(wait_both(r, BARWAY_VISIBLE));
		{
			struct barway_transfer_info i = info_of(s);

			CHECK(i.ready_ns >= i.posted_ns);
		}
	}
	OK(barway_transfer_free(s));
	OK(barway_transfer_free(r));
	end();
}

static void put_and_get(void)
{
	struct barway_transfer *put, *get;
	uint64_t result = 0;

	begin();
	put = whole(&a, &ma, BARWAY_PUT, BYTES);
	get = whole(&a, &ma, BARWAY_GET, BYTES);
	for (uint64_t k = 1; k <= 10; k++) {
		launch(sa, compute, (struct job){ .addr = ma.addr, .value = k, .ms = 2 });
		OK(barway_transfer_post_on_stream(put, sa, 1));
		launch(sa, compute, (struct job){ .addr = ma.addr, .value = 9 });
		OK(sync_both(sa)); /* held until the put was LOCAL */
		OK(wait_both(put, BARWAY_VISIBLE));
		OK(barway_transfer_post_on_stream(get, sa, 1));
		launch(sa, sum, (struct job){ .addr = ma.addr, .result = &result });
		OK(sync_both(sa));
		CHECK_EQ(__atomic_load_n(&result, __ATOMIC_ACQUIRE), sum_of(k));
		OK(wait_both(get, BARWAY_VISIBLE));
	}
	OK(barway_transfer_free(put));
	OK(barway_transfer_free(get));
	end();
}

/* It does not begin before the stream comes there. */
static void not_before(void)
{
	struct barway_transfer *put;
	double until;

	begin();
	put = whole(&a, &ma, BARWAY_PUT, 64);
	launch(sa, compute, (struct job){ .addr = ma.addr, .value = 5, .ms = 800 });
	OK(barway_transfer_post_on_stream(put, sa, 0));
	FAILS(barway_transfer_post(put), EBUSY, "under way");
	until = seconds() + 0.05;
	while (seconds() < until) {
		CHECK_EQ(barway_transfer_poll(put, BARWAY_LOCAL), -EBUSY);
		barway_endpoint_progress(b.ep);
	}
	OK(wait_both(put, BARWAY_VISIBLE));
	{
		struct barway_transfer_info i = info_of(put);

		CHECK(i.ready_ns - i.posted_ns > 50 * MS);
		CHECK(i.returned_ns - i.posted_ns < 300 * MS);
	}
	OK(barway_transfer_free(put));
	end();
}

/* A transfer that fails lets the stream go on, and says why. */
static void failure_releases(void)
{
	struct barway_endpoint_options o = end_options(network, threads, rails);
	struct barway_transfer *r;
	uint64_t result = 0;

	o.deadline_ns = 500 * MS;
	pair_open_with(&o);
	memory_open(&a, &ma, true, BYTES, 0);
	memory_open(&b, &mb, true, BYTES, 0);
	OK(barway_soft_stream_create(a.gpu, &sa));
	OK(barway_soft_stream_create(b.gpu, &sb));
	r = whole(&b, &mb, BARWAY_RECV, BYTES);
	OK(barway_transfer_post_on_stream(r, sb, 1));
	launch(sb, sum, (struct job){ .addr = mb.addr, .result = &result });
	OK(sync_both(sb));
	FAILS(wait_both(r, BARWAY_VISIBLE), ETIMEDOUT, "deadline");
	/* cancelled while the stream is not there yet; and again */
	for (int i = 0; i < 3; i++) {
		launch(sb, compute, (struct job){ .addr = mb.addr, .value = 1, .ms = 30 });
		OK(barway_transfer_post_on_stream(r, sb, 1));
		OK(barway_transfer_cancel(r));
		FAILS(barway_transfer_poll(r, BARWAY_VISIBLE), ECANCELED, "cancelled");
	}
	OK(sync_both(sb));
	/* the peer goes away */
	OK(barway_transfer_post_on_stream(r, sb, 1));
	OK(barway_endpoint_close(a.ep));
	a.ep = NULL;
	OK(sync_both(sb));
	CHECK_EQ(barway_transfer_poll(r, BARWAY_VISIBLE), -EIO);
	OK(barway_transfer_free(r));
	OK(barway_soft_stream_destroy(sa));
	OK(barway_soft_stream_destroy(sb));
	OK(barway_mem_free(a.ctx, ma.addr));
	memory_close(&b, &mb);
	pair_close();
}

/* Host memory may be posted on a stream, too. */
static void host_memory(void)
{
	struct memory host;
	struct barway_transfer *put;
	uint64_t word = 77, got;

	begin();
	memory_open(&a, &host, false, 4096, 0);
	write_to(&a, &host, 0, &word, sizeof(word));
	put = whole(&a, &host, BARWAY_PUT, 8);
	OK(barway_transfer_post_on_stream(put, sa, 1));
	OK(sync_both(sa));
	OK(wait_both(put, BARWAY_VISIBLE));
	read_from(&b, &mb, 0, &got, sizeof(got));
	CHECK_EQ(got, 77);
	OK(barway_transfer_free(put));
	memory_close(&a, &host);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(in_order), TEST(put_and_get), TEST(not_before), TEST(failure_releases),
		TEST(host_memory), { 0 },
	};

	return net_main(argc, argv, cases);
}
