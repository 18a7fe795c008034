/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every mmio kernel against its contract (src/mmio/mmio.h): each size 0..300 at each alignment of
 * both sides between guard pages, long random copies, the pieces that stores are made of, copies
 * against other threads; then the choice of kernels and the fences.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "mmio/fence.h"
#include "mmio/mmio.h"
#include "test.h"

/* ---- which kernels ------------------------------------------------------------------------- */

static const char *caching_name(const struct bw_mmio_kernel *k)
{
	bool wc = k->caching & 1u << BW_WC, cached = k->caching & 1u << BW_CACHED;

	return wc && cached ? "any mapping" : wc ? "write-combined" : "cached";
}

/* Ends the case unless this CPU runs kernels of the set @isa. */
static void need(uint32_t isa)
{
	const char *name = NULL;

	for (int i = 0; bw_mmio_kernels[i]; i++)
		if (bw_mmio_kernels[i]->isa == isa)
			name = bw_mmio_kernels[i]->name;
	if (!name)
		FAIL("no kernel for instruction set %#x is listed", isa);
	if (!(bw_mmio_cpu_isa() & isa))
		SKIP("this CPU, or its operating system, does not have %s", name);
}

#define FOR_KERNELS(k, set) \
	for (const struct bw_mmio_kernel *const *k##_ = bw_mmio_kernels, *k; (k = *k##_); k##_++) \
		if (k->isa & (set))

/* ---- memory between guard pages ------------------------------------------------------------ */

struct area {
	unsigned char *base; /* the page before it, and the one after its end, is PROT_NONE */
	size_t bytes;
	unsigned char *image; /* what it holds, but for the copy that is being tested */
};

static struct area make_area(size_t bytes, uint64_t seed)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct area a;
	unsigned char *p;

	bytes = (bytes + page - 1) / page * page;
	p = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	a.base = p + page;
	a.bytes = bytes;
	CHECK(!mprotect(a.base, bytes, PROT_READ | PROT_WRITE));
	a.image = malloc(bytes);
	CHECK(a.image);
	test_fill(a.image, bytes, seed);
	memcpy(a.base, a.image, bytes);
	return a;
}

static void free_area(struct area *a)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	munmap(a->base - page, a->bytes + 2 * page);
	free(a->image);
}

static void writable(struct area *a, bool yes)
{
	CHECK(!mprotect(a->base, a->bytes, yes ? PROT_READ | PROT_WRITE : PROT_READ));
}

/* @n bytes with address % @align == @off, as near as that lets it be to the start or the end. */
static unsigned char *place(struct area *a, bool at_end, size_t align, size_t off, size_t n)
{
	unsigned char *p = a->base + off;

	if (at_end) {
		p = a->base + a->bytes - n;
		p -= ((uintptr_t)p - off) & (align - 1);
	}
	return p;
}

/* What is running, for the message when it faults. */
static struct {
	const char *kernel, *what;
	const void *mapped, *host;
	size_t n;
} now;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	char line[256];
	int len;

	(void)context;
	len = snprintf(line, sizeof(line),
		       "signal %d at %p: %s, %s, mapped %p, host %p, %zu bytes\n", sig,
		       info->si_addr, now.what, now.kernel, now.mapped, now.host, now.n);
	if (write(2, line, (size_t)len) < 0)
		_exit(2);
	_exit(1);
}

static void run_store(const struct bw_mmio_kernel *k, void *mapped, const void *host, size_t n)
{
	now.kernel = k->name, now.what = "store";
	now.mapped = mapped, now.host = host, now.n = n;
	k->store(mapped, host, n);
}

static void run_load(const struct bw_mmio_kernel *k, void *host, const void *mapped, size_t n)
{
	now.kernel = k->name, now.what = "load";
	now.mapped = mapped, now.host = host, now.n = n;
	k->load(host, mapped, n);
}

