/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake libcuda: memory.
 *
 * A block is one memory object of the driver, a multiple of 2 MiB. Allocations below 1 MiB share
 * blocks of 2 MiB in steps of 512 bytes, larger ones have a block of their own; so it is with the
 * real library. A range is a piece of address space with something in it. Device addresses are
 * reserved without access, and are used again as soon as they are free, as are object handles.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_int.h"

#define STEP 512ull
#define STEPS (CHUNK / STEP)
#define SMALL (1ull << 20)
#define PAGE 4096ull
#define FIRST_HANDLE 0x5c000001u

struct block {
	struct block *next;
	uint32_t handle;
	int dev;
	unsigned long long va, size; /* va 0: has none of its own (cuMemCreate) */
	bool shared, pool;
	int refs;                    /* ranges in it, and of cuMemCreate: handles given out */
	int handles;
	int ipc;                     /* 1: opened, 2: cuIpcGetMemHandle() has shared it */
	struct cuf_prop prop;
	unsigned char used[STEPS];
};

enum kind { RANGE_ALLOC, RANGE_POOL, RANGE_VMM, RANGE_IPC, RANGE_HOST, RANGE_MANAGED };

struct range {
	struct range *next;
	enum kind kind;
	unsigned long long va, size, id, offset;
	struct block *block;         /* NULL for host and managed memory */
	struct ctx *ctx;             /* NULL for VMM and pools */
	int dev;
	/* of host memory: where the device sees it; what was mapped for it, NULL: the caller's */
	unsigned long long alias;
	void *mapped;
	size_t mapped_bytes;
};

struct reservation {
	struct reservation *next;
	unsigned long long va, size;
};

static struct block *blocks;
static struct range *ranges;
static struct reservation *reservations;

/* ---- device addresses ---- */

static unsigned char *arena;
static size_t arena_chunks;
static unsigned char *arena_used;

static bool make_arena(void)
{
	for (unsigned long long bytes = 64ull << 30; bytes >= 1ull << 30; bytes /= 2) {
		void *p = mmap(NULL, bytes + CHUNK, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			continue;
		arena = (unsigned char *)(((uintptr_t)p + CHUNK - 1) & ~(uintptr_t)(CHUNK - 1));
		arena_chunks = bytes / CHUNK;
		arena_used = calloc(arena_chunks, 1);
		return arena_used != NULL;
	}
	return false;
}

static unsigned long long va_get(unsigned long long size)
{
	size_t want = (size + CHUNK - 1) / CHUNK, run = 0;

	if (!arena && !make_arena())
		return 0;
	for (size_t i = 0; i < arena_chunks; i++) {
		run = arena_used[i] ? 0 : run + 1;
		if (run == want) {
			memset(arena_used + i + 1 - want, 1, want);
			return (uintptr_t)arena + (i + 1 - want) * CHUNK;
		}
	}
	return 0;
}

static void va_put(unsigned long long va, unsigned long long size)
{
	memset(arena_used + (va - (uintptr_t)arena) / CHUNK, 0, (size + CHUNK - 1) / CHUNK);
}

/* ---- blocks ---- */

static uint32_t free_handle(void)
{
	uint32_t handle = FIRST_HANDLE;
	struct block *b = blocks;

	while (b) {
		if (b->handle == handle) {
			handle++;
			b = blocks;
		} else {
			b = b->next;
		}
	}
	return handle;
}

static struct block *add_block(int dev, uint32_t handle, unsigned long long size, bool with_va)
{
	struct block *b = calloc(1, sizeof(*b));

	if (!b)
		abort();
	b->dev = dev;
	b->handle = handle;
	b->size = size;
	if (with_va)
		b->va = va_get(size);
	b->next = blocks;
	blocks = b;
	return b;
}

static struct block *new_block(int dev, unsigned long long size, bool with_va)
{
	/* nvos.h: NV_MEMORY_ALLOCATION_PARAMS, size at 64 */
	uint64_t params[16] = { 0 };
	uint32_t handle = free_handle();

	size = (size + CHUNK - 1) & ~(CHUNK - 1);
	params[8] = size;
	params[9] = CHUNK;
	if (nv_alloc(cuda.device[dev].hdevice, handle, 0x40, params, &handle))
		return NULL;
	return add_block(dev, handle, size, with_va);
}

static void put_block(struct block *b)
{
	struct block **at;

	if (b->refs || b->handles)
		return;
	for (at = &blocks; *at != b; at = &(*at)->next)
		;
	*at = b->next;
	nv_free(cuda.client, b->handle);
	if (b->va)
		va_put(b->va, b->size);
	free(b);
}

/* ---- ranges ---- */

static struct range *add_range(enum kind kind, struct block *b, unsigned long long va,
			       unsigned long long size, unsigned long long offset, struct ctx *ctx,
			       int dev)
{
	struct range *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->kind = kind;
	r->block = b;
	r->va = va;
	r->size = size;
	r->offset = offset;
	r->alias = va;
	r->ctx = ctx;
	r->dev = dev;
	r->id = ++cuda.next_buffer;
	r->next = ranges;
	ranges = r;
	if (b)
		b->refs++;
	return r;
}

static unsigned long long steps(unsigned long long size)
{
	return (size + STEP - 1) / STEP;
}

static void drop_range(struct range *r)
{
	struct range **at;

	for (at = &ranges; *at != r; at = &(*at)->next)
		;
	*at = r->next;
	if (r->block) {
		if (r->block->shared)
			memset(r->block->used + r->offset / STEP, 0, steps(r->size));
		r->block->refs--;
		put_block(r->block);
	}
	if (r->alias != r->va)
		va_put(r->alias, r->size);
	if (r->mapped)
		munmap(r->mapped, r->mapped_bytes);
	free(r);
}

static struct range *find_range(unsigned long long ptr)
{
	for (struct range *r = ranges; r; r = r->next)
		if ((ptr >= r->va && ptr - r->va < r->size) ||
		    (ptr >= r->alias && ptr - r->alias < r->size))
			return r;
	return NULL;
}

/* How far into @r, of which there may be two addresses. */
static unsigned long long into(const struct range *r, unsigned long long ptr)
{
	return ptr >= r->va && ptr - r->va < r->size ? ptr - r->va : ptr - r->alias;
}

void mem_drop_context(struct ctx *ctx)
{
	struct range *next;

	for (struct range *r = ranges; r; r = next) {
		next = r->next;
		if (r->ctx == ctx)
			drop_range(r);
	}
}

void mem_reset(void)
{
	while (ranges)
		drop_range(ranges);
	while (blocks) {
		blocks->refs = blocks->handles = 0;
		put_block(blocks);
	}
	while (reservations) {
		struct reservation *next = reservations->next;

		va_put(reservations->va, reservations->size);
		free(reservations);
		reservations = next;
	}
}

#define ENTER_CONTEXT(ctx) do { \
	int rc_ = enter(&(ctx)); \
	if (rc_) \
		return rc_; \
} while (0)

