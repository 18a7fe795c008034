/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/gpu over the CUDA driver, opened at run time. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu_int.h"

struct cu_prop { /* CUmemAllocationProp */
	int type, handle_types, location_type, location_id;
	void *win32;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};
struct cu_access { /* CUmemAccessDesc */
	int location_type, location_id, flags;
};
struct cu_ipc { /* CUipcMemHandle */
	unsigned char bytes[64];
};

/*
 * Our own declarations of the few functions used. Source: CUDA Driver API reference manual, as for
 * the numbers below. What is missing from an old driver is said when it is called for.
 */
#define CUDA_FUNCTIONS(F)                                                                         \
	F(cuInit, (unsigned flags))                                                               \
	F(cuGetErrorName, (int error, const char **name))                                         \
	F(cuDeviceGet, (int *dev, int ordinal))                                                   \
	F(cuDevicePrimaryCtxRetain, (void **ctx, int dev))                                        \
	F(cuDevicePrimaryCtxRelease_v2, (int dev))                                                \
	F(cuCtxPushCurrent_v2, (void *ctx))                                                       \
	F(cuCtxPopCurrent_v2, (void **ctx))                                                       \
	F(cuStreamCreate, (void **stream, unsigned flags))                                        \
	F(cuStreamDestroy_v2, (void *stream))                                                     \
	F(cuStreamSynchronize, (void *stream))                                                    \
	F(cuStreamQuery, (void *stream))                                                          \
	F(cuMemcpyHtoDAsync_v2, (uint64_t dst, const void *src, size_t n, void *stream))          \
	F(cuMemcpyDtoHAsync_v2, (void *dst, uint64_t src, size_t n, void *stream))                \
	F(cuMemGetAddressRange_v2, (uint64_t *base, size_t *size, uint64_t addr))                 \
	F(cuMemAlloc_v2, (uint64_t *addr, size_t n))                                              \
	F(cuMemFree_v2, (uint64_t addr))                                                          \
	F(cuMemAllocManaged, (uint64_t *addr, size_t n, unsigned flags))                          \
	F(cuMemAllocAsync, (uint64_t *addr, size_t n, void *stream))                              \
	F(cuMemFreeAsync, (uint64_t addr, void *stream))                                          \
	F(cuMemGetAllocationGranularity, (size_t *n, const struct cu_prop *prop, int option))     \
	F(cuMemCreate, (uint64_t *handle, size_t n, const struct cu_prop *prop,                   \
			unsigned long long flags))                                                \
	F(cuMemRelease, (uint64_t handle))                                                        \
	F(cuMemAddressReserve, (uint64_t *addr, size_t n, size_t align, uint64_t at,              \
				unsigned long long flags))                                        \
	F(cuMemAddressFree, (uint64_t addr, size_t n))                                            \
	F(cuMemMap, (uint64_t addr, size_t n, size_t offset, uint64_t handle,                     \
		     unsigned long long flags))                                                   \
	F(cuMemUnmap, (uint64_t addr, size_t n))                                                  \
	F(cuMemSetAccess, (uint64_t addr, size_t n, const struct cu_access *access, size_t count)) \
	F(cuMemExportToShareableHandle, (void *out, uint64_t handle, int type,                    \
					 unsigned long long flags))                               \
	F(cuMemImportFromShareableHandle, (uint64_t *handle, void *in, int type))                 \
	F(cuIpcGetMemHandle, (struct cu_ipc *handle, uint64_t addr))                              \
	F(cuIpcOpenMemHandle_v2, (uint64_t *addr, struct cu_ipc handle, unsigned flags))          \
	F(cuIpcCloseMemHandle, (uint64_t addr))                                                   \
	F(cuModuleLoadDataEx, (void **module, const void *image, unsigned n, int *options,        \
			       void **values))                                                    \
	F(cuModuleUnload, (void *module))                                                         \
	F(cuModuleGetFunction, (void **function, void *module, const char *name))                 \
	F(cuLaunchKernel, (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,    \
			   unsigned by, unsigned bz, unsigned shared, void *stream, void **params, \
			   void **extra))

