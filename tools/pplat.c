/* SPDX-License-Identifier: BSD-3-Clause */
/* barway pplat: a flag from the CPU to a running kernel and back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/pingpong.h"
#include "tools/copyverb.h"
#include "tools/measure.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define VERB "pplat"
#define SECONDS 0.5 /* for each size and place of the flag */
#define SIZE_DEFAULT 1024u
#define SIZE_MAX_BYTES (1u << 20)
#define SIZES 32
#define FLAG_BYTES 8u

static const char help[] =
	"usage: barway pplat [OPTION]...\n"
	"\n"
	"Measures round trips between the CPU and a kernel that is running: the CPU\n"
	"stores a flag, the kernel sees it and answers with one in pinned host memory,\n"
	"which the CPU polls. With more than 8 bytes, that much data goes before the\n"
	"flag each way, with fences between them; it is checked.\n"
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    most data: 16, 32, 64 ... MAXSIZE; 8: the flag alone;\n"
	"                        default 1K, at most 1M\n"
	"  -t, --iterations N    round trips that are timed one by one, 1 to 1000000;\n"
	"                        default: what fits in 0.5 s, but 5 to 10000\n"
	"  -u, --timeout SECONDS how long to wait for an answer, 1 to 600; default 10;\n"
	"                        0: for ever\n"
	"  -a, --alloc FN        cuMemAlloc or cuMemCreate; default cuMemCreate\n"
	MEASURE_HELP
	"\n"
	"groups of columns, in microseconds:\n"
	"  GPU memory     the flag, and data, that the CPU writes are in GPU memory: it\n"
	"                 stores through a mapping, the kernel polls its own memory\n"
	"  pinned memory  they are in pinned host memory: the kernel polls over PCIe\n"
	"columns:\n"
	"  median, p99, min   of round trips timed one by one\n"
	"  in a row           mean of round trips right after one another; median over\n"
	"                     the rows. Compare this one with GDRCopy's pplat, which\n"
	"                     times a loop.\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

static const struct option longs[] = {
	{ "size", required_argument, NULL, 's' },
	{ "iterations", required_argument, NULL, 't' },
	{ "timeout", required_argument, NULL, 'u' },
	{ "alloc", required_argument, NULL, 'a' },
	MEASURE_LONGS,
	{ 0 },
};

struct pplat_row {
	size_t bytes;
	struct bench_result times[PINGPONG_WAYS];
};

struct pplat {
	struct measure m;
	uint64_t max, iterations, timeout_s;
	enum bench_memory_kind kind;
	struct bench_gpu *gpu;
	struct pingpong pingpong;
	struct barway_mapping_info path;
	struct pplat_row rows[SIZES];
	size_t done;
};

/* ---- the output -------------------------------------------------------------------------- */

static void print_titles(void)
{
	printf("\nround trips, microseconds\n%9s   %s   %s\n", "",
	       "------------ GPU memory ------------", "---------- pinned memory -----------");
	printf("%9s", "bytes");
	for (int way = 0; way < PINGPONG_WAYS; way++)
		printf("   %8s %8s %8s %9s", "median", "p99", "min", "in a row");
	putchar('\n');
}

static void print_places(const struct pingpong *p)
{
	char a[32], b[32];

	if (p->best_ns > 0)
		printf("\nthe flag in GPU memory lies at the best of some places: %s us in a "
		       "row, at the\nworst %s\n", text_us(p->best_ns, a, sizeof(a)),
		       text_us(p->worst_ns, b, sizeof(b)));
}

static void print_row(const struct pplat_row *r)
{
	char a[32], b[32], c[32], d[32];

	printf("%9zu", r->bytes);
	for (int way = 0; way < PINGPONG_WAYS; way++) {
		const struct bench_result *t = &r->times[way];

		printf("   %8s %8s %8s %9s", text_us(t->alone.median, a, sizeof(a)),
		       text_us(t->alone.p99, b, sizeof(b)), text_us(t->alone.min, c, sizeof(c)),
		       text_us(t->row.median, d, sizeof(d)));
	}
	putchar('\n');
	fflush(stdout);
}

static void write_json(struct json *j, void *arg)
{
	const struct pplat *p = arg;

	json_object(j);
	measure_json_head(j, &p->m, &p->path);
	measure_json_text(j, "memory", bench_memory_names[p->kind]);
	measure_json_us(j, "clock_cost_us", bench_clock_cost());
	json_key(j, "places"); /* where the flag in GPU memory may lie: a round trip in a row */
	json_object(j);
	measure_json_us(j, "best_us", p->pingpong.best_ns);
	measure_json_us(j, "worst_us", p->pingpong.worst_ns);
	json_object_end(j);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < p->done; i++) {
		for (int way = 0; way < PINGPONG_WAYS; way++) {
			json_object(j);
			measure_json_text(j, "flag_in", pingpong_way_names[way]);
			measure_json_number(j, "size_bytes", p->rows[i].bytes);
			measure_json_stats(j, "alone", &p->rows[i].times[way].alone);
			measure_json_stats(j, "row", &p->rows[i].times[way].row);
			json_key(j, "verified");
			json_bool(j, true); /* or the run has failed */
			json_object_end(j);
		}
	}
	json_array_end(j);
	json_object_end(j);
}

