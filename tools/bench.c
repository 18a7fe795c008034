/* SPDX-License-Identifier: BSD-3-Clause */
/* barway bench: measurements that have no tool of GDRCopy's to stand beside. */
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/options.h"

static const char help[] =
	"usage: barway bench WHAT [OPTION]...\n"
	"       barway bench WHAT --help | --help\n"
	"\n"
	"  channel   messages between the CPU and a running kernel: round trips, rates,\n"
	"            a work queue\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

int tool_bench(int argc, char **argv)
{
	static char name[] = "bench channel"; /* in messages */

	if (argc < 2)
		return usage_error("bench", "say what: channel; see 'barway bench --help'");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		fputs(help, stdout);
		return TOOL_OK;
	}
	if (*argv[1] == '-')
		return usage_error("bench", "unknown option '%s'; see 'barway bench --help'",
				   argv[1]);
	if (strcmp(argv[1], "channel"))
		return usage_error("bench", "unknown '%s'; see 'barway bench --help'", argv[1]);
	argv[1] = name;
	return tool_bench_channel(argc - 1, argv + 1);
}
