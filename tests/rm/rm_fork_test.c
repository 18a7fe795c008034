/* SPDX-License-Identifier: BSD-3-Clause */
/* A forked child may use nothing that it inherited, asks the driver for nothing, and harms
 * nobody. */
#include "rm_test.h"

static struct barway_mapping *map;
static uint64_t mem;
static unsigned char want[4096];

static void begin(void)
{
	start();
	mem = gpu_alloc(100000);
	OK(barway_map(ctx, mem, 100000, NULL, &map));
	test_fill(want, sizeof(want), ++seed);
	OK(barway_copy_to(map, 100, want, sizeof(want)));
}

static void parent_is_unaffected(void)
{
	unsigned char got[4096];

	OK(barway_copy_from(map, got, 100, sizeof(got)));
	CHECK(!memcmp(got, want, sizeof(got)));
	test_fill(want, sizeof(want), ++seed);
	OK(barway_copy_to(map, 100, want, sizeof(want)));
	gpu_read(got, mem + 100, sizeof(got));
	CHECK(!memcmp(got, want, sizeof(got)));
	prove(mem + 50000, 40000, mem + 50000, 40000, BARWAY_MAP_UNCACHED);
	CHECK_EQ(fakenv_get("foreign_calls"), 0);
}

static void end(void)
{
	parent_is_unaffected();
	OK(barway_unmap(map));
	gpu_free(mem);
	finish();
}

/* Runs @body in a child: its exit code has to be @code, or its signal @sig. */
static void in_a_child(int (*body)(void), int code, int sig)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		_exit(body());
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (sig ? !WIFSIGNALED(status) || WTERMSIG(status) != sig :
		  !WIFEXITED(status) || WEXITSTATUS(status) != code)
		FAIL("the child ended with 0x%x", (unsigned)status);
}

static int calls_are_stale(void)
{
	struct barway_mapping *m = (void *)1;
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct barway_counters c = { .size = sizeof(c) };
	unsigned char b[64] = { 0 };

	if (barway_copy_to(map, 0, b, 8) != -ESTALE || barway_copy_from(map, b, 0, 8) != -ESTALE)
		return 1;
	if (barway_copy_to_by(map, BARWAY_METHOD_CE, 0, b, 8) != -ESTALE ||
	    barway_flush(map) != -ESTALE)
		return 2;
	if (barway_mapping_ptr(map) || barway_mapping_query(map, &info) != -ESTALE)
		return 3;
	if (barway_map(ctx, mem, 100, NULL, &m) != -ESTALE || m != (void *)1)
		return 4;
	if (barway_cache_flush(ctx) != -ESTALE || barway_release_all(ctx, 1) != -ESTALE)
		return 5;
	if (barway_counters_get(ctx, &c) != -ESTALE || barway_device_count(ctx) != -ESTALE)
		return 6;
	if (barway_unmap(map) != -ESTALE || barway_close(ctx) != -ESTALE)
		return 7;
	return strstr(barway_errmsg(), "fork") ? 0 : 8;
}

static void calls_give_estale(void)
{
	struct live before;
	long ioctls, opens;

	begin();
	ioctls = fakenv_get("ioctls");
	opens = fakenv_get("opens");
	before = live_now();
	in_a_child(calls_are_stale, 0, 0);
	check_live(&before, "after the child");
	CHECK_EQ(fakenv_get("ioctls"), ioctls);
	CHECK_EQ(fakenv_get("opens"), opens);
	end();
}

static volatile unsigned char *inherited;

static int loads(void)
{
	signal(SIGSEGV, SIG_DFL);
	return *inherited & 0;
}

static int stores(void)
{
	signal(SIGSEGV, SIG_DFL);
	*inherited = 1;
	return 0;
}

static void loads_and_stores_fault(void)
{
	struct barway_mapping *m;
	long ioctls;

	begin();
	ioctls = fakenv_get("ioctls");
	inherited = barway_mapping_ptr(map);
	in_a_child(loads, 0, SIGSEGV);
	in_a_child(stores, 0, SIGSEGV);
	inherited += 99999;
	in_a_child(loads, 0, SIGSEGV);
	/* of the cache, too */
	OK(barway_map(ctx, mem, 64, NULL, &m));
	inherited = barway_mapping_ptr(m);
	OK(barway_unmap(m));
	in_a_child(loads, 0, SIGSEGV);
	CHECK_EQ(fakenv_get("ioctls"), ioctls);
	end();
}

static int cuda_is_refused(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };
	struct barway_provider_info p = { .size = sizeof(p) };
	struct barway_context *c;
	struct barway_mapping *m;

	if (barway_open(&o, &c))
		return 1;
	if (barway_device_count(c) != -ENODEV || !strstr(barway_errmsg(), "before fork()"))
		return 2;
	if (barway_map(c, mem, 100, NULL, &m) != -EFAULT)
		return 3;
	if (barway_provider_query(c, NULL, 0, &p))
		return 4;
	return barway_close(c) ? 5 : 0;
}

