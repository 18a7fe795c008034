/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads: on shared pages, with the cache being flushed under them, with memory that comes and
 * goes, and beside a program that calls libcuda on its own while its slot is borrowed.
 */
#include "rm_test.h"

static _Atomic int stop;
static _Atomic long done;

struct worker {
	pthread_t thread;
	void *(*body)(void *arg);
	uint64_t addr;
	size_t bytes;
	int rounds, number;
	char failed[512];
};

#define BAD(...) do { \
	snprintf(w->failed, sizeof(w->failed), __VA_ARGS__); \
	return NULL; \
} while (0)

static void run(struct worker *w, int n)
{
	for (int i = 0; i < n; i++) {
		w[i].number = i;
		CHECK_EQ(pthread_create(&w[i].thread, NULL, w[i].body, &w[i]), 0);
	}
}

static void join(struct worker *w, int n)
{
	for (int i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
	for (int i = 0; i < n; i++)
		if (w[i].failed[0])
			FAIL("thread %d: %s", i, w[i].failed);
}

static void *map_copy_unmap(void *arg)
{
	struct worker *w = arg;
	unsigned char b[3000], c[3000];
	uint64_t state = w->addr | 1;

	for (int i = 0; i < w->rounds; i++) {
		size_t n = 1 + test_random(&state) % sizeof(b), off;
		struct barway_map_options o = {
			.size = sizeof(o), .flags = i % 8 ? 0 : BARWAY_MAP_UNCACHED,
		};
		struct barway_mapping *m;

		n = n < w->bytes ? n : w->bytes;
		off = test_random(&state) % (w->bytes - n + 1);
		test_fill(b, n, test_random(&state));
		if (barway_map(ctx, w->addr + off, n, &o, &m) || barway_copy_to(m, 0, b, n) ||
		    barway_copy_from(m, c, 0, n))
			BAD("%s", barway_errmsg());
		if (memcmp(b, c, n))
			BAD("data differ in round %d", i);
		if (i % 16 == 5) {
			if (barway_copy_from_by(m, BARWAY_METHOD_CE, c, 0, n))
				BAD("%s", barway_errmsg());
			if (memcmp(b, c, n))
				BAD("the copy engine saw other data in round %d", i);
		}
		if (barway_unmap(m))
			BAD("%s", barway_errmsg());
	}
	done++;
	return NULL;
}

static void *flush_the_cache(void *arg)
{
	struct worker *w = arg;
	struct barway_counters c = { .size = sizeof(c) };

	while (!stop) {
		if (barway_cache_flush(ctx) || barway_counters_get(ctx, &c))
			BAD("%s", barway_errmsg());
		usleep(200);
	}
	return NULL;
}

/* Its own memory, which comes and goes at addresses that others had a moment ago. */
static void *come_and_go(void *arg)
{
	static const size_t sizes[] = { 600, 70000, 2u << 20 };
	struct worker *w = arg;
	unsigned char b[600], c[600];
	void *mine;

	if (cu.cuStreamCreate(&mine, 1) && cu.cuCtxSetCurrent(primary))
		BAD("no stream");
	for (int i = 0; i < w->rounds; i++) {
		struct barway_mapping *m;
		unsigned long long a;

		if (cu.cuMemAlloc_v2(&a, sizes[i % 3]))
			BAD("cuMemAlloc");
		test_fill(b, sizeof(b), (uint64_t)(i * 100 + w->number + 1));
		if (barway_map(ctx, a, sizeof(b), NULL, &m) || barway_copy_to(m, 0, b, sizeof(b)) ||
		    barway_unmap(m))
			BAD("%s", barway_errmsg());
		if (cu.cuMemcpyDtoHAsync_v2(c, a, sizeof(c), mine) || cu.cuStreamSynchronize(mine))
			BAD("cuMemcpyDtoHAsync");
		if (memcmp(b, c, sizeof(b)))
			BAD("data differ in round %d", i);
		if (cu.cuMemFree_v2(a))
			BAD("cuMemFree");
	}
	cu.cuStreamDestroy_v2(mine);
	return NULL;
}

static void *come_and_go_in_context(void *arg)
{
	struct worker *w = arg;

	if (cu.cuCtxSetCurrent(primary))
		BAD("cuCtxSetCurrent");
	return come_and_go(arg);
}

static void shared_pages(void)
{
	enum { N = 8 };
	struct worker w[N], flusher = { .body = flush_the_cache };
	struct barway_counters c;

	start();
	memset(w, 0, sizeof(w));
	witness(512);
	for (int i = 0; i < N; i++) {
		w[i].body = map_copy_unmap;
		w[i].rounds = rm_arg ? 60 : 400;
		w[i].bytes = i % 2 ? 600 : 40000; /* not of whole pages: they share some */
		w[i].addr = gpu_alloc(w[i].bytes);
		witness(512);
	}
	run(w, N); /* eight at once meet the self-test */
	run(&flusher, 1);
	join(w, N);
	stop = 1;
	join(&flusher, 1);
	c = counters();
	CHECK_EQ(c.self_tests, 1);
	CHECK_EQ(c.maps, c.unmaps);
	CHECK_EQ(c.map_errors, 0);
	CHECK_EQ(c.live_mappings, 0);
	CHECK_EQ(c.live_bytes, 0);
	check_witnesses("by the threads");
	free_witnesses();
	for (int i = 0; i < N; i++)
		gpu_free(w[i].addr);
	finish();
}

static void memory_that_comes_and_goes(void)
{
	enum { N = 6 };
	struct worker w[N], flusher = { .body = flush_the_cache };

	start();
	memset(w, 0, sizeof(w));
	for (int i = 0; i < N; i++) {
		w[i].body = come_and_go_in_context;
		w[i].rounds = 80;
	}
	run(w, N);
	run(&flusher, 1);
	join(w, N);
	stop = 1;
	join(&flusher, 1);
	finish();
}

/* ---- beside a program that uses libcuda ------------------------------------------------------ */

static uint64_t theirs; /* exported by the program itself */
static _Atomic long exported;

static void *use_libcuda(void *arg)
{
	struct worker *w = arg;
	size_t available, total;

	if (cu.cuCtxSetCurrent(primary))
		BAD("cuCtxSetCurrent");
	for (unsigned i = 0; done < 4; i++) {
		int fd = -1, error;

		if (w->number % 2) {
			if (cu.cuMemGetInfo_v2(&available, &total) || total != 1024ul << 20 ||
			    available > total)
				BAD("cuMemGetInfo");
			continue;
		}
		error = cu.cuMemGetHandleForAddressRange(&fd, theirs + 4096u * (i % 16), 8192,
							 1, 0);
		if (error || fd < 0)
			BAD("cuMemGetHandleForAddressRange: %d in round %u", error, i);
		/* a real dma-buf: not the answer that Barway gives to its own question */
		if (lseek(fd, 0, SEEK_CUR) < 0 || close(fd))
			BAD("not a file");
		exported++;
		/* an allocation goes through the slot, too */
		if (i % 8 == 0) {
			unsigned long long a;

			if (cu.cuMemAlloc_v2(&a, 2u << 20) || cu.cuMemFree_v2(a))
				BAD("cuMemAlloc");
		}
	}
	return NULL;
}

static void beside_the_program(void)
{
	enum { MAPPERS = 4, OTHERS = 8 };
	struct worker w[MAPPERS], o[OTHERS];

	start();
	memset(w, 0, sizeof(w));
	memset(o, 0, sizeof(o));
	theirs = gpu_alloc(2u << 20);
	for (int i = 0; i < MAPPERS; i++) {
		w[i].body = map_copy_unmap;
		w[i].rounds = 200;
		w[i].bytes = 40000;
		w[i].addr = gpu_alloc(w[i].bytes);
	}
	for (int i = 0; i < OTHERS; i++)
		o[i].body = use_libcuda;
	run(o, OTHERS);
	run(w, MAPPERS);
	join(w, MAPPERS);
	done = MAPPERS;
	join(o, OTHERS);
	CHECK(exported > 0);
	/* what Barway asked did not reach the kernel, what the program asked did */
	CHECK(fakenv_get("exports") >= exported);
	if (!rm_arg)
		CHECK(fakenv_get("exports") <= exported + 20);
	CHECK_EQ(fakenv_get("shares_all"), 0);
	CHECK_EQ(counters().self_tests, 1);
	for (int i = 0; i < MAPPERS; i++)
		gpu_free(w[i].addr);
	gpu_free(theirs);
	finish();
	CHECK_EQ(fakenv_get("dmabufs"), 0);
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(shared_pages),
		{ "shared_pages dynamic", shared_pages, "FAKENV=bar1=dynamic,driver=550.163.01",
		  "short" },
		{ "shared_pages ipc", shared_pages, "BARWAY_RM_ROUTES=ipc", "short" },
		{ "shared_pages no cache", shared_pages, "BARWAY_CACHE_BYTES=0", "short" },
		CASE(memory_that_comes_and_goes),
		CASE_ENV(memory_that_comes_and_goes, "BARWAY_CACHE_SWEEP_MS=1"),
		CASE(beside_the_program),
		{ "beside_the_program 535", beside_the_program, "FAKENV=driver=535.288.01", "any" },
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
