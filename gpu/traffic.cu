/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu/traffic: as many messages as there can be, each way, of which the other end knows the
 * content.
 */
#include "gpu/kernel.h"
#include "gpu/params.h"
#include "gpu/pattern.h"

/* By one thread. */
#define SAY(at, field, v) GPU_ST_HOST((at) + offsetof(struct gpu_result, field), (uint64_t)(v))
#define SAY_RESULT(at, r, ended) do {                   \
	SAY((at), count, (r)->count);                   \
	SAY((at), bytes, (r)->bytes);                   \
	SAY((at), wrong, (r)->wrong);                   \
	SAY((at), first, (r)->first);                   \
	SAY((at), error, (ended));                      \
	GPU_FENCE();                                    \
	SAY((at), done, 1);                             \
} while (0)

/* ---- to the CPU: as many producers as there are warps, or threads --------------------------- */

/* The message by a warp: each thread some of the words. */
BARWAY_GPU_FN void make_message(uint64_t *message, uint64_t key, uint32_t bytes, unsigned lane,
				unsigned lanes)
{
	for (uint32_t i = lane; i * 8 < bytes; i += lanes)
		message[i] = gpu_message_word(key, bytes, i);
}

#define WARPS 32 /* of the largest block */

GPU_KERNEL(gpu_produce_warp, gpu_traffic, 1024)
{
	GPU_SHARED(uint64_t, messages, WARPS * (BARWAY_MESSAGE_MAX / 8));
	unsigned warp = GPU_THREAD() / GPU_WARP;
	uint32_t who = GPU_BLOCK() * ((GPU_THREADS() + GPU_WARP - 1) / GPU_WARP) + warp;
	uint64_t *message = messages + warp * (BARWAY_MESSAGE_MAX / 8);
	uint64_t result = GPU_AT(p->result + who * sizeof(struct gpu_result),
				 sizeof(struct gpu_result));
	struct gpu_result r = { 0, 0, 0, 0, 0, 0 };
	struct barway_gpu_channel ch;
	int error = 0;

	if (!result || GPU_ATTACH(&ch, &p->channel, p->flags & BARWAY_GPU_SOLE)) {
		GPU_TRAP();
		return;
	}
	while (r.count < p->count && !error) {
		uint64_t key = gpu_message_key(who, p->first + r.count);
		uint32_t bytes = gpu_message_bytes(key, p->least, p->most);

		GPU_SYNC_WARP(); /* nobody reads the one before any more */
		make_message(message, key, bytes, GPU_LANE(), GPU_LANES());
		GPU_SYNC_WARP();
		error = barway_gpu_send_warp(&ch, message, bytes, who, p->idle_ns, p->flags);
		if (!error) {
			r.count++;
			r.bytes += bytes;
		}
	}
	if (!GPU_LANE())
		SAY_RESULT(result, &r, error);
}

/* Every thread is a producer of its own. At most EACH_MAX bytes. */
#define EACH_MAX 112

GPU_KERNEL(gpu_produce_each, gpu_traffic, 1024)
{
	uint32_t who = GPU_BLOCK() * GPU_THREADS() + GPU_THREAD();
	uint64_t result = GPU_AT(p->result + who * sizeof(struct gpu_result),
				 sizeof(struct gpu_result));
	struct gpu_result r = { 0, 0, 0, 0, 0, 0 };
	uint64_t message[EACH_MAX / 8];
	struct barway_gpu_channel ch;
	int error = 0;

	if (!result || p->most > EACH_MAX ||
	    GPU_ATTACH(&ch, &p->channel, p->flags & BARWAY_GPU_SOLE)) {
		GPU_TRAP();
		return;
	}
	while (r.count < p->count && !error) {
		uint64_t key = gpu_message_key(who, p->first + r.count);
		uint32_t bytes = gpu_message_bytes(key, p->least, p->most);

		make_message(message, key, bytes, 0, 1);
		error = barway_gpu_send_each(&ch, message, bytes, who, p->idle_ns, p->flags);
		if (!error) {
			r.count++;
			r.bytes += bytes;
		}
	}
	SAY_RESULT(result, &r, error);
}

/* ---- to the GPU: one consumer --------------------------------------------------------------- */

