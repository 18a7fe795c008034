/* SPDX-License-Identifier: BSD-3-Clause */
/* net/transfer: what a caller prepares, posts, waits for and asks about. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/probe.h"
#include "net/net_int.h"

#define SOON_NS 50000000u

static const char *const operation_name[] = { "", "put", "get", "send", "receive" };

/* ---- moments --------------------------------------------------------------------------------- */

static void wake_sleeper(struct bw_xfer *t, uint32_t before)
{
	if (before & BW_REACHED_SLEEPER)
		syscall(SYS_futex, &t->reached, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void bw_xfer_reach(struct bw_xfer *t, enum bw_moment moment)
{
	uint32_t before = atomic_load_explicit(&t->reached, memory_order_relaxed);

	if ((before & BW_REACHED_MOMENT) >= (uint32_t)moment)
		return;
	t->local_ns = bw_now_ns();
	/* nobody else writes it now but to add the sleeper's bit */
	before = atomic_fetch_or_explicit(&t->reached, (uint32_t)moment, memory_order_release);
	wake_sleeper(t, before);
	if (!t->flow.peer->ep->threaded)
		bw_ep_wake_callers(t->flow.peer->ep);
	if (moment == BW_LOCAL && t->hold && t->flow.side == BW_SOURCE)
		bw_stream_release(t);
}

void bw_xfer_why(struct bw_xfer *t, const char *text)
{
	if (!t->why[0])
		snprintf(t->why, sizeof(t->why), "%s", text);
}

static const char *what_happened(int error)
{
	switch (error) {
	case ETIMEDOUT:
		return "its deadline has passed: is the other end there, and does it make "
			"progress?";
	case EACCES:
		return "the peer refuses the key: it is another region's, or that was closed or "
		       "not opened for this";
	case ERANGE:
		return "outside the peer's region";
	case EMSGSIZE:
		return "the message is longer than the receive";
	case ECANCELED:
		return "it was cancelled";
	case ENOTSUP:
		return "the direct path is required, and the peer's memory cannot have it";
	default:
		return "the peer could not do it";
	}
}

static bool is_direct(const struct bw_xfer *t)
{
	const struct bw_flow *f = &t->flow;

	return !t->fits && t->path != BW_PATH_STAGED && !f->peer->ep->rail[0].info.by_cpu &&
	       (!f->region->map || f->region->direct);
}

/* Operation, object, cause, errno. */
static void explain(struct bw_xfer *t, int error, const char *text)
{
	struct bw_peer *p = t->flow.peer;
	char cause[160];

	snprintf(cause, sizeof(cause), "%.159s", text && *text ? text : t->why[0] ? t->why :
		 what_happened(error));
	snprintf(t->why, sizeof(t->why), "%s of %llu bytes %s %.63s by network %.31s, %s: %s "
		"(%.40s)",
		 operation_name[t->flow.op], (unsigned long long)t->bytes,
		 t->flow.op == BW_PUT || t->flow.op == BW_SEND ? "to" : "from", p->name,
		 p->ep->rail[0].info.network, is_direct(t) ? "direct path" : "staged path",
		 cause, strerror(error));
}

static void tell_fd(struct bw_xfer *t)
{
	uint64_t one = 1;
	int fd = atomic_load(&t->fd);

	if (fd >= 0)
		(void)!write(fd, &one, sizeof(one));
}

void bw_xfer_end(struct bw_xfer *t, int error, const char *text)
{
	struct bw_ep *ep = t->flow.peer->ep;
	uint32_t before, reached;

	bw_stream_forget(t);
	t->visible_ns = t->arrived_ns = bw_now_ns();
	if (!t->local_ns)
		t->local_ns = t->visible_ns;
	if (error) {
		explain(t, error, text);
		t->arrived_ns = t->visible_ns = 0;
		if (!(atomic_load_explicit(&t->reached, memory_order_relaxed) & BW_REACHED_MOMENT))
			t->local_ns = 0;
	}
	t->error = error;
	BW_PROBE4(net_end, &t->flow, t->flow.op, t->flow.bytes, error);
	bw_n_count(ep, error ? BW_N_FAILED : BW_N_DONE, 1);
	if (t->hold)
		bw_stream_release(t);
	reached = error ? BW_REACHED_FAILED | BW_REACHED_DONE : BW_VISIBLE | BW_REACHED_DONE;
	before = atomic_exchange_explicit(&t->reached, reached, memory_order_acq_rel);
	/* who frees it or posts it again with a descriptor needs the lock that is held here */
	tell_fd(t);
	wake_sleeper(t, before);
	bw_ep_wake_callers(ep);
}

/* ---- posting --------------------------------------------------------------------------------- */

/* The data is ready. */
void bw_xfer_begin(struct bw_xfer *t)
{
	struct bw_flow *f = &t->flow;

	BW_PROBE3(net_ready, f, f->op, f->bytes);
	if (f->op == BW_RECV) {
		bw_match_post(t);
		return;
	}
	f->state = BW_FLOW_QUEUED;
	f->eager = t->fits;
	t->was_eager = t->fits;
	if (f->op == BW_GET && !f->eager)
		bw_sink_begin(f);
	else
		bw_flow_send(f, BW_TX_ASK);
}

void bw_xfer_start(struct bw_xfer *t)
{
	struct bw_flow *f = &t->flow;
	struct bw_peer *p = f->peer;
	struct bw_ep *ep = p->ep;

	f->other = 0;
	f->nparts_done = 0;
	f->bytes = t->bytes;
	f->error = 0;
	f->answered = false;
	f->eager = false;
	f->flags = t->head.flags & (BW_WIRE_DIRECT | BW_WIRE_STAGED);
	f->tx = 0;
	if (f->op == BW_RECV)
		f->flags = t->path == BW_PATH_DIRECT ? BW_WIRE_DIRECT :
			   t->path == BW_PATH_STAGED ? BW_WIRE_STAGED : 0;
	if (p->failed || f->region->closed) {
		bw_xfer_end(t, p->failed == ECANCELED ? ECANCELED : EIO,
			    p->failed ? p->failure : "its region was closed");
		return;
	}
	bw_flow_list(f);
	bw_ep_look_by(ep, t->deadline_at);
	if (ep->rail[0].info.fd < 0) /* nothing tells of the answer */
		bw_ep_news(ep);
	if (t->on_stream) {
		f->state = BW_FLOW_STREAM;
		t->stream_next = ep->on_stream;
		ep->on_stream = t;
		bw_ep_attend(ep);
		return;
	}
	bw_xfer_begin(t);
}

static int refuse_post(struct bw_xfer *t)
{
	struct bw_peer *p = t->flow.peer;
	char why[256];

	if (!p->failed)
		return bw_err(ESTALE, "its region was closed");
	bw_ep_lock(p->ep);
	memcpy(why, p->failure, sizeof(why));
	bw_ep_unlock(p->ep);
	return bw_err(EIO, "peer %s has failed: %s: connect again", p->name, why);
}

int bw_xfer_claim(struct bw_xfer *t)
{
	uint32_t reached = atomic_load_explicit(&t->reached, memory_order_acquire);
	uint64_t drained;
	int fd;

	if (!(reached & (BW_REACHED_NEW | BW_REACHED_DONE)))
		return bw_err_often(EBUSY, "it is under way: wait for it, or cancel it");
	if (t->flow.peer->failed || t->flow.region->closed)
		return refuse_post(t);
	if (!atomic_compare_exchange_strong(&t->reached, &reached, 0))
		return bw_err_often(EBUSY, "it is under way: wait for it, or cancel it");
	fd = atomic_load_explicit(&t->fd, memory_order_relaxed);
	if (fd >= 0) {
		bw_ep_lock(t->flow.peer->ep); /* what the last posting tells is told */
		(void)!read(fd, &drained, sizeof(drained));
		bw_ep_unlock(t->flow.peer->ep);
	}
	t->posted_ns = bw_now_ns();
	t->deadline_at = t->deadline_ns > UINT64_MAX - t->posted_ns ? UINT64_MAX :
			 t->posted_ns + t->deadline_ns;
	t->ready_ns = t->posted_ns;
	t->local_ns = t->arrived_ns = t->visible_ns = 0;
	t->chunks = t->rails = 0;
	t->message_bytes = t->message_tag = 0;
	t->was_ring_in = t->was_ring_out = t->was_eager = false;
	t->why[0] = 0;
	t->error = 0;
	return 0;
}

static void into_inbox(struct bw_ep *ep, struct bw_xfer *t)
{
	struct bw_xfer *head = atomic_load_explicit(&ep->inbox, memory_order_relaxed);

	do {
		t->inbox = head;
	} while (!atomic_compare_exchange_weak_explicit(&ep->inbox, &head, t, memory_order_seq_cst,
							memory_order_relaxed));
	atomic_thread_fence(memory_order_seq_cst);
}

/*
 * A thread that is awake takes it out of the inbox at once, and has all at hand that the message
 * needs. Else the caller begins it: that is sooner than to wake one.
 */
void bw_xfer_launch(struct bw_xfer *t)
{
	struct bw_ep *ep = t->flow.peer->ep;

	if (!bw_rail_attended(ep, 0) && bw_ep_trylock(ep)) {
		bw_xfer_start(t);
		bw_ep_unlock(ep);
		return;
	}
	into_inbox(ep, t);
	/* whoever had the lock may not have seen it, and the thread may have fallen asleep */
	if (!bw_rail_attended(ep, 0) && bw_ep_trylock(ep))
		bw_ep_unlock(ep);
}

int bw_xfer_post(struct bw_xfer *t)
{
	int ret = bw_xfer_claim(t);

	if (ret)
		return ret;
	t->on_stream = t->hold = false;
	bw_xfer_launch(t);
	atomic_store_explicit(&t->returned_ns, bw_now_ns(), memory_order_relaxed);
	return 0;
}

/* ---- asking and waiting ---------------------------------------------------------------------- */

static int answer(struct bw_xfer *t, uint32_t reached, uint32_t moment)
{
	if (reached & BW_REACHED_NEW)
		return bw_err(EINVAL, "it was not posted");
	if (reached & BW_REACHED_FAILED)
		return bw_err(t->error, "%s", t->why);
	return (reached & BW_REACHED_MOMENT) >= moment ? 0 : -EBUSY;
}

static int check_moment(uint32_t moment)
{
	if (moment >= BW_LOCAL && moment <= BW_VISIBLE)
		return 0;
	return bw_err(EINVAL, "moment: %u is not a value of enum barway_moment", moment);
}

int bw_xfer_poll(struct bw_xfer *t, uint32_t moment)
{
	struct bw_ep *ep = t->flow.peer->ep;
	int ret = check_moment(moment);

	if (ret)
		return ret;
	ret = answer(t, atomic_load_explicit(&t->reached, memory_order_acquire), moment);
	if (ret != -EBUSY || ep->threaded)
		return ret;
	bw_ep_progress(ep);
	return answer(t, atomic_load_explicit(&t->reached, memory_order_acquire), moment);
}

/* Until the word changes, or the time is over. */
static void sleep_on(struct bw_xfer *t, uint32_t seen, uint64_t until_ns)
{
	uint64_t now = bw_now_ns(), ns = SOON_NS;
	struct timespec ts;

	if (until_ns <= now)
		return;
	if (until_ns - now < ns)
		ns = until_ns - now;
	if (!(seen & BW_REACHED_SLEEPER) &&
	    !atomic_compare_exchange_strong(&t->reached, &seen, seen | BW_REACHED_SLEEPER))
		return;
	ts.tv_sec = 0;
	ts.tv_nsec = (long)ns;
	syscall(SYS_futex, &t->reached, FUTEX_WAIT_PRIVATE, seen | BW_REACHED_SLEEPER, &ts, NULL,
		0);
}

int bw_xfer_wait(struct bw_xfer *t, uint32_t moment, uint64_t timeout_ns)
{
	struct bw_ep *ep = t->flow.peer->ep;
	struct bw_idle idle = { 0 };
	uint64_t start, until_ns;
	unsigned turns = 0;
	uint32_t reached;
	int ret = check_moment(moment);

	if (ret)
		return ret;
	reached = atomic_load_explicit(&t->reached, memory_order_acquire);
	ret = answer(t, reached, moment);
	if (ret != -EBUSY)
		return ret;
	start = bw_now_ns();
	until_ns = timeout_ns > UINT64_MAX - start ? UINT64_MAX : start + timeout_ns;
	for (;;) {
		if (!ep->threaded)
			bw_ep_step(ep, &idle, until_ns);
		else if (bw_ep_step_awake(ep, &idle)) /* threads go on with it */
			sleep_on(t, reached, until_ns);
		reached = atomic_load_explicit(&t->reached, memory_order_acquire);
		ret = answer(t, reached, moment);
		if (ret != -EBUSY)
			return ret;
		if (++turns % 16)
			continue;
		if (until_ns != UINT64_MAX && bw_now_ns() >= until_ns)
			return bw_err_often(EAGAIN, "it is not there yet, and goes on: wait again");
	}
}

int bw_xfer_fd(struct bw_xfer *t)
{
	int fd = atomic_load(&t->fd), none = -1;

	if (fd >= 0)
		return fd;
	fd = bw_fault_hit(BW_FAULT_OPEN) ? -EMFILE :
	     bw_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (fd < 0)
		return bw_err(EMFILE, "make an eventfd: close some files, or raise 'ulimit -n'");
	bw_ep_lock(t->flow.peer->ep); /* it ends before, or sees the descriptor */
	if (!atomic_compare_exchange_strong(&t->fd, &none, fd)) {
		close(fd);
		fd = none;
	} else if (atomic_load(&t->reached) & BW_REACHED_DONE) {
		tell_fd(t);
	}
	bw_ep_unlock(t->flow.peer->ep);
	return fd;
}

/* ---- giving up ------------------------------------------------------------------------------- */

uint64_t bw_xfers_look(struct bw_ep *ep, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (struct bw_peer *p = ep->peers; p; p = p->next) {
		for (struct bw_flow *f = p->flows, *after; f; f = after) {
			uint64_t at = f->state == BW_FLOW_LEAVING ? f->leave_by :
				      f->xfer ? f->xfer->deadline_at : UINT64_MAX;

			after = f->next;
			if (at > now) {
				next = at < next ? at : next;
			} else if (f->state == BW_FLOW_LEAVING) {
				bw_peer_fail(p, ETIMEDOUT, "it did not answer within %llu ms that "
					     "a transfer was given up", (unsigned long long)
					     (ep->options.liveness_ns / 1000000));
				after = NULL;
			} else {
				bw_flow_leave(f, ETIMEDOUT);
				after = p->flows; /* others may have ended with it */
			}
		}
	}
	return next;
}

static void wait_done(struct bw_xfer *t)
{
	struct bw_idle idle = { 0 };

	while (!(atomic_load_explicit(&t->reached, memory_order_acquire) & BW_REACHED_DONE))
		bw_ep_step(t->flow.peer->ep, &idle, UINT64_MAX);
}

int bw_xfer_cancel(struct bw_xfer *t)
{
	struct bw_ep *ep = t->flow.peer->ep;
	struct bw_sentence kept;
	uint32_t reached = atomic_load(&t->reached);

	if (reached & BW_REACHED_NEW)
		return bw_err(EINVAL, "it was not posted");
	if (reached & BW_REACHED_DONE)
		return 0;
	bw_err_keep(&kept);
	bw_ep_lock(ep); /* which begins it where it waited for the lock */
	if (!(atomic_load(&t->reached) & BW_REACHED_DONE))
		bw_flow_leave(&t->flow, ECANCELED);
	bw_ep_unlock(ep);
	wait_done(t);
	bw_err_put_back(&kept);
	return 0;
}

void bw_xfer_free(struct bw_xfer *t)
{
	struct bw_peer *p = t->flow.peer;
	struct bw_ep *ep = p->ep;
	int fd = atomic_load(&t->fd);

	if (!(atomic_load(&t->reached) & (BW_REACHED_DONE | BW_REACHED_NEW)))
		bw_xfer_cancel(t);
	bw_ep_lock(ep);
	bw_stream_drop(t);
	bw_flow_no_id(ep, &t->flow);
	bw_region_unref(t->flow.region);
	bw_peer_unref(p);
	bw_ep_unlock(ep);
	if (fd >= 0)
		close(fd);
	if (t->flow.parts != &t->flow.one)
		free(t->flow.parts);
	free(t);
}

struct bw_device *bw_xfer_device(const struct bw_xfer *t)
{
	return t->flow.region->dev;
}
