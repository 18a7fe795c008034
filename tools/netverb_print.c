/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "tools/netverb.h"
#include "tools/text.h"

/* ---- for people --------------------------------------------------------------------------- */

void netverb_print_head(const struct netverb *v)
{
	const char *memory = v->net.host ? "host memory" : "GPU memory";

	measure_print_head(&v->m, NULL);
	printf("to %s of %s, process %u: %s\n", v->peer.name, v->peer.host, v->peer.pid,
	       v->other.device);
	printf("%s to %s; network %s, %u rail%s\n", memory, memory, v->peer.network, v->peer.rails,
	       v->peer.rails == 1 ? "" : "s");
}

#define GROUP_WIDTH 26

void netverb_print_titles(const struct netverb *v, unsigned path)
{
	static const char dashes[] = "--------------------------";

	printf("\npath %s, %s\n%9s", net_path_names[path], v->bandwidth ? "GB/s" :
	       "microseconds: half round trips; of a get the whole", "");
	for (unsigned op = 0; op < NET_OPERATIONS; op++) {
		int n = GROUP_WIDTH - (int)strlen(net_operation_names[op]) - 2;

		if (v->operations[op])
			printf("   %.*s %s %.*s", n / 2, dashes, net_operation_names[op], n - n / 2,
			       dashes);
	}
	printf("\n%9s", "bytes");
	for (unsigned op = 0; op < NET_OPERATIONS; op++)
		if (v->operations[op])
			printf("   %8s %8s %8s", "median", "p99", v->bandwidth ? "max" : "min");
	putchar('\n');
	fflush(stdout);
}

/* Microseconds; or of nanoseconds for each byte the GB/s. */
static const char *figure(const struct netverb *v, double ns, char *buf, size_t n)
{
	double rate = 1 / ns;

	if (!v->bandwidth)
		return text_us(ns, buf, n);
	snprintf(buf, n, "%.*f", rate < 9.9995 ? 3 : rate < 99.995 ? 2 : 1, rate);
	return buf;
}

void netverb_print_row(const struct netverb *v, unsigned path, size_t size)
{
	char a[32], b[32], c[32];

	printf("%9zu", v->sizes[size]);
	for (unsigned op = 0; op < NET_OPERATIONS; op++) {
		const struct bench_stats *s = &v->results[size][path][op].stats;

		if (v->operations[op])
			printf("   %8s %8s %8s", figure(v, s->median, a, sizeof(a)),
			       figure(v, s->p99, b, sizeof(b)), figure(v, s->min, c, sizeof(c)));
	}
	putchar('\n');
	fflush(stdout);
}

/* A line for each way that was taken: where it is another than that of the next smaller size. */
static void print_ways(const struct netverb *v, unsigned path, unsigned op)
{
	const char *before = "";
	char text[640], bytes[32];

	for (size_t i = 0; i < v->nsizes; i++) {
		const struct net_result *r = &v->results[i][path][op];

		if (!strcmp(r->path, before))
			continue;
		before = r->path;
		text_bytes(v->sizes[i], bytes, sizeof(bytes));
		snprintf(text, sizeof(text), "%s, path %s, from %s on: %s",
			 net_operation_names[op], net_path_names[path], bytes, r->path);
		text_wrap(stdout, text, 0, 2);
	}
}

void netverb_print_ways(const struct netverb *v)
{
	putchar('\n');
	for (unsigned path = 0; path < NET_PATHS; path++)
		for (unsigned op = 0; op < NET_OPERATIONS; op++)
			if (v->paths[path] && v->operations[op])
				print_ways(v, path, op);
}

/* ---- for programs ------------------------------------------------------------------------- */

static void json_flag(struct json *j, const char *key, bool yes)
{
	json_key(j, key);
	json_bool(j, yes);
}

static void json_rate(struct json *j, const struct bench_stats *s)
{
	measure_json_double(j, "median_gbs", 1 / s->median);
	measure_json_double(j, "p99_gbs", 1 / s->p99);
	measure_json_double(j, "max_gbs", 1 / s->min);
	measure_json_double(j, "min_gbs", 1 / s->max);
	measure_json_double(j, "q1_gbs", 1 / s->q3);
	measure_json_double(j, "q3_gbs", 1 / s->q1);
}

static void json_times(struct json *j, const struct bench_stats *s)
{
	measure_json_us(j, "median_us", s->median);
	measure_json_us(j, "p99_us", s->p99);
	measure_json_us(j, "min_us", s->min);
	measure_json_us(j, "max_us", s->max);
	measure_json_us(j, "q1_us", s->q1);
	measure_json_us(j, "q3_us", s->q3);
}

static void json_result(struct json *j, const struct netverb *v, const struct net_result *r)
{
	json_object(j);
	if (v->bandwidth)
		json_rate(j, &r->stats);
	else
		json_times(j, &r->stats);
	measure_json_number(j, "samples", r->stats.samples);
	json_flag(j, "direct", r->direct);
	measure_json_text(j, "path", r->path);
	json_flag(j, "verified", true); /* or the run has failed */
	json_object_end(j);
}

static void json_row(struct json *j, const struct netverb *v, size_t size)
{
	json_object(j);
	measure_json_text(j, "memory", v->net.host ? "host" : "gpu");
	measure_json_number(j, "size_bytes", v->sizes[size]);
	for (unsigned path = 0; path < NET_PATHS; path++) {
		if (!v->paths[path])
			continue;
		json_key(j, net_path_names[path]);
		json_object(j);
		for (unsigned op = 0; op < NET_OPERATIONS; op++) {
			if (!v->operations[op])
				continue;
			json_key(j, net_operation_names[op]);
			json_result(j, v, &v->results[size][path][op]);
		}
		json_object_end(j);
	}
	json_object_end(j);
}

static void json_peer(struct json *j, const struct netverb *v)
{
	json_key(j, "peer");
	json_object(j);
	measure_json_text(j, "name", v->peer.name);
	measure_json_text(j, "host", v->peer.host);
	measure_json_text(j, "device", v->other.device);
	json_flag(j, "soft", v->other.soft);
	measure_json_text(j, "rung", v->other.rung);
	measure_json_text(j, "reason", v->other.reason);
	json_object_end(j);
}

void netverb_json(struct json *j, void *arg)
{
	const struct netverb *v = arg;

	json_object(j);
	measure_json_head(j, &v->m, NULL);
	json_peer(j, v);
	measure_json_text(j, "network", v->peer.network);
	measure_json_number(j, "rails", v->peer.rails);
	json_key(j, "threads");
	if (v->net.threads < 0)
		json_null(j);
	else
		json_int(j, v->net.threads);
	measure_json_text(j, "rung", v->region.rung);
	measure_json_text(j, "reason", v->region.reason);
	if (v->bandwidth)
		measure_json_number(j, "window", v->window);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < v->nsizes; i++)
		json_row(j, v, i);
	json_array_end(j);
	json_object_end(j);
}
