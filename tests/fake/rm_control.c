/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake resource manager: RM_CONTROL. Layouts are given as byte offsets; the names of files in
 * comments are those of the public NVIDIA/open-gpu-kernel-modules sources.
 */
#include <stdio.h>
#include <string.h>

#include "rm.h"

struct call {
	struct rm *rm;
	struct rm_file *file;
	struct rm_client *client;
	struct rm_object *object; /* NULL: the client itself */
	char *p;
	uint32_t size;
};

enum target { ON_CLIENT, ON_DEVICE, ON_SUBDEVICE, ON_MEMORY, ON_CC };

static struct rm_gpu *gpu_by_id(struct rm *rm, uint32_t id)
{
	for (int i = 0; i < rm->config.gpus; i++)
		if (rm->gpu[i].gpu_id == id)
			return &rm->gpu[i];
	return NULL;
}

/* ctrl0000system.h: BUILD_VERSION_V2; 560 inserted driverBranch */
static int build_version(struct call *c)
{
	size_t title = c->rm->major >= 560 ? 768 : 512;

	memset(c->p, 0, c->size);
	snprintf(c->p, 256, "%s", c->rm->config.driver);
	snprintf(c->p + 256, 256, "%s", "rel/gpu_drv");
	if (c->rm->major >= 560)
		snprintf(c->p + 512, 256, "r%d_00", c->rm->major);
	snprintf(c->p + title, 256, "NVIDIA UNIX driver %s", c->rm->config.driver);
	return NV_OK;
}

/* ctrl0000gpu.h: the ids of the GPUs, 32 of them; the rest is NV0000_CTRL_GPU_INVALID_ID */
static int gpu_ids(struct call *c)
{
	memset(c->p, 0, c->size);
	memset(c->p, 0xff, 32 * 4);
	if (c->size >= 256)
		memset(c->p + 32 * 4, 0xff, 32 * 4);
	for (int i = 0; i < c->rm->config.gpus; i++)
		put32(c->p, 4 * (size_t)i, c->rm->gpu[i].gpu_id);
	return NV_OK;
}

static int id_info(struct call *c)
{
	struct rm_gpu *gpu = gpu_by_id(c->rm, get32(c->p, 0));

	if (!gpu)
		return NV_INVALID_ARGUMENT;
	put32(c->p, 4, 0);
	put32(c->p, 8, gpu->instance);
	put32(c->p, 12, 0);
	put32(c->p, 16, 0);
	put32(c->p, 20, gpu->bus);
	put32(c->p, 24, gpu->instance);
	put32(c->p, 28, (uint32_t)-1);
	return NV_OK;
}

/* The UUID in the format that the flags ask for: 2 = binary, else text. Its length. */
static uint32_t uuid_in_format(const struct call *c, const struct rm_gpu *gpu, uint32_t flags,
			       char *out)
{
	unsigned char u[16];

	memcpy(u, gpu->uuid, sizeof(u));
	if (rm_tampers(c->rm, c->file, "uuid"))
		u[3] ^= 0x40;
	memset(out, 0, 256);
	if ((flags & 3) == 2) {
		memcpy(out, u, sizeof(u));
		return sizeof(u);
	}
	return 1 + (uint32_t)snprintf(out, 256, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
				      "%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4],
				      u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
				      u[14], u[15]);
}

static int uuid_of_id(struct call *c)
{
	struct rm_gpu *gpu = gpu_by_id(c->rm, get32(c->p, 0));

	if (!gpu)
		return NV_OBJECT_NOT_FOUND;
	put32(c->p, 264, uuid_in_format(c, gpu, get32(c->p, 4), c->p + 8));
	return NV_OK;
}

static int gid_info(struct call *c)
{
	put32(c->p, 8, uuid_in_format(c, &c->rm->gpu[c->object->gpu], get32(c->p, 4), c->p + 12));
	return NV_OK;
}

/* ctrl0000client.h */
static int addr_space(struct call *c)
{
	struct rm_object *object = rm_find_object(c->rm, c->client, get32(c->p, 0));

	if (!object)
		return NV_OBJECT_NOT_FOUND;
	if (object->mem < 0)
		return NV_INVALID_ARGUMENT;
	put32(c->p, 8, (uint32_t)c->rm->mem[object->mem].space);
	if (rm_tampers(c->rm, c->file, "dup_addrspace"))
		put32(c->p, 8, SPACE_SYSMEM);
	if (rm_tampers(c->rm, c->file, "dup_regmem"))
		put32(c->p, 8, SPACE_REGMEM);
	return NV_OK;
}

