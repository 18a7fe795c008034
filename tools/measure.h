/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/measure: what all verbs that measure share: their common options, the device and the
 * machine that every result names, and what is done with a result: print, save, plot, compare.
 *
 * A verb's JSON is one object. It begins with what measure_json_head() writes and has "results", a
 * list of rows. A row is named by its strings and whole numbers that are its own members
 * ("direction", "size_bytes"); its objects, and the objects in them, that have a member "median_us"
 * or "median_gbs" are measurements (measure_json_stats()). That is all that plot and compare need.
 */
#ifndef TOOLS_MEASURE_H
#define TOOLS_MEASURE_H

#include <getopt.h>
#include <stdbool.h>

#include "barway.h"
#include "bench/harness.h"
#include "tools/json.h"
#include "tools/json_read.h"
#include "tools/place.h"

struct measure {
	/* set by the verb before anything else */
	const char *verb;   /* "copylat" */
	const char *schema; /* "barway-copylat-1" */

	/* the common options */
	const char *device, *plot, *save, *compare;
	struct place_choice numa;
	bool json;

	uint64_t helpers; /* helper threads that the context is opened with; 0: the parameter's,
			   * which it has after measure_open() */
	bool resident;    /* the device's resident copier is started */

	/* after measure_open() */
	struct barway_context *ctx;
	struct barway_device *dev; /* activated */
	struct barway_device_info info;
	bool soft;

	/* the machine, after measure_open() */
	char cpu[128], kernel[80], date[24];
	int cpus;       /* that this may run on; 0: not known */
	int pinned_cpu; /* the only one that this may run on; -1: there are several */
	int node;       /* of the thread that measures; -1: the system does not say */
	int bound;      /* the node that --numa bound it to; -1: none */
	bool far;       /* from the device */

	struct json_value *old; /* read from --compare */
};

/* To be put into a verb's options, after ":" and before its own letters. */
#define MEASURE_SHORTS "d:h"
#define MEASURE_LONGS \
	{ "device", required_argument, NULL, 'd' }, \
	{ "json", no_argument, NULL, 'J' }, \
	{ "save", required_argument, NULL, 'S' }, \
	{ "plot", required_argument, NULL, 'G' }, \
	{ "compare", required_argument, NULL, 'C' }, \
	{ "numa", required_argument, NULL, 'U' }, \
	{ "help", no_argument, NULL, 'h' }

/* And into its help. */
#define MEASURE_HELP \
	"      --json            one JSON object instead\n" \
	"      --save FILE       write that object to FILE, too\n" \
	"      --plot FILE       draw the result: FILE ends in .svg or .png\n" \
	"      --compare FILE    ratios to an older result of --json or --save\n" \
	"      --numa WHERE      near, far or node:N; where threads run and their memory\n" \
	"                        lies; default near, unless taskset or the like chose\n" \
	"  -h, --help            this text\n"

/*
 * One option that next_option() returned: TOOL_OK, TOOL_USAGE with its line printed, or
 * MEASURE_OTHER: the verb's own. 'h' is the verb's own, too.
 */
#define MEASURE_OTHER (-1)
int measure_option(struct measure *m, int c);

/* Sizes and counts, with a usage error that names @option. Return an exit code. */
int measure_size(const struct measure *m, const char *option, const char *text, uint64_t least,
		 uint64_t *bytes);
int measure_count(const struct measure *m, const char *option, const char *text, uint64_t least,
		  uint64_t most, uint64_t *n);

/* After the options: what can be refused before measuring is. Returns an exit code. */
int measure_check(struct measure *m);

/*
 * Can @path, which @option gave, be replaced, in its folder and under another name first? What is
 * no regular file only has to be writable; @anew: it is refused, and so is a link to nothing. Says
 * so before measuring, which takes its time. Returns an exit code.
 */
int measure_check_file(const struct measure *m, const char *option, const char *path, bool anew);

/*
 * With the device open: how many bytes of it can ever be mapped; and are @bytes, for which @options
 * ask, no more than that? Returns an exit code.
 */
uint64_t measure_room(const struct measure *m);
int measure_fits(const struct measure *m, const char *options, uint64_t bytes);

/*
 * Opens Barway, chooses and activates the device, binds to its NUMA node. Then the machine is
 * known. Returns an exit code; measure_close() in any case.
 */
int measure_open(struct measure *m);
void measure_close(struct measure *m);

/* The value of one of Barway's parameters, good until the next open. */
const char *measure_parameter(const char *name);

/* The first lines of the output: the soft GPU, the device, the machine. @path: NULL: not known. */
void measure_print_head(const struct measure *m, const struct barway_mapping_info *path);

/* schema, version, soft, note, date, device, machine, and path. */
void measure_json_head(struct json *j, const struct measure *m,
		       const struct barway_mapping_info *path);

/* One measurement: "KEY": {"median_us": ...}, or null where there are no samples. */
void measure_json_stats(struct json *j, const char *key, const struct bench_stats *s);

/* Members of objects, in one line each. "" and NULL are null. */
void measure_json_text(struct json *j, const char *key, const char *value);
void measure_json_number(struct json *j, const char *key, uint64_t v);
void measure_json_us(struct json *j, const char *key, double ns);
void measure_json_double(struct json *j, const char *key, double v);

/*
 * The end of a run: has @write make the object, prints it with --json, saves, plots and compares.
 * Returns an exit code.
 */
int measure_finish(struct measure *m, void (*write)(struct json *j, void *arg), void *arg);

#endif
