/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What holds on a real GPU, through the public interface alone: random data, both directions,
 * checked by cuMemcpy. Arguments choose cases; the environment chooses routes (BARWAY_RM_ROUTES).
 */
#include <barway.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "held.h"
#include "hw/gpu.h"

static struct barway_context *ctx;

static void start(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };

	gpu_start();
	if (!ctx && barway_open(&o, &ctx))
		FAIL("barway_open: %s", barway_errmsg());
}

#define OK(call) do { \
	int ret_ = (call); \
	if (ret_ < 0) FAIL("%s: %d: %s", #call, ret_, barway_errmsg()); \
} while (0)
#define REFUSED(call, err, words) do { \
	int ret_ = (call); \
	if (ret_ != -(err)) FAIL("%s: %d (%s), expected -%s", #call, ret_, barway_errmsg(), #err); \
	CHECK_HAS(barway_errmsg(), words); \
} while (0)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static uint64_t seed = 1;
static uint64_t seam; /* where a second allocation begins: CUDA copies do not go over it */

/* cuMemcpyHtoD from pageable memory may return before the bytes have ARRIVED: wait for them. */
static void gpu_write(uint64_t addr, const void *src, size_t n)
{
	size_t first = addr < seam && seam < addr + n ? seam - addr : n;

	CU_OK(cuMemcpyHtoD_v2(addr, src, first));
	if (first < n)
		CU_OK(cuMemcpyHtoD_v2(seam, (const char *)src + first, n - first));
	CU_OK(cuCtxSynchronize());
}

static void gpu_read(void *dst, uint64_t addr, size_t n)
{
	size_t first = addr < seam && seam < addr + n ? seam - addr : n;

	CU_OK(cuMemcpyDtoH_v2(dst, addr, first));
	if (first < n)
		CU_OK(cuMemcpyDtoH_v2((char *)dst + first, seam, n - first));
}

/* Maps [addr, addr + n) and proves it with data: CPU to GPU, GPU to CPU, and nothing beside it. */
static void prove_range(uint64_t addr, size_t n, uint64_t base, size_t bytes)
{
	struct barway_mapping *m;
	unsigned char *want = malloc(bytes), *got = malloc(bytes);
	size_t off = addr - base;

	test_fill(want, bytes, ++seed);
	gpu_write(base, want, bytes);
	OK(barway_map(ctx, addr, n, NULL, &m));
	OK(barway_copy_from(m, got, 0, n));
	if (memcmp(got, want + off, n))
		FAIL("0x%llx + %zu: the CPU does not see what the GPU has",
		     (unsigned long long)addr, n);
	test_fill(want + off, n, ++seed);
	OK(barway_copy_to(m, 0, want + off, n));
	OK(barway_flush(m));
	gpu_read(got, base, bytes);
	if (memcmp(got, want, bytes))
		FAIL("0x%llx + %zu: the GPU does not see what the CPU wrote, or a byte beside it "
		     "changed", (unsigned long long)addr, n);
	/* through the pointer itself, the last byte */
	((volatile unsigned char *)barway_mapping_ptr(m))[n - 1] ^= 0xff;
	OK(barway_flush(m));
	CU_OK(cuMemcpyDtoH_v2(got, addr + n - 1, 1));
	CHECK_EQ(got[0], (unsigned char)(want[off + n - 1] ^ 0xff));
	OK(barway_unmap(m));
	free(want);
	free(got);
}

static void cudamalloc_offsets(void)
{
	uint64_t a[6];
	static const size_t sizes[6] = { 512, 600, 4096, 65536, 100000, 200000 };

	start();
	for (int i = 0; i < 6; i++)
		CU_OK(cuMemAlloc_v2(&a[i], sizes[i]));
	for (int i = 0; i < 6; i++) {
		prove_range(a[i], sizes[i], a[i], sizes[i]);
		prove_range(a[i] + 1, sizes[i] - 3, a[i], sizes[i]);
	}
	prove_range(a[5] + 512, 1000, a[5], sizes[5]);
	prove_range(a[5] + 4096, 4096, a[5], sizes[5]);
	prove_range(a[5] + 65536 + 8, 70000, a[5], sizes[5]);
	for (int i = 0; i < 6; i++)
		CU_OK(cuMemFree_v2(a[i]));
}

/* The first bytes of its page belong to memory that was freed. */
static void behind_a_freed_neighbour(void)
{
	uint64_t a, b, c;

	start();
	OK(barway_cache_flush(ctx));
	CU_OK(cuMemAlloc_v2(&a, 600));
	CU_OK(cuMemAlloc_v2(&b, 600));
	CU_OK(cuMemAlloc_v2(&c, 600));
	CU_OK(cuMemFree_v2(a));
	prove_range(b, 600, b, 600);
	CU_OK(cuMemFree_v2(b));
	prove_range(c, 600, c, 600);
	CU_OK(cuMemFree_v2(c));
}

static void all_sizes_and_alignments(void)
{
	uint64_t a;
	struct barway_mapping *m;
	unsigned char want[4096], got[4096], src[512];

	start();
	CU_OK(cuMemAlloc_v2(&a, sizeof(want)));
	OK(barway_map(ctx, a, sizeof(want), NULL, &m));
	for (size_t n = 0; n <= 300; n += n < 72 ? 1 : 7)
		for (size_t off = 0; off < 64; off += 3) {
			test_fill(want, sizeof(want), ++seed);
			gpu_write(a, want, sizeof(want));
			test_fill(src, sizeof(src), ++seed);
			OK(barway_copy_to(m, 1024 + off, src + off % 16, n));
			memcpy(want + 1024 + off, src + off % 16, n);
			CU_OK(cuMemcpyDtoH_v2(got, a, sizeof(got)));
			if (memcmp(got, want, sizeof(got)))
				FAIL("to the GPU: %zu bytes at %zu", n, off);
			memset(got, 0xaa, sizeof(got));
			OK(barway_copy_from(m, got + 1, 1024 + off, n));
			if (memcmp(got + 1, want + 1024 + off, n) || got[0] != 0xaa ||
			    got[n + 1] != 0xaa)
				FAIL("from the GPU: %zu bytes at %zu", n, off);
		}
	OK(barway_unmap(m));
	CU_OK(cuMemFree_v2(a));
}

