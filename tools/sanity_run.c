/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes of barway sanity. The verdict of a case comes through a pipe that all processes of the
 * case hold: the first one counts, and the pipe ends when all of them have.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/sanity.h"

#define FIND_SECONDS 60.0
#define KILL_SECONDS 5.0

struct verdict {
	enum sanity_verdict verdict;
	char reason[sizeof(((struct sanity_result *)0)->reason)];
};

struct found {
	int ret;
	struct barway_device_info info;
	char why[1024];
};

/* One write() has to be whole: PIPE_BUF is at least 4096 on Linux. */
_Static_assert(sizeof(struct verdict) <= 4096 && sizeof(struct found) <= 4096, "whole writes");

static int report_fd = -1;

/* ---- in the case's processes ------------------------------------------------------------- */

static void report(enum sanity_verdict verdict, const char *fmt, va_list ap)
{
	struct verdict v = { .verdict = verdict };

	vsnprintf(v.reason, sizeof(v.reason), fmt, ap);
	if (write(report_fd, &v, sizeof(v)) != (ssize_t)sizeof(v))
		_exit(126);
}

void sanity_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(SANITY_FAILED, fmt, ap);
	va_end(ap);
	_exit(1);
}

void sanity_waive(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(SANITY_WAIVED, fmt, ap);
	va_end(ap);
	_exit(1);
}

__attribute__((format(printf, 1, 2)))
static void pass(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(SANITY_PASSED, fmt, ap);
	va_end(ap);
}

/* It ends with its parent, makes no core file, and nothing of it mixes with what is printed. */
static void settle(const struct sanity_target *target, int fd)
{
	struct rlimit none = { 0, 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	setrlimit(RLIMIT_CORE, &none);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	report_fd = fd;
	if (target && !getenv("BARWAY_LOG"))
		barway_set_log(NULL, NULL, target->verbose ? BARWAY_LOG_INFO : 0);
	/* for libgdrapi, which takes the soft GPU on this word alone */
	if (target && target->info.kind == BARWAY_DEVICE_SOFT)
		setenv("BARWAY_DEVICES", "soft", 1);
}

__attribute__((noreturn))
static void run_case(const struct sanity_case *c, const struct sanity_target *target, int fd)
{
	struct sanity s = { .target = *target, .random = 0x9e3779b97f4a7c15u };

	settle(target, fd);
	s.soft = target->info.kind == BARWAY_DEVICE_SOFT;
	c->run(&s);
	pass("%s", "");
	exit(0); /* with what the libraries do at the end: that is to work, too */
}

pid_t sanity_fork(void (*fn)(struct sanity *s, void *arg), struct sanity *s, void *arg)
{
	pid_t parent = getpid(), pid = fork();

	CHECK(pid >= 0, "fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	fn(s, arg);
	_exit(0);
}

void sanity_join(pid_t pid)
{
	int status = 0;

	CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status))
		sanity_fail("the other process of the case was ended by signal %d (%s)",
			    WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) == 1)
		_exit(1); /* it has said why */
	CHECK(WEXITSTATUS(status) == 0, "the other process of the case ended with %d",
	      WEXITSTATUS(status));
}

/* ---- in the process that watches --------------------------------------------------------- */

double sanity_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Reads @bytes, the first that come, until the pipe ends. 1: it ended; 0: the time was over. */
static int watch(int fd, double until, void *out, size_t bytes, bool *got)
{
	char rest[4096];

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		double left = until - sanity_seconds();
		ssize_t n;

		if (left <= 0)
			return 0;
		n = poll(&p, 1, left < 1000 ? (int)(left * 1000) + 1 : 1000000);
		if (n <= 0)
			continue;
		n = read(fd, *got ? rest : out, *got ? sizeof(rest) : bytes);
		if (n == 0 || (n < 0 && errno != EINTR))
			return 1;
		*got = *got || n == (ssize_t)bytes;
	}
}

/* Waits until @seconds are over. False: it has not ended. */
static bool reap(pid_t pid, double seconds, int *status)
{
	struct timespec pause = { 0, 1000000 };
	double until = sanity_seconds() + seconds;
	pid_t got;

	while ((got = waitpid(pid, status, WNOHANG)) == 0 && sanity_seconds() < until)
		nanosleep(&pause, NULL);
	return got == pid;
}

static void judge(struct sanity_result *r, int status)
{
	char how[128];

	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "was ended by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(how, sizeof(how), "ended with exit code %d", WEXITSTATUS(status));
	if (r->verdict == SANITY_VERDICTS)
		snprintf(r->reason, sizeof(r->reason), "the case %s and gave no verdict", how);
	else
		snprintf(r->reason, sizeof(r->reason), "the case %s after it had passed", how);
	r->verdict = SANITY_FAILED;
}

