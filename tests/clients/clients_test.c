/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each program that loads GDRCopy's library does with it: which name and flags, which checks,
 * how it rounds, which threads, in which order it ends.
 */
#include "client.h"

static void versions(void *g, int least_minor)
{
	int major = 0, minor = 0;

	gdr.runtime_get_version(&major, &minor);
	CHECK_EQ(major, 2);
	CHECK(minor >= least_minor);
	major = minor = 0;
	OK(gdr.driver_get_version(g, &major, &minor));
	CHECK_EQ(major, 2);
	CHECK(minor >= least_minor);
}

/* Allocates a page more than it needs and pins the aligned part; uses the 40-byte struct; stores
 * through the pointer, sfence; flushes by mfence and a load. Never closes. */
static void nccl(void)
{
	enum { N = 24 };
	static const size_t sizes[] = { 4, 16, 4096, 65536, 65537, 300000 };
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct {
		uint64_t memory, aligned;
		size_t mapped;
		struct mh mh;
		void *map;
	} c[N];
	int dmabuf = -1;
	void *g;

	never_closes = true;
	start_gpu();
	load("libgdrapi.so", RTLD_NOW);
	pthread_mutex_lock(&lock);
	g = gdr.open();
	CHECK(g);
	versions(g, 5);
	OK(gdr.get_attribute(g, 3, &dmabuf));
	CHECK_EQ(dmabuf, 0);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < N; i++) {
		struct info_v1 info;

		c[i].mapped = UP(sizes[i % 6]);
		c[i].memory = mem_alloc(c[i].mapped + GPU_PAGE - 1);
		c[i].aligned = UP(c[i].memory);
		pthread_mutex_lock(&lock);
		OK(gdr.pin_buffer_v2(g, c[i].aligned, c[i].mapped, 0, &c[i].mh));
		CHECK(c[i].mh.h);
		OK(gdr.map(g, c[i].mh, &c[i].map, c[i].mapped));
		info = info_v1(g, c[i].mh);
		pthread_mutex_unlock(&lock);
		CHECK(info.va == c[i].aligned);
		CHECK_EQ(info.mapped_size, c[i].mapped);
		CHECK_EQ(info.page_size, GPU_PAGE);
		CHECK_EQ(info.mapped, 1);
		CHECK_EQ(info.wc_mapping, 1);
		CHECK(info.cycles_per_ms > 0);
		prove_pointer((char *)c[i].map + (info.va - c[i].aligned), c[i].aligned,
			      c[i].mapped);
	}
	for (int i = 0; i < N; i++) {
		pthread_mutex_lock(&lock);
		OK(gdr.unmap(g, c[i].mh, c[i].map, c[i].mapped));
		OK(gdr.unpin_buffer(g, c[i].mh));
		pthread_mutex_unlock(&lock);
		mem_free(c[i].memory);
	}
}

/* Memory of VMM handles, as a symmetric heap is made of; ordinary memory on the soft GPU. */
static uint64_t heap_alloc(size_t bytes, uint64_t *handle)
{
	struct cu_prop prop = { .type = 1, .handle_types = 1, .location_type = 1, .rdma = 1 };
	struct cu_access access = { 1, 0, 3 };
	uint64_t addr;

	if (on_soft())
		return mem_alloc(bytes);
	CU_OK(cuMemAddressReserve(&addr, bytes, 0, 0, 0));
	CU_OK(cuMemCreate(handle, bytes, &prop, 0));
	CU_OK(cuMemMap(addr, bytes, 0, *handle, 0));
	CU_OK(cuMemSetAccess(addr, bytes, &access, 1));
	return addr;
}

static void heap_free(uint64_t addr, size_t bytes, uint64_t handle)
{
	if (on_soft()) {
		mem_free(addr);
		return;
	}
	CU_OK(cuMemUnmap(addr, bytes));
	CU_OK(cuMemRelease(handle));
	CU_OK(cuMemAddressFree(addr, bytes));
}

/* Compares its header's minor with the library's; pins chunks of the heap whole; loads and stores
 * of 4 and 8 bytes; one transport maps and unmaps with a size that is not rounded. */
