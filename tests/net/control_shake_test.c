/* SPDX-License-Identifier: BSD-3-Clause */
/* Handshakes of those who mean no good: scanners, replays, echoes, passers-on. */
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

/* The reason that the end that listens gives, as a sentence. */
static const char *refusal(int fd)
{
	static struct bw_refusal no;
	static struct raw r;
	unsigned char in[BW_REFUSED_BYTES];
	struct bw_proof proof;
	size_t n;

	raw_begin(&r, c, SECRET);
	r.shake.opened = true;
	n = raw_read(fd, c, in, sizeof(in));
	if (n < sizeof(in))
		return "nothing";
	CHECK_EQ(bw_shake_need(&r.shake, in, n, &no), n);
	CHECK(bw_shake_take(&r.shake, in, n, r.out, &n, &proof, &no) < 0);
	return no.why.text;
}

/* ---- whoever comes along -------------------------------------------------------------------- */

static char logged[8192];

static void keep_line(void *arg, int level, const char *text)
{
	size_t n = strlen(logged);

	(void)arg;
	if (level <= BW_LOG_WARN)
		snprintf(logged + n, sizeof(logged) - n, "%s\n", text);
}

/* One line for all of them, with where it came from. */
static void strangers(void)
{
	static const char *const say[] = {
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-x\r\n", "\x16\x03\x01",
		"\xba", "\xba\142arwax", "",
	};
	unsigned n = 0;
	char *lines = logged;

	logged[0] = 0;
	bw_log_set(keep_line, NULL, BW_LOG_WARN);
	set_up();
	for (; n < 60; n++) {
		const char *text = say[n % (sizeof(say) / sizeof(say[0]))];
		int fd = raw_connect(c);

		CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
		shutdown(fd, SHUT_WR);
		check_refused(c, n + 1);
		raw_close(fd);
	}
	bw_log_set(NULL, NULL, BW_LOG_ERROR);
	CHECK_HAS(logged, "refused 127.0.0.1:");
	CHECK_HAS(logged, "it began with \"GET / HT\"");
	lines = strchr(logged, '\n');
	CHECK(lines && !lines[1]);
	tear_down();
}

static void other_version(void)
{
	static struct raw r;

	set_up();
	raw_begin(&r, c, SECRET);
	r.out[8] = BW_CONTROL_VERSION + 1;
	r.fd = raw_connect(c);
	CHECK_EQ(write(r.fd, r.out, BW_HEAD_BYTES), BW_HEAD_BYTES);
	CHECK_HAS(refusal(r.fd), "another version");
	CHECK_EQ(bw_control_refused(c), 1);
	close(r.fd);
	tear_down();
}

/* Connections that say nothing, or a byte now and then, keep nobody out and do not stay. */
static void slow_loris(void)
{
	enum { SLOW = 150 };
	struct bw_control *good = open_as(NULL, SECRET, "", SECOND);
	uint64_t begun, took;
	static struct stepper s;
	struct bw_link *link;
	int fd[SLOW], ret;

	set_up();
	for (unsigned i = 0; i < SLOW; i++)
		fd[i] = raw_connect(c);
	begun = bw_net_now();
	start(&s, c);
	ret = bw_control_connect(good, bw_control_name(c), 5 * SECOND, &link);
	took = bw_net_now() - begun;
	for (unsigned k = 0; k < 8; k++) {
		for (unsigned i = 0; i < SLOW; i++)
			(void)!send(fd[i], &"\xba\142arway\n"[k], 1, MSG_NOSIGNAL);
		usleep(250000);
	}
	stop(&s);
	OK(ret);
	CHECK(took < SECOND);
	CHECK_EQ(s.n, 1);
	CHECK_EQ(bw_control_refused(c), SLOW);
	CHECK_EQ(c->npending, 0);
	for (unsigned i = 0; i < SLOW; i++)
		close(fd[i]);
	bw_link_close(link);
	bw_control_close(good);
	tear_down();
}

/* ---- those who heard something -------------------------------------------------------------- */

static void replay(void)
{
	static struct raw r;
	static unsigned char open[BW_OPEN_BYTES];
	struct bw_link *link = NULL;
	size_t bytes;
	int fd;

	set_up();
	raw_begin(&r, c, SECRET);
	memcpy(open, r.out, sizeof(open));
	r.fd = raw_connect(c);
	CHECK_EQ(write(r.fd, open, sizeof(open)), sizeof(open));
	CHECK_EQ(raw_read(r.fd, c, r.in, BW_OPEN_BYTES), BW_OPEN_BYTES);
	bytes = raw_proof(&r);
	CHECK_EQ(write(r.fd, r.out, bytes), bytes);
	while (!link)
		bw_control_step(c, &link);

	fd = raw_connect(c);
	CHECK_EQ(write(fd, open, sizeof(open)), sizeof(open));
	CHECK_EQ(raw_read(fd, c, r.in, BW_OPEN_BYTES), BW_OPEN_BYTES);
	CHECK_EQ(write(fd, r.out, bytes), bytes);
	CHECK_HAS(refusal(fd), "its secret is not this end's");
	CHECK_EQ(bw_control_refused(c), 1);
	close(fd);
	close(r.fd);
	tear_down();
}

