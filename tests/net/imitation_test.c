/* SPDX-License-Identifier: BSD-3-Clause */
/* The imitation does what it is there for: disorder, GPU memory, and every fault on demand. */
#include "../contract/engine_ends.h"

#include <sys/mman.h>
#include <unistd.h>

#define WRITES 200u

static struct end *a, *b;

static void open_both(const char *network, const struct bw_imitation *how)
{
	bw_imitation_set(how);
	a = end_try(network);
	b = end_try(network);
	CHECK(a && b);
	end_connect(a, b);
	end_connect(b, a);
}

static void close_both(void)
{
	bw_imitation_set(NULL);
	end_close(a);
	end_close(b);
}

/* ---- disorder ----------------------------------------------------------------------------- */

static unsigned early, unordered, pieces, put_off;

/* Is a write done before it is there? Is one told of after a later one? */
static void look(struct end *end, const struct bw_event *event)
{
	static uint64_t last;

	if (event->kind == BW_EVENT_REMOTE) {
		unordered += event->data < last;
		last = event->data;
	} else if (event->kind == BW_EVENT_WRITTEN) {
		const unsigned char *there = b->memory + ((uintptr_t)event->ctx -
							  (uintptr_t)tag(0));

		early += there[4000] == 0;
	}
	(void)end;
}

static void disorder(const char *network)
{
	early = unordered = pieces = put_off = 0;
	open_both(network, NULL);
	memset(a->memory, 1, MEMORY);
	a->seen = look;
	b->seen = look;
	for (unsigned i = 0; i < WRITES; i++) {
		int ret;

		while ((ret = write_at(a, i * 4096, b, i * 4096, 4096, true, i, 0,
				       tag(i * 4096))) == -EAGAIN) {
			put_off++;
			both_poll(a, b);
		}
		CHECK_EQ(ret, 0);
		both_poll(a, b);
		for (unsigned k = 0; k <= i; k++)
			pieces += b->memory[k * 4096] && !b->memory[k * 4096 + 4095];
	}
	UNTIL(a, b, b->n[BW_EVENT_REMOTE] == WRITES && a->n[BW_EVENT_WRITTEN] == WRITES);
	close_both();
	CHECK(put_off > 0);
	CHECK(unordered > WRITES / 10);
	CHECK(early > WRITES / 2);
	CHECK(pieces > 0);
}

static void writes_arrive_in_disorder(void)
{
	disorder("imitation");
	disorder("imitation-rdma");
}

/* The same seed is the same disorder. */
static void seeds_repeat(void)
{
	struct bw_imitation how = { .late = 24 };
	uint64_t order[3][50];

	for (unsigned k = 0; k < 3; k++) {
		unsigned n = 0;

		how.seed = k < 2 ? 5 : 6;
		open_both("imitation", &how);
		bw_imitation_set(&how);
		for (unsigned i = 0; i < 50; i++)
			CHECK_EQ(write_at(a, 0, b, 0, 64, true, i, 0, NULL), 0);
		UNTIL(a, b, b->n[BW_EVENT_REMOTE] == 50);
		for (unsigned i = 0; i < b->nevents; i++)
			order[k][n++] = b->events[i].data;
		close_both();
	}
	CHECK(!memcmp(order[0], order[1], sizeof(order[0])));
	CHECK(memcmp(order[0], order[2], sizeof(order[0])));
}

/* ---- GPU memory --------------------------------------------------------------------------- */

static char *gpu_memory;
#define GPU 0x7000000000ull /* nothing is there */
#define GPU_BYTES 65536u

static void *find_gpu(uint64_t addr, size_t bytes)
{
	if (addr < GPU || addr + bytes > GPU + GPU_BYTES)
		return NULL;
	return gpu_memory + (addr - GPU);
}

/* Writes to GPU memory of @b and sends from that of @a, by their device addresses. */
static void to_and_from_gpu(struct bw_reg_request *request, const char *rung, char *memory)
{
	struct bw_reg at_a, at_b;

	CHECK_EQ(a->engine->reg(a->rail, request, &at_a), 0);
	CHECK_EQ(b->engine->reg(b->rail, request, &at_b), 0);
	CHECK_STR(at_b.rung, rung);
	memset(memory, 0, request->bytes);
	test_fill(a->memory, 5000, 3);
	POST(a, b, a->engine->write(a->rail, a->peer, a->memory, 5000, a->reg.desc,
				    at_b.addr + 17, at_b.key, true, 1, 0, NULL));
	UNTIL(a, b, b->n[BW_EVENT_REMOTE] == 1);
	CHECK(!memcmp(memory + 17, a->memory, 5000));
	POST(b, a, recv_at(b, 0, 8192, tag(1)));
	POST(a, b, a->engine->send(a->rail, a->peer, (char *)request->ptr + 17, 5000, at_a.desc,
				   tag(2)));
	UNTIL(a, b, b->n[BW_EVENT_RECEIVED] == 1);
	CHECK(!memcmp(b->memory, a->memory, 5000));
	a->engine->unreg(a->rail, &at_a);
	b->engine->unreg(b->rail, &at_b);
}

