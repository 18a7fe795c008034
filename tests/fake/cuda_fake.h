/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fake libcuda.so.1 exports, in plain C types: a CUresult is an int, a CUdevice an int, a
 * CUdeviceptr or a CUmemGenericAllocationHandle an unsigned long long, an opaque handle a void *.
 * The numbers are those of NVIDIA's cuda.h 13.0; prefixed, so that this header can be included
 * beside any other declaration of them (before cuda.h, which makes macros of some names).
 */
#ifndef CUDA_FAKE_H
#define CUDA_FAKE_H

#include <stddef.h>

enum {
	CUF_SUCCESS = 0,
	CUF_INVALID_VALUE = 1,
	CUF_OUT_OF_MEMORY = 2,
	CUF_NOT_INITIALIZED = 3,
	CUF_NO_DEVICE = 100,
	CUF_INVALID_DEVICE = 101,
	CUF_INVALID_IMAGE = 200,
	CUF_INVALID_CONTEXT = 201,
	CUF_MAP_FAILED = 205,
	CUF_INVALID_PTX = 218,
	CUF_OPERATING_SYSTEM = 304,
	CUF_INVALID_HANDLE = 400,
	CUF_NOT_FOUND = 500,
	CUF_NOT_READY = 600,
	CUF_ILLEGAL_ADDRESS = 700,
	CUF_ALREADY_REGISTERED = 712,
	CUF_NOT_REGISTERED = 713,
	CUF_LAUNCH_FAILED = 719,
	CUF_NOT_PERMITTED = 800,
	CUF_NOT_SUPPORTED = 801,
	CUF_CAPTURE_UNSUPPORTED = 900,
	CUF_CAPTURE_INVALIDATED = 901,
	CUF_CAPTURE_IMPLICIT = 906,
	CUF_CAPTURE_WRONG_THREAD = 908,
	CUF_ILLEGAL_STATE = 401,
	CUF_UNKNOWN = 999,
};

/* CUdevice_attribute */
enum {
	CUF_DEV_INTEGRATED = 18,
	CUF_DEV_PCI_BUS_ID = 33,
	CUF_DEV_PCI_DEVICE_ID = 34,
	CUF_DEV_UNIFIED_ADDRESSING = 41,
	CUF_DEV_PCI_DOMAIN_ID = 50,
	CUF_DEV_CC_MAJOR = 75,
	CUF_DEV_CC_MINOR = 76,
	CUF_DEV_HOST_PAGE_TABLES = 100,
	CUF_DEV_VMM = 102,
	CUF_DEV_POSIX_FD = 103,
	CUF_DEV_RDMA_VMM = 110,
	CUF_DEV_POOLS = 115,
	CUF_DEV_WRITES_ORDERING = 118,
	CUF_DEV_DMA_BUF = 124,
};

/* CUpointer_attribute */
enum {
	CUF_PTR_CONTEXT = 1,
	CUF_PTR_MEMORY_TYPE = 2,
	CUF_PTR_DEVICE_POINTER = 3,
	CUF_PTR_HOST_POINTER = 4,
	CUF_PTR_BUFFER_ID = 7,
	CUF_PTR_IS_MANAGED = 8,
	CUF_PTR_DEVICE_ORDINAL = 9,
	CUF_PTR_IPC_CAPABLE = 10,
	CUF_PTR_RANGE_START = 11,
	CUF_PTR_RANGE_SIZE = 12,
	CUF_PTR_MAPPED = 13,
	CUF_PTR_HANDLE_TYPES = 14,
	CUF_PTR_RDMA_CAPABLE = 15,
	CUF_PTR_MEMPOOL = 17,
	CUF_PTR_MAPPING_SIZE = 18,
	CUF_PTR_MAPPING_BASE = 19,
};

enum { CUF_MEMORYTYPE_HOST = 1, CUF_MEMORYTYPE_DEVICE = 2 };
enum { CUF_HANDLE_POSIX_FD = 1, CUF_RANGE_DMA_BUF_FD = 1, CUF_RANGE_FLAG_PCIE = 1 };
enum { CUF_CAPTURE_GLOBAL = 0, CUF_CAPTURE_THREAD_LOCAL = 1, CUF_CAPTURE_RELAXED = 2 };
enum { CUF_LOCATION_DEVICE = 1, CUF_ALLOCATION_PINNED = 1 };
enum { CUF_HOST_PORTABLE = 1, CUF_HOST_DEVICEMAP = 2, CUF_HOST_WRITECOMBINED = 4 };
enum { CUF_JIT_ERROR_LOG = 5, CUF_JIT_ERROR_LOG_BYTES = 6 };
enum { CUF_LAUNCH_END = 0, CUF_LAUNCH_BUFFER = 1, CUF_LAUNCH_BYTES = 2 };

