/* SPDX-License-Identifier: BSD-3-Clause */
/* barway copybw: bandwidth of copies to and from GPU memory, and what it costs in CPU time. */
#include <stdio.h>
#include <string.h>

#include "bench/reference.h"
#include "tools/callers.h"
#include "tools/copyverb.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define VERB "copybw"
#define SECONDS 0.5 /* for each size and direction: 16 of them in the default run */
#define GIB 1073741824.0

static const char help[] =
	"usage: barway copybw [OPTION]...\n"
	"\n"
	"Measures GB/s (10^9 bytes a second) of copies of 4K, 16K, 64K ... MAXSIZE bytes\n"
	"to and from GPU memory, and CPU seconds per GiB. The ways to copy take turns\n"
	"within one run, so that their ratios are fair, and each way's data is checked.\n"
	"Sizes take an optional K, M or G (1024s).\n"
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    largest copy; default 64M, or what fits\n"
	"  -c, --copy-size SIZE  copies of this size only\n"
	"  -o, --offset OFFSET   copies begin here in the mapped memory; default 0\n"
	"  -w, --writes N        rounds for each size to the GPU, 1 to 1000000; default:\n"
	"                        what fits in 0.5 s, but 5 to 10000\n"
	"  -r, --reads N         the same from the GPU\n"
	"      --warmup N        rounds before that do not count; default: what fits in a\n"
	"                        twentieth of that, but 2 to 100\n"
	"      --direction DIR   to (host to GPU), from, or both; default both\n"
	"      --methods LIST    which to measure, or all: barway, barway_visible,\n"
	"                        barway_auto, barway_auto_pinned, barway_threads,\n"
	"                        barway_ce, barway_resident, reference, cumemcpy,\n"
	"                        cumemcpy_async_pinned; default: the groups below\n"
	"      --helpers N       N helper threads for Barway: then there is\n"
	"                        barway_threads\n"
	"      --resident        start the resident copier: then there is\n"
	"                        barway_resident\n"
	"  -t, --threads N       N threads copy at once, each its own memory, for\n"
	"                        0.1 s and longer: no -w, -r, --warmup\n"
	"  -p, --processes N     N processes do; with -t, each with so many threads\n"
	"  -a, --alloc FN        cuMemAlloc or cuMemCreate; default cuMemCreate\n"
	"  -M, --mapping TYPE    default, wc, cache or device: refuse another kind\n"
	"  -P, --force-pcie      always so here; taken for GDRCopy's sake\n"
	MEASURE_HELP
	"\n"
	"groups of columns:\n"
	"  barway       one CPU thread over the mapping\n"
	"  auto         barway_copy_to() or barway_copy_from(): as Barway plans;\n"
	"  auto pinned  the same from and to pinned memory of barway_host_alloc()\n"
	"  threads, CE, resident: by helper threads; by the device's copy engine; by a\n"
	"               kernel, from and to pinned memory\n"
	"  reference    plain loop over the mapping\n"
	"  cuMemcpy     of the same pageable memory\n"
	"  Async+sync   cuMemcpyAsync and cuStreamSynchronize, pinned memory\n"
	"\n"
	"columns:\n"
	"  GB/s         over a row of copies, until the last one has ARRIVED: median\n"
	"  p99          the rate that 99 % of the rows reach\n"
	"  CPU          seconds of CPU time of the process for one GiB, all its threads,\n"
	"               the driver's too\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

#define SHORTS ":" MEASURE_SHORTS COPYVERB_SHORTS "c:"

static const struct option longs[] = {
	COPYVERB_LONGS,
	MEASURE_LONGS,
	{ 0 },
};

static struct copyverb copybw = { /* the results are too many for a stack */
	.m = { .verb = VERB, .schema = "barway-copybw-1" },
	.least = 4096,
	.max = 64 << 20,
	.factor = 4,
	.wanted = { true, true },
	.seconds = SECONDS,
	.large_seconds = SECONDS,
	.bandwidth = true,
	.processes = 1,
	.threads = 1,
};

static double gbs(size_t bytes, double ns)
{
	return (double)bytes / ns; /* bytes a nanosecond */
}

static double cpu_per_gib(const struct copies_result *r, enum copies_method m)
{
	return r->times[m].cpu / 1e9 * GIB / (double)r->bytes;
}

/* ---- for people -------------------------------------------------------------------------- */

#define GROUP "  %5s %5s %5s"
#define GROUP_WIDTH 17

