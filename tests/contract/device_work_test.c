/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of struct bw_device_ops, second part: pinned memory, streams, kernels, and whether a
 * device is alive. On every kind that is there: the soft GPU, a GPU, or the fake libcuda, to which
 * it gives C functions in place of the kernels.
 */
#include <barway_soft.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contract/device_kinds.h"
#include "core/fault.h"
#include "fake/cuda_fake.h"
#include "sanitized_child.h"

#define OK(call) do { \
	int ret_ = (call); \
	if (ret_) FAIL("%s: %s: %d: %s", ops->name, #call, ret_, bw_err_text()); \
} while (0)
#define FAILS(call, err) do { \
	int ret_ = (call); \
	if (ret_ != -(err)) \
		FAIL("%s: %s: %d (%s), expected -%s", ops->name, #call, ret_, \
		     ret_ ? bw_err_text() : "", #err); \
	CHECK(*bw_err_text()); \
} while (0)

#define BIG (4u << 20)

static void sleep_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static uint64_t load64(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

static void store64(void *p, uint64_t v)
{
	__atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}

/* Until the 8 bytes at @p are @v; false: for 20 seconds they were not. */
static bool comes(const void *p, uint64_t v)
{
	for (unsigned i = 0; i < 20000 && load64(p) != v; i++)
		sleep_ms(1);
	return load64(p) == v;
}

/* ---- kernels: as PTX, for the soft GPU, for the fake libcuda --------------------------------- */

struct add {
	uint64_t out, in, value; /* out[block] = in[block] + value */
};

struct poll {
	uint64_t flag, answer, until; /* waits for *flag to be until; then *answer = until */
};

#define PTX(name, bytes) \
	".version 6.4\n.target sm_70\n.address_size 64\n" \
	".visible .entry " name "(.param .align 8 .b8 p[" #bytes "])\n{\n" \
	" .reg .u64 %o, %i, %v, %x, %y, %w;\n .reg .u32 %b;\n .reg .pred %p;\n"

static const char add_ptx[] = PTX("add_kernel", 24)
	" ld.param.u64 %o, [p];\n ld.param.u64 %i, [p+8];\n ld.param.u64 %v, [p+16];\n"
	" mov.u32 %b, %ctaid.x;\n mul.wide.u32 %x, %b, 8;\n"
	" add.u64 %o, %o, %x;\n add.u64 %i, %i, %x;\n"
	" ld.global.u64 %y, [%i];\n add.u64 %y, %y, %v;\n st.global.u64 [%o], %y;\n ret;\n}\n";

/* Leaves after 2^28 looks, so that a lost flag does not hang the GPU. */
static const char poll_ptx[] = PTX("poll_kernel", 24)
	" ld.param.u64 %i, [p];\n ld.param.u64 %o, [p+8];\n ld.param.u64 %v, [p+16];\n"
	" mov.u64 %w, 0;\n"
	"AGAIN:\n add.u64 %w, %w, 1;\n setp.gt.u64 %p, %w, 268435456;\n @%p bra DONE;\n"
	" ld.acquire.sys.u64 %y, [%i];\n setp.ne.u64 %p, %y, %v;\n @%p bra AGAIN;\n"
	" st.release.sys.u64 [%o], %v;\n"
	"DONE:\n ret;\n}\n";

static const char trap_ptx[] = PTX("trap_kernel", 8) " trap;\n ret;\n}\n";

static void add_soft(struct barway_soft_block *block, void *arg)
{
	const struct add *a = arg;
	uint64_t at = 8u * barway_soft_block_index(block);
	uint64_t *out = barway_soft_deref(block, a->out + at, 8);
	const uint64_t *in = barway_soft_deref(block, a->in + at, 8);

	if (out && in)
		*out = *in + a->value;
	else
		barway_soft_trap(block);
}

static void poll_soft(struct barway_soft_block *block, void *arg)
{
	const struct poll *p = arg;
	void *flag = barway_soft_deref(block, p->flag, 8);
	void *answer = barway_soft_deref(block, p->answer, 8);

	if (flag && answer && comes(flag, p->until))
		store64(answer, p->until);
}

static void trap_soft(struct barway_soft_block *block, void *arg)
{
	(void)arg;
	barway_soft_trap(block);
}

static const struct bw_kernel add_kernel = { "add_kernel", add_ptx, add_soft };
static const struct bw_kernel poll_kernel = { "poll_kernel", poll_ptx, poll_soft };
static const struct bw_kernel trap_kernel = { "trap_kernel", trap_ptx, trap_soft };

static struct cuda_fake cu; /* of libcuda, where there is one; the first two only in the fake */

static int add_fake(const struct cuda_fake_block *block, void *arg)
{
	const struct add *a = arg;
	void *out, *in;

	if (cu.cudaFakeDeref(a->out + 8u * block->index, 8, &out) ||
	    cu.cudaFakeDeref(a->in + 8u * block->index, 8, &in))
		return CUF_ILLEGAL_ADDRESS;
	*(uint64_t *)out = *(uint64_t *)in + a->value;
	return 0;
}

static int poll_fake(const struct cuda_fake_block *block, void *arg)
{
	const struct poll *p = arg;
	void *flag, *answer;

	(void)block;
	if (cu.cudaFakeDeref(p->flag, 8, &flag) || cu.cudaFakeDeref(p->answer, 8, &answer))
		return CUF_ILLEGAL_ADDRESS;
	if (comes(flag, p->until))
		store64(answer, p->until);
	return 0;
}

static int trap_fake(const struct cuda_fake_block *block, void *arg)
{
	(void)block;
	(void)arg;
	return CUF_LAUNCH_FAILED;
}

static void find_libcuda(void)
{
	static const char *const names[] = {
#define NAME(name, args) #name,
		CUF_LIST(NAME)
#undef NAME
	};
	const char *path = getenv("BARWAY_LIBCUDA");
	void *lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);

	for (size_t i = 0; lib && i < sizeof(names) / sizeof(names[0]); i++) {
		void *f = dlsym(lib, names[i]);

		memcpy((char *)&cu + i * sizeof(f), &f, sizeof(f));
	}
	if (cu.cudaFakeKernel) {
		cu.cudaFakeKernel("add_kernel", add_fake);
		cu.cudaFakeKernel("poll_kernel", poll_fake);
		cu.cudaFakeKernel("trap_kernel", trap_fake);
	}
}

