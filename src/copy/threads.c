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

/* How long a helper polls after its last work: a copy that follows another finds it awake. */
#define HOT_POLLS 20000u /* of some 5 ns */
#define LINE 64

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
	void (*piece)(void *arg, size_t from, size_t bytes);
	void *arg;
	size_t bytes, chunk;
	unsigned places; /* helpers that may take part */

	_Alignas(LINE) _Atomic uint32_t begun; /* grows; futex word */
	_Alignas(LINE) _Atomic bool open;      /* there is work to be taken */
	_Alignas(LINE) _Atomic unsigned inside; /* helpers that may look at the copy */
	_Alignas(LINE) _Atomic unsigned taken_part;
	_Alignas(LINE) _Atomic size_t next;    /* first byte that nobody took */
	_Alignas(LINE) _Atomic size_t done;    /* bytes */
	_Alignas(LINE) _Atomic unsigned asleep;
	_Atomic bool stop;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_MUTEX_INITIALIZER };

static void forget_in_child(void)
{
	memset(pool.wishes, 0, sizeof(pool.wishes));
	pool.running = 0;
	pool.open = false;
	pool.inside = 0;
	pool.asleep = 0;
	pool.stop = false;
}

__attribute__((constructor(BW_FORK_THREADS))) static void register_fork(void)
{
	bw_fork_lock(&pool.turn);
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
		bw_log(BW_LOG_WARN, "helper threads: this process may not use CPUs %.200s, which "
		       "are near the device: they run where it may", list);
}

/* ---- a helper -------------------------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, BW_THREADS_MAX, NULL, NULL, 0);
}

static void work(void)
{
	size_t from;

	while ((from = atomic_fetch_add(&pool.next, pool.chunk)) < pool.bytes) {
		size_t n = pool.bytes - from < pool.chunk ? pool.bytes - from : pool.chunk;

		pool.piece(pool.arg, from, n);
		atomic_fetch_add(&pool.done, n);
	}
}

/*
 * What the copy is made of is written while it is not open and nobody is inside; so whoever finds
 * it open after he went inside reads what belongs to it, and nobody changes that before he is out.
 */
static void take_part(void)
{
	atomic_fetch_add(&pool.inside, 1);
	if (atomic_load(&pool.open) && atomic_fetch_add(&pool.taken_part, 1) < pool.places)
		work();
	atomic_fetch_sub(&pool.inside, 1);
}

