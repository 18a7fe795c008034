/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between processes: every operation, with soft GPUs of their own and with shared ones; a peer
 * that is killed in the middle, that stops, that comes again.
 *
 * The other process is a child; or it is on another machine, where this program runs too: there
 * NET_SERVE=ADDRESS has it print ADDRESS:PORT and be the other process, for who has NET_OTHER=
 * ADDRESS:PORT.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net_test.h"

#define BOTH (BARWAY_REGION_PUT | BARWAY_REGION_GET)
#define BYTES (8 * MIB)


/* ---- the child: an end that does what it is told --------------------------------------------- */

static int sock; /* between the two */
static bool serves; /* one on another machine */

struct order {
	char what;       /* 's' send, 'r' receive, 'c' check, 'f' fill, 'k' kill, 'q' quit */
	uint64_t at, bytes, seed;
};

static void put_all(const void *p, size_t n)
{
	CHECK_EQ(write(sock, p, n), (ssize_t)n);
}

static void get_all(void *p, size_t n)
{
	size_t have = 0;

	while (have < n) {
		ssize_t got = read(sock, (char *)p + have, n - have);

		if (got <= 0)
			FAIL("the other process is gone");
		have += (size_t)got;
	}
}

/* Waits for the next order, and makes progress meanwhile. */
static bool next_order(struct end *e, struct order *o)
{
	for (;;) {
		ssize_t n = recv(sock, o, sizeof(*o), MSG_DONTWAIT);

		if (n == (ssize_t)sizeof(*o) && o->what == 'k')
			raise(SIGKILL);
		if (n == (ssize_t)sizeof(*o))
			return o->what != 'q';
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return false;
		if (!barway_endpoint_progress(e->ep))
			sched_yield();
	}
}

/*
 * That a peer's put is here, or that its get may come, is known by what the other process says over
 * the socket. The thread sanitizer cannot see that, so it is told of both ends of it: here, and in
 * the library, where it no longer knows what this thread was doing.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:read_as_told\nrace:write_as_told\n"
	       "race:bw_region_load\nrace:bw_region_store\n";
}

__attribute__((noinline))
static void read_as_told(struct end *e, struct memory *m, size_t at, void *dst, size_t n)
{
	read_from(e, m, at, dst, n);
}

__attribute__((noinline))
static void write_as_told(struct end *e, struct memory *m, size_t at, const void *src, size_t n)
{
	write_to(e, m, at, src, n);
}

static int obey(struct end *e, struct memory *m, const struct order *o)
{
	struct barway_part part = { .local = o->at, .bytes = o->bytes };
	struct barway_transfer_options options = {
		.operation = o->what == 's' ? BARWAY_SEND : BARWAY_RECV, .tag = o->seed,
	};
	unsigned char *want = malloc(o->bytes + 1), *got = malloc(o->bytes + 1);
	struct barway_transfer *t;
	int ret = 0;

	CHECK(want && got);
	test_fill(want, o->bytes, o->seed);
	if (o->what == 'f')
		write_as_told(e, m, o->at, want, o->bytes);
	if (o->what == 's')
		write_to(e, m, o->at, want, o->bytes);
	if (o->what == 's' || o->what == 'r') {
		t = prepare(e, m, &part, 1, &options);
		OK(barway_transfer_post(t));
		ret = barway_transfer_wait(t, BARWAY_VISIBLE, 20 * SECOND);
		OK(barway_transfer_free(t));
	}
	if (o->what == 'c')
		read_as_told(e, m, o->at, got, o->bytes);
	if (o->what == 'r')
		read_from(e, m, o->at, got, o->bytes);
	if (!ret && (o->what == 'c' || o->what == 'r') && memcmp(want, got, o->bytes))
		ret = -EBADMSG;
	free(want);
	free(got);
	return ret;
}

static void child(bool gpu)
{
	struct barway_endpoint_options options = end_options(network, threads, rails);
	struct memory m;
	struct order o;
	struct end e;
	char name[64] = "";

	end_open(&e, &options);
	OK(barway_endpoint_name(e.ep, name, sizeof(name)));
	put_all(name, sizeof(name));
	OK(barway_peer_accept(e.ep, 20 * SECOND, &e.peer));
	memory_open(&e, &m, gpu, BYTES, BOTH);
	put_all(&m.key, sizeof(m.key));
	while (next_order(&e, &o)) {
		int ret = obey(&e, &m, &o);

		put_all(&ret, sizeof(ret));
	}
	memory_close(&e, &m);
	end_close(&e);
}

__attribute__((noreturn))
static void child_main(bool gpu)
{
	static const int fine = 0;

	is_child = true;
	alarm(SANITIZED ? 200 : 60);
	if (setjmp(test_jump))
		_exit(1);
	child(gpu);
	if (serves)
		put_all(&fine, sizeof(fine));
	_exit(0);
}

/* ---- on another machine ---------------------------------------------------------------------- */

