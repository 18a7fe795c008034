/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/resident.h"

#include <errno.h>

#include "api/api.h"

int barway_resident_start(struct barway_device *handle,
			  const struct barway_resident_options *options)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	struct barway_resident_options o = { 0 };
	struct bw_map_policy policy = { 0 };
	int ret = 0;

	if (!d)
		return bw_handle_stale(handle, "barway_resident_start", "device");
	if (options)
		ret = bw_struct_in(&o, sizeof(o), sizeof(o.size), options,
				   "struct barway_resident_options");
	if (!ret) {
		policy.providers = d->ctx->providers;
		policy.fallback = d->ctx->fallback;
		ret = bw_resident_start(d->dev, &policy, o.idle_us * 1000ull, o.stay_us * 1000ull);
	}
	return bw_err_prefix(ret, "barway_resident_start");
}

int barway_resident_stop(struct barway_device *handle)
{
	struct bw_device_object *d = bw_device_object_get(handle);

	if (!d)
		return bw_handle_stale(handle, "barway_resident_stop", "device");
	return bw_err_prefix(bw_resident_stop(d->dev), "barway_resident_stop");
}
