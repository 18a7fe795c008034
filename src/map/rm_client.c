/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/rm_client: our own client of the NVIDIA resource manager.
 *
 * Order matters and is kept here: the device file is opened and registered with the control file
 * before the device is allocated in RM (the kernel looks for an open file of that GPU), every file
 * that carries a mapping is registered too, so that its pages hold the control file, and with it
 * our client and its objects, for as long as they exist; and a parent handed to dup is always a
 * device that RM gave us.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/param.h"
#include "map/rm.h"

#define CONTROL_FILE "/dev/nvidiactl"
#define BAR1_PAGE (2ull << 20) /* the largest of BAR1 */
#define MAX_CARDS 32 /* NV_MAX_DEVICES of the driver's own list */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int control_fd = -1;
static uint32_t root;
static struct rm_card cards[MAX_CARDS];
static struct rm_gpu *gpus;
static _Atomic uint32_t cuda_clients[MAX_CARDS]; /* by CUDA ordinal; 0: not seen yet */

/*
 * The child closes its copies of the files, so that it does not keep the parent's client alive, and
 * asks the driver for nothing: the client is the parent's, and RM refuses others.
 */
static void forget_in_child(void)
{
	for (struct rm_gpu *g = gpus; g; g = g->next)
		if (g->fd >= 0)
			close(g->fd);
	if (control_fd >= 0)
		close(control_fd);
	control_fd = -1;
	root = 0;
	gpus = NULL;
	memset((void *)cuda_clients, 0, sizeof(cuda_clients));
}

__attribute__((constructor(BW_FORK_RM_CLIENT))) static void register_fork(void)
{
	bw_fork_lock(&lock);
	bw_fork_forget(forget_in_child);
}

const char *rm_status_name(uint32_t status)
{
	switch (status) {
	case RM_GPU_IS_LOST: return "the GPU is lost";
	case RM_INSUFFICIENT_RESOURCES: return "insufficient resources";
	case RM_INSUFFICIENT_PERMISSIONS: return "insufficient permissions";
	case RM_INVALID_ARGUMENT: return "invalid argument";
	case RM_INVALID_BASE: return "invalid base";
	case RM_INVALID_CLIENT: return "not this process's client";
	case RM_INVALID_FLAGS: return "invalid flags";
	case RM_INVALID_LIMIT: return "invalid limit";
	case RM_INVALID_OBJECT_HANDLE: return "invalid object";
	case RM_INVALID_OBJECT_PARENT: return "invalid parent";
	case RM_INVALID_PARAM_STRUCT: return "invalid parameter structure";
	case RM_NO_MEMORY: return "no memory";
	case RM_NOT_SUPPORTED: return "not supported";
	case RM_OBJECT_NOT_FOUND: return "object not found";
	case RM_PROTECTION_FAULT: return "protection fault";
	case RM_STATE_IN_USE: return "in use";
	}
	return "refused";
}

int rm_status_errno(uint32_t status)
{
	switch (status) {
	case RM_INSUFFICIENT_RESOURCES:
	case RM_NO_MEMORY: return ENOMEM;
	case RM_INSUFFICIENT_PERMISSIONS: return EACCES;
	case RM_NOT_SUPPORTED: return ENOTSUP;
	case RM_GPU_IS_LOST: return ENODEV;
	}
	return EIO;
}

static int refused(const char *operation, uint32_t status)
{
	return bw_err(rm_status_errno(status), "%s: the NVIDIA driver answers 0x%x (%s)", operation,
		      status, rm_status_name(status));
}

static int call(int nr, void *args, unsigned bytes)
{
	return bw_ioctl(control_fd, RM_IOCTL(nr, bytes), args);
}

static int alloc(uint32_t parent, uint32_t class_id, void *params, uint32_t *object)
{
	struct rm_alloc a = {
		.root = root, .parent = parent, .class_id = class_id, .params = (uintptr_t)params,
	};
	char what[48];
	int ret = call(RM_ALLOC, &a, sizeof(a));

	snprintf(what, sizeof(what), "allocate RM class 0x%x", class_id);
	if (ret)
		return bw_err(-ret, "%s: %s", what, strerror(-ret));
	if (a.word6 || a.word7)
		return refused(what, a.word7 ? a.word7 : a.word6);
	*object = a.object;
	return 0;
}

