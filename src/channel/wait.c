/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What those do who wait: poll; look at the clock now and then; launch the kernel again where it
 * has left; ask whether the device still works; and after a while leave the CPU to others.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "channel/channel.h"

#define US 1000ull
#define ASK_NS (1000 * US)   /* between two questions to the device */
#define YIELD_NS (100 * US)  /* after polling, so long the CPU is only offered */
#define SLEEP_MIN_NS (5 * US)
#define SLEEP_MAX_NS (50 * US)
#define ERRNO_MAX 4095       /* of the system's; launch() may return anything */
#define SLACK_NS (150 * US)  /* how late a sleep may end: none so close before a deadline */

/* ---- failures -------------------------------------------------------------------------------- */

int bw_channel_fail(struct bw_channel *ch, unsigned how, const char *why)
{
	pthread_mutex_lock(&ch->failing);
	if (!(atomic_load(&ch->stopped) & (BW_CHANNEL_FAILED | BW_CHANNEL_GARBLED)))
		bw_reason_set(&ch->why, "%s", why);
	atomic_fetch_or(&ch->stopped, how);
	pthread_mutex_unlock(&ch->failing);
	return bw_channel_stopped_err(ch);
}

int bw_channel_stopped_err(const struct bw_channel *ch)
{
	if (atomic_load(&ch->stopped) & (BW_CHANNEL_FAILED | BW_CHANNEL_GARBLED))
		return bw_err(EIO, "%s", ch->why.text);
	return bw_err(EPIPE, "this side has shut the channel down: open another");
}

int bw_channel_closed_err(const struct bw_channel *ch)
{
	if (ch->win->revoked)
		return bw_err(EIO, "barway_release_all() took the channel's mapping away: close "
			      "the channel and open another");
	return bw_err(EPIPE, "a kernel has closed the channel: open another");
}

/* At most once in a while, whoever it is that asks. */
static int ask(struct bw_channel *ch, uint64_t now)
{
	uint64_t last = atomic_load_explicit(&ch->asked_ns, memory_order_relaxed);
	struct bw_sentence kept;
	int ret;

	if (now - last < ASK_NS || !atomic_compare_exchange_strong(&ch->asked_ns, &last, now))
		return 0;
	bw_err_keep(&kept);
	ret = ch->dev->ops->alive(ch->dev, ch->owner);
	if (ret == -EIO || ret == -ENODEV)
		return bw_channel_fail(ch, BW_CHANNEL_FAILED, bw_err_text());
	if (ret) /* it could not be asked: memory was short, or the like */
		bw_err_put_back(&kept);
	return 0;
}

/* ---- launching ------------------------------------------------------------------------------- */

/*
 * After a shutdown: what was sent before is still to be taken, by a kernel that comes once more,
 * and again as long as each takes something. One that takes nothing is not launched for ever.
 */
bool bw_channel_worth_launching(const struct bw_channel *ch, uint64_t credit)
{
	unsigned stopped = atomic_load_explicit(&ch->stopped, memory_order_acquire);

	if (stopped & (BW_CHANNEL_FAILED | BW_CHANNEL_GARBLED) ||
	    bw_channel_word(ch, BARWAY_HOST_CLOSED))
		return false;
	return !(stopped & BW_CHANNEL_SHUT) ||
	       atomic_load_explicit(&ch->shut_launch, memory_order_relaxed) != credit;
}

/* Under the lock. */
static int launch(struct bw_channel *ch)
{
	bool shut = atomic_load(&ch->stopped) & BW_CHANNEL_SHUT;
	uint64_t credit = bw_channel_word(ch, BARWAY_HOST_RX_CREDIT);
	int ret = ch->launch(ch->launch_arg);

	if (ret)
		return ret;
	if (shut)
		atomic_store_explicit(&ch->shut_launch, credit, memory_order_relaxed);
	atomic_fetch_add_explicit(&ch->launches, 1, memory_order_release);
	return 0;
}

int bw_channel_launch(struct bw_channel *ch)
{
	int ret = 0;

	if (pthread_mutex_trylock(&ch->launching))
		return 0;
	if (bw_channel_deserted(ch)) /* still */
		ret = launch(ch);
	pthread_mutex_unlock(&ch->launching);
	if (!ret)
		return 0;
	if (ret > 0 || ret < -ERRNO_MAX)
		return bw_err(EINVAL, "launch the kernel: the launch function returned %d, which "
			      "is neither 0 nor a negative errno value", ret);
	return bw_err(-ret, "launch the kernel: the launch function returned %d (%s)", ret,
		      strerror(-ret));
}

void bw_channel_still_to_take(struct bw_channel *ch)
{
	struct bw_sentence kept;

	if (!bw_channel_deserted(ch))
		return;
	bw_err_keep(&kept);
	bw_channel_launch(ch);
	bw_err_put_back(&kept);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void give_way(struct bw_channel_wait *w, uint64_t left_ns)
{
	struct timespec t = { 0 };

	if (left_ns <= w->sleep_ns + SLACK_NS) {
		sched_yield();
		return;
	}
	if (!w->sleep_ns)
		w->sleep_ns = SLEEP_MIN_NS;
	t.tv_nsec = (long)w->sleep_ns;
	nanosleep(&t, NULL);
	w->sleep_ns = 2 * w->sleep_ns < SLEEP_MAX_NS ? 2 * w->sleep_ns : SLEEP_MAX_NS;
	w->polls = BW_CHANNEL_POLLS - 1; /* one poll, and here again */
}

int bw_channel_pause_slowly(struct bw_channel *ch, struct bw_channel_wait *w)
{
	uint64_t now = bw_now_ns(), waited;
	int ret = 0;

	if (!w->began_ns)
		w->began_ns = now;
	waited = now - w->began_ns;
	if (waited >= w->timeout_ns)
		return BW_CHANNEL_NOTHING;
	bw_channel_say_taken(ch);
	if (bw_channel_deserted(ch))
		ret = bw_channel_launch(ch);
	if (!ret && waited >= ASK_NS)
		ret = ask(ch, now);
	if (ret || waited < ch->spin_ns)
		return ret;
	if (waited - ch->spin_ns < YIELD_NS)
		sched_yield();
	else
		give_way(w, w->timeout_ns - waited);
	return 0;
}

int bw_channel_idle(struct bw_channel *ch)
{
	int ret = 0;

	if (bw_channel_deserted(ch))
		ret = bw_channel_launch(ch);
	if (ret || atomic_fetch_add_explicit(&ch->idle, 1, memory_order_relaxed) %
			   BW_CHANNEL_POLLS != BW_CHANNEL_POLLS - 1)
		return ret;
	bw_channel_say_taken(ch);
	return ask(ch, bw_now_ns());
}

int bw_channel_poll(struct bw_channel *ch)
{
	unsigned stopped = atomic_load_explicit(&ch->stopped, memory_order_acquire);
	int found = 0, ret;

	if (stopped & (BW_CHANNEL_FAILED | BW_CHANNEL_GARBLED))
		return bw_channel_stopped_err(ch);
	if (ch->win->revoked)
		return bw_channel_closed_err(ch);
	ret = bw_channel_idle(ch);
	if (ret)
		return ret;
	if (stopped || bw_channel_word(ch, BARWAY_HOST_CLOSED))
		found |= BW_CHANNEL_CLOSED;
	if (!stopped && bw_channel_readable(ch))
		found |= BW_CHANNEL_READABLE;
	if (!(found & BW_CHANNEL_CLOSED) && bw_channel_has_room(ch, BARWAY_MESSAGE_LINES))
		found |= BW_CHANNEL_WRITABLE;
	return found;
}
