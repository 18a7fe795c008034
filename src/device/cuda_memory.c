/* SPDX-License-Identifier: BSD-3-Clause */
/* device/cuda: GPU memory of the library's own. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/fault.h"
#include "core/fork.h"
#include "device/cuda.h"

#define CALL BW_CUDA_CALL

/* What mem_alloc() gave out. */
struct allocation {
	struct allocation *next;
	uint64_t addr, handle; /* handle 0: from cuMemAlloc */
	size_t bytes;
	struct bw_device *dev;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct allocation *allocations;

static void forget_in_child(void)
{
	allocations = NULL;
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget_in_child);
}

static int vmm_alloc(const struct bw_cuda *cu, struct bw_device *dev, struct allocation *a)
{
	struct bw_cu_prop prop = {
		.type = BW_CU_ALLOCATION_PINNED,
		.location_type = BW_CU_LOCATION_DEVICE,
		.location_id = dev->index,
	};
	struct bw_cu_access access = { BW_CU_LOCATION_DEVICE, dev->index, BW_CU_ACCESS_READWRITE };
	size_t step = 0;
	int value = 0, error;

	if (!cu->device_attr(&value, BW_CU_DEV_POSIX_HANDLES, dev->index) && value)
		prop.handle_types = BW_CU_HANDLE_POSIX_FD;
	if (!cu->device_attr(&value, BW_CU_DEV_RDMA_WITH_VMM, dev->index) && value)
		prop.rdma_capable = 1;
	error = CALL(cu, vmm_granularity(&step, &prop, 0));
	if (error || !step)
		return bw_cuda_err(error, "cuMemGetAllocationGranularity");
	if (a->bytes > SIZE_MAX - step)
		return bw_err(ENOMEM, "allocate %zu bytes: more than there can be", a->bytes);
	a->bytes = (a->bytes + step - 1) / step * step;
	error = CALL(cu, vmm_create(&a->handle, a->bytes, &prop, 0));
	if (error)
		return bw_cuda_err(error, "cuMemCreate");
	error = CALL(cu, va_reserve(&a->addr, a->bytes, 0, 0, 0));
	if (error) {
		cu->vmm_release(a->handle);
		return bw_cuda_err(error, "cuMemAddressReserve");
	}
	error = CALL(cu, vmm_map(a->addr, a->bytes, 0, a->handle, 0));
	if (!error) {
		error = CALL(cu, vmm_access(a->addr, a->bytes, &access, 1));
		if (!error)
			return 0;
		cu->vmm_unmap(a->addr, a->bytes);
	}
	cu->va_free(a->addr, a->bytes);
	cu->vmm_release(a->handle);
	return bw_cuda_err(error, "cuMemMap");
}

static struct allocation *take_allocation(uint64_t addr)
{
	struct allocation *a = NULL;

	pthread_mutex_lock(&lock);
	for (struct allocation **at = &allocations; *at; at = &(*at)->next)
		if ((*at)->addr == addr) {
			a = *at;
			*at = a->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	return a;
}

static void keep_allocation(struct allocation *a)
{
	pthread_mutex_lock(&lock);
	a->next = allocations;
	allocations = a;
	pthread_mutex_unlock(&lock);
}

int bw_cuda_mem_alloc(struct bw_device *dev, size_t bytes, uint64_t *addr)
{
	struct allocation *a;
	struct bw_cuda_scope scope;
	int value = 0, error, ret;

	if (!bytes)
		return bw_err(EINVAL, "allocate 0 bytes of GPU %d", dev->index);
	a = bw_alloc(sizeof(*a));
	if (!a)
		return bw_err(ENOMEM, "allocate %zu bytes of GPU %d: no host memory", bytes,
			      dev->index);
	ret = bw_cuda_enter(dev, NULL, &scope);
	if (ret)
		goto out;
	a->bytes = bytes;
	a->dev = dev;
	if (scope.cu->vmm_create &&
	    !scope.cu->device_attr(&value, BW_CU_DEV_VMM, dev->index) && value) {
		ret = vmm_alloc(scope.cu, dev, a);
	} else {
		error = CALL(scope.cu, mem_alloc(&a->addr, bytes));
		ret = error ? bw_cuda_err(error, "cuMemAlloc") : 0;
	}
	bw_cuda_leave(&scope);
	if (!ret) {
		*addr = a->addr;
		keep_allocation(a);
		return 0;
	}
out:
	free(a);
	return bw_err_prefix(ret, "allocate %zu bytes of GPU %d", bytes, dev->index);
}

int bw_cuda_mem_free(uint64_t addr)
{
	struct allocation *a = take_allocation(addr);
	const struct bw_cuda *cu = bw_cuda(NULL);
	struct bw_cuda_scope scope;
	struct bw_sentence kept;
	int error, ret;

	if (!a)
		return -ENOENT;
	if (!cu) {
		error = BW_CUDA_DEINITIALIZED;
	} else if (a->handle) { /* no context owns it */
		error = cu->vmm_unmap(a->addr, a->bytes);
		if (!error) {
			cu->va_free(a->addr, a->bytes);
			cu->vmm_release(a->handle);
		}
	} else {
		bw_err_keep(&kept);
		ret = bw_cuda_enter(a->dev, NULL, &scope);
		if (ret == -ENODEV) {
			bw_err_put_back(&kept);
			error = BW_CUDA_DEINITIALIZED; /* its memory went with the context */
		} else if (ret) {
			keep_allocation(a);
			return ret;
		} else {
			error = scope.cu->mem_free(a->addr);
			bw_cuda_leave(&scope);
		}
	}
	if (error && !bw_cuda_gone(error)) {
		keep_allocation(a);
		return bw_cuda_err(error, "free GPU memory");
	}
	free(a);
	return 0;
}

int bw_cuda_mem_info(struct bw_device *dev, uint64_t *total, uint64_t *free_bytes)
{
	struct bw_cuda_scope scope;
	size_t t, f;
	int error;

	if (bw_cuda_enter(dev, NULL, &scope))
		return -ENODATA;
	error = CALL(scope.cu, mem_info(&f, &t));
	bw_cuda_leave(&scope);
	if (error)
		return -ENODATA;
	*total = t;
	*free_bytes = f;
	return 0;
}

int bw_cuda_scratch_alloc(struct bw_device *dev, void *owner, size_t bytes, uint64_t *addr)
{
	struct bw_cuda_scope scope;
	int error, ret = bw_cuda_enter(dev, owner, &scope);

	if (ret)
		return ret;
	error = CALL(scope.cu, mem_alloc(addr, bytes));
	bw_cuda_leave(&scope);
	return error ? bw_cuda_err(error, "cuMemAlloc") : 0;
}

void bw_cuda_scratch_free(struct bw_device *dev, void *owner, uint64_t addr)
{
	struct bw_cuda_scope scope;

	/* twice, so that one call that failed does not lose the memory */
	if (bw_cuda_enter(dev, owner, &scope) && bw_cuda_enter(dev, owner, &scope))
		return;
	scope.cu->mem_free(addr);
	bw_cuda_leave(&scope);
}
