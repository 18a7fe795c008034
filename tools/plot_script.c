/* SPDX-License-Identifier: BSD-3-Clause */
/* What gnuplot is told. Text from files is quoted, and never has a line end or a quote in it. */
#include <math.h>
#include <string.h>

#include "tools/options.h"
#include "tools/plot.h"
#include "tools/rows.h"
#include "tools/text.h"

#define PANELS 2
#define LABELS 8 /* at most so many sizes are written below a panel */

struct script {
	FILE *out;
	const struct plot_kind *kind;
	const struct plot_input *inputs;
	size_t n;
	unsigned panels;   /* that have something */
	unsigned curves;   /* at most, in one panel */
	double least, most; /* of all curves */
	size_t nbars;
	const struct json_value *bars[PLOT_BARS]; /* the first row of each kind */
};

/* '...' as gnuplot wants it, plain ASCII. */
static void quoted(FILE *out, const char *text)
{
	fputc('\'', out);
	for (; *text; text++) {
		if (*text == '\'')
			fputs("''", out);
		else
			fputc(*text >= ' ' && *text < 0x7f ? *text : '?', out);
	}
	fputc('\'', out);
}

/* ---- titles ------------------------------------------------------------------------------ */

static bool is_soft(const struct json_value *v)
{
	return strcmp(json_get_string(v, "device.kind", "unknown"), "cuda");
}

static void titles(struct script *s)
{
	char text[1024], more[48] = "";
	bool soft = false;

	for (size_t i = 0; i < s->n; i++)
		soft = soft || is_soft(s->inputs[i].json);
	if (s->n > 1)
		snprintf(more, sizeof(more), " (the first of %zu)", s->n);
	snprintf(text, sizeof(text), "%s\\n%s, driver %s; %s; %.10s%s%s", s->kind->title,
		 json_get_string(s->inputs[0].json, "device.name", "unknown device"),
		 json_get_string(s->inputs[0].json, "device.driver", "none"),
		 json_get_string(s->inputs[0].json, "cpu", "unknown CPU"),
		 json_get_string(s->inputs[0].json, "date", "unknown"), more,
		 soft ? "\\nSOFT GPU: SAYS NOTHING ABOUT A GPU" : "");
	fprintf(s->out, "set multiplot layout 1,%u title \"", s->panels);
	for (const char *p = text; *p; p++) {
		/* the line ends above are the only escapes */
		bool ours = *p == '\\' && p[1] == 'n';

		if (ours)
			fputs("\\n", s->out);
		else
			fputc(strchr("\"\\`", *p) || *p < ' ' || *p >= 0x7f ? '?' : *p, s->out);
		p += ours;
	}
	fprintf(s->out, "\" font ',14' noenhanced%s\n",
		soft ? " textcolor rgb '#b00020'" : "");
}

/* ---- curves ------------------------------------------------------------------------------ */

static bool in_panel(const struct script *s, const struct json_value *row, unsigned panel)
{
	return !strcmp(json_get_string(row, s->kind->panel, ""), s->kind->panels[panel].value);
}

/* The point of a row on a curve; false: it has none that a logarithm can show. */
static bool point(const struct script *s, const struct json_value *row,
		  const struct plot_series *series, double *x, double *y)
{
	const struct json_value *v = json_get(row, series->key);

	*x = json_get_number(row, "size_bytes", 0);
	*y = json_get_number(v, s->kind->y, 0);
	return *x > 0 && *y > 0 && isfinite(*x) && isfinite(*y);
}

static const struct json_value *first_row(const struct script *s, size_t input)
{
	const struct json_value *rows = json_get(s->inputs[input].json, "results");

	return rows ? rows->first : NULL;
}

/* "$d_1_0_2 << EOD": panel, input, series. Returns how many points. */
static size_t data(struct script *s, unsigned panel, size_t input, size_t series)
{
	size_t points = 0;
	double x, y;

	for (const struct json_value *r = first_row(s, input); r; r = r->next) {
		if (!in_panel(s, r, panel) || !point(s, r, &s->kind->series[series], &x, &y))
			continue;
		if (!points++)
			fprintf(s->out, "$d_%u_%zu_%zu << EOD\n", panel, input, series);
		fprintf(s->out, "%.10g %.10g\n", x, y);
	}
	if (points)
		fputs("EOD\n", s->out);
	return points;
}

