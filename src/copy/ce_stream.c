/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "copy/ce_int.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"

#define OF_A_CONTEXT 8 /* streams; more copies at a time share them */
#define IDLE_MAX 32    /* kept for later, all contexts together */
#define WORD_BYTES 64
#define LIFE_BYTES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ce_stream *all; /* but those being made or destroyed */
static unsigned nidle;

static void forget_in_child(void)
{
	all = NULL;
	nidle = 0;
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget_in_child);
}

/* ---- making and ending ----------------------------------------------------------------------- */

static void drop_word(struct ce_stream *s)
{
	if (s->word)
		ce_host_free(s->dev, s->word, s->word_id);
	s->word = NULL;
}

/*
 * The word, anew where it went with the context that its memory was made in. It is a matter of
 * speed alone: without it the driver is asked.
 */
static void see_to_word(struct ce_stream *s)
{
	const struct bw_device_ops *ops = s->dev->ops;
	struct bw_sentence kept;
	void *host;

	if (s->word && ops->identity((uintptr_t)s->word) != s->word_id)
		drop_word(s);
	if (s->word || s->cannot_write)
		return;
	bw_err_keep(&kept);
	if (!ops->host_alloc(s->dev, WORD_BYTES, &host, &s->word_addr)) {
		s->word = host;
		s->word_id = ops->identity((uintptr_t)host);
		__atomic_store_n(s->word, 0, __ATOMIC_RELAXED);
	}
	bw_err_put_back(&kept);
}

/*
 * Is it still there? Memory tells, which goes with it: the driver is not asked about a context that
 * a program may have destroyed, because it writes to where that was (H200, driver 580.159.04).
 */
static bool context_lives(const struct ce_stream *s)
{
	const struct bw_device_ops *ops = s->dev->ops;

	if (s->proof && ops->identity(s->proof) == s->proof_id)
		return true;
	if (s->owner) /* one that is not kept has just been used */
		return s->life ? ops->identity(s->life) == s->life_id : !s->context_id;
	/* without an owner the word's memory was made in the same one, which is the primary one */
	return (s->word && ops->identity((uintptr_t)s->word) == s->word_id) ||
	       ops->context_id(s->dev, NULL) == s->context_id;
}

/* Without it the stream is not kept: nobody could tell whether its context is still there. */
static void see_to_life(struct ce_stream *s)
{
	const struct bw_device_ops *ops = s->dev->ops;
	static _Atomic bool told;
	struct bw_sentence kept;

	if (!s->owner || !s->context_id)
		return;
	bw_err_keep(&kept);
	if (!ops->scratch_alloc(s->dev, s->owner, LIFE_BYTES, &s->life)) {
		s->life_id = ops->identity(s->life);
	} else {
		s->life = s->context_id = 0;
		if (!atomic_exchange(&told, true))
			bw_log(BW_LOG_WARN, "copies by the copy engine: %s: a stream is made for "
			       "each, which takes time: free some GPU memory", bw_err_text());
	}
	bw_err_put_back(&kept);
}

/* Memory of other kinds is not of one context, or may outlive it. */
static void see_to_proof(struct ce_stream *s, const struct bw_segment *seg)
{
	if (seg->kind == BW_MEM_DEVICE && seg->owner) {
		s->proof = seg->base;
		s->proof_id = seg->id;
	}
}

