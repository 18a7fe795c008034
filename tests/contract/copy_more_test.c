/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rest of the contract of struct bw_copy_method: pinned memory, copies that are started, memory
 * that is gone, many at a time; and what is the copy engine's own.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "copy/plan.h"
#include "copy_test.h"
#include "core/fault.h"
#include "core/param.h"

/* ---- host memory that the device reaches by itself --------------------------------------- */

/* One copy each way by the host memory at @p, with guards around it. */
static void with_host(unsigned char *p, size_t room, uint64_t addr, bool pinned)
{
	static const size_t sizes[] = { 1, 64, 4097, 65536, 300001 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i], at = (i * 37) % 64 + GUARD;
		struct bw_copy copy = { .map = m, .offset = i * 11, .host = p + at, .bytes = n,
					.direction = BW_TO_GPU };

		CHECK(at + n + GUARD <= room);
		bw_copy_find_host(&copy);
		CHECK_EQ(copy.pinned, pinned);
		test_fill(p + at, n, n);
		CHECK_EQ(method->copy(&copy), 0);
		bw_copy_flush(m);
		gpu(false, addr + copy.offset, back, n);
		CHECK(!memcmp(back, p + at, n));
		test_fill(back, n, n + 1);
		gpu(true, addr + copy.offset, back, n);
		memset(p, 0xee, room);
		copy.direction = BW_FROM_GPU;
		CHECK_EQ(method->copy(&copy), 0);
		CHECK(!memcmp(back, p + at, n));
		for (size_t k = 0; k < GUARD; k++)
			CHECK(p[at - 1 - k] == 0xee && p[at + n + k] == 0xee);
	}
}

