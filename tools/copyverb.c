/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/copyverb.h"

#include <stdio.h>
#include <string.h>

#include "bench/reference.h"
#include "tools/callers.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define LARGE (1 << 20) /* above this a few rounds tell as much */

const char *const copyverb_directions[COPIES_DIRECTIONS] = { "to", "from" };

unsigned copyverb_callers(const struct copyverb *v)
{
	return (unsigned)(v->processes * v->threads);
}

/* ---- opening ----------------------------------------------------------------------------- */

static const char *caching_option(uint32_t caching)
{
	return caching == BARWAY_WRITE_COMBINED ? "wc"
	       : caching == BARWAY_CACHED ? "cache"
	       : caching == BARWAY_UNCACHED ? "device" : "of an unknown kind";
}

int copyverb_check_path(const struct measure *m, struct barway_mapping *map, uint32_t caching,
			struct barway_mapping_info *path)
{
	*path = (struct barway_mapping_info){ .size = sizeof(*path) };
	if (barway_mapping_query(map, path) < 0)
		return failure(m->verb, "%s", barway_errmsg());
	if (caching && caching != path->caching)
		return usage_error(m->verb, "-M: mappings of this device are %s, not %s: leave the "
				   "option away", caching_option(path->caching),
				   caching_option(caching));
	return TOOL_OK;
}

int copyverb_no_alloc(const struct measure *m)
{
	return usage_error(m->verb, "-a: the soft GPU has no cuMemAlloc: leave the option away");
}

struct copies_options copyverb_memory(const struct copyverb *v)
{
	return (struct copies_options){
		.offset = v->offset,
		.max = v->only ? v->only : v->max,
		.cuda_lib = v->m.soft ? NULL : measure_parameter("libcuda"),
		.cu_mem_alloc = v->cu_mem_alloc,
		.methods = v->methods,
	};
}

static bool is_there(const struct copyverb *v, enum copies_method m)
{
	return copies_has(&v->copies, COPIES_TO, m) || copies_has(&v->copies, COPIES_FROM, m);
}

/* What was asked for by name and is not there would be a column that is missing. */
static int check_methods(const struct copyverb *v)
{
	for (int m = 0; m < COPIES_METHODS && v->chosen && v->methods != COPIES_ALL; m++) {
		if (!(v->methods >> m & 1) || is_there(v, m))
			continue;
		return usage_error(v->m.verb, "--methods: %s is not there on this device: %s",
				   copies_ways[m].name, copies_ways[m].cuda ? v->copies.no_cuda
						      : copies_ways[m].remedy);
	}
	return TOOL_OK;
}

void copyverb_print_missing(const struct copyverb *v)
{
	bool any = false;

	if (!v->m.soft && !v->copies.cuda)
		printf("no cuMemcpy columns: %s\n", v->copies.no_cuda);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (!(v->copies.refused >> m & 1))
			continue;
		printf("%s%s: %s", any ? "; " : "not measured: ", copies_ways[m].name,
		       copies_ways[m].remedy);
		any = true;
	}
	if (any)
		puts("");
}

/* How many share the device: each process has a soft GPU of its own. */
static unsigned sharers(const struct copyverb *v)
{
	return v->m.soft ? (unsigned)v->threads : copyverb_callers(v);
}

static uint64_t needed(const struct copyverb *v)
{
	uint64_t bytes = v->only ? v->only : v->max;

	if (__builtin_add_overflow(bytes, v->offset, &bytes) ||
	    __builtin_mul_overflow(bytes, sharers(v), &bytes))
		bytes = UINT64_MAX;
	return bytes;
}

int copyverb_fits(struct copyverb *v)
{
	char what[64] = "size and offset";

	while (!v->max_set && !v->only && v->max > v->least && needed(v) > measure_room(&v->m))
		v->max /= 2;
	if (sharers(v) > 1)
		snprintf(what, sizeof(what), "size and offset of %u callers", sharers(v));
	return measure_fits(&v->m, what, needed(v));
}

int copyverb_open_memory(struct copyverb *v)
{
	struct copies_options options;
	int code = copyverb_fits(v);

	if (code)
		return code;
	options = copyverb_memory(v);
	if (v->cu_mem_alloc && v->m.soft)
		return copyverb_no_alloc(&v->m);
	if (copies_open(&v->copies, v->m.ctx, v->m.dev, &options) < 0)
		return failure(v->m.verb, "%s", v->copies.error);
	code = copyverb_check_path(&v->m, v->copies.map, v->caching, &v->path);
	return code ? code : check_methods(v);
}

