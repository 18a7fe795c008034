/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels: every function and every error of it, against kernels of the soft GPU. */
#include "channel_test.h"
#include "sanitizers.h"

static struct rig rig;

/* ---- open and close ------------------------------------------------------------------------ */

static void opens_with_defaults(void)
{
	struct barway_channel_gpu handle;
	struct barway_channel_info i;
	struct barway_channel *ch;

	begin();
	OK(barway_channel_open(gpu[0], NULL, &ch));
	OK(barway_channel_gpu(ch, &handle));
	CHECK_EQ(handle.rx_lines, 1024);
	CHECK_EQ(handle.tx_lines, 1024);
	CHECK_EQ(handle.gpu % 64, 0);
	CHECK_EQ(handle.host % 64, 0);
	CHECK_EQ(handle.reserved[0] | handle.reserved[1], 0);
	rig.ch = ch;
	i = channel_info(&rig);
	CHECK_EQ(i.to_gpu_bytes, 65536);
	CHECK_EQ(i.to_cpu_bytes, 65536);
	CHECK_EQ(i.sent | i.sent_taken | i.received | i.messages_sent | i.messages_received |
		 i.launches | i.left, 0);
	CHECK_HAS(i.path, "mapped by soft");
	CHECK_HAS(i.path, "pinned host memory");
	OK(barway_channel_close(ch));
	end();
}

static bool from_a_register(void)
{
	struct barway_channel_info i;

	begin();
	OK(barway_channel_open(gpu[0], NULL, &rig.ch));
	i = channel_info(&rig);
	OK(barway_channel_close(rig.ch));
	end();
	return strstr(i.path, "one line from a register");
}

/* Where the CPU can; never past a mapping whose stores are to be shuffled. */
static void how_a_line_is_stored(void)
{
	bool can = false;

#if defined(__x86_64__) && !TSAN
	can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	      !getenv("BARWAY_SOFT_SHUFFLE");
#endif
	CHECK_EQ(from_a_register(), can);
	param("cpu_mask", "c");
	CHECK_EQ(from_a_register(), false);
	param("cpu_mask", "all");
}

static void open_refuses(struct barway_channel_options o, int err, const char *text)
{
	struct barway_channel *ch = (struct barway_channel *)&rig;
	uint64_t memory = memory_used(0), aperture = bar1_used(0);

	FAILS(barway_channel_open(gpu[0], &o, &ch), err, text);
	CHECK(ch == (struct barway_channel *)&rig);
	CHECK_EQ(memory_used(0), memory);
	CHECK_EQ(bar1_used(0), aperture);
}

#define OPTIONS(...) (struct barway_channel_options){ .size = sizeof(struct \
	barway_channel_options), __VA_ARGS__ }

static void open_errors(void)
{
	struct {
		struct barway_channel_options o;
		uint64_t newer;
	} longer = { .o = { .size = sizeof(longer) }, .newer = 1 };
	struct barway_channel *ch;

	begin();
	open_refuses(OPTIONS(.to_gpu_bytes = 12288), EINVAL, "to_gpu_bytes: 12288");
	open_refuses(OPTIONS(.to_gpu_bytes = 2048), EINVAL, "4096 to 67108864");
	open_refuses(OPTIONS(.to_cpu_bytes = 65), EINVAL, "to_cpu_bytes: 65");
	open_refuses(OPTIONS(.to_cpu_bytes = 1u << 31), EINVAL, "to_cpu_bytes");
	open_refuses(OPTIONS(.reserved = 1), EINVAL, "reserved");
	open_refuses((struct barway_channel_options){ .size = 8 }, EINVAL, "size field");
	open_refuses(OPTIONS(.to_gpu_bytes = 64u << 20), ENOMEM, "ring to the GPU");
	open_refuses(OPTIONS(.to_gpu_bytes = 16u << 20), ENOMEM, "map the ring");
	FAILS(barway_channel_open(gpu[0], &longer.o, &ch), E2BIG, "not zero");
	FAILS(barway_channel_open(gpu[0], NULL, NULL), EINVAL, "out is NULL");
	FAILS(barway_channel_open(NULL, NULL, &ch), ESTALE, "device");
	longer.newer = 0;
	OK(barway_channel_open(gpu[0], &longer.o, &ch));
	OK(barway_channel_close(ch));
	end();
}

