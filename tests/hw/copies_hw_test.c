/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every method to copy, and the choice between them, on random data at random sizes and places:
 * what should be there is there, and nothing else was touched.
 *
 *     COPIES_DIVIDE=100 copies_hw_test                        fewer of everything
 *     COPIES_SEED=7 copies_hw_test                            other data
 */
#include <pthread.h>

#include "hw/copies.h"

static uint64_t seed;

static uint64_t *seeded(void)
{
	if (!seed)
		seed = setting("COPIES_SEED", 1) * 0x9e3779b97f4a7c15ull;
	return &seed;
}

/* ---- one copy ---------------------------------------------------------------------------- */

struct one {
	uint32_t direction, method;
	unsigned kind;
	size_t bytes, offset, skew; /* of the copy, in the mapping, in the host memory */
};

static const char *name_of(const struct one *c)
{
	static char text[160];

	snprintf(text, sizeof(text), "%zu bytes %s GPU by %s, %s memory, offset %zu, host offset "
		 "%zu", c->bytes, direction_names[c->direction], method_names[c->method],
		 kind_names[c->kind], c->offset, c->skew);
	return text;
}

static struct one random_one(uint32_t direction, uint32_t method, unsigned kind, size_t most)
{
	struct one c = { .direction = direction, .method = method, .kind = kind };

	c.bytes = random_bytes(seeded(), most);
	c.offset = random_place(seeded(), c.bytes, ROOM);
	c.skew = random_place(seeded(), c.bytes, ROOM);
	return c;
}

static int copy(const struct one *c)
{
	unsigned char *host = hw.host[c->kind] + c->skew;

	if (c->method == BARWAY_METHOD_AUTO)
		return c->direction == BARWAY_TO_GPU ?
		       barway_copy_to(hw.map, c->offset, host, c->bytes) :
		       barway_copy_from(hw.map, host, c->offset, c->bytes);
	return c->direction == BARWAY_TO_GPU ?
	       barway_copy_to_by(hw.map, c->method, c->offset, host, c->bytes) :
	       barway_copy_from_by(hw.map, c->method, host, c->offset, c->bytes);
}

static void put(uint32_t by, size_t offset, const void *src, size_t bytes)
{
	OK(barway_copy_to_by(hw.map, by, offset, src, bytes));
	OK(barway_flush(hw.map));
}

/* GPU memory and the source are random; afterwards the copy is there, between what was there. */
static void check_to(const struct one *c, uint32_t by)
{
	size_t around = c->bytes + 2 * GUARD, at = c->offset - GUARD;

	fill_words(hw.want, around, test_random(seeded()));
	put(by, at, hw.want, around);
	fill_words(hw.host[c->kind] + c->skew, c->bytes, test_random(seeded()));
	memcpy(hw.want + GUARD, hw.host[c->kind] + c->skew, c->bytes);
	if (copy(c) < 0)
		FAIL("%s: %s", name_of(c), barway_errmsg());
	OK(barway_flush(hw.map));
	OK(barway_copy_from_by(hw.map, by, hw.back, at, around));
	same(hw.back, hw.want, around, name_of(c));
	same(hw.host[c->kind] + c->skew, hw.want + GUARD, c->bytes, "the source");
}

static void check_from(const struct one *c, uint32_t by)
{
	size_t around = c->bytes + 2 * GUARD;
	unsigned char *dst = hw.host[c->kind] + c->skew - GUARD;

	fill_words(hw.back, c->bytes, test_random(seeded()));
	put(by, c->offset, hw.back, c->bytes);
	fill_words(dst, around, test_random(seeded()));
	memcpy(hw.want, dst, around);
	memcpy(hw.want + GUARD, hw.back, c->bytes);
	if (copy(c) < 0)
		FAIL("%s: %s", name_of(c), barway_errmsg());
	same(dst, hw.want, around, name_of(c));
}

static void check_one(const struct one *c)
{
	if (c->direction == BARWAY_TO_GPU)
		check_to(c, other_method(c->method));
	else
		check_from(c, other_method(c->method));
}

static void every_kind(uint32_t method)
{
	start();
	for (unsigned kind = 0; kind < KINDS; kind++) {
		for (uint32_t d = BARWAY_TO_GPU; d <= BARWAY_FROM_GPU && takes(method, kind); d++) {
			struct one largest = random_one(d, method, kind, 1);

			for (unsigned i = 0; i < many(150, 25); i++) {
				struct one c = random_one(d, method, kind, i % 8 ? MIB : MOST);

				check_one(&c);
			}
			largest.bytes = MOST;
			largest.offset = largest.skew = GUARD + largest.offset % 1024;
			if (many(2, 1) > 1 || d == BARWAY_TO_GPU)
				check_one(&largest);
		}
	}
}