/* What the fake counts; 0 on a real driver. */
static long fake_count(const char *counter)
{
	long (*get)(const char *key);
	void *f = dlsym(RTLD_DEFAULT, "fakenv_get");

	if (!f)
		return 0;
	memcpy(&get, &f, sizeof(f));
	return get(counter);
}

/* ---- pinned memory --------------------------------------------------------------------------- */

struct host {
	void *at;
	uint64_t addr;
};

static struct host host_alloc(struct bw_device *dev, size_t bytes)
{
	struct host h = { NULL, 0 };

	OK(ops->host_alloc(dev, bytes, &h.at, &h.addr));
	CHECK(h.at && h.addr && !((uintptr_t)h.at % 4096));
	return h;
}

static void *new_stream(struct bw_device *dev)
{
	void *stream = NULL;

	OK(ops->stream_create(dev, NULL, &stream));
	CHECK(stream);
	return stream;
}

/* The device writes a word at a device address: the host sees it at its own address. */
static void reaches(struct bw_device *dev, void *word, uint64_t addr, uint64_t value)
{
	void *stream = new_stream(dev);
	int ret = ops->stream_write(dev, stream, addr, value);

	if (ret != -ENOTSUP) {
		OK(ret);
		OK(ops->stream_sync(dev, stream));
		CHECK_EQ(load64(word), value);
	}
	ops->stream_destroy(dev, stream);
}

static void allocates_pinned(struct bw_device *dev)
{
	static const size_t sizes[] = { 1, 8, 4096, 4097, 100000, BIG };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	struct host h[N], none = { &none, 7 };
	struct bw_segment seg;
	uint64_t last;

	for (unsigned i = 0; i < N; i++) {
		h[i] = host_alloc(dev, sizes[i]);
		memset(h[i].at, (int)i, (sizes[i] + 4095) / 4096 * 4096); /* whole pages */
		for (unsigned k = 0; k < i; k++)
			CHECK((char *)h[k].at + sizes[k] <= (char *)h[i].at ||
			      (char *)h[i].at + sizes[i] <= (char *)h[k].at);
		last = (uintptr_t)h[i].at + (sizes[i] - 1) / 4096 * 4096 + 4095;
		OK(bw_device_resolve(last, &seg));
		CHECK_EQ(seg.kind, BW_MEM_PINNED);
		CHECK(seg.base <= (uintptr_t)h[i].at);
	}
	for (unsigned i = 0; i < N; i++)
		reaches(dev, h[i].at, h[i].addr, 1000 + i);
	CHECK_EQ(ops->host_free((char *)h[4].at + 4096), -ENOENT);
	CHECK_EQ(ops->host_unregister(h[4].at), -ENOENT);
	for (unsigned i = 0; i < N; i++) {
		OK(ops->host_free(h[i].at));
		CHECK_EQ(ops->host_free(h[i].at), -ENOENT);
	}
	CHECK_EQ(ops->host_free(NULL), -ENOENT);
	CHECK_EQ(ops->host_free(&none), -ENOENT);
	FAILS(ops->host_alloc(dev, 0, &none.at, &none.addr), EINVAL);
	FAILS(ops->host_alloc(dev, SIZE_MAX, &none.at, &none.addr), ENOMEM);
	FAILS(ops->host_alloc(dev, (size_t)1 << 60, &none.at, &none.addr), ENOMEM);
	CHECK(none.at == &none && none.addr == 7);
}

static void pinned_memory(void)
{
	each_kind(allocates_pinned);
}

