/* SPDX-License-Identifier: BSD-3-Clause */
/* Notes: order, sizes, back-pressure, what of them is left when the other end has gone. */
#include "control_test.h"

static struct bw_control *a, *b;
static struct bw_link *of_a, *of_b;

static void set_up(void)
{
	a = open_as(NULL, SECRET, "a", SECOND);
	b = open_as(NULL, SECRET, "b", SECOND);
	link_up(a, b, &of_a, &of_b);
}

static void tear_down(void)
{
	bw_control_close(a);
	bw_control_close(b);
}

/* Note @n of a sequence: its size and bytes follow from its number. */
static size_t note(uint64_t n, unsigned char *data)
{
	uint64_t state = n * 0x9e3779b97f4a7c15ull + 1;
	size_t bytes = test_random(&state) % 8 ? 1 + test_random(&state) % 64
					       : 1 + test_random(&state) % BW_NOTE_MAX;

	test_fill(data, bytes, n);
	return bytes;
}

static bool send_note(struct bw_link *link, uint64_t n)
{
	unsigned char data[BW_NOTE_MAX];
	size_t bytes = note(n, data);
	int ret = bw_link_send(link, (uint16_t)n, data, bytes);

	if (ret != -EAGAIN)
		OK(ret);
	return !ret;
}

static bool take_note(struct bw_link *link, uint64_t n)
{
	unsigned char want[BW_NOTE_MAX], data[BW_NOTE_MAX];
	size_t bytes = note(n, want);
	uint16_t kind = 0;
	int ret = bw_link_recv(link, &kind, data, sizeof(data));

	if (ret < 0)
		FAIL("note %llu: %d: %s", (unsigned long long)n, ret, bw_err_text());
	if (!ret)
		return false;
	CHECK_EQ(ret, bytes);
	CHECK_EQ(kind, (uint16_t)n);
	CHECK(!memcmp(data, want, bytes));
	return true;
}

#define NOTES 100000u

/* Both ways at once, by turns of random length. */
static void in_order(void)
{
	uint64_t sent[2] = { 0 }, taken[2] = { 0 }, state = 42, full = 0;
	struct bw_link *link[2];

	set_up();
	link[0] = of_a;
	link[1] = of_b;
	while (taken[0] < NOTES || taken[1] < NOTES) {
		unsigned end = test_random(&state) & 1;

		for (uint64_t k = test_random(&state) % 600; k && sent[end] < NOTES; k--) {
			if (!send_note(link[end], sent[end])) {
				full++;
				break;
			}
			sent[end]++;
		}
		step(end ? a : b);
		for (uint64_t k = test_random(&state) % 600; k; k--)
			taken[end] += take_note(link[!end], taken[end]);
		step(end ? b : a);
	}
	CHECK(full > 10);
	CHECK(!take_note(of_a, 0) && !take_note(of_b, 0));
	tear_down();
}

/* An end that takes nothing: the other is told, and goes on when it takes some. */
static void back_pressure(void)
{
	uint64_t sent = 0, taken = 0;

	set_up();
	while (send_note(of_a, sent))
		sent++;
	for (unsigned i = 0; i < 50; i++) {
		step_for(b, 0);
		step_for(a, 0);
		CHECK(!send_note(of_a, sent));
	}
	CHECK(sent > 100);
	step_for(b, 20);
	CHECK(send_note(of_b, 7)); /* the other way is free */
	step_for(a, 20);
	CHECK(take_note(of_a, 7));
	while (take_note(of_b, taken))
		taken++;
	CHECK_EQ(taken, sent);
	step_for(a, 20);
	CHECK(send_note(of_a, sent));
	step_for(b, 20);
	CHECK(take_note(of_b, sent));
	tear_down();
}

static void sizes(void)
{
	unsigned char data[BW_NOTE_MAX + 1] = { 'x' };
	uint16_t kind = 99;

	set_up();
	RET(bw_link_send(of_a, 1, data, 0), -EINVAL);
	RET(bw_link_send(of_a, 1, data, BW_NOTE_MAX + 1), -EINVAL);
	OK(bw_link_send(of_a, 0xffff, data, BW_NOTE_MAX));
	step_for(b, 20);
	RET(bw_link_recv(of_b, &kind, data, BW_NOTE_MAX - 1), -EMSGSIZE);
	CHECK_EQ(kind, 99);
	RET(bw_link_recv(of_b, &kind, data, sizeof(data)), BW_NOTE_MAX);
	CHECK_EQ(kind, 0xffff);
	RET(bw_link_recv(of_b, &kind, data, sizeof(data)), 0);
	tear_down();
}

