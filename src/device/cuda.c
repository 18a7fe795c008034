/* SPDX-License-Identifier: BSD-3-Clause */
/* device/cuda: NVIDIA GPUs through libcuda.so.1, which is opened when it is first needed. */
#include "device/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/param.h"

/* What mem_alloc() gave out. */
struct allocation {
	struct allocation *next;
	uint64_t addr, handle; /* handle 0: from cuMemAlloc */
	size_t bytes;
	struct bw_device *dev;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bw_cuda cuda;
static _Atomic bool ready, forked; /* written under the lock, read without it */
static struct bw_device **devices;
static int ndevices = -1;
static struct allocation *allocations;

static void forget_in_child(void)
{
	if (ready)
		forked = true; /* libcuda does not work in a child of a process that used it */
	allocations = NULL;
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	bw_fork_lock(&lock);
	bw_fork_forget(forget_in_child);
}

/* ---- libcuda ------------------------------------------------------------------------------- */

static bool load(struct bw_reason *why)
{
	static const struct {
		const char *symbol;
		size_t offset;
		bool optional;
	} functions[] = {
#define CU(symbol, name, params, optional) { #symbol, offsetof(struct bw_cuda, name), optional },
		BW_CUDA_FUNCTIONS(CU)
#undef CU
	};
	const char *name = bw_param_text(BW_P_LIBCUDA);
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		bw_reason_set(why,
			      "the CUDA driver library cannot be opened (%s): install the NVIDIA "
			      "driver, or have the container toolkit inject it",
			      dlerror());
		return false;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *f = dlsym(lib, functions[i].symbol);

		if (!f && !functions[i].optional) {
			bw_reason_set(why, "%s has no %s: it needs driver 515 (CUDA 11.7) or newer",
				      name, functions[i].symbol);
			dlclose(lib);
			return false;
		}
		memcpy((char *)&cuda + functions[i].offset, &f, sizeof(f));
	}
	return true; /* stays open: device addresses of it may outlive any context of ours */
}

static const char *error_name(int error)
{
	const char *name = NULL;

	if (cuda.error_name && !cuda.error_name(error, &name) && name)
		return name;
	return "an error without a name";
}

/* With the lock held. */
static bool init_locked(struct bw_reason *why)
{
	int error;

	if (forked) {
		bw_reason_set(why, "CUDA was initialised before fork() and does not work in the "
			      "child: use exec, or initialise CUDA after the fork");
		return false;
	}
	if (ready)
		return true;
	if (!load(why))
		return false;
	error = bw_fault_hit(BW_FAULT_CUDA) ? 999 : cuda.init(0);
	if (error) {
		bw_reason_set(why, "cuInit: %s (%d): %s", error_name(error), error,
			      error == 100 ? "no GPU is visible: look at CUDA_VISIBLE_DEVICES and "
					     "at the container's devices" :
			      error == 3 ? "CUDA was initialised before fork(): use exec" :
			      error == 803 ? "libcuda and the kernel driver are of different "
					     "versions: reboot, or update the container's libcuda" :
			      "nvidia-smi may say more");
		return false;
	}
	ready = true;
	return true;
}

const struct bw_cuda *bw_cuda(struct bw_reason *why)
{
	struct bw_reason unused;
	bool ok;

	pthread_mutex_lock(&lock);
	ok = init_locked(why ? why : &unused);
	pthread_mutex_unlock(&lock);
	return ok ? &cuda : NULL;
}

int bw_cuda_err(int error, const char *operation)
{
	const char *text = NULL;

	if (cuda.error_string)
		cuda.error_string(error, &text);
	switch (error) {
	case BW_CUDA_OUT_OF_MEMORY:
		return bw_err(ENOMEM, "%s: %s: the GPU's memory is used up", operation,
			      error_name(error));
	case BW_CUDA_INVALID_CONTEXT:
		return bw_err(ENODEV, "%s: %s: no CUDA context: call cudaSetDevice() or "
			      "barway_device_activate() first", operation, error_name(error));
	case BW_CUDA_NOT_SUPPORTED:
		return bw_err(ENOTSUP, "%s: %s: this driver or GPU does not offer it", operation,
			      error_name(error));
	}
	return bw_err(EIO, "%s: %s (%d): %s", operation, error_name(error), error,
		      text ? text : "no text");
}

