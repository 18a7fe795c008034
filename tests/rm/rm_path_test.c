/* SPDX-License-Identifier: BSD-3-Clause */
/* The main path: every kind of memory, in every surrounding, with data both ways. */
#include "rm_test.h"

static void offsets_in_a_shared_block(void)
{
	static const size_t sizes[] = { 512, 600, 4096, 65536, 100000, 200000, 512 };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	uint64_t a[N], big;

	start();
	witness(512);
	for (int i = 0; i < N; i++) {
		a[i] = gpu_alloc(sizes[i]);
		witness(512);
	}
	CHECK(a[1] % 4096 && a[2] % 4096); /* the fake packs them, as the driver does */
	for (int i = 0; i < N; i++) {
		prove(a[i], sizes[i], a[i], sizes[i], 0);
		prove(a[i] + 1, sizes[i] - 3, a[i], sizes[i], BARWAY_MAP_UNCACHED);
	}
	prove(a[5] + 512, 1000, a[5], sizes[5], 0);
	prove(a[5] + 4096, 4096, a[5], sizes[5], 0);
	prove(a[5] + 65536 + 8, 70000, a[5], sizes[5], 0);
	big = gpu_alloc(5u << 20);
	prove(big, 5u << 20, big, 5u << 20, 0);
	prove(big + 12345, 4u << 20, big, 5u << 20, BARWAY_MAP_UNCACHED);
	check_witnesses("afterwards");
	for (int i = 0; i < N; i++)
		gpu_free(a[i]);
	gpu_free(big);
	free_witnesses();
	finish();
}

/* Byte offsets 0, 512, 4 KiB and 64 KiB + 8 of one block, each mapped alone and anew. */
static void offsets_of_one_block(void)
{
	static const size_t at[] = { 0, 512, 4096, 65536 + 8 };
	unsigned char want[3000], got[3000];
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping *m[4];
	uint64_t a;

	start();
	a = gpu_alloc(300000);
	for (int i = 0; i < 4; i++) {
		OK(barway_map(ctx, a + at[i], sizeof(want), &o, &m[i]));
		test_fill(want, sizeof(want), ++seed);
		OK(barway_copy_to(m[i], 0, want, sizeof(want)));
		gpu_read(got, a + at[i], sizeof(got));
		CHECK(!memcmp(want, got, sizeof(got)));
		test_fill(want, sizeof(want), ++seed);
		gpu_write(a + at[i], want, sizeof(want));
		OK(barway_copy_from(m[i], got, 0, sizeof(got)));
		CHECK(!memcmp(want, got, sizeof(got)));
	}
	/* they overlap: what one writes the others see */
	OK(barway_copy_to(m[0], 512, want, 100));
	OK(barway_copy_from(m[1], got, 0, 100));
	CHECK(!memcmp(want, got, 100));
	for (int i = 0; i < 4; i++)
		OK(barway_unmap(m[i]));
	gpu_free(a);
	finish();
}

static void vmm_of(int handle_types)
{
	struct vmm v;
	size_t step = VMM_STEP;

	start();
	vmm_alloc(&v, 4, handle_types, NULL);
	prove(v.addr + 100, 5000, v.addr, step, 0);
	prove(v.addr + step + 65536 + 8, 100000, v.addr + step, step, 0);
	prove(v.addr + step - 70001, 140000, v.addr, 2 * step, 0);
	prove(v.addr + step - 4096, 2 * step + 8192, v.addr, 4 * step, BARWAY_MAP_UNCACHED);
	prove(v.addr, 4 * step, v.addr, 4 * step, 0);
	vmm_free(&v);
	finish();
}

static void vmm_with_handle_type(void)
{
	vmm_of(CUF_HANDLE_POSIX_FD);
}

static void vmm_without_handle_type(void)
{
	vmm_of(0);
}

static void over_two_handles_says_so(void)
{
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct barway_mapping *m;
	struct vmm v;

	start();
	vmm_alloc(&v, 2, 0, NULL);
	OK(barway_map(ctx, v.addr + VMM_STEP - 10, 20, NULL, &m));
	OK(barway_mapping_query(m, &info));
	CHECK_EQ(info.pieces, 2);
	CHECK_STR(info.provider, "rm");
	CHECK_EQ(info.keeps_alive, 1);
	CHECK_EQ(info.caching, BARWAY_WRITE_COMBINED);
	OK(barway_unmap(m));
	vmm_free(&v);
	finish();
}

static void adjacent_allocations(void)
{
	uint64_t a[4];
	const size_t each = 2u << 20;

	start();
	for (int i = 0; i < 4; i++)
		a[i] = gpu_alloc(each);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(a[i + 1], a[i] + each); /* the fake lays them side by side */
	prove(a[0] + each - 5000, 10000, a[0], 2 * each, 0);
	prove(a[0] + 1, 4 * each - 2, a[0], 4 * each, 0);
	prove(a[1] + 77, 2 * each, a[0], 4 * each, BARWAY_MAP_UNCACHED);
	for (int i = 0; i < 4; i++)
		gpu_free(a[i]);
	finish();
}

