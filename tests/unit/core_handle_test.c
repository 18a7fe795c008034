/* SPDX-License-Identifier: BSD-3-Clause */
/* core/handle and core/fork */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/err.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/handle.h"
#include "core/log.h"
#include "core/param.h"
#include "test.h"

#define CHUNK 65536u
#define PER_CHUNK (CHUNK / BW_SLOT_BYTES - 1)
#define MAPPING BW_OBJECT_MAPPING

struct object {
	struct bw_slot slot;
	unsigned char rest[BW_SLOT_BYTES - sizeof(struct bw_slot)];
};

static bool no_wipe; /* madvise() behaves as on a kernel without MADV_WIPEONFORK */

int madvise(void *at, size_t bytes, int advice)
{
	if (no_wipe && advice == MADV_WIPEONFORK) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_madvise, at, bytes, advice);
}

static void nap(long us)
{
	nanosleep(&(struct timespec){ 0, us * 1000 }, NULL);
}

/* In a child: returns the line from a function that goes by lines. */
#define NEED(x) do { if (!(x)) return __LINE__; } while (0)

static int in_child(int (*fn)(void *), void *arg)
{
	int *line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, result;
	pid_t pid;

	CHECK(line != MAP_FAILED);
	*line = -1;
	pid = fork();
	if (!pid) {
		alarm(60); /* a deadlock becomes a failure */
		*line = fn(arg);
		_exit(0);
	}
	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	result = *line;
	munmap(line, 4096);
	CHECK_EQ(status, 0);
	return result;
}

static void *make(enum bw_object kind, void **object)
{
	void *o = bw_object_new(kind);

	if (object)
		*object = o;
	return o ? bw_object_publish(o) : NULL;
}

/* Takes slots until the free list is empty; gives the last one. They stay in use. */
static void *drain(void)
{
	void *o;

	bw_fault_arm(BW_FAULT_MMAP, 1); /* a new chunk cannot be had */
	while (bw_object_new(MAPPING))
		;
	CHECK(!bw_fault_pending(BW_FAULT_MMAP));
	for (unsigned i = 0; i < PER_CHUNK; i++)
		o = bw_object_new(MAPPING);
	CHECK(o);
	return o;
}

static void lives(void)
{
	struct object *o = bw_object_new(MAPPING);
	void *h;

	CHECK(o);
	CHECK_EQ((uintptr_t)o % BW_SLOT_BYTES, 0);
	for (size_t i = 0; i < sizeof(o->rest); i++)
		CHECK_EQ(o->rest[i], 0);
	CHECK(!bw_object_handle(o));
	memset(o->rest, 0xa5, sizeof(o->rest));

	h = bw_object_publish(o);
	CHECK(h && h != (void *)o);
	CHECK(bw_object_handle(o) == h);
	CHECK(bw_object_get(h, MAPPING) == o);
	CHECK(!bw_object_get(h, BW_OBJECT_DEVICE));
	CHECK(!bw_object_get(o, MAPPING));
	CHECK(!bw_object_get(NULL, MAPPING));
	CHECK(!bw_object_retire(h, BW_OBJECT_CONTEXT));

	CHECK(bw_object_retire(h, MAPPING) == o);
	CHECK(!bw_object_retire(h, MAPPING));
	CHECK(!bw_object_get(h, MAPPING));
	CHECK_EQ(o->rest[0], 0xa5); /* still the owner's until freed */
	bw_object_free(o);
	CHECK(!bw_object_get(h, MAPPING));
	bw_object_free(NULL);
}

static void objects_do_not_touch(void)
{
	struct object *o[64];

	for (unsigned i = 0; i < 64; i++)
		CHECK((o[i] = bw_object_new(BW_OBJECT_DEVICE)));
	for (unsigned i = 0; i < 64; i++)
		memset(o[i]->rest, (int)i + 1, sizeof(o[i]->rest));
	for (unsigned i = 0; i < 64; i++) {
		CHECK(bw_object_publish(o[i]));
		for (unsigned j = 0; j < i; j++)
			CHECK(o[i] != o[j]);
		for (size_t k = 0; k < sizeof(o[i]->rest); k++)
			CHECK_EQ(o[i]->rest[k], i + 1);
	}
	for (unsigned i = 0; i < 64; i++)
		bw_object_free(o[i]);
}

