/* SPDX-License-Identifier: BSD-3-Clause */
/* Handshakes that would be right but for a bit, a byte, a length: none of them is. */
#include "control_test.h"

static struct bw_control *c;

static void set_up(void)
{
	c = open_as(NULL, SECRET, "hello", SECOND);
}

static void tear_down(void)
{
	bw_control_close(c);
}

/* ---- mutations of the end that connects ----------------------------------------------------- */

enum mutation { FLIP, BYTE, CUT, LONGER, SWAP, LENGTH, KINDS };

/* Changes something of the @n bytes; how many there are then. */
static size_t mutate(unsigned char *bytes, size_t n, uint64_t *state)
{
	size_t at = test_random(state) % n, other = test_random(state) % n;

	switch (test_random(state) % KINDS) {
	case FLIP:
		bytes[at] ^= 1u << test_random(state) % 8;
		return n;
	case BYTE:
		bytes[at] += 1 + test_random(state) % 255;
		return n;
	case CUT:
		return at;
	case LONGER: /* inserts */
		memmove(bytes + at + 1, bytes + at, n - at);
		bytes[at] = (unsigned char)test_random(state);
		bytes[0] ^= at == n - 1 ? 1 : 0;
		return n + 1;
	case SWAP:
		if (bytes[at] == bytes[other])
			bytes[at] ^= 0x80;
		else {
			unsigned char b = bytes[at];

			bytes[at] = bytes[other];
			bytes[other] = b;
		}
		return n;
	default:
		bytes[12 + test_random(state) % 4] += 1 + test_random(state) % 255;
		return n;
	}
}

struct plan {
	unsigned message;  /* 0: the challenge, 1: the proof */
	long bit;          /* -1: by chance; else the bit that is flipped */
	long cut;          /* -1: by chance; else the bytes that are left */
	uint64_t state;
};

/* One handshake that would be right, but for what is planned. Returns its message's bytes. */
static size_t try_one(struct plan *plan)
{
	uint64_t refused = bw_control_refused(c);
	static struct raw r;
	size_t n = BW_OPEN_BYTES, whole = n;
	bool answered = true;

	raw_begin(&r, c, SECRET);
	r.fd = raw_connect(c);
	for (unsigned message = 0; message < 2 && answered; message++) {
		if (message) {
			answered = raw_read(r.fd, c, r.in, BW_OPEN_BYTES) == BW_OPEN_BYTES;
			if (!answered)
				break;
			n = raw_proof(&r);
		}
		if (message == plan->message) {
			whole = n;
			if (plan->cut >= 0)
				n = (size_t)plan->cut;
			else if (plan->bit >= 0)
				r.out[plan->bit / 8] ^= 1u << plan->bit % 8;
			else
				n = mutate(r.out, n, &plan->state);
		}
		(void)!send(r.fd, r.out, n, MSG_NOSIGNAL);
		if (n < whole || message)
			shutdown(r.fd, SHUT_WR);
		if (n < whole)
			break;
	}
	if (bw_control_refused(c) == refused)
		check_refused(c, refused + 1);
	CHECK_EQ(bw_control_refused(c), refused + 1);
	raw_close(r.fd);
	return whole;
}

static void every_bit(void)
{
	struct plan plan = { .cut = -1 };

	set_up();
	for (plan.message = 0; plan.message < 2; plan.message++) {
		size_t bytes = 1;

		/* One of the length may leave the end waiting for more: it gets an end. */
		for (plan.bit = 0; plan.bit < (long)(8 * bytes); plan.bit++)
			bytes = try_one(&plan);
		CHECK(bytes == (plan.message ? BW_HEAD_BYTES + BW_PROOF_HEAD + 11 +
				strlen(bw_control_name(c)) + 4 : BW_OPEN_BYTES));
	}
	tear_down();
}

static void every_length(void)
{
	struct plan plan = { .bit = -1 };

	set_up();
	for (plan.message = 0; plan.message < 2; plan.message++) {
		size_t bytes = 1;

		for (plan.cut = 0; plan.cut < (long)bytes; plan.cut++)
			bytes = try_one(&plan);
	}
	tear_down();
}

