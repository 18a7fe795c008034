/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/proxy: who moves things on. A turn polls rails, handles what came, begins what was posted,
 * and now and then looks at deadlines and the control connections. Turns are taken by threads of
 * the endpoint's, and by whoever polls or waits. Whoever finds nothing to do spins for a while,
 * then gives the CPU to others, then sleeps on the descriptors.
 *
 * Three steps of a transfer are to be told apart in names and traces: it is seen to be ready
 * (bw_xfer_begin), it is posted (bw_flow_send, bw_source_turn), its end is confirmed and published
 * (bw_sink_publish, bw_xfer_end). Probes (core/probe.h) lie at all of them.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/probe.h"
#include "net/net_int.h"

#define LOOK_NS 500000u      /* between looks at deadlines and control connections, when busy */
#define LOOK_TURNS 64u       /* and turns between looks at the clock */
#define YIELD_NS 200000u     /* after spinning, the CPU is offered to others for so long */
#define SLEEP_NS 100000u     /* where no descriptor tells */
#define SLEEP_MOST_NS 50000000u

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
	do {
		pthread_mutex_unlock(&ep->lock);
		/* whoever posted while we had the lock has left it to us */
		atomic_thread_fence(memory_order_seq_cst);
	} while (atomic_load_explicit(&ep->inbox, memory_order_relaxed) && bw_ep_trylock(ep));
}

