/* SPDX-License-Identifier: BSD-3-Clause */
/* core/log: lines to the caller's function or standard error; never on the copy path. */
#ifndef BW_CORE_LOG_H
#define BW_CORE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

enum { BW_LOG_ERROR = 1, BW_LOG_WARN, BW_LOG_INFO, BW_LOG_DEBUG };

typedef void bw_log_fn(void *arg, int level, const char *text);

/*
 * One line at a time; on return the previous function is not running and will not be called again.
 * @fn must not call into the library: from inside it bw_log() writes nothing and bw_log_set() is
 * -EDEADLK. -EINVAL: unknown level.
 */
int bw_log_set(bw_log_fn *fn, void *arg, int level);
void bw_log_default_level(int level); /* used until bw_log_set() is called */
bool bw_log_on(int level);
void bw_log(int level, const char *fmt, ...) BW_PRINTF(2, 3);

#endif
