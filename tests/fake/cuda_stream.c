/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake libcuda: streams and stream capture. A context has one default stream, whichever of the
 * three names it is called by, which does not wait for others.
 */
#include <stdlib.h>

#include "cuda_int.h"

#define LEGACY ((void *)1)     /* CU_STREAM_LEGACY */
#define PER_THREAD ((void *)2) /* CU_STREAM_PER_THREAD */

struct stream {
	struct stream *next;
	struct queue queue;
	bool blocking;
	bool gone;      /* destroyed; its handle is not used again before a reset */
	bool capturing, invalid;
	size_t nodes;   /* captured */
	int mode;
	pthread_t owner;
};

struct graph {
	struct graph *next;
	size_t nodes;
};

static struct stream *streams;
static struct graph *graphs;
static __thread int thread_mode; /* CUF_CAPTURE_GLOBAL */

static struct stream *find_stream(const void *p)
{
	for (struct stream *s = streams; s; s = s->next)
		if (s == p) {
			if (s->gone)
				fakenv.count("stale_uses", 1);
			return s->gone ? NULL : s;
		}
	return NULL;
}

static struct stream *new_stream(struct ctx *ctx, bool blocking)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->queue.ctx = ctx;
	s->blocking = blocking;
	s->next = streams;
	streams = s;
	return s;
}

static struct stream *default_stream(struct ctx *ctx)
{
	if (!ctx->dflt)
		ctx->dflt = new_stream(ctx, false);
	return ctx->dflt;
}

/*
 * cuThreadExchangeStreamCaptureMode(): a global thread may not while any thread has a global
 * capture or itself any but a relaxed one; a thread-local thread only for its own; a relaxed
 * thread always may.
 */
int capture_check(void)
{
	int rc = 0;

	if (thread_mode == CUF_CAPTURE_RELAXED)
		return 0;
	for (struct stream *s = streams; s; s = s->next) {
		bool own = s->capturing && pthread_equal(s->owner, pthread_self());
		bool global = s->capturing && thread_mode == CUF_CAPTURE_GLOBAL &&
			      s->mode == CUF_CAPTURE_GLOBAL;

		if ((own && s->mode != CUF_CAPTURE_RELAXED) || global) {
			s->invalid = true;
			rc = CUF_CAPTURE_UNSUPPORTED;
		}
	}
	return rc;
}

/* 0, or CUF_CAPTURE_IMPLICIT where the legacy stream would get into a capture; @spoil: breaks it */
static int implicit(struct ctx *ctx, bool spoil)
{
	int rc = 0;

	for (struct stream *s = streams; s; s = s->next) {
		if (s->capturing && s->blocking && s->queue.ctx == ctx) {
			s->invalid = s->invalid || spoil;
			rc = CUF_CAPTURE_IMPLICIT;
		}
	}
	return rc;
}

int stream_work(void *p, struct ctx *ctx, int *error, struct queue **queue)
{
	struct stream *stream;

	*error = 0;
	if (!p || p == LEGACY || p == PER_THREAD) {
		if (p != PER_THREAD) {
			fakenv.count("null_stream_uses", 1);
			*error = implicit(ctx, true);
		}
		*queue = &default_stream(ctx)->queue;
		return 0;
	}
	stream = find_stream(p);
	if (!stream)
		*error = CUF_INVALID_HANDLE;
	else if (stream->invalid)
		*error = CUF_CAPTURE_INVALIDATED;
	else if (stream->capturing)
		stream->nodes++;
	if (!*error)
		*queue = &stream->queue;
	return stream && stream->capturing;
}

void stream_wait_context(struct ctx *ctx)
{
	for (struct stream *s = streams; s; s = s->next)
		if (s->queue.ctx == ctx)
			queue_wait(&s->queue);
}

void stream_drop_context(struct ctx *ctx)
{
	for (struct stream *s = streams; s; s = s->next)
		if (s->queue.ctx == ctx) {
			queue_end(&s->queue, true);
			queue_wait(&s->queue);
			s->gone = true;
			s->capturing = false;
		}
	ctx->dflt = NULL;
}

