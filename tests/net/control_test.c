/* SPDX-License-Identifier: BSD-3-Clause */
/* Control connections between ends that mean well: names, connecting, notes, limits. */
#include "control_test.h"

#include <sys/resource.h>

#include "held.h"

/* ---- names ---------------------------------------------------------------------------------- */

static void names(void)
{
	static const struct { const char *text, *name; } good[] = {
		{ "127.0.0.1", "127.0.0.1:0" }, { "10.1.2.3:65535", "10.1.2.3:65535" },
		{ "[::1]", "[::1]:0" }, { "[::1]:42", "[::1]:42" }, { "::1", "[::1]:0" },
		{ "2001:DB8::1", "[2001:db8::1]:0" }, { "[fe80::1%lo]:7", "[fe80::1]:7" },
	};
	static const char *const bad[] = {
		"", ":", ":80", "localhost", "127.1", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1",
		"1.2.3.4:0x10", "1.2.3.4: 1", "[::1", "[::1]x", "[::1]:", "[1.2.3.4]:5",
		"[fe80::1%nosuchif]:7", "1.2.3.4.5", "4000", "1.2.3.4:000001",
	};
	char name[BW_NET_NAME_MAX];
	struct bw_address a;

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		OK(bw_address_parse(good[i].text, false, &a));
		bw_address_name(&a, name);
		CHECK_STR(name, good[i].name);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (bw_address_parse(bad[i], false, &a) != -EINVAL)
			FAIL("\"%s\" was taken", bad[i]);
	RET(bw_address_parse("1.2.3.4", true, &a), -EINVAL);
	CHECK_HAS(bw_err_text(), "has no port");
}

static void open_err(const char *listen, size_t secret_bytes, size_t hello_bytes, uint64_t liveness,
		     int err, const char *says)
{
	static const char bytes[BW_HELLO_MAX + 1];
	struct bw_control_options o = {
		.listen = listen, .secret = bytes, .secret_bytes = secret_bytes, .hello = bytes,
		.hello_bytes = hello_bytes, .liveness_ns = liveness,
	};
	struct bw_control *c = (void *)&o;
	int before = open_files();

	RET(bw_control_open(&o, &c), err);
	CHECK_HAS(bw_err_text(), says);
	CHECK(c == (void *)&o);
	CHECK_EQ(open_files(), before);
}

static void bad_options(void)
{
	struct bw_control *c = open_as(NULL, SECRET, "", SECOND);

	CHECK_HAS(bw_control_name(c), "127.0.0.1:");
	open_err(bw_control_name(c), 32, 0, SECOND, -EADDRINUSE, "another program has it");
	bw_control_close(c);
	open_err("192.0.2.1", 32, 0, SECOND, -EADDRNOTAVAIL, "no interface of this machine");
	open_err("nonsense", 32, 0, SECOND, -EINVAL, "nonsense");
	open_err("0.0.0.0", 32, 0, SECOND, -EINVAL, "every address");
	open_err("[::]:1", 32, 0, SECOND, -EINVAL, "every address");
	open_err(NULL, 15, 0, SECOND, -EINVAL, "15 bytes");
	open_err(NULL, 1025, 0, SECOND, -EINVAL, "1025 bytes");
	open_err(NULL, 32, BW_HELLO_MAX + 1, SECOND, -EINVAL, "hello");
	open_err(NULL, 32, 0, 0, -EINVAL, "liveness");
}

/* ---- connecting ----------------------------------------------------------------------------- */

