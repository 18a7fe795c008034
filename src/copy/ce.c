/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A copy is a list of parts, each in one segment of GPU memory. They are given to a stream one
 * after the other: pinned host memory as it is; pageable memory in chunks, by a ring or, where
 * there is none, by the driver. advance() does a bounded piece of that; blocking copies call it
 * until the end, started ones are moved on by their owner.
 */
#include "copy/ce.h"

#include <errno.h>
#include <stdlib.h>

#include "copy/ce_int.h"
#include "core/fault.h"

#define DRIVER_PIECE (1u << 20) /* of a started copy that the driver takes: it may block so long */
#define FILL_MOST (256u << 10)  /* of a chunk to the GPU: the device waits while the CPU fills it */
#define ASK_NS 100000           /* a stream that is not done is asked for errors so often */

struct part {
	struct bw_segment seg;
	uint64_t addr;
	unsigned char *host;
	size_t bytes;
	bool pinned;
};

struct work {
	struct bw_job job;
	enum bw_direction direction;
	struct part one, *parts;
	size_t nparts, part, at; /* the next byte to be given out: @at of parts[part] */
	uint64_t bytes;          /* that are not given out yet; to wait by */
	struct ce_stream *stream;
	struct ce_ring *ring;
	unsigned threads;        /* for the CPU's part */
	uint64_t head, tail;     /* chunks given out, and of these the CPU is done with */
	uint64_t told;           /* the stream's value after the last of the work */
	uint64_t asked_ns;
	bool silent;             /* work was put on the stream and no value asked for since */
	bool used;               /* work was put on the stream: it is not a dead one */
	bool moved;              /* bytes may have moved */
	bool whole;              /* blocking: pieces for the driver need no bound */
	bool shared;             /* with helpers, out of the ring */
	bool helped;             /* by such, now */
};
_Static_assert(sizeof(struct work) <= BW_JOB_BYTES, "struct work");

static int ce_score(const struct bw_copy *copy, struct bw_reason *why)
{
	const char *way = "the driver's way with pageable memory";

	if (copy->pinned)
		way = "directly: the host memory is pinned";
	else if (ce_ring_wanted(copy->bytes, copy->direction, copy->map->copy_threads + 1))
		way = "through a ring of pinned memory";
	bw_reason_set(why, "the device's copy engine, on a stream of Barway's own, %s", way);
	return 10;
}

/* ---- parts ----------------------------------------------------------------------------------- */

struct list {
	struct part *parts;
	size_t n, room;
	bool pinned;
};

static int add_part(void *arg, const struct bw_segment *seg, uint64_t addr, void *host,
		    size_t bytes)
{
	struct list *list = arg;

	if (list->n < list->room)
		list->parts[list->n] = (struct part){ *seg, addr, host, bytes, list->pinned };
	list->n++;
	return 0;
}

static int list_parts(struct list *list, const struct bw_copy *copies, size_t n)
{
	int ret = 0;

	list->n = 0;
	for (size_t i = 0; i < n && !ret; i++) {
		list->pinned = copies[i].pinned;
		if (copies[i].bytes)
			ret = bw_copy_segments(&copies[i], add_part, list);
	}
	return ret;
}

/* Checks all of it on the way: after that the mapping is not looked at any more. */
static int cut(struct work *w, const struct bw_copy *copies, size_t n)
{
	struct list list = { .parts = &w->one, .room = 1 };
	int ret = list_parts(&list, copies, n);

	w->parts = &w->one;
	if (!ret && list.n > 1) {
		w->parts = bw_alloc_array(list.n, sizeof(*w->parts));
		if (!w->parts) {
			w->parts = &w->one;
			return bw_err(ENOMEM, "no memory for a copy in %zu parts: free some",
				      list.n);
		}
		list.parts = w->parts;
		list.room = list.n;
		ret = list_parts(&list, copies, n);
	}
	w->nparts = list.n;
	return ret;
}

/* ---- giving work to the stream --------------------------------------------------------------- */

/* 1: all that was given out is done; 0: not yet. */
static int all_done(const struct work *w)
{
	if (w->tail != w->head || w->silent || !ce_stream_reached(w->stream, w->told))
		return 0;
	return !w->stream->failed ? 1 :
	       bw_err(EIO, "the copy engine failed, in this copy or in one on the same stream");
}

