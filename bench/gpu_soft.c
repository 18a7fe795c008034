/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/gpu over the soft GPU: its streams, and kernels that are C functions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu_int.h"

struct gpu_soft {
	struct barway_soft_stream *copies;
};

static int soft_open(struct bench_gpu *gpu)
{
	gpu->soft = calloc(1, sizeof(*gpu->soft));
	if (!gpu->soft)
		return gpu_error(gpu, ENOMEM, "out of memory");
	return gpu_barway(gpu, barway_soft_stream_create(gpu->dev, &gpu->soft->copies));
}

static void soft_close(struct bench_gpu *gpu)
{
	if (gpu->soft)
		barway_soft_stream_destroy(gpu->soft->copies);
	free(gpu->soft);
}

/* ---- copies ------------------------------------------------------------------------------ */

struct soft_copy {
	uint64_t addr;
	void *host;
	size_t bytes;
	bool to;
};

static void copy_kernel(struct barway_soft_block *block, void *arg)
{
	const struct soft_copy *c = arg;
	void *p = barway_soft_deref(block, c->addr, c->bytes);

	if (!p)
		barway_soft_trap(block);
	else if (c->to)
		memcpy(p, c->host, c->bytes);
	else
		memcpy(c->host, p, c->bytes);
}

static int soft_copy(struct bench_gpu *gpu, uint64_t addr, void *host, size_t *bytes, bool to)
{
	struct barway_pointer_info p = { .size = sizeof(p) };
	struct soft_copy c = { .addr = addr, .host = host, .to = to };
	int ret = gpu_barway(gpu, barway_pointer_query(gpu->ctx, addr, &p));

	if (ret < 0)
		return ret;
	if (p.device != gpu->dev || addr - p.base >= p.bytes)
		return gpu_error(gpu, EINVAL, "0x%llx is not memory of the soft GPU %d",
				 (unsigned long long)addr, gpu->index);
	c.bytes = p.bytes - (addr - p.base);
	if (c.bytes > *bytes)
		c.bytes = *bytes;
	*bytes = c.bytes;
	ret = barway_soft_launch(gpu->soft->copies, copy_kernel, 1, &c, sizeof(c));
	return gpu_barway(gpu, ret < 0 ? ret : barway_soft_stream_sync(gpu->soft->copies));
}

/* ---- streams and kernels ----------------------------------------------------------------- */

static int soft_stream_create(struct bench_gpu *gpu, void **stream)
{
	struct barway_soft_stream *s = NULL;
	int ret = gpu_barway(gpu, barway_soft_stream_create(gpu->dev, &s));

	if (ret == 0)
		*stream = s;
	return ret;
}

static int soft_stream_destroy(struct bench_gpu *gpu, void *stream)
{
	return gpu_barway(gpu, barway_soft_stream_destroy(stream));
}

static int soft_stream_sync(struct bench_gpu *gpu, void *stream)
{
	return gpu_barway(gpu, barway_soft_stream_sync(stream));
}

static int soft_stream_query(struct bench_gpu *gpu, void *stream)
{
	int ret = barway_soft_stream_query(stream);

	return ret == -EBUSY ? ret : gpu_barway(gpu, ret);
}

static int soft_load(struct bench_gpu *gpu, const struct bench_kernel *kernel)
{
	return kernel->soft ? 0 : gpu_error(gpu, ENOTSUP, "kernel %s: there is none for the soft "
					    "GPU", kernel->name);
}

static int soft_launch(struct bench_gpu *gpu, void *stream, const struct bench_kernel *kernel,
		       unsigned blocks, unsigned threads, const void *param, size_t bytes)
{
	int ret = soft_load(gpu, kernel);

	(void)threads; /* each block has one */
	return ret < 0 ? ret : gpu_barway(gpu, barway_soft_launch(stream, kernel->soft, blocks,
								  param, bytes));
}

const struct gpu_ops gpu_soft_ops = {
	.name = "the soft GPU",
	.open = soft_open,
	.close = soft_close,
	.copy = soft_copy,
	.stream_create = soft_stream_create,
	.stream_destroy = soft_stream_destroy,
	.stream_sync = soft_stream_sync,
	.stream_query = soft_stream_query,
	.load = soft_load,
	.launch = soft_launch,
};
