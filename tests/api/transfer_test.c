/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and fences: bounds, bytes, and that the copy path asks nothing of the system. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "api_test.h"

#define BYTES (2u * GRANULE)

static unsigned char image[BYTES], host[BYTES + 256], back[BYTES];

/* ---- bounds -------------------------------------------------------------------------------- */

typedef int copy_to_fn(struct barway_mapping *m, size_t offset, const void *src, size_t bytes);
typedef int copy_from_fn(struct barway_mapping *m, void *dst, size_t offset, size_t bytes);

static int to_by_cpu(struct barway_mapping *m, size_t offset, const void *src, size_t bytes)
{
	return barway_copy_to_by(m, BARWAY_METHOD_CPU, offset, src, bytes);
}

static int to_by_ce(struct barway_mapping *m, size_t offset, const void *src, size_t bytes)
{
	return barway_copy_to_by(m, BARWAY_METHOD_CE, offset, src, bytes);
}

static int from_by_cpu(struct barway_mapping *m, void *dst, size_t offset, size_t bytes)
{
	return barway_copy_from_by(m, BARWAY_METHOD_CPU, dst, offset, bytes);
}

static int from_by_ce(struct barway_mapping *m, void *dst, size_t offset, size_t bytes)
{
	return barway_copy_from_by(m, BARWAY_METHOD_CE, dst, offset, bytes);
}

static const struct {
	copy_to_fn *to;
	copy_from_fn *from;
} ways[] = {
	{ barway_copy_to, barway_copy_from },
	{ to_by_cpu, from_by_cpu },
	{ to_by_ce, from_by_ce },
};

static void bounds(void)
{
	static const size_t outside[][2] = {
		{ 1000, 1 },
		{ 999, 2 },
		{ 0, 1001 },
		{ 1001, 0 },
		{ 1001, 1 },
		{ SIZE_MAX, 1 },
		{ 1, SIZE_MAX },
		{ SIZE_MAX, SIZE_MAX },
		{ 500, SIZE_MAX - 499 },
		{ SIZE_MAX - 3, 4 },
		{ SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1 },
	};
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	test_fill(image, GRANULE, 1);
	gpu_write(a, image, GRANULE);
	m = map(a + 30, 1000);
	for (unsigned w = 0; w < N(ways); w++) {
		for (unsigned i = 0; i < N(outside); i++) {
			FAILS(ways[w].to(m, outside[i][0], host, outside[i][1]), EINVAL, "outside");
			memset(host, 9, 1);
			FAILS(ways[w].from(m, host, outside[i][0], outside[i][1]), EINVAL,
			      "1000 bytes");
			CHECK_EQ(host[0], 9);
		}
		FAILS(ways[w].to(m, 0, NULL, 1), EINVAL, "NULL");
		FAILS(ways[w].from(m, NULL, 0, 1), EINVAL, "NULL");
		/* 0 bytes do nothing */
		OK(ways[w].to(m, 0, NULL, 0));
		OK(ways[w].from(m, NULL, 0, 0));
		OK(ways[w].to(m, 1000, host, 0));
		OK(ways[w].from(m, host, 1000, 0));
		CHECK_EQ(host[0], 9);
	}
	OK(barway_flush(m));
	OK(barway_unmap(m));
	gpu_read(back, a, GRANULE);
	CHECK(!memcmp(back, image, GRANULE));
	release(a);
	end();
}

static void unknown_method(void)
{
	static const uint32_t unknown[] = { 5, 99, UINT32_MAX };
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	m = map(a, 10);
	for (unsigned i = 0; i < N(unknown); i++) {
		char number[32];

		snprintf(number, sizeof(number), "method %u", unknown[i]);
		FAILS(barway_copy_to_by(m, unknown[i], 0, host, 1), ENOTSUP, number);
		FAILS(barway_copy_from_by(m, unknown[i], host, 0, 1), ENOTSUP, number);
	}
	OK(barway_unmap(m));
	release(a);
	end();
}

/* ---- bytes --------------------------------------------------------------------------------- */

