/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The words of 1, 2, 4 and 8 bytes, which all kernels share. The mapped side is naturally aligned,
 * the host side has any alignment.
 *
 * The mapped side is accessed in inline assembly (volatile where we have none for the CPU), because
 * each must stay the one instruction that was written: compilers merge, split and drop plain
 * accesses, make loops of them into memcpy, and clang takes a streaming-store intrinsic for a plain
 * store with a hint. It also hides the mapped side, and only that, from the sanitizers; without
 * assembly BW_UNSEEN does, at the price that the host side goes unchecked with it.
 */
#ifndef BW_MMIO_PIECES_H
#define BW_MMIO_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BW_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) || defined(__aarch64__)
#define BW_UNSEEN
#else
#define BW_UNSEEN __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

/* What the mapped side holds: aligned, and of no particular type. */
typedef uint8_t bw_u8 __attribute__((may_alias));
typedef uint16_t bw_u16 __attribute__((may_alias));
typedef uint32_t bw_u32 __attribute__((may_alias));
typedef uint64_t bw_u64 __attribute__((may_alias));

/* What the host side holds: the same at any alignment. */
struct bw_host1 { uint8_t v; } __attribute__((packed, may_alias));
struct bw_host2 { uint16_t v; } __attribute__((packed, may_alias));
struct bw_host4 { uint32_t v; } __attribute__((packed, may_alias));
struct bw_host8 { uint64_t v; } __attribute__((packed, may_alias));

#if defined(__x86_64__)
#define BW_ASM_ST(insn, mod, type, m, v) \
	__asm__ volatile(insn " %" mod "1, %0" : "=m"(*(type *)(m)) : "r"(v))
#define BW_ASM_LD(insn, mod, type, m, v) \
	__asm__ volatile(insn " %1, %" mod "0" : "=r"(v) : "m"(*(const type *)(m)))
#define BW_WORD_ST(bytes, type, m, v) BW_ASM_ST_##bytes(type, m, v)
#define BW_WORD_LD(bytes, type, m, v) BW_ASM_LD_##bytes(type, m, v)
#define BW_ASM_ST_1(type, m, v) BW_ASM_ST("movb", "b", type, m, v)
#define BW_ASM_ST_2(type, m, v) BW_ASM_ST("movw", "w", type, m, v)
#define BW_ASM_ST_4(type, m, v) BW_ASM_ST("movl", "k", type, m, v)
#define BW_ASM_ST_8(type, m, v) BW_ASM_ST("movq", "q", type, m, v)
#define BW_ASM_LD_1(type, m, v) BW_ASM_LD("movb", "b", type, m, v)
#define BW_ASM_LD_2(type, m, v) BW_ASM_LD("movw", "w", type, m, v)
#define BW_ASM_LD_4(type, m, v) BW_ASM_LD("movl", "k", type, m, v)
#define BW_ASM_LD_8(type, m, v) BW_ASM_LD("movq", "q", type, m, v)
#elif defined(__aarch64__)
#define BW_ASM_ST(insn, mod, type, m, v) \
	__asm__ volatile(insn " %" mod "1, %0" : "=Q"(*(type *)(m)) : "r"(v))
#define BW_ASM_LD(insn, mod, type, m, v) \
	__asm__ volatile(insn " %" mod "0, %1" : "=r"(v) : "Q"(*(const type *)(m)))
