/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the soft GPU: a queue and the thread that works it off. A copy finds its memory, and
 * takes a reference to it, when it is queued: freeing that memory later harms nobody.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "device/soft_int.h"

struct soft_op {
	struct soft_op *next;
	bw_soft_kernel *kernel; /* NULL: a copy */
	void *arg;
	void *dst;
	const void *src;
	size_t bytes;
	bool by_caller;         /* is the caller's, who waits for it: @result, then @done */
	bool done;
	int result;
	uint32_t page;          /* of the block that a copy has a reference to */
};

struct bw_soft_stream {
	unsigned epoch;
	struct soft_card *card;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	struct soft_op *head, **tail;
	uint64_t queued, finished;
	int error; /* the first since the last synchronisation */
	bool stop;
};

static int copy_failed(const struct soft_card *c)
{
	return bw_err(EIO, "copy engine of soft GPU %d: fault injected: unset the parameter fault",
		      c->dev.index);
}

static int op_run(struct bw_soft_stream *s, const struct soft_op *op)
{
	int ret = 0;

	if (op->kernel) {
		op->kernel(&s->card->dev, op->arg);
		return 0;
	}
	if (bw_fault_hit(BW_FAULT_COPY))
		ret = -EIO;
	else
		memcpy(op->dst, op->src, op->bytes);
	soft_take_lock();
	soft_card_put(s->card, op->page);
	soft_leave();
	return ret;
}

/* Under the stream's lock, which it gives up meanwhile. */
static void work_one(struct bw_soft_stream *s)
{
	struct soft_op *op = s->head;
	int ret;

	s->head = op->next;
	if (!s->head)
		s->tail = &s->head;
	pthread_mutex_unlock(&s->lock);
	ret = op_run(s, op);
	pthread_mutex_lock(&s->lock);
	s->finished++;
	if (op->by_caller) {
		op->result = ret;
		op->done = true;
	} else {
		if (!s->error)
			s->error = ret;
		free(op);
	}
	pthread_cond_broadcast(&s->idle);
}

