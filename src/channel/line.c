/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/line.h"

#include "mmio/mmio.h"

/* The thread sanitizer sees the acquiring loads of the C way only. */
#if defined(__SANITIZE_THREAD__)
#define C_ONLY 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define C_ONLY 1
#endif
#endif

const struct bw_line_kernel bw_line_c = {
	.put = bw_message_put, .get = bw_line_get, .take = bw_line_take,
};

const struct bw_line_kernel *bw_line_kernel(uint32_t isa)
{
#if defined(__x86_64__) && !defined(C_ONLY)
	if (isa & BW_ISA_AVX512 && __builtin_cpu_supports("avx512dq"))
		return &bw_line_avx512;
#endif
	(void)isa;
	return &bw_line_c;
}
