/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/options.h"
#include "tools/replace.h"

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

/* Everything that there is to read. False: no memory. */
static bool read_all(int fd, char **text, size_t *n)
{
	FILE *f = open_memstream(text, n);
	char part[65536];
	ssize_t got = 0;

	while (f && ((got = read(fd, part, sizeof(part))) > 0 || (got < 0 && errno == EINTR)))
		if (got > 0)
			fwrite(part, 1, (size_t)got, f);
	return f && !fclose(f) && got == 0;
}

/* Why there is no picture; an exit code. @said: gnuplot's complaint. */
static int judge(const char *verb, int status, const char *said)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return failure(verb, "no picture: gnuplot is not installed: apt-get install "
			       "gnuplot-nox; or --save the result and draw it on another machine "
			       "with 'barway plot'");
	if (WIFSIGNALED(status))
		return failure(verb, "no picture: gnuplot was ended by signal %d (%s)",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (*said && WEXITSTATUS(status))
		return failure(verb, "no picture: gnuplot failed: %s", said);
	if (WEXITSTATUS(status))
		return failure(verb, "no picture: gnuplot failed, exit status %d",
			       WEXITSTATUS(status));
	return TOOL_OK;
}

/* @script is a file that has been written; the picture is to be freed in any case. */
static int run_gnuplot(const char *verb, FILE *script, char **picture, size_t *n)
{
	FILE *said = tmpfile();
	int status = 0, out[2] = { -1, -1 };
	char text[512];
	bool good;
	pid_t child;

	if (!said || pipe2(out, O_CLOEXEC)) {
		if (said)
			fclose(said);
		return failure(verb, "gnuplot cannot be started: %s", strerror(errno));
	}
	fflush(stdout);
	fflush(stderr);
	child = fork();
	if (child == 0)
		become_gnuplot(fileno(script), out[1], fileno(said));
	close(out[1]);
	good = read_all(out[0], picture, n);
	close(out[0]);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	read_complaint(said, text, sizeof(text));
	fclose(said);
	if (child < 0 || !good)
		return failure(verb, "no picture: no process or no memory for gnuplot");
	return judge(verb, status, text);
}

/* It has the end that such a file has. */
static bool is_whole(const char *picture, size_t n, bool png)
{
	static const char iend[] = "IEND\xae\x42\x60\x82"; /* a PNG's last chunk */
	const char *end = png ? iend : "</svg>";
	size_t k = strlen(end);

	while (!png && n && picture[n - 1] == '\n')
		n--;
	return n > k && !memcmp(picture + n - k, end, k);
}

int plot_draw(const char *verb, const struct plot_input *inputs, size_t n, const char *path)
{
	bool png = ends_in(path, ".png");
	FILE *script = tmpfile();
	char *picture = NULL;
	size_t bytes = 0;
	int code, ret;

	if (!script)
		return failure(verb, "no temporary file: %s", strerror(errno));
	code = plot_script(verb, inputs, n, png, script);
	if (code == TOOL_OK && (fflush(script) || ferror(script)))
		code = failure(verb, "the temporary file cannot be written: %s", strerror(errno));
	rewind(script);
	if (code == TOOL_OK)
		code = run_gnuplot(verb, script, &picture, &bytes);
	if (code == TOOL_OK && !is_whole(picture, bytes, png))
		code = failure(verb, "no picture: what gnuplot drew is not whole");
	ret = code == TOOL_OK ? replace_file(path, picture, bytes) : 0;
	if (ret < 0)
		code = failure(verb, "'%s' cannot be written: %s", path, strerror(-ret));
	fclose(script);
	free(picture);
	return code;
}
