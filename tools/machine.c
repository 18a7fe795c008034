/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/machine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "tools/text.h"

/* How many CPUs the scheduler may choose from, and which one it is where there is no other. */
static void read_cpus(struct measure *m)
{
	static cpu_set_t sets[8]; /* 8192, the most that Linux can be built for */

	m->cpus = sched_getaffinity(0, sizeof(sets), sets) ? 0 : CPU_COUNT_S(sizeof(sets), sets);
	m->pinned_cpu = -1;
	for (int cpu = 0; m->cpus == 1 && cpu < (int)sizeof(sets) * 8; cpu++) {
		if (CPU_ISSET_S(cpu, sizeof(sets), sets))
			m->pinned_cpu = cpu;
	}
}

static const char *choice_text(const struct place_choice *choice, char *buf, size_t n)
{
	static const char *const names[] = {
		[PLACE_DEFAULT] = "default",
		[PLACE_NEAR] = "near",
		[PLACE_FAR] = "far",
	};

	if (choice->want == PLACE_NODE)
		snprintf(buf, n, "node:%u", choice->node);
	else
		snprintf(buf, n, "%s", names[choice->want]);
	return buf;
}

void machine_read(struct measure *m)
{
	time_t now = time(NULL);
	struct utsname u;
	struct tm utc;

	gmtime_r(&now, &utc);
	strftime(m->date, sizeof(m->date), "%Y-%m-%dT%H:%M:%SZ", &utc);
	text_cpu(m->cpu, sizeof(m->cpu));
	snprintf(m->kernel, sizeof(m->kernel), "%.*s", (int)sizeof(m->kernel) - 1,
		 uname(&u) ? "unknown" : u.release);
	read_cpus(m);
	m->node = place_here();
}

/* ---- for people -------------------------------------------------------------------------- */

static void print_numa(const struct measure *m)
{
	int nodes = place_nodes();

	if (nodes == 1) {
		fputs("; one NUMA node", stdout);
		return;
	}
	if (m->node >= 0)
		printf("; on NUMA node %d of %d", m->node, nodes);
	if (m->info.numa_node >= 0)
		printf(", device on node %d%s", m->info.numa_node, m->far ? ": FAR" : "");
}

void measure_print_head(const struct measure *m, const struct barway_mapping_info *path)
{
	unsigned v = barway_version();

	if (m->soft)
		puts(TEXT_SOFT);
	printf("barway %u.%u.%u %s: %s%s%s%s", v >> 16, v >> 8 & 255, v & 255, m->verb,
	       m->info.name, *m->info.pci ? " (" : "", m->info.pci, *m->info.pci ? ")" : "");
	if (*m->info.driver)
		printf("; driver %s", m->info.driver);
	if (path)
		printf("; provider %s%s%s; kernels %s/%s", path->provider,
		       *path->route ? " by " : "", path->route, path->store_kernel,
		       path->load_kernel);
	printf("\n%s", m->cpu);
	if (m->pinned_cpu >= 0)
		printf(", pinned to CPU %d", m->pinned_cpu);
	print_numa(m);
	printf("; kernel %s; %s\n", m->kernel, m->date);
}

/* ---- for programs ------------------------------------------------------------------------ */

void measure_json_text(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value && *value ? value : NULL);
}

void measure_json_number(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	json_uint(j, v);
}

void measure_json_double(struct json *j, const char *key, double v)
{
	json_key(j, key);
	json_double(j, v);
}

void measure_json_us(struct json *j, const char *key, double ns)
{
	measure_json_double(j, key, ns / 1e3);
}

void measure_json_stats(struct json *j, const char *key, const struct bench_stats *s)
{
	json_key(j, key);
	if (!s->samples) {
		json_null(j);
		return;
	}
	json_object(j);
	measure_json_us(j, "median_us", s->median);
	measure_json_us(j, "p99_us", s->p99);
	measure_json_us(j, "min_us", s->min);
	measure_json_us(j, "max_us", s->max);
	measure_json_us(j, "q1_us", s->q1);
	measure_json_us(j, "q3_us", s->q3);
	measure_json_number(j, "samples", s->samples);
	json_object_end(j);
}

static void json_int_or_null(struct json *j, const char *key, int v)
{
	json_key(j, key);
	if (v < 0)
		json_null(j);
	else
		json_int(j, v);
}

static const char *caching_name(uint32_t caching)
{
	return caching == BARWAY_WRITE_COMBINED ? "write-combined"
	       : caching == BARWAY_CACHED ? "cached"
	       : caching == BARWAY_UNCACHED ? "uncached" : NULL;
}

static void json_path(struct json *j, const struct barway_mapping_info *path)
{
	json_key(j, "path");
	json_object(j);
	measure_json_text(j, "provider", path->provider);
	measure_json_text(j, "route", path->route);
	measure_json_text(j, "caching", caching_name(path->caching));
	measure_json_text(j, "store_kernel", path->store_kernel);
	measure_json_text(j, "load_kernel", path->load_kernel);
	measure_json_text(j, "reason", path->reason);
	json_object_end(j);
}

void measure_json_head(struct json *j, const struct measure *m,
		       const struct barway_mapping_info *path)
{
	unsigned v = barway_version();
	char text[48];

	measure_json_text(j, "schema", m->schema);
	snprintf(text, sizeof(text), "%u.%u.%u", v >> 16, v >> 8 & 255, v & 255);
	measure_json_text(j, "version", text);
	json_key(j, "soft");
	json_bool(j, m->soft);
	measure_json_text(j, "note", m->soft ? TEXT_SOFT : NULL);
	measure_json_text(j, "date", m->date);
	json_key(j, "device");
	json_object(j);
	measure_json_text(j, "kind", m->soft ? "soft" : "cuda");
	measure_json_text(j, "name", m->info.name);
	measure_json_text(j, "pci", m->info.pci);
	measure_json_text(j, "uuid", m->info.uuid);
	measure_json_text(j, "driver", m->info.driver);
	measure_json_text(j, "near_cpus", m->info.near_cpus);
	json_int_or_null(j, "numa_node", m->info.numa_node);
	json_object_end(j);
	measure_json_text(j, "cpu", m->cpu);
	measure_json_text(j, "kernel", m->kernel);
	json_int_or_null(j, "pinned_cpu", m->pinned_cpu);
	measure_json_text(j, "numa", choice_text(&m->numa, text, sizeof(text)));
	json_int_or_null(j, "numa_node", m->node);
	measure_json_number(j, "numa_nodes", (uint64_t)place_nodes());
	if (path)
		json_path(j, path);
}
