/* SPDX-License-Identifier: BSD-3-Clause */
/* The soft GPU: memory, addresses, aperture, streams, sharing, and what failures leave behind. */
#include "device/soft.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/param.h"
#include "soft_test.h"

/* ---- devices ------------------------------------------------------------------------------- */

static void devices(void)
{
	struct bw_device **list;
	struct bw_reason why;

	CHECK(ops->maybe(&why));
	CHECK_EQ(ops->enumerate(&list, &why), 2);
	CHECK(list[0] == bw_soft_device(0) && list[1] == bw_soft_device(1));
	CHECK_EQ(list[1]->index, 1);
	CHECK_STR(list[1]->uuid, "GPU-soft-1");
	CHECK_STR(list[0]->name, "Barway soft GPU");
	CHECK_EQ(list[0]->memory_total, MEMORY);
	CHECK(!list[0]->has_pci && list[0]->ops == ops);
	CHECK_STR(ops->driver(), "soft");
	CHECK(!bw_soft_device(2));
	CHECK_HAS(bw_err_text(), "soft_devices");
	CHECK(!bw_soft_device(-1));
}

/* ---- allocations --------------------------------------------------------------------------- */

static void sizes(void)
{
	static const size_t sizes[] = {
		1, 511, 512, 513, 4096, 65536,
		(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, 5000001,
	};
	uint64_t used = mem_used(0), addr[N(sizes)], last = 0;
	struct bw_segment seg;

	for (unsigned i = 0; i < N(sizes); i++) {
		addr[i] = alloc(sizes[i]);
		for (int k = 0; k < 3; k++) {
			size_t at = k == 0 ? 0 : k == 1 ? sizes[i] / 2 : sizes[i] - 1;

			CHECK_EQ(ops->resolve(addr[i] + at, &seg), 0);
			CHECK_EQ(seg.base, addr[i]);
			CHECK_EQ(seg.bytes, sizes[i]);
			CHECK_EQ(seg.kind, BW_MEM_DEVICE);
			CHECK(seg.dev == dev(0) && seg.rdma_capable && seg.id);
			CHECK_EQ(ops->identity(addr[i] + at), seg.id);
		}
		CHECK(seg.id > last);
		last = seg.id;
		CHECK(ops->identity(addr[i] + sizes[i]) != seg.id);
	}
	for (unsigned i = 0; i < N(sizes); i++) {
		CHECK_EQ(bw_soft_free(addr[i]), 0);
		CHECK_EQ(ops->identity(addr[i]), 0);
		CHECK_EQ(ops->resolve(addr[i], &seg), -ENOENT);
	}
	CHECK_EQ(mem_used(0), used);
}

static void small_ones_share_pages(void)
{
	uint64_t used = mem_used(0), a = alloc(1000), b = alloc(1);

	CHECK_EQ(b - a, 1024);
	CHECK_EQ(mem_used(0) - used, BW_SOFT_BLOCK);
	CHECK(ops->identity(a) != ops->identity(b));
	CHECK_EQ(ops->identity(a + 1000), 0);
	CHECK_EQ(ops->identity(b + 1), 0);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(mem_used(0) - used, BW_SOFT_BLOCK);
	CHECK(ops->identity(b));
	CHECK_EQ(bw_soft_free(b), 0);
	CHECK_EQ(mem_used(0), used);
}

static void addresses_come_again_with_another_identity(void)
{
	for (size_t bytes = 100; bytes <= 10000000; bytes *= 100) {
		uint64_t a = alloc(bytes), id = ops->identity(a);

		CHECK_EQ(bw_soft_free(a), 0);
		CHECK_EQ(alloc(bytes), a);
		CHECK(ops->identity(a) > id);
		CHECK_EQ(bw_soft_free(a), 0);
	}
}

static void wrong_frees(void)
{
	uint64_t a = alloc(100), b = alloc(2 << 20), m, x;
	int on_stack;

	CHECK_EQ(ops->mem_alloc(dev(0), 1, &m), 0);
	CHECK_EQ(bw_soft_free(a + 1), -ENOENT);
	CHECK_EQ(bw_soft_free(a + 512), -ENOENT);
	CHECK_EQ(bw_soft_free(b + 65536), -ENOENT);
	CHECK_EQ(bw_soft_free(m), -ENOENT);
	CHECK_EQ(ops->mem_free(a), -ENOENT);
	CHECK_EQ(ops->mem_free(b), -ENOENT);
	CHECK_EQ(ops->mem_free((uintptr_t)&on_stack), -ENOENT);
	CHECK_EQ(ops->mem_free(0), -ENOENT);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(bw_soft_free(a), -ENOENT);
	CHECK_EQ(bw_soft_free(b), 0);
	CHECK_EQ(bw_soft_free(b), -ENOENT);
	CHECK_EQ(ops->mem_free(m), 0);
	CHECK_EQ(ops->mem_free(m), -ENOENT);
	CHECK_EQ(bw_soft_malloc(dev(0), 0, &x), -EINVAL);
	CHECK_HAS(bw_err_text(), "0 bytes");
}

static void memory_runs_out(void)
{
	uint64_t addr[64], x = 42, used = mem_used(0);
	unsigned n = 0;

	CHECK_EQ(bw_soft_malloc(dev(0), SIZE_MAX, &x), -ENOMEM);
	CHECK_EQ(bw_soft_malloc(dev(0), MEMORY + 1, &x), -ENOMEM);
	CHECK_HAS(bw_err_text(), "needs 67108865 bytes, 67108864 are free");
	CHECK_HAS(bw_err_text(), "soft_memory");
	while (n < N(addr) && !bw_soft_malloc(dev(0), 4 << 20, &addr[n]))
		n++;
	CHECK_EQ(n, 16);
	CHECK_HAS(bw_err_text(), "needs 4194304 bytes");
	CHECK_EQ(bw_soft_malloc(dev(0), 1, &x), -ENOMEM); /* no block to share */
	CHECK_EQ(x, 42);
	CHECK_EQ(bw_soft_free(addr[3]), 0);
	CHECK_EQ(bw_soft_free(addr[5]), 0);
	CHECK_EQ(bw_soft_malloc(dev(0), 8 << 20, &x), -ENOMEM);
	CHECK_HAS(bw_err_text(), "8388608 are free, 4194304 in one piece");
	CHECK_EQ(bw_soft_free(addr[4]), 0);
	CHECK_EQ(bw_soft_malloc(dev(0), 12 << 20, &x), 0);
	CHECK_EQ(bw_soft_free(x), 0);
	for (unsigned i = 0; i < n; i++)
		if (i < 3 || i > 5)
			CHECK_EQ(bw_soft_free(addr[i]), 0);
	CHECK_EQ(mem_used(0), used);
}

static uint64_t file_blocks(void)
{
	uint64_t blocks = 0;
	char path[64], to[64];
	struct stat st;

	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, to, sizeof(to) - 1);

		to[n > 0 ? n : 0] = 0;
		if (strstr(to, "barway-soft") && !fstat(fd, &st))
			blocks += (uint64_t)st.st_blocks * 512;
	}
	return blocks;
}

