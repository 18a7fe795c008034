/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices, providers, whose memory is this, allocation. */
#include "api_test.h"

/* ---- devices ------------------------------------------------------------------------------- */

static void get(void)
{
	struct barway_device *const none = (struct barway_device *)7, *d = none, *again;

	begin();
	CHECK_EQ(barway_device_count(ctx), 2);
	CHECK(gpu[0] != gpu[1]);
	OK(barway_device_get(ctx, 1, &again));
	CHECK(again == gpu[1]); /* the context's own, for as long as it is open */
	FAILS(barway_device_get(ctx, 2, &d), ENODEV, "no device 2");
	CHECK_HAS(barway_errmsg(),
		  "0 = Barway soft GPU (GPU-soft-0); 1 = Barway soft GPU (GPU-soft-1)");
	FAILS(barway_device_get(ctx, -1, &d), ENODEV, "no device -1");
	FAILS(barway_device_get(ctx, INT32_MAX, &d), ENODEV, "GPU-soft-1");
	FAILS(barway_device_get(ctx, 0, NULL), EINVAL, "out is NULL");
	CHECK(d == none);
	end();
}

static void find(void)
{
	struct barway_device *const none = (struct barway_device *)7, *d = none;
	static const char *const unknown[] = {
		"2",   "17:00.0", "0000:17:00.0", "GPU-hard-0",           "soft", "GPU-soft-00",
		"00x", " 0",      "-1",           "18446744073709551616", "GPU",  "Barway soft GPU"
	};

	begin();
	OK(barway_device_find(ctx, "0", &d));
	CHECK(d == gpu[0]);
	OK(barway_device_find(ctx, "1", &d));
	CHECK(d == gpu[1]);
	OK(barway_device_find(ctx, "GPU-soft-0", &d));
	CHECK(d == gpu[0]);
	OK(barway_device_find(ctx, "gpu-SOFT-1", &d));
	CHECK(d == gpu[1]);
	d = none;
	for (unsigned i = 0; i < N(unknown); i++) {
		FAILS(barway_device_find(ctx, unknown[i], &d), ENODEV, unknown[i]);
		CHECK_HAS(barway_errmsg(), "0 = Barway soft GPU (GPU-soft-0); 1 =");
	}
	FAILS(barway_device_find(ctx, "GPU-soft-", &d), ENODEV, "more than one");
	CHECK_HAS(barway_errmsg(), "1 = Barway soft GPU (GPU-soft-1)");
	FAILS(barway_device_find(ctx, "", &d), EINVAL, "empty");
	FAILS(barway_device_find(ctx, NULL, &d), EINVAL, "empty");
	FAILS(barway_device_find(ctx, "0", NULL), EINVAL, "out is NULL");
	CHECK(d == none);
	end();
}

/* The sentence lists some devices, each whole, and counts the others. */
static void check_list(void)
{
	const char *s = strstr(barway_errmsg(), "0 = ");
	int i = 0, more = 0;
	char one[64];

	CHECK(s);
	for (; i < 16; i++) {
		snprintf(one, sizeof(one), "%s%d = Barway soft GPU (GPU-soft-%d)",
			 i ? "; " : "", i, i);
		if (strncmp(s, one, strlen(one)))
			break;
		s += strlen(one);
	}
	CHECK(i >= 8 && i < 16);
	CHECK_EQ(sscanf(s, "; and %d more", &more), 1);
	CHECK_EQ(more, 16 - i);
	snprintf(one, sizeof(one), "; and %d more", more);
	CHECK_STR(s, one);
}

