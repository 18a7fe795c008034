/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers into GPU memory: is what arrived read back before it is VISIBLE? Where the driver says
 * that the GPU sees what comes in in order, only if that was asked for, or if another GPU is told.
 * The endpoint counts what it read back. Over the imitated network.
 */
#include "rm_test.h"

#include <barway_net.h>

#define SECOND 1000000000ull
#define BYTES (1u << 20)

static const char secret[] = "a secret of the tests, not random";
static struct barway_endpoint *from, *to;
static struct barway_peer *from_peer, *to_peer;

static struct barway_endpoint *endpoint(void)
{
	struct barway_endpoint_options o = {
		.size = sizeof(o), .network = "imitation", .secret = secret,
		.secret_bytes = sizeof(secret), .rails = 1,
	};
	struct barway_endpoint *ep;

	OK(barway_endpoint_open(ctx, &o, &ep));
	return ep;
}

static void *accepts(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)barway_peer_accept(to, 10 * SECOND, &to_peer);
}

static void connect_both(void)
{
	pthread_t thread;
	char name[64];
	void *ret;

	from = endpoint();
	to = endpoint();
	OK(barway_endpoint_name(to, name, sizeof(name)));
	CHECK(!pthread_create(&thread, NULL, accepts, NULL));
	OK(barway_peer_connect(from, name, 10 * SECOND, &from_peer));
	CHECK(!pthread_join(thread, &ret));
	CHECK_EQ((intptr_t)ret, 0);
}

static void wait_for(struct barway_transfer *t)
{
	int ret;

	while ((ret = barway_transfer_poll(t, BARWAY_VISIBLE)) == -EBUSY) {
		barway_endpoint_progress(from);
		barway_endpoint_progress(to);
	}
	OK(ret);
}

static uint64_t read_backs(struct barway_endpoint *ep)
{
	struct barway_net_counters c = { .size = sizeof(c) };

	OK(barway_net_counters_get(ep, &c));
	return c.read_backs;
}

static unsigned char data[BYTES];

static struct barway_region *region(struct barway_endpoint *ep, uint64_t addr, size_t bytes)
{
	struct barway_region *r;

	OK(barway_region_open(ep, addr, bytes, BARWAY_REGION_PUT | BARWAY_REGION_GET, &r));
	return r;
}

/* By what way it came, and whether it was read back. */
static void check_said(struct barway_transfer *t, const char *how, bool read_back)
{
	struct barway_transfer_info info = { .size = sizeof(info) };

	OK(barway_transfer_query(t, &info));
	CHECK(info.arrived_ns && info.visible_ns >= info.arrived_ns);
	CHECK_HAS(info.path, how);
	CHECK_EQ(strstr(info.path, "read back") != NULL, read_back);
}

/* A message of @bytes into GPU memory at @gpu. */
static void receive(uint64_t gpu, size_t bytes, bool read_back)
{
	struct barway_transfer_options o = { .size = sizeof(o), .operation = BARWAY_SEND };
	struct barway_region *source = region(from, (uintptr_t)data, bytes);
	struct barway_region *sink = region(to, gpu, bytes);
	struct barway_part part = { .bytes = bytes };
	uint64_t before = read_backs(to);
	struct barway_transfer *out, *in;
	unsigned char *got = malloc(bytes);

	test_fill(data, bytes, ++seed);
	OK(barway_transfer_prepare(from_peer, source, &part, 1, &o, &out));
	o.operation = BARWAY_RECV;
	OK(barway_transfer_prepare(to_peer, sink, &part, 1, &o, &in));
	OK(barway_transfer_post(in));
	OK(barway_transfer_post(out));
	wait_for(in);
	wait_for(out);
	check_said(in, "GPU memory ", read_back);
	CHECK_EQ(read_backs(to) - before, read_back);
	gpu_read(got, gpu, bytes);
	CHECK(!memcmp(got, data, bytes));
	free(got);
	OK(barway_transfer_free(in));
	OK(barway_transfer_free(out));
	OK(barway_region_close(source));
	OK(barway_region_close(sink));
}

/* From the peer's host memory, into GPU memory. */
static void get(uint64_t gpu, size_t bytes, bool read_back)
{
	struct barway_transfer_options o = { .size = sizeof(o), .operation = BARWAY_GET };
	struct barway_region *sink = region(from, gpu, bytes);
	struct barway_region *source = region(to, (uintptr_t)data, bytes);
	struct barway_part part = { .bytes = bytes };
	uint64_t before = read_backs(from);
	struct barway_key key;
	struct barway_transfer *t;

	OK(barway_region_key(source, &key));
	o.key = &key;
	OK(barway_transfer_prepare(from_peer, sink, &part, 1, &o, &t));
	OK(barway_transfer_post(t));
	wait_for(t);
	check_said(t, "GPU memory ", read_back);
	CHECK_EQ(read_backs(from) - before, read_back);
	OK(barway_transfer_free(t));
	OK(barway_region_close(source));
	OK(barway_region_close(sink));
}

