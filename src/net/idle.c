/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/idle: how those wait who make progress. Whoever finds nothing to do polls for a while, then
 * gives the CPU to others, then sleeps on descriptors: of rails, of the control connections, and
 * one of its own that others wake it by. Who was woken polls for a while again: what it was woken
 * for is mostly the first step of several.
 *
 * With progress threads each rail has one that looks after it. Callers leave the rail to it while
 * it is awake, and look themselves while it sleeps: a message has one CPU that handles it, and no
 * time passes until another has woken.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/probe.h"
#include "net/net_int.h"

#define YIELD_NS 200000u     /* after spinning, the CPU is offered to others for so long */
#define SLEEP_NS 100000u     /* where no descriptor tells */
#define SLEEP_MOST_NS 50000000u

/* ---- beds ---------------------------------------------------------------------------------- */

static int bed_open(struct bw_bed *bed)
{
	if (bed->fd < 0)
		bed->fd = bw_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	return bed->fd < 0 ? -errno : 0;
}

/* Of the threads, and one of callers; the other callers' when they are needed. */
int bw_beds_open(struct bw_ep *ep)
{
	int ret = bed_open(&ep->bed[0]);

	for (unsigned i = 0; i < ep->threaded && !ret; i++)
		ret = bed_open(&ep->thread[i].bed);
	if (ret)
		return bw_err(EMFILE, "make an eventfd: %s: close some files, or raise 'ulimit -n'",
			      strerror(-ret));
	return 0;
}

static void bed_close(struct bw_bed *bed)
{
	if (bed->fd >= 0)
		close(bed->fd);
	bed->fd = -1;
}

void bw_beds_close(struct bw_ep *ep)
{
	for (unsigned i = 0; i < BW_NET_BEDS; i++)
		bed_close(&ep->bed[i]);
	for (unsigned i = 0; i < BW_WIRE_RAILS; i++)
		bed_close(&ep->thread[i].bed);
}

/* A caller's. NULL: all are taken. */
static struct bw_bed *bed_take(struct bw_ep *ep)
{
	for (unsigned i = 0; i < BW_NET_BEDS; i++) {
		struct bw_bed *bed = &ep->bed[i];

		if (atomic_exchange(&bed->taken, true))
			continue;
		if (!bed_open(bed))
			return bed;
		atomic_store(&bed->taken, false);
		break;
	}
	return NULL;
}

/* ---- waking -------------------------------------------------------------------------------- */

static void wake(struct bw_ep *ep, struct bw_bed *bed)
{
	const uint64_t one = 1;

	if (!atomic_load(&bed->asleep) || !atomic_exchange(&bed->asleep, false))
		return;
	bw_n_count(ep, BW_N_WAKES, 1);
	(void)!write(bed->fd, &one, sizeof(one));
}

static void wake_thread(struct bw_ep *ep, struct bw_net_thread *t)
{
	atomic_fetch_add(&t->calls, 1);
	wake(ep, &t->bed);
}

void bw_ep_wake_rail(struct bw_ep *ep, unsigned rail)
{
	if (ep->threaded)
		wake_thread(ep, &ep->thread[rail % ep->threaded]);
}

void bw_ep_wake_callers(struct bw_ep *ep)
{
	atomic_fetch_add(&ep->calls, 1);
	if (!atomic_load(&ep->sleepers))
		return;
	for (unsigned i = 0; i < BW_NET_BEDS; i++)
		wake(ep, &ep->bed[i]);
}

void bw_ep_wake(struct bw_ep *ep)
{
	for (unsigned i = 0; i < ep->threaded; i++)
		wake_thread(ep, &ep->thread[i]);
	bw_ep_wake_callers(ep);
}

void bw_ep_rouse(struct bw_ep *ep)
{
	if (ep->threaded)
		wake_thread(ep, &ep->thread[0]);
	else
		bw_ep_wake_callers(ep);
}

bool bw_rail_attended(const struct bw_ep *ep, unsigned rail)
{
	return ep->threaded && !ep->crowded &&
	       !atomic_load_explicit(&ep->thread[rail % ep->threaded].bed.asleep,
				     memory_order_relaxed);
}

