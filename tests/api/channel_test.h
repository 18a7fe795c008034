/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of channels share: messages that can be told from any other, kernels of the soft
 * GPU that take and make them, and a channel with the stream that its kernels run on.
 */
#ifndef TEST_CHANNEL_H
#define TEST_CHANNEL_H

#include <barway_device.cuh>
#include <stdatomic.h>

#include "api_test.h"

#define MS 1000000ull
#define SECOND (1000 * MS)
#define PATIENCE (20 * SECOND) /* for what has to happen, on a machine that is busy */

/* ---- messages ------------------------------------------------------------------------------ */

struct message {
	uint64_t word[BARWAY_MESSAGE_MAX / 8];
	uint32_t bytes, tag;
};

/* Who sent it and when decides all of it: size (at least @least), tag, and bytes of all values. */
static inline void message_make(struct message *m, uint64_t from, uint64_t number, uint32_t least)
{
	uint64_t state = (from + 1) * 0x9e3779b97f4a7c15ull ^ (number + 1) * 0xd1342543de82ef95ull;
	uint64_t x = (test_random(&state), test_random(&state));
	uint32_t most = x & 3 ? BARWAY_MESSAGE_MAX : 2 * BARWAY_LINE_DATA;

	m->bytes = least + (uint32_t)(x >> 8) % (most + 1 - least);
	m->tag = (uint32_t)(x >> 40) & BARWAY_TAG_MAX;
	for (uint32_t i = 0; i * 8 < m->bytes; i++)
		m->word[i] = test_random(&state);
	if (m->bytes >= 8)
		m->word[0] = from << 48 | number;
}

static inline bool message_is(const void *data, size_t bytes, unsigned tag, uint64_t from,
			      uint64_t number, uint32_t least)
{
	struct message m;

	message_make(&m, from, number, least);
	return bytes == m.bytes && tag == m.tag && !memcmp(data, m.word, bytes);
}

/* ---- kernels ------------------------------------------------------------------------------- */

/* What kernels find out: threads of this process, so it is ordinary memory. */
struct outcome {
	_Atomic uint64_t done;  /* messages */
	_Atomic unsigned begun; /* blocks that have attached */
	_Atomic bool go;        /* by the test: now */
	_Atomic int result;     /* of the last call that was not 0; 1: a message was wrong */
};

struct job {
	struct barway_channel_gpu handle;
	uint64_t count;   /* messages, of each block */
	uint64_t wait_ns; /* of each call */
	uint32_t least, flags;
	struct outcome *out;
};

/* Sends back what comes, until none has come for a while. */
__attribute__((unused)) static void echo(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	uint64_t data[BARWAY_MESSAGE_MAX / 8];
	uint32_t bytes, tag;
	int ret = barway_gpu_attach(&c, &job->handle, BARWAY_GPU_SOLE, block);

	if (ret)
		return;
	while (!ret) {
		ret = barway_gpu_recv(&c, data, sizeof(data), &bytes, &tag, job->wait_ns,
				      job->flags);
		if (!ret)
			ret = barway_gpu_send(&c, data, bytes, tag, PATIENCE, job->flags);
		if (!ret)
			job->out->done++;
	}
	job->out->result = ret;
	barway_gpu_leave(&c);
}

/* Each block sends messages of its own. */
__attribute__((unused)) static void produce(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	uint64_t from = barway_soft_block_index(block);
	unsigned sole = barway_soft_block_count(block) == 1 ? BARWAY_GPU_SOLE : 0;
	struct barway_gpu_channel c;
	struct message m;
	int ret = barway_gpu_attach(&c, &job->handle, sole, block);

	job->out->begun++;
	for (uint64_t i = 0; i < job->count && !ret; i++) {
		message_make(&m, from, i, job->least);
		ret = barway_gpu_send(&c, m.word, m.bytes, m.tag, job->wait_ns, job->flags);
		if (!ret)
			job->out->done++;
	}
	if (ret)
		job->out->result = ret;
}

