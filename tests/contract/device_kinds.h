/* SPDX-License-Identifier: BSD-3-Clause */
/* For the contract tests of struct bw_device_ops: each kind of device that is there. */
#ifndef TEST_DEVICE_KINDS_H
#define TEST_DEVICE_KINDS_H

#include <errno.h>
#include <pthread.h>

#include "core/param.h"
#include "device/device.h"
#include "test.h"

static const struct bw_device_ops *ops; /* the kind that is tested, */
static struct bw_device **list;         /* and its devices */
static int count;

/* Runs @fn on each kind that has a device; skipped where there is none at all. */
static inline void each_kind(void (*fn)(struct bw_device *dev))
{
	char reasons[512] = "";
	struct bw_reason why;
	size_t n = 0;
	bool any = false;

	for (unsigned i = 0; bw_device_kinds[i]; i++) {
		ops = bw_device_kinds[i];
		why.text[0] = 0;
		count = ops->enumerate(&list, &why);
		if (count <= 0) {
			n += (size_t)snprintf(reasons + n, sizeof(reasons) - n, "%s%s: %.200s",
					      n ? "; " : "", ops->name, why.text);
			CHECK(*why.text);
			continue;
		}
		any = true;
		for (int k = 0; k < count && k < 2; k++) {
			CHECK_EQ(ops->activate(list[k]), 0);
			fn(list[k]);
			ops->deactivate(list[k]);
		}
	}
	if (!any)
		SKIP("%s", reasons);
}

static inline uint64_t mem_alloc(struct bw_device *dev, size_t bytes)
{
	uint64_t addr = 0;
	int ret = ops->mem_alloc(dev, bytes, &addr);

	if (ret)
		FAIL("%s: %zu bytes: %s", ops->name, bytes, bw_err_text());
	CHECK(addr && !(addr % 4096));
	return addr;
}

static inline int device_main(int argc, char **argv, const struct test_case *cases)
{
	bw_param_set("soft_devices", "2");
	bw_param_set("soft_memory", "64M");
	if (bw_param_load())
		return 1;
	return test_main(argc, argv, cases);
}

#endif
