/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parameter soft_shuffle: stores to and from the soft GPU do arrive in another order, what a
 * fence promises holds all the same, and nothing is lost or done twice.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "map/providers.h"
#include "mmio/kernels.h"
#include "soft_test.h"

#if defined(__x86_64__)
#define IN_ORDER 1 /* the CPU itself keeps stores in order, so that without the mode none is seen */
#else
#define IN_ORDER 0
#endif

static void shuffle(const char *seed)
{
	CHECK_EQ(bw_param_set("soft_shuffle", seed), 0);
	CHECK_EQ(bw_param_load(), 0);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* ---- stores of the CPU ---------------------------------------------------------------------- */

static bw_store_fn *store_kernel(void)
{
	return bw_map_kernels(&bw_map_soft, BW_WC).store->store;
}

static void the_provider_chooses(void)
{
	shuffle("0");
	CHECK(bw_map_kernels(&bw_map_soft, BW_WC).store != &bw_mmio_shuffle);
	CHECK(bw_map_kernels(&bw_map_soft, BW_WC).store ==
	      bw_mmio_choose(BW_WC, bw_mmio_allowed()).store);
	shuffle("1");
	CHECK(bw_map_kernels(&bw_map_soft, BW_WC).store == &bw_mmio_shuffle);
	CHECK(bw_map_kernels(&bw_map_soft, BW_WC).load ==
	      bw_mmio_choose(BW_WC, bw_mmio_allowed()).load);
	CHECK(bw_map_kernels(&bw_map_rm, BW_WC).store != &bw_mmio_shuffle);
}

/* Each size at each alignment of both sides: all of it, and nothing beside it. */
static void stores_are_exact(void)
{
	static unsigned char at[600] __attribute__((aligned(64))), want[600], src[300];

	shuffle("2");
	test_fill(src, sizeof(src), 3);
	for (size_t n = 0; n < 200; n++)
		for (size_t m = 0; m < 16; m++)
			for (size_t h = 0; h < 8; h++) {
				memset(at, 0xee, sizeof(at));
				memset(want, 0xee, sizeof(want));
				memcpy(want + 128 + m, src + h, n);
				store_kernel()(at + 128 + m, src + h, n);
				if (memcmp(at, want, sizeof(at)))
					FAIL("%zu bytes from %zu to %zu", n, h, m);
			}
}

#define WORDS (1u << 17)

static uint64_t area[WORDS] __attribute__((aligned(64)));
static uint64_t source[WORDS];
static bool marked[WORDS];
static _Atomic bool ready, over;
static unsigned again; /* words that were stored after they had been before */
static unsigned late;  /* words that came after one that lies behind them */

/* Marks each word that it sees: one that is stored once stays marked. */
static void *marker(void *arg)
{
	(void)arg;
	ready = true;
	while (!over)
		for (unsigned i = 0; i < WORDS; i++) {
			uint64_t seen = load(&area[i]);

			if (seen == source[i] && !marked[i])
				marked[i] = __atomic_compare_exchange_n(
					&area[i], &seen, UINT64_MAX, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED);
		}
	for (unsigned i = 0; i < WORDS; i++)
		again += marked[i] && area[i] != UINT64_MAX;
	return NULL;
}

/* From the end to the start: sees a word that is there and then one before it that is not. */
static void *reader(void *arg)
{
	(void)arg;
	ready = true;
	while (!over) {
		bool there = false;

		for (unsigned i = WORDS; i-- > 0;) {
			bool new = load(&area[i]) == source[i];

			late += there && !new;
			there = there || new;
		}
	}
	return NULL;
}

/* One copy of all words while another thread runs @fn. */
static void copy_beside(void *(*fn)(void *arg), bw_store_fn *store)
{
	pthread_t thread;

	for (unsigned i = 0; i < WORDS; i++)
		source[i] = i + 1;
	memset(area, 0, sizeof(area));
	memset(marked, 0, sizeof(marked));
	ready = over = false;
	again = late = 0;
	CHECK_EQ(pthread_create(&thread, NULL, fn, NULL), 0);
	while (!ready)
		sched_yield();
	store(area, source, sizeof(area));
	over = true;
	pthread_join(thread, NULL);
}

static void stores_once(void)
{
	unsigned seen = 0;

	shuffle("4");
	for (unsigned turn = 0; turn < 5; turn++) {
		copy_beside(marker, store_kernel());
		CHECK_EQ(again, 0);
		for (unsigned i = 0; i < WORDS; i++) {
			seen += marked[i];
			if (area[i] != (marked[i] ? UINT64_MAX : source[i]))
				FAIL("word %u is %llu", i, (unsigned long long)area[i]);
		}
	}
	CHECK(seen); /* else it watched nothing */
}

static void stores_come_in_another_order(void)
{
	double end = seconds() + 60;

	shuffle("0");
	if (IN_ORDER) {
		copy_beside(reader, bw_mmio_c.store);
		CHECK_EQ(late, 0);
	}
	shuffle("5");
	do
		copy_beside(reader, store_kernel());
	while (!late && seconds() < end);
	CHECK(late);
}

/* An aligned word is one store: a reader sees it old or new. */
static void *word_reader(void *arg)
{
	(void)arg;
	ready = true;
	while (!over) {
		uint64_t v = load(&area[0]);

		again += v != 0 && v != UINT64_MAX;
	}
	return NULL;
}

static void words_are_whole(void)
{
	static const uint64_t value[2] = { 0, UINT64_MAX };
	pthread_t thread;

	shuffle("6");
	area[0] = 0;
	again = 0;
	ready = over = false;
	CHECK_EQ(pthread_create(&thread, NULL, word_reader, NULL), 0);
	while (!ready)
		sched_yield();
	for (unsigned i = 0; i < 300000; i++)
		store_kernel()(area, &value[i & 1], 8);
	over = true;
	pthread_join(thread, NULL);
	CHECK_EQ(again, 0);
}

/* ---- stores of kernels ----------------------------------------------------------------------- */

#define LINES 64u
#define BLOCKS 6u

struct talk {
	uint64_t addr;                  /* of a page for each block */
	_Atomic uint64_t heard[BLOCKS]; /* turns that the reader is done with */
	unsigned turns;
	bool fence;
	_Atomic unsigned wrong;
};

static struct talk talk;
static uint64_t *pinned;

static void setup(const char *seed, unsigned turns, bool fence)
{
	void *p;

	shuffle(seed);
	memset(&talk, 0, sizeof(talk));
	CHECK_EQ(ops->host_alloc(dev(0), BLOCKS * PAGE, &p, &talk.addr), 0);
	pinned = p;
	talk.turns = turns;
	talk.fence = fence;
}

static uint64_t *own_page(struct barway_soft_block *b)
{
	return bw_soft_deref(b, talk.addr + bw_soft_block_index(b) * PAGE, PAGE);
}

/* Each turn: words, with a fence after them or none, then a flag; then waits for the reader. */
static void speaker(struct barway_soft_block *b, void *arg)
{
	uint64_t *p = own_page(b);

	(void)arg;
	for (uint64_t turn = 1; turn <= talk.turns; turn++) {
		for (unsigned i = 1; i <= LINES; i++)
			bw_soft_store64(b, p + i, turn);
		if (talk.fence)
			bw_soft_fence(b);
		bw_soft_store64(b, p, turn);
		while (talk.heard[bw_soft_block_index(b)] < turn)
			sched_yield();
	}
}

/* What the flags announced and was not there yet, in all turns of all blocks. */
static unsigned listen(void)
{
	struct bw_soft_stream *s;
	uint64_t turn[BLOCKS] = { 0 };
	unsigned missing = 0, left = BLOCKS;
	double end = seconds() + 60;

	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	CHECK_EQ(bw_soft_launch(s, speaker, BLOCKS, NULL, 0), 0);
	while (left && seconds() < end)
		for (unsigned b = 0; b < BLOCKS; b++) {
			const uint64_t *p = pinned + b * PAGE / 8;

			if (turn[b] == talk.turns || load(p) <= turn[b])
				continue;
			turn[b]++;
			for (unsigned i = LINES; i; i--)
				missing += load(p + i) != turn[b];
			talk.heard[b] = turn[b];
			left -= turn[b] == talk.turns;
		}
	CHECK_EQ(left, 0); /* without a fence, too, all of it arrives */
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	for (unsigned b = 0; b < BLOCKS; b++)
		for (unsigned i = 0; i <= LINES; i++)
			if (pinned[b * PAGE / 8 + i] != talk.turns)
				FAIL("block %u, word %u is lost", b, i);
	CHECK_EQ(ops->host_free(pinned), 0);
	return missing;
}

static void fences_hold(void)
{
	setup("7", 300, true);
	CHECK_EQ(listen(), 0);
	setup("0", 300, true);
	CHECK_EQ(listen(), 0);
}

static void without_a_fence_flags_come_first(void)
{
	if (IN_ORDER) {
		setup("0", 300, false);
		CHECK_EQ(listen(), 0);
	}
	for (unsigned seed = 1; seed <= 5; seed++) { /* with each seed */
		char text[12];

		snprintf(text, sizeof(text), "%u", seed);
		setup(text, 300, false);
		CHECK(listen());
	}
}

/* Stores to one address arrive in order; the last is what stays. */
static void climber(struct barway_soft_block *b, void *arg)
{
	uint64_t *p = own_page(b);

	(void)arg;
	for (uint64_t i = 1; i <= talk.turns; i++)
		bw_soft_store64(b, p + i % 4, i);
}

static void one_address_is_in_order(void)
{
	struct bw_soft_stream *s;
	uint64_t last[BLOCKS * 4] = { 0 };
	unsigned back = 0;
	int ret;

	setup("8", 20000, false);
	CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
	CHECK_EQ(bw_soft_launch(s, climber, BLOCKS, NULL, 0), 0);
	do {
		ret = bw_soft_stream_query(s);
		for (unsigned i = 0; i < BLOCKS * 4; i++) {
			uint64_t v = load(pinned + i / 4 * (PAGE / 8) + i % 4);

			back += v < last[i];
			last[i] = v;
		}
	} while (ret == -EBUSY);
	CHECK_EQ(ret, 0);
	CHECK_EQ(back, 0);
	for (unsigned i = 0; i < BLOCKS * 4; i++) /* all there when the kernel is done */
		CHECK_EQ(last[i], talk.turns - (talk.turns - i % 4) % 4);
	CHECK_EQ(bw_soft_stream_destroy(s), 0);
	CHECK_EQ(ops->host_free(pinned), 0);
}

/* A store that nothing follows arrives while its block goes on. */
static void lone(struct barway_soft_block *b, void *arg)
{
	uint64_t *p = own_page(b);

	(void)arg;
	bw_soft_store64(b, p, 1);
	while (!talk.heard[bw_soft_block_index(b)])
		sched_yield();
}

static void a_lone_store_arrives(void)
{
	struct bw_soft_stream *s;
	double end = seconds() + 60;

	for (unsigned turn = 0; turn < 20; turn++) {
		setup("9", 1, false);
		CHECK_EQ(bw_soft_stream_create(dev(0), &s), 0);
		CHECK_EQ(bw_soft_launch(s, lone, BLOCKS, NULL, 0), 0);
		for (unsigned b = 0; b < BLOCKS; b++) {
			while (!load(pinned + b * PAGE / 8))
				if (seconds() > end)
					FAIL("block %u: it does not come", b);
			talk.heard[b] = 1;
		}
		CHECK_EQ(bw_soft_stream_destroy(s), 0);
		CHECK_EQ(ops->host_free(pinned), 0);
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(the_provider_chooses),
		TEST(stores_are_exact),
		TEST(stores_once),
		TEST(stores_come_in_another_order),
		TEST(words_are_whole),
		TEST(fences_hold),
		TEST(without_a_fence_flags_come_first),
		TEST(one_address_is_in_order),
		TEST(a_lone_store_arrives),
		{ 0 },
	};

	return soft_main(argc, argv, cases);
}
