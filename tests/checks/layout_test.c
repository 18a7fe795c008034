/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public structs and constants as programs were built against them, on LP64. A struct grows at
 * its end only: a new field is a new line here; a line that has to change is a break of the ABI.
 */
#include <errno.h>
#include <stddef.h>

#include "barway.h"
#include "barway_net.h"
#include "barway_device.cuh"
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
	FIELD(barway_open_options, copy_method, 24, 4);
	FIELD(barway_open_options, copy_threads, 28, 4);
	FIELD(barway_open_options, copy_cpus, 32, 8);
	CHECK_EQ(sizeof(struct barway_open_options), 40);
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

static void channel_options(void)
{
	FIELD(barway_channel_options, size, 0, 8);
	FIELD(barway_channel_options, to_gpu_bytes, 8, 4);
	FIELD(barway_channel_options, to_cpu_bytes, 12, 4);
	FIELD(barway_channel_options, launch, 16, 8);
	FIELD(barway_channel_options, launch_arg, 24, 8);
	FIELD(barway_channel_options, spin_us, 32, 4);
	FIELD(barway_channel_options, reserved, 36, 4);
	CHECK_EQ(sizeof(struct barway_channel_options), 40);
}

static void channel_info(void)
{
	FIELD(barway_channel_info, size, 0, 8);
	FIELD(barway_channel_info, sent, 8, 8);
	FIELD(barway_channel_info, sent_taken, 16, 8);
	FIELD(barway_channel_info, received, 24, 8);
	FIELD(barway_channel_info, messages_sent, 32, 8);
	FIELD(barway_channel_info, messages_received, 40, 8);
	FIELD(barway_channel_info, launches, 48, 8);
	FIELD(barway_channel_info, left, 56, 8);
	FIELD(barway_channel_info, to_gpu_bytes, 64, 4);
	FIELD(barway_channel_info, to_cpu_bytes, 68, 4);
	FIELD(barway_channel_info, path, 72, 512);
	CHECK_EQ(sizeof(struct barway_channel_info), 584);
}

/* What kernels were compiled with, which may be older than the library. */
static void channel_memory(void)
{
	FIELD(barway_channel_gpu, gpu, 0, 8);
	FIELD(barway_channel_gpu, host, 8, 8);
	FIELD(barway_channel_gpu, rx_lines, 16, 4);
	FIELD(barway_channel_gpu, tx_lines, 20, 4);
	FIELD(barway_channel_gpu, reserved, 24, 16);
	CHECK_EQ(sizeof(struct barway_channel_gpu), 40);
	CHECK_EQ(BARWAY_LINE_BYTES, 64);
	CHECK_EQ(BARWAY_LINE_WORDS, 8);
	CHECK_EQ(BARWAY_LINE_DATA, 56);
	CHECK_EQ(BARWAY_LINE_MORE, 0xfff);
	CHECK_EQ(BARWAY_MESSAGE_MAX, 1024);
	CHECK_EQ(BARWAY_MESSAGE_LINES, 19);
	CHECK_EQ(BARWAY_MESSAGE_LINES_OF(0), 1);
	CHECK_EQ(BARWAY_MESSAGE_LINES_OF(56), 1);
	CHECK_EQ(BARWAY_MESSAGE_LINES_OF(57), 2);
	CHECK_EQ(BARWAY_MESSAGE_LINES_OF(1024), 19);
	CHECK_EQ(BARWAY_TAG_MAX, 4095);
	CHECK_EQ(BARWAY_RING_LINES_MIN, 64);
	CHECK_EQ(BARWAY_RING_LINES_MAX, 1 << 20);
	CHECK_EQ(BARWAY_GPU_TX_CREDIT, 0);
	CHECK_EQ(BARWAY_GPU_CLOSED, 8);
	CHECK_EQ(BARWAY_GPU_TX_RESERVED, 128);
	CHECK_EQ(BARWAY_GPU_TX_HEAD, 192);
	CHECK_EQ(BARWAY_GPU_RX_TAIL, 256);
	CHECK_EQ(BARWAY_GPU_RX_SAID, 264);
	CHECK_EQ(BARWAY_GPU_LEFT, 272);
	CHECK_EQ(BARWAY_GPU_TWIN, 280);
	CHECK_EQ(BARWAY_GPU_RING, 4096);
	CHECK_EQ(BARWAY_RING_TWIN_LINES, 64);
	CHECK_EQ(BARWAY_RING_TWIN, 4096);
	CHECK_EQ(BARWAY_GPU_BYTES(64), 12288);
	CHECK_EQ(BARWAY_GPU_BYTES(128), 12288);
	CHECK_EQ(BARWAY_GPU_BYTES(1024), 69632);
	CHECK_EQ(BARWAY_HOST_RX_CREDIT, 0);
	CHECK_EQ(BARWAY_HOST_LEFT, 64);
	CHECK_EQ(BARWAY_HOST_CLOSED, 72);
	CHECK_EQ(BARWAY_HOST_RING, 4096);
	CHECK_EQ(BARWAY_CREDIT_PART, 4);
	CHECK_EQ(BARWAY_LINE_MARK(0, 64), 1);
	CHECK_EQ(BARWAY_LINE_MARK(63, 64), 1);
	CHECK_EQ(BARWAY_LINE_MARK(64, 64), 0);
	CHECK_EQ(BARWAY_LINE_MARK(128, 64), 1);
}

