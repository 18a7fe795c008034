/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan and its measuring, through the public interface. */
#include <dirent.h>

#include "api_test.h"

static char folder[] = "/tmp/barway-plan.XXXXXX";

static void with_folder(void)
{
	static char *dir;

	if (!dir) {
		dir = mkdtemp(folder);
		CHECK(dir);
	}
	if (ctx)
		barway_close(ctx);
	ctx = NULL;
	param("plan_dir", dir);
	begin();
}

/* Puts @figures in the place of those in the file, whose head, with its machine, stays. */
static void write_plan(const char *figures)
{
	char path[256] = "", head[1024] = "", line[512];
	DIR *d = opendir(folder);
	struct dirent *e;
	FILE *f;

	CHECK(d);
	while ((e = readdir(d)))
		if (!strncmp(e->d_name, "plan-", 5))
			snprintf(path, sizeof(path), "%s/%.100s", folder, e->d_name);
	closedir(d);
	f = fopen(path, "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f) && strncmp(line, "source ", 7)) {
		CHECK(strlen(head) + strlen(line) < sizeof(head));
		strcat(head, line);
	}
	fclose(f);
	f = fopen(path, "w");
	CHECK(f);
	fprintf(f, "%s%s", head, figures);
	fclose(f);
}

static unsigned points, last_total;

static int count(void *arg, const struct barway_tune_point *p)
{
	CHECK(arg == &points);
	CHECK_EQ(p->size, sizeof(*p));
	CHECK(p->direction == BARWAY_TO_GPU || p->direction == BARWAY_FROM_GPU);
	CHECK(p->method >= BARWAY_METHOD_CPU && p->method <= BARWAY_METHOD_RESIDENT);
	CHECK(p->bytes && p->ns && p->pinned <= 1);
	CHECK(p->min_ns <= p->ns && p->ns <= p->p99_ns);
	CHECK(p->done <= p->total);
	last_total = p->total;
	points++;
	return 0;
}

static int enough(void *arg, const struct barway_tune_point *p)
{
	(void)arg;
	return p->bytes >= 4096 ? -ECANCELED : 0;
}

static void big(void)
{
	/* measuring takes 64 MiB and room to map them */
	if (ctx)
		barway_close(ctx);
	ctx = NULL;
	param("soft_memory", "256M");
	param("soft_bar1", "128M");
	with_folder();
}

static void tuned(void)
{
	struct barway_plan_info info = { .size = sizeof(info) };
	struct barway_mapping *map;
	uint64_t a;

	big();
	points = 0;
	OK(barway_tune(gpu[0], count, &points, NULL));
	CHECK(points > 20 && points <= last_total);
	/* contexts that are opened later have it */
	end();
	begin();
	a = alloc(0, MIB);
	OK(barway_map(ctx, a, MIB, NULL, &map));
	OK(barway_plan(map, BARWAY_TO_GPU, 0, NULL, 64, &info));
	CHECK_HAS(info.source, "barway tune");
	CHECK_HAS(info.file, "/plan-");
	CHECK(info.estimate_ns && info.estimate_ns != UINT64_MAX);
	OK(barway_unmap(map));
	release(a);

	CHECK_EQ(barway_tune(gpu[0], enough, NULL, ""), -ECANCELED);
	FAILS(barway_tune(gpu[0], NULL, NULL, "/nowhere/at/all"), ENOENT, "/nowhere/at/all");
	FAILS(barway_tune(NULL, NULL, NULL, ""), ESTALE, "barway_tune");
	end();
}

/* What is said is what is done: seen by who made the bytes arrive. */
static void choice(void)
{
	struct barway_plan_info info = { .size = sizeof(info) };
	static unsigned char data[2 * MIB], back[2 * MIB];
	struct barway_mapping *map;
	uint64_t a;

	big();
	OK(barway_tune(gpu[0], NULL, NULL, NULL));
	end();
	/* one that crosses where the test wants it */
	write_plan("source a test\n"
		   "cpu to any 64:100 1048576:104857600\n"
		   "cpu from any 64:100 1048576:1048576000\n"
		   "ce to any 64:1000000\nce from any 64:1000000\n");
	begin();
	a = alloc(0, 2 * MIB);
	OK(barway_map(ctx, a, 2 * MIB, NULL, &map));
	for (size_t n = 1; n <= 2 * MIB; n *= 2) {
		OK(barway_plan(map, BARWAY_TO_GPU, 0, NULL, n, &info));
		CHECK_EQ(info.method, n <= 8192 ? BARWAY_METHOD_CPU : BARWAY_METHOD_CE);
		CHECK_HAS(info.source, "a test");
		CHECK_HAS(info.reason, "cpu");
		CHECK_HAS(info.reason, "ce");
		OK(barway_plan(map, BARWAY_FROM_GPU, 0, data, n, &info));
		CHECK_EQ(info.method, n <= 1024 ? BARWAY_METHOD_CPU : BARWAY_METHOD_CE);
		CHECK_EQ(info.host_kind, BARWAY_MEM_HOST);

		test_fill(data, n, n);
		OK(barway_copy_to(map, 0, data, n));
		OK(barway_flush(map));
		memset(back, 0, n);
		OK(barway_copy_from(map, back, 0, n));
		CHECK(!memcmp(data, back, n));
	}
	/* an unknown method is one for nothing, too */
	FAILS(barway_copy_to_by(map, 99, 0, data, 0), ENOTSUP, "barway_copy_to_by: method 99");
	FAILS(barway_copy_from_by(map, 99, data, 0, 0), ENOTSUP, "barway_copy_from_by: method 99");
	OK(barway_copy_to_by(map, BARWAY_METHOD_AUTO, 0, NULL, 0));
	OK(barway_copy_to_by(map, BARWAY_METHOD_RESIDENT, 0, NULL, 0)); /* which is not started */
	FAILS(barway_plan(map, 3, 0, NULL, 1, &info), EINVAL, "direction");
	FAILS(barway_plan(map, BARWAY_TO_GPU, 1, NULL, 2 * MIB, &info), EINVAL, "outside");
	FAILS(barway_plan(NULL, BARWAY_TO_GPU, 0, NULL, 1, &info), ESTALE, "barway_plan");
	FAILS(barway_plan(map, BARWAY_TO_GPU, 0, NULL, 1, NULL), EINVAL, "barway_plan");
	info.size = 8;
	FAILS(barway_plan(map, BARWAY_TO_GPU, 0, NULL, 1, &info), EINVAL,
	      "set it to sizeof(struct barway_plan_info)");
	OK(barway_unmap(map));
	release(a);
	end();
}

