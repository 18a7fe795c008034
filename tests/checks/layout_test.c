/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public structs and constants as programs were built against them, on LP64. A struct grows at
 * its end only: a new field is a new line here; a line that has to change is a break of the ABI.
 */
#include <stddef.h>

#include "barway.h"
#include "test.h"

#define FIELD(type, field, offset, bytes) do { \
	CHECK_EQ(offsetof(struct type, field), offset); \
	CHECK_EQ(sizeof(((struct type *)0)->field), bytes); \
} while (0)

static void param_info(void)
{
	FIELD(barway_param_info, size, 0, 8);
	FIELD(barway_param_info, name, 8, 8);
	FIELD(barway_param_info, value, 16, 8);
	FIELD(barway_param_info, dflt, 24, 8);
	FIELD(barway_param_info, help, 32, 8);
	FIELD(barway_param_info, source, 40, 8);
	CHECK_EQ(sizeof(struct barway_param_info), 48);
}

static void open_options(void)
{
	FIELD(barway_open_options, size, 0, 8);
	FIELD(barway_open_options, devices, 8, 4);
	FIELD(barway_open_options, fallback, 12, 4);
	FIELD(barway_open_options, providers, 16, 8);
	CHECK_EQ(sizeof(struct barway_open_options), 24);
}

static void device_info(void)
{
	FIELD(barway_device_info, size, 0, 8);
	FIELD(barway_device_info, kind, 8, 4);
	FIELD(barway_device_info, index, 12, 4);
	FIELD(barway_device_info, name, 16, 96);
	FIELD(barway_device_info, pci, 112, 16);
	FIELD(barway_device_info, uuid, 128, 48);
	FIELD(barway_device_info, driver, 176, 96);
	FIELD(barway_device_info, numa_node, 272, 4);
	FIELD(barway_device_info, near_cpus, 276, 256);
	FIELD(barway_device_info, memory_total, 536, 8);
	FIELD(barway_device_info, memory_free, 544, 8);
	FIELD(barway_device_info, bar1_total, 552, 8);
	FIELD(barway_device_info, bar1_free, 560, 8);
	FIELD(barway_device_info, store_kernel, 568, 24);
	FIELD(barway_device_info, load_kernel, 592, 24);
	CHECK_EQ(sizeof(struct barway_device_info), 616);
}

static void provider_info(void)
{
	FIELD(barway_provider_info, size, 0, 8);
	FIELD(barway_provider_info, name, 8, 16);
	FIELD(barway_provider_info, score, 24, 4);
	FIELD(barway_provider_info, reason, 28, 512);
	FIELD(barway_provider_info, keeps_alive, 540, 4);
	CHECK_EQ(sizeof(struct barway_provider_info), 544);
}

static void pointer_info(void)
{
	FIELD(barway_pointer_info, size, 0, 8);
	FIELD(barway_pointer_info, kind, 8, 4);
	FIELD(barway_pointer_info, mappable, 12, 4);
	FIELD(barway_pointer_info, device, 16, 8);
	FIELD(barway_pointer_info, base, 24, 8);
	FIELD(barway_pointer_info, bytes, 32, 8);
	FIELD(barway_pointer_info, id, 40, 8);
	CHECK_EQ(sizeof(struct barway_pointer_info), 48);
}

static void map_options(void)
{
	FIELD(barway_map_options, size, 0, 8);
	FIELD(barway_map_options, providers, 8, 8);
	FIELD(barway_map_options, flags, 16, 4);
	FIELD(barway_map_options, reserved, 20, 4);
	CHECK_EQ(sizeof(struct barway_map_options), 24);
}

static void mapping_info(void)
{
	FIELD(barway_mapping_info, size, 0, 8);
	FIELD(barway_mapping_info, ptr, 8, 8);
	FIELD(barway_mapping_info, addr, 16, 8);
	FIELD(barway_mapping_info, bytes, 24, 8);
	FIELD(barway_mapping_info, device, 32, 8);
	FIELD(barway_mapping_info, pieces, 40, 4);
	FIELD(barway_mapping_info, caching, 44, 4);
	FIELD(barway_mapping_info, keeps_alive, 48, 4);
	FIELD(barway_mapping_info, from_cache, 52, 4);
	FIELD(barway_mapping_info, provider, 56, 16);
	FIELD(barway_mapping_info, route, 72, 24);
	FIELD(barway_mapping_info, store_kernel, 96, 24);
	FIELD(barway_mapping_info, load_kernel, 120, 24);
	FIELD(barway_mapping_info, reason, 144, 512);
	CHECK_EQ(sizeof(struct barway_mapping_info), 656);
}

