/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be drawn: one row for each verb that measures. */
#include <string.h>

#include "tools/plot.h"

#define BARWAY "lc rgb '#1b4f9c' lw 3 pt 7 ps 0.6"
#define BARWAY_2 "lc rgb '#4f9bd9' lw 2 pt 9 ps 0.7"
#define BARWAY_3 "lc rgb '#2a9d8f' lw 2 pt 13 ps 0.8"
#define BARWAY_4 "lc rgb '#6a4c93' lw 2 pt 5 ps 0.6"
#define BARWAY_5 "lc rgb '#00838f' lw 2 pt 11 ps 0.7"
#define REFERENCE "lc rgb '#8a8a8a' lw 2 dt '-' pt 1 ps 0.6"
#define PAGEABLE "lc rgb '#d1495b' lw 2 pt 4 ps 0.7"
#define PINNED "lc rgb '#edae49' lw 2 pt 6 ps 0.7"

/* Names of members as in bench/methods.c; those that a result does not have are left out. */
static const struct plot_series copies[] = {
	{ "barway", "Barway, one CPU thread", BARWAY },
	{ "barway_visible", "Barway, until visible to kernels", BARWAY_2 },
	{ "barway_auto", "Barway, as it plans", BARWAY_4 },
	{ "barway_auto_pinned", "Barway, as it plans, pinned", BARWAY_4 " dt '.'" },
	{ "barway_threads", "Barway, several CPU threads", BARWAY_2 },
	{ "barway_resident", "Barway, resident copier, pinned", BARWAY_5 },
	{ "barway_ce", "Barway, copy engine", BARWAY_3 },
	{ "reference", "plain loop over the mapping", REFERENCE },
	{ "cumemcpy", "cudaMemcpy, pageable", PAGEABLE },
	{ "cumemcpy_async_pinned", "cudaMemcpyAsync, pinned, and wait", PINNED },
	{ 0 },
};

static const struct plot_series callers[] = {
	{ "one.barway", "Barway, one caller", BARWAY },
	{ "all.barway", "Barway, each of all callers", BARWAY " dt '-'" },
	{ "one.cumemcpy", "cudaMemcpy, pageable, one caller", PAGEABLE },
	{ "all.cumemcpy", "cudaMemcpy, pageable, each of all callers", PAGEABLE " dt '-'" },
	{ "one.cumemcpy_async_pinned", "cudaMemcpyAsync, pinned, one caller", PINNED },
	{ "all.cumemcpy_async_pinned", "cudaMemcpyAsync, pinned, each of all callers",
	  PINNED " dt '-'" },
	{ 0 },
};

#define PINNED_LINE " dt '.'"

static const struct plot_series tuned[] = {
	{ "pageable.plan", "what is planned, pageable", "lc rgb '#c8c8c8' lw 9 pt 0" },
	{ "pinned.plan", "what is planned, pinned", "lc rgb '#f0d9a8' lw 9 pt 0" },
	{ "pageable.cpu", "one CPU thread, pageable", BARWAY },
	{ "pinned.cpu", "one CPU thread, pinned", BARWAY PINNED_LINE },
	{ "pageable.threads", "several CPU threads, pageable", BARWAY_2 },
	{ "pinned.threads", "several CPU threads, pinned", BARWAY_2 PINNED_LINE },
	{ "pageable.ce", "copy engine, pageable", BARWAY_3 },
	{ "pinned.ce", "copy engine, pinned", BARWAY_3 PINNED_LINE },
	{ "pageable.resident", "resident copier, pageable", BARWAY_5 },
	{ "pinned.resident", "resident copier, pinned", BARWAY_5 PINNED_LINE },
	{ 0 },
};

static const struct plot_series round_trips[] = {
	{ "alone", "timed one by one", BARWAY },
	{ "row", "in a row", BARWAY_2 },
	{ 0 },
};

#define NET_MEMORY { { "gpu", "GPU memory to GPU memory" }, \
		     { "host", "host memory to host memory" } }

static const struct plot_series transfers[] = {
	{ "auto.put", "put", BARWAY },
	{ "auto.get", "get", BARWAY_2 },
	{ "auto.send", "send", BARWAY_3 },
	{ "direct.put", "put, direct", BARWAY_4 },
	{ "direct.get", "get, direct", BARWAY_4 " dt '-'" },
	{ "direct.send", "send, direct", BARWAY_4 " dt '.'" },
	{ "staged.put", "put, staged", PINNED },
	{ "staged.get", "get, staged", PINNED " dt '-'" },
	{ "staged.send", "send, staged", PINNED " dt '.'" },
	{ 0 },
};

static const struct plot_kind kinds[] = {
	{
		.schema = "barway-copylat-1",
		.title = "Latency of copies to and from GPU memory",
		.y = "row.median_us",
		.y_label = "one copy in a row of copies, median, microseconds",
		.panel = "direction",
		.panels = { { "to", "host to GPU" }, { "from", "GPU to host" } },
		.series = copies,
	},
	{
		.schema = "barway-copybw-1",
		.title = "Bandwidth of copies to and from GPU memory",
		.y = "median_gbs",
		.y_label = "copies in a row until all have arrived, median, GB/s",
		.panel = "direction",
		.panels = { { "to", "host to GPU" }, { "from", "GPU to host" } },
		.series = copies,
	},
	{
		.schema = "barway-callers-1",
		.title = "Copies of one caller, and of many at once",
		.y = "median_us",
		.y_label = "one copy in a row of copies, median, microseconds",
		.panel = "direction",
		.panels = { { "to", "host to GPU" }, { "from", "GPU to host" } },
		.series = callers,
	},
	{
		.schema = "barway-tune-1",
		.title = "Methods to copy, and which is planned",
		.y = "median_us",
		.y_label = "one copy, median, microseconds",
		.panel = "direction",
		.panels = { { "to", "host to GPU" }, { "from", "GPU to host" } },
		.series = tuned,
	},
	{
		.schema = "barway-apiperf-1",
		.title = "Time of single calls",
		.y_label = "microseconds: median, and from the minimum to the 99th percentile",
		.bars = "time",
	},
	{
		.schema = "barway-pplat-1",
		.title = "A flag, and data, from the CPU to a running kernel and back",
		.y = "median_us",
		.y_label = "round trip, median, microseconds",
		.panel = "flag_in",
		.panels = { { "gpu", "in GPU memory, through a mapping" },
			    { "pinned", "in pinned host memory" } },
		.series = round_trips,
	},
	{
		.schema = "barway-bench-channel-1",
		.title = "Messages between the CPU and a running kernel",
		.y_label = "microseconds: median, and from the minimum to the 99th percentile",
		.bars = "time",
	},
	{
		.schema = "barway-netlat-1",
		.title = "Latency of transfers between two processes",
		.y = "median_us",
		.y_label = "half a round trip (a get: the whole), median, microseconds",
		.panel = "memory",
		.panels = NET_MEMORY,
		.series = transfers,
	},
	{
		.schema = "barway-netbw-1",
		.title = "Bandwidth of transfers between two processes",
		.y = "median_gbs",
		.y_label = "several under way at once, until VISIBLE, median, GB/s",
		.panel = "memory",
		.panels = NET_MEMORY,
		.series = transfers,
	},
};

const struct plot_kind *plot_kind(const char *schema)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(kinds[i].schema, schema))
			return &kinds[i];
	}
	return NULL;
}
