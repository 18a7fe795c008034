/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device addresses of the soft GPUs: one reserved region of the process for all of them, cut into
 * ranges. A range stands for a block of memory (or, between reserve and map, for nothing). Freed
 * addresses are given out again at once, as CUDA does, with another identity.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/fault.h"
#include "device/soft_int.h"

#define SMALL (1u << 20) /* smaller ones share a block */
#define STEPS (BW_SOFT_BLOCK / BW_SOFT_STEP)
#define CPU_PAGE 4096u

#define REGION (64ull << 30)

struct soft_alloc {
	uint64_t base, bytes, id;
};

enum range_kind {
	RANGE_WHOLE,    /* bw_soft_malloc(), large */
	RANGE_MEM,      /* soft_mem_alloc() */
	RANGE_SHARED,   /* block of small allocations */
	RANGE_RESERVED, /* nothing mapped */
	RANGE_MAPPED,   /* a handle, inside a reserved one */
	RANGE_IMPORTED,
};

struct soft_range {
	struct soft_range *prev, *next;
	enum range_kind kind;
	struct soft_card *card;
	uint32_t page;             /* first of the block */
	uint64_t addr, bytes;      /* device addresses, whole pages */
	struct soft_alloc one;     /* what is there, unless RANGE_SHARED */
	struct soft_alloc **step;  /* RANGE_SHARED: STEPS of them */
	unsigned used;             /* allocations in it; mapped handles in it */
	struct soft_range *parent; /* RANGE_MAPPED: the reserved one */
};

struct bw_soft_handle {
	unsigned epoch;
	struct soft_card *card;
	uint32_t page, pages;
};

struct bw_soft_window {
	unsigned epoch;
	struct soft_card *card;
	uint32_t page;
	uint64_t held; /* aperture pages */
};

static uint64_t region, region_pages;
static struct soft_range **table; /* by page of the region: the innermost range */
static struct soft_range *ranges;
static uint64_t last_id; /* goes on in a forked child, so that no id is ever seen twice */

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
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
	region = round_up(start, BW_SOFT_PAGE);
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
	munmap(table, region_pages * sizeof(*table));
	ranges = NULL;
	table = NULL;
	region = region_pages = 0;
}

static struct soft_range *range_at(uint64_t addr)
{
	uint64_t i = (addr - region) >> SOFT_SHIFT;

	return table && addr >= region && i < region_pages ? table[i] : NULL;
}

static struct soft_alloc *alloc_at(struct soft_range *r, uint64_t addr)
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

