/* SPDX-License-Identifier: BSD-3-Clause */
/* The resident copier: copies of every shape, its comings and goings, failures. */
#include <barway_soft.h>
#include <stdatomic.h>

#include "api_test.h"
#include "copy/resident_abi.h"
#include "core/fault.h"
#include "device/soft.h"

#define BYTES (6u * MIB) /* more than one request takes */
#define GUARD 64u

static unsigned char image[BYTES], back[BYTES];
static unsigned char *pinned;
static struct barway_mapping *m;
static uint64_t memory;
static size_t room; /* bytes of it */

static void start_for(uint32_t idle_us, uint32_t stay_us)
{
	struct barway_resident_options o = { .size = sizeof(o), .idle_us = idle_us,
					     .stay_us = stay_us };

	OK(barway_resident_start(gpu[0], &o));
}

/* A context, memory of both sides, a mapping. */
static void set_up(size_t bytes)
{
	void *p;

	bw_fault_disarm_all();
	begin();
	memory = alloc(0, bytes);
	room = bytes;
	m = map(memory, bytes);
	test_fill(image, bytes, 1);
	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, image, bytes));
	OK(barway_host_alloc(gpu[0], bytes + 2 * GUARD, &p, NULL));
	pinned = p;
}

static void tear_down(void)
{
	OK(barway_unmap(m));
	OK(barway_host_free(ctx, pinned));
	release(memory);
	end();
}

static int to(size_t offset, const void *p, size_t n)
{
	return barway_copy_to_by(m, BARWAY_METHOD_RESIDENT, offset, p, n);
}

static int from(void *p, size_t offset, size_t n)
{
	return barway_copy_from_by(m, BARWAY_METHOD_RESIDENT, p, offset, n);
}

/* One copy each way; @image is what the memory holds. */
static void both_ways(size_t at, unsigned char *p, size_t n)
{
	size_t before = at < GUARD ? at : GUARD;
	size_t end = at + n + GUARD < room ? at + n + GUARD : room;

	test_fill(p, n, at + n);
	memcpy(image + at, p, n);
	OK(to(at, p, n));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, back, at - before, end - at + before));
	if (memcmp(back, image + at - before, end - at + before))
		FAIL("to: %zu bytes at %zu from %p", n, at, (void *)p);
	test_fill(image + at, n, at + n + 1);
	OK(barway_copy_to_by(m, BARWAY_METHOD_CPU, at, image + at, n));
	memset(p - GUARD, 0xee, n + 2 * GUARD);
	OK(from(p, at, n));
	if (memcmp(p, image + at, n))
		FAIL("from: %zu bytes at %zu to %p", n, at, (void *)p);
	for (unsigned i = 0; i < GUARD; i++)
		if (p[-1 - (int)i] != 0xee || p[n + i] != 0xee)
			FAIL("from: %zu bytes at %zu: bytes outside were written", n, at);
}

static void every_shape(void)
{
	static const size_t sizes[] = { 2047, 2048, 2049, 65536, 1000003, 4 * MIB, BYTES - 100 };
	uint64_t random = 11;

	set_up(BYTES);
	OK(barway_resident_start(gpu[0], NULL));
	for (size_t n = 0; n < 100; n++)
		for (unsigned skew = 0; skew < 16; skew++)
			both_ways(1000 + (skew * 5 + n) % 16, pinned + GUARD + skew, n);
	for (unsigned i = 0; i < N(sizes); i++)
		both_ways(i * 7, pinned + GUARD + i * 3 % 32, sizes[i]);
	for (unsigned i = 0; i < (SANITIZED ? 200 : 1000); i++) {
		size_t n = test_random(&random) % (i % 4 ? 700 : 70000);

		both_ways(test_random(&random) % (BYTES - n), pinned + GUARD +
			  test_random(&random) % 64, n);
	}
	OK(barway_resident_stop(gpu[0]));
	tear_down();
}

/* Any address in registered memory, whose device address is another one. */
static void registered(void)
{
	static unsigned char own[300000];

	set_up(BYTES);
	OK(barway_resident_start(gpu[0], NULL));
	FAILS(to(0, own, 100), ENOTSUP, "not pinned");
	OK(barway_host_register(gpu[0], own + 5, sizeof(own) - 10, NULL));
	for (unsigned i = 0; i < 40; i++)
		both_ways(i * 31, own + 100 + i, 1 + i * 6000);
	OK(barway_host_unregister(ctx, own + 5));
	FAILS(from(own, 0, 100), ENOTSUP, "not pinned");
	tear_down(); /* ends it, too */
}