enum {
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_READY = 600,
	CU_NOT_SUPPORTED = 801,
	CU_STREAM_NON_BLOCKING = 1,
	CU_MEM_ATTACH_GLOBAL = 1,
	CU_IPC_LAZY_PEER_ACCESS = 1,
	CU_POSIX_FD = 1,
	CU_DEVICE = 1, /* location */
	CU_PINNED = 1, /* type of an allocation */
	CU_READ_WRITE = 3,
	CU_JIT_ERROR_LOG = 5,
	CU_JIT_ERROR_LOG_SIZE = 6,
};

struct cuda_kernel {
	const struct bench_kernel *kernel;
	void *module, *function;
};

struct gpu_cuda {
	void *lib;
#define DECLARE(name, args) int (*name) args;
	CUDA_FUNCTIONS(DECLARE)
#undef DECLARE
	int dev;
	bool retained, pushed;
	void *ctx;
	void *copies; /* the stream of copies, and of the pool */
	struct cuda_kernel kernels[GPU_KERNELS];
	unsigned n_kernels;
};

/* ---- calls ------------------------------------------------------------------------------- */

static int check(struct bench_gpu *gpu, const char *call, int error)
{
	const char *name = NULL;

	if (!error)
		return 0;
	if (gpu->cuda->cuGetErrorName(error, &name) || !name)
		name = "unknown";
	return gpu_error(gpu, error == CU_OUT_OF_MEMORY ? ENOMEM :
			      error == CU_NOT_SUPPORTED ? ENOTSUP : EIO,
			 "%s: CUDA error %d (%s)", call, error, name);
}

static int missing(struct bench_gpu *gpu, const char *name)
{
	return gpu_error(gpu, ENOTSUP, "the CUDA driver has no %s", name);
}

#define CALL(gpu, name, ...) ((gpu)->cuda->name ?                             \
	check(gpu, #name, (gpu)->cuda->name(__VA_ARGS__)) : missing(gpu, #name))

/* ---- open -------------------------------------------------------------------------------- */

/* The driver library that Barway was told to use. */
static const char *driver_library(void)
{
	struct barway_param_info p = { .size = sizeof(p) };

	for (unsigned i = 0; barway_param_get(i, &p) == 0; i++) {
		if (!strcmp(p.name, "libcuda"))
			return p.value;
	}
	return "libcuda.so.1";
}

static int load_library(struct bench_gpu *gpu)
{
	struct gpu_cuda *c = gpu->cuda;
	const char *name = driver_library();

	c->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!c->lib)
		return gpu_error(gpu, ENODEV, "%s", dlerror());
#define LOAD(name, args) *(void **)&c->name = dlsym(c->lib, #name);
	CUDA_FUNCTIONS(LOAD)
#undef LOAD
	return c->cuGetErrorName ? 0 : gpu_error(gpu, ENODEV, "%s is no CUDA driver", name);
}

static int cuda_open(struct bench_gpu *gpu)
{
	struct gpu_cuda *c = gpu->cuda = calloc(1, sizeof(*c));
	int ret = c ? load_library(gpu) : gpu_error(gpu, ENOMEM, "out of memory");

	if (ret == 0)
		ret = CALL(gpu, cuInit, 0);
	if (ret == 0)
		ret = CALL(gpu, cuDeviceGet, &c->dev, gpu->index);
	if (ret == 0)
		ret = CALL(gpu, cuDevicePrimaryCtxRetain, &c->ctx, c->dev);
	c->retained = ret == 0;
	if (ret == 0)
		ret = CALL(gpu, cuCtxPushCurrent_v2, c->ctx);
	c->pushed = ret == 0;
	return ret ? ret : CALL(gpu, cuStreamCreate, &c->copies, CU_STREAM_NON_BLOCKING);
}