/* All who sleep: each takes one from the counter. */
void bw_ep_wake(struct bw_ep *ep)
{
	uint64_t n = (uint64_t)atomic_load(&ep->sleepers);

	if (!n)
		return;
	bw_n_count(ep, BW_N_WAKES, 1);
	(void)!write(ep->wake, &n, sizeof(n));
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

static int rail_turn(struct bw_ep *ep, struct bw_netrail *r)
{
	struct bw_event events[BW_NET_BATCH];
	struct bw_sentence kept;
	int n;

	if (r->broken || pthread_mutex_trylock(&r->polling))
		return 0;
	bw_source_post(ep, r);
	pthread_mutex_lock(&r->lock);
	n = BW_CALL(r, poll, events, BW_NET_BATCH);
	pthread_mutex_unlock(&r->lock);
	if (n) {
		bw_err_keep(&kept);
		bw_ep_lock(ep);
		for (int i = 0; i < n; i++)
			bw_ep_event(ep, r, &events[i]);
		if (n < 0)
			rail_broken(ep, r, -n);
		bw_ep_unlock(ep);
		bw_err_put_back(&kept);
		bw_source_post(ep, r);
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
		atomic_store_explicit(&ep->attention, 1, memory_order_relaxed);
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
	if (at_ns < atomic_load_explicit(&ep->next_deadline, memory_order_relaxed))
		atomic_store_explicit(&ep->next_deadline, at_ns, memory_order_relaxed);
}

/* What no event tells of: copies under way, postings that were put off, streams. */
static void attend(struct bw_ep *ep, bool idle)
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
		if (p->stuck && !p->failed)
			bw_peer_push(p);
		if (p->nacks && idle) {
			bw_peer_say_acks(p); /* no message came to tell it with */
			p->replies_soon = 0;
		}
		more = more || p->stuck || p->nacks;
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

/* Has a rail something to post whose thread has yet to wake? */
static int for_sleepers(struct bw_ep *ep)
{
	int n = 0;

	for (unsigned i = 0; i < ep->nrails; i++)
		if (atomic_load_explicit(&ep->rail[i].nout, memory_order_relaxed))
			n += rail_turn(ep, &ep->rail[i]);
	return n;
}

static int turn(struct bw_ep *ep, unsigned first, unsigned step, unsigned *turns)
{
	struct bw_sentence kept;
	uint64_t now = 0;
	int n = 0;

	for (unsigned i = first; i < ep->nrails; i += step)
		n += rail_turn(ep, &ep->rail[i]);
	if (step > 1 && atomic_load_explicit(&ep->outs, memory_order_relaxed) &&
	    atomic_load_explicit(&ep->sleepers, memory_order_relaxed))
		n += for_sleepers(ep);
	if (!n && !ep->threaded)
		atomic_store_explicit(&ep->idle_turns, 1 +
				      atomic_load_explicit(&ep->idle_turns, memory_order_relaxed),
				      memory_order_relaxed);
	if (!(++*turns % LOOK_TURNS))
		now = bw_now_ns();
	if (now && now < atomic_load_explicit(&ep->next_look, memory_order_relaxed))
		now = 0;
	if ((!now && !atomic_load_explicit(&ep->attention, memory_order_relaxed) &&
	     !atomic_load_explicit(&ep->inbox, memory_order_relaxed)) || !bw_ep_trylock(ep))
		return n;
	bw_err_keep(&kept);
	if (now)
		look(ep, now);
	if (atomic_load_explicit(&ep->attention, memory_order_relaxed))
		attend(ep, !n);
	bw_ep_unlock(ep);
	bw_err_put_back(&kept);
	return n;
}

static _Thread_local unsigned my_turns;

int bw_ep_progress(struct bw_ep *ep)
{
	struct bw_sentence kept;
	uint64_t now;
	int n = turn(ep, 0, 1, &my_turns);

	now = bw_now_ns();
	if (now >= atomic_load_explicit(&ep->next_look, memory_order_relaxed) &&
	    bw_ep_trylock(ep)) {
		bw_err_keep(&kept);
		look(ep, now);
		bw_ep_unlock(ep);
		bw_err_put_back(&kept);
	}
	return n;
}

/* ---- idling -------------------------------------------------------------------------------- */

/* May it sleep on descriptors? Fills those of the rails. */
static unsigned arm(struct bw_ep *ep, unsigned first, unsigned step, struct pollfd *fds, bool *poll)
{
	unsigned n = 0;

	for (unsigned i = first; i < ep->nrails; i += step) {
		struct bw_netrail *r = &ep->rail[i];
		int ret = -EAGAIN;

		if (r->broken)
			continue;
		if (r->info.fd >= 0) {
			pthread_mutex_lock(&r->lock);
			ret = BW_CALL(r, arm);
			pthread_mutex_unlock(&r->lock);
			fds[n++] = (struct pollfd){ .fd = r->info.fd, .events = POLLIN };
			*poll = *poll || ret;
		} else if (atomic_load(&ep->npeers)) {
			*poll = true; /* nothing tells */
		}
	}
	return n;
}

/* The longer nothing has happened the less is lost by looking late. */
static uint64_t nap(uint64_t idle)
{
	uint64_t ns = idle / 16;

	return ns < SLEEP_NS ? SLEEP_NS : ns > 10 * SLEEP_NS ? 10 * SLEEP_NS : ns;
}

static void idle_sleep(struct bw_ep *ep, unsigned first, unsigned step, uint64_t now, uint64_t idle,
		       uint64_t until_ns)
{
	struct pollfd fds[BW_WIRE_RAILS + 2];
	uint64_t ns, drained, deadline;
	struct timespec t;
	bool polls = false;
	unsigned n;
	int ready;

	atomic_fetch_add(&ep->sleepers, 1);
	n = arm(ep, first, step, fds, &polls);
	fds[n++] = (struct pollfd){ .fd = ep->wake, .events = POLLIN };
	fds[n++] = (struct pollfd){ .fd = bw_control_fd(ep->control), .events = POLLIN };
	ns = polls || atomic_load(&ep->attention) || atomic_load(&ep->outs) ? nap(idle) :
	     SLEEP_MOST_NS;
	deadline = atomic_load(&ep->next_deadline);
	if (deadline < until_ns)
		until_ns = deadline;
	if (until_ns < now + ns)
		ns = until_ns > now ? until_ns - now : 0;
	if (!atomic_load(&ep->inbox) && !atomic_load(&ep->stopping)) {
		t.tv_sec = 0;
		t.tv_nsec = (long)ns;
		bw_n_count(ep, BW_N_SLEEPS, 1);
		BW_PROBE2(net_sleep, ep, ns);
		ready = ppoll(fds, n, &t, NULL);
		BW_PROBE2(net_wake, ep, ready);
		if (ready > 0 && fds[n - 1].revents)
			atomic_store(&ep->next_look, 0);
		if (ready > 0 && fds[n - 2].revents)
			(void)!read(ep->wake, &drained, sizeof(drained));
	}
	atomic_fetch_sub(&ep->sleepers, 1);
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

static int step(struct bw_ep *ep, unsigned first, unsigned stride, uint64_t *since,
		uint64_t until_ns, unsigned *turns)
{
	uint64_t now, idle;
	int n = turn(ep, first, stride, turns);

	if (n) {
		*since = 0;
		return n;
	}
	if (*turns % 4 && *since) {
		pause_cpu();
		return 0;
	}
	now = bw_now_ns();
	if (!*since)
		*since = now;
	idle = now - *since;
	if (idle < ep->options.spin_ns)
		return 0;
	if (now >= atomic_load(&ep->next_look))
		*turns = LOOK_TURNS - 1; /* the next turn looks */
	if (idle < ep->options.spin_ns + YIELD_NS)
		sched_yield();
	else
		idle_sleep(ep, first, stride, now, idle, until_ns);
	return 0;
}

int bw_ep_step(struct bw_ep *ep, uint64_t *since, uint64_t until_ns)
{
	return step(ep, 0, 1, since, until_ns, &my_turns);
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
	struct bw_net_thread *t = arg;
	struct bw_ep *ep = t->ep;
	uint64_t since = 0;
	unsigned turns = 0;

	while (!atomic_load_explicit(&ep->stopping, memory_order_relaxed))
		step(ep, t->first, t->step, &since, UINT64_MAX, &turns);
	return NULL;
}

int bw_ep_start_threads(struct bw_ep *ep)
{
	unsigned want = (unsigned)ep->options.threads;
	sigset_t all, old;
	int ret = 0;

	if (want > ep->nrails)
		want = ep->nrails;
	ep->threaded = want;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < want && !ret; i++) {
		ep->thread[i] = (struct bw_net_thread){ .ep = ep, .first = i, .step = want };
		ret = bw_fault_hit(BW_FAULT_THREAD) ? EAGAIN :
		      pthread_create(&ep->thread[i].id, NULL, thread_main, &ep->thread[i]);
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
}
