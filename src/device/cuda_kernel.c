/* SPDX-License-Identifier: BSD-3-Clause */
/* device/cuda: kernels of the library's own, from PTX that the driver compiles. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/fork.h"
#include "device/cuda.h"

#define CALL(scope, f) BW_CUDA_CALL((scope)->cu, f)

/*
 * What kernel_load() gave out: a kernel in one context. These live as long as the process, as
 * somebody may hold one whose context is gone; the driver's own part goes with the context.
 * Nothing is unloaded at exit: the driver waits for running kernels then.
 */
struct loaded {
	struct loaded *next;
	const struct bw_kernel *kernel;
	void *ctx, *module, *function;
	uint64_t ctx_id;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct loaded *all;

static void forget_in_child(void)
{
	all = NULL;
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget_in_child);
}

static struct loaded *find(const struct bw_kernel *kernel, const struct bw_cuda_scope *scope)
{
	uint64_t id = bw_cuda_context_id(scope);
	struct loaded *l;

	if (!id)
		return NULL;
	pthread_mutex_lock(&lock);
	for (l = all; l; l = l->next)
		if (l->kernel == kernel && l->ctx == scope->ctx && l->ctx_id == id)
			break;
	pthread_mutex_unlock(&lock);
	return l;
}

static const char *remedy(int error)
{
	switch (error) {
	case 200: /* INVALID_IMAGE */
	case 218: /* INVALID_PTX */
		return "this is a bug in Barway";
	case 209: /* NO_BINARY_FOR_GPU */
		return "the GPU is older than the kernel is written for";
	case 221: /* JIT_COMPILER_NOT_FOUND */
		return "libnvidia-ptxjitcompiler.so.1 is missing: install it, or have the "
		       "container toolkit inject it";
	case 222: /* UNSUPPORTED_PTX_VERSION */
		return "the driver is too old: update it";
	}
	return "look at the kernel log";
}

static int load_err(int error, const struct bw_device *dev, const char *name, char *log)
{
	log[strcspn(log, "\n")] = 0; /* the first of its lines says it */
	return bw_err(error == BW_CUDA_OUT_OF_MEMORY ? ENOMEM : EIO,
		      "compile the kernel '%s' for GPU %d: %s%s%s: %s", name, dev->index,
		      bw_cuda_error_name(error), *log ? ": " : "", log, remedy(error));
}

static int load(struct bw_device *dev, const struct bw_kernel *kernel, struct bw_cuda_scope *scope,
		struct loaded *l)
{
	char log[512] = "";
	int options[] = { BW_CU_JIT_ERROR_LOG, BW_CU_JIT_ERROR_LOG_BYTES };
	void *values[] = { log, (void *)(uintptr_t)(sizeof(log) - 1) };
	int error;

	if (!scope->cu->module_load || !scope->cu->module_function || !scope->cu->launch)
		return bw_cuda_err(BW_CUDA_NOT_SUPPORTED, "cuModuleLoadDataEx");
	error = CALL(scope, module_load(&l->module, kernel->ptx, 2, options, values));
	if (error)
		return load_err(error, dev, kernel->name, log);
	error = CALL(scope, module_function(&l->function, l->module, kernel->name));
	if (error) {
		if (scope->cu->module_unload)
			scope->cu->module_unload(l->module);
		return bw_err_prefix(bw_cuda_err(error, "cuModuleGetFunction"),
				     "load the kernel '%s' for GPU %d", kernel->name, dev->index);
	}
	l->kernel = kernel;
	l->ctx = scope->ctx;
	l->ctx_id = bw_cuda_context_id(scope);
	return 0;
}

/*
 * Two threads at once may load the same kernel twice: no lock is held while the driver compiles,
 * and none of the two is unloaded, as that would wait for what runs. Both work.
 */
int bw_cuda_kernel_load(struct bw_device *dev, void *owner, const struct bw_kernel *kernel,
			void **loaded)
{
	struct bw_cuda_scope scope;
	struct loaded *l;
	int ret = bw_cuda_enter(dev, owner, &scope);

	if (ret)
		return ret;
	l = find(kernel, &scope);
	if (l) {
		*loaded = l;
		goto out;
	}
	l = bw_alloc(sizeof(*l));
	ret = l ? load(dev, kernel, &scope, l) :
		  bw_err(ENOMEM, "load the kernel '%s': no memory", kernel->name);
	if (ret) {
		free(l);
		goto out;
	}
	pthread_mutex_lock(&lock);
	l->next = all;
	all = l;
	pthread_mutex_unlock(&lock);
	*loaded = l;
out:
	bw_cuda_leave(&scope);
	return ret;
}

int bw_cuda_kernel_launch(struct bw_device *dev, void *stream, void *loaded, unsigned blocks,
			  unsigned threads, const void *param, size_t bytes)
{
	const struct loaded *l = loaded;
	void *extra[] = {
		(void *)(uintptr_t)BW_CU_LAUNCH_BUFFER, (void *)(uintptr_t)param,
		(void *)(uintptr_t)BW_CU_LAUNCH_BYTES, &bytes,
		(void *)(uintptr_t)BW_CU_LAUNCH_END,
	};
	struct bw_cuda_scope scope;
	int error, ret = bw_cuda_stream_enter(dev, stream, &scope);

	if (ret)
		return ret;
	if (l->ctx != scope.ctx || l->ctx_id != bw_cuda_context_id(&scope)) {
		bw_cuda_leave(&scope);
		return bw_err(EINVAL, "start the kernel '%s' on GPU %d: it was loaded in another "
			      "CUDA context than the stream's: load it there", l->kernel->name,
			      dev->index);
	}
	error = CALL(&scope, launch(l->function, blocks, 1, 1, threads, 1, 1, 0, stream, NULL,
				    bytes ? extra : NULL));
	bw_cuda_leave(&scope);
	return error ? bw_err_prefix(bw_cuda_err(error, "cuLaunchKernel"),
				     "start the kernel '%s' on GPU %d", l->kernel->name,
				     dev->index) : 0;
}
