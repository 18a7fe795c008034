/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels over the rm provider: where their memory lies, what the CPU writes there and reads, and
 * that all of it is given back, from any thread. The kernel's side is played by the test, with
 * CUDA's copies.
 */
#include <stdatomic.h>

#include "channel/line.h"
#include "rm_test.h"

#define LINES 64u

static struct barway_channel *ch;
static struct barway_channel_gpu handle;

static void open_channel(void)
{
	struct barway_channel_options o = {
		.size = sizeof(o), .to_gpu_bytes = LINES * 64, .to_cpu_bytes = LINES * 64,
	};
	struct barway_device *dev;

	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_channel_open(dev, &o, &ch));
	OK(barway_channel_gpu(ch, &handle));
}

static uint64_t gpu_word(unsigned offset)
{
	uint64_t v;

	gpu_read(&v, handle.gpu + offset, sizeof(v));
	return v;
}

static unsigned char *host(void)
{
	return (unsigned char *)(uintptr_t)handle.host; /* the same address here */
}

static void say(unsigned offset, uint64_t v)
{
	__atomic_store_n((uint64_t *)(void *)(host() + offset), v, __ATOMIC_RELEASE);
}

/* Takes the message at *@position as a kernel does, and says so. */
static void kernel_takes(uint64_t *position, const unsigned char *want, size_t bytes, unsigned tag)
{
	static unsigned char ring[LINES * 64], twin[LINES * 64];
	unsigned char got[BARWAY_MESSAGE_MAX];
	unsigned n = BARWAY_MESSAGE_LINES_OF((unsigned)bytes);
	uint64_t w[8];

	CHECK_EQ(LINES, BARWAY_RING_TWIN_LINES);
	CHECK_EQ((handle.gpu + BARWAY_GPU_RING) % (2 * BARWAY_RING_TWIN), 0);
	gpu_read(ring, handle.gpu + BARWAY_GPU_RING, sizeof(ring));
	gpu_read(twin, handle.gpu + BARWAY_GPU_RING + BARWAY_RING_TWIN, sizeof(twin));
	CHECK(!memcmp(ring, twin, sizeof(ring)));
	for (unsigned i = 0; i < n; i++) {
		size_t done = i * 56, part = bytes - done < 56 ? bytes - done : 56;

		CHECK(bw_line_get(w, ring, *position + i, LINES));
		CHECK_EQ(w[0] >> 44 & 0xfff, i ? 0xfff : bytes);
		CHECK_EQ(w[0] >> 32 & 0xfff, i ? 0 : tag);
		bw_line_take(got + done, part, w);
	}
	CHECK(!bw_line_get(w, ring, *position + n, LINES)); /* nothing follows */
	CHECK(!memcmp(got, want, bytes));
	*position += n;
	say(BARWAY_HOST_RX_CREDIT, *position);
}

static void kernel_sends(uint64_t *position, const unsigned char *data, size_t bytes, unsigned tag)
{
	uint64_t w[BARWAY_MESSAGE_LINES][8];
	unsigned n = bw_message_put(w, *position, LINES, data, bytes, tag);

	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < 8; k++)
			say(BARWAY_HOST_RING + (unsigned)((*position + i) % LINES * 64 + k * 8),
			    w[i][k]);
	*position += n;
}

static void talk(void)
{
	uint64_t to_gpu = 0, to_cpu = 0, state = 3;
	unsigned char data[BARWAY_MESSAGE_MAX], got[BARWAY_MESSAGE_MAX];
	size_t n, bytes;
	unsigned tag;

	for (unsigned i = 0; i < 200; i++) {
		n = test_random(&state) % (BARWAY_MESSAGE_MAX + 1);
		test_fill(data, n, ++seed);
		OK(barway_channel_send(ch, data, n, i, 0));
		kernel_takes(&to_gpu, data, n, i);
		kernel_sends(&to_cpu, data, n, 4095 - i);
		OK(barway_channel_recv(ch, got, sizeof(got), &bytes, &tag, 0));
		CHECK_EQ(bytes, n);
		CHECK_EQ(tag, 4095 - i);
		CHECK(!memcmp(got, data, n));
		CHECK(to_cpu - gpu_word(BARWAY_GPU_TX_CREDIT) < LINES / 4);
	}
}

static void both_ways(void)
{
	struct barway_channel_info info = { .size = sizeof(info) };

	start();
	open_channel();
	OK(barway_channel_query(ch, &info));
	CHECK_HAS(info.path, "mapped by rm");
	for (unsigned at = 0; at < 4096; at += 8)
		CHECK_EQ(gpu_word(at), 0);
	talk();
	CHECK_EQ(gpu_word(BARWAY_GPU_CLOSED), 0);
	OK(barway_channel_shutdown(ch));
	CHECK(gpu_word(BARWAY_GPU_CLOSED) != 0);
	OK(barway_channel_close(ch));
	finish();
}