#define ENTER() do { \
	int rc_ = enter(NULL); \
	if (rc_) \
		return rc_; \
} while (0)

#define NOT_IN_CAPTURE() do { \
	int rc_ = capture_check(); \
	if (rc_) \
		return leave(rc_); \
} while (0)

/* ---- cuMemAlloc and friends ---- */

static struct range *alloc_small(int dev, unsigned long long size, bool pool, struct ctx *ctx)
{
	unsigned long long want = steps(size);
	struct block *b;

	for (b = blocks; b; b = b->next) {
		unsigned long long run = 0;

		if (!b->shared || b->dev != dev || b->pool != pool)
			continue;
		for (unsigned long long i = 0; i < STEPS; i++) {
			run = b->used[i] ? 0 : run + 1;
			if (run == want) {
				i = i + 1 - want;
				memset(b->used + i, 1, want);
				return add_range(pool ? RANGE_POOL : RANGE_ALLOC, b,
						 b->va + i * STEP, size, i * STEP, ctx, dev);
			}
		}
	}
	b = new_block(dev, CHUNK, true);
	if (!b)
		return NULL;
	b->shared = true;
	b->pool = pool;
	memset(b->used, 1, want);
	return add_range(pool ? RANGE_POOL : RANGE_ALLOC, b, b->va, size, 0, ctx, dev);
}

static struct range *alloc(int dev, unsigned long long size, bool pool, struct ctx *ctx)
{
	struct block *b;

	if (size < SMALL)
		return alloc_small(dev, size, pool, ctx);
	b = new_block(dev, size, true);
	if (!b)
		return NULL;
	b->pool = pool;
	return add_range(pool ? RANGE_POOL : RANGE_ALLOC, b, b->va, size, 0, ctx, dev);
}

FAKE_API int cuMemAlloc_v2(unsigned long long *ptr, size_t bytes)
{
	struct range *r;
	struct ctx *ctx;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	if (!bytes)
		return leave(CUF_INVALID_VALUE);
	r = alloc(ctx->dev, bytes, false, ctx);
	if (!r)
		return leave(CUF_OUT_OF_MEMORY);
	*ptr = r->va;
	return leave(0);
}

static int free_exactly(unsigned long long va, enum kind kind)
{
	struct range *r = find_range(va);

	if (!r || r->va != va || r->kind != kind)
		return CUF_INVALID_VALUE;
	drop_range(r);
	return 0;
}

FAKE_API int cuMemFree_v2(unsigned long long ptr)
{
	struct ctx *ctx;
	struct range *r;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	if (!ptr)
		return leave(0);
	stream_wait_context(ctx);
	r = find_range(ptr);
	return leave(free_exactly(ptr, r && r->kind == RANGE_MANAGED ? RANGE_MANAGED :
				  r && r->kind == RANGE_POOL ? RANGE_POOL : RANGE_ALLOC));
}

