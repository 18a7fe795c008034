/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/gpu_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *const bench_memory_names[BENCH_MEMORY_KINDS] = {
	[BENCH_MEMORY_BARWAY] = "barway",
	[BENCH_MEMORY_DEVICE] = "device",
	[BENCH_MEMORY_VMM] = "vmm",
	[BENCH_MEMORY_VMM_FD] = "vmm with a handle type",
	[BENCH_MEMORY_VMM_TWO] = "vmm over two handles",
	[BENCH_MEMORY_POOL] = "pool",
	[BENCH_MEMORY_MANAGED] = "managed",
};

int gpu_error(struct bench_gpu *gpu, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(gpu->error, sizeof(gpu->error), fmt, ap);
	va_end(ap);
	return -err;
}

int gpu_barway(struct bench_gpu *gpu, int ret)
{
	return ret < 0 ? gpu_error(gpu, -ret, "%s", barway_errmsg()) : ret;
}

static int lacks(struct bench_gpu *gpu, const char *what)
{
	return gpu_error(gpu, ENOTSUP, "%s has no %s", gpu->ops->name, what);
}

/* ---- open -------------------------------------------------------------------------------- */

static int start(struct bench_gpu *gpu, struct barway_context *ctx, struct barway_device *dev)
{
	struct barway_device_info info = { .size = sizeof(info) };
	int ret = gpu_barway(gpu, barway_device_query(dev, &info));

	if (ret < 0)
		return ret;
	gpu->ctx = ctx;
	gpu->dev = dev;
	gpu->index = info.index;
	gpu->ops = info.kind == BARWAY_DEVICE_SOFT ? &gpu_soft_ops : &gpu_cuda_ops;
	return gpu->ops->open(gpu);
}

struct bench_gpu *bench_gpu_open(struct barway_context *ctx, struct barway_device *dev,
				 char *reason, size_t reason_size)
{
	struct bench_gpu *gpu = calloc(1, sizeof(*gpu));

	if (!gpu) {
		snprintf(reason, reason_size, "out of memory");
		return NULL;
	}
	if (start(gpu, ctx, dev) < 0) {
		snprintf(reason, reason_size, "%s", gpu->error);
		bench_gpu_close(gpu);
		return NULL;
	}
	return gpu;
}

void bench_gpu_close(struct bench_gpu *gpu)
{
	if (!gpu)
		return;
	if (gpu->ops)
		gpu->ops->close(gpu);
	free(gpu);
}

const char *bench_gpu_error(const struct bench_gpu *gpu)
{
	return gpu->error;
}

bool bench_gpu_is_soft(const struct bench_gpu *gpu)
{
	return gpu->ops == &gpu_soft_ops;
}

/* ---- memory ------------------------------------------------------------------------------ */

int bench_gpu_alloc(struct bench_gpu *gpu, enum bench_memory_kind kind, size_t bytes,
		    struct bench_memory *mem)
{
	struct bench_memory m = { .kind = kind, .bytes = bytes };
	int ret;

	if (kind == BENCH_MEMORY_BARWAY)
		ret = gpu_barway(gpu, barway_mem_alloc(gpu->dev, bytes, &m.addr));
	else if (!gpu->ops->alloc)
		ret = gpu_error(gpu, ENOTSUP, "%s has no memory of this kind: %s", gpu->ops->name,
				bench_memory_names[kind]);
	else
		ret = gpu->ops->alloc(gpu, &m, bytes);
	if (ret == 0)
		*mem = m;
	return ret;
}

int bench_gpu_free(struct bench_gpu *gpu, struct bench_memory *mem)
{
	int ret;

	if (!mem->addr)
		return 0;
	if (mem->kind == BENCH_MEMORY_BARWAY && !mem->imported)
		ret = gpu_barway(gpu, barway_mem_free(gpu->ctx, mem->addr));
	else
		ret = gpu->ops->free(gpu, mem);
	if (ret == 0)
		mem->addr = 0;
	return ret;
}

static int copy(struct bench_gpu *gpu, uint64_t addr, void *host, size_t bytes, bool to)
{
	unsigned char *p = host;

	while (bytes) {
		size_t n = bytes;
		int ret = gpu->ops->copy(gpu, addr, p, &n, to);

		if (ret < 0)
			return ret;
		addr += n;
		p += n;
		bytes -= n;
	}
	return 0;
}