static void registers(struct bw_device *dev)
{
	const size_t bytes = 10 * 4096;
	unsigned char *p = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t addr = 0, other = 7;
	struct host h;

	CHECK(p != MAP_FAILED);
	CHECK_EQ(mprotect(p + bytes, 4096, PROT_READ), 0);
	for (unsigned round = 0; round < 3; round++) {
		OK(ops->host_register(dev, p + 100, 5000, &addr)); /* pages 0 and 1 */
		CHECK(addr % 4096 == 100);
		reaches(dev, p + 104, addr + 4, 77 + round);
		reaches(dev, p + 8184, addr + 8084, 78 + round);
		FAILS(ops->host_register(dev, p + 100, 5000, &other), EEXIST);
		FAILS(ops->host_register(dev, p + 8191, 2, &other), EEXIST);
		FAILS(ops->host_register(dev, p, 1, &other), EEXIST);
		OK(ops->host_register(dev, p + 8192, 8192, &other));
		CHECK_EQ(ops->host_unregister(p), -ENOENT);
		CHECK_EQ(ops->host_free(p + 100), -ENOENT);
		OK(ops->host_unregister(p + 100));
		CHECK_EQ(ops->host_unregister(p + 100), -ENOENT);
		reaches(dev, p + 8192, other, 5);
		OK(ops->host_unregister(p + 8192));
	}
	other = 7;
	FAILS(ops->host_register(dev, p, 0, &other), EINVAL);
	FAILS(ops->host_register(dev, p, SIZE_MAX - 100, &other), EINVAL);
	FAILS(ops->host_register(dev, (void *)(UINTPTR_MAX - 10), 100, &other), EINVAL);
	FAILS(ops->host_register(dev, p + bytes, 10, &other), ENOTSUP); /* cannot be written */
	h = host_alloc(dev, 4096);
	FAILS(ops->host_register(dev, h.at, 10, &other), EEXIST);
	OK(ops->host_free(h.at));
	munmap(p, bytes + 4096);
	FAILS(ops->host_register(dev, p, 10, &other), ENOTSUP); /* nothing there */
	CHECK_EQ(other, 7);
}

