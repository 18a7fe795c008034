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

/*
 * In registers. What is ordered with the messages is known when these are compiled, as in a program
 * that has one use for them. None of them traps.
 */

/* By one thread, messages of two words, @most: which is all that it looks at. */
BARWAY_GPU_FN void gpu_echo_lines(struct barway_gpu_channel *ch, const struct gpu_echo *p,
				  uint32_t most, unsigned flags)
{
	uint32_t bytes = 0, tag = 0;
	uint64_t words[7];

	while (!barway_gpu_recv_line(ch, words, &bytes, &tag, p->idle_ns, flags)) {
		uint64_t answer[7] = { words[0], words[1] };

		if (barway_gpu_send_line(ch, answer, most, tag, BARWAY_GPU_WAIT_MAX_NS, flags))
			break;
	}
}

/*
 * By a warp, messages of at most @most bytes. Eight lines are one load of the warp; a compiler that
 * knows of no more leaves out what is for longer ones, which is nearly half.
 */
BARWAY_GPU_FN void gpu_echo_registers(struct barway_gpu_channel *ch, const struct gpu_echo *p,
				      uint32_t most, unsigned flags)
{
	uint64_t words[BARWAY_GPU_WORDS];
	uint32_t bytes = 0, tag = 0;

	while (!barway_gpu_recv_words(ch, words, most, &bytes, &tag, p->idle_ns, flags)) {
		if (bytes > most)
			__builtin_unreachable(); /* so the compiler knows for sending, too */
		if (barway_gpu_send_words(ch, words, bytes, tag, BARWAY_GPU_WAIT_MAX_NS, flags))
			break;
	}
}

#define ECHO_REGISTERS(name, loop, most)                                                        \
	GPU_KERNEL(name, gpu_echo, 32)                                                          \
	{                                                                                       \
		struct barway_gpu_channel ch;                                                   \
												\
		if (GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {                            \
			GPU_TRAP();                                                             \
			return;                                                                 \
		}                                                                               \
		if (p->flags & BARWAY_GPU_RELAXED)                                              \
			loop(&ch, p, (most), BARWAY_GPU_RELAXED);                               \
		else                                                                            \
			loop(&ch, p, (most), 0);                                                \
		if (!GPU_THREAD())                                                              \
			barway_gpu_leave(&ch);                                                  \
	}

ECHO_REGISTERS(gpu_echo_line, gpu_echo_lines, 16)
ECHO_REGISTERS(gpu_echo_words, gpu_echo_registers, BARWAY_MESSAGE_MAX)
ECHO_REGISTERS(gpu_echo_eight_lines, gpu_echo_registers, 8 * BARWAY_LINE_DATA)
ECHO_REGISTERS(gpu_echo_one_line, gpu_echo_registers, BARWAY_LINE_DATA)
