/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu/kernel: one source for two kinds of device. The .cu files of this folder and of examples/ are
 * compiled as CUDA, to PTX that is checked in (scripts/build-ptx), and as C, to kernels of the soft
 * GPU. So what the tests run on the soft GPU is the code that runs on a GPU.
 *
 *     GPU_KERNEL(gpu_name, type, 32)   a kernel with one parameter, struct type, by value: the body
 *     {                                has it as p, a pointer to it; blocks of 32 threads at most
 *             uint64_t at = GPU_AT(p->addr, p->bytes);
 *     }
 *
 * In C a block has one thread, and what is GPU_SHARED() is that thread's own. GPU_ANY() and
 * GPU_SUM_WARP() are for all threads of a warp together.
 */
#ifndef GPU_KERNEL_H
#define GPU_KERNEL_H

#include <stddef.h>

#include "barway_device.cuh"

#define GPU_WARP 32u

#ifdef BARWAY_GPU_SOFT

#define GPU_KERNEL(name, type, threads)                                                         \
	static void name##_body(struct barway_soft_block *gpu_block, const struct type *p);     \
	void name(struct barway_soft_block *block, void *arg);                                  \
	void name(struct barway_soft_block *block, void *arg)                                   \
	{                                                                                       \
		name##_body(block, (const struct type *)arg);                                   \
	}                                                                                       \
	static void name##_body(struct barway_soft_block *gpu_block, const struct type *p)

#define GPU_SHARED(type, name, count) type name[count]

/* Where code finds a device address; 0: it is not in one allocation of @bytes. */
#define GPU_AT(addr, bytes) ((uintptr_t)barway_soft_deref(gpu_block, (addr), (bytes)))

#define GPU_ATTACH(channel, handle, flags) \
	barway_gpu_attach((channel), (handle), (flags), gpu_block)
#define GPU_POINT(channel, handle) barway_gpu_point((channel), (handle), gpu_block)
#define GPU_ST_HOST(at, v) barway_soft_store64(gpu_block, (void *)(uintptr_t)(at), (v))
#define GPU_ST2_HOST(at, a, b) (GPU_ST_HOST((at), (a)), GPU_ST_HOST((at) + 8, (b)))
#define GPU_FENCE() barway_soft_fence(gpu_block)
#define GPU_DEAD() barway_soft_trapped(gpu_block)
#define GPU_TRAP() barway_soft_trap(gpu_block)
#define GPU_SYNC_WARP() ((void)0)
#define GPU_SYNC_BLOCK() ((void)0)

#define GPU_BLOCK() barway_soft_block_index(gpu_block)
#define GPU_THREAD() 0u
#define GPU_THREADS() 1u
#define GPU_LANE() 0u
#define GPU_LANES() 1u
#define GPU_ST2(at, a, b) (barway_gpu_st((at), (a)), barway_gpu_st((at) + 8, (b)))
#define GPU_ANY(yes) ((yes) != 0)
#define GPU_SUM_WARP(v) (v)
#define GPU_SHFL(v, lane) ((void)(lane), (v))
#define GPU_UNUSED() ((void)gpu_block, (void)p)

#else

#define GPU_KERNEL(name, type, threads)                                                         \
	BARWAY_GPU_FN void name##_body(const struct type *p);                                   \
	extern "C" __attribute__((global, launch_bounds(threads)))                              \
	void name(const struct type param)                                                      \
	{                                                                                       \
		name##_body(&param);                                                            \
	}                                                                                       \
	BARWAY_GPU_FN void name##_body(const struct type *p)

#define GPU_SHARED(type, name, count) static __attribute__((shared)) type name[count]
#define GPU_AT(addr, bytes) ((void)(bytes), (addr))
#define GPU_ATTACH(channel, handle, flags) barway_gpu_attach((channel), (handle), (flags))
#define GPU_POINT(channel, handle) barway_gpu_point((channel), (handle))
#define GPU_ST_HOST(at, v) barway_gpu_st((at), (v))
#define GPU_ST2_HOST(at, a, b) barway_gpu_st2((at), (a), (b))
#define GPU_FENCE() barway_gpu_fence()
#define GPU_DEAD() 0
#define GPU_TRAP() __asm__ volatile("trap;")
#define GPU_SYNC_WARP() barway_gpu_sync_warp()
#define GPU_SYNC_BLOCK() barway_gpu_sync_block()

#define GPU_BLOCK() gpu_block_index()
#define GPU_THREAD() barway_gpu_thread()
#define GPU_THREADS() gpu_threads()
#define GPU_LANE() barway_gpu_lane()
#define GPU_LANES() GPU_WARP
#define GPU_ST2(at, a, b) barway_gpu_st2((at), (a), (b))
#define GPU_ANY(yes) (barway_gpu_ballot((yes) != 0) != 0)
#define GPU_SUM_WARP(v) gpu_sum_warp(v)
#define GPU_SHFL(v, lane) barway_gpu_shfl64((v), (lane))
#define GPU_UNUSED() ((void)p)

BARWAY_GPU_FN unsigned gpu_block_index(void)
{
	unsigned x;

	__asm__("mov.u32 %0, %%ctaid.x;" : "=r"(x));
	return x;
}

/* Of a block in one dimension. */
BARWAY_GPU_FN unsigned gpu_threads(void)
{
	unsigned x;

	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(x));
	return x;
}

BARWAY_GPU_FN uint64_t gpu_sum_warp(uint64_t v)
{
	uint64_t sum = 0;

	for (unsigned lane = 0; lane < GPU_WARP; lane++)
		sum += barway_gpu_shfl64(v, lane);
	return sum;
}

#endif
#endif
