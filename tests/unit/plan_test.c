/* SPDX-License-Identifier: BSD-3-Clause */
/* copy/plan: curves, the choice, the file */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy/plan.h"
#include "core/fault.h"
#include "core/param.h"
#include "device/soft.h"
#include "test.h"

static char folder[] = "/tmp/barway-plan.XXXXXX", *dir;

static void begin(void)
{
	if (!dir) {
		dir = mkdtemp(folder);
		CHECK(dir);
	}
	CHECK_EQ(bw_param_set("plan_dir", dir), 0);
	CHECK_EQ(bw_param_load(), 0);
}

static void path_in(const char *name, char *path, size_t n)
{
	snprintf(path, n, "%s/%s", dir, name);
}

static void clean(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -rf '%s'/*", dir);
	CHECK_EQ(system(command), 0);
}

static const char small[] =
	"barway-plan 1\n"
	"source a test\n"
	"threads 3\n"
	"cpu to any 64:100 1024:200 65536:12800\n"
	"cpu from any 64:1000 1024:1000 2048:2000\n"
	"ce to pinned 64:5000 65536:6000\n"
	"ce from pageable 64:7000 65536:9000\n";

static void curves(void)
{
	struct bw_plan plan;
	const struct bw_curve *c;

	CHECK_EQ(bw_plan_parse(small, &plan), 0);
	CHECK_STR(plan.source, "a test");
	CHECK_EQ(plan.threads, 3);
	c = &plan.curve[BW_METHOD_CPU][0][1];
	CHECK_EQ(c->n, 3);
	CHECK_EQ(bw_curve_ns(c, 1), 100);
	CHECK_EQ(bw_curve_ns(c, 64), 100);
	CHECK_EQ(bw_curve_ns(c, 544), 150);
	CHECK_EQ(bw_curve_ns(c, 1024), 200);
	CHECK_EQ(bw_curve_ns(c, 65536), 12800);
	/* past the end: on as before */
	CHECK(bw_curve_ns(c, 1 << 20) > 12800 * 15 && bw_curve_ns(c, 1 << 20) < 12800 * 17);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CE][0][0], 64), UINT64_MAX);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CE][0][1], 64), 5000);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CE][1][0], 64), 7000);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CE][1][1], 64), UINT64_MAX);
}

/* A method of the name of another line of the file; and times that do not grow. */
static void curves_of_threads(void)
{
	struct bw_plan plan;

	CHECK_EQ(bw_plan_parse("barway-plan 1\nthreads 3\ncpu to any 64:100\n"
			       "cpu from any 64:1000\nthreads to pageable 16384:900\n"
			       "threads from any 4096:2000\n", &plan), 0);
	CHECK_EQ(plan.threads, 3);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_THREADS][0][0], 64), 900);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_THREADS][0][1], 64), UINT64_MAX);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_THREADS][1][1], 64), 2000);
	/* figures that fall are taken as they are; past the end nothing falls */
	CHECK_EQ(bw_plan_parse("barway-plan 1\ncpu to any 64:100 128:60 256:40\n"
			       "cpu from any 64:1000\n", &plan), 0);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CPU][0][0], 128), 60);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CPU][0][0], 192), 50);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CPU][0][0], 256), 40);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CPU][0][0], 257), 40);
	CHECK_EQ(bw_curve_ns(&plan.curve[BW_METHOD_CPU][0][0], 1 << 20), 40);
	CHECK_EQ(bw_plan_parse("barway-plan 1\nthreads many\ncpu to any 64:100\n"
			       "cpu from any 64:1000\n", &plan), -EBADMSG);
}

