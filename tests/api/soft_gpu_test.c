/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public interface on what only the soft GPU's own functions can make: small allocations, VMM
 * handles, imported memory, and kernels that are running while the CPU writes.
 */
#include <stdatomic.h>

#include "api_test.h"
#include "device/soft.h"

static struct bw_device *soft(unsigned i)
{
	struct bw_device *d = bw_soft_device((int)i);

	CHECK(d);
	return d;
}

static struct barway_pointer_info pointer(uint64_t addr)
{
	struct barway_pointer_info i = { .size = sizeof(i) };

	OK(barway_pointer_query(ctx, addr, &i));
	return i;
}

/* @n handles side by side, on the GPUs in turn if @turn. */
static uint64_t handles(unsigned n, size_t each, bool turn)
{
	struct bw_soft_handle *h;
	uint64_t a;

	CHECK_EQ(bw_soft_reserve((n + 1) * each, &a), 0);
	for (unsigned i = 0; i < n; i++) {
		CHECK_EQ(bw_soft_handle_create(soft(turn ? i % 2 : 0), each, &h), 0);
		CHECK_EQ(bw_soft_mem_map(a + i * each, h), 0);
		bw_soft_handle_release(h);
	}
	return a;
}

static void handles_free(uint64_t a, unsigned n, size_t each)
{
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(bw_soft_mem_unmap(a + i * each), 0);
	CHECK_EQ(bw_soft_unreserve(a, (n + 1) * each), 0);
}

/* ---- kinds --------------------------------------------------------------------------------- */

static void kinds(void)
{
	struct barway_pointer_info i;
	struct bw_soft_ipc ipc;
	uint64_t small, large, vmm, own, import;

	begin();
	OK(bw_soft_malloc(soft(0), 100, &small));
	OK(bw_soft_malloc(soft(1), 3 * MIB + 5, &large));
	vmm = handles(2, 2 * GRANULE, true);
	own = alloc(0, GRANULE);
	OK(bw_soft_ipc_export(own, &ipc));
	OK(bw_soft_ipc_import(soft(0), &ipc, &import));
	i = pointer(small + 99);
	CHECK(i.kind == BARWAY_MEM_DEVICE && i.mappable && i.base == small && i.bytes == 100);
	CHECK(i.device == gpu[0]);
	CHECK_EQ(pointer(small + 100).kind, BARWAY_MEM_HOST);
	i = pointer(large + 3 * MIB + 4);
	CHECK(i.kind == BARWAY_MEM_DEVICE && i.base == large && i.device == gpu[1]);
	CHECK_EQ(pointer(large + 3 * MIB + 5).kind, BARWAY_MEM_HOST);
	i = pointer(vmm + 1);
	CHECK(i.kind == BARWAY_MEM_VMM && i.mappable && i.base == vmm && i.bytes == 2 * GRANULE);
	CHECK(i.device == gpu[0]);
	i = pointer(vmm + 2 * GRANULE);
	CHECK(i.kind == BARWAY_MEM_VMM && i.base == vmm + 2 * GRANULE && i.device == gpu[1]);
	CHECK(pointer(vmm).id != i.id);
	CHECK_EQ(pointer(vmm + 4 * GRANULE).kind, BARWAY_MEM_HOST); /* reserved, nothing mapped */
	i = pointer(import);
	CHECK(i.kind == BARWAY_MEM_IMPORTED && i.mappable && i.device == gpu[0]);
	CHECK(i.id && i.id != pointer(own).id);
	FAILS(barway_mem_free(ctx, small), EINVAL, "barway_mem_alloc"); /* not given out by it */
	FAILS(barway_mem_free(ctx, vmm), EINVAL, "barway_mem_alloc");
	FAILS(barway_mem_free(ctx, import), EINVAL, "barway_mem_alloc");
	OK(bw_soft_ipc_close(import));
	CHECK_EQ(pointer(import).kind, BARWAY_MEM_HOST);
	release(own);
	handles_free(vmm, 2, 2 * GRANULE);
	OK(bw_soft_free(large));
	OK(bw_soft_free(small));
	end();
}