static void meet(const char *listen)
{
	struct bw_control *a = open_as(listen, SECRET, "I am a", SECOND), *b;
	static char large[BW_HELLO_MAX + 1];
	struct bw_link *of_a, *of_b;
	size_t bytes;

	memset(large, 'b', BW_HELLO_MAX);
	b = open_as(listen, SECRET, large, SECOND);
	link_up(a, b, &of_a, &of_b);
	CHECK_STR(bw_link_name(of_a), bw_control_name(b));
	CHECK_STR(bw_link_name(of_b), bw_control_name(a));
	CHECK(!memcmp(bw_link_hello(of_a, &bytes), large, BW_HELLO_MAX));
	CHECK_EQ(bytes, BW_HELLO_MAX);
	CHECK(!memcmp(bw_link_hello(of_b, &bytes), "I am a", 6));
	CHECK_EQ(bytes, 6);
	CHECK(!bw_link_dead(of_a) && !bw_link_dead(of_b));
	RET(bw_control_watch(a, of_a), -EALREADY);
	CHECK_EQ(bw_control_refused(b), 0);
	bw_control_close(a);
	bw_control_close(b);
}

static void meets_by_ipv4(void)
{
	int before = open_files();

	meet("127.0.0.1");
	CHECK_EQ(open_files(), before);
}

static void meets_by_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	bool there = fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at));

	if (fd >= 0)
		close(fd);
	if (!there)
		SKIP("this machine has no [::1]");
	meet("::1");
}

static void wrong_secret(void)
{
	struct bw_control *a = open_as(NULL, OTHER, "", SECOND);
	struct bw_control *b = open_as(NULL, SECRET, "", SECOND);
	struct bw_link *link = NULL;
	static struct stepper s;
	int ret;

	start(&s, b);
	ret = bw_control_connect(a, bw_control_name(b), 5 * SECOND, &link);
	stop(&s);
	RET(ret, -EACCES);
	CHECK_HAS(bw_err_text(), "its secret is not this end's");
	CHECK(!link && !s.n);
	CHECK_EQ(bw_control_refused(b), 1);
	bw_control_close(a);
	bw_control_close(b);
}

static void nobody_there(void)
{
	struct bw_control *a = open_as(NULL, SECRET, "", SECOND);
	struct bw_control *b = open_as(NULL, SECRET, "", SECOND);
	char name[BW_NET_NAME_MAX];
	struct bw_link *link;
	uint64_t begun;

	strcpy(name, bw_control_name(b));
	begun = bw_net_now();
	RET(bw_control_connect(a, name, 100 * MS, &link), -ETIMEDOUT); /* nobody steps b */
	CHECK_HAS(bw_err_text(), "within 100 ms");
	CHECK(bw_net_now() - begun >= 100 * MS && bw_net_now() - begun < 3 * SECOND);
	RET(bw_control_connect(a, name, 0, &link), -ETIMEDOUT);
	bw_control_close(b);
	RET(bw_control_connect(a, name, SECOND, &link), -ECONNREFUSED);
	RET(bw_control_connect(a, "127.0.0.1", SECOND, &link), -EINVAL);
	RET(bw_control_connect(a, "192.0.2.1:9", 200 * MS, &link), -EHOSTUNREACH);
	CHECK_HAS(bw_err_text(), "listen on the address of the interface");
	bw_control_close(a);
}

/* A free port that the kernel gives to ends that connect, which is every other one. */
static bool free_port(char *name)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
	unsigned low = 32768, high = 60999;

	if (f) {
		if (fscanf(f, "%u %u", &low, &high) != 2)
			low = high;
		fclose(f);
	}
	for (unsigned port = low + 100; port < high; port += 2) {
		struct sockaddr_in at = { .sin_family = AF_INET };
		int busy, fd = socket(AF_INET, SOCK_STREAM, 0);

		at.sin_port = htons((uint16_t)port);
		at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		busy = bind(fd, (struct sockaddr *)&at, sizeof(at));
		close(fd);
		if (busy)
			continue;
		snprintf(name, BW_NET_NAME_MAX, "127.0.0.1:%u", port);
		return true;
	}
	return false;
}

/* Such a port is met by its own connection once in some 14,000 times: that is nobody there. */
static void never_meets_itself(void)
{
	struct bw_control *a = open_as(NULL, SECRET, "", SECOND);
	char name[BW_NET_NAME_MAX];
	struct bw_link *link;

	CHECK(free_port(name));
	for (unsigned i = 0; i < 40000; i++)
		RET(bw_control_connect(a, name, SECOND, &link), -ECONNREFUSED);
	bw_control_close(a);
}

