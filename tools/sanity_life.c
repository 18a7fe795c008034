/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of barway sanity: what outlives what; threads, leaks. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sanity.h"

#define MIB (1024u * 1024u)

/* ---- freed under a mapping --------------------------------------------------------------- */

#define OTHERS 16u
#define MINE 0x3c
#define THEIRS 0x5a

static bool all_are(const unsigned char *p, size_t bytes, unsigned char value)
{
	for (size_t i = 0; i < bytes; i++) {
		if (p[i] != value)
			return false;
	}
	return true;
}

/* Looks and stores through the pointer of a mapping whose memory others may have now. */
static void poke(volatile unsigned char *p, size_t bytes, bool keeps_alive)
{
	for (size_t at = 0; at < bytes; at += 4096 - 1) {
		bool gone = sanity_faults(p + at, false);

		CHECK(gone || keeps_alive, "memory was freed under a mapping that is to be revoked "
		      "then, and its pages still answer");
		CHECK(gone || p[at] == MINE, "through a mapping whose memory was freed there is "
		      "0x%02x at +%zu: that is somebody else's", p[at], at);
		CHECK(!gone || !keeps_alive, "memory that was freed under a mapping is to stay "
		      "alive, and a load faults");
		if (!gone)
			p[at] = MINE;
	}
	barway_fence_mixed();
}

static void freed_of(struct sanity *s, enum bench_memory_kind kind, size_t bytes)
{
	struct barway_mapping_info i = { .size = sizeof(i) };
	unsigned char *data = sanity_host(bytes);
	struct bench_memory mem, other[OTHERS];
	struct barway_mapping *m;

	sanity_alloc(s, kind, bytes, &mem);
	OK(barway_map(s->ctx, mem.addr, bytes, NULL, &m));
	OK(barway_mapping_query(m, &i));
	memset(data, MINE, bytes);
	OK(barway_copy_to(m, 0, data, bytes));
	OK(barway_flush(m));
	sanity_free(s, &mem);
	memset(data, THEIRS, bytes);
	for (unsigned k = 0; k < OTHERS; k++) { /* they take what is free */
		sanity_alloc(s, kind, bytes, &other[k]);
		GPU_OK(bench_gpu_write(s->gpu, other[k].addr, data, bytes));
	}
	poke(i.ptr, bytes, i.keeps_alive);
	for (unsigned k = 0; k < OTHERS; k++) {
		GPU_OK(bench_gpu_read(s->gpu, data, other[k].addr, bytes));
		CHECK(all_are(data, bytes, THEIRS), "a store through a mapping whose memory was "
		      "freed reached somebody else's memory");
		sanity_free(s, &other[k]);
	}
	OK(barway_unmap(m));
	free(data);
}

/* An address that is given out again is other memory: what the cache kept is not used for it. */
static void reused(struct sanity *s, unsigned rounds)
{
	struct bench_memory mem;
	struct barway_mapping *m;
	uint64_t last;

	while (rounds--) {
		sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
		sanity_prove(s, mem.addr + 3, 70000, mem.addr, MIB);
		last = mem.addr;
		sanity_free(s, &mem);
		REFUSED(barway_map(s->ctx, last, 65536, NULL, &m), EFAULT);
	}
}

static void freed(struct sanity *s)
{
	sanity_open(s);
	freed_of(s, BENCH_MEMORY_BARWAY, MIB);
	reused(s, s->target.quick ? 3 : 30);
	sanity_close(s);
}

static void freed_device(struct sanity *s)
{
	sanity_open(s);
	freed_of(s, BENCH_MEMORY_DEVICE, 4 * MIB);
	sanity_close(s);
}

static void freed_vmm(struct sanity *s)
{
	sanity_open(s);
	freed_of(s, BENCH_MEMORY_VMM, 4 * MIB);
	sanity_close(s);
}

/* ---- closed with mappings ---------------------------------------------------------------- */

