/* SPDX-License-Identifier: BSD-3-Clause */
/* map/soft: the provider for the soft GPU: windows of its aperture. */
#include "device/soft.h"

#include <errno.h>
#include <stdio.h>

#include "core/param.h"
#include "map/providers.h"
#include "mmio/kernels.h"

static int soft_score(struct bw_device *dev, struct bw_reason *why)
{
	if (dev && dev->ops != &bw_soft_ops) {
		bw_reason_set(why, "for the soft GPU only");
		return -1;
	}
	bw_reason_set(why,
		      "the soft GPU's memory is this machine's; figures say nothing about a GPU");
	return 10;
}

static int soft_accepts(const struct bw_segment *seg, struct bw_reason *why)
{
	if (seg->kind == BW_MEM_DEVICE || seg->kind == BW_MEM_VMM || seg->kind == BW_MEM_IMPORTED)
		return 0;
	bw_reason_set(why, "%s: %s", bw_mem_kind_name(seg->kind), bw_instead_of(seg->kind));
	return -ENOTSUP;
}

static int soft_map(struct bw_piece *piece, void *at, enum bw_caching *caching)
{
	struct bw_soft_window *window;
	int ret = bw_soft_window_open(piece->addr, piece->bytes, at, &window);

	if (ret)
		return ret;
	piece->priv = window;
	snprintf(piece->route, sizeof(piece->route), "page table");
	/* ordinary memory, but handled as a GPU's so that the same kernels run */
	*caching = BW_WC;
	return 0;
}

static void soft_unmap(struct bw_piece *piece)
{
	bw_soft_window_close(piece->priv);
	piece->priv = NULL;
}

static void soft_kernels(struct bw_mmio_choice *choice)
{
	if (bw_param_size(BW_P_SOFT_SHUFFLE))
		choice->store = &bw_mmio_shuffle;
}

static int soft_bar1(struct bw_device *dev, uint64_t *total, uint64_t *free)
{
	if (dev->ops != &bw_soft_ops)
		return -ENODATA;
	bw_soft_aperture(dev, total, free);
	return 0;
}

static void soft_release(bool forget)
{
	(void)forget;
}

const struct bw_map_provider bw_map_soft = {
	.name = "soft",
	.keeps_alive = true,
	.score = soft_score,
	.accepts = soft_accepts,
	.map = soft_map,
	.unmap = soft_unmap,
	.kernels = soft_kernels,
	.bar1 = soft_bar1,
	.release = soft_release,
};