FAKE_API int cuMemAllocAsync(unsigned long long *ptr, size_t bytes, void *stream)
{
	struct queue *queue;
	struct range *r;
	struct ctx *ctx;
	int error;

	ENTER_CONTEXT(ctx);
	if (stream_work(stream, ctx, &error, &queue) && !error)
		error = CUF_NOT_SUPPORTED; /* allocation nodes are not for this fake */
	if (error)
		return leave(error);
	if (!bytes)
		return leave(CUF_INVALID_VALUE);
	r = alloc(ctx->dev, bytes, true, NULL);
	if (!r)
		return leave(CUF_OUT_OF_MEMORY);
	*ptr = r->va;
	return leave(0);
}

FAKE_API int cuMemFreeAsync(unsigned long long ptr, void *stream)
{
	struct queue *queue;
	struct ctx *ctx;
	int error;

	ENTER_CONTEXT(ctx);
	if (!stream_work(stream, ctx, &error, &queue) && !error)
		queue_wait(queue);
	return leave(error ? error : free_exactly(ptr, RANGE_POOL));
}

static int alloc_host(unsigned long long *out, size_t bytes, enum kind kind, struct ctx *ctx)
{
	/* as if it shared its first page with somebody else's */
	size_t skew = kind == RANGE_HOST && fakenv.get("host_skew") ? STEP : 0;
	size_t size = (bytes + skew + PAGE - 1) & ~(size_t)(PAGE - 1);
	struct range *r;
	void *p;

	if (!bytes || bytes > SIZE_MAX / 2)
		return bytes ? CUF_OUT_OF_MEMORY : CUF_INVALID_VALUE;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return CUF_OUT_OF_MEMORY;
	r = add_range(kind, NULL, (uintptr_t)p + skew, skew ? steps(bytes) * STEP : size, 0, ctx,
		      ctx->dev);
	r->mapped = p;
	r->mapped_bytes = size;
	*out = r->va;
	return 0;
}

FAKE_API int cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	unsigned long long va = 0;
	struct ctx *ctx;
	int rc;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	rc = alloc_host(&va, bytes, RANGE_HOST, ctx);
	if (!rc)
		*ptr = (void *)(uintptr_t)va;
	return leave(rc);
}

FAKE_API int cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	unsigned long long va = 0;
	struct ctx *ctx;
	int rc;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	rc = flags > 7 ? CUF_INVALID_VALUE : alloc_host(&va, bytes, RANGE_HOST, ctx);
	if (!rc)
		*ptr = (void *)(uintptr_t)va;
	return leave(rc);
}

FAKE_API int cuMemFreeHost(void *ptr)
{
	struct ctx *ctx;
	struct range *r;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	stream_wait_context(ctx);
	r = find_range((uintptr_t)ptr);
	if (r && !r->mapped)
		return leave(CUF_INVALID_VALUE); /* registered */
	return leave(free_exactly((uintptr_t)ptr, RANGE_HOST));
}

/* Is all of it writable memory that is not a device's? */
static bool can_be_pinned(uintptr_t at, size_t bytes)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long first, end;
	char line[512], may[8];

	while (f && bytes && fgets(line, sizeof(line), f)) {
		size_t part;

		if (sscanf(line, "%lx-%lx %7s", &first, &end, may) != 3 || at < first || at >= end)
			continue;
		if (may[0] != 'r' || may[1] != 'w' || strstr(line, "fakenv-fb"))
			break;
		part = end - at < bytes ? end - at : bytes;
		at += part;
		bytes -= part;
	}
	if (f)
		fclose(f);
	return !bytes;
}

FAKE_API int cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
	unsigned long long va = (uintptr_t)ptr;
	struct range *r;
	struct ctx *ctx;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	if (!bytes || flags > 15 || va % PAGE || bytes % PAGE)
		return leave(CUF_INVALID_VALUE);
	for (r = ranges; r; r = r->next)
		if (r->va < va + bytes && va < r->va + r->size)
			return leave(r->kind == RANGE_HOST && !r->mapped ? CUF_ALREADY_REGISTERED :
				     CUF_INVALID_VALUE);
	if (!can_be_pinned(va, bytes))
		return leave(CUF_INVALID_VALUE);
	r = add_range(RANGE_HOST, NULL, va, bytes, 0, ctx, ctx->dev);
	if (fakenv.get("host_alias"))
		r->alias = va_get(bytes);
	return leave(0);
}

FAKE_API int cuMemHostUnregister(void *ptr)
{
	struct ctx *ctx;
	struct range *r;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	r = find_range((uintptr_t)ptr);
	if (!r || r->kind != RANGE_HOST || r->mapped)
		return leave(CUF_NOT_REGISTERED);
	stream_wait_context(ctx);
	return leave(free_exactly((uintptr_t)ptr, RANGE_HOST));
}

FAKE_API int cuMemHostGetDevicePointer_v2(unsigned long long *out, void *ptr, unsigned flags)
{
	struct ctx *ctx;
	struct range *r;

	ENTER_CONTEXT(ctx);
	r = find_range((uintptr_t)ptr);
	if (flags || !r || r->kind != RANGE_HOST)
		return leave(CUF_INVALID_VALUE);
	*out = r->alias + into(r, (uintptr_t)ptr);
	return leave(0);
}

