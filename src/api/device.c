/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/param.h"

/* ---- the list of a context ------------------------------------------------------------------- */

static int list_devices(struct bw_context *ctx, struct bw_device **list, int n)
{
	ctx->devices = bw_alloc_array((size_t)n + 1, sizeof(ctx->devices[0]));
	if (!ctx->devices)
		return bw_err(ENOMEM, "no memory for %d devices", n);
	for (int i = 0; i < n; i++) {
		struct bw_device_object *d = bw_object_new(BW_OBJECT_DEVICE);

		if (!d) {
			while (i--) {
				bw_object_retire(bw_object_handle(ctx->devices[i]),
						 BW_OBJECT_DEVICE);
				bw_object_free(ctx->devices[i]);
			}
			free(ctx->devices);
			ctx->devices = NULL;
			return bw_err(ENOMEM, "no memory for %d devices", n);
		}
		d->ctx = ctx;
		d->dev = list[i];
		ctx->devices[i] = d;
		bw_object_publish(d);
	}
	ctx->ndevices = n;
	return n;
}

static int find_devices(struct bw_context *ctx)
{
	const struct bw_device_ops *cuda = bw_device_kind_ops(BW_DEVICE_CUDA);
	const struct bw_device_ops *soft = bw_device_kind_ops(BW_DEVICE_SOFT);
	struct bw_reason why = { "" };
	struct bw_device **list = NULL;
	static _Atomic bool told;
	int n = 0;

	if (ctx->kinds != BARWAY_DEVICES_SOFT) {
		n = cuda->enumerate(&list, &why);
		if (n > 0)
			return list_devices(ctx, list, n);
		if (ctx->kinds == BARWAY_DEVICES_CUDA || ctx->fallback == BARWAY_FALLBACK_DENY)
			return bw_err(ENODEV, "find GPUs: %s", why.text);
		if (ctx->fallback == BARWAY_FALLBACK_REPORT && !told) {
			told = true;
			bw_log(BW_LOG_WARN, "no GPU: %s: the soft GPU takes its place", why.text);
		}
	}
	n = soft->enumerate(&list, &why);
	if (n <= 0)
		return bw_err(ENODEV, "find soft GPUs: %s", why.text);
	return list_devices(ctx, list, n);
}

static int enumerate(struct bw_context *ctx)
{
	struct bw_sentence kept;
	int n;

	bw_err_keep(&kept);
	n = find_devices(ctx);
	if (n >= 0)
		bw_err_put_back(&kept);
	return n;
}

int bw_context_devices(struct bw_context *ctx)
{
	int n = ctx->ndevices;

	if (n >= 0)
		return n;
	pthread_mutex_lock(&ctx->lock);
	n = ctx->ndevices >= 0 ? ctx->ndevices : enumerate(ctx);
	pthread_mutex_unlock(&ctx->lock);
	return n;
}

struct barway_device *bw_context_device(struct bw_context *ctx, const struct bw_device *dev)
{
	int n = dev ? bw_context_devices(ctx) : 0;

	for (int i = 0; i < n; i++)
		if (ctx->devices[i]->dev == dev)
			return bw_object_handle(ctx->devices[i]);
	return NULL;
}

int barway_device_count(struct barway_context *handle)
{
	struct bw_context *ctx = bw_context_get(handle);

	if (!ctx)
		return bw_handle_stale(handle, "barway_device_count", "context");
	return bw_context_devices(ctx);
}

/* "0 = 0000:17:00.0 NVIDIA H200 (GPU-...); 1 = ...; and 3 more" */
static const char *what_there_is(struct bw_context *ctx, char *text, size_t bytes)
{
	static const char most[] = "; and 2147483647 more";
	char one[256], pci[16];
	size_t used = 0;

	for (int i = 0; i < ctx->ndevices; i++) {
		const struct bw_device *dev = ctx->devices[i]->dev;
		const char *before = i ? "; " : "";
		int n;

		pci[0] = 0;
		if (dev->has_pci)
			bw_pci_format(&dev->pci, pci);
		n = snprintf(one, sizeof(one), "%s%d = %s%s%s (%s)", before, i, pci,
			     pci[0] ? " " : "", dev->name, dev->uuid);
		if ((size_t)n >= bytes - used - sizeof(most)) {
			snprintf(text + used, bytes - used, "%sand %d more", before,
				 ctx->ndevices - i);
			break;
		}
		memcpy(text + used, one, (size_t)n + 1);
		used += (size_t)n;
	}
	return text;
}

