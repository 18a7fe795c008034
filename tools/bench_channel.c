/* SPDX-License-Identifier: BSD-3-Clause */
/* barway bench channel: messages between the CPU and a running kernel. */
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define VERB "bench channel"
#define SECONDS 0.3   /* for each round trip */
#define SAMPLES 11    /* bursts, for each rate */
#define LEAST 16u     /* bytes */
#define EACH_BYTES 64u

static const char help[] =
	"usage: barway bench channel [OPTION]...\n"
	"\n"
	"Measures messages between the CPU and a kernel that is running: round trips of\n"
	"16, 64, 256 ... MAXSIZE bytes, beside those of a bare flag and of a launch;\n"
	"messages one way, of 64 and of MAXSIZE bytes; a command that does nothing,\n"
	"through a work queue. All is checked.\n"
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    longest message, 16 to 1024, a multiple of 8; default\n"
	"                        1024\n"
	"  -t, --iterations N    round trips that are timed one by one, 1 to 1000000;\n"
	"                        default: what fits in 0.3 s, but 5 to 10000\n"
	"  -n, --messages N      messages of a burst one way, 100 to 100000000; default\n"
	"                        200000, on the soft GPU 2000\n"
	"  -b, --blocks N        many blocks are so many, 1 to 128; default 64\n"
	MEASURE_HELP
	"\n"
	"round trips:\n"
	"  thread, warp, block   the kernel's end is one thread, 32, or 128: a message\n"
	"                        to it and back. With fences they also order other\n"
	"                        memory that a message tells of.\n"
	"  line, words           the same in registers: one line by a thread; by a warp,\n"
	"                        which has room for one line, eight, or the longest\n"
	"  flag in GPU memory    what pplat measures: a bare flag, 8 bytes, and data\n"
	"  flag in pinned memory\n"
	"  launch and wait       an empty kernel, and the wait for its stream\n"
	"  null command          a command through a work queue, and its answer\n"
	"messages one way, 11 bursts; us each is the median:\n"
	"  to the GPU            from one CPU thread to one thread or warp\n"
	"  to the CPU            to one CPU thread from blocks x threads; warps: each\n"
	"                        warp sends as one, each: every thread a message of its\n"
	"                        own\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

static const struct option longs[] = {
	{ "size", required_argument, NULL, 's' },
	{ "iterations", required_argument, NULL, 't' },
	{ "messages", required_argument, NULL, 'n' },
	{ "blocks", required_argument, NULL, 'b' },
	MEASURE_LONGS,
	{ 0 },
};

/* ---- one row ------------------------------------------------------------------------------ */

static struct bench_plan plan_of(const struct bench_channel *b)
{
	return (struct bench_plan){ .reps = (unsigned)b->iterations, .seconds = SECONDS };
}

/* Keeps what was measured; @ret and @error: how it went. */
static int keep(struct bench_channel *b, const struct bench_channel_row *r, int ret,
		const char *error)
{
	progress_clear();
	if (ret < 0)
		return failure(VERB, "%s", error);
	if (b->done == BENCH_CHANNEL_ROWS)
		return failure(VERB, "more than %d rows", BENCH_CHANNEL_ROWS);
	b->rows[b->done++] = *r;
	if (!b->m.json)
		bench_channel_print_row(r);
	return TOOL_OK;
}

static int round_trip(struct bench_channel *b, enum channel_form form, bool relaxed, size_t bytes)
{
	static const char *const forms[] = { "line", "thread", "words", "warp", "block" };
	struct bench_channel_row r = { .what = "round trip", .bytes = bytes };
	struct bench_plan plan = plan_of(b);

	snprintf(r.form, sizeof(r.form), "%s, %s", forms[form],
		 relaxed ? "no fences" : "with fences");
	progress("round trip, %s, %zu bytes", r.form, bytes);
	return keep(b, &r, channel_round_trip(&b->channel, form, relaxed, bytes, &plan, &r.time),
		    b->channel.error);
}

static int flag(struct bench_channel *b, enum pingpong_way way, size_t bytes)
{
	struct bench_channel_row r = { .what = "round trip", .bytes = bytes ? bytes : 8 };
	struct bench_plan plan = plan_of(b);

	snprintf(r.form, sizeof(r.form), "flag in %s memory",
		 way == PINGPONG_GPU ? "GPU" : "pinned");
	progress("%s, %zu bytes", r.form, bytes);
	return keep(b, &r, pingpong_measure(&b->pingpong, way, bytes, &plan, &r.time),
		    b->pingpong.error);
}

