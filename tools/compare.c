/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "tools/rows.h"
#include "tools/text.h"

#define COLUMNS 64
#define NAME_WIDTH 28

int compare_read(const char *verb, const char *path, const char *schema, struct json_value **out)
{
	char error[160];
	struct json_value *v = json_read_file(path, error, sizeof(error));
	const char *is;

	if (!v)
		return usage_error(verb, "--compare: '%s': %s", path, error);
	is = json_get_string(v, "schema", NULL);
	if (!is || strcmp(is, schema)) {
		usage_error(verb, "--compare: '%s' is %s%s, not %s: give a result that this verb "
			    "wrote with --json or --save", path,
			    is ? "of the schema " : "no result", is ? is : " of Barway's", schema);
		json_free(v);
		return TOOL_USAGE;
	}
	if (!json_get(v, "results") || json_get(v, "results")->type != JSON_ARRAY) {
		json_free(v);
		return usage_error(verb, "--compare: '%s' has no list \"results\": measure it "
				   "again", path);
	}
	*out = v;
	return TOOL_OK;
}

int compare_check(const char *verb, const struct json_value *old, const char *kind)
{
	const char *was = json_get_string(old, "device.kind", "unknown");

	if (!strcmp(was, kind))
		return TOOL_OK;
	return usage_error(verb, "--compare: the older result is of a device of kind %s, this one "
			   "is %s: the two cannot be compared", was, kind);
}

/* ---- the machines ------------------------------------------------------------------------ */

static void warn_of_machines(const char *verb, const struct json_value *old,
			     const struct json_value *new)
{
	static const char *const members[] = {
		"device.name", "device.driver", "cpu", "kernel", "pinned_cpu", "numa_node", "verb",
		"processes", "threads", "allocated_by", "network", "rails", "window", "peer.host",
		"peer.device",
		"path.provider", "path.route", "path.store_kernel", "path.load_kernel",
	};
	char text[1024] = "";

	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		const char *a = json_get_string(old, members[i], "");
		const char *b = json_get_string(new, members[i], "");
		double x = json_get_number(old, members[i], -1);
		double y = json_get_number(new, members[i], -1);
		size_t at = strlen(text);

		if (strcmp(a, b))
			snprintf(text + at, sizeof(text) - at, "; %s was '%s', is '%s'",
				 members[i], a, b);
		else if (x != y)
			snprintf(text + at, sizeof(text) - at, "; %s was %g, is %g", members[i],
				 x, y);
	}
	if (*text)
		failure(verb, "warning: the two were not measured alike%s", text);
}

/* ---- one pair ---------------------------------------------------------------------------- */

enum moved {
	SAME,
	BETTER,
	WORSE,
};

static double ratio_of(const struct rows_measurement *old, const struct rows_measurement *new)
{
	return old->median > 0 ? new->median / old->median : NAN;
}

static enum moved moved(const struct rows_measurement *old, const struct rows_measurement *new)
{
	double r = ratio_of(old, new);
	bool up = new->median > old->median;

	if ((isfinite(r) && fabs(r - 1) <= COMPARE_NOISE) ||
	    (!strcmp(new->unit, "us") && fabs(new->median - old->median) < COMPARE_LEAST_US))
		return SAME;
	if (up ? new->median <= old->high || old->median >= new->low
	       : new->median >= old->low || old->median <= new->high)
		return SAME;
	return up == new->more_is_better ? BETTER : WORSE;
}

struct comparison {
	const struct json_value *old, *row; /* old result; the new row */
	const struct json_value *old_row;   /* NULL: there is none */
	char columns[COLUMNS][64];
	size_t n;
	size_t pairs, better, worse;
	char name[256];
	FILE *out, *details;
};

static bool add_column(const struct rows_measurement *m, void *arg)
{
	struct comparison *c = arg;

	for (size_t i = 0; i < c->n; i++) {
		if (!strcmp(c->columns[i], m->name))
			return true;
	}
	if (c->n < COLUMNS)
		memcpy(c->columns[c->n++], m->name, sizeof(m->name));
	return true;
}

static const char mark[] = { [SAME] = ' ', [BETTER] = '+', [WORSE] = '!' };