static void nvshmem(void)
{
	size_t chunk = on_soft() ? 64 * MIB : on_fake() ? 256 * MIB : 2048ull * MIB;
	size_t odd = chunk - 100;
	uint64_t handle = 0, heap;
	int major, minor, force = -1;
	struct info_v1 info;
	struct mh mh;
	void *g, *map;

	start_gpu();
	load("libgdrapi.so.2", RTLD_LAZY);
	gdr.runtime_get_version(&major, &minor);
	CHECK(major == 2 && minor >= 6);
	g = gdr.open();
	CHECK(g);
	versions(g, 5);
	OK(gdr.get_attribute(g, 2, &force));
	heap = heap_alloc(chunk, &handle);
	OK(gdr.pin_buffer_v2(g, heap, chunk, force ? 1 : 0, &mh));
	OK(gdr.map(g, mh, &map, odd));
	info = info_v1(g, mh);
	CHECK(info.va == heap);
	prove_pointer(map, heap, chunk);
	prove_pointer((char *)map + chunk / 2 + 8, heap + chunk / 2 + 8, 8);
	prove_copies(mh, (char *)map + chunk / 2, heap + chunk / 2, 4096, heap + chunk / 2, 8192);
	OK(gdr.unmap(g, mh, map, odd - 1000));
	/* and as with a header before 2.5 */
	OK(gdr.map(g, mh, &map, chunk));
	OK(gdr.unmap(g, mh, map, chunk));
	OK(gdr.unpin_buffer(g, mh));
	OK(gdr.pin_buffer(g, heap, chunk, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, chunk));
	prove_pointer(map, heap, chunk);
	OK(gdr.unmap(g, mh, map, chunk));
	OK(gdr.unpin_buffer(g, mh));
	heap_free(heap, chunk, handle);
	OK(gdr.close(g));
	check_given_back();
	dlclose(gdr_library);
}

/* Start rounded down, length up, and the mapping taken to begin there. The range may begin before
 * and end after the memory. */
static void libfabric_region(void *g, uint64_t addr, size_t n)
{
	uint64_t start = DOWN(addr);
	size_t length = UP(addr + n) - start;
	struct mh mh = { 0 };
	void *map;

	OK(gdr.pin_buffer(g, start, length, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, length));
	prove_copies(mh, (char *)map + (addr - start), addr, n, addr, n);
	if (n > 40)
		prove_copies(mh, (char *)map + (addr - start) + 13, addr + 13, n - 26, addr, n);
	OK(gdr.unmap(g, mh, map, length));
	OK(gdr.unpin_buffer(g, mh));
}

static void *libfabric_open(void)
{
	gdr_library = dlopen("libgdrapi-of-nobody.so", RTLD_NOW);
	CHECK(!gdr_library);
	load("libgdrapi.so", RTLD_NOW);
	return gdr.open();
}

/* No versions, no info. Opens before there is any CUDA, closes after it has unloaded CUDA. */
static void libfabric(void)
{
	static const size_t sizes[] = { 600, 8, 65536, 5000, 100000, 40, 200000, 2097152 };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	unsigned char *want[N];
	uint64_t memory[N];
	void *g;

	need_gpu();
	g = libfabric_open();
	CHECK(g);
	start_gpu();
	for (int i = 0; i < N; i++) {
		memory[i] = mem_alloc(sizes[i]);
		want[i] = malloc(sizes[i]);
		test_fill(want[i], sizes[i], ++seed);
		mem_write(memory[i], want[i], sizes[i]);
	}
	for (int i = 0; i < N; i++) {
		libfabric_region(g, memory[i], sizes[i]);
		libfabric_region(g, memory[i] + sizes[i] / 2, sizes[i] / 2);
		mem_write(memory[i], want[i], sizes[i]);
		for (int k = 0; k < N; k++) { /* the neighbours have what they had */
			unsigned char *got = malloc(sizes[k]);

			mem_read(got, memory[k], sizes[k]);
			CHECK(!memcmp(got, want[k], sizes[k]));
			free(got);
		}
	}
	for (int i = 0; i < N; i++) {
		mem_free(memory[i]);
		free(want[i]);
	}
	if (!on_soft()) {
		CU_OK(cuCtxSetCurrent(NULL));
		CU_OK(cuDevicePrimaryCtxRelease_v2(0));
		dlclose(cu.library);
	}
	OK(gdr.close(g));
	check_given_back();
	dlclose(gdr_library);
}

