/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/selftest: a provider proves itself before it carries a byte of the user's. Scratch memory is
 * written by the copy engine and read by the CPU; only when every byte is right the CPU writes and
 * the copy engine reads, so that a mapping of the wrong memory is never written. Two small blocks
 * that share a page of the driver's must not be the same; a large one is checked at both ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/counters.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "map/map.h"
#include "mmio/fence.h"

#define SMALL 4096u
#define LARGE (2u << 20)
#define PROBE 4096u /* bytes compared at each end */

struct verdict {
	struct verdict *next;
	const struct bw_map_provider *provider;
	struct bw_device *dev;
	bool passed;
	struct bw_reason why;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verdict *_Atomic verdicts; /* grows at the head; read without the lock */

static void forget_in_child(void)
{
	verdicts = NULL;
}

__attribute__((constructor(BW_FORK_SELF_TEST))) static void register_fork(void)
{
	bw_fork_lock(&lock);
	bw_fork_forget(forget_in_child);
}

static const struct verdict *verdict_of(const struct bw_map_provider *p,
					const struct bw_device *dev)
{
	for (const struct verdict *v = verdicts; v; v = v->next)
		if (v->provider == p && v->dev == dev)
			return v;
	return NULL;
}

void bw_self_test_forget(void)
{
	struct verdict *v;

	pthread_mutex_lock(&lock);
	v = verdicts;
	verdicts = NULL;
	pthread_mutex_unlock(&lock);
	for (struct verdict *next; v; v = next) {
		next = v->next;
		free(v);
	}
}

/* ---- one block ------------------------------------------------------------------------------- */

struct block {
	const struct bw_map_provider *provider;
	struct bw_device *dev;
	void *owner;
	uint64_t addr;
	size_t bytes;
	unsigned char *cpu, *map; /* of the block's first byte; of the reservation */
	size_t map_bytes;
	struct bw_piece piece;
	struct bw_mmio_choice kernels;
	unsigned char *want, *got; /* of @bytes each */
	bool own; /* of memory that barway_mem_alloc() would give, not of what programs use most */
	bool refused, wrong; /* the provider's map() failed; the bytes were wrong */
};

static void fill(unsigned char *p, size_t n)
{
	static _Atomic uint64_t calls;
	struct timespec t;
	uint64_t x;

	clock_gettime(CLOCK_MONOTONIC, &t);
	x = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15ull + ++calls * 0xd1342543de82ef95ull + 1;
	for (; n >= sizeof(x); n -= sizeof(x), p += sizeof(x)) { /* n is a multiple of 8 */
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(p, &x, sizeof(x));
	}
}

static int block_open(struct block *b)
{
	uint64_t lo, hi;
	enum bw_caching caching = BW_WC;
	void *at;
	int ret;

	b->want = bw_alloc(b->bytes);
	b->got = bw_alloc(b->bytes);
	if (!b->want || !b->got)
		return bw_err(ENOMEM, "no memory");
	ret = b->own ? b->dev->ops->mem_alloc(b->dev, b->bytes, &b->addr) :
		       b->dev->ops->scratch_alloc(b->dev, b->owner, b->bytes, &b->addr);
	if (ret)
		return ret;
	ret = b->dev->ops->resolve(b->addr, &b->piece.seg);
	if (ret)
		return bw_err(EIO, "scratch memory is not known to the device that gave it");
	lo = b->addr & ~(BW_PAGE - 1);
	hi = (b->addr + b->bytes + BW_PAGE - 1) & ~(BW_PAGE - 1);
	b->piece.addr = lo;
	b->piece.bytes = hi - lo;
	ret = bw_mmap(&at, NULL, b->piece.bytes, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ret)
		return bw_err(ENOMEM, "reserve address space: %s", strerror(-ret));
	b->map = at;
	b->map_bytes = b->piece.bytes;
	ret = b->provider->map(&b->piece, at, &caching);
	b->refused = ret != 0;
	if (ret)
		return ret;
	madvise(at, b->map_bytes, MADV_DONTFORK);
	b->cpu = b->map + (b->addr - lo);
	b->kernels = bw_map_kernels(b->provider, caching);
	return 0;
}

static void block_close(struct block *b)
{
	if (b->map)
		munmap(b->map, b->map_bytes);
	if (b->cpu)
		b->provider->unmap(&b->piece);
	if (b->addr && b->own)
		b->dev->ops->mem_free(b->addr);
	else if (b->addr)
		b->dev->ops->scratch_free(b->dev, b->owner, b->addr);
	free(b->want);
	free(b->got);
}

static size_t probe_bytes(const struct block *b)
{
	return b->bytes < PROBE ? b->bytes : PROBE;
}

/* The GPU's bytes as the CPU sees them, at both ends. */
static int cpu_sees(struct block *b, const char *when)
{
	size_t n = probe_bytes(b), last = b->bytes - n;

	bw_fence_read();
	b->kernels.load->load(b->got, b->cpu, n);
	b->kernels.load->load(b->got + last, b->cpu + last, n);
	b->wrong = memcmp(b->got, b->want, n) || memcmp(b->got + last, b->want + last, n);
	if (b->wrong)
		return bw_err(EIO,
			      "the CPU does not see what the GPU's copy engine wrote (%s, block of "
			      "%zu bytes)",
			      when, b->bytes);
	return 0;
}

static int gpu_writes(struct block *b)
{
	fill(b->want, b->bytes);
	return b->dev->ops->ce_copy_to(b->dev, b->addr, b->want, b->bytes);
}

/* The CPU's bytes as the GPU sees them: all of the block, so that a stray store shows too. */
static int cpu_writes(struct block *b)
{
	size_t n = probe_bytes(b), last = b->bytes - n;
	int ret;

	fill(b->want, n);
	b->kernels.store->store(b->cpu, b->want, n);
	if (last) {
		fill(b->want + last, n);
		b->kernels.store->store(b->cpu + last, b->want + last, n);
	}
	bw_fence_mixed();
	b->kernels.load->load(b->got, b->cpu, 8); /* a read pushes the posted writes ahead of it */
	ret = b->dev->ops->ce_copy_from(b->dev, b->got, b->addr, b->bytes);
	b->wrong = !ret && memcmp(b->got, b->want, b->bytes);
	if (b->wrong)
		ret = bw_err(EIO,
			     "the GPU's copy engine does not see what the CPU wrote (block of %zu "
			     "bytes)",
			     b->bytes);
	return ret;
}

/* A small aperture must not be filled by the test. */
static size_t large_block(const struct bw_map_provider *p, struct bw_device *dev)
{
	uint64_t total, avail;

	return !p->bar1(dev, &total, &avail) && total / 4 < LARGE ? PROBE * 2 : LARGE;
}

/* @proof: of what a failure is proof. */
enum proof { OF_NOTHING, OF_REFUSAL, OF_WRONG_BYTES };

static int prove(const struct bw_map_provider *p, struct bw_device *dev, void *owner, bool own,
		 enum proof *proof)
{
	const size_t sizes[] = { SMALL, SMALL, large_block(p, dev) };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	struct block blocks[N];
	int ret = 0;

