/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/cache: windows that mappings share and that stay for a while after the last unmap.
 *
 * The key is the identity of the allocation that a window begins in, never an address alone: a window
 * whose memory was freed can not be hit, whatever was put at its address since. Idle windows are
 * bounded in bytes (cache_bytes) and time (cache_ms); a thread that lives only while there are idle
 * windows looks every cache_sweep_ms whether their memory was freed, and lets go of it if so.
 */
#ifndef BW_MAP_CACHE_H
#define BW_MAP_CACHE_H

#include "map/map.h"

void bw_cache_configure(void); /* reads the parameters */
void bw_cache_flush(void); /* every idle window */
unsigned bw_cache_live(void);    /* windows that mappings use */
void bw_cache_revoke_live(void); /* takes the pages of all of them away */
/* Stops the sweeper and flushes; what the last context does when it closes. */
void bw_cache_stop(void);

#endif