void stream_reset(void)
{
	for (struct stream *s = streams; s; s = s->next)
		queue_end(&s->queue, true);
	queue_wait_ended();
	while (streams) {
		struct stream *s = streams;

		streams = s->next;
		free(s);
	}
	while (graphs) {
		struct graph *g = graphs;

		graphs = g->next;
		free(g);
	}
}

FAKE_API int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int old = thread_mode, rc = enter(NULL);

	if (rc)
		return rc;
	if (*mode < CUF_CAPTURE_GLOBAL || *mode > CUF_CAPTURE_RELAXED)
		return leave(CUF_INVALID_VALUE);
	thread_mode = *mode;
	*mode = old;
	return leave(0);
}

FAKE_API int cuStreamCreate(void **out, unsigned flags)
{
	struct ctx *ctx;
	int rc = enter(&ctx);

	if (rc)
		return rc;
	if (flags > 1)
		return leave(CUF_INVALID_VALUE);
	*out = new_stream(ctx, !flags); /* CU_STREAM_NON_BLOCKING */
	fakenv.count("streams_created", 1);
	return leave(0);
}

FAKE_API int cuStreamDestroy_v2(void *p)
{
	struct stream *s;
	int rc = enter(NULL);

	if (rc)
		return rc;
	s = find_stream(p);
	if (!s)
		return leave(CUF_INVALID_HANDLE);
	s->gone = true;
	s->capturing = false;
	queue_end(&s->queue, false);
	return leave(0);
}

FAKE_API int cuStreamGetCtx(void *p, void **out)
{
	struct stream *s;
	struct ctx *ctx;
	int rc;

	if (!p || p == LEGACY || p == PER_THREAD) {
		rc = enter_broken(&ctx);
		if (!rc)
			*out = ctx;
		return rc ? rc : leave(0);
	}
	rc = enter(NULL);
	if (rc)
		return rc;
	s = find_stream(p);
	if (s)
		*out = s->queue.ctx;
	return leave(s ? 0 : CUF_INVALID_HANDLE);
}

static int synchronize(void *p, bool wait)
{
	struct stream *s;
	struct ctx *ctx;
	struct queue *q;
	int rc = enter(&ctx);

	if (rc)
		return rc;
	if (!p || p == LEGACY || p == PER_THREAD) {
		if (p != PER_THREAD) {
			fakenv.count("null_stream_uses", 1);
			rc = implicit(ctx, true);
		}
		s = default_stream(ctx);
	} else {
		s = find_stream(p);
		if (!s)
			return leave(CUF_INVALID_HANDLE);
	}
	if (s->capturing) {
		s->invalid = true;
		rc = CUF_CAPTURE_UNSUPPORTED;
	}
	if (rc)
		return leave(rc);
	q = &s->queue;
	if (wait)
		queue_wait(q);
	return leave(q->ctx->error ? q->ctx->error : q->done < q->given ? CUF_NOT_READY : 0);
}

FAKE_API int cuStreamSynchronize(void *p)
{
	return synchronize(p, true);
}

FAKE_API int cuStreamQuery(void *p)
{
	return synchronize(p, false);
}

FAKE_API int cuCtxSynchronize(void)
{
	struct ctx *ctx;
	int rc = enter(&ctx);

	if (rc)
		return rc;
	rc = capture_check();
	if (!rc)
		stream_wait_context(ctx);
	return leave(rc ? rc : ctx->error);
}

/* ---- work ---- */

static int value(void *p, unsigned long long addr, unsigned long long v, unsigned flags,
		 enum work_kind kind)
{
	struct work w = { .kind = kind, .addr = addr, .value = v };
	struct queue *queue;
	struct ctx *ctx;
	int error, rc = enter(&ctx);

	if (rc)
		return rc;
	if (!fakenv.get("memops"))
		return leave(CUF_NOT_SUPPORTED);
	if (flags || addr % 8 || !mem_at(addr, 8))
		return leave(CUF_INVALID_VALUE);
	if (stream_work(p, ctx, &error, &queue) || error)
		return leave(error);
	return leave(queue->ctx != ctx ? CUF_INVALID_HANDLE : queue_put(queue, &w, false));
}

