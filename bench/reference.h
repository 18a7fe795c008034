/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/reference: the plain loops that the library may never be slower than.
 */
#ifndef BENCH_REFERENCE_H
#define BENCH_REFERENCE_H

#include <stddef.h>

/* To the GPU: memcpy, then the store barrier of the CPU (x86: sfence). */
void bench_reference_to(void *map, const void *src, size_t n);

/*
 * From the GPU: streaming loads of 16 bytes (SSE4.1 movntdqa), plain loads where there are none. An
 * mfence goes before streaming loads: without it they are given what earlier ones left in the CPU's
 * buffers, and read nothing from the GPU (Intel SDM, volume 2, MOVNTDQA).
 */
void bench_reference_from(void *dst, const void *map, size_t n);

/* What the two are on this CPU: "memcpy+sfence", "mfence+movntdqa". */
const char *bench_reference_to_name(void);
const char *bench_reference_from_name(void);

#endif
