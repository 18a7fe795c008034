/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From the GPU. Whoever waits polls the next line without the lock, in his cache, and takes the
 * lock when all of the message is there.
 */
#include <errno.h>

#include "channel/channel.h"
#include "channel/line.h"

#define AHEAD 2     /* lines to fetch before they are asked for */
#define MOMENTS 100 /* looks at the rest of a message that has begun to arrive; a microsecond */

struct message {
	size_t bytes;
	unsigned tag, lines;
	unsigned wrong; /* where it is garbled: the line that is not one */
	uint64_t position, line[BARWAY_MESSAGE_LINES][BARWAY_LINE_WORDS];
};

enum { NOTHING, WHOLE, GARBLED };

static const unsigned char *ring_of(const struct bw_channel *ch)
{
	return ch->host + BARWAY_HOST_RING;
}

static void fetch(const struct bw_channel *ch, uint64_t position)
{
	__builtin_prefetch(ring_of(ch) +
			   (position & (ch->to_cpu_lines - 1)) * BARWAY_LINE_BYTES);
}

/*
 * Is the first line of a message there? If the message is as long as the one before, its other
 * lines come with the first: each takes the time of a cache miss, all together no longer than one.
 */
static bool look_first(const struct bw_channel *ch, struct message *m)
{
	unsigned lines = atomic_load_explicit(&ch->to_cpu.lines, memory_order_relaxed);

	m->position = atomic_load_explicit(&ch->to_cpu.position, memory_order_relaxed);
	for (unsigned i = 1; i < lines; i++)
		fetch(ch, m->position + i);
	return ch->line->get(m->line[0], ring_of(ch), m->position, ch->to_cpu_lines);
}

/* The first line is: is all of the message? */
static int look_on(const struct bw_channel *ch, struct message *m)
{
	uint64_t control = m->line[0][0];

	m->wrong = 0;
	m->bytes = control >> 44 & 0xfff;
	m->tag = control >> 32 & 0xfff;
	m->lines = BARWAY_MESSAGE_LINES_OF((unsigned)m->bytes);
	if ((uint32_t)control != (uint32_t)m->position || m->bytes > BARWAY_MESSAGE_MAX)
		return GARBLED;
	for (unsigned i = 1; i < m->lines; i++) {
		if (!ch->line->get(m->line[i], ring_of(ch), m->position + i, ch->to_cpu_lines))
			return NOTHING;
		control = m->line[i][0];
		if ((uint32_t)control != (uint32_t)(m->position + i) ||
		    (control >> 44 & 0xfff) != BARWAY_LINE_MORE) {
			m->wrong = i;
			return GARBLED;
		}
	}
	return WHOLE;
}

static int look(const struct bw_channel *ch, struct message *m)
{
	return look_first(ch, m) ? look_on(ch, m) : NOTHING;
}

/* The same; where the first line is there the others come within moments. */
static int look_until_whole(const struct bw_channel *ch, struct message *m)
{
	int found = NOTHING;

	if (look_first(ch, m))
		for (unsigned i = 0; i < MOMENTS && found == NOTHING; i++)
			found = look_on(ch, m);
	return found;
}

bool bw_channel_readable(const struct bw_channel *ch)
{
	struct message m;

	return look(ch, &m) != NOTHING;
}

static int garbled(struct bw_channel *ch, const struct message *m)
{
	struct bw_reason why;

	bw_reason_set(&why, "what stands in the ring to the CPU at line %llu is not a message "
		      "(control word 0x%016llx): a kernel wrote over the channel's memory, or uses "
		      "another version of barway_device.cuh",
		      (unsigned long long)(m->position + m->wrong),
		      (unsigned long long)m->line[m->wrong][0]);
	return bw_channel_fail(ch, BW_CHANNEL_GARBLED, why.text);
}

/* By who has the lock, or by the only one left. */
static void say_taken(struct bw_channel *ch)
{
	uint64_t position = atomic_load_explicit(&ch->to_cpu.position, memory_order_relaxed);

	atomic_store_explicit(&ch->to_cpu.credit, position, memory_order_relaxed);
	bw_channel_tell(ch, BARWAY_GPU_TX_CREDIT, position);
}

void bw_channel_say_taken(struct bw_channel *ch)
{
	if (atomic_load_explicit(&ch->to_cpu.position, memory_order_relaxed) ==
	    atomic_load_explicit(&ch->to_cpu.credit, memory_order_relaxed))
		return;
	pthread_mutex_lock(&ch->to_cpu.lock);
	if (!ch->win->revoked)
		say_taken(ch);
	pthread_mutex_unlock(&ch->to_cpu.lock);
}