/* Eight allocations share the first page; a range may go over them. */
static void several_in_one_page(void)
{
	uint64_t a[12];

	start();
	for (int i = 0; i < 12; i++)
		a[i] = gpu_alloc(512);
	for (int i = 0; i < 11; i++)
		CHECK_EQ(a[i + 1], a[i] + 512);
	for (int i = 0; i < 12; i++)
		prove(a[i] + 1, 500, a[0], 12 * 512, 0);
	prove(a[0] + 100, 5 * 512, a[0], 12 * 512, 0);
	prove(a[5] + 100, 6 * 512, a[0], 12 * 512, BARWAY_MAP_UNCACHED);
	/* the first bytes of the page belong to nobody any more */
	gpu_free(a[0]);
	prove(a[1], 512, a[1], 512, BARWAY_MAP_UNCACHED);
	for (int i = 1; i < 12; i++)
		gpu_free(a[i]);
	finish();
}

static void pool_memory(void)
{
	static const size_t sizes[4] = { 100000, 600, 3000000, 65536 };
	unsigned long long a[4];

	start();
	for (int i = 0; i < 4; i++)
		CU_OK(cuMemAllocAsync(&a[i], sizes[i], stream));
	for (int i = 0; i < 4; i++) {
		prove(a[i], sizes[i], a[i], sizes[i], 0);
		prove(a[i] + sizes[i] / 2, sizes[i] / 3, a[i], sizes[i], BARWAY_MAP_UNCACHED);
	}
	CU_OK(cuMemFreeAsync(a[0], stream));
	prove(a[1], sizes[1], a[1], sizes[1], 0);
	CU_OK(cuMemAllocAsync(&a[0], sizes[0], stream));
	prove(a[0], sizes[0], a[0], sizes[0], 0);
	for (int i = 0; i < 4; i++)
		CU_OK(cuMemFreeAsync(a[i], stream));
	finish();
}

static void barway_memory(void)
{
	struct barway_device *dev;
	uint64_t a;

	start();
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_mem_alloc(dev, 300000, &a));
	prove(a + 3, 299990, a, 300000, 0);
	OK(barway_mem_free(ctx, a));
	REFUSED(barway_mem_free(ctx, a), EINVAL, "freed before");
	finish();
}

static void memory_of_a_second_context(void)
{
	void *other, *current = NULL;
	uint64_t a;

	start();
	CU_OK(cuCtxCreate_v2(&other, 0, 0));
	own_contexts++;
	a = gpu_alloc(70000);
	prove(a, 65536, a, 70000, 0);
	CU_OK(cuCtxGetCurrent(&current));
	CHECK(current == other);
	CU_OK(cuCtxPopCurrent_v2(&current));
	prove(a + 9, 65536, a, 70000, BARWAY_MAP_UNCACHED);
	CU_OK(cuCtxGetCurrent(&current));
	CHECK(current == primary);
	CU_OK(cuCtxDestroy_v2(other));
	finish();
}

/* ---- threads that have no context ------------------------------------------------------------ */

static uint64_t bare_addr;
static char bare_failed[512];

static void *without_context(void *arg)
{
	struct barway_mapping *m;
	unsigned char b[256], c[256];
	void *current = (void *)1;

	(void)arg;
	test_fill(b, sizeof(b), 77);
	if (barway_map(ctx, bare_addr, 300, NULL, &m) || barway_copy_to(m, 11, b, 256) ||
	    barway_copy_from_by(m, BARWAY_METHOD_CE, c, 11, 256) || barway_unmap(m))
		snprintf(bare_failed, sizeof(bare_failed), "%s", barway_errmsg());
	else if (memcmp(b, c, 256))
		strcpy(bare_failed, "data differ");
	else if (cu.cuCtxGetCurrent(&current) || current)
		strcpy(bare_failed, "a context was left current");
	return NULL;
}

static void in_a_bare_thread(uint64_t addr)
{
	pthread_t t;

	bare_addr = addr;
	CHECK_EQ(pthread_create(&t, NULL, without_context, NULL), 0);
	pthread_join(t, NULL);
	if (bare_failed[0])
		FAIL("%s", bare_failed);
}

static void thread_without_context(void)
{
	struct vmm v;
	uint64_t a;

	start();
	a = gpu_alloc(300);
	in_a_bare_thread(a);
	gpu_free(a);
	vmm_alloc(&v, 1, 0, NULL); /* no context owns it */
	in_a_bare_thread(v.addr);
	vmm_free(&v);
	finish();
}