static void a_child_may_not_use_cuda(void)
{
	long ioctls;

	if (TSAN)
		SKIP("ThreadSanitizer does not see that a child's locks are new");
	begin();
	ioctls = fakenv_get("ioctls");
	in_a_child(cuda_is_refused, 0, 0);
	CHECK_EQ(fakenv_get("ioctls"), ioctls);
	end();
}

/* Its copies of the driver's files are closed: they would keep the parent's client alive. */
static int has_no_files_of_ours(void)
{
	struct stat st;
	int n = 0;

	/* libcuda's are not ours to close: one of nvidiactl, one of nvidia0 */
	for (int fd = 3; fd < 800; fd++)
		n += !fstat(fd, &st) && S_ISCHR(st.st_mode) && major(st.st_rdev) == 195;
	return n;
}

static void files_are_closed(void)
{
	begin();
	CHECK_EQ(has_no_files_of_ours(), 4);
	in_a_child(has_no_files_of_ours, 2, 0);
	end();
}

static int go[2];

static int lives_on(void)
{
	char c;

	return read(go[0], &c, 1) == 1 ? 0 : 1;
}

/* A child that stays: what the parent closes goes at once. */
static void parent_closes_first(void)
{
	long clients;
	int status;
	pid_t pid;

	begin();
	CHECK(!pipe(go));
	clients = fakenv_get("clients");
	pid = fork();
	if (!pid)
		_exit(lives_on());
	usleep(20000);
	parent_is_unaffected();
	OK(barway_unmap(map));
	OK(barway_release_all(ctx, 0));
	CHECK_EQ(fakenv_get("clients"), clients - 1);
	CHECK_EQ(fakenv_get("dups"), 0);
	CHECK_EQ(write(go[1], "x", 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	close(go[0]);
	close(go[1]);
	OK(barway_map(ctx, mem, 100000, NULL, &map));
	OK(barway_copy_to(map, 100, want, sizeof(want)));
	end();
}

static void many_children(void)
{
	begin();
	for (int i = 0; i < 20; i++) {
		in_a_child(calls_are_stale, 0, 0);
		parent_is_unaffected();
	}
	end();
}

/* ---- forks while other threads are busy ------------------------------------------------------ */

static _Atomic int stop;
static char failed[512];

static void *maps(void *arg)
{
	unsigned char b[300], c[300];
	uint64_t state = (uintptr_t)arg + 1;

	for (unsigned i = 0; !stop; i++) {
		struct barway_map_options o = {
			.size = sizeof(o), .flags = i % 4 ? 0 : BARWAY_MAP_UNCACHED,
		};
		uint64_t at = mem + 20000u * (unsigned)(uintptr_t)arg + test_random(&state) % 10000;
		struct barway_mapping *m;

		test_fill(b, sizeof(b), i);
		if (barway_map(ctx, at, sizeof(b), &o, &m) || barway_copy_to(m, 0, b, sizeof(b)) ||
		    barway_copy_from(m, c, 0, sizeof(c)) || barway_unmap(m))
			snprintf(failed, sizeof(failed), "%s", barway_errmsg());
		else if (memcmp(b, c, sizeof(b)))
			strcpy(failed, "data differ");
		if (failed[0])
			break;
	}
	return NULL;
}

static void while_threads_map(void)
{
	pthread_t t[3];

	begin();
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, maps, (void *)(uintptr_t)(i + 1)), 0);
	for (int i = 0; i < 25; i++) {
		in_a_child(calls_are_stale, 0, 0);
		in_a_child(cuda_is_refused, 0, 0);
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	if (failed[0])
		FAIL("%s", failed);
	end();
}

/* ---- a context opened before the fork, before any CUDA --------------------------------------- */

static int starts_anew(void)
{
	struct barway_mapping *m;

	if (barway_map(ctx, 4096, 100, NULL, &m) != -ESTALE)
		return 1;
	ctx = NULL;
	switch (setjmp(test_jump)) {
	case 0:
		start();
		mem = gpu_alloc(100000);
		prove(mem + 9, 70000, mem, 100000, 0);
		gpu_free(mem);
		finish();
		return 0;
	default:
		return 2;
	}
}

static void opened_before_the_fork(void)
{
	if (TSAN)
		SKIP("ThreadSanitizer does not see that a child's locks are new");
	load_cuda();
	open_context();
	CHECK_EQ(fakenv_get("fds"), 0);
	in_a_child(starts_anew, 0, 0);
	in_a_child(starts_anew, 0, 0);
	OK(barway_close(ctx));
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(calls_give_estale),
		CASE(loads_and_stores_fault),
		CASE(a_child_may_not_use_cuda),
		CASE(files_are_closed),
		CASE(parent_closes_first),
		CASE(many_children),
		CASE(while_threads_map),
		CASE(opened_before_the_fork),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
