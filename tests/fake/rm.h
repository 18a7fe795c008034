/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of the fake resource manager. It lies in one shared anonymous mapping, so that it
 * outlives no process but is the same for a parent and its forked children, like a kernel's.
 */
#ifndef FAKE_RM_H
#define FAKE_RM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "fakenv.h"

#define FAKE_API __attribute__((visibility("default")))

enum {
	RM_GPUS = 8,
	RM_FILES = 1024,
	RM_CLIENTS = 128,
	RM_OBJECTS = 8192,
	RM_MEMS = 4096,
	RM_BARS = 4096,
	RM_MAPS = 4096,
	RM_VMAS = 4096,
	RM_FAULTS = 32,
	RM_FB_CHUNKS = 8192,    /* of 2 MiB: 16 GiB */
	RM_BAR_PAGES = 16384,
	RM_DMABUF_OBJECTS = 128,
};

#define RM_CHUNK (2ull << 20)
#define RM_FB_STRIDE (RM_FB_CHUNKS * RM_CHUNK) /* of the GPUs in the file of all memory */
#define RM_PAGE 4096ull

/* nvstatuscodes.h */
enum {
	NV_OK = 0,
	NV_GPU_IS_LOST = 0x0f,
	NV_INSERT_DUPLICATE_NAME = 0x19,
	NV_INSUFFICIENT_RESOURCES = 0x1a,
	NV_INSUFFICIENT_PERMISSIONS = 0x1b,
	NV_INVALID_ARGUMENT = 0x1f,
	NV_INVALID_BASE = 0x20,
	NV_INVALID_CLASS = 0x22,
	NV_INVALID_CLIENT = 0x23,
	NV_INVALID_FLAGS = 0x29,
	NV_INVALID_LIMIT = 0x2e,
	NV_INVALID_OBJECT_HANDLE = 0x33,
	NV_INVALID_OBJECT_PARENT = 0x36,
	NV_INVALID_PARAM_STRUCT = 0x3a,
	NV_NO_MEMORY = 0x51,
	NV_NOT_SUPPORTED = 0x56,
	NV_OBJECT_NOT_FOUND = 0x57,
	NV_PROTECTION_FAULT = 0x5f,
	NV_STATE_IN_USE = 0x63,
	NV_TEST_ONLY = 0x7e,
};

/* class/cl0000.h, cl0041.h, cl0080.h, cl2080.h, cl0040.h, cl003e.h, clcb33.h */
enum {
	NV_ROOT = 0,
	NV_ROOT_CLIENT = 0x41,
	NV_DEVICE = 0x80,
	NV_SUBDEVICE = 0x2080,
	NV_MEMORY_LOCAL_USER = 0x40,
	NV_MEMORY_SYSTEM = 0x3e,
	NV_CONFIDENTIAL_COMPUTE = 0xcb33,
};

/* ctrl0000client.h: NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_* */
enum { SPACE_SYSMEM = 1, SPACE_VIDMEM = 2, SPACE_REGMEM = 3 };

enum bar1_mode { BAR1_AUTO, BAR1_STATIC, BAR1_DYNAMIC };

enum file_kind { FILE_CTL, FILE_DEV, FILE_DMABUF, FILE_OTHER };

/* An open device file: what a struct file is to the kernel. */
struct rm_file {
	bool used, closed, registered, trusted, exported;
	enum file_kind kind;
	int gpu;                /* of a device file */
	pid_t pid;              /* that opened it */
	dev_t dev;              /* of the memfd that stands for it */
	ino_t ino;
	int holds;              /* device files that keep this control file */
	int ctl;                /* the control file that this device file keeps, or -1 */
	int keeper;             /* while closed: an fd, in process @keeper_pid, to look whether */
	pid_t keeper_pid;       /*     anybody has it open still */
	int vmas;
	int map;                /* the pending or past RM mapping (nv-usermap.c), or -1 */
	uint64_t map_phys, map_bytes;
	int map_gpu;
	int export_mem;         /* exported by NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD */
	uint32_t export_class;
	int export_gpu;
	int nmems;
	uint16_t mems[RM_DMABUF_OBJECTS]; /* what a dma-buf keeps, */
	uint64_t mem_offset[RM_DMABUF_OBJECTS], mem_bytes[RM_DMABUF_OBJECTS]; /* and shows */
};

struct rm_client {
	bool used;
	uint32_t handle;
	int file;
	pid_t pid;
	uint32_t next;          /* handle that RM picks next */
};

struct rm_object {
	bool used, dup, share_all;
	int client;
	uint32_t handle, parent, class;
	int gpu;
	int mem;                /* or -1 */
};

/* A memory descriptor: what dups share. */
struct rm_mem {
	bool used;
	int refs;
	int gpu;
	int space;
	uint64_t phys, size;
};

/* A range of BAR1. */
struct rm_bar {
	bool used;
	int refs;
	int gpu, mem;
	uint64_t offset, length, address;
};

struct rm_map {
	bool used;
	int client;
	uint32_t hdevice, hmemory;
	int bar;                /* or -1: static */
	int gpu;                /* whose aperture */
	uint64_t address;
};

struct rm_vma {
	bool used;
	pid_t pid;
	uintptr_t start, end;
	int file, map;          /* the map may be gone: see @stamp */
	uint64_t stamp;
};