/* The same with a region left pinned and mapped when CUDA goes. */
static void libfabric_leaves_a_region(void)
{
	uint64_t memory;
	struct mh mh;
	void *g, *map;

	need_gpu();
	g = libfabric_open();
	CHECK(g);
	start_gpu();
	memory = mem_alloc(65536);
	OK(gdr.pin_buffer(g, memory, 65536, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, 65536));
	mem_free(memory);
	if (!on_soft()) {
		CU_OK(cuCtxSetCurrent(NULL));
		CU_OK(cuDevicePrimaryCtxRelease_v2(0));
		dlclose(cu.library);
	}
	OK(gdr.close(g));
	CHECK_EQ(gdr.close(g), EINVAL);
	check_given_back();
}

__attribute__((noreturn)) static void use_in_child(void *g)
{
	if (setjmp(test_jump))
		_exit(1);
	start_gpu();
	libfabric_region(g, mem_alloc(70000), 70000);
	OK(gdr.close(g));
	CHECK_EQ(gdr.close(g), EINVAL);
	_exit(0);
}

/* Opened before a fork: both processes use it, each on its own. */
static void libfabric_forks(void)
{
	int status;
	pid_t pid;
	void *g;

	if (TSAN)
		SKIP("ThreadSanitizer does not see that a child's locks are new");
	need_gpu();
	g = libfabric_open();
	CHECK(g);
	pid = fork();
	if (!pid)
		use_in_child(g);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	start_gpu();
	libfabric_region(g, mem_alloc(70000), 70000);
	OK(gdr.close(g));
}

/* ---- UCX ------------------------------------------------------------------------------------- */

struct worker {
	pthread_t thread;
	struct mh mh;
	char *map;
	size_t bytes;
	uint64_t seed;
	int wrong;
};

static void *copy_around(void *arg)
{
	struct worker *w = arg;
	unsigned char *want = malloc(w->bytes), *got = malloc(w->bytes);

	for (int i = 0; i < 200 && !w->wrong; i++) {
		size_t n = w->bytes - (size_t)(i * 37) % (w->bytes / 2), off = (w->bytes - n) / 2;

		test_fill(want, n, w->seed + (uint64_t)i);
		memset(got, 0, n);
		w->wrong = gdr.copy_to_mapping(w->mh, w->map + off, want, n);
		if (!w->wrong)
			w->wrong = gdr.copy_from_mapping(w->mh, got, w->map + off, n);
		if (!w->wrong && memcmp(want, got, n))
			w->wrong = -1;
	}
	free(want);
	free(got);
	return NULL;
}

static void run_workers(struct worker *w, int n)
{
	for (int i = 0; i < n; i++)
		CHECK_EQ(pthread_create(&w[i].thread, NULL, copy_around, &w[i]), 0);
	for (int i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
	for (int i = 0; i < n; i++)
		CHECK_EQ(w[i].wrong, 0);
}

/* Regions are multiples of 64 KiB, joined over adjacent allocations; any worker copies, without a
 * lock; what it does not use any more it unmaps and unpins while others copy. */
static void ucx(void)
{
	enum { N = 8 };
	const size_t each = on_soft() ? 65536 : 2 * MIB;
	uint64_t memory[N], start, end;
	struct worker w[4] = { 0 };
	struct info_v2 info;
	struct mh mh;
	void *g, *map;
	int joined = 0;

	start_gpu();
	load("libgdrapi.so.2", RTLD_NOW);
	g = gdr.open();
	CHECK(g);
	for (int i = 0; i < N; i++)
		memory[i] = mem_alloc(each);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++) {
			if (memory[i] + each != memory[k])
				continue;
			joined++;
			OK(gdr.pin_buffer(g, memory[i], 2 * each, 0, 0, &mh));
			OK(gdr.map(g, mh, &map, 2 * each));
			prove_pointer((char *)map + each - 4096, memory[k] - 4096, 4096);
			prove_pointer((char *)map + each, memory[k], each);
			OK(gdr.unmap(g, mh, map, 2 * each));
			OK(gdr.unpin_buffer(g, mh));
		}
	printf("ucx: %d pairs of adjacent allocations\n", joined);
	/* a buffer in the middle: the region around it */
	start = DOWN(memory[0] + 1000);
	end = UP(memory[0] + 50000);
	OK(gdr.pin_buffer(g, start, end - start, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, end - start));
	info = info_v2(g, mh);
	CHECK(info.va == start);
	CHECK_EQ(info.mapping_type, 1);
	for (int i = 0; i < 4; i++)
		w[i] = (struct worker){
			.mh = mh, .map = (char *)map + i * 12000 + i, .bytes = 12000 - 8,
			.seed = ++seed * 1000,
		};
	run_workers(w, 4);
	OK(gdr.unmap(g, mh, map, end - start));
	OK(gdr.unpin_buffer(g, mh));
	for (int i = 0; i < N; i++)
		mem_free(memory[i]);
	OK(gdr.close(g));
	check_given_back();
}

