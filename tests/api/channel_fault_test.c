/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open a channel with the Nth call of each kind failing, for every N: an error, nothing stays. And
 * where its memory was somebody's before.
 */
#include "channel_test.h"

#include "api/api.h"
#include "channel/channel.h"
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
	static unsigned char bytes[BARWAY_GPU_BYTES(64) + 2 * BARWAY_RING_TWIN];
	const size_t used = BARWAY_GPU_BYTES(64);
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
	CHECK(rig.job.handle.gpu - addr < 2 * BARWAY_RING_TWIN); /* it is that memory */
	m = map(rig.job.handle.gpu, used);
	OK(barway_copy_from(m, bytes, 0, used));
	for (size_t i = 0; i < used; i++)
		CHECK_EQ(bytes[i], 0);
	OK(barway_unmap(m));
	for (unsigned i = 0; i < 100; i++)
		round_trip(&rig, i);
	rig_end(&rig);
	OK(bw_soft_free(keep));
	end();
}

/* ---- a kernel that is ahead ------------------------------------------------------------------ */

static struct bw_channel *channel;
static _Atomic bool enough;

/* Until it is told to stop, or something is wrong. */
static void *keep_trying(void *arg)
{
	int *result = arg;

	do
		*result = bw_channel_send(channel, "x", 1, 0, 0);
	while (!enough && (*result == 0 || *result == BW_CHANNEL_NOTHING));
	return NULL;
}

/* With the lock of who sends. */
static void say_taken(uint64_t lines)
{
	__atomic_store_n((uint64_t *)(void *)(channel->host + BARWAY_HOST_RX_CREDIT), lines,
			 __ATOMIC_RELEASE);
}

/*
 * It takes a message before the thread that sends it has counted it; another thread, which finds no
 * room, sees that it took more than were sent. That is no fault; it is one where nobody sends.
 */
static void taken_before_it_is_counted(void)
{
	struct bw_channel_params params = { .to_gpu_lines = 64, .to_cpu_lines = 64 };
	struct bw_map_policy policy = { 0 };
	int result = 1;
	pthread_t thread;

	begin();
	OK(bw_channel_open(bw_device_object_get(gpu[0])->dev, &policy, &params, &channel));
	for (unsigned i = 0; i < 64; i++)
		OK(bw_channel_send(channel, "x", 1, 0, 0));
	enough = false;
	CHECK(!pthread_create(&thread, NULL, keep_trying, &result));
	for (unsigned i = 0; i < 200000; i++) {
		uint64_t sent;

		pthread_mutex_lock(&channel->to_gpu.lock);
		sent = channel->to_gpu.position;
		say_taken(sent + 1);
		for (volatile int k = 0; k < 200; k++)
			;
		channel->to_gpu.position = sent + 1;
		channel->to_gpu.credit = sent + 1 - 64; /* full again */
		say_taken(sent + 1 - 64);
		pthread_mutex_unlock(&channel->to_gpu.lock);
		for (volatile int k = 0; k < 300; k++)
			; /* the other one's turn */
	}
	enough = true;
	CHECK(!pthread_join(thread, NULL));
	CHECK_EQ(channel->stopped, 0);
	say_taken(channel->to_gpu.position + 1000);
	CHECK_EQ(bw_channel_send(channel, "x", 1, 0, 0), -EIO);
	CHECK_HAS(bw_err_text(), "more than were sent");
	bw_channel_close(channel);
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
		TEST(taken_before_it_is_counted),
		{ 0 },
	};

	return api_main(argc, argv, cases);
}
