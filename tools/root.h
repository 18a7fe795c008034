/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/root: the system's own files (/dev, /etc, /proc, /sys, libraries) as the tool sees them.
 * The environment variable BARWAY_DOCTOR_ROOT is put before each such path: tests play through
 * whole machines with it. The library itself never looks at it.
 */
#ifndef TOOLS_ROOT_H
#define TOOLS_ROOT_H

#include <stdbool.h>
#include <stddef.h>

#define ROOT_PATH 1024 /* bytes: longer paths are taken for files that are not there */

/* The prefix; "" where there is none. */
const char *root_prefix(void);

/* The path with the prefix; returns @path, "" where it is too long. */
const char *root_path(char path[ROOT_PATH], const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

bool root_exists(const char *path);

/* The first line of a file, cut to @n, without its end; false: it cannot be read, or is empty. */
bool root_line(const char *path, char *line, size_t n);

/* Does a line of the file (or of a list that ends its items with 0 bytes) have @word in it? */
bool root_has(const char *path, const char *word);

/* The last part of what the symbolic link points to; false: it is none. */
bool root_link_name(const char *path, char *name, size_t n);

/*
 * Calls @each for the names in a folder, in alphabetical order, and not for those that begin with a
 * point. Returns how many there were, -1: the folder cannot be read.
 */
int root_list(const char *path, void (*each)(void *arg, const char *name), void *arg);

#endif
