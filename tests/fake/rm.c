/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake resource manager: files, clients, objects, dups and mappings. Numbers, layouts and
 * refusals are those of the public NVIDIA/open-gpu-kernel-modules sources; the names of files in
 * comments are theirs. Layouts are given as byte offsets.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rm.h"

/* nv-ioctl-numbers.h, nv_escape.h */
enum {
	NR_CARD_INFO = 0xc8,
	NR_REGISTER_FD = 0xc9,
	NR_CHECK_VERSION_STR = 0xd2,
	NR_SYS_PARAMS = 0xd6,
	NR_EXPORT_TO_DMABUF_FD = 0xd9,
	NR_WAIT_OPEN_COMPLETE = 0xda,
	NR_RM_FREE = 0x29,
	NR_RM_CONTROL = 0x2a,
	NR_RM_ALLOC = 0x2b,
	NR_RM_DUP_OBJECT = 0x34,
	NR_RM_SHARE = 0x35,
	NR_RM_MAP_MEMORY = 0x4e,
	NR_RM_UNMAP_MEMORY = 0x4f,
};

/* ---- lookups ---- */

struct rm_client *rm_find_client(struct rm *rm, uint32_t handle)
{
	for (int i = 0; i < RM_CLIENTS; i++)
		if (rm->client[i].used && rm->client[i].handle == handle)
			return &rm->client[i];
	return NULL;
}

struct rm_object *rm_find_object(struct rm *rm, const struct rm_client *client, uint32_t handle)
{
	int c = (int)(client - rm->client);

	for (int i = 0; i < RM_OBJECTS; i++) {
		struct rm_object *object = &rm->object[i];

		if (object->used && object->client == c && object->handle == handle)
			return object;
	}
	return NULL;
}

/* A client may be used through the file that made it only (client.c: strict owner check). */
int rm_client_ok(struct rm *rm, const struct rm_file *file, uint32_t handle, struct rm_client **out)
{
	struct rm_client *client = rm_find_client(rm, handle);

	if (!client)
		return NV_INVALID_OBJECT_HANDLE;
	if (client->file != file - rm->file)
		return NV_INVALID_CLIENT;
	*out = client;
	return NV_OK;
}

/* ---- memory ---- */

void rm_mem_get(struct rm *rm, int mem)
{
	rm->mem[mem].refs++;
}

void rm_mem_put(struct rm *rm, int mem)
{
	struct rm_mem *m = &rm->mem[mem];
	struct rm_gpu *gpu = &rm->gpu[m->gpu];

	if (--m->refs)
		return;
	for (uint64_t at = 0; at < m->size; at += RM_CHUNK)
		gpu->chunk[(m->phys + at) / RM_CHUNK] = 0;
	/* gives the pages back; who gets the memory next sees zeros */
	if (fallocate(rm->fb_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)((uint64_t)m->gpu * RM_FB_STRIDE + m->phys), (off_t)m->size))
		abort();
	memset(m, 0, sizeof(*m));
}

/* A new descriptor with one reference, or -1. Blocks are whole 2 MiB, as CUDA's are. */
static int mem_new(struct rm *rm, int gpu, uint64_t size)
{
	struct rm_gpu *g = &rm->gpu[gpu];
	uint64_t total = g->fb_bytes / RM_CHUNK, want = (size + RM_CHUNK - 1) / RM_CHUNK, run = 0;
	int mem = -1;

	for (int i = 0; i < RM_MEMS && mem < 0; i++)
		if (!rm->mem[i].used)
			mem = i;
	if (mem < 0 || !size)
		return -1;
	for (uint64_t c = 0; c < total; c++) {
		run = g->chunk[c] ? 0 : run + 1;
		if (run < want)
			continue;
		memset(&g->chunk[c + 1 - want], 1, want);
		rm->mem[mem] = (struct rm_mem){
			.used = true, .refs = 1, .gpu = gpu, .space = SPACE_VIDMEM,
			.phys = (c + 1 - want) * RM_CHUNK, .size = want * RM_CHUNK,
		};
		return mem;
	}
	return -1;
}

/* ---- BAR1 ---- */

static uint64_t bar_page(const struct rm *rm)
{
	return (uint64_t)rm->config.bar1_page_kb << 10;
}

static void bar_put(struct rm *rm, int bar)
{
	struct rm_bar *b = &rm->bar[bar];

	if (--b->refs)
		return;
	for (int i = 0; i < RM_BAR_PAGES; i++)
		if (rm->gpu[b->gpu].bar_page[i] == bar + 1)
			rm->gpu[b->gpu].bar_page[i] = 0;
	memset(b, 0, sizeof(*b));
}

/* mapping_reuse.c, 570 and newer: only exactly the same range is shared */
static int bar_reuse(struct rm *rm, int gpu, int mem, uint64_t offset, uint64_t length)
{
	for (int i = 0; rm->major >= 570 && i < RM_BARS; i++) {
		struct rm_bar *b = &rm->bar[i];

		if (b->used && b->gpu == gpu && b->mem == mem && b->offset == offset &&
		    b->length == length)
			return i;
	}
	return -1;
}

