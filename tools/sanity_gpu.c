/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of barway sanity: kernels that run while the CPU writes. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sanity.h"
#include "tools/sanity_kernels.h"

#define MEMORY_BYTES 65536u
#define STOP_AT 32768u  /* the flag that ends watch_word, away from the words */
#define HOST_BYTES 4096u
#define LIMIT_NS 20000000000u
#define PATIENCE 25.0     /* seconds: longer than the kernel's limit */
#define WRITE_SECONDS 1.0 /* at most, for one word */
#define LEAST_CHANGES 20u /* that a kernel sees then, even on a machine that is busy */

struct scene {
	struct bench_memory mem;
	struct barway_mapping *map;
	struct bench_stream *stream;
	uint64_t *out;      /* pinned host memory that the kernel answers in */
	uint64_t out_addr;
};

/* Waives where no kernels can be run. */
static void scene_open(struct sanity *s, struct scene *z, const struct bench_kernel *kernel)
{
	void *host;
	int ret;

	sanity_open(s);
	ret = bench_gpu_load(s->gpu, kernel);
	if (ret == -ENOTSUP)
		sanity_waive("%s; so nothing is said about what running kernels see",
			     bench_gpu_error(s->gpu));
	GPU_OK(ret);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MEMORY_BYTES, &z->mem);
	OK(barway_map(s->ctx, z->mem.addr, MEMORY_BYTES, NULL, &z->map));
	OK(barway_host_alloc(s->dev, HOST_BYTES, &host, &z->out_addr));
	z->out = host;
	memset(host, 0, HOST_BYTES);
	GPU_OK(bench_stream_create(s->gpu, &z->stream));
}

static void scene_close(struct sanity *s, struct scene *z)
{
	GPU_OK(bench_stream_destroy(z->stream));
	OK(barway_host_free(s->ctx, z->out));
	OK(barway_unmap(z->map));
	sanity_free(s, &z->mem);
	sanity_close(s);
}

