/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soft_int: what the parts of the soft GPU share.
 *
 *   soft.c         devices, fork, the table of functions
 *   soft_memory.c  device addresses: allocations, whose memory is this (soft_range.h)
 *   soft_vmm.c     handles, reserved addresses, memory of other processes
 *   soft_window.c  the aperture
 *   soft_pinned.c  host memory that the device can reach
 *   soft_stream.c  streams, the copy engine
 *   soft_work.c    what is put on streams but kernels: copies, words, calls
 *   soft_kernel.c  kernels, their blocks, failures
 *   soft_held.c    stores of kernels that arrive shuffled
 *   soft_card.c    the file behind one soft GPU: pages, who uses them, the aperture
 *
 * Locks, outer first: soft_lock (this process's), the card's (in its file, all processes'). A
 * stream's own lock, and that of a block's stores, is never held together with them.
 */
#ifndef BW_DEVICE_SOFT_INT_H
#define BW_DEVICE_SOFT_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/handle.h"
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

struct soft_stream;
struct soft_team;

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
	struct soft_stream *ce;
	unsigned streams, library_streams; /* the caller's, the library's; under soft_lock */
	_Atomic unsigned kernels; /* that run */
	/* a kernel failed: nothing works until the last stream of either ends */
	_Atomic bool trapped;
};

/* ---- streams ------------------------------------------------------------------------------- */

#define SOFT_HELD 64 /* stores */

/* Stores of one block that have not arrived yet. */
struct soft_held {
	pthread_mutex_t lock;
	uint64_t random;
	unsigned n, keep; /* how many there are, and may be */
	struct soft_store {
		uint64_t *at, value;
		bool release;
	} store[SOFT_HELD];
};

struct barway_soft_block {
	struct soft_card *card;
	unsigned index, count;
	bool fenced;            /* it has called bw_soft_fence() */
	struct soft_held *held; /* NULL: its stores arrive at once */
};

/* Work for a stream. */
struct soft_op {
	struct soft_op *next;
	/* Does it, on the stream's thread. NULL, or why it failed: what follows "soft GPU 0: ". */
	const char *(*run)(struct soft_stream *s, struct soft_op *op);
	bool by_caller, done; /* it is the caller's, who waits for it: @why, then @done */
	bool has_page;
	uint32_t page;        /* of the block that it has a reference to */
	const char *why;
	union {
		struct {
			void *dst;
			const void *src;
			size_t bytes;
		} copy;
		struct {
			uint64_t addr, id, value; /* id: of what was there when it was queued */
		} word;
		struct {
			void (*fn)(void *arg);
			void *arg;
		} call;
		struct {
			bw_soft_kernel *fn;
			unsigned blocks;
			void *arg;
			uint64_t shuffle; /* a seed; 0: its stores arrive at once */
		} kernel;
	};
	_Alignas(max_align_t) unsigned char param[]; /* of a kernel */
};

struct soft_stream {
	struct bw_slot slot;
	struct soft_card *card;
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t work, idle;
	struct soft_op *head, **tail;
	uint64_t queued, finished;
	const char *error;      /* the first since the last synchronisation */
	bool library;           /* not the caller's: the caller cannot end it to end a failure */
	struct soft_team *team; /* the threads of its blocks; NULL before the first kernel */
	_Atomic bool stop;      /* it is being destroyed */
	bool drop;              /* and does not do the rest of its work */
	bool broken;            /* for its thread: there is an error, nothing is announced */
};
_Static_assert(sizeof(struct soft_stream) <= BW_SLOT_BYTES, "struct soft_stream");

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
/* The same for a kernel, to which pinned host memory is memory too; NULL: no such. */
void *soft_memory_reach(struct soft_card *c, uint64_t addr, size_t bytes);
uint64_t soft_memory_id(uint64_t addr); /* of what is at a device address; 0: nothing */
/* These take it. */
int soft_resolve(uint64_t addr, struct bw_segment *seg);
uint64_t soft_identity(uint64_t addr);
int soft_mem_alloc(struct bw_device *dev, size_t bytes, uint64_t *addr);
int soft_mem_free(uint64_t addr);
int soft_export_dmabuf(struct bw_device *dev, uint64_t addr, size_t bytes, int *fd,
		       uint64_t *offset);

/*
 * soft_stream.c. The stream behind a handle, of the device @dev (NULL: of any), or NULL with the
 * error in *ret.
 */
struct soft_stream *soft_stream_get(struct bw_device *dev, struct bw_soft_stream *handle,
				    const char *what, int *ret);
/* @library: for the library's own use. */
int soft_stream_open(struct bw_device *dev, bool library, struct bw_soft_stream **out);
void soft_stream_put_on(struct soft_stream *s, struct soft_op *op);
int soft_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg); /* errno value */
/* Blocking, on the card's own stream. */
int soft_ce_copy_to(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes);
int soft_ce_copy_from(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes);

/* soft_work.c. Under soft_lock: fills in a copy; @dst or @src is NULL: that side is at @addr. */
int soft_copy_prepare(struct soft_card *c, struct soft_op *op, uint64_t addr, void *dst,
		      const void *src, size_t bytes);
extern const char soft_copy_failed[];
int soft_copy(struct bw_device *dev, struct bw_soft_stream *stream, uint64_t addr, void *dst,
	      const void *src, size_t bytes);
int soft_stream_write(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value);
int soft_stream_wait(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value);
int soft_stream_call(struct bw_device *dev, void *stream, void (*fn)(void *arg), void *arg);

/* soft_kernel.c */
int soft_launch(struct bw_device *dev, struct bw_soft_stream *stream, bw_soft_kernel *kernel,
		unsigned blocks, const void *arg, size_t bytes);
void soft_team_end(struct soft_stream *s); /* no kernel runs */
/* Until no kernel runs that may have been using what was just taken away. */
void soft_kernels_end(struct soft_card *c);
extern const char soft_trapped[];
int soft_trap_err(const struct soft_card *c, const char *what);

/* soft_held.c */
void soft_held_begin(struct soft_held *h, uint64_t seed); /* the lock is there already */
void soft_held_store(struct soft_held *h, uint64_t *at, uint64_t value, bool release);
void soft_held_arrive(struct soft_held *h, bool all); /* some, or all */

/* soft_pinned.c */
int soft_host_alloc(struct bw_device *dev, size_t bytes, void **host, uint64_t *addr);
int soft_host_free(void *host);
int soft_host_register(struct bw_device *dev, void *host, size_t bytes, uint64_t *addr);
int soft_host_unregister(void *host);

#endif
