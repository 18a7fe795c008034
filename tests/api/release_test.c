/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that map, unmap and ask while others let go of everything, over and over: each call does
 * what it is for or says that it cannot be done now. On the soft GPU, or on the driver behind
 * BARWAY_LIBCUDA where that is set.
 */
#include <stdatomic.h>

#include "api_test.h"

#define THREADS 4
#define SECONDS 2.0
#define BYTES (2 * GRANULE)

static uint64_t base;
static double until;
static pthread_barrier_t gate;
static atomic_uint mapped, asked, released, busy, over;

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t random;
	char wrong[1024];
};

/* Says what went wrong; false. */
__attribute__((format(printf, 2, 3)))
static bool bad(struct worker *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->wrong, sizeof(w->wrong), fmt, ap);
	va_end(ap);
	return false;
}

#define WORKS(call) do { \
	int ret_ = (call); \
	if (ret_) return bad(w, "%s: %d: %s", #call, ret_, barway_errmsg()); \
} while (0)

static bool map_and_unmap(struct worker *w)
{
	struct barway_map_options o = { .size = sizeof(o) };
	uint64_t r = test_random(&w->random);
	size_t offset = r % (BYTES - 1), bytes = 1 + (r >> 32) % (BYTES - offset);
	struct barway_mapping *m;
	int ret;

	o.flags = r >> 60 ? 0 : BARWAY_MAP_UNCACHED;
	ret = barway_map(ctx, base + offset, bytes, &o, &m);
	if (ret == -EBUSY) {
		busy++;
		return true;
	}
	if (ret)
		return bad(w, "map %zu at +%zu: %d: %s", bytes, offset, ret, barway_errmsg());
	mapped++;
	WORKS(barway_unmap(m));
	return true;
}

static bool ask(struct worker *w)
{
	struct barway_device_info d = { .size = sizeof(d) };
	struct barway_provider_info p = { .size = sizeof(p) };
	struct barway_pointer_info a = { .size = sizeof(a) };

	WORKS(barway_device_query(gpu[0], &d));
	WORKS(barway_provider_query(ctx, gpu[0], w->number % 2, &p));
	WORKS(barway_pointer_query(ctx, base + w->number, &a));
	if (a.device != gpu[0] || !a.mappable || d.index || !p.name[0])
		return bad(w, "an answer is wrong");
	asked++;
	return true;
}

/* Half of the threads mostly map, half mostly ask. */
static void *worker(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(&gate);
	for (unsigned i = 0; seconds() < until; i++)
		if (!((i % 8 == 0) == w->number % 2 ? map_and_unmap(w) : ask(w)))
			break;
	over++;
	return NULL;
}

static bool let_go(struct worker *w)
{
	struct barway_counters c = { .size = sizeof(c) };
	int ret = barway_release_all(ctx, 0);

	if (ret && ret != -EBUSY)
		return bad(w, "release: %d: %s", ret, barway_errmsg());
	if (ret && !strstr(barway_errmsg(), "barway_release_all: "))
		return bad(w, "release: %s", barway_errmsg());
	*(ret ? &busy : &released) += 1;
	WORKS(barway_cache_flush(ctx));
	WORKS(barway_counters_get(ctx, &c));
	return true;
}

static void *releaser(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(&gate);
	while (over < THREADS && let_go(w))
		if (w->number % 2)
			sched_yield();
	return NULL;
}

/* @releasers of the threads let go of everything meanwhile. */
static void together(unsigned releasers)
{
	struct worker w[THREADS + 2];
	unsigned n = THREADS + releasers;
	const char *first = NULL;

	memset(w, 0, sizeof(w));
	mapped = asked = released = busy = over = 0;
	CHECK_EQ(pthread_barrier_init(&gate, NULL, n), 0);
	until = seconds() + SECONDS;
	for (unsigned i = 0; i < n; i++) {
		w[i].number = i;
		w[i].random = i + 1;
		CHECK_EQ(pthread_create(&w[i].thread, NULL, i < THREADS ? worker : releaser,
					&w[i]), 0);
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
	pthread_barrier_destroy(&gate);
	for (unsigned i = 0; i < n; i++)
		if (w[i].wrong[0] && !first)
			first = w[i].wrong;
	if (first)
		FAIL("%s", first);
	CHECK(mapped && asked && released + busy);
	CHECK_EQ(counters().live_mappings, 0);
	CHECK_EQ(counters().live_bytes, 0);
}

static void start(void)
{
	if (ctx)
		barway_close(ctx);
	OK(barway_open(NULL, &ctx));
	OK(barway_device_get(ctx, 0, &gpu[0]));
	OK(barway_device_activate(gpu[0]));
	base = alloc(0, BYTES);
}

/* Nothing is held at the end, and all of it can be had again. */
static void finish(unsigned files)
{
	struct barway_mapping *m;
	unsigned char byte = 77;

	OK(barway_release_all(ctx, 0));
	CHECK_EQ(counters().cache_bytes, 0);
	CHECK_EQ(open_files(), files);
	m = map(base + BYTES - 1, 1);
	OK(barway_copy_to(m, 0, &byte, 1));
	byte = 0;
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, &byte, 0, 1));
	CHECK_EQ(byte, 77);
	OK(barway_unmap(m));
	release(base);
	end();
}

static void release_beside_threads(void)
{
	unsigned files;

	start();
	OK(barway_unmap(map(base, 1)));
	OK(barway_release_all(ctx, 0));
	files = open_files();
	together(1);
	finish(files);
}

static void two_release(void)
{
	unsigned files;

	start();
	OK(barway_unmap(map(base, 1)));
	OK(barway_release_all(ctx, 0));
	files = open_files();
	together(2);
	finish(files);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(release_beside_threads),
		TEST(two_release),
		{ 0 },
	};

	if (!getenv("BARWAY_LIBCUDA"))
		return api_main(argc, argv, cases);
	if (setjmp(test_jump))
		return 1;
	param("devices", "cuda");
	return test_main(argc, argv, cases);
}
