/* SPDX-License-Identifier: BSD-3-Clause */
#include "map/cache.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "core/counters.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/param.h"

#define BUCKETS 1024u /* power of two */
#define KEEP_SHARE 4u /* a window larger than 1/4 of cache_bytes is never kept */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bw_window *buckets[BUCKETS];
static struct bw_window idle = { .lru_prev = &idle, .lru_next = &idle }; /* next: oldest */
static uint64_t idle_bytes;

/* of the parameters, as they were when the first context opened */
static uint64_t limit_bytes, keep_ms, sweep_ms;

static pthread_cond_t wake;
static pthread_t sweeper;
static bool sweeping, parked;
static uintptr_t generation; /* of the sweeper that shall run */

/*
 * Whoever makes or destroys windows, or asks the providers about the driver, is in by the gate; a
 * release of everything waits until all are out. It takes the turn first, so that no more come in;
 * those who destroy need no turn: others, who are in, may be waiting for them.
 */
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static pthread_cond_t undone;    /* a window that was leaving has left */
static unsigned leaving;         /* condemned windows that still hold what they hold */
static unsigned long long left;  /* how many have left so far */

/* Anew in a child: threads that wait are not there, but a condition would go on counting them. */
static void start_conditions(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&wake, &attr);
	pthread_cond_init(&undone, &attr);
	pthread_condattr_destroy(&attr);
}

/* Nothing may come to lie where the parent's pointers point: there they shall fault. */
static void reserve_in_child(const struct bw_window *win)
{
	void *at = mmap(win->cpu, win->bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at != MAP_FAILED && at != win->cpu) /* an old kernel, and something is there */
		munmap(at, win->bytes);
}

/* The child forgets all windows; their pages are not there in it (MADV_DONTFORK). */
static void forget_in_child(void)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct bw_window *w = buckets[i]; w; w = w->hash_next)
			if (w->users)
				reserve_in_child(w);
		buckets[i] = NULL;
	}
	idle.lru_prev = idle.lru_next = &idle;
	idle_bytes = 0;
	sweeping = parked = false;
	generation++;
	leaving = 0;
	start_conditions();
	pthread_rwlock_init(&gate, NULL);
	pthread_mutex_init(&turn, NULL);
	bw_count(BW_C_CACHE_BYTES, -(int64_t)bw_counter(BW_C_CACHE_BYTES));
	bw_count(BW_C_LIVE_BYTES, -(int64_t)bw_counter(BW_C_LIVE_BYTES));
	bw_count(BW_C_LIVE_MAPPINGS, -(int64_t)bw_counter(BW_C_LIVE_MAPPINGS));
}

__attribute__((constructor(BW_FORK_CACHE))) static void start(void)
{
	start_conditions();
	bw_fork_lock(&lock);
	bw_fork_forget(forget_in_child);
}

