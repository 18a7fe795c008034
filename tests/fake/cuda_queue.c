/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake libcuda: work in order, done by a thread. The thread holds the one lock of the library
 * but for what it calls: host functions and stand-ins of kernels.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_int.h"

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned running; /* threads */

/* ThreadSanitizer does not see into this library: it is told what orders memory. */
void __tsan_acquire(void *addr) __attribute__((weak));
void __tsan_release(void *addr) __attribute__((weak));

/* ---- kernels --------------------------------------------------------------------------------- */

struct block {
	struct cuda_fake_block block;
	cuda_fake_kernel *kernel;
	void *param;
	pthread_t thread;
	int error;
};

static void *run_block(void *arg)
{
	struct block *b = arg;

	b->error = b->kernel(&b->block, b->param);
	return NULL;
}

/* Without the lock. All blocks at the same time; the error of the first that has one. */
static int run_kernel(const struct work *w)
{
	struct block *blocks = calloc(w->blocks, sizeof(*blocks));
	int error = 0;

	if (!blocks)
		abort();
	for (unsigned i = 0; i < w->blocks; i++) {
		blocks[i] = (struct block){
			.block = { i, w->blocks, w->threads },
			.kernel = w->kernel,
			.param = w->host,
		};
		if (i && pthread_create(&blocks[i].thread, NULL, run_block, &blocks[i]))
			abort();
	}
	run_block(&blocks[0]);
	for (unsigned i = 1; i < w->blocks; i++)
		pthread_join(blocks[i].thread, NULL);
	for (unsigned i = 0; i < w->blocks && !error; i++)
		error = blocks[i].error;
	free(blocks);
	return error;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int write_value(const struct work *w)
{
	unsigned long long *p = mem_at(w->addr, 8);

	if (p && __tsan_release)
		__tsan_release(p);
	if (p)
		__atomic_store_n(p, w->value, __ATOMIC_RELEASE);
	return p ? 0 : CUF_ILLEGAL_ADDRESS;
}

/* Compares in a circle, as the real one does. */
static int wait_value(const struct queue *q, const struct work *w)
{
	for (;;) {
		unsigned long long *p = mem_at(w->addr, 8);

		if (!p)
			return q->drop ? 0 : CUF_ILLEGAL_ADDRESS;
		if (q->drop || q->ctx->error)
			return 0;
		if ((long long)(__atomic_load_n(p, __ATOMIC_ACQUIRE) - w->value) >= 0) {
			if (__tsan_acquire)
				__tsan_acquire(p);
			return 0;
		}
		pthread_mutex_unlock(&cuda.lock);
		usleep(50);
		pthread_mutex_lock(&cuda.lock);
	}
}

/* With the lock, which calls give up. The error that the context has from now on. */
static int run(const struct queue *q, struct work *w)
{
	int error = 0;

	switch (w->kind) {
	case WORK_TO:
		return mem_copy(w->addr, NULL, w->host, w->bytes) ? CUF_ILLEGAL_ADDRESS : 0;
	case WORK_FROM:
		return mem_copy(w->addr, w->host, NULL, w->bytes) ? CUF_ILLEGAL_ADDRESS : 0;
	case WORK_WRITE:
		return write_value(w);
	case WORK_WAIT:
		return wait_value(q, w);
	case WORK_CALL:
		pthread_mutex_unlock(&cuda.lock);
		w->fn(w->host);
		pthread_mutex_lock(&cuda.lock);
		return 0;
	case WORK_LAUNCH:
		pthread_mutex_unlock(&cuda.lock);
		error = run_kernel(w);
		pthread_mutex_lock(&cuda.lock);
		return error;
	}
	return CUF_UNKNOWN;
}

static void *work_off(void *arg)
{
	struct queue *q = arg;

	pthread_mutex_lock(&cuda.lock);
	for (;;) {
		struct work *w = q->head;
		int error;

		if (!w && q->end)
			break;
		if (!w) {
			pthread_cond_wait(&changed, &cuda.lock);
			continue;
		}
		q->head = w->next;
		if (!q->head)
			q->tail = &q->head;
		error = q->drop || q->ctx->error ? 0 : run(q, w);
		if (error && !q->ctx->error)
			q->ctx->error = error;
		if (w->copied)
			free(w->host);
		free(w);
		q->done++;
		pthread_cond_broadcast(&changed);
	}
	running--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&cuda.lock);
	return NULL;
}

static void start(struct queue *q)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, work_off, q))
		abort();
	pthread_attr_destroy(&attr);
	q->started = true;
	q->tail = &q->head;
	running++;
}

/* ---- with the lock held ---------------------------------------------------------------------- */

/* Takes a copy of *@work, and of what its host points to where that is to be copied. */
int queue_put(struct queue *q, const struct work *work, bool wait)
{
	struct work *w = malloc(sizeof(*w));

	if (!w)
		abort();
	*w = *work;
	w->next = NULL;
	if (w->copied) {
		w->host = malloc(w->bytes ? w->bytes : 1);
		if (!w->host)
			abort();
		if (w->bytes)
			memcpy(w->host, work->host, w->bytes);
	}
	if (!q->started)
		start(q);
	*q->tail = w;
	q->tail = &w->next;
	q->given++;
	pthread_cond_broadcast(&changed);
	if (wait)
		queue_wait(q);
	return wait ? q->ctx->error : 0;
}

void queue_wait(struct queue *q)
{
	unsigned long long until = q->given;

	while (q->done < until)
		pthread_cond_wait(&changed, &cuda.lock);
}

void queue_end(struct queue *q, bool drop)
{
	q->end = true;
	q->drop = drop;
	pthread_cond_broadcast(&changed);
}

void queue_wait_ended(void)
{
	while (running)
		pthread_cond_wait(&changed, &cuda.lock);
}
