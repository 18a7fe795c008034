/* SPDX-License-Identifier: BSD-3-Clause */
/* copy/resident_abi: what resident.c and the kernel in resident.cu tell each other. */
#ifndef BW_COPY_RESIDENT_ABI_H
#define BW_COPY_RESIDENT_ABI_H

#include "barway_channel_abi.h"

/* Of the one block. With 16 bytes each and four of those at once, 64 KiB are on their way. */
#define BW_RESIDENT_THREADS 1024u
/* Up to so many bytes the warp that took the request copies alone: no barrier of the block. Where
 * the two sides are skewed, not a multiple of 16 bytes apart, a thread has one load at a time. */
#define BW_RESIDENT_ALONE 2048u
#define BW_RESIDENT_ALONE_SKEWED 512u

/* For the soft GPU's kernel alone: beside @done, the last request that was sent. ThreadSanitizer
 * does not see what goes through a mapping, as requests do; this shows it what comes first. */
#define BW_RESIDENT_SENT 64u

struct bw_resident_param {
	struct barway_channel_gpu channel;
	uint64_t done;    /* device address, in pinned memory: the last request that is done */
	uint64_t idle_ns; /* it leaves after so long without one */
	uint64_t stay_ns; /* it takes no more after so long */
};

/* Longer copies are several requests: none takes long, so that it can leave between two of them. */
#define BW_RESIDENT_MOST (4u << 20)

/* A message: one line. Device addresses, any alignment; they do not overlap. */
struct bw_resident_request {
	uint64_t to, from;
	uint64_t bytes; /* 1 to BW_RESIDENT_MOST; 0 is the end, from the kernel to itself */
	uint64_t value; /* of the word when it is done: ascending by one */
};

#endif