static void piece(void)
{
	FIELD(barway_piece, offset, 0, 8);
	FIELD(barway_piece, host, 8, 8);
	FIELD(barway_piece, bytes, 16, 8);
	CHECK_EQ(sizeof(struct barway_piece), 24);
}

static void plan_info(void)
{
	FIELD(barway_plan_info, size, 0, 8);
	FIELD(barway_plan_info, method, 8, 4);
	FIELD(barway_plan_info, host_kind, 12, 4);
	FIELD(barway_plan_info, estimate_ns, 16, 8);
	FIELD(barway_plan_info, name, 24, 16);
	FIELD(barway_plan_info, source, 40, 96);
	FIELD(barway_plan_info, reason, 136, 512);
	FIELD(barway_plan_info, file, 648, 512);
	FIELD(barway_plan_info, ignored, 1160, 512);
	CHECK_EQ(sizeof(struct barway_plan_info), 1672);
}

static void tune_point(void)
{
	FIELD(barway_tune_point, size, 0, 8);
	FIELD(barway_tune_point, direction, 8, 4);
	FIELD(barway_tune_point, method, 12, 4);
	FIELD(barway_tune_point, pinned, 16, 4);
	FIELD(barway_tune_point, threads, 20, 4);
	FIELD(barway_tune_point, bytes, 24, 8);
	FIELD(barway_tune_point, ns, 32, 8);
	FIELD(barway_tune_point, done, 40, 4);
	FIELD(barway_tune_point, total, 44, 4);
	FIELD(barway_tune_point, min_ns, 48, 8);
	FIELD(barway_tune_point, p99_ns, 56, 8);
	CHECK_EQ(sizeof(struct barway_tune_point), 64);
}

static void resident_options(void)
{
	FIELD(barway_resident_options, size, 0, 8);
	FIELD(barway_resident_options, idle_us, 8, 4);
	FIELD(barway_resident_options, stay_us, 12, 4);
	CHECK_EQ(sizeof(struct barway_resident_options), 16);
}

