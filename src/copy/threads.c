/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "copy/pause.h"

/* How long a helper polls after its last work: a copy that follows another finds it awake. One
 * that was woken soon, so that polling on would have been as good, does it for longer then. */
#define HOT_NS 100000u
#define HOTTER_NS 2000000u
#define CLOCK_POLLS 64u /* between two looks at the clock */
#define LINE 64

/*
 * A helper's own line: whoever shares a copy writes the helper's part there and says that it is
 * offered; the helper polls it, and has all that it needs with the line. What is offered and not
 * taken is taken back, so a helper that sleeps or does not get to run is not waited for.
 */
enum { IDLE, OFFERED, TAKEN, STATES }; /* of a copy: state % STATES; state / STATES counts copies */

struct slot {
	_Alignas(LINE) _Atomic uint64_t state;
	bw_threads_fn *fn;
	unsigned char *dst; /* the part that it begins with */
	const unsigned char *src;
	size_t bytes;
	bool more;          /* there are others than those that are offered */
	void (*work)(void *arg); /* instead of a part, with @dst; else NULL */
};
_Static_assert(sizeof(struct slot) == LINE, "one line");

static struct pool {
	/* under lock */
	pthread_mutex_t lock;
	unsigned wishes[BW_THREADS_MAX + 1]; /* contexts that want so many */
	char cpus[256];
	unsigned running;                    /* helpers there are */
	bool failed;                         /* a thread could not be made: said once */
	pthread_t thread[BW_THREADS_MAX];

	/* of the copy that has the helpers */
	pthread_mutex_t turn;
	uint64_t copies;
	unsigned invited; /* by bw_threads_invite(): the first of the helpers */
	bw_threads_fn *fn;
	unsigned char *dst;
	const unsigned char *src;
	size_t bytes, chunk;

	_Alignas(LINE) _Atomic size_t next; /* first byte that nobody took */
	_Alignas(LINE) _Atomic bool stop;
	_Atomic uint32_t asleep[BW_THREADS_MAX]; /* helpers, 0 or 1: futex words */
	struct slot slot[BW_THREADS_MAX];
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_MUTEX_INITIALIZER };

static void forget_in_child(void)
{
	pthread_mutex_init(&pool.turn, NULL); /* whoever had it is gone; what it guards is anew */
	memset(pool.wishes, 0, sizeof(pool.wishes));
	pool.running = 0;
	pool.stop = false;
	for (unsigned i = 0; i < BW_THREADS_MAX; i++) {
		pool.asleep[i] = 0;
		pool.slot[i].state = IDLE;
	}
}

__attribute__((constructor(BW_FORK_THREADS))) static void register_fork(void)
{
	bw_fork_lock(&pool.lock);
	bw_fork_forget(forget_in_child);
}

