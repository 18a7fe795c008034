/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of struct bw_net_engine, between two rails of one process. */
#include "engine_ends.h"

#include <poll.h>

static const size_t sizes[] = { 0, 1, 7, 8, 63, 64, 128, 129, 1000, 4096, 4097, 65536, 65537,
				300001, 1u << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define HALF (MEMORY / 2)

/* ---- opening ------------------------------------------------------------------------------ */

static void there_are_engines(void)
{
	struct bw_reason why;

	CHECK(bw_net_engines[0]);
	for (unsigned i = 0; bw_net_engines[i]; i++) {
		int ret = bw_net_engines[i]->usable(&why);

		CHECK(ret == 0 || ret == -ENOTSUP);
		CHECK(*why.text);
		bw_net_engines[i]->networks(&why);
		CHECK(ret || *why.text);
		printf("%s: %s\n", bw_net_engines[i]->name, ret ? "not usable" : why.text);
	}
}

static void each_says_what_it_is(struct end *a, struct end *b)
{
	(void)b;
	printf("%s: provider %s, inject %zu, data %u, by cpu %d, fd %d\n", a->info.network,
	       a->info.provider, a->info.inject_bytes, a->info.data_bytes, a->info.by_cpu,
	       a->info.fd);
	CHECK(*a->info.provider);
	CHECK(strcmp(a->info.provider, "sockets"));
	CHECK(a->info.data_bytes == 0 || a->info.data_bytes == 4 || a->info.data_bytes == 8);
	CHECK(a->info.write_bytes >= 1u << 20);
	CHECK(a->info.by_cpu != a->info.reaches_gpu);
}

static void says_what_it_is(void)
{
	each_network(each_says_what_it_is);
}

static void unknown_networks_are_refused(void)
{
	struct bw_rail_options options = { .network = "carrier-pigeon" };
	struct bw_rail *rail = (struct bw_rail *)1;

	CHECK_EQ(bw_rail_open(&options, &rail), -ENOTSUP);
	CHECK(rail == (struct bw_rail *)1);
	for (unsigned i = 0; bw_net_engines[i]; i++)
		CHECK(bw_net_engines[i]->for_tests ||
		      strstr(bw_err_text(), bw_net_engines[i]->name));
	options.network = "sockets";
	CHECK_EQ(bw_rail_open(&options, &rail), -ENOTSUP);
}

static void auto_is_never_an_imitation(void)
{
	struct bw_rail_options options = { .network = "auto" };
	struct bw_rail_info info;
	struct bw_rail *rail;
	int ret = bw_rail_open(&options, &rail);

	if (ret) {
		CHECK_EQ(ret, -ENOTSUP);
		SKIP("%s", bw_err_text());
	}
	rail->engine->info(rail, &info);
	rail->engine->close(rail);
	CHECK_STR(info.network, "tcp"); /* no interface is loopback */
}

static void each_has_addresses(struct end *a, struct end *b)
{
	unsigned char first[256], second[256], bad[300];
	size_t n = sizeof(first), m = sizeof(second), none = 1;
	uint64_t peer = 77;

	CHECK_EQ(a->engine->address(a->rail, first, &n), 0);
	CHECK_EQ(b->engine->address(b->rail, second, &m), 0);
	CHECK(n != m || memcmp(first, second, n));
	CHECK_EQ(a->engine->address(a->rail, bad, &none), -ENOSPC);
	CHECK_EQ(a->engine->connect(a->rail, first, 0, &peer), -EINVAL);
	memset(bad, 'x', sizeof(bad));
	CHECK_EQ(a->engine->connect(a->rail, bad, sizeof(bad), &peer), -EINVAL);
	CHECK_EQ(peer, 77);
}

static void has_addresses(void)
{
	each_network(each_has_addresses);
}

/* ---- messages ----------------------------------------------------------------------------- */

/* One message there, all of it, and its events. */
static void one_message(struct end *a, struct end *b, size_t bytes, size_t shift)
{
	unsigned sent = a->n[BW_EVENT_SENT], received = b->n[BW_EVENT_RECEIVED];
	const struct bw_event *event;

	test_fill(a->memory + shift, bytes, bytes + shift);
	memset(b->memory, 0xee, bytes + 64);
	POST(b, a, recv_at(b, shift + 1, bytes + 8, tag(bytes)));
	POST(a, b, send_at(a, shift, bytes, tag(bytes)));
	if (bytes <= a->info.inject_bytes)
		memset(a->memory + shift, 0, bytes); /* LOCAL when it returned */
	UNTIL(a, b, b->n[BW_EVENT_RECEIVED] > received);
	event = &b->events[b->nevents - 1];
	CHECK_EQ(event->error, 0);
	CHECK_EQ(event->bytes, bytes);
	CHECK(event->ctx == tag(bytes));
	test_fill(a->memory + shift, bytes, bytes + shift);
	CHECK(!memcmp(b->memory + shift + 1, a->memory + shift, bytes));
	CHECK_EQ(b->memory[shift], 0xee);
	CHECK_EQ(b->memory[shift + 1 + bytes], 0xee);
	if (bytes > a->info.inject_bytes)
		UNTIL(a, b, a->n[BW_EVENT_SENT] > sent);
	poll_for(a, b, 0.001);
	CHECK_EQ(a->n[BW_EVENT_SENT] - sent, bytes > a->info.inject_bytes);
}

static void each_sends(struct end *a, struct end *b)
{
	for (unsigned i = 0; i < SIZES; i++) {
		one_message(a, b, sizes[i], i % 4);
		one_message(b, a, sizes[i], i % 3);
	}
	CHECK_EQ(a->failed + b->failed, 0);
}

static void messages_of_all_sizes(void)
{
	each_network(each_sends);
}

#define ROW 128u
#define ROW_MESSAGES 600u

/* Takes messages one after the other; each says its number. */
static void next_of_row(struct end *end, const struct bw_event *event)
{
	uint64_t number, at = (uintptr_t)event->ctx - (uintptr_t)tag(0);

	if (event->kind != BW_EVENT_RECEIVED)
		return;
	memcpy(&number, end->memory + HALF + at, sizeof(number));
	CHECK_EQ(number, end->n[BW_EVENT_RECEIVED] - 1);
	CHECK_EQ(event->bytes, 8 + number % 200);
	POST(end, NULL, recv_at(end, HALF + at, 256, event->ctx));
}

static void each_keeps_the_order(struct end *a, struct end *b)
{
	unsigned injected = 0;

	for (unsigned i = 0; i < 32; i++)
		POST(b, a, recv_at(b, HALF + i * 256, 256, tag(i * 256)));
	b->seen = next_of_row;
	for (uint64_t i = 0; i < ROW_MESSAGES; i++) {
		size_t bytes = 8 + i % 200;
		unsigned char *m = a->memory + i * 256;

		memcpy(m, &i, sizeof(i));
		injected += bytes <= a->info.inject_bytes;
		POST(a, b, send_at(a, i * 256, bytes, tag(i)));
	}
	UNTIL(a, b, b->n[BW_EVENT_RECEIVED] == ROW_MESSAGES);
	UNTIL(a, b, a->n[BW_EVENT_SENT] == ROW_MESSAGES - injected);
	CHECK_EQ(a->failed + b->failed, 0);
}

static void messages_keep_their_order(void)
{
	each_network(each_keeps_the_order);
}

/* The receive fails with its size, or the sender is told; never a wrong success. */
static void each_cuts_nothing(struct end *a, struct end *b)
{
	memset(b->memory, 0xee, 4096);
	POST(b, a, recv_at(b, 0, 64, tag(1)));
	POST(a, b, send_at(a, 0, 2000, tag(2)));
	UNTIL(a, b, b->failed || a->failed);
	for (unsigned i = 64; i < 4096; i++)
		CHECK_EQ(b->memory[i], 0xee);
	CHECK(!find_event(b, BW_EVENT_RECEIVED, tag(1)) ||
	      find_event(b, BW_EVENT_RECEIVED, tag(1))->error);
}

static void too_long_a_message_is_an_error(void)
{
	each_network(each_cuts_nothing);
}

/* ---- writes and reads --------------------------------------------------------------------- */

static uint64_t data_of(const struct end *end, uint64_t n)
{
	return end->info.data_bytes == 8 ? n * 0x123456789abcdefull : n * 0x1234567u & UINT32_MAX;
}

static void one_write(struct end *a, struct end *b, size_t bytes, size_t src, size_t dst,
		      unsigned flags)
{
	unsigned remote = b->n[BW_EVENT_REMOTE], written = a->n[BW_EVENT_WRITTEN];
	uint64_t data = data_of(a, bytes + 3);
	const struct bw_event *event;

	test_fill(a->memory + src, bytes, bytes + src);
	memset(b->memory + dst - 1, 0xee, bytes + 2);
	POST(a, b, write_at(a, src, b, dst, bytes, true, data, flags, tag(bytes)));
	UNTIL(a, b, b->n[BW_EVENT_REMOTE] > remote);
	event = &b->events[b->nevents - 1];
	CHECK_EQ(event->data, data);
	CHECK_EQ(event->error, 0);
	CHECK(!memcmp(b->memory + dst, a->memory + src, bytes));
	CHECK_EQ(b->memory[dst - 1], 0xee);
	CHECK_EQ(b->memory[dst + bytes], 0xee);
	UNTIL(a, b, a->n[BW_EVENT_WRITTEN] > written);
	CHECK(a->events[a->nevents - 1].ctx == tag(bytes));
}

static void each_writes(struct end *a, struct end *b)
{
	if (!a->info.data_bytes)
		return;
	for (unsigned i = 0; i < SIZES; i++)
		for (unsigned k = 0; k < 4; k++)
			one_write(a, b, sizes[i], k, 1 + (3 * k) % 5,
				  k % 2 ? BW_WRITE_ARRIVED : 0);
	CHECK_EQ(a->failed + b->failed, 0);
	CHECK_EQ(a->n[BW_EVENT_WRITTEN], SIZES * 4);
	CHECK_EQ(b->n[BW_EVENT_REMOTE], SIZES * 4);
}

static void writes_of_all_sizes(void)
{
	each_network(each_writes);
}

/* The completion of such a write says that the bytes are there; nobody is told at the other end. */
static void each_arrives(struct end *a, struct end *b)
{
	for (unsigned i = 0; i < SIZES; i++) {
		unsigned written = a->n[BW_EVENT_WRITTEN];

		test_fill(a->memory, sizes[i], i);
		memset(b->memory, 0, sizes[i]);
		POST(a, b, write_at(a, 0, b, 0, sizes[i], false, 0, BW_WRITE_ARRIVED, tag(i)));
		UNTIL(b, a, a->n[BW_EVENT_WRITTEN] > written); /* the last poll is a's */
		CHECK(!memcmp(b->memory, a->memory, sizes[i]));
	}
	poll_for(a, b, 0.01);
	CHECK_EQ(b->nevents, 0);
	CHECK_EQ(a->failed, 0);
}

static void arrived_is_arrived(void)
{
	each_network(each_arrives);
}

#define MANY 700u
#define PIECE 4096u

/* Each piece is complete when it is said to have arrived, whatever the order. */
static void check_piece(struct end *end, const struct bw_event *event)
{
	uint64_t n = event->data;
	unsigned char right[PIECE];

	if (event->kind != BW_EVENT_REMOTE)
		return;
	CHECK(n < MANY);
	test_fill(right, n % PIECE + 1, n);
	CHECK(!memcmp(end->memory + n * PIECE, right, n % PIECE + 1));
	CHECK_EQ(end->memory[n * PIECE + n % PIECE + 1], 0);
	end->memory[n * PIECE] ^= 0xff; /* a second time is noticed */
}

static void each_has_many_in_flight(struct end *a, struct end *b)
{
	if (!a->info.data_bytes)
		return;
	b->seen = check_piece;
	for (unsigned i = 0; i < MANY; i++) {
		test_fill(a->memory + i * PIECE, i % PIECE + 1, i);
		POST(a, b, write_at(a, i * PIECE, b, i * PIECE, i % PIECE + 1, true, i, 0,
				    tag(i)));
	}
	UNTIL(a, b, b->n[BW_EVENT_REMOTE] == MANY && a->n[BW_EVENT_WRITTEN] == MANY);
	poll_for(a, b, 0.01);
	CHECK_EQ(b->n[BW_EVENT_REMOTE], MANY);
	for (unsigned i = 0; i < MANY; i++)
		CHECK(find_event(a, BW_EVENT_WRITTEN, tag(i)));
	CHECK_EQ(a->failed + b->failed, 0);
}

static void many_writes_in_flight(void)
{
	each_network(each_has_many_in_flight);
}

static void each_reads(struct end *a, struct end *b)
{
	for (unsigned i = 0; i < SIZES; i++) {
		size_t shift = i % 5;
		int ret;

		test_fill(b->memory + shift, sizes[i], i + 1);
		memset(a->memory, 0xee, sizes[i] + 16);
		while ((ret = a->engine->read(a->rail, a->peer, a->memory + 3, sizes[i],
					      a->reg.desc, b->reg.addr + shift, b->reg.key,
					      tag(i))) == -EAGAIN)
			both_poll(a, b);
		CHECK_EQ(ret, 0);
		UNTIL(a, b, a->n[BW_EVENT_READ] == i + 1);
		CHECK(find_event(a, BW_EVENT_READ, tag(i)));
		CHECK(!memcmp(a->memory + 3, b->memory + shift, sizes[i]));
		CHECK_EQ(a->memory[2], 0xee);
		CHECK_EQ(a->memory[3 + sizes[i]], 0xee);
	}
	CHECK_EQ(a->failed, 0);
	CHECK_EQ(b->nevents, 0);
}

static void reads_of_all_sizes(void)
{
	each_network(each_reads);
}

static void each_takes_all_data_or_refuses(struct end *a, struct end *b)
{
	if (a->info.data_bytes == 8)
		return;
	CHECK_EQ(write_at(a, 0, b, 0, 8, true, 1ull << 32, 0, NULL), -ENOTSUP);
}

static void data_is_never_cut(void)
{
	each_network(each_takes_all_data_or_refuses);
}

/* ---- what goes wrong ---------------------------------------------------------------------- */

/* A key that nobody has; beyond the end; memory that is no longer registered, by its old key. */
static void each_refuses_wrong_keys(struct end *a, struct end *b)
{
	struct bw_reg_request request = { .ptr = b->memory + HALF, .bytes = 4096, .dmabuf = -1,
					  .remote_write = true };
	struct bw_reg old;
	struct { uint64_t key, addr; } wrong[] = {
		{ b->reg.key ^ 1, b->reg.addr }, { b->reg.key, b->reg.addr + MEMORY - 4 }, { 0, 0 },
	};

	if (!a->info.data_bytes)
		return;
	CHECK_EQ(b->engine->reg(b->rail, &request, &old), 0);
	CHECK(old.key != b->reg.key);
	wrong[2].key = old.key;
	wrong[2].addr = old.addr;
	b->engine->unreg(b->rail, &old);
	memset(b->memory, 0xee, MEMORY);
	for (unsigned i = 0; i < 3; i++) {
		double until = seconds() + 0.3;
		int ret;

		while ((ret = a->engine->write(a->rail, a->peer, a->memory, 64, a->reg.desc,
					       wrong[i].addr, wrong[i].key, true, 9, 0,
					       tag(i))) == -EAGAIN && seconds() < until)
			both_poll(a, b);
		CHECK(ret <= 0);
		poll_for(a, b, 0.2);
		CHECK_EQ(b->n[BW_EVENT_REMOTE], 0);
	}
	for (unsigned i = 0; i < MEMORY; i++)
		CHECK_EQ(b->memory[i], 0xee);
}

static void wrong_keys_write_nothing(void)
{
	each_network(each_refuses_wrong_keys);
}

/* Nothing blocks and nothing is lost while the other end sleeps. */
static void each_waits_for_sleepers(struct end *a, struct end *b)
{
	double began;
	unsigned posted = 0;

	if (!a->info.data_bytes)
		return;
	one_write(a, b, 8, 0, 1, 0); /* they are connected */
	began = seconds();
	while (posted < 64 && seconds() < began + 0.2) {
		if (!write_at(a, posted * PIECE, b, posted * PIECE, PIECE, true, posted, 0, tag(0)))
			posted++;
		end_poll(a);
	}
	CHECK(posted > 0);
	CHECK(seconds() - began < 5);
	CHECK_EQ(b->n[BW_EVENT_REMOTE], 1);
	if (!a->info.target_polls)
		UNTIL(a, NULL, a->n[BW_EVENT_WRITTEN] == 1 + posted);
	UNTIL(a, b, b->n[BW_EVENT_REMOTE] == 1 + posted && a->n[BW_EVENT_WRITTEN] == 1 + posted);
}

static void a_sleeping_target_blocks_nobody(void)
{
	each_network(each_waits_for_sleepers);
}

/* The other end never moves: what was given to it is forgotten, and others are not in its way. */
static void each_disconnects(struct end *a, struct end *b)
{
	struct end *c = end_try(a->info.network);
	unsigned n, k;

	CHECK(c);
	for (unsigned i = 0; i < 200; i++) {
		(void)send_at(a, 0, 1u << 18, tag(1));
		(void)write_at(a, 0, b, 0, 1u << 18, false, 0, 0, tag(1));
	}
	a->engine->disconnect(a->rail, a->peer);
	n = a->nevents;
	poll_for(a, b, 0.05);
	CHECK_EQ(a->nevents, n);
	end_connect(a, c);
	end_connect(c, a);
	for (k = 0; k < 20; k++)
		one_message(a, c, 5000 + k, 1);
	one_message(c, a, 100000, 2);
	end_close(c);
}

static void disconnected_peers_are_forgotten(void)
{
	each_network(each_disconnects);
}

static void each_registers(struct end *a, struct end *b)
{
	struct bw_reg_request request = { .ptr = a->memory, .dmabuf = -1 };
	struct bw_reg reg;

	(void)b;
	CHECK_EQ(a->engine->reg(a->rail, &request, &reg), -EINVAL);
	request.bytes = 4096;
	request.gpu = true;
	if (!a->info.reaches_gpu) {
		CHECK_EQ(a->engine->reg(a->rail, &request, &reg), -ENOTSUP);
		CHECK_HAS(bw_err_text(), "mapping");
	}
	request.gpu = false;
	for (unsigned i = 0; i < 300; i++) {
		request.ptr = a->memory + i;
		CHECK_EQ(a->engine->reg(a->rail, &request, &reg), 0);
		CHECK(reg.key != a->reg.key);
		a->engine->unreg(a->rail, &reg);
	}
}

static void registers_host_memory(void)
{
	each_network(each_registers);
}

/* Sleeps on the descriptor between messages; each wakes it. */
static void each_wakes(struct end *a, struct end *b)
{
	struct pollfd fd = { .fd = b->info.fd, .events = POLLIN };

	if (b->info.fd < 0) {
		CHECK_EQ(b->engine->arm(b->rail), -EAGAIN);
		return;
	}
	one_message(a, b, 8, 0);
	for (unsigned i = 0; i < 50; i++) {
		unsigned received = b->n[BW_EVENT_RECEIVED];
		double began = seconds();

		POST(b, a, recv_at(b, 0, 64, tag(i)));
		/* It does sleep, though it may wake for nothing a few times. */
		while (i % 8 == 0 && (b->engine->arm(b->rail) || poll(&fd, 1, 20))) {
			end_poll(b);
			CHECK(seconds() < began + MOST_SECONDS);
		}
		CHECK_EQ(b->n[BW_EVENT_RECEIVED], received);
		POST(a, NULL, send_at(a, 0, 8, tag(i)));
		while (b->n[BW_EVENT_RECEIVED] == received) {
			end_poll(a);
			if (!b->engine->arm(b->rail))
				CHECK_EQ(poll(&fd, 1, MOST_SECONDS * 1000), 1);
			end_poll(b);
			CHECK(seconds() < began + MOST_SECONDS);
		}
	}
}

static void the_descriptor_wakes(void)
{
	each_network(each_wakes);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(there_are_engines),
		TEST(says_what_it_is),
		TEST(unknown_networks_are_refused),
		TEST(auto_is_never_an_imitation),
		TEST(has_addresses),
		TEST(messages_of_all_sizes),
		TEST(messages_keep_their_order),
		TEST(too_long_a_message_is_an_error),
		TEST(writes_of_all_sizes),
		TEST(arrived_is_arrived),
		TEST(many_writes_in_flight),
		TEST(reads_of_all_sizes),
		TEST(data_is_never_cut),
		TEST(wrong_keys_write_nothing),
		TEST(a_sleeping_target_blocks_nobody),
		TEST(disconnected_peers_are_forgotten),
		TEST(registers_host_memory),
		TEST(the_descriptor_wakes),
		{ 0 }
	};

	return test_main(argc, argv, cases);
}
