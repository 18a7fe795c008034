/* SPDX-License-Identifier: BSD-3-Clause */
/* What barway tune prints, for people and for programs. */
#include <stdio.h>
#include <string.h>

#include "tools/text.h"
#include "tools/tune.h"

const char *const tune_methods[TUNE_METHODS] = { "auto", "cpu", "ce", "threads", "resident" };
const char *const tune_hosts[2] = { "pageable", "pinned" };

static const char *const directions[] = {
	[BARWAY_TO_GPU] = "to", [BARWAY_FROM_GPU] = "from",
};

static const char *const titles[] = {
	[BARWAY_TO_GPU] = "host to GPU", [BARWAY_FROM_GPU] = "GPU to host",
};

/*
 * As the library chooses: the least; one CPU thread unless that is better by more than 1/32; the
 * resident copier where it is better than these by 15 percent.
 */
uint32_t tune_choice(const struct tune_row *row, unsigned host)
{
	const struct barway_tune_point *points = row->points[host];
	uint64_t cpu_ns = points[BARWAY_METHOD_CPU].ns;
	uint32_t best = 0;

	for (uint32_t m = BARWAY_METHOD_CPU + 1; m < BARWAY_METHOD_RESIDENT; m++)
		if (points[m].size && (!best || points[m].ns < points[best].ns))
			best = m;
	if (points[BARWAY_METHOD_CPU].size && !(best && points[best].ns < cpu_ns - cpu_ns / 32))
		best = BARWAY_METHOD_CPU;
	if (points[BARWAY_METHOD_RESIDENT].size &&
	    (!best || (double)points[BARWAY_METHOD_RESIDENT].ns <= 0.85 * (double)points[best].ns))
		best = BARWAY_METHOD_RESIDENT;
	return best;
}

/* ---- the table: a group of columns for each kind of host memory ---------------------------- */

#define COLUMN 10 /* a space, eight digits, and the mark */

static bool has(const struct tune *t, uint32_t direction, unsigned host, uint32_t method)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->rows[i].direction == direction && t->rows[i].points[host][method].size)
			return true;
	return false;
}

static void print_titles(const struct tune *t, uint32_t direction)
{
	static const char dashes[] = "----------------------------------------";

	printf("\n%s, microseconds; *: what is planned\n%9s", titles[direction], "");
	for (unsigned host = 0; host < 2; host++) {
		int width = -2 - (int)strlen(tune_hosts[host]);

		for (uint32_t m = 1; m < TUNE_METHODS; m++)
			width += has(t, direction, host, m) ? COLUMN : 0;
		printf("  %.*s %s %.*s", width / 2 - 1, dashes, tune_hosts[host],
		       width - width / 2 - 1, dashes);
	}
	printf("\n%9s", "bytes");
	for (unsigned host = 0; host < 2; host++) {
		fputs(host ? "  " : " ", stdout);
		for (uint32_t m = 1; m < TUNE_METHODS; m++)
			if (has(t, direction, host, m))
				printf(" %*s ", COLUMN - 2, tune_methods[m]);
	}
	puts("");
}

static void print_row(const struct tune *t, const struct tune_row *row)
{
	char us[32];

	printf("%9llu", (unsigned long long)row->bytes);
	for (unsigned host = 0; host < 2; host++) {
		fputs(host ? "  " : " ", stdout);
		for (uint32_t m = 1; m < TUNE_METHODS; m++) {
			const struct barway_tune_point *p = &row->points[host][m];

			if (has(t, row->direction, host, m))
				printf(" %*s%c", COLUMN - 2,
				       p->size ? text_us((double)p->ns, us, sizeof(us)) : "-",
				       tune_choice(row, host) == m ? '*' : ' ');
		}
	}
	puts("");
}

void tune_print(const struct tune *t)
{
	uint32_t direction = 0;

	for (size_t i = 0; i < t->n; i++) {
		if (t->rows[i].direction != direction)
			print_titles(t, t->rows[i].direction);
		direction = t->rows[i].direction;
		print_row(t, &t->rows[i]);
	}
	puts("\n-: not measured: many times slower than the best before; or several threads for\n"
	     "   what is too small to be shared");
}

/* ---- the plan in force ---------------------------------------------------------------------- */

void tune_print_plan(const struct tune *t)
{
	uint32_t direction = 0;
	char us[32];

	text_field(stdout, "plan", t->source);
	text_field(stdout, "file", *t->file ? t->file : "none");
	if (*t->ignored)
		text_field(stdout, "ignored", t->ignored);
	for (size_t i = 0; i < t->n; i++) {
		const struct tune_row *row = &t->rows[i];

		if (row->direction != direction)
			printf("\n%s: the method, and how many microseconds it should take\n"
			       "%9s   %-18s   %s\n", titles[row->direction], "bytes",
			       tune_hosts[0], tune_hosts[1]);
		direction = row->direction;
		printf("%9llu", (unsigned long long)row->bytes);
		for (unsigned host = 0; host < 2; host++)
			printf("   %-9s %8s", row->plan[host].name,
			       text_us((double)row->plan[host].estimate_ns, us, sizeof(us)));
		puts("");
	}
}

/* ---- for programs --------------------------------------------------------------------------- */

static void json_point(struct json *j, const char *key, const struct barway_tune_point *p)
{
	json_key(j, key);
	json_object(j);
	measure_json_us(j, "median_us", (double)p->ns);
	measure_json_us(j, "min_us", (double)p->min_ns);
	measure_json_us(j, "p99_us", (double)p->p99_ns);
	measure_json_number(j, "threads", p->threads);
	json_object_end(j);
}

static void json_host(struct json *j, const struct tune_row *row, unsigned host)
{
	uint32_t choice = tune_choice(row, host);

	json_key(j, tune_hosts[host]);
	json_object(j);
	for (uint32_t m = 1; m < TUNE_METHODS; m++)
		if (row->points[host][m].size)
			json_point(j, tune_methods[m], &row->points[host][m]);
	if (choice) {
		json_key(j, "plan");
		json_object(j);
		measure_json_text(j, "method", tune_methods[choice]);
		measure_json_us(j, "median_us", (double)row->points[host][choice].ns);
		json_object_end(j);
	}
	json_object_end(j);
}

static void json_host_plan(struct json *j, const struct tune_row *row, unsigned host)
{
	const struct barway_plan_info *plan = &row->plan[host];

	json_key(j, tune_hosts[host]);
	json_object(j);
	measure_json_text(j, "method", plan->name);
	measure_json_us(j, "estimate_us", (double)plan->estimate_ns);
	measure_json_text(j, "reason", plan->reason);
	json_object_end(j);
}

static void json_all(struct json *j, const struct tune *t,
		     void (*host)(struct json *j, const struct tune_row *row, unsigned host))
{
	json_object(j);
	measure_json_head(j, &t->m, &t->path);
	measure_json_number(j, "helpers", t->m.helpers);
	json_key(j, "resident");
	json_bool(j, t->m.resident);
	measure_json_text(j, "source", t->source);
	measure_json_text(j, "file", t->file);
	measure_json_text(j, "ignored", t->ignored);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < t->n; i++) {
		json_object(j);
		measure_json_text(j, "direction", directions[t->rows[i].direction]);
		measure_json_number(j, "size_bytes", t->rows[i].bytes);
		host(j, &t->rows[i], 0);
		host(j, &t->rows[i], 1);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

void tune_json(struct json *j, void *tune)
{
	json_all(j, tune, json_host);
}

void tune_json_plan(struct json *j, void *tune)
{
	json_all(j, tune, json_host_plan);
}
