/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "copy/plan.h"
#include "core/clock.h"
#include "core/fault.h"

#define MIN_BYTES 64ull
#define MAX_BYTES (64ull << 20)
#define SIZES 15             /* of a curve: MIN_BYTES to MAX_BYTES, with steps of four and of two */
#define BUDGET_NS 25000000ull /* of one point */
#define MIN_RUNS 5u
#define MAX_RUNS 400u
#define MOVES_FROM (256u << 10) /* copies of so many bytes go to other memory each time */
#define HOPELESS 8           /* a method so many times slower than the best, and the more so the
			      * larger the copies, is measured at the last size only */

/* One method at one size. */
struct entry {
	const struct bw_copy_method *method;
	unsigned curve, helpers;
	struct bw_copy copy;
	struct bw_tune_point point;
	uint64_t samples[MAX_RUNS];
};

/* How a method does as sizes grow. */
struct standing {
	double behind;      /* times slower than the best, at the last size */
	unsigned worsening; /* for so many sizes by now */
	bool hopeless;
};

struct tuner {
	struct bw_mapping *map;
	struct bw_device *dev;
	unsigned char *pageable[2], *pinned[2]; /* what is sent, where it is read to */
	int (*fn)(void *arg, const struct bw_tune_point *point);
	void *arg;
	struct bw_plan *plan;
	unsigned done;
	uint64_t moved; /* how often a copy went on to other memory */
	struct entry entries[BW_CURVES];
	unsigned helpers; /* of the mapping, when it came */
};

