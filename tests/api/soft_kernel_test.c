/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels and streams of the soft GPU through the public headers alone. */
#include <barway_soft.h>
#include <stdatomic.h>

#include "api_test.h"

static struct barway_soft_stream *stream(unsigned device)
{
	struct barway_soft_stream *s = NULL;

	OK(barway_soft_stream_create(gpu[device], &s));
	CHECK(s);
	return s;
}

static uint64_t *pinned(size_t bytes, uint64_t *addr)
{
	void *p = NULL;

	OK(barway_host_alloc(gpu[0], bytes, &p, addr));
	return p;
}

/* ---- blocks -------------------------------------------------------------------------------- */

#define BLOCKS 40u

struct fill {
	uint64_t gpu, pinned; /* device addresses */
	uint64_t seed;
};

static void fill(struct barway_soft_block *b, void *arg)
{
	const struct fill *f = arg;
	unsigned i = barway_soft_block_index(b), n = barway_soft_block_count(b);
	uint64_t *gpu_words = barway_soft_deref(b, f->gpu, 8ull * n);
	uint64_t *host_words = barway_soft_deref(b, f->pinned, 8ull * n);

	if (!gpu_words || !host_words || barway_soft_deref(b, f->gpu, GRANULE + 1)) {
		barway_soft_trap(b);
		return;
	}
	barway_soft_store64(b, gpu_words + i, f->seed + i);
	barway_soft_store64(b, host_words + i, f->seed + 2 * i + n);
}

static void blocks_fill_both_kinds_of_memory(void)
{
	struct barway_mapping *m;
	struct fill f;
	uint64_t *host, words[BLOCKS];

	for (unsigned d = 0; d < 2; d++) {
		struct barway_soft_stream *s;

		begin();
		s = stream(d);
		f.gpu = alloc(d, GRANULE);
		host = pinned(BLOCKS * 8, &f.pinned);
		CHECK(f.pinned != (uintptr_t)host);
		m = map(f.gpu, BLOCKS * 8);
		for (f.seed = 100; f.seed < 110; f.seed++) {
			struct fill param = f;

			OK(barway_soft_launch(s, fill, BLOCKS, &param, sizeof(param)));
			memset(&param, 0xff, sizeof(param)); /* it was copied */
			OK(barway_soft_stream_sync(s));
			CHECK_EQ(barway_soft_stream_query(s), 0);
			OK(barway_copy_from(m, words, 0, sizeof(words)));
			for (unsigned i = 0; i < BLOCKS; i++)
				CHECK(words[i] == f.seed + i && host[i] == f.seed + 2 * i + BLOCKS);
		}
		OK(barway_unmap(m));
		OK(barway_soft_stream_destroy(s));
		OK(barway_host_free(ctx, host));
		release(f.gpu);
		end();
	}
}

/* ---- a conversation ------------------------------------------------------------------------ */

#define WORDS 24u

struct talk {
	uint64_t in, flag, out; /* device addresses: GPU, GPU, pinned */
	uint64_t turns;
	_Atomic uint64_t wrong;
};

/* Each turn: what comes through the mapping goes back to the host, then a flag. */
static void echo(struct barway_soft_block *b, void *arg)
{
	struct talk *t = arg;
	const uint64_t *in = barway_soft_deref(b, t->in, WORDS * 8);
	const uint64_t *flag = barway_soft_deref(b, t->flag, 8);
	uint64_t *out = barway_soft_deref(b, t->out, (WORDS + 1) * 8);

	if (!in || !flag || !out) {
		barway_soft_trap(b);
		return;
	}
	for (uint64_t turn = 1; turn <= t->turns; turn++) {
		while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < turn)
			sched_yield();
		for (unsigned i = 0; i < WORDS; i++) {
			uint64_t v = __atomic_load_n(in + i, __ATOMIC_RELAXED);

			t->wrong += v != turn * 1000 + i;
			barway_soft_store64(b, out + i, v + 7);
		}
		barway_soft_fence(b);
		barway_soft_store64(b, out + WORDS, turn);
	}
}

static void converse(const char *seed)
{
	struct barway_soft_stream *s;
	struct barway_mapping *in, *flag;
	struct talk t = { .turns = SANITIZED ? 200 : 2000 };
	uint64_t *out, words[WORDS], zero = 0, a, wrong = 0;
	double end_time = seconds() + 60;

	param("soft_shuffle", seed);
	begin();
	a = alloc(0, GRANULE);
	t.in = a + 512;
	t.flag = a;
	in = map(t.in, WORDS * 8);
	flag = map(t.flag, 8);
	CHECK_EQ(!strcmp(info_of(in).store_kernel, "shuffle"), strcmp(seed, "0") != 0);
	out = pinned((WORDS + 1) * 8, &t.out);
	OK(barway_copy_to(flag, 0, &zero, 8));
	s = stream(0);
	OK(barway_soft_launch(s, echo, 1, &t, 0));
	CHECK_EQ(barway_soft_stream_query(s), -EBUSY);
	for (uint64_t turn = 1; turn <= t.turns; turn++) {
		for (unsigned i = 0; i < WORDS; i++)
			words[i] = turn * 1000 + i;
		OK(barway_copy_to(in, 0, words, sizeof(words)));
		OK(barway_copy_to(flag, 0, &turn, 8));
		while (__atomic_load_n(out + WORDS, __ATOMIC_ACQUIRE) < turn) {
			if (seconds() > end_time)
				FAIL("no answer in turn %llu", (unsigned long long)turn);
			sched_yield();
		}
		for (unsigned i = 0; i < WORDS; i++)
			wrong += __atomic_load_n(out + i, __ATOMIC_RELAXED) != words[i] + 7;
	}
	OK(barway_soft_stream_destroy(s));
	CHECK_EQ(wrong, 0);
	CHECK_EQ(t.wrong, 0);
	OK(barway_unmap(in));
	OK(barway_unmap(flag));
	OK(barway_host_free(ctx, out));
	release(a);
	end();
	param("soft_shuffle", "0");
}

