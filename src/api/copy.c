/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/copy.h"

#include <errno.h>

#include "copy/ce.h"
#include "copy/plan.h"

__attribute__((cold, noinline))
int bw_copy_refuse(const char *operation, struct barway_mapping *handle, size_t offset,
		   const void *host, size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (!m)
		return bw_handle_stale(handle, operation, "mapping");
	if (!host && bytes)
		return bw_err(EINVAL, "%s: the host pointer is NULL", operation);
	if (m->span != m->bytes)
		return bw_err(EINVAL,
			      "%s: %zu bytes at offset %zu: only offsets %zu to %zu of the clamped "
			      "mapping are memory",
			      operation, bytes, offset, m->from, m->from + m->span);
	return bw_err(EINVAL,
		      "%s: %zu bytes at offset %zu are outside the mapping of %zu bytes: map a "
		      "larger range",
		      operation, bytes, offset, m->bytes);
}

/* AUTO: what the context says, which is the plan unless it was opened with a method. */
__attribute__((noinline))
static int by_plan(const char *operation, struct bw_mapping *m, enum bw_direction direction,
		   size_t offset, void *host, size_t bytes, uint32_t id)
{
	struct bw_copy copy = { .map = m, .offset = offset, .host = host, .bytes = bytes,
				.direction = direction };

	return bw_err_prefix(bw_copy_run(&copy, id ? id : m->copy_method), "%s", operation);
}

/* What is not for this thread at once: too large, or wrong. */
__attribute__((noinline))
static int not_at_once(const char *operation, struct barway_mapping *handle,
		       enum bw_direction direction, size_t offset, const void *host, size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (!bw_copy_fits(m, offset, host, bytes))
		return bw_copy_refuse(operation, handle, offset, host, bytes);
	return by_plan(operation, m, direction, offset, (void *)(uintptr_t)host, bytes,
		       BW_METHOD_AUTO);
}

/*
 * The limits are no larger than the span, so that one compare sees to both. An offset before the
 * first one wraps, past any span.
 */
int barway_copy_to(struct barway_mapping *handle, size_t offset, const void *src, size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (unlikely(!m || bytes > m->cpu_to || offset - m->from > m->span - bytes ||
		     (!src && bytes)))
		return not_at_once("barway_copy_to", handle, BW_TO_GPU, offset, src, bytes);
	bw_copy_store(m, m->base + (offset - m->from), src, bytes);
	return 0;
}

int barway_copy_from(struct barway_mapping *handle, void *dst, size_t offset, size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (unlikely(!m || bytes > m->cpu_from || offset - m->from > m->span - bytes ||
		     (!dst && bytes)))
		return not_at_once("barway_copy_from", handle, BW_FROM_GPU, offset, dst, bytes);
	bw_copy_load(m, dst, m->base + (offset - m->from), bytes);
	return 0;
}

int barway_copy_to_by(struct barway_mapping *handle, uint32_t id, size_t offset, const void *src,
		      size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (!bw_copy_fits(m, offset, src, bytes))
		return bw_copy_refuse("barway_copy_to_by", handle, offset, src, bytes);
	if (id == BARWAY_METHOD_CPU) {
		bw_copy_cpu_to(m, offset, src, bytes);
		return 0;
	}
	return by_plan("barway_copy_to_by", m, BW_TO_GPU, offset, (void *)(uintptr_t)src, bytes,
		       id);
}

int barway_copy_from_by(struct barway_mapping *handle, uint32_t id, void *dst, size_t offset,
			size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (!bw_copy_fits(m, offset, dst, bytes))
		return bw_copy_refuse("barway_copy_from_by", handle, offset, dst, bytes);
	if (id == BARWAY_METHOD_CPU) {
		bw_copy_cpu_from(m, dst, offset, bytes);
		return 0;
	}
	return by_plan("barway_copy_from_by", m, BW_FROM_GPU, offset, dst, bytes, id);
}

int bw_check_direction(const char *operation, uint32_t direction)
{
	if (direction == BARWAY_TO_GPU || direction == BARWAY_FROM_GPU)
		return 0;
	return bw_err(EINVAL, "%s: direction %u is not a value of enum barway_direction", operation,
		      direction);
}

int barway_copy_on_stream(struct barway_mapping *handle, uint32_t direction, size_t offset,
			  void *host, size_t bytes, void *stream)
{
	struct bw_mapping *m = bw_mapping_get(handle);
	struct bw_copy copy = { .map = m, .offset = offset, .host = host, .bytes = bytes };
	int ret;

	if (!bw_copy_fits(m, offset, host, bytes))
		return bw_copy_refuse("barway_copy_on_stream", handle, offset, host, bytes);
	ret = bw_check_direction("barway_copy_on_stream", direction);
	if (ret)
		return ret;
	copy.direction = (enum bw_direction)direction;
	return bw_err_prefix(bw_ce_on_stream(&copy, stream), "barway_copy_on_stream");
}

void barway_fence_publish(void)
{
	bw_fence_publish();
}

void barway_fence_mixed(void)
{
	bw_fence_mixed();
}

void barway_fence_read(void)
{
	bw_fence_read();
}

int barway_flush(struct barway_mapping *handle)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (unlikely(!m))
		return bw_handle_stale(handle, "barway_flush", "mapping");
	bw_copy_flush(m);
	return 0;
}
