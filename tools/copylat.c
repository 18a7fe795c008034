/* SPDX-License-Identifier: BSD-3-Clause */
/* barway copylat: latency of copies to and from GPU memory. */
#include <math.h>
#include <sched.h>
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
	"                        in 0.45 s, above 1M in 0.2 s, but 5 to 10000\n"
	"  -w, --warmup WARMUP   rounds before that do not count; default: what fits\n"
	"                        in a twentieth of that, but 2 to 100\n"
	"      --direction DIR   to (host to GPU), from, or both; default both\n"
	"      --json            one JSON object, schema barway-copylat-1\n"
	"  -h, --help            this text\n"
	"\n"
	"groups of columns, in microseconds:\n"
	"  barway       barway_copy_to() or barway_copy_from(), until it RETURNED\n"
	"  VISIBLE      barway_copy_to() and barway_flush(): running kernels see the data\n"
	"  reference    plain loop over the mapping: memcpy and a store barrier; a fence\n"
	"               and 16-byte streaming loads\n"
	"  cuMemcpy     the same pageable memory as barway's; to the GPU it, too, can\n"
	"               return before the data has ARRIVED\n"
	"  Async+sync   cuMemcpyAsync and cuStreamSynchronize, pinned memory\n"
	"  cuMemcpy/barway  the one's median over the other's\n"
	"\n"
	"columns:\n"
	"  alone        one call by itself, median. To the GPU, what was written before\n"
	"               has ARRIVED (a barway_flush() that is not timed), and RETURNED\n"
	"               can be soon: the CPU has only posted the write.\n"
	"  p99          99th percentile of such calls\n"
	"  in a row     mean of calls right after one another, each of which waits for\n"
	"               the one before; median over the rows. 64 calls and more for at\n"
	"               least 10 us, fewer where those take over 100 us. Compare this\n"
	"               one with GDRCopy's copylat, which times a loop.\n"
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
#define SECONDS 0.45        /* for each size and direction: 50 of them in the default run */
#define LARGE (1 << 20)     /* above this a few rounds tell as much */
#define LARGE_SECONDS 0.2
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
	int pinned_cpu; /* the only one that this may run on; -1: there are several */
	struct barway_context *ctx;
	struct barway_device *dev;
	struct barway_device_info info;
	struct barway_mapping_info path;
	struct copies copies;
	struct copies_map_times map;
	struct bench_result flush;
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
	printf("; %s", l->cpu);
	if (l->pinned_cpu >= 0)
		printf(", pinned to CPU %d", l->pinned_cpu);
	printf("; provider %s%s%s; kernels %s/%s; %s\n", l->path.provider,
	       *l->path.route ? " by " : "", l->path.route, l->path.store_kernel,
	       l->path.load_kernel, l->date);
	if (bench_clock_tick() > 1)
		printf("the clock ticks every %.0f ns: what is as short is an estimate\n",
		       bench_clock_tick());
	if (!l->soft && !l->copies.cuda)
		printf("no cuMemcpy columns: %s\n", l->copies.no_cuda);
}

static void print_map(const struct copylat *l)
{
	char a[32], b[32], c[32];

	text_us(l->map.first.median, a, sizeof(a));
	text_us(l->map.from_cache.median, b, sizeof(b));
	printf("map 64 KiB: first time %s us, from the cache %s%s (medians)\n", a,
	       l->map.from_cache.samples ? b : "never", l->map.from_cache.samples ? " us" : "");
	printf("the process's first mapping, with its self-test: %s us\n",
	       text_us(l->map.self_test_ns, a, sizeof(a)));
	text_us(l->flush.alone.median, a, sizeof(a));
	text_us(l->flush.alone.p99, b, sizeof(b));
	text_us(l->flush.row.median, c, sizeof(c));
	printf("barway_flush(): alone %s us (p99 %s us), in a row %s us\n", a, b, c);
}

/* ---- the table: a column has a space and its digits, a group two spaces before it --------- */

enum {
	ALONE = 1,
	P99 = 2,
	ROW = 4,
};

#define ALONE_WIDTH 6
#define ROW_WIDTH 9