static void free_object(uint32_t parent, uint32_t object)
{
	struct rm_free f = { .root = root, .parent = parent, .object = object };
	int ret = call(RM_FREE, &f, sizeof(f));

	if (ret || f.status)
		bw_log(BW_LOG_WARN, "free RM object 0x%x: %s", object,
		       ret ? strerror(-ret) : rm_status_name(f.status));
}

/* ---- the control file and our root client --------------------------------------------------- */

static int node_error(int err, const char *path)
{
	switch (err) {
	case EACCES:
	case EPERM:
		return bw_err(EACCES,
			      "open %s: %s: give this user read and write permission on the "
			      "node, and the container's device list (cgroup) the device",
			      path, strerror(err));
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return bw_err(ENODEV,
			      "open %s: %s: load the NVIDIA driver (nvidia-modprobe -c 0), or "
			      "have the container toolkit inject the device nodes",
			      path, strerror(err));
	}
	return bw_err(err, "open %s: %s", path, strerror(err));
}

static int open_locked(void)
{
	int fd, ret;

	if (control_fd >= 0)
		return 0;
	fd = bw_open(CONTROL_FILE, O_RDWR);
	if (fd < 0)
		return node_error(-fd, CONTROL_FILE);
	control_fd = fd;
	root = 0;
	ret = alloc(0, RM_CLASS_CLIENT, NULL, &root);
	if (!ret) {
		memset(cards, 0, sizeof(cards));
		ret = call(RM_CARD_INFO, cards, sizeof(cards));
		if (!ret)
			return 0;
		ret = bw_err(-ret, "list the NVIDIA driver's cards: %s", strerror(-ret));
	}
	close(fd); /* takes the client with it */
	control_fd = -1;
	root = 0;
	return ret;
}

int rm_open(void)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = open_locked();
	pthread_mutex_unlock(&lock);
	return ret;
}

void rm_release(bool forget)
{
	pthread_mutex_lock(&lock);
	for (struct rm_gpu *g = gpus, *next; g; g = next) {
		next = g->next;
		if (g->device)
			free_object(root, g->device);
		if (g->fd >= 0)
			close(g->fd);
		free(g);
	}
	gpus = NULL;
	if (control_fd >= 0) {
		free_object(root, root);
		close(control_fd);
	}
	control_fd = -1;
	root = 0;
	for (int i = 0; forget && i < MAX_CARDS; i++)
		cuda_clients[i] = 0;
	pthread_mutex_unlock(&lock);
}

bool rm_same_cuda_client(struct rm_gpu *gpu, uint32_t client)
{
	uint32_t seen = 0;

	return gpu->dev->index < MAX_CARDS &&
	       (atomic_compare_exchange_strong(&cuda_clients[gpu->dev->index], &seen, client) ||
		seen == client);
}

/* ---- GPUs ----------------------------------------------------------------------------------- */

/* A file of the GPU, registered with the control file; each carries at most one mapping. */
static int open_device_file(uint32_t minor)
{
	char path[32];
	int32_t ctl = control_fd;
	int fd, ret;

	snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
	fd = bw_open(path, O_RDWR);
	if (fd < 0)
		return node_error(-fd, path);
	ret = bw_ioctl(fd, RM_IOCTL(RM_REGISTER_FD, sizeof(ctl)), &ctl);
	if (ret) {
		close(fd);
		return bw_err(-ret, "register %s with %s: %s", path, CONTROL_FILE, strerror(-ret));
	}
	return fd;
}

static const struct rm_card *find_card(const struct bw_device *dev)
{
	for (int i = 0; i < MAX_CARDS; i++) {
		struct bw_pci pci = {
			.domain = cards[i].domain, .bus = cards[i].bus, .slot = cards[i].slot,
			.function = cards[i].function,
		};

		if (cards[i].valid && bw_pci_equal(&pci, &dev->pci))
			return &cards[i];
	}
	return NULL;
}

static bool conf_compute(void)
{
	/* cpu, gpus, environment, ccFeature, devTools; from about 545 on also multiGpu */
	static const uint32_t sizes[] = { 6, 5, 8, 7 };
	unsigned char caps[8];
	uint32_t object;
	bool on = false;

	if (alloc(root, RM_CLASS_CONF_COMPUTE, NULL, &object))
		return false; /* a driver or GPU without the feature */
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct rm_control c = {
			.client = root, .object = object, .cmd = RM_CTRL_CONF_COMPUTE_CAPABILITIES,
			.params = (uintptr_t)caps, .params_bytes = sizes[i],
		};

		memset(caps, 0, sizeof(caps));
		if (!call(RM_CONTROL, &c, sizeof(c)) && !c.status) {
			on = caps[3] != 0;
			break;
		}
	}
	free_object(root, object);
	return on;
}

