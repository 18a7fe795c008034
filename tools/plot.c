/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/options.h"

#define GNUPLOT "gnuplot"

static bool ends_in(const char *path, const char *ending)
{
	size_t n = strlen(path), k = strlen(ending);

	return n > k && !strcmp(path + n - k, ending);
}

int plot_check(const char *verb, const char *path)
{
	char folder[4096];
	const char *slash = strrchr(path, '/');

	if (!ends_in(path, ".svg") && !ends_in(path, ".png"))
		return usage_error(verb, "'%s' ends in neither .svg nor .png: that is how the kind "
				   "of picture is chosen", path);
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
		 slash ? path : ".");
	if (access(folder, W_OK | X_OK))
		return usage_error(verb, "'%s' cannot be written: %s", path, strerror(errno));
	return TOOL_OK;
}

/* ---- the process ------------------------------------------------------------------------- */

/* In the child: the script from @in, the picture to @out, what it has to say to @err. */
static void become_gnuplot(int in, int out, int err)
{
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		_exit(126);
	unsetenv("DISPLAY"); /* nothing but files */
	execlp(GNUPLOT, GNUPLOT, "-", (char *)NULL);
	_exit(errno == ENOENT ? 127 : 126);
}

/* The first line that is not empty of what gnuplot said. */
static void read_complaint(FILE *f, char *buf, size_t n)
{
	char line[512];

	*buf = 0;
	rewind(f);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\r\n")] = 0;
		if (strstr(line, "line ") || !*buf)
			snprintf(buf, n, "%s", line + strspn(line, " \t^"));
	}
}

/* @script is a file that has been written; the picture goes to @out. */
static int run_gnuplot(const char *verb, FILE *script, int out)
{
	FILE *said = tmpfile();
	int status = 0;
	char text[512];
	pid_t child;

	if (!said)
		return failure(verb, "no temporary file: %s", strerror(errno));
	fflush(stdout);
	fflush(stderr);
	child = fork();
	if (child == 0)
		become_gnuplot(fileno(script), out, fileno(said));
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	read_complaint(said, text, sizeof(text));
	fclose(said);
	if (child < 0)
		return failure(verb, "gnuplot cannot be started: %s", strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return failure(verb, "no picture: gnuplot is not installed: apt-get install "
			       "gnuplot-nox; or --save the result and draw it on another machine "
			       "with 'barway plot'");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return failure(verb, "no picture: gnuplot failed: %s", *text ? text : "no reason");
	return TOOL_OK;
}

int plot_draw(const char *verb, const struct plot_input *inputs, size_t n, const char *path)
{
	FILE *script = tmpfile();
	int out, code;

	if (!script)
		return failure(verb, "no temporary file: %s", strerror(errno));
	code = plot_script(verb, inputs, n, ends_in(path, ".png"), script);
	if (code == TOOL_OK && (fflush(script) || ferror(script)))
		code = failure(verb, "the temporary file cannot be written: %s", strerror(errno));
	if (code) {
		fclose(script);
		return code;
	}
	rewind(script);
	out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (out < 0) {
		code = failure(verb, "'%s' cannot be written: %s", path, strerror(errno));
	} else {
		code = run_gnuplot(verb, script, out);
		if (close(out) && code == TOOL_OK)
			code = failure(verb, "'%s' cannot be written: %s", path, strerror(errno));
		if (code)
			unlink(path);
	}
	fclose(script);
	return code;
}
