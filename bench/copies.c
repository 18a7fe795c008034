/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/reference.h"

const char *const copies_method_names[COPIES_METHODS] = {
	[COPIES_BARWAY] = "barway",
	[COPIES_VISIBLE] = "barway_visible",
	[COPIES_REFERENCE] = "reference",
	[COPIES_CUMEMCPY] = "cumemcpy",
	[COPIES_PINNED] = "cumemcpy_async_pinned",
};

/* ---- the methods ------------------------------------------------------------------------- */

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

static inline void *pointer(const struct copies *c)
{
	return c->ptr + c->offset;
}

static int to_barway(void *arg)
{
	struct copies *c = arg;

	return by_barway(c, barway_copy_to(c->map, c->offset, c->data, c->n));
}

static int to_visible(void *arg)
{
	struct copies *c = arg;
	int ret = barway_copy_to(c->map, c->offset, c->data, c->n);

	return by_barway(c, ret < 0 ? ret : barway_flush(c->map));
}

static int to_reference(void *arg)
{
	struct copies *c = arg;

	bench_reference_to(pointer(c), c->data, c->n);
	return 0;
}

static int to_cumemcpy(void *arg)
{
	struct copies *c = arg;

	return by_cuda(c, bench_cuda_to(c->cuda, c->addr + c->offset, c->data, c->n));
}

static int to_pinned(void *arg)
{
	struct copies *c = arg;

	return by_cuda(c, bench_cuda_to_pinned(c->cuda, c->addr + c->offset, c->n));
}

static int from_barway(void *arg)
{
	struct copies *c = arg;

	return by_barway(c, barway_copy_from(c->map, c->work, c->offset, c->n));
}

static int from_reference(void *arg)
{
	struct copies *c = arg;

	bench_reference_from(c->work, pointer(c), c->n);
	return 0;
}

static int from_cumemcpy(void *arg)
{
	struct copies *c = arg;

	return by_cuda(c, bench_cuda_from(c->cuda, c->work, c->addr + c->offset, c->n));
}

static int from_pinned(void *arg)
{
	struct copies *c = arg;

	return by_cuda(c, bench_cuda_from_pinned(c->cuda, c->addr + c->offset, c->n));
}

static int (*const methods[COPIES_DIRECTIONS][COPIES_METHODS])(void *) = {
	[COPIES_TO] = { to_barway, to_visible, to_reference, to_cumemcpy, to_pinned },
	[COPIES_FROM] = { from_barway, NULL, from_reference, from_cumemcpy, from_pinned },
};

static bool uses_cuda(enum copies_method method)
{
	return method == COPIES_CUMEMCPY || method == COPIES_PINNED;
}

bool copies_has(const struct copies *c, enum copies_direction dir, enum copies_method method)
{
	return methods[dir][method] && (c->cuda || !uses_cuda(method));
}

/* ---- opening and closing ----------------------------------------------------------------- */

static unsigned char *buffer(size_t n)
{
	unsigned char *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);

	if (p)
		memset(p, 0x55, n); /* so that no page fault is measured */
	return p;
}

static int open_memory(struct copies *c, struct barway_device *dev)
{
	size_t bytes = c->offset + c->max;
	int ret;

	if (bytes < c->max) {
		c->error = "offset and size together are more than memory can be";
		return -EINVAL;
	}
	ret = barway_mem_alloc(dev, bytes, &c->addr);
	if (ret == 0)
		ret = barway_map(c->ctx, c->addr, bytes, NULL, &c->map);
	if (ret < 0) {
		c->error = barway_errmsg();
		return ret;
	}
	c->ptr = barway_mapping_ptr(c->map);
	c->data = buffer(c->max);
	c->work = buffer(c->max);
	if (c->data && c->work)
		return 0;
	c->error = "out of host memory for the buffers: choose a smaller size";
	return -ENOMEM;
}

int copies_open(struct copies *c, struct barway_context *ctx, struct barway_device *dev,
		size_t offset, size_t max, const char *lib)
{
	struct barway_device_info info = { .size = sizeof(info) };
	int ret;

	*c = (struct copies){ .ctx = ctx, .offset = offset, .max = max };
	ret = barway_device_query(dev, &info);
	if (ret < 0) {
		c->error = barway_errmsg();
		return ret;
	}
	ret = open_memory(c, dev);
	if (ret < 0)
		copies_close(c);
	else if (lib)
		c->cuda = bench_cuda_open(lib, info.pci, max, c->no_cuda, sizeof(c->no_cuda));
	return ret;
}

