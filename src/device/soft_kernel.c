/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels of the soft GPU. A stream keeps a team of threads, one for each block of the largest
 * kernel it was given, but for the first block, which runs on the stream's own thread. The team
 * grows when a kernel is launched, so a kernel that has begun has all its blocks running.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/fault.h"
#include "core/param.h"
#include "core/tsan.h"
#include "device/soft_int.h"

const char soft_trapped[] =
	"a kernel failed (it called barway_soft_trap()): destroy all streams of this soft GPU, "
	"then it works again";

struct soft_worker {
	struct soft_stream *stream;
	unsigned index; /* of the block that it runs */
	pthread_t thread;
	pthread_cond_t go;
	struct soft_op *kernel; /* what to do; NULL: nothing */
	struct soft_held held;
};

/* All under the stream's lock. */
struct soft_team {
	bool stop;
	uint64_t begun;        /* kernels */
	unsigned left;         /* blocks of the present one that run, but for the first */
	pthread_cond_t done;
	struct soft_held held; /* of the first block */
	unsigned holding;      /* how many blocks have stores that wait for the carrier */
	bool has_carrier;
	pthread_t carrier;
	pthread_cond_t carry;
	unsigned n;
	struct soft_worker *worker[BW_SOFT_BLOCKS_MAX - 1];
};

int soft_trap_err(const struct soft_card *c, const char *what)
{
	return bw_err(EIO, "%s: soft GPU %d: %s", what, c->dev.index, soft_trapped);
}

/* ---- what blocks call ---------------------------------------------------------------------- */

unsigned bw_soft_block_index(const struct barway_soft_block *block)
{
	return block->index;
}

unsigned bw_soft_block_count(const struct barway_soft_block *block)
{
	return block->count;
}

void *bw_soft_deref(struct barway_soft_block *block, uint64_t addr, size_t bytes)
{
	void *at;

	soft_take_lock();
	at = soft_memory_reach(block->card, addr, bytes);
	soft_leave();
	return at;
}

void bw_soft_trap(struct barway_soft_block *block)
{
	block->card->trapped = true;
}

int bw_soft_trapped(const struct barway_soft_block *block)
{
	return block->card->trapped;
}

/*
 * A store after a fence is a release. On a GPU the fence is enough, and here it is, too; but
 * ThreadSanitizer does not know fences.
 */
void bw_soft_store64(struct barway_soft_block *block, void *p, uint64_t v)
{
	if (block->held)
		soft_held_store(block->held, p, v, block->fenced);
	else if (block->fenced)
		__atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint64_t *)p, v, __ATOMIC_RELAXED);
}

