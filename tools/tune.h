/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/tune: what barway tune measured or was told, and how it is shown. */
#ifndef TOOLS_TUNE_H
#define TOOLS_TUNE_H

#include "tools/measure.h"

#define TUNE_METHODS 5 /* enum barway_method, of which AUTO is none */
#define TUNE_ROWS 128

/* Copies of one size in one direction; [host]: 0 pageable, 1 pinned. */
struct tune_row {
	uint32_t direction; /* enum barway_direction */
	uint64_t bytes;
	struct barway_tune_point points[2][TUNE_METHODS]; /* size 0: not measured */
	struct barway_plan_info plan[2]; /* --show; */
};

struct tune {
	struct measure m;

	/* options */
	bool show, dry_run;
	bool threads_given;
	const char *output;

	/* the run */
	struct barway_mapping_info path;
	struct tune_row rows[TUNE_ROWS];
	size_t n;
	char source[96], file[512]; /* of the plan in force; file "": built in, or none written */
	char ignored[512];          /* --show: why a file was not taken; "": there is none such */
};

extern const char *const tune_methods[TUNE_METHODS]; /* "cpu" */
extern const char *const tune_hosts[2];              /* "pageable", "pinned" */

/*
 * The method that a plan of these figures takes: the least time, of which another method than one
 * CPU thread has to have clearly less. 0: none was measured.
 */
uint32_t tune_choice(const struct tune_row *row, unsigned host);

/* For people. */
void tune_print(const struct tune *t);
void tune_print_plan(const struct tune *t);

/* For programs. */
void tune_json(struct json *j, void *tune);
void tune_json_plan(struct json *j, void *tune);

#endif