void copies_close(struct copies *c)
{
	bench_cuda_close(c->cuda);
	if (c->map)
		barway_unmap(c->map);
	if (c->addr)
		barway_mem_free(c->ctx, c->addr);
	free(c->data);
	free(c->work);
	c->cuda = NULL;
	c->map = NULL;
	c->addr = 0;
	c->data = c->work = NULL;
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

/*
 * The other way than @method's: the copy engine for what the CPU does over the mapping, the mapping
 * for what CUDA does. So that a mistake in one cannot hide itself.
 */
static int other_write(struct copies *c, enum copies_method method, const void *src)
{
	uint32_t by = uses_cuda(method) ? BARWAY_METHOD_CPU : BARWAY_METHOD_CE;
	int ret = barway_copy_to_by(c->map, by, c->offset, src, c->n);

	if (ret == 0)
		ret = barway_flush(c->map);
	return by_barway(c, ret);
}

static int other_read(struct copies *c, enum copies_method method)
{
	uint32_t by = uses_cuda(method) ? BARWAY_METHOD_CPU : BARWAY_METHOD_CE;

	return by_barway(c, barway_copy_from_by(c->map, by, c->work, c->offset, c->n));
}

/* Until what @method copied to the GPU can be read there by any way. */
static int finish(struct copies *c, enum copies_method method)
{
	int ret = uses_cuda(method) ? by_cuda(c, bench_cuda_wait(c->cuda)) : 0;

	return ret < 0 ? ret : by_barway(c, barway_flush(c->map));
}

/* GPU memory holds the complement of every byte; copy; read the other way. */
static int check_to(struct copies *c, enum copies_method method, struct copies_mismatch *m)
{
	int ret;

	complement(c->work, c->data, c->n);
	ret = other_write(c, method, c->work);
	if (ret < 0)
		return ret;
	ret = methods[COPIES_TO][method](c);
	if (ret == 0)
		ret = finish(c, method);
	if (ret == 0)
		ret = other_read(c, method);
	if (ret == 0)
		compare(c->work, c->data, c->n, m);
	return ret;
}

/* GPU memory was written the other way; the host's holds the complement; copy. */
static int check_from(struct copies *c, enum copies_method method, struct copies_mismatch *m)
{
	unsigned char *dst = method == COPIES_PINNED ? bench_cuda_pinned(c->cuda) : c->work;
	int ret = other_write(c, method, c->data);

	if (ret < 0)
		return ret;
	complement(dst, c->data, c->n);
	ret = methods[COPIES_FROM][method](c);
	if (ret == 0)
		compare(dst, c->data, c->n, m);
	return ret;
}

/* ---- measuring --------------------------------------------------------------------------- */

/* Nobody waits for what the one before him left on its way: PCIe writes are posted. */
static int drain(void *arg)
{
	return finish(arg, COPIES_BARWAY);
}

/* cuMemcpy leaves its copy engine at work. */
static int drain_cuda(void *arg)
{
	return finish(arg, COPIES_CUMEMCPY);
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
	struct bench_op ops[COPIES_METHODS];
	struct bench_result times[COPIES_METHODS];
	size_t n = 0;
	int ret;

	for (int m = 0; m < COPIES_METHODS; m++) {
		out->has[m] = copies_has(c, dir, m);
		if (out->has[m])
			ops[n++] = (struct bench_op){
				.run = methods[dir][m],
				.before = dir == COPIES_FROM ? NULL
					  : uses_cuda(m) ? drain_cuda : drain,
				.arg = c,
			};
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

int copies_measure(struct copies *c, enum copies_direction dir, size_t bytes,
		   const struct bench_plan *plan, struct copies_result *out)
{
	int ret;

	*out = (struct copies_result){ .direction = dir, .bytes = bytes };
	c->n = bytes;
	fill_random(c->data, bytes, bytes * COPIES_DIRECTIONS + dir);
	if (c->cuda)
		memcpy(bench_cuda_pinned(c->cuda), c->data, bytes);
	ret = other_write(c, COPIES_BARWAY, c->data);
	if (ret < 0)
		return ret;
	ret = run_methods(c, dir, plan, out);
	for (int m = 0; m < COPIES_METHODS && ret == 0; m++) {
		if (!out->has[m])
			continue;
		ret = dir == COPIES_TO ? check_to(c, m, &out->mismatch[m])
				       : check_from(c, m, &out->mismatch[m]);
	}
	return ret;
}

int copies_measure_flush(struct copies *c, const struct bench_plan *plan, struct bench_result *out)
{
	struct bench_op op = { .run = drain, .arg = c };

	return run(c, &op, 1, plan, out);
}

/* ---- mapping ----------------------------------------------------------------------------- */

struct map_case {
	struct barway_context *ctx;
	uint64_t addr;
	struct barway_mapping *map; /* the one that the last run made */
	const struct barway_map_options *options;
};

static int map_run(void *arg)
{
	struct map_case *m = arg;

	return barway_map(m->ctx, m->addr, COPIES_MAP_BYTES, m->options, &m->map);
}

static int map_undo(void *arg)
{
	struct map_case *m = arg;
	struct barway_mapping *map = m->map;

	m->map = NULL;
	return map ? barway_unmap(map) : 0;
}

static int measure_maps(struct map_case *m, const struct barway_map_options *options,
			const struct bench_plan *plan, struct bench_stats *out, bool *from_cache)
{
	struct bench_op op = { .run = map_run, .before = map_undo, .arg = m, .single = true };
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct bench_result times;
	int ret;

	m->options = options;
	ret = bench_run(&op, 1, plan, &times);
	if (ret == 0)
		ret = barway_mapping_query(m->map, &info);
	if (ret < 0)
		return ret;
	*out = times.alone;
	*from_cache = info.from_cache;
	return 0;
}

int copies_measure_map(struct barway_context *ctx, struct barway_device *dev,
		       const struct bench_plan *plan, struct copies_map_times *out)
{
	const struct barway_map_options anew = {
		.size = sizeof(anew),
		.flags = BARWAY_MAP_UNCACHED,
	};
	struct map_case m = { .ctx = ctx, .options = &anew };
	bool from_cache = false;
	uint64_t began;
	int ret = barway_mem_alloc(dev, COPIES_MAP_BYTES, &m.addr);

	if (ret < 0)
		return ret;
	*out = (struct copies_map_times){ 0 };
	began = bench_now();
	ret = map_run(&m);
	out->self_test_ns = (double)(bench_now() - began);
	if (ret == 0)
		ret = measure_maps(&m, &anew, plan, &out->first, &from_cache);
	if (ret == 0)
		ret = measure_maps(&m, NULL, plan, &out->from_cache, &from_cache);
	if (ret == 0 && !from_cache)
		out->from_cache = (struct bench_stats){ 0 };
	map_undo(&m);
	barway_mem_free(ctx, m.addr);
	return ret;
}

