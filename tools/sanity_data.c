/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of barway sanity: data at every address and size, of every kind of memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sanity.h"

#define KIB 1024u
#define MIB (1024u * 1024u)
#define COUNT(x) (sizeof(x) / sizeof((x)[0]))

/* ---- basics ------------------------------------------------------------------------------ */

static void check_queries(struct sanity *s, const struct bench_memory *mem,
			  struct barway_mapping *m)
{
	struct barway_pointer_info p = { .size = sizeof(p) };
	struct barway_mapping_info i = { .size = sizeof(i) };

	OK(barway_pointer_query(s->ctx, mem->addr + 7, &p));
	CHECK(p.kind != BARWAY_MEM_HOST && p.mappable && p.device == s->dev && p.id,
	      "barway_pointer_query() says of memory of the device: kind %u, mappable %u, identity "
	      "%llu", p.kind, p.mappable, (unsigned long long)p.id);
	CHECK(p.base <= mem->addr + 7 && mem->addr + 7 < p.base + p.bytes,
	      "barway_pointer_query() gives a range without the address");
	OK(barway_mapping_query(m, &i));
	CHECK(i.ptr == barway_mapping_ptr(m) && i.addr == mem->addr + 7 && i.bytes == 1000 &&
	      i.device == s->dev && *i.provider && *i.store_kernel && *i.load_kernel,
	      "barway_mapping_query() does not say what was mapped");
}

static void by_engine(struct sanity *s, struct barway_mapping *m)
{
	unsigned char a[1000], b[1000];

	sanity_fill(s, a, sizeof(a));
	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, a, sizeof(a)));
	OK(barway_copy_from(m, b, 0, sizeof(b)));
	CHECK(!memcmp(a, b, sizeof(a)), "the CPU does not see what the copy engine wrote");
	sanity_fill(s, a, sizeof(a));
	OK(barway_copy_to(m, 0, a, sizeof(a)));
	OK(barway_flush(m));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, b, 0, sizeof(b)));
	CHECK(!memcmp(a, b, sizeof(a)), "the copy engine does not see what the CPU copied");
}

static void basics(struct sanity *s)
{
	struct barway_mapping *m;
	struct barway_context *ctx;
	struct bench_memory mem;
	uint64_t addr;

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	sanity_prove(s, mem.addr, MIB, mem.addr, MIB);
	OK(barway_map(s->ctx, mem.addr + 7, 1000, NULL, &m));
	check_queries(s, &mem, m);
	by_engine(s, m);
	OK(barway_unmap(m));
	REFUSED(barway_unmap(m), ESTALE);
	CHECK(!barway_mapping_ptr(m), "an ended mapping still has a pointer");
	addr = mem.addr;
	sanity_free(s, &mem);
	REFUSED(barway_mem_free(s->ctx, addr), EINVAL);
	ctx = s->ctx;
	sanity_close(s);
	REFUSED(barway_close(ctx), ESTALE);
}

static void refusals(struct sanity *s)
{
	struct barway_mapping *m;
	struct bench_memory mem;
	unsigned char b[16] = { 0 };
	uint64_t addr;
	void *pinned;

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	REFUSED(barway_map(s->ctx, mem.addr, 0, NULL, &m), EINVAL);
	REFUSED(barway_map(s->ctx, mem.addr, SIZE_MAX, NULL, &m), EINVAL);
	REFUSED(barway_map(s->ctx, (uintptr_t)b, sizeof(b), NULL, &m), EFAULT);
	REFUSED(barway_map(s->ctx, mem.addr, (size_t)1 << 46, NULL, &m), EFAULT);
	OK(barway_host_alloc(s->dev, 4096, &pinned, NULL));
	REFUSED(barway_map(s->ctx, (uintptr_t)pinned, 16, NULL, &m), ENOTSUP);
	OK(barway_host_free(s->ctx, pinned));
	OK(barway_map(s->ctx, mem.addr, 100, NULL, &m));
	REFUSED(barway_copy_to(m, 90, b, 11), EINVAL);
	REFUSED(barway_copy_from(m, b, SIZE_MAX - 4, 8), EINVAL);
	REFUSED(barway_copy_to(m, 0, NULL, 1), EINVAL);
	OK(barway_unmap(m));
	REFUSED(barway_copy_to(m, 0, b, 1), ESTALE);
	REFUSED(barway_flush(m), ESTALE);
	addr = mem.addr;
	sanity_free(s, &mem);
	REFUSED(barway_map(s->ctx, addr, 100, NULL, &m), EFAULT);
	if (sanity_try_alloc(s, BENCH_MEMORY_MANAGED, 65536, &mem)) {
		REFUSED(barway_map(s->ctx, mem.addr, 100, NULL, &m), ENOTSUP);
		sanity_free(s, &mem);
	}
	sanity_close(s);
}