static void imported(void)
{
	struct barway_mapping *m, *own_map;
	struct bw_soft_ipc ipc;
	uint64_t own, import;

	begin();
	own = alloc(0, GRANULE);
	OK(bw_soft_ipc_export(own, &ipc));
	OK(bw_soft_ipc_import(soft(0), &ipc, &import));
	m = map(import + 10, 100);
	own_map = map(own, 200);
	OK(barway_copy_to(m, 0, "same memory", 11));
	OK(barway_flush(m));
	CHECK(!memcmp((char *)barway_mapping_ptr(own_map) + 10, "same memory", 11));
	OK(barway_unmap(own_map));
	release(own);
	CHECK(!memcmp(barway_mapping_ptr(m), "same memory", 11));
	OK(barway_unmap(m));
	OK(bw_soft_ipc_close(import));
	end();
}

/* ---- small allocations --------------------------------------------------------------------- */

static void share_a_page(void)
{
	struct barway_mapping *m[5], *none = NULL;
	uint64_t a[5];
	char text[8];

	begin();
	for (unsigned i = 0; i < 5; i++) {
		OK(bw_soft_malloc(soft(0), i == 1 ? 100 : 512, &a[i]));
		m[i] = map(a[i], i == 1 ? 100 : 512);
		memset(barway_mapping_ptr(m[i]), 'a' + (int)i, i == 1 ? 100 : 512);
	}
	for (unsigned i = 0; i < 5; i++) {
		CHECK_EQ(info_of(m[i]).pieces, 1);
		OK(barway_copy_from_by(m[i], BARWAY_METHOD_CE, text, 90, 8));
		CHECK(text[0] == 'a' + (int)i && text[7] == 'a' + (int)i);
		OK(barway_unmap(m[i]));
	}
	/* The window of one holds the page of all, but it answers for its own bytes alone. */
	FAILS(barway_map(ctx, a[1], 101, NULL, &none), EFAULT, "only 100 bytes");
	FAILS(barway_map(ctx, a[1], 600, NULL, &none), EFAULT, "ends beyond its memory");
	FAILS(barway_map(ctx, a[1] + 100, 1, NULL, &none), EFAULT, "not GPU memory");
	if (a[2] + 512 == a[3] && a[3] + 512 == a[4]) {
		char all[1536];

		m[0] = map(a[2], 1536);
		CHECK_EQ(info_of(m[0]).pieces, 3);
		OK(barway_copy_from_by(m[0], BARWAY_METHOD_CE, all, 0, sizeof(all)));
		CHECK(all[0] == 'c' && all[511] == 'c' && all[512] == 'd' && all[1535] == 'e');
		memset(all, 'z', sizeof(all));
		OK(barway_copy_to_by(m[0], BARWAY_METHOD_CE, 1, all, sizeof(all) - 2));
		memset(all, 0, sizeof(all));
		OK(barway_copy_from(m[0], all, 0, sizeof(all)));
		CHECK(all[0] == 'c' && all[1] == 'z' && all[1534] == 'z' && all[1535] == 'e');
		OK(barway_unmap(m[0]));
		OK(bw_soft_free(a[3])); /* one of them goes: a hole in the range */
		FAILS(barway_map(ctx, a[2], 1536, NULL, &none), EFAULT, "only 512 bytes");
		OK(bw_soft_malloc(soft(0), 512, &a[3]));
	}
	for (unsigned i = 0; i < 5; i++)
		OK(bw_soft_free(a[i]));
	FAILS(barway_map(ctx, a[0], 1, NULL, &none), EFAULT, "freed");
	CHECK(!none);
	end();
}

/* The one that is mapped is freed while its neighbours stay: their bytes are not lost. */
static void freed_neighbour(void)
{
	struct barway_mapping *m;
	uint64_t a, b, c;

	begin();
	OK(bw_soft_malloc(soft(0), 512, &a));
	OK(bw_soft_malloc(soft(0), 512, &b));
	m = map(a, 512);
	OK(barway_copy_to(m, 0, "first", 5));
	OK(barway_unmap(m));
	m = map(b, 512);
	OK(barway_copy_to(m, 0, "second", 6));
	OK(bw_soft_free(a));
	OK(bw_soft_malloc(soft(0), 512, &c));
	CHECK(!memcmp(barway_mapping_ptr(m), "second", 6));
	OK(barway_unmap(m));
	m = map(c, 512);
	CHECK(!info_of(m).from_cache);
	OK(barway_unmap(m));
	OK(bw_soft_free(b));
	OK(bw_soft_free(c));
	end();
}

/* ---- handles ------------------------------------------------------------------------------- */

