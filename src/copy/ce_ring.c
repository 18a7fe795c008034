/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "copy/ce_int.h"
#include "copy/threads.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/param.h"

#define OF_A_DEVICE 4     /* rings; more copies at a time leave it to the driver */
#define RING_ALONE (2u << 20) /* and at more from the GPU, where one thread copies out of ours */
/* CE_AUTO: at less than this the driver is better, which has a ring of its own */
#define RING_TO_GPU 65536
#define RING_FROM_GPU 4096
#define SHARE 32768       /* of a chunk to the GPU, for one of several threads */
#define PIECE 65536       /* of a chunk from it, for whoever is free; less of the first chunks */
#define PIECE_LEAST 8192
#define HELP_MOST (1u << 20)
#define TURNS 256         /* of a helper that finds nothing */
#define CHUNK_LEAST 4096
#define CHUNK_MOST (64u << 20)

static struct {
	size_t chunk;
	unsigned depth;
	enum ce_pageable pageable;
	bool stream_to, stream_from; /* the CPU's stores go past its caches */
	bw_store_fn *store;
} config = { .chunk = 256 << 10, .depth = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ce_ring *idle;
static struct { struct bw_device *dev; unsigned rings; } count[16]; /* idle and in use */

static void forget_in_child(void)
{
	idle = NULL;
	memset(count, 0, sizeof(count));
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget_in_child);
}

/* ---- parameters ------------------------------------------------------------------------------ */

int bw_ce_configure(void)
{
	static const char *const pageable[] = { "auto", "ring", "driver", NULL };
	static const char *const stores[] = { "none", "to", "from", "both", NULL };
	uint64_t chunk = bw_param_size(BW_P_CE_CHUNK), depth = bw_param_size(BW_P_CE_DEPTH);
	int way = bw_param_word(BW_P_CE_PAGEABLE, pageable, "auto, ring, driver");
	int past = way < 0 ? way : bw_param_word(BW_P_CE_STREAMING, stores, "none, to, from, both");

	if (past < 0)
		return past;
	if (chunk < CHUNK_LEAST || chunk > CHUNK_MOST)
		return bw_err(EINVAL, "parameter ce_chunk: %llu bytes: give 4K to 64M",
			      (unsigned long long)chunk);
	if (depth < 2 || depth > CE_DEPTH)
		return bw_err(EINVAL, "parameter ce_depth: %llu: give 2 to %u",
			      (unsigned long long)depth, CE_DEPTH);
	pthread_mutex_lock(&lock);
	config.chunk = (chunk + CHUNK_LEAST - 1) & ~(size_t)(CHUNK_LEAST - 1);
	config.depth = (unsigned)depth;
	config.pageable = (enum ce_pageable)way;
	config.stream_to = past & 1;
	config.stream_from = past & 2;
	config.store = bw_mmio_choose(BW_WC, bw_mmio_allowed()).store->store;
	pthread_mutex_unlock(&lock);
	return 0;
}

bool ce_ring_wanted(size_t bytes, enum bw_direction direction, unsigned threads)
{
	if (config.pageable != CE_AUTO)
		return config.pageable == CE_RING;
	if (direction == BW_TO_GPU)
		return bytes >= RING_TO_GPU;
	return bytes >= RING_FROM_GPU && (threads > 1 || bytes < RING_ALONE);
}

/* ---- taking and giving back ------------------------------------------------------------------ */

/* Under the lock. The place of @dev in the table; NULL: there are too many devices. */
static unsigned *count_of(struct bw_device *dev)
{
	for (unsigned i = 0; i < sizeof(count) / sizeof(count[0]); i++) {
		if (!count[i].dev)
			count[i].dev = dev;
		if (count[i].dev == dev)
			return &count[i].rings;
	}
	return NULL;
}

static struct ce_ring *make(struct bw_device *dev, size_t chunk, unsigned depth)
{
	struct ce_ring *r = bw_alloc(sizeof(*r));
	static _Atomic bool told;
	uint64_t addr;
	void *base;

	if (r && !dev->ops->host_alloc(dev, chunk * depth, &base, &addr)) {
		r->dev = dev;
		r->base = base;
		r->id = dev->ops->identity((uintptr_t)base);
		r->chunk = chunk;
		r->depth = depth;
		r->pieces = (unsigned)((chunk + PIECE - 1) / PIECE);
		return r;
	}
	if (!told) {
		told = true;
		bw_log(BW_LOG_WARN, "copies of pageable memory by the copy engine are left to the "
		       "driver: %s", r ? bw_err_text() : "no memory");
	}
	free(r);
	return NULL;
}

void ce_host_free(struct bw_device *dev, void *host, uint64_t id)
{
	struct bw_sentence kept;

	if (dev->ops->identity((uintptr_t)host) != id)
		return;
	bw_err_keep(&kept);
	dev->ops->host_free(host);
	bw_err_put_back(&kept);
}

static void end(struct ce_ring *r)
{
	ce_host_free(r->dev, r->base, r->id);
	free(r);
}

/* Under the lock. */
static struct ce_ring *find_idle(struct bw_device *dev)
{
	for (struct ce_ring **at = &idle, *r; (r = *at); at = &r->next)
		if (r->dev == dev) {
			*at = r->next;
			return r;
		}
	return NULL;
}

struct ce_ring *ce_ring_take(struct bw_device *dev)
{
	struct bw_sentence kept;
	struct ce_ring *r;
	unsigned *n, depth;
	bool room;
	size_t chunk;