static void adjacent_allocations(void)
{
	enum { N = 16 };
	uint64_t a[N];
	const size_t each = 2u << 20;
	int joined = 0;

	start();
	for (int i = 0; i < N; i++)
		CU_OK(cuMemAlloc_v2(&a[i], each));
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++)
			if (a[i] + each == a[k] && joined < 3) {
				seam = a[k];
				prove_range(a[i] + each - 5000, 10000, a[i], 2 * each);
				prove_range(a[i], 2 * each, a[i], 2 * each);
				seam = 0;
				joined++;
			}
	for (int i = 0; i < N; i++)
		CU_OK(cuMemFree_v2(a[i]));
	if (!joined)
		SKIP("no two allocations came to lie side by side");
}

struct vmm {
	uint64_t addr, handle[2];
	size_t bytes;
};

static void vmm_alloc(struct vmm *v, int handle_types, int rdma)
{
	struct cu_prop p = { .type = 1, .handle_types = handle_types, .location_type = 1,
			     .rdma = (unsigned char)rdma };
	struct cu_access access = { 1, 0, 3 };

	v->bytes = 4u << 20;
	CU_OK(cuMemAddressReserve(&v->addr, v->bytes, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		CU_OK(cuMemCreate(&v->handle[i], v->bytes / 2, &p, 0));
		CU_OK(cuMemMap(v->addr + (unsigned)i * v->bytes / 2, v->bytes / 2, 0,
			       v->handle[i], 0));
	}
	CU_OK(cuMemSetAccess(v->addr, v->bytes, &access, 1));
}

static void vmm_free(struct vmm *v)
{
	CU_OK(cuMemUnmap(v->addr, v->bytes));
	CU_OK(cuMemRelease(v->handle[0]));
	CU_OK(cuMemRelease(v->handle[1]));
	CU_OK(cuMemAddressFree(v->addr, v->bytes));
}

static void vmm_of(int handle_types, int rdma)
{
	struct vmm v;
	size_t half;

	start();
	vmm_alloc(&v, handle_types, rdma);
	half = v.bytes / 2;
	prove_range(v.addr + 100, 5000, v.addr, half);
	prove_range(v.addr + half + 65536 + 8, 100000, v.addr + half, half);
	prove_range(v.addr + half - 70001, 140000, v.addr, v.bytes); /* over both handles */
	prove_range(v.addr, v.bytes, v.addr, v.bytes);
	vmm_free(&v);
}

static void vmm_with_handle_type(void)
{
	vmm_of(1, 0);
}

static void vmm_without_handle_type(void)
{
	vmm_of(0, 0);
}

static void vmm_with_rdma_flag(void)
{
	vmm_of(1, 1);
}

static void pool(void)
{
	uint64_t a[4];
	static const size_t sizes[4] = { 100000, 600, 3000000, 65536 };
	void *stream;

	start();
	CU_OK(cuStreamCreate(&stream, 1));
	for (int i = 0; i < 4; i++)
		CU_OK(cuMemAllocAsync(&a[i], sizes[i], stream));
	CU_OK(cuStreamSynchronize(stream));
	for (int i = 0; i < 4; i++) {
		prove_range(a[i], sizes[i], a[i], sizes[i]);
		prove_range(a[i] + sizes[i] / 2, sizes[i] / 3, a[i], sizes[i]);
	}
	/* the pool's first block freed, then reused: never the old one's identity */
	CU_OK(cuMemFreeAsync(a[0], stream));
	CU_OK(cuStreamSynchronize(stream));
	prove_range(a[2], sizes[2], a[2], sizes[2]);
	CU_OK(cuMemAllocAsync(&a[0], sizes[0], stream));
	CU_OK(cuStreamSynchronize(stream));
	prove_range(a[0], sizes[0], a[0], sizes[0]);
	for (int i = 0; i < 4; i++)
		CU_OK(cuMemFreeAsync(a[i], stream));
	CU_OK(cuStreamSynchronize(stream));
	CU_OK(cuStreamDestroy_v2(stream));
}

static void barway_memory(void)
{
	struct barway_device *dev;
	uint64_t a;

	start();
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_mem_alloc(dev, 300000, &a));
	prove_range(a + 3, 299990, a, 300000);
	OK(barway_mem_free(ctx, a));
	REFUSED(barway_mem_free(ctx, a), EINVAL, "freed before");
}

struct no_context {
	const char *failed;
	uint64_t addr;
};

static void *without_context(void *arg)
{
	struct no_context *n = arg;
	const char **failed = &n->failed;
	struct barway_mapping *m;
	unsigned char b[256], c[256];
	void *current = (void *)1;

	test_fill(b, sizeof(b), 77);
	if (barway_map(ctx, n->addr, 300, NULL, &m))
		*failed = barway_errmsg();
	else if (barway_copy_to(m, 11, b, 256) ||
		 barway_copy_from_by(m, BARWAY_METHOD_CE, c, 11, 256))
		*failed = barway_errmsg();
	else if (memcmp(b, c, 256))
		*failed = "data differ";
	else if (barway_unmap(m))
		*failed = barway_errmsg();
	else if (gpu.cuCtxGetCurrent(&current) || current)
		*failed = "a context was left current";
	if (*failed)
		*failed = strdup(*failed);
	return NULL;
}