/* No helper looks at the stream or the ring any more. */
static void alone(struct work *w)
{
	if (w->helped)
		ce_ring_alone(w->ring);
	w->helped = false;
}

/* 1: the stream is one for the part; 0: another one has to finish before. */
static int right_stream(struct work *w, const struct part *p)
{
	int ret;

	if (w->stream && (w->stream->dev != p->seg.dev || w->stream->owner != p->seg.owner)) {
		if (w->silent) {
			ret = ce_stream_tell(w->stream, &w->told);
			w->silent = false;
			if (ret)
				return ret;
		}
		if (w->direction == BW_TO_GPU)
			w->tail = w->head; /* what is told is all of it */
		ret = all_done(w);
		if (ret <= 0)
			return ret;
		alone(w);
		ce_stream_put(w->stream);
		w->stream = NULL;
	}
	if (!w->stream) {
		w->used = false;
		ret = ce_stream_take(&p->seg, false, &w->stream);
		if (ret)
			return ret;
	}
	return 1;
}

/* @last: and tell when all is done. */
static int put_copy(struct work *w, const struct part *p, unsigned char *host, size_t n, bool last)
{
	const struct bw_device_ops *ops = p->seg.dev->ops;

	if (last)
		return ce_stream_copy_tell(w->stream, &p->seg, w->direction == BW_TO_GPU,
					   p->addr + w->at, host, n, &w->told);
	return w->direction == BW_TO_GPU ?
	       ops->stream_copy_to(p->seg.dev, w->stream->stream, p->addr + w->at, host, n) :
	       ops->stream_copy_from(p->seg.dev, w->stream->stream, host, p->addr + w->at, n);
}

/* A stream that was kept may be of a context that is gone, and then another is made. */
static int put_on(struct work *w, const struct part *p, unsigned char *host, size_t n, bool last)
{
	struct bw_sentence kept;
	int ret;

	if (!w->used)
		bw_err_keep(&kept);
	ret = put_copy(w, p, host, n, last);
	if (ret == -EIO && !w->used) {
		w->stream->failed = true;
		ce_stream_put(w->stream);
		w->stream = NULL;
		ret = ce_stream_take(&p->seg, true, &w->stream);
		if (!ret)
			ret = put_copy(w, p, host, n, last);
		if (!ret)
			bw_err_put_back(&kept);
	}
	if (!ret) {
		w->used = w->moved = true;
		w->silent = !last;
	} else if (w->stream) {
		w->used = true; /* it may have been taken, and what tells of it not */
	}
	return ret;
}

static void move_on(struct work *w, size_t n)
{
	w->at += n;
	w->bytes -= n;
	if (w->at == w->parts[w->part].bytes) {
		w->part++;
		w->at = 0;
	}
}

static int give_directly(struct work *w, const struct part *p)
{
	size_t n = p->bytes - w->at;
	int ret;

	if (!p->pinned && !w->whole && n > DRIVER_PIECE)
		n = DRIVER_PIECE;
	ret = put_on(w, p, p->host + w->at, n,
		     w->part + 1 == w->nparts && n == p->bytes - w->at);
	if (ret)
		return ret;
	move_on(w, n);
	return 1;
}

static int give_chunk(struct work *w, const struct part *p)
{
	struct ce_ring *r = w->ring;
	unsigned char *chunk = ce_ring_chunk(r, w->head), *host = p->host + w->at;
	size_t n = p->bytes - w->at, room = r->chunk;
	int ret;

	if (w->head - w->tail == r->depth) {
		if (w->direction == BW_FROM_GPU ||
		    !ce_stream_reached(w->stream, r->slot[w->head % r->depth].value))
			return 0;
		w->tail++;
	}
	if (w->direction == BW_FROM_GPU) /* the next one begins with a line of the host's */
		room = ce_ring_room(r, w->head) - (uintptr_t)host % CE_LINE;
	else if (room > FILL_MOST)
		room = FILL_MOST;
	n = n < room ? n : room;
	if (w->direction == BW_TO_GPU)
		ce_ring_fill(r, chunk, host, n, w->threads);
	ret = put_on(w, p, chunk, n, true);
	if (ret)
		return ret;
	ce_ring_give(r, w->head, w->stream, w->told, host, n);
	w->head++;
	move_on(w, n);
	return 1;
}

