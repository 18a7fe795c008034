/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/pingpong: how long a flag takes from the CPU to a running kernel and back, with and
 * without data behind it. Back, it and the data always come in pinned host memory, which the CPU
 * polls in its cache. One thread uses it.
 */
#ifndef BENCH_PINGPONG_H
#define BENCH_PINGPONG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/gpu.h"
#include "bench/harness.h"

/* Where the flag to the GPU and its data are written, and polled by the GPU. */
enum pingpong_way {
	PINGPONG_GPU,    /* GPU memory, which the CPU writes through a mapping */
	PINGPONG_PINNED, /* pinned host memory, which the GPU reads over PCIe */
	PINGPONG_WAYS,
};

/* "gpu", "pinned" */
extern const char *const pingpong_way_names[PINGPONG_WAYS];

struct pingpong {
	struct barway_context *ctx;
	struct bench_gpu *gpu;
	struct bench_stream *stream;
	struct bench_memory mem;
	struct barway_mapping *map;
	void *pinned;           /* out, in, result: see pingpong.c */
	uint64_t pinned_addr;
	unsigned char *data;    /* what is sent; its first and last eight bytes are the flag's */
	size_t max;             /* the most data */
	uint64_t timeout_ns;    /* for the GPU's answer */
	bool soft;
	size_t at;              /* of the flag in GPU memory: the best place of a few */
	double best_ns, worst_ns; /* a round trip there, and at the worst; 0: not looked for */

	/* of the measurement under way */
	enum pingpong_way way;
	size_t bytes;
	uint64_t next;          /* flag */
	char error[512];        /* the sentence of the last failure here */
};

/*
 * @gpu: opened on @dev; all three outlive what is opened here. @max: the most data, a multiple of
 * 8. On failure @p->error is the sentence; pingpong_close() in any case.
 */
int pingpong_open(struct pingpong *p, struct barway_context *ctx, struct barway_device *dev,
		  struct bench_gpu *gpu, enum bench_memory_kind kind, size_t max,
		  uint64_t timeout_ns);
void pingpong_close(struct pingpong *p);

/*
 * Measures round trips with @bytes of data, a multiple of 8, behind the flag. Each round trip is
 * checked by the first and last eight bytes, the last one wholly: wrong data is an error.
 * -ETIMEDOUT: no answer.
 */
int pingpong_measure(struct pingpong *p, enum pingpong_way way, size_t bytes,
		     const struct bench_plan *plan, struct bench_result *out);

#endif
