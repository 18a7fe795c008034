/* SPDX-License-Identifier: BSD-3-Clause */
/* Controls that are stepped by a thread, and a raw client that can say what it wants. */
#ifndef CONTROL_TEST_H
#define CONTROL_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/log.h"
#include "net/control.h"
#include "net/control_int.h"
#include "net/mac.h"
#include "test.h"

#define SECRET "a secret of thirty-two bytes 32b"
#define OTHER "another one of thirty-two bytes!"
#define SECOND 1000000000ull
#define MS 1000000ull

/* The sentence is what one wants to see where that is not so. */
#define RET(call, want) do { \
	int ret_ = (call), want_ = (want); \
	if (ret_ != want_) \
		FAIL("%s is %d, expected %d: %s", #call, ret_, want_, bw_err_text()); \
} while (0)
#define OK(call) RET(call, 0)

__attribute__((unused))
static struct bw_control *open_as(const char *listen, const char *secret, const char *hello,
				  uint64_t liveness_ns)
{
	struct bw_control_options o = {
		.listen = listen, .secret = secret, .secret_bytes = strlen(secret),
		.hello = hello, .hello_bytes = strlen(hello), .liveness_ns = liveness_ns,
	};
	struct bw_control *c;

	OK(bw_control_open(&o, &c));
	return c;
}

/* Refusals are what is tested here: they need not be seen. */
__attribute__((unused))
static int control_main(int argc, char **argv, const struct test_case *cases)
{
	bw_log_default_level(BW_LOG_ERROR);
	if (!bw_mac_ready())
		return test_main(argc, argv, cases);
	printf("%s: skipped: %s\n%s: 0 passed, 0 failed, 1 skipped\n", argv[0], bw_err_text(),
	       argv[0]);
	return 77;
}

/* ---- a thread that steps -------------------------------------------------------------------- */

#define LINKS_MAX 512u

struct stepper {
	struct bw_control *control;
	pthread_t thread;
	pthread_mutex_t lock; /* of the control */
	_Atomic bool stop;
	_Atomic unsigned n;
	struct bw_link *links[LINKS_MAX];
};

static inline void *step_on(void *arg)
{
	struct stepper *s = arg;
	struct pollfd p = { .fd = bw_control_fd(s->control), .events = POLLIN };

	while (!atomic_load(&s->stop)) {
		struct bw_link *link;

		poll(&p, 1, 5);
		pthread_mutex_lock(&s->lock);
		while (atomic_load(&s->n) < LINKS_MAX && bw_control_step(s->control, &link) == 1) {
			s->links[s->n] = link;
			atomic_fetch_add(&s->n, 1);
		}
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

__attribute__((unused))
static void start(struct stepper *s, struct bw_control *control)
{
	memset(s, 0, sizeof(*s));
	s->control = control;
	pthread_mutex_init(&s->lock, NULL);
	CHECK(!pthread_create(&s->thread, NULL, step_on, s));
}

__attribute__((unused))
static void stop(struct stepper *s)
{
	atomic_store(&s->stop, true);
	pthread_join(s->thread, NULL);
}

__attribute__((unused))
static void wait_for_links(struct stepper *s, unsigned n)
{
	uint64_t end = bw_net_now() + 30 * SECOND;

	while (atomic_load(&s->n) < n) {
		if (bw_net_now() > end)
			FAIL("%u of %u peers were let in", atomic_load(&s->n), n);
		usleep(1000);
	}
}

/* @a connects to @b; both ends, watched. */
__attribute__((unused))
static void link_up(struct bw_control *a, struct bw_control *b, struct bw_link **of_a,
		    struct bw_link **of_b)
{
	static struct stepper s;
	int ret;

	start(&s, b);
	ret = bw_control_connect(a, bw_control_name(b), 10 * SECOND, of_a);
	if (!ret)
		wait_for_links(&s, 1);
	stop(&s);
	OK(ret);
	*of_b = s.links[0];
	OK(bw_control_watch(a, *of_a));
}

static inline void step(struct bw_control *c)
{
	struct bw_link *link;

	RET(bw_control_step(c, &link), 0);
}

/* Steps @c until it is readable no more, or for @ms where nothing comes. */
__attribute__((unused))
static void step_for(struct bw_control *c, int ms)
{
	struct pollfd p = { .fd = bw_control_fd(c), .events = POLLIN };

	while (poll(&p, 1, ms) > 0)
		step(c);
}

/* Steps @c until @n were refused in all; nobody was let in. */
__attribute__((unused))
static void check_refused(struct bw_control *c, uint64_t n)
{
	uint64_t end = bw_net_now() + 5 * SECOND;
	struct pollfd p = { .fd = bw_control_fd(c), .events = POLLIN };

	while (bw_control_refused(c) < n && bw_net_now() < end) {
		poll(&p, 1, 100);
		step(c);
	}
	CHECK_EQ(bw_control_refused(c), n);
}

/* A listener of our own, for ends that connect. */
__attribute__((unused))
static int listener(char *name)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct bw_address a = { .bytes = sizeof(a.at) };

	((struct sockaddr_in *)&a.at)->sin_family = AF_INET;
	((struct sockaddr_in *)&a.at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&a.at, sizeof(struct sockaddr_in)) &&
	      !listen(fd, 64) && !getsockname(fd, (struct sockaddr *)&a.at, &a.bytes));
	bw_address_name(&a, name);
	return fd;
}

