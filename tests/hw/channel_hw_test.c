/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between the CPU and running kernels: nothing is lost, doubled, torn or out of order.
 *
 *     CHANNEL_SOAK=1000000000 channel_hw_test soak      messages, both ways together
 *     CHANNEL_DIVIDE=100 channel_hw_test                fewer of everything
 */
#include <pthread.h>

#include "hw/channel.h"

#define ONE_WAY (1u << 16) /* bytes of a ring: small, so that it is full at times */

static uint64_t seed = 1;

/* ---- there and back ---------------------------------------------------------------------- */

static unsigned random_bytes(unsigned most)
{
	return (unsigned)(test_random(&seed) >> 33) % (most + 1);
}

#define IN_FLIGHT 16u

/*
 * Messages of all sizes to @most, up to @flight of them under way: what one direction holds, or the
 * kernel would wait for room while we do.
 */
static void echo_all(uint64_t n, unsigned flight, unsigned most)
{
	static uint64_t sent[IN_FLIGHT][BARWAY_MESSAGE_MAX / 8], got[BARWAY_MESSAGE_MAX / 8];
	unsigned sizes[IN_FLIGHT], tags[IN_FLIGHT], tag = 0;
	size_t bytes = 0;
	uint64_t out = 0, in = 0;

	while (in < n) {
		unsigned i = out % IN_FLIGHT;

		if (out < n && out - in < flight && (out == in || test_random(&seed) >> 62)) {
			sizes[i] = random_bytes(most);
			tags[i] = (unsigned)(test_random(&seed) >> 40) % (BARWAY_TAG_MAX + 1);
			test_fill(sent[i], sizes[i], out);
			OK(barway_channel_send(hw.channel, sent[i], sizes[i], tags[i], WAIT_NS));
			out++;
			continue;
		}
		i = in % IN_FLIGHT;
		OK(barway_channel_recv(hw.channel, got, sizeof(got), &bytes, &tag, WAIT_NS));
		if (bytes != sizes[i] || tag != tags[i] || memcmp(got, sent[i], bytes))
			FAIL("message %llu of %u bytes with tag %u came back as %zu bytes with tag "
			     "%u, or changed", (unsigned long long)in, sizes[i], tags[i], bytes,
			     tag);
		in++;
	}
}

static void echo_form(const struct bench_kernel *kernel, unsigned threads, unsigned most)
{
	start();
	for (uint32_t flags = 0; flags <= RELAXED; flags += RELAXED) {
		open_channel(launch, ONE_WAY);
		use_echo(kernel, threads, 50000000, UINT64_MAX, flags);
		echo_all(many(50000, 2000), IN_FLIGHT, most);
		close_channel();
	}
}

static void echo_by_a_thread(void)
{
	echo_form(&gpu_kernel_echo, 1, BARWAY_MESSAGE_MAX);
}

static void echo_by_a_warp(void)
{
	echo_form(&gpu_kernel_echo_warp, 32, BARWAY_MESSAGE_MAX);
	if (hw.soft) /* there a message of one line */
		return;
	echo_form(&gpu_kernel_echo_words, 32, BARWAY_MESSAGE_MAX);
	echo_form(&gpu_kernel_echo_eight_lines, 32, 8 * BARWAY_LINE_DATA);
	echo_form(&gpu_kernel_echo_one_line, 32, BARWAY_LINE_DATA);
}

static void echo_by_a_block(void)
{
	echo_form(&gpu_kernel_echo_block, 32, BARWAY_MESSAGE_MAX);
	echo_form(&gpu_kernel_echo_block, 256, BARWAY_MESSAGE_MAX);
}

/* The smallest rings: every few messages they wrap, and what was taken has to be said often. */
static void echo_through_small_rings(void)
{
	start();
	open_channel(launch, BARWAY_RING_LINES_MIN * BARWAY_LINE_BYTES);
	use_echo(&gpu_kernel_echo_warp, 32, 50000000, UINT64_MAX, 0);
	echo_all(many(50000, 2000), BARWAY_RING_LINES_MIN / BARWAY_MESSAGE_LINES,
		 BARWAY_MESSAGE_MAX);
	close_channel();
}