/* Takes @want pages of BAR1: in one piece; 565 and newer also in several (kern_bus_gm107.c). */
static int bar_take(struct rm *rm, struct rm_gpu *gpu, uint64_t want, int bar)
{
	uint64_t total = gpu->bar1_bytes / bar_page(rm), run = 0, left = 0;
	int first = -1;

	if (total > RM_BAR_PAGES)
		total = RM_BAR_PAGES;
	for (uint64_t i = 0; i < total; i++) {
		left += !gpu->bar_page[i];
		run = gpu->bar_page[i] ? 0 : run + 1;
		if (run < want)
			continue;
		for (uint64_t p = i + 1 - want; p <= i; p++)
			gpu->bar_page[p] = (uint16_t)(bar + 1);
		return (int)(i + 1 - want);
	}
	if (rm->major < 565 || left < want)
		return -1;
	for (uint64_t i = 0; i < total && want; i++) {
		if (gpu->bar_page[i])
			continue;
		gpu->bar_page[i] = (uint16_t)(bar + 1);
		first = first < 0 ? (int)i : first;
		want--;
	}
	return first;
}

/* 0 and the range in *out; gpu_vaspace.c for the two refusals */
static int bar_get(struct rm *rm, int gpu, int mem, uint64_t offset, uint64_t length, int *out)
{
	struct rm_gpu *g = &rm->gpu[gpu];
	uint64_t page = bar_page(rm), start = (rm->mem[mem].phys + offset) & ~(page - 1);
	uint64_t want = (rm->mem[mem].phys + offset + length - start + page - 1) / page;
	int bar = bar_reuse(rm, gpu, mem, offset, length), first;

	if (bar >= 0) {
		rm->bar[bar].refs++;
		*out = bar;
		return NV_OK;
	}
	if (want * page > g->bar1_bytes)
		return NV_INVALID_ARGUMENT;
	for (bar = 0; bar < RM_BARS && rm->bar[bar].used; bar++)
		;
	if (bar == RM_BARS)
		return NV_NO_MEMORY;
	first = bar_take(rm, g, want, bar);
	if (first < 0)
		return NV_NO_MEMORY;
	rm->bar[bar] = (struct rm_bar){
		.used = true, .refs = 1, .gpu = gpu, .mem = mem, .offset = offset,
		.length = length, .address = g->fb_address + (uint64_t)first * page +
		((rm->mem[mem].phys + offset) & (page - 1)),
	};
	*out = bar;
	return NV_OK;
}

/* ---- mappings ---- */

static bool map_is_seen(const struct rm *rm, int map)
{
	for (int i = 0; i < RM_VMAS; i++)
		if (rm->vma[i].used && rm->vma[i].map == map &&
		    rm->vma[i].stamp == rm->map_stamp[map])
			return true;
	return false;
}

static void map_drop(struct rm *rm, int map)
{
	if (map_is_seen(rm, map))
		rm->count.order_violations++;
	if (rm->map[map].bar >= 0)
		bar_put(rm, rm->map[map].bar);
	memset(&rm->map[map], 0, sizeof(rm->map[map]));
}

/* A CPU mapping is gone; with it perhaps the file that it kept. */
void rm_map_unref_vma(struct rm *rm, struct rm_vma *vma)
{
	struct rm_file *file = &rm->file[vma->file];

	memset(vma, 0, sizeof(*vma));
	rm->nvmas--;
	file->vmas--;
	if (file->closed && file->keeper < 0 && !file->vmas && !file->holds)
		rm_file_gone(rm, file);
}

/* ---- objects ---- */

struct rm_object *rm_new_object(struct rm *rm, struct rm_client *client, uint32_t handle,
				uint32_t parent, uint32_t class, int gpu, int mem)
{
	for (int i = 0; i < RM_OBJECTS; i++) {
		struct rm_object *object = &rm->object[i];

		if (object->used)
			continue;
		while (!handle || (handle == client->next - 1 &&
				   rm_find_object(rm, client, handle)))
			handle = client->next++;
		*object = (struct rm_object){
			.used = true, .client = (int)(client - rm->client), .handle = handle,
			.parent = parent, .class = class, .gpu = gpu, .mem = mem,
		};
		return object;
	}
	return NULL;
}

/*
 * Frees an object and what is below it. A mapping that is still there is a fault of the caller,
 * unless the whole client goes with its file.
 */
static void object_free(struct rm *rm, struct rm_object *object, bool closing)
{
	int client = object->client;
	uint32_t handle = object->handle;

	for (int i = 0; i < RM_MAPS; i++) {
		struct rm_map *map = &rm->map[i];

		if (!map->used || map->client != client ||
		    (map->hmemory != handle && map->hdevice != handle))
			continue;
		if (!closing && !map_is_seen(rm, i))
			rm->count.order_violations++;
		map_drop(rm, i);
	}
	for (int i = 0; i < RM_OBJECTS; i++) {
		struct rm_object *o = &rm->object[i];

		if (o->used && o->client == client && o->parent == handle && o != object)
			object_free(rm, o, closing);
	}
	if (object->mem >= 0)
		rm_mem_put(rm, object->mem);
	memset(object, 0, sizeof(*object));
}

static void client_free(struct rm *rm, struct rm_client *client, bool closing)
{
	int c = (int)(client - rm->client);

	for (int i = 0; i < RM_OBJECTS; i++)
		if (rm->object[i].used && rm->object[i].client == c)
			object_free(rm, &rm->object[i], closing);
	memset(client, 0, sizeof(*client));
}

