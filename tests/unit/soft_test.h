/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the soft GPU share: two small ones, windows, children, sharing by name. */
#ifndef SOFT_TEST_H
#define SOFT_TEST_H

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/param.h"
#include "device/soft.h"
#include "sanitized_child.h"
#include "test.h"

#define PAGE 4096u
#define MEMORY (64u << 20)
#define BAR1 (8u << 20)
#define N(x) (sizeof(x) / sizeof((x)[0]))

static const struct bw_device_ops *const ops = &bw_soft_ops;

static inline struct bw_device *dev(int index)
{
	struct bw_device *d = bw_soft_device(index);

	CHECK(d);
	return d;
}

static inline uint64_t mem_used(int index)
{
	uint64_t total, free;

	CHECK_EQ(ops->mem_info(dev(index), &total, &free), 0);
	return total - free;
}

static inline uint64_t bar1_used(int index)
{
	uint64_t total, free;

	bw_soft_aperture(dev(index), &total, &free);
	return total - free;
}

static inline unsigned fds_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline uint64_t alloc(size_t bytes)
{
	uint64_t addr;

	CHECK_EQ(bw_soft_malloc(dev(0), bytes, &addr), 0);
	CHECK_EQ(addr % 512, 0);
	return addr;
}

struct view {
	struct bw_soft_window *win;
	unsigned char *p;
	size_t bytes;
};

static inline int view_try(struct view *v, uint64_t addr, size_t bytes)
{
	int ret;

	v->bytes = bytes;
	v->p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(v->p != MAP_FAILED);
	ret = bw_soft_window_open(addr, bytes, v->p, &v->win);
	if (ret)
		munmap(v->p, bytes);
	return ret;
}

static inline void view_open(struct view *v, uint64_t addr, size_t bytes)
{
	int ret = view_try(v, addr, bytes);

	if (ret)
		FAIL("window: %s", bw_err_text());
}

static inline void view_close(struct view *v)
{
	munmap(v->p, v->bytes);
	bw_soft_window_close(v->win);
}

/* ---- other processes ----------------------------------------------------------------------- */

/* Starts @fn in a child, where a failed CHECK is exit code 1. */
static inline pid_t start(void (*fn)(void *arg), void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid)
		return pid;
	is_child = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* some wait for ever */
	if (setjmp(test_jump))
		_exit(1);
	fn(arg);
	_exit(0);
}

static inline int finish(pid_t pid)
{
	int status = -1;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

static inline void in_child(void (*fn)(void *arg), void *arg)
{
	CHECK_EQ(finish(start(fn, arg)), 0);
}

static inline bool faults(const void *p)
{
	fflush(NULL);
	pid_t pid = fork();

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		(void)*(const volatile unsigned char *)p;
		_exit(0);
	}
	int status = finish(pid);

	return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

static inline void put(int fd, const void *p, size_t n)
{
	CHECK_EQ(write(fd, p, n), n);
}

static inline void take(int fd, void *p, size_t n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	CHECK_EQ(poll(&pfd, 1, 20000), 1);
	CHECK_EQ(read(fd, p, n), n);
}

/* ---- soft GPUs that are shared by name ------------------------------------------------------ */

static char share_name[40];

static inline void share(void)
{
	CHECK_EQ(bw_param_set("soft_shared", share_name), 0);
	CHECK_EQ(bw_param_set("soft_devices", "1"), 0);
	CHECK_EQ(bw_param_set("soft_memory", "16M"), 0);
	CHECK_EQ(bw_param_set("soft_bar1", "1M"), 0);
}

static inline void share_path(char path[128])
{
	snprintf(path, 128, "/dev/shm/barway-%u-%s-0", (unsigned)geteuid(), share_name);
}

static inline void new_name(void)
{
	static unsigned n;

	snprintf(share_name, sizeof(share_name), "test-%d-%u", (int)getpid(), n++);
}

static inline bool name_exists(void)
{
	char path[128];

	share_path(path);
	return !access(path, F_OK);
}

/* ---- main ---------------------------------------------------------------------------------- */

static inline int soft_main(int argc, char **argv, const struct test_case *cases)
{
	bw_param_set("soft_devices", "2");
	bw_param_set("soft_memory", "64M");
	bw_param_set("soft_bar1", "8M");
	if (bw_param_load())
		return 1;
	return test_main(argc, argv, cases);
}

#endif