/* A range of its own addresses (unless @at gives them), not yet in the table. */
static int range_new(enum range_kind kind, uint64_t bytes, uint64_t at, struct soft_range **out)
{
	struct soft_range *r = bw_alloc(sizeof(*r));

	if (!r)
		return bw_err(ENOMEM, "soft GPU: no host memory");
	r->kind = kind;
	r->bytes = round_up(bytes, BW_SOFT_PAGE);
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

static void range_add(struct soft_range *r, struct soft_card *c, uint32_t page)
{
	r->card = c;
	r->page = page;
	r->next = ranges;
	if (ranges)
		ranges->prev = r;
	ranges = r;
	table_set(r, r);
}

static void range_delete(struct soft_range *r)
{
	table_set(r, r->parent);
	*(r->prev ? &r->prev->next : &ranges) = r->next;
	if (r->next)
		r->next->prev = r->prev;
	if (r->card)
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
	int ret = range_new(kind, bytes, 0, &r);

	if (ret)
		return ret;
	ret = soft_card_take(c, r->bytes >> SOFT_SHIFT, &page);
	if (ret) {
		free(r);
		return ret;
	}
	range_add(r, c, page);
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
	unsigned first = 0, want = (unsigned)(round_up(bytes, BW_SOFT_STEP) / BW_SOFT_STEP);
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
	a->id = ++last_id;
	for (unsigned i = 0; i < want; i++)
		r->step[first + i] = a;
	r->used++;
	return 0;
}

static void free_small(struct soft_range *r, struct soft_alloc *a)
{
	unsigned first = (unsigned)((a->base - r->addr) / BW_SOFT_STEP);

	for (uint64_t i = 0; i < round_up(a->bytes, BW_SOFT_STEP) / BW_SOFT_STEP; i++)
		r->step[first + i] = NULL;
	free(a);
	if (!--r->used)
		range_delete(r);
}

static int alloc_whole(struct soft_card *c, enum range_kind kind, size_t bytes, uint64_t *addr)
{
	struct soft_range *r;
	int ret = range_alloc(c, kind, bytes, &r);

	if (ret)
		return ret;
	r->one = (struct soft_alloc){ r->addr, kind == RANGE_MEM ? r->bytes : bytes, ++last_id };
	*addr = r->addr;
	return 0;
}

/* What every allocation has to ask first. */
static int may_alloc(struct soft_card *c, size_t bytes)
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
	ret = may_alloc(c, bytes);
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
	r = range_at(addr);
	a = alloc_at(r, addr);
	ours = a && a->base == addr &&
	       (mem ? r->kind == RANGE_MEM : r->kind == RANGE_WHOLE || r->kind == RANGE_SHARED);
	if (ours && r->kind == RANGE_SHARED)
		free_small(r, a);
	else if (ours)
		range_delete(r);
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

static enum bw_mem_kind mem_kind(const struct soft_range *r)
{
	return r->kind == RANGE_MAPPED ? BW_MEM_VMM :
	       r->kind == RANGE_IMPORTED ? BW_MEM_IMPORTED : BW_MEM_DEVICE;
}

int soft_resolve(uint64_t addr, struct bw_segment *seg)
{
	struct soft_range *r;
	struct soft_alloc *a;

	soft_take_lock();
	r = range_at(addr);
	a = alloc_at(r, addr);
	if (a)
		*seg = (struct bw_segment){
			.kind = mem_kind(r), .dev = &r->card->dev, .base = a->base,
			.bytes = a->bytes, .id = a->id, .rdma_capable = true,
		};
	soft_leave();
	return a ? 0 : -ENOENT;
}

uint64_t soft_identity(uint64_t addr)
{
	struct soft_alloc *a;
	uint64_t id;

	soft_take_lock();
	a = alloc_at(range_at(addr), addr);
	id = a ? a->id : 0;
	soft_leave();
	return id;
}

static unsigned char *memory_at(struct soft_card *c, uint64_t addr, size_t bytes, uint32_t *page)
{
	struct soft_range *r = range_at(addr);
	struct soft_alloc *a = alloc_at(r, addr);

	if (!a || r->card != c || bytes > a->bytes - (addr - a->base))
		return NULL;
	*page = r->page;
	return soft_card_at(c, r->page) + (addr - r->addr);
}

int soft_memory_find(struct soft_card *c, uint64_t addr, size_t bytes, uint32_t *page,
		     unsigned char **at)
{
	*at = memory_at(c, addr, bytes, page);
	return *at ? 0 : bw_err(EFAULT, "0x%llx, %zu bytes: not in one allocation of soft GPU %d",
				(unsigned long long)addr, bytes, c->dev.index);
}

void *bw_soft_deref(struct bw_device *dev, uint64_t addr, size_t bytes)
{
	unsigned char *at;
	uint32_t page;

	soft_take_lock();
	at = memory_at(soft_card_of(dev), addr, bytes, &page);
	soft_leave();
	return at;
}

/* ---- VMM ----------------------------------------------------------------------------------- */

static int whole_pages(const char *what, size_t bytes)
{
	if (bytes && !(bytes % BW_SOFT_PAGE))
		return 0;
	return bw_err(EINVAL, "%s on the soft GPU: %zu bytes: give a multiple of %u", what, bytes,
		      BW_SOFT_PAGE);
}

int bw_soft_handle_create(struct bw_device *dev, size_t bytes, struct bw_soft_handle **out)
{
	struct soft_card *c = soft_card_of(dev);
	struct bw_soft_handle *h;
	int ret = whole_pages("create a handle", bytes);

	if (ret || (ret = soft_enter(c)))
		return ret;
	h = bw_alloc(sizeof(*h));
	ret = h ? may_alloc(c, bytes) : bw_err(ENOMEM, "soft GPU: no host memory");
	if (!ret)
		ret = soft_card_take(c, bytes >> SOFT_SHIFT, &h->page);
	if (!ret) {
		h->epoch = soft_epoch;
		h->card = c;
		h->pages = (uint32_t)(bytes >> SOFT_SHIFT);
		*out = h;
	} else {
		free(h);
	}
	soft_leave();
	return ret;
}

void bw_soft_handle_release(struct bw_soft_handle *handle)
{
	if (!handle)
		return;
	soft_take_lock();
	if (handle->epoch == soft_epoch)
		soft_card_put(handle->card, handle->page);
	soft_leave();
	free(handle);
}

int bw_soft_reserve(size_t bytes, uint64_t *addr)
{
	struct soft_range *r;
	int ret = whole_pages("reserve", bytes);

	if (ret || (ret = soft_enter(NULL)))
		return ret;
	ret = range_new(RANGE_RESERVED, bytes, 0, &r);
	if (!ret) {
		range_add(r, NULL, 0);
		*addr = r->addr;
	}
	soft_leave();
	return ret;
}

/* The reservation that @addr is in, mapped or not. */
static struct soft_range *reserved_at(uint64_t addr)
{
	struct soft_range *r = range_at(addr);

	if (r && r->kind == RANGE_MAPPED)
		r = r->parent;
	return r && r->kind == RANGE_RESERVED ? r : NULL;
}

int bw_soft_unreserve(uint64_t addr, size_t bytes)
{
	struct soft_range *r;
	int ret = 0;

	soft_take_lock();
	r = reserved_at(addr);
	if (!r || r->addr != addr || r->bytes != bytes)
		ret = bw_err(ENOENT, "unreserve 0x%llx, %zu bytes: not a reserved range",
			     (unsigned long long)addr, bytes);
	else if (r->used)
		ret = bw_err(EBUSY, "unreserve 0x%llx: %u handles are mapped in it: unmap them",
			     (unsigned long long)addr, r->used);
	else
		range_delete(r);
	soft_leave();
	return ret;
}

/* Is [addr, addr + bytes) in @r, with nothing mapped there? */
static bool unmapped(struct soft_range *r, uint64_t addr, uint64_t bytes)
{
	if (!r || bytes > r->bytes || addr - r->addr > r->bytes - bytes)
		return false;
	for (uint64_t at = addr; at < addr + bytes; at += BW_SOFT_PAGE)
		if (range_at(at) != r)
			return false;
	return true;
}

int bw_soft_mem_map(uint64_t addr, struct bw_soft_handle *handle)
{
	uint64_t bytes = (uint64_t)handle->pages << SOFT_SHIFT;
	struct soft_range *r, *parent;
	int ret = soft_enter(NULL);

	if (ret)
		return ret;
	parent = reserved_at(addr);
	if (handle->epoch != soft_epoch)
		ret = bw_err(ESTALE, "map a handle at 0x%llx: the handle is of the parent process",
			     (unsigned long long)addr);
	else if (addr % BW_SOFT_PAGE || !unmapped(parent, addr, bytes))
		ret = bw_err(EINVAL,
			     "map a handle at 0x%llx: %llu bytes from there are not reserved, not "
			     "aligned to %u, or mapped: reserve or unmap first",
			     (unsigned long long)addr, (unsigned long long)bytes, BW_SOFT_PAGE);
	else
		ret = range_new(RANGE_MAPPED, bytes, addr, &r);
	if (!ret) {
		soft_card_get(handle->card, handle->page);
		r->parent = parent;
		r->one = (struct soft_alloc){ addr, bytes, ++last_id };
		parent->used++;
		range_add(r, handle->card, handle->page);
	}
	soft_leave();
	return ret;
}

int bw_soft_mem_unmap(uint64_t addr)
{
	struct soft_range *r;
	bool ours;

	soft_take_lock();
	r = range_at(addr);
	ours = r && r->kind == RANGE_MAPPED && r->addr == addr;
	if (ours) {
		r->parent->used--;
		range_delete(r);
	}
	soft_leave();
	return ours ? 0 : bw_err(ENOENT, "unmap 0x%llx: no handle is mapped there",
				 (unsigned long long)addr);
}

/* ---- IPC ----------------------------------------------------------------------------------- */

int bw_soft_ipc_export(uint64_t addr, struct bw_soft_ipc *ipc)
{
	struct soft_range *r;
	struct soft_alloc *a;
	int ret = 0;

	soft_take_lock();
	r = range_at(addr);
	a = alloc_at(r, addr);
	if (!a || a->base != addr)
		ret = bw_err(ENOENT,
			     "export 0x%llx: not the start of an allocation of the soft GPU",
			     (unsigned long long)addr);
	else if (r->kind == RANGE_MAPPED || r->kind == RANGE_IMPORTED)
		ret = bw_err(ENOTSUP,
			     "export 0x%llx: it is %s: only allocated memory can be exported",
			     (unsigned long long)addr, bw_mem_kind_name(mem_kind(r)));
	else
		*ipc = (struct bw_soft_ipc){ {
			r->card->hdr->token, r->page, soft_card_serial(r->card, r->page),
			addr - r->addr, a->bytes,
		} };
	soft_leave();
	return ret;
}

static int import(struct soft_card *c, const struct bw_soft_ipc *ipc, uint64_t *addr)
{
	uint64_t offset = ipc->word[3], bytes = ipc->word[4], span;
	uint32_t page = (uint32_t)ipc->word[1];
	struct soft_range *r;
	int ret = c->hdr->token != ipc->word[0] || page != ipc->word[1] ? -ENOENT :
		  soft_card_import(c, page, ipc->word[2]);

	if (ret)
		return bw_err(
			ENOENT,
			"import on soft GPU %d: the memory is freed, or of a soft GPU that is "
			"not shared: give both processes the same parameter soft_shared",
			c->dev.index);
	span = (uint64_t)soft_card_pages(c, page) << SOFT_SHIFT;
	ret = offset >= span || !bytes || bytes > span - offset ?
		      bw_err(EINVAL, "import on soft GPU %d: not a handle", c->dev.index) :
		      range_new(RANGE_IMPORTED, span, 0, &r);
	if (ret) {
		soft_card_put(c, page);
		return ret;
	}
	r->one = (struct soft_alloc){ r->addr + offset, bytes, ++last_id };
	range_add(r, c, page);
	*addr = r->one.base;
	return 0;
}

int bw_soft_ipc_import(struct bw_device *dev, const struct bw_soft_ipc *ipc, uint64_t *addr)
{
	struct soft_card *c = soft_card_of(dev);
	int ret = soft_enter(c);

	if (ret)
		return ret;
	ret = import(c, ipc, addr);
	soft_leave();
	return ret;
}

int bw_soft_ipc_close(uint64_t addr)
{
	struct soft_range *r;
	bool ours;

	soft_take_lock();
	r = range_at(addr);
	ours = r && r->kind == RANGE_IMPORTED && r->one.base == addr;
	if (ours)
		range_delete(r);
	soft_leave();
	return ours ? 0 : bw_err(ENOENT, "close 0x%llx: not imported, or closed before",
				 (unsigned long long)addr);
}

/* ---- windows ------------------------------------------------------------------------------- */

/* Does each CPU page of [addr, addr + bytes) hold bytes of a segment, all of one block? */
static bool window_fits(struct soft_range *r, uint64_t addr, uint64_t bytes)
{
	if (!r || r->kind == RANGE_RESERVED || !bytes || addr % CPU_PAGE || bytes % CPU_PAGE ||
	    bytes > r->addr + r->bytes - addr)
		return false;
	if (!r->step) /* the pages around the one segment */
		return addr >= (r->one.base & ~(uint64_t)(CPU_PAGE - 1)) &&
		       addr + bytes <= round_up(r->one.base + r->one.bytes, CPU_PAGE);
	for (uint64_t page = addr; page < addr + bytes; page += CPU_PAGE) {
		struct soft_alloc **s = r->step + (page - r->addr) / BW_SOFT_STEP;
		unsigned i = 0;

		while (i < CPU_PAGE / BW_SOFT_STEP && !s[i])
			i++;
		if (i == CPU_PAGE / BW_SOFT_STEP)
			return false;
	}
	return true;
}

static int window_mmap(struct soft_card *c, uint64_t offset, size_t bytes, void *at)
{
	void *p;
	int ret = bw_mmap(&p, at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, c->fd,
			  (off_t)(c->control_bytes + offset));

	if (!ret && madvise(at, bytes, MADV_DONTFORK))
		ret = -errno;
	if (!ret)
		return 0;
	/* whatever became of it: reserved addresses again */
	(void)mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		   -1, 0);
	return bw_err(-ret, "map on soft GPU %d: cannot map %zu bytes at %p: %s", c->dev.index,
		      bytes, at, strerror(-ret));
}

