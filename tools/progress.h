/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/progress: one line on standard error that says what is being done, and for how many seconds
 * now. Only for someone who watches, and only when all takes longer than two seconds. One thread
 * uses it, not one of a forked child.
 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

/* The two seconds begin here; at the first progress() where it is not called. */
void progress_begin(void);

/* "host to GPU, 64 KiB (12 of 50) ..." in the place of the line before. */
void progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Takes the line away: before anything else is printed, on whichever stream. */
void progress_clear(void);

#endif