static int handle_info(struct call *c)
{
	uint32_t handle = get32(c->p, 0), index = get32(c->p, 4);
	struct rm_object *object = rm_find_object(c->rm, c->client, handle);
	uint32_t class;

	if (!object && handle != c->client->handle)
		return NV_OBJECT_NOT_FOUND;
	class = object ? object->class : NV_ROOT_CLIENT;
	if (object && object->mem >= 0 && rm_tampers(c->rm, c->file, "dup_class"))
		class = NV_MEMORY_SYSTEM;
	if (index == 1)
		put64(c->p, 8, object ? object->parent : 0);
	else if (index == 2)
		put64(c->p, 8, class);
	else
		return NV_INVALID_ARGUMENT;
	return NV_OK;
}

static int access_rights(struct call *c)
{
	if (!rm_find_object(c->rm, c->client, get32(c->p, 0)))
		return NV_OBJECT_NOT_FOUND;
	put32(c->p, 8, 5);
	return NV_OK;
}

static int child_handle(struct call *c)
{
	uint32_t parent = get32(c->p, 0);

	for (int i = 0; i < RM_OBJECTS; i++) {
		struct rm_object *o = &c->rm->object[i];

		if (o->used && o->client == c->client - c->rm->client && o->parent == parent &&
		    o->class == get32(c->p, 4)) {
			put32(c->p, 8, o->handle);
			return NV_OK;
		}
	}
	return NV_OBJECT_NOT_FOUND;
}

static int are_duplicates(struct call *c)
{
	struct rm_object *a = rm_find_object(c->rm, c->client, get32(c->p, 0));
	struct rm_object *b = rm_find_object(c->rm, c->client, get32(c->p, 4));

	if (c->rm->major < 525)
		return NV_NOT_SUPPORTED;
	if (!a || !b)
		return NV_OBJECT_NOT_FOUND;
	put8(c->p, 8, a == b || (a->mem >= 0 && a->mem == b->mem));
	return NV_OK;
}

/* ctrl0000unix.h, os.c */
static int export_object(struct call *c)
{
	struct rm_file *to = rm_file_of_fd(c->rm, (int)get32(c->p, 16));
	struct rm_object *object = rm_find_object(c->rm, c->client, get32(c->p, 12));

	if (get32(c->p, 0) != 1 || !to || to->kind != FILE_CTL)
		return NV_INVALID_ARGUMENT;
	if (to->exported)
		return NV_STATE_IN_USE;
	if (!object)
		return NV_OBJECT_NOT_FOUND;
	if (object->mem < 0)
		return NV_INVALID_ARGUMENT;
	to->exported = true;
	to->export_mem = object->mem;
	to->export_class = object->class;
	to->export_gpu = c->rm->mem[object->mem].gpu;
	rm_mem_get(c->rm, object->mem);
	return NV_OK;
}

static int import_object(struct call *c)
{
	struct rm_file *from = rm_file_of_fd(c->rm, (int)get32(c->p, 0));
	uint32_t handle = get32(c->p, 16);
	int status;

	if (!from || from->kind != FILE_CTL || !from->exported)
		return NV_INVALID_ARGUMENT;
	status = rm_import(c->rm, c->client, from, get32(c->p, 12), &handle);
	if (status)
		return status;
	put32(c->p, 4, 1);
	put32(c->p, 16, handle);
	return NV_OK;
}

/* 545 inserted gpuInstanceId */
static int export_info(struct call *c)
{
	struct rm_file *from = rm_file_of_fd(c->rm, (int)get32(c->p, 0));

	if (!from || from->kind != FILE_CTL || !from->exported)
		return NV_INVALID_ARGUMENT;
	memset(c->p + 4, 0, c->size - 4);
	put32(c->p, 4, c->rm->gpu[from->export_gpu].instance);
	if (c->rm->major >= 545) {
		put32(c->p, 8, (uint32_t)-1);
		put16(c->p, 12, 1);
	} else {
		put16(c->p, 8, 1);
	}
	return NV_OK;
}

