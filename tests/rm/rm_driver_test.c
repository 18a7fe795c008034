/* SPDX-License-Identifier: BSD-3-Clause */
/* Every known driver branch, with BAR1 mapped whole and by piece: maps and copies. */
#include "rm_test.h"

static void maps_and_copies(void)
{
	struct barway_device_info info = { .size = sizeof(info) };
	struct barway_provider_info p = { .size = sizeof(p) };
	struct barway_device *dev;
	unsigned long long pool;
	uint64_t a, big;
	struct vmm v;

	start();
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_provider_query(ctx, dev, 0, &p));
	CHECK_EQ(p.score, 100);
	witness(1000);
	a = gpu_alloc(100000);
	witness(1000);
	big = gpu_alloc(9u << 20);
	prove(a, 100000, a, 100000, 0);
	prove(a + 65536 + 8, 30000, a, 100000, BARWAY_MAP_UNCACHED);
	prove_ends(big + 3, 8u << 20);
	vmm_alloc(&v, 3, CUF_HANDLE_POSIX_FD, NULL);
	prove_ends(v.addr + VMM_STEP - 5000, VMM_STEP + 10000);
	vmm_free(&v);
	CU_OK(cuMemAllocAsync(&pool, 70000, stream));
	prove(pool, 70000, pool, 70000, 0);
	CU_OK(cuMemFreeAsync(pool, stream));
	OK(barway_device_query(dev, &info));
	CHECK_EQ(info.bar1_total, (uint64_t)strtoul(rm_arg, NULL, 10) << 20);
	CHECK(info.bar1_free > 0 && info.bar1_free <= info.bar1_total);
	check_witnesses("afterwards");
	free_witnesses();
	gpu_free(a);
	gpu_free(big);
	finish();
}

#define DRIVER(v) \
	{ "maps_and_copies " v, maps_and_copies, "FAKENV=driver=" v, "2048" }, \
	{ "maps_and_copies dynamic " v, maps_and_copies, "FAKENV=bar1=dynamic,driver=" v, "256" }, \
	{ "maps_and_copies 64K pages " v, maps_and_copies, \
	  "FAKENV=bar1=dynamic,bar1_mb=128,bar1_page_kb=64,driver=" v, "128" }

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		DRIVER("515.43.04"), DRIVER("515.105.01"), DRIVER("520.61.07"),
		DRIVER("525.147.05"), DRIVER("530.41.03"), DRIVER("535.43.02"),
		DRIVER("535.288.01"), DRIVER("545.29.06"), DRIVER("550.163.01"),
		DRIVER("555.58.02"), DRIVER("560.35.03"), DRIVER("565.77"), DRIVER("570.211.01"),
		DRIVER("575.64.05"), DRIVER("580.159.04"), DRIVER("590.48.01"), DRIVER("595.45.04"),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
