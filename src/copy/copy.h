/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy: move bytes by one method. The contract of every method; tests/contract/copy_test.c runs on
 * each that is listed in copy.c. [offset, offset + bytes) lies inside the mapping: the caller
 * checks.
 */
#ifndef BW_COPY_H
#define BW_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "map/map.h"
#include "mmio/fence.h"
#include "mmio/pieces.h"

struct bw_copy_method {
	const char *name; /* "cpu", "ce" */
	uint32_t id;      /* enum barway_method */
	int (*score)(const struct bw_mapping *m, struct bw_reason *why);
	int (*to)(struct bw_mapping *m, size_t offset, const void *src, size_t bytes);
	int (*from)(struct bw_mapping *m, void *dst, size_t offset, size_t bytes);
};

/* The one list where methods are registered; ends with NULL. */
extern const struct bw_copy_method *const bw_copy_methods[];
const struct bw_copy_method *bw_copy_method(uint32_t id);

/*
 * One CPU thread: no call but the kernel chosen when the mapping was made, and for a word, which is
 * the same store in all of them, not even that.
 */
static inline void bw_copy_cpu_to(struct bw_mapping *m, size_t offset, const void *src, size_t n)
{
	if (!bw_store_word(m->ptr + offset, src, n))
		m->store(m->ptr + offset, src, n);
	bw_fence_publish();
}

static inline void bw_copy_cpu_from(struct bw_mapping *m, void *dst, size_t offset, size_t n)
{
	bw_fence_read();
	m->load(dst, m->ptr + offset, n);
}

/* Everything written through the mapping before is VISIBLE when it returns. */
void bw_copy_flush(struct bw_mapping *m);

#endif
