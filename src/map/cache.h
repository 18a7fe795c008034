/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/cache: windows that mappings share and that stay for a while after the last unmap.
 *
 * The key is the identity of the allocation that a window begins in, never an address alone: a
 * window whose memory was freed can not be hit, whatever was put at its address since. Idle windows
 * are bounded in bytes (cache_bytes) and time (cache_ms); a thread that lives only while there are
 * idle windows looks every cache_sweep_ms whether their memory was freed, and lets go of it if so.
 */
#ifndef BW_MAP_CACHE_H
#define BW_MAP_CACHE_H

#include "map/map.h"

void bw_cache_configure(void); /* reads the parameters */
void bw_cache_flush(void);     /* every idle window */
void bw_cache_stop(void);      /* the sweeper too; it starts again when there is work */

/*
 * Waits until nobody makes or destroys a window and none is idle, and keeps it so until
 * bw_cache_open(). Returns the windows that mappings use; with @revoke their pages are taken away.
 */
unsigned bw_cache_close(bool revoke);
void bw_cache_open(void);

#endif
