/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of struct bw_device_ops, on every kind of device that is listed and is there. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contract/device_kinds.h"
#include "held.h"

/* ---- what a device says of itself ---------------------------------------------------------- */

static void describes(struct bw_device *dev)
{
	struct bw_device **again;
	struct bw_reason why;

	CHECK(dev->ops == ops);
	CHECK(list[dev->index] == dev);
	CHECK(*dev->name && dev->memory_total);
	CHECK(!strncmp(dev->uuid, "GPU-", 4));
	CHECK(ops->driver());
	CHECK(ops->maybe(&why));
	CHECK_EQ(ops->enumerate(&again, &why), count);
	CHECK(again[dev->index] == dev);
	CHECK(bw_device_kind_ops(ops->kind) == ops);
	for (int i = 0; i < count; i++)
		CHECK(list[i] == dev || strcmp(list[i]->uuid, dev->uuid));
}

static void description(void)
{
	each_kind(describes);
}

/* ---- allocation and resolution ------------------------------------------------------------- */

static void resolves_one(struct bw_device *dev, size_t bytes)
{
	uint64_t a = mem_alloc(dev, bytes), id = ops->identity(a);
	struct bw_segment seg, whole;

	CHECK(id);
	CHECK_EQ(bw_device_resolve(a, &whole), 0);
	CHECK(whole.dev == dev && whole.base == a && whole.bytes >= bytes && whole.id == id);
	CHECK(whole.kind == BW_MEM_DEVICE || whole.kind == BW_MEM_VMM);
	const uint64_t at[] = { 1, bytes / 2, bytes - 1, whole.bytes - 1 };

	for (unsigned i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		CHECK_EQ(ops->resolve(a + at[i], &seg), 0);
		CHECK(seg.base == a && seg.bytes == whole.bytes && seg.id == id && seg.dev == dev);
		CHECK_EQ(ops->identity(a + at[i]), id);
	}
	/* one past the end is something else, or nothing */
	CHECK(ops->resolve(a + whole.bytes, &seg) || seg.id != id);
	CHECK(ops->identity(a + whole.bytes) != id);
	CHECK_EQ(ops->mem_free(a), 0);
	CHECK(ops->identity(a) != id);
	CHECK(ops->resolve(a, &seg) || seg.id != id);
}

