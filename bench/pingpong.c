/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/pingpong.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels.h"
#include "gpu/pattern.h"

const char *const pingpong_way_names[PINGPONG_WAYS] = { "gpu", "pinned" };

#define IDLE_NS 5000000000ull /* then the kernel thinks that we are gone */
#define PLACES 16u            /* for the flag in GPU memory */
#define PLACE_BYTES 4352u     /* from one to the next: not a power of two, to meet many slices */
#define PLACE_TRIPS 2000u
#define POLLS 65536u          /* between looks at the clock */
#define SOFT_POLLS 64u        /* the soft GPU may need this CPU */

/* In the pinned memory: three parts, each in lines of its own. */
static size_t part_bytes(const struct pingpong *p)
{
	return (GPU_PINGPONG_DATA + p->max + 127) / 128 * 128;
}

static unsigned char *out_at(const struct pingpong *p)
{
	return p->pinned;
}

static unsigned char *in_at(const struct pingpong *p)
{
	if (p->way == PINGPONG_GPU)
		return (unsigned char *)barway_mapping_ptr(p->map) + p->at;
	return (unsigned char *)p->pinned + part_bytes(p);
}

static size_t gpu_bytes(const struct pingpong *p)
{
	return (PLACES - 1) * PLACE_BYTES + GPU_PINGPONG_DATA + p->max;
}

static struct gpu_result *result_at(const struct pingpong *p)
{
	return (struct gpu_result *)(void *)((unsigned char *)p->pinned + 2 * part_bytes(p));
}

__attribute__((format(printf, 3, 4)))
static int fail(struct pingpong *p, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->error, sizeof(p->error), fmt, ap);
	va_end(ap);
	return -err;
}

static int gpu_failed(struct pingpong *p, int ret)
{
	return fail(p, -ret, "%s", bench_gpu_error(p->gpu));
}

static int barway_failed(struct pingpong *p, int ret)
{
	return fail(p, -ret, "%s", barway_errmsg());
}

static int choose_place(struct pingpong *p);

/* ---- open -------------------------------------------------------------------------------- */

int pingpong_open(struct pingpong *p, struct barway_context *ctx, struct barway_device *dev,
		  struct bench_gpu *gpu, enum bench_memory_kind kind, size_t max,
		  uint64_t timeout_ns)
{
	int ret;

	*p = (struct pingpong){ .ctx = ctx, .gpu = gpu, .max = max, .timeout_ns = timeout_ns };
	p->soft = bench_gpu_is_soft(gpu);
	p->next = 1;
	p->data = calloc(1, max + 8);
	if (!p->data)
		return fail(p, ENOMEM, "out of memory");
	for (size_t i = 0; i < max / 8; i++)
		((uint64_t *)(void *)p->data)[i] = gpu_mix(i + 1);
	ret = bench_gpu_load(gpu, &gpu_kernel_pingpong);
	if (ret == 0)
		ret = bench_stream_create(gpu, &p->stream);
	if (ret == 0)
		ret = bench_gpu_alloc(gpu, kind, gpu_bytes(p), &p->mem);
	if (ret < 0)
		return gpu_failed(p, ret);
	ret = barway_map(ctx, p->mem.addr, gpu_bytes(p), NULL, &p->map);
	if (ret == 0)
		ret = barway_host_alloc(dev, 2 * part_bytes(p) + sizeof(struct gpu_result),
					&p->pinned, &p->pinned_addr);
	if (ret < 0)
		return barway_failed(p, ret);
	memset(p->pinned, 0, 2 * part_bytes(p) + sizeof(struct gpu_result));
	memset(barway_mapping_ptr(p->map), 0, gpu_bytes(p));
	if (barway_flush(p->map) < 0)
		return barway_failed(p, -EIO);
	return choose_place(p);
}

void pingpong_close(struct pingpong *p)
{
	bench_stream_destroy(p->stream);
	if (p->map)
		barway_unmap(p->map);
	if (p->pinned)
		barway_host_free(p->ctx, p->pinned);
	if (p->gpu)
		bench_gpu_free(p->gpu, &p->mem);
	free(p->data);
	*p = (struct pingpong){ 0 };
}

