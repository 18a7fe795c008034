/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole test framework. A test program is plain C: it defines a table of cases and calls
 * test_main(). Exit code 0: all passed, 1: something failed, 77: everything was skipped. It prints
 * one line per case that failed or was skipped, and a closing line "<program>: N passed, N failed,
 * N skipped" which the harness adds up.
 *
 *	static void adds(void) { CHECK(1 + 1 == 2); CHECK_EQ(1 + 1, 2); }
 *	int main(int argc, char **argv)
 *	{
 *		static const struct test_case cases[] = { TEST(adds), { 0 } };
 *		return test_main(argc, argv, cases);
 *	}
 *
 * A failed CHECK prints where and what, and ends the case (longjmp); so use CHECK in the thread
 * that runs the case only; other threads report through a variable. Arguments of the program choose
 * cases by substring. Each case runs in the order of the table, in this process.
 */
#ifndef TEST_H
#define TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sanitizers.h"

struct test_case {
	const char *name;
	void (*run)(void);
};

#define TEST(fn) { #fn, fn }

static jmp_buf test_jump;
static char test_skip_reason[512];

__attribute__((format(printf, 3, 4), noreturn, unused))
static void test_fail(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	longjmp(test_jump, 1);
}

__attribute__((format(printf, 1, 2), noreturn, unused))
static void test_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(test_skip_reason, sizeof(test_skip_reason), fmt, ap);
	va_end(ap);
	longjmp(test_jump, 2);
}

/*
 * Under a user-mode emulator: /proc shows its own memory too, it has no robust futexes and no
 * MADV_DONTFORK, and it crashes where a child of a process that has threads makes some.
 */
static inline bool emulated(void)
{
	void *head;
	size_t bytes;

	return syscall(SYS_get_robust_list, 0, &head, &bytes) && errno == ENOSYS;
}

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) test_skip(__VA_ARGS__)
#define CHECK(x) do { if (!(x)) FAIL("failed: %s", #x); } while (0)
#define CHECK_EQ(a, b) do { \
	long long a_ = (long long)(a), b_ = (long long)(b); \
	if (a_ != b_) FAIL("%s is %lld, expected %s = %lld", #a, a_, #b, b_); \
} while (0)
#define CHECK_STR(a, b) do { \
	const char *a_ = (a), *b_ = (b); \
	if (strcmp(a_, b_)) FAIL("%s is \"%s\", expected \"%s\"", #a, a_, b_); \
} while (0)
/* @haystack contains @needle */
#define CHECK_HAS(haystack, needle) do { \
	const char *h_ = (haystack), *n_ = (needle); \
	if (!strstr(h_, n_)) FAIL("%s is \"%s\", expected \"%s\" in it", #haystack, h_, n_); \
} while (0)

/* xorshift64*: random data that is the same on every machine for the same seed. */
static inline uint64_t test_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

static inline void test_fill(void *p, size_t n, uint64_t seed)
{
	unsigned char *b = p;

	seed = seed * 0x9e3779b97f4a7c15ull + 1;
	for (size_t i = 0; i < n; i++)
		b[i] = (unsigned char)(test_random(&seed) >> 32);
}

__attribute__((unused))
static int test_main(int argc, char **argv, const struct test_case *cases)
{
	const char *prog = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	volatile int passed = 0, failed = 0, skipped = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (const struct test_case *volatile c = cases; c->name; c++) {
		bool wanted = argc < 2;

		for (int i = 1; i < argc; i++)
			wanted = wanted || strstr(c->name, argv[i]);
		if (!wanted)
			continue;
		switch (setjmp(test_jump)) {
		case 0:
			c->run();
			passed++;
			break;
		case 2:
			printf("%s: %s: skipped: %s\n", prog, c->name, test_skip_reason);
			skipped++;
			break;
		default:
			printf("%s: %s: FAILED\n", prog, c->name);
			failed++;
		}
	}
	printf("%s: %d passed, %d failed, %d skipped\n", prog, passed, failed, skipped);
	return failed ? 1 : passed ? 0 : skipped ? 77 : 1;
}

#endif
