/* SPDX-License-Identifier: BSD-3-Clause */
/* copy/threads: the pool of helpers */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copy/threads.h"
#include "core/clock.h"
#include "core/fault.h"
#include "test.h"

static unsigned threads_now(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static unsigned base; /* threads without ours: a sanitizer has one */

/* Are there @n threads? One that was joined is in the list for a moment still. */
static bool threads_are(unsigned n)
{
	for (unsigned i = 0; threads_now() != base + n; i++) {
		if (i == 2000)
			return false;
		usleep(1000);
	}
	return true;
}

#define MOST (8u << 20)
static unsigned char *mark; /* how often each byte was given out */
static _Atomic unsigned wrong, others;
static pthread_t self;

static size_t pieces_of; /* bytes */

static void touch(void *dst, const void *src, size_t bytes)
{
	size_t from = (size_t)((unsigned char *)dst - mark);

	if (from % pieces_of || bytes > pieces_of || !bytes || src != dst)
		wrong++;
	for (size_t i = from; i < from + bytes; i++)
		mark[i]++;
	if (!pthread_equal(pthread_self(), self))
		others++;
}

static void run_once(size_t bytes, size_t chunk, unsigned threads)
{
	memset(mark, 0, bytes + 1);
	pieces_of = chunk;
	bw_threads_run(touch, mark, mark, bytes, chunk, threads, NULL);
	for (size_t i = 0; i < bytes; i++)
		if (mark[i] != 1)
			FAIL("%zu bytes in pieces of %zu by %u threads: byte %zu came %u times",
			     bytes, chunk, threads, i, mark[i]);
	CHECK_EQ(mark[bytes], 0);
	CHECK_EQ(wrong, 0);
}

static void begin(void)
{
	self = pthread_self();
	if (!mark)
		mark = malloc(MOST + 1);
	CHECK(mark);
}

static void every_byte_once(void)
{
	uint64_t x = 9;

	begin();
	CHECK_EQ(bw_threads_enter(3, ""), 0);
	CHECK(threads_are(0)); /* made by the first copy that wants them */
	others = 0;
	for (unsigned i = 0; i < 3000; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		run_once(1 + (x >> 33) % 20000, 1 + (x >> 20) % 1000, 1 + (x >> 60) % 6);
	}
	run_once(MOST, 65536, 4);
	CHECK(threads_are(3));
	/* with 1 CPU they may never come in time; here there is at least a large copy for them */
	for (unsigned i = 0; !others && i < 1000; i++) {
		run_once(MOST, 4096, 4);
		sched_yield();
	}
	CHECK(others);
	bw_threads_leave(3);
	CHECK(threads_are(0));
}

static void parked_and_woken(void)
{
	begin();
	CHECK_EQ(bw_threads_enter(2, ""), 0);
	for (unsigned i = 0; i < 20; i++) {
		run_once(100000, 100, 3);
		usleep(i * 500); /* asleep by now, or about to be */
	}
	bw_threads_leave(2);
}

/* How often helpers went to sleep: what the kernel counts of threads of their name. */
static unsigned long sleeps(void)
{
	unsigned long sum = 0, n;
	char path[300], line[200];
	struct dirent *e;
	DIR *d = opendir("/proc/self/task");
	bool ours;
	FILE *f;

	CHECK(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = fopen(path, "r");
		ours = false;
		while (f && fgets(line, sizeof(line), f)) {
			ours = ours || !strcmp(line, "Name:\tbarway-copy\n");
			if (ours && sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
				sum += n;
		}
		if (f)
			fclose(f);
	}
	closedir(d);
	return sum;
}

static void pause_us(unsigned us)
{
	uint64_t until = bw_now_ns() + us * 1000ull;

	while (bw_now_ns() < until)
		sched_yield();
}

/* Who is wanted again and again within two milliseconds stays awake; who is not costs nothing. */
static void awake_when_it_pays(void)
{
	enum { ROUNDS = 200 };
	unsigned long before;
	uint64_t began;

	begin();
	CHECK_EQ(bw_threads_enter(2, ""), 0);
	for (unsigned i = 0; i < 5; i++) {
		run_once(2000, 100, 3);
		pause_us(400);
	}
	before = sleeps();
	began = bw_now_ns();
	for (unsigned i = 0; i < ROUNDS; i++) {
		run_once(2000, 100, 3);
		pause_us(400);
	}
	if (bw_now_ns() - began < ROUNDS * 600000ull) /* else this machine is too slow to say */
		CHECK(sleeps() - before < ROUNDS);
	before = sleeps();
	for (unsigned i = 0; i < 20; i++) {
		run_once(2000, 100, 3);
		usleep(5000);
	}
	CHECK(sleeps() - before >= 20);
	bw_threads_leave(2);
}

static void as_large_as_the_largest_wish(void)
{
	begin();
	CHECK_EQ(bw_threads_enter(1, ""), 0);
	run_once(100000, 100, 9);
	CHECK(threads_are(1));
	CHECK_EQ(bw_threads_enter(4, ""), 0);
	run_once(100000, 100, 9);
	CHECK(threads_are(4));
	bw_threads_leave(1);
	run_once(100000, 100, 9);
	bw_threads_leave(4);
	CHECK(threads_are(0));
	/* nobody asked for any */
	run_once(100000, 100, 9);
	CHECK(threads_are(0));
	CHECK_EQ(bw_threads_enter(0, ""), 0);
	bw_threads_leave(0);
}

static _Atomic unsigned failures;

#define EACH 10007

static void add(void *dst, const void *src, size_t bytes)
{
	(void)src;
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)dst)[i]++;
}

