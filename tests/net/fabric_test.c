/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The libfabric engine: which network it takes, what it sets for libfabric, and how long messages
 * and writes take beside the program "bare", whose path is in $BARE, that calls libfabric alone.
 * The figures are printed; only what is absurd fails, since machines that run tests are busy.
 */
#include "../contract/engine_ends.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ABSURD 20.0 /* times as long as bare, of the shortest */
#define ROUNDS 1000u
#define HALF (MEMORY / 2)

static const size_t sizes[] = { 8, 64, 512, 4096, 32768, 262144, 1u << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void need_libfabric(void)
{
	struct bw_reason why;

	if (bw_net_engines[0]->usable(&why))
		SKIP("%s", why.text);
}

static int open_on(const char *network, const char *interface, char got[32])
{
	struct bw_rail_options options = { .network = network, .interface = interface };
	struct bw_rail_info info;
	struct bw_rail *rail;
	int ret = bw_rail_open(&options, &rail);

	if (ret)
		return ret;
	rail->engine->info(rail, &info);
	snprintf(got, 32, "%s", info.network);
	rail->engine->close(rail);
	return 0;
}

/* libfabric reads it once, so main() has set what the user would have set. */
static void libfabric_is_told(void)
{
	char got[32];

	need_libfabric();
	CHECK_EQ(open_on("tcp", NULL, got), 0);
	CHECK(getenv("FI_HMEM") && getenv("FI_UNIVERSE_SIZE") && getenv("FI_SHM_DISABLE_CMA"));
	CHECK_STR(getenv("FI_HMEM"), "system");
	CHECK_STR(getenv("FI_SHM_DISABLE_CMA"), "yes"); /* what the user has set stays */
	CHECK(atoi(getenv("FI_UNIVERSE_SIZE")) >= 16);
	CHECK(getenv("FI_MR_CACHE_MONITOR"));
	CHECK_STR(getenv("FI_MR_CACHE_MONITOR"), "disabled");
}

static void on_signal(int signal)
{
	(void)signal;
}

static void signals_are_left_alone(void)
{
	static const int signals[] = { SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM };
	struct sigaction now, mine = { .sa_handler = on_signal };
	struct sigaction before[6];
	char got[32];

	need_libfabric();
	sigaction(SIGTERM, &mine, NULL);
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQ(sigaction(signals[i], NULL, &before[i]), 0);
	(void)open_on("tcp", NULL, got);
	(void)open_on("shm", NULL, got);
	for (unsigned i = 0; i < 6; i++) {
		CHECK_EQ(sigaction(signals[i], NULL, &now), 0);
		CHECK(now.sa_handler == before[i].sa_handler);
	}
	signal(SIGTERM, SIG_DFL);
}

static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct stat st;

	CHECK(in >= 0 && out >= 0 && !fstat(in, &st));
	CHECK_EQ(sendfile(out, in, NULL, (size_t)st.st_size), st.st_size);
	close(in);
	close(out);
}

/* What a killed process of the same number has left does not keep this one from opening an end. */
static void names_are_taken(void)
{
	struct bw_rail_options options = { .network = "shm", .peers = 1, .message_bytes = 64 };
	char address[256] = "", mine[300], taken[5][300];
	size_t n = sizeof(address);
	struct bw_rail *first, *second;
	int pid, uid, count, ret;

	need_libfabric();
	CHECK_EQ(bw_rail_open(&options, &first), 0);
	CHECK_EQ(first->engine->address(first, address, &n), 0);
	if (sscanf(address, "fi_shm://%d:%d:%d", &pid, &uid, &count) != 3) {
		first->engine->close(first);
		SKIP("this libfabric names its shared memory otherwise: %s", address);
	}
	snprintf(mine, sizeof(mine), "/dev/shm/%d:%d:%d", pid, uid, count);
	for (int i = 0; i < 5; i++) {
		snprintf(taken[i], sizeof(taken[i]), "/dev/shm/%d:%d:%d", pid, uid, count + 1 + i);
		copy_file(mine, taken[i]);
	}
	ret = bw_rail_open(&options, &second);
	for (int i = 0; i < 5; i++)
		unlink(taken[i]);
	if (ret)
		FAIL("%s", bw_err_text());
	second->engine->close(second);
	first->engine->close(first);
}

