/* SPDX-License-Identifier: BSD-3-Clause */
/* barway_host_alloc() and its family: pinned memory, by itself, with kernels, threads, fork. */
#include <barway_soft.h>
#include <fcntl.h>

#include "api_test.h"

static struct barway_pointer_info pointer_info(const void *p)
{
	struct barway_pointer_info i = { .size = sizeof(i) };

	OK(barway_pointer_query(ctx, (uintptr_t)p, &i));
	return i;
}

static void *map_pages(size_t n, int prot)
{
	void *p = mmap(NULL, n * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* ---- kernels see it at its device address ---------------------------------------------------- */

struct copy {
	uint64_t to, from, bytes;
	uint64_t *failed;
};

static void copy_kernel(struct barway_soft_block *block, void *arg)
{
	const struct copy *c = arg;
	void *to = barway_soft_deref(block, c->to, c->bytes);
	const void *from = barway_soft_deref(block, c->from, c->bytes);

	if (to && from)
		memcpy(to, from, c->bytes);
	else
		(*c->failed)++;
}

/* By a kernel of @device; false: it does not get at one of the two. */
static bool kernel_copies(unsigned device, uint64_t to, uint64_t from, size_t bytes)
{
	struct barway_soft_stream *s;
	uint64_t failed = 0;
	struct copy c = { to, from, bytes, &failed };

	OK(barway_soft_stream_create(gpu[device], &s));
	OK(barway_soft_launch(s, copy_kernel, 1, &c, sizeof(c)));
	OK(barway_soft_stream_sync(s));
	OK(barway_soft_stream_destroy(s));
	return !failed;
}

static void allocated(void)
{
	static const size_t sizes[] = { 1, 7, PAGE, PAGE + 1, 3 * MIB + 5 };
	unsigned char *p[N(sizes)];
	uint64_t addr[N(sizes)], device;
	void *host;

	begin();
	device = alloc(0, 4 * MIB);
	for (unsigned i = 0; i < N(sizes); i++) {
		OK(barway_host_alloc(gpu[i % 2], sizes[i], &host, &addr[i]));
		p[i] = host;
		CHECK(host && addr[i] && !((uintptr_t)host % PAGE));
		CHECK_EQ(pointer_info(host).kind, BARWAY_MEM_PINNED);
		CHECK_EQ(pointer_info(p[i] + sizes[i] - 1).kind, BARWAY_MEM_PINNED);
		CHECK_EQ(pointer_info(host).mappable, 0);
		test_fill(host, sizes[i], i);
	}
	for (unsigned i = 0; i < N(sizes); i += 2) {
		unsigned char *back = malloc(sizes[i]);

		CHECK(kernel_copies(0, device, addr[i], sizes[i]));
		gpu_read(back, device, sizes[i]);
		CHECK(!memcmp(p[i], back, sizes[i]));
		test_fill(back, sizes[i], 100 + i);
		gpu_write(device, back, sizes[i]);
		CHECK(kernel_copies(0, addr[i], device, sizes[i]));
		CHECK(!memcmp(p[i], back, sizes[i]));
		free(back);
	}
	for (unsigned i = 0; i < N(sizes); i++) {
		OK(barway_host_free(ctx, p[i]));
		CHECK_EQ(pointer_info(p[i]).kind, BARWAY_MEM_HOST);
		FAILS(barway_host_free(ctx, p[i]), EINVAL, "freed before");
	}
	CHECK(!kernel_copies(0, device, addr[0], 1)); /* gone */
	/* the device address may be left out */
	OK(barway_host_alloc(gpu[0], 10, &host, NULL));
	OK(barway_host_free(ctx, host));
	release(device);
	end();
}

static void bad_arguments(void)
{
	void *host = (void *)77, *p = map_pages(2, PROT_READ | PROT_WRITE);
	void *last = (void *)(UINTPTR_MAX - 5);
	uint64_t addr = 78;
	char local;

	begin();
	FAILS(barway_host_alloc(gpu[0], 0, &host, &addr), EINVAL, "0 bytes");
	FAILS(barway_host_alloc(gpu[0], 10, NULL, &addr), EINVAL, "NULL");
	FAILS(barway_host_alloc(gpu[0], SIZE_MAX, &host, &addr), ENOMEM, "barway_host_alloc");
	FAILS(barway_host_alloc(gpu[0], SIZE_MAX / 4, &host, &addr), ENOMEM, "barway_host_alloc");
	FAILS(barway_host_alloc(NULL, 10, &host, &addr), ESTALE, "NULL");
	FAILS(barway_host_register(gpu[0], p, 0, &addr), EINVAL, "0 bytes");
	FAILS(barway_host_register(gpu[0], NULL, 10, &addr), EINVAL, "NULL");
	FAILS(barway_host_register(gpu[0], p, SIZE_MAX, &addr), EINVAL, "register");
	FAILS(barway_host_register(gpu[0], last, 6, &addr), EINVAL, "register");
	FAILS(barway_host_register((void *)&local, p, 1, &addr), ESTALE, "register");
	FAILS(barway_host_free(ctx, NULL), EINVAL, "barway_host_free");
	FAILS(barway_host_free(ctx, &local), EINVAL, "barway_host_alloc()");
	FAILS(barway_host_free(NULL, p), ESTALE, "NULL");
	FAILS(barway_host_unregister(ctx, NULL), EINVAL, "not registered");
	FAILS(barway_host_unregister(ctx, p), EINVAL, "not registered");
	FAILS(barway_host_unregister(NULL, p), ESTALE, "NULL");
	CHECK(host == (void *)77 && addr == 78);
	/* neither takes what the other gave */
	OK(barway_host_alloc(gpu[0], 10, &host, &addr));
	OK(barway_host_register(gpu[0], p, 10, NULL));
	FAILS(barway_host_unregister(ctx, host), EINVAL, "not registered");
	FAILS(barway_host_free(ctx, p), EINVAL, "barway_host_alloc()");
	FAILS(barway_host_free(ctx, (char *)host + 1), EINVAL, "barway_host_alloc()");
	FAILS(barway_host_register(gpu[0], host, 10, &addr), EEXIST, "register");
	OK(barway_host_free(ctx, host));
	OK(barway_host_unregister(ctx, p));
	munmap(p, 2 * PAGE);
	end();
}

/* ---- memory of the caller's ------------------------------------------------------------------ */

static void registered(void)
{
	unsigned char *p = map_pages(8, PROT_READ | PROT_WRITE), back[5000];
	uint64_t addr, more, device;

	begin();
	device = alloc(1, MIB);
	for (unsigned i = 0; i < 3; i++) {
		OK(barway_host_register(gpu[1], p + 123, sizeof(back), &addr)); /* pages 0, 1 */
		CHECK_EQ(pointer_info(p + 123).kind, BARWAY_MEM_PINNED);
		test_fill(p + 123, sizeof(back), i);
		CHECK(kernel_copies(1, device, addr, sizeof(back)));
		gpu_read(back, device, sizeof(back));
		CHECK(!memcmp(p + 123, back, sizeof(back)));
		/* whole pages around it */
		CHECK(kernel_copies(1, device, addr - 123, 2 * PAGE));
		CHECK(!kernel_copies(1, device, addr - 123, 2 * PAGE + 1));
		FAILS(barway_host_register(gpu[1], p + 123, 5000, &more), EEXIST, "already");
		FAILS(barway_host_register(gpu[0], p + 8191, PAGE, &more), EEXIST, "already");
		FAILS(barway_host_register(gpu[0], p, 8 * PAGE, &more), EEXIST, "already");
		OK(barway_host_register(gpu[0], p + 2 * PAGE, PAGE, &more));
		FAILS(barway_host_unregister(ctx, p), EINVAL, "address that");
		FAILS(barway_host_unregister(ctx, p + 124), EINVAL, "address that");
		OK(barway_host_unregister(ctx, p + 123));
		FAILS(barway_host_unregister(ctx, p + 123), EINVAL, "not registered");
		CHECK_EQ(pointer_info(p + 123).kind, BARWAY_MEM_HOST);
		OK(barway_host_unregister(ctx, p + 2 * PAGE));
	}
	release(device);
	munmap(p, 8 * PAGE);
	end();
}

static void cannot_be_pinned(void)
{
	void *read_only = map_pages(1, PROT_READ), *p = map_pages(3, PROT_READ | PROT_WRITE), *file;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct barway_mapping *m;
	uint64_t addr = 5, device;

	begin();
	CHECK(fd >= 0);
	file = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(file != MAP_FAILED);
	close(fd);
	munmap((char *)p + PAGE, PAGE);
	FAILS(barway_host_register(gpu[0], read_only, 10, &addr), ENOTSUP, "register");
	FAILS(barway_host_register(gpu[0], file, 10, &addr), ENOTSUP, "register");
	FAILS(barway_host_register(gpu[0], (char *)p + PAGE, 10, &addr), ENOTSUP, "register");
	/* with a hole */
	FAILS(barway_host_register(gpu[0], p, 3 * PAGE, &addr), ENOTSUP, "register");
	device = alloc(0, MIB);
	m = map(device, MIB);
	FAILS(barway_host_register(gpu[0], barway_mapping_ptr(m), 10, &addr), ENOTSUP, "register");
	CHECK_EQ(addr, 5);
	OK(barway_host_register(gpu[0], (char *)p + 2 * PAGE, 10, &addr));
	OK(barway_host_unregister(ctx, (char *)p + 2 * PAGE));
	OK(barway_unmap(m));
	release(device);
	munmap(read_only, PAGE);
	munmap(file, PAGE);
	munmap(p, PAGE);
	munmap((char *)p + 2 * PAGE, PAGE);
	end();
}

/* ---- threads, fork --------------------------------------------------------------------------- */

static void *worker(void *arg)
{
	unsigned char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct barway_device *dev = gpu[(uintptr_t)arg % 2];
	uint64_t addr, random = (uintptr_t)arg + 1;
	const char *wrong = NULL;
	void *host;

	if (p == MAP_FAILED)
		return "mmap";
	for (unsigned i = 0; i < 200 && !wrong; i++) {
		size_t n = 1 + test_random(&random) % (3 * PAGE);
		size_t at = test_random(&random) % (8 * PAGE);

		if (barway_host_alloc(dev, n, &host, &addr))
			return "alloc";
		if (barway_host_register(dev, p + at, n, &addr))
			return "register";
		memset(host, 1, n);
		memset(p + at, 2, n);
		if (barway_host_register(dev, p + at, n, &addr) != -EEXIST)
			wrong = "registered twice";
		else if (barway_host_unregister(ctx, p + at) ||
			 barway_host_unregister(ctx, p + at) != -EINVAL)
			wrong = "unregister";
		else if (barway_host_free(ctx, host)) /* not twice: it may be another's by now */
			wrong = "free";
	}
	munmap(p, 16 * PAGE);
	return (void *)wrong;
}

static void threads(void)
{
	pthread_t t[4];
	void *wrong;

	if (emulated())
		SKIP("an emulator's /proc/self/maps lacks lines while threads map");
	begin();
	for (uintptr_t i = 0; i < N(t); i++)
		CHECK_EQ(pthread_create(&t[i], NULL, worker, (void *)i), 0);
	for (unsigned i = 0; i < N(t); i++) {
		CHECK_EQ(pthread_join(t[i], &wrong), 0);
		if (wrong)
			FAIL("thread %u: %s", i, (char *)wrong);
	}
	end();
}

static void *inherited;
static unsigned char *theirs;

static void touch_child(void)
{
	struct barway_device *dev = gpu[0];
	uint64_t addr;
	void *host;

	FAILS(barway_host_free(ctx, inherited), ESTALE, "barway_host_free");
	FAILS(barway_host_unregister(ctx, theirs), ESTALE, "barway_host_unregister");
	FAILS(barway_host_alloc(dev, 10, &host, &addr), ESTALE, "barway_host_alloc");
	FAILS(barway_host_register(dev, theirs, 10, &addr), ESTALE, "register");
	CHECK(faults(inherited));
	CHECK(theirs[10] == 7); /* the caller's own is inherited as ever */
	theirs[10] = 8;
}

/* It may begin anew. */
static void anew_child(void)
{
	struct barway_context *c;
	struct barway_device *dev;
	uint64_t addr;
	void *host;

	OK(barway_open(NULL, &c));
	OK(barway_device_get(c, 0, &dev));
	FAILS(barway_host_free(c, inherited), EINVAL, "barway_host_free");
	FAILS(barway_host_unregister(c, theirs), EINVAL, "barway_host_unregister");
	OK(barway_host_alloc(dev, 10, &host, &addr));
	OK(barway_host_register(dev, theirs, 10, &addr));
	OK(barway_host_unregister(c, theirs));
	OK(barway_host_free(c, host));
	OK(barway_close(c));
}

static void over_a_fork(void)
{
	uint64_t addr, device;

	if (emulated())
		SKIP("no MADV_DONTFORK here");
	begin();
	device = alloc(0, MIB);
	theirs = map_pages(1, PROT_READ | PROT_WRITE);
	theirs[10] = 7;
	OK(barway_host_alloc(gpu[0], PAGE, &inherited, &addr));
	OK(barway_host_register(gpu[0], theirs, PAGE, NULL));
	test_fill(inherited, PAGE, 4);
	CHECK_EQ(in_child(touch_child), 0);
	CHECK_EQ(in_child(anew_child), 0);
	CHECK_EQ(theirs[10], 7);
	CHECK(kernel_copies(0, device, addr, PAGE));
	OK(barway_host_unregister(ctx, theirs));
	OK(barway_host_free(ctx, inherited));
	munmap(theirs, PAGE);
	release(device);
	end();
}

/* Any context frees it, also after the one it was made with was closed. */
static void over_a_close(void)
{
	void *host, *p = map_pages(1, PROT_READ | PROT_WRITE);

	begin();
	OK(barway_host_alloc(gpu[0], 10, &host, NULL));
	OK(barway_host_register(gpu[0], p, 10, NULL));
	end();
	memset(host, 1, PAGE);
	FAILS(barway_host_free(ctx, host), ESTALE, "barway_host_free");
	begin();
	OK(barway_host_free(ctx, host));
	OK(barway_host_unregister(ctx, p));
	munmap(p, PAGE);
	end();
}

/* Nothing is left over. */
static void gives_back(void)
{
	size_t before = 0;
	unsigned areas = 0;
	uint64_t addr;
	void *host;

	begin();
	for (unsigned i = 0; i < 300; i++) {
		if (i == 50) {
			before = resident();
			areas = maps();
		}
		OK(barway_host_alloc(gpu[0], MIB, &host, &addr));
		memset(host, 1, MIB);
		OK(barway_host_free(ctx, host));
	}
	if (!SANITIZED && !emulated()) {
		CHECK(resident() < before + 64);
		CHECK(maps() <= areas + 4);
	}
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(allocated),
		TEST(bad_arguments),
		TEST(registered),
		TEST(cannot_be_pinned),
		TEST(threads),
		TEST(over_a_fork),
		TEST(over_a_close),
		TEST(gives_back),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