/* Is it what it should be? By one thread or by all of a warp. */
BARWAY_GPU_FN int wrong_words(const uint64_t *message, uint64_t key, uint32_t bytes, unsigned lane,
			      unsigned lanes)
{
	int wrong = 0;

	for (uint32_t i = lane; i * 8 < bytes; i += lanes) {
		uint64_t got = i < bytes / 8 ? message[i] :
			       barway_gpu_last_word(message + i, bytes % 8);

		wrong |= got != gpu_message_word(key, bytes, i);
	}
	return wrong;
}

#define CONSUME(name, suffix, lane, lanes, any)                                                 \
	GPU_KERNEL(name, gpu_traffic, 32)                                                       \
	{                                                                                       \
		GPU_SHARED(uint64_t, message, BARWAY_MESSAGE_MAX / 8);                          \
		uint64_t result = GPU_AT(p->result, sizeof(struct gpu_result));                 \
		struct gpu_result r = { 0, 0, 0, 0, 0, 0 };                                     \
		uint32_t bytes = 0, tag = 0;                                                    \
		struct barway_gpu_channel ch;                                                   \
		int error = 0;                                                                  \
												\
		if (!result || GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {                 \
			GPU_TRAP();                                                             \
			return;                                                                 \
		}                                                                               \
		while (r.count < p->count) {                                                    \
			uint64_t key = gpu_message_key(0, p->first + r.count);                  \
			int wrong;                                                              \
												\
			error = barway_gpu_recv##suffix(&ch, message, sizeof(message), &bytes,  \
							&tag, p->idle_ns, p->flags);            \
			if (error)                                                              \
				break;                                                          \
			wrong = bytes != gpu_message_bytes(key, p->least, p->most) || tag;      \
			if (p->check && !wrong)                                                 \
				wrong = any(wrong_words(message, key, bytes, lane, lanes));     \
			if (wrong && !r.wrong++)                                                \
				r.first = r.count;                                              \
			r.count++;                                                              \
			r.bytes += bytes;                                                       \
		}                                                                               \
		if (!GPU_THREAD()) {                                                            \
			SAY_RESULT(result, &r, error);                                          \
			barway_gpu_leave(&ch);                                                  \
		}                                                                               \
	}

#define ALONE(yes) (yes)

CONSUME(gpu_consume, , 0, 1, ALONE)
CONSUME(gpu_consume_warp, _warp, GPU_LANE(), GPU_LANES(), GPU_ANY)

#define EACH_WORDS (BARWAY_MESSAGE_MAX / 8 + 1) /* one more: no two threads in the same bank */

/* As many messages at a time as there are threads. */
GPU_KERNEL(gpu_consume_each, gpu_traffic, 32)
{
	GPU_SHARED(uint64_t, messages, EACH_WORDS * GPU_WARP);
	uint64_t result = GPU_AT(p->result, sizeof(struct gpu_result));
	uint64_t *message = messages + GPU_LANE() * EACH_WORDS;
	struct gpu_result r = { 0, 0, 0, 0, 0, 0 };
	uint32_t bytes = 0, tag = 0;
	struct barway_gpu_channel ch;
	uint64_t taken = 0, wrong, first, all;
	int n = 0;

	if (!result || GPU_ATTACH(&ch, &p->channel, BARWAY_GPU_SOLE)) {
		GPU_TRAP();
		return;
	}
	while (taken < p->count) {
		uint64_t key = gpu_message_key(0, p->first + taken + GPU_LANE());

		n = barway_gpu_recv_each(&ch, message, BARWAY_MESSAGE_MAX, &bytes, &tag, p->idle_ns,
					 p->flags);
		if (n < 0)
			break;
		if (GPU_LANE() < (unsigned)n) {
			int bad = bytes != gpu_message_bytes(key, p->least, p->most) || tag;

			if (p->check && !bad)
				bad = wrong_words(message, key, bytes, 0, 1);
			if (bad && !r.wrong++)
				r.first = taken + GPU_LANE();
			r.bytes += bytes;
		}
		taken += (unsigned)n;
	}
	/* of all threads: the sums, and the first of the first ones */
	wrong = GPU_SUM_WARP(r.wrong);
	all = GPU_SUM_WARP(r.bytes);
	first = r.wrong ? r.first : UINT64_MAX;
	for (unsigned lane = 0; lane < GPU_LANES(); lane++) {
		uint64_t other = GPU_SHFL(first, lane);

		first = other < first ? other : first;
	}
	if (!GPU_THREAD()) {
		r = (struct gpu_result){ taken, all, wrong, wrong ? first : 0, 0, 0 };
		SAY_RESULT(result, &r, n < 0 ? n : 0);
		barway_gpu_leave(&ch);
	}
}