/* Further than a number goes, and back: never nothing, never "no curve". */
static void curves_that_are_steep(void)
{
	const struct bw_curve *c;
	struct bw_plan plan;
	uint64_t last = 0, ns;

	CHECK_EQ(bw_plan_parse("barway-plan 1\ncpu to any 1:0 2:17592186044416\n"
			       "cpu from any 1:17592186044416 17592186044416:0\n", &plan), 0);
	c = &plan.curve[BW_METHOD_CPU][0][0];
	CHECK_EQ(bw_curve_ns(c, 3), 2ull << 44);
	for (unsigned shift = 1; shift < 64; shift++) {
		ns = bw_curve_ns(c, 1ull << shift);
		CHECK(ns >= last && ns != UINT64_MAX);
		last = ns;
	}
	CHECK_EQ(bw_curve_ns(c, 2 << 20), UINT64_MAX - 1);
	CHECK_EQ(bw_curve_ns(c, UINT64_MAX), UINT64_MAX - 1);
	c = &plan.curve[BW_METHOD_CPU][1][0];
	CHECK_EQ(bw_curve_ns(c, 1ull << 44), 0);
	CHECK_EQ(bw_curve_ns(c, UINT64_MAX), 0);
}

static void limits(void)
{
	struct bw_plan plan;
	size_t to, from;

	CHECK_EQ(bw_plan_parse(small, &plan), 0);
	bw_plan_limits(&plan, &to, &from);
	/* the lines cross near 27 KiB and 7 KiB */
	CHECK(to > 26000 && to < 33000);
	CHECK(from > 6000 && from < 8192);
	CHECK_EQ(bw_plan_parse("barway-plan 1\ncpu to any 64:1\ncpu from any 64:1\n", &plan), 0);
	bw_plan_limits(&plan, &to, &from);
	CHECK_EQ(to, UINT32_MAX);
	CHECK_EQ(from, UINT32_MAX);
}

static void refused(void)
{
	static const char *const bad[] = {
		"", "barway-plan 2\n", "barway-plan 1\n", "barway-plan 1\ncpu to any 64:1\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 64\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 64:1 64:2\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 128:1 64:2\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any -64:1\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 64:1x\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 0:1\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 99999999999999999999:1\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from some 64:1\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 64:1\nauto to any 64:1\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 64:1\nnew line\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 64:1\nthreads 65\n",
		"barway-plan 1\ncpu to any 64:1\ncpu from any 64:1\nthreads x\n",
	};
	struct bw_plan plan;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (!bw_plan_parse(bad[i], &plan))
			FAIL("taken: %s", bad[i]);
}

/* Whatever the bytes are, an answer and nothing else. */
static void garbled(void)
{
	char text[sizeof(small)];
	uint64_t x = 88172645463325252ull;
	struct bw_plan plan;
	unsigned taken = 0;

	for (unsigned i = 0; i < 20000; i++) {
		memcpy(text, small, sizeof(text));
		for (unsigned k = 0; k < 1 + i % 3; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			text[x % (sizeof(text) - 1)] = (char)(x >> 32 ? x >> 32 : 1);
		}
		if (bw_plan_parse(text, &plan))
			continue;
		taken++;
		for (int m = 0; m < BW_CURVES; m++)
			for (int k = 0; k < 4; k++)
				CHECK(plan.curve[m][k / 2][k % 2].n <= BW_PLAN_POINTS);
	}
	CHECK(taken && taken < 20000);
}

static void built_in(void)
{
	struct bw_device *dev = bw_soft_device(0), h200;
	struct bw_plan plan;
	size_t to, from;

	CHECK(dev);
	bw_plan_built_in(dev, &plan);
	CHECK_HAS(plan.source, "of another machine");
	h200 = *dev;
	snprintf(h200.name, sizeof(h200.name), "NVIDIA H200");
	bw_plan_built_in(&h200, &plan);
	CHECK_HAS(plan.source, "built in: H200");
	bw_plan_limits(&plan, &to, &from);
	CHECK(to >= 16384 && to <= 1 << 20);
	CHECK(from >= 1024 && from <= 16384);
	/* it has the resident copier, without which one CPU thread is the choice for longer */
	CHECK(bw_plan_of(dev)->cpu_limit[BW_PLAN_WITHOUT_THREADS][1] <
	      bw_plan_of(dev)->cpu_limit[BW_PLAN_WITHOUT_THREADS | BW_PLAN_WITHOUT_RESIDENT][1]);
	CHECK_EQ(bw_plan_of(dev)->cpu_limit[0][1], from);
}

