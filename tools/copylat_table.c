/* SPDX-License-Identifier: BSD-3-Clause */
/* What barway copylat prints, for people and for programs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/reference.h"
#include "tools/copylat.h"
#include "tools/text.h"

/* ---- what was measured once ---------------------------------------------------------------- */

static void print_map(const struct copylat *l)
{
	char a[32], b[32], c[32];

	text_us(l->map.first.median, a, sizeof(a));
	text_us(l->map.from_cache.median, b, sizeof(b));
	printf("map 64 KiB: first time %s us, from the cache %s%s (medians)\n", a,
	       l->map.from_cache.samples ? b : "never", l->map.from_cache.samples ? " us" : "");
	printf("the process's first mapping, with its self-test: %s us\n",
	       text_us(l->map.self_test_ns, a, sizeof(a)));
	text_us(l->flush.alone.median, a, sizeof(a));
	text_us(l->flush.alone.p99, b, sizeof(b));
	text_us(l->flush.row.median, c, sizeof(c));
	printf("barway_flush(): alone %s us (p99 %s us), in a row %s us\n", a, b, c);
}

void copylat_print_head(const struct copylat *l)
{
	measure_print_head(&l->v.m, &l->v.path);
	if (bench_clock_tick() > 1)
		printf("the clock ticks every %.0f ns: what is as short is an estimate\n",
		       bench_clock_tick());
	copyverb_print_missing(&l->v);
	print_map(l);
}

/* ---- the table: a column has a space and its digits, a group two spaces before it --------- */

enum {
	ALONE = 1,
	P99 = 2,
	ROW = 4,
};

#define ALONE_WIDTH 6
#define ROW_WIDTH 9

/* All three where nothing is said here. */
static const unsigned columns_of[COPIES_METHODS] = {
	[COPIES_VISIBLE] = ALONE | P99,
	[COPIES_AUTO] = ROW,
	[COPIES_AUTO_PINNED] = ROW,
	[COPIES_THREADS] = ROW,
	[COPIES_CE] = ROW,
	[COPIES_RESIDENT] = ROW,
	[COPIES_REFERENCE] = ALONE | ROW,
	[COPIES_PINNED] = ALONE,
};

static unsigned columns(enum copies_method m)
{
	return columns_of[m] ? columns_of[m] : ALONE | P99 | ROW;
}

#define RATIO "cuMemcpy/barway"
#define RATIO_COLUMNS (ALONE | ROW)

/* Of the first column: a title over one column is as wide as that. */
static int first_width(const char *title, unsigned columns)
{
	int width = columns & ALONE ? ALONE_WIDTH : ROW_WIDTH;

	return columns == ALONE && (int)strlen(title) > width ? (int)strlen(title) : width;
}

static int group_width(const char *title, unsigned columns)
{
	int width = first_width(title, columns);

	width += columns & P99 ? 1 + ALONE_WIDTH : 0;
	return width + ((columns & ALONE) && (columns & ROW) ? 1 + ROW_WIDTH : 0);
}

/* "---- barway ----", as wide as its columns */
static void print_group(const char *title, unsigned columns)
{
	static const char dashes[] = "--------------------------------";
	int dashed = group_width(title, columns) - (int)strlen(title) - 2;

	if (dashed < 2)
		printf("   %*s", group_width(title, columns), title);
	else
		printf("   %.*s %s %.*s", dashed / 2, dashes, title, dashed - dashed / 2, dashes);
}

static void print_values(const char *title, unsigned columns, const char *alone, const char *p99,
			 const char *row)
{
	printf("   %*s", first_width(title, columns), columns & ALONE ? alone : row);
	if (columns & P99)
		printf(" %*s", ALONE_WIDTH, p99);
	if ((columns & ALONE) && (columns & ROW))
		printf(" %*s", ROW_WIDTH, row);
}

static bool has_ratio(const struct copyverb *v, enum copies_direction dir)
{
	return copies_has(&v->copies, dir, COPIES_CUMEMCPY) &&
	       copies_has(&v->copies, dir, COPIES_BARWAY);
}

void copylat_print_titles(const struct copyverb *v, enum copies_direction dir)
{
	printf("\n%s, microseconds; reference: %s\n%9s",
	       dir == COPIES_TO ? "host to GPU" : "GPU to host",
	       dir == COPIES_TO ? bench_reference_to_name() : bench_reference_from_name(), "");
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (copies_has(&v->copies, dir, m))
			print_group(copies_ways[m].title, columns(m));
	}
	if (has_ratio(v, dir))
		print_group(RATIO, RATIO_COLUMNS);
	printf("\n%9s", "bytes");
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (copies_has(&v->copies, dir, m))
			print_values(copies_ways[m].title, columns(m), "alone", "p99", "in a row");
	}
	if (has_ratio(v, dir))
		print_values(RATIO, RATIO_COLUMNS, "alone", "", "in a row");
	puts("");
}

/* Not finite where below the clock. */
static double over_alone(const struct copies_result *r, enum copies_method a, enum copies_method b)
{
	return r->times[a].alone.median / r->times[b].alone.median;
}

static double over_row(const struct copies_result *r, enum copies_method a, enum copies_method b)
{
	return r->times[a].row.median / r->times[b].row.median;
}

