/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/channel: how long messages take through a channel, and how many there can be. One thread
 * uses it. Each measurement opens a channel of its own; what comes out of it is checked.
 */
#ifndef BENCH_CHANNEL_H
#define BENCH_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/gpu.h"
#include "bench/harness.h"
#include "gpu/params.h"

/* Kernels that are compared, with the threads of their blocks. */
enum channel_form {
	CHANNEL_LINE,   /* barway_gpu_recv_line(), _send_line(); round trips of 16 bytes only */
	CHANNEL_THREAD, /* barway_gpu_recv(), barway_gpu_send() */
	CHANNEL_WORDS,  /* ..._words(), in registers of a warp; on the soft GPU one line */
	CHANNEL_WARP,   /* ..._warp() */
	CHANNEL_BLOCK,  /* ..._block(); not for rates */
	CHANNEL_EACH,   /* barway_gpu_recv_each(), _send_each(); for rates only */
};

#define CHANNEL_BLOCK_THREADS 128u
#define CHANNEL_PRODUCERS 4096u /* at most: tags name them */

struct channel_bench {
	struct barway_context *ctx;
	struct barway_device *dev;
	struct bench_gpu *gpu;
	struct bench_stream *stream;
	struct gpu_result *results; /* CHANNEL_PRODUCERS of them, pinned */
	uint64_t results_addr;
	struct barway_channel *channel; /* of the measurement under way */
	struct barway_channel_gpu handle;
	/* what its launch launches */
	const struct bench_kernel *kernel;
	unsigned threads;
	union {
		struct gpu_echo echo;
		struct gpu_work work;
	} param;
	size_t param_bytes;
	/* a round trip */
	size_t bytes;
	uint64_t next;
	uint64_t message[BARWAY_MESSAGE_MAX / 8], answer[BARWAY_MESSAGE_MAX / 8];
	uint64_t *expect; /* of each producer: the number of its next message */
	char path[512];   /* of the last channel */
	char error[640];  /* the sentence of the last failure here */
};

/*
 * @gpu: opened on @dev; all three outlive what is opened here. On failure @b->error is the
 * sentence; channel_bench_close() in any case.
 */
int channel_bench_open(struct channel_bench *b, struct barway_context *ctx,
		       struct barway_device *dev, struct bench_gpu *gpu);
void channel_bench_close(struct channel_bench *b);

/* A message there and back. @relaxed: without fences. */
int channel_round_trip(struct channel_bench *b, enum channel_form form, bool relaxed, size_t bytes,
		       const struct bench_plan *plan, struct bench_result *out);

/* A command that does nothing, through the work queue of gpu/work.cu. */
int channel_null_command(struct channel_bench *b, const struct bench_plan *plan,
			 struct bench_result *out);

/* A launch of an empty kernel, and a wait for it. */
int channel_launch(struct channel_bench *b, const struct bench_plan *plan,
		   struct bench_result *out);

/*
 * Bursts of @messages one way, without fences: nanoseconds for one message. @samples of them are
 * timed, one more is checked wholly.
 */
#define CHANNEL_SAMPLES_MAX 64u
int channel_rate_to_gpu(struct channel_bench *b, enum channel_form form, size_t bytes,
			uint64_t messages, unsigned samples, struct bench_stats *out);

/* From @blocks of @threads each, whole warps. The soft GPU's blocks are one producer each. */
int channel_rate_to_cpu(struct channel_bench *b, enum channel_form form, unsigned blocks,
			unsigned threads, size_t bytes, uint64_t messages, unsigned samples,
			struct bench_stats *out);

#endif
