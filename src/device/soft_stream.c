/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the soft GPU: a queue and the thread that works it off; and the copy engine on one. */
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fault.h"
#include "device/soft_int.h"

#define STACK (1u << 20) /* bytes; as many as blocks of a kernel are to fit */

static const char dropped[] = "the stream was destroyed before it had done its work";

/* ---- the thread ---------------------------------------------------------------------------- */

static const char *op_run(struct soft_stream *s, struct soft_op *op)
{
	const char *why = s->card->trapped ? soft_trapped : s->drop ? dropped : op->run(s, op);

	if (op->has_page) {
		soft_take_lock();
		soft_card_put(s->card, op->page);
		soft_leave();
	}
	return why;
}

/* Under the stream's lock, which it gives up meanwhile. */
static void work_one(struct soft_stream *s)
{
	struct soft_op *op = s->head;
	const char *why;

	s->head = op->next;
	if (!s->head)
		s->tail = &s->head;
	s->broken = s->error != NULL;
	pthread_mutex_unlock(&s->lock);
	why = op_run(s, op);
	pthread_mutex_lock(&s->lock);
	s->finished++;
	if (op->by_caller) {
		op->why = why;
		op->done = true;
	} else {
		if (!s->error)
			s->error = why;
		free(op);
	}
	pthread_cond_broadcast(&s->idle);
}

static void *stream_main(void *arg)
{
	struct soft_stream *s = arg;

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

static int add_tls(struct dl_phdr_info *info, size_t size, void *sum)
{
	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_TLS)
			*(size_t *)sum += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
	return 0;
}

/* STACK, and what glibc takes of a stack for the program's thread-local storage. */
static size_t stack_bytes(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), tls = 0;

	dl_iterate_phdr(add_tls, &tls);
	return STACK + (tls + page - 1) / page * page;
}

/* The caller's signal handlers are not for these threads to run. */
int soft_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int ret;

	if (bw_fault_hit(BW_FAULT_THREAD))
		return EAGAIN;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack_bytes());
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(thread, &attr, fn, arg);
	if (!ret)
		pthread_setname_np(*thread, "barway-soft");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return ret;
}

/* ---- making and ending --------------------------------------------------------------------- */

static void stream_release(struct soft_stream *s)
{
	pthread_cond_destroy(&s->idle);
	pthread_cond_destroy(&s->work);
	pthread_mutex_destroy(&s->lock);
	bw_object_free(s);
}

/* Under soft_lock. */
static int stream_new(struct soft_card *c, struct soft_stream **out)
{
	struct soft_stream *s = bw_object_new(BW_OBJECT_SOFT_STREAM);
	int ret;

	if (!s)
		return bw_err(ENOMEM, "create a stream on soft GPU %d: no host memory",
			      c->dev.index);
	s->card = c;
	s->tail = &s->head;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	ret = soft_thread_start(&s->thread, stream_main, s);
	if (ret) {
		stream_release(s);
		return bw_err(ret, "create a stream on soft GPU %d: no thread: %s", c->dev.index,
			      strerror(ret));
	}
	*out = s;
	return 0;
}

int soft_stream_open(struct bw_device *dev, bool library, struct bw_soft_stream **out)
{
	struct soft_card *c = soft_card_of(dev);
	struct soft_stream *s;
	int ret = soft_enter(c);

	if (ret)
		return ret;
	ret = c->trapped ? soft_trap_err(c, "create a stream") : stream_new(c, &s);
	if (!ret) {
		s->library = library;
		*(library ? &c->library_streams : &c->streams) += 1;
		*out = bw_object_publish(s);
	}
	soft_leave();
	return ret;
}

int bw_soft_stream_create(struct bw_device *dev, struct bw_soft_stream **out)
{
	return soft_stream_open(dev, false, out);
}

