/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda: streams, and the copy engine on streams of the library's own. None is a stream that
 * waits for the legacy default one or that it waits for.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/fault.h"
#include "core/fork.h"
#include "device/cuda.h"

#define CALL(scope, f) BW_CUDA_CALL((scope)->cu, f)
#define IDLE_MAX 16 /* streams kept for later, all contexts together */

/* A stream that was made here. One whose context is gone is forgotten, not used and not destroyed:
 * it went with the context. */
struct made {
	struct made *next;
	void *stream, *ctx;
	uint64_t ctx_id;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists */
static struct made *given; /* by stream_create() */
static struct made *idle;  /* for the copy engine */
static unsigned nidle;

static void forget_in_child(void)
{
	given = idle = NULL;
	nidle = 0;
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget_in_child);
}

/* ---- the library's own, kept between copies ------------------------------------------------- */

static int make(struct bw_cuda_scope *scope, struct made **out)
{
	struct made *m = bw_alloc(sizeof(*m));
	int error;

	if (!m)
		return BW_CUDA_OUT_OF_MEMORY;
	m->ctx = scope->ctx;
	m->ctx_id = bw_cuda_context_id(scope);
	error = CALL(scope, stream_create(&m->stream, BW_CU_STREAM_NON_BLOCKING));
	if (error)
		free(m);
	else
		*out = m;
	return error;
}

/* An idle stream of the current context, for this thread alone until put(). A CUDA error. */
static int take(struct bw_cuda_scope *scope, struct made **out)
{
	uint64_t id = bw_cuda_context_id(scope);
	struct made *found = NULL, *gone = NULL, *m;

	pthread_mutex_lock(&lock);
	for (struct made **at = &idle; (m = *at) && !found;) {
		if (m->ctx != scope->ctx) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		nidle--;
		if (m->ctx_id == id) {
			found = m;
		} else {
			m->next = gone;
			gone = m;
		}
	}
	pthread_mutex_unlock(&lock);
	while ((m = gone)) {
		gone = m->next;
		free(m);
	}
	*out = found;
	return found ? 0 : make(scope, out);
}

/* @good: nothing failed and its work is done. */
static void put(struct bw_cuda_scope *scope, struct made *m, bool good)
{
	bool kept = false;

	if (good && m->ctx_id) {
		pthread_mutex_lock(&lock);
		if (nidle < IDLE_MAX) {
			kept = true;
			m->next = idle;
			idle = m;
			nidle++;
		}
		pthread_mutex_unlock(&lock);
	}
	if (!kept) {
		scope->cu->stream_destroy(m->stream);
		free(m);
	}
}

static int ce_copy(struct bw_device *dev, uint64_t addr, const void *src, void *dst, size_t bytes)
{
	struct bw_cuda_scope scope;
	struct bw_segment seg;
	struct made *m;
	int error, ret;

	/* memory of a context that is not the primary one is copied in its own context */
	ret = bw_cuda_enter(dev, !bw_cuda_resolve(addr, &seg) ? seg.owner : NULL, &scope);
	if (ret)
		return ret;
	error = take(&scope, &m);
	if (!error) {
		error = src ? CALL(&scope, copy_to(addr, src, bytes, m->stream)) :
			      CALL(&scope, copy_from(dst, addr, bytes, m->stream));
		if (!error)
			error = CALL(&scope, stream_sync(m->stream));
		put(&scope, m, !error);
	}
	bw_cuda_leave(&scope);
	return error ? bw_cuda_err(error, "copy by the copy engine") : 0;
}

int bw_cuda_copy_to(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes)
{
	return bytes ? ce_copy(dev, addr, src, NULL, bytes) : 0;
}

int bw_cuda_copy_from(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes)
{
	return bytes ? ce_copy(dev, addr, NULL, dst, bytes) : 0;
}

/*
 * By asking a stream without work for its state: every query of a stream gives the error that a
 * kernel left in the context, however long ago, and there is nothing that it could wait for. In a
 * capture it is as harmless as anything else under the relaxed mode, as the stream is not a
 * captured one.
 */
int bw_cuda_alive(struct bw_device *dev, void *owner)
{
	struct bw_cuda_scope scope;
	struct made *m;
	int error, ret = bw_cuda_enter(dev, owner, &scope);

	if (ret)
		return ret;
	error = take(&scope, &m);
	if (!error) {
		error = CALL(&scope, stream_query(m->stream));
		put(&scope, m, !error);
	}
	bw_cuda_leave(&scope);
	return error ? bw_cuda_err(error, "use the GPU") : 0;
}

/* ---- streams, the caller's too --------------------------------------------------------------- */

