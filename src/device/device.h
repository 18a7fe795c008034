/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device: whose memory is this; allocate; the copy engine. The contract of every kind of device
 * (cuda.c, soft.c); tests/contract/device_test.c runs on each that is listed in device.c.
 *
 * All functions are thread-safe, return 0 or -errno with bw_err() set, and leave the caller's CUDA
 * state as it was. A device lives until the process ends.
 */
#ifndef BW_DEVICE_H
#define BW_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/topo.h"

enum bw_device_kind { /* as enum barway_device_kind */
	BW_DEVICE_CUDA = 1,
	BW_DEVICE_SOFT = 2,
};

enum bw_mem_kind { /* as enum barway_mem_kind */
	BW_MEM_HOST = 0,
	BW_MEM_DEVICE,
	BW_MEM_VMM,
	BW_MEM_POOL,
	BW_MEM_MANAGED,
	BW_MEM_PINNED,
	BW_MEM_IMPORTED,
	BW_MEM_HOST_VMM,
};

struct bw_device_ops;
struct bw_kernel;

struct bw_device {
	const struct bw_device_ops *ops;
	int index;                /* among devices of its kind; CUDA: ordinal in this process */
	struct bw_pci pci;
	bool has_pci;
	char name[96];
	char uuid[48];            /* "GPU-xxxxxxxx-..." ; the GPU's own also where MIG is on */
	bool mig;                 /* a MIG instance */
	bool integrated;          /* shares memory with the CPU (Jetson) */
	bool coherent;            /* CPU and GPU share coherent memory (Grace) */
	/*
	 * Its own work sees what came in, over PCIe or through a mapping, in the order in which it
	 * came: who is told of it later is told behind it. Else a load from there comes first.
	 */
	bool ordered;
	uint64_t memory_total;    /* bytes */
};

/* A piece of memory that answers as one: an allocation, or what one cuMemMap made. */
struct bw_segment {
	enum bw_mem_kind kind;
	struct bw_device *dev;    /* NULL for host memory */
	uint64_t base, bytes;     /* of the whole allocation */
	uint64_t device_base;     /* pinned memory asked about by its CPU address: the device
				   * address of @base; 0: the same */
	uint64_t map_base, map_bytes; /* of the driver's own mapping that it lies in; 0: not said */
	uint64_t id;              /* identity; never reused in this process */
	bool posix_handle;        /* VMM: was created with a POSIX file descriptor handle type */
	bool rdma_capable;        /* VMM: gpuDirectRDMACapable; other kinds true */
	void *owner;              /* CUcontext that owns it, NULL: the device's primary one */
	uint64_t owner_id;        /* context_id() of the owner, in windows; 0: not known */
};

struct bw_device_ops {
	const char *name;         /* "cuda", "soft" */
	enum bw_device_kind kind;

	/*
	 * Finds the devices of this kind, once per process; may initialise the driver, creates no
	 * context. @why says why there is none. Returns their number (>= 0).
	 */
	int (*enumerate)(struct bw_device ***list, struct bw_reason *why);

	/* Cheap checks that need no initialisation: true if there may be devices of this kind. */
	bool (*maybe)(struct bw_reason *why);

	/*
	 * The segment that holds @addr. Returns 0 and fills *seg also for host memory as far as
	 * this kind of device knows it (pinned, managed, host VMM); -ENOENT: not known to it.
	 */
	int (*resolve)(uint64_t addr, struct bw_segment *seg);

	/* The identity of what is at @addr now; 0: nothing. Fast (at most 0.1 us on CUDA). */
	uint64_t (*identity)(uint64_t addr);

	int (*activate)(struct bw_device *dev);
	void (*deactivate)(struct bw_device *dev); /* undoes one activate */

	int (*mem_alloc)(struct bw_device *dev, size_t bytes, uint64_t *addr);
	int (*mem_free)(uint64_t addr); /* -ENOENT: not given out by mem_alloc */
	int (*mem_info)(struct bw_device *dev, uint64_t *total, uint64_t *free); /* -ENODATA */

	/*
	 * The copy engine, blocking: on return ARRIVED, and VISIBLE. On a stream of our own, never
	 * the default one; works in a thread without a context and in one that captures a stream.
	 * [addr, addr + bytes) lies in one segment of @dev.
	 */
	int (*ce_copy_to)(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes);
	int (*ce_copy_from)(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes);

	/*
	 * Memory of the library's own, of the kind programs use most (cudaMalloc for CUDA: small
	 * ones share a block). @owner: the context to make it in, NULL: primary.
	 */
	int (*scratch_alloc)(struct bw_device *dev, void *owner, size_t bytes, uint64_t *addr);
	void (*scratch_free)(struct bw_device *dev, void *owner, uint64_t addr);

	/*
	 * A dma-buf of the GPU memory [addr, addr + bytes), for a network card to reach it by. *fd
	 * is the caller's to close, close-on-exec; @addr is at *offset in it, as far into a host
	 * page there as in memory. It may show more than the range: whole host pages at least.
	 * CUDA: the memory stays while the descriptor, or what was registered by it, is there. The
	 * soft GPU has no dma-bufs, and gives the file that all of its memory is in: it can be
	 * mapped, as those of GPUs cannot, and keeps nothing. Works in a thread without a context
	 * and in one that captures a stream. -EINVAL: 0 bytes; -EFAULT: not all of it is GPU memory
	 * of @dev; -ENOTSUP with reason and remedy: managed memory, more than one allocation (for
	 * CUDA, handles of cuMemCreate that are mapped in a row are one), a driver without the
	 * function, a device or memory that it exports none of; -ENODEV: there is no context;
	 * -EMFILE, -ENOMEM.
	 */
	int (*export_dmabuf)(struct bw_device *dev, uint64_t addr, size_t bytes, int *fd,
			     uint64_t *offset);

