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
	BW_CUDA_OPERATING_SYSTEM = 304,
	BW_CUDA_NOT_READY = 600,
	BW_CUDA_ALREADY_REGISTERED = 712,
	BW_CUDA_NOT_REGISTERED = 713,
	BW_CUDA_NOT_PERMITTED = 800,
	BW_CUDA_NOT_SUPPORTED = 801,
	BW_CUDA_CAPTURE_UNSUPPORTED = 900,
	BW_CUDA_CAPTURE_IMPLICIT = 906,
	BW_CUDA_UNKNOWN = 999,
};

enum { /* CUpointer_attribute */
	BW_CU_PTR_CONTEXT = 1,
	BW_CU_PTR_MEMORY_TYPE = 2, /* 1 host, 2 device, 3 array, 4 unified */
	BW_CU_PTR_DEVICE_POINTER = 3,
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
	BW_CU_DEV_WRITES_ORDERING = 118, /* GPU_DIRECT_RDMA_WRITES_ORDERING */
	BW_CU_DEV_DMA_BUF = 124,
};

enum {
	BW_CU_ORDERING_OWNER = 100,    /* CUGPUDirectRDMAWritesOrdering */
	BW_CU_HANDLE_POSIX_FD = 1,     /* CUmemAllocationHandleType */
	BW_CU_LOCATION_DEVICE = 1,     /* CUmemLocationType */
	BW_CU_ALLOCATION_PINNED = 1,   /* CUmemAllocationType */
	BW_CU_ACCESS_READWRITE = 3,    /* CUmemAccess_flags */
	BW_CU_RANGE_DMA_BUF_FD = 1,    /* CUmemRangeHandleType */
	BW_CU_RANGE_PCIE = 1,          /* CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE */
	BW_CU_STREAM_NON_BLOCKING = 1,
	BW_CU_HOST_PORTABLE = 1,       /* CU_MEMHOSTALLOC_, CU_MEMHOSTREGISTER_ */
	BW_CU_HOST_DEVICEMAP = 2,
	BW_CU_WAIT_GEQ = 0,            /* CUstreamWaitValue_flags */
	BW_CU_JIT_ERROR_LOG = 5,       /* CUjit_option */
	BW_CU_JIT_ERROR_LOG_BYTES = 6,
	BW_CU_LAUNCH_BUFFER = 1,       /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */
	BW_CU_LAUNCH_BYTES = 2,
	BW_CU_LAUNCH_END = 0,
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
	CU(cuIpcGetMemHandle, ipc_get, (struct bw_cu_ipc *ipc, uint64_t addr), 1)                 \
	CU(cuCtxGetId, ctx_id, (void *ctx, unsigned long long *id), 1)                            \
	CU(cuMemHostAlloc, host_alloc, (void **host, size_t bytes, unsigned flags), 1)            \
	CU(cuMemFreeHost, host_free, (void *host), 1)                                             \
	CU(cuMemHostRegister_v2, host_register, (void *host, size_t bytes, unsigned flags), 1)    \
	CU(cuMemHostUnregister, host_unregister, (void *host), 1)                                 \
	CU(cuMemHostGetDevicePointer_v2, host_address,                                            \
	   (uint64_t *addr, void *host, unsigned flags), 1)                                       \
	CU(cuStreamGetCtx, stream_ctx, (void *stream, void **ctx), 1)                             \
	CU(cuStreamQuery, stream_query, (void *stream), 0)                                        \
	CU(cuStreamIsCapturing, stream_capturing, (void *stream, int *status), 0)                 \
	CU(cuStreamWriteValue64, stream_write1,                                                   \
	   (void *stream, uint64_t addr, uint64_t value, unsigned flags), 1)                      \
	CU(cuStreamWriteValue64_v2, stream_write2,                                                \
	   (void *stream, uint64_t addr, uint64_t value, unsigned flags), 1)                      \
	CU(cuStreamWaitValue64, stream_wait1,                                                     \
	   (void *stream, uint64_t addr, uint64_t value, unsigned flags), 1)                      \
	CU(cuStreamWaitValue64_v2, stream_wait2,                                                  \
	   (void *stream, uint64_t addr, uint64_t value, unsigned flags), 1)                      \
	CU(cuLaunchHostFunc, launch_host, (void *stream, void (*fn)(void *arg), void *arg), 1)    \
	CU(cuModuleLoadDataEx, module_load,                                                       \
	   (void **module, const void *image, unsigned n, int *options, void **values), 1)        \
	CU(cuModuleGetFunction, module_function,                                                  \
	   (void **function, void *module, const char *name), 1)                                  \
	CU(cuModuleUnload, module_unload, (void *module), 1)                                      \
	CU(cuLaunchKernel, launch,                                                                \
	   (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
	    unsigned bz, unsigned shared, void *stream, void **params, void **extra), 1)

struct bw_cuda {
#define CU(symbol, name, params, optional) int(*name) params;
	BW_CUDA_FUNCTIONS(CU)
#undef CU
};

/* libcuda's functions, after cuInit; NULL with the reason where there is no CUDA. */
const struct bw_cuda *bw_cuda(struct bw_reason *why);

/* A CUDA error as -errno with a sentence "@operation: CUDA_ERROR_... (text)". */
int bw_cuda_err(int error, const char *operation);
const char *bw_cuda_error_name(int error); /* "CUDA_ERROR_..." */

/* Every call that may fail goes through this, so that tests can make the Nth one fail. */
#define BW_CUDA_CALL(cu, f) (bw_fault_hit(BW_FAULT_CUDA) ? BW_CUDA_UNKNOWN : (cu)->f)

/*
 * Makes the right context current for a piece of work and lets the thread do in it what a capture
 * under way would not like; leave undoes both. @owner: the context; NULL: the primary one of @dev
 * if it is active, else the thread's own if that is one of @dev. -ENODEV: there is none. No context
 * is created.
 */
struct bw_cuda_scope {
	const struct bw_cuda *cu;
	void *ctx;      /* that is current */
	int primary_of; /* ordinal whose primary context was retained, -1: none */
	int mode;
};
int bw_cuda_enter(struct bw_device *dev, void *owner, struct bw_cuda_scope *scope);
void bw_cuda_leave(struct bw_cuda_scope *scope);

/*
 * The identity of the current context: what was made in a context is used again only under the same
 * one, as another context may come to lie at the same address. 0: this driver (before CUDA 12) does
 * not say; then nothing is kept.
 */
uint64_t bw_cuda_context_id(const struct bw_cuda_scope *scope);

/* True for errors by which libcuda says that it has been shut down. */
static inline bool bw_cuda_gone(int error)
{
	return error == BW_CUDA_DEINITIALIZED || error == BW_CUDA_NOT_INITIALIZED;
}

/* Where the driver's version is read without CUDA: "580.159.04", "" where it cannot be had; and
 * whether the kernel modules are the open ones (1), the closed ones (0), or unknown (-1). */
int bw_nvidia_version(char *text, size_t n, int *open_modules);

/* ---- what the table of functions is made of, see device.h ---- */

/* cuda.c */
int bw_cuda_resolve(uint64_t addr, struct bw_segment *seg);
uint64_t bw_cuda_identity(uint64_t addr);

/* cuda_memory.c */
int bw_cuda_mem_alloc(struct bw_device *dev, size_t bytes, uint64_t *addr);
int bw_cuda_mem_free(uint64_t addr);
int bw_cuda_mem_info(struct bw_device *dev, uint64_t *total, uint64_t *free_bytes);
int bw_cuda_scratch_alloc(struct bw_device *dev, void *owner, size_t bytes, uint64_t *addr);
void bw_cuda_scratch_free(struct bw_device *dev, void *owner, uint64_t addr);

/* cuda_export.c */
int bw_cuda_export_dmabuf(struct bw_device *dev, uint64_t addr, size_t bytes, int *fd,
			  uint64_t *offset);

/* cuda_host.c */
int bw_cuda_host_alloc(struct bw_device *dev, size_t bytes, void **host, uint64_t *addr);
int bw_cuda_host_free(void *host);
int bw_cuda_host_register(struct bw_device *dev, void *host, size_t bytes, uint64_t *addr);
int bw_cuda_host_unregister(void *host);

/* cuda_stream.c */
int bw_cuda_copy_to(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes);
int bw_cuda_copy_from(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes);
int bw_cuda_stream_create(struct bw_device *dev, void *owner, void **stream);
void bw_cuda_stream_destroy(struct bw_device *dev, void *stream);
uint64_t bw_cuda_id_of_context(struct bw_device *dev, void *owner);
int bw_cuda_stream_query(struct bw_device *dev, void *stream);
int bw_cuda_stream_sync(struct bw_device *dev, void *stream);
int bw_cuda_stream_capturing(struct bw_device *dev, void *stream);
int bw_cuda_stream_copy_to(struct bw_device *dev, void *stream, uint64_t addr, const void *src,
			   size_t bytes);
int bw_cuda_stream_copy_from(struct bw_device *dev, void *stream, void *dst, uint64_t addr,
			     size_t bytes);
int bw_cuda_stream_write(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value);
int bw_cuda_stream_copy_tell(struct bw_device *dev, void *stream, bool to_gpu, uint64_t addr,
			     void *host, size_t bytes, uint64_t word, uint64_t v);
int bw_cuda_stream_wait(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value);
int bw_cuda_stream_call(struct bw_device *dev, void *stream, void (*fn)(void *arg), void *arg);
int bw_cuda_alive(struct bw_device *dev, void *owner);
/*
 * As bw_cuda_enter(), in the context of @stream, for work that becomes part of a graph where the
 * stream is being captured. -ENOTSUP where a use of it would break the capture of another one.
 */
int bw_cuda_stream_enter(struct bw_device *dev, void *stream, struct bw_cuda_scope *scope);

/* cuda_kernel.c */
int bw_cuda_kernel_load(struct bw_device *dev, void *owner, const struct bw_kernel *kernel,
			void **loaded);
int bw_cuda_kernel_launch(struct bw_device *dev, void *stream, void *loaded, unsigned blocks,
			  unsigned threads, const void *param, size_t bytes);

#endif
