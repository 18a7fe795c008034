/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The resident copier over CUDA: its module, launches and streams, contexts that go, and the Nth
 * call into libcuda failing. Its kernel runs from the same source, over the fake driver's memory.
 */
#include "core/fault.h"
#include "rm_test.h"

/* What a kernel of the soft GPU calls, for one of the fake driver: these names are this file's. */
#define barway_soft_deref fake_deref
#define barway_soft_store64 fake_store64
#define barway_soft_fence fake_fence
#define barway_soft_trap fake_trap
#define barway_soft_trapped fake_trapped
#define bw_resident_kernel fake_resident_kernel
#include "copy/resident.cu"

#define BYTES (1u << 20)

static unsigned char image[BYTES], back[BYTES];
static struct barway_mapping *m;
static struct barway_device *dev;
static unsigned char *pinned;
static uint64_t mem;
static _Atomic bool trapped;

void *fake_deref(struct barway_soft_block *block, uint64_t addr, size_t bytes)
{
	void *at;

	(void)block;
	return cu.cudaFakeDeref(addr, bytes, &at) ? NULL : at;
}

void fake_store64(struct barway_soft_block *block, void *p, uint64_t v)
{
	(void)block;
	__atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}

void fake_fence(struct barway_soft_block *block)
{
	(void)block;
}

void fake_trap(struct barway_soft_block *block)
{
	(void)block;
	trapped = true;
}

int fake_trapped(const struct barway_soft_block *block)
{
	(void)block;
	return trapped;
}

static int kernel(const struct cuda_fake_block *block, void *param)
{
	if (block->count != 1 || block->threads != BW_RESIDENT_THREADS)
		return CUF_LAUNCH_FAILED;
	fake_resident_kernel(NULL, param);
	return trapped ? CUF_LAUNCH_FAILED : 0;
}

static void ready(void)
{
	void *p;

	start();
	CHECK_EQ(cu.cudaFakeKernel("bw_resident_kernel", kernel), 0);
	mem = gpu_alloc(BYTES);
	OK(barway_map(ctx, mem, BYTES, NULL, &m));
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_host_alloc(dev, BYTES, &p, NULL));
	pinned = p;
}

static void done(void)
{
	OK(barway_host_free(ctx, pinned));
	OK(barway_unmap(m));
	gpu_free(mem);
	finish();
}

static int to(size_t n)
{
	return barway_copy_to_by(m, BARWAY_METHOD_RESIDENT, 11, pinned + 3, n);
}

static void there_and_back(size_t n)
{
	test_fill(pinned + 3, n, ++seed);
	memcpy(image, pinned + 3, n);
	OK(to(n));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 11, n));
	CHECK(!memcmp(back, image, n));
	memset(pinned + 3, 0, n);
	OK(barway_copy_from_by(m, BARWAY_METHOD_RESIDENT, pinned + 3, 11, n));
	CHECK(!memcmp(pinned + 3, image, n));
}

/* From a thread that has no context, too; and it is launched again. */
static void copies(void)
{
	ready();
	OK(barway_resident_start(dev, NULL));
	for (size_t n = 1; n < BYTES - 100; n = n * 5 + 3) {
		struct timespec idle = { 0, 2000000 };

		there_and_back(n);
		CU_OK(cuCtxSetCurrent(NULL));
		nanosleep(&idle, NULL);
		there_and_back(n);
		CU_OK(cuCtxSetCurrent(primary));
	}
	OK(barway_resident_stop(dev));
	REFUSED(to(64), ENOTSUP, "barway_resident_start()");
	done();
}

/* It keeps the context of a program that lets go of it. */
static void keeps_context(void)
{
	unsigned flags;
	int active;

	ready();
	OK(barway_resident_start(dev, NULL));
	there_and_back(1000);
	OK(barway_resident_stop(dev));
	CU_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_EQ(active, 1);
	OK(barway_resident_start(dev, NULL)); /* the last context ends it */
	done();
}

