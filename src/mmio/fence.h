/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fences, named for their purpose. include/barway.h says what each guarantees.
 *
 * x86: sfence orders write-combined stores and empties the buffers (Intel SDM vol. 3, "Memory
 * Ordering" and "Write Combining"); streaming loads are kept from stale buffers by mfence only
 * (SDM vol. 1, "Streaming Load Hint"). arm64: dsb waits for completion, which device and
 * non-cacheable normal memory need; dmb orders only.
 */
#ifndef BW_MMIO_FENCE_H
#define BW_MMIO_FENCE_H

static inline void bw_fence_publish(void)
{
#if defined(__x86_64__)
	__asm__ volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb st" ::: "memory");
#elif defined(__powerpc64__)
	__asm__ volatile("sync" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void bw_fence_mixed(void)
{
#if defined(__x86_64__)
	__asm__ volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb sy" ::: "memory");
#elif defined(__powerpc64__)
	__asm__ volatile("sync" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void bw_fence_read(void)
{
#if defined(__x86_64__)
	__asm__ volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb ld" ::: "memory");
#elif defined(__powerpc64__)
	__asm__ volatile("sync" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#endif
