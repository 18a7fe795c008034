/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens at the end: processes that are killed in the middle of their traffic, kernels that
 * fail, and what an open channel holds up.
 *
 *     CHANNEL_KILLS=50 channel_end_test killed
 *     CHANNEL_IDLE_US=200 channel_end_test idle
 *
 * Children are started anew (exec): a process that has used CUDA cannot be forked.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw/channel.h"

static uint64_t seed = 1;

/* ---- children ---------------------------------------------------------------------------- */

static void echo_one(uint64_t n)
{
	uint64_t answer = 0;

	OK(barway_channel_send(hw.channel, &n, sizeof(n), 1, WAIT_NS));
	OK(barway_channel_recv(hw.channel, &answer, sizeof(answer), NULL, NULL, WAIT_NS));
	CHECK_EQ(answer, n);
}

/* Tells the parent that all works so far: on its standard output. */
static void say_ready(void)
{
	CHECK_EQ(write(STDOUT_FILENO, "r", 1), 1);
}

static void open_echo(uint64_t trap_tag)
{
	start();
	open_channel(launch, 0);
	use_echo(&gpu_kernel_echo_warp, 32, 200000, trap_tag, 0);
	for (uint64_t i = 0; i < 100; i++)
		echo_one(i);
}

static void *send_for_ever(void *arg)
{
	uint64_t message[8] = { 0 };

	(void)arg;
	while (barway_channel_send(hw.channel, message, sizeof(message), 2, WAIT_NS) == 0)
		message[0]++;
	return NULL;
}

/* Until it is killed: messages to the GPU and back, as many as there can be, from two threads. */
static void child_traffic(void)
{
	uint64_t message[8];
	pthread_t thread;

	open_echo(UINT64_MAX);
	CHECK_EQ(pthread_create(&thread, NULL, send_for_ever, NULL), 0);
	for (uint64_t n = 0;; n++) {
		OK(barway_channel_recv(hw.channel, message, sizeof(message), NULL, NULL, WAIT_NS));
		CHECK_EQ(message[0], n);
		if (n == 1000)
			say_ready();
	}
}

/* The kernel fails: who waits for it has to be told, with whatever else is called afterwards. */
static void child_trap(void)
{
	uint64_t message[8] = { 0 };
	double began;
	int ret;

	open_echo(7);
	say_ready();
	OK(barway_channel_send(hw.channel, message, sizeof(message), 7, WAIT_NS));
	began = now_s();
	ret = barway_channel_recv(hw.channel, message, sizeof(message), NULL, NULL, WAIT_NS);
	if (ret != -EIO)
		FAIL("barway_channel_recv: %d (%s), expected -EIO", ret, barway_errmsg());
	if (now_s() - began > 5)
		FAIL("it took %.1f s to see that the kernel had failed", now_s() - began);
	fprintf(stderr, "  -EIO after %.1f ms: %s\n", (now_s() - began) * 1e3, barway_errmsg());
	CHECK_EQ(barway_channel_poll(hw.channel), -EIO);
	/* the rest need not work, and must not hang */
	barway_channel_close(hw.channel);
	barway_close(hw.ctx);
	_exit(0);
}

/* As above, and the CPU waits for room in the ring to the GPU. */
static void child_trap_full(void)
{
	uint64_t message[BARWAY_MESSAGE_MAX / 8] = { 0 };
	int ret;

	open_echo(7);
	say_ready();
	OK(barway_channel_send(hw.channel, message, sizeof(message), 7, WAIT_NS));
	do
		ret = barway_channel_send(hw.channel, message, sizeof(message), 1, WAIT_NS);
	while (ret == 0);
	if (ret != -EIO)
		FAIL("barway_channel_send: %d (%s), expected -EIO", ret, barway_errmsg());
	_exit(0);
}

static const struct test_case children[] = {
	TEST(child_traffic),
	TEST(child_trap),
	TEST(child_trap_full),
	{ 0 },
};

/* ---- the parent -------------------------------------------------------------------------- */