/* [p, p + n) is @want, and two lines on each side are as they were; then put that back. */
static void check_written(const struct bw_mmio_kernel *k, struct area *a, unsigned char *p,
			  const unsigned char *want, size_t n)
{
	size_t at = (size_t)(p - a->base), end = at + n;
	size_t before = at < 128 ? at : 128;
	size_t after = a->bytes - end < 128 ? a->bytes - end : 128;

	if (memcmp(p, want, n))
		FAIL("%s (%s): %s of %zu bytes, mapped %p, host %p: wrong data", k->name,
		     caching_name(k), now.what, n, now.mapped, now.host);
	if (memcmp(p - before, a->image + at - before, before) ||
	    memcmp(a->base + end, a->image + end, after))
		FAIL("%s (%s): %s of %zu bytes, mapped %p, host %p: wrote outside", k->name,
		     caching_name(k), now.what, n, now.mapped, now.host);
	memcpy(p, a->image + at, n);
}

/* ---- every small size at every alignment --------------------------------------------------- */

#define SIZES 301
#define MAPPED_OFFSETS 64
#define HOST_OFFSETS 16

static void sweep_one(const struct bw_mmio_kernel *k, bool store, struct area *mapped,
		      struct area *host)
{
	struct area *to = store ? mapped : host, *from = store ? host : mapped;

	writable(to, true);
	writable(from, false);
	/* One side at the start of its area and the other at the end, then the reverse. */
	for (int end = 0; end < 2; end++) {
		for (size_t mo = 0; mo < MAPPED_OFFSETS; mo++)
			for (size_t ho = 0; ho < HOST_OFFSETS; ho++)
				for (size_t n = 0; n < SIZES; n++) {
					unsigned char *m = place(mapped, end, 64, mo, n);
					unsigned char *h = place(host, !end, 16, ho, n);

					if (store)
						run_store(k, m, h, n);
					else
						run_load(k, h, m, n);
					check_written(k, to, store ? m : h, store ? h : m, n);
				}
	}
	writable(from, true);
	CHECK(!memcmp(from->base, from->image, from->bytes));
	CHECK(!memcmp(to->base, to->image, to->bytes));
}

static void sweep(uint32_t isa, bool store)
{
	struct area mapped, host;
	int ran = 0;

	need(isa);
	mapped = make_area(1, 1);
	host = make_area(1, 2);
	FOR_KERNELS(k, isa) {
		if (store ? !!k->store : !!k->load) {
			sweep_one(k, store, &mapped, &host);
			ran++;
		}
	}
	free_area(&mapped);
	free_area(&host);
	if (!ran)
		SKIP("there is no %s kernel with this instruction set", store ? "store" : "load");
}

/* ---- long copies --------------------------------------------------------------------------- */

static void long_copies(void)
{
	struct area mapped = make_area((1 << 20) + 4096, 3), host = make_area((1 << 20) + 4096, 4);
	uint64_t seed = 5;

	FOR_KERNELS(k, bw_mmio_cpu_isa()) {
		for (int round = 0; round < 80; round++) {
			bool store = round & 1, end = round & 2;
			size_t most = (size_t)256 << test_random(&seed) % 13;
			size_t n = test_random(&seed) % (most < 1 << 20 ? most : 1 << 20);
			unsigned char *m = place(&mapped, end, 64, test_random(&seed) % 64, n);
			unsigned char *h = place(&host, !end, 64, test_random(&seed) % 64, n);

			if (round < 4)
				n -= n ? 1 : 0;
			if (store ? !k->store : !k->load)
				continue;
			if (store) {
				run_store(k, m, h, n);
				check_written(k, &mapped, m, h, n);
			} else {
				run_load(k, h, m, n);
				check_written(k, &host, h, m, n);
			}
		}
	}
	CHECK(!memcmp(mapped.base, mapped.image, mapped.bytes));
	CHECK(!memcmp(host.base, host.image, host.bytes));
	free_area(&mapped);
	free_area(&host);
}

/* ---- the pieces that a store is made of ---------------------------------------------------- */

struct piece {
	size_t at, bytes;
};

static struct piece seen[4096];
static size_t seen_count;
static unsigned char *seen_mapped;
static const unsigned char *seen_host;
static bool seen_skew;

