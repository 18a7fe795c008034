/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A template, included once for each function it is to define: a load of the whole aligned blocks
 * that cover the wanted bytes, of which only those reach the host side. A load from GPU memory
 * costs a PCIe round trip of about 1 us whatever its size, and a core keeps about 16 lines in
 * flight (measured, H200 behind a Xeon of family 6 model 207): so the partial blocks at both ends
 * are asked for with the whole ones, not after them, and nothing that is loaded decides what is
 * loaded next. Reading more than was asked for has no side effect on GPU memory.
 *
 *  BW_FN       the name of the function, a bw_load_fn
 *  BW_TARGET   its attributes
 *  BW_BLOCK    bytes of an aligned block: 64 where loads are streaming, which fetch a line anyway;
 *              less where each access is a read of its own
 *  BW_VEC      the type of a register
 *  BW_VLD      (v, m): aligned load of v from the mapped side
 *  BW_VST      (h, v): store to the host side, any alignment
 *  BW_REGS     how many registers to load before any is used: 8 or 16
 *
 * Macros where a vector is passed: clang passes one that only BW_TARGET knows in memory, with a
 * memcpy at -O0. The parameters are undefined again at the end, but for BW_TARGET.
 */
#include "mmio/pieces.h"

/* Load a block to a buffer. */
#define BW_GRAB(buffer, m) do { \
	for (size_t at_ = 0; at_ < BW_BLOCK; at_ += sizeof(BW_VEC)) { \
		BW_VEC v_; \
\
		BW_VLD(v_, (m) + at_); \
		BW_VST((buffer) + at_, v_); \
	} \
} while (0)

#define BW_DECL(i) BW_VEC v##i;
#define BW_LOAD(i) BW_VLD(v##i, m + (i) * sizeof(BW_VEC));
#define BW_STORE(i) BW_VST(h + (i) * sizeof(BW_VEC), v##i);
#define BW_1(x) x(0)
#define BW_2(x) BW_1(x) x(1)
#define BW_4(x) BW_2(x) x(2) x(3)
#define BW_8(x) BW_4(x) x(4) x(5) x(6) x(7)
#define BW_16(x) BW_8(x) x(8) x(9) x(10) x(11) x(12) x(13) x(14) x(15)
/* The empty statement with a memory clobber keeps the compiler from moving the stores up. */
#define BW_BATCH(k) do { \
	BW_##k(BW_DECL) \
	BW_##k(BW_LOAD) \
	__asm__ volatile("" ::: "memory"); \
	BW_##k(BW_STORE) \
	m += (k) * sizeof(BW_VEC); \
	h += (k) * sizeof(BW_VEC); \
} while (0)

static BW_TARGET void BW_FN(void *host, const void *mapped, size_t n)
{
	const unsigned char *m = mapped;
	unsigned char *h = host;
	size_t from = (uintptr_t)m % BW_BLOCK;
	size_t head, whole, tail;
	unsigned char first[BW_BLOCK] __attribute__((aligned(64)));
	unsigned char last[BW_BLOCK] __attribute__((aligned(64)));

	if (n <= 8 && (bw_load_word(m, h, n) || !n)) /* larger ones pay one compare for it */
		return;

	head = from ? BW_BLOCK - from : 0;
	if (head > n)
		head = n;
	tail = (n - head) % BW_BLOCK;
	whole = n - head - tail;
	if (head)
		BW_GRAB(first, m - from);
	m += head;
	h += head;
	if (tail)
		BW_GRAB(last, m + whole);

	/* Batches are independent of each other too: the CPU runs ahead into the next one. */
#if BW_REGS == 16
	for (; whole >= 16 * sizeof(BW_VEC); whole -= 16 * sizeof(BW_VEC))
		BW_BATCH(16);
	if (whole & 8 * sizeof(BW_VEC))
		BW_BATCH(8);
#else
	for (; whole >= 8 * sizeof(BW_VEC); whole -= 8 * sizeof(BW_VEC))
		BW_BATCH(8);
#endif
	if (whole & 4 * sizeof(BW_VEC))
		BW_BATCH(4);
	if (whole & 2 * sizeof(BW_VEC))
		BW_BATCH(2);
	if (whole & 1 * sizeof(BW_VEC))
		BW_BATCH(1);

	if (head)
		bw_host_copy(host, first + from, head);
	if (tail)
		bw_host_copy(h, last, tail);
}

#undef BW_FN
#undef BW_BLOCK
#undef BW_VEC
#undef BW_VLD
#undef BW_VST
#undef BW_REGS
#undef BW_GRAB
#undef BW_DECL
#undef BW_LOAD
#undef BW_STORE
#undef BW_1
#undef BW_2
#undef BW_4
#undef BW_8
#undef BW_16
#undef BW_BATCH