static void freeing_gives_memory_back(void)
{
	uint64_t before = file_blocks(), a = alloc(16 << 20);

	memset(bw_soft_view(dev(0), a, 16 << 20), 1, 16 << 20);
	CHECK(file_blocks() - before >= 16 << 20);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK(file_blocks() - before < 1 << 20);
}

static void device_pointers_fault(void)
{
	uint64_t a = alloc(4 << 20), b = alloc(1), r;

	CHECK_EQ(bw_soft_reserve(65536, &r), 0);
	CHECK(faults((void *)(uintptr_t)a));
	CHECK(faults((void *)(uintptr_t)b));
	CHECK(faults((void *)(uintptr_t)r));
	CHECK_EQ(bw_soft_unreserve(r, 65536), 0);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(bw_soft_free(b), 0);
	CHECK(faults((void *)(uintptr_t)a));
}

static void addresses_run_out(void)
{
	uint64_t addr[64];
	unsigned n = 0;

	while (n < N(addr) && !bw_soft_reserve(8ull << 30, &addr[n]))
		n++;
	CHECK(n < N(addr)); /* none where the address space is limited */
	CHECK_HAS(bw_err_text(), "device addresses");
	while (n--)
		CHECK_EQ(bw_soft_unreserve(addr[n], 8ull << 30), 0);
}

static void deref(void)
{
	uint64_t a = alloc(1000), b = alloc(2 << 20);
	char on_stack;

	CHECK(bw_soft_view(dev(0), a, 1000));
	CHECK(bw_soft_view(dev(0), a + 999, 1));
	CHECK(!bw_soft_view(dev(0), a, 1001));
	CHECK(!bw_soft_view(dev(0), a + 1000, 1));
	CHECK(!bw_soft_view(dev(1), a, 1000));
	CHECK(!bw_soft_view(dev(0), b + 1, 2 << 20));
	CHECK(!bw_soft_view(dev(0), b + 1, SIZE_MAX));
	CHECK(!bw_soft_view(dev(0), (uintptr_t)&on_stack, 1));
	CHECK_EQ((char *)bw_soft_view(dev(0), b + 77, 1) - (char *)bw_soft_view(dev(0), b, 1),
		 77);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(bw_soft_free(b), 0);
	CHECK(!bw_soft_view(dev(0), a, 1));
}

static void two_devices(void)
{
	uint64_t used = mem_used(0), used1 = mem_used(1), a, b;
	struct bw_segment seg;
	struct view v;
	char c = 0;

	CHECK_EQ(bw_soft_malloc(dev(0), 100, &a), 0);
	CHECK_EQ(bw_soft_malloc(dev(1), 100, &b), 0);
	CHECK(a / BW_SOFT_BLOCK != b / BW_SOFT_BLOCK);
	CHECK_EQ(ops->resolve(b, &seg), 0);
	CHECK(seg.dev == dev(1));
	CHECK_EQ(mem_used(1) - used1, BW_SOFT_BLOCK);
	CHECK_EQ(ops->ce_copy_to(dev(0), b, &c, 1), -EFAULT);
	CHECK_HAS(bw_err_text(), "soft GPU 0");
	view_open(&v, b, PAGE);
	CHECK_EQ(bar1_used(0), 0);
	CHECK_EQ(bar1_used(1), BW_SOFT_PAGE);
	view_close(&v);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(bw_soft_free(b), 0);
	CHECK_EQ(mem_used(0), used);
	CHECK_EQ(mem_used(1), used1);
}

/* ---- VMM ----------------------------------------------------------------------------------- */

static void vmm(void)
{
	struct bw_soft_handle *h, *g;
	uint64_t used = mem_used(0), r, id;
	struct bw_segment seg;
	char buf[64] = "", text[] = "through the other address";

	CHECK_EQ(bw_soft_handle_create(dev(0), 100, &h), -EINVAL);
	CHECK_EQ(bw_soft_handle_create(dev(0), 0, &h), -EINVAL);
	CHECK_EQ(bw_soft_handle_create(dev(0), 2 * MEMORY, &h), -ENOMEM);
	CHECK_EQ(bw_soft_reserve(1, &r), -EINVAL);
	CHECK_EQ(bw_soft_handle_create(dev(0), 128 << 10, &h), 0);
	CHECK_EQ(bw_soft_handle_create(dev(0), 64 << 10, &g), 0);
	CHECK_EQ(mem_used(0) - used, 192 << 10);
	CHECK_EQ(bw_soft_reserve(320 << 10, &r), 0);
	CHECK_EQ(ops->resolve(r, &seg), -ENOENT);
	CHECK_EQ(bw_soft_mem_map(r + 4096, h), -EINVAL);
	CHECK_EQ(bw_soft_mem_map(r + (256 << 10), h), -EINVAL); /* ends beyond */
	CHECK_EQ(bw_soft_mem_map(r, h), 0);
	CHECK_EQ(bw_soft_mem_map(r + (64 << 10), g), -EINVAL); /* taken */
	CHECK_EQ(bw_soft_mem_map(r + (128 << 10), g), 0);
	CHECK_EQ(bw_soft_mem_map(r + (192 << 10), h), 0);
	CHECK_EQ(ops->resolve(r + (128 << 10) - 1, &seg), 0);
	CHECK_EQ(seg.kind, BW_MEM_VMM);
	CHECK_EQ(seg.base, r);
	CHECK_EQ(seg.bytes, 128 << 10);
	id = seg.id;
	CHECK(ops->identity(r + (192 << 10)) != id);
	CHECK_EQ(ops->ce_copy_to(dev(0), r + 777, text, sizeof(text)), 0);
	CHECK_EQ(ops->ce_copy_from(dev(0), buf, r + (192 << 10) + 777, sizeof(text)), 0);
	CHECK_STR(buf, text);
	CHECK_EQ(bw_soft_unreserve(r, 320 << 10), -EBUSY);
	CHECK_EQ(bw_soft_free(r), -ENOENT);
	CHECK_EQ(bw_soft_mem_unmap(r + (64 << 10)), -ENOENT); /* not where it begins */

	/* a released handle's memory stays while it is mapped */
	bw_soft_handle_release(h);
	bw_soft_handle_release(g);
	CHECK_EQ(mem_used(0) - used, 192 << 10);
	CHECK_EQ(bw_soft_mem_unmap(r), 0);
	CHECK_EQ(bw_soft_mem_unmap(r), -ENOENT);
	CHECK_EQ(ops->identity(r), 0);
	CHECK_EQ(mem_used(0) - used, 192 << 10);
	CHECK_EQ(bw_soft_mem_unmap(r + (192 << 10)), 0);
	CHECK_EQ(mem_used(0) - used, 64 << 10);
	CHECK_EQ(bw_soft_mem_unmap(r + (128 << 10)), 0);
	CHECK_EQ(mem_used(0), used);
	CHECK_EQ(bw_soft_unreserve(r, 64 << 10), -ENOENT);
	CHECK_EQ(bw_soft_unreserve(r, 320 << 10), 0);
	CHECK_EQ(bw_soft_unreserve(r, 320 << 10), -ENOENT);
}

