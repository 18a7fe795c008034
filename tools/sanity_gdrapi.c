/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of barway sanity: Barway through GDRCopy's interface, as programs have it that load
 * libgdrapi.so.2, with prototypes of their own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sanity.h"

#define MIB (1024u * 1024u)
#define PAGE 65536u /* GPU_PAGE_SIZE */

struct gdr_mh {
	unsigned long h;
};

struct gdr_info { /* version 2 */
	uint64_t va, mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1, wc_mapping : 1;
	int32_t mapping_type;
};

#define GDR_FUNCTIONS(F)                                                          \
	F(void *, open, (void))                                                   \
	F(int, close, (void *g))                                                  \
	F(int, pin_buffer, (void *g, unsigned long addr, size_t size,             \
			    uint64_t p2p_token, uint32_t va_space, struct gdr_mh *mh)) \
	F(int, unpin_buffer, (void *g, struct gdr_mh mh))                         \
	F(int, get_callback_flag, (void *g, struct gdr_mh mh, int *flag))         \
	F(int, get_info_v2, (void *g, struct gdr_mh mh, struct gdr_info *info))   \
	F(int, map, (void *g, struct gdr_mh mh, void **va, size_t size))          \
	F(int, unmap, (void *g, struct gdr_mh mh, void *va, size_t size))         \
	F(int, copy_to_mapping, (struct gdr_mh mh, void *map, const void *host, size_t size)) \
	F(int, copy_from_mapping, (struct gdr_mh mh, void *host, const void *map, size_t size)) \
	F(void, runtime_get_version, (int *major, int *minor))                    \
	F(int, driver_get_version, (void *g, int *major, int *minor))             \
	F(int, get_attribute, (void *g, int attr, int *v))

static struct {
#define DECLARE(type, name, args) type (*name) args;
	GDR_FUNCTIONS(DECLARE)
#undef DECLARE
} gdr;

/* These return positive errno values. */
#define GDR_OK(call) do { \
	int ok_ = (call); \
	if (ok_) \
		sanity_fail("gdr_%s is %d (%s)", &#call[4], ok_, strerror(ok_)); \
} while (0)
#define GDR_REFUSED(call, err) do { \
	int ok_ = (call); \
	if (ok_ != (err)) \
		sanity_fail("gdr_%s is %d where it has to be %d (%s)", &#call[4], ok_, (err), \
			    strerror(err)); \
} while (0)

/* ---- the library ------------------------------------------------------------------------- */

#define LIBRARY "libgdrapi.so.2"

/* Where the loader looks, as for any program; else beside libbarway, or where it was built. */
static void *find_library(void)
{
	static const char *const places[] = { LIBRARY, "../compat/gdrapi/" LIBRARY };
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *slash;
	char path[4096];
	Dl_info self;

	if (lib || !dladdr((void *)(uintptr_t)&barway_version, &self) || !self.dli_fname)
		return lib;
	slash = strrchr(self.dli_fname, '/');
	for (size_t i = 0; slash && !lib && i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - self.dli_fname),
			 self.dli_fname, places[i]);
		lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return lib;
}

