/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MOVDIR64B: a 64-byte store that leaves the core as one write without gathering (Intel SDM vol. 2,
 * "MOVDIR64B"). It reads its source itself, so a sanitizer does not see whole lines of the host
 * side. The rest of a copy is SSE2. Its memory ordering is that of a write-combined store, so the
 * same fence serves.
 */
#include "mmio/kernels.h"
#include "mmio/pieces.h"

#if defined(__x86_64__)
#include <emmintrin.h>

#define BW_TARGET

struct line {
	uint64_t v[8];
} __attribute__((packed, may_alias));

BW_INLINE void st16(unsigned char *m, const unsigned char *h)
{
	__m128i v = _mm_loadu_si128((const __m128i *)h);

	__asm__ volatile("movntdq %1, %0" : "=m"(*(__m128i *)m) : "x"(v));
}

BW_INLINE void st32(unsigned char *m, const unsigned char *h)
{
	st16(m, h);
	st16(m + 16, h + 16);
}

/* The destination is an address in a register, which the compiler is told of by the output. */
BW_INLINE void st64(unsigned char *m, const unsigned char *h)
{
	__asm__ volatile("movdir64b %2, %1" : "=m"(*(struct line *)m)
			 : "r"(m), "m"(*(const struct line *)h));
}

#define BW_FN store
#define BW_P16 st16
#define BW_P32 st32
#define BW_P64 st64
#include "mmio/by_pieces.h"

const struct bw_mmio_kernel bw_mmio_movdir64b = {
	.name = "movdir64b",
	.isa = BW_ISA_MOVDIR64B,
	.caching = BW_FOR_WC,
	.store_score = 30,
	.store = store,
};

#endif