static const char *other; /* where; NULL: the other process is a child */

#define HELLO_END 2 /* other than whether memory is a GPU's */

/* @at: ADDRESS:PORT or ADDRESS */
static int tcp_socket(const char *at, struct sockaddr_in *addr)
{
	const char *colon = strchr(at, ':');
	char text[64];
	int fd, one = 1;

	snprintf(text, sizeof(text), "%.*s", (int)(colon ? colon - at : (long)strlen(at)), at);
	*addr = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(colon ? (uint16_t)atoi(colon + 1) : 0),
	};
	CHECK_EQ(inet_pton(AF_INET, text, &addr->sin_addr), 1);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	return fd;
}

static void call(char hello)
{
	struct sockaddr_in addr;

	sock = tcp_socket(other, &addr);
	CHECK(!connect(sock, (struct sockaddr *)&addr, sizeof(addr)));
	put_all(&hello, 1);
}

/* One process after the other, for those who call. Returns an exit code. */
/* How many of the children that have ended, or @all of them, ended badly: killed was wanted. */
static int reap(bool all)
{
	int status, failed = 0;

	while (waitpid(-1, &status, all ? 0 : WNOHANG) > 0)
		failed += status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return failed;
}

/* A child for each that calls: there may be several at a time. */
static int serve(const char *at)
{
	struct sockaddr_in addr;
	socklen_t len = sizeof(addr);
	int fd = tcp_socket(at, &addr), failed = 0;
	char hello;

	serves = true;
	CHECK(!bind(fd, (struct sockaddr *)&addr, sizeof(addr)) && !listen(fd, 8));
	CHECK(!getsockname(fd, (struct sockaddr *)&addr, &len));
	printf("listening: %s:%u\n", at, ntohs(addr.sin_port));
	for (;;) {
		fflush(stdout);
		sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		CHECK(sock >= 0);
		get_all(&hello, 1);
		if (hello == HELLO_END)
			return failed + reap(true) ? 1 : 0;
		if (!fork())
			child_main(hello);
		close(sock);
		failed += reap(false);
	}
}

/* ---- either ---------------------------------------------------------------------------------- */

/* 0: the other process is on another machine */
static pid_t start(bool gpu)
{
	int both[2];
	pid_t pid;

	end_close(&a); /* what a failed case left */
	if (other) {
		call(gpu);
		return 0;
	}
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both));
	fflush(stdout);
	fflush(stderr);
	pid = fork();
	sock = both[!pid];
	close(both[!!pid]);
	if (pid)
		return pid;
	child_main(gpu);
}

static void command(char what, uint64_t at, uint64_t bytes, uint64_t seed)
{
	struct order o = { what, at, bytes, seed };

	put_all(&o, sizeof(o));
}

/* Returns when it is dead. */
static void kill_it(pid_t pid)
{
	char c;

	if (pid) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return;
	}
	command('k', 0, 0, 0);
	CHECK(read(sock, &c, 1) <= 0);
}

