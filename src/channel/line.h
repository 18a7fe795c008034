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

/* The seven words at @data, which are there in full, into the line @w. */
static inline void bw_line_put(uint64_t *w, uint64_t control, uint64_t mark, const void *data)
{
	uint64_t v[BARWAY_LINE_WORDS - 1], tops = 0;

	memcpy(v, data, sizeof(v));
	for (unsigned i = 1; i < BARWAY_LINE_WORDS; i++) {
		tops |= v[i - 1] >> 63 << (55 + i);
		w[i] = (v[i - 1] & ~BW_LINE_TOP) | mark;
	}
	w[0] = control | tops | mark;
}

/* The message as the lines from @position on of a ring of @lines. Returns how many. */
static inline unsigned bw_message_put(uint64_t (*w)[BARWAY_LINE_WORDS], uint64_t position,
				      uint32_t lines, const void *data, size_t bytes, unsigned tag)
{
	uint64_t control = (uint64_t)bytes << 44 | (uint64_t)tag << 32;
	const unsigned char *p = data;
	unsigned n = 0;

	do {
		uint64_t mark = (uint64_t)BARWAY_LINE_MARK(position + n, lines) << 63;
		unsigned char last[BARWAY_LINE_DATA] = { 0 };
		const unsigned char *from = p;
		size_t part = bytes < BARWAY_LINE_DATA ? bytes : BARWAY_LINE_DATA;

		if (part < BARWAY_LINE_DATA) {
			if (part)
				memcpy(last, p, part);
			from = last;
		}
		bw_line_put(w[n], control | (uint32_t)(position + n), mark, from);
		control = (uint64_t)BARWAY_LINE_MORE << 44;
		p += part;
		bytes -= part;
		n++;
	} while (bytes);
	return n;
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
	uint64_t v[BARWAY_LINE_WORDS - 1];

	for (unsigned i = 1; i < BARWAY_LINE_WORDS; i++)
		v[i - 1] = (w[i] & ~BW_LINE_TOP) | w[0] >> (55 + i) << 63;
	if (n == sizeof(v))
		memcpy(data, v, sizeof(v));
	else if (n)
		memcpy(data, v, n);
}

#endif
