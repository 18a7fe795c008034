/* SPDX-License-Identifier: BSD-3-Clause */
/* barway: the command. Each verb has a file of its own. */
#include <errno.h>
#include <stdbool.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "barway.h"
#include "tools/options.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{ "info", tool_info },
	{ "copylat", tool_copylat },
};

static const char help[] =
	"usage: barway VERB [OPTION]...\n"
	"       barway VERB --help | --help | --version\n"
	"\n"
	"Moves data to and from GPU memory, and says which way it took.\n"
	"\n"
	"verbs:\n"
	"  info      devices, and which provider can map their memory, or why not\n"
	"  copylat   latency of copies, side by side with cuMemcpy\n"
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

static int dispatch(int argc, char **argv)
{
	const char *verb = argv[1];

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
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (!strcmp(verb, verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	}
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

int main(int argc, char **argv)
{
	int code = standard_streams();

	if (code == TOOL_OK)
		code = dispatch(argc, argv);

	/* a full disk or a closed pipe must not look like success */
	errno = 0;
	if (fflush(stdout) || ferror(stdout))
		return failure(NULL, "cannot write the output: %s",
			       errno ? strerror(errno) : "an earlier write failed");
	return code;
}