/* A stream went with its context; another one may have its address now. */
static void end(struct ce_stream *s)
{
	struct bw_sentence kept;

	if (context_lives(s)) {
		bw_err_keep(&kept);
		s->dev->ops->stream_destroy(s->dev, s->stream);
		if (s->life)
			s->dev->ops->scratch_free(s->dev, s->owner, s->life);
		bw_err_put_back(&kept);
	}
	drop_word(s);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int make(const struct bw_segment *seg, struct ce_stream **out)
{
	struct ce_stream *s = bw_alloc(sizeof(*s));
	int ret;

	if (!s)
		return bw_err(ENOMEM, "make a stream for copies: no memory: free some");
	s->dev = seg->dev;
	s->owner = seg->owner;
	ret = s->dev->ops->stream_create(s->dev, s->owner, &s->stream);
	if (ret) {
		free(s);
		return bw_err_prefix(ret, "make a stream for copies");
	}
	s->context_id = s->dev->ops->context_id(s->dev, s->owner);
	see_to_life(s);
	s->cannot_write = !s->context_id; /* it is not kept: a word for one copy is not worth it */
	pthread_mutex_init(&s->lock, NULL);
	*out = s;
	return 0;
}

/* ---- taking and giving back ------------------------------------------------------------------ */

/* Under the lock. An idle one is taken off the list; a shared one stays there. */
static struct ce_stream *find(struct bw_device *dev, void *owner)
{
	struct ce_stream *s, **at, *least = NULL;
	unsigned n = 0;

	for (at = &all; (s = *at); at = &s->next) {
		if (s->dev != dev || s->owner != owner || s->failed)
			continue;
		if (!s->users) {
			*at = s->next;
			nidle--;
			return s;
		}
		n++;
		if (s->word && !s->cannot_write && (!least || s->users < least->users))
			least = s;
	}
	return n < OF_A_CONTEXT ? NULL : least;
}

/* Under the lock. The idle ones of a context, of which one was found dead. */
static struct ce_stream *take_idle(struct bw_device *dev, void *owner)
{
	struct ce_stream *s, **at = &all, *dead = NULL;

	while ((s = *at)) {
		if (s->users || (dev && (s->dev != dev || s->owner != owner))) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		s->next = dead;
		dead = s;
		nidle--;
	}
	return dead;
}

static void end_all(struct ce_stream *s)
{
	for (struct ce_stream *next; s; s = next) {
		next = s->next;
		end(s);
	}
}

/* 1: one that others use, too; 0: this thread's alone, and not on the list. */
static int take_or_make(const struct bw_segment *seg, bool anew, struct ce_stream **out)
{
	struct ce_stream *s = NULL, *dead = NULL;

	for (;;) {
		pthread_mutex_lock(&lock);
		if (anew)
			dead = take_idle(seg->dev, seg->owner);
		else
			s = find(seg->dev, seg->owner);
		if (s && s->users) {
			s->users++;
			pthread_mutex_unlock(&lock);
			*out = s;
			return 1;
		}
		pthread_mutex_unlock(&lock);
		end_all(dead);
		if (!s)
			return make(seg, out);
		if (context_lives(s)) {
			*out = s;
			return 0;
		}
		end(s);
	}
}

int ce_stream_take(const struct bw_segment *seg, bool anew, struct ce_stream **out)
{
	struct ce_stream *s = NULL;
	int ret = take_or_make(seg, anew, &s);

	if (ret < 0)
		return ret;
	if (!ret) {
		see_to_word(s);
		see_to_proof(s, seg);
		pthread_mutex_lock(&lock);
		s->users = 1;
		s->next = all;
		all = s;
		pthread_mutex_unlock(&lock);
	}
	*out = s;
	return 0;
}

static void unlink_stream(struct ce_stream *s)
{
	struct ce_stream **at = &all;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
}

void ce_stream_put(struct ce_stream *s)
{
	bool last = false;

	pthread_mutex_lock(&lock);
	if (!--s->users) {
		last = s->failed || !s->context_id || nidle >= IDLE_MAX;
		if (last)
			unlink_stream(s);
		else
			nidle++;
	}
	pthread_mutex_unlock(&lock);
	if (last)
		end(s);
}

void ce_stream_release(void)
{
	struct ce_stream *idle;

	pthread_mutex_lock(&lock);
	idle = take_idle(NULL, NULL);
	pthread_mutex_unlock(&lock);
	end_all(idle);
}

/* ---- how far it is --------------------------------------------------------------------------- */

int ce_stream_tell(struct ce_stream *s, uint64_t *value)
{
	struct bw_sentence kept;
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	*value = ++s->value;
	if (s->word && !s->cannot_write) {
		if (*value == 1)
			bw_err_keep(&kept);
		ret = s->dev->ops->stream_write(s->dev, s->stream, s->word_addr, *value);
		if (ret == -ENOTSUP && *value == 1) {
			s->cannot_write = true;
			bw_err_put_back(&kept);
			ret = 0;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

int ce_stream_copy_tell(struct ce_stream *s, const struct bw_segment *seg, bool to_gpu,
			uint64_t addr, void *host, size_t bytes, uint64_t *value)
{
	const struct bw_device_ops *ops = seg->dev->ops;
	int ret;

	pthread_mutex_lock(&s->lock);
	if (ops->stream_copy_tell && s->word && !s->cannot_write && s->value) {
		*value = ++s->value;
		ret = ops->stream_copy_tell(seg->dev, s->stream, to_gpu, addr, host, bytes,
					    s->word_addr, *value);
		pthread_mutex_unlock(&s->lock);
		return ret;
	}
	pthread_mutex_unlock(&s->lock);
	ret = to_gpu ? ops->stream_copy_to(seg->dev, s->stream, addr, host, bytes) :
		       ops->stream_copy_from(seg->dev, s->stream, host, addr, bytes);
	return ret ? ret : ce_stream_tell(s, value);
}

int ce_stream_ask(struct ce_stream *s)
{
	uint64_t value, seen = s->seen;
	int ret;

	pthread_mutex_lock(&s->lock);
	value = s->value;
	pthread_mutex_unlock(&s->lock);
	ret = s->dev->ops->stream_query(s->dev, s->stream);
	while (!ret && seen < value)
		atomic_compare_exchange_weak(&s->seen, &seen, value);
	if (ret && ret != -EBUSY)
		s->failed = true;
	return ret;
}