/* One that is not watched yet sends and reads by itself; then the watch goes on with it. */
static void without_a_watch(void)
{
	static struct stepper s;
	struct bw_link *alone;
	uint64_t sent = 0, taken = 0, back = 0;

	set_up();
	start(&s, b);
	OK(bw_control_connect(a, bw_control_name(b), 5 * SECOND, &alone));
	wait_for_links(&s, 1);
	while (taken < 5000) {
		while (sent < 5000 && send_note(alone, sent))
			sent++;
		pthread_mutex_lock(&s.lock);
		while (take_note(s.links[0], taken)) {
			CHECK(send_note(s.links[0], taken));
			taken++;
			if (!(taken % 16))
				break;
		}
		pthread_mutex_unlock(&s.lock);
		while (take_note(alone, back))
			back++;
	}
	OK(bw_control_watch(a, alone));
	for (uint64_t end = bw_net_now() + 5 * SECOND; back < 5000 && bw_net_now() < end;) {
		step(a);
		while (take_note(alone, back))
			back++;
	}
	CHECK_EQ(back, 5000);
	stop(&s);
	tear_down();
}

/* What was sent before the end is not lost, and comes before the end. */
static void last_words(void)
{
	uint64_t n = 0;
	unsigned char data[BW_NOTE_MAX];
	uint16_t kind;

	set_up();
	while (send_note(of_a, n))
		n++;
	bw_link_close(of_a);
	step_for(b, 20);
	CHECK(bw_link_dead(of_b));
	for (uint64_t i = 0; i < n; i++)
		CHECK(take_note(of_b, i));
	RET(bw_link_recv(of_b, &kind, data, sizeof(data)), -EIO);
	CHECK_HAS(bw_err_text(), bw_control_name(a));
	CHECK_HAS(bw_err_text(), "closed by the other end");
	RET(bw_link_send(of_b, 1, "x", 1), -EIO);
	tear_down();
}

/* ---- an end that has the secret, and a fault ------------------------------------------------ */

static void frame(unsigned char *p, unsigned type, unsigned kind, uint32_t value)
{
	memset(p, 0, 8);
	p[0] = (unsigned char)type;
	p[2] = (unsigned char)kind;
	memcpy(p + 4, &value, 4);
}

static void check_garbled(unsigned type, unsigned kind, uint32_t value, const char *says)
{
	unsigned char bytes[8];
	static struct raw r;
	struct bw_link *link;

	a = open_as(NULL, SECRET, "", SECOND);
	link = raw_link(&r, a);
	OK(bw_link_send(link, 3, "abc", 3));
	frame(bytes, type, kind, value);
	CHECK_EQ(write(r.fd, bytes, 8), 8);
	step_for(a, 50);
	CHECK(bw_link_dead(link));
	CHECK_HAS(bw_link_dead(link), says);
	close(r.fd);
	bw_control_close(a);
}

static void speaks_wrongly(void)
{
	check_garbled(0, 0, 1, "unknown type");
	check_garbled(3, 0, 1, "unknown type");
	check_garbled(1, 0, 0, "too long or empty");
	check_garbled(1, 0, BW_NOTE_MAX + 1, "too long or empty");
	check_garbled(1, 0, 0xffffffff, "too long or empty");
	check_garbled(2, 0, 0, "credit for what was not sent");
	check_garbled(2, 1, 11, "credit for what was not sent");
	check_garbled(2, 0, 12, "credit for what was not sent");
}

static void sends_without_credit(void)
{
	static unsigned char many[100][8 + 1000];
	static struct raw r;
	struct bw_link *link;
	unsigned got = 0;
	uint16_t kind;

	a = open_as(NULL, SECRET, "", SECOND);
	link = raw_link(&r, a);
	for (unsigned i = 0; i < 100; i++)
		frame(many[i], 1, i, 1000);
	(void)!send(r.fd, many, sizeof(many), MSG_NOSIGNAL);
	step_for(a, 50);
	CHECK_HAS(bw_link_dead(link), "more than it had credit for");
	while (bw_link_recv(link, &kind, many, sizeof(many)) == 1000)
		CHECK_EQ(kind, got++);
	CHECK(got > 30 && got < 40);
	raw_close(r.fd);
	bw_control_close(a);
}

/* 500 streams of frames, of which a few bytes are wrong: a link lives or dies, no more. */
static void random_frames(void)
{
	uint64_t state = 7;
	unsigned died = 0;

	a = open_as(NULL, SECRET, "", SECOND);
	for (unsigned i = 0; i < 500; i++) {
		unsigned char bytes[4096];
		static struct raw r;
		struct bw_link *link = raw_link(&r, a);
		uint16_t kind;

		for (unsigned at = 0; at < sizeof(bytes) - 80; at += 8 + 64)
			frame(bytes + at, 1, 5, 64);
		for (unsigned k = test_random(&state) % 8; k; k--)
			bytes[test_random(&state) % sizeof(bytes)] ^=
				(unsigned char)test_random(&state);
		(void)!send(r.fd, bytes, 1 + test_random(&state) % sizeof(bytes), MSG_NOSIGNAL);
		step_for(a, 0);
		while (bw_link_recv(link, &kind, bytes, sizeof(bytes)) > 0)
			;
		died += bw_link_dead(link) != NULL;
		raw_close(r.fd);
		bw_link_close(link);
	}
	CHECK(died > 20 && died < 480);
	bw_control_close(a);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(in_order), TEST(back_pressure), TEST(sizes), TEST(without_a_watch),
		TEST(last_words), TEST(speaks_wrongly), TEST(sends_without_credit),
		TEST(random_frames), { 0 }
	};

	return control_main(argc, argv, cases);
}
