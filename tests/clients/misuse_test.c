/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What programs do wrong, and what they may well do: each gets the documented errno and a sentence,
 * none a crash, and none touches a byte that is not its own.
 */
#include "client.h"

#define REGION (4 * GPU_PAGE)

static void *g;
static uint64_t memory;
static struct mh mh;
static void *map;

static void begin(void)
{
	start_gpu();
	load("libgdrapi.so.2", RTLD_NOW);
	g = gdr.open();
	CHECK(g);
	memory = mem_alloc(REGION);
}

static void pin_and_map(void)
{
	OK(gdr.pin_buffer(g, memory, REGION, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, REGION));
}

static void end(void)
{
	mem_free(memory);
	OK(gdr.close(g));
	check_given_back();
}

/* ---- what goes to standard error ------------------------------------------------------------- */

static int real_stderr = -1, captured = -1;

static void capture(void)
{
	char name[] = "/tmp/barway-gdr.XXXXXX";

	captured = mkstemp(name);
	CHECK(captured >= 0);
	unlink(name);
	real_stderr = dup(STDERR_FILENO);
	dup2(captured, STDERR_FILENO);
}

static const char *released(void)
{
	static char text[65536];
	ssize_t n = pread(captured, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = 0;
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(captured);
	return text;
}

/* ---- the same twice -------------------------------------------------------------------------- */

static void map_twice(void)
{
	void *other = (void *)1;

	begin();
	pin_and_map();
	CHECK_EQ(gdr.map(g, mh, &other, REGION), EAGAIN);
	CHECK_EQ(gdr.map_v2(g, mh, &other, REGION, 0), EAGAIN);
	CHECK(other == (void *)1);
	prove_pointer(map, memory, REGION);
	OK(gdr.unmap(g, mh, map, REGION));
	OK(gdr.map(g, mh, &other, REGION));
	prove_copies(mh, other, memory, 5000, memory, REGION);
	OK(gdr.unpin_buffer(g, mh)); /* unmaps first */
	end();
}

static void unmap_twice(void)
{
	begin();
	pin_and_map();
	OK(gdr.unmap(g, mh, map, REGION));
	CHECK_EQ(gdr.unmap(g, mh, map, REGION), EINVAL);
	CHECK_EQ(gdr.unmap(g, mh, NULL, REGION), EINVAL);
	CHECK_EQ(info_v1(g, mh).mapped, 0);
	CHECK_EQ(info_v1(g, mh).wc_mapping, 0);
	CHECK_EQ(info_v2(g, mh).mapping_type, 0);
	OK(gdr.unpin_buffer(g, mh));
	CHECK_EQ(gdr.unmap(g, mh, map, REGION), EINVAL);
	end();
}

static void unmap_other_size_or_pointer(void)
{
	static const size_t sizes[] = { 1, 100, 4096, REGION - 1, REGION + 1, 1ul << 40, 0 };

	begin();
	OK(gdr.pin_buffer(g, memory, REGION, 0, 0, &mh));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		OK(gdr.map(g, mh, &map, REGION));
		CHECK_EQ(gdr.unmap(g, mh, (char *)map + 4096, REGION), EINVAL);
		CHECK_EQ(gdr.unmap(g, mh, NULL, REGION), EINVAL);
		CHECK_EQ(info_v1(g, mh).mapped, 1);
		OK(gdr.unmap(g, mh, map, sizes[i]));
		CHECK_EQ(info_v1(g, mh).mapped, 0);
	}
	OK(gdr.unpin_buffer(g, mh));
	end();
}

static _Atomic int unpinned, refused, go;

static void *unpin_it(void *arg)
{
	(void)arg;
	while (!go)
		;
	if (gdr.unpin_buffer(g, mh) == 0)
		unpinned++;
	else
		refused++;
	return NULL;
}

