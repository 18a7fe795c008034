/* SPDX-License-Identifier: BSD-3-Clause */
/* barway tune: measures every method to copy, and keeps the figures that copies are planned by. */
#include "tools/tune.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define VERB "tune"
#define THREADS_DEFAULT 4 /* where there are CPUs enough for them */
#define CPUS_ENOUGH 8
#define SHOW_MAX (64u << 20)

static const char help[] =
	"usage: barway tune [OPTION]...\n"
	"\n"
	"Measures every method to copy to and from GPU memory, and keeps the figures in\n"
	"a file of yours, by which contexts that are opened later plan their copies: by\n"
	"the fastest method, where another than one CPU thread has to be so by 3 %.\n"
	"Takes some seconds, in which nothing else should run on the device.\n"
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"      --threads N       helper threads for the method threads, 0 to 64; default:\n"
	"                        what BARWAY_COPY_THREADS says, else 4 where this may run\n"
	"                        on 8 CPUs or more, else none; with --show: none\n"
	"      --resident        start the resident copier, for the method resident\n"
	"  -o, --output FILE     write FILE, not the file that contexts take\n"
	"      --dry-run         measure, write nothing\n"
	"      --show            print the plan in force and where it is from, measure\n"
	"                        nothing; threads and the resident copier are in it where\n"
	"                        the options above ask for them\n"
	MEASURE_HELP
	"\n"
	"The file is in $BARWAY_PLAN_DIR, else $XDG_CACHE_HOME/barway, else\n"
	"~/.cache/barway. Each pair of GPU and CPU, and each driver, has its own; so has\n"
	"the soft GPU.\n"
	"\n"
	"methods:\n"
	"  cpu          one CPU thread over the mapping: the caller's\n"
	"  ce           the device's copy engine\n"
	"  threads      the caller and helper threads over the mapping\n"
	"  resident     a kernel that waits for copies; pinned memory\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

static const struct option longs[] = {
	{ "threads", required_argument, NULL, 't' },
	{ "resident", no_argument, NULL, 'R' },
	{ "output", required_argument, NULL, 'o' },
	{ "dry-run", no_argument, NULL, 'n' },
	{ "show", no_argument, NULL, 'w' },
	MEASURE_LONGS,
	{ 0 },
};

static struct tune tune = { /* the rows are too many for a stack */
	.m = { .verb = VERB, .schema = "barway-tune-1" },
};

/* ---- measuring ------------------------------------------------------------------------------ */

static struct tune_row *row_of(struct tune *t, uint32_t direction, uint64_t bytes)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->rows[i].direction == direction && t->rows[i].bytes == bytes)
			return &t->rows[i];
	if (t->n == TUNE_ROWS)
		return NULL;
	t->rows[t->n] = (struct tune_row){ .direction = direction, .bytes = bytes };
	return &t->rows[t->n++];
}

static int take_point(void *arg, const struct barway_tune_point *p)
{
	struct tune *t = arg;
	struct tune_row *row = row_of(t, p->direction, p->bytes);
	char size[32];

	if (!row || p->method >= TUNE_METHODS || p->pinned > 1)
		return -EOVERFLOW;
	row->points[p->pinned][p->method] = *p;
	progress("%s: %s, %s memory, %s (%u of %u)", tune_methods[p->method],
		 p->direction == BARWAY_TO_GPU ? "host to GPU" : "GPU to host",
		 tune_hosts[p->pinned], text_bytes(p->bytes, size, sizeof(size)), p->done,
		 p->total);
	return 0;
}