/* What was made in it went with the context: an error, not a crash, and it can be started anew. */
static void context_goes(void)
{
	struct barway_resident_options o = { .size = sizeof(o), .idle_us = 1, .stay_us = 1 };
	struct timespec idle = { 0, 5000000 };
	static unsigned char own[4096];
	int ret;

	ready();
	OK(barway_resident_start(dev, &o));
	there_and_back(1000);
	nanosleep(&idle, NULL);
	CU_OK(cuDevicePrimaryCtxRelease_v2(0)); /* ours */
	CU_OK(cuDevicePrimaryCtxRelease_v2(0)); /* the copier's: as a reset takes it away */
	ret = to(64);
	CHECK(ret == -EFAULT || ret == -ENOTSUP || ret == -ENODEV);
	OK(barway_unmap(m));
	CU_OK(cuCtxSetCurrent(NULL));
	CU_OK(cuDevicePrimaryCtxRetain(&primary, 0));
	CU_OK(cuDevicePrimaryCtxRetain(&primary, 0)); /* which its stop gives back */
	CU_OK(cuCtxSetCurrent(primary));
	mem = gpu_alloc(BYTES);
	OK(barway_map(ctx, mem, BYTES, NULL, &m));
	OK(barway_host_register(dev, own, sizeof(own), NULL));
	REFUSED(barway_copy_to_by(m, BARWAY_METHOD_RESIDENT, 0, own, 64), ENODEV, "went with");
	OK(barway_copy_to(m, 0, own, 64));
	OK(barway_resident_stop(dev));
	OK(barway_resident_start(dev, NULL));
	OK(barway_copy_to_by(m, BARWAY_METHOD_RESIDENT, 0, own, 64));
	OK(barway_resident_stop(dev));
	OK(barway_host_unregister(ctx, own));
	OK(barway_unmap(m));
	gpu_free(mem);
	OK(barway_close(ctx));
}

/* The Nth call fails while it is started: an error, and the next one works. */
static void every_call(void)
{
	bool fired = true;
	unsigned nth = 1;

	ready();
	OK(barway_resident_start(dev, NULL));
	OK(barway_resident_stop(dev));
	for (; fired && nth < 300; nth++) {
		int ret;

		bw_fault_arm(BW_FAULT_CUDA, nth);
		ret = barway_resident_start(dev, NULL);
		fired = !bw_fault_pending(BW_FAULT_CUDA);
		bw_fault_disarm_all();
		if (ret)
			CHECK(*barway_errmsg() && fired);
		else
			there_and_back(5000);
		if (!ret)
			OK(barway_resident_stop(dev));
	}
	CHECK(!fired && nth > 5);
	done();
}

/* A launch that fails: nothing has moved; another method copies. */
static void launch_fails(void)
{
	struct timespec idle = { 0, 5000000 };
	unsigned failures = 0;

	ready();
	for (unsigned nth = 1; nth < 20; nth++) {
		struct barway_resident_options o = { .size = sizeof(o), .idle_us = 1,
						     .stay_us = 1 };
		int ret;

		OK(barway_resident_start(dev, &o));
		nanosleep(&idle, NULL);
		memset(image, (int)nth, 5000);
		OK(barway_copy_to_by(m, BARWAY_METHOD_CPU, 11, image, 5000));
		memset(pinned, 0xee, 6000);
		bw_fault_arm(BW_FAULT_CUDA, nth);
		ret = to(5000);
		bw_fault_disarm_all();
		if (ret) {
			CHECK(ret == -EAGAIN || ret == -EIO || ret == -EFAULT || ret == -ENODEV ||
			      ret == -ENOTSUP);
			failures++;
			OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 11, 5000));
			CHECK(!memcmp(back, image, 5000));
			OK(barway_copy_to(m, 20000, pinned, 100000));
		}
		OK(barway_resident_stop(dev));
	}
	CHECK(failures);
	done();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(copies), CASE(keeps_context), CASE(context_goes),
		CASE(every_call), CASE(launch_fails), { 0 },
	};

	return rm_main(argc, argv, cases);
}
