/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/fork.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX 64

enum { OUTER, LEAF, GROUPS };

static struct {
	pthread_mutex_t *lock[MAX];
	_Atomic unsigned n;
	unsigned held; /* how many of them the fork under way has taken */
} group[GROUPS];

static void (*forgets[MAX])(void);
static _Atomic unsigned nforgets;

/* Not held while locks are taken: registering may happen under one of them. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER; /* one fork at a time */

static void prepare(void)
{
	pthread_mutex_lock(&forking);
	for (unsigned g = 0; g < GROUPS; g++) {
		group[g].held = atomic_load_explicit(&group[g].n, memory_order_acquire);
		for (unsigned i = 0; i < group[g].held; i++)
			pthread_mutex_lock(group[g].lock[i]);
	}
}

static void release(void)
{
	for (unsigned g = GROUPS; g-- > 0;)
		for (unsigned i = group[g].held; i-- > 0;)
			pthread_mutex_unlock(group[g].lock[i]);
	pthread_mutex_unlock(&forking);
}

/* They are released, and begin anew: threads that waited for them are gone. */
static void child(void)
{
	unsigned n = atomic_load_explicit(&nforgets, memory_order_acquire);

	release();
	for (unsigned g = 0; g < GROUPS; g++)
		for (unsigned i = 0; i < atomic_load(&group[g].n); i++)
			pthread_mutex_init(group[g].lock[i], NULL);
	pthread_mutex_init(&adding, NULL);
	pthread_mutex_init(&forking, NULL);
	for (unsigned i = 0; i < n; i++)
		forgets[i]();
}

static void install(void)
{
	/* No memory: handles are still wiped in the child, by the kernel. */
	(void)pthread_atfork(prepare, release, child);
}

static void too_many(unsigned n)
{
	if (n < MAX)
		return;
	fputs("barway: error: core/fork.c: MAX is too small\n", stderr);
	abort();
}

static void add_lock(unsigned g, pthread_mutex_t *lock)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned n, i = 0;

	pthread_once(&once, install);
	pthread_mutex_lock(&adding);
	n = atomic_load(&group[g].n);
	while (i < n && group[g].lock[i] != lock)
		i++;
	if (i == n) { /* twice would be a deadlock in prepare() */
		too_many(n);
		group[g].lock[n] = lock;
		atomic_store_explicit(&group[g].n, n + 1, memory_order_release);
	}
	pthread_mutex_unlock(&adding);
}

void bw_fork_lock(pthread_mutex_t *lock)
{
	add_lock(OUTER, lock);
}

void bw_fork_leaf_lock(pthread_mutex_t *lock)
{
	add_lock(LEAF, lock);
}

void bw_fork_forget(void (*forget)(void))
{
	unsigned n, i = 0;

	pthread_mutex_lock(&adding);
	n = atomic_load(&nforgets);
	while (i < n && forgets[i] != forget)
		i++;
	if (i == n) {
		too_many(n);
		forgets[n] = forget;
		atomic_store_explicit(&nforgets, n + 1, memory_order_release);
	}
	pthread_mutex_unlock(&adding);
}