static void see(const unsigned char *m, const unsigned char *h, size_t bytes)
{
	seen_skew |= m - seen_mapped != h - seen_host;
	if (seen_count < sizeof(seen) / sizeof(seen[0]))
		seen[seen_count++] = (struct piece){ (size_t)(m - seen_mapped), bytes };
}

/* The template that all stores are made of, with pieces that are only noted down. */
#define BW_TARGET
#define BW_FN plan
#define BW_P1(m, h) see(m, h, 1)
#define BW_P2(m, h) see(m, h, 2)
#define BW_P4(m, h) see(m, h, 4)
#define BW_P8(m, h) see(m, h, 8)
#define BW_P16(m, h) see(m, h, 16)
#define BW_P32(m, h) see(m, h, 32)
#define BW_P64(m, h) see(m, h, 64)
#include "mmio/by_pieces.h"

/* The largest power of two that divides the address, fits in the rest and is at most a line. */
static size_t largest_piece(uintptr_t address, size_t rest)
{
	size_t b = 64;

	while (address % b || b > rest)
		b /= 2;
	return b;
}

/* What was seen is what the contract says of @n bytes to @mapped, for pieces of at most unit(b). */
static void check_pieces(const char *name, const unsigned char *mapped, size_t n,
			 size_t (*unit)(uint32_t isa, size_t b), uint32_t isa)
{
	size_t at = 0, i = 0;

	while (at < n) {
		size_t b = largest_piece((uintptr_t)mapped + at, n - at), u = unit(isa, b);

		for (size_t end = at + b; at < end; at += u, i++) {
			if (i >= seen_count)
				FAIL("%s: %zu bytes to %p: ends after %zu", name, n, (void *)mapped,
				     at);
			if (seen[i].at != at || seen[i].bytes != u)
				FAIL("%s: %zu bytes to %p: piece %zu is %zu bytes at %zu, "
				     "expected %zu at %zu", name, n, (void *)mapped, i,
				     seen[i].bytes, seen[i].at, u, at);
		}
	}
	if (i != seen_count)
		FAIL("%s: %zu bytes to %p: stores more than once or outside", name, n,
		     (void *)mapped);
}

static size_t any_unit(uint32_t isa, size_t b)
{
	(void)isa;
	return b;
}

static void plan_of_pieces(void)
{
	static unsigned char mapped[8192] __attribute__((aligned(64))), host[8192];

	for (size_t off = 0; off < 64; off++)
		for (size_t n = 0; n < 2600; n++) {
			seen_count = 0;
			seen_skew = false;
			seen_mapped = mapped + off;
			seen_host = host + 3;
			plan(seen_mapped, seen_host, n);
			CHECK(!seen_skew);
			check_pieces("plan", seen_mapped, n, any_unit, 0);
			if ((n == 1 || n == 2 || n == 4 || n == 8) && off % n == 0)
				CHECK_EQ(seen_count, 1);
		}
}

/*
 * The same of the machine code: with the trap flag set the CPU stops after each instruction, and
 * what has changed in memory by then is what that one stored. It is changed back at once, so that
 * a second store of the same byte shows too.
 */
#if defined(__x86_64__)

static unsigned char *step_from;
static const unsigned char *step_was;
static size_t step_span;
static volatile long steps;
static volatile bool step_gap;

static void on_step(int sig)
{
	size_t first = 0, end = step_span;

	(void)sig;
	steps++;
	if (!memcmp(step_from, step_was, step_span))
		return;
	while (step_from[first] == step_was[first])
		first++;
	while (step_from[end - 1] == step_was[end - 1])
		end--;
	for (size_t i = first; i < end; i++) {
		step_gap |= step_from[i] == step_was[i];
		step_from[i] = step_was[i];
	}
	see(step_from + first, step_from + first, end - first);
}

/* The stack below the pointer may be in use (the red zone of the ABI): step over it. */
#define TRAP_FLAG(change) \
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" change ", (%%rsp)\n\tpopfq\n\t" \
			 "lea 128(%%rsp), %%rsp" ::: "memory", "cc")

