/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Nth call of a kind fails, for each N until a whole pass meets no failure: open, map, copy,
 * unmap, close. Each pass either works or fails with a sentence, leaves nothing behind, and the
 * next pass, on the same driver, works.
 */
#include "core/fault.h"
#include "rm_test.h"

#define STEP (TSAN ? 7u : 1u) /* nothing for threads here, and slow with them looked at */

static enum bw_fault kind;
static uint64_t mem, small;
static struct vmm v;
static char said[1024];
static int fallbacks; /* passes that worked although the fault had struck */

/* Returns 0, or the first error, with its sentence in @said. */
static int failure(int ret)
{
	if (ret) {
		if (ret > 0 || !barway_errmsg()[0])
			FAIL("a failed call says %d and \"%s\"", ret, barway_errmsg());
		snprintf(said, sizeof(said), "%s", barway_errmsg());
	}
	return ret;
}

static int transfer(uint64_t addr, size_t n, uint32_t flags)
{
	static unsigned char a[10000], b[10000];
	struct barway_map_options o = { .size = sizeof(o), .flags = flags };
	struct barway_mapping *m = NULL;
	int ret = failure(barway_map(ctx, addr, n, &o, &m));

	if (ret) {
		CHECK(!m);
		return ret;
	}
	test_fill(a, n, ++seed);
	OK(barway_copy_to_by(m, BARWAY_METHOD_CPU, 0, a, n));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CPU, b, 0, n));
	CHECK(!memcmp(a, b, n));
	test_fill(a, n, ++seed);
	ret = failure(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, a, n));
	if (!ret) {
		memset(b, 0, n);
		ret = failure(barway_copy_from_by(m, BARWAY_METHOD_CE, b, 0, n));
		if (!ret)
			CHECK(!memcmp(a, b, n));
	}
	OK(barway_unmap(m));
	return ret;
}

static int pass(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };
	int ret;

	ctx = NULL;
	ret = failure(barway_open(&o, &ctx));
	if (ret) {
		CHECK(!ctx);
		return ret;
	}
	ret = barway_device_count(ctx);
	ret = ret < 0 ? failure(ret) : 0;
	if (!ret)
		ret = transfer(mem + 3, 9000, 0);
	if (!ret)
		ret = transfer(small, 600, BARWAY_MAP_UNCACHED);
	if (!ret)
		ret = transfer(v.addr + VMM_STEP - 5000, 10000, 0);
	if (!ret)
		ret = transfer(mem + 3, 9000, 0);
	OK(barway_close(ctx));
	return ret;
}

static struct live before;

static void prepare(void)
{
	static const char *const names[] = { "alloc", "open", "ioctl", "mmap", "", "", "", "thread",
					     "cuda" };

	for (kind = 0; strcmp(names[kind], rm_arg); kind++)
		;
	load_cuda();
	CU_OK(cuInit(0));
	CU_OK(cuDevicePrimaryCtxRetain(&primary, 0));
	CU_OK(cuCtxSetCurrent(primary));
	CU_OK(cuStreamCreate(&stream, 1));
	at_start = live_now();
	barway_set_log(NULL, NULL, 0);
	mem = gpu_alloc(20000);
	small = gpu_alloc(600);
	vmm_alloc(&v, 2, 0, NULL);
	before = live_now();
}

/* False: the Nth call was not reached. */
static bool nth_fails(unsigned n)
{
	bool pending;
	int ret;

	said[0] = 0;
	bw_fault_arm(kind, n);
	ret = pass();
	pending = bw_fault_pending(kind);
	bw_fault_disarm_all();
	if (pending && ret)
		FAIL("%s@%u: failed without the fault: %s", rm_arg, n, said);
	if (pending)
		return false;
	fallbacks += !ret;
	check_live(&before, said[0] ? said : "a pass that met a fault and worked");
	if (kind == BW_FAULT_IOCTL) /* where RM_UNMAP_MEMORY was the one, RM_FREE ends it */
		set("order_violations", "0");
	check_conduct();
	if (getenv("VERBOSE"))
		printf("%s@%u: %d %s\n", rm_arg, n, ret, said);
	/* nothing of it sticks */
	ret = pass();
	if (ret)
		FAIL("%s@%u: the next pass fails too: %d %s", rm_arg, n, ret, said);
	check_live(&before, "the next pass");
	return true;
}