/* The last user of an open file is gone: nvidia_close(). */
void rm_file_gone(struct rm *rm, struct rm_file *file)
{
	int f = (int)(file - rm->file), ctl = file->ctl;

	if (file->kind == FILE_CTL)
		for (int i = 0; i < RM_CLIENTS; i++)
			if (rm->client[i].used && rm->client[i].file == f)
				client_free(rm, &rm->client[i], true);
	if (file->export_mem >= 0)
		rm_mem_put(rm, file->export_mem);
	for (int i = 0; i < file->nmems; i++)
		rm_mem_put(rm, file->mems[i]);
	memset(file, 0, sizeof(*file));
	rm->nfiles--;
	if (ctl >= 0) {
		struct rm_file *held = &rm->file[ctl];

		held->holds--;
		if (held->closed && held->keeper < 0 && !held->holds && !held->vmas)
			rm_file_gone(rm, held);
	}
}

/* ---- ioctls that do not reach RM proper ---- */

static int card_info(struct rm *rm, const struct rm_file *file, unsigned size, char *arg)
{
	long n = rm->config.gpus;

	if (!size || size % 72)
		return -EINVAL;
	memset(arg, 0, size);
	for (long i = 0; i < n && (unsigned)i < size / 72; i++) {
		const struct rm_gpu *g = &rm->gpu[i];
		char *c = arg + i * 72;
		uint32_t id = g->gpu_id;

		if (rm_tampers(rm, file, "gpu_id"))
			id = n > 1 ? rm->gpu[(i + 1) % n].gpu_id : id ^ 0x100;
		put8(c, 0, 1);
		put32(c, 4, g->domain);
		put8(c, 8, (uint8_t)g->bus);
		put16(c, 12, 0x10de);
		put16(c, 14, 0x2335);
		put32(c, 16, id);
		put16(c, 20, 16);
		put64(c, 24, g->reg_address);
		put64(c, 32, 16u << 20);
		put64(c, 40, g->fb_address);
		put64(c, 48, g->bar1_bytes);
		put32(c, 56, g->minor);
		memcpy(c + 60, "nvidia", 7);
	}
	return 0;
}

/* escape.c: once per file, and before anything else */
static int register_fd(struct rm *rm, struct rm_file *file, unsigned size, void *arg)
{
	struct rm_file *ctl;

	if (size != 4 || file->registered)
		return -EINVAL;
	ctl = rm_file_of_fd(rm, (int)get32(arg, 0));
	if (!ctl || ctl->kind != FILE_CTL)
		return -EINVAL;
	file->registered = true;
	file->ctl = (int)(ctl - rm->file);
	ctl->holds++;
	return 0;
}

/* osapi.c: rm_perform_version_check(); the query, '2', is new in 530 */
static int check_version(struct rm *rm, unsigned size, char *arg)
{
	uint32_t cmd;
	bool same;

	if (size != 72)
		return -EINVAL;
	cmd = get32(arg, 0);
	same = !strncmp(arg + 8, rm->config.driver, 64);
	put32(arg, 4, 0);
	memcpy(arg + 8, rm->config.driver, 64);
	if (same || (cmd == '2' && rm->major >= 530)) {
		put32(arg, 4, 1);
		return 0;
	}
	return -EINVAL;
}

/* ---- RM_ALLOC ---- */

struct alloc {
	uint32_t root, parent, handle, class;
	void *params;
};

static int alloc_client(struct rm *rm, struct rm_file *file, struct alloc *a)
{
	for (int i = 0; i < RM_CLIENTS; i++) {
		struct rm_client *c = &rm->client[i];

		if (c->used)
			continue;
		if (!a->handle) {
			while (rm_find_client(rm, rm->next_client))
				rm->next_client++;
			a->handle = rm->next_client++;
		} else if (rm_find_client(rm, a->handle)) {
			return NV_INSERT_DUPLICATE_NAME;
		}
		*c = (struct rm_client){
			.used = true, .handle = a->handle, .file = (int)(file - rm->file),
			.pid = getpid(), .next = 0xcaf00001,
		};
		return NV_OK;
	}
	return NV_INSUFFICIENT_RESOURCES;
}

static bool gpu_is_open(const struct rm *rm, int gpu)
{
	for (int i = 0; i < RM_FILES; i++) {
		const struct rm_file *f = &rm->file[i];

		if (f->used && f->kind == FILE_DEV && f->gpu == gpu && f->pid == getpid() &&
		    !f->closed)
			return true;
	}
	return false;
}

/* device.c: the process must have the GPU's file open */
static int alloc_device(struct rm *rm, struct rm_client *client, struct alloc *a, int *gpu)
{
	if (a->parent != client->handle)
		return NV_INVALID_OBJECT_PARENT;
	if (!a->params)
		return NV_INVALID_ARGUMENT;
	for (int i = 0; i < rm->config.gpus; i++) {
		if (rm->gpu[i].instance != get32(a->params, 0))
			continue;
		*gpu = i;
		return gpu_is_open(rm, i) ? NV_OK : NV_INSUFFICIENT_PERMISSIONS;
	}
	return NV_INVALID_ARGUMENT;
}

