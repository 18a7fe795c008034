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
 *    caller, as with any memory: do not use a mapping while another thread unmaps it, nor a context
 *    while another thread closes it.
 *  - The caller's CUDA state is left as it was found: current context, streams, a stream capture
 *    under way. No CUDA context is ever created, except by barway_device_activate().
 *  - Handles are opaque and never to be dereferenced. They carry a generation: a handle that was
 *    closed, or that a forked child inherited, gives -ESTALE and nothing else happens.
 *  - "blocks" means: may wait for the operating system, the driver or the GPU. Functions marked
 *    "does not block" make no system call and take no lock, unless they fail.
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
 * Errors: -ENOENT unknown name, -EINVAL not a value for it, -EBUSY a context is open.
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
 * Errors: -ENOENT past the end, -E2BIG a larger struct with a non-zero tail, -EINVAL size too
 * small.
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
};

/**
 * barway_open() - open a context
 * @options: NULL for the defaults; copied
 * @out:     the context; the caller owns it and gives it to barway_close()
 *
 * Never initialises CUDA and opens no device: safe before a fork and before there is any CUDA.
 * Errors: -EINVAL unknown value (the message names it), -E2BIG options of a newer version with a
 * non-zero tail, -ENOMEM. Does not fail because there is no GPU: barway_device_count() says so.
 */
BARWAY_API int barway_open(const struct barway_open_options *options, struct barway_context **out);

/**
 * barway_close() - unmap what is still mapped, give back everything, forget the context
 *
 * Pointers of its mappings fault afterwards. Works after CUDA was unloaded or shut down.
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
 * Errors: -ENODEV none or more than one matches (the message lists what there is).
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
 * Errors: -EINVAL not the start of such an allocation. Blocks; may synchronise the device.
 */
BARWAY_API int barway_mem_free(struct barway_context *ctx, uint64_t addr);

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

/**
 * barway_copy_to() - copy from host memory to GPU memory through a mapping, by this CPU thread
 * @map:    the mapping
 * @offset: bytes from its start
 * @src:    host memory, any alignment; the caller's; may be reused on return (LOCAL)
 * @bytes:  size, any; 0 does nothing
 *
 * Every byte is stored exactly once and nothing outside the range is stored; an aligned 1, 2, 4 or
 * 8 byte copy is one store. Ends with barway_fence_publish(). No system call, lock, allocation or
 * log line. Errors: -EINVAL outside the mapping, or @src NULL; -ESTALE. Does not block.
 */
BARWAY_API int barway_copy_to(struct barway_mapping *map, size_t offset, const void *src,
			      size_t bytes);

/**
 * barway_copy_from() - copy from GPU memory to host memory through a mapping, by this CPU thread
 * @dst:    host memory, any alignment; the caller's
 *
 * Sees everything that was VISIBLE to the CPU before the call, this thread's own earlier stores
 * included; begins with barway_fence_read(). Loads whole 64-byte lines that cover the range (reads
 * have no side effect on GPU memory). Errors and the rest as barway_copy_to().
 */
BARWAY_API int barway_copy_from(struct barway_mapping *map, void *dst, size_t offset, size_t bytes);

enum barway_method {
	BARWAY_METHOD_CPU = 1, /* one CPU thread over the mapping: what barway_copy_to() does */
	BARWAY_METHOD_CE = 2,  /* the device's copy engine, on a stream of Barway's own */
};

/**
 * barway_copy_to_by() - barway_copy_to() by a method of the caller's choice
 * @method: enum barway_method
 *
 * BARWAY_METHOD_CE: when it returns the bytes are VISIBLE to kernels that start later and to
 * running ones that load as the top of this header says. Works during a stream capture and never
 * uses the default stream. Errors: those of barway_copy_to(); -ENOTSUP unknown method; -EFAULT the
 * memory was freed under the mapping, which the engine cannot reach then; -EIO CUDA's error;
 * -ENOMEM. Blocks for BARWAY_METHOD_CE.
 */
BARWAY_API int barway_copy_to_by(struct barway_mapping *map, uint32_t method, size_t offset,
				 const void *src, size_t bytes);

/** barway_copy_from_by() - barway_copy_from() by a method of the caller's choice; see above */
BARWAY_API int barway_copy_from_by(struct barway_mapping *map, uint32_t method, void *dst,
				   size_t offset, size_t bytes);

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
 * Undoes the cache, closes every driver file of this process's Barway, and forgets the self-tests;
 * the next barway_map() starts afresh. Process-wide. Other threads may map and query meanwhile:
 * what needs the driver waits. With FORCE the caller keeps them from using mappings that are
 * revoked: from loads and stores through their pointers, and from copies. Errors: -EBUSY mappings
 * are live and FORCE was not given: the cache is undone, nothing else; -EINVAL unknown flags;
 * -ESTALE. Blocks.
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
 * Copies are not counted: the copy path writes nothing but data. Errors: -EINVAL, -E2BIG, -ESTALE.
 */
BARWAY_API int barway_counters_get(struct barway_context *ctx, struct barway_counters *counters);

#ifdef __cplusplus
}
#endif
#endif
