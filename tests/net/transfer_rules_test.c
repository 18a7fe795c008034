/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is promised beside moving bytes: pieces, signals, posting again, which receive takes which
 * message, who may write where, and what refusals say.
 */
#include <poll.h>

#include "net_test.h"

#define BOTH (BARWAY_REGION_PUT | BARWAY_REGION_GET)

static struct memory ma, mb;

static void begin_with(bool gpu, size_t bytes)
{
	pair_open(network, threads, rails);
	memory_open(&a, &ma, gpu, bytes, BOTH);
	memory_open(&b, &mb, gpu, bytes, BOTH);
}

static void begin(void)
{
	begin_with(false, MIB);
}

static void end(void)
{
	memory_close(&a, &ma);
	memory_close(&b, &mb);
	pair_close();
}

static struct barway_transfer *one(struct end *e, const struct memory *m, unsigned op,
				   const struct barway_key *key, uint64_t tag, uint64_t local,
				   uint64_t remote, uint64_t n)
{
	struct barway_part part = { local, remote, n };
	struct barway_transfer_options o = { .operation = op, .key = key, .tag = tag };

	return prepare(e, m, &part, 1, &o);
}

static int run(struct barway_transfer *t)
{
	OK(barway_transfer_post(t));
	return wait_both(t, BARWAY_VISIBLE);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* @n pieces of @bytes each, in a shuffled order at the far end; checked byte for byte. */
static void scatter(unsigned op, bool gpu, size_t n, size_t bytes)
{
	struct barway_part *mine = calloc(n, sizeof(*mine)), *theirs = calloc(n, sizeof(*theirs));
	size_t all = n * bytes + 64, *place = calloc(n, sizeof(*place));
	unsigned char *from = malloc(all), *to = malloc(all);
	struct barway_transfer_options o = { .operation = op, .tag = 5 }, r = {
		.operation = BARWAY_RECV, .tag = 5 };
	struct barway_transfer *t, *receive = NULL;
	bool get = op == BARWAY_GET;
	uint64_t random = n + bytes;

	CHECK(mine && theirs && place && from && to);
	begin_with(gpu, all);
	memory_fill(get ? &b : &a, get ? &mb : &ma, 3);
	memory_zero(get ? &a : &b, get ? &ma : &mb);
	for (size_t i = 0; i < n; i++)
		place[i] = i;
	for (size_t i = n; i > 1; i--) {
		size_t k = test_random(&random) % i, keep = place[i - 1];

		place[i - 1] = place[k];
		place[k] = keep;
	}
	for (size_t i = 0; i < n; i++) {
		mine[i] = (struct barway_part){ i * bytes + 1, place[i] * bytes + 3, bytes };
		if (op == BARWAY_SEND) /* the receive's pieces are cut elsewhere */
			theirs[i] = (struct barway_part){ .local = place[i] * bytes + 3,
							  .bytes = bytes };
	}
	o.key = get || op == BARWAY_PUT ? &mb.key : NULL;
	t = prepare(&a, &ma, mine, n, &o);
	if (op == BARWAY_SEND) {
		receive = prepare(&b, &mb, theirs, n, &r);
		OK(barway_transfer_post(receive));
	}
	OK(run(t));
	if (receive) {
		OK(wait_both(receive, BARWAY_VISIBLE));
		OK(barway_transfer_free(receive));
	}
	read_from(&a, &ma, 0, get ? to : from, all);
	read_from(&b, &mb, 0, get ? from : to, all);
	for (size_t i = 0; i < n; i++)
		if (memcmp(from + (get ? mine[i].remote : mine[i].local),
			   to + (get ? mine[i].local : mine[i].remote), bytes))
			FAIL("piece %zu of %zu of %zu bytes is wrong", i, n, bytes);
	OK(barway_transfer_free(t));
	end();
	free(mine);
	free(theirs);
	free(place);
	free(from);
	free(to);
}

static void pieces(void)
{
	for (unsigned op = BARWAY_PUT; op <= BARWAY_SEND; op++)
		for (int gpu = 0; gpu < 2; gpu++) {
			scatter(op, gpu, 3, 17);
			scatter(op, gpu, 100, 8);
			scatter(op, gpu, 100, 5000);
			scatter(op, gpu, 1500, 700); /* more than one message has room for */
			scatter(op, gpu, 3, MIB + 13);
		}
}

/* ---- signals, posting again ------------------------------------------------------------------ */

static void signals(void)
{
	struct barway_part part = { 0, 0, 100000 };
	struct barway_transfer_options o = { .operation = BARWAY_PUT, .signal_offset = 200000,
					     .signal_value = 0x1122334455667788 };
	struct barway_transfer *t;
	uint64_t got;

	for (int gpu = 0; gpu < 2; gpu++)
		for (int small = 0; small < 2; small++) {
			begin_with(gpu, MIB);
			o.key = o.signal = &mb.key;
			part.bytes = small ? 24 : 100000;
			t = prepare(&a, &ma, &part, 1, &o);
			OK(run(t));
			read_from(&b, &mb, 200000, &got, sizeof(got));
			CHECK(got == o.signal_value);
			OK(barway_transfer_free(t));
			end();
		}
}

static void again(void)
{
	uint64_t value, got;
	struct barway_transfer *t;

	begin();
	t = one(&a, &ma, BARWAY_PUT, &mb.key, 0, 0, 64, sizeof(value));
	for (value = 1; value < 3000; value++) {
		write_to(&a, &ma, 0, &value, sizeof(value));
		OK(run(t));
		read_from(&b, &mb, 64, &got, sizeof(got));
		CHECK(got == value);
	}
	OK(barway_transfer_free(t));
	end();
}

/* Many at once, both ways. */
static void both_directions(void)
{
	enum { MANY = 64 };
	struct barway_transfer *t[2][MANY], *r[2][MANY];
	static const size_t sizes[] = { 8, 5000, 9000, 100000 };

	begin_with(false, 16 * MIB);
	for (int k = 0; k < MANY; k++)
		for (int d = 0; d < 2; d++) {
			struct end *from = d ? &b : &a, *to = d ? &a : &b;
			size_t n = sizes[(unsigned)k % N(sizes)];
			uint64_t at = (uint64_t)k * 100000;

			t[d][k] = one(from, d ? &mb : &ma, BARWAY_SEND, NULL, (uint64_t)k, at, 0,
				      n);
			r[d][k] = one(to, d ? &ma : &mb, BARWAY_RECV, NULL, (uint64_t)k,
				      8 * MIB + at, 0, n);
		}
	memory_fill(&a, &ma, 1);
	memory_fill(&b, &mb, 2);
	for (int k = 0; k < MANY; k++)
		for (int d = 0; d < 2; d++) {
			OK(barway_transfer_post(t[d][k]));
			OK(barway_transfer_post(r[d][MANY - 1 - k]));
		}
	for (int k = 0; k < MANY; k++)
		for (int d = 0; d < 2; d++) {
			OK(wait_both(t[d][k], BARWAY_VISIBLE));
			OK(wait_both(r[d][k], BARWAY_VISIBLE));
			OK(barway_transfer_free(t[d][k]));
			OK(barway_transfer_free(r[d][k]));
		}
	for (unsigned k = 0; k < MANY; k++) {
		size_t at = (size_t)k * 100000, n = sizes[k % N(sizes)];

		CHECK(!memcmp((char *)(uintptr_t)ma.addr + at,
			      (char *)(uintptr_t)mb.addr + 8 * MIB + at, n));
		CHECK(!memcmp((char *)(uintptr_t)mb.addr + at,
			      (char *)(uintptr_t)ma.addr + 8 * MIB + at, n));
	}
	end();
}

/* ---- matching -------------------------------------------------------------------------------- */

static uint64_t word_at(const struct memory *m, size_t at)
{
	uint64_t v;

	memcpy(&v, (char *)(uintptr_t)m->addr + at, sizeof(v));
	return v;
}

static struct barway_transfer *receive(uint64_t tag, uint64_t ignore, size_t at, size_t n)
{
	struct barway_part part = { .local = at, .bytes = n };
	struct barway_transfer_options o = { .operation = BARWAY_RECV, .tag = tag,
					     .ignore = ignore };
	struct barway_transfer *t = prepare(&b, &mb, &part, 1, &o);

	OK(barway_transfer_post(t));
	return t;
}

static void send_word(uint64_t tag, uint64_t value, struct barway_transfer **out)
{
	size_t at = 8 * (tag & 0xff);

	write_to(&a, &ma, at, &value, sizeof(value));
	*out = one(&a, &ma, BARWAY_SEND, NULL, tag, at, 0, sizeof(value));
	OK(barway_transfer_post(*out));
	OK(wait_both(*out, BARWAY_LOCAL)); /* others may use the same word */
}

static void settle(void)
{
	double until = seconds() + 0.05;

	while (seconds() < until) {
		barway_endpoint_progress(a.ep);
		barway_endpoint_progress(b.ep);
	}
}

/* The earliest receive that takes it, exact or not. */
static void order_of_receives(void)
{
	struct barway_transfer *r[4], *s[4];

	begin();
	r[0] = receive(7, 0, 0, 8);
	r[1] = receive(0, ~0ull, 8, 8);
	r[2] = receive(7, 0, 16, 8);
	r[3] = receive(4, 3, 24, 8);
	send_word(7, 100, &s[0]);  /* r0: the earliest exact one */
	send_word(9, 101, &s[1]);  /* r1: takes all */
	send_word(6, 102, &s[2]);  /* r3: 4 to 7 */
	send_word(7, 103, &s[3]);  /* r2 */
	for (int i = 0; i < 4; i++) {
		OK(wait_both(s[i], BARWAY_VISIBLE));
		OK(wait_both(r[i], BARWAY_VISIBLE));
	}
	CHECK_EQ(word_at(&mb, 0), 100);
	CHECK_EQ(word_at(&mb, 8), 101);
	CHECK_EQ(word_at(&mb, 24), 102);
	CHECK_EQ(word_at(&mb, 16), 103);
	CHECK_EQ(info_of(r[1]).tag, 9);
	CHECK_EQ(info_of(r[3]).tag, 6);
	for (int i = 0; i < 4; i++) {
		OK(barway_transfer_free(s[i]));
		OK(barway_transfer_free(r[i]));
	}
	end();
}

/* Messages that nobody waits for are kept in their order. */
static void early_messages(void)
{
	struct barway_transfer *s[5], *r[5];
	static const uint64_t tags[5] = { 3, 1, 2, 1, 3 };

	begin();
	for (uint64_t i = 0; i < 5; i++)
		send_word(tags[i], 50 + i, &s[i]);
	settle();
	for (int i = 0; i < 5; i++)
		CHECK_EQ(barway_transfer_poll(s[i], BARWAY_VISIBLE), -EBUSY);
	OK(barway_transfer_poll(s[0], BARWAY_LOCAL)); /* its source may be reused all the same */
	r[0] = receive(1, 0, 0, 8);
	r[1] = receive(0, ~0ull, 8, 8);
	r[2] = receive(1, 0, 16, 8);
	r[3] = receive(2, 1, 24, 8);
	r[4] = receive(0, ~0ull, 32, 8);
	for (int i = 0; i < 5; i++) {
		OK(wait_both(r[i], BARWAY_VISIBLE));
		OK(wait_both(s[i], BARWAY_VISIBLE));
	}
	CHECK_EQ(word_at(&mb, 0), 51);
	CHECK_EQ(word_at(&mb, 8), 50);
	CHECK_EQ(word_at(&mb, 16), 53);
	CHECK_EQ(word_at(&mb, 24), 52);
	CHECK_EQ(word_at(&mb, 32), 54);
	for (int i = 0; i < 5; i++) {
		OK(barway_transfer_free(s[i]));
		OK(barway_transfer_free(r[i]));
	}
	end();
}

/* More than the receiver keeps: the rest waits at the sender, nothing is lost, order is kept. */
static void flood(void)
{
	enum { MANY = 2000 };
	struct barway_transfer **s = calloc(MANY, sizeof(struct barway_transfer *)), *r;

	CHECK(s);
	begin();
	for (uint64_t i = 0; i < MANY; i++)
		write_to(&a, &ma, i * 8, &i, 8);
	for (uint64_t i = 0; i < MANY; i++) {
		s[i] = one(&a, &ma, BARWAY_SEND, NULL, 1, i * 8, 0, i % 3 ? 8 : 4000);
		OK(barway_transfer_post(s[i]));
	}
	settle();
	for (uint64_t i = 0; i < MANY; i++) {
		r = receive(1, 0, 0, 4000);
		OK(wait_both(r, BARWAY_VISIBLE));
		CHECK_EQ(word_at(&mb, 0), i);
		CHECK_EQ(info_of(r).bytes, i % 3 ? 8 : 4000);
		OK(barway_transfer_free(r));
	}
	for (int i = 0; i < MANY; i++) {
		OK(wait_both(s[i], BARWAY_VISIBLE));
		OK(barway_transfer_free(s[i]));
	}
	end();
	free(s);
}

static void too_long(void)
{
	for (int large = 0; large < 2; large++) {
		size_t n = large ? 100000 : 100;
		struct barway_transfer *s, *r;

		begin();
		s = one(&a, &ma, BARWAY_SEND, NULL, 1, 0, 0, n);
		OK(barway_transfer_post(s));
		r = receive(1, 0, 0, n - 1);
		FAILS(wait_both(s, BARWAY_VISIBLE), EMSGSIZE, "longer than the receive");
		FAILS(wait_both(r, BARWAY_VISIBLE), EMSGSIZE, "has room for");
		OK(barway_transfer_free(s));
		OK(barway_transfer_free(r));
		end();
	}
}

/* ---- who may write where --------------------------------------------------------------------- */

static void refused(const struct barway_key *key, unsigned op, uint64_t at, size_t n, int err,
		    const char *text)
{
	struct barway_transfer *t = one(&a, &ma, op, key, 0, 0, at, n);
	struct barway_transfer_info i;

	OK(barway_transfer_post(t));
	FAILS(wait_both(t, BARWAY_VISIBLE), err, text);
	CHECK_HAS(barway_errmsg(), here());
	CHECK_HAS(barway_errmsg(), network);
	i = info_of(t);
	CHECK_EQ(i.arrived_ns, 0);
	CHECK_EQ(i.visible_ns, 0);
	OK(barway_transfer_free(t));
}

static void keys(void)
{
	static const size_t sizes[] = { 8, 100000 };
	struct memory other;
	struct barway_key key;
	struct barway_transfer *t;
	unsigned char zero[64] = { 0 };

	begin();
	memory_open(&b, &other, false, MIB, BARWAY_REGION_GET);
	memory_fill(&a, &ma, 1);
	for (unsigned i = 0; i < N(sizes); i++) {
		refused(&other.key, BARWAY_PUT, 0, sizes[i], EACCES, "refuses the key");
		refused(&ma.key, BARWAY_PUT, 0, sizes[i], EACCES, "refuses the key");
		refused(&mb.key, BARWAY_PUT, MIB - 7, sizes[i], ERANGE, "outside");
		refused(&mb.key, BARWAY_GET, MIB - 7, sizes[i], ERANGE, "outside");
		refused(&mb.key, BARWAY_PUT, UINT64_MAX - 200000, sizes[i], ERANGE, "outside");
	}
	key = mb.key;
	memory_close(&b, &mb);
	for (unsigned i = 0; i < N(sizes); i++) {
		refused(&key, BARWAY_PUT, 0, sizes[i], EACCES, "closed");
		refused(&key, BARWAY_GET, 0, sizes[i], EACCES, "closed");
	}
	/* the same place with another key */
	memory_open(&b, &mb, false, MIB, BOTH);
	refused(&key, BARWAY_PUT, 0, 8, EACCES, "refuses");
	CHECK(!memcmp((void *)(uintptr_t)mb.addr, zero, sizeof(zero)));
	/* still alive */
	t = one(&a, &ma, BARWAY_PUT, &mb.key, 0, 0, 0, 8);
	OK(run(t));
	OK(barway_transfer_free(t));
	memory_close(&b, &other);
	end();
}

/* A key in which any bit was changed is none, or is refused. */
static void forged(void)
{
	struct barway_part part = { 0, 0, 8 };
	struct barway_transfer_options o = { .size = sizeof(o), .operation = BARWAY_PUT };
	struct barway_transfer *t;

	begin();
	for (unsigned bit = 0; bit < 8 * sizeof(struct barway_key); bit += 3) {
		struct barway_key key = mb.key;

		key.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		o.key = &key;
		FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 1, &o, &t), EACCES,
		      "no key");
	}
	end();
}