	const char *(*driver)(void); /* "580.159.04, open kernel modules", "" unknown */

	/*
	 * Host memory that the device can reach. host_alloc: pinned, page-aligned, cached, near the
	 * device; host_register: whole pages around the caller's range. *@addr is the device
	 * address of @host. The other two: -ENOENT for what this kind did not give out or
	 * register. host_free may wait for running kernels of the process.
	 */
	int (*host_alloc)(struct bw_device *dev, size_t bytes, void **host, uint64_t *addr);
	int (*host_free)(void *host);
	int (*host_register)(struct bw_device *dev, void *host, size_t bytes, uint64_t *addr);
	int (*host_unregister)(void *host);

	/*
	 * Streams. A stream is the kind's own: CUstream, struct bw_soft_stream *; so those of the
	 * caller's serve as well as what stream_create gave out. @owner: the context, NULL: the
	 * primary one. What is put on a stream returns at once (a copy of pageable memory may
	 * block); all of it works in a thread without a context and in one that captures another
	 * stream; on a stream that is being captured, what the driver can capture becomes part of
	 * the graph and the rest is -ENOTSUP.
	 */
	int (*stream_create)(struct bw_device *dev, void *owner, void **stream);
	/* its work is finished first */
	void (*stream_destroy)(struct bw_device *dev, void *stream);
	int (*stream_query)(struct bw_device *dev, void *stream); /* 0 done, -EBUSY, -EIO */
	int (*stream_sync)(struct bw_device *dev, void *stream);  /* 0 or -EIO */
	/* 1: @stream is being captured into a graph, 0: it is not */
	int (*stream_capturing)(struct bw_device *dev, void *stream);
	/* [addr, addr + bytes) in GPU memory, which has to stay until the work is done */
	int (*stream_copy_to)(struct bw_device *dev, void *stream, uint64_t addr, const void *src,
			      size_t bytes);
	int (*stream_copy_from)(struct bw_device *dev, void *stream, void *dst, uint64_t addr,
				size_t bytes);
	/*
	 * Stores @value, 8 bytes, at the device address @addr (GPU memory, or host memory that the
	 * device can reach), after all earlier work of the stream has ARRIVED. stream_wait: later
	 * work waits until the 8 bytes at @addr are >= @value, as unsigned; CUDA compares
	 * cyclically (their difference, as a signed number, is >= 0), so the two have to be less
	 * than 2^63 apart. -ENOTSUP where the device cannot.
	 */
	int (*stream_write)(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value);
	int (*stream_wait)(struct bw_device *dev, void *stream, uint64_t addr, uint64_t value);
	/*
	 * A copy and a stream_write behind it in one: on a stream of stream_create's, which nobody
	 * captures. NULL where that is no better than the two.
	 */
	int (*stream_copy_tell)(struct bw_device *dev, void *stream, bool to_gpu, uint64_t addr,
				void *host, size_t bytes, uint64_t word, uint64_t value);
	/* Calls @fn in a thread of the device's after all earlier work; it must not call CUDA. */
	int (*stream_call)(struct bw_device *dev, void *stream, void (*fn)(void *arg), void *arg);

	/*
	 * The identity of the context @owner (NULL: of what that means now). What was made in a
	 * context is used again only under the same one: a context that was destroyed may be
	 * followed by one at the same address, with streams at the same addresses. 0: there is
	 * none, or it cannot be had (CUDA before 12.0): then nothing is kept.
	 */
	uint64_t (*context_id)(struct bw_device *dev, void *owner);

	/*
	 * Kernels of the library's own. kernel_load compiles or finds it, once per device and
	 * context; a kernel that is resident meanwhile holds it up. Its one parameter is a struct
	 * of @bytes, copied.
	 */
	int (*kernel_load)(struct bw_device *dev, void *owner, const struct bw_kernel *kernel,
			   void **loaded);
	int (*kernel_launch)(struct bw_device *dev, void *stream, void *loaded, unsigned blocks,
			     unsigned threads, const void *param, size_t bytes);

	/*
	 * Does the device still work for this process? -EIO with the device's error where a kernel
	 * failed (CUDA's sticky errors). Does not wait for work. About a microsecond.
	 */
	int (*alive)(struct bw_device *dev, void *owner);
};

/* A kernel of the library's own: as PTX for CUDA, as a C function for the soft GPU. */
struct barway_soft_block;
struct bw_kernel {
	const char *name;  /* of the .entry in @ptx */
	const char *ptx;   /* text; one module */
	void (*soft)(struct barway_soft_block *block, void *arg);
};

/* The one list where kinds of device are registered; ends with NULL. */
extern const struct bw_device_ops *const bw_device_kinds[];
const struct bw_device_ops *bw_device_kind_ops(enum bw_device_kind kind);

/* The segment that holds @addr, whichever kind of device knows it; plain host memory otherwise. */
int bw_device_resolve(uint64_t addr, struct bw_segment *seg);

/*
 * Is [addr, addr + bytes) GPU memory of @dev? The first of its segments is put in *first, and how
 * many there are in *n. -EINVAL: 0 bytes; -EFAULT: no; -ENOTSUP: managed memory, or segments that
 * no cuMemMap has put side by side.
 */
int bw_device_span(struct bw_device *dev, uint64_t addr, size_t bytes, struct bw_segment *first,
		   unsigned *n);

const char *bw_mem_kind_name(enum bw_mem_kind kind); /* "cudaMalloc memory", ... */

#endif
