/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/progress.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 2.0 /* seconds */

static struct {
	bool begun, shown;
	double start; /* seconds */
} state;

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void progress_begin(void)
{
	state.begun = true;
	state.start = seconds();
}

void progress_clear(void)
{
	if (state.shown)
		fputs("\r\033[K", stderr);
	state.shown = false;
}

void progress(const char *fmt, ...)
{
	va_list ap;

	if (!state.begun)
		progress_begin();
	if (!isatty(STDERR_FILENO) || seconds() - state.start < PATIENCE)
		return;
	progress_clear();
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs(" ...", stderr);
	fflush(stderr);
	state.shown = true;
}