static void load(void)
{
	void *lib = find_library();

	if (!lib)
		sanity_waive("%s; so nothing is said about programs that use gdrapi.h: install "
			     LIBRARY " beside libbarway, or put its folder into LD_LIBRARY_PATH",
			     dlerror());
#define LOAD(type, name, args) \
	*(void **)&gdr.name = dlsym(lib, "gdr_" #name); \
	if (!gdr.name) \
		sanity_waive("the " LIBRARY " that the loader finds has no gdr_" #name ": it is " \
			     "not Barway's; put its folder first in LD_LIBRARY_PATH");
	GDR_FUNCTIONS(LOAD)
#undef LOAD
}

static uint64_t live(struct sanity *s)
{
	struct barway_counters c = { .size = sizeof(c) };

	OK(barway_counters_get(s->ctx, &c));
	return c.live_mappings;
}

/* GDRCopy's own library has the same name: what is pinned does not go by Barway there. */
static void *open_library(struct sanity *s)
{
	struct bench_memory mem;
	uint64_t before;
	struct gdr_mh mh;
	bool ours;
	void *g;

	sanity_open(s);
	load();
	g = gdr.open();
	if (!g && !s->soft && getenv("BARWAY_DEVICES"))
		sanity_waive("gdr_open() finds no device that it may use: unset BARWAY_DEVICES");
	CHECK(g, "gdr_open() fails; GDRCOPY_ENABLE_LOGGING=1 says why");
	sanity_alloc(s, BENCH_MEMORY_BARWAY, PAGE, &mem);
	before = live(s);
	GDR_OK(gdr.pin_buffer(g, mem.addr, PAGE, 0, 0, &mh));
	ours = live(s) > before;
	GDR_OK(gdr.unpin_buffer(g, mh));
	sanity_free(s, &mem);
	if (!ours)
		sanity_waive("the " LIBRARY " that the loader finds is not Barway's; put its "
			     "folder first in LD_LIBRARY_PATH");
	return g;
}

static void close_library(struct sanity *s, void *g)
{
	GDR_OK(gdr.close(g));
	sanity_close(s);
}

/* ---- data -------------------------------------------------------------------------------- */

/* Pins [addr, addr + n), maps it, and proves it both ways, by copies and by stores. */
static void prove(struct sanity *s, void *g, const struct bench_memory *mem, size_t at, size_t n)
{
	unsigned char *want = sanity_host(mem->bytes), *got = sanity_host(mem->bytes);
	volatile unsigned char *p;
	struct gdr_mh mh;
	void *va;

	sanity_fill(s, want, mem->bytes);
	GPU_OK(bench_gpu_write(s->gpu, mem->addr, want, mem->bytes));
	GDR_OK(gdr.pin_buffer(g, mem->addr + at, n, 0, 0, &mh));
	GDR_OK(gdr.map(g, mh, &va, n));
	GDR_OK(gdr.copy_from_mapping(mh, got, va, n));
	CHECK(!memcmp(got, want + at, n), "gdr_copy_from_mapping(), %zu bytes at +%zu: not what "
	      "the GPU has", n, at);
	sanity_fill(s, want + at, n);
	GDR_OK(gdr.copy_to_mapping(mh, va, want + at, n));
	p = va;
	p[n - 1] = want[at + n - 1] ^= 0xff;
	barway_fence_mixed();
	(void)p[n - 1]; /* a load of what was stored last: all of it is there then */
	GPU_OK(bench_gpu_read(s->gpu, got, mem->addr, mem->bytes));
	CHECK(!memcmp(got, want, mem->bytes), "gdr_copy_to_mapping(), %zu bytes at +%zu: the GPU "
	      "does not see it, or a byte beside it changed", n, at);
	GDR_OK(gdr.unmap(g, mh, va, n));
	GDR_OK(gdr.unpin_buffer(g, mh));
	free(want);
	free(got);
}

static void gdrapi_basics(struct sanity *s)
{
	int major = 0, minor = 0, v = -1;
	struct bench_memory mem;
	struct gdr_info info;
	struct gdr_mh mh;
	void *g, *va, *again;

	g = open_library(s);
	gdr.runtime_get_version(&major, &minor);
	CHECK(major == 2 && minor >= 6, "the library says it is version %d.%d", major, minor);
	GDR_OK(gdr.driver_get_version(g, &major, &minor));
	CHECK(major == 2 && minor >= 5, "the library says of its driver: version %d.%d", major,
	      minor);
	GDR_OK(gdr.get_attribute(g, 1, &v));
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	GDR_OK(gdr.pin_buffer(g, mem.addr, MIB, 0, 0, &mh));
	CHECK(mh.h, "gdr_pin_buffer() gives a handle of 0");
	GDR_OK(gdr.map(g, mh, &va, MIB));
	GDR_REFUSED(gdr.map(g, mh, &again, MIB), EAGAIN);
	GDR_OK(gdr.get_info_v2(g, mh, &info));
	CHECK(info.va == mem.addr && info.mapped_size == MIB && info.page_size == PAGE &&
	      info.mapped, "gdr_get_info() does not say what was pinned");
	GDR_OK(gdr.unmap(g, mh, va, MIB));
	GDR_REFUSED(gdr.copy_to_mapping(mh, va, &v, sizeof(v)), EINVAL);
	GDR_OK(gdr.unpin_buffer(g, mh));
	GDR_REFUSED(gdr.unpin_buffer(g, mh), EINVAL);
	GDR_REFUSED(gdr.pin_buffer(g, mem.addr, 0, 0, 0, &mh), EINVAL);
	prove(s, g, &mem, 0, MIB);
	sanity_free(s, &mem);
	close_library(s, g);
}

static void gdrapi_copies(struct sanity *s)
{
	static const size_t places[][2] = {
		{ 0, PAGE }, { PAGE, 4 * PAGE }, { 4096, 5000 }, { 1, 1 }, { 65535, 65538 },
		{ 100, 600 }, { 777, 300000 },
	};
	struct bench_memory mem;
	void *g = open_library(s);

	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		prove(s, g, &mem, places[i][0], places[i][1]);
	for (size_t n = 1; n <= 300; n += n < 40 ? 1 : 13)
		prove(s, g, &mem, 2 * PAGE + n % 64, n);
	sanity_free(s, &mem);
	close_library(s, g);
}

/* ---- several pins ------------------------------------------------------------------------ */

#define PINS 8u
#define PIECE 600u

struct pin {
	struct gdr_mh mh;
	void *va;
	unsigned char data[PIECE];
};

static void gdrapi_one_page(struct sanity *s)
{
	unsigned char got[PIECE];
	struct bench_memory mem;
	struct pin pin[PINS];
	void *g = open_library(s);

	sanity_alloc(s, BENCH_MEMORY_BARWAY, PINS * PIECE, &mem);
	for (unsigned i = 0; i < PINS; i++) {
		GDR_OK(gdr.pin_buffer(g, mem.addr + i * PIECE, PIECE, 0, 0, &pin[i].mh));
		GDR_OK(gdr.map(g, pin[i].mh, &pin[i].va, PIECE));
		sanity_fill(s, pin[i].data, PIECE);
		GDR_OK(gdr.copy_to_mapping(pin[i].mh, pin[i].va, pin[i].data, PIECE));
		(void)*(volatile unsigned char *)pin[i].va;
	}
	for (unsigned i = 0; i < PINS; i++) {
		GPU_OK(bench_gpu_read(s->gpu, got, mem.addr + i * PIECE, PIECE));
		CHECK(!memcmp(got, pin[i].data, PIECE), "pin %u of several in one page has other "
		      "bytes than were put there", i);
		GDR_OK(gdr.unpin_buffer(g, pin[i].mh)); /* unmaps, too; the others stay */
	}
	sanity_free(s, &mem);
	close_library(s, g);
}

/* ---- what outlives what ------------------------------------------------------------------ */

#define OTHERS 8u

static void gdrapi_freed(struct sanity *s)
{
	unsigned char *data = sanity_host(MIB);
	struct bench_memory mem, other[OTHERS];
	volatile unsigned char *p;
	void *g = open_library(s), *va;
	struct gdr_mh mh;
	int flag = -1;

	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	GDR_OK(gdr.pin_buffer(g, mem.addr, MIB, 0, 0, &mh));
	GDR_OK(gdr.map(g, mh, &va, MIB));
	GDR_OK(gdr.get_callback_flag(g, mh, &flag));
	CHECK(flag == 0, "the callback flag is %d while the memory is there", flag);
	p = va;
	p[0] = p[MIB - 1] = 0x3c;
	sanity_free(s, &mem);
	GDR_OK(gdr.get_callback_flag(g, mh, &flag));
	CHECK(flag == 1, "the callback flag is %d after the memory was freed", flag);
	memset(data, 0x5a, MIB);
	for (unsigned i = 0; i < OTHERS; i++) {
		sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &other[i]);
		GPU_OK(bench_gpu_write(s->gpu, other[i].addr, data, MIB));
	}
	CHECK(sanity_faults(p, false) || (p[0] == 0x3c && p[MIB - 1] == 0x3c),
	      "a pin whose memory was freed shows somebody else's");
	GDR_OK(gdr.unpin_buffer(g, mh));
	for (unsigned i = 0; i < OTHERS; i++)
		sanity_free(s, &other[i]);
	free(data);
	close_library(s, g);
}

