/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barway.h: move bytes to and from GPU memory over the shortest way the machine has.
 *
 * This header is the contract. In short: open a context, map a range of GPU memory, then store and
 * load through the pointer of the mapping or copy with barway_copy_to() and barway_copy_from().
 *
 * What holds for every function here, unless its own comment says otherwise:
 *
 *  - Returns 0 or a negative errno value. After a failure barway_errmsg() has the sentence:
 *    operation, object, cause, remedy. Outputs are written only on success.
 *  - Thread-safe: any function may be called from any thread at any time, with one rule left to the
 *    caller, as with any memory: no thread is in a call on an object, or uses a mapping's pointer,
 *    while another ends it: unmaps the mapping, frees the request, closes the channel or the
 *    context. Closing a context ends all that was made with it: then no other thread uses or ends
 *    any of that either. Waits on a channel are ended by barway_channel_shutdown(), which may come
 *    at any time before the close; those on a request by their timeout.
 *  - The caller's CUDA state is left as it was found: current context, streams, a stream capture
 *    under way. No CUDA context is ever created, except by barway_device_activate().
 *  - Handles are opaque and never to be dereferenced. They carry a generation: a handle that was
 *    closed, or that a forked child inherited, gives -ESTALE and nothing else happens.
 *  - "blocks" means: may wait for the operating system, the driver or the GPU. Functions marked
 *    "does not block" make no system call and take no lock, unless they fail; "but for a short
 *    lock": they take one that is held while a message is stored or loaded. "Does not wait": may
 *    call the system or the driver, as its comment says, but does not wait for the GPU to get on.
 *
 * Four moments, never mixed up:
 *    RETURNED  the call came back
 *    LOCAL     the source may be reused
 *    ARRIVED   the bytes are in the destination's memory
 *    VISIBLE   a kernel there may use them
 *
 * Memory ordering of a mapping (write-combined unless barway_mapping_query() says otherwise):
 *
 *    after                    guaranteed
 *    barway_copy_to()         RETURNED and LOCAL. All its stores have left the CPU's
 *                             write-combining buffers as posted PCIe writes, in order with later
 *                             stores of this thread. Within one call no order between its bytes is
 *                             promised, except that an aligned copy of 1, 2, 4 or 8 bytes is one
 *                             store, which a GPU load of the same size sees whole: old or new.
 *    barway_fence_publish()   the same for stores the caller did himself through the pointer: every
 *                             earlier store of this thread goes before every later one.
 *    barway_flush()           everything this thread wrote before is VISIBLE to kernels that are
 *                             already running: a read of the GPU came back, and PCIe reads do not
 *                             pass posted writes (PCI Express Base Specification, "Transaction
 *                             Ordering").
 *
 * A kernel that is already running sees those bytes with a load that is not served from a stale
 * copy: ld.acquire.sys orders everything the kernel reads after it and is the one to use on a flag;
 * ld.relaxed.sys and volatile loads see the flag itself but do not order later loads (follow them
 * by fence.acq_rel.sys); a plain or .nc load may be served from L1 and see old bytes for ever. A
 * kernel that starts after barway_copy_to() RETURNED sees its bytes with any load.
 *
 * SYNC_MEMOPS: the CUDA attribute CU_POINTER_ATTRIBUTE_SYNC_MEMOPS makes CUDA's own synchronous
 * copies complete before they return. Barway never sets it. Without it a cudaMemcpy of up to 64 KiB
 * from pageable memory, and any device-to-device copy, may return before its bytes have ARRIVED
 * (CUDA documentation, "API synchronization behavior"): a load through a mapping then sees old
 * bytes, and a store through it can be overwritten by the late ones. So whatever CUDA writes has to
 * be complete before the CPU reads or writes the same bytes through a mapping: wait for its stream
 * or event, or for a flag that a kernel set after its data.
 */
#ifndef BARWAY_H
#define BARWAY_H

#include <stddef.h>
#include <stdint.h>

#include "barway_channel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BARWAY_VERSION_MAJOR 0
#define BARWAY_VERSION_MINOR 1
#define BARWAY_VERSION_PATCH 0

#define BARWAY_API __attribute__((visibility("default")))
#define BARWAY_PRINTF(a, b) __attribute__((format(printf, a, b)))

struct barway_context; /* what was opened: devices, parameters, mappings */
struct barway_device;  /* one GPU or soft GPU; owned by the context, valid until it is closed */
struct barway_mapping; /* a CPU view of a range of GPU memory */

/* ---- version, errors, log, parameters ---------------------------------------------------- */

/**
 * barway_version() - version of the library that is running
 *
 * Returns (major << 16) | (minor << 8) | patch. Does not block.
 */
BARWAY_API unsigned barway_version(void);

/**
 * barway_errmsg() - the sentence of this thread's last failed call
 *
 * Returns a string owned by the library, valid until this thread's next failing call, never NULL;
 * "" where nothing failed yet. A call that succeeds leaves it alone. Does not block.
 */
BARWAY_API const char *barway_errmsg(void);

enum barway_log_level {
	BARWAY_LOG_ERROR = 1, /* the operation failed */
	BARWAY_LOG_WARN = 2,  /* it works, on a worse path; with the remedy */
	BARWAY_LOG_INFO = 3,  /* which way was taken and why */
	BARWAY_LOG_DEBUG = 4, /* every step */
};

/** A log line: @text has no line end and is valid during the call. Must not call into Barway. */
typedef void (*barway_log_fn)(void *arg, int level, const char *text);

/**
 * barway_set_log() - where log lines go and from which level on
 * @fn:    called for each line, from any thread, one at a time; NULL: standard error. It must not
 *         call Barway, this function included
 * @arg:   handed to @fn; owned by the caller
 * @level: the least important level that is passed on, enum barway_log_level; 0: none. The default
 *         is BARWAY_LOG_WARN, or the parameter "log" (environment BARWAY_LOG).
 *
 * Process-wide. When it returns, the previous function is not running and will not be called again.
 * Errors: -EINVAL for an unknown level. Blocks while a line is being written.
 */
BARWAY_API int barway_set_log(barway_log_fn fn, void *arg, int level);

/**
 * barway_param_set() - set a parameter of this process
 * @name:  as listed by barway_param_get() and in barway-params(7), for example "cache_bytes"
 * @value: as in the environment variable; sizes in bytes with an optional K, M, G or T (1024s)
 *
 * Goes before the environment variable (BARWAY_ and the name in capitals), which goes before the
 * default. Parameters are read when the first context is opened; a later change is refused.
 * Errors: -ENOENT unknown name, -EINVAL not a value for it, -EBUSY a context is open, -ENOMEM.
 * Blocks while another thread is in barway_open().
 */
BARWAY_API int barway_param_set(const char *name, const char *value);

struct barway_param_info {
	size_t size;         /* set by the caller: sizeof(struct barway_param_info) */
	const char *name;    /* all strings: the library's, valid until the next open */
	const char *value;   /* the value in force */
	const char *dflt;    /* the built-in one */
	const char *help;    /* one sentence */
	const char *source;  /* "default", "environment" or "call" */
};

/**
 * barway_param_get() - the parameter at a place in the list
 * @index: from 0
 * @info:  size set by the caller
 * Errors: -ENOENT past the end, -E2BIG a larger struct with a non-zero tail, -EINVAL size too
 * small. Does not block.
 */
BARWAY_API int barway_param_get(unsigned index, struct barway_param_info *info);

/* ---- contexts ----------------------------------------------------------------------------- */

enum barway_devices {
	BARWAY_DEVICES_AUTO = 0, /* CUDA's where there are any, else the soft GPU */
	BARWAY_DEVICES_CUDA = 1,
	BARWAY_DEVICES_SOFT = 2, /* no GPU needed; figures taken on it mean nothing about one */
};

/** What a fallback to a worse path may do. */
enum barway_fallback {
	BARWAY_FALLBACK_REPORT = 0, /* take it, log it once with the remedy */
	BARWAY_FALLBACK_DENY = 1,   /* fail with the reason instead */
	BARWAY_FALLBACK_QUIET = 2,  /* take it, say nothing; barway_mapping_query() still tells */
};

struct barway_open_options {
	size_t size;           /* sizeof(struct barway_open_options) */
	uint32_t devices;      /* enum barway_devices; AUTO: the parameter "devices" decides */
	uint32_t fallback;     /* enum barway_fallback, the default for this context's calls */
	const char *providers; /* allowed providers, comma-separated, NULL: all, or the parameter
				* "providers"; copied */
	uint32_t copy_method;  /* enum barway_method: how this context's copies are done unless a
				* call says; AUTO: the parameter "copy_method" decides */
	uint32_t copy_threads; /* helper threads for large copies, 1 to 64; 0: the parameter
				* "copy_threads", which is 0: none */
	const char *copy_cpus; /* CPU list on which helpers run, "2-5,8"; NULL: the parameter
				* "copy_cpus", or those near the GPU; copied */
};

/**
 * barway_open() - open a context
 * @options: NULL for the defaults; copied
 * @out:     the context; the caller owns it and gives it to barway_close()
 *
 * Never initialises CUDA and opens no device: safe before a fork and before there is any CUDA.
 * Errors: -EINVAL unknown value (the message names it), -E2BIG options of a newer version with a
 * non-zero tail, -ENOMEM. Does not fail because there is no GPU: barway_device_count() says so.
 * Blocks, for no more than reading the environment and checking the system.
 */
BARWAY_API int barway_open(const struct barway_open_options *options, struct barway_context **out);

/**
 * barway_close() - unmap what is still mapped, give back everything, forget the context
 *
 * Its mappings end as by barway_unmap(): their pointers must not be used afterwards. Works after
 * CUDA was unloaded or shut down.
 * Errors: -ESTALE closed before, or inherited through fork. Blocks.
 */
BARWAY_API int barway_close(struct barway_context *ctx);

/* ---- devices ------------------------------------------------------------------------------ */

enum barway_device_kind {
	BARWAY_DEVICE_CUDA = 1,
	BARWAY_DEVICE_SOFT = 2,
};

struct barway_device_info {
	size_t size;              /* sizeof(struct barway_device_info) */
	uint32_t kind;            /* enum barway_device_kind */
	int32_t index;            /* place in this context's list; for CUDA its ordinal */
	char name[96];            /* "NVIDIA H200" */
	char pci[16];             /* "0000:17:00.0"; "" for the soft GPU */
	char uuid[48];            /* "GPU-..." */
	char driver[96];          /* "580.159.04, open kernel modules"; "" where unknown */
	int32_t numa_node;        /* -1 where the system does not say */
	char near_cpus[256];      /* CPU list near the device, "0-15"; "" where unknown */
	uint64_t memory_total;    /* bytes */
	uint64_t memory_free;     /* bytes; UINT64_MAX where it cannot be asked without a context */
	uint64_t bar1_total;      /* bytes of the aperture; UINT64_MAX where unknown */
	uint64_t bar1_free;       /* bytes; UINT64_MAX where unknown */
	char store_kernel[24];    /* the CPU kernel chosen for stores to it, "avx512" */
	char load_kernel[24];     /* and for loads from it */
};

/**
 * barway_device_count() - number of devices of this context
 *
 * Initialises the CUDA driver (cuInit, no context) at its first call, unless the context has only
 * soft devices. Returns the number or a negative errno value: -ENODEV where CUDA devices were asked
 * for and there are none, with the reason. Blocks.
 */
BARWAY_API int barway_device_count(struct barway_context *ctx);

/**
 * barway_device_get() - a device by its place in the list
 * Errors: -ENODEV index out of range (the message lists what there is). Blocks at its first call.
 */
BARWAY_API int barway_device_get(struct barway_context *ctx, int index, struct barway_device **out);

/**
 * barway_device_find() - a device by name
 * @name: index ("0"), PCI address ("0000:17:00.0", "17:00.0"), or UUID ("GPU-...", or its start)
 * Errors: -ENODEV none or more than one matches (the message lists what there is); -EINVAL @name
 * empty. Blocks at its first call.
 */
BARWAY_API int barway_device_find(struct barway_context *ctx, const char *name,
				  struct barway_device **out);

/**
 * barway_device_query() - what a device is and how full it is now
 * @info: size set by the caller
 * Errors: -ESTALE, -EINVAL size too small, -E2BIG. Blocks.
 */
BARWAY_API int barway_device_query(struct barway_device *dev, struct barway_device_info *info);

/**
 * barway_device_activate() - make the device usable by a program that does no CUDA of its own
 *
 * Retains the device's primary CUDA context until the context is closed. This is the only call that
 * can create a CUDA context; a program that uses CUDA itself does not need it. Nothing to do for
 * the soft GPU. Calling it again does nothing. Errors: -ENODEV, -ENOMEM, -EIO with CUDA's error.
 * Blocks.
 */
BARWAY_API int barway_device_activate(struct barway_device *dev);

struct barway_provider_info {
	size_t size;        /* sizeof(struct barway_provider_info) */
	char name[16];      /* "rm", "soft" */
	int32_t score;      /* higher is more eager; negative: refuses */
	char reason[512];   /* why, as a sentence; for a refusal with the remedy */
	uint32_t keeps_alive; /* 1: memory freed under a mapping stays alive until it is unmapped;
			       * 0: the mapping is revoked (its pages fault) */
};

/**
 * barway_provider_query() - what a provider says of a device
 * @ctx:   the context
 * @dev:   a device, or NULL: what can be said without CUDA and without choosing a device
 * @index: from 0, in the order in which providers are registered
 * Errors: -ENOENT past the end. Blocks.
 */
BARWAY_API int barway_provider_query(struct barway_context *ctx, struct barway_device *dev,
				     unsigned index, struct barway_provider_info *info);

/* ---- memory ------------------------------------------------------------------------------- */

enum barway_mem_kind {
	BARWAY_MEM_HOST = 0,     /* not known to any device: plain host memory, or freed */
	BARWAY_MEM_DEVICE = 1,   /* cudaMalloc, cuMemAlloc */
	BARWAY_MEM_VMM = 2,      /* cuMemCreate and cuMemMap */
	BARWAY_MEM_POOL = 3,     /* cudaMallocAsync, cuMemAllocFromPoolAsync */
	BARWAY_MEM_MANAGED = 4,  /* cudaMallocManaged */
	BARWAY_MEM_PINNED = 5,   /* cudaHostAlloc, cudaHostRegister */
	BARWAY_MEM_IMPORTED = 6, /* another process's, through cudaIpcOpenMemHandle */
	BARWAY_MEM_HOST_VMM = 7, /* cuMemCreate with a host location */
};

struct barway_pointer_info {
	size_t size;                 /* sizeof(struct barway_pointer_info) */
	uint32_t kind;               /* enum barway_mem_kind */
	uint32_t mappable;           /* 1: barway_map() takes this kind */
	struct barway_device *device; /* whose; NULL for host memory */
	uint64_t base;               /* device address where the allocation (or the piece that one
				      * cuMemMap made) begins */
	uint64_t bytes;              /* its size, bytes */
	uint64_t id;                 /* its identity: never used again in this process after it is
				      * freed; 0 for plain host memory */
};

/**
 * barway_pointer_query() - whose memory is this
 * @addr: any address
 * @info: size set by the caller
 * Any address gets an answer. Errors: -EINVAL size too small, -E2BIG, -ESTALE. Blocks.
 */
BARWAY_API int barway_pointer_query(struct barway_context *ctx, uint64_t addr,
				    struct barway_pointer_info *info);

/**
 * barway_mem_alloc() - allocate GPU memory that every provider can map
 * @dev:   where; a CUDA device needs an active primary context (a program that uses the CUDA
 *         runtime has one; barway_device_activate() makes one)
 * @bytes: size, bytes; rounded up to the device's granularity (2 MiB on CUDA, 64 KiB on the soft
 *         GPU)
 * @addr:  the device address, owned by the caller, to barway_mem_free()
 * Errors: -EINVAL 0 bytes, -ENOMEM, -ENODEV no active context. Blocks; may synchronise the device.
 */
BARWAY_API int barway_mem_alloc(struct barway_device *dev, size_t bytes, uint64_t *addr);

/**
 * barway_mem_free() - give back what barway_mem_alloc() gave out
 * @ctx:  any context
 * @addr: the device address, as given there
 * Requests and copies on streams that use the memory have to be done before. Errors: -EINVAL not
 * the start of such an allocation, -ESTALE. Blocks; may synchronise the device.
 */
BARWAY_API int barway_mem_free(struct barway_context *ctx, uint64_t addr);

/**
 * barway_host_alloc() - allocate pinned host memory that the device can reach
 * @dev:   the device; a CUDA device needs an active context, as in barway_mem_alloc()
 * @bytes: size, bytes; rounded up to the CPU's page size
 * @host:  its CPU address, page-aligned; cached memory; owned by the caller, to barway_host_free()
 * @addr:  the address under which kernels of @dev see it; NULL: not wanted
 *
 * On the NUMA node of the device where the system says which that is. Errors: -EINVAL 0 bytes or
 * @host NULL, -ENOMEM, -ENODEV no active context, -ESTALE. Blocks.
 */
BARWAY_API int barway_host_alloc(struct barway_device *dev, size_t bytes, void **host,
				 uint64_t *addr);

/**
 * barway_host_free() - give back what barway_host_alloc() gave out
 * @ctx:  any context
 * @host: the CPU address, as given there
 * Requests and copies on streams that use the memory have to be done before. Errors: -EINVAL not
 * the start of such memory, -ESTALE. Blocks; on CUDA until running kernels of the process have
 * ended.
 */
BARWAY_API int barway_host_free(struct barway_context *ctx, void *host);

/**
 * barway_host_register() - pin host memory of the caller's, so that the device can reach it
 * @dev:   the device
 * @host:  CPU address, any alignment: whole pages around the range are pinned
 * @bytes: size, bytes
 * @addr:  the address under which kernels of @dev see @host; NULL: not wanted
 *
 * Copies from and to registered memory go by the copy engine without a bounce. The caller keeps the
 * memory until barway_host_unregister(). Errors: -EINVAL 0 bytes or a range that wraps, -EEXIST
 * part of it is registered already, -ENOTSUP memory that cannot be pinned (a file read-only, a
 * mapping of GPU memory), -ENOMEM, -ENODEV no active context, -ESTALE. Blocks.
 */
BARWAY_API int barway_host_register(struct barway_device *dev, void *host, size_t bytes,
				    uint64_t *addr);

/**
 * barway_host_unregister() - undo barway_host_register()
 * @ctx:  any context
 * @host: as given there
 * Requests and copies on streams that use the memory have to be done before. Errors: -EINVAL not
 * registered, -ESTALE. Blocks; on CUDA until running kernels of the process have ended.
 */
BARWAY_API int barway_host_unregister(struct barway_context *ctx, void *host);

/* ---- mappings ----------------------------------------------------------------------------- */

struct barway_map_options {
	size_t size;           /* sizeof(struct barway_map_options) */
	const char *providers; /* allowed ones, comma-separated; NULL: the context's */
	uint32_t flags;        /* BARWAY_MAP_... */
	uint32_t reserved;     /* 0 */
};

#define BARWAY_MAP_UNCACHED 1u /* make it anew, and undo it at unmap: the cache is not used */
/*
 * The range may begin before and end after its memory, as callers that round to 64 KiB have it.
 * What the driver holds in one block with that memory is mapped along; the rest of the range is a
 * hole: loads and stores through the pointer fault there. Copies go no further than the first run
 * of memory without a hole: before it, and from the first hole after it on, they are -EINVAL. Such
 * a mapping is never taken from the cache or kept in it.
 */
#define BARWAY_MAP_CLAMP 2u

/**
 * barway_map() - make a range of GPU memory CPU-visible
 * @ctx:     the context
 * @addr:    device address, any alignment
 * @bytes:   size in bytes, any, not 0; the range may go over adjacent allocations and over several
 *           VMM handles, also of several devices
 * @options: NULL for the defaults
 * @out:     the mapping, owned by the caller, to barway_unmap()
 *
 * Any number of mappings may cover the same bytes. The first mapping of a process on a device makes
 * the self-test of the provider (some milliseconds). A range that was mapped a moment ago comes
 * from the cache, unless it is larger than the cache keeps: see barway_unmap().
 *
 * Errors: -EINVAL 0 bytes, a range that wraps, @out NULL, or in @options a size that is too small,
 * an unknown flag, a reserved field that is not 0 or an unknown provider's name; -E2BIG options of
 * a newer version with a non-zero tail; -EFAULT not GPU memory (plain host, freed) or the range
 * ends beyond it; -ENODEV memory of a device that the context does not have, or no active CUDA
 * context; -ENOTSUP a kind that cannot be mapped (the message says which kind it is and what to use
 * instead) or no provider takes it (the message has each one's reason); -ENOMEM the BAR1 aperture
 * is full (the message has needed and free) or memory is short; -EACCES device nodes; -EMFILE,
 * -ENFILE no file can be opened; -EAGAIN other threads were in the way each time; -EIO the provider
 * failed its self-test (it is never used then) or a check; -ESTALE. Blocks.
 */
BARWAY_API int barway_map(struct barway_context *ctx, uint64_t addr, size_t bytes,
			  const struct barway_map_options *options, struct barway_mapping **out);

/**
 * barway_unmap() - end a mapping
 *
 * Its pointer must not be used afterwards. What was mapped may stay in the cache for a while,
 * bounded by the parameters cache_bytes and cache_ms, and never longer than cache_sweep_ms after
 * the memory was freed. What is larger than a quarter of cache_bytes (16 MiB by default) is never
 * kept: it is undone here, and made anew by the next barway_map(). Errors: -ESTALE unmapped before,
 * or inherited through fork. May block.
 */
BARWAY_API int barway_unmap(struct barway_mapping *map);

/**
 * barway_mapping_ptr() - the pointer: the CPU's address of the first byte of the mapping
 *
 * Real memory: load and store through it as you like; for fences see the top of this header.
 * Returns NULL for a stale handle. Does not block.
 */
BARWAY_API void *barway_mapping_ptr(struct barway_mapping *map);

enum barway_caching {
	BARWAY_WRITE_COMBINED = 1,
	BARWAY_CACHED = 2,
	BARWAY_UNCACHED = 3,
};

struct barway_mapping_info {
	size_t size;           /* sizeof(struct barway_mapping_info) */
	void *ptr;             /* CPU address of the first byte */
	uint64_t addr;         /* device address of the first byte */
	uint64_t bytes;        /* size, bytes */
	struct barway_device *device; /* of the first byte */
	uint32_t pieces;       /* how many allocations or handles it is stitched from */
	uint32_t caching;      /* enum barway_caching */
	uint32_t keeps_alive;  /* as in struct barway_provider_info */
	uint32_t from_cache;   /* 1: was found in the cache */
	char provider[16];     /* "rm" */
	char route[24];        /* how the provider found the memory: "dma-buf hook", "ipc", ... */
	char store_kernel[24]; /* "avx512" */
	char load_kernel[24];
	char reason[512];      /* why this way, and why not the better ones */
};

/**
 * barway_mapping_query() - the path of a mapping
 * Errors: -ESTALE, -EINVAL size too small, -E2BIG. Does not block.
 */
BARWAY_API int barway_mapping_query(struct barway_mapping *map, struct barway_mapping_info *info);

/* ---- copies, fences ----------------------------------------------------------------------- */

enum barway_method {
	BARWAY_METHOD_AUTO = 0,     /* as planned: see barway_plan() */
	BARWAY_METHOD_CPU = 1,      /* one CPU thread over the mapping: the caller's */
	BARWAY_METHOD_CE = 2,       /* the device's copy engine, on streams of Barway's own */
	BARWAY_METHOD_THREADS = 3,  /* the caller and the context's helper threads */
	BARWAY_METHOD_RESIDENT = 4, /* a kernel that waits for copies: barway_resident_start() */
};

enum barway_direction {
	BARWAY_TO_GPU = 1,
	BARWAY_FROM_GPU = 2,
};

/**
 * barway_copy_to() - copy from host memory to GPU memory, by the best method
 * @map:    the mapping
 * @offset: bytes from its start
 * @src:    host memory, any alignment; the caller's; may be reused on return (LOCAL)
 * @bytes:  size, any; 0 does nothing
 *
 * Sizes for which the plan says BARWAY_METHOD_CPU go by this thread: every byte is stored exactly
 * once and nothing outside the range is stored; an aligned 1, 2, 4 or 8 byte copy is one store.
 * Ends with barway_fence_publish(). Up to the first size at which the plan has another method for
 * some kind of host memory, that is all: no system call, lock, allocation or log line. For larger
 * ones it is asked first whose memory @src is, which takes locks and may call the driver, also
 * where this thread then copies. Those may go by another method (barway_plan() tells which) and
 * then block; on return they have ARRIVED, and a kernel that is running sees them as the top of
 * this header says. Where that method fails before it has begun, for example because the memory was
 * freed under the mapping, this thread copies instead. Errors: -EINVAL outside the mapping, or @src
 * NULL; -ESTALE; -EIO the device failed in the middle of it. In a context that was opened with a
 * method all sizes go by that, nothing is tried instead, and the errors are those of
 * barway_copy_to_by().
 */
BARWAY_API int barway_copy_to(struct barway_mapping *map, size_t offset, const void *src,
			      size_t bytes);

/**
 * barway_copy_from() - copy from GPU memory to host memory, by the best method
 * @dst:    host memory, any alignment; the caller's
 *
 * Sees everything that was VISIBLE to the CPU before the call, this thread's own earlier stores
 * included; begins with barway_fence_read(). Loads whole 64-byte lines that cover the range (reads
 * have no side effect on GPU memory). Errors and the rest as barway_copy_to().
 */
BARWAY_API int barway_copy_from(struct barway_mapping *map, void *dst, size_t offset, size_t bytes);

/**
 * barway_copy_to_by() - barway_copy_to() by a method of the caller's choice
 * @method: enum barway_method
 *
 * BARWAY_METHOD_CPU never blocks, and asks nobody whose memory @src is, whatever the size.
 * BARWAY_METHOD_CE works during a stream capture and never uses the default stream. Errors: those
 * of barway_copy_to(); -ENOTSUP unknown method, or the context has no helper threads, or no
 * resident copier was started; -EFAULT the memory was freed under the mapping, which only CPU
 * threads can reach then; -EIO the device's error; -ENOMEM; -EAGAIN the driver did not take it,
 * although the device works. Blocks, but for BARWAY_METHOD_CPU.
 */
BARWAY_API int barway_copy_to_by(struct barway_mapping *map, uint32_t method, size_t offset,
				 const void *src, size_t bytes);

/** barway_copy_from_by() - barway_copy_from() by a method of the caller's choice; see above */
BARWAY_API int barway_copy_from_by(struct barway_mapping *map, uint32_t method, void *dst,
				   size_t offset, size_t bytes);

/* A piece of a copy of many. */
struct barway_piece {
	size_t offset; /* bytes from the start of the mapping */
	void *host;    /* host memory, the caller's; only read in copies to the GPU */
	size_t bytes;
};

/**
 * barway_copy_pieces() - scatter or gather: many pieces in one call
 * @direction: enum barway_direction
 * @pieces:    the caller's; in no order; those of a copy to the GPU should not overlap
 * @n:         how many
 * @method:    enum barway_method
 *
 * As a copy of each, with one fence for all that go by this thread and one wait for all that do
 * not. All are checked before the first byte moves. Errors: those of barway_copy_to_by(), with the
 * place of the piece in the message. Blocks as barway_copy_to_by().
 */
BARWAY_API int barway_copy_pieces(struct barway_mapping *map, uint32_t direction, uint32_t method,
				  const struct barway_piece *pieces, size_t n);

/**
 * barway_copy_on_stream() - put a copy on a stream of the caller's
 * @direction: enum barway_direction
 * @offset: bytes from the start of the mapping
 * @host:   host memory; it has to stay as it is (to the GPU), or is written (from the GPU), until
 *          the stream has done the copy; pinned or registered memory is copied asynchronously,
 *          other memory as CUDA's cudaMemcpyAsync does it
 * @bytes:  size, any; 0 does nothing
 * @stream: a CUstream or cudaStream_t of the mapping's device, or a struct barway_soft_stream *
 *
 * In order with the stream's other work. On a stream that is being captured it becomes a node of
 * the graph. The mapping may be unmapped meanwhile; its memory has to stay. Errors: -EINVAL outside
 * the mapping, a bad direction, memory of more than one device, another device's stream; -EFAULT
 * the memory was freed under the mapping; -EIO CUDA's error; -ENOTSUP cannot be captured; -ENOMEM;
 * -ESTALE. Does not wait for the copy.
 */
BARWAY_API int barway_copy_on_stream(struct barway_mapping *map, uint32_t direction, size_t offset,
				     void *host, size_t bytes, void *stream);

/* ---- copies that go on after the call -------------------------------------------------------- */

struct barway_request; /* a copy that was started */

#define BARWAY_COPY_FD 1u /* barway_request_fd() will be asked for */

/**
 * barway_copy_start() - start copies and return
 * @direction: enum barway_direction
 * @method: enum barway_method; what the plan gives to this thread, and what helper threads do, is
 *          done before it returns
 * @pieces: copied; the host memory has to stay until the request is done
 * @n:      how many
 * @flags:  0 or BARWAY_COPY_FD
 * @out:    the request, owned by the caller, to barway_request_free()
 *
 * Pinned and registered memory is moved by the device alone. Memory that is neither is moved on in
 * barway_request_poll() and barway_request_wait(), or by a thread of the context's where it has
 * helper threads or BARWAY_COPY_FD was given. The mapping may be unmapped meanwhile; its memory has
 * to stay. Errors: those of barway_copy_pieces(); -EINVAL unknown flags, @out NULL; -ENOMEM,
 * -EMFILE, -EAGAIN no descriptor or thread for BARWAY_COPY_FD. Does not wait for the copies, but
 * for room where the resident copier has some 50 others before it, of all requests together: each
 * piece is one, and one more for each further 4 MiB.
 */
BARWAY_API int barway_copy_start(struct barway_mapping *map, uint32_t direction, uint32_t method,
				 const struct barway_piece *pieces, size_t n, uint32_t flags,
				 struct barway_request **out);

/**
 * barway_request_poll() - is it done?
 * 0: yes, and the bytes have ARRIVED; to the GPU they are seen by kernels as after
 * barway_copy_to(). -EBUSY: not yet. -EIO: it failed; the state of the destination is not known.
 * -ESTALE. Does not wait for the copy, but moves it on where that is the callers' to do: may ask
 * the driver, give it work, copy a bounded piece, and take the request's lock.
 */
BARWAY_API int barway_request_poll(struct barway_request *request);

/**
 * barway_request_wait() - wait until it is done
 * @timeout_ns: nanoseconds, BARWAY_FOREVER: no bound
 * Returns as barway_request_poll(), and -ETIMEDOUT. barway_request_free() must not come before it
 * has returned. Blocks.
 */
BARWAY_API int barway_request_wait(struct barway_request *request, uint64_t timeout_ns);

/**
 * barway_request_fd() - a descriptor that becomes readable when it is done
 * Owned by the request: to be waited for, neither read nor closed. Returns it, or -EINVAL started
 * without BARWAY_COPY_FD, -ESTALE. Does not block.
 */
BARWAY_API int barway_request_fd(struct barway_request *request);

/**
 * barway_request_free() - forget a request, after it is done
 * One that is not done yet is waited for. No other thread may be in a call on it: those in
 * barway_request_wait() have to return first. Errors: -ESTALE. May block.
 */
BARWAY_API int barway_request_free(struct barway_request *request);

/* ---- the plan -------------------------------------------------------------------------------- */

struct barway_plan_info {
	size_t size;          /* sizeof(struct barway_plan_info) */
	uint32_t method;      /* enum barway_method: what BARWAY_METHOD_AUTO would take */
	uint32_t host_kind;   /* enum barway_mem_kind of @host */
	uint64_t estimate_ns; /* how long it would take, nanoseconds */
	char name[16];        /* of the method: "cpu", "ce", "threads", "resident" */
	char source[96];      /* where the figures are from: "built in: ...", "barway tune, ..." */
	char reason[512];     /* each method's estimate, or why it refuses */
	char file[512];       /* which the figures were read from; "" for built-in ones */
	char ignored[512];    /* why a file that is there was not taken; "": there is none such */
};

/**
 * barway_plan() - which method a copy would take, and why
 * @direction: enum barway_direction
 * @offset: bytes from the start of the mapping
 * @host:   where its host side would be; NULL: pageable memory
 * @bytes:  size
 * @info:   size set by the caller
 *
 * The plan is made of figures: built-in ones for known machines, or those that barway_tune() left
 * in the user's cache folder for this GPU, driver and CPU. Nothing is measured here. Errors:
 * -EINVAL outside the mapping, a bad direction, size too small; -E2BIG; -ENOTSUP the method that
 * the context was opened with refuses such a copy; -ESTALE. Blocks.
 */
BARWAY_API int barway_plan(struct barway_mapping *map, uint32_t direction, size_t offset,
			   const void *host, size_t bytes, struct barway_plan_info *info);

struct barway_tune_point {
	size_t size;          /* sizeof(struct barway_tune_point), set by the library */
	uint32_t direction;   /* enum barway_direction */
	uint32_t method;      /* enum barway_method */
	uint32_t pinned;      /* 1: pinned host memory, 0: pageable */
	uint32_t threads;     /* that took part, this one included */
	uint64_t bytes;
	uint64_t ns;          /* median of one copy, nanoseconds */
	uint32_t done, total; /* points measured, to measure */
	uint64_t min_ns, p99_ns; /* the least, and what 99 % of the times do not exceed */
};

/** Called for each point that was measured. Returns 0 to go on; else barway_tune() returns that. */
typedef int (*barway_tune_fn)(void *arg, const struct barway_tune_point *point);

/**
 * barway_tune() - measure every method on a device and keep the figures
 * @dev:  the device, with an active context
 * @fn:   called for each point; NULL: not wanted
 * @arg:  handed to @fn; owned by the caller
 * @path: the file to write; NULL: where barway_open() looks, in $BARWAY_PLAN_DIR, or
 *        $XDG_CACHE_HOME/barway, or ~/.cache/barway; "": none
 *
 * Well under a minute. Nothing else calibrates: do not call it in a program whose ranks would
 * measure each other. The file is replaced as a whole, and taken by contexts that are opened later.
 * Not for the soft GPU's sake: figures of it mean nothing, and it has a file of its own. Errors:
 * -ENODEV, -ENOMEM, -EIO a method moved wrong data or failed; those of writing a file, -EINVAL
 * where @path is something else; what @fn returned. Blocks.
 */
BARWAY_API int barway_tune(struct barway_device *dev, barway_tune_fn fn, void *arg,
			   const char *path);

struct barway_resident_options {
	size_t size;       /* sizeof(struct barway_resident_options) */
	uint32_t idle_us;  /* it leaves when nothing was to do for so long; 0: 200 */
	uint32_t stay_us;  /* it leaves after so long at the latest; 0: 10000 */
};

/**
 * barway_resident_start() - let a kernel on the device do copies that it is best at
 * @dev:     the device; a CUDA device needs an active context
 * @options: NULL for the defaults; copied
 *
 * One block, launched by the first copy that wants it and by each that finds it gone. While it
 * stays it holds up cudaFree, cudaFreeHost, cuModuleLoadData and cudaDeviceSynchronize of the
 * process, for idle_us at most where nothing is to do; see docs/copies.md. Copies between GPU
 * memory and pinned or registered host memory of this device may take it from then on, in all
 * contexts of the process.
 * Errors: -EALREADY it was started; -EINVAL the options' size is too small; -E2BIG options of a
 * newer version with a non-zero tail; -ENODEV no active context; -ENOTSUP no provider maps memory
 * of the device; -ENOMEM; -EIO it could not be loaded or launched, or moved wrong data; -ESTALE.
 * Blocks.
 */
BARWAY_API int barway_resident_start(struct barway_device *dev,
				     const struct barway_resident_options *options);

/**
 * barway_resident_stop() - end it
 * Copies under way are finished. Errors: -EALREADY it is not started; -ESTALE. Blocks.
 */
BARWAY_API int barway_resident_stop(struct barway_device *dev);

/* ---- fences ---------------------------------------------------------------------------------- */

/**
 * barway_fence_publish() - order the caller's own stores through mappings
 *
 * Every store of this thread before it, to any mapping or to host memory, is ordered before every
 * store after it; write-combining buffers are emptied towards the GPU. Store data, call it, store
 * the flag, call it again so that the flag leaves soon. x86: sfence; arm64: dsb st; ppc64: sync.
 * Does not block.
 */
BARWAY_API void barway_fence_publish(void);

/**
 * barway_fence_mixed() - order loads and stores of this thread over mappings of different caching
 *
 * Every load and store before it, to write-combined, cached and host memory alike, is ordered
 * before every one after it. x86: mfence; arm64: dsb sy; ppc64: sync. Does not block.
 */
BARWAY_API void barway_fence_mixed(void);

/**
 * barway_fence_read() - after polling a flag, before reading what it announces
 *
 * Loads from write-combined memory may be done early, by speculation or out of a streaming buffer;
 * this keeps every load after it from being served by anything read before it. x86: mfence (lfence
 * alone does not empty streaming-load buffers); arm64: dsb ld; ppc64: sync. Does not block.
 */
BARWAY_API void barway_fence_read(void);

/**
 * barway_flush() - wait until everything this thread wrote through the mapping is VISIBLE to
 * kernels that are already running
 *
 * barway_fence_mixed() and then one load from each device the mapping touches: about one PCIe round
 * trip (about 1 us on an H200 behind PCIe 5.0: see docs/measured.md for the command).
 * Errors: -ESTALE. Does not call the system; waits for the GPU's answer.
 */
BARWAY_API int barway_flush(struct barway_mapping *map);

/* ---- channels ----------------------------------------------------------------------------- */

/*
 * A channel carries messages of up to 1,024 bytes between a running kernel and the CPU, each way in
 * well under a microsecond on top of PCIe. What kernels use of it is in barway_device.cuh.
 *
 * READ THIS FIRST. While a kernel runs, cudaFree, cudaFreeHost, cuModuleLoadData and
 * cudaDeviceSynchronize of its process wait until it ends (measured: docs/channels.md). So a kernel
 * that waits for messages must leave by itself soon after it has nothing to do, and come back by a
 * launch: every wait in barway_device.cuh has a bound, barway_gpu_leave() tells the CPU that the
 * kernel goes, and the channel calls @launch when there is a message and nobody there to take it.
 */
struct barway_channel; /* a pair of rings between kernels of one device and this process */

/**
 * A launch of the kernel that takes messages, on a stream of the caller's: always the same one, so
 * that it starts after the one that has left. Called by a thread that is in a call on the channel,
 * one at a time. Returns 0 or a negative errno value, which that call gives back. It must not call
 * this channel.
 */
typedef int (*barway_launch_fn)(void *arg);

struct barway_channel_options {
	size_t size;             /* sizeof(struct barway_channel_options) */
	uint32_t to_gpu_bytes;   /* ring to the GPU: a power of two, 4 KiB to 64 MiB; 0: 64 KiB.
				  * With 4 KiB messages arrive soonest: docs/channels.md */
	uint32_t to_cpu_bytes;   /* ring to the CPU: the same */
	barway_launch_fn launch; /* NULL: the caller sees to it that a kernel runs */
	void *launch_arg;
	uint32_t spin_us;        /* a wait polls this long, microseconds, before it gives the CPU
				  * to others between polls; 0: the parameter channel_spin_us */
	uint32_t reserved;       /* 0 */
};

/**
 * barway_channel_open() - open a channel
 * @dev:     the device whose kernels are the other end; a CUDA device needs an active context
 * @options: NULL for the defaults; copied
 * @out:     the channel, owned by the caller, to barway_channel_close()
 *
 * Errors: -EINVAL a size that is not a power of two or out of range, a reserved field that is not
 * 0; -E2BIG; -ENODEV no active context; those of barway_map() and barway_host_alloc(); -ESTALE.
 * Blocks.
 */
BARWAY_API int barway_channel_open(struct barway_device *dev,
				   const struct barway_channel_options *options,
				   struct barway_channel **out);

/**
 * barway_channel_close() - end a channel
 *
 * Tells the GPU's side, whose waits end with an error then, and gives the memory back, which waits
 * until kernels of the process that still run have ended. No other thread may be in a call on the
 * channel: barway_channel_shutdown() first, so that those that wait return, and see that they did,
 * by joining them. Errors: -ESTALE closed before, or inherited through fork. Blocks.
 */
BARWAY_API int barway_channel_close(struct barway_channel *channel);

/**
 * barway_channel_shutdown() - say that no more will be sent or received
 *
 * The GPU's side still gets what was sent before; then its calls end with -EPIPE, and so do all of
 * this side that follow, and those that wait now. Kernels that use the channel end. Where messages
 * wait and nobody is there to take them, launches the kernel once; calls that follow do so again
 * only where the last one took some. Errors: -ESTALE. Blocks for launch, and where messages were
 * not taken yet for up to 10 ms; a kernel that is slower than that and then leaves without taking
 * them is launched again by barway_channel_poll(), which tells when all are taken
 * (barway_channel_query(): sent_taken is sent).
 */
BARWAY_API int barway_channel_shutdown(struct barway_channel *channel);

/**
 * barway_channel_gpu() - what to hand to kernels, by value
 * @out: not written on failure; valid until the channel is closed
 * Errors: -ESTALE, -EINVAL @out NULL. Does not block.
 */
BARWAY_API int barway_channel_gpu(struct barway_channel *channel, struct barway_channel_gpu *out);

#define BARWAY_FOREVER UINT64_MAX

/**
 * barway_channel_send() - send a message to the GPU
 * @data:       the message, any alignment; may be reused on return
 * @bytes:      0 to 1024
 * @tag:        0 to 4095, the caller's to use: comes with the message
 * @timeout_ns: how long to wait for room in the ring, nanoseconds; 0: not at all; BARWAY_FOREVER
 *
 * Messages of one thread arrive in the order in which they were sent. What this thread stored
 * before through mappings of the same device is VISIBLE to a kernel that has taken the message with
 * its fence (barway_device.cuh). Calls the option's launch where nobody is there. Errors: -EAGAIN
 * no room and no time given; -ETIMEDOUT; -EMSGSIZE; -EINVAL tag; -EPIPE closed by either side; -EIO
 * the device failed; what launch returned: the message is sent then; -ESTALE. With room in the ring
 * it does not block, but for a short lock and for launch; without room and without a time, one call
 * in 32 looks at the clock and may ask the driver whether the device still works, about 1 us.
 */
BARWAY_API int barway_channel_send(struct barway_channel *channel, const void *data, size_t bytes,
				   unsigned tag, uint64_t timeout_ns);

/**
 * barway_channel_recv() - take the next message of the GPU's
 * @data:       where to put it; room for @room bytes, any alignment
 * @bytes:      its size, bytes; NULL: not wanted
 * @tag:        its tag; NULL: not wanted
 * @timeout_ns: how long to wait for one, nanoseconds; 0: not at all; BARWAY_FOREVER
 *
 * Several threads may take messages; each goes to one of them. Messages of one GPU thread, warp or
 * block come in the order in which it sent them. Meanwhile launches the kernel where messages to
 * the GPU wait and nobody is there. Errors: -EAGAIN none and no time given; -ETIMEDOUT; -EMSGSIZE
 * it is larger than @room: it stays, *@bytes says how large it is; -EINVAL @data NULL, but @room is
 * not 0; -EPIPE closed, and all that was sent before has been taken; -EIO the device failed, or
 * what stands in the ring is not a message (the sentence says which); -ESTALE. Without a time it
 * does not block, but for a short lock and for launch, and where there is none for what
 * barway_channel_send() does without room; with a time it polls, see spin_us.
 * barway_channel_close() must not come before it has returned.
 */
BARWAY_API int barway_channel_recv(struct barway_channel *channel, void *data, size_t room,
				   size_t *bytes, unsigned *tag, uint64_t timeout_ns);

#define BARWAY_CHANNEL_READABLE 1u /* barway_channel_recv() would not wait */
#define BARWAY_CHANNEL_WRITABLE 2u /* the longest message has room */
#define BARWAY_CHANNEL_CLOSED 4u   /* by either side */

/**
 * barway_channel_poll() - what could be done now
 *
 * Also launches the kernel where messages to the GPU wait and nobody is there. Returns a set of
 * BARWAY_CHANNEL_... or a negative errno value: -EIO, -ESTALE, what launch returned. Does not
 * block, but for a short lock and for launch; one call in 32 may ask the driver, as
 * barway_channel_send() does without room.
 */
BARWAY_API int barway_channel_poll(struct barway_channel *channel);

struct barway_channel_info {
	size_t size;           /* sizeof(struct barway_channel_info) */
	uint64_t sent;         /* lines written to the GPU since it was opened */
	uint64_t sent_taken;   /* of those, what the GPU said that it took */
	uint64_t received;     /* lines taken from the GPU */
	uint64_t messages_sent, messages_received;
	uint64_t launches;     /* calls of the option's launch that succeeded */
	uint64_t left;         /* how often a kernel said that it left */
	uint32_t to_gpu_bytes, to_cpu_bytes;
	char path[512];        /* where the rings lie, how they are written, by which kernel */
};

/**
 * barway_channel_query() - positions and path of a channel
 * Errors: -ESTALE, -EINVAL size too small, -E2BIG. Does not block.
 */
BARWAY_API int barway_channel_query(struct barway_channel *channel,
				    struct barway_channel_info *info);

/* ---- cache, counters ---------------------------------------------------------------------- */

/**
 * barway_cache_flush() - undo every mapping that is only kept by the cache (process-wide)
 * Errors: -ESTALE. Blocks.
 */
BARWAY_API int barway_cache_flush(struct barway_context *ctx);

#define BARWAY_RELEASE_FORCE 1u /* also live mappings: their pages fault from then on, their handles
				 * stay valid for barway_unmap() alone */

/**
 * barway_release_all() - hold nothing of any device any more, for a checkpoint or a GPU reset
 * @flags: 0 or BARWAY_RELEASE_FORCE
 *
 * Undoes the cache, ends resident copiers, closes every driver file of this process's Barway, and
 * forgets the self-tests; the next barway_map() starts afresh. Process-wide. Other threads may map
 * and query meanwhile: what needs the driver waits. With FORCE the caller keeps them from using
 * mappings that are revoked: from loads and stores through their pointers, and from copies. Errors:
 * -EBUSY mappings are live and FORCE was not given: the cache is undone, nothing else; -EINVAL
 * unknown flags; -ESTALE. Blocks.
 */
BARWAY_API int barway_release_all(struct barway_context *ctx, uint32_t flags);

struct barway_counters {
	size_t size;              /* sizeof(struct barway_counters) */
	uint64_t maps;            /* barway_map() calls that succeeded */
	uint64_t map_errors;      /* and that failed */
	uint64_t unmaps;
	uint64_t cache_hits;
	uint64_t cache_misses;
	uint64_t cache_evictions; /* because of cache_bytes, cache_ms, or a full aperture */
	uint64_t cache_stale;     /* because their memory had been freed */
	uint64_t cache_bytes;     /* held now by the cache alone */
	uint64_t live_mappings;   /* now */
	uint64_t live_bytes;      /* now, of windows under live mappings */
	uint64_t self_tests;      /* done */
	uint64_t self_test_failures;
	uint64_t driver_maps;     /* windows made by a provider */
	uint64_t driver_unmaps;   /* windows undone */
};

/**
 * barway_counters_get() - the process's counters
 * @counters: size set by the caller
 * Copies are not counted: the copy path writes nothing but data. Errors: -EINVAL, -E2BIG, -ESTALE.
 * Does not block.
 */
BARWAY_API int barway_counters_get(struct barway_context *ctx, struct barway_counters *counters);

#ifdef __cplusplus
}
#endif
#endif