static void *helper(void *arg)
{
	uint32_t seen = (uint32_t)(uintptr_t)arg;
	unsigned polls = 0;

	while (!atomic_load(&pool.stop)) {
		uint32_t now = atomic_load_explicit(&pool.begun, memory_order_acquire);

		if (now != seen) {
			seen = now;
			take_part();
			polls = 0;
		} else if (polls++ < HOT_POLLS) {
			relax(polls);
		} else {
			atomic_fetch_add(&pool.asleep, 1);
			futex_wait(&pool.begun, seen);
			atomic_fetch_sub(&pool.asleep, 1);
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
				     (void *)(uintptr_t)atomic_load(&pool.begun));
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
	atomic_fetch_add(&pool.begun, 1);
	futex_wake(&pool.begun);
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

void bw_threads_leave(unsigned count)
{
	if (!count)
		return;
	pthread_mutex_lock(&pool.turn);
	pthread_mutex_lock(&pool.lock);
	if (pool.wishes[count])
		pool.wishes[count]--;
	if (!largest_wish()) {
		shrink_to_none();
		pool.cpus[0] = '\0';
		pool.failed = false;
	}
	pthread_mutex_unlock(&pool.lock);
	pthread_mutex_unlock(&pool.turn);
}

/* ---- a copy ---------------------------------------------------------------------------------- */

/* With the turn: opens the copy, takes part, closes it. */
static void share(unsigned threads)
{
	pool.places = threads - 1;
	atomic_store_explicit(&pool.taken_part, 0, memory_order_relaxed);
	atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
	atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
	atomic_store(&pool.open, true);
	atomic_fetch_add(&pool.begun, 1);
	if (atomic_load(&pool.asleep))
		futex_wake(&pool.begun);
	work();
	for (unsigned i = 0; atomic_load(&pool.done) < pool.bytes; i++)
		relax(i);
	atomic_store(&pool.open, false);
	/* nobody may still look at it when the next one is written */
	for (unsigned i = 0; atomic_load(&pool.inside); i++)
		relax(i);
}

void bw_threads_run(void (*piece)(void *arg, size_t from, size_t bytes), void *arg, size_t bytes,
		    size_t chunk, unsigned threads, const struct bw_device *near)
{
	if (threads > 1 && bytes > chunk && !pthread_mutex_trylock(&pool.turn)) {
		pthread_mutex_lock(&pool.lock);
		grow(near);
		pthread_mutex_unlock(&pool.lock);
		pool.piece = piece;
		pool.arg = arg;
		pool.bytes = bytes;
		pool.chunk = chunk;
		share(threads);
		pthread_mutex_unlock(&pool.turn);
		return;
	}
	for (size_t from = 0; from < bytes; from += chunk)
		piece(arg, from, bytes - from < chunk ? bytes - from : chunk);
}

struct host_copy {
	unsigned char *dst;
	const unsigned char *src;
};

static void host_piece(void *arg, size_t from, size_t bytes)
{
	const struct host_copy *c = arg;

	memcpy(c->dst + from, c->src + from, bytes);
}

void bw_threads_memcpy(void *dst, const void *src, size_t bytes, unsigned threads)
{
	struct host_copy c = { dst, src };

	bw_threads_run(host_piece, &c, bytes, 65536, threads, NULL);
}

/* ---- the method ------------------------------------------------------------------------------ */

/* Whole lines for each piece, so that no two threads store to one. */
static size_t chunk_of(const struct bw_copy *copy, unsigned threads)
{
	size_t least = copy->direction == BW_TO_GPU ? 8192 : 1024;
	size_t most = copy->direction == BW_TO_GPU ? 65536 : 8192;
	size_t even = (copy->bytes / threads + LINE - 1) / LINE * LINE;

	return even < least ? least : even > most ? most : even;
}

static void piece_to(void *arg, size_t from, size_t bytes)
{
	const struct bw_copy *c = arg;

	c->map->store(c->map->ptr + c->offset + from, (const unsigned char *)c->host + from, bytes);
	bw_fence_publish();
}

static void piece_from(void *arg, size_t from, size_t bytes)
{
	const struct bw_copy *c = arg;

	bw_fence_read();
	c->map->load((unsigned char *)c->host + from, c->map->ptr + c->offset + from, bytes);
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
	unsigned threads = copy->map->copy_threads + 1;
	size_t skew = (uintptr_t)(copy->map->ptr + copy->offset) % LINE;
	size_t head = skew && copy->bytes > LINE ? LINE - skew : 0;
	struct bw_copy rest = *copy;

	/* the first, unaligned line by this thread: the pieces then begin with lines */
	rest.offset += head;
	rest.host = (unsigned char *)copy->host + head;
	rest.bytes -= head;
	if (copy->direction == BW_TO_GPU) {
		if (head)
			copy->map->store(copy->map->ptr + copy->offset, copy->host, head);
		bw_threads_run(piece_to, &rest, rest.bytes, chunk_of(&rest, threads), threads,
			       copy->map->win->segs[0].dev);
		bw_fence_publish();
		return 0;
	}
	bw_fence_mixed(); /* what this thread stored before is loaded by the others */
	if (head)
		piece_from((void *)(uintptr_t)copy, 0, head);
	bw_threads_run(piece_from, &rest, rest.bytes, chunk_of(&rest, threads), threads,
		       copy->map->win->segs[0].dev);
	return 0;
}

const struct bw_copy_method bw_copy_threads = {
	.name = "threads", .id = BW_METHOD_THREADS, .score = threads_score, .copy = threads_copy,
};
