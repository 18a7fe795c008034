/* SPDX-License-Identifier: BSD-3-Clause */
/* Small copies on the soft GPU, each case a function of its own, to be counted: instructions.sh. */
#include <barway.h>
#include <stdio.h>

#define COPIES 100

static struct barway_mapping *map;
static unsigned char host[2048];
static int wrong;

/* By way of the library's exports, as programs do. Both sides aligned. */
#define CASE(bytes)                                                                             \
	__attribute__((noinline)) void count_to_##bytes(void);                                  \
	void count_to_##bytes(void)                                                             \
	{                                                                                       \
		for (int i = 0; i < COPIES; i++)                                                \
			wrong |= barway_copy_to(map, 64, host + 64, bytes);                     \
	}                                                                                       \
	__attribute__((noinline)) void count_from_##bytes(void);                                \
	void count_from_##bytes(void)                                                           \
	{                                                                                       \
		for (int i = 0; i < COPIES; i++)                                                \
			wrong |= barway_copy_from(map, host + 64, 64, bytes);                   \
	}

CASE(1)
CASE(8)
CASE(64)
CASE(100)
CASE(256)
CASE(1024)

int main(void)
{
	static void (*const cases[])(void) = {
		count_to_1, count_to_8, count_to_64, count_to_100, count_to_256, count_to_1024,
		count_from_1, count_from_8, count_from_64, count_from_100, count_from_256,
		count_from_1024,
	};
	struct barway_open_options options = { .size = sizeof(options),
					       .devices = BARWAY_DEVICES_SOFT };
	struct barway_context *ctx;
	struct barway_device *gpu;
	uint64_t addr;

	if (barway_open(&options, &ctx) || barway_device_get(ctx, 0, &gpu) ||
	    barway_mem_alloc(gpu, 65536, &addr) || barway_map(ctx, addr, 65536, NULL, &map)) {
		fprintf(stderr, "instructions: %s\n", barway_errmsg());
		return 1;
	}
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cases[i]();
	barway_close(ctx);
	return wrong ? 1 : 0;
}