/* ---- sizes ------------------------------------------------------------------------------- */

#define WINDOW 1024u
#define MIDDLE 256u

struct sizes {
	struct barway_mapping *map;
	uint64_t addr;
	unsigned char want[WINDOW], got[WINDOW], host[WINDOW];
};

/* @n bytes at @offset, from and to host memory that is @shift away from alignment. */
static void one_size(struct sanity *s, struct sizes *z, size_t n, size_t offset, size_t shift)
{
	size_t at = MIDDLE + offset, bad;

	sanity_fill(s, z->want, WINDOW);
	GPU_OK(bench_gpu_write(s->gpu, z->addr, z->want, WINDOW));
	memset(z->got, 0xaa, WINDOW);
	OK(barway_copy_from(z->map, z->got + MIDDLE + shift, at, n));
	bad = sanity_differs(z->got + MIDDLE + shift, z->want + at, n);
	CHECK(bad == n, "from the GPU, %zu bytes at +%zu: byte %zu is wrong", n, offset, bad);
	for (size_t i = 0; i < WINDOW; i++)
		CHECK(z->got[i] == 0xaa || (i >= MIDDLE + shift && i < MIDDLE + shift + n),
		      "from the GPU, %zu bytes at +%zu: a byte of the program's beside it changed",
		      n, offset);

	sanity_fill(s, z->host, WINDOW);
	OK(barway_copy_to(z->map, at, z->host + shift, n));
	OK(barway_flush(z->map));
	memcpy(z->want + at, z->host + shift, n);
	GPU_OK(bench_gpu_read(s->gpu, z->got, z->addr, WINDOW));
	bad = sanity_differs(z->got, z->want, WINDOW);
	CHECK(bad == WINDOW, "to the GPU, %zu bytes at +%zu: byte %zd of it is wrong (below 0 or "
	      "past it: one beside it)", n, offset, (ssize_t)bad - (ssize_t)at);
}

static void sizes(struct sanity *s)
{
	size_t most = s->target.quick ? 72 : 272, step = s->target.quick ? 7 : 1;
	struct sizes z;
	struct bench_memory mem;

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, WINDOW, &mem);
	z.addr = mem.addr;
	OK(barway_map(s->ctx, mem.addr, WINDOW, NULL, &z.map));
	for (size_t n = 0; n <= most; n += n < 136 ? 1 : 5)
		for (size_t offset = n % step; offset < 64; offset += step)
			one_size(s, &z, n, offset, (n + offset) % 17);
	OK(barway_unmap(z.map));
	sanity_free(s, &mem);
	sanity_close(s);
}

/* ---- ranges ------------------------------------------------------------------------------ */

static void unaligned(struct sanity *s)
{
	static const struct {
		size_t at, n;
	} ranges[] = {
		{ 1, 1 }, { 0, 3 }, { 4095, 2 }, { 1, 4094 }, { 63, 130 }, { 65535, 2 },
		{ 65537, 65535 }, { 4097, 200001 }, { 999999, 48577 },
	};
	unsigned more = 40;
	struct bench_memory mem;

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	for (size_t i = 0; i < COUNT(ranges); i++)
		sanity_prove(s, mem.addr + ranges[i].at, ranges[i].n, mem.addr, MIB);
	while (more--) {
		size_t at = sanity_random(s) % MIB, n = 1 + sanity_random(s) % (MIB - at);

		sanity_prove(s, mem.addr + at, n, mem.addr, MIB);
	}
	sanity_free(s, &mem);
	sanity_close(s);
}

#define SMALL 8u
#define SMALL_BYTES 600u

struct small {
	struct bench_memory mem;
	uint64_t addr;
	struct barway_mapping *map;
	unsigned char data[SMALL_BYTES];
};