FAKE_API int cuMemAllocManaged(unsigned long long *ptr, size_t bytes, unsigned flags)
{
	struct ctx *ctx;

	(void)flags;
	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	return leave(alloc_host(ptr, bytes, RANGE_MANAGED, ctx));
}

FAKE_API int cuMemGetInfo_v2(size_t *available, size_t *total)
{
	struct ctx *ctx;
	char key[32];

	ENTER_CONTEXT(ctx);
	snprintf(key, sizeof(key), "fb_used:%u", cuda.device[ctx->dev].minor);
	*total = (size_t)fakenv.get("fb_mb") << 20;
	*available = *total - (size_t)fakenv.get(key);
	return leave(0);
}

/* ---- questions about pointers ---- */

static struct reservation *find_reservation(unsigned long long ptr)
{
	for (struct reservation *v = reservations; v; v = v->next)
		if (ptr >= v->va && ptr - v->va < v->size)
			return v;
	return NULL;
}

static void put_int(void *data, int v)
{
	memcpy(data, &v, sizeof(v));
}

static void put_u64(void *data, unsigned long long v)
{
	memcpy(data, &v, sizeof(v));
}

static int attribute(void *data, int attr, const struct range *r, unsigned long long ptr)
{
	bool host = r->kind == RANGE_HOST, managed = r->kind == RANGE_MANAGED;
	bool vmm = r->kind == RANGE_VMM;
	const struct reservation *v = vmm ? find_reservation(ptr) : NULL;

	switch (attr) {
	case CUF_PTR_CONTEXT:
		put_u64(data, (uintptr_t)r->ctx);
		return 0;
	case CUF_PTR_MEMORY_TYPE:
		put_int(data, host ? CUF_MEMORYTYPE_HOST : CUF_MEMORYTYPE_DEVICE);
		return 0;
	case CUF_PTR_DEVICE_POINTER:
		put_u64(data, r->alias + into(r, ptr));
		return 0;
	case CUF_PTR_HOST_POINTER:
		if (!host && !managed)
			return CUF_INVALID_VALUE;
		put_u64(data, r->va + into(r, ptr));
		return 0;
	case CUF_PTR_BUFFER_ID:
		put_u64(data, r->id);
		return 0;
	case CUF_PTR_IS_MANAGED:
		put_int(data, managed);
		return 0;
	case CUF_PTR_DEVICE_ORDINAL:
		put_int(data, r->dev);
		return 0;
	case CUF_PTR_IPC_CAPABLE:
		put_int(data, r->kind == RANGE_ALLOC);
		return 0;
	case CUF_PTR_RANGE_START:
		put_u64(data, v ? v->va : ptr - into(r, ptr));
		return 0;
	case CUF_PTR_RANGE_SIZE:
		put_u64(data, v ? v->size : r->size);
		return 0;
	case CUF_PTR_MAPPED:
		put_int(data, 1);
		return 0;
	case CUF_PTR_HANDLE_TYPES:
		put_u64(data, vmm ? (unsigned)r->block->prop.handle_types : 0);
		return 0;
	case CUF_PTR_RDMA_CAPABLE:
		put_int(data, r->block && (!vmm || r->block->prop.flags.rdma_capable));
		return 0;
	case CUF_PTR_MEMPOOL:
		put_u64(data, r->kind == RANGE_POOL ? 0x700000000000ull + (unsigned)r->dev : 0);
		return 0;
	case CUF_PTR_MAPPING_SIZE:
		put_u64(data, r->kind == RANGE_POOL ? r->block->size : r->size);
		return 0;
	case CUF_PTR_MAPPING_BASE:
		put_u64(data, r->kind == RANGE_POOL ? r->block->va : r->va);
		return 0;
	default:
		return CUF_INVALID_VALUE;
	}
}

FAKE_API int cuPointerGetAttribute(void *data, int attr, unsigned long long ptr)
{
	struct range *r;

	ENTER();
	r = find_range(ptr);
	if (!r && attr == CUF_PTR_MAPPED && find_reservation(ptr)) {
		put_int(data, 0);
		return leave(0);
	}
	return leave(r ? attribute(data, attr, r, ptr) : CUF_INVALID_VALUE);
}

/* What is not known is 0; only a malformed call fails. */
FAKE_API int cuPointerGetAttributes(unsigned n, int *attributes, void **data,
				    unsigned long long ptr)
{
	static const int wide = 1 << CUF_PTR_CONTEXT | 1 << CUF_PTR_DEVICE_POINTER |
		1 << CUF_PTR_HOST_POINTER | 1 << CUF_PTR_BUFFER_ID | 1 << CUF_PTR_RANGE_START |
		1 << CUF_PTR_RANGE_SIZE | 1 << CUF_PTR_HANDLE_TYPES | 1 << CUF_PTR_MEMPOOL |
		1 << CUF_PTR_MAPPING_SIZE | 1 << CUF_PTR_MAPPING_BASE;
	struct range *r;

	ENTER();
	r = find_range(ptr);
	for (unsigned i = 0; i < n; i++) {
		if (attributes[i] < 1 || attributes[i] > 21)
			return leave(CUF_INVALID_VALUE);
		if (r && !attribute(data[i], attributes[i], r, ptr))
			continue;
		if (wide >> attributes[i] & 1)
			put_u64(data[i], 0);
		else
			put_int(data[i], attributes[i] == CUF_PTR_DEVICE_ORDINAL ? -2 : 0);
	}
	return leave(0);
}