/* 2: the guest of a vGPU. Modes of ctrl0080gpu.h: 0 none, 1 passthrough, 2 vGPU, 3 and 4 host. */
static uint32_t virtualization_mode(struct rm_gpu *gpu)
{
	/* mode, isGridBuild; 570 and newer append fields */
	static const uint32_t sizes[] = { 8, 12, 16, 20, 24, 4 };
	uint32_t params[8];

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(params, 0, sizeof(params));
		if (!rm_control(gpu, gpu->device, RM_CTRL_GET_VIRTUALIZATION_MODE, params,
				sizes[i]))
			return params[0];
	}
	return 0;
}

static const unsigned known_majors[] = {
	515, 520, 525, 530, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595,
};

static unsigned driver_major(char *version, size_t n)
{
	int open_modules;

	return bw_nvidia_version(version, n, &open_modules) ? 0 :
	       (unsigned)strtoul(version, NULL, 10);
}

int rm_platform(struct bw_reason *why, int *score)
{
	char version[64];
	unsigned major;
	bool known = false;

	*score = 100;
	if (!access("/dev/dxg", F_OK) && access(CONTROL_FILE, F_OK)) {
		bw_reason_set(why, "WSL2: the Windows driver owns the GPU and there is no %s: use "
			      "cudaMemcpy, or run on Linux itself", CONTROL_FILE);
		return -ENOTSUP;
	}
	if (!access("/dev/nvmap", F_OK) && access(CONTROL_FILE, F_OK)) {
		bw_reason_set(why,
			      "Jetson: GPU memory is the CPU's memory: use cudaHostAlloc, which "
			      "the CPU can use as it is");
		return -ENOTSUP;
	}
	major = driver_major(version, sizeof(version));
	for (size_t i = 0; i < sizeof(known_majors) / sizeof(known_majors[0]); i++)
		known = known || known_majors[i] == major;
	if (major && major < 515) {
		bw_reason_set(why, "driver %s: too old: it needs 515 or newer", version);
		return -ENOTSUP;
	}
	if (!known && !bw_param_size(BW_P_RM_ALLOW_UNKNOWN)) {
		bw_reason_set(why,
			      "driver %s is not one that is known: set BARWAY_RM_ALLOW_UNKNOWN=1 "
			      "to let the self-test decide",
			      major ? version : "of unknown version");
		return -ENOTSUP;
	}
	if (!known)
		*score = 50;
	bw_reason_set(why, "driver %s%s", major ? version : "of unknown version",
		      known ? "" : ", not one that is known: the self-test decides");
	return 0;
}

static int refuse(struct rm_gpu *gpu, const char *text)
{
	gpu->score = -1;
	bw_reason_set(&gpu->why, "%s", text);
	return 0;
}

/* What there is to say against this GPU, once the driver knows us. */
static int examine(struct rm_gpu *gpu)
{
	const struct bw_cuda *cuda = bw_cuda(NULL);
	int dmabuf = 0;

	if (gpu->dev->integrated)
		return refuse(gpu, "the GPU has no memory of its own: use cudaHostAlloc");
	if (gpu->dev->mig)
		return refuse(gpu,
			      "MIG is on: mappings of a MIG instance have not been tested and are "
			      "refused: use cudaMemcpy, or turn MIG off");
	if (conf_compute())
		return refuse(gpu,
			      "confidential computing is on: GPU memory is closed to the CPU: use "
			      "cudaMemcpy");
	if (virtualization_mode(gpu) == 2)
		return refuse(gpu,
			      "a vGPU: its aperture is the host's: use cudaMemcpy, or a GPU passed "
			      "through whole");
	if (cuda)
		cuda->device_attr(&dmabuf, BW_CU_DEV_DMA_BUF, gpu->dev->index);
	if (!dmabuf && !bw_list_has(bw_param_text(BW_P_RM_ROUTES), "ipc"))
		return refuse(gpu, "this driver does not export dma-bufs (closed kernel modules?), "
			      "so memory cannot be found: install the open kernel modules, or "
			      "allow the ipc route (BARWAY_RM_ROUTES=vmm,ipc; see "
			      "barway-params(7))");
	if (rm_platform(&gpu->why, &gpu->score))
		gpu->score = -1;
	return 0;
}

