/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How channels end: closed by either side, with calls and kernels that wait; a kernel that fails; a
 * side that serves no more; memory that was overwritten; a fork; a context that is closed.
 */
#include "channel_test.h"

static struct rig rig;

/* ---- threads that wait --------------------------------------------------------------------- */

struct waiter {
	pthread_t thread;
	bool sends;
	_Atomic int result; /* 1: still waiting */
	char text[256];
};

static void *wait_main(void *arg)
{
	struct waiter *w = arg;
	uint64_t data[BARWAY_MESSAGE_MAX / 8] = { 0 };
	int ret;

	do
		ret = w->sends ?
		      barway_channel_send(rig.ch, data, sizeof(data), 0, BARWAY_FOREVER) :
		      barway_channel_recv(rig.ch, data, sizeof(data), NULL, NULL, BARWAY_FOREVER);
	while (!ret);
	snprintf(w->text, sizeof(w->text), "%s", barway_errmsg());
	w->result = ret;
	return NULL;
}

static void start_waiters(struct waiter *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		w[i].sends = i % 2;
		w[i].result = 1;
		CHECK_EQ(pthread_create(&w[i].thread, NULL, wait_main, &w[i]), 0);
	}
	sleep_ms(20);
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(w[i].result, 1);
}

static void join_waiters(struct waiter *w, unsigned n, int result, const char *text)
{
	double deadline = seconds() + PATIENCE / 1e9;

	for (unsigned i = 0; i < n; i++) {
		while (w[i].result == 1 && seconds() < deadline)
			sleep_ms(1);
		CHECK_EQ(w[i].result, result);
		CHECK_HAS(w[i].text, text);
		CHECK_EQ(pthread_join(w[i].thread, NULL), 0);
	}
}

static void all_calls_fail(int err, const char *text)
{
	char byte;

	FAILS(barway_channel_send(rig.ch, "x", 1, 0, 0), err, text);
	FAILS(barway_channel_send(rig.ch, "x", 1, 0, BARWAY_FOREVER), err, text);
	FAILS(barway_channel_recv(rig.ch, &byte, 1, NULL, NULL, 0), err, text);
	FAILS(barway_channel_recv(rig.ch, &byte, 1, NULL, NULL, BARWAY_FOREVER), err, text);
}

/* ---- closed by the CPU --------------------------------------------------------------------- */

static void shutdown_wakes_all(void)
{
	struct waiter w[4];

	begin();
	rig_begin(&rig, 64, NULL);
	start_waiters(w, 4);
	OK(barway_channel_shutdown(rig.ch));
	join_waiters(w, 4, -EPIPE, "shut the channel down");
	OK(barway_channel_shutdown(rig.ch));
	all_calls_fail(EPIPE, "shut the channel down");
	CHECK_EQ(barway_channel_poll(rig.ch), BARWAY_CHANNEL_CLOSED);
	rig_end(&rig);
	end();
}

/* What was sent before is got, by a kernel that comes later too. */
static void shutdown_loses_nothing(void)
{
	struct message m;

	begin();
	for (unsigned n = 0; n < 20; n++) {
		rig_begin(&rig, 1024, NULL);
		rig.job.count = n + 1; /* one more than there are */
		if (n % 2)
			rig_launch(&rig, consume, 1);
		for (unsigned i = 0; i < n; i++) {
			message_make(&m, 0, i, 0);
			OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
		}
		OK(barway_channel_shutdown(rig.ch));
		if (!(n % 2))
			rig_launch(&rig, consume, 1);
		OK(barway_soft_stream_sync(rig.stream));
		CHECK_EQ(rig.out.done, n);
		CHECK_EQ(rig.out.result, BARWAY_GPU_EPIPE);
		rig_end(&rig);
	}
	end();
}

/* Closing ends kernels that wait, for messages and for room, long before their time. */
static void close_ends_kernels(void)
{
	double t;

	begin();
	for (int i = 0; i < 2; i++) {
		rig_begin(&rig, 64, NULL);
		rig.job.count = 1000;
		rig.job.wait_ns = 10 * SECOND;
		rig_launch(&rig, i ? produce : consume, i ? 4 : 1);
		rig_wait(&rig, i ? 4 : 1);
		sleep_ms(20);
		t = seconds();
		OK(barway_channel_close(rig.ch));
		OK(barway_soft_stream_sync(rig.stream));
		CHECK(seconds() - t < 5);
		CHECK_EQ(rig.out.result, BARWAY_GPU_EPIPE);
		OK(barway_soft_stream_destroy(rig.stream));
	}
	end();
}