/* Small buffers; where the device gives out whole pages only: pieces of one. */
static void small_get(struct sanity *s, struct small *b)
{
	bool own = true;

	for (unsigned i = 0; i < SMALL; i++) {
		b[i].mem.addr = 0;
		own = own && sanity_try_alloc(s, BENCH_MEMORY_DEVICE, SMALL_BYTES, &b[i].mem);
		b[i].addr = b[i].mem.addr;
	}
	if (own)
		return;
	sanity_alloc(s, BENCH_MEMORY_BARWAY, SMALL * SMALL_BYTES, &b[0].mem);
	for (unsigned i = 0; i < SMALL; i++)
		b[i].addr = b[0].mem.addr + i * SMALL_BYTES;
}

static void small_check(struct sanity *s, struct small *b)
{
	unsigned char got[SMALL_BYTES];

	for (unsigned i = 0; i < SMALL; i++) {
		GPU_OK(bench_gpu_read(s->gpu, got, b[i].addr, SMALL_BYTES));
		CHECK(!memcmp(got, b[i].data, SMALL_BYTES), "buffer %u of several in one page has "
		      "other bytes than were put there", i);
	}
}

static void small_buffers(struct sanity *s)
{
	struct small b[SMALL];

	sanity_open(s);
	small_get(s, b);
	for (unsigned i = 0; i < SMALL; i++) {
		OK(barway_map(s->ctx, b[i].addr, SMALL_BYTES, NULL, &b[i].map));
		sanity_fill(s, b[i].data, SMALL_BYTES);
		OK(barway_copy_to(b[i].map, 0, b[i].data, SMALL_BYTES));
		OK(barway_flush(b[i].map));
	}
	small_check(s, b);
	for (unsigned i = 0; i < SMALL; i += 2) {
		OK(barway_unmap(b[i].map)); /* its neighbours stay as they are */
		sanity_fill(s, b[i + 1].data, SMALL_BYTES);
		OK(barway_copy_to(b[i + 1].map, 0, b[i + 1].data, SMALL_BYTES));
		OK(barway_flush(b[i + 1].map));
		small_check(s, b);
	}
	for (unsigned i = 0; i < SMALL; i++) {
		if (i % 2)
			OK(barway_unmap(b[i].map));
		sanity_free(s, &b[i].mem);
	}
	sanity_close(s);
}

#define ADJACENT 16u

static void adjacent(struct sanity *s)
{
	enum bench_memory_kind kind = s->soft ? BENCH_MEMORY_BARWAY : BENCH_MEMORY_DEVICE;
	size_t each = s->soft ? 64 * KIB : 2 * MIB;
	struct bench_memory mem[ADJACENT];
	unsigned found = 0;

	sanity_open(s);
	for (unsigned i = 0; i < ADJACENT; i++)
		sanity_alloc(s, kind, each, &mem[i]);
	for (unsigned i = 0; i < ADJACENT * ADJACENT && found < 3; i++) {
		uint64_t a = mem[i / ADJACENT].addr;

		if (a + each != mem[i % ADJACENT].addr)
			continue;
		sanity_prove(s, a + each - 5001, 10000, a, 2 * each);
		sanity_prove(s, a, 2 * each, a, 2 * each);
		found++;
	}
	for (unsigned i = 0; i < ADJACENT; i++)
		sanity_free(s, &mem[i]);
	sanity_close(s);
	if (!found)
		sanity_waive("no two of %u allocations came to lie side by side; so nothing is "
			     "said about ranges over two of them", ADJACENT);
}

/* ---- kinds ------------------------------------------------------------------------------- */

static void of_kind(struct sanity *s, enum bench_memory_kind kind)
{
	struct bench_memory mem;
	size_t half;

	sanity_open(s);
	sanity_alloc(s, kind, 4 * MIB, &mem);
	half = mem.bytes / 2;
	sanity_prove(s, mem.addr + 100, 5000, mem.addr, half);
	sanity_prove(s, mem.addr + half + 65536 + 8, 100000, mem.addr + half, half);
	sanity_prove(s, mem.addr + half - 70001, 140000, mem.addr, mem.bytes);
	sanity_prove(s, mem.addr, mem.bytes, mem.addr, mem.bytes);
	sanity_free(s, &mem);
	sanity_close(s);
}

