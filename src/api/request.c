/* SPDX-License-Identifier: BSD-3-Clause */
/* api: copies of many pieces, and copies that go on after the call. */
#include "copy/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/copy.h"
#include "core/fault.h"

struct bw_request_object {
	struct bw_slot slot;
	struct bw_context *ctx;
	struct bw_request *req;
	struct bw_request_object *prev, *next; /* of the context, under its lock */
};
_Static_assert(sizeof(struct bw_request_object) <= BW_SLOT_BYTES, "bw_request_object");

/* ---- pieces ---------------------------------------------------------------------------------- */

/* All of them, before a byte moves. */
static int check(const char *operation, struct barway_mapping *handle, uint32_t direction,
		 const struct barway_piece *pieces, size_t n)
{
	const struct bw_mapping *m = bw_mapping_get(handle);
	char place[64];
	int ret;

	if (!m)
		return bw_handle_stale(handle, operation, "mapping");
	ret = bw_check_direction(operation, direction);
	if (ret)
		return ret;
	if (!pieces && n)
		return bw_err(EINVAL, "%s: pieces is NULL", operation);
	for (size_t i = 0; i < n; i++) {
		const struct barway_piece *p = &pieces[i];

		if (bw_copy_fits(m, p->offset, p->host, p->bytes))
			continue;
		snprintf(place, sizeof(place), "%s: piece %zu", operation, i);
		return bw_copy_refuse(place, handle, p->offset, p->host, p->bytes);
	}
	return 0;
}

/* Are all of them for this thread, whatever their host memory is? */
static bool for_this_thread(const struct bw_mapping *m, uint32_t direction, uint32_t method,
			    const struct barway_piece *pieces, size_t n)
{
	size_t limit = direction == BARWAY_TO_GPU ? m->cpu_to : m->cpu_from;

	if (method == BARWAY_METHOD_AUTO)
		for (size_t i = 0; i < n; i++)
			if (pieces[i].bytes > limit)
				return false;
	return method == BARWAY_METHOD_AUTO || method == BARWAY_METHOD_CPU;
}

/* No system call, lock or allocation; one fence for all of them. */
static void by_this_thread(const struct bw_mapping *m, uint32_t direction,
			   const struct barway_piece *p, size_t n)
{
	if (direction == BARWAY_FROM_GPU) {
		bw_fence_read();
		for (size_t i = 0; i < n; i++)
			m->load(p[i].host, m->ptr + p[i].offset, p[i].bytes);
		return;
	}
	for (size_t i = 0; i < n; i++)
		if (!bw_store_word(m->ptr + p[i].offset, p[i].host, p[i].bytes))
			m->store(m->ptr + p[i].offset, p[i].host, p[i].bytes);
	bw_fence_publish();
}

static int start(struct bw_mapping *m, uint32_t direction, uint32_t method,
		 const struct barway_piece *pieces, size_t n, bool driven, bool event,
		 struct bw_request **out)
{
	struct bw_copy *copies = bw_alloc_array(n, sizeof(*copies));
	int ret;

	if (!copies)
		return bw_err(ENOMEM, "no memory for %zu pieces: free some", n);
	for (size_t i = 0; i < n; i++)
		copies[i] = (struct bw_copy){
			.map = m, .offset = pieces[i].offset, .host = pieces[i].host,
			.bytes = pieces[i].bytes, .direction = (enum bw_direction)direction,
		};
	ret = bw_request_start(copies, n, method ? method : m->copy_method, driven, event, out);
	free(copies);
	return ret;
}