int copyverb_open(struct copyverb *v)
{
	int code = measure_open(&v->m);

	return code ? code : copyverb_open_memory(v);
}

void copyverb_close(struct copyverb *v)
{
	if (v->m.ctx)
		copies_close(&v->copies);
	measure_close(&v->m);
}

/* ---- the run ----------------------------------------------------------------------------- */

uint64_t copyverb_next(const struct copyverb *v, uint64_t n)
{
	if (v->only)
		return n ? 0 : v->only;
	if (!n)
		return v->least < v->max ? v->least : v->max;
	if (n == v->max)
		return 0;
	return n > v->max / v->factor ? v->max : n * v->factor;
}

void copyverb_mismatch(struct copyverb *v, enum copies_direction dir, size_t bytes,
		       enum copies_method method, const struct copies_mismatch *x)
{
	if (!x->bytes)
		return;
	v->mismatches++;
	failure(v->m.verb, "wrong data: %zu bytes %s GPU, %s: %zu bytes differ, the first at %zu "
		"is 0x%02x instead of 0x%02x", bytes, copyverb_directions[dir],
		copies_ways[method].name, x->bytes, x->first, x->got, x->want);
}

static struct bench_plan plan_of(const struct copyverb *v, enum copies_direction dir, uint64_t n)
{
	return (struct bench_plan){
		.reps = (unsigned)v->rounds[dir],
		.warmup = (unsigned)v->warmup,
		.warmup_set = v->warmup_set,
		.seconds = n > LARGE ? v->large_seconds : v->seconds,
		.rows_only = v->bandwidth,
	};
}

static int measure(struct copyverb *v, enum copies_direction dir, uint64_t n,
		   void (*row)(const struct copyverb *, const struct copies_result *))
{
	struct copies_result *r = &v->results[v->done];
	struct bench_plan plan = plan_of(v, dir, n);
	char size[32];
	int ret;

	progress("%s GPU, %s", copyverb_directions[dir], text_bytes(n, size, sizeof(size)));
	ret = copies_measure(&v->copies, dir, n, &plan, r);
	progress_clear();
	if (ret < 0)
		return failure(v->m.verb, "%s", v->copies.error);
	v->done++;
	if (row)
		row(v, r);
	for (int m = 0; m < COPIES_METHODS; m++)
		copyverb_mismatch(v, dir, r->bytes, m, &r->mismatch[m]);
	return TOOL_OK;
}

int copyverb_run(struct copyverb *v, void (*titles)(const struct copyverb *, enum copies_direction),
		 void (*row)(const struct copyverb *, const struct copies_result *))
{
	int code = TOOL_OK;

	for (int dir = 0; dir < COPIES_DIRECTIONS && code == TOOL_OK; dir++) {
		if (!v->wanted[dir])
			continue;
		if (titles)
			titles(v, dir);
		for (uint64_t n = copyverb_next(v, 0); n && code == TOOL_OK;
		     n = copyverb_next(v, n))
			code = measure(v, dir, n, row);
	}
	return code == TOOL_OK && v->mismatches ? TOOL_FAILED : code;
}

/* ---- JSON -------------------------------------------------------------------------------- */

void copyverb_json_options(struct json *j, const struct copyverb *v)
{
	measure_json_text(j, "reference_to", bench_reference_to_name());
	measure_json_text(j, "reference_from", bench_reference_from_name());
	measure_json_text(j, "no_cumemcpy_reason", v->m.soft ? "soft GPU" : v->copies.no_cuda);
	measure_json_text(j, "allocated_by", v->cu_mem_alloc ? "cuMemAlloc" : "barway_mem_alloc");
	measure_json_number(j, "max_bytes", v->only ? v->only : v->max);
	measure_json_number(j, "offset_bytes", v->offset);
	measure_json_number(j, "helpers", v->m.helpers);
	json_key(j, "resident");
	json_bool(j, v->m.resident);
	measure_json_number(j, "processes", v->processes);
	measure_json_number(j, "threads", v->threads);
	measure_json_us(j, "clock_cost_us", bench_clock_cost());
	measure_json_us(j, "clock_tick_us", bench_clock_tick());
}

void copyverb_json_row(struct json *j, const struct copies_result *r)
{
	bool verified = true;

	for (int m = 0; m < COPIES_METHODS; m++)
		verified = verified && !r->mismatch[m].bytes;
	measure_json_text(j, "direction", copyverb_directions[r->direction]);
	measure_json_number(j, "size_bytes", r->bytes);
	json_key(j, "verified");
	json_bool(j, verified);
}

/* ---- options ----------------------------------------------------------------------------- */

