/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the contract of struct bw_copy_method share. */
#ifndef COPY_TEST_H
#define COPY_TEST_H

#include "copy/copy.h"

#include <barway.h>
#include <errno.h>

#include "api/api.h"
#include "copy/resident.h"
#include "test.h"

#define BYTES (4u << 20)
#define GUARD 96

static const struct bw_copy_method *method;
static unsigned helpers = 3;
static struct barway_context *ctx;
static struct bw_device *device;
static struct barway_mapping *handle;
static struct bw_mapping *m;
static bool only_pinned; /* the method takes no pageable memory: @host and @back are pinned */
/* each on pages of its own, as whole pages are pinned */
static _Alignas(65536) unsigned char image[BYTES], back[BYTES], host[BYTES + 2 * GUARD];

static inline uint64_t alloc(size_t bytes)
{
	uint64_t addr;

	if (device->ops->mem_alloc(device, bytes, &addr))
		FAIL("%zu bytes: %s", bytes, bw_err_text());
	return addr;
}

static inline void map(uint64_t addr, size_t bytes)
{
	if (barway_map(ctx, addr, bytes, NULL, &handle))
		FAIL("%s", barway_errmsg());
	m = bw_mapping_get(handle);
	CHECK(m);
}

static inline void unmap(void)
{
	CHECK_EQ(barway_unmap(handle), 0);
}

static inline void pin(void)
{
	uint64_t addr;

	if (device->ops->host_register(device, host, sizeof(host), &addr) ||
	    device->ops->host_register(device, back, sizeof(back), &addr))
		FAIL("%s", bw_err_text());
}

static inline void unpin(void)
{
	CHECK_EQ(device->ops->host_unregister(host), 0);
	CHECK_EQ(device->ops->host_unregister(back), 0);
}

/* Can it copy memory of the device's that is mapped? */
static inline bool can(const struct bw_copy_method *by, bool pinned)
{
	struct bw_copy copy = { .map = m, .host = host, .bytes = 64, .pinned = pinned,
				.direction = BW_TO_GPU };
	struct bw_reason why;

	return by->score(&copy, &why) >= 0;
}

/* Unless it can do nothing here: without helpers, say. */
static inline void with_method(void (*fn)(void))
{
	uint64_t a = alloc(4096);
	bool pageable, pinned;

	map(a, 4096);
	pageable = can(method, false);
	pinned = can(method, true);
	unmap();
	CHECK_EQ(device->ops->mem_free(a), 0);
	if (!pageable && !pinned)
		return;
	only_pinned = !pageable;
	if (only_pinned)
		pin();
	fn();
	if (only_pinned)
		unpin();
	only_pinned = false;
}

/* Runs @fn with each method on the first two devices of each kind whose memory can be mapped. */
static inline void each(void (*fn)(void))
{
	char reasons[400] = "";
	bool any = false, resident;

	if (only_pinned) { /* what a failed case left */
		device->ops->host_unregister(host);
		device->ops->host_unregister(back);
	}
	only_pinned = false;
	barway_close(ctx);
	for (unsigned k = 0; bw_device_kinds[k]; k++) {
		struct barway_open_options o = { .size = sizeof(o) };
		struct bw_device **list;
		struct bw_reason why;
		int n = bw_device_kinds[k]->enumerate(&list, &why);

		o.devices = bw_device_kinds[k]->kind;
		o.copy_threads = helpers;
		CHECK_EQ(barway_open(&o, &ctx), 0);
		for (int d = 0; d < n && d < 2; d++) {
			struct bw_segment seg;
			uint64_t a;

			device = list[d];
			CHECK_EQ(device->ops->activate(device), 0);
			a = alloc(4096);
			CHECK_EQ(device->ops->resolve(a, &seg), 0);
			if (!bw_mappable(&seg, &why)) {
				snprintf(reasons, sizeof(reasons), "%s: %.300s", device->name,
					 why.text);
				CHECK_EQ(device->ops->mem_free(a), 0);
				continue;
			}
			CHECK_EQ(device->ops->mem_free(a), 0);
			any = true;
			resident = !bw_resident_start(device, &(struct bw_map_policy){ 0 }, 0, 0);
			CHECK(resident || device->ops->kind != BW_DEVICE_SOFT);
			for (unsigned i = 0; bw_copy_methods[i]; i++) {
				method = bw_copy_methods[i];
				with_method(fn);
			}
			if (resident)
				CHECK_EQ(bw_resident_stop(device), 0);
			device->ops->deactivate(device);
		}
		CHECK_EQ(barway_close(ctx), 0);
		ctx = NULL;
	}
	if (!any)
		SKIP("%s", reasons);
}

/* The memory, segment by segment, by the copy engine. */
static inline void gpu(bool write, uint64_t addr, unsigned char *p, size_t bytes)
{
	while (bytes) {
		struct bw_segment seg;
		size_t n;
		int ret;

		CHECK_EQ(device->ops->resolve(addr, &seg), 0);
		n = seg.base + seg.bytes - addr < bytes ? seg.base + seg.bytes - addr : bytes;
		ret = write ? device->ops->ce_copy_to(seg.dev, addr, p, n) :
			      device->ops->ce_copy_from(seg.dev, p, addr, n);
		if (ret)
			FAIL("%s", bw_err_text());
		addr += n;
		p += n;
		bytes -= n;
	}
}

static inline int to_by(const struct bw_copy_method *by, size_t offset, void *from, size_t n)
{
	struct bw_copy copy = { .map = m, .offset = offset, .host = from, .bytes = n,
				.direction = BW_TO_GPU };

	bw_copy_find_host(&copy);
	return by->copy(&copy);
}

static inline int from_by(const struct bw_copy_method *by, void *to, size_t offset, size_t n)
{
	struct bw_copy copy = { .map = m, .offset = offset, .host = to, .bytes = n,
				.direction = BW_FROM_GPU };

	bw_copy_find_host(&copy);
	return by->copy(&copy);
}

static inline int copy_main(int argc, char **argv, const struct test_case *cases)
{
	barway_param_set("soft_devices", "2");
	barway_param_set("soft_memory", "128M");
	barway_param_set("soft_bar1", "96M");
	barway_param_set("log", "none");
	return test_main(argc, argv, cases);
}

#endif
