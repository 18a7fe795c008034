/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers into GPU memory: is what arrived read back before it is VISIBLE? Where the driver says
 * that the GPU sees what comes in in order, only if that was asked for. Over the imitated network.
 */
#include "rm_test.h"

#include <barway_net.h>

#define SECOND 1000000000ull
#define BYTES 4096u

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

/* A message into GPU memory; what the receiver says of it. */
static void receive(struct barway_transfer_info *info)
{
	struct barway_transfer_options o = { .size = sizeof(o), .operation = BARWAY_SEND };
	struct barway_part part = { .bytes = 256 };
	struct barway_transfer *out, *in;
	struct barway_region *source, *sink;
	unsigned char sent[BYTES], got[256];
	uint64_t gpu = gpu_alloc(BYTES);

	connect_both();
	test_fill(sent, sizeof(sent), 1);
	OK(barway_region_open(from, (uintptr_t)sent, sizeof(sent), 0, &source));
	OK(barway_region_open(to, gpu, BYTES, 0, &sink));
	OK(barway_transfer_prepare(from_peer, source, &part, 1, &o, &out));
	o.operation = BARWAY_RECV;
	OK(barway_transfer_prepare(to_peer, sink, &part, 1, &o, &in));
	OK(barway_transfer_post(in));
	OK(barway_transfer_post(out));
	wait_for(in);
	wait_for(out);
	OK(barway_transfer_query(in, info));
	gpu_read(got, gpu, sizeof(got));
	CHECK(!memcmp(got, sent, sizeof(got)));
	OK(barway_transfer_free(in));
	OK(barway_transfer_free(out));
	OK(barway_region_close(source));
	OK(barway_region_close(sink));
	OK(barway_endpoint_close(from));
	OK(barway_endpoint_close(to));
	gpu_free(gpu);
}

static void by(bool read_back)
{
	struct barway_transfer_info info = { .size = sizeof(info) };

	start();
	receive(&info);
	CHECK_EQ(info.eager, 1);
	CHECK(info.arrived_ns && info.visible_ns >= info.arrived_ns);
	CHECK_HAS(info.path, "through its mapping (");
	CHECK_EQ(strstr(info.path, "read back") != NULL, read_back);
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

static void misspelt(void)
{
	start();
	REFUSED(barway_endpoint_open(ctx, NULL, &from), EINVAL, "auto, always, never");
	finish();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(in_order),
		CASE_ENV(read_back, "FAKENV=ordered=0"),
		CASE_ENV(read_back, "BARWAY_NET_READ_BACK=always"),
		CASE_ENV(in_order, "BARWAY_NET_READ_BACK=never FAKENV=ordered=0"),
		CASE_ENV(misspelt, "BARWAY_NET_READ_BACK=sometimes"),
		{ 0 },
	};

	return rm_main(argc, argv, cases);
}