static uint64_t size_at(unsigned i)
{
	/* 64, 256, 1K, 4K, 8K, 16K, 32K, 64K, 128K, 256K, 512K, 1M, 4M, 16M, 64M */
	static const unsigned char shift[SIZES] = { 6, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20,
						    22, 24, 26 };

	return 1ull << shift[i];
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void copy_of(struct tuner *t, unsigned direction, unsigned pinned, size_t bytes,
		    struct bw_copy *copy)
{
	unsigned char **host = pinned ? t->pinned : t->pageable;

	*copy = (struct bw_copy){
		.map = t->map, .bytes = bytes, .direction = direction + 1,
		.host = host[direction],
	};
	bw_copy_find_host(copy);
}

/* One more copy, over bytes that are wrong: does it put them right? */
static int verify(struct tuner *t, const struct bw_copy_method *method, const struct bw_copy *copy)
{
	size_t check = copy->bytes < 4096 ? copy->bytes : 4096, at = copy->bytes - check;
	unsigned char wrong[4096], *right = t->pageable[0] + at;
	int ret;

	for (size_t i = 0; i < check; i++)
		wrong[i] = (unsigned char)~right[i];
	if (copy->direction == BW_FROM_GPU) {
		memcpy((unsigned char *)copy->host + at, wrong, check);
	} else {
		bw_copy_cpu_to(t->map, at, wrong, check);
		bw_copy_flush(t->map);
	}
	ret = method->copy(copy);
	if (ret)
		return ret;
	if (copy->direction == BW_FROM_GPU) {
		memcpy(wrong, (unsigned char *)copy->host + at, check);
	} else {
		bw_copy_flush(t->map);
		bw_copy_cpu_from(t->map, wrong, at, check);
	}
	return !memcmp(wrong, right, check) ? 0 :
	       bw_err(EIO, "method %s moved wrong data: %zu bytes %s the GPU", method->name,
		      copy->bytes, copy->direction == BW_TO_GPU ? "to" : "from");
}

/* Sorts the times: median, least, and the 99th percentile by nearest rank. */
static void summarize(uint64_t *v, unsigned n, struct bw_tune_point *point)
{
	qsort(v, n, sizeof(v[0]), by_value);
	point->ns = v[n / 2];
	point->min_ns = v[0];
	point->p99_ns = v[(n * 99 + 99) / 100 - 1];
}

/*
 * What was just copied is in the CPU's caches, which helps the methods unequally; programs copy
 * small buffers that they have just made, but hardly a large one twice. So large copies go on
 * through the buffers, on both sides in step: what is read stays what is known.
 */
static struct bw_copy next_copy(struct tuner *t, const struct entry *e)
{
	struct bw_copy copy = e->copy;
	size_t at;

	if (copy.bytes < MOVES_FROM)
		return copy;
	at = t->moved++ % (MAX_BYTES / copy.bytes) * copy.bytes;
	copy.offset += at;
	copy.host = (unsigned char *)copy.host + at;
	copy.host_addr += copy.pinned ? at : 0;
	return copy;
}

/* Short ones in a row: the clock, and a posted store that returns at once. */
static int sample(struct tuner *t, const struct entry *e, uint64_t *ns)
{
	unsigned row = e->copy.bytes <= 16384 ? 16 : 1;
	struct bw_copy copy = next_copy(t, e);
	uint64_t t0;
	int ret;

	copy.map->copy_threads = e->helpers;
	ret = e->method->copy(&copy); /* who slept is awake */
	copy = next_copy(t, e);
	t0 = bw_now_ns();
	for (unsigned i = 0; i < row && !ret; i++)
		ret = e->method->copy(&copy);
	*ns = (bw_now_ns() - t0) / row;
	return ret;
}

/* In turns, so that what changes on the machine meanwhile meets all of them. */
static int measure(struct tuner *t, struct entry *entries, unsigned n)
{
	uint64_t began = bw_now_ns();
	unsigned rounds = 0;
	int ret = 0;

	for (unsigned i = 0; i < n && !ret; i++)
		ret = entries[i].method->copy(&entries[i].copy);
	while (!ret && (rounds < MIN_RUNS ||
			(rounds < MAX_RUNS && bw_now_ns() - began < n * BUDGET_NS))) {
		for (unsigned i = 0; i < n && !ret; i++) {
			struct entry *e = &entries[(i + rounds) % n];

			ret = sample(t, e, &e->samples[rounds]);
		}
		rounds++;
	}
	for (unsigned i = 0; i < n && !ret; i++) {
		summarize(entries[i].samples, rounds, &entries[i].point);
		t->map->copy_threads = entries[i].helpers;
		ret = verify(t, entries[i].method, &entries[i].copy);
	}
	return ret;
}

static int keep(struct tuner *t, struct entry *e, unsigned total)
{
	struct bw_curve *curve = &t->plan->curve[e->curve][e->copy.direction - 1][e->copy.pinned];

	curve->bytes[curve->n] = e->copy.bytes;
	curve->ns[curve->n++] = e->point.ns;
	e->point.direction = e->copy.direction;
	e->point.method = e->method->id;
	e->point.pinned = e->copy.pinned;
	e->point.threads = e->helpers + 1;
	e->point.bytes = e->copy.bytes;
	e->point.done = t->done;
	e->point.total = total;
	return t->fn ? t->fn(t->arg, &e->point) : 0;
}

static void judge(const struct entry *e, uint64_t best, struct standing *s)
{
	double behind = (double)e->point.ns / (double)(best ? best : 1);

	s->worsening = behind > s->behind ? s->worsening + 1 : 0;
	s->behind = behind;
	s->hopeless = e->copy.bytes >= 65536 && behind > HOPELESS && s->worsening > 1;
}

/* Too small to be shared: several threads are one then, and which one is faster is chance. */
static bool is_for_one(const struct entry *e)
{
	return e->method->id == BW_METHOD_THREADS &&
	       e->copy.bytes <= (e->copy.direction == BW_TO_GPU ? 8192 : 1024);
}

/* Adds a method, unless it cannot, or is hopeless. Helpers are for those that have use for them. */
static void enter(struct tuner *t, const struct entry *e, const struct standing *standing,
		  bool last, unsigned *n)
{
	t->map->copy_threads = e->helpers;
	if ((standing[e->curve].hopeless && !last) || is_for_one(e) ||
	    e->method->score(&e->copy, NULL) < 0)
		return;
	t->entries[*n].method = e->method;
	t->entries[*n].curve = e->curve;
	t->entries[*n].helpers = e->helpers;
	t->entries[(*n)++].copy = e->copy;
}

/* One size: all methods that can and are not hopeless. */
static int tune_size(struct tuner *t, unsigned direction, unsigned pinned, unsigned size,
		     struct standing *standing)
{
	uint64_t best = UINT64_MAX;
	bool last = size == SIZES - 1;
	struct entry *e;
	unsigned n = 0;
	int ret;

	e = bw_alloc(sizeof(*e));
	if (!e)
		return bw_err(ENOMEM, "no memory");
	for (unsigned m = 0; bw_copy_methods[m]; m++) {
		e->method = bw_copy_methods[m];
		e->curve = e->method->id;
		e->helpers = e->curve == BW_METHOD_THREADS ? t->helpers : 0;
		copy_of(t, direction, pinned, size_at(size), &e->copy);
		enter(t, e, standing, last, &n);
		if (e->curve != BW_METHOD_CE || pinned || !t->helpers)
			continue;
		e->curve = BW_CURVE_CE_HELPED;
		e->helpers = t->helpers;
		enter(t, e, standing, last, &n);
	}
	free(e);
	t->done += BW_CURVES - 1;
	ret = measure(t, t->entries, n);
	for (unsigned i = 0; i < n && !ret; i++) {
		ret = keep(t, &t->entries[i], 4 * SIZES * (BW_CURVES - 1));
		if (t->entries[i].point.ns < best)
			best = t->entries[i].point.ns;
	}
	for (unsigned i = 0; i < n && !ret; i++)
		judge(&t->entries[i], best, &standing[t->entries[i].curve]);
	return ret;
}

static int tune_all(struct tuner *t)
{
	int ret = 0;

	for (unsigned i = 0; i < 4 && !ret; i++) {
		struct standing standing[BW_CURVES] = { 0 };

		for (unsigned size = 0; size < SIZES && !ret; size++)
			ret = tune_size(t, i / 2, i % 2, size, standing);
	}
	return ret;
}

static void fill(unsigned char *p, size_t n)
{
	uint64_t x = (uintptr_t)p | 1;

	for (size_t i = 0; i + 8 <= n; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(p + i, &x, 8);
	}
}

static int buffers(struct tuner *t)
{
	void *pinned;
	uint64_t addr;
	int ret;

	for (int i = 0; i < 2; i++) {
		t->pageable[i] = bw_alloc(MAX_BYTES);
		if (!t->pageable[i])
			return bw_err(ENOMEM, "no memory for %llu bytes", MAX_BYTES);
		fill(t->pageable[i], MAX_BYTES);
		ret = t->dev->ops->host_alloc(t->dev, MAX_BYTES, &pinned, &addr);
		if (ret)
			return ret;
		t->pinned[i] = pinned;
		memcpy(t->pinned[i], t->pageable[0], MAX_BYTES);
	}
	/* so that what is read is known */
	bw_copy_cpu_to(t->map, 0, t->pageable[0], MAX_BYTES);
	return 0;
}

int bw_tune(struct bw_mapping *map, int (*fn)(void *arg, const struct bw_tune_point *point),
	    void *arg, struct bw_plan *out)
{
	struct tuner *t;
	time_t now = time(NULL);
	struct tm tm;
	int ret;

	if (map->bytes < MAX_BYTES)
		return bw_err(EINVAL, "the mapping is smaller than %llu bytes", MAX_BYTES);
	t = bw_alloc(sizeof(*t));
	if (!t)
		return bw_err(ENOMEM, "no memory");
	*t = (struct tuner){ .map = map, .dev = map->win->segs[0].dev, .fn = fn, .arg = arg,
			     .plan = out, .helpers = map->copy_threads };
	memset(out, 0, sizeof(*out));
	out->threads = map->copy_threads + 1;
	gmtime_r(&now, &tm);
	snprintf(out->source, sizeof(out->source), "barway tune, %04d-%02d-%02d",
		 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
	ret = buffers(t);
	if (!ret)
		ret = tune_all(t);
	for (int i = 0; i < 2; i++) {
		if (t->pinned[i])
			t->dev->ops->host_free(t->pinned[i]);
		free(t->pageable[i]);
	}
	map->copy_threads = t->helpers;
	free(t);
	return ret;
}
