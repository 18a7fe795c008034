/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gdrapi.h: GDRCopy's programming interface, version 2.6, as Barway's libgdrapi.so.2 serves it.
 *
 * For programs that are written to GDRCopy; barway.h says and can do more. Names, layouts and
 * values are GDRCopy's; what follows says how they behave here. docs/gdrcopy.md has the way to put
 * the library in place.
 *
 *  - Functions return 0 or a positive errno value, and write their outputs only on success. The
 *    sentence that says why, and what to do, goes to standard error if GDRCOPY_ENABLE_LOGGING=1.
 *  - Thread-safe, with one rule left to the caller, as with any memory: do not copy through a
 *    pin while another thread unpins it or closes its gdr_t. Copies on one handle from many
 *    threads take no lock. A handle is used once: after it was unpinned, or in a forked child, it
 *    gives EINVAL.
 *  - Any address, any size: nothing has to be aligned.
 */
#ifndef GDRAPI_H
#define GDRAPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GDR_API_MAJOR_VERSION 2
#define GDR_API_MINOR_VERSION 6
#define GDR_API_VERSION ((GDR_API_MAJOR_VERSION << 16) | GDR_API_MINOR_VERSION)

#define GPU_PAGE_SHIFT 16
#define GPU_PAGE_SIZE (1UL << GPU_PAGE_SHIFT)
#define GPU_PAGE_OFFSET (GPU_PAGE_SIZE - 1)
#define GPU_PAGE_MASK (~GPU_PAGE_OFFSET)

struct gdr;
typedef struct gdr *gdr_t; /* what gdr_open() gave; not to be dereferenced */

/* One pinned range. By value; h is never 0 for a live one. */
typedef struct gdr_mh_s {
	unsigned long h;
} gdr_mh_t;

typedef enum gdr_pin_flags {
	GDR_PIN_FLAG_DEFAULT = 0,
	GDR_PIN_FLAG_FORCE_PCIE = 1 /* through the BAR, also where there is a coherent link */
} gdr_pin_flags_t;

typedef enum gdr_map_flags {
	GDR_MAP_FLAG_DEFAULT = 0, /* what the memory has */
	GDR_MAP_FLAG_REQ_WC_MAPPING = 1,
	GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2,
	GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3
} gdr_map_flags_t;

typedef enum gdr_mapping_type {
	GDR_MAPPING_TYPE_NONE = 0, /* not mapped */
	GDR_MAPPING_TYPE_WC = 1,
	GDR_MAPPING_TYPE_CACHING = 2,
	GDR_MAPPING_TYPE_DEVICE = 3
} gdr_mapping_type_t;

typedef enum gdr_attr {
	GDR_ATTR_USE_PERSISTENT_MAPPING = 1, /* memory freed under a pin lives until the unpin */
	GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2,
	GDR_ATTR_USING_DMA_BUF_MMAP = 3
} gdr_attr_t;

/* 40 bytes: what the symbol gdr_get_info writes. */
typedef struct gdr_info_v1 {
	uint64_t va;            /* device address where the mapping begins: the pinned one */
	uint64_t mapped_size;   /* bytes pinned */
	uint32_t page_size;     /* GPU_PAGE_SIZE */
	uint64_t tm_cycles;     /* how long the pin took, in cycles */
	uint32_t cycles_per_ms; /* of a clock of nanoseconds: 1,000,000 */
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
} gdr_info_v1_t;

/* 48 bytes: the same and mapping_type. */
typedef struct gdr_info_v2 {
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
	gdr_mapping_type_t mapping_type;
} gdr_info_v2_t;
typedef gdr_info_v2_t gdr_info_t;

/*
 * Never initialises CUDA: may be called before a fork, and the child may use what the parent
 * opened. NULL where no pin can work on this machine. The soft GPU is used if BARWAY_DEVICES=soft,
 * never else.
 */
gdr_t gdr_open(void);

/* Unmaps and unpins what is left. Works after CUDA was shut down. EINVAL: not open. */
int gdr_close(gdr_t g);

/*
 * Makes the mapping, so that gdr_map() cannot fail for lack of anything. The range may be rounded
 * to GPU pages around its memory and go over adjacent allocations. @p2p_token and @va_space are
 * ignored. EINVAL: 0 bytes, not GPU memory, or a GPU page without any in the range; ENOTSUP: memory
 * of a kind that cannot be mapped; ENOMEM: the BAR1 aperture is full; EACCES: device nodes; EIO:
 * self-test.
 */
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
		   gdr_mh_t *handle);

/* @flags: of gdr_pin_flags_t. ENOTSUP too: PCIe was forced and there is another way only. */
int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle);

/* Unmaps first if need be. EINVAL: unpinned before; of two threads exactly one gets 0. */
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);

/* *@flag is 1 once the memory at the pinned address was freed, else 0. */
int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag);

#define gdr_get_info gdr_get_info_v2
int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

/*
 * *@va corresponds to the pinned address, exactly. Copies reach @size, rounded up to 4096, never
 * beyond the pin. EINVAL: 0 bytes, more than was pinned; EAGAIN: mapped already.
 */
int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);

/* @flags: of gdr_map_flags_t. EINVAL too: a type that the memory does not have. */
int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags);

/* @va as from gdr_map(); any @size: the whole mapping ends. EINVAL: not mapped, another @va. */
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size);

/* As barway_copy_to() and barway_copy_from(). 0 bytes on a mapped handle: 0. EINVAL: not mapped, or
 * outside the mapping. */
int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size);
int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size);

/* Both say 2 and 6, whichever provider is in use. */
void gdr_runtime_get_version(int *major, int *minor);
int gdr_driver_get_version(gdr_t g, int *major, int *minor);

/* True for the provider in use. */
int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v);

/* *@str is static: "None", "Write Combining", "Caching" or "Device". */
int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char **str);

#ifdef __cplusplus
}
#endif
#endif