static void counters(void)
{
	FIELD(barway_counters, size, 0, 8);
	FIELD(barway_counters, maps, 8, 8);
	FIELD(barway_counters, map_errors, 16, 8);
	FIELD(barway_counters, unmaps, 24, 8);
	FIELD(barway_counters, cache_hits, 32, 8);
	FIELD(barway_counters, cache_misses, 40, 8);
	FIELD(barway_counters, cache_evictions, 48, 8);
	FIELD(barway_counters, cache_stale, 56, 8);
	FIELD(barway_counters, cache_bytes, 64, 8);
	FIELD(barway_counters, live_mappings, 72, 8);
	FIELD(barway_counters, live_bytes, 80, 8);
	FIELD(barway_counters, self_tests, 88, 8);
	FIELD(barway_counters, self_test_failures, 96, 8);
	FIELD(barway_counters, driver_maps, 104, 8);
	FIELD(barway_counters, driver_unmaps, 112, 8);
	CHECK_EQ(sizeof(struct barway_counters), 120);
}

static void constants(void)
{
	CHECK_EQ(BARWAY_LOG_ERROR, 1);
	CHECK_EQ(BARWAY_LOG_WARN, 2);
	CHECK_EQ(BARWAY_LOG_INFO, 3);
	CHECK_EQ(BARWAY_LOG_DEBUG, 4);
	CHECK_EQ(BARWAY_DEVICES_AUTO, 0);
	CHECK_EQ(BARWAY_DEVICES_CUDA, 1);
	CHECK_EQ(BARWAY_DEVICES_SOFT, 2);
	CHECK_EQ(BARWAY_FALLBACK_REPORT, 0);
	CHECK_EQ(BARWAY_FALLBACK_DENY, 1);
	CHECK_EQ(BARWAY_FALLBACK_QUIET, 2);
	CHECK_EQ(BARWAY_DEVICE_CUDA, 1);
	CHECK_EQ(BARWAY_DEVICE_SOFT, 2);
	CHECK_EQ(BARWAY_MEM_HOST, 0);
	CHECK_EQ(BARWAY_MEM_DEVICE, 1);
	CHECK_EQ(BARWAY_MEM_VMM, 2);
	CHECK_EQ(BARWAY_MEM_POOL, 3);
	CHECK_EQ(BARWAY_MEM_MANAGED, 4);
	CHECK_EQ(BARWAY_MEM_PINNED, 5);
	CHECK_EQ(BARWAY_MEM_IMPORTED, 6);
	CHECK_EQ(BARWAY_MEM_HOST_VMM, 7);
	CHECK_EQ(BARWAY_WRITE_COMBINED, 1);
	CHECK_EQ(BARWAY_CACHED, 2);
	CHECK_EQ(BARWAY_UNCACHED, 3);
	CHECK_EQ(BARWAY_METHOD_CPU, 1);
	CHECK_EQ(BARWAY_METHOD_CE, 2);
	CHECK_EQ(BARWAY_MAP_UNCACHED, 1);
	CHECK_EQ(BARWAY_RELEASE_FORCE, 1);
}

static void version(void)
{
	unsigned major, minor, patch;

	CHECK_EQ(barway_version(), BARWAY_VERSION_MAJOR << 16 | BARWAY_VERSION_MINOR << 8 |
		 BARWAY_VERSION_PATCH);
	CHECK_EQ(sscanf(BUILD_VERSION, "%u.%u.%u", &major, &minor, &patch), 3);
	CHECK_EQ(barway_version(), major << 16 | minor << 8 | patch);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(param_info),
		TEST(open_options),
		TEST(device_info),
		TEST(provider_info),
		TEST(pointer_info),
		TEST(map_options),
		TEST(mapping_info),
		TEST(counters),
		TEST(constants),
		TEST(version),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