/* It sends the answer that the end that listens would give, or that end's own bytes. */
static void reflection_to_the_listener(void)
{
	static struct raw r;

	set_up();
	for (unsigned as_listener = 0; as_listener < 2; as_listener++) {
		struct bw_refusal no;
		struct bw_proof proof;
		static struct raw other;
		size_t bytes = BW_OPEN_BYTES;

		raw_begin(&r, c, SECRET);
		r.fd = raw_connect(c);
		CHECK_EQ(write(r.fd, r.out, BW_OPEN_BYTES), BW_OPEN_BYTES);
		CHECK_EQ(raw_read(r.fd, c, r.in, BW_OPEN_BYTES), BW_OPEN_BYTES);
		if (as_listener) {
			/* The two answer each other, and what the one that listens says is sent. */
			size_t proof_bytes = raw_proof(&r);

			raw_begin(&other, c, SECRET);
			other.shake.connects = false;
			other.shake.opened = true;
			memcpy(other.shake.challenge, r.shake.challenge,
			       sizeof(r.shake.challenge));
			strcpy(other.self.name, bw_control_name(c));
			RET(bw_shake_take(&other.shake, r.out, proof_bytes, other.out, &bytes,
					  &proof, &no), 1);
			CHECK_EQ(write(r.fd, other.out, bytes), bytes);
		} else {
			CHECK_EQ(write(r.fd, r.in, bytes), bytes);
		}
		check_refused(c, as_listener + 1);
		raw_close(r.fd);
	}
	tear_down();
}

static void *echo(void *arg)
{
	unsigned char bytes[BW_PROOF_MAX];
	int fd = accept(*(int *)arg, NULL, NULL);
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		(void)!send(fd, bytes, (size_t)n, MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

static void reflection_to_the_caller(void)
{
	char name[BW_NET_NAME_MAX];
	int fd = listener(name), ret;
	struct bw_link *link = NULL;
	pthread_t thread;

	set_up();
	pthread_create(&thread, NULL, echo, &fd);
	ret = bw_control_connect(c, name, 5 * SECOND, &link);
	pthread_join(thread, NULL);
	RET(ret, -EPROTO);
	CHECK_HAS(bw_err_text(), "sends back what this end sent");
	close(fd);
	tear_down();
}

struct pass {
	int listener;
	const char *to;
	pthread_t thread;
};

/* Somebody to whom an end was led to connect, and who passes its bytes on to another end. */
static void *pass_on(void *arg)
{
	struct pass *p = arg;
	unsigned char bytes[BW_PROOF_MAX];
	struct bw_address to;
	int fd[2] = { accept(p->listener, NULL, NULL), socket(AF_INET, SOCK_STREAM, 0) };
	struct pollfd polls[2] = {
		{ .fd = fd[0], .events = POLLIN }, { .fd = fd[1], .events = POLLIN },
	};

	bw_address_parse(p->to, true, &to);
	if (!connect(fd[1], (struct sockaddr *)&to.at, to.bytes))
		while (poll(polls, 2, 5000) > 0) {
			unsigned from = !polls[0].revents;
			ssize_t n = recv(fd[from], bytes, sizeof(bytes), 0);

			if (n <= 0)
				break;
			(void)!send(fd[!from], bytes, (size_t)n, MSG_NOSIGNAL);
		}
	close(fd[0]);
	close(fd[1]);
	return NULL;
}

static void passed_on(void)
{
	struct bw_control *caller = open_as(NULL, SECRET, "", SECOND);
	char name[BW_NET_NAME_MAX];
	struct pass p = { .listener = listener(name) };
	static struct stepper s;
	struct bw_link *link;
	int ret;

	set_up();
	p.to = bw_control_name(c);
	pthread_create(&p.thread, NULL, pass_on, &p);
	start(&s, c);
	ret = bw_control_connect(caller, name, 5 * SECOND, &link);
	stop(&s);
	pthread_join(p.thread, NULL);
	RET(ret, -EACCES);
	CHECK_HAS(bw_err_text(), "another name");
	CHECK_EQ(s.n, 0);
	close(p.listener);
	bw_control_close(caller);
	tear_down();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(strangers), TEST(other_version), TEST(slow_loris), TEST(replay),
		TEST(reflection_to_the_listener), TEST(reflection_to_the_caller), TEST(passed_on),
		{ 0 }
	};

	return control_main(argc, argv, cases);
}
