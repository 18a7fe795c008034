/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of struct bw_net_engine between two processes: this program, and itself again as
 * "engine_peer_test serve NETWORK SOCKET", which echoes messages and writes. It is a program of its
 * own, not a fork, because what libfabric has begun does not survive one.
 */
#include "engine_ends.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HALF (MEMORY / 2)
#define SLOT (1u << 16) /* of each receive that the peer has posted */
#define SLOTS 16u

/* What the two tell each other before they can use the network. */
struct card {
	unsigned char address[256];
	uint64_t n, addr, key;
};

static void exchange(struct end *end, int sock, struct card *theirs)
{
	struct card mine = { .n = sizeof(mine.address), .addr = end->reg.addr,
			     .key = end->reg.key };
	size_t n = sizeof(mine.address);

	CHECK_EQ(end->engine->address(end->rail, mine.address, &n), 0);
	mine.n = n;
	CHECK(write(sock, &mine, sizeof(mine)) == sizeof(mine));
	CHECK(recv(sock, theirs, sizeof(*theirs), MSG_WAITALL) == sizeof(*theirs));
	if (end->engine->connect(end->rail, theirs->address, theirs->n, &end->peer))
		FAIL("%s: %s", end->info.network, bw_err_text());
}

/* The 4 bytes of data that every network has say where a write goes, and how much it is. */
#define AT_STEP 2048u

static uint64_t data_of(size_t at, size_t bytes)
{
	CHECK(at % AT_STEP == 0 && at < HALF && bytes <= 1u << 20);
	return at / AT_STEP | (uint64_t)bytes << 10;
}

static size_t data_at(uint64_t data)
{
	return data % 1024 * AT_STEP;
}

static size_t data_bytes(uint64_t data)
{
	return data >> 10;
}

/* ---- the other process -------------------------------------------------------------------- */

static struct card other;

static void answer(struct end *end, const struct bw_event *event)
{
	size_t at = (uintptr_t)event->ctx - (uintptr_t)tag(0);

	if (event->error)
		return;
	if (event->kind == BW_EVENT_RECEIVED) {
		unsigned sent = end->n[BW_EVENT_SENT];

		POST(end, NULL, send_at(end, HALF + at, event->bytes, NULL));
		if (event->bytes > end->info.inject_bytes)
			UNTIL(end, NULL, end->n[BW_EVENT_SENT] > sent);
		POST(end, NULL, recv_at(end, HALF + at, SLOT, event->ctx));
	} else if (event->kind == BW_EVENT_REMOTE) {
		uint64_t data = event->data, from = data_at(data);

		POST(end, NULL, end->engine->write(end->rail, end->peer, end->memory + from,
						   data_bytes(data), end->reg.desc,
						   other.addr + HALF + from, other.key, true, data,
						   0, NULL));
	}
}

static int serve(const char *network, int sock)
{
	struct end *end = end_try(network);
	char c;

	if (!end)
		return 1;
	exchange(end, sock, &other);
	end->seen = answer;
	for (unsigned i = 0; i < SLOTS; i++)
		POST(end, NULL, recv_at(end, HALF + i * SLOT, SLOT, tag(i * SLOT)));
	while (recv(sock, &c, 1, MSG_DONTWAIT) != 0) {
		end_poll(end);
		end->nevents = 0;
	}
	end_close(end);
	return 0;
}

/* ---- this process ------------------------------------------------------------------------- */

struct remote {
	pid_t pid;
	int sock;
	struct card card;
};

static void start(struct end *end, struct remote *remote)
{
	int pair[2];
	char number[16];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	snprintf(number, sizeof(number), "%d", pair[1]);
	remote->pid = fork();
	CHECK(remote->pid >= 0);
	if (!remote->pid) {
		close(pair[0]);
		execl("/proc/self/exe", "engine_peer_test", "serve", end->info.network, number,
		      NULL);
		_exit(127);
	}
	close(pair[1]);
	remote->sock = pair[0];
	exchange(end, remote->sock, &remote->card);
}