static void bad_arguments(void)
{
	struct barway_part part = { 0, 0, 8 };
	struct barway_transfer_options o = { .size = sizeof(o), .operation = BARWAY_PUT };
	struct barway_endpoint_options e = end_options(network, 0, 1);
	struct barway_endpoint *ep;
	struct barway_region *region;
	struct barway_transfer *t = NULL;
	struct barway_peer *peer;
	struct barway_key key;

	begin();
	FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 1, &o, &t), EINVAL, "key is NULL");
	o.key = &mb.key;
	FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 0, &o, &t), EINVAL, "0 parts");
	part.bytes = MIB + 1;
	FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 1, &o, &t), EINVAL, "part 0");
	part.bytes = 8;
	o.operation = 5;
	FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 1, &o, &t), EINVAL, "operation");
	o.operation = BARWAY_PUT;
	o.signal = &mb.key;
	o.signal_offset = 4;
	FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 1, &o, &t), EINVAL, "multiple of "
		"8");
	o.signal = NULL;
	o.path = 7;
	FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 1, &o, &t), EINVAL, "path");
	o.path = 0;
	OK(barway_transfer_prepare(a.peer, ma.region, &part, 1, &o, &t));
	FAILS(barway_transfer_poll(t, BARWAY_VISIBLE), EINVAL, "not posted");
	FAILS(barway_transfer_cancel(t), EINVAL, "not posted");
	FAILS(barway_transfer_poll(t, 4), EINVAL, "moment");
	OK(barway_transfer_free(t));
	FAILS(barway_transfer_free(t), ESTALE, "closed before");
	FAILS(barway_transfer_post(t), ESTALE, "");
	FAILS(barway_region_open(a.ep, ma.addr, 0, 0, &region), EINVAL, "0 bytes");
	FAILS(barway_region_open(a.ep, ma.addr, 8, 4, &region), EINVAL, "access");
	FAILS(barway_region_open(a.ep, 4096, 8, 0, &region), EFAULT, "nothing is there");
	OK(barway_region_open(a.ep, ma.addr, 8, 0, &region));
	FAILS(barway_region_key(region, &key), EACCES, "no peer");
	OK(barway_region_close(region));
	FAILS(barway_region_close(region), ESTALE, "");
	FAILS(barway_peer_connect(a.ep, "nonsense", SECOND, &peer), EINVAL, "nonsense");
	FAILS(barway_peer_connect(a.ep, "127.0.0.1:1", SECOND, &peer), ECONNREFUSED, "");
	FAILS(barway_peer_accept(a.ep, 0, &peer), EAGAIN, "nobody");
	FAILS(barway_peer_accept(a.ep, 20 * MS, &peer), ETIMEDOUT, "nobody");
	e.secret_bytes = 15;
	FAILS(barway_endpoint_open(a.ctx, &e, &ep), ENOKEY, "16");
	e.secret = NULL;
	FAILS(barway_endpoint_open(a.ctx, &e, &ep), ENOKEY, "secret");
	e = end_options("no-such-network", 0, 1);
	FAILS(barway_endpoint_open(a.ctx, &e, &ep), ENOTSUP, "no-such-network");
	e = end_options(network, 0, 17);
	FAILS(barway_endpoint_open(a.ctx, &e, &ep), EINVAL, "rails");
	e = end_options(network, 0, 1);
	e.listen = "192.0.2.1";
	FAILS(barway_endpoint_open(a.ctx, &e, &ep), EADDRNOTAVAIL, "192.0.2.1");
	end();
}

