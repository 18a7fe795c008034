/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* Our own declarations of the few functions used. Source: CUDA Driver API reference manual. */
#define CUDA_FUNCTIONS(F) \
	F(cuInit, (unsigned flags)) \
	F(cuDeviceGetCount, (int *count)) \
	F(cuDeviceGet, (int *dev, int ordinal)) \
	F(cuDeviceGetPCIBusId, (char *pci, int size, int dev)) \
	F(cuDevicePrimaryCtxRetain, (void **ctx, int dev)) \
	F(cuDevicePrimaryCtxRelease_v2, (int dev)) \
	F(cuCtxPushCurrent_v2, (void *ctx)) \
	F(cuCtxPopCurrent_v2, (void **ctx)) \
	F(cuStreamCreate, (void **stream, unsigned flags)) \
	F(cuStreamSynchronize, (void *stream)) \
	F(cuStreamDestroy_v2, (void *stream)) \
	F(cuMemAlloc_v2, (unsigned long long *addr, size_t n)) \
	F(cuMemFree_v2, (unsigned long long addr)) \
	F(cuMemAllocHost_v2, (void **p, size_t n)) \
	F(cuMemFreeHost, (void *p)) \
	F(cuMemcpyHtoD_v2, (unsigned long long dst, const void *src, size_t n)) \
	F(cuMemcpyDtoH_v2, (void *dst, unsigned long long src, size_t n)) \
	F(cuMemcpyHtoDAsync_v2, (unsigned long long dst, const void *src, size_t n, void *stream)) \
	F(cuMemcpyDtoHAsync_v2, (void *dst, unsigned long long src, size_t n, void *stream)) \
	F(cuGetErrorName, (int error, const char **name))

#define STREAM_NON_BLOCKING 1u /* CU_STREAM_NON_BLOCKING */

struct bench_cuda {
	void *lib;
#define DECLARE(name, args) int (*name) args;
	CUDA_FUNCTIONS(DECLARE)
#undef DECLARE
	int dev;
	void *ctx;
	bool pushed;
	void *stream;
	void *pinned;
	char error[160];
};

__attribute__((format(printf, 3, 4)))
static bool refuse(char *reason, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, size, fmt, ap);
	va_end(ap);
	return false;
}

static bool load(struct bench_cuda *c, const char *lib, char *reason, size_t size)
{
	c->lib = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	if (!c->lib)
		return refuse(reason, size, "%s", dlerror());
#define LOAD(name, args) \
	*(void **)&c->name = dlsym(c->lib, #name); \
	if (!c->name) \
		return refuse(reason, size, "%s has no %s", lib, #name);
	CUDA_FUNCTIONS(LOAD)
#undef LOAD
	return true;
}

static int check(struct bench_cuda *c, const char *call, int error)
{
	const char *name = NULL;

	if (!error)
		return 0;
	if (c->cuGetErrorName(error, &name) || !name)
		name = "unknown";
	snprintf(c->error, sizeof(c->error), "%s: CUDA error %d (%s)", call, error, name);
	return -EIO;
}

#define CALL(c, name, ...) check(c, #name, (c)->name(__VA_ARGS__))

/* By its PCI address: ordinals are what CUDA_VISIBLE_DEVICES makes of them. */
static bool find(struct bench_cuda *c, const char *pci)
{
	char is[32];
	int n;

	if (CALL(c, cuDeviceGetCount, &n))
		return false;
	for (int i = 0; i < n; i++) {
		if (CALL(c, cuDeviceGet, &c->dev, i) ||
		    CALL(c, cuDeviceGetPCIBusId, is, sizeof(is), c->dev))
			return false;
		if (!strcasecmp(is, pci))
			return true;
	}
	snprintf(c->error, sizeof(c->error), "CUDA has no device %s", pci);
	return false;
}

static bool start(struct bench_cuda *c, const char *pci, size_t pinned)
{
	if (CALL(c, cuInit, 0) || !find(c, pci) ||
	    CALL(c, cuDevicePrimaryCtxRetain, &c->ctx, c->dev))
		return false;
	if (CALL(c, cuCtxPushCurrent_v2, c->ctx))
		return false;
	c->pushed = true;
	return !CALL(c, cuStreamCreate, &c->stream, STREAM_NON_BLOCKING) &&
	       !CALL(c, cuMemAllocHost_v2, &c->pinned, pinned);
}

struct bench_cuda *bench_cuda_open(const char *lib, const char *pci, size_t pinned,
				   char *reason, size_t reason_size)
{
	struct bench_cuda *c = calloc(1, sizeof(*c));

	if (!c) {
		refuse(reason, reason_size, "out of memory");
		return NULL;
	}
	if (!load(c, lib, reason, reason_size)) {
		if (c->lib)
			dlclose(c->lib);
		free(c);
		return NULL;
	}
	if (!start(c, pci, pinned)) {
		refuse(reason, reason_size, "%s", c->error);
		bench_cuda_close(c);
		return NULL;
	}
	return c;
}

void bench_cuda_close(struct bench_cuda *c)
{
	void *ctx;

	if (!c)
		return;
	if (c->pinned)
		c->cuMemFreeHost(c->pinned);
	if (c->stream)
		c->cuStreamDestroy_v2(c->stream);
	if (c->pushed)
		c->cuCtxPopCurrent_v2(&ctx);
	if (c->ctx)
		c->cuDevicePrimaryCtxRelease_v2(c->dev);
	/* the driver stays loaded: it has threads of its own */
	free(c);
}

void *bench_cuda_pinned(struct bench_cuda *c)
{
	return c->pinned;
}

int bench_cuda_alloc(struct bench_cuda *c, size_t n, uint64_t *addr)
{
	unsigned long long found;
	int ret = CALL(c, cuMemAlloc_v2, &found, n);

	if (ret == 0)
		*addr = found;
	return ret;
}

int bench_cuda_free(struct bench_cuda *c, uint64_t addr)
{
	return CALL(c, cuMemFree_v2, addr);
}

int bench_cuda_to(struct bench_cuda *c, uint64_t addr, const void *src, size_t n)
{
	return CALL(c, cuMemcpyHtoD_v2, addr, src, n);
}

int bench_cuda_from(struct bench_cuda *c, void *dst, uint64_t addr, size_t n)
{
	return CALL(c, cuMemcpyDtoH_v2, dst, addr, n);
}

int bench_cuda_wait(struct bench_cuda *c)
{
	return CALL(c, cuStreamSynchronize, NULL); /* the stream that copies without one are in */
}

int bench_cuda_to_pinned(struct bench_cuda *c, uint64_t addr, size_t n)
{
	int ret = CALL(c, cuMemcpyHtoDAsync_v2, addr, c->pinned, n, c->stream);

	return ret ? ret : CALL(c, cuStreamSynchronize, c->stream);
}

int bench_cuda_from_pinned(struct bench_cuda *c, uint64_t addr, size_t n)
{
	int ret = CALL(c, cuMemcpyDtoHAsync_v2, c->pinned, addr, n, c->stream);

	return ret ? ret : CALL(c, cuStreamSynchronize, c->stream);
}

const char *bench_cuda_error(const struct bench_cuda *c)
{
	return c->error;
}
