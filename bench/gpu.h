/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/gpu: what tools and benchmarks need of a device that barway.h does not give: memory of
 * every kind, streams, kernels, and a way to the memory that is not Barway's. One interface over
 * the CUDA driver, which is opened at run time, and over the soft GPU. Pinned host memory is had
 * from barway_host_alloc(), which works on both.
 *
 * One thread uses it; on CUDA the device's primary context is made current in the thread that
 * opened. Functions return 0 or a negative errno value: -ENOTSUP the device has no such thing,
 * -ENOMEM, -EIO whatever else the device said, and -EINVAL a mistake of the program.
 * bench_gpu_error() has the sentence.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "barway.h"
#include "barway_soft.h"

struct bench_gpu;

/*
 * @dev: activated before (barway_device_activate()); it and @ctx outlive what is opened here. The
 * driver library is the one that the parameter "libcuda" names. Returns NULL where it cannot be,
 * with a sentence in @reason.
 */
struct bench_gpu *bench_gpu_open(struct barway_context *ctx, struct barway_device *dev,
				 char *reason, size_t reason_size);

/* Streams and memory are to be given back before. NULL does nothing. */
void bench_gpu_close(struct bench_gpu *gpu);

/* The sentence of the last call that failed: valid until the next one does. */
const char *bench_gpu_error(const struct bench_gpu *gpu);

bool bench_gpu_is_soft(const struct bench_gpu *gpu);

/* ---- memory ------------------------------------------------------------------------------ */

enum bench_memory_kind {
	BENCH_MEMORY_BARWAY,  /* barway_mem_alloc(): every device has it */
	BENCH_MEMORY_DEVICE,  /* cuMemAlloc, what cudaMalloc calls */
	BENCH_MEMORY_VMM,     /* cuMemCreate without a handle type */
	BENCH_MEMORY_VMM_FD,  /* ... with a POSIX file descriptor as handle type */
	BENCH_MEMORY_VMM_TWO, /* one address range over two handles */
	BENCH_MEMORY_POOL,    /* cuMemAllocAsync */
	BENCH_MEMORY_MANAGED, /* cuMemAllocManaged */
	BENCH_MEMORY_KINDS,
};

/* "barway", "device", "vmm", ... */
extern const char *const bench_memory_names[BENCH_MEMORY_KINDS];

struct bench_memory {
	enum bench_memory_kind kind;
	uint64_t addr;       /* device address; 0: nothing is allocated */
	size_t bytes;        /* at least what was asked for */
	/* the rest is for bench/gpu.c */
	uint64_t handle[2];
	unsigned handles;
	bool imported;
};

/* The soft GPU has BENCH_MEMORY_BARWAY only. Blocks. */
int bench_gpu_alloc(struct bench_gpu *gpu, enum bench_memory_kind kind, size_t bytes,
		    struct bench_memory *mem);

/* What has no @addr: nothing to do. @mem->addr is 0 afterwards. */
int bench_gpu_free(struct bench_gpu *gpu, struct bench_memory *mem);

/*
 * Copies that go past Barway: by CUDA on a stream of its own, on the soft GPU by a kernel. When
 * they return the bytes have ARRIVED. They work while a kernel is running. The range may go over
 * several allocations.
 */
int bench_gpu_write(struct bench_gpu *gpu, uint64_t addr, const void *src, size_t bytes);
int bench_gpu_read(struct bench_gpu *gpu, void *dst, uint64_t addr, size_t bytes);

/*
 * To another process. bench_gpu_export() gives a file descriptor, the caller's to close, of
 * BENCH_MEMORY_VMM_FD; bench_gpu_import() in the other process makes memory of it, to be freed
 * with bench_gpu_free(). The words of a cudaIpc handle are of BENCH_MEMORY_DEVICE.
 */
int bench_gpu_export(struct bench_gpu *gpu, const struct bench_memory *mem, int *fd);
int bench_gpu_import(struct bench_gpu *gpu, int fd, size_t bytes, struct bench_memory *mem);
int bench_gpu_ipc_export(struct bench_gpu *gpu, const struct bench_memory *mem,
			 unsigned char handle[64]);
int bench_gpu_ipc_import(struct bench_gpu *gpu, const unsigned char handle[64], size_t bytes,
			 struct bench_memory *mem);

/* ---- streams and kernels ----------------------------------------------------------------- */

struct bench_stream; /* CUDA: a non-blocking one */

int bench_stream_create(struct bench_gpu *gpu, struct bench_stream **out);
int bench_stream_destroy(struct bench_stream *stream); /* finishes its work; NULL does nothing */
int bench_stream_sync(struct bench_stream *stream);
int bench_stream_query(struct bench_stream *stream); /* 0: done, -EBUSY: not yet, no sentence */
void *bench_stream_handle(struct bench_stream *stream); /* for calls of Barway's */

/*
 * A kernel, both ways. The PTX has one parameter: a struct by value, .param .align 8 .b8 p[bytes].
 * The soft one is called for each block with a pointer to a copy of the struct; it has one thread.
 */
struct bench_kernel {
	const char *name; /* of the entry in the PTX */
	const char *ptx;  /* NULL: soft GPU only */
	barway_soft_kernel *soft;
};

/*
 * Compiles the PTX, once: a launch does it, too, at the first time. Call it before kernels run
 * that wait for the CPU, because CUDA may wait for them. @kernel outlives @gpu. At most 16 of them.
 */
int bench_gpu_load(struct bench_gpu *gpu, const struct bench_kernel *kernel);

/* @param is copied, @bytes of it, 1 to 4096. @threads: of each block; the soft GPU has one. */
int bench_gpu_launch(struct bench_stream *stream, const struct bench_kernel *kernel,
		     unsigned blocks, unsigned threads, const void *param, size_t bytes);

#endif