int barway_copy_pieces(struct barway_mapping *handle, uint32_t direction, uint32_t method,
		       const struct barway_piece *pieces, size_t n)
{
	int ret = check("barway_copy_pieces", handle, direction, pieces, n);
	struct bw_mapping *m = bw_mapping_get(handle);
	struct bw_request *req;

	if (ret)
		return ret;
	if (for_this_thread(m, direction, method, pieces, n)) {
		by_this_thread(m, direction, pieces, n);
		return 0;
	}
	ret = start(m, direction, method, pieces, n, false, false, &req);
	if (!ret) {
		ret = bw_request_wait(req, BARWAY_FOREVER);
		bw_request_free(req);
	}
	return bw_err_prefix(ret, "barway_copy_pieces");
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct bw_request_object *get(struct barway_request *handle)
{
	return bw_object_get(handle, BW_OBJECT_REQUEST);
}

int barway_copy_start(struct barway_mapping *handle, uint32_t direction, uint32_t method,
		      const struct barway_piece *pieces, size_t n, uint32_t flags,
		      struct barway_request **out)
{
	int ret = check("barway_copy_start", handle, direction, pieces, n);
	struct bw_mapping *m = bw_mapping_get(handle);
	bool event = flags & BARWAY_COPY_FD;
	struct bw_request_object *o;

	if (ret)
		return ret;
	if (!out || (flags & ~BARWAY_COPY_FD))
		return bw_err(EINVAL, out ? "barway_copy_start: flags 0x%x: only BARWAY_COPY_FD is "
			      "known" : "barway_copy_start: out is NULL", flags);
	o = bw_object_new(BW_OBJECT_REQUEST);
	if (!o)
		return bw_err(ENOMEM, "barway_copy_start: no memory for a request: free some");
	ret = start(m, direction, method, pieces, n, m->copy_threads || event, event, &o->req);
	if (ret) {
		bw_object_free(o);
		return bw_err_prefix(ret, "barway_copy_start");
	}
	o->ctx = m->ctx;
	pthread_mutex_lock(&o->ctx->lock);
	o->next = o->ctx->requests;
	if (o->next)
		o->next->prev = o;
	o->ctx->requests = o;
	*out = bw_object_publish(o);
	pthread_mutex_unlock(&o->ctx->lock);
	return 0;
}

int barway_request_poll(struct barway_request *handle)
{
	struct bw_request_object *o = get(handle);

	if (!o)
		return bw_handle_stale(handle, "barway_request_poll", "request");
	return bw_request_poll(o->req);
}

int barway_request_wait(struct barway_request *handle, uint64_t timeout_ns)
{
	struct bw_request_object *o = get(handle);

	if (!o)
		return bw_handle_stale(handle, "barway_request_wait", "request");
	return bw_err_prefix(bw_request_wait(o->req, timeout_ns), "barway_request_wait");
}

int barway_request_fd(struct barway_request *handle)
{
	struct bw_request_object *o = get(handle);
	int fd;

	if (!o)
		return bw_handle_stale(handle, "barway_request_fd", "request");
	fd = bw_request_fd(o->req);
	return fd >= 0 ? fd :
	       bw_err(EINVAL, "barway_request_fd: the request has none: start it with "
		      "BARWAY_COPY_FD");
}

/* @o was retired and is on no list any more. */
static void end(struct bw_request_object *o)
{
	bw_request_free(o->req);
	bw_object_free(o);
}

int barway_request_free(struct barway_request *handle)
{
	struct bw_request_object *o = bw_object_retire(handle, BW_OBJECT_REQUEST);

	if (!o)
		return bw_handle_stale(handle, "barway_request_free", "request");
	pthread_mutex_lock(&o->ctx->lock);
	if (o->prev)
		o->prev->next = o->next;
	else if (o->ctx->requests == o)
		o->ctx->requests = o->next;
	if (o->next)
		o->next->prev = o->prev;
	pthread_mutex_unlock(&o->ctx->lock);
	end(o);
	return 0;
}

void bw_context_end_requests(struct bw_context *ctx)
{
	struct bw_request_object *o;

	for (;;) {
		pthread_mutex_lock(&ctx->lock);
		o = ctx->requests;
		if (o) {
			ctx->requests = o->next;
			if (o->next)
				o->next->prev = NULL;
		}
		pthread_mutex_unlock(&ctx->lock);
		if (!o)
			break;
		if (bw_object_retire(bw_object_handle(o), BW_OBJECT_REQUEST))
			end(o);
	}
}