/* @fresh: the self-test is made anew each time. */
static void each_nth(bool fresh)
{
	unsigned n, fired = 0;

	prepare();
	if (!fresh)
		CHECK_EQ(pass(), 0);
	for (n = 1; nth_fails(n); n += STEP) {
		fired++;
		if (fresh) {
			open_context();
			OK(barway_release_all(ctx, 0));
			OK(barway_close(ctx));
		}
		if (n > 5000)
			FAIL("no end");
	}
	CHECK(fired > 0);
	printf("rm_fault_test: %s%s: %u faults, %d of them worked around\n", rm_arg,
	       fresh ? " with the self-test" : "", fired, fallbacks);
	gpu_free(mem);
	gpu_free(small);
	vmm_free(&v);
	check_live(&at_start, "at the end");
	check_conduct();
}

static void with_self_test(void)
{
	each_nth(true);
}

static void without_self_test(void)
{
	each_nth(false);
}

/* In a new process each time: the first list of GPUs, the first everything. */
static void from_nothing(void)
{
	const char *one = getenv("RM_FAULT_NTH");
	unsigned n = 1;
	int status = 0;

	if (one) {
		prepare();
		exit(nth_fails((unsigned)atoi(one)) ? 0 : 3);
	}
	for (; n < 5000; n += STEP) {
		char text[16];
		pid_t pid = fork();

		if (!pid) {
			snprintf(text, sizeof(text), "%u", n);
			setenv("RM_FAULT_NTH", text, 1);
			rm_again();
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
			break;
		if (status)
			FAIL("%s@%u", rm_arg, n);
	}
	CHECK(n > 3);
}

/* No thread for the cache: nothing is kept, everything works. */
static void no_cache_thread(void)
{
	struct barway_mapping *m;
	uint64_t a;

	start();
	a = gpu_alloc(5000);
	bw_fault_arm(BW_FAULT_THREAD, 1);
	OK(barway_map(ctx, a, 5000, NULL, &m));
	OK(barway_unmap(m));
	CHECK(!bw_fault_pending(BW_FAULT_THREAD));
	CHECK_EQ(fakenv_get("vmas"), 0);
	CHECK_EQ(counters().cache_bytes, 0);
	OK(barway_map(ctx, a, 5000, NULL, &m));
	OK(barway_unmap(m)); /* this time there is one */
	CHECK_EQ(fakenv_get("vmas"), 1);
	gpu_free(a);
	finish();
}

#define EACH(kind) \
	{ "with_self_test", with_self_test, NULL, kind }, \
	{ "without_self_test", without_self_test, NULL, kind }

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		EACH("alloc"), EACH("open"), EACH("ioctl"), EACH("mmap"), EACH("thread"),
		EACH("cuda"),
		{ "from_nothing", from_nothing, NULL, "alloc" },
		{ "from_nothing", from_nothing, NULL, "open" },
		{ "from_nothing", from_nothing, NULL, "mmap" },
		{ "from_nothing", from_nothing, NULL, "cuda" },
		{ "with_self_test ipc", with_self_test, "BARWAY_RM_ROUTES=ipc,vmm,hook", "cuda" },
		{ "with_self_test no cache", with_self_test, "BARWAY_CACHE_BYTES=0", "ioctl" },
		{ "with_self_test 535", with_self_test, "FAKENV=driver=535.288.01,bar1=dynamic",
		  "ioctl" },
		CASE(no_cache_thread),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
