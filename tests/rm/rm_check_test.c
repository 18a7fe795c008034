/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every check made to fail once: by a driver that is wrong in one way, in the self-test and after
 * it. And what a check is for: no byte of other memory is ever written.
 */
#include "rm_test.h"

#define FB_STRIDE (16ull << 30) /* of the GPUs in the fake's file of all memory */

static char logged[1024];
static int nlogged;

static void keep_log(void *arg, int level, const char *text)
{
	(void)arg;
	if (level <= BARWAY_LOG_WARN) {
		snprintf(logged, sizeof(logged), "%s", text);
		nlogged++;
	}
}

static void begin(void)
{
	start();
	barway_set_log(keep_log, NULL, BARWAY_LOG_WARN);
	for (int i = 0; i < 12; i++) /* all around what the self-test will be given */
		witness(i % 3 ? 4096 : 1536);
}

static void end(void)
{
	check_witnesses("at the end");
	free_witnesses();
	finish();
}

/* In the fake's file of all memory: the first byte that is not 0 from @from on, -1: none. */
static long first_byte(unsigned gpu, uint64_t from)
{
	static unsigned char buf[65536];
	char path[64], name[64];
	long at, end = (long)(gpu + 1) * (long)FB_STRIDE;
	int fd = -1;

	for (int i = 800; i < 1100 && fd < 0; i++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		n = readlink(path, name, sizeof(name) - 1);
		name[n > 0 ? n : 0] = 0;
		if (!strncmp(name, "/memfd:fakenv-fb", 16))
			fd = i;
	}
	CHECK(fd >= 0);
	at = (long)gpu * (long)FB_STRIDE + (long)from;
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && at < end) {
		ssize_t n = pread(fd, buf, sizeof(buf), at);

		for (ssize_t k = 0; k < n; k++)
			if (buf[k])
				return at + k;
		at += n > 0 ? n : 4096;
	}
	return -1;
}

struct tampering {
	const char *key, *words;
	int later; /* the error when it begins after a passed self-test; 0: no call can show it
		    * then */
};

static const struct tampering tamperings[] = {
	{ "dup_zero_handle", "gave no object", EIO },
	{ "dup_class", "its class is 0x3e and not 0x40", EIO },
	{ "dup_addrspace", "its address space is 1", EIO },
	{ "dup_regmem", "its address space is 3", EIO },
	{ "dup_physsize", "it has 4096 bytes, the range needs", EIO },
	{ "dup_wrong_memory", "the CPU does not see what the GPU's copy engine wrote", 0 },
	{ "export_client", "client", EIO },
	{ "export_short", "libcuda named 0x", EIO },
	{ "export_wrong_dev", "asked through another file than GPU 0's /dev/nvidia", EIO },
	{ "export_none", "libcuda answered without asking the kernel", ENOTSUP },
	{ "map_address", "outside the BAR1 of GPU 0", EIO },
	{ "map_caching", "reports caching kind 0 where write-combined (2)", EIO },
	{ "map_wrong_offset", "the CPU does not see what the GPU's copy engine wrote", 0 },
	{ "alias", "the CPU does not see what the GPU's copy engine wrote", 0 },
};

static const struct tampering *tampering(void)
{
	for (size_t i = 0; i < sizeof(tamperings) / sizeof(tamperings[0]); i++)
		if (!strcmp(tamperings[i].key, rm_arg))
			return &tamperings[i];
	FAIL("no %s", rm_arg);
}

/* Fails closed: for the process and the device, also when the driver is right again. */
static void in_the_self_test(void)
{
	const struct tampering *t = tampering();
	struct barway_mapping *m = (void *)1;
	struct live before;
	uint64_t a, b;
	char said[1024], *cause;

	begin();
	a = gpu_alloc(5000);
	b = gpu_alloc(3u << 20);
	before = live_now();
	set("tamper", t->key);
	REFUSED(barway_map(ctx, a, 5000, NULL, &m), EIO, "self-test of provider rm on cuda 0");
	if (strcmp(t->key, "export_client")) /* a client that is gone again at once: no dup */
		CHECK_HAS(barway_errmsg(), t->words);
	snprintf(said, sizeof(said), "%s", barway_errmsg());
	cause = strstr(said, "self-test");
	if (!cause)
		return;
	CHECK_HAS(logged, "it is not used in this process");
	CHECK(m == (void *)1);
	CHECK_EQ(fakenv_get("vmas"), before.n[6]);
	CHECK_EQ(fakenv_get("mappings"), 0);
	CHECK_EQ(fakenv_get("dups"), 0);
	CHECK_EQ(fakenv_get("fb_used"), before.n[8]);
	check_witnesses("in the self-test");
	set("tamper", "");
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(barway_map(ctx, a, 5000, NULL, &m), -EIO);
		CHECK_STR(barway_errmsg(), said);
		CHECK_EQ(barway_map(ctx, b, 100, NULL, &m), -EIO);
		CHECK_HAS(barway_errmsg(), cause);
	}
	CHECK_EQ(counters().self_tests, 1);
	CHECK_EQ(counters().self_test_failures, 1);
	CHECK_EQ(counters().driver_maps, 0);
	CHECK_EQ(nlogged, 1);
	/* a new context is not a new process */
	OK(barway_close(ctx));
	open_context();
	CHECK_EQ(barway_map(ctx, a, 5000, NULL, &m), -EIO);
	CHECK_STR(barway_errmsg(), said);
	OK(barway_release_all(ctx, 0));
	prove(a, 5000, a, 5000, 0);
	prove(b + 9, 70000, b, 100000, 0);
	gpu_free(a);
	gpu_free(b);
	end();
}