static void a_slot_is_clean_again(void)
{
	struct object *o = drain(), *again;

	memset(o->rest, 0xff, sizeof(o->rest));
	bw_object_free(o);
	again = bw_object_new(BW_OBJECT_CONTEXT);
	CHECK(again == o);
	for (size_t i = 0; i < sizeof(o->rest); i++)
		CHECK_EQ(o->rest[i], 0);
	bw_object_free(again);
}

static void first_in_first_out(void)
{
	void *o[3], *last = drain();

	for (unsigned i = 0; i < 3; i++)
		CHECK((o[i] = bw_object_new(MAPPING)));
	bw_object_free(last);
	for (unsigned i = 0; i < 3; i++)
		bw_object_free(o[i]);
	/* the rest of the new chunk is before them */
	for (unsigned i = 0; i < PER_CHUNK - 3; i++)
		CHECK(bw_object_new(MAPPING) != last);
	CHECK(bw_object_new(MAPPING) == last);
	for (unsigned i = 0; i < 3; i++)
		CHECK(bw_object_new(MAPPING) == o[i]);
}

static void double_free_is_harmless(void)
{
	void *o = drain(), *a, *b;

	bw_object_free(o);
	bw_object_free(o);
	a = bw_object_new(MAPPING);
	b = bw_object_new(MAPPING);
	CHECK(a == o);
	CHECK(b != o);
	bw_object_free(a);
	bw_object_free(b);
}

static void no_memory(void)
{
	void *o;

	drain();
	bw_fault_arm(BW_FAULT_ALLOC, 1);
	CHECK(!bw_object_new(MAPPING));
	bw_fault_arm(BW_FAULT_MMAP, 1);
	CHECK(!bw_object_new(MAPPING));
	CHECK((o = bw_object_new(MAPPING)));
	bw_object_free(o);
}

static void stale_sentences(void)
{
	struct object *o;
	void *h = make(MAPPING, (void **)&o), *d = make(BW_OBJECT_DEVICE, NULL);
	uintptr_t one = (uintptr_t)1 << BW_HANDLE_SHIFT;
	int local;
	const uintptr_t garbage[] = {
		1, 0x1234, (uintptr_t)&local, ~(uintptr_t)0, (uintptr_t)&local | one,
		(uintptr_t)o,                                         /* no generation */
		(uintptr_t)o | (uintptr_t)65535 << BW_HANDLE_SHIFT,   /* not lived yet */
		((uintptr_t)o & ~(uintptr_t)(CHUNK - 1)) | one,       /* the first slot */
		(uintptr_t)h + 8,
	};

	CHECK_EQ(bw_handle_stale(NULL, "unmap", "mapping"), -ESTALE);
	CHECK_HAS(bw_err_text(), "unmap: the handle is NULL");
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		CHECK_EQ(bw_handle_stale((void *)garbage[i], "unmap", "mapping"), -ESTALE);
		CHECK_HAS(bw_err_text(), "is not the handle of a mapping");
	}
	CHECK_EQ(bw_handle_stale(d, "unmap", "mapping"), -ESTALE);
	CHECK_HAS(bw_err_text(), "is not the handle of a mapping");
	CHECK(bw_object_retire(h, MAPPING) == o);
	CHECK_EQ(bw_handle_stale(h, "unmap", "mapping"), -ESTALE);
	CHECK_STR(bw_err_text(), "unmap: the mapping was closed before");
	bw_object_free(o);
	CHECK_EQ(bw_handle_stale(h, "unmap", "mapping"), -ESTALE);
	CHECK_STR(bw_err_text(), "unmap: the mapping was closed before");
	bw_object_free(bw_object_retire(d, BW_OBJECT_DEVICE));
}

/* ---- threads ---- */

#define THREADS 8

struct race {
	pthread_barrier_t barrier;
	void *handle[1000], *object[1000];
	unsigned rounds;
	_Atomic unsigned won[1000], wrong;
};

/* All of them run down the same list, so they meet at some handle again and again.
 * Nothing else is done on the way: it would pull them apart. */
static void *racer(void *arg)
{
	struct race *r = arg;

	for (unsigned k = 0; k < r->rounds; k++) {
		pthread_barrier_wait(&r->barrier);
		for (unsigned i = 0; i < 1000; i++)
			if (bw_object_retire(r->handle[i], MAPPING))
				atomic_fetch_add_explicit(&r->won[i], 1, memory_order_relaxed);
		pthread_barrier_wait(&r->barrier);
	}
	return NULL;
}

