/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SSE4.1: movntdqa, the streaming load. From a write-combined mapping it fetches the whole line
 * into a buffer that serves the other three loads of the line (Intel SDM vol. 1, "Streaming Load
 * Hint Instruction"), so the four of a line stand together.
 */
#include "mmio/kernels.h"
#include "mmio/pieces.h"

#if defined(__x86_64__)
#include <emmintrin.h>

#define BW_TARGET __attribute__((target("sse4.1")))

#define BW_FN load
#define BW_BLOCK 64
#define BW_VEC __m128i
#define BW_VLD(v, m) \
	__asm__ volatile("movntdqa %1, %0" : "=x"(v) : "m"(*(const __m128i *)(m)))
#define BW_VST(h, v) _mm_storeu_si128((__m128i *)(h), v)
#define BW_REGS 16
#include "mmio/by_lines.h"

const struct bw_mmio_kernel bw_mmio_sse41 = {
	.name = "sse41",
	.isa = BW_ISA_SSE41,
	.caching = BW_FOR_WC,
	.load_score = 30,
	.load = load,
};

#endif