/* ---- one way ----------------------------------------------------------------------------- */

static void send_numbered(uint64_t first, uint64_t n, uint32_t least, uint32_t most)
{
	uint64_t message[BARWAY_MESSAGE_MAX / 8 + 1];

	for (uint64_t i = first; i < first + n; i++) {
		uint64_t key = gpu_message_key(0, i);
		uint32_t bytes = gpu_message_bytes(key, least, most);

		gpu_message_make(message, key, bytes);
		OK(barway_channel_send(hw.channel, message, bytes, 0, WAIT_NS));
	}
}

static void to_gpu(const struct bench_kernel *kernel, unsigned threads, uint32_t least,
		   uint32_t most)
{
	uint64_t n = many(200000, 5000);

	start();
	open_channel(NULL, ONE_WAY);
	start_traffic(hw.stream, kernel, 1, threads,
		      (struct gpu_traffic){ .count = n, .least = least, .most = most, .check = 1 },
		      true);
	send_numbered(0, n, least, most);
	GPU_OK(bench_stream_sync(hw.stream));
	check_result(&hw.results[PRODUCERS], n);
	close_channel();
}

static void to_gpu_to_a_thread(void)
{
	to_gpu(&gpu_kernel_consume, 1, 0, BARWAY_MESSAGE_MAX);
	to_gpu(&gpu_kernel_consume, 1, 0, BARWAY_LINE_DATA);
}

static void to_gpu_to_a_warp(void)
{
	to_gpu(&gpu_kernel_consume_warp, 32, 0, BARWAY_MESSAGE_MAX);
	to_gpu(&gpu_kernel_consume_warp, 32, 0, BARWAY_LINE_DATA);
}

static void to_gpu_to_each_thread(void)
{
	to_gpu(&gpu_kernel_consume_each, 32, 0, BARWAY_MESSAGE_MAX);
	to_gpu(&gpu_kernel_consume_each, 32, 0, BARWAY_LINE_DATA);
	to_gpu(&gpu_kernel_consume_each, 32, 57, 64);
}

/* A consumer that would not notice wrong words would make all of the above mean nothing. */
static void to_gpu_a_wrong_message_is_seen(void)
{
	uint64_t message[4];

	start();
	open_channel(NULL, ONE_WAY);
	start_traffic(hw.stream, &gpu_kernel_consume_warp, 1, 32,
		      (struct gpu_traffic){ .count = 3, .least = 32, .most = 32, .check = 1 },
		      true);
	for (uint64_t i = 0; i < 3; i++) {
		gpu_message_make(message, gpu_message_key(0, i), 32);
		message[3] ^= i == 1 ? 1ull << 63 : 0;
		OK(barway_channel_send(hw.channel, message, 32, 0, WAIT_NS));
	}
	GPU_OK(bench_stream_sync(hw.stream));
	CHECK_EQ(hw.results[PRODUCERS].count, 3);
	CHECK_EQ(hw.results[PRODUCERS].wrong, 1);
	CHECK_EQ(hw.results[PRODUCERS].first, 1);
	close_channel();
}

/* And so would the CPU's own check. */
static void to_cpu_a_wrong_message_is_seen(void)
{
	uint64_t message[4], key = gpu_message_key(7, 9);

	start();
	for (uint32_t bytes = 0; bytes <= sizeof(message); bytes++) {
		gpu_message_make(message, key, bytes);
		CHECK(gpu_message_right(message, key, bytes));
		for (uint32_t bit = 0; bit < bytes * 8; bit++) {
			message[bit / 64] ^= 1ull << bit % 64;
			CHECK(!gpu_message_right(message, key, bytes));
			message[bit / 64] ^= 1ull << bit % 64;
		}
		CHECK(!bytes || !gpu_message_right(message, key + 1, bytes));
	}
}

