/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/rows: the rows and measurements of a result, as tools/measure.h says what they are. */
#ifndef TOOLS_ROWS_H
#define TOOLS_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/json_read.h"

/* "to, 64 KiB", "to, 1500 B": the strings of a row and its size, exactly. Returns @buf. */
const char *rows_name(const struct json_value *row, char *buf, size_t n);

/* The row of "results" with that name; NULL: there is none. */
const struct json_value *rows_find(const struct json_value *result, const char *name);

struct rows_measurement {
	char name[64];       /* "barway.alone" */
	const char *unit;    /* "us", "gbs" */
	bool more_is_better;
	double median, low, high; /* low and high: of what is taken for noise */
};

/*
 * Calls @fn for each measurement in @v, which is a row or a whole result; "results" is left out,
 * and what has no finite median. Stops when @fn returns false.
 */
void rows_each(const struct json_value *v,
	       bool (*fn)(const struct rows_measurement *m, void *arg), void *arg);

/* The measurement of that name; false: there is none. */
bool rows_get(const struct json_value *v, const char *name, struct rows_measurement *out);

#endif
