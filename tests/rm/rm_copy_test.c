/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy engine driven through CUDA: stream captures, contexts that come and go, drivers that
 * cannot write words, and the Nth call into libcuda failing.
 */
#include <poll.h>

#include "core/fault.h"
#include "rm_test.h"

#define BYTES (1u << 20)
#define STEP (TSAN ? 5u : 1u)

static unsigned char host[BYTES], image[BYTES], back[BYTES];
static struct barway_mapping *m;
static unsigned char *pinned;
static uint64_t mem;
static const char *stage; /* of a walk */

static struct barway_mapping *map(uint64_t addr)
{
	struct barway_mapping *new = NULL;

	OK(barway_map(ctx, addr, BYTES, NULL, &new));
	return new;
}

/* Maps @mem of the current context, and makes @pinned. */
static void ready(void)
{
	struct barway_device *dev;
	void *p;

	mem = gpu_alloc(BYTES);
	m = map(mem);
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_host_alloc(dev, BYTES, &p, NULL));
	pinned = p;
}

static void done(void)
{
	OK(barway_host_free(ctx, pinned));
	OK(barway_unmap(m));
	gpu_free(mem);
}

/* What a copy that went well left; -1: other bytes. */
static int is_there(const unsigned char *p, size_t n)
{
	int ret = barway_copy_from_by(m, BARWAY_METHOD_CPU, back, 0, n);

	return ret ? ret : memcmp(back, p, n) ? -1 : 0;
}

static int there_and_back(unsigned char *p, size_t n)
{
	int ret;

	test_fill(p, n, ++seed);
	ret = barway_copy_to_by(m, BARWAY_METHOD_CE, 0, p, n);
	if (!ret)
		ret = is_there(p, n);
	if (ret)
		return ret;
	memcpy(image, p, n);
	memset(p, 0, n);
	ret = barway_copy_from_by(m, BARWAY_METHOD_CE, p, 0, n);
	return ret ? ret : memcmp(p, image, n) ? -1 : 0;
}

static int request(unsigned char *p, uint32_t flags)
{
	struct barway_piece piece[2] = { { 0, p, 500000 }, { 500000, host + 500000, 500000 } };
	struct barway_request *r;
	int ret = barway_copy_start(m, BARWAY_TO_GPU, BARWAY_METHOD_CE, piece, 2, flags, &r);

	if (ret)
		return ret;
	if (flags) {
		struct pollfd fd = { .fd = barway_request_fd(r), .events = POLLIN };

		CHECK_EQ(poll(&fd, 1, 30000), 1);
	}
	ret = barway_request_wait(r, BARWAY_FOREVER);
	CHECK_EQ(barway_request_free(r), 0);
	if (ret)
		return ret;
	memcpy(image, p, 500000);
	memcpy(image + 500000, host + 500000, 500000);
	return is_there(image, 1000000);
}

/* Every kind of copy by the engine. */
static int walk(void)
{
	int ret;

	stage = "pinned memory";
	ret = there_and_back(pinned, 700000);
	if (ret)
		return ret;
	stage = "pageable memory";
	ret = there_and_back(host, 700000);
	if (ret)
		return ret;
	stage = "a little";
	ret = there_and_back(host, 3000);
	if (ret)
		return ret;
	stage = "a request";
	ret = request(pinned, 0);
	if (ret)
		return ret;
	stage = "a request with a descriptor";
	return request(host, BARWAY_COPY_FD);
}