/* No context anywhere: memory that no context owns cannot be copied by the self-test. */
static void no_context_at_all(void)
{
	struct barway_mapping *m;
	struct barway_device *dev;
	struct vmm v;

	load_cuda();
	CU_OK(cuInit(0));
	at_start = live_now();
	open_context();
	vmm_alloc(&v, 1, 0, NULL);
	REFUSED(barway_map(ctx, v.addr, 100, NULL, &m), ENODEV, "barway_device_activate");
	CHECK_EQ(fakenv_get("contexts_created"), 0);
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_device_activate(dev));
	OK(barway_device_activate(dev));
	CHECK_EQ(fakenv_get("contexts_created"), 1);
	own_contexts = 1;
	OK(barway_map(ctx, v.addr, 100, NULL, &m));
	OK(barway_unmap(m));
	vmm_free(&v);
	finish();
	CHECK(!primary);
}

static void in_a_stream_capture(void)
{
	void *capturing, *graph = NULL;
	struct barway_mapping *m;
	unsigned char b[512], c[512], d[512];
	int status = 0, r;
	uint64_t a;

	start();
	a = gpu_alloc(4096);
	test_fill(b, sizeof(b), ++seed);
	CU_OK(cuStreamCreate(&capturing, 0)); /* blocking: the legacy stream would break it */
	CU_OK(cuStreamBeginCapture_v2(capturing, CUF_CAPTURE_GLOBAL));
	CHECK_EQ(counters().self_tests, 0);
	OK(barway_map(ctx, a, 4096, NULL, &m)); /* with the self-test */
	CHECK_EQ(counters().self_tests, 1);
	OK(barway_copy_to(m, 77, b, sizeof(b)));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, c, 77, sizeof(c)));
	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 77, c, sizeof(c)));
	OK(barway_copy_from(m, d, 77, sizeof(d)));
	OK(barway_unmap(m));
	OK(barway_cache_flush(ctx));
	/* it is the thread's mode that protects the capture, and that is as it was */
	r = cu.cuStreamIsCapturing(capturing, &status);
	CHECK(!r && status == 1);
	CU_OK(cuStreamEndCapture(capturing, &graph));
	CHECK(graph && !memcmp(b, c, sizeof(b)) && !memcmp(b, d, sizeof(b)));
	CU_OK(cuGraphDestroy(graph));
	r = CUF_CAPTURE_RELAXED;
	CU_OK(cuThreadExchangeStreamCaptureMode(&r));
	CHECK_EQ(r, CUF_CAPTURE_GLOBAL);
	r = CUF_CAPTURE_GLOBAL;
	CU_OK(cuThreadExchangeStreamCaptureMode(&r));
	CU_OK(cuStreamDestroy_v2(capturing));
	gpu_free(a);
	finish();
}

static void kinds_that_cannot_be_mapped(void)
{
	struct barway_mapping *m = (void *)1;
	unsigned long long a;
	char host[64];
	void *p;

	start();
	CU_OK(cuMemAllocManaged(&a, 65536, 1));
	REFUSED(barway_map(ctx, a, 100, NULL, &m), ENOTSUP, "anaged");
	CU_OK(cuMemFree_v2(a));
	CU_OK(cuMemAllocHost_v2(&p, 65536));
	REFUSED(barway_map(ctx, (uintptr_t)p, 100, NULL, &m), ENOTSUP, "inned");
	CU_OK(cuMemFreeHost(p));
	REFUSED(barway_map(ctx, (uintptr_t)host, 10, NULL, &m), EFAULT, "plain host memory");
	a = gpu_alloc(1000);
	REFUSED(barway_map(ctx, a, 5000, NULL, &m), EFAULT, "ends beyond");
	gpu_free(a);
	REFUSED(barway_map(ctx, a, 100, NULL, &m), EFAULT, "was freed");
	CHECK(m == (void *)1);
	finish();
}

static void coherent_gpu(void)
{
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct barway_mapping *m;
	uint64_t a;

	start();
	a = gpu_alloc(100000);
	prove(a + 5, 99990, a, 100000, 0);
	OK(barway_map(ctx, a, 100, NULL, &m));
	OK(barway_mapping_query(m, &info));
	CHECK_EQ(info.caching, BARWAY_CACHED);
	OK(barway_unmap(m));
	gpu_free(a);
	finish();
}

/* ---- several GPUs ---------------------------------------------------------------------------- */