/* Sizes below a panel, in the units that people use for them. */
static void size_labels(struct script *s, unsigned panel)
{
	double least = INFINITY, most = 0, x;
	unsigned steps, step;
	char text[32];

	for (size_t i = 0; i < s->n; i++) {
		for (const struct json_value *r = first_row(s, i); r; r = r->next) {
			x = json_get_number(r, "size_bytes", 0);
			if (!in_panel(s, r, panel) || x < 1 || x > 1e18)
				continue;
			least = fmin(least, x);
			most = fmax(most, x);
		}
	}
	if (most < 1)
		return;
	steps = (unsigned)(log2(most) - floor(log2(least))) + 1;
	step = (steps + LABELS - 1) / LABELS;
	fprintf(s->out, "set xrange [%g:%g]\nset xtics (", least / 1.25, most * 1.25);
	for (unsigned k = (unsigned)log2(least), n = 0; k <= (unsigned)log2(most); k += step)
		fprintf(s->out, "%s'%s' %.0f", n++ ? ", " : "",
			text_bytes((uint64_t)1 << k, text, sizeof(text)), exp2(k));
	fputs(")\n", s->out);
}

static void curves(struct script *s, unsigned panel, bool has[])
{
	size_t drawn = 0, k = 0;

	fputs("plot ", s->out);
	for (size_t input = 0; input < s->n; input++) {
		for (size_t i = 0; s->kind->series[i].key; i++, k++) {
			char title[256];

			if (!has[k])
				continue;
			snprintf(title, sizeof(title), "%s%s%s",
				 s->n > 1 ? s->inputs[input].name : "", s->n > 1 ? ": " : "",
				 s->kind->series[i].title);
			fprintf(s->out, "%s$d_%u_%zu_%zu using 1:2 with linespoints %s",
				drawn++ ? ", " : "", panel, input, i, s->kind->series[i].style);
			if (input && !strstr(s->kind->series[i].style, " dt "))
				fprintf(s->out, " dt %zu", input + 1);
			fputs(" title ", s->out);
			quoted(s->out, title);
		}
	}
	fputc('\n', s->out);
}

static void panel(struct script *s, unsigned p)
{
	bool has[PLOT_CURVES] = { false }, any = false;
	size_t k = 0;

	for (size_t input = 0; input < s->n; input++) {
		for (size_t i = 0; s->kind->series[i].key && k < PLOT_CURVES; i++, k++) {
			has[k] = data(s, p, input, i);
			any = any || has[k];
		}
	}
	if (!any)
		return;
	fputs("set title ", s->out);
	quoted(s->out, s->kind->panels[p].title);
	fputs(" noenhanced\n", s->out);
	size_labels(s, p);
	curves(s, p, has);
}

/* Which panels have something, and from where to where curves go: both get the same scale. */
static void survey(struct script *s)
{
	bool has[PANELS] = { false };
	double x, y;

	s->least = INFINITY;
	for (size_t input = 0; input < s->n; input++) {
		for (const struct plot_series *k = s->kind->series; k->key; k++) {
			bool any = false;

			for (const struct json_value *r = first_row(s, input); r; r = r->next) {
				if (!point(s, r, k, &x, &y))
					continue;
				any = true;
				s->least = fmin(s->least, y);
				s->most = fmax(s->most, y);
				for (unsigned p = 0; p < PANELS; p++)
					has[p] = has[p] || in_panel(s, r, p);
			}
			s->curves += any;
		}
	}
	s->panels = (unsigned)has[0] + has[1];
}

#define LEGEND_ROWS 16u

static unsigned legend_rows(const struct script *s)
{
	return s->curves < LEGEND_ROWS ? s->curves : LEGEND_ROWS;
}

static void all_curves(struct script *s)
{
	fprintf(s->out, "set logscale x 2\nset logscale y 10\nset format y '%%g'\n"
		"set yrange [%g:%g]\nset xlabel 'bytes in one copy'\nset ylabel ",
		s->least / 1.5, s->most * 1.5);
	quoted(s->out, s->kind->y_label);
	/* the legend below, where it covers no curve; as much room for it in each panel */
	fprintf(s->out, " noenhanced\nset bmargin %u\nset key bmargin center vertical maxrows %u "
		"Left reverse noenhanced samplen 3 spacing 1.1\n", legend_rows(s) * 9 / 8 + 5,
		legend_rows(s));
	for (unsigned p = 0; p < PANELS; p++)
		panel(s, p);
}

/* ---- bars -------------------------------------------------------------------------------- */

static bool has_bar(const struct script *s, const struct json_value *row)
{
	return json_get_number(json_get(row, s->kind->bars), "median_us", 0) > 0;
}

/* Rows of different results that are the same, and so beside each other. */
static bool same_bar(const struct json_value *a, const struct json_value *b)
{
	char x[256], y[256];

	return !strcmp(rows_name(a, x, sizeof(x)), rows_name(b, y, sizeof(y)));
}

/* From the top down: PLOT_BARS: it has none. */
static size_t place_of(const struct script *s, const struct json_value *row)
{
	for (size_t i = 0; i < s->nbars; i++)
		if (same_bar(s->bars[i], row))
			return i;
	return PLOT_BARS;
}