static void stale_handles(void)
{
	struct barway_channel_info i = { .size = sizeof(i) };
	struct barway_channel_gpu handle;
	struct barway_channel *ch;
	char byte = 0;

	begin();
	OK(barway_channel_open(gpu[0], NULL, &ch));
	OK(barway_channel_close(ch));
	for (int turn = 0; turn < 2; turn++) {
		FAILS(barway_channel_close(ch), ESTALE, "channel");
		FAILS(barway_channel_shutdown(ch), ESTALE, "channel");
		FAILS(barway_channel_gpu(ch, &handle), ESTALE, "channel");
		FAILS(barway_channel_send(ch, &byte, 1, 0, 0), ESTALE, "channel");
		FAILS(barway_channel_recv(ch, &byte, 1, NULL, NULL, 0), ESTALE, "channel");
		FAILS(barway_channel_poll(ch), ESTALE, "channel");
		FAILS(barway_channel_query(ch, &i), ESTALE, "channel");
		ch = (struct barway_channel *)gpu[0]; /* of another kind */
	}
	end();
}

static void bad_arguments(void)
{
	struct barway_channel_info i = { .size = 4 };
	char bytes[BARWAY_MESSAGE_MAX + 1] = { 0 };

	begin();
	rig_begin(&rig, 0, NULL);
	FAILS(barway_channel_send(rig.ch, bytes, 1025, 0, 0), EMSGSIZE, "1025 bytes");
	FAILS(barway_channel_send(rig.ch, bytes, 1, 4096, 0), EINVAL, "tag 4096");
	FAILS(barway_channel_send(rig.ch, NULL, 1, 0, 0), EINVAL, "NULL");
	FAILS(barway_channel_recv(rig.ch, NULL, 1, NULL, NULL, 0), EINVAL, "NULL");
	FAILS(barway_channel_gpu(rig.ch, NULL), EINVAL, "NULL");
	FAILS(barway_channel_query(rig.ch, &i), EINVAL, "size field");
	CHECK_EQ(channel_info(&rig).sent, 0);
	rig_end(&rig);
	end();
}

static void nothing_stays(void)
{
	uint64_t memory, aperture;
	unsigned n;

	begin();
	memory = memory_used(0);
	aperture = bar1_used(0);
	rig_begin(&rig, 0, NULL);
	CHECK(memory_used(0) > memory);
	CHECK(bar1_used(0) > aperture);
	rig_end(&rig);
	n = maps();
	for (int i = 0; i < 20; i++) {
		rig_begin(&rig, 64u << i % 8, echo);
		round_trip(&rig, (unsigned)i);
		rig_end(&rig);
		CHECK_EQ(memory_used(0), memory);
		CHECK_EQ(bar1_used(0), aperture);
	}
	if (!emulated() && !SANITIZED)
		CHECK(maps() <= n + 4); /* of the threads of streams, which libc keeps */
	end();
}

/* ---- messages ------------------------------------------------------------------------------ */

static void every_size_and_tag(void)
{
	unsigned char data[BARWAY_MESSAGE_MAX + 8], back[BARWAY_MESSAGE_MAX + 8];
	size_t bytes, shift;
	unsigned tag;

	begin();
	rig_begin(&rig, 0, echo);
	for (unsigned n = 0; n <= BARWAY_MESSAGE_MAX; n++) {
		shift = n % 8; /* any alignment will do */
		test_fill(data, sizeof(data), n);
		memset(back, 0xa5, sizeof(back));
		OK(barway_channel_send(rig.ch, data + shift, n, n * 4 & 4095, PATIENCE));
		OK(barway_channel_recv(rig.ch, back + shift, BARWAY_MESSAGE_MAX, &bytes, &tag,
				       PATIENCE));
		CHECK_EQ(bytes, n);
		CHECK_EQ(tag, n * 4 & 4095);
		CHECK(!memcmp(data + shift, back + shift, n));
		for (size_t i = 0; i < sizeof(back); i++)
			CHECK((i >= shift && i < shift + n) || back[i] == 0xa5);
	}
	OK(barway_channel_send(rig.ch, NULL, 0, 4095, PATIENCE));
	OK(barway_channel_recv(rig.ch, NULL, 0, NULL, NULL, PATIENCE));
	CHECK_EQ(channel_info(&rig).messages_sent, BARWAY_MESSAGE_MAX + 2);
	CHECK_EQ(channel_info(&rig).messages_received, BARWAY_MESSAGE_MAX + 2);
	CHECK_EQ(channel_info(&rig).sent, channel_info(&rig).received);
	rig_end(&rig);
	end();
}

