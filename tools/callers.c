/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/callers.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/callers.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define SECONDS 0.1 /* for each method, size and direction; alone, and all together */
#define GIB 1073741824.0
#define PROBE 4096  /* bytes that this process maps itself, to know the way */

struct pair {
	bool has;
	struct callers_result one, all;
};

struct row {
	enum copies_direction direction;
	size_t bytes;
	struct pair pairs[COPIES_METHODS];
};

struct run {
	struct copyverb *v;
	struct callers *callers;
	struct row *rows;
	size_t n;
};

/* ---- for people -------------------------------------------------------------------------- */

static void print_titles(const struct run *r, enum copies_direction dir)
{
	unsigned n = copyverb_callers(r->v);

	printf("\n%s: one caller, and %u at once (%u process%s of %u thread%s); microseconds, "
	       "GB/s, CPU s/GiB\n", dir == COPIES_TO ? "host to GPU" : "GPU to host", n,
	       (unsigned)r->v->processes, r->v->processes == 1 ? "" : "es",
	       (unsigned)r->v->threads, r->v->threads == 1 ? "" : "s");
	printf("%9s %-12s   -- one caller --   ------ each of all ------   "
	       "------- all together --------\n", "", "");
	printf("%9s %-12s   %8s %7s   %8s %8s %7s   %7s %6s %6s %7s\n", "bytes", "", "median",
	       "GB/s", "median", "p99", "slowest", "GB/s", "times", "longer", "CPU");
}

static double times_as_much(const struct pair *p)
{
	return p->all.rate / p->one.rate;
}

static double times_as_long(const struct pair *p)
{
	return p->all.time.median / p->one.time.median;
}

static double cpu_per_gib(const struct callers_result *x, size_t bytes)
{
	return x->cpu / 1e9 * GIB / (double)bytes;
}

static void print_pair(const struct row *row, enum copies_method m)
{
	const struct pair *p = &row->pairs[m];
	char a[32], b[32], c[32], d[32];

	printf("%9zu %-12s   %8s %7.3f   %8s %8s %7s   %7.3f %6.2f %6.2f %7.3f\n", row->bytes,
	       copies_ways[m].title, text_us(p->one.time.median, a, sizeof(a)),
	       p->one.rate * (double)row->bytes, text_us(p->all.time.median, b, sizeof(b)),
	       text_us(p->all.time.p99, c, sizeof(c)), text_us(p->all.slowest, d, sizeof(d)),
	       p->all.rate * (double)row->bytes, times_as_much(p), times_as_long(p),
	       cpu_per_gib(&p->all, row->bytes));
	fflush(stdout);
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_side(struct json *j, const struct row *row, const char *key, bool all)
{
	json_key(j, key);
	json_object(j);
	for (int m = 0; m < COPIES_METHODS; m++) {
		const struct pair *p = &row->pairs[m];

		if (p->has)
			measure_json_stats(j, copies_ways[m].name,
					   all ? &p->all.time : &p->one.time);
	}
	json_object_end(j);
}

static void json_pair(struct json *j, const struct row *row, const struct pair *p)
{
	double bytes = (double)row->bytes;

	json_object(j);
	measure_json_number(j, "callers", p->all.callers);
	measure_json_double(j, "one_gbs", p->one.rate * bytes);
	measure_json_double(j, "all_gbs", p->all.rate * bytes);
	measure_json_double(j, "least_gbs", p->all.rate_least * bytes);
	measure_json_double(j, "most_gbs", p->all.rate_most * bytes);
	measure_json_us(j, "slowest_us", p->all.slowest);
	measure_json_us(j, "fastest_us", p->all.fastest);
	measure_json_double(j, "times_as_much", times_as_much(p));
	measure_json_double(j, "times_as_long", times_as_long(p));
	measure_json_double(j, "one_cpu_seconds_per_gib", cpu_per_gib(&p->one, row->bytes));
	measure_json_double(j, "all_cpu_seconds_per_gib", cpu_per_gib(&p->all, row->bytes));
	json_object_end(j);
}

static void json_row(struct json *j, const struct row *row)
{
	bool verified = true;

	json_object(j);
	measure_json_text(j, "direction", copyverb_directions[row->direction]);
	measure_json_number(j, "size_bytes", row->bytes);
	json_side(j, row, "one", false);
	json_side(j, row, "all", true);
	json_key(j, "together");
	json_object(j);
	for (int m = 0; m < COPIES_METHODS; m++) {
		const struct pair *p = &row->pairs[m];

		verified = verified && !p->one.mismatch.bytes && !p->all.mismatch.bytes;
		if (p->has) {
			json_key(j, copies_ways[m].name);
			json_pair(j, row, p);
		}
	}
	json_object_end(j);
	json_key(j, "verified");
	json_bool(j, verified);
	json_object_end(j);
}

static void json_callers(struct json *j, void *arg)
{
	const struct run *r = arg;

	json_object(j);
	measure_json_head(j, &r->v->m, &r->v->path);
	measure_json_text(j, "verb", r->v->m.verb);
	copyverb_json_options(j, r->v);
	measure_json_number(j, "cpus", (uint64_t)r->v->m.cpus);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < r->n; i++)
		json_row(j, &r->rows[i]);
	json_array_end(j);
	measure_json_number(j, "mismatches", r->v->mismatches);
	json_object_end(j);
}