static void by_one_cpu_thread(void)
{
	every_kind(BARWAY_METHOD_CPU);
}

static void by_the_copy_engine(void)
{
	every_kind(BARWAY_METHOD_CE);
}

static void by_several_threads(void)
{
	every_kind(BARWAY_METHOD_THREADS);
}

static void by_the_resident_copier(void)
{
	struct one c = { BARWAY_TO_GPU, BARWAY_METHOD_RESIDENT, PAGEABLE, 64, GUARD, GUARD };

	start();
	if (!hw.resident)
		SKIP("COPIES_NO_RESIDENT does without it");
	every_kind(BARWAY_METHOD_RESIDENT);
	CHECK_EQ(copy(&c), -ENOTSUP);
	CHECK_HAS(barway_errmsg(), "not pinned");
}

static void as_planned(void)
{
	every_kind(BARWAY_METHOD_AUTO);
}

/* Each 1, 2, 4 and 8 bytes, each first 200 sizes: what has paths of its own. */
static void all_small_sizes(void)
{
	start();
	for (uint32_t method = 0; method < METHODS; method++) {
		size_t on = method == BARWAY_METHOD_CE ? 9 : 1;

		for (size_t n = 1; n <= 200 && takes(method, PINNED); n += on) {
			struct one c = { BARWAY_TO_GPU, method, PINNED, n, GUARD + n % 17,
					 GUARD + n % 13 };

			check_one(&c);
			c.direction = BARWAY_FROM_GPU;
			check_one(&c);
		}
	}
}

/* ---- all of them together ---------------------------------------------------------------- */

#define FIELD (2 * MIB) /* of GPU memory that one caller has to himself */

/* A caller: his part of the mapping, what should be in it, his part of the host memory. */
struct caller {
	size_t at;
	unsigned number;
	uint64_t seed;
	unsigned char *model; /* of FIELD bytes */
	char wrong[256];      /* what was wrong */
};

static uint32_t random_method(uint64_t *s, unsigned kind)
{
	uint32_t method = (uint32_t)(test_random(s) >> 40) % METHODS;

	return takes(method, kind) ? method : (uint32_t)BARWAY_METHOD_AUTO;
}

/* One more copy, somewhere, by some method, one way or the other: no moment's rest between them. */
static bool step(struct caller *x)
{
	unsigned kind = (unsigned)(test_random(&x->seed) >> 40) % KINDS;
	struct one c = { .kind = kind, .method = random_method(&x->seed, kind) };
	int ret;

	c.direction = test_random(&x->seed) >> 63 ? BARWAY_TO_GPU : BARWAY_FROM_GPU;
	c.bytes = random_bytes(&x->seed, FIELD / 4);
	c.offset = x->at + random_place(&x->seed, c.bytes, FIELD);
	c.skew = x->at + random_place(&x->seed, c.bytes, FIELD);
	if (c.direction == BARWAY_TO_GPU) {
		fill_words(hw.host[kind] + c.skew, c.bytes, test_random(&x->seed));
		memcpy(x->model + c.offset - x->at, hw.host[kind] + c.skew, c.bytes);
	}
	ret = copy(&c);
	if (ret < 0) {
		snprintf(x->wrong, sizeof(x->wrong), "%zu bytes %s GPU by %s, %s: %d: %.120s",
			 c.bytes, direction_names[c.direction], method_names[c.method],
			 kind_names[kind], ret, barway_errmsg());
	} else if (c.direction == BARWAY_FROM_GPU) {
		size_t same_bytes = first_difference(hw.host[kind] + c.skew,
						     x->model + c.offset - x->at, c.bytes);

		if (same_bytes < c.bytes)
			snprintf(x->wrong, sizeof(x->wrong), "%zu bytes from GPU by %s, %s, offset "
				 "%zu: byte %zu is not what was written", c.bytes,
				 method_names[c.method], kind_names[kind], c.offset, same_bytes);
	}
	return !*x->wrong;
}

static void *call_on(void *arg)
{
	struct caller *x = arg;

	for (unsigned i = 0; i < many(3000, 250); i++)
		if (!step(x))
			break;
	return NULL;
}

static void begin_caller(struct caller *x, unsigned number)
{
	*x = (struct caller){ .at = number * FIELD, .number = number, .seed = number + 77,
			      .model = malloc(FIELD) };
	CHECK(x->model);
	fill_words(x->model, FIELD, number);
	put(BARWAY_METHOD_CPU, x->at, x->model, FIELD);
}

