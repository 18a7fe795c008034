/* SPDX-License-Identifier: BSD-3-Clause */
/* core/counters: the process's counters; relaxed, never touched by the copy path. */
#ifndef BW_CORE_COUNTERS_H
#define BW_CORE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

enum bw_counter {
	BW_C_MAPS,
	BW_C_MAP_ERRORS,
	BW_C_UNMAPS,
	BW_C_CACHE_HITS,
	BW_C_CACHE_MISSES,
	BW_C_CACHE_EVICTIONS,
	BW_C_CACHE_STALE,
	BW_C_CACHE_BYTES,
	BW_C_LIVE_MAPPINGS,
	BW_C_LIVE_BYTES,
	BW_C_SELF_TESTS,
	BW_C_SELF_TEST_FAILURES,
	BW_C_DRIVER_MAPS,
	BW_C_DRIVER_UNMAPS,
	BW_C_COUNT
};

extern _Atomic uint64_t bw_counters[BW_C_COUNT];

static inline void bw_count(enum bw_counter c, int64_t delta)
{
	atomic_fetch_add_explicit(&bw_counters[c], (uint64_t)delta, memory_order_relaxed);
}

static inline uint64_t bw_counter(enum bw_counter c)
{
	return atomic_load_explicit(&bw_counters[c], memory_order_relaxed);
}

#endif
