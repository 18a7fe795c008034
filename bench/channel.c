/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/channel.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels.h"
#include "gpu/pattern.h"

#define WAIT_NS 10000000000ull /* then something is wrong */
#define IDLE_NS 50000000ull    /* longer than what goes on between two round trips */
#define RING_BYTES (1u << 20)    /* for rates */
#define SHORT_BYTES 4096u        /* for round trips: the ring that is twins */
#define RELAXED 2u             /* BARWAY_GPU_RELAXED */
#define SOLE 1u                /* BARWAY_GPU_SOLE */

__attribute__((format(printf, 3, 4)))
static int fail(struct channel_bench *b, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(b->error, sizeof(b->error), fmt, ap);
	va_end(ap);
	return -err;
}

static int gpu_checked(struct channel_bench *b, int ret)
{
	return ret < 0 ? fail(b, -ret, "%s", bench_gpu_error(b->gpu)) : ret;
}

static int barway_checked(struct channel_bench *b, int ret)
{
	return ret < 0 ? fail(b, -ret, "%s", barway_errmsg()) : ret;
}

/* ---- open -------------------------------------------------------------------------------- */

int channel_bench_open(struct channel_bench *b, struct barway_context *ctx,
		       struct barway_device *dev, struct bench_gpu *gpu)
{
	static const struct bench_kernel *const kernels[] = {
		&gpu_kernel_empty, &gpu_kernel_echo_line, &gpu_kernel_echo, &gpu_kernel_echo_words,
		&gpu_kernel_echo_eight_lines, &gpu_kernel_echo_one_line,
		&gpu_kernel_echo_warp, &gpu_kernel_echo_block, &gpu_kernel_produce_warp,
		&gpu_kernel_produce_each,
		&gpu_kernel_consume, &gpu_kernel_consume_warp, &gpu_kernel_consume_each,
		&gpu_kernel_work,
	};
	size_t results = CHANNEL_PRODUCERS * sizeof(struct gpu_result);
	void *host = NULL;
	int ret = 0;

	*b = (struct channel_bench){ .ctx = ctx, .dev = dev, .gpu = gpu };
	b->expect = calloc(CHANNEL_PRODUCERS, sizeof(*b->expect));
	if (!b->expect)
		return fail(b, ENOMEM, "out of memory");
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]) && ret == 0; i++)
		ret = gpu_checked(b, bench_gpu_load(gpu, kernels[i]));
	if (ret == 0)
		ret = gpu_checked(b, bench_stream_create(gpu, &b->stream));
	if (ret == 0)
		ret = barway_checked(b, barway_host_alloc(dev, results, &host, &b->results_addr));
	b->results = host;
	return ret;
}

void channel_bench_close(struct channel_bench *b)
{
	bench_stream_destroy(b->stream);
	if (b->results)
		barway_host_free(b->ctx, b->results);
	free(b->expect);
	*b = (struct channel_bench){ 0 };
}

/* Called by the channel where a message waits and no kernel is there. */
static int launch(void *arg)
{
	struct channel_bench *b = arg;

	return bench_gpu_launch(b->stream, b->kernel, 1, b->threads, &b->param, b->param_bytes);
}

static int open_channel(struct channel_bench *b, barway_launch_fn fn)
{
	struct barway_channel_info info = { .size = sizeof(info) };
	struct barway_channel_options o = {
		.size = sizeof(o),
		.to_gpu_bytes = fn ? SHORT_BYTES : RING_BYTES,
		.to_cpu_bytes = fn ? 0 : RING_BYTES,
		.launch = fn,
		.launch_arg = b,
		.spin_us = bench_gpu_is_soft(b->gpu) ? 1 : 0, /* its kernels may need this CPU */
	};
	int ret = barway_checked(b, barway_channel_open(b->dev, &o, &b->channel));

	if (ret < 0)
		return ret;
	ret = barway_checked(b, barway_channel_gpu(b->channel, &b->handle));
	if (ret == 0)
		ret = barway_checked(b, barway_channel_query(b->channel, &info));
	snprintf(b->path, sizeof(b->path), "%s", info.path);
	return ret;
}