static void cuda_close(struct bench_gpu *gpu)
{
	struct gpu_cuda *c = gpu->cuda;
	void *ctx;

	if (!c)
		return;
	for (unsigned i = 0; i < c->n_kernels; i++)
		CALL(gpu, cuModuleUnload, c->kernels[i].module);
	if (c->copies)
		CALL(gpu, cuStreamDestroy_v2, c->copies);
	if (c->pushed)
		CALL(gpu, cuCtxPopCurrent_v2, &ctx);
	if (c->retained)
		CALL(gpu, cuDevicePrimaryCtxRelease_v2, c->dev);
	/* the driver stays loaded: it has threads of its own */
	free(c);
}

/* ---- memory ------------------------------------------------------------------------------ */

static int vmm_free(struct bench_gpu *gpu, struct bench_memory *mem, bool mapped)
{
	size_t each = mem->handles ? mem->bytes / mem->handles : 0;
	int first = 0, ret;

	for (unsigned i = 0; i < mem->handles; i++) {
		ret = mapped ? CALL(gpu, cuMemUnmap, mem->addr + i * each, each) : 0;
		first = first ? first : ret;
		ret = CALL(gpu, cuMemRelease, mem->handle[i]);
		first = first ? first : ret;
	}
	ret = CALL(gpu, cuMemAddressFree, mem->addr, mem->bytes);
	return first ? first : ret;
}

/* Maps the handles of @mem one after the other; it has an address range already. */
static int vmm_map(struct bench_gpu *gpu, struct bench_memory *mem)
{
	struct cu_access access = { CU_DEVICE, gpu->cuda->dev, CU_READ_WRITE };
	size_t each = mem->bytes / mem->handles;
	unsigned mapped = 0;
	int ret = 0;

	for (; ret == 0 && mapped < mem->handles; mapped += ret == 0)
		ret = CALL(gpu, cuMemMap, mem->addr + mapped * each, each, 0,
			   mem->handle[mapped], 0);
	if (ret == 0)
		ret = CALL(gpu, cuMemSetAccess, mem->addr, mem->bytes, &access, 1);
	while (ret < 0 && mapped--)
		gpu->cuda->cuMemUnmap(mem->addr + mapped * each, each); /* the error stays */
	return ret;
}

static int vmm_alloc(struct bench_gpu *gpu, struct bench_memory *mem, size_t bytes)
{
	struct cu_prop p = {
		.type = CU_PINNED,
		.handle_types = mem->kind == BENCH_MEMORY_VMM_FD ? CU_POSIX_FD : 0,
		.location_type = CU_DEVICE,
		.location_id = gpu->cuda->dev,
	};
	unsigned handles = mem->kind == BENCH_MEMORY_VMM_TWO ? 2 : 1;
	size_t step = 0;
	int ret = CALL(gpu, cuMemGetAllocationGranularity, &step, &p, 0);

	if (ret < 0)
		return ret;
	step *= handles;
	mem->bytes = (bytes + step - 1) / step * step;
	ret = CALL(gpu, cuMemAddressReserve, &mem->addr, mem->bytes, 0, 0, 0);
	if (ret < 0)
		return ret;
	for (; ret == 0 && mem->handles < handles; mem->handles += ret == 0)
		ret = CALL(gpu, cuMemCreate, &mem->handle[mem->handles], mem->bytes / handles, &p,
			   0);
	if (ret == 0)
		ret = vmm_map(gpu, mem);
	if (ret < 0)
		vmm_free(gpu, mem, false);
	return ret;
}

static int pool_alloc(struct bench_gpu *gpu, struct bench_memory *mem, size_t bytes)
{
	int ret = CALL(gpu, cuMemAllocAsync, &mem->addr, bytes, gpu->cuda->copies);

	return ret ? ret : CALL(gpu, cuStreamSynchronize, gpu->cuda->copies);
}