static int other(struct bench_channel *b, const char *form,
		 int (*measure)(struct channel_bench *, const struct bench_plan *,
				struct bench_result *))
{
	struct bench_channel_row r = { .what = "round trip" };
	struct bench_plan plan = plan_of(b);

	snprintf(r.form, sizeof(r.form), "%s", form);
	progress("%s", form);
	return keep(b, &r, measure(&b->channel, &plan, &r.time), b->channel.error);
}

static int rate_to_gpu(struct bench_channel *b, enum channel_form form, size_t bytes)
{
	struct bench_channel_row r = { .what = "to the GPU", .bytes = bytes, .rate = true };

	snprintf(r.form, sizeof(r.form), "%s", form == CHANNEL_THREAD ? "thread" :
		 form == CHANNEL_WARP ? "warp" : "each");
	progress("to the GPU, %zu bytes", bytes);
	return keep(b, &r, channel_rate_to_gpu(&b->channel, form, bytes, b->messages, SAMPLES,
					       &r.time.alone), b->channel.error);
}

static int rate_to_cpu(struct bench_channel *b, enum channel_form form, unsigned blocks,
		       unsigned threads, size_t bytes)
{
	struct bench_channel_row r = { .what = "to the CPU", .bytes = bytes, .rate = true };

	snprintf(r.form, sizeof(r.form), "%s, %u x %u", form == CHANNEL_EACH ? "each" : "warps",
		 blocks, threads);
	progress("to the CPU, %u blocks of %u threads, %zu bytes", blocks, threads, bytes);
	return keep(b, &r, channel_rate_to_cpu(&b->channel, form, blocks, threads, bytes,
					       b->messages, SAMPLES, &r.time.alone),
		    b->channel.error);
}

/* ---- all of them -------------------------------------------------------------------------- */

/* 16, 64, 256 ... @most; 0: that was the last. */
static size_t next_size(size_t n, size_t most)
{
	return n == most ? 0 : n < most / 4 ? n * 4 : most;
}

static int round_trips(struct bench_channel *b)
{
	int code = TOOL_OK;

	for (int form = CHANNEL_LINE; form <= CHANNEL_BLOCK; form++) {
		bool one_line = form == CHANNEL_LINE || (form == CHANNEL_WORDS && b->m.soft);
		size_t most = one_line ? LEAST : b->max;

		for (int relaxed = 0; relaxed < 2; relaxed++)
			for (size_t n = LEAST; n && code == TOOL_OK; n = next_size(n, most))
				code = round_trip(b, form, relaxed, n);
	}
	for (int way = 0; way < PINGPONG_WAYS && code == TOOL_OK; way++) {
		code = flag(b, way, 0);
		for (size_t n = LEAST; n && code == TOOL_OK; n = next_size(n, b->max))
			code = flag(b, way, n);
	}
	if (code == TOOL_OK)
		code = other(b, "launch and wait", channel_launch);
	return code ? code : other(b, "null command", channel_null_command);
}

static int rates(struct bench_channel *b)
{
	static const struct {
		enum channel_form form;
		bool to_gpu, many; /* blocks */
		unsigned threads;
		bool longest;      /* messages; else of 64 bytes */
	} bursts[] = {
		{ CHANNEL_THREAD, .to_gpu = true },
		{ CHANNEL_WARP, .to_gpu = true },
		{ CHANNEL_EACH, .to_gpu = true },
		{ CHANNEL_WARP, .to_gpu = true, .longest = true },
		{ CHANNEL_WARP, .threads = 32 },
		{ CHANNEL_WARP, .threads = 1024 },
		{ CHANNEL_WARP, .many = true, .threads = 1024 },
		{ CHANNEL_WARP, .many = true, .threads = 1024, .longest = true },
		{ CHANNEL_EACH, .threads = 32 },
		{ CHANNEL_EACH, .threads = 1024 },
		{ CHANNEL_EACH, .many = true, .threads = 32 },
	};
	size_t each = b->max < EACH_BYTES ? b->max : EACH_BYTES, bytes;
	int code = TOOL_OK;

	for (size_t i = 0; i < sizeof(bursts) / sizeof(bursts[0]) && code == TOOL_OK; i++) {
		bytes = bursts[i].longest ? b->max : each;
		if (bursts[i].longest && bytes == each)
			continue; /* those were before */
		code = bursts[i].to_gpu ? rate_to_gpu(b, bursts[i].form, bytes)
		       : rate_to_cpu(b, bursts[i].form, bursts[i].many ? (unsigned)b->blocks : 1,
				     bursts[i].threads, bytes);
	}
	return code;
}

