/* SPDX-License-Identifier: BSD-3-Clause */
/* The soft GPU in a program with thread-local storage as large as the stacks of its threads. */
#include <barway_soft.h>

#include "api_test.h"

#define STACK (1u << 20) /* barway_soft.h */

static _Thread_local unsigned char large[STACK];

/* Most of what a block is promised: where it is not there, this ends the program. */
static void uses_its_stack(struct barway_soft_block *block, void *arg)
{
	unsigned char here[STACK / 4 * 3];
	volatile unsigned char *p = here;
	unsigned sum = 0;

	for (size_t i = 0; i < sizeof(here); i += 1024)
		p[i] = 1;
	for (size_t i = 0; i < sizeof(here); i += 1024)
		sum += p[i];
	large[sizeof(large) - 1] = (unsigned char)barway_soft_block_index(block);
	__atomic_fetch_add((unsigned *)arg, sum + large[sizeof(large) - 1], __ATOMIC_RELAXED);
}

static void with_large_tls(void)
{
	struct barway_soft_stream *s;
	struct barway_mapping *m;
	unsigned sum = 0;
	uint64_t addr;

	begin();
	large[0] = 1;
	addr = alloc(0, GRANULE);
	m = map(addr, GRANULE); /* its self-test has the copy engine work, which is a thread */
	OK(barway_soft_stream_create(gpu[0], &s));
	OK(barway_soft_launch(s, uses_its_stack, 3, &sum, 0));
	OK(barway_soft_stream_sync(s));
	CHECK_EQ(sum, 3 * STACK / 4 * 3 / 1024 + 0 + 1 + 2);
	CHECK(large[0] == 1 && !large[sizeof(large) - 1]);
	OK(barway_soft_stream_destroy(s));
	OK(barway_unmap(m));
	release(addr);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = { TEST(with_large_tls), { 0 } };

	return api_main(argc, argv, cases);
}
