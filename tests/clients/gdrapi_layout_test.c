/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts and values of gdrapi.h, and that a program links against it: these are fixed for ever. */
#include <gdrapi.h>
#include <stddef.h>

#include "test.h"

#define FIELD(type, name, at, size) do { \
	CHECK_EQ(offsetof(type, name), at); \
	CHECK_EQ(sizeof(((type *)0)->name), size); \
} while (0)

static void info(void)
{
	unsigned char bytes[48];
	gdr_info_v2_t v2;
	gdr_info_v1_t v1;
	uint32_t bits;

	CHECK_EQ(sizeof(gdr_info_v1_t), 40);
	FIELD(gdr_info_v1_t, va, 0, 8);
	FIELD(gdr_info_v1_t, mapped_size, 8, 8);
	FIELD(gdr_info_v1_t, page_size, 16, 4);
	FIELD(gdr_info_v1_t, tm_cycles, 24, 8);
	FIELD(gdr_info_v1_t, cycles_per_ms, 32, 4);
	CHECK_EQ(sizeof(gdr_info_v2_t), 48);
	FIELD(gdr_info_v2_t, va, 0, 8);
	FIELD(gdr_info_v2_t, mapped_size, 8, 8);
	FIELD(gdr_info_v2_t, page_size, 16, 4);
	FIELD(gdr_info_v2_t, tm_cycles, 24, 8);
	FIELD(gdr_info_v2_t, cycles_per_ms, 32, 4);
	FIELD(gdr_info_v2_t, mapping_type, 40, 4);
	CHECK_EQ(sizeof(gdr_info_t), 48);

	memset(&v1, 0, sizeof(v1));
	v1.mapped = 1;
	memcpy(bytes, &v1, sizeof(v1));
	memcpy(&bits, bytes + 36, 4);
	CHECK_EQ(bits, 1);
	memset(&v2, 0, sizeof(v2));
	v2.wc_mapping = 1;
	memcpy(bytes, &v2, sizeof(v2));
	memcpy(&bits, bytes + 36, 4);
	CHECK_EQ(bits, 2);
}

static void handles(void)
{
	CHECK_EQ(sizeof(gdr_mh_t), 8);
	FIELD(gdr_mh_t, h, 0, 8);
	CHECK_EQ(sizeof(gdr_t), sizeof(void *));
}

static void values(void)
{
	CHECK_EQ(GDR_API_MAJOR_VERSION, 2);
	CHECK_EQ(GDR_API_MINOR_VERSION, 6);
	CHECK_EQ(GDR_API_VERSION, 0x20006);
	CHECK_EQ(GPU_PAGE_SHIFT, 16);
	CHECK_EQ(GPU_PAGE_SIZE, 65536);
	CHECK_EQ(GPU_PAGE_OFFSET, 0xffff);
	CHECK(GPU_PAGE_MASK == 0xffffffffffff0000ul);
	CHECK_EQ(GDR_PIN_FLAG_DEFAULT, 0);
	CHECK_EQ(GDR_PIN_FLAG_FORCE_PCIE, 1);
	CHECK_EQ(GDR_MAP_FLAG_DEFAULT, 0);
	CHECK_EQ(GDR_MAP_FLAG_REQ_WC_MAPPING, 1);
	CHECK_EQ(GDR_MAP_FLAG_REQ_CACHE_MAPPING, 2);
	CHECK_EQ(GDR_MAP_FLAG_REQ_DEVICE_MAPPING, 3);
	CHECK_EQ(GDR_MAPPING_TYPE_NONE, 0);
	CHECK_EQ(GDR_MAPPING_TYPE_WC, 1);
	CHECK_EQ(GDR_MAPPING_TYPE_CACHING, 2);
	CHECK_EQ(GDR_MAPPING_TYPE_DEVICE, 3);
	CHECK_EQ(GDR_ATTR_USE_PERSISTENT_MAPPING, 1);
	CHECK_EQ(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, 2);
	CHECK_EQ(GDR_ATTR_USING_DMA_BUF_MMAP, 3);
}

/* Every function has its type, and the source name gdr_get_info is the one with the larger
 * struct. */
static void linked(void)
{
	gdr_t (*open)(void) = gdr_open;
	int (*get_info)(gdr_t, gdr_mh_t, gdr_info_t *) = gdr_get_info;
	int (*pin)(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *) = gdr_pin_buffer;
	int (*pin_v2)(gdr_t, unsigned long, size_t, uint32_t, gdr_mh_t *) = gdr_pin_buffer_v2;
	int (*map_v2)(gdr_t, gdr_mh_t, void **, size_t, int) = gdr_map_v2;
	int major = 0, minor = 0;

	CHECK(open && pin && pin_v2 && map_v2 && get_info == gdr_get_info_v2);
	gdr_runtime_get_version(&major, &minor);
	CHECK_EQ(major, GDR_API_MAJOR_VERSION);
	CHECK_EQ(minor, GDR_API_MINOR_VERSION);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(info),
		TEST(handles),
		TEST(values),
		TEST(linked),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
