/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the sanitizers, in one file of a program: children start threads, and end with the parent's
 * memory still allocated. A child sets is_child.
 */
#ifndef TEST_SANITIZED_CHILD_H
#define TEST_SANITIZED_CHILD_H

#include <stdbool.h>

static bool is_child;
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0:atexit_sleep_ms=0:history_size=7";
}

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return is_child;
}

#endif