static void vmm_unmapped_memory_stays_with_its_handle(void)
{
	struct bw_soft_handle *h;
	uint64_t used = mem_used(0), r, id;
	char c = 'x', d = 0;

	CHECK_EQ(bw_soft_handle_create(dev(0), 65536, &h), 0);
	CHECK_EQ(bw_soft_reserve(65536, &r), 0);
	CHECK_EQ(bw_soft_mem_map(r, h), 0);
	id = ops->identity(r);
	CHECK_EQ(ops->ce_copy_to(dev(0), r, &c, 1), 0);
	CHECK_EQ(bw_soft_mem_unmap(r), 0);
	CHECK_EQ(mem_used(0) - used, 65536);
	CHECK_EQ(bw_soft_mem_map(r, h), 0);
	CHECK(ops->identity(r) > id);
	CHECK_EQ(ops->ce_copy_from(dev(0), &d, r, 1), 0);
	CHECK_EQ(d, 'x');
	CHECK_EQ(bw_soft_mem_unmap(r), 0);
	CHECK_EQ(bw_soft_unreserve(r, 65536), 0);
	bw_soft_handle_release(h);
	CHECK_EQ(mem_used(0), used);
}

/* ---- windows ------------------------------------------------------------------------------- */

static void window_is_the_memory(void)
{
	static unsigned char buf[300000], back[300000];
	uint64_t a = alloc(2 << 20);
	struct view v;

	view_open(&v, a + PAGE, 512 << 10);
	test_fill(buf, sizeof(buf), 1);
	memcpy(v.p + 123, buf, sizeof(buf));
	CHECK_EQ(ops->ce_copy_from(dev(0), back, a + PAGE + 123, sizeof(buf)), 0);
	CHECK(!memcmp(buf, back, sizeof(buf)));
	test_fill(buf, sizeof(buf), 2);
	CHECK_EQ(ops->ce_copy_to(dev(0), a + PAGE + 77, buf, sizeof(buf)), 0);
	CHECK(!memcmp(v.p + 77, buf, sizeof(buf)));
	view_close(&v);
	CHECK_EQ(bw_soft_free(a), 0);
}

static void window_ranges(void)
{
	uint64_t a = alloc(PAGE + 1), b = alloc((1 << 20) + 1), r;
	uint64_t tail = b + (1 << 20); /* the page of the last byte */
	struct view v;
	char on_stack;

	CHECK_EQ(view_try(&v, a + 512, PAGE), -EFAULT);
	CHECK_EQ(view_try(&v, b, PAGE + 1), -EFAULT);
	CHECK_EQ(view_try(&v, tail, 2 * PAGE), -EFAULT);
	CHECK_EQ(view_try(&v, tail + PAGE, PAGE), -EFAULT);
	CHECK_EQ(view_try(&v, b - PAGE, 2 * PAGE), -EFAULT);
	CHECK_EQ(view_try(&v, (uintptr_t)&on_stack & ~4095ull, PAGE), -EFAULT);
	CHECK_EQ(view_try(&v, a, 3 * PAGE), -EFAULT); /* nothing lives in the third */
	CHECK_EQ(bw_soft_reserve(65536, &r), 0);
	CHECK_EQ(view_try(&v, r, PAGE), -EFAULT);
	CHECK_EQ(bw_soft_unreserve(r, 65536), 0);
	CHECK_EQ(bar1_used(0), 0);
	view_open(&v, tail, PAGE);
	view_close(&v);
	view_open(&v, a, 2 * PAGE);
	view_close(&v);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(view_try(&v, a, PAGE), -EFAULT);
	CHECK_EQ(bw_soft_free(b), 0);
	CHECK_EQ(view_try(&v, b, PAGE), -EFAULT);
}

static void freed_memory_lives_under_a_window(void)
{
	uint64_t used = mem_used(0), a = alloc(2 << 20), b, all[64];
	unsigned n = 0;
	struct view v;

	view_open(&v, a, 2 << 20);
	memset(v.p, 0x5a, 2 << 20);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(mem_used(0) - used, 2 << 20);
	b = alloc(2 << 20);
	CHECK_EQ(b, a); /* the address is used again, the memory is not */
	CHECK_EQ(bw_soft_free(b), 0);
	while (n < N(all) && !bw_soft_malloc(dev(0), 1 << 20, &all[n])) {
		memset(bw_soft_view(dev(0), all[n], 1 << 20), 0xa5, 1 << 20);
		n++;
	}
	CHECK_EQ(n, 62);
	for (size_t i = 0; i < 2 << 20; i++)
		if (v.p[i] != 0x5a)
			FAIL("byte %zu is %#x", i, v.p[i]);
	while (n--)
		CHECK_EQ(bw_soft_free(all[n]), 0);
	CHECK_EQ(mem_used(0) - used, 2 << 20);
	view_close(&v);
	CHECK_EQ(mem_used(0), used);
}

static void aperture_runs_out(void)
{
	uint64_t a = alloc(16 << 20), total, free;
	struct view v[128], x;

	bw_soft_aperture(dev(0), &total, &free);
	CHECK_EQ(total, BAR1);
	CHECK_EQ(free, BAR1);
	for (unsigned i = 0; i < 128; i++)
		view_open(&v[i], a + PAGE * 3, PAGE); /* one page each, though all are the same */
	CHECK_EQ(view_try(&x, a, PAGE), -ENOMEM);
	CHECK_HAS(bw_err_text(), "needs 65536 bytes, 0 are free of 8388608");
	CHECK_HAS(bw_err_text(), "soft_bar1");
	view_close(&v[0]);
	view_close(&v[1]);
	CHECK_EQ(view_try(&x, a, (128 << 10) + PAGE), -ENOMEM);
	CHECK_HAS(bw_err_text(), "needs 196608 bytes, 131072 are free");
	view_open(&x, a + BW_SOFT_PAGE - PAGE, 2 * PAGE); /* touches two */
	bw_soft_aperture(dev(0), &total, &free);
	CHECK_EQ(free, 0);
	view_close(&x);
	for (unsigned i = 2; i < 128; i++)
		view_close(&v[i]);
	CHECK_EQ(bar1_used(0), 0);
	CHECK_EQ(bw_soft_free(a), 0);
}

/* ---- streams ------------------------------------------------------------------------------- */

static void wait_for_flag(struct barway_soft_block *d, void *arg)
{
	const void *flag = bw_soft_deref(d, *(uint64_t *)arg, 8);

	while (!bw_soft_load64_acquire(flag))
		sched_yield();
}

