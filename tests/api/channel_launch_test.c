/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels that leave when nothing comes, and the launches that bring them back: no message is ever
 * left alone, launches come one at a time, and one that fails is tried again.
 */
#include <limits.h>

#include "channel_test.h"

static struct rig rig;

static void pause_ns(uint64_t ns)
{
	double end = seconds() + (double)ns / 1e9;

	while (seconds() < end)
		;
}

/* The kernel leaves at about the time when the next message comes. */
static void no_message_is_left_alone(void)
{
	uint64_t state = 1, n = many(100000) / 4, waits[] = { 0, 1000, 10000, 50000 };

	begin();
	for (unsigned k = 0; k < N(waits); k++) {
		rig_begin(&rig, 64, echo);
		rig.job.wait_ns = waits[k];
		for (uint64_t i = 0; i < n; i++) {
			round_trip(&rig, i);
			pause_ns(test_random(&state) % (waits[k] * 2 + 1000));
		}
		CHECK_EQ(channel_info(&rig).launches, rig.launches);
		CHECK(channel_info(&rig).launches > 1);
		rig_end(&rig);
	}
	end();
}

static bool all_taken(void)
{
	struct barway_channel_info i = channel_info(&rig);

	return i.sent_taken == i.sent;
}

/*
 * The last message comes when the kernel is about to leave, and the channel is shut down then. A
 * kernel that is held up for longer than the shutdown waits may miss it, but not for ever.
 */
static void last_message_before_shutdown(void)
{
	unsigned rounds = SANITIZED ? 300 : 3000, missed = 0;
	uint64_t state = 1;
	struct message m;

	begin();
	for (unsigned i = 0; i < rounds; i++) {
		double until = seconds() + PATIENCE / 1e9;

		rig_begin(&rig, 64, echo);
		rig.job.wait_ns = 3000;
		round_trip(&rig, 0);
		pause_ns(test_random(&state) % 5000);
		message_make(&m, 0, 1, 0);
		OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
		OK(barway_channel_shutdown(rig.ch));
		OK(barway_soft_stream_sync(rig.stream));
		missed += !all_taken();
		while (!all_taken()) {
			CHECK(barway_channel_poll(rig.ch) >= 0);
			CHECK(seconds() < until);
		}
		rig_end(&rig);
	}
	end();
	CHECK(missed <= rounds / 300); /* one in a hundred where the shutdown does not wait */
}

/* A channel on which nobody waits for an answer: polling is enough. */
static void polling_launches(void)
{
	struct message m;
	double end_at;

	begin();
	rig_begin(&rig, 1024, consume);
	rig.job.wait_ns = 0;
	rig.job.count = 1; /* takes one and leaves */
	for (unsigned i = 0; i < 200; i++) {
		message_make(&m, 0, 0, 0);
		OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
		end_at = seconds() + PATIENCE / 1e9;
		while (rig.out.done <= i) {
			CHECK_EQ(barway_channel_poll(rig.ch), BARWAY_CHANNEL_WRITABLE);
			CHECK(seconds() < end_at);
		}
	}
	CHECK_EQ(rig.out.result, 0);
	rig_end(&rig);
	end();
}

/* Sending waits for room that only a kernel makes that has left: it is launched meanwhile. */
static void sending_launches_when_full(void)
{
	uint64_t n = many(20000);
	struct message m;
	double end_at;

	begin();
	rig_begin(&rig, 64, consume);
	rig.job.count = 1;
	for (uint64_t i = 0; i < n; i++) {
		message_make(&m, 0, 0, 0);
		OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
	}
	for (end_at = seconds() + PATIENCE / 1e9; rig.out.done < n;) {
		CHECK(barway_channel_poll(rig.ch) >= 0);
		CHECK(seconds() < end_at);
	}
	CHECK_EQ(rig.out.result, 0);
	CHECK_EQ(rig.launches, n);
	rig_end(&rig);
	end();
}

static void launch_fails(void)
{
	struct message m;
	size_t bytes;

	begin();
	rig_begin(&rig, 64, echo);
	message_make(&m, 0, 0, 0);
	rig.launch_fails = -ENOSPC;
	FAILS(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE), ENOSPC,
	      "launch the kernel");
	CHECK_EQ(channel_info(&rig).messages_sent, 1); /* it is sent all the same */
	CHECK_EQ(channel_info(&rig).launches, 0);
	rig.launch_fails = 5;
	FAILS(barway_channel_recv(rig.ch, m.word, sizeof(m.word), &bytes, &m.tag, PATIENCE), EINVAL,
	      "returned 5");
	rig.launch_fails = INT_MIN;
	FAILS(barway_channel_poll(rig.ch), EINVAL, "neither 0 nor a negative errno value");
	rig.launch_fails = -EIO;
	FAILS(barway_channel_poll(rig.ch), EIO, "launch the kernel");
	rig.launch_fails = -ENOMEM;
	FAILS(barway_channel_recv(rig.ch, m.word, sizeof(m.word), &bytes, &m.tag, 0), ENOMEM,
	      "launch the kernel");
	OK(barway_channel_recv(rig.ch, m.word, sizeof(m.word), &bytes, &m.tag, PATIENCE));
	CHECK(message_is(m.word, bytes, m.tag, 0, 0, 0));
	CHECK_EQ(channel_info(&rig).launches, 1);
	CHECK_EQ(rig.launches, 6);
	rig_end(&rig);
	end();
}