static void registration(void)
{
	each_kind(registers);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void copies_in_order(struct bw_device *dev)
{
	struct host src = host_alloc(dev, BIG), dst = host_alloc(dev, BIG);
	uint64_t a = mem_alloc(dev, BIG), random = 3;
	void *stream = new_stream(dev);
	unsigned char *s = src.at, *d = dst.at, pageable[3000], back[3000];

	OK(ops->stream_query(dev, stream));
	OK(ops->stream_sync(dev, stream));
	CHECK_EQ(ops->stream_capturing(dev, stream), 0);
	for (unsigned i = 0; i < 30; i++) {
		size_t n = 1 + test_random(&random) % (i % 2 ? BIG - 4096 : 3000);
		size_t at = test_random(&random) % 4096;

		test_fill(s + at, n, i);
		memset(d, 0xee, n + 2);
		OK(ops->stream_copy_to(dev, stream, a + at, s + at, n));
		OK(ops->stream_copy_from(dev, stream, d + 1, a + at, n));
		OK(ops->stream_copy_to(dev, stream, a + at, d, 0));
		OK(ops->stream_sync(dev, stream));
		OK(ops->stream_query(dev, stream));
		CHECK(!memcmp(s + at, d + 1, n) && d[0] == 0xee && d[n + 1] == 0xee);
	}
	/* memory that is not pinned; the copy engine afterwards, which is another stream */
	test_fill(pageable, sizeof(pageable), 99);
	OK(ops->stream_copy_to(dev, stream, a + 5, pageable, sizeof(pageable)));
	OK(ops->stream_sync(dev, stream));
	OK(ops->ce_copy_from(dev, back, a + 5, sizeof(back)));
	CHECK(!memcmp(pageable, back, sizeof(back)));
	memset(back, 0, sizeof(back));
	OK(ops->stream_copy_from(dev, stream, back, a + 5, sizeof(back)));
	OK(ops->stream_sync(dev, stream));
	CHECK(!memcmp(pageable, back, sizeof(back)));
	ops->stream_destroy(dev, stream);
	OK(ops->mem_free(a));
	OK(ops->host_free(src.at));
	OK(ops->host_free(dst.at));
}

static void stream_copies(void)
{
	each_kind(copies_in_order);
}

static void set_flag(void *arg)
{
	store64(arg, load64(arg) + 1);
}

/* A word that is waited for holds up what comes after it, and nothing else. */
static void waits_at(struct bw_device *dev, struct host *h, void *word, uint64_t addr)
{
	void *stream = new_stream(dev), *other = new_stream(dev);
	static uint64_t called;
	uint64_t *host = h->at;
	int ret;

	called = 0;
	host[1] = 0;
	ret = ops->stream_wait(dev, stream, addr, 5);
	if (ret == -ENOTSUP) {
		printf("%s: no waiting for values: %s\n", ops->name, bw_err_text());
		goto out;
	}
	OK(ret);
	OK(ops->stream_call(dev, stream, set_flag, &called));
	OK(ops->stream_write(dev, stream, h->addr + 8, 123));
	sleep_ms(30);
	CHECK_EQ(ops->stream_query(dev, stream), -EBUSY);
	CHECK(load64(&called) == 0 && load64(&host[1]) == 0);
	OK(ops->alive(dev, NULL));
	OK(ops->stream_call(dev, other, set_flag, &called));
	OK(ops->stream_sync(dev, other));
	CHECK_EQ(load64(&called), 1);
	if (word)
		store64(word, 4); /* too small */
	else
		OK(ops->stream_write(dev, other, addr, 4));
	OK(ops->stream_sync(dev, other));
	sleep_ms(30);
	CHECK_EQ(ops->stream_query(dev, stream), -EBUSY);
	if (word)
		store64(word, 6); /* larger than asked for */
	else
		OK(ops->stream_write(dev, other, addr, 6));
	CHECK(comes(&host[1], 123));
	OK(ops->stream_sync(dev, stream));
	CHECK_EQ(load64(&called), 2);
	/* what is there already does not hold it up; 8 bytes, not 4 */
	OK(ops->stream_write(dev, stream, addr, (7ull << 32) + 1));
	OK(ops->stream_wait(dev, stream, addr, 7ull << 32));
	OK(ops->stream_sync(dev, stream));
	if (word)
		CHECK_EQ(load64(word), (7ull << 32) + 1);
out:
	ops->stream_destroy(dev, stream);
	ops->stream_destroy(dev, other);
}

static void waits(struct bw_device *dev)
{
	struct host h = host_alloc(dev, 4096);
	uint64_t a = mem_alloc(dev, 4096), zero = 0;

	memset(h.at, 0, 4096);
	waits_at(dev, &h, (char *)h.at + 64, h.addr + 64);
	OK(ops->ce_copy_to(dev, a + 8, &zero, 8));
	waits_at(dev, &h, NULL, a + 8);
	OK(ops->mem_free(a));
	OK(ops->host_free(h.at));
}

static void values(void)
{
	each_kind(waits);
}

/* A word that was written after a copy says that the copy is there. */
static void announces(struct bw_device *dev)
{
	struct host data = host_alloc(dev, BIG), flag = host_alloc(dev, 8);
	unsigned char *src = malloc(BIG);
	uint64_t a = mem_alloc(dev, BIG);
	void *stream = new_stream(dev);
	int ret = 0;

	CHECK(src);
	store64(flag.at, 0);
	for (uint64_t i = 1; i <= 20 && ret != -ENOTSUP; i++) {
		test_fill(src, BIG, i);
		OK(ops->ce_copy_to(dev, a, src, BIG));
		memset(data.at, 0, BIG);
		OK(ops->stream_copy_from(dev, stream, data.at, a, BIG));
		ret = ops->stream_write(dev, stream, flag.addr, i);
		if (ret != -ENOTSUP) {
			OK(ret);
			CHECK(comes(flag.at, i));
			CHECK(!memcmp(data.at, src, BIG));
		}
	}
	ops->stream_destroy(dev, stream);
	OK(ops->mem_free(a));
	OK(ops->host_free(data.at));
	OK(ops->host_free(flag.at));
	free(src);
	if (ret == -ENOTSUP)
		SKIP("%s", bw_err_text());
}

static void written_after_a_copy(void)
{
	each_kind(announces);
}

static void slow(void *arg)
{
	sleep_ms(50);
	store64(arg, 1);
}

/* Work that was given to a stream is done when the stream is gone. */
static void finishes(struct bw_device *dev)
{
	static uint64_t done;
	void *stream = new_stream(dev);

	store64(&done, 0);
	OK(ops->stream_call(dev, stream, slow, &done));
	ops->stream_destroy(dev, stream);
	CHECK_EQ(load64(&done), 1);
}

static void destroyed_stream(void)
{
	each_kind(finishes);
}

static struct bw_device *thread_dev;

/* In a thread without a context. */
static void *streamer(void *arg)
{
	unsigned char buf[3000], back[3000];
	const char *wrong = NULL;
	void *stream = NULL, *host = NULL;
	uint64_t addr = 0, at;

	if (ops->stream_create(thread_dev, NULL, &stream) ||
	    ops->host_alloc(thread_dev, sizeof(buf), &host, &at) ||
	    ops->mem_alloc(thread_dev, sizeof(buf), &addr))
		return "start";
	for (unsigned i = 0; i < 50 && !wrong; i++) {
		test_fill(buf, sizeof(buf), i + (uintptr_t)arg * 100);
		memcpy(host, buf, sizeof(buf));
		if (ops->stream_copy_to(thread_dev, stream, addr, host, sizeof(buf)) ||
		    ops->stream_copy_from(thread_dev, stream, back, addr, sizeof(buf)) ||
		    ops->stream_sync(thread_dev, stream) || ops->alive(thread_dev, NULL))
			wrong = "work";
		else if (memcmp(buf, back, sizeof(buf)))
			wrong = "data";
	}
	ops->stream_destroy(thread_dev, stream);
	if (ops->host_free(host) || ops->mem_free(addr))
		return "end";
	return (void *)wrong;
}

static void streams_of_threads(struct bw_device *dev)
{
	void *wrong[4] = { 0 };
	pthread_t t[4];

	thread_dev = dev;
	for (uintptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, streamer, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], &wrong[i]);
	for (unsigned i = 0; i < 4; i++)
		if (wrong[i])
			FAIL("%s: thread %u: %s", ops->name, i, (char *)wrong[i]);
}