static inline void relax(unsigned turn)
{
#if defined(__x86_64__)
	__asm__ volatile("pause");
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
	if (turn % 512 == 511)
		sched_yield(); /* whom we wait for may need this CPU */
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

static bool parse_cpus(const char *list, cpu_set_t *set)
{
	CPU_ZERO(set);
	while (*list) {
		unsigned long from, to;
		char *end;

		if (*list < '0' || *list > '9')
			return false;
		from = to = strtoul(list, &end, 10);
		if (*end == '-') {
			if (end[1] < '0' || end[1] > '9')
				return false;
			to = strtoul(end + 1, &end, 10);
		}
		if (to < from || to >= CPU_SETSIZE || (*end && (*end != ',' || !end[1])))
			return false;
		for (; from <= to; from++)
			CPU_SET(from, set);
		list = *end ? end + 1 : end;
	}
	return true;
}

bool bw_threads_cpus_ok(const char *cpus)
{
	cpu_set_t set;

	return parse_cpus(cpus, &set);
}

static void run_on(const cpu_set_t *set, const char *list)
{
	int ret = 0;

	for (unsigned i = 0; i < pool.running && !ret; i++)
		ret = pthread_setaffinity_np(pool.thread[i], sizeof(*set), set);
	if (ret)
		bw_log(BW_LOG_WARN, "helper threads: CPUs %.200s: %s: they run where they may",
		       list, strerror(ret));
}

/*
 * The CPUs asked for, also where the thread that copies keeps to others; else those near the
 * device, of those that this thread may use.
 */
static void place(const struct bw_device *near)
{
	cpu_set_t allowed, wanted, both;
	char list[1024] = "";

	if (pool.cpus[0]) {
		if (parse_cpus(pool.cpus, &wanted))
			run_on(&wanted, pool.cpus);
		return;
	}
	if (near && near->has_pci)
		bw_topo_near_cpus(&near->pci, list, sizeof(list));
	if (!list[0] || !parse_cpus(list, &wanted) ||
	    sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	CPU_AND(&both, &allowed, &wanted);
	if (CPU_COUNT(&both))
		run_on(&both, list);
	else
		bw_log(BW_LOG_WARN, "helper threads: the thread that copies may not use CPUs "
		       "%.200s, which are near the device, and they run where it may: give "
		       "copy_cpus", list);
}

/* ---- a helper -------------------------------------------------------------------------------- */

/* Until there is something to do. Who offers it after the look at the slot sees that one sleeps. */
static void fall_asleep(unsigned i)
{
	atomic_store(&pool.asleep[i], 1);
	if (atomic_load(&pool.slot[i].state) % STATES != OFFERED && !atomic_load(&pool.stop))
		syscall(SYS_futex, &pool.asleep[i], FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
	atomic_store(&pool.asleep[i], 0);
}

static void wake(unsigned i)
{
	if (atomic_load_explicit(&pool.asleep[i], memory_order_relaxed) &&
	    atomic_exchange(&pool.asleep[i], 0))
		syscall(SYS_futex, &pool.asleep[i], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* The parts that nobody was given. */
static void take_others(void)
{
	size_t from, n;

	while ((from = atomic_fetch_add(&pool.next, pool.chunk)) < pool.bytes) {
		n = pool.bytes - from < pool.chunk ? pool.bytes - from : pool.chunk;
		pool.fn(pool.dst + from, pool.src + from, n);
	}
}

/* Was there something for this helper? */
static bool take_part(struct slot *s)
{
	uint64_t state = atomic_load_explicit(&s->state, memory_order_acquire);

	if (state % STATES != OFFERED ||
	    !atomic_compare_exchange_strong(&s->state, &state, state - OFFERED + TAKEN))
		return false;
	bw_fence_read();
	if (s->work)
		s->work(s->dst);
	else
		s->fn(s->dst, s->src, s->bytes);
	if (s->more)
		take_others();
	bw_fence_publish();
	atomic_store_explicit(&s->state, state - OFFERED + IDLE, memory_order_release);
	return true;
}

static void *helper(void *arg)
{
	struct slot *s = arg;
	uint64_t since_ns = 0, hot_ns = HOT_NS;
	unsigned polls = 0;

	while (!atomic_load_explicit(&pool.stop, memory_order_relaxed)) {
		if (take_part(s)) {
			polls = 0;
			continue;
		}
		relax(polls);
		if (++polls % CLOCK_POLLS)
			continue;
		if (polls == CLOCK_POLLS) {
			since_ns = bw_now_ns();
		} else if (bw_now_ns() - since_ns >= hot_ns) {
			fall_asleep((unsigned)(s - pool.slot));
			hot_ns = bw_now_ns() - since_ns < HOTTER_NS ? HOTTER_NS : HOT_NS;
			polls = 0;
		}
	}
	return NULL;
}

/* ---- the pool -------------------------------------------------------------------------------- */

static unsigned largest_wish(void)
{
	for (unsigned n = BW_THREADS_MAX; n; n--)
		if (pool.wishes[n])
			return n;
	return 0;
}

/* Under both locks. */
static void grow(const struct bw_device *near)
{
	unsigned want = largest_wish(), had = pool.running;
	sigset_t all, old;
	int ret = 0;

	if (had >= want)
		return;
	sigfillset(&all); /* the program's signals are for its own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!ret && pool.running < want) {
		ret = bw_fault_hit(BW_FAULT_THREAD) ? EAGAIN :
		      pthread_create(&pool.thread[pool.running], NULL, helper,
				     &pool.slot[pool.running]);
		if (!ret)
			pthread_setname_np(pool.thread[pool.running++], "barway-copy");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret && !pool.failed) {
		pool.failed = true;
		bw_log(BW_LOG_WARN, "helper threads: %u of %u: %s", pool.running, want,
		       strerror(ret));
	}
	if (pool.running > had)
		place(near);
}

/* Under both locks. */
static void shrink_to_none(void)
{
	atomic_store(&pool.stop, true);
	atomic_thread_fence(memory_order_seq_cst); /* who sleeps after this has seen it */
	for (unsigned i = 0; i < pool.running; i++)
		wake(i);
	while (pool.running)
		pthread_join(pool.thread[--pool.running], NULL);
	atomic_store(&pool.stop, false);
}

int bw_threads_enter(unsigned count, const char *cpus)
{
	cpu_set_t set;

	if (!count)
		return 0;
	if (!parse_cpus(cpus, &set) || strlen(cpus) >= sizeof(pool.cpus))
		return bw_err(EINVAL, "copy_cpus \"%.128s\": it is not a list of CPUs: give one "
			      "like \"2-5,8\"", cpus);
	pthread_mutex_lock(&pool.lock);
	pool.wishes[count]++;
	if (*cpus)
		strcpy(pool.cpus, cpus);
	pthread_mutex_unlock(&pool.lock);
	return 0;
}

/* Are there no wishes left? */
static bool forget_wish(unsigned count)
{
	bool none;

	pthread_mutex_lock(&pool.lock);
	if (pool.wishes[count])
		pool.wishes[count]--;
	none = !largest_wish();
	pthread_mutex_unlock(&pool.lock);
	return none;
}

void bw_threads_leave(unsigned count)
{
	if (!count || !forget_wish(count))
		return;
	pthread_mutex_lock(&pool.turn);
	pthread_mutex_lock(&pool.lock);
	if (!largest_wish()) {
		shrink_to_none();
		pool.cpus[0] = '\0';
		pool.failed = false;
	}
	pthread_mutex_unlock(&pool.lock);
	pthread_mutex_unlock(&pool.turn);
}

/* ---- a copy ---------------------------------------------------------------------------------- */

/* To the helper @i the part that begins at @from. */
static void offer(unsigned i, size_t from, bool more)
{
	struct slot *s = &pool.slot[i];

	s->fn = pool.fn;
	s->dst = pool.dst + from;
	s->src = pool.src + from;
	s->bytes = pool.bytes - from < pool.chunk ? pool.bytes - from : pool.chunk;
	s->more = more;
	s->work = NULL;
	atomic_store_explicit(&s->state, pool.copies * STATES + OFFERED, memory_order_release);
}

/*
 * Takes back what a helper was offered: true. False: it has begun with it, and is done with it when
 * this returns. A look before the exchange: that would take the line from a helper that is at work.
 */
static bool take_back(struct slot *s)
{
	uint64_t state = atomic_load_explicit(&s->state, memory_order_acquire);

	if (state % STATES == OFFERED &&
	    atomic_compare_exchange_strong(&s->state, &state, state - OFFERED + IDLE))
		return true;
	for (unsigned k = 0; atomic_load_explicit(&s->state, memory_order_acquire) % STATES != IDLE;
	     k++)
		relax(k);
	return false;
}

/*
 * With the turn. The first part is this thread's, the next ones are offered to a helper each, the
 * others are taken by whoever is free. No fence stands between the offers and this thread's own
 * part, because it would wait until the helpers' lines have come; so who fell asleep meanwhile is
 * woken after that part.
 */
static void share(unsigned threads)
{
	size_t parts = (pool.bytes - 1) / pool.chunk + 1, given;
	unsigned helpers = threads - 1 < parts - 1 ? threads - 1 : (unsigned)(parts - 1);

	helpers = helpers < pool.running ? helpers : pool.running;
	given = (helpers + 1) * pool.chunk;
	pool.copies++;
	atomic_store_explicit(&pool.next, given, memory_order_relaxed);
	for (unsigned i = 0; i < helpers; i++)
		offer(i, (i + 1) * pool.chunk, given < pool.bytes);
	for (unsigned i = 0; i < helpers; i++)
		wake(i);
	pool.fn(pool.dst, pool.src, pool.chunk);
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < helpers; i++)
		wake(i);
	if (given < pool.bytes)
		take_others();
	for (unsigned i = 0; i < helpers; i++) {
		struct slot *s = &pool.slot[i];

		if (take_back(s))
			s->fn(s->dst, s->src, s->bytes);
		/* the others are done by now, or nearly: their lines come together */
		for (unsigned k = 1; !i && k < helpers; k++)
			__builtin_prefetch(&pool.slot[k]);
	}
	bw_fence_publish();
}

/* The turn, and the helpers that are wanted; false: another copy has them. */
static bool take_turn(const struct bw_device *near)
{
	if (pthread_mutex_trylock(&pool.turn))
		return false;
	pthread_mutex_lock(&pool.lock);
	grow(near);
	pthread_mutex_unlock(&pool.lock);
	return true;
}

void bw_threads_run(bw_threads_fn *fn, void *dst, const void *src, size_t bytes, size_t chunk,
		    unsigned threads, const struct bw_device *near)
{
	if (threads > 1 && bytes > chunk && take_turn(near)) {
		pool.fn = fn;
		pool.dst = dst;
		pool.src = src;
		pool.bytes = bytes;
		pool.chunk = chunk;
		share(threads);
		pthread_mutex_unlock(&pool.turn);
		return;
	}
	for (size_t from = 0; from < bytes; from += chunk)
		fn((unsigned char *)dst + from, (const unsigned char *)src + from,
		   bytes - from < chunk ? bytes - from : chunk);
	bw_fence_publish();
}

bool bw_threads_invite(void (*fn)(void *arg), void *arg, unsigned threads,
		       const struct bw_device *near)
{
	if (threads < 2 || !take_turn(near))
		return false;
	pool.copies++;
	pool.invited = threads - 1 < pool.running ? threads - 1 : pool.running;
	for (unsigned i = 0; i < pool.invited; i++) {
		struct slot *s = &pool.slot[i];

		s->work = fn;
		s->dst = arg;
		s->more = false; /* than what @fn finds */
		atomic_store_explicit(&s->state, pool.copies * STATES + OFFERED,
				      memory_order_release);
	}
	atomic_thread_fence(memory_order_seq_cst); /* who sleeps after this has seen it */
	for (unsigned i = 0; i < pool.invited; i++)
		wake(i);
	if (pool.invited)
		return true;
	pthread_mutex_unlock(&pool.turn);
	return false;
}

void bw_threads_dismiss(void)
{
	for (unsigned i = 0; i < pool.invited; i++)
		take_back(&pool.slot[i]);
	pthread_mutex_unlock(&pool.turn);
}

void bw_threads_host(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

void bw_threads_memcpy(void *dst, const void *src, size_t bytes, unsigned threads)
{
	bw_threads_run(bw_threads_host, dst, src, bytes, threads > 1 ? 65536 : bytes, threads,
		       NULL);
}

/* ---- the method ------------------------------------------------------------------------------ */

/* Whole lines for each piece, so that no two threads store to one. */
static size_t chunk_of(size_t bytes, enum bw_direction direction, unsigned threads)
{
	size_t least = direction == BW_TO_GPU ? 4096 : 1024;
	size_t most = direction == BW_TO_GPU ? 65536 : 8192;
	size_t even = (bytes / threads + LINE - 1) / LINE * LINE;

	return even < least ? least : even > most ? most : even;
}

static int threads_score(const struct bw_copy *copy, struct bw_reason *why)
{
	unsigned n = copy->map->copy_threads;

	if (!n) {
		bw_reason_set(why, "the context has no helper threads: copy_threads");
		return -1;
	}
	bw_reason_set(why, "%u CPU threads, stores by %s, loads by %s", n + 1,
		      copy->map->store_name, copy->map->load_name);
	return 50;
}

static int threads_copy(const struct bw_copy *copy)
{
	const struct bw_mapping *m = copy->map;
	const struct bw_device *near = m->win->segs[0].dev;
	unsigned threads = m->copy_threads + 1;
	unsigned char *at = m->ptr + copy->offset, *host = copy->host;
	size_t skew = (uintptr_t)at % LINE;
	size_t head = skew && copy->bytes > LINE ? LINE - skew : 0, rest = copy->bytes - head;
	size_t chunk = chunk_of(rest, copy->direction, threads);

	/* the first, unaligned line by this thread: the pieces then begin with lines */
	if (copy->direction == BW_TO_GPU) {
		if (head)
			m->store(at, host, head);
		bw_threads_run(m->store, at + head, host + head, rest, chunk, threads, near);
		return 0;
	}
	bw_fence_mixed(); /* what this thread stored before is loaded by the others */
	if (head)
		m->load(host, at, head);
	bw_threads_run(m->load, host + head, at + head, rest, chunk, threads, near);
	return 0;
}

const struct bw_copy_method bw_copy_threads = {
	.name = "threads", .id = BW_METHOD_THREADS, .score = threads_score, .copy = threads_copy,
};
