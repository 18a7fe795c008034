/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies that go on after the call: requests, copies on a stream of the caller's, and copies in a
 * graph that was captured from one.
 *
 *     COPIES_DIVIDE=100 copies_async_test      fewer of everything
 */
#include <poll.h>

#include "hw/copies.h"

#define FLIGHT 8          /* requests under way together */
#define SHARE (2 * MIB)   /* of the memory, for each of them */
#define WAIT_NS 20000000000ull /* then something hangs */

static uint64_t seed = 5;

/* ---- requests ---------------------------------------------------------------------------- */

struct flight {
	struct barway_request *request;
	struct barway_piece pieces[4];
	uint32_t direction;
	unsigned kind;
	bool fd;
};

static size_t share_of(unsigned i)
{
	return i * SHARE + GUARD;
}

/* What will be copied, and what it is copied over: GPU memory holds what reading shall give. */
static void prepare(struct flight *f, unsigned i)
{
	size_t at = share_of(i);

	f->direction = test_random(&seed) >> 63 ? BARWAY_TO_GPU : BARWAY_FROM_GPU;
	f->kind = (unsigned)(test_random(&seed) >> 40) % KINDS;
	for (unsigned p = 0; p < 4; p++) {
		size_t bytes = random_bytes(&seed, SHARE / 8);

		f->pieces[p] = (struct barway_piece){ .offset = at, .host = hw.host[f->kind] + at,
						      .bytes = bytes };
		at += bytes + 3;
	}
	at = share_of(i);
	fill_words(hw.want + at, SHARE / 2 + 64, test_random(&seed));
	fill_words(hw.back + at, SHARE / 2 + 64, test_random(&seed));
	if (f->direction == BARWAY_TO_GPU) {
		memcpy(hw.host[f->kind] + at, hw.want + at, SHARE / 2 + 64);
		OK(barway_copy_to_by(hw.map, BARWAY_METHOD_CPU, at, hw.back + at, SHARE / 2 + 64));
	} else {
		memcpy(hw.host[f->kind] + at, hw.back + at, SHARE / 2 + 64);
		OK(barway_copy_to_by(hw.map, BARWAY_METHOD_CPU, at, hw.want + at, SHARE / 2 + 64));
	}
	OK(barway_flush(hw.map));
}

static void launch(struct flight *f)
{
	uint32_t method = (uint32_t)(test_random(&seed) >> 40) % METHODS;

	f->fd = test_random(&seed) >> 62 == 0;
	if (!takes(method, f->kind))
		method = BARWAY_METHOD_CE;
	OK(barway_copy_start(hw.map, f->direction, method, f->pieces, 4,
			     f->fd ? BARWAY_COPY_FD : 0, &f->request));
}

/* By one of the ways that there are to wait. */
static void land(struct flight *f)
{
	int ret = -EBUSY;

	if (f->fd) {
		struct pollfd p = { .fd = barway_request_fd(f->request), .events = POLLIN };

		OK(p.fd);
		CHECK_EQ(poll(&p, 1, (int)(WAIT_NS / 1000000)), 1);
		OK(barway_request_poll(f->request));
	} else if (test_random(&seed) >> 63) {
		OK(barway_request_wait(f->request, WAIT_NS));
	} else {
		for (uint64_t i = 0; ret == -EBUSY && i < 4000000000ull; i++)
			ret = barway_request_poll(f->request);
		OK(ret);
	}
	OK(barway_request_free(f->request));
}

/* The pieces are as wanted, and the three bytes between them as they were. */
static void check(const struct flight *f, unsigned i)
{
	size_t at = share_of(i), n = SHARE / 2 + 64;
	unsigned char *got = hw.host[f->kind] + at, *want = hw.back + at;

	for (unsigned p = 0; p < 4; p++)
		memcpy(hw.back + f->pieces[p].offset, hw.want + f->pieces[p].offset,
		       f->pieces[p].bytes);
	if (f->direction == BARWAY_TO_GPU) {
		OK(barway_flush(hw.map));
		OK(barway_copy_from_by(hw.map, BARWAY_METHOD_CPU, hw.want + at, at, n));
		got = hw.want + at;
	}
	same(got, want, n, f->direction == BARWAY_TO_GPU ? "to GPU" : "from GPU");
}

static void requests(void)
{
	static struct flight flights[FLIGHT];

	start();
	for (unsigned n = 0; n < many(100, 10); n++) {
		for (unsigned i = 0; i < FLIGHT; i++)
			prepare(&flights[i], i);
		for (unsigned i = 0; i < FLIGHT; i++)
			launch(&flights[i]);
		for (unsigned i = FLIGHT; i-- > 0;) /* those that began last are waited for first */
			land(&flights[i]);
		for (unsigned i = 0; i < FLIGHT; i++)
			check(&flights[i], i);
	}
}

/* ---- on a stream ------------------------------------------------------------------------- */

static void *open_stream(void)
{
	struct barway_soft_stream *soft = NULL;
	void *stream = NULL;

	if (hw.soft) {
		OK(barway_soft_stream_create(hw.dev, &soft));
		return soft;
	}
	CU_OK(cuStreamCreate(&stream, 1)); /* CU_STREAM_NON_BLOCKING */
	return stream;
}

static void sync_stream(void *stream)
{
	if (hw.soft)
		OK(barway_soft_stream_sync(stream));
	else
		CU_OK(cuStreamSynchronize(stream));
}

