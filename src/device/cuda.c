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

#include "core/clock.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/param.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bw_cuda cuda;
static _Atomic bool ready, forked; /* written under the lock, read without it */
static _Atomic uint64_t absent_ns; /* when the library was looked for and not found; the same */
static struct bw_device **devices;
static int ndevices = -1;

#define ABSENT_NS 1000000000u /* then it is looked for again */

static void forget_in_child(void)
{
	if (ready)
		forked = true; /* libcuda does not work in a child of a process that used it */
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

const char *bw_cuda_error_name(int error)
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
	if (!load(why)) {
		absent_ns = bw_now_ns();
		return false;
	}
	error = BW_CUDA_CALL(&cuda, init(0));
	if (error) {
		bw_reason_set(why, "cuInit: %s (%d): %s", bw_cuda_error_name(error), error,
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
	const char *text = NULL, *name = bw_cuda_error_name(error);

	if (cuda.error_string)
		cuda.error_string(error, &text);
	switch (error) {
	case BW_CUDA_OUT_OF_MEMORY:
		return bw_err(ENOMEM, "%s: %s: the GPU's memory is used up", operation,
			      name);
	case BW_CUDA_INVALID_CONTEXT:
		return bw_err(ENODEV, "%s: %s: no CUDA context: call cudaSetDevice() or "
			      "barway_device_activate() first", operation, name);
	case BW_CUDA_CAPTURE_UNSUPPORTED:
	case BW_CUDA_CAPTURE_IMPLICIT:
		return bw_err(ENOTSUP, "%s: %s: it cannot be part of a stream capture: do it "
			      "before the capture or after it", operation, name);
	case BW_CUDA_NOT_SUPPORTED:
		return bw_err(ENOTSUP, "%s: %s: this driver or GPU does not offer it", operation,
			      name);
	}
	return bw_err(EIO, "%s: %s (%d): %s", operation, name, error,
		      text ? text : "no text");
}

#define CALL(f) BW_CUDA_CALL(&cuda, f)

/* The context of @dev that is there, the primary one first; retains that one. */
static int find_context(struct bw_device *dev, struct bw_cuda_scope *scope)
{
	void *current = NULL;
	unsigned flags;
	int error, active = 0, ordinal = -1;

	error = CALL(primary_state(dev->index, &flags, &active));
	if (!error && active) {
		error = CALL(primary_retain(&scope->ctx, dev->index));
		if (!error)
			scope->primary_of = dev->index;
		return error;
	}
	if (!error && !cuda.ctx_current(&current) && current && !cuda.ctx_device(&ordinal) &&
	    ordinal == dev->index)
		scope->ctx = current;
	return error || scope->ctx ? error : BW_CUDA_INVALID_CONTEXT;
}

int bw_cuda_enter(struct bw_device *dev, void *owner, struct bw_cuda_scope *scope)
{
	int error = 0;

	scope->cu = &cuda;
	scope->ctx = owner;
	scope->primary_of = -1;
	scope->mode = BW_CU_CAPTURE_RELAXED;
	if (forked)
		return bw_err(ENODEV, "make a context of the GPU current: CUDA was initialised "
			      "before fork() and does not work in the child: use exec");
	error = CALL(capture_mode(&scope->mode));
	if (error)
		return bw_cuda_err(error, "cuThreadExchangeStreamCaptureMode");
	if (!owner)
		error = find_context(dev, scope);
	if (!error)
		error = CALL(ctx_push(scope->ctx));
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

uint64_t bw_cuda_context_id(const struct bw_cuda_scope *scope)
{
	unsigned long long id;

	return cuda.ctx_id && !cuda.ctx_id(scope->ctx, &id) ? id : 0;
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
	dev->ordered = !cuda.device_attr(&value, BW_CU_DEV_WRITES_ORDERING, cu) &&
		       value >= BW_CU_ORDERING_OWNER;
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
		bw_reason_set(why, "cuDeviceGetCount: %s", bw_cuda_error_name(error));
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

uint64_t bw_cuda_identity(uint64_t addr)
{
	uint64_t id;

	/* lock-free: ready only goes from false to true, and is seen by whoever got an address */
	if (!ready || forked || cuda.ptr_attr(&id, BW_CU_PTR_BUFFER_ID, addr))
		return 0;
	return id;
}

static bool resolve_vmm(struct bw_segment *seg, uint64_t addr)
{
	struct bw_cu_prop prop = { 0 };
	uint64_t handle;

	if (!cuda.vmm_retain || cuda.vmm_retain(&handle, (void *)(uintptr_t)addr))
		return false;
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
	return true;
}

/* The device's address of it is another one where registered memory cannot have the CPU's. */
static void resolve_pinned(struct bw_segment *seg)
{
	struct bw_cuda_scope scope;
	struct bw_sentence kept;
	uint64_t addr = seg->base;
	int error = cuda.ptr_attr(&addr, BW_CU_PTR_DEVICE_POINTER, seg->base);

	seg->kind = BW_MEM_PINNED;
	if (error && seg->dev) { /* it depends on the current context, and there is none */
		bw_err_keep(&kept);
		if (!bw_cuda_enter(seg->dev, seg->owner, &scope)) {
			error = cuda.ptr_attr(&addr, BW_CU_PTR_DEVICE_POINTER, seg->base);
			bw_cuda_leave(&scope);
		}
		bw_err_put_back(&kept);
	}
	if (!error && addr != seg->base)
		seg->device_base = addr;
}

int bw_cuda_resolve(uint64_t addr, struct bw_segment *seg)
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

	/* without the library no address is CUDA's; a look for it at each question takes 30 us */
	if (!ready && absent_ns && bw_now_ns() - absent_ns < ABSENT_NS)
		return -ENOENT;
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
	else if (!seg->owner && resolve_vmm(seg, addr))
		return 0;
	else if ((uint32_t)value[0] == 1)
		resolve_pinned(seg);
	else if (seg->owner && !(uint8_t)value[5])
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

const struct bw_device_ops bw_cuda_ops = {
	.name = "cuda",
	.kind = BW_DEVICE_CUDA,
	.enumerate = cuda_enumerate,
	.maybe = cuda_maybe,
	.resolve = bw_cuda_resolve,
	.identity = bw_cuda_identity,
	.activate = cuda_activate,
	.deactivate = cuda_deactivate,
	.mem_alloc = bw_cuda_mem_alloc,
	.mem_free = bw_cuda_mem_free,
	.mem_info = bw_cuda_mem_info,
	.ce_copy_to = bw_cuda_copy_to,
	.ce_copy_from = bw_cuda_copy_from,
	.scratch_alloc = bw_cuda_scratch_alloc,
	.scratch_free = bw_cuda_scratch_free,
	.export_dmabuf = bw_cuda_export_dmabuf,
	.driver = cuda_driver,
	.host_alloc = bw_cuda_host_alloc,
	.host_free = bw_cuda_host_free,
	.host_register = bw_cuda_host_register,
	.host_unregister = bw_cuda_host_unregister,
	.stream_create = bw_cuda_stream_create,
	.stream_destroy = bw_cuda_stream_destroy,
	.context_id = bw_cuda_id_of_context,
	.stream_query = bw_cuda_stream_query,
	.stream_sync = bw_cuda_stream_sync,
	.stream_capturing = bw_cuda_stream_capturing,
	.stream_copy_to = bw_cuda_stream_copy_to,
	.stream_copy_from = bw_cuda_stream_copy_from,
	.stream_write = bw_cuda_stream_write,
	.stream_copy_tell = bw_cuda_stream_copy_tell,
	.stream_wait = bw_cuda_stream_wait,
	.stream_call = bw_cuda_stream_call,
	.kernel_load = bw_cuda_kernel_load,
	.kernel_launch = bw_cuda_kernel_launch,
	.alive = bw_cuda_alive,
};
