/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/calls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/calls_int.h"

/* ---- Barway's calls ---------------------------------------------------------------------- */

static int run_close(void *arg)
{
	struct calls *c = arg;
	struct barway_context *ctx = c->opened;

	c->opened = NULL;
	return ctx ? calls_by_barway(c, barway_close(ctx)) : 0;
}

static int run_open(void *arg)
{
	struct calls *c = arg;

	return calls_by_barway(c, barway_open(NULL, &c->opened));
}

static int run_device_query(void *arg)
{
	struct calls *c = arg;
	struct barway_device_info info = { .size = sizeof(info) };

	return calls_by_barway(c, barway_device_query(c->dev, &info));
}

static int run_pointer_query(void *arg)
{
	struct calls *c = arg;
	struct barway_pointer_info info = { .size = sizeof(info) };

	return calls_by_barway(c, barway_pointer_query(c->ctx, c->addr, &info));
}

static int run_unmap(void *arg)
{
	struct calls *c = arg;
	struct barway_mapping *map = c->temp;

	c->temp = NULL;
	return map ? calls_by_barway(c, barway_unmap(map)) : 0;
}

static int run_map(void *arg)
{
	struct calls *c = arg;

	return calls_by_barway(c, barway_map(c->ctx, c->addr, c->bytes, NULL, &c->temp));
}

static int run_map_cold(void *arg)
{
	static const struct barway_map_options anew = {
		.size = sizeof(anew),
		.flags = BARWAY_MAP_UNCACHED,
	};
	struct calls *c = arg;

	return calls_by_barway(c, barway_map(c->ctx, c->addr, c->bytes, &anew, &c->temp));
}

static int run_mapping_query(void *arg)
{
	struct calls *c = arg;
	struct barway_mapping_info info = { .size = sizeof(info) };

	return calls_by_barway(c, barway_mapping_query(c->map, &info));
}

static int run_copy_to(void *arg)
{
	struct calls *c = arg;

	return calls_by_barway(c, barway_copy_to(c->map, 0, c->word, sizeof(c->word)));
}

static int run_copy_from(void *arg)
{
	struct calls *c = arg;
	unsigned char word[sizeof(c->word)];

	return calls_by_barway(c, barway_copy_from(c->map, word, 0, sizeof(word)));
}

static int run_flush(void *arg)
{
	struct calls *c = arg;

	return calls_by_barway(c, barway_flush(c->map));
}

static int run_publish(void *arg)
{
	(void)arg;
	barway_fence_publish();
	return 0;
}

static int run_cache_flush(void *arg)
{
	struct calls *c = arg;

	return calls_by_barway(c, barway_cache_flush(c->ctx));
}

static int fill_cache(void *arg)
{
	struct calls *c = arg;
	struct barway_mapping *map;
	int ret;

	/* not where @map is: a mapping that lives is not the cache's alone */
	ret = barway_map(c->ctx, c->addr + c->max, CALLS_LEAST, NULL, &map);
	return calls_by_barway(c, ret < 0 ? ret : barway_unmap(map));
}

static int run_mem_free(void *arg)
{
	struct calls *c = arg;
	uint64_t addr = c->allocated;

	c->allocated = 0;
	return addr ? calls_by_barway(c, barway_mem_free(c->ctx, addr)) : 0;
}

static int run_mem_alloc(void *arg)
{
	struct calls *c = arg;

	return calls_by_barway(c, barway_mem_alloc(c->dev, c->bytes, &c->allocated));
}

static int check_copy_to(struct calls *c)
{
	int ret = calls_new_word(c);

	if (ret == 0)
		ret = run_copy_to(c);
	if (ret == 0)
		ret = run_flush(c);
	return ret ? ret : calls_check_word(c);
}

