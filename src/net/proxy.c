/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/proxy: who moves things on. A turn polls rails, handles what came, begins what was posted,
 * and now and then looks at deadlines and the control connections. Turns are taken by threads of
 * the endpoint's, and by whoever polls or waits. What they do between turns is in idle.c.
 *
 * Three steps of a transfer are to be told apart in names and traces: it is seen to be ready
 * (bw_xfer_begin), it is posted (bw_flow_send, bw_source_turn), its end is confirmed and published
 * (bw_sink_publish, bw_xfer_end). Probes (core/probe.h) lie at all of them.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "net/net_int.h"

#define LOOK_NS 500000u      /* between looks at deadlines and control connections, when busy */
#define QUIET_POLLS 64u      /* without anything: then a rail is polled seldom beside others */
#define QUIET_TURNS 8u       /* namely in one turn of so many */

/* ---- the lock ------------------------------------------------------------------------------ */

/* Begins what was posted, in the order of posting. */
static int drain(struct bw_ep *ep)
{
	struct bw_xfer *list = atomic_exchange_explicit(&ep->inbox, NULL, memory_order_acquire);
	struct bw_xfer *order = NULL;
	int n = 0;

	while (list) {
		struct bw_xfer *next = list->inbox;

		list->inbox = order;
		order = list;
		list = next;
	}
	for (; order; n++) {
		struct bw_xfer *next = order->inbox;

		bw_xfer_start(order);
		order = next;
	}
	return n;
}

void bw_ep_lock(struct bw_ep *ep)
{
	pthread_mutex_lock(&ep->lock);
	if (atomic_load_explicit(&ep->inbox, memory_order_relaxed))
		drain(ep);
}

bool bw_ep_trylock(struct bw_ep *ep)
{
	if (pthread_mutex_trylock(&ep->lock))
		return false;
	if (atomic_load_explicit(&ep->inbox, memory_order_relaxed))
		drain(ep);
	return true;
}

void bw_ep_unlock(struct bw_ep *ep)
{
	bool rouse = false;

	do {
		if (atomic_load_explicit(&ep->rouse, memory_order_relaxed)) {
			atomic_store_explicit(&ep->rouse, false, memory_order_relaxed);
			rouse = true;
		}
		pthread_mutex_unlock(&ep->lock);
		/* whoever posted while we had the lock has left it to us */
		atomic_thread_fence(memory_order_seq_cst);
	} while (atomic_load_explicit(&ep->inbox, memory_order_relaxed) && bw_ep_trylock(ep));
	if (rouse)
		bw_ep_rouse(ep);
}

/* ---- turns --------------------------------------------------------------------------------- */

static void rail_broken(struct bw_ep *ep, struct bw_netrail *r, int err)
{
	struct bw_sentence why;

	bw_err_keep(&why);
	r->broken = true;
	for (struct bw_peer *p = ep->peers; p; p = p->next)
		if (r->index < p->nrails)
			bw_peer_fail(p, EIO, "rail %u of network %s broke: %s (%s): open another "
				     "endpoint", r->index, r->info.network, why.text,
				     strerror(err));
}

/* Those who have something for the rail come first, see bw_rail_lock(). */
static int poll_rail(struct bw_netrail *r, struct bw_event *events)
{
	int n;

	if (atomic_load_explicit(&r->wanted, memory_order_relaxed) ||
	    pthread_mutex_trylock(&r->lock))
		return 0;
	n = BW_CALL(r, poll, events, BW_NET_BATCH);
	pthread_mutex_unlock(&r->lock);
	atomic_store_explicit(&r->quiet, n ? 0 : 1 + atomic_load_explicit(&r->quiet,
				memory_order_relaxed), memory_order_relaxed);
	return n;
}

static int rail_turn(struct bw_ep *ep, struct bw_netrail *r)
{
	struct bw_event events[BW_NET_BATCH];
	struct bw_sentence kept;
	int n;

	if (r->broken || pthread_mutex_trylock(&r->polling))
		return 0;
	bw_source_post(ep, r);
	n = poll_rail(r, events);
	if (n) {
		bw_err_keep(&kept);
		bw_ep_lock(ep);
		for (int i = 0; i < n; i++)
			bw_ep_event(ep, r, &events[i]);
		if (n == (int)BW_NET_BATCH)
			bw_ep_news(ep); /* there may be more, which is told once */
		if (n < 0)
			rail_broken(ep, r, -n);
		bw_ep_unlock(ep);
		bw_err_put_back(&kept);
		bw_source_post(ep, r);
	} else if (r->nspent && bw_ep_trylock(ep)) {
		bw_rx_renew(ep, r);
		bw_ep_unlock(ep);
	}
	pthread_mutex_unlock(&r->polling);
	return n < 0 ? 1 : n;
}

