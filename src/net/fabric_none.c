/* SPDX-License-Identifier: BSD-3-Clause */
/* net/fabric_none: what stands in for the engine where libfabric's headers were not there to build
 * it. */
#include <errno.h>

#include "net/engine.h"

#define WHY "this build has no network: build it where libfabric's headers are (Debian: " \
	"libfabric-dev), or give their folder with -Dlibfabric_include"

static int none_usable(struct bw_reason *why)
{
	bw_reason_set(why, "%s", WHY);
	return bw_err(ENOTSUP, "%s", WHY);
}

static void none_networks(struct bw_reason *list)
{
	list->text[0] = 0;
}

static int none_open(const struct bw_rail_options *options, struct bw_rail **out)
{
	(void)out;
	return bw_err(ENOTSUP, "network %s: " WHY, options->network);
}

extern const struct bw_net_engine bw_fabric_engine;

/* Without a rail there is nothing to call the others with. */
const struct bw_net_engine bw_fabric_engine = {
	.name = "libfabric",
	.usable = none_usable,
	.networks = none_networks,
	.open = none_open,
};
