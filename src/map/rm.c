/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/rm: the provider. A piece of a window is found (rm_find.c), each object behind it is made
 * ours (dup), checked, mapped by RM and by mmap, in this order; and taken apart in the reverse
 * order: first the CPU's pages, then RM's mapping, then the object.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/fault.h"
#include "map/providers.h"
#include "map/rm.h"

struct rm_piece {
	struct rm_gpu *gpu;
	unsigned n;
	struct {
		uint32_t object;
		uint64_t linear;
	} part[];
};

/* Without a device: what can be said before CUDA is initialised. */
static int score_machine(struct bw_reason *why)
{
	int fd, score;

	if (rm_platform(why, &score))
		return -1;
	fd = bw_open("/dev/nvidiactl", O_RDWR);
	if (fd < 0) {
		bw_reason_set(why, "/dev/nvidiactl: %s: %s", strerror(-fd),
			      fd == -EACCES || fd == -EPERM ?
			      "give this user read and write permission on the device nodes" :
			      "load the NVIDIA driver, or have the container toolkit inject the "
			      "device nodes");
		return -1;
	}
	close(fd);
	return score;
}

static int rm_score(struct bw_device *dev, struct bw_reason *why)
{
	struct rm_gpu *gpu;
	int score, ret;

	if (!dev)
		return score_machine(why);
	if (dev->ops != &bw_cuda_ops) {
		bw_reason_set(why, "for NVIDIA GPUs only");
		return -1;
	}
	if (!dev->has_pci) {
		bw_reason_set(why, "CUDA does not say where the GPU sits on the PCI bus");
		return -1;
	}
	gpu = rm_gpu(dev, &ret);
	if (gpu) {
		*why = gpu->why;
		return gpu->score;
	}
	if (rm_platform(why, &score)) /* knows better where it refuses */
		return -1;
	bw_reason_set(why, "%s", bw_err_text());
	return ret == -EACCES || ret == -ENOMEM || ret == -EMFILE || ret == -ENFILE ? ret : -1;
}

static int rm_accepts(const struct bw_segment *seg, struct bw_reason *why)
{
	if (seg->kind == BW_MEM_DEVICE || seg->kind == BW_MEM_VMM || seg->kind == BW_MEM_POOL)
		return 0;
	bw_reason_set(why, "%s: %s", bw_mem_kind_name(seg->kind), bw_instead_of(seg->kind));
	return -ENOTSUP;
}

static void free_parts(struct rm_piece *p)
{
	while (p->n) {
		p->n--;
		rm_unmap_part(p->gpu, p->part[p->n].object, p->part[p->n].linear);
		rm_free_object(p->gpu, p->part[p->n].object);
	}
	free(p);
}

static int make_ours(struct rm_gpu *gpu, const struct rm_found *found, unsigned i, uint32_t *object)
{
	if (found->client)
		return rm_dup(gpu, found->client, found->part[i].object, object);
	*object = found->part[i].object; /* imported: it is */
	return 0;
}

static int map_parts(struct rm_piece *p, const struct rm_found *found, unsigned char *at,
		     enum bw_caching *caching)
{
	for (unsigned i = 0; i < found->n; i++) {
		const struct rm_part *f = &found->part[i];
		enum bw_caching c = BW_WC;
		uint32_t object;
		int ret = make_ours(p->gpu, found, i, &object);

		if (ret)
			return ret;
		ret = rm_check_object(p->gpu, object, f->offset + f->bytes);
		if (!ret)
			ret = rm_map_part(p->gpu, object, f->offset, f->bytes, at,
					  &p->part[p->n].linear, &c);
		if (ret) {
			rm_free_object(p->gpu, object);
			return ret;
		}
		p->part[p->n++].object = object;
		*caching = i && *caching != c ? BW_UNCACHED : c;
		at += f->bytes;
	}
	return 0;
}

static int rm_map(struct bw_piece *piece, void *at, enum bw_caching *caching)
{
	struct rm_piece *p = NULL;
	struct rm_found *found;
	int ret;
	struct rm_gpu *gpu = rm_gpu(piece->seg.dev, &ret);

	if (!gpu)
		return bw_err_prefix(ret, "map");
	found = bw_alloc(sizeof(*found));
	if (!found)
		return bw_err(ENOMEM, "map: no memory");
	ret = rm_find(gpu, &piece->seg, piece->addr, piece->bytes, found);
	if (ret)
		goto out;
	p = bw_alloc(sizeof(*p) + found->n * sizeof(p->part[0]));
	if (!p) {
		if (!found->client)
			rm_free_object(gpu, found->part[0].object);
		ret = bw_err(ENOMEM, "map: no memory");
		goto out;
	}
	p->gpu = gpu;
	ret = map_parts(p, found, at, caching);
	if (ret) {
		/* pages first: put back the reservation over what was mapped, then tell RM */
		if (p->n && mmap(at, piece->bytes, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
				 -1, 0) == MAP_FAILED)
			munmap(at, piece->bytes);
		free_parts(p);
		goto out;
	}
	snprintf(piece->route, sizeof(piece->route), "%s", found->route);
	piece->priv = p;
out:
	free(found);
	return ret;
}

static void rm_unmap(struct bw_piece *piece)
{
	free_parts(piece->priv);
	piece->priv = NULL;
}

static int rm_provider_bar1(struct bw_device *dev, uint64_t *total, uint64_t *avail)
{
	int ret;
	struct rm_gpu *gpu = dev->ops == &bw_cuda_ops && dev->has_pci ? rm_gpu(dev, &ret) : NULL;

	return gpu ? rm_bar1(gpu, total, avail) : -ENODATA;
}

const struct bw_map_provider bw_map_rm = {
	.name = "rm",
	.keeps_alive = true,
	.configure = rm_check_routes,
	.score = rm_score,
	.accepts = rm_accepts,
	.map = rm_map,
	.unmap = rm_unmap,
	.bar1 = rm_provider_bar1,
	.release = rm_release,
};