static void gpu_memory_by_address(void)
{
	struct bw_imitation how = { .seed = 3, .again = 8, .late = 10, .gpu = find_gpu };
	struct bw_reg_request request = { .ptr = (void *)(uintptr_t)GPU, .bytes = GPU_BYTES,
					  .gpu = true, .dmabuf = -1, .remote_write = true };
	struct bw_reg reg;

	gpu_memory = malloc(GPU_BYTES);
	CHECK(gpu_memory);
	open_both("imitation-rdma", &how);
	to_and_from_gpu(&request, "peermem", gpu_memory);
	request.bytes++;
	CHECK_EQ(a->engine->reg(a->rail, &request, &reg), -ENOTSUP); /* not all of it is there */
	close_both();
	free(gpu_memory);
}

static void gpu_memory_by_dmabuf(void)
{
	struct bw_imitation how = { .seed = 3, .late = 10 };
	struct bw_reason passed = { "" };
	struct bw_reg_request request = { .ptr = (void *)(uintptr_t)(GPU + 100), .bytes = 20000,
					  .gpu = true, .dmabuf_offset = 4096 + 100,
					  .remote_write = true, .passed = &passed };
	struct bw_reg reg;
	char *memory;

	request.dmabuf = memfd_create("dmabuf", MFD_CLOEXEC);
	CHECK(request.dmabuf >= 0 && !ftruncate(request.dmabuf, GPU_BYTES));
	memory = mmap(NULL, GPU_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, request.dmabuf, 0);
	CHECK(memory != MAP_FAILED);
	open_both("imitation-rdma", &how);
	to_and_from_gpu(&request, "dmabuf", memory + 4096 + 100);
	CHECK_STR(passed.text, "");
	request.dmabuf_offset++; /* not as far into a page as in memory */
	CHECK_EQ(a->engine->reg(a->rail, &request, &reg), -ENOTSUP);
	CHECK_HAS(bw_err_text(), strerror(EINVAL));
	request.dmabuf_offset--;
	how.dmabuf_error = -EOPNOTSUPP; /* and then the next rung */
	how.gpu = find_gpu;
	gpu_memory = malloc(GPU_BYTES);
	CHECK(gpu_memory);
	close_both();
	open_both("imitation-rdma", &how);
	to_and_from_gpu(&request, "peermem", gpu_memory + 100);
	CHECK_HAS(passed.text, "by dma-buf: ");
	CHECK_HAS(passed.text, strerror(EOPNOTSUPP));
	close_both();
	free(gpu_memory);
	munmap(memory, GPU_BYTES);
	close(request.dmabuf);
}

/* Where there is no descriptor, the reason for it is told. */
static void gpu_memory_without_dmabuf(void)
{
	struct bw_imitation how = { .seed = 3, .late = 10, .peermem_error = -EFAULT };
	struct bw_reason passed = { "" };
	struct bw_reg_request request = { .ptr = (void *)(uintptr_t)GPU, .bytes = 4096,
					  .gpu = true, .dmabuf = -1, .passed = &passed,
					  .no_dmabuf = "the cat sat on it" };
	struct bw_reg reg;

	open_both("imitation-rdma", &how);
	CHECK_EQ(a->engine->reg(a->rail, &request, &reg), -ENOTSUP);
	CHECK_HAS(bw_err_text(), "by dma-buf: the cat sat on it; by peer memory: ");
	CHECK_STR(passed.text, "");
	request.no_dmabuf = NULL;
	CHECK_EQ(a->engine->reg(a->rail, &request, &reg), -ENOTSUP);
	CHECK_HAS(bw_err_text(), "by dma-buf: none was given; ");
	close_both();
}

static void registration_fails_on_demand(void)
{
	static const int errors[] = { -EOPNOTSUPP, -EFAULT, -ENOMEM };
	struct bw_reg_request request = { .ptr = (void *)(uintptr_t)GPU, .bytes = 4096,
					  .gpu = true, .dmabuf = 0 };
	struct bw_reg reg;

	for (unsigned i = 0; i < 3; i++) {
		struct bw_imitation how = { .seed = 1, .dmabuf_error = errors[i],
					    .peermem_error = errors[i], .gpu = find_gpu };
		int ret;

		open_both("imitation-rdma", &how);
		request.gpu = true;
		ret = a->engine->reg(a->rail, &request, &reg);
		CHECK_EQ(ret, errors[i] == -ENOMEM ? -ENOMEM : -ENOTSUP);
		CHECK_HAS(bw_err_text(), "dma-buf");
		CHECK_HAS(bw_err_text(), strerror(-errors[i]));
		how.host_error = errors[i];
		bw_imitation_set(&how);
		request.gpu = false;
		CHECK_EQ(a->engine->reg(a->rail, &request, &reg), errors[i]);
		close_both();
	}
}