static void oversized(void)
{
	static const uint32_t lengths[] = {
		0, 31, 33, 39, BW_PROOF_MAX, 65536, 0x7fffffff, 0xffffffff
	};
	static struct raw r;
	unsigned n = 0;

	set_up();
	for (unsigned kind = 0; kind < 5; kind++)
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			static unsigned char more[100000];

			raw_begin(&r, c, SECRET);
			r.out[10] = (unsigned char)kind;
			memcpy(r.out + 12, &lengths[i], 4);
			r.fd = raw_connect(c);
			CHECK_EQ(write(r.fd, r.out, BW_OPEN_BYTES), BW_OPEN_BYTES);
			(void)!send(r.fd, more, sizeof(more), MSG_NOSIGNAL | MSG_DONTWAIT);
			check_refused(c, ++n);
			raw_close(r.fd);
		}
	tear_down();
}

static void fuzz(void)
{
	struct plan plan = { .bit = -1, .cut = -1, .state = 0x5eed };

	set_up();
	for (unsigned i = 0; i < 20000; i++) {
		plan.message = i & 1;
		try_one(&plan);
	}
	tear_down();
}

/* ---- mutations of the end that listens ------------------------------------------------------ */

struct liar {
	int listener;
	_Atomic bool stop;
	struct bw_identity self;
	uint64_t state;
};

/* Reads a message of the end that connects and answers it. @lie: how. */
static bool answer(struct bw_shake *shake, int fd, bool lie, uint64_t *state)
{
	unsigned char in[BW_PROOF_MAX], out[BW_PROOF_MAX + 1];
	struct bw_proof proof;
	struct bw_refusal no;
	size_t have = 0, n, whole;
	int need;

	while ((need = bw_shake_need(shake, in, have, &no)) > 0 && (size_t)need > have) {
		ssize_t got = recv(fd, in + have, (size_t)need - have, 0);

		if (got <= 0)
			return false;
		have += (size_t)got;
	}
	if (need < 0 || bw_shake_take(shake, in, have, out, &n, &proof, &no) < 0)
		return false;
	whole = n;
	if (lie)
		n = mutate(out, n, state);
	return send(fd, out, n, MSG_NOSIGNAL) == (ssize_t)n && n >= whole;
}

static void *lie(void *arg)
{
	struct liar *l = arg;
	int fd;

	while ((fd = accept(l->listener, NULL, NULL)) >= 0 && !atomic_load(&l->stop)) {
		struct bw_shake shake = { .self = &l->self };
		bool at_once = test_random(&l->state) & 1;

		if (answer(&shake, fd, at_once, &l->state))
			answer(&shake, fd, !at_once, &l->state);
		raw_close(fd);
	}
	close(fd);
	return NULL;
}

static void fuzz_the_caller(void)
{
	static struct liar l;
	unsigned secrets = 0, other = 0;
	char name[BW_NET_NAME_MAX];
	struct bw_link *link = NULL;
	pthread_t thread;
	int ret = 0, last;

	memset(&l, 0, sizeof(l));
	set_up();
	l.listener = listener(name);
	l.state = 99;
	strcpy(l.self.name, name);
	memcpy(l.self.secret, SECRET, l.self.secret_bytes = strlen(SECRET));
	CHECK(!pthread_create(&thread, NULL, lie, &l));
	for (unsigned i = 0; i < 5000 && (!i || ret < 0); i++) {
		ret = bw_control_connect(c, name, 10 * SECOND, &link);
		secrets += ret == -EACCES;
		other += ret == -EPROTO;
		if (ret != -EACCES && ret != -EPROTO && ret != -ETIMEDOUT && ret != -ECONNREFUSED)
			break;
	}
	last = ret;
	atomic_store(&l.stop, true);
	shutdown(l.listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(l.listener);
	if (last != -EACCES && last != -EPROTO)
		FAIL("%d: %s", last, bw_err_text());
	CHECK(secrets > 500 && other > 500);
	tear_down();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(every_bit), TEST(every_length), TEST(oversized), TEST(fuzz),
		TEST(fuzz_the_caller), { 0 }
	};

	return control_main(argc, argv, cases);
}
