/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of struct bw_map_provider, on every provider that is listed and every device that it
 * does not refuse; and the self-test, also on providers that lie.
 */
#include "map/map.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/counters.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/param.h"
#include "mmio/fence.h"
#include "test.h"

#define BYTES (256u << 10)
#define SLACK (8u << 20) /* of other users of a real GPU's aperture and memory */

static const struct bw_map_provider *provider;
static struct bw_device *device;
static bool soft;

/* Runs @fn on each provider and device that go together; skipped where none do. */
static void each(void (*fn)(void))
{
	char reasons[400] = "";
	bool any = false;

	for (unsigned k = 0; bw_device_kinds[k]; k++) {
		struct bw_device **list;
		struct bw_reason why = { "" };
		int n = bw_device_kinds[k]->enumerate(&list, &why);

		for (int d = 0; d < n && d < 2; d++) {
			CHECK_EQ(list[d]->ops->activate(list[d]), 0);
			for (unsigned p = 0; bw_map_providers[p]; p++) {
				provider = bw_map_providers[p];
				device = list[d];
				soft = device->ops->kind == BW_DEVICE_SOFT;
				if (provider->score(device, &why) < 0) {
					snprintf(reasons, sizeof(reasons), "%s: %.300s",
						 provider->name, why.text);
					continue;
				}
				any = true;
				fn();
			}
			list[d]->ops->deactivate(list[d]);
		}
	}
	if (!any)
		SKIP("%s", reasons);
}

static uint64_t alloc(size_t bytes)
{
	uint64_t addr;

	if (device->ops->mem_alloc(device, bytes, &addr))
		FAIL("%zu bytes: %s", bytes, bw_err_text());
	return addr;
}

static void gpu_write(uint64_t addr, const void *src, size_t n)
{
	if (device->ops->ce_copy_to(device, addr, src, n))
		FAIL("%s", bw_err_text());
}

static void gpu_read(void *dst, uint64_t addr, size_t n)
{
	if (device->ops->ce_copy_from(device, dst, addr, n))
		FAIL("%s", bw_err_text());
}

/* ---- a piece at an address that was reserved for it ---------------------------------------- */

struct view {
	struct bw_piece piece;
	unsigned char *at;
	enum bw_caching caching;
};

static unsigned char *reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void prepare(struct view *v, uint64_t addr, size_t bytes)
{
	memset(v, 0, sizeof(*v));
	CHECK_EQ(device->ops->resolve(addr, &v->piece.seg), 0);
	v->piece.addr = addr;
	v->piece.bytes = bytes;
	v->at = reserve(bytes);
}

static void map(struct view *v, uint64_t addr, size_t bytes)
{
	prepare(v, addr, bytes);
	if (provider->map(&v->piece, v->at, &v->caching))
		FAIL("%s: map 0x%llx, %zu bytes: %s", provider->name, (unsigned long long)addr,
		     bytes, bw_err_text());
	CHECK(v->caching >= BW_WC && v->caching <= BW_UNCACHED);
	CHECK(*v->piece.route && strlen(v->piece.route) < sizeof(v->piece.route));
}

static void unmap(struct view *v)
{
	CHECK_EQ(munmap(v->at, v->piece.bytes), 0);
	provider->unmap(&v->piece);
}

static struct bw_mmio_choice kernels(const struct view *v)
{
	return bw_mmio_choose(v->caching, bw_mmio_allowed());
}

static void store(struct view *v, size_t offset, const void *src, size_t n)
{
	unsigned char word[8];

	kernels(v).store->store(v->at + offset, src, n);
	bw_fence_mixed();
	kernels(v).load->load(word, v->at + offset, 1); /* pushes the stores */
}

static void load(struct view *v, void *dst, size_t offset, size_t n)
{
	bw_fence_read();
	kernels(v).load->load(dst, v->at + offset, n);
}

