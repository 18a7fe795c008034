/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the fake driver and the fake libcuda themselves: what Barway's rm provider does in its
 * code is done here by hand.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_fake.h"
#include "fakenv.h"
#include "test.h"

static struct cuda_fake cu;
static uint64_t big[1 << 15]; /* 256 KiB */

static void load(void)
{
	const char *path = getenv("BARWAY_LIBCUDA");
	char self[512];
	void *lib;

	if (!path) {
		ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 32);

		self[n < 0 ? 0 : n] = 0;
		strcpy(strrchr(self, '/'), "/libcuda.so.1");
		path = self;
	}
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define LOAD(name, args) do { \
	void *p_ = dlsym(lib, #name); \
	memcpy(&cu.name, &p_, sizeof(p_)); \
	if (!p_) { \
		fprintf(stderr, "no %s\n", #name); \
		exit(1); \
	} \
} while (0);
	CUF_LIST(LOAD)
}

/* ---- the driver by hand ---- */

struct hand {
	int ctl, dev;
	unsigned minor, gpu_id;
	uint32_t client, device, sub;
	uint64_t bar, bar_bytes;
};

static int call(int fd, unsigned nr, unsigned size, void *arg)
{
	return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg);
}

static uint32_t rm_alloc(const struct hand *h, uint32_t parent, uint32_t class, void *params,
			 uint32_t *out)
{
	uint32_t a[8] = { h->client, parent, 0, class };
	uint64_t p = (uintptr_t)params;

	memcpy(&a[4], &p, 8);
	CHECK_EQ(call(h->ctl, 0x2b, 32, a), 0);
	*out = a[2];
	return a[6] | a[7];
}

static uint32_t rm_control(const struct hand *h, uint32_t object, uint32_t cmd, void *params,
			   uint32_t size)
{
	uint32_t a[8] = { h->client, object, cmd };
	uint64_t p = (uintptr_t)params;

	memcpy(&a[4], &p, 8);
	a[6] = size;
	CHECK_EQ(call(h->ctl, 0x2a, 32, a), 0);
	return a[7];
}

static uint32_t rm_dup(const struct hand *h, uint32_t parent, uint32_t client, uint32_t object,
		       uint32_t *out)
{
	uint32_t a[7] = { h->client, parent, 0, client, object };

	CHECK_EQ(call(h->ctl, 0x34, 28, a), 0);
	*out = a[2];
	return a[6];
}

struct map_args {
	uint32_t client, device, memory, pad;
	uint64_t offset, length, address;
	uint32_t status, flags;
	int32_t fd;
	uint32_t pad2;
};

static uint32_t rm_map(const struct hand *h, uint32_t memory, uint64_t offset, uint64_t length,
		       int fd, struct map_args *a)
{
	*a = (struct map_args){ .client = h->client, .device = h->device, .memory = memory,
				.offset = offset, .length = length, .fd = fd };
	CHECK_EQ(call(h->ctl, 0x4e, sizeof(*a), a), 0);
	return a->status;
}

static uint32_t rm_unmap(const struct hand *h, const struct map_args *m)
{
	uint32_t a[8] = { h->client, h->device, m->memory };

	memcpy(&a[4], &m->address, 8);
	CHECK_EQ(call(h->ctl, 0x4f, 32, a), 0);
	return a[6];
}

static uint32_t rm_free(const struct hand *h, uint32_t object)
{
	uint32_t a[4] = { h->client, 0, object };

	CHECK_EQ(call(h->ctl, 0x29, 16, a), 0);
	return a[3];
}

static uint32_t word(const void *p, size_t at)
{
	uint32_t v;

	memcpy(&v, (const char *)p + at, 4);
	return v;
}

static uint64_t word64(const void *p, size_t at)
{
	uint64_t v;

	memcpy(&v, (const char *)p + at, 8);
	return v;
}

static int open_dev(const struct hand *h)
{
	char path[64];
	uint32_t ctl = (uint32_t)h->ctl;
	int fd;

	snprintf(path, sizeof(path), "/dev/nvidia%u", h->minor);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQ(call(fd, 0xc9, 4, &ctl), 0);
	return fd;
}

/* Opens the GPU at that PCI address. */
static void hand_open(struct hand *h, const char *pci)
{
	char cards[32 * 72] = { 0 }, mine[32];
	uint32_t info[8] = { 0 }, params[14] = { 0 }, sub = 0;

	memset(h, 0, sizeof(*h));
	h->ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	CHECK(h->ctl >= 0);
	CHECK_EQ(rm_alloc(h, 0, 0x41, NULL, &h->client), 0);
	CHECK_EQ(call(h->ctl, 0xc8, sizeof(cards), cards), 0);
	for (int i = 0; i < 32; i++) {
		const char *c = cards + 72 * i;

		snprintf(mine, sizeof(mine), "%04X:%02X:%02X.%X", word(c, 4), c[8] & 0xff,
			 c[9] & 0xff, c[10] & 0xff);
		if (!c[0] || (pci && strcmp(mine, pci)))
			continue;
		h->gpu_id = word(c, 16);
		h->minor = word(c, 56);
		h->bar = word64(c, 40);
		h->bar_bytes = word64(c, 48);
		break;
	}
	CHECK(h->gpu_id);
	info[0] = h->gpu_id;
	CHECK_EQ(rm_control(h, h->client, 0x205, info, 32), 0);
	params[0] = info[2];
	h->dev = open_dev(h);
	CHECK_EQ(rm_alloc(h, h->client, 0x80, params, &h->device), 0);
	CHECK_EQ(rm_alloc(h, h->device, 0x2080, &sub, &h->sub), 0);
}

static void hand_close(struct hand *h)
{
	CHECK_EQ(rm_free(h, h->client), 0);
	CHECK_EQ(close(h->dev), 0);
	CHECK_EQ(close(h->ctl), 0);
}

/* ---- CUDA, and what it exports ---- */

/*
 * In the executable, so in front of all others: what libcuda asks for at its last export is kept
 * here. This is one of the ways in which Barway sees it.
 */
static struct {
	bool wanted, seen;
	int fd;
	char arg[2608];
} tapped;

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, ...);
	va_list ap;
	void *arg, *sym;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (tapped.wanted && _IOC_NR(request) == 0xd9) {
		tapped.seen = true;
		tapped.fd = fd;
		memcpy(tapped.arg, arg, _IOC_SIZE(request));
	}
	if (!__atomic_load_n(&next, __ATOMIC_ACQUIRE)) {
		int (*found)(int, unsigned long, ...);

		sym = dlsym(RTLD_NEXT, "ioctl");
		memcpy(&found, &sym, sizeof(sym));
		__atomic_store_n(&next, found, __ATOMIC_RELEASE);
	}
	return __atomic_load_n(&next, __ATOMIC_ACQUIRE)(fd, request, arg);
}

/* Exports [ptr, ptr + bytes) and gives what libcuda asked for. */
static const char *tap(unsigned long long ptr, size_t bytes)
{
	int fd;

	memset(&tapped, 0, sizeof(tapped));
	tapped.wanted = true;
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, ptr, bytes, 1, 0), 0);
	tapped.wanted = false;
	CHECK_EQ(close(fd), 0);
	return tapped.arg;
}

static void *ctx;

