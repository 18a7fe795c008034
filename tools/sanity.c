/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barway sanity: the test of an installation on the device at hand.
 *
 * --json prints one object:
 *
 *	schema    "barway-sanity-1"
 *	tool      "barway sanity"
 *	version   of the library that is running
 *	soft      true: the cases ran on the soft GPU, which says nothing about a GPU
 *	note      null, or a sentence that says so
 *	device    { "index", "kind", "name", "pci", "uuid", "driver" }, strings but index; null
 *	          where unknown
 *	quick     true: --quick
 *	cases     in the order of running, each { "name", "what", "verdict", "reason", "ms" };
 *	          verdict is "passed", "failed" or "waived", reason null where it passed
 *	passed, failed, waived   how many
 *
 * Where there is no device to run on, nothing is printed but the line on standard error. With -l:
 * schema "barway-sanity-list-1", and cases, each { "name", "what", "quick" }.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "barway.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/sanity.h"
#include "tools/text.h"

#define SOFT_NOTE "there is no GPU here, and nothing below says anything about one"
#define LIMIT_SECONDS 120.0
#define MOST_CASES 64u

static const char help[] =
	"usage: barway sanity [-d DEV] [-t SECONDS] [-s CASE]... [-v] [--quick] [--json]\n"
	"                     [CASE]...\n"
	"       barway sanity -l [--json]\n"
	"\n"
	"Tests this installation on a device: data both ways at every address and size,\n"
	"of every kind of memory, under running kernels, from threads and processes,\n"
	"through barway.h and through gdrapi.h. Each case runs in a process of its own\n"
	"and is passed, failed, or waived: it cannot be run here, and the reason says\n"
	"what that leaves open.\n"
	"\n"
	"  -d, --device DEV    index, PCI address or UUID; default: the first device\n"
	"  -t, --time SECONDS  limit for each case, 0.001 to 86400; default: 120\n"
	"  -s, --skip CASE     all but this one; can be given again\n"
	"      --quick         a few cases with fewer rounds, done in seconds\n"
	"  -v, --verbose       what each case is for, and Barway's log\n"
	"  -l, --list          names of the cases\n"
	"      --json          one JSON object, schema barway-sanity-1\n"
	"  -h, --help          this text\n"
	"\n"
	"exit status: 0 nothing failed, 1 something failed or cannot be run, 2 usage\n";