/* Closes a context with mappings; @other: one that stays open, and may keep them in the cache. */
static void close_beside(struct sanity *s, struct barway_context *other)
{
	struct barway_map_options anew = { .size = sizeof(anew), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping *m[3];
	volatile unsigned char *p[3];
	struct bench_memory mem;
	unsigned char byte = 1;

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	OK(barway_map(s->ctx, mem.addr, MIB, NULL, &m[0]));
	OK(barway_map(s->ctx, mem.addr + 100, 5000, NULL, &m[1]));
	OK(barway_map(s->ctx, mem.addr, 65536, &anew, &m[2]));
	for (int i = 0; i < 3; i++) {
		p[i] = barway_mapping_ptr(m[i]);
		p[i][0] = 1;
	}
	sanity_close(s);
	if (other)
		OK(barway_cache_flush(other));
	for (int i = 0; i < 3; i++) {
		CHECK(sanity_faults(p[i], false) && sanity_faults(p[i], true),
		      "the pointer of a mapping still works after its context was closed");
		REFUSED(barway_copy_to(m[i], 0, &byte, 1), ESTALE);
		REFUSED(barway_unmap(m[i]), ESTALE);
	}
	sanity_open(s); /* all begins anew */
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	sanity_prove(s, mem.addr, MIB, mem.addr, MIB);
	sanity_free(s, &mem);
	sanity_close(s);
}

static void close_live(struct sanity *s)
{
	struct barway_context *other;

	close_beside(s, NULL);
	OK(barway_open(NULL, &other));
	close_beside(s, other);
	OK(barway_close(other));
}

/* ---- threads ----------------------------------------------------------------------------- */

#define THREADS 8u
#define PIECE 40000u /* they share pages */
#define MOST 3000u

struct worker {
	struct sanity *s;
	pthread_t thread;
	uint64_t addr, random;
	unsigned rounds;
	struct barway_mapping *shared;
	size_t at; /* its place in the shared mapping */
};

static uint64_t next_random(struct worker *w)
{
	struct sanity mine = { .random = w->random };
	uint64_t r = sanity_random(&mine);

	w->random = mine.random;
	return r;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned char a[MOST], b[MOST];

	for (unsigned i = 0; i < w->rounds; i++) {
		size_t off = next_random(w) % (PIECE - MOST), n = 1 + next_random(w) % MOST;
		struct barway_map_options o = {
			.size = sizeof(o), .flags = i % 8 ? 0 : BARWAY_MAP_UNCACHED,
		};
		struct barway_mapping *m;

		memset(a, (int)next_random(w), n);
		OK(barway_map(w->s->ctx, w->addr + off, n, &o, &m));
		OK(barway_copy_to(m, 0, a, n));
		OK(barway_copy_from(w->shared, b, w->at + off, n));
		CHECK(!memcmp(a, b, n), "round %u: a thread does not see what it wrote", i);
		OK(barway_unmap(m));
	}
	return NULL;
}

static void threads(struct sanity *s)
{
	struct worker w[THREADS];
	struct barway_mapping *shared;
	struct bench_memory mem;
	int err;

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, THREADS * PIECE, &mem);
	OK(barway_map(s->ctx, mem.addr, THREADS * PIECE, NULL, &shared));
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){
			.s = s, .addr = mem.addr + i * PIECE, .random = i + 1, .rounds = 1000,
			.shared = shared, .at = i * PIECE,
		};
		err = pthread_create(&w[i].thread, NULL, work, &w[i]);
		CHECK(!err, "start a thread: %s", strerror(err));
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	OK(barway_unmap(shared));
	sanity_free(s, &mem);
	sanity_close(s);
}

/* ---- leaks ------------------------------------------------------------------------------- */

#define CYCLES 300u
#define LEAK_TRIES 3u /* other programs use the device's memory and aperture, too */