static void unpin_twice_from_threads(void)
{
	enum { N = 4 };
	pthread_t t[N];

	begin();
	pin_and_map();
	OK(gdr.unpin_buffer(g, mh));
	CHECK_EQ(gdr.unpin_buffer(g, mh), EINVAL);
	for (int round = 0; round < 300; round++) {
		unpinned = refused = go = 0;
		pin_and_map();
		for (int i = 0; i < N; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, unpin_it, NULL), 0);
		go = 1;
		for (int i = 0; i < N; i++)
			pthread_join(t[i], NULL);
		CHECK_EQ(unpinned, 1);
		CHECK_EQ(refused, N - 1);
	}
	end();
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void copy_when_it_is_not_mapped(void)
{
	char host[64] = "";
	struct mh old;

	begin();
	OK(gdr.pin_buffer(g, memory, REGION, 0, 0, &mh));
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, 8), EINVAL);
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, 0), EINVAL);
	OK(gdr.map(g, mh, &map, REGION));
	OK(gdr.copy_to_mapping(mh, map, host, 8));
	OK(gdr.unmap(g, mh, map, REGION));
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, 8), EINVAL);
	CHECK_EQ(gdr.copy_from_mapping(mh, host, map, 8), EINVAL);
	OK(gdr.map(g, mh, &map, REGION));
	OK(gdr.unpin_buffer(g, mh));
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, 8), EINVAL);
	CHECK_EQ(gdr.copy_from_mapping(mh, host, map, 8), EINVAL);
	/* the slot lives again: the old handle does not */
	old = mh;
	for (int i = 0; i < 3000; i++) {
		pin_and_map();
		CHECK(mh.h != old.h && mh.h);
		CHECK_EQ(gdr.copy_to_mapping(old, map, host, 8), EINVAL);
		CHECK_EQ(gdr.copy_from_mapping(old, host, map, 8), EINVAL);
		CHECK_EQ(gdr.unpin_buffer(g, old), EINVAL);
		OK(gdr.unpin_buffer(g, mh));
	}
	end();
}

static void copy_sizes(void)
{
	unsigned char *host = malloc(2 * REGION);

	begin();
	pin_and_map();
	test_fill(host, 2 * REGION, ++seed);
	OK(gdr.copy_to_mapping(mh, map, host, 0));
	OK(gdr.copy_to_mapping(mh, NULL, NULL, 0));
	OK(gdr.copy_from_mapping(mh, NULL, NULL, 0));
	OK(gdr.copy_to_mapping(mh, map, host, REGION));
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, REGION + 1), EINVAL);
	CHECK_EQ(gdr.copy_to_mapping(mh, (char *)map + 1, host, REGION), EINVAL);
	CHECK_EQ(gdr.copy_to_mapping(mh, (char *)map - 1, host, 8), EINVAL);
	CHECK_EQ(gdr.copy_to_mapping(mh, (char *)map + REGION, host, 1), EINVAL);
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, SIZE_MAX), EINVAL);
	CHECK_EQ(gdr.copy_to_mapping(mh, NULL, host, 8), EINVAL);
	CHECK_EQ(gdr.copy_to_mapping(mh, map, NULL, 8), EINVAL);
	CHECK_EQ(gdr.copy_from_mapping(mh, NULL, map, 8), EINVAL);
	CHECK_EQ(gdr.copy_from_mapping(mh, host, map, REGION + 1), EINVAL);
	for (size_t n = 1; n < 200; n += n < 40 ? 1 : 13)
		for (size_t off = 0; off < 20; off += 3)
			prove_copies(mh, (char *)map + 4096 + off, memory + 4096 + off, n,
				     memory + 4000, 1000);
	prove_copies(mh, (char *)map + REGION - 7, memory + REGION - 7, 7, memory + REGION - 100,
		     100);
	OK(gdr.unpin_buffer(g, mh));
	free(host);
	end();
}