/* ---- sleeping ------------------------------------------------------------------------------ */

/* Who sleeps, and which rails it looks after: @first, @first + @step ...; none: callers with
 * threads, which are told by those. */
struct sleeper {
	struct bw_bed *bed; /* NULL: it has none */
	const _Atomic unsigned *calls;
	unsigned first, step;
	bool whole;         /* it also does what is of no rail */
};

/* Not while somebody has something for the rail, who would have to wait. */
static int arm_rail(struct bw_netrail *r)
{
	int ret = -EAGAIN;

	if (pthread_mutex_trylock(&r->lock))
		return -EAGAIN;
	atomic_store(&r->arming, true);
	if (!atomic_load(&r->wanted))
		ret = BW_CALL(r, arm);
	if (ret) /* the next turn polls it */
		atomic_store_explicit(&r->quiet, 0, memory_order_relaxed);
	atomic_store(&r->arming, false);
	bw_rail_unlock(r);
	return ret;
}

/* May it sleep on descriptors? Fills those of the rails. */
static unsigned arm(struct bw_ep *ep, const struct sleeper *s, struct pollfd *fds, bool *poll)
{
	unsigned n = 0;

	for (unsigned i = s->first; i < ep->nrails; i += s->step) {
		struct bw_netrail *r = &ep->rail[i];

		if (r->broken)
			continue;
		if (r->info.fd >= 0) {
			*poll = arm_rail(r) || *poll;
			fds[n++] = (struct pollfd){ .fd = r->info.fd, .events = POLLIN };
		} else if (atomic_load(&ep->npeers)) {
			*poll = true; /* nothing tells */
		}
		*poll = *poll || bw_rail_has_out(r);
	}
	return n;
}

/* The longer nothing has happened the less is lost by looking late. */
static uint64_t nap(uint64_t idle)
{
	uint64_t ns = idle / 16;

	return ns < SLEEP_NS ? SLEEP_NS : ns > 10 * SLEEP_NS ? 10 * SLEEP_NS : ns;
}

/* How long, where nothing wakes it. */
static uint64_t how_long(struct bw_ep *ep, const struct sleeper *s, bool polls, uint64_t now,
			 uint64_t idle, uint64_t until_ns)
{
	uint64_t ns = SLEEP_MOST_NS, deadline = atomic_load(&ep->next_deadline);

	if (polls || (s->whole && bw_ep_wants_turn(ep, true)))
		ns = nap(idle);
	else if (!s->bed)
		ns = 10 * SLEEP_NS;
	if (s->whole && deadline < until_ns)
		until_ns = deadline;
	if (until_ns < now + ns)
		ns = until_ns > now ? until_ns - now : 0;
	return ns;
}

/* true: it was woken, or something has come. @armed: the rails' descriptors tell so. */
static bool sleep_for(struct bw_ep *ep, const struct sleeper *s, struct pollfd *fds, unsigned n,
		      bool armed, uint64_t ns)
{
	struct timespec t = { .tv_sec = 0, .tv_nsec = (long)ns };
	unsigned rails = n, bed = n + 1;
	bool woken = false;
	uint64_t drained;
	int ready;

	fds[n++] = (struct pollfd){ .fd = s->whole ? bw_control_fd(ep->control) : -1,
				    .events = POLLIN };
	fds[n++] = (struct pollfd){ .fd = s->bed ? s->bed->fd : -1, .events = POLLIN };
	bw_n_count(ep, BW_N_SLEEPS, 1);
	BW_PROBE2(net_sleep, ep, ns);
	ready = ppoll(fds, n, &t, NULL);
	BW_PROBE2(net_wake, ep, ready);
	if (ready <= 0)
		return false;
	for (unsigned i = 0; i < rails && armed; i++)
		woken = woken || fds[i].revents;
	if (fds[rails].revents)
		atomic_store(&ep->next_look, 0);
	if (fds[bed].revents) {
		(void)!read(s->bed->fd, &drained, sizeof(drained));
		woken = true;
	}
	return woken;
}

