/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that go on after the call: polled, waited for, by descriptor, from many threads. */
#include <stdatomic.h>

#include "request_test.h"

static unsigned char image[BYTES];

static void (*const ends[])(struct barway_request *r) = {
	end_polled, end_waited, end_in_turns, end_by_fd, end_by_free,
};

static void ways(void)
{
	static const size_t sizes[] = { 0, 1, 5000, 200000, 3000001 };
	struct barway_mapping *m;
	uint64_t a;
	void *p;

	begin();
	a = alloc(0, BYTES);
	OK(barway_host_alloc(gpu[0], BYTES, &p, NULL));
	for (unsigned e = 0; e < N(ends); e++) {
		for (unsigned i = 0; i < 3 * 2 * N(sizes); i++) {
			size_t n = sizes[i / 6], at = i * 3;
			unsigned char *side = i / 3 % 2 ? p : host;
			uint32_t flags = ends[e] == end_by_fd ? BARWAY_COPY_FD : 0;
			struct barway_request *r;

			test_fill(side, n, i);
			memcpy(image, side, n);
			m = map(a, BYTES);
			r = start(m, BARWAY_TO_GPU, i % 3, at, side, n, flags);
			OK(barway_unmap(m)); /* the memory stays */
			ends[e](r);
			OK(barway_request_free(r));
			m = map(a, BYTES);
			memset(side, 0, n + 1);
			r = start(m, BARWAY_FROM_GPU, i % 3, at, side, n, flags);
			OK(barway_unmap(m));
			ends[e](r);
			OK(barway_request_free(r));
			if (memcmp(side, image, n) || side[n])
				FAIL("way %u, method %u, %zu bytes", e, i % 3, n);
		}
	}
	OK(barway_host_free(ctx, p));
	release(a);
	end();
}

/* Many on their way, of both kinds of host memory and in both directions, ended out of order. */
static void many(void)
{
	enum { MANY = 32, EACH = BYTES / MANY };
	struct barway_request *r[MANY];
	struct barway_mapping *m;
	uint64_t a;
	void *p;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	OK(barway_host_alloc(gpu[0], BYTES, &p, NULL));
	test_fill(host, BYTES, 1);
	memcpy(p, host, BYTES);
	for (unsigned i = 0; i < MANY; i++)
		r[i] = start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, i * EACH,
			     (i % 2 ? (unsigned char *)p : host) + i * EACH, EACH,
			     i % 3 ? 0 : BARWAY_COPY_FD);
	for (unsigned i = MANY; i-- > 0;)
		ends[i % 3](r[i]);
	for (unsigned i = 0; i < MANY; i++)
		OK(barway_request_free(r[i]));
	gpu_read(back, a, BYTES);
	CHECK(!memcmp(back, host, BYTES));
	memset(back, 0, BYTES);
	memset(p, 0, BYTES);
	for (unsigned i = 0; i < MANY; i++)
		r[i] = start(m, BARWAY_FROM_GPU, BARWAY_METHOD_CE, i * EACH,
			     (i % 2 ? (unsigned char *)p : back) + i * EACH, EACH, 0);
	OK(barway_unmap(m));
	for (unsigned i = 0; i < MANY; i++)
		OK(barway_request_free(r[i * 5 % MANY]));
	for (unsigned i = 0; i < MANY; i++)
		CHECK(!memcmp((i % 2 ? (unsigned char *)p : back) + i * EACH, host + i * EACH,
			      EACH));
	OK(barway_host_free(ctx, p));
	release(a);
	end();
}

/* Several pieces in one request, by several methods. */
static void mixed(void)
{
	struct barway_piece list[] = {
		{ 0, host, 10 },        { 64, host + 64, 900000 },
		{ MIB, host + MIB, 8 }, { MIB + 8, host + MIB + 8, 2 * MIB },
		{ 5, NULL, 0 },
	};
	struct barway_request *r;
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	memset(image, 0, BYTES);
	gpu_write(a, image, BYTES);
	test_fill(host, BYTES, 4);
	for (unsigned i = 0; i < N(list) - 1; i++)
		memcpy(image + list[i].offset, list[i].host, list[i].bytes);
	OK(barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_AUTO, list, N(list), 0, &r));
	end_waited(r);
	OK(barway_request_free(r));
	OK(barway_flush(m));
	gpu_read(back, a, BYTES);
	CHECK(!memcmp(back, image, BYTES));
	OK(barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, NULL, 0, BARWAY_COPY_FD, &r));
	end_by_fd(r);
	OK(barway_request_free(r));
	OK(barway_unmap(m));
	release(a);
	end();
}

