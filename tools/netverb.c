/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/netverb.h"

#include <stdio.h>
#include <string.h>

#include "tools/options.h"
#include "tools/progress.h"
#include "tools/text.h"

#define WINDOW_BYTES (64u << 20) /* what a window moves is in memory of its own, up to so much */

/* ---- options ------------------------------------------------------------------------------ */

#define SHORTS ":" MEASURE_SHORTS "ls:c:t:"

static const struct option longs[] = {
	{ "size", required_argument, NULL, 's' },
	{ "copy-size", required_argument, NULL, 'c' },
	{ "iterations", required_argument, NULL, 't' },
	{ "operations", required_argument, NULL, 'O' },
	{ "path", required_argument, NULL, 'P' },
	{ "host", no_argument, NULL, 'H' },
	{ "window", required_argument, NULL, 'W' },
	NET_LONGS,
	MEASURE_LONGS,
	{ 0 },
};

/* Marks the names in a comma-separated list. */
static int parse_list(const struct netverb *v, const char *option, const char *text,
		      const char *const names[], unsigned n, bool chosen[])
{
	char list[64] = "";

	for (unsigned i = 0; i < n; i++) {
		chosen[i] = false;
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? ", " : "",
			 names[i]);
	}
	while (*text) {
		size_t len = strcspn(text, ",");
		unsigned i = 0;

		while (i < n && (strlen(names[i]) != len || memcmp(names[i], text, len)))
			i++;
		if (i == n)
			break;
		chosen[i] = true;
		text += len + (text[len] == ',');
		if (!text[0] && text[-1] != ',')
			return TOOL_OK;
	}
	return usage_error(v->m.verb, "%s: '%s' is not a list of %s", option, optarg, list);
}

static int parse_own(struct netverb *v, int c)
{
	switch (c) {
	case 's':
		v->max_set = true;
		return measure_size(&v->m, "-s", optarg, v->least, &v->max);
	case 'c':
		return measure_size(&v->m, "-c", optarg, 1, &v->only);
	case 't':
		return measure_count(&v->m, "-t", optarg, 1, 1000000, &v->reps);
	case 'O':
		return parse_list(v, "--operations", optarg, net_operation_names, NET_OPERATIONS,
				  v->operations);
	case 'P':
		return parse_list(v, "--path", optarg, net_path_names, NET_PATHS, v->paths);
	case 'W':
		if (!v->bandwidth)
			return usage_error(v->m.verb, "--window is for netbw: here one goes to and "
					   "fro");
		return measure_count(&v->m, "--window", optarg, 1, NET_WINDOW_MAX, &v->window);
	default:
		v->net.host = true;
		return TOOL_OK;
	}
}

static int parse_one(struct netverb *v, int c)
{
	int code = measure_option(&v->m, c);

	if (code == MEASURE_OTHER)
		code = net_option(&v->m, &v->net, c);
	return code == MEASURE_OTHER ? parse_own(v, c) : code;
}

static int choose_sizes(struct netverb *v)
{
	uint64_t most = v->only ? v->only : v->max;

	if (v->only && v->max_set)
		return usage_error(v->m.verb, "-s and -c: sizes up to one, or one: leave one away");
	if (most > NET_MOST)
		return usage_error(v->m.verb, "%s: more than %u MiB are not measured",
				   v->only ? "-c" : "-s", NET_MOST >> 20);
	for (uint64_t n = v->only ? v->only : v->least; v->nsizes < NETVERB_SIZES; n *= v->factor) {
		v->sizes[v->nsizes++] = n < most ? n : most;
		if (n >= most)
			break;
	}
	return TOOL_OK;
}

/* ---- the run ------------------------------------------------------------------------------ */

/* The other end: a process of ours, on another device than this one where there is one. */
static int open_local(struct netverb *v, char name[64])
{
	int count = barway_device_count(v->m.ctx);
	struct barway_device *dev;
	char device[64];

	if (v->net.peer_device && barway_device_find(v->m.ctx, v->net.peer_device, &dev) < 0)
		return usage_error(v->m.verb, "--peer-device: %s", barway_errmsg());
	if (v->net.peer_device)
		snprintf(device, sizeof(device), "%s", v->net.peer_device);
	else
		snprintf(device, sizeof(device), "%d",
			 count > 1 ? (v->m.info.index + 1) % count : 0);
	return net_local_open(&v->local, v->m.verb, device, &v->net, name);
}

static unsigned slots(const struct netverb *v, size_t bytes)
{
	uint64_t n = WINDOW_BYTES / bytes;

	return (unsigned)(n < 1 ? 1 : n < v->window ? n : v->window);
}