static void thread_without_context(void)
{
	struct no_context a = { NULL, 0 };
	struct vmm v;
	pthread_t t;

	start();
	CU_OK(cuMemAlloc_v2(&a.addr, 300));
	CHECK_EQ(pthread_create(&t, NULL, without_context, &a), 0);
	pthread_join(t, NULL);
	if (a.failed)
		FAIL("cudaMalloc memory: %s", a.failed);
	CU_OK(cuMemFree_v2(a.addr));
	vmm_alloc(&v, 0, 0); /* no context owns it */
	a.addr = v.addr;
	CHECK_EQ(pthread_create(&t, NULL, without_context, &a), 0);
	pthread_join(t, NULL);
	if (a.failed)
		FAIL("VMM memory: %s", a.failed);
	vmm_free(&v);
}

static void memory_of_another_context(void)
{
	void *other, *current = NULL;
	uint64_t a;

	start();
	CU_OK(cuCtxCreate_v2(&other, 0, gpu.device));
	CU_OK(cuMemAlloc_v2(&a, 70000));
	CU_OK(cuCtxSetCurrent(gpu.ctx));
	prove_range(a + 9, 65536, a, 70000);
	CU_OK(cuCtxGetCurrent(&current));
	CHECK(current == gpu.ctx);
	CU_OK(cuCtxDestroy_v2(other));
}

static void in_a_stream_capture(void)
{
	void *stream, *graph = NULL;
	struct barway_mapping *m;
	unsigned char b[512], c[512];
	uint64_t a;
	int r1, r2, r3, r4;

	start();
	/* the first mapping on the device too, with its self-test */
	OK(barway_release_all(ctx, 0));
	CU_OK(cuMemAlloc_v2(&a, 4096));
	CU_OK(cuStreamCreate(&stream, 1));
	test_fill(b, sizeof(b), ++seed);
	CU_OK(cuStreamBeginCapture_v2(stream, 0)); /* global mode */
	r1 = barway_map(ctx, a, 4096, NULL, &m);
	r2 = r1 ? r1 : barway_copy_to(m, 77, b, sizeof(b));
	r3 = r2 ? r2 : barway_copy_from_by(m, BARWAY_METHOD_CE, c, 77, sizeof(c));
	r4 = r3 ? r3 : barway_unmap(m);
	if (r4)
		fprintf(stderr, "in the capture: %s\n", barway_errmsg());
	CU_OK(cuStreamEndCapture(stream, &graph));
	CHECK(!r1 && !r2 && !r3 && !r4);
	CHECK(!memcmp(b, c, sizeof(b)));
	CHECK(graph != NULL);
	CU_OK(cuGraphDestroy(graph));
	CU_OK(cuStreamDestroy_v2(stream));
	CU_OK(cuMemFree_v2(a));
}

static void kinds_that_cannot_be_mapped(void)
{
	struct barway_mapping *m;
	uint64_t a;
	void *p;
	char host[64];

	start();
	CU_OK(cuMemAllocManaged(&a, 65536, 1));
	REFUSED(barway_map(ctx, a, 100, NULL, &m), ENOTSUP, "anaged");
	CU_OK(cuMemFree_v2(a));
	CU_OK(cuMemAllocHost_v2(&p, 65536));
	REFUSED(barway_map(ctx, (uintptr_t)p, 100, NULL, &m), ENOTSUP, "inned");
	CU_OK(cuMemFreeHost(p));
	REFUSED(barway_map(ctx, (uintptr_t)host, 10, NULL, &m), EFAULT, "plain host memory");
	CU_OK(cuMemAlloc_v2(&a, 1000));
	REFUSED(barway_map(ctx, a, 5000, NULL, &m), EFAULT, "ends beyond");
	CU_OK(cuMemFree_v2(a));
	REFUSED(barway_map(ctx, a, 100, NULL, &m), EFAULT, "was freed");
}

static void host_vmm_is_refused(void)
{
	struct cu_prop p = { .type = 1, .location_type = 3 };
	struct cu_access access = { 1, 0, 3 };
	struct barway_mapping *m;
	uint64_t handle, addr;

	start();
	if (gpu.cuMemCreate(&handle, 2u << 20, &p, 0))
		SKIP("the driver makes no host VMM memory");
	CU_OK(cuMemAddressReserve(&addr, 2u << 20, 0, 0, 0));
	CU_OK(cuMemMap(addr, 2u << 20, 0, handle, 0));
	CU_OK(cuMemSetAccess(addr, 2u << 20, &access, 1));
	REFUSED(barway_map(ctx, addr, 100, NULL, &m), ENOTSUP, "host");
	CU_OK(cuMemUnmap(addr, 2u << 20));
	CU_OK(cuMemRelease(handle));
	CU_OK(cuMemAddressFree(addr, 2u << 20));
}

static int child_imports(const struct cu_ipc *ipc)
{
	struct barway_context *c;
	struct barway_mapping *m;
	struct barway_pointer_info info = { .size = sizeof(info) };
	uint64_t a;
	void *cu;
	int dev;

	if (gpu.cuInit(0) || gpu.cuDeviceGet(&dev, 0) || gpu.cuDevicePrimaryCtxRetain(&cu, dev) ||
	    gpu.cuCtxSetCurrent(cu) || gpu.cuIpcOpenMemHandle_v2(&a, *ipc, 1) ||
	    barway_open(NULL, &c))
		return 2;
	if (barway_pointer_query(c, a, &info) || info.kind != BARWAY_MEM_IMPORTED || info.mappable)
		return 3;
	return barway_map(c, a, 100, NULL, &m) == -ENOTSUP &&
	       strstr(barway_errmsg(), "process that allocated it") ? 0 : 4;
}

/* A child that never saw CUDA, forked before the parent did: see main(). */
static int ipc_pipe[2], ipc_answer[2];
static pid_t ipc_child;