static void *stop_later(void *arg)
{
	struct timespec t = { 0, (long)(uintptr_t)arg };

	nanosleep(&t, NULL);
	barway_channel_shutdown(rig.ch);
	return NULL;
}

/* Either side ends at some point of the traffic: all calls end, what came was right. */
static void ends_at_random(void)
{
	uint64_t state = 5, sent, got;
	struct message m, back;
	size_t bytes = 0;
	pthread_t thread;
	int ret = 0;

	begin();
	for (int turn = 0; turn < 60; turn++) {
		long ns = (long)(test_random(&state) % 3000000);

		rig_begin(&rig, 64, turn % 3 ? echo : NULL);
		if (!(turn % 3)) /* a kernel that gives up by itself */
			rig.job.wait_ns = (uint64_t)ns;
		rig_launch(&rig, echo, 1);
		CHECK_EQ(pthread_create(&thread, NULL, stop_later, (void *)(uintptr_t)ns), 0);
		for (sent = got = 0; !ret;) {
			message_make(&m, 0, sent, 0);
			ret = barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE);
			sent += !ret;
			while (!ret || ret == -EAGAIN) {
				ret = barway_channel_recv(rig.ch, back.word, sizeof(back.word),
							  &bytes, &back.tag, 0);
				if (ret)
					break;
				CHECK(message_is(back.word, bytes, back.tag, 0, got++, 0));
			}
			ret = ret == -EAGAIN ? 0 : ret;
		}
		CHECK_EQ(ret, -EPIPE);
		ret = 0;
		CHECK(got <= sent);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		rig_end(&rig);
	}
	end();
}

/* ---- closed by a kernel -------------------------------------------------------------------- */

static void produce_and_close(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;

	produce(block, arg);
	if (!barway_gpu_attach(&c, &job->handle, 0, block))
		barway_gpu_close(&c);
}

static void kernel_closes(void)
{
	unsigned char back[BARWAY_MESSAGE_MAX];
	size_t bytes;
	unsigned tag;

	begin();
	for (unsigned n = 0; n < 20; n++) {
		rig_begin(&rig, 64, NULL);
		rig.job.count = n;
		rig_launch(&rig, produce_and_close, 1);
		for (unsigned i = 0; i < n; i++) {
			OK(barway_channel_recv(rig.ch, back, sizeof(back), &bytes, &tag,
					       PATIENCE));
			CHECK(message_is(back, bytes, tag, 0, i, 0));
		}
		FAILS(barway_channel_recv(rig.ch, back, sizeof(back), &bytes, &tag, PATIENCE),
		      EPIPE, "a kernel has closed");
		all_calls_fail(EPIPE, "a kernel has closed");
		CHECK_EQ(barway_channel_poll(rig.ch), BARWAY_CHANNEL_CLOSED);
		rig_end(&rig);
	}
	end();
}

/* When the test says so. */
static void await(const struct job *job)
{
	for (unsigned ms = 0; !job->out->go && ms < 20000; ms++)
		sleep_ms(1);
}

static void close_later(struct barway_soft_block *block, void *arg)
{
	await(arg);
	produce_and_close(block, arg);
}

static void kernel_closes_on_waiters(void)
{
	struct waiter w[4];

	begin();
	rig_begin(&rig, 64, NULL);
	rig_launch(&rig, close_later, 1);
	start_waiters(w, 4);
	rig.out.go = true;
	join_waiters(w, 4, -EPIPE, "a kernel has closed");
	rig_end(&rig);
	end();
}

/* ---- failures ------------------------------------------------------------------------------ */

static void trap_later(struct barway_soft_block *block, void *arg)
{
	await(arg);
	barway_soft_trap(block);
}

/* Also another channel's, which never saw the kernel that failed. */
static void trap_ends_waits(void)
{
	struct waiter w[4];
	int ret;

	begin();
	rig_begin(&rig, 64, NULL);
	rig_launch(&rig, trap_later, 1);
	start_waiters(w, 4);
	rig.out.go = true;
	join_waiters(w, 4, -EIO, "a kernel failed");
	all_calls_fail(EIO, "a kernel failed");
	FAILS(barway_channel_poll(rig.ch), EIO, "a kernel failed");
	OK(barway_channel_close(rig.ch));
	FAILS(barway_soft_stream_destroy(rig.stream), EIO, "kernel failed");

	rig_begin(&rig, 64, echo); /* the next works, as its streams are new */
	rig.job.wait_ns = MS;
	round_trip(&rig, 1);
	rig.out.go = true;
	rig_launch(&rig, trap_later, 1);
	do /* who does not wait learns of it too */
		ret = barway_channel_recv(rig.ch, w, 0, NULL, NULL, 0);
	while (ret == -EAGAIN);
	CHECK_EQ(ret, -EIO);
	OK(barway_channel_close(rig.ch));
	barway_soft_stream_destroy(rig.stream);
	end();
}

