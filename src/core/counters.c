/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/counters.h"

_Atomic uint64_t bw_counters[BW_C_COUNT];