static void checks(void)
{
	struct barway_resident_options o = { .size = sizeof(o) };
	struct { struct barway_resident_options o; uint64_t more; } longer = {
		.o.size = sizeof(longer), .more = 1,
	};
	struct barway_mapping *other;
	struct barway_device *old;
	uint64_t a;

	set_up(MIB);
	FAILS(barway_resident_stop(gpu[0]), EALREADY, "barway_resident_stop");
	FAILS(to(0, pinned, 64), ENOTSUP, "barway_resident_start()");
	o.size = 4;
	FAILS(barway_resident_start(gpu[0], &o), EINVAL, "size");
	FAILS(barway_resident_start(gpu[0], &longer.o), E2BIG, "options");
	FAILS(barway_resident_start(NULL, NULL), ESTALE, "barway_resident_start");
	FAILS(barway_resident_stop(NULL), ESTALE, "barway_resident_stop");
	OK(barway_resident_start(gpu[0], NULL));
	FAILS(barway_resident_start(gpu[0], NULL), EALREADY, "barway_resident_stop()");
	OK(to(0, pinned, 0));
	FAILS(to(MIB - 1, pinned, 2), EINVAL, "outside");
	/* each device has its own */
	a = alloc(1, MIB);
	other = map(a, MIB);
	FAILS(barway_copy_to_by(other, BARWAY_METHOD_RESIDENT, 0, pinned, 64), ENOTSUP,
	      "barway_resident_start()");
	OK(barway_resident_start(gpu[1], NULL));
	OK(barway_copy_to_by(other, BARWAY_METHOD_RESIDENT, 0, pinned, 64));
	OK(barway_resident_stop(gpu[0]));
	OK(barway_copy_to_by(other, BARWAY_METHOD_RESIDENT, 0, pinned, 64));
	FAILS(to(0, pinned, 64), ENOTSUP, "barway_resident_start()");
	OK(barway_unmap(other));
	release(a);
	old = gpu[1];
	tear_down();
	begin(); /* the last context ended it */
	FAILS(barway_resident_stop(old), ESTALE, "barway_resident_stop");
	FAILS(barway_resident_stop(gpu[1]), EALREADY, "resident");
	end();
}

/* ---- coming and going ------------------------------------------------------------------------ */

/* Freeing pinned memory waits for kernels: how long does it? */
static double wait_for_kernels(void)
{
	double began;
	void *p;

	OK(barway_host_alloc(gpu[0], 4096, &p, NULL));
	OK(to(0, pinned, 64)); /* it is there */
	began = seconds();
	OK(barway_host_free(ctx, p));
	return seconds() - began;
}

static void leaves(void)
{
	double waited;

	set_up(MIB);
	start_for(100, 0);
	for (unsigned i = 0; i < 60; i++) {
		both_ways(i * 100, pinned + GUARD, 1000 + i);
		if (i % 3)
			sleep_ms(i % 5); /* gone, mostly: the next one launches it */
	}
	OK(barway_resident_stop(gpu[0]));
	/* it leaves because nothing is to do ... */
	start_for(2000, 60000000);
	waited = wait_for_kernels();
	if (waited > 5)
		FAIL("idle for 2 ms, it stayed %.3f s", waited);
	OK(barway_resident_stop(gpu[0]));
	/* ... or because it has been there long enough */
	start_for(60000000, 300000);
	waited = wait_for_kernels();
	if (waited > 5 || waited < 0.01)
		FAIL("to stay 300 ms, it stayed %.3f s", waited);
	OK(barway_resident_stop(gpu[0]));
	/* and goes at once when it is stopped */
	start_for(60000000, 60000000);
	OK(to(0, pinned, 64));
	waited = seconds();
	OK(barway_resident_stop(gpu[0]));
	CHECK(seconds() - waited < 5);
	tear_down();
}

/* It stays so short that it goes between any two copies, while others ask for it. */
static void comes_back(void)
{
	set_up(MIB);
	start_for(1, 1);
	for (unsigned i = 0; i < 300; i++)
		both_ways(i * 3, pinned + GUARD + i % 16, 1 + i * 9);
	OK(barway_resident_stop(gpu[0]));
	tear_down();
}

