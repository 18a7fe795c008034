/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake libcuda: initialisation, devices and contexts. An honest client of the (fake) driver.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cuda_int.h"

struct cuda cuda = { .lock = PTHREAD_MUTEX_INITIALIZER };
struct fakenv fakenv;

/* The current contexts of this thread, the topmost last. */
static __thread struct {
	unsigned generation;
	int n;
	struct ctx *ctx[64];
} stack;

/* ---- the driver ---- */

int nv_ioctl(int fd, unsigned nr, unsigned size, void *arg)
{
	return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg);
}

static uint32_t at(const void *p, size_t offset)
{
	uint32_t v;

	memcpy(&v, (const char *)p + offset, 4);
	return v;
}

/* nvos.h NVOS21; the status is the word at 24 before 535 and at 28 since */
uint32_t nv_alloc(uint32_t parent, uint32_t handle, uint32_t class, void *params, uint32_t *out)
{
	uint32_t a[8] = { cuda.client, parent, handle, class };
	uint64_t p = (uintptr_t)params;

	memcpy(&a[4], &p, 8);
	if (nv_ioctl(cuda.ctl, 0x2b, sizeof(a), a))
		return 0xffff;
	*out = a[2];
	return a[6] | a[7];
}

uint32_t nv_free(uint32_t client, uint32_t handle)
{
	uint32_t a[4] = { client, 0, handle };

	return nv_ioctl(cuda.ctl, 0x29, sizeof(a), a) ? 0xffff : a[3];
}

uint32_t nv_control(uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	uint32_t a[8] = { cuda.client, object, cmd };
	uint64_t p = (uintptr_t)params;

	memcpy(&a[4], &p, 8);
	a[6] = size;
	return nv_ioctl(cuda.ctl, 0x2a, sizeof(a), a) ? 0xffff : a[7];
}

uint32_t nv_dup(uint32_t client, uint32_t parent, uint32_t from_client, uint32_t from,
		uint32_t *handle)
{
	uint32_t a[7] = { client, parent, *handle, from_client, from };

	if (nv_ioctl(cuda.ctl, 0x34, sizeof(a), a))
		return 0xffff;
	*handle = a[2];
	return a[6];
}

/* ---- initialisation ---- */

