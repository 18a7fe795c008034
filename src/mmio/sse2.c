/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SSE2, which every x86_64 CPU has: 16-byte stores, streaming for write-combined mappings. It has
 * no streaming load: a 16-byte load from a write-combined mapping is a read of its own, so no more
 * than the covering 16-byte blocks are loaded.
 */
#include "mmio/kernels.h"
#include "mmio/pieces.h"

#if defined(__x86_64__)
#include <emmintrin.h>

#define BW_TARGET

#define ST(name, insn) \
BW_INLINE void name##16(unsigned char *m, const unsigned char *h) \
{ \
	__m128i v = _mm_loadu_si128((const __m128i *)h); \
\
	__asm__ volatile(insn " %1, %0" : "=m"(*(__m128i *)m) : "x"(v)); \
} \
BW_INLINE void name##32(unsigned char *m, const unsigned char *h) \
{ \
	name##16(m, h); \
	name##16(m + 16, h + 16); \
} \
BW_INLINE void name##64(unsigned char *m, const unsigned char *h) \
{ \
	name##32(m, h); \
	name##32(m + 32, h + 32); \
}

ST(stream, "movntdq")
ST(plain, "movdqa")

#define BW_FN store_wc
#define BW_P16 stream16
#define BW_P32 stream32
#define BW_P64 stream64
#include "mmio/by_pieces.h"

#define BW_FN store_cached
#define BW_P16 plain16
#define BW_P32 plain32
#define BW_P64 plain64
#include "mmio/by_pieces.h"

#define BW_FN load
#define BW_BLOCK 16
#define BW_VEC __m128i
#define BW_VLD(v, m) \
	__asm__ volatile("movdqa %1, %0" : "=x"(v) : "m"(*(const __m128i *)(m)))
#define BW_VST(h, v) _mm_storeu_si128((__m128i *)(h), v)
#define BW_REGS 16
#include "mmio/by_lines.h"

const struct bw_mmio_kernel bw_mmio_sse2 = {
	.name = "sse2",
	.isa = BW_ISA_SSE2,
	.caching = BW_FOR_WC,
	.store_score = 20,
	.load_score = 20,
	.store = store_wc,
	.load = load,
};

const struct bw_mmio_kernel bw_mmio_sse2_cached = {
	.name = "sse2",
	.isa = BW_ISA_SSE2,
	.caching = BW_FOR_CACHED,
	.store_score = 20,
	.load_score = 20,
	.store = store_cached,
	.load = load,
};

#endif