/* ---- a client by hand ----------------------------------------------------------------------- */

struct raw {
	int fd;
	struct bw_shake shake;
	struct bw_identity self;
	unsigned char in[BW_PROOF_MAX], out[BW_PROOF_MAX];
};

__attribute__((unused))
static int raw_connect(const struct bw_control *c)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval t = { .tv_sec = 10 };
	struct bw_address a;

	OK(bw_address_parse(bw_control_name(c), true, &a));
	CHECK(fd >= 0);
	CHECK(!setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof(on)));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)));
	CHECK(!connect(fd, (struct sockaddr *)&a.at, a.bytes));
	return fd;
}

/* Leaves no port in TIME_WAIT: there are not so many. */
__attribute__((unused))
static void raw_close(int fd)
{
	struct linger now = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

/* Prepared to prove to @c that it has @secret. The first message is in out. */
__attribute__((unused))
static void raw_begin(struct raw *r, const struct bw_control *c, const char *secret)
{
	memset(r, 0, sizeof(*r));
	r->fd = -1;
	r->self.secret_bytes = strlen(secret);
	memcpy(r->self.secret, secret, r->self.secret_bytes);
	strcpy(r->self.name, "127.0.0.1:9");
	r->self.hello_bytes = 4;
	memcpy(r->self.hello, "raw!", 4);
	r->shake.self = &r->self;
	r->shake.connects = true;
	strcpy(r->shake.to, bw_control_name(c));
	OK(bw_shake_begin(&r->shake, r->out));
}

/* Steps @c until @bytes came from it: how many did, before it closed. */
__attribute__((unused))
static size_t raw_read(int fd, struct bw_control *c, unsigned char *in, size_t bytes)
{
	size_t have = 0;

	while (have < bytes) {
		struct pollfd p[2] = {
			{ .fd = fd, .events = POLLIN },
			{ .fd = bw_control_fd(c), .events = POLLIN },
		};
		ssize_t n;

		if (poll(p, 2, 5000) <= 0)
			break;
		if (p[1].revents)
			step(c);
		if (!p[0].revents)
			continue;
		n = recv(fd, in + have, bytes - have, 0);
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	return have;
}

/* Takes the challenge of the end that listens and makes the proof: its bytes, in out. */
__attribute__((unused))
static size_t raw_proof(struct raw *r)
{
	struct bw_refusal no;
	struct bw_proof proof;
	size_t bytes;

	RET(bw_shake_take(&r->shake, r->in, BW_OPEN_BYTES, r->out, &bytes, &proof, &no), 0);
	return bytes;
}

/* The whole of a handshake; the link at the other end. */
__attribute__((unused))
static struct bw_link *raw_link(struct raw *r, struct bw_control *c)
{
	struct bw_link *link = NULL;
	struct bw_refusal no;
	struct bw_proof proof;
	size_t bytes, n;
	int need;

	raw_begin(r, c, SECRET);
	r->fd = raw_connect(c);
	CHECK_EQ(write(r->fd, r->out, BW_OPEN_BYTES), BW_OPEN_BYTES);
	CHECK_EQ(raw_read(r->fd, c, r->in, BW_OPEN_BYTES), BW_OPEN_BYTES);
	bytes = raw_proof(r);
	CHECK_EQ(write(r->fd, r->out, bytes), bytes);
	for (uint64_t end = bw_net_now() + 5 * SECOND; !link && bw_net_now() < end;)
		bw_control_step(c, &link);
	CHECK(link);
	n = raw_read(r->fd, c, r->in, BW_HEAD_BYTES);
	need = bw_shake_need(&r->shake, r->in, n, &no);
	CHECK(need > 0);
	CHECK_EQ(n + raw_read(r->fd, c, r->in + n, (size_t)need - n), need);
	RET(bw_shake_take(&r->shake, r->in, (size_t)need, r->out, &bytes, &proof, &no), 1);
	return link;
}

#endif
