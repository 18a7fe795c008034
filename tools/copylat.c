/* SPDX-License-Identifier: BSD-3-Clause */
/* barway copylat: latency of copies to and from GPU memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "barway.h"
#include "bench/copies.h"
#include "bench/reference.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/text.h"

#define VERB "copylat"

static const char help[] =
	"usage: barway copylat [-d DEV] [-s MAXSIZE] [-o OFFSET] [-r REPS] [-w WARMUP]\n"
	"                      [--direction to|from|both] [--json]\n"
	"\n"
	"Measures copies of 1, 2, 4 ... MAXSIZE bytes to and from GPU memory. The ways\n"
	"to copy take turns within one run, so that their ratios are fair, and each\n"
	"way's data is checked. Sizes take an optional K, M or G (1024s).\n"
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    largest copy; default 16M\n"
	"  -o, --offset OFFSET   copies begin here in the mapped memory; default 0\n"
	"  -r, --reps REPS       rounds for each size, 1 to 1000000; default: what fits\n"
	"                        in 0.4 s, but at least 7 and at most 10000\n"
	"  -w, --warmup WARMUP   rounds before that do not count; default: what fits\n"
	"                        in 0.02 s, but at most 100; always at least 2\n"
	"      --direction DIR   to (host to GPU), from, or both; default both\n"
	"      --json            one JSON object, schema barway-copylat-1\n"
	"  -h, --help            this text\n"
	"\n"
	"columns, each with median and p99 in microseconds:\n"
	"  barway       barway_copy_to() or barway_copy_from(), until it RETURNED\n"
	"  VISIBLE      barway_copy_to() and barway_flush(): running kernels see the data\n"
	"  reference    plain loop over the mapping: memcpy and a store barrier; 16-byte\n"
	"               streaming loads\n"
	"  cuMemcpy     the same pageable memory as barway's\n"
	"  Async+sync   cuMemcpyAsync and cuStreamSynchronize, pinned memory\n"
	"  ratio        cuMemcpy's median over barway's\n"
	"\n"
	"Nothing is pinned to a CPU: use taskset with the CPUs near the device.\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

static const struct option longs[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "size", required_argument, NULL, 's' },
	{ "offset", required_argument, NULL, 'o' },
	{ "reps", required_argument, NULL, 'r' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "direction", required_argument, NULL, 'D' },
	{ "json", no_argument, NULL, 'J' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

#define SIZES 65            /* the powers of two below 2^64, and one that is none */
#define SECONDS 0.4         /* for each size and direction: 50 of them in the default run */
#define MAP_SECONDS 0.3
#define MAX_REPS 1000000

struct copylat {
	const char *device;
	uint64_t max, offset;
	struct bench_plan plan;
	bool wanted[COPIES_DIRECTIONS];
	bool json;
	bool soft;
	char date[24];
	char cpu[128];
	struct barway_context *ctx;
	struct barway_device *dev;
	struct barway_device_info info;
	struct barway_mapping_info path;
	struct copies copies;
	struct copies_map_times map;
	struct bench_stats flush;
	struct copies_result results[COPIES_DIRECTIONS * SIZES];
	size_t done;
	unsigned mismatches;
	uint64_t began;
};

static const char *const direction_names[COPIES_DIRECTIONS] = { "to", "from" };

/* ---- progress ---------------------------------------------------------------------------- */

#define PROGRESS_NS 2000000000u

static bool progress_shown;

static void progress_clear(void)
{
	if (progress_shown)
		fputs("\r\033[K", stderr);
	progress_shown = false;
}

/* Only for someone who watches, and only when it takes long. */
static void progress(const struct copylat *l, enum copies_direction dir, uint64_t bytes)
{
	char a[32];

	if (!isatty(STDERR_FILENO) || bench_now() - l->began < PROGRESS_NS)
		return;
	progress_clear();
	fprintf(stderr, "%s GPU, %s ...", direction_names[dir], text_bytes(bytes, a, sizeof(a)));
	fflush(stderr);
	progress_shown = true;
}

/* ---- for people -------------------------------------------------------------------------- */

static void print_machine(const struct copylat *l)
{
	unsigned v = barway_version();

	if (l->soft)
		puts(TEXT_SOFT);
	printf("barway %u.%u.%u copylat: %s%s%s%s", v >> 16, v >> 8 & 255, v & 255, l->info.name,
	       *l->info.pci ? " (" : "", l->info.pci, *l->info.pci ? ")" : "");
	if (*l->info.driver)
		printf("; driver %s", l->info.driver);
	printf("; %s; provider %s%s%s; kernels %s/%s; %s\n", l->cpu, l->path.provider,
	       *l->path.route ? " by " : "", l->path.route, l->path.store_kernel,
	       l->path.load_kernel, l->date);
	if (!l->soft && !l->copies.cuda)
		printf("no cuMemcpy columns: %s\n", l->copies.no_cuda);
}