static void by(bool read_back)
{
	uint64_t gpu;

	start();
	gpu = gpu_alloc(BYTES);
	connect_both();
	receive(gpu, 256, read_back);
	receive(gpu, BYTES, read_back);
	get(gpu, 256, read_back);
	get(gpu, BYTES, read_back);
	OK(barway_endpoint_close(from));
	OK(barway_endpoint_close(to));
	gpu_free(gpu);
	finish();
}

static void in_order(void)
{
	by(false);
}

static void read_back(void)
{
	by(true);
}

/* A put of a few bytes into @sink, with a signal behind it in @word: how often was it read back? */
static uint64_t put_with_signal(struct barway_region *source, struct barway_region *sink,
				struct barway_region *word)
{
	struct barway_transfer_options o = { .size = sizeof(o), .operation = BARWAY_PUT,
					     .signal_offset = 4096, .signal_value = ++seed };
	struct barway_part part = { .bytes = 64 };
	uint64_t before = read_backs(to);
	struct barway_key key, signal;
	struct barway_transfer *t;

	OK(barway_region_key(sink, &key));
	OK(barway_region_key(word, &signal));
	o.key = &key;
	o.signal = &signal;
	OK(barway_transfer_prepare(from_peer, source, &part, 1, &o, &t));
	OK(barway_transfer_post(t));
	wait_for(t);
	OK(barway_transfer_free(t));
	return read_backs(to) - before;
}

/* The GPU's promise is for its own work: one of another GPU that is told by a signal has none. */
static void signals(bool never)
{
	static const int devices[] = { 0, 1 };
	enum { HOST, GPU_0, GPU_1, BOTH, REGIONS };
	static const struct {
		int data, signal;
		bool read_back;
	} cases[] = {
		{ HOST, HOST, false }, { HOST, GPU_0, false }, { GPU_0, HOST, false },
		{ GPU_0, GPU_0, false }, { GPU_1, GPU_1, false }, { GPU_0, GPU_1, true },
		{ GPU_1, GPU_0, true }, { BOTH, HOST, false }, { BOTH, BOTH, true },
		{ BOTH, GPU_0, true }, { GPU_0, BOTH, true }, { GPU_1, BOTH, true },
	};
	struct barway_region *r[REGIONS], *source;
	static unsigned char host[8192];
	struct vmm v;
	void *other;

	start();
	CU_OK(cuDevicePrimaryCtxRetain(&other, 1));
	own_contexts++;
	vmm_alloc(&v, 2, CUF_HANDLE_POSIX_FD, devices);
	connect_both();
	source = region(from, (uintptr_t)data, 4096);
	r[HOST] = region(to, (uintptr_t)host, sizeof(host));
	r[GPU_0] = region(to, v.addr, VMM_STEP);
	r[GPU_1] = region(to, v.addr + VMM_STEP, VMM_STEP);
	r[BOTH] = region(to, v.addr, 2 * VMM_STEP);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t n = put_with_signal(source, r[cases[i].data], r[cases[i].signal]);

		if (n != (cases[i].read_back && !never))
			FAIL("data in %d, signal in %d: read back %llu times", cases[i].data,
			     cases[i].signal, (unsigned long long)n);
	}
	for (int i = 0; i < REGIONS; i++)
		OK(barway_region_close(r[i]));
	OK(barway_region_close(source));
	OK(barway_endpoint_close(from));
	OK(barway_endpoint_close(to));
	vmm_free(&v);
	finish();
}

static void two_gpus(void)
{
	signals(false);
}

static void two_gpus_never(void)
{
	signals(true);
}

static void misspelt(void)
{
	start();
	REFUSED(barway_endpoint_open(ctx, NULL, &from), EINVAL,
		"is not one of auto, always, never: give one of these, or unset it");
	finish();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(in_order),
		CASE_ENV(read_back, "FAKENV=ordered=0"),
		CASE_ENV(read_back, "BARWAY_NET_READ_BACK=always"),
		CASE_ENV(in_order, "BARWAY_NET_READ_BACK=never FAKENV=ordered=0"),
		CASE_ENV(two_gpus, "FAKENV=gpus=2"),
		CASE_ENV(two_gpus_never, "FAKENV=gpus=2 BARWAY_NET_READ_BACK=never"),
		CASE_ENV(misspelt, "BARWAY_NET_READ_BACK=sometimes"),
		{ 0 },
	};

	return rm_main(argc, argv, cases);
}