static void threads(void)
{
	each_kind(streams_of_threads);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void launches(struct bw_device *dev)
{
	enum { BLOCKS = 20 };
	uint64_t in[BLOCKS], out[BLOCKS], a = mem_alloc(dev, sizeof(in)), words[BLOCKS];
	struct host h = host_alloc(dev, sizeof(out));
	void *stream = new_stream(dev), *loaded = NULL, *again = NULL;
	struct add add = { h.addr, a, 1000 };

	test_fill(in, sizeof(in), 4);
	OK(ops->kernel_load(dev, NULL, &add_kernel, &loaded));
	OK(ops->kernel_load(dev, NULL, &add_kernel, &again));
	CHECK(loaded && again);
	/* from GPU memory to pinned memory; its parameter is copied */
	OK(ops->stream_copy_to(dev, stream, a, in, sizeof(in)));
	OK(ops->kernel_launch(dev, stream, loaded, BLOCKS, 1, &add, sizeof(add)));
	memset(&add, 0xff, sizeof(add));
	OK(ops->stream_sync(dev, stream));
	memcpy(out, h.at, sizeof(out));
	for (unsigned i = 0; i < BLOCKS; i++)
		CHECK_EQ(out[i], in[i] + 1000);
	/* and back, twice, in order */
	add = (struct add){ a, h.addr, 5 };
	OK(ops->kernel_launch(dev, stream, again, BLOCKS, 1, &add, sizeof(add)));
	add = (struct add){ a, a, 1 };
	OK(ops->kernel_launch(dev, stream, loaded, BLOCKS - 1, 1, &add, sizeof(add)));
	OK(ops->stream_copy_from(dev, stream, words, a, sizeof(words)));
	OK(ops->stream_sync(dev, stream));
	for (unsigned i = 0; i < BLOCKS; i++)
		CHECK_EQ(words[i], in[i] + 1005 + (i < BLOCKS - 1));
	CHECK(ops->kernel_launch(dev, stream, loaded, 0, 1, &add, sizeof(add)) < 0);
	CHECK(*bw_err_text());
	OK(ops->stream_sync(dev, stream));
	ops->stream_destroy(dev, stream);
	OK(ops->mem_free(a));
	OK(ops->host_free(h.at));
}

static void kernels(void)
{
	each_kind(launches);
}

static void refuses(struct bw_device *dev)
{
	static const struct bw_kernel garbage = { "garbage", "this is no kernel", NULL };
	static const struct bw_kernel nameless = { "nameless", add_ptx, NULL };
	void *loaded = &loaded;

	CHECK(ops->kernel_load(dev, NULL, &garbage, &loaded) < 0);
	CHECK_HAS(bw_err_text(), "garbage");
	CHECK(ops->kernel_load(dev, NULL, &nameless, &loaded) < 0);
	CHECK_HAS(bw_err_text(), "nameless");
	CHECK(loaded == &loaded);
	OK(ops->alive(dev, NULL));
}

static void wrong_kernels(void)
{
	each_kind(refuses);
}

/* While a kernel runs that waits for the CPU, the rest goes on. */
static void stays(struct bw_device *dev)
{
	struct host h = host_alloc(dev, 4096);
	uint64_t a = mem_alloc(dev, 65536), b = 1, c = 0, *word = h.at;
	struct poll poll = { h.addr, h.addr + 64, 9 };
	void *stream = new_stream(dev), *loaded, *other;

	memset(h.at, 0, 4096);
	OK(ops->ce_copy_to(dev, a, &b, 8));
	OK(ops->kernel_load(dev, NULL, &poll_kernel, &loaded));
	OK(ops->kernel_launch(dev, stream, loaded, 1, 1, &poll, sizeof(poll)));
	sleep_ms(20);
	CHECK_EQ(ops->stream_query(dev, stream), -EBUSY);
	OK(ops->alive(dev, NULL));
	other = new_stream(dev);
	b = 4711;
	OK(ops->ce_copy_to(dev, a, &b, 8));
	OK(ops->stream_copy_from(dev, other, &c, a, 8));
	OK(ops->stream_sync(dev, other));
	CHECK_EQ(c, 4711);
	CHECK_EQ(load64(&word[8]), 0);
	store64(&word[0], 9);
	CHECK(comes(&word[8], 9));
	OK(ops->stream_sync(dev, stream));
	ops->stream_destroy(dev, stream);
	ops->stream_destroy(dev, other);
	OK(ops->mem_free(a));
	OK(ops->host_free(h.at));
}

static void resident_kernel(void)
{
	each_kind(stays);
}

/* ---- in a stream capture --------------------------------------------------------------------- */

static void begin_capture(void *stream)
{
	CHECK_EQ(cu.cuStreamBeginCapture_v2(stream, CUF_CAPTURE_GLOBAL), 0);
}

/* The number of nodes that were captured. */
static size_t end_capture(void *stream)
{
	void *graph = NULL;
	size_t n = 0;

	CHECK_EQ(cu.cuStreamEndCapture(stream, &graph), 0);
	CHECK(graph);
	CHECK_EQ(cu.cuGraphGetNodes(graph, NULL, &n), 0);
	CHECK_EQ(cu.cuGraphDestroy(graph), 0);
	return n;
}

/* Everything that is not for the captured stream works, and leaves no trace in the capture. */
static void works_beside_a_capture(struct bw_device *dev)
{
	static const struct bw_kernel fresh = { "add_kernel", add_ptx, add_soft };
	void *captured = new_stream(dev), *stream = NULL, *loaded = NULL, *mine;
	uint64_t a = mem_alloc(dev, 4096), b = 5, c = 0, at, called = 0;
	struct host h = { NULL, 0 };
	struct add add;

	CHECK_EQ(posix_memalign(&mine, 4096, 8192), 0);
	begin_capture(captured);
	CHECK_EQ(ops->stream_capturing(dev, captured), 1);
	FAILS(ops->stream_query(dev, captured), ENOTSUP);
	FAILS(ops->stream_sync(dev, captured), ENOTSUP);
	OK(ops->host_alloc(dev, 100, &h.at, &h.addr));
	OK(ops->host_register(dev, mine, 5000, &at));
	OK(ops->stream_create(dev, NULL, &stream));
	CHECK_EQ(ops->stream_capturing(dev, stream), 0);
	OK(ops->kernel_load(dev, NULL, &fresh, &loaded));
	OK(ops->ce_copy_to(dev, a, &b, 8));
	add = (struct add){ h.addr, a, 1 };
	OK(ops->kernel_launch(dev, stream, loaded, 1, 1, &add, sizeof(add)));
	OK(ops->stream_call(dev, stream, set_flag, &called));
	OK(ops->stream_copy_from(dev, stream, &c, a, 8));
	OK(ops->stream_sync(dev, stream));
	OK(ops->stream_query(dev, stream));
	OK(ops->alive(dev, NULL));
	CHECK(c == 5 && called == 1 && load64(h.at) == 6);
	ops->stream_destroy(dev, stream);
	OK(ops->host_unregister(mine));
	OK(ops->host_free(h.at));
	CHECK_EQ(end_capture(captured), 0);
	ops->stream_destroy(dev, captured);
	OK(ops->mem_free(a));
	free(mine);
}

/* Work for the captured stream becomes part of the graph: it is not done. */
static void is_captured(struct bw_device *dev)
{
	void *stream = new_stream(dev), *loaded;
	struct host h = host_alloc(dev, 4096);
	uint64_t a = mem_alloc(dev, 4096), called = 0;
	struct add add = { h.addr, h.addr, 1 };
	int wrote;

	memset(h.at, 0, 4096);
	OK(ops->kernel_load(dev, NULL, &add_kernel, &loaded));
	begin_capture(stream);
	OK(ops->stream_copy_to(dev, stream, a, h.at, 64));
	OK(ops->kernel_launch(dev, stream, loaded, 1, 1, &add, sizeof(add)));
	OK(ops->stream_call(dev, stream, set_flag, &called));
	CHECK_EQ(end_capture(stream), 3);
	OK(ops->stream_sync(dev, stream));
	CHECK(called == 0 && load64(h.at) == 0);
	/* not every driver can capture these: then it says so */
	begin_capture(stream);
	wrote = ops->stream_write(dev, stream, h.addr, 1);
	if (!wrote) {
		OK(ops->stream_wait(dev, stream, h.addr, 1));
		CHECK(end_capture(stream) >= 1);
	} else {
		void *graph;

		CHECK_EQ(wrote, -ENOTSUP);
		printf("%s: %s\n", ops->name, bw_err_text());
		cu.cuStreamEndCapture(stream, &graph);
	}
	OK(ops->stream_sync(dev, stream));
	CHECK_EQ(load64(h.at), 0);
	ops->stream_destroy(dev, stream);
	OK(ops->mem_free(a));
	OK(ops->host_free(h.at));
}

static void captures(struct bw_device *dev)
{
	void *ctx;

	if (ops->kind != BW_DEVICE_CUDA)
		return;
	CHECK_EQ(cu.cuDevicePrimaryCtxRetain(&ctx, dev->index), 0);
	CHECK_EQ(cu.cuCtxPushCurrent_v2(ctx), 0);
	works_beside_a_capture(dev);
	is_captured(dev);
	CHECK_EQ(cu.cuCtxPopCurrent_v2(&ctx), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRelease_v2(dev->index), 0);
	CHECK_EQ(fake_count("graphs_dropped"), 0);
	CHECK_EQ(fake_count("null_stream_uses"), 0);
}

static void stream_capture(void)
{
	each_kind(captures);
}

/* ---- contexts come and go -------------------------------------------------------------------- */

static uint64_t memory_of(void *ctx)
{
	unsigned long long a = 0;

	CHECK_EQ(cu.cuCtxSetCurrent(ctx), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&a, 4096), 0);
	CHECK_EQ(cu.cuCtxSetCurrent(NULL), 0);
	return a;
}

