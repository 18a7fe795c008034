/* SPDX-License-Identifier: BSD-3-Clause */
/* What is done with results: read, compare, draw; and where threads are put. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "tools/compare.h"
#include "tools/json_read.h"
#include "tools/options.h"
#include "tools/place.h"
#include "tools/plot.h"
#include "tools/progress.h"
#include "tools/replace.h"
#include "tools/rows.h"

/* ---- reading JSON ------------------------------------------------------------------------ */

static char error[160];

/* From memory that ends where the text ends, so that a sanitizer sees what goes beyond. */
static struct json_value *read_text(const char *text, size_t n)
{
	char *copy = malloc(n ? n : 1);
	struct json_value *v;

	CHECK(copy);
	memcpy(copy, text, n);
	*error = 0;
	v = json_read(copy, n, error, sizeof(error));
	free(copy);
	return v;
}

static struct json_value *parse(const char *text)
{
	struct json_value *v = read_text(text, strlen(text));

	if (!v)
		FAIL("'%s': %s", text, error);
	return v;
}

static void reads_values(void)
{
	struct json_value *v = parse(" {\"a\": [1, -2.5e1, true,false ,null, \"x\"], \"b\": {}, "
				     "\"c\": {\"d\": {\"e\": 7}}}\r\n\t");
	const struct json_value *a = json_get(v, "a");

	CHECK(v->type == JSON_OBJECT && a && a->type == JSON_ARRAY);
	a = a->first;
	CHECK(a->type == JSON_NUMBER && a->number == 1 && !a->key);
	a = a->next;
	CHECK(a->number == -25);
	a = a->next;
	CHECK(a->type == JSON_BOOL && a->boolean);
	a = a->next;
	CHECK(a->type == JSON_BOOL && !a->boolean);
	CHECK(a->next->type == JSON_NULL);
	CHECK_STR(a->next->next->string, "x");
	CHECK(!a->next->next->next);
	CHECK(json_get(v, "b")->type == JSON_OBJECT && !json_get(v, "b")->first);
	CHECK(json_get_number(v, "c.d.e", 0) == 7);
	CHECK(!json_get(v, "c.d.e.f") && !json_get(v, "c.x") && !json_get(v, "x"));
	CHECK(!json_get(v, "c.d.ee") && !json_get(v, "c.d."));
	CHECK_STR(json_get_string(v, "c", "none"), "none");
	json_free(v);
}