/* A fresh fake, CUDA ready on ordinal 0; settings in @set as key, value, ..., NULL. */
static void start(const char *const *set)
{
	fakenv_reset();
	for (; set && *set; set += 2)
		CHECK_EQ(fakenv_set(set[0], set[1]), 0);
	CHECK_EQ(cu.cuInit(0), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	CHECK_EQ(cu.cuCtxSetCurrent(ctx), 0);
}

#define START(...) start((const char *const[]){ __VA_ARGS__, NULL })

static void pci_of(int ordinal, char *pci)
{
	CHECK_EQ(cu.cuDeviceGetPCIBusId(pci, 32, ordinal), 0);
}

/* libcuda is an honest client: its handles are asked of the IPC blob here, for brevity. */
static void locate(unsigned long long ptr, uint32_t *client, uint32_t *memory, uint64_t *offset)
{
	struct cuf_ipc ipc;

	CHECK_EQ(cu.cuIpcGetMemHandle(&ipc, ptr), 0);
	*client = word(ipc.reserved, 48);
	*memory = word(ipc.reserved, 52);
	*offset = word(ipc.reserved, 28);
}

static void baseline(long *out)
{
	static const char *const live[] = { "fds", "dmabufs", "clients", "objects", "dups",
					    "mappings", "vmas", "bar1_used", "fb_used" };

	for (unsigned i = 0; i < 9; i++)
		out[i] = fakenv_get(live[i]);
}

static void check_same(const long *a)
{
	long b[9];

	baseline(b);
	for (unsigned i = 0; i < 9; i++)
		if (a[i] != b[i])
			FAIL("live counter %u was %ld and is %ld", i, a[i], b[i]);
	CHECK_EQ(fakenv_get("order_violations"), 0);
	CHECK_EQ(fakenv_get("invalid_parent_dups"), 0);
	CHECK_EQ(fakenv_get("wrong_gpu_dups"), 0);
}

/* dup, map, mmap of @bytes at @ptr, compare both ways, undo */
static void round_trip(struct hand *h, unsigned long long ptr, size_t bytes)
{
	uint32_t client, memory, dup;
	uint64_t offset, in_page;
	struct map_args m;
	unsigned char *cpu;
	size_t len;
	int fd;

	locate(ptr, &client, &memory, &offset);
	CHECK_EQ(rm_dup(h, h->device, client, memory, &dup), 0);
	CHECK(dup != 0);
	fd = open_dev(h);
	CHECK_EQ(rm_map(h, dup, offset, bytes, fd, &m), 0);
	in_page = m.address & 4095;
	CHECK_EQ(in_page, offset & 4095);
	CHECK(m.address >= h->bar && m.address + bytes <= h->bar + h->bar_bytes);
	len = (in_page + bytes + 4095) & ~(size_t)4095;
	cpu = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(cpu != MAP_FAILED);
	close(fd);
	test_fill(big, bytes, ptr);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(ptr, big, bytes), 0);
	CHECK(!memcmp(cpu + in_page, big, bytes));
	test_fill(cpu + in_page, bytes, ptr + 1);
	memset(big, 0, bytes);
	CHECK_EQ(cu.cuMemcpyDtoH_v2(big, ptr, bytes), 0);
	CHECK(!memcmp(cpu + in_page, big, bytes));
	CHECK_EQ(munmap(cpu, len), 0);
	CHECK_EQ(rm_unmap(h, &m), 0);
	CHECK_EQ(rm_free(h, dup), 0);
}

static void sequence(void)
{
	unsigned long long p[3];
	struct hand h;
	long before[9];

	START("gpus", "1");
	CHECK_EQ(cu.cuMemAlloc_v2(&p[0], 600), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p[1], 70000), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p[2], 4 << 20), 0);
	CHECK_EQ(p[1] - p[0], 1024);
	baseline(before);
	hand_open(&h, NULL);
	round_trip(&h, p[0], 600);
	round_trip(&h, p[1], 70000);
	round_trip(&h, p[2], sizeof(big));
	hand_close(&h);
	check_same(before);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(cu.cuMemFree_v2(p[i]), 0);
	CHECK_EQ(fakenv_get("fb_used"), 0);
}

static void device_files(void)
{
	char text[512] = "";
	struct stat st;
	FILE *f;
	int fd;

	fakenv_reset();
	CHECK_EQ(stat("/dev/nvidia0", &st), 0);
	CHECK(S_ISCHR(st.st_mode) && major(st.st_rdev) == 195 && minor(st.st_rdev) == 0);
	CHECK(stat("/dev/nvidia1", &st) && errno == ENOENT);
	fd = open("/dev/nvidiactl", O_RDWR);
	CHECK_EQ(fstat(fd, &st), 0);
	CHECK(S_ISCHR(st.st_mode) && minor(st.st_rdev) == 255);
	CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	CHECK_EQ(fakenv_get("fds"), 1);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(fakenv_get("fds"), 0);
	CHECK(close(fd) && errno == EBADF);
	f = fopen("/sys/module/nvidia/version", "r");
	CHECK(f && fgets(text, sizeof(text), f));
	fclose(f);
	CHECK_STR(text, "580.159.04\n");
	fd = open("/proc/driver/nvidia/version", O_RDONLY | O_CLOEXEC);
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	CHECK_HAS(text, "Open Kernel Module for ");
	CHECK_HAS(text, "  580.159.04  ");
	CHECK_EQ(fakenv_set("open_module", "0"), 0);
	f = fopen("/proc/driver/nvidia/version", "r");
	CHECK(f && fgets(text, sizeof(text), f) && !strstr(text, "Open"));
	fclose(f);
	CHECK_EQ(fakenv_set("sysfs_version", "0"), 0);
	CHECK(access("/sys/module/nvidia/version", R_OK) && errno == ENOENT);
	CHECK(access("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", F_OK));
	CHECK_EQ(fakenv_set("mig", "1"), 0);
	CHECK_EQ(access("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", F_OK), 0);
	CHECK_EQ(fakenv_set("dev_mode", "eacces"), 0);
	CHECK(open("/dev/nvidiactl", O_RDWR) < 0 && errno == EACCES);
	CHECK_EQ(cu.cuInit(0), CUF_NO_DEVICE);
	CHECK_EQ(fakenv_set("dev_mode", "ok"), 0);
	CHECK_EQ(fakenv_set("nodes", "0"), 0);
	CHECK(open("/dev/nvidia0", O_RDWR) < 0 && errno == ENOENT);
	CHECK_EQ(cu.cuInit(0), CUF_NO_DEVICE);
	CHECK(access("/dev/dxg", F_OK) && access("/dev/nvmap", F_OK));
	CHECK(access("/dev/gdrdrv", F_OK));
	CHECK_EQ(fakenv_set("nonsense", "1"), -1);
	CHECK_EQ(fakenv_set("gpus", "99"), -1);
	CHECK_EQ(fakenv_set("tamper", "nonsense"), -1);
	/* the rest of the machine is as it was */
	CHECK_EQ(access("/proc/self/status", R_OK), 0);
	fd = open("/dev/null", O_WRONLY);
	CHECK(fd >= 0 && !fstat(fd, &st) && major(st.st_rdev) == 1);
	close(fd);
}

static void other_machines(void)
{
	unsigned long long p;
	int value;

	START("wsl", "1");
	CHECK_EQ(access("/dev/dxg", R_OK | W_OK), 0);
	CHECK(access("/dev/nvidiactl", F_OK));
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 4096), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&value, p, 4096, 1, 0), CUF_NOT_SUPPORTED);
	START("jetson", "1");
	CHECK_EQ(access("/dev/nvmap", R_OK | W_OK), 0);
	CHECK_EQ(cu.cuDeviceGetAttribute(&value, CUF_DEV_INTEGRATED, 0), 0);
	CHECK_EQ(value, 1);
	START("coherent", "1", "dmabuf", "0");
	CHECK_EQ(cu.cuDeviceGetAttribute(&value, CUF_DEV_HOST_PAGE_TABLES, 0), 0);
	CHECK_EQ(value, 1);
	CHECK_EQ(cu.cuDeviceGetAttribute(&value, CUF_DEV_DMA_BUF, 0), 0);
	CHECK_EQ(value, 0);
}