/* It sees what this thread has stored, and what it has stored this thread sees. */
static void order(void)
{
	volatile uint64_t *p;

	set_up(MIB);
	p = barway_mapping_ptr(m);
	OK(barway_resident_start(gpu[0], NULL));
	for (uint64_t i = 1; i < 3000; i++) {
		volatile uint64_t *host = (volatile uint64_t *)(void *)pinned;

		p[i % 512] = i;
		OK(from(pinned, i % 512 * 8, 8));
		CHECK_EQ(*host, i);
		*host = i * 3;
		OK(to(4096 + i % 512 * 8, pinned, 8));
		CHECK_EQ(p[512 + i % 512], i * 3);
	}
	tear_down();
}

/* ---- many at once ---------------------------------------------------------------------------- */

enum { THREADS = 6, SHARE = 256 * 1024 };
static _Atomic unsigned refused, done;
static _Atomic bool over;

static void *copy_own(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg * SHARE;
	uint64_t random = at + 3;
	unsigned char *p = pinned + at;

	while (!over) {
		size_t most = test_random(&random) % 8 ? 3000 : SHARE - 64;
		size_t n = 1 + test_random(&random) % most;
		size_t skew = test_random(&random) % 64;
		int ret;

		test_fill(p + skew, n, n);
		memcpy(image + at, p + skew, n);
		ret = to(at + skew, p + skew, n);
		if (!ret) {
			memset(p + skew, 0, n);
			ret = from(p + skew, at + skew, n);
			if (!ret && memcmp(p + skew, image + at, n))
				return "wrong data";
		}
		if (ret && ret != -ENOTSUP)
			return "an error";
		ret ? refused++ : done++;
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS];
	void *why[THREADS];

	set_up(THREADS * SHARE);
	refused = done = 0;
	over = false;
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, copy_own, (void *)i), 0);
	for (unsigned i = 0; i < 30; i++) {
		start_for(i % 2 ? 50 : 0, i % 3 ? 0 : 500);
		for (unsigned n = done; done < n + 20;)
			sched_yield();
		OK(barway_resident_stop(gpu[0]));
	}
	over = true;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], &why[i]);
	for (unsigned i = 0; i < THREADS; i++)
		if (why[i])
			FAIL("thread %u: %s", i, (char *)why[i]);
	CHECK(refused && done >= 30 * 20);
	tear_down();
}

/* ---- started --------------------------------------------------------------------------------- */

static struct barway_request *start_copy(uint32_t direction, size_t at, size_t n)
{
	struct barway_piece piece = { .offset = at, .host = pinned + at, .bytes = n };
	struct barway_request *request;

	OK(barway_copy_start(m, direction, BARWAY_METHOD_RESIDENT, &piece, 1, 0, &request));
	return request;
}

