/* SPDX-License-Identifier: BSD-3-Clause */
/* barway plot: draws saved results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "tools/plot.h"

#define VERB "plot"
#define FILES 8

static const char help[] =
	"usage: barway plot -o FILE RESULT.json...\n"
	"\n"
	"Draws results that copylat, copybw, apiperf, tune, pplat, bench channel, netlat\n"
	"or netbw wrote with --json or --save, as their --plot does. Several results of\n"
	"one schema are drawn on top of each other.\n"
	"It needs gnuplot, but no GPU: measure there, draw here.\n"
	"\n"
	"  -o, --output FILE   the picture: FILE ends in .svg or .png\n"
	"  -h, --help          this text\n"
	"\n"
	"exit status: 0 drawn, 1 failed, 2 usage\n";

static const struct option longs[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* The name of a file without its folder and ending. */
static const char *short_name(const char *path, char *buf, size_t n)
{
	const char *slash = strrchr(path, '/');
	char *dot;

	snprintf(buf, n, "%s", slash ? slash + 1 : path);
	dot = strrchr(buf, '.');
	if (dot && dot != buf)
		*dot = 0;
	return buf;
}

static int draw(const char *output, char **paths, size_t n)
{
	struct plot_input inputs[FILES];
	struct json_value *values[FILES] = { NULL };
	char names[FILES][64], error[160];
	int code = plot_check(VERB, output);

	for (size_t i = 0; i < n && code == TOOL_OK; i++) {
		values[i] = json_read_file(paths[i], error, sizeof(error));
		if (!values[i])
			code = usage_error(VERB, "'%s': %s", paths[i], error);
		inputs[i].name = short_name(paths[i], names[i], sizeof(names[i]));
		inputs[i].json = values[i];
	}
	if (code == TOOL_OK)
		code = plot_draw(VERB, inputs, n, output);
	for (size_t i = 0; i < n; i++)
		json_free(values[i]);
	return code;
}

int tool_plot(int argc, char **argv)
{
	const char *output = NULL;
	size_t n;
	int c;

	while ((c = next_option_only(argc, argv, ":o:h", longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return TOOL_OK;
		}
		if (c != 'o')
			return TOOL_USAGE;
		output = optarg;
	}
	n = (size_t)(argc - optind);
	if (!output)
		return usage_error(VERB, "no output: give -o FILE.svg or -o FILE.png");
	if (!n)
		return usage_error(VERB, "no result to draw: give a file that --json or --save "
				   "wrote");
	if (n > FILES)
		return usage_error(VERB, "%zu results are too many for one picture: give at most "
				   "%d", n, FILES);
	return draw(output, argv + optind, n);
}
