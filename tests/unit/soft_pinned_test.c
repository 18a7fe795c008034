/* SPDX-License-Identifier: BSD-3-Clause */
/* Pinned host memory of the soft GPU: its two addresses, and what may be registered. */
#include <fcntl.h>
#include <stdatomic.h>

#include "core/fault.h"
#include "soft_test.h"

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

struct pin {
	unsigned char *host;
	uint64_t addr;
};

static struct pin pin(size_t bytes)
{
	struct pin p;
	void *host;

	CHECK_EQ(ops->host_alloc(dev(0), bytes, &host, &p.addr), 0);
	p.host = host;
	CHECK(!((uintptr_t)host % page()) && p.addr && p.addr != (uintptr_t)host);
	return p;
}

/* What @p is known as by either address, @at bytes into it. */
static void known(const struct pin *p, size_t at, size_t bytes)
{
	struct bw_segment by_host, by_addr;

	CHECK_EQ(ops->resolve((uintptr_t)p->host + at, &by_host), 0);
	CHECK_EQ(ops->resolve(p->addr + at, &by_addr), 0);
	CHECK(by_host.kind == BW_MEM_PINNED && by_addr.kind == BW_MEM_PINNED);
	CHECK(by_host.dev == dev(0) && by_addr.dev == dev(0));
	CHECK_EQ(by_host.base, (uintptr_t)p->host);
	CHECK_EQ(by_host.device_base, p->addr);
	CHECK_EQ(by_addr.base, p->addr);
	CHECK(by_host.bytes == bytes && by_addr.bytes == bytes);
	CHECK(by_host.id && by_host.id == by_addr.id);
	CHECK_EQ(ops->identity((uintptr_t)p->host + at), by_host.id);
	CHECK_EQ(ops->identity(p->addr + at), by_host.id);
}

static void unknown(const struct pin *p)
{
	struct bw_segment seg;

	CHECK_EQ(ops->resolve((uintptr_t)p->host, &seg), -ENOENT);
	CHECK_EQ(ops->resolve(p->addr, &seg), -ENOENT);
	CHECK_EQ(ops->identity((uintptr_t)p->host), 0);
	CHECK_EQ(ops->identity(p->addr), 0);
}

static void known_by_both_addresses(void)
{
	struct pin p = pin(3 * page() - 5);
	size_t bytes = 3 * page();
	uint64_t used = mem_used(0);
	struct view v;
	struct bw_soft_ipc ipc;

	for (size_t at = 0; at < bytes; at += at < bytes - 1 ? page() / 2 : 1)
		known(&p, at, bytes);
	CHECK(!ops->identity(p.addr + bytes));
	CHECK(ops->identity((uintptr_t)p.host - 1) != ops->identity((uintptr_t)p.host));
	p.host[0] = p.host[bytes - 1] = 1;
	CHECK(faults((void *)(uintptr_t)p.addr)); /* the device's address is not for the CPU */
	CHECK(faults(p.host) || emulated());      /* nor is any of it for a child */
	/* it is no GPU memory */
	CHECK_EQ(mem_used(0), used);
	CHECK_EQ(view_try(&v, p.addr, PAGE), -EFAULT);
	CHECK_EQ(bw_soft_ipc_export(p.addr, &ipc), -ENOTSUP);
	CHECK_EQ(bw_soft_free(p.addr), -ENOENT);
	CHECK_EQ(ops->mem_free(p.addr), -ENOENT);
	CHECK_EQ(ops->ce_copy_to(dev(0), p.addr, p.host, 1), -EFAULT);
	CHECK_EQ(ops->host_free(p.host + page()), -ENOENT);
	CHECK_EQ(ops->host_unregister(p.host), -ENOENT);
	CHECK_EQ(ops->host_free(p.host), 0);
	CHECK(faults(p.host));
	unknown(&p);
	CHECK_EQ(ops->host_free(p.host), -ENOENT);
	CHECK_EQ(ops->host_free(NULL), -ENOENT);
}

static void wrong_sizes(void)
{
	void *host = &host;
	uint64_t addr = 7;

	CHECK_EQ(ops->host_alloc(dev(0), 0, &host, &addr), -EINVAL);
	CHECK_EQ(ops->host_alloc(dev(0), SIZE_MAX, &host, &addr), -ENOMEM);
	CHECK_EQ(ops->host_alloc(dev(0), (size_t)1 << 50, &host, &addr), -ENOMEM);
	CHECK_EQ(ops->host_register(dev(0), host, 0, &addr), -EINVAL);
	CHECK_EQ(ops->host_register(dev(0), NULL, 1, &addr), -EINVAL);
	CHECK_EQ(ops->host_register(dev(0), host, SIZE_MAX, &addr), -EINVAL);
	CHECK(host == &host && addr == 7);
}

