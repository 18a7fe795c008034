/* SPDX-License-Identifier: BSD-3-Clause */
/* barway netbw: how much goes from one process's memory to another's. */
#include "tools/netverb.h"
#include "tools/options.h"

static const char help[] =
	"usage: barway netbw NAME | --local [OPTION]...\n"
	"       barway netbw --server [ADDR] [OPTION]...\n"
	"\n"
	"Measures GB/s (10^9 bytes a second) of transfers between the GPU memory of two\n"
	"processes, on one machine or two: several under way at once, until the last one\n"
	"is VISIBLE at the other end. Data is checked, and the way that it took is\n"
	"printed.\n"
	"\n"
	NET_HELP_ENDS
	NET_HELP_SERVER
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    sizes: 4K, 16K, 64K ... MAXSIZE; default 64M, at most\n"
	"                        256M\n"
	"  -c, --copy-size SIZE  this size only\n"
	"  -t, --iterations N    rows of transfers for each figure, 1 to 1000000, each of\n"
	"                        one window; default: longer rows, what fits in 0.4 s\n"
	"      --operations LIST put, get, send; default: all\n"
	"      --path LIST       auto, staged, direct; default auto\n"
	"      --window N        transfers under way at once, 1 to 64; default 8\n"
	"      --host            host memory at both ends\n"
	NET_HELP_NETWORK
	MEASURE_HELP
	"\n"
	"columns: median over rows, the rate that 99 % of the rows reach, the greatest\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

int tool_netbw(int argc, char **argv)
{
	static struct netverb v = {
		.m = { .verb = "netbw", .schema = "barway-netbw-1" },
		.help = help,
		.bandwidth = true,
		.least = 4096,
		.max = 64 << 20,
		.factor = 4,
		.seconds = 0.4,
		.window = 8,
	};

	return netverb_main(&v, argc, argv);
}