static void print_map(const struct copylat *l)
{
	char a[32], b[32], c[32], d[32];

	text_us(l->map.first.median, a, sizeof(a));
	text_us(l->map.from_cache.median, b, sizeof(b));
	text_us(l->flush.median, c, sizeof(c));
	text_us(l->flush.p99, d, sizeof(d));
	printf("map 64 KiB: first time %s us, from the cache %s%s (medians)\n", a,
	       l->map.from_cache.samples ? b : "never", l->map.from_cache.samples ? " us" : "");
	printf("the process's first mapping, with its self-test: %s us\n",
	       text_us(l->map.self_test_ns, a, sizeof(a)));
	printf("barway_flush(): %s us (median), %s us (p99)\n", c, d);
}

static const char *const titles[COPIES_METHODS] = {
	"barway", "VISIBLE", "reference", "cuMemcpy", "Async+sync",
};

static void print_titles(const struct copylat *l, enum copies_direction dir)
{
	printf("\n%s, microseconds: median, p99; reference: %s\n%11s",
	       dir == COPIES_TO ? "host to GPU" : "GPU to host",
	       dir == COPIES_TO ? bench_reference_to_name() : bench_reference_from_name(), "bytes");
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (copies_has(&l->copies, dir, m))
			printf("  %16s", titles[m]);
	}
	puts(l->copies.cuda ? "    ratio" : "");
}

static double over(const struct copies_result *r, enum copies_method a, enum copies_method b)
{
	return r->stats[a].median / r->stats[b].median; /* not finite where below the clock */
}

static void print_row(const struct copies_result *r)
{
	char a[32], b[32];

	printf("%11zu", r->bytes);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (r->has[m])
			printf("  %8s%8s", text_us(r->stats[m].median, a, sizeof(a)),
			       text_us(r->stats[m].p99, b, sizeof(b)));
	}
	if (r->has[COPIES_CUMEMCPY])
		printf("  %7.2f", over(r, COPIES_CUMEMCPY, COPIES_BARWAY));
	puts("");
	fflush(stdout);
}

static void report_mismatches(struct copylat *l, const struct copies_result *r)
{
	for (int m = 0; m < COPIES_METHODS; m++) {
		const struct copies_mismatch *x = &r->mismatch[m];

		if (!x->bytes)
			continue;
		l->mismatches++;
		failure(VERB, "wrong data: %zu bytes %s GPU, %s: %zu bytes differ, "
			"the first at %zu is 0x%02x instead of 0x%02x", r->bytes,
			direction_names[r->direction], copies_method_names[m], x->bytes, x->first,
			x->got, x->want);
	}
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_text(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value && *value ? value : NULL);
}

static void json_number(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	json_uint(j, v);
}

static void json_us(struct json *j, const char *key, double ns)
{
	json_key(j, key);
	json_double(j, ns / 1e3);
}

static void json_stats(struct json *j, const char *key, const struct bench_stats *s)
{
	json_key(j, key);
	if (!s->samples) {
		json_null(j);
		return;
	}
	json_object(j);
	json_us(j, "median_us", s->median);
	json_us(j, "p99_us", s->p99);
	json_us(j, "min_us", s->min);
	json_us(j, "max_us", s->max);
	json_number(j, "samples", s->samples);
	json_number(j, "batch", s->batch);
	json_object_end(j);
}

static const char *caching_name(uint32_t caching)
{
	return caching == BARWAY_WRITE_COMBINED ? "write-combined"
	       : caching == BARWAY_CACHED ? "cached"
	       : caching == BARWAY_UNCACHED ? "uncached" : NULL;
}

static void json_machine(struct json *j, const struct copylat *l)
{
	json_key(j, "device");
	json_object(j);
	json_text(j, "kind", l->soft ? "soft" : "cuda");
	json_text(j, "name", l->info.name);
	json_text(j, "pci", l->info.pci);
	json_text(j, "uuid", l->info.uuid);
	json_text(j, "driver", l->info.driver);
	json_text(j, "near_cpus", l->info.near_cpus);
	json_object_end(j);
	json_text(j, "cpu", l->cpu);
	json_key(j, "path");
	json_object(j);
	json_text(j, "provider", l->path.provider);
	json_text(j, "route", l->path.route);
	json_text(j, "caching", caching_name(l->path.caching));
	json_text(j, "store_kernel", l->path.store_kernel);
	json_text(j, "load_kernel", l->path.load_kernel);
	json_text(j, "reason", l->path.reason);
	json_object_end(j);
	json_text(j, "reference_to", bench_reference_to_name());
	json_text(j, "reference_from", bench_reference_from_name());
	json_text(j, "no_cumemcpy_reason", l->soft ? "soft GPU" : l->copies.no_cuda);
}

