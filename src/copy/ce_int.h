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

struct ce_slot {
	unsigned char *host; /* from the GPU: where the chunk goes */
	size_t bytes;
	uint64_t value;      /* of the stream: when the device has done it */
};

/* Pinned chunks, used in turn. A ring serves one copy at a time. */
struct ce_ring {
	struct ce_ring *next;
	struct bw_device *dev;
	unsigned char *base; /* pinned memory: depth chunks */
	uint64_t id;
	size_t chunk;
	unsigned depth;
	struct ce_slot slot[CE_DEPTH];
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

/* The CPU's part of a chunk, by at most @threads threads, the caller's among them. */
void ce_host_copy(const struct ce_ring *r, void *dst, const void *src, size_t bytes,
		  enum bw_direction direction, unsigned threads);

#endif
