/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/netverb: what netlat and netbw have in common: all but the help and the figures' unit. */
#ifndef TOOLS_NETVERB_H
#define TOOLS_NETVERB_H

#include "tools/net.h"

#define NETVERB_SIZES 32u

struct netverb {
	/* set by the verb */
	struct measure m;
	const char *help;
	bool bandwidth;
	uint64_t least, max, factor; /* sizes: least, times factor ... max */
	double seconds;              /* for each size, path and operation */
	uint64_t window;

	/* options */
	struct net_options net;
	uint64_t only, reps;
	bool max_set;
	bool operations[NET_OPERATIONS], paths[NET_PATHS];

	/* the run */
	struct net_end end;
	struct net_local local;
	struct barway_key data, notes; /* the peer's */
	struct barway_peer_info peer;
	struct barway_region_info region;
	struct net_answer other; /* what the other end said of itself */
	size_t sizes[NETVERB_SIZES];
	struct net_result results[NETVERB_SIZES][NET_PATHS][NET_OPERATIONS];
	size_t nsizes;
};

/* Parses, measures, prints. Returns an exit code. */
int netverb_main(struct netverb *v, int argc, char **argv);

/* tools/netverb_print.c */
void netverb_print_head(const struct netverb *v);
void netverb_print_titles(const struct netverb *v, unsigned path);
void netverb_print_row(const struct netverb *v, unsigned path, size_t size);
void netverb_print_ways(const struct netverb *v); /* by which way the bytes went */
void netverb_json(struct json *j, void *arg);     /* @arg: a struct netverb */

#endif
