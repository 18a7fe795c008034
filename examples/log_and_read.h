/* SPDX-License-Identifier: BSD-3-Clause */
/* examples/log_and_read: what the kernel and the CPU say to each other. */
#ifndef LOG_AND_READ_H
#define LOG_AND_READ_H

#include <stdint.h>

#include "barway_channel_abi.h"

#define LOG_TEXT 48u

enum log_and_read_tag {
	TAG_LOG,    /* to the CPU: struct log_line */
	TAG_READ,   /* to the CPU: struct read_request */
	TAG_ANSWER, /* to the GPU: struct read_answer; the data is VISIBLE */
	TAG_DONE,   /* to the CPU: struct log_line, the last one */
};

struct log_line {
	uint64_t number;
	char text[LOG_TEXT];
};

struct read_request {
	uint64_t offset, bytes; /* of the file */
	uint64_t to;            /* device address */
};

struct read_answer {
	int64_t bytes; /* less than asked for: the file ends there; below 0: -errno */
};

struct log_and_read {
	struct barway_channel_gpu channel;
	uint64_t buffer; /* GPU memory, @piece bytes */
	uint64_t piece;  /* a multiple of 8 */
};

#endif
