/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Keep the sentence of a failure. */
static inline int by_barway(struct copies *c, int ret)
{
	if (ret < 0)
		c->error = barway_errmsg();
	return ret;
}

static inline int by_cuda(struct copies *c, int ret)
{
	if (ret < 0)
		c->error = bench_cuda_error(c->cuda);
	return ret;
}

bool copies_has(const struct copies *c, enum copies_direction dir, enum copies_method method)
{
	const struct copies_way *w = &copies_ways[method];

	return (c->methods >> method & 1) && (dir == COPIES_TO ? w->to : w->from) &&
	       (c->cuda || !w->cuda);
}

int copies_one(struct copies *c, enum copies_direction dir, enum copies_method method)
{
	const struct copies_way *w = &copies_ways[method];

	return dir == COPIES_TO ? w->to(c, w) : w->from(c, w);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static unsigned char *buffer(size_t n)
{
	unsigned char *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);

	if (p)
		memset(p, 0x55, n); /* so that no page fault is measured */
	return p;
}

/* The memory itself. */
static int allocate(struct copies *c, struct barway_device *dev, size_t bytes)
{
	if (!c->own_memory)
		return by_barway(c, barway_mem_alloc(dev, bytes, &c->addr));
	if (!c->cuda) {
		c->error = c->no_cuda;
		return -ENOTSUP;
	}
	return by_cuda(c, bench_cuda_alloc(c->cuda, bytes, &c->addr));
}

static int open_memory(struct copies *c, struct barway_device *dev)
{
	size_t bytes = c->offset + c->max;
	int ret;

	if (bytes < c->max) {
		c->error = "offset and size together are more than memory can be";
		return -EINVAL;
	}
	ret = allocate(c, dev, bytes);
	if (ret == 0)
		ret = by_barway(c, barway_map(c->ctx, c->addr, bytes, NULL, &c->map));
	if (ret < 0)
		return ret;
	c->ptr = barway_mapping_ptr(c->map);
	c->data = buffer(c->max);
	c->work = buffer(c->max);
	if (c->data && c->work)
		return 0;
	c->error = "out of host memory for the buffers: choose a smaller size";
	return -ENOMEM;
}

static bool wants_pinned(const struct copies *c)
{
	for (int m = 0; m < COPIES_METHODS; m++) {
		if ((c->methods >> m & 1) && copies_ways[m].pinned && !copies_ways[m].cuda)
			return true;
	}
	return false;
}

static int open_pinned(struct copies *c, struct barway_device *dev)
{
	void *host = NULL;
	int ret = 0;

	if (wants_pinned(c))
		ret = by_barway(c, barway_host_alloc(dev, c->max, &host, NULL));
	c->pinned = host;
	return ret;
}

/* Barway says for each whether it has that method here. */
static int try_methods(struct copies *c)
{
	c->n = 1;
	for (int m = 0; m < COPIES_METHODS; m++) {
		int ret;

		if (!(c->methods >> m & 1) || copies_ways[m].cuda || !copies_ways[m].remedy)
			continue;
		ret = copies_one(c, COPIES_TO, m);
		if (ret == -ENOTSUP) {
			c->methods &= ~(1u << m);
			c->refused |= 1u << m;
		} else if (ret < 0) {
			return ret;
		}
	}
	return 0;
}

int copies_open(struct copies *c, struct barway_context *ctx, struct barway_device *dev,
		const struct copies_options *options)
{
	struct barway_device_info info = { .size = sizeof(info) };
	int ret;

	*c = (struct copies){
		.ctx = ctx,
		.offset = options->offset,
		.max = options->max,
		.methods = options->methods,
		.own_memory = options->cu_mem_alloc,
		.no_cuda = "there is no CUDA on the soft GPU",
	};
	ret = by_barway(c, barway_device_query(dev, &info));
	if (ret < 0)
		return ret;
	if (options->cuda_lib)
		c->cuda = bench_cuda_open(options->cuda_lib, info.pci, c->max, c->no_cuda,
					  sizeof(c->no_cuda));
	ret = open_memory(c, dev);
	if (ret == 0)
		ret = open_pinned(c, dev);
	if (ret == 0)
		ret = try_methods(c);
	if (ret < 0)
		copies_close(c);
	return ret;
}