/* While the endpoint makes progress. */
static void answer(void)
{
	double until = seconds() + (SANITIZED ? 120 : 30);
	int ret = -1;

	while (recv(sock, &ret, sizeof(ret), MSG_DONTWAIT) != (ssize_t)sizeof(ret)) {
		barway_endpoint_progress(a.ep);
		if (seconds() > until)
			FAIL("the other process does not answer");
	}
	CHECK_EQ(ret, 0);
}

static struct memory ma, mb;

static void meet(bool gpu)
{
	struct barway_endpoint_options options = end_options(network, threads, rails);
	char name[64];

	end_open(&a, &options);
	get_all(name, sizeof(name));
	OK(barway_peer_connect(a.ep, name, 20 * SECOND, &a.peer));
	memory_open(&a, &ma, gpu, BYTES, BOTH);
	get_all(&mb.key, sizeof(mb.key));
}

static void part_ways(pid_t pid)
{
	int status;

	command('q', 0, 0, 0);
	if (pid)
		CHECK_EQ(waitpid(pid, &status, 0), pid);
	else
		get_all(&status, sizeof(status));
	close(sock);
	CHECK_EQ(status, 0);
	memory_close(&a, &ma);
	end_close(&a);
}

static void same(size_t at, size_t n, uint64_t seed)
{
	unsigned char *want = malloc(n + 1), *got = malloc(n + 1);

	CHECK(want && got);
	test_fill(want, n, seed);
	read_from(&a, &ma, at, got, n);
	CHECK(!memcmp(want, got, n));
	free(want);
	free(got);
}

static void fill(size_t at, size_t n, uint64_t seed)
{
	unsigned char *data = malloc(n + 1);

	CHECK(data);
	test_fill(data, n, seed);
	write_to(&a, &ma, at, data, n);
	free(data);
}

static struct barway_transfer *one(unsigned op, size_t local, size_t remote, size_t n, uint64_t tag)
{
	struct barway_part part = { local, remote, n };
	struct barway_transfer_options o = { .operation = op, .tag = tag };

	o.key = op == BARWAY_PUT || op == BARWAY_GET ? &mb.key : NULL;
	return prepare(&a, &ma, &part, 1, &o);
}

static void run(unsigned op, size_t local, size_t remote, size_t n, uint64_t seed)
{
	struct barway_transfer *t = one(op, local, remote, n, seed);

	OK(barway_transfer_post(t));
	OK(barway_transfer_wait(t, BARWAY_VISIBLE, 20 * SECOND));
	OK(barway_transfer_free(t));
}

static void operations(bool gpu_a, bool gpu_b)
{
	static const size_t sizes[] = { 0, 8, 777, 8192, 8193, 100000, 3000001 };
	uint64_t random = 1, seed = 1;
	pid_t pid = start(gpu_b);

	meet(gpu_a);
	for (unsigned i = 0; i < N(sizes); i++)
		for (unsigned k = 0; k < 3; k++) {
			size_t n = sizes[i], x = test_random(&random) % 10000;
			size_t y = test_random(&random) % 10000;

			fill(x, n, ++seed);
			run(BARWAY_PUT, x, y, n, 0);
			command('c', y, n, seed);
			answer();
			command('f', y, n, ++seed);
			answer();
			run(BARWAY_GET, x, y, n, 0);
			same(x, n, seed);
			fill(x, n, ++seed);
			command('r', y, n, seed);
			run(BARWAY_SEND, x, 0, n, seed);
			answer();
			command('s', y, n, ++seed);
			run(BARWAY_RECV, x, 0, n, seed);
			same(x, n, seed);
			answer();
		}
	part_ways(pid);
}

static void host_host(void) { operations(false, false); }
static void gpu_gpu(void) { operations(true, true); }
static void host_gpu(void) { operations(false, true); }
static void gpu_host(void) { operations(true, false); }