static void imported_memory_is_refused(void)
{
	struct cu_ipc ipc;
	char answer = 9;
	uint64_t a;

	start();
	CU_OK(cuMemAlloc_v2(&a, 4u << 20));
	CU_OK(cuIpcGetMemHandle(&ipc, a));
	CHECK_EQ(write(ipc_pipe[1], &ipc, sizeof(ipc)), sizeof(ipc));
	CHECK_EQ(read(ipc_answer[0], &answer, 1), 1);
	CHECK_EQ(answer, 0);
	CU_OK(cuMemFree_v2(a));
}

static void start_ipc_child(void)
{
	if (pipe(ipc_pipe) || pipe(ipc_answer))
		exit(1);
	ipc_child = fork();
	if (!ipc_child) {
		struct cu_ipc ipc;
		char answer;

		close(ipc_pipe[1]);
		if (read(ipc_pipe[0], &ipc, sizeof(ipc)) != sizeof(ipc))
			_exit(0);
		switch (setjmp(test_jump)) {
		case 0:
			gpu_start();
			answer = (char)child_imports(&ipc);
			break;
		default:
			answer = 5;
		}
		if (write(ipc_answer[1], &answer, 1) != 1)
			_exit(1);
		read(ipc_pipe[0], &ipc, 1); /* keeps the import until the parent is done */
		_exit(0);
	}
	close(ipc_pipe[0]);
}

static void a_stale_address_is_never_hit(void)
{
	struct barway_mapping *m;
	unsigned char b[64], c[64];
	uint64_t a, again;
	int same = 0;

	start();
	for (int i = 0; i < 50; i++) {
		CU_OK(cuMemAlloc_v2(&a, 2u << 20));
		OK(barway_map(ctx, a, 65536, NULL, &m));
		OK(barway_unmap(m)); /* now in the cache */
		CU_OK(cuMemFree_v2(a));
		REFUSED(barway_map(ctx, a, 65536, NULL, &m), EFAULT, "freed");
		CU_OK(cuMemAlloc_v2(&again, 2u << 20));
		same += again == a;
		test_fill(b, sizeof(b), ++seed);
		gpu_write(again, b, sizeof(b));
		OK(barway_map(ctx, again, 65536, NULL, &m));
		OK(barway_copy_from(m, c, 0, sizeof(c)));
		CHECK(!memcmp(b, c, sizeof(b)));
		OK(barway_unmap(m));
		CU_OK(cuMemFree_v2(again));
	}
	printf("hw_test: the address was the same again in %d of 50\n", same);
}

static void freed_under_a_mapping(void)
{
	struct barway_mapping *m;
	struct barway_mapping_info info = { .size = sizeof(info) };
	unsigned char b[4096], c[4096], *other;
	uint64_t a, more[8];

	start();
	CU_OK(cuMemAlloc_v2(&a, 4u << 20));
	test_fill(b, sizeof(b), ++seed);
	OK(barway_map(ctx, a, 4u << 20, NULL, &m));
	OK(barway_mapping_query(m, &info));
	CHECK_EQ(info.keeps_alive, 1);
	OK(barway_copy_to(m, 0, b, sizeof(b)));
	CU_OK(cuMemFree_v2(a));
	other = malloc(4u << 20);
	memset(other, 0x5a, 4u << 20);
	for (int i = 0; i < 8; i++) { /* others take what is free: never what we still see */
		CU_OK(cuMemAlloc_v2(&more[i], 4u << 20));
		gpu_write(more[i], other, 4u << 20);
	}
	OK(barway_copy_from(m, c, 0, sizeof(c)));
	CHECK(!memcmp(b, c, sizeof(b)));
	memset(b, 0xa5, sizeof(b));
	OK(barway_copy_to(m, 0, b, sizeof(b)));
	OK(barway_flush(m));
	for (int i = 0; i < 8; i++) {
		CU_OK(cuMemcpyDtoH_v2(other, more[i], 4u << 20));
		for (size_t k = 0; k < 4u << 20; k++)
			if (other[k] != 0x5a)
				FAIL("a store through the old mapping reached somebody else's "
				     "memory");
		CU_OK(cuMemFree_v2(more[i]));
	}
	OK(barway_unmap(m));
	free(other);
}

static size_t free_memory(void)
{
	size_t free_bytes = 0, total;

	CU_OK(cuMemGetInfo_v2(&free_bytes, &total));
	return free_bytes;
}

static void freeing_frees(void)
{
	struct barway_mapping *m;
	uint64_t a;
	size_t before, after, small;
	const size_t big = 8ull << 30;

	start();
	OK(barway_cache_flush(ctx));
	before = free_memory();
	if (before < big + (1ull << 30))
		SKIP("less than 9 GiB free");
	for (int i = 0; i < 20; i++) {
		CU_OK(cuMemAlloc_v2(&a, big));
		OK(barway_map(ctx, a, big, NULL, &m));
		OK(barway_unmap(m));
		CU_OK(cuMemFree_v2(a));
		after = free_memory();
		if (after < before)
			FAIL("round %d: %zu bytes of GPU memory did not come back", i,
			     before - after);
	}
	/* small ones stay in the cache at most until the next sweep */
	CU_OK(cuMemAlloc_v2(&a, 4u << 20));
	OK(barway_map(ctx, a, 4u << 20, NULL, &m));
	OK(barway_unmap(m));
	CU_OK(cuMemFree_v2(a));
	usleep(300000);
	small = free_memory();
	CHECK_EQ(small, before);
}

