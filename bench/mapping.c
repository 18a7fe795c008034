/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/mapping.h"

struct map_case {
	struct barway_context *ctx;
	uint64_t addr;
	struct barway_mapping *map; /* the one that the last run made */
	const struct barway_map_options *options;
};

static int map_run(void *arg)
{
	struct map_case *m = arg;

	return barway_map(m->ctx, m->addr, MAPPING_BYTES, m->options, &m->map);
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

int mapping_measure(struct barway_context *ctx, struct barway_device *dev,
		       const struct bench_plan *plan, struct mapping_times *out)
{
	const struct barway_map_options anew = {
		.size = sizeof(anew),
		.flags = BARWAY_MAP_UNCACHED,
	};
	struct map_case m = { .ctx = ctx, .options = &anew };
	bool from_cache = false;
	uint64_t began;
	int ret = barway_mem_alloc(dev, MAPPING_BYTES, &m.addr);

	if (ret < 0)
		return ret;
	*out = (struct mapping_times){ 0 };
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