static const struct option longs[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "time", required_argument, NULL, 't' },
	{ "skip", required_argument, NULL, 's' },
	{ "quick", no_argument, NULL, 'Q' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "list", no_argument, NULL, 'l' },
	{ "json", no_argument, NULL, 'J' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static const char *const verdicts[SANITY_VERDICTS] = {
	[SANITY_PASSED] = "passed",
	[SANITY_FAILED] = "failed",
	[SANITY_WAIVED] = "waived",
};

struct run {
	const char *device;
	double limit;
	bool json, list, skips;
	bool skip[MOST_CASES], wanted[MOST_CASES]; /* by place in the list */
	unsigned n;       /* cases to run */
	struct sanity_target target;
	struct json out;
	unsigned count[SANITY_VERDICTS];
};

/* ---- the command line -------------------------------------------------------------------- */

/* The place of the case in the list; -1: there is none of that name. */
static int place(const char *name)
{
	const struct sanity_case *c = NULL;

	for (int i = 0; (c = sanity_next(c)); i++) {
		if (!strcmp(c->name, name))
			return i;
	}
	return -1;
}

static int mark(bool marks[], const char *name)
{
	int i = place(name);

	if (i < 0)
		return usage_error("sanity", "unknown case '%s'; 'barway sanity -l' lists them",
				   name);
	marks[i] = true;
	return TOOL_OK;
}

static int parse_limit(const char *text, double *seconds)
{
	size_t digits = strspn(text, "0123456789"), rest;

	rest = text[digits] == '.' ? 1 + strspn(text + digits + 1, "0123456789") : 0;
	if (digits && digits < 9 && rest != 1 && rest < 9 && !text[digits + rest])
		*seconds = strtod(text, NULL); /* the point is a point: no setlocale() */
	else
		*seconds = 0;
	if (*seconds >= 0.001 && *seconds <= 86400)
		return TOOL_OK;
	return usage_error("sanity", "-t: '%s' is not a number of seconds from 0.001 to 86400",
			   text);
}

static int parse_option(struct run *r, int c)
{
	switch (c) {
	case 'd':
		r->device = optarg;
		return TOOL_OK;
	case 't':
		return parse_limit(optarg, &r->limit);
	case 's':
		r->skips = true;
		return mark(r->skip, optarg);
	case 'Q':
		r->target.quick = true;
		return TOOL_OK;
	case 'v':
		r->target.verbose = true;
		return TOOL_OK;
	case 'l':
		r->list = true;
		return TOOL_OK;
	case 'J':
		r->json = true;
		return TOOL_OK;
	default:
		return TOOL_USAGE;
	}
}

/* Which cases to run: those named, or all, or the quick ones; but not those to skip. */
static int choose(struct run *r, int argc, char **argv)
{
	bool named = optind < argc;
	const struct sanity_case *c = NULL;
	int code = TOOL_OK;

	for (; optind < argc && code == TOOL_OK; optind++)
		code = mark(r->wanted, argv[optind]);
	for (unsigned i = 0; (c = sanity_next(c)); i++) {
		r->wanted[i] = (named ? r->wanted[i] : c->quick || !r->target.quick) && !r->skip[i];
		r->n += r->wanted[i];
	}
	if (code == TOOL_OK && !r->n)
		code = usage_error("sanity", "no case is left to run");
	return code;
}

static int parse(int argc, char **argv, struct run *r, bool *done)
{
	int c, code = TOOL_OK;

	while (code == TOOL_OK && (c = next_option_only(argc, argv, ":d:t:s:vlh", longs)) != -1) {
		*done = c == 'h';
		if (*done) {
			fputs(help, stdout);
			return TOOL_OK;
		}
		code = parse_option(r, c);
	}
	return code == TOOL_OK ? choose(r, argc, argv) : code;
}

static void print_list(void)
{
	const struct sanity_case *c = NULL;

	while ((c = sanity_next(c)))
		printf("%-18s %s%s\n", c->name, c->what, c->quick ? " (quick)" : "");
}

/* ---- for people -------------------------------------------------------------------------- */

static void print_head(const struct run *r)
{
	const struct barway_device_info *i = &r->target.info;
	unsigned v = barway_version();
	char text[512];

	snprintf(text, sizeof(text), "device %d: %s%s%s%s%s", i->index, i->name,
		 *i->pci ? ", " : "", i->pci, *i->driver ? ", driver " : "", i->driver);
	if (i->kind == BARWAY_DEVICE_SOFT)
		printf("%s: " SOFT_NOTE "\n", text);
	else
		printf("%s\n", text);
	printf("barway %u.%u.%u sanity, %u case%s%s\n\n", v >> 16, v >> 8 & 255, v & 255, r->n,
	       r->n == 1 ? "" : "s", r->target.quick ? ", quick" : "");
}

#define REASON_INDENT 9

static void print_case(const struct run *r, const struct sanity_case *c,
		       const struct sanity_result *result)
{
	progress_clear();
	printf("%s  %-18s %8.0f ms", verdicts[result->verdict], c->name, result->ms);
	if (r->target.verbose)
		printf("  %s", c->what);
	putchar('\n');
	if (*result->reason) {
		printf("%*s", REASON_INDENT, "");
		text_wrap(stdout, result->reason, REASON_INDENT, REASON_INDENT);
	}
	fflush(stdout);
}

static void print_total(const struct run *r)
{
	printf("\nTotal: %u, Passed: %u, Failed: %u, Waived: %u\n", r->n, r->count[SANITY_PASSED],
	       r->count[SANITY_FAILED], r->count[SANITY_WAIVED]);
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_text(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value && *value ? value : NULL);
}

static void json_device(struct json *j, const struct barway_device_info *i)
{
	json_key(j, "device");
	json_object(j);
	json_key(j, "index");
	json_int(j, i->index);
	json_text(j, "kind", i->kind == BARWAY_DEVICE_SOFT ? "soft" : "cuda");
	json_text(j, "name", i->name);
	json_text(j, "pci", i->pci);
	json_text(j, "uuid", i->uuid);
	json_text(j, "driver", i->driver);
	json_object_end(j);
}

static void json_head(struct run *r)
{
	bool soft = r->target.info.kind == BARWAY_DEVICE_SOFT;
	unsigned v = barway_version();
	struct json *j = &r->out;
	char version[48];

	snprintf(version, sizeof(version), "%u.%u.%u", v >> 16, v >> 8 & 255, v & 255);
	json_init(j, stdout);
	json_object(j);
	json_text(j, "schema", "barway-sanity-1");
	json_text(j, "tool", "barway sanity");
	json_text(j, "version", version);
	json_key(j, "soft");
	json_bool(j, soft);
	json_text(j, "note", soft ? SOFT_NOTE : NULL);
	json_device(j, &r->target.info);
	json_key(j, "quick");
	json_bool(j, r->target.quick);
	json_key(j, "cases");
	json_array(j);
}

static void json_case(struct json *j, const struct sanity_case *c,
		      const struct sanity_result *result)
{
	progress_clear();
	json_object(j);
	json_text(j, "name", c->name);
	json_text(j, "what", c->what);
	json_text(j, "verdict", verdicts[result->verdict]);
	json_text(j, "reason", result->reason);
	json_key(j, "ms");
	json_double(j, result->ms);
	json_object_end(j);
}

static void json_total(struct run *r)
{
	json_array_end(&r->out);
	for (unsigned i = 0; i < SANITY_VERDICTS; i++) {
		json_key(&r->out, verdicts[i]);
		json_uint(&r->out, r->count[i]);
	}
	json_object_end(&r->out);
}

static void json_list(struct json *j)
{
	const struct sanity_case *c = NULL;

	json_init(j, stdout);
	json_object(j);
	json_text(j, "schema", "barway-sanity-list-1");
	json_key(j, "cases");
	json_array(j);
	while ((c = sanity_next(c))) {
		json_object(j);
		json_text(j, "name", c->name);
		json_text(j, "what", c->what);
		json_key(j, "quick");
		json_bool(j, c->quick);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

/* ---- the verb ---------------------------------------------------------------------------- */

static void run_cases(struct run *r)
{
	const struct sanity_case *c = NULL;
	struct sanity_result result;
	unsigned done = 0;

	for (unsigned i = 0; (c = sanity_next(c)); i++) {
		if (!r->wanted[i])
			continue;
		progress("%s (%u of %u)", c->name, ++done, r->n);
		sanity_run(c, &r->target, r->limit, &result);
		r->count[result.verdict]++;
		if (r->json)
			json_case(&r->out, c, &result);
		else
			print_case(r, c, &result);
	}
}

int tool_sanity(int argc, char **argv)
{
	struct run r = { .limit = LIMIT_SECONDS };
	bool done = false;
	char why[1024];
	int code = parse(argc, argv, &r, &done), ret;

	if (code || done)
		return code;
	if (r.list) {
		if (r.json)
			json_list(&r.out);
		else
			print_list();
		return TOOL_OK;
	}
	progress_begin();
	ret = sanity_find(r.device, &r.target, why, sizeof(why));
	if (ret == -ENODEV && r.device)
		return usage_error("sanity", "-d: %s", why);
	if (ret < 0)
		return failure("sanity", "%s", why);
	if (r.json)
		json_head(&r);
	else
		print_head(&r);
	run_cases(&r);
	if (r.json)
		json_total(&r);
	else
		print_total(&r);
	return r.count[SANITY_FAILED] ? TOOL_FAILED : TOOL_OK;
}