static long resident_kib(void)
{
	char line[256];
	long kib = -1;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static void cycles_of(uint32_t flags, int n)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = flags };
	struct barway_device *dev;
	struct barway_device_info before = { .size = sizeof(before) },
				  after = { .size = sizeof(after) };
	struct barway_mapping *m;
	uint64_t a;
	long rss = 0;
	int fds = 0;

	start();
	OK(barway_device_get(ctx, 0, &dev));
	CU_OK(cuMemAlloc_v2(&a, 200000));
	for (int i = 0; i < n; i++) {
		if (i == n / 10) {
			rss = resident_kib();
			fds = open_files();
			OK(barway_device_query(dev, &before));
		}
		OK(barway_map(ctx, a + (unsigned)i % 1000, 65536, &o, &m));
		OK(barway_unmap(m));
	}
	CHECK_EQ(open_files(), fds);
	OK(barway_device_query(dev, &after));
	/* other users of the GPU move it too; a leak of one page a cycle would be 200 GiB */
	CHECK(after.bar1_free + (2u << 20) >= before.bar1_free);
	CHECK(after.memory_free + (2u << 20) >= before.memory_free);
	if (resident_kib() > rss + 512)
		FAIL("resident memory grew from %ld to %ld KiB", rss, resident_kib());
	CU_OK(cuMemFree_v2(a));
}

static void cycles_cached(void)
{
	cycles_of(0, 100000);
}

static void cycles_uncached(void)
{
	cycles_of(BARWAY_MAP_UNCACHED, 100000);
}