/* A mapping of less than was pinned reaches to the end of its CPU page, no further. */
static void copy_beyond_a_small_mapping(void)
{
	char host[8192] = "";

	begin();
	OK(gdr.pin_buffer(g, memory, REGION, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, 100));
	OK(gdr.copy_to_mapping(mh, map, host, 4096));
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, 4097), EINVAL);
	CHECK_EQ(info_v1(g, mh).mapped_size, REGION);
	OK(gdr.unpin_buffer(g, mh));
	OK(gdr.pin_buffer(g, memory + 10, 100, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, 100));
	OK(gdr.copy_to_mapping(mh, map, host, 100));
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, 101), EINVAL);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void sizes_of_pin_and_map(void)
{
	void *other = (void *)1;

	begin();
	mh.h = 77;
	CHECK_EQ(gdr.pin_buffer(g, memory, 0, 0, 0, &mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, memory, SIZE_MAX, 0, 0, &mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, memory, SIZE_MAX - memory, 0, 0, &mh), EINVAL);
	CHECK_EQ(mh.h, 77);
	OK(gdr.pin_buffer(g, memory, REGION, 12345, 678, &mh));
	CHECK_EQ(gdr.map(g, mh, &other, 0), EINVAL);
	CHECK_EQ(gdr.map(g, mh, &other, REGION + 1), EINVAL);
	CHECK_EQ(gdr.map(g, mh, &other, SIZE_MAX), EINVAL);
	CHECK(other == (void *)1);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

/* Addresses and sizes that nobody aligned: the mapping begins at the address, to the byte. */
static void unaligned_pins(void)
{
	static const size_t at[] = { 0, 1, 7, 512, 4095, 4096, 65535, 65536, 65537, 100000 };
	static const size_t sizes[] = { 1, 2, 8, 100, 4096, 65536, 70001 };

	begin();
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			OK(gdr.pin_buffer(g, memory + at[i], sizes[k], 0, 0, &mh));
			OK(gdr.map(g, mh, &map, sizes[k]));
			CHECK(info_v1(g, mh).va == memory + at[i]);
			CHECK_EQ(info_v1(g, mh).mapped_size, sizes[k]);
			prove_copies(mh, map, memory + at[i], sizes[k], memory, REGION);
			OK(gdr.unmap(g, mh, map, sizes[k]));
			OK(gdr.unpin_buffer(g, mh));
		}
	end();
}

/* The same GPU page, any number of times at once. */
static void many_pins_of_a_page(void)
{
	enum { N = 200 };
	struct mh many[N];
	void *maps[N];

	begin();
	for (int i = 0; i < N; i++) {
		OK(gdr.pin_buffer(g, memory, GPU_PAGE, 0, 0, &many[i]));
		OK(gdr.map(g, many[i], &maps[i], GPU_PAGE));
	}
	for (int i = 0; i < N; i += 9)
		prove_copies(many[i], maps[i], memory, 3000, memory, GPU_PAGE);
	for (int i = 0; i < N; i++)
		OK(gdr.unpin_buffer(g, many[i]));
	end();
}

static void null_arguments(void)
{
	struct mh nonsense[] = { { 1 }, { 0xdeadbeef }, { ~0ul }, { 0x3fffff }, { 5ul << 40 } };
	struct mh none = { 0 };
	struct info_v2 v2;
	struct info_v1 v1;
	int v;

	begin();
	pin_and_map();
	CHECK_EQ(gdr.pin_buffer(NULL, memory, REGION, 0, 0, &none), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, memory, REGION, 0, 0, NULL), EINVAL);
	CHECK_EQ(gdr.map(NULL, mh, &map, REGION), EINVAL);
	CHECK_EQ(gdr.map(g, mh, NULL, REGION), EINVAL);
	CHECK_EQ(gdr.get_info(g, mh, NULL), EINVAL);
	CHECK_EQ(gdr.get_info_v2(g, mh, NULL), EINVAL);
	CHECK_EQ(gdr.get_info(NULL, mh, &v1), EINVAL);
	CHECK_EQ(gdr.get_callback_flag(g, mh, NULL), EINVAL);
	CHECK_EQ(gdr.get_attribute(g, 1, NULL), EINVAL);
	CHECK_EQ(gdr.get_attribute(NULL, 1, &v), EINVAL);
	CHECK_EQ(gdr.driver_get_version(NULL, &v, &v), EINVAL);
	CHECK_EQ(gdr.driver_get_version(g, NULL, &v), EINVAL);
	CHECK_EQ(gdr.get_mapping_type_string(1, NULL), EINVAL);
	CHECK_EQ(gdr.unpin_buffer(NULL, mh), EINVAL);
	CHECK_EQ(gdr.unmap(NULL, mh, map, REGION), EINVAL);
	CHECK_EQ(gdr.close(NULL), EINVAL);
	gdr.runtime_get_version(NULL, NULL);
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		CHECK_EQ(gdr.unpin_buffer(g, nonsense[i]), EINVAL);
		CHECK_EQ(gdr.map(g, nonsense[i], &map, 8), EINVAL);
		CHECK_EQ(gdr.unmap(g, nonsense[i], map, 8), EINVAL);
		CHECK_EQ(gdr.get_info_v2(g, nonsense[i], &v2), EINVAL);
		CHECK_EQ(gdr.get_callback_flag(g, nonsense[i], &v), EINVAL);
		CHECK_EQ(gdr.copy_to_mapping(nonsense[i], map, &v2, 8), EINVAL);
		CHECK_EQ(gdr.copy_from_mapping(nonsense[i], &v2, map, 8), EINVAL);
	}
	CHECK_EQ(gdr.unpin_buffer(g, none), EINVAL);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

