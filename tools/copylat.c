/* SPDX-License-Identifier: BSD-3-Clause */
/* barway copylat: latency of copies to and from GPU memory. */
#include <stdio.h>

#include "bench/mapping.h"
#include "tools/callers.h"
#include "tools/copylat.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define VERB "copylat"
#define SECONDS 0.45 /* for each size and direction: 50 of them in the default run */
#define LARGE_SECONDS 0.2
#define MAP_SECONDS 0.3

static const char help[] =
	"usage: barway copylat [OPTION]...\n"
	"\n"
	"Measures copies of 1, 2, 4 ... MAXSIZE bytes to and from GPU memory. The ways\n"
	"to copy take turns within one run, so that their ratios are fair, and each\n"
	"way's data is checked. Sizes take an optional K, M or G (1024s).\n"
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    largest copy; default 16M, or what fits\n"
	"      --copy-size SIZE  copies of this size only\n"
	"  -o, --offset OFFSET   copies begin here in the mapped memory; default 0\n"
	"  -w, --writes N        rounds for each size to the GPU, 1 to 1000000; default:\n"
	"                        what fits in 0.45 s, above 1M in 0.2 s, but 5 to 10000\n"
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
	"  -c                    columns of cuMemcpy; the same\n"
	MEASURE_HELP
	"\n"
	"groups of columns, in microseconds:\n"
	"  barway       one CPU thread over the mapping, until it RETURNED\n"
	"  VISIBLE      that and barway_flush(): running kernels see the data\n"
	"  auto         barway_copy_to() or barway_copy_from(): as Barway plans;\n"
	"  auto pinned  the same from and to pinned memory of barway_host_alloc()\n"
	"  threads, CE, resident: by helper threads; by the device's copy engine; by a\n"
	"               kernel, from and to pinned memory\n"
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
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

static const struct option longs[] = {
	COPYVERB_LONGS,
	MEASURE_LONGS,
	{ 0 },
};

static struct copylat copylat = { /* the results are too many for a stack */
	.v = {
		.m = { .verb = VERB, .schema = "barway-copylat-1" },
		.least = 1,
		.max = 16 << 20,
		.factor = 2,
		.wanted = { true, true },
		.seconds = SECONDS,
		.large_seconds = LARGE_SECONDS,
		.processes = 1,
		.threads = 1,
	},
};

static int open_all(struct copylat *l)
{
	const struct bench_plan plan = { .seconds = MAP_SECONDS };
	struct copyverb *v = &l->v;
	int code = measure_open(&v->m);

	if (code)
		return code;
	if (mapping_measure(v->m.ctx, v->m.dev, &plan, &l->map) < 0)
		return failure(VERB, "%s", barway_errmsg());
	code = copyverb_open_memory(v);
	if (code)
		return code;
	if (copies_measure_flush(&v->copies, &plan, &l->flush) < 0)
		return failure(VERB, "%s", v->copies.error);
	return TOOL_OK;
}

static int run(struct copylat *l)
{
	struct copyverb *v = &l->v;
	bool quiet = v->m.json;
	int code = open_all(l), later;

	if (code)
		return code;
	if (!quiet)
		copylat_print_head(l);
	code = copyverb_run(v, quiet ? NULL : copylat_print_titles,
			    quiet ? NULL : copylat_print_row);
	if (!quiet && v->done)
		copylat_print_slower(l);
	if (code && !v->mismatches)
		return code;
	later = measure_finish(&v->m, copylat_json, l);
	return code ? code : later;
}

int tool_copylat(int argc, char **argv)
{
	struct copyverb *v = &copylat.v;
	int c, code = TOOL_OK;

	for (int m = 0; m < COPIES_METHODS; m++)
		v->methods |= copies_ways[m].lat ? 1u << m : 0;
	while (code == TOOL_OK &&
	       (c = next_option(argc, argv, ":" MEASURE_SHORTS COPYVERB_SHORTS "c", longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return TOOL_OK;
		}
		if (c != 'c')
			code = copyverb_option(v, c);
	}
	if (code == TOOL_OK)
		code = copyverb_check(v);
	if (code)
		return code;
	progress_begin();
	if (copyverb_callers(v) > 1)
		return callers_run(v);
	code = run(&copylat);
	copyverb_close(v);
	return code;
}