/* nvos.h: NV_MEMORY_ALLOCATION_PARAMS has the size at 64, in and out */
static int alloc_memory(struct rm *rm, const struct rm_object *parent, struct alloc *a, int *mem)
{
	if (!parent || parent->class != NV_DEVICE)
		return NV_INVALID_OBJECT_PARENT;
	if (!a->params || !get64(a->params, 64))
		return NV_INVALID_ARGUMENT;
	*mem = mem_new(rm, parent->gpu, get64(a->params, 64));
	if (*mem < 0)
		return NV_NO_MEMORY;
	if (a->class == NV_MEMORY_SYSTEM)
		rm->mem[*mem].space = SPACE_SYSMEM;
	put64(a->params, 64, rm->mem[*mem].size);
	return NV_OK;
}

static int alloc_object(struct rm *rm, struct rm_file *file, struct alloc *a)
{
	struct rm_client *client;
	struct rm_object *parent, *object;
	int status, gpu = -1, mem = -1;

	if (a->class == NV_ROOT || a->class == NV_ROOT_CLIENT)
		return alloc_client(rm, file, a);
	status = rm_client_ok(rm, file, a->root, &client);
	if (status)
		return status;
	parent = rm_find_object(rm, client, a->parent);
	if (!parent && a->parent != client->handle)
		return NV_INVALID_OBJECT_PARENT;
	if (a->handle && (a->handle == client->handle || rm_find_object(rm, client, a->handle)))
		return NV_INSERT_DUPLICATE_NAME;
	switch (a->class) {
	case NV_DEVICE:
		status = alloc_device(rm, client, a, &gpu);
		break;
	case NV_SUBDEVICE:
		if (!parent || parent->class != NV_DEVICE)
			status = NV_INVALID_OBJECT_PARENT;
		else if (a->params && get32(a->params, 0))
			status = NV_INVALID_ARGUMENT;
		else
			gpu = parent->gpu;
		break;
	case NV_MEMORY_LOCAL_USER:
	case NV_MEMORY_SYSTEM:
		status = alloc_memory(rm, parent, a, &mem);
		gpu = parent ? parent->gpu : -1;
		break;
	case NV_CONFIDENTIAL_COMPUTE:
		if (rm->major < 525)
			status = NV_INVALID_CLASS;
		else if (parent)
			status = NV_INVALID_OBJECT_PARENT;
		break;
	default:
		status = NV_INVALID_CLASS;
	}
	if (status)
		return status;
	object = rm_new_object(rm, client, a->handle, a->parent, a->class, gpu, mem);
	if (!object)
		return NV_INSUFFICIENT_RESOURCES;
	a->handle = object->handle;
	return NV_OK;
}

/* What RM_ALLOC's params of the class must measure if the caller says so. */
static uint32_t class_params_size(uint32_t class)
{
	switch (class) {
	case NV_DEVICE:
		return 56;
	case NV_SUBDEVICE:
		return 4;
	case NV_MEMORY_LOCAL_USER:
	case NV_MEMORY_SYSTEM:
		return 128;
	default:
		return 4; /* a client handle: cl0000.h, clcb33.h */
	}
}

/* nvos.h: NVOS21 and NVOS64, told apart by size; both grew a field in the 535 branch */
static int rm_alloc(struct rm *rm, struct rm_file *file, unsigned size, void *arg)
{
	struct alloc a = { .params = NULL };
	size_t at_status, at_size = 0;
	unsigned long_size = rm->major >= 535 ? 48 : 40;
	int status;

	if (size != 32 && size != long_size)
		return -EINVAL;
	if (size == 32) {
		at_status = rm->major >= 535 ? 28 : 24;
		at_size = rm->major >= 535 ? 24 : 0;
	} else if (rm->major >= 535) {
		at_status = 40;
		at_size = 32;
	} else {
		at_status = rm->major >= 525 ? 36 : 32;
	}
	a.root = get32(arg, 0);
	a.parent = get32(arg, 4);
	a.handle = get32(arg, 8);
	a.class = get32(arg, 12);
	a.params = (void *)(uintptr_t)get64(arg, 16);
	status = rm_take_fault(rm, file, false, NR_RM_ALLOC);
	if (status < 0)
		return status;
	if (!status && at_size && get32(arg, at_size) &&
	    get32(arg, at_size) != class_params_size(a.class))
		status = NV_INVALID_PARAM_STRUCT;
	if (!status)
		status = alloc_object(rm, file, &a);
	if (!status)
		put32(arg, 8, a.handle);
	put32(arg, at_status, (uint32_t)status);
	return 0;
}

/* ---- RM_FREE ---- */

static int rm_free(struct rm *rm, struct rm_file *file, uint32_t hroot, uint32_t handle)
{
	struct rm_client *client;
	struct rm_object *object;
	int status = rm_client_ok(rm, file, hroot, &client);

	if (status)
		return status;
	if (client->pid != getpid())
		rm->count.foreign_calls++;
	if (handle == client->handle) {
		client_free(rm, client, false);
	} else {
		object = rm_find_object(rm, client, handle);
		if (!object)
			return NV_OBJECT_NOT_FOUND;
		object_free(rm, object, false);
	}
	rm->count.total_frees += !file->trusted;
	return NV_OK;
}

/* ---- RM_DUP_OBJECT ---- */