static void other_secret(void)
{
	static const char other[sizeof(secret)] = "another secret";
	struct barway_endpoint_options e = end_options(network, 0, 1);
	struct barway_peer *peer;
	pthread_t thread;
	struct end c;
	char name[64];

	begin();
	e.secret = other;
	end_open(&c, &e);
	OK(barway_endpoint_name(b.ep, name, sizeof(name)));
	helper_stop = false;
	CHECK(!pthread_create(&thread, NULL, helper, &b));
	FAILS(barway_peer_connect(c.ep, name, 5 * SECOND, &peer), EACCES, "secret");
	helper_stop = true;
	pthread_join(thread, NULL);
	FAILS(barway_peer_accept(b.ep, 0, &peer), EAGAIN, "");
	CHECK(counters_of(&b).peers_refused >= 1);
	end_close(&c);
	end();
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The descriptor becomes readable; takes what there is to be read. */
static bool tells(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	double until = seconds() + 20;
	uint64_t n = 0;

	while (poll(&p, 1, 0) != 1 && seconds() < until) {
		barway_endpoint_progress(a.ep);
		barway_endpoint_progress(b.ep);
	}
	return read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n) && n == 1;
}

/* What is readable is done, each time; and a descriptor that is made late misses nothing. */
static void descriptor(void)
{
	struct barway_transfer *t;

	begin();
	t = one(&a, &ma, BARWAY_PUT, &mb.key, 0, 0, 0, 8);
	for (unsigned i = 0; i < (SANITIZED ? 300 : 3000); i++) {
		int fd;

		OK(barway_transfer_post(t));
		fd = barway_transfer_fd(t); /* the first time while it may be ending */
		CHECK(fd >= 0);
		CHECK(tells(fd));
		OK(barway_transfer_poll(t, BARWAY_VISIBLE));
	}
	OK(barway_transfer_free(t));
	end();
}