/* ctrl0041.h */
static int surface_info(struct call *c)
{
	const struct rm_mem *mem = &c->rm->mem[c->object->mem];
	char *list = (char *)(uintptr_t)get64(c->p, 8);
	uint32_t n = get32(c->p, 0), space = (uint32_t)mem->space;
	uint64_t size = mem->size;

	if (!list || n > 16)
		return NV_INVALID_ARGUMENT;
	if (rm_tampers(c->rm, c->file, "dup_physsize"))
		size = RM_PAGE;
	if (rm_tampers(c->rm, c->file, "dup_addrspace"))
		space = SPACE_SYSMEM;
	if (rm_tampers(c->rm, c->file, "dup_regmem"))
		space = SPACE_REGMEM;
	for (uint32_t i = 0; i < n; i++, list += 8) {
		switch (get32(list, 0)) {
		case 1: /* ATTRS */
		case 8: /* PHYS_ATTR */
			put32(list, 4, 0);
			break;
		case 2: /* PHYS_SIZE_LO */
		case 3: /* PHYS_SIZE_HI */
			if (c->rm->major < 580)
				return NV_INVALID_ARGUMENT;
			put32(list, 4, (uint32_t)(get32(list, 0) == 2 ? size : size >> 32));
			break;
		case 7: /* PHYS_SIZE, 4 KiB units */
			put32(list, 4, (uint32_t)(size / 4096));
			break;
		case 9: /* ADDR_SPACE_TYPE: numbered as in ctrl0000client.h */
			put32(list, 4, space);
			break;
		default:
			return NV_INVALID_ARGUMENT;
		}
	}
	return NV_OK;
}

static int page_size(struct call *c)
{
	if (c->size == 8)
		put64(c->p, 0, RM_CHUNK);
	else
		put32(c->p, 0, (uint32_t)RM_CHUNK);
	return NV_OK;
}

static int phys_attr(struct call *c)
{
	return rm_admin(c->rm) ? NV_OK : NV_INSUFFICIENT_PERMISSIONS;
}

/* Free BAR1: all of it, or its longest piece; bytes. */
static uint64_t bar1_free(const struct rm *rm, const struct rm_gpu *gpu, bool contiguous)
{
	uint64_t page = (uint64_t)rm->config.bar1_page_kb << 10, n = gpu->bar1_bytes / page;
	uint64_t all = 0, run = 0, best = 0;

	/* assumed: what the static mapping of all memory leaves */
	if (rm_bar1_static(rm))
		return gpu->bar1_bytes - gpu->fb_bytes;
	for (uint64_t i = 0; i < n && i < RM_BAR_PAGES; i++) {
		all += !gpu->bar_page[i];
		run = gpu->bar_page[i] ? 0 : run + 1;
		best = run > best ? run : best;
	}
	return (contiguous ? best : all) * page;
}

/* ctrl2080fb.h; values in KiB */
static int fb_info(struct call *c)
{
	const struct rm_gpu *gpu = &c->rm->gpu[c->object->gpu];
	uint32_t n = get32(c->p, 0), max = (c->size - 4) / 8;

	if (n > max)
		return NV_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < n; i++) {
		char *e = c->p + 4 + 8 * i;
		uint64_t v;

		switch (get32(e, 0)) {
		case 5: /* BAR1_SIZE */
			v = gpu->bar1_bytes;
			break;
		case 0x1d: /* BAR1_AVAIL */
			v = bar1_free(c->rm, gpu, false);
			break;
		case 0x1f: /* BAR1_MAX_CONTIGUOUS_AVAIL */
			v = bar1_free(c->rm, gpu, true);
			break;
		case 7: /* RAM_SIZE */
		case 8: /* TOTAL_RAM_SIZE */
		case 0x20: /* USABLE_RAM */
			v = gpu->fb_bytes;
			break;
		default:
			v = 0;
		}
		put32(e, 4, (uint32_t)(v >> 10));
	}
	return NV_OK;
}

static unsigned fb_info_size(int major)
{
	return major < 545 ? 436 : major < 560 ? 444 : major < 580 ? 460 : 1028;
}

/* ctrl2080bus.h */
static int bar_info(struct call *c)
{
	const struct rm_gpu *gpu = &c->rm->gpu[c->object->gpu];
	const uint64_t bar[3][2] = {
		{ 16u << 20, gpu->reg_address },
		{ gpu->bar1_bytes, gpu->fb_address },
		{ 32u << 20, gpu->reg_address + (16u << 20) },
	};

	memset(c->p, 0, c->size);
	put32(c->p, 0, 3);
	for (size_t i = 0; i < 3; i++) {
		char *e = c->p + 8 + 24 * i;

		put32(e, 4, (uint32_t)(bar[i][0] >> 20));
		put64(e, 8, bar[i][0]);
		put64(e, 16, bar[i][1]);
	}
	return NV_OK;
}

