/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/cuda: the baseline, what a program without Barway would call. The driver is opened at run
 * time. One thread uses it: the device's primary context is made current in the thread that opened.
 */
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct bench_cuda;

/*
 * @lib:    name or path of the driver library, "libcuda.so.1"
 * @pci:    the device, "0000:17:00.0"
 * @pinned: bytes of pinned host memory to have for the asynchronous copies
 * @reason: on failure, a sentence that says why there is no baseline
 *
 * Returns NULL where there is none.
 */
struct bench_cuda *bench_cuda_open(const char *lib, const char *pci, size_t pinned,
				   char *reason, size_t reason_size);
void bench_cuda_close(struct bench_cuda *cuda);

void *bench_cuda_pinned(struct bench_cuda *cuda);

/* cuMemAlloc and cuMemFree. 0 or -EIO. */
int bench_cuda_alloc(struct bench_cuda *cuda, size_t n, uint64_t *addr);
int bench_cuda_free(struct bench_cuda *cuda, uint64_t addr);

/*
 * cuMemcpyHtoD and cuMemcpyDtoH with any host memory. 0 or -EIO. To the GPU it can return before
 * the data has ARRIVED: it has been copied to memory of the driver's, from where the copy engine
 * takes it (CUDA Driver API, "API synchronization behavior").
 */
int bench_cuda_to(struct bench_cuda *cuda, uint64_t addr, const void *src, size_t n);
int bench_cuda_from(struct bench_cuda *cuda, void *dst, uint64_t addr, size_t n);

/* Waits until what bench_cuda_to() copied has ARRIVED. 0 or -EIO. */
int bench_cuda_wait(struct bench_cuda *cuda);

/* cuMemcpyHtoDAsync and cuMemcpyDtoHAsync with the pinned memory, and cuStreamSynchronize. */
int bench_cuda_to_pinned(struct bench_cuda *cuda, uint64_t addr, size_t n);
int bench_cuda_from_pinned(struct bench_cuda *cuda, uint64_t addr, size_t n);

/* The sentence of the last call that returned -EIO. */
const char *bench_cuda_error(const struct bench_cuda *cuda);

#endif