static void refused(void)
{
	struct barway_request *const none = (struct barway_request *)5, *r = none;
	struct barway_piece list[] = { { 0, host, 10 }, { 995, host, 10 } };
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	m = map(a, 1000);
	FAILS(barway_copy_start(m, BARWAY_TO_GPU, 0, list, 2, 0, &r), EINVAL, "piece 1");
	FAILS(barway_copy_start(m, 0, 0, list, 1, 0, &r), EINVAL, "direction 0");
	FAILS(barway_copy_start(m, BARWAY_TO_GPU, 77, list, 1, 0, &r), ENOTSUP, "method 77");
	FAILS(barway_copy_start(m, BARWAY_TO_GPU, 0, list, 1, 2, &r), EINVAL, "flags 0x2");
	FAILS(barway_copy_start(m, BARWAY_TO_GPU, 0, list, 1, 0, NULL), EINVAL, "out is NULL");
	CHECK(r == none);
	r = start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, 0, host, 10, 0);
	FAILS(barway_request_fd(r), EINVAL, "BARWAY_COPY_FD");
	FAILS(barway_request_poll((struct barway_request *)m), ESTALE, "request");
	FAILS(barway_request_poll(NULL), ESTALE, "NULL");
	OK(barway_request_free(r));
	FAILS(barway_request_free(r), ESTALE, "closed before");
	FAILS(barway_request_poll(r), ESTALE, "closed before");
	FAILS(barway_request_wait(r, 0), ESTALE, "closed before");
	FAILS(barway_request_fd(r), ESTALE, "closed before");
	OK(barway_unmap(m));
	r = none;
	FAILS(barway_copy_start(m, BARWAY_TO_GPU, 0, list, 1, 0, &r), ESTALE, "closed before");
	CHECK(r == none);
	release(a);
	end();
}

/* Asked for by name the engine refuses what was freed; of its own choice the call copies it. */
static void freed(void)
{
	struct barway_piece piece = { 0, host, 2 * MIB };
	struct barway_request *r;
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	release(a);
	test_fill(host, BYTES, 9);
	FAILS(barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, &piece, 1, 0, &r), EFAULT,
	      "freed");
	r = start(m, BARWAY_TO_GPU, BARWAY_METHOD_AUTO, 0, host, 2 * MIB, 0);
	OK(barway_request_poll(r)); /* this thread did it */
	OK(barway_request_free(r));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 0, 2 * MIB));
	CHECK(!memcmp(back, host, 2 * MIB));
	OK(barway_unmap(m));
	end();
}

/* ---- threads ------------------------------------------------------------------------------- */

static struct barway_mapping *shared_map;
static _Atomic(struct barway_request *) shared_request;
static _Atomic bool stop;
static _Atomic unsigned wrong;

/* One request, polled by many. */
static void *poll_it(void *arg)
{
	(void)arg;
	while (!stop) {
		struct barway_request *r = shared_request;
		int ret = r ? barway_request_poll(r) : 0;

		if (ret && ret != -EBUSY)
			wrong++;
		if (r && barway_request_wait(r, 50000) && r == shared_request &&
		    !strstr(barway_errmsg(), "not done"))
			wrong++;
	}
	return NULL;
}

static void polled_by_many(void)
{
	pthread_t thread[4];
	struct barway_request *r[30];
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	stop = false;
	wrong = 0;
	for (unsigned i = 0; i < N(thread); i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, poll_it, NULL), 0);
	for (unsigned i = 0; i < N(r); i++) {
		test_fill(host, 1000, i);
		test_fill(host + BYTES - 1000, 1000, i);
		r[i] = start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, 0, host, BYTES,
			     i % 2 ? BARWAY_COPY_FD : 0);
		shared_request = r[i];
		end_waited(r[i]);
		OK(barway_copy_from_by(m, BARWAY_METHOD_CE, back, 0, BYTES));
		CHECK(!memcmp(back, host, BYTES));
	}
	stop = true;
	for (unsigned i = 0; i < N(thread); i++)
		pthread_join(thread[i], NULL);
	CHECK_EQ(wrong, 0);
	for (unsigned i = 0; i < N(r); i++)
		OK(barway_request_free(r[i]));
	OK(barway_unmap(m));
	release(a);
	end();
}

/* Each thread its own requests; contexts of their own open and close meanwhile. */
static void *start_own(void *arg)
{
	size_t share = BYTES / 8, at = (size_t)(uintptr_t)arg * share;

	for (unsigned i = 0; i < 30; i++) {
		struct barway_piece piece = { at, host + at, share - i };
		struct barway_request *r;
		bool fd = i % 3 == 1;
		struct pollfd p;

		test_fill(host + at, 5000, at + i);
		if (barway_copy_start(shared_map, BARWAY_TO_GPU, BARWAY_METHOD_CE, &piece, 1,
				      fd ? BARWAY_COPY_FD : 0, &r))
			return "start";
		p = (struct pollfd){ .fd = fd ? barway_request_fd(r) : -1, .events = POLLIN };
		if (fd ? poll(&p, 1, 30000) != 1 : barway_request_wait(r, BARWAY_FOREVER))
			return "wait";
		if (barway_request_free(r))
			return "free";
		if (barway_copy_from_by(shared_map, BARWAY_METHOD_CE, back + at, at, 5000) ||
		    memcmp(back + at, host + at, 5000))
			return "wrong data";
	}
	return NULL;
}

static void many_threads(void)
{
	pthread_t thread[8];
	void *why[8];
	uint64_t a;

	begin();
	a = alloc(0, BYTES);
	shared_map = map(a, BYTES);
	for (uintptr_t i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, start_own, (void *)i), 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(thread[i], &why[i]);
	for (unsigned i = 0; i < 8; i++)
		if (why[i])
			FAIL("thread %u: %s: %s", i, (char *)why[i], barway_errmsg());
	OK(barway_unmap(shared_map));
	release(a);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(ways),
		TEST(many),
		TEST(mixed),
		TEST(refused),
		TEST(freed),
		TEST(polled_by_many),
		TEST(many_threads),
		{ 0 },
	};

	if (barway_set_log(NULL, NULL, 0)) /* what falls back says so */
		return 1;
	return api_main(argc, argv, cases);
}