static void works_in(struct bw_device *dev, void *ctx)
{
	uint64_t a = memory_of(ctx), b = 41, c = 0;
	struct add add = { a + 8, a, 1 };
	void *stream, *theirs, *loaded;

	OK(ops->ce_copy_to(dev, a, &b, 8));
	OK(ops->stream_create(dev, ctx, &stream));
	OK(ops->kernel_load(dev, ctx, &add_kernel, &loaded));
	OK(ops->kernel_launch(dev, stream, loaded, 1, 1, &add, sizeof(add)));
	OK(ops->stream_sync(dev, stream));
	OK(ops->ce_copy_from(dev, &c, a + 8, 8));
	CHECK_EQ(c, 42);
	OK(ops->alive(dev, ctx));
	/* a stream that the caller made */
	CHECK_EQ(cu.cuCtxSetCurrent(ctx), 0);
	CHECK_EQ(cu.cuStreamCreate(&theirs, 0), 0);
	CHECK_EQ(cu.cuCtxSetCurrent(NULL), 0);
	OK(ops->stream_copy_to(dev, theirs, a + 8, &b, 8));
	OK(ops->kernel_launch(dev, theirs, loaded, 1, 1, &add, sizeof(add)));
	OK(ops->stream_copy_from(dev, theirs, &c, a + 8, 8));
	OK(ops->stream_sync(dev, theirs));
	CHECK_EQ(c, 42);
	CHECK_EQ(cu.cuStreamDestroy_v2(theirs), 0);
	ops->stream_destroy(dev, stream);
}