static int open_all(struct bench_channel *b)
{
	char reason[512];
	int code = measure_open(&b->m);

	if (code)
		return code;
	b->gpu = bench_gpu_open(b->m.ctx, b->m.dev, reason, sizeof(reason));
	if (!b->gpu)
		return failure(VERB, "%s", reason);
	if (!b->messages)
		b->messages = b->m.soft ? 2000 : 200000;
	if (channel_bench_open(&b->channel, b->m.ctx, b->m.dev, b->gpu) < 0)
		return failure(VERB, "%s", b->channel.error);
	if (pingpong_open(&b->pingpong, b->m.ctx, b->m.dev, b->gpu, BENCH_MEMORY_BARWAY,
			  BARWAY_MESSAGE_MAX, 10000000000u) < 0)
		return failure(VERB, "%s", b->pingpong.error);
	b->path = (struct barway_mapping_info){ .size = sizeof(b->path) };
	if (barway_mapping_query(b->pingpong.map, &b->path) < 0)
		return failure(VERB, "%s", barway_errmsg());
	return TOOL_OK;
}

static int run(struct bench_channel *b)
{
	int code = open_all(b);

	if (code)
		return code;
	if (!b->m.json) {
		measure_print_head(&b->m, &b->path);
		bench_channel_print_titles(false);
	}
	code = round_trips(b);
	if (code == TOOL_OK && !b->m.json)
		bench_channel_print_titles(true);
	if (code == TOOL_OK)
		code = rates(b);
	if (code == TOOL_OK && !b->m.json) {
		fputs("\nthe channel: ", stdout);
		text_wrap(stdout, b->channel.path, 13, 2);
	}
	return code ? code : measure_finish(&b->m, bench_channel_json, b);
}

static void close_all(struct bench_channel *b)
{
	pingpong_close(&b->pingpong);
	channel_bench_close(&b->channel);
	bench_gpu_close(b->gpu);
	measure_close(&b->m);
}

/* ---- the verb ---------------------------------------------------------------------------- */

static int parse_one(struct bench_channel *b, int c)
{
	int code = measure_option(&b->m, c);

	if (code != MEASURE_OTHER)
		return code;
	switch (c) {
	case 's':
		code = measure_size(&b->m, "-s", optarg, LEAST, &b->max);
		if (code == TOOL_OK && b->max > BARWAY_MESSAGE_MAX)
			code = usage_error(VERB, "-s: '%s' is too large: a message has at most "
					   "%u bytes", optarg, BARWAY_MESSAGE_MAX);
		if (code == TOOL_OK && b->max % 8)
			code = usage_error(VERB, "-s: '%s' is not a multiple of 8", optarg);
		return code;
	case 't':
		return measure_count(&b->m, "-t", optarg, 1, 1000000, &b->iterations);
	case 'n':
		return measure_count(&b->m, "-n", optarg, 100, 100000000, &b->messages);
	default:
		return measure_count(&b->m, "-b", optarg, 1, 128, &b->blocks);
	}
}

int tool_bench_channel(int argc, char **argv)
{
	static struct bench_channel b = {
		.m = { .verb = VERB, .schema = "barway-bench-channel-1" },
		.max = BARWAY_MESSAGE_MAX,
		.blocks = 64,
	};
	int c, code = TOOL_OK;

	while (code == TOOL_OK &&
	       (c = next_option(argc, argv, ":" MEASURE_SHORTS "s:t:n:b:", longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return TOOL_OK;
		}
		code = parse_one(&b, c);
	}
	if (code == TOOL_OK)
		code = measure_check(&b.m);
	if (code)
		return code;
	progress_begin();
	code = run(&b);
	close_all(&b);
	return code;
}
