/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/plot: draws results with gnuplot, which is run for it. A result is what tools/measure.h
 * says. What can be drawn is a table in plot_kinds.c: a verb that measures has a row there.
 */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/json_read.h"

/* Whether @path can become a picture: its ending and its folder. Returns an exit code. */
int plot_check(const char *verb, const char *path);

#define PLOT_CURVES 256 /* at most, in one panel */
#define PLOT_BARS 512

struct plot_input {
	const char *name; /* of the file, where several are drawn together */
	const struct json_value *json;
};

/*
 * Draws the results, all of one schema, into @path. Returns an exit code; one line says what is
 * wrong, with the remedy where gnuplot is not there. After a failure @path is what it was before.
 */
int plot_draw(const char *verb, const struct plot_input *inputs, size_t n, const char *path);

/* What gnuplot is told; for plot_draw() and for tests. 0, or an exit code after a line. */
int plot_script(const char *verb, const struct plot_input *inputs, size_t n, bool png, FILE *out);

struct plot_series {
	const char *key;   /* member of a row: "barway" */
	const char *title; /* "Barway, one CPU thread" */
	const char *style; /* of the line, gnuplot's words */
};

struct plot_kind {
	const char *schema;  /* "barway-copylat-1" */
	const char *title;   /* "Latency of copies" */
	const char *y;       /* member of a series: "row.median_us" */
	const char *y_label; /* with its unit */
	/* Panels side by side: the string member of a row that chooses one, and its values. */
	const char *panel;
	struct {
		const char *value, *title;
	} panels[2];
	/* Curves, where the rows have them; NULL key ends. */
	const struct plot_series *series;
	/* No curves but bars, one for each row: the member that has its time; NULL: curves. */
	const char *bars;
};

/* NULL: this schema cannot be drawn. */
const struct plot_kind *plot_kind(const char *schema);

#endif