static void copies(void)
{
	uint64_t a, random = 12;

	begin();
	a = alloc(1, BYTES);
	test_fill(image, BYTES, 2);
	gpu_write(a, image, BYTES);
	for (unsigned i = 0; i < 600; i++) {
		size_t n = i < 300 ? i : test_random(&random) % (i < 550 ? 5000 : 70000);
		size_t at = test_random(&random) % (BYTES - n), skew = test_random(&random) % 128;
		size_t start = test_random(&random) % (at + 1);
		struct barway_mapping *m = map(a + start, BYTES - start);
		unsigned w = i % N(ways);
		size_t from = at < 200 ? 0 : at - 200,
		       to = BYTES - at - n < 200 ? BYTES : at + n + 200;

		test_fill(host + skew, n, i);
		memcpy(image + at, host + skew, n);
		OK(ways[w].to(m, at - start, host + skew, n));
		OK(barway_flush(m));
		gpu_read(back + from, a + from, to - from); /* and nothing outside */
		if (memcmp(back + from, image + from, to - from))
			FAIL("way %u: to: %zu bytes at %zu", w, n, at);
		memset(host, 0xee, sizeof(host));
		OK(ways[w].from(m, host + skew, at - start, n));
		if (memcmp(host + skew, image + at, n))
			FAIL("way %u: from: %zu bytes at %zu", w, n, at);
		for (size_t k = 0; k < skew; k++)
			CHECK_EQ(host[k], 0xee);
		for (size_t k = skew + n; k < skew + n + 128; k++)
			CHECK_EQ(host[k], 0xee);
		OK(barway_unmap(m));
	}
	release(a);
	end();
}

/* An aligned copy of 1, 2, 4 or 8 bytes is one store and one load: a reader sees old or new. */
static struct barway_mapping *whole;
static atomic_bool stop;

static void *flipper(void *arg)
{
	static const uint64_t ones = UINT64_MAX, zeroes;

	for (unsigned i = 0; !stop; i++)
		for (unsigned n = 1; n <= 8; n *= 2)
			if (barway_copy_to(whole, n * 8, i % 2 ? &ones : &zeroes, n))
				return "copy";
	return arg;
}

static void whole_words(void)
{
	void *wrong;
	pthread_t t;
	uint64_t a;

	begin();
	a = alloc(0, PAGE);
	whole = map(a, PAGE);
	memset(image, 0, PAGE);
	OK(barway_copy_to(whole, 0, image, PAGE));
	stop = false;
	CHECK_EQ(pthread_create(&t, NULL, flipper, NULL), 0);
	for (unsigned i = 0; i < 100000; i++)
		for (unsigned n = 1; n <= 8; n *= 2) {
			uint64_t v = 0, want = UINT64_MAX >> (64 - 8 * n);

			if (barway_copy_from(whole, &v, n * 8, n) || (v && v != want)) {
				stop = true;
				pthread_join(t, &wrong);
				FAIL("%u bytes are torn: %llx", n, (unsigned long long)v);
			}
		}
	stop = true;
	pthread_join(t, &wrong);
	CHECK(!wrong);
	OK(barway_unmap(whole));
	release(a);
	end();
}

/* ---- fences -------------------------------------------------------------------------------- */

static void fences(void)
{
	struct barway_mapping *m;
	volatile uint64_t *p;
	uint64_t a, v;

	barway_fence_publish(); /* also before anything is open */
	barway_fence_mixed();
	barway_fence_read();
	begin();
	a = alloc(0, PAGE);
	m = map(a, PAGE);
	p = barway_mapping_ptr(m);
	for (uint64_t i = 1; i < 1000; i++) {
		p[0] = i;
		barway_fence_publish();
		p[1] = i;
		barway_fence_publish();
		OK(barway_flush(m));
		barway_fence_read();
		CHECK_EQ(p[1], i);
		OK(barway_copy_from(m, &v, 0, sizeof(v)));
		CHECK_EQ(v, i);
		barway_fence_mixed();
	}
	OK(barway_unmap(m));
	FAILS(barway_flush(m), ESTALE, "closed before");
	release(a);
	end();
}