static void networks_are_chosen(void)
{
	char got[32];

	need_libfabric();
	CHECK_EQ(open_on("auto", "127.0.0.1", got), 0);
	CHECK_STR(got, "tcp");
	CHECK_EQ(open_on("tcp", "127.0.0.1", got), 0);
	CHECK_STR(got, "tcp");
	CHECK_EQ(open_on("tcp", "not an address", got), -EINVAL);
	CHECK_HAS(bw_err_text(), "not an address");
	/* One for documentation, which no interface has. */
	CHECK_EQ(open_on("tcp", "203.0.113.77", got), -EADDRNOTAVAIL);
	CHECK_HAS(bw_err_text(), "203.0.113.77");
}

static void absent_networks_say_so(void)
{
	static const char *const networks[] = { "verbs", "efa", "cxi" };
	struct bw_reason list;
	char got[32];

	need_libfabric();
	bw_net_engines[0]->networks(&list);
	CHECK_HAS(list.text, "tcp");
	for (unsigned i = 0; i < 3; i++) {
		int ret;

		if (strstr(list.text, networks[i]))
			continue;
		ret = open_on(networks[i], NULL, got);
		CHECK_EQ(ret, -ENOTSUP);
		CHECK_HAS(bw_err_text(), networks[i]);
		CHECK_HAS(bw_err_text(), "fi_info");
	}
}

/* ---- beside bare -------------------------------------------------------------------------- */

struct card {
	unsigned char address[256];
	uint64_t n, addr, key;
};

static struct card other;
static unsigned taken[2];

static void meet(struct end *end, int sock)
{
	struct card mine = { .addr = end->reg.addr, .key = end->reg.key };
	size_t n = sizeof(mine.address);

	CHECK_EQ(end->engine->address(end->rail, mine.address, &n), 0);
	mine.n = n;
	CHECK(write(sock, &mine, sizeof(mine)) == sizeof(mine));
	CHECK(recv(sock, &other, sizeof(other), MSG_WAITALL) == sizeof(other));
	CHECK_EQ(end->engine->connect(end->rail, other.address, other.n, &end->peer), 0);
	POST(end, NULL, recv_at(end, HALF, 1u << 20, NULL));
}

static void turn_out(struct end *end, bool writes, size_t n)
{
	if (writes)
		POST(end, NULL, end->engine->write(end->rail, end->peer, end->memory, n,
						   end->reg.desc, other.addr + HALF, other.key,
						   true, 7, 0, NULL));
	else
		POST(end, NULL, send_at(end, 0, n, NULL));
}

static void turn_in(struct end *end, bool writes)
{
	enum bw_event_kind kind = writes ? BW_EVENT_REMOTE : BW_EVENT_RECEIVED;

	while (end->n[kind] == taken[writes]) {
		end_poll(end);
		end->nevents = 0;
	}
	taken[writes]++;
	if (!writes)
		POST(end, NULL, recv_at(end, HALF, 1u << 20, NULL));
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct figures {
	double least, median;
};

static struct figures play(struct end *end, bool writes, size_t n, bool first)
{
	unsigned count = n > 65536 ? ROUNDS / 10 : ROUNDS;
	double *us = malloc(count * sizeof(*us));
	struct figures f;

	CHECK(us);
	for (unsigned i = 0; i < count; i++) {
		unsigned done = end->n[BW_EVENT_SENT] + end->n[BW_EVENT_WRITTEN];
		bool told = writes || n > end->info.inject_bytes;
		double began = seconds();

		if (first)
			turn_out(end, writes, n);
		turn_in(end, writes);
		if (!first)
			turn_out(end, writes, n);
		while (end->n[BW_EVENT_SENT] + end->n[BW_EVENT_WRITTEN] < done + told) {
			end_poll(end);
			end->nevents = 0;
		}
		us[i] = (seconds() - began) * 1e6 / 2;
	}
	qsort(us, count, sizeof(*us), by_value);
	f.least = us[0];
	f.median = us[count / 2];
	free(us);
	return f;
}

static void on_cpu(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one); /* fails where there is one: slower, that is all */
}