/* A region whose signal is yet to be stored stays open as long. */
static void signal_keeps_its_region(void)
{
	struct barway_part part = { 0, 0, 900000 };
	struct barway_transfer_options o = { .operation = BARWAY_PUT, .signal_value = 42 };
	struct memory word;
	struct barway_transfer *t;
	unsigned kept = 0;

	for (unsigned i = 0; i < 20; i++) {
		uint64_t got = 0;
		int ret;

		begin();
		memory_open(&b, &word, false, 4096, BOTH);
		o.key = &mb.key;
		o.signal = &word.key;
		t = prepare(&a, &ma, &part, 1, &o);
		OK(barway_transfer_post(t));
		for (unsigned k = 0; k < i; k++) {
			barway_endpoint_progress(a.ep);
			barway_endpoint_progress(b.ep);
		}
		ret = barway_region_close(word.region);
		if (ret) {
			CHECK_EQ(ret, -EBUSY);
			CHECK_HAS(barway_errmsg(), "peers'");
			kept++;
		}
		if (!wait_both(t, BARWAY_VISIBLE)) {
			memcpy(&got, (void *)(uintptr_t)word.addr, sizeof(got));
			CHECK_EQ(got, 42);
		} else {
			CHECK_HAS(barway_errmsg(), "key"); /* it was closed before */
		}
		OK(barway_transfer_free(t));
		if (ret)
			OK(barway_region_close(word.region));
		free((void *)(uintptr_t)word.addr);
		end();
	}
	CHECK(kept || threads || strcmp(network, "tcp"));
}