static void check_counters(struct sanity *s)
{
	struct barway_counters c = { .size = sizeof(c) };

	OK(barway_counters_get(s->ctx, &c));
	CHECK(!c.live_mappings && !c.live_bytes && !c.cache_bytes &&
	      c.driver_maps == c.driver_unmaps,
	      "with nothing mapped there are %llu mappings, %llu bytes of them, %llu bytes in the "
	      "cache, and %llu windows of %llu were not undone",
	      (unsigned long long)c.live_mappings, (unsigned long long)c.live_bytes,
	      (unsigned long long)c.cache_bytes,
	      (unsigned long long)(c.driver_maps - c.driver_unmaps),
	      (unsigned long long)c.driver_maps);
}

static void cycles(struct sanity *s, unsigned n)
{
	struct barway_map_options anew = { .size = sizeof(anew), .flags = BARWAY_MAP_UNCACHED };
	struct bench_memory mem;
	struct barway_mapping *m;
	char byte = 1;

	for (unsigned i = 0; i < n; i++) {
		sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
		OK(barway_map(s->ctx, mem.addr + i, MIB - i, i % 2 ? &anew : NULL, &m));
		OK(barway_copy_to(m, i, &byte, 1));
		OK(barway_unmap(m));
		sanity_free(s, &mem);
	}
	OK(barway_cache_flush(s->ctx));
	check_counters(s);
}

/* A leak of one page in each cycle would show. */
static uint64_t lost(uint64_t before, uint64_t after)
{
	return before == UINT64_MAX || after >= before ? 0 : before - after;
}

/* What is held after @n rounds is what was held before; a context is open. */
static void hold_no_more(struct sanity *s, void (*round)(struct sanity *s, unsigned n), unsigned n,
			 const char *what)
{
	struct sanity_held before, after;
	uint64_t bar1 = 0, memory = 0;

	for (unsigned try = 0; try < LEAK_TRIES; try++) {
		sanity_held(s, &before);
		round(s, n);
		sanity_held(s, &after);
		CHECK(after.files == before.files, "after %u %s %d files more are open", n, what,
		      (int)after.files - (int)before.files);
		bar1 = lost(before.bar1_free, after.bar1_free);
		memory = lost(before.memory_free, after.memory_free);
		if (bar1 < n * 4096 && memory < n * 4096)
			break;
	}
	CHECK(bar1 < n * 4096, "after %u %s %llu bytes of the BAR1 aperture did not come back, %u "
	      "times in a row", n, what, (unsigned long long)bar1, LEAK_TRIES);
	CHECK(memory < n * 4096, "after %u %s %llu bytes of GPU memory did not come back, %u times "
	      "in a row", n, what, (unsigned long long)memory, LEAK_TRIES);
}

static void leaks(struct sanity *s)
{
	sanity_open(s);
	cycles(s, 20);
	hold_no_more(s, cycles, CYCLES, "cycles");
	sanity_close(s);
}

/* One after the other; half of them leave a mapping to barway_close(). */
static void contexts(struct sanity *s, unsigned n)
{
	struct barway_mapping *m;
	struct bench_memory mem;

	for (unsigned i = 0; i < n; i++) {
		sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
		OK(barway_map(s->ctx, mem.addr, 65536, NULL, &m));
		if (i % 2)
			OK(barway_unmap(m));
		sanity_free(s, &mem);
		sanity_close(s);
		sanity_open(s);
	}
}

static void leaks_contexts(struct sanity *s)
{
	sanity_open(s);
	contexts(s, 6);
	hold_no_more(s, contexts, 24, "contexts");
	sanity_close(s);
}

const struct sanity_case sanity_life[] = {
	{ "freed", "memory freed under a mapping: nobody else's data is seen", true, freed },
	{ "freed_device", "the same of cuMemAlloc()", true, freed_device },
	{ "freed_vmm", "the same of cuMemCreate()", true, freed_vmm },
	{ "close_live", "a context closed with mappings", false, close_live },
	{ "threads", "threads that map and copy on shared pages", false, threads },
	{ "leaks", "memory, files and BAR1 come back", false, leaks },
	{ "leaks_contexts", "the same of contexts", false, leaks_contexts },
	{ 0 },
};