static const char *ratio_text(double v, char *buf, size_t n)
{
	if (isfinite(v))
		snprintf(buf, n, "%.*f", v < 99.995 ? 2 : 1, v);
	else
		snprintf(buf, n, "-");
	return buf;
}

static void print_ratios(const struct copies_result *r)
{
	char a[32], b[32];

	ratio_text(over_alone(r, COPIES_CUMEMCPY, COPIES_BARWAY), a, sizeof(a));
	ratio_text(over_row(r, COPIES_CUMEMCPY, COPIES_BARWAY), b, sizeof(b));
	print_values(RATIO, RATIO_COLUMNS, a, "", b);
}

void copylat_print_row(const struct copyverb *v, const struct copies_result *r)
{
	char a[32], b[32], c[32];

	(void)v;
	printf("%9zu", r->bytes);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (r->has[m])
			print_values(copies_ways[m].title, columns(m),
				     text_us(r->times[m].alone.median, a, sizeof(a)),
				     text_us(r->times[m].alone.p99, b, sizeof(b)),
				     text_us(r->times[m].row.median, c, sizeof(c)));
	}
	if (r->has[COPIES_CUMEMCPY] && r->has[COPIES_BARWAY])
		print_ratios(r);
	puts("");
	fflush(stdout);
}

#define SLOWER 1.05

static bool slower_than_reference(const struct copies_result *r)
{
	return r->has[COPIES_BARWAY] && r->has[COPIES_REFERENCE] &&
	       r->times[COPIES_BARWAY].row.median >
	       SLOWER * r->times[COPIES_REFERENCE].row.median;
}

/* On the soft GPU it would mean nothing. */
void copylat_print_slower(const struct copylat *l)
{
	const char *last = NULL;

	if (l->v.m.soft)
		return;
	fputs("\nslower than the reference loop in a row by more than 5 %:", stdout);
	for (size_t i = 0; i < l->v.done; i++) {
		const struct copies_result *r = &l->v.results[i];
		const char *dir = copyverb_directions[r->direction];

		if (!slower_than_reference(r))
			continue;
		if (last != dir)
			printf("%s %s", last ? ";" : "", dir);
		printf("%s %zu", last == dir ? "," : "", r->bytes);
		last = dir;
	}
	puts(last ? "" : " none");
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_times(struct json *j, const char *key, const struct bench_result *r)
{
	json_key(j, key);
	json_object(j);
	measure_json_stats(j, "alone", &r->alone);
	measure_json_stats(j, "row", &r->row);
	measure_json_number(j, "calls_in_a_row", r->calls);
	json_object_end(j);
}

static void json_ratio(struct json *j, const char *key, const struct copies_result *r,
		       enum copies_method a, enum copies_method b)
{
	if (!r->has[a] || !r->has[b])
		return;
	json_key(j, key);
	json_object(j);
	measure_json_double(j, "alone", over_alone(r, a, b));
	measure_json_double(j, "row", over_row(r, a, b));
	json_object_end(j);
}

static void json_result(struct json *j, const struct copies_result *r)
{
	json_object(j);
	copyverb_json_row(j, r);
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (r->has[m])
			json_times(j, copies_ways[m].name, &r->times[m]);
	}
	json_ratio(j, "ratio_cumemcpy_barway", r, COPIES_CUMEMCPY, COPIES_BARWAY);
	json_ratio(j, "ratio_cumemcpy_barway_visible", r, COPIES_CUMEMCPY, COPIES_VISIBLE);
	json_ratio(j, "ratio_cumemcpy_async_pinned_barway", r, COPIES_PINNED, COPIES_BARWAY);
	if (r->has[COPIES_CUMEMCPY]) /* on the soft GPU no ratio means anything */
		json_ratio(j, "ratio_reference_barway", r, COPIES_REFERENCE, COPIES_BARWAY);
	json_object_end(j);
}

static void json_slower(struct json *j, const struct copylat *l)
{
	json_key(j, "slower_than_reference");
	if (l->v.m.soft) {
		json_null(j);
		return;
	}
	json_array(j);
	for (size_t i = 0; i < l->v.done; i++) {
		const struct copies_result *r = &l->v.results[i];

		if (!slower_than_reference(r))
			continue;
		json_object(j);
		measure_json_text(j, "direction", copyverb_directions[r->direction]);
		measure_json_number(j, "size_bytes", r->bytes);
		json_object_end(j);
	}
	json_array_end(j);
}

void copylat_json(struct json *j, void *copylat)
{
	const struct copylat *l = copylat;

	json_object(j);
	measure_json_head(j, &l->v.m, &l->v.path);
	copyverb_json_options(j, &l->v);
	measure_json_number(j, "map_bytes", MAPPING_BYTES);
	measure_json_us(j, "map_self_test_us", l->map.self_test_ns);
	measure_json_stats(j, "map_first_time", &l->map.first);
	measure_json_stats(j, "map_from_cache", &l->map.from_cache);
	json_times(j, "flush", &l->flush);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < l->v.done; i++)
		json_result(j, &l->v.results[i]);
	json_array_end(j);
	json_slower(j, l);
	measure_json_number(j, "mismatches", l->v.mismatches);
	json_object_end(j);
}
