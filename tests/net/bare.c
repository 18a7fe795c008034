/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bare PROVIDER [--node ADDRESS] [--rounds N] [--wait] [--most BYTES]
 *
 * The yardstick for the network engine: a program that calls libfabric and nothing else. Two
 * processes play ping-pong with messages, and with writes that bring data to the other's completion
 * queue, 8 bytes to 1 MiB. It prints one JSON object; microseconds are half of a round trip.
 * PROVIDER is libfabric's own name: net, tcp, shm, "verbs;ofi_rxm". --wait asks for a completion
 * queue with a descriptor, and polls it all the same.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

/* For the leak sanitizer: the objects are left to the end of the process. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so";
}

#define MOST (1u << 20)

#define OK(call) do { \
	long ret_ = (long)(call); \
	if (ret_ < 0) { \
		fprintf(stderr, "bare: %s: %s (%ld)\n", #call, lib.strerror((int)-ret_), ret_); \
		exit(1); \
	} \
} while (0)

static struct {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *ctx);
	uint32_t (*version)(void);
	const char *(*strerror)(int error);
} lib;

static const size_t sizes[] = { 8, 64, 512, 4096, 32768, 262144, MOST };
static const char *provider, *node;
static unsigned rounds = 2000;
static size_t most = MOST;
static bool wait_fd;

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_ep *ep;
static struct fid_mr *mr;
static unsigned char *memory; /* what arrives, then what is sent */
static fi_addr_t peer;
static uint64_t peer_addr, peer_key;
static struct fi_context2 contexts[3];
static unsigned long received, written, sent;
static unsigned long taken[2]; /* of received and written: those that a turn was taken for */

static void load(void)
{
	void *so = dlopen("libfabric.so.1", RTLD_NOW);
	static const struct { const char *name; void *where; } symbols[] = {
		{ "fi_getinfo", &lib.getinfo }, { "fi_dupinfo", &lib.dupinfo },
		{ "fi_fabric", &lib.fabric }, { "fi_version", &lib.version },
		{ "fi_strerror", &lib.strerror },
	};

	if (!so) {
		fprintf(stderr, "bare: %s\n", dlerror());
		exit(77);
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *f = dlsym(so, symbols[i].name);

		if (!f)
			exit(77);
		memcpy(symbols[i].where, &f, sizeof(f));
	}
}

static void open_endpoint(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA,
				      .wait_obj = wait_fd ? FI_WAIT_FD : FI_WAIT_NONE };
	struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC };
	struct fi_info *hints = lib.dupinfo(NULL);
	uint32_t api = lib.version();

	if (api > FI_VERSION(1, 20))
		api = FI_VERSION(1, 20);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup(provider);
	if (lib.getinfo(api, node, NULL, node ? FI_SOURCE : 0, hints, &info)) {
		fprintf(stderr, "bare: libfabric has no %s here\n", provider);
		exit(77);
	}
	OK(lib.fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_enable(ep));
	memory = aligned_alloc(4096, 2 * MOST);
	memset(memory, 1, 2 * MOST);
	OK(fi_mr_reg(domain, memory, 2 * MOST, FI_SEND | FI_RECV | FI_WRITE | FI_READ |
		     FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 77, 0, &mr, NULL));
	if (info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		OK(fi_mr_bind(mr, &ep->fid, 0));
		OK(fi_mr_enable(mr));
	}
}

