/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of the soft GPU and their blocks, words and calls on streams, and what failures do. */
#include <pthread.h>
#include <stdatomic.h>

#include "core/fault.h"
#include "soft_test.h"

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct bw_soft_stream *stream(int device)
{
	struct bw_soft_stream *s;

	CHECK_EQ(bw_soft_stream_create(dev(device), &s), 0);
	return s;
}

/* For kernels: waits until *@word is @value; false: it takes too long. */
static bool reaches(_Atomic unsigned *word, unsigned value)
{
	double end = seconds() + 60;

	while (atomic_load(word) != value) {
		if (seconds() > end)
			return false;
		sched_yield();
	}
	return true;
}

/* ---- blocks -------------------------------------------------------------------------------- */

struct meeting {
	unsigned blocks;
	_Atomic unsigned here, late, wrong;
	_Atomic unsigned char seen[BW_SOFT_BLOCKS_MAX];
};

static void meet(struct barway_soft_block *b, void *arg)
{
	struct meeting *m = arg;

	if (bw_soft_block_count(b) != m->blocks || bw_soft_block_index(b) >= m->blocks)
		m->wrong++;
	else
		m->seen[bw_soft_block_index(b)]++;
	m->here++;
	if (!reaches(&m->here, m->blocks))
		m->late++;
}

/* Each waits for all the others, so it ends only if all of them run at once. */
static void blocks_run_at_the_same_time(void)
{
	static const unsigned counts[] = { 1, 2, 7, 64, BW_SOFT_BLOCKS_MAX, 3 };
	static struct meeting m;
	struct bw_soft_stream *s = stream(0);
	int ret;

	for (unsigned i = 0; i < N(counts); i++) {
		memset(&m, 0, sizeof(m));
		m.blocks = counts[i];
		ret = bw_soft_launch(s, meet, counts[i], &m, 0);
		if (ret == -EAGAIN && counts[i] > 64) {
			printf("%u blocks: the system does not give so many threads\n", counts[i]);
			continue;
		}
		CHECK_EQ(ret, 0);
		CHECK_EQ(bw_soft_stream_sync(s), 0);
		CHECK_EQ(m.late, 0);
		CHECK_EQ(m.wrong, 0);
		for (unsigned k = 0; k < BW_SOFT_BLOCKS_MAX; k++)
			CHECK_EQ(m.seen[k], k < counts[i]);
	}
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
}

struct order {
	_Atomic unsigned done, early;
	unsigned expected;
};

static void slow(struct barway_soft_block *b, void *arg)
{
	struct order *o = arg;

	usleep(bw_soft_block_index(b) % 5 * 500);
	o->done++;
}

static void after(struct barway_soft_block *b, void *arg)
{
	struct order *o = arg;

	(void)b;
	o->early += o->done < o->expected;
}

static void a_stream_waits_for_all_blocks(void)
{
	struct bw_soft_stream *s = stream(0);
	struct order o = { .expected = 0 };

	for (unsigned i = 0; i < 20; i++) {
		o.expected += 16;
		CHECK_EQ(bw_soft_launch(s, slow, 16, &o, 0), 0);
		CHECK_EQ(bw_soft_launch(s, after, 4, &o, 0), 0);
		CHECK_EQ(bw_soft_stream_sync(s), 0);
		CHECK_EQ(o.done, o.expected);
	}
	CHECK_EQ(o.early, 0);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
}

/* ---- parameters ---------------------------------------------------------------------------- */

struct param {
	_Atomic unsigned *sum, *misplaced;
	unsigned char fill[BW_SOFT_PARAM_MAX - 2 * sizeof(void *)];
};

static void add_up(struct barway_soft_block *b, void *arg)
{
	const struct param *p = arg;
	unsigned sum = 0;

	(void)b;
	for (size_t i = 0; i < sizeof(p->fill); i++)
		sum += p->fill[i];
	*p->sum += sum;
	*p->misplaced += (uintptr_t)p % _Alignof(max_align_t) != 0;
}

static void parameters_are_copied(void)
{
	_Atomic unsigned sum = 0, misplaced = 0;
	struct bw_soft_stream *s = stream(0);
	struct param p = { &sum, &misplaced, { 0 } };
	unsigned expected = 0;

	for (unsigned i = 0; i < 50; i++) {
		memset(p.fill, (int)i, sizeof(p.fill));
		expected += 3 * i * (unsigned)sizeof(p.fill);
		CHECK_EQ(bw_soft_launch(s, add_up, 3, &p, sizeof(p)), 0);
	}
	memset(p.fill, 0xff, sizeof(p.fill));
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(sum, expected);
	CHECK_EQ(misplaced, 0);
}

