/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies by the engine, in pieces, started and on streams, with the Nth call of each kind failing,
 * for every N: an error with a sentence or the right bytes, nothing lost, and the next try works.
 */
#include <barway_soft.h>
#include <poll.h>

#include "api_test.h"
#include "core/fault.h"

#define BYTES MIB
#define MOST 600 /* no walk makes as many calls of one kind */

static const char *const kinds[] = {
	[BW_FAULT_ALLOC] = "alloc", [BW_FAULT_OPEN] = "open", [BW_FAULT_MMAP] = "mmap",
	[BW_FAULT_DEVICE_ALLOC] = "device-alloc", [BW_FAULT_COPY] = "copy",
	[BW_FAULT_THREAD] = "thread",
};

static unsigned char image[BYTES], host[BYTES], back[BYTES];
static struct barway_mapping *m;
static struct barway_soft_stream *stream;
static uint64_t memory;
static unsigned char *pinned;
static const char *step; /* of the walk */

static bool is_error(int ret)
{
	return (ret == -ENOMEM || ret == -EIO || ret == -EAGAIN || ret == -EMFILE) &&
	       *barway_errmsg();
}

/* What is in the memory is what a copy that succeeded has put there. */
static bool is_there(const unsigned char *p, size_t n)
{
	return !barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 0, n) && !memcmp(back, p, n);
}

static int one_copy(unsigned char *p, size_t n)
{
	int ret;

	step = "barway_copy_to_by";
	ret = barway_copy_to_by(m, BARWAY_METHOD_CE, 0, p, n);
	if (ret)
		return ret;
	if (!is_there(p, n))
		FAIL("%s: wrong data", step);
	step = "barway_copy_from_by";
	memcpy(image, p, n);
	memset(p, 0, n);
	ret = barway_copy_from_by(m, BARWAY_METHOD_CE, p, 0, n);
	if (!ret && memcmp(image, p, n))
		FAIL("%s: wrong data", step);
	return ret;
}

static int some_pieces(uint32_t method)
{
	struct barway_piece list[] = { { 0, host, 300000 }, { 300000, pinned, 300000 },
				       { 600000, host + 600000, 8 } };
	int ret;

	step = "barway_copy_pieces";
	ret = barway_copy_pieces(m, BARWAY_TO_GPU, method, list, N(list));
	if (ret)
		return ret;
	memcpy(image, host, 300000);
	memcpy(image + 300000, pinned, 300000);
	memcpy(image + 600000, host + 600000, 8);
	if (!is_there(image, 600008))
		FAIL("%s: wrong data", step);
	return 0;
}

static int a_request(unsigned char *p, uint32_t flags)
{
	struct barway_piece piece = { 0, p, 700000 };
	struct barway_request *none = (struct barway_request *)7, *r = none;
	int ret;

	step = "barway_copy_start";
	ret = barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, &piece, 1, flags, &r);
	if (ret) {
		CHECK(r == none);
		return ret;
	}
	step = "barway_request_wait";
	if (flags) {
		struct pollfd fd = { .fd = barway_request_fd(r), .events = POLLIN };

		CHECK_EQ(poll(&fd, 1, 30000), 1); /* told of failures, too */
	}
	ret = barway_request_wait(r, BARWAY_FOREVER);
	CHECK_EQ(barway_request_poll(r), ret);
	CHECK_EQ(barway_request_free(r), 0);
	if (!ret && !is_there(p, 700000))
		FAIL("%s: wrong data", step);
	return ret;
}

static int on_a_stream(void)
{
	int ret, end;

	step = "barway_copy_on_stream";
	ret = barway_copy_on_stream(m, BARWAY_TO_GPU, 0, pinned, 5000, stream);
	end = barway_soft_stream_sync(stream);
	if (!ret && !end && !is_there(pinned, 5000))
		FAIL("%s: wrong data", step);
	return ret ? ret : end;
}

static int walk(void)
{
	int ret;

	test_fill(host, BYTES, 1);
	test_fill(pinned, BYTES, 2);
	if ((ret = one_copy(host, 700000)) || (ret = one_copy(host, 1000)) ||
	    (ret = one_copy(pinned, 700000)) || (ret = some_pieces(BARWAY_METHOD_CE)) ||
	    (ret = some_pieces(BARWAY_METHOD_AUTO)) || (ret = a_request(host, 0)) ||
	    (ret = a_request(host, BARWAY_COPY_FD)) ||
	    (ret = a_request(pinned, BARWAY_COPY_FD)))
		return ret;
	return on_a_stream();
}

/* What is made at the first use of everything, anew: the walk begins with nothing kept. */
static void fresh(void)
{
	void *p;

	begin();
	memory = alloc(0, BYTES);
	m = map(memory, BYTES);
	OK(barway_host_alloc(gpu[0], BYTES, &p, NULL));
	pinned = p;
	OK(barway_soft_stream_create(gpu[0], &stream));
}

static void gone(void)
{
	OK(barway_soft_stream_destroy(stream));
	OK(barway_host_free(ctx, pinned));
	OK(barway_unmap(m));
	release(memory);
	OK(barway_cache_flush(ctx));
	CHECK_EQ(memory_used(0), 0);
	end();
}