static void one_thread_retires(void)
{
	static struct race r = { .rounds = 600 };
	pthread_t t[THREADS];

	pthread_barrier_init(&r.barrier, NULL, THREADS + 1);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, racer, &r));
	for (unsigned k = 0; k < r.rounds; k++) {
		for (unsigned i = 0; i < 1000; i++) {
			r.handle[i] = make(MAPPING, &r.object[i]);
			atomic_store(&r.won[i], 0);
		}
		pthread_barrier_wait(&r.barrier);
		pthread_barrier_wait(&r.barrier);
		for (unsigned i = 0; i < 1000; i++) {
			if (atomic_load(&r.won[i]) != 1)
				atomic_fetch_add(&r.wrong, 1);
			bw_object_free(r.object[i]);
		}
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_destroy(&r.barrier);
	CHECK_EQ(atomic_load(&r.wrong), 0);
}

static void *churner(void *arg)
{
	struct race *r = arg;
	void *stale[64] = { 0 };

	for (unsigned i = 0; i < r->rounds; i++) {
		struct object *o;
		void *h = make(MAPPING, (void **)&o);

		if (!h || o->rest[0] || bw_object_get(h, MAPPING) != o) {
			atomic_fetch_add(&r->wrong, 1);
			break;
		}
		memset(o->rest, 1, sizeof(o->rest));
		for (unsigned k = 0; k < 64; k++)
			if (stale[k] && bw_object_get(stale[k], MAPPING))
				atomic_fetch_add(&r->wrong, 1);
		if (bw_object_retire(h, MAPPING) != o)
			atomic_fetch_add(&r->wrong, 1);
		bw_object_free(o);
		stale[i % 64] = h;
	}
	return NULL;
}

static void many_threads_live_and_die(void)
{
	struct race r = { .rounds = 20000 };
	pthread_t t[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, churner, &r));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(atomic_load(&r.wrong), 0);
}

/* Every life of one slot: no handle comes twice, and after the last the slot is never used. */
static void generations_run_out(void)
{
	static void *seen[65536];
	struct object *o = drain();
	unsigned n = 0;

	bw_object_free(o);
	for (;;) {
		void *again = bw_object_new(MAPPING), *h;

		if (again != o) {
			bw_object_free(again);
			break;
		}
		CHECK(n < 65535);
		h = bw_object_publish(o);
		CHECK(!seen[(uintptr_t)h >> BW_HANDLE_SHIFT]);
		seen[(uintptr_t)h >> BW_HANDLE_SHIFT] = h;
		CHECK(bw_object_get(h, MAPPING) == o);
		CHECK(!bw_object_get(seen[((uintptr_t)h >> BW_HANDLE_SHIFT) - 1], MAPPING));
		CHECK(bw_object_retire(h, MAPPING) == o);
		bw_object_free(o);
		n++;
	}
	CHECK_EQ(n, 65534); /* the first one was drain()'s */
	for (unsigned i = 0; i < 2 * PER_CHUNK; i++)
		CHECK(bw_object_new(MAPPING) != (void *)o);
	for (unsigned i = 1; i < 65536; i++) {
		CHECK(!bw_object_get(seen[i], MAPPING));
		CHECK(!bw_object_retire(seen[i], MAPPING));
	}
	CHECK_EQ(bw_handle_stale(seen[65535], "copy", "mapping"), -ESTALE);
	CHECK_HAS(bw_err_text(), "closed before");
}

/* ---- fork ---- */

#define INHERITED 600 /* more than two chunks */

struct family {
	void *handle[INHERITED], *object[INHERITED];
	void *unpublished;
};