FAKE_API int cuStreamWriteValue64(void *p, unsigned long long addr, unsigned long long v,
				  unsigned flags)
{
	return value(p, addr, v, flags, WORK_WRITE);
}

FAKE_API int cuStreamWriteValue64_v2(void *p, unsigned long long addr, unsigned long long v,
				     unsigned flags)
{
	return value(p, addr, v, flags, WORK_WRITE);
}

FAKE_API int cuStreamWaitValue64(void *p, unsigned long long addr, unsigned long long v,
				 unsigned flags)
{
	return value(p, addr, v, flags, WORK_WAIT);
}

FAKE_API int cuStreamWaitValue64_v2(void *p, unsigned long long addr, unsigned long long v,
				    unsigned flags)
{
	return value(p, addr, v, flags, WORK_WAIT);
}

FAKE_API int cuLaunchHostFunc(void *p, void (*fn)(void *arg), void *arg)
{
	struct work w = { .kind = WORK_CALL, .fn = fn, .host = arg };
	struct queue *queue;
	struct ctx *ctx;
	int error, rc = enter(&ctx);

	if (rc)
		return rc;
	if (!fn)
		return leave(CUF_INVALID_VALUE);
	if (stream_work(p, ctx, &error, &queue) || error)
		return leave(error);
	return leave(queue_put(queue, &w, false));
}

/* ---- capture ---- */

FAKE_API int cuStreamBeginCapture_v2(void *p, int mode)
{
	struct stream *s;
	int rc = enter(NULL);

	if (rc)
		return rc;
	s = find_stream(p);
	if (!s)
		return leave(p ? CUF_INVALID_HANDLE : CUF_CAPTURE_UNSUPPORTED);
	if (s->capturing)
		return leave(CUF_ILLEGAL_STATE);
	s->capturing = true;
	s->invalid = false;
	s->nodes = 0;
	s->mode = mode;
	s->owner = pthread_self();
	return leave(0);
}

FAKE_API int cuStreamEndCapture(void *p, void **out)
{
	struct graph *g;
	struct stream *s;
	int rc = enter(NULL);

	if (rc)
		return rc;
	s = find_stream(p);
	*out = NULL;
	if (!s || !s->capturing)
		return leave(s ? CUF_ILLEGAL_STATE : CUF_INVALID_HANDLE);
	if (s->mode != CUF_CAPTURE_RELAXED && !pthread_equal(s->owner, pthread_self()))
		return leave(CUF_CAPTURE_WRONG_THREAD);
	s->capturing = false;
	if (s->invalid) {
		s->invalid = false;
		fakenv.count("graphs_dropped", 1);
		return leave(CUF_CAPTURE_INVALIDATED);
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		abort();
	g->nodes = s->nodes;
	g->next = graphs;
	graphs = g;
	*out = g;
	return leave(0);
}

FAKE_API int cuStreamIsCapturing(void *p, int *status)
{
	struct stream *s;
	struct ctx *ctx;
	int rc = enter(&ctx);

	if (rc)
		return rc;
	if (!p || p == LEGACY || p == PER_THREAD) {
		*status = 0;
		return leave(p != PER_THREAD ? implicit(ctx, false) : 0);
	}
	s = find_stream(p);
	if (!s)
		return leave(CUF_INVALID_HANDLE);
	*status = !s || !s->capturing ? 0 : s->invalid ? 2 : 1;
	return leave(0);
}

FAKE_API int cuGraphDestroy(void *p)
{
	struct graph **at, *g;
	int rc = enter(NULL);

	if (rc)
		return rc;
	for (at = &graphs; *at && *at != p; at = &(*at)->next)
		;
	g = *at;
	if (!g)
		return leave(CUF_INVALID_VALUE);
	*at = g->next;
	free(g);
	return leave(0);
}

FAKE_API int cuGraphGetNodes(void *p, void **nodes, size_t *count)
{
	struct graph *g;
	int rc = enter(NULL);

	if (rc)
		return rc;
	for (g = graphs; g && g != p; g = g->next)
		;
	if (!g || nodes) /* only their number is known */
		return leave(CUF_INVALID_VALUE);
	*count = g->nodes;
	return leave(0);
}