static void idle_sleep(struct bw_ep *ep, const struct sleeper *s, struct bw_idle *idle,
		       uint64_t until_ns)
{
	struct pollfd fds[BW_WIRE_RAILS + 2];
	uint64_t now = bw_now_ns();
	bool polls = false, woken;
	unsigned calls, n;

	if (s->whole)
		bw_ep_before_sleep(ep);
	if (s->bed)
		atomic_store(&s->bed->asleep, true);
	calls = atomic_load(s->calls);
	woken = calls != idle->seen;
	idle->seen = calls;
	if (!woken) {
		n = arm(ep, s, fds, &polls);
		idle->again = polls && !idle->again; /* something may have come just now */
		if (!idle->again && !atomic_load(&ep->inbox))
			woken = sleep_for(ep, s, fds, n, !polls,
					  how_long(ep, s, polls, now, now - idle->since,
						   until_ns));
	}
	if (s->bed)
		atomic_store(&s->bed->asleep, false);
	if (woken)
		idle->since = 0;
}

static void caller_sleep(struct bw_ep *ep, struct bw_idle *idle, uint64_t until_ns)
{
	struct sleeper s = {
		.bed = bed_take(ep), .calls = &ep->calls, .step = 1,
		.first = ep->threaded ? ep->nrails : 0, .whole = !ep->threaded,
	};

	atomic_fetch_add(&ep->sleepers, 1);
	idle_sleep(ep, &s, idle, until_ns);
	atomic_fetch_sub(&ep->sleepers, 1);
	if (s.bed)
		atomic_store(&s.bed->taken, false);
}

/* ---- steps --------------------------------------------------------------------------------- */

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/* After a turn that found nothing. true: it has waited long enough to sleep. */
static bool wait_awake(struct bw_ep *ep, struct bw_idle *idle)
{
	uint64_t now, ns;

	if (idle->turns % 4 && idle->since) {
		pause_cpu();
		return false;
	}
	now = bw_now_ns();
	if (!idle->since)
		idle->since = now;
	ns = now - idle->since;
	if (now >= atomic_load_explicit(&ep->next_look, memory_order_relaxed))
		idle->turns |= BW_NET_LOOK_TURNS - 1; /* the next turn looks */
	if (ns < ep->spin_ns)
		return false;
	if (ns >= ep->spin_ns + YIELD_NS)
		return true;
	sched_yield();
	return false;
}

static int step(struct bw_ep *ep, unsigned first, unsigned stride, bool mine, struct bw_idle *idle,
		bool *sleepy)
{
	int n = bw_ep_turn(ep, first, stride, mine, &idle->turns);

	*sleepy = false;
	if (n)
		idle->since = 0;
	else
		*sleepy = wait_awake(ep, idle);
	return n;
}

int bw_ep_step(struct bw_ep *ep, struct bw_idle *idle, uint64_t until_ns)
{
	bool sleepy;
	int n = step(ep, 0, 1, false, idle, &sleepy);

	if (sleepy)
		caller_sleep(ep, idle, until_ns);
	return n;
}

bool bw_ep_step_awake(struct bw_ep *ep, struct bw_idle *idle)
{
	bool sleepy;

	step(ep, 0, 1, false, idle, &sleepy);
	return sleepy;
}

void *bw_net_thread_main(void *thread)
{
	struct bw_net_thread *t = thread;
	struct bw_ep *ep = t->ep;
	const struct sleeper s = {
		.bed = &t->bed, .calls = &t->calls, .first = t->first, .step = t->step,
		.whole = !t->first,
	};
	struct bw_idle idle = { 0 };
	bool sleepy;

	while (!atomic_load_explicit(&ep->stopping, memory_order_relaxed)) {
		step(ep, t->first, t->step, true, &idle, &sleepy);
		if (sleepy)
			idle_sleep(ep, &s, &idle, UINT64_MAX);
	}
	return NULL;
}