/* ---- many ----------------------------------------------------------------------------------- */

#define THREADS 8
#define EACH 32

struct caller {
	pthread_t thread;
	struct bw_control *from;
	const char *to;
	unsigned n;
	struct bw_link *links[EACH];
	int ret;
	char text[512];
};

static void *call(void *arg)
{
	struct caller *c = arg;

	for (unsigned i = 0; i < c->n && !c->ret; i++)
		c->ret = bw_control_connect(c->from, c->to, 30 * SECOND, &c->links[i]);
	if (c->ret)
		snprintf(c->text, sizeof(c->text), "%s", bw_err_text());
	return NULL;
}

static void many_at_once(void)
{
	struct bw_control *a = open_as(NULL, SECRET, "", SECOND);
	struct bw_control *b = open_as(NULL, SECRET, "", SECOND);
	static struct caller callers[THREADS];
	static struct stepper s;

	memset(callers, 0, sizeof(callers));
	start(&s, b);
	for (unsigned i = 0; i < THREADS; i++) {
		callers[i].from = a;
		callers[i].to = bw_control_name(b);
		callers[i].n = EACH;
		CHECK(!pthread_create(&callers[i].thread, NULL, call, &callers[i]));
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(callers[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		if (callers[i].ret)
			FAIL("%d: %s", callers[i].ret, callers[i].text);
	wait_for_links(&s, THREADS * EACH);
	stop(&s);
	for (unsigned i = 0; i < THREADS; i++)
		for (unsigned k = 0; k < EACH; k++)
			bw_link_close(callers[i].links[k]);
	step_for(b, 20);
	for (unsigned i = 0; i < THREADS * EACH; i++)
		CHECK(bw_link_dead(s.links[i]));
	CHECK_EQ(bw_control_refused(b), 0);
	bw_control_close(a);
	bw_control_close(b);
}

static void each_calls_the_other(void)
{
	struct bw_control *a = open_as(NULL, SECRET, "", SECOND);
	struct bw_control *b = open_as(NULL, SECRET, "", SECOND);
	static struct caller of_a, of_b;
	static struct stepper sa, sb;

	of_a = (struct caller){ .from = a, .to = bw_control_name(b), .n = EACH };
	of_b = (struct caller){ .from = b, .to = bw_control_name(a), .n = EACH };
	start(&sa, a);
	start(&sb, b);
	CHECK(!pthread_create(&of_a.thread, NULL, call, &of_a));
	CHECK(!pthread_create(&of_b.thread, NULL, call, &of_b));
	pthread_join(of_a.thread, NULL);
	pthread_join(of_b.thread, NULL);
	CHECK_STR(of_a.text, "");
	CHECK_STR(of_b.text, "");
	wait_for_links(&sa, EACH);
	wait_for_links(&sb, EACH);
	stop(&sa);
	stop(&sb);
	for (unsigned i = 0; i < EACH; i++) {
		OK(bw_control_watch(a, of_a.links[i])); /* closed with it */
		bw_link_close(of_b.links[i]);
	}
	bw_control_close(a);
	bw_control_close(b);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void no_more_files(void)
{
	struct bw_control *a = open_as(NULL, SECRET, "", SECOND);
	struct bw_control *b = open_as(NULL, SECRET, "", SECOND);
	struct pollfd p = { .fd = bw_control_fd(b), .events = POLLIN };
	struct bw_control *more;
	struct bw_control_options o = { .secret = SECRET, .secret_bytes = 32, .liveness_ns = 1 };
	struct rlimit before, few;
	struct bw_link *link = NULL;
	int ret[3], fd = raw_connect(b), ready, quiet, next;

	next = dup(fd);
	close(next);
	CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	few = before;
	few.rlim_cur = (rlim_t)next;
	ready = poll(&p, 1, 1000);
	setrlimit(RLIMIT_NOFILE, &few); /* nothing may fail between the two */
	ret[0] = bw_control_step(b, &link);
	quiet = poll(&p, 1, 20);
	ret[1] = bw_control_connect(a, bw_control_name(b), SECOND, &link);
	ret[2] = bw_control_open(&o, &more);
	setrlimit(RLIMIT_NOFILE, &before);
	CHECK_EQ(ready, 1);
	CHECK_EQ(quiet, 0); /* it does not spin */
	CHECK_EQ(ret[0], 0);
	CHECK_EQ(ret[1], -EMFILE);
	CHECK_EQ(ret[2], -EMFILE);
	CHECK_EQ(write(fd, "GET", 3), 3);
	for (unsigned i = 0; i < 10 && !bw_control_refused(b); i++)
		step_for(b, 100); /* it goes on by itself */
	CHECK_EQ(bw_control_refused(b), 1);
	close(fd);
	bw_control_close(a);
	bw_control_close(b);
}

/* Every call of a kind fails once: an error, nothing lost, and all is well afterwards. */
static void faults_of(enum bw_fault kind)
{
	struct bw_control_options o = {
		.secret = SECRET, .secret_bytes = 32, .liveness_ns = SECOND,
	};
	int files = open_files();

	for (unsigned nth = 1; nth < 30; nth++) {
		struct bw_control *a, *b = open_as(NULL, SECRET, "", SECOND);
		struct bw_link *link;
		static struct stepper s;
		bool fired;
		int ret;

		start(&s, b);
		bw_fault_arm(kind, nth);
		ret = bw_control_open(&o, &a);
		if (!ret) {
			ret = bw_control_connect(a, bw_control_name(b), 2 * SECOND, &link);
			if (!ret)
				bw_link_close(link);
			bw_control_close(a);
		}
		fired = !bw_fault_pending(kind);
		bw_fault_disarm_all();
		stop(&s);
		bw_control_close(b);
		CHECK_EQ(open_files(), files);
		if (!fired) {
			OK(ret);
			CHECK(nth > 3);
			return;
		}
		if (ret && ret != -ENOMEM && ret != -EMFILE && ret != -ECONNREFUSED)
			FAIL("the %uth: %d: %s", nth, ret, bw_err_text());
	}
	FAIL("it never came to an end");
}

static void faults(void)
{
	faults_of(BW_FAULT_OPEN);
	faults_of(BW_FAULT_ALLOC);
}

static void descriptors(void)
{
	int kept = fcntl(0, F_DUPFD_CLOEXEC, 100), from = open_files();
	struct bw_control *a, *b;
	struct bw_link *of_a, *of_b;
	int low;

	close(0);
	a = open_as(NULL, SECRET, "", SECOND);
	b = open_as(NULL, SECRET, "", SECOND);
	link_up(a, b, &of_a, &of_b);
	low = fcntl(0, F_GETFD);
	dup2(kept, 0);
	close(kept);
	CHECK_EQ(low, -1);
	CHECK_EQ(open_files() - from, 3 + 3 + 2 - 1 + (kept < 0));
	for (int fd = 3; fd < 64; fd++) {
		struct sockaddr_storage at;
		socklen_t n = sizeof(at);

		if (!getsockname(fd, (struct sockaddr *)&at, &n) && at.ss_family == AF_INET)
			CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	}
	CHECK(fcntl(bw_control_fd(a), F_GETFD) & FD_CLOEXEC);
	bw_control_close(a);
	bw_control_close(b);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(names), TEST(bad_options), TEST(meets_by_ipv4), TEST(meets_by_ipv6),
		TEST(wrong_secret), TEST(nobody_there), TEST(never_meets_itself),
		TEST(many_at_once), TEST(each_calls_the_other), TEST(no_more_files), TEST(faults),
		TEST(descriptors), { 0 }
	};

	return control_main(argc, argv, cases);
}
