/* SPDX-License-Identifier: BSD-3-Clause */
/* barway netlat: how long transfers take from one process's memory to another's. */
#include "tools/netverb.h"
#include "tools/options.h"

static const char help[] =
	"usage: barway netlat NAME | --local [OPTION]...\n"
	"       barway netlat --server [ADDR] [OPTION]...\n"
	"\n"
	"Measures transfers between the GPU memory of two processes, on one machine or\n"
	"two: half of a round trip, from posting until the other end has it VISIBLE. Data\n"
	"is checked, and the way that it took is printed.\n"
	"\n"
	NET_HELP_ENDS
	NET_HELP_SERVER
	"\n"
	"  -d, --device DEV      index, PCI address or UUID; default: the first\n"
	"  -s, --size MAXSIZE    sizes: 8, 32, 128 ... MAXSIZE; default 1M, at most 256M\n"
	"  -c, --copy-size SIZE  this size only\n"
	"  -t, --iterations N    round trips for each figure, 1 to 1000000; default: what\n"
	"                        fits in 0.2 s, but 5 to 10000\n"
	"      --operations LIST put, get, send; default: all\n"
	"      --path LIST       auto, staged, direct; default auto\n"
	"      --host            host memory at both ends\n"
	NET_HELP_NETWORK
	MEASURE_HELP
	"\n"
	"operations, in microseconds: median, 99th percentile, least\n"
	"  put    into the peer's memory, which a signal in host memory tells\n"
	"  get    from the peer's memory: the whole of one get, not half of it\n"
	"  send   to a receive that was posted before\n"
	"\n"
	"exit status: 0 measured, 1 failed or wrong data, 2 usage\n";

int tool_netlat(int argc, char **argv)
{
	static struct netverb v = {
		.m = { .verb = "netlat", .schema = "barway-netlat-1" },
		.help = help,
		.least = 8,
		.max = 1 << 20,
		.factor = 4,
		.seconds = 0.2,
		.window = 1,
	};

	return netverb_main(&v, argc, argv);
}