static void print_titles(const struct copyverb *v, enum copies_direction dir)
{
	static const char dashes[] = "-----------------";

	printf("\n%s; reference: %s\n%9s", dir == COPIES_TO ? "host to GPU" : "GPU to host",
	       dir == COPIES_TO ? bench_reference_to_name() : bench_reference_from_name(), "");
	for (int m = 0; m < COPIES_METHODS; m++) {
		int n = GROUP_WIDTH - (int)strlen(copies_ways[m].title) - 2;

		if (copies_has(&v->copies, dir, m))
			printf("  %.*s %s %.*s", n / 2, dashes, copies_ways[m].title, n - n / 2,
			       dashes);
	}
	printf("\n%9s", "bytes");
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (copies_has(&v->copies, dir, m))
			printf(GROUP, "GB/s", "p99", "CPU");
	}
	puts("");
}

/* Five columns for what is below 100000. */
static const char *rate_text(double v, char *buf, size_t n)
{
	snprintf(buf, n, "%.*f", v < 9.9995 ? 3 : v < 99.995 ? 2 : v < 999.95 ? 1 : 0, v);
	return buf;
}

static void print_row(const struct copyverb *v, const struct copies_result *r)
{
	char a[32], b[32], c[32];

	(void)v;
	printf("%9zu", r->bytes);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (r->has[m])
			printf(GROUP,
			       rate_text(gbs(r->bytes, r->times[m].row.median), a, sizeof(a)),
			       rate_text(gbs(r->bytes, r->times[m].row.p99), b, sizeof(b)),
			       rate_text(cpu_per_gib(r, m), c, sizeof(c)));
	}
	puts("");
	fflush(stdout);
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_rate(struct json *j, const struct copies_result *r, enum copies_method m)
{
	const struct bench_stats *s = &r->times[m].row;

	json_key(j, copies_ways[m].name);
	json_object(j);
	measure_json_double(j, "median_gbs", gbs(r->bytes, s->median));
	measure_json_double(j, "p99_gbs", gbs(r->bytes, s->p99));
	measure_json_double(j, "max_gbs", gbs(r->bytes, s->min));
	measure_json_double(j, "min_gbs", gbs(r->bytes, s->max));
	measure_json_double(j, "q1_gbs", gbs(r->bytes, s->q3));
	measure_json_double(j, "q3_gbs", gbs(r->bytes, s->q1));
	measure_json_number(j, "samples", s->samples);
	measure_json_number(j, "calls_in_a_row", r->times[m].calls);
	measure_json_double(j, "cpu_seconds_per_gib", cpu_per_gib(r, m));
	json_object_end(j);
}

static void json_copybw(struct json *j, void *arg)
{
	const struct copyverb *v = arg;

	json_object(j);
	measure_json_head(j, &v->m, &v->path);
	copyverb_json_options(j, v);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < v->done; i++) {
		json_object(j);
		copyverb_json_row(j, &v->results[i]);
		for (int m = 0; m < COPIES_METHODS; m++) {
			if (v->results[i].has[m])
				json_rate(j, &v->results[i], m);
		}
		json_object_end(j);
	}
	json_array_end(j);
	measure_json_number(j, "mismatches", v->mismatches);
	json_object_end(j);
}

/* ------------------------------------------------------------------------------------------ */

static int run(struct copyverb *v)
{
	bool quiet = v->m.json;
	int code = copyverb_open(v), later;

	if (code)
		return code;
	if (!quiet) {
		measure_print_head(&v->m, &v->path);
		copyverb_print_missing(v);
	}
	code = copyverb_run(v, quiet ? NULL : print_titles, quiet ? NULL : print_row);
	if (code && !v->mismatches)
		return code;
	later = measure_finish(&v->m, json_copybw, v);
	return code ? code : later;
}

int tool_copybw(int argc, char **argv)
{
	struct copyverb *v = &copybw;
	int c, code = TOOL_OK;

	for (int m = 0; m < COPIES_METHODS; m++)
		v->methods |= copies_ways[m].bw ? 1u << m : 0;
	while (code == TOOL_OK &&
	       (c = next_option(argc, argv, SHORTS, longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return TOOL_OK;
		}
		code = c == 'c' ? measure_size(&v->m, "-c", optarg, 1, &v->only)
				: copyverb_option(v, c);
	}
	if (code == TOOL_OK)
		code = copyverb_check(v);
	if (code)
		return code;
	progress_begin();
	if (copyverb_callers(v) > 1)
		return callers_run(v);
	code = run(v);
	copyverb_close(v);
	return code;
}