static void find_fakenv(void)
{
	Dl_info self;

#define FIND(name) do { \
	void *p_ = dlsym(RTLD_DEFAULT, "fakenv_" #name); \
	if (!p_) { \
		fprintf(stderr, "the fake libcuda needs libfakenv.so\n"); \
		abort(); \
	} \
	memcpy(&fakenv.name, &p_, sizeof(p_)); \
} while (0)
	FIND(get);
	FIND(fb);
	FIND(trust_fd);
	FIND(on_reset);
	FIND(count);
	FIND(gpu);
	/* stays, as the real one does: libfakenv has the address of reset() */
	if (dladdr(&cuda, &self))
		dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static void reset(void)
{
	if (__atomic_load_n(&cuda.pid, __ATOMIC_RELAXED) != getpid())
		return;
	pthread_mutex_lock(&cuda.lock);
	stream_reset();
	module_reset();
	mem_reset();
	for (int i = 0; i < cuda.ndevices; i++)
		close(cuda.device[i].fd);
	close(cuda.ctl);
	while (cuda.contexts) {
		struct ctx *ctx = cuda.contexts;

		cuda.contexts = ctx->next;
		free(ctx);
	}
	cuda.ndevices = 0;
	__atomic_store_n(&cuda.pid, 0, __ATOMIC_RELAXED);
	cuda.generation++;
	pthread_mutex_unlock(&cuda.lock);
}

/* Where a machine's libcuda would not use the NVIDIA files, this one has a back door. */
static const char *prefix(void)
{
	return fakenv.get("wsl") || fakenv.get("jetson") ? "/dev/fakenv/nvidia" : "/dev/nvidia";
}

static bool init_device(struct device *d, const char *card)
{
	uint32_t ctl = (uint32_t)cuda.ctl, info[8] = { 0 }, params[14] = { 0 }, sub = 0;
	char path[64];

	memset(d, 0, sizeof(*d));
	d->gpu_id = at(card, 16);
	d->minor = at(card, 56);
	if (fakenv.gpu(d->minor, d->pci, d->uuid))
		return false;
	snprintf(path, sizeof(path), "%s%u", prefix(), d->minor);
	d->fd = open(path, O_RDWR | O_CLOEXEC);
	if (d->fd < 0)
		return false;
	fakenv.trust_fd(d->fd);
	info[0] = d->gpu_id;
	if (nv_ioctl(d->fd, 0xc9, 4, &ctl) || nv_control(cuda.client, 0x205, info, sizeof(info)))
		goto fail;
	params[0] = info[2];
	if (nv_alloc(cuda.client, 0, 0x80, params, &d->hdevice) ||
	    nv_alloc(d->hdevice, 0, 0x2080, &sub, &d->hsubdevice))
		goto fail;
	return true;
fail:
	close(d->fd);
	return false;
}

static int by_pci(const void *a, const void *b)
{
	return memcmp(((const struct device *)a)->pci, ((const struct device *)b)->pci, 16);
}

/* CUDA_VISIBLE_DEVICES: ordinals or beginnings of UUIDs; ends at the first that is not there. */
static void choose_visible(void)
{
	const char *env = getenv("CUDA_VISIBLE_DEVICES");
	struct device chosen[MAX_DEVICES];
	char text[256], uuid[64], *save = NULL;
	bool used[MAX_DEVICES] = { false };
	int n = 0;

	if (!env)
		return;
	snprintf(text, sizeof(text), "%s", env);
	for (char *p = strtok_r(text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		int found = -1;

		for (int i = 0; i < cuda.ndevices; i++) {
			const unsigned char *u = cuda.device[i].uuid;

			snprintf(uuid, sizeof(uuid), "GPU-%02x%02x%02x%02x-%02x%02x", u[0], u[1],
				 u[2], u[3], u[4], u[5]);
			if (!strncmp(p, "GPU-", 4) ? !strncmp(p, uuid, strlen(uuid) < strlen(p) ?
							      strlen(uuid) : strlen(p)) :
			    *p >= '0' && *p <= '9' && atoi(p) == i)
				found = i;
		}
		if (found < 0 || used[found])
			break;
		used[found] = true;
		chosen[n++] = cuda.device[found];
	}
	for (int i = 0; i < cuda.ndevices; i++)
		if (!used[i])
			close(cuda.device[i].fd);
	memcpy(cuda.device, chosen, (size_t)n * sizeof(chosen[0]));
	cuda.ndevices = n;
}

static int init(void)
{
	char cards[32 * 72] = { 0 }, path[64];

	snprintf(path, sizeof(path), "%sctl", prefix());
	cuda.ctl = open(path, O_RDWR | O_CLOEXEC);
	if (cuda.ctl < 0)
		return CUF_NO_DEVICE;
	fakenv.trust_fd(cuda.ctl);
	cuda.client = cuda.odd_client = 0;
	if (nv_alloc(0, 0, 0x41, NULL, &cuda.client) ||
	    nv_ioctl(cuda.ctl, 0xc8, sizeof(cards), cards))
		goto fail;
	cuda.ndevices = 0;
	for (int i = 0; i < MAX_DEVICES; i++)
		if (cards[72 * i] && init_device(&cuda.device[cuda.ndevices], cards + 72 * i))
			cuda.ndevices++;
	qsort(cuda.device, (size_t)cuda.ndevices, sizeof(cuda.device[0]), by_pci);
	choose_visible();
	if (!cuda.ndevices)
		goto fail;
	return 0;
fail:
	close(cuda.ctl);
	return CUF_NO_DEVICE;
}

FAKE_API int cuInit(unsigned flags)
{
	pid_t pid = __atomic_load_n(&cuda.pid, __ATOMIC_RELAXED);
	int rc = 0;

	if (flags)
		return CUF_INVALID_VALUE;
	if (pid && pid != getpid())
		return CUF_NOT_INITIALIZED;
	pthread_mutex_lock(&cuda.lock);
	if (!cuda.pid) {
		if (!fakenv.get) {
			find_fakenv();
			fakenv.on_reset(reset);
		}
		rc = (int)fakenv.get("cuinit");
		if (rc == -2)
			abort();
		while (rc < 0)
			pause();
		if (!rc)
			rc = init();
		if (!rc)
			__atomic_store_n(&cuda.pid, getpid(), __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&cuda.lock);
	return rc;
}

static struct ctx *current_locked(void)
{
	if (stack.generation != cuda.generation) {
		stack.generation = cuda.generation;
		stack.n = 0;
	}
	return stack.n ? stack.ctx[stack.n - 1] : NULL;
}

int enter(struct ctx **current)
{
	int rc = enter_broken(current);

	return !rc && current && (*current)->error ? leave((*current)->error) : rc;
}

int enter_broken(struct ctx **current)
{
	/* before the lock: a forked child may find it taken by a thread that it does not have */
	if (__atomic_load_n(&cuda.pid, __ATOMIC_RELAXED) != getpid())
		return CUF_NOT_INITIALIZED;
	pthread_mutex_lock(&cuda.lock);
	if (current) {
		*current = current_locked();
		if (!*current || !(*current)->alive) {
			*current = NULL;
			pthread_mutex_unlock(&cuda.lock);
			return CUF_INVALID_CONTEXT;
		}
	}
	return 0;
}

int leave(int result)
{
	pthread_mutex_unlock(&cuda.lock);
	return result;
}

bool device_ok(int dev)
{
	return dev >= 0 && dev < cuda.ndevices;
}

#define ENTER() do { \
	int rc_ = enter(NULL); \
	if (rc_) \
		return rc_; \
} while (0)

#define ENTER_DEVICE(dev) do { \
	ENTER(); \
	if (!device_ok(dev)) \
		return leave(CUF_INVALID_DEVICE); \
} while (0)

/* ---- versions and errors ---- */

FAKE_API int cuDriverGetVersion(int *version)
{
	/* what each branch came with */
	static const int table[][2] = {
		{ 590, 13010 }, { 580, 13000 }, { 575, 12090 }, { 570, 12080 }, { 565, 12070 },
		{ 560, 12060 }, { 555, 12050 }, { 550, 12040 }, { 545, 12030 }, { 535, 12020 },
		{ 530, 12010 }, { 525, 12000 }, { 520, 11080 }, { 0, 11070 }
	};
	int major, i = 0;

	if (!version)
		return CUF_INVALID_VALUE;
	pthread_mutex_lock(&cuda.lock);
	if (!fakenv.get) {
		find_fakenv();
		fakenv.on_reset(reset);
	}
	pthread_mutex_unlock(&cuda.lock);
	major = (int)fakenv.get("driver");
	while (major < table[i][0])
		i++;
	*version = table[i][1];
	return 0;
}

static const struct {
	int error;
	const char *name, *text;
} errors[] = {
	{ CUF_SUCCESS, "CUDA_SUCCESS", "no error" },
	{ CUF_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ CUF_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ CUF_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ CUF_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ CUF_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ CUF_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
	{ CUF_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ CUF_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed" },
	{ CUF_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed" },
	{ CUF_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed" },
	{ CUF_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ CUF_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "illegal state" },
	{ CUF_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ CUF_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ CUF_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
	  "an illegal memory access was encountered" },
	{ CUF_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	  "part or all of the requested memory range is already mapped" },
	{ CUF_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	  "pointer does not correspond to a registered memory region" },
	{ CUF_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
	{ CUF_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ CUF_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ CUF_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	  "operation not permitted when stream is capturing" },
	{ CUF_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	  "operation failed due to a previous error during capture" },
	{ CUF_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	  "operation would make the legacy stream depend on a capturing blocking stream" },
	{ CUF_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	  "attempt to terminate a thread-local capture sequence from another thread" },
	{ CUF_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

static int error_text(int error, bool name, const char **str)
{
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (errors[i].error == error) {
			*str = name ? errors[i].name : errors[i].text;
			return 0;
		}
	}
	*str = NULL;
	return CUF_INVALID_VALUE;
}

FAKE_API int cuGetErrorName(int error, const char **str)
{
	return error_text(error, true, str);
}

FAKE_API int cuGetErrorString(int error, const char **str)
{
	return error_text(error, false, str);
}

/* ---- devices ---- */

FAKE_API int cuDeviceGetCount(int *count)
{
	ENTER();
	*count = cuda.ndevices;
	return leave(0);
}

FAKE_API int cuDeviceGet(int *dev, int ordinal)
{
	ENTER_DEVICE(ordinal);
	*dev = ordinal;
	return leave(0);
}

FAKE_API int cuDeviceGetName(char *name, int len, int dev)
{
	ENTER_DEVICE(dev);
	snprintf(name, (size_t)len, "NVIDIA Fake %02X", cuda.device[dev].pci[1]);
	return leave(0);
}

FAKE_API int cuDeviceGetUuid(struct cuf_uuid *uuid, int dev)
{
	ENTER_DEVICE(dev);
	memcpy(uuid->bytes, cuda.device[dev].uuid, 16);
	return leave(0);
}

/* v2 is that of the MIG instance, if there is one. */
FAKE_API int cuDeviceGetUuid_v2(struct cuf_uuid *uuid, int dev)
{
	ENTER_DEVICE(dev);
	memcpy(uuid->bytes, cuda.device[dev].uuid, 16);
	if (fakenv.get("mig"))
		uuid->bytes[7] ^= 0x55;
	return leave(0);
}

FAKE_API int cuDeviceGetPCIBusId(char *id, int len, int dev)
{
	const uint32_t *pci;

	ENTER_DEVICE(dev);
	pci = cuda.device[dev].pci;
	snprintf(id, (size_t)len, "%04X:%02X:%02X.%X", pci[0], pci[1], pci[2], pci[3]);
	return leave(0);
}

FAKE_API int cuDeviceTotalMem_v2(size_t *bytes, int dev)
{
	ENTER_DEVICE(dev);
	*bytes = (size_t)fakenv.get("fb_mb") << 20;
	return leave(0);
}

FAKE_API int cuDeviceGetAttribute(int *value, int attribute, int dev)
{
	const uint32_t *pci;

	ENTER_DEVICE(dev);
	pci = cuda.device[dev].pci;
	switch (attribute) {
	case CUF_DEV_INTEGRATED:
		*value = (int)fakenv.get("jetson");
		break;
	case CUF_DEV_PCI_BUS_ID:
		*value = (int)pci[1];
		break;
	case CUF_DEV_PCI_DEVICE_ID:
		*value = (int)pci[2];
		break;
	case CUF_DEV_PCI_DOMAIN_ID:
		*value = (int)pci[0];
		break;
	case CUF_DEV_CC_MAJOR:
		*value = 9;
		break;
	case CUF_DEV_CC_MINOR:
		*value = 0;
		break;
	case CUF_DEV_HOST_PAGE_TABLES:
		*value = (int)fakenv.get("coherent");
		break;
	case CUF_DEV_UNIFIED_ADDRESSING:
	case CUF_DEV_VMM:
	case CUF_DEV_POSIX_FD:
	case CUF_DEV_RDMA_VMM:
	case CUF_DEV_POOLS:
		*value = 1;
		break;
	case CUF_DEV_WRITES_ORDERING:
		*value = fakenv.get("ordered") ? 100 : 0;
		break;
	case CUF_DEV_DMA_BUF:
		*value = fakenv.get("dmabuf") && !fakenv.get("wsl") && !fakenv.get("jetson");
		break;
	default:
		*value = 0;
	}
	return leave(0);
}

/* ---- contexts ---- */

/* Where one was that is destroyed, if there is such a place: addresses come again. */
static struct ctx *new_context(int dev, bool primary)
{
	struct ctx *ctx = cuda.contexts;

	while (ctx && (primary || ctx->primary || ctx->alive))
		ctx = ctx->next;
	if (!ctx) {
		ctx = calloc(1, sizeof(*ctx));
		if (!ctx)
			abort();
		ctx->next = cuda.contexts;
		cuda.contexts = ctx;
	}
	ctx->dev = dev;
	ctx->primary = primary;
	ctx->error = 0;
	ctx->id = ++cuda.next_context;
	return ctx;
}

struct ctx *context_of(const void *p)
{
	for (struct ctx *ctx = cuda.contexts; ctx; ctx = ctx->next)
		if (ctx == p)
			return ctx->alive ? ctx : NULL;
	return NULL;
}

/*
 * A program's own context that it has destroyed: the real library does not look whether it is one,
 * and writes into what was its memory ("corrupted size vs. prev_size", H200, driver 580.159.04).
 */
static struct ctx *named(void *p, const char *call)
{
	for (struct ctx *ctx = cuda.contexts; ctx; ctx = ctx->next)
		if (ctx == p && !ctx->alive && !ctx->primary && !fakenv.get("destroyed")) {
			fprintf(stderr, "fake libcuda: %s: the context was destroyed\n", call);
			abort();
		}
	return context_of(p);
}

/* Waits for what runs in it. */
static void end_context(struct ctx *ctx)
{
	ctx->alive = false; /* stays in the list: other threads may have it on their stacks */
	stream_drop_context(ctx);
	module_drop_context(ctx);
	mem_drop_context(ctx);
}

FAKE_API int cuDevicePrimaryCtxRetain(void **out, int dev)
{
	struct device *d;

	ENTER_DEVICE(dev);
	d = &cuda.device[dev];
	if (!d->primary)
		d->primary = new_context(dev, true);
	if (!d->primary->refs++) {
		d->primary->alive = true;
		d->primary->error = 0;
		d->primary->id = ++cuda.next_context;
		fakenv.count("contexts_created", 1);
	}
	*out = d->primary;
	return leave(0);
}

FAKE_API int cuDevicePrimaryCtxRelease_v2(int dev)
{
	struct ctx *ctx;

	ENTER_DEVICE(dev);
	ctx = cuda.device[dev].primary;
	if (!ctx || !ctx->refs)
		return leave(CUF_INVALID_CONTEXT);
	if (!--ctx->refs)
		end_context(ctx);
	return leave(0);
}

FAKE_API int cuDevicePrimaryCtxGetState(int dev, unsigned *flags, int *active)
{
	ENTER_DEVICE(dev);
	*flags = 0;
	*active = cuda.device[dev].primary && cuda.device[dev].primary->alive;
	return leave(0);
}

static int push(struct ctx *ctx)
{
	current_locked();
	if (stack.n == (int)(sizeof(stack.ctx) / sizeof(stack.ctx[0])))
		return CUF_OUT_OF_MEMORY;
	stack.ctx[stack.n++] = ctx;
	return 0;
}

FAKE_API int cuCtxCreate_v2(void **out, unsigned flags, int dev)
{
	struct ctx *ctx;

	(void)flags;
	ENTER_DEVICE(dev);
	ctx = new_context(dev, false);
	ctx->alive = true;
	fakenv.count("contexts_created", 1);
	*out = ctx;
	return leave(push(ctx));
}

FAKE_API int cuCtxDestroy_v2(void *p)
{
	struct ctx *ctx = p;

	ENTER();
	if (!named(ctx, "cuCtxDestroy") || ctx->primary)
		return leave(CUF_INVALID_CONTEXT);
	if (current_locked() == ctx)
		stack.n--;
	end_context(ctx);
	return leave(0);
}

FAKE_API int cuCtxPushCurrent_v2(void *ctx)
{
	ENTER();
	return leave(named(ctx, "cuCtxPushCurrent") ? push(ctx) : CUF_INVALID_CONTEXT);
}

FAKE_API int cuCtxPopCurrent_v2(void **out)
{
	struct ctx *ctx;

	ENTER();
	ctx = current_locked();
	if (!ctx)
		return leave(CUF_INVALID_CONTEXT);
	stack.n--;
	if (out)
		*out = ctx;
	return leave(0);
}

FAKE_API int cuCtxGetCurrent(void **out)
{
	ENTER();
	*out = current_locked();
	return leave(0);
}

FAKE_API int cuCtxSetCurrent(void *ctx)
{
	ENTER();
	if (ctx && !named(ctx, "cuCtxSetCurrent"))
		return leave(CUF_INVALID_CONTEXT);
	if (current_locked())
		stack.n--;
	return leave(ctx ? push(ctx) : 0);
}

FAKE_API int cuCtxGetDevice(int *dev)
{
	struct ctx *ctx;
	int rc = enter_broken(&ctx);

	if (rc)
		return rc;
	*dev = ctx->dev;
	return leave(0);
}

/* Since CUDA 12. */
FAKE_API int cuCtxGetId(void *p, unsigned long long *id)
{
	struct ctx *ctx;

	ENTER();
	ctx = p ? named(p, "cuCtxGetId") : current_locked();
	if (!ctx || (int)fakenv.get("driver") < 525)
		return leave(ctx ? CUF_NOT_FOUND : CUF_INVALID_CONTEXT);
	*id = ctx->id;
	return leave(0);
}