static void fork_leaves_the_parent_alone(void)
{
	struct barway_mapping *m;
	unsigned char b[64], c[64];
	uint64_t a;
	pid_t pid;
	int status;

	start();
	CU_OK(cuMemAlloc_v2(&a, 65536));
	OK(barway_map(ctx, a, 65536, NULL, &m));
	test_fill(b, sizeof(b), ++seed);
	OK(barway_copy_to(m, 0, b, sizeof(b)));
	for (int touch = 0; touch < 2; touch++) {
		volatile unsigned char *p = barway_mapping_ptr(m);

		pid = fork();
		if (!pid) {
			struct barway_mapping *other;

			if (touch) {
				signal(SIGSEGV, SIG_DFL);
				*p = 1; /* faults */
				_exit(9);
			}
			_exit(barway_copy_to(m, 0, b, 8) != -ESTALE || barway_unmap(m) != -ESTALE ||
			      barway_map(ctx, a, 100, NULL, &other) != -ESTALE ||
			      barway_close(ctx) != -ESTALE);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (touch)
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		else
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	OK(barway_copy_from(m, c, 0, sizeof(c)));
	CHECK(!memcmp(b, c, sizeof(b)));
	OK(barway_unmap(m));
	OK(barway_map(ctx, a + 100, 30000, NULL, &m));
	OK(barway_unmap(m));
	CU_OK(cuMemFree_v2(a));
}

static void release_all(void)
{
	struct barway_mapping *m, *again;
	uint64_t a;

	start();
	CU_OK(cuMemAlloc_v2(&a, 65536));
	OK(barway_map(ctx, a, 65536, NULL, &m));
	REFUSED(barway_release_all(ctx, 0), EBUSY, "in use");
	OK(barway_release_all(ctx, BARWAY_RELEASE_FORCE));
	OK(barway_map(ctx, a, 65536, NULL, &again));
	prove_range(a, 65536, a, 65536);
	OK(barway_unmap(again));
	OK(barway_unmap(m));
	CU_OK(cuMemFree_v2(a));
}

struct worker {
	pthread_t thread;
	uint64_t addr;
	int rounds;
	char failed[256];
};

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned char b[3000], c[3000];
	struct barway_mapping *m;
	uint64_t state = w->addr | 1;

	for (int i = 0; i < w->rounds; i++) {
		size_t off = test_random(&state) % 30000, n = 1 + test_random(&state) % sizeof(b);
		struct barway_map_options o = {
			.size = sizeof(o), .flags = i % 8 ? 0 : BARWAY_MAP_UNCACHED,
		};

		test_fill(b, n, test_random(&state));
		if (barway_map(ctx, w->addr + off, n, &o, &m) || barway_copy_to(m, 0, b, n) ||
		    barway_copy_from(m, c, 0, n) || barway_unmap(m)) {
			snprintf(w->failed, sizeof(w->failed), "%s", barway_errmsg());
			break;
		}
		if (memcmp(b, c, n)) {
			snprintf(w->failed, sizeof(w->failed), "data differ in round %d", i);
			break;
		}
	}
	return NULL;
}

static void threads(void)
{
	enum { N = 8 };
	struct worker w[N] = { { .rounds = 0 } };

	start();
	for (int i = 0; i < N; i++) {
		w[i].rounds = 3000;
		CU_OK(cuMemAlloc_v2(&w[i].addr, 40000)); /* they share pages */
	}
	for (int i = 0; i < N; i++)
		CHECK_EQ(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	for (int i = 0; i < N; i++)
		pthread_join(w[i].thread, NULL);
	for (int i = 0; i < N; i++) {
		if (w[i].failed[0])
			FAIL("thread %d: %s", i, w[i].failed);
		CU_OK(cuMemFree_v2(w[i].addr));
	}
}

/* ---- VISIBLE: a kernel that is already running ----------------------------------------------- */

/*
 * watch(flag, data, n, out, rounds): for each round waits until *flag is the round (acquire, system
 * scope), adds up n 8-byte words of data (relaxed, system scope) and answers in out. Leaves when it
 * waited for more than 2^28 looks, so that a lost flag cannot hang the GPU.
 */
static const char watch_ptx[] =
	".version 6.4\n.target sm_70\n.address_size 64\n"
	".visible .entry watch(.param .u64 pf, .param .u64 pd, .param .u64 pn, .param .u64 po,\n"
	" .param .u64 pr)\n{\n"
	" .reg .u64 %f, %d, %n, %o, %r, %i, %v, %s, %k, %a, %w;\n .reg .pred %p;\n"
	" ld.param.u64 %f, [pf];\n ld.param.u64 %d, [pd];\n ld.param.u64 %n, [pn];\n"
	" ld.param.u64 %o, [po];\n ld.param.u64 %r, [pr];\n mov.u64 %i, 1;\n"
	"ROUND:\n setp.gt.u64 %p, %i, %r;\n @%p bra DONE;\n mov.u64 %w, 0;\n"
	"WAIT:\n add.u64 %w, %w, 1;\n setp.gt.u64 %p, %w, 268435456;\n @%p bra DONE;\n"
	" ld.acquire.sys.u64 %v, [%f];\n setp.lt.u64 %p, %v, %i;\n @%p bra WAIT;\n"
	" mov.u64 %s, 0;\n mov.u64 %k, 0;\n"
	"SUM:\n setp.ge.u64 %p, %k, %n;\n @%p bra ANSWER;\n"
	" mad.lo.u64 %a, %k, 8, %d;\n ld.relaxed.sys.u64 %v, [%a];\n add.u64 %s, %s, %v;\n"
	" add.u64 %k, %k, 1;\n bra SUM;\n"
	"ANSWER:\n st.relaxed.sys.u64 [%o+8], %s;\n st.release.sys.u64 [%o], %i;\n"
	" add.u64 %i, %i, 1;\n bra ROUND;\n"
	"DONE:\n ret;\n}\n";

/* Who tells the kernel that the data is there: each store goes behind the data's in its own way. */
enum flag {
	FLAG_IN_GPU_MEMORY,
	FLAG_AFTER_FLUSH, /* in pinned memory */
	FLAG_AFTER_FENCE, /* the same: no load from GPU memory keeps it back */
};

static void watch(enum flag where)
{
	enum { WORDS = 96, ROUNDS = 20000 };
	void *module, *kernel, *stream;
	struct barway_mapping *m;
	struct barway_device *dev;
	uint64_t a, flag, words[WORDS], n = WORDS, rounds = ROUNDS, sum, out_addr;
	volatile uint64_t *host;
	void *pinned;
	double deadline;

	start();
	CU_OK(cuModuleLoadData(&module, watch_ptx));
	CU_OK(cuModuleGetFunction(&kernel, module, "watch"));
	CU_OK(cuMemAlloc_v2(&a, 65536));
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_host_alloc(dev, 4096, &pinned, &out_addr));
	CU_OK(cuStreamCreate(&stream, 1));
	memset(pinned, 0, 4096);
	host = pinned;
	OK(barway_map(ctx, a, 65536, NULL, &m));
	memset(words, 0, sizeof(words));
	OK(barway_copy_to(m, 0, words, 8));
	OK(barway_flush(m));
	flag = where == FLAG_IN_GPU_MEMORY ? a : out_addr + 1024;
	a += 256;
	{
		void *args[] = { &flag, &a, &n, &out_addr, &rounds };

		CU_OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	}
	for (uint64_t r = 1; r <= ROUNDS; r++) {
		sum = 0;
		for (int i = 0; i < WORDS; i++)
			sum += words[i] = test_random(&seed);
		OK(barway_copy_to(m, 256, words, sizeof(words)));
		if (where == FLAG_IN_GPU_MEMORY) {
			OK(barway_copy_to(m, 0, &r, 8));
		} else {
			/* the flag goes another way than the data */
			if (where == FLAG_AFTER_FLUSH)
				OK(barway_flush(m));
			else
				barway_fence_publish();
			__atomic_store_n((uint64_t *)((char *)pinned + 1024), r, __ATOMIC_RELEASE);
		}
		deadline = now_us() + 2e6;
		while (__atomic_load_n(&host[0], __ATOMIC_ACQUIRE) != r)
			if (now_us() > deadline)
				FAIL("round %llu: the kernel does not see the flag",
				     (unsigned long long)r);
		if (host[1] != sum)
			FAIL("round %llu: the kernel saw old data behind a new flag",
			     (unsigned long long)r);
	}
	CU_OK(cuStreamSynchronize(stream));
	OK(barway_unmap(m));
	CU_OK(cuStreamDestroy_v2(stream));
	OK(barway_host_free(ctx, pinned));
	CU_OK(cuMemFree_v2(a - 256));
	CU_OK(cuModuleUnload(module));
}

static void flag_after_data(void)
{
	watch(FLAG_IN_GPU_MEMORY);
}

static void flush_makes_visible(void)
{
	watch(FLAG_AFTER_FLUSH);
}

/* What network transfers rely on before they say VISIBLE, where the driver promises it. */
static void ordered_without_a_flush(void)
{
	enum { WRITES_ORDERING = 118, OWNER = 100 };
	int ordering = 0;

	start();
	CU_OK(cuDeviceGetAttribute(&ordering, WRITES_ORDERING, gpu.device));
	if (ordering < OWNER)
		SKIP("the driver promises no order of what comes in: %d", ordering);
	watch(FLAG_AFTER_FENCE);
}

/* ---- pinned memory; what kernels have to do with it: watch() above --------------------------- */

/* CUDA copies @n bytes from and to @p, which it has to know as pinned. */
static void prove_pinned(void *p, size_t n)
{
	struct barway_pointer_info info = { .size = sizeof(info) };
	unsigned char *want = malloc(n);
	uint64_t a;

	OK(barway_pointer_query(ctx, (uintptr_t)p, &info));
	CHECK_EQ(info.kind, BARWAY_MEM_PINNED);
	CHECK_EQ(info.mappable, 0);
	OK(barway_pointer_query(ctx, (uintptr_t)p + n - 1, &info));
	CHECK_EQ(info.kind, BARWAY_MEM_PINNED);
	CU_OK(cuMemAlloc_v2(&a, n));
	test_fill(want, n, ++seed);
	memcpy(p, want, n);
	gpu_write(a, p, n);
	memset(p, 0, n);
	gpu_read(p, a, n);
	CHECK(!memcmp(p, want, n));
	CU_OK(cuMemFree_v2(a));
	free(want);
}

static void pinned_memory(void)
{
	static const size_t sizes[] = { 1, 600, 4096, 4097, 100000, 8u << 20 };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	struct barway_device *dev;
	void *p[N], *theirs;
	uint64_t addr;

	start();
	OK(barway_device_get(ctx, 0, &dev));
	CU_OK(cuMemAllocHost_v2(&theirs, 600)); /* the driver puts small ones side by side */
	for (int i = 0; i < N; i++) {
		OK(barway_host_alloc(dev, sizes[i], &p[i], &addr));
		CHECK(addr && !((uintptr_t)p[i] % 4096));
		prove_pinned(p[i], sizes[i]);
	}
	for (int i = 0; i < N; i++) {
		REFUSED(barway_host_unregister(ctx, p[i]), EINVAL, "not registered");
		OK(barway_host_free(ctx, p[i]));
		REFUSED(barway_host_free(ctx, p[i]), EINVAL, "freed before");
	}
	REFUSED(barway_host_free(ctx, theirs), EINVAL, "barway_host_alloc()");
	REFUSED(barway_host_alloc(dev, (size_t)1 << 60, &p[0], &addr), ENOMEM, "pinned");
	CU_OK(cuMemFreeHost(theirs));
}

static void registered_memory(void)
{
	const size_t bytes = 300000;
	unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				-1, 0);
	void *pinned, *locked = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct barway_mapping *m;
	struct barway_device *dev;
	uint64_t addr, a;

	start();
	CHECK(p != MAP_FAILED && locked != MAP_FAILED);
	OK(barway_device_get(ctx, 0, &dev));
	for (int i = 0; i < 3; i++) {
		OK(barway_host_register(dev, p + 77, 200000, &addr));
		CHECK_EQ(addr % 4096, 77);
		prove_pinned(p + 77, 200000);
		REFUSED(barway_host_register(dev, p + 77, 200000, &addr), EEXIST, "already");
		REFUSED(barway_host_register(dev, p + 200000, 10, &addr), EEXIST, "already");
		OK(barway_host_unregister(ctx, p + 77));
		REFUSED(barway_host_unregister(ctx, p + 77), EINVAL, "not registered");
	}
	CU_OK(cuMemAllocHost_v2(&pinned, 65536));
	REFUSED(barway_host_register(dev, pinned, 65536, &addr), EEXIST, "already");
	CU_OK(cuMemFreeHost(pinned));
	REFUSED(barway_host_register(dev, locked, 100, &addr), ENOTSUP, "cannot be pinned");
	CU_OK(cuMemAlloc_v2(&a, 65536));
	OK(barway_map(ctx, a, 65536, NULL, &m));
	REFUSED(barway_host_register(dev, barway_mapping_ptr(m), 65536, &addr), ENOTSUP,
		"cannot be pinned");
	OK(barway_unmap(m));
	CU_OK(cuMemFree_v2(a));
	munmap(p, bytes);
	REFUSED(barway_host_register(dev, p, 100, &addr), ENOTSUP, "cannot be pinned");
	munmap(locked, 4096);
}

