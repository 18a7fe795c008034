/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the public interface share: two small soft GPUs, a context, faults, counts. */
#ifndef TEST_API_H
#define TEST_API_H

#include <barway.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "held.h"
#include "sanitized_child.h"
#include "test.h"

#define N(x) (sizeof(x) / sizeof((x)[0]))
#define KIB 1024u
#define MIB (1024u * 1024u)
#define PAGE 4096u
#define GRANULE 65536u /* of the soft GPU */
#define MEMORY (64u * MIB)
#define BAR1 (8u * MIB)

#define OK(call) do { \
	int ret_ = (call); \
	if (ret_) FAIL("%s: %d: %s", #call, ret_, barway_errmsg()); \
} while (0)

/* @call fails with -@err and a sentence that has @text in it. */
#define FAILS(call, err, text) \
	do { \
		int ret_ = (call); \
		if (ret_ != -(err)) \
			FAIL("%s is %d (%s), expected -%s", #call, ret_, \
			     ret_ ? barway_errmsg() : "", #err); \
		CHECK_HAS(barway_errmsg(), text); \
	} while (0)

static struct barway_context *ctx;
static struct barway_device *gpu[2];

static inline void param(const char *name, const char *value)
{
	OK(barway_param_set(name, value));
}

/* A context with both GPUs, after what a failed case left is gone. */
static inline void begin_cache(const char *bytes, const char *ms, const char *sweep_ms)
{
	if (ctx)
		barway_close(ctx);
	ctx = NULL;
	param("cache_bytes", bytes);
	param("cache_ms", ms);
	param("cache_sweep_ms", sweep_ms);
	OK(barway_open(NULL, &ctx));
	CHECK_EQ(barway_device_count(ctx), 2);
	OK(barway_device_get(ctx, 0, &gpu[0]));
	OK(barway_device_get(ctx, 1, &gpu[1]));
}

static inline void begin(void)
{
	begin_cache("64M", "10000", "100");
}

static inline void end(void)
{
	OK(barway_close(ctx));
	ctx = NULL;
}

static inline uint64_t alloc(unsigned device, size_t bytes)
{
	uint64_t addr = 0;

	OK(barway_mem_alloc(gpu[device], bytes, &addr));
	CHECK(addr);
	return addr;
}

static inline void release(uint64_t addr)
{
	OK(barway_mem_free(ctx, addr));
}

static inline struct barway_mapping *map(uint64_t addr, size_t bytes)
{
	struct barway_mapping *m = NULL;

	OK(barway_map(ctx, addr, bytes, NULL, &m));
	CHECK(m);
	return m;
}

static inline struct barway_mapping *map_uncached(uint64_t addr, size_t bytes)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping *m = NULL;

	OK(barway_map(ctx, addr, bytes, &o, &m));
	return m;
}

/* By the copy engine and a mapping of their own: what is in the memory, whoever asks. */
static inline void gpu_write(uint64_t addr, const void *src, size_t n)
{
	struct barway_mapping *m = map_uncached(addr, n);

	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, src, n));
	OK(barway_unmap(m));
}

static inline void gpu_read(void *dst, uint64_t addr, size_t n)
{
	struct barway_mapping *m = map_uncached(addr, n);

	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, dst, 0, n));
	OK(barway_unmap(m));
}

static inline struct barway_counters counters(void)
{
	struct barway_counters c = { .size = sizeof(c) };

	OK(barway_counters_get(ctx, &c));
	return c;
}

static inline struct barway_mapping_info info_of(struct barway_mapping *m)
{
	struct barway_mapping_info i = { .size = sizeof(i) };

	OK(barway_mapping_query(m, &i));
	return i;
}

static inline struct barway_device_info device_info(unsigned device)
{
	struct barway_device_info i = { .size = sizeof(i) };

	OK(barway_device_query(gpu[device], &i));
	return i;
}

static inline uint64_t bar1_used(unsigned device)
{
	struct barway_device_info i = device_info(device);

	return i.bar1_total - i.bar1_free;
}

static inline uint64_t memory_used(unsigned device)
{
	struct barway_device_info i = device_info(device);

	return i.memory_total - i.memory_free;
}

static inline double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void sleep_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

/* ---- faults -------------------------------------------------------------------------------- */

static sigjmp_buf fault_jump;

static inline void on_fault(int sig)
{
	(void)sig;
	siglongjmp(fault_jump, 1);
}

/* Does a load, or a store, at @p fault? */
static inline bool faults_by(volatile unsigned char *p, bool store)
{
	struct sigaction act = { .sa_handler = on_fault }, segv, bus;
	volatile bool fault = true;

	sigaction(SIGSEGV, &act, &segv);
	sigaction(SIGBUS, &act, &bus);
	if (!sigsetjmp(fault_jump, 1)) {
		if (store)
			*p = 1;
		else
			(void)*p;
		fault = false;
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return fault;
}

static inline bool faults(void *p)
{
	return faults_by(p, false) && faults_by(p, true);
}

/* ---- what the process holds ---------------------------------------------------------------- */

static inline size_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	size_t size = 0, pages = 0;

	if (!f || fscanf(f, "%zu %zu", &size, &pages) != 2)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static inline unsigned maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* ---- children ------------------------------------------------------------------------------ */

/*
 * Runs @fn in a forked child, @late in one that ends by exit() and not _exit(). 0: all its CHECKs
 * held; else its exit code, or 128 and the signal. A child that hangs is ended by an alarm.
 */
static inline pid_t child_start(void (*fn)(void), bool late)
{
	pid_t pid;

	fflush(stdout);
	fflush(stderr);
	pid = fork();
	if (pid)
		return pid;
	is_child = true;
	alarm(SANITIZED ? 100 : 30);
	if (setjmp(test_jump))
		_exit(1);
	fn();
	if (late)
		exit(0);
	_exit(0);
}

static inline int child_end(pid_t pid)
{
	int status = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int in_child(void (*fn)(void))
{
	return child_end(child_start(fn, false));
}

/* ---- main ---------------------------------------------------------------------------------- */

static inline int api_main(int argc, char **argv, const struct test_case *cases)
{
	if (setjmp(test_jump))
		return 1;
	param("devices", "soft");
	param("libcuda", "no-such-library.so");
	param("soft_devices", "2");
	param("soft_memory", "64M");
	param("soft_bar1", "8M");
	return test_main(argc, argv, cases);
}

#endif
