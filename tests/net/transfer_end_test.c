/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How transfers end that do not go well: cancelled at any point, too late, closed under way; and
 * that nothing is written to memory afterwards that the caller was told is free.
 */
#include <dirent.h>

#include "net_test.h"

#define BOTH (BARWAY_REGION_PUT | BARWAY_REGION_GET)

static struct memory ma, mb;

static void begin(bool gpu, size_t bytes, uint64_t deadline_ns)
{
	struct barway_endpoint_options o = end_options(network, threads, rails);

	o.deadline_ns = deadline_ns;
	pair_open_with(&o);
	memory_open(&a, &ma, gpu, bytes, BOTH);
	memory_open(&b, &mb, gpu, bytes, BOTH);
}

static void turns(unsigned n)
{
	while (n--) {
		barway_endpoint_progress(a.ep);
		barway_endpoint_progress(b.ep);
	}
}

static void end(void)
{
	turns(300); /* so that both know that it is over */
	memory_close(&a, &ma);
	memory_close(&b, &mb);
	pair_close();
}

static struct barway_transfer *one_at(struct end *e, const struct memory *m, unsigned op,
				      const struct barway_key *key, size_t at, size_t n)
{
	struct barway_part part = { at, at, n };
	struct barway_transfer_options o = { .operation = op, .key = key, .tag = 1 };

	return prepare(e, m, &part, 1, &o);
}

static struct barway_transfer *one(struct end *e, const struct memory *m, unsigned op,
				   const struct barway_key *key, size_t n)
{
	return one_at(e, m, op, key, 0, n);
}

/* ---- cancelled ------------------------------------------------------------------------------- */

/* The far end makes progress in a thread of its own meanwhile. */
static void cancel_at(unsigned op, struct end *who, bool gpu, size_t n, unsigned after)
{
	struct barway_transfer *t, *r = NULL, *mine;
	pthread_t thread;
	unsigned char *data = malloc(n), *got = malloc(n);
	int ret;

	CHECK(data && got);
	t = one(&a, &ma, op, op == BARWAY_SEND ? NULL : &mb.key, n);
	if (op == BARWAY_SEND) {
		r = one(&b, &mb, BARWAY_RECV, NULL, n);
		OK(barway_transfer_post(r));
	}
	mine = who == &a ? t : r;
	OK(barway_transfer_post(t));
	turns(after);
	helper_stop = false;
	CHECK(!pthread_create(&thread, NULL, helper, who == &a ? &b : &a));
	OK(barway_transfer_cancel(mine));
	ret = barway_transfer_poll(mine, BARWAY_VISIBLE);
	if (ret && ret != -ECANCELED)
		FAIL("op %u, after %u: %d: %s", op, after, ret, barway_errmsg());
	/* it is ours again: nothing else writes there */
	if (op == BARWAY_GET || who == &b) {
		struct end *e = op == BARWAY_GET ? &a : &b;
		struct memory *m = op == BARWAY_GET ? &ma : &mb;

		test_fill(data, n, after + 100);
		write_to(e, m, 0, data, n);
		sleep_ms(2);
		read_from(e, m, 0, got, n);
		if (memcmp(data, got, n))
			FAIL("op %u, after %u: memory was written after the "
				"cancellation", op, after);
	}
	helper_stop = true;
	pthread_join(thread, NULL);
	if (r) { /* the other end of it ends too, unless they had not met */
		turns(3000);
		ret = barway_transfer_poll(t, BARWAY_VISIBLE);
		if (ret == -EBUSY) {
			OK(barway_transfer_cancel(t));
			turns(300);
		} else if (ret && ret != -ECANCELED) {
			FAIL("the other end: after %u: %d: %s", after, ret, barway_errmsg());
		} else if (ret) {
			CHECK_HAS(barway_errmsg(), "gave up");
		}
	}
	OK(barway_transfer_free(t));
	if (r)
		OK(barway_transfer_free(r));
	free(data);
	free(got);
	(void)gpu;
}

static void cancels_of(unsigned op, bool by_sink)
{
	static const size_t sizes[] = { 8, 60000, 4 * MIB };
	uint64_t random = op + 1;

	for (int gpu = 0; gpu < 2; gpu++) {
		begin(gpu, 5 * MIB, 0);
		for (unsigned i = 0; i < N(sizes); i++)
			for (unsigned k = 0; k < 12; k++)
				cancel_at(op, by_sink ? &b : &a, gpu, sizes[i],
					  (unsigned)(test_random(&random) % (k * 4 + 1)));
		end();
	}
}

static void cancel_puts(void) { cancels_of(BARWAY_PUT, false); }
static void cancel_gets(void) { cancels_of(BARWAY_GET, false); }
static void cancel_receives(void) { cancels_of(BARWAY_SEND, true); }

