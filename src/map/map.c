/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map: from a range to a window. Segments are resolved one by one, the best provider that takes all
 * of them is proved and used, and its pieces are put side by side in one range of CPU addresses.
 */
#include "map/map.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/counters.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/param.h"
#include "map/cache.h"
#include "map/providers.h"

const struct bw_map_provider *const bw_map_providers[] = { &bw_map_rm, &bw_map_soft, NULL };

#define RESERVE_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

enum { FALLBACK_REPORT, FALLBACK_DENY, FALLBACK_QUIET }; /* enum barway_fallback */

const char *bw_instead_of(enum bw_mem_kind kind)
{
	switch (kind) {
	case BW_MEM_PINNED:
		return "the CPU can use it as it is: take the pointer itself";
	case BW_MEM_MANAGED:
		return "the CPU can use it as it is: take the pointer itself, or cudaMalloc memory "
		       "that stays on the GPU";
	case BW_MEM_HOST_VMM:
		return "it is host memory: give the host access with cuMemSetAccess and take the "
		       "pointer";
	case BW_MEM_IMPORTED:
		return "map it in the process that allocated it, and copy there";
	default:
		return "allocate it with cudaMalloc or barway_mem_alloc()";
	}
}

bool bw_mappable(const struct bw_segment *seg, struct bw_reason *why)
{
	for (int i = 0; seg->dev && bw_map_providers[i]; i++)
		if (bw_map_providers[i]->score(seg->dev, why) >= 0 &&
		    !bw_map_providers[i]->accepts(seg, why))
			return true;
	return false;
}

/* ---- segments -------------------------------------------------------------------------------- */

static int no_memory_here(uint64_t at, uint64_t addr, uint64_t bytes)
{
	if (at == addr)
		return bw_err(EFAULT,
			      "0x%llx is not GPU memory: it is plain host memory, or was freed: "
			      "give an address from cudaMalloc, cuMemMap or barway_mem_alloc()",
			      (unsigned long long)addr);
	return bw_err(EFAULT,
		      "the range of %llu bytes at 0x%llx ends beyond its memory: only %llu bytes "
		      "are allocated there",
		      (unsigned long long)bytes, (unsigned long long)addr,
		      (unsigned long long)(at - addr));
}

static int add_segment(struct bw_window *win, const struct bw_segment *seg)
{
	struct bw_segment *more;

	if ((win->nsegs & (win->nsegs - 1)) == 0) { /* full at every power of two */
		size_t room = win->nsegs ? 2 * (size_t)win->nsegs : 1;

		more = bw_alloc_array(room, sizeof(*more));
		if (!more)
			return bw_err(ENOMEM, "no memory for %u segments", win->nsegs + 1);
		if (win->nsegs)
			memcpy(more, win->segs, win->nsegs * sizeof(*more));
		free(win->segs);
		win->segs = more;
	}
	win->segs[win->nsegs] = *seg;
	if (seg->owner)
		win->segs[win->nsegs].owner_id = seg->dev->ops->context_id(seg->dev, seg->owner);
	win->nsegs++;
	return 0;
}

/* Where a piece of a segment may reach to: with BARWAY_MAP_CLAMP the driver's whole block. */
static uint64_t low_end(const struct bw_window *win, const struct bw_segment *seg)
{
	return win->clamped && seg->map_bytes ? seg->map_base : seg->base;
}

static uint64_t high_end(const struct bw_window *win, const struct bw_segment *seg)
{
	return win->clamped && seg->map_bytes ? seg->map_base + seg->map_bytes :
						seg->base + seg->bytes;
}

