/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compat/gdrapi: how copies are done. By the calling CPU thread alone, as GDRCopy does it: programs
 * count on a copy that calls nobody, in a stream capture and after the memory was freed too.
 * BARWAY_GDRAPI_METHOD=auto takes the best method for each size, ce or threads that one for all.
 */
#ifndef GDRAPI_METHOD_H
#define GDRAPI_METHOD_H

#include <stdbool.h>
#include <stdint.h>

/* Reads it: an enum barway_method. false: it is none that is known, and the log says so. */
bool method_wished_for(uint32_t *method);
/* Once a context is open: is there what it needs? false: the log says what to do. */
bool method_can_be(uint32_t method);

#endif
