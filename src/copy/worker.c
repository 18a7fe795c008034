/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that moves requests on where nobody may be polling them. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "copy/pause.h"
#include "copy/request.h"
#include "core/fault.h"
#include "core/fork.h"

#define STAY_MS 200       /* it leaves when there was no request for so long */
#define BUSY_NS 50000     /* it polls for so long before it sleeps */
#define UNTOLD_NS 500000  /* it looks again after so long, where nothing wakes it */
#define TOLD_NS 10000000  /* and where something will: failures wake nobody */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t wake, left;
static struct bw_worker_link *list, **list_end = &list;
static struct bw_worker_link *busy; /* whose turn it is: the worker is at it, without the lock */
static enum { NONE, RUNS, GONE } state;
static pthread_t thread;
static bool stop, woken;
static unsigned promised; /* requests that will come */

static void start_conditions(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&wake, &attr);
	pthread_cond_init(&left, &attr);
	pthread_condattr_destroy(&attr);
}

static void forget_in_child(void)
{
	list = NULL;
	list_end = &list;
	busy = NULL;
	state = NONE;
	stop = woken = false;
	promised = 0;
	start_conditions();
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	start_conditions();
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget_in_child);
}

/* ---- with the lock held ---------------------------------------------------------------------- */

static void push(struct bw_worker_link *link)
{
	link->next = NULL;
	*list_end = link;
	list_end = &link->next;
}

static struct bw_worker_link *pop(void)
{
	struct bw_worker_link *link = list;

	list = link->next;
	if (!list)
		list_end = &list;
	return link;
}

static void unlist(struct bw_worker_link *link)
{
	struct bw_worker_link **at = &list;

	while (*at && *at != link)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = link->next;
	if (!*at)
		list_end = at;
}

/* false: the time is up and nothing has happened. */
static bool sleep_ns(uint64_t ns)
{
	uint64_t until = bw_now_ns() + ns;
	struct timespec t = { (time_t)(until / 1000000000), (long)(until % 1000000000) };
	int ret = 0;

	while (!woken && !stop && ret != ETIMEDOUT)
		ret = pthread_cond_timedwait(&wake, &lock, &t);
	woken = false;
	return ret != ETIMEDOUT;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Gives the first request its turn, and puts it at the end. */
static void turn(bool *idle)
{
	struct bw_worker_link *link = pop();
	bool more;

	busy = link;
	pthread_mutex_unlock(&lock);
	more = bw_request_turn(link, idle);
	pthread_mutex_lock(&lock);
	busy = NULL;
	if (more && link->listed)
		push(link);
	else
		link->listed = false;
	pthread_cond_broadcast(&left);
}

/* Nothing was to do since @since_ns. */
static void rest(uint64_t since_ns)
{
	struct bw_worker_link *link = list;
	bool told;

	if (bw_now_ns() - since_ns < BUSY_NS) {
		pthread_mutex_unlock(&lock);
		sched_yield();
		pthread_mutex_lock(&lock);
		return;
	}
	busy = link; /* it stays until then */
	pthread_mutex_unlock(&lock);
	told = bw_request_notify(link);
	pthread_mutex_lock(&lock);
	busy = NULL;
	pthread_cond_broadcast(&left);
	if (list == link && !link->next && told)
		sleep_ns(TOLD_NS);
	else
		sleep_ns(UNTOLD_NS);
}

static void *worker_main(void *unused)
{
	uint64_t since = 0;
	bool idle;

	(void)unused;
	pthread_mutex_lock(&lock);
	while (!stop) {
		if (!list) {
			if (!sleep_ns(STAY_MS * 1000000ull) && !list && !promised)
				break;
			continue;
		}
		turn(&idle);
		if (!idle)
			since = 0;
		else if (!since)
			since = bw_now_ns();
		else if (list)
			rest(since);
	}
	state = GONE;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- for requests ---------------------------------------------------------------------------- */

/* The caller's signal handlers are not for this thread to run. */
static int create(void)
{
	sigset_t every, old;
	int ret;

	if (bw_fault_hit(BW_FAULT_THREAD))
		return EAGAIN;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	ret = pthread_create(&thread, NULL, worker_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

int bw_worker_start(void)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (state == GONE) {
		pthread_join(thread, NULL); /* it is past its last use of the lock */
		state = NONE;
	}
	if (state == NONE) {
		stop = false;
		ret = create();
		if (!ret)
			state = RUNS;
	}
	promised += !ret;
	pthread_mutex_unlock(&lock);
	return ret ? bw_err(ret, "start the thread that moves copies on: %s", strerror(ret)) : 0;
}

void bw_worker_add(struct bw_worker_link *link)
{
	pthread_mutex_lock(&lock);
	promised--;
	if (link) {
		link->listed = true;
		push(link);
		woken = true;
		pthread_cond_signal(&wake);
	}
	pthread_mutex_unlock(&lock);
}

void bw_worker_remove(struct bw_worker_link *link)
{
	pthread_mutex_lock(&lock);
	if (link->listed) {
		link->listed = false;
		unlist(link);
	}
	while (busy == link)
		pthread_cond_wait(&left, &lock);
	pthread_mutex_unlock(&lock);
}

void bw_worker_end(void)
{
	bool there;

	pthread_mutex_lock(&lock);
	there = state != NONE;
	stop = true;
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&lock);
	if (!there)
		return;
	pthread_join(thread, NULL);
	pthread_mutex_lock(&lock);
	state = NONE;
	pthread_mutex_unlock(&lock);
}

/* In a thread of the device's, which must not wait long. */
void bw_worker_wake(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	woken = true;
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&lock);
}