/* A sender that gives up before anybody receives. */
static void cancel_sends(void)
{
	static const size_t sizes[] = { 8, 100000 };
	struct barway_transfer *s, *r;

	begin(false, MIB, 0);
	for (unsigned i = 0; i < N(sizes); i++) {
		s = one(&a, &ma, BARWAY_SEND, NULL, sizes[i]);
		OK(barway_transfer_post(s));
		turns(50);
		OK(barway_transfer_cancel(s));
		turns(200);
		sleep_ms(50); /* threads hear of it when they run */
		turns(200);
		r = one(&b, &mb, BARWAY_RECV, NULL, sizes[i]);
		OK(barway_transfer_post(r));
		turns(200);
		CHECK_EQ(barway_transfer_poll(r, BARWAY_VISIBLE), -EBUSY); /* it is gone */
		OK(barway_transfer_post(s));
		OK(wait_both(r, BARWAY_VISIBLE));
		OK(wait_both(s, BARWAY_VISIBLE));
		OK(barway_transfer_free(s));
		OK(barway_transfer_free(r));
	}
	end();
}

/* ---- too late -------------------------------------------------------------------------------- */

/* Nobody receives: at the deadline, not much later. */
static void deadline(void)
{
	static const size_t sizes[] = { 8, 100000 };

	begin(false, MIB, 100 * MS);
	for (unsigned i = 0; i < N(sizes); i++) {
		struct barway_transfer *s = one(&a, &ma, BARWAY_SEND, NULL, sizes[i]);
		double from = seconds();

		OK(barway_transfer_post(s));
		FAILS(wait_both(s, BARWAY_VISIBLE), ETIMEDOUT, "deadline");
		CHECK_HAS(barway_errmsg(), here());
		CHECK_HAS(barway_errmsg(), "network");
		CHECK(seconds() - from >= 0.095);
		CHECK(seconds() - from < 2.0);
		OK(barway_transfer_free(s));
	}
	{ /* and a receive, by a wait that sleeps */
		struct barway_transfer *r = one(&a, &ma, BARWAY_RECV, NULL, 8);
		double from = seconds();

		OK(barway_transfer_post(r));
		FAILS(barway_transfer_wait(r, BARWAY_VISIBLE, 10 * SECOND), ETIMEDOUT, "deadline");
		CHECK(seconds() - from >= 0.095 && seconds() - from < 1);
		OK(barway_transfer_free(r));
	}
	end();
}

/* The target makes no progress at all: deadlines hold, and afterwards it goes on. */
static void sleeping_target(void)
{
	static const unsigned ops[] = { BARWAY_PUT, BARWAY_SEND, BARWAY_GET };
	struct barway_transfer *t;

	if (threads)
		SKIP("it has threads");
	begin(false, 16 * MIB, 100 * MS);
	for (unsigned i = 0; i < N(ops); i++) {
		double from = seconds();

		t = one(&a, &ma, ops[i], ops[i] == BARWAY_SEND ? NULL : &mb.key, 16 * MIB);
		OK(barway_transfer_post(t));
		/* a get has said where it may be written, and has to wait for an answer */
		FAILS(barway_transfer_wait(t, BARWAY_VISIBLE, 10 * SECOND), ETIMEDOUT,
		      ops[i] == BARWAY_GET ? "did not answer" : "progress");
		CHECK(seconds() - from < (ops[i] == BARWAY_GET ? 3.5 : 1));
		OK(barway_transfer_free(t));
		if (ops[i] != BARWAY_GET)
			continue;
		if (!strcmp(network, "shm")) {
			end();
			SKIP("libfabric's shm does not connect again after it lost messages");
		}
		turns(300);
		OK(barway_peer_close(a.peer));
		OK(barway_peer_close(b.peer));
		pair_connect();
	}
	t = one(&a, &ma, BARWAY_PUT, &mb.key, 16 * MIB);
	for (int i = 0; i < 20; i++) {
		OK(barway_transfer_post(t));
		if (!wait_both(t, BARWAY_VISIBLE))
			break;
		CHECK(i < 19);
	}
	OK(barway_transfer_free(t));
	end();
}

