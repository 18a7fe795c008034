/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy/threads: helper threads for large copies, off unless a context asks for them.
 *
 * The process has one pool, as large as the largest wish of its open contexts; it is made by the
 * first copy that wants it and ended when the last such context closes. A helper that has just
 * worked polls for more for a short while, so that the next copy finds it within about a
 * microsecond, and sleeps in a futex after that. One copy at a time has the helpers; who comes
 * meanwhile does his own work alone.
 */
#ifndef BW_COPY_THREADS_H
#define BW_COPY_THREADS_H

#include "copy/copy.h"

extern const struct bw_copy_method bw_copy_threads;

#define BW_THREADS_MAX 64u

/* A context wants @count helpers (0: none, nothing happens) on @cpus ("": near the device of the
 * first copy). -EINVAL the list. bw_threads_leave() takes the wish back. */
int bw_threads_enter(unsigned count, const char *cpus);
void bw_threads_leave(unsigned count);
/* Checks a list of CPUs, "2-5,8". */
bool bw_threads_cpus_ok(const char *cpus);

/* Copies @n bytes, more than none, without a fence: a store or load kernel, or the like. */
typedef void bw_threads_fn(void *dst, const void *src, size_t n);

/*
 * Copies @bytes from @src to @dst by @fn, cut into pieces of @chunk bytes (the last may be shorter)
 * in any order, by at most @threads threads, the caller's among them; returns when all are done.
 * Helpers' loads from mappings see what was there when this was called, if the caller has fenced
 * (bw_fence_mixed()); all stores are on their way when it returns (bw_fence_publish()).
 */
void bw_threads_run(bw_threads_fn *fn, void *dst, const void *src, size_t bytes, size_t chunk,
		    unsigned threads, const struct bw_device *near);

/*
 * Helpers for work that is there bit by bit: @fn(@arg) is called in at most @threads - 1 of them,
 * and this returns at once. True: bw_threads_dismiss() has to follow, in the same thread; until
 * then no other copy has helpers. False: there are none now. Who does not get to run is not waited
 * for.
 */
bool bw_threads_invite(void (*fn)(void *arg), void *arg, unsigned threads,
		       const struct bw_device *near);
/* Returns when all who were called have returned, which they have to do by themselves; what they
 * stored is seen then. */
void bw_threads_dismiss(void);

/* One for host memories: memcpy(). */
void bw_threads_host(void *dst, const void *src, size_t n);
/* memcpy between host memories by at most @threads threads. */
void bw_threads_memcpy(void *dst, const void *src, size_t bytes, unsigned threads);

#endif