/* Every call that may fail goes through this, so that tests can make the Nth one fail. */
#define CALL(f) (bw_fault_hit(BW_FAULT_CUDA) ? 999 : cuda.f)

int bw_cuda_enter(struct bw_device *dev, void *owner, struct bw_cuda_scope *scope)
{
	void *current = NULL;
	unsigned flags;
	int error, active = 0, ordinal = -1;

	scope->primary_of = -1;
	scope->mode = BW_CU_CAPTURE_RELAXED;
	error = CALL(capture_mode(&scope->mode));
	if (error)
		return bw_cuda_err(error, "cuThreadExchangeStreamCaptureMode");
	if (!owner && !cuda.ctx_current(&current) && current && !cuda.ctx_device(&ordinal) &&
	    ordinal == dev->index)
		owner = current;
	if (!owner) {
		error = CALL(primary_state(dev->index, &flags, &active));
		if (!error && active)
			error = CALL(primary_retain(&owner, dev->index));
		if (!error && owner)
			scope->primary_of = dev->index;
		else if (!error)
			error = BW_CUDA_INVALID_CONTEXT;
	}
	if (!error)
		error = CALL(ctx_push(owner));
	if (error) {
		if (scope->primary_of >= 0)
			cuda.primary_release(scope->primary_of);
		cuda.capture_mode(&scope->mode);
		return bw_cuda_err(error, "make a context of the GPU current");
	}
	return 0;
}

void bw_cuda_leave(struct bw_cuda_scope *scope)
{
	void *popped;

	cuda.ctx_pop(&popped);
	if (scope->primary_of >= 0)
		cuda.primary_release(scope->primary_of);
	cuda.capture_mode(&scope->mode);
}

/* ---- version ------------------------------------------------------------------------------- */

static bool read_file(const char *path, char *text, size_t n)
{
	int fd = bw_open(path, O_RDONLY);
	ssize_t got;

	if (fd < 0)
		return false;
	got = read(fd, text, n - 1);
	close(fd);
	text[got > 0 ? got : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return got > 0;
}

int bw_nvidia_version(char *text, size_t n, int *open_modules)
{
	char line[256], word[64] = "";

	/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build" */
	*open_modules = -1;
	if (read_file("/proc/driver/nvidia/version", line, sizeof(line))) {
		const char *at = strstr(line, "Module");

		*open_modules = strstr(line, "Open Kernel Module") != NULL;
		for (; at && *at; at++) {
			if (at[0] == ' ' && at[1] >= '1' && at[1] <= '9' &&
			    sscanf(at, " %63[0-9.]", word) == 1 && strchr(word, '.'))
				break;
			word[0] = 0;
		}
	}
	if (!word[0])
		read_file("/sys/module/nvidia/version", word, sizeof(word));
	snprintf(text, n, "%s", word);
	return word[0] ? 0 : -ENODATA;
}

static const char *cuda_driver(void)
{
	static char text[128];
	char version[64];
	int open_modules;

	pthread_mutex_lock(&lock);
	if (!text[0] && !bw_nvidia_version(version, sizeof(version), &open_modules))
		snprintf(text, sizeof(text), "%s%s", version,
			 open_modules == 1 ? ", open kernel modules" :
			 open_modules == 0 ? ", closed kernel modules" : "");
	pthread_mutex_unlock(&lock);
	return text;
}

/* ---- devices ------------------------------------------------------------------------------- */

static bool cuda_maybe(struct bw_reason *why)
{
	const char *name = bw_param_text(BW_P_LIBCUDA);
	void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);

	if (lib) {
		dlclose(lib);
		bw_reason_set(why, "%s is there", name);
		return true;
	}
	bw_reason_set(why, "no CUDA driver: %s", dlerror());
	return false;
}