/* Memory that has nothing to do with @mem but its size. */
static int decoy(struct rm *rm, int mem)
{
	return mem_new(rm, rm->mem[mem].gpu, rm->mem[mem].size);
}

static int rm_dup(struct rm *rm, struct rm_file *file, void *arg)
{
	struct rm_client *client, *from;
	struct rm_object *parent, *source, *object;
	uint32_t hparent = get32(arg, 4), handle = get32(arg, 8);
	int mem, status = rm_client_ok(rm, file, get32(arg, 0), &client);

	if (status)
		return status;
	parent = rm_find_object(rm, client, hparent);
	/* rs_server.c: 575 and newer keep a lock here; nobody may do this */
	if (!parent && hparent != client->handle) {
		rm->count.invalid_parent_dups++;
		return NV_INVALID_OBJECT_PARENT;
	}
	from = rm_find_client(rm, get32(arg, 12));
	if (!from)
		return NV_INVALID_OBJECT_HANDLE;
	source = rm_find_object(rm, from, get32(arg, 16));
	if (!source)
		return NV_OBJECT_NOT_FOUND;
	/* sharing.c: by default the same process may, others need RS_SHARE_TYPE_ALL */
	if (from->pid != getpid() && !source->share_all)
		return NV_INSUFFICIENT_PERMISSIONS;
	if (source->mem < 0)
		return NV_NOT_SUPPORTED;
	if (!parent || parent->class != NV_DEVICE)
		return NV_INVALID_OBJECT_PARENT;
	if (handle && rm_find_object(rm, client, handle))
		return NV_INSERT_DUPLICATE_NAME;
	if (rm->config.mig && !file->trusted)
		return NV_NOT_SUPPORTED; /* video_mem.c: another GPU instance */
	if (rm_tampers(rm, file, "dup_zero_handle")) {
		put32(arg, 8, 0);
		return NV_OK;
	}
	if (rm->mem[source->mem].gpu != parent->gpu)
		rm->count.wrong_gpu_dups++;
	mem = source->mem;
	if (rm_tampers(rm, file, "dup_wrong_memory"))
		mem = decoy(rm, mem);
	else
		rm_mem_get(rm, mem);
	if (mem < 0)
		return NV_NO_MEMORY;
	object = rm_new_object(rm, client, handle, hparent, source->class, parent->gpu, mem);
	if (!object) {
		rm_mem_put(rm, mem);
		return NV_INSUFFICIENT_RESOURCES;
	}
	object->dup = true;
	rm->count.total_dups += !file->trusted;
	put32(arg, 8, object->handle);
	return NV_OK;
}

/* os.c: RmImportObject() dups with the kernel's rights: having the file is the permission. */
int rm_import(struct rm *rm, struct rm_client *client, struct rm_file *from, uint32_t hparent,
	      uint32_t *hobject)
{
	struct rm_object *parent = rm_find_object(rm, client, hparent), *object;

	if (!parent || parent->class != NV_DEVICE)
		return NV_INVALID_OBJECT_PARENT;
	if (*hobject && rm_find_object(rm, client, *hobject))
		return NV_INSERT_DUPLICATE_NAME;
	if (from->export_gpu != parent->gpu)
		rm->count.wrong_gpu_dups++;
	object = rm_new_object(rm, client, *hobject, hparent, from->export_class, parent->gpu,
			       from->export_mem);
	if (!object)
		return NV_INSUFFICIENT_RESOURCES;
	rm_mem_get(rm, from->export_mem);
	object->dup = true;
	*hobject = object->handle;
	return NV_OK;
}

/* ---- RM_SHARE: nvos.h NVOS57, rs_access.h for the types ---- */

static int rm_share(struct rm *rm, struct rm_file *file, void *arg)
{
	struct rm_client *client;
	struct rm_object *object;
	int status = rm_client_ok(rm, file, get32(arg, 0), &client);
	unsigned type = get32(arg, 16) & 0xffff;

	if (status)
		return status;
	object = rm_find_object(rm, client, get32(arg, 4));
	if (!object)
		return get32(arg, 4) == client->handle ? NV_OK : NV_OBJECT_NOT_FOUND;
	if (type == 1) {
		object->share_all = true;
		rm->count.shares_all++;
	} else if (type == 4) {
		object->share_all = false;
	} else {
		return NV_INVALID_ARGUMENT;
	}
	return NV_OK;
}

/* ---- RM_MAP_MEMORY ---- */

/* nvos.h: NVOS33_FLAGS */
#define FLAG_ACCESS(f) ((f) & 3)
#define FLAG_PERSISTENT (1u << 4)
#define FLAG_SKIP_SIZE_CHECK (1u << 8)
#define FLAG_MEM_SPACE_USER (1u << 14)
#define FLAG_OS_DESCRIPTOR (1u << 22)
#define CACHING_SHIFT 23
#define CACHING_CACHED 0u
#define CACHING_WRITECOMBINED 2u
#define MAPPING_REFLECTED (2u << 15)
#define COHERENT_BASE 0x400000000000ull

