/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/hw/gpu: the CUDA driver for tests that run on a real GPU, opened at run time with our own
 * prototypes, so that no toolkit is needed to build them. Constants: CUDA driver API documentation.
 */
#ifndef TEST_HW_GPU_H
#define TEST_HW_GPU_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "test.h"

struct cu_prop { /* CUmemAllocationProp */
	int type, handle_types, location_type, location_id;
	void *win32;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};
struct cu_access {
	int location_type, location_id, flags;
};
struct cu_ipc {
	char bytes[64];
};

#define GPU_FUNCTIONS(CU)                                                                       \
	CU(cuInit, (unsigned))                                                                  \
	CU(cuDeviceGetCount, (int *))                                                           \
	CU(cuDeviceGet, (int *, int))                                                           \
	CU(cuDeviceGetAttribute, (int *, int, int))                                             \
	CU(cuDeviceGetPCIBusId, (char *, int, int))                                             \
	CU(cuDevicePrimaryCtxRetain, (void **, int))                                            \
	CU(cuDevicePrimaryCtxRelease_v2, (int))                                                 \
	CU(cuCtxCreate_v2, (void **, unsigned, int))                                            \
	CU(cuCtxDestroy_v2, (void *))                                                           \
	CU(cuCtxSetCurrent, (void *))                                                           \
	CU(cuCtxGetCurrent, (void **))                                                          \
	CU(cuCtxSynchronize, (void))                                                            \
	CU(cuMemGetInfo_v2, (size_t *, size_t *))                                               \
	CU(cuMemAlloc_v2, (uint64_t *, size_t))                                                 \
	CU(cuMemFree_v2, (uint64_t))                                                            \
	CU(cuMemAllocHost_v2, (void **, size_t))                                                \
	CU(cuMemFreeHost, (void *))                                                             \
	CU(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                   \
	CU(cuMemAllocAsync, (uint64_t *, size_t, void *))                                       \
	CU(cuMemFreeAsync, (uint64_t, void *))                                                  \
	CU(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                   \
	CU(cuMemcpyDtoH_v2, (void *, uint64_t, size_t))                                         \
	CU(cuMemGetAllocationGranularity, (size_t *, const struct cu_prop *, int))              \
	CU(cuMemCreate, (uint64_t *, size_t, const struct cu_prop *, unsigned long long))       \
	CU(cuMemRelease, (uint64_t))                                                            \
	CU(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long))     \
	CU(cuMemAddressFree, (uint64_t, size_t))                                                \
	CU(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long))                  \
	CU(cuMemUnmap, (uint64_t, size_t))                                                      \
	CU(cuMemSetAccess, (uint64_t, size_t, const struct cu_access *, size_t))                \
	CU(cuStreamCreate, (void **, unsigned))                                                 \
	CU(cuStreamDestroy_v2, (void *))                                                        \
	CU(cuStreamSynchronize, (void *))                                                       \
	CU(cuStreamBeginCapture_v2, (void *, int))                                              \
	CU(cuStreamEndCapture, (void *, void **))                                               \
	CU(cuGraphDestroy, (void *))                                                            \
	CU(cuIpcGetMemHandle, (struct cu_ipc *, uint64_t))                                      \
	CU(cuIpcOpenMemHandle_v2, (uint64_t *, struct cu_ipc, unsigned))                        \
	CU(cuModuleLoadData, (void **, const void *))                                           \
	CU(cuModuleUnload, (void *))                                                            \
	CU(cuModuleGetFunction, (void **, void *, const char *))                                \
	CU(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
			    unsigned, void *, void **, void **))

static struct {
#define CU(name, params) int(*name) params;
	GPU_FUNCTIONS(CU)
#undef CU
	void *ctx;
	int device;
} gpu;

/* Fails the case with the call and CUDA's number. */
#define CU_OK(call) do { \
	int cu_ = (gpu.call); \
	if (cu_) FAIL("%s: CUDA error %d", #call, cu_); \
} while (0)

/* The first GPU with its primary context current; skips the case where there is none. */
static inline void gpu_start(void)
{
	static const char *const names[] = {
#define CU(name, params) #name,
		GPU_FUNCTIONS(CU)
#undef CU
	};
	const char *path = getenv("BARWAY_LIBCUDA");
	void *lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);

	if (!lib)
		SKIP("no GPU: %s", dlerror());
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *f = dlsym(lib, names[i]);

		if (!f)
			SKIP("libcuda has no %s", names[i]);
		memcpy((char *)&gpu + i * sizeof(void *), &f, sizeof(f));
	}
	if (gpu.cuInit(0))
		SKIP("no GPU: cuInit fails");
	if (!gpu.ctx) {
		CU_OK(cuDeviceGet(&gpu.device, 0));
		CU_OK(cuDevicePrimaryCtxRetain(&gpu.ctx, gpu.device));
	}
	CU_OK(cuCtxSetCurrent(gpu.ctx));
}

#endif