void bw_flow_busy(struct bw_flow *f, bool busy)
{
	struct bw_ep *ep = f->peer->ep;

	if (f->busy == busy)
		return;
	f->busy = busy;
	if (busy) {
		f->prev_busy = NULL;
		f->next_busy = ep->busy;
		if (ep->busy)
			ep->busy->prev_busy = f;
		ep->busy = f;
		bw_ep_attend(ep);
		return;
	}
	if (f->prev_busy)
		f->prev_busy->next_busy = f->next_busy;
	else
		ep->busy = f->next_busy;
	if (f->next_busy)
		f->next_busy->prev_busy = f->prev_busy;
}

void bw_ep_look_by(struct bw_ep *ep, uint64_t at_ns)
{
	if (at_ns >= atomic_load_explicit(&ep->next_deadline, memory_order_relaxed))
		return;
	atomic_store_explicit(&ep->next_deadline, at_ns, memory_order_relaxed);
	bw_ep_news(ep); /* who sleeps does so until a later one */
}

static uint64_t idle_turns(struct bw_ep *ep)
{
	return atomic_load_explicit(&ep->idle_turns, memory_order_relaxed);
}

/* Ends that no message came to be told with. */
static void tell_held(struct bw_ep *ep)
{
	bool more = false;

	for (struct bw_peer *p = ep->peers; p; p = p->next) {
		if (p->nacks && idle_turns(ep) - p->held_at >= bw_ack_turns(ep)) {
			bw_peer_say_acks(p);
			p->replies_soon = 0;
		}
		more = more || p->nacks;
	}
	atomic_store_explicit(&ep->holding, more, memory_order_relaxed);
}

/* What no event tells of: copies under way, postings that were put off, streams. */
static void attend(struct bw_ep *ep)
{
	bool more = false;

	atomic_store_explicit(&ep->attention, 0, memory_order_relaxed);
	for (struct bw_flow *f = ep->busy, *next; f; f = next) {
		next = f->next_busy;
		bw_flow_turn(f);
	}
	for (unsigned i = 0; i < ep->nrails; i++)
		if (ep->rail[i].again)
			bw_rx_retry(ep, &ep->rail[i]);
	for (struct bw_peer *p = ep->peers; p; p = p->next) {
		more = bw_peer_greet_on(p) || more;
		if (p->stuck && !p->failed)
			bw_peer_push(p);
		more = more || p->stuck;
	}
	if (ep->on_stream)
		bw_stream_turn(ep);
	if (ep->busy || ep->on_stream || more)
		atomic_store_explicit(&ep->attention, 1, memory_order_relaxed);
}

static void look(struct bw_ep *ep, uint64_t now)
{
	atomic_store_explicit(&ep->next_look, now + LOOK_NS, memory_order_relaxed);
	bw_peers_look(ep);
	if (now >= atomic_load_explicit(&ep->next_deadline, memory_order_relaxed))
		atomic_store_explicit(&ep->next_deadline, bw_xfers_look(ep, now),
				      memory_order_relaxed);
}

/* What a rail has to post whose thread has yet to wake. */
static int for_sleepers(struct bw_ep *ep)
{
	int n = 0;

	for (unsigned i = 0; i < ep->nrails; i++)
		if (bw_rail_has_out(&ep->rail[i]) && !bw_rail_attended(ep, i))
			n += rail_turn(ep, &ep->rail[i]);
	return n;
}

/* Of several rails those are polled seldom on which nothing comes. Messages come on the first. */
static bool passes_by(struct bw_netrail *r)
{
	unsigned quiet = atomic_load_explicit(&r->quiet, memory_order_relaxed);

	if (!r->index || quiet < QUIET_POLLS || quiet % QUIET_TURNS == 0 || bw_rail_has_out(r))
		return false;
	atomic_store_explicit(&r->quiet, quiet + 1, memory_order_relaxed);
	return true;
}

static int rails_turn(struct bw_ep *ep, unsigned first, unsigned step, bool mine)
{
	bool several = step < ep->nrails;
	int n = 0;

	for (unsigned i = first; i < ep->nrails; i += step)
		if ((mine || !bw_rail_attended(ep, i)) &&
		    !(several && passes_by(&ep->rail[i])))
			n += rail_turn(ep, &ep->rail[i]);
	if (mine && step > 1 && atomic_load_explicit(&ep->outs, memory_order_relaxed))
		n += for_sleepers(ep);
	return n;
}

