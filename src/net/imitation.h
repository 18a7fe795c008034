/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/imitation: an engine for tests, within one process, that does all that a network may do and
 * that those at hand do not: writes arrive in shuffled order, in pieces, late, and after their
 * completion; posting is put off; and on demand it fails. Always built; only by these names:
 *
 *    imitation       as tcp: CPUs move the bytes, nothing arrives unless the target polls, a write
 *                    with a wrong key completes and is lost
 *    imitation-rdma  as a network card: needs registered memory on both sides, reaches GPU memory
 *                    by a dma-buf that can be mapped, as the soft GPU's, takes 4 bytes of data,
 *                    moves while the target sleeps, tells of a wrong key
 */
#ifndef BW_NET_IMITATION_H
#define BW_NET_IMITATION_H

#include "net/engine.h"

/* How it behaves, for the whole process; errors are -errno values, 0: none. */
struct bw_imitation {
	uint64_t seed;        /* of all that is left to chance */
	unsigned again;       /* one posting in so many is put off; 0: none */
	unsigned late;        /* polls that it takes to arrive, at most */
	int host_error;       /* of the registration of host memory */
	int dmabuf_error;     /* of that of GPU memory by its dma-buf */
	int peermem_error;    /* and by its address */
	size_t dmabuf_shift;  /* by so many bytes the card misses it then; whole pages */
	int event_error;      /* one operation in @event_every ends with it, and does nothing */
	unsigned event_every;
	unsigned rnr;         /* polls that a message waits for a receive until it is lost, and its
			       * sender told -EIO, of imitation-rdma; 0: it waits for ever */
	/* Where the CPU finds the GPU memory at a device address; NULL: no peer memory. */
	void *(*gpu)(uint64_t addr, size_t bytes);
};

/* NULL: seed 1, one in 16 put off, late by up to 24 polls, no faults, no peer memory. */
void bw_imitation_set(const struct bw_imitation *how);

/*
 * The rail's process dies: it moves nothing from now on. Others are not told, their posting is put
 * off after a while and for ever; @loud: what they have given to it ends with -ECANCELED instead.
 */
void bw_imitation_kill(struct bw_rail *rail, bool loud);

#endif