static size_t isa_unit(uint32_t isa, size_t b)
{
	size_t most = isa == BW_ISA_C ? 8 : isa == BW_ISA_SSE2 ? 16 : isa == BW_ISA_AVX2 ? 32 : 64;

	if (isa == BW_ISA_MOVDIR64B && b < 64)
		most = 16;
	return b < most ? b : most;
}

static void step_kernel(const struct bw_mmio_kernel *k)
{
	/* Each instruction is a signal, which some virtual machines make dear: not all of them. */
	static const size_t offs[] = { 0, 1, 2, 3, 4, 6, 8, 16, 20, 31, 32, 48, 63 };
	static const size_t sizes[] = { 0, 1, 2, 3, 4, 5, 8, 9, 12, 15, 16, 31, 32, 48, 63, 64,
					65, 100, 128, 191 };
	static unsigned char mapped[384] __attribute__((aligned(64))), was[384], host[384];

	test_fill(was, sizeof(was), 6);
	memcpy(mapped, was, sizeof(was));
	step_from = mapped, step_was = was, step_span = sizeof(mapped);
	for (size_t o = 0; o < sizeof(offs) / sizeof(offs[0]); o++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			unsigned char *m = mapped + 64 + offs[o];
			size_t n = sizes[s];

			for (size_t i = 0; i < n; i++)
				host[5 + i] = (unsigned char)~m[i];
			seen_count = 0;
			seen_skew = step_gap = false;
			seen_mapped = m, seen_host = m;
			TRAP_FLAG("orl $0x100");
			run_store(k, m, host + 5, n);
			TRAP_FLAG("andl $~0x100");
			if (step_gap)
				FAIL("%s: %zu bytes to %p: a store with gaps", k->name, n,
				     (void *)m);
			check_pieces(k->name, m, n, isa_unit, k->isa);
		}
}

static void step(uint32_t isa)
{
	struct sigaction act = { .sa_handler = on_step }, old;

	need(isa);
	if (SANITIZED)
		SKIP("it would step through the sanitizer");
	CHECK(!sigaction(SIGTRAP, &act, &old));
	steps = 0;
	TRAP_FLAG("orl $0x100");
	TRAP_FLAG("andl $~0x100");
	if (!steps) {
		sigaction(SIGTRAP, &old, NULL);
		SKIP("the trap flag of the CPU does not work here (emulator or debugger?)");
	}
	FOR_KERNELS(k, isa)
		if (k->store)
			step_kernel(k);
	sigaction(SIGTRAP, &old, NULL);
}

#endif

/* ---- against other threads ----------------------------------------------------------------- */

static struct {
	unsigned char mem[4096] __attribute__((aligned(64)));
	atomic_bool stop;
	atomic_uint ready, done;
	atomic_long torn;
	size_t bytes;
	const struct bw_mmio_kernel *kernel;
} shared;

static void start(pthread_t *t, void *(*run)(void *))
{
	atomic_store(&shared.stop, false);
	atomic_store(&shared.ready, 0);
	atomic_store(&shared.done, 0);
	atomic_store(&shared.torn, 0);
	CHECK(!pthread_create(t, NULL, run, NULL));
	while (!atomic_load(&shared.ready))
		sched_yield();
}

static void stop(pthread_t t)
{
	atomic_store(&shared.stop, true);
	CHECK(!pthread_join(t, NULL));
}

static bool before(const struct timespec *from, long ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec - from->tv_sec) * 1000 + (t.tv_nsec - from->tv_nsec) / 1000000 < ms;
}

static uint64_t word_get(size_t bytes)
{
	void *p = shared.mem;

	switch (bytes) {
	case 8: return __atomic_load_n((uint64_t *)p, __ATOMIC_RELAXED);
	case 4: return __atomic_load_n((uint32_t *)p, __ATOMIC_RELAXED);
	case 2: return __atomic_load_n((uint16_t *)p, __ATOMIC_RELAXED);
	default: return __atomic_load_n((uint8_t *)p, __ATOMIC_RELAXED);
	}
}