/* Of barway_device.cuh: what kernels' callers compare with, errno values of Linux. */
static void kernel_constants(void)
{
	CHECK_EQ(BARWAY_GPU_EAGAIN, -EAGAIN);
	CHECK_EQ(BARWAY_GPU_EINVAL, -EINVAL);
	CHECK_EQ(BARWAY_GPU_EPIPE, -EPIPE);
	CHECK_EQ(BARWAY_GPU_EBADMSG, -EBADMSG);
	CHECK_EQ(BARWAY_GPU_EMSGSIZE, -EMSGSIZE);
	CHECK_EQ(BARWAY_GPU_ETIMEDOUT, -ETIMEDOUT);
	CHECK_EQ(BARWAY_GPU_SOLE, 1);
	CHECK_EQ(BARWAY_GPU_RELAXED, 2);
	CHECK_EQ(BARWAY_GPU_LEAVE_NS, 12000);
	CHECK_EQ(BARWAY_GPU_IDLE_NS, 188000);
	CHECK_EQ(BARWAY_GPU_IDLE_FOR(1000), 500);
	CHECK_EQ(BARWAY_GPU_WAIT_MAX_NS, 10000000000);
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
	CHECK_EQ(BARWAY_METHOD_AUTO, 0);
	CHECK_EQ(BARWAY_METHOD_CPU, 1);
	CHECK_EQ(BARWAY_METHOD_CE, 2);
	CHECK_EQ(BARWAY_METHOD_THREADS, 3);
	CHECK_EQ(BARWAY_METHOD_RESIDENT, 4);
	CHECK_EQ(BARWAY_TO_GPU, 1);
	CHECK_EQ(BARWAY_FROM_GPU, 2);
	CHECK_EQ(BARWAY_COPY_FD, 1);
	CHECK_EQ(BARWAY_MAP_UNCACHED, 1);
	CHECK_EQ(BARWAY_MAP_CLAMP, 2);
	CHECK_EQ(BARWAY_RELEASE_FORCE, 1);
	CHECK_EQ(BARWAY_CHANNEL_READABLE, 1);
	CHECK_EQ(BARWAY_CHANNEL_WRITABLE, 2);
	CHECK_EQ(BARWAY_CHANNEL_CLOSED, 4);
	CHECK_EQ(BARWAY_FOREVER, UINT64_MAX);
}

static void net_endpoint_options(void)
{
	FIELD(barway_endpoint_options, size, 0, 8);
	FIELD(barway_endpoint_options, listen, 8, 8);
	FIELD(barway_endpoint_options, network, 16, 8);
	FIELD(barway_endpoint_options, interfaces, 24, 8);
	FIELD(barway_endpoint_options, secret, 32, 8);
	FIELD(barway_endpoint_options, secret_bytes, 40, 8);
	FIELD(barway_endpoint_options, path, 48, 4);
	FIELD(barway_endpoint_options, rails, 52, 4);
	FIELD(barway_endpoint_options, threads, 56, 4);
	FIELD(barway_endpoint_options, reserved, 60, 4);
	FIELD(barway_endpoint_options, deadline_ns, 64, 8);
	FIELD(barway_endpoint_options, liveness_ns, 72, 8);
	CHECK_EQ(sizeof(struct barway_endpoint_options), 80);
}

static void net_peer_info(void)
{
	FIELD(barway_peer_info, size, 0, 8);
	FIELD(barway_peer_info, name, 8, 64);
	FIELD(barway_peer_info, host, 72, 64);
	FIELD(barway_peer_info, pid, 136, 4);
	FIELD(barway_peer_info, alive, 140, 4);
	FIELD(barway_peer_info, network, 144, 32);
	FIELD(barway_peer_info, rails, 176, 4);
	FIELD(barway_peer_info, reserved, 180, 4);
	FIELD(barway_peer_info, failure, 184, 256);
	CHECK_EQ(sizeof(struct barway_peer_info), 440);
}

static void net_key(void)
{
	FIELD(barway_key, bytes, 0, 64);
	CHECK_EQ(sizeof(struct barway_key), 64);
}

static void net_region_info(void)
{
	FIELD(barway_region_info, size, 0, 8);
	FIELD(barway_region_info, addr, 8, 8);
	FIELD(barway_region_info, bytes, 16, 8);
	FIELD(barway_region_info, access, 24, 4);
	FIELD(barway_region_info, direct, 28, 4);
	FIELD(barway_region_info, rung, 32, 16);
	FIELD(barway_region_info, reason, 48, 512);
	CHECK_EQ(sizeof(struct barway_region_info), 560);
}

static void net_part(void)
{
	FIELD(barway_part, local, 0, 8);
	FIELD(barway_part, remote, 8, 8);
	FIELD(barway_part, bytes, 16, 8);
	CHECK_EQ(sizeof(struct barway_part), 24);
}