static void reads_strings(void)
{
	struct json_value *v = parse("[\"\", \"\\\"\\\\\\/\\b\\f\\n\\r\\t\", "
				     "\"\\u0041\\u00e4\\u20AC\\ud83d\\ude00\"]");

	CHECK_STR(v->first->string, "");
	CHECK_STR(v->first->next->string, "\"\\/\b\f\n\r\t");
	CHECK_STR(v->first->next->next->string, "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
	json_free(v);
}

static void refuses_what_is_not_json(void)
{
	static const char *const bad[] = {
		"", " ", "{", "[", "]", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\" 1}",
		"{a: 1}", "{\"a\": 1,}", "{\"a\": 1 \"b\": 2}", "{1: 2}", "01", "1.", ".5", "-",
		"+1", "1e", "1e+", "0x1", "NaN", "Infinity", "tru", "True", "nul", "'a'", "\"a",
		"\"\\",
		"\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\ud800\\u0041\"",
		"\"\\udc00\"", "\"\\u0000\"", "\"a\nb\"", "\"a\tb\"", "1 1", "{} []", "[1}", "{]",
		"//x\n1", "[1]x", "[\"a\"\"b\"]",
		"1000000000000000000000000000000000000000000000000000000000000000000",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct json_value *v = read_text(bad[i], strlen(bad[i]));

		if (v)
			FAIL("'%s' was taken for JSON", bad[i]);
		CHECK_HAS(error, "not JSON: ");
	}
	CHECK(!read_text("[1, 2\0]", 7));
	CHECK(!read_text("{\n\n \"a\": x}", 11));
	CHECK_STR(error, "line 3: not JSON: no value");
}

static void bounds_its_depth(void)
{
	static char deep[200000];
	struct json_value *v;

	memset(deep, '[', 32);
	memset(deep + 32, ']', 32);
	v = read_text(deep, 64);
	CHECK(v);
	json_free(v);
	memset(deep, '[', 33);
	memset(deep + 33, ']', 33);
	CHECK(!read_text(deep, 66));
	CHECK_HAS(error, "too many levels");
	memset(deep, '[', sizeof(deep));
	CHECK(!read_text(deep, sizeof(deep)));
}

static const char result[] =
	"{\"schema\": \"barway-copylat-1\", \"date\": \"2026-11-30T05:55:28Z\",\n"
	" \"version\": \"0.1.0\",\n"
	" \"device\": {\"kind\": \"soft\", \"name\": \"A \\\"B\\\" \\u00e4\", \"driver\": \"d\"},\n"
	" \"flush\": {\"alone\": {\"median_us\": 1.0, \"q1_us\": 0.9, \"q3_us\": 1.1}},\n"
	" \"results\": [\n"
	"  {\"direction\": \"to\", \"size_bytes\": 8, \"verified\": true,\n"
	"   \"ratio\": {\"row\": 3},\n"
	"   \"barway\": {\"alone\": {\"median_us\": 1e-1, \"p99_us\": 0.2, \"min_us\": 0.05},\n"
	"    \"row\": {\"median_us\": 0.5, \"q1_us\": 0.4, \"q3_us\": 0.6}}},\n"
	"  {\"direction\": \"from\", \"size_bytes\": 65536,\n"
	"   \"barway\": {\"row\": {\"median_us\": 7.5, \"q1_us\": 7, \"q3_us\": 8}},\n"
	"   \"cumemcpy\": {\"row\": {\"median_us\": null}}}]}\n";

static void walk(const struct json_value *v, size_t *n)
{
	for (; v; v = v->next) {
		*n += 1 + (v->string ? strlen(v->string) : 0) + (v->key ? strlen(v->key) : 0);
		walk(v->first, n);
	}
}

/* Everything that is done with a result, with whatever came out. */
static void use(const struct json_value *v)
{
	struct plot_input input = { .name = "x", .json = v };
	FILE *null = fopen("/dev/null", "w");
	struct rows_measurement m;
	char name[16];
	size_t n = 0;

	CHECK(null);
	walk(v, &n);
	for (const struct json_value *r = json_get(v, "results") ? json_get(v, "results")->first
								   : NULL; r; r = r->next) {
		rows_name(r, name, sizeof(name));
		rows_get(r, "barway.row", &m);
	}
	compare_print("test", v, v, null);
	plot_script("test", &input, 1, false, null);
	fclose(null);
}

/* Complaints about what the mutants are would be a hundred thousand lines. */
static int quiet_stderr(void)
{
	int old = dup(2);

	CHECK(old >= 0 && freopen("/dev/null", "w", stderr));
	return old;
}

static void survives_mutants(void)
{
	static const char marks[] = "{}[]\",:\\u0e-+.ntf \n";
	char text[sizeof(result)];
	uint64_t x = 88172645463325252ull;
	unsigned taken = 0, refused = 0;
	int old = quiet_stderr();

	for (unsigned round = 0; round < 20000; round++) {
		size_t n = sizeof(result) - 1;

		memcpy(text, result, sizeof(text));
		for (unsigned k = 0; k <= round % 4; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			text[x % n] = round % 3 ? marks[(x >> 32) % (sizeof(marks) - 1)]
						: (char)(x >> 40);
			if (x >> 60 == 0)
				n = x >> 32 & 0xff ? n - (x >> 32) % n : n;
		}
		struct json_value *v = read_text(text, n);

		if (v && round % 16 == 0)
			use(v);
		taken += v != NULL;
		refused += !v;
		json_free(v);
	}
	fflush(stderr);
	dup2(old, 2);
	close(old);
	CHECK(taken > 100 && refused > 1000);
}

/* ---- rows -------------------------------------------------------------------------------- */

static bool count(const struct rows_measurement *m, void *arg)
{
	(void)m;
	++*(unsigned *)arg;
	return true;
}

static void rows_have_names(void)
{
	struct json_value *v = parse(result);
	const struct json_value *row = json_get(v, "results")->first;
	struct rows_measurement m;
	unsigned n = 0;
	char name[64];

	CHECK_STR(rows_name(row, name, sizeof(name)), "to, 8 B");
	CHECK_STR(rows_name(row->next, name, sizeof(name)), "from, 64 KiB");
	CHECK(rows_find(v, "from, 64 KiB") == row->next && !rows_find(v, "from, 8 B"));
	CHECK(rows_get(row, "barway.alone", &m) && m.median == 0.1);
	CHECK(m.low == 0.05 && m.high == 0.2);
	CHECK_STR(m.unit, "us");
	CHECK(!m.more_is_better);
	CHECK(rows_get(row, "barway.row", &m) && m.low == 0.4 && m.high == 0.6);
	CHECK(!rows_get(row, "ratio", &m) && !rows_get(row->next, "cumemcpy.row", &m));
	rows_each(row, count, &n);
	CHECK_EQ(n, 2);
	n = 0;
	rows_each(v, count, &n); /* those of the whole run: not in "results", which is a list */
	CHECK_EQ(n, 1);
	json_free(v);
	v = parse("{\"x\": {\"median_gbs\": 5, \"p99_gbs\": 3, \"max_gbs\": 6}}");
	CHECK(rows_get(v, "x", &m) && m.more_is_better && m.low == 3 && m.high == 6);
	json_free(v);
}

/* Sizes that people are shown alike, 1.5 KiB and 1.5 MiB, are not the same row. */
static void names_have_exact_sizes(void)
{
	struct json_value *v = parse("{\"results\": [{\"size_bytes\": 1500}, "
				     "{\"size_bytes\": 1520}, {\"size_bytes\": 1572864}, "
				     "{\"size_bytes\": 1572865}]}");
	const struct json_value *row = json_get(v, "results")->first;
	char name[64];

	CHECK_STR(rows_name(row, name, sizeof(name)), "1500 B");
	for (; row; row = row->next)
		CHECK(rows_find(v, rows_name(row, name, sizeof(name))) == row);
	json_free(v);
}

/* ---- comparing --------------------------------------------------------------------------- */

static char *table;
static size_t table_size;

static struct json_value *row_of(const char *measurement)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"schema\": \"s\", \"results\": [{\"direction\": \"to\", "
		 "\"size_bytes\": 8, \"x\": {%s}}]}", measurement);
	return parse(text);
}

