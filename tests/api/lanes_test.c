/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What warps and blocks do of barway_device.cuh, by threads that are played (lanes.h), against the
 * library's end of the channel: messages of random sizes each way by each form, in order, none
 * lost, nothing written past their ends; and all threads of a warp come to the same result.
 */
#define BARWAY_GPU_LANES "lanes.h"
#include <barway_device.cuh>
#include <barway_soft.h>
#include <unistd.h>

#include "api_test.h"
#include "sanitizers.h"

#define SECONDS 1000000000ull
#define MESSAGES 640u /* as many for each of 128 threads */
#define WARPS 4u

/* ---- messages -------------------------------------------------------------------------------- */

static uint32_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 29) * 0xd1342543de82ef95ull;
	return (uint32_t)(x ^ x >> 32);
}

static uint32_t size_of(uint64_t n)
{
	return mix(n) % 3 ? mix(n) / 3 % 120 : mix(n) / 3 % (BARWAY_MESSAGE_MAX + 1);
}

static void make(uint64_t n, uint32_t bytes, void *to)
{
	for (uint32_t i = 0; i < bytes; i++)
		((unsigned char *)to)[i] = (unsigned char)mix(n * 1031 + i);
}

static bool is(uint64_t n, uint32_t bytes, uint32_t tag, const void *at)
{
	unsigned char want[BARWAY_MESSAGE_MAX];

	make(n, bytes, want);
	return tag == n % 4096 && !memcmp(want, at, bytes);
}

/* ---- the kernel's side ----------------------------------------------------------------------- */

#define PAST 0xab

static struct {
	struct barway_channel_gpu handle; /* as this process addresses it */
	unsigned warps, flags;
	void (*body)(void *arg);
	uint64_t seed, count;
	int result[LANES_MOST];
	uint64_t taken[LANES_MOST];
	const char *diverged;
	char wrong[128];
	uint64_t message[WARPS][BARWAY_MESSAGE_MAX / 8 + 1];
} k;

static void complain(const char *what, uint64_t n)
{
	if (!k.wrong[0])
		snprintf(k.wrong, sizeof(k.wrong), "%s: message %llu, thread %u", what,
			 (unsigned long long)n, barway_gpu_thread());
}

static void check_past(const void *data, uint32_t bytes, uint64_t n)
{
	for (uint32_t i = bytes; i < BARWAY_MESSAGE_MAX + 8; i++)
		if (((const unsigned char *)data)[i] != PAST) {
			complain("written past its end", n);
			return;
		}
}

static void attach(struct barway_gpu_channel *ch)
{
	barway_gpu_attach(ch, &k.handle, k.flags);
}

static void done(struct barway_gpu_channel *ch, int result, uint64_t taken)
{
	k.result[barway_gpu_thread()] = result;
	k.taken[barway_gpu_thread()] = taken;
	if (ch && !barway_gpu_thread())
		barway_gpu_leave(ch);
}

static void each_receives(void *arg)
{
	uint64_t data[BARWAY_MESSAGE_MAX / 8 + 1], n = 0, mine;
	struct barway_gpu_channel ch;
	uint32_t bytes = 0, tag = 0;
	int got = 0;

	(void)arg;
	attach(&ch);
	while (n < k.count) {
		memset(data, PAST, sizeof(data));
		got = barway_gpu_recv_each(&ch, data, BARWAY_MESSAGE_MAX, &bytes, &tag, 5 * SECONDS,
					   0);
		if (got <= 0)
			break;
		mine = n + barway_gpu_lane();
		if (barway_gpu_lane() >= (unsigned)got)
			check_past(data, 0, mine);
		else if (bytes != size_of(mine) || !is(mine, bytes, tag, data))
			complain("wrong", mine);
		else
			check_past(data, bytes, mine);
		n += (unsigned)got;
	}
	done(&ch, got < 0 ? got : 0, n);
}

/* By a warp, by a block; now and then by the first thread alone, in between. */
static void receive_together(bool block, bool alone)
{
	unsigned char *data = (unsigned char *)k.message[0];
	uint32_t bytes = 0, tag = 0;
	struct barway_gpu_channel ch;
	uint64_t n = 0;
	int error = 0;

	attach(&ch);
	while (n < k.count && !error) {
		if (!barway_gpu_thread())
			memset(data, PAST, sizeof(k.message[0]));
		barway_gpu_sync_warp();
		if (alone && n % 3 == 1 && !barway_gpu_thread())
			error = barway_gpu_recv(&ch, data, BARWAY_MESSAGE_MAX, &bytes, &tag,
						5 * SECONDS, 0);
		else if (!alone || n % 3 != 1)
			error = (block ? barway_gpu_recv_block : barway_gpu_recv_warp)(
				&ch, data, BARWAY_MESSAGE_MAX, &bytes, &tag, 5 * SECONDS, 0);
		if (!error && !barway_gpu_thread()) {
			if (bytes != size_of(n) || !is(n, bytes, tag, data))
				complain("wrong", n);
			check_past(data, bytes, n);
		}
		barway_gpu_sync_warp();
		n += !error;
	}
	done(&ch, error, n);
}