static void refusals(void)
{
	unsigned long long p;
	uint32_t client, memory, dup, none, params[14] = { 0 }, info[8] = { 0 };
	uint64_t offset;
	struct hand h, raw = { 0 };
	struct map_args m, n;
	void *cpu;
	int fd, other;

	START("gpus", "2");
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 1 << 20), 0);
	locate(p, &client, &memory, &offset);
	hand_open(&h, "0000:1B:00.0");
	/* the driver's files */
	fd = h.ctl;
	CHECK(call(h.dev, 0xc9, 4, &fd) && errno == EINVAL);
	CHECK(call(h.dev, 0x2a, 32, &m) && errno == EINVAL);
	CHECK(call(h.ctl, 0x4e, 48, &m) && errno == EINVAL);
	CHECK(call(h.ctl, 0x77, 48, &m) && errno == EINVAL);
	raw.ctl = open("/dev/nvidiactl", O_RDWR);
	CHECK_EQ(rm_alloc(&raw, 0, 0x41, NULL, &raw.client), 0);
	CHECK_EQ(rm_control(&raw, raw.client, 0x205, info, 31), 0x1f);
	CHECK_EQ(rm_control(&raw, raw.client, 0x999, info, 32), 0x56);
	params[0] = 31;
	CHECK_EQ(rm_alloc(&raw, raw.client, 0x80, params, &none), 0x1f);
	/* clients */
	raw.client = client;
	CHECK_EQ(rm_control(&raw, client, 0xd02, info, 16), 0x23);
	raw.client = 0x1234;
	CHECK_EQ(rm_control(&raw, 0x1234, 0xd02, info, 16), 0x33);
	close(raw.ctl);
	/* dups */
	CHECK_EQ(rm_dup(&h, h.sub, client, memory, &dup), 0x36);
	CHECK_EQ(rm_dup(&h, h.device, client, 0x77, &dup), 0x57);
	CHECK_EQ(rm_dup(&h, h.device, 0x77, memory, &dup), 0x33);
	CHECK_EQ(fakenv_get("invalid_parent_dups"), 0);
	CHECK_EQ(rm_dup(&h, 0x77, client, memory, &dup), 0x36);
	CHECK_EQ(fakenv_get("invalid_parent_dups"), 1);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	/* maps */
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 2 << 20, 4096, fd, &m), 0x20);
	CHECK_EQ(rm_map(&h, dup, 0, 0, fd, &m), 0x2e);
	CHECK_EQ(rm_map(&h, dup, 4096, 2 << 20, fd, &m), 0x2e);
	CHECK_EQ(rm_map(&h, dup, 4096, ~0ull, fd, &m), 0x2e);
	CHECK_EQ(rm_map(&h, 0x77, 0, 4096, fd, &m), 0x57);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, h.ctl, &m), 0x1f);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, -1, &m), 0x1f);
	other = open(h.minor ? "/dev/nvidia0" : "/dev/nvidia1", O_RDWR);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, other, &m), 0x1f);
	close(other);
	cpu = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(cpu == MAP_FAILED && errno == EINVAL);
	CHECK_EQ(rm_map(&h, dup, 100, 4096, fd, &m), 0);
	CHECK_EQ(m.flags, 0x01010000);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &n), 0x63);
	cpu = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(cpu == MAP_FAILED && errno == ENXIO);
	cpu = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 4096);
	CHECK(cpu == MAP_FAILED && errno == EINVAL);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	CHECK_EQ(rm_unmap(&h, &m), 0x57);
	close(fd);
	fd = open_dev(&h);
	CHECK_EQ(fakenv_set("cc", "1"), 0);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0x56);
	CHECK_EQ(fakenv_set("cc", "0"), 0);
	CHECK_EQ(fakenv_set("mig", "1"), 0);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &none), 0x56);
	CHECK_EQ(fakenv_set("mig", "0"), 0);
	fakenv_fail_ioctl(0x4e, 2, 0x51);
	fakenv_fail_ioctl(0x34, 1, -EAGAIN);
	fakenv_fail_control(0xd02, 1, 0x57);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &n), 0x51);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &n), 0x63);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	info[0] = dup;
	info[1] = 2;
	CHECK_EQ(rm_control(&h, h.client, 0xd02, info, 16), 0x57);
	CHECK_EQ(rm_control(&h, h.client, 0xd02, info, 16), 0);
	CHECK_EQ(info[2], 0x40);
	CHECK(call(h.ctl, 0x34, 28, params) && errno == EAGAIN);
	close(fd);
	hand_close(&h);
}

/* A process must have the GPU's file open before it makes a device object. */
static void open_first(void)
{
	uint32_t info[8] = { 0x1b00 }, params[14] = { 0 }, device;
	struct hand h = { 0 };

	fakenv_reset();
	h.ctl = open("/dev/nvidiactl", O_RDWR);
	CHECK_EQ(rm_alloc(&h, 0, 0x41, NULL, &h.client), 0);
	CHECK_EQ(rm_control(&h, h.client, 0x205, info, 32), 0);
	params[0] = info[2];
	CHECK_EQ(rm_alloc(&h, h.client, 0x80, params, &device), 0x1b);
	h.dev = open_dev(&h);
	CHECK_EQ(rm_alloc(&h, h.client, 0x80, params, &device), 0);
	hand_close(&h);
	CHECK_EQ(fakenv_get("fds"), 0);
	CHECK_EQ(fakenv_get("clients"), 0);
}

/* The three numberings differ, and memory belongs to one GPU. */
static void two_gpus(void)
{
	unsigned long long p;
	uint32_t client, memory, dup;
	uint64_t offset;
	struct hand h[2];
	char pci[2][32];
	int dev, fd;
	struct map_args m;
	long before[9];

	START("gpus", "2");
	pci_of(0, pci[0]);
	pci_of(1, pci[1]);
	CHECK_STR(pci[0], "0000:1B:00.0");
	CHECK_STR(pci[1], "0000:2B:00.0");
	baseline(before);
	hand_open(&h[0], pci[0]);
	hand_open(&h[1], pci[1]);
	CHECK_EQ(h[0].minor, 1);
	CHECK_EQ(h[1].minor, 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 1 << 20), 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&dev, CUF_PTR_DEVICE_ORDINAL, p), 0);
	CHECK_EQ(dev, 0);
	round_trip(&h[0], p, 5000);
	locate(p, &client, &memory, &offset);
	CHECK_EQ(rm_dup(&h[1], h[1].device, client, memory, &dup), 0);
	CHECK_EQ(fakenv_get("wrong_gpu_dups"), 1);
	fd = open_dev(&h[1]);
	CHECK_EQ(rm_map(&h[1], dup, 0, 4096, fd, &m), 0);
	CHECK(m.address >= h[1].bar && m.address < h[1].bar + h[1].bar_bytes);
	CHECK_EQ(rm_unmap(&h[1], &m), 0);
	close(fd);
	CHECK_EQ(cu.cuMemFree_v2(p), 0);
	hand_close(&h[0]);
	hand_close(&h[1]);
	CHECK_EQ(fakenv_set("wrong_gpu_dups", "0"), 0);
	check_same(before);
}

static void visible_devices(void)
{
	char pci[32];
	int n;

	setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	fakenv_reset();
	CHECK_EQ(fakenv_set("gpus", "3"), 0);
	CHECK_EQ(cu.cuInit(0), 0);
	unsetenv("CUDA_VISIBLE_DEVICES");
	CHECK_EQ(cu.cuDeviceGetCount(&n), 0);
	CHECK_EQ(n, 2);
	pci_of(0, pci);
	CHECK_STR(pci, "0000:3B:00.0");
	pci_of(1, pci);
	CHECK_STR(pci, "0000:1B:00.0");
}

static void dup_lifetime(void)
{
	unsigned long long p, q;
	uint32_t client, memory, memory2, dup;
	uint64_t offset;
	struct hand h;
	struct map_args m;
	size_t before, after, total;
	unsigned char *cpu;
	int fd;

	START("fb_mb", "64");
	hand_open(&h, NULL);
	CHECK_EQ(cu.cuMemGetInfo_v2(&before, &total), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 16 << 20), 0);
	locate(p, &client, &memory, &offset);
	memset(big, 0x77, 4096);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(p, big, 4096), 0);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0);
	cpu = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(cpu != MAP_FAILED);
	close(fd);
	CHECK_EQ(cu.cuMemFree_v2(p), 0);
	CHECK_EQ(cu.cuMemGetInfo_v2(&after, &total), 0);
	CHECK_EQ(before - after, 16 << 20);
	CHECK_EQ(cpu[0], 0x77);
	/* the same address and handle, but other memory */
	CHECK_EQ(cu.cuMemAlloc_v2(&q, 16 << 20), 0);
	CHECK_EQ(q, p);
	locate(q, &client, &memory2, &offset);
	CHECK_EQ(memory2, memory);
	memset(big, 0x11, 4096);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(q, big, 4096), 0);
	CHECK_EQ(cpu[0], 0x77);
	CHECK_EQ(cu.cuMemFree_v2(q), 0);
	/* files closed first: the CPU mapping keeps them */
	close(h.dev);
	close(h.ctl);
	CHECK_EQ(fakenv_get("dups"), 1);
	CHECK_EQ(cpu[0], 0x77);
	CHECK_EQ(munmap(cpu, 4096), 0);
	CHECK_EQ(fakenv_get("dups"), 0);
	CHECK_EQ(fakenv_get("clients"), 1);
	CHECK_EQ(fakenv_get("order_violations"), 0);
	CHECK_EQ(cu.cuMemGetInfo_v2(&after, &total), 0);
	CHECK_EQ(before, after);
}