static void *caller(void *arg)
{
	unsigned char *mine = calloc(1, EACH);

	(void)arg;
	if (!mine)
		failures++;
	for (unsigned i = 1; mine && i <= 2000; i++) {
		bw_threads_run(add, mine, mine, EACH, 97, 3, NULL);
		for (size_t at = 0; at < EACH; at++)
			failures += mine[at] != (unsigned char)i;
	}
	free(mine);
	return NULL;
}

static void *opener(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 200; i++) {
		if (bw_threads_enter(1 + i % 3, ""))
			failures++;
		sched_yield();
		bw_threads_leave(1 + i % 3);
	}
	return NULL;
}

static void many_callers(void)
{
	pthread_t t[4], o;

	begin();
	failures = 0;
	CHECK_EQ(bw_threads_enter(2, ""), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, caller, NULL), 0);
	CHECK_EQ(pthread_create(&o, NULL, opener, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	pthread_join(o, NULL);
	CHECK_EQ(failures, 0);
	bw_threads_leave(2);
	CHECK(threads_are(0));
}

static void no_thread_to_be_had(void)
{
	begin();
	CHECK_EQ(bw_threads_enter(3, ""), 0);
	bw_fault_arm(BW_FAULT_THREAD, 2);
	run_once(100000, 1000, 4); /* says so once, and goes on with the one there is */
	CHECK(!bw_fault_pending(BW_FAULT_THREAD));
	run_once(100000, 1000, 4);
	bw_threads_leave(3);
}

static void cpu_lists(void)
{
	static const char *const bad[] = { "x", "1-", "-1", "3-2", "1,", ",1", "1 ", "1,,2",
					   "99999999", "1-99999999", "0x1" };
	static const char *const good[] = { "", "0", "0-1", "0,1", "0-0,1-1", "2-5,8" };
	cpu_set_t set;
	char one[32];

	begin();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(!bw_threads_cpus_ok(bad[i]));
		CHECK_EQ(bw_threads_enter(1, bad[i]), -EINVAL);
		CHECK_HAS(bw_err_text(), bad[i]);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CHECK(bw_threads_cpus_ok(good[i]));
	CHECK_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			snprintf(one, sizeof(one), "%d", cpu);
	CHECK_EQ(bw_threads_enter(2, one), 0);
	run_once(100000, 1000, 4);
	/* the caller's own place is his */
	CPU_ZERO(&set);
	CHECK_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	CHECK(CPU_COUNT(&set) >= 1);
	bw_threads_leave(2);
	/* CPUs that are not ours to use: said, and done all the same */
	CHECK_EQ(bw_threads_enter(2, "1000-1023"), 0);
	run_once(100000, 1000, 4);
	bw_threads_leave(2);
}

static _Atomic unsigned elsewhere, there;

static int wanted_cpu;

static void where(void *dst, const void *src, size_t bytes)
{
	(void)dst;
	(void)src;
	(void)bytes;
	if (pthread_equal(pthread_self(), self))
		return;
	if (sched_getcpu() == wanted_cpu)
		there++;
	else
		elsewhere++;
}

/* The thread that copies is bound to a CPU, as those of many programs are: helpers are not. */
static void bound_caller(void)
{
	cpu_set_t all, one;
	int first = -1, last = -1;
	char list[32];

	begin();
	CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all)) {
			first = first < 0 ? cpu : first;
			last = cpu;
		}
	if (first == last)
		SKIP("one CPU");
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
	snprintf(list, sizeof(list), "%d", last);
	CHECK_EQ(bw_threads_enter(1, list), 0);
	elsewhere = there = 0;
	wanted_cpu = last;
	for (unsigned i = 0; !there && i < 100000; i++)
		bw_threads_run(where, mark, mark, 2000, 1000, 2, NULL);
	bw_threads_leave(1);
	CHECK_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
	CHECK(there);
	CHECK_EQ(elsewhere, 0);
}

