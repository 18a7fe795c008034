/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/gpu_int: between bench/gpu.c and the two kinds of device below it. */
#ifndef BENCH_GPU_INT_H
#define BENCH_GPU_INT_H

#include "bench/gpu.h"

#define GPU_KERNELS 16u

struct gpu_cuda; /* bench/gpu_cuda.c's */
struct gpu_soft; /* bench/gpu_soft.c's */

/* As the functions of bench/gpu.h. NULL: the device has no such thing. */
struct gpu_ops {
	const char *name; /* "the soft GPU" */
	int (*open)(struct bench_gpu *gpu);
	void (*close)(struct bench_gpu *gpu); /* also what open() left when it failed */
	int (*alloc)(struct bench_gpu *gpu, struct bench_memory *mem, size_t bytes);
	int (*free)(struct bench_gpu *gpu, struct bench_memory *mem);
	/* at most one allocation's; sets *@bytes to how many it copied */
	int (*copy)(struct bench_gpu *gpu, uint64_t addr, void *host, size_t *bytes, bool to);
	int (*export)(struct bench_gpu *gpu, const struct bench_memory *mem, int *fd);
	int (*import)(struct bench_gpu *gpu, int fd, size_t bytes, struct bench_memory *mem);
	int (*ipc_export)(struct bench_gpu *gpu, uint64_t addr, unsigned char handle[64]);
	int (*ipc_import)(struct bench_gpu *gpu, const unsigned char handle[64], uint64_t *addr);
	int (*stream_create)(struct bench_gpu *gpu, void **stream);
	int (*stream_destroy)(struct bench_gpu *gpu, void *stream);
	int (*stream_sync)(struct bench_gpu *gpu, void *stream);
	int (*stream_query)(struct bench_gpu *gpu, void *stream);
	int (*load)(struct bench_gpu *gpu, const struct bench_kernel *kernel);
	int (*launch)(struct bench_gpu *gpu, void *stream, const struct bench_kernel *kernel,
		      unsigned blocks, unsigned threads, const void *param, size_t bytes);
};

extern const struct gpu_ops gpu_cuda_ops, gpu_soft_ops;

struct bench_gpu {
	const struct gpu_ops *ops;
	struct barway_context *ctx;
	struct barway_device *dev;
	int index; /* of the device; on CUDA its ordinal */
	struct gpu_cuda *cuda;
	struct gpu_soft *soft;
	char error[1024];
};

struct bench_stream {
	struct bench_gpu *gpu;
	void *handle;
};

/* Keeps the sentence; returns -@err. */
int gpu_error(struct bench_gpu *gpu, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Keeps Barway's sentence where @ret is an error; returns @ret. */
int gpu_barway(struct bench_gpu *gpu, int ret);

#endif