static void unknown_flags(void)
{
	begin();
	for (unsigned f = 2; f; f <<= 1)
		CHECK_EQ(gdr.pin_buffer_v2(g, memory, REGION, f, &mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer_v2(g, memory, REGION, 3, &mh), EINVAL);
	OK(gdr.pin_buffer_v2(g, memory, REGION, 1, &mh));
	CHECK_EQ(gdr.map_v2(g, mh, &map, REGION, 4), EINVAL);
	CHECK_EQ(gdr.map_v2(g, mh, &map, REGION, -1), EINVAL);
	CHECK_EQ(gdr.map_v2(g, mh, &map, REGION, 2), EINVAL); /* not what the memory has */
	CHECK_EQ(gdr.map_v2(g, mh, &map, REGION, 3), EINVAL);
	OK(gdr.map_v2(g, mh, &map, REGION, 1));
	CHECK_EQ(info_v2(g, mh).mapping_type, 1);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

static void attributes_and_names(void)
{
	static const char *const names[] = { "None", "Write Combining", "Caching", "Device" };
	const char *name;
	int v = -1;

	begin();
	for (int pinned = 0; pinned < 2; pinned++) {
		OK(gdr.get_attribute(g, 1, &v));
		CHECK_EQ(v, 1);
#ifdef __x86_64__
		OK(gdr.get_attribute(g, 2, &v));
		CHECK_EQ(v, 1);
#endif
		OK(gdr.get_attribute(g, 3, &v));
		CHECK_EQ(v, 0);
		v = 55;
		CHECK_EQ(gdr.get_attribute(g, 0, &v), EINVAL);
		CHECK_EQ(gdr.get_attribute(g, 4, &v), EINVAL);
		CHECK_EQ(gdr.get_attribute(g, -1, &v), EINVAL);
		CHECK_EQ(v, 55);
		if (!pinned)
			OK(gdr.pin_buffer(g, memory, REGION, 0, 0, &mh));
	}
	for (int i = 0; i < 4; i++) {
		OK(gdr.get_mapping_type_string(i, &name));
		CHECK_STR(name, names[i]);
	}
	CHECK_EQ(gdr.get_mapping_type_string(4, &name), EINVAL);
	CHECK_EQ(gdr.get_mapping_type_string(-1, &name), EINVAL);
	end();
}

/* ---- memory that it is not ------------------------------------------------------------------- */

static void host_pointers(void)
{
	void *host = malloc(REGION), *pinned;
	uint64_t managed;

	begin();
	mh.h = 77;
	CHECK_EQ(gdr.pin_buffer(g, (unsigned long)host, REGION, 0, 0, &mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, (unsigned long)&host, 8, 0, 0, &mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, 0, GPU_PAGE, 0, 0, &mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, ~0ul & ~(GPU_PAGE - 1), 100, 0, 0, &mh), EINVAL);
	if (!on_soft()) {
		CU_OK(cuMemAllocHost_v2(&pinned, 65536));
		CHECK_EQ(gdr.pin_buffer(g, (unsigned long)pinned, 4096, 0, 0, &mh), ENOTSUP);
		CU_OK(cuMemFreeHost(pinned));
		CU_OK(cuMemAllocManaged(&managed, 65536, 1));
		CHECK_EQ(gdr.pin_buffer(g, managed, 4096, 0, 0, &mh), ENOTSUP);
		CU_OK(cuMemFree_v2(managed));
	}
	CHECK_EQ(mh.h, 77);
	free(host);
	end();
}

static void freed_pointers(void)
{
	uint64_t freed;
	int flag = -1;

	begin();
	freed = mem_alloc(2 * MIB);
	OK(gdr.pin_buffer(g, freed, 2 * MIB, 0, 0, &mh));
	OK(gdr.map(g, mh, &map, 2 * MIB));
	OK(gdr.get_callback_flag(g, mh, &flag));
	CHECK_EQ(flag, 0);
	prove_pointer(map, freed, 2 * MIB);
	mem_free(freed);
	OK(gdr.get_callback_flag(g, mh, &flag));
	CHECK_EQ(flag, 1);
	/* the memory stays until the unpin: nobody else's bytes are there */
	((volatile uint32_t *)map)[5] = 0x12345678;
	CHECK_EQ(((volatile uint32_t *)map)[5], 0x12345678);
	OK(gdr.copy_to_mapping(mh, map, &flag, 4));
	OK(gdr.unmap(g, mh, map, 2 * MIB));
	OK(gdr.unpin_buffer(g, mh));
	CHECK_EQ(gdr.pin_buffer(g, freed, 2 * MIB, 0, 0, &mh), EINVAL);
	end();
}

/* Rounding to GPU pages is served, a page of nothing is not. */
static void pins_beyond_the_memory(void)
{
	uint64_t small;

	begin();
	small = mem_alloc(on_soft() ? 65536 : 2 * MIB);
	CHECK_EQ(gdr.pin_buffer(g, small, 64ull * MIB, 0, 0, &mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, small - 64ull * MIB, 65ull * MIB, 0, 0, &mh), EINVAL);
	mem_free(small);
	end();
}

/* The BAR1 aperture is full: ENOMEM, nothing is lost, and the next small one works. */
static void aperture_full(void)
{
	uint64_t big, small;
	struct mh m[2];

	if (!on_soft())
		SKIP("for the soft GPU, whose aperture is 256 MiB");
	begin();
	big = mem_alloc(200 * MIB);
	small = mem_alloc(100 * MIB);
	OK(gdr.pin_buffer(g, big, 200 * MIB, 0, 0, &m[0]));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(gdr.pin_buffer(g, small, 100 * MIB, 0, 0, &mh), ENOMEM);
	OK(gdr.pin_buffer(g, small, MIB, 0, 0, &m[1]));
	OK(gdr.map(g, m[1], &map, MIB));
	prove_pointer(map, small, MIB);
	OK(gdr.unpin_buffer(g, m[0]));
	OK(gdr.pin_buffer(g, small, 100 * MIB, 0, 0, &mh));
	OK(gdr.unpin_buffer(g, mh));
	OK(gdr.unpin_buffer(g, m[1]));
	mem_free(big);
	mem_free(small);
	end();
}

/* ---- gdr_t ----------------------------------------------------------------------------------- */

static void use_after_close(void)
{
	struct info_v1 v1;
	char host[8] = "";
	const char *said;
	void *other;
	int v;

	setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
	setenv("GDRCOPY_LOG_LEVEL", "4", 1);
	begin();
	pin_and_map();
	OK(gdr.close(g));
	check_given_back();
	capture();
	v = gdr.close(g) == EINVAL && gdr.copy_to_mapping(mh, map, host, 8) == EINVAL;
	said = released();
	CHECK(v);
	CHECK_HAS(said, "gdr_close: ");
	CHECK_HAS(said, "gdr_copy_to_mapping: 0x");
	CHECK_HAS(said, "is not pinned"); /* its place is free again */
	unsetenv("GDRCOPY_ENABLE_LOGGING");
	CHECK_EQ(gdr.unpin_buffer(g, mh), EINVAL);
	other = gdr.open();
	CHECK(other && other != g);
	CHECK_EQ(gdr.unpin_buffer(other, mh), EINVAL);
	CHECK_EQ(gdr.pin_buffer(g, memory, REGION, 0, 0, &mh), EINVAL);
	CHECK_EQ(gdr.get_attribute(g, 1, &v), EINVAL);
	/* a handle is its gdr_t's */
	g = gdr.open();
	pin_and_map();
	CHECK_EQ(gdr.unpin_buffer(other, mh), EINVAL);
	CHECK_EQ(gdr.unmap(other, mh, map, REGION), EINVAL);
	CHECK_EQ(gdr.get_info(other, mh, &v1), EINVAL);
	OK(gdr.close(other));
	prove_copies(mh, map, memory, 100, memory, 1000);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

/* The first file that is opened gets number 0, and so on. */
static void files_0_to_2_closed(void)
{
	int saved = dup(STDERR_FILENO);

	need_gpu();
	fcntl(saved, F_SETFD, FD_CLOEXEC);
	fflush(stdout);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	start_gpu();
	load("libgdrapi.so.2", RTLD_NOW);
	g = gdr.open();
	if (!g)
		_exit(1);
	memory = mem_alloc(REGION);
	pin_and_map();
	prove_pointer(map, memory, REGION);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

static void *other_opens(void *arg)
{
	for (int i = 0; i < 200; i++) {
		void *mine = gdr.open(), *p;
		struct mh m;

		if (!mine || gdr.pin_buffer(mine, memory, GPU_PAGE, 0, 0, &m) ||
		    gdr.map(mine, m, &p, 8) || gdr.close(mine))
			*(_Atomic int *)arg = 1;
	}
	return NULL;
}

static void open_and_close_from_threads(void)
{
	enum { N = 6 };
	_Atomic int wrong = 0;
	pthread_t t[N];

	begin();
	for (int i = 0; i < N; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, other_opens, (void *)&wrong), 0);
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(wrong, 0);
	end();
}

/* Pins of other threads, while the gdr_t is closed: they work or are refused. */
static void *pins_until_closed(void *arg)
{
	struct mh m;

	(void)arg;
	for (;;) {
		int ret = gdr.pin_buffer(g, memory, GPU_PAGE, 0, 0, &m);

		if (ret)
			return (void *)(intptr_t)(ret == EINVAL ? 0 : ret);
		gdr.unpin_buffer(g, m);
	}
}

static void close_under_pins(void)
{
	enum { N = 3 };
	pthread_t t[N];
	void *wrong;

	begin();
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < N; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, pins_until_closed, NULL), 0);
		usleep(500);
		OK(gdr.close(g));
		for (int i = 0; i < N; i++) {
			pthread_join(t[i], &wrong);
			CHECK(!wrong);
		}
		g = gdr.open();
		CHECK(g);
	}
	end();
}