static void written(void)
{
	struct bw_device *dev = bw_soft_device(0), other;
	struct bw_plan plan, back;
	char command[256];

	begin();
	clean();
	CHECK_EQ(bw_plan_read(dev, &back), -ENOENT);
	CHECK_EQ(bw_plan_parse(small, &plan), 0);
	CHECK_EQ(bw_plan_write(dev, &plan, NULL), 0);
	CHECK_EQ(bw_plan_read(dev, &back), 0);
	CHECK_HAS(back.file, dir);
	memset(back.file, 0, sizeof(back.file));
	CHECK(!memcmp(&plan, &back, sizeof(plan)));
	/* another GPU has another file; and where it lies in this one's place it is not taken */
	other = *dev;
	snprintf(other.name, sizeof(other.name), "another GPU");
	CHECK_EQ(bw_plan_read(&other, &back), -ENOENT);
	snprintf(command, sizeof(command), "sed -i 's/^gpu .*/gpu x/' '%s'/plan-*", dir);
	CHECK_EQ(system(command), 0);
	CHECK_EQ(bw_plan_read(dev, &back), -EBADMSG);
	CHECK_HAS(bw_err_text(), "another machine");
	/* nor where it does not say of which GPU, driver or CPU it is */
	for (unsigned line = 2; line <= 4; line++) {
		CHECK_EQ(bw_plan_write(dev, &plan, NULL), 0);
		snprintf(command, sizeof(command), "sed -i '%ud' '%s'/plan-*", line, dir);
		CHECK_EQ(system(command), 0);
		CHECK_EQ(bw_plan_read(dev, &back), -EBADMSG);
		CHECK_HAS(bw_err_text(), "does not say which");
	}
	CHECK_EQ(bw_plan_write(dev, &plan, NULL), 0);
	snprintf(command, sizeof(command), "sed -i '1s/1/2/' '%s'/plan-*", dir);
	CHECK_EQ(system(command), 0);
	CHECK_EQ(bw_plan_read(dev, &back), -EBADMSG);
	CHECK_HAS(bw_err_text(), "of this version");
	/* what cannot be read is said, and the built-in plan taken */
	snprintf(command, sizeof(command), "printf 'barway-plan 1\\nrubbish' > $(ls '%s'/plan-*)",
		 dir);
	CHECK_EQ(system(command), 0);
	CHECK_EQ(bw_plan_read(dev, &back), -EBADMSG);
	CHECK_HAS(bw_err_text(), "line 2");
	bw_plan_forget();
	CHECK_HAS(bw_plan_of(dev)->source, "built in");
	CHECK_HAS(bw_plan_of(dev)->ignored, "line 2");
	clean();
	bw_plan_forget();
	CHECK_STR(bw_plan_of(dev)->ignored, "");
}

/* A link stays, what it leads to is written; what is no file is left as it is. */
static void not_replaced(const struct bw_device *dev, const struct bw_plan *plan)
{
	char path[256], link[256];
	struct stat st;

	path_in("behind", path, sizeof(path));
	path_in("link", link, sizeof(link));
	CHECK_EQ(symlink("behind", link), 0);
	CHECK_EQ(bw_plan_write(dev, plan, link), -ENOENT);
	CHECK_EQ(close(creat(path, 0600)), 0);
	CHECK_EQ(bw_plan_write(dev, plan, link), 0);
	CHECK(!lstat(link, &st) && S_ISLNK(st.st_mode));
	CHECK(!stat(path, &st) && st.st_size);
	path_in("pipe", path, sizeof(path));
	CHECK_EQ(mkfifo(path, 0600), 0);
	CHECK_EQ(bw_plan_write(dev, plan, path), -EINVAL);
	CHECK_HAS(bw_err_text(), "not a regular file");
	CHECK(!lstat(path, &st) && S_ISFIFO(st.st_mode));
}

static void places(void)
{
	struct bw_device *dev = bw_soft_device(0);
	char path[256], nested[300];
	struct bw_plan plan, back;

	begin();
	CHECK_EQ(bw_plan_parse(small, &plan), 0);
	path_in("a/b/c", nested, sizeof(nested));
	CHECK_EQ(bw_param_set("plan_dir", nested), 0);
	CHECK_EQ(bw_plan_write(dev, &plan, NULL), 0);
	CHECK_EQ(bw_plan_read(dev, &back), 0);
	path_in("given", path, sizeof(path));
	CHECK_EQ(bw_plan_write(dev, &plan, path), 0);
	CHECK_EQ(access(path, R_OK), 0);
	not_replaced(dev, &plan);
	/* a folder that cannot be */
	path_in("given/x", path, sizeof(path));
	CHECK_EQ(bw_param_set("plan_dir", path), 0);
	CHECK(bw_plan_write(dev, &plan, NULL) < 0);
	CHECK_HAS(bw_err_text(), "given");
	clean();
}