static void device_memory(struct sanity *s)
{
	of_kind(s, BENCH_MEMORY_DEVICE);
}

static void vmm(struct sanity *s)
{
	of_kind(s, BENCH_MEMORY_VMM);
}

static void vmm_handle_type(struct sanity *s)
{
	of_kind(s, BENCH_MEMORY_VMM_FD);
}

static void vmm_two_handles(struct sanity *s)
{
	of_kind(s, BENCH_MEMORY_VMM_TWO);
}

static void pool(struct sanity *s)
{
	static const size_t sizes_of[] = { 100000, 600, 3000000, 65536 };
	struct bench_memory mem[COUNT(sizes_of)];

	sanity_open(s);
	for (size_t i = 0; i < COUNT(mem); i++)
		sanity_alloc(s, BENCH_MEMORY_POOL, sizes_of[i], &mem[i]);
	for (size_t i = 0; i < COUNT(mem); i++) {
		sanity_prove(s, mem[i].addr, sizes_of[i], mem[i].addr, sizes_of[i]);
		/* the pool may give the same address out again: it is other memory */
		sanity_free(s, &mem[i]);
		sanity_alloc(s, BENCH_MEMORY_POOL, sizes_of[i], &mem[i]);
		sanity_prove(s, mem[i].addr + 1, sizes_of[i] - 1, mem[i].addr, sizes_of[i]);
	}
	for (size_t i = 0; i < COUNT(mem); i++)
		sanity_free(s, &mem[i]);
	sanity_close(s);
}

/* ---- two mappings ------------------------------------------------------------------------ */

/* What is written through @to is seen through @from, @shift bytes before it. */
static void through(struct sanity *s, struct barway_mapping *to, struct barway_mapping *from,
		    size_t at_to, size_t at_from)
{
	unsigned char a[777], b[777];
	volatile unsigned char *p = barway_mapping_ptr(to), *q = barway_mapping_ptr(from);

	sanity_fill(s, a, sizeof(a));
	OK(barway_copy_to(to, at_to, a, sizeof(a)));
	OK(barway_flush(to));
	OK(barway_copy_from(from, b, at_from, sizeof(b)));
	CHECK(!memcmp(a, b, sizeof(a)), "one mapping does not see what came through another");
	p[at_to] = a[0] ^= 0xff;
	OK(barway_flush(to));
	CHECK(q[at_from] == a[0], "one mapping does not see what was stored through another");
}

static void two_mappings(struct sanity *s)
{
	struct barway_map_options anew = { .size = sizeof(anew), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping *a, *b, *c;
	struct bench_memory mem;

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	OK(barway_map(s->ctx, mem.addr, MIB, NULL, &a));
	OK(barway_map(s->ctx, mem.addr + 5000, 200000, &anew, &b));
	OK(barway_map(s->ctx, mem.addr, MIB, NULL, &c));
	through(s, a, b, 5003, 3);
	through(s, b, a, 100001, 105001);
	through(s, c, a, 77, 77);
	OK(barway_unmap(a));
	through(s, b, c, 9, 5009);
	through(s, c, b, 70000, 65000);
	OK(barway_unmap(b));
	sanity_prove(s, mem.addr, MIB, mem.addr, MIB);
	OK(barway_unmap(c));
	sanity_free(s, &mem);
	sanity_close(s);
}

const struct sanity_case sanity_data[] = {
	{ "basics", "open, map, copy, store, load, unmap, close", true, basics },
	{ "refusals", "what cannot be is refused, with a reason", false, refusals },
	{ "sizes", "all small sizes at all alignments, both ways", true, sizes },
	{ "unaligned", "ranges at any address, of any size", false, unaligned },
	{ "small_buffers", "several small buffers in one page", false, small_buffers },
	{ "adjacent", "ranges over two allocations", false, adjacent },
	{ "device_memory", "what cudaMalloc gives", false, device_memory },
	{ "vmm", "what cuMemCreate gives", false, vmm },
	{ "vmm_handle_type", "the same with a file as handle type", false, vmm_handle_type },
	{ "vmm_two_handles", "a range over two handles", false, vmm_two_handles },
	{ "pool", "what cudaMallocAsync gives", false, pool },
	{ "two_mappings", "two mappings of the same bytes", false, two_mappings },
	{ 0 },
};
