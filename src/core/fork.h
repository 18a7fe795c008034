/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core/fork: what a forked child may still do with what it inherited: nothing, and harm nobody.
 * Each part of the library that holds state registers a function that forgets it in the child,
 * without a call to the driver. Locks are registered too: held over fork(), so that the child finds
 * them in order.
 */
#ifndef BW_CORE_FORK_H
#define BW_CORE_FORK_H

#include <pthread.h>

/* Called once for each, from static constructors or pthread_once; order of registration is the
 * order in which locks are taken. Plain mutexes only: the child initialises them anew. */
void bw_fork_lock(pthread_mutex_t *lock);
/*
 * A lock under which no other lock of the library is taken, though it may be taken under any: those
 * come after all others. The log's is one, so writing a line is fine under bw_fork_lock() locks and
 * wrong under a leaf.
 */
void bw_fork_leaf_lock(pthread_mutex_t *lock);
/* Called in the child, locks free, one thread; objects (core/handle) are gone: do not read them. */
void bw_fork_forget(void (*forget)(void));

/*
 * Constructor priorities of the layers that register from static constructors, the outermost first:
 * a thread that holds the lock of one may take those of the ones after it.
 */
#define BW_FORK_API 301
#define BW_FORK_PROVE 302
#define BW_FORK_PLAN 303
#define BW_FORK_THREADS 304
#define BW_FORK_SELF_TEST 305
#define BW_FORK_CACHE 306
#define BW_FORK_RM_FIND 307
#define BW_FORK_RM_CLIENT 308
#define BW_FORK_DEVICE 309

#endif