static void word_put(size_t bytes, uint64_t v)
{
	void *p = shared.mem;

	switch (bytes) {
	case 8: __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELAXED); break;
	case 4: __atomic_store_n((uint32_t *)p, (uint32_t)v, __ATOMIC_RELAXED); break;
	case 2: __atomic_store_n((uint16_t *)p, (uint16_t)v, __ATOMIC_RELAXED); break;
	default: __atomic_store_n((uint8_t *)p, (uint8_t)v, __ATOMIC_RELAXED); break;
	}
}

static bool is_torn(size_t bytes, uint64_t v)
{
	return v && v != UINT64_MAX >> (64 - 8 * bytes);
}

static void *word_reader(void *arg)
{
	atomic_store(&shared.ready, 1);
	while (!atomic_load_explicit(&shared.stop, memory_order_relaxed))
		for (int i = 0; i < 64; i++)
			if (is_torn(shared.bytes, word_get(shared.bytes)))
				atomic_fetch_add(&shared.torn, 1);
	return arg;
}

static void *word_writer(void *arg)
{
	atomic_store(&shared.ready, 1);
	while (!atomic_load_explicit(&shared.stop, memory_order_relaxed))
		for (int i = 0; i < 64; i++)
			word_put(shared.bytes, i & 1 ? UINT64_MAX : 0);
	return arg;
}

/* All bytes of a word are equal at all times; who sees two that differ has seen half a store. */
static void words_do_not_tear(void)
{
	pthread_t t;

	FOR_KERNELS(k, bw_mmio_cpu_isa())
		for (size_t bytes = 1; bytes <= 8; bytes *= 2)
			for (int store = 0; store < 2; store++) {
				struct timespec from;
				long torn = 0;

				if (store ? !k->store : !k->load)
					continue;
				shared.bytes = bytes;
				word_put(8, 0);
				clock_gettime(CLOCK_MONOTONIC, &from);
				start(&t, store ? word_reader : word_writer);
				for (uint64_t i = 0; i % 256 || before(&from, 10); i++) {
					uint64_t v = i & 1 ? UINT64_MAX : 0;

					if (store) {
						run_store(k, shared.mem, &v, bytes);
					} else {
						v = 0;
						run_load(k, &v, shared.mem, bytes);
						torn += is_torn(bytes, v);
					}
				}
				stop(t);
				torn += atomic_load(&shared.torn);
				if (torn)
					FAIL("%s (%s): %s of %zu bytes: %ld torn", k->name,
					     caching_name(k), now.what, bytes, torn);
			}
}

/* Plain stores around [128 + 7, 128 + 7 + bytes) of the memory, and to the middle of what a load
 * wants too: a load reads whole lines, and ThreadSanitizer is to take that for what it is. */
static void *neighbour(void *arg)
{
	volatile unsigned char *p = shared.mem;
	size_t end = 128 + 7 + shared.bytes;
	unsigned char i = 0;

	atomic_store(&shared.ready, 1);
	while (!atomic_load_explicit(&shared.stop, memory_order_relaxed) || i) {
		p[128 + 6] = p[128] = p[end] = p[end + 9] = i;
		if (arg)
			p[128 + 7 + shared.bytes / 2] = i;
		i++;
	}
	return arg;
}

static void start_neighbour(pthread_t *t, bool also_inside)
{
	atomic_store(&shared.stop, false);
	atomic_store(&shared.ready, 0);
	CHECK(!pthread_create(t, NULL, neighbour, also_inside ? &shared : NULL));
	while (!atomic_load(&shared.ready))
		sched_yield();
}

