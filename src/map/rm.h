/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/rm: GPU memory through the NVIDIA driver's own resource manager (RM), with no kernel module.
 *
 *   rm_find.c    which RM object, and where in it, is behind a device address
 *   rm_client.c  our own RM client: devices, dup, map, queries
 *   rm.c         the provider: scores, checks, order
 */
#ifndef BW_MAP_RM_H
#define BW_MAP_RM_H

#include "core/err.h"
#include "device/cuda.h"
#include "map/map.h"
#include "map/rm_abi.h"

/* Our RM view of one GPU. Made once; lives until rm_release(). */
struct rm_gpu {
	struct rm_gpu *next;
	struct bw_device *dev;
	uint32_t gpu_id, minor;
	uint64_t bar1_address, bar1_bytes; /* physical; of CARD_INFO */
	int fd; /* /dev/nvidia<minor>, registered with the control file */
	uint32_t client, device, subdevice;
	unsigned major; /* of the driver's version; 0: unknown */
	int score;
	struct bw_reason why;
};

/* -EACCES, -ENODEV, -EMFILE...: the control file and our root client. */
int rm_open(void);
void rm_release(bool forget);
/* The GPU of a device, checked and scored. NULL with bw_err() set and -errno in @ret: cannot be
 * talked to. */
struct rm_gpu *rm_gpu(struct bw_device *dev, int *ret);

/* libcuda's client as the self-test of this device saw it; the first one to ask sets it. */
bool rm_same_cuda_client(struct rm_gpu *gpu, uint32_t client);

int rm_control(struct rm_gpu *gpu, uint32_t object, uint32_t cmd, void *params, uint32_t bytes);
int rm_dup(struct rm_gpu *gpu, uint32_t src_client, uint32_t src_object, uint32_t *object);
int rm_import(struct rm_gpu *gpu, int fd, uint32_t *object);
void rm_free_object(struct rm_gpu *gpu, uint32_t object);
/* Video memory of at least @bytes, an ordinary memory object? Nothing else may be mapped: root's
 * requests for register memory are not refused by the driver. */
int rm_check_object(struct rm_gpu *gpu, uint32_t object, uint64_t bytes);
/* Maps a part at the CPU address @at; *linear is for rm_unmap_part(). */
int rm_map_part(struct rm_gpu *gpu, uint32_t object, uint64_t offset, size_t bytes, void *at,
		uint64_t *linear, enum bw_caching *caching);
/* After the CPU range is gone, never before: the driver leaves user page tables alone. */
void rm_unmap_part(struct rm_gpu *gpu, uint32_t object, uint64_t linear);
int rm_bar1(struct rm_gpu *gpu, uint64_t *total, uint64_t *free);
const char *rm_status_name(uint32_t status);
int rm_status_errno(uint32_t status);
/* What can be said without a device: node permissions, platform, driver version. 0 or -errno. */
int rm_platform(struct bw_reason *why, int *score);

/* What was found behind a range. */
struct rm_found {
	const char *route;
	uint32_t client;   /* of the objects; 0: the object is imported and ours already */
	unsigned n;
	struct rm_part {
		uint32_t object;
		uint64_t offset, bytes;
	} part[RM_EXPORT_OBJECTS];
};

/* -EINVAL: the parameter rm_routes has a word that is none. */
int rm_check_routes(void);

/* Finds [addr, addr + bytes), page aligned, of @seg. */
int rm_find(struct rm_gpu *gpu, const struct bw_segment *seg, uint64_t addr, size_t bytes,
	    struct rm_found *found);

#endif