/* Makes @w, of which only the memory is there. */
static int window_make(struct bw_soft_window *w, uint64_t addr, size_t bytes, void *at)
{
	struct soft_range *r = range_at(addr);
	uint64_t offset;
	int ret;

	if (!window_fits(r, addr, bytes))
		return bw_err(EFAULT,
			      "map 0x%llx, %zu bytes: not whole CPU pages of one allocation of the "
			      "soft GPU",
			      (unsigned long long)addr, bytes);
	offset = ((uint64_t)r->page << SOFT_SHIFT) + (addr - r->addr);
	w->epoch = soft_epoch;
	w->card = r->card;
	w->page = r->page;
	w->held = ((offset + bytes + BW_SOFT_PAGE - 1) >> SOFT_SHIFT) - (offset >> SOFT_SHIFT);
	if (bw_fault_hit(BW_FAULT_APERTURE))
		return bw_err(ENOMEM,
			      "map on soft GPU %d: the BAR1 aperture is full (fault injected): "
			      "unset the parameter fault",
			      w->card->dev.index);
	ret = soft_card_hold(w->card, w->held);
	if (ret)
		return ret;
	ret = window_mmap(w->card, offset, bytes, at);
	if (ret)
		soft_card_unhold(w->card, w->held);
	else
		soft_card_get(w->card, w->page);
	return ret;
}

int bw_soft_window_open(uint64_t addr, size_t bytes, void *at, struct bw_soft_window **out)
{
	struct bw_soft_window *w;
	int ret = soft_enter(NULL);

	if (ret)
		return ret;
	w = bw_alloc(sizeof(*w));
	ret = w ? window_make(w, addr, bytes, at) : bw_err(ENOMEM, "soft GPU: no host memory");
	if (ret)
		free(w);
	else
		*out = w;
	soft_leave();
	return ret;
}

void bw_soft_window_close(struct bw_soft_window *window)
{
	if (!window)
		return;
	soft_take_lock();
	if (window->epoch == soft_epoch) {
		soft_card_unhold(window->card, window->held);
		soft_card_put(window->card, window->page);
	}
	soft_leave();
	free(window);
}