static void order(void)
{
	unsigned long long p;
	uint32_t client, memory, dup;
	uint64_t offset;
	struct hand h;
	struct map_args m;
	unsigned char *cpu;
	void *again;
	int fd;

	START("gpus", "1");
	hand_open(&h, NULL);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 2 << 20), 0);
	locate(p, &client, &memory, &offset);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 16384, fd, &m), 0);
	cpu = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	/* a hole, and the rest replaced: both take pages away */
	CHECK_EQ(munmap(cpu + 4096, 4096), 0);
	CHECK_EQ(fakenv_get("vmas"), 2);
	again = mmap(cpu + 8192, 8192, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == cpu + 8192);
	CHECK_EQ(fakenv_get("vmas"), 1);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	CHECK_EQ(fakenv_get("order_violations"), 1);
	cpu[0] = 1; /* the page is still there */
	CHECK_EQ(munmap(cpu, 16384), 0);
	CHECK_EQ(fakenv_get("vmas"), 0);
	/* RM_FREE before RM_UNMAP */
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0);
	close(fd);
	CHECK_EQ(rm_free(&h, dup), 0);
	CHECK_EQ(fakenv_get("order_violations"), 2);
	CHECK_EQ(fakenv_get("mappings"), 0);
	hand_close(&h);
	CHECK_EQ(cu.cuMemFree_v2(p), 0);
}

/* A map over reserved address space, and one over another. */
static void fixed(void)
{
	unsigned long long p;
	uint32_t client, memory, dup;
	uint64_t offset;
	struct hand h;
	struct map_args m;
	unsigned char *at, *cpu;
	int fd;

	START("gpus", "1");
	hand_open(&h, NULL);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 2 << 20), 0);
	locate(p, &client, &memory, &offset);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 8192, fd, &m), 0);
	at = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cpu = mmap(at + 4096, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(cpu == at + 4096);
	close(fd);
	cpu[5] = 0x5a;
	CHECK_EQ(cu.cuMemcpyDtoH_v2(big, p, 16), 0);
	CHECK_EQ(((unsigned char *)big)[5], 0x5a);
	CHECK_EQ(fakenv_get("vmas"), 1);
	CHECK_EQ(munmap(at, 65536), 0);
	CHECK_EQ(fakenv_get("vmas"), 0);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	CHECK_EQ(rm_free(&h, dup), 0);
	hand_close(&h);
	CHECK_EQ(fakenv_get("order_violations"), 0);
}

static uint32_t bar_avail(struct hand *h)
{
	char info[1028] = { 0 };
	uint32_t one = 1, what = 0x1d;

	memcpy(info, &one, 4);
	memcpy(info + 4, &what, 4);
	CHECK_EQ(rm_control(h, h->sub, 0x20801303, info, sizeof(info)), 0);
	return word(info, 8);
}

static void bar1(void)
{
	unsigned long long p;
	uint32_t client, memory, dup;
	uint64_t offset;
	struct hand h;
	struct map_args m[8], m2;
	int fd[9];
	long before[9];

	START("bar1", "dynamic", "bar1_mb", "16");
	baseline(before);
	hand_open(&h, NULL);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 32 << 20), 0);
	locate(p, &client, &memory, &offset);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	CHECK_EQ(bar_avail(&h), 16 << 10);
	for (int i = 0; i < 9; i++)
		fd[i] = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 32 << 20, fd[8], &m2), 0x1f);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(rm_map(&h, dup, (uint64_t)i * (2 << 20) + 12, 4096, fd[i], &m[i]), 0);
	CHECK_EQ(bar_avail(&h), 0);
	CHECK_EQ(fakenv_get("bar1_used"), 16 << 20);
	CHECK_EQ(rm_map(&h, dup, 8, 4096, fd[8], &m2), 0x51);
	/* exactly the same range is shared */
	CHECK_EQ(rm_map(&h, dup, 12, 4096, fd[8], &m2), 0);
	CHECK_EQ(m2.address, m[0].address);
	CHECK_EQ(m2.address & 0xfff, 12);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(rm_unmap(&h, &m[i]), 0);
	CHECK_EQ(bar_avail(&h), 14 << 10);
	CHECK_EQ(rm_unmap(&h, &m2), 0);
	CHECK_EQ(bar_avail(&h), 16 << 10);
	for (int i = 0; i < 9; i++)
		close(fd[i]);
	CHECK_EQ(rm_free(&h, dup), 0);
	hand_close(&h);
	CHECK_EQ(cu.cuMemFree_v2(p), 0);
	check_same(before);
}

/* What libcuda asks of the driver. */
static void tap_arguments(void)
{
	unsigned long long p[3], va, handle[2];
	struct cuf_prop prop = { .type = 1, .location = { 1, 1 } };
	uint32_t client, memory;
	uint64_t offset;
	struct stat st;
	const char *a;

	START("gpus", "2");
	CHECK_EQ(cu.cuMemAlloc_v2(&p[0], 4096 - 512), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p[1], 512), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p[2], 8192), 0);
	locate(p[2], &client, &memory, &offset);
	CHECK_EQ(offset, 4096);
	a = tap(p[2], 8192);
	CHECK(tapped.seen);
	CHECK(!fstat(tapped.fd, &st) && minor(st.st_rdev) == 1); /* ordinal 0 */
	CHECK_EQ(word(a, 4), client);
	CHECK_EQ(word(a, 8), 1);
	CHECK_EQ(word(a, 12), 1);
	CHECK_EQ(word64(a, 24), 8192);
	CHECK_EQ(word(a, 36), memory);
	CHECK_EQ(word64(a, 552), 4096);
	CHECK_EQ(word64(a, 1576), 8192);
	/* beyond the allocation, but in the block */
	a = tap(p[2] + 4096, 65536);
	CHECK_EQ(word64(a, 552), 8192);
	CHECK_EQ(fakenv_set("tamper", "export_short"), 0);
	a = tap(p[2], 8192);
	CHECK(word64(a, 24) == 8192 && word64(a, 1576) == 4096);
	CHECK_EQ(fakenv_set("tamper", "export_client"), 0);
	a = tap(p[2], 8192);
	CHECK(word(a, 4) != client);
	CHECK_EQ(fakenv_set("tamper", "export_wrong_dev"), 0);
	tap(p[2], 8192);
	CHECK(!fstat(tapped.fd, &st) && minor(st.st_rdev) == 0);
	CHECK_EQ(fakenv_set("tamper", "export_none"), 0);
	tap(p[2], 8192);
	CHECK(!tapped.seen);
	CHECK_EQ(fakenv_set("tamper", ""), 0);
	/* two objects, the second mapped from its middle, of the other GPU */
	CHECK_EQ(cu.cuMemCreate(&handle[0], 2 << 20, &prop, 0), 0);
	CHECK_EQ(cu.cuMemCreate(&handle[1], 4 << 20, &prop, 0), 0);
	CHECK_EQ(cu.cuMemAddressReserve(&va, 4 << 20, 0, 0, 0), 0);
	CHECK_EQ(cu.cuMemMap(va, 2 << 20, 0, handle[0], 0), 0);
	CHECK_EQ(cu.cuMemMap(va + (2 << 20), 2 << 20, 2 << 20, handle[1], 0), 0);
	a = tap(va + (1 << 20), 2 << 20);
	CHECK(!fstat(tapped.fd, &st) && minor(st.st_rdev) == 0);
	CHECK_EQ(word(a, 12), 2);
	CHECK(word(a, 36) != word(a, 40));
	CHECK(word64(a, 552) == 1 << 20 && word64(a, 1576) == 1 << 20);
	CHECK(word64(a, 560) == 2 << 20 && word64(a, 1584) == 1 << 20);
	START("driver", "565.77");
	CHECK_EQ(cu.cuMemAlloc_v2(&p[0], 1 << 20), 0);
	locate(p[0], &client, &memory, &offset);
	a = tap(p[0] + 8192, 4096);
	CHECK(word(a, 4) == client && word(a, 32) == memory);
	CHECK(word64(a, 544) == 8192 && word64(a, 1568) == 4096);
}

