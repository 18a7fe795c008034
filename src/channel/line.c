/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/line.h"

#include "core/tsan.h"
#include "mmio/mmio.h"

const struct bw_line_kernel bw_line_c = {
	.put = bw_message_put, .get = bw_line_get, .take = bw_line_take,
};

const struct bw_line_kernel *bw_line_kernel(uint32_t isa)
{
#if defined(__x86_64__) && !defined(BW_TSAN) /* which sees the acquiring loads of C only */
	if (isa & BW_ISA_AVX512 && __builtin_cpu_supports("avx512dq"))
		return &bw_line_avx512;
#endif
	(void)isa;
	return &bw_line_c;
}