FAKE_API int cuMemGetAddressRange_v2(unsigned long long *base, size_t *size,
				     unsigned long long ptr)
{
	struct ctx *ctx;
	struct range *r;

	ENTER_CONTEXT(ctx);
	r = find_range(ptr);
	if (!r)
		return leave(CUF_INVALID_VALUE);
	if (base)
		*base = r->va;
	if (size)
		*size = r->size;
	return leave(0);
}

/* ---- dma-buf export: nv-ioctl.h, NV_ESC_EXPORT_TO_DMABUF_FD ---- */

struct export {
	uint32_t n;
	int dev;
	uint32_t handle[128];
	uint64_t offset[128], size[128];
};

/* The memory objects behind [va, va + size). */
static int collect(unsigned long long va, unsigned long long size, struct export *e)
{
	struct block *b = NULL;

	/* the rest of a page beside an allocation may belong to nobody, but is in its block */
	for (struct block *i = blocks; i && !b; i = i->next)
		if (i->va && va >= i->va && va - i->va < i->size)
			b = i;
	if (b) {
		if (size > b->size - (va - b->va))
			return CUF_INVALID_VALUE;
		e->n = 1;
		e->dev = b->dev;
		e->handle[0] = b->handle;
		e->offset[0] = va - b->va;
		e->size[0] = size;
		if (b->pool && va != b->va && size > PAGE && fakenv.get("tamper:export_pool"))
			e->size[0] -= PAGE;
		return 0;
	}
	e->dev = -1;
	for (e->n = 0; size; e->n++) {
		struct range *r = find_range(va);
		unsigned long long part;

		if (!r || r->kind != RANGE_VMM || e->n == 128 || (e->n && e->dev != r->dev))
			return CUF_INVALID_VALUE;
		part = r->size - (va - r->va);
		part = part < size ? part : size;
		e->dev = r->dev;
		e->handle[e->n] = r->block->handle;
		e->offset[e->n] = r->offset + (va - r->va);
		e->size[e->n] = part;
		va += part;
		size -= part;
	}
	return 0;
}

/* A second client with a dup of the same memory, for tamper=export_client. */
static uint32_t odd_client(struct export *e)
{
	uint32_t main = cuda.client, params[14] = { 0 }, info[8] = { 0 }, device = 0;

	info[0] = cuda.device[e->dev].gpu_id;
	if (nv_alloc(0, 0, 0x41, NULL, &cuda.odd_client) ||
	    nv_control(main, 0x205, info, sizeof(info)))
		return main;
	params[0] = info[2];
	cuda.client = cuda.odd_client;
	if (!nv_alloc(cuda.client, 0, 0x80, params, &device)) {
		for (uint32_t i = 0; i < e->n; i++) {
			uint32_t handle = e->handle[i];

			if (!nv_dup(cuda.client, device, main, handle, &handle))
				e->handle[i] = handle;
		}
	}
	cuda.client = main;
	return cuda.odd_client;
}

static void fill_export(char *a, int major, const struct export *e, uint32_t client,
			unsigned long long flags)
{
	size_t handles = major < 570 ? 32 : 36, offsets = major < 570 ? 544 : 552;
	size_t sizes = major < 570 ? 1568 : 1576;
	int32_t none = -1;
	uint64_t total = 0;
	bool cut = fakenv.get("tamper:export_short");

	memcpy(a, &none, 4);
	memcpy(a + 4, &client, 4);
	memcpy(a + 8, &e->n, 4);
	memcpy(a + 12, &e->n, 4);
	for (uint32_t i = 0; i < e->n; i++) {
		uint64_t size = e->size[i];

		total += size;
		if (cut && i == e->n - 1 && size > PAGE)
			size -= PAGE;
		memcpy(a + handles + 4 * i, &e->handle[i], 4);
		memcpy(a + offsets + 8 * i, &e->offset[i], 8);
		memcpy(a + sizes + 8 * i, &size, 8);
	}
	memcpy(a + 24, &total, 8);
	if (major >= 570)
		a[32] = (char)(flags & CUF_RANGE_FLAG_PCIE);
}

static int wrong_fd(int dev)
{
	return cuda.ndevices > 1 ? cuda.device[(dev + 1) % cuda.ndevices].fd : cuda.ctl;
}

