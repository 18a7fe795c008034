/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to lines and back: the CPU's side of include/barway_channel_abi.h. */
#ifndef BW_CHANNEL_LINE_H
#define BW_CHANNEL_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "barway_channel_abi.h"

#define BW_LINE_TOP ((uint64_t)1 << 63)

/* The first @n bytes at @data, at most 56, into the line @w. Word by word: a memcpy of any length
 * is a call. */
static inline void bw_line_put(uint64_t *w, uint64_t control, uint64_t mark,
			       const unsigned char *data, size_t n)
{
	uint64_t v, tops = 0;
	unsigned i;

	for (i = 1; i < BARWAY_LINE_WORDS; i++)
		w[i] = mark;
	for (i = 1; i <= n / 8; i++) {
		memcpy(&v, data + 8 * (i - 1), 8);
		tops |= v >> 63 << BARWAY_LINE_TOP(i);
		w[i] = (v & ~BW_LINE_TOP) | mark;
	}
	if (n % 8) {
		v = 0;
		memcpy(&v, data + n / 8 * 8, n % 8);
		w[i] = v | mark;
	}
	w[0] = control | tops | mark;
}

/* The control word, without mark and displaced bits, of a message that begins at @position. */
static inline uint64_t bw_line_control(uint64_t position, size_t bytes, unsigned tag)
{
	return (uint64_t)bytes << 44 | (uint64_t)tag << 32 | (uint32_t)position;
}

static inline uint64_t bw_line_mark(uint64_t position, uint32_t lines)
{
	return (uint64_t)BARWAY_LINE_MARK(position, lines) << 63;
}

/* The message as the lines from @position on of a ring of @lines. Returns how many. */
static inline __attribute__((always_inline))
unsigned bw_message_put_by(uint64_t (*w)[BARWAY_LINE_WORDS], uint64_t position, uint32_t lines,
			   const void *data, size_t bytes, unsigned tag,
			   void (*line_put)(uint64_t *w, uint64_t control, uint64_t mark,
					    const unsigned char *data, size_t n))
{
	uint64_t control = bw_line_control(position, bytes, tag);
	const unsigned char *p = data;
	unsigned n = 0;

	do {
		size_t part = bytes < BARWAY_LINE_DATA ? bytes : BARWAY_LINE_DATA;

		line_put(w[n], control, bw_line_mark(position + n, lines), p, part);
		n++;
		control = bw_line_control(position + n, BARWAY_LINE_MORE, 0);
		p += part;
		bytes -= part;
	} while (bytes);
	return n;
}

static inline unsigned bw_message_put(uint64_t (*w)[BARWAY_LINE_WORDS], uint64_t position,
				      uint32_t lines, const void *data, size_t bytes, unsigned tag)
{
	return bw_message_put_by(w, position, lines, data, bytes, tag, bw_line_put);
}

/* The line at @position, where the other side may be writing it: is all of it there? */
static inline bool bw_line_get(uint64_t *w, const unsigned char *ring, uint64_t position,
			       uint32_t lines)
{
	const uint64_t *at = (const uint64_t *)(const void *)
			     (ring + (position & (lines - 1)) * BARWAY_LINE_BYTES);
	uint64_t all = ~(uint64_t)0, any = 0;

	for (unsigned i = 0; i < BARWAY_LINE_WORDS; i++) {
		w[i] = __atomic_load_n(at + i, __ATOMIC_ACQUIRE);
		all &= w[i];
		any |= w[i];
	}
	return BARWAY_LINE_MARK(position, lines) ? all >> 63 : !(any >> 63);
}

/* The first @n bytes that the line carries, at most 56. */
static inline void bw_line_take(void *data, size_t n, const uint64_t *w)
{
	unsigned char *p = data;
	uint64_t v;
	unsigned i;

	for (i = 1; i <= n / 8; i++) {
		v = (w[i] & ~BW_LINE_TOP) | w[0] >> BARWAY_LINE_TOP(i) << 63;
		memcpy(p + 8 * (i - 1), &v, 8);
	}
	if (n % 8) /* such a word's mark displaces nothing of the message */
		memcpy(p + n / 8 * 8, &w[i], n % 8);
}

/*
 * A line straight to where it goes, without one beside the ring, and to @twin bytes further where
 * that is not 0; as bw_line_put(). For mappings that are write-combined.
 */
typedef void bw_line_send_fn(unsigned char *at, size_t twin, uint64_t control, uint64_t mark,
			     const void *data, size_t n);

/* How a CPU makes lines and takes them apart. */
struct bw_line_kernel {
	/* As bw_message_put(), bw_line_get() and bw_line_take(). */
	unsigned (*put)(uint64_t (*w)[BARWAY_LINE_WORDS], uint64_t position, uint32_t lines,
			const void *data, size_t bytes, unsigned tag);
	bool (*get)(uint64_t *w, const unsigned char *ring, uint64_t position, uint32_t lines);
	void (*take)(void *data, size_t n, const uint64_t *w);
	bw_line_send_fn *send; /* NULL: has none */
};

extern const struct bw_line_kernel bw_line_c, bw_line_avx512;

/* The best of those that the CPU can run. @isa: bits of enum bw_isa. */
const struct bw_line_kernel *bw_line_kernel(uint32_t isa);

#endif