/* Takes @n messages of @producers and checks each; NULL or what was wrong. */
static const char *take_numbered(uint64_t n, unsigned producers, uint32_t least, uint32_t most)
{
	static uint64_t next[PRODUCERS], message[BARWAY_MESSAGE_MAX / 8];
	static char text[512];

	memset(next, 0, sizeof(next));
	for (uint64_t i = 0; i < n; i++) {
		unsigned who = 0;
		size_t bytes = 0;
		uint64_t key;
		int ret = barway_channel_recv(hw.channel, message, sizeof(message), &bytes, &who,
					      WAIT_NS);

		if (ret < 0) {
			snprintf(text, sizeof(text), "message %llu: %d: %s",
				 (unsigned long long)i, ret, barway_errmsg());
			return text;
		}
		key = gpu_message_key(who, who < producers ? next[who] : 0);
		if (who >= producers || bytes != gpu_message_bytes(key, least, most) ||
		    !gpu_message_right(message, key, (uint32_t)bytes)) {
			snprintf(text, sizeof(text), "message %llu, of %zu bytes, is not the "
				 "%lluth of producer %u", (unsigned long long)i, bytes,
				 (unsigned long long)(who < producers ? next[who] : 0), who);
			return text;
		}
		next[who]++;
	}
	return NULL;
}

static void to_cpu(const struct bench_kernel *kernel, unsigned blocks, unsigned threads,
		   unsigned each, uint32_t most, uint64_t n)
{
	unsigned producers;
	const char *wrong;

	start();
	producers = blocks * (hw.soft ? 1 : each);
	n = n / producers ? n / producers : 1;
	open_channel(NULL, ONE_WAY);
	start_traffic(hw.stream, kernel, blocks, threads,
		      (struct gpu_traffic){ .count = n, .most = most,
					    .flags = producers == 1 ? SOLE : 0 }, false);
	wrong = take_numbered(n * producers, producers, 0, most);
	if (wrong)
		FAIL("%s, %u blocks of %u: %s", kernel->name, blocks, threads, wrong);
	GPU_OK(bench_stream_sync(hw.stream));
	for (unsigned i = 0; i < producers; i++)
		check_result(&hw.results[i], n);
	CHECK_EQ(barway_channel_recv(hw.channel, &n, sizeof(n), NULL, NULL, 0), -EAGAIN);
	close_channel();
}

static void to_cpu_from_warps(void)
{
	start();
	to_cpu(&gpu_kernel_produce_warp, 1, 32, 1, BARWAY_MESSAGE_MAX, many(200000, 5000));
	to_cpu(&gpu_kernel_produce_warp, 1, 1024, 32, BARWAY_MESSAGE_MAX, many(200000, 5000));
	to_cpu(&gpu_kernel_produce_warp, hw.soft ? 4 : 128, 1024, 32, BARWAY_MESSAGE_MAX,
	       many(1000000, 5000));
	to_cpu(&gpu_kernel_produce_warp, hw.soft ? 4 : 128, 1024, 32, BARWAY_LINE_DATA,
	       many(4000000, 5000));
}

static void to_cpu_from_each_thread(void)
{
	start();
	to_cpu(&gpu_kernel_produce_each, 1, 32, 32, BARWAY_LINE_DATA, many(200000, 5000));
	to_cpu(&gpu_kernel_produce_each, 1, 1024, 1024, 2 * BARWAY_LINE_DATA, many(400000, 5000));
	to_cpu(&gpu_kernel_produce_each, hw.soft ? 4 : 128, 32, 32, BARWAY_LINE_DATA,
	       many(4000000, 5000));
}

/* ---- other memory that messages tell of ----------------------------------------------------- */

#define MEMORY 65536u

static void command(enum gpu_work_tag what, struct gpu_work_command c)
{
	static uint64_t number;
	struct gpu_work_answer answer = { 0 };
	size_t bytes = 0;
	unsigned tag = 99;

	c.number = ++number;
	OK(barway_channel_send(hw.channel, &c, sizeof(c), what, WAIT_NS));
	OK(barway_channel_recv(hw.channel, &answer, sizeof(answer), &bytes, &tag, WAIT_NS));
	CHECK_EQ(bytes, sizeof(answer));
	CHECK_EQ(tag, what);
	CHECK_EQ(answer.number, c.number);
	CHECK_EQ(answer.error, 0);
}

