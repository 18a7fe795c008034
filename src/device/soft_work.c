/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is put on streams of the soft GPU, but for kernels. A copy finds its memory, and takes a
 * reference to it, when it is queued: freeing that memory later harms nobody. A word is looked up
 * when its turn comes, and each time it is looked at, so host memory that is gone is not touched.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/fault.h"
#include "device/soft_int.h"

const char soft_copy_failed[] = "the copy engine failed: fault injected: unset the parameter fault";
static const char word_gone[] = "the memory of a word was freed while the stream needed it";
static const char wait_ended[] = "the stream was destroyed while it waited for a value";

static struct soft_op *op_new(const char *(*run)(struct soft_stream *s, struct soft_op *op))
{
	struct soft_op *op = bw_alloc(sizeof(*op));

	if (op)
		op->run = run;
	return op;
}

/* ---- copies -------------------------------------------------------------------------------- */

static const char *copy_run(struct soft_stream *s, struct soft_op *op)
{
	(void)s;
	if (bw_fault_hit(BW_FAULT_COPY))
		return soft_copy_failed;
	memcpy(op->copy.dst, op->copy.src, op->copy.bytes);
	return NULL;
}

int soft_copy_prepare(struct soft_card *c, struct soft_op *op, uint64_t addr, void *dst,
		      const void *src, size_t bytes)
{
	unsigned char *at = NULL;
	int ret = soft_memory_find(c, addr, bytes, &op->page, &at);

	if (ret)
		return bw_err_prefix(ret, "copy");
	op->run = copy_run;
	op->copy.dst = dst ? dst : at;
	op->copy.src = src ? src : at;
	op->copy.bytes = bytes;
	op->has_page = true;
	soft_card_get(c, op->page);
	return 0;
}

int soft_copy(struct bw_device *dev, struct bw_soft_stream *stream, uint64_t addr, void *dst,
	      const void *src, size_t bytes)
{
	struct soft_op *op;
	int ret;
	struct soft_stream *s = soft_stream_get(dev, stream, "copy", &ret);

	if (!s)
		return ret;
	if (!bytes)
		return 0;
	if (!dst && !src)
		return bw_err(EINVAL, "copy on soft GPU %d: the host's address is NULL",
			      s->card->dev.index);
	if (s->card->trapped)
		return soft_trap_err(s->card, "copy");
	op = op_new(copy_run);
	if (!op)
		return bw_err(ENOMEM, "copy on soft GPU %d: no host memory", s->card->dev.index);
	soft_take_lock();
	ret = soft_copy_prepare(s->card, op, addr, dst, src, bytes);
	soft_leave();
	if (ret)
		free(op);
	else
		soft_stream_put_on(s, op);
	return ret;
}

int bw_soft_copy_to_async(struct bw_soft_stream *s, uint64_t addr, const void *src, size_t bytes)
{
	return soft_copy(NULL, s, addr, NULL, src, bytes);
}

int bw_soft_copy_from_async(struct bw_soft_stream *s, void *dst, uint64_t addr, size_t bytes)
{
	return soft_copy(NULL, s, addr, dst, NULL, bytes);
}

/* ---- words --------------------------------------------------------------------------------- */

/* Stores, or loads into *load. false: what was there when the work was queued is gone. */
static bool word_touch(struct soft_card *c, const struct soft_op *op, uint64_t *load)
{
	uint64_t *at = NULL;

	soft_take_lock();
	if (soft_memory_id(op->word.addr) == op->word.id)
		at = soft_memory_reach(c, op->word.addr, 8);
	if (at && load)
		*load = __atomic_load_n(at, __ATOMIC_ACQUIRE);
	else if (at)
		__atomic_store_n(at, op->word.value, __ATOMIC_RELEASE);
	soft_leave();
	return at != NULL;
}

/* After a failure it would announce what has not ARRIVED. */
static const char *write_run(struct soft_stream *s, struct soft_op *op)
{
	return s->broken ? NULL :
	       word_touch(s->card, op, NULL) ? NULL : word_gone;
}

/* A value may come at once or never: looks often at first, then every half millisecond. */
static void back_off(unsigned turn)
{
	struct timespec t = { 0, turn < 1000 ? 20000 : 500000 };

	if (turn < 200)
		sched_yield();
	else
		nanosleep(&t, NULL);
}

static const char *wait_run(struct soft_stream *s, struct soft_op *op)
{
	uint64_t value;

	for (unsigned turn = 0; word_touch(s->card, op, &value); turn += turn < 1000) {
		if (value >= op->word.value)
			return NULL;
		if (s->card->trapped)
			return soft_trapped;
		if (s->stop) {
			s->drop = true;
			return wait_ended;
		}
		back_off(turn);
	}
	return word_gone;
}

static int word_prepare(struct soft_card *c, struct soft_op *op, const char *what, uint64_t addr,
			uint64_t value)
{
	int ret = 0;

	op->word.addr = addr;
	op->word.value = value;
	soft_take_lock();
	op->word.id = soft_memory_id(addr);
	if (addr % 8)
		ret = bw_err(EINVAL, "%s 0x%llx: give an address that is a multiple of 8", what,
			     (unsigned long long)addr);
	else if (!soft_memory_reach(c, addr, 8))
		ret = bw_err(EFAULT, "%s 0x%llx: not memory that soft GPU %d can reach: give the "
			     "device address of GPU memory or of pinned memory", what,
			     (unsigned long long)addr, c->dev.index);
	soft_leave();
	return ret;
}

static int word_put_on(struct bw_device *dev, struct bw_soft_stream *stream, const char *what,
		       const char *(*run)(struct soft_stream *s, struct soft_op *op),
		       uint64_t addr, uint64_t value)
{
	struct soft_op *op;
	int ret;
	struct soft_stream *s = soft_stream_get(dev, stream, what, &ret);

	if (!s)
		return ret;
	if (s->card->trapped)
		return soft_trap_err(s->card, what);
	op = op_new(run);
	ret = op ? word_prepare(s->card, op, what, addr, value) :
		   bw_err(ENOMEM, "%s 0x%llx: no host memory", what, (unsigned long long)addr);
	if (ret)
		free(op);
	else
		soft_stream_put_on(s, op);
	return ret;
}

int soft_stream_write(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value)
{
	return word_put_on(dev, stream, "write a word at", write_run, addr, value);
}

int soft_stream_wait(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value)
{
	return word_put_on(dev, stream, "wait for a word at", wait_run, addr, value);
}

/* ---- calls --------------------------------------------------------------------------------- */

static const char *call_run(struct soft_stream *s, struct soft_op *op)
{
	(void)s;
	op->call.fn(op->call.arg);
	return NULL;
}

/* After a failed kernel it is not called, as with CUDA. */
int soft_stream_call(struct bw_device *dev, void *stream, void (*fn)(void *arg), void *arg)
{
	struct soft_op *op;
	int ret;
	struct soft_stream *s = soft_stream_get(dev, stream, "put a call on a stream", &ret);

	if (!s)
		return ret;
	if (s->card->trapped)
		return soft_trap_err(s->card, "put a call on a stream");
	op = op_new(call_run);
	if (!op)
		return bw_err(ENOMEM, "put a call on a stream: no host memory");
	op->call.fn = fn;
	op->call.arg = arg;
	soft_stream_put_on(s, op);
	return 0;
}

/* ---- for kernels and tests ----------------------------------------------------------------- */

uint64_t bw_soft_load64(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
}

uint64_t bw_soft_load64_acquire(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

void bw_soft_store64_release(void *p, uint64_t v)
{
	__atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}