/* mapping_cpu.c: memMap_IMPL() */
static int map_refused(const struct rm *rm, const struct rm_file *file, const struct rm_mem *mem,
		       uint64_t offset, uint64_t length, uint32_t flags)
{
	if (flags & (FLAG_PERSISTENT | FLAG_MEM_SPACE_USER | FLAG_OS_DESCRIPTOR) ||
	    FLAG_ACCESS(flags) == 3)
		return NV_INVALID_FLAGS;
	if (rm->config.lost)
		return NV_GPU_IS_LOST;
	if (rm->config.cc)
		return NV_NOT_SUPPORTED;
	if (offset >= mem->size)
		return NV_INVALID_BASE;
	if (!length)
		return NV_INVALID_LIMIT;
	if (flags & FLAG_SKIP_SIZE_CHECK)
		return NV_INSUFFICIENT_PERMISSIONS;
	if (length > mem->size - offset)
		return NV_INVALID_LIMIT;
	if (mem->space == SPACE_SYSMEM)
		return NV_NOT_SUPPORTED; /* by this fake */
	if (rm_tampers(rm, file, "dup_regmem") && !rm_admin(rm))
		return NV_PROTECTION_FAULT;
	return NV_OK;
}

/* nv-usermap.c: nv_add_mapping_context_to_file() */
static int map_file(struct rm *rm, int fd, int gpu, struct rm_file **out)
{
	struct rm_file *file = rm_file_of_fd(rm, fd);

	if (!file || file->kind != FILE_DEV || file->gpu != gpu)
		return NV_INVALID_ARGUMENT;
	if (file->map >= 0)
		return NV_STATE_IN_USE;
	*out = file;
	return NV_OK;
}

static uint32_t map_flags(const struct rm *rm, const struct rm_file *file, uint32_t flags)
{
	uint32_t caching = CACHING_WRITECOMBINED;

	flags = (flags & ~(3u << 15) & ~(7u << CACHING_SHIFT)) | MAPPING_REFLECTED;
	if (rm->major < 520)
		return flags; /* the caching field is not in 515's nvos.h */
	if (rm->config.coherent || rm_tampers(rm, file, "map_caching"))
		caching = CACHING_CACHED;
	return flags | caching << CACHING_SHIFT;
}

static int new_map(struct rm *rm, const struct rm_map *what, int *out)
{
	for (int i = 0; i < RM_MAPS; i++) {
		if (rm->map[i].used)
			continue;
		rm->map[i] = *what;
		rm->map[i].used = true;
		rm->map_stamp[i] = ++rm->next_stamp;
		*out = i;
		return NV_OK;
	}
	return NV_INSUFFICIENT_RESOURCES;
}

/* Where in the GPU's memory the CPU will look. */
static void set_window(struct rm *rm, const struct rm_file *ctl, struct rm_file *file, int map,
		       int mem, uint64_t offset, uint64_t length)
{
	uint64_t phys = rm->mem[mem].phys + offset, last = rm->gpu[rm->map[map].gpu].fb_bytes;

	if (rm_tampers(rm, ctl, "alias") && length < 1u << 20)
		phys = rm->mem[mem].phys + (offset & (RM_PAGE - 1));
	file->map_phys = phys & ~(RM_PAGE - 1);
	file->map_bytes = ((phys & (RM_PAGE - 1)) + length + RM_PAGE - 1) & ~(RM_PAGE - 1);
	if (rm_tampers(rm, ctl, "map_wrong_offset")) {
		file->map_phys += RM_PAGE;
		if (file->map_phys + file->map_bytes > last)
			file->map_phys -= 2 * RM_PAGE;
	}
	file->map = map;
	file->map_gpu = rm->map[map].gpu;
}

static int rm_map(struct rm *rm, struct rm_file *ctl, void *arg)
{
	struct rm_client *client;
	struct rm_object *device, *memory;
	struct rm_file *file = NULL;
	struct rm_map new = { .bar = -1 };
	uint64_t offset = get64(arg, 16), length = get64(arg, 24);
	uint32_t flags = get32(arg, 44);
	int map = -1, status = rm_client_ok(rm, ctl, get32(arg, 0), &client);

	if (status)
		return status;
	if (client->pid != getpid())
		return NV_INVALID_CLIENT; /* osapi.c: rm_create_mmap_context() */
	device = rm_find_object(rm, client, get32(arg, 4));
	memory = rm_find_object(rm, client, get32(arg, 8));
	if (!device || !memory)
		return NV_OBJECT_NOT_FOUND;
	if ((device->class != NV_DEVICE && device->class != NV_SUBDEVICE) || memory->mem < 0 ||
	    memory->gpu != device->gpu)
		return NV_INVALID_ARGUMENT;
	status = map_refused(rm, ctl, &rm->mem[memory->mem], offset, length, flags);
	if (!status)
		status = map_file(rm, (int)get32(arg, 48), device->gpu, &file);
	new.client = (int)(client - rm->client);
	new.hdevice = device->handle;
	new.hmemory = memory->handle;
	new.gpu = device->gpu;
	new.address = rm->gpu[new.gpu].fb_address + rm->mem[memory->mem].phys + offset;
	if (rm->config.coherent) {
		/* mapping_cpu.c: coherentCpuFbBase */
		new.address = COHERENT_BASE + (uint64_t)new.gpu * RM_FB_STRIDE +
			      rm->mem[memory->mem].phys + offset;
	} else if (!status && !rm_bar1_static(rm)) {
		status = bar_get(rm, new.gpu, memory->mem, offset, length, &new.bar);
		if (!status)
			new.address = rm->bar[new.bar].address;
	}
	if (!status)
		status = new_map(rm, &new, &map);
	if (status) {
		if (new.bar >= 0)
			bar_put(rm, new.bar);
		return status;
	}
	set_window(rm, ctl, file, map, memory->mem, offset, length);
	if (rm_tampers(rm, ctl, "map_address"))
		rm->map[map].address += rm->gpu[new.gpu].bar1_bytes;
	put64(arg, 32, rm->map[map].address);
	put32(arg, 44, map_flags(rm, ctl, flags));
	rm->count.total_maps += !ctl->trusted;
	return NV_OK;
}