void copies_close(struct copies *c)
{
	if (c->map)
		barway_unmap(c->map);
	if (c->addr && c->own_memory)
		bench_cuda_free(c->cuda, c->addr);
	else if (c->addr)
		barway_mem_free(c->ctx, c->addr);
	if (c->pinned)
		barway_host_free(c->ctx, c->pinned);
	bench_cuda_close(c->cuda);
	free(c->data);
	free(c->work);
	c->cuda = NULL;
	c->map = NULL;
	c->addr = 0;
	c->data = c->work = c->pinned = NULL;
}

/* ---- data and its check ------------------------------------------------------------------ */

static void fill_random(unsigned char *p, size_t n, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < n; i += 8) {
		size_t part = n - i < 8 ? n - i : 8;

		x ^= x << 13; /* Marsaglia's xorshift64 */
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(p + i, &x, part);
	}
}

static void complement(unsigned char *dst, const unsigned char *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dst[i] = (unsigned char)~src[i];
}

static void compare(const unsigned char *got, const unsigned char *want, size_t n,
		    struct copies_mismatch *m)
{
	*m = (struct copies_mismatch){ 0 };
	if (!memcmp(got, want, n))
		return;
	for (size_t i = n; i-- > 0;) {
		if (got[i] == want[i])
			continue;
		m->bytes++;
		m->first = i;
		m->got = got[i];
		m->want = want[i];
	}
}

/* By the copy engine, or by the CPU over the mapping. */
static int other_write(struct copies *c, uint32_t by, const void *src)
{
	int ret = barway_copy_to_by(c->map, by, c->offset, src, c->n);

	if (ret == 0)
		ret = barway_flush(c->map);
	return by_barway(c, ret);
}

static int other_read(struct copies *c, uint32_t by)
{
	return by_barway(c, barway_copy_from_by(c->map, by, c->work, c->offset, c->n));
}

/* Until what @method copied to the GPU can be read there by any way. */
static int finish(struct copies *c, enum copies_method method)
{
	int ret = copies_ways[method].cuda ? by_cuda(c, bench_cuda_wait(c->cuda)) : 0;

	return ret < 0 ? ret : by_barway(c, barway_flush(c->map));
}

/* GPU memory holds the complement of every byte; copy; read it @by another way. */
static int check_to(struct copies *c, enum copies_method method, uint32_t by,
		    struct copies_mismatch *m)
{
	int ret;

	complement(c->work, c->data, c->n);
	ret = other_write(c, by, c->work);
	if (ret < 0)
		return ret;
	ret = copies_one(c, COPIES_TO, method);
	if (ret == 0)
		ret = finish(c, method);
	if (ret == 0)
		ret = other_read(c, by);
	if (ret == 0)
		compare(c->work, c->data, c->n, m);
	return ret;
}

/* Where copies from the GPU land. */
static unsigned char *landing(const struct copies *c, enum copies_method method)
{
	const struct copies_way *w = &copies_ways[method];

	return !w->pinned ? c->work : w->cuda ? bench_cuda_pinned(c->cuda) : c->pinned;
}

/* GPU memory was written @by another way; the host's holds the complement; copy. */
static int check_from(struct copies *c, enum copies_method method, uint32_t by,
		      struct copies_mismatch *m)
{
	unsigned char *dst = landing(c, method);
	int ret = other_write(c, by, c->data);

	if (ret < 0)
		return ret;
	complement(dst, c->data, c->n);
	ret = copies_one(c, COPIES_FROM, method);
	if (ret == 0)
		compare(dst, c->data, c->n, m);
	return ret;
}

/* Pinned memory is source and destination: put back what checking took away. */
static void fill_pinned(struct copies *c)
{
	if (c->cuda)
		memcpy(bench_cuda_pinned(c->cuda), c->data, c->n);
	if (c->pinned)
		memcpy(c->pinned, c->data, c->n);
}

int copies_check(struct copies *c, enum copies_direction dir, enum copies_method method,
		 struct copies_mismatch *m)
{
	static const struct {
		unsigned mover;
		uint32_t by; /* who checks */
	} checks[] = {
		{ MOVED_BY_CPU, BARWAY_METHOD_CE },
		{ MOVED_BY_GPU, BARWAY_METHOD_CPU },
	};
	int ret = 0;