/* ctrl0080gpu.h: NV0080_CTRL_CMD_GPU_GET_VIRTUALIZATION_MODE {u32 mode, u8 isGridBuild} */
static int virt_mode(struct call *c)
{
	memset(c->p, 0, c->size);
	put32(c->p, 0, (uint32_t)c->rm->config.virt);
	return NV_OK;
}

/* ctrlcb33.h: GET_CAPABILITIES; multiGpuMode was added at the end */
static int cc_caps(struct call *c)
{
	long cc = c->rm->config.cc;

	memset(c->p, 0, c->size);
	c->p[0] = (char)(cc ? 1 : 0);
	c->p[1] = 2;
	c->p[2] = (char)(cc ? 2 : 0);
	c->p[3] = (char)cc;
	return NV_OK;
}

struct command {
	uint32_t cmd;
	enum target target;
	uint32_t size;      /* 0: see size_of() */
	int (*call)(struct call *c);
};

static const struct command commands[] = {
	{ 0x13e, ON_CLIENT, 0, build_version },
	{ 0x201, ON_CLIENT, 128, gpu_ids },
	{ 0x205, ON_CLIENT, 32, id_info },
	{ 0x214, ON_CLIENT, 0, gpu_ids },
	{ 0x275, ON_CLIENT, 268, uuid_of_id },
	{ 0xd01, ON_CLIENT, 12, addr_space },
	{ 0xd02, ON_CLIENT, 16, handle_info },
	{ 0xd03, ON_CLIENT, 12, access_rights },
	{ 0xd05, ON_CLIENT, 12, child_handle },
	{ 0xd07, ON_CLIENT, 12, are_duplicates },
	{ 0x3d05, ON_CLIENT, 24, export_object },
	{ 0x3d06, ON_CLIENT, 20, import_object },
	{ 0x3d08, ON_CLIENT, 0, export_info },
	{ 0x410103, ON_MEMORY, 48, phys_attr },
	{ 0x410110, ON_MEMORY, 16, surface_info },
	{ 0x410118, ON_MEMORY, 0, page_size },
	{ 0x800289, ON_DEVICE, 0, virt_mode },
	{ 0x2080014a, ON_SUBDEVICE, 268, gid_info },
	{ 0x20801303, ON_SUBDEVICE, 0, fb_info },
	{ 0x20801803, ON_SUBDEVICE, 200, bar_info },
	{ 0xcb330101, ON_CC, 0, cc_caps },
};

/*
 * Structs that changed between branches. At which branch isGridBuild (0x800289) and multiGpuMode
 * (0xcb330101) were appended is assumed; a caller should try both sizes.
 */
static uint32_t size_of(const struct rm *rm, const struct command *command)
{
	int major = rm->major;

	switch (command->cmd) {
	case 0x13e:
		return major >= 560 ? 1032 : 776;
	case 0x214:
		return major >= 580 ? 384 : 256;
	case 0x3d08:
		return major >= 545 ? 80 : 76;
	case 0x410118:
		return major >= 535 ? 8 : 4;
	case 0x800289:
		return major >= 525 ? 8 : 4;
	case 0x20801303:
		return fb_info_size(major);
	case 0xcb330101:
		return rm->config.cc_caps ? (uint32_t)rm->config.cc_caps : major >= 550 ? 6 : 5;
	default:
		return command->size;
	}
}

static bool target_fits(enum target target, const struct rm_object *object)
{
	switch (target) {
	case ON_CLIENT:
		return !object;
	case ON_DEVICE:
		return object && object->class == NV_DEVICE;
	case ON_SUBDEVICE:
		return object && object->class == NV_SUBDEVICE;
	case ON_MEMORY:
		return object && object->mem >= 0;
	default:
		return object && object->class == NV_CONFIDENTIAL_COMPUTE;
	}
}

uint32_t rm_control(struct rm *rm, struct rm_file *file, struct rm_client *client,
		    struct rm_object *object, uint32_t cmd, void *params, uint32_t size)
{
	struct call c = { rm, file, client, object, params, size };

	/* DMA_GET_PTE_INFO, closed to users inside the 580 branch */
	if (cmd == 0x801801)
		return NV_TEST_ONLY;
	for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		const struct command *command = &commands[i];

		if (command->cmd != cmd || !target_fits(command->target, object))
			continue;
		/* control.c for the client, rs_resource.c for what is below it */
		if (size != size_of(rm, command))
			return object ? NV_INVALID_PARAM_STRUCT : NV_INVALID_ARGUMENT;
		return (uint32_t)command->call(&c);
	}
	return NV_NOT_SUPPORTED;
}
