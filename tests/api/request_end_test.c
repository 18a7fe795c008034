/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests when their context or process ends, and in forked children; threads of the library's. */
#include <dirent.h>

#include "request_test.h"

/* Whose threads there are: the process's number of them. */
static unsigned threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* ---- ends of contexts and processes -------------------------------------------------------- */

/* A context ends its requests, which wait for the device; no thread stays behind. */
static void close_ends_them(void)
{
	struct barway_request *r[6];
	struct barway_mapping *m;
	unsigned before, files;
	uint64_t a;

	begin(); /* what is made once, for ever, is made */
	a = alloc(0, BYTES);
	gpu_write(a, host, BYTES);
	release(a);
	end();
	before = threads();
	files = (unsigned)open_files();
	for (unsigned turn = 0; turn < 3; turn++) {
		begin();
		a = alloc(0, BYTES);
		m = map(a, BYTES);
		test_fill(host, BYTES, turn);
		for (unsigned i = 0; i < N(r); i++)
			r[i] = start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, i * 600000,
				     host + i * 600000, 600000, i % 2 ? BARWAY_COPY_FD : 0);
		end();
		FAILS(barway_request_free(r[0]), ESTALE, "closed before");
		CHECK_EQ(threads(), before);
		CHECK_EQ(open_files(), files);
		begin();
		gpu_read(back, a, BYTES);
		CHECK(!memcmp(back, host, 6 * 600000));
		release(a);
		end();
	}
}

/* No thread of the library's runs the program's signal handlers. */
static void signals_are_blocked(void)
{
	struct barway_request *r;
	struct barway_mapping *m;
	unsigned others = 0;
	struct dirent *e;
	uint64_t a;
	DIR *d;

	if (SANITIZED)
		SKIP("sanitizers have threads of their own");
	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	r = start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, 0, host, BYTES, BARWAY_COPY_FD);
	d = opendir("/proc/self/task");
	CHECK(d);
	while ((e = readdir(d))) {
		unsigned long long blocked = 0;
		char line[300];
		FILE *f;

		if (atoi(e->d_name) <= 0 || atoi(e->d_name) == getpid())
			continue;
		snprintf(line, sizeof(line), "/proc/self/task/%s/status", e->d_name);
		f = fopen(line, "r");
		while (f && fgets(line, sizeof(line), f))
			sscanf(line, "SigBlk: %llx", &blocked);
		if (f)
			fclose(f);
		others++;
		if (f && !(blocked >> (SIGUSR1 - 1) & 1))
			FAIL("thread %s takes signals", e->d_name);
	}
	closedir(d);
	CHECK(others);
	OK(barway_request_free(r));
	OK(barway_unmap(m));
	release(a);
	end();
}

/* The thread that moves requests on leaves when there are none, and comes again. */
static void worker_leaves(void)
{
	struct barway_request *r;
	struct barway_mapping *m;
	unsigned with, turns;
	uint64_t a;

	begin();
	a = alloc(0, BYTES);
	m = map(a, BYTES);
	for (unsigned i = 0; i < 2; i++) {
		r = start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, 0, host, BYTES, BARWAY_COPY_FD);
		end_by_fd(r);
		OK(barway_request_free(r));
		with = threads();
		for (turns = 0; turns < 100 && threads() >= with; turns++)
			sleep_ms(50);
		CHECK(turns < 100);
	}
	OK(barway_unmap(m));
	release(a);
	end();
}

static struct barway_request *inherited;
static struct barway_mapping *inherited_map;

static void in_the_child(void)
{
	struct barway_piece piece = { 0, back, 10 };
	struct barway_request *r;

	FAILS(barway_request_poll(inherited), ESTALE, "parent process");
	FAILS(barway_request_wait(inherited, 0), ESTALE, "parent process");
	FAILS(barway_request_fd(inherited), ESTALE, "parent process");
	FAILS(barway_request_free(inherited), ESTALE, "parent process");
	FAILS(barway_copy_start(inherited_map, BARWAY_TO_GPU, 0, &piece, 1, 0, &r), ESTALE,
	      "parent process");
	if (TSAN)
		return;
	/* and its own ones work */
	ctx = NULL;
	begin();
	inherited_map = map(alloc(0, BYTES), BYTES);
	test_fill(host, BYTES, 20);
	r = start(inherited_map, BARWAY_TO_GPU, BARWAY_METHOD_CE, 0, host, BYTES, BARWAY_COPY_FD);
	end_by_fd(r);
	OK(barway_request_free(r));
	OK(barway_copy_from_by(inherited_map, BARWAY_METHOD_CE, back, 0, BYTES));
	CHECK(!memcmp(back, host, BYTES));
	end();
}

static void forks(void)
{
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, BYTES);
	m = inherited_map = map(a, BYTES);
	test_fill(host, BYTES, 21);
	for (unsigned i = 0; i < 5; i++) {
		struct barway_request *r = start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, 0, host,
						 BYTES, i % 2 ? BARWAY_COPY_FD : 0);

		inherited = r;
		CHECK_EQ(in_child(in_the_child), 0);
		end_waited(r);
		OK(barway_request_free(r));
	}
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, back, 0, BYTES));
	CHECK(!memcmp(back, host, BYTES));
	OK(barway_unmap(m));
	release(a);
	end();
}

/* A process may end with requests on their way. */
static void exits(void)
{
	begin();
	inherited_map = map(alloc(0, BYTES), BYTES);
	start(inherited_map, BARWAY_TO_GPU, BARWAY_METHOD_CE, 0, host, BYTES, BARWAY_COPY_FD);
	start(inherited_map, BARWAY_FROM_GPU, BARWAY_METHOD_CE, 0, back, BYTES, 0);
}

static void exit_on_the_way(void)
{
	if (TSAN)
		SKIP("ThreadSanitizer has no threads in the child of a process that has some");
	for (unsigned i = 0; i < 5; i++)
		CHECK_EQ(child_end(child_start(exits, true)), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(close_ends_them),
		TEST(signals_are_blocked),
		TEST(worker_leaves),
		TEST(forks),
		TEST(exit_on_the_way),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