static int export_range(struct export *e, unsigned long long flags, int *out)
{
	int major = (int)fakenv.get("driver"), fd = cuda.device[e->dev].fd;
	unsigned size = major < 570 ? 2600 : 2608;
	uint32_t client = cuda.client, status;
	union {
		char bytes[2608];
		uint64_t align;
	} a = { .align = 0 };

	if (fakenv.get("tamper:export_none")) {
		*out = memfd_create("no-dma-buf", MFD_CLOEXEC);
		return *out < 0 ? CUF_OPERATING_SYSTEM : 0;
	}
	if (fakenv.get("tamper:export_client"))
		client = odd_client(e);
	if (fakenv.get("tamper:export_wrong_dev"))
		fd = wrong_fd(e->dev);
	fill_export(a.bytes, major, e, client, flags);
	if (nv_ioctl(fd, 0xd9, size, a.bytes))
		status = 0xffff;
	else
		memcpy(&status, a.bytes + size - 8, 4);
	if (client != cuda.client)
		nv_free(client, client);
	if (status)
		return status == 0x56 ? CUF_NOT_SUPPORTED : CUF_INVALID_VALUE;
	memcpy(out, a.bytes, 4);
	return 0;
}

FAKE_API int cuMemGetHandleForAddressRange(void *handle, unsigned long long ptr, size_t size,
					   int type, unsigned long long flags)
{
	struct export e;
	struct ctx *ctx;
	int fd = -1, rc;

	ENTER_CONTEXT(ctx);
	if (!handle || !size || ptr % PAGE || size % PAGE || flags > 1 ||
	    type != CUF_RANGE_DMA_BUF_FD)
		return leave(CUF_INVALID_VALUE);
	if (!fakenv.get("dmabuf") || fakenv.get("wsl") || fakenv.get("jetson"))
		return leave(CUF_NOT_SUPPORTED);
	if (flags && fakenv.get("driver") < 570) /* the flag is of CUDA 12.8 */
		return leave(CUF_INVALID_VALUE);
	rc = collect(ptr, size, &e);
	if (!rc)
		rc = export_range(&e, flags, &fd);
	if (!rc)
		memcpy(handle, &fd, sizeof(fd));
	return leave(rc);
}

/* ---- virtual memory management ---- */

static struct block *find_handle(unsigned long long handle)
{
	for (struct block *b = blocks; b; b = b->next)
		if ((uintptr_t)b == handle && b->handles)
			return b;
	return NULL;
}

FAKE_API int cuMemCreate(unsigned long long *handle, size_t size, const struct cuf_prop *prop,
			 unsigned long long flags)
{
	struct block *b;

	ENTER();
	if (flags || !size || size % CHUNK || prop->type != CUF_ALLOCATION_PINNED ||
	    prop->location.type != CUF_LOCATION_DEVICE)
		return leave(CUF_INVALID_VALUE);
	if (!device_ok(prop->location.id))
		return leave(CUF_INVALID_DEVICE);
	b = new_block(prop->location.id, size, false);
	if (!b)
		return leave(CUF_OUT_OF_MEMORY);
	b->prop = *prop;
	b->handles = 1;
	*handle = (uintptr_t)b;
	return leave(0);
}

FAKE_API int cuMemRelease(unsigned long long handle)
{
	struct block *b;

	ENTER();
	b = find_handle(handle);
	if (!b)
		return leave(CUF_INVALID_VALUE);
	b->handles--;
	put_block(b);
	return leave(0);
}

FAKE_API int cuMemRetainAllocationHandle(unsigned long long *handle, void *ptr)
{
	struct range *r;

	ENTER();
	r = find_range((uintptr_t)ptr);
	if (!r || r->kind != RANGE_VMM)
		return leave(CUF_INVALID_VALUE);
	r->block->handles++;
	*handle = (uintptr_t)r->block;
	return leave(0);
}

FAKE_API int cuMemGetAllocationPropertiesFromHandle(struct cuf_prop *prop,
						    unsigned long long handle)
{
	struct block *b;

	ENTER();
	b = find_handle(handle);
	if (!b)
		return leave(CUF_INVALID_VALUE);
	*prop = b->prop;
	return leave(0);
}

FAKE_API int cuMemGetAllocationGranularity(size_t *size, const struct cuf_prop *prop, int option)
{
	(void)option;
	ENTER();
	if (prop->location.type != CUF_LOCATION_DEVICE || !device_ok(prop->location.id))
		return leave(CUF_INVALID_VALUE);
	*size = CHUNK;
	return leave(0);
}

FAKE_API int cuMemAddressReserve(unsigned long long *ptr, size_t size, size_t alignment,
				 unsigned long long addr, unsigned long long flags)
{
	struct reservation *v;

	(void)alignment;
	(void)addr; /* a wish only */
	ENTER();
	if (!size || size % CHUNK || flags)
		return leave(CUF_INVALID_VALUE);
	v = calloc(1, sizeof(*v));
	if (!v)
		abort();
	v->va = va_get(size);
	v->size = size;
	if (!v->va) {
		free(v);
		return leave(CUF_OUT_OF_MEMORY);
	}
	v->next = reservations;
	reservations = v;
	*ptr = v->va;
	return leave(0);
}