static int parse_direction(struct copyverb *v, const char *text)
{
	bool both = !strcmp(text, "both");

	v->wanted[COPIES_TO] = both || !strcmp(text, "to");
	v->wanted[COPIES_FROM] = both || !strcmp(text, "from");
	if (v->wanted[COPIES_TO] || v->wanted[COPIES_FROM])
		return TOOL_OK;
	return usage_error(v->m.verb, "--direction: '%s' is not one of to, from, both", text);
}

static int parse_methods(struct copyverb *v, const char *text)
{
	char list[512];

	v->chosen = true;
	v->methods = copies_parse(text);
	if (v->methods)
		return TOOL_OK;
	return usage_error(v->m.verb, "--methods: '%s' is neither 'all' nor a list of: %s", text,
			   copies_list(list, sizeof(list)));
}

/* By GDRCopy's names. barway_mem_alloc() is cuMemCreate() on CUDA. */
int copyverb_parse_alloc(const struct measure *m, const char *text, bool *cu_mem_alloc)
{
	*cu_mem_alloc = !strcmp(text, "cuMemAlloc");
	if (*cu_mem_alloc || !strcmp(text, "cuMemCreate"))
		return TOOL_OK;
	return usage_error(m->verb, "-a: '%s' is not one of cuMemAlloc, cuMemCreate", text);
}

int copyverb_parse_mapping(const struct measure *m, const char *text, uint32_t *caching)
{
	static const uint32_t known[] = { BARWAY_WRITE_COMBINED, BARWAY_CACHED, BARWAY_UNCACHED };

	*caching = 0;
	if (!strcmp(text, "default"))
		return TOOL_OK;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(text, caching_option(known[i])))
			*caching = known[i];
	}
	return *caching ? TOOL_OK
	       : usage_error(m->verb, "-M: '%s' is not one of default, wc, cache, device", text);
}

int copyverb_option(struct copyverb *v, int c)
{
	switch (c) {
	case 's':
		v->max_set = true;
		return measure_size(&v->m, "-s", optarg, 1, &v->max);
	case 'Z':
		return measure_size(&v->m, "--copy-size", optarg, 1, &v->only);
	case 'o':
		return measure_size(&v->m, "-o", optarg, 0, &v->offset);
	case 'w':
		return measure_count(&v->m, "-w", optarg, 1, 1000000, &v->rounds[COPIES_TO]);
	case 'r':
		return measure_count(&v->m, "-r", optarg, 1, 1000000, &v->rounds[COPIES_FROM]);
	case 'W':
		v->warmup_set = true;
		return measure_count(&v->m, "--warmup", optarg, 0, 1000000, &v->warmup);
	case 'D':
		return parse_direction(v, optarg);
	case 'm':
		return parse_methods(v, optarg);
	case 'a':
		return copyverb_parse_alloc(&v->m, optarg, &v->cu_mem_alloc);
	case 'M':
		return copyverb_parse_mapping(&v->m, optarg, &v->caching);
	case 'P':
		return TOOL_OK; /* every mapping goes by the PCIe BAR */
	case 'E':
		return measure_count(&v->m, "--helpers", optarg, 1, 64, &v->m.helpers);
	case 'R':
		v->m.resident = true;
		return TOOL_OK;
	case 'p':
		return measure_count(&v->m, "-p", optarg, 1, COPYVERB_CALLERS, &v->processes);
	case 't':
		return measure_count(&v->m, "-t", optarg, 1, COPYVERB_CALLERS, &v->threads);
	default:
		return measure_option(&v->m, c);
	}
}

int copyverb_check(struct copyverb *v)
{
	if (copyverb_callers(v) > 1) { /* fewer sizes, for each is measured twice for each method */
		v->m.schema = CALLERS_SCHEMA;
		v->least = v->bandwidth ? v->least : 8;
		v->factor = v->bandwidth ? 16 : 8;
	}
	if (copyverb_callers(v) > 1 && (v->rounds[COPIES_TO] || v->rounds[COPIES_FROM] ||
					v->warmup_set))
		return usage_error(v->m.verb, "-w, -r, --warmup: callers measure over one "
				   "interval, not so many rounds: leave them away with -p and -t");
	if (copyverb_callers(v) > COPYVERB_CALLERS)
		return usage_error(v->m.verb, "-p, -t: %u callers are too many: give at most %u",
				   copyverb_callers(v), COPYVERB_CALLERS);
	if (!v->bandwidth && v->only && v->max_set) /* GDRCopy's copybw takes both */
		return usage_error(v->m.verb, "-s and --copy-size: sizes up to one, or one: leave "
				   "one away");
	return measure_check(&v->m);
}