static void pinned_memory(void)
{
	enum { ROOM = 400000 };
	uint64_t a = alloc(BYTES / 4), host_addr;
	void *p;

	if (only_pinned)
		unpin();
	map(a, BYTES / 4);
	if (device->ops->host_alloc(device, ROOM, &p, &host_addr))
		FAIL("%s", bw_err_text());
	with_host(p, ROOM, a, true);
	CHECK_EQ(device->ops->host_free(p), 0);
	if (device->ops->host_register(device, host + 100, ROOM, &host_addr))
		FAIL("%s", bw_err_text());
	with_host(host + 100, ROOM, a, true);
	CHECK_EQ(device->ops->host_unregister(host + 100), 0);
	if (only_pinned)
		pin();
	else
		with_host(host + 100, ROOM, a, false);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void pinned(void)
{
	each(pinned_memory);
}

/* ---- copies that are started ------------------------------------------------------------- */

static union {
	struct bw_job job;
	unsigned char bytes[BW_JOB_BYTES];
} jobs[12];

static _Atomic unsigned told;

static void tell(void *arg)
{
	(void)arg;
	told++;
}

static void start(unsigned i, size_t offset, void *p, size_t n, enum bw_direction direction)
{
	struct bw_copy copy = { .map = m, .offset = offset, .host = p, .bytes = n,
				.direction = direction };

	memset(&jobs[i], 0, sizeof(jobs[i]));
	bw_copy_find_host(&copy);
	jobs[i].job.method = method;
	jobs[i].job.copy = copy;
	if (method->start(&jobs[i].job))
		FAIL("%s: %s", method->name, bw_err_text());
}

static void go_on(unsigned i)
{
	bool idle;
	int ret;

	while ((ret = method->step(&jobs[i].job, &idle)) == -EBUSY)
		if (idle)
			sched_yield();
	if (ret)
		FAIL("%s: %s", method->name, bw_err_text());
}

/* As many as there are, of memory at @p, ended in another order; the mapping goes meanwhile. */
static void start_many(unsigned char *p, uint64_t a)
{
	enum { N = sizeof(jobs) / sizeof(jobs[0]), EACH = BYTES / N / 64 * 64 };

	test_fill(p, N * EACH, 5);
	memcpy(image, p, N * EACH);
	map(a, BYTES);
	for (unsigned i = 0; i < N; i++)
		start(i, i * EACH, p + i * EACH, i % 5 ? EACH : 100, BW_TO_GPU);
	unmap();
	for (unsigned i = 0; i < N; i++)
		go_on((i * 5 + 3) % N);
	gpu(false, a, back, N * EACH);
	for (unsigned i = 0; i < N; i++)
		CHECK(!memcmp(back + i * EACH, image + i * EACH, i % 5 ? EACH : 100));
	test_fill(image, N * EACH, 6);
	gpu(true, a, image, N * EACH);
	memset(p, 0, N * EACH);
	map(a, BYTES);
	for (unsigned i = 0; i < N; i++)
		start(i, i * EACH, p + i * EACH, EACH, BW_FROM_GPU);
	unmap();
	for (unsigned i = 0; i < N; i++)
		go_on((i * 7 + 2) % N);
	CHECK(!memcmp(p, image, N * EACH));
}

/* It is told of what the device was given: by then a step of pinned memory finds it done. */
static void notify(unsigned char *p, uint64_t a)
{
	bool idle;
	int ret;

	map(a, BYTES);
	for (unsigned i = 0; i < 20; i++) {
		start(0, i, p, 100000 + i, i % 2 ? BW_TO_GPU : BW_FROM_GPU);
		told = 0;
		ret = method->notify ? method->notify(&jobs[0].job, tell, NULL) : -ENOTSUP;
		if (ret == -ENOTSUP) {
			go_on(0);
			continue;
		}
		CHECK_EQ(ret, 0);
		while (!told)
			sched_yield();
		while ((ret = method->step(&jobs[0].job, &idle)) == -EBUSY && !idle)
			;
		CHECK_EQ(ret, 0);
		CHECK_EQ(told, 1);
	}
	unmap();
}

static void starts(void)
{
	uint64_t a, host_addr;
	void *p;

	if (!method->start) {
		CHECK(!method->step && !method->notify);
		return;
	}
	CHECK(method->step);
	a = alloc(BYTES);
	start_many(host, a);
	if (device->ops->host_alloc(device, BYTES, &p, &host_addr))
		FAIL("%s", bw_err_text());
	start_many(p, a);
	notify(p, a);
	CHECK_EQ(device->ops->host_free(p), 0);
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void started(void)
{
	each(starts);
}

/* Nothing to copy is nothing to wait for. */
static void start_nothing(void)
{
	uint64_t a = alloc(4096);
	bool idle;

	map(a, 4096);
	if (method->start) {
		start(0, 4096, NULL, 0, BW_TO_GPU);
		CHECK_EQ(method->step(&jobs[0].job, &idle), 0);
	}
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void started_with_nothing(void)
{
	each(start_nothing);
}

/* ---- memory that is gone ----------------------------------------------------------------- */

/* Reaches what the mapping keeps, or refuses with nothing moved: not what came in its place. */
static void gone(void)
{
	uint64_t a = alloc(2 << 20), b;
	int ret;

	test_fill(image, 5000, 8);
	gpu(true, a, image, 5000);
	map(a, 2 << 20);
	CHECK_EQ(device->ops->mem_free(a), 0);
	b = alloc(2 << 20);
	memset(back, 0, 5000);
	gpu(true, b, back, 5000);
	memset(host, 0xee, 5000);
	ret = from_by(method, host, 0, 5000);
	if (ret) {
		CHECK_EQ(ret, -EFAULT);
		CHECK_HAS(bw_err_text(), "freed");
		for (unsigned i = 0; i < 5000; i++)
			CHECK_EQ(host[i], 0xee);
	} else {
		CHECK(!memcmp(host, image, 5000));
	}
	CHECK_EQ(to_by(method, 0, host, 5000), ret);
	gpu(false, b, host, 5000);
	CHECK(!memcmp(host, back, 5000));
	if (method->start) {
		memset(&jobs[0], 0, sizeof(jobs[0]));
		jobs[0].job.method = method;
		jobs[0].job.copy = (struct bw_copy){ .map = m, .host = host, .bytes = 5000,
						     .direction = BW_TO_GPU };
		bw_copy_find_host(&jobs[0].job.copy);
		CHECK_EQ(method->start(&jobs[0].job), ret);
	}
	unmap();
	CHECK_EQ(device->ops->mem_free(b), 0);
}

static void freed(void)
{
	each(gone);
}

/* ---- many at a time ---------------------------------------------------------------------- */

enum { THREADS = 12, SHARE = BYTES / THREADS / 64 * 64, ROUNDS = 12 };
static unsigned char *shared_host;

static void *copy_many(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg * SHARE;
	uint64_t random = at + 1;

	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t n = 1 + test_random(&random) % (i % 3 ? 9000 : SHARE);
		size_t skew = test_random(&random) % (SHARE - n + 1);
		unsigned char *p = shared_host + at + skew;

		test_fill(p, n, i);
		memcpy(image + at, p, n);
		if (to_by(method, at + skew, p, n))
			return "to";
		memset(p, 0, n);
		if (from_by(method, p, at + skew, n))
			return "from";
		if (memcmp(p, image + at, n))
			return "wrong data";
	}
	return NULL;
}

static void threads_copy(void)
{
	pthread_t thread[THREADS];
	uint64_t a = alloc(BYTES), host_addr;
	void *why[THREADS], *p;

	map(a, BYTES);
	CHECK_EQ(device->ops->host_alloc(device, BYTES, &p, &host_addr), 0);
	for (unsigned way = 0; way < 2; way++) {
		shared_host = way ? p : host;
		for (uintptr_t i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_create(&thread[i], NULL, copy_many, (void *)i), 0);
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(thread[i], &why[i]);
		for (unsigned i = 0; i < THREADS; i++)
			if (why[i])
				FAIL("%s: thread %u: %s", method->name, i, (char *)why[i]);
	}
	CHECK_EQ(device->ops->host_free(p), 0);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void many_threads(void)
{
	each(threads_copy);
}

/* ---- the ways of pageable memory --------------------------------------------------------- */

static void large_sizes(void)
{
	static const size_t sizes[] = { 4095, 4097, 65537, 1000003, BYTES };
	uint64_t a = alloc(BYTES);

	map(a, BYTES);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i], at = (BYTES - n) / 3;

		test_fill(host + i, n, i);
		CHECK_EQ(to_by(method, at, host + i, n), 0);
		bw_copy_flush(m);
		gpu(false, a + at, back, n);
		CHECK(!memcmp(back, host + i, n));
		test_fill(back, n, i + 50);
		gpu(true, a + at, back, n);
		memset(host, 0xee, n + GUARD);
		CHECK_EQ(from_by(method, host + i + 1, at, n), 0);
		CHECK(!memcmp(host + i + 1, back, n));
		CHECK(host[i] == 0xee && host[i + 1 + n] == 0xee);
	}
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

/* The rings' parameters; those of a context are read when it is opened. */
static void rings(const char *pageable, const char *chunk, const char *depth, const char *streaming)
{
	CHECK_EQ(barway_param_set("ce_pageable", pageable), 0);
	CHECK_EQ(barway_param_set("ce_chunk", chunk), 0);
	CHECK_EQ(barway_param_set("ce_depth", depth), 0);
	CHECK_EQ(barway_param_set("ce_streaming", streaming), 0);
}

static void every_way(void)
{
	static const char *const ways[][4] = { /* ce_pageable, ce_chunk, ce_depth, ce_streaming */
		{ "ring", "4K", "2", "none" },
		{ "ring", "12K", "3", "both" },
		{ "ring", "1M", "16", "to" },
		{ "driver", "256K", "4", "from" },
	};

	barway_close(ctx); /* what a failed case left */
	ctx = NULL;
	for (unsigned w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
		rings(ways[w][0], ways[w][1], ways[w][2], ways[w][3]);
		helpers = w % 2 * 3;
		each(large_sizes);
		each(starts);
		each(threads_copy);
	}
	helpers = 3;
	rings("auto", "1M", "8", "none");
}

/* ---- what the engine is given of a copy from the GPU to pageable memory ---------------------- */

static size_t given[64];
static unsigned ngiven;
static const struct bw_device_ops *real_ops;

static int note_copy_from(struct bw_device *dev, void *stream, void *h, uint64_t addr, size_t n)
{
	given[ngiven++ % 64] = n;
	return real_ops->stream_copy_from(dev, stream, h, addr, n);
}

static int note_copy_tell(struct bw_device *dev, void *stream, bool to_gpu, uint64_t addr, void *h,
			  size_t n, uint64_t word, uint64_t value)
{
	given[ngiven++ % 64] = n;
	return real_ops->stream_copy_tell(dev, stream, to_gpu, addr, h, n, word, value);
}

/* The first chunks are small, and all but the first begin with a line of the caller's memory. */
static void chunks_from_gpu(void)
{
	enum { N = 1000003, SKEW = 5, CHUNK = 65536 };
	struct bw_device_ops ops = *device->ops;
	uint64_t a = alloc(BYTES);
	size_t sum = 0;
	int ret;

	if (method->id != BW_METHOD_CE) {
		CHECK_EQ(device->ops->mem_free(a), 0);
		return;
	}
	map(a, BYTES);
	test_fill(image, N, 3);
	gpu(true, a, image, N);
	real_ops = device->ops;
	ops.stream_copy_from = note_copy_from;
	if (ops.stream_copy_tell)
		ops.stream_copy_tell = note_copy_tell;
	ngiven = 0;
	memset(host, 0, N + SKEW);
	device->ops = &ops;
	ret = from_by(method, host + SKEW, 0, N);
	device->ops = real_ops;
	CHECK_EQ(ret, 0);
	CHECK(!memcmp(host + SKEW, image, N));
	CHECK(ngiven > N / CHUNK && ngiven < 64);
	for (unsigned i = 0; i < ngiven; i++) {
		CHECK(given[i] <= (i < 2 ? (size_t)CHUNK >> (2 - i) : CHUNK));
		sum += given[i];
		CHECK(i + 1 == ngiven || !((uintptr_t)(host + SKEW + sum) % 64));
	}
	CHECK_EQ(sum, N);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void chunks(void)
{
	barway_close(ctx);
	ctx = NULL;
	CHECK_EQ(barway_param_set("ce_pageable", "ring"), 0);
	CHECK_EQ(barway_param_set("ce_chunk", "64K"), 0);
	CHECK_EQ(barway_param_set("cache_bytes", "0"), 0); /* its thread would see the change */
	each(chunks_from_gpu);
	barway_close(ctx);
	ctx = NULL;
	CHECK_EQ(barway_param_set("ce_pageable", "auto"), 0);
	CHECK_EQ(barway_param_set("ce_chunk", "1M"), 0);
	CHECK_EQ(barway_param_set("cache_bytes", "64M"), 0);
}

/* ---- where chunks and pieces end ------------------------------------------------------------- */

/* Sizes about the ends of the first chunks, at any alignment, blocking and started. */
static void ends_of_chunks(void)
{
	size_t chunk = (size_t)bw_param_size(BW_P_CE_CHUNK);
	uint64_t a = alloc(BYTES), random = chunk + helpers;

	if (method->id != BW_METHOD_CE) {
		CHECK_EQ(device->ops->mem_free(a), 0);
		return;
	}
	map(a, BYTES);
	for (unsigned i = 0; i < 30; i++) {
		size_t n = chunk / 4 * (1 + test_random(&random) % 9) + test_random(&random) % 5;
		size_t skew = 1 + test_random(&random) % 64, at;
		struct barway_piece piece = { .host = host + skew };
		struct barway_request *r;

		n = n - 2 < BYTES ? n - 2 : BYTES - i;
		at = test_random(&random) % (BYTES - n + 1);
		test_fill(image, n, i);
		gpu(true, a + at, image, n);
		memset(host, 0xee, n + skew + 1);
		piece.offset = at;
		piece.bytes = n;
		if (i % 3) {
			CHECK_EQ(from_by(method, host + skew, at, n), 0);
		} else {
			CHECK_EQ(barway_copy_start(handle, BARWAY_FROM_GPU, BARWAY_METHOD_CE,
						   &piece, 1, 0, &r), 0);
			CHECK_EQ(barway_request_wait(r, 20000000000), 0);
			CHECK_EQ(barway_request_free(r), 0);
		}
		CHECK(!memcmp(host + skew, image, n));
		CHECK(host[skew - 1] == 0xee && host[skew + n] == 0xee);
	}
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

/* The engine fails in the middle: when that is told, no helper writes to the memory any more. */
static void fails_with_helpers(void)
{
	uint64_t a = alloc(BYTES);

	if (method->id != BW_METHOD_CE) {
		CHECK_EQ(device->ops->mem_free(a), 0);
		return;
	}
	map(a, BYTES);
	for (unsigned nth = 1; nth < 12; nth++) {
		int ret;

		bw_fault_arm(BW_FAULT_COPY, nth);
		ret = from_by(method, host, 0, BYTES);
		bw_fault_disarm_all();
		CHECK(ret <= 0);
		memset(host, 0x77, BYTES);
		for (size_t i = 0; i < BYTES; i++)
			CHECK_EQ(host[i], 0x77);
	}
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void borders(void)
{
	static const char *const ways[][3] = { /* ce_chunk, ce_depth, ce_streaming */
		{ "4K", "2", "from" }, { "8K", "2", "none" }, { "100K", "3", "from" },
		{ "1M", "8", "none" }, { "1M", "2", "both" },
	};

	barway_close(ctx);
	ctx = NULL;
	for (unsigned w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
		rings("ring", ways[w][0], ways[w][1], ways[w][2]);
		for (helpers = 0; helpers < 5; helpers += 2) {
			each(ends_of_chunks);
			each(fails_with_helpers);
		}
	}
	helpers = 3;
	rings("auto", "1M", "8", "none");
}

/* ---- which memory is measured ---------------------------------------------------------------- */

enum { LARGE = 256 << 10, ROOM = 64 << 20 };

static struct { size_t n; uint64_t addr; const void *host; } last;
static unsigned again, elsewhere; /* large copies, on the memory of the one before or not */

static int note_copy_to(struct bw_device *dev, void *stream, uint64_t addr, const void *h, size_t n)
{
	if (n == LARGE && last.n == n && (addr == last.addr || h == last.host))
		again++;
	else if (n == LARGE && last.n == n)
		elsewhere++;
	last.n = n;
	last.addr = addr;
	last.host = h;
	return real_ops->stream_copy_to(dev, stream, addr, h, n);
}

static int until_large(void *arg, const struct bw_tune_point *point)
{
	(void)arg;
	return point->bytes == LARGE && point->method == BW_METHOD_CE ? -ECANCELED : 0;
}

/* The engine's large copies go to other memory each time, but for one to begin and one to check. */
static void measured_memory(void)
{
	struct bw_device_ops ops = *device->ops;
	struct bw_plan *plan;
	uint64_t a;
	int ret;

	if (method->id != BW_METHOD_CE)
		return;
	plan = calloc(1, sizeof(*plan));
	CHECK(plan);
	a = alloc(ROOM);
	map(a, ROOM);
	real_ops = device->ops;
	ops.stream_copy_to = note_copy_to;
	ops.stream_copy_tell = NULL;
	again = elsewhere = 0;
	device->ops = &ops;
	ret = bw_tune(m, until_large, NULL, plan);
	device->ops = real_ops;
	free(plan);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
	CHECK_EQ(ret, -ECANCELED);
	CHECK(elsewhere >= 5);
	CHECK(again <= 2);
}

static void measured(void)
{
	barway_close(ctx);
	ctx = NULL;
	helpers = 0;
	CHECK_EQ(barway_param_set("ce_pageable", "driver"), 0);
	CHECK_EQ(barway_param_set("cache_bytes", "0"), 0); /* as above */
	each(measured_memory);
	barway_close(ctx);
	ctx = NULL;
	helpers = 3;
	CHECK_EQ(barway_param_set("ce_pageable", "auto"), 0);
	CHECK_EQ(barway_param_set("cache_bytes", "64M"), 0);
}

static void bad_parameters(void)
{
	static const char *const bad[][3] = {
		{ "ce_pageable", "ringg", "auto" },
		{ "ce_chunk", "4095", "1M" },
		{ "ce_chunk", "65M", "1M" },
		{ "ce_depth", "1", "8" },
		{ "ce_depth", "17", "8" },
		{ "ce_streaming", "yes", "none" },
	};
	struct barway_context *c;

	barway_close(ctx);
	ctx = NULL;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_EQ(barway_param_set(bad[i][0], bad[i][1]), 0);
		CHECK_EQ(barway_open(NULL, &c), -EINVAL);
		CHECK_HAS(barway_errmsg(), bad[i][0]);
		CHECK_EQ(barway_param_set(bad[i][0], bad[i][2]), 0);
	}
	CHECK_EQ(barway_open(NULL, &c), 0);
	CHECK_EQ(barway_close(c), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(pinned),
		TEST(started),
		TEST(started_with_nothing),
		TEST(freed),
		TEST(many_threads),
		TEST(every_way),
		TEST(chunks),
		TEST(borders),
		TEST(measured),
		TEST(bad_parameters),
		{ 0 },
	};

	return copy_main(argc, argv, cases);
}