#define MANY 200u

/* A table that is searched by halves: all are found, in whatever order they go. */
static void many(void)
{
	static struct pin p[MANY];
	uint64_t random = 5;

	for (unsigned i = 0; i < MANY; i++)
		p[i] = pin(1 + i % 3 * page());
	for (unsigned left = MANY; left; left--) {
		unsigned i = (unsigned)(test_random(&random) % left);
		struct pin gone = p[i];

		for (unsigned k = 0; k < left; k += 7)
			known(&p[k], 0, ops->identity(p[k].addr + 2 * page()) ==
						ops->identity(p[k].addr) ? 3 * page() :
					ops->identity(p[k].addr + page()) ==
						ops->identity(p[k].addr) ? 2 * page() : page());
		CHECK_EQ(ops->host_free(gone.host), 0);
		unknown(&gone);
		p[i] = p[left - 1];
	}
}

/* ---- kernels ------------------------------------------------------------------------------- */

struct reach {
	uint64_t addr, host, gpu;
	_Atomic unsigned wrong;
};

static void reaches(struct barway_soft_block *b, void *arg)
{
	struct reach *r = arg;
	uint64_t *p = bw_soft_deref(b, r->addr, 4096), *gpu = bw_soft_deref(b, r->gpu, 8);

	if (!p || !gpu) {
		r->wrong += 100;
		return;
	}
	r->wrong += (uintptr_t)p != r->host; /* the same memory */
	r->wrong += bw_soft_deref(b, r->host, 8) != NULL;
	r->wrong += bw_soft_deref(b, r->addr, 1 << 30) != NULL;
	r->wrong += bw_soft_deref(b, r->addr - 1, 1) != NULL;
	__atomic_fetch_add(p, *gpu, __ATOMIC_RELAXED);
	bw_soft_store64(b, p + 1 + bw_soft_block_index(b), 7);
	bw_soft_fence(b);
	bw_soft_store64(b, p + 101 + bw_soft_block_index(b), 8);
}

static void kernels_reach_it_by_its_device_address(void)
{
	struct pin p = pin(page());
	struct reach r = { .addr = p.addr, .host = (uintptr_t)p.host };
	uint64_t *word = (uint64_t *)p.host;

	for (int d = 0; d < 2; d++) { /* kernels of any of them, as with CUDA */
		struct bw_soft_stream *s;

		CHECK_EQ(bw_soft_malloc(dev(d), 8, &r.gpu), 0);
		*(uint64_t *)bw_soft_view(dev(d), r.gpu, 8) = 3;
		memset(p.host, 0, page());
		CHECK_EQ(bw_soft_stream_create(dev(d), &s), 0);
		CHECK_EQ(bw_soft_launch(s, reaches, 9, &r, 0), 0);
		for (unsigned i = 0; i < 9; i++) {
			while (__atomic_load_n(&word[101 + i], __ATOMIC_ACQUIRE) != 8)
				sched_yield();
			CHECK_EQ(word[1 + i], 7); /* stored before it, and a fence between */
		}
		CHECK_EQ(bw_soft_stream_destroy(s), 0);
		CHECK_EQ(r.wrong, 0);
		CHECK_EQ(word[0], 27);
		CHECK_EQ(bw_soft_free(r.gpu), 0);
	}
	CHECK_EQ(ops->host_free(p.host), 0);
}

/* ---- registered memory --------------------------------------------------------------------- */