static void copies_are_asynchronous_and_in_order(void)
{
	uint64_t flag = alloc(8), data = alloc(8), two = 2, three = 3, zero = 0;
	_Atomic uint64_t got = 0;
	struct bw_soft_stream *s;
	struct view v;

	CHECK_EQ(ops->ce_copy_to(dev(0), flag, &zero, 8), 0);
	CHECK_EQ(ops->ce_copy_to(dev(0), data, &two, 8), 0);
	view_open(&v, flag & ~4095ull, PAGE);
	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	CHECK_EQ(bw_soft_launch(s, wait_for_flag, 1, &flag, 0), 0);
	CHECK_EQ(bw_soft_copy_to_async(s, data, &three, 8), 0);
	CHECK_EQ(bw_soft_copy_from_async(s, (void *)&got, data, 8), 0);
	usleep(20000);
	CHECK_EQ(atomic_load(&got), 0);
	CHECK_EQ(*(uint64_t *)bw_soft_view(dev(0), data, 8), 2);
	/* other work of the device goes on meanwhile */
	CHECK_EQ(ops->ce_copy_from(dev(0), &two, data, 8), 0);
	__atomic_store_n((uint64_t *)(v.p + flag % PAGE), 1, __ATOMIC_RELEASE);
	CHECK_EQ(bw_soft_stream_sync(s), 0);
	CHECK_EQ(atomic_load(&got), 3);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	view_close(&v);
	CHECK_EQ(bw_soft_free(flag), 0);
	CHECK_EQ(bw_soft_free(data), 0);
}

struct pong {
	uint64_t addr; /* words: ping, pong, data */
	int bad;
};

#define ROUNDS 2000u

static void pong_kernel(struct barway_soft_block *d, void *arg)
{
	struct pong *p = arg;
	uint64_t *w = bw_soft_deref(d, p->addr, 24);

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		while (bw_soft_load64(&w[0]) != i)
			sched_yield();
		if (bw_soft_load64_acquire(&w[0]) != i || bw_soft_load64(&w[2]) != i * 3)
			p->bad++;
		bw_soft_store64_release(&w[1], i);
	}
}

static void kernel_and_cpu_see_each_other(void)
{
	struct pong p = { .addr = alloc(24) };
	struct bw_soft_stream *s;
	uint64_t *w;
	struct view v;

	memset(bw_soft_view(dev(0), p.addr, 24), 0, 24);
	view_open(&v, p.addr & ~4095ull, PAGE);
	w = (uint64_t *)(v.p + p.addr % PAGE);
	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	CHECK_EQ(bw_soft_launch(s, pong_kernel, 1, &p, 0), 0);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		__atomic_store_n(&w[2], i * 3, __ATOMIC_RELAXED);
		__atomic_store_n(&w[0], i, __ATOMIC_RELEASE);
		while (__atomic_load_n(&w[1], __ATOMIC_ACQUIRE) != i)
			sched_yield();
	}
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(p.bad, 0);
	view_close(&v);
	CHECK_EQ(bw_soft_free(p.addr), 0);
}

static void mark(struct barway_soft_block *d, void *arg)
{
	(void)d;
	++*(int *)arg;
}

static void an_error_sticks_until_synchronised(void)
{
	uint64_t a = alloc(100);
	struct bw_soft_stream *s;
	char buf[100] = "";
	int marked = 0;

	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	bw_fault_arm(BW_FAULT_COPY, 1);
	CHECK_EQ(bw_soft_copy_to_async(s, a, buf, 100), 0);
	CHECK_EQ(bw_soft_launch(s, mark, 1, &marked, 0), 0);
	CHECK_EQ(bw_soft_stream_sync(s), -EIO);
	CHECK_HAS(bw_err_text(), "copy engine");
	CHECK_EQ(marked, 1);
	CHECK_EQ(bw_soft_stream_sync(s), 0);
	bw_fault_arm(BW_FAULT_COPY, 1);
	CHECK_EQ(bw_soft_copy_from_async(s, buf, a, 100), 0);
	CHECK_EQ(bw_soft_stream_destroy(s), -EIO);
	bw_fault_arm(BW_FAULT_COPY, 2);
	CHECK_EQ(ops->ce_copy_to(dev(0), a, buf, 100), 0);
	CHECK_EQ(ops->ce_copy_to(dev(0), a, buf, 100), -EIO);
	CHECK_EQ(ops->ce_copy_from(dev(0), buf, a, 100), 0);
	CHECK_EQ(bw_soft_free(a), 0);
}

static void wrong_copies(void)
{
	uint64_t a = alloc(100), b;
	struct bw_soft_stream *s;
	char buf[200] = "";

	CHECK_EQ(bw_soft_malloc(dev(1), 100, &b), 0);
	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	CHECK_EQ(bw_soft_copy_to_async(s, a, buf, 101), -EFAULT);
	CHECK_EQ(bw_soft_copy_to_async(s, a + 100, buf, 1), -EFAULT);
	CHECK_EQ(bw_soft_copy_from_async(s, buf, b, 100), -EFAULT);
	CHECK_EQ(bw_soft_copy_from_async(s, buf, (uintptr_t)buf, 100), -EFAULT);
	CHECK_EQ(bw_soft_copy_from_async(s, buf, a, 0), 0);
	CHECK_EQ(ops->ce_copy_to(dev(0), a + 1, buf, 100), -EFAULT);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(bw_soft_free(b), 0);
}

static void a_queued_copy_keeps_its_memory(void)
{
	uint64_t used, flag = alloc(8), a, b;
	struct bw_soft_stream *s;
	static char src[1 << 20];

	memset(bw_soft_view(dev(0), flag, 8), 0, 8);
	used = mem_used(0);
	a = alloc(1 << 20);
	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	CHECK_EQ(bw_soft_launch(s, wait_for_flag, 1, &flag, 0), 0);
	memset(src, 1, sizeof(src));
	CHECK_EQ(bw_soft_copy_to_async(s, a, src, sizeof(src)), 0);
	CHECK_EQ(bw_soft_free(a), 0);
	b = alloc(1 << 20);
	bw_soft_store64_release(bw_soft_view(dev(0), flag, 8), 1);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(*(char *)bw_soft_view(dev(0), b, 1), 0);
	CHECK_EQ(bw_soft_free(b), 0);
	CHECK_EQ(mem_used(0), used);
	CHECK_EQ(bw_soft_free(flag), 0);
}

static void look_at_signals(struct barway_soft_block *d, void *arg)
{
	(void)d;
	pthread_sigmask(SIG_SETMASK, NULL, arg);
}

static void streams_take_no_signals(void)
{
	struct bw_soft_stream *s;
	sigset_t set, mine;

	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	CHECK_EQ(bw_soft_launch(s, look_at_signals, 1, &set, 0), 0);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK(sigismember(&set, SIGTERM) && sigismember(&set, SIGUSR1) &&
	      sigismember(&set, SIGPROF));
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	CHECK(!sigismember(&mine, SIGTERM));
}

struct worker {
	pthread_t thread;
	unsigned seed;
	const char *wrong;
};

static void *copier(void *arg)
{
	struct worker *w = arg;
	static _Thread_local unsigned char buf[20000], back[20000];
	uint64_t random = w->seed + 1;

	for (unsigned i = 0; i < 150 && !w->wrong; i++) {
		size_t n = 1 + test_random(&random) % sizeof(buf);
		uint64_t addr;

		test_fill(buf, n, w->seed * 1000 + i);
		if (bw_soft_malloc(bw_soft_device((int)(w->seed % 2)), n, &addr))
			w->wrong = "alloc";
		else if (ops->ce_copy_to(bw_soft_device((int)(w->seed % 2)), addr, buf, n) ||
			 ops->ce_copy_from(bw_soft_device((int)(w->seed % 2)), back, addr, n))
			w->wrong = "copy";
		else if (memcmp(buf, back, n))
			w->wrong = "data";
		else if (!ops->identity(addr) || bw_soft_free(addr))
			w->wrong = "free";
	}
	return NULL;
}

