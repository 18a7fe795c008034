/* SPDX-License-Identifier: BSD-3-Clause */
/* api: regions. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/net.h"

_Static_assert(BW_REGION_PUT == BARWAY_REGION_PUT && BW_REGION_GET == BARWAY_REGION_GET &&
	       BW_KEY_BYTES == sizeof(struct barway_key), "as in the public header");

static bool is_gpu(const struct bw_segment *seg)
{
	return seg->dev && seg->kind != BW_MEM_HOST && seg->kind != BW_MEM_PINNED &&
	       seg->kind != BW_MEM_HOST_VMM;
}

/* What is there: GPU memory is mapped. */
static int find(struct bw_net_object *o, uint64_t addr, size_t bytes, struct bw_device **dev)
{
	struct barway_context *ctx = bw_object_handle(o->ep->ctx);
	struct bw_segment seg;
	int ret = bw_context_devices(o->ep->ctx);

	*dev = NULL;
	if (ret < 0)
		return ret;
	ret = bw_device_resolve(addr, &seg);
	if (ret)
		return ret;
	*dev = seg.dev;
	if (seg.kind == BW_MEM_PINNED && seg.device_base && addr >= seg.device_base &&
	    addr < seg.base)
		return 0;
	return is_gpu(&seg) ? barway_map(ctx, addr, bytes, NULL, &o->map) : 0;
}

static int open_region(struct bw_net_object *o, uint64_t addr, size_t bytes, uint32_t access)
{
	struct bw_device *dev;
	int ret = find(o, addr, bytes, &dev);

	if (!ret)
		ret = bw_region_open(o->ep->ep, addr, bytes, access,
				     o->map ? bw_mapping_get(o->map) : NULL, dev, &o->region);
	if (ret && o->map) {
		struct bw_sentence kept;

		bw_err_keep(&kept);
		barway_unmap(o->map);
		bw_err_put_back(&kept);
	}
	return ret;
}

int barway_region_open(struct barway_endpoint *handle, uint64_t addr, size_t bytes, uint32_t access,
		       struct barway_region **out)
{
	struct bw_endpoint_object *e = bw_endpoint_object_get(handle);
	struct bw_net_object *o;
	int ret = 0;

	if (!e)
		return bw_handle_stale(handle, "barway_region_open", "endpoint");
	if (!out || !bytes || addr + bytes < addr)
		ret = !out ? bw_err(EINVAL, "out is NULL") : !bytes ?
		      bw_err(EINVAL, "0 bytes: give the size in bytes") :
		      bw_err(EINVAL, "the range wraps around the end of the address space");
	o = ret ? NULL : bw_net_object_new(e, BW_OBJECT_REGION);
	if (!ret)
		ret = o ? open_region(o, addr, bytes, access) : -ENOMEM;
	if (!ret)
		*out = bw_net_object_publish(o);
	else if (o)
		bw_object_free(o);
	return bw_err_prefix(ret, "barway_region_open(0x%llx, %zu bytes)",
			     (unsigned long long)addr, bytes);
}

int barway_region_close(struct barway_region *handle)
{
	struct bw_net_object *o = bw_region_object_get(handle);
	int ret;

	if (!o)
		return bw_handle_stale(handle, "barway_region_close", "region");
	ret = bw_region_close(o->region);
	if (ret)
		return bw_err_prefix(ret, "barway_region_close");
	bw_object_retire(handle, BW_OBJECT_REGION);
	bw_net_object_unlist(o);
	if (o->map)
		barway_unmap(o->map);
	bw_object_free(o);
	return 0;
}

int barway_region_key(struct barway_region *handle, struct barway_key *key)
{
	struct bw_net_object *o = bw_region_object_get(handle);

	if (!o)
		return bw_handle_stale(handle, "barway_region_key", "region");
	if (!key)
		return bw_err(EINVAL, "barway_region_key: key is NULL");
	return bw_err_prefix(bw_region_key(o->region, key->bytes), "barway_region_key");
}

int barway_region_query(struct barway_region *handle, struct barway_region_info *info)
{
	struct bw_net_object *o = bw_region_object_get(handle);
	struct barway_region_info i = { 0 };
	struct bw_region_view view;

	if (!o)
		return bw_handle_stale(handle, "barway_region_query", "region");
	bw_region_view(o->region, &view);
	i.addr = view.addr;
	i.bytes = view.bytes;
	i.access = view.access;
	i.direct = view.direct;
	snprintf(i.rung, sizeof(i.rung), "%s", view.rung);
	snprintf(i.reason, sizeof(i.reason), "%s", view.reason);
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_region_info, bytes),
			     "barway_region_query: struct barway_region_info");
}