static bool find_given(void *stream, struct made *copy, bool remove)
{
	struct made *m = NULL;

	pthread_mutex_lock(&lock);
	for (struct made **at = &given; *at; at = &(*at)->next)
		if ((*at)->stream == stream) {
			m = *at;
			*copy = *m;
			if (remove)
				*at = m->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	if (m && remove)
		free(m);
	return m != NULL;
}

/* The default streams (0: the legacy one, 1: that, too, 2: the thread's) are of any context. */
static bool is_default(void *stream)
{
	return (uintptr_t)stream <= 2;
}

/* As bw_cuda_enter(), in the context of @stream. */
static int enter(struct bw_device *dev, void *stream, bool remove, struct bw_cuda_scope *scope)
{
	const struct bw_cuda *cu = bw_cuda(NULL);
	struct made made = { 0 };
	void *owner = NULL;
	int ret;

	if (!is_default(stream)) {
		if (find_given(stream, &made, remove))
			owner = made.ctx;
		else if (!cu || !cu->stream_ctx || cu->stream_ctx(stream, &owner))
			owner = NULL;
	}
	ret = bw_cuda_enter(dev, owner, scope);
	if (ret || !made.stream || made.ctx_id == bw_cuda_context_id(scope))
		return ret;
	bw_cuda_leave(scope);
	return bw_err(EIO, "use a stream of GPU %d: its CUDA context was destroyed", dev->index);
}

/* 1: @stream is being captured; -ENOTSUP: using it would break the capture of another one. */
static int capturing(struct bw_cuda_scope *scope, void *stream)
{
	int status = 0, error = CALL(scope, stream_capturing(stream, &status));

	if (error == BW_CUDA_CAPTURE_IMPLICIT)
		return bw_err(ENOTSUP, "use the legacy default stream: a stream that waits for it "
			      "is being captured: use another stream, made with "
			      "cudaStreamNonBlocking");
	return error ? bw_cuda_err(error, "cuStreamIsCapturing") : status != 0;
}

int bw_cuda_stream_enter(struct bw_device *dev, void *stream, struct bw_cuda_scope *scope)
{
	int ret = enter(dev, stream, false, scope);

	if (ret)
		return ret;
	ret = capturing(scope, stream);
	if (ret < 0)
		bw_cuda_leave(scope);
	return ret < 0 ? ret : 0;
}

int bw_cuda_stream_create(struct bw_device *dev, void *owner, void **stream)
{
	struct bw_cuda_scope scope;
	struct made *m;
	int error, ret = bw_cuda_enter(dev, owner, &scope);

	if (ret)
		return ret;
	error = make(&scope, &m);
	bw_cuda_leave(&scope);
	if (error)
		return bw_cuda_err(error, "cuStreamCreate");
	*stream = m->stream;
	pthread_mutex_lock(&lock);
	m->next = given;
	given = m;
	pthread_mutex_unlock(&lock);
	return 0;
}

uint64_t bw_cuda_id_of_context(struct bw_device *dev, void *owner)
{
	struct bw_cuda_scope scope;
	struct bw_sentence kept;
	uint64_t id = 0;

	bw_err_keep(&kept);
	if (!bw_cuda_enter(dev, owner, &scope)) {
		id = bw_cuda_context_id(&scope);
		bw_cuda_leave(&scope);
	}
	bw_err_put_back(&kept);
	return id;
}

void bw_cuda_stream_destroy(struct bw_device *dev, void *stream)
{
	struct bw_cuda_scope scope;
	struct bw_sentence kept;
	int status = 0;

	bw_err_keep(&kept);
	if (!enter(dev, stream, true, &scope)) {
		if (!scope.cu->stream_capturing(stream, &status) && !status)
			scope.cu->stream_sync(stream);
		scope.cu->stream_destroy(stream);
		bw_cuda_leave(&scope);
	}
	bw_err_put_back(&kept);
}

/* A question that CUDA answers by ending the capture, if there is one. */
static int ask(struct bw_device *dev, void *stream, bool wait)
{
	const char *what = wait ? "wait for a stream" : "ask a stream for its state";
	struct bw_cuda_scope scope;
	int error, ret = enter(dev, stream, false, &scope);

	if (ret)
		return ret;
	ret = capturing(&scope, stream);
	if (ret) {
		bw_cuda_leave(&scope);
		return ret < 0 ? ret : bw_err(ENOTSUP, "%s: it is being captured: end the capture "
					      "first", what);
	}
	error = wait ? CALL(&scope, stream_sync(stream)) : CALL(&scope, stream_query(stream));
	bw_cuda_leave(&scope);
	if (error == BW_CUDA_NOT_READY)
		return -EBUSY; /* no failure: no sentence */
	return error ? bw_cuda_err(error, what) : 0;
}

int bw_cuda_stream_query(struct bw_device *dev, void *stream)
{
	return ask(dev, stream, false);
}

int bw_cuda_stream_sync(struct bw_device *dev, void *stream)
{
	return ask(dev, stream, true);
}

int bw_cuda_stream_capturing(struct bw_device *dev, void *stream)
{
	struct bw_cuda_scope scope;
	int ret = enter(dev, stream, false, &scope);

	if (ret)
		return ret;
	ret = capturing(&scope, stream);
	bw_cuda_leave(&scope);
	return ret;
}

/* ---- work for a stream ----------------------------------------------------------------------- */

static int leave(struct bw_cuda_scope *scope, int error, const char *operation)
{
	bw_cuda_leave(scope);
	return error ? bw_cuda_err(error, operation) : 0;
}

int bw_cuda_stream_copy_to(struct bw_device *dev, void *stream, uint64_t addr, const void *src,
			   size_t bytes)
{
	struct bw_cuda_scope scope;
	int ret = bytes ? bw_cuda_stream_enter(dev, stream, &scope) : 0;

	if (ret || !bytes)
		return ret;
	return leave(&scope, CALL(&scope, copy_to(addr, src, bytes, stream)),
		     "copy to the GPU on a stream");
}

int bw_cuda_stream_copy_from(struct bw_device *dev, void *stream, void *dst, uint64_t addr,
			     size_t bytes)
{
	struct bw_cuda_scope scope;
	int ret = bytes ? bw_cuda_stream_enter(dev, stream, &scope) : 0;

	if (ret || !bytes)
		return ret;
	return leave(&scope, CALL(&scope, copy_from(dst, addr, bytes, stream)),
		     "copy from the GPU on a stream");
}

/*
 * The functions with _v2 (CUDA 11.7) need no setting of the driver; those without did once. CUDA
 * compares in a circle: values that are waited for have to be less than 2^63 from what is there.
 */
static int value(struct bw_device *dev, void *stream, uint64_t addr, uint64_t v, bool wait)
{
	const char *what = wait ? "wait on a stream for a value" : "write a value on a stream";
	int (*fn)(void *stream, uint64_t addr, uint64_t v, unsigned flags);
	struct bw_cuda_scope scope;
	int ret = bw_cuda_stream_enter(dev, stream, &scope);

	if (ret)
		return ret;
	if (wait)
		fn = scope.cu->stream_wait2 ? scope.cu->stream_wait2 : scope.cu->stream_wait1;
	else
		fn = scope.cu->stream_write2 ? scope.cu->stream_write2 : scope.cu->stream_write1;
	if (!fn)
		return leave(&scope, BW_CUDA_NOT_SUPPORTED, what);
	return leave(&scope, bw_fault_hit(BW_FAULT_CUDA) ? BW_CUDA_UNKNOWN :
		     fn(stream, addr, v, wait ? BW_CU_WAIT_GEQ : 0), what);
}

int bw_cuda_stream_write(struct bw_device *dev, void *stream, uint64_t addr, uint64_t v)
{
	return value(dev, stream, addr, v, false);
}

int bw_cuda_stream_copy_tell(struct bw_device *dev, void *stream, bool to_gpu, uint64_t addr,
			     void *host, size_t bytes, uint64_t word, uint64_t v)
{
	int (*fn)(void *stream, uint64_t addr, uint64_t v, unsigned flags);
	struct bw_cuda_scope scope;
	int error, ret = enter(dev, stream, false, &scope);

	if (ret)
		return ret;
	fn = scope.cu->stream_write2 ? scope.cu->stream_write2 : scope.cu->stream_write1;
	if (!fn)
		return leave(&scope, BW_CUDA_NOT_SUPPORTED, "write a value on a stream");
	error = to_gpu ? CALL(&scope, copy_to(addr, host, bytes, stream)) :
			 CALL(&scope, copy_from(host, addr, bytes, stream));
	if (!error)
		error = bw_fault_hit(BW_FAULT_CUDA) ? BW_CUDA_UNKNOWN : fn(stream, word, v, 0);
	return leave(&scope, error, to_gpu ? "copy to the GPU on a stream" :
		     "copy from the GPU on a stream");
}

int bw_cuda_stream_wait(struct bw_device *dev, void *stream, uint64_t addr, uint64_t v)
{
	return value(dev, stream, addr, v, true);
}

int bw_cuda_stream_call(struct bw_device *dev, void *stream, void (*fn)(void *arg), void *arg)
{
	struct bw_cuda_scope scope;
	int ret = bw_cuda_stream_enter(dev, stream, &scope);

	if (ret)
		return ret;
	if (!scope.cu->launch_host)
		return leave(&scope, BW_CUDA_NOT_SUPPORTED, "cuLaunchHostFunc");
	return leave(&scope, CALL(&scope, launch_host(stream, fn, arg)), "cuLaunchHostFunc");
}
