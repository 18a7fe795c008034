/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AVX-512: a line is one store or one load. The streaming store fills a write-combining buffer at
 * once, so that it leaves as one 64-byte PCIe write. No byte masks for the ends of a load: a masked
 * store took 160 ns on an AMD EPYC of family 26, a copy out of a bounce buffer 3 ns.
 */
#include "mmio/kernels.h"
#include "mmio/pieces.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define BW_TARGET __attribute__((target("avx512f")))

/* A plain access to this type, because clang makes a memcpy of _mm512_loadu_si512 at -O0. */
typedef long long host64 __attribute__((vector_size(64), aligned(1), may_alias));

#define ST(name, insn, insn64) \
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
	__m512i v = (__m512i)*(const host64 *)h; \
\
	__asm__ volatile(insn64 " %1, %0" : "=m"(*(__m512i *)m) : "v"(v)); \
}

ST(stream, "vmovntdq", "vmovntdq")
ST(plain, "vmovdqa", "vmovdqa64")

#define LD(insn, v, m) __asm__ volatile(insn " %1, %0" : "=v"(v) : "m"(*(const __m512i *)(m)))
#define VST(h, v) (*(host64 *)(h) = (host64)(v))

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
#define BW_VEC __m512i
#define BW_VLD(v, m) LD("vmovntdqa", v, m)
#define BW_VST VST
#define BW_REGS 16
#include "mmio/by_lines.h"

#define BW_FN load_cached
#define BW_BLOCK 64
#define BW_VEC __m512i
#define BW_VLD(v, m) LD("vmovdqa64", v, m)
#define BW_VST VST
#define BW_REGS 16
#include "mmio/by_lines.h"

const struct bw_mmio_kernel bw_mmio_avx512 = {
	.name = "avx512",
	.isa = BW_ISA_AVX512,
	.caching = BW_FOR_WC,
	.store_score = 50,
	.load_score = 50,
	.store = store_wc,
	.load = load_wc,
};

const struct bw_mmio_kernel bw_mmio_avx512_cached = {
	.name = "avx512",
	.isa = BW_ISA_AVX512,
	.caching = BW_FOR_CACHED,
	.store_score = 50,
	.load_score = 50,
	.store = store_cached,
	.load = load_cached,
};

#endif