/* Has the kernels end, and ends the channel. @ret: what there was before. */
static int close_channel(struct channel_bench *b, int ret)
{
	char before[sizeof(b->error)];
	int end;

	if (!b->channel)
		return ret;
	memcpy(before, b->error, sizeof(before));
	barway_channel_shutdown(b->channel);
	end = gpu_checked(b, bench_stream_sync(b->stream));
	if (end == 0)
		end = barway_checked(b, barway_channel_close(b->channel));
	else
		barway_channel_close(b->channel);
	b->channel = NULL;
	if (ret < 0) /* the first error is the one that tells */
		memcpy(b->error, before, sizeof(before));
	return ret < 0 ? ret : end;
}

/* ---- round trips ------------------------------------------------------------------------- */

static int round_trip(void *arg)
{
	struct channel_bench *b = arg;
	unsigned tag = b->next & 0xff, got = 0;
	size_t bytes = 0;
	int ret;

	b->message[0] = b->next++;
	ret = barway_channel_send(b->channel, b->message, b->bytes, tag, WAIT_NS);
	if (ret == 0)
		ret = barway_channel_recv(b->channel, b->answer, sizeof(b->answer), &bytes, &got,
					  WAIT_NS);
	if (ret < 0)
		return barway_checked(b, ret);
	if (bytes != b->bytes || got != tag || b->answer[0] != b->message[0])
		return fail(b, EBADMSG, "wrong data: message %llu of %zu bytes with tag %u came "
			    "back as %llu of %zu bytes with tag %u",
			    (unsigned long long)b->message[0], b->bytes, tag,
			    (unsigned long long)b->answer[0], bytes, got);
	return 0;
}

static int run(struct channel_bench *b, int (*fn)(void *arg), const struct bench_plan *plan,
	       struct bench_result *out)
{
	struct bench_op op = { .run = fn, .arg = b };
	int ret;

	*b->error = 0;
	ret = bench_run(&op, 1, plan, out);
	if (ret < 0 && !*b->error)
		fail(b, -ret, "%s", strerror(-ret));
	return ret;
}

/* The one with the least room that is enough, as of a program that knows its messages. */
static const struct bench_kernel *echo_words(size_t bytes)
{
	return bytes <= BARWAY_LINE_DATA ? &gpu_kernel_echo_one_line :
	       bytes <= 8 * BARWAY_LINE_DATA ? &gpu_kernel_echo_eight_lines :
					       &gpu_kernel_echo_words;
}

int channel_round_trip(struct channel_bench *b, enum channel_form form, bool relaxed, size_t bytes,
		       const struct bench_plan *plan, struct bench_result *out)
{
	int ret = open_channel(b, launch);

	b->kernel = form == CHANNEL_LINE ? &gpu_kernel_echo_line :
		    form == CHANNEL_THREAD ? &gpu_kernel_echo :
		    form == CHANNEL_WORDS ? echo_words(bytes) :
		    form == CHANNEL_WARP ? &gpu_kernel_echo_warp : &gpu_kernel_echo_block;
	b->threads = form <= CHANNEL_THREAD ? 1 :
		     form <= CHANNEL_WARP ? 32 : CHANNEL_BLOCK_THREADS;
	b->param.echo = (struct gpu_echo){
		.channel = b->handle,
		.idle_ns = IDLE_NS,
		.trap_tag = UINT64_MAX,
		.flags = relaxed ? RELAXED : 0,
	};
	b->param_bytes = sizeof(b->param.echo);
	b->bytes = bytes;
	gpu_message_make(b->message, 1, BARWAY_MESSAGE_MAX);
	if (bytes < 8)
		ret = fail(b, EINVAL, "%zu bytes: a round trip needs 8 to know its message", bytes);
	if (ret == 0)
		ret = round_trip(b); /* with the launch */
	if (ret == 0)
		ret = run(b, round_trip, plan, out);
	if (ret == 0 && memcmp(b->message, b->answer, bytes))
		ret = fail(b, EBADMSG, "wrong data: a message of %zu bytes came back changed",
			   bytes);
	return close_channel(b, ret);
}

/* ---- other ways to tell a GPU something ----------------------------------------------------- */

