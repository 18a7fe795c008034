/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/device.h"

#include <errno.h>

#include "device/cuda.h"
#include "device/soft.h"

const struct bw_device_ops *const bw_device_kinds[] = { &bw_cuda_ops, &bw_soft_ops, NULL };

const struct bw_device_ops *bw_device_kind_ops(enum bw_device_kind kind)
{
	for (unsigned i = 0; bw_device_kinds[i]; i++)
		if (bw_device_kinds[i]->kind == kind)
			return bw_device_kinds[i];
	return NULL;
}

int bw_device_resolve(uint64_t addr, struct bw_segment *seg)
{
	unsigned n = 0;
	int ret;

	while (bw_device_kinds[n])
		n++;
	while (n--) { /* from the end: the soft GPU only looks whether it is in its range */
		ret = bw_device_kinds[n]->resolve(addr, seg);
		if (ret != -ENOENT)
			return ret;
	}
	*seg = (struct bw_segment){ .kind = BW_MEM_HOST };
	return 0;
}

/* What there is to say against @s, @at a place of the range that it is to hold, as a part of it. */
static int check_segment(const struct bw_device *dev, const struct bw_segment *s,
			 const struct bw_segment *first, uint64_t at, uint64_t addr)
{
	if (s->kind == BW_MEM_MANAGED)
		return bw_err(ENOTSUP, "0x%llx is managed memory, which moves between host and "
			      "GPU: use cudaMalloc memory", (unsigned long long)at);
	if (s->dev != dev || s->kind == BW_MEM_PINNED || s->kind == BW_MEM_HOST_VMM)
		return bw_err(EFAULT, "0x%llx is %s, not memory of GPU %d: give its own",
			      (unsigned long long)at, bw_mem_kind_name(s->kind), dev->index);
	if (at != addr && (s->kind != BW_MEM_VMM || first->kind != BW_MEM_VMM))
		return bw_err(ENOTSUP, "0x%llx begins another allocation: take each by itself",
			      (unsigned long long)at);
	return 0;
}

int bw_device_span(struct bw_device *dev, uint64_t addr, size_t bytes, struct bw_segment *first,
		   unsigned *n)
{
	uint64_t at = addr, left = bytes, there;
	struct bw_segment s;
	int ret;

	if (!bytes)
		return bw_err(EINVAL, "0 bytes: give the size");
	for (*n = 0; left; (*n)++) {
		if (dev->ops->resolve(at, &s))
			return bw_err(EFAULT, "0x%llx is not memory of GPU %d%s: give a range of "
				      "it", (unsigned long long)at, dev->index,
				      *n ? ", and the range goes beyond" : "");
		if (!*n)
			*first = s;
		ret = check_segment(dev, &s, first, at, addr);
		if (ret)
			return ret;
		there = s.base + s.bytes - at;
		at += there;
		left -= there < left ? there : left;
	}
	return 0;
}

const char *bw_mem_kind_name(enum bw_mem_kind kind)
{
	switch (kind) {
	case BW_MEM_HOST:
		return "plain host memory";
	case BW_MEM_DEVICE:
		return "cudaMalloc memory";
	case BW_MEM_VMM:
		return "cuMemCreate memory";
	case BW_MEM_POOL:
		return "memory of a stream-ordered pool";
	case BW_MEM_MANAGED:
		return "managed memory";
	case BW_MEM_PINNED:
		return "pinned host memory";
	case BW_MEM_IMPORTED:
		return "memory imported from another process";
	case BW_MEM_HOST_VMM:
		return "cuMemCreate memory on the host";
	}
	return "memory of an unknown kind";
}
