/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy/pause: how to wait for a device. What comes soon is polled for, with the CPU to others' use
 * after a while; what by its size takes long is slept for, to be polled for at its end.
 */
#ifndef BW_COPY_PAUSE_H
#define BW_COPY_PAUSE_H

#include <stdint.h>

#include "core/clock.h"

struct bw_pause {
	uint64_t since_ns;  /* when the wait began; 0: it did not */
	uint64_t expect_ns; /* how long it should take */
	unsigned turns;
};

/* @bytes are to be moved. */
void bw_pause_begin(struct bw_pause *p, uint64_t bytes);
/* A turn of the wait: returns soon, or after a sleep that ends before @until_ns. */
void bw_pause(struct bw_pause *p, uint64_t until_ns);

#endif
