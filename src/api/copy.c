/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/copy.h"

#include <errno.h>

#include "api/api.h"

/* Out of the way of the fast path. */
__attribute__((cold, noinline))
static int refuse(const char *operation, struct barway_mapping *handle, size_t offset,
		  const void *host, size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (!m)
		return bw_handle_stale(handle, operation, "mapping");
	if (!host && bytes)
		return bw_err(EINVAL, "%s: the host pointer is NULL", operation);
	if (m->from || m->to != m->bytes)
		return bw_err(EINVAL,
			      "%s: %zu bytes at offset %zu: only offsets %zu to %zu of the clamped "
			      "mapping are memory",
			      operation, bytes, offset, m->from, m->to);
	return bw_err(EINVAL,
		      "%s: %zu bytes at offset %zu are outside the mapping of %zu bytes: map a "
		      "larger range",
		      operation, bytes, offset, m->bytes);
}

static inline bool fits(const struct bw_mapping *m, size_t offset, const void *host, size_t bytes)
{
	return m && offset >= m->from && offset <= m->to && bytes <= m->to - offset &&
	       (host || !bytes);
}

int barway_copy_to(struct barway_mapping *handle, size_t offset, const void *src, size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (unlikely(!fits(m, offset, src, bytes)))
		return refuse("barway_copy_to", handle, offset, src, bytes);
	bw_copy_cpu_to(m, offset, src, bytes);
	return 0;
}

int barway_copy_from(struct barway_mapping *handle, void *dst, size_t offset, size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (unlikely(!fits(m, offset, dst, bytes)))
		return refuse("barway_copy_from", handle, offset, dst, bytes);
	bw_copy_cpu_from(m, dst, offset, bytes);
	return 0;
}

static int unknown_method(const char *operation, uint32_t id)
{
	return bw_err(ENOTSUP, "%s: method %u is not a value of enum barway_method", operation, id);
}

int barway_copy_to_by(struct barway_mapping *handle, uint32_t id, size_t offset, const void *src,
		      size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);
	const struct bw_copy_method *method = bw_copy_method(id);

	if (!fits(m, offset, src, bytes))
		return refuse("barway_copy_to_by", handle, offset, src, bytes);
	if (!method)
		return unknown_method("barway_copy_to_by", id);
	return bw_err_prefix(method->to(m, offset, src, bytes), "barway_copy_to_by");
}

int barway_copy_from_by(struct barway_mapping *handle, uint32_t id, void *dst, size_t offset,
			size_t bytes)
{
	struct bw_mapping *m = bw_mapping_get(handle);
	const struct bw_copy_method *method = bw_copy_method(id);

	if (!fits(m, offset, dst, bytes))
		return refuse("barway_copy_from_by", handle, offset, dst, bytes);
	if (!method)
		return unknown_method("barway_copy_from_by", id);
	return bw_err_prefix(method->from(m, dst, offset, bytes), "barway_copy_from_by");
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