static int rm_unmap(struct rm *rm, struct rm_file *file, void *arg)
{
	struct rm_client *client;
	int status = rm_client_ok(rm, file, get32(arg, 0), &client);

	if (status)
		return status;
	if (client->pid != getpid())
		rm->count.foreign_calls++;
	if (!rm_find_object(rm, client, get32(arg, 4)) ||
	    !rm_find_object(rm, client, get32(arg, 8)))
		return NV_OBJECT_NOT_FOUND;
	for (int i = 0; i < RM_MAPS; i++) {
		struct rm_map *m = &rm->map[i];

		if (m->used && m->client == client - rm->client && m->hdevice == get32(arg, 4) &&
		    m->hmemory == get32(arg, 8) && m->address == get64(arg, 16)) {
			map_drop(rm, i);
			rm->count.total_unmaps += !file->trusted;
			return NV_OK;
		}
	}
	return NV_OBJECT_NOT_FOUND;
}

/* ---- EXPORT_TO_DMABUF_FD: nv-ioctl.h ---- */

struct dmabuf_layout {
	unsigned size, handles, offsets, sizes, status;
	bool mapping_type, allow_mmap;
};

static struct dmabuf_layout dmabuf_layout(int major)
{
	if (major < 570)
		return (struct dmabuf_layout){ 2600, 32, 544, 1568, 2592, false, false };
	return (struct dmabuf_layout){ 2608, 36, 552, 1576, 2600, true, major >= 580 };
}

/* The checks on one object of an export, and its memory. */
static int export_one(struct rm *rm, const struct rm_file *file, const struct rm_client *client,
		      uint32_t handle, uint64_t offset, uint64_t size, int *mem)
{
	struct rm_object *object = rm_find_object(rm, client, handle);

	if (!object || object->mem < 0)
		return NV_OBJECT_NOT_FOUND;
	if (object->gpu != file->gpu && !rm_tampers(rm, NULL, "export_wrong_dev"))
		return NV_INVALID_ARGUMENT;
	if (offset % RM_PAGE || size % RM_PAGE || !size || offset > rm->mem[object->mem].size ||
	    size > rm->mem[object->mem].size - offset)
		return NV_INVALID_ARGUMENT;
	*mem = object->mem;
	return NV_OK;
}

static int export_dmabuf(struct rm *rm, const struct rm_file *file, const struct dmabuf_layout *l,
			 char *arg)
{
	struct rm_client *client = rm_find_client(rm, get32(arg, 4));
	uint32_t total = get32(arg, 8), n = get32(arg, 12), index = get32(arg, 16);
	uint64_t sum = 0;
	struct rm_file *buf;
	int mems[RM_DMABUF_OBJECTS], fd, status;

	rm->count.exports++;
	if (!client)
		return NV_INVALID_OBJECT_HANDLE;
	if ((int)get32(arg, 0) != -1 || !n || n > RM_DMABUF_OBJECTS || total != n || index)
		return NV_INVALID_ARGUMENT; /* this fake makes a dma-buf in one call only */
	/* nv-dmabuf.c: mmap for GPUs without memory of their own; p2p.c: PCIe for coherent ones */
	if (l->allow_mmap && arg[33])
		return NV_NOT_SUPPORTED;
	if (l->mapping_type && arg[32] && !rm->config.coherent)
		return NV_NOT_SUPPORTED;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t offset = get64(arg, l->offsets + 8 * i);
		uint64_t size = get64(arg, l->sizes + 8 * i);

		status = export_one(rm, file, client, get32(arg, l->handles + 4 * i), offset, size,
				    &mems[i]);
		if (status)
			return status;
		sum += size;
	}
	if (sum != get64(arg, 24) && !rm_tampers(rm, NULL, "export_short"))
		return NV_INVALID_ARGUMENT;
	fd = rm_new_fd(rm, FILE_DMABUF, file->gpu, O_CLOEXEC, &buf);
	if (fd < 0)
		return NV_INSUFFICIENT_RESOURCES;
	if (ftruncate(fd, (off_t)sum)) /* a dma-buf tells its size */
		abort();
	for (uint32_t i = 0; i < n; i++) {
		rm_mem_get(rm, mems[i]);
		buf->mems[i] = (uint16_t)mems[i];
		buf->mem_offset[i] = get64(arg, l->offsets + 8 * i);
		buf->mem_bytes[i] = get64(arg, l->sizes + 8 * i);
	}
	buf->nmems = (int)n;
	put32(arg, 0, (uint32_t)fd);
	return NV_OK;
}

