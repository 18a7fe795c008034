/* SPDX-License-Identifier: BSD-3-Clause */
/* What the processes of bench/callers share: memory that all of them see. */
#ifndef BENCH_CALLERS_INT_H
#define BENCH_CALLERS_INT_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/callers.h"

#define CALLERS_SAMPLES 16384
#define CALLERS_ACTIVE 256u /* callers are fewer */

/* One caller's. It writes, who tells it what to do reads after @ready or @done has the number. */
struct callers_slot {
	atomic_uint ready, done;  /* number of the last command so far */
	int error;                /* 0 or a negative errno value, with @message */
	char message[512];
	double expect;            /* nanoseconds of one copy, while the others warm up, too */
	double elapsed;           /* nanoseconds from the start to the end of the last row, which
				   * goes over the end of the interval */
	uint64_t calls;           /* in that time */
	uint64_t cpu;             /* of its process, in the slot of the last to be done, else 0 */
	struct copies_mismatch mismatch;
	size_t samples;
	double time[CALLERS_SAMPLES]; /* mean of one row each, nanoseconds */
};

struct callers_shared {
	atomic_uint command;      /* CALLERS_ACTIVE * number + how many callers it is for; number
				   * 1: open, then measurements, which look at @what */
	atomic_uint go;           /* number of the measurement that begins at @start */
	atomic_bool quit;
	int device, node;
	struct copies_options options;
	char cuda_lib[256];       /* for options.cuda_lib, which is no pointer of theirs */
	bool has_cuda_lib;
	struct callers_what what;
	uint64_t start, end;      /* of bench_now() */
	struct callers_slot slots[];
};

/* Until @word is no longer @seen, without any CPU time. May return sooner. */
static inline void callers_sleep(atomic_uint *word, unsigned seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

/* All that sleep on @word, which was changed before. */
static inline void callers_wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The whole life of a process: @first is the slot of its first thread. Does not return. */
_Noreturn void callers_child(struct callers_shared *shared, const struct callers_options *options,
			     unsigned first);

#endif