static void pinned_in_a_stream_capture(void)
{
	unsigned char *mine = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *stream, *graph = NULL, *p = NULL;
	struct barway_device *dev;
	uint64_t addr;
	int r1, r2, r3, r4;

	start();
	CHECK(mine != MAP_FAILED);
	OK(barway_device_get(ctx, 0, &dev));
	CU_OK(cuStreamCreate(&stream, 1));
	CU_OK(cuStreamBeginCapture_v2(stream, 0)); /* global mode */
	r1 = barway_host_alloc(dev, 100000, &p, &addr);
	r2 = barway_host_register(dev, mine, 65536, &addr);
	r3 = r2 ? r2 : barway_host_unregister(ctx, mine);
	r4 = r1 ? r1 : barway_host_free(ctx, p);
	CU_OK(cuStreamEndCapture(stream, &graph));
	if (r1 || r2 || r3 || r4)
		FAIL("%d %d %d %d: %s", r1, r2, r3, r4, barway_errmsg());
	CHECK(graph != NULL);
	CU_OK(cuGraphDestroy(graph));
	CU_OK(cuStreamDestroy_v2(stream));
	munmap(mine, 65536);
}

/* MemFree of a NUMA node, KiB; -1: not said */
static long node_free(int node)
{
	char path[96], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Node %*d MemFree: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static void pinned_near_the_gpu(void)
{
	struct barway_device_info info = { .size = sizeof(info) };
	const size_t bytes = 1u << 30;
	struct barway_device *dev;
	long before, after;
	void *p;

	start();
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_device_query(dev, &info));
	if (info.numa_node < 0 || access("/sys/devices/system/node/node1", F_OK))
		SKIP("one NUMA node");
	before = node_free(info.numa_node);
	if (before < 4l << 20)
		SKIP("less than 4 GiB free on node %d", info.numa_node);
	OK(barway_host_alloc(dev, bytes, &p, NULL));
	after = node_free(info.numa_node);
	OK(barway_host_free(ctx, p));
	printf("hw_test: of 1 GiB of pinned memory %ld MiB came from node %d\n",
	       (before - after) / 1024, info.numa_node);
	CHECK(before - after > 512 * 1024); /* others allocate and free meanwhile */
}

/* ---- several GPUs ---------------------------------------------------------------------------- */

static void every_gpu(void)
{
	int n = 0;
	void *other;

	start();
	CU_OK(cuDeviceGetCount(&n));
	if (n < 2)
		SKIP("one GPU");
	for (int i = 0; i < n; i++) {
		struct barway_device *dev;
		struct barway_device_info info = { .size = sizeof(info) };
		struct barway_pointer_info p = { .size = sizeof(p) };
		char pci[32];
		uint64_t a;

		CU_OK(cuDevicePrimaryCtxRetain(&other, i));
		CU_OK(cuCtxSetCurrent(other));
		CU_OK(cuMemAlloc_v2(&a, 100000));
		CU_OK(cuDeviceGetPCIBusId(pci, sizeof(pci), i));
		/* the pointer of another GPU than the current one */
		CU_OK(cuCtxSetCurrent(gpu.ctx));
		OK(barway_pointer_query(ctx, a, &p));
		OK(barway_device_query(p.device, &info));
		CHECK(!strcasecmp(info.pci, pci));
		CU_OK(cuCtxSetCurrent(other));
		prove_range(a + 5, 99990, a, 100000);
		CU_OK(cuCtxSetCurrent(gpu.ctx));
		prove_range(a + 5, 99990, a, 100000);
		OK(barway_device_get(ctx, i, &dev));
		CHECK(dev == p.device);
		CU_OK(cuMemFree_v2(a));
	}
}