/* Is all of [at, at + bytes) reserved address space, as /proc says? */
static bool is_reserved(const void *at, size_t bytes)
{
	uintptr_t want = (uintptr_t)at, end = want + bytes, from, to;
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512], access[8];

	CHECK(f);
	while (want < end && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3 && from <= want &&
		    to > want)
			want = strncmp(access, "---", 3) ? UINTPTR_MAX : to;
	fclose(f);
	return want >= end && want != UINTPTR_MAX;
}

static uint64_t aperture_free(void)
{
	uint64_t total = 0, avail = UINT64_MAX;
	int ret = provider->bar1(device, &total, &avail);

	CHECK(!ret || ret == -ENODATA);
	CHECK(ret ? avail == UINT64_MAX : avail <= total);
	return avail;
}

static uint64_t memory_free(void)
{
	uint64_t total, avail;

	return device->ops->mem_info(device, &total, &avail) ? UINT64_MAX : avail;
}

static bool came_back(uint64_t before, uint64_t now)
{
	return soft ? now == before : now + SLACK >= before;
}

/* ---- what it says of itself ---------------------------------------------------------------- */

static void scores(void)
{
	struct bw_reason why;

	for (unsigned p = 0; bw_map_providers[p]; p++) {
		CHECK(*bw_map_providers[p]->name);
		CHECK(strlen(bw_map_providers[p]->name) < 16);
		for (unsigned q = 0; q < p; q++)
			CHECK(strcmp(bw_map_providers[p]->name, bw_map_providers[q]->name));
		why.text[0] = 0;
		bw_map_providers[p]->score(NULL, &why); /* before there is any device */
		if (!*why.text)
			FAIL("%s gives no reason without a device", bw_map_providers[p]->name);
	}
	for (unsigned k = 0; bw_device_kinds[k]; k++) {
		struct bw_device **list;
		int n = bw_device_kinds[k]->enumerate(&list, &why);

		for (int d = 0; d < n; d++)
			for (unsigned p = 0; bw_map_providers[p]; p++) {
				why.text[0] = 0;
				bw_map_providers[p]->score(list[d], &why);
				if (!*why.text)
					FAIL("%s gives no reason for %s", bw_map_providers[p]->name,
					     list[d]->name);
			}
	}
}

