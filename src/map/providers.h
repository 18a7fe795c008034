/* SPDX-License-Identifier: BSD-3-Clause */
/* map/providers: what map.c lists. One file per provider. */
#ifndef BW_MAP_PROVIDERS_H
#define BW_MAP_PROVIDERS_H

#include "map/map.h"

extern const struct bw_map_provider bw_map_rm;
extern const struct bw_map_provider bw_map_soft;

#endif