/* One range over memory of two GPUs: two handles side by side, each on its own device. */
static void one_range_over_two_gpus(void)
{
	struct cu_prop p = { .type = 1, .location_type = 1 };
	struct cu_access access[2] = { { 1, 0, 3 }, { 1, 1, 3 } };
	struct barway_mapping *m;
	struct barway_mapping_info info = { .size = sizeof(info) };
	const size_t half = 2u << 20;
	unsigned char *want, *got;
	uint64_t addr, handle[2];
	void *other;
	int n = 0;

	start();
	CU_OK(cuDeviceGetCount(&n));
	if (n < 2)
		SKIP("one GPU");
	CU_OK(cuDevicePrimaryCtxRetain(&other, 1));
	CU_OK(cuMemAddressReserve(&addr, 2 * half, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		p.location_id = i;
		CU_OK(cuMemCreate(&handle[i], half, &p, 0));
		CU_OK(cuMemMap(addr + (unsigned)i * half, half, 0, handle[i], 0));
		CU_OK(cuMemSetAccess(addr + (unsigned)i * half, half, &access[i], 1));
	}
	want = malloc(100000);
	got = malloc(100000);
	OK(barway_map(ctx, addr + half - 50000, 100000, NULL, &m));
	OK(barway_mapping_query(m, &info));
	CHECK_EQ(info.pieces, 2);
	test_fill(want, 100000, ++seed);
	OK(barway_copy_to(m, 0, want, 100000));
	OK(barway_flush(m));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, got, 0, 100000));
	CHECK(!memcmp(want, got, 100000));
	CU_OK(cuMemcpyDtoH_v2(got, addr + half - 50000, 50000));
	CHECK(!memcmp(want, got, 50000));
	CU_OK(cuCtxSetCurrent(other));
	CU_OK(cuMemcpyDtoH_v2(got, addr + half, 50000));
	CU_OK(cuCtxSetCurrent(gpu.ctx));
	CHECK(!memcmp(want + 50000, got, 50000));
	OK(barway_unmap(m));
	CU_OK(cuMemUnmap(addr, 2 * half));
	CU_OK(cuMemRelease(handle[0]));
	CU_OK(cuMemRelease(handle[1]));
	CU_OK(cuMemAddressFree(addr, 2 * half));
	free(want);
	free(got);
}

/* ---- how long -------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void mapping_times(void)
{
	enum { N = 400, ROW = 16 };
	double first[N], again[N], t;
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping *m, *row[ROW];
	uint64_t a;

	start();
	CU_OK(cuMemAlloc_v2(&a, 4u << 20));
	OK(barway_map(ctx, a, 65536, NULL, &m));
	OK(barway_unmap(m));
	for (int i = 0; i < N; i++) {
		t = now_us();
		OK(barway_map(ctx, a, 65536, &o, &m));
		first[i] = now_us() - t;
		OK(barway_unmap(m));
		OK(barway_map(ctx, a, 65536, NULL, &m)); /* in the cache, whatever came before */
		OK(barway_unmap(m));
		t = now_us();
		for (int k = 0; k < ROW; k++)
			OK(barway_map(ctx, a, 65536, NULL, &row[k]));
		again[i] = (now_us() - t) / ROW;
		for (int k = 0; k < ROW; k++)
			OK(barway_unmap(row[k]));
	}
	qsort(first, N, sizeof(first[0]), by_value);
	qsort(again, N, sizeof(again[0]), by_value);
	printf("hw_test: map 64 KiB: first time %.1f us, again from the cache %.3f us\n",
	       first[N / 2], again[N / 2]);
	CHECK(first[N / 2] <= 80);
	CHECK(again[N / 2] <= 0.3);
	CU_OK(cuMemFree_v2(a));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(cudamalloc_offsets),
		TEST(behind_a_freed_neighbour),
		TEST(all_sizes_and_alignments),
		TEST(adjacent_allocations),
		TEST(vmm_with_handle_type),
		TEST(vmm_without_handle_type),
		TEST(vmm_with_rdma_flag),
		TEST(pool),
		TEST(barway_memory),
		TEST(thread_without_context),
		TEST(memory_of_another_context),
		TEST(in_a_stream_capture),
		TEST(kinds_that_cannot_be_mapped),
		TEST(host_vmm_is_refused),
		TEST(imported_memory_is_refused),
		TEST(a_stale_address_is_never_hit),
		TEST(freed_under_a_mapping),
		TEST(freeing_frees),
		TEST(fork_leaves_the_parent_alone),
		TEST(release_all),
		TEST(threads),
		TEST(flag_after_data),
		TEST(flush_makes_visible),
		TEST(ordered_without_a_flush),
		TEST(pinned_memory),
		TEST(registered_memory),
		TEST(pinned_in_a_stream_capture),
		TEST(pinned_near_the_gpu),
		TEST(every_gpu),
		TEST(one_range_over_two_gpus),
		TEST(mapping_times),
		TEST(cycles_cached),
		TEST(cycles_uncached),
		{ 0 }
	};
	int ret;

	signal(SIGPIPE, SIG_IGN);
	start_ipc_child();
	ret = test_main(argc, argv, cases);
	if (ctx && barway_close(ctx)) {
		fprintf(stderr, "barway_close: %s\n", barway_errmsg());
		ret = 1;
	}
	close(ipc_pipe[1]);
	waitpid(ipc_child, NULL, 0);
	return ret;
}