static void accepts_one(void)
{
	static const enum bw_mem_kind never[] = { BW_MEM_HOST, BW_MEM_PINNED, BW_MEM_MANAGED,
						  BW_MEM_HOST_VMM };
	struct bw_reason why = { "" };
	struct bw_segment seg;
	uint64_t a = alloc(BYTES), s;

	CHECK_EQ(device->ops->resolve(a, &seg), 0);
	CHECK_EQ(provider->accepts(&seg, &why), 0);
	CHECK_EQ(device->ops->scratch_alloc(device, NULL, 4096, &s), 0);
	CHECK_EQ(device->ops->resolve(s, &seg), 0);
	CHECK_EQ(provider->accepts(&seg, &why), 0);
	for (unsigned i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		seg.kind = never[i];
		why.text[0] = 0;
		CHECK_EQ(provider->accepts(&seg, &why), -ENOTSUP);
		CHECK_HAS(why.text, bw_mem_kind_name(never[i]));
		CHECK_HAS(why.text, bw_instead_of(never[i]));
	}
	device->ops->scratch_free(device, NULL, s);
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void acceptance(void)
{
	each(accepts_one);
}

/* ---- mapping ------------------------------------------------------------------------------- */

static unsigned char want[BYTES], got[BYTES];

static void sees_both_ways(void)
{
	uint64_t a = alloc(BYTES);
	struct view v;

	test_fill(want, BYTES, 1);
	gpu_write(a, want, BYTES);
	map(&v, a, BYTES);
	load(&v, got, 0, BYTES);
	CHECK(!memcmp(got, want, BYTES));
	for (unsigned i = 2; i < 12; i++) { /* and again, in pieces, while it stays mapped */
		size_t n = i * 991, at = i * 1777;

		test_fill(want + at, n, i);
		if (i % 2) {
			store(&v, at, want + at, n);
			gpu_read(got, a, BYTES);
		} else {
			gpu_write(a + at, want + at, n);
			load(&v, got, 0, BYTES);
		}
		CHECK(!memcmp(got, want, BYTES));
	}
	unmap(&v);
	memset(got, 0, BYTES);
	gpu_read(got, a, BYTES); /* the memory is as it was */
	CHECK(!memcmp(got, want, BYTES));
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void both_ways(void)
{
	each(sees_both_ways);
}

static void offset_piece(void)
{
	static const size_t at[][2] = { { 4096, 4096 }, { 65536 - 4096, 8192 }, { 12288, 131072 },
					{ BYTES - 4096, 4096 } };
	uint64_t a = alloc(BYTES);
	struct view v;

	test_fill(want, BYTES, 5);
	gpu_write(a, want, BYTES);
	for (unsigned i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		map(&v, a + at[i][0], at[i][1]);
		load(&v, got, 0, at[i][1]);
		CHECK(!memcmp(got, want + at[i][0], at[i][1]));
		test_fill(want + at[i][0], at[i][1], i + 50);
		store(&v, 0, want + at[i][0], at[i][1]);
		unmap(&v);
		gpu_read(got, a, BYTES);
		CHECK(!memcmp(got, want, BYTES));
	}
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void offsets(void)
{
	each(offset_piece);
}

static void same_page(void)
{
	uint64_t a = alloc(BYTES);
	struct view v[3];
	unsigned char word[64];

	for (unsigned i = 0; i < 3; i++)
		map(&v[i], a, i == 2 ? 8192 : 4096);
	for (unsigned i = 0; i < 3; i++) {
		test_fill(want, 64, i + 7);
		store(&v[i], 64 * i, want, 64);
		for (unsigned k = 0; k < 3; k++) {
			load(&v[k], word, 64 * i, 64);
			CHECK(!memcmp(word, want, 64));
		}
	}
	unmap(&v[0]); /* the others stay */
	test_fill(want, 64, 20);
	store(&v[1], 0, want, 64);
	load(&v[2], word, 0, 64);
	CHECK(!memcmp(word, want, 64));
	unmap(&v[2]);
	load(&v[1], word, 0, 64);
	CHECK(!memcmp(word, want, 64));
	unmap(&v[1]);
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void several_of_a_page(void)
{
	each(same_page);
}

/* Small allocations that share a page: as with any other range, the page around it. */
static void small_ones(void)
{
	uint64_t s[3];
	struct view v;
	unsigned char word[64];

	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(device->ops->scratch_alloc(device, NULL, 512, &s[i]), 0);
		test_fill(want, 64, i);
		gpu_write(s[i], want, 64);
	}
	for (unsigned i = 0; i < 3; i++) {
		map(&v, s[i] & ~(BW_PAGE - 1), 4096);
		test_fill(want, 64, i);
		load(&v, word, s[i] % BW_PAGE, 64);
		CHECK(!memcmp(word, want, 64));
		unmap(&v);
	}
	for (unsigned i = 0; i < 3; i++)
		device->ops->scratch_free(device, NULL, s[i]);
}

static void small_allocations(void)
{
	each(small_ones);
}

static void two_at_once(void)
{
	uint64_t a = alloc(BYTES), b = alloc(BYTES);
	struct view va, vb;

	map(&va, a, BYTES);
	map(&vb, b, BYTES);
	test_fill(want, BYTES, 31);
	store(&va, 0, want, BYTES);
	test_fill(got, BYTES, 32);
	store(&vb, 0, got, BYTES);
	load(&va, got, 0, BYTES);
	CHECK(!memcmp(got, want, BYTES));
	unmap(&va);
	unmap(&vb);
	CHECK_EQ(device->ops->mem_free(a), 0);
	CHECK_EQ(device->ops->mem_free(b), 0);
}

static void no_aliases(void)
{
	each(two_at_once);
}

/* ---- failures ------------------------------------------------------------------------------ */

/* Each error path: the range is reserved as before, nothing stays, and the next try works. */
static void fails_cleanly(void)
{
	uint64_t a = alloc(BYTES), bar1, memory;
	unsigned failures = 0;
	struct view v;

	map(&v, a, BYTES); /* whatever is opened at first use is open */
	unmap(&v);
	bar1 = aperture_free();
	memory = memory_free();
	for (unsigned kind = 0; kind < BW_FAULT_COUNT; kind++)
		for (unsigned n = 1; n < 300; n++) {
			bool fired;
			int ret;

			prepare(&v, a, BYTES);
			bw_fault_arm((enum bw_fault)kind, n);
			ret = provider->map(&v.piece, v.at, &v.caching);
			fired = !bw_fault_pending((enum bw_fault)kind);
			bw_fault_disarm_all();
			if (ret) {
				CHECK(fired && ret < 0 && *bw_err_text());
				if (!is_reserved(v.at, BYTES))
					FAIL("fault %u@%u: the range is not reserved any more",
					     kind, n);
				CHECK(came_back(bar1, aperture_free()));
				CHECK(came_back(memory, memory_free()));
				munmap(v.at, BYTES);
				failures++;
			} else {
				unmap(&v);
			}
			if (!fired)
				break;
		}
	CHECK(failures);
	map(&v, a, BYTES);
	unmap(&v);
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void failures(void)
{
	each(fails_cleanly);
}

/* What the caller says of the memory is checked: more of it than there is, is not mapped. */
static void beyond_the_end(void)
{
	struct bw_segment seg, next;
	uint64_t a = alloc(BYTES);
	struct view v;

	CHECK_EQ(device->ops->resolve(a, &seg), 0);
	if (!soft || !device->ops->resolve(a + seg.bytes, &next)) {
		CHECK_EQ(device->ops->mem_free(a), 0);
		return;
	}
	prepare(&v, a, seg.bytes + 4096);
	CHECK(provider->map(&v.piece, v.at, &v.caching) < 0);
	CHECK(is_reserved(v.at, v.piece.bytes));
	munmap(v.at, v.piece.bytes);
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void no_more_than_there_is(void)
{
	each(beyond_the_end);
}

/* ---- the aperture -------------------------------------------------------------------------- */

static void aperture_one(void)
{
	uint64_t a = alloc(1 << 20), before, during;
	struct view v;

	map(&v, a, 1 << 20);
	unmap(&v);
	before = aperture_free();
	map(&v, a, 1 << 20);
	during = aperture_free();
	unmap(&v);
	if (soft)
		CHECK_EQ(before - during, 1 << 20);
	CHECK(during <= before + SLACK);
	for (unsigned i = 0; i < 40; i++) {
		map(&v, a, 1 << 20);
		unmap(&v);
	}
	CHECK(came_back(before, aperture_free()));
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void aperture(void)
{
	each(aperture_one);
}

/* ---- freed memory -------------------------------------------------------------------------- */

static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(fault_jump, 1);
}

static bool faults(const volatile unsigned char *p)
{
	struct sigaction act = { .sa_handler = on_fault }, segv, bus;
	volatile bool fault = true;

	sigaction(SIGSEGV, &act, &segv);
	sigaction(SIGBUS, &act, &bus);
	if (!sigsetjmp(fault_jump, 1)) {
		(void)*p;
		fault = false;
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return fault;
}

/* keeps_alive says what happens; another's data are never seen either way. */
static void freed_one(void)
{
	uint64_t a = alloc(BYTES), b[4], before = memory_free();
	struct view v;

	test_fill(want, BYTES, 41);
	gpu_write(a, want, BYTES);
	map(&v, a, BYTES);
	CHECK_EQ(device->ops->mem_free(a), 0);
	for (unsigned i = 0; i < 4; i++) {
		b[i] = alloc(BYTES);
		memset(got, 0x5a, BYTES);
		gpu_write(b[i], got, BYTES);
	}
	if (provider->keeps_alive) {
		CHECK(!faults(v.at));
		load(&v, got, 0, BYTES);
		CHECK(!memcmp(got, want, BYTES));
		memset(want, 0x77, BYTES); /* nor does a store reach others */
		store(&v, 0, want, BYTES);
	} else {
		CHECK(faults(v.at));
	}
	memset(want, 0x5a, BYTES);
	for (unsigned i = 0; i < 4; i++) {
		gpu_read(got, b[i], BYTES);
		CHECK(!memcmp(got, want, BYTES));
		CHECK_EQ(device->ops->mem_free(b[i]), 0);
	}
	unmap(&v);
	CHECK(came_back(before, memory_free()) || memory_free() > before);
}

static void freed_memory(void)
{
	each(freed_one);
}

/* ---- letting go ---------------------------------------------------------------------------- */

static void release_one(void)
{
	uint64_t a = alloc(BYTES);
	struct bw_reason why;
	struct view v;

	test_fill(want, BYTES, 51);
	gpu_write(a, want, BYTES);
	for (unsigned i = 0; i < 4; i++) {
		map(&v, a, BYTES);
		load(&v, got, 0, BYTES);
		CHECK(!memcmp(got, want, BYTES));
		unmap(&v);
		provider->release(i & 1);
		provider->release(i & 1); /* there is nothing left to close */
		CHECK(provider->score(device, &why) >= 0);
	}
	CHECK_EQ(device->ops->mem_free(a), 0);
}

static void release(void)
{
	each(release_one);
}

static void *mapper(void *arg)
{
	unsigned char word[8], mine[8];
	struct view v;
	uint64_t a;

	if (device->ops->mem_alloc(device, 65536, &a))
		return "alloc";
	memset(mine, 'a' + (int)(uintptr_t)arg, sizeof(mine));
	for (unsigned i = 0; i < 100; i++) {
		void *at = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				-1, 0);

		memset(&v, 0, sizeof(v));
		if (at == MAP_FAILED || device->ops->resolve(a, &v.piece.seg))
			return "resolve";
		v.piece.addr = a;
		v.piece.bytes = 65536;
		v.at = at;
		if (provider->map(&v.piece, at, &v.caching))
			return "map";
		kernels(&v).store->store(v.at + i * 8, mine, 8);
		bw_fence_mixed();
		kernels(&v).load->load(word, v.at + i * 8, 8);
		munmap(at, 65536);
		provider->unmap(&v.piece);
		if (memcmp(word, mine, 8))
			return "data";
	}
	return device->ops->mem_free(a) ? (void *)"free" : NULL;
}

static void threads_one(void)
{
	void *wrong[4] = { 0 };
	pthread_t t[4];

	for (uintptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, mapper, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], &wrong[i]);
	for (unsigned i = 0; i < 4; i++)
		if (wrong[i])
			FAIL("%s: thread %u: %s", provider->name, i, (char *)wrong[i]);
}

static void threads(void)
{
	each(threads_one);
}

/* ---- the self-test ------------------------------------------------------------------------- */

static void proves_once(void)
{
	uint64_t before = bw_counter(BW_C_SELF_TESTS), failed = bw_counter(BW_C_SELF_TEST_FAILURES);
	uint64_t memory, bar1;

	bw_self_test_forget();
	if (bw_self_test(provider, device, NULL))
		FAIL("%s", bw_err_text());
	CHECK_EQ(bw_counter(BW_C_SELF_TESTS), before + 1);
	for (unsigned i = 0; i < 5; i++)
		CHECK_EQ(bw_self_test(provider, device, NULL), 0);
	CHECK_EQ(bw_counter(BW_C_SELF_TESTS), before + 1);
	memory = memory_free();
	bar1 = aperture_free();
	bw_self_test_forget();
	CHECK_EQ(bw_self_test(provider, device, NULL), 0);
	CHECK_EQ(bw_counter(BW_C_SELF_TESTS), before + 2);
	CHECK_EQ(bw_counter(BW_C_SELF_TEST_FAILURES), failed);
	CHECK(came_back(memory, memory_free())); /* and leaves nothing behind */
	CHECK(came_back(bar1, aperture_free()));
}

static void self_test(void)
{
	each(proves_once);
}

/* Providers that lie, on top of the one that is tested. */
static struct {
	unsigned calls, fail;
	int fd, err;
	struct bw_piece first;
	bool have_first;
} lie;

/* Maps memory of the CPU's instead. */
static int map_elsewhere(struct bw_piece *piece, void *at, enum bw_caching *caching)
{
	lie.calls++;
	*caching = BW_WC;
	if (ftruncate(lie.fd, 4 << 20) || mmap(at, piece->bytes, PROT_READ | PROT_WRITE,
					       MAP_SHARED | MAP_FIXED, lie.fd, 0) == MAP_FAILED)
		return bw_err(ENOMEM, "mmap");
	return 0;
}

static void unmap_elsewhere(struct bw_piece *piece)
{
	(void)piece;
}

/* Maps the first block again for every block of its size. */
static int map_first(struct bw_piece *piece, void *at, enum bw_caching *caching)
{
	struct bw_piece it;
	int ret;

	lie.calls++;
	if (!lie.have_first)
		lie.first = *piece;
	lie.have_first = true;
	it = piece->bytes <= lie.first.bytes ? lie.first : *piece;
	it.bytes = piece->bytes;
	ret = provider->map(&it, at, caching);
	piece->priv = it.priv;
	return ret;
}

/* Fails @lie.fail times, and then works. */
static int map_later(struct bw_piece *piece, void *at, enum bw_caching *caching)
{
	if (lie.calls++ < lie.fail)
		return bw_err(lie.err, "not yet");
	return provider->map(piece, at, caching);
}

static void liar_fails(const char *name,
		       int (*map_fn)(struct bw_piece *, void *, enum bw_caching *),
		       void (*unmap_fn)(struct bw_piece *))
{
	uint64_t tests = bw_counter(BW_C_SELF_TESTS), failed = bw_counter(BW_C_SELF_TEST_FAILURES);
	struct bw_map_provider liar = *provider;
	unsigned calls;
	char first[512];

	liar.name = name;
	liar.map = map_fn;
	liar.unmap = unmap_fn;
	bw_self_test_forget();
	memset(&lie.first, 0, sizeof(lie.first));
	lie.have_first = false;
	lie.calls = 0;
	CHECK_EQ(bw_self_test(&liar, device, NULL), -EIO);
	CHECK_HAS(bw_err_text(), name);
	snprintf(first, sizeof(first), "%s", bw_err_text());
	calls = lie.calls;
	CHECK(calls);
	for (unsigned i = 0; i < 3; i++) { /* for ever */
		bw_err(EPERM, "something else");
		CHECK_EQ(bw_self_test(&liar, device, NULL), -EIO);
		CHECK_STR(bw_err_text(), first);
	}
	CHECK_EQ(lie.calls, calls);
	CHECK_EQ(bw_counter(BW_C_SELF_TESTS), tests + 1);
	CHECK_EQ(bw_counter(BW_C_SELF_TEST_FAILURES), failed + 1);
	CHECK_EQ(bw_self_test(provider, device, NULL), 0); /* its own verdict */
	bw_self_test_forget(); /* the liar goes out of scope */
}

static void catches_wrong_memory(void)
{
	static const unsigned char zero[4096];
	unsigned char page[4096];

	lie.fd = memfd_create("elsewhere", MFD_CLOEXEC);
	CHECK(lie.fd >= 0);
	liar_fails("elsewhere", map_elsewhere, unmap_elsewhere);
	for (off_t at = 0; at < 4 << 20; at += 4096) { /* the wrong memory was never written */
		CHECK_EQ(pread(lie.fd, page, 4096, at), 4096);
		CHECK(!memcmp(page, zero, 4096));
	}
	close(lie.fd);
}

static void wrong_memory(void)
{
	each(catches_wrong_memory);
}

static void catches_aliases(void)
{
	liar_fails("aliases", map_first, provider->unmap);
}

static void aliased_memory(void)
{
	each(catches_aliases);
}

static void catches_refusals(void)
{
	lie.fail = UINT32_MAX;
	lie.err = EIO;
	liar_fails("refuses", map_later, provider->unmap);
}

static void refusing(void)
{
	each(catches_refusals);
}

/* What may be different next time is no verdict. */
static void passes_later(void)
{
	struct bw_map_provider poor = *provider;

	poor.name = "poor";
	poor.map = map_later;
	bw_self_test_forget();
	lie.calls = 0;
	lie.fail = 1;
	lie.err = ENOMEM;
	CHECK_EQ(bw_self_test(&poor, device, NULL), -ENOMEM);
	CHECK_HAS(bw_err_text(), "not yet");
	CHECK_EQ(bw_self_test(&poor, device, NULL), 0);
	bw_self_test_forget();
	lie.calls = 0;
	lie.err = EIO; /* nor is one call that failed once */
	CHECK_EQ(bw_self_test(&poor, device, NULL), 0);
	bw_self_test_forget();
}

static void no_verdict(void)
{
	each(passes_later);
}

/* Nor a copy engine that fails. */
static void broken_engine(void)
{
	if (!soft)
		return;
	bw_self_test_forget();
	bw_fault_arm(BW_FAULT_COPY, 1);
	CHECK_EQ(bw_self_test(provider, device, NULL), -EIO);
	CHECK_HAS(bw_err_text(), "copy engine");
	bw_fault_disarm_all();
	CHECK_EQ(bw_self_test(provider, device, NULL), 0);
}

static void failing_engine(void)
{
	each(broken_engine);
}

static void *prover(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)bw_self_test(provider, device, NULL);
}

static void proves_once_of_many(void)
{
	uint64_t before;
	pthread_t t[6];
	void *ret;

	bw_self_test_forget();
	before = bw_counter(BW_C_SELF_TESTS);
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, prover, NULL), 0);
	for (unsigned i = 0; i < 6; i++) {
		pthread_join(t[i], &ret);
		CHECK(!ret);
	}
	CHECK_EQ(bw_counter(BW_C_SELF_TESTS), before + 1);
}

static void self_test_from_threads(void)
{
	each(proves_once_of_many);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(scores),
		TEST(acceptance),
		TEST(both_ways),
		TEST(offsets),
		TEST(several_of_a_page),
		TEST(small_allocations),
		TEST(no_aliases),
		TEST(failures),
		TEST(no_more_than_there_is),
		TEST(aperture),
		TEST(freed_memory),
		TEST(release),
		TEST(threads),
		TEST(self_test),
		TEST(wrong_memory),
		TEST(aliased_memory),
		TEST(refusing),
		TEST(no_verdict),
		TEST(failing_engine),
		TEST(self_test_from_threads),
		{ 0 },
	};

	bw_param_set("soft_devices", "2");
	bw_param_set("soft_memory", "64M");
	bw_param_set("soft_bar1", "16M");
	bw_log_set(NULL, NULL, 0); /* what the liars are told */
	if (bw_param_load())
		return 1;
	return test_main(argc, argv, cases);
}
