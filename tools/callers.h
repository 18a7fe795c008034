/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/callers: copylat and copybw with -p and -t: many callers on one GPU at once. */
#ifndef TOOLS_CALLERS_H
#define TOOLS_CALLERS_H

#include "tools/copyverb.h"

#define CALLERS_SCHEMA "barway-callers-1"

/* The whole run, from before anything is opened. Returns an exit code. */
int callers_run(struct copyverb *v);

#endif
