/* SPDX-License-Identifier: BSD-3-Clause */
/* barway apiperf: the time of single calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/calls.h"
#include "tools/copyverb.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define VERB "apiperf"
#define SECONDS 0.15 /* for each call and size: about 80 of them in the default run */
#define LEAST 8 /* bytes, which some calls copy */
#define RESULTS 1024
#define MAX_REPS 1000000

static const char help[] =
	"usage: barway apiperf [OPTION]...\n"
	"\n"
	"Measures single calls of Barway, and of libgdrapi.so.2 where the loader finds\n"
	"one, Barway's or GDRCopy's: what takes sizes with 64K, 256K ... MAXSIZE bytes.\n"
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    largest mapping, 8 and more, with an optional K, M or G\n"
	"                        (1024s); default 16M\n"
	"  -n, --iterations N    of each call, 1 to 1000000; default: what fits in\n"
	"                        0.15 s, but 5 to 10000\n"
	"  -w, --warmup N        calls before that do not count; default: what fits in a\n"
	"                        twentieth of that, but 2 to 100\n"
	"  -a, --alloc FN        cuMemAlloc or cuMemCreate; default cuMemCreate\n"
	"  -M, --mapping TYPE    default, wc, cache or device: refuse another kind\n"
	"      --histograms      a histogram of each call with a line for each bar\n"
	MEASURE_HELP
	"\n"
	"columns, in microseconds: median, 99th percentile, minimum, maximum. Each time\n"
	"is of one call by itself; copies are alone, as in copylat. Last a histogram with\n"
	"one character for each doubling of the time from 8 ns up:\n"
	"  . up to 1 % of the calls   - up to 10 %   + up to 50 %   # more\n"
	"\n"
	"cold: made anew, with nothing in the cache; cached: the same range was mapped a\n"
	"moment ago. gdr_pin_buffer is where Barway's libgdrapi.so.2 makes the mapping.\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

static const struct option longs[] = {
	{ "size", required_argument, NULL, 's' },
	{ "iterations", required_argument, NULL, 'n' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "alloc", required_argument, NULL, 'a' },
	{ "mapping", required_argument, NULL, 'M' },
	{ "histograms", no_argument, NULL, 'H' },
	MEASURE_LONGS,
	{ 0 },
};

struct apiperf {
	struct measure m;
	uint64_t max, reps, warmup;
	bool warmup_set, cu_mem_alloc, histograms;
	uint32_t caching;
	struct calls calls;
	struct barway_mapping_info path;
	char gdrapi_path[256];
	struct calls_result results[RESULTS];
	size_t n;
};

static struct apiperf apiperf = { /* the results are too many for a stack */
	.m = { .verb = VERB, .schema = "barway-apiperf-1" },
	.max = 16 << 20,
};

/* ---- for people -------------------------------------------------------------------------- */

#define FIRST_BUCKET 3 /* 8 ns */
#define LAST_BUCKET 27 /* 134 ms and more */
#define NAME_WIDTH 40

static void print_head(const struct apiperf *a)
{
	char us[32];

	measure_print_head(&a->m, &a->path);
	printf("the process's first mapping, with its self-test: %s us\n",
	       text_us(a->calls.self_test_ns, us, sizeof(us)));
	if (a->calls.gdrapi)
		printf("libgdrapi.so.2: %s\n", a->gdrapi_path);
	else
		printf("no calls of libgdrapi.so.2: %s\n", a->calls.no_gdrapi);
	printf("\n%-*s %8s %8s %8s %8s  %-6s%-10s%s\n", NAME_WIDTH, "microseconds", "median",
	       "p99", "min", "max", "8ns", " 1us", "1ms");
}

static void name_of(const struct calls_result *r, char *buf, size_t n)
{
	char size[32] = "";

	if (r->bytes)
		text_bytes(r->bytes, size, sizeof(size));
	snprintf(buf, n, "%s%s%s%s%s", r->call, *size ? ", " : "", size, r->how ? ", " : "",
		 r->how ? r->how : "");
}

