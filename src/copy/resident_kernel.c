/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel for the soft GPU, from the same source; and as PTX: see meson.build. */
#include "copy/resident_int.h"

#include "copy/resident.cu"

extern const char bw_resident_ptx[];

const struct bw_kernel bw_resident_kernel_def = {
	.name = "bw_resident_kernel",
	.ptx = bw_resident_ptx,
	.soft = bw_resident_kernel,
};