int barway_device_get(struct barway_context *handle, int index, struct barway_device **out)
{
	struct bw_context *ctx = bw_context_get(handle);
	char text[512];
	int n;

	if (!ctx)
		return bw_handle_stale(handle, "barway_device_get", "context");
	if (!out)
		return bw_err(EINVAL, "barway_device_get: out is NULL");
	n = bw_context_devices(ctx);
	if (n < 0)
		return n;
	if (index < 0 || index >= n)
		return bw_err(ENODEV, "barway_device_get: there is no device %d, but %s", index,
			      what_there_is(ctx, text, sizeof(text)));
	*out = bw_object_handle(ctx->devices[index]);
	return 0;
}

static bool is_named(const struct bw_device_object *d, int index, const char *name)
{
	struct bw_pci pci;
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	if (*name >= '0' && *name <= '9' && !*end)
		return number == (unsigned long)index;
	if (bw_pci_parse(name, &pci))
		return d->dev->has_pci && bw_pci_equal(&pci, &d->dev->pci);
	return strlen(name) >= 5 && !strncasecmp(d->dev->uuid, name, strlen(name));
}

int barway_device_find(struct barway_context *handle, const char *name, struct barway_device **out)
{
	struct bw_context *ctx = bw_context_get(handle);
	struct bw_device_object *found = NULL;
	char text[512];
	int n;

	if (!ctx)
		return bw_handle_stale(handle, "barway_device_find", "context");
	if (!out || !name || !*name)
		return bw_err(EINVAL, "barway_device_find: %s",
			      out ? "the name is empty" : "out is NULL");
	n = bw_context_devices(ctx);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		if (!is_named(ctx->devices[i], i, name))
			continue;
		/* whole, where another begins so */
		if (!strcasecmp(ctx->devices[i]->dev->uuid, name)) {
			found = ctx->devices[i];
			break;
		}
		if (found)
			return bw_err(ENODEV, "barway_device_find: more than one device is called "
				      "'%.128s', of %s", name,
				      what_there_is(ctx, text, sizeof(text)));
		found = ctx->devices[i];
	}
	if (!found)
		return bw_err(ENODEV, "barway_device_find: no device is called '%.128s' (index, "
			      "PCI address or UUID), but %s", name,
			      what_there_is(ctx, text, sizeof(text)));
	*out = bw_object_handle(found);
	return 0;
}

/* ---- one device ------------------------------------------------------------------------------ */

int barway_device_query(struct barway_device *handle, struct barway_device_info *info)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	struct barway_device_info i;
	struct bw_mmio_choice kernels;
	struct bw_sentence kept;
	struct bw_device *dev;

	if (!d)
		return bw_handle_stale(handle, "barway_device_query", "device");
	bw_err_keep(&kept); /* what cannot be had is no failure here */
	dev = d->dev;
	memset(&i, 0, sizeof(i));
	i.kind = dev->ops->kind;
	i.index = dev->index;
	snprintf(i.name, sizeof(i.name), "%s", dev->name);
	snprintf(i.uuid, sizeof(i.uuid), "%s", dev->uuid);
	snprintf(i.driver, sizeof(i.driver), "%s", dev->ops->driver());
	i.numa_node = -1;
	if (dev->has_pci) {
		bw_pci_format(&dev->pci, i.pci);
		i.numa_node = bw_topo_numa_node(&dev->pci);
		bw_topo_near_cpus(&dev->pci, i.near_cpus, sizeof(i.near_cpus));
	}
	if (dev->ops->mem_info(dev, &i.memory_total, &i.memory_free)) {
		i.memory_total = dev->memory_total;
		i.memory_free = UINT64_MAX;
	}
	i.bar1_total = i.bar1_free = UINT64_MAX;
	bw_map_enter();
	for (int p = 0; bw_map_providers[p]; p++)
		if (!bw_map_providers[p]->bar1(dev, &i.bar1_total, &i.bar1_free))
			break;
	bw_map_leave();
	kernels = bw_mmio_choose(dev->coherent ? BW_CACHED : BW_WC, bw_mmio_allowed());
	snprintf(i.store_kernel, sizeof(i.store_kernel), "%s", kernels.store->name);
	snprintf(i.load_kernel, sizeof(i.load_kernel), "%s", kernels.load->name);
	bw_err_put_back(&kept);
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_device_info, index),
			     "barway_device_query: struct barway_device_info");
}

