/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/callers: several processes, each with several threads, copy to or from one GPU at once,
 * each with memory and a mapping of its own. All start at one moment and measure over the same
 * interval.
 *
 * The processes are forked before anything has been opened, and live until callers_close(). This
 * process only tells them what to do. One thread uses it.
 */
#ifndef BENCH_CALLERS_H
#define BENCH_CALLERS_H

#include "bench/copies.h"

struct callers;

struct callers_options {
	unsigned processes, threads; /* of each process */
	unsigned helpers;            /* that each process opens Barway with; 0: the parameter's */
	bool resident;               /* each process starts the resident copier */
	void (*bind)(void *arg, int node); /* run by each process at first; NULL: nothing */
	void *arg;
};

/* Before anything of Barway or CUDA. NULL: errno says why. */
struct callers *callers_fork(const struct callers_options *options);

/*
 * All bind to @node and open the device with that place in the list. Returns 0 or a negative errno
 * value; then callers_error() is the sentence.
 */
int callers_open(struct callers *c, int device, int node, const struct copies_options *options);
const char *callers_error(const struct callers *c);

struct callers_result {
	unsigned callers;
	struct bench_stats time;  /* of one copy in a row, over the rows of all callers */
	double slowest, fastest;  /* of the callers' medians, nanoseconds */
	double rate;              /* copies a nanosecond, all callers together */
	double rate_least, rate_most; /* of one caller */
	double cpu;               /* nanoseconds of CPU time for one copy, all threads */
	struct copies_mismatch mismatch; /* the first that was found */
};

struct callers_what {
	enum copies_direction direction;
	enum copies_method method;
	size_t bytes;
	bool arrived;    /* a row ends when its last copy has ARRIVED */
	unsigned active; /* the first so many callers; the others sleep */
	double seconds;  /* at least this long; longer where copies are */
};

/* Returns 0 or a negative errno value; then callers_error() is the sentence. */
int callers_measure(struct callers *c, const struct callers_what *what, struct callers_result *out);

void callers_close(struct callers *c);

#endif
