/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barway_soft.h: kernels and streams of the soft GPU, for programs and tests that have no GPU.
 *
 * A kernel is a C function. Its blocks run at the same time, each on a thread of its own, so that
 * what would be a race on a GPU is one here, for ThreadSanitizer to see. Within a block there is
 * one thread: cooperative functions of barway_device.cuh see a group of one.
 *
 * What holds for every function is said at the top of barway.h. Figures taken on the soft GPU mean
 * nothing about a GPU.
 */
#ifndef BARWAY_SOFT_H
#define BARWAY_SOFT_H

#include <barway.h>

#ifdef __cplusplus
extern "C" {
#endif

struct barway_soft_stream; /* work in order, done by a thread of the stream's */

/**
 * barway_soft_stream_create() - a stream of a soft GPU
 * @dev: a soft GPU
 * @out: the stream, owned by the caller, to barway_soft_stream_destroy()
 * Errors: -EINVAL @out NULL, -ENOTSUP not a soft GPU (use CUDA's streams there), -ENOMEM, -EAGAIN
 * no thread, -EIO a kernel failed (see barway_soft_trap()), -ESTALE. Blocks.
 */
BARWAY_API int barway_soft_stream_create(struct barway_device *dev,
					 struct barway_soft_stream **out);

/**
 * barway_soft_stream_sync() - wait until all work given to the stream before is done
 * Returns the first error of its work since the last call, and forgets it: -EIO. -ESTALE the stream
 * was destroyed, or is the parent process's. Blocks.
 */
BARWAY_API int barway_soft_stream_sync(struct barway_soft_stream *stream);

/**
 * barway_soft_stream_query() - is all its work done?
 * 0: yes. -EBUSY: not yet, which is an answer and leaves barway_errmsg() alone. -EIO: a part of it
 * failed (remembered until synchronised). -ESTALE. Does not block.
 */
BARWAY_API int barway_soft_stream_query(struct barway_soft_stream *stream);

/**
 * barway_soft_stream_destroy() - finish the work of a stream, and end it
 * What the library has on it that waits for a value in memory ends at once, with an error, and what
 * comes after that is not done. Errors: as barway_soft_stream_sync(); the stream is gone all the
 * same. NULL does nothing. Blocks.
 */
BARWAY_API int barway_soft_stream_destroy(struct barway_soft_stream *stream);

struct barway_soft_block; /* the block that runs: valid during the kernel, in its thread */

typedef void barway_soft_kernel(struct barway_soft_block *block, void *arg);

/**
 * barway_soft_launch() - put a kernel on a stream
 * @kernel: called once for each block; what comes after it on the stream waits for all of them
 * @blocks: 1 to 1024, all of which run at the same time
 * @arg:    handed to each block
 * @bytes:  0: @arg is passed as it is and has to live until the kernel is done; else @arg points to
 *          that many bytes, which are copied now, and each block is given the address of the copy,
 *          as CUDA does with kernel parameters; at most 4096
 * Errors: -EINVAL @kernel NULL, blocks or bytes out of range; -ENOMEM; -EAGAIN the system has not
 * threads enough: no block runs then; -EIO a kernel failed before (see barway_soft_trap());
 * -ESTALE. Does not wait for the GPU; starts the threads that the stream does not have yet, each
 * with a stack of 1 MiB.
 */
BARWAY_API int barway_soft_launch(struct barway_soft_stream *stream, barway_soft_kernel *kernel,
				  unsigned blocks, const void *arg, size_t bytes);

/** barway_soft_block_index() - blockIdx.x; barway_soft_block_count() - gridDim.x */
BARWAY_API unsigned barway_soft_block_index(const struct barway_soft_block *block);
BARWAY_API unsigned barway_soft_block_count(const struct barway_soft_block *block);

/**
 * barway_soft_deref() - the memory at a device address, for a kernel
 * @addr:  device address, any alignment
 * @bytes: how many are wanted there
 *
 * GPU memory, or pinned host memory by its device address (barway_host_alloc()). The pointer is
 * valid while the kernel runs and the memory is not freed. Returns NULL where [addr, addr + bytes)
 * is not in one allocation. Only in a kernel.
 */
BARWAY_API void *barway_soft_deref(struct barway_soft_block *block, uint64_t addr, size_t bytes);

/**
 * barway_soft_store64() - a store by a kernel that others are to see: on a GPU, st.relaxed.sys
 * @p: 8 bytes, aligned, of GPU memory or pinned host memory, from barway_soft_deref()
 *
 * One store of 8 bytes, which orders nothing. With the parameter soft_shuffle such stores of a
 * block arrive late and in random order, but for those to the same address, as posted writes of a
 * GPU may: what relies on an order that it did not ask for with barway_soft_fence() then fails
 * soon. The block that stored reads its own value from @p only after a fence.
 */
BARWAY_API void barway_soft_store64(struct barway_soft_block *block, void *p, uint64_t v);

/**
 * barway_soft_fence() - every store of this block before it arrives before every one after it: on a
 * GPU, fence.acq_rel.sys. The end of a kernel is one, too.
 */
BARWAY_API void barway_soft_fence(struct barway_soft_block *block);

/**
 * barway_soft_trap() - the kernel fails, as one does that touches memory which is not there
 *
 * As on a GPU that is the end of its owner's work on the device: the stream's synchronisation gives
 * -EIO, launches that follow give -EIO, what was queued is not done, and what waits for the GPU
 * ends with an error, until the last stream of that soft GPU in this process is destroyed. The
 * block itself has to return; a block that polls, of any kernel there, sees barway_soft_trapped()
 * and has to return, too. Memory stays as it is, and mappings of it go on working.
 */
BARWAY_API void barway_soft_trap(struct barway_soft_block *block);
BARWAY_API int barway_soft_trapped(const struct barway_soft_block *block);

#ifdef __cplusplus
}
#endif
#endif