static int in_order(const void *a, const void *b)
{
	const struct tune_row *x = a, *y = b;

	if (x->direction != y->direction)
		return x->direction < y->direction ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int measure(struct tune *t)
{
	const char *path = t->dry_run ? "" : t->output;
	int ret = barway_tune(t->m.dev, take_point, t, path);

	progress_clear();
	if (ret == -EOVERFLOW)
		return failure(VERB, "the library has more figures than this program knows: take "
			       "both from one version");
	if (ret < 0)
		return failure(VERB, "%s", barway_errmsg());
	qsort(t->rows, t->n, sizeof(t->rows[0]), in_order);
	return TOOL_OK;
}

/* ---- the plan in force ----------------------------------------------------------------------- */

/* What is needed to ask about copies of up to @bytes. */
struct asked {
	uint64_t addr;
	void *pinned;
	struct barway_mapping *map;
};

static int open_asked(struct tune *t, size_t bytes, struct asked *a)
{
	if (barway_mem_alloc(t->m.dev, bytes, &a->addr) < 0 ||
	    barway_map(t->m.ctx, a->addr, bytes, NULL, &a->map) < 0 ||
	    barway_host_alloc(t->m.dev, bytes, &a->pinned, NULL) < 0)
		return failure(VERB, "%s", barway_errmsg());
	t->path = (struct barway_mapping_info){ .size = sizeof(t->path) };
	if (barway_mapping_query(a->map, &t->path) < 0)
		return failure(VERB, "%s", barway_errmsg());
	return TOOL_OK;
}

static void close_asked(struct tune *t, struct asked *a)
{
	if (a->pinned)
		barway_host_free(t->m.ctx, a->pinned);
	if (a->map)
		barway_unmap(a->map);
	if (a->addr)
		barway_mem_free(t->m.ctx, a->addr);
}

static int ask_row(struct tune *t, const struct asked *a, uint32_t direction, uint64_t bytes)
{
	struct tune_row *row = row_of(t, direction, bytes);

	for (unsigned host = 0; row && host < 2; host++) {
		row->plan[host] = (struct barway_plan_info){ .size = sizeof(row->plan[host]) };
		if (barway_plan(a->map, direction, 0, host ? a->pinned : NULL, bytes,
				&row->plan[host]) < 0)
			return failure(VERB, "%s", barway_errmsg());
		snprintf(t->source, sizeof(t->source), "%s", row->plan[host].source);
		snprintf(t->file, sizeof(t->file), "%s", row->plan[host].file);
		snprintf(t->ignored, sizeof(t->ignored), "%s", row->plan[host].ignored);
	}
	return TOOL_OK;
}

/* What mappings are like here, before anything is measured. */
static int learn_path(struct tune *t)
{
	struct asked a = { 0 };
	int code = open_asked(t, 4096, &a);

	close_asked(t, &a);
	return code;
}

static int show(struct tune *t)
{
	struct asked a = { 0 };
	int code = open_asked(t, SHOW_MAX, &a);

	for (uint32_t d = BARWAY_TO_GPU; d <= BARWAY_FROM_GPU && code == TOOL_OK; d++)
		for (uint64_t n = 64; n <= SHOW_MAX && code == TOOL_OK; n *= 2)
			code = ask_row(t, &a, d, n);
	close_asked(t, &a);
	return code;
}

/* A context that is opened later takes the file: is it so? And which is it? */
static int look_back(struct tune *t)
{
	struct tune again = { .m = { .verb = VERB } };
	struct asked a = { 0 };
	int code = TOOL_FAILED;

	barway_close(t->m.ctx);
	t->m.ctx = NULL;
	if (barway_open(NULL, &again.m.ctx) < 0 || barway_device_count(again.m.ctx) < 0 ||
	    barway_device_get(again.m.ctx, t->m.info.index, &again.m.dev) < 0 ||
	    barway_device_activate(again.m.dev) < 0)
		failure(VERB, "%s", barway_errmsg());
	else
		code = open_asked(&again, 4096, &a);
	if (code == TOOL_OK)
		code = ask_row(&again, &a, BARWAY_TO_GPU, 64);
	if (code == TOOL_OK && !*again.file)
		code = failure(VERB, "the figures were written, but contexts do not take them: %s",
			       again.source);
	memcpy(t->source, again.source, sizeof(t->source));
	memcpy(t->file, again.file, sizeof(t->file));
	close_asked(&again, &a);
	measure_close(&again.m);
	return code;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void print_where(const struct tune *t)
{
	char text[sizeof(t->file) + 128];

	if (t->dry_run)
		snprintf(text, sizeof(text), "nothing: --dry-run");
	else if (t->output)
		snprintf(text, sizeof(text), "%s, where contexts do not look", t->output);
	else
		snprintf(text, sizeof(text), "%s; contexts that are opened from now on take it",
			 t->file);
	text_field(stdout, "written", text);
}

/* With a word on the methods that were not there to be measured. */
static void print_head(const struct tune *t)
{
	measure_print_head(&t->m, &t->path);
	if (t->show)
		return;
	if (t->m.soft)
		puts("the plan that comes of it is the soft GPU's alone");
	printf("helper threads: %llu; resident copier: %s\n", (unsigned long long)t->m.helpers,
	       t->m.resident ? "started" : "none (--resident)");
	fflush(stdout);
}

static int run(struct tune *t)
{
	int code = measure_open(&t->m);

	if (code == TOOL_OK && !t->show)
		code = learn_path(t);
	if (code)
		return code;
	if (!t->m.json && !t->show)
		print_head(t);
	code = t->show ? show(t) : measure(t);
	if (code == TOOL_OK && !t->show && !t->dry_run && !t->output)
		code = look_back(t);
	if (code)
		return code;
	if (!t->m.json && t->show) {
		print_head(t);
		tune_print_plan(t);
	} else if (!t->m.json) {
		tune_print(t);
		print_where(t);
	}
	return measure_finish(&t->m, t->show ? tune_json_plan : tune_json, t);
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Some, where CPUs are many, and who calls has not said how many in the environment. */
static uint64_t default_threads(void)
{
	const char *set = getenv("BARWAY_COPY_THREADS");
	cpu_set_t cpus;

	if (set && *set)
		return 0;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return errno == EINVAL ? THREADS_DEFAULT : 0; /* more than the set has room for */
	return CPU_COUNT(&cpus) >= CPUS_ENOUGH ? THREADS_DEFAULT : 0;
}

static int parse_one(struct tune *t, int c)
{
	int code = measure_option(&t->m, c);

	if (code != MEASURE_OTHER)
		return code;
	switch (c) {
	case 't':
		t->threads_given = true;
		return measure_count(&t->m, "--threads", optarg, 0, 64, &t->m.helpers);
	case 'R':
		t->m.resident = true;
		return TOOL_OK;
	case 'o':
		t->output = optarg;
		return *optarg ? TOOL_OK :
		       usage_error(VERB, "-o: the name is empty: give a file, or --dry-run");
	case 'n':
		t->dry_run = true;
		return TOOL_OK;
	default:
		t->show = true;
		t->m.schema = "barway-plan-1";
		return TOOL_OK;
	}
}

static int check(struct tune *t)
{
	if (t->show && (t->dry_run || t->output))
		return usage_error(VERB, "--show measures and writes nothing: leave %s away",
				   t->output ? "-o" : "--dry-run");
	if (t->output && t->dry_run)
		return usage_error(VERB, "-o and --dry-run: a file, or none: leave one away");
	if (t->output && measure_check_file(&t->m, "-o", t->output, true))
		return TOOL_USAGE;
	if (!t->threads_given && !t->show)
		t->m.helpers = default_threads();
	return measure_check(&t->m);
}

int tool_tune(int argc, char **argv)
{
	struct tune *t = &tune;
	int c, code = TOOL_OK;

	while (code == TOOL_OK &&
	       (c = next_option(argc, argv, ":" MEASURE_SHORTS "o:", longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return TOOL_OK;
		}
		code = parse_one(t, c);
	}
	if (code == TOOL_OK)
		code = check(t);
	if (code)
		return code;
	progress_begin();
	code = run(t);
	measure_close(&t->m);
	return code;
}