/* A message may be on its way when the kernel says that it closes the channel. */
static void closed_by_the_kernel(void)
{
	uint64_t position = 0;
	char got[8];

	start();
	open_channel();
	kernel_sends(&position, (const unsigned char *)"last one", 8, 0);
	say(BARWAY_HOST_CLOSED, 1);
	REFUSED(barway_channel_send(ch, "x", 1, 0, 0), EPIPE, "a kernel has closed");
	OK(barway_channel_recv(ch, got, 8, NULL, NULL, 0));
	REFUSED(barway_channel_recv(ch, got, 8, NULL, NULL, 0), EPIPE, "a kernel has closed");
	OK(barway_channel_close(ch));
	finish();
}

static void left_to_the_context(void)
{
	start();
	open_channel();
	OK(barway_channel_send(ch, "x", 1, 0, 0));
	finish();
}

static void many_times(void)
{
	struct live before;

	start();
	open_channel();
	OK(barway_channel_close(ch));
	before = live_now();
	for (int i = 0; i < 30; i++) {
		open_channel();
		OK(barway_channel_send(ch, "x", 1, 0, 0));
		OK(barway_channel_close(ch));
		check_live(&before, "after closing");
	}
	finish();
}

static void *elsewhere(void *arg)
{
	char got[8];
	int ret;

	(void)arg;
	/* long enough for the device to be asked */
	ret = barway_channel_recv(ch, got, 8, NULL, NULL, 20000000);
	if (ret != -ETIMEDOUT)
		return (void *)(intptr_t)ret;
	ret = barway_channel_send(ch, "x", 1, 0, 0);
	return (void *)(intptr_t)(ret ? ret : barway_channel_close(ch));
}

/* A thread without a context of CUDA's waits, sends and closes. */
static void thread_without_a_context(void)
{
	pthread_t thread;
	void *ret;

	start();
	open_channel();
	CHECK_EQ(pthread_create(&thread, NULL, elsewhere, NULL), 0);
	CHECK_EQ(pthread_join(thread, &ret), 0);
	CHECK_EQ((intptr_t)ret, 0);
	finish();
}

static void while_capturing(void)
{
	void *capturing, *graph = NULL;
	char got[8];

	start();
	open_channel();
	CU_OK(cuStreamCreate(&capturing, 1));
	CU_OK(cuStreamBeginCapture_v2(capturing, CUF_CAPTURE_GLOBAL));
	OK(barway_channel_send(ch, "x", 1, 0, 0));
	REFUSED(barway_channel_recv(ch, got, 8, NULL, NULL, 20000000), ETIMEDOUT, "no message");
	OK(barway_channel_close(ch));
	open_channel();
	OK(barway_channel_close(ch));
	CU_OK(cuStreamEndCapture(capturing, &graph));
	CHECK(graph);
	CU_OK(cuGraphDestroy(graph));
	CU_OK(cuStreamDestroy_v2(capturing));
	finish();
}

static void no_context(void)
{
	struct barway_device *dev;

	load_cuda();
	CU_OK(cuInit(0));
	at_start = live_now();
	open_context();
	OK(barway_device_get(ctx, 0, &dev));
	REFUSED(barway_channel_open(dev, NULL, &ch), ENODEV, "barway_device_activate");
	CHECK_EQ(fakenv_get("contexts_created"), 0);
	OK(barway_device_activate(dev));
	own_contexts = 1;
	OK(barway_channel_open(dev, NULL, &ch));
	OK(barway_channel_close(ch));
	finish();
}

/* What is at the addresses of a channel's memory that went with its context is somebody else's. */
static void context_destroyed_under_a_channel(void)
{
	uint64_t mine = 0;
	void *again;

	start();
	open_channel();
	CU_OK(cuCtxSetCurrent(NULL));
	CU_OK(cuDevicePrimaryCtxRelease_v2(0));
	CU_OK(cuDevicePrimaryCtxRetain(&again, 0));
	CHECK(again == primary); /* another one, at the same address */
	own_contexts++;
	CU_OK(cuCtxSetCurrent(again));
	for (unsigned i = 0; handle.gpu - mine >= 2 * BARWAY_RING_TWIN && i < 100; i++)
		mine = gpu_alloc(BARWAY_GPU_BYTES(LINES) + 2 * BARWAY_RING_TWIN);
	CHECK(handle.gpu - mine < 2 * BARWAY_RING_TWIN); /* where the channel's memory was */
	OK(barway_channel_close(ch));
	gpu_free(mine); /* fails where it was given back with the channel */
	finish();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(both_ways),
		CASE_ENV(both_ways, "FAKENV=bar1=dynamic,driver=550.163.01"),
		CASE(closed_by_the_kernel),
		CASE(left_to_the_context),
		CASE(many_times),
		CASE(thread_without_a_context),
		CASE(while_capturing),
		CASE(context_destroyed_under_a_channel),
		CASE(no_context),
		{ 0 },
	};

	return rm_main(argc, argv, cases);
}