static unsigned warnings;

static void logged(void *arg, int level, const char *text)
{
	(void)arg;
	if (level <= BARWAY_LOG_WARN && strstr(text, "one CPU thread copies instead"))
		warnings++;
}

/* The engine goes by address: freed memory it must not touch, and the copy is done all the same. */
static void freed_under_it(void)
{
	static unsigned char data[MIB], back[MIB];
	struct barway_mapping *map;
	uint64_t a;

	choice();
	begin();
	a = alloc(0, MIB);
	OK(barway_map(ctx, a, MIB, NULL, &map));
	OK(barway_set_log(logged, NULL, BARWAY_LOG_WARN));
	release(a);
	test_fill(data, MIB, 5);
	warnings = 0;
	OK(barway_copy_to(map, 0, data, MIB));
	OK(barway_copy_to(map, 0, data, MIB));
	OK(barway_copy_from(map, back, 0, MIB));
	CHECK(!memcmp(data, back, MIB));
	CHECK_EQ(warnings, 1); /* said once */
	FAILS(barway_copy_to_by(map, BARWAY_METHOD_CE, 0, data, MIB), EFAULT, "freed");
	OK(barway_set_log(NULL, NULL, BARWAY_LOG_WARN));
	OK(barway_unmap(map));
	end();
}

static void by_option(void)
{
	struct barway_open_options o = { .size = sizeof(o), .copy_method = BARWAY_METHOD_CPU };
	struct barway_plan_info info = { .size = sizeof(info) };
	static unsigned char data[MIB], back[MIB];
	struct barway_mapping *map;
	uint64_t a;

	choice();
	for (uint32_t method = BARWAY_METHOD_CPU; method <= BARWAY_METHOD_CE; method++) {
		o.copy_method = method;
		OK(barway_open(&o, &ctx));
		OK(barway_device_get(ctx, 0, &gpu[0]));
		a = alloc(0, MIB);
		OK(barway_map(ctx, a, MIB, NULL, &map));
		for (size_t n = 1; n <= MIB; n = n * 3 + 1) {
			OK(barway_plan(map, BARWAY_FROM_GPU, 0, NULL, n, &info));
			CHECK_EQ(info.method, method);
			test_fill(data, n, n + 7);
			OK(barway_copy_to(map, 0, data, n));
			OK(barway_flush(map));
			OK(barway_copy_from(map, back, 0, n));
			CHECK(!memcmp(data, back, n));
		}
		OK(barway_unmap(map));
		if (method == BARWAY_METHOD_CE) {
			/* it is the engine that copies: its fault is seen */
			OK(barway_map(ctx, a, MIB, NULL, &map));
			end();
			param("fault", "copy@1");
			OK(barway_open(&o, &ctx));
			OK(barway_device_get(ctx, 0, &gpu[0]));
			OK(barway_map(ctx, a, MIB, NULL, &map));
			FAILS(barway_copy_to(map, 0, data, 8), EIO, "fault injected");
			OK(barway_unmap(map));
		}
		release(a);
		end();
		param("fault", "");
	}
	o.copy_method = 5;
	FAILS(barway_open(&o, &ctx), EINVAL, "copy_method");
	o = (struct barway_open_options){ .size = sizeof(o), .copy_threads = 65 };
	FAILS(barway_open(&o, &ctx), EINVAL, "copy_threads");
	CHECK_EQ(barway_param_set("copy_method", "fast"), -EINVAL);
	CHECK_HAS(barway_errmsg(), "resident");
	CHECK_EQ(barway_param_set("copy_threads", "65"), -EINVAL);
	ctx = NULL;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(tuned), TEST(choice), TEST(freed_under_it), TEST(by_option), { 0 },
	};
	char command[256];
	int code = api_main(argc, argv, cases);

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command) ? 1 : code;
}
