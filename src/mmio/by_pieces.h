/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A template, included once for each function it is to define: a copy in naturally aligned pieces
 * of the mapped side, ascending, each byte once. All stores are made of it, and the loads from
 * cached mappings.
 *
 *  BW_FN      the name of the function
 *  BW_LOADS   defined: it is a bw_load_fn; else a bw_store_fn
 *  BW_TARGET  its attributes
 *  BW_P16, BW_P32, BW_P64  (m, h): how to copy an aligned piece of that size; several instructions
 *             if the instruction set has none so large
 *  BW_P1, BW_P2, BW_P4, BW_P8  the same; the words of mmio/pieces.h if not defined
 *
 * The parameters are undefined again at the end, but for BW_TARGET.
 */
#include "mmio/pieces.h"

#ifdef BW_LOADS
#define BW_PARAMS void *host, const void *mapped, size_t n
#define BW_MAPPED const unsigned char
#define BW_HOST unsigned char
#else
#define BW_PARAMS void *mapped, const void *host, size_t n
#define BW_MAPPED unsigned char
#define BW_HOST const unsigned char
#endif

#ifndef BW_P1
#ifdef BW_LOADS
#define BW_P1 bw_ld1
#define BW_P2 bw_ld2
#define BW_P4 bw_ld4
#define BW_P8 bw_ld8
#else
#define BW_P1 bw_st1
#define BW_P2 bw_st2
#define BW_P4 bw_st4
#define BW_P8 bw_st8
#endif
#endif

#define BW_STEP(b, p) (p(m, h), m += (b), h += (b), n -= (b))
#define BW_HEAD(b, p) do { \
	if (((uintptr_t)m & (b)) && n >= (b)) \
		BW_STEP(b, p); \
} while (0)
#define BW_TAIL(b, p) do { \
	if (n & (b)) { \
		p(m, h); \
		m += (b); \
		h += (b); \
	} \
} while (0)

static BW_TARGET void BW_FN(BW_PARAMS)
{
	BW_MAPPED *m = mapped;
	BW_HOST *h = host;

	/* The ones that must be one access. Larger copies pay one compare for it. */
	if (n < 16) {
		uintptr_t a = (uintptr_t)m;

		if (n == 8 && !(a & 7)) {
			BW_P8(m, h);
			return;
		}
		if (n == 4 && !(a & 3)) {
			BW_P4(m, h);
			return;
		}
		if (n == 2 && !(a & 1)) {
			BW_P2(m, h);
			return;
		}
		if (n == 1) {
			BW_P1(m, h);
			return;
		}
	}

	/*
	 * Up to a line boundary. Where the rest is smaller than the piece that alignment asks for,
	 * it is so for the larger ones after it too, and what is left belongs to the tail: m is
	 * aligned for every piece of it.
	 */
	if ((uintptr_t)m & 63) {
		BW_HEAD(1, BW_P1);
		BW_HEAD(2, BW_P2);
		BW_HEAD(4, BW_P4);
		BW_HEAD(8, BW_P8);
		BW_HEAD(16, BW_P16);
		BW_HEAD(32, BW_P32);
	}

	/* No prefetch: the CPU sees the sequence by itself; asking for the source was no faster. */
	while (n >= 256) {
		BW_STEP(64, BW_P64);
		BW_STEP(64, BW_P64);
		BW_STEP(64, BW_P64);
		BW_STEP(64, BW_P64);
	}
	while (n >= 64)
		BW_STEP(64, BW_P64);

	/* Less than a line. */
	BW_TAIL(32, BW_P32);
	BW_TAIL(16, BW_P16);
	if (!(n & 15))
		return;
	BW_TAIL(8, BW_P8);
	BW_TAIL(4, BW_P4);
	BW_TAIL(2, BW_P2);
	if (n & 1)
		BW_P1(m, h);
}

#undef BW_FN
#undef BW_LOADS
#undef BW_P1
#undef BW_P2
#undef BW_P4
#undef BW_P8
#undef BW_P16
#undef BW_P32
#undef BW_P64
#undef BW_PARAMS
#undef BW_MAPPED
#undef BW_HOST
#undef BW_STEP
#undef BW_HEAD
#undef BW_TAIL