static void many_threads(void)
{
	uint64_t used = mem_used(0), used1 = mem_used(1);
	struct worker w[6] = { 0 };

	for (unsigned i = 0; i < N(w); i++) {
		w[i].seed = i;
		CHECK_EQ(pthread_create(&w[i].thread, NULL, copier, &w[i]), 0);
	}
	for (unsigned i = 0; i < N(w); i++)
		pthread_join(w[i].thread, NULL);
	for (unsigned i = 0; i < N(w); i++)
		if (w[i].wrong)
			FAIL("thread %u: %s", i, w[i].wrong);
	CHECK_EQ(mem_used(0), used);
	CHECK_EQ(mem_used(1), used1);
}

/* ---- IPC ----------------------------------------------------------------------------------- */

static void import_keeps_memory(void)
{
	uint64_t used = mem_used(0), a = alloc(3000), other = alloc(3000), b;
	struct bw_soft_ipc ipc, old;
	struct bw_segment seg;
	char c = 'i', d = 0;

	CHECK_EQ(ops->ce_copy_to(dev(0), a + 2999, &c, 1), 0);
	CHECK_EQ(bw_soft_ipc_export(a + 1, &ipc), -ENOENT);
	CHECK_EQ(bw_soft_ipc_export(a, &ipc), 0);
	CHECK_EQ(bw_soft_ipc_import(dev(1), &ipc, &b), -ENOENT);
	CHECK_EQ(bw_soft_ipc_import(dev(0), &ipc, &b), 0);
	CHECK_EQ(ops->resolve(b + 2999, &seg), 0);
	CHECK_EQ(seg.kind, BW_MEM_IMPORTED);
	CHECK_EQ(seg.base, b);
	CHECK_EQ(seg.bytes, 3000);
	CHECK(seg.id != ops->identity(a));
	CHECK_EQ(ops->identity(b + 3000), 0); /* the block is there, but not ours to see */
	CHECK_EQ(bw_soft_free(b), -ENOENT);
	CHECK_EQ(bw_soft_ipc_export(b, &old), -ENOTSUP);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(bw_soft_free(other), 0);
	CHECK_EQ(mem_used(0) - used, BW_SOFT_BLOCK);
	CHECK_EQ(ops->ce_copy_from(dev(0), &d, b + 2999, 1), 0);
	CHECK_EQ(d, 'i');
	CHECK_EQ(bw_soft_ipc_close(b + 1), -ENOENT);
	CHECK_EQ(bw_soft_ipc_close(b), 0);
	CHECK_EQ(bw_soft_ipc_close(b), -ENOENT);
	CHECK_EQ(mem_used(0), used);

	/* a new block in the place of the freed one is not what the old handle means */
	a = alloc(3000);
	CHECK_EQ(bw_soft_ipc_import(dev(0), &ipc, &b), -ENOENT);
	CHECK_HAS(bw_err_text(), "freed");
	CHECK_EQ(bw_soft_free(a), 0);
}

struct pipes {
	int to_a[2], to_b[2], out[2];
};

static void pipes_open(struct pipes *p)
{
	CHECK(!pipe(p->to_a) && !pipe(p->to_b) && !pipe(p->out));
}

static void pipes_close(struct pipes *p)
{
	for (int i = 0; i < 2; i++) {
		close(p->to_a[i]);
		close(p->to_b[i]);
		close(p->out[i]);
	}
}

static void exporter(void *arg)
{
	struct pipes *p = arg;
	struct bw_soft_ipc ipc;
	struct view v;
	char c;

	share();
	uint64_t a = alloc(10000);

	memset(bw_soft_view(dev(0), a, 10000), 'A', 10000);
	CHECK_EQ(bw_soft_ipc_export(a, &ipc), 0);
	view_open(&v, a, PAGE);
	put(p->to_b[1], &ipc, sizeof(ipc));
	take(p->to_a[0], &c, 1); /* imported */
	CHECK_EQ(v.p[5], 'B');
	view_close(&v);
	CHECK_EQ(bw_soft_free(a), 0);
	CHECK_EQ(mem_used(0), BW_SOFT_BLOCK); /* the importer's */
	CHECK_EQ(bar1_used(0), BW_SOFT_PAGE);
	put(p->to_b[1], &c, 1);
	exit(0); /* in good order */
}

static void importer(void *arg)
{
	struct pipes *p = arg;
	struct bw_soft_ipc ipc;
	struct view v;
	uint64_t a;
	char c = 0;

	share();
	take(p->to_b[0], &ipc, sizeof(ipc));
	CHECK_EQ(bw_soft_ipc_import(dev(0), &ipc, &a), 0);
	CHECK_EQ(ops->ce_copy_from(dev(0), &c, a + 9999, 1), 0);
	CHECK_EQ(c, 'A');
	view_open(&v, a & ~4095ull, PAGE);
	v.p[a % PAGE + 5] = 'B';
	put(p->to_a[1], &c, 1);
	take(p->to_b[0], &c, 1); /* freed */
	usleep(20000);
	CHECK_EQ(v.p[a % PAGE + 6], 'A');
	view_close(&v);
	CHECK_EQ(mem_used(0), BW_SOFT_BLOCK);
	CHECK_EQ(bw_soft_ipc_close(a), 0);
	CHECK_EQ(mem_used(0), 0);
	CHECK(name_exists());
	exit(0);
}

static void two_processes_share_by_name(void)
{
	struct pipes p;

	new_name();
	pipes_open(&p);
	pid_t a = start(exporter, &p), b = start(importer, &p);

	CHECK_EQ(finish(a), 0);
	CHECK_EQ(finish(b), 0);
	pipes_close(&p);
	CHECK(!name_exists()); /* removed by the last one */
}

static void hog(void *arg)
{
	struct pipes *p = arg;
	uint64_t a[3];
	struct bw_soft_ipc ipc;
	struct view v;

	share();
	for (unsigned i = 0; i < 3; i++)
		a[i] = alloc(4 << 20);
	memset(bw_soft_view(dev(0), a[1], 4 << 20), 'H', 4 << 20);
	view_open(&v, a[0], 1 << 20);
	CHECK_EQ(bw_soft_ipc_export(a[1], &ipc), 0);
	put(p->out[1], &ipc, sizeof(ipc));
	for (;;)
		pause();
}