static int check_segment(const struct bw_segment *seg, uint64_t at)
{
	if (!seg->dev || seg->kind == BW_MEM_PINNED || seg->kind == BW_MEM_MANAGED)
		return bw_err(ENOTSUP, "0x%llx is %s: %s", (unsigned long long)at,
			      bw_mem_kind_name(seg->kind), bw_instead_of(seg->kind));
	if (at < seg->base || at - seg->base >= seg->bytes)
		return bw_err(EFAULT, "0x%llx: the driver says that it lies in 0x%llx + 0x%llx: it "
			      "does not", (unsigned long long)at, (unsigned long long)seg->base,
			      (unsigned long long)seg->bytes);
	return 0;
}

static int resolve_segments(struct bw_window *win, uint64_t addr, uint64_t bytes)
{
	enum {
		STEP = 512,     /* allocations begin at multiples of it (seen: CUDA, driver 580) */
		HOLE = 2 << 20, /* larger ones are not looked into: that is a driver's block */
	};
	uint64_t hole = 0;

	for (uint64_t at = addr; at < addr + bytes;) {
		struct bw_segment seg;
		int ret = bw_device_resolve(at, &seg);

		if (ret)
			return ret;
		if (seg.kind == BW_MEM_HOST && win->clamped) {
			at = (at + STEP) & ~(uint64_t)(STEP - 1);
			hole += STEP;
			if (hole > HOLE)
				break;
			continue;
		}
		hole = 0;
		if (seg.kind == BW_MEM_HOST)
			return no_memory_here(at, addr, bytes);
		ret = check_segment(&seg, at);
		if (!ret)
			ret = add_segment(win, &seg);
		if (ret)
			return ret;
		at = high_end(win, &seg);
	}
	return win->nsegs ? 0 : no_memory_here(addr, addr, bytes);
}

/* Pieces are the segments rounded to pages; of several that share a page the first one has it. */
static int cut_pieces(struct bw_window *win)
{
	uint64_t at = win->addr, end = win->addr + win->bytes;

	win->pieces = bw_alloc_array(win->nsegs, sizeof(*win->pieces));
	if (!win->pieces)
		return bw_err(ENOMEM, "no memory for %u pieces", win->nsegs);
	for (unsigned i = 0; i < win->nsegs && at < end; i++) {
		const struct bw_segment *seg = &win->segs[i];
		uint64_t from = low_end(win, seg) & ~(BW_PAGE - 1);
		uint64_t to = (high_end(win, seg) + BW_PAGE - 1) & ~(BW_PAGE - 1);

		from = from > at ? from : at;
		to = to < end ? to : end;
		if (to <= from)
			continue;
		win->pieces[win->npieces++] = (struct bw_piece){
			.seg = *seg, .addr = from, .bytes = to - from,
		};
		at = to;
	}
	return 0;
}

/* ---- providers ------------------------------------------------------------------------------- */

static int score_window(const struct bw_map_provider *p, const struct bw_window *win,
			struct bw_reason *why)
{
	int lowest = -1, score;

	for (unsigned i = 0; i < win->npieces; i++) {
		if (!i || win->pieces[i].seg.dev != win->pieces[i - 1].seg.dev) {
			score = p->score(win->pieces[i].seg.dev, why);
			if (score < 0)
				return score;
			lowest = !i || score < lowest ? score : lowest;
		}
		if (p->accepts(&win->pieces[i].seg, why))
			return -1;
	}
	return lowest;
}

static void revoke_pages(struct bw_window *win)
{
	if (mmap(win->cpu, win->bytes, PROT_NONE, RESERVE_FLAGS | MAP_FIXED, -1, 0) == MAP_FAILED)
		munmap(win->cpu, win->bytes);
}

static void unmap_pieces(struct bw_window *win, unsigned n)
{
	while (n)
		win->provider->unmap(&win->pieces[--n]);
}

