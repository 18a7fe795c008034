/* SPDX-License-Identifier: BSD-3-Clause */
/* Children with a time limit, and this program once more as one of them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/doctor.h"
#include "tools/root.h"

#define OUTPUT_MOST (4u << 20)
#define GRACE_MS 2000 /* what is killed ends by then, unless it hangs in the kernel */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool ended(pid_t pid, int64_t until, int *status)
{
	struct timespec pause = { .tv_nsec = 2000000 };

	for (;;) {
		pid_t got = waitpid(pid, status, WNOHANG);

		if (got == pid)
			return true;
		if (got < 0 && errno != EINTR) {
			*status = 0xff00; /* somebody else took it: exit status 255 */
			return true;
		}
		if (now_ms() >= until)
			return false;
		nanosleep(&pause, NULL);
	}
}

bool child_wait(pid_t pid, unsigned seconds, int *status)
{
	int unused;

	if (ended(pid, now_ms() + seconds * 1000ll, status))
		return true;
	kill(pid, SIGKILL);
	ended(pid, now_ms() + GRACE_MS, &unused);
	return false;
}

/* ---- the program itself -------------------------------------------------------------------- */

struct text {
	char *s;
	size_t n;
};

/* Appends what there is to read; false: the end. */
static bool take(int fd, struct text *t)
{
	char part[4096], *more;
	ssize_t got = read(fd, part, sizeof(part));

	if (got <= 0)
		return got < 0 && (errno == EINTR || errno == EAGAIN);
	more = t->n < OUTPUT_MOST ? realloc(t->s, t->n + (size_t)got + 1) : NULL;
	if (!more)
		return false;
	memcpy(more + t->n, part, (size_t)got);
	t->s = more;
	t->n += (size_t)got;
	t->s[t->n] = 0;
	return true;
}

/* Reads both until their ends or until it is time. */
static void read_both(int out, int err, int64_t until, struct text *o, struct text *e)
{
	struct pollfd p[2] = { { .fd = out, .events = POLLIN }, { .fd = err, .events = POLLIN } };

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		int64_t left = until - now_ms();

		if (left <= 0 || (poll(p, 2, (int)(left < 1000 ? left : 1000)) < 0 &&
				  errno != EINTR))
			return;
		for (int i = 0; i < 2; i++)
			if (p[i].revents && !take(p[i].fd, i ? e : o))
				p[i].fd = -1;
	}
}

static void become(char *const argv[], const char *name, const char *value, int out, int err)
{
	char path[ROOT_PATH];
	int null = open("/dev/null", O_RDONLY);

	if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 ||
	    (name && setenv(name, value, 1)))
		_exit(127);
	execv(root_path(path, "/proc/self/exe"), argv);
	if (*root_prefix()) /* tests put a program there only where they want another one */
		execv("/proc/self/exe", argv);
	_exit(127);
}

static void conclude(struct run *r, pid_t pid, int64_t until)
{
	int64_t left = until - now_ms();
	int status;

	if (!child_wait(pid, left > 0 ? (unsigned)(left / 1000 + 1) : 0, &status)) {
		r->end = RUN_STUCK;
	} else if (WIFSIGNALED(status)) {
		r->end = RUN_CRASHED;
		r->code = WTERMSIG(status);
	} else {
		r->end = RUN_EXITED;
		r->code = WEXITSTATUS(status);
	}
}

void run_barway(struct run *r, char *const argv[], const char *name, const char *value,
		unsigned seconds)
{
	int64_t until = now_ms() + seconds * 1000ll;
	struct text o = { 0 }, e = { 0 };
	int out[2], err[2];
	pid_t pid;

	*r = (struct run){ .end = RUN_NOT_STARTED };
	if (pipe2(out, O_CLOEXEC)) {
		r->code = errno;
		return;
	}
	if (pipe2(err, O_CLOEXEC)) {
		r->code = errno;
		close(out[0]);
		close(out[1]);
		return;
	}
	fflush(stdout);
	pid = fork();
	if (!pid)
		become(argv, name, value, out[1], err[1]);
	r->code = errno;
	close(out[1]);
	close(err[1]);
	if (pid > 0) {
		read_both(out[0], err[0], until, &o, &e);
		conclude(r, pid, until);
	}
	close(out[0]);
	close(err[0]);
	r->out = o.s ? o.s : calloc(1, 1);
	r->err = e.s ? e.s : calloc(1, 1);
}

void run_free(struct run *r)
{
	free(r->out);
	free(r->err);
	r->out = r->err = NULL;
}