static void json_ratio(struct json *j, const char *key, const struct copies_result *r,
		       enum copies_method a, enum copies_method b)
{
	if (!r->has[a] || !r->has[b])
		return;
	json_key(j, key);
	json_double(j, over(r, a, b));
}

static void json_result(struct json *j, const struct copies_result *r)
{
	bool verified = true;

	json_object(j);
	json_text(j, "direction", direction_names[r->direction]);
	json_number(j, "size_bytes", r->bytes);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (r->has[m])
			json_stats(j, copies_method_names[m], &r->stats[m]);
		verified = verified && !r->mismatch[m].bytes;
	}
	json_ratio(j, "ratio_cumemcpy_barway", r, COPIES_CUMEMCPY, COPIES_BARWAY);
	json_ratio(j, "ratio_cumemcpy_barway_visible", r, COPIES_CUMEMCPY, COPIES_VISIBLE);
	json_ratio(j, "ratio_cumemcpy_async_pinned_barway", r, COPIES_PINNED, COPIES_BARWAY);
	if (r->has[COPIES_CUMEMCPY]) /* on the soft GPU no ratio means anything */
		json_ratio(j, "ratio_reference_barway", r, COPIES_REFERENCE, COPIES_BARWAY);
	json_key(j, "verified");
	json_bool(j, verified);
	json_object_end(j);
}

static void json_copylat(const struct copylat *l)
{
	unsigned v = barway_version();
	char version[48];
	struct json j;

	snprintf(version, sizeof(version), "%u.%u.%u", v >> 16, v >> 8 & 255, v & 255);
	json_init(&j, stdout);
	json_object(&j);
	json_text(&j, "schema", "barway-copylat-1");
	json_text(&j, "version", version);
	json_key(&j, "soft");
	json_bool(&j, l->soft);
	json_text(&j, "note", l->soft ? TEXT_SOFT : NULL);
	json_text(&j, "date", l->date);
	json_machine(&j, l);
	json_number(&j, "max_bytes", l->max);
	json_number(&j, "offset_bytes", l->offset);
	json_us(&j, "clock_cost_us", bench_clock_cost());
	json_number(&j, "map_bytes", COPIES_MAP_BYTES);
	json_us(&j, "map_self_test_us", l->map.self_test_ns);
	json_stats(&j, "map_first_time", &l->map.first);
	json_stats(&j, "map_from_cache", &l->map.from_cache);
	json_stats(&j, "flush", &l->flush);
	json_key(&j, "results");
	json_array(&j);
	for (size_t i = 0; i < l->done; i++)
		json_result(&j, &l->results[i]);
	json_array_end(&j);
	json_number(&j, "mismatches", l->mismatches);
	json_object_end(&j);
}

/* ---- the run ----------------------------------------------------------------------------- */

static int measure(struct copylat *l, enum copies_direction dir, uint64_t bytes)
{
	struct copies_result *r = &l->results[l->done];

	progress(l, dir, bytes);
	if (copies_measure(&l->copies, dir, bytes, &l->plan, r) < 0) {
		progress_clear();
		return failure(VERB, "%s", l->copies.error);
	}
	progress_clear();
	l->done++;
	if (!l->json)
		print_row(r);
	report_mismatches(l, r);
	return TOOL_OK;
}

static int measure_all(struct copylat *l)
{
	int code = TOOL_OK;

	for (int dir = 0; dir < COPIES_DIRECTIONS && code == TOOL_OK; dir++) {
		if (!l->wanted[dir])
			continue;
		if (!l->json)
			print_titles(l, dir);
		for (uint64_t n = 1; code == TOOL_OK;) {
			code = measure(l, dir, n);
			if (n == l->max)
				break;
			n = n > l->max / 2 ? l->max : n * 2;
		}
	}
	return code == TOOL_OK && l->mismatches ? TOOL_FAILED : code;
}

static int choose(struct copylat *l)
{
	int n = barway_device_count(l->ctx);

	if (n == 0)
		return failure(VERB, "there is no device: see 'barway info'");
	if (n < 0)
		return failure(VERB, "%s", barway_errmsg());
	if (l->device && barway_device_find(l->ctx, l->device, &l->dev) < 0)
		return usage_error(VERB, "-d: %s", barway_errmsg());
	if (!l->device && barway_device_get(l->ctx, 0, &l->dev) < 0)
		return failure(VERB, "%s", barway_errmsg());
	l->info = (struct barway_device_info){ .size = sizeof(l->info) };
	if (barway_device_activate(l->dev) < 0 || barway_device_query(l->dev, &l->info) < 0)
		return failure(VERB, "%s", barway_errmsg());
	l->soft = l->info.kind == BARWAY_DEVICE_SOFT;
	return TOOL_OK;
}

