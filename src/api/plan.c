/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/copy.h"
#include "core/fault.h"

_Static_assert((int)BW_METHOD_RESIDENT == (int)BARWAY_METHOD_RESIDENT, "enum barway_method");
_Static_assert((int)BW_FROM_GPU == (int)BARWAY_FROM_GPU, "enum barway_direction");

int barway_plan(struct barway_mapping *handle, uint32_t direction, size_t offset,
		const void *host, size_t bytes, struct barway_plan_info *info)
{
	struct bw_mapping *m = bw_mapping_get(handle);
	struct barway_plan_info i = { 0 };
	const struct bw_copy_method *method;
	struct bw_reason why = { "" };
	const struct bw_plan *plan;
	struct bw_segment seg;
	struct bw_copy copy;

	if (!m)
		return bw_handle_stale(handle, "barway_plan", "mapping");
	if (direction != BARWAY_TO_GPU && direction != BARWAY_FROM_GPU)
		return bw_err(EINVAL, "barway_plan: direction %u is not a value of enum "
			      "barway_direction", direction);
	if (!bw_copy_fits(m, offset, m, bytes))
		return bw_err(EINVAL, "barway_plan: %zu bytes at offset %zu are outside the "
			      "mapping of %zu bytes: map a larger range", bytes, offset, m->bytes);
	copy = (struct bw_copy){ .map = m, .offset = offset, .host = (void *)(uintptr_t)host,
				 .bytes = bytes, .direction = direction };
	bw_copy_find_host(&copy);
	if (m->copy_method == BW_METHOD_AUTO) {
		method = bw_plan_choose(&copy, &i.estimate_ns, &why);
	} else {
		method = bw_copy_method(m->copy_method);
		if (method->score(&copy, &why) < 0)
			return bw_err(ENOTSUP, "barway_plan: method %s, which the context was "
				      "opened with: %s", method->name, why.text);
		bw_reason_set(&why, "the context was opened with this method");
		i.estimate_ns = bw_curve_ns(bw_plan_curve(bw_plan_of(m->win->segs[0].dev),
							  method->id, &copy), bytes);
	}
	i.method = method->id;
	i.host_kind = BARWAY_MEM_HOST;
	if (host && !bw_device_resolve((uintptr_t)host, &seg))
		i.host_kind = seg.kind;
	snprintf(i.name, sizeof(i.name), "%s", method->name);
	plan = bw_plan_of(m->win->segs[0].dev);
	snprintf(i.source, sizeof(i.source), "%s", plan->source);
	snprintf(i.reason, sizeof(i.reason), "%s", why.text);
	snprintf(i.file, sizeof(i.file), "%s", plan->file);
	snprintf(i.ignored, sizeof(i.ignored), "%s", plan->ignored);
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_plan_info, reason),
			     "barway_plan: struct barway_plan_info");
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct told {
	barway_tune_fn fn;
	void *arg;
};

static int tell(void *arg, const struct bw_tune_point *p)
{
	const struct told *told = arg;
	struct barway_tune_point point = {
		.size = sizeof(point), .direction = p->direction, .method = p->method,
		.pinned = p->pinned, .threads = p->threads, .bytes = p->bytes, .ns = p->ns,
		.done = p->done, .total = p->total, .min_ns = p->min_ns, .p99_ns = p->p99_ns,
	};

	return told->fn(told->arg, &point);
}

#define TUNE_BYTES (64ull << 20)

int barway_tune(struct barway_device *handle, barway_tune_fn fn, void *arg, const char *path)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	struct barway_map_options options = { .size = sizeof(options),
					      .flags = BARWAY_MAP_UNCACHED };
	struct told told = { fn, arg };
	struct barway_mapping *map;
	struct bw_plan *plan;
	uint64_t addr;
	int ret;

	if (!d)
		return bw_handle_stale(handle, "barway_tune", "device");
	plan = bw_alloc(sizeof(*plan));
	if (!plan)
		return bw_err(ENOMEM, "barway_tune: no memory");
	ret = d->dev->ops->mem_alloc(d->dev, TUNE_BYTES, &addr);
	if (ret) {
		free(plan);
		return bw_err_prefix(ret, "barway_tune");
	}
	ret = barway_map(bw_object_handle(d->ctx), addr, TUNE_BYTES, &options, &map);
	if (!ret) {
		ret = bw_tune(bw_mapping_get(map), fn ? tell : NULL, &told, plan);
		barway_unmap(map);
	}
	d->dev->ops->mem_free(addr);
	if (!ret && (!path || *path))
		ret = bw_plan_write(d->dev, plan, path);
	free(plan);
	return bw_err_prefix(ret, "barway_tune");
}
