/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic: messages of random sizes over many laps, each checked byte by byte, one way, the other
 * and both at once; many blocks that send; several CPU threads that receive or send.
 * CHANNEL_MESSAGES in the environment: how many.
 */
#include "channel_test.h"

#define BLOCKS 16
#define THREADS 4

static struct rig rig;
static const uint32_t lines[] = { 64, 128, 1024 };

/* ---- one sender and one receiver ----------------------------------------------------------- */

static void send_all(uint64_t n)
{
	struct message m;

	for (uint64_t i = 0; i < n; i++) {
		message_make(&m, 0, i, 0);
		OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
	}
}

static void recv_all(uint64_t n)
{
	unsigned char back[BARWAY_MESSAGE_MAX];
	size_t bytes;
	unsigned tag;

	for (uint64_t i = 0; i < n; i++) {
		OK(barway_channel_recv(rig.ch, back, sizeof(back), &bytes, &tag, PATIENCE));
		if (!message_is(back, bytes, tag, 0, i, 0))
			FAIL("message %llu is wrong", (unsigned long long)i);
	}
}

static void to_gpu(void)
{
	uint64_t n = many(100000);

	begin();
	for (unsigned k = 0; k < N(lines); k++) {
		rig_begin(&rig, lines[k], NULL);
		rig.job.count = n;
		rig_launch(&rig, consume, 1);
		send_all(n);
		OK(barway_soft_stream_sync(rig.stream));
		CHECK_EQ(rig.out.result, 0);
		CHECK_EQ(rig.out.done, n);
		CHECK_EQ(channel_info(&rig).messages_sent, n);
		CHECK_EQ(channel_info(&rig).sent_taken, channel_info(&rig).sent);
		rig_end(&rig);
	}
	end();
}

static void to_cpu(void)
{
	uint64_t n = many(100000);

	begin();
	for (unsigned k = 0; k < N(lines); k++) {
		rig_begin(&rig, lines[k], NULL);
		rig.job.count = n;
		rig_launch(&rig, produce, 1);
		recv_all(n);
		OK(barway_soft_stream_sync(rig.stream));
		CHECK_EQ(rig.out.result, 0);
		CHECK_EQ(channel_info(&rig).messages_received, n);
		rig_end(&rig);
	}
	end();
}

/* Without fences: messages stand for themselves. */
static void relaxed(void)
{
	uint64_t n = many(100000) / 2;

	begin();
	rig_begin(&rig, 64, NULL);
	rig.job.count = n;
	rig.job.flags = BARWAY_GPU_RELAXED;
	rig_launch(&rig, produce, 1);
	recv_all(n);
	rig_launch(&rig, consume, 1);
	send_all(n);
	OK(barway_soft_stream_sync(rig.stream));
	CHECK_EQ(rig.out.result, 0);
	CHECK_EQ(rig.out.done, 2 * n);
	rig_end(&rig);
	end();
}

static void both(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	struct message m;
	int ret;

	if (barway_soft_block_index(block)) {
		consume(block, arg);
		return;
	}
	ret = barway_gpu_attach(&c, &job->handle, BARWAY_GPU_SOLE, block);
	for (uint64_t i = 0; i < job->count && !ret; i++) {
		message_make(&m, 0, i, 0);
		ret = barway_gpu_send(&c, m.word, m.bytes, m.tag, job->wait_ns, 0);
	}
	if (ret)
		job->out->result = ret;
}

static void *send_main(void *arg)
{
	uint64_t n = *(uint64_t *)arg;
	struct message m;
	int ret = 0;

	for (uint64_t i = 0; i < n && !ret; i++) {
		message_make(&m, 0, i, 0);
		ret = barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE);
	}
	return (void *)(intptr_t)ret;
}

static void both_ways_at_once(void)
{
	uint64_t n = many(100000);
	pthread_t thread;
	void *ret;

	begin();
	rig_begin(&rig, 64, NULL);
	rig.job.count = n;
	rig_launch(&rig, both, 2);
	CHECK_EQ(pthread_create(&thread, NULL, send_main, &n), 0);
	recv_all(n);
	CHECK_EQ(pthread_join(thread, &ret), 0);
	CHECK_EQ((intptr_t)ret, 0);
	OK(barway_soft_stream_sync(rig.stream));
	CHECK_EQ(rig.out.result, 0);
	CHECK_EQ(rig.out.done, n);
	rig_end(&rig);
	end();
}

static void there_and_back(void)
{
	uint64_t n = many(100000) / 4;

	begin();
	rig_begin(&rig, 64, echo);
	for (uint64_t i = 0; i < n; i++)
		round_trip(&rig, i);
	CHECK_EQ(channel_info(&rig).launches, 1);
	rig_end(&rig);
	end();
}

/* ---- many ---------------------------------------------------------------------------------- */

struct taker {
	pthread_t thread;
	uint64_t next[BLOCKS];  /* the least number that may still come */
	uint64_t count, wrong;
	int result;
};

