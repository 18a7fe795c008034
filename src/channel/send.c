/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To the GPU. A message is made into lines beside the ring and stored by the mapping's kernel, so
 * that whole lines leave as one PCIe write each; a message of one line is stored from the register
 * that it is made in, where the CPU can. The fence after it is made under the lock too: a
 * message is on its way before another thread can shut the channel down or send one after it.
 */
#include <errno.h>

#include "channel/channel.h"
#include "channel/line.h"
#include "mmio/fence.h"

#define likely(x) __builtin_expect(!!(x), 1)

/* For those who hold the lock, and for those who only want to know. */
bool bw_channel_has_room(struct bw_channel *ch, uint64_t lines)
{
	uint64_t end = atomic_load_explicit(&ch->to_gpu.position, memory_order_relaxed) + lines;
	uint64_t credit = atomic_load_explicit(&ch->to_gpu.credit, memory_order_relaxed);

	if (likely(end - credit <= ch->to_gpu_lines))
		return true;
	credit = bw_channel_word(ch, BARWAY_HOST_RX_CREDIT);
	atomic_store_explicit(&ch->to_gpu.credit, credit, memory_order_relaxed);
	return end - credit <= ch->to_gpu_lines;
}

/* @n lines, at a ring that begins at @ring. */
static void store(const struct bw_channel *ch, unsigned char *ring, uint64_t place,
		  uint64_t (*w)[BARWAY_LINE_WORDS], uint64_t n)
{
	uint64_t first = ch->to_gpu_lines - place < n ? ch->to_gpu_lines - place : n;

	ch->store(ring + place * BARWAY_LINE_BYTES, w, first * BARWAY_LINE_BYTES);
	if (first < n)
		ch->store(ring, w[first], (n - first) * BARWAY_LINE_BYTES);
}

/* Returns how many lines it has. */
static unsigned put(const struct bw_channel *ch, uint64_t position, const void *data, size_t bytes,
		    unsigned tag)
{
	_Alignas(64) uint64_t w[BARWAY_MESSAGE_LINES][BARWAY_LINE_WORDS];
	size_t twin = ch->to_gpu_lines == BARWAY_RING_TWIN_LINES ? BARWAY_RING_TWIN : 0;
	uint64_t place = position & (ch->to_gpu_lines - 1);
	unsigned char *ring = ch->gpu + BARWAY_GPU_RING;
	unsigned n;

	if (bytes <= BARWAY_LINE_DATA && ch->send_line) {
		ch->send_line(ring + place * BARWAY_LINE_BYTES, twin,
			      bw_line_control(position, bytes, tag),
			      bw_line_mark(position, ch->to_gpu_lines), data, bytes);
		return 1;
	}
	n = ch->line->put(w, position, ch->to_gpu_lines, data, bytes, tag);
	store(ch, ring, place, w, n);
	if (twin)
		store(ch, ring + twin, place, w, n);
	return n;
}

static void send(struct bw_channel *ch, const void *data, size_t bytes, unsigned tag)
{
	uint64_t position = atomic_load_explicit(&ch->to_gpu.position, memory_order_relaxed);
	unsigned n;

	bw_fence_publish(); /* what the caller stored before goes before the message */
	n = put(ch, position, data, bytes, tag);
	bw_fence_publish();
	atomic_store_explicit(&ch->to_gpu.position, position + n, memory_order_release);
	atomic_store_explicit(&ch->to_gpu.messages,
			      atomic_load_explicit(&ch->to_gpu.messages, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* -EAGAIN: there is no room; without a sentence. */
static int try_send(struct bw_channel *ch, const void *data, size_t bytes, unsigned tag)
{
	int ret = -EAGAIN;

	pthread_mutex_lock(&ch->to_gpu.lock);
	if (atomic_load_explicit(&ch->stopped, memory_order_relaxed))
		ret = bw_channel_stopped_err(ch);
	else if (bw_channel_word(ch, BARWAY_HOST_CLOSED) || ch->win->revoked)
		ret = bw_channel_closed_err(ch);
	else if (likely(bw_channel_has_room(ch, BARWAY_MESSAGE_LINES_OF(bytes)))) {
		send(ch, data, bytes, tag);
		ret = 0;
	}
	pthread_mutex_unlock(&ch->to_gpu.lock);
	return ret;
}

static bool is_too_much(struct bw_channel *ch, uint64_t credit)
{
	return (int64_t)(credit - atomic_load(&ch->to_gpu.position)) > 0;
}

/*
 * What the GPU says that it took can be no more than was sent: then its memory was overwritten. It
 * may take a message before who sends it has counted it, which is over when the lock is had.
 */
static int check_credit(struct bw_channel *ch)
{
	uint64_t credit = bw_channel_word(ch, BARWAY_HOST_RX_CREDIT);
	struct bw_reason why;
	bool wrong;

	if (!is_too_much(ch, credit))
		return 0;
	pthread_mutex_lock(&ch->to_gpu.lock);
	wrong = is_too_much(ch, credit);
	pthread_mutex_unlock(&ch->to_gpu.lock);
	if (!wrong)
		return 0;
	bw_reason_set(&why, "the GPU says that it took %llu lines, more than were sent to it: a "
		      "kernel wrote over the channel's memory, or was given another channel's "
		      "handle", (unsigned long long)credit);
	return bw_channel_fail(ch, BW_CHANNEL_GARBLED, why.text);
}

static int full_err(const struct bw_channel *ch, uint64_t timeout_ns)
{
	return bw_err(ETIMEDOUT, "no room in the ring to the GPU, %u lines, within %llu ns: does a "
		      "kernel take messages?", ch->to_gpu_lines, (unsigned long long)timeout_ns);
}

/* Without the lock, which others may be sending under. */
static bool may_try(struct bw_channel *ch, uint64_t lines)
{
	return atomic_load_explicit(&ch->stopped, memory_order_relaxed) ||
	       bw_channel_word(ch, BARWAY_HOST_CLOSED) || ch->win->revoked ||
	       bw_channel_has_room(ch, lines);
}

static int send_when_room(struct bw_channel *ch, const void *data, size_t bytes, unsigned tag,
			  uint64_t timeout_ns)
{
	struct bw_channel_wait wait = { .timeout_ns = timeout_ns };
	int ret;

	for (;;) {
		ret = check_credit(ch);
		if (!ret)
			ret = bw_channel_pause(ch, &wait);
		if (ret)
			return ret == BW_CHANNEL_NOTHING ? full_err(ch, timeout_ns) : ret;
		if (!may_try(ch, BARWAY_MESSAGE_LINES_OF(bytes)))
			continue;
		ret = try_send(ch, data, bytes, tag);
		if (ret != -EAGAIN)
			return ret;
	}
}

int bw_channel_send(struct bw_channel *ch, const void *data, size_t bytes, unsigned tag,
		    uint64_t timeout_ns)
{
	int ret = try_send(ch, data, bytes, tag);

	if (ret == -EAGAIN && timeout_ns) {
		ret = send_when_room(ch, data, bytes, tag, timeout_ns);
	} else if (ret == -EAGAIN) {
		ret = check_credit(ch);
		if (!ret)
			ret = bw_channel_idle(ch);
		if (!ret)
			ret = BW_CHANNEL_NOTHING;
	}
	if (!ret && bw_channel_deserted(ch))
		ret = bw_channel_launch(ch);
	else if (ret == -EPIPE)
		bw_channel_still_to_take(ch);
	return ret;
}