static int check_copy_from(struct calls *c)
{
	unsigned char word[sizeof(c->word)];
	int ret = calls_new_word(c);

	if (ret == 0)
		ret = barway_copy_to_by(c->map, BARWAY_METHOD_CE, 0, c->word, sizeof(c->word));
	if (ret == 0)
		ret = barway_copy_from(c->map, word, 0, sizeof(word));
	if (ret < 0)
		return calls_by_barway(c, ret);
	if (!memcmp(word, c->word, sizeof(word)))
		return 0;
	c->error = "barway_copy_from: wrong data";
	return -EILSEQ;
}

#define WORD sizeof(((struct calls *)0)->word)

const struct calls_case calls_barway[] = {
	{ "barway_open", NULL, .run = run_open, .before = run_close },
	{ "barway_close", NULL, .run = run_close, .before = run_open },
	{ "barway_device_query", NULL, .run = run_device_query, .repeats = true },
	{ "barway_pointer_query", NULL, .run = run_pointer_query, .repeats = true },
	{ "barway_mem_alloc", NULL, .sized = true, .run = run_mem_alloc, .before = run_mem_free },
	{ "barway_mem_free", NULL, .sized = true, .run = run_mem_free, .before = run_mem_alloc },
	{ "barway_map", "cold", .sized = true, .run = run_map_cold, .before = run_unmap },
	{ "barway_unmap", "cold", .sized = true, .run = run_unmap, .before = run_map_cold },
	{ "barway_map", "cached", .sized = true, .run = run_map, .before = run_unmap },
	{ "barway_unmap", "cached", .sized = true, .run = run_unmap, .before = run_map },
	{ "barway_mapping_query", NULL, .run = run_mapping_query, .repeats = true },
	{ "barway_copy_to", NULL, .bytes = WORD, .run = run_copy_to, .before = run_flush,
	  .check = check_copy_to },
	{ "barway_copy_from", NULL, .bytes = WORD, .run = run_copy_from, .repeats = true,
	  .check = check_copy_from },
	{ "barway_flush", NULL, .run = run_flush, .repeats = true },
	{ "barway_fence_publish", NULL, .run = run_publish, .repeats = true },
	{ "barway_cache_flush", "one mapping in it", .run = run_cache_flush, .before = fill_cache },
	{ "barway_cache_flush", "empty", .run = run_cache_flush, .repeats = true },
	{ 0 },
};

/* ---- data -------------------------------------------------------------------------------- */

int calls_new_word(struct calls *c)
{
	unsigned char other[sizeof(c->word)];
	uint64_t x = bench_now() * 0x9e3779b97f4a7c15ull + 1;

	memcpy(c->word, &x, sizeof(x));
	x = ~x;
	memcpy(other, &x, sizeof(x));
	return calls_by_barway(c, barway_copy_to_by(c->map, BARWAY_METHOD_CE, 0, other,
						    sizeof(other)));
}

int calls_check_word(struct calls *c)
{
	unsigned char word[sizeof(c->word)];
	int ret = barway_copy_from_by(c->map, BARWAY_METHOD_CE, word, 0, sizeof(word));

	if (ret < 0)
		return calls_by_barway(c, ret);
	if (!memcmp(word, c->word, sizeof(word)))
		return 0;
	c->error = "wrong data: 8 bytes that were copied to the GPU are not there";
	return -EILSEQ;
}

/* ---- opening ----------------------------------------------------------------------------- */

static int allocate(struct calls *c, const char *cuda_lib, size_t bytes)
{
	struct barway_device_info info = { .size = sizeof(info) };
	int ret;

	if (!cuda_lib)
		return calls_by_barway(c, barway_mem_alloc(c->dev, bytes, &c->addr));
	ret = calls_by_barway(c, barway_device_query(c->dev, &info));
	if (ret < 0)
		return ret;
	c->cuda = bench_cuda_open(cuda_lib, info.pci, 4096, c->reason, sizeof(c->reason));
	if (!c->cuda) {
		c->error = c->reason;
		return -ENOTSUP;
	}
	ret = bench_cuda_alloc(c->cuda, bytes, &c->addr);
	if (ret < 0) {
		snprintf(c->reason, sizeof(c->reason), "%s", bench_cuda_error(c->cuda));
		c->error = c->reason;
	}
	return ret;
}