/* Leaves @table, to be freed. */
static int compare(struct json_value *old, struct json_value *new)
{
	FILE *f = open_memstream(&table, &table_size);
	int code;

	CHECK(f);
	code = compare_print("test", old, new, f);
	fclose(f);
	json_free(old);
	json_free(new);
	return code;
}

/* "N better, N worse" of the two */
static void compared_is(const char *old_text, const char *new_text, const char *want)
{
	CHECK_EQ(compare(row_of(old_text), row_of(new_text)), TOOL_OK);
	if (!strstr(table, want))
		FAIL("%s against %s: no '%s' in %s", new_text, old_text, want, table);
	free(table);
}

#define US(median, q1, q3) \
	"\"median_us\": " #median ", \"q1_us\": " #q1 ", \"q3_us\": " #q3
#define GBS(median, q1, q3) \
	"\"median_gbs\": " #median ", \"q1_gbs\": " #q1 ", \"q3_gbs\": " #q3

static void compares(void)
{
	compared_is(US(10, 9.9, 10.1), US(10, 9.9, 10.1), ": 0 of 1 (0 better, 0 worse)");
	compared_is(US(10, 9.9, 10.1), US(10.4, 10.3, 10.5), "(0 better, 0 worse)"); /* 4 % */
	compared_is(US(10, 9.9, 10.1), US(12, 11.9, 12.1), "(0 better, 1 worse)");
	compared_is(US(10, 9.9, 10.1), US(8, 7.9, 8.1), "(1 better, 0 worse)");
	compared_is(US(10, 9, 13), US(12, 11.9, 12.1), "(0 better, 0 worse)"); /* in the old's */
	compared_is(US(10, 9.9, 10.1), US(12, 9, 13), "(0 better, 0 worse)"); /* in the new's */
	compared_is(US(10, 9, 13), US(8, 7.9, 8.1), "(1 better, 0 worse)");
	compared_is(US(0.004, 0.004, 0.004), US(0.008, 0.008, 0.008), "(0 better, 0 worse)");
	compared_is(GBS(10, 9.9, 10.1), GBS(12, 11.9, 12.1), "(1 better, 0 worse)");
	compared_is(GBS(10, 9.9, 10.1), GBS(8, 7.9, 8.1), "(0 better, 1 worse)");
	compared_is(US(10, 9.9, 10.1), US(12, 11.9, 12.1), "to, 8 B");
	compared_is(US(10, 9.9, 10.1), US(12, 11.9, 12.1), " 1.20!");
	compared_is(US(10, 9.9, 10.1), US(12, 11.9, 12.1), "  ! to, 8 B: x: 12, was 10 us");
	/* no quartiles: from the minimum to p99 */
	compared_is("\"median_us\": 10, \"min_us\": 9, \"p99_us\": 15", US(12, 11.9, 12.1),
		    "(0 better, 0 worse)");
	compared_is("\"median_us\": 0", US(12, 11.9, 12.1), "-!");
}