FAKE_API int cuMemAddressFree(unsigned long long ptr, size_t size)
{
	struct reservation **at, *v;

	ENTER();
	for (at = &reservations; *at && (*at)->va != ptr; at = &(*at)->next)
		;
	v = *at;
	if (!v || v->size != size)
		return leave(CUF_INVALID_VALUE);
	for (struct range *r = ranges; r; r = r->next)
		if (r->va >= v->va && r->va - v->va < v->size)
			return leave(CUF_INVALID_VALUE);
	*at = v->next;
	va_put(v->va, v->size);
	free(v);
	return leave(0);
}

FAKE_API int cuMemMap(unsigned long long ptr, size_t size, size_t offset,
		      unsigned long long handle, unsigned long long flags)
{
	struct reservation *v;
	struct block *b;

	ENTER();
	b = find_handle(handle);
	v = find_reservation(ptr);
	if (!b || !v || !size || flags || ptr % CHUNK || size % CHUNK || offset % CHUNK ||
	    offset > b->size || size > b->size - offset || size > v->size - (ptr - v->va))
		return leave(CUF_INVALID_VALUE);
	for (struct range *r = ranges; r; r = r->next)
		if (r->va < ptr + size && ptr < r->va + r->size)
			return leave(CUF_INVALID_VALUE);
	add_range(RANGE_VMM, b, ptr, size, offset, NULL, b->dev);
	return leave(0);
}

FAKE_API int cuMemUnmap(unsigned long long ptr, size_t size)
{
	ENTER();
	while (size) {
		struct range *r = find_range(ptr);

		if (!r || r->kind != RANGE_VMM || r->va != ptr || r->size > size)
			return leave(CUF_INVALID_VALUE);
		ptr += r->size;
		size -= r->size;
		drop_range(r);
	}
	return leave(0);
}

FAKE_API int cuMemSetAccess(unsigned long long ptr, size_t size, const struct cuf_access *desc,
			    size_t count)
{
	struct range *r;

	(void)size;
	ENTER();
	r = find_range(ptr);
	if (!r || r->kind != RANGE_VMM || !count || !device_ok(desc->location.id))
		return leave(CUF_INVALID_VALUE);
	return leave(0);
}

/* ctrl0000unix.h: NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, on a file of its own */
FAKE_API int cuMemExportToShareableHandle(void *shareable, unsigned long long handle, int type,
					  unsigned long long flags)
{
	uint32_t params[6] = { 1 };
	struct block *b;
	int fd;

	ENTER();
	b = find_handle(handle);
	if (!b || flags || type != CUF_HANDLE_POSIX_FD ||
	    !(b->prop.handle_types & CUF_HANDLE_POSIX_FD))
		return leave(CUF_INVALID_VALUE);
	fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return leave(CUF_OPERATING_SYSTEM);
	params[1] = params[2] = cuda.device[b->dev].hdevice;
	params[3] = b->handle;
	params[4] = (uint32_t)fd;
	if (nv_control(cuda.client, 0x3d05, params, sizeof(params))) {
		close(fd);
		return leave(CUF_UNKNOWN);
	}
	memcpy(shareable, &fd, sizeof(fd));
	return leave(0);
}

/* ---- copies ---- */

void *mem_at(unsigned long long ptr, size_t bytes)
{
	struct range *r = find_range(ptr);
	unsigned long long at = r ? into(r, ptr) : 0;

	if (!r || bytes > r->size - at || ptr != r->alias + at) /* not the CPU's address */
		return NULL;
	return r->block ? fakenv.fb(cuda.client, r->block->handle, r->offset + at, bytes) :
			  (void *)(uintptr_t)(r->va + at);
}

bool mem_is_pinned(const void *host)
{
	const struct range *r = find_range((uintptr_t)host);

	return r && r->kind == RANGE_HOST;
}

FAKE_API int cudaFakeDeref(unsigned long long addr, size_t bytes, void **out)
{
	ENTER();
	*out = mem_at(addr, bytes);
	return leave(*out ? 0 : CUF_INVALID_VALUE);
}

int mem_copy(unsigned long long ptr, unsigned char *out, const unsigned char *in, size_t bytes)
{
	while (bytes) {
		struct range *r = find_range(ptr);
		unsigned long long at, part;
		void *p;

		if (!r)
			return CUF_INVALID_VALUE;
		at = into(r, ptr);
		part = r->size - at < bytes ? r->size - at : bytes;
		p = mem_at(ptr, part);
		if (!p)
			return CUF_UNKNOWN;
		if (out)
			memcpy(out, p, part);
		else
			memcpy(p, in, part);
		out = out ? out + part : NULL;
		in = in ? in + part : NULL;
		ptr += part;
		bytes -= part;
	}
	return 0;
}

static int copy_now(unsigned long long ptr, void *out, const void *in, size_t bytes)
{
	struct queue *queue;
	struct ctx *ctx;
	int error;

	ENTER_CONTEXT(ctx);
	NOT_IN_CAPTURE();
	if (!stream_work(NULL, ctx, &error, &queue))
		queue_wait(queue);
	return leave(ctx->error ? ctx->error : mem_copy(ptr, out, in, bytes));
}