/* ---- fork ------------------------------------------------------------------------------------ */

__attribute__((noreturn)) static void inherited(void)
{
	char host[8] = "";
	int flag;

	if (setjmp(test_jump))
		_exit(1);
	CHECK_EQ(gdr.copy_to_mapping(mh, map, host, 8), EINVAL);
	CHECK_EQ(gdr.copy_from_mapping(mh, host, map, 8), EINVAL);
	CHECK_EQ(gdr.unmap(g, mh, map, REGION), EINVAL);
	CHECK_EQ(gdr.unpin_buffer(g, mh), EINVAL);
	CHECK_EQ(gdr.get_callback_flag(g, mh, &flag), EINVAL);
	OK(gdr.close(g));
	_exit(0);
}

static void a_child_has_no_pins(void)
{
	int status;
	pid_t pid;

	begin();
	pin_and_map();
	pid = fork();
	if (!pid)
		inherited();
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	prove_copies(mh, map, memory, 10000, memory, REGION);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

/* ---- much of it ------------------------------------------------------------------------------ */

enum { CHURNERS = 8, COPIERS = 4, SLICE = 8192 };
static _Atomic int wrong, churning;

static int churn_cycles(void)
{
	const char *n = getenv("CHURN_CYCLES");

	return n ? atoi(n) : 20000;
}

static void *churn(void *arg)
{
	uint64_t mine = memory + (uintptr_t)arg % 4 * GPU_PAGE;
	size_t at = 16384 + (uintptr_t)arg * 64;
	int cycles = churn_cycles();
	struct mh m;
	void *p;

	for (int i = 0; i < cycles && !wrong; i++) {
		size_t n = GPU_PAGE - (size_t)(i % 7) * 512;
		uint64_t value = (uint64_t)i, got = 0;

		if (gdr.pin_buffer(g, mine, n, 0, 0, &m) || gdr.map(g, m, &p, n) ||
		    gdr.copy_to_mapping(m, (char *)p + at, &value, 8) ||
		    gdr.copy_from_mapping(m, &got, (char *)p + at, 8) || got != value ||
		    (i % 3 && gdr.unmap(g, m, p, n)) || gdr.unpin_buffer(g, m) != 0 ||
		    gdr.copy_to_mapping(m, p, &value, 8) != EINVAL)
			wrong = 1;
	}
	churning--;
	return NULL;
}

static void *copy_meanwhile(void *arg)
{
	char *at = (char *)map + (uintptr_t)arg % 4 * GPU_PAGE + 32768 + (uintptr_t)arg / 4 * SLICE;
	unsigned char *want = malloc(SLICE), *got = malloc(SLICE);

	for (uint64_t i = 0; churning && !wrong; i++) {
		size_t n = 1 + (i * 911) % SLICE;

		test_fill(want, n, i);
		if (gdr.copy_to_mapping(mh, at, want, n) || gdr.copy_from_mapping(mh, got, at, n) ||
		    memcmp(want, got, n))
			wrong = 2;
	}
	free(want);
	free(got);
	return NULL;
}

/* 8 threads pin, map, unmap and unpin on one gdr_t, while four others copy on one handle of it. */
static void threads(void)
{
	pthread_t t[CHURNERS + COPIERS];
	int files;

	begin();
	pin_and_map();
	files = open_files();
	churning = CHURNERS;
	for (uintptr_t i = 0; i < CHURNERS + COPIERS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, i < CHURNERS ? churn : copy_meanwhile,
					(void *)(i < CHURNERS ? i : i - CHURNERS)), 0);
	for (int i = 0; i < CHURNERS + COPIERS; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(wrong, 0);
	CHECK(open_files() <= files + 2 * CHURNERS); /* what the cache keeps */
	prove_copies(mh, map, memory, 10000, memory, REGION);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

static long resident_kib(void)
{
	char text[128] = "";
	int fd = open("/proc/self/statm", O_RDONLY);
	long size = 0, pages = 0;

	if (read(fd, text, sizeof(text) - 1) > 0)
		sscanf(text, "%ld %ld", &size, &pages);
	close(fd);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* 100,000 cycles; every tenth is a GPU page around a few bytes. */
static void nothing_leaks(void)
{
	int cycles = 5 * churn_cycles(), files = 0;
	uint64_t few;
	long kib = 0;

	begin();
	few = mem_alloc(600);
	for (int i = -1000; i < cycles; i++) {
		if (!i) {
			files = open_files();
			kib = resident_kib();
		}
		if (i % 1000 == 0) { /* an open and close of its own now and then */
			void *other = gdr.open();

			CHECK(other);
			OK(gdr.pin_buffer(other, memory, 100, 0, 0, &mh));
			OK(gdr.close(other));
		}
		OK(gdr.pin_buffer(g, i % 10 ? memory : DOWN(few), i % 10 ? REGION : GPU_PAGE, 0, 0,
				  &mh));
		OK(gdr.map(g, mh, &map, 100));
		if (i % 2)
			OK(gdr.unmap(g, mh, map, 100));
		OK(gdr.unpin_buffer(g, mh));
	}
	CHECK(open_files() <= files + 4);
	if (!ASAN && resident_kib() > kib + 4096) /* it keeps what is freed, and looks itself */
		FAIL("%ld KiB resident, before %ld", resident_kib(), kib);
	mem_free(few);
	end();
}

/* ---- the reason ------------------------------------------------------------------------------ */

/* Does nothing without a GPU, least of all on the soft GPU, and says why. */
static void no_gpu_no_open(void)
{
	const char *said;

	if (on_fake())
		setenv("FAKENV", "ctl=0,nodes=0", 1);
	else if (access("/dev/nvidiactl", F_OK) == 0)
		SKIP("there is an NVIDIA driver here");
	unsetenv("BARWAY_DEVICES");
	setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
	setenv("GDRCOPY_LOG_LEVEL", "4", 1);
	load("libgdrapi.so", RTLD_NOW);
	capture();
	g = gdr.open();
	said = released();
	CHECK(!g);
	CHECK_HAS(said,
		  "gdrapi: error: gdr_open: no GPU memory can be mapped on this machine: rm: ");
	CHECK(strlen(said) > 100);
	/* "auto", which falls back to the soft GPU elsewhere, does not here */
	setenv("BARWAY_DEVICES", "auto", 1);
	capture();
	g = gdr.open();
	said = released();
	CHECK(!g);
}

static void bad_parameter(void)
{
	const char *said;

	setenv("BARWAY_DEVICES", "pony", 1);
	setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
	load("libgdrapi.so", RTLD_NOW);
	capture();
	g = gdr.open();
	said = released();
	CHECK(!g);
	CHECK_HAS(said, "pony");
}

/* What is said at the level, and what it returns, from an open to a close. */
static const char *log_of(const char *level, int ret[6])
{
	const char *said;

	if (level)
		setenv("GDRCOPY_LOG_LEVEL", level, 1);
	capture(); /* until released() no CHECK: it would not be seen */
	g = gdr.open();
	ret[0] = gdr.pin_buffer(g, (unsigned long)&said, 8, 0, 0, &mh);
	ret[1] = gdr.pin_buffer(g, memory, REGION, 0, 0, &mh) | gdr.map(g, mh, &map, REGION);
	ret[2] = gdr.map(g, mh, &map, 1);
	ret[3] = gdr.copy_to_mapping(mh, map, &said, REGION + 1);
	ret[4] = gdr.unpin_buffer(g, mh);
	ret[5] = gdr.copy_to_mapping(mh, map, &said, 8);
	gdr.close(g);
	return released();
}

static void the_log(void)
{
	static const int expected[6] = { EINVAL, 0, EAGAIN, EINVAL, 0, EINVAL };
	static const char *const levels[] = { NULL, NULL, "1", "4" };
	const char *said;
	int ret[6];

	begin();
	OK(gdr.close(g));
	for (int i = 0; i < 4; i++) {
		if (i == 1)
			setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
		said = log_of(levels[i], ret);
		for (int k = 0; k < 6; k++)
			CHECK_EQ(ret[k], expected[k]);
		if (!i) {
			CHECK_STR(said, "");
			continue;
		}
		CHECK_HAS(said, "gdrapi: error: gdr_pin_buffer: barway_map(0x");
		CHECK_HAS(said, "is not GPU memory");
		CHECK_HAS(said, "give an address from");
		CHECK_HAS(said, "is mapped already: unmap it first");
		CHECK_HAS(said, "bytes at");
		CHECK_HAS(said, "is not pinned");
		if (i == 3) {
			CHECK(!strstr(said, "info:"));
			continue;
		}
		CHECK_HAS(said, "gdrapi: info: gdr_open: Barway ");
		CHECK_HAS(said, on_soft() ? "provider soft (BARWAY_DEVICES=soft" : "provider rm");
		if (i == 2) {
			CHECK_HAS(said, "gdrapi: debug: gdr_pin_buffer(0x");
			CHECK_HAS(said,
				  on_soft() ? ": provider soft, route" : ": provider rm, route");
		} else {
			CHECK(!strstr(said, "debug:"));
		}
	}
	setenv("GDRCOPY_ENABLE_LOGGING", "0", 1);
	g = gdr.open();
	end();
}

static void dma_buf_mmap_is_wished_for(void)
{
	const char *said;

	setenv("GDRCOPY_USE_DMABUF_MMAP", "1", 1);
	setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
	start_gpu();
	load("libgdrapi.so.2", RTLD_NOW);
	capture();
	g = gdr.open();
	said = released();
	CHECK(g);
	CHECK_HAS(said, "gdr_open: GDRCOPY_USE_DMABUF_MMAP");
	memory = mem_alloc(REGION);
	pin_and_map();
	prove_pointer(map, memory, REGION);
	OK(gdr.unpin_buffer(g, mh));
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(map_twice),
		TEST(unmap_twice),
		TEST(unmap_other_size_or_pointer),
		TEST(unpin_twice_from_threads),
		TEST(copy_when_it_is_not_mapped),
		TEST(copy_sizes),
		TEST(copy_beyond_a_small_mapping),
		TEST(sizes_of_pin_and_map),
		TEST(unaligned_pins),
		TEST(many_pins_of_a_page),
		TEST(null_arguments),
		TEST(unknown_flags),
		TEST(attributes_and_names),
		TEST(host_pointers),
		TEST(freed_pointers),
		TEST(pins_beyond_the_memory),
		TEST(aperture_full),
		TEST(use_after_close),
		TEST(files_0_to_2_closed),
		TEST(open_and_close_from_threads),
		TEST(close_under_pins),
		TEST(a_child_has_no_pins),
		TEST(threads),
		TEST(nothing_leaks),
		TEST(no_gpu_no_open),
		TEST(bad_parameter),
		TEST(the_log),
		TEST(dma_buf_mmap_is_wished_for),
		{ 0 },
	};

	return client_main(argc, argv, cases);
}