struct rm_fault {
	bool used, control;
	unsigned nr, nth;
	int result;
};

struct rm_config {
	char driver[64];
	char tamper[32];
	long gpus, fb_mb, bar1_mode, bar1_mb, bar1_page_kb, minor_base, instance_base;
	long nodes, ctl, eacces, open_module, sysfs_version, proc_version, gdrdrv;
	long wsl, jetson, mig, cc, cc_caps, virt, dmabuf, coherent, ordered, admin, lost,
	     memops, host_alias, host_skew, jit, cuinit, destroyed;
};

struct rm_counters {
	long opens, ioctls, exports, total_dups, total_maps, total_unmaps, total_frees;
	long order_violations, invalid_parent_dups, wrong_gpu_dups, foreign_calls, shares_all;
	long null_stream_uses, contexts_created, graphs_dropped, stale_uses, streams_created;
	long nr[256];
};

struct rm_gpu {
	uint32_t gpu_id, domain, bus, instance, minor;
	uint64_t reg_address, fb_address, fb_bytes, bar1_bytes;
	unsigned char uuid[16];
	unsigned char chunk[RM_FB_CHUNKS];
	uint16_t bar_page[RM_BAR_PAGES]; /* rm_bar + 1 */
};

struct rm {
	pthread_mutex_t lock;
	int fb_fd;
	int major;
	uint32_t next_client;
	uint64_t next_stamp;
	atomic_int nfiles, nvmas;
	struct rm_config config;
	struct rm_counters count;
	struct rm_gpu gpu[RM_GPUS];
	struct rm_file file[RM_FILES];
	struct rm_client client[RM_CLIENTS];
	struct rm_object object[RM_OBJECTS];
	struct rm_mem mem[RM_MEMS];
	struct rm_bar bar[RM_BARS];
	struct rm_map map[RM_MAPS];
	uint64_t map_stamp[RM_MAPS];
	struct rm_vma vma[RM_VMAS];
	struct rm_fault fault[RM_FAULTS];
};

/* config.c */
extern struct rm *_Atomic rm_state; /* NULL until first use */
struct rm *rm_get(void);            /* makes it */
void rm_lock(void);
void rm_unlock(void);
void rm_build_gpus(struct rm *rm);
bool rm_tampers(const struct rm *rm, const struct rm_file *file, const char *what);
bool rm_bar1_static(const struct rm *rm);
bool rm_admin(const struct rm *rm);

/* The path without the prefix that BARWAY_DOCTOR_ROOT puts before it; see root.c. */
const char *rm_without_root(const char *path);

/* fakenv.c: an fd for a new file of ours, -1 with errno; and the system calls themselves */
int rm_new_fd(struct rm *rm, enum file_kind kind, int gpu, int flags, struct rm_file **out);
struct rm_file *rm_file_of_fd(struct rm *rm, int fd);
void *sys_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
int sys_munmap(void *addr, size_t len);
int sys_close(int fd);
void rm_reap(struct rm *rm);

/* rm.c; all with the lock held */
int rm_ioctl(struct rm *rm, struct rm_file *file, unsigned nr, unsigned size, void *arg);
void rm_file_gone(struct rm *rm, struct rm_file *file);
void rm_map_unref_vma(struct rm *rm, struct rm_vma *vma);
struct rm_client *rm_find_client(struct rm *rm, uint32_t handle);
struct rm_object *rm_find_object(struct rm *rm, const struct rm_client *client, uint32_t handle);
struct rm_object *rm_new_object(struct rm *rm, struct rm_client *client, uint32_t handle,
				uint32_t parent, uint32_t class, int gpu, int mem);
int rm_client_ok(struct rm *rm, const struct rm_file *file, uint32_t handle,
		 struct rm_client **out);
void rm_mem_get(struct rm *rm, int mem);
void rm_mem_put(struct rm *rm, int mem);
int rm_take_fault(struct rm *rm, const struct rm_file *file, bool control, unsigned nr);
int rm_import(struct rm *rm, struct rm_client *client, struct rm_file *from, uint32_t hparent,
	      uint32_t *hobject);

/* rm_control.c */
uint32_t rm_control(struct rm *rm, struct rm_file *file, struct rm_client *client,
		    struct rm_object *object, uint32_t cmd, void *params, uint32_t size);

/* Fields of the driver's structs, by offset: they are not our structs. */
static inline uint32_t get32(const void *p, size_t at)
{
	uint32_t v;

	memcpy(&v, (const char *)p + at, sizeof(v));
	return v;
}

static inline uint64_t get64(const void *p, size_t at)
{
	uint64_t v;

	memcpy(&v, (const char *)p + at, sizeof(v));
	return v;
}

static inline void put8(void *p, size_t at, uint8_t v)
{
	((uint8_t *)p)[at] = v;
}

static inline void put16(void *p, size_t at, uint16_t v)
{
	memcpy((char *)p + at, &v, sizeof(v));
}

static inline void put32(void *p, size_t at, uint32_t v)
{
	memcpy((char *)p + at, &v, sizeof(v));
}

static inline void put64(void *p, size_t at, uint64_t v)
{
	memcpy((char *)p + at, &v, sizeof(v));
}

#endif
