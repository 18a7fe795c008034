/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu/kernels: the kernels of this folder, to be launched with bench/gpu.h on either kind of
 * device.
 */
#ifndef GPU_KERNELS_H
#define GPU_KERNELS_H

#include "bench/gpu.h"
#include "gpu/params.h"

/* The parameter, and how many threads a block may have; warps are whole where there are several. */
extern const struct bench_kernel gpu_kernel_empty;        /* struct gpu_empty; 1 to 32 */
extern const struct bench_kernel gpu_kernel_pingpong;     /* struct gpu_pingpong; 1 or 32 */
extern const struct bench_kernel gpu_kernel_echo;         /* struct gpu_echo; 1 */
extern const struct bench_kernel gpu_kernel_echo_words;   /* struct gpu_echo; 32 */
extern const struct bench_kernel gpu_kernel_echo_eight_lines; /* the same; to 448 bytes */
extern const struct bench_kernel gpu_kernel_echo_one_line;    /* the same; to 56 bytes */
extern const struct bench_kernel gpu_kernel_echo_line;    /* struct gpu_echo; 1; of 16 bytes */
extern const struct bench_kernel gpu_kernel_echo_warp;    /* struct gpu_echo; 32 */
extern const struct bench_kernel gpu_kernel_echo_block;   /* struct gpu_echo; 32 to 256 */
extern const struct bench_kernel gpu_kernel_produce_warp; /* struct gpu_traffic; 32 to 1024 */
extern const struct bench_kernel gpu_kernel_produce_each; /* struct gpu_traffic; 32 to 1024 */
extern const struct bench_kernel gpu_kernel_consume;      /* struct gpu_traffic; 1 */
extern const struct bench_kernel gpu_kernel_consume_warp; /* struct gpu_traffic; 32 */
extern const struct bench_kernel gpu_kernel_consume_each; /* struct gpu_traffic; 32 */
extern const struct bench_kernel gpu_kernel_work;         /* struct gpu_work; 32 to 256 */

#endif