static int describe(struct bw_device *dev, int ordinal)
{
	struct bw_cu_uuid uuid, instance;
	char pci[32];
	int cu, value, n = 0, error;
	size_t total = 0;

	dev->ops = &bw_cuda_ops;
	dev->index = ordinal;
	error = CALL(device_get(&cu, ordinal));
	if (!error)
		error = CALL(device_name(dev->name, sizeof(dev->name), cu));
	if (!error)
		error = CALL(device_uuid(&uuid, cu));
	if (!error)
		error = CALL(device_total(&total, cu));
	if (error)
		return bw_cuda_err(error, "describe a GPU");
	dev->memory_total = total;
	n = snprintf(dev->uuid, sizeof(dev->uuid), "GPU-");
	for (int i = 0; i < 16; i++)
		n += snprintf(dev->uuid + n, sizeof(dev->uuid) - (size_t)n,
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			      uuid.bytes[i]);
	/* with MIG the second form names the instance, the first the whole GPU */
	dev->mig = cuda.device_uuid2 && !cuda.device_uuid2(&instance, cu) &&
		   memcmp(&uuid, &instance, sizeof(uuid)) != 0;
	dev->has_pci = !cuda.device_pci(pci, sizeof(pci), cu) && bw_pci_parse(pci, &dev->pci);
	dev->integrated = !cuda.device_attr(&value, BW_CU_DEV_INTEGRATED, cu) && value;
	dev->coherent = !cuda.device_attr(&value, BW_CU_DEV_HOST_PAGE_TABLES, cu) && value;
	return 0;
}

static int enumerate_locked(struct bw_reason *why)
{
	int n = 0, error;
	struct bw_device **list;

	if (!init_locked(why))
		return 0;
	error = CALL(device_count(&n));
	if (error) {
		bw_reason_set(why, "cuDeviceGetCount: %s", error_name(error));
		return 0;
	}
	list = bw_alloc_array((size_t)n + 1, sizeof(*list));
	for (int i = 0; list && i < n; i++) {
		list[i] = bw_alloc(sizeof(*list[i]));
		if (!list[i] || describe(list[i], i)) {
			bw_reason_set(why, "%s", list[i] ? bw_err_text() : "no memory");
			for (int k = 0; k <= i; k++)
				free(list[k]);
			free(list);
			return 0;
		}
	}
	if (!list) {
		bw_reason_set(why, "no memory for the list of GPUs");
		return 0;
	}
	devices = list;
	ndevices = n;
	if (!n)
		bw_reason_set(why, "CUDA has no GPU: look at CUDA_VISIBLE_DEVICES");
	return n;
}

static int cuda_enumerate(struct bw_device ***list, struct bw_reason *why)
{
	int n;

	pthread_mutex_lock(&lock);
	n = ndevices >= 0 && !forked ? ndevices : enumerate_locked(why);
	*list = devices;
	pthread_mutex_unlock(&lock);
	return n;
}

static struct bw_device *by_ordinal(int ordinal)
{
	struct bw_reason why;
	struct bw_device **list;
	int n = cuda_enumerate(&list, &why);

	return ordinal >= 0 && ordinal < n ? list[ordinal] : NULL;
}

/* ---- whose memory -------------------------------------------------------------------------- */

static uint64_t cuda_identity(uint64_t addr)
{
	uint64_t id;

	/* lock-free: ready only goes from false to true, and is seen by whoever got an address */
	if (!ready || forked || cuda.ptr_attr(&id, BW_CU_PTR_BUFFER_ID, addr))
		return 0;
	return id;
}

static void resolve_vmm(struct bw_segment *seg, uint64_t addr)
{
	struct bw_cu_prop prop = { 0 };
	uint64_t handle;

	if (!cuda.vmm_retain || cuda.vmm_retain(&handle, (void *)(uintptr_t)addr))
		return;
	if (!cuda.vmm_props(&prop, handle)) {
		seg->kind = prop.location_type == BW_CU_LOCATION_DEVICE ? BW_MEM_VMM :
									  BW_MEM_HOST_VMM;
		seg->dev = seg->kind == BW_MEM_VMM ? by_ordinal(prop.location_id) : NULL;
		seg->posix_handle = prop.handle_types & BW_CU_HANDLE_POSIX_FD;
		seg->rdma_capable = prop.rdma_capable;
		/* the range attributes cover the whole reservation; a handle's part is the
		 * mapping */
		seg->base = seg->map_base;
		seg->bytes = seg->map_bytes;
	}
	cuda.vmm_release(handle);
}