/* What is outside of what is shown is at its ends. */
static size_t shown(const struct bench_histogram *h, int bucket)
{
	size_t n = h->bucket[bucket];

	for (int i = 0; bucket == FIRST_BUCKET && i < FIRST_BUCKET; i++)
		n += h->bucket[i];
	for (int i = LAST_BUCKET + 1; bucket == LAST_BUCKET && i < BENCH_BUCKETS; i++)
		n += h->bucket[i];
	return n;
}

static void print_strip(const struct calls_result *r)
{
	char strip[LAST_BUCKET - FIRST_BUCKET + 2] = "";
	int end = 0;

	for (int i = FIRST_BUCKET; i <= LAST_BUCKET; i++) {
		double share = (double)shown(&r->histogram, i) / (double)r->time.samples;

		strip[i - FIRST_BUCKET] = share == 0 ? ' ' : share <= 0.01 ? '.'
					  : share <= 0.1 ? '-' : share <= 0.5 ? '+' : '#';
		end = share > 0 ? i - FIRST_BUCKET + 1 : end;
	}
	printf("  %.*s\n", end, strip);
}

static void print_result(const struct calls_result *r)
{
	char name[96], a[32], b[32], c[32], d[32];

	name_of(r, name, sizeof(name));
	printf("%-*s %8s %8s %8s %8s", NAME_WIDTH, name, text_us(r->time.median, a, sizeof(a)),
	       text_us(r->time.p99, b, sizeof(b)), text_us(r->time.min, c, sizeof(c)),
	       text_us(r->time.max, d, sizeof(d)));
	print_strip(r);
	fflush(stdout);
}