static void walk_well(void)
{
	int ret = walk();

	if (ret)
		FAIL("%s: %d: %s", stage, ret, ret == -1 ? "wrong data" : barway_errmsg());
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Once there are streams, none is made any more, and none is left at the end. */
static void streams_are_kept(void)
{
	long made;

	start();
	ready();
	walk_well();
	made = fakenv_get("streams_created");
	for (unsigned i = 0; i < 5; i++)
		walk_well();
	CHECK_EQ(fakenv_get("streams_created"), made);
	done();
	finish();
}

static void beside_a_capture(void)
{
	void *capturing, *graph = NULL;
	size_t nodes = 9;

	start();
	ready();
	CU_OK(cuStreamCreate(&capturing, 0));
	CU_OK(cuStreamBeginCapture_v2(capturing, CUF_CAPTURE_GLOBAL));
	walk_well(); /* with all that is made at its first use */
	CU_OK(cuStreamEndCapture(capturing, &graph));
	CHECK(graph);
	CU_OK(cuGraphGetNodes(graph, NULL, &nodes));
	CHECK_EQ(nodes, 0);
	CU_OK(cuGraphDestroy(graph));
	CU_OK(cuStreamDestroy_v2(capturing));
	done();
	finish();
}

/* On the captured stream it becomes part of the graph, and moves nothing now. */
static void into_a_capture(void)
{
	void *capturing, *graph = NULL;
	size_t nodes = 0;

	start();
	ready();
	CU_OK(cuStreamCreate(&capturing, 1));
	memset(pinned, 1, BYTES);
	OK(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, pinned, BYTES, capturing));
	CU_OK(cuStreamSynchronize(capturing));
	CHECK_EQ(is_there(pinned, BYTES), 0);
	memset(image, 1, BYTES);
	memset(pinned, 2, BYTES);
	CU_OK(cuStreamBeginCapture_v2(capturing, CUF_CAPTURE_GLOBAL));
	OK(barway_copy_on_stream(m, BARWAY_TO_GPU, 0, pinned, BYTES, capturing));
	OK(barway_copy_on_stream(m, BARWAY_FROM_GPU, 0, pinned, BYTES, capturing));
	CU_OK(cuStreamEndCapture(capturing, &graph));
	CU_OK(cuGraphGetNodes(graph, NULL, &nodes));
	CHECK_EQ(nodes, 2);
	CHECK_EQ(is_there(image, BYTES), 0);
	CHECK_EQ(pinned[0], 2);
	CU_OK(cuGraphDestroy(graph));
	CU_OK(cuStreamDestroy_v2(capturing));
	done();
	finish();
}

/* The answer of the stream itself will do. */
static void no_words(void)
{
	start();
	ready();
	for (unsigned i = 0; i < 3; i++)
		walk_well();
	done();
	finish();
}

/* ---- contexts ------------------------------------------------------------------------------ */

/* Memory of a context that is destroyed, and of one that comes after it, over and over. */
static void contexts_come_and_go(void)
{
	struct barway_mapping *own;
	void *other, *current;
	uint64_t own_mem;

	start();
	ready();
	own = m;
	own_mem = mem;
	walk_well();
	for (unsigned i = 0; i < 6; i++) {
		CU_OK(cuCtxCreate_v2(&other, 0, 0));
		own_contexts++;
		mem = gpu_alloc(BYTES);
		m = map(mem);
		CU_OK(cuCtxPopCurrent_v2(&current));
		CHECK(current == other);
		walk_well(); /* from a thread that has another context */
		OK(barway_unmap(m));
		CU_OK(cuCtxDestroy_v2(other));
		m = own;
		walk_well();
	}
	m = own;
	mem = own_mem;
	CHECK_EQ(fakenv_get("stale_uses"), 0);
	done();
	finish();
	CHECK_EQ(fakenv_get("stale_uses"), 0);
}

/* The primary context goes with all that was kept in it: streams, words, rings. */
static void primary_comes_again(void)
{
	void *p;

	start();
	for (unsigned i = 0; i < 4; i++) {
		ready();
		walk_well();
		done();
		OK(barway_cache_flush(ctx));
		CU_OK(cuCtxSetCurrent(NULL));
		CU_OK(cuDevicePrimaryCtxRelease_v2(0));
		CU_OK(cuDevicePrimaryCtxRetain(&p, 0));
		CU_OK(cuCtxSetCurrent(p));
		CU_OK(cuStreamCreate(&stream, 1));
		primary = p;
		own_contexts++;
	}
	CHECK_EQ(fakenv_get("stale_uses"), 0);
	finish();
	CHECK_EQ(fakenv_get("stale_uses"), 0);
}

/* A thread without a context. */
static void *bare(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)walk();
}

static void without_a_context(void)
{
	pthread_t thread;
	void *ret;

	start();
	ready();
	CHECK_EQ(pthread_create(&thread, NULL, bare, NULL), 0);
	pthread_join(thread, &ret);
	CHECK_EQ((intptr_t)ret, 0);
	done();
	finish();
}

/* ---- faults -------------------------------------------------------------------------------- */

