/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is dead and who is not: killed, stopped and unplugged peers, forked children, secrets. */
#include "control_test.h"

#include <linux/filter.h>
#include <sys/prctl.h>

#include "held.h"

/* In a process of its own: connects to @name and takes notes, or does what @then says. */
static pid_t peer(struct bw_control *to, uint64_t liveness_ns, int (*then)(struct bw_link *link),
		  struct bw_link **link)
{
	static struct stepper s;
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		struct bw_control_options o = {
			.secret = SECRET, .secret_bytes = 32, .liveness_ns = liveness_ns,
		};
		struct bw_control *mine;
		struct bw_link *out;
		char name[BW_NET_NAME_MAX];

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		strcpy(name, bw_control_name(to));
		if (bw_control_open(&o, &mine) ||
		    bw_control_connect(mine, name, 10 * SECOND, &out))
			_exit(1);
		_exit(then(out));
	}
	start(&s, to);
	wait_for_links(&s, 1);
	stop(&s);
	*link = s.links[0];
	return child;
}

static int reap(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return status;
}

/* How long until step says that it is dead; UINT64_MAX: it does not within @ms. */
static uint64_t dies_within(struct bw_control *c, struct bw_link *link, int ms)
{
	struct pollfd p = { .fd = bw_control_fd(c), .events = POLLIN };
	uint64_t begun = bw_net_now(), end = begun + (uint64_t)ms * MS, now;

	while (!bw_link_dead(link)) {
		now = bw_net_now();
		if (now >= end)
			return UINT64_MAX;
		poll(&p, 1, (int)((end - now) / MS) + 1);
		step(c);
	}
	return bw_net_now() - begun;
}

static int sleeps(struct bw_link *link)
{
	(void)link;
	while (pause() < 0)
		;
	return 0;
}

static void killed(void)
{
	struct bw_control *c = open_as(NULL, SECRET, "", 2 * SECOND);

	for (unsigned i = 0; i < 10; i++) {
		struct bw_link *link;
		pid_t child = peer(c, 2 * SECOND, sleeps, &link);
		uint64_t took;

		CHECK_EQ(dies_within(c, link, 20), UINT64_MAX);
		kill(child, SIGKILL);
		took = dies_within(c, link, 5000);
		reap(child);
		if (took > 100 * MS)
			FAIL("it took %llu us", (unsigned long long)took / 1000);
		CHECK_HAS(bw_link_dead(link), "its process ended");
		bw_link_close(link);
	}
	bw_control_close(c);
}

/* ---- a stopped process ---------------------------------------------------------------------- */

static unsigned expected;

static int counts(struct bw_link *link)
{
	unsigned char data[BW_NOTE_MAX];
	uint16_t kind;

	for (unsigned n = 0; n < expected;) {
		int ret = bw_link_recv(link, &kind, data, sizeof(data));

		if (ret < 0 || (ret && kind != n % 65536))
			return 2;
		n += ret > 0;
		if (!ret)
			usleep(100);
	}
	return 0;
}

/* It has liveness time three times over, and all that can be on the way is: it is not dead. */
static void stopped(void)
{
	struct bw_control *c = open_as(NULL, SECRET, "", SECOND);
	unsigned sent = 0;
	struct bw_link *link;
	uint64_t end;
	pid_t child;

	expected = 60000;
	child = peer(c, SECOND, counts, &link);
	kill(child, SIGSTOP);
	while (!bw_link_send(link, (uint16_t)sent, "x", 1))
		sent++;
	CHECK(sent > 1000);
	CHECK_EQ(dies_within(c, link, 3500), UINT64_MAX);
	RET(bw_link_send(link, (uint16_t)sent, "x", 1), -EAGAIN);
	kill(child, SIGCONT);
	for (end = bw_net_now() + 20 * SECOND; sent < expected && bw_net_now() < end;) {
		if (!bw_link_send(link, (uint16_t)sent, "x", 1))
			sent++;
		else
			step_for(c, 1);
	}
	CHECK_EQ(sent, expected);
	CHECK_EQ(reap(child), 0);
	CHECK(dies_within(c, link, 1000) < SECOND);
	bw_control_close(c);
}

/* ---- a machine or a cable ------------------------------------------------------------------- */

