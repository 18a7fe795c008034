/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/hw/channel: what tests of channels share. They run on a real GPU ("make hw") and, with
 * BARWAY_DEVICES=soft, over the soft GPU.
 */
#ifndef TEST_HW_CHANNEL_H
#define TEST_HW_CHANNEL_H

#include <errno.h>
#include <time.h>

#include <barway.h>

#include "gpu/kernels.h"
#include "gpu/pattern.h"
#include "test.h"

#define WAIT_NS 20000000000ull /* then something hangs */
#define RELAXED 2u             /* BARWAY_GPU_RELAXED */
#define SOLE 1u                /* BARWAY_GPU_SOLE */
#define PRODUCERS 4096u

static struct {
	struct barway_context *ctx;
	struct barway_device *dev;
	struct bench_gpu *gpu;
	struct bench_stream *stream, *other;
	struct gpu_result *results; /* PRODUCERS and one: the consumer's */
	uint64_t results_addr;
	bool soft;
	/* of a case */
	struct barway_channel *channel;
	struct barway_channel_gpu handle;
	const struct bench_kernel *kernel; /* what the channel launches */
	unsigned threads;
	union {
		struct gpu_echo echo;
		struct gpu_work work;
	} param;
	size_t param_bytes;
} hw;

#define OK(call) do { \
	int ret_ = (call); \
	if (ret_ < 0) FAIL("%s: %d: %s", #call, ret_, barway_errmsg()); \
} while (0)
#define GPU_OK(call) do { \
	int ret_ = (call); \
	if (ret_ < 0) FAIL("%s: %d: %s", #call, ret_, bench_gpu_error(hw.gpu)); \
} while (0)

static inline double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A number from the environment. */
static inline uint64_t setting(const char *name, uint64_t dflt)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : dflt;
}

/* How many: fewer on the soft GPU. CHANNEL_DIVIDE makes all fewer, for slow tools. */
static inline uint64_t many(uint64_t on_gpu, uint64_t on_soft)
{
	uint64_t n = (hw.soft ? on_soft : on_gpu) / setting("CHANNEL_DIVIDE", 1);

	return n ? n : 1;
}

/* Skips the case where there is no GPU and the soft one was not asked for. */
static inline void start(void)
{
	struct barway_open_options o = { .size = sizeof(o) };
	size_t results = (PRODUCERS + 1) * sizeof(struct gpu_result);
	struct barway_device_info info = { .size = sizeof(info) };
	char reason[512];
	void *host;

	if (hw.gpu)
		return;
	o.devices = getenv("BARWAY_DEVICES") ? BARWAY_DEVICES_AUTO : BARWAY_DEVICES_CUDA;
	if (!hw.ctx)
		OK(barway_open(&o, &hw.ctx));
	if (barway_device_count(hw.ctx) <= 0)
		SKIP("no GPU: %s", barway_errmsg());
	OK(barway_device_get(hw.ctx, 0, &hw.dev));
	OK(barway_device_activate(hw.dev));
	OK(barway_device_query(hw.dev, &info));
	hw.soft = info.kind == BARWAY_DEVICE_SOFT;
	hw.gpu = bench_gpu_open(hw.ctx, hw.dev, reason, sizeof(reason));
	if (!hw.gpu)
		FAIL("bench_gpu_open: %s", reason);
	GPU_OK(bench_stream_create(hw.gpu, &hw.stream));
	GPU_OK(bench_stream_create(hw.gpu, &hw.other));
	OK(barway_host_alloc(hw.dev, results, &host, &hw.results_addr));
	hw.results = host;
}

/* Gives everything back: the last case. */
static inline void stop(void)
{
	if (!hw.gpu)
		SKIP("nothing was started");
	GPU_OK(bench_stream_destroy(hw.stream));
	GPU_OK(bench_stream_destroy(hw.other));
	OK(barway_host_free(hw.ctx, hw.results));
	bench_gpu_close(hw.gpu);
	hw.gpu = NULL;
	OK(barway_close(hw.ctx));
	hw.ctx = NULL;
}

static inline int launch(void *arg)
{
	(void)arg;
	return bench_gpu_launch(hw.stream, hw.kernel, 1, hw.threads, &hw.param, hw.param_bytes);
}

static inline void open_channel(barway_launch_fn fn, uint32_t ring_bytes)
{
	struct barway_channel_options o = {
		.size = sizeof(o),
		.to_gpu_bytes = ring_bytes,
		.to_cpu_bytes = ring_bytes,
		.launch = fn,
		.spin_us = hw.soft ? 1 : 0, /* its kernels may need this CPU */
	};

	OK(barway_channel_open(hw.dev, &o, &hw.channel));
	OK(barway_channel_gpu(hw.channel, &hw.handle));
}

static inline void close_channel(void)
{
	OK(barway_channel_shutdown(hw.channel));
	GPU_OK(bench_stream_sync(hw.stream));
	GPU_OK(bench_stream_sync(hw.other));
	OK(barway_channel_close(hw.channel));
	hw.channel = NULL;
}

/* The kernel that the channel launches from now on; @trap_tag: see gpu/params.h. */
static inline void use_echo(const struct bench_kernel *kernel, unsigned threads, uint64_t idle_ns,
			    uint64_t trap_tag, uint32_t flags)
{
	GPU_OK(bench_gpu_load(hw.gpu, kernel));
	hw.kernel = kernel;
	hw.threads = threads;
	hw.param.echo = (struct gpu_echo){
		.channel = hw.handle,
		.idle_ns = idle_ns,
		.trap_tag = trap_tag,
		.flags = flags,
	};
	hw.param_bytes = sizeof(hw.param.echo);
}

/* Producers have results from 0 on, the consumer has the last. */
static inline void start_traffic(struct bench_stream *stream, const struct bench_kernel *kernel,
				 unsigned blocks, unsigned threads, struct gpu_traffic param,
				 bool consumer)
{
	unsigned at = consumer ? PRODUCERS : 0;

	memset(hw.results + at, 0, (consumer ? 1 : PRODUCERS) * sizeof(*hw.results));
	param.channel = hw.handle;
	param.result = hw.results_addr + at * sizeof(*hw.results);
	param.idle_ns = WAIT_NS;
	GPU_OK(bench_gpu_launch(stream, kernel, blocks, threads, &param, sizeof(param)));
}

static inline void check_result(const struct gpu_result *r, uint64_t count)
{
	if (r->done != 1 || r->count != count || r->wrong || r->error)
		FAIL("the kernel says: done %llu, %llu messages of %llu, %llu wrong (the first: "
		     "%llu), error %lld", (unsigned long long)r->done, (unsigned long long)r->count,
		     (unsigned long long)count, (unsigned long long)r->wrong,
		     (unsigned long long)r->first, (long long)r->error);
}

#endif