static int cuda_resolve(uint64_t addr, struct bw_segment *seg)
{
	static const int wanted[] = {
		BW_CU_PTR_MEMORY_TYPE, BW_CU_PTR_CONTEXT, BW_CU_PTR_BUFFER_ID, BW_CU_PTR_IS_MANAGED,
		BW_CU_PTR_DEVICE_ORDINAL, BW_CU_PTR_IPC_CAPABLE, BW_CU_PTR_RANGE_START,
		BW_CU_PTR_RANGE_SIZE, BW_CU_PTR_MEMPOOL, BW_CU_PTR_MAPPING_BASE,
		BW_CU_PTR_MAPPING_SIZE,
	};
	enum { N = sizeof(wanted) / sizeof(wanted[0]) };
	uint64_t value[N] = { 0 };
	void *data[N];
	int attrs[N];

	if (!bw_cuda(NULL))
		return -ENOENT;
	memcpy(attrs, wanted, sizeof(attrs));
	for (int i = 0; i < N; i++)
		data[i] = &value[i];
	/* for a host address it returns success and zeros; before cuInit an error */
	if (cuda.ptr_attrs(N, attrs, data, addr) || !(uint32_t)value[0])
		return -ENOENT;
	*seg = (struct bw_segment){
		.kind = BW_MEM_DEVICE,
		.dev = by_ordinal((int)value[4]),
		.base = value[6],
		.bytes = value[7],
		.map_base = value[9],
		.map_bytes = value[10],
		.id = value[2],
		.rdma_capable = true,
		.owner = (void *)(uintptr_t)value[1],
	};
	if ((uint8_t)value[3])
		seg->kind = BW_MEM_MANAGED;
	else if (value[8])
		seg->kind = BW_MEM_POOL;
	else if (!seg->owner)
		resolve_vmm(seg, addr);
	else if ((uint32_t)value[0] == 1)
		seg->kind = BW_MEM_PINNED;
	else if (!(uint8_t)value[5])
		seg->kind = BW_MEM_IMPORTED;
	return 0;
}

/* ---- memory -------------------------------------------------------------------------------- */

static int cuda_activate(struct bw_device *dev)
{
	struct bw_reason why;
	void *ctx;
	int error;

	if (!bw_cuda(&why))
		return bw_err(ENODEV, "activate GPU %d: %s", dev->index, why.text);
	error = CALL(primary_retain(&ctx, dev->index));
	return error ? bw_cuda_err(error, "cuDevicePrimaryCtxRetain") : 0;
}

static void cuda_deactivate(struct bw_device *dev)
{
	if (!forked)
		cuda.primary_release(dev->index);
}

