/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/prove: that a network card reaches GPU memory is believed when bytes have gone both ways.
 * Scratch memory of the device is registered on a rail of its own, as a region would be; another
 * rail, over the same card, reads what the copy engine wrote there, and only when every byte is
 * right writes what the copy engine then has to find. So memory that was registered wrongly is
 * never written. Once for each device, network, interface and rung of the ladder.
 */
#ifndef BW_NET_PROVE_H
#define BW_NET_PROVE_H

#include "net/engine.h"

struct bw_device;

/*
 * 0, or -errno with the reason: wrong bytes, and none within five seconds, are a verdict for as
 * long as the process lives; what may be different next time is not. Opens rails, and may take half
 * a second the first time.
 * @owner: the context of the region's memory. No lock of the layer is held. Thread-safe.
 */
int bw_prove(const char *network, const char *interface, struct bw_device *dev, void *owner,
	     const char *rung);
void bw_prove_forget(void); /* for tests */

#endif
