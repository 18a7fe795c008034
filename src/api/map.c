/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "copy/plan.h"
#include "core/counters.h"

static int read_options(struct bw_context *ctx, const struct barway_map_options *options,
			struct bw_map_policy *policy)
{
	struct barway_map_options o = { 0 };
	int ret;

	*policy = (struct bw_map_policy){ .providers = ctx->providers, .fallback = ctx->fallback };
	if (!options)
		return 0;
	ret = bw_struct_in(&o, sizeof(o), offsetof(struct barway_map_options, flags), options,
			   "struct barway_map_options");
	if (ret)
		return ret;
	if (o.flags & ~(BARWAY_MAP_UNCACHED | BARWAY_MAP_CLAMP))
		return bw_err(EINVAL,
			      "flags 0x%x: only BARWAY_MAP_UNCACHED and BARWAY_MAP_CLAMP are known",
			      o.flags);
	if (o.reserved)
		return bw_err(EINVAL, "the reserved field is not 0");
	ret = bw_check_providers(o.providers);
	if (o.providers)
		policy->providers = o.providers;
	policy->uncached = o.flags & BARWAY_MAP_UNCACHED;
	policy->clamp = o.flags & BARWAY_MAP_CLAMP;
	return ret;
}

static int belongs(struct bw_context *ctx, const struct bw_window *win)
{
	for (unsigned i = 0; i < win->npieces; i++)
		if ((!i || win->pieces[i].seg.dev != win->pieces[i - 1].seg.dev) &&
		    !bw_context_device(ctx, win->pieces[i].seg.dev))
			return bw_err(ENODEV,
				      "it is memory of %s device %d, which this context does not "
				      "have: open it with other devices",
				      win->pieces[i].seg.dev->ops->name,
				      win->pieces[i].seg.dev->index);
	return 0;
}

/* The first run of pages: copies are kept in it. A clamped range may have holes after it. */
static void limit_copies(struct bw_mapping *m)
{
	const struct bw_piece *piece = &m->win->pieces[0];
	uint64_t end = piece->addr + piece->bytes;

	m->from = piece->addr > m->addr ? piece->addr - m->addr : 0;
	for (unsigned i = 1; i < m->win->npieces && piece[i].addr == end; i++)
		end += piece[i].bytes;
	m->span = (end < m->addr + m->bytes ? end - m->addr : m->bytes) - m->from;
	m->base = m->ptr + m->from;
}

/* Up to which sizes barway_copy_to() and _from() need not ask for the plan; or only whether there
 * is a resident copier. */
static void plan_copies(struct bw_mapping *m)
{
	const struct bw_plan *plan = bw_plan_of(m->win->segs[0].dev);
	unsigned without = m->ctx->copy_threads ? 0 : BW_PLAN_WITHOUT_THREADS;
	const uint32_t *limit = plan->cpu_limit[without];
	const uint32_t *alone = plan->cpu_limit[without | BW_PLAN_WITHOUT_RESIDENT];
	static const uint32_t all[2] = { UINT32_MAX, UINT32_MAX }, none[2] = { 0, 0 };

	m->copy_method = m->ctx->copy_method;
	m->copy_threads = m->ctx->copy_threads;
	if (m->copy_method != BW_METHOD_AUTO)
		limit = alone = m->copy_method == BW_METHOD_CPU ? all : none;
	m->cpu_to = limit[BW_TO_GPU - 1] < m->span ? limit[BW_TO_GPU - 1] : m->span;
	m->cpu_from = limit[BW_FROM_GPU - 1] < m->span ? limit[BW_FROM_GPU - 1] : m->span;
	m->cpu_alone_to = alone[BW_TO_GPU - 1];
	m->cpu_alone_from = alone[BW_FROM_GPU - 1];
}

static int map(struct bw_context *ctx, uint64_t addr, size_t bytes,
	       const struct bw_map_policy *policy, struct barway_mapping **out)
{
	struct bw_mapping *m = bw_object_new(BW_OBJECT_MAPPING);
	const struct bw_mmio_choice *kernels;
	int ret;

	if (!m)
		return bw_err(ENOMEM, "no memory");
	ret = bw_window_get(addr, bytes, policy, &m->win, &m->from_cache);
	if (!ret) {
		ret = belongs(ctx, m->win);
		if (ret)
			bw_window_put(m->win);
	}
	if (ret) {
		bw_object_free(m);
		return ret;
	}
	kernels = &m->win->kernels;
	m->ptr = m->win->cpu + (addr - m->win->addr);
	m->bytes = bytes;
	m->store = kernels->store->store;
	m->load = kernels->load->load;
	m->store_name = kernels->store->name;
	m->load_name = kernels->load->name;
	m->addr = addr;
	m->ctx = ctx;
	limit_copies(m);
	plan_copies(m);
	pthread_mutex_lock(&ctx->lock);
	m->next = ctx->mappings;
	if (m->next)
		m->next->prev = m;
	ctx->mappings = m;
	*out = bw_object_publish(m);
	pthread_mutex_unlock(&ctx->lock);
	bw_count(BW_C_LIVE_MAPPINGS, 1);
	return 0;
}

