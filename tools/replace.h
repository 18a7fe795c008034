/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/replace: writes a file as a whole or not at all. What is there stays as it is until the new
 * content is on the disk; a link's target is replaced, not the link. What is no regular file, such
 * as a pipe, is written to as it is.
 */
#ifndef TOOLS_REPLACE_H
#define TOOLS_REPLACE_H

#include <stddef.h>

/* Returns 0 or a negative errno value. */
int replace_file(const char *path, const char *text, size_t n);

#endif