/* The CPU stops serving: kernels that wait for messages or room end when their time is over. */
static void cpu_stops_serving(void)
{
	double t;

	begin();
	for (int i = 0; i < 2; i++) {
		rig_begin(&rig, 64, NULL);
		rig.job.count = 1000;
		rig.job.wait_ns = 50 * MS;
		t = seconds();
		rig_launch(&rig, i ? produce : consume, i ? 4 : 1);
		OK(barway_soft_stream_sync(rig.stream));
		CHECK(seconds() - t > 0.049);
		CHECK(seconds() - t < 10);
		CHECK_EQ(rig.out.result, BARWAY_GPU_ETIMEDOUT);
		rig_end(&rig);
	}
	end();
}

/* Writes lines of its own making: @count says which. */
static void scribble(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	uint64_t mark = 1ull << 63, control = 0;
	unsigned lines = 1;

	if (barway_gpu_attach(&c, &job->handle, 0, block))
		return;
	switch (job->count) {
	case 0: /* the position is another's */
		control = 100ull << 44 | 1;
		break;
	case 1: /* too long */
		control = 1025ull << 44;
		break;
	case 2: /* begins in the middle */
		control = (uint64_t)BARWAY_LINE_MORE << 44;
		break;
	case 3: /* goes on with another message */
		control = 100ull << 44;
		lines = 2;
		break;
	case 4: /* took what was never sent */
		BARWAY_GPU_ST_HOST(&c, c.host + BARWAY_HOST_RX_CREDIT, 1000);
		barway_soft_fence(block);
		return;
	}
	for (unsigned line = 0; line < lines; line++)
		for (unsigned i = 0; i < 8; i++)
			BARWAY_GPU_ST_HOST(&c, c.host + BARWAY_HOST_RING + line * 64 + i * 8,
					   mark | (i ? 0 : control | line));
	barway_soft_fence(block);
}

static void garbage(void)
{
	static const char *const text[] = {
		"line 0 is not a message", "line 0 is not a message", "line 0 is not a message",
		"line 1 is not a message", "took 1000 lines",
	};
	char byte;

	begin();
	for (unsigned i = 0; i < N(text); i++) {
		rig_begin(&rig, 64, NULL);
		rig.job.count = i;
		rig_launch(&rig, scribble, 1);
		OK(barway_soft_stream_sync(rig.stream));
		if (i < 4)
			FAILS(barway_channel_recv(rig.ch, &byte, 1, NULL, NULL, PATIENCE), EIO,
			      text[i]);
		else
			while (!barway_channel_send(rig.ch, "x", 1, 0, PATIENCE))
				;
		all_calls_fail(EIO, text[i]);
		FAILS(barway_channel_poll(rig.ch), EIO, text[i]);
		rig_end(&rig);
	}
	end();
}

/* A line is a message only when all eight of its words are there. */
static void hold_back(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	uint64_t at;

	if (barway_gpu_attach(&c, &job->handle, 0, block))
		return;
	at = c.host + BARWAY_HOST_RING;
	for (unsigned i = 0; i < 8; i++)
		if (i != job->count)
			BARWAY_GPU_ST_HOST(&c, at + i * 8,
					   1ull << 63 | (i ? i : 56ull << 44));
	barway_soft_fence(block);
	job->out->done = 1;
	while (job->out->done == 1 && !barway_gpu_closed(&c))
		sleep_ms(1);
	BARWAY_GPU_ST_HOST(&c, at + job->count * 8,
			   1ull << 63 | (job->count ? job->count : 56ull << 44));
	barway_soft_fence(block);
}