static int inherits_nothing(void *arg)
{
	struct family *f = arg;
	void *fresh[INHERITED], *o;

	for (unsigned i = 0; i < INHERITED; i++) {
		NEED(!bw_object_get(f->handle[i], MAPPING));
		NEED(!bw_object_retire(f->handle[i], MAPPING));
		NEED(!bw_object_handle(f->object[i]));
		NEED(bw_handle_stale(f->handle[i], "unmap", "mapping") == -ESTALE);
		NEED(strstr(bw_err_text(), "was made by the parent process before fork(): open and "
			    "map anew in the child"));
		bw_object_free(f->object[i]); /* clumsy, and harmless */
	}
	NEED(!bw_object_publish(f->unpublished));
	bw_object_free(f->unpublished);
	for (unsigned i = 0; i < INHERITED; i++) {
		NEED(fresh[i] = make(MAPPING, &o));
		NEED(bw_object_get(fresh[i], MAPPING) == o);
		for (unsigned k = 0; k < INHERITED; k++)
			NEED(o != f->object[k] && fresh[i] != f->handle[k]);
	}
	for (unsigned i = 0; i < INHERITED; i++)
		NEED(!bw_object_get(f->handle[i], MAPPING));
	for (unsigned i = 0; i < INHERITED; i++) {
		NEED(o = bw_object_retire(fresh[i], MAPPING));
		bw_object_free(o);
	}
	NEED(bw_handle_stale(fresh[0], "unmap", "mapping") == -ESTALE);
	NEED(strstr(bw_err_text(), "closed before"));
	NEED(bw_handle_stale((void *)0x1234, "unmap", "mapping") == -ESTALE);
	NEED(strstr(bw_err_text(), "is not the handle"));
	return 0;
}

static int has_a_child(void *arg)
{
	struct family own = { 0 };
	int line = inherits_nothing(arg);

	if (line)
		return line;
	for (unsigned i = 0; i < INHERITED; i++)
		NEED(own.handle[i] = make(MAPPING, &own.object[i]));
	NEED(own.unpublished = bw_object_new(MAPPING));
	line = in_child(inherits_nothing, &own);
	if (!line)
		line = in_child(inherits_nothing, arg);
	for (unsigned i = 0; i < INHERITED; i++)
		NEED(bw_object_get(own.handle[i], MAPPING) == own.object[i]);
	return line;
}

static void fork_family(void)
{
	static struct family f;

	for (unsigned i = 0; i < INHERITED; i++)
		CHECK((f.handle[i] = make(MAPPING, &f.object[i])));
	CHECK((f.unpublished = bw_object_new(MAPPING)));
	CHECK_EQ(in_child(inherits_nothing, &f), 0);
	CHECK_EQ(in_child(has_a_child, &f), 0);
	/* and the parent never notices */
	for (unsigned i = 0; i < INHERITED; i++) {
		CHECK(bw_object_get(f.handle[i], MAPPING) == f.object[i]);
		CHECK(bw_object_retire(f.handle[i], MAPPING) == f.object[i]);
		bw_object_free(f.object[i]);
	}
	bw_object_free(f.unpublished);
}

static void a_child_begins_anew(void)
{
	fork_family();
}

static void without_wipe_on_fork(void)
{
	drain();
	no_wipe = true;
	fork_family();
	no_wipe = false;
	drain(); /* later cases get wiped chunks */
}

static int is_zero(void *page)
{
	NEED(!*(int *)page);
	return 0;
}

/* qemu-user accepts MADV_WIPEONFORK and does not do it. */
static bool kernel_wipes(void)
{
	int *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool wipes;

	CHECK(page != MAP_FAILED);
	*page = 1;
	wipes = !madvise(page, 4096, MADV_WIPEONFORK) && !in_child(is_zero, page);
	munmap(page, 4096);
	return wipes;
}

/* fork() by another name: no handler runs, the kernel's wipe has to do. */
static void raw_clone(void)
{
	void *o, *h;
	int status;
	pid_t pid;

	if (!kernel_wipes())
		SKIP("MADV_WIPEONFORK does nothing here");
	drain();
	h = make(MAPPING, &o);
	CHECK(h);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid)
		syscall(SYS_exit_group, bw_object_get(h, MAPPING) ? 1 : 0);
	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	CHECK(bw_object_retire(h, MAPPING) == o);
	bw_object_free(o);
}

static char forgotten[8];

static void forget_a(void)
{
	strcat(forgotten, "a");
}

static void forget_b(void)
{
	strcat(forgotten, "b");
}

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, leaf = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *const mine[] = { &outer, &second, &leaf };
static _Atomic bool holding, stop;
static int state; /* odd while its lock is held */

static void register_mine(void)
{
	bw_fork_lock(&outer);
	bw_fork_leaf_lock(&leaf);
	bw_fork_lock(&second);
	bw_fork_lock(&outer); /* again: once is enough */
	bw_fork_leaf_lock(&leaf);
	bw_fork_forget(forget_a);
	bw_fork_forget(forget_b);
	bw_fork_forget(forget_a);
}

