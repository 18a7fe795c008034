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
	uint64_t memory_total;    /* bytes */
};

/* A piece of memory that answers as one: an allocation, or what one cuMemMap made. */
struct bw_segment {
	enum bw_mem_kind kind;
	struct bw_device *dev;    /* NULL for host memory */
	uint64_t base, bytes;     /* of the whole allocation */
	uint64_t map_base, map_bytes; /* of the driver's own mapping that it lies in; 0: not said */
	uint64_t id;              /* identity; never reused in this process */
	bool posix_handle;        /* VMM: was created with a POSIX file descriptor handle type */
	bool rdma_capable;        /* VMM: gpuDirectRDMACapable; other kinds true */
	void *owner;              /* CUcontext that owns it, NULL: the device's primary one */
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
	 * Scratch memory for the self-test of a provider, of the kind programs use most (cudaMalloc
	 * for CUDA: small ones share a block). @owner: the context to make it in, NULL: primary.
	 */
	int (*scratch_alloc)(struct bw_device *dev, void *owner, size_t bytes, uint64_t *addr);
	void (*scratch_free)(struct bw_device *dev, void *owner, uint64_t addr);

	const char *(*driver)(void); /* "580.159.04, open kernel modules", "" unknown */
};

/* The one list where kinds of device are registered; ends with NULL. */
extern const struct bw_device_ops *const bw_device_kinds[];
const struct bw_device_ops *bw_device_kind_ops(enum bw_device_kind kind);

/* The segment that holds @addr, whichever kind of device knows it; plain host memory otherwise. */
int bw_device_resolve(uint64_t addr, struct bw_segment *seg);

const char *bw_mem_kind_name(enum bw_mem_kind kind); /* "cudaMalloc memory", ... */

#endif
