/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/rm_abi: the part of the NVIDIA resource manager's user interface that the rm provider uses.
 *
 * Facts from NVIDIA's published kernel driver (NVIDIA/open-gpu-kernel-modules, 515.43.04 to
 * 595.45.04): kernel-open/common/inc/nv-ioctl.h, nv-ioctl-numbers.h,
 * nv-unix-nvos-params-wrappers.h; src/common/sdk/nvidia/inc/nvos.h, class/cl*.h, ctrl/ctrl*.h.
 * Everything here has had one layout in all of those releases, except where a comment says how it
 * differs. Padding must be zero. The kernel checks sizes exactly, so that a wrong guess is an error
 * and never a misread.
 */
#ifndef BW_MAP_RM_ABI_H
#define BW_MAP_RM_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define RM_IOCTL(nr, bytes) _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, bytes)

enum {
	RM_FREE = 0x29,
	RM_CONTROL = 0x2a,
	RM_ALLOC = 0x2b,
	RM_DUP_OBJECT = 0x34,
	RM_MAP_MEMORY = 0x4e,
	RM_UNMAP_MEMORY = 0x4f,
	RM_CARD_INFO = 0xc8,
	RM_REGISTER_FD = 0xc9,
	RM_EXPORT_TO_DMABUF = 0xd9,
};

enum { /* classes */
	RM_CLASS_CLIENT = 0x41,
	RM_CLASS_DEVICE = 0x80,
	RM_CLASS_SUBDEVICE = 0x2080,
	RM_CLASS_MEMORY_LOCAL_USER = 0x40,
	RM_CLASS_CONF_COMPUTE = 0xcb33,
};

enum { /* controls */
	RM_CTRL_GET_ADDR_SPACE_TYPE = 0xd01,
	RM_CTRL_GET_HANDLE_INFO = 0xd02,
	RM_CTRL_IMPORT_OBJECT_FROM_FD = 0x3d06,
	RM_CTRL_GPU_GET_ID_INFO_V2 = 0x205,
	RM_CTRL_GET_SURFACE_INFO = 0x410110,
	RM_CTRL_GPU_GET_GID_INFO = 0x2080014a,
	RM_CTRL_FB_GET_INFO_V2 = 0x20801303,
	RM_CTRL_GET_VIRTUALIZATION_MODE = 0x800289,  /* on the device */
	RM_CTRL_CONF_COMPUTE_CAPABILITIES = 0xcb330101,
};

enum { /* status */
	RM_OK = 0,
	RM_GPU_IS_LOST = 0x0f,
	RM_INSUFFICIENT_RESOURCES = 0x1a,
	RM_INSUFFICIENT_PERMISSIONS = 0x1b,
	RM_INVALID_ARGUMENT = 0x1f,
	RM_INVALID_BASE = 0x20,
	RM_INVALID_CLIENT = 0x23,
	RM_INVALID_FLAGS = 0x29,
	RM_INVALID_LIMIT = 0x2e,
	RM_INVALID_OBJECT_HANDLE = 0x33,
	RM_INVALID_OBJECT_PARENT = 0x36,
	RM_INVALID_PARAM_STRUCT = 0x3a,
	RM_NO_MEMORY = 0x51,
	RM_NOT_SUPPORTED = 0x56,
	RM_OBJECT_NOT_FOUND = 0x57,
	RM_PROTECTION_FAULT = 0x5f,
	RM_STATE_IN_USE = 0x63,
};

