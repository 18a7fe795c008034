/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu/work: does what it is told in messages, without a launch for each, until there is none.
 *
 * One thread takes commands and answers them. What is for the block it hands over by way of shared
 * memory; the others wait for it at the barrier of the block, which costs nothing.
 */
#include "gpu/kernel.h"
#include "gpu/params.h"

#define WORD(field) (offsetof(struct gpu_work_command, field) / 8)
#define STOP UINT32_MAX

/* Each thread of the block 16 bytes at a time. */
#define EACH_16_BYTES(at, bytes) \
	for (uint64_t at = GPU_THREAD() * 16ull; at < (bytes); at += GPU_THREADS() * 16ull)

/*
 * By the first thread: answers commands that it can do alone, until there is one for the block: its
 * tag, and the command's words in @w; STOP: there was none for a while.
 */
BARWAY_GPU_FN uint32_t gpu_work_next(struct barway_gpu_channel *ch, uint64_t *w, uint64_t idle_ns)
{
	uint32_t bytes, tag;
	int64_t error;

	for (;;) {
		if (barway_gpu_recv_line(ch, w, &bytes, &tag, idle_ns, BARWAY_GPU_RELAXED))
			return STOP;
		error = bytes == sizeof(struct gpu_work_command) ? 0 : BARWAY_GPU_EINVAL;
		if (!error && (tag == GPU_WORK_FILL || tag == GPU_WORK_COPY))
			return tag;
		if (tag != GPU_WORK_NOTHING)
			error = BARWAY_GPU_EINVAL;
		{
			/* nothing was stored that the answer would have to wait for */
			uint64_t answer[7] = { w[WORD(number)], (uint64_t)error };

			if (barway_gpu_send_line(ch, answer, sizeof(struct gpu_work_answer), tag,
						 BARWAY_GPU_WAIT_MAX_NS, BARWAY_GPU_RELAXED))
				return STOP;
		}
	}
}

GPU_KERNEL(gpu_work, gpu_work, 256)
{
	GPU_SHARED(uint64_t, w, 9); /* the command, its tag, whether its answer went */
	struct barway_gpu_channel ch;
	uint32_t tag;

	if (GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {
		GPU_TRAP();
		return;
	}
	for (;;) {
		int64_t error = 0;

		if (!GPU_THREAD()) {
			uint64_t command[7];

			w[7] = gpu_work_next(&ch, command, p->idle_ns);
			for (int i = 0; i < 7; i++)
				w[i] = command[i];
		}
		GPU_SYNC_WARP();
		GPU_SYNC_BLOCK();
		tag = (uint32_t)w[7];
		if (tag == STOP)
			break;
		GPU_FENCE(); /* what the CPU stored before it sent the command is seen */
		if (tag == GPU_WORK_FILL) {
			uint64_t to = GPU_AT(w[WORD(to)], w[WORD(bytes)]);
			uint64_t v = (w[WORD(value)] & 0xff) * 0x0101010101010101ull;

			if (to)
				EACH_16_BYTES(at, w[WORD(bytes)])
					GPU_ST2(to + at, v, v);
			else
				error = BARWAY_GPU_EINVAL;
		} else {
			uint64_t to = GPU_AT(w[WORD(to)], w[WORD(bytes)]);
			uint64_t from = GPU_AT(w[WORD(from)], w[WORD(bytes)]), a, b;

			if (to && from)
				EACH_16_BYTES(at, w[WORD(bytes)]) {
					barway_gpu_ld2(from + at, &a, &b);
					GPU_ST2_HOST(to + at, a, b);
				}
			else
				error = BARWAY_GPU_EINVAL;
		}
		GPU_SYNC_BLOCK(); /* all is stored; the fence that follows is for all of it */
		if (!GPU_THREAD()) {
			uint64_t answer[7] = { w[WORD(number)], (uint64_t)error };

			w[8] = (uint64_t)barway_gpu_send_line(&ch, answer,
							      sizeof(struct gpu_work_answer), tag,
							      BARWAY_GPU_WAIT_MAX_NS, 0);
		}
		GPU_SYNC_WARP();
		GPU_SYNC_BLOCK();
		if (w[8])
			break;
	}
	if (!GPU_THREAD())
		barway_gpu_leave(&ch);
}
