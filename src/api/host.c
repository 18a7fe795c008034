/* SPDX-License-Identifier: BSD-3-Clause */
/* api: pinned host memory. */
#include <errno.h>

#include "api/api.h"

int barway_host_alloc(struct barway_device *handle, size_t bytes, void **host, uint64_t *addr)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	uint64_t at;
	void *p;
	int ret;

	if (!d)
		return bw_handle_stale(handle, "barway_host_alloc", "device");
	if (!host || !bytes)
		return bw_err(EINVAL, "barway_host_alloc: %s",
			      bytes ? "host is NULL: say where its address goes" :
				      "0 bytes: give the size in bytes");
	ret = d->dev->ops->host_alloc(d->dev, bytes, &p, &at);
	if (ret)
		return bw_err_prefix(ret, "barway_host_alloc");
	*host = p;
	if (addr)
		*addr = at;
	return 0;
}

int barway_host_free(struct barway_context *handle, void *host)
{
	if (!bw_context_get(handle))
		return bw_handle_stale(handle, "barway_host_free", "context");
	for (int i = 0; bw_device_kinds[i]; i++) {
		int ret = bw_device_kinds[i]->host_free(host);

		if (ret != -ENOENT)
			return bw_err_prefix(ret, "barway_host_free");
	}
	return bw_err(EINVAL, "barway_host_free: %p is not what barway_host_alloc() gave out, or "
		      "was freed before", host);
}

int barway_host_register(struct barway_device *handle, void *host, size_t bytes, uint64_t *addr)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	uint64_t at;
	int ret;

	if (!d)
		return bw_handle_stale(handle, "barway_host_register", "device");
	if (!host || !bytes)
		return bw_err(EINVAL, "barway_host_register: %s",
			      bytes ? "host is NULL" : "0 bytes: give the size in bytes");
	ret = d->dev->ops->host_register(d->dev, host, bytes, &at);
	if (ret)
		return bw_err_prefix(ret, "barway_host_register");
	if (addr)
		*addr = at;
	return 0;
}

int barway_host_unregister(struct barway_context *handle, void *host)
{
	if (!bw_context_get(handle))
		return bw_handle_stale(handle, "barway_host_unregister", "context");
	for (int i = 0; bw_device_kinds[i]; i++) {
		int ret = bw_device_kinds[i]->host_unregister(host);

		if (ret != -ENOENT)
			return bw_err_prefix(ret, "barway_host_unregister");
	}
	return bw_err(EINVAL, "barway_host_unregister: %p is not registered: give the address that "
		      "barway_host_register() was given", host);
}