/*
 * Is @n bytes of host memory that the device writes what it should be? Word by word: what makes the
 * CPU's message go before the device's next store is in GPU memory, where ThreadSanitizer does not
 * see it.
 */
static bool same_words(const uint64_t *device_writes, const uint64_t *want, size_t n)
{
	for (size_t i = 0; i < n / 8; i++) {
		if (__atomic_load_n(&device_writes[i], __ATOMIC_RELAXED) != want[i])
			return false;
	}
	return true;
}

/*
 * The CPU stores into GPU memory through a mapping and then sends; the kernel copies it to pinned
 * host memory and then answers: both times what was written before the message has to be there.
 */
static void fences_order_other_memory(void)
{
	static uint64_t data[MEMORY / 8];
	struct barway_mapping *map;
	uint64_t gpu, host_addr;
	void *host;

	start();
	OK(barway_mem_alloc(hw.dev, MEMORY, &gpu));
	OK(barway_host_alloc(hw.dev, MEMORY, &host, &host_addr));
	OK(barway_map(hw.ctx, gpu, MEMORY, NULL, &map));
	open_channel(launch, ONE_WAY);
	GPU_OK(bench_gpu_load(hw.gpu, &gpu_kernel_work));
	hw.kernel = &gpu_kernel_work;
	hw.threads = 256;
	hw.param.work = (struct gpu_work){ .channel = hw.handle, .idle_ns = 50000000 };
	hw.param_bytes = sizeof(hw.param.work);
	for (uint64_t i = 0; i < many(5000, 500); i++) {
		size_t n = (test_random(&seed) >> 33) % (i % 8 ? 64 : MEMORY / 16) * 16 + 16;

		n = n < MEMORY ? n : MEMORY;
		test_fill(data, n, i);
		OK(barway_copy_to_by(map, BARWAY_METHOD_CPU, 0, data, n));
		command(GPU_WORK_COPY, (struct gpu_work_command){ .to = host_addr, .from = gpu,
								  .bytes = n });
		if (!same_words(host, data, n))
			FAIL("round %llu: %zu bytes are not what was stored before the command",
			     (unsigned long long)i, n);
	}
	command(GPU_WORK_FILL, (struct gpu_work_command){ .to = gpu, .bytes = MEMORY,
							  .value = 77 });
	command(GPU_WORK_COPY, (struct gpu_work_command){ .to = host_addr, .from = gpu,
							  .bytes = MEMORY });
	memset(data, 77, sizeof(data));
	CHECK(same_words(host, data, MEMORY));
	close_channel();
	OK(barway_unmap(map));
	OK(barway_host_free(hw.ctx, host));
	OK(barway_mem_free(hw.ctx, gpu));
}

/* ---- leaving and coming back ------------------------------------------------------------- */

/* Pauses around the time after which the kernel leaves: no message is left lying. */
static void a_kernel_that_left_comes_back(void)
{
	struct barway_channel_info info = { .size = sizeof(info) };
	struct timespec pause = { 0 };
	uint64_t n = many(2000, 200), message = 0;

	start();
	open_channel(launch, ONE_WAY);
	use_echo(&gpu_kernel_echo, 1, 200000, UINT64_MAX, 0);
	for (uint64_t i = 0; i < n; i++) {
		pause.tv_nsec = (long)(test_random(&seed) >> 33) % 500000;
		nanosleep(&pause, NULL);
		OK(barway_channel_send(hw.channel, &i, sizeof(i), 0, WAIT_NS));
		OK(barway_channel_recv(hw.channel, &message, sizeof(message), NULL, NULL, WAIT_NS));
		CHECK_EQ(message, i);
	}
	OK(barway_channel_query(hw.channel, &info));
	printf("  %llu messages, %llu launches\n", (unsigned long long)n,
	       (unsigned long long)info.launches);
	CHECK(info.launches > 1 && info.launches <= n);
	close_channel();
}

