/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/copy.h"

#include <errno.h>

#include "copy/ce.h"
#include "copy/resident.h"
#include "copy/threads.h"

/* ---- one CPU thread -------------------------------------------------------------------------- */

static int cpu_score(const struct bw_copy *copy, struct bw_reason *why)
{
	bw_reason_set(why, "stores by %s, loads by %s", copy->map->store_name,
		      copy->map->load_name);
	return 100;
}

static int cpu_copy(const struct bw_copy *copy)
{
	if (copy->direction == BW_TO_GPU)
		bw_copy_cpu_to(copy->map, copy->offset, copy->host, copy->bytes);
	else
		bw_copy_cpu_from(copy->map, copy->host, copy->offset, copy->bytes);
	return 0;
}

static const struct bw_copy_method cpu_method = {
	.name = "cpu", .id = BW_METHOD_CPU, .score = cpu_score, .copy = cpu_copy,
};

/* ---- the list -------------------------------------------------------------------------------- */

const struct bw_copy_method *const bw_copy_methods[] = { &cpu_method, &bw_copy_ce,
							&bw_copy_threads,
							&bw_copy_resident, NULL };

const struct bw_copy_method *bw_copy_method(uint32_t id)
{
	for (int i = 0; bw_copy_methods[i]; i++)
		if (bw_copy_methods[i]->id == id)
			return bw_copy_methods[i];
	return NULL;
}

int bw_copy_refused(const struct bw_copy_method *method, const struct bw_copy *copy)
{
	struct bw_reason why = { "" };

	if (method->score(copy, NULL) >= 0)
		return 0;
	method->score(copy, &why);
	return bw_err(ENOTSUP, "method %s: %s", method->name, why.text);
}

/* ---- what methods share ---------------------------------------------------------------------- */

static bool is_within(const struct bw_segment *seg, uint64_t at, size_t bytes)
{
	return at >= seg->base && at - seg->base <= seg->bytes &&
	       bytes <= seg->bytes - (at - seg->base);
}

/*
 * The pinned memory that this thread's last copy had is likely to be that of the next one. To ask
 * whether it is still there takes one question to the driver instead of a dozen.
 */
static const struct bw_segment *pinned_at(uint64_t at, size_t bytes)
{
	static _Thread_local struct bw_segment last;
	struct bw_sentence kept;
	int ret;

	if (last.id && is_within(&last, at, bytes) && last.dev->ops->identity(at) == last.id)
		return &last;
	last.id = 0;
	bw_err_keep(&kept);
	ret = bw_device_resolve(at, &last);
	bw_err_put_back(&kept);
	if (ret || last.kind != BW_MEM_PINNED || !is_within(&last, at, bytes)) {
		last.id = 0;
		return NULL;
	}
	if (!last.dev)
		last.id = 0;
	return &last;
}

void bw_copy_find_host(struct bw_copy *copy)
{
	uint64_t at = (uintptr_t)copy->host;
	const struct bw_segment *seg = at ? pinned_at(at, copy->bytes) : NULL;

	copy->pinned = seg != NULL;
	copy->host_owner = seg ? seg->owner : NULL;
	copy->host_addr = !seg ? 0 : seg->device_base ? seg->device_base + (at - seg->base) : at;
}

static int unreachable_at(uint64_t at, const char *why)
{
	return bw_err(EFAULT, "0x%llx %s", (unsigned long long)at, why);
}

/* The part of [at, end) in @seg; 0: none. */
static size_t part_in(const struct bw_segment *seg, uint64_t at, uint64_t end)
{
	uint64_t to = seg->base + seg->bytes;

	if (at < seg->base || at >= to)
		return 0;
	return (to < end ? to : end) - at;
}

int bw_copy_segments(const struct bw_copy *copy,
		     int (*fn)(void *arg, const struct bw_segment *seg, uint64_t addr, void *host,
			       size_t bytes),
		     void *arg)
{
	const struct bw_window *win = copy->map->win;
	uint64_t start = copy->map->addr + copy->offset, end = start + copy->bytes, at = start;
	int ret = 0;
	size_t n;

	/* The mapping keeps freed memory; who goes by address would go to what is there now. */
	for (unsigned i = 0; i < win->nsegs && at < end; i++) {
		const struct bw_segment *seg = &win->segs[i];

		n = part_in(seg, at, end);
		if (n && seg->dev->ops->identity(at) != seg->id)
			return unreachable_at(at, "was freed: only CPU threads can reach it now, "
					      "BARWAY_METHOD_CPU does");
		at += n;
	}
	if (at < end)
		return unreachable_at(at, "is not memory that the device can reach");
	at = start;
	for (unsigned i = 0; i < win->nsegs && at < end && !ret; i++) {
		n = part_in(&win->segs[i], at, end);
		if (n)
			ret = fn(arg, &win->segs[i], at,
				 (unsigned char *)copy->host + (at - start), n);
		at += n;
	}
	return ret;
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
