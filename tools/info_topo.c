/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/info_topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/root.h"
#include "tools/text.h"

#define WIDEST 32 /* lanes; some systems say 63 or 255 for "unknown" */

/* ---- the PCIe path ----------------------------------------------------------------------- */

static bool is_address(const char *s)
{
	unsigned domain, bus, slot, function;
	int end = 0;

	return sscanf(s, "%8x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) == 4 &&
	       !s[end] && end >= 12 && end < 16;
}

static void read_rate(const char *address, const char *when, struct topo_rate *rate)
{
	char path[128], line[64];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s_link_speed", address, when);
	if (root_line(path, line, sizeof(line)) && strstr(line, "GT/s"))
		rate->speed = strtod(line, NULL); /* "32.0 GT/s PCIe", "Unknown" */
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s_link_width", address, when);
	if (root_line(path, line, sizeof(line)))
		rate->width = (unsigned)strtoul(line, NULL, 10);
	if (rate->speed < 0 || rate->speed > 1e4)
		rate->speed = 0;
	if (rate->width > WIDEST)
		rate->width = 0;
}

/* The device's real path has its bridges in it: .../pci0000:16/0000:16:01.0/0000:17:00.0 */
static void read_path(struct topo *t, const char *pci)
{
	char link[ROOT_PATH], *path, *slash;

	path = realpath(root_path(link, "/sys/bus/pci/devices/%s", pci), NULL);
	while (path && t->nsteps < TOPO_STEPS && (slash = strrchr(path, '/')) != NULL &&
	       is_address(slash + 1)) {
		struct topo_step *step = &t->step[t->nsteps++];

		memcpy(step->address, slash + 1, strlen(slash + 1) + 1);
		read_rate(step->address, "current", &step->now);
		read_rate(step->address, "max", &step->most);
		*slash = 0;
	}
	free(path);
}

bool topo_slow(const struct topo *t, unsigned i, struct topo_rate *most)
{
	const struct topo_step *low = &t->step[i], *high = low + 1;
	const struct topo_rate *a, *b;

	/* steps 0 and 1 are the ends of a link, 1 and 2 the two sides of a switch, and so on */
	if (i % 2 || i + 1 >= t->nsteps)
		return false;
	a = &low->most;
	b = &high->most;
	most->speed = a->speed < b->speed ? a->speed : b->speed;
	most->width = a->width < b->width ? a->width : b->width;
	return (low->now.speed > 0 && low->now.speed < most->speed) ||
	       (low->now.width && low->now.width < most->width);
}

bool topo_narrow(const struct topo *t, unsigned i)
{
	struct topo_rate most;

	return topo_slow(t, i, &most) && t->step[i].now.width && t->step[i].now.width < most.width;
}

const char *topo_rate_text(const struct topo_rate *rate, char *buf, size_t n)
{
	if (rate->speed > 0 && rate->width)
		snprintf(buf, n, "%g GT/s x%u", rate->speed, rate->width);
	else if (rate->speed > 0)
		snprintf(buf, n, "%g GT/s", rate->speed);
	else if (rate->width)
		snprintf(buf, n, "x%u", rate->width);
	else
		snprintf(buf, n, "unknown");
	return buf;
}

/* ---- NUMA -------------------------------------------------------------------------------- */

/* The nodes of a list like "0-1,4". */
static void read_nodes(struct topo *t)
{
	char line[512], *s = line;

	if (!root_line("/sys/devices/system/node/online", line, sizeof(line)))
		return;
	while (*s >= '0' && *s <= '9') {
		long from = strtol(s, &s, 10), to = *s == '-' ? strtol(s + 1, &s, 10) : from;

		for (; from <= to && to < 1 << 16 && t->nnodes < TOPO_NODES; from++)
			t->to[t->nnodes++].node = (int)from;
		s += *s == ',';
	}
}

/* The file has the distances from @t->node to the nodes that are online, in their order. */
static bool read_distances(struct topo *t)
{
	char path[96], line[512], *s = line, *end;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/distance", t->node);
	if (!root_line(path, line, sizeof(line)))
		return false;
	for (unsigned i = 0; i < t->nnodes; i++, s = end) {
		t->to[i].distance = (int)strtol(s, &end, 10);
		if (end == s)
			return false;
	}
	return true;
}

static void read_numa(struct topo *t, const char *pci)
{
	char path[96], line[32], *end;
	unsigned cpu, node;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	if (!root_line(path, line, sizeof(line)))
		return;
	t->node = (int)strtol(line, &end, 10);
	if (end == line || *end || t->node < 0) {
		t->node = -1;
		return;
	}
	if (!syscall(SYS_getcpu, &cpu, &node, NULL))
		t->thread_node = (int)node;
	read_nodes(t);
	if (!read_distances(t))
		t->nnodes = 0;
	for (unsigned i = 0; i < t->nnodes; i++)
		if (t->to[i].node == t->thread_node)
			t->thread_distance = t->to[i].distance;
}

void topo_read(struct topo *t, const char *pci)
{
	*t = (struct topo){ .node = -1, .thread_node = -1, .thread_distance = -1 };
	if (!is_address(pci))
		return;
	read_path(t, pci);
	read_numa(t, pci);
}

/* ---- for people and programs ------------------------------------------------------------- */

static void print_numa(const struct topo *t)
{
	char text[2048];
	size_t n = 0;

	if (!t->nnodes)
		return;
	n = (size_t)snprintf(text, sizeof(text), "from node %d:", t->node);
	for (unsigned i = 0; i < t->nnodes && n < sizeof(text) - 128; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, " %d to node %d%s",
				      t->to[i].distance, t->to[i].node,
				      i + 1 < t->nnodes ? "," : "");
	if (t->thread_distance >= 0)
		snprintf(text + n, sizeof(text) - n, "; this thread runs on node %d, at %d",
			 t->thread_node, t->thread_distance);
	text_field(stdout, "NUMA distances", text);
}

void topo_print(const struct topo *t)
{
	struct topo_rate most;
	char now[32], best[32], text[256];

	print_numa(t);
	for (unsigned i = 0; i < t->nsteps; i++) {
		const struct topo_step *s = &t->step[i];

		snprintf(text, sizeof(text), "%s: %s, at most %s%s", s->address,
			 topo_rate_text(&s->now, now, sizeof(now)),
			 topo_rate_text(&s->most, best, sizeof(best)),
			 i + 1 == t->nsteps && i ? " (root port)" : "");
		text_field(stdout, i ? "" : "PCIe path", text);
	}
	for (unsigned i = 0; i < t->nsteps; i++) {
		if (!topo_slow(t, i, &most))
			continue;
		snprintf(text, sizeof(text), "the link from %s to %s runs at %s, both ends can do "
			 "%s%s", t->step[i].address, t->step[i + 1].address,
			 topo_rate_text(&t->step[i].now, now, sizeof(now)),
			 topo_rate_text(&most, best, sizeof(best)),
			 topo_narrow(t, i) ? "" : ": normal while a GPU is idle");
		text_field(stdout, "", text);
	}
}

static void json_rate(struct json *j, const char *speed_key, const char *width_key,
		      const struct topo_rate *rate)
{
	json_key(j, speed_key);
	if (rate->speed > 0)
		json_double(j, rate->speed);
	else
		json_null(j);
	json_key(j, width_key);
	if (rate->width)
		json_uint(j, rate->width);
	else
		json_null(j);
}

static void json_or_null(struct json *j, const char *key, int v)
{
	json_key(j, key);
	if (v < 0)
		json_null(j);
	else
		json_int(j, v);
}

static void json_numa(struct json *j, const struct topo *t)
{
	json_key(j, "numa");
	json_object(j);
	json_or_null(j, "node", t->node);
	json_or_null(j, "thread_node", t->thread_node);
	json_or_null(j, "thread_distance", t->thread_distance);
	json_key(j, "distances");
	json_array(j);
	for (unsigned i = 0; i < t->nnodes; i++) {
		json_object(j);
		json_or_null(j, "node", t->to[i].node);
		json_or_null(j, "distance", t->to[i].distance);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

void topo_json(struct json *j, const struct topo *t)
{
	struct topo_rate most;

	json_numa(j, t);
	json_key(j, "pcie_path");
	json_array(j);
	for (unsigned i = 0; i < t->nsteps; i++) {
		json_object(j);
		json_key(j, "address");
		json_string(j, t->step[i].address);
		json_rate(j, "speed_gts", "width_lanes", &t->step[i].now);
		json_rate(j, "max_speed_gts", "max_width_lanes", &t->step[i].most);
		json_key(j, "below_both_ends");
		json_bool(j, topo_slow(t, i, &most));
		json_object_end(j);
	}
	json_array_end(j);
}