static void count(struct barway_soft_block *b, void *arg)
{
	(void)b;
	++*(_Atomic unsigned *)arg;
}

static void wrong_launches(void)
{
	static char large[BW_SOFT_PARAM_MAX + 1];
	struct bw_soft_stream *s = stream(0);
	_Atomic unsigned n = 0;

	CHECK_EQ(bw_soft_launch(s, NULL, 1, &n, 0), -EINVAL);
	CHECK_EQ(bw_soft_launch(s, count, 0, &n, 0), -EINVAL);
	CHECK_HAS(bw_err_text(), "1 to 1024");
	CHECK_EQ(bw_soft_launch(s, count, BW_SOFT_BLOCKS_MAX + 1, &n, 0), -EINVAL);
	CHECK_EQ(bw_soft_launch(s, count, 1, large, sizeof(large)), -EINVAL);
	CHECK_HAS(bw_err_text(), "at most 4096");
	CHECK_EQ(bw_soft_launch(s, count, 1, NULL, 8), -EINVAL);
	/* no thread: no block of it runs, and the stream goes on */
	bw_fault_arm(BW_FAULT_THREAD, 3);
	CHECK_EQ(bw_soft_launch(s, count, 8, &n, 0), -EAGAIN);
	CHECK_HAS(bw_err_text(), "8 blocks");
	CHECK_EQ(bw_soft_stream_sync(s), 0);
	CHECK_EQ(n, 0);
	for (unsigned k = 1;; k++) {
		bw_fault_arm(BW_FAULT_ALLOC, k);
		int ret = bw_soft_launch(s, count, 12, &n, 0);
		bool pending = bw_fault_pending(BW_FAULT_ALLOC);

		bw_fault_disarm_all();
		CHECK_EQ(bw_soft_stream_sync(s), 0);
		if (pending)
			break;
		CHECK_EQ(ret, -ENOMEM);
		CHECK_EQ(n, 0);
	}
	CHECK_EQ(n, 12);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
}

/* ---- handles ------------------------------------------------------------------------------- */

static void stale(struct bw_soft_stream *s, const char *text)
{
	_Atomic unsigned n = 0;
	char c = 0;

	CHECK_EQ(bw_soft_stream_sync(s), -ESTALE);
	CHECK_HAS(bw_err_text(), text);
	CHECK_EQ(bw_soft_stream_query(s), -ESTALE);
	CHECK_EQ(bw_soft_launch(s, count, 1, &n, 0), -ESTALE);
	CHECK_EQ(bw_soft_copy_to_async(s, 1, &c, 1), -ESTALE);
	CHECK_EQ(bw_soft_copy_from_async(s, &c, 1, 1), -ESTALE);
	CHECK_EQ(ops->stream_write(dev(0), s, 8, 1), -ESTALE);
	CHECK_EQ(ops->stream_wait(dev(0), s, 8, 1), -ESTALE);
	CHECK_EQ(ops->stream_call(dev(0), s, NULL, NULL), -ESTALE);
	CHECK_EQ(bw_soft_stream_destroy(s), s ? -ESTALE : 0);
	CHECK_EQ(n, 0);
}

static void stale_child(void *arg)
{
	stale(arg, "parent");
	/* and streams of its own */
	_Atomic unsigned n = 0;
	struct bw_soft_stream *s = stream(1);

	CHECK_EQ(bw_soft_launch(s, count, 5, &n, 0), 0);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(n, 5);
}

static void linger(struct barway_soft_block *b, void *arg)
{
	(void)b;
	while (!*(atomic_bool *)arg)
		usleep(100);
}

static void stale_handles(void)
{
	struct bw_soft_stream *s = stream(0);

	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	stale(s, "closed before");
	stale(NULL, "NULL");
	stale((struct bw_soft_stream *)&s, "not the handle");
}

static void inherited_handles(void)
{
	struct bw_soft_stream *s;
	atomic_bool go = false;

	if (emulated() || TSAN)
		SKIP("fork with busy threads: an emulator, or the thread sanitizer");
	s = stream(0);
	CHECK_EQ(bw_soft_launch(s, linger, 4, &go, 0), 0);
	in_child(stale_child, s);
	go = true;
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	stale(s, "closed before");
}