static const struct {
	const char *title;
	unsigned columns;
} groups[COPIES_METHODS] = {
	[COPIES_BARWAY] = { "barway", ALONE | P99 | ROW },
	[COPIES_VISIBLE] = { "VISIBLE", ALONE | P99 },
	[COPIES_REFERENCE] = { "reference", ALONE | ROW },
	[COPIES_CUMEMCPY] = { "cuMemcpy", ALONE | P99 | ROW },
	[COPIES_PINNED] = { "Async+sync", ALONE },
};

#define RATIO "cuMemcpy/barway"
#define RATIO_COLUMNS (ALONE | ROW)

static int alone_width(const char *title, unsigned columns)
{
	return columns == ALONE ? (int)strlen(title) : ALONE_WIDTH;
}

static int group_width(const char *title, unsigned columns)
{
	int width = alone_width(title, columns);

	width += columns & P99 ? 1 + ALONE_WIDTH : 0;
	return width + (columns & ROW ? 1 + ROW_WIDTH : 0);
}

/* "---- barway ----", as wide as its columns */
static void print_group(const char *title, unsigned columns)
{
	static const char dashes[] = "--------------------------------";
	int dashed = group_width(title, columns) - (int)strlen(title) - 2;

	if (dashed < 2)
		printf("   %*s", group_width(title, columns), title);
	else
		printf("   %.*s %s %.*s", dashed / 2, dashes, title, dashed - dashed / 2, dashes);
}

static void print_values(const char *title, unsigned columns, const char *alone, const char *p99,
			 const char *row)
{
	printf("   %*s", alone_width(title, columns), alone);
	if (columns & P99)
		printf(" %*s", ALONE_WIDTH, p99);
	if (columns & ROW)
		printf(" %*s", ROW_WIDTH, row);
}

static void print_titles(const struct copylat *l, enum copies_direction dir)
{
	printf("\n%s, microseconds; reference: %s\n%9s",
	       dir == COPIES_TO ? "host to GPU" : "GPU to host",
	       dir == COPIES_TO ? bench_reference_to_name() : bench_reference_from_name(), "");
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (copies_has(&l->copies, dir, m))
			print_group(groups[m].title, groups[m].columns);
	}
	if (l->copies.cuda)
		print_group(RATIO, RATIO_COLUMNS);
	printf("\n%9s", "bytes");
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (copies_has(&l->copies, dir, m))
			print_values(groups[m].title, groups[m].columns, "alone", "p99",
				     "in a row");
	}
	if (l->copies.cuda)
		print_values(RATIO, RATIO_COLUMNS, "alone", "", "in a row");
	puts("");
}

/* Not finite where below the clock. */
static double over_alone(const struct copies_result *r, enum copies_method a, enum copies_method b)
{
	return r->times[a].alone.median / r->times[b].alone.median;
}

static double over_row(const struct copies_result *r, enum copies_method a, enum copies_method b)
{
	return r->times[a].row.median / r->times[b].row.median;
}

static const char *ratio_text(double v, char *buf, size_t n)
{
	if (isfinite(v))
		snprintf(buf, n, "%.*f", v < 99.995 ? 2 : 1, v);
	else
		snprintf(buf, n, "-");
	return buf;
}

static void print_ratios(const struct copies_result *r)
{
	char a[32], b[32];

	ratio_text(over_alone(r, COPIES_CUMEMCPY, COPIES_BARWAY), a, sizeof(a));
	ratio_text(over_row(r, COPIES_CUMEMCPY, COPIES_BARWAY), b, sizeof(b));
	print_values(RATIO, RATIO_COLUMNS, a, "", b);
}

static void print_row(const struct copies_result *r)
{
	char a[32], b[32], c[32];

	printf("%9zu", r->bytes);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (r->has[m])
			print_values(groups[m].title, groups[m].columns,
				     text_us(r->times[m].alone.median, a, sizeof(a)),
				     text_us(r->times[m].alone.p99, b, sizeof(b)),
				     text_us(r->times[m].row.median, c, sizeof(c)));
	}
	if (r->has[COPIES_CUMEMCPY])
		print_ratios(r);
	puts("");
	fflush(stdout);
}

#define SLOWER 1.05

static bool slower_than_reference(const struct copies_result *r)
{
	return r->times[COPIES_BARWAY].row.median >
	       SLOWER * r->times[COPIES_REFERENCE].row.median;
}