static void dmabuf(void)
{
	unsigned long long p, q, r, resv, handle[2];
	struct cuf_prop prop = { .type = 1, .location = { 1, 0 }, .handle_types = 1 };
	struct cuf_access access_desc = { { 1, 0 }, 3 };
	void *cpu, *none;
	long before[9];
	int fd, fd2;

	START("gpus", "1");
	baseline(before);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 5000), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&q, 600), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&r, 4 << 20), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, p, 5000, 1, 0), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, q, 4096, 1, 0), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, p, 4 << 20, 1, 0), CUF_INVALID_VALUE);
	CHECK_EQ(fakenv_get("exports"), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, p, 8192, 1, 0), 0);
	CHECK_EQ(fakenv_get("exports"), 1);
	CHECK_EQ(fakenv_get("dmabufs"), 1);
	cpu = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(cpu == MAP_FAILED && errno == 524);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 8192);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(p + 4099, "there", 5), 0);
	CHECK(!memcmp(fakenv_dmabuf(fd, 4099, 5), "there", 5));
	CHECK(fakenv_dmabuf(fd, 0, 8192) && !fakenv_dmabuf(fd, 1, 8192));
	CHECK(!fakenv_dmabuf(0, 0, 1));
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd2, r, 4096, 1, 1), CUF_NOT_SUPPORTED);
	/* the dma-buf keeps the memory */
	CHECK_EQ(cu.cuMemFree_v2(p), 0);
	CHECK_EQ(cu.cuMemFree_v2(q), 0);
	CHECK_EQ(fakenv_get("fb_used"), 6 << 20);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(fakenv_get("fb_used"), 4 << 20);
	CHECK_EQ(cu.cuMemFree_v2(r), 0);
	/* two objects in one range */
	for (int i = 0; i < 2; i++)
		CHECK_EQ(cu.cuMemCreate(&handle[i], 2 << 20, &prop, 0), 0);
	CHECK_EQ(cu.cuMemAddressReserve(&resv, 8 << 20, 0, 0, 0), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(cu.cuMemMap(resv + (unsigned)i * (2 << 20), 2 << 20, 0, handle[i], 0), 0);
	CHECK_EQ(cu.cuMemSetAccess(resv, 4 << 20, &access_desc, 1), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, resv + (1 << 20), 2 << 20, 1, 0), 0);
	CHECK(fakenv_dmabuf(fd, 0, 1 << 20) && fakenv_dmabuf(fd, 1 << 20, 1 << 20));
	CHECK(!fakenv_dmabuf(fd, 0, (1 << 20) + 1)); /* of two objects */
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, resv + (1 << 20), 4 << 20, 1, 0),
		 CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemUnmap(resv, 4 << 20), 0);
	CHECK_EQ(cu.cuMemRelease(handle[0]), 0);
	CHECK_EQ(cu.cuMemRelease(handle[1]), 0);
	CHECK_EQ(cu.cuMemAddressFree(resv, 8 << 20), 0);
	CHECK_EQ(cu.cuMemAllocHost_v2(&none, 4096), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, (uintptr_t)none, 4096, 1, 0),
		 CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemFreeHost(none), 0);
	CHECK_EQ(cu.cuCtxSetCurrent(NULL), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, p, 4096, 1, 0), CUF_INVALID_CONTEXT);
	check_same(before);
}

/* Of a pool, by a libcuda that names too little; and the flag, which came with CUDA 12.8. */
static void dmabuf_quirks(void)
{
	unsigned long long a, b;
	void *stream;
	int fd;

	START("gpus", "1", "driver", "550.163.01");
	CHECK_EQ(cu.cuStreamCreate(&stream, 1), 0);
	CHECK_EQ(cu.cuMemAllocAsync(&a, 4096, stream), 0);
	CHECK_EQ(cu.cuMemAllocAsync(&b, 8192, stream), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, b, 8192, 1, 1), CUF_INVALID_VALUE);
	CHECK_EQ(fakenv_set("tamper", "export_pool"), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, b, 8192, 1, 0), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 4096);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, a, 12288, 1, 0), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 12288);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(cu.cuMemFreeAsync(a, stream), 0);
	CHECK_EQ(cu.cuMemFreeAsync(b, stream), 0);
	CHECK_EQ(cu.cuStreamDestroy_v2(stream), 0);
}

/* cuMemCreate -> a file -> another client, over a socket */
static void export_import(void)
{
	struct cuf_prop prop = { .type = 1, .location = { 1, 0 }, .handle_types = 1 };
	unsigned long long handle, va;
	uint32_t params[6] = { 0 }, info[20] = { 0 };
	struct map_args m;
	struct hand h;
	unsigned char *cpu;
	long before[9];
	int fd, fd2;

	START("gpus", "2");
	baseline(before);
	CHECK_EQ(cu.cuMemCreate(&handle, 2 << 20, &prop, 0), 0);
	CHECK_EQ(cu.cuMemAddressReserve(&va, 2 << 20, 0, 0, 0), 0);
	CHECK_EQ(cu.cuMemMap(va, 2 << 20, 0, handle, 0), 0);
	memset(big, 0x3c, 4096);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(va + 4096, big, 4096), 0);
	CHECK_EQ(cu.cuMemExportToShareableHandle(&fd, handle, 1, 0), 0);
	fd2 = dup(fd);
	CHECK_EQ(close(fd), 0);
	hand_open(&h, "0000:1B:00.0");
	info[0] = (uint32_t)fd2;
	CHECK_EQ(rm_control(&h, h.client, 0x3d08, info, 76), 0x1f);
	CHECK_EQ(rm_control(&h, h.client, 0x3d08, info, 80), 0);
	params[0] = (uint32_t)fd2;
	params[2] = params[3] = h.device;
	CHECK_EQ(rm_control(&h, h.client, 0x3d06, params, 20), 0);
	CHECK(params[4] != 0);
	CHECK_EQ(close(fd2), 0);
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, params[4], 4096, 4096, fd, &m), 0);
	cpu = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(cpu != MAP_FAILED && cpu[17] == 0x3c);
	close(fd);
	CHECK_EQ(munmap(cpu, 4096), 0);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	CHECK_EQ(rm_free(&h, params[4]), 0);
	hand_close(&h);
	CHECK_EQ(cu.cuMemUnmap(va, 2 << 20), 0);
	CHECK_EQ(cu.cuMemAddressFree(va, 2 << 20), 0);
	CHECK_EQ(cu.cuMemRelease(handle), 0);
	check_same(before);
}