static int null_command(void *arg)
{
	struct channel_bench *b = arg;
	const struct gpu_work_command command = { .number = b->next++ };
	struct gpu_work_answer answer = { .error = -1 };
	unsigned tag = 1;
	size_t bytes = 0;
	int ret = barway_channel_send(b->channel, &command, sizeof(command), GPU_WORK_NOTHING,
				      WAIT_NS);

	if (ret == 0)
		ret = barway_channel_recv(b->channel, &answer, sizeof(answer), &bytes, &tag,
					  WAIT_NS);
	if (ret < 0)
		return barway_checked(b, ret);
	if (tag != GPU_WORK_NOTHING || answer.number != command.number || answer.error)
		return fail(b, EBADMSG, "wrong answer to command %llu: number %llu, error %lld",
			    (unsigned long long)command.number, (unsigned long long)answer.number,
			    (long long)answer.error);
	return 0;
}

int channel_null_command(struct channel_bench *b, const struct bench_plan *plan,
			 struct bench_result *out)
{
	int ret = open_channel(b, launch);

	b->kernel = &gpu_kernel_work;
	b->threads = CHANNEL_BLOCK_THREADS;
	b->param.work = (struct gpu_work){ .channel = b->handle, .idle_ns = IDLE_NS };
	b->param_bytes = sizeof(b->param.work);
	if (ret == 0)
		ret = null_command(b);
	if (ret == 0)
		ret = run(b, null_command, plan, out);
	return close_channel(b, ret);
}

static int launch_and_wait(void *arg)
{
	struct channel_bench *b = arg;
	struct gpu_empty param = { 0 };
	int ret = bench_gpu_launch(b->stream, &gpu_kernel_empty, 1, 1, &param, sizeof(param));

	return gpu_checked(b, ret < 0 ? ret : bench_stream_sync(b->stream));
}

int channel_launch(struct channel_bench *b, const struct bench_plan *plan,
		   struct bench_result *out)
{
	return run(b, launch_and_wait, plan, out);
}

/* ---- rates: bursts -------------------------------------------------------------------------- */

struct burst {
	const struct bench_kernel *kernel;
	unsigned blocks, threads, producers;
	uint64_t messages;
	uint32_t bytes;
	bool check;
};

static int start_burst(struct channel_bench *b, const struct burst *u, unsigned results)
{
	struct gpu_traffic param = {
		.channel = b->handle,
		.count = u->messages / results,
		.idle_ns = WAIT_NS,
		.result = b->results_addr,
		.least = u->bytes,
		.most = u->bytes,
		.flags = RELAXED | (results == 1 ? SOLE : 0),
		.check = u->check,
	};

	memset(b->results, 0, results * sizeof(b->results[0]));
	return gpu_checked(b, bench_gpu_launch(b->stream, u->kernel, u->blocks, u->threads, &param,
					       sizeof(param)));
}

/* Waits for the kernel's end; does it say what it should? */
static int end_burst(struct channel_bench *b, const struct burst *u, unsigned results)
{
	int ret = gpu_checked(b, bench_stream_sync(b->stream));

	for (unsigned i = 0; i < results && ret == 0; i++) {
		const struct gpu_result *r = &b->results[i];

		if (r->done != 1 || r->count != u->messages / results || r->wrong || r->error)
			ret = fail(b, EBADMSG, "%s %u: %llu of %llu messages, %llu of them wrong "
				   "(first: %llu), error %lld", u->kernel->name, i,
				   (unsigned long long)r->count,
				   (unsigned long long)(u->messages / results),
				   (unsigned long long)r->wrong, (unsigned long long)r->first,
				   (long long)r->error);
	}
	return ret;
}

static int wait_done(struct channel_bench *b)
{
	uint64_t began = bench_now();

	for (unsigned polls = 1; !__atomic_load_n(&b->results[0].done, __ATOMIC_ACQUIRE); polls++) {
		if (polls % 1024)
			continue;
		sched_yield();
		if (bench_now() - began > WAIT_NS)
			return fail(b, ETIMEDOUT, "the kernel did not take all messages in 10 s");
	}
	return 0;
}

static int burst_to_gpu(struct channel_bench *b, const struct burst *u, double *ns)
{
	uint64_t began;
	int ret = start_burst(b, u, 1);

	began = bench_now();
	for (uint64_t n = 0; n < u->messages && ret == 0; n++) {
		if (u->check)
			gpu_message_make(b->message, gpu_message_key(0, n), u->bytes);
		ret = barway_checked(b, barway_channel_send(b->channel, b->message, u->bytes, 0,
							    WAIT_NS));
	}
	if (ret == 0)
		ret = wait_done(b);
	*ns = (double)(bench_now() - began) / (double)u->messages;
	return ret < 0 ? ret : end_burst(b, u, 1);
}