/* ---- nothing but data ---------------------------------------------------------------------- */

#if defined(__GLIBC__) && !SANITIZED
#define COUNTS_ALLOCATIONS 1
static _Thread_local bool counting;
static _Thread_local unsigned allocations;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

void *malloc(size_t bytes)
{
	allocations += counting;
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	allocations += counting;
	return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
	allocations += counting;
	return __libc_realloc(p, bytes);
}

void free(void *p)
{
	allocations += counting && p;
	__libc_free(p);
}
#else
#define COUNTS_ALLOCATIONS 0
static bool counting;
static unsigned allocations;
#endif

static struct barway_mapping *busy;

/* Everything that "does not block"; also what fails. */
static bool copy_path(unsigned times)
{
	bool good = true;

	for (unsigned i = 0; i < times; i++) {
		size_t n = i % 5000, at = i * 7 % 3000;

		good = good && !barway_copy_to(busy, at, host + i % 64, n);
		good = good && !barway_copy_from(busy, back, at, n);
		good = good && !memcmp(back, host + i % 64, n);
		good = good && !barway_copy_to_by(busy, BARWAY_METHOD_CPU, at, host, n);
		good = good && !barway_copy_from_by(busy, BARWAY_METHOD_CPU, back, at, n);
		good = good && !barway_flush(busy);
		good = good && barway_mapping_ptr(busy) && barway_version() && barway_errmsg();
		barway_fence_publish();
		barway_fence_mixed();
		barway_fence_read();
	}
	return good;
}

static void no_allocation(void)
{
	uint64_t a;
	bool good;

	if (!COUNTS_ALLOCATIONS)
		SKIP("malloc is not this program's to count");
	begin();
	a = alloc(0, GRANULE);
	allocations = 0;
	counting = true;
	busy = map(a, 10000);
	counting = false;
	CHECK(allocations); /* they are counted */
	allocations = 0;
	counting = true;
	good = copy_path(10000);
	counting = false;
	CHECK(good);
	CHECK_EQ(allocations, 0);
	OK(barway_unmap(busy));
	release(a);
	end();
}

static bool filter_on(void)
{
	struct sock_filter allow_exit[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { N(allow_exit), allow_exit };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

enum { DID_ALL = 42, NO_FILTER, WRONG };

static void only_filter(void)
{
	_exit(filter_on() ? DID_ALL : NO_FILTER);
}

static void any_call(void)
{
	_exit(filter_on() && getppid() ? WRONG : NO_FILTER);
}

static void copies_filtered(void)
{
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	busy = map(a, 10000);
	copy_path(10); /* the pages are there */
	_exit(!filter_on() ? NO_FILTER : copy_path(10000) ? DID_ALL : WRONG);
}

static void no_system_call(void)
{
	if (SANITIZED)
		SKIP("sanitizers make system calls of their own");
	if (in_child(only_filter) != DID_ALL || in_child(any_call) != 128 + SIGSYS)
		SKIP("no seccomp filters here");
	CHECK_EQ(in_child(copies_filtered), DID_ALL);
}

/* Copies are not counted, and write no line even at debug level. */
static unsigned lines;

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	(void)text;
	lines++;
}

static void no_trace(void)
{
	struct barway_counters before, after;
	uint64_t a;

	begin();
	a = alloc(0, GRANULE);
	busy = map(a, 10000);
	OK(barway_set_log(hear, NULL, BARWAY_LOG_DEBUG));
	lines = 0;
	before = counters();
	CHECK(copy_path(1000));
	after = counters();
	CHECK(!memcmp(&before, &after, sizeof(before)));
	CHECK_EQ(lines, 0);
	OK(barway_set_log(NULL, NULL, BARWAY_LOG_WARN));
	OK(barway_unmap(busy));
	release(a);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(bounds),
		TEST(unknown_method),
		TEST(copies),
		TEST(whole_words),
		TEST(fences),
		TEST(no_allocation),
		TEST(no_system_call),
		TEST(no_trace),
		{ 0 },
	};

	test_fill(host, sizeof(host), 3);
	return api_main(argc, argv, cases);
}