/*
 * Is the subdevice the GPU that CUDA means? RM dups the memory of one GPU under a device of
 * another, and maps it there, without a word.
 */
static int check_uuid(struct rm_gpu *gpu)
{
	struct rm_gid gid = { .flags = RM_GID_BINARY };
	char text[48];
	int n, ret = rm_control(gpu, gpu->subdevice, RM_CTRL_GPU_GET_GID_INFO, &gid, sizeof(gid));

	if (ret)
		return ret;
	n = snprintf(text, sizeof(text), "GPU-");
	for (int i = 0; i < 16; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			      gid.data[i]);
	if (gid.bytes != 16 || strcmp(text, gpu->dev->uuid) != 0)
		return bw_err(EIO, "open GPU %d: the NVIDIA driver says that it is %s, CUDA says "
			      "%s: not used", gpu->dev->index, text, gpu->dev->uuid);
	return 0;
}

static int start_gpu(struct rm_gpu *gpu)
{
	const struct rm_card *card = find_card(gpu->dev);
	char version[64];
	struct rm_id_info id = { 0 };
	struct rm_device_params dp = { 0 };
	struct rm_subdevice_params sp = { 0 };
	int ret;

	if (!card)
		return bw_err(ENODEV, "GPU %s: the NVIDIA driver's list of cards does not have it: "
			      "restart the program after driver changes", gpu->dev->uuid);
	gpu->gpu_id = card->gpu_id;
	gpu->minor = card->minor;
	gpu->bar1_address = card->fb_address;
	gpu->bar1_bytes = card->fb_bytes;
	gpu->client = root;
	gpu->major = driver_major(version, sizeof(version));
	gpu->fd = open_device_file(gpu->minor); /* before the device: RM looks for it */
	if (gpu->fd < 0)
		return gpu->fd;
	id.gpu_id = gpu->gpu_id;
	ret = rm_control(gpu, root, RM_CTRL_GPU_GET_ID_INFO_V2, &id, sizeof(id));
	if (ret)
		return ret;
	dp.instance = id.instance;
	ret = alloc(root, RM_CLASS_DEVICE, &dp, &gpu->device);
	if (ret)
		return ret;
	sp.instance = id.subdevice;
	ret = alloc(gpu->device, RM_CLASS_SUBDEVICE, &sp, &gpu->subdevice);
	if (!ret)
		ret = check_uuid(gpu);
	return ret ? ret : examine(gpu);
}

struct rm_gpu *rm_gpu(struct bw_device *dev, int *ret)
{
	struct rm_gpu *gpu;

	pthread_mutex_lock(&lock);
	for (gpu = gpus; gpu && gpu->dev != dev; gpu = gpu->next)
		;
	*ret = 0;
	if (gpu)
		goto out;
	*ret = open_locked();
	if (*ret)
		goto out;
	gpu = bw_alloc(sizeof(*gpu));
	if (!gpu) {
		*ret = bw_err(ENOMEM, "open GPU %d: no memory", dev->index);
		goto out;
	}
	gpu->dev = dev;
	gpu->fd = -1;
	*ret = start_gpu(gpu);
	if (*ret) {
		if (gpu->device)
			free_object(root, gpu->device);
		if (gpu->fd >= 0)
			close(gpu->fd);
		free(gpu);
		gpu = NULL;
		goto out;
	}
	gpu->next = gpus;
	gpus = gpu;
out:
	pthread_mutex_unlock(&lock);
	return gpu;
}

/* ---- objects and mappings ------------------------------------------------------------------- */

int rm_control(struct rm_gpu *gpu, uint32_t object, uint32_t cmd, void *params, uint32_t bytes)
{
	struct rm_control c = {
		.client = gpu->client, .object = object, .cmd = cmd, .params = (uintptr_t)params,
		.params_bytes = bytes,
	};
	char what[48];
	int ret = call(RM_CONTROL, &c, sizeof(c));

	snprintf(what, sizeof(what), "RM control 0x%x", cmd);
	if (ret)
		return bw_err(-ret, "%s: %s", what, strerror(-ret));
	return c.status ? refused(what, c.status) : 0;
}

