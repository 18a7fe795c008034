/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map: make GPU memory CPU-visible. The contract of every provider; tests/contract/map_test.c runs
 * on each that is listed in map.c.
 *
 *   request (range)  ->  segments  ->  one provider  ->  window (stitched CPU range)  ->  mapping
 *
 * A window covers whole 4 KiB pages around the caller's range, clamped to the pages that hold bytes
 * of the allocations in it. Windows are shared by mappings and kept by the cache (map/cache.h).
 */
#ifndef BW_MAP_H
#define BW_MAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/handle.h"
#include "device/device.h"
#include "mmio/mmio.h"

#define BW_PAGE 4096ull /* CPU page of a mapping of device memory, bytes */

struct bw_window;

/* One segment's part of a window. */
struct bw_piece {
	struct bw_segment seg;
	uint64_t addr;   /* first device address of the part, page aligned */
	size_t bytes;    /* multiple of BW_PAGE */
	void *priv;      /* the provider's */
	char route[24];  /* how the provider found the memory; set by its map() */
};

struct bw_map_provider {
	const char *name;
	bool keeps_alive; /* memory freed under a mapping stays alive; else the mapping is
			   * revoked */

	/* Checks the provider's parameters when the first context opens; NULL: it has none. */
	int (*configure)(void);

	/*
	 * How eager for this device; negative: refuses, with -EACCES, -ENOMEM, -EMFILE or -ENFILE
	 * where that keeps this process from opening what it takes, else with -1. @why is set
	 * either way. @dev NULL: what can be said without initialising anything. Cheap enough for
	 * each new window (results that cost a system call are kept); does not include the
	 * self-test.
	 */
	int (*score)(struct bw_device *dev, struct bw_reason *why);

	/* More about one segment: 0, or -ENOTSUP with the reason. */
	int (*accepts)(const struct bw_segment *seg, struct bw_reason *why);

	/*
	 * Maps the piece at the CPU address @at (reserved, to be overmapped with MAP_FIXED),
	 * readable and writable, and reports the caching kind. On failure nothing stays, and @at is
	 * reserved address space again or still. Checks what the driver said before it lets the CPU
	 * in.
	 */
	int (*map)(struct bw_piece *piece, void *at, enum bw_caching *caching);

	/* Undoes it. The CPU range has been unmapped by the caller before. Never fails. */
	void (*unmap)(struct bw_piece *piece);

	/* Puts kernels of its own in the place of the best ones; NULL: they are fine. */
	void (*kernels)(struct bw_mmio_choice *choice);

	/* Sizes of the aperture, bytes; -ENODATA where they cannot be had. */
	int (*bar1)(struct bw_device *dev, uint64_t *total, uint64_t *free);

	/* Closes every file of the driver's (no window is left). @forget: also what the self-test
	 * taught; it will be made again. */
	void (*release)(bool forget);
};

/* The one list where providers are registered; ends with NULL. */
extern const struct bw_map_provider *const bw_map_providers[];

struct bw_window {
	const struct bw_map_provider *provider;
	unsigned char *cpu;      /* CPU address of the first byte */
	uint64_t addr;           /* device address of the first byte, page aligned */
	size_t bytes;            /* multiple of BW_PAGE */
	enum bw_caching caching; /* the least relaxed of its pieces */
	struct bw_mmio_choice kernels;
	unsigned npieces, nsegs;
	struct bw_piece *pieces;
	struct bw_segment *segs; /* every allocation in it, also those that share a page with
				  * another */
	struct bw_reason reason; /* why this provider */
	bool clamped;            /* may have holes, and pages beside the segments */
	_Atomic bool revoked;    /* its pages were taken away (barway_release_all) */

	/* the cache's, under its lock */
	unsigned users;
	uint64_t idle_since_ms;
	struct bw_window *hash_next;
	struct bw_window *lru_prev, *lru_next;
	bool uncached; /* not to be found, not to be kept */
};

/* A mapping: what a handle stands for. The hot part comes first and fits a cache line. */
struct bw_mapping {
	struct bw_slot slot;
	/* Copies go from @from to @from + @span: 0 and the size unless it was clamped. */
	size_t from, span;
	unsigned char *base; /* the byte at @from */
	bw_store_fn *store;
	bw_load_fn *load;
	size_t cpu_to, cpu_from; /* copies up to these sizes are for one CPU thread; bytes; no
				  * more than @span; the layer above sets them */
	/* cold */
	unsigned char *ptr;
	size_t bytes;
	struct bw_window *win;
	uint64_t addr;
	struct bw_context *ctx;
	struct bw_mapping *prev, *next;
	const char *store_name, *load_name;
	uint32_t copy_method, copy_threads; /* the context's: for the layer above */
	size_t cpu_alone_to, cpu_alone_from; /* as cpu_to and cpu_from, but that they hold only
						* while no resident copier is there */
	bool from_cache;
};

/* What a caller may have; the context's part of a request. */
struct bw_map_policy {
	const char *providers; /* allowed, NULL or "": all */
	uint32_t fallback;     /* enum barway_fallback */
	bool uncached;
	bool clamp; /* the range may be larger than its memory */
};

/*
 * A window that covers [addr, addr + bytes): from the cache or new. The caller gives it back with
 * bw_window_put(). *cached tells which.
 */
int bw_window_get(uint64_t addr, size_t bytes, const struct bw_map_policy *policy,
		  struct bw_window **out, bool *cached);
void bw_window_put(struct bw_window *win);

/*
 * Around every question to a provider (score, bar1, accepts) and every making or undoing of
 * windows: between the two no other thread closes the driver's files. Not to be nested.
 */
void bw_map_enter(void);
void bw_map_leave(void);

/* Makes and destroys windows; cache.c is their only caller. */
int bw_window_new(uint64_t addr, size_t bytes, const struct bw_map_policy *policy,
		  struct bw_window **out);
void bw_window_destroy(struct bw_window *win);
/* Takes the pages away but keeps the CPU range reserved, so that its pointers fault. */
void bw_window_revoke(struct bw_window *win);

/* Checks the parameters of the providers. */
int bw_map_configure(void);

/* Lets go of everything; with @forget also of the self-tests' verdicts. -EBUSY: mappings are live
 * and @force is not set. */
int bw_map_release(bool force, bool forget);

/* The kernels for what @provider maps. */
struct bw_mmio_choice bw_map_kernels(const struct bw_map_provider *provider,
				     enum bw_caching caching);

/* What to do instead of mapping memory of a kind that cannot be mapped. */
const char *bw_instead_of(enum bw_mem_kind kind);

/* Does a provider take memory of this kind? */
bool bw_mappable(const struct bw_segment *seg, struct bw_reason *why);

/* map/selftest.c: proves @provider on @dev with data, once per process; -EIO ever after a
 * failure. */
int bw_self_test(const struct bw_map_provider *provider, struct bw_device *dev, void *owner);
void bw_self_test_forget(void);

#endif