static int vmm_alloc(struct bw_device *dev, struct allocation *a)
{
	struct bw_cu_prop prop = {
		.type = BW_CU_ALLOCATION_PINNED,
		.location_type = BW_CU_LOCATION_DEVICE,
		.location_id = dev->index,
	};
	struct bw_cu_access access = { BW_CU_LOCATION_DEVICE, dev->index, BW_CU_ACCESS_READWRITE };
	size_t step = 0;
	int value = 0, error;

	if (!cuda.device_attr(&value, BW_CU_DEV_POSIX_HANDLES, dev->index) && value)
		prop.handle_types = BW_CU_HANDLE_POSIX_FD;
	if (!cuda.device_attr(&value, BW_CU_DEV_RDMA_WITH_VMM, dev->index) && value)
		prop.rdma_capable = 1;
	error = CALL(vmm_granularity(&step, &prop, 0));
	if (error || !step)
		return bw_cuda_err(error, "cuMemGetAllocationGranularity");
	if (a->bytes > SIZE_MAX - step)
		return bw_err(ENOMEM, "allocate %zu bytes: more than there can be", a->bytes);
	a->bytes = (a->bytes + step - 1) / step * step;
	error = CALL(vmm_create(&a->handle, a->bytes, &prop, 0));
	if (error)
		return bw_cuda_err(error, "cuMemCreate");
	error = CALL(va_reserve(&a->addr, a->bytes, 0, 0, 0));
	if (error) {
		cuda.vmm_release(a->handle);
		return bw_cuda_err(error, "cuMemAddressReserve");
	}
	error = CALL(vmm_map(a->addr, a->bytes, 0, a->handle, 0));
	if (!error) {
		error = CALL(vmm_access(a->addr, a->bytes, &access, 1));
		if (!error)
			return 0;
		cuda.vmm_unmap(a->addr, a->bytes);
	}
	cuda.va_free(a->addr, a->bytes);
	cuda.vmm_release(a->handle);
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

static int cuda_mem_alloc(struct bw_device *dev, size_t bytes, uint64_t *addr)
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
	if (cuda.vmm_create && !cuda.device_attr(&value, BW_CU_DEV_VMM, dev->index) && value) {
		ret = vmm_alloc(dev, a);
	} else {
		error = CALL(mem_alloc(&a->addr, bytes));
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

static int cuda_mem_free(uint64_t addr)
{
	struct allocation *a = take_allocation(addr);
	struct bw_cuda_scope scope;
	struct bw_sentence kept;
	int error, ret;

	if (!a)
		return -ENOENT;
	if (a->handle) { /* no context owns it */
		error = cuda.vmm_unmap(a->addr, a->bytes);
		if (!error) {
			cuda.va_free(a->addr, a->bytes);
			cuda.vmm_release(a->handle);
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
			error = cuda.mem_free(a->addr);
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

static int cuda_mem_info(struct bw_device *dev, uint64_t *total, uint64_t *free_bytes)
{
	struct bw_cuda_scope scope;
	size_t t, f;
	int error;

	if (bw_cuda_enter(dev, NULL, &scope))
		return -ENODATA;
	error = CALL(mem_info(&f, &t));
	bw_cuda_leave(&scope);
	if (error)
		return -ENODATA;
	*total = t;
	*free_bytes = f;
	return 0;
}

/* ---- the copy engine ------------------------------------------------------------------------ */

static int ce_copy(struct bw_device *dev, uint64_t addr, const void *src, void *dst, size_t bytes)
{
	struct bw_cuda_scope scope;
	struct bw_segment seg;
	void *stream;
	int error, ret;

	/* memory of a context that is not the primary one is copied in its own context */
	ret = bw_cuda_enter(dev, !cuda_resolve(addr, &seg) ? seg.owner : NULL, &scope);
	if (ret)
		return ret;
	error = CALL(stream_create(&stream, BW_CU_STREAM_NON_BLOCKING));
	if (!error) {
		error = src ? CALL(copy_to(addr, src, bytes, stream)) :
			      CALL(copy_from(dst, addr, bytes, stream));
		if (!error)
			error = CALL(stream_sync(stream));
		cuda.stream_destroy(stream);
	}
	bw_cuda_leave(&scope);
	return error ? bw_cuda_err(error, "copy by the copy engine") : 0;
}

static int cuda_copy_to(struct bw_device *dev, uint64_t addr, const void *src, size_t bytes)
{
	return bytes ? ce_copy(dev, addr, src, NULL, bytes) : 0;
}

static int cuda_copy_from(struct bw_device *dev, void *dst, uint64_t addr, size_t bytes)
{
	return bytes ? ce_copy(dev, addr, NULL, dst, bytes) : 0;
}

static int cuda_scratch_alloc(struct bw_device *dev, void *owner, size_t bytes, uint64_t *addr)
{
	struct bw_cuda_scope scope;
	int error, ret = bw_cuda_enter(dev, owner, &scope);

	if (ret)
		return ret;
	error = CALL(mem_alloc(addr, bytes));
	bw_cuda_leave(&scope);
	return error ? bw_cuda_err(error, "cuMemAlloc") : 0;
}

static void cuda_scratch_free(struct bw_device *dev, void *owner, uint64_t addr)
{
	struct bw_cuda_scope scope;

	/* twice, so that one call that failed does not lose the memory */
	if (bw_cuda_enter(dev, owner, &scope) && bw_cuda_enter(dev, owner, &scope))
		return;
	cuda.mem_free(addr);
	bw_cuda_leave(&scope);
}

const struct bw_device_ops bw_cuda_ops = {
	.name = "cuda",
	.kind = BW_DEVICE_CUDA,
	.enumerate = cuda_enumerate,
	.maybe = cuda_maybe,
	.resolve = cuda_resolve,
	.identity = cuda_identity,
	.activate = cuda_activate,
	.deactivate = cuda_deactivate,
	.mem_alloc = cuda_mem_alloc,
	.mem_free = cuda_mem_free,
	.mem_info = cuda_mem_info,
	.ce_copy_to = cuda_copy_to,
	.ce_copy_from = cuda_copy_from,
	.scratch_alloc = cuda_scratch_alloc,
	.scratch_free = cuda_scratch_free,
	.driver = cuda_driver,
};
