/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOTHING (LOG_ERROR + 1)

static _Atomic int threshold = NOTHING;

__attribute__((constructor)) static void start(void)
{
	log_configure();
}

void log_configure(void)
{
	const char *on = getenv("GDRCOPY_ENABLE_LOGGING"), *level = getenv("GDRCOPY_LOG_LEVEL");
	int least = level ? atoi(level) : LOG_INFO;

	if (!on || !atoi(on))
		least = NOTHING;
	else if (least < LOG_DEBUG)
		least = LOG_DEBUG;
	else if (least > LOG_ERROR)
		least = LOG_ERROR;
	atomic_store_explicit(&threshold, least, memory_order_relaxed);
}

/* One line, one write: lines of several threads and processes do not mix. */
__attribute__((format(printf, 2, 0))) static void write_line(enum log_level level, const char *fmt,
							       va_list ap)
{
	static const char *const names[] = { "", "debug", "info", "warning", "error" };
	int saved = errno, n, used;
	char text[1536];

	if ((int)level < atomic_load_explicit(&threshold, memory_order_relaxed))
		return;
	used = snprintf(text, sizeof(text), "gdrapi: %s: ", names[level]);
	n = vsnprintf(text + used, sizeof(text) - 1 - (size_t)used, fmt, ap);
	if (n > 0)
		used += n < (int)sizeof(text) - 2 - used ? n : (int)sizeof(text) - 2 - used;
	text[used++] = '\n';
	while (write(STDERR_FILENO, text, (size_t)used) < 0 && errno == EINTR)
		continue;
	errno = saved;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	write_line(level, fmt, ap);
	va_end(ap);
}

int refuse(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	write_line(LOG_ERROR, fmt, ap);
	va_end(ap);
	return err;
}