#define BW_WORD_ST(bytes, type, m, v) BW_ASM_ST_##bytes(type, m, v)
#define BW_WORD_LD(bytes, type, m, v) BW_ASM_LD_##bytes(type, m, v)
#define BW_ASM_ST_1(type, m, v) BW_ASM_ST("strb", "w", type, m, v)
#define BW_ASM_ST_2(type, m, v) BW_ASM_ST("strh", "w", type, m, v)
#define BW_ASM_ST_4(type, m, v) BW_ASM_ST("str", "w", type, m, v)
#define BW_ASM_ST_8(type, m, v) BW_ASM_ST("str", "x", type, m, v)
#define BW_ASM_LD_1(type, m, v) BW_ASM_LD("ldrb", "w", type, m, v)
#define BW_ASM_LD_2(type, m, v) BW_ASM_LD("ldrh", "w", type, m, v)
#define BW_ASM_LD_4(type, m, v) BW_ASM_LD("ldr", "w", type, m, v)
#define BW_ASM_LD_8(type, m, v) BW_ASM_LD("ldr", "x", type, m, v)
#else
#define BW_WORD_ST(bytes, type, m, v) (*(volatile type *)(m) = (v))
#define BW_WORD_LD(bytes, type, m, v) ((v) = *(const volatile type *)(m))
#endif

/* bw_stN(m, h) stores N bytes of the host side, bw_ldN(m, h) loads them: one access each. */
#define BW_WORD(bytes, type) \
BW_INLINE void bw_st##bytes(void *m, const void *h) \
{ \
	BW_WORD_ST(bytes, type, m, ((const struct bw_host##bytes *)h)->v); \
} \
BW_INLINE void bw_ld##bytes(const void *m, void *h) \
{ \
	type v; \
\
	BW_WORD_LD(bytes, type, m, v); \
	((struct bw_host##bytes *)h)->v = v; \
}

BW_WORD(1, bw_u8)
BW_WORD(2, bw_u16)
BW_WORD(4, bw_u32)
BW_WORD(8, bw_u64)

/* The stores that must be one access: aligned and 8, 4, 2 or 1 byte long. false: it is none. */
BW_INLINE bool bw_store_word(void *m, const void *h, size_t n)
{
	uintptr_t a = (uintptr_t)m;

	if (n == 8 && !(a & 7))
		bw_st8(m, h);
	else if (n == 4 && !(a & 3))
		bw_st4(m, h);
	else if (n == 2 && !(a & 1))
		bw_st2(m, h);
	else if (n == 1)
		bw_st1(m, h);
	else
		return false;
	return true;
}

/* The loads that must be one access: aligned and 8, 4, 2 or 1 byte long. false: it is none. */
BW_INLINE bool bw_load_word(const void *m, void *h, size_t n)
{
	uintptr_t a = (uintptr_t)m;

	if (n == 8 && !(a & 7))
		bw_ld8(m, h);
	else if (n == 4 && !(a & 3))
		bw_ld4(m, h);
	else if (n == 2 && !(a & 1))
		bw_ld2(m, h);
	else if (n == 1)
		bw_ld1(m, h);
	else
		return false;
	return true;
}

#define BW_HOST_COPY(bytes, d, s) \
	(((struct bw_host##bytes *)(d))->v = ((const struct bw_host##bytes *)(s))->v)

/* Copy fewer than 64 bytes between two host buffers. No loop, which might become a memcpy. */
BW_INLINE void bw_host_copy(unsigned char *d, const unsigned char *s, size_t n)
{
	if (n & 32) {
		BW_HOST_COPY(8, d, s);
		BW_HOST_COPY(8, d + 8, s + 8);
		BW_HOST_COPY(8, d + 16, s + 16);
		BW_HOST_COPY(8, d + 24, s + 24);
		d += 32, s += 32;
	}
	if (n & 16) {
		BW_HOST_COPY(8, d, s);
		BW_HOST_COPY(8, d + 8, s + 8);
		d += 16, s += 16;
	}
	if (n & 8) {
		BW_HOST_COPY(8, d, s);
		d += 8, s += 8;
	}
	if (n & 4) {
		BW_HOST_COPY(4, d, s);
		d += 4, s += 4;
	}
	if (n & 2) {
		BW_HOST_COPY(2, d, s);
		d += 2, s += 2;
	}
	if (n & 1)
		BW_HOST_COPY(1, d, s);
}

#endif
