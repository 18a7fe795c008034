/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * examples/log_and_read: a kernel that logs lines and reads a file, both through the CPU, while it
 * runs. One warp. It adds up the file as words of eight bytes.
 */
#include "gpu/kernel.h"
#include "examples/log_and_read.h"

#define WAIT_NS 1000000000ull

/* A line of the log into @message, which is a struct log_line; by all threads of the warp. */
#define MAKE_LINE(message, words, value) do {                                             \
	const char text_[LOG_TEXT] = words;                                               \
	GPU_SYNC_WARP();                                                                  \
	if (!GPU_LANE()) {                                                                \
		struct log_line *line_ = (struct log_line *)(void *)(message);            \
		line_->number = (value);                                                  \
		for (unsigned i_ = 0; i_ < LOG_TEXT; i_++)                                \
			line_->text[i_] = text_[i_];                                      \
	}                                                                                 \
	GPU_SYNC_WARP();                                                                  \
} while (0)

GPU_KERNEL(log_and_read, log_and_read, 32)
{
	GPU_SHARED(uint64_t, message, sizeof(struct log_line) / 8);
	uint64_t buffer = GPU_AT(p->buffer, p->piece), sum = 0, offset = 0;
	struct barway_gpu_channel ch;
	int64_t got = -1;

	if (!buffer || GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {
		GPU_TRAP();
		return;
	}
	MAKE_LINE(message, "I read pieces of this many bytes", p->piece);
	barway_gpu_send_warp(&ch, message, sizeof(struct log_line), TAG_LOG, WAIT_NS, 0);
	do {
		GPU_SYNC_WARP();
		if (!GPU_LANE()) {
			message[0] = offset;
			message[1] = p->piece;
			message[2] = p->buffer;
		}
		GPU_SYNC_WARP();
		if (barway_gpu_send_warp(&ch, message, sizeof(struct read_request), TAG_READ,
					 WAIT_NS, 0))
			break;
		if (barway_gpu_recv_warp(&ch, message, sizeof(struct read_answer), NULL, NULL,
					 WAIT_NS, 0))
			break;
		got = (int64_t)message[0];
		/* with the fence of the call above: what the CPU stored before it answered */
		for (int64_t at = GPU_LANE() * 8; at < got; at += GPU_LANES() * 8)
			sum += barway_gpu_ld(buffer + (uint64_t)at);
		offset += p->piece;
	} while (got == (int64_t)p->piece);
	sum = GPU_SUM_WARP(sum);
	MAKE_LINE(message, "its words add up to", sum);
	barway_gpu_send_warp(&ch, message, sizeof(struct log_line), TAG_DONE, WAIT_NS, 0);
	if (!GPU_LANE())
		barway_gpu_leave(&ch);
}