static void exchange(int sock)
{
	struct { unsigned char name[256]; uint64_t addr, key; } mine, theirs;
	size_t n = sizeof(mine.name);

	memset(&mine, 0, sizeof(mine));
	OK(fi_getname(&ep->fid, mine.name, &n));
	mine.addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory : 0;
	mine.key = fi_mr_key(mr);
	if (write(sock, &mine, sizeof(mine)) != sizeof(mine) ||
	    recv(sock, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		exit(1);
	if (fi_av_insert(av, theirs.name, 1, &peer, 0, NULL) != 1)
		exit(1);
	peer_addr = theirs.addr;
	peer_key = theirs.key;
}

static void poll_cq(void)
{
	struct fi_cq_data_entry e[8];
	ssize_t n = fi_cq_read(cq, e, 8);

	if (n == -FI_EAGAIN)
		return;
	if (n == -FI_EAVAIL) {
		union { struct fi_cq_err_entry e; char room[256]; } err;

		memset(&err, 0, sizeof(err));
		fi_cq_readerr(cq, &err.e, 0);
		fprintf(stderr, "bare: %s\n", lib.strerror(err.e.err));
		exit(1);
	}
	OK(n);
	for (ssize_t i = 0; i < n; i++) {
		if (e[i].flags & FI_REMOTE_CQ_DATA)
			written++;
		else if (e[i].flags & FI_RECV)
			received++;
		else
			sent++;
	}
}

static unsigned long posted; /* operations whose completion is to come */

#define POST(call) do { \
	ssize_t post_; \
	while ((post_ = (call)) == -FI_EAGAIN) \
		poll_cq(); \
	OK(post_); \
} while (0)

static void post_recv(void)
{
	POST(fi_recv(ep, memory, MOST, fi_mr_desc(mr), FI_ADDR_UNSPEC, &contexts[0]));
}

static void one_out(bool writes, size_t n)
{
	const void *src = memory + MOST;

	if (writes) {
		POST(fi_writedata(ep, src, n, fi_mr_desc(mr), 7, peer, peer_addr, peer_key,
				  &contexts[1]));
		posted++;
	} else if (n <= info->tx_attr->inject_size) {
		POST(fi_inject(ep, src, n, peer));
	} else {
		POST(fi_send(ep, src, n, fi_mr_desc(mr), peer, &contexts[1]));
		posted++;
	}
}

static void one_in(bool writes)
{
	const unsigned long *count = writes ? &written : &received;

	while (*count == taken[writes]) /* it may have come while something else was waited for */
		poll_cq();
	taken[writes]++;
	if (!writes)
		post_recv();
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The first has the ball first. The other's answer can be here before the own completion. */
static void play(bool writes, size_t n, unsigned count, bool first, double *us)
{
	for (unsigned i = 0; i < count; i++) {
		double t = now();

		if (first)
			one_out(writes, n);
		one_in(writes);
		if (!first)
			one_out(writes, n);
		while (sent < posted)
			poll_cq();
		if (us)
			us[i] = (now() - t) / 2;
	}
}

static void measure(bool first)
{
	double *us = malloc(rounds * sizeof(*us));
	const char *comma = "";

	for (int writes = 0; writes < 2; writes++)
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			size_t n = sizes[k];
			unsigned count = n > 65536 ? rounds / 10 + 1 : rounds;

			if (n > most)
				break;
			play(writes, n, count / 10 + 10, first, NULL);
			play(writes, n, count, first, us);
			if (!first)
				continue;
			qsort(us, count, sizeof(*us), by_value);
			printf("%s\n  {\"kind\": \"%s\", \"bytes\": %zu, \"rounds\": %u, \"us\": "
			       "{\"min\": %.3f, \"p50\": %.3f, \"p99\": %.3f}}", comma,
			       writes ? "write" : "message", n, count, us[0], us[count / 2],
			       us[count * 99 / 100]);
			comma = ",";
		}
	free(us);
}

static int run(int sock, bool first)
{
	cpu_set_t one;
	char c = 0;

	CPU_ZERO(&one);
	CPU_SET(first ? 0 : 1, &one);
	sched_setaffinity(0, sizeof(one), &one); /* fails where there is one CPU: slower */
	open_endpoint();
	exchange(sock);
	post_recv();
	if (first)
		printf("{\"program\": \"bare libfabric\", \"version\": \"%u.%u\", "
		       "\"provider\": \"%s\", \"wait\": %s, \"results\": [",
		       FI_MAJOR(lib.version()), FI_MINOR(lib.version()),
		       info->fabric_attr->prov_name, wait_fd ? "\"fd\"" : "null");
	measure(first);
	if (first)
		printf("\n]}\n");
	/* Neither goes before the other has what is on its way. */
	if (write(sock, &c, 1) != 1)
		return 1;
	while (recv(sock, &c, 1, MSG_DONTWAIT) < 0)
		poll_cq();
	fi_close(&ep->fid);
	return 0;
}

int main(int argc, char **argv)
{
	int sock[2], status;
	pid_t child;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--node") && i + 1 < argc)
			node = argv[++i];
		else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
			rounds = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--most") && i + 1 < argc)
			most = strtoul(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--wait"))
			wait_fd = true;
		else if (argv[i][0] != '-' && !provider)
			provider = argv[i];
		else
			rounds = 0;
	}
	if (!provider || !rounds || most > MOST) {
		fprintf(stderr, "usage: bare PROVIDER [--node ADDRESS] [--rounds N] [--wait] "
			"[--most BYTES]\n");
		return 2;
	}
	if (!node && strcmp(provider, "shm"))
		node = "127.0.0.1";
	load();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock))
		return 1;
	child = fork();
	if (!child)
		_exit(run(sock[1], false));
	if (child < 0 || run(sock[0], true))
		return 1;
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
