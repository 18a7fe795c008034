/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/sanity: does this installation move data rightly on the device at hand?
 *
 * Each case runs in a process of its own, forked from one that never touches Barway or CUDA; so a
 * case is a program: it may end at any place, by sanity_fail() or sanity_waive(), and what it holds
 * then goes with its process. A case that returns has passed.
 *
 *	tools/sanity.c          the verb: options, output
 *	tools/sanity_run.c      processes, time limits, verdicts
 *	tools/sanity_case.c     what cases share
 *	tools/sanity_data.c     cases: data at every address and size, of every kind of memory
 *	tools/sanity_life.c     cases: what outlives what; threads, leaks
 *	tools/sanity_process.c  cases: forks, memory of another process
 *	tools/sanity_gpu.c      cases: kernels that run while the CPU writes
 *	tools/sanity_gdrapi.c   cases: the same through gdrapi.h
 */
#ifndef TOOLS_SANITY_H
#define TOOLS_SANITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "barway.h"
#include "bench/gpu.h"

/* ---- running ----------------------------------------------------------------------------- */

enum sanity_verdict {
	SANITY_PASSED,
	SANITY_FAILED,
	SANITY_WAIVED,
	SANITY_VERDICTS,
};

struct sanity_result {
	enum sanity_verdict verdict;
	double ms;
	char reason[1024]; /* why it failed or was waived: a sentence; "" where it passed */
};

/* What the cases run on; found in a process of its own. */
struct sanity_target {
	bool quick;                     /* fewer rounds */
	bool verbose;                   /* Barway's log, to standard error */
	struct barway_device_info info;
};

struct sanity; /* below */

struct sanity_case {
	const char *name;
	const char *what;  /* half a sentence for --list */
	bool quick;        /* is part of --quick */
	void (*run)(struct sanity *s);
};

/* All cases, in the order of running; ends with a name of NULL. */
const struct sanity_case *sanity_next(const struct sanity_case *after);

/* 0; -ENODEV there is no such device; -EIO it cannot be said. @why: a sentence. */
int sanity_find(const char *device, struct sanity_target *target, char *why, size_t why_size);

void sanity_run(const struct sanity_case *c, const struct sanity_target *target, double limit,
		struct sanity_result *result);

/* ---- for cases --------------------------------------------------------------------------- */

struct sanity {
	struct sanity_target target;
	bool soft;
	uint64_t random;             /* the state of the data */
	struct barway_context *ctx;  /* these are there after sanity_open() */
	struct barway_device *dev;
	struct bench_gpu *gpu;
};

/* End the case, from any of its threads and processes. */
void sanity_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void sanity_waive(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Of Barway, of bench/gpu (with "s" in sight), and whatever else. */
#define OK(call) do { \
	int ok_ = (call); \
	if (ok_ < 0) \
		sanity_fail("%s is %d: %s", #call, ok_, barway_errmsg()); \
} while (0)
#define GPU_OK(call) do { \
	int ok_ = (call); \
	if (ok_ < 0) \
		sanity_fail("%s is %d: %s", #call, ok_, bench_gpu_error(s->gpu)); \
} while (0)
#define REFUSED(call, err) sanity_refused((call), (err), #call)
#define CHECK(x, ...) do { \
	if (!(x)) \
		sanity_fail(__VA_ARGS__); \
} while (0)

/* @ret is -@err and there is a sentence that says why. */
void sanity_refused(int ret, int err, const char *call);

/* A context with the device in it, activated, and the way to the GPU that is not Barway's. */
void sanity_open(struct sanity *s);
void sanity_close(struct sanity *s);

/* Memory; waives the case where the device has no such kind. */
void sanity_alloc(struct sanity *s, enum bench_memory_kind kind, size_t bytes,
		  struct bench_memory *mem);
/* The same, false where it has not. */
bool sanity_try_alloc(struct sanity *s, enum bench_memory_kind kind, size_t bytes,
		      struct bench_memory *mem);
void sanity_free(struct sanity *s, struct bench_memory *mem);

void *sanity_host(size_t bytes); /* malloc() that does not fail */
uint64_t sanity_random(struct sanity *s);
void sanity_fill(struct sanity *s, void *p, size_t bytes);
double sanity_seconds(void);

/* The first byte in which they differ; @bytes: none does. */
size_t sanity_differs(const void *a, const void *b, size_t bytes);

/*
 * Maps [addr, addr + bytes) and proves it with random data: the CPU sees what the GPU has, the GPU
 * sees what the CPU wrote by copies and by stores, and nothing else changed in the memory around,
 * [around, around + around_bytes).
 */
void sanity_prove(struct sanity *s, uint64_t addr, size_t bytes, uint64_t around,
		  size_t around_bytes);

/* Does a load at @p fault, and a store? Only one thread may be asking. */
bool sanity_faults(volatile unsigned char *p, bool store);

/*
 * A second process of the case, that runs @fn and ends; its sanity_fail() is the case's.
 * sanity_join() waits, and fails the case where it did not end well.
 */
pid_t sanity_fork(void (*fn)(struct sanity *s, void *arg), struct sanity *s, void *arg);
void sanity_join(pid_t pid);

/* What a process holds, for leaks. */
struct sanity_held {
	unsigned files;
	uint64_t bar1_free, memory_free; /* UINT64_MAX: unknown */
};
void sanity_held(struct sanity *s, struct sanity_held *held);

/* The cases of each file; each list ends with a name of NULL. */
extern const struct sanity_case sanity_data[], sanity_life[], sanity_process[], sanity_gpu[],
	sanity_gdrapi[];

#endif