/* Many threads copy on one handle, without a lock. */
static void tensorrt_llm(void)
{
	enum { N = 8 };
	struct worker w[N] = { 0 };
	size_t bytes = N * 16384;
	uint64_t memory;
	struct mh mh;
	void *g, *map;

	start_gpu();
	load("libgdrapi.so", RTLD_NOW);
	g = gdr.open();
	CHECK(g);
	versions(g, 0);
	memory = mem_alloc(UP(bytes) + GPU_PAGE - 1);
	OK(gdr.pin_buffer(g, UP(memory), UP(bytes), 0, 0, &mh));
	OK(gdr.map(g, mh, &map, UP(bytes)));
	CHECK(info_v1(g, mh).va == UP(memory));
	for (int i = 0; i < N; i++)
		w[i] = (struct worker){
			.mh = mh, .map = (char *)map + i * 16384, .bytes = 16384,
			.seed = ++seed * 1000,
		};
	run_workers(w, N);
	OK(gdr.unmap(g, mh, map, UP(bytes)));
	OK(gdr.unpin_buffer(g, mh));
	mem_free(memory);
	OK(gdr.close(g));
	check_given_back();
}

/* Start rounded down; PCIe forced first, then not; a handle of 0 means "not pinned". */
static void aws_ofi_nccl(void)
{
	uint64_t memory;
	int major, minor, driver_major, driver_minor;
	size_t length;
	struct mh mh = { 0 };
	void *g, *map = NULL;
	int ret;

	start_gpu();
	load("libgdrapi.so", RTLD_NOW);
	g = gdr.open();
	CHECK(g);
	gdr.runtime_get_version(&major, &minor);
	OK(gdr.driver_get_version(g, &driver_major, &driver_minor));
	CHECK(major == 2 && driver_major == 2 && minor >= 5 && driver_minor >= 5);
	memory = mem_alloc(100000);
	for (size_t off = 0; off < 70000; off += 23333) {
		uint64_t start = DOWN(memory + off);

		length = UP(memory + off + 64) - start;
		ret = gdr.pin_buffer_v2(g, start, length, 1, &mh);
		if (ret)
			OK(gdr.pin_buffer_v2(g, start, length, 0, &mh));
		CHECK(mh.h != 0);
		OK(gdr.map(g, mh, &map, length));
		prove_copies(mh, (char *)map + (memory + off - start), memory + off, 64, memory,
			     100000);
		OK(gdr.unmap(g, mh, map, length));
		OK(gdr.unpin_buffer(g, mh));
	}
	mem_free(memory);
	OK(gdr.close(g));
	check_given_back();
}

/* One GPU page around the address; a 64-bit word stored directly. (It looks for the file
 * /dev/gdrdrv before it loads the library: docs/gdrcopy.md.) */