static void neighbours_stay(void)
{
	static const size_t sizes[] = { 1, 3, 8, 30, 57, 64, 200, 1024 };
	unsigned char host[1024], back[1024];
	pthread_t t;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		FOR_KERNELS(k, bw_mmio_cpu_isa()) {
			size_t n = sizes[s], middle = n / 2;
			unsigned char *m = shared.mem + 128 + 7;

			shared.bytes = n;
			test_fill(shared.mem, sizeof(shared.mem), 7 + n);
			test_fill(host, n, 8 + n);
			if (k->load) {
				memcpy(host, m, n);
				start_neighbour(&t, true);
				for (int i = 0; i < 1000; i++) {
					run_load(k, back, m, n);
					back[middle] = host[middle];
					if (memcmp(back, host, n))
						break;
				}
				stop(t);
				CHECK(!memcmp(back, host, n));
			}
			if (k->store) {
				test_fill(host, n, 9 + n);
				start_neighbour(&t, false);
				for (int i = 0; i < 1000; i++)
					run_store(k, m, host, n);
				bw_fence_mixed();
				stop(t);
				CHECK(!memcmp(m, host, n));
				CHECK(m[-1] == 255 && m[-7] == 255);
				CHECK(m[n] == 255 && m[n + 9] == 255);
			}
		}
}

/* ---- fences -------------------------------------------------------------------------------- */

#define ROUNDS 2000
#define RECORD 1000

static void *subscriber(void *arg)
{
	const struct bw_mmio_kernel *k = shared.kernel;
	unsigned char got[RECORD];

	atomic_store(&shared.ready, 1);
	for (unsigned int round = 1; round <= ROUNDS; round++) {
		while (atomic_load_explicit(&shared.done, memory_order_relaxed) != round)
			sched_yield();
		bw_fence_read();
		k->load(got, shared.mem + 5, sizeof(got));
		for (size_t i = 0; i < sizeof(got); i++)
			if (got[i] != (unsigned char)(round + i))
				atomic_fetch_add(&shared.torn, 1);
		bw_fence_mixed();
		atomic_store_explicit(&shared.ready, round + 1, memory_order_relaxed);
	}
	return arg;
}

/* What was stored before the fence is there for who sees a flag stored after it. */
static void fences_order(void)
{
	unsigned char record[RECORD];
	pthread_t t;

	FOR_KERNELS(k, bw_mmio_cpu_isa()) {
		if (!k->store || !k->load)
			continue;
		shared.kernel = k;
		start(&t, subscriber);
		for (unsigned int round = 1; round <= ROUNDS; round++) {
			for (size_t i = 0; i < sizeof(record); i++)
				record[i] = (unsigned char)(round + i);
			k->store(shared.mem + 5, record, sizeof(record));
			bw_fence_publish();
			atomic_store_explicit(&shared.done, round, memory_order_relaxed);
			while (atomic_load_explicit(&shared.ready, memory_order_relaxed) <= round)
				sched_yield();
			bw_fence_mixed();
		}
		stop(t);
		CHECK_EQ(atomic_load(&shared.torn), 0);
	}
}

/* ---- the list, the mask, the choice -------------------------------------------------------- */

static void list_is_sound(void)
{
	const char *bad;
	uint32_t mask;
	size_t n;
	int c = 0;

	for (int i = 0; bw_mmio_kernels[i]; i++) {
		const struct bw_mmio_kernel *k = bw_mmio_kernels[i];

		CHECK(k->isa && !(k->isa & (k->isa - 1)));
		CHECK(bw_mmio_parse_isa(k->name, &mask, &bad, &n));
		CHECK_EQ(mask, k->isa);
		CHECK(k->caching);
		CHECK(!(k->caching & ~(1u << BW_WC | 1u << BW_CACHED | 1u << BW_UNCACHED)));
		CHECK(k->store || k->load);
		CHECK(!k->store == !k->store_score && !k->load == !k->load_score);
		for (int j = 0; j < i; j++) {
			const struct bw_mmio_kernel *o = bw_mmio_kernels[j];

			CHECK(!(o->isa == k->isa && (o->caching & k->caching)));
		}
		c += k->isa == BW_ISA_C;
	}
	CHECK_EQ(c, 1);
}