/* The next piece. 1: it was given out; 0: something has to be done before. */
static int give(struct work *w)
{
	const struct part *p = &w->parts[w->part];
	int ret = right_stream(w, p);

	if (ret <= 0)
		return ret;
	return p->pinned || !w->ring ? give_directly(w, p) : give_chunk(w, p);
}

/* ---- the end --------------------------------------------------------------------------------- */

/*
 * After a failure: until the device does not touch the host memory any more. One whose stream says
 * errors may be at work still. The error is forgotten by that, so whoever shares the stream looks
 * at its flag.
 */
static void settle(struct work *w)
{
	struct bw_pause pause;
	int ret;

	bw_pause_begin(&pause, 0);
	while ((ret = ce_stream_ask(w->stream)) == -EBUSY)
		bw_pause(&pause, UINT64_MAX);
	if (ret)
		w->stream->dev->ops->stream_sync(w->stream->dev, w->stream->stream);
}

/* Nothing was done. Unless the device is broken, another method may well do it. */
static bool may_be_done_otherwise(const struct work *w)
{
	const struct bw_segment *seg = &w->parts[w->part].seg;

	return !w->moved && !seg->dev->ops->alive(seg->dev, seg->owner);
}

/* Gives everything back. A failure in the middle is -EIO. */
static int finish(struct work *w, int ret)
{
	struct bw_sentence kept;

	alone(w);
	if (ret) {
		bw_err_keep(&kept);
		if (w->stream && w->used)
			settle(w);
		if (ret == -EIO && w->part < w->nparts && may_be_done_otherwise(w))
			ret = -EAGAIN;
		bw_err_put_back(&kept);
	}
	if (w->ring)
		ce_ring_put(w->ring, !ret);
	if (w->stream)
		ce_stream_put(w->stream);
	if (w->parts != &w->one)
		free(w->parts);
	w->ring = NULL;
	w->stream = NULL;
	w->parts = NULL;
	if (!ret || ret == -EIO || !w->moved)
		return ret;
	return bw_err(EIO, "%s", kept.text);
}

/* From the GPU: is the oldest chunk copied out? */
static bool retire(struct work *w)
{
	if (w->direction != BW_FROM_GPU || w->tail == w->head || !ce_ring_is_out(w->ring, w->tail))
		return false;
	w->tail++;
	return true;
}

/*
 * From the GPU: copies out of the ring what is here. One piece in a blocking copy, which then looks
 * whether the device can be given more; in a step of a started one, for the time of which it has
 * helpers, as many as a chunk has.
 */
static bool take_pieces(struct work *w)
{
	unsigned most = w->whole ? 1 : w->ring->pieces, n = 0;

	if (!ce_ring_has(w->ring))
		return false;
	if (!w->whole && w->shared)
		w->helped = ce_ring_helped(w->ring, w->threads);
	while (n < most && ce_ring_piece(w->ring))
		n++;
	if (!w->whole)
		alone(w);
	return n;
}

/*
 * Nothing to do now: does the stream still work? One without a word is asked each time, as it has
 * no other way to tell; what it has reached is seen in the next turn.
 */
static int look_for_errors(struct work *w)
{
	bool tells = w->stream->word && !w->stream->cannot_write;
	uint64_t now = bw_now_ns();
	int ret;

	if (tells && !w->asked_ns)
		w->asked_ns = now;
	if (tells && now - w->asked_ns < ASK_NS)
		return -EBUSY;
	w->asked_ns = now;
	ret = ce_stream_ask(w->stream);
	return ret ? ret : -EBUSY;
}

/* -EBUSY; 0 or an error: done, everything given back. */
static int advance(struct work *w, bool *idle)
{
	bool did = retire(w);
	int ret = 0;

	*idle = false;
	if (w->part < w->nparts) {
		ret = give(w);
		if (ret < 0)
			return finish(w, ret);
		did = did || ret > 0;
	} else if (w->direction == BW_TO_GPU) {
		w->tail = w->head;
	}
	if (did || (w->direction == BW_FROM_GPU && w->head != w->tail && take_pieces(w)))
		return -EBUSY;
	if (w->part == w->nparts) {
		ret = w->stream ? all_done(w) : 1;
		if (ret)
			return finish(w, ret < 0 ? ret : 0);
	}
	*idle = true;
	ret = look_for_errors(w);
	return ret == -EBUSY ? ret : finish(w, ret);
}

