/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies on a stream of the caller's. */
#include <errno.h>

#include "copy/ce.h"

static int one_device(void *arg, const struct bw_segment *seg, uint64_t addr, void *host,
		      size_t bytes)
{
	struct bw_device **dev = arg;

	(void)host;
	(void)bytes;
	if (*dev && *dev != seg->dev)
		return bw_err(EINVAL, "0x%llx is memory of another device than what is before it: "
			      "copy each device's part on a stream of its own",
			      (unsigned long long)addr);
	*dev = seg->dev;
	return 0;
}

struct on_stream {
	void *stream;
	enum bw_direction direction;
};

static int put_part(void *arg, const struct bw_segment *seg, uint64_t addr, void *host,
		    size_t bytes)
{
	const struct on_stream *on = arg;
	const struct bw_device_ops *ops = seg->dev->ops;

	return on->direction == BW_TO_GPU ?
	       ops->stream_copy_to(seg->dev, on->stream, addr, host, bytes) :
	       ops->stream_copy_from(seg->dev, on->stream, host, addr, bytes);
}

int bw_ce_on_stream(const struct bw_copy *copy, void *stream)
{
	struct on_stream on = { stream, copy->direction };
	struct bw_device *dev = NULL;
	int ret;

	if (!copy->bytes)
		return 0;
	ret = bw_copy_segments(copy, one_device, &dev);
	if (ret)
		return ret;
	bw_ce_order();
	return bw_copy_segments(copy, put_part, &on);
}