static size_t memory_wanted(const struct netverb *v)
{
	size_t most = 0;

	for (size_t i = 0; i < v->nsizes; i++) {
		size_t bytes = v->sizes[i] * (v->bandwidth ? slots(v, v->sizes[i]) : 1);

		most = bytes > most ? bytes : most;
	}
	return most;
}

static int learn(struct netverb *v)
{
	int ret = barway_peer_query(v->end.peer, &v->peer);

	if (ret == 0)
		ret = barway_region_query(v->end.region, &v->region);
	if (ret < 0)
		return net_barway(&v->end, ret);
	v->other = v->end.notes->answer;
	v->data = v->other.data;
	v->notes = v->other.notes;
	return 0;
}

static int connect_all(struct netverb *v)
{
	char name[64];
	int code = measure_open(&v->m);

	if (code)
		return code;
	v->end.ctx = v->m.ctx;
	v->end.dev = v->m.dev;
	v->peer.size = sizeof(v->peer);
	v->region.size = sizeof(v->region);
	if (v->net.local) {
		net_take_share(&v->net, false);
		code = open_local(v, name);
	}
	if (code)
		return code;
	progress("connecting");
	if (net_end_open(&v->end, &v->net) < 0 ||
	    net_connect(&v->end, v->net.local ? name : v->net.name, memory_wanted(v),
			v->net.host) < 0 ||
	    learn(v) < 0) {
		progress_clear();
		return failure(v->m.verb, "%s", v->end.error);
	}
	progress_clear();
	return TOOL_OK;
}

static int measure_one(struct netverb *v, size_t size, unsigned path, unsigned op)
{
	const struct net_case c = {
		.operation = op + 1, .path = path, .bytes = v->sizes[size],
		.window = (unsigned)v->window, .slots = slots(v, v->sizes[size]),
		.reps = v->reps, .seconds = v->seconds, .data = &v->data, .notes = &v->notes,
	};
	struct net_result *out = &v->results[size][path][op];
	char text[32];
	int ret;

	progress("%s, path %s, %s", net_operation_names[op], net_path_names[path],
		 text_bytes(c.bytes, text, sizeof(text)));
	ret = v->bandwidth ? net_bandwidth(&v->end, &c, out) : net_latency(&v->end, &c, out);
	progress_clear();
	if (ret == 0)
		return TOOL_OK;
	return failure(v->m.verb, "%s of %s, path %s: %s", net_operation_names[op], text,
		       net_path_names[path], v->end.error);
}

static int measure_path(struct netverb *v, unsigned path)
{
	int code = TOOL_OK;

	if (!v->m.json)
		netverb_print_titles(v, path);
	for (size_t size = 0; size < v->nsizes && code == TOOL_OK; size++) {
		for (unsigned op = 0; op < NET_OPERATIONS && code == TOOL_OK; op++)
			if (v->operations[op])
				code = measure_one(v, size, path, op);
		if (code == TOOL_OK && !v->m.json)
			netverb_print_row(v, path, size);
	}
	return code;
}

static int run(struct netverb *v)
{
	int code = connect_all(v);

	if (code == TOOL_OK && !v->m.json)
		netverb_print_head(v);
	for (unsigned path = 0; path < NET_PATHS && code == TOOL_OK; path++)
		if (v->paths[path])
			code = measure_path(v, path);
	if (code)
		return code;
	net_disconnect(&v->end);
	if (!v->m.json)
		netverb_print_ways(v);
	return measure_finish(&v->m, netverb_json, v);
}

int netverb_main(struct netverb *v, int argc, char **argv)
{
	int c, code = TOOL_OK;

	v->net.threads = -1;
	v->paths[BARWAY_PATH_AUTO] = true;
	for (unsigned i = 0; i < NET_OPERATIONS; i++)
		v->operations[i] = true;
	while (code == TOOL_OK && (c = next_option_only(argc, argv, SHORTS, longs)) != -1) {
		if (c == 'h') {
			fputs(v->help, stdout);
			return TOOL_OK;
		}
		code = parse_one(v, c);
	}
	if (code == TOOL_OK)
		code = net_check(&v->m, &v->net, argc, argv);
	if (code == TOOL_OK)
		code = choose_sizes(v);
	if (code == TOOL_OK)
		code = measure_check(&v->m);
	if (code)
		return code;
	if (v->net.server)
		return net_server(&v->m, &v->net);
	progress_begin();
	if (v->net.local)
		code = net_local_start(&v->local, &v->m, &v->net);
	if (code == TOOL_OK)
		code = run(v);
	net_end_close(&v->end);
	measure_close(&v->m);
	net_local_end(&v->local);
	return code;
}