static void survivor(void *arg)
{
	struct pipes *p = arg;
	uint64_t a, b;
	struct bw_soft_ipc ipc;
	struct view v;
	char c;

	share();
	take(p->to_a[0], &ipc, sizeof(ipc));
	CHECK_EQ(bw_soft_ipc_import(dev(0), &ipc, &a), 0);
	CHECK_EQ(mem_used(0), 12 << 20);
	CHECK_EQ(bar1_used(0), 1 << 20);
	CHECK_EQ(view_try(&v, a, PAGE), -ENOMEM);
	CHECK_EQ(bw_soft_malloc(dev(0), 8 << 20, &b), -ENOMEM);
	put(p->out[1], &c, 1);
	take(p->to_a[0], &c, 1); /* it is dead now */
	view_open(&v, a, PAGE); /* finds room without being told */
	CHECK_EQ(mem_used(0), 4 << 20);
	CHECK_EQ(bar1_used(0), BW_SOFT_PAGE);
	CHECK_EQ(v.p[4000], 'H');
	CHECK_EQ(bw_soft_malloc(dev(0), 4 << 20, &b), 0);
	CHECK_EQ(bw_soft_free(b), 0);
	view_close(&v);
	CHECK_EQ(bw_soft_ipc_close(a), 0);
	CHECK_EQ(mem_used(0), 0);
	exit(0);
}

static void a_killed_process_gives_its_pages_back(void)
{
	struct bw_soft_ipc ipc;
	struct pipes p;
	char c = 0;

	new_name();
	pipes_open(&p);
	pid_t a = start(hog, &p), b;

	take(p.out[0], &ipc, sizeof(ipc));
	b = start(survivor, &p);
	put(p.to_a[1], &ipc, sizeof(ipc));
	take(p.out[0], &c, 1);
	/* not reaped before the survivor has looked: dead is dead */
	kill(a, SIGKILL);
	siginfo_t info;

	CHECK_EQ(waitid(P_PID, (id_t)a, &info, WEXITED | WNOWAIT), 0);
	put(p.to_a[1], &c, 1);
	CHECK_EQ(finish(b), 0);
	finish(a);
	pipes_close(&p);
	CHECK(!name_exists());
}

static void churn(void *arg)
{
	struct pipes *p = arg;
	uint64_t a, random = (uint64_t)getpid();
	char c = 0;

	share();
	dev(0);
	put(p->out[1], &c, 1);
	for (;;)
		if (!bw_soft_malloc(dev(0), 1 + test_random(&random) % (3 << 20), &a))
			CHECK_EQ(bw_soft_free(a), 0);
}

static void all_is_free(void *arg)
{
	uint64_t a;

	(void)arg;
	share();
	CHECK_EQ(mem_used(0), 0);
	CHECK_EQ(bar1_used(0), 0);
	CHECK_EQ(bw_soft_malloc(dev(0), 16 << 20, &a), 0);
	CHECK_EQ(bw_soft_free(a), 0);
}

/* One stays, so that the file does; others die in the middle of whatever they do. */
static void killed_with_the_lock_held(void)
{
	struct pipes p, q;
	char c;

	if (emulated())
		SKIP("no robust futexes: an emulator");
	new_name();
	pipes_open(&p);
	pipes_open(&q);
	pid_t keeper = start(hog, &q);
	struct bw_soft_ipc ipc;

	take(q.out[0], &ipc, sizeof(ipc));
	for (unsigned i = 0; i < 30; i++) {
		pid_t a = start(churn, &p), b = start(churn, &p);

		take(p.out[0], &c, 1);
		take(p.out[0], &c, 1);
		usleep(1000 + i * 137);
		CHECK_EQ(waitpid(a, NULL, WNOHANG) + waitpid(b, NULL, WNOHANG), 0);
		kill(a, SIGKILL);
		kill(b, SIGKILL);
		finish(a);
		finish(b);
	}
	/* the last to look, while the keeper is there and when it is not */
	kill(keeper, SIGSTOP);
	pid_t last = start(churn, &p);

	take(p.out[0], &c, 1);
	kill(keeper, SIGKILL);
	finish(keeper);
	kill(last, SIGKILL);
	finish(last);
	CHECK(name_exists());
	in_child(all_is_free, NULL);
	pipes_close(&p);
	pipes_close(&q);
	char path[128];

	share_path(path);
	unlink(path); /* in_child() leaves by _exit() */
}

static void racer(void *arg)
{
	struct pipes *p = arg;
	uint64_t a;
	char c;

	share();
	take(p->to_a[0], &c, 1);
	CHECK_EQ(ops->mem_alloc(dev(0), 1, &a), 0);
	put(p->out[1], &c, 1);
	take(p->to_b[0], &c, 1);
	CHECK_EQ(mem_used(0), 8 * BW_SOFT_PAGE);
	put(p->out[1], &c, 1);
	take(p->to_a[0], &c, 1);
	exit(0);
}

static void many_create_at_once(void)
{
	char go[8] = "", c;
	struct pipes p;
	pid_t pid[8];

	for (int round = 0; round < (emulated() ? 1 : 5); round++) {
		new_name();
		pipes_open(&p);
		for (unsigned i = 0; i < 8; i++)
			pid[i] = start(racer, &p);
		put(p.to_a[1], go, 8);
		for (unsigned i = 0; i < 8; i++)
			take(p.out[0], &c, 1);
		put(p.to_b[1], go, 8);
		for (unsigned i = 0; i < 8; i++)
			take(p.out[0], &c, 1);
		put(p.to_a[1], go, 8);
		for (unsigned i = 0; i < 8; i++)
			CHECK_EQ(finish(pid[i]), 0);
		pipes_close(&p);
		CHECK(!name_exists());
	}
}

static void comes_and_goes(void *arg)
{
	uint64_t a;

	(void)arg;
	share();
	CHECK_EQ(bw_soft_malloc(dev(0), 2 << 20, &a), 0);
	exit(0);
}

/* Opening meets the last one's removal of the name. */
static void open_meets_close(void)
{
	pid_t pid[4];

	new_name();
	for (int round = 0; round < (emulated() ? 2 : 15); round++) {
		for (unsigned i = 0; i < N(pid); i++)
			pid[i] = start(comes_and_goes, NULL);
		for (unsigned i = 0; i < N(pid); i++)
			CHECK_EQ(finish(pid[i]), 0);
	}
	CHECK(!name_exists());
}

static void opens_after_garbage(void *arg)
{
	(void)arg;
	share();
	CHECK_EQ(mem_used(0), 0);
	CHECK_EQ(dev(0)->memory_total, 16 << 20);
	exit(0);
}

static void is_refused(void *arg)
{
	struct bw_device **list;
	struct bw_reason why;

	share();
	CHECK_EQ(ops->enumerate(&list, &why), 0);
	CHECK_HAS(why.text, arg);
	exit(0);
}

static void leftover_and_foreign_files(void)
{
	char path[128];
	int fd;

	new_name();
	share_path(path);
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	put(fd, "garbage", 7);
	close(fd);
	in_child(opens_after_garbage, NULL);
	CHECK(!name_exists());

	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !fchmod(fd, 0644)); /* others can read it: who knows what it is */
	close(fd);
	in_child(is_refused, "not a file of this user alone");
	unlink(path);
	CHECK_EQ(symlink("/etc/hostname", path), 0);
	in_child(is_refused, path);
	CHECK_EQ(unlink(path), 0);
}