static void take(struct bw_channel *ch, const struct message *m, void *data)
{
	uint64_t end = m->position + m->lines;
	size_t done = 0, part;

	for (unsigned i = 0; i < m->lines; i++, done += BARWAY_LINE_DATA) {
		part = m->bytes - done < BARWAY_LINE_DATA ? m->bytes - done : BARWAY_LINE_DATA;
		ch->line->take((unsigned char *)data + done, part, m->line[i]);
	}
	for (unsigned i = 0; i < AHEAD; i++)
		fetch(ch, end + i);
	atomic_store_explicit(&ch->to_cpu.lines, m->lines, memory_order_relaxed);
	atomic_store_explicit(&ch->to_cpu.position, end, memory_order_relaxed);
	atomic_store_explicit(&ch->to_cpu.messages,
			      atomic_load_explicit(&ch->to_cpu.messages, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (end - atomic_load_explicit(&ch->to_cpu.credit, memory_order_relaxed) >=
	    ch->to_cpu_lines / BARWAY_CREDIT_PART)
		say_taken(ch);
}

/*
 * @m and @found were seen without the lock: it is still the next one unless another thread took it.
 * -EAGAIN: there is nothing; without a sentence.
 */
static int try_recv(struct bw_channel *ch, struct message *m, int found, void *data, size_t room,
		    size_t *bytes, unsigned *tag)
{
	unsigned stopped;
	int ret = 0;

	pthread_mutex_lock(&ch->to_cpu.lock);
	stopped = atomic_load_explicit(&ch->stopped, memory_order_relaxed) &
		  (BW_CHANNEL_SHUT | BW_CHANNEL_GARBLED);
	if (stopped || ch->win->revoked) {
		ret = stopped ? bw_channel_stopped_err(ch) : bw_channel_closed_err(ch);
		pthread_mutex_unlock(&ch->to_cpu.lock);
		return ret;
	}
	if (m->position != atomic_load_explicit(&ch->to_cpu.position, memory_order_relaxed))
		found = look(ch, m);
	if (found == WHOLE && m->bytes <= room)
		take(ch, m, data);
	pthread_mutex_unlock(&ch->to_cpu.lock);
	if (found == GARBLED)
		return garbled(ch, m);
	if (found == NOTHING)
		return -EAGAIN;
	if (bytes)
		*bytes = m->bytes;
	if (m->bytes > room)
		return bw_err(EMSGSIZE, "the next message has %zu bytes and there is room for %zu: "
			      "it stays: give room for %u", m->bytes, room, BARWAY_MESSAGE_MAX);
	if (tag)
		*tag = m->tag;
	return 0;
}

/* Nothing was there: will nothing come any more? What was sent before the end is seen after it. */
static int ended(struct bw_channel *ch)
{
	if (atomic_load_explicit(&ch->stopped, memory_order_acquire))
		return bw_channel_readable(ch) ? 0 : bw_channel_stopped_err(ch);
	if (bw_channel_word(ch, BARWAY_HOST_CLOSED) || ch->win->revoked)
		return bw_channel_readable(ch) ? 0 : bw_channel_closed_err(ch);
	return 0;
}

static int recv_when_there(struct bw_channel *ch, void *data, size_t room, size_t *bytes,
			   unsigned *tag, uint64_t timeout_ns)
{
	struct bw_channel_wait wait = { .timeout_ns = timeout_ns };
	struct message m;
	int ret, found;

	for (;;) {
		found = look_until_whole(ch, &m);
		if (found != NOTHING) {
			ret = try_recv(ch, &m, found, data, room, bytes, tag);
			if (ret != -EAGAIN)
				return ret;
		}
		ret = ended(ch);
		if (ret)
			return ret;
		if (!timeout_ns) {
			ret = bw_channel_idle(ch);
			return ret ? ret : BW_CHANNEL_NOTHING;
		}
		ret = bw_channel_pause(ch, &wait);
		if (ret == BW_CHANNEL_NOTHING)
			return bw_err(ETIMEDOUT, "no message from the GPU within %llu ns",
				      (unsigned long long)timeout_ns);
		if (ret)
			return ret;
	}
}

/* The message is taken, whatever becomes of this: the next call that finds nothing tries again. */
static void launch_quietly(struct bw_channel *ch)
{
	struct bw_sentence kept;

	bw_err_keep(&kept);
	if (bw_channel_launch(ch))
		bw_err_put_back(&kept);
}

int bw_channel_recv(struct bw_channel *ch, void *data, size_t room, size_t *bytes, unsigned *tag,
		    uint64_t timeout_ns)
{
	int ret = recv_when_there(ch, data, room, bytes, tag, timeout_ns);

	if (!ret && bw_channel_deserted(ch))
		launch_quietly(ch);
	return ret;
}