static void cpu_is_known(void)
{
	uint32_t isa = bw_mmio_cpu_isa();

	CHECK(isa & BW_ISA_C);
#if defined(__x86_64__)
	CHECK(isa & BW_ISA_SSE2);
	CHECK_EQ(!!(isa & BW_ISA_SSE41), !!__builtin_cpu_supports("sse4.1"));
	CHECK_EQ(!!(isa & BW_ISA_AVX2), !!__builtin_cpu_supports("avx2"));
	CHECK_EQ(!!(isa & BW_ISA_AVX512), !!__builtin_cpu_supports("avx512f"));
	CHECK(!(isa & BW_ISA_NEON));
#elif defined(__aarch64__)
	CHECK_EQ(isa, BW_ISA_C | BW_ISA_NEON);
#else
	CHECK_EQ(isa, BW_ISA_C);
#endif
}

static void words_of_the_mask(void)
{
	static const struct {
		const char *list;
		uint32_t mask;
	} good[] = {
		{ "c", BW_ISA_C },
		{ "avx2,sse2", BW_ISA_AVX2 | BW_ISA_SSE2 },
		{ "sse41,sse41", BW_ISA_SSE41 },
		{ "avx512,movdir64b,neon", BW_ISA_AVX512 | BW_ISA_MOVDIR64B | BW_ISA_NEON },
		{ " c , avx2,,", BW_ISA_C | BW_ISA_AVX2 },
		{ ",c", BW_ISA_C },
	};
	static const struct {
		const char *list;
		size_t bad, n;
	} wrong[] = {
		{ "", 0, 0 }, { ", ", 2, 0 }, { "avx", 0, 3 }, { "avx22", 0, 5 }, { "AVX2", 0, 4 },
		{ "c,avx3,sse2", 2, 4 }, { "c, avx 2 ,c", 3, 5 }, { "all,none", 4, 4 },
	};
	const char *bad = NULL;
	size_t n;
	uint32_t mask;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CHECK(bw_mmio_parse_isa(good[i].list, &mask, &bad, &n));
		CHECK_EQ(mask, good[i].mask);
	}
	CHECK(bw_mmio_parse_isa("c,all", &mask, &bad, &n));
	CHECK_EQ(mask & bw_mmio_cpu_isa(), bw_mmio_cpu_isa());
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		mask = 12345;
		CHECK(!bw_mmio_parse_isa(wrong[i].list, &mask, &bad, &n));
		CHECK_EQ(bad - wrong[i].list, wrong[i].bad);
		CHECK_EQ(n, wrong[i].n);
		CHECK_EQ(mask, 12345);
	}
}

static void best_is_chosen(void)
{
	for (enum bw_caching caching = BW_WC; caching <= BW_UNCACHED; caching++)
		for (uint32_t isa = 0; isa < 2 * BW_ISA_NEON; isa++) {
			struct bw_mmio_choice got = bw_mmio_choose(caching, isa);

			CHECK(got.store && got.store->store && got.load && got.load->load);
			CHECK(got.store->isa & (isa | BW_ISA_C));
			CHECK(got.load->isa & (isa | BW_ISA_C));
			CHECK(got.store->caching & got.load->caching & 1u << caching);
			FOR_KERNELS(k, isa | BW_ISA_C) {
				if (!(k->caching & 1u << caching))
					continue;
				CHECK(!k->store || k->store_score <= got.store->store_score);
				CHECK(!k->load || k->load_score <= got.load->load_score);
			}
		}
}

static void expect(enum bw_caching caching, uint32_t isa, const char *store, const char *load)
{
	struct bw_mmio_choice got = bw_mmio_choose(caching, isa);

	CHECK_STR(got.store->name, store);
	CHECK_STR(got.load->name, load);
}

