/* SPDX-License-Identifier: BSD-3-Clause */
/* api: what the functions that copy check. */
#ifndef BW_API_COPY_H
#define BW_API_COPY_H

#include "api/api.h"
#include "copy/copy.h"

/* -EINVAL or -ESTALE with the sentence, out of the way of the fast path. */
int bw_copy_refuse(const char *operation, struct barway_mapping *handle, size_t offset,
		   const void *host, size_t bytes);

static inline bool bw_copy_fits(const struct bw_mapping *m, size_t offset, const void *host,
				size_t bytes)
{
	return m && bytes <= m->span && offset - m->from <= m->span - bytes && (host || !bytes);
}

/* -EINVAL: @direction is not a value of enum barway_direction. */
int bw_check_direction(const char *operation, uint32_t direction);

#endif
