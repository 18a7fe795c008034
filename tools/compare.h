/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/compare: two results of one verb, as tools/measure.h says, row by row.
 *
 * A measurement moved where its medians differ by more than 5 % and 5 ns and each lies outside the
 * other run's quartiles; results without quartiles: outside its minimum and 99th percentile.
 */
#ifndef TOOLS_COMPARE_H
#define TOOLS_COMPARE_H

#include <stdio.h>

#include "tools/json_read.h"

#define COMPARE_NOISE 0.05
#define COMPARE_LEAST_US 0.005

/* Reads @path and refuses what is no result with @schema. Returns an exit code. */
int compare_read(const char *verb, const char *path, const char *schema, struct json_value **out);

/* Whether it was taken on this @kind of device, "soft" or "cuda"; else a line and an exit code. */
int compare_check(const char *verb, const struct json_value *old, const char *kind);

/*
 * Prints the table to @out, and what only one of the two has; warns where they were not measured
 * alike. Returns an exit code: TOOL_USAGE where they have no row in common.
 */
int compare_print(const char *verb, const struct json_value *old, const struct json_value *new,
		  FILE *out);

#endif