int barway_device_activate(struct barway_device *handle)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	int ret = 0;

	if (!d)
		return bw_handle_stale(handle, "barway_device_activate", "device");
	pthread_mutex_lock(&d->ctx->lock);
	if (!d->active) {
		ret = d->dev->ops->activate(d->dev);
		d->active = !ret;
	}
	pthread_mutex_unlock(&d->ctx->lock);
	return bw_err_prefix(ret, "barway_device_activate");
}

int barway_provider_query(struct barway_context *handle, struct barway_device *device,
			  unsigned index, struct barway_provider_info *info)
{
	struct bw_context *ctx = bw_context_get(handle);
	struct bw_device_object *d = NULL;
	struct barway_provider_info i;
	struct bw_reason why = { "" };
	const struct bw_map_provider *p;
	struct bw_sentence kept;
	unsigned n = 0;

	if (!ctx)
		return bw_handle_stale(handle, "barway_provider_query", "context");
	if (device && !(d = bw_device_object_get(device)))
		return bw_handle_stale(device, "barway_provider_query", "device");
	while (bw_map_providers[n] && n < index)
		n++;
	p = bw_map_providers[n];
	if (!p)
		return bw_err(ENOENT, "barway_provider_query: there is no provider %u", index);
	memset(&i, 0, sizeof(i));
	bw_err_keep(&kept); /* a refusal is an answer */
	bw_map_enter();
	i.score = p->score(d ? d->dev : NULL, &why);
	bw_map_leave();
	bw_err_put_back(&kept);
	if (i.score < 0)
		i.score = -1;
	if (!bw_list_has(ctx->providers, p->name)) {
		i.score = -1;
		bw_reason_set(&why, "not among the allowed providers (%s)", ctx->providers);
	}
	snprintf(i.name, sizeof(i.name), "%s", p->name);
	snprintf(i.reason, sizeof(i.reason), "%s", why.text);
	i.keeps_alive = p->keeps_alive;
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_provider_info, score),
			     "barway_provider_query: struct barway_provider_info");
}

/* ---- memory ---------------------------------------------------------------------------------- */

int barway_pointer_query(struct barway_context *handle, uint64_t addr,
			 struct barway_pointer_info *info)
{
	struct bw_context *ctx = bw_context_get(handle);
	struct barway_pointer_info i;
	struct bw_segment seg;
	struct bw_reason why;
	struct bw_sentence kept;
	int ret;

	if (!ctx)
		return bw_handle_stale(handle, "barway_pointer_query", "context");
	bw_err_keep(&kept);
	ret = bw_device_resolve(addr, &seg);
	if (ret)
		return bw_err_prefix(ret, "barway_pointer_query");
	memset(&i, 0, sizeof(i));
	i.kind = seg.kind;
	bw_map_enter();
	i.mappable = bw_mappable(&seg, &why);
	bw_map_leave();
	i.device = bw_context_device(ctx, seg.dev);
	bw_err_put_back(&kept);
	i.base = seg.base;
	i.bytes = seg.bytes;
	i.id = seg.id;
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_pointer_info, mappable),
			     "barway_pointer_query: struct barway_pointer_info");
}

int barway_mem_alloc(struct barway_device *handle, size_t bytes, uint64_t *addr)
{
	struct bw_device_object *d = bw_device_object_get(handle);

	if (!d)
		return bw_handle_stale(handle, "barway_mem_alloc", "device");
	if (!addr || !bytes)
		return bw_err(EINVAL, "barway_mem_alloc: %s", bytes ? "addr is NULL" : "0 bytes");
	return bw_err_prefix(d->dev->ops->mem_alloc(d->dev, bytes, addr), "barway_mem_alloc");
}

int barway_mem_free(struct barway_context *handle, uint64_t addr)
{
	if (!bw_context_get(handle))
		return bw_handle_stale(handle, "barway_mem_free", "context");
	for (int i = 0; bw_device_kinds[i]; i++) {
		int ret = bw_device_kinds[i]->mem_free(addr);

		if (ret != -ENOENT)
			return bw_err_prefix(ret, "barway_mem_free");
	}
	return bw_err(EINVAL,
		      "barway_mem_free: 0x%llx is not what barway_mem_alloc() gave out, or was "
		      "freed before",
		      (unsigned long long)addr);
}