/* The target falls asleep in the middle of it: the transfer ends within deadline and liveness. */
static void falls_asleep(void)
{
	struct barway_endpoint_options o = end_options(network, threads, rails);
	struct barway_transfer *t;
	double from;

	if (threads)
		SKIP("it has threads");
	if (!strcmp(network, "shm"))
		SKIP("libfabric's shm does not connect again after it lost messages");
	o.deadline_ns = 300 * MS;
	o.liveness_ns = 500 * MS;
	pair_open_with(&o);
	memory_open(&a, &ma, false, 32 * MIB, BOTH);
	memory_open(&b, &mb, false, 32 * MIB, BOTH);
	for (unsigned op = BARWAY_PUT; op <= BARWAY_GET; op++) {
		for (unsigned n = 4; n < 40; n += 9) {
			t = one(&a, &ma, op, &mb.key, 32 * MIB);
			from = seconds();
			OK(barway_transfer_post(t));
			turns(n);
			if (barway_transfer_wait(t, BARWAY_VISIBLE, 10 * SECOND))
				CHECK_HAS(barway_errmsg(), here());
			CHECK(seconds() - from < 1.5);
			OK(barway_transfer_free(t));
			turns(300);
			if (barway_peer_close(a.peer) || barway_peer_close(b.peer))
				FAIL("close: %s", barway_errmsg());
			pair_connect();
		}
	}
	end();
}

/* ---- closed under way ------------------------------------------------------------------------ */

static unsigned count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f))
			n += !strcmp(name, "barway-net\n");
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

static void close_under_way(void)
{
	if (!strcmp(network, "shm"))
		SKIP("libfabric's shm touches memory of an end of this process that was closed");
	for (unsigned k = 0; k < 12; k++) {
		struct barway_transfer *t[6];

		begin(k & 1, N(t) * 4 * MIB, 0);
		for (unsigned i = 0; i < N(t); i++) {
			t[i] = one_at(&a, &ma, i % 2 ? BARWAY_PUT : BARWAY_GET, &mb.key,
				      i * 4 * MIB, 4 * MIB);
			OK(barway_transfer_post(t[i]));
		}
		turns(k * 7);
		if (k % 3 == 0) {
			OK(barway_endpoint_close(b.ep));
			b.ep = NULL;
			for (unsigned i = 0; i < N(t); i++) {
				int ret = barway_transfer_wait(t[i], BARWAY_VISIBLE, 10 * SECOND);

				if (ret && ret != -EIO)
					FAIL("%d: %s", ret, barway_errmsg());
				if (ret)
					CHECK_HAS(barway_errmsg(), here());
			}
		}
		OK(barway_endpoint_close(a.ep));
		a.ep = NULL;
		if (b.ep)
			OK(barway_endpoint_close(b.ep));
		b.ep = NULL;
		CHECK_EQ(count_threads(), 0);
		FAILS(barway_transfer_post(t[0]), ESTALE, "");
		FAILS(barway_region_close(ma.region), ESTALE, "");
		if (ma.gpu) {
			OK(barway_mem_free(a.ctx, ma.addr));
			OK(barway_mem_free(b.ctx, mb.addr));
		}
		pair_close();
		if (!ma.gpu) {
			free((void *)(uintptr_t)ma.addr);
			free((void *)(uintptr_t)mb.addr);
		}
	}
}

/* With contexts closed before anything else. */
static void close_contexts(void)
{
	begin(true, MIB, 0);
	OK(barway_transfer_post(one(&a, &ma, BARWAY_RECV, NULL, 8)));
	OK(barway_close(a.ctx));
	OK(barway_close(b.ctx));
	FAILS(barway_endpoint_progress(a.ep), ESTALE, "");
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
}

/* All came in time, and the program that posted looks after the deadline: it has not failed. */
static void late_look(void)
{
	struct barway_endpoint_options o = end_options(network, 0, 1);
	struct barway_transfer_options to = { .operation = BARWAY_PUT };
	struct barway_part part = { .bytes = 64 };
	struct barway_transfer *t;
	struct memory from, into;

	if (strcmp(network, "tcp")) /* others move nothing while an end makes no progress */
		SKIP("network %s", network);
	o.deadline_ns = 100 * MS;
	pair_open_with(&o);
	memory_open(&a, &from, false, MIB, 0);
	memory_open(&b, &into, false, MIB, BARWAY_REGION_PUT);
	to.key = &into.key;
	t = prepare(&a, &from, &part, 1, &to);
	OK(barway_transfer_post(t));
	for (unsigned i = 0; i < 50; i++) {
		OK(barway_endpoint_progress(b.ep) < 0);
		sleep_ms(1);
	}
	sleep_ms(100);
	OK(barway_transfer_poll(t, BARWAY_VISIBLE));
	OK(barway_transfer_free(t));
	memory_close(&a, &from);
	memory_close(&b, &into);
	pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(cancel_puts), TEST(cancel_gets), TEST(cancel_receives), TEST(cancel_sends),
		TEST(deadline), TEST(late_look), TEST(sleeping_target), TEST(falls_asleep),
		TEST(close_under_way), TEST(close_contexts), { 0 },
	};

	return net_main(argc, argv, cases);
}