/* What is of no rail. true: something was begun. */
static bool whole_turn(struct bw_ep *ep, bool looks, bool idle)
{
	bool posted = atomic_load_explicit(&ep->inbox, memory_order_relaxed);
	uint64_t now = looks ? bw_now_ns() : 0;
	struct bw_sentence kept;

	if (now < atomic_load_explicit(&ep->next_look, memory_order_relaxed))
		now = 0;
	if ((!now && !posted && !bw_ep_wants_turn(ep, idle)) || !bw_ep_trylock(ep))
		return false;
	bw_err_keep(&kept);
	if (now)
		look(ep, now);
	if (idle && atomic_load_explicit(&ep->holding, memory_order_relaxed))
		tell_held(ep);
	if (bw_ep_wants_turn(ep, false))
		attend(ep);
	bw_ep_unlock(ep);
	bw_err_put_back(&kept);
	return posted;
}

int bw_ep_turn(struct bw_ep *ep, unsigned first, unsigned step, bool mine, unsigned *turns)
{
	int n = rails_turn(ep, first, step, mine);

	++*turns;
	if (mine ? first : bw_rail_attended(ep, 0)) {
		if (mine && bw_ep_wants_turn(ep, false))
			whole_turn(ep, false, false);
		return n;
	}
	if (!n)
		atomic_store_explicit(&ep->idle_turns, idle_turns(ep) + 1, memory_order_relaxed);
	return whole_turn(ep, !(*turns % BW_NET_LOOK_TURNS), !n) && mine ? n + 1 : n;
}

/* No turn follows for a while: what waited for one with nothing to do does no more. */
void bw_ep_before_sleep(struct bw_ep *ep)
{
	if (!bw_ep_wants_turn(ep, true))
		return;
	atomic_store_explicit(&ep->idle_turns, idle_turns(ep) + BW_NET_HOLD_TURNS,
			      memory_order_relaxed);
	whole_turn(ep, false, true);
}

static _Thread_local unsigned my_turns;

/* The clock is read first: what the turn brings is the caller's at once, and no deadline is said to
 * have passed before what came in time was seen. */
int bw_ep_progress(struct bw_ep *ep)
{
	struct bw_sentence kept;
	uint64_t now = bw_now_ns();
	int n = bw_ep_turn(ep, 0, 1, false, &my_turns);

	if (now >= atomic_load_explicit(&ep->next_look, memory_order_relaxed) &&
	    bw_ep_trylock(ep)) {
		bw_err_keep(&kept);
		look(ep, now);
		bw_ep_unlock(ep);
		bw_err_put_back(&kept);
	}
	return n;
}

/* ---- threads ------------------------------------------------------------------------------- */

/* On which this process may run. */
static unsigned cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? UINT_MAX : (unsigned)CPU_COUNT(&set);
}

int bw_ep_start_threads(struct bw_ep *ep)
{
	unsigned want = (unsigned)ep->options.threads;
	sigset_t all, old;
	int ret = 0;

	if (want > ep->nrails)
		want = ep->nrails;
	ep->threaded = want;
	ep->crowded = want && cpus() <= want;
	/* others are to have the CPU that they wait for */
	ep->spin_ns = ep->crowded ? 0 : ep->options.spin_ns;
	ret = bw_beds_open(ep);
	if (ret)
		return ret;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < want && !ret; i++) {
		ep->thread[i].ep = ep;
		ep->thread[i].first = i;
		ep->thread[i].step = want;
		ret = bw_fault_hit(BW_FAULT_THREAD) ? EAGAIN :
		      pthread_create(&ep->thread[i].id, NULL, bw_net_thread_main, &ep->thread[i]);
		if (!ret) {
			ep->nthreads++;
			pthread_setname_np(ep->thread[i].id, "barway-net");
		}
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret ? bw_err(EAGAIN, "start a progress thread: %s: end some threads, or give "
		"threads 0",
			    strerror(ret)) : 0;
}

void bw_ep_stop_threads(struct bw_ep *ep)
{
	atomic_store(&ep->stopping, true);
	bw_ep_wake(ep);
	for (unsigned i = 0; i < ep->nthreads; i++)
		pthread_join(ep->thread[i].id, NULL);
	ep->nthreads = 0;
	for (unsigned i = 0; i < ep->threaded; i++) /* nobody relies on them */
		atomic_store(&ep->thread[i].bed.asleep, true);
}