static void started(void)
{
	enum { EACH = 40000, MANY = 50 };
	struct barway_request *request[MANY];

	set_up(MANY * EACH);
	OK(barway_resident_start(gpu[0], NULL));
	for (unsigned way = 0; way < 4; way++) {
		uint32_t direction = way % 2 ? BARWAY_FROM_GPU : BARWAY_TO_GPU;

		test_fill(image, MANY * EACH, way);
		if (way % 2)
			gpu_write(memory, image, MANY * EACH);
		else
			memcpy(pinned, image, MANY * EACH);
		for (unsigned i = 0; i < MANY; i++)
			request[i] = start_copy(direction, i * EACH, EACH);
		if (way >= 2) /* under way, or not begun: they are finished */
			OK(barway_resident_stop(gpu[0]));
		for (unsigned i = 0; i < MANY; i++) {
			OK(barway_request_wait(request[(i * 7) % MANY], BARWAY_FOREVER));
			OK(barway_request_free(request[(i * 7) % MANY]));
		}
		if (way % 2)
			memcpy(back, pinned, MANY * EACH);
		else
			gpu_read(back, memory, MANY * EACH);
		CHECK(!memcmp(back, image, MANY * EACH));
		if (way >= 2)
			OK(barway_resident_start(gpu[0], NULL));
	}
	/* a context that closes waits for them */
	request[0] = start_copy(BARWAY_TO_GPU, 0, MANY * EACH);
	OK(barway_unmap(m));
	end();
	begin();
	end();
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void freed(void)
{
	uint64_t b;

	set_up(MIB);
	OK(barway_resident_start(gpu[0], NULL));
	OK(to(0, pinned, 5000));
	release(memory);
	b = alloc(0, MIB);
	memset(back, 7, 5000);
	gpu_write(b, back, 5000);
	memset(pinned, 0xee, 5000);
	FAILS(from(pinned, 0, 5000), EFAULT, "freed");
	for (unsigned i = 0; i < 5000; i++)
		CHECK_EQ(pinned[i], 0xee);
	FAILS(to(0, pinned, 5000), EFAULT, "freed");
	gpu_read(image, b, 5000);
	CHECK(!memcmp(image, back, 5000));
	memory = b;
	tear_down();
}

static void trap(struct barway_soft_block *block, void *arg)
{
	(void)arg;
	barway_soft_trap(block);
}

/* Memory that a request of the copier is about to read goes: it ends, and so does a stop. */
static void memory_goes(void)
{
	unsigned char *own = aligned_alloc(4096, BYTES);
	struct barway_piece piece = { .bytes = BYTES };
	struct barway_request *by_ce, *request;
	int ret;

	CHECK(own);
	for (int round = 0; round < 3; round++) {
		set_up(BYTES);
		OK(barway_host_register(gpu[0], own, BYTES, NULL));
		OK(barway_resident_start(gpu[0], NULL));
		piece.host = image;
		OK(barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, &piece, 1, 0, &by_ce));
		piece.host = own;
		OK(barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_RESIDENT, &piece, 1, 0,
				     &request));
		OK(barway_host_unregister(ctx, own));
		ret = barway_request_wait(by_ce, 20000000000u);
		CHECK(ret == 0 || ret == -EIO);
		OK(barway_request_free(by_ce));
		ret = barway_request_wait(request, 20000000000u);
		if (ret && ret != -EIO)
			FAIL("%d: %s", ret, barway_errmsg());
		OK(barway_request_free(request));
		OK(barway_resident_stop(gpu[0]));
		tear_down();
	}
	free(own);
}

/* Another kernel fails: nobody waits for ever, the error is the device's, and it ends. */
static void device_fails(void)
{
	struct barway_request *request;
	struct barway_soft_stream *stream;

	set_up(MIB);
	OK(barway_resident_start(gpu[0], NULL));
	OK(barway_soft_stream_create(gpu[0], &stream));
	OK(to(0, pinned, 64));
	OK(barway_soft_launch(stream, trap, 1, NULL, 0));
	while (barway_soft_stream_query(stream) == -EBUSY)
		sched_yield();
	sleep_ms(20); /* it has left */
	request = NULL;
	for (unsigned i = 0; i < 3; i++) {
		int ret = to(0, pinned, 64);

		if (ret != -EIO && ret != -ENOTSUP)
			FAIL("%d: %s", ret, barway_errmsg());
		CHECK_HAS(barway_errmsg(), "failed");
	}
	(void)request;
	/* one CPU thread copies, which the device's failure does not keep from it */
	test_fill(pinned, 20000, 4);
	OK(barway_copy_to(m, 0, pinned, 20000));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 0, 20000));
	CHECK(!memcmp(back, pinned, 20000));
	OK(barway_resident_stop(gpu[0]));
	barway_soft_stream_destroy(stream);
	barway_close(ctx);
	ctx = NULL;
	/* when nobody has a stream there any more it works again */
	set_up(MIB);
	OK(barway_resident_start(gpu[0], NULL));
	both_ways(5, pinned + GUARD, 70000);
	tear_down();
}

/* The launch fails: nothing has moved, and nothing does later. */
static void launch_fails(void)
{
	unsigned failures = 0;

	set_up(MIB);
	for (unsigned nth = 1; nth < 6; nth++) {
		int ret;

		start_for(1, 1);
		sleep_ms(10); /* it has left */
		memset(pinned, 1, 8192);
		OK(barway_copy_to_by(m, BARWAY_METHOD_CPU, 0, pinned, 8192));
		memset(pinned, 2, 8192);
		bw_fault_arm(BW_FAULT_ALLOC, nth);
		ret = to(0, pinned, 8192);
		bw_fault_disarm_all();
		if (ret) {
			failures++;
			CHECK_EQ(ret, -EAGAIN);
			CHECK_HAS(barway_errmsg(), "start it again");
			FAILS(to(0, pinned, 8192), ENOTSUP, "failed");
			OK(barway_copy_to(m, 20000, pinned, 100000)); /* by another method */
		}
		OK(barway_resident_stop(gpu[0]));
		OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 0, 8192));
		for (unsigned i = 0; i < 8192; i++)
			CHECK_EQ(back[i], ret ? 1 : 2);
	}
	CHECK(failures);
	tear_down();
}