/* False: the Nth call was not reached. */
static bool nth_fails(enum bw_fault kind, unsigned n)
{
	bool pending;
	int ret;

	bw_fault_arm(kind, n);
	ret = walk();
	pending = bw_fault_pending(kind);
	bw_fault_disarm_all();
	if (ret == -1 || (ret && (pending || !*barway_errmsg())))
		FAIL("%s@%u: %s", rm_arg, n, ret == -1 ? "wrong data" : barway_errmsg());
	ret = walk();
	if (ret)
		FAIL("%s@%u: the next walk fails too: %d %s", rm_arg, n, ret, barway_errmsg());
	return !pending;
}

/* @fresh: with nothing kept from before. */
static void every_call(bool fresh)
{
	enum bw_fault kind = strcmp(rm_arg, "cuda") ? BW_FAULT_ALLOC : BW_FAULT_CUDA;
	struct live before;
	unsigned n = 1;

	start();
	barway_set_log(NULL, NULL, 0);
	ready();
	walk_well();
	OK(barway_release_all(ctx, BARWAY_RELEASE_FORCE));
	OK(barway_unmap(m));
	m = map(mem);
	walk_well();
	if (fresh) {
		OK(barway_unmap(m));
		OK(barway_release_all(ctx, 0));
		m = map(mem);
	}
	before = live_now();
	while (nth_fails(kind, n)) {
		if (fresh) { /* the mapping is made anew as well */
			OK(barway_unmap(m));
			OK(barway_release_all(ctx, 0));
			m = map(mem);
		}
		check_live(&before, rm_arg);
		n += STEP;
		CHECK(n < 5000);
	}
	CHECK(n > (kind == BW_FAULT_CUDA ? 50 : 2));
	CHECK_EQ(fakenv_get("stale_uses"), 0);
	done();
	finish();
}

static void first_use(void)
{
	every_call(true);
}

static void later(void)
{
	every_call(false);
}

static unsigned replaced; /* lines of the log: one CPU thread did it instead */

static void look_for_replaced(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	replaced += strstr(text, "copy by ce: make a stream") &&
		    strstr(text, "one CPU thread copies instead");
}

/* A planned copy is done by the CPU where the engine is not even given it. */
static void by_the_cpu_instead(void)
{
	struct barway_plan_info plan = { .size = sizeof(plan) };
	bool pending = false;
	int ret;

	start();
	ready();
	OK(barway_plan(m, BARWAY_TO_GPU, 0, pinned, BYTES, &plan));
	CHECK_EQ(plan.method, BARWAY_METHOD_CE);
	barway_set_log(look_for_replaced, NULL, BARWAY_LOG_WARN);
	for (unsigned n = 1; !pending; n += STEP) {
		OK(barway_unmap(m));
		OK(barway_release_all(ctx, 0)); /* no stream is kept */
		m = map(mem);
		test_fill(pinned, BYTES, ++seed);
		bw_fault_arm(BW_FAULT_CUDA, n);
		ret = barway_copy_to(m, 0, pinned, BYTES);
		pending = bw_fault_pending(BW_FAULT_CUDA);
		bw_fault_disarm_all();
		if (ret && (ret != -EIO || strstr(barway_errmsg(), "make a stream")))
			FAIL("cuda@%u: %d: %s", n, ret, barway_errmsg());
		if (!ret)
			CHECK_EQ(is_there(pinned, BYTES), 0);
		CHECK(n < 5000);
	}
	CHECK_EQ(ret, 0);
	CHECK_EQ(replaced, 1); /* it is said once */
	barway_set_log(NULL, NULL, 0);
	done();
	finish();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(streams_are_kept),
		CASE(beside_a_capture),
		CASE(into_a_capture),
		CASE_ENV(no_words, "FAKENV=memops=0"),
		CASE(contexts_come_and_go),
		CASE_ENV(contexts_come_and_go, "FAKENV=driver=515.65.01"), /* no identities */
		CASE(primary_comes_again),
		CASE_ENV(primary_comes_again, "FAKENV=driver=515.65.01"),
		CASE(without_a_context),
		{ "first_use", first_use, NULL, "cuda" },
		{ "first_use", first_use, NULL, "alloc" },
		{ "later", later, NULL, "cuda" },
		{ "later", later, NULL, "alloc" },
		CASE(by_the_cpu_instead),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
