/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu/echo: sends back each message that it gets, until there is none for a while. */
#include "gpu/kernel.h"
#include "gpu/params.h"

/* One for each form: @suffix is that of the functions of barway_device.cuh. */
#define ECHO(name, suffix, threads)                                                             \
	GPU_KERNEL(name, gpu_echo, threads)                                                     \
	{                                                                                       \
		GPU_SHARED(uint64_t, message, BARWAY_MESSAGE_MAX / 8);                          \
		struct barway_gpu_channel ch;                                                   \
		uint32_t bytes = 0, tag = 0;                                                    \
												\
		if (GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {                            \
			GPU_TRAP();                                                             \
			return;                                                                 \
		}                                                                               \
		while (!barway_gpu_recv##suffix(&ch, message, sizeof(message), &bytes, &tag,    \
						p->idle_ns, p->flags)) {                        \
			if (tag == (uint32_t)p->trap_tag) {                                     \
				GPU_TRAP();                                                     \
				return;                                                         \
			}                                                                       \
			/* a message that it has taken is not given up for want of room */      \
			if (barway_gpu_send##suffix(&ch, message, bytes, tag,                   \
						    BARWAY_GPU_WAIT_MAX_NS, p->flags))          \
				break;                                                          \
		}                                                                               \
		if (!GPU_THREAD())                                                              \
			barway_gpu_leave(&ch);                                                  \
	}

ECHO(gpu_echo, , 32)
ECHO(gpu_echo_warp, _warp, 32)
ECHO(gpu_echo_block, _block, 256)

/* By one thread, in registers: messages of two words, which is all that it looks at. */
GPU_KERNEL(gpu_echo_line, gpu_echo, 32)
{
	struct barway_gpu_channel ch;
	uint64_t words[7];
	uint32_t bytes = 0, tag = 0;

	if (GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {
		GPU_TRAP();
		return;
	}
	while (!barway_gpu_recv_line(&ch, words, &bytes, &tag, p->idle_ns, p->flags)) {
		uint64_t answer[7] = { words[0], words[1] };

		if (tag == (uint32_t)p->trap_tag) {
			GPU_TRAP();
			return;
		}
		if (barway_gpu_send_line(&ch, answer, 16, tag, BARWAY_GPU_WAIT_MAX_NS, p->flags))
			break;
	}
	if (!GPU_THREAD())
		barway_gpu_leave(&ch);
}

/*
 * By a warp, in registers: messages of at most @most bytes. Eight lines are one load of the warp; a
 * compiler that knows of no more leaves out what is for longer ones, which is nearly half.
 */
#define ECHO_WORDS(name, most)                                                                  \
	GPU_KERNEL(name, gpu_echo, 32)                                                          \
	{                                                                                       \
		struct barway_gpu_channel ch;                                                   \
		uint32_t bytes = 0, tag = 0;                                                    \
		uint64_t words[BARWAY_GPU_WORDS];                                               \
												\
		if (GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {                            \
			GPU_TRAP();                                                             \
			return;                                                                 \
		}                                                                               \
		while (!barway_gpu_recv_words(&ch, words, (most), &bytes, &tag, p->idle_ns,     \
					      p->flags)) {                                      \
			if (tag == (uint32_t)p->trap_tag) {                                     \
				GPU_TRAP();                                                     \
				return;                                                         \
			}                                                                       \
			if (bytes > (most))                                                     \
				__builtin_unreachable();                                        \
			if (barway_gpu_send_words(&ch, words, bytes, tag,                       \
						  BARWAY_GPU_WAIT_MAX_NS, p->flags))            \
				break;                                                          \
		}                                                                               \
		if (!GPU_THREAD())                                                              \
			barway_gpu_leave(&ch);                                                  \
	}

ECHO_WORDS(gpu_echo_words, BARWAY_MESSAGE_MAX)
ECHO_WORDS(gpu_echo_eight_lines, 8 * BARWAY_LINE_DATA)
