/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/hw/copies: what the tests of copies share. They run on a real GPU ("make hw") and, with
 * BARWAY_DEVICES=soft, over the soft GPU. COPIES_NO_RESIDENT=1: without the resident copier.
 */
#ifndef TEST_HW_COPIES_H
#define TEST_HW_COPIES_H

#include <errno.h>

#include <barway.h>
#include <barway_soft.h>

#include "hw/gpu.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define MOST (64 * MIB) /* of one copy */
#define GUARD 64ull     /* bytes before and after a copy that have to stay as they are */
#define ROOM (MOST + 64 * KIB)
#define HELPERS 3

enum { PAGEABLE, PINNED, REGISTERED, KINDS };
#define METHODS 5 /* enum barway_method */

static const char *const method_names[METHODS] = { "auto", "cpu", "ce", "threads", "resident" };
static const char *const kind_names[KINDS] = { "pageable", "pinned", "registered" };
static const char *const direction_names[] = { "", "to", "from" };

static struct {
	struct barway_context *ctx; /* with helper threads */
	struct barway_device *dev;
	struct barway_mapping *map;
	uint64_t addr;
	unsigned char *host[KINDS]; /* of ROOM bytes each */
	unsigned char *want, *back; /* what should be there, what is */
	bool soft, resident;
} hw;

#define OK(call) do { \
	int ret_ = (call); \
	if (ret_ < 0) FAIL("%s: %d: %s", #call, ret_, barway_errmsg()); \
} while (0)

static inline uint64_t setting(const char *name, uint64_t dflt)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : dflt;
}

/* How many: fewer on the soft GPU. COPIES_DIVIDE makes all fewer, for slow tools. */
static inline unsigned many(unsigned on_gpu, unsigned on_soft)
{
	unsigned n = (unsigned)((hw.soft ? on_soft : on_gpu) / setting("COPIES_DIVIDE", 1));

	return n ? n : 1;
}

/* A context on the device; skips the case where there is none. */
static inline void open_device(uint32_t helpers, struct barway_context **ctx,
			       struct barway_device **dev)
{
	struct barway_device_info info = { .size = sizeof(info) };
	struct barway_open_options o = { .size = sizeof(o), .copy_threads = helpers };

	o.devices = getenv("BARWAY_DEVICES") ? BARWAY_DEVICES_AUTO : BARWAY_DEVICES_CUDA;
	OK(barway_open(&o, ctx));
	if (barway_device_count(*ctx) <= 0) {
		static char why[256];

		snprintf(why, sizeof(why), "%s", barway_errmsg());
		barway_close(*ctx);
		SKIP("no GPU: %s", why);
	}
	OK(barway_device_get(*ctx, 0, dev));
	OK(barway_device_activate(*dev));
	OK(barway_device_query(*dev, &info));
	hw.soft = info.kind == BARWAY_DEVICE_SOFT;
	if (!hw.soft)
		gpu_start();
}

static inline void start(void)
{
	void *pinned;

	if (hw.map)
		return;
	open_device(HELPERS, &hw.ctx, &hw.dev);
	hw.resident = !setting("COPIES_NO_RESIDENT", 0);
	if (hw.resident)
		OK(barway_resident_start(hw.dev, NULL));
	OK(barway_mem_alloc(hw.dev, ROOM, &hw.addr));
	OK(barway_map(hw.ctx, hw.addr, ROOM, NULL, &hw.map));
	OK(barway_host_alloc(hw.dev, ROOM, &pinned, NULL));
	hw.host[PINNED] = pinned;
	hw.host[PAGEABLE] = aligned_alloc(4096, ROOM);
	hw.host[REGISTERED] = aligned_alloc(4096, ROOM);
	hw.want = aligned_alloc(4096, ROOM);
	hw.back = aligned_alloc(4096, ROOM);
	CHECK(hw.host[PAGEABLE] && hw.host[REGISTERED] && hw.want && hw.back);
	OK(barway_host_register(hw.dev, hw.host[REGISTERED], ROOM, NULL));
}

/* Gives everything back: the last case. */
static inline void stop(void)
{
	if (!hw.map)
		SKIP("nothing was started");
	if (hw.resident)
		OK(barway_resident_stop(hw.dev));
	OK(barway_host_unregister(hw.ctx, hw.host[REGISTERED]));
	OK(barway_host_free(hw.ctx, hw.host[PINNED]));
	OK(barway_unmap(hw.map));
	OK(barway_mem_free(hw.ctx, hw.addr));
	OK(barway_close(hw.ctx));
	free(hw.host[PAGEABLE]);
	free(hw.host[REGISTERED]);
	free(hw.want);
	free(hw.back);
	memset(&hw, 0, sizeof(hw));
}

/* Another way than @method, so that a mistake of it cannot hide itself. */
static inline uint32_t other_method(uint32_t method)
{
	return method == BARWAY_METHOD_CPU || method == BARWAY_METHOD_THREADS ? BARWAY_METHOD_CE :
										BARWAY_METHOD_CPU;
}

static inline bool takes(uint32_t method, unsigned kind)
{
	return method != BARWAY_METHOD_RESIDENT || (hw.resident && kind != PAGEABLE);
}

/* 1 to @most, all orders of magnitude alike. */
static inline size_t random_bytes(uint64_t *seed, size_t most)
{
	unsigned bits = 0;
	size_t n;

	while (bits < 63 && 1ull << (bits + 1) <= most)
		bits++;
	n = 1 + (size_t)(test_random(seed) % (1ull << (test_random(seed) >> 32) % (bits + 1)));
	return n * 2 <= most && test_random(seed) >> 63 ? n * 2 : n;
}

/* Half of them at lines, half anywhere; @bytes and a guard on either side fit into @room. */
static inline size_t random_place(uint64_t *seed, size_t bytes, size_t room)
{
	size_t at = GUARD + (size_t)(test_random(seed) % (room - bytes - 2 * GUARD + 1));

	return test_random(seed) >> 63 ? at / 64 * 64 : at;
}

/* Fast, and another pattern for each seed. */
static inline void fill_words(unsigned char *p, size_t n, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = test_random(&x);

		memcpy(p + i, &v, n - i < 8 ? n - i : 8);
	}
}

static inline size_t first_difference(const unsigned char *a, const unsigned char *b, size_t n)
{
	size_t i = 0;

	if (!memcmp(a, b, n))
		return n;
	while (a[i] == b[i])
		i++;
	return i;
}

static inline void same(const unsigned char *got, const unsigned char *want, size_t n,
			const char *what)
{
	size_t at = first_difference(got, want, n);

	if (at < n)
		FAIL("%s: byte %zu of %zu is 0x%02x instead of 0x%02x", what, at, n, got[at],
		     want[at]);
}

#endif