/* ---- soak -------------------------------------------------------------------------------- */

struct soak {
	pthread_t thread;
	uint64_t n;
	double seconds;
	const char *wrong;
};

#define SOAK_WARPS 128u
#define SOAK_MOST BARWAY_LINE_DATA

static void *soak_sender(void *arg)
{
	struct soak *s = arg;
	uint64_t message[BARWAY_MESSAGE_MAX / 8 + 1];
	double began = now_s();

	for (uint64_t i = 0; i < s->n && !s->wrong; i++) {
		uint64_t key = gpu_message_key(0, i);
		uint32_t bytes = gpu_message_bytes(key, 0, SOAK_MOST);

		gpu_message_make(message, key, bytes);
		if (barway_channel_send(hw.channel, message, bytes, 0, WAIT_NS) < 0)
			s->wrong = barway_errmsg(); /* of this thread: alive until it is joined */
	}
	s->seconds = now_s() - began;
	return NULL;
}

/*
 * Both ways at once, numbers and contents of all messages checked. CHANNEL_SOAK messages
 * together; a twentieth of them goes to the GPU, where one warp takes them.
 */
static void soak(void)
{
	unsigned producers;
	uint64_t each;
	struct soak s = { 0 };
	const char *wrong;
	double began;

	start();
	producers = hw.soft ? 4 : SOAK_WARPS;
	s.n = setting("CHANNEL_SOAK", many(10000000, 100000));
	each = (s.n - s.n / 20) / producers;
	GPU_OK(bench_gpu_load(hw.gpu, &gpu_kernel_consume_warp));
	GPU_OK(bench_gpu_load(hw.gpu, &gpu_kernel_produce_warp)); /* not while the other runs */
	s.n /= 20;
	open_channel(NULL, 1 << 20);
	start_traffic(hw.stream, &gpu_kernel_consume_warp, 1, 32,
		      (struct gpu_traffic){ .count = s.n, .most = SOAK_MOST, .flags = RELAXED,
					    .check = 1 }, true);
	start_traffic(hw.other, &gpu_kernel_produce_warp, hw.soft ? 4 : SOAK_WARPS / 4, 128,
		      (struct gpu_traffic){ .count = each, .most = SOAK_MOST, .flags = RELAXED },
		      false);
	CHECK_EQ(pthread_create(&s.thread, NULL, soak_sender, &s), 0);
	began = now_s();
	wrong = take_numbered(each * producers, producers, 0, SOAK_MOST);
	began = now_s() - began;
	pthread_join(s.thread, NULL);
	if (wrong || s.wrong)
		FAIL("%s", wrong ? wrong : s.wrong);
	GPU_OK(bench_stream_sync(hw.stream));
	GPU_OK(bench_stream_sync(hw.other));
	check_result(&hw.results[PRODUCERS], s.n);
	for (unsigned i = 0; i < producers; i++)
		check_result(&hw.results[i], each);
	printf("  to the CPU: %llu messages in %.1f s, %.2f million/s; to the GPU: %llu in %.1f s, "
	       "%.2f million/s\n", (unsigned long long)(each * producers), began,
	       (double)(each * producers) / began / 1e6, (unsigned long long)s.n, s.seconds,
	       (double)s.n / s.seconds / 1e6);
	close_channel();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(echo_by_a_thread),
		TEST(echo_by_a_warp),
		TEST(echo_by_a_block),
		TEST(echo_through_small_rings),
		TEST(to_gpu_to_a_thread),
		TEST(to_gpu_to_a_warp), TEST(to_gpu_to_each_thread),
		TEST(to_gpu_a_wrong_message_is_seen),
		TEST(to_cpu_a_wrong_message_is_seen),
		TEST(to_cpu_from_warps),
		TEST(to_cpu_from_each_thread),
		TEST(fences_order_other_memory),
		TEST(a_kernel_that_left_comes_back),
		TEST(soak),
		TEST(stop),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