/* Nothing at all, by every way and in many pieces. */
static void nothing(void)
{
	static struct barway_part parts[1000];
	static const unsigned paths[] = { BARWAY_PATH_AUTO, BARWAY_PATH_DIRECT };

	begin();
	for (unsigned k = 0; k < 2; k++)
		for (unsigned op = BARWAY_PUT; op <= BARWAY_SEND; op++)
			for (unsigned n = 1; n <= N(parts); n = n == 1 ? N(parts) : n + 1) {
				struct barway_transfer_options o = { .operation = op, .tag = 3,
								     .path = paths[k] };
				struct barway_transfer *r = NULL, *t;

				o.key = op == BARWAY_SEND ? NULL : &mb.key;
				if (op == BARWAY_SEND)
					r = receive(3, 0, 0, 8);
				t = prepare(&a, &ma, parts, n, &o);
				OK(run(t));
				if (r)
					OK(wait_both(r, BARWAY_VISIBLE));
				if (r)
					OK(barway_transfer_free(r));
				OK(barway_transfer_free(t));
			}
	end();
}

/* Memory that a peer's put would end this process by. */
static void memory_that_is_not_all_there(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *p = mmap(NULL, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct barway_region *r;

	begin();
	CHECK(p != MAP_FAILED);
	FAILS(barway_region_open(a.ep, (uintptr_t)p, 3 * page, BARWAY_REGION_PUT, &r), EFAULT,
	      "written");
	if (strcmp(network, "verbs")) { /* whose cards take no memory that may not be written */
		OK(barway_region_open(a.ep, (uintptr_t)p, 3 * page, BARWAY_REGION_GET, &r));
		OK(barway_region_close(r));
	}
	CHECK(!mprotect(p, 3 * page, PROT_READ | PROT_WRITE));
	OK(barway_region_open(a.ep, (uintptr_t)p + 5, 3 * page - 5, BARWAY_REGION_PUT, &r));
	OK(barway_region_close(r));
	CHECK(!munmap(p + page, page));
	FAILS(barway_region_open(a.ep, (uintptr_t)p, 3 * page, 0, &r), EFAULT, "nothing is there");
	OK(barway_region_open(a.ep, (uintptr_t)p, page, BARWAY_REGION_PUT, &r));
	OK(barway_region_close(r));
	CHECK(!munmap(p, 3 * page));
	end();
}

static void states(void)
{
	struct barway_transfer *r, *s;
	int fd;

	begin();
	r = receive(1, 0, 0, 8);
	FAILS(barway_transfer_post(r), EBUSY, "under way");
	FAILS(barway_region_close(mb.region), EBUSY, "under way");
	FAILS(barway_transfer_wait(r, BARWAY_VISIBLE, 20 * MS), EAGAIN, "goes on");
	fd = barway_transfer_fd(r);
	CHECK(fd >= 0);
	send_word(1, 77, &s);
	OK(wait_both(r, BARWAY_VISIBLE));
	CHECK(tells(fd));
	OK(wait_both(s, BARWAY_VISIBLE));
	OK(barway_transfer_post(r)); /* nothing to read again */
	{
		uint64_t n;

		CHECK_EQ(read(fd, &n, sizeof(n)), -1);
	}
	OK(barway_transfer_cancel(r));
	FAILS(barway_transfer_poll(r, BARWAY_VISIBLE), ECANCELED, "cancelled");
	{
		struct barway_transfer_info i = info_of(s);

		CHECK_EQ(i.eager, 1);
		CHECK_EQ(i.bytes, 8);
		CHECK(i.posted_ns && i.returned_ns >= i.posted_ns && i.visible_ns >= i.ready_ns &&
		      i.local_ns && i.arrived_ns);
		CHECK_HAS(i.path, network);
	}
	OK(barway_transfer_free(r));
	OK(barway_transfer_free(s));
	end();
}

static void peer_closes(void)
{
	struct barway_peer_info i = { .size = sizeof(i) };
	struct barway_transfer *r, *s;

	begin();
	r = receive(1, 0, 0, 8);
	s = one(&a, &ma, BARWAY_SEND, NULL, 9, 0, 0, 8);
	OK(barway_transfer_post(s));
	settle();
	OK(barway_peer_query(a.peer, &i));
	CHECK_EQ(i.alive, 1);
	CHECK_EQ(i.pid, getpid());
	OK(barway_peer_close(b.peer));
	FAILS(barway_transfer_poll(r, BARWAY_VISIBLE), ECANCELED, "closed");
	FAILS(wait_both(s, BARWAY_VISIBLE), EIO, "disconnected");
	CHECK_HAS(barway_errmsg(), here());
	OK(barway_peer_query(a.peer, &i));
	CHECK_EQ(i.alive, 0);
	CHECK_HAS(i.failure, "disconnected");
	FAILS(barway_transfer_post(s), EIO, "connect again");
	OK(barway_transfer_free(s));
	OK(barway_transfer_free(r));
	OK(barway_peer_close(a.peer));
	/* and again */
	pair_connect();
	s = one(&a, &ma, BARWAY_PUT, &mb.key, 0, 0, 0, 100000);
	OK(run(s));
	OK(barway_transfer_free(s));
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(pieces), TEST(signals), TEST(again), TEST(both_directions),
		TEST(order_of_receives), TEST(early_messages), TEST(flood), TEST(too_long),
		TEST(keys), TEST(forged), TEST(bad_arguments), TEST(other_secret), TEST(descriptor),
		TEST(signal_keeps_its_region), TEST(nothing), TEST(memory_that_is_not_all_there),
		TEST(states),
		TEST(peer_closes), { 0 },
	};

	return net_main(argc, argv, cases);
}