static void warp_receives(void *arg)
{
	(void)arg;
	receive_together(false, false);
}

static void warp_receives_after_one(void *arg)
{
	(void)arg;
	receive_together(false, true);
}

static void block_receives(void *arg)
{
	(void)arg;
	receive_together(true, false);
}

/* Warp w sends the messages w, w + warps, ... */
static void warp_sends(void *arg)
{
	unsigned warp = barway_gpu_thread() / 32;
	struct barway_gpu_channel ch;
	uint64_t n = warp;
	int error = 0;

	(void)arg;
	attach(&ch);
	for (; n < k.count && !error; n += k.warps) {
		uint32_t bytes = size_of(n);

		barway_gpu_sync_warp(); /* the last one was read */
		for (uint32_t i = barway_gpu_lane(); i < bytes; i += 32)
			((unsigned char *)k.message[warp])[i] = (unsigned char)mix(n * 1031 + i);
		error = barway_gpu_send_warp(&ch, k.message[warp], bytes, n % 4096, 5 * SECONDS,
					     0);
	}
	done(NULL, error, n);
}

static void each_sends(void *arg)
{
	uint64_t data[BARWAY_MESSAGE_MAX / 8], n = barway_gpu_thread();
	struct barway_gpu_channel ch;
	int error = 0;

	(void)arg;
	attach(&ch);
	for (; n < k.count && !error; n += k.warps * 32) {
		make(n, size_of(n) % 112, data);
		error = barway_gpu_send_each(&ch, data, size_of(n) % 112, n % 4096, 5 * SECONDS, 0);
	}
	done(NULL, error, n);
}

static void block_sends(void *arg)
{
	struct barway_gpu_channel ch;
	uint64_t n = 0;
	int error = 0;

	(void)arg;
	attach(&ch);
	for (; n < k.count && !error; n++) {
		barway_gpu_sync_block();
		for (uint32_t i = barway_gpu_thread(); i < size_of(n); i += 32 * k.warps)
			((unsigned char *)k.message[0])[i] = (unsigned char)mix(n * 1031 + i);
		error = barway_gpu_send_block(&ch, k.message[0], size_of(n), n % 4096, 5 * SECONDS,
					      0);
	}
	done(NULL, error, n);
}

static void kernel(struct barway_soft_block *block, void *arg)
{
	const struct barway_channel_gpu *device = arg;

	k.handle = *device;
	k.handle.gpu = (uintptr_t)barway_soft_deref(block, device->gpu,
						    BARWAY_GPU_BYTES(device->rx_lines));
	k.handle.host = (uintptr_t)barway_soft_deref(block, device->host, BARWAY_HOST_RING +
						     (uint64_t)device->tx_lines *
						     BARWAY_LINE_BYTES);
	k.diverged = lanes_run(32 * k.warps, k.body, NULL, k.seed);
}

/* ---- the CPU's side -------------------------------------------------------------------------- */

static struct barway_channel *ch;
static struct barway_soft_stream *stream;

static void start(void (*body)(void *), unsigned warps, unsigned flags, uint64_t count,
		  uint64_t seed)
{
	struct barway_channel_options o = { .size = sizeof(o), .to_gpu_bytes = 4096,
					    .to_cpu_bytes = 8192 };
	struct barway_channel_gpu handle;

	memset(&k, 0, sizeof(k));
	k.body = body;
	k.warps = warps;
	k.flags = flags;
	k.count = count;
	k.seed = seed;
	OK(barway_channel_open(gpu[0], &o, &ch));
	OK(barway_channel_gpu(ch, &handle));
	OK(barway_soft_stream_create(gpu[0], &stream));
	OK(barway_soft_launch(stream, kernel, 1, &handle, sizeof(handle)));
}

static void stop(int result)
{
	OK(barway_soft_stream_sync(stream));
	OK(barway_soft_stream_destroy(stream));
	OK(barway_channel_close(ch));
	if (k.diverged)
		FAIL("%s", k.diverged);
	if (k.wrong[0])
		FAIL("%s", k.wrong);
	for (unsigned i = 0; i < 32 * k.warps; i++)
		if (k.result[i] != result)
			FAIL("thread %u: %d, expected %d", i, k.result[i], result);
}