/* GPU-soft-1 is all of one name and the start of seven. */
static void find_among_16(void)
{
	struct barway_device *d, *want;

	param("soft_devices", "16");
	param("soft_memory", "16M");
	OK(barway_open(NULL, &ctx));
	CHECK_EQ(barway_device_count(ctx), 16);
	for (int i = 0; i < 16; i++) {
		char name[32];

		OK(barway_device_get(ctx, i, &want));
		snprintf(name, sizeof(name), "GPU-soft-%d", i);
		OK(barway_device_find(ctx, name, &d));
		CHECK(d == want);
		snprintf(name, sizeof(name), "%d", i);
		OK(barway_device_find(ctx, name, &d));
		CHECK(d == want);
	}
	FAILS(barway_device_find(ctx, "GPU-s", &d), ENODEV, "more than one");
	FAILS(barway_device_get(ctx, 16, &d), ENODEV, "no device 16");
	check_list();
	FAILS(barway_device_find(ctx, "GPU-none", &d), ENODEV, "GPU-none");
	check_list();
	OK(barway_close(ctx));
}

static void find_exact(void)
{
	if (ctx)
		barway_close(ctx);
	ctx = NULL;
	CHECK_EQ(in_child(find_among_16), 0);
}

static void query(void)
{
	struct {
		struct barway_device_info i;
		char tail[8];
	} big;
	struct barway_device_info i, before;
	struct barway_mapping *m;
	uint64_t a;

	begin();
	for (int k = 0; k < 2; k++) {
		i = device_info((unsigned)k);
		CHECK_EQ(i.kind, BARWAY_DEVICE_SOFT);
		CHECK_EQ(i.index, k);
		CHECK_STR(i.name, "Barway soft GPU");
		CHECK_STR(i.pci, "");
		CHECK_STR(i.uuid, k ? "GPU-soft-1" : "GPU-soft-0");
		CHECK_EQ(i.numa_node, -1);
		CHECK_STR(i.near_cpus, "");
		CHECK_EQ(i.memory_total, MEMORY);
		CHECK_EQ(i.bar1_total, BAR1);
		CHECK(i.memory_free <= i.memory_total && i.bar1_free <= i.bar1_total);
		CHECK(*i.store_kernel && *i.load_kernel);
	}
	before = device_info(1); /* how full it is now */
	a = alloc(1, MIB);
	CHECK_EQ(device_info(1).memory_free, before.memory_free - MIB);
	OK(barway_unmap(map_uncached(a, 1)));
	m = map_uncached(a, MIB);
	CHECK_EQ(device_info(1).bar1_free, before.bar1_free - MIB);
	CHECK_STR(device_info(1).store_kernel, info_of(m).store_kernel);
	CHECK_STR(device_info(1).load_kernel, info_of(m).load_kernel);
	OK(barway_unmap(m));
	release(a);
	CHECK_EQ(device_info(1).bar1_free, before.bar1_free);
	CHECK_EQ(device_info(1).memory_free, before.memory_free);

	memset(&i, 0x44, sizeof(i));
	for (i.size = 0; i.size < 12; i.size++)
		FAILS(barway_device_query(gpu[0], &i), EINVAL, "size");
	i.size = 12;
	OK(barway_device_query(gpu[0], &i));
	CHECK_EQ(i.kind, BARWAY_DEVICE_SOFT);
	CHECK_EQ(i.index, 0x44444444);
	memset(&big, 0, sizeof(big));
	big.i.size = sizeof(big);
	OK(barway_device_query(gpu[1], &big.i));
	CHECK_EQ(big.i.index, 1);
	big.tail[7] = 1;
	FAILS(barway_device_query(gpu[0], &big.i), E2BIG, "not zero");
	CHECK_EQ(big.i.index, 1);
	FAILS(barway_device_query(gpu[0], NULL), EINVAL, "NULL");
	end();
}

static void activate(void)
{
	begin();
	for (unsigned i = 0; i < 3; i++)
		OK(barway_device_activate(gpu[1]));
	end();
}

/* ---- providers ----------------------------------------------------------------------------- */

