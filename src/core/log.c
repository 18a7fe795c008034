/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "core/fork.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a line is written */
static bw_log_fn *sink;
static void *sink_arg;
static bool sink_set;
static _Atomic int threshold = BW_LOG_WARN;
static _Thread_local bool writing; /* this thread is inside the sink */

__attribute__((constructor)) static void register_lock(void)
{
	bw_fork_leaf_lock(&lock);
}

static const char *level_name(int level)
{
	static const char *const names[] = { "", "error", "warning", "info", "debug" };

	return names[level];
}

static bool level_known(int level)
{
	return level >= 0 && level <= BW_LOG_DEBUG;
}

bool bw_log_on(int level)
{
	return level >= BW_LOG_ERROR && level <= BW_LOG_DEBUG &&
	       level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

int bw_log_set(bw_log_fn *fn, void *arg, int level)
{
	if (!level_known(level))
		return bw_err(EINVAL, "set log: level %d is unknown: give 0 (none) to %d (debug)",
			      level, BW_LOG_DEBUG);
	if (writing) /* the lock is this thread's */
		return bw_err(EDEADLK, "set log: called from the log function: call it elsewhere");
	pthread_mutex_lock(&lock);
	sink = fn;
	sink_arg = arg;
	sink_set = true;
	atomic_store_explicit(&threshold, level, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
	return 0;
}

void bw_log_default_level(int level)
{
	if (!level_known(level) || writing)
		return;
	pthread_mutex_lock(&lock);
	if (!sink_set)
		atomic_store_explicit(&threshold, level, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
}

void bw_log(int level, const char *fmt, ...)
{
	int saved = errno, cancel;
	char text[1280];
	va_list ap;

	if (!bw_log_on(level) || writing)
		return;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	va_end(ap);
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = ' '; /* one call, one line */

	/* A thread cancelled in the sink would keep the lock. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&lock);
	writing = true;
	if (bw_log_on(level)) { /* it may have been turned off while we waited */
		if (sink)
			sink(sink_arg, level, text);
		else
			fprintf(stderr, "barway: %s: %s\n", level_name(level), text);
	}
	writing = false;
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}
