/* SPDX-License-Identifier: BSD-3-Clause */
/* barway: the command. Each verb has a file of its own. */
#include <errno.h>
#include <stdbool.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "barway.h"
#include "tools/options.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{ "info", tool_info },
	{ "doctor", tool_doctor },
	{ "copylat", tool_copylat },
	{ "copybw", tool_copybw },
	{ "apiperf", tool_apiperf },
	{ "plot", tool_plot },
	{ "pplat", tool_pplat },
	{ "bench", tool_bench },
	{ "netlat", tool_netlat },
	{ "netbw", tool_netbw },
	{ "paths", tool_paths },
	{ "sanity", tool_sanity },
	{ "tune", tool_tune },
};

static const char help[] =
	"usage: barway VERB [OPTION]...\n"
	"       barway VERB --help | --help | --version\n"
	"\n"
	"Moves data to and from GPU memory, and says which way it took.\n"
	"\n"
	"verbs:\n"
	"  info      devices, and which provider can map their memory, or why not\n"
	"  doctor    what is wrong with the way to a GPU, and what to do next\n"
	"  copylat   latency of copies, side by side with cuMemcpy\n"
	"  copybw    bandwidth of copies, and what it costs in CPU time\n"
	"  apiperf   time of single calls\n"
	"  plot      draws results that were saved\n"
	"  pplat     a flag from the CPU to a running kernel and back\n"
	"  bench     what else can be measured: channels\n"
	"  netlat    latency of transfers to another process, here or elsewhere\n"
	"  netbw     bandwidth of them\n"
	"  paths     which way bytes would take to another process, and why\n"
	"  sanity    does it move data rightly here: the test of an installation\n"
	"  tune      measures every method to copy, so that copies take the best one\n"
	"\n"
	"Each parameter can be set in the environment, for example BARWAY_DEVICES=soft\n"
	"to work without a GPU; 'barway info --params' lists them.\n"
	"\n"
	"exit status: 0 done, 1 failed (the line on standard error says why), 2 usage\n";

static int version(void)
{
	unsigned v = barway_version();

	printf("barway %u.%u.%u\n", v >> 16, v >> 8 & 255, v & 255);
	return TOOL_OK;
}

/* Its place in the table, -1: there is none of that name. */
static int find_verb(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (!strcmp(name, verbs[i].name))
			return (int)i;
	}
	return -1;
}

/* The verb that a link named like GDRCopy's programs stands for, NULL: it is no such link. */
static char *linked_verb(char *program)
{
	static const char prefix[] = "gdrcopy_";
	char *slash = strrchr(program, '/'), *base = slash ? slash + 1 : program;

	return strncmp(base, prefix, sizeof(prefix) - 1) ? NULL : base + sizeof(prefix) - 1;
}

static int dispatch_link(int argc, char **argv, char *verb)
{
	int i = find_verb(verb);

	if (i < 0)
		return usage_error(NULL, "this program is called 'gdrcopy_%s', and there is no "
				   "verb '%s'; see 'barway --help'", verb, verb);
	argv[0] = verb;
	return verbs[i].run(argc, argv);
}

static int dispatch(int argc, char **argv)
{
	char *verb = argc ? linked_verb(argv[0]) : NULL;
	int i;

	if (verb)
		return dispatch_link(argc, argv, verb);
	verb = argv[1];
	if (argc < 2)
		return usage_error(NULL, "no verb given; see 'barway --help'");
	if (!strcmp(verb, "--help") || !strcmp(verb, "-h")) {
		fputs(help, stdout);
		return TOOL_OK;
	}
	if (!strcmp(verb, "--version") || !strcmp(verb, "-V"))
		return version();
	if (*verb == '-')
		return usage_error(NULL, "unknown option '%s'; see 'barway --help'", verb);
	i = find_verb(verb);
	if (i >= 0)
		return verbs[i].run(argc - 1, argv + 1);
	return usage_error(NULL, "unknown verb '%s'; see 'barway --help'", verb);
}

/* A closed standard stream would be the next file that is opened. */
static int standard_streams(void)
{
	bool had_stdout = fcntl(1, F_GETFD) >= 0;

	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
			return failure(NULL, "a standard stream is closed and /dev/null cannot be "
				       "opened");
	return had_stdout ? TOOL_OK : failure(NULL, "cannot write the output: it is closed");
}

/* A full disk or a closed pipe must not look like success. */
static int check_output(void)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return TOOL_OK;
	/* a write that failed earlier did not leave its reason: one more fails for the same */
	if (!errno && write(STDOUT_FILENO, "\n", 1) == 1)
		return failure(NULL, "cannot write the output: an earlier write failed");
	return failure(NULL, "cannot write the output: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	int code = standard_streams();

	if (code == TOOL_OK)
		code = dispatch(argc, argv);

	return check_output() ? TOOL_FAILED : code;
}
