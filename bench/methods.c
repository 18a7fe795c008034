/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/methods.h"

#include <stdio.h>
#include <string.h>

#include "bench/copies.h"
#include "bench/reference.h"

/* Keep the sentence of a failure. */
static inline int barway(struct copies *c, int ret)
{
	if (ret < 0)
		c->error = barway_errmsg();
	return ret;
}

static inline int cuda(struct copies *c, int ret)
{
	if (ret < 0)
		c->error = bench_cuda_error(c->cuda);
	return ret;
}

static inline void *pointer(const struct copies *c)
{
	return c->ptr + c->offset;
}

static int to_by(struct copies *c, const struct copies_way *way)
{
	const void *src = way->pinned ? c->pinned : c->data;

	return barway(c, barway_copy_to_by(c->map, way->by, c->offset, src, c->n));
}

static int from_by(struct copies *c, const struct copies_way *way)
{
	void *dst = way->pinned ? c->pinned : c->work;

	return barway(c, barway_copy_from_by(c->map, way->by, dst, c->offset, c->n));
}

static int to_visible(struct copies *c, const struct copies_way *way)
{
	int ret = to_by(c, way);

	return ret < 0 ? ret : barway(c, barway_flush(c->map));
}

static int to_auto(struct copies *c, const struct copies_way *way)
{
	const void *src = way->pinned ? c->pinned : c->data;

	return barway(c, barway_copy_to(c->map, c->offset, src, c->n));
}

static int from_auto(struct copies *c, const struct copies_way *way)
{
	void *dst = way->pinned ? c->pinned : c->work;

	return barway(c, barway_copy_from(c->map, dst, c->offset, c->n));
}

static int to_reference(struct copies *c, const struct copies_way *way)
{
	(void)way;
	bench_reference_to(pointer(c), c->data, c->n);
	return 0;
}

static int from_reference(struct copies *c, const struct copies_way *way)
{
	(void)way;
	bench_reference_from(c->work, pointer(c), c->n);
	return 0;
}

static int to_cumemcpy(struct copies *c, const struct copies_way *way)
{
	(void)way;
	return cuda(c, bench_cuda_to(c->cuda, c->addr + c->offset, c->data, c->n));
}

static int from_cumemcpy(struct copies *c, const struct copies_way *way)
{
	(void)way;
	return cuda(c, bench_cuda_from(c->cuda, c->work, c->addr + c->offset, c->n));
}

static int to_pinned(struct copies *c, const struct copies_way *way)
{
	(void)way;
	return cuda(c, bench_cuda_to_pinned(c->cuda, c->addr + c->offset, c->n));
}

static int from_pinned(struct copies *c, const struct copies_way *way)
{
	(void)way;
	return cuda(c, bench_cuda_from_pinned(c->cuda, c->addr + c->offset, c->n));
}

const struct copies_way copies_ways[COPIES_METHODS] = {
	[COPIES_BARWAY] = {
		.name = "barway", .title = "barway",
		.to = to_by, .from = from_by, .by = BARWAY_METHOD_CPU,
		.movers = MOVED_BY_CPU, .lat = true, .bw = true,
	},
	[COPIES_VISIBLE] = {
		.name = "barway_visible", .title = "VISIBLE",
		.to = to_visible, .by = BARWAY_METHOD_CPU,
		.movers = MOVED_BY_CPU, .lat = true,
	},
	[COPIES_AUTO] = {
		.name = "barway_auto", .title = "auto",
		.to = to_auto, .from = from_auto, .by = BARWAY_METHOD_AUTO,
		.movers = MOVED_BY_CPU | MOVED_BY_GPU, .lat = true, .bw = true,
	},
	[COPIES_AUTO_PINNED] = {
		.name = "barway_auto_pinned", .title = "auto pinned",
		.to = to_auto, .from = from_auto, .by = BARWAY_METHOD_AUTO, .pinned = true,
		.movers = MOVED_BY_CPU | MOVED_BY_GPU, .lat = true, .bw = true,
	},
	[COPIES_THREADS] = {
		.name = "barway_threads", .title = "threads",
		.remedy = "give --helpers N",
		.to = to_by, .from = from_by, .by = BARWAY_METHOD_THREADS,
		.movers = MOVED_BY_CPU, .lat = true, .bw = true,
	},
	[COPIES_CE] = {
		.name = "barway_ce", .title = "CE",
		.to = to_by, .from = from_by, .by = BARWAY_METHOD_CE,
		.movers = MOVED_BY_GPU, .lat = true, .bw = true,
	},
	[COPIES_RESIDENT] = {
		.name = "barway_resident", .title = "resident",
		.remedy = "give --resident",
		.to = to_by, .from = from_by, .by = BARWAY_METHOD_RESIDENT,
		.pinned = true,
		.movers = MOVED_BY_GPU, .lat = true, .bw = true,
	},
	[COPIES_REFERENCE] = {
		.name = "reference", .title = "reference",
		.to = to_reference, .from = from_reference,
		.movers = MOVED_BY_CPU, .lat = true, .bw = true,
	},
	[COPIES_CUMEMCPY] = {
		.name = "cumemcpy", .title = "cuMemcpy",
		.to = to_cumemcpy, .from = from_cumemcpy, .cuda = true,
		.movers = MOVED_BY_GPU, .lat = true, .bw = true,
	},
	[COPIES_PINNED] = {
		.name = "cumemcpy_async_pinned", .title = "Async+sync",
		.to = to_pinned, .from = from_pinned, .cuda = true, .pinned = true,
		.movers = MOVED_BY_GPU, .lat = true, .bw = true,
	},
};

unsigned copies_parse(const char *list)
{
	unsigned set = 0;

	if (!strcmp(list, "all"))
		return COPIES_ALL;
	for (;;) {
		size_t n = strcspn(list, ",");
		int m = 0;

		while (m < COPIES_METHODS && (strncmp(copies_ways[m].name, list, n) ||
					      copies_ways[m].name[n]))
			m++;
		if (m == COPIES_METHODS)
			return 0;
		set |= 1u << m;
		if (!list[n])
			return set;
		list += n + 1;
	}
}

const char *copies_list(char *buf, unsigned long n)
{
	size_t at = 0;

	*buf = 0;
	for (int m = 0; m < COPIES_METHODS && at < n; m++)
		at += (size_t)snprintf(buf + at, n - at, "%s%s", m ? ", " : "",
				       copies_ways[m].name);
	return buf;
}
