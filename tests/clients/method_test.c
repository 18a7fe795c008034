/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How libgdrapi copies: by the calling CPU thread alone, whatever is set for Barway, unless
 * BARWAY_GDRAPI_METHOD says otherwise. What tells the methods apart is memory that was freed under
 * a pin: CPU threads can still reach it, the copy engine cannot.
 */
#include "client.h"

#define BYTES (4u * MIB)

static void *g;
static uint64_t memory;
static struct mh mh;
static void *map;
static unsigned char *data;

static void begin(const char *method)
{
	if (method)
		setenv("BARWAY_GDRAPI_METHOD", method, 1);
	setenv("BARWAY_PLAN_DIR", "/nonexistent", 1); /* the built-in plan, whatever the user has */
	start_gpu();
	load("libgdrapi.so.2", RTLD_NOW);
	g = gdr.open();
	CHECK(g);
	memory = mem_alloc(BYTES);
	data = malloc(BYTES);
	CHECK(data);
	OK(gdr.pin_buffer(g, memory, BYTES, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, BYTES));
}

static void all_sizes(void)
{
	static const size_t sizes[] = { 1, 8, 63, 64, 4096, 65536, 65537, MIB, BYTES };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		prove_copies(mh, map, memory, sizes[i], memory, BYTES);
	prove_copies(mh, (char *)map + 13, memory + 13, BYTES - 26, memory, BYTES);
}

static void end(void)
{
	OK(gdr.unpin_buffer(g, mh));
	OK(gdr.close(g));
	free(data);
	check_given_back();
}

/* What two copies of everything return once the memory is freed; @to, @from: the errno values. */
static void after_free(int *to, int *from)
{
	mem_free(memory);
	memset(data, 0x5a, BYTES);
	*to = gdr.copy_to_mapping(mh, map, data, BYTES);
	memset(data, 0, BYTES);
	*from = gdr.copy_from_mapping(mh, data, map, BYTES);
}

static void check_cpu(void)
{
	int to, from;

	all_sizes();
	after_free(&to, &from);
	CHECK_EQ(to, 0);
	CHECK_EQ(from, 0);
	for (size_t i = 0; i < BYTES; i++)
		CHECK_EQ(data[i], 0x5a);
	end();
}

static void cpu_unless_told(void)
{
	/* what is set for Barway's own programs is not for these */
	setenv("BARWAY_COPY_METHOD", "ce", 1);
	begin(NULL);
	check_cpu();
}

static void cpu_by_name(void)
{
	setenv("BARWAY_COPY_METHOD", "ce", 1);
	begin("cpu");
	check_cpu();
}

static void copy_engine(void)
{
	int to, from;

	begin("ce");
	all_sizes();
	after_free(&to, &from);
	CHECK_EQ(to, EINVAL);
	CHECK_EQ(from, EINVAL);
	end();
}

static void *reading(void *arg)
{
	ssize_t n, used = 0;
	static char text[65536];

	while ((n = read(*(int *)arg, text + used, sizeof(text) - 1 - (size_t)used)) > 0)
		used += n;
	text[used] = '\0';
	return text;
}

/* By the plan a copy of this size is the engine's, which says once that it cannot be done so. */
static void as_planned(void)
{
	int to, from, both[2], real;
	pthread_t reader;
	void *said;

	begin("auto");
	all_sizes();
	CHECK(!pipe(both));
	real = dup(STDERR_FILENO);
	dup2(both[1], STDERR_FILENO);
	close(both[1]);
	CHECK(!pthread_create(&reader, NULL, reading, &both[0]));
	after_free(&to, &from);
	dup2(real, STDERR_FILENO);
	pthread_join(reader, &said);
	close(real);
	close(both[0]);
	CHECK_EQ(to, 0);
	CHECK_EQ(from, 0);
	for (size_t i = 0; i < BYTES; i++)
		CHECK_EQ(data[i], 0x5a);
	CHECK_HAS((const char *)said, "copy by ce: ");
	CHECK_HAS((const char *)said, "one CPU thread copies instead");
	end();
}

static void helper_threads(void)
{
	setenv("BARWAY_COPY_THREADS", "2", 1);
	begin("threads");
	check_cpu();
}

/* gdr_open() refuses, with this in the log. */
static void refused(const char *method, const char *sentence)
{
	static char text[4096];
	char name[] = "/tmp/barway-gdr.XXXXXX";
	int file = mkstemp(name), real = dup(STDERR_FILENO);
	ssize_t n;

	CHECK(file >= 0);
	unlink(name);
	setenv("BARWAY_GDRAPI_METHOD", method, 1);
	setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
	dup2(file, STDERR_FILENO);
	g = gdr.open();
	dup2(real, STDERR_FILENO);
	n = pread(file, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	close(file);
	close(real);
	CHECK(!g);
	CHECK_HAS(text, sentence);
	CHECK_HAS(text, "gdrapi: error: gdr_open: BARWAY_GDRAPI_METHOD=");
}

static void unknown_or_impossible(void)
{
	start_gpu();
	load("libgdrapi.so.2", RTLD_NOW);
	unsetenv("BARWAY_COPY_THREADS");
	refused("threads", "there are no helper threads: set BARWAY_COPY_THREADS too");
	refused("pony", "=pony: it is none of cpu, auto, ce and threads");
	refused("resident", "=resident: it is none of");
	refused("CPU", "=CPU: it is none of");
	unsetenv("BARWAY_GDRAPI_METHOD");
	g = gdr.open();
	CHECK(g);
	OK(gdr.close(g));
	check_given_back();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(cpu_unless_told),
		TEST(cpu_by_name),
		TEST(copy_engine),
		TEST(as_planned),
		TEST(helper_threads),
		TEST(unknown_or_impossible),
		{ 0 },
	};

	return client_main(argc, argv, cases);
}
