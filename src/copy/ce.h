/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy/ce: the copy engine. Read it in this order:
 *
 *   ce.c         how a copy is cut into parts, given to a stream, and waited for
 *   ce_stream.c  streams of the library's own, each with a word that tells how far it is
 *   ce_ring.c    rings of pinned chunks through which pageable memory goes
 *
 * Pinned host memory is given to the engine as it is. Pageable memory goes through a ring: while
 * the engine moves one chunk, the CPU copies the next; or the driver takes it as it is and does
 * something of the kind itself (parameter ce_pageable).
 */
#ifndef BW_COPY_CE_H
#define BW_COPY_CE_H

#include "copy/copy.h"

extern const struct bw_copy_method bw_copy_ce;

/*
 * Copies in one direction as one job: on one stream and with one wait, where they are of one device
 * and context. @job as in copy.h's start; its copy is the first of them. bw_copy_ce.step goes on.
 */
int bw_ce_start_all(struct bw_job *job, const struct bw_copy *copies, size_t n);

/* on_stream.c: puts the copy on a stream of the caller's. -EFAULT, -EINVAL: nothing was put on
 * it. */
int bw_ce_on_stream(const struct bw_copy *copy, void *stream);

/* The engine's work comes after what this thread stored through the mappings, in one direction. */
void bw_ce_order(void);

/* Reads and checks the parameters. */
int bw_ce_configure(void);
/* Gives back the streams and rings that are kept for later. */
void bw_ce_release(void);

#endif
