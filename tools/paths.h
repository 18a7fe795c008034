/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/paths: what barway paths finds out, and how it is printed. */
#ifndef TOOLS_PATHS_H
#define TOOLS_PATHS_H

#include "tools/net.h"

#define PATHS_ROWS 256u
#define PATHS_SMALL 8u
#define PATHS_LARGE (4u << 20)

/* A device, a network, and an address of this machine. */
struct paths_row {
	int device; /* its index */
	char device_name[96], network[16], address[64];
	char refused[512];   /* why there is no such way; "": there is */
	char unmeasured[512]; /* why it has no figures; "": it has, or there is no peer */
	struct barway_region_info region;
	bool measured;
	struct net_result small, large; /* a send of PATHS_SMALL, puts of PATHS_LARGE */
};

struct paths {
	struct measure m;
	struct net_options net;
	struct net_local local;
	struct paths_row row[PATHS_ROWS];
	size_t rows;
};

void paths_print_row(const struct paths *p, const struct paths_row *r);
void paths_json(struct json *j, void *arg); /* @arg: a struct paths */

#endif