static void mscclpp(void)
{
	uint64_t memory;
	struct mh mh;
	void *g, *map;
	char *word;

	start_gpu();
	load("libgdrapi.so", RTLD_LAZY);
	g = gdr.open();
	CHECK(g);
	memory = mem_alloc(8);
	if (gdr.pin_buffer_v2(g, DOWN(memory), GPU_PAGE, 1, &mh))
		OK(gdr.pin_buffer_v2(g, DOWN(memory), GPU_PAGE, 0, &mh));
	OK(gdr.map(g, mh, &map, GPU_PAGE));
	word = (char *)map + (memory - DOWN(memory));
	for (uint64_t i = 1; i < 100; i++) {
		uint64_t got;

		__atomic_store_n((uint64_t *)word, i, __ATOMIC_SEQ_CST);
		flush_by_load(word);
		mem_read(&got, memory, 8);
		CHECK_EQ(got, i);
	}
	OK(gdr.unmap(g, mh, map, GPU_PAGE));
	OK(gdr.unpin_buffer(g, mh));
	mem_free(memory);
	OK(gdr.close(g));
	check_given_back();
}

/* Open at the first use, pin, map; direct access alone. */
static void dpdk(void)
{
	enum { N = 6 };
	uint64_t memory[N];
	struct mh mh[N];
	void *g = NULL, *map[N];

	start_gpu();
	load("libgdrapi.so", RTLD_LAZY);
	for (int i = 0; i < N; i++) {
		size_t bytes = 3000u << i;

		memory[i] = mem_alloc(UP(bytes) + GPU_PAGE);
		if (!g)
			g = gdr.open();
		CHECK(g);
		OK(gdr.pin_buffer(g, UP(memory[i]), UP(bytes), 0, 0, &mh[i]));
		OK(gdr.map(g, mh[i], &map[i], UP(bytes)));
		prove_pointer(map[i], UP(memory[i]), bytes);
	}
	for (int i = 0; i < N; i++) {
		OK(gdr.unmap(g, mh[i], map[i], UP(3000u << i)));
		OK(gdr.unpin_buffer(g, mh[i]));
		mem_free(memory[i]);
	}
	OK(gdr.close(g));
	check_given_back();
}

/* The same, and ends without a close, with things mapped. */
static void doca_gpunetio(void)
{
	uint64_t memory;
	struct mh mh;
	void *g, *map;

	never_closes = true;
	start_gpu();
	load("libgdrapi.so.2", RTLD_LAZY);
	g = gdr.open();
	CHECK(g);
	versions(g, 0);
	memory = mem_alloc(4 * GPU_PAGE);
	OK(gdr.pin_buffer(g, UP(memory), 2 * GPU_PAGE, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, 2 * GPU_PAGE));
	prove_pointer(map, UP(memory), 2 * GPU_PAGE);
}

/* A library of NCCL's, of UCX's and of the application in one process: several gdr_t. */
static void several_in_one_process(void)
{
	uint64_t memory;
	struct mh mh[3];
	void *g[3], *map[3];

	start_gpu();
	load("libgdrapi.so", RTLD_NOW);
	load("libgdrapi.so.2", RTLD_LAZY);
	memory = mem_alloc(65536);
	for (int i = 0; i < 3; i++) {
		g[i] = gdr.open();
		CHECK(g[i]);
		OK(gdr.pin_buffer(g[i], memory, 65536, 0, 0, &mh[i]));
		OK(gdr.map(g[i], mh[i], &map[i], 65536));
		prove_pointer(map[i], memory, 65536);
	}
	CHECK(g[0] != g[1] && g[1] != g[2] && g[0] != g[2]);
	CHECK(mh[0].h != mh[1].h && mh[1].h != mh[2].h && mh[0].h != mh[2].h);
	for (int i = 0; i < 3; i++) {
		OK(gdr.close(g[i]));
		if (i < 2)
			prove_copies(mh[2], map[2], memory, 1000, memory, 65536);
	}
	mem_free(memory);
	check_given_back();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(nccl),
		TEST(nvshmem),
		TEST(libfabric),
		TEST(libfabric_leaves_a_region),
		TEST(libfabric_forks),
		TEST(ucx),
		TEST(tensorrt_llm),
		TEST(aws_ofi_nccl),
		TEST(mscclpp),
		TEST(dpdk),
		TEST(doca_gpunetio),
		TEST(several_in_one_process),
		{ 0 },
	};

	return client_main(argc, argv, cases);
}