/* What it says on standard error. */
static char *compare_says(struct json_value *old, struct json_value *new, int want)
{
	static char said[2048];
	FILE *f = tmpfile();
	int saved = dup(2), code;
	size_t n;

	fflush(stderr);
	CHECK(f && saved >= 0 && dup2(fileno(f), 2) == 2);
	code = compare(old, new);
	fflush(stderr);
	dup2(saved, 2);
	close(saved);
	rewind(f);
	n = fread(said, 1, sizeof(said) - 1, f);
	said[n] = 0;
	fclose(f);
	CHECK_EQ(code, want);
	return said;
}

static void compares_nothing(void)
{
	static const char nothing[] = "the two have no row in common";

	CHECK_HAS(compare_says(row_of("\"y\": 1"), row_of(US(12, 11.9, 12.1)), TOOL_USAGE),
		  nothing);
	CHECK_HAS(table, ": 0 of 0 ");
	free(table);
	/* not of one unit */
	CHECK_HAS(compare_says(row_of(GBS(5, 5, 5)), row_of(US(12, 11.9, 12.1)), TOOL_USAGE),
		  nothing);
	free(table);
}

#define ROW(size, column) \
	"{\"size_bytes\": " #size ", \"" #column "\": {" US(10, 9.9, 10.1) "}}"

static void says_what_only_one_has(void)
{
	struct json_value *old = parse("{\"results\": [" ROW(8, x) "," ROW(16, y) "]}");
	struct json_value *new = parse("{\"results\": [" ROW(8, x) "," ROW(32, x) "," ROW(64, z)
				       "]}");

	CHECK_EQ(compare(old, new), TOOL_OK);
	CHECK_HAS(table, ": 0 of 1 ");
	CHECK_HAS(table, "\nnot in the older result: 2 of 3 rows: 32 B; 64 B\n");
	CHECK_HAS(table, "\nnot in the new result: 1 of 2 rows: 16 B\n");
	CHECK_HAS(table, "\nnot in the older result: 1 of 2 columns: z\n");
	CHECK_HAS(table, "\nnot in the new result: 1 of 2 columns: y\n");
	free(table);
}

#define RUN(options) "{" options ", \"results\": [" ROW(8, x) "]}"

static void warns_of_options(void)
{
	const char *said = compare_says(
		parse(RUN("\"offset_bytes\": 0, \"resident\": false, \"numa\": \"near\"")),
		parse(RUN("\"offset_bytes\": 63, \"resident\": true, \"helpers\": 2")), TOOL_OK);

	CHECK_HAS(said, "; offset_bytes was 0, is 63");
	CHECK_HAS(said, "; resident was false, is true");
	CHECK_HAS(said, "; helpers was none, is 2");
	CHECK_HAS(said, "; numa was 'near', is none");
	free(table);
	CHECK_STR(compare_says(parse(RUN("\"resident\": true")), parse(RUN("\"resident\": true")),
			       TOOL_OK), "");
	free(table);
}

/* ---- drawing ----------------------------------------------------------------------------- */

static char *script;

static int make_script(const struct plot_input *inputs, size_t n, bool png)
{
	size_t size;
	FILE *f = open_memstream(&script, &size);
	int code;

	CHECK(f);
	code = plot_script("test", inputs, n, png, f);
	fclose(f);
	return code;
}

static void draws_the_soft_gpu_as_such(void)
{
	struct json_value *v = parse(result);
	struct plot_input input = { .name = "x", .json = v };
	char text[sizeof(result)];

	CHECK_EQ(make_script(&input, 1, false), TOOL_OK);
	CHECK_HAS(script, "SOFT GPU: SAYS NOTHING ABOUT A GPU");
	CHECK_HAS(script, "set terminal svg ");
	CHECK_HAS(script, "A ?B? ??, driver d; ");
	CHECK_HAS(script, "2026-11-30");
	CHECK_HAS(script, "\n8 0.5\nEOD\n");
	CHECK_HAS(script, "\n65536 7.5\nEOD\n");
	CHECK_HAS(script, "'Barway, one CPU thread'");
	CHECK(!strstr(script, "cudaMemcpy"));
	free(script);
	json_free(v);
	memcpy(text, result, sizeof(text));
	memcpy(strstr(text, "soft"), "cuda", 4);
	input.json = v = parse(text);
	CHECK_EQ(make_script(&input, 1, true), TOOL_OK);
	CHECK(!strstr(script, "SOFT GPU"));
	CHECK_HAS(script, "set terminal pngcairo ");
	free(script);
	json_free(v);
}