static void shared_gpu(void)
{
	char name[64];

	snprintf(name, sizeof(name), "net-test-%d", (int)getpid());
	param("soft_shared", name);
	operations(true, true);
	param("soft_shared", "");
}

/* ---- a peer that dies ------------------------------------------------------------------------ */

/* As the peer's name begins. */
static const char *there(void)
{
	static char text[64];

	if (!other)
		return here();
	snprintf(text, sizeof(text), "%.*s", (int)strcspn(other, ":"), other);
	return text;
}

/* Killed after the transfer was posted and this many polls. */
static void kill_after(unsigned op, size_t n, unsigned polls)
{
	struct barway_peer_info info = { .size = sizeof(info) };
	pid_t pid = start(false);
	struct barway_transfer *t, *r;
	double from;
	int ret;

	meet(false);
	t = one(op, 0, 0, n, 3);
	r = one(BARWAY_RECV, 0, 0, n, 4);
	OK(barway_transfer_post(r));
	OK(barway_transfer_post(t));
	while (polls--)
		barway_endpoint_progress(a.ep);
	kill_it(pid);
	from = seconds();
	ret = barway_transfer_wait(r, BARWAY_VISIBLE, 20 * SECOND);
	/* its control connection is closed by its system at once */
	CHECK(seconds() - from < (other ? 5 : 1));
	if (ret != -EIO)
		FAIL("%d: %s", ret, barway_errmsg());
	CHECK_HAS(barway_errmsg(), there()); /* peer, network, path, errno */
	CHECK_HAS(barway_errmsg(), network);
	CHECK_HAS(barway_errmsg(), "path");
	CHECK_HAS(barway_errmsg(), strerror(EIO));
	ret = barway_transfer_wait(t, BARWAY_VISIBLE, 20 * SECOND);
	if (ret && ret != -EIO)
		FAIL("%d: %s", ret, barway_errmsg());
	OK(barway_peer_query(a.peer, &info));
	CHECK_EQ(info.alive, 0);
	CHECK(info.failure[0]);
	FAILS(barway_transfer_post(t), EIO, "connect again");
	CHECK(counters_of(&a).peers_lost >= 1);
	OK(barway_transfer_free(t));
	OK(barway_transfer_free(r));
	memory_close(&a, &ma);
	end_close(&a);
	close(sock);
}

static void killed(void)
{
	static const size_t sizes[] = { 8, 100000, BYTES };
	uint64_t random = 9;

	for (unsigned op = BARWAY_PUT; op <= BARWAY_SEND; op++)
		for (unsigned i = 0; i < N(sizes); i++)
			for (int k = 0; k < (other ? 1 : 3); k++)
				kill_after(op, sizes[i], (unsigned)(test_random(&random) % 60));
}

/* A killed peer does not disturb another one, and a new process may come in its place. */
static void others_go_on(void)
{
	struct barway_peer *dead;
	pid_t first, second;
	int to_second;
	char name[64];

	second = start(false);
	to_second = sock;
	first = start(false);
	meet(false);
	dead = a.peer;
	kill_it(first);
	close(sock);
	sock = to_second;
	get_all(name, sizeof(name));
	OK(barway_peer_connect(a.ep, name, 20 * SECOND, &a.peer));
	get_all(&mb.key, sizeof(mb.key));
	fill(0, 100000, 5);
	run(BARWAY_PUT, 0, 0, 100000, 0);
	command('c', 0, 100000, 5);
	answer();
	OK(barway_peer_close(dead));
	run(BARWAY_PUT, 0, 0, 8, 0);
	part_ways(second);
}

/*
 * One that is killed with much under way does not disturb another one; but over shm, where none of
 * what comes after completes: there it is said at once, and of the endpoint.
 */
