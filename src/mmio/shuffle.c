/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests (parameter soft_shuffle): stores that arrive in random order with pauses in between, as
 * the header allows within one copy: whoever relies on more fails soon. Every byte is stored
 * exactly once, an aligned word is one store. Otherwise it is no kernel as the others are: it keeps
 * a state for each thread and gives the CPU away now and then.
 */
#include <sched.h>

#include "core/param.h"
#include "mmio/kernels.h"
#include "mmio/pieces.h"

static uint64_t next_random(void)
{
	static _Atomic uint64_t threads;
	static _Thread_local uint64_t state;

	if (!state)
		state = (bw_param_size(BW_P_SOFT_SHUFFLE) + threads++) * 0x9e3779b97f4a7c15ull | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* One store in 32 comes late by up to a microsecond or so, one in 1024 by a turn of the others. */
static void pause_a_little(uint64_t random)
{
	if (!(random & 1023))
		sched_yield();
	else if (!(random & 31))
		for (volatile unsigned n = random >> 10 & 255; n; n--)
			;
}

/* Fewer than 8 bytes, in naturally aligned pieces. */
static BW_UNSEEN void store_end(unsigned char *m, const unsigned char *h, size_t n)
{
	while (n) {
		size_t piece = n >= 4 && !((uintptr_t)m & 3) ? 4 :
			       n >= 2 && !((uintptr_t)m & 1) ? 2 : 1;

		bw_store_word(m, h, piece);
		m += piece;
		h += piece;
		n -= piece;
	}
}

/* What a copy is cut into: @head bytes, words, @tail bytes, numbered in this order. */
struct cut {
	unsigned char *m;
	const unsigned char *h;
	size_t head, words, tail;
};

static BW_UNSEEN void store_piece(const struct cut *c, size_t i)
{
	size_t at = c->head + (i - 1) * 8;

	if (!i)
		store_end(c->m, c->h, c->head);
	else if (i <= c->words)
		bw_st8(c->m + at, c->h + at);
	else
		store_end(c->m + at, c->h + at, c->tail);
}

/*
 * All numbers below a power of two, each once, in an order that the random numbers give: adding and
 * multiplying by an odd number are reversible modulo that power, and so is x ^ x >> half.
 */
static size_t scatter(size_t i, size_t mask, unsigned half, const uint64_t random[3])
{
	size_t x = (i + random[0]) & mask;

	x = (x * (random[1] | 1)) & mask;
	x ^= x >> half;
	x = (x * (random[2] | 1)) & mask;
	x ^= x >> half;
	return x;
}

static void shuffle_store(void *mapped, const void *host, size_t n)
{
	struct cut c = { .m = mapped, .h = host };
	uint64_t random[3] = { next_random(), next_random(), next_random() };
	unsigned bits = 1;
	size_t pieces;

	if (!n || bw_store_word(mapped, host, n))
		return;
	c.head = -(uintptr_t)mapped & 7;
	c.head = c.head < n ? c.head : n;
	c.words = (n - c.head) / 8;
	c.tail = (n - c.head) % 8;
	pieces = c.words + 2;
	while ((size_t)1 << bits < pieces)
		bits++;
	for (size_t i = 0; i < (size_t)1 << bits; i++) {
		size_t piece = scatter(i, ((size_t)1 << bits) - 1, (bits + 1) / 2, random);

		if (piece >= pieces)
			continue;
		pause_a_little(next_random());
		store_piece(&c, piece);
	}
}

const struct bw_mmio_kernel bw_mmio_shuffle = {
	.name = "shuffle",
	.caching = BW_FOR_WC | BW_FOR_CACHED,
	.store = shuffle_store,
};
