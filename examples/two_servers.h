/* SPDX-License-Identifier: BSD-3-Clause */
/* examples/two_servers: what both kernels are given. */
#ifndef TWO_SERVERS_H
#define TWO_SERVERS_H

#include <stdint.h>

struct two_servers {
	uint64_t at;    /* GPU memory: values of eight bytes */
	uint64_t count; /* how many */
};

#endif
