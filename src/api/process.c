/* SPDX-License-Identifier: BSD-3-Clause */
/* What is the process's and not a context's: version, error text, log, parameters. */
#include <errno.h>

#include "api/api.h"
#include "core/log.h"
#include "core/param.h"

unsigned barway_version(void)
{
	return BARWAY_VERSION_MAJOR << 16 | BARWAY_VERSION_MINOR << 8 | BARWAY_VERSION_PATCH;
}

const char *barway_errmsg(void)
{
	return bw_err_text();
}

int barway_set_log(barway_log_fn fn, void *arg, int level)
{
	return bw_log_set(fn, arg, level);
}

int barway_param_set(const char *name, const char *value)
{
	if (!name || !value)
		return bw_err(EINVAL, "barway_param_set: %s is NULL",
			      name ? "the value" : "the name");
	if (bw_open_contexts())
		return bw_err(EBUSY,
			      "barway_param_set: %s: a context is open: set parameters before the "
			      "first barway_open()",
			      name);
	return bw_param_set(name, value);
}

int barway_param_get(unsigned index, struct barway_param_info *info)
{
	struct bw_param_view v;
	struct barway_param_info i = { 0 };

	if (!bw_param_view(index, &v))
		return bw_err(ENOENT, "barway_param_get: there is no parameter %u", index);
	i.name = v.name;
	i.value = v.value;
	i.dflt = v.dflt;
	i.help = v.help;
	i.source = v.source;
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_param_info, value),
			     "barway_param_get: struct barway_param_info");
}