/* One ratio, and its line in the details where it moved. */
static void pair(struct comparison *c, const struct rows_measurement *old,
		 const struct rows_measurement *new, char *buf, size_t n)
{
	enum moved how = moved(old, new);
	double r = ratio_of(old, new);

	c->pairs++;
	c->better += how == BETTER;
	c->worse += how == WORSE;
	if (isfinite(r))
		snprintf(buf, n, "%.2f%c", r, mark[how]);
	else
		snprintf(buf, n, "-%c", mark[how]);
	if (how != SAME)
		fprintf(c->details, "  %c %s: %s: %.4g, was %.4g %s\n", mark[how], c->name,
			new->name, new->median, old->median,
			strcmp(new->unit, "gbs") ? new->unit : "GB/s");
}

static void print_row(struct comparison *c)
{
	struct rows_measurement old, new;
	char cell[32];

	fprintf(c->out, "%-*s", NAME_WIDTH, c->name);
	for (size_t i = 0; i < c->n; i++) {
		snprintf(cell, sizeof(cell), "- ");
		if (c->old_row && rows_get(c->row, c->columns[i], &new) &&
		    rows_get(c->old_row, c->columns[i], &old) && !strcmp(old.unit, new.unit))
			pair(c, &old, &new, cell, sizeof(cell));
		fprintf(c->out, " %7s", cell);
	}
	fputc('\n', c->out);
}

/* What was measured once in the whole run: a line each. */
static bool print_single(const struct rows_measurement *m, void *arg)
{
	struct comparison *c = arg;
	struct rows_measurement old;
	char cell[32];

	if (!rows_get(c->old, m->name, &old) || strcmp(old.unit, m->unit))
		return true;
	snprintf(c->name, sizeof(c->name), "whole run");
	pair(c, &old, m, cell, sizeof(cell));
	fprintf(c->out, "%-*s %7s\n", NAME_WIDTH, m->name, cell);
	return true;
}

static void print_columns(struct comparison *c)
{
	char text[COLUMNS * 72] = "", column[72];

	for (size_t i = 0; i < c->n; i++) {
		snprintf(column, sizeof(column), "%s%zu %s", i ? ", " : "", i + 1, c->columns[i]);
		strncat(text, column, sizeof(text) - strlen(text) - 1);
	}
	fprintf(c->out, "\ncolumns: ");
	text_wrap(c->out, text, 9, 9);
	fprintf(c->out, "%*s", NAME_WIDTH, "");
	for (size_t i = 0; i < c->n; i++)
		fprintf(c->out, "%7zu ", i + 1);
	fputc('\n', c->out);
}

static void print_all(struct comparison *c, const struct json_value *new)
{
	const struct json_value *rows = json_get(new, "results");

	rows_each(new, print_single, c);
	for (c->row = rows ? rows->first : NULL; c->row; c->row = c->row->next)
		rows_each(c->row, add_column, c);
	print_columns(c);
	for (c->row = rows ? rows->first : NULL; c->row; c->row = c->row->next) {
		rows_name(c->row, c->name, sizeof(c->name));
		c->old_row = rows_find(c->old, c->name);
		print_row(c);
	}
}

static void print_head(const struct comparison *c, const struct json_value *new)
{
	char text[256];

	snprintf(text, sizeof(text), "new over old, of medians; the old run: %s, barway %s",
		 json_get_string(c->old, "date", "unknown date"),
		 json_get_string(c->old, "version", "unknown"));
	fputc('\n', c->out);
	text_wrap(c->out, text, 0, 0);
	if (!strcmp(json_get_string(new, "device.kind", ""), "soft"))
		fputs(TEXT_SOFT "\n", c->out);
	fprintf(c->out, "+ better, ! worse: by more than %.0f %% and %.0f ns, and "
		"outside both runs' quartiles\n\n", COMPARE_NOISE * 100, COMPARE_LEAST_US * 1e3);
}

int compare_print(const char *verb, const struct json_value *old, const struct json_value *new,
		  FILE *out)
{
	char *details = NULL;
	size_t n = 0;
	struct comparison c = { .old = old, .out = out, .details = open_memstream(&details, &n) };

	if (!c.details)
		return failure(verb, "out of memory for the comparison");
	warn_of_machines(verb, old, new);
	print_head(&c, new);
	print_all(&c, new);
	fclose(c.details);
	fprintf(out, "\nmoved beyond noise: %zu of %zu (%zu better, %zu worse)\n%s",
		c.better + c.worse, c.pairs, c.better, c.worse, details);
	free(details);
	return TOOL_OK;
}