	pthread_mutex_lock(&lock);
	chunk = config.chunk;
	depth = config.depth;
	n = count_of(dev);
	r = find_idle(dev);
	room = !r && n && *n < OF_A_DEVICE;
	if (room)
		++*n;
	pthread_mutex_unlock(&lock);
	/* it may have gone with the context that it was made in, or be of another size */
	if (r && (r->chunk != chunk || r->depth != depth ||
		  dev->ops->identity((uintptr_t)r->base) != r->id)) {
		end(r);
		r = NULL;
		room = true;
	}
	if (r)
		r->given = r->piece = 0;
	if (r || !room)
		return r;
	bw_err_keep(&kept);
	r = make(dev, chunk, depth);
	bw_err_put_back(&kept);
	if (!r) {
		pthread_mutex_lock(&lock);
		--*n;
		pthread_mutex_unlock(&lock);
	}
	return r;
}

void ce_ring_put(struct ce_ring *r, bool good)
{
	pthread_mutex_lock(&lock);
	if (good) {
		r->next = idle;
		idle = r;
	} else {
		--*count_of(r->dev);
	}
	pthread_mutex_unlock(&lock);
	if (!good)
		end(r);
}

void ce_ring_release(void)
{
	struct ce_ring *r, *next;

	pthread_mutex_lock(&lock);
	r = idle;
	idle = NULL;
	for (next = r; next; next = next->next)
		--*count_of(next->dev);
	pthread_mutex_unlock(&lock);
	for (; r; r = next) {
		next = r->next;
		end(r);
	}
}

/* ---- the CPU's part -------------------------------------------------------------------------- */

void ce_ring_fill(const struct ce_ring *r, void *chunk, const void *src, size_t bytes,
		  unsigned threads)
{
	bw_threads_run(config.stream_to ? config.store : bw_threads_host, chunk, src, bytes,
		       threads > 1 ? SHARE : bytes, threads, r->dev);
}

/* The first ones are small: the CPU, which is slower than the device, begins the sooner. */
size_t ce_ring_room(const struct ce_ring *r, uint64_t n)
{
	size_t room = n < 2 ? r->chunk >> (2 - n) : r->chunk;

	return room < CHUNK_LEAST ? CHUNK_LEAST : room;
}

void ce_ring_give(struct ce_ring *r, uint64_t n, const struct ce_stream *s, uint64_t value,
		  unsigned char *host, size_t bytes)
{
	struct ce_slot *slot = &r->slot[n % r->depth];

	slot->host = host;
	slot->bytes = bytes;
	slot->value = value;
	slot->left = r->pieces;
	if (r->stream != s) /* it never is while there are helpers */
		r->stream = s;
	atomic_store_explicit(&r->given, n + 1, memory_order_release);
}

/*
 * Of a piece that is taken meanwhile the slot may be another chunk's by now: what is said then is
 * wrong, but the piece cannot be taken again.
 */
static bool is_here(struct ce_ring *r, uint64_t piece)
{
	uint64_t n = piece / r->pieces;

	return atomic_load_explicit(&r->given, memory_order_acquire) > n &&
	       ce_stream_reached(r->stream, r->slot[n % r->depth].value);
}

bool ce_ring_has(struct ce_ring *r)
{
	return is_here(r, r->piece);
}

/* Whole lines, where the chunk begins with one, but for the last: no two threads store to one. */
static void copy_out(const struct ce_ring *r, uint64_t piece)
{
	const struct ce_slot *slot = &r->slot[piece / r->pieces % r->depth];
	size_t even = (slot->bytes + r->pieces - 1) / r->pieces;
	size_t lines = (even + CE_LINE - 1) / CE_LINE * CE_LINE;
	size_t each = lines < PIECE_LEAST ? PIECE_LEAST : lines;
	size_t from = piece % r->pieces * each;

	if (from >= slot->bytes)
		return;
	(config.stream_from ? config.store : bw_threads_host)(
		slot->host + from, ce_ring_chunk(r, piece / r->pieces) + from,
		slot->bytes - from < each ? slot->bytes - from : each);
	if (config.stream_from)
		bw_fence_publish();
}

bool ce_ring_piece(struct ce_ring *r)
{
	uint64_t piece = r->piece;

	do {
		if (!is_here(r, piece))
			return false;
	} while (!atomic_compare_exchange_weak(&r->piece, &piece, piece + 1));
	copy_out(r, piece);
	atomic_fetch_sub_explicit(&r->slot[piece / r->pieces % r->depth].left, 1,
				  memory_order_release);
	return true;
}

bool ce_ring_is_out(const struct ce_ring *r, uint64_t n)
{
	return !atomic_load_explicit(&r->slot[n % r->depth].left, memory_order_acquire);
}

/* Its CPU may be wanted by whoever brings the chunks: bw_pause() alone keeps it for longer. */
static void help(void *arg)
{
	struct ce_ring *r = arg;
	struct bw_pause pause;

	/* no long sleep for large chunks: bw_threads_dismiss() waits for it */
	bw_pause_begin(&pause, r->chunk < HELP_MOST ? r->chunk : HELP_MOST);
	for (unsigned k = 1; !atomic_load_explicit(&r->over, memory_order_relaxed); k++) {
		if (ce_ring_piece(r)) {
			pause.since_ns = 0;
			continue;
		}
		bw_pause(&pause, UINT64_MAX);
		if (k % TURNS == 0)
			sched_yield();
	}
}

bool ce_ring_helped(struct ce_ring *r, unsigned threads)
{
	r->over = false;
	return bw_threads_invite(help, r, threads, r->dev);
}

void ce_ring_alone(struct ce_ring *r)
{
	r->over = true;
	bw_threads_dismiss();
}

bool ce_ring_shared(size_t bytes, unsigned threads)
{
	return threads > 1 && bytes > PIECE;
}
