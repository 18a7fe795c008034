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