int bench_gpu_write(struct bench_gpu *gpu, uint64_t addr, const void *src, size_t bytes)
{
	return copy(gpu, addr, (void *)(uintptr_t)src, bytes, true);
}

int bench_gpu_read(struct bench_gpu *gpu, void *dst, uint64_t addr, size_t bytes)
{
	return copy(gpu, addr, dst, bytes, false);
}

/* ---- to another process ------------------------------------------------------------------ */

int bench_gpu_export(struct bench_gpu *gpu, const struct bench_memory *mem, int *fd)
{
	if (!gpu->ops->export)
		return lacks(gpu, "memory that can be exported as a file");
	if (mem->kind != BENCH_MEMORY_VMM_FD)
		return gpu_error(gpu, EINVAL, "memory of the kind %s is not exported as a file",
				 bench_memory_names[mem->kind]);
	return gpu->ops->export(gpu, mem, fd);
}

int bench_gpu_import(struct bench_gpu *gpu, int fd, size_t bytes, struct bench_memory *mem)
{
	struct bench_memory m = { .kind = BENCH_MEMORY_VMM_FD, .bytes = bytes, .imported = true };
	int ret;

	if (!gpu->ops->import)
		return lacks(gpu, "memory that can be imported as a file");
	ret = gpu->ops->import(gpu, fd, bytes, &m);
	if (ret == 0)
		*mem = m;
	return ret;
}

int bench_gpu_ipc_export(struct bench_gpu *gpu, const struct bench_memory *mem,
			 unsigned char handle[64])
{
	if (!gpu->ops->ipc_export)
		return lacks(gpu, "memory that another process can open");
	if (mem->kind != BENCH_MEMORY_DEVICE)
		return gpu_error(gpu, EINVAL, "memory of the kind %s has no handle for other "
				 "processes", bench_memory_names[mem->kind]);
	return gpu->ops->ipc_export(gpu, mem->addr, handle);
}

int bench_gpu_ipc_import(struct bench_gpu *gpu, const unsigned char handle[64], size_t bytes,
			 struct bench_memory *mem)
{
	struct bench_memory m = { .kind = BENCH_MEMORY_DEVICE, .bytes = bytes, .imported = true };
	int ret;

	if (!gpu->ops->ipc_import)
		return lacks(gpu, "memory of other processes");
	ret = gpu->ops->ipc_import(gpu, handle, &m.addr);
	if (ret == 0)
		*mem = m;
	return ret;
}

/* ---- streams and kernels ----------------------------------------------------------------- */

int bench_stream_create(struct bench_gpu *gpu, struct bench_stream **out)
{
	struct bench_stream *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return gpu_error(gpu, ENOMEM, "create a stream: out of memory");
	s->gpu = gpu;
	ret = gpu->ops->stream_create(gpu, &s->handle);
	if (ret < 0)
		free(s);
	else
		*out = s;
	return ret;
}

int bench_stream_destroy(struct bench_stream *stream)
{
	int ret;

	if (!stream)
		return 0;
	ret = stream->gpu->ops->stream_destroy(stream->gpu, stream->handle);
	free(stream);
	return ret;
}

int bench_stream_sync(struct bench_stream *stream)
{
	return stream->gpu->ops->stream_sync(stream->gpu, stream->handle);
}

int bench_stream_query(struct bench_stream *stream)
{
	return stream->gpu->ops->stream_query(stream->gpu, stream->handle);
}

void *bench_stream_handle(struct bench_stream *stream)
{
	return stream->handle;
}

int bench_gpu_load(struct bench_gpu *gpu, const struct bench_kernel *kernel)
{
	return gpu->ops->load(gpu, kernel);
}

int bench_gpu_launch(struct bench_stream *stream, const struct bench_kernel *kernel,
		     unsigned blocks, unsigned threads, const void *param, size_t bytes)
{
	struct bench_gpu *gpu = stream->gpu;

	if (!bytes || bytes > 4096)
		return gpu_error(gpu, EINVAL, "launch %s: %zu bytes of parameters, not 1 to 4096",
				 kernel->name, bytes);
	return gpu->ops->launch(gpu, stream->handle, kernel, blocks, threads, param, bytes);
}