/* By name, as the public headers of each branch have them. */
static void layouts(void)
{
	static const struct layout {
		const char *driver;
		unsigned alloc_long, long_status, short_status, dmabuf, build, page, fb, info;
		int version;
	} table[] = {
		{ "515.105.01", 40, 32, 24, 2600, 776, 4, 436, 76, 11070 },
		{ "525.147.05", 40, 36, 24, 2600, 776, 4, 436, 76, 12000 },
		{ "535.129.03", 48, 40, 28, 2600, 776, 8, 436, 76, 12020 },
		{ "550.163.01", 48, 40, 28, 2600, 776, 8, 444, 80, 12040 },
		{ "570.211.01", 48, 40, 28, 2608, 1032, 8, 460, 80, 12080 },
		{ "580.159.04", 48, 40, 28, 2608, 1032, 8, 1028, 80, 13000 },
	};

	for (unsigned i = 0; i < 6; i++) {
		const struct layout *l = &table[i];
		unsigned long long p;
		char a[2608], version[72] = { 0x32 };
		uint32_t memory, client, dup;
		uint64_t offset;
		struct hand h;
		int v, fd;

		START("driver", l->driver);
		CHECK_EQ(cu.cuDriverGetVersion(&v), 0);
		CHECK_EQ(v, l->version);
		CHECK_EQ(cu.cuMemAlloc_v2(&p, 4 << 20), 0);
		hand_open(&h, NULL);
		round_trip(&h, p, 10000);
		CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, p, 2 << 20, 1, 0), 0);
		close(fd);
		/* an unknown class, to see where the status comes */
		memset(a, 0, sizeof(a));
		memcpy(a, &h.client, 4);
		memcpy(a + 4, &h.client, 4);
		a[12] = 0x77;
		CHECK_EQ(call(h.ctl, 0x2b, 32, a), 0);
		CHECK_EQ(word(a, l->short_status), 0x22);
		CHECK_EQ(word(a, l->short_status == 24 ? 28 : 24), 0);
		memset(a + 16, 0, sizeof(a) - 16);
		CHECK_EQ(call(h.ctl, 0x2b, l->alloc_long, a), 0);
		CHECK_EQ(word(a, l->long_status), 0x22);
		CHECK(call(h.ctl, 0x2b, l->alloc_long == 40 ? 48 : 40, a) && errno == EINVAL);
		memset(a, 0, sizeof(a));
		CHECK(call(h.dev, 0xd9, l->dmabuf == 2600 ? 2608 : 2600, a) && errno == EINVAL);
		CHECK_EQ(call(h.dev, 0xd9, l->dmabuf, a), 0);
		CHECK(word(a, l->dmabuf - 8) != 0);
		CHECK_EQ(rm_control(&h, h.client, 0x13e, a, l->build == 776 ? 1032 : 776), 0x1f);
		CHECK_EQ(rm_control(&h, h.client, 0x13e, a, l->build), 0);
		CHECK_STR(a, l->driver);
		locate(p, &client, &memory, &offset);
		CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
		CHECK_EQ(rm_control(&h, dup, 0x410118, a, 12 - l->page), 0x3a);
		CHECK_EQ(rm_control(&h, dup, 0x410118, a, l->page), 0);
		CHECK_EQ(word(a, 0), 2 << 20);
		memset(a, 0, sizeof(a));
		CHECK_EQ(rm_control(&h, h.sub, 0x20801303, a, l->fb + 8), 0x3a);
		CHECK_EQ(rm_control(&h, h.sub, 0x20801303, a, l->fb), 0);
		memset(a, 0xff, 4);
		CHECK_EQ(rm_control(&h, h.client, 0x3d08, a, l->info == 76 ? 80 : 76), 0x1f);
		CHECK_EQ(rm_control(&h, h.client, 0x3d08, a, l->info), 0x1f);
		if (i >= 2) {
			CHECK_EQ(call(h.ctl, 0xd2, 72, version), 0);
			CHECK_EQ(version[4], 1);
		} else {
			CHECK(call(h.ctl, 0xd2, 72, version) && errno == EINVAL);
		}
		CHECK_STR(version + 8, l->driver);
		memset(a, 0, sizeof(a));
		CHECK_EQ(rm_control(&h, h.client, 0xd07, a, 12), i ? 0x57 : 0x56);
		hand_close(&h);
	}
}

static void identity(void)
{
	char uuid[268], ascii[268];
	struct cuf_uuid v1, v2;
	uint64_t list[2] = { 0 };
	uint32_t entries[4] = { 7, 0, 9, 0 }, args[4] = { 2 }, mode[2] = { 9 }, cc;
	unsigned char caps[6] = { 0 };
	unsigned long long p;
	uint32_t client, memory, dup;
	uint64_t offset;
	struct hand h;

	START("gpus", "2");
	hand_open(&h, "0000:1B:00.0");
	CHECK_EQ(cu.cuDeviceGetUuid(&v1, 0), 0);
	CHECK_EQ(cu.cuDeviceGetUuid_v2(&v2, 0), 0);
	CHECK(!memcmp(&v1, &v2, 16));
	memset(uuid, 0, sizeof(uuid));
	memcpy(uuid, &h.gpu_id, 4);
	uuid[4] = 2;
	CHECK_EQ(rm_control(&h, h.client, 0x275, uuid, 268), 0);
	CHECK(!memcmp(uuid + 8, &v1, 16) && word(uuid, 264) == 16);
	memset(ascii, 0, sizeof(ascii));
	CHECK_EQ(rm_control(&h, h.sub, 0x2080014a, ascii, 268), 0);
	CHECK(!strncmp(ascii + 12, "GPU-", 4) && word(ascii, 8) == 41);
	CHECK_EQ(fakenv_set("mig", "1"), 0);
	CHECK_EQ(cu.cuDeviceGetUuid_v2(&v2, 0), 0);
	CHECK(memcmp(&v1, &v2, 16));
	CHECK_EQ(fakenv_set("mig", "0"), 0);
	CHECK_EQ(fakenv_set("virt", "2"), 0);
	CHECK_EQ(rm_control(&h, h.device, 0x800289, mode, 8), 0);
	CHECK_EQ(mode[0], 2);
	CHECK_EQ(rm_control(&h, h.sub, 0x20800289, mode, 8), 0x56);
	CHECK_EQ(fakenv_set("cc", "1"), 0);
	CHECK_EQ(rm_alloc(&h, h.client, 0xcb33, &h.client, &cc), 0);
	CHECK_EQ(rm_control(&h, cc, 0xcb330101, caps, 6), 0);
	CHECK_EQ(caps[3], 1);
	CHECK_EQ(fakenv_set("cc_caps", "5"), 0);
	CHECK_EQ(rm_control(&h, cc, 0xcb330101, caps, 6), 0x3a);
	CHECK_EQ(rm_control(&h, cc, 0xcb330101, caps, 5), 0);
	CHECK_EQ(fakenv_set("cc", "0"), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 3 << 20), 0);
	locate(p, &client, &memory, &offset);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	memcpy(list, args, 8);
	list[1] = (uintptr_t)entries;
	CHECK_EQ(rm_control(&h, dup, 0x410110, list, 16), 0);
	CHECK_EQ(entries[1], 1024);
	CHECK_EQ(entries[3], 2);
	CHECK_EQ(fakenv_set("tamper", "dup_physsize"), 0);
	CHECK_EQ(rm_control(&h, dup, 0x410110, list, 16), 0);
	CHECK_EQ(entries[1], 1);
	CHECK_EQ(fakenv_set("tamper", "dup_addrspace"), 0);
	CHECK_EQ(rm_control(&h, dup, 0x410110, list, 16), 0);
	CHECK_EQ(entries[3], 1);
	hand_close(&h);
}

static void tampering(void)
{
	static const char *const wrong_data[] = { "dup_wrong_memory", "map_wrong_offset", "alias" };
	unsigned long long p, q;
	uint32_t client, memory, dup, info[4];
	uint64_t offset;
	struct hand h;
	struct map_args m;
	unsigned char *cpu;
	int fd;

	START("gpus", "1");
	hand_open(&h, NULL);
	CHECK_EQ(cu.cuMemAlloc_v2(&q, 64 << 10), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 64 << 10), 0);
	test_fill(big, sizeof(big), 9);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(p, big, 64 << 10), 0);
	locate(p, &client, &memory, &offset);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(fakenv_set("tamper", wrong_data[i]), 0);
		CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
		fd = open_dev(&h);
		CHECK_EQ(rm_map(&h, dup, offset, 4096, fd, &m), 0);
		cpu = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(cpu != MAP_FAILED);
		CHECK(memcmp(cpu, big, 4096));
		close(fd);
		CHECK_EQ(munmap(cpu, 4096), 0);
		CHECK_EQ(rm_unmap(&h, &m), 0);
		CHECK_EQ(rm_free(&h, dup), 0);
	}
	CHECK_EQ(fakenv_set("tamper", "dup_zero_handle"), 0);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	CHECK_EQ(dup, 0);
	CHECK_EQ(fakenv_set("tamper", "map_address"), 0);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0);
	CHECK(m.address >= h.bar + h.bar_bytes);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	close(fd);
	CHECK_EQ(fakenv_set("tamper", "map_caching"), 0);
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0);
	CHECK_EQ(m.flags >> 23 & 7, 0);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	close(fd);
	CHECK_EQ(fakenv_set("tamper", "dup_class"), 0);
	info[0] = dup;
	info[1] = 2;
	CHECK_EQ(rm_control(&h, h.client, 0xd02, info, 16), 0);
	CHECK_EQ(info[2], 0x3e);
	for (int i = 0; i < 4; i++) {
		static const char *const exports[] = { "export_client", "export_short",
						       "export_wrong_dev", "export_none" };
		long n = fakenv_get("exports");

		CHECK_EQ(fakenv_set("tamper", exports[i]), 0);
		CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, p, 64 << 10, 1, 0), 0);
		CHECK_EQ(close(fd), 0);
		CHECK_EQ(fakenv_get("exports"), n + (i < 3));
	}
	hand_close(&h);
	CHECK_EQ(fakenv_get("clients"), 1);
	CHECK_EQ(fakenv_get("order_violations"), 0);
}

