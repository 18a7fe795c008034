/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda: libcuda, opened at run time, with our own declarations of what is used. Values of
 * constants: CUDA driver API documentation (cuda.h of CUDA 13.0 has them in the same numbers since
 * 11.7).
 */
#ifndef BW_DEVICE_CUDA_H
#define BW_DEVICE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

extern const struct bw_device_ops bw_cuda_ops;

enum {
	BW_CUDA_SUCCESS = 0,
	BW_CUDA_INVALID_VALUE = 1,
	BW_CUDA_OUT_OF_MEMORY = 2,
	BW_CUDA_NOT_INITIALIZED = 3,
	BW_CUDA_DEINITIALIZED = 4,
	BW_CUDA_INVALID_CONTEXT = 201,
	BW_CUDA_NOT_SUPPORTED = 801,
};

enum { /* CUpointer_attribute */
	BW_CU_PTR_CONTEXT = 1,
	BW_CU_PTR_MEMORY_TYPE = 2, /* 1 host, 2 device, 3 array, 4 unified */
	BW_CU_PTR_BUFFER_ID = 7,
	BW_CU_PTR_IS_MANAGED = 8,
	BW_CU_PTR_DEVICE_ORDINAL = 9,
	BW_CU_PTR_IPC_CAPABLE = 10,
	BW_CU_PTR_RANGE_START = 11,
	BW_CU_PTR_RANGE_SIZE = 12,
	BW_CU_PTR_HANDLE_TYPES = 14,
	BW_CU_PTR_RDMA_CAPABLE = 15,
	BW_CU_PTR_MEMPOOL = 17,
	BW_CU_PTR_MAPPING_SIZE = 18,
	BW_CU_PTR_MAPPING_BASE = 19,
};

enum { /* CUdevice_attribute */
	BW_CU_DEV_INTEGRATED = 18,
	BW_CU_DEV_HOST_PAGE_TABLES = 100,
	BW_CU_DEV_VMM = 102,
	BW_CU_DEV_POSIX_HANDLES = 103,
	BW_CU_DEV_RDMA_WITH_VMM = 110,
	BW_CU_DEV_DMA_BUF = 124,
};

enum {
	BW_CU_HANDLE_POSIX_FD = 1,     /* CUmemAllocationHandleType */
	BW_CU_LOCATION_DEVICE = 1,     /* CUmemLocationType */
	BW_CU_ALLOCATION_PINNED = 1,   /* CUmemAllocationType */
	BW_CU_ACCESS_READWRITE = 3,    /* CUmemAccess_flags */
	BW_CU_RANGE_DMA_BUF_FD = 1,    /* CUmemRangeHandleType */
	BW_CU_STREAM_NON_BLOCKING = 1,
	BW_CU_CAPTURE_RELAXED = 2,     /* CUstreamCaptureMode */
};

struct bw_cu_prop { /* CUmemAllocationProp, 32 bytes */
	int type;
	int handle_types;
	int location_type, location_id;
	void *win32;
	unsigned char compression, rdma_capable;
	unsigned short usage;
	unsigned char reserved[4];
};
_Static_assert(sizeof(struct bw_cu_prop) == 32, "CUmemAllocationProp");

struct bw_cu_access { /* CUmemAccessDesc */
	int location_type, location_id;
	int flags;
};
_Static_assert(sizeof(struct bw_cu_access) == 12, "CUmemAccessDesc");

struct bw_cu_uuid {
	unsigned char bytes[16];
};

struct bw_cu_ipc {
	uint32_t word[16];
};

