/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu/params: what kernels of this folder are given, and what they give back. Addresses are
 * device addresses. What a kernel says at its end it writes into a struct gpu_result in pinned
 * host memory, which is zero before.
 */
#ifndef GPU_PARAMS_H
#define GPU_PARAMS_H

#include <stdint.h>

#include "barway_channel_abi.h"

struct gpu_result {
	uint64_t count;  /* messages, or round trips */
	uint64_t bytes;  /* in them */
	uint64_t wrong;  /* messages that were not what they should have been */
	uint64_t first;  /* the first of these, counted from 0 */
	int64_t error;   /* why it ended: 0 all done, else as in barway_device.cuh */
	uint64_t done;   /* 1: the rest is written */
};

struct gpu_empty {
	uint64_t nothing;
};

/*
 * Waits for 1, 2, 3 ... at @in and answers each at @out. Behind both, from GPU_PINGPONG_DATA on,
 * are @bytes of data, which are written before the flag and sent back. By one warp; without data
 * by one thread.
 */
struct gpu_pingpong {
	uint64_t in;      /* GPU memory, or pinned host memory */
	uint64_t out;     /* pinned host memory */
	uint64_t bytes;   /* a multiple of 8 */
	uint64_t first;   /* what the next flag is */
	uint64_t idle_ns; /* ends when there was none for so long */
	uint64_t result;
};

#define GPU_PINGPONG_DATA 64u /* the flag has a line of its own */
#define GPU_PINGPONG_END (~0ull) /* this flag ends it */

/* Sends back what it gets; by a thread, a warp, or a block. */
struct gpu_echo {
	struct barway_channel_gpu channel;
	uint64_t idle_ns;
	uint64_t trap_tag; /* a message with it makes the kernel fail, if it keeps messages in
			    * memory; over 0xfff: none */
	uint32_t flags;    /* 0 or BARWAY_GPU_RELAXED */
	uint32_t reserved;
};

/*
 * Messages of which sender and receiver know what stands in them: number @n (from 0) of producer
 * @who has the size and the words that gpu/pattern.h says, and the producer as its tag.
 */
struct gpu_traffic {
	struct barway_channel_gpu channel;
	uint64_t count;   /* messages, of each producer; UINT64_MAX: as long as there are some */
	uint64_t first;   /* number of the first one */
	uint64_t idle_ns;
	uint64_t result;  /* of producers: an array, one for each producer; consumers: one */
	uint32_t least, most; /* bytes */
	uint32_t flags;   /* 0 or BARWAY_GPU_RELAXED; one producer: BARWAY_GPU_SOLE */
	uint32_t check;   /* 0: a consumer looks at sizes only */
};

/* A work queue: commands are messages, their tag says what to do; each is answered. */
struct gpu_work {
	struct barway_channel_gpu channel;
	uint64_t idle_ns;
};

enum gpu_work_tag {
	GPU_WORK_NOTHING = 0,
	GPU_WORK_FILL = 1, /* @to: GPU memory, @bytes of the byte @value */
	GPU_WORK_COPY = 2, /* @from GPU memory @to pinned host memory */
};

/* Addresses and bytes are multiples of 16. */
struct gpu_work_command {
	uint64_t number; /* the caller's, comes back */
	uint64_t to, from, bytes, value;
};

/* With the tag of the command; what the command did is VISIBLE to the CPU. */
struct gpu_work_answer {
	uint64_t number;
	int64_t error; /* 0 or as in barway_device.cuh */
};

#endif