/* One map fails, nothing stays, the next one works. */
static void after_the_self_test(void)
{
	const struct tampering *t = tampering();
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping *m = (void *)1, *live;
	unsigned char got[512], want[512];
	struct live before;
	uint64_t a, b;

	begin();
	a = gpu_alloc(65536 + 512);
	b = gpu_alloc(3u << 20);
	prove(a, 65536, a, 65536 + 512, BARWAY_MAP_UNCACHED);
	OK(barway_map(ctx, b, 4096, NULL, &live));
	test_fill(want, sizeof(want), ++seed);
	OK(barway_copy_to(live, 0, want, sizeof(want)));
	before = live_now();
	for (int i = 0; i < 2; i++) {
		uint64_t at = i ? b + 1000000 : a + 512;

		set("tamper", t->key);
		REFUSED(barway_map(ctx, at, 60000, &o, &m), t->later, t->words);
		REFUSED(barway_map(ctx, at, 60000, NULL, &m), t->later, t->words);
		CHECK(m == (void *)1);
		check_live(&before, "after the refused map");
		set("tamper", "");
		prove(at, 60000, at, 60000, 0);
		OK(barway_cache_flush(ctx));
	}
	CHECK_EQ(counters().self_tests, 1);
	CHECK_EQ(counters().self_test_failures, 0);
	CHECK_EQ(counters().map_errors, 4);
	OK(barway_copy_from(live, got, 0, sizeof(got)));
	CHECK(!memcmp(got, want, sizeof(got)));
	OK(barway_unmap(live));
	gpu_free(a);
	gpu_free(b);
	end();
}

/* A dup that refers to other memory: that memory is looked at, and never written. */
static void wrong_memory_is_never_written(void)
{
	struct barway_provider_info p = { .size = sizeof(p) };
	struct barway_mapping *m;
	struct barway_device *dev;
	uint64_t a;

	begin();
	a = gpu_alloc(5000);
	CHECK(first_byte(0, 0) >= 0);
	CHECK(first_byte(0, 2u << 20) < 0); /* all memory in use is in the first 2 MiB */
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_provider_query(ctx, dev, 0, &p)); /* the GPU is open now */
	CHECK(p.score > 0);
	barway_set_log(NULL, NULL, 0);
	for (unsigned i = 1; i <= 3; i++)
		fakenv_fail_ioctl(0x29, i, 0x57); /* so that the other memory can be looked at */
	set("tamper", "dup_wrong_memory");
	REFUSED(barway_map(ctx, a, 5000, NULL, &m), EIO, "the CPU does not see");
	CHECK_EQ(fakenv_get("dups"), 3);
	if (first_byte(0, 2u << 20) >= 0)
		FAIL("other memory was written at 0x%lx", first_byte(0, 2u << 20));
	check_witnesses("in the self-test");
	gpu_free(a);
	set("order_violations", "0"); /* what could not be freed */
	end();
}

/* GPU 1 has nothing to do with what GPU 0 did. */
static void one_verdict_per_gpu(void)
{
	struct barway_mapping *m;
	uint64_t a, b;
	void *other;

	begin();
	a = gpu_alloc(5000);
	CU_OK(cuDevicePrimaryCtxRetain(&other, 1));
	own_contexts++;
	CU_OK(cuCtxSetCurrent(other));
	b = gpu_alloc(5000);
	set("tamper", "map_address");
	REFUSED(barway_map(ctx, a, 100, NULL, &m), EIO, "self-test of provider rm on cuda 0");
	set("tamper", "");
	prove(b, 5000, b, 5000, 0);
	REFUSED(barway_map(ctx, a, 100, NULL, &m), EIO, "outside the BAR1 of GPU 0");
	CHECK_EQ(counters().self_tests, 2);
	gpu_free(b);
	CU_OK(cuCtxSetCurrent(primary));
	gpu_free(a);
	end();
}

/* ---- is it the GPU that CUDA means ----------------------------------------------------------- */