int calls_open(struct calls *c, struct barway_context *ctx, struct barway_device *dev, size_t max,
	       const char *cuda_lib)
{
	uint64_t began;
	int ret = -EINVAL;

	*c = (struct calls){ .ctx = ctx, .dev = dev, .max = max };
	c->error = "the size is more than memory can be";
	if (max + CALLS_LEAST > max)
		ret = allocate(c, cuda_lib, max + CALLS_LEAST);
	if (ret == 0) {
		began = bench_now();
		ret = calls_by_barway(c, barway_map(ctx, c->addr, max < 4096 ? max : 4096, NULL,
						    &c->map));
		c->self_test_ns = (double)(bench_now() - began);
	}
	if (ret < 0)
		calls_close(c);
	return ret;
}

/* What a case left for its next run. */
static void settle(struct calls *c)
{
	run_close(c);
	run_unmap(c);
	run_mem_free(c);
	if (c->gdrapi)
		gdrapi_settle(c);
}

void calls_close(struct calls *c)
{
	settle(c);
	if (c->gdrapi)
		gdrapi_close(c);
	if (c->map)
		barway_unmap(c->map);
	if (c->addr && c->cuda)
		bench_cuda_free(c->cuda, c->addr);
	else if (c->addr)
		barway_mem_free(c->ctx, c->addr);
	bench_cuda_close(c->cuda);
	c->map = NULL;
	c->addr = 0;
	c->cuda = NULL;
}

void calls_open_gdrapi(struct calls *c)
{
	const char *error = c->error;

	if (gdrapi_open(c) < 0) {
		snprintf(c->no_gdrapi, sizeof(c->no_gdrapi), "%s", c->error);
		c->error = error;
	}
}

/* ---- measuring --------------------------------------------------------------------------- */

/* The size after @n; 0: it was the last. From 0: the first. */
static size_t next_size(const struct calls *c, size_t n)
{
	if (!n)
		return c->max < CALLS_LEAST ? c->max : CALLS_LEAST;
	if (n >= c->max)
		return 0;
	return n > c->max / 4 ? c->max : n * 4;
}

/* The case and its size at a place, NULL: past the end. */
static const struct calls_case *find(const struct calls *c, size_t index, size_t *bytes)
{
	const struct calls_case *lists[] = { calls_barway, c->gdrapi ? calls_gdrapi : NULL };

	for (int i = 0; i < 2; i++) {
		for (const struct calls_case *x = lists[i]; x && x->call; x++) {
			size_t n = x->sized ? next_size(c, 0) : 0;

			do {
				if (!index--) {
					*bytes = n;
					return x;
				}
				n = x->sized ? next_size(c, n) : 0;
			} while (n);
		}
	}
	return NULL;
}

size_t calls_count(const struct calls *c)
{
	size_t n = 0, bytes;

	while (find(c, n, &bytes))
		n++;
	return n;
}

static bool from_cache(struct calls *c)
{
	struct barway_mapping_info info = { .size = sizeof(info) };

	return barway_mapping_query(c->temp, &info) == 0 && info.from_cache;
}

int calls_measure(struct calls *c, size_t index, const struct bench_plan *plan,
		  struct calls_result *out)
{
	const struct calls_case *x = find(c, index, &c->bytes);
	struct bench_op op = { .arg = c, .single = true, .histogram = &out->histogram };
	struct bench_result result;
	int ret;

	if (!x)
		return 0;
	*out = (struct calls_result){
		.call = x->call,
		.how = x->how,
		.bytes = x->sized ? c->bytes : x->bytes,
	};
	op.run = x->run;
	op.before = x->before;
	c->error = "out of memory for the samples: choose fewer iterations";
	ret = bench_run(&op, 1, plan, &result);
	out->time = result.alone;
	if (ret == 0 && x->run == run_map && !from_cache(c))
		out->how = "again, not kept by the cache";
	if (ret == 0 && x->check)
		ret = x->check(c);
	settle(c);
	return ret < 0 ? ret : 1;
}