int barway_map(struct barway_context *handle, uint64_t addr, size_t bytes,
	       const struct barway_map_options *options, struct barway_mapping **out)
{
	struct bw_context *ctx = bw_context_get(handle);
	struct bw_map_policy policy;
	int ret;

	if (!ctx) {
		bw_count(BW_C_MAP_ERRORS, 1);
		return bw_handle_stale(handle, "barway_map", "context");
	}
	ret = !out ? bw_err(EINVAL, "out is NULL") :
	      !bytes ? bw_err(EINVAL, "0 bytes: give the size in bytes") :
	      addr + bytes < addr || addr + bytes > UINT64_MAX - BW_PAGE ?
		      bw_err(EINVAL, "the range wraps around the end of the address space") :
		      read_options(ctx, options, &policy);
	if (!ret)
		ret = map(ctx, addr, bytes, &policy, out);
	bw_count(ret ? BW_C_MAP_ERRORS : BW_C_MAPS, 1);
	return ret ? bw_err_prefix(ret, "barway_map(0x%llx, %zu bytes)", (unsigned long long)addr,
				   bytes) : 0;
}

void bw_mapping_end(struct bw_mapping *m)
{
	struct bw_window *win = m->win;

	bw_object_free(m);
	bw_count(BW_C_LIVE_MAPPINGS, -1);
	bw_count(BW_C_UNMAPS, 1);
	bw_window_put(win);
}

int barway_unmap(struct barway_mapping *handle)
{
	struct bw_mapping *m = bw_object_retire(handle, BW_OBJECT_MAPPING);

	if (!m)
		return bw_handle_stale(handle, "barway_unmap", "mapping");
	pthread_mutex_lock(&m->ctx->lock);
	if (m->prev)
		m->prev->next = m->next;
	else if (m->ctx->mappings == m)
		m->ctx->mappings = m->next;
	if (m->next)
		m->next->prev = m->prev;
	pthread_mutex_unlock(&m->ctx->lock);
	bw_mapping_end(m);
	return 0;
}

void *barway_mapping_ptr(struct barway_mapping *handle)
{
	struct bw_mapping *m = bw_mapping_get(handle);

	if (m)
		return m->ptr;
	bw_handle_stale(handle, "barway_mapping_ptr", "mapping");
	return NULL;
}

static unsigned pieces_of(const struct bw_mapping *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->win->nsegs; i++) {
		const struct bw_segment *s = &m->win->segs[i];

		n += s->base < m->addr + m->bytes && s->base + s->bytes > m->addr;
	}
	return n;
}

static const struct bw_device *device_of(const struct bw_mapping *m)
{
	unsigned i = 0;

	while (i + 1 < m->win->nsegs && m->win->segs[i].base + m->win->segs[i].bytes <= m->addr)
		i++;
	return m->win->segs[i].dev;
}

int barway_mapping_query(struct barway_mapping *handle, struct barway_mapping_info *info)
{
	struct bw_mapping *m = bw_mapping_get(handle);
	struct barway_mapping_info i;

	if (!m)
		return bw_handle_stale(handle, "barway_mapping_query", "mapping");
	memset(&i, 0, sizeof(i));
	i.ptr = m->ptr;
	i.addr = m->addr;
	i.bytes = m->bytes;
	i.device = bw_context_device(m->ctx, device_of(m));
	i.pieces = pieces_of(m);
	i.caching = m->win->caching;
	i.keeps_alive = m->win->provider->keeps_alive;
	i.from_cache = m->from_cache;
	snprintf(i.provider, sizeof(i.provider), "%s", m->win->provider->name);
	snprintf(i.route, sizeof(i.route), "%s", m->win->pieces[0].route);
	snprintf(i.store_kernel, sizeof(i.store_kernel), "%s", m->store_name);
	snprintf(i.load_kernel, sizeof(i.load_kernel), "%s", m->load_name);
	snprintf(i.reason, sizeof(i.reason), "%s",
		 m->win->revoked ? "revoked by barway_release_all()" : m->win->reason.text);
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_mapping_info, addr),
			     "barway_mapping_query: struct barway_mapping_info");
}
