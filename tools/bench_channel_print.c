/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "tools/bench.h"
#include "tools/text.h"

#define NAME_WIDTH 44

/* "warp, no fences, 64 bytes" */
static const char *row_name(const struct bench_channel_row *r, char *buf, size_t n)
{
	char bytes[32] = "";

	if (r->bytes)
		snprintf(bytes, sizeof(bytes), ", %llu bytes", (unsigned long long)r->bytes);
	snprintf(buf, n, "%s%s%s%s", r->rate ? r->what : "", r->rate ? ", " : "", r->form, bytes);
	return buf;
}

void bench_channel_print_titles(bool rates)
{
	if (rates)
		printf("\n%-*s %8s %8s %9s\n", NAME_WIDTH, "messages one way, without fences",
		       "us each", "least", "million/s");
	else
		printf("\n%-*s %8s %8s %8s %9s\n", NAME_WIDTH, "round trips, microseconds",
		       "median", "p99", "min", "in a row");
}

void bench_channel_print_row(const struct bench_channel_row *r)
{
	char name[128], a[32], b[32], c[32], d[32];

	printf("%-*s %8s", NAME_WIDTH, row_name(r, name, sizeof(name)),
	       text_us(r->time.alone.median, a, sizeof(a)));
	if (r->rate)
		printf(" %8s %9.3f\n", text_us(r->time.alone.min, b, sizeof(b)),
		       1e3 / r->time.alone.median);
	else
		printf(" %8s %8s %9s\n", text_us(r->time.alone.p99, b, sizeof(b)),
		       text_us(r->time.alone.min, c, sizeof(c)),
		       text_us(r->time.row.median, d, sizeof(d)));
	fflush(stdout);
}

static void row_json(struct json *j, const struct bench_channel_row *r)
{
	json_object(j);
	measure_json_text(j, "what", r->what);
	measure_json_text(j, "form", r->form);
	if (r->bytes)
		measure_json_number(j, "size_bytes", r->bytes);
	measure_json_stats(j, "time", &r->time.alone);
	if (r->rate) {
		json_key(j, "rate");
		json_object(j);
		measure_json_double(j, "messages_per_s", 1e9 / r->time.alone.median);
		json_object_end(j);
	} else {
		measure_json_stats(j, "row", &r->time.row);
	}
	json_key(j, "verified");
	json_bool(j, true); /* or the run has failed */
	json_object_end(j);
}

void bench_channel_json(struct json *j, void *arg)
{
	const struct bench_channel *b = arg;

	json_object(j);
	measure_json_head(j, &b->m, &b->path);
	measure_json_text(j, "channel", b->channel.path);
	measure_json_us(j, "clock_cost_us", bench_clock_cost());
	measure_json_number(j, "messages", b->messages);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < b->done; i++)
		row_json(j, &b->rows[i]);
	json_array_end(j);
	json_object_end(j);
}