static int map_pieces(struct bw_window *win)
{
	for (unsigned i = 0; i < win->npieces; i++) {
		struct bw_piece *piece = &win->pieces[i];
		enum bw_caching caching = BW_WC;
		int ret = win->provider->map(piece, win->cpu + (piece->addr - win->addr), &caching);

		if (ret) {
			if (i)
				revoke_pages(win); /* pages first, then the driver */
			unmap_pieces(win, i);
			return ret;
		}
		win->caching = i && caching != win->caching ? BW_UNCACHED : caching;
	}
	/* a child may not touch them, a core dump must not read the GPU, and a debugger had better
	 * not: some drivers crash when ptrace does */
	if (madvise(win->cpu, win->bytes, MADV_DONTFORK) ||
	    madvise(win->cpu, win->bytes, MADV_DONTDUMP))
		bw_log(BW_LOG_WARN, "map: madvise: %s: a forked child could reach the mapping",
		       strerror(errno));
	return 0;
}

static int map_by(struct bw_window *win, const struct bw_map_provider *p)
{
	int ret = 0;

	for (unsigned i = 0; i < win->npieces && !ret; i++)
		if (!i || win->pieces[i].seg.dev != win->pieces[i - 1].seg.dev)
			ret = bw_self_test(p, win->pieces[i].seg.dev, win->pieces[i].seg.owner);
	if (ret)
		return ret;
	win->provider = p;
	ret = map_pieces(win);
	for (unsigned i = 0; i < win->nsegs && !ret; i++) {
		const struct bw_segment *seg = &win->segs[i];
		uint64_t at = seg->base > win->addr ? seg->base : win->addr;

		at = at < seg->base + seg->bytes ? at : seg->base;
		if (seg->dev->ops->identity(at) != seg->id) {
			revoke_pages(win);
			unmap_pieces(win, win->npieces);
			ret = bw_err(EFAULT,
				     "the memory at 0x%llx was freed while it was being mapped",
				     (unsigned long long)seg->base);
		}
	}
	return ret;
}

/* Why the providers that were not taken were not; for the window's reason and for errors. */
struct verdict {
	char text[768];
	size_t used;
};

static void judge(struct verdict *v, const char *name, const char *reason)
{
	int n = snprintf(v->text + v->used, sizeof(v->text) - v->used, "%s%s: %s",
			 v->used ? "; " : "", name, reason);

	if (n > 0)
		v->used += (size_t)n < sizeof(v->text) - v->used ? (size_t)n :
			   sizeof(v->text) - v->used - 1;
}

static void report_fallback(const struct bw_map_policy *policy, const char *taken, const char *why)
{
	static _Atomic bool once;

	if (policy->fallback == FALLBACK_REPORT && !once) {
		once = true;
		bw_log(BW_LOG_WARN, "map: took provider %s, because %s", taken, why);
	}
}

static int map_by_best(struct bw_window *win, const struct bw_map_policy *policy)
{
	enum { MAX = 8 };
	int score[MAX], best, ret = 0, tried = 0, refusal = -ENOTSUP;
	struct verdict refused = { .used = 0 };
	struct bw_reason why[MAX];

	for (int i = 0; bw_map_providers[i]; i++) {
		score[i] = -1;
		if (!bw_list_has(policy->providers, bw_map_providers[i]->name))
			bw_reason_set(&why[i], "not among the allowed providers (%s)",
				      policy->providers);
		else
			score[i] = score_window(bw_map_providers[i], win, &why[i]);
		if (score[i] < 0)
			judge(&refused, bw_map_providers[i]->name, why[i].text);
		if (score[i] < -1)
			refusal = score[i];
	}
	for (;;) {
		best = -1;
		for (int i = 0; bw_map_providers[i]; i++)
			if (score[i] >= 0 && (best < 0 || score[i] > score[best]))
				best = i;
		if (best < 0)
			break;
		ret = map_by(win, bw_map_providers[best]);
		if (!ret) {
			if (tried)
				report_fallback(policy, bw_map_providers[best]->name, refused.text);
			bw_reason_set(&win->reason, "%s: %s%s%.300s", bw_map_providers[best]->name,
				      why[best].text, refused.used ? "; not " : "", refused.text);
			return 0;
		}
		if ((ret != -EIO && ret != -ENOTSUP) || policy->fallback == FALLBACK_DENY)
			return ret;
		tried++;
		score[best] = -1;
		judge(&refused, bw_map_providers[best]->name, bw_err_text());
	}
	if (tried == 1)
		return ret; /* its own sentence says it best */
	return bw_err(tried ? -ret : -refusal, "no provider takes it: %s", refused.text);
}

