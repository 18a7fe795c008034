/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dma-bufs for network cards, from a libcuda that is not there: which bytes they show, every reason
 * for which there is none, and that the provider's own question to libcuda, which asks for one as
 * well and does not want it, never takes the answer to this one.
 */
#include "rm_test.h"

#include <barway_net.h>

#include "core/fault.h"
#include "device/cuda.h"

static struct bw_device *dev;

static void begin(void)
{
	struct bw_device **list;
	struct bw_reason why;

	start();
	barway_set_log(NULL, NULL, 0);
	CHECK(bw_cuda_ops.enumerate(&list, &why) > 0);
	dev = list[0];
}

static int export(uint64_t addr, size_t n, int *fd, uint64_t *offset)
{
	return dev->ops->export_dmabuf(dev, addr, n, fd, offset);
}

/* The dma-buf of [addr, addr + n) shows just that. */
static void shows(uint64_t addr, size_t n)
{
	unsigned char *want = malloc(n), *got = malloc(n), *there;
	uint64_t offset;
	int fd = -1, ret;

	ret = export(addr, n, &fd, &offset);
	if (ret)
		FAIL("0x%llx, %zu bytes: %d: %s", (unsigned long long)addr, n, ret, bw_err_text());
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK_EQ(offset % 4096, addr % 4096);
	there = fakenv_dmabuf(fd, offset, n);
	CHECK(there);
	test_fill(want, n, ++seed);
	gpu_write(addr, want, n);
	CHECK(!memcmp(there, want, n));
	test_fill(there, n, ++seed);
	gpu_read(got, addr, n);
	CHECK(!memcmp(there, got, n));
	CHECK_EQ(close(fd), 0);
	free(want);
	free(got);
}

static void refuses(uint64_t addr, size_t n, int err, const char *words)
{
	int files = open_files(), fd = -7, ret;
	uint64_t offset = 7;

	ret = export(addr, n, &fd, &offset);
	if (ret != -err)
		FAIL("0x%llx, %zu bytes: %d (%s), expected -%d", (unsigned long long)addr, n, ret,
		     ret ? bw_err_text() : "", err);
	CHECK_HAS(bw_err_text(), words);
	CHECK(fd == -7 && offset == 7);
	CHECK_EQ(open_files(), files);
	CHECK_EQ(fakenv_get("dmabufs"), 0);
}

/* ---- what it shows --------------------------------------------------------------------------- */

static void allocations(void)
{
	static const size_t sizes[] = { 600, 5000, 300000, 5u << 20 };
	uint64_t a, first, state = 5;

	begin();
	first = gpu_alloc(600); /* the others do not begin where their block does */
	for (unsigned i = 0; i < 4; i++) {
		a = gpu_alloc(sizes[i]);
		shows(a, sizes[i]);
		shows(a, 1);
		shows(a + sizes[i] - 1, 1);
		for (unsigned k = 0; k < 20; k++) {
			size_t at = test_random(&state) % sizes[i];

			shows(a + at, 1 + test_random(&state) % (sizes[i] - at));
		}
		gpu_free(a);
	}
	gpu_free(first);
	finish();
}

/* The pages of the range, and no more: a card has room for so much in its own tables. */
static void no_more_than_the_pages(void)
{
	uint64_t a, offset;
	int fd;

	begin();
	a = gpu_alloc(5u << 20);
	OK(export(a + 4096 * 7 + 5, 4096, &fd, &offset));
	CHECK_EQ(offset, 5);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 8192);
	close(fd);
	gpu_free(a);
	finish();
}

static void handles_in_a_row(void)
{
	struct vmm v;
	uint64_t offset;
	int fd;

	begin();
	for (int with = 0; with < 2; with++) {
		vmm_alloc(&v, 3, with ? CUF_HANDLE_POSIX_FD : 0, NULL);
		shows(v.addr + 77, 100000);
		shows(v.addr + VMM_STEP + 4095, VMM_STEP - 4095);
		OK(export(v.addr + VMM_STEP - 5000, VMM_STEP + 10000, &fd, &offset));
		CHECK_EQ(lseek(fd, 0, SEEK_END), VMM_STEP + 4 * 4096);
		CHECK(fakenv_dmabuf(fd, offset, 5000)); /* of the first handle */
		CHECK(fakenv_dmabuf(fd, offset + 5000, VMM_STEP));
		CHECK(fakenv_dmabuf(fd, offset + 5000 + VMM_STEP, 5000));
		close(fd);
		refuses(v.addr, 4 * VMM_STEP, EFAULT, "the range goes beyond");
		vmm_free(&v);
	}
	finish();
}