static unsigned char image[MIB], back[MIB];

static void over_handles(void)
{
	enum { HANDLES = 6, EACH = 2 * GRANULE, ALL = HANDLES * EACH };

	begin();
	for (unsigned turn = 0; turn < 2; turn++) {
		uint64_t a = handles(HANDLES, EACH, turn);
		struct barway_mapping *m = map(a, ALL), *part, *none = NULL;

		CHECK_EQ(info_of(m).pieces, HANDLES);
		CHECK(info_of(m).device == gpu[0]);
		test_fill(image, ALL, turn);
		OK(barway_copy_to(m, 0, image, ALL));
		OK(barway_flush(m));
		OK(barway_copy_from_by(m, BARWAY_METHOD_CE, back, 0, ALL));
		CHECK(!memcmp(back, image, ALL));
		for (unsigned i = 0; i < HANDLES; i++) { /* each handle has what is its own */
			part = map_uncached(a + i * EACH, EACH);
			CHECK_EQ(info_of(part).pieces, 1);
			CHECK(info_of(part).device == gpu[turn ? i % 2 : 0]);
			CHECK(!memcmp(barway_mapping_ptr(part), image + i * EACH, EACH));
			OK(barway_unmap(part));
		}
		part = map(a + EACH - 3, EACH + 6);
		CHECK_EQ(info_of(part).pieces, 3);
		OK(barway_copy_to_by(part, BARWAY_METHOD_CE, 0, image, EACH + 6));
		CHECK(!memcmp((char *)barway_mapping_ptr(m) + EACH - 3, image, EACH + 6));
		OK(barway_unmap(part));
		OK(barway_unmap(m));
		FAILS(barway_map(ctx, a + 5, ALL, NULL, &none), EFAULT, "ends beyond its memory");
		FAILS(barway_map(ctx, a + ALL, 1, NULL, &none), EFAULT, "not GPU memory");
		/* another handle in the place of one that was mapped */
		OK(bw_soft_mem_unmap(a + 2 * EACH));
		FAILS(barway_map(ctx, a, ALL, NULL, &none), EFAULT, "only 262144 bytes");
		{
			struct bw_soft_handle *h;

			OK(bw_soft_handle_create(soft(1), EACH, &h));
			OK(bw_soft_mem_map(a + 2 * EACH, h));
			bw_soft_handle_release(h);
		}
		m = map(a, ALL);
		OK(barway_copy_from(m, back, 2 * EACH, EACH));
		memset(image, 0, EACH);
		CHECK(!memcmp(back, image, EACH)); /* new memory, not what was there */
		OK(barway_unmap(m));
		handles_free(a, HANDLES, EACH);
	}
	end();
}

/* A handle that is unmapped under a mapping stays alive until that is unmapped. */
static void handle_unmapped(void)
{
	struct barway_mapping *m;
	uint64_t a, used;

	begin();
	used = memory_used(0);
	a = handles(1, 2 * GRANULE, false);
	m = map(a, GRANULE);
	OK(barway_copy_to(m, 0, "held", 4));
	handles_free(a, 1, 2 * GRANULE);
	CHECK(!memcmp(barway_mapping_ptr(m), "held", 4));
	CHECK_EQ(memory_used(0), used + 2 * GRANULE);
	OK(barway_unmap(m));
	OK(barway_cache_flush(ctx));
	CHECK_EQ(memory_used(0), used);
	end();
}

/* One allocation that two addresses stand for. */
static void handle_twice(void)
{
	struct bw_soft_handle *h;
	struct barway_mapping *m;
	uint64_t a;

	begin();
	OK(bw_soft_reserve(2 * GRANULE, &a));
	OK(bw_soft_handle_create(soft(0), GRANULE, &h));
	OK(bw_soft_mem_map(a, h));
	OK(bw_soft_mem_map(a + GRANULE, h));
	bw_soft_handle_release(h);
	m = map(a, 2 * GRANULE);
	OK(barway_copy_to(m, 5, "both", 4));
	CHECK(!memcmp((char *)barway_mapping_ptr(m) + GRANULE + 5, "both", 4));
	OK(barway_unmap(m));
	OK(bw_soft_mem_unmap(a));
	OK(bw_soft_mem_unmap(a + GRANULE));
	OK(bw_soft_unreserve(a, 2 * GRANULE));
	end();
}