/* The wrong GPU behind the right PCI address, and another UUID. */
static void wrong_identity(void)
{
	struct cuf_uuid cuda_uuid;
	char uuid[268] = { 0 };
	struct hand h;

	START("gpus", "2");
	hand_open(&h, "0000:1B:00.0");
	CHECK_EQ(h.gpu_id, 0x1b00);
	hand_close(&h);
	CHECK_EQ(fakenv_set("tamper", "gpu_id"), 0);
	hand_open(&h, "0000:1B:00.0");
	CHECK_EQ(h.gpu_id, 0x2b00);
	hand_close(&h);
	CHECK_EQ(fakenv_set("tamper", "uuid"), 0);
	hand_open(&h, "0000:1B:00.0");
	CHECK_EQ(cu.cuDeviceGetUuid(&cuda_uuid, 0), 0);
	uuid[4] = 2;
	CHECK_EQ(rm_control(&h, h.sub, 0x2080014a, uuid, 268), 0);
	CHECK(memcmp(uuid + 12, &cuda_uuid, 16));
	hand_close(&h);
}

/* Without admin rights, register memory is refused. */
static void register_memory(void)
{
	unsigned long long p;
	uint32_t client, memory, dup, args[3] = { 0 };
	uint64_t offset;
	struct hand h;
	struct map_args m;
	int fd;

	START("tamper", "dup_regmem", "admin", "0");
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 1 << 20), 0);
	hand_open(&h, NULL);
	locate(p, &client, &memory, &offset);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	args[0] = dup;
	CHECK_EQ(rm_control(&h, h.client, 0xd01, args, 12), 0);
	CHECK_EQ(args[2], 3);
	fd = open_dev(&h);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0x5f);
	CHECK_EQ(fakenv_set("admin", "1"), 0);
	CHECK_EQ(rm_map(&h, dup, 0, 4096, fd, &m), 0);
	CHECK_EQ(rm_unmap(&h, &m), 0);
	close(fd);
	CHECK_EQ(rm_free(&h, dup), 0);
	hand_close(&h);
}

static void contexts(void)
{
	void *c[2], *now;
	unsigned flags;
	int active, dev;
	size_t a, b;
	unsigned long long p;

	fakenv_reset();
	CHECK_EQ(fakenv_set("gpus", "2"), 0);
	CHECK_EQ(cu.cuDeviceGetCount(&dev), CUF_NOT_INITIALIZED);
	CHECK_EQ(cu.cuInit(0), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 64), CUF_INVALID_CONTEXT);
	CHECK_EQ(cu.cuCtxGetCurrent(&now), 0);
	CHECK(!now);
	CHECK_EQ(cu.cuDevicePrimaryCtxGetState(1, &flags, &active), 0);
	CHECK_EQ(active, 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRetain(&c[0], 1), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRetain(&c[0], 1), 0);
	CHECK_EQ(fakenv_get("contexts_created"), 1);
	CHECK_EQ(cu.cuCtxCreate_v2(&c[1], 0, 0), 0);
	CHECK_EQ(fakenv_get("contexts_created"), 2);
	CHECK_EQ(cu.cuCtxGetDevice(&dev), 0);
	CHECK_EQ(dev, 0);
	CHECK_EQ(cu.cuMemGetInfo_v2(&a, &b), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 64), 0);
	CHECK_EQ(cu.cuCtxPushCurrent_v2(c[0]), 0);
	CHECK_EQ(cu.cuCtxGetDevice(&dev), 0);
	CHECK_EQ(dev, 1);
	CHECK_EQ(cu.cuCtxPopCurrent_v2(&now), 0);
	CHECK(now == c[0]);
	CHECK_EQ(cu.cuCtxDestroy_v2(c[1]), 0);
	CHECK_EQ(fakenv_get("fb_used"), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRelease_v2(1), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRelease_v2(1), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRelease_v2(1), CUF_INVALID_CONTEXT);
	CHECK_EQ(cu.cuCtxSetCurrent(c[0]), CUF_INVALID_CONTEXT);
}

static void pointers(void)
{
	unsigned long long p, q, id[3], base;
	int attrs[3] = { CUF_PTR_BUFFER_ID, CUF_PTR_DEVICE_ORDINAL, CUF_PTR_IS_MANAGED };
	int ordinal = 7, managed = 7, type = 0;
	void *data[3] = { &id[2], &ordinal, &managed };
	size_t size;

	START("gpus", "1");
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 1000), 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&id[0], CUF_PTR_BUFFER_ID, p + 999), 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&id[1], CUF_PTR_BUFFER_ID, p + 1000), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemFree_v2(p), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&q, 1000), 0);
	CHECK_EQ(q, p);
	CHECK_EQ(cu.cuPointerGetAttribute(&id[1], CUF_PTR_BUFFER_ID, q), 0);
	CHECK(id[1] > id[0]);
	CHECK_EQ(cu.cuPointerGetAttributes(3, attrs, data, q), 0);
	CHECK(id[2] == id[1] && !ordinal && !managed);
	CHECK_EQ(cu.cuPointerGetAttributes(3, attrs, data, 0x1000), 0);
	CHECK(!id[2] && ordinal == -2);
	CHECK_EQ(cu.cuMemGetAddressRange_v2(&base, &size, q + 10), 0);
	CHECK(base == q && size == 1000);
	CHECK_EQ(cu.cuMemFree_v2(q), 0);
	CHECK_EQ(cu.cuMemAllocManaged(&p, 4096, 1), 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&managed, CUF_PTR_IS_MANAGED, p), 0);
	CHECK_EQ(managed, 1);
	*(volatile int *)(uintptr_t)p = 5;
	CHECK_EQ(cu.cuMemFree_v2(p), 0);
	CHECK_EQ(cu.cuMemAllocAsync(&p, 4096, (void *)2), 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&base, CUF_PTR_MEMPOOL, p), 0);
	CHECK(base != 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&type, CUF_PTR_MEMORY_TYPE, p), 0);
	CHECK_EQ(type, CUF_MEMORYTYPE_DEVICE);
	CHECK_EQ(cu.cuMemFreeAsync(p, (void *)2), 0);
	CHECK_EQ(fakenv_get("null_stream_uses"), 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&type, CUF_PTR_MEMORY_TYPE, (uintptr_t)&type),
		 CUF_INVALID_VALUE);
}