static void net_transfer_options(void)
{
	FIELD(barway_transfer_options, size, 0, 8);
	FIELD(barway_transfer_options, operation, 8, 4);
	FIELD(barway_transfer_options, path, 12, 4);
	FIELD(barway_transfer_options, key, 16, 8);
	FIELD(barway_transfer_options, tag, 24, 8);
	FIELD(barway_transfer_options, ignore, 32, 8);
	FIELD(barway_transfer_options, signal, 40, 8);
	FIELD(barway_transfer_options, signal_offset, 48, 8);
	FIELD(barway_transfer_options, signal_value, 56, 8);
	FIELD(barway_transfer_options, deadline_ns, 64, 8);
	CHECK_EQ(sizeof(struct barway_transfer_options), 72);
}

static void net_transfer_info(void)
{
	FIELD(barway_transfer_info, size, 0, 8);
	FIELD(barway_transfer_info, direct, 8, 4);
	FIELD(barway_transfer_info, rails, 12, 4);
	FIELD(barway_transfer_info, bytes, 16, 8);
	FIELD(barway_transfer_info, tag, 24, 8);
	FIELD(barway_transfer_info, posted_ns, 32, 8);
	FIELD(barway_transfer_info, returned_ns, 40, 8);
	FIELD(barway_transfer_info, ready_ns, 48, 8);
	FIELD(barway_transfer_info, local_ns, 56, 8);
	FIELD(barway_transfer_info, arrived_ns, 64, 8);
	FIELD(barway_transfer_info, visible_ns, 72, 8);
	FIELD(barway_transfer_info, chunks, 80, 4);
	FIELD(barway_transfer_info, eager, 84, 4);
	FIELD(barway_transfer_info, path, 88, 512);
	CHECK_EQ(sizeof(struct barway_transfer_info), 600);
}

static void net_net_counters(void)
{
	FIELD(barway_net_counters, size, 0, 8);
	FIELD(barway_net_counters, bytes_out, 8, 8);
	FIELD(barway_net_counters, bytes_in, 16, 8);
	FIELD(barway_net_counters, eager_out, 24, 8);
	FIELD(barway_net_counters, eager_in, 32, 8);
	FIELD(barway_net_counters, chunks_out, 40, 8);
	FIELD(barway_net_counters, chunks_in, 48, 8);
	FIELD(barway_net_counters, done, 56, 8);
	FIELD(barway_net_counters, failed, 64, 8);
	FIELD(barway_net_counters, again, 72, 8);
	FIELD(barway_net_counters, sleeps, 80, 8);
	FIELD(barway_net_counters, wakes, 88, 8);
	FIELD(barway_net_counters, peers_lost, 96, 8);
	FIELD(barway_net_counters, peers_refused, 104, 8);
	FIELD(barway_net_counters, read_backs, 112, 8);
	CHECK_EQ(sizeof(struct barway_net_counters), 120);
}

static void net_constants(void)
{
	CHECK_EQ(BARWAY_PATH_AUTO, 0);
	CHECK_EQ(BARWAY_PATH_STAGED, 1);
	CHECK_EQ(BARWAY_PATH_DIRECT, 2);
	CHECK_EQ(BARWAY_PUT, 1);
	CHECK_EQ(BARWAY_GET, 2);
	CHECK_EQ(BARWAY_SEND, 3);
	CHECK_EQ(BARWAY_RECV, 4);
	CHECK_EQ(BARWAY_LOCAL, 1);
	CHECK_EQ(BARWAY_ARRIVED, 2);
	CHECK_EQ(BARWAY_VISIBLE, 3);
	CHECK_EQ(BARWAY_REGION_PUT, 1);
	CHECK_EQ(BARWAY_REGION_GET, 2);
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
		TEST(channel_options),
		TEST(channel_info),
		TEST(channel_memory),
		TEST(counters),
		TEST(piece),
		TEST(plan_info),
		TEST(tune_point),
		TEST(resident_options),
		TEST(kernel_constants),
		TEST(constants),
		TEST(net_endpoint_options),
		TEST(net_peer_info),
		TEST(net_key),
		TEST(net_region_info),
		TEST(net_part),
		TEST(net_transfer_options),
		TEST(net_transfer_info),
		TEST(net_net_counters),
		TEST(net_constants),
		TEST(version),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
