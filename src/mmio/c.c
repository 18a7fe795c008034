/* SPDX-License-Identifier: BSD-3-Clause */
/* Plain C, 8 bytes at a time: runs everywhere, on every kind of mapping. */
#include "mmio/kernels.h"
#include "mmio/pieces.h"

#define BW_TARGET BW_UNSEEN

BW_INLINE void st16(unsigned char *m, const unsigned char *h)
{
	bw_st8(m, h);
	bw_st8(m + 8, h + 8);
}

BW_INLINE void st32(unsigned char *m, const unsigned char *h)
{
	st16(m, h);
	st16(m + 16, h + 16);
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

#define BW_FN load
#define BW_BLOCK 8
#define BW_VEC uint64_t
#define BW_VLD(v, m) BW_WORD_LD(8, bw_u64, m, v)
#define BW_VST(h, x) (((struct bw_host8 *)(h))->v = (x))
#define BW_REGS 8
#include "mmio/by_lines.h"

const struct bw_mmio_kernel bw_mmio_c = {
	.name = "c",
	.isa = BW_ISA_C,
	.caching = BW_FOR_WC | BW_FOR_CACHED,
	.store_score = 10,
	.load_score = 10,
	.store = store,
	.load = load,
};