/* ---- a round trip ------------------------------------------------------------------------ */

static uint64_t load(const unsigned char *at)
{
	return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

/* Word by word: the soft GPU's kernel is another thread of this process. */
static void store_data(unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 8)
		__atomic_store_n((uint64_t *)(void *)(to + at),
				 *(const uint64_t *)(const void *)(from + at), __ATOMIC_RELAXED);
}

/* The flag of a mapping has to leave the write-combining buffer soon. */
static void store_flag(const struct pingpong *p, uint64_t flag)
{
	__atomic_store_n((uint64_t *)(void *)in_at(p), flag, __ATOMIC_RELEASE);
	if (p->way == PINGPONG_GPU)
		barway_fence_publish();
}

static int no_answer(struct pingpong *p, uint64_t flag)
{
	int ret = bench_stream_query(p->stream);

	if (ret < 0 && ret != -EBUSY)
		return gpu_failed(p, ret);
	return fail(p, ETIMEDOUT, "no answer to flag %llu in %s memory for %.1f s: the kernel %s",
		    (unsigned long long)flag, p->way == PINGPONG_GPU ? "GPU" : "pinned host",
		    (double)p->timeout_ns / 1e9, ret ? "is running" : "has ended");
}

static int wait_for(struct pingpong *p, uint64_t flag)
{
	uint64_t began = 0;

	for (unsigned polls = 1; load(out_at(p)) != flag; polls++) {
		if (p->soft && polls % SOFT_POLLS == 0)
			sched_yield();
		if (polls % POLLS)
			continue;
		if (!began)
			began = bench_now();
		else if (bench_now() - began > p->timeout_ns)
			return no_answer(p, flag);
	}
	return 0;
}

static int flag_only(void *arg)
{
	struct pingpong *p = arg;
	uint64_t flag = p->next++;

	store_flag(p, flag);
	return wait_for(p, flag);
}

static int wrong(struct pingpong *p, size_t at, uint64_t want)
{
	return fail(p, EBADMSG, "wrong data: of %zu bytes behind flag %llu in %s memory, those at "
		    "%zu are 0x%llx instead of 0x%llx", p->bytes,
		    (unsigned long long)p->next - 1, p->way == PINGPONG_GPU ? "GPU" : "pinned host",
		    at, (unsigned long long)load(out_at(p) + GPU_PINGPONG_DATA + at),
		    (unsigned long long)want);
}

static int with_data(void *arg)
{
	struct pingpong *p = arg;
	uint64_t flag = p->next++, *first = (uint64_t *)(void *)p->data;
	uint64_t *last = (uint64_t *)(void *)(p->data + p->bytes - 8);
	int ret = 0;

	*first = *last = flag;
	if (p->way == PINGPONG_GPU)
		ret = barway_copy_to_by(p->map, BARWAY_METHOD_CPU,
					p->at + GPU_PINGPONG_DATA, p->data, p->bytes);
	else
		store_data(in_at(p) + GPU_PINGPONG_DATA, p->data, p->bytes);
	if (ret < 0)
		return barway_failed(p, ret);
	store_flag(p, flag);
	ret = wait_for(p, flag);
	if (ret < 0)
		return ret;
	if (load(out_at(p) + GPU_PINGPONG_DATA) != flag)
		return wrong(p, 0, flag);
	if (load(out_at(p) + GPU_PINGPONG_DATA + p->bytes - 8) != flag)
		return wrong(p, p->bytes - 8, flag);
	return 0;
}

/* ---- the measurement --------------------------------------------------------------------- */