static void wrong_gpu(const char *words)
{
	struct barway_provider_info p = { .size = sizeof(p) };
	struct barway_device *dev;
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = gpu_alloc(5000);
	set("tamper", rm_arg);
	OK(barway_device_get(ctx, 0, &dev));
	OK(barway_provider_query(ctx, dev, 0, &p));
	CHECK(p.score < 0);
	CHECK_HAS(p.reason, words);
	REFUSED(barway_map(ctx, a, 100, NULL, &m), ENOTSUP, words);
	CHECK_EQ(fakenv_get("wrong_gpu_dups"), 0);
	CHECK_EQ(fakenv_get("nr_34"), 0); /* no dup was tried */
	CHECK_EQ(fakenv_get("nr_4e"), 0);
	set("tamper", "");
	OK(barway_release_all(ctx, 0));
	prove(a, 5000, a, 5000, 0);
	/* once the GPU is open, its numbers are not asked for again */
	set("tamper", rm_arg);
	prove(a, 5000, a, 5000, BARWAY_MAP_UNCACHED);
	set("tamper", "");
	gpu_free(a);
	end();
}

static void another_uuid(void)
{
	wrong_gpu("CUDA says GPU-");
}

static void gpu_ids_exchanged(void)
{
	wrong_gpu("CUDA says GPU-");
}

static void unknown_gpu_id(void)
{
	wrong_gpu("RM control 0x205");
}

/* ---- what says nothing about the provider is no verdict -------------------------------------- */

static uint64_t fill[512];
static int nfill;

static void no_verdict(int err, const char *words)
{
	struct barway_mapping *m;
	uint64_t a;

	a = gpu_alloc(5000);
	CHECK_EQ(barway_map(ctx, a, 5000, NULL, &m), -err);
	CHECK_HAS(barway_errmsg(), words);
	CHECK_EQ(counters().self_test_failures, 0);
	while (nfill)
		gpu_free(fill[--nfill]);
	prove(a, 5000, a, 5000, 0);
	gpu_free(a);
}

static void no_verdict_for_a_full_aperture(void)
{
	begin();
	fakenv_fail_ioctl(0x4e, 2, 0x51);
	no_verdict(ENOMEM, "map: the BAR1 aperture of GPU 0 is");
	end();
}

static void no_verdict_for_a_lost_gpu(void)
{
	begin();
	fakenv_fail_ioctl(0x4e, 1, 0x0f);
	no_verdict(ENODEV, "the GPU is lost");
	end();
}

static void no_verdict_for_full_memory(void)
{
	begin();
	for (; nfill < 512; nfill++) {
		unsigned long long a;

		if (cu.cuMemAlloc_v2(&a, 2u << 20))
			break;
		fill[nfill] = a;
	}
	no_verdict(ENOMEM, "used up");
	end();
}

/* The exports alone: handles would do for memory that has one. */
#define IN(key) { "in_the_self_test", in_the_self_test, "BARWAY_RM_ROUTES=tap,hook", key }
#define AFTER(key) { "after_the_self_test", after_the_self_test, NULL, key }
#define DYNAMIC "FAKENV=bar1=dynamic,driver=550.163.01"

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		IN("dup_zero_handle"), IN("dup_class"), IN("dup_addrspace"), IN("dup_regmem"),
		IN("dup_physsize"), IN("dup_wrong_memory"), IN("export_client"), IN("export_short"),
		IN("export_wrong_dev"), IN("export_none"), IN("map_address"), IN("map_caching"),
		IN("map_wrong_offset"), IN("alias"),
		{ "in_the_self_test dynamic", in_the_self_test, DYNAMIC, "map_wrong_offset" },
		{ "in_the_self_test dynamic", in_the_self_test, DYNAMIC, "alias" },
		{ "in_the_self_test dynamic", in_the_self_test, DYNAMIC, "map_address" },
		AFTER("dup_zero_handle"), AFTER("dup_class"), AFTER("dup_addrspace"),
		AFTER("dup_regmem"), AFTER("dup_physsize"), AFTER("export_client"),
		AFTER("export_short"), AFTER("export_wrong_dev"), AFTER("export_none"),
		AFTER("map_address"), AFTER("map_caching"),
		{ "after_the_self_test two GPUs", after_the_self_test, "FAKENV=gpus=2",
		  "export_wrong_dev" },
		{ "after_the_self_test dynamic", after_the_self_test, DYNAMIC, "map_address" },
		CASE(wrong_memory_is_never_written),
		CASE_ENV(one_verdict_per_gpu, "FAKENV=gpus=2"),
		{ "another_uuid", another_uuid, NULL, "uuid" },
		{ "another_uuid", another_uuid, "FAKENV=gpus=3", "uuid" },
		{ "gpu_ids_exchanged", gpu_ids_exchanged, "FAKENV=gpus=2", "gpu_id" },
		{ "unknown_gpu_id", unknown_gpu_id, NULL, "gpu_id" },
		CASE(no_verdict_for_a_full_aperture),
		CASE(no_verdict_for_a_lost_gpu),
		CASE_ENV(no_verdict_for_full_memory, "FAKENV=fb_mb=64"),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
