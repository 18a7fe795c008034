/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/methods: the ways to copy to and from GPU memory that are measured side by side. A new way
 * is a row in methods.c and a name here.
 */
#ifndef BENCH_METHODS_H
#define BENCH_METHODS_H

#include <stdbool.h>
#include <stdint.h>

struct copies;

enum copies_method {
	COPIES_BARWAY,    /* by one CPU thread over the mapping, until it RETURNED */
	COPIES_VISIBLE,   /* that and barway_flush(), until it is VISIBLE; TO only */
	COPIES_AUTO,      /* barway_copy_to() and barway_copy_from(): as Barway plans */
	COPIES_AUTO_PINNED, /* the same, from and to pinned memory of barway_host_alloc() */
	COPIES_THREADS,   /* the caller and helper threads */
	COPIES_CE,        /* the device's copy engine */
	COPIES_RESIDENT,  /* the kernel that waits for copies; pinned memory */
	COPIES_REFERENCE, /* the plain loop over the pointer of the mapping */
	COPIES_CUMEMCPY,  /* cuMemcpy, the same pageable memory as the ones above */
	COPIES_PINNED,    /* cuMemcpyAsync and cuStreamSynchronize, pinned memory */
	COPIES_METHODS,
};

/* So that a mistake cannot hide itself: what the one has moved, the other looks at. */
#define MOVED_BY_CPU 1u
#define MOVED_BY_GPU 2u

struct copies_way {
	const char *name;   /* "barway": in JSON and on the command line */
	const char *title;  /* above its columns; at most 12 characters */
	const char *remedy; /* where Barway refuses it: what has to be done; NULL: it never does */
	int (*to)(struct copies *c, const struct copies_way *way);   /* NULL: not this way */
	int (*from)(struct copies *c, const struct copies_way *way);
	uint32_t by;        /* enum barway_method, where it is Barway's */
	bool cuda;          /* the baseline: not on the soft GPU */
	bool pinned;        /* from and to pinned memory: Barway's, or the baseline's */
	unsigned movers;    /* MOVED_BY_...: who may move the bytes; the others check them */
	bool lat, bw;       /* measured by copylat, by copybw, where nobody chose */
};

extern const struct copies_way copies_ways[COPIES_METHODS];

#define COPIES_ALL ((1u << COPIES_METHODS) - 1)

/* "barway,ce": a set of bits (1 << method); 0: there is a name in it that is none. "all": all. */
unsigned copies_parse(const char *list);

/* "barway, barway_visible, ..." */
const char *copies_list(char *buf, unsigned long n);

#endif
