/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device addresses of the soft GPUs: one reserved region of the process for all of them, cut into
 * ranges. A range stands for a block of memory (or, between reserve and map, for nothing). Freed
 * addresses are given out again at once, as CUDA does, with another identity.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/fault.h"
#include "device/soft_range.h"

#define SMALL (1u << 20) /* smaller ones share a block */
#define STEPS (BW_SOFT_BLOCK / BW_SOFT_STEP)

#define REGION (64ull << 30)

static uint64_t region, region_pages;
static struct soft_range **table; /* by page of the region: the innermost range */
static struct soft_range *ranges;
static uint64_t last_id; /* goes on in a forked child, so that no id is ever seen twice */

uint64_t soft_next_id(void)
{
	return ++last_id;
}

/* ---- the region ---------------------------------------------------------------------------- */

static int region_reserve(uint64_t memory)
{
	uint64_t bytes = REGION > 2 * memory ? REGION : 2 * memory, start;
	void *p;
	int ret;

	/* half as much will do where the process may not have more address space */
	while ((ret = bw_mmap(&p, NULL, bytes, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) &&
	       bytes / 2 >= memory)
		bytes /= 2;
	if (ret)
		return bw_err(-ret,
			      "soft GPU: cannot reserve %llu bytes of addresses: %s: lower the "
			      "parameter soft_memory or raise the limit (ulimit -v)",
			      (unsigned long long)bytes, strerror(-ret));
	(void)madvise(p, bytes, MADV_DONTDUMP);
	start = (uint64_t)(uintptr_t)p;
	region = soft_round_up(start, BW_SOFT_PAGE);
	region_pages = (start + bytes - region) >> SOFT_SHIFT;
	return 0;
}

int soft_memory_start(uint64_t memory)
{
	uint64_t bytes;
	void *p;
	int ret;

	/* A child of fork starts with another region: what it inherited faults for ever. */
	ret = region_reserve(memory);
	if (ret)
		return ret;
	bytes = region_pages * sizeof(*table);
	ret = bw_mmap(&p, NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ret) {
		munmap((void *)(uintptr_t)region, region_pages << SOFT_SHIFT);
		region = 0;
		return bw_err(-ret, "soft GPU: cannot map %llu bytes: %s",
			      (unsigned long long)bytes, strerror(-ret));
	}
	(void)madvise(p, bytes, MADV_DONTDUMP);
	table = p;
	return 0;
}

static void range_release(struct soft_range *r)
{
	struct soft_alloc *last = NULL;

	for (unsigned i = 0; r->step && i < STEPS; i++) {
		if (r->step[i] && r->step[i] != last)
			free(r->step[i]);
		last = r->step[i]; /* one allocation is in several steps in a row */
	}
	free(r->step);
	free(r);
}

void soft_memory_forget(void)
{
	struct soft_range *next;

	if (!table)
		return;
	for (struct soft_range *r = ranges; r; r = next) {
		next = r->next;
		range_release(r);
	}
	soft_pinned_forget();
	munmap(table, region_pages * sizeof(*table));
	ranges = NULL;
	table = NULL;
	region = region_pages = 0;
}

struct soft_range *soft_range_at(uint64_t addr)
{
	uint64_t i = (addr - region) >> SOFT_SHIFT;

	return table && addr >= region && i < region_pages ? table[i] : NULL;
}

struct soft_alloc *soft_alloc_at(struct soft_range *r, uint64_t addr)
{
	struct soft_alloc *a;

	if (!r || r->kind == RANGE_RESERVED)
		return NULL;
	a = r->step ? r->step[(addr - r->addr) / BW_SOFT_STEP] : &r->one;
	return a && addr >= a->base && addr - a->base < a->bytes ? a : NULL;
}

static void table_set(const struct soft_range *r, struct soft_range *what)
{
	uint64_t first = (r->addr - region) >> SOFT_SHIFT;

	for (uint64_t i = 0; i < r->bytes >> SOFT_SHIFT; i++)
		table[first + i] = what;
}

static bool gap_find(uint64_t bytes, uint64_t *addr)
{
	uint64_t want = bytes >> SOFT_SHIFT, run = 0, n;

	for (uint64_t i = 0; i < region_pages; i += n) {
		struct soft_range *r = table[i];

		n = r ? (r->addr + r->bytes - region - (i << SOFT_SHIFT)) >> SOFT_SHIFT : 1;
		run = r ? 0 : run + 1;
		if (run == want) {
			*addr = region + ((i + 1 - want) << SOFT_SHIFT);
			return true;
		}
	}
	return false;
}

int soft_range_new(enum range_kind kind, uint64_t bytes, uint64_t at, struct soft_range **out)
{
	struct soft_range *r = bw_alloc(sizeof(*r));

	if (!r)
		return bw_err(ENOMEM, "soft GPU: no host memory");
	r->kind = kind;
	r->bytes = soft_round_up(bytes, BW_SOFT_PAGE);
	r->addr = at;
	if (!at && (bytes > region_pages << SOFT_SHIFT || !gap_find(r->bytes, &r->addr))) {
		free(r);
		return bw_err(ENOMEM,
			      "soft GPU: no %llu device addresses in one piece, there are %llu in "
			      "all: free or unreserve some",
			      (unsigned long long)bytes,
			      (unsigned long long)region_pages << SOFT_SHIFT);
	}
	*out = r;
	return 0;
}

void soft_range_add(struct soft_range *r, struct soft_card *c, uint32_t page)
{
	r->card = c;
	r->page = page;
	r->next = ranges;
	if (ranges)
		ranges->prev = r;
	ranges = r;
	table_set(r, r);
}

void soft_range_delete(struct soft_range *r)
{
	table_set(r, r->parent);
	*(r->prev ? &r->prev->next : &ranges) = r->next;
	if (r->next)
		r->next->prev = r->prev;
	if (r->card && r->kind != RANGE_PINNED)
		soft_card_put(r->card, r->page);
	range_release(r);
}

/* ---- allocations --------------------------------------------------------------------------- */

/* A range with a new block behind it. */
static int range_alloc(struct soft_card *c, enum range_kind kind, uint64_t bytes,
		       struct soft_range **out)
{
	struct soft_range *r;
	uint32_t page;
	int ret = soft_range_new(kind, bytes, 0, &r);

	if (ret)
		return ret;
	ret = soft_card_take(c, r->bytes >> SOFT_SHIFT, &page);
	if (ret) {
		free(r);
		return ret;
	}
	soft_range_add(r, c, page);
	*out = r;
	return 0;
}

static int shared_new(struct soft_card *c, struct soft_range **out)
{
	struct soft_alloc **step = bw_alloc_array(STEPS, sizeof(*step));
	int ret;

	if (!step)
		return bw_err(ENOMEM, "soft GPU: no host memory");
	ret = range_alloc(c, RANGE_SHARED, BW_SOFT_BLOCK, out);
	if (ret)
		free(step);
	else
		(*out)->step = step;
	return ret;
}

/* The first @want free steps in a row of a shared block of @c; NULL: none has them. */
static struct soft_range *steps_find(struct soft_card *c, unsigned want, unsigned *first)
{
	for (struct soft_range *r = ranges; r; r = r->next) {
		if (r->kind != RANGE_SHARED || r->card != c)
			continue;
		for (unsigned i = 0, run = 0; i < STEPS; i++) {
			run = r->step[i] ? 0 : run + 1;
			if (run == want) {
				*first = i + 1 - want;
				return r;
			}
		}
	}
	return NULL;
}

static int alloc_small(struct soft_card *c, size_t bytes, uint64_t *addr)
{
	unsigned first = 0, want = (unsigned)(soft_round_up(bytes, BW_SOFT_STEP) / BW_SOFT_STEP);
	struct soft_alloc *a = bw_alloc(sizeof(*a));
	struct soft_range *r = steps_find(c, want, &first);
	int ret = 0;

	if (!a)
		ret = bw_err(ENOMEM, "soft GPU: no host memory");
	else if (!r)
		ret = shared_new(c, &r);
	if (ret) {
		free(a);
		return ret;
	}
	a->base = *addr = r->addr + (uint64_t)first * BW_SOFT_STEP;
	a->bytes = bytes;
	a->id = soft_next_id();
	for (unsigned i = 0; i < want; i++)
		r->step[first + i] = a;
	r->used++;
	return 0;
}

static void free_small(struct soft_range *r, struct soft_alloc *a)
{
	unsigned first = (unsigned)((a->base - r->addr) / BW_SOFT_STEP);

	for (uint64_t i = 0; i < soft_round_up(a->bytes, BW_SOFT_STEP) / BW_SOFT_STEP; i++)
		r->step[first + i] = NULL;
	free(a);
	if (!--r->used)
		soft_range_delete(r);
}

static int alloc_whole(struct soft_card *c, enum range_kind kind, size_t bytes, uint64_t *addr)
{
	struct soft_range *r;
	int ret = range_alloc(c, kind, bytes, &r);

	if (ret)
		return ret;
	r->one.base = r->addr;
	r->one.bytes = kind == RANGE_MEM ? r->bytes : bytes;
	r->one.id = soft_next_id();
	*addr = r->addr;
	return 0;
}

int soft_may_alloc(struct soft_card *c, size_t bytes)
{
	uint64_t pages, aperture;

	if (!bytes)
		return bw_err(EINVAL, "allocate on soft GPU %d: 0 bytes: give the size in bytes",
			      c->dev.index);
	if (bw_fault_hit(BW_FAULT_DEVICE_ALLOC))
		return bw_err(ENOMEM,
			      "allocate on soft GPU %d: fault injected: unset the parameter fault",
			      c->dev.index);
	if (bytes <= c->dev.memory_total)
		return 0;
	soft_card_info(c, &pages, &aperture);
	return bw_err(ENOMEM,
		      "allocate on soft GPU %d: needs %llu bytes, %llu are free of %llu: raise "
		      "the parameter soft_memory",
		      c->dev.index, (unsigned long long)bytes,
		      (unsigned long long)pages << SOFT_SHIFT,
		      (unsigned long long)c->dev.memory_total);
}

static int do_alloc(struct bw_device *dev, bool mem, size_t bytes, uint64_t *addr)
{
	struct soft_card *c = soft_card_of(dev);
	int ret = soft_enter(c);

	if (ret)
		return ret;
	ret = soft_may_alloc(c, bytes);
	if (!ret && !mem && bytes < SMALL)
		ret = alloc_small(c, bytes, addr);
	else if (!ret)
		ret = alloc_whole(c, mem ? RANGE_MEM : RANGE_WHOLE, bytes, addr);
	soft_leave();
	return ret;
}

int bw_soft_malloc(struct bw_device *dev, size_t bytes, uint64_t *addr)
{
	return do_alloc(dev, false, bytes, addr);
}

int soft_mem_alloc(struct bw_device *dev, size_t bytes, uint64_t *addr)
{
	return do_alloc(dev, true, bytes, addr);
}

static int do_free(uint64_t addr, bool mem)
{
	struct soft_range *r;
	struct soft_alloc *a;
	bool ours;

	soft_take_lock();
	r = soft_range_at(addr);
	a = soft_alloc_at(r, addr);
	ours = a && a->base == addr &&
	       (mem ? r->kind == RANGE_MEM : r->kind == RANGE_WHOLE || r->kind == RANGE_SHARED);
	if (ours && r->kind == RANGE_SHARED)
		free_small(r, a);
	else if (ours)
		soft_range_delete(r);
	soft_leave();
	return ours ? 0
		    : bw_err(ENOENT,
			     "free 0x%llx: not the start of an allocation of the soft GPU, "
			     "or freed before",
			     (unsigned long long)addr);
}

int bw_soft_free(uint64_t addr)
{
	return do_free(addr, false);
}

int soft_mem_free(uint64_t addr)
{
	return do_free(addr, true);
}

/* ---- questions ----------------------------------------------------------------------------- */

enum bw_mem_kind soft_mem_kind(const struct soft_range *r)
{
	switch (r->kind) {
	case RANGE_MAPPED:
		return BW_MEM_VMM;
	case RANGE_IMPORTED:
		return BW_MEM_IMPORTED;
	case RANGE_PINNED:
		return BW_MEM_PINNED;
	default:
		return BW_MEM_DEVICE;
	}
}

/* Pinned memory has two addresses; a segment is in terms of the one that was asked for. */
int soft_resolve(uint64_t addr, struct bw_segment *seg)
{
	struct soft_range *r;
	struct soft_alloc *a;

	soft_take_lock();
	r = soft_range_at(addr);
	a = soft_alloc_at(r, addr);
	if (!a)
		r = soft_pinned_at(addr);
	if (a)
		*seg = (struct bw_segment){
			.kind = soft_mem_kind(r), .dev = &r->card->dev, .base = a->base,
			.bytes = a->bytes, .id = a->id, .rdma_capable = true,
		};
	else if (r)
		*seg = (struct bw_segment){
			.kind = BW_MEM_PINNED, .dev = &r->card->dev, .base = (uintptr_t)r->host,
			.bytes = r->one.bytes, .device_base = r->one.base, .id = r->one.id,
			.rdma_capable = true,
		};
	soft_leave();
	return r ? 0 : -ENOENT;
}

uint64_t soft_identity(uint64_t addr)
{
	uint64_t id;

	soft_take_lock();
	id = soft_memory_id(addr);
	if (!id && soft_pinned_at(addr))
		id = soft_pinned_at(addr)->one.id;
	soft_leave();
	return id;
}

uint64_t soft_memory_id(uint64_t addr)
{
	struct soft_alloc *a = soft_alloc_at(soft_range_at(addr), addr);

	return a ? a->id : 0;
}

/* @pinned: host memory too, of any soft GPU's: each reaches it, as with CUDA. */
static unsigned char *memory_at(struct soft_card *c, uint64_t addr, size_t bytes, bool pinned,
				uint32_t *page)
{
	struct soft_range *r = soft_range_at(addr);
	struct soft_alloc *a = soft_alloc_at(r, addr);

	if (!a || bytes > a->bytes - (addr - a->base))
		return NULL;
	if (r->kind == RANGE_PINNED)
		return pinned ? r->host + (addr - r->addr) : NULL;
	if (r->card != c)
		return NULL;
	*page = r->page;
	return soft_card_at(c, r->page) + (addr - r->addr);
}

int soft_memory_find(struct soft_card *c, uint64_t addr, size_t bytes, uint32_t *page,
		     unsigned char **at)
{
	*at = memory_at(c, addr, bytes, false, page);
	return *at ? 0 : bw_err(EFAULT, "0x%llx, %zu bytes: not in one allocation of soft GPU %d",
				(unsigned long long)addr, bytes, c->dev.index);
}

void *soft_memory_reach(struct soft_card *c, uint64_t addr, size_t bytes)
{
	uint32_t page;

	return memory_at(c, addr, bytes, true, &page);
}

void *bw_soft_view(struct bw_device *dev, uint64_t addr, size_t bytes)
{
	void *at;

	soft_take_lock();
	at = soft_memory_reach(soft_card_of(dev), addr, bytes);
	soft_leave();
	return at;
}

/* Under soft_lock, so that no child is forked between finding and copying the descriptor. */
static int export_found(struct soft_card *c, uint64_t addr, size_t bytes, int *fd,
			uint64_t *offset)
{
	unsigned char *at;
	uint32_t page;
	int ret = soft_memory_find(c, addr, bytes, &page, &at), copy = -1;

	if (ret)
		return ret;
	errno = EMFILE;
	if (!bw_fault_hit(BW_FAULT_OPEN))
		copy = fcntl(c->fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return bw_err(errno, "%s: raise the limit (ulimit -n)", strerror(errno));
	*fd = copy;
	*offset = c->control_bytes + (uint64_t)(at - c->view);
	return 0;
}

int soft_export_dmabuf(struct bw_device *dev, uint64_t addr, size_t bytes, int *fd,
		       uint64_t *offset)
{
	struct soft_card *c = soft_card_of(dev);
	struct bw_segment first;
	unsigned n;
	int ret = bw_device_span(dev, addr, bytes, &first, &n);

	if (!ret && n > 1)
		ret = bw_err(ENOTSUP, "%u handles that are mapped in a row: take each by itself",
			     n);
	if (!ret)
		ret = soft_enter(c);
	if (!ret) {
		ret = export_found(c, addr, bytes, fd, offset);
		soft_leave();
	}
	return ret;
}
