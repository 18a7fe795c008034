/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * examples/example: the beginning and end that the examples have in common: a context, a device
 * that is ready, and bench/gpu, which launches kernels on a CUDA device or on the soft GPU. A
 * program that uses CUDA itself needs neither barway_device_activate() nor bench/gpu: it launches
 * as it always did.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <barway.h>

#include "bench/gpu.h"

struct example {
	struct barway_context *ctx;
	struct barway_device *dev;
	struct barway_device_info info;
	struct bench_gpu *gpu;
	struct bench_stream *stream;
};

/* An example gives up at the first error. */
#define OK(call) do { \
	if ((call) < 0) { \
		fprintf(stderr, "%s: %s\n", #call, barway_errmsg()); \
		exit(1); \
	} \
} while (0)
#define GPU_OK(example, call) do { \
	if ((call) < 0) { \
		fprintf(stderr, "%s: %s\n", #call, bench_gpu_error((example)->gpu)); \
		exit(1); \
	} \
} while (0)

/* On GPU @index, or on the first where there are not so many. */
static inline void example_open_on(struct example *e, int index)
{
	char reason[512];
	int n;

	OK(barway_open(NULL, &e->ctx));
	OK(n = barway_device_count(e->ctx));
	OK(barway_device_get(e->ctx, index < n ? index : 0, &e->dev));
	OK(barway_device_activate(e->dev));
	e->info = (struct barway_device_info){ .size = sizeof(e->info) };
	OK(barway_device_query(e->dev, &e->info));
	e->gpu = bench_gpu_open(e->ctx, e->dev, reason, sizeof(reason));
	if (!e->gpu) {
		fprintf(stderr, "bench_gpu_open: %s\n", reason);
		exit(1);
	}
	GPU_OK(e, bench_stream_create(e->gpu, &e->stream));
	printf("on %s\n", e->info.name);
}

static inline void example_open(struct example *e)
{
	example_open_on(e, 0);
}

static inline void example_close(struct example *e)
{
	GPU_OK(e, bench_stream_destroy(e->stream));
	bench_gpu_close(e->gpu);
	OK(barway_close(e->ctx));
}

static inline double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

#endif
