/* SPDX-License-Identifier: BSD-3-Clause */
/* The other end: as a process of our own, or as a server for whoever comes. */
#include "tools/net.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/options.h"

#define ACCEPT_NS 60000000000u
#define CPUS_EACH 4 /* for each thread that polls, so that the system has some choice */

/* Opens a device and an end on it: an exit code, with its line printed. */
static int open_end(struct measure *m, const struct net_options *o, struct net_end *e)
{
	int code = measure_open(m);

	*e = (struct net_end){ .ctx = m->ctx, .dev = m->dev, .soft = m->soft };
	if (code == TOOL_OK && net_end_open(e, o) < 0)
		code = failure(m->verb, "%s%s", o->local ? "the other end: " : "", e->error);
	return code;
}

static void close_end(struct measure *m, struct net_end *e)
{
	net_end_close(e);
	measure_close(m);
}

/* ---- a process of our own ----------------------------------------------------------------- */

/*
 * Both ends poll: on one CPU each would wait for the other's time slice. They take neighbours, as
 * those are of one socket on most machines.
 */
void net_take_share(const struct net_options *o, bool second)
{
	int n, share = CPUS_EACH * (1 + (o->threads < 0 ? 1 : o->threads)), k = 0;
	cpu_set_t all, mine;

	if (sched_getaffinity(0, sizeof(all), &all) || (n = CPU_COUNT(&all)) < 2)
		return;
	if (share > n / 2)
		share = n / 2;
	CPU_ZERO(&mine);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		if (k / share == (second ? 1 : 0))
			CPU_SET(cpu, &mine);
		k++;
	}
	sched_setaffinity(0, sizeof(mine), &mine);
}

struct request {
	char device[64], network[16], listen[64];
};

struct reply {
	int code;
	char name[64];
};

static int serve_one(struct measure *m, struct net_options *o, const struct request *r, int sock)
{
	struct reply reply = { .code = TOOL_FAILED };
	struct net_end e;
	int code;

	m->device = *r->device ? r->device : NULL;
	o->network = *r->network ? r->network : NULL;
	o->listen = *r->listen ? r->listen : NULL;
	reply.code = open_end(m, o, &e);
	if (reply.code == TOOL_OK && barway_endpoint_name(e.ep, reply.name, sizeof(reply.name)) < 0)
		reply.code = failure(m->verb, "%s", barway_errmsg());
	code = reply.code;
	if (write(sock, &reply, sizeof(reply)) != sizeof(reply))
		code = TOOL_FAILED;
	/* what goes wrong from here on the other one sees, and says */
	if (code == TOOL_OK && barway_peer_accept(e.ep, ACCEPT_NS, &e.peer) == 0)
		net_serve(&e);
	close_end(m, &e);
	return code;
}

static void child(const struct measure *parent, struct net_options *o, int sock)
{
	struct measure m = { .verb = parent->verb, .schema = parent->schema, .numa = parent->numa };
	struct request r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!getenv("BARWAY_LOG"))
		barway_param_set("log", "error"); /* its warnings are the parent's, too */
	net_take_share(o, true);
	while (read(sock, &r, sizeof(r)) == sizeof(r))
		serve_one(&m, o, &r, sock);
	exit(0);
}

int net_local_start(struct net_local *l, const struct measure *m, struct net_options *o)
{
	int sock[2];

	if (getrandom(o->secret, sizeof(o->secret), 0) != sizeof(o->secret) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock))
		return failure(m->verb, "the other end cannot be started: %s", strerror(errno));
	fflush(stdout);
	l->child = fork();
	if (l->child == 0) {
		close(sock[0]);
		child(m, o, sock[1]);
	}
	close(sock[1]);
	if (l->child < 0) {
		close(sock[0]);
		l->child = 0;
		return failure(m->verb, "the other end cannot be started: %s", strerror(errno));
	}
	l->sock = sock[0];
	return TOOL_OK;
}

int net_local_open(struct net_local *l, const char *verb, const char *device,
		   const struct net_options *o, char name[64])
{
	struct request r = { 0 };
	struct reply reply;

	snprintf(r.device, sizeof(r.device), "%s", device);
	snprintf(r.network, sizeof(r.network), "%s", o->network ? o->network : "");
	snprintf(r.listen, sizeof(r.listen), "%s", o->listen ? o->listen : "");
	if (send(l->sock, &r, sizeof(r), MSG_NOSIGNAL) != sizeof(r) ||
	    read(l->sock, &reply, sizeof(reply)) != sizeof(reply))
		return failure(verb, "the other end, a process of our own, has ended");
	memcpy(name, reply.name, sizeof(reply.name));
	return reply.code;
}

void net_local_end(struct net_local *l)
{
	if (!l->child)
		return;
	close(l->sock); /* it sees that, when it has done with its peer */
	while (waitpid(l->child, NULL, 0) < 0 && errno == EINTR)
		;
	l->child = 0;
}

/* ---- for whoever comes -------------------------------------------------------------------- */

static int serve_next(const struct measure *m, struct net_end *e)
{
	struct barway_peer_info who = { .size = sizeof(who) };
	int ret;

	do {
		ret = barway_peer_accept(e->ep, ACCEPT_NS, &e->peer);
	} while (ret == -ETIMEDOUT);
	if (ret < 0)
		return failure(m->verb, "%s", barway_errmsg());
	if (barway_peer_query(e->peer, &who) < 0)
		who.name[0] = 0;
	printf("client %s of %s, process %u\n", who.name, who.host, who.pid);
	fflush(stdout);
	ret = net_serve(e);
	net_peer_gone(e);
	return ret < 0 ? failure(m->verb, "client %s: %s", who.name, e->error) : TOOL_OK;
}

int net_server(struct measure *m, struct net_options *o)
{
	struct net_end e;
	char name[64];
	int code = open_end(m, o, &e);

	if (code == TOOL_OK && barway_endpoint_name(e.ep, name, sizeof(name)) < 0)
		code = failure(m->verb, "%s", barway_errmsg());
	if (code == TOOL_OK) {
		measure_print_head(m, NULL);
		printf("listening: barway %s %s\n", m->verb, name);
		fflush(stdout);
		do {
			code = serve_next(m, &e);
		} while (!o->once);
	}
	close_end(m, &e);
	return code;
}