static void other_size(void *arg)
{
	(void)arg;
	share();
	CHECK_EQ(bw_param_set("soft_memory", "32M"), 0);
	CHECK_EQ(bw_param_set("soft_bar1", "2M"), 0);
	CHECK_EQ(dev(0)->memory_total, 16 << 20);
	uint64_t total, free;

	bw_soft_aperture(dev(0), &total, &free);
	CHECK_EQ(total, 1 << 20);
}

static void the_first_decides_the_sizes(void)
{
	struct bw_soft_ipc ipc;
	struct pipes p;
	char path[128];

	new_name();
	pipes_open(&p);
	pid_t a = start(hog, &p);

	take(p.out[0], &ipc, sizeof(ipc));
	in_child(other_size, NULL);
	kill(a, SIGKILL);
	finish(a);
	pipes_close(&p);
	share_path(path);
	CHECK_EQ(unlink(path), 0);
}

static void parameters(void *arg)
{
	struct bw_device **list;
	struct bw_reason why;

	(void)arg;
	CHECK_EQ(bw_param_set("soft_memory", "16M"), 0);
	CHECK_EQ(bw_param_set("soft_shared", "../etc"), 0);
	CHECK_EQ(ops->enumerate(&list, &why), 0);
	CHECK_HAS(why.text, "soft_shared");
	CHECK(!bw_soft_device(0));
	CHECK_EQ(bw_param_set("soft_shared", ""), 0);
	CHECK_EQ(bw_param_set("soft_devices", "16"), 0);
	CHECK_EQ(ops->enumerate(&list, &why), 16);
}

static void wrong_parameters(void)
{
	in_child(parameters, NULL);
}

/* ---- fork ---------------------------------------------------------------------------------- */

struct inherited {
	uint64_t addr, vmm, id;
	struct bw_soft_handle *handle;
	struct bw_soft_stream *stream;
	struct bw_device *dev;
	struct view v;
};

static void child_of_user(void *arg)
{
	struct inherited *in = arg;
	struct bw_segment seg;
	char c = 'c', d = 0;
	uint64_t a;

	CHECK(faults(in->v.p));
	CHECK(faults((void *)(uintptr_t)in->addr));
	CHECK_EQ(ops->resolve(in->addr, &seg), -ENOENT);
	CHECK_EQ(ops->identity(in->addr), 0);
	CHECK(!bw_soft_view(in->dev, in->addr, 1));
	CHECK_EQ(bw_soft_free(in->addr), -ENOENT);
	CHECK_EQ(bw_soft_mem_unmap(in->vmm), -ENOENT);
	CHECK_EQ(bw_soft_stream_sync(in->stream), -ESTALE);
	CHECK_EQ(bw_soft_copy_to_async(in->stream, in->addr, &c, 1), -ESTALE);
	CHECK_EQ(bw_soft_launch(in->stream, mark, 1, NULL, 0), -ESTALE);
	CHECK_EQ(bw_soft_stream_destroy(in->stream), -ESTALE);
	CHECK_HAS(bw_err_text(), "parent");
	CHECK_EQ(bw_soft_mem_map(in->vmm, in->handle), -ESTALE);
	bw_soft_handle_release(in->handle);
	bw_soft_window_close(in->v.win);

	/* a soft GPU of its own */
	CHECK_EQ(mem_used(0), 0);
	CHECK_EQ(bar1_used(0), 0);
	CHECK_EQ(bw_soft_malloc(in->dev, 100, &a), 0);
	CHECK(a != in->addr && ops->identity(a) > in->id);
	CHECK_EQ(bw_soft_free(in->addr), -ENOENT);
	CHECK_EQ(ops->ce_copy_to(in->dev, a, &c, 1), 0);
	CHECK_EQ(ops->ce_copy_from(in->dev, &d, a, 1), 0);
	CHECK_EQ(d, 'c');
}

static void a_forked_child_starts_afresh(void)
{
	struct inherited in = { .dev = dev(0) };
	uint64_t used = mem_used(0), go;
	char c = 'p', d = 0;

	if (emulated())
		SKIP("no MADV_DONTFORK: an emulator");
	in.addr = alloc(2 << 20);
	go = alloc(8);
	in.id = ops->identity(go);
	memset(bw_soft_view(dev(0), go, 8), 0, 8);
	CHECK_EQ(ops->ce_copy_to(dev(0), in.addr + 9, &c, 1), 0);
	view_open(&in.v, in.addr, PAGE);
	CHECK_EQ(bw_soft_reserve(65536, &in.vmm), 0);
	CHECK_EQ(bw_soft_handle_create(dev(0), 65536, &in.handle), 0);
	CHECK_EQ(bw_soft_mem_map(in.vmm, in.handle), 0);
	CHECK_EQ(bw_soft_stream_create(dev(0), &in.stream), 0);
	/* work under way and work that waits */
	CHECK_EQ(bw_soft_launch(in.stream, wait_for_flag, 1, &go, 0), 0);
	CHECK_EQ(bw_soft_copy_from_async(in.stream, &d, in.addr + 9, 1), 0);
	for (unsigned i = 0; i < 3; i++)
		in_child(child_of_user, &in);
	bw_soft_store64_release(bw_soft_view(dev(0), go, 8), 1);
	CHECK_EQ(bw_soft_stream_destroy(in.stream), 0);
	CHECK_EQ(d, 'p');
	CHECK_EQ(in.v.p[9], 'p');
	view_close(&in.v);
	CHECK_EQ(bw_soft_mem_unmap(in.vmm), 0);
	CHECK_EQ(bw_soft_unreserve(in.vmm, 65536), 0);
	bw_soft_handle_release(in.handle);
	CHECK_EQ(bw_soft_free(in.addr), 0);
	CHECK_EQ(bw_soft_free(go), 0);
	CHECK_EQ(mem_used(0), used);
}

static void *busy(void *arg)
{
	_Atomic bool *stop = arg;
	uint64_t a;
	char c = 0;

	while (!atomic_load(stop))
		if (!bw_soft_malloc(bw_soft_device(0), 5000, &a)) {
			ops->ce_copy_to(bw_soft_device(0), a, &c, 1);
			bw_soft_free(a);
		}
	return NULL;
}

static void uses_it(void *arg)
{
	uint64_t a = alloc(5000);

	(void)arg;
	CHECK_EQ(mem_used(0), BW_SOFT_BLOCK);
	CHECK_EQ(bw_soft_free(a), 0);
}

static void fork_while_others_work(void)
{
	_Atomic bool stop = false;
	pthread_t t[2];

	if (emulated())
		SKIP("fork with busy threads: an emulator");
	for (unsigned i = 0; i < N(t); i++)
		CHECK_EQ(pthread_create(&t[i], NULL, busy, &stop), 0);
	for (unsigned i = 0; i < 20; i++)
		in_child(uses_it, NULL);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < N(t); i++)
		pthread_join(t[i], NULL);
}

static void shares_and_forks(void *arg)
{
	uint64_t a;

	share();
	a = alloc(2 << 20);
	in_child(arg, &a);
	CHECK_EQ(mem_used(0), 2 << 20); /* the child's are reclaimed, ours are not */
	CHECK_EQ(bw_soft_free(a), 0);
	exit(0);
}

