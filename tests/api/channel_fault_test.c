/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open a channel with the Nth call of each kind failing, for every N: an error, nothing stays. And
 * where its memory was somebody's before.
 */
#include "channel_test.h"
#include "core/fault.h"
#include "device/soft.h"

static int walk(void)
{
	struct barway_channel *ch = (struct barway_channel *)&ctx;
	int ret = barway_channel_open(gpu[0], NULL, &ch);

	if (ret) {
		CHECK(ch == (struct barway_channel *)&ctx);
		CHECK(*barway_errmsg());
		return ret;
	}
	OK(barway_channel_send(ch, "message", 7, 0, 0));
	OK(barway_channel_close(ch));
	return 0;
}

static void fail_each(enum bw_fault kind, bool self_test)
{
	uint64_t memory, aperture;
	unsigned nth = 0, failed = 0;
	bool fired = true;

	begin();
	memory = memory_used(0);
	aperture = bar1_used(0);
	while (fired && nth < 400) {
		if (self_test) /* it is made again, and can fail too */
			OK(barway_release_all(ctx, 0));
		bw_fault_arm(kind, ++nth);
		failed += walk() != 0;
		fired = !bw_fault_pending(kind);
		bw_fault_disarm_all();
		CHECK_EQ(memory_used(0), memory);
		CHECK_EQ(bar1_used(0), aperture);
		if (self_test)
			OK(barway_release_all(ctx, 0));
		OK(walk());
	}
	CHECK(failed > 0);
	CHECK(!fired);
	end();
}

static void allocations(void)
{
	fail_each(BW_FAULT_ALLOC, false);
}

static void mmaps(void)
{
	fail_each(BW_FAULT_MMAP, false);
}

static void device_allocations(void)
{
	fail_each(BW_FAULT_DEVICE_ALLOC, false);
}

static void apertures(void)
{
	fail_each(BW_FAULT_APERTURE, false);
}

static void first_channel_of_a_device(void)
{
	fail_each(BW_FAULT_ALLOC, true);
	fail_each(BW_FAULT_COPY, true);
}

/* What stood there before is not taken for a message, a credit, or the end. */
static void memory_that_was_used(void)
{
	static unsigned char bytes[BARWAY_GPU_RING + 64 * 64];
	struct bw_device *dev = bw_soft_device(0);
	struct barway_mapping *m;
	struct rig rig;
	uint64_t keep, addr;

	begin();
	OK(bw_soft_malloc(dev, 512, &keep)); /* so that the block they are in stays */
	OK(bw_soft_malloc(dev, sizeof(bytes), &addr));
	memset(bytes, 0xff, sizeof(bytes));
	m = map(addr, sizeof(bytes));
	OK(barway_copy_to(m, 0, bytes, sizeof(bytes)));
	OK(barway_unmap(m));
	OK(bw_soft_free(addr));
	rig_begin(&rig, 64, echo);
	CHECK_EQ(rig.job.handle.gpu, addr);
	m = map(rig.job.handle.gpu, sizeof(bytes));
	OK(barway_copy_from(m, bytes, 0, sizeof(bytes)));
	for (size_t i = 0; i < sizeof(bytes); i++)
		CHECK_EQ(bytes[i], 0);
	OK(barway_unmap(m));
	for (unsigned i = 0; i < 100; i++)
		round_trip(&rig, i);
	rig_end(&rig);
	OK(bw_soft_free(keep));
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(allocations),
		TEST(mmaps),
		TEST(device_allocations),
		TEST(apertures),
		TEST(first_channel_of_a_device),
		TEST(memory_that_was_used),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
