/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/soft: the soft GPU, a device with everything but a GPU behind it.
 *
 * Memory is a memfd (or a named shared memory file, parameter soft_shared, that several processes
 * open), cut into pages of 64 KiB. Device addresses are reserved in the process as PROT_NONE, so a
 * device pointer that is dereferenced by mistake faults. Mappings take room in a BAR1 aperture of a
 * size that can be set. Streams have a thread of their own, so that asynchronous copies really are,
 * and kernels one for each block.
 *
 * Kinds of memory, as on CUDA: small allocations (< 1 MiB) share 2 MiB blocks in steps of 512 bytes
 * (kind BW_MEM_DEVICE); larger ones have blocks of their own; VMM handles are mapped at addresses;
 * memory of another process is imported. A block lives until its last user (allocation, handle,
 * aperture window, importer) lets go: freeing memory under a mapping keeps it alive.
 *
 * Pinned host memory has two addresses: the CPU's, and a device address, which faults on the CPU as
 * all of them do. It can be asked about by both (a segment is in terms of the one asked for, the
 * identity is the same); kernels and streams know it by the latter only.
 */
#ifndef BW_DEVICE_SOFT_H
#define BW_DEVICE_SOFT_H

#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

#define BW_SOFT_PAGE 65536u
#define BW_SOFT_BLOCK (2u << 20)
#define BW_SOFT_STEP 512u

extern const struct bw_device_ops bw_soft_ops;

/* The soft GPU at @index; NULL where there is none. Enumerates if need be. */
struct bw_device *bw_soft_device(int index);

/* cudaMalloc and cudaFree: any size; 512-byte aligned. */
int bw_soft_malloc(struct bw_device *dev, size_t bytes, uint64_t *addr);
int bw_soft_free(uint64_t addr);

/* VMM: a handle of physical memory (multiples of 64 KiB), an address range, and a mapping of one in
 * the other. As with CUDA, releasing a handle that is mapped keeps the memory until it is
 * unmapped. */
struct bw_soft_handle;
int bw_soft_handle_create(struct bw_device *dev, size_t bytes, struct bw_soft_handle **out);
void bw_soft_handle_release(struct bw_soft_handle *handle);
int bw_soft_reserve(size_t bytes, uint64_t *addr);
int bw_soft_unreserve(uint64_t addr, size_t bytes);
int bw_soft_mem_map(uint64_t addr, struct bw_soft_handle *handle);
int bw_soft_mem_unmap(uint64_t addr);

/*
 * Between processes that share the soft GPUs by name: what cudaIpc does, of memory that
 * bw_soft_malloc() or mem_alloc gave out. The name is a file of this user in /dev/shm. The sizes
 * are those of the process that was first. What a killed process left is freed by the next one that
 * needs it or asks how much is free. The last one to exit in good order removes the file; a file
 * that is left over is begun afresh. An import lives on when its exporter frees the memory or dies.
 */
struct bw_soft_ipc {
	uint64_t word[8];
};
int bw_soft_ipc_export(uint64_t addr, struct bw_soft_ipc *ipc);
int bw_soft_ipc_import(struct bw_device *dev, const struct bw_soft_ipc *ipc, uint64_t *addr);
int bw_soft_ipc_close(uint64_t addr);

/*
 * The aperture. Maps [addr, addr + bytes) at the CPU address @at (MAP_FIXED) and holds the block
 * behind it alive. The range is of whole CPU pages (4096), in one block, and each page holds bytes
 * of a segment: those of small allocations hold others' too. It takes room for every 64 KiB page
 * that it touches. -EFAULT no such range; -ENOMEM with needed and free where the aperture is full.
 * A failure leaves @at reserved, or as it was.
 */
struct bw_soft_window;
int bw_soft_window_open(uint64_t addr, size_t bytes, void *at, struct bw_soft_window **out);
void bw_soft_window_close(struct bw_soft_window *window); /* after the caller's munmap */
void bw_soft_aperture(struct bw_device *dev, uint64_t *total, uint64_t *free);

/*
 * Streams. Work is done in order by the stream's thread. The pointer is a handle: of a stream that
 * was destroyed, or that a forked child inherited, it gives -ESTALE. A first error sticks until
 * synchronised; a kernel that failed until the last stream of the soft GPU is destroyed.
 */
struct bw_soft_stream;
int bw_soft_stream_create(struct bw_device *dev, struct bw_soft_stream **out);
/* Finishes its work first; but a wait for a value ends at once, and what comes after it is not
 * done. */
int bw_soft_stream_destroy(struct bw_soft_stream *stream);
int bw_soft_stream_sync(struct bw_soft_stream *stream); /* returns and clears the first error */
int bw_soft_stream_query(struct bw_soft_stream *stream); /* -EBUSY is an answer: no sentence */
int bw_soft_copy_to_async(struct bw_soft_stream *s, uint64_t addr, const void *src, size_t bytes);
int bw_soft_copy_from_async(struct bw_soft_stream *s, void *dst, uint64_t addr, size_t bytes);

/*
 * Kernels: a C function, called once for each block, all at the same time, each on a thread of its
 * own. All of it is as include/barway_soft.h says of the functions of the same names.
 */
struct barway_soft_block;
typedef void bw_soft_kernel(struct barway_soft_block *block, void *arg);
#define BW_SOFT_BLOCKS_MAX 1024u
#define BW_SOFT_PARAM_MAX 4096u
int bw_soft_launch(struct bw_soft_stream *s, bw_soft_kernel *kernel, unsigned blocks,
		   const void *arg, size_t bytes);
unsigned bw_soft_block_index(const struct barway_soft_block *block);
unsigned bw_soft_block_count(const struct barway_soft_block *block);
void *bw_soft_deref(struct barway_soft_block *block, uint64_t addr, size_t bytes);
void bw_soft_store64(struct barway_soft_block *block, void *p, uint64_t v);
void bw_soft_fence(struct barway_soft_block *block);
void bw_soft_trap(struct barway_soft_block *block);
int bw_soft_trapped(const struct barway_soft_block *block);

/* What a kernel of @dev would see there, for tests; NULL where it would see nothing. */
void *bw_soft_view(struct bw_device *dev, uint64_t addr, size_t bytes);

/* Device-side view of words, for kernels that poll what the CPU writes: relaxed and acquire. */
uint64_t bw_soft_load64(const void *p);
uint64_t bw_soft_load64_acquire(const void *p);
void bw_soft_store64_release(void *p, uint64_t v);

#endif
