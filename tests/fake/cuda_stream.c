/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake libcuda: streams and stream capture. Work is done when it is queued.
 */
#include <stdlib.h>

#include "cuda_int.h"

#define LEGACY ((void *)1)     /* CU_STREAM_LEGACY */
#define PER_THREAD ((void *)2) /* CU_STREAM_PER_THREAD */

struct stream {
	struct stream *next;
	bool blocking;
	bool capturing, invalid;
	int mode;
	pthread_t owner;
};

struct graph {
	struct graph *next;
};

static struct stream *streams;
static struct graph *graphs;
static __thread int thread_mode; /* CUF_CAPTURE_GLOBAL */

static struct stream *find_stream(const void *p)
{
	for (struct stream *s = streams; s; s = s->next)
		if (s == p)
			return s;
	return NULL;
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

int stream_copy(void *p, int *error)
{
	struct stream *stream;

	*error = 0;
	if (p == PER_THREAD)
		return 0;
	if (!p || p == LEGACY) {
		fakenv.count("null_stream_uses", 1);
		for (struct stream *s = streams; s; s = s->next) {
			if (s->capturing && s->blocking) {
				s->invalid = true;
				*error = CUF_CAPTURE_IMPLICIT;
			}
		}
		return 0;
	}
	stream = find_stream(p);
	if (!stream)
		*error = CUF_INVALID_HANDLE;
	else if (stream->invalid)
		*error = CUF_CAPTURE_INVALIDATED;
	return stream && stream->capturing;
}

void stream_reset(void)
{
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
	struct stream *s;
	int rc = enter(&ctx);

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	s->blocking = !(flags & 1); /* CU_STREAM_NON_BLOCKING */
	s->next = streams;
	streams = s;
	*out = s;
	return leave(0);
}

FAKE_API int cuStreamDestroy_v2(void *p)
{
	struct stream **at, *s;
	int rc = enter(NULL);

	if (rc)
		return rc;
	for (at = &streams; *at && *at != p; at = &(*at)->next)
		;
	s = *at;
	if (!s)
		return leave(CUF_INVALID_HANDLE);
	*at = s->next;
	free(s);
	return leave(0);
}

static int synchronize(void *p)
{
	struct stream *s;
	struct ctx *ctx;
	int rc = enter(&ctx);

	if (rc)
		return rc;
	if (!p || p == LEGACY) {
		fakenv.count("null_stream_uses", 1);
		return leave(0);
	}
	if (p == PER_THREAD)
		return leave(0);
	s = find_stream(p);
	if (!s)
		return leave(CUF_INVALID_HANDLE);
	if (s->capturing) {
		s->invalid = true;
		return leave(CUF_CAPTURE_UNSUPPORTED);
	}
	return leave(0);
}

FAKE_API int cuStreamSynchronize(void *p)
{
	return synchronize(p);
}

FAKE_API int cuStreamQuery(void *p)
{
	return synchronize(p);
}

FAKE_API int cuCtxSynchronize(void)
{
	struct ctx *ctx;
	int rc = enter(&ctx);

	return rc ? rc : leave(capture_check());
}

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
	g->next = graphs;
	graphs = g;
	*out = g;
	return leave(0);
}

FAKE_API int cuStreamIsCapturing(void *p, int *status)
{
	struct stream *s;
	int rc = enter(NULL);

	if (rc)
		return rc;
	s = find_stream(p);
	if (p && p != LEGACY && p != PER_THREAD && !s)
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