/* ---- kernels that are running -------------------------------------------------------------- */

#define WORDS 700
#define TURNS (SANITIZED ? 300 : 3000)

struct talk {
	uint64_t data, flag, answer; /* device addresses */
	uint64_t turns, wrong;
	bool ready;
};

static uint64_t word_of(uint64_t turn, unsigned i)
{
	return turn * 0x9e3779b97f4a7c15ull + i;
}

/* Waits for each turn's flag, then reads all of the data, and answers. */
static void listener(struct barway_soft_block *d, void *arg)
{
	struct talk *t = arg;
	const uint64_t *data = bw_soft_deref(d, t->data, WORDS * 8);
	const uint64_t *flag = bw_soft_deref(d, t->flag, 8);
	uint64_t *answer = bw_soft_deref(d, t->answer, 8);

	if (!data || !flag || !answer) {
		t->wrong = UINT64_MAX;
		return;
	}
	for (uint64_t turn = 1; turn <= t->turns; turn++) {
		while (bw_soft_load64_acquire(flag) < turn)
			sched_yield();
		for (unsigned i = 0; i < WORDS; i++)
			t->wrong += bw_soft_load64(data + i) != word_of(turn, i);
		bw_soft_store64_release(answer, turn);
	}
}

enum how { COPIES, STORES, FLUSHED, ENGINE };

static void say(enum how how, struct barway_mapping *data, struct barway_mapping *flag,
		uint64_t turn)
{
	static uint64_t words[WORDS];
	volatile uint64_t *p;

	for (unsigned i = 0; i < WORDS; i++)
		words[i] = word_of(turn, i);
	switch (how) {
	case COPIES: /* each ends with barway_fence_publish() */
		OK(barway_copy_to(data, 0, words, sizeof(words)));
		OK(barway_copy_to(flag, 0, &turn, sizeof(turn)));
		break;
	case STORES: /* store data, fence, store the flag, fence */
		p = barway_mapping_ptr(data);
		for (unsigned i = 0; i < WORDS; i++)
			p[i] = words[i];
		barway_fence_publish();
		*(volatile uint64_t *)barway_mapping_ptr(flag) = turn;
		barway_fence_publish();
		break;
	case FLUSHED:
		memcpy(barway_mapping_ptr(data), words, sizeof(words));
		OK(barway_flush(data));
		OK(barway_copy_to(flag, 0, &turn, sizeof(turn)));
		break;
	case ENGINE: /* VISIBLE when it returns */
		OK(barway_copy_to_by(data, BARWAY_METHOD_CE, 0, words, sizeof(words)));
		OK(barway_copy_to(flag, 0, &turn, sizeof(turn)));
	}
}

static void talks(enum how how)
{
	struct barway_mapping *data, *flag;
	struct bw_soft_stream *s;
	struct talk t = { .turns = how == ENGINE ? TURNS / 10 : TURNS };
	uint64_t a, b, heard = 0;

	begin();
	a = alloc(0, GRANULE);
	b = alloc(0, GRANULE);
	data = map(a + 24, WORDS * 8);
	flag = map(b, 16);
	t.data = a + 24;
	t.flag = b;
	t.answer = b + 8;
	OK(barway_copy_to(flag, 0, (uint64_t[]){ 0, 0 }, 16));
	OK(bw_soft_stream_create(soft(0), &s));
	OK(bw_soft_launch(s, listener, 1, &t, 0));
	for (uint64_t turn = 1; turn <= t.turns; turn++) {
		double start = seconds();

		say(how, data, flag, turn);
		while (heard < turn && seconds() < start + 20) {
			OK(barway_copy_from(flag, &heard, 8, 8));
			if (heard < turn)
				sched_yield();
		}
		if (heard != turn)
			FAIL("the kernel did not see the flag of turn %llu",
			     (unsigned long long)turn);
	}
	OK(bw_soft_stream_destroy(s));
	CHECK_EQ(t.wrong, 0);
	OK(barway_unmap(data));
	OK(barway_unmap(flag));
	release(a);
	release(b);
	end();
}

static void publish_by_copies(void)
{
	talks(COPIES);
}

static void publish_by_stores(void)
{
	talks(STORES);
}

static void flushed_before_flag(void)
{
	talks(FLUSHED);
}