static int rm_export(struct rm *rm, struct rm_file *file, unsigned size, void *arg)
{
	struct dmabuf_layout l = dmabuf_layout(rm->major);
	int status;

	if (size != l.size || (file->kind != FILE_DEV && !rm_tampers(rm, NULL, "export_wrong_dev")))
		return -EINVAL;
	status = rm_take_fault(rm, file, false, NR_EXPORT_TO_DMABUF_FD);
	if (status < 0)
		return status;
	if (!status)
		status = export_dmabuf(rm, file, &l, arg);
	put32(arg, l.status, (uint32_t)status);
	return 0;
}

/* ---- RM_CONTROL: nvos.h NVOS54 ---- */

static int control(struct rm *rm, struct rm_file *file, void *arg)
{
	struct rm_client *client;
	struct rm_object *object = NULL;
	uint32_t hobject = get32(arg, 4), cmd = get32(arg, 8);
	void *params = (void *)(uintptr_t)get64(arg, 16);
	int status = rm_client_ok(rm, file, get32(arg, 0), &client);

	if (status)
		return status;
	status = rm_take_fault(rm, file, true, cmd);
	if (status)
		return status;
	if (hobject != client->handle) {
		object = rm_find_object(rm, client, hobject);
		if (!object)
			return NV_OBJECT_NOT_FOUND;
	}
	if (get32(arg, 24) && !params)
		return NV_INVALID_ARGUMENT;
	return (int)rm_control(rm, file, client, object, cmd, params, get32(arg, 24));
}

/* ---- injected failures, and the switch ---- */

int rm_take_fault(struct rm *rm, const struct rm_file *file, bool control_cmd, unsigned nr)
{
	bool own = file->trusted && (control_cmd || nr != NR_EXPORT_TO_DMABUF_FD);
	int result = 0;

	for (int i = 0; i < RM_FAULTS && !own; i++) {
		struct rm_fault *fault = &rm->fault[i];

		if (!fault->used || fault->control != control_cmd || fault->nr != nr ||
		    --fault->nth)
			continue;
		fault->used = false;
		result = result ? result : fault->result;
	}
	return result;
}

struct rm_call {
	unsigned nr, size, at_status;
	int (*call)(struct rm *rm, struct rm_file *file, void *arg);
};

static int call_free(struct rm *rm, struct rm_file *file, void *arg)
{
	return rm_free(rm, file, get32(arg, 0), get32(arg, 8));
}

static const struct rm_call calls[] = {
	{ NR_RM_FREE, 16, 12, call_free },
	{ NR_RM_CONTROL, 32, 28, control },
	{ NR_RM_DUP_OBJECT, 28, 24, rm_dup },
	{ NR_RM_SHARE, 24, 20, rm_share },
	{ NR_RM_MAP_MEMORY, 56, 40, rm_map },
	{ NR_RM_UNMAP_MEMORY, 32, 24, rm_unmap },
};

/* osapi.c, escape.c: the RM calls are for the control file only */
static int rm_call(struct rm *rm, struct rm_file *file, unsigned nr, unsigned size, void *arg)
{
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		int status;

		if (calls[i].nr != nr)
			continue;
		if (size != calls[i].size)
			return -EINVAL;
		status = rm_take_fault(rm, file, false, nr);
		if (status < 0)
			return status;
		if (!status)
			status = calls[i].call(rm, file, arg);
		if (status < 0)
			return status;
		put32(arg, calls[i].at_status, (uint32_t)status);
		return 0;
	}
	return -EINVAL;
}

/* The ioctls of nvidia_ioctl() in nv.c, which have no status field. */
static int file_call(struct rm *rm, struct rm_file *file, unsigned nr, unsigned size, void *arg)
{
	bool ctl = file->kind == FILE_CTL;
	int result = rm_take_fault(rm, file, false, nr);

	if (result)
		return result < 0 ? result : -EINVAL;
	if (nr == NR_REGISTER_FD)
		return ctl ? -EINVAL : register_fd(rm, file, size, arg);
	if (nr == NR_WAIT_OPEN_COMPLETE) {
		if (ctl || size != 8 || rm->major < 550)
			return -EINVAL;
		memset(arg, 0, 8);
		return 0;
	}
	if (!ctl)
		return -EINVAL;
	if (nr == NR_CARD_INFO)
		return card_info(rm, file, size, arg);
	if (nr == NR_CHECK_VERSION_STR)
		return check_version(rm, size, arg);
	return size == 8 ? 0 : -EINVAL; /* SYS_PARAMS */
}

int rm_ioctl(struct rm *rm, struct rm_file *file, unsigned nr, unsigned size, void *arg)
{
	rm->count.ioctls++;
	if (!file->trusted)
		rm->count.nr[nr & 0xff]++;
	if (!arg)
		return -EFAULT;
	switch (nr) {
	case NR_CARD_INFO:
	case NR_REGISTER_FD:
	case NR_CHECK_VERSION_STR:
	case NR_SYS_PARAMS:
	case NR_WAIT_OPEN_COMPLETE:
		return file_call(rm, file, nr, size, arg);
	case NR_EXPORT_TO_DMABUF_FD:
		return rm_export(rm, file, size, arg);
	case NR_RM_ALLOC:
		return file->kind == FILE_CTL ? rm_alloc(rm, file, size, arg) : -EINVAL;
	default:
		return file->kind == FILE_CTL ? rm_call(rm, file, nr, size, arg) : -EINVAL;
	}
}