/* A child has no helpers, and can have its own. */
static void forked(void)
{
	int status;
	pid_t child;

	if (TSAN)
		SKIP("ThreadSanitizer allows no threads in the child of a process that has "
		     "some");
	if (emulated())
		SKIP("threads in the child of a process that has some: an emulator");
	begin();
	CHECK_EQ(bw_threads_enter(2, ""), 0);
	run_once(100000, 100, 3);
	for (unsigned i = 0; i < 20; i++) {
		child = fork();
		CHECK(child >= 0);
		if (!child) {
			base = threads_now();
			if (setjmp(test_jump))
				_exit(1);
			run_once(50000, 100, 3);
			if (bw_threads_enter(2, ""))
				_exit(2);
			run_once(50000, 100, 3);
			bw_threads_leave(2);
			_exit(threads_are(0) ? 0 : 3);
		}
		run_once(100000, 100, 3);
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	bw_threads_leave(2);
}

static void host_memory(void)
{
	unsigned char *a, *b;

	begin();
	a = malloc(MOST);
	b = calloc(1, MOST);
	CHECK(a && b);
	test_fill(a, MOST, 3);
	CHECK_EQ(bw_threads_enter(2, ""), 0);
	bw_threads_memcpy(b + 5, a + 3, MOST - 7, 3);
	CHECK(!memcmp(b + 5, a + 3, MOST - 7) && !b[4] && !b[MOST - 2]);
	bw_threads_leave(2);
	free(a);
	free(b);
}

static _Atomic unsigned guests, left;
static _Atomic bool go_home;

static void visit(void *arg)
{
	if (arg != &guests || pthread_equal(pthread_self(), self))
		wrong++;
	guests++;
	while (!go_home)
		sched_yield();
	left++;
}

static bool ran_alone; /* a copy, while another thread had the helpers */

static void *alone(void *arg)
{
	others = 0;
	self = pthread_self();
	run_once(100000, 100, 3);
	ran_alone = !others;
	return arg;
}

/* Who comes is waited for; who does not come in time is not called any more. */
static void invited(void)
{
	pthread_t t;

	begin();
	wrong = 0;
	CHECK(!bw_threads_invite(visit, &guests, 3, NULL)); /* nobody asked for any */
	CHECK_EQ(bw_threads_enter(3, ""), 0);
	CHECK(!bw_threads_invite(visit, &guests, 1, NULL));
	for (unsigned i = 0; i < 50; i++) {
		guests = left = 0;
		go_home = false;
		CHECK(bw_threads_invite(visit, &guests, 3, NULL));
		for (unsigned k = 0; i % 2 && guests < 2 && k < 5000; k++)
			usleep(1000);
		CHECK(!(i % 2) || guests == 2);
		if (i == 1) {
			CHECK_EQ(pthread_create(&t, NULL, alone, NULL), 0);
			pthread_join(t, NULL);
			CHECK(ran_alone);
			self = pthread_self();
		}
		go_home = true;
		bw_threads_dismiss();
		CHECK(left == guests && guests <= 2);
		if (i % 10 == 0)
			usleep(1000); /* they sleep */
		CHECK_EQ(left, guests);
	}
	others = 0;
	for (unsigned i = 0; !others && i < 1000; i++)
		run_once(MOST, 4096, 4); /* and have parts of copies again */
	CHECK(others);
	CHECK_EQ(wrong, 0);
	bw_threads_leave(3);
	CHECK(threads_are(0));
}

static void *nothing(void *arg)
{
	return arg;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(every_byte_once), TEST(parked_and_woken), TEST(awake_when_it_pays),
		TEST(as_large_as_the_largest_wish), TEST(many_callers),
		TEST(no_thread_to_be_had), TEST(cpu_lists), TEST(bound_caller), TEST(invited),
		TEST(forked), TEST(host_memory), { 0 },
	};
	pthread_t first;

	/* a sanitizer begins its own with the program's first */
	if (pthread_create(&first, NULL, nothing, NULL))
		return 1;
	pthread_join(first, NULL);
	usleep(20000);
	base = threads_now();
	return test_main(argc, argv, cases);
}