/* ---- words --------------------------------------------------------------------------------- */

struct words {
	uint64_t gpu, pinned; /* device addresses */
	uint64_t *host;
};

static struct words words_new(void)
{
	struct words w = { .gpu = alloc(64) };
	void *p;

	memset(bw_soft_view(dev(0), w.gpu, 64), 0, 64);
	CHECK_EQ(ops->host_alloc(dev(0), 64, &p, &w.pinned), 0);
	w.host = p;
	return w;
}

static void words_free(struct words *w)
{
	CHECK_EQ(ops->host_free(w->host), 0);
	CHECK_EQ(bw_soft_free(w->gpu), 0);
}

static void look(void *arg)
{
	_Atomic uint64_t **seen = arg;

	*seen[1] = atomic_load(seen[0]);
}

static void words_on_streams(void)
{
	struct bw_soft_stream *a = stream(0), *b = stream(0);
	struct words w = words_new();
	_Atomic uint64_t seen = 99, *look_at[2] = { (_Atomic uint64_t *)w.host, &seen };

	/* in order with other work, in both kinds of memory */
	CHECK_EQ(ops->stream_write(dev(0), a, w.gpu + 8, 5), 0);
	CHECK_EQ(ops->stream_write(dev(0), a, w.pinned, 6), 0);
	CHECK_EQ(ops->stream_call(dev(0), a, look, look_at), 0);
	CHECK_EQ(ops->stream_write(dev(0), a, w.pinned, 7), 0);
	CHECK_EQ(ops->stream_sync(dev(0), a), 0);
	CHECK_EQ(seen, 6);
	CHECK_EQ(w.host[0], 7);
	CHECK_EQ(*(uint64_t *)bw_soft_view(dev(0), w.gpu + 8, 8), 5);

	/* one stream waits for the other, and for the CPU; smaller is not enough, larger is */
	CHECK_EQ(ops->stream_wait(dev(0), b, w.gpu, 10), 0);
	CHECK_EQ(ops->stream_write(dev(0), b, w.pinned + 8, 1), 0);
	CHECK_EQ(ops->stream_wait(dev(0), b, w.pinned + 16, UINT64_MAX - 1), 0);
	CHECK_EQ(ops->stream_write(dev(0), b, w.pinned + 8, 2), 0);
	usleep(20000);
	CHECK_EQ(ops->stream_query(dev(0), b), -EBUSY);
	CHECK_EQ(__atomic_load_n(&w.host[1], __ATOMIC_ACQUIRE), 0);
	CHECK_EQ(ops->stream_write(dev(0), a, w.gpu, 9), 0);
	CHECK_EQ(ops->stream_sync(dev(0), a), 0);
	usleep(5000);
	CHECK_EQ(__atomic_load_n(&w.host[1], __ATOMIC_ACQUIRE), 0);
	CHECK_EQ(ops->stream_write(dev(0), a, w.gpu, 11), 0);
	for (double end = seconds() + 20; seconds() < end;)
		if (__atomic_load_n(&w.host[1], __ATOMIC_ACQUIRE))
			break;
	CHECK_EQ(__atomic_load_n(&w.host[1], __ATOMIC_ACQUIRE), 1);
	__atomic_store_n(&w.host[2], UINT64_MAX, __ATOMIC_RELEASE);
	CHECK_EQ(ops->stream_sync(dev(0), b), 0);
	CHECK_EQ(w.host[1], 2);
	CHECK_EQ(ops->stream_query(dev(0), b), 0);
	CHECK_EQ(ops->stream_capturing(dev(0), b), 0);
	CHECK_EQ(bw_soft_stream_destroy(a), 0);
	CHECK_EQ(bw_soft_stream_destroy(b), 0);
	words_free(&w);
}

