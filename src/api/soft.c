/* SPDX-License-Identifier: BSD-3-Clause */
/* The soft GPU in public: include/barway_soft.h. A stream is the device layer's own handle. */
#include <barway_soft.h>
#include <errno.h>

#include "api/api.h"
#include "device/soft.h"

static struct bw_soft_stream *inner(struct barway_soft_stream *stream)
{
	return (struct bw_soft_stream *)stream;
}

int barway_soft_stream_create(struct barway_device *handle, struct barway_soft_stream **out)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	struct bw_soft_stream *s;
	int ret;

	if (!d)
		return bw_handle_stale(handle, "barway_soft_stream_create", "device");
	if (!out)
		return bw_err(EINVAL, "barway_soft_stream_create: out is NULL");
	if (d->dev->ops->kind != BW_DEVICE_SOFT)
		return bw_err(ENOTSUP, "barway_soft_stream_create: %s is not a soft GPU: use its "
			      "driver's streams", d->dev->name);
	ret = bw_soft_stream_create(d->dev, &s);
	if (!ret)
		*out = (struct barway_soft_stream *)s;
	return bw_err_prefix(ret, "barway_soft_stream_create");
}

int barway_soft_stream_sync(struct barway_soft_stream *stream)
{
	return bw_err_prefix(bw_soft_stream_sync(inner(stream)), "barway_soft_stream_sync");
}

int barway_soft_stream_query(struct barway_soft_stream *stream)
{
	int ret = bw_soft_stream_query(inner(stream));

	return ret == -EBUSY ? ret : bw_err_prefix(ret, "barway_soft_stream_query");
}

int barway_soft_stream_destroy(struct barway_soft_stream *stream)
{
	return bw_err_prefix(bw_soft_stream_destroy(inner(stream)), "barway_soft_stream_destroy");
}

int barway_soft_launch(struct barway_soft_stream *stream, barway_soft_kernel *kernel,
		       unsigned blocks, const void *arg, size_t bytes)
{
	return bw_err_prefix(bw_soft_launch(inner(stream), kernel, blocks, arg, bytes),
			     "barway_soft_launch");
}

unsigned barway_soft_block_index(const struct barway_soft_block *block)
{
	return bw_soft_block_index(block);
}

unsigned barway_soft_block_count(const struct barway_soft_block *block)
{
	return bw_soft_block_count(block);
}

void *barway_soft_deref(struct barway_soft_block *block, uint64_t addr, size_t bytes)
{
	return bw_soft_deref(block, addr, bytes);
}

void barway_soft_store64(struct barway_soft_block *block, void *p, uint64_t v)
{
	bw_soft_store64(block, p, v);
}

void barway_soft_fence(struct barway_soft_block *block)
{
	bw_soft_fence(block);
}

void barway_soft_trap(struct barway_soft_block *block)
{
	bw_soft_trap(block);
}

int barway_soft_trapped(const struct barway_soft_block *block)
{
	return bw_soft_trapped(block);
}
