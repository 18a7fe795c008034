/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel of the resident copier: one block. Its first warp takes requests; small ones it copies
 * alone, for the others it wakes the block: at the first barrier they have the request, at the
 * second all have made their stores.
 *
 * Data is moved by relaxed loads and stores of system scope: this block stays while memory changes,
 * and plain loads could be served from what its L1 cache kept of an earlier request.
 *
 * The end of a request: barrier, fence by one thread, word. A fence is cumulative: it orders what
 * the other threads stored before the barrier like its own thread's stores (PTX ISA, "Memory
 * Consistency Model", causality order). So one thread pays for it.
 */
#include "gpu/kernel.h"
#include "resident_abi.h"

#ifdef BARWAY_GPU_SOFT

#define BLOCK_PARAM struct barway_soft_block *gpu_block,
#define BLOCK_ARG gpu_block,

BARWAY_GPU_FN unsigned ld_byte(uint64_t at)
{
	return *(const unsigned char *)(uintptr_t)at;
}

BARWAY_GPU_FN void st_byte(uint64_t at, unsigned v)
{
	*(unsigned char *)(uintptr_t)at = (unsigned char)v;
}

#else

#define BLOCK_PARAM
#define BLOCK_ARG

BARWAY_GPU_FN unsigned ld_byte(uint64_t at)
{
	unsigned v;

	__asm__ volatile(BARWAY_PTX_LD ".u8 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
	return v;
}

BARWAY_GPU_FN void st_byte(uint64_t at, unsigned v)
{
	__asm__ volatile(BARWAY_PTX_ST ".u8 [%0], %1;" : : "l"(at), "r"(v) : "memory");
}

#endif

#define PIECE 16u

/* The copy, cut: @head bytes, @pieces of 16 bytes, aligned at the destination, and a tail. */
struct cut {
	uint32_t head, edges; /* bytes before the pieces; before and after them */
	uint32_t pieces;
	uint32_t shift;       /* bits by which the source is off the words that it is read in */
	uint32_t whole;       /* the source's pieces are aligned, too */
	uint64_t to;          /* of the first piece */
	uint64_t words;       /* where its source begins, aligned to 8 bytes */
};

/* Reads no word that is not all of the source: what is beside it may be another's, or not there. */
BARWAY_GPU_FN void cut_up(struct cut *c, uint64_t to, uint64_t from, uint32_t bytes)
{
	uint32_t head = (uint32_t)(0 - to) & (PIECE - 1), off = (uint32_t)(from + head) & 7, past;

	if (off > head) {
		head += PIECE;
		off = (uint32_t)(from + head) & 7;
	}
	c->to = to + head;
	c->words = from + head - off;
	c->whole = (c->words & (PIECE - 1)) == 0 && !off;
	c->shift = off * 8;
	past = off ? 8 - off : 0; /* of the source, read for the last piece */
	c->pieces = head + past < bytes ? (bytes - head - past) / PIECE : 0;
	c->head = c->pieces ? head : bytes;
	c->edges = bytes - c->pieces * PIECE;
}

BARWAY_GPU_FN uint32_t edge_at(const struct cut *c, uint32_t i)
{
	return i < c->head ? i : i + c->pieces * PIECE;
}

/*
 * Four pieces of a thread at a time: all are on their way before the first is needed. They lie a
 * warp's width apart, a constant, so that one register has the addresses of all.
 */
BARWAY_GPU_FN void copy_whole(BLOCK_PARAM const struct cut *c, uint32_t me, uint32_t n)
{
	uint64_t v[8];

	for (uint32_t k = me / GPU_LANES() * (3 * GPU_LANES()) + me; k < c->pieces; k += 4 * n) {
		uint64_t from = c->words + (uint64_t)k * PIECE, to = c->to + (uint64_t)k * PIECE;

		BARWAY_GPU_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			if (k + i * GPU_LANES() < c->pieces)
				barway_gpu_ld2(from + i * GPU_LANES() * PIECE, &v[2 * i],
					       &v[2 * i + 1]);
		BARWAY_GPU_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			if (k + i * GPU_LANES() < c->pieces)
				GPU_ST2_HOST(to + i * GPU_LANES() * PIECE, v[2 * i], v[2 * i + 1]);
	}
}

/* Of two words in a row, the one that begins @shift bits, 0 to 56, into the first. */
BARWAY_GPU_FN uint64_t between(uint64_t a, uint64_t b, uint32_t shift)
{
	return a >> shift | b << 1 << (63 - shift);
}

/* One at a time: registers do not suffice for more, and large copies have all threads. */
BARWAY_GPU_FN void copy_skewed(BLOCK_PARAM const struct cut *c, uint32_t me, uint32_t n)
{
	for (uint32_t k = me; k < c->pieces; k += n) {
		uint64_t from = c->words + (uint64_t)k * PIECE, to = c->to + (uint64_t)k * PIECE;
		uint64_t a = barway_gpu_ld(from), b = barway_gpu_ld(from + 8);
		uint64_t d = c->shift ? barway_gpu_ld(from + 16) : 0;

		GPU_ST2_HOST(to, between(a, b, c->shift), between(b, d, c->shift));
	}
}

/* The share of thread @me of @n. The edges' loads are on their way with the others. */
BARWAY_GPU_FN void copy_share(BLOCK_PARAM uint64_t to, uint64_t from, uint32_t bytes, uint32_t me,
			      uint32_t n)
{
	unsigned edge[2] = { 0, 0 };
	struct cut c;

	if (bytes == 8 && !((to | from) & 7)) {
		if (!me)
			GPU_ST_HOST(to, barway_gpu_ld(from));
		return;
	}
	if ((to | from | bytes) & (PIECE - 1)) /* else there is nothing to be cut */
		cut_up(&c, to, from, bytes);
	else
		c = (struct cut){ .pieces = bytes / PIECE, .whole = 1, .to = to, .words = from };
	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		if (me + i * n < c.edges)
			edge[i] = ld_byte(from + edge_at(&c, me + i * n));
	if (c.whole)
		copy_whole(BLOCK_ARG &c, me, n);
	else
		copy_skewed(BLOCK_ARG &c, me, n);
	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		if (me + i * n < c.edges)
			st_byte(to + edge_at(&c, me + i * n), edge[i]);
	/* two bytes for each thread are all, but on the soft GPU */
	if (n < GPU_WARP)
		for (uint32_t i = me + 2 * n; i < c.edges; i += n)
			st_byte(to + edge_at(&c, i), ld_byte(from + edge_at(&c, i)));
}

/*
 * By the first thread: the next request, or one of 0 bytes, and it has left. A request is one line,
 * so it comes by the shortest way. @at: where the channel is; kept for it between requests, as the
 * copy needs the registers.
 */
BARWAY_GPU_FN void take(BLOCK_PARAM const struct bw_resident_param *p, uint64_t began, uint64_t *at,
			struct bw_resident_request *request)
{
	uint64_t stayed = barway_gpu_now() - began, left = p->stay_ns - stayed, w[7];
	int error = BARWAY_GPU_ETIMEDOUT;
	struct barway_gpu_channel ch;
	uint32_t bytes = 0;

	request->bytes = 0;
	if (GPU_POINT(&ch, &p->channel)) {
		GPU_TRAP();
		return;
	}
	ch.rx_tail = at[0];
	ch.rx_said = at[1];
	ch.rx_ring = at[2];
	/* No acquiring load, which takes 0.15 us (H200): what is copied is loaded from addresses
	 * that come with the request, so after it, and past the L1; what the CPU stored before has
	 * gone the same way before. */
	if (stayed < p->stay_ns)
		error = barway_gpu_recv_line(&ch, w, &bytes, NULL,
					     p->idle_ns < left ? p->idle_ns : left,
					     BARWAY_GPU_RELAXED);
	if (!error && bytes == sizeof(*request)) {
		at[0] = ch.rx_tail;
		at[1] = ch.rx_said;
		request->to = w[0];
		request->from = w[1];
		request->bytes = w[2];
		request->value = w[3];
		return;
	}
	if (error != BARWAY_GPU_ETIMEDOUT && error != BARWAY_GPU_EPIPE)
		barway_gpu_close(&ch);
	barway_gpu_leave(&ch);
}

/*
 * Memory that was there is not, which only the soft GPU can tell beforehand: whoever waits hears of
 * it by the channel.
 */
BARWAY_GPU_FN void give_up(BLOCK_PARAM const struct bw_resident_param *p)
{
#ifdef BARWAY_GPU_SOFT
	struct barway_gpu_channel ch;

	if (!GPU_POINT(&ch, &p->channel))
		barway_gpu_close(&ch);
#endif
	(void)p;
	GPU_TRAP();
}

GPU_KERNEL(bw_resident_kernel, bw_resident_param, BW_RESIDENT_THREADS)
{
	GPU_SHARED(struct bw_resident_request, request, 1);
	GPU_SHARED(uint64_t, channel_at, 3);
	uint64_t began;

	if (!GPU_THREAD()) {
		struct barway_gpu_channel ch;

		if (GPU_POINT(&ch, &p->channel)) {
			GPU_TRAP();
			return;
		}
		channel_at[0] = barway_gpu_ld(ch.gpu + BARWAY_GPU_RX_TAIL);
		channel_at[1] = barway_gpu_ld(ch.gpu + BARWAY_GPU_RX_SAID);
		barway_gpu_choose_twin(&ch);
		channel_at[2] = ch.rx_ring;
	}
	began = barway_gpu_now(); /* not before: what there is, is looked at in any case */
	for (;;) {
		uint64_t to, from, done;
		uint32_t bytes, alone = 0;

		if (GPU_THREAD() < GPU_WARP) {
			if (!GPU_THREAD())
				take(BLOCK_ARG p, began, channel_at, request);
			GPU_SYNC_WARP();
			alone = request->bytes && request->bytes <=
				((request->to ^ request->from) % PIECE ? BW_RESIDENT_ALONE_SKEWED :
									 BW_RESIDENT_ALONE);
		}
		if (!alone)
			GPU_SYNC_BLOCK();
		bytes = (uint32_t)request->bytes;
		if (!bytes)
			return;
		to = GPU_AT(request->to, bytes);
		from = GPU_AT(request->from, bytes);
		done = GPU_AT(p->done, BW_RESIDENT_SENT + 8);
		if (!to || !from || !done) {
			give_up(BLOCK_ARG p);
			return;
		}
#ifdef BARWAY_GPU_SOFT
		(void)barway_gpu_ld_acquire(done + BW_RESIDENT_SENT);
#endif
		copy_share(BLOCK_ARG to, from, bytes, GPU_THREAD(),
			   alone ? GPU_LANES() : GPU_THREADS());
		if (alone)
			GPU_SYNC_WARP();
		else
			GPU_SYNC_BLOCK();
		if (!GPU_THREAD()) {
			GPU_FENCE();
			GPU_ST_HOST(done, request->value);
		}
	}
}