/* A name from a file cannot make gnuplot do anything. */
static void quotes_what_is_in_files(void)
{
	struct json_value *v = parse("{\"schema\": \"barway-copylat-1\", \"device\": {\"kind\": "
				     "\"cuda\", \"name\": \"x\\\"\\nsystem('id')\\\\n`id`\"}, "
				     "\"results\": [{\"direction\": \"to\", \"size_bytes\": 8, "
				     "\"barway\": {\"row\": {\"median_us\": 1}}}]}");
	struct json_value *bars = parse("{\"schema\": \"barway-apiperf-1\", \"results\": [{"
					"\"call\": \"x\\\"\\nEOD\\nsystem('id')\", "
					"\"time\": {\"median_us\": 1}}]}");
	struct plot_input inputs[] = {
		{ .name = "a'b\nc", .json = v },
		{ .name = "d", .json = v },
	};

	CHECK_EQ(make_script(inputs, 2, false), TOOL_OK);
	CHECK_HAS(script, "x??system('id')");
	CHECK_HAS(script, "?id?");
	CHECK_HAS(script, "'a''b?c: Barway, one CPU thread'");
	CHECK(!strstr(script, "\nsystem") && !strchr(script, '`'));
	free(script);
	inputs[0].json = bars;
	CHECK_EQ(make_script(inputs, 1, false), TOOL_OK);
	CHECK_HAS(script, "('x\"?EOD?system(''id'')' 0)\n");
	CHECK_HAS(script, "\n0 1 1 1\n");
	free(script);
	json_free(v);
	json_free(bars);
}

/* Rows of two results stand beside each other where they are the same. */
static void bars_stand_by_their_names(void)
{
#define CALL(name, size, us) "{\"call\": \"" name "\", \"size_bytes\": " #size ", " \
			     "\"time\": {\"median_us\": " #us "}}"
#define CALLS(rows) "{\"schema\": \"barway-apiperf-1\", \"results\": [" rows "]}"
	struct json_value *a = parse(CALLS(CALL("map", 1024, 1) "," CALL("flush", 0, 2)));
	struct json_value *b = parse(CALLS(CALL("map", 2048, 3) "," CALL("map", 1024, 4) ","
					   CALL("flush", 0, 5)));
	struct plot_input inputs[] = { { .name = "a", .json = a }, { .name = "b", .json = b } };

	CHECK_EQ(make_script(inputs, 2, false), TOOL_OK);
	CHECK_HAS(script, "$b_0 << EOD\n0 1 1 1\n1 2 2 2\nEOD\n");
	CHECK_HAS(script, "$b_1 << EOD\n2 3 3 3\n0 4 4 4\n1 5 5 5\nEOD\n");
	CHECK_HAS(script, "('map, 1 KiB' 0, 'flush, 0 B' 1, 'map, 2 KiB' 2)\n");
	CHECK_HAS(script, "set yrange [2.5:-0.5]\n");
	free(script);
	json_free(a);
	json_free(b);
}

static void refuses_to_draw(void)
{
	struct json_value *none = parse("{\"schema\": \"barway-copylat-1\", \"results\": []}");
	struct json_value *alien = parse("{\"schema\": \"other\"}"), *list = parse("[]");
	struct json_value *fine = parse(result);
	const struct json_value *all[] = { none, alien, list };
	int old = quiet_stderr();
	int codes[4];

	for (int i = 0; i < 3; i++) {
		struct plot_input input = { .name = "x", .json = all[i] };

		codes[i] = make_script(&input, 1, false);
		free(script);
	}
	struct plot_input two[] = { { .name = "x", .json = fine }, { .name = "y", .json = alien } };

	codes[3] = make_script(two, 2, false);
	free(script);
	fflush(stderr);
	dup2(old, 2);
	close(old);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(codes[i], TOOL_USAGE);
	json_free(none);
	json_free(alien);
	json_free(list);
	json_free(fine);
}

/* ---- NUMA -------------------------------------------------------------------------------- */