	memset(blocks, 0, sizeof(blocks));
	for (int i = 0; i < N && !ret; i++) {
		blocks[i].provider = p;
		blocks[i].dev = dev;
		blocks[i].owner = owner;
		blocks[i].own = own;
		blocks[i].bytes = sizes[i];
		ret = block_open(&blocks[i]);
	}
	for (int i = 0; i < N && !ret; i++)
		ret = gpu_writes(&blocks[i]);
	for (int i = 0; i < N && !ret; i++) /* after all were written: aliases show */
		ret = cpu_sees(&blocks[i], "all blocks written");
	for (int i = 0; i < N && !ret; i++)
		ret = cpu_writes(&blocks[i]);
	for (int i = 0; i < N && !ret; i++)
		ret = cpu_sees(&blocks[i], "after the CPU wrote");
	*proof = OF_NOTHING; /* the device failed: the provider has nothing to do with it */
	for (int i = 0; i < N; i++) {
		if (blocks[i].refused || blocks[i].wrong)
			*proof = blocks[i].wrong ? OF_WRONG_BYTES : OF_REFUSAL;
		block_close(&blocks[i]);
	}
	return ret;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* What may be different next time is not a verdict. */
static bool passing(int ret)
{
	return ret == -ENOMEM || ret == -ENODEV || ret == -EACCES || ret == -EMFILE ||
	       ret == -ENFILE || ret == -EAGAIN || ret == -EINTR;
}

static int run(const struct bw_map_provider *p, struct bw_device *dev, void *owner)
{
	struct verdict *v = bw_alloc(sizeof(*v));
	enum proof proof;
	int ret;

	if (!v)
		return bw_err(ENOMEM, "self-test of provider %s: no memory", p->name);
	ret = prove(p, dev, owner, false, &proof);
	/* one call that failed once is no verdict; nor is a route that takes only memory with a
	 * handle */
	if (ret && proof == OF_REFUSAL && !passing(ret))
		ret = prove(p, dev, owner, ret == -ENOTSUP, &proof);
	bw_count(BW_C_SELF_TESTS, 1);
	if (ret)
		bw_err_prefix(ret, "self-test of provider %s on %s %d", p->name, dev->ops->name,
			      dev->index);
	if (ret && (proof == OF_NOTHING || (proof == OF_REFUSAL && passing(ret)))) {
		free(v);
		return ret;
	}
	v->provider = p;
	v->dev = dev;
	v->passed = !ret;
	if (ret) {
		bw_count(BW_C_SELF_TEST_FAILURES, 1);
		bw_reason_set(&v->why, "%s", bw_err_text());
		bw_log(BW_LOG_WARN, "%s: it is not used in this process", v->why.text);
		ret = -EIO;
	} else {
		bw_log(BW_LOG_INFO, "self-test of provider %s on %s %d: passed", p->name,
		       dev->ops->name, dev->index);
	}
	v->next = verdicts;
	verdicts = v;
	return ret;
}

int bw_self_test(const struct bw_map_provider *p, struct bw_device *dev, void *owner)
{
	const struct verdict *v = verdict_of(p, dev);
	int ret = 0;

	if (v)
		return v->passed ? 0 : bw_err(EIO, "%s", v->why.text);
	pthread_mutex_lock(&lock);
	v = verdict_of(p, dev);
	if (!v)
		ret = run(p, dev, owner);
	else if (!v->passed)
		ret = bw_err(EIO, "%s", v->why.text);
	pthread_mutex_unlock(&lock);
	return ret;
}