static void capture(void)
{
	unsigned long long p, q, id;
	void *stream, *graph;
	int mode = CUF_CAPTURE_RELAXED, status, fd;

	START("gpus", "1");
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 4096), 0);
	CHECK_EQ(cu.cuStreamCreate(&stream, 1), 0);
	/* harmless */
	CHECK_EQ(cu.cuStreamBeginCapture_v2(stream, CUF_CAPTURE_GLOBAL), 0);
	CHECK_EQ(cu.cuPointerGetAttribute(&id, CUF_PTR_BUFFER_ID, p), 0);
	CHECK_EQ(cu.cuMemGetHandleForAddressRange(&fd, p, 4096, 1, 0), 0);
	close(fd);
	CHECK_EQ(cu.cuMemcpyHtoDAsync_v2(p, big, 64, stream), 0);
	CHECK_EQ(cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
	CHECK_EQ(mode, CUF_CAPTURE_GLOBAL);
	CHECK_EQ(cu.cuMemAlloc_v2(&q, 4096), 0);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(q, big, 64), 0);
	CHECK_EQ(cu.cuMemFree_v2(q), 0);
	CHECK_EQ(cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
	CHECK_EQ(mode, CUF_CAPTURE_RELAXED);
	CHECK_EQ(cu.cuStreamIsCapturing(stream, &status), 0);
	CHECK_EQ(status, 1);
	CHECK_EQ(cu.cuStreamEndCapture(stream, &graph), 0);
	CHECK_EQ(cu.cuGraphDestroy(graph), 0);
	/* what breaks it */
	CHECK_EQ(cu.cuStreamBeginCapture_v2(stream, CUF_CAPTURE_GLOBAL), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&q, 4096), CUF_CAPTURE_UNSUPPORTED);
	CHECK_EQ(cu.cuStreamEndCapture(stream, &graph), CUF_CAPTURE_INVALIDATED);
	CHECK_EQ(fakenv_get("graphs_dropped"), 1);
	CHECK_EQ(cu.cuStreamDestroy_v2(stream), 0);
}

static void forked(void)
{
	unsigned long long p;
	uint32_t client, memory, dup;
	uint64_t offset;
	struct hand h;
	struct map_args m;
	int status, n, fd;
	pid_t pid;

	START("gpus", "1");
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 4096), 0);
	locate(p, &client, &memory, &offset);
	hand_open(&h, NULL);
	CHECK_EQ(rm_dup(&h, h.device, client, memory, &dup), 0);
	fd = open_dev(&h);
	pid = fork();
	if (!pid) {
		/* no CHECK here: it would go on with the parent's tests */
		uint32_t a[4] = { h.client, 0, dup };
		struct hand own = { .ctl = open("/dev/nvidiactl", O_RDWR) };
		uint32_t dup2;
		int bad = 0;

		bad |= cu.cuDeviceGetCount(&n) != CUF_NOT_INITIALIZED;
		bad |= cu.cuInit(0) != CUF_NOT_INITIALIZED;
		bad |= (rm_map(&h, dup, 0, 4096, fd, &m) != 0x23) << 1;
		bad |= (rm_dup(&h, h.device, client, memory, &dup2) != 0) << 2;
		bad |= (rm_alloc(&own, 0, 0x41, NULL, &own.client) != 0) << 3;
		bad |= (call(h.ctl, 0x29, 16, a) != 0 || a[3]) << 4;
		close(h.ctl);
		close(h.dev);
		_exit(bad);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	CHECK_EQ(fakenv_get("foreign_calls"), 1);
	CHECK_EQ(fakenv_get("dups"), 1); /* one made and one freed by the child */
	CHECK_EQ(fakenv_get("clients"), 2); /* the child's own went with it */
	close(fd);
	hand_close(&h);
	CHECK_EQ(fakenv_get("fds"), 2);
}

/* Makes the blob name the memory object @by handles further. */
static void name_object(struct cuf_ipc *blob, uint32_t by)
{
	uint32_t w = word(blob->reserved, 52) + by;

	memcpy(blob->reserved + 52, &w, 4);
}

/* Another process: shared only after cuIpcGetMemHandle(). */
static void ipc(void)
{
	unsigned long long p, not_shared, mine, mine2;
	struct cuf_ipc blob;
	int to[2], status;
	pid_t pid;

	fakenv_reset();
	CHECK_EQ(fakenv_set("gpus", "1"), 0);
	CHECK(!pipe(to));
	pid = fork();
	if (!pid) {
		int bad = cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&ctx, 0) ||
			  cu.cuCtxSetCurrent(ctx);

		bad |= (read(to[0], &blob, sizeof(blob)) != (ssize_t)sizeof(blob)) << 1;
		bad |= (cu.cuIpcOpenMemHandle_v2(&mine, blob, 1) != 0) << 2;
		name_object(&blob, 1);
		bad |= (cu.cuIpcOpenMemHandle_v2(&mine2, blob, 1) == 0) << 6;
		if (!bad) {
			bad |= (cu.cuMemcpyDtoH_v2(big, mine, 5000) != 0) << 3;
			bad |= (((char *)big)[4999] != 0x42) << 4;
			bad |= (cu.cuIpcCloseMemHandle(mine) != 0) << 5;
		}
		_exit(bad);
	}
	CHECK_EQ(cu.cuInit(0), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	CHECK_EQ(cu.cuCtxSetCurrent(ctx), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 5000), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&not_shared, 2 << 20), 0);
	memset(big, 0x42, 5000);
	CHECK_EQ(cu.cuMemcpyHtoD_v2(p, big, 5000), 0);
	CHECK_EQ(cu.cuIpcGetMemHandle(&blob, p), 0);
	CHECK_EQ(cu.cuIpcGetMemHandle(&blob, p), 0);
	CHECK_EQ(fakenv_get("shares_all"), 1);
	CHECK_EQ(cu.cuIpcOpenMemHandle_v2(&mine, blob, 1), CUF_INVALID_CONTEXT);
	CHECK(write(to[1], &blob, sizeof(blob)) == (ssize_t)sizeof(blob));
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	close(to[0]);
	close(to[1]);
	CHECK_EQ(fakenv_get("clients"), 1);
}

/* Allocates, maps, compares and frees; NULL or what went wrong. */
static void *worker(void *arg)
{
	const struct hand *h = arg;
	unsigned char buf[4096];

	if (cu.cuCtxSetCurrent(ctx))
		return "no context";
	for (unsigned i = 0; i < 60; i++) {
		uint32_t client, memory, d[7] = { h->client, h->device }, f[4] = { h->client };
		struct map_args m = { .client = h->client, .device = h->device, .length = 4096 };
		uint32_t ctl = (uint32_t)h->ctl, u[8] = { h->client, h->device };
		unsigned long long p;
		struct cuf_ipc blob;
		void *cpu;
		int fd;

		if (cu.cuMemAlloc_v2(&p, 3000 + 64 * i) || cu.cuIpcGetMemHandle(&blob, p))
			return "alloc";
		client = word(blob.reserved, 48);
		memory = word(blob.reserved, 52);
		d[3] = client;
		d[4] = memory;
		if (call(h->ctl, 0x34, 28, d) || d[6])
			return "dup";
		fd = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
		m.memory = f[2] = u[2] = d[2];
		m.fd = fd;
		m.offset = word(blob.reserved, 28) & ~4095u;
		if (fd < 0 || call(fd, 0xc9, 4, &ctl) || call(h->ctl, 0x4e, sizeof(m), &m) ||
		    m.status)
			return "map";
		cpu = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
		if (cpu == MAP_FAILED)
			return "mmap";
		memcpy(buf, (const char *)cpu, 4096);
		munmap(cpu, 4096);
		memcpy(&u[4], &m.address, 8);
		if (call(h->ctl, 0x4f, 32, u) || u[6] || call(h->ctl, 0x29, 16, f) || f[3])
			return "undo";
		if (cu.cuMemFree_v2(p))
			return "free";
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[4];
	struct hand h;
	long before[9];
	void *what[4];

	START("gpus", "1", "bar1", "dynamic");
	baseline(before);
	hand_open(&h, NULL);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, worker, &h));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], &what[i]);
	for (int i = 0; i < 4; i++)
		if (what[i])
			FAIL("thread: %s", (char *)what[i]);
	hand_close(&h);
	check_same(before);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(device_files), TEST(sequence), TEST(open_first), TEST(refusals),
		TEST(two_gpus),
		TEST(visible_devices), TEST(dup_lifetime), TEST(order), TEST(fixed), TEST(bar1),
		TEST(tap_arguments), TEST(dmabuf), TEST(dmabuf_quirks),
		 TEST(export_import), TEST(layouts), TEST(identity), TEST(tampering),
		TEST(wrong_identity), TEST(register_memory), TEST(contexts),
		TEST(pointers), TEST(capture), TEST(other_machines), TEST(forked), TEST(ipc),
		TEST(threads), { 0 }
	};

	load();
	return test_main(argc, argv, cases);
}