/* Bits that the marks displace, each alone, over many laps of the smallest ring. */
static void every_bit(void)
{
	uint64_t data[7], back[7];
	size_t bytes;

	begin();
	rig_begin(&rig, 64, echo);
	for (unsigned lap = 0; lap < 4; lap++)
		for (unsigned bit = 0; bit < 7 * 64; bit++) {
			memset(data, lap & 1 ? 0xff : 0, sizeof(data));
			data[bit / 64] ^= 1ull << bit % 64;
			OK(barway_channel_send(rig.ch, data, sizeof(data), 0, PATIENCE));
			OK(barway_channel_recv(rig.ch, back, sizeof(back), &bytes, NULL,
					       PATIENCE));
			CHECK_EQ(bytes, sizeof(data));
			CHECK(!memcmp(data, back, sizeof(data)));
		}
	rig_end(&rig);
	end();
}

/* The short way through registers, for what fits in a line. */
static void echo_lines(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	uint64_t w[BARWAY_MESSAGE_MAX / 8];
	uint32_t bytes, tag;
	int ret = barway_gpu_attach(&c, &job->handle, 0, block);

	while (!ret) {
		ret = barway_gpu_recv_line(&c, w, &bytes, &tag, job->wait_ns, job->flags);
		if (!ret) {
			for (uint32_t i = (bytes + 7) / 8; i < 7; i++)
				job->out->result = w[i] ? 1 : job->out->result;
			ret = barway_gpu_send_line(&c, w, bytes, tag, job->wait_ns, job->flags);
		} else if (ret == BARWAY_GPU_EMSGSIZE) {
			ret = barway_gpu_recv(&c, w, sizeof(w), &bytes, &tag, 0, job->flags);
			if (!ret && barway_gpu_send_line(&c, w, bytes, tag, 0, job->flags) !=
					    BARWAY_GPU_EMSGSIZE)
				job->out->result = 2;
			if (!ret)
				ret = barway_gpu_send(&c, w, bytes, tag, job->wait_ns, job->flags);
		}
	}
	barway_gpu_leave(&c);
}

static void through_registers(void)
{
	unsigned char data[64], back[64];
	size_t bytes;
	unsigned tag;

	begin();
	for (unsigned relaxed = 0; relaxed < 2; relaxed++) {
		rig_begin(&rig, 64, echo_lines);
		rig.job.flags = relaxed ? BARWAY_GPU_RELAXED : 0;
		for (unsigned i = 0; i < 2000; i++) {
			unsigned n = i % 64;

			test_fill(data, sizeof(data), i);
			OK(barway_channel_send(rig.ch, data, n, i, PATIENCE));
			OK(barway_channel_recv(rig.ch, back, sizeof(back), &bytes, &tag,
					       PATIENCE));
			CHECK_EQ(bytes, n);
			CHECK_EQ(tag, i);
			CHECK(!memcmp(data, back, n));
		}
		CHECK_EQ(rig.out.result, 0);
		rig_end(&rig);
	}
	end();
}

