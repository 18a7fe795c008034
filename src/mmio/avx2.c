/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX2: 32-byte stores and loads, streaming for write-combined mappings; a line is two of them. */
#include "mmio/kernels.h"
#include "mmio/pieces.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define BW_TARGET __attribute__((target("avx2")))

#define ST(name, insn) \
BW_INLINE BW_TARGET void name##16(unsigned char *m, const unsigned char *h) \
{ \
	__m128i v = _mm_loadu_si128((const __m128i *)h); \
\
	__asm__ volatile(insn " %1, %0" : "=m"(*(__m128i *)m) : "x"(v)); \
} \
BW_INLINE BW_TARGET void name##32(unsigned char *m, const unsigned char *h) \
{ \
	__m256i v = _mm256_loadu_si256((const __m256i *)h); \
\
	__asm__ volatile(insn " %1, %0" : "=m"(*(__m256i *)m) : "x"(v)); \
} \
BW_INLINE BW_TARGET void name##64(unsigned char *m, const unsigned char *h) \
{ \
	name##32(m, h); \
	name##32(m + 32, h + 32); \
}

ST(stream, "vmovntdq")
ST(plain, "vmovdqa")

#define LD(insn, v, m) __asm__ volatile(insn " %1, %0" : "=x"(v) : "m"(*(const __m256i *)(m)))

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

#define BW_FN load_wc
#define BW_BLOCK 64
#define BW_VEC __m256i
#define BW_VLD(v, m) LD("vmovntdqa", v, m)
#define BW_VST(h, v) _mm256_storeu_si256((__m256i *)(h), v)
#define BW_REGS 16
#include "mmio/by_lines.h"

#define BW_FN load_cached
#define BW_BLOCK 32
#define BW_VEC __m256i
#define BW_VLD(v, m) LD("vmovdqa", v, m)
#define BW_VST(h, v) _mm256_storeu_si256((__m256i *)(h), v)
#define BW_REGS 16
#include "mmio/by_lines.h"

const struct bw_mmio_kernel bw_mmio_avx2 = {
	.name = "avx2",
	.isa = BW_ISA_AVX2,
	.caching = BW_FOR_WC,
	.store_score = 40,
	.load_score = 40,
	.store = store_wc,
	.load = load_wc,
};

const struct bw_mmio_kernel bw_mmio_avx2_cached = {
	.name = "avx2",
	.isa = BW_ISA_AVX2,
	.caching = BW_FOR_CACHED,
	.store_score = 40,
	.load_score = 40,
	.store = store_cached,
	.load = load_cached,
};

#endif