static void a_conversation(void)
{
	converse("0");
}

static void a_conversation_with_shuffled_stores(void)
{
	converse("1");
	converse("77");
	converse("0x123456789");
}

/* ---- errors -------------------------------------------------------------------------------- */

static void nothing(struct barway_soft_block *b, void *arg)
{
	(void)b;
	(void)arg;
}

static void bad_arguments(void)
{
	static char large[4097];
	struct barway_soft_stream *s, *none = NULL;
	struct barway_device *closed;

	begin();
	s = stream(0);
	FAILS(barway_soft_stream_create(gpu[0], NULL), EINVAL, "out is NULL");
	FAILS(barway_soft_stream_create(NULL, &none), ESTALE, "barway_soft_stream_create");
	FAILS(barway_soft_launch(s, NULL, 1, NULL, 0), EINVAL, "kernel is NULL");
	FAILS(barway_soft_launch(s, nothing, 0, NULL, 0), EINVAL, "give 1 to 1024");
	FAILS(barway_soft_launch(s, nothing, 1025, NULL, 0), EINVAL, "give 1 to 1024");
	FAILS(barway_soft_launch(s, nothing, 1, large, 4097), EINVAL, "at most 4096");
	OK(barway_soft_launch(s, nothing, 1, large, 4096));
	OK(barway_soft_stream_destroy(s));
	OK(barway_soft_stream_destroy(NULL));
	FAILS(barway_soft_stream_destroy(s), ESTALE, "closed before");
	FAILS(barway_soft_stream_sync(s), ESTALE, "closed before");
	FAILS(barway_soft_stream_query(s), ESTALE, "barway_soft_stream_query");
	FAILS(barway_soft_launch(s, nothing, 1, NULL, 0), ESTALE, "barway_soft_launch");
	FAILS(barway_soft_stream_sync(NULL), ESTALE, "NULL");
	closed = gpu[0];
	end();
	FAILS(barway_soft_stream_create(closed, &none), ESTALE, "closed before");
	CHECK(!none);
}

/* A stream is the process's: it goes on when the context is closed. */
static void streams_outlive_contexts(void)
{
	struct barway_soft_stream *s;

	begin();
	s = stream(1);
	end();
	OK(barway_soft_launch(s, nothing, 3, NULL, 0));
	OK(barway_soft_stream_destroy(s));
}

static void traps(struct barway_soft_block *b, void *arg)
{
	if (barway_soft_block_index(b) == 1)
		barway_soft_trap(b);
	while (!barway_soft_trapped(b))
		sched_yield();
	++*(atomic_uint *)arg;
}

static void a_kernel_fails(void)
{
	struct barway_soft_stream *s, *none = NULL;
	struct barway_mapping *m;
	atomic_uint ended = 0;
	uint64_t a;
	char text[8] = "";

	begin();
	a = alloc(0, GRANULE);
	m = map(a, GRANULE);
	s = stream(0);
	OK(barway_soft_launch(s, traps, 3, &ended, 0));
	FAILS(barway_soft_stream_sync(s), EIO, "a kernel failed");
	CHECK_EQ(ended, 3);
	FAILS(barway_soft_stream_query(s), EIO, "a kernel failed");
	FAILS(barway_soft_launch(s, nothing, 1, NULL, 0), EIO, "a kernel failed");
	FAILS(barway_soft_stream_create(gpu[0], &none), EIO, "a kernel failed");
	FAILS(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, text, 8), EIO, "a kernel failed");
	OK(barway_copy_to(m, 0, "mapped", 7)); /* no work of the GPU's */
	OK(barway_copy_from(m, text, 0, 7));
	CHECK_STR(text, "mapped");
	FAILS(barway_soft_stream_destroy(s), EIO, "a kernel failed");
	s = stream(0);
	OK(barway_soft_launch(s, nothing, 1, NULL, 0));
	OK(barway_soft_stream_destroy(s));
	OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, text, 8));
	OK(barway_unmap(m));
	release(a);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(blocks_fill_both_kinds_of_memory),
		TEST(a_conversation),
		TEST(a_conversation_with_shuffled_stores),
		TEST(bad_arguments),
		TEST(streams_outlive_contexts),
		TEST(a_kernel_fails),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
