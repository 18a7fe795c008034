/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/copyverb: what copylat and copybw share: their options, the run, the data's check. */
#ifndef TOOLS_COPYVERB_H
#define TOOLS_COPYVERB_H

#include "bench/copies.h"
#include "tools/measure.h"

#define COPYVERB_SIZES 65 /* the powers of two below 2^64, and one that is none */
#define COPYVERB_CALLERS 64 /* at most, processes times threads */

struct copyverb {
	struct measure m;

	/* options */
	uint64_t least, max;         /* sizes: from @least by @factor to @max */
	bool max_set;                /* by -s */
	unsigned factor;
	uint64_t offset, only;       /* @only: this size alone; 0: all */
	uint64_t rounds[COPIES_DIRECTIONS]; /* 0: what fits */
	uint64_t warmup;
	bool warmup_set;
	bool wanted[COPIES_DIRECTIONS];
	unsigned methods;            /* bits (1 << method) */
	bool chosen;                 /* by --methods */
	bool cu_mem_alloc;           /* -a */
	uint32_t caching;            /* -M: enum barway_caching; 0: any */
	uint64_t processes, threads;

	/* the run */
	double seconds, large_seconds; /* for each size and direction; above 1 MiB */
	bool bandwidth;
	struct barway_mapping_info path;
	struct copies copies;
	struct copies_result results[COPIES_DIRECTIONS * COPYVERB_SIZES];
	size_t done;
	unsigned mismatches;
};

extern const char *const copyverb_directions[COPIES_DIRECTIONS]; /* "to", "from" */

#define COPYVERB_LONGS \
	{ "size", required_argument, NULL, 's' }, \
	{ "copy-size", required_argument, NULL, 'Z' }, \
	{ "offset", required_argument, NULL, 'o' }, \
	{ "writes", required_argument, NULL, 'w' }, \
	{ "reads", required_argument, NULL, 'r' }, \
	{ "warmup", required_argument, NULL, 'W' }, \
	{ "direction", required_argument, NULL, 'D' }, \
	{ "methods", required_argument, NULL, 'm' }, \
	{ "alloc", required_argument, NULL, 'a' }, \
	{ "mapping", required_argument, NULL, 'M' }, \
	{ "force-pcie", no_argument, NULL, 'P' }, \
	{ "helpers", required_argument, NULL, 'E' }, \
	{ "resident", no_argument, NULL, 'R' }, \
	{ "processes", required_argument, NULL, 'p' }, \
	{ "threads", required_argument, NULL, 't' }
#define COPYVERB_SHORTS "s:o:w:r:a:M:Pp:t:"

/* One option: an exit code, or MEASURE_OTHER. */
int copyverb_option(struct copyverb *v, int c);

/* After the options. Returns an exit code. */
int copyverb_check(struct copyverb *v);

/* How many callers at once; 1: the verb measures itself. */
unsigned copyverb_callers(const struct copyverb *v);

/* measure_open(), then memory and mapping. copyverb_close() in any case. */
int copyverb_open(struct copyverb *v);
/*
 * Can the device have the sizes that were asked for, of all callers? Where none was, the largest
 * becomes one that fits. Returns an exit code.
 */
int copyverb_fits(struct copyverb *v);
int copyverb_open_memory(struct copyverb *v); /* after measure_open() */
void copyverb_close(struct copyverb *v);

/* The options of copies_open(). */
struct copies_options copyverb_memory(const struct copyverb *v);

/* -a and -M, for other verbs too: exit codes. Is the mapping what -M wants? Fills in @path. */
int copyverb_parse_alloc(const struct measure *m, const char *text, bool *cu_mem_alloc);
int copyverb_parse_mapping(const struct measure *m, const char *text, uint32_t *caching);
int copyverb_check_path(const struct measure *m, struct barway_mapping *map, uint32_t caching,
			struct barway_mapping_info *path);
int copyverb_no_alloc(const struct measure *m); /* says that the soft GPU has no cuMemAlloc */

/* A line on the methods that are not measured, and why; nothing where all are. */
void copyverb_print_missing(const struct copyverb *v);

/* The size after @n; 0: it was the last. From 0: the first. */
uint64_t copyverb_next(const struct copyverb *v, uint64_t n);

/* Measures everything. @titles once a direction, @row once a size; NULL: nothing is printed. */
int copyverb_run(struct copyverb *v, void (*titles)(const struct copyverb *, enum copies_direction),
		 void (*row)(const struct copyverb *, const struct copies_result *));

/* One line on standard error for each method whose data was wrong; counts them. */
void copyverb_mismatch(struct copyverb *v, enum copies_direction dir, size_t bytes,
		       enum copies_method method, const struct copies_mismatch *x);

/* Members of the JSON object and of a row that both verbs have. */
void copyverb_json_options(struct json *j, const struct copyverb *v);
void copyverb_json_row(struct json *j, const struct copies_result *r);

#endif