static void cards_need_registered_memory(void)
{
	open_both("imitation-rdma", NULL);
	CHECK_EQ(a->engine->send(a->rail, a->peer, a->memory, 4096, NULL, NULL), -EINVAL);
	CHECK_EQ(a->engine->send(a->rail, a->peer, a->memory + MEMORY - 1, 64, a->reg.desc, NULL),
		 -EINVAL);
	CHECK_EQ(a->engine->recv(a->rail, a->memory, 64, NULL, NULL), -EINVAL);
	close_both();
}

/* ---- faults ------------------------------------------------------------------------------- */

static void wrong_keys_are_told_as_each_network_does(void)
{
	static const struct { const char *network; unsigned flags; int error; } cases[] = {
		{ "imitation", 0, 0 },
		{ "imitation", BW_WRITE_ARRIVED, -ECANCELED },
		{ "imitation-rdma", 0, -EIO },
		{ "imitation-rdma", BW_WRITE_ARRIVED, -EIO },
	};

	for (unsigned i = 0; i < 4; i++) {
		open_both(cases[i].network, NULL);
		b->reg.key ^= 1;
		POST(a, b, write_at(a, 0, b, 0, 64, true, 1, cases[i].flags, tag(1)));
		UNTIL(a, b, a->n[BW_EVENT_WRITTEN] == 1);
		CHECK_EQ(a->events[0].error, cases[i].error);
		poll_for(a, b, 0.01);
		CHECK_EQ(b->nevents, 0);
		close_both();
	}
}

static void receivers_that_are_not_ready(void)
{
	struct bw_imitation how = { .seed = 1, .rnr = 100 };

	open_both("imitation-rdma", &how);
	POST(a, b, send_at(a, 0, 1000, tag(1)));
	UNTIL(a, b, a->failed == 1);
	CHECK_EQ(a->events[0].error, -EIO);
	CHECK_HAS(a->events[0].text, "not ready");
	CHECK_EQ(b->nevents, 0);
	close_both();
}

static void dead_peers(void)
{
	static const char *const networks[] = { "imitation", "imitation-rdma" };

	for (unsigned i = 0; i < 4; i++) {
		bool loud = i / 2;
		unsigned posted = 0;

		open_both(networks[i % 2], NULL);
		bw_imitation_kill(b->rail, loud);
		for (unsigned k = 0; k < 2000; k++) {
			posted += !write_at(a, 0, b, 0, 4096, true, 0, 0, tag(1));
			end_poll(a);
		}
		if (loud) {
			UNTIL(a, NULL, a->nevents == posted);
			CHECK_EQ(a->failed, posted);
			CHECK_EQ(a->events[0].error, -ECANCELED);
			CHECK_HAS(a->events[0].text, "reset");
		} else {
			CHECK(posted > 0 && posted < 20);
			CHECK_EQ(a->nevents, 0);
		}
		CHECK_EQ(end_poll(b), 0);
		a->engine->disconnect(a->rail, a->peer);
		close_both();
	}
}

static void events_fail_on_demand(void)
{
	struct bw_imitation how = { .seed = 4, .event_error = -EIO, .event_every = 4 };

	open_both("imitation", &how);
	for (unsigned i = 0; i < 200; i++)
		POST(a, b, write_at(a, 0, b, 0, 64, true, i, 0, tag(i)));
	UNTIL(a, b, a->n[BW_EVENT_WRITTEN] == 200 && b->n[BW_EVENT_REMOTE] == 200 - a->failed);
	CHECK(a->failed > 20 && a->failed < 100);
	poll_for(a, b, 0.01);
	CHECK_EQ(b->n[BW_EVENT_REMOTE], 200 - a->failed);
	close_both();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(writes_arrive_in_disorder),
		TEST(seeds_repeat),
		TEST(gpu_memory_by_address),
		TEST(gpu_memory_by_dmabuf),
		TEST(gpu_memory_without_dmabuf),
		TEST(registration_fails_on_demand),
		TEST(cards_need_registered_memory),
		TEST(wrong_keys_are_told_as_each_network_does),
		TEST(receivers_that_are_not_ready),
		TEST(dead_peers),
		TEST(events_fail_on_demand),
		{ 0 }
	};

	return test_main(argc, argv, cases);
}