/* What is chosen at 4 KiB of pageable memory with helper threads, of a plan with these times. */
static const struct bw_copy_method *chosen(unsigned cpu, unsigned ce, unsigned threads,
					   uint64_t *ns)
{
	struct bw_device *dev = bw_soft_device(0);
	struct bw_segment seg = { .dev = dev, .bytes = 4096 };
	struct bw_window win = { .segs = &seg, .nsegs = 1 };
	struct bw_mapping map = { .win = &win, .bytes = 4096, .span = 4096, .copy_threads = 2,
				  .store_name = "s", .load_name = "l" };
	struct bw_copy copy = { .map = &map, .bytes = 4096, .direction = BW_TO_GPU };
	struct bw_reason why;
	struct bw_plan plan;
	char text[256];

	snprintf(text, sizeof(text), "barway-plan 1\ncpu to any 64:%u\ncpu from any 64:1\n"
		 "ce to any 64:%u\nthreads to any 64:%u\n", cpu, ce, threads);
	CHECK_EQ(bw_plan_parse(text, &plan), 0);
	CHECK_EQ(bw_plan_write(dev, &plan, NULL), 0);
	bw_plan_forget();
	return bw_plan_choose(&copy, ns, &why);
}

/* The least of all; the calling thread is given up only for a gain of more than 1/32. */
static void least(void)
{
	static const struct {
		unsigned cpu, ce, threads, method, ns;
	} cases[] = {
		{ 3200, 3100, 3200, BW_METHOD_CPU, 3200 }, /* 1/32: no more than that */
		{ 3200, 3099, 3200, BW_METHOD_CE, 3099 },
		{ 3200, 3200, 3099, BW_METHOD_THREADS, 3099 },
		/* among the others, any gain; in whichever order they are listed */
		{ 3200, 1000, 999, BW_METHOD_THREADS, 999 },
		{ 3200, 999, 1000, BW_METHOD_CE, 999 },
		{ 3200, 3099, 3090, BW_METHOD_THREADS, 3090 },
		{ 3200, 3101, 3090, BW_METHOD_THREADS, 3090 },
	};

	begin();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ns;
		const struct bw_copy_method *method = chosen(cases[i].cpu, cases[i].ce,
							     cases[i].threads, &ns);

		CHECK_EQ(method->id, cases[i].method);
		CHECK_EQ(ns, cases[i].ns);
	}
	clean();
	bw_plan_forget();
}

/* The resident copier is taken for a gain of 15 percent over the next best, and for none less. */
static void resident(void)
{
	static const uint64_t none = UINT64_MAX;
	const struct {
		uint64_t cpu, ce, threads, resident;
		unsigned method;
	} cases[] = {
		{ 60057, 29200, 33098, 26900, BW_METHOD_CE }, /* 8 percent */
		{ 60057, 20000, 33098, 17001, BW_METHOD_CE },
		{ 60057, 20000, 33098, 17000, BW_METHOD_RESIDENT },
		{ 4050, 7408, 3082, 2700, BW_METHOD_THREADS }, /* of the CE, but not of these */
		{ 4050, 7408, none, 2700, BW_METHOD_RESIDENT },
		{ 1000, 7408, none, 851, BW_METHOD_CPU },
		{ 1000, 7408, none, 850, BW_METHOD_RESIDENT },
		{ 3200, 3100, none, 2719, BW_METHOD_RESIDENT }, /* next best: the CPU, by 1/32 */
		{ 1000, none, none, none, BW_METHOD_CPU },
		{ none - 1, none, none, none, BW_METHOD_CPU },
		{ none - 1, none, none, none - 1, BW_METHOD_CPU },
	};
	static const char text[] = "barway-plan 1\ncpu to any 64:1000\ncpu from any 64:1000\n"
				   "resident to pinned 64:860\nresident from pinned 64:840\n";
	struct bw_plan plan;
	size_t to, from;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t ns[BW_METHODS] = {
			[BW_METHOD_AUTO] = none, [BW_METHOD_CPU] = cases[i].cpu,
			[BW_METHOD_CE] = cases[i].ce, [BW_METHOD_THREADS] = cases[i].threads,
			[BW_METHOD_RESIDENT] = cases[i].resident,
		};

		CHECK_EQ(bw_plan_best(ns), cases[i].method);
	}
	/* nor does it keep small copies from the shortest way to the CPU */
	CHECK_EQ(bw_plan_parse(text, &plan), 0);
	bw_plan_limits(&plan, &to, &from);
	CHECK_EQ(to, UINT32_MAX);
	CHECK_EQ(from, 255);
}

