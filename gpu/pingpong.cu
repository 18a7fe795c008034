/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu/pingpong: a flag to and fro, with and without data behind it; and a kernel that does
 * nothing.
 */
#include "gpu/kernel.h"
#include "gpu/params.h"

GPU_KERNEL(gpu_empty, gpu_empty, 32)
{
	GPU_UNUSED();
}

/* @want when the flag is that; another: it is to end. */
BARWAY_GPU_FN uint64_t pingpong_wait(uint64_t at, uint64_t want, uint64_t ns)
{
	struct barway_gpu_wait wait;
	uint64_t flag;

	barway_gpu_wait_for(&wait, ns);
	do {
		flag = barway_gpu_ld(at);
		if (flag == want)
			break;
	} while (flag != GPU_PINGPONG_END && !barway_gpu_expired(&wait));
	return flag;
}

GPU_KERNEL(gpu_pingpong, gpu_pingpong, 32)
{
	uint64_t in = GPU_AT(p->in, GPU_PINGPONG_DATA + p->bytes), n = p->first;
	uint64_t out = GPU_AT(p->out, GPU_PINGPONG_DATA + p->bytes), bytes = p->bytes;
	uint64_t result = GPU_AT(p->result, sizeof(struct gpu_result)), ns = p->idle_ns;

	if (!in || !out || !result) {
		GPU_TRAP();
		return;
	}
	if (!bytes) {
		while (!GPU_DEAD() && pingpong_wait(in, n, ns) == n) {
			GPU_ST_HOST(out, n);
			n++;
		}
	} else {
		for (;; n++) {
			/* every thread polls: with one load for all, and no word between them */
			int ended = pingpong_wait(in, n, ns) != n;

			if (GPU_DEAD() || GPU_ANY(ended))
				break;
			GPU_FENCE();
			for (uint64_t at = GPU_LANE() * 8; at < bytes; at += GPU_LANES() * 8)
				GPU_ST_HOST(out + GPU_PINGPONG_DATA + at,
					    barway_gpu_ld(in + GPU_PINGPONG_DATA + at));
			GPU_FENCE();
			GPU_SYNC_WARP();
			if (!GPU_LANE())
				GPU_ST_HOST(out, n);
		}
	}
	if (GPU_THREAD())
		return;
	GPU_ST_HOST(result + offsetof(struct gpu_result, count), n - p->first);
	GPU_FENCE();
	GPU_ST_HOST(result + offsetof(struct gpu_result, done), 1);
}
