/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compat/gdrapi: the log. GDRCOPY_ENABLE_LOGGING=1 turns it on, GDRCOPY_LOG_LEVEL is the least
 * important level that is written to standard error (default 2); both are read at each gdr_open().
 */
#ifndef GDRAPI_LOG_H
#define GDRAPI_LOG_H

enum log_level {
	LOG_DEBUG = 1, /* every call that changes something */
	LOG_INFO = 2,  /* which provider is used and why */
	LOG_WARN = 3,
	LOG_ERROR = 4, /* the call failed */
};

void log_configure(void);

__attribute__((format(printf, 2, 3), cold))
void log_line(enum log_level level, const char *fmt, ...);

/* Logs the sentence of a failure and returns @err. */
__attribute__((format(printf, 2, 3), cold))
int refuse(int err, const char *fmt, ...);

#endif