int rm_dup(struct rm_gpu *gpu, uint32_t src_client, uint32_t src_object, uint32_t *object)
{
	struct rm_dup d = {
		.client = gpu->client, .parent = gpu->device, .src_client = src_client,
		.src_object = src_object,
	};
	int ret = call(RM_DUP_OBJECT, &d, sizeof(d));

	if (ret)
		return bw_err(-ret, "dup memory object 0x%x: %s", src_object, strerror(-ret));
	if (d.status == RM_OBJECT_NOT_FOUND || d.status == RM_INVALID_OBJECT_HANDLE)
		return bw_err(EFAULT,
			      "dup memory object 0x%x: the NVIDIA driver answers 0x%x (%s): the "
			      "memory was freed meanwhile",
			      src_object, d.status, rm_status_name(d.status));
	if (d.status)
		return refused("dup a memory object", d.status);
	if (!d.object) /* RM can answer OK without an object */
		return bw_err(EIO, "dup memory object 0x%x: the NVIDIA driver gave no object",
			      src_object);
	*object = d.object;
	return 0;
}

int rm_import(struct rm_gpu *gpu, int fd, uint32_t *object)
{
	struct rm_import i = {
		.fd = fd, .type = 1, .device = gpu->device, .parent = gpu->device,
	};
	int ret = rm_control(gpu, gpu->client, RM_CTRL_IMPORT_OBJECT_FROM_FD, &i, sizeof(i));

	if (ret)
		return ret;
	if (!i.object)
		return bw_err(EIO, "import a memory object: the NVIDIA driver gave no object");
	*object = i.object;
	return 0;
}

void rm_free_object(struct rm_gpu *gpu, uint32_t object)
{
	free_object(gpu->device, object);
}

int rm_check_object(struct rm_gpu *gpu, uint32_t object, uint64_t bytes)
{
	struct rm_handle_info info = { .object = object, .index = RM_HANDLE_INFO_CLASS };
	struct rm_addr_space space = { .object = object };
	struct rm_pair size = { .index = RM_SURFACE_PHYS_SIZE };
	struct rm_surface_info surface = { .n = 1, .list = (uintptr_t)&size };
	int ret;

	ret = rm_control(gpu, gpu->client, RM_CTRL_GET_HANDLE_INFO, &info, sizeof(info));
	if (!ret && (uint32_t)info.data != RM_CLASS_MEMORY_LOCAL_USER)
		return bw_err(EIO,
			      "check memory object 0x%x: its class is 0x%x and not 0x%x (video "
			      "memory): not mapped",
			      object, (uint32_t)info.data, RM_CLASS_MEMORY_LOCAL_USER);
	if (!ret)
		ret = rm_control(gpu, gpu->client, RM_CTRL_GET_ADDR_SPACE_TYPE, &space,
				 sizeof(space));
	if (!ret && space.type != RM_ADDR_SPACE_VIDMEM)
		return bw_err(EIO,
			      "check memory object 0x%x: its address space is %u and not %u (video "
			      "memory): not mapped",
			      object, space.type, RM_ADDR_SPACE_VIDMEM);
	if (!ret)
		ret = rm_control(gpu, object, RM_CTRL_GET_SURFACE_INFO, &surface, sizeof(surface));
	if (!ret && (uint64_t)size.data * 4096 < bytes)
		return bw_err(EIO,
			      "check memory object 0x%x: it has %llu bytes, the range needs %llu: "
			      "not mapped",
			      object, (unsigned long long)size.data * 4096,
			      (unsigned long long)bytes);
	return ret;
}

static int bar1_full(struct rm_gpu *gpu, uint64_t needed)
{
	uint64_t total = 0, avail = 0;

	if (rm_bar1(gpu, &total, &avail))
		return bw_err(ENOMEM, "map %llu bytes: the BAR1 aperture of GPU %d is full: unmap "
			      "something, or barway_cache_flush()", (unsigned long long)needed,
			      gpu->dev->index);
	return bw_err(ENOMEM,
		      "map: the BAR1 aperture of GPU %d is %s: needed %llu bytes, free %llu of "
		      "%llu: unmap something, or turn on Resizable BAR in the firmware",
		      gpu->dev->index, avail < needed ? "full" : "in too small pieces",
		      (unsigned long long)needed, (unsigned long long)avail,
		      (unsigned long long)total);
}