static void resolves(struct bw_device *dev)
{
	static const size_t sizes[] = { 2, 4096, 65536, 65537, 1 << 20, 5000000 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		resolves_one(dev, sizes[i]);
}

static void resolution(void)
{
	each_kind(resolves);
}

/* Whether or not the address comes again, the identity never does. */
static void identifies(struct bw_device *dev)
{
	uint64_t seen[40], again = 0, last = 0;

	for (unsigned i = 0; i < 40; i++) {
		uint64_t a = mem_alloc(dev, 1 << 20);

		again += a == last;
		last = a;
		seen[i] = ops->identity(a);
		CHECK(seen[i]);
		for (unsigned k = 0; k < i; k++)
			CHECK(seen[k] != seen[i]);
		CHECK_EQ(ops->mem_free(a), 0);
	}
	if (!again)
		printf("%s: no address was used again\n", ops->name);
}

static void identity(void)
{
	each_kind(identifies);
}

static void frees(struct bw_device *dev)
{
	uint64_t a = mem_alloc(dev, 1 << 20), x = 7, s;
	static char host;

	CHECK_EQ(ops->mem_alloc(dev, 0, &x), -EINVAL);
	CHECK_EQ(ops->mem_alloc(dev, (size_t)1 << 60, &x), -ENOMEM);
	CHECK(*bw_err_text());
	CHECK_EQ(x, 7);
	CHECK_EQ(ops->mem_free((uintptr_t)&host), -ENOENT);
	CHECK_EQ(ops->mem_free(a + 4096), -ENOENT);
	CHECK_EQ(ops->scratch_alloc(dev, NULL, 4096, &s), 0);
	CHECK_EQ(ops->mem_free(s), -ENOENT); /* not given out by mem_alloc */
	ops->scratch_free(dev, NULL, s);
	CHECK_EQ(ops->mem_free(a), 0);
	CHECK_EQ(ops->mem_free(a), -ENOENT);
}

static void wrong_frees(void)
{
	each_kind(frees);
}

static void counts(struct bw_device *dev)
{
	uint64_t total, before, during, after, a;

	if (ops->mem_info(dev, &total, &before) == -ENODATA)
		return;
	CHECK(total == dev->memory_total && before <= total);
	a = mem_alloc(dev, 8 << 20);
	CHECK_EQ(ops->mem_info(dev, &total, &during), 0);
	CHECK(during < before);
	CHECK_EQ(ops->mem_free(a), 0);
	CHECK_EQ(ops->mem_info(dev, &total, &after), 0);
	CHECK(after > during);
}

static void memory_counts(void)
{
	each_kind(counts);
}

/* ---- the copy engine ----------------------------------------------------------------------- */

#define COPY_MAX (3u << 20)

static void copies(struct bw_device *dev)
{
	static unsigned char src[COPY_MAX], back[COPY_MAX + 64];
	uint64_t a = mem_alloc(dev, COPY_MAX + 64), random = 99;

	for (unsigned i = 0; i < 120; i++) {
		size_t n = i < 40 ? i : i == 40 ? COPY_MAX :
			   test_random(&random) % (i % 2 ? 5000 : 300000);
		size_t at = i == 40 ? 0 : test_random(&random) % 64;

		test_fill(src, n, i + 1);
		memset(back, 0xee, n + 2);
		CHECK_EQ(ops->ce_copy_to(dev, a + at, src, n), 0);
		CHECK_EQ(ops->ce_copy_from(dev, back + 1, a + at, n), 0);
		if (memcmp(src, back + 1, n))
			FAIL("%s: %zu bytes at %zu differ", ops->name, n, at);
		CHECK(back[0] == 0xee && back[n + 1] == 0xee);
	}
	CHECK_EQ(ops->mem_free(a), 0);
}

static void copy_engine(void)
{
	each_kind(copies);
}

/* Nothing around the destination changes. */
static void copies_exactly(struct bw_device *dev)
{
	static unsigned char all[8192], back[8192];
	uint64_t a = mem_alloc(dev, sizeof(all)), random = 5;

	test_fill(all, sizeof(all), 3);
	CHECK_EQ(ops->ce_copy_to(dev, a, all, sizeof(all)), 0);
	for (unsigned i = 0; i < 100; i++) {
		unsigned char piece[200];
		size_t n = 1 + test_random(&random) % sizeof(piece);
		size_t at = test_random(&random) % (sizeof(all) - n);

		test_fill(piece, n, i + 1000);
		memcpy(all + at, piece, n);
		CHECK_EQ(ops->ce_copy_to(dev, a + at, piece, n), 0);
	}
	CHECK_EQ(ops->ce_copy_from(dev, back, a, sizeof(all)), 0);
	CHECK(!memcmp(all, back, sizeof(all)));
	CHECK_EQ(ops->mem_free(a), 0);
}

static void copy_engine_writes_nothing_else(void)
{
	each_kind(copies_exactly);
}

static struct bw_device *thread_dev;

static void *copier(void *arg)
{
	unsigned char buf[3000], back[3000];
	uint64_t addr;
	const char *wrong = NULL;

	if (ops->mem_alloc(thread_dev, sizeof(buf), &addr))
		return "alloc";
	for (unsigned i = 0; i < 50 && !wrong; i++) {
		test_fill(buf, sizeof(buf), i + (uintptr_t)arg * 100);
		if (ops->ce_copy_to(thread_dev, addr, buf, sizeof(buf)) ||
		    ops->ce_copy_from(thread_dev, back, addr, sizeof(buf)))
			wrong = "copy";
		else if (memcmp(buf, back, sizeof(buf)))
			wrong = "data";
	}
	return ops->mem_free(addr) ? (void *)"free" : (void *)wrong;
}

/* Threads that have no context current. */
static void copies_from_threads(struct bw_device *dev)
{
	void *wrong[4] = { 0 };
	pthread_t t[4];

	thread_dev = dev;
	for (uintptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, copier, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], &wrong[i]);
	for (unsigned i = 0; i < 4; i++)
		if (wrong[i])
			FAIL("%s: thread %u: %s: %s", ops->name, i, (char *)wrong[i],
			     bw_err_text());
}

static void copy_engine_from_threads(void)
{
	each_kind(copies_from_threads);
}

/* ---- scratch ------------------------------------------------------------------------------- */