static void stop(struct end *end, struct remote *remote)
{
	double until = seconds() + MOST_SECONDS;
	int status;

	close(remote->sock);
	while (!waitpid(remote->pid, &status, WNOHANG)) {
		end_poll(end); /* it may have something on its way to us */
		if (seconds() > until) {
			kill(remote->pid, SIGKILL);
			FAIL("%s: the other process does not end", end->info.network);
		}
	}
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

static void each_with_a_process(void (*fn)(struct end *end, struct remote *remote))
{
	static const char *const networks[] = { "tcp", "shm", "verbs" };
	const char *only = getenv("NETWORK");
	char reason[512] = "";
	bool any = false;

	for (unsigned i = 0; i < 3; i++) {
		struct end *end;
		struct remote remote;

		if (only && strcmp(only, networks[i]))
			continue;
		end = end_try(networks[i]);
		if (!end) {
			snprintf(reason, sizeof(reason), "%.500s", bw_err_text());
			continue;
		}
		any = true;
		start(end, &remote);
		fn(end, &remote);
		end_close(end);
	}
	if (!any && only)
		FAIL("%s: %s", only, reason);
	if (!any)
		SKIP("%s", reason);
}

static void one_echo(struct end *end, size_t bytes)
{
	unsigned received = end->n[BW_EVENT_RECEIVED], sent = end->n[BW_EVENT_SENT];

	test_fill(end->memory, bytes, bytes);
	memset(end->memory + HALF, 0, bytes);
	POST(end, NULL, recv_at(end, HALF, bytes, tag(bytes)));
	POST(end, NULL, send_at(end, 0, bytes, tag(1)));
	UNTIL(end, NULL, end->n[BW_EVENT_RECEIVED] > received);
	if (bytes > end->info.inject_bytes)
		UNTIL(end, NULL, end->n[BW_EVENT_SENT] > sent);
	CHECK(find_event(end, BW_EVENT_RECEIVED, tag(bytes)));
	CHECK(!memcmp(end->memory, end->memory + HALF, bytes));
	end->nevents = 0;
}

static int write_out(struct end *end, const struct remote *remote, size_t at, size_t bytes)
{
	return end->engine->write(end->rail, end->peer, end->memory + at, bytes, end->reg.desc,
				  remote->card.addr + at, remote->card.key, true,
				  data_of(at, bytes), 0, tag(at));
}

/* There and back again, into the other half. */
static void one_round(struct end *end, const struct remote *remote, size_t at, size_t bytes)
{
	unsigned back = end->n[BW_EVENT_REMOTE];

	test_fill(end->memory + at, bytes, bytes + at);
	memset(end->memory + HALF + at, 0, bytes);
	POST(end, NULL, write_out(end, remote, at, bytes));
	UNTIL(end, NULL, end->n[BW_EVENT_REMOTE] > back);
	CHECK(!memcmp(end->memory + at, end->memory + HALF + at, bytes));
	end->nevents = 0;
}

static void echoes(struct end *end, struct remote *remote)
{
	static const size_t sizes[] = { 1, 8, 128, 129, 4096, 4097, 20000, SLOT };

	for (unsigned k = 0; k < 20; k++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			one_echo(end, sizes[i]);
	CHECK_EQ(end->failed, 0);
	stop(end, remote);
}

static void messages_between_processes(void)
{
	each_with_a_process(echoes);
}

static void rounds(struct end *end, struct remote *remote)
{
	static const size_t sizes[] = { 0, 1, 8, 63, 4096, 65537, 1u << 20 };

	for (unsigned k = 0; k < 20; k++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			one_round(end, remote, k * AT_STEP, sizes[i]);
	CHECK_EQ(end->failed, 0);
	stop(end, remote);
}

static void writes_between_processes(void)
{
	each_with_a_process(rounds);
}

/* A peer that is stopped loses nothing, and keeps nobody here from going on. */
static void stops(struct end *end, struct remote *remote)
{
	unsigned posted = 0, back;
	double until;

	one_round(end, remote, 0, 8);
	back = end->n[BW_EVENT_REMOTE];
	kill(remote->pid, SIGSTOP);
	until = seconds() + 0.3;
	while (seconds() < until) {
		if (posted < 100 && !write_out(end, remote, posted * 4096, 4096))
			posted++;
		end_poll(end);
	}
	CHECK(posted > 0);
	CHECK_EQ(end->n[BW_EVENT_REMOTE], back);
	kill(remote->pid, SIGCONT);
	UNTIL(end, NULL, end->n[BW_EVENT_REMOTE] == back + posted);
	CHECK_EQ(end->failed, 0);
	stop(end, remote);
}

static void a_stopped_peer_loses_nothing(void)
{
	each_with_a_process(stops);
}

/* What a killed process leaves of shm: its address is "fi_shm://NAME". */
static void sweep(const struct remote *remote)
{
	const char *name = strstr((const char *)remote->card.address, "shm://");
	char path[300];

	if (!name)
		return;
	snprintf(path, sizeof(path), "/dev/shm/%.255s", name + 6);
	unlink(path);
}

/* libfabric's shm may complete nothing more after writes of a process that died: that is said. */
static void gives_up(struct end *end)
{
	struct bw_event event;

	CHECK_EQ(end->engine->poll(end->rail, &event, 1), -EIO);
	CHECK_HAS(bw_err_text(), "completes none after");
}

/*
 * Whatever the network says when a process dies, an error or nothing for ever, posting comes back,
 * polling goes on, and after the disconnect nothing more is heard. Another process is served by the
 * same rail, or it says that it is broken.
 */
static void dies(struct end *end, struct remote *remote)
{
	struct remote next;
	unsigned posted = 0, put_off = 0, refused = 0;
	double until;
	int status;

	one_round(end, remote, 0, 8);
	for (unsigned i = 0; i < 50; i++)
		POST(end, NULL, write_out(end, remote, i * 4096, 4096));
	/* libfabric's shm has a lock in the memory of the one written to: it stays locked when the
	 * writer is killed just then, and polling never comes back. So only when it is idle. */
	if (!strcmp(end->info.network, "shm"))
		UNTIL(end, NULL, end->n[BW_EVENT_REMOTE] == 51);
	kill(remote->pid, SIGKILL);
	CHECK(waitpid(remote->pid, &status, 0) == remote->pid);
	sweep(remote);
	until = seconds() + 1;
	while (seconds() < until) {
		int ret = write_out(end, remote, 0, posted % 2 ? 8 : 65536);

		posted += !ret;
		put_off += ret == -EAGAIN;
		refused += ret && ret != -EAGAIN;
		end_poll(end);
		end->nevents = 0;
	}
	printf("%s: a dead peer: %u posted, %u put off, %u refused, %u events with an error\n",
	       end->info.network, posted, put_off, refused, end->failed);
	end->engine->disconnect(end->rail, end->peer);
	close(remote->sock);
	if (posted && !strcmp(end->info.network, "shm")) {
		gives_up(end);
		return;
	}
	poll_for(end, NULL, 0.1);
	CHECK_EQ(end->nevents, 0);
	start(end, &next);
	end->failed = 0;
	one_echo(end, 8);
	one_round(end, &next, 0, 100000);
	CHECK_EQ(end->failed, 0);
	stop(end, &next);
}

static void a_killed_peer_is_survived(void)
{
	each_with_a_process(dies);
}

/* A rail is closed while its peer still writes to it, and it has not looked at what came. */
static void closes(struct end *end, struct remote *remote)
{
	one_round(end, remote, 0, 8);
	for (unsigned k = 0; k < 4; k++) {
		struct end *mine = end_try(end->info.network);
		struct timespec pause = { .tv_nsec = k % 3 * 10000000 };
		struct remote next;

		CHECK(mine);
		start(mine, &next);
		one_round(mine, &next, 0, 8);
		for (unsigned i = 0; i < 60; i++)
			POST(mine, NULL, write_out(mine, &next, i * 4096, 64 << i % 7));
		nanosleep(&pause, NULL);
		end_close(mine);
		kill(next.pid, SIGKILL);
		CHECK(waitpid(next.pid, NULL, 0) == next.pid);
		close(next.sock);
		sweep(&next);
	}
	one_round(end, remote, 0, 100000);
	CHECK_EQ(end->failed, 0);
	stop(end, remote);
}

static void a_rail_is_closed_under_fire(void)
{
	each_with_a_process(closes);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(messages_between_processes),
		TEST(writes_between_processes),
		TEST(a_stopped_peer_loses_nothing),
		TEST(a_killed_peer_is_survived),
		TEST(a_rail_is_closed_under_fire),
		{ 0 }
	};

	if (argc == 4 && !strcmp(argv[1], "serve")) {
		if (setjmp(test_jump))
			return 1;
		return serve(argv[2], atoi(argv[3]));
	}
	return test_main(argc, argv, cases);
}