static void engine_before_flag(void)
{
	if (TSAN)
		SKIP("the thread sanitizer does not see the flag that is stored through a mapping");
	talks(ENGINE);
}

/* A running kernel sees an aligned copy of 8 bytes whole: old or new. */
static atomic_bool stop;
static atomic_uint watched;

static void watcher(struct barway_soft_block *d, void *arg)
{
	struct talk *t = arg;
	const uint64_t *p = bw_soft_deref(d, t->data, 8);

	while (!stop) {
		uint64_t v = bw_soft_load64(p);

		t->wrong += v && v != UINT64_MAX;
		watched++;
	}
}

static void whole_words(void)
{
	struct barway_mapping *m;
	struct bw_soft_stream *s;
	struct talk t = { 0 };
	uint64_t a, v = 0;

	begin();
	a = alloc(0, GRANULE);
	t.data = a + 40;
	m = map(a, 100);
	OK(barway_copy_to(m, 40, &v, 8));
	OK(bw_soft_stream_create(soft(0), &s));
	stop = false;
	OK(bw_soft_launch(s, watcher, 1, &t, 0));
	watched = 0;
	for (unsigned i = 0; i < 200000 || watched < 1000; i++) {
		v = ~v;
		if (barway_copy_to(m, 40, &v, 8))
			break;
	}
	stop = true;
	OK(bw_soft_stream_destroy(s));
	CHECK(watched >= 1000 && !t.wrong);
	OK(barway_unmap(m));
	release(a);
	end();
}

/* A kernel that starts after a copy RETURNED sees it, with any load. */
static void reader(struct barway_soft_block *d, void *arg)
{
	struct talk *t = arg;
	const unsigned char *p = bw_soft_deref(d, t->data, 1000);

	for (unsigned i = 0; p && i < 1000; i++)
		t->wrong += p[i] != (unsigned char)t->turns;
	t->ready = p != NULL;
}

static void later_kernel(void)
{
	struct bw_soft_stream *s;
	struct barway_mapping *m;
	struct talk t = { 0 };
	uint64_t a;

	begin();
	a = alloc(1, GRANULE);
	m = map(a, 1000);
	t.data = a;
	OK(bw_soft_stream_create(soft(1), &s));
	for (t.turns = 0; t.turns < 200; t.turns++) {
		memset(image, (int)t.turns, 1000);
		OK(t.turns % 2 ? barway_copy_to(m, 0, image, 1000) :
				 barway_copy_to_by(m, BARWAY_METHOD_CE, 0, image, 1000));
		t.ready = false;
		OK(bw_soft_launch(s, reader, 1, &t, 0));
		OK(bw_soft_stream_sync(s));
		CHECK(t.ready && !t.wrong);
	}
	OK(bw_soft_stream_destroy(s));
	OK(barway_unmap(m));
	release(a);
	end();
}

/* The copy engine works beside a kernel that does not end: it never uses that stream. */
static void waiter(struct barway_soft_block *d, void *arg)
{
	const uint64_t *flag = bw_soft_deref(d, *(uint64_t *)arg, 8);

	while (flag && !bw_soft_load64_acquire(flag))
		sched_yield();
}

static void beside_a_kernel(void)
{
	struct bw_soft_stream *s;
	struct barway_mapping *m;
	uint64_t a, one = 1;

	begin();
	a = alloc(0, GRANULE);
	m = map(a, GRANULE);
	OK(barway_copy_to(m, 0, (uint64_t[]){ 0 }, 8));
	OK(bw_soft_stream_create(soft(0), &s));
	OK(bw_soft_launch(s, waiter, 1, &a, 0));
	test_fill(image, 5000, 3);
	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 100, image, 5000));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, back, 100, 5000));
	CHECK(!memcmp(back, image, 5000));
	OK(barway_copy_to(m, 0, &one, 8));
	OK(bw_soft_stream_sync(s));
	OK(bw_soft_stream_destroy(s));
	OK(barway_unmap(m));
	release(a);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(kinds),
		TEST(imported),
		TEST(share_a_page),
		TEST(freed_neighbour),
		TEST(over_handles),
		TEST(handle_unmapped),
		TEST(handle_twice),
		TEST(publish_by_copies),
		TEST(publish_by_stores),
		TEST(flushed_before_flag),
		TEST(engine_before_flag),
		TEST(whole_words),
		TEST(later_kernel),
		TEST(beside_a_kernel),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
