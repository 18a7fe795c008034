/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/copy.h"

#include <errno.h>

/* ---- one CPU thread -------------------------------------------------------------------------- */

static int cpu_score(const struct bw_mapping *m, struct bw_reason *why)
{
	bw_reason_set(why, "stores by %s, loads by %s", m->store_name, m->load_name);
	return 100;
}

static int cpu_to(struct bw_mapping *m, size_t offset, const void *src, size_t bytes)
{
	bw_copy_cpu_to(m, offset, src, bytes);
	return 0;
}

static int cpu_from(struct bw_mapping *m, void *dst, size_t offset, size_t bytes)
{
	bw_copy_cpu_from(m, dst, offset, bytes);
	return 0;
}

static const struct bw_copy_method cpu_method = {
	.name = "cpu", .id = 1, .score = cpu_score, .to = cpu_to, .from = cpu_from,
};

/* ---- the copy engine ------------------------------------------------------------------------- */

static int ce_score(const struct bw_mapping *m, struct bw_reason *why)
{
	(void)m;
	bw_reason_set(why, "the device's copy engine, on a stream of Barway's own");
	return 10;
}

/* Segment by segment; one of @src and @dst is NULL. */
static int ce_copy(struct bw_mapping *m, size_t offset, const unsigned char *src,
		   unsigned char *dst, size_t bytes)
{
	uint64_t at = m->addr + offset, end = at + bytes;

	for (unsigned i = 0; i < m->win->nsegs && at < end; i++) {
		const struct bw_segment *seg = &m->win->segs[i];
		uint64_t to = seg->base + seg->bytes;
		size_t n;
		int ret;

		if (at >= to)
			continue;
		if (at < seg->base)
			return bw_err(EFAULT, "0x%llx is not memory that the copy engine can reach",
				      (unsigned long long)at);
		n = (to < end ? to : end) - at;
		/* the mapping keeps freed memory, the engine would go to what is at its address
		 * now */
		if (seg->dev->ops->identity(at) != seg->id)
			return bw_err(EFAULT,
				      "0x%llx was freed: the copy engine cannot reach it any more, "
				      "BARWAY_METHOD_CPU can",
				      (unsigned long long)at);
		ret = src ? seg->dev->ops->ce_copy_to(seg->dev, at, src, n) :
			    seg->dev->ops->ce_copy_from(seg->dev, dst, at, n);
		if (ret)
			return ret;
		src = src ? src + n : NULL;
		dst = dst ? dst + n : NULL;
		at += n;
	}
	return at < end ? bw_err(EFAULT, "0x%llx is not memory that the copy engine can reach",
				 (unsigned long long)at) : 0;
}

static int ce_to(struct bw_mapping *m, size_t offset, const void *src, size_t bytes)
{
	bw_fence_publish(); /* what the CPU stored before is not overtaken */
	return bytes ? ce_copy(m, offset, src, NULL, bytes) : 0;
}

static int ce_from(struct bw_mapping *m, void *dst, size_t offset, size_t bytes)
{
	if (bytes)
		bw_copy_flush(m); /* the engine reads what the CPU stored before */
	return bytes ? ce_copy(m, offset, NULL, dst, bytes) : 0;
}

static const struct bw_copy_method ce_method = {
	.name = "ce", .id = 2, .score = ce_score, .to = ce_to, .from = ce_from,
};

/* ---- the list -------------------------------------------------------------------------------- */

const struct bw_copy_method *const bw_copy_methods[] = { &cpu_method, &ce_method, NULL };

const struct bw_copy_method *bw_copy_method(uint32_t id)
{
	for (int i = 0; bw_copy_methods[i]; i++)
		if (bw_copy_methods[i]->id == id)
			return bw_copy_methods[i];
	return NULL;
}

__attribute__((no_sanitize("thread"))) /* device memory: others may be writing the word */
static void read_back(const unsigned char *p)
{
	uint32_t word = *(const volatile uint32_t *)p;

#if defined(__x86_64__)
	__asm__ volatile("lfence" :: "r"(word) : "memory"); /* not done before the word is here */
#else
	__asm__ volatile("" :: "r"(word) : "memory");
	bw_fence_mixed();
#endif
}

void bw_copy_flush(struct bw_mapping *m)
{
	const struct bw_window *win = m->win;
	const struct bw_device *last = NULL;

	bw_fence_mixed();
	for (unsigned i = 0; i < win->npieces; i++) {
		const struct bw_piece *piece = &win->pieces[i];
		const unsigned char *at = win->cpu + (piece->addr - win->addr);

		if (piece->seg.dev != last && at < m->ptr + m->bytes && at + piece->bytes > m->ptr)
			read_back((last = piece->seg.dev, at));
	}
}