/* A line for each bucket between the first and the last that have something. */
static void print_histogram(const struct calls_result *r)
{
	static const char bar[] = "##################################################";
	int first = 0, last = BENCH_BUCKETS - 1;
	char name[96], from[32], to[32];

	while (first < last && !r->histogram.bucket[first])
		first++;
	while (last > first && !r->histogram.bucket[last])
		last--;
	name_of(r, name, sizeof(name));
	printf("\n%s: %zu calls\n", name, r->time.samples);
	for (int i = first; i <= last; i++) {
		double share = (double)r->histogram.bucket[i] / (double)r->time.samples;

		printf("%9s to %6s us %7zu  %.*s\n",
		       text_us(i ? exp2(i) : 0, from, sizeof(from)),
		       text_us(exp2(i + 1), to, sizeof(to)), r->histogram.bucket[i],
		       (int)ceil(share * (sizeof(bar) - 1)), bar);
	}
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_result(struct json *j, const struct calls_result *r)
{
	json_object(j);
	measure_json_text(j, "call", r->call);
	if (r->how)
		measure_json_text(j, "how", r->how);
	if (r->bytes)
		measure_json_number(j, "size_bytes", r->bytes);
	measure_json_stats(j, "time", &r->time);
	json_key(j, "histogram");
	json_array(j);
	for (int i = 0; i < BENCH_BUCKETS; i++) {
		if (!r->histogram.bucket[i])
			continue;
		json_object(j);
		measure_json_us(j, "from_us", i ? exp2(i) : 0);
		measure_json_us(j, "to_us", exp2(i + 1));
		measure_json_number(j, "calls", r->histogram.bucket[i]);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

static void json_apiperf(struct json *j, void *arg)
{
	const struct apiperf *a = arg;

	json_object(j);
	measure_json_head(j, &a->m, &a->path);
	measure_json_text(j, "allocated_by", a->cu_mem_alloc ? "cuMemAlloc" : "barway_mem_alloc");
	measure_json_number(j, "max_bytes", a->max);
	measure_json_us(j, "map_self_test_us", a->calls.self_test_ns);
	measure_json_us(j, "clock_cost_us", bench_clock_cost());
	measure_json_us(j, "clock_tick_us", bench_clock_tick());
	measure_json_text(j, "gdrapi", a->gdrapi_path);
	measure_json_text(j, "no_gdrapi_reason", a->calls.no_gdrapi);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < a->n; i++)
		json_result(j, &a->results[i]);
	json_array_end(j);
	json_object_end(j);
}

/* ---- the run ----------------------------------------------------------------------------- */

static int measure_all(struct apiperf *a)
{
	const struct bench_plan plan = {
		.reps = (unsigned)a->reps,
		.warmup = (unsigned)a->warmup,
		.warmup_set = a->warmup_set,
		.seconds = SECONDS,
	};
	size_t count = calls_count(&a->calls);
	int ret = 1;

	for (a->n = 0; a->n < RESULTS; a->n++) {
		progress("call %zu of %zu", a->n + 1, count);
		ret = calls_measure(&a->calls, a->n, &plan, &a->results[a->n]);
		progress_clear();
		if (ret <= 0)
			break;
		if (!a->m.json)
			print_result(&a->results[a->n]);
	}
	if (ret < 0)
		return failure(VERB, "%s", a->calls.error);
	for (size_t i = 0; a->histograms && !a->m.json && i < a->n; i++)
		print_histogram(&a->results[i]);
	return TOOL_OK;
}

static int run(struct apiperf *a)
{
	int code = measure_open(&a->m);

	if (code == TOOL_OK)
		code = measure_fits(&a->m, "-s", a->max);
	if (code)
		return code;
	if (a->cu_mem_alloc && a->m.soft)
		return copyverb_no_alloc(&a->m);
	if (calls_open(&a->calls, a->m.ctx, a->m.dev, a->max,
		       a->cu_mem_alloc ? measure_parameter("libcuda") : NULL) < 0)
		return failure(VERB, "%s", a->calls.error);
	code = copyverb_check_path(&a->m, a->calls.map, a->caching, &a->path);
	if (code)
		return code;
	calls_open_gdrapi(&a->calls);
	calls_gdrapi_path(&a->calls, a->gdrapi_path, sizeof(a->gdrapi_path));
	if (!a->m.json)
		print_head(a);
	code = measure_all(a);
	return code ? code : measure_finish(&a->m, json_apiperf, a);
}

static int parse_one(struct apiperf *a, int c)
{
	switch (c) {
	case 's':
		return measure_size(&a->m, "-s", optarg, LEAST, &a->max);
	case 'n':
		return measure_count(&a->m, "-n", optarg, 1, MAX_REPS, &a->reps);
	case 'w':
		a->warmup_set = true;
		return measure_count(&a->m, "-w", optarg, 0, MAX_REPS, &a->warmup);
	case 'a':
		return copyverb_parse_alloc(&a->m, optarg, &a->cu_mem_alloc);
	case 'M':
		return copyverb_parse_mapping(&a->m, optarg, &a->caching);
	case 'H':
		a->histograms = true;
		return TOOL_OK;
	default:
		return measure_option(&a->m, c);
	}
}

int tool_apiperf(int argc, char **argv)
{
	struct apiperf *a = &apiperf;
	int c, code = TOOL_OK;

	while (code == TOOL_OK &&
	       (c = next_option(argc, argv, ":" MEASURE_SHORTS "s:n:w:a:M:", longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return TOOL_OK;
		}
		code = parse_one(a, c);
	}
	if (code == TOOL_OK && a->histograms && a->m.json)
		code = usage_error(VERB, "--histograms are not in the JSON: leave them or --json "
				   "away");
	if (code == TOOL_OK)
		code = measure_check(&a->m);
	if (code)
		return code;
	progress_begin();
	code = run(a);
	if (a->m.ctx)
		calls_close(&a->calls);
	measure_close(&a->m);
	return code;
}
