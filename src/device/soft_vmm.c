/* SPDX-License-Identifier: BSD-3-Clause */
/* VMM of the soft GPU: handles, reserved addresses, one mapped in the other; and memory of other
 * processes. */
#include <errno.h>
#include <stdlib.h>

#include "core/fault.h"
#include "device/soft_range.h"

struct bw_soft_handle {
	unsigned epoch;
	struct soft_card *card;
	uint32_t page, pages;
};

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
	ret = h ? soft_may_alloc(c, bytes) : bw_err(ENOMEM, "soft GPU: no host memory");
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
	ret = soft_range_new(RANGE_RESERVED, bytes, 0, &r);
	if (!ret) {
		soft_range_add(r, NULL, 0);
		*addr = r->addr;
	}
	soft_leave();
	return ret;
}

/* The reservation that @addr is in, mapped or not. */
static struct soft_range *reserved_at(uint64_t addr)
{
	struct soft_range *r = soft_range_at(addr);

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
		soft_range_delete(r);
	soft_leave();
	return ret;
}

/* Is [addr, addr + bytes) in @r, with nothing mapped there? */
static bool unmapped(struct soft_range *r, uint64_t addr, uint64_t bytes)
{
	if (!r || bytes > r->bytes || addr - r->addr > r->bytes - bytes)
		return false;
	for (uint64_t at = addr; at < addr + bytes; at += BW_SOFT_PAGE)
		if (soft_range_at(at) != r)
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
		ret = soft_range_new(RANGE_MAPPED, bytes, addr, &r);
	if (!ret) {
		soft_card_get(handle->card, handle->page);
		r->parent = parent;
		r->one = (struct soft_alloc){ addr, bytes, soft_next_id() };
		parent->used++;
		soft_range_add(r, handle->card, handle->page);
	}
	soft_leave();
	return ret;
}

int bw_soft_mem_unmap(uint64_t addr)
{
	struct soft_range *r;
	bool ours;

	soft_take_lock();
	r = soft_range_at(addr);
	ours = r && r->kind == RANGE_MAPPED && r->addr == addr;
	if (ours) {
		r->parent->used--;
		soft_range_delete(r);
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
	r = soft_range_at(addr);
	a = soft_alloc_at(r, addr);
	if (!a || a->base != addr)
		ret = bw_err(ENOENT,
			     "export 0x%llx: not the start of an allocation of the soft GPU",
			     (unsigned long long)addr);
	else if (r->kind == RANGE_MAPPED || r->kind == RANGE_IMPORTED ||
		 r->kind == RANGE_PINNED)
		ret = bw_err(ENOTSUP,
			     "export 0x%llx: it is %s: only allocated memory can be exported",
			     (unsigned long long)addr, bw_mem_kind_name(soft_mem_kind(r)));
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
		      soft_range_new(RANGE_IMPORTED, span, 0, &r);
	if (ret) {
		soft_card_put(c, page);
		return ret;
	}
	r->one = (struct soft_alloc){ r->addr + offset, bytes, soft_next_id() };
	soft_range_add(r, c, page);
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
	r = soft_range_at(addr);
	ours = r && r->kind == RANGE_IMPORTED && r->one.base == addr;
	if (ours)
		soft_range_delete(r);
	soft_leave();
	return ours ? 0 : bw_err(ENOENT, "close 0x%llx: not imported, or closed before",
				 (unsigned long long)addr);
}