/* ---- a launch that is late ------------------------------------------------------------------- */

static struct bw_device_ops late_ops;
static _Atomic bool entered, go, returned;
static _Thread_local bool in_vain;

/* Of one thread: as if a kernel came and left. Of others: late. */
static int late_launch(struct bw_device *dev, void *stream, void *loaded, unsigned blocks,
		       unsigned threads_, const void *param_, size_t bytes)
{
	const struct bw_resident_param *p = param_;

	if (in_vain) {
		uint64_t *left = bw_soft_view(dev, p->channel.host + BARWAY_HOST_LEFT, 8);

		CHECK(left);
		__atomic_add_fetch(left, 1, __ATOMIC_RELEASE);
		return 0;
	}
	entered = true;
	while (!go)
		sched_yield();
	return bw_soft_ops.kernel_launch(dev, stream, loaded, blocks, threads_, param_, bytes);
}

/* Says that the device failed while a launch is under way. */
static int late_alive(struct bw_device *dev, void *owner)
{
	return entered ? bw_err(EIO, "failed, for a test") : bw_soft_ops.alive(dev, owner);
}

static void *copy_late(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)from(pinned, 0, 64);
}

static void *copy_in_vain(void *arg)
{
	int ret;

	(void)arg;
	in_vain = true;
	ret = from(pinned + 4096, 4096, 64);
	returned = true;
	return (void *)(intptr_t)ret;
}

/* A copy that waits gives up while another one launches: no kernel may write any more then. */
static void launch_is_late(void)
{
	struct bw_device *dev = bw_soft_device(0);
	const struct bw_device_ops *ops;
	pthread_t first, second;
	unsigned char seen[64];
	void *ret;

	set_up(MIB);
	ops = dev->ops;
	late_ops = *ops;
	late_ops.kernel_launch = late_launch;
	late_ops.alive = late_alive;
	entered = go = returned = false;
	start_for(1, 1);
	sleep_ms(20); /* it has left */
	memset(pinned, 0xee, 8192);
	dev->ops = &late_ops;
	CHECK_EQ(pthread_create(&first, NULL, copy_in_vain, NULL), 0);
	sleep_ms(20);
	CHECK_EQ(pthread_create(&second, NULL, copy_late, NULL), 0);
	while (!entered)
		sched_yield();
	sleep_ms(100);
	CHECK(!returned); /* it waits for the launch */
	go = true;
	CHECK_EQ(pthread_join(first, &ret), 0);
	memcpy(seen, pinned + 4096, 64);
	CHECK(ret || !memcmp(seen, image + 4096, 64));
	CHECK_EQ(pthread_join(second, NULL), 0);
	sleep_ms(20);
	CHECK(!memcmp(seen, pinned + 4096, 64));
	dev->ops = ops;
	OK(barway_resident_stop(gpu[0]));
	tear_down();
}

/* The Nth call of each kind fails while it is started: an error, nothing kept, the next works. */
static void start_fails(void)
{
	static const enum bw_fault kinds[] = { BW_FAULT_ALLOC, BW_FAULT_MMAP, BW_FAULT_THREAD,
					       BW_FAULT_DEVICE_ALLOC, BW_FAULT_APERTURE };
	uint64_t used, bar1;

	set_up(MIB);
	OK(barway_resident_start(gpu[0], NULL)); /* what is made once */
	OK(barway_resident_stop(gpu[0]));
	used = memory_used(0);
	bar1 = bar1_used(0);
	for (unsigned k = 0; k < N(kinds); k++) {
		unsigned nth = 1;
		bool fired = true;

		for (; fired && nth < 60; nth++) {
			int ret;

			bw_fault_arm(kinds[k], nth);
			ret = barway_resident_start(gpu[0], NULL);
			fired = !bw_fault_pending(kinds[k]);
			bw_fault_disarm_all();
			if (ret)
				CHECK(*barway_errmsg() && fired);
			else
				OK(barway_resident_stop(gpu[0]));
			CHECK_EQ(memory_used(0), used);
			CHECK_EQ(bar1_used(0), bar1);
		}
		CHECK(!fired);
		CHECK(nth > 2 || kinds[k] == BW_FAULT_MMAP);
	}
	OK(barway_resident_start(gpu[0], NULL));
	both_ways(9, pinned + GUARD + 3, 5000);
	tear_down();
}

