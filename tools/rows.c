/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/rows.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tools/text.h"

#define DEPTH 4 /* of objects in a row */

static const struct {
	const char *unit;
	bool more_is_better;
} units[] = {
	{ "us", false },
	{ "gbs", true },
};

static void append(char *buf, size_t n, const char *text)
{
	size_t at = strlen(buf);

	snprintf(buf + at, n - at, "%s%s", at ? ", " : "", text);
}

/* Two sizes never have one name. */
static const char *exact_bytes(uint64_t bytes, char *buf, size_t n)
{
	if (strchr(text_bytes(bytes, buf, n), '.'))
		snprintf(buf, n, "%llu B", (unsigned long long)bytes);
	return buf;
}

const char *rows_name(const struct json_value *row, char *buf, size_t n)
{
	const struct json_value *v = row->type == JSON_OBJECT ? row->first : NULL;
	char size[32];

	*buf = 0;
	for (; v; v = v->next) {
		if (v->type == JSON_STRING)
			append(buf, n, v->string);
		else if (v->type == JSON_NUMBER && !strcmp(v->key, "size_bytes") &&
			 v->number >= 0 && v->number < 1e18)
			append(buf, n, exact_bytes((uint64_t)v->number, size, sizeof(size)));
	}
	return buf;
}

const struct json_value *rows_find(const struct json_value *result, const char *name)
{
	const struct json_value *row = json_get(result, "results");
	char buf[256];

	for (row = row ? row->first : NULL; row; row = row->next) {
		if (!strcmp(rows_name(row, buf, sizeof(buf)), name))
			return row;
	}
	return NULL;
}

/* The first of these members that is there. */
static double first_of(const struct json_value *v, const char *a, const char *b, const char *unit,
		       double dflt)
{
	char key[32];
	double found;

	snprintf(key, sizeof(key), "%s_%s", a, unit);
	found = json_get_number(v, key, NAN);
	if (!isfinite(found)) {
		snprintf(key, sizeof(key), "%s_%s", b, unit);
		found = json_get_number(v, key, dflt);
	}
	return found;
}

static bool measurement(const struct json_value *v, struct rows_measurement *m)
{
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		double a, b;

		m->unit = units[i].unit;
		m->more_is_better = units[i].more_is_better;
		m->median = first_of(v, "median", "median", m->unit, NAN);
		if (!isfinite(m->median))
			continue;
		a = first_of(v, "q1", m->more_is_better ? "p99" : "min", m->unit, m->median);
		b = first_of(v, "q3", m->more_is_better ? "max" : "p99", m->unit, m->median);
		m->low = fmin(a, b);
		m->high = fmax(a, b);
		return true;
	}
	return false;
}

struct walk {
	bool (*fn)(const struct rows_measurement *m, void *arg);
	void *arg;
	char name[64];
};

static bool walk_object(struct walk *w, const struct json_value *v, unsigned depth)
{
	size_t at = strlen(w->name);
	bool more = true;

	for (const struct json_value *x = v->first; x && more && depth < DEPTH; x = x->next) {
		struct rows_measurement m;

		if (x->type != JSON_OBJECT)
			continue;
		snprintf(w->name + at, sizeof(w->name) - at, "%s%s", at ? "." : "", x->key);
		if (measurement(x, &m)) {
			snprintf(m.name, sizeof(m.name), "%s", w->name);
			more = w->fn(&m, w->arg);
		} else {
			more = walk_object(w, x, depth + 1);
		}
		w->name[at] = 0;
	}
	return more;
}

void rows_each(const struct json_value *v,
	       bool (*fn)(const struct rows_measurement *m, void *arg), void *arg)
{
	struct walk w = { .fn = fn, .arg = arg };

	if (v->type == JSON_OBJECT)
		walk_object(&w, v, 0);
}

struct search {
	const char *name;
	struct rows_measurement *out;
	bool found;
};

static bool same_name(const struct rows_measurement *m, void *arg)
{
	struct search *s = arg;

	if (strcmp(m->name, s->name))
		return true;
	*s->out = *m;
	s->found = true;
	return false;
}

bool rows_get(const struct json_value *v, const char *name, struct rows_measurement *out)
{
	struct search s = { .name = name, .out = out };

	rows_each(v, same_name, &s);
	return s.found;
}