static int start(struct pingpong *p)
{
	struct gpu_pingpong param = {
		.in = p->way == PINGPONG_GPU ? p->mem.addr + p->at :
					       p->pinned_addr + part_bytes(p),
		.out = p->pinned_addr,
		.bytes = p->bytes,
		.first = p->next,
		.idle_ns = IDLE_NS,
		.result = p->pinned_addr + 2 * part_bytes(p),
	};
	int ret;

	*result_at(p) = (struct gpu_result){ 0 };
	store_flag(p, 0); /* not the end of the one before */
	ret = barway_flush(p->map);
	if (ret < 0)
		return barway_failed(p, ret);
	ret = bench_gpu_launch(p->stream, &gpu_kernel_pingpong, 1, p->bytes ? 32 : 1, &param,
			       sizeof(param));
	return ret < 0 ? gpu_failed(p, ret) : 0;
}

/* Ends the kernel; @ret: what there was before. */
static int finish(struct pingpong *p, uint64_t first, int ret)
{
	int end;

	store_flag(p, GPU_PINGPONG_END);
	end = bench_stream_sync(p->stream);
	if (ret < 0)
		return ret;
	if (end < 0)
		return gpu_failed(p, end);
	if (result_at(p)->count != p->next - first)
		return fail(p, EIO, "the kernel saw %llu flags of %llu",
			    (unsigned long long)result_at(p)->count,
			    (unsigned long long)(p->next - first));
	return 0;
}

static int check_all(struct pingpong *p)
{
	for (size_t at = 0; at < p->bytes; at += 8) {
		uint64_t want = load(p->data + at);

		if (load(out_at(p) + GPU_PINGPONG_DATA + at) != want)
			return wrong(p, at, want);
	}
	return 0;
}

static int time_place(struct pingpong *p, double *ns)
{
	uint64_t first = p->next, began = 0;
	int ret = start(p);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; i < PLACE_TRIPS && ret == 0; i++) {
		if (i == PLACE_TRIPS / 4) /* the launch, and getting warm, are no part of it */
			began = bench_now();
		ret = flag_only(p);
	}
	*ns = (double)(bench_now() - began) / (PLACE_TRIPS - PLACE_TRIPS / 4);
	return finish(p, first, ret);
}

/*
 * A GPU spreads its memory over slices, line by line, which are nearer to one multiprocessor or the
 * other: a poll takes a tenth of a microsecond more or less. The flag goes to the best of a few
 * places, as a program would put it that cares.
 */
static int choose_place(struct pingpong *p)
{
	size_t best = 0;
	double ns;
	int ret;

	p->way = PINGPONG_GPU;
	p->bytes = 0;
	for (unsigned i = 0; i < PLACES && !p->soft; i++) {
		p->at = i * PLACE_BYTES;
		ret = time_place(p, &ns);
		if (ret < 0)
			return ret;
		if (!i || ns < p->best_ns) {
			p->best_ns = ns;
			best = p->at;
		}
		if (ns > p->worst_ns)
			p->worst_ns = ns;
	}
	p->at = best;
	return 0;
}

int pingpong_measure(struct pingpong *p, enum pingpong_way way, size_t bytes,
		     const struct bench_plan *plan, struct bench_result *out)
{
	struct bench_op op = { .run = bytes ? with_data : flag_only, .arg = p };
	uint64_t first = p->next, last;
	int ret;

	p->way = way;
	p->bytes = bytes;
	if (bytes % 8 || bytes > p->max)
		return fail(p, EINVAL, "%zu bytes of data: not a multiple of 8, or more than %zu",
			    bytes, p->max);
	ret = start(p);
	if (ret < 0)
		return ret;
	ret = op.run(p); /* the launch is not a part of it */
	if (ret == 0) {
		ret = bench_run(&op, 1, plan, out);
		if (ret == -ENOMEM && !*p->error)
			fail(p, ENOMEM, "out of memory for the times");
	}
	if (ret == 0)
		ret = check_all(p);
	ret = finish(p, first, ret);
	last = bytes ? bytes - 8 : 0;
	((uint64_t *)(void *)p->data)[0] = gpu_mix(1);
	((uint64_t *)(void *)(p->data + last))[0] = gpu_mix(last / 8 + 1);
	return ret;
}
