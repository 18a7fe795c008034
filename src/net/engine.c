/* SPDX-License-Identifier: BSD-3-Clause */
/* net/engine: the list of engines, and the choice among them. */
#include "net/engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

extern const struct bw_net_engine bw_fabric_engine, bw_imitation_engine;

const struct bw_net_engine *const bw_net_engines[] = {
	&bw_fabric_engine,
	&bw_imitation_engine,
	NULL,
};

int bw_rail_open(const struct bw_rail_options *options, struct bw_rail **out)
{
	struct bw_sentence kept;
	char reasons[768] = "";
	size_t n = 0;

	bw_err_keep(&kept);
	for (unsigned i = 0; bw_net_engines[i]; i++) {
		int ret = bw_net_engines[i]->open(options, out);

		if (!ret) {
			bw_err_put_back(&kept);
			return 0;
		}
		if (ret != -ENOTSUP) /* it has the network */
			return bw_err_prefix(ret, "%s", bw_net_engines[i]->name);
		if (!bw_net_engines[i]->for_tests && n < sizeof(reasons))
			n += (size_t)snprintf(reasons + n, sizeof(reasons) - n, "%s%s: %s",
					      n ? "; " : "", bw_net_engines[i]->name,
					      bw_err_text());
	}
	return bw_err(ENOTSUP, "%s", reasons);
}