static void scratches(struct bw_device *dev)
{
	unsigned char buf[4096], back[4096];
	struct bw_segment seg;
	uint64_t a, b;

	CHECK_EQ(ops->scratch_alloc(dev, NULL, sizeof(buf), &a), 0);
	CHECK_EQ(ops->scratch_alloc(dev, NULL, sizeof(buf), &b), 0);
	CHECK(a + sizeof(buf) <= b || b + sizeof(buf) <= a);
	CHECK_EQ(ops->resolve(a, &seg), 0);
	CHECK(seg.dev == dev && seg.kind == BW_MEM_DEVICE && seg.bytes >= sizeof(buf));
	CHECK(ops->identity(a) != ops->identity(b));
	test_fill(buf, sizeof(buf), 8);
	CHECK_EQ(ops->ce_copy_to(dev, a, buf, sizeof(buf)), 0);
	CHECK_EQ(ops->ce_copy_from(dev, back, a, sizeof(buf)), 0);
	CHECK(!memcmp(buf, back, sizeof(buf)));
	ops->scratch_free(dev, NULL, b);
	ops->scratch_free(dev, NULL, a);
}

static void scratch(void)
{
	each_kind(scratches);
}

/* ---- dma-bufs ------------------------------------------------------------------------------ */

#define EXPORT_BYTES (3u << 20)
#define CPU_PAGE 4096u

/* Through the descriptor alone, both ways, where it can be mapped. */
static void exported_data(struct bw_device *dev, uint64_t addr, size_t n, int fd, uint64_t offset)
{
	unsigned char *got = malloc(n), *there;
	size_t head = offset % CPU_PAGE;
	void *map = mmap(NULL, head + n, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 (off_t)(offset - head));

	CHECK(got);
	if (map != MAP_FAILED) {
		there = (unsigned char *)map + head;
		test_fill(got, n, addr + n);
		CHECK_EQ(ops->ce_copy_to(dev, addr, got, n), 0);
		CHECK(!memcmp(there, got, n));
		test_fill(there, n, addr + n + 1);
		CHECK_EQ(ops->ce_copy_from(dev, got, addr, n), 0);
		CHECK(!memcmp(there, got, n));
		munmap(map, head + n);
	}
	free(got);
}

/* Returns false where this device exports none, which it has to give a reason for. */
static bool exports_one(struct bw_device *dev, uint64_t addr, size_t n)
{
	uint64_t offset = 77;
	int fd = -77, ret;

	bw_err(EPERM, "as it was");
	ret = ops->export_dmabuf(dev, addr, n, &fd, &offset);
	if (ret) {
		CHECK_EQ(ret, -ENOTSUP);
		CHECK(fd == -77 && offset == 77);
		printf("%s: %s\n", ops->name, bw_err_text());
		return false;
	}
	CHECK_STR(bw_err_text(), "as it was");
	CHECK(fd > 2 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK_EQ(offset % CPU_PAGE, addr % CPU_PAGE);
	CHECK(lseek(fd, 0, SEEK_END) >= (off_t)(offset + n));
	exported_data(dev, addr, n, fd, offset);
	CHECK_EQ(close(fd), 0);
	return true;
}

static void exports(struct bw_device *dev)
{
	static const struct { size_t at, n; } ranges[] = {
		{ 0, EXPORT_BYTES }, { 0, 1 }, { 1, 1 }, { 4095, 2 }, { 4096, 4096 },
		{ 70001, 123457 }, { EXPORT_BYTES - 1, 1 }, { 65535, 2 * 65536 + 2 },
	};
	uint64_t a = mem_alloc(dev, EXPORT_BYTES), small[3];
	int files = open_files();
	bool can = true;

	for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]) && can; i++)
		can = exports_one(dev, a + ranges[i].at, ranges[i].n);
	for (unsigned i = 0; i < 3; i++) /* which share a block, and pages */
		CHECK_EQ(ops->scratch_alloc(dev, NULL, 600, &small[i]), 0);
	for (unsigned i = 0; i < 3 && can; i++)
		can = exports_one(dev, small[i] + i, 600 - i);
	for (unsigned i = 0; i < 3; i++)
		ops->scratch_free(dev, NULL, small[i]);
	CHECK_EQ(open_files(), files);
	CHECK_EQ(ops->mem_free(a), 0);
}

static void dmabufs(void)
{
	each_kind(exports);
}

static void refuses_export(struct bw_device *dev, uint64_t addr, size_t n, int err, int or)
{
	uint64_t offset = 77;
	int fd = -77, ret;

	bw_err(EPERM, "as it was");
	ret = ops->export_dmabuf(dev, addr, n, &fd, &offset);
	if (ret != -err && ret != -or)
		FAIL("%s: 0x%llx, %zu bytes: %d", ops->name, (unsigned long long)addr, n, ret);
	CHECK(fd == -77 && offset == 77);
	CHECK(strcmp(bw_err_text(), "as it was"));
}