static void end_caller(struct caller *x)
{
	char what[64];

	if (*x->wrong)
		FAIL("caller %u: %s", x->number, x->wrong);
	OK(barway_flush(hw.map));
	snprintf(what, sizeof(what), "at the end, by the CPU, caller %u", x->number);
	OK(barway_copy_from_by(hw.map, BARWAY_METHOD_CPU, hw.back, x->at, FIELD));
	same(hw.back, x->model, FIELD, what);
	snprintf(what, sizeof(what), "at the end, by the copy engine, caller %u", x->number);
	OK(barway_copy_from_by(hw.map, BARWAY_METHOD_CE, hw.back, x->at, FIELD));
	same(hw.back, x->model, FIELD, what);
	free(x->model);
}

static void methods_in_turn(void)
{
	struct caller x;

	start();
	begin_caller(&x, 0);
	call_on(&x);
	end_caller(&x);
}

#define CALLERS 6

static void callers_at_once(void)
{
	struct caller x[CALLERS];
	pthread_t threads[CALLERS];

	start();
	for (unsigned i = 0; i < CALLERS; i++)
		begin_caller(&x[i], i);
	for (unsigned i = 0; i < CALLERS; i++)
		CHECK(!pthread_create(&threads[i], NULL, call_on, &x[i]));
	for (unsigned i = 0; i < CALLERS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < CALLERS; i++)
		end_caller(&x[i]);
}

/* ---- many pieces in one call ------------------------------------------------------------- */

#define PIECES 64

/* Pieces side by side with gaps between them, in an order that is none. */
static size_t make_pieces(struct barway_piece *pieces, unsigned kind, size_t at)
{
	for (unsigned i = 0; i < PIECES; i++) {
		size_t bytes = random_bytes(seeded(), i % 16 ? 4 * KIB : 512 * KIB);

		pieces[i] = (struct barway_piece){ .offset = at, .host = hw.host[kind] + at,
						   .bytes = bytes };
		at += bytes + (size_t)(test_random(seeded()) % 100);
	}
	for (unsigned i = PIECES; i-- > 1;) {
		unsigned k = (unsigned)(test_random(seeded()) >> 40) % (i + 1);
		struct barway_piece p = pieces[i];

		pieces[i] = pieces[k];
		pieces[k] = p;
	}
	return at;
}

static void pieces_by(uint32_t direction, uint32_t method, unsigned kind)
{
	struct barway_piece pieces[PIECES];
	size_t end = make_pieces(pieces, kind, GUARD + 5), around = end + GUARD;
	unsigned char *host = hw.host[kind];
	bool to = direction == BARWAY_TO_GPU;
	uint32_t by = other_method(method);

	fill_words(hw.want, around, test_random(seeded()));
	fill_words(host, around, test_random(seeded()));
	put(by, 0, hw.want, around);
	if (!to)
		memcpy(hw.want, host, around);
	for (unsigned i = 0; i < PIECES && to; i++)
		memcpy(hw.want + pieces[i].offset, pieces[i].host, pieces[i].bytes);
	OK(barway_copy_from_by(hw.map, by, hw.back, 0, around));
	for (unsigned i = 0; i < PIECES && !to; i++)
		memcpy(hw.want + pieces[i].offset, hw.back + pieces[i].offset, pieces[i].bytes);
	OK(barway_copy_pieces(hw.map, direction, method, pieces, PIECES));
	OK(barway_flush(hw.map));
	if (to)
		OK(barway_copy_from_by(hw.map, by, hw.back, 0, around));
	same(to ? hw.back : host, hw.want, around, method_names[method]);
}

static void many_pieces(void)
{
	start();
	for (unsigned i = 0; i < many(10, 2); i++)
		for (uint32_t d = BARWAY_TO_GPU; d <= BARWAY_FROM_GPU; d++)
			for (uint32_t method = 0; method < METHODS; method++)
				for (unsigned kind = 0; kind < KINDS; kind++)
					if (takes(method, kind))
						pieces_by(d, method, kind);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(by_one_cpu_thread), TEST(by_the_copy_engine), TEST(by_several_threads),
		TEST(by_the_resident_copier), TEST(as_planned), TEST(all_small_sizes),
		TEST(methods_in_turn), TEST(callers_at_once), TEST(many_pieces), TEST(stop), { 0 },
	};

	return test_main(argc, argv, cases);
}
