/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * examples/work_queue [IDLE_US [COMMANDS]]: commands to a kernel that stays for a while, without
 * a launch for each. The kernel is gpu/work.cu: it takes commands from a channel, does them and
 * answers. When none has come for IDLE_US microseconds (default 200) it leaves, so that it holds
 * nothing up for longer (barway.h says what a running kernel holds up); the next command launches
 * it again.
 */
#include <time.h>

#include "examples/example.h"
#include "gpu/kernels.h"

#define MEMORY 65536u
#define THREADS 256u
#define WAIT 10000000000u /* nanoseconds */

struct queue {
	struct example e;
	struct barway_channel *channel;
	struct gpu_work param;
	uint64_t number;
};

/* The channel calls this when a command waits and no kernel is there; always on the same stream. */
static int launch(void *arg)
{
	struct queue *q = arg;

	return bench_gpu_launch(q->e.stream, &gpu_kernel_work, 1, THREADS, &q->param,
				sizeof(q->param));
}

static void command(struct queue *q, enum gpu_work_tag what, struct gpu_work_command *c)
{
	struct gpu_work_answer answer;
	size_t bytes;
	unsigned tag;

	c->number = q->number++;
	OK(barway_channel_send(q->channel, c, sizeof(*c), what, WAIT));
	OK(barway_channel_recv(q->channel, &answer, sizeof(answer), &bytes, &tag, WAIT));
	if (bytes != sizeof(answer) || tag != what || answer.number != c->number || answer.error) {
		fprintf(stderr, "command %llu failed: %lld\n", (unsigned long long)c->number,
			(long long)answer.error);
		exit(1);
	}
}

/* Fills GPU memory and copies it to pinned host memory, both on the GPU; is the host's right? */
static void fill_and_copy(struct queue *q, uint64_t gpu, uint64_t host_addr,
			  const unsigned char *host, unsigned value)
{
	struct gpu_work_command fill = { .to = gpu, .bytes = MEMORY, .value = value };
	struct gpu_work_command copy = { .to = host_addr, .from = gpu, .bytes = MEMORY };

	command(q, GPU_WORK_FILL, &fill);
	command(q, GPU_WORK_COPY, &copy);
	for (size_t i = 0; i < MEMORY; i++) {
		unsigned char byte = __atomic_load_n(&host[i], __ATOMIC_RELAXED);

		if (byte != (unsigned char)value) {
			fprintf(stderr, "byte %zu is %u instead of %u\n", i, byte, value & 255);
			exit(1);
		}
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static double null_commands(struct queue *q, double *us, unsigned n)
{
	struct gpu_work_command nothing = { 0 };

	for (unsigned i = 0; i < n; i++) {
		double began = now_us();

		command(q, GPU_WORK_NOTHING, &nothing);
		us[i] = now_us() - began;
	}
	return median(us, n);
}

/* Each after a pause that is longer than the kernel waits. */
static double after_pauses(struct queue *q, double *us, unsigned n)
{
	struct timespec pause = { .tv_nsec = 0 };
	struct gpu_work_command nothing = { 0 };
	uint64_t ns = q->param.idle_ns * 5 + 1000000;

	pause.tv_sec = (time_t)(ns / 1000000000u);
	pause.tv_nsec = (long)(ns % 1000000000u);
	for (unsigned i = 0; i < n; i++) {
		double began;

		nanosleep(&pause, NULL);
		began = now_us();
		command(q, GPU_WORK_NOTHING, &nothing);
		us[i] = now_us() - began;
	}
	return median(us, n);
}

static double launches(struct queue *q, double *us, unsigned n)
{
	struct gpu_empty param = { 0 };

	for (unsigned i = 0; i < n; i++) {
		double began = now_us();

		GPU_OK(&q->e, bench_gpu_launch(q->e.stream, &gpu_kernel_empty, 1, 1, &param,
					       sizeof(param)));
		GPU_OK(&q->e, bench_stream_sync(q->e.stream));
		us[i] = now_us() - began;
	}
	return median(us, n);
}

static uint64_t launched(struct queue *q)
{
	struct barway_channel_info info = { .size = sizeof(info) };

	OK(barway_channel_query(q->channel, &info));
	return info.launches;
}

int main(int argc, char **argv)
{
	long idle = argc > 1 ? strtol(argv[1], NULL, 10) : 200;
	long n = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
	/* commands are few and have to be quick: the smallest ring */
	struct barway_channel_options o = { .size = sizeof(o), .to_gpu_bytes = 4096,
					    .launch = launch };
	struct queue q = { 0 };
	uint64_t gpu, host_addr, before;
	unsigned pauses;
	void *host;
	double *us, each;

	if (argc > 3 || idle < 1 || idle > 1000000 || n < 1 || n > 10000000) {
		fprintf(stderr, "usage: work_queue [IDLE_US [COMMANDS]]: 1 to 1000000 us, 1 to "
			"10000000 commands\n");
		return 2;
	}
	us = calloc((size_t)n, sizeof(*us));
	if (!us)
		return 1;
	example_open(&q.e);
	GPU_OK(&q.e, bench_gpu_load(q.e.gpu, &gpu_kernel_work));
	OK(barway_mem_alloc(q.e.dev, MEMORY, &gpu));
	OK(barway_host_alloc(q.e.dev, MEMORY, &host, &host_addr));
	o.launch_arg = &q;
	OK(barway_channel_open(q.e.dev, &o, &q.channel));
	OK(barway_channel_gpu(q.channel, &q.param.channel));
	q.param.idle_ns = BARWAY_GPU_IDLE_FOR((uint64_t)idle * 1000);

	for (unsigned value = 1; value <= 100; value++)
		fill_and_copy(&q, gpu, host_addr, host, value * 7);
	printf("200 commands fill and copy %u KiB: the data is right\n", MEMORY / 1024);

	before = launched(&q);
	each = null_commands(&q, us, (unsigned)n);
	printf("%ld commands that do nothing, one after the other: %.2f us each (median), "
	       "%llu launches\n", n, each, (unsigned long long)(launched(&q) - before));
	before = launched(&q);
	pauses = n < 20 ? (unsigned)n : 20;
	each = after_pauses(&q, us, pauses);
	printf("%u more, each after a pause: %.2f us each (median), %llu launches: the kernel "
	       "leaves after %ld us\n", pauses, each,
	       (unsigned long long)(launched(&q) - before), idle);

	OK(barway_channel_close(q.channel));
	printf("for comparison, a launch of an empty kernel and a wait for it: %.2f us (median)\n",
	       launches(&q, us, (unsigned)(n < 1000 ? n : 1000)));
	OK(barway_host_free(q.e.ctx, host));
	OK(barway_mem_free(q.e.ctx, gpu));
	example_close(&q.e);
	free(us);
	return 0;
}