static void killed_beside_another(void)
{
	struct barway_transfer *t[8];
	pid_t first, second;
	int to_first, to_second, ret;
	struct barway_peer *dead;
	double from;
	char name[64];

	if (!strcmp(network, "shm"))
		SKIP("libfabric's shm may hang after it, and that is not always noticed at once");
	second = start(false);
	to_second = sock;
	first = start(false);
	to_first = sock;
	meet(false);
	dead = a.peer;
	for (unsigned i = 0; i < N(t); i++)
		t[i] = one(BARWAY_PUT, 0, 0, BYTES, 0);
	sock = to_second;
	get_all(name, sizeof(name));
	OK(barway_peer_connect(a.ep, name, 20 * SECOND, &a.peer));
	get_all(&mb.key, sizeof(mb.key));
	for (unsigned i = 0; i < N(t); i++)
		OK(barway_transfer_post(t[i]));
	for (unsigned i = 0; i < 20; i++)
		barway_endpoint_progress(a.ep);
	sock = to_first;
	kill_it(first);
	close(sock);
	sock = to_second;
	for (unsigned i = 0; i < N(t); i++) {
		ret = barway_transfer_wait(t[i], BARWAY_VISIBLE, 20 * SECOND);
		CHECK(ret == 0 || ret == -EIO);
		OK(barway_transfer_free(t[i]));
	}
	OK(barway_peer_close(dead));
	t[0] = one(BARWAY_PUT, 0, 0, 100000, 0);
	from = seconds();
	ret = barway_transfer_post(t[0]);
	if (!ret)
		ret = barway_transfer_wait(t[0], BARWAY_VISIBLE, 20 * SECOND);
	CHECK(seconds() - from < 5);
	if (ret && !strcmp(network, "shm"))
		CHECK_HAS(barway_errmsg(), "open another endpoint");
	else if (ret)
		FAIL("%d: %s", ret, barway_errmsg());
	OK(barway_transfer_free(t[0]));
	part_ways(second);
}

/* A stopped process is not a dead one. */
static void stopped(void)
{
	pid_t pid = start(false);
	struct barway_transfer *t;

	meet(false);
	t = one(BARWAY_PUT, 0, 0, 8, 0);
	kill(pid, SIGSTOP);
	sleep_ms(50);
	OK(barway_transfer_post(t));
	FAILS(barway_transfer_wait(t, BARWAY_VISIBLE, 300 * MS), EAGAIN, "goes on");
	kill(pid, SIGCONT);
	OK(barway_transfer_wait(t, BARWAY_VISIBLE, 20 * SECOND));
	OK(barway_transfer_free(t));
	part_ways(pid);
}

/* Handles of the parent are worth nothing in a child, and its exit harms nobody. */
static void forked(void)
{
	pid_t pid = start(false), copy;
	int status;

	meet(false);
	copy = fork();
	if (!copy) {
		int ret = barway_endpoint_progress(a.ep);

		_exit(ret == -ESTALE && barway_peer_close(a.peer) == -ESTALE &&
		      barway_region_close(ma.region) == -ESTALE ? 0 : 1);
	}
	CHECK_EQ(waitpid(copy, &status, 0), copy);
	CHECK_EQ(status, 0);
	fill(0, 100000, 6);
	run(BARWAY_PUT, 0, 0, 100000, 0);
	command('c', 0, 100000, 6);
	answer();
	part_ways(pid);
}

static int finish(int code)
{
	if (setjmp(test_jump))
		return 1;
	if (other)
		call(HELLO_END);
	return code;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(host_host), TEST(gpu_gpu), TEST(host_gpu), TEST(gpu_host), TEST(shared_gpu),
		TEST(killed), TEST(others_go_on), TEST(killed_beside_another),
		TEST(stopped), TEST(forked), { 0 },
	};

	other = getenv("NET_OTHER");
	signal(SIGPIPE, SIG_IGN);
	if (setjmp(test_jump))
		return 1;
	net_begin();
	if (getenv("NET_SERVE"))
		return serve(getenv("NET_SERVE"));
	return finish(test_main(argc, argv, cases));
}