struct child {
	pid_t pid;
	int out; /* its standard output */
};

static struct child spawn(const char *which)
{
	char *const argv[] = { (char *)"channel_end_test", (char *)"--child", (char *)which, NULL };
	struct child c;
	int fds[2];

	CHECK_EQ(pipe(fds), 0);
	fflush(stdout);
	c.pid = fork();
	if (c.pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execv("/proc/self/exe", argv);
		_exit(99);
	}
	close(fds[1]);
	CHECK(c.pid > 0);
	c.out = fds[0];
	return c;
}

/* Waits until the child works; SKIPs where there is no GPU. */
static void wait_ready(struct child *c)
{
	char byte = 0;
	int status;

	alarm(60); /* rather than hang for ever */
	if (read(c->out, &byte, 1) == 1 && byte == 'r') {
		alarm(0);
		return;
	}
	while (read(c->out, &byte, 1) == 1)
		; /* it says why */
	alarm(0);
	close(c->out);
	waitpid(c->pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		SKIP("no GPU");
	FAIL("the child ended with status 0x%x before it was ready", status);
}

static int wait_end(struct child *c)
{
	int status = 0;

	alarm(60);
	waitpid(c->pid, &status, 0);
	alarm(0);
	close(c->out);
	return status;
}

/* Each child that gets ready is the new process that works after the one before was killed. */
static void killed_processes_leave_nothing_behind(void)
{
	uint64_t n = setting("CHANNEL_KILLS", 50);
	double began = now_s();

	for (uint64_t i = 0; i <= n; i++) {
		struct child c = spawn("child_traffic");
		int status;

		wait_ready(&c);
		usleep((useconds_t)(test_random(&seed) >> 33) % 20000);
		kill(c.pid, SIGKILL);
		status = wait_end(&c);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			FAIL("child %llu ended by itself, with status 0x%x", (unsigned long long)i,
			     status);
	}
	printf("  %llu processes killed in the middle of traffic, in %.1f s\n",
	       (unsigned long long)n, now_s() - began);
}

static void a_failing_kernel(const char *child)
{
	struct child c = spawn(child);
	int status;

	wait_ready(&c);
	status = wait_end(&c);
	if (status)
		FAIL("%s ended with status 0x%x", child, status);
	/* and the next process works */
	c = spawn("child_traffic");
	wait_ready(&c);
	kill(c.pid, SIGKILL);
	wait_end(&c);
}

static void a_kernel_that_fails_ends_recv(void)
{
	a_failing_kernel("child_trap");
}

static void a_kernel_that_fails_ends_send(void)
{
	a_failing_kernel("child_trap_full");
}

/* ---- what an open channel holds up ------------------------------------------------------- */

/*
 * Without a kernel there: shutting down and closing wait for nothing. With one: for what it does.
 */
static void closing_ends_a_kernel_that_waits(void)
{
	double began;

	start();
	open_channel(launch, 0);
	use_echo(&gpu_kernel_echo, 1, 5000000000u, UINT64_MAX, 0);
	echo_one(1);
	began = now_s();
	close_channel();
	if (now_s() - began > 1)
		FAIL("closing took %.1f s: the kernel waited on", now_s() - began);
}

/* What CUDA makes wait for running kernels. */
static struct {
	int (*cuMemAlloc_v2)(uint64_t *addr, size_t n);
	int (*cuMemFree_v2)(uint64_t addr);
	int (*cuMemAllocHost_v2)(void **p, size_t n);
	int (*cuMemFreeHost)(void *p);
	int (*cuModuleLoadData)(void **module, const void *image);
	int (*cuModuleUnload)(void *module);
	int (*cuCtxSynchronize)(void);
} cu;

static void load_cuda(void)
{
	static const char *const names[] = {
		"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocHost_v2", "cuMemFreeHost",
		"cuModuleLoadData", "cuModuleUnload", "cuCtxSynchronize",
	};
	const char *path = getenv("BARWAY_LIBCUDA");
	void *lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);

	CHECK(lib);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *f = dlsym(lib, names[i]);

		CHECK(f);
		memcpy((char *)&cu + i * sizeof(void *), &f, sizeof(f));
	}
}

