/* SPDX-License-Identifier: BSD-3-Clause */
/* device/cuda: dma-bufs of GPU memory, for network cards. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/fault.h"
#include "device/cuda.h"

/* The pages that are asked for: from the first of the range, or from where its mapping begins. */
struct span {
	uint64_t from, end;
};

/* Is it what was asked for? 580.159.04 names a wrong size of pool memory, see below. */
static int check_dmabuf(int fd, uint64_t bytes)
{
	off_t is = lseek(fd, 0, SEEK_END); /* a dma-buf tells its size so, and in no other way */

	if (is == (off_t)bytes)
		return 0;
	return bw_err(ENOTSUP, "cuMemGetHandleForAddressRange gave a dma-buf of %lld bytes for "
		      "%llu: use memory from cudaMalloc", (long long)is,
		      (unsigned long long)bytes);
}

static int refused(int plain, int pcie)
{
	if (plain == BW_CUDA_OUT_OF_MEMORY)
		return bw_err(ENOMEM, "cuMemGetHandleForAddressRange: %s: close some files, or "
			      "free some memory", bw_cuda_error_name(plain));
	return bw_err(ENOTSUP, "cuMemGetHandleForAddressRange: %s, and for PCIe %s: use memory "
		      "from cudaMalloc, or a newer driver", bw_cuda_error_name(plain),
		      bw_cuda_error_name(pcie));
}

/*
 * With a context current. Two ways of asking: as the memory appears on PCIe, which a network card
 * needs where the CPU has a shorter way to the GPU (Grace); and as it comes, which is the only one
 * on other machines, and before CUDA 12.8.
 */
static int export_span(const struct bw_cuda *cu, const struct span *s, int *out)
{
	const uint64_t bytes = s->end - s->from;
	int pcie, plain = 0, fd = -1, ret;

	pcie = BW_CUDA_CALL(cu, range_handle(&fd, s->from, bytes, BW_CU_RANGE_DMA_BUF_FD,
					     BW_CU_RANGE_PCIE));
	if (pcie)
		plain = BW_CUDA_CALL(cu, range_handle(&fd, s->from, bytes, BW_CU_RANGE_DMA_BUF_FD,
						      0));
	if (plain)
		return refused(plain, pcie);
	fd = bw_above_stdio(fd);
	if (fd < 0)
		return bw_err(-fd, "no free file descriptor: raise the limit (ulimit -n)");
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	ret = check_dmabuf(fd, bytes);
	if (ret)
		close(fd);
	else
		*out = fd;
	return ret;
}

/*
 * The pages of the range alone, so that a card maps no more than it has to. Of pool memory
 * 580.159.04 asks the kernel for a wrong size unless the range begins where the pool's own mapping
 * does; so that is asked for first there, and second elsewhere.
 */
static int export_from(const struct bw_cuda *cu, const struct bw_segment *seg, uint64_t addr,
		       size_t bytes, int *fd, uint64_t *offset)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = addr & ~(page - 1);
	const uint64_t end = (addr + bytes + page - 1) & ~(page - 1);
	bool base = seg->map_base && seg->map_base < first && !(seg->map_base % page);
	bool pool = base && seg->kind == BW_MEM_POOL;
	struct span spans[2] = { { first, end }, { seg->map_base, end } };
	int ret = export_span(cu, &spans[pool], fd);
	bool other = ret == -ENOTSUP && base;

	if (other)
		ret = export_span(cu, &spans[!pool], fd);
	if (!ret)
		*offset = addr - spans[other ? !pool : pool].from;
	return ret;
}

static int can_export(const struct bw_cuda *cu, const struct bw_device *dev)
{
	int value = 0, error;

	if (!cu->range_handle)
		return bw_err(ENOTSUP, "libcuda has no cuMemGetHandleForAddressRange: install "
			      "driver 515 (CUDA 11.7) or newer");
	error = BW_CUDA_CALL(cu, device_attr(&value, BW_CU_DEV_DMA_BUF, dev->index));
	if (error)
		return bw_err(ENOTSUP, "cuDeviceGetAttribute(DMA_BUF_SUPPORTED): %s: install "
			      "driver 515 (CUDA 11.7) or newer", bw_cuda_error_name(error));
	if (!value)
		return bw_err(ENOTSUP, "the driver exports no dma-bufs of GPU %d: install the "
			      "open kernel modules, with Linux 5.12 or newer", dev->index);
	return 0;
}

static int export_dmabuf(struct bw_device *dev, uint64_t addr, size_t bytes, int *fd,
			 uint64_t *offset)
{
	struct bw_cuda_scope scope;
	struct bw_segment first;
	struct bw_reason why;
	unsigned n;
	int ret;

	if (!bw_cuda(&why))
		return bw_err(ENODEV, "%s", why.text);
	ret = bw_device_span(dev, addr, bytes, &first, &n);
	if (!ret)
		ret = can_export(bw_cuda(NULL), dev);
	if (!ret)
		ret = bw_cuda_enter(dev, first.owner, &scope);
	if (ret)
		return ret;
	ret = export_from(scope.cu, &first, addr, bytes, fd, offset);
	bw_cuda_leave(&scope);
	return ret;
}

int bw_cuda_export_dmabuf(struct bw_device *dev, uint64_t addr, size_t bytes, int *fd,
			  uint64_t *offset)
{
	struct bw_sentence kept;
	int ret;

	bw_err_keep(&kept);
	ret = export_dmabuf(dev, addr, bytes, fd, offset);
	if (!ret)
		bw_err_put_back(&kept);
	return ret;
}
