/* SPDX-License-Identifier: BSD-3-Clause */
#include "method.h"

#include <barway.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

bool method_wished_for(uint32_t *method)
{
	static const struct {
		const char *name;
		uint32_t method;
	} known[] = {
		{ "", BARWAY_METHOD_CPU },
		{ "cpu", BARWAY_METHOD_CPU },
		{ "auto", BARWAY_METHOD_AUTO },
		{ "ce", BARWAY_METHOD_CE },
		{ "threads", BARWAY_METHOD_THREADS },
	};
	const char *wish = getenv("BARWAY_GDRAPI_METHOD");

	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(wish ? wish : "", known[i].name))
			continue;
		*method = known[i].method;
		return true;
	}
	log_line(LOG_ERROR, "gdr_open: BARWAY_GDRAPI_METHOD=%.40s: it is none of cpu, auto, ce and "
		 "threads: take one of them, or unset it", wish);
	return false;
}

bool method_can_be(uint32_t method)
{
	struct barway_param_info p = { .size = sizeof(p) };

	if (method != BARWAY_METHOD_THREADS)
		return true;
	for (unsigned i = 0; !barway_param_get(i, &p); i++)
		if (!strcmp(p.name, "copy_threads") && strcmp(p.value, "0"))
			return true;
	log_line(LOG_ERROR, "gdr_open: BARWAY_GDRAPI_METHOD=threads: there are no helper threads: "
		 "set BARWAY_COPY_THREADS too, 1 to 64");
	return false;
}