static void providers(void)
{
	struct barway_provider_info i = { .size = sizeof(i) };
	unsigned n = 0;
	bool found = false;

	begin();
	for (; !barway_provider_query(ctx, gpu[0], n, &i); n++) {
		CHECK(*i.name && *i.reason);
		CHECK(i.keeps_alive <= 1);
		if (!strcmp(i.name, "soft")) {
			found = true;
			CHECK(i.score >= 0 && i.keeps_alive);
		} else {
			CHECK(i.score < 0);
		}
		OK(barway_provider_query(ctx, NULL, n, &i)); /* without a device */
		CHECK(*i.name && *i.reason);
	}
	CHECK(found && n >= 2);
	FAILS(barway_provider_query(ctx, gpu[0], n, &i), ENOENT, "no provider");
	FAILS(barway_provider_query(ctx, NULL, UINT32_MAX, &i), ENOENT, "no provider");
	i.size = 8;
	FAILS(barway_provider_query(ctx, NULL, 0, &i), EINVAL, "size");
	FAILS(barway_provider_query(ctx, NULL, 0, NULL), EINVAL, "NULL");
	end();
}

static void providers_allowed(void)
{
	struct barway_open_options o = { .size = sizeof(o), .providers = "rm" };
	struct barway_provider_info i = { .size = sizeof(i) };
	struct barway_context *c;

	begin();
	OK(barway_open(&o, &c));
	for (unsigned n = 0; !barway_provider_query(c, NULL, n, &i); n++)
		if (!strcmp(i.name, "soft")) {
			CHECK(i.score < 0);
			CHECK_HAS(i.reason, "not among the allowed providers (rm)");
		}
	OK(barway_close(c));
	end();
}

/* ---- pointers ------------------------------------------------------------------------------ */

static struct barway_pointer_info pointer(uint64_t addr)
{
	struct barway_pointer_info i = { .size = sizeof(i) };

	OK(barway_pointer_query(ctx, addr, &i));
	return i;
}

static char in_data;

static void is_host(uint64_t addr)
{
	struct barway_pointer_info i = pointer(addr);

	CHECK_EQ(i.kind, BARWAY_MEM_HOST);
	CHECK(!i.mappable && !i.device && !i.id);
}

static void host_pointers(void)
{
	char on_stack = 0, *heap = malloc(10);

	begin();
	CHECK(heap);
	is_host(0);
	is_host((uintptr_t)&on_stack);
	is_host((uintptr_t)&in_data);
	is_host((uintptr_t)heap);
	is_host((uintptr_t)host_pointers);
	is_host(UINT64_MAX);
	is_host(UINT64_MAX / 2);
	is_host(0xdead000000000000);
	free(heap);
	end();
}

static void device_pointers(void)
{
	static const size_t sizes[] = { 1, 4096, 65536, 65537, 3 * MIB };
	uint64_t at[4];

	begin();
	for (unsigned k = 0; k < N(sizes); k++) {
		uint64_t a = alloc(k % 2, sizes[k]),
			 bytes = (sizes[k] + GRANULE - 1) / GRANULE * GRANULE;
		struct barway_pointer_info first = pointer(a), i;

		CHECK(first.id);
		at[0] = a;
		at[1] = a + 1;
		at[2] = a + sizes[k] - 1;
		at[3] = a + bytes - 1; /* rounded up to the granularity */
		for (unsigned n = 0; n < 4; n++) {
			i = pointer(at[n]);
			CHECK_EQ(i.kind, BARWAY_MEM_DEVICE);
			CHECK(i.mappable);
			CHECK(i.device == gpu[k % 2]);
			CHECK(i.base == a && i.bytes == bytes && i.id == first.id);
		}
		CHECK(pointer(a + bytes).id != first.id);
		CHECK(pointer(a - 1).id != first.id);
		release(a);
		is_host(a); /* freed */
	}
	end();
}

/* The identity never comes again, the address does. */
static void identities(void)
{
	uint64_t seen[60], last = 0, again = 0;

	begin();
	for (unsigned i = 0; i < N(seen); i++) {
		uint64_t a = alloc(0, 100);

		seen[i] = pointer(a).id;
		for (unsigned k = 0; k < i; k++)
			CHECK(seen[k] != seen[i]);
		again += a == last;
		last = a;
		release(a);
	}
	CHECK(again);
	end();
}

