/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BW_CORE_CLOCK_H
#define BW_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC */
static inline uint64_t bw_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#endif