/* What was kept for a context is not used in another one that came to lie at the same address. */
static void changes_contexts(struct bw_device *dev)
{
	void *ctx = NULL, *stream, *loaded, *before = NULL, *current = NULL, *old = NULL;
	unsigned long long id;
	unsigned same = 0;

	if (ops->kind != BW_DEVICE_CUDA)
		return;
	for (unsigned i = 0; i < 5; i++) {
		CHECK_EQ(cu.cuCtxCreate_v2(&ctx, 0, dev->index), 0);
		CHECK_EQ(cu.cuCtxSetCurrent(NULL), 0);
		if (!cu.cuCtxGetId || cu.cuCtxGetId(ctx, &id)) /* before CUDA 12 */
			old = NULL; /* would be taken for one of this context */
		same += ctx == before;
		before = ctx;
		if (old) {
			CHECK(ops->stream_query(dev, old) < 0);
			ops->stream_destroy(dev, old);
		}
		works_in(dev, ctx);
		works_in(dev, ctx);
		OK(ops->stream_create(dev, ctx, &old));
		OK(ops->stream_create(dev, ctx, &stream));
		OK(ops->kernel_load(dev, ctx, &add_kernel, &loaded));
		CHECK_EQ(cu.cuCtxDestroy_v2(ctx), 0);
		/* it went with its context: no crash, an error, and destroying it is no error */
		CHECK(ops->stream_query(dev, stream) < 0);
		ops->stream_destroy(dev, stream);
		stream = new_stream(dev);
		CHECK(ops->kernel_launch(dev, stream, loaded, 1, 1, &same, 24) < 0);
		ops->stream_destroy(dev, stream);
	}
	ops->stream_destroy(dev, old); /* its context is gone, and no other one came */
	printf("%s: a context lay where the one before it had been %u times\n", ops->name, same);
	CHECK_EQ(cu.cuCtxGetCurrent(&current), 0);
	CHECK(!current);
	CHECK_EQ(fake_count("stale_uses"), 0);
}

static void other_contexts(void)
{
	each_kind(changes_contexts);
}

/* The primary context again and again; memory that went with it is not freed a second time. */
static void resets(struct bw_device *dev)
{
	uint64_t b, c, *word;
	struct add add;
	struct host h;
	void *loaded, *stream;

	for (unsigned i = 0; i < 5; i++) {
		h = host_alloc(dev, 4096);
		word = h.at;
		word[0] = i;
		add = (struct add){ h.addr + 8, h.addr, 1 };
		OK(ops->kernel_load(dev, NULL, &add_kernel, &loaded));
		stream = new_stream(dev);
		OK(ops->kernel_launch(dev, stream, loaded, 1, 1, &add, sizeof(add)));
		OK(ops->stream_sync(dev, stream));
		CHECK_EQ(load64(&word[1]), i + 1);
		b = mem_alloc(dev, 4096);
		OK(ops->ce_copy_to(dev, b, &add, 8));
		OK(ops->ce_copy_from(dev, &c, b, 8));
		CHECK_EQ(c, add.out);
		OK(ops->alive(dev, NULL));
		OK(ops->mem_free(b));
		if (ops->kind == BW_DEVICE_CUDA) {
			ops->deactivate(dev);
			ops->stream_destroy(dev, stream);
			OK(ops->activate(dev));
		} else {
			ops->stream_destroy(dev, stream);
		}
		OK(ops->host_free(h.at));
		CHECK_EQ(ops->host_free(h.at), -ENOENT);
	}
	CHECK_EQ(fake_count("stale_uses"), 0);
}

static void primary_context(void)
{
	each_kind(resets);
}

/* ---- what fails on the way ------------------------------------------------------------------- */