/* Where helpers are the choice whatever the host memory is, it need not be asked for. */
static void for_threads(void)
{
	static const char text[] =
		"barway-plan 1\ncpu to any 64:100 1048576:1000000\n"
		"cpu from any 64:1000 4096:4000 1048576:1000000\n"
		"threads from pageable 4096:2400 65536:20000\n"
		"threads from pinned 4096:2200 65536:20000\n"
		"ce from pinned 64:6000 16384:6400 65536:7400\n"
		"ce from pageable 64:12000 65536:13000\n"
		"resident from pinned 64:2900 4096:3100 65536:4600\n";
	struct bw_sizes sizes;
	struct bw_plan plan;

	CHECK_EQ(bw_plan_parse(text, &plan), 0);
	/* pinned memory is the copier's near 9 KiB, and without it the engine's near 19 KiB */
	sizes = bw_plan_for_threads(&plan, 0, BW_FROM_GPU);
	CHECK(sizes.first > 2000 && sizes.first < 3000);
	CHECK_EQ(sizes.last, 8192);
	sizes = bw_plan_for_threads(&plan, BW_PLAN_WITHOUT_RESIDENT, BW_FROM_GPU);
	CHECK(sizes.first > 2000 && sizes.first < 3000);
	CHECK_EQ(sizes.last, 16384);
	sizes = bw_plan_for_threads(&plan, BW_PLAN_WITHOUT_THREADS, BW_FROM_GPU);
	CHECK(!sizes.first && !sizes.last);
	sizes = bw_plan_for_threads(&plan, 0, BW_TO_GPU);
	CHECK(!sizes.first && !sizes.last);
}

static _Atomic bool stop;
static _Atomic unsigned reads, torn;

static void *reader(void *arg)
{
	struct bw_plan back;

	while (!stop) {
		int ret = bw_plan_read(arg, &back);

		if (ret && ret != -ENOENT)
			torn++;
		else if (!ret)
			reads++;
	}
	return NULL;
}

static void *writer(void *arg)
{
	struct bw_plan plan;

	for (unsigned i = 0; i < 200; i++)
		if (bw_plan_parse(small, &plan) || bw_plan_write(arg, &plan, NULL))
			torn++;
	return NULL;
}

static void concurrent_writers(void)
{
	struct bw_device *dev = bw_soft_device(0);
	pthread_t w[3], r;
	char command[256];

	begin();
	clean();
	stop = false;
	reads = torn = 0;
	CHECK_EQ(pthread_create(&r, NULL, reader, dev), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&w[i], NULL, writer, dev), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(w[i], NULL);
	while (!reads && !torn)
		usleep(1000);
	stop = true;
	pthread_join(r, NULL);
	CHECK_EQ(torn, 0);
	CHECK(reads);
	/* one file and no left-overs */
	snprintf(command, sizeof(command), "[ \"$(ls '%s' | wc -l)\" = 1 ]", dir);
	CHECK_EQ(system(command), 0);
	clean();
	rmdir(dir);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(curves), TEST(curves_of_threads), TEST(curves_that_are_steep), TEST(limits),
		TEST(refused), TEST(garbled), TEST(built_in), TEST(least), TEST(resident),
		TEST(for_threads), TEST(written), TEST(places), TEST(concurrent_writers), { 0 },
	};

	return test_main(argc, argv, cases);
}
