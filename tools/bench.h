/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/bench: the parts of the verb bench. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "bench/channel.h"
#include "bench/pingpong.h"
#include "tools/measure.h"

int tool_bench_channel(int argc, char **argv); /* argv[0] is "bench channel" */

#define BENCH_CHANNEL_ROWS 96

/* What was measured, as it is named in the output; "" and 0: does not apply. */
struct bench_channel_row {
	const char *what;  /* "round trip", "to the GPU", "to the CPU" */
	char form[40];     /* "thread, no fences", "flag in GPU memory", "warps, 64 x 1024", ... */
	uint64_t bytes;
	bool rate;                /* @time.alone is for one of many messages, else of round trips */
	struct bench_result time;
};

struct bench_channel {
	struct measure m;
	uint64_t max, iterations, messages, blocks;
	struct bench_gpu *gpu;
	struct channel_bench channel;
	struct pingpong pingpong;
	struct barway_mapping_info path; /* of the flag's memory */
	struct bench_channel_row rows[BENCH_CHANNEL_ROWS];
	size_t done;
};

void bench_channel_print_titles(bool rates);
void bench_channel_print_row(const struct bench_channel_row *r);
void bench_channel_json(struct json *j, void *arg); /* arg: a struct bench_channel */

#endif