static void send_all(uint64_t count)
{
	unsigned char data[BARWAY_MESSAGE_MAX];

	for (uint64_t n = 0; n < count; n++) {
		make(n, size_of(n), data);
		OK(barway_channel_send(ch, data, size_of(n), n % 4096, 10 * SECONDS));
		if (mix(n) % 50 == 0)
			usleep(200);
	}
}

static void receives(void (*body)(void *), unsigned warps)
{
	begin();
	for (uint64_t seed = 1; seed < 4; seed++) {
		start(body, warps, 0, MESSAGES, seed);
		send_all(MESSAGES);
		stop(0);
	}
	end();
}

/* All arrive, those of each of @senders in order: it sends every so manieth. */
static void sends(void (*body)(void *), unsigned warps, unsigned senders, uint32_t most)
{
	unsigned char data[BARWAY_MESSAGE_MAX];

	begin();
	for (unsigned flags = 0; flags <= (senders == 1 ? BARWAY_GPU_SOLE : 0u); flags++) {
		uint64_t next[LANES_MOST];
		unsigned tag;
		size_t bytes;

		for (unsigned i = 0; i < senders; i++)
			next[i] = i;
		start(body, warps, flags, MESSAGES, flags + 7);
		for (uint64_t i = 0; i < MESSAGES; i++) {
			uint64_t n;

			OK(barway_channel_recv(ch, data, sizeof(data), &bytes, &tag, 10 * SECONDS));
			n = next[tag % senders];
			CHECK_EQ(tag, n);
			CHECK_EQ(bytes, size_of(n) % most);
			CHECK(is(n, (uint32_t)bytes, tag, data));
			next[tag % senders] += senders;
		}
		stop(0);
	}
	end();
}

static void recv_each(void) { receives(each_receives, 1); }
static void recv_warp(void) { receives(warp_receives, 1); }
static void recv_warp_after_one(void) { receives(warp_receives_after_one, 1); }
static void recv_block(void) { receives(block_receives, WARPS); }
static void send_warp(void) { sends(warp_sends, 1, 1, 2048); }
static void send_warps(void) { sends(warp_sends, WARPS, WARPS, 2048); }
static void send_block(void) { sends(block_sends, WARPS, 1, 2048); }
static void send_each(void) { sends(each_sends, 1, 32, 112); }
static void send_each_warps(void) { sends(each_sends, WARPS, 128, 112); }

/* ---- ends ------------------------------------------------------------------------------------ */

/* Everything that was sent before the CPU closed is taken, then all threads are told. */
static void closed(void)
{
	static void (*const bodies[])(void *) = { each_receives, warp_receives };

	begin();
	for (unsigned i = 0; i < 2; i++)
		for (uint64_t seed = 1; seed < 20; seed++) {
			start(bodies[i], 1, 0, MESSAGES, seed);
			send_all(seed);
			OK(barway_channel_shutdown(ch));
			stop(BARWAY_GPU_EPIPE);
			CHECK_EQ(k.taken[0], seed);
		}
	end();
}

static void timed_out(void *arg)
{
	struct barway_gpu_channel c;
	uint64_t data[4];
	int error;

	(void)arg;
	attach(&c);
	error = barway_gpu_recv_each(&c, data, sizeof(data), NULL, NULL, 0, 0);
	if (error != BARWAY_GPU_EAGAIN)
		complain("not put off", 0);
	error = barway_gpu_recv_warp(&c, k.message[0], 8, NULL, NULL, 0, 0);
	if (error != BARWAY_GPU_EAGAIN)
		complain("not put off", 1);
	error = barway_gpu_recv_each(&c, data, sizeof(data), NULL, NULL, 2000000, 0);
	if (error != BARWAY_GPU_ETIMEDOUT)
		complain("no end", 2);
	done(&c, barway_gpu_recv_warp(&c, k.message[0], 8, NULL, NULL, 2000000, 0), 0);
}

static void times_out(void)
{
	begin();
	start(timed_out, 1, 0, 0, 1);
	stop(BARWAY_GPU_ETIMEDOUT);
	end();
}

/* ---- what is not a message ------------------------------------------------------------------- */

static uint64_t bad_control; /* of line 2; 0: message 2 is too large for the room that there is */

static void finds(void *arg)
{
	struct barway_gpu_channel c;
	uint64_t data[2], n = 0;
	uint32_t bytes = 0;
	int got, error = bad_control ? BARWAY_GPU_EBADMSG : BARWAY_GPU_EMSGSIZE;

	(void)arg;
	attach(&c);
	while (n < 2) { /* those before it are taken */
		got = barway_gpu_recv_each(&c, data, sizeof(data), &bytes, NULL, 5 * SECONDS, 0);
		if (got <= 0 || n + (unsigned)got > 2) {
			complain("taken", (uint64_t)got);
			break;
		}
		n += (unsigned)got;
	}
	if (barway_gpu_recv_each(&c, data, sizeof(data), &bytes, NULL, SECONDS, 0) != error)
		complain("recv_each", n);
	if (barway_gpu_recv_warp(&c, k.message[0], sizeof(data), &bytes, NULL, SECONDS, 0) != error)
		complain("recv_warp", n);
	done(NULL, barway_gpu_recv_block(&c, k.message[0], sizeof(data), &bytes, NULL, SECONDS, 0),
	     n);
}