static int caching_of(struct rm_gpu *gpu, uint32_t flags, enum bw_caching *caching)
{
	switch (RM_MAP_CACHING(flags)) {
	case RM_CACHING_WC:
		*caching = BW_WC;
		return 0;
	case RM_CACHING_CACHED:
		if (gpu->major && gpu->major < 520 && !gpu->dev->coherent) {
			*caching = BW_WC; /* always, and does not say so: the field is always 0 */
			return 0;
		}
		/* fall through */
	case RM_CACHING_DEFAULT:
		if (gpu->dev->coherent) {
			*caching = BW_CACHED;
			return 0;
		}
	}
	return bw_err(EIO, "map: the NVIDIA driver reports caching kind %u where write-combined "
		      "(%u) was expected: not used", RM_MAP_CACHING(flags), RM_CACHING_WC);
}

int rm_map_part(struct rm_gpu *gpu, uint32_t object, uint64_t offset, size_t bytes, void *at,
		uint64_t *linear, enum bw_caching *caching)
{
	struct rm_map m = {
		.client = gpu->client, .device = gpu->device, .memory = object, .offset = offset,
		.length = bytes,
	};
	void *got;
	int ret;

	m.fd = open_device_file(gpu->minor);
	if (m.fd < 0)
		return m.fd;
	ret = call(RM_MAP_MEMORY, &m, sizeof(m));
	if (ret || m.status) {
		close(m.fd);
		if (ret)
			return bw_err(-ret, "map memory object 0x%x: %s", object, strerror(-ret));
		/* RM: 0x51 where BAR1 is used up, 0x1f where the request, rounded to pages of up to
		 * 2 MiB, is larger than all of it */
		if (m.status == RM_NO_MEMORY || (m.status == RM_INVALID_ARGUMENT &&
						 bytes + 2 * BAR1_PAGE > gpu->bar1_bytes))
			return bar1_full(gpu, bytes);
		return refused("map a memory object", m.status);
	}
	ret = caching_of(gpu, m.flags, caching);
	if (!ret && !gpu->dev->coherent &&
	    (m.linear < gpu->bar1_address || bytes > gpu->bar1_bytes ||
	     m.linear - gpu->bar1_address > gpu->bar1_bytes - bytes))
		ret = bw_err(EIO, "map: the NVIDIA driver answers bus address 0x%llx, outside the "
			     "BAR1 of GPU %d (0x%llx + 0x%llx): not used",
			     (unsigned long long)m.linear, gpu->dev->index,
			     (unsigned long long)gpu->bar1_address,
			     (unsigned long long)gpu->bar1_bytes);
	if (!ret) {
		ret = bw_mmap(&got, at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			      m.fd, 0);
		if (ret)
			ret = bw_err(-ret, "mmap %zu bytes of GPU %d: %s", bytes, gpu->dev->index,
				     strerror(-ret));
	}
	if (ret)
		rm_unmap_part(gpu, object, m.linear);
	else
		*linear = m.linear;
	close(m.fd); /* the pages hold it */
	return ret;
}

void rm_unmap_part(struct rm_gpu *gpu, uint32_t object, uint64_t linear)
{
	struct rm_unmap u = {
		.client = gpu->client, .device = gpu->device, .memory = object, .linear = linear,
	};
	int ret = call(RM_UNMAP_MEMORY, &u, sizeof(u));

	if (ret || u.status)
		bw_log(BW_LOG_WARN, "unmap RM object 0x%x: %s", object,
		       ret ? strerror(-ret) : rm_status_name(u.status));
}

int rm_bar1(struct rm_gpu *gpu, uint64_t *total, uint64_t *avail)
{
	static const uint32_t entries[] = { 0x80, 0x39, 0x37, 0x36 };
	struct rm_fb_info info;

	for (unsigned i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		memset(&info, 0, sizeof(info));
		info.n = 2;
		info.list[0].index = RM_FB_BAR1_SIZE;
		info.list[1].index = RM_FB_BAR1_AVAIL;
		if (!rm_control(gpu, gpu->subdevice, RM_CTRL_FB_GET_INFO_V2, &info,
				(uint32_t)(4 + entries[i] * sizeof(struct rm_pair)))) {
			*total = (uint64_t)info.list[0].data * 1024;
			*avail = (uint64_t)info.list[1].data * 1024;
			return 0;
		}
	}
	return -ENODATA;
}