/* Takes all three as the library does: outer ones first, the leaf last. */
static void *holder(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		for (unsigned i = 0; i < 3; i++)
			pthread_mutex_lock(mine[i]);
		state++;
		atomic_store(&holding, true);
		nap(2000);
		state++;
		for (unsigned i = 3; i-- > 0;)
			pthread_mutex_unlock(mine[i]);
		nap(100);
	}
	return NULL;
}

static int finds_order(void *arg)
{
	(void)arg;
	NEED(!strcmp(forgotten, "ab"));
	NEED(state % 2 == 0);
	for (unsigned i = 0; i < 3; i++)
		NEED(!pthread_mutex_trylock(mine[i]));
	for (unsigned i = 3; i-- > 0;)
		NEED(!pthread_mutex_unlock(mine[i]));
	forgotten[0] = 0;
	return 0;
}

static int finds_order_twice(void *arg)
{
	int line = finds_order(arg);

	return line ? line : in_child(finds_order, arg);
}

static void locks_are_held_over_fork(void)
{
	pthread_t t;

	register_mine();
	atomic_store(&stop, false);
	CHECK(!pthread_create(&t, NULL, holder, NULL));
	while (!atomic_load(&holding))
		nap(100);
	for (unsigned i = 0; i < 20; i++)
		CHECK_EQ(in_child(finds_order, NULL), 0);
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	CHECK_EQ(in_child(finds_order_twice, NULL), 0);
	CHECK_STR(forgotten, "");
	for (unsigned i = 0; i < 3; i++) {
		CHECK(!pthread_mutex_trylock(mine[i]));
		pthread_mutex_unlock(mine[i]);
	}
}

static void swallow(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	(void)text;
	nap(50); /* a fork finds the log's lock taken */
}

static void *busy(void *arg)
{
	char value[16];

	for (unsigned i = 0; !atomic_load(&stop); i++) {
		void *o;

		if (make(BW_OBJECT_DEVICE, &o))
			bw_object_free(o);
		snprintf(value, sizeof(value), "%u", i % 16);
		bw_param_set("cache_ms", value);
		bw_param_set("no_such", value);
		bw_log(BW_LOG_ERROR, "busy %u", i);
		pthread_mutex_lock(&second);
		bw_log(BW_LOG_ERROR, "under a lock");
		pthread_mutex_unlock(&second);
	}
	return arg;
}

static void *forker(void *arg)
{
	_Atomic unsigned *wrong = arg;

	for (unsigned i = 0; i < 10; i++) {
		int status = -1;
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			atomic_fetch_add(wrong, 1);
	}
	return NULL;
}

static int works(void *arg)
{
	void *o, *h;

	(void)arg;
	NEED(h = make(MAPPING, &o));
	NEED(bw_object_retire(h, MAPPING) == o);
	bw_object_free(o);
	NEED(!bw_param_set("cache_ms", "17"));
	NEED(bw_param_set("cache_ms", "x") == -EINVAL);
	NEED(!bw_param_load());
	NEED(bw_param_size(BW_P_CACHE_MS) == 17);
	bw_log(BW_LOG_ERROR, "from the child");
	NEED(!bw_log_set(NULL, NULL, 0));
	return 0;
}

/* The library is in full use, and two threads fork at once. */
static void fork_amid_use(void)
{
	_Atomic unsigned wrong = 0;
	pthread_t t[3], f;

	register_mine();
	bw_log_set(swallow, NULL, BW_LOG_DEBUG);
	atomic_store(&stop, false);
	for (unsigned i = 0; i < 3; i++)
		CHECK(!pthread_create(&t[i], NULL, busy, NULL));
	CHECK(!pthread_create(&f, NULL, forker, &wrong));
	for (unsigned i = 0; i < 20; i++)
		CHECK_EQ(in_child(works, NULL), 0);
	pthread_join(f, NULL);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	bw_log_set(NULL, NULL, BW_LOG_WARN);
	CHECK_EQ(atomic_load(&wrong), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(lives),
		TEST(objects_do_not_touch),
		TEST(a_slot_is_clean_again),
		TEST(first_in_first_out),
		TEST(double_free_is_harmless),
		TEST(no_memory),
		TEST(stale_sentences),
		TEST(one_thread_retires),
		TEST(many_threads_live_and_die),
		TEST(generations_run_out),
		TEST(a_child_begins_anew),
		TEST(without_wipe_on_fork),
		TEST(raw_clone),
		TEST(locks_are_held_over_fork),
		TEST(fork_amid_use),
		{ 0 }
	};

	return test_main(argc, argv, cases);
}