/* Three messages of a line each are there before the kernel is; then the third is spoilt. */
static void spoilt_kernel(struct barway_soft_block *block, void *arg)
{
	const struct barway_channel_gpu *device = arg;
	uint64_t *line = barway_soft_deref(block, device->gpu + BARWAY_GPU_RING + 2 * 64,
					   BARWAY_RING_TWIN + 64);

	for (unsigned twin = 0; bad_control && twin < 2; twin++, line += BARWAY_RING_TWIN / 8)
		line[0] = bad_control | (line[0] & 1ull << 63);
	kernel(block, arg);
}

static void spoilt(void)
{
	static const uint64_t controls[] = {
		0,                        /* as it was, larger than the room */
		8ull << 44 | 7,           /* of another place */
		1025ull << 44 | 2,        /* of no size that can be */
		0xfffull << 44 | 2,       /* goes on with nothing */
	};
	unsigned char data[24] = { 0 };

	begin();
	for (unsigned i = 0; i < sizeof(controls) / sizeof(controls[0]); i++) {
		struct barway_channel_options o = { .size = sizeof(o) };
		struct barway_channel_gpu handle;

		memset(&k, 0, sizeof(k));
		k.warps = 1;
		k.body = finds;
		k.seed = i + 1;
		bad_control = controls[i];
		OK(barway_channel_open(gpu[0], &o, &ch));
		OK(barway_channel_gpu(ch, &handle));
		for (unsigned n = 0; n < 3; n++)
			OK(barway_channel_send(ch, data, n == 2 ? 24 : 8, 0, 0));
		OK(barway_soft_stream_create(gpu[0], &stream));
		OK(barway_soft_launch(stream, spoilt_kernel, 1, &handle, sizeof(handle)));
		stop(bad_control ? BARWAY_GPU_EBADMSG : BARWAY_GPU_EMSGSIZE);
	}
	end();
}

/* ---- lanes.h itself -------------------------------------------------------------------------- */

static void one_goes_away(void *arg)
{
	(void)arg;
	if (barway_gpu_lane() == 3)
		return;
	barway_gpu_sync_warp();
}

static void two_points(void *arg)
{
	(void)arg;
	if (barway_gpu_lane() == 3)
		barway_gpu_ballot(1);
	else
		barway_gpu_sync_warp();
}

static void warp_misses(void *arg)
{
	(void)arg;
	if (barway_gpu_thread() < 32)
		barway_gpu_sync_block();
}

static void divergence_is_seen(void)
{
	CHECK(lanes_run(32, one_goes_away, NULL, 1));
	CHECK(lanes_run(32, two_points, NULL, 1));
	CHECK(lanes_run(64, warp_misses, NULL, 1));
}

/* ---- who has what ---------------------------------------------------------------------------- */

static void counts_lines(void)
{
	for (uint32_t bytes = 0; bytes <= BARWAY_MESSAGE_MAX; bytes++)
		CHECK_EQ(barway_gpu_lines_of(bytes), BARWAY_MESSAGE_LINES_OF(bytes));
}

static uint32_t owners[BARWAY_MESSAGE_LINES * 7];

static void owns(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < BARWAY_GPU_WORDS; i++)
		if (barway_gpu_word(i) < sizeof(owners) / sizeof(owners[0]))
			owners[barway_gpu_word(i)]++;
}

/* Each word of the longest message is one thread's. */
static void shares_words(void)
{
	memset(owners, 0, sizeof(owners));
	CHECK(!lanes_run(32, owns, NULL, 1));
	for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++)
		CHECK_EQ(owners[i], 1);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(divergence_is_seen), TEST(counts_lines), TEST(shares_words),
		TEST(recv_each), TEST(recv_warp), TEST(recv_warp_after_one),
		TEST(recv_block), TEST(send_warp), TEST(send_warps),
		TEST(send_block), TEST(send_each), TEST(send_each_warps), TEST(closed),
		TEST(times_out), TEST(spoilt), { 0 },
	};

	if (TSAN) {
		puts("lanes_test: skipped: the thread sanitizer does not follow one thread that "
		     "plays many\nlanes_test: 0 passed, 0 failed, 1 skipped");
		return 77;
	}
	return api_main(argc, argv, cases);
}
