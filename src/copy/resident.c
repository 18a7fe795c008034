/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/resident.h"

#include <errno.h>
#include <stdlib.h>

#include "copy/resident_int.h"

_Static_assert(sizeof(struct bw_resident_request) <= BARWAY_LINE_DATA, "one line");

/* ---- requests -------------------------------------------------------------------------------- */

void resident_put(struct resident *r)
{
	if (atomic_fetch_sub(&r->refs, 1) == 1) {
		pthread_mutex_destroy(&r->lock);
		pthread_mutex_destroy(&r->launching);
		free(r);
	}
}

/*
 * It does not work any more: no kernel is launched for it from now on, and one that runs leaves.
 * Returns when none touches memory any more. @first: the caller's first request. -EAGAIN: that was
 * not begun; else -EIO, with the sentence that there is.
 */
static int break_it(struct resident *r, int ret, uint64_t first)
{
	struct bw_sentence kept;

	bw_err_keep(&kept);
	pthread_mutex_lock(&r->launching); /* else one would come after the wait below */
	atomic_store(&r->broken, true);
	pthread_mutex_unlock(&r->launching);
	bw_channel_end_kernels(r->ch);
	r->dev->ops->stream_sync(r->dev, r->stream);
	bw_err_put_back(&kept);
	return bw_err(ret == -EIO || resident_reached(r, first) ? EIO : EAGAIN,
		      "the resident copier failed: %s: stop it and start it again", kept.text);
}

static int broken_err(void)
{
	return bw_err(EIO, "a copy failed before");
}

/* Has the kernel given up, or the channel? What was sent before may be done all the same. */
static bool has_stopped(const struct resident *r)
{
	return r->broken || bw_channel_word(r->ch, BARWAY_HOST_CLOSED) ||
	       atomic_load_explicit(&r->ch->stopped, memory_order_relaxed);
}

int resident_await(struct resident *r, const struct resident_values *v)
{
	struct bw_channel_wait wait = { .timeout_ns = BW_CHANNEL_FOREVER };

	while (!resident_reached(r, v->last)) {
		bool stopped = wait.polls % BW_CHANNEL_POLLS == 0 && has_stopped(r);
		int ret = stopped ? 0 : bw_channel_pause(r->ch, &wait);

		if (!ret && !stopped)
			continue;
		ret = break_it(r, ret ? ret : broken_err(), v->first);
		return resident_reached(r, v->last) ? 0 : ret;
	}
	return 0;
}

int resident_send(struct resident *r, uint64_t to, uint64_t from, size_t bytes,
		  struct resident_values *v)
{
	struct bw_resident_request request;
	size_t n;
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	for (size_t at = 0; at < bytes && !ret; at += n) {
		n = bytes - at < BW_RESIDENT_MOST ? bytes - at : BW_RESIDENT_MOST;
		v->last = r->value + 1;
		v->first = v->first ? v->first : v->last;
		request = (struct bw_resident_request){ to + at, from + at, n, v->last };
		r->value = v->last; /* also where it fails: it may stand in the ring */
		__atomic_store_n(r->done + BW_RESIDENT_SENT / 8, v->last, __ATOMIC_RELEASE);
		ret = r->broken ? broken_err() :
		      bw_channel_send(r->ch, &request, sizeof(request), 0, BW_CHANNEL_FOREVER);
	}
	pthread_mutex_unlock(&r->lock);
	return ret;
}

/* ---- which copies ---------------------------------------------------------------------------- */

/* Only one of memory that the kernel's context reaches. */
static bool fits(const struct resident *r, const struct bw_copy *copy, struct bw_reason *why)
{
	const struct bw_window *win = copy->map->win;
	uint64_t from = copy->map->addr + copy->offset, to = from + copy->bytes;

	if (r->broken) {
		bw_reason_set(why, "it failed: barway_resident_stop(), and start it again");
		return false;
	}
	if (!copy->pinned) {
		bw_reason_set(why, "the host memory is not pinned: barway_host_alloc() or "
			      "barway_host_register()");
		return false;
	}
	if (copy->host_owner && copy->host_owner != r->owner) {
		bw_reason_set(why, "the host memory was pinned in another CUDA context than the "
			      "device's primary one");
		return false;
	}
	for (unsigned i = 0; i < win->nsegs; i++) {
		const struct bw_segment *seg = &win->segs[i];

		if (seg->base >= to || seg->base + seg->bytes <= from)
			continue;
		if (seg->dev != r->dev || (seg->owner && seg->owner != r->owner)) {
			bw_reason_set(why, "a part of it is memory of another device, or "
				      "of another CUDA context than the device's primary one");
			return false;
		}
	}
	bw_reason_set(why, "a kernel of one block that waits for copies on %s", r->dev->name);
	return true;
}

static struct copier *copier_for(const struct bw_copy *copy)
{
	const struct bw_window *win = copy->map->win;
	uint64_t at = copy->map->addr + copy->offset;
	unsigned i = 0;

	while (i + 1 < win->nsegs && win->segs[i].base + win->segs[i].bytes <= at)
		i++;
	return resident_of(win->segs[i].dev);
}