void bw_soft_fence(struct barway_soft_block *block)
{
	if (block->held)
		soft_held_arrive(block->held, true);
	block->fenced = true;
#ifndef BW_TSAN
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* ---- threads ------------------------------------------------------------------------------- */

static void block_run(struct soft_stream *s, const struct soft_op *op, unsigned index,
		      struct soft_held *held)
{
	struct barway_soft_block block = {
		.card = s->card, .index = index, .count = op->kernel.blocks,
	};

	if (op->kernel.shuffle) {
		soft_held_begin(held, op->kernel.shuffle + index);
		block.held = held;
	}
	op->kernel.fn(&block, op->kernel.arg);
	bw_soft_fence(&block);
}

static void *worker_main(void *arg)
{
	struct soft_worker *w = arg;
	struct soft_stream *s = w->stream;
	struct soft_team *t = s->team;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (!w->kernel && !t->stop)
			pthread_cond_wait(&w->go, &s->lock);
		if (!w->kernel)
			break;
		pthread_mutex_unlock(&s->lock);
		block_run(s, w->kernel, w->index, &w->held);
		pthread_mutex_lock(&s->lock);
		w->kernel = NULL;
		if (!--t->left)
			pthread_cond_signal(&t->done);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* A store that was made arrives, whatever its block does after it: it may only poll. */
static void *carrier_main(void *arg)
{
	struct soft_stream *s = arg;
	struct soft_team *t = s->team;
	struct timespec pause = { 0, 50000 };

	pthread_mutex_lock(&s->lock);
	while (!t->stop) {
		unsigned n = t->holding;

		if (!n) {
			pthread_cond_wait(&t->carry, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		for (unsigned i = 0; i < n; i++)
			soft_held_arrive(i ? &t->worker[i - 1]->held : &t->held, false);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static const char *kernel_run(struct soft_stream *s, struct soft_op *op)
{
	struct soft_team *t = s->team;
	unsigned others = op->kernel.blocks - 1;

	s->card->kernels++;
	pthread_mutex_lock(&s->lock);
	if (op->kernel.shuffle) {
		op->kernel.shuffle += t->begun << 10;
		t->holding = op->kernel.blocks;
		pthread_cond_signal(&t->carry);
	}
	t->begun++;
	t->left = others;
	for (unsigned i = 0; i < others; i++) {
		t->worker[i]->kernel = op;
		pthread_cond_signal(&t->worker[i]->go);
	}
	pthread_mutex_unlock(&s->lock);
	block_run(s, op, 0, &t->held);
	pthread_mutex_lock(&s->lock);
	while (t->left)
		pthread_cond_wait(&t->done, &s->lock);
	t->holding = 0;
	pthread_mutex_unlock(&s->lock);
	s->card->kernels--;
	return s->card->trapped ? soft_trapped : NULL;
}

void soft_kernels_end(struct soft_card *c)
{
	struct timespec pause = { 0, 50000 };

	while (c->kernels)
		nanosleep(&pause, NULL);
}

/* ---- the team ------------------------------------------------------------------------------ */

static struct soft_team *team_new(void)
{
	struct soft_team *t = bw_alloc(sizeof(*t));

	if (!t)
		return NULL;
	pthread_cond_init(&t->done, NULL);
	pthread_cond_init(&t->carry, NULL);
	pthread_mutex_init(&t->held.lock, NULL);
	return t;
}

static void worker_free(struct soft_worker *w)
{
	pthread_mutex_destroy(&w->held.lock);
	pthread_cond_destroy(&w->go);
	free(w);
}

static int worker_add(struct soft_stream *s)
{
	struct soft_team *t = s->team;
	struct soft_worker *w = bw_alloc(sizeof(*w));
	int ret;

	if (!w)
		return -ENOMEM;
	w->stream = s;
	w->index = t->n + 1;
	pthread_cond_init(&w->go, NULL);
	pthread_mutex_init(&w->held.lock, NULL);
	ret = soft_thread_start(&w->thread, worker_main, w);
	if (ret) {
		worker_free(w);
		return -ret;
	}
	t->worker[t->n++] = w;
	return 0;
}

/* Under the stream's lock. What a failure leaves is of use to the next kernel. */
static int team_grow(struct soft_stream *s, unsigned blocks, bool shuffle)
{
	int ret = 0;

	if (!s->team)
		s->team = team_new();
	if (!s->team)
		return -ENOMEM;
	while (!ret && s->team->n + 1 < blocks)
		ret = worker_add(s);
	if (!ret && shuffle && !s->team->has_carrier) {
		ret = -soft_thread_start(&s->team->carrier, carrier_main, s);
		s->team->has_carrier = !ret;
	}
	return ret;
}

/* The stream's own thread has ended: none of these has anything to do. */
void soft_team_end(struct soft_stream *s)
{
	struct soft_team *t = s->team;

	if (!t)
		return;
	pthread_mutex_lock(&s->lock);
	t->stop = true;
	pthread_cond_signal(&t->carry);
	for (unsigned i = 0; i < t->n; i++)
		pthread_cond_signal(&t->worker[i]->go);
	pthread_mutex_unlock(&s->lock);
	if (t->has_carrier)
		pthread_join(t->carrier, NULL);
	for (unsigned i = 0; i < t->n; i++) {
		pthread_join(t->worker[i]->thread, NULL);
		worker_free(t->worker[i]);
	}
	pthread_mutex_destroy(&t->held.lock);
	pthread_cond_destroy(&t->carry);
	pthread_cond_destroy(&t->done);
	free(t);
	s->team = NULL;
}

/* ---- launch -------------------------------------------------------------------------------- */

static int refuse(const struct soft_stream *s, bw_soft_kernel *kernel, unsigned blocks,
		  const void *arg, size_t bytes)
{
	int i = s->card->dev.index;

	if (!kernel)
		return bw_err(EINVAL, "launch on soft GPU %d: the kernel is NULL", i);
	if (!blocks || blocks > BW_SOFT_BLOCKS_MAX)
		return bw_err(EINVAL, "launch on soft GPU %d: %u blocks: give 1 to %u", i, blocks,
			      BW_SOFT_BLOCKS_MAX);
	if (bytes > BW_SOFT_PARAM_MAX)
		return bw_err(EINVAL, "launch on soft GPU %d: %zu bytes of parameters: give at "
			      "most %u", i, bytes, BW_SOFT_PARAM_MAX);
	if (bytes && !arg)
		return bw_err(EINVAL, "launch on soft GPU %d: %zu bytes of parameters at NULL", i,
			      bytes);
	return s->card->trapped ? soft_trap_err(s->card, "launch") : 0;
}

int soft_launch(struct bw_device *dev, struct bw_soft_stream *stream, bw_soft_kernel *kernel,
		unsigned blocks, const void *arg, size_t bytes)
{
	struct soft_op *op;
	int ret;
	struct soft_stream *s = soft_stream_get(dev, stream, "launch", &ret);

	if (s)
		ret = refuse(s, kernel, blocks, arg, bytes);
	if (ret)
		return ret;
	op = bw_alloc(sizeof(*op) + bytes);
	if (!op)
		return bw_err(ENOMEM, "launch: no host memory");
	op->run = kernel_run;
	op->kernel.fn = kernel;
	op->kernel.blocks = blocks;
	op->kernel.shuffle = bw_param_size(BW_P_SOFT_SHUFFLE);
	op->kernel.arg = bytes ? op->param : (void *)(uintptr_t)arg;
	if (bytes)
		memcpy(op->param, arg, bytes);
	pthread_mutex_lock(&s->lock);
	ret = team_grow(s, blocks, op->kernel.shuffle);
	pthread_mutex_unlock(&s->lock);
	if (!ret) {
		soft_stream_put_on(s, op);
		return 0;
	}
	free(op);
	return bw_err(-ret, "launch on soft GPU %d: no threads for %u blocks: %s: launch fewer, or "
		      "raise the limit (ulimit -u)", s->card->dev.index, blocks, strerror(-ret));
}

int bw_soft_launch(struct bw_soft_stream *s, bw_soft_kernel *kernel, unsigned blocks,
		   const void *arg, size_t bytes)
{
	return soft_launch(NULL, s, kernel, blocks, arg, bytes);
}