/* ---- the plan, releases, fork ---------------------------------------------------------------- */

static struct barway_plan_info plan_of(uint32_t direction, const void *host, size_t n)
{
	struct barway_plan_info info = { .size = sizeof(info) };

	OK(barway_plan(m, direction, 0, host, n, &info));
	return info;
}

static void planned(void)
{
	set_up(MIB);
	CHECK_HAS(plan_of(BARWAY_FROM_GPU, pinned, 16384).reason, "barway_resident_start()");
	CHECK(plan_of(BARWAY_FROM_GPU, pinned, 16384).method != BARWAY_METHOD_RESIDENT);
	CHECK_EQ(plan_of(BARWAY_FROM_GPU, pinned, 8192).method, BARWAY_METHOD_CE);
	OK(barway_resident_start(gpu[0], NULL));
	CHECK_EQ(plan_of(BARWAY_FROM_GPU, pinned, 16384).method, BARWAY_METHOD_RESIDENT);
	CHECK_EQ(plan_of(BARWAY_FROM_GPU, pinned, 8192).method, BARWAY_METHOD_RESIDENT);
	/* it would gain something, but not 15 percent */
	CHECK_EQ(plan_of(BARWAY_FROM_GPU, pinned, MIB / 2).method, BARWAY_METHOD_CE);
	CHECK_HAS(plan_of(BARWAY_FROM_GPU, pinned, MIB / 2).reason, "less than 15 %");
	CHECK_EQ(plan_of(BARWAY_FROM_GPU, pinned, 64).method, BARWAY_METHOD_CPU);
	CHECK(plan_of(BARWAY_FROM_GPU, image, 16384).method != BARWAY_METHOD_RESIDENT);
	test_fill(pinned, 16384, 9);
	memcpy(image, pinned, 16384);
	OK(barway_copy_to(m, 0, pinned, 16384));
	memset(pinned, 0, 16384);
	OK(barway_copy_from(m, pinned, 0, 16384));
	CHECK(!memcmp(pinned, image, 16384));
	tear_down();
}

static void released(void)
{
	set_up(MIB);
	OK(barway_resident_start(gpu[0], NULL));
	both_ways(0, pinned + GUARD, 64);
	OK(barway_unmap(m));
	OK(barway_release_all(ctx, 0));
	FAILS(barway_resident_stop(gpu[0]), EALREADY, "resident");
	m = map(memory, MIB);
	OK(barway_resident_start(gpu[0], NULL));
	both_ways(3, pinned + GUARD, 3000);
	tear_down();
}

static void forked(void)
{
	int status;
	pid_t pid;

	set_up(MIB);
	OK(barway_resident_start(gpu[0], NULL));
	OK(to(0, pinned, 64));
	pid = fork();
	if (!pid) {
		is_child = true;
		if (to(0, image, 64) != -ESTALE || barway_resident_stop(gpu[0]) != -ESTALE)
			_exit(1);
		if (TSAN) /* it allows no threads here */
			_exit(0);
		ctx = NULL;
		set_up(MIB);
		if (barway_resident_stop(gpu[0]) != -EALREADY ||
		    barway_resident_start(gpu[0], NULL))
			_exit(2);
		_exit(to(0, pinned, 5000) ? 3 : barway_close(ctx) ? 4 : 0);
	}
	CHECK(pid > 0);
	for (unsigned i = 0; i < 100; i++)
		both_ways(i, pinned + GUARD, 1000);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	both_ways(1, pinned + GUARD, 10000);
	tear_down();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(every_shape), TEST(registered), TEST(checks), TEST(leaves), TEST(comes_back),
		TEST(order), TEST(threads), TEST(started), TEST(freed), TEST(memory_goes),
		TEST(device_fails),
		TEST(launch_fails), TEST(launch_is_late), TEST(start_fails), TEST(planned),
		TEST(released), TEST(forked),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