static uint64_t look(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* A kernel of the soft GPU needs a CPU, too. */
static void rest(const struct sanity *s)
{
	if (s->soft)
		sched_yield();
}

/* ---- stores ------------------------------------------------------------------------------ */

static const uint64_t values[2] = { 0x1122334455667788u, 0xeeddccbbaa998877u };

/* One store by the program itself. */
static void store(volatile void *p, size_t width, uint64_t v)
{
	switch (width) {
	case 1:
		*(volatile uint8_t *)p = (uint8_t)v;
		break;
	case 2:
		*(volatile uint16_t *)p = (uint16_t)v;
		break;
	case 4:
		*(volatile uint32_t *)p = (uint32_t)v;
		break;
	default:
		*(volatile uint64_t *)p = v;
	}
	barway_fence_publish();
}

static uint64_t cut(uint64_t v, size_t width)
{
	return width == 8 ? v : v & (((uint64_t)1 << (8 * width)) - 1);
}

/* Writes the two values in turn, by store and by copy, until the kernel saw enough of them. */
static void keep_writing(struct sanity *s, struct scene *z, size_t at, size_t width)
{
	uint64_t enough = s->target.quick ? 200 : 5000;
	volatile unsigned char *p = barway_mapping_ptr(z->map);
	double until = sanity_seconds() + WRITE_SECONDS;

	for (unsigned i = 1; look(&z->out[1]) < enough; i++) {
		uint64_t v = cut(values[i % 2], width);

		if (i % 4 < 2)
			store(p + at, width, v);
		else
			OK(barway_copy_to(z->map, at, &v, width)); /* little-endian, as all here */
		if (i % 64 == 0 && sanity_seconds() > until)
			break;
		rest(s);
	}
}

static void one_width(struct sanity *s, struct scene *z, size_t at, size_t width)
{
	uint64_t zero = 0, one = 1;
	struct watch_word w = {
		.word = z->mem.addr + at, .stop = z->mem.addr + STOP_AT, .out = z->out_addr,
		.width = width, .old = cut(values[0], width), .new = cut(values[1], width),
		.limit_ns = LIMIT_NS,
	};
	double until = sanity_seconds() + PATIENCE;

	memset(z->out, 0, 32);
	OK(barway_copy_to(z->map, STOP_AT, &zero, 8));
	OK(barway_copy_to(z->map, at, &w.old, width));
	OK(barway_flush(z->map));
	GPU_OK(bench_gpu_launch(z->stream, &watch_word_kernel, 1, 1, &w, sizeof(w)));
	for (; !look(&z->out[0]); rest(s))
		CHECK(sanity_seconds() < until, "a kernel did not begin within %g s", PATIENCE);
	keep_writing(s, z, at, width);
	OK(barway_copy_to(z->map, STOP_AT, &one, 8));
	OK(barway_flush(z->map));
	GPU_OK(bench_stream_sync(z->stream));
	CHECK(look(&z->out[2]) == 0, "a running kernel saw %llu times a value that nobody wrote, "
	      "in stores of %zu bytes at +%zu: the first was 0x%llx, between 0x%llx and 0x%llx",
	      (unsigned long long)z->out[2], width, at, (unsigned long long)z->out[3],
	      (unsigned long long)w.old, (unsigned long long)w.new);
	CHECK(z->out[0] == 2, "a running kernel did not see the flag that ends it");
	CHECK(z->out[1] >= LEAST_CHANGES, "a running kernel saw only %llu changes of a word of %zu "
	      "bytes that was written for %g s", (unsigned long long)z->out[1], width,
	      WRITE_SECONDS);
}

static void stores(struct sanity *s)
{
	static const size_t places[] = { 0, 56, 4096 + 24 };
	struct scene z;

	scene_open(s, &z, &watch_word_kernel);
	for (size_t width = 1; width <= 8; width *= 2) {
		for (size_t i = 0; i < (s->target.quick ? 1 : 3); i++)
			one_width(s, &z, places[i] + (width < 8 ? width : 0), width);
	}
	scene_close(s, &z);
}

/* ---- VISIBLE ----------------------------------------------------------------------------- */

#define WORDS 96u
#define DATA_AT 256u
#define FLAG_AT 128u /* in bytes of the pinned host memory */

enum flag_way {
	FLAG_BY_COPY,  /* in GPU memory, by barway_copy_to() behind that of the data */
	FLAG_BY_STORE, /* there, by stores of the program, and barway_fence_publish() between */
	FLAG_IN_HOST,  /* in pinned host memory, after barway_flush() */
};

static void write_data(struct scene *z, const uint64_t *words, enum flag_way way)
{
	volatile uint64_t *p = barway_mapping_ptr(z->map);

	if (way != FLAG_BY_STORE) {
		OK(barway_copy_to(z->map, DATA_AT, words, WORDS * 8));
		return;
	}
	for (unsigned i = 0; i < WORDS; i++)
		p[DATA_AT / 8 + i] = words[i];
	barway_fence_publish();
}

static void write_flag(struct scene *z, uint64_t round, enum flag_way way)
{
	volatile uint64_t *p = barway_mapping_ptr(z->map);

	switch (way) {
	case FLAG_BY_COPY:
		OK(barway_copy_to(z->map, 0, &round, 8));
		break;
	case FLAG_BY_STORE:
		p[0] = round;
		barway_fence_publish();
		break;
	case FLAG_IN_HOST:
		/* it goes another way than the data: only the flush keeps them in order */
		OK(barway_flush(z->map));
		__atomic_store_n(&z->out[FLAG_AT / 8], round, __ATOMIC_RELEASE);
	}
}

static void one_round(struct sanity *s, struct scene *z, uint64_t round, enum flag_way way)
{
	uint64_t words[WORDS], sum = 0;
	double until = sanity_seconds() + PATIENCE;

	for (unsigned i = 0; i < WORDS; i++)
		sum += words[i] = sanity_random(s);
	write_data(z, words, way);
	write_flag(z, round, way);
	while (look(&z->out[0]) != round) {
		CHECK(!look(&z->out[2]) || look(&z->out[0]) == round, "round %llu: a running "
		      "kernel never saw the flag", (unsigned long long)round);
		CHECK(sanity_seconds() < until, "round %llu: a running kernel did not answer "
		      "within %g s", (unsigned long long)round, PATIENCE);
		rest(s);
	}
	CHECK(look(&z->out[1]) == sum, "round %llu: a running kernel saw the new flag and old data",
	      (unsigned long long)round);
}

static void flags(struct sanity *s, enum flag_way way)
{
	uint64_t zero = 0, rounds = s->target.quick ? 500 : 10000;
	struct watch_flag w = { .words = WORDS, .rounds = rounds, .limit_ns = LIMIT_NS };
	struct scene z;

	scene_open(s, &z, &watch_flag_kernel);
	w.flag = way == FLAG_IN_HOST ? z.out_addr + FLAG_AT : z.mem.addr;
	w.data = z.mem.addr + DATA_AT;
	w.out = z.out_addr;
	OK(barway_copy_to(z.map, 0, &zero, 8));
	OK(barway_flush(z.map));
	GPU_OK(bench_gpu_launch(z.stream, &watch_flag_kernel, 1, 1, &w, sizeof(w)));
	for (uint64_t round = 1; round <= rounds; round++)
		one_round(s, &z, round, way);
	GPU_OK(bench_stream_sync(z.stream));
	CHECK(look(&z.out[2]) == 1, "a kernel did not end as it should");
	scene_close(s, &z);
}

static void visible(struct sanity *s)
{
	flags(s, FLAG_BY_COPY);
}

static void publish(struct sanity *s)
{
	flags(s, FLAG_BY_STORE);
}

static void flush(struct sanity *s)
{
	flags(s, FLAG_IN_HOST);
}

const struct sanity_case sanity_gpu[] = {
	{ "stores", "a running kernel sees each aligned store whole", true, stores },
	{ "visible", "a running kernel that sees the flag sees the data before it", false,
	  visible },
	{ "publish", "the same with stores and barway_fence_publish()", false, publish },
	{ "flush", "the same with a flag that goes another way, after barway_flush()", true,
	  flush },
	{ 0 },
};