/* ---- the run ----------------------------------------------------------------------------- */

static int measure_row(struct pplat *p, size_t bytes)
{
	const struct bench_plan plan = { .reps = (unsigned)p->iterations, .seconds = SECONDS };
	struct pplat_row *row = &p->rows[p->done];
	char text[32];

	row->bytes = bytes;
	for (int way = 0; way < PINGPONG_WAYS; way++) {
		progress("flag in %s memory, %s", way == PINGPONG_GPU ? "GPU" : "pinned",
			 text_bytes(bytes, text, sizeof(text)));
		if (pingpong_measure(&p->pingpong, way, bytes == FLAG_BYTES ? 0 : bytes, &plan,
				     &row->times[way]) < 0) {
			progress_clear();
			return failure(VERB, "%s", p->pingpong.error);
		}
		progress_clear();
	}
	p->done++;
	if (!p->m.json)
		print_row(row);
	return TOOL_OK;
}

static int open_all(struct pplat *p)
{
	char reason[512];
	int code = measure_open(&p->m);

	if (code)
		return code;
	if (p->m.soft && p->kind == BENCH_MEMORY_DEVICE)
		return copyverb_no_alloc(&p->m);
	p->gpu = bench_gpu_open(p->m.ctx, p->m.dev, reason, sizeof(reason));
	if (!p->gpu)
		return failure(VERB, "%s", reason);
	if (pingpong_open(&p->pingpong, p->m.ctx, p->m.dev, p->gpu, p->kind, p->max,
			  p->timeout_s ? p->timeout_s * 1000000000u : UINT64_MAX) < 0)
		return failure(VERB, "%s", p->pingpong.error);
	p->path = (struct barway_mapping_info){ .size = sizeof(p->path) };
	if (barway_mapping_query(p->pingpong.map, &p->path) < 0)
		return failure(VERB, "%s", barway_errmsg());
	return TOOL_OK;
}

static int run(struct pplat *p)
{
	int code = open_all(p);

	if (code)
		return code;
	if (!p->m.json) {
		measure_print_head(&p->m, &p->path);
		print_titles();
	}
	for (uint64_t n = FLAG_BYTES; code == TOOL_OK; n = n > p->max / 2 ? p->max : n * 2) {
		code = measure_row(p, n);
		if (n >= p->max)
			break;
	}
	if (code == TOOL_OK && !p->m.json)
		print_places(&p->pingpong);
	return code ? code : measure_finish(&p->m, write_json, p);
}

static void close_all(struct pplat *p)
{
	pingpong_close(&p->pingpong);
	bench_gpu_close(p->gpu);
	measure_close(&p->m);
}

/* ---- the verb ---------------------------------------------------------------------------- */

static int parse_alloc(struct pplat *p, const char *text)
{
	bool cu_mem_alloc;
	int code = copyverb_parse_alloc(&p->m, text, &cu_mem_alloc);

	p->kind = cu_mem_alloc ? BENCH_MEMORY_DEVICE : BENCH_MEMORY_BARWAY;
	return code;
}

static int parse_one(struct pplat *p, int c)
{
	int code = measure_option(&p->m, c);

	if (code != MEASURE_OTHER)
		return code;
	switch (c) {
	case 's':
		code = measure_size(&p->m, "-s", optarg, FLAG_BYTES, &p->max);
		if (code == TOOL_OK && (p->max % 8 || p->max > SIZE_MAX_BYTES))
			code = usage_error(VERB, "-s: '%s' is not a multiple of 8 of at most 1M",
					   optarg);
		return code;
	case 't':
		return measure_count(&p->m, "-t", optarg, 1, 1000000, &p->iterations);
	case 'u':
		return measure_count(&p->m, "-u", optarg, 0, 600, &p->timeout_s);
	default:
		return parse_alloc(p, optarg);
	}
}

int tool_pplat(int argc, char **argv)
{
	static struct pplat p = {
		.m = { .verb = VERB, .schema = "barway-pplat-1" },
		.max = SIZE_DEFAULT,
		.timeout_s = 10,
		.kind = BENCH_MEMORY_BARWAY,
	};
	int c, code = TOOL_OK;

	while (code == TOOL_OK &&
	       (c = next_option(argc, argv, ":" MEASURE_SHORTS "s:t:u:a:", longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return TOOL_OK;
		}
		code = parse_one(&p, c);
	}
	if (code == TOOL_OK)
		code = measure_check(&p.m);
	if (code)
		return code;
	progress_begin();
	code = run(&p);
	close_all(&p);
	return code;
}