/* ---- the method ------------------------------------------------------------------------------ */

/*
 * What this thread stored through mappings before goes first: the engine is started by a store to
 * the GPU, and posted writes of one CPU do not pass each other on the way (PCI Express Base
 * Specification, "Transaction Ordering"); what makes a kernel that starts later see them makes the
 * engine, too. No read of the GPU is needed, which would take a microsecond.
 */
void bw_ce_order(void)
{
	bw_fence_publish();
}

static int begin(struct work *w, const struct bw_copy *copies, size_t n)
{
	size_t pageable = 0;
	int ret = cut(w, copies, n);

	if (ret)
		return finish(w, ret);
	w->direction = copies->direction;
	w->threads = copies->map->copy_threads + 1;
	for (size_t i = 0; i < w->nparts; i++) {
		w->bytes += w->parts[i].bytes;
		pageable += w->parts[i].pinned ? 0 : w->parts[i].bytes;
	}
	if (pageable && ce_ring_wanted(pageable, w->direction, w->threads))
		w->ring = ce_ring_take(w->parts->seg.dev);
	w->shared = w->ring && w->direction == BW_FROM_GPU && ce_ring_shared(pageable, w->threads);
	bw_ce_order();
	return 0;
}

/* What one wait is for, at most. */
static size_t waits_for(const struct work *w, const struct bw_copy *copy)
{
	size_t most = copy->bytes;

	if (w->ring && !copy->pinned && w->ring->chunk < most)
		most = w->ring->chunk;
	if (w->ring && !copy->pinned && copy->direction == BW_TO_GPU && most > FILL_MOST)
		most = FILL_MOST;
	return most;
}

static int ce_copy(const struct bw_copy *copy)
{
	struct work w = { .whole = true };
	struct bw_pause pause;
	uint64_t asked = 0; /* for helpers, after so many chunks */
	bool idle;
	int ret = begin(&w, copy, 1);

	if (ret)
		return ret;
	bw_pause_begin(&pause, waits_for(&w, copy));
	while ((ret = advance(&w, &idle)) == -EBUSY) {
		/* once the device is at work, as it takes a while to wake them; and again with
		 * each chunk, where there were none */
		if (w.shared && !w.helped && w.head != w.tail && w.head != asked) {
			asked = w.head;
			w.helped = ce_ring_helped(w.ring, w.threads);
		}
		if (idle)
			bw_pause(&pause, UINT64_MAX);
		else
			pause.since_ns = 0;
	}
	return ret;
}

int bw_ce_start_all(struct bw_job *job, const struct bw_copy *copies, size_t n)
{
	struct work *w = (struct work *)job;
	int ret;

	job->method = &bw_copy_ce;
	job->copy = copies[0];
	ret = begin(w, copies, n);
	if (ret)
		return ret;
	/* all that needs no CPU; to the GPU the first chunk, so that the device has begun */
	while (w->part < w->nparts && !ret) {
		bool cpu = !w->parts[w->part].pinned &&
			   (w->direction == BW_TO_GPU || !w->ring);

		ret = give(w);
		if (ret <= 0)
			break;
		ret = cpu;
	}
	return ret < 0 ? finish(w, ret) : 0;
}

static int ce_start(struct bw_job *job)
{
	struct bw_copy copy = job->copy;

	return bw_ce_start_all(job, &copy, 1);
}

static int ce_step(struct bw_job *job, bool *idle)
{
	return advance((struct work *)job, idle);
}

static int ce_notify(struct bw_job *job, void (*fn)(void *arg), void *arg)
{
	struct work *w = (struct work *)job;

	if (!w->stream) {
		fn(arg);
		return 0;
	}
	return w->stream->dev->ops->stream_call(w->stream->dev, w->stream->stream, fn, arg);
}

const struct bw_copy_method bw_copy_ce = {
	.name = "ce", .id = BW_METHOD_CE, .score = ce_score, .copy = ce_copy,
	.start = ce_start, .step = ce_step, .notify = ce_notify,
};

void bw_ce_release(void)
{
	ce_stream_release();
	ce_ring_release();
}