static void too_large_stays(void)
{
	unsigned char back[100];
	struct message m;
	size_t bytes = 0;
	unsigned tag = 7777;

	begin();
	rig_begin(&rig, 0, echo);
	test_fill(m.word, 100, 1);
	OK(barway_channel_send(rig.ch, m.word, 100, 12, PATIENCE));
	FAILS(barway_channel_recv(rig.ch, back, 99, &bytes, &tag, PATIENCE), EMSGSIZE,
	      "100 bytes and there is room for 99");
	CHECK_EQ(bytes, 100);
	CHECK_EQ(tag, 7777);
	FAILS(barway_channel_recv(rig.ch, NULL, 0, NULL, NULL, 0), EMSGSIZE, "it stays");
	OK(barway_channel_recv(rig.ch, back, 100, &bytes, &tag, 0));
	CHECK_EQ(tag, 12);
	CHECK(!memcmp(back, m.word, 100));
	rig_end(&rig);
	end();
}

/* Without a kernel: fills up, says so, and everything is there when one comes. */
static void full_ring(void)
{
	uint64_t n = 0;
	struct message m;
	int ret;

	begin();
	rig_begin(&rig, 64, NULL);
	CHECK_EQ(barway_channel_poll(rig.ch), BARWAY_CHANNEL_WRITABLE);
	for (;; n++) {
		message_make(&m, 0, n, 0);
		ret = barway_channel_send(rig.ch, m.word, m.bytes, m.tag, 0);
		if (ret)
			break;
	}
	CHECK_EQ(ret, -EAGAIN);
	CHECK_HAS(barway_errmsg(), "no room");
	CHECK(channel_info(&rig).sent <= 64);
	CHECK(channel_info(&rig).sent + BARWAY_MESSAGE_LINES_OF(m.bytes) > 64);
	CHECK_EQ(channel_info(&rig).messages_sent, n);
	FAILS(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, 2 * MS), ETIMEDOUT, "64 lines");
	CHECK_EQ(barway_channel_poll(rig.ch) & ~BARWAY_CHANNEL_WRITABLE, 0);
	rig.job.count = n + 1;
	rig_launch(&rig, consume, 1);
	OK(barway_channel_send(rig.ch, m.word, m.bytes, m.tag, PATIENCE));
	OK(barway_soft_stream_sync(rig.stream));
	CHECK_EQ(rig.out.result, 0);
	CHECK_EQ(rig.out.done, n + 1);
	CHECK_EQ(channel_info(&rig).sent_taken, channel_info(&rig).sent);
	CHECK_EQ(barway_channel_poll(rig.ch), BARWAY_CHANNEL_WRITABLE);
	rig_end(&rig);
	end();
}

static void try_and_poll(void)
{
	unsigned char back[BARWAY_MESSAGE_MAX];
	double deadline;

	begin();
	rig_begin(&rig, 0, NULL);
	for (int i = 0; i < 100; i++)
		FAILS(barway_channel_recv(rig.ch, back, sizeof(back), NULL, NULL, 0), EAGAIN,
		      "no message");
	rig.job.count = 3;
	rig_launch(&rig, produce, 1);
	deadline = seconds() + PATIENCE / 1e9;
	while (!(barway_channel_poll(rig.ch) & BARWAY_CHANNEL_READABLE))
		CHECK(seconds() < deadline);
	for (unsigned i = 0; i < 3; i++) {
		size_t bytes;
		unsigned tag;
		int ret;

		do
			ret = barway_channel_recv(rig.ch, back, sizeof(back), &bytes, &tag, 0);
		while (ret == -EAGAIN && seconds() < deadline);
		OK(ret);
		CHECK(message_is(back, bytes, tag, 0, i, 0));
	}
	CHECK_EQ(barway_channel_poll(rig.ch), BARWAY_CHANNEL_WRITABLE);
	rig_end(&rig);
	end();
}

/* Sends a few, and waits until it has been told that all of the ring is free. */
static void wait_for_credit(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;

	produce(block, arg);
	if (barway_gpu_attach(&c, &job->handle, 0, block))
		return;
	while (!barway_gpu_closed(&c) && barway_gpu_ld(c.gpu + BARWAY_GPU_TX_CREDIT) != c.tx_head)
		sleep_ms(1);
	job->out->go = !barway_gpu_closed(&c);
}