static void wrong_words(void)
{
	struct bw_soft_stream *a = stream(0), *other = stream(1);
	struct words w = words_new();
	uint64_t c = 1;

	CHECK_EQ(ops->stream_write(dev(0), a, w.gpu + 4, 1), -EINVAL);
	CHECK_EQ(ops->stream_wait(dev(0), a, w.gpu + 64, 1), -EFAULT);
	CHECK_EQ(ops->stream_write(dev(0), a, (uintptr_t)w.host, 1), -EFAULT);
	CHECK_HAS(bw_err_text(), "device address");
	CHECK_EQ(ops->stream_write(dev(0), other, w.gpu, 1), -EINVAL);
	CHECK_HAS(bw_err_text(), "one of soft GPU 1");
	CHECK_EQ(ops->stream_copy_to(dev(0), a, w.pinned, &c, 8), -EFAULT); /* not GPU memory */
	CHECK_EQ(ops->stream_copy_to(dev(0), a, w.gpu, NULL, 8), -EINVAL);
	CHECK_EQ(ops->stream_copy_to(dev(0), a, w.gpu, &c, 8), 0);
	CHECK_EQ(ops->stream_copy_from(dev(0), a, &w.host[3], w.gpu, 8), 0);
	CHECK_EQ(ops->stream_sync(dev(0), a), 0);
	CHECK_EQ(w.host[3], 1);
	CHECK_EQ(bw_soft_stream_destroy(other), 0);
	CHECK_EQ(bw_soft_stream_destroy(a), 0);
	words_free(&w);
}

/* Another allocation in the place of the one that was waited for is not it. */
static void a_wait_for_freed_memory_fails(void)
{
	struct bw_soft_stream *a = stream(0);
	uint64_t word = alloc(8), again, addr;
	void *p;

	memset(bw_soft_view(dev(0), word, 8), 0, 8);
	CHECK_EQ(ops->stream_wait(dev(0), a, word, 1), 0);
	CHECK_EQ(bw_soft_free(word), 0);
	again = alloc(8);
	CHECK_EQ(again, word);
	CHECK_EQ(ops->stream_sync(dev(0), a), -EIO);
	CHECK_HAS(bw_err_text(), "freed");
	CHECK_EQ(ops->stream_sync(dev(0), a), 0);
	CHECK_EQ(ops->host_alloc(dev(0), 8, &p, &addr), 0);
	CHECK_EQ(ops->stream_wait(dev(0), a, addr, 1), 0);
	usleep(1000);
	CHECK_EQ(ops->host_free(p), 0);
	CHECK_EQ(ops->stream_sync(dev(0), a), -EIO);
	CHECK_EQ(bw_soft_free(again), 0);
	CHECK_EQ(bw_soft_stream_destroy(a), 0);
}

static void a_destroyed_stream_stops_waiting(void)
{
	struct bw_soft_stream *a = stream(0);
	struct words w = words_new();
	uint64_t used = mem_used(0);
	_Atomic unsigned n = 0;
	char buf[64] = "";

	CHECK_EQ(ops->stream_wait(dev(0), a, w.pinned, 1), 0);
	CHECK_EQ(bw_soft_launch(a, count, 2, &n, 0), 0);
	CHECK_EQ(bw_soft_copy_to_async(a, w.gpu, buf, 64), 0);
	CHECK_EQ(bw_soft_stream_destroy(a), -EIO);
	CHECK_HAS(bw_err_text(), "destroyed while it waited");
	CHECK_EQ(n, 0);
	CHECK_EQ(mem_used(0), used);
	words_free(&w);
}

/* ---- kernels of the library ---------------------------------------------------------------- */

struct sum {
	uint64_t at;
	uint64_t add;
};

static void add(struct barway_soft_block *b, void *arg)
{
	const struct sum *s = arg;
	uint64_t *p = bw_soft_deref(b, s->at, 8);

	if (p)
		__atomic_fetch_add(p, s->add, __ATOMIC_RELAXED);
}

