/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Figures of known machines, as 'barway tune' wrote them there. Command, machine and date are in
 * each one's source line; docs/measured.md has more of them.
 */
#include <stdio.h>
#include <string.h>

#include "copy/plan.h"

static const struct {
	const char *gpu; /* how the device's name begins */
	const char *text;
} plans[] = {
	{ "NVIDIA H200",
	  "barway-plan 1\n"
	  "source built in: H200, PCIe 5.0 x16, driver 580.159.04, 2026-11-30\n"
	  "threads 5\n"
	  "cpu to any 64:118 256:140 1024:185 4096:299 8192:464 16384:800 32768:1465 "
	  "65536:3205 131072:6289 262144:12453 524288:27647 1048576:60057 "
	  "4194304:265781 16777216:992750 67108864:4177176\n"
	  "cpu from any 64:1030 256:1047 1024:1102 4096:4050 8192:8220 16384:16325 "
	  "32768:32805 65536:66741\n"
	  "ce to pinned 64:6095 256:6240 1024:6392 4096:7990 8192:8380 16384:9502 "
	  "32768:8913 65536:9370 131072:10712 262144:13291 524288:18012 1048576:27689 "
	  "4194304:84733 16777216:313822 67108864:1267185\n"
	  "ce from pinned 64:7243 256:7308 1024:7355 4096:7408 8192:7553 16384:7539 "
	  "32768:7904 65536:8506 131072:9626 262144:11906 524288:16561 1048576:26018 "
	  "4194304:83161 16777216:310141 67108864:1295861\n"
	  "ce-helped to pageable 64:6121 256:6355 1024:6233 4096:6525 8192:6786 "
	  "16384:7896 32768:9804 65536:14432 131072:18111 262144:23715 524288:37554 "
	  "1048576:71681 4194304:254601 16777216:920187 67108864:3542458\n"
	  "ce-helped from pageable 64:14091 256:14134 1024:14189 4096:14823 8192:15533 "
	  "16384:16457 32768:15522 65536:12930 131072:15714 262144:22220 524288:34069 "
	  "1048576:59040 4194304:229069 16777216:773244 67108864:3033715\n"
	  "ce to pageable 65536:14280 131072:19950 262144:28260 524288:44860 "
	  "1048576:82430 4194304:412290 16777216:1615600 67108864:6495700\n"
	  "ce from pageable 65536:12900 131072:20036 262144:34310 1048576:137501 "
	  "4194304:364594 16777216:1263417 67108864:5337514\n"
	  "threads to pageable 16384:1615 32768:1881 65536:2665 131072:4082 "
	  "262144:7776 524288:15509 1048576:33098 4194304:123446 16777216:502752 "
	  "67108864:1994965\n"
	  "threads to pinned 16384:1778 32768:2145 65536:2805 131072:4298 262144:7937 "
	  "524288:15561 1048576:32586 4194304:123602 16777216:500458 67108864:1995407\n"
	  "threads from pageable 4096:3481 8192:6856 16384:8883 32768:13293 "
	  "65536:20777 131072:39414 262144:75232 524288:142583 1048576:297754 "
	  "4194304:1283548 16777216:5488226 67108864:21503109\n"
	  "threads from pinned 4096:3082 8192:6011 16384:8961 32768:13345 65536:20364 "
	  "131072:37012 262144:70311 524288:131821\n"
	  "resident to pinned 64:4450 256:4566 1024:4618 4096:5292 8192:5409 "
	  "16384:5212 32768:5910 65536:6392 131072:8428 262144:11632 524288:17809 "
	  "1048576:27392 4194304:91890 16777216:453349 67108864:1523747\n"
	  "resident from pinned 64:3384 256:3425 1024:3436 4096:3769 8192:3845 "
	  "16384:4008 32768:4416 65536:5222 131072:6742 262144:9770 524288:16055 "
	  "1048576:28430 4194304:102970 16777216:442851 67108864:1706922\n" },
};

static const struct bw_plan least = {
	.source = "none: no memory for a plan",
	.curve[BW_METHOD_CPU] = {
		{ { .n = 1, .bytes = { 1 }, .ns = { 1000 } },
		  { .n = 1, .bytes = { 1 }, .ns = { 1000 } } },
		{ { .n = 1, .bytes = { 1 }, .ns = { 1000 } },
		  { .n = 1, .bytes = { 1 }, .ns = { 1000 } } },
	},
	.cpu_limit = {
		{ UINT32_MAX, UINT32_MAX }, { UINT32_MAX, UINT32_MAX },
		{ UINT32_MAX, UINT32_MAX }, { UINT32_MAX, UINT32_MAX },
	},
};

const struct bw_plan *bw_plan_least(void)
{
	return &least;
}

void bw_plan_built_in(const struct bw_device *dev, struct bw_plan *plan)
{
	struct bw_sentence kept;

	bw_err_keep(&kept);
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		if (strncmp(dev->name, plans[i].gpu, strlen(plans[i].gpu)))
			continue;
		if (!bw_plan_parse(plans[i].text, plan))
			return;
	}
	if (bw_plan_parse(plans[0].text, plan))
		*plan = least;
	else
		snprintf(plan->source, sizeof(plan->source),
			 "built in, of another machine (H200, PCIe 5.0): run 'barway tune'");
	bw_err_put_back(&kept);
}