	*m = (struct copies_mismatch){ 0 };
	for (int i = 0; i < 2 && ret == 0 && !m->bytes; i++) {
		if (!(copies_ways[method].movers & checks[i].mover))
			continue;
		fill_pinned(c);
		ret = dir == COPIES_TO ? check_to(c, method, checks[i].by, m)
				       : check_from(c, method, checks[i].by, m);
	}
	return ret;
}

/* ---- measuring --------------------------------------------------------------------------- */

/* One method in one direction, as the harness calls it. */
struct call {
	struct copies *c;
	const struct copies_way *way;
	enum copies_method method;
};

static int call_to(void *arg)
{
	struct call *x = arg;

	return x->way->to(x->c, x->way);
}

static int call_from(void *arg)
{
	struct call *x = arg;

	return x->way->from(x->c, x->way);
}

/*
 * Nobody waits for what the one before him left on its way: PCIe writes are posted, and cuMemcpy
 * leaves its copy engine at work.
 */
static int drain(void *arg)
{
	struct call *x = arg;

	return finish(x->c, x->method);
}

/* To the GPU, no more than each method needs: it is timed. */
int copies_arrived(struct copies *c, enum copies_direction dir, enum copies_method method)
{
	const struct copies_way *w = &copies_ways[method];

	if (dir == COPIES_FROM || (w->cuda && w->pinned))
		return 0; /* returned when it was there */
	if (w->cuda)
		return by_cuda(c, bench_cuda_wait(c->cuda));
	return w->movers & MOVED_BY_CPU ? by_barway(c, barway_flush(c->map)) : 0;
}

static int arrive(void *arg)
{
	struct call *x = arg;

	return copies_arrived(x->c, COPIES_TO, x->method);
}

/* bench_run() with the sentence of its own failure. */
static int run(struct copies *c, const struct bench_op *ops, size_t n,
	       const struct bench_plan *plan, struct bench_result *out)
{
	c->error = "out of host memory for the samples: choose fewer repetitions";
	return bench_run(ops, n, plan, out);
}

static int run_methods(struct copies *c, enum copies_direction dir, const struct bench_plan *plan,
		       struct copies_result *out)
{
	struct call calls[COPIES_METHODS];
	struct bench_op ops[COPIES_METHODS];
	struct bench_result times[COPIES_METHODS];
	size_t n = 0;
	int ret;

	for (int m = 0; m < COPIES_METHODS; m++) {
		out->has[m] = copies_has(c, dir, m);
		if (!out->has[m])
			continue;
		calls[n] = (struct call){ c, &copies_ways[m], m };
		ops[n] = (struct bench_op){
			.run = dir == COPIES_TO ? call_to : call_from,
			.before = dir == COPIES_TO ? drain : NULL,
			.finish = dir == COPIES_TO && plan->rows_only ? arrive : NULL,
			.arg = &calls[n],
		};
		n++;
	}
	ret = run(c, ops, n, plan, times);
	if (ret < 0)
		return ret;
	n = 0;
	for (int m = 0; m < COPIES_METHODS; m++) {
		if (out->has[m])
			out->times[m] = times[n++];
	}
	return 0;
}

int copies_prepare(struct copies *c, enum copies_direction dir, size_t bytes)
{
	c->n = bytes;
	fill_random(c->data, bytes, bytes * COPIES_DIRECTIONS + dir);
	fill_pinned(c);
	return other_write(c, BARWAY_METHOD_CE, c->data);
}

int copies_measure(struct copies *c, enum copies_direction dir, size_t bytes,
		   const struct bench_plan *plan, struct copies_result *out)
{
	int ret;

	*out = (struct copies_result){ .direction = dir, .bytes = bytes };
	ret = copies_prepare(c, dir, bytes);
	if (ret == 0)
		ret = run_methods(c, dir, plan, out);
	for (int m = 0; m < COPIES_METHODS && ret == 0; m++) {
		if (out->has[m])
			ret = copies_check(c, dir, m, &out->mismatch[m]);
	}
	return ret;
}

int copies_measure_flush(struct copies *c, const struct bench_plan *plan, struct bench_result *out)
{
	struct call x = { c, &copies_ways[COPIES_BARWAY], COPIES_BARWAY };
	struct bench_op op = { .run = drain, .arg = &x };

	return run(c, &op, 1, plan, out);
}
