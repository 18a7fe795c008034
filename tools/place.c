/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/place.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_NUMA
#include <numa.h>
#endif

#include "tools/options.h"

#define NODES 1024 /* the most that Linux can be built for */

bool place_parse(const char *text, struct place_choice *choice)
{
	uint64_t node = 0;

	*choice = (struct place_choice){ 0 };
	if (!strcmp(text, "near"))
		choice->want = PLACE_NEAR;
	else if (!strcmp(text, "far"))
		choice->want = PLACE_FAR;
	else if (!strncmp(text, "node:", 5) && parse_count(text + 5, 0, NODES - 1, &node))
		choice->want = PLACE_NODE;
	else
		return false;
	choice->node = (unsigned)node;
	return true;
}

int place_here(void)
{
	unsigned cpu, node;

	return getcpu(&cpu, &node) ? -1 : (int)node;
}

static bool node_has_cpus(int node)
{
	char path[64], list[8] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(list, sizeof(list), f))
		*list = 0;
	fclose(f);
	return *list >= '0' && *list <= '9';
}

int place_nodes(void)
{
	int n = 0;

	for (int node = 0; node < NODES; node++)
		n += node_has_cpus(node);
	return n ? n : 1;
}

bool place_warn(const char *verb, const struct place_choice *choice, int gpu_node)
{
	int here = place_here();

	if (gpu_node < 0 || here < 0 || here == gpu_node)
		return false;
	if (choice->want == PLACE_DEFAULT || choice->want == PLACE_NEAR)
		failure(verb, "warning: this thread runs on NUMA node %d, the device is on node "
			"%d: figures are worse than from near it; use 'numactl -N %d -m %d'", here,
			gpu_node, gpu_node, gpu_node);
	return true;
}

/* With one node all is near, also where the system does not say so of the device. */
static bool near_anyway(const struct place_choice *choice)
{
	return choice->want == PLACE_NEAR && place_nodes() == 1;
}

#ifdef HAVE_NUMA

/* Did taskset, numactl, or the like say where to run? Then that holds. */
static bool bound_already(void)
{
	static cpu_set_t sets[8]; /* 8192, the most that Linux can be built for */

	return !sched_getaffinity(0, sizeof(sets), sets) &&
	       CPU_COUNT_S(sizeof(sets), sets) < sysconf(_SC_NPROCESSORS_ONLN);
}

/* Memory elsewhere, where the node has none left, is still better than none. */
int place_bind(const char *verb, int node)
{
	if (node < 0)
		return TOOL_OK;
	errno = 0;
	if (numa_run_on_node(node))
		return failure(verb, "--numa: cannot run on node %d: %s: allow its CPUs (cpuset, "
			       "container)", node, strerror(errno));
	numa_set_preferred(node);
	return TOOL_OK;
}

static int farthest(int from)
{
	int best = -1, distance = 0;

	for (int node = 0; node <= numa_max_node(); node++) {
		if (node == from || !node_has_cpus(node))
			continue;
		if (best < 0 || numa_distance(from, node) > distance) {
			best = node;
			distance = numa_distance(from, node);
		}
	}
	return best;
}

/* The node that the user asked for, -1: there is none, after a line that says why. */
static int wanted(const char *verb, const struct place_choice *choice, int gpu_node)
{
	int node;

	if (choice->want == PLACE_NODE) {
		if (node_has_cpus((int)choice->node))
			return (int)choice->node;
		usage_error(verb, "--numa: there is no node %u with CPUs: see 'numactl -H'",
			    choice->node);
		return -1;
	}
	if (choice->want == PLACE_FAR && place_nodes() == 1) {
		usage_error(verb, "--numa: this machine has one NUMA node: there is no far one");
		return -1;
	}
	if (gpu_node < 0) {
		usage_error(verb, "--numa: the system does not say which NUMA node the device is "
			    "on: use node:N");
		return -1;
	}
	node = choice->want == PLACE_FAR ? farthest(gpu_node) : gpu_node;
	if (node < 0)
		usage_error(verb, "--numa: no other node than %d has CPUs", gpu_node);
	return node;
}

int place_choose(const char *verb, const struct place_choice *choice, int gpu_node, int *node)
{
	*node = -1;
	if (choice->want == PLACE_DEFAULT) {
		if (gpu_node >= 0 && place_nodes() > 1 && numa_available() >= 0 &&
		    node_has_cpus(gpu_node) && !bound_already())
			*node = gpu_node;
		return TOOL_OK;
	}
	if (near_anyway(choice))
		return TOOL_OK;
	*node = wanted(verb, choice, gpu_node);
	if (*node < 0)
		return TOOL_USAGE;
	if (numa_available() >= 0)
		return TOOL_OK;
	return failure(verb, "--numa: this system does not let a program choose its NUMA node "
		       "(seccomp, or a kernel without NUMA): leave the option away");
}

#else

int place_choose(const char *verb, const struct place_choice *choice, int gpu_node, int *node)
{
	(void)gpu_node;
	*node = -1;
	if (choice->want == PLACE_DEFAULT || near_anyway(choice))
		return TOOL_OK;
	if (choice->want == PLACE_FAR && place_nodes() == 1)
		return usage_error(verb, "--numa: this machine has one NUMA node: there is no far "
				   "one");
	return usage_error(verb, "--numa: built without libnuma: install libnuma-dev and build "
			   "again, or use 'numactl -N NODE -m NODE'");
}

int place_bind(const char *verb, int node)
{
	(void)verb;
	(void)node;
	return TOOL_OK;
}

#endif