static void end(pid_t pid, bool in_time, double limit, struct sanity_result *r)
{
	int status = 0;

	if (!in_time) {
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL); /* where it had no time to make a group of its own */
		r->verdict = SANITY_FAILED;
		snprintf(r->reason, sizeof(r->reason), "not done within %g s; -t gives it more%s",
			 limit, reap(pid, KILL_SECONDS, &status) ? "" :
			 "; it does not end either: it waits in the kernel, see dmesg");
		return;
	}
	if (!reap(pid, KILL_SECONDS, &status)) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	if (r->verdict == SANITY_VERDICTS || (r->verdict == SANITY_PASSED && status))
		judge(r, status);
}

/* 0, or -errno. */
static int start(pid_t *pid, int fds[2])
{
	if (pipe(fds))
		return -errno;
	fflush(NULL);
	*pid = fork();
	if (*pid == 0)
		close(fds[0]);
	else
		close(fds[1]);
	if (*pid >= 0)
		return 0;
	close(fds[0]);
	return -errno;
}

void sanity_run(const struct sanity_case *c, const struct sanity_target *target, double limit,
		struct sanity_result *result)
{
	double begin = sanity_seconds();
	struct verdict v;
	bool got = false, in_time;
	int fds[2], ret;
	pid_t pid;

	*result = (struct sanity_result){ .verdict = SANITY_VERDICTS };
	ret = start(&pid, fds);
	if (ret < 0) {
		result->verdict = SANITY_FAILED;
		snprintf(result->reason, sizeof(result->reason), "cannot start a process: %s",
			 strerror(-ret));
		return;
	}
	if (pid == 0)
		run_case(c, target, fds[1]);
	in_time = watch(fds[0], begin + limit, &v, sizeof(v), &got);
	close(fds[0]);
	if (got) {
		result->verdict = v.verdict;
		memcpy(result->reason, v.reason, sizeof(v.reason));
	}
	end(pid, in_time, limit, result);
	result->ms = (sanity_seconds() - begin) * 1e3;
}

/* ---- the device -------------------------------------------------------------------------- */

__attribute__((noreturn))
static void run_find(const char *device, int fd)
{
	struct found f = { .ret = 0, .info.size = sizeof(f.info) };
	struct barway_context *ctx = NULL;
	struct barway_device *dev;

	settle(NULL, fd);
	f.ret = barway_open(NULL, &ctx);
	if (f.ret == 0)
		f.ret = barway_device_count(ctx);
	if (f.ret < 0)
		f.ret = -EIO;
	else
		f.ret = device ? barway_device_find(ctx, device, &dev)
			       : barway_device_get(ctx, 0, &dev);
	if (f.ret == -EINVAL)
		f.ret = -ENODEV; /* the name is empty */
	if (f.ret == 0 && barway_device_query(dev, &f.info) < 0)
		f.ret = -EIO;
	if (f.ret < 0)
		snprintf(f.why, sizeof(f.why), "%s", barway_errmsg());
	if (write(fd, &f, sizeof(f)) != (ssize_t)sizeof(f))
		_exit(1);
	_exit(0);
}

int sanity_find(const char *device, struct sanity_target *target, char *why, size_t why_size)
{
	struct sanity_result r = { .verdict = SANITY_VERDICTS };
	struct found f;
	bool got = false, in_time;
	int fds[2], ret;
	pid_t pid;

	ret = start(&pid, fds);
	if (ret < 0) {
		snprintf(why, why_size, "cannot start a process: %s", strerror(-ret));
		return -EIO;
	}
	if (pid == 0)
		run_find(device, fds[1]);
	in_time = watch(fds[0], sanity_seconds() + FIND_SECONDS, &f, sizeof(f), &got);
	close(fds[0]);
	if (got)
		r.verdict = SANITY_PASSED;
	end(pid, in_time, FIND_SECONDS, &r);
	if (!got || r.verdict != SANITY_PASSED) {
		snprintf(why, why_size, "look for the device: %s", r.reason);
		return -EIO;
	}
	target->info = f.info;
	snprintf(why, why_size, "%s", f.why);
	return f.ret == 0 || f.ret == -ENODEV ? f.ret : -EIO;
}

/* ---- the list ---------------------------------------------------------------------------- */

const struct sanity_case *sanity_next(const struct sanity_case *after)
{
	static const struct sanity_case *const lists[] = {
		sanity_data, sanity_life, sanity_process, sanity_gpu, sanity_gdrapi,
	};
	bool now = !after;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		for (const struct sanity_case *c = lists[i]; c->name; c++) {
			if (now)
				return c;
			now = c == after;
		}
	}
	return NULL;
}