static void registered(void)
{
	unsigned char *m = mmap(NULL, 6 * page(), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pin whole;
	uint64_t addr, x = 5;
	struct bw_segment seg;

	CHECK(m != MAP_FAILED);
	CHECK_EQ(ops->host_register(dev(0), m + page() + 100, 2 * page(), &addr), 0);
	CHECK_EQ(addr % page(), 100);
	whole = (struct pin){ m + page(), addr - 100 };
	known(&whole, 0, 3 * page()); /* all pages that hold a byte of it */
	known(&whole, 3 * page() - 1, 3 * page());
	CHECK_EQ(ops->resolve((uintptr_t)m + page() - 1, &seg), -ENOENT);
	CHECK_EQ(ops->resolve((uintptr_t)m + 4 * page(), &seg), -ENOENT);
	CHECK(bw_soft_view(dev(0), addr, 8) == m + page() + 100);
	/* a part of it again, from before and from behind */
	CHECK_EQ(ops->host_register(dev(0), m, 6 * page(), &x), -EEXIST);
	CHECK_EQ(ops->host_register(dev(0), m + 2 * page(), 1, &x), -EEXIST);
	CHECK_EQ(ops->host_register(dev(0), m, page() + 1, &x), -EEXIST);
	CHECK_EQ(ops->host_register(dev(0), m + 4 * page() - 1, 2, &x), -EEXIST);
	CHECK_HAS(bw_err_text(), "pinned already");
	CHECK_EQ(x, 5);
	CHECK_EQ(ops->host_register(dev(0), m, page(), &x), 0);
	CHECK_EQ(ops->host_register(dev(0), m + 4 * page(), page(), &x), 0);
	CHECK_EQ(ops->host_unregister(m + page()), -ENOENT); /* not as it was given */
	CHECK_EQ(ops->host_free(m + page() + 100), -ENOENT);
	CHECK_EQ(ops->host_unregister(m + page() + 100), 0);
	CHECK_EQ(ops->host_unregister(m + page() + 100), -ENOENT);
	CHECK_EQ(ops->host_unregister(m), 0);
	CHECK_EQ(ops->host_unregister(m + 4 * page()), 0);
	unknown(&whole);
	m[page()] = 1; /* the memory is the caller's */
	munmap(m, 6 * page());
}

static void what_cannot_be_registered(void)
{
	unsigned char *m = mmap(NULL, 4 * page(), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/proc/self/exe", O_RDONLY);
	void *file = mmap(NULL, page(), PROT_READ, MAP_SHARED, fd, 0);
	uint64_t a = alloc(1 << 20), x = 5;
	struct view v;

	CHECK(m != MAP_FAILED && fd >= 0 && file != MAP_FAILED);
	view_open(&v, a, PAGE);
	CHECK_EQ(ops->host_register(dev(0), v.p, PAGE, &x), -ENOTSUP);
	CHECK_HAS(bw_err_text(), "GPU memory");
	view_close(&v);
	CHECK_EQ(ops->host_register(dev(0), (void *)(uintptr_t)a, 64, &x), -ENOTSUP);
	CHECK_EQ(ops->host_register(dev(0), file, 1, &x), -ENOTSUP);
	CHECK_HAS(bw_err_text(), "read and written");
	munmap(m + 2 * page(), page());
	CHECK_EQ(ops->host_register(dev(0), m + page(), page() + 1, &x), -ENOTSUP);
	CHECK_HAS(bw_err_text(), "not mapped");
	CHECK_EQ(ops->host_register(dev(0), m + page(), page(), &x), 0);
	CHECK_EQ(ops->host_unregister(m + page()), 0);
	CHECK_EQ(bw_soft_free(a), 0);
	munmap(file, page());
	close(fd);
	munmap(m, 2 * page());
	munmap(m + 3 * page(), page());
}

/* ---- failures ------------------------------------------------------------------------------ */

static int both(void)
{
	static unsigned char m[100];
	uint64_t addr;
	void *host;
	int ret = ops->host_alloc(dev(0), 100, &host, &addr);

	if (ret)
		return ret;
	ret = ops->host_register(dev(0), m, sizeof(m), &addr);
	if (!ret)
		CHECK_EQ(ops->host_unregister(m), 0);
	CHECK_EQ(ops->host_free(host), 0);
	return ret;
}

static void every_failure_leaves_nothing(void)
{
	static const enum bw_fault kinds[] = { BW_FAULT_ALLOC, BW_FAULT_MMAP, BW_FAULT_OPEN };
	unsigned fds, nth;

	CHECK_EQ(both(), 0);
	fds = fds_open();
	for (unsigned i = 0; i < N(kinds); i++)
		for (nth = 1;; nth++) {
			bw_fault_arm(kinds[i], nth);
			int ret = both();
			bool pending = bw_fault_pending(kinds[i]);

			bw_fault_disarm_all();
			CHECK_EQ(fds_open(), fds);
			if (pending)
				break;
			CHECK(ret < 0 && *bw_err_text());
			CHECK_EQ(both(), 0);
		}
}

static void child(void *arg)
{
	struct pin *p = arg;
	struct pin q;

	unknown(p);
	CHECK_EQ(ops->host_free(p->host), -ENOENT);
	CHECK_EQ(ops->host_unregister(p->host), -ENOENT);
	q = pin(100);
	known(&q, 50, page());
	CHECK_EQ(ops->host_free(q.host), 0);
}

static void a_forked_child_has_none_of_it(void)
{
	struct pin p = pin(100);

	in_child(child, &p);
	known(&p, 1, page());
	CHECK_EQ(ops->host_free(p.host), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(known_by_both_addresses),
		TEST(wrong_sizes),
		TEST(many),
		TEST(a_forked_child_has_none_of_it),
		TEST(kernels_reach_it_by_its_device_address),
		TEST(registered),
		TEST(what_cannot_be_registered),
		TEST(every_failure_leaves_nothing),
		{ 0 },
	};

	return soft_main(argc, argv, cases);
}