/* Of which libcuda names a wrong size, unless it is asked for from its mapping's start. */
static void pools(void)
{
	unsigned long long a[3];
	uint64_t offset;
	int fd;

	begin();
	for (int i = 0; i < 3; i++)
		CU_OK(cuMemAllocAsync(&a[i], 70000, stream));
	for (int wrong = 0; wrong < 2; wrong++) {
		set("tamper", wrong ? "export_pool" : "");
		for (int i = 0; i < 3; i++) {
			shows(a[i], 70000);
			shows(a[i] + 4097, 30000);
		}
	}
	OK(export(a[1] + 4097, 30000, &fd, &offset));
	CHECK(offset >= a[1] + 4097 - a[0]);
	close(fd);
	/* what is too short is not given out, whoever made it */
	fakenv_fail_ioctl(0xd9, 1, 0x1f);
	fakenv_fail_ioctl(0xd9, 2, 0x1f);
	refuses(a[1] + 4097, 30000, ENOTSUP, "a dma-buf of 28672 bytes for 32768");
	for (int i = 0; i < 3; i++)
		CU_OK(cuMemFreeAsync(a[i], stream));
	finish();
}

/* Where the pages alone are refused, all from the start of the mapping may not be. */
static void from_the_start(void)
{
	uint64_t a, offset;
	int fd;

	begin();
	a = gpu_alloc(5u << 20);
	for (unsigned i = 1; i < 3; i++)
		fakenv_fail_ioctl(0xd9, i, 0x1f); /* for PCIe, and as it comes */
	shows(a + 70001, 60000);
	for (unsigned i = 1; i < 3; i++)
		fakenv_fail_ioctl(0xd9, i, 0x1f);
	OK(export(a + 70001, 60000, &fd, &offset));
	CHECK_EQ(offset, 70001);
	close(fd);
	gpu_free(a);
	finish();
}

/* Not the memory's life but the card's: it stays while the dma-buf does. */
static void it_keeps_the_memory(void)
{
	uint64_t a, offset;
	int fd;

	begin();
	a = gpu_alloc(5u << 20);
	OK(export(a, 100, &fd, &offset));
	gpu_free(a);
	CHECK(fakenv_get("fb_used") > at_start.n[LIVE - 1]);
	close(fd);
	CHECK_EQ(fakenv_get("fb_used"), at_start.n[LIVE - 1]);
	finish();
}

/* ---- ways of asking -------------------------------------------------------------------------- */

/* For PCIe first; where that is refused, as it comes. */
static void for_pcie_first(void)
{
	bool pcie = !strcmp(rm_arg, "pcie");
	long before;
	uint64_t a;

	begin();
	a = gpu_alloc(70000);
	before = fakenv_get("exports");
	shows(a + 5, 60000);
	CHECK_EQ(fakenv_get("exports"), before + (strcmp(rm_arg, "refused") ? 1 : 2));
	fakenv_fail_ioctl(0xd9, 1, 0x56);
	if (pcie) {
		shows(a + 5, 60000);
		fakenv_fail_ioctl(0xd9, 1, 0x56);
		fakenv_fail_ioctl(0xd9, 2, 0x56);
	} else if (!strcmp(rm_arg, "refused")) {
		fakenv_fail_ioctl(0xd9, 2, 0x56);
	}
	refuses(a + 5, 60000, ENOTSUP, "cuMemGetHandleForAddressRange: ");
	CHECK_HAS(bw_err_text(), ", and for PCIe ");
	shows(a + 5, 60000);
	gpu_free(a);
	finish();
}

static void no_attribute(void)
{
	uint64_t a;

	begin();
	a = gpu_alloc(70000);
	refuses(a, 70000, ENOTSUP, "install the open kernel modules");
	CHECK_EQ(fakenv_get("exports"), 0);
	gpu_free(a);
	finish();
}

static void no_function(void)
{
	struct bw_cuda *cuda;
	uint64_t a;

	begin();
	cuda = (struct bw_cuda *)(uintptr_t)bw_cuda(NULL);
	cuda->range_handle = NULL;
	a = gpu_alloc(70000);
	refuses(a, 70000, ENOTSUP, "libcuda has no cuMemGetHandleForAddressRange");
	gpu_free(a);
	finish();
}

