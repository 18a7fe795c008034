/* SPDX-License-Identifier: BSD-3-Clause */
/* examples/two_servers: kernel A computes x, and kernel B doubles what it received. */
#include "gpu/kernel.h"
#include "examples/two_servers.h"

GPU_KERNEL(two_servers_compute, two_servers, 32)
{
	uint64_t *x = (uint64_t *)GPU_AT(p->at, p->count * 8);

	if (!x) {
		GPU_TRAP();
		return;
	}
	for (uint64_t i = GPU_LANE(); i < p->count; i += GPU_LANES())
		x[i] = i + 1;
}

GPU_KERNEL(two_servers_double, two_servers, 32)
{
	uint64_t *y = (uint64_t *)GPU_AT(p->at, p->count * 8);

	if (!y) {
		GPU_TRAP();
		return;
	}
	for (uint64_t i = GPU_LANE(); i < p->count; i += GPU_LANES())
		y[i] *= 2;
}
