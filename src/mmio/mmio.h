/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mmio: how one CPU thread stores to and loads from a mapping. The contract of every kernel:
 *
 *  - @mapped may have any alignment, the host side too, n is any number including 0.
 *  - store: every byte of [mapped, mapped + n) is stored exactly once and none outside it, in
 *    naturally aligned pieces that are as large as alignment, the rest and the instruction set
 *    allow (1, 2, 4, 8, 16, 32, 64 bytes), in ascending order. An aligned 1, 2, 4 or 8 byte copy
 *    is one store. The host side is read within [host, host + n) only. No fence: the caller does
 *    that (mmio/fence.h).
 *  - load: may read whole aligned 64-byte lines that hold a wanted byte, never others; an aligned
 *    1, 2, 4 or 8 byte copy is one load of that size. Writes exactly [host, host + n).
 *    Independent lines are loaded before any of them is used, so that as many reads are in flight
 *    as the CPU can keep.
 *  - no call into libc, no allocation, no writable global, no lock.
 *
 * Sanitizers do not see the mapped side: it is device memory, and the covering lines are read on
 * purpose. The host side stays checked where the compiler can.
 */
#ifndef BW_MMIO_H
#define BW_MMIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bw_caching {
	BW_WC = 1,      /* write-combined: stores gather in line buffers, loads are uncached */
	BW_CACHED = 2,  /* cached and coherent */
	BW_UNCACHED = 3,
};

/* One bit for each instruction set; also the parameter "cpu_mask". */
enum bw_isa {
	BW_ISA_C = 1u << 0, /* plain C, 8 bytes at a time; always there */
	BW_ISA_SSE2 = 1u << 1,
	BW_ISA_SSE41 = 1u << 2, /* streaming loads (movntdqa) */
	BW_ISA_AVX2 = 1u << 3,
	BW_ISA_AVX512 = 1u << 4,
	BW_ISA_MOVDIR64B = 1u << 5, /* stores only */
	BW_ISA_NEON = 1u << 6,
};

typedef void bw_store_fn(void *mapped, const void *host, size_t n);
typedef void bw_load_fn(void *host, const void *mapped, size_t n);

struct bw_mmio_kernel {
	const char *name;  /* "avx512" */
	uint32_t isa;      /* the one bit it needs */
	uint32_t caching;  /* bit (1u << enum bw_caching) of each kind of mapping it is made for */
	int store_score;   /* higher is better among those the CPU can run; for that caching */
	int load_score;
	bw_store_fn *store; /* NULL: has none */
	bw_load_fn *load;
};

/* The one list where kernels are registered; ends with NULL. Only those this build has. */
extern const struct bw_mmio_kernel *const bw_mmio_kernels[];

/* Every instruction set of the list above that this CPU and its operating system can run. */
uint32_t bw_mmio_cpu_isa(void);

/* "avx2,sse2" or "all" or "c" -> mask; false: the @n bytes at *@bad are no word of these, 0 bytes
 * where the list is empty. */
bool bw_mmio_parse_isa(const char *list, uint32_t *mask, const char **bad, size_t *n);

/* What the parameter cpu_mask allows in this process; all until it is set. */
void bw_mmio_allow(uint32_t isa);
/* What this CPU can run of that. */
uint32_t bw_mmio_allowed(void);

struct bw_mmio_choice {
	const struct bw_mmio_kernel *store;
	const struct bw_mmio_kernel *load;
};

/* The best kernels for a caching kind among the sets in @isa (the C kernel is always allowed). */
struct bw_mmio_choice bw_mmio_choose(enum bw_caching caching, uint32_t isa);

#endif
