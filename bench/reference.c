/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/reference.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <smmintrin.h>
#define BARRIER_NAME "sfence"
#define STORE_BARRIER() __asm__ volatile("sfence" ::: "memory")
#elif defined(__aarch64__)
#define BARRIER_NAME "dsb st"
#define STORE_BARRIER() __asm__ volatile("dsb st" ::: "memory")
#elif defined(__powerpc64__)
#define BARRIER_NAME "sync"
#define STORE_BARRIER() __asm__ volatile("sync" ::: "memory")
#else
#define BARRIER_NAME "barrier"
#define STORE_BARRIER() __sync_synchronize()
#endif

__attribute__((noinline)) void bench_reference_to(void *map, const void *src, size_t n)
{
	memcpy(map, src, n);
	STORE_BARRIER();
}

const char *bench_reference_to_name(void)
{
	return "memcpy+" BARRIER_NAME;
}

#if defined(__x86_64__)

/* movntdqa wants its address aligned: plain loads up to there and for what is left at the end. */
__attribute__((target("sse4.1")))
static void from_sse41(void *dst, const void *map, size_t n)
{
	unsigned char *d = dst;
	const unsigned char *s = map;
	size_t head = -(uintptr_t)s % 16;

	_mm_mfence();
	if (head > n)
		head = n;
	memcpy(d, s, head);
	d += head;
	s += head;
	n -= head;
	for (; n >= 16; n -= 16, d += 16, s += 16)
		_mm_storeu_si128((__m128i *)d, _mm_stream_load_si128((__m128i *)(uintptr_t)s));
	memcpy(d, s, n);
}

__attribute__((noinline)) void bench_reference_from(void *dst, const void *map, size_t n)
{
	if (__builtin_cpu_supports("sse4.1"))
		from_sse41(dst, map, n);
	else
		memcpy(dst, map, n);
}

const char *bench_reference_from_name(void)
{
	return __builtin_cpu_supports("sse4.1") ? "mfence+movntdqa" : "memcpy";
}

#else

__attribute__((noinline)) void bench_reference_from(void *dst, const void *map, size_t n)
{
	memcpy(dst, map, n);
}

const char *bench_reference_from_name(void)
{
	return "memcpy";
}

#endif