static void *stream_main(void *arg)
{
	struct bw_soft_stream *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (!s->head && !s->stop)
			pthread_cond_wait(&s->work, &s->lock);
		if (!s->head)
			break;
		work_one(s);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* The caller's signal handlers are not for this thread to run. */
static int thread_start(struct bw_soft_stream *s)
{
	sigset_t all, old;
	int ret;

	if (bw_fault_hit(BW_FAULT_THREAD))
		return EAGAIN;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&s->thread, NULL, stream_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

static void stream_release(struct bw_soft_stream *s)
{
	pthread_cond_destroy(&s->idle);
	pthread_cond_destroy(&s->work);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* Under soft_lock. */
static int stream_new(struct soft_card *c, struct bw_soft_stream **out)
{
	struct bw_soft_stream *s = bw_alloc(sizeof(*s));
	int ret;

	if (!s)
		return bw_err(ENOMEM, "create a stream on soft GPU %d: no host memory",
			      c->dev.index);
	s->epoch = soft_epoch;
	s->card = c;
	s->tail = &s->head;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	ret = thread_start(s);
	if (ret) {
		stream_release(s);
		return bw_err(ret, "create a stream on soft GPU %d: no thread: %s", c->dev.index,
			      strerror(ret));
	}
	*out = s;
	return 0;
}

/* In a forked child: there is no thread, and nobody holds the lock. */
void soft_stream_forget(struct bw_soft_stream *s)
{
	struct soft_op *next;

	for (struct soft_op *op = s ? s->head : NULL; op; op = next) {
		next = op->next;
		if (!op->by_caller)
			free(op);
	}
	free(s);
}

static int inherited(const char *what)
{
	return bw_err(ESTALE, "%s: the stream is of the parent process: create one", what);
}

int bw_soft_stream_create(struct bw_device *dev, struct bw_soft_stream **out)
{
	struct soft_card *c = soft_card_of(dev);
	int ret = soft_enter(c);

	if (ret)
		return ret;
	ret = stream_new(c, out);
	soft_leave();
	return ret;
}

int bw_soft_stream_sync(struct bw_soft_stream *stream)
{
	uint64_t until;
	int ret;

	if (stream->epoch != soft_epoch)
		return inherited("synchronise");
	pthread_mutex_lock(&stream->lock);
	until = stream->queued;
	while (stream->finished < until)
		pthread_cond_wait(&stream->idle, &stream->lock);
	ret = stream->error;
	stream->error = 0;
	pthread_mutex_unlock(&stream->lock);
	return ret ? copy_failed(stream->card) : 0;
}

int bw_soft_stream_destroy(struct bw_soft_stream *stream)
{
	int ret;

	if (!stream)
		return 0;
	if (stream->epoch != soft_epoch) {
		soft_stream_forget(stream);
		return inherited("destroy");
	}
	pthread_mutex_lock(&stream->lock);
	stream->stop = true;
	pthread_cond_signal(&stream->work);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->thread, NULL);
	ret = stream->error ? copy_failed(stream->card) : 0;
	stream_release(stream);
	return ret;
}

/* ---- work ---------------------------------------------------------------------------------- */

static void enqueue(struct bw_soft_stream *s, struct soft_op *op)
{
	pthread_mutex_lock(&s->lock);
	op->next = NULL;
	*s->tail = op;
	s->tail = &op->next;
	s->queued++;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
}

/* Under soft_lock: fills in the device's side of a copy and takes the reference. */
static int copy_prepare(struct soft_card *c, struct soft_op *op, uint64_t addr, size_t bytes,
			unsigned char **at)
{
	int ret = soft_memory_find(c, addr, bytes, &op->page, at);

	if (ret)
		return bw_err_prefix(ret, "copy");
	op->bytes = bytes;
	soft_card_get(c, op->page);
	return 0;
}

/* @dst or @src is NULL: that side is the device's. */
static int copy_async(struct bw_soft_stream *s, uint64_t addr, void *dst, const void *src,
		      size_t bytes)
{
	unsigned char *at = NULL;
	struct soft_op *op;
	int ret;

	if (s->epoch != soft_epoch)
		return inherited("copy");
	if (!bytes)
		return 0;
	ret = soft_enter(NULL);
	if (ret)
		return ret;
	op = bw_alloc(sizeof(*op));
	ret = op ? copy_prepare(s->card, op, addr, bytes, &at)
		 : bw_err(ENOMEM, "copy: no host memory");
	soft_leave();
	if (ret) {
		free(op);
		return ret;
	}
	op->dst = dst ? dst : at;
	op->src = src ? src : at;
	enqueue(s, op);
	return 0;
}

int bw_soft_copy_to_async(struct bw_soft_stream *s, uint64_t addr, const void *src, size_t bytes)
{
	return copy_async(s, addr, NULL, src, bytes);
}

int bw_soft_copy_from_async(struct bw_soft_stream *s, void *dst, uint64_t addr, size_t bytes)
{
	return copy_async(s, addr, dst, NULL, bytes);
}

int bw_soft_launch(struct bw_soft_stream *s, bw_soft_kernel *kernel, void *arg)
{
	struct soft_op *op;

	if (s->epoch != soft_epoch)
		return inherited("launch");
	op = bw_alloc(sizeof(*op));
	if (!op)
		return bw_err(ENOMEM, "launch: no host memory");
	op->kernel = kernel;
	op->arg = arg;
	enqueue(s, op);
	return 0;
}

static int ce_copy(struct bw_device *dev, uint64_t addr, void *dst, const void *src, size_t bytes)
{
	struct soft_card *c = soft_card_of(dev);
	struct soft_op op = { .by_caller = true };
	struct bw_soft_stream *s;
	unsigned char *at = NULL;
	int ret;

	if (!bytes)
		return 0;
	ret = soft_enter(c);
	if (ret)
		return ret;
	if (!c->ce)
		ret = stream_new(c, &c->ce);
	if (!ret)
		ret = copy_prepare(c, &op, addr, bytes, &at);
	s = c->ce;
	soft_leave();
	if (ret)
		return ret;
	op.dst = dst ? dst : at;
	op.src = src ? src : at;
	enqueue(s, &op);
	pthread_mutex_lock(&s->lock);
	while (!op.done)
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return op.result ? copy_failed(c) : 0;
}

int soft_ce_copy_to(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes)
{
	return ce_copy(dev, addr, NULL, src, bytes);
}

int soft_ce_copy_from(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes)
{
	return ce_copy(dev, addr, dst, NULL, bytes);
}

/* ---- words --------------------------------------------------------------------------------- */

uint64_t bw_soft_load64(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
}

uint64_t bw_soft_load64_acquire(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

void bw_soft_store64_release(void *p, uint64_t v)
{
	__atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}