static void close_stream(void *stream)
{
	if (hw.soft)
		OK(barway_soft_stream_destroy(stream));
	else
		CU_OK(cuStreamDestroy_v2(stream));
}

/* There and back again, in order, without a wait between: each leg of it a copy of any size. */
static void round_trip(void *stream, unsigned kind, size_t bytes)
{
	size_t offset = random_place(&seed, bytes, ROOM);
	size_t skew = random_place(&seed, bytes, ROOM / 2);
	unsigned char *host = hw.host[kind], *back = hw.host[kind] + ROOM / 2;

	fill_words(host + skew, bytes, test_random(&seed));
	memset(back, 0, bytes + 2 * GUARD);
	memset(hw.want, 0, bytes + 2 * GUARD);
	memcpy(hw.want + GUARD, host + skew, bytes);
	OK(barway_copy_on_stream(hw.map, BARWAY_TO_GPU, offset, host + skew, bytes, stream));
	OK(barway_copy_on_stream(hw.map, BARWAY_FROM_GPU, offset, back + GUARD, bytes, stream));
	sync_stream(stream);
	same(back, hw.want, bytes + 2 * GUARD, kind_names[kind]);
	OK(barway_copy_from_by(hw.map, BARWAY_METHOD_CPU, hw.back, offset, bytes));
	same(hw.back, hw.want + GUARD, bytes, "in GPU memory");
}

static void on_stream(void)
{
	void *stream;

	start();
	stream = open_stream();
	for (unsigned kind = 0; kind < KINDS; kind++)
		for (unsigned i = 0; i < many(100, 12); i++)
			round_trip(stream, kind, random_bytes(&seed, i % 8 ? MIB : ROOM / 4));
	close_stream(stream);
}

/* ---- in a graph -------------------------------------------------------------------------- */

static struct {
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*launch)(void *exec, void *stream);
	int (*destroy)(void *exec);
} graphs;

static void find_graphs(void)
{
	static const char *const names[] = { "cuGraphInstantiateWithFlags", "cuGraphLaunch",
					     "cuGraphExecDestroy" };
	const char *path = getenv("BARWAY_LIBCUDA");
	void *lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);

	for (unsigned i = 0; i < 3; i++) {
		void *f = lib ? dlsym(lib, names[i]) : NULL;

		if (!f)
			SKIP("libcuda has no %s", names[i]);
		memcpy((char *)&graphs + i * sizeof(void *), &f, sizeof(f));
	}
}

/*
 * Two copies become nodes of the graph; copies by each method meanwhile neither break the capture
 * nor become part of it.
 */
static void *capture(void *stream, int mode, size_t bytes)
{
	unsigned char *host = hw.host[PINNED], *back = hw.host[REGISTERED];
	void *graph = NULL, *exec = NULL;

	CU_OK(cuStreamBeginCapture_v2(stream, mode));
	OK(barway_copy_on_stream(hw.map, BARWAY_TO_GPU, 3 * GUARD, host, bytes, stream));
	for (uint32_t method = 0; method < METHODS; method++) {
		if (!takes(method, PINNED))
			continue;
		OK(barway_copy_to_by(hw.map, method, MOST / 2, host + MOST / 2, 100000));
		OK(barway_copy_from_by(hw.map, method, back + MOST / 2, MOST / 2, 100000));
		same(back + MOST / 2, host + MOST / 2, 100000, "beside the capture");
	}
	OK(barway_copy_on_stream(hw.map, BARWAY_FROM_GPU, 3 * GUARD, back, bytes, stream));
	CU_OK(cuStreamEndCapture(stream, &graph));
	CHECK(graph);
	CHECK_EQ(graphs.instantiate(&exec, graph, 0), 0);
	CU_OK(cuGraphDestroy(graph));
	return exec;
}

static void in_a_graph(int mode, size_t bytes)
{
	unsigned char *host = hw.host[PINNED], *back = hw.host[REGISTERED];
	void *stream = open_stream(), *exec;

	fill_words(host + MOST / 2, 100000, test_random(&seed));
	memset(back, 0, bytes);
	memset(hw.want, 0, bytes);
	exec = capture(stream, mode, bytes);
	same(back, hw.want, bytes, "nothing has been launched");
	for (int i = 0; i < 3; i++) {
		fill_words(host, bytes, test_random(&seed));
		CHECK_EQ(graphs.launch(exec, stream), 0);
		CU_OK(cuStreamSynchronize(stream));
		same(back, host, bytes, "a launch of the graph");
		OK(barway_copy_from_by(hw.map, BARWAY_METHOD_CPU, hw.back, 3 * GUARD, bytes));
		same(hw.back, host, bytes, "in GPU memory, after a launch of the graph");
	}
	CHECK_EQ(graphs.destroy(exec), 0);
	close_stream(stream);
}

static void captured(void)
{
	start();
	if (hw.soft)
		SKIP("the soft GPU has no graphs");
	find_graphs();
	for (int mode = 0; mode <= 2; mode++) { /* global, thread-local, relaxed */
		in_a_graph(mode, 1);
		in_a_graph(mode, 100001);
		in_a_graph(mode, 4 * MIB);
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(requests), TEST(on_stream), TEST(captured), TEST(stop), { 0 },
	};

	return test_main(argc, argv, cases);
}