struct bw_mmio_choice bw_map_kernels(const struct bw_map_provider *provider,
				     enum bw_caching caching)
{
	struct bw_mmio_choice choice = bw_mmio_choose(caching, bw_mmio_allowed());

	if (provider->kernels)
		provider->kernels(&choice);
	return choice;
}

/* ---- windows --------------------------------------------------------------------------------- */

static int reserve(struct bw_window *win)
{
	void *at;
	int ret = bw_mmap(&at, NULL, win->bytes, PROT_NONE, RESERVE_FLAGS, -1, 0);

	if (ret)
		return bw_err(ENOMEM, "reserve %zu bytes of address space: %s", win->bytes,
			      strerror(-ret));
	win->cpu = at;
	return 0;
}

static void free_window(struct bw_window *win)
{
	if (win->cpu)
		munmap(win->cpu, win->bytes);
	free(win->pieces);
	free(win->segs);
	free(win);
}

int bw_window_new(uint64_t addr, size_t bytes, const struct bw_map_policy *policy,
		  struct bw_window **out)
{
	struct bw_window *win = bw_alloc(sizeof(*win));
	uint64_t end = (addr + bytes + BW_PAGE - 1) & ~(BW_PAGE - 1);
	int ret;

	if (!win)
		return bw_err(ENOMEM, "no memory");
	win->addr = addr & ~(BW_PAGE - 1);
	win->bytes = end - win->addr;
	win->clamped = policy->clamp;
	ret = resolve_segments(win, addr, bytes);
	if (!ret)
		ret = cut_pieces(win);
	if (!ret)
		ret = reserve(win);
	if (!ret)
		ret = map_by_best(win, policy);
	if (ret) {
		free_window(win);
		return ret;
	}
	win->kernels = bw_map_kernels(win->provider, win->caching);
	bw_count(BW_C_DRIVER_MAPS, 1);
	bw_log(BW_LOG_INFO, "map: 0x%llx + 0x%zx: %u piece(s), provider %s, route %s",
	       (unsigned long long)win->addr, win->bytes, win->npieces, win->provider->name,
	       win->pieces[0].route);
	*out = win;
	return 0;
}

void bw_window_revoke(struct bw_window *win)
{
	revoke_pages(win);
	unmap_pieces(win, win->npieces);
	win->revoked = true;
	bw_count(BW_C_DRIVER_UNMAPS, 1);
}

void bw_window_destroy(struct bw_window *win)
{
	if (!win->revoked) {
		munmap(win->cpu, win->bytes); /* pages first, then the driver */
		win->cpu = NULL;
		unmap_pieces(win, win->npieces);
		bw_count(BW_C_DRIVER_UNMAPS, 1);
	}
	free_window(win);
}

int bw_map_configure(void)
{
	int ret = 0;

	for (int i = 0; bw_map_providers[i] && !ret; i++)
		if (bw_map_providers[i]->configure)
			ret = bw_map_providers[i]->configure();
	return ret;
}

int bw_map_release(bool force, bool forget)
{
	unsigned live = bw_cache_close(force);
	int ret = 0;

	if (live && !force) {
		ret = bw_err(EBUSY, "release: %u mapped windows are in use: unmap them, or use "
			     "BARWAY_RELEASE_FORCE", live);
	} else {
		for (int i = 0; bw_map_providers[i]; i++)
			bw_map_providers[i]->release(forget);
		if (forget)
			bw_self_test_forget();
	}
	bw_cache_open();
	return ret;
}