static void other_memory(void)
{
	unsigned long long managed;
	void *pinned;
	uint64_t a, b;
	char plain[8];

	begin();
	CU_OK(cuMemAllocManaged(&managed, 70000, 1));
	CU_OK(cuMemAllocHost_v2(&pinned, 70000));
	refuses(managed + 4096, 100, ENOTSUP, "managed memory");
	refuses((uintptr_t)pinned, 100, EFAULT, "pinned host memory");
	refuses((uintptr_t)plain, 8, EFAULT, "is not memory of GPU 0");
	CU_OK(cuMemFree_v2(managed));
	CU_OK(cuMemFreeHost(pinned));
	a = gpu_alloc(4096);
	b = gpu_alloc(4096);
	CHECK_EQ(b, a + 4096);
	refuses(a, 8192, ENOTSUP, "begins another allocation");
	refuses(a, 0, EINVAL, "0 bytes");
	gpu_free(a);
	gpu_free(b);
	refuses(a, 4096, EFAULT, "is not memory of GPU 0");
	finish();
}

/* ---- beside others --------------------------------------------------------------------------- */

static void *in_thread(void *arg)
{
	uint64_t a = *(uint64_t *)arg, offset;
	void *current = &current;
	int fd;

	OK(export(a, 70000, &fd, &offset));
	close(fd);
	CU_OK(cuCtxGetCurrent(&current));
	CHECK(!current);
	return NULL;
}

static void without_a_context(void)
{
	pthread_t thread;
	uint64_t a;

	begin();
	a = gpu_alloc(70000);
	CHECK_EQ(pthread_create(&thread, NULL, in_thread, &a), 0);
	pthread_join(thread, NULL);
	gpu_free(a);
	finish();
}

/* In one that was made with cuCtxCreate, and is not current. */
static void in_its_own_context(void)
{
	void *other, *popped;
	uint64_t a;

	begin();
	CU_OK(cuCtxCreate_v2(&other, 0, 0));
	own_contexts++;
	a = gpu_alloc(70000);
	CU_OK(cuCtxPopCurrent_v2(&popped));
	CHECK(popped == other);
	shows(a + 1, 69999);
	CU_OK(cuCtxDestroy_v2(other));
	finish();
}

static void during_a_capture(void)
{
	void *capture, *graph = NULL;
	uint64_t a, offset;
	int fd, status;

	begin();
	a = gpu_alloc(70000);
	CU_OK(cuStreamCreate(&capture, 1));
	CU_OK(cuStreamBeginCapture_v2(capture, CUF_CAPTURE_GLOBAL));
	OK(export(a, 70000, &fd, &offset));
	close(fd);
	CU_OK(cuStreamIsCapturing(capture, &status));
	CHECK_EQ(status, 1);
	CU_OK(cuStreamEndCapture(capture, &graph));
	CHECK(graph);
	CU_OK(cuGraphDestroy(graph));
	CU_OK(cuStreamDestroy_v2(capture));
	gpu_free(a);
	finish();
}

/* When the provider has long stopped to let the kernel see its own. */
static void after_mappings(void)
{
	uint64_t a;
	long before;

	begin();
	a = gpu_alloc(300000);
	for (unsigned i = 0; i < 5; i++) {
		prove(a + 4096 * i + 7, 5000, a, 300000, BARWAY_MAP_UNCACHED);
		before = fakenv_get("exports");
		shows(a + 4096 * i + 9, 70000);
		CHECK(fakenv_get("exports") > before);
	}
	gpu_free(a);
	finish();
}

static _Atomic int mapping;

static void *exporter(void *arg)
{
	uint64_t a = *(uint64_t *)arg, offset;
	long n = 0;
	int fd;

	while (mapping) {
		/* in its first page: there is no second place to ask from */
		if (export(a + (uint64_t)n % 4096, 8192, &fd, &offset))
			return (void *)bw_err_text();
		if (!fakenv_dmabuf(fd, offset, 8192) || close(fd))
			return "it is not a dma-buf";
		n++;
	}
	return n ? NULL : "none was made";
}

static void beside_mappings(void)
{
	enum { N = 4 };
	pthread_t thread[N];
	void *wrong[N];
	uint64_t a, b;

	begin();
	a = gpu_alloc(300000);
	b = gpu_alloc(40000);
	CHECK_EQ(a % 4096, 0);
	mapping = 1;
	for (int i = 0; i < N; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, exporter, &a), 0);
	for (unsigned i = 0; i < 300; i++) {
		struct barway_map_options o = {
			.size = sizeof(o), .flags = BARWAY_MAP_UNCACHED,
		};
		struct barway_mapping *m;

		OK(barway_map(ctx, b + i, 5000, &o, &m));
		OK(barway_unmap(m));
	}
	usleep(10000);
	mapping = 0;
	for (int i = 0; i < N; i++)
		pthread_join(thread[i], &wrong[i]);
	for (int i = 0; i < N; i++)
		if (wrong[i])
			FAIL("thread %d: %s", i, (char *)wrong[i]);
	gpu_free(a);
	gpu_free(b);
	finish();
	CHECK_EQ(fakenv_get("dmabufs"), 0);
}