static void places_parse(void)
{
	static const char *const bad[] = {
		"", "Near", "nearby", "node", "node:", "node:x", "node:-1", "node:1024", "1",
		" far",
	};
	struct place_choice c;

	CHECK(place_parse("near", &c) && c.want == PLACE_NEAR);
	CHECK(place_parse("far", &c) && c.want == PLACE_FAR);
	CHECK(place_parse("node:12", &c) && c.want == PLACE_NODE && c.node == 12);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (place_parse(bad[i], &c))
			FAIL("'%s' was taken for a place", bad[i]);
	}
	CHECK(place_nodes() >= 1);
}

/* Nobody is bound who did not ask and whose device has no node that is known. */
static void places_by_default(void)
{
	struct place_choice c = { 0 };
	int node = 7;

	CHECK_EQ(place_choose("test", &c, -1, &node), TOOL_OK);
	CHECK_EQ(node, -1);
	if (place_nodes() == 1) {
		c.want = PLACE_NEAR;
		CHECK_EQ(place_choose("test", &c, -1, &node), TOOL_OK);
		CHECK_EQ(node, -1);
		CHECK_EQ(place_choose("test", &c, 0, &node), TOOL_OK);
		c.want = PLACE_DEFAULT;
	}
	CHECK_EQ(place_bind("test", -1), TOOL_OK);
	CHECK(!place_warn("test", &c, -1));
}

/* ---- files ------------------------------------------------------------------------------- */

static void file_has(const char *path, const char *want)
{
	char text[64] = "";
	FILE *f = fopen(path, "r");

	CHECK(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	CHECK_STR(text, want);
}

/* A limit stands for a full disk: what was there stays, and nothing else is left behind. */
static void replaces_files_as_a_whole(void)
{
	char folder[] = "/tmp/barway-replace-XXXXXX", path[64], all[64];
	struct rlimit was, little;
	static char text[5000];
	struct stat st;
	glob_t found;
	int ret;

	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(all, sizeof(all), "%s/*", folder);
	CHECK_EQ(replace_file(path, "old", 3), 0);
	CHECK(!chmod(path, 0640));
	CHECK(!getrlimit(RLIMIT_FSIZE, &was));
	little = (struct rlimit){ .rlim_cur = 4096, .rlim_max = was.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	CHECK(!setrlimit(RLIMIT_FSIZE, &little));
	ret = replace_file(path, text, sizeof(text));
	CHECK(!setrlimit(RLIMIT_FSIZE, &was));
	CHECK_EQ(ret, -EFBIG);
	file_has(path, "old");
	CHECK_EQ(replace_file(path, "new", 3), 0);
	file_has(path, "new");
	CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0640);
	CHECK(!glob(all, 0, NULL, &found) && found.gl_pathc == 1);
	globfree(&found);
	unlink(path);
	rmdir(folder);
	CHECK_EQ(replace_file(path, "new", 3), -ENOENT);
}

/* ---- progress ---------------------------------------------------------------------------- */

/* A step that begins at once and takes long is told while it lasts. */
static void tells_of_a_long_step(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), terminal, saved = dup(2);
	char text[1024] = "";
	ssize_t n;

	if (master < 0)
		SKIP("no terminal can be made here: %s", strerror(errno));
	CHECK(saved >= 0 && !grantpt(master) && !unlockpt(master));
	terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
	CHECK(terminal >= 0);
	fflush(stderr);
	CHECK(dup2(terminal, 2) == 2);
	progress_begin();
	progress("step %d", 1);
	usleep(2800000);
	progress_clear();
	usleep(700000); /* nothing more */
	dup2(saved, 2);
	close(saved);
	n = read(master, text, sizeof(text) - 1);
	close(terminal);
	close(master);
	CHECK(n > 0);
	CHECK_HAS(text, "step 1 ... 2 s\r\033[K");
	CHECK_STR(strrchr(text, '\r'), "\r\033[K");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(reads_values),
		TEST(reads_strings),
		TEST(refuses_what_is_not_json),
		TEST(bounds_its_depth),
		TEST(survives_mutants),
		TEST(rows_have_names),
		TEST(names_have_exact_sizes),
		TEST(compares),
		TEST(compares_nothing),
		TEST(says_what_only_one_has),
		TEST(warns_of_options),
		TEST(draws_the_soft_gpu_as_such),
		TEST(quotes_what_is_in_files),
		TEST(bars_stand_by_their_names),
		TEST(refuses_to_draw),
		TEST(places_parse),
		TEST(places_by_default),
		TEST(replaces_files_as_a_whole),
		TEST(tells_of_a_long_step),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
