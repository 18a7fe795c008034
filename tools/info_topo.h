/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/info_topo: where a GPU sits, as the kernel says in sysfs: the PCIe path from it up to the
 * root port, and how far the NUMA nodes are from it. What sysfs does not have (virtual machines,
 * containers) is left out.
 */
#ifndef TOOLS_INFO_TOPO_H
#define TOOLS_INFO_TOPO_H

#include <stdbool.h>

#include "tools/json.h"

#define TOPO_STEPS 16
#define TOPO_NODES 64

struct topo_rate {
	double speed;   /* GT/s; 0: unknown */
	unsigned width; /* lanes; 0: unknown */
};

struct topo_step {
	char address[16];
	struct topo_rate now, most; /* of its link; a switch has a step for each of its two ports */
};

struct topo {
	unsigned nsteps;
	struct topo_step step[TOPO_STEPS]; /* the GPU first; "": no address */
	int node;                          /* the GPU's; -1: unknown */
	int thread_node, thread_distance;  /* the calling thread's, and from the GPU's; -1 */
	unsigned nnodes;
	struct {
		int node, distance;        /* from the GPU's node; 10 is the node itself */
	} to[TOPO_NODES];
};

/* @pci: "0000:17:00.0", or "" for no place at all. */
void topo_read(struct topo *t, const char *pci);

/* Does the link above step @i carry less than both its ends can do? @most: what they can. */
bool topo_slow(const struct topo *t, unsigned i, struct topo_rate *most);

/* Has it fewer lanes? A GPU that is idle lowers the speed of its link, never the width. */
bool topo_narrow(const struct topo *t, unsigned i);

/* "32 GT/s x16", "unknown"; returns @buf */
const char *topo_rate_text(const struct topo_rate *rate, char *buf, size_t n);

void topo_print(const struct topo *t);               /* lines of 'barway info' */
void topo_json(struct json *j, const struct topo *t); /* keys "numa" and "pcie_path" */

#endif