static int second(const char *network, int sock)
{
	struct end *end = end_try(network);
	char c;

	on_cpu(1);
	if (!end)
		return 1;
	meet(end, sock);
	for (int writes = 0; writes < 2; writes++)
		for (unsigned i = 0; i < SIZES; i++)
			play(end, writes, sizes[i], false);
	while (recv(sock, &c, 1, MSG_DONTWAIT) != 0)
		end_poll(end);
	end_close(end);
	return 0;
}

/* What bare prints, one line for each size. */
static bool run_bare(const char *provider, struct figures f[2][SIZES])
{
	char line[256], kind[16], command[600];
	const char *bare = getenv("BARE");
	unsigned n = 0;
	FILE *out;

	if (!bare)
		return false;
	snprintf(command, sizeof(command), "'%s' '%s' --rounds %u", bare, provider, ROUNDS);
	out = popen(command, "r");
	if (!out)
		return false;
	while (fgets(line, sizeof(line), out)) {
		double least, median;
		size_t bytes;

		if (sscanf(line, " {\"kind\": \"%15[a-z]\", \"bytes\": %zu, \"rounds\": %*u, "
			   "\"us\": {\"min\": %lf, \"p50\": %lf", kind, &bytes, &least,
			   &median) != 4)
			continue;
		for (unsigned i = 0; i < SIZES; i++)
			if (bytes == sizes[i]) {
				f[!strcmp(kind, "write")][i] = (struct figures){ least, median };
				n++;
			}
	}
	return !pclose(out) && n == 2 * SIZES;
}

static void run_engine(struct end *end, struct figures f[2][SIZES])
{
	char number[16];
	int pair[2], status;
	pid_t child;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	snprintf(number, sizeof(number), "%d", pair[1]);
	child = fork();
	if (!child) {
		close(pair[0]);
		execl("/proc/self/exe", "fabric_test", "second", end->info.network, number, NULL);
		_exit(127);
	}
	close(pair[1]);
	on_cpu(0);
	meet(end, pair[0]);
	memset(taken, 0, sizeof(taken));
	for (int writes = 0; writes < 2; writes++)
		for (unsigned i = 0; i < SIZES; i++)
			f[writes][i] = play(end, writes, sizes[i], true);
	close(pair[0]);
	while (!waitpid(child, &status, WNOHANG))
		end_poll(end);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void beside_bare(const char *network)
{
	struct end *end = end_try(network);
	struct figures bare[2][SIZES], ours[2][SIZES];

	if (!end)
		SKIP("%s", bw_err_text());
	if (!run_bare(end->info.provider, bare)) {
		end_close(end);
		SKIP("$BARE does not name a program bare that runs");
	}
	run_engine(end, ours);
	for (int writes = 0; writes < 2; writes++)
		for (unsigned i = 0; i < SIZES; i++) {
			printf("%s: %s of %zu bytes: %.2f us, bare %.2f us (shortest %.2f, %.2f)\n",
			       network, writes ? "write" : "message", sizes[i],
			       ours[writes][i].median, bare[writes][i].median,
			       ours[writes][i].least, bare[writes][i].least);
			CHECK(ours[writes][i].least > 0 && bare[writes][i].least > 0);
			CHECK(ours[writes][i].least < ABSURD * bare[writes][i].least);
		}
	end_close(end);
}

static void tcp_beside_bare(void)
{
	need_libfabric();
	beside_bare("tcp");
}

static void shm_beside_bare(void)
{
	need_libfabric();
	beside_bare("shm");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(signals_are_left_alone),
		TEST(libfabric_is_told),
		TEST(names_are_taken),
		TEST(networks_are_chosen),
		TEST(absent_networks_say_so),
		TEST(tcp_beside_bare),
		TEST(shm_beside_bare),
		{ 0 }
	};

	if (argc == 4 && !strcmp(argv[1], "second")) {
		if (setjmp(test_jump))
			return 1;
		return second(argv[2], atoi(argv[3]));
	}
	unsetenv("FI_HMEM");
	setenv("FI_SHM_DISABLE_CMA", "yes", 1);
	return test_main(argc, argv, cases);
}
