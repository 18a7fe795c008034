/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy/resident: a kernel that waits for copies and does them. Read it in this order:
 *
 *   resident_abi.h     a request; what the kernel is given
 *   resident.cu        the kernel
 *   resident.c         requests: sent, waited for; the method
 *   resident_start.c   starting, proving, stopping
 *
 * A device has at most one copier. Requests go to it through a channel, in order; it stores the
 * number of the last one that is done in a word of pinned memory, which those who wait poll. It is
 * launched by the channel where a request waits and no kernel is there.
 */
#ifndef BW_COPY_RESIDENT_H
#define BW_COPY_RESIDENT_H

#include "copy/copy.h"

extern const struct bw_copy_method bw_copy_resident;

/* Starts it in the device's primary context and proves it with data. 0 ns: the default. -EALREADY,
 * -ENODEV no active context, -ENOMEM, -ENOTSUP, -EIO. */
int bw_resident_start(struct bw_device *dev, const struct bw_map_policy *policy, uint64_t idle_ns,
		      uint64_t stay_ns);
/* Finishes what is under way. -EALREADY: there is none. */
int bw_resident_stop(struct bw_device *dev);
/* All of them: before the memory of the process's mappings goes. */
void bw_resident_end(void);

/* Is there one on any device? One load: for those who would ask more only then. */
bool bw_resident_any(void);

#endif
