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
	if (!json_get(v, "results") || json_get(v, "results")->type != JSON_ARRAY ||
	    !json_get(v, "results")->first) {
		json_free(v);
		return usage_error(verb, "--compare: '%s' has no list \"results\" with a row: "
				   "measure it again", path);
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

/* ---- how they were measured -------------------------------------------------------------- */

/* A member as the warning shows it. */
static const char *member_text(const struct json_value *result, const char *path, char *buf,
			       size_t n)
{
	const struct json_value *v = json_get(result, path);

	if (v && v->type == JSON_STRING)
		snprintf(buf, n, "'%s'", v->string);
	else if (v && v->type == JSON_NUMBER)
		snprintf(buf, n, "%.10g", v->number);
	else if (v && v->type == JSON_BOOL)
		snprintf(buf, n, "%s", v->boolean ? "true" : "false");
	else
		snprintf(buf, n, "none");
	return buf;
}

static void warn_of_differences(const char *verb, const struct json_value *old,
				const struct json_value *new)
{
	static const char *const members[] = {
		"device.name", "device.driver", "cpu", "cpus", "kernel", "pinned_cpu", "numa",
		"numa_node", "verb", "offset_bytes", "helpers", "resident", "processes", "threads",
		"allocated_by", "memory", "messages", "network", "rails", "window", "peer.host",
		"peer.device", "path.provider", "path.route", "path.store_kernel",
		"path.load_kernel",
	};
	char text[1024] = "", a[256], b[256];

	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		size_t at = strlen(text);

		if (strcmp(member_text(old, members[i], a, sizeof(a)),
			   member_text(new, members[i], b, sizeof(b))))
			snprintf(text + at, sizeof(text) - at, "; %s was %s, is %s", members[i], a,
				 b);
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

struct columns {
	char names[COLUMNS][64];
	size_t n;
};

struct comparison {
	const struct json_value *old, *new, *row; /* the results; the new row */
	const struct json_value *old_row;         /* NULL: there is none */
	struct columns columns, old_columns;
	size_t pairs, singles, better, worse; /* @singles of @pairs are of no row */
	char name[256];
	FILE *out, *details;
};

static bool has_column(const struct columns *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++) {
		if (!strcmp(c->names[i], name))
			return true;
	}
	return false;
}

static bool add_column(const struct rows_measurement *m, void *arg)
{
	struct columns *c = arg;

	if (!has_column(c, m->name) && c->n < COLUMNS)
		memcpy(c->names[c->n++], m->name, sizeof(m->name));
	return true;
}

static const struct json_value *first_row(const struct json_value *result)
{
	const struct json_value *rows = json_get(result, "results");

	return rows ? rows->first : NULL;
}

static void find_columns(struct columns *c, const struct json_value *result)
{
	for (const struct json_value *row = first_row(result); row; row = row->next)
		rows_each(row, add_column, c);
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
	for (size_t i = 0; i < c->columns.n; i++) {
		snprintf(cell, sizeof(cell), "- ");
		if (c->old_row && rows_get(c->row, c->columns.names[i], &new) &&
		    rows_get(c->old_row, c->columns.names[i], &old) && !strcmp(old.unit, new.unit))
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
	c->singles++;
	fprintf(c->out, "%-*s %7s\n", NAME_WIDTH, m->name, cell);
	return true;
}

static void print_columns(struct comparison *c)
{
	char text[COLUMNS * 72] = "", column[72];

	for (size_t i = 0; i < c->columns.n; i++) {
		snprintf(column, sizeof(column), "%s%zu %s", i ? ", " : "", i + 1,
			 c->columns.names[i]);
		strncat(text, column, sizeof(text) - strlen(text) - 1);
	}
	fprintf(c->out, "\ncolumns: ");
	text_wrap(c->out, text, 9, 9);
	fprintf(c->out, "%*s", NAME_WIDTH, "");
	for (size_t i = 0; i < c->columns.n; i++)
		fprintf(c->out, "%7zu ", i + 1);
	fputc('\n', c->out);
}

static void print_all(struct comparison *c)
{
	rows_each(c->new, print_single, c);
	find_columns(&c->columns, c->new);
	find_columns(&c->old_columns, c->old);
	print_columns(c);
	for (c->row = first_row(c->new); c->row; c->row = c->row->next) {
		rows_name(c->row, c->name, sizeof(c->name));
		c->old_row = rows_find(c->old, c->name);
		print_row(c);
	}
}

/* ---- what only one of the two has -------------------------------------------------------- */

struct missing {
	size_t n, of;
	char names[1024];
};

static void look(struct missing *m, bool there, const char *name)
{
	size_t at = strlen(m->names);

	m->of++;
	if (there)
		return;
	snprintf(m->names + at, sizeof(m->names) - at, "%s%s", m->n ? "; " : "", name);
	m->n++;
}

static void print_missing(const struct comparison *c, const struct missing *m, const char *what,
			  const char *where)
{
	char text[sizeof(m->names) + 128];

	snprintf(text, sizeof(text), "not in the %s result: %zu of %zu %s: %s", where, m->n, m->of,
		 what, m->names);
	if (m->n)
		text_wrap(c->out, text, 0, 2);
}

static void missing_rows(const struct comparison *c, const struct json_value *from,
			 const struct json_value *in, const char *where)
{
	struct missing m = { 0 };
	char name[256];

	for (const struct json_value *row = first_row(from); row; row = row->next) {
		rows_name(row, name, sizeof(name));
		look(&m, rows_find(in, name), name);
	}
	print_missing(c, &m, "rows", where);
}

static void missing_columns(const struct comparison *c, const struct columns *from,
			    const struct columns *in, const char *where)
{
	struct missing m = { 0 };

	for (size_t i = 0; i < from->n; i++)
		look(&m, has_column(in, from->names[i]), from->names[i]);
	print_missing(c, &m, "columns", where);
}

static void print_all_missing(const struct comparison *c)
{
	missing_rows(c, c->new, c->old, "older");
	missing_rows(c, c->old, c->new, "new");
	missing_columns(c, &c->columns, &c->old_columns, "older");
	missing_columns(c, &c->old_columns, &c->columns, "new");
}

static void print_head(const struct comparison *c)
{
	char text[256];

	snprintf(text, sizeof(text), "new over old, of medians; the old run: %s, barway %s",
		 json_get_string(c->old, "date", "unknown date"),
		 json_get_string(c->old, "version", "unknown"));
	fputc('\n', c->out);
	text_wrap(c->out, text, 0, 0);
	if (!strcmp(json_get_string(c->new, "device.kind", ""), "soft"))
		fputs(TEXT_SOFT "\n", c->out);
	fprintf(c->out, "+ better, ! worse: by more than %.0f %% and %.0f ns, and "
		"outside both runs' quartiles\n\n", COMPARE_NOISE * 100, COMPARE_LEAST_US * 1e3);
}

int compare_print(const char *verb, const struct json_value *old, const struct json_value *new,
		  FILE *out)
{
	char *details = NULL;
	size_t n = 0;
	struct comparison c = {
		.old = old,
		.new = new,
		.out = out,
		.details = open_memstream(&details, &n),
	};

	if (!c.details)
		return failure(verb, "out of memory for the comparison");
	warn_of_differences(verb, old, new);
	print_head(&c);
	print_all(&c);
	fclose(c.details);
	fprintf(out, "\nmoved beyond noise: %zu of %zu (%zu better, %zu worse)\n%s",
		c.better + c.worse, c.pairs, c.better, c.worse, details);
	free(details);
	print_all_missing(&c);
	if (c.pairs > c.singles)
		return TOOL_OK;
	return usage_error(verb, "--compare: the two have no row in common: measure the same "
			   "sizes by the same methods");
}