/* From now on nothing arrives at the socket, and nothing of it is acknowledged. */
static void unplug(struct bw_link *link)
{
	struct sock_filter drop = { .code = BPF_RET | BPF_K, .k = 0 };
	struct sock_fprog program = { .len = 1, .filter = &drop };

	if (setsockopt(link->fd.fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
		SKIP("SO_ATTACH_FILTER: %s", strerror(errno));
}

static void unplugged(bool in_flight)
{
	struct bw_control *a = open_as(NULL, SECRET, "", 2 * SECOND);
	struct bw_control *b = open_as(NULL, SECRET, "", 2 * SECOND);
	struct bw_link *of_a, *of_b;
	uint64_t took;

	link_up(a, b, &of_a, &of_b);
	unplug(of_a); /* and of what the other end says about it */
	unplug(of_b);
	if (in_flight)
		OK(bw_link_send(of_a, 1, "x", 1));
	took = dies_within(a, of_a, 10000);
	if (took < SECOND || took > 3500 * MS)
		FAIL("it took %lld ms", (long long)took / 1000000);
	CHECK_HAS(bw_link_dead(of_a), "nothing was heard of it within 2000 ms");
	bw_control_close(a);
	bw_control_close(b);
}

static void unplugged_idle(void)
{
	unplugged(false);
}

static void unplugged_while_it_sends(void)
{
	unplugged(true);
}

/* ---- fork ----------------------------------------------------------------------------------- */

static struct bw_control *a, *b;
static struct bw_link *of_a, *of_b;

/* 0: all calls on what was inherited fail, and closing it is done. */
static int use_in_child(void)
{
	unsigned char data[BW_NOTE_MAX];
	struct bw_link *link;
	uint16_t kind;
	int lost = 0;

	lost += bw_link_send(of_a, 1, "x", 1) != -ESTALE;
	lost += bw_link_recv(of_b, &kind, data, sizeof(data)) != -ESTALE;
	lost += !bw_link_dead(of_a) || !strstr(bw_link_dead(of_a), "before fork()");
	lost += bw_control_step(b, &link) != -ESTALE;
	lost += bw_control_connect(a, bw_control_name(b), SECOND, &link) != -ESTALE;
	lost += bw_control_fd(a) != -1;
	bw_link_close(of_a);
	bw_control_close(a);
	bw_control_close(b);
	return lost;
}

static void child_closes(void)
{
	unsigned char data[BW_NOTE_MAX];
	uint16_t kind;
	pid_t child;
	int files;

	a = open_as(NULL, SECRET, "", SECOND);
	b = open_as(NULL, SECRET, "", SECOND);
	link_up(a, b, &of_a, &of_b);
	OK(bw_link_send(of_a, 9, "before", 6)); /* is at b's when it forks */
	step_for(b, 20);
	files = open_files();
	child = fork();
	if (!child)
		_exit(open_files() != files - 8 ? 99 : use_in_child());
	CHECK_EQ(reap(child), 0);
	CHECK_EQ(open_files(), files);
	RET(bw_link_recv(of_b, &kind, data, sizeof(data)), 6);
	OK(bw_link_send(of_b, 1, "abc", 3));
	step_for(a, 50);
	step_for(b, 50);
	RET(bw_link_recv(of_a, &kind, data, sizeof(data)), 3);
	CHECK(!bw_link_dead(of_a) && !bw_link_dead(of_b));
	for (unsigned i = 0; i < 3; i++) { /* the set of epoll and the timer are whole */
		struct bw_link *x, *y;
		uint64_t refused = bw_control_refused(b);
		int fd = raw_connect(b);

		link_up(a, b, &x, &y);
		for (unsigned k = 0; k < 20 && bw_control_refused(b) == refused; k++)
			step_for(b, 100);
		CHECK_EQ(bw_control_refused(b), refused + 1);
		raw_close(fd);
	}
	bw_control_close(a);
	bw_control_close(b);
}

static int forks_and_sleeps(struct bw_link *link)
{
	if (!fork())
		prctl(PR_SET_PDEATHSIG, 0);
	return sleeps(link);
}

/* The connections of a process that has died end, though a child of its lives on. */
static void killed_with_a_child(void)
{
	struct bw_control *c = open_as(NULL, SECRET, "", 2 * SECOND);
	struct bw_link *link;
	pid_t child, orphan = 0;
	uint64_t took;
	char path[64];
	FILE *f;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	child = peer(c, 2 * SECOND, forks_and_sleeps, &link);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", child, child);
	for (unsigned i = 0; i < 200 && orphan <= 0; i++) {
		usleep(10000);
		f = fopen(path, "r");
		if (f && fscanf(f, "%d", &orphan) != 1)
			orphan = 0;
		if (f)
			fclose(f);
	}
	kill(child, SIGKILL);
	took = dies_within(c, link, 5000);
	reap(child);
	if (orphan > 0) {
		bool lived = !kill(orphan, 0);

		kill(orphan, SIGKILL);
		reap(orphan);
		CHECK(lived);
	}
	bw_control_close(c);
	CHECK(took <= 100 * MS);
	if (orphan <= 0)
		SKIP("/proc has no list of children");
}

/* ---- secrets -------------------------------------------------------------------------------- */

/* How often the bytes, of which each was changed by 0x55, are in the heap and on the stack. */
static unsigned found(const unsigned char *masked, size_t bytes)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], *end, *p;
	unsigned n = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned char *at, *to;

		if (!strstr(line, "[heap]") && !strstr(line, "[stack]"))
			continue;
		at = (unsigned char *)strtoul(line, &p, 16);
		to = (unsigned char *)strtoul(p + 1, &end, 16);
		for (; at + bytes <= to; at++) {
			size_t i = 0;

			while (i < bytes && at[i] == (masked[i] ^ 0x55))
				i++;
			n += i == bytes;
		}
	}
	fclose(maps);
	return n;
}

static void secrets_are_wiped(void)
{
	static unsigned char masked[32];
	static unsigned char secret[32];
	struct bw_control_options o = {
		.secret = secret, .secret_bytes = sizeof(secret), .liveness_ns = SECOND,
	};
	unsigned during;

	if (TSAN || ASAN)
		SKIP("a sanitizer has heaps of its own");
	OK(bw_random(masked, sizeof(masked)));
	for (unsigned i = 0; i < sizeof(secret); i++)
		secret[i] = masked[i] ^ 0x55;
	OK(bw_control_open(&o, &a));
	OK(bw_control_open(&o, &b));
	explicit_bzero(secret, sizeof(secret));
	link_up(a, b, &of_a, &of_b);
	during = found(masked, sizeof(masked));
	bw_control_close(a);
	bw_control_close(b);
	CHECK_EQ(during, 2);
	CHECK_EQ(found(masked, sizeof(masked)), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(killed), TEST(stopped), TEST(unplugged_idle), TEST(unplugged_while_it_sends),
		TEST(child_closes), TEST(killed_with_a_child), TEST(secrets_are_wiped), { 0 }
	};

	return control_main(argc, argv, cases);
}