static void choices(void)
{
	expect(BW_WC, 0, "c", "c");
	expect(BW_CACHED, 0, "c", "c");
	expect(BW_UNCACHED, BW_ISA_C, "c", "c");
#if defined(__x86_64__)
	expect(BW_WC, ~0u, "avx512", "avx512");
	expect(BW_UNCACHED, ~0u, "avx512", "avx512");
	expect(BW_CACHED, ~0u, "avx512", "avx512");
	expect(BW_WC, ~BW_ISA_AVX512, "avx2", "avx2");
	expect(BW_WC, BW_ISA_SSE2 | BW_ISA_SSE41 | BW_ISA_MOVDIR64B, "movdir64b", "sse41");
	expect(BW_WC, BW_ISA_SSE2 | BW_ISA_SSE41, "sse2", "sse41");
	expect(BW_CACHED, BW_ISA_SSE2 | BW_ISA_SSE41, "sse2", "sse2");
	expect(BW_CACHED, BW_ISA_SSE41 | BW_ISA_MOVDIR64B, "c", "c");
#elif defined(__aarch64__)
	expect(BW_WC, ~0u, "neon", "neon");
	expect(BW_CACHED, ~0u, "neon", "neon");
#endif
}

/* No CPU has all sets, since the list has those of several architectures. */
static void only_what_the_cpu_has_is_allowed(void)
{
	bw_mmio_allow(~0u);
	CHECK_EQ(bw_mmio_allowed(), bw_mmio_cpu_isa());
	bw_mmio_allow(BW_ISA_C);
	CHECK_EQ(bw_mmio_allowed(), BW_ISA_C);
	bw_mmio_allow(~0u);
}

#define ISA_CASES(name, isa) \
	static void store_##name(void) { sweep(isa, true); } \
	static void load_##name(void) { sweep(isa, false); }

ISA_CASES(c, BW_ISA_C)
#if defined(__x86_64__)
ISA_CASES(sse2, BW_ISA_SSE2)
ISA_CASES(avx2, BW_ISA_AVX2)
ISA_CASES(avx512, BW_ISA_AVX512)
static void load_sse41(void) { sweep(BW_ISA_SSE41, false); }
static void store_movdir64b(void) { sweep(BW_ISA_MOVDIR64B, true); }

static void pieces_c(void) { step(BW_ISA_C); }
static void pieces_sse2(void) { step(BW_ISA_SSE2); }
static void pieces_avx2(void) { step(BW_ISA_AVX2); }
static void pieces_avx512(void) { step(BW_ISA_AVX512); }
static void pieces_movdir64b(void) { step(BW_ISA_MOVDIR64B); }
#define SWEPT (BW_ISA_C | BW_ISA_SSE2 | BW_ISA_SSE41 | BW_ISA_AVX2 | BW_ISA_AVX512 | \
	       BW_ISA_MOVDIR64B)
#elif defined(__aarch64__)
ISA_CASES(neon, BW_ISA_NEON)
#define SWEPT (BW_ISA_C | BW_ISA_NEON)
#else
#define SWEPT BW_ISA_C
#endif

/* Who adds a kernel to the list gets it tested, or this fails. */
static void every_kernel_is_swept(void)
{
	for (int i = 0; bw_mmio_kernels[i]; i++)
		CHECK(bw_mmio_kernels[i]->isa & SWEPT);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(list_is_sound), TEST(cpu_is_known), TEST(words_of_the_mask),
		TEST(best_is_chosen), TEST(choices), TEST(every_kernel_is_swept),
		TEST(only_what_the_cpu_has_is_allowed),
		TEST(store_c), TEST(load_c),
#if defined(__x86_64__)
		TEST(store_sse2), TEST(load_sse2), TEST(load_sse41), TEST(store_avx2),
		TEST(load_avx2), TEST(store_avx512), TEST(load_avx512), TEST(store_movdir64b),
		TEST(pieces_c), TEST(pieces_sse2), TEST(pieces_avx2), TEST(pieces_avx512),
		TEST(pieces_movdir64b),
#elif defined(__aarch64__)
		TEST(store_neon), TEST(load_neon),
#endif
		TEST(plan_of_pieces), TEST(long_copies), TEST(words_do_not_tear),
		TEST(neighbours_stay), TEST(fences_order), { 0 }
	};
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &act, NULL);
	sigaction(SIGBUS, &act, NULL);
	return test_main(argc, argv, cases);
}