static _Atomic uint64_t seen[BLOCKS]; /* sum of 1 + number */

/* Until the channel is shut down. */
static void *take_main(void *arg)
{
	struct taker *t = arg;
	uint64_t back[BARWAY_MESSAGE_MAX / 8], from, number;
	size_t bytes;
	unsigned tag;

	for (;;) {
		t->result = barway_channel_recv(rig.ch, back, sizeof(back), &bytes, &tag,
						BARWAY_FOREVER);
		if (t->result)
			return NULL;
		from = back[0] >> 48;
		number = back[0] & 0xffffffffffff;
		if (bytes < 8 || from >= BLOCKS || number < t->next[from] ||
		    !message_is(back, bytes, tag, from, number, 8)) {
			t->wrong++;
			continue;
		}
		t->next[from] = number + 1;
		seen[from] += number + 1;
		t->count++;
	}
}

/* Each receiver gets what one block sent in order, and all of them together get all of it. */
static void many_blocks(unsigned threads, uint32_t ring_lines)
{
	struct taker t[THREADS] = { 0 };
	uint64_t n = many(100000) / BLOCKS, total = 0;

	begin();
	rig_begin(&rig, ring_lines, NULL);
	memset((void *)seen, 0, sizeof(seen));
	rig.job.count = n;
	rig.job.least = 8;
	for (unsigned i = 0; i < threads; i++)
		CHECK_EQ(pthread_create(&t[i].thread, NULL, take_main, &t[i]), 0);
	rig_launch(&rig, produce, BLOCKS);
	OK(barway_soft_stream_sync(rig.stream));
	for (double end = seconds() + 60; channel_info(&rig).messages_received < n * BLOCKS;)
		CHECK(seconds() < end);
	OK(barway_channel_shutdown(rig.ch));
	for (unsigned i = 0; i < threads; i++) {
		CHECK_EQ(pthread_join(t[i].thread, NULL), 0);
		CHECK_EQ(t[i].result, -EPIPE);
		CHECK_EQ(t[i].wrong, 0);
		total += t[i].count;
	}
	CHECK_EQ(rig.out.result, 0);
	CHECK_EQ(rig.out.done, n * BLOCKS);
	CHECK_EQ(total, n * BLOCKS);
	for (unsigned i = 0; i < BLOCKS; i++)
		CHECK_EQ(seen[i], n * (n + 1) / 2);
	rig_end(&rig);
	end();
}

static void many_blocks_to_one(void)
{
	many_blocks(1, 64);
	many_blocks(1, 1024);
}

static void many_blocks_to_several(void)
{
	many_blocks(THREADS, 64);
	many_blocks(THREADS, 1024);
}

/* Messages of several CPU threads: each one's in order. */
static void take_from_many(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	uint64_t next[THREADS] = { 0 };
	struct message m;
	int ret = barway_gpu_attach(&c, &job->handle, 0, block);

	for (uint64_t i = 0; i < job->count * THREADS && !ret; i++) {
		uint64_t from;

		ret = barway_gpu_recv(&c, m.word, sizeof(m.word), &m.bytes, &m.tag, job->wait_ns,
				      0);
		from = m.word[0] >> 48;
		if (!ret && (from >= THREADS ||
			     !message_is(m.word, m.bytes, m.tag, from, next[from]++, 8)))
			ret = 1;
		job->out->done += !ret;
	}
	job->out->result = ret;
}

struct sender {
	pthread_t thread;
	uint64_t from, count;
	int result;
};

static void *sender_main(void *arg)
{
	struct sender *s = arg;
	struct message m;

	for (uint64_t i = 0; i < s->count && !s->result; i++) {
		message_make(&m, s->from, i, 8);
		s->result = barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE);
	}
	return NULL;
}

static void several_senders(void)
{
	struct sender s[THREADS] = { 0 };

	begin();
	for (unsigned k = 0; k < 2; k++) {
		rig_begin(&rig, lines[k], NULL);
		rig.job.count = many(100000) / THREADS;
		rig_launch(&rig, take_from_many, 1);
		for (unsigned i = 0; i < THREADS; i++) {
			s[i] = (struct sender){ .from = i, .count = rig.job.count };
			CHECK_EQ(pthread_create(&s[i].thread, NULL, sender_main, &s[i]), 0);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			CHECK_EQ(pthread_join(s[i].thread, NULL), 0);
			CHECK_EQ(s[i].result, 0);
		}
		OK(barway_soft_stream_sync(rig.stream));
		CHECK_EQ(rig.out.result, 0);
		CHECK_EQ(rig.out.done, rig.job.count * THREADS);
		rig_end(&rig);
	}
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(to_gpu),
		TEST(to_cpu),
		TEST(relaxed),
		TEST(both_ways_at_once),
		TEST(there_and_back),
		TEST(many_blocks_to_one),
		TEST(many_blocks_to_several),
		TEST(several_senders),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