static void every_word_counts(void)
{
	uint64_t back[7];

	begin();
	for (unsigned i = 0; i < 8; i++) {
		rig_begin(&rig, 64, NULL);
		rig.job.count = i;
		rig_launch(&rig, hold_back, 1);
		while (!rig.out.done)
			sleep_ms(1);
		FAILS(barway_channel_recv(rig.ch, back, sizeof(back), NULL, NULL, 0), EAGAIN,
		      "no message");
		FAILS(barway_channel_recv(rig.ch, back, sizeof(back), NULL, NULL, 2 * MS),
		      ETIMEDOUT, "no message");
		CHECK(!(barway_channel_poll(rig.ch) & BARWAY_CHANNEL_READABLE));
		rig.out.done = 2;
		OK(barway_channel_recv(rig.ch, back, sizeof(back), NULL, NULL, PATIENCE));
		for (unsigned k = 0; k < 7; k++)
			CHECK_EQ(back[k], k + 1);
		rig_end(&rig);
	}
	end();
}

/* ---- fork, contexts, releases -------------------------------------------------------------- */

static void child(void)
{
	struct barway_channel_gpu handle;
	char byte;

	FAILS(barway_channel_send(rig.ch, "x", 1, 0, 0), ESTALE, "parent");
	FAILS(barway_channel_recv(rig.ch, &byte, 1, NULL, NULL, 0), ESTALE, "parent");
	FAILS(barway_channel_poll(rig.ch), ESTALE, "parent");
	FAILS(barway_channel_gpu(rig.ch, &handle), ESTALE, "parent");
	FAILS(barway_channel_shutdown(rig.ch), ESTALE, "parent");
	FAILS(barway_channel_close(rig.ch), ESTALE, "parent");
	if (TSAN)
		return;
	OK(barway_open(NULL, &ctx)); /* one of its own */
	OK(barway_device_get(ctx, 0, &gpu[0]));
	rig_begin(&rig, 64, echo);
	for (unsigned i = 0; i < 100; i++)
		round_trip(&rig, i);
	rig_end(&rig);
	end();
}

static void forked_child(void)
{
	pid_t pid;

	begin();
	rig_begin(&rig, 64, echo);
	round_trip(&rig, 0);
	for (unsigned late = 0; late < 2; late++) {
		pid = child_start(child, late);
		for (unsigned i = 0; i < 100; i++)
			round_trip(&rig, i);
		CHECK_EQ(child_end(pid), 0);
	}
	for (unsigned i = 0; i < 100; i++)
		round_trip(&rig, i);
	rig_end(&rig);
	end();
}

static void context_closes_channels(void)
{
	struct rig other;
	uint64_t memory, aperture;
	char byte;

	begin();
	memory = memory_used(0);
	aperture = bar1_used(0);
	rig_begin(&rig, 64, NULL);
	rig_begin(&other, 64, echo);
	round_trip(&other, 0);
	rig.job.count = 1;
	rig.job.wait_ns = 10 * SECOND;
	rig_launch(&rig, consume, 1);
	rig_wait(&rig, 1);
	end();
	FAILS(barway_channel_recv(rig.ch, &byte, 1, NULL, NULL, 0), ESTALE, "closed before");
	FAILS(barway_channel_close(other.ch), ESTALE, "closed before");
	OK(barway_soft_stream_sync(rig.stream));
	CHECK_EQ(rig.out.result, BARWAY_GPU_EPIPE);
	OK(barway_soft_stream_destroy(rig.stream));
	OK(barway_soft_stream_destroy(other.stream));
	begin();
	CHECK_EQ(memory_used(0), memory);
	CHECK_EQ(bar1_used(0), aperture);
	end();
}

static void released(void)
{
	begin();
	rig_begin(&rig, 64, NULL);
	FAILS(barway_release_all(ctx, 0), EBUSY, "in use");
	OK(barway_channel_send(rig.ch, "x", 1, 0, 0));
	OK(barway_release_all(ctx, BARWAY_RELEASE_FORCE));
	all_calls_fail(EIO, "barway_release_all");
	FAILS(barway_channel_poll(rig.ch), EIO, "barway_release_all");
	OK(barway_channel_shutdown(rig.ch));
	rig_end(&rig);
	rig_begin(&rig, 64, echo);
	round_trip(&rig, 0);
	rig_end(&rig);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(shutdown_wakes_all),
		TEST(shutdown_loses_nothing),
		TEST(close_ends_kernels),
		TEST(ends_at_random),
		TEST(kernel_closes),
		TEST(kernel_closes_on_waiters),
		TEST(trap_ends_waits),
		TEST(cpu_stops_serving),
		TEST(garbage),
		TEST(every_word_counts),
		TEST(forked_child),
		TEST(context_closes_channels),
		TEST(released),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