/* A message that is there is taken, also where the kernel cannot be launched. */
static void taking_does_not_need_a_launch(void)
{
	struct message m;
	size_t bytes;

	begin();
	rig_begin(&rig, 64, echo);
	rig.job.count = 1;
	rig_launch(&rig, produce, 1);
	OK(barway_soft_stream_sync(rig.stream));
	message_make(&m, 0, 7, 0);
	rig.launch_fails = -EIO;
	FAILS(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, 0), EIO, "launch");
	rig.launch_fails = -EIO;
	OK(barway_channel_recv(rig.ch, m.word, sizeof(m.word), &bytes, &m.tag, 0));
	CHECK(message_is(m.word, bytes, m.tag, 0, 0, 0));
	CHECK_EQ(rig.launches, 2);
	OK(barway_channel_recv(rig.ch, m.word, sizeof(m.word), &bytes, &m.tag, PATIENCE));
	CHECK(message_is(m.word, bytes, m.tag, 0, 7, 0));
	rig_end(&rig);
	end();
}

/* It says that it leaves, and takes nothing. */
static void leave_at_once(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;

	if (!barway_gpu_attach(&c, &job->handle, BARWAY_GPU_SOLE, block))
		barway_gpu_leave(&c);
}

static void poll_many_times(void)
{
	for (unsigned i = 0; i < 50; i++) {
		CHECK_EQ(barway_channel_poll(rig.ch), BARWAY_CHANNEL_CLOSED);
		OK(barway_soft_stream_sync(rig.stream));
	}
}

static void shutdown_does_not_launch_for_ever(void)
{
	struct message m;

	begin();
	rig_begin(&rig, 64, leave_at_once);
	message_make(&m, 0, 0, 0);
	OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
	OK(barway_soft_stream_sync(rig.stream));
	CHECK_EQ(rig.launches, 1);
	OK(barway_channel_shutdown(rig.ch));
	OK(barway_soft_stream_sync(rig.stream));
	CHECK_EQ(rig.launches, 2); /* for what was sent before */
	OK(barway_channel_shutdown(rig.ch));
	poll_many_times();
	CHECK_EQ(rig.launches, 2);
	rig_end(&rig);
	end();
}

/* Kernels that take one message each come until all that was sent before is taken. */
static void shutdown_launches_while_some_are_taken(void)
{
	struct message m;

	begin();
	rig_begin(&rig, 1024, consume);
	rig.job.count = 1;
	message_make(&m, 0, 0, 0);
	for (unsigned i = 0; i < 5; i++) {
		rig.launch_fails = -ENOSPC; /* so that they wait */
		FAILS(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, 0), ENOSPC, "launch");
	}
	OK(barway_channel_shutdown(rig.ch));
	OK(barway_soft_stream_sync(rig.stream));
	poll_many_times();
	CHECK_EQ(rig.out.done, 5);
	CHECK_EQ(rig.out.result, 0);
	CHECK_EQ(channel_info(&rig).launches, 5);
	rig_end(&rig);
	end();
}

static void close_and_leave(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;

	if (barway_gpu_attach(&c, &job->handle, BARWAY_GPU_SOLE, block))
		return;
	barway_gpu_close(&c);
	barway_gpu_leave(&c);
}

static void closed_by_the_kernel(void)
{
	struct message m;

	begin();
	rig_begin(&rig, 64, close_and_leave);
	message_make(&m, 0, 0, 0);
	OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
	OK(barway_soft_stream_sync(rig.stream));
	poll_many_times();
	OK(barway_channel_shutdown(rig.ch));
	CHECK_EQ(rig.launches, 1);
	rig_end(&rig);
	end();
}

/* ---- several threads ----------------------------------------------------------------------- */

static _Atomic uint64_t taken;

static void *take_main(void *arg)
{
	uint64_t data[BARWAY_MESSAGE_MAX / 8];
	int ret;

	(void)arg;
	while (!(ret = barway_channel_recv(rig.ch, data, sizeof(data), NULL, NULL, BARWAY_FOREVER)))
		taken++;
	return (void *)(intptr_t)ret;
}

static void *send_main(void *arg)
{
	uint64_t state = (uintptr_t)arg, n = many(20000);
	struct message m;
	int ret = 0;

	for (uint64_t i = 0; i < n && !ret; i++) {
		message_make(&m, 0, i, 0);
		ret = barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE);
		if (!(test_random(&state) % 16))
			pause_ns(test_random(&state) % 100000);
	}
	return (void *)(intptr_t)ret;
}

static void launches_one_at_a_time(void)
{
	pthread_t takers[3], senders[3];
	double end_at;
	void *ret;

	begin();
	rig_begin(&rig, 64, echo);
	rig.job.wait_ns = 20000;
	taken = 0;
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(pthread_create(&takers[i], NULL, take_main, NULL), 0);
		CHECK_EQ(pthread_create(&senders[i], NULL, send_main, (void *)(uintptr_t)(i + 1)),
			 0);
	}
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(pthread_join(senders[i], &ret), 0);
		CHECK_EQ((intptr_t)ret, 0);
	}
	for (end_at = seconds() + PATIENCE / 1e9; taken < 3 * many(20000);)
		CHECK(seconds() < end_at);
	OK(barway_channel_shutdown(rig.ch));
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(pthread_join(takers[i], &ret), 0);
		CHECK_EQ((intptr_t)ret, -EPIPE);
	}
	CHECK_EQ(taken, 3 * many(20000));
	CHECK_EQ(channel_info(&rig).launches, rig.launches);
	rig_end(&rig);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(last_message_before_shutdown),
		TEST(no_message_is_left_alone),
		TEST(polling_launches),
		TEST(sending_launches_when_full),
		TEST(launch_fails),
		TEST(taking_does_not_need_a_launch),
		TEST(shutdown_does_not_launch_for_ever),
		TEST(shutdown_launches_while_some_are_taken),
		TEST(closed_by_the_kernel),
		TEST(launches_one_at_a_time),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
