/* SPDX-License-Identifier: BSD-3-Clause */
/* The aperture of the soft GPU: windows, which map a piece of its memory for the CPU. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/fault.h"
#include "device/soft_range.h"

struct bw_soft_window {
	unsigned epoch;
	struct soft_card *card;
	uint32_t page;
	uint64_t held; /* aperture pages */
};

/* Does each CPU page of [addr, addr + bytes) hold bytes of a segment, all of one block? */
static bool window_fits(struct soft_range *r, uint64_t addr, uint64_t bytes)
{
	if (!r || r->kind == RANGE_RESERVED || r->kind == RANGE_PINNED || !bytes ||
	    addr % SOFT_CPU_PAGE || bytes % SOFT_CPU_PAGE || bytes > r->addr + r->bytes - addr)
		return false;
	if (!r->step) /* the pages around the one segment */
		return addr >= (r->one.base & ~(uint64_t)(SOFT_CPU_PAGE - 1)) &&
		       addr + bytes <= soft_round_up(r->one.base + r->one.bytes, SOFT_CPU_PAGE);
	for (uint64_t page = addr; page < addr + bytes; page += SOFT_CPU_PAGE) {
		struct soft_alloc **s = r->step + (page - r->addr) / BW_SOFT_STEP;
		unsigned i = 0;

		while (i < SOFT_CPU_PAGE / BW_SOFT_STEP && !s[i])
			i++;
		if (i == SOFT_CPU_PAGE / BW_SOFT_STEP)
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
	struct soft_range *r = soft_range_at(addr);
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