static int taken_right(struct channel_bench *b, const struct burst *u, unsigned tag, size_t bytes)
{
	uint64_t n;

	if (tag >= u->producers || bytes != u->bytes)
		return fail(b, EBADMSG, "wrong data: a message of %zu bytes from producer %u, of "
			    "%u bytes and %u producers", bytes, tag, u->bytes, u->producers);
	n = b->expect[tag]++;
	if (u->check && !gpu_message_right(b->answer, gpu_message_key(tag, n), u->bytes))
		return fail(b, EBADMSG, "wrong data in message %llu of producer %u",
			    (unsigned long long)n, tag);
	return 0;
}

/* From the first one taken to the last: the launch is not a part of it. */
static int burst_to_cpu(struct channel_bench *b, const struct burst *u, double *ns)
{
	uint64_t began = 0;
	int ret = start_burst(b, u, u->producers);

	memset(b->expect, 0, u->producers * sizeof(b->expect[0]));
	for (uint64_t n = 0; n < u->messages && ret == 0; n++) {
		unsigned tag = 0;
		size_t bytes = 0;

		ret = barway_checked(b, barway_channel_recv(b->channel, b->answer,
							    sizeof(b->answer), &bytes, &tag,
							    WAIT_NS));
		if (ret == 0)
			ret = taken_right(b, u, tag, bytes);
		if (!n)
			began = bench_now();
	}
	*ns = (double)(bench_now() - began) / (double)(u->messages - 1);
	return ret < 0 ? ret : end_burst(b, u, u->producers);
}

static int bursts(struct channel_bench *b, struct burst *u, unsigned samples,
		  int (*burst)(struct channel_bench *, const struct burst *, double *),
		  struct bench_stats *out)
{
	double ns[CHANNEL_SAMPLES_MAX], ignored;
	int ret = open_channel(b, NULL);

	if (samples > CHANNEL_SAMPLES_MAX || !samples)
		ret = fail(b, EINVAL, "%u samples: not 1 to %u", samples, CHANNEL_SAMPLES_MAX);
	if (ret == 0)
		ret = burst(b, u, &ignored); /* warm */
	for (unsigned i = 0; i < samples && ret == 0; i++)
		ret = burst(b, u, &ns[i]);
	u->check = true;
	if (ret == 0)
		ret = burst(b, u, &ignored);
	if (ret == 0)
		bench_stats(ns, samples, out);
	return close_channel(b, ret);
}

int channel_rate_to_gpu(struct channel_bench *b, enum channel_form form, size_t bytes,
			uint64_t messages, unsigned samples, struct bench_stats *out)
{
	struct burst u = {
		.kernel = form == CHANNEL_THREAD ? &gpu_kernel_consume :
			  form == CHANNEL_WARP ? &gpu_kernel_consume_warp :
			  &gpu_kernel_consume_each,
		.blocks = 1,
		.threads = form == CHANNEL_THREAD ? 1 : 32,
		.producers = 1,
		.messages = messages,
		.bytes = (uint32_t)bytes,
	};

	return bursts(b, &u, samples, burst_to_gpu, out);
}

int channel_rate_to_cpu(struct channel_bench *b, enum channel_form form, unsigned blocks,
			unsigned threads, size_t bytes, uint64_t messages, unsigned samples,
			struct bench_stats *out)
{
	unsigned each = bench_gpu_is_soft(b->gpu) ? 1 :
			form == CHANNEL_EACH ? threads : threads / 32;
	struct burst u = {
		.kernel = form == CHANNEL_EACH ? &gpu_kernel_produce_each :
						 &gpu_kernel_produce_warp,
		.blocks = blocks,
		.threads = threads,
		.producers = blocks * each,
		.bytes = (uint32_t)bytes,
	};

	if (!u.producers || u.producers > CHANNEL_PRODUCERS)
		return fail(b, EINVAL, "%u producers: not 1 to %u", u.producers, CHANNEL_PRODUCERS);
	u.messages = (messages / u.producers + !(messages / u.producers)) * u.producers;
	return bursts(b, &u, samples, burst_to_cpu, out);
}