#define RM_LAYOUT(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define RM_FIELD(type, field, at) \
	_Static_assert(offsetof(struct type, field) == (at), #type "." #field)

struct rm_free { /* NVOS00 */
	uint32_t root, parent, object, status;
};
RM_LAYOUT(rm_free, 16);

/*
 * NVOS21, the short form of RM_ALLOC. Up to 530 word 6 is the status and word 7 padding; from 535
 * on word 6 is the size of the parameters (0: as the class says) and word 7 the status. With both
 * zeroed before, success is: both zero after.
 */
struct rm_alloc {
	uint32_t root, parent, object, class_id;
	uint64_t params;
	uint32_t word6, word7;
};
RM_LAYOUT(rm_alloc, 32);

struct rm_control { /* NVOS54 */
	uint32_t client, object, cmd, flags;
	uint64_t params;
	uint32_t params_bytes, status;
};
RM_LAYOUT(rm_control, 32);

struct rm_dup { /* NVOS55 */
	uint32_t client, parent, object, src_client, src_object, flags, status;
};
RM_LAYOUT(rm_dup, 28);

struct rm_map { /* NVOS33 with a file descriptor */
	uint32_t client, device, memory, pad0;
	uint64_t offset, length, linear;
	uint32_t status, flags;
	int32_t fd;
	uint32_t pad1;
};
RM_LAYOUT(rm_map, 56);
RM_FIELD(rm_map, status, 40);
RM_FIELD(rm_map, fd, 48);

/* NVOS33 flags, bits 25:23: the kind of caching that was chosen, on the way out */
#define RM_MAP_CACHING(flags) ((flags) >> 23 & 7)
enum { RM_CACHING_DEFAULT = 6, RM_CACHING_CACHED = 0, RM_CACHING_UNCACHED = 1, RM_CACHING_WC = 2 };

struct rm_unmap { /* NVOS34 */
	uint32_t client, device, memory, pad0;
	uint64_t linear;
	uint32_t status, flags;
};
RM_LAYOUT(rm_unmap, 32);

struct rm_device_params { /* NV0080_ALLOC */
	uint32_t instance, client_share, target_client, target_device, flags, pad0;
	uint64_t va_size, va_start, va_limit;
	uint32_t va_mode, pad1;
};
RM_LAYOUT(rm_device_params, 56);
RM_FIELD(rm_device_params, va_mode, 48);

struct rm_subdevice_params { /* NV2080_ALLOC */
	uint32_t instance;
};

struct rm_card { /* nv_ioctl_card_info_t */
	uint8_t valid, pad0[3];
	uint32_t domain;
	uint8_t bus, slot, function, pad1;
	uint16_t vendor, device;
	uint32_t gpu_id;
	uint16_t irq, pad2;
	uint64_t reg_address, reg_bytes, fb_address, fb_bytes;
	uint32_t minor;
	uint8_t name[10], pad3[2];
};
RM_LAYOUT(rm_card, 72);
RM_FIELD(rm_card, gpu_id, 16);
RM_FIELD(rm_card, fb_address, 40);
RM_FIELD(rm_card, minor, 56);

struct rm_id_info { /* GPU_GET_ID_INFO_V2 */
	uint32_t gpu_id, flags, instance, subdevice, sli, board, gpu_instance;
	int32_t numa;
};
RM_LAYOUT(rm_id_info, 32);

struct rm_gid { /* GPU_GET_GID_INFO */
	uint32_t index, flags, bytes;
	uint8_t data[256];
};
RM_LAYOUT(rm_gid, 268);
enum { RM_GID_BINARY = 2 };

struct rm_handle_info {
	uint32_t object, index; /* 2: the class */
	uint64_t data;
};
RM_LAYOUT(rm_handle_info, 16);

struct rm_addr_space {
	uint32_t object, flags, type; /* 2: video memory */
};
RM_LAYOUT(rm_addr_space, 12);
enum { RM_HANDLE_INFO_CLASS = 2, RM_ADDR_SPACE_VIDMEM = 2 };

struct rm_pair { /* of the list controls */
	uint32_t index, data;
};
struct rm_surface_info {
	uint32_t n, pad0;
	uint64_t list;
};
RM_LAYOUT(rm_surface_info, 16);
enum { RM_SURFACE_PHYS_SIZE = 7 }; /* in units of 4 KiB */

/*
 * FB_GET_INFO_V2: a count and a list whose length differs: 0x36 entries up to 535, 0x37 up to 555,
 * 0x39 up to 575, 0x80 from 580 on. The right size is found by asking.
 */
struct rm_fb_info {
	uint32_t n;
	struct rm_pair list[0x80];
};
enum { RM_FB_BAR1_SIZE = 5, RM_FB_BAR1_AVAIL = 0x1d }; /* KiB */

struct rm_import { /* IMPORT_OBJECT_FROM_FD */
	int32_t fd;
	uint32_t type, device, parent, object; /* type 1: an RM object */
};
RM_LAYOUT(rm_import, 20);

/*
 * EXPORT_TO_DMABUF as libcuda issues it. 2,600 bytes up to 565; from 570 on 2,608 with a mapping
 * type behind total_bytes.
 */
enum { RM_EXPORT_OBJECTS = 128 };
struct rm_export_565 {
	int32_t fd;
	uint32_t client, total_objects, n, index, pad0;
	uint64_t total_bytes;
	uint32_t handles[RM_EXPORT_OBJECTS];
	uint64_t offsets[RM_EXPORT_OBJECTS], sizes[RM_EXPORT_OBJECTS];
	uint32_t status, pad1;
};
RM_LAYOUT(rm_export_565, 2600);
RM_FIELD(rm_export_565, offsets, 544);
RM_FIELD(rm_export_565, status, 2592);
struct rm_export_570 {
	int32_t fd;
	uint32_t client, total_objects, n, index, pad0;
	uint64_t total_bytes;
	uint8_t mapping_type, allow_mmap, pad1[2];
	uint32_t handles[RM_EXPORT_OBJECTS];
	uint32_t pad2;
	uint64_t offsets[RM_EXPORT_OBJECTS], sizes[RM_EXPORT_OBJECTS];
	uint32_t status, pad3;
};
RM_LAYOUT(rm_export_570, 2608);
RM_FIELD(rm_export_570, total_bytes, offsetof(struct rm_export_565, total_bytes));
RM_FIELD(rm_export_570, handles, 36);
RM_FIELD(rm_export_570, offsets, 552);
RM_FIELD(rm_export_570, status, 2600);

#endif