static void stale_pin(struct sanity *s, void *arg)
{
	const struct pin *pin = arg;
	char byte = 0;

	(void)s;
	GDR_REFUSED(gdr.copy_to_mapping(pin->mh, pin->va, &byte, 1), EINVAL);
	CHECK(sanity_faults(pin->va, false) && sanity_faults(pin->va, true),
	      "a forked child's loads and stores reach what the parent pinned");
}

static void gdrapi_close_fork(struct sanity *s)
{
	struct bench_memory mem;
	volatile unsigned char *p;
	struct pin pin;
	void *g = open_library(s);

	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	GDR_OK(gdr.pin_buffer(g, mem.addr, MIB, 0, 0, &pin.mh));
	GDR_OK(gdr.map(g, pin.mh, &pin.va, MIB));
	p = pin.va;
	p[5] = 77;
	sanity_join(sanity_fork(stale_pin, s, &pin));
	CHECK(p[5] == 77, "the parent's data changed when a forked child ended");
	prove(s, g, &mem, 0, MIB);
	GDR_OK(gdr.close(g)); /* with the pin */
	GDR_REFUSED(gdr.copy_to_mapping(pin.mh, pin.va, pin.data, 1), EINVAL);
	sanity_free(s, &mem);
	sanity_close(s);
}