/* Which rows there are in the results. */
static void survey_bars(struct script *s)
{
	for (size_t i = 0; i < s->n; i++)
		for (const struct json_value *r = first_row(s, i); r; r = r->next)
			if (has_bar(s, r) && s->nbars < PLOT_BARS &&
			    place_of(s, r) == PLOT_BARS)
				s->bars[s->nbars++] = r;
	s->panels = s->nbars > 0;
}

/* All rows of one input. */
static void bar_data(struct script *s, size_t input)
{
	fprintf(s->out, "$b_%zu << EOD\n", input);
	for (const struct json_value *r = first_row(s, input); r; r = r->next) {
		const struct json_value *v = json_get(r, s->kind->bars);
		double mid = json_get_number(v, "median_us", 0);
		double low = json_get_number(v, "min_us", mid);
		double high = json_get_number(v, "p99_us", mid);
		size_t place = place_of(s, r);

		if (has_bar(s, r) && place < PLOT_BARS)
			fprintf(s->out, "%zu %.10g %.10g %.10g\n", place, mid,
				low > 0 ? low : mid, high);
	}
	fputs("EOD\n", s->out);
}

static void bar_labels(struct script *s)
{
	char name[256];

	fputs("set ytics noenhanced (", s->out);
	for (size_t i = 0; i < s->nbars; i++) {
		fputs(i ? ", " : "", s->out);
		quoted(s->out, rows_name(s->bars[i], name, sizeof(name)));
		fprintf(s->out, " %zu", i);
	}
	fputs(")\n", s->out);
}

static void all_bars(struct script *s)
{
	static const char *const colours[] = { "#1b4f9c", "#d1495b", "#edae49", "#2a9d8f" };

	for (size_t i = 0; i < s->n; i++)
		bar_data(s, i);
	bar_labels(s);
	fprintf(s->out, "set logscale x 10\nset format x '%%g'\nset xlabel ");
	quoted(s->out, s->kind->y_label);
	fprintf(s->out, " noenhanced\nset yrange [%zu.5:-0.5]\nset key %s noenhanced\nplot ",
		s->nbars - 1, s->n > 1 ? "right top" : "off");
	for (size_t i = 0; i < s->n; i++) {
		fprintf(s->out, "%s$b_%zu using 2:($1+%g):3:4 with xerrorbars lw 2 pt 7 "
			"lc rgb '%s' title ", i ? ", " : "", i, 0.15 * (double)i, colours[i % 4]);
		quoted(s->out, s->inputs[i].name);
	}
	fputc('\n', s->out);
}

/* ------------------------------------------------------------------------------------------ */

/* Bars need a line each, curves one in the legend. */
static int height(const struct script *s)
{
	return s->kind->bars ? 200 + 22 * (int)(s->nbars < 200 ? s->nbars : 200)
			     : 600 + 19 * (int)legend_rows(s);
}

/* All of one schema, which is known; else a line and an exit code. */
static int check_schemas(const char *verb, const struct plot_input *inputs, size_t n)
{
	const char *schema = json_get_string(inputs[0].json, "schema", NULL);

	for (size_t i = 0; i < n; i++) {
		const char *is = json_get_string(inputs[i].json, "schema", NULL);

		if (!is || !plot_kind(is))
			return usage_error(verb, "'%s' is no result that can be drawn: its schema "
					   "is '%s'", inputs[i].name, is ? is : "missing");
		if (strcmp(is, schema))
			return usage_error(verb, "'%s' is of the schema %s, '%s' of %s: draw them "
					   "one by one", inputs[i].name, is, inputs[0].name,
					   schema);
	}
	return TOOL_OK;
}

int plot_script(const char *verb, const struct plot_input *inputs, size_t n, bool png, FILE *out)
{
	struct script s = { .out = out, .inputs = inputs, .n = n };
	int code = check_schemas(verb, inputs, n);

	if (code)
		return code;
	s.kind = plot_kind(json_get_string(inputs[0].json, "schema", ""));
	if (s.kind->bars)
		survey_bars(&s);
	else
		survey(&s);
	if (!s.panels)
		return usage_error(verb, "'%s' has nothing to draw: no row has %s", inputs[0].name,
				   s.kind->bars ? s.kind->bars : s.kind->y);
	fprintf(out, "set terminal %s size %d,%d font 'DejaVu Sans,11' background rgb 'white'\n"
		"set grid lc rgb '#dddddd' lw 1 lt 1\nset border lc rgb '#555555'\n",
		png ? "pngcairo" : "svg", s.kind->bars || s.panels > 1 ? 1200 : 800, height(&s));
	titles(&s);
	if (s.kind->bars)
		all_bars(&s);
	else
		all_curves(&s);
	fputs("unset multiplot\n", out);
	return TOOL_OK;
}