/* Who finds nothing more to take says what was taken: then any number of lines has room. */
static void idle_gives_credit(void)
{
	uint64_t back[BARWAY_MESSAGE_MAX / 8];
	double end_at;
	int ret;

	begin();
	for (unsigned waits = 0; waits < 2; waits++) {
		rig_begin(&rig, 1024, NULL);
		rig.job.count = 2;
		rig_launch(&rig, wait_for_credit, 1);
		for (end_at = seconds() + 5; !rig.out.go && seconds() < end_at;) {
			ret = barway_channel_recv(rig.ch, back, sizeof(back), NULL, NULL,
						  waits ? MS : 0);
			CHECK(!ret || ret == (waits ? -ETIMEDOUT : -EAGAIN));
		}
		CHECK(rig.out.go);
		CHECK_EQ(channel_info(&rig).messages_received, 2);
		rig_end(&rig);
	}
	end();
}

/* The best of some: others want the CPU too. */
static void deadlines(void)
{
	static const uint64_t waits[] = { 1, 20000, 70000, 300000, 1 * MS, 20 * MS };
	double best, late, t;
	char byte;

	begin();
	rig_begin(&rig, 0, NULL);
	for (unsigned k = 0; k < N(waits); k++) {
		best = 1;
		for (int i = 0; i < 20; i++) {
			t = seconds();
			FAILS(barway_channel_recv(rig.ch, &byte, 1, NULL, NULL, waits[k]),
			      ETIMEDOUT, "no message");
			late = seconds() - t - (double)waits[k] / 1e9;
			CHECK(late > -1e-6);
			best = late < best ? late : best;
		}
		CHECK(best < (SANITIZED || emulated() ? 5e-3 : 2e-4));
	}
	rig_end(&rig);
	end();
}

/* What a message announces is there: through another mapping, and in host memory. */
#define ANSWERS 20000
static uint64_t answer[ANSWERS + 1]; /* of a kernel's, in plain memory */

static void announce(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	uint64_t said[2], *data, seen;
	uint32_t bytes, tag;

	if (barway_gpu_attach(&c, &job->handle, 0, block))
		return;
	for (uint64_t i = 1; i <= job->count; i++) {
		if (barway_gpu_recv(&c, said, sizeof(said), &bytes, &tag, PATIENCE, 0))
			return;
		data = barway_soft_deref(block, said[0], GRANULE);
		seen = data ? barway_gpu_ld((uintptr_t)(data + said[1])) : 0;
		answer[i] = i * 7;
		if (seen == i)
			job->out->done++;
		if (barway_gpu_send(&c, &seen, 8, 0, PATIENCE, 0))
			return;
	}
}

static void announces_other_memory(void)
{
	struct barway_mapping *m;
	uint64_t addr, word, said[2];

	begin();
	addr = alloc(0, GRANULE);
	m = map(addr, GRANULE);
	rig_begin(&rig, 0, NULL);
	rig.job.count = many(ANSWERS) < ANSWERS ? many(ANSWERS) : ANSWERS;
	rig_launch(&rig, announce, 1);
	for (uint64_t i = 1; i <= rig.job.count; i++) {
		said[0] = addr;
		said[1] = i * 13 % (GRANULE / 8);
		OK(barway_copy_to(m, said[1] * 8, &i, 8));
		OK(barway_channel_send(rig.ch, said, sizeof(said), 0, PATIENCE));
		OK(barway_channel_recv(rig.ch, &word, 8, NULL, NULL, PATIENCE));
		CHECK_EQ(word, i);
		CHECK_EQ(answer[i], i * 7);
	}
	OK(barway_soft_stream_sync(rig.stream));
	CHECK_EQ(rig.out.done, rig.job.count);
	rig_end(&rig);
	OK(barway_unmap(m));
	release(addr);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(opens_with_defaults),
		TEST(how_a_line_is_stored),
		TEST(open_errors),
		TEST(stale_handles),
		TEST(bad_arguments),
		TEST(nothing_stays),
		TEST(every_size_and_tag),
		TEST(every_bit),
		TEST(through_registers),
		TEST(too_large_stays),
		TEST(full_ring),
		TEST(try_and_poll),
		TEST(idle_gives_credit),
		TEST(deadlines),
		TEST(announces_other_memory),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