static void every_call(enum bw_fault kind)
{
	unsigned n, files;
	bool fired = true;

	fresh();
	OK(walk());
	gone();
	files = (unsigned)open_files();
	for (n = 1; n < MOST && fired; n++) {
		int ret;

		fresh();
		bw_fault_arm(kind, n);
		ret = walk();
		fired = !bw_fault_pending(kind);
		bw_fault_disarm_all();
		if (ret && (!fired || !is_error(ret)))
			FAIL("%s@%u: %s: %d: %s", kinds[kind], n, step, ret, barway_errmsg());
		if (ret == -EIO || ret == -ENOMEM) /* what failed says what it was */
			CHECK(strstr(barway_errmsg(), "soft GPU") ||
			      strstr(barway_errmsg(), "memory"));
		ret = walk();
		if (ret)
			FAIL("%s@%u: and then without a fault: %s: %d: %s", kinds[kind], n, step,
			     ret, barway_errmsg());
		gone();
		CHECK_EQ(open_files(), files);
	}
	CHECK(n < MOST);
	CHECK(n > 2 || kind == BW_FAULT_DEVICE_ALLOC); /* it came up at all */
}

#define KIND(name, kind) \
	static void name(void) \
	{ \
		every_call(kind); \
	}

KIND(allocations, BW_FAULT_ALLOC)
KIND(mmaps, BW_FAULT_MMAP)
KIND(opens, BW_FAULT_OPEN)
KIND(threads, BW_FAULT_THREAD)
KIND(device_allocations, BW_FAULT_DEVICE_ALLOC)
KIND(copies, BW_FAULT_COPY)

/*
 * More requests on their way than there are streams, so that they share some, and the Nth copy
 * fails: those that say that they are done have moved their bytes.
 */
static void neighbours(void)
{
	enum { MANY = 20, EACH = BYTES / MANY / 64 * 64 };
	struct barway_request *r[MANY];
	unsigned failed = 0;

	fresh();
	for (unsigned n = 1; n <= MANY; n++) {
		int ret[MANY];

		test_fill(pinned, BYTES, n);
		memset(image, 0, BYTES);
		OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, image, BYTES));
		bw_fault_arm(BW_FAULT_COPY, n);
		for (unsigned i = 0; i < MANY; i++) {
			struct barway_piece piece = { i * EACH, pinned + i * EACH, EACH };

			r[i] = NULL;
			ret[i] = barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, &piece, 1, 0,
						   &r[i]);
		}
		for (unsigned i = 0; i < MANY; i++) {
			unsigned k = n % 2 ? i : MANY - 1 - i;

			if (!ret[k])
				ret[k] = barway_request_wait(r[k], BARWAY_FOREVER);
			if (r[k])
				OK(barway_request_free(r[k]));
			failed += ret[k] != 0;
		}
		CHECK(!bw_fault_pending(BW_FAULT_COPY));
		OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 0, BYTES));
		for (unsigned i = 0; i < MANY; i++)
			if (!ret[i] && memcmp(back + i * EACH, pinned + i * EACH, EACH))
				FAIL("copy@%u: request %u is done without its bytes", n, i);
			else if (ret[i] && ret[i] != -EIO)
				FAIL("copy@%u: request %u: %d", n, i, ret[i]);
		CHECK(failed >= n);
	}
	gone();
}

/* A kernel fails, and with it all work of the process: the engine says so, and recovers with the
 * rest. */
static void trap_kernel(struct barway_soft_block *block, void *arg)
{
	(void)arg;
	barway_soft_trap(block);
}

static void device_fails(void)
{
	struct barway_piece piece = { 0, host, BYTES };
	struct barway_request *r;
	int ret;

	fresh();
	OK(walk());
	OK(barway_soft_launch(stream, trap_kernel, 1, NULL, 0));
	CHECK_EQ(barway_soft_stream_sync(stream), -EIO);
	FAILS(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, host, BYTES), EIO, "a kernel failed");
	FAILS(barway_copy_from_by(m, BARWAY_METHOD_CE, host, 0, BYTES), EIO, "a kernel failed");
	FAILS(barway_copy_pieces(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, &piece, 1), EIO, "failed");
	ret = barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, &piece, 1, 0, &r);
	if (!ret) {
		FAILS(barway_request_wait(r, BARWAY_FOREVER), EIO, "a kernel failed");
		OK(barway_request_free(r));
	} else {
		CHECK_EQ(ret, -EIO);
	}
	OK(barway_copy_to_by(m, BARWAY_METHOD_CPU, 0, host, BYTES)); /* mappings go on */
	CHECK_EQ(barway_soft_stream_destroy(stream), -EIO);
	/* a program that destroys its streams can use the device again */
	OK(barway_soft_stream_create(gpu[0], &stream));
	OK(walk());
	/* also where there was no copy meanwhile, and the library has streams that are idle */
	OK(barway_soft_launch(stream, trap_kernel, 1, NULL, 0));
	CHECK_EQ(barway_soft_stream_sync(stream), -EIO);
	CHECK_EQ(barway_soft_stream_destroy(stream), -EIO);
	OK(barway_soft_stream_create(gpu[0], &stream));
	OK(walk());
	gone();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(allocations),
		TEST(mmaps),
		TEST(opens),
		TEST(threads),
		TEST(device_allocations),
		TEST(copies),
		TEST(neighbours),
		TEST(device_fails),
		{ 0 },
	};

	if (barway_set_log(NULL, NULL, 0))
		return 1;
	return api_main(argc, argv, cases);
}
