/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/machine: what is known of the machine beside its device. A part of tools/measure. */
#ifndef TOOLS_MACHINE_H
#define TOOLS_MACHINE_H

#include "tools/measure.h"

/* Fills in what tools/measure.h lists as the machine; after the thread was bound. */
void machine_read(struct measure *m);

#endif