/* All of it, once; the first error. What was begun is ended. */
static int all_of_it(struct bw_device *dev, uint64_t a, unsigned char *mine)
{
	void *stream = NULL, *host = NULL, *loaded;
	uint64_t addr, at, b = 1, c = 0;
	struct add add = { a + 8, a, 1 };
	int ret, end;

	ret = ops->host_alloc(dev, 100, &host, &addr);
	if (ret)
		return ret;
	ret = ops->host_register(dev, mine, 100, &at);
	if (ret)
		goto free;
	ret = ops->stream_create(dev, NULL, &stream);
	if (ret)
		goto unregister;
	*(uint64_t *)host = b;
	if (!(ret = ops->alive(dev, NULL)) && !(ret = ops->ce_copy_to(dev, a, &b, 8)) &&
	    !(ret = ops->kernel_load(dev, NULL, &add_kernel, &loaded)) &&
	    !(ret = ops->stream_copy_to(dev, stream, a, host, 8)) &&
	    !(ret = ops->kernel_launch(dev, stream, loaded, 1, 1, &add, sizeof(add))) &&
	    !(ret = ops->stream_copy_from(dev, stream, host, a + 8, 8)) &&
	    !(ret = ops->stream_sync(dev, stream)))
		ret = ops->ce_copy_from(dev, &c, a + 8, 8);
	if (!ret && (c != 2 || *(uint64_t *)host != 2))
		ret = -EBADMSG;
	ops->stream_destroy(dev, stream);
unregister:
	while ((end = ops->host_unregister(mine)) && !ret)
		ret = end;
free:
	while ((end = ops->host_free(host)) && !ret)
		ret = end;
	return ret;
}

static void fails_once(struct bw_device *dev)
{
	static const enum bw_fault kinds[] = { BW_FAULT_CUDA, BW_FAULT_ALLOC, BW_FAULT_THREAD };
	uint64_t a = mem_alloc(dev, 4096);
	void *mine;
	unsigned failed = 0;

	CHECK_EQ(posix_memalign(&mine, 4096, 4096), 0);
	OK(all_of_it(dev, a, mine));
	for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		for (unsigned nth = 1;; nth++) {
			bool fired;
			int ret;

			bw_fault_arm(kinds[k], nth);
			ret = all_of_it(dev, a, mine);
			fired = !bw_fault_pending(kinds[k]);
			bw_fault_disarm_all();
			CHECK(ret != -EBADMSG);
			CHECK(!ret || *bw_err_text());
			failed += ret != 0;
			OK(all_of_it(dev, a, mine));
			if (!fired)
				break;
			CHECK(nth < 1000);
		}
	}
	printf("%s: %u failures\n", ops->name, failed);
	CHECK(failed > 1);
	free(mine);
	OK(ops->mem_free(a));
}

static void injected_faults(void)
{
	each_kind(fails_once);
}

/* ---- alive ----------------------------------------------------------------------------------- */

static int trap_codes; /* what the child said, see main() */

static void traps(struct bw_device *dev)
{
	void *stream = new_stream(dev), *loaded;
	uint64_t unused = 0;
	int ret = 0;

	OK(ops->alive(dev, NULL));
	OK(ops->kernel_load(dev, NULL, &trap_kernel, &loaded));
	OK(ops->kernel_launch(dev, stream, loaded, 1, 1, &unused, sizeof(unused)));
	for (unsigned i = 0; i < 5000 && !ret; i++) {
		sleep_ms(1);
		ret = ops->alive(dev, NULL); /* sees it without anybody's waiting for the work */
	}
	CHECK_EQ(ret, -EIO);
	CHECK(*bw_err_text());
	printf("%s: after a trap: %s\n", ops->name, bw_err_text());
	FAILS(ops->stream_sync(dev, stream), EIO);
	FAILS(ops->alive(dev, NULL), EIO); /* for good */
	CHECK(ops->kernel_launch(dev, stream, loaded, 1, 1, &unused, sizeof(unused)) < 0);
}

/* In a process of its own, as it breaks the device for its process; before this one has CUDA. */
static void start_trap_child(void)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		is_child = true;
		alarm(120);
		bw_param_set("soft_devices", "1");
		bw_param_set("soft_memory", "64M");
		if (bw_param_load())
			_exit(4);
		find_libcuda();
		switch (setjmp(test_jump)) {
		case 0:
			each_kind(traps);
			break;
		case 2:
			_exit(77);
		default:
			_exit(1);
		}
		fflush(NULL);
		_exit(0);
	}
	trap_codes = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ?
			     WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void dead_after_a_trap(void)
{
	if (trap_codes == 77)
		SKIP("no device");
	CHECK_EQ(trap_codes, 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(pinned_memory),
		TEST(registration),
		TEST(stream_copies),
		TEST(values),
		TEST(written_after_a_copy),
		TEST(destroyed_stream),
		TEST(threads),
		TEST(kernels),
		TEST(wrong_kernels),
		TEST(resident_kernel),
		TEST(stream_capture),
		TEST(other_contexts),
		TEST(primary_context),
		TEST(injected_faults),
		TEST(dead_after_a_trap),
		{ 0 },
	};

	start_trap_child();
	find_libcuda();
	return device_main(argc, argv, cases);
}
