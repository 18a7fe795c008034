/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/kernels.h"

/* As kernels of the soft GPU. */
#include "gpu/echo.cu"
#include "gpu/pingpong.cu"
#include "gpu/traffic.cu"
#include "gpu/work.cu"

/* And as PTX: see meson.build. */
extern const char gpu_echo_ptx[], gpu_pingpong_ptx[], gpu_traffic_ptx[], gpu_work_ptx[];

#define KERNEL(short_name, file) \
	const struct bench_kernel gpu_kernel_##short_name = { \
		.name = "gpu_" #short_name, \
		.ptx = gpu_##file##_ptx, \
		.soft = gpu_##short_name, \
	}

KERNEL(empty, pingpong);
KERNEL(pingpong, pingpong);
KERNEL(echo, echo);
KERNEL(echo_line, echo);
KERNEL(echo_words, echo);
KERNEL(echo_eight_lines, echo);
KERNEL(echo_one_line, echo);
KERNEL(echo_warp, echo);
KERNEL(echo_block, echo);
KERNEL(produce_warp, traffic);
KERNEL(produce_each, traffic);
KERNEL(consume, traffic);
KERNEL(consume_warp, traffic);
KERNEL(consume_each, traffic);
KERNEL(work, work);