FAKE_API int cuMemcpyHtoD_v2(unsigned long long dst, const void *src, size_t bytes)
{
	return copy_now(dst, NULL, src, bytes);
}

FAKE_API int cuMemcpyDtoH_v2(void *dst, unsigned long long src, size_t bytes)
{
	return copy_now(src, dst, NULL, bytes);
}

/*
 * From pageable memory it returns when the bytes are in memory of the driver's own, to pageable
 * memory when they are there, as the documentation has it ("API synchronization behavior").
 */
FAKE_API int cuMemcpyHtoDAsync_v2(unsigned long long dst, const void *src, size_t bytes,
				  void *stream)
{
	struct work w = { .kind = WORK_TO, .addr = dst, .bytes = bytes };
	struct queue *queue;
	struct ctx *ctx;
	int error;

	ENTER_CONTEXT(ctx);
	if (!bytes || !find_range(dst))
		return leave(bytes ? CUF_INVALID_VALUE : 0);
	if (stream_work(stream, ctx, &error, &queue) || error)
		return leave(error);
	w.host = (void *)(uintptr_t)src;
	w.copied = !mem_is_pinned(src);
	return leave(queue_put(queue, &w, false));
}

FAKE_API int cuMemcpyDtoHAsync_v2(void *dst, unsigned long long src, size_t bytes, void *stream)
{
	struct work w = { .kind = WORK_FROM, .addr = src, .bytes = bytes, .host = dst };
	struct queue *queue;
	struct ctx *ctx;
	int error;

	ENTER_CONTEXT(ctx);
	if (!bytes || !find_range(src))
		return leave(bytes ? CUF_INVALID_VALUE : 0);
	if (stream_work(stream, ctx, &error, &queue) || error)
		return leave(error);
	return leave(queue_put(queue, &w, !mem_is_pinned(dst)));
}

/* ---- legacy IPC; the words of the handle as the real library's were seen to be ---- */

FAKE_API int cuIpcGetMemHandle(struct cuf_ipc *handle, unsigned long long ptr)
{
	/* nvos.h: NVOS57 with RS_SHARE_TYPE_ALL, right to dup */
	uint32_t w[16] = { 0 }, share[6] = { cuda.client };
	struct range *r;
	struct ctx *ctx;

	ENTER_CONTEXT(ctx);
	r = find_range(ptr);
	if (!r || r->kind != RANGE_ALLOC)
		return leave(CUF_INVALID_VALUE);
	if (r->block->ipc != 2) {
		share[1] = r->block->handle;
		share[3] = 1;
		share[4] = 1;
		if (nv_ioctl(cuda.ctl, 0x35, sizeof(share), share) || share[5])
			return leave(CUF_UNKNOWN);
		r->block->ipc = 2;
	}
	w[0] = (uint32_t)(uintptr_t)&cuda;
	w[1] = (uint32_t)((uintptr_t)&cuda >> 32);
	w[2] = (uint32_t)getpid();
	w[4] = (uint32_t)r->size;
	w[5] = (uint32_t)(r->size >> 32);
	w[6] = (uint32_t)(r->block->size / PAGE);
	w[7] = (uint32_t)r->offset;
	w[8] = cuda.device[r->dev].gpu_id;
	w[9] = 0xff00;
	w[10] = r->block->handle - FIRST_HANDLE + 1;
	w[12] = cuda.client;
	w[13] = r->block->handle;
	memcpy(handle->reserved, w, sizeof(w));
	return leave(0);
}

FAKE_API int cuIpcOpenMemHandle_v2(unsigned long long *ptr, struct cuf_ipc handle, unsigned flags)
{
	uint32_t w[16], own;
	struct block *b;
	struct ctx *ctx;
	int dev = -1;

	(void)flags;
	memcpy(w, handle.reserved, sizeof(w));
	ENTER_CONTEXT(ctx);
	if (w[2] == (uint32_t)getpid())
		return leave(CUF_INVALID_CONTEXT); /* not in the process that exported */
	for (int i = 0; i < cuda.ndevices; i++)
		if (cuda.device[i].gpu_id == w[8])
			dev = i;
	if (dev < 0)
		return leave(CUF_INVALID_DEVICE);
	own = free_handle();
	if (nv_dup(cuda.client, cuda.device[dev].hdevice, w[12], w[13], &own))
		return leave(CUF_INVALID_VALUE);
	b = add_block(dev, own, (unsigned long long)w[6] * PAGE, true);
	b->ipc = 1;
	add_range(RANGE_IPC, b, b->va + w[7], w[4] | (unsigned long long)w[5] << 32, w[7], ctx,
		  dev);
	*ptr = b->va + w[7];
	return leave(0);
}

FAKE_API int cuIpcCloseMemHandle(unsigned long long ptr)
{
	struct ctx *ctx;

	ENTER_CONTEXT(ctx);
	return leave(free_exactly(ptr, RANGE_IPC));
}