/* The driver library that Barway was told to use. */
static const char *driver_library(void)
{
	struct barway_param_info p = { .size = sizeof(p) };

	for (unsigned i = 0; barway_param_get(i, &p) == 0; i++) {
		if (!strcmp(p.name, "libcuda"))
			return p.value;
	}
	return "libcuda.so.1";
}

static int run(struct copylat *l)
{
	const struct bench_plan plan = { .reps = l->plan.reps, .seconds = MAP_SECONDS };
	time_t now = time(NULL);
	struct tm utc;
	int code = choose(l);

	if (code)
		return code;
	gmtime_r(&now, &utc);
	strftime(l->date, sizeof(l->date), "%Y-%m-%dT%H:%M:%SZ", &utc);
	text_cpu(l->cpu, sizeof(l->cpu));
	if (copies_measure_map(l->ctx, l->dev, &plan, &l->map) < 0)
		return failure(VERB, "%s", barway_errmsg());
	if (copies_open(&l->copies, l->ctx, l->dev, l->offset, l->max,
			l->soft ? NULL : driver_library()) < 0)
		return failure(VERB, "%s", l->copies.error);
	l->path = (struct barway_mapping_info){ .size = sizeof(l->path) };
	if (barway_mapping_query(l->copies.map, &l->path) < 0)
		code = failure(VERB, "%s", barway_errmsg());
	else if (copies_measure_flush(&l->copies, &plan, &l->flush) < 0)
		code = failure(VERB, "%s", l->copies.error);
	if (code == TOOL_OK && !l->json) {
		print_machine(l);
		print_map(l);
	}
	if (code == TOOL_OK) {
		code = measure_all(l);
		if (l->json && (code == TOOL_OK || l->mismatches))
			json_copylat(l);
	}
	copies_close(&l->copies);
	return code;
}

/* ---- the verb ---------------------------------------------------------------------------- */

static int parse_bytes(const char *option, const char *text, uint64_t least, uint64_t *bytes)
{
	if (!parse_size(text, bytes))
		return usage_error(VERB, "%s: '%s' is not a size: give bytes with an optional "
				   "K, M or G", option, text);
	if (*bytes < least)
		return usage_error(VERB, "%s: '%s' is too small: give at least 1", option, text);
	return TOOL_OK;
}

static int parse_rounds(const char *option, const char *text, uint64_t least, unsigned *rounds)
{
	uint64_t n;

	if (!parse_count(text, least, MAX_REPS, &n))
		return usage_error(VERB, "%s: '%s' is not a number from %u to %u", option, text,
				   (unsigned)least, MAX_REPS);
	*rounds = (unsigned)n;
	return TOOL_OK;
}

static int parse_direction(struct copylat *l, const char *text)
{
	bool both = !strcmp(text, "both");

	l->wanted[COPIES_TO] = both || !strcmp(text, "to");
	l->wanted[COPIES_FROM] = both || !strcmp(text, "from");
	if (!l->wanted[COPIES_TO] && !l->wanted[COPIES_FROM])
		return usage_error(VERB, "--direction: '%s' is not one of to, from, both", text);
	return TOOL_OK;
}

static int parse_one(struct copylat *l, int c, bool *done)
{
	switch (c) {
	case 'd':
		l->device = optarg;
		return TOOL_OK;
	case 's':
		return parse_bytes("-s", optarg, 1, &l->max);
	case 'o':
		return parse_bytes("-o", optarg, 0, &l->offset);
	case 'r':
		return parse_rounds("-r", optarg, 1, &l->plan.reps);
	case 'w':
		l->plan.warmup_set = true;
		return parse_rounds("-w", optarg, 0, &l->plan.warmup);
	case 'D':
		return parse_direction(l, optarg);
	case 'J':
		l->json = true;
		return TOOL_OK;
	case 'h':
		fputs(help, stdout);
		*done = true;
		return TOOL_OK;
	default:
		return TOOL_USAGE;
	}
}

int tool_copylat(int argc, char **argv)
{
	static struct copylat l = { /* static: the results are too many for a stack */
		.max = 16 << 20,
		.plan = { .seconds = SECONDS },
		.wanted = { true, true },
	};
	bool done = false;
	int c, code = TOOL_OK;

	while (code == TOOL_OK && !done &&
	       (c = next_option(argc, argv, ":d:s:o:r:w:h", longs)) != -1)
		code = parse_one(&l, c, &done);
	if (code || done)
		return code;
	l.began = bench_now();
	if (barway_open(NULL, &l.ctx) < 0)
		return failure(VERB, "%s", barway_errmsg());
	code = run(&l);
	barway_close(l.ctx);
	return code;
}