static void kernels_by_name(void)
{
	static const struct bw_kernel with = { .name = "add", .soft = add };
	static const struct bw_kernel without = { .name = "none", .ptx = "" };
	struct words w = words_new();
	void *s, *loaded = NULL;

	CHECK_EQ(ops->stream_create(dev(0), NULL, &s), 0);
	CHECK_EQ(ops->kernel_load(dev(0), NULL, &without, &loaded), -ENOTSUP);
	CHECK(!loaded);
	CHECK_EQ(ops->kernel_load(dev(0), NULL, &with, &loaded), 0);
	CHECK_EQ(ops->kernel_launch(dev(0), s, loaded, 10, 32, &(struct sum){ w.gpu, 3 }, 16), 0);
	CHECK_EQ(ops->kernel_launch(dev(0), s, loaded, 1, 1, &(struct sum){ w.pinned, 4 }, 16), 0);
	CHECK_EQ(ops->kernel_launch(dev(1), s, loaded, 1, 1, &(struct sum){ w.gpu, 1 }, 16),
		 -EINVAL);
	CHECK_EQ(ops->stream_sync(dev(0), s), 0);
	CHECK_EQ(*(uint64_t *)bw_soft_view(dev(0), w.gpu, 8), 30);
	CHECK_EQ(w.host[0], 4);
	ops->stream_destroy(dev(0), s);
	words_free(&w);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void a_query_remembers_errors(void)
{
	struct bw_soft_stream *s = stream(0);
	atomic_bool go = false;
	uint64_t a = alloc(100);
	char buf[100] = "";

	bw_fault_arm(BW_FAULT_COPY, 1);
	CHECK_EQ(bw_soft_copy_to_async(s, a, buf, 100), 0);
	while (bw_soft_stream_query(s) == -EBUSY)
		sched_yield();
	CHECK_EQ(bw_soft_stream_query(s), -EIO);
	CHECK_HAS(bw_err_text(), "copy engine");
	CHECK_EQ(bw_soft_stream_query(s), -EIO);
	CHECK_EQ(bw_soft_stream_sync(s), -EIO);
	CHECK_EQ(bw_soft_stream_query(s), 0);
	CHECK_EQ(bw_soft_launch(s, linger, 1, &go, 0), 0);
	CHECK_EQ(bw_soft_stream_query(s), -EBUSY);
	go = true;
	CHECK_EQ(bw_soft_stream_sync(s), 0);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(bw_soft_free(a), 0);
}

static void fails(struct barway_soft_block *b, void *arg)
{
	_Atomic unsigned *returned = arg;

	if (bw_soft_block_index(b) == 2)
		bw_soft_trap(b);
	while (!bw_soft_trapped(b))
		sched_yield();
	++*returned;
}

static void called(void *arg)
{
	++*(_Atomic unsigned *)arg;
}

static void polls(struct barway_soft_block *b, void *arg)
{
	_Atomic unsigned *began_ended = arg;

	began_ended[0]++;
	while (!bw_soft_trapped(b))
		sched_yield();
	began_ended[1]++;
}

static void a_failed_kernel_ends_everything(void)
{
	struct bw_soft_stream *s = stream(0), *waits = stream(0), *kernel = stream(0);
	struct bw_soft_stream *other = stream(1), *none = NULL;
	struct words w = words_new();
	_Atomic unsigned returned = 0, n = 0, polled[2] = { 0 }, m = 0;
	uint64_t used = mem_used(0);
	char buf[8] = "";
	struct view v;

	CHECK_EQ(ops->alive(dev(0), NULL), 0);
	CHECK_EQ(ops->stream_wait(dev(0), waits, w.gpu, 1), 0);
	CHECK_EQ(bw_soft_copy_to_async(waits, w.gpu, buf, 8), 0);
	CHECK_EQ(bw_soft_launch(kernel, polls, 2, polled, 0), 0);
	CHECK(reaches(&polled[0], 2));
	CHECK_EQ(bw_soft_launch(s, fails, 5, &returned, 0), 0);
	bw_soft_launch(s, count, 3, &n, 0); /* may be refused by now */
	ops->stream_call(dev(0), s, called, &n);
	CHECK_EQ(bw_soft_stream_sync(s), -EIO);
	CHECK_HAS(bw_err_text(), "a kernel failed");
	CHECK_EQ(returned, 5);
	CHECK_EQ(n, 0);
	CHECK_EQ(bw_soft_stream_sync(s), -EIO); /* not forgotten */
	CHECK_EQ(bw_soft_stream_sync(kernel), -EIO);
	CHECK_EQ(polled[1], 2);
	CHECK_EQ(bw_soft_stream_sync(waits), -EIO);
	CHECK_EQ(bw_soft_stream_query(waits), -EIO);
	CHECK_EQ(ops->alive(dev(0), NULL), -EIO);
	CHECK_HAS(bw_err_text(), "soft GPU 0: a kernel failed");
	CHECK_EQ(bw_soft_launch(s, count, 1, &n, 0), -EIO);
	CHECK_EQ(bw_soft_copy_to_async(s, w.gpu, buf, 8), -EIO);
	CHECK_EQ(ops->stream_wait(dev(0), s, w.gpu, 0), -EIO);
	CHECK_EQ(ops->stream_call(dev(0), s, called, &n), -EIO);
	CHECK_EQ(ops->ce_copy_to(dev(0), w.gpu, buf, 8), -EIO);
	CHECK_HAS(bw_err_text(), "a kernel failed");
	CHECK_EQ(bw_soft_stream_create(dev(0), &none), -EIO);
	CHECK(!none);
	/* memory and its mappings are as they were, and so is the other GPU */
	view_open(&v, w.gpu & ~4095ull, PAGE);
	v.p[w.gpu % PAGE] = 1;
	view_close(&v);
	CHECK_EQ(ops->alive(dev(1), NULL), 0);
	CHECK_EQ(bw_soft_launch(other, count, 1, &m, 0), 0);
	CHECK_EQ(bw_soft_stream_destroy(other), 0);
	CHECK_EQ(m, 1);
	/* until the last of its streams is gone */
	CHECK_EQ(bw_soft_stream_destroy(s), -EIO);
	CHECK_EQ(bw_soft_stream_destroy(waits), -EIO);
	CHECK_EQ(ops->alive(dev(0), NULL), -EIO);
	CHECK_EQ(bw_soft_stream_destroy(kernel), -EIO);
	CHECK_EQ(ops->alive(dev(0), NULL), 0);
	CHECK_EQ(n, 0);
	s = stream(0);
	CHECK_EQ(bw_soft_launch(s, count, 3, &n, 0), 0);
	CHECK_EQ(ops->ce_copy_to(dev(0), w.gpu, buf, 8), 0);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(n, 3);
	CHECK_EQ(mem_used(0), used);
	words_free(&w);
}

/* ---- a process that dies ------------------------------------------------------------------- */

static void spin(struct barway_soft_block *b, void *arg)
{
	const uint64_t *addr = arg;
	uint64_t *gpu = bw_soft_deref(b, addr[0], 8), *pinned = bw_soft_deref(b, addr[1], 8);

	while (gpu && pinned)
		bw_soft_store64(b, gpu, __atomic_add_fetch(pinned, 1, __ATOMIC_RELAXED));
}

static void dies_in_a_kernel(void *arg)
{
	int *out = arg;
	uint64_t addr[2];
	void *host;

	share();
	CHECK_EQ(bw_soft_malloc(dev(0), 3 << 20, &addr[0]), 0);
	CHECK_EQ(ops->host_alloc(dev(0), 1 << 20, &host, &addr[1]), 0);
	CHECK_EQ(bw_soft_launch(stream(0), spin, 4, addr, sizeof(addr)), 0);
	while (!__atomic_load_n((uint64_t *)host, __ATOMIC_RELAXED))
		sched_yield();
	put(out[1], "k", 1);
	pause();
}

static void looks_after_it(void *arg)
{
	int *out = arg;
	double end = seconds() + 20;
	uint64_t a;
	char c;

	share();
	CHECK_EQ(mem_used(0), 0);
	pid_t pid = start(dies_in_a_kernel, out);

	take(out[0], &c, 1);
	CHECK_EQ(mem_used(0), 3 << 20);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK(WIFSIGNALED(finish(pid)));
	while (mem_used(0) && seconds() < end)
		usleep(1000);
	CHECK_EQ(mem_used(0), 0);
	CHECK_EQ(bw_soft_malloc(dev(0), 15 << 20, &a), 0);
	for (size_t i = 0; i < 15 << 20; i += 4096)
		CHECK_EQ(*(char *)bw_soft_view(dev(0), a + i, 1), 0);
	exit(0);
}

static void a_process_killed_in_a_kernel_leaves_nothing(void)
{
	int out[2];

	if (emulated() || TSAN)
		SKIP("no robust mutexes, or no threads in children: an emulator, or the thread "
		     "sanitizer");
	new_name();
	CHECK(!pipe(out));
	in_child(looks_after_it, out);
	close(out[0]);
	close(out[1]);
	CHECK(!name_exists());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(a_process_killed_in_a_kernel_leaves_nothing), /* before there are threads */
		TEST(blocks_run_at_the_same_time),
		TEST(a_stream_waits_for_all_blocks),
		TEST(parameters_are_copied),
		TEST(wrong_launches),
		TEST(stale_handles),
		TEST(inherited_handles),
		TEST(words_on_streams),
		TEST(wrong_words),
		TEST(a_wait_for_freed_memory_fails),
		TEST(a_destroyed_stream_stops_waiting),
		TEST(kernels_by_name),
		TEST(a_query_remembers_errors),
		TEST(a_failed_kernel_ends_everything),
		{ 0 },
	};

	return soft_main(argc, argv, cases);
}