/* ---- the run ----------------------------------------------------------------------------- */

static int measure_one(struct run *r, struct row *row, enum copies_method m)
{
	struct pair *p = &row->pairs[m];
	struct callers_what what = {
		.direction = row->direction,
		.method = m,
		.bytes = row->bytes,
		.arrived = r->v->bandwidth,
		.active = 1,
		.seconds = SECONDS,
	};
	char size[32];
	int ret;

	progress("%s GPU, %s, %s", copyverb_directions[row->direction],
		 text_bytes(row->bytes, size, sizeof(size)), copies_ways[m].title);
	ret = callers_measure(r->callers, &what, &p->one);
	what.active = copyverb_callers(r->v);
	if (ret == 0)
		ret = callers_measure(r->callers, &what, &p->all);
	progress_clear();
	if (ret < 0)
		return failure(r->v->m.verb, "%s", callers_error(r->callers));
	p->has = true;
	if (!r->v->m.json)
		print_pair(row, m);
	copyverb_mismatch(r->v, row->direction, row->bytes, m, &p->one.mismatch);
	copyverb_mismatch(r->v, row->direction, row->bytes, m, &p->all.mismatch);
	return TOOL_OK;
}

static int measure_size_of(struct run *r, enum copies_direction dir, size_t bytes)
{
	struct row *row = &r->rows[r->n++];
	int code = TOOL_OK;

	*row = (struct row){ .direction = dir, .bytes = bytes };
	for (int m = 0; m < COPIES_METHODS && code == TOOL_OK; m++) {
		if (copies_has(&r->v->copies, dir, m))
			code = measure_one(r, row, m);
	}
	return code;
}

static int measure_all(struct run *r)
{
	struct copyverb *v = r->v;
	int code = TOOL_OK;

	for (int dir = 0; dir < COPIES_DIRECTIONS && code == TOOL_OK; dir++) {
		if (!v->wanted[dir])
			continue;
		if (!v->m.json)
			print_titles(r, dir);
		for (uint64_t n = copyverb_next(v, 0); n && code == TOOL_OK;
		     n = copyverb_next(v, n))
			code = measure_size_of(r, dir, n);
	}
	return code;
}

/* In each process, once the device is known. What it would have to say has been said here. */
static void bind_child(void *arg, int node)
{
	struct copyverb *v = arg;

	place_bind(v->m.verb, node);
}

/* This process opens the device too, to say what is wrong once, and which way copies go. */
static int open_all(struct run *r)
{
	struct copyverb *v = r->v;
	struct copies_options options;
	uint64_t max, only;
	int code = measure_open(&v->m);

	if (code == TOOL_OK)
		code = copyverb_fits(v);
	if (code)
		return code;
	options = copyverb_memory(v);
	max = v->max;
	only = v->only;
	v->max = PROBE; /* the callers need the rest of the aperture */
	v->only = 0;
	code = copyverb_open_memory(v);
	v->max = max;
	v->only = only;
	if (code)
		return code;
	if (callers_open(r->callers, v->m.info.index, v->m.bound, &options) < 0)
		return failure(v->m.verb, "%s", callers_error(r->callers));
	return TOOL_OK;
}

static void print_head(const struct copyverb *v)
{
	measure_print_head(&v->m, &v->path);
	copyverb_print_missing(v);
	if (v->m.cpus && copyverb_callers(v) > (unsigned)v->m.cpus)
		printf("warning: %u callers take turns on %d CPU%s: they wait for each other, not "
		       "for the device alone\n", copyverb_callers(v), v->m.cpus,
		       v->m.cpus == 1 ? "" : "s");
}

static int run(struct run *r)
{
	struct copyverb *v = r->v;
	int code = open_all(r), later;

	if (code)
		return code;
	if (!v->m.json)
		print_head(v);
	code = measure_all(r);
	if (code)
		return code;
	later = measure_finish(&v->m, json_callers, r);
	return v->mismatches ? TOOL_FAILED : later;
}

int callers_run(struct copyverb *v)
{
	const struct callers_options options = {
		.processes = (unsigned)v->processes,
		.threads = (unsigned)v->threads,
		.helpers = (unsigned)v->m.helpers,
		.resident = v->m.resident,
		.bind = bind_child,
		.arg = v,
	};
	struct run r = {
		.v = v,
		.rows = calloc(COPIES_DIRECTIONS * COPYVERB_SIZES, sizeof(*r.rows)),
		.callers = callers_fork(&options),
	};
	int code;

	if (r.rows && r.callers)
		code = run(&r);
	else
		code = failure(v->m.verb, "%u processes cannot be started: %s",
			       (unsigned)v->processes, strerror(errno));
	callers_close(r.callers);
	copyverb_close(v);
	free(r.rows);
	return code;
}