/* ---- threads ----------------------------------------------------------------------------- */

#define THREADS 8u

struct worker {
	pthread_t thread;
	void *g;
	uint64_t addr;
	unsigned number;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned char a[PIECE], b[PIECE];
	struct gdr_mh mh;
	void *va;

	for (unsigned i = 0; i < 500; i++) {
		memset(a, (int)(w->number + i), sizeof(a));
		GDR_OK(gdr.pin_buffer(w->g, w->addr, PIECE, 0, 0, &mh));
		GDR_OK(gdr.map(w->g, mh, &va, PIECE));
		GDR_OK(gdr.copy_to_mapping(mh, va, a, PIECE));
		GDR_OK(gdr.copy_from_mapping(mh, b, va, PIECE));
		CHECK(!memcmp(a, b, PIECE), "round %u: a thread does not see what it wrote", i);
		GDR_OK(gdr.unmap(w->g, mh, va, PIECE));
		GDR_OK(gdr.unpin_buffer(w->g, mh));
	}
	return NULL;
}

static void gdrapi_threads(struct sanity *s)
{
	struct worker w[THREADS];
	struct bench_memory mem;
	void *g = open_library(s);
	int err;

	sanity_alloc(s, BENCH_MEMORY_BARWAY, THREADS * PIECE, &mem);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .g = g, .addr = mem.addr + i * PIECE, .number = 31 * i };
		err = pthread_create(&w[i].thread, NULL, work, &w[i]);
		CHECK(!err, "start a thread: %s", strerror(err));
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	sanity_free(s, &mem);
	close_library(s, g);
}

/* ---- leaks ------------------------------------------------------------------------------- */

static void gdrapi_leaks(struct sanity *s)
{
	struct sanity_held before, after;
	struct bench_memory mem;
	void *g = open_library(s), *more, *va;
	struct gdr_mh mh;

	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	for (unsigned i = 0; i < 320; i++) {
		if (i == 20)
			sanity_held(s, &before);
		more = gdr.open();
		CHECK(more, "gdr_open() fails the %u. time", i + 2);
		GDR_OK(gdr.pin_buffer(more, mem.addr, MIB, 0, 0, &mh));
		GDR_OK(gdr.map(more, mh, &va, MIB));
		if (i % 2)
			GDR_OK(gdr.unpin_buffer(more, mh));
		GDR_OK(gdr.close(more)); /* with the pin, every other time */
	}
	sanity_held(s, &after);
	CHECK(after.files == before.files, "after 300 cycles %d files more are open",
	      (int)after.files - (int)before.files);
	CHECK(live(s) == 0, "after all was closed %llu mappings are live",
	      (unsigned long long)live(s));
	sanity_free(s, &mem);
	close_library(s, g);
}

const struct sanity_case sanity_gdrapi[] = {
	{ "gdrapi_basics", "gdrapi.h: open, pin, map, copy, close", true, gdrapi_basics },
	{ "gdrapi_copies", "gdrapi.h: copies at any address, of any size", false, gdrapi_copies },
	{ "gdrapi_one_page", "gdrapi.h: several pins in one page", false, gdrapi_one_page },
	{ "gdrapi_freed", "gdrapi.h: memory freed under a pin", false, gdrapi_freed },
	{ "gdrapi_close_fork", "gdrapi.h: a forked child, and a close with a pin", false,
	  gdrapi_close_fork },
	{ "gdrapi_threads", "gdrapi.h: threads that pin in one page", false, gdrapi_threads },
	{ "gdrapi_leaks", "gdrapi.h: files and mappings come back", false, gdrapi_leaks },
	{ 0 },
};