static int cuda_alloc(struct bench_gpu *gpu, struct bench_memory *mem, size_t bytes)
{
	switch (mem->kind) {
	case BENCH_MEMORY_DEVICE:
		return CALL(gpu, cuMemAlloc_v2, &mem->addr, bytes);
	case BENCH_MEMORY_POOL:
		return pool_alloc(gpu, mem, bytes);
	case BENCH_MEMORY_MANAGED:
		return CALL(gpu, cuMemAllocManaged, &mem->addr, bytes, CU_MEM_ATTACH_GLOBAL);
	case BENCH_MEMORY_VMM:
	case BENCH_MEMORY_VMM_FD:
	case BENCH_MEMORY_VMM_TWO:
		return vmm_alloc(gpu, mem, bytes);
	default:
		return gpu_error(gpu, EINVAL, "unknown kind of memory %u", mem->kind);
	}
}

static int cuda_free(struct bench_gpu *gpu, struct bench_memory *mem)
{
	int ret;

	if (mem->handles)
		return vmm_free(gpu, mem, true);
	if (mem->imported)
		return CALL(gpu, cuIpcCloseMemHandle, mem->addr);
	if (mem->kind != BENCH_MEMORY_POOL)
		return CALL(gpu, cuMemFree_v2, mem->addr);
	ret = CALL(gpu, cuMemFreeAsync, mem->addr, gpu->cuda->copies);
	return ret ? ret : CALL(gpu, cuStreamSynchronize, gpu->cuda->copies);
}

/* CUDA's copies do not go over the seam of two allocations. */
static int cuda_copy(struct bench_gpu *gpu, uint64_t addr, void *host, size_t *bytes, bool to)
{
	void *stream = gpu->cuda->copies;
	uint64_t base = 0;
	size_t n = 0;
	int ret = CALL(gpu, cuMemGetAddressRange_v2, &base, &n, addr);

	if (ret < 0)
		return ret;
	if (n - (addr - base) < *bytes)
		*bytes = n - (addr - base);
	ret = to ? CALL(gpu, cuMemcpyHtoDAsync_v2, addr, host, *bytes, stream)
		 : CALL(gpu, cuMemcpyDtoHAsync_v2, host, addr, *bytes, stream);
	return ret ? ret : CALL(gpu, cuStreamSynchronize, stream);
}

/* ---- to another process ------------------------------------------------------------------ */

static int cuda_export(struct bench_gpu *gpu, const struct bench_memory *mem, int *fd)
{
	return CALL(gpu, cuMemExportToShareableHandle, fd, mem->handle[0], CU_POSIX_FD, 0);
}

static int cuda_import(struct bench_gpu *gpu, int fd, size_t bytes, struct bench_memory *mem)
{
	int ret = CALL(gpu, cuMemImportFromShareableHandle, &mem->handle[0],
		       (void *)(intptr_t)fd, CU_POSIX_FD);

	if (ret < 0)
		return ret;
	ret = CALL(gpu, cuMemAddressReserve, &mem->addr, bytes, 0, 0, 0);
	if (ret < 0) {
		CALL(gpu, cuMemRelease, mem->handle[0]);
		return ret;
	}
	mem->handles = 1;
	ret = vmm_map(gpu, mem);
	if (ret < 0)
		vmm_free(gpu, mem, false);
	return ret;
}

static int cuda_ipc_export(struct bench_gpu *gpu, uint64_t addr, unsigned char handle[64])
{
	struct cu_ipc ipc;
	int ret = CALL(gpu, cuIpcGetMemHandle, &ipc, addr);

	if (ret == 0)
		memcpy(handle, ipc.bytes, sizeof(ipc.bytes));
	return ret;
}

static int cuda_ipc_import(struct bench_gpu *gpu, const unsigned char handle[64], uint64_t *addr)
{
	struct cu_ipc ipc;

	memcpy(ipc.bytes, handle, sizeof(ipc.bytes));
	return CALL(gpu, cuIpcOpenMemHandle_v2, addr, ipc, CU_IPC_LAZY_PEER_ACCESS);
}

