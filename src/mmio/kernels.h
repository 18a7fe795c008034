/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of this folder, one per instruction set, define for the list in select.c.
 *
 * Scores: only the order among those of one caching kind counts. Measured (H200, Xeon of family 6
 * model 207, one thread, 1 MiB to the GPU): 64-byte streaming stores 18-19 GB/s, MOVDIR64B 13.7
 * GB/s; from the GPU, 16-byte streaming loads reach half to three quarters of 64-byte ones. The
 * place of AVX2 above MOVDIR64B is not measured.
 */
#ifndef BW_MMIO_KERNELS_H
#define BW_MMIO_KERNELS_H

#include "mmio/mmio.h"

#define BW_FOR_WC (1u << BW_WC | 1u << BW_UNCACHED)
#define BW_FOR_CACHED (1u << BW_CACHED)

extern const struct bw_mmio_kernel bw_mmio_c;
extern const struct bw_mmio_kernel bw_mmio_shuffle; /* for tests; not listed: map/soft.c */

#if defined(__x86_64__)
extern const struct bw_mmio_kernel bw_mmio_sse2;
extern const struct bw_mmio_kernel bw_mmio_sse2_cached;
extern const struct bw_mmio_kernel bw_mmio_sse41;
extern const struct bw_mmio_kernel bw_mmio_avx2;
extern const struct bw_mmio_kernel bw_mmio_avx2_cached;
extern const struct bw_mmio_kernel bw_mmio_avx512;
extern const struct bw_mmio_kernel bw_mmio_avx512_cached;
extern const struct bw_mmio_kernel bw_mmio_movdir64b;
#elif defined(__aarch64__)
extern const struct bw_mmio_kernel bw_mmio_neon;
#endif

#endif
