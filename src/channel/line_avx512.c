/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A line in one register. Its load may be several accesses, but none smaller than an aligned word
 * (Intel SDM vol. 3, "Guaranteed Atomic Operations"), and each word has its own mark.
 */
#include "channel/line.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define BW_TARGET __attribute__((target("avx512f,avx512dq")))

BW_TARGET static inline __m512i make(uint64_t control, uint64_t mark, const unsigned char *data,
				     size_t n)
{
	unsigned words = (unsigned)n / 8;
	__m512i v = _mm512_maskz_loadu_epi64((__mmask8)((1u << words) - 1), data);
	uint64_t last = 0, tops;

	v = _mm512_alignr_epi64(v, _mm512_setzero_si512(), 7); /* word 0 is for the control word */
	if (n % 8) {
		memcpy(&last, data + words * 8, n % 8);
		v = _mm512_mask_set1_epi64(v, (__mmask8)(2u << words), (long long)last);
	}
	/* word 0 last, whose top bit is 0: where the mark goes */
	tops = (uint64_t)_mm512_movepi64_mask(_mm512_permutexvar_epi64(
			_mm512_set_epi64(0, 6, 4, 2, 7, 5, 3, 1), v)) << 56;
	v = _mm512_andnot_si512(_mm512_set1_epi64((long long)BW_LINE_TOP), v);
	v = _mm512_or_si512(v, _mm512_set1_epi64((long long)mark));
	return _mm512_mask_set1_epi64(v, 1, (long long)(control | tops | mark));
}

BW_TARGET static void line_put(uint64_t *w, uint64_t control, uint64_t mark,
			       const unsigned char *data, size_t n)
{
	_mm512_storeu_si512(w, make(control, mark, data, n));
}

BW_TARGET static unsigned put(uint64_t (*w)[BARWAY_LINE_WORDS], uint64_t position, uint32_t lines,
			      const void *data, size_t bytes, unsigned tag)
{
	return bw_message_put_by(w, position, lines, data, bytes, tag, line_put);
}

BW_TARGET static void send(unsigned char *at, size_t twin, uint64_t control, uint64_t mark,
			   const void *data, size_t n)
{
	__m512i v = make(control, mark, data, n);

	__asm__ volatile("vmovntdq %1, %0" : "=m"(*(__m512i *)(void *)at) : "v"(v));
	if (twin)
		__asm__ volatile("vmovntdq %1, %0" : "=m"(*(__m512i *)(void *)(at + twin))
				 : "v"(v));
}

BW_TARGET static bool get(uint64_t *w, const unsigned char *ring, uint64_t position, uint32_t lines)
{
	const unsigned char *at = ring + (position & (lines - 1)) * BARWAY_LINE_BYTES;
	__mmask8 marks;
	__m512i v;

	/* loads of x86 are not reordered with those after them */
	__asm__ volatile("vmovdqa64 %1, %0" : "=v"(v) : "m"(*(const __m512i *)(const void *)at)
			 : "memory");
	marks = _mm512_movepi64_mask(v);
	_mm512_storeu_si512(w, v);
	return BARWAY_LINE_MARK(position, lines) ? marks == 0xff : marks == 0;
}

BW_TARGET static void take(void *data, size_t n, const uint64_t *w)
{
	const __m512i top = _mm512_set1_epi64((long long)BW_LINE_TOP);
	__m512i v = _mm512_loadu_si512(w), tops;
	unsigned char *p = data;
	uint64_t words[BARWAY_LINE_WORDS];

	v = _mm512_andnot_si512(top, v);
	tops = _mm512_maskz_mov_epi64((__mmask8)(w[0] >> 56 & 0x7f), top);
	v = _mm512_or_si512(v, _mm512_permutexvar_epi64(
			_mm512_set_epi64(3, 6, 2, 5, 1, 4, 0, 7), tops));
	v = _mm512_alignr_epi64(v, v, 1);
	if (n == BARWAY_LINE_DATA) {
		_mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(v));
		v = _mm512_alignr_epi64(v, v, 4);
		_mm_storeu_si128((__m128i *)(void *)(p + 32), _mm512_castsi512_si128(v));
		v = _mm512_alignr_epi64(v, v, 2);
		_mm_storel_epi64((__m128i *)(void *)(p + 48), _mm512_castsi512_si128(v));
		return;
	}
	_mm512_storeu_si512(words, v);
	for (unsigned i = 0; i < n / 8; i++)
		memcpy(p + 8 * i, &words[i], 8);
	if (n % 8)
		memcpy(p + n / 8 * 8, &words[n / 8], n % 8);
}

const struct bw_line_kernel bw_line_avx512 = {
	.put = put, .send = send, .get = get, .take = take,
};

#endif