/* One of them: what it needs is made before it is timed. */
static uint64_t memory;
static void *host, *module;

static void make(void)
{
	CHECK_EQ(cu.cuMemAlloc_v2(&memory, 1 << 20), 0);
	CHECK_EQ(cu.cuMemAllocHost_v2(&host, 1 << 20), 0);
}

static int call_free(void)
{
	int ret = cu.cuMemFree_v2(memory);

	memory = 0;
	return ret;
}

static int call_free_host(void)
{
	int ret = cu.cuMemFreeHost(host);

	host = NULL;
	return ret;
}

static int call_load(void)
{
	return cu.cuModuleLoadData(&module, ".version 6.3\n.target sm_70\n.address_size 64\n"
				   ".visible .entry nothing() { ret; }\n");
}

static int call_sync(void)
{
	return cu.cuCtxSynchronize();
}

static void unmake(void)
{
	if (memory)
		CHECK_EQ(cu.cuMemFree_v2(memory), 0);
	if (host)
		CHECK_EQ(cu.cuMemFreeHost(host), 0);
	if (module)
		CHECK_EQ(cu.cuModuleUnload(module), 0);
	memory = 0;
	host = module = NULL;
}

#define CALLS 20

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Microseconds, sorted. @resident: a kernel has answered a moment ago and waits for the next. */
static void time_call(int (*call)(void), bool resident, double *us)
{
	for (int i = 0; i < CALLS; i++) {
		double began;

		make();
		if (resident)
			echo_one((uint64_t)i);
		began = now_s();
		CHECK_EQ(call(), 0);
		us[i] = (now_s() - began) * 1e6;
		unmake();
	}
	qsort(us, CALLS, sizeof(*us), by_value);
}

/* A call waits for the kernel's idle time at most, and then it has left. */
static void idle_channel_holds_nothing_up(void)
{
	static const struct {
		const char *name;
		int (*call)(void);
	} calls[] = {
		{ "cuMemFree", call_free },
		{ "cuMemFreeHost", call_free_host },
		{ "cuModuleLoadData", call_load },
		{ "cuCtxSynchronize", call_sync },
	};
	double without[CALLS], with[CALLS], idle_us = (double)setting("CHANNEL_IDLE_US", 200);

	start();
	if (hw.soft)
		SKIP("the soft GPU has none of these calls");
	load_cuda();
	open_channel(launch, 0);
	use_echo(&gpu_kernel_echo, 1, BARWAY_GPU_IDLE_FOR((uint64_t)(idle_us * 1e3)), UINT64_MAX,
		 0);
	echo_one(0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		GPU_OK(bench_stream_sync(hw.stream)); /* it has left */
		time_call(calls[i].call, false, without);
		time_call(calls[i].call, true, with);
		printf("  %-17s %8.1f us, with a channel that has just become idle %8.1f us "
		       "(medians; most: %.1f, %.1f)\n", calls[i].name, without[CALLS / 2],
		       with[CALLS / 2], without[CALLS - 1], with[CALLS - 1]);
		if (with[CALLS / 2] > without[CALLS / 2] + idle_us)
			FAIL("%s takes %.1f us more: the kernel leaves after %.0f", calls[i].name,
			     with[CALLS / 2] - without[CALLS / 2], idle_us);
	}
	close_channel();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(killed_processes_leave_nothing_behind),
		TEST(a_kernel_that_fails_ends_recv),
		TEST(a_kernel_that_fails_ends_send),
		TEST(closing_ends_a_kernel_that_waits),
		TEST(idle_channel_holds_nothing_up),
		TEST(stop),
		{ 0 },
	};

	if (argc == 3 && !strcmp(argv[1], "--child")) {
		argv[1] = argv[2];
		return test_main(2, argv, children);
	}
	return test_main(argc, argv, cases);
}