/* On the soft GPU it would mean nothing. */
static void print_slower(const struct copylat *l)
{
	const char *last = NULL;

	if (l->soft)
		return;
	fputs("\nslower than the reference loop in a row by more than 5 %:", stdout);
	for (size_t i = 0; i < l->done; i++) {
		const char *dir = direction_names[l->results[i].direction];

		if (!slower_than_reference(&l->results[i]))
			continue;
		if (last != dir)
			printf("%s %s", last ? ";" : "", dir);
		printf("%s %zu", last == dir ? "," : "", l->results[i].bytes);
		last = dir;
	}
	puts(last ? "" : " none");
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
	json_object_end(j);
}

static void json_times(struct json *j, const char *key, const struct bench_result *r)
{
	json_key(j, key);
	json_object(j);
	json_stats(j, "alone", &r->alone);
	json_key(j, "row");
	json_object(j);
	json_us(j, "median_us", r->row.median);
	json_us(j, "p99_us", r->row.p99);
	json_us(j, "min_us", r->row.min);
	json_number(j, "samples", r->row.samples);
	json_number(j, "calls", r->calls);
	json_object_end(j);
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
	json_key(j, "pinned_cpu");
	if (l->pinned_cpu < 0)
		json_null(j);
	else
		json_int(j, l->pinned_cpu);
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
	json_object(j);
	json_key(j, "alone");
	json_double(j, over_alone(r, a, b));
	json_key(j, "row");
	json_double(j, over_row(r, a, b));
	json_object_end(j);
}

static void json_result(struct json *j, const struct copies_result *r)
{
	bool verified = true;

	json_object(j);
	json_text(j, "direction", direction_names[r->direction]);
	json_number(j, "size_bytes", r->bytes);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (r->has[m])
			json_times(j, copies_method_names[m], &r->times[m]);
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

static void json_slower(struct json *j, const struct copylat *l)
{
	json_key(j, "slower_than_reference");
	if (l->soft) {
		json_null(j);
		return;
	}
	json_array(j);
	for (size_t i = 0; i < l->done; i++) {
		if (!slower_than_reference(&l->results[i]))
			continue;
		json_object(j);
		json_text(j, "direction", direction_names[l->results[i].direction]);
		json_number(j, "size_bytes", l->results[i].bytes);
		json_object_end(j);
	}
	json_array_end(j);
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
	json_us(&j, "clock_tick_us", bench_clock_tick());
	json_number(&j, "map_bytes", COPIES_MAP_BYTES);
	json_us(&j, "map_self_test_us", l->map.self_test_ns);
	json_stats(&j, "map_first_time", &l->map.first);
	json_stats(&j, "map_from_cache", &l->map.from_cache);
	json_times(&j, "flush", &l->flush);
	json_key(&j, "results");
	json_array(&j);
	for (size_t i = 0; i < l->done; i++)
		json_result(&j, &l->results[i]);
	json_array_end(&j);
	json_slower(&j, l);
	json_number(&j, "mismatches", l->mismatches);
	json_object_end(&j);
}

/* ---- the run ----------------------------------------------------------------------------- */

static int measure(struct copylat *l, enum copies_direction dir, uint64_t bytes)
{
	struct copies_result *r = &l->results[l->done];
	struct bench_plan plan = l->plan;

	plan.seconds = bytes > LARGE ? LARGE_SECONDS : SECONDS;
	progress(l, dir, bytes);
	if (copies_measure(&l->copies, dir, bytes, &plan, r) < 0) {
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

/* The only CPU that the scheduler may choose, -1: there are several. */
static int only_cpu(void)
{
	static cpu_set_t sets[8]; /* 8192, the most that Linux can be built for */

	if (sched_getaffinity(0, sizeof(sets), sets) || CPU_COUNT_S(sizeof(sets), sets) != 1)
		return -1;
	for (int cpu = 0; cpu < (int)sizeof(sets) * 8; cpu++) {
		if (CPU_ISSET_S(cpu, sizeof(sets), sets))
			return cpu;
	}
	return -1;
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
	l->pinned_cpu = only_cpu();
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
		if (!l->json && l->done)
			print_slower(l);
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