/* One block takes all messages and looks at them. */
__attribute__((unused)) static void consume(struct barway_soft_block *block, void *arg)
{
	const struct job *job = arg;
	struct barway_gpu_channel c;
	struct message m;
	int ret = barway_gpu_attach(&c, &job->handle, 0, block);

	job->out->begun++;
	for (uint64_t i = 0; i < job->count && !ret; i++) {
		ret = barway_gpu_recv(&c, m.word, sizeof(m.word), &m.bytes, &m.tag, job->wait_ns,
				      job->flags);
		if (!ret && !message_is(m.word, m.bytes, m.tag, 0, i, job->least))
			ret = 1;
		if (!ret)
			job->out->done++;
	}
	if (ret)
		job->out->result = ret;
	if (!ret)
		barway_gpu_leave(&c);
}

/* ---- a channel and its stream -------------------------------------------------------------- */

struct rig {
	struct barway_channel *ch;
	struct barway_soft_stream *stream;
	barway_soft_kernel *kernel; /* what launch() puts on the stream */
	struct job job;
	struct outcome out;
	_Atomic unsigned launches, in_launch;
	_Atomic bool overlapped;
	_Atomic int launch_fails; /* what launch() returns instead, once */
};

static inline void rig_launch(struct rig *r, barway_soft_kernel *kernel, unsigned blocks)
{
	OK(barway_soft_launch(r->stream, kernel, blocks, &r->job, sizeof(r->job)));
}

__attribute__((unused)) static int launch(void *arg)
{
	struct rig *r = arg;
	int ret = r->launch_fails;

	if (r->in_launch++)
		r->overlapped = true;
	r->launches++;
	r->launch_fails = 0;
	if (!ret)
		ret = barway_soft_launch(r->stream, r->kernel, 1, &r->job, sizeof(r->job));
	r->in_launch--;
	return ret;
}

/* Rings of @lines, 0: the default; @kernel: launched by the channel, NULL: by the test. */
static inline void rig_begin(struct rig *r, uint32_t lines, barway_soft_kernel *kernel)
{
	struct barway_channel_options o = {
		.size = sizeof(o),
		.to_gpu_bytes = lines * BARWAY_LINE_BYTES,
		.to_cpu_bytes = lines * BARWAY_LINE_BYTES,
		.launch = kernel ? launch : NULL,
		.launch_arg = r,
	};

	memset(r, 0, sizeof(*r));
	r->kernel = kernel;
	OK(barway_soft_stream_create(gpu[0], &r->stream));
	OK(barway_channel_open(gpu[0], &o, &r->ch));
	OK(barway_channel_gpu(r->ch, &r->job.handle));
	r->job.out = &r->out;
	r->job.wait_ns = PATIENCE;
}

static inline void rig_end(struct rig *r)
{
	OK(barway_channel_close(r->ch));
	OK(barway_soft_stream_sync(r->stream));
	OK(barway_soft_stream_destroy(r->stream));
	CHECK(!r->overlapped);
}

static inline struct barway_channel_info channel_info(struct rig *r)
{
	struct barway_channel_info i = { .size = sizeof(i) };

	OK(barway_channel_query(r->ch, &i));
	return i;
}

/* Until that many blocks have begun. */
static inline void rig_wait(struct rig *r, unsigned blocks)
{
	double end = seconds() + PATIENCE / 1e9;

	while (r->out.begun < blocks) {
		CHECK(seconds() < end);
		sleep_ms(1);
	}
}

/* Sends message @number and takes its echo. */
static inline void round_trip(struct rig *r, uint64_t number)
{
	uint64_t back[BARWAY_MESSAGE_MAX / 8];
	struct message m;
	size_t bytes;
	unsigned tag;

	message_make(&m, 0, number, 0);
	OK(barway_channel_send(r->ch, m.word, m.bytes, m.tag, PATIENCE));
	OK(barway_channel_recv(r->ch, back, sizeof(back), &bytes, &tag, PATIENCE));
	CHECK(message_is(back, bytes, tag, 0, number, 0));
}

/* How many messages a long test sends. */
static inline uint64_t many(uint64_t otherwise)
{
	const char *said = getenv("CHANNEL_MESSAGES");

	return said ? strtoull(said, NULL, 10) : SANITIZED ? otherwise / 10 : otherwise;
}

#endif
