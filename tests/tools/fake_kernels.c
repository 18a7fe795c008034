/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put before examples/two_servers with LD_PRELOAD: what its kernels do, for the fake libcuda that
 * BARWAY_LIBCUDA names.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "cuda_fake.h"

#include "examples/two_servers.h"

static int (*deref)(unsigned long long addr, size_t bytes, void **out);

static uint64_t *values(const struct two_servers *p)
{
	void *at;

	return deref(p->at, p->count * sizeof(uint64_t), &at) ? NULL : at;
}

static int compute(const struct cuda_fake_block *block, void *param)
{
	const struct two_servers *p = param;
	uint64_t *x = values(p);

	(void)block;
	for (uint64_t i = 0; x && i < p->count; i++)
		x[i] = i + 1;
	return x ? 0 : CUF_LAUNCH_FAILED;
}

static int twice(const struct cuda_fake_block *block, void *param)
{
	const struct two_servers *p = param;
	uint64_t *y = values(p);

	(void)block;
	for (uint64_t i = 0; y && i < p->count; i++)
		y[i] *= 2;
	return y ? 0 : CUF_LAUNCH_FAILED;
}

__attribute__((constructor)) static void give(void)
{
	const char *name = getenv("BARWAY_LIBCUDA");
	void *lib = name ? dlopen(name, RTLD_NOW | RTLD_NODELETE) : NULL;
	int (*kernel)(const char *, cuda_fake_kernel *);

	if (!lib)
		return;
	*(void **)&kernel = dlsym(lib, "cudaFakeKernel");
	*(void **)&deref = dlsym(lib, "cudaFakeDeref");
	if (!kernel || !deref || kernel("two_servers_compute", compute) ||
	    kernel("two_servers_double", twice))
		abort();
}
