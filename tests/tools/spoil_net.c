/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put before the library with LD_PRELOAD: what a put or a send of 24 bytes moves is taken from 8
 * bytes further on, so that who checks data can be seen to find it.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include <barway_net.h>

BARWAY_API int barway_transfer_prepare(struct barway_peer *peer, struct barway_region *region,
				       const struct barway_part *parts, size_t n,
				       const struct barway_transfer_options *options,
				       struct barway_transfer **out)
{
	int (*real)(struct barway_peer *, struct barway_region *, const struct barway_part *,
		    size_t, const struct barway_transfer_options *, struct barway_transfer **);
	struct barway_part part = parts[0];

	*(void **)&real = dlsym(RTLD_NEXT, "barway_transfer_prepare");
	if (!real)
		abort();
	if (n != 1 || part.bytes != 24 ||
	    (options->operation != BARWAY_PUT && options->operation != BARWAY_SEND))
		return real(peer, region, parts, n, options, out);
	part.local += 8;
	return real(peer, region, &part, 1, options, out);
}