static void refuses_exports(struct bw_device *dev)
{
	uint64_t a = mem_alloc(dev, 1 << 20), at = 0;
	static char plain[4096];
	int files = open_files();
	struct bw_segment seg, next;
	void *pinned;

	CHECK_EQ(ops->resolve(a, &seg), 0);
	refuses_export(dev, a, 0, EINVAL, EINVAL);
	refuses_export(dev, (uintptr_t)plain, 8, EFAULT, EFAULT);
	refuses_export(dev, 0, 8, EFAULT, EFAULT);
	refuses_export(dev, a, SIZE_MAX, EFAULT, ENOTSUP); /* what is behind it? */
	if (ops->resolve(a + seg.bytes, &next) || next.kind != BW_MEM_VMM)
		refuses_export(dev, a + seg.bytes - 8, 16, EFAULT, ENOTSUP);
	CHECK_EQ(ops->host_alloc(dev, 4096, &pinned, &at), 0);
	refuses_export(dev, at, 8, EFAULT, EFAULT);
	CHECK_EQ(ops->host_free(pinned), 0);
	for (int i = 0; i < count; i++)
		if (list[i] != dev)
			refuses_export(list[i], a, 8, EFAULT, EFAULT);
	CHECK_EQ(ops->mem_free(a), 0);
	refuses_export(dev, a, 8, EFAULT, EFAULT);
	CHECK_EQ(open_files(), files);
}

static void no_dmabufs(void)
{
	each_kind(refuses_exports);
}

/* A thread without a context. */
static void *exporter(void *arg)
{
	uint64_t offset;
	int fd, ret;

	for (unsigned i = 0; i < 50; i++) {
		ret = ops->export_dmabuf(thread_dev, *(uint64_t *)arg + i, 5000, &fd, &offset);
		if (ret && ret != -ENOTSUP)
			return (void *)bw_err_text();
		if (!ret && close(fd))
			return "close";
	}
	return NULL;
}

static void exports_from_threads(struct bw_device *dev)
{
	uint64_t a = mem_alloc(dev, 1 << 20);
	int files = open_files();
	pthread_t t[4];
	void *wrong;

	thread_dev = dev;
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, exporter, &a), 0);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], &wrong);
		CHECK(!wrong);
	}
	CHECK_EQ(open_files(), files);
	CHECK_EQ(ops->mem_free(a), 0);
}

static void dmabufs_from_threads(void)
{
	each_kind(exports_from_threads);
}

/* ---- host memory --------------------------------------------------------------------------- */

static char in_data;

static void is_host(const void *p)
{
	struct bw_segment seg = { .kind = BW_MEM_VMM, .id = 9 };

	CHECK_EQ(bw_device_resolve((uintptr_t)p, &seg), 0);
	CHECK_EQ(seg.kind, BW_MEM_HOST);
	CHECK(!seg.dev);
	CHECK_EQ(seg.id, 0);
	for (unsigned i = 0; bw_device_kinds[i]; i++)
		CHECK_EQ(bw_device_kinds[i]->identity((uintptr_t)p), 0);
}

static void host(struct bw_device *dev)
{
	char on_stack = 0, *heap = malloc(100);
	void *anon = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)dev;
	CHECK(heap && anon != MAP_FAILED);
	is_host(NULL);
	is_host(&on_stack);
	is_host(&in_data);
	is_host(heap);
	is_host(anon);
	is_host((void *)UINTPTR_MAX);
	munmap(anon, 4096);
	free(heap);
}

static void host_memory(void)
{
	each_kind(host);
}

static void names(void)
{
	for (int k = BW_MEM_HOST; k <= BW_MEM_HOST_VMM; k++) {
		CHECK(*bw_mem_kind_name((enum bw_mem_kind)k));
		for (int i = BW_MEM_HOST; i < k; i++)
			CHECK(strcmp(bw_mem_kind_name((enum bw_mem_kind)i),
				     bw_mem_kind_name((enum bw_mem_kind)k)));
	}
	CHECK(!bw_device_kind_ops((enum bw_device_kind)77));
	CHECK_STR(bw_device_kind_ops(BW_DEVICE_SOFT)->name, "soft");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(description),
		TEST(resolution),
		TEST(identity),
		TEST(wrong_frees),
		TEST(memory_counts),
		TEST(copy_engine),
		TEST(copy_engine_writes_nothing_else),
		TEST(copy_engine_from_threads),
		TEST(scratch),
		TEST(dmabufs),
		TEST(no_dmabufs),
		TEST(dmabufs_from_threads),
		TEST(host_memory),
		TEST(names),
		{ 0 },
	};

	return device_main(argc, argv, cases);
}