static int resident_score(const struct bw_copy *copy, struct bw_reason *why)
{
	struct copier *c = copier_for(copy);
	struct resident *r = c ? resident_enter(c) : NULL;
	bool yes;

	if (!r) {
		bw_reason_set(why, "none was started on this device: barway_resident_start()");
		return -1;
	}
	yes = fits(r, copy, why);
	resident_leave(c);
	return yes ? 60 : -1;
}

/* ---- the method ------------------------------------------------------------------------------ */

struct sending {
	struct resident *r;
	const struct bw_copy *copy;
	struct resident_values *values;
};

static int send_part(void *arg, const struct bw_segment *seg, uint64_t addr, void *host,
		     size_t bytes)
{
	struct sending *s = arg;
	uint64_t at = s->copy->host_addr +
		      (uint64_t)((unsigned char *)host - (unsigned char *)s->copy->host);

	(void)seg;
	return s->copy->direction == BW_TO_GPU ?
	       resident_send(s->r, addr, at, bytes, s->values) :
	       resident_send(s->r, at, addr, bytes, s->values);
}

/* All is memory of the copier's context: it is found to be there before it is copied, and then the
 * context is, too. */
static bool proves_context(const struct resident *r, const struct bw_copy *copy)
{
	const struct bw_window *win = copy->map->win;

	for (unsigned i = 0; i < win->nsegs; i++)
		if (!r->owner_id || win->segs[i].owner_id != r->owner_id)
			return false;
	return true;
}

static int send_copy(struct resident *r, const struct bw_copy *copy, struct resident_values *v)
{
	struct sending s = { r, copy, v };
	struct bw_reason why;
	int ret;

	if (!fits(r, copy, NULL)) {
		fits(r, copy, &why);
		return bw_err(ENOTSUP, "the resident copier: %s", why.text);
	}
	if (!proves_context(r, copy) && resident_lost(r))
		return bw_err(ENODEV, "the resident copier went with its CUDA context: stop it and "
			      "start it again");
	bw_fence_publish(); /* what this thread stored before arrives before the request */
	ret = bw_copy_segments(copy, send_part, &s);
	return ret && v->first ? break_it(r, ret, v->first) : ret;
}

static int none_err(void)
{
	return bw_err(ENOTSUP, "no resident copier was started on this device: "
		      "barway_resident_start()");
}

static int resident_copy(const struct bw_copy *copy)
{
	struct copier *c = copier_for(copy);
	struct resident *r = c ? resident_enter(c) : NULL;
	struct resident_values v = { 0, 0 };
	int ret;

	if (!r)
		return copy->bytes ? none_err() : 0;
	ret = copy->bytes ? send_copy(r, copy, &v) : 0;
	if (!ret)
		ret = resident_await(r, &v);
	resident_leave(c);
	return ret;
}

/* ---- copies that go on after the call -------------------------------------------------------- */

struct started {
	struct bw_job job;
	struct copier *copier;
	struct resident *r; /* NULL: there was nothing to do */
	struct resident_values values;
};
_Static_assert(sizeof(struct started) <= BW_JOB_BYTES, "struct started");

static int resident_start_copy(struct bw_job *job)
{
	struct started *s = (struct started *)job;
	int ret;

	if (!job->copy.bytes)
		return 0;
	s->copier = copier_for(&job->copy);
	s->r = s->copier ? resident_enter(s->copier) : NULL;
	if (!s->r)
		return none_err();
	ret = send_copy(s->r, &job->copy, &s->values);
	if (!ret)
		atomic_fetch_add(&s->r->refs, 1);
	resident_leave(s->copier);
	return ret;
}

/* Of one that is started: -EBUSY, 0, -EIO. Sees to it that a kernel is there. */
static int look(struct resident *r, const struct resident_values *v)
{
	int ret;

	if (resident_reached(r, v->last))
		return 0;
	ret = has_stopped(r) ? broken_err() : bw_channel_idle(r->ch);
	if (!ret)
		return -EBUSY;
	break_it(r, -EIO, v->first);
	return resident_reached(r, v->last) ? 0 : -EIO;
}

static int resident_step(struct bw_job *job, bool *idle)
{
	struct started *s = (struct started *)job;
	struct resident *now;
	int ret;

	*idle = true;
	if (!s->r)
		return 0;
	now = resident_enter(s->copier);
	if (now == s->r)
		ret = resident_lost(now) ? bw_err(EIO, "the resident copier went with its CUDA "
						  "context") : look(now, &s->values);
	else if (!s->r->ended) /* a stop is under way, and finishes it */
		ret = -EBUSY;
	else
		ret = s->r->final >= s->values.last ? 0 :
		      bw_err(EIO, "the resident copier failed, and was stopped");
	if (now)
		resident_leave(s->copier);
	if (ret != -EBUSY)
		resident_put(s->r);
	return ret;
}

const struct bw_copy_method bw_copy_resident = {
	.name = "resident", .id = BW_METHOD_RESIDENT, .score = resident_score,
	.copy = resident_copy, .start = resident_start_copy, .step = resident_step,
};