struct cuf_location {
	int type, id;
};

/* CUmemAllocationProp_v1 */
struct cuf_prop {
	int type;
	int handle_types;
	struct cuf_location location;
	void *win32_meta;
	struct {
		unsigned char compression, rdma_capable;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

/* CUmemAccessDesc_v1 */
struct cuf_access {
	struct cuf_location location;
	int flags;
};

struct cuf_uuid {
	char bytes[16];
};

struct cuf_ipc {
	char reserved[64];
};

/*
 * A C function that stands in for the kernel of its name: each block runs on a thread of its own.
 * What it returns that is not 0 is the error that the context has from then on (CUF_LAUNCH_FAILED,
 * or any other). For a test to give, by cudaFakeKernel(); @fn NULL: none any more. Device addresses
 * are made pointers by cudaFakeDeref(), in a stand-in or elsewhere.
 */
struct cuda_fake_block {
	unsigned index, count, threads;
};
typedef int cuda_fake_kernel(const struct cuda_fake_block *block, void *param);

#define CUF_LIST(X) \
	X(cudaFakeKernel, (const char *name, cuda_fake_kernel *fn)) \
	X(cudaFakeDeref, (unsigned long long addr, size_t bytes, void **out)) \
	X(cuInit, (unsigned flags)) \
	X(cuDriverGetVersion, (int *version)) \
	X(cuGetErrorName, (int error, const char **str)) \
	X(cuGetErrorString, (int error, const char **str)) \
	X(cuDeviceGetCount, (int *count)) \
	X(cuDeviceGet, (int *dev, int ordinal)) \
	X(cuDeviceGetName, (char *name, int len, int dev)) \
	X(cuDeviceGetUuid, (struct cuf_uuid *uuid, int dev)) \
	X(cuDeviceGetUuid_v2, (struct cuf_uuid *uuid, int dev)) \
	X(cuDeviceGetPCIBusId, (char *id, int len, int dev)) \
	X(cuDeviceTotalMem_v2, (size_t *bytes, int dev)) \
	X(cuDeviceGetAttribute, (int *value, int attribute, int dev)) \
	X(cuDevicePrimaryCtxRetain, (void **ctx, int dev)) \
	X(cuDevicePrimaryCtxRelease_v2, (int dev)) \
	X(cuDevicePrimaryCtxGetState, (int dev, unsigned *flags, int *active)) \
	X(cuCtxCreate_v2, (void **ctx, unsigned flags, int dev)) \
	X(cuCtxDestroy_v2, (void *ctx)) \
	X(cuCtxPushCurrent_v2, (void *ctx)) \
	X(cuCtxPopCurrent_v2, (void **ctx)) \
	X(cuCtxGetCurrent, (void **ctx)) \
	X(cuCtxSetCurrent, (void *ctx)) \
	X(cuCtxGetDevice, (int *dev)) \
	X(cuCtxGetId, (void *ctx, unsigned long long *id)) \
	X(cuCtxSynchronize, (void)) \
	X(cuMemGetInfo_v2, (size_t *available, size_t *total)) \
	X(cuMemAlloc_v2, (unsigned long long *ptr, size_t bytes)) \
	X(cuMemFree_v2, (unsigned long long ptr)) \
	X(cuMemAllocHost_v2, (void **ptr, size_t bytes)) \
	X(cuMemFreeHost, (void *ptr)) \
	X(cuMemHostAlloc, (void **ptr, size_t bytes, unsigned flags)) \
	X(cuMemHostRegister_v2, (void *ptr, size_t bytes, unsigned flags)) \
	X(cuMemHostUnregister, (void *ptr)) \
	X(cuMemHostGetDevicePointer_v2, (unsigned long long *out, void *ptr, unsigned flags)) \
	X(cuMemAllocManaged, (unsigned long long *ptr, size_t bytes, unsigned flags)) \
	X(cuMemAllocAsync, (unsigned long long *ptr, size_t bytes, void *stream)) \
	X(cuMemFreeAsync, (unsigned long long ptr, void *stream)) \
	X(cuPointerGetAttribute, (void *data, int attribute, unsigned long long ptr)) \
	X(cuPointerGetAttributes, (unsigned n, int *attributes, void **data, \
				   unsigned long long ptr)) \
	X(cuMemGetAddressRange_v2, (unsigned long long *base, size_t *size, \
				    unsigned long long ptr)) \
	X(cuMemGetHandleForAddressRange, (void *handle, unsigned long long ptr, size_t size, \
					  int type, unsigned long long flags)) \
	X(cuMemCreate, (unsigned long long *handle, size_t size, const struct cuf_prop *prop, \
			unsigned long long flags)) \
	X(cuMemRelease, (unsigned long long handle)) \
	X(cuMemRetainAllocationHandle, (unsigned long long *handle, void *ptr)) \
	X(cuMemGetAllocationPropertiesFromHandle, (struct cuf_prop *prop, \
						   unsigned long long handle)) \
	X(cuMemGetAllocationGranularity, (size_t *size, const struct cuf_prop *prop, int option)) \
	X(cuMemAddressReserve, (unsigned long long *ptr, size_t size, size_t alignment, \
				unsigned long long addr, unsigned long long flags)) \
	X(cuMemAddressFree, (unsigned long long ptr, size_t size)) \
	X(cuMemMap, (unsigned long long ptr, size_t size, size_t offset, \
		     unsigned long long handle, unsigned long long flags)) \
	X(cuMemUnmap, (unsigned long long ptr, size_t size)) \
	X(cuMemSetAccess, (unsigned long long ptr, size_t size, const struct cuf_access *desc, \
			   size_t count)) \
	X(cuMemExportToShareableHandle, (void *shareable, unsigned long long handle, int type, \
					 unsigned long long flags)) \
	X(cuThreadExchangeStreamCaptureMode, (int *mode)) \
	X(cuStreamCreate, (void **stream, unsigned flags)) \
	X(cuStreamDestroy_v2, (void *stream)) \
	X(cuStreamSynchronize, (void *stream)) \
	X(cuStreamQuery, (void *stream)) \
	X(cuStreamGetCtx, (void *stream, void **ctx)) \
	X(cuStreamWriteValue64, (void *stream, unsigned long long addr, unsigned long long value, \
				 unsigned flags)) \
	X(cuStreamWriteValue64_v2, (void *stream, unsigned long long addr, \
				    unsigned long long value, unsigned flags)) \
	X(cuStreamWaitValue64, (void *stream, unsigned long long addr, unsigned long long value, \
				unsigned flags)) \
	X(cuStreamWaitValue64_v2, (void *stream, unsigned long long addr, \
				   unsigned long long value, unsigned flags)) \
	X(cuLaunchHostFunc, (void *stream, void (*fn)(void *arg), void *arg)) \
	X(cuModuleLoadData, (void **module, const void *image)) \
	X(cuModuleLoadDataEx, (void **module, const void *image, unsigned n, int *options, \
			       void **values)) \
	X(cuModuleGetFunction, (void **function, void *module, const char *name)) \
	X(cuModuleUnload, (void *module)) \
	X(cuLaunchKernel, (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
			   unsigned by, unsigned bz, unsigned shared, void *stream, \
			   void **params, void **extra)) \
	X(cuStreamBeginCapture_v2, (void *stream, int mode)) \
	X(cuStreamEndCapture, (void *stream, void **graph)) \
	X(cuStreamIsCapturing, (void *stream, int *status)) \
	X(cuGraphDestroy, (void *graph)) \
	X(cuGraphGetNodes, (void *graph, void **nodes, size_t *count)) \
	X(cuMemcpyHtoD_v2, (unsigned long long dst, const void *src, size_t bytes)) \
	X(cuMemcpyDtoH_v2, (void *dst, unsigned long long src, size_t bytes)) \
	X(cuMemcpyHtoDAsync_v2, (unsigned long long dst, const void *src, size_t bytes, \
				 void *stream)) \
	X(cuMemcpyDtoHAsync_v2, (void *dst, unsigned long long src, size_t bytes, void *stream)) \
	X(cuIpcGetMemHandle, (struct cuf_ipc *handle, unsigned long long ptr)) \
	X(cuIpcOpenMemHandle_v2, (unsigned long long *ptr, struct cuf_ipc handle, unsigned flags)) \
	X(cuIpcCloseMemHandle, (unsigned long long ptr))

/* For tests that load the library: a struct of pointers, one for each function. */
struct cuda_fake {
#define CUF_POINTER(name, args) int (*name) args;
	CUF_LIST(CUF_POINTER)
#undef CUF_POINTER
};

#endif
