/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the copy engine share; nobody else includes it. */
#ifndef BW_COPY_CE_INT_H
#define BW_COPY_CE_INT_H

#include <pthread.h>

#include "copy/ce.h"
#include "copy/pause.h"

/* ---- ce_stream.c ----------------------------------------------------------------------------- */

/*
 * A stream of the library's own. The word lies in pinned memory; the device stores ascending values
 * in it, each after the work that was put on the stream before. Copies share a stream where there
 * are more of them than streams: each has a value of its own to wait for.
 */
struct ce_stream {
	struct ce_stream *next; /* of its list; with @users under the lock of the lists */
	unsigned users;
	struct bw_device *dev;
	void *owner;            /* the context as a segment names it, and its identity */
	uint64_t context_id;
	uint64_t proof, proof_id; /* the caller's memory that goes with the context */
	uint64_t life, life_id;   /* the same, of this stream's own; 0: there is none */
	void *stream;
	uint64_t *word;         /* NULL: has none, the stream is asked instead */
	uint64_t word_addr, word_id;
	_Atomic bool cannot_write; /* the device cannot store in the word */
	_Atomic bool failed;       /* what is on it cannot be trusted; not to be used any more */
	_Atomic uint64_t seen;     /* a value that was reached, by an answer of the stream itself */
	pthread_mutex_t lock;      /* values are asked for in ascending order */
	uint64_t value;            /* the last one */
};

/* One for the context that @seg is of, which is there now: an idle one if there is; @anew: made
 * now, as an idle one did not work. */
int ce_stream_take(const struct bw_segment *seg, bool anew, struct ce_stream **out);
void ce_stream_put(struct ce_stream *s);
/* *@value will be reached when all that this thread put on the stream before has ARRIVED. */
int ce_stream_tell(struct ce_stream *s, uint64_t *value);
/* A copy, and ce_stream_tell(): with fewer calls to the driver. */
int ce_stream_copy_tell(struct ce_stream *s, const struct bw_segment *seg, bool to_gpu,
			uint64_t addr, void *host, size_t bytes, uint64_t *value);
/* Asks the driver: -EBUSY, or -EIO; 0: it has no work left, and every value has been reached. */
int ce_stream_ask(struct ce_stream *s);
/* Ends the idle ones. */
void ce_stream_release(void);

static inline bool ce_stream_reached(const struct ce_stream *s, uint64_t value)
{
	return (s->word && __atomic_load_n(s->word, __ATOMIC_ACQUIRE) >= value) ||
	       s->seen >= value;
}

/* ---- ce_ring.c ------------------------------------------------------------------------------- */

#define CE_DEPTH 16u /* chunks of a ring, at most */
#define CE_LINE 64u

struct ce_slot {
	unsigned char *host; /* from the GPU: where the chunk goes */
	size_t bytes;
	_Atomic uint64_t value; /* of the stream: when the device has done it */
	_Atomic unsigned left;  /* from the GPU: pieces of it that are not copied out yet */
};

/*
 * Pinned chunks, used in turn. A ring serves one copy at a time.
 *
 * From the GPU each chunk is copied out in so many pieces, which are numbered on from the first
 * chunk's. Any number of threads may do that, each for itself: whoever is free takes the next
 * piece, if it is here. So they go on from one chunk to the next without a wait for each other,
 * and nobody has taken what is not there yet.
 */
struct ce_ring {
	struct ce_ring *next;
	struct bw_device *dev;
	unsigned char *base; /* pinned memory: depth chunks */
	uint64_t id;
	size_t chunk;
	unsigned depth, pieces; /* pieces: of each chunk */
	struct ce_slot slot[CE_DEPTH];
	const struct ce_stream *stream; /* on which the chunks are */
	_Atomic uint64_t given; /* chunks that the device was given */
	_Atomic bool over;      /* helpers are to leave */
	unsigned char apart[64];
	_Atomic uint64_t piece; /* the next one: all before it are taken */
	unsigned char alone[64];
};

/* Pinned memory of the device's, unless it went with its context: then other may be there now. */
void ce_host_free(struct bw_device *dev, void *host, uint64_t id);

enum ce_pageable { CE_AUTO, CE_RING, CE_DRIVER };

/* NULL: there is none now, nor memory for one; the driver takes pageable memory, too. */
struct ce_ring *ce_ring_take(struct bw_device *dev);
void ce_ring_put(struct ce_ring *r, bool good);
void ce_ring_release(void);
/* Shall pageable memory go through a ring? */
bool ce_ring_wanted(size_t bytes, enum bw_direction direction, unsigned threads);

static inline unsigned char *ce_ring_chunk(const struct ce_ring *r, uint64_t n)
{
	return r->base + n % r->depth * r->chunk;
}

/* The CPU's part of a chunk to the GPU, by at most @threads threads, the caller's among them. */
void ce_ring_fill(const struct ce_ring *r, void *chunk, const void *src, size_t bytes,
		  unsigned threads);

/* From the GPU. The @n-th chunk holds at most so many bytes. */
size_t ce_ring_room(const struct ce_ring *r, uint64_t n);
/* The device was given the @n-th chunk; @value: of @s, when it is here. */
void ce_ring_give(struct ce_ring *r, uint64_t n, const struct ce_stream *s, uint64_t value,
		  unsigned char *host, size_t bytes);
/* Is there a piece? */
bool ce_ring_has(struct ce_ring *r);
/* Copies one out; false: there is none now. */
bool ce_ring_piece(struct ce_ring *r);
/* Is all of the @n-th chunk copied out? */
bool ce_ring_is_out(const struct ce_ring *r, uint64_t n);
/* Lets helpers take part, at most @threads with this one, until ce_ring_alone(), which has to
 * follow in the same thread. False: there are none now. */
bool ce_ring_helped(struct ce_ring *r, unsigned threads);
void ce_ring_alone(struct ce_ring *r);
/* Has a copy of so many bytes any use for helpers? */
bool ce_ring_shared(size_t bytes, unsigned threads);

#endif
