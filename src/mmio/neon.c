/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NEON, which every arm64 CPU with Linux has: pairs of 16-byte registers. There is no streaming
 * store to tell from a plain one, what gathers is decided by the mapping (normal non-cacheable
 * memory); so one kernel serves all kinds. Device memory takes only aligned accesses; these are.
 */
#include "mmio/kernels.h"
#include "mmio/pieces.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define BW_TARGET

struct quad {
	uint8_t v[16];
} __attribute__((may_alias));

struct pair {
	struct quad v[2];
} __attribute__((may_alias));

BW_INLINE void st16(unsigned char *m, const unsigned char *h)
{
	uint8x16_t v = vld1q_u8(h);

	__asm__ volatile("str %q1, %0" : "=Q"(*(struct quad *)m) : "w"(v));
}

BW_INLINE void st32(unsigned char *m, const unsigned char *h)
{
	uint8x16_t v = vld1q_u8(h), w = vld1q_u8(h + 16);

	__asm__ volatile("stp %q1, %q2, %0" : "=Q"(*(struct pair *)m) : "w"(v), "w"(w));
}

BW_INLINE void st64(unsigned char *m, const unsigned char *h)
{
	st32(m, h);
	st32(m + 32, h + 32);
}

#define BW_FN store
#define BW_P16 st16
#define BW_P32 st32
#define BW_P64 st64
#include "mmio/by_pieces.h"

/* A load of a non-cacheable line may be gathered or not: the covering 16-byte blocks, no more. */
#define BW_FN load
#define BW_BLOCK 16
#define BW_VEC uint8x16_t
#define BW_VLD(v, m) \
	__asm__ volatile("ldr %q0, %1" : "=w"(v) : "Q"(*(const struct quad *)(m)))
#define BW_VST vst1q_u8
#define BW_REGS 16
#include "mmio/by_lines.h"

const struct bw_mmio_kernel bw_mmio_neon = {
	.name = "neon",
	.isa = BW_ISA_NEON,
	.caching = BW_FOR_WC | BW_FOR_CACHED,
	.store_score = 50,
	.load_score = 50,
	.store = store,
	.load = load,
};

#endif
