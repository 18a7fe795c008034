/* SPDX-License-Identifier: BSD-3-Clause */
/* api: transfers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/net.h"

_Static_assert(BW_PUT == (int)BARWAY_PUT && BW_GET == (int)BARWAY_GET &&
	       BW_SEND == (int)BARWAY_SEND && BW_RECV == (int)BARWAY_RECV &&
	       BW_LOCAL == (int)BARWAY_LOCAL && BW_ARRIVED == (int)BARWAY_ARRIVED &&
	       BW_VISIBLE == (int)BARWAY_VISIBLE &&
	       sizeof(struct bw_part) == sizeof(struct barway_part) &&
	       offsetof(struct bw_part, bytes) == offsetof(struct barway_part, bytes),
	       "as in the public header");

static int read_options(const struct barway_transfer_options *options, struct bw_xfer_options *out)
{
	struct barway_transfer_options o = { 0 };
	int ret = bw_struct_in(&o, sizeof(o), offsetof(struct barway_transfer_options, key),
			       options, "struct barway_transfer_options");

	*out = (struct bw_xfer_options){
		.operation = o.operation, .path = o.path,
		.key = o.key ? o.key->bytes : NULL, .signal = o.signal ? o.signal->bytes : NULL,
		.tag = o.tag, .ignore = o.ignore, .signal_offset = o.signal_offset,
		.signal_value = o.signal_value, .deadline_ns = o.deadline_ns,
	};
	return ret;
}

int barway_transfer_prepare(struct barway_peer *peer_handle, struct barway_region *region_handle,
			    const struct barway_part *parts, size_t n,
			    const struct barway_transfer_options *options,
			    struct barway_transfer **out)
{
	struct bw_net_object *peer = bw_peer_object_get(peer_handle), *o = NULL;
	struct bw_net_object *region = bw_region_object_get(region_handle);
	struct bw_xfer_options x;
	int ret;

	if (!peer)
		return bw_handle_stale(peer_handle, "barway_transfer_prepare", "peer");
	if (!region)
		return bw_handle_stale(region_handle, "barway_transfer_prepare", "region");
	ret = out ? read_options(options, &x) : bw_err(EINVAL, "out is NULL");
	if (!ret) {
		o = bw_net_object_new(peer->ep, BW_OBJECT_TRANSFER);
		ret = !o ? -ENOMEM :
		      bw_xfer_prepare(peer->peer, region->region,
				      (const struct bw_part *)(const void *)parts, n, &x, &o->xfer);
	}
	if (!ret)
		*out = bw_net_object_publish(o);
	else if (o)
		bw_object_free(o);
	return bw_err_prefix(ret, "barway_transfer_prepare");
}

int barway_transfer_post(struct barway_transfer *handle)
{
	struct bw_net_object *o = bw_xfer_object_get(handle);

	if (unlikely(!o))
		return bw_handle_stale(handle, "barway_transfer_post", "transfer");
	return bw_err_prefix(bw_xfer_post(o->xfer), "barway_transfer_post");
}

/* Of the local memory; of host memory: the context's one device. */
static int stream_device(struct bw_net_object *o, struct bw_device **dev)
{
	struct bw_context *ctx = o->ep->ctx;
	int n;

	*dev = bw_xfer_device(o->xfer);
	if (*dev)
		return 0;
	n = bw_context_devices(ctx);
	if (n < 0)
		return n;
	if (n != 1)
		return bw_err(EINVAL, "the region is host memory that no device knows, and there "
			      "are %d devices: use barway_host_alloc() or "
				"barway_host_register()", n);
	*dev = ctx->devices[0]->dev;
	return 0;
}

int barway_transfer_post_on_stream(struct barway_transfer *handle, void *stream, int hold)
{
	struct bw_net_object *o = bw_xfer_object_get(handle);
	struct bw_device *dev;
	int ret;

	if (unlikely(!o))
		return bw_handle_stale(handle, "barway_transfer_post_on_stream", "transfer");
	ret = stream_device(o, &dev);
	if (!ret)
		ret = bw_xfer_post_on_stream(o->xfer, dev, stream, hold);
	return bw_err_prefix(ret, "barway_transfer_post_on_stream");
}

int barway_transfer_poll(struct barway_transfer *handle, uint32_t moment)
{
	struct bw_net_object *o = bw_xfer_object_get(handle);
	int ret;

	if (unlikely(!o))
		return bw_handle_stale(handle, "barway_transfer_poll", "transfer");
	ret = bw_xfer_poll(o->xfer, moment);
	return ret == -EBUSY ? ret : bw_err_prefix(ret, "barway_transfer_poll");
}

int barway_transfer_wait(struct barway_transfer *handle, uint32_t moment, uint64_t timeout_ns)
{
	struct bw_net_object *o = bw_xfer_object_get(handle);

	if (unlikely(!o))
		return bw_handle_stale(handle, "barway_transfer_wait", "transfer");
	return bw_err_prefix(bw_xfer_wait(o->xfer, moment, timeout_ns), "barway_transfer_wait");
}

int barway_transfer_fd(struct barway_transfer *handle)
{
	struct bw_net_object *o = bw_xfer_object_get(handle);

	if (!o)
		return bw_handle_stale(handle, "barway_transfer_fd", "transfer");
	return bw_err_prefix(bw_xfer_fd(o->xfer), "barway_transfer_fd");
}

int barway_transfer_cancel(struct barway_transfer *handle)
{
	struct bw_net_object *o = bw_xfer_object_get(handle);

	if (!o)
		return bw_handle_stale(handle, "barway_transfer_cancel", "transfer");
	return bw_err_prefix(bw_xfer_cancel(o->xfer), "barway_transfer_cancel");
}

int barway_transfer_free(struct barway_transfer *handle)
{
	struct bw_net_object *o = bw_object_retire(handle, BW_OBJECT_TRANSFER);

	if (!o)
		return bw_handle_stale(handle, "barway_transfer_free", "transfer");
	bw_net_object_unlist(o);
	bw_xfer_free(o->xfer);
	bw_object_free(o);
	return 0;
}

int barway_transfer_query(struct barway_transfer *handle, struct barway_transfer_info *info)
{
	struct bw_net_object *o = bw_xfer_object_get(handle);
	struct barway_transfer_info i = { 0 };
	struct bw_xfer_view v;

	if (!o)
		return bw_handle_stale(handle, "barway_transfer_query", "transfer");
	bw_xfer_view(o->xfer, &v);
	i.direct = v.direct;
	i.eager = v.eager;
	i.rails = v.rails;
	i.chunks = v.chunks;
	i.bytes = v.bytes;
	i.tag = v.tag;
	i.posted_ns = v.posted_ns;
	i.returned_ns = v.returned_ns;
	i.ready_ns = v.ready_ns;
	i.local_ns = v.local_ns;
	i.arrived_ns = v.arrived_ns;
	i.visible_ns = v.visible_ns;
	memcpy(i.path, v.path, sizeof(i.path));
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_transfer_info, bytes),
			     "barway_transfer_query: struct barway_transfer_info");
}