/* ---- streams and kernels ----------------------------------------------------------------- */

static int cuda_stream_create(struct bench_gpu *gpu, void **stream)
{
	return CALL(gpu, cuStreamCreate, stream, CU_STREAM_NON_BLOCKING);
}

static int cuda_stream_destroy(struct bench_gpu *gpu, void *stream)
{
	int ret = CALL(gpu, cuStreamSynchronize, stream);
	int end = CALL(gpu, cuStreamDestroy_v2, stream);

	return ret ? ret : end;
}

static int cuda_stream_sync(struct bench_gpu *gpu, void *stream)
{
	return CALL(gpu, cuStreamSynchronize, stream);
}

static int cuda_stream_query(struct bench_gpu *gpu, void *stream)
{
	int error = gpu->cuda->cuStreamQuery(stream);

	return error == CU_NOT_READY ? -EBUSY : check(gpu, "cuStreamQuery", error);
}

static void *loaded(const struct gpu_cuda *c, const struct bench_kernel *kernel)
{
	for (unsigned i = 0; i < c->n_kernels; i++) {
		if (c->kernels[i].kernel == kernel)
			return c->kernels[i].function;
	}
	return NULL;
}

/* What the compiler says comes first: it has the line. */
static int compile(struct bench_gpu *gpu, const struct bench_kernel *kernel, void **module)
{
	char log[512] = "", call[600];
	int options[] = { CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_SIZE };
	void *values[] = { log, (void *)(uintptr_t)(sizeof(log) - 1) };
	int error;

	if (!gpu->cuda->cuModuleLoadDataEx)
		return missing(gpu, "cuModuleLoadDataEx");
	error = gpu->cuda->cuModuleLoadDataEx(module, kernel->ptx, 2, options, values);
	snprintf(call, sizeof(call), "kernel %s: %s%scuModuleLoadDataEx", kernel->name, log,
		 *log ? ": " : "");
	return check(gpu, call, error);
}

static int cuda_load(struct bench_gpu *gpu, const struct bench_kernel *kernel)
{
	struct gpu_cuda *c = gpu->cuda;
	struct cuda_kernel k = { .kernel = kernel };
	int ret;

	if (loaded(c, kernel))
		return 0;
	if (!kernel->ptx)
		return gpu_error(gpu, ENOTSUP, "kernel %s is for the soft GPU only", kernel->name);
	if (c->n_kernels == GPU_KERNELS)
		return gpu_error(gpu, ENOMEM, "kernel %s: more than %u kernels", kernel->name,
				 GPU_KERNELS);
	ret = compile(gpu, kernel, &k.module);
	if (ret < 0)
		return ret;
	ret = CALL(gpu, cuModuleGetFunction, &k.function, k.module, kernel->name);
	if (ret < 0)
		CALL(gpu, cuModuleUnload, k.module);
	else
		c->kernels[c->n_kernels++] = k;
	return ret;
}

static int cuda_launch(struct bench_gpu *gpu, void *stream, const struct bench_kernel *kernel,
		       unsigned blocks, unsigned threads, const void *param, size_t bytes)
{
	/* CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END */
	void *extra[] = { (void *)1, (void *)(uintptr_t)param, (void *)2, &bytes, NULL };
	int ret = cuda_load(gpu, kernel);

	return ret ? ret : CALL(gpu, cuLaunchKernel, loaded(gpu->cuda, kernel), blocks, 1, 1,
				threads, 1, 1, 0, stream, NULL, extra);
}

const struct gpu_ops gpu_cuda_ops = {
	.name = "the CUDA device",
	.open = cuda_open,
	.close = cuda_close,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.copy = cuda_copy,
	.export = cuda_export,
	.import = cuda_import,
	.ipc_export = cuda_ipc_export,
	.ipc_import = cuda_ipc_import,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_sync = cuda_stream_sync,
	.stream_query = cuda_stream_query,
	.load = cuda_load,
	.launch = cuda_launch,
};