/* CU(name in libcuda, our name, parameters): the last column is 1 where we can do without it. */
#define BW_CUDA_FUNCTIONS(CU)                                                                     \
	CU(cuInit, init, (unsigned flags), 0)                                                     \
	CU(cuDriverGetVersion, driver_version, (int *version), 0)                                 \
	CU(cuGetErrorName, error_name, (int error, const char **name), 0)                         \
	CU(cuGetErrorString, error_string, (int error, const char **text), 0)                     \
	CU(cuDeviceGetCount, device_count, (int *n), 0)                                           \
	CU(cuDeviceGet, device_get, (int *dev, int ordinal), 0)                                   \
	CU(cuDeviceGetName, device_name, (char *name, int n, int dev), 0)                         \
	CU(cuDeviceGetUuid, device_uuid, (struct bw_cu_uuid *uuid, int dev), 0)                   \
	CU(cuDeviceGetUuid_v2, device_uuid2, (struct bw_cu_uuid *uuid, int dev), 1)               \
	CU(cuDeviceGetPCIBusId, device_pci, (char *text, int n, int dev), 0)                      \
	CU(cuDeviceTotalMem_v2, device_total, (size_t *bytes, int dev), 0)                        \
	CU(cuDeviceGetAttribute, device_attr, (int *value, int attr, int dev), 0)                 \
	CU(cuDevicePrimaryCtxGetState, primary_state, (int dev, unsigned *flags, int *active), 0) \
	CU(cuDevicePrimaryCtxRetain, primary_retain, (void **ctx, int dev), 0)                    \
	CU(cuDevicePrimaryCtxRelease_v2, primary_release, (int dev), 0)                           \
	CU(cuCtxGetCurrent, ctx_current, (void **ctx), 0)                                         \
	CU(cuCtxGetDevice, ctx_device, (int *dev), 0)                                             \
	CU(cuCtxPushCurrent_v2, ctx_push, (void *ctx), 0)                                         \
	CU(cuCtxPopCurrent_v2, ctx_pop, (void **ctx), 0)                                          \
	CU(cuThreadExchangeStreamCaptureMode, capture_mode, (int *mode), 0)                       \
	CU(cuPointerGetAttribute, ptr_attr, (void *data, int attr, uint64_t addr), 0)             \
	CU(cuPointerGetAttributes, ptr_attrs,                                                     \
	   (unsigned n, int *attrs, void **data, uint64_t addr), 0)                               \
	CU(cuMemGetInfo_v2, mem_info, (size_t *free, size_t *total), 0)                           \
	CU(cuMemAlloc_v2, mem_alloc, (uint64_t *addr, size_t bytes), 0)                           \
	CU(cuMemFree_v2, mem_free, (uint64_t addr), 0)                                            \
	CU(cuMemcpyHtoDAsync_v2, copy_to,                                                         \
	   (uint64_t dst, const void *src, size_t n, void *stream), 0)                            \
	CU(cuMemcpyDtoHAsync_v2, copy_from, (void *dst, uint64_t src, size_t n, void *stream), 0) \
	CU(cuStreamCreate, stream_create, (void **stream, unsigned flags), 0)                     \
	CU(cuStreamSynchronize, stream_sync, (void *stream), 0)                                   \
	CU(cuStreamDestroy_v2, stream_destroy, (void *stream), 0)                                 \
	CU(cuMemGetHandleForAddressRange, range_handle,                                           \
	   (void *handle, uint64_t addr, size_t bytes, int type, unsigned long long flags), 1)    \
	CU(cuMemRetainAllocationHandle, vmm_retain, (uint64_t *handle, void *addr), 1)            \
	CU(cuMemGetAllocationPropertiesFromHandle, vmm_props,                                     \
	   (struct bw_cu_prop *prop, uint64_t handle), 1)                                         \
	CU(cuMemExportToShareableHandle, vmm_export,                                              \
	   (void *out, uint64_t handle, int type, unsigned long long flags), 1)                   \
	CU(cuMemGetAllocationGranularity, vmm_granularity,                                        \
	   (size_t *bytes, const struct bw_cu_prop *prop, int option), 1)                         \
	CU(cuMemCreate, vmm_create,                                                               \
	   (uint64_t *handle, size_t bytes, const struct bw_cu_prop *prop,                        \
	    unsigned long long flags), 1)                                                         \
	CU(cuMemRelease, vmm_release, (uint64_t handle), 1)                                       \
	CU(cuMemAddressReserve, va_reserve,                                                       \
	   (uint64_t *addr, size_t bytes, size_t align, uint64_t fixed,                           \
	    unsigned long long flags), 1)                                                         \
	CU(cuMemAddressFree, va_free, (uint64_t addr, size_t bytes), 1)                           \
	CU(cuMemMap, vmm_map,                                                                     \
	   (uint64_t addr, size_t bytes, size_t offset, uint64_t handle,                          \
	    unsigned long long flags), 1)                                                         \
	CU(cuMemUnmap, vmm_unmap, (uint64_t addr, size_t bytes), 1)                               \
	CU(cuMemSetAccess, vmm_access,                                                            \
	   (uint64_t addr, size_t bytes, const struct bw_cu_access *access, size_t n), 1)         \
	CU(cuIpcGetMemHandle, ipc_get, (struct bw_cu_ipc *ipc, uint64_t addr), 1)

struct bw_cuda {
#define CU(symbol, name, params, optional) int(*name) params;
	BW_CUDA_FUNCTIONS(CU)
#undef CU
};

/* libcuda's functions, after cuInit; NULL with the reason where there is no CUDA. */
const struct bw_cuda *bw_cuda(struct bw_reason *why);

/* A CUDA error as -errno with a sentence "@operation: CUDA_ERROR_... (text)". */
int bw_cuda_err(int error, const char *operation);

/*
 * Makes the right context current for a piece of work and lets the thread do in it what a capture
 * under way would not like; leave undoes both. @owner: the context, NULL: the primary one of @dev
 * if it is active. -ENODEV: there is none. No context is created.
 */
struct bw_cuda_scope {
	int primary_of; /* ordinal whose primary context was retained, -1: none */
	int mode;
};
int bw_cuda_enter(struct bw_device *dev, void *owner, struct bw_cuda_scope *scope);
void bw_cuda_leave(struct bw_cuda_scope *scope);

/* True for errors by which libcuda says that it has been shut down. */
static inline bool bw_cuda_gone(int error)
{
	return error == BW_CUDA_DEINITIALIZED || error == BW_CUDA_NOT_INITIALIZED;
}

/* Where the driver's version is read without CUDA: "580.159.04", "" where it cannot be had; and
 * whether the kernel modules are the open ones (1), the closed ones (0), or unknown (-1). */
int bw_nvidia_version(char *text, size_t n, int *open_modules);

#endif