/* Each call into libcuda once. */
static void calls_fail(void)
{
	unsigned n = 0, failed = 0;
	uint64_t a, offset;
	bool fired;
	int fd, ret;

	begin();
	a = gpu_alloc(70000);
	do {
		bw_fault_arm(BW_FAULT_CUDA, ++n);
		fd = -1;
		ret = export(a, 70000, &fd, &offset);
		fired = !bw_fault_pending(BW_FAULT_CUDA);
		bw_fault_disarm_all();
		failed += ret < 0;
		if (!ret)
			close(fd);
		CHECK_EQ(fakenv_get("dmabufs"), 0);
	} while (fired && n < 100);
	CHECK(n > 3 && n < 100 && failed > 2);
	shows(a, 70000);
	gpu_free(a);
	finish();
}

static void in_a_child(void)
{
	uint64_t a;
	int status;
	pid_t pid;

	begin();
	a = gpu_alloc(70000);
	pid = fork();
	if (!pid) {
		uint64_t offset;
		int fd;

		_exit(export(a, 70000, &fd, &offset) == -ENODEV &&
		      strstr(bw_err_text(), "before fork") ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	shows(a, 70000);
	gpu_free(a);
	finish();
}

/* ---- a region of it -------------------------------------------------------------------------- */

/* What the card's imitation, which cannot map a GPU's dma-buf, or the driver has to say is told. */
static void region(void)
{
	static const char secret[] = "a secret of the tests, not random";
	struct barway_endpoint_options o = {
		.size = sizeof(o), .network = "imitation-rdma", .secret = secret,
		.secret_bytes = sizeof(secret),
	};
	struct barway_region_info i = { .size = sizeof(i) };
	struct barway_endpoint *ep;
	struct barway_region *r;
	uint64_t a;

	begin();
	a = gpu_alloc(300000);
	OK(barway_endpoint_open(ctx, &o, &ep));
	OK(barway_region_open(ep, a + 5, 100000, BARWAY_REGION_PUT, &r));
	CHECK_EQ(fakenv_get("dmabufs"), 0);
	OK(barway_region_query(r, &i));
	CHECK_STR(i.rung, "staged");
	CHECK_HAS(i.reason, "by dma-buf: ");
	CHECK_HAS(i.reason, rm_arg);
	CHECK_HAS(i.reason, "by peer memory: ");
	OK(barway_region_close(r));
	OK(barway_endpoint_close(ep));
	o.path = BARWAY_PATH_DIRECT;
	OK(barway_endpoint_open(ctx, &o, &ep));
	REFUSED(barway_region_open(ep, a + 5, 100000, 0, &r), ENOTSUP, rm_arg);
	CHECK_EQ(fakenv_get("dmabufs"), 0);
	OK(barway_endpoint_close(ep));
	gpu_free(a);
	finish();
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(allocations),
		CASE_ENV(allocations, "FAKENV=driver=535.288.01"),
		CASE_ENV(allocations, "FAKENV=coherent=1"),
		CASE(no_more_than_the_pages),
		CASE(handles_in_a_row),
		CASE(pools),
		CASE(from_the_start),
		CASE(it_keeps_the_memory),
		{ "for_pcie_first: refused", for_pcie_first, NULL, "refused" },
		{ "for_pcie_first: unknown", for_pcie_first, "FAKENV=driver=550.163.01",
		  "unknown" },
		{ "for_pcie_first: taken", for_pcie_first, "FAKENV=coherent=1", "pcie" },
		CASE_ENV(no_attribute, "FAKENV=dmabuf=0"),
		CASE(no_function),
		CASE(other_memory),
		CASE(without_a_context),
		CASE(in_its_own_context),
		CASE(during_a_capture),
		CASE(after_mappings),
		CASE(beside_mappings),
		/* there each is one ioctl: one that is lost is a failure */
		CASE_ENV(beside_mappings, "FAKENV=driver=550.163.01"),
		CASE(calls_fail),
		CASE(in_a_child),
		{ "region", region, NULL, "524" }, /* ENOTSUPP of the kernel, see nv-dmabuf.c */
		{ "region without", region, "FAKENV=dmabuf=0 BARWAY_RM_ROUTES=vmm,ipc",
		  "the driver exports no dma-bufs of GPU 0: install the open kernel modules" },
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