static void each_gpu(void)
{
	int n = 0;

	start();
	CU_OK(cuDeviceGetCount(&n));
	CHECK_EQ(barway_device_count(ctx), n);
	CHECK(n >= 2);
	for (int i = 0; i < n; i++) {
		struct barway_device_info info = { .size = sizeof(info) };
		struct barway_pointer_info p = { .size = sizeof(p) };
		struct barway_mapping *m;
		struct barway_device *dev;
		char pci[32];
		void *other;
		uint64_t a;

		CU_OK(cuDevicePrimaryCtxRetain(&other, i));
		own_contexts += i > 0;
		CU_OK(cuCtxSetCurrent(other));
		a = gpu_alloc(100000);
		CU_OK(cuDeviceGetPCIBusId(pci, sizeof(pci), i));
		prove(a + 5, 99990, a, 100000, 0);
		/* the pointer of another GPU than the current one */
		CU_OK(cuCtxSetCurrent(primary));
		OK(barway_pointer_query(ctx, a, &p));
		OK(barway_device_query(p.device, &info));
		CHECK(!strcasecmp(info.pci, pci));
		CHECK_EQ(info.index, i);
		OK(barway_device_get(ctx, i, &dev));
		CHECK(dev == p.device);
		prove(a + 5, 99990, a, 100000, BARWAY_MAP_UNCACHED);
		OK(barway_map(ctx, a, 1, NULL, &m));
		OK(barway_unmap(m));
		CU_OK(cuCtxSetCurrent(other));
		gpu_free(a);
		CU_OK(cuCtxSetCurrent(primary));
		CU_OK(cuDevicePrimaryCtxRelease_v2(i));
	}
	CHECK_EQ(counters().self_tests, n);
	finish();
}

/* The numbers that could be taken for each other are all different. */
static void orders_differ(void)
{
	char pci0[32], pci1[32];
	uint32_t addr[4];
	unsigned char uuid[16];

	start();
	CU_OK(cuDeviceGetPCIBusId(pci0, sizeof(pci0), 0));
	CU_OK(cuDeviceGetPCIBusId(pci1, sizeof(pci1), 1));
	CHECK(strcmp(pci0, pci1));
	CHECK_EQ(fakenv_gpu(3, addr, uuid), 0); /* the lowest minor is not ordinal 0 */
	CHECK((uint32_t)strtoul(pci0 + 5, NULL, 16) != addr[1]);
	finish();
}

static void range_over_two_gpus(void)
{
	static const int dev[4] = { 1, 0, 1, 0 };
	struct barway_mapping_info info = { .size = sizeof(info) };
	const size_t step = VMM_STEP;
	struct barway_mapping *m;
	unsigned char *got = malloc(4 * step), *want = malloc(4 * step);
	struct vmm v;
	void *other;

	start();
	CU_OK(cuDevicePrimaryCtxRetain(&other, 1));
	own_contexts++;
	vmm_alloc(&v, 4, 0, dev);
	prove(v.addr + step - 50000, 100000, v.addr, 4 * step, 0);
	prove(v.addr + 1, 4 * step - 2, v.addr, 4 * step, BARWAY_MAP_UNCACHED);
	OK(barway_map(ctx, v.addr, 4 * step, NULL, &m));
	OK(barway_mapping_query(m, &info));
	CHECK_EQ(info.pieces, 4);
	test_fill(want, 4 * step, ++seed);
	OK(barway_copy_to(m, 0, want, 4 * step));
	OK(barway_flush(m));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, got, 0, 4 * step));
	CHECK(!memcmp(want, got, 4 * step));
	OK(barway_unmap(m));
	vmm_free(&v);
	free(want);
	free(got);
	finish();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(offsets_in_a_shared_block),
		CASE(offsets_of_one_block),
		CASE(vmm_with_handle_type),
		CASE(vmm_without_handle_type),
		CASE(over_two_handles_says_so),
		CASE(adjacent_allocations),
		CASE(several_in_one_page),
		CASE(pool_memory),
		CASE(barway_memory),
		CASE(memory_of_a_second_context),
		CASE(thread_without_context),
		CASE(no_context_at_all),
		CASE(in_a_stream_capture),
		CASE(kinds_that_cannot_be_mapped),
		CASE_ENV(coherent_gpu, "FAKENV=coherent=1"),
		CASE_ENV(each_gpu, "FAKENV=gpus=2,minor_base=3,instance_base=5"),
		CASE_ENV(each_gpu, "FAKENV=gpus=5,minor_base=0,instance_base=0"),
		CASE_ENV(each_gpu, "FAKENV=gpus=2,minor_base=3 CUDA_VISIBLE_DEVICES=1,0"),
		CASE_ENV(each_gpu, "FAKENV=gpus=4,bar1=dynamic CUDA_VISIBLE_DEVICES=2,0,3"),
		CASE_ENV(orders_differ, "FAKENV=gpus=2,minor_base=3"),
		CASE_ENV(range_over_two_gpus, "FAKENV=gpus=2,minor_base=1"),
		CASE_ENV(range_over_two_gpus, "FAKENV=gpus=3 CUDA_VISIBLE_DEVICES=2,0"),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