static void pointer_struct(void)
{
	struct {
		struct barway_pointer_info i;
		char tail[8];
	} big;
	struct barway_pointer_info i;
	uint64_t a;

	begin();
	a = alloc(0, 1);
	memset(&i, 0x55, sizeof(i));
	for (i.size = 0; i.size < 12; i.size++)
		FAILS(barway_pointer_query(ctx, a, &i), EINVAL, "size");
	i.size = 12;
	OK(barway_pointer_query(ctx, a, &i));
	CHECK_EQ(i.kind, BARWAY_MEM_DEVICE);
	CHECK_EQ(i.mappable, 0x55555555);
	memset(&big, 0, sizeof(big));
	big.i.size = sizeof(big);
	OK(barway_pointer_query(ctx, a, &big.i));
	CHECK(big.i.base == a);
	big.tail[0] = 1;
	FAILS(barway_pointer_query(ctx, a, &big.i), E2BIG, "not zero");
	FAILS(barway_pointer_query(ctx, a, NULL), EINVAL, "NULL");
	release(a);
	end();
}

/* ---- allocation ---------------------------------------------------------------------------- */

static void alloc_errors(void)
{
	uint64_t a = 7, big;

	begin();
	FAILS(barway_mem_alloc(gpu[0], 0, &a), EINVAL, "0 bytes");
	FAILS(barway_mem_alloc(gpu[0], 1, NULL), EINVAL, "addr is NULL");
	FAILS(barway_mem_alloc(gpu[0], MEMORY + 1, &a), ENOMEM, "free");
	FAILS(barway_mem_alloc(gpu[0], SIZE_MAX, &a), ENOMEM, "free");
	FAILS(barway_mem_alloc(gpu[0], SIZE_MAX - GRANULE, &a), ENOMEM, "free");
	CHECK_EQ(a, 7);
	big = alloc(0, MEMORY - 4 * MIB);
	FAILS(barway_mem_alloc(gpu[0], 8 * MIB, &a), ENOMEM, "needs 8388608 bytes");
	release(alloc(1, 8 * MIB)); /* the other one has room */
	release(big);
	release(alloc(0, 8 * MIB));
	end();
}

static void free_errors(void)
{
	uint64_t a;
	int host = 0;

	begin();
	a = alloc(0, 3 * GRANULE);
	FAILS(barway_mem_free(ctx, a + 1), EINVAL, "0x");
	FAILS(barway_mem_free(ctx, a + GRANULE), EINVAL, "barway_mem_alloc");
	FAILS(barway_mem_free(ctx, 0), EINVAL, "0x0");
	FAILS(barway_mem_free(ctx, (uintptr_t)&host), EINVAL, "barway_mem_alloc");
	FAILS(barway_mem_free(ctx, UINT64_MAX), EINVAL, "barway_mem_alloc");
	release(a);
	FAILS(barway_mem_free(ctx, a), EINVAL, "freed before");
	end();
}

/* A device pointer that is dereferenced by mistake faults. */
static void not_for_the_cpu(void)
{
	uint64_t a;

	begin();
	a = alloc(0, 1);
	CHECK(faults((void *)(uintptr_t)a));
	release(a);
	end();
}

/* The caller's memory is his, whichever context it was allocated with. */
static void outlives_context(void)
{
	char text[] = "still here", back[sizeof(text)];
	uint64_t a;

	begin();
	a = alloc(0, 100);
	gpu_write(a, text, sizeof(text));
	end();
	begin();
	gpu_read(back, a, sizeof(back));
	CHECK_STR(back, text);
	release(a);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(find_exact), /* first: its child sets parameters of its own */
		TEST(get),
		TEST(find),
		TEST(query),
		TEST(activate),
		TEST(providers),
		TEST(providers_allowed),
		TEST(host_pointers),
		TEST(device_pointers),
		TEST(identities),
		TEST(pointer_struct),
		TEST(alloc_errors),
		TEST(free_errors),
		TEST(not_for_the_cpu),
		TEST(outlives_context),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