void bw_cache_configure(void)
{
	pthread_mutex_lock(&lock);
	limit_bytes = bw_param_size(BW_P_CACHE_BYTES);
	keep_ms = bw_param_size(BW_P_CACHE_MS);
	sweep_ms = bw_param_size(BW_P_CACHE_SWEEP_MS);
	sweep_ms = sweep_ms ? sweep_ms : 1; /* 0 would never let go of the lock */
	/* a day; no overflow of what comes of it */
	sweep_ms = sweep_ms < 86400000 ? sweep_ms : 86400000;
	pthread_mutex_unlock(&lock);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void bw_map_enter(void)
{
	pthread_mutex_lock(&turn);
	pthread_mutex_unlock(&turn);
	pthread_rwlock_rdlock(&gate);
}

void bw_map_leave(void)
{
	pthread_rwlock_unlock(&gate);
}

/* ---- lists, with the lock held --------------------------------------------------------------- */

static struct bw_window **bucket(uint64_t id)
{
	return &buckets[(id * 0x9e3779b97f4a7c15ull) >> 54 & (BUCKETS - 1)];
}

static void hash_add(struct bw_window *win)
{
	struct bw_window **b = bucket(win->segs[0].id);

	win->hash_next = *b;
	*b = win;
}

static void hash_remove(struct bw_window *win)
{
	struct bw_window **at = bucket(win->segs[0].id);

	while (*at != win)
		at = &(*at)->hash_next;
	*at = win->hash_next;
}

static void idle_add(struct bw_window *win)
{
	win->idle_since_ms = now_ms();
	win->lru_prev = idle.lru_prev;
	win->lru_next = &idle;
	idle.lru_prev->lru_next = win;
	idle.lru_prev = win;
	idle_bytes += win->bytes;
	bw_count(BW_C_CACHE_BYTES, (int64_t)win->bytes);
}

static void idle_remove(struct bw_window *win)
{
	win->lru_prev->lru_next = win->lru_next;
	win->lru_next->lru_prev = win->lru_prev;
	win->lru_prev = win->lru_next = NULL;
	idle_bytes -= win->bytes;
	bw_count(BW_C_CACHE_BYTES, -(int64_t)win->bytes);
}

/* Puts an idle window on a list of windows to be destroyed without the lock. */
static void condemn(struct bw_window *win, struct bw_window **condemned)
{
	idle_remove(win);
	hash_remove(win);
	win->lru_next = *condemned;
	*condemned = win;
	leaving++;
}

static unsigned destroy_all(struct bw_window *condemned)
{
	unsigned n = 0;

	if (!condemned)
		return 0;
	pthread_rwlock_rdlock(&gate);
	for (struct bw_window *next; condemned; condemned = next, n++) {
		next = condemned->lru_next;
		bw_window_destroy(condemned);
	}
	pthread_rwlock_unlock(&gate);
	pthread_mutex_lock(&lock);
	leaving -= n;
	left += n;
	pthread_cond_broadcast(&undone);
	pthread_mutex_unlock(&lock);
	return n;
}

/* Undoes every idle window, and waits for other threads that are undoing some; how many there were.
 * Without the lock. */
static unsigned flush(void)
{
	struct bw_window *condemned = NULL;
	unsigned long long until;
	unsigned n;

	pthread_mutex_lock(&lock);
	while (idle.lru_next != &idle)
		condemn(idle.lru_next, &condemned);
	until = left + leaving;
	pthread_mutex_unlock(&lock);
	n = destroy_all(condemned);
	pthread_mutex_lock(&lock);
	while (left < until)
		pthread_cond_wait(&undone, &lock);
	pthread_mutex_unlock(&lock);
	return n;
}

/* Is everything behind [addr, addr + bytes) of the window still what it was? */
static bool fresh(const struct bw_window *win, uint64_t addr, uint64_t bytes)
{
	for (unsigned i = 0; i < win->nsegs; i++) {
		const struct bw_segment *s = &win->segs[i];
		uint64_t from = s->base > addr ? s->base : addr;

		if (from >= addr + bytes || s->base + s->bytes <= addr)
			continue;
		if (s->dev->ops->identity(from) != s->id)
			return false;
	}
	return true;
}

/* ---- the sweeper ----------------------------------------------------------------------------- */

static struct bw_window *sweep(void)
{
	struct bw_window *condemned = NULL;
	uint64_t now = now_ms();

	for (struct bw_window *w = idle.lru_next, *next; w != &idle; w = next) {
		next = w->lru_next;
		if (!fresh(w, w->addr, w->bytes))
			bw_count(BW_C_CACHE_STALE, 1);
		else if (now - w->idle_since_ms >= keep_ms)
			bw_count(BW_C_CACHE_EVICTIONS, 1);
		else
			continue;
		condemn(w, &condemned);
	}
	return condemned;
}

static void *sweeper_main(void *arg)
{
	uintptr_t mine = (uintptr_t)arg;
	unsigned idle_rounds = 0;

	pthread_mutex_lock(&lock);
	while (mine == generation) {
		struct bw_window *condemned;
		struct timespec until;
		uint64_t at = now_ms() + sweep_ms;

		/* sleeps for good only after a while, so that map and unmap in turn wake nobody */
		if (idle.lru_next == &idle && ++idle_rounds > 10) {
			parked = true;
			pthread_cond_wait(&wake, &lock);
			parked = false;
			idle_rounds = 0;
			continue;
		}
		until.tv_sec = (time_t)(at / 1000);
		until.tv_nsec = (long)(at % 1000) * 1000000;
		if (pthread_cond_timedwait(&wake, &lock, &until) != ETIMEDOUT)
			continue;
		condemned = sweep();
		if (condemned) {
			idle_rounds = 0;
			pthread_mutex_unlock(&lock);
			destroy_all(condemned);
			pthread_mutex_lock(&lock);
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* With the lock held; false: there is none, so nothing may be kept. */
static bool have_sweeper(void)
{
	sigset_t all, old;

	if (sweeping)
		return true;
	if (bw_fault_hit(BW_FAULT_THREAD))
		return false;
	sigfillset(&all); /* the program's signals are for its own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	sweeping = pthread_create(&sweeper, NULL, sweeper_main, (void *)generation) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return sweeping;
}

void bw_cache_stop(void)
{
	pthread_t thread;
	bool was;

	pthread_mutex_lock(&lock);
	generation++;
	was = sweeping;
	thread = sweeper;
	sweeping = false;
	pthread_cond_broadcast(&wake);
	pthread_mutex_unlock(&lock);
	if (was)
		pthread_join(thread, NULL);
	bw_cache_flush();
}

/* ---- get and put ----------------------------------------------------------------------------- */

static void use(struct bw_window *win)
{
	if (!win->users++) {
		if (win->lru_next)
			idle_remove(win);
		bw_count(BW_C_LIVE_BYTES, (int64_t)win->bytes);
	}
}

/* Does the window serve the request? Its pages may hold more than the segments do. */
static bool serves(const struct bw_window *w, uint64_t addr, size_t bytes)
{
	const struct bw_segment *first = &w->segs[0], *last = &w->segs[w->nsegs - 1];
	uint64_t end = addr + bytes;

	return !w->uncached && !w->revoked && addr >= w->addr && end <= w->addr + w->bytes &&
	       addr >= first->base && end <= last->base + last->bytes;
}

static struct bw_window *find(uint64_t id, uint64_t addr, size_t bytes,
			      const struct bw_map_policy *policy)
{
	for (struct bw_window *w = *bucket(id); w; w = w->hash_next)
		if (w->segs[0].id == id && serves(w, addr, bytes) &&
		    bw_list_has(policy->providers, w->provider->name) &&
		    (w->nsegs == 1 || fresh(w, addr, bytes))) /* the one is the @id just asked */
			return w;
	return NULL;
}

/* The identity at an address, of whichever kind of device knows it. */
static uint64_t identity(uint64_t addr)
{
	uint64_t id = 0;

	for (int i = 0; bw_device_kinds[i] && !id; i++)
		id = bw_device_kinds[i]->identity(addr);
	return id;
}

static unsigned long long windows_left(void)
{
	unsigned long long n;

	pthread_mutex_lock(&lock);
	n = left;
	pthread_mutex_unlock(&lock);
	return n;
}

/* Undoes what nobody uses. False: nothing has left since @before, so trying again is no use. */
static bool give_way(unsigned long long before)
{
	unsigned n = flush();

	bw_count(BW_C_CACHE_EVICTIONS, n);
	if (n)
		bw_log(BW_LOG_INFO, "map: no room: gave up %u cached window(s) and tries again", n);
	return windows_left() != before;
}

static int make(uint64_t addr, size_t bytes, const struct bw_map_policy *policy,
		struct bw_window **win)
{
	struct bw_sentence kept;
	unsigned long long before;
	unsigned tries = 64; /* other threads may take the room each time */
	int ret;

	bw_err_keep(&kept);
	do {
		before = windows_left();
		ret = bw_window_new(addr, bytes, policy, win);
	} while (ret == -ENOMEM && --tries && give_way(before));
	if (!ret)
		bw_err_put_back(&kept);
	return ret;
}

int bw_window_get(uint64_t addr, size_t bytes, const struct bw_map_policy *policy,
		  struct bw_window **out, bool *cached)
{
	/* what a clamped window left out may be memory by now: it is looked at each time */
	bool uncached = policy->uncached || policy->clamp;
	struct bw_window *win = NULL;
	int ret;

	if (!uncached) {
		uint64_t id = identity(addr);

		pthread_mutex_lock(&lock);
		win = id ? find(id, addr, bytes, policy) : NULL;
		if (win)
			use(win);
		pthread_mutex_unlock(&lock);
		bw_count(win ? BW_C_CACHE_HITS : BW_C_CACHE_MISSES, 1);
	}
	*cached = win != NULL;
	if (!win) {
		bw_map_enter();
		ret = make(addr, bytes, policy, &win);
		if (!ret) {
			pthread_mutex_lock(&lock);
			use(win);
			win->uncached = uncached;
			hash_add(win);
			pthread_mutex_unlock(&lock);
		}
		bw_map_leave();
		if (ret)
			return ret;
	}
	*out = win;
	return 0;
}

void bw_window_put(struct bw_window *win)
{
	struct bw_window *condemned = NULL;

	pthread_mutex_lock(&lock);
	if (--win->users) {
		pthread_mutex_unlock(&lock);
		return;
	}
	bw_count(BW_C_LIVE_BYTES, -(int64_t)win->bytes);
	idle_add(win);
	if (win->uncached || win->revoked || win->bytes > limit_bytes / KEEP_SHARE ||
	    !have_sweeper()) {
		condemn(win, &condemned);
	} else {
		while (idle_bytes > limit_bytes) {
			condemn(idle.lru_next, &condemned);
			bw_count(BW_C_CACHE_EVICTIONS, 1);
		}
		if (parked)
			pthread_cond_signal(&wake);
	}
	pthread_mutex_unlock(&lock);
	destroy_all(condemned);
}

void bw_cache_flush(void)
{
	flush();
}

/* With the lock held: the windows that mappings use; with @revoke their pages are taken away. */
static unsigned live_windows(bool revoke)
{
	unsigned n = 0;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct bw_window *w = buckets[i]; w; w = w->hash_next) {
			if (!w->users || w->revoked)
				continue;
			n++;
			if (revoke)
				bw_window_revoke(w);
		}
	return n;
}

unsigned bw_cache_close(bool revoke)
{
	unsigned live;

	pthread_mutex_lock(&turn);
	for (;;) {
		bw_cache_stop();
		pthread_rwlock_wrlock(&gate);
		pthread_mutex_lock(&lock);
		if (!leaving && idle.lru_next == &idle)
			break;
		pthread_mutex_unlock(&lock); /* other threads put windows in meanwhile */
		pthread_rwlock_unlock(&gate);
	}
	pthread_mutex_unlock(&turn);
	live = live_windows(revoke);
	pthread_mutex_unlock(&lock);
	return live;
}

void bw_cache_open(void)
{
	pthread_rwlock_unlock(&gate);
}