struct soft_stream *soft_stream_get(struct bw_device *dev, struct bw_soft_stream *handle,
				    const char *what, int *ret)
{
	struct soft_stream *s = bw_object_get(handle, BW_OBJECT_SOFT_STREAM);

	if (!s) {
		*ret = bw_handle_stale(handle, what, "stream of the soft GPU");
	} else if (dev && dev != &s->card->dev) {
		*ret = bw_err(EINVAL, "%s on soft GPU %d: the stream is one of soft GPU %d", what,
			      dev->index, s->card->dev.index);
		s = NULL;
	}
	return s;
}

static int failed(const struct soft_stream *s, const char *what, const char *why)
{
	if (s->card->trapped)
		return soft_trap_err(s->card, what);
	return why ? bw_err(EIO, "%s: soft GPU %d: %s", what, s->card->dev.index, why) : 0;
}

int bw_soft_stream_destroy(struct bw_soft_stream *stream)
{
	struct soft_stream *s = stream ? bw_object_retire(stream, BW_OBJECT_SOFT_STREAM) : NULL;
	int ret = 0;

	if (!s)
		return stream ? bw_handle_stale(stream, "destroy", "stream of the soft GPU") : 0;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	soft_team_end(s);
	ret = failed(s, "destroy a stream", s->error);
	soft_take_lock();
	/* the library's are also ended while others of its still wait for what the device does */
	if (!--*(s->library ? &s->card->library_streams : &s->card->streams) &&
	    (!s->library || !s->card->streams))
		s->card->trapped = false;
	soft_leave();
	stream_release(s);
	return ret;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int bw_soft_stream_sync(struct bw_soft_stream *stream)
{
	const char *why;
	uint64_t until;
	int ret;
	struct soft_stream *s = soft_stream_get(NULL, stream, "synchronise", &ret);

	if (!s)
		return ret;
	pthread_mutex_lock(&s->lock);
	until = s->queued;
	while (s->finished < until)
		pthread_cond_wait(&s->idle, &s->lock);
	why = s->error;
	s->error = NULL;
	pthread_mutex_unlock(&s->lock);
	return failed(s, "synchronise", why);
}

int bw_soft_stream_query(struct bw_soft_stream *stream)
{
	const char *why;
	bool busy;
	int ret;
	struct soft_stream *s = soft_stream_get(NULL, stream, "query a stream", &ret);

	if (!s)
		return ret;
	pthread_mutex_lock(&s->lock);
	busy = s->finished < s->queued;
	why = s->error;
	pthread_mutex_unlock(&s->lock);
	ret = failed(s, "query a stream", why);
	return !ret && busy ? -EBUSY : ret;
}

void soft_stream_put_on(struct soft_stream *s, struct soft_op *op)
{
	pthread_mutex_lock(&s->lock);
	op->next = NULL;
	*s->tail = op;
	s->tail = &op->next;
	s->queued++;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
}

/* ---- the copy engine ----------------------------------------------------------------------- */

static int ce_copy(struct bw_device *dev, uint64_t addr, void *dst, const void *src, size_t bytes)
{
	struct soft_card *c = soft_card_of(dev);
	struct soft_op op = { .by_caller = true };
	struct soft_stream *s;
	int ret;

	if (!bytes)
		return 0;
	ret = soft_enter(c);
	if (ret)
		return ret;
	if (!c->ce)
		ret = stream_new(c, &c->ce);
	if (!ret)
		ret = soft_copy_prepare(c, &op, addr, dst, src, bytes);
	s = c->ce;
	soft_leave();
	if (ret)
		return ret;
	soft_stream_put_on(s, &op);
	pthread_mutex_lock(&s->lock);
	while (!op.done)
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return op.why ? bw_err(EIO, "copy: soft GPU %d: %s", c->dev.index, op.why) : 0;
}

int soft_ce_copy_to(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes)
{
	return ce_copy(dev, addr, NULL, src, bytes);
}

int soft_ce_copy_from(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes)
{
	return ce_copy(dev, addr, dst, NULL, bytes);
}
