/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soft_int: what the parts of the soft GPU share.
 *
 *   soft.c         devices, fork, the table of functions
 *   soft_memory.c  device addresses: allocations, VMM, import, windows
 *   soft_stream.c  streams, kernels, the copy engine
 *   soft_card.c    the file behind one soft GPU: pages, who uses them, the aperture
 *
 * Locks, outer first: soft_lock (this process's), the card's (in its file, all processes'). A
 * stream's own lock is never held together with them.
 */
#ifndef BW_DEVICE_SOFT_INT_H
#define BW_DEVICE_SOFT_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/soft.h"

#define SOFT_MAX 16u   /* soft GPUs */
#define SOFT_SLOTS 64u /* processes that may share one */
#define SOFT_SHIFT 16  /* of BW_SOFT_PAGE */

/* One page of memory, in the file. Only the first page of a block has pages != 0. */
struct soft_page {
	uint64_t serial; /* of the block: tells an old IPC handle from a new block in its place */
	uint32_t pages;  /* of the block */
	uint32_t unused;
};

/*
 * The file: this header, a struct soft_page per page, SLOTS rows of a count per page (how many
 * references that process has to the block that begins there), then the memory itself. There is no
 * other record of what is in use, so whatever a process that was killed left half done can be
 * put right from this.
 */
struct soft_header {
	uint64_t magic;
	uint32_t version, header_bytes;
	uint64_t token;    /* random: tells this soft GPU from any other */
	uint64_t npages;
	uint64_t aperture; /* pages */
	pthread_mutex_t lock;
	uint64_t used;     /* pages in blocks */
	uint64_t serial;
	uint32_t live[SOFT_SLOTS]; /* slots that were taken; alive while its byte is locked */
	uint64_t held[SOFT_SLOTS]; /* aperture pages */
};

struct soft_card {
	struct bw_device dev;
	bool open;
	int fd;
	char path[128]; /* "": no name, this process's only */
	unsigned slot;
	struct soft_header *hdr;
	size_t control_bytes; /* of the file before the memory */
	struct soft_page *pages;
	uint32_t *row; /* this process's */
	unsigned char *view; /* all of the memory, as the device sees it */
	struct bw_soft_stream *ce;
};

/* soft_card.c. A failing open leaves nothing behind. */
int soft_card_open(struct soft_card *c, int index);
void soft_card_close(struct soft_card *c);
void soft_card_forget(struct soft_card *c); /* in a forked child */
void soft_card_leave(struct soft_card *c);  /* at exit: removes the name if nobody else uses it */

int soft_card_take(struct soft_card *c, uint64_t npages, uint32_t *page); /* a block, 1 reference */
void soft_card_get(struct soft_card *c, uint32_t page);
void soft_card_put(struct soft_card *c, uint32_t page);
/* A reference to a block of another process; -ENOENT where it is gone. */
int soft_card_import(struct soft_card *c, uint32_t page, uint64_t serial);
uint64_t soft_card_serial(struct soft_card *c, uint32_t page);
uint32_t soft_card_pages(struct soft_card *c, uint32_t page);

int soft_card_hold(struct soft_card *c, uint64_t npages); /* aperture */
void soft_card_unhold(struct soft_card *c, uint64_t npages);
void soft_card_info(struct soft_card *c, uint64_t *free_pages, uint64_t *free_aperture);

static inline unsigned char *soft_card_at(struct soft_card *c, uint32_t page)
{
	return c->view + ((uint64_t)page << SOFT_SHIFT);
}

static inline struct soft_card *soft_card_of(struct bw_device *dev)
{
	return (struct soft_card *)((char *)dev - offsetof(struct soft_card, dev));
}

/* soft.c */
extern unsigned soft_epoch; /* one more in each forked child: tells what was inherited */

/* Takes soft_lock and makes sure that the devices are there, @c (NULL: none in particular) too. */
int soft_enter(struct soft_card *c);
void soft_take_lock(void); /* soft_lock alone */
void soft_leave(void);

/* soft_memory.c; the caller holds soft_lock. */
int soft_memory_start(uint64_t memory); /* reserves the device addresses */
void soft_memory_forget(void);
/* The memory at [addr, addr + bytes) in one segment of @c: its block and where it is; -EFAULT. */
int soft_memory_find(struct soft_card *c, uint64_t addr, size_t bytes, uint32_t *page,
		     unsigned char **at);
/* These take it. */
int soft_resolve(uint64_t addr, struct bw_segment *seg);
uint64_t soft_identity(uint64_t addr);
int soft_mem_alloc(struct bw_device *dev, size_t bytes, uint64_t *addr);
int soft_mem_free(uint64_t addr);

/* soft_stream.c: blocking, on the card's own stream. Take soft_lock. */
int soft_ce_copy_to(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes);
int soft_ce_copy_from(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes);
void soft_stream_forget(struct bw_soft_stream *stream);

#endif
