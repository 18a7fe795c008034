/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/place: where threads run and their memory lies, seen from a device. */
#ifndef TOOLS_PLACE_H
#define TOOLS_PLACE_H

#include <stdbool.h>

#define PLACE_SYNTAX "near|far|node:N"

enum place_want {
	PLACE_DEFAULT, /* near, where that can be had and the user has not bound us himself */
	PLACE_NEAR,
	PLACE_FAR,
	PLACE_NODE,
};

struct place_choice {
	enum place_want want;
	unsigned node; /* PLACE_NODE */
};

/* Reads the value of --numa; false: it is none. */
bool place_parse(const char *text, struct place_choice *choice);

/*
 * The node that the choice means here, in @node; -1: bind to none. @gpu_node: of the device, -1
 * where the system does not say. Returns an exit code, with its line printed: TOOL_USAGE where the
 * choice cannot be had here.
 */
int place_choose(const char *verb, const struct place_choice *choice, int gpu_node, int *node);

/*
 * Binds this process to a node: this thread and those it makes, and memory that is touched after
 * it. -1: does nothing. Returns an exit code, with its line printed.
 */
int place_bind(const char *verb, int node);

/* The node that the calling thread runs on now, -1 where the system does not say. */
int place_here(void);

/* How many nodes have CPUs that this machine lets us see; at least 1. */
int place_nodes(void);

/*
 * One warning line on standard error where the calling thread is on another node than the device
 * and that was not asked for. Returns whether it is far.
 */
bool place_warn(const char *verb, const struct place_choice *choice, int gpu_node);

#endif