static void shares_with_parent(void *arg)
{
	(void)arg;
	CHECK_EQ(mem_used(0), 2 << 20);
	alloc(2 << 20);
	CHECK_EQ(mem_used(0), 4 << 20);
}

static void a_forked_child_is_another_sharer(void)
{
	new_name();
	in_child(shares_and_forks, shares_with_parent);
	CHECK(!name_exists());
}

/* ---- faults -------------------------------------------------------------------------------- */

/* Everything that can fail; returns the first failure, having undone what came before it. */
static int everything(void)
{
	uint64_t small = 0, large = 0, whole = 0, va = 0, imported = 0;
	struct bw_soft_handle *h = NULL;
	struct bw_soft_stream *s = NULL;
	struct view v = { 0 };
	struct bw_soft_ipc ipc;
	bool mapped = false;
	char buf[100] = "";
	int ret;

	if ((ret = bw_soft_malloc(dev(0), 100, &small)) ||
	    (ret = bw_soft_malloc(dev(0), 2 << 20, &large)) ||
	    (ret = ops->mem_alloc(dev(0), 100, &whole)) ||
	    (ret = bw_soft_handle_create(dev(0), 65536, &h)) ||
	    (ret = bw_soft_reserve(65536, &va)) || (ret = bw_soft_mem_map(va, h)))
		goto undo;
	mapped = true;
	if ((ret = bw_soft_ipc_export(small, &ipc)) ||
	    (ret = bw_soft_ipc_import(dev(0), &ipc, &imported)) ||
	    (ret = view_try(&v, large, 8 * PAGE)) || (ret = bw_soft_stream_create(dev(0), &s)) ||
	    (ret = bw_soft_copy_to_async(s, large, buf, 100)) ||
	    (ret = bw_soft_launch(s, mark, 1, &(int){ 0 }, 0)) ||
	    (ret = bw_soft_stream_sync(s)) || (ret = ops->ce_copy_to(dev(0), va, buf, 100)))
		goto undo;
undo:
	if (s && bw_soft_stream_destroy(s) && !ret)
		ret = -EBADF;
	if (v.win)
		view_close(&v);
	if (imported)
		CHECK_EQ(bw_soft_ipc_close(imported), 0);
	if (mapped)
		CHECK_EQ(bw_soft_mem_unmap(va), 0);
	if (va)
		CHECK_EQ(bw_soft_unreserve(va, 65536), 0);
	bw_soft_handle_release(h);
	CHECK_EQ(whole ? ops->mem_free(whole) : 0, 0);
	CHECK_EQ(large ? bw_soft_free(large) : 0, 0);
	CHECK_EQ(small ? bw_soft_free(small) : 0, 0);
	return ret;
}

static void every_failure_leaves_nothing(void)
{
	static const struct {
		enum bw_fault kind;
		int error;
		unsigned least;
	} f[] = {
		{ BW_FAULT_ALLOC, -ENOMEM, 10 }, { BW_FAULT_MMAP, -ENOMEM, 1 },
		{ BW_FAULT_DEVICE_ALLOC, -ENOMEM, 4 }, { BW_FAULT_APERTURE, -ENOMEM, 1 },
		{ BW_FAULT_THREAD, -EAGAIN, 1 }, { BW_FAULT_COPY, -EIO, 2 },
	};
	uint64_t used, used_bar1;
	unsigned fds, nth;

	CHECK_EQ(everything(), 0);
	used = mem_used(0);
	used_bar1 = bar1_used(0);
	fds = fds_open();
	for (unsigned i = 0; i < N(f); i++) {
		for (nth = 1;; nth++) {
			bw_fault_arm(f[i].kind, nth);
			int ret = everything();
			bool pending = bw_fault_pending(f[i].kind);

			bw_fault_disarm_all();
			CHECK_EQ(mem_used(0), used);
			CHECK_EQ(bar1_used(0), used_bar1);
			CHECK_EQ(fds_open(), fds);
			if (pending)
				break;
			CHECK_EQ(ret, f[i].error);
			CHECK(*bw_err_text());
		}
		CHECK_EQ(everything(), 0);
		CHECK(nth > f[i].least);
	}
}

static void starts_with_faults(void *arg)
{
	static const enum bw_fault kinds[] = { BW_FAULT_OPEN, BW_FAULT_MMAP, BW_FAULT_ALLOC };
	struct bw_device **list;
	struct bw_reason why;
	unsigned fds = fds_open(), failed = 0;

	if (arg)
		share();
	for (unsigned i = 0; i < N(kinds); i++)
		for (unsigned nth = 1; nth < 9; nth++) {
			bw_fault_arm(kinds[i], nth);
			if (ops->enumerate(&list, &why))
				break;
			failed++;
			CHECK(!bw_fault_pending(kinds[i]));
			CHECK(*why.text);
			CHECK_EQ(fds_open(), fds);
			CHECK(!arg || !name_exists() || kinds[i] == BW_FAULT_OPEN);
		}
	CHECK(failed >= 1);
	bw_fault_disarm_all();
	CHECK_EQ(everything(), 0);
	exit(0);
}

static void a_start_that_fails_leaves_nothing(void)
{
	in_child(starts_with_faults, NULL);
	new_name();
	in_child(starts_with_faults, share_name);
	CHECK(!name_exists());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		/* first those whose children start threads, before there are any */
		TEST(a_start_that_fails_leaves_nothing),
		TEST(wrong_parameters),
		TEST(two_processes_share_by_name),
		TEST(a_killed_process_gives_its_pages_back),
		TEST(killed_with_the_lock_held),
		TEST(many_create_at_once),
		TEST(open_meets_close),
		TEST(leftover_and_foreign_files),
		TEST(the_first_decides_the_sizes),
		TEST(a_forked_child_is_another_sharer),
		TEST(devices),
		TEST(sizes),
		TEST(small_ones_share_pages),
		TEST(addresses_come_again_with_another_identity),
		TEST(wrong_frees),
		TEST(memory_runs_out),
		TEST(freeing_gives_memory_back),
		TEST(device_pointers_fault),
		TEST(addresses_run_out),
		TEST(deref),
		TEST(two_devices),
		TEST(vmm),
		TEST(vmm_unmapped_memory_stays_with_its_handle),
		TEST(window_is_the_memory),
		TEST(window_ranges),
		TEST(freed_memory_lives_under_a_window),
		TEST(aperture_runs_out),
		TEST(copies_are_asynchronous_and_in_order),
		TEST(kernel_and_cpu_see_each_other),
		TEST(an_error_sticks_until_synchronised),
		TEST(wrong_copies),
		TEST(a_queued_copy_keeps_its_memory),
		TEST(streams_take_no_signals),
		TEST(many_threads),
		TEST(import_keeps_memory),
		TEST(a_forked_child_starts_afresh),
		TEST(fork_while_others_work),
		TEST(every_failure_leaves_nothing),
		{ 0 },
	};

	return soft_main(argc, argv, cases);
}
