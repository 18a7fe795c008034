/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting: the end that knocks. Blocks, and takes of the control only what does not change. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/control_int.h"

#define RETRY_NS 20000000u /* where the other end is busy */

struct call {
	const struct bw_control *control;
	const char *name;
	struct bw_address to;
	uint64_t begun_ns, deadline_ns; /* the deadline: UINT64_MAX for none */
};

static int late_err(const struct call *call, const char *what)
{
	return bw_err(ETIMEDOUT, "connect to %s: %s within %llu ms: is it reached, and does its "
		      "program make progress?", call->name, what,
		      (unsigned long long)((call->deadline_ns - call->begun_ns) / 1000000u));
}

/* 0: there is one of @events, or an error; -ETIMEDOUT without a sentence. */
static int wait_for(const struct call *call, int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	struct timespec left, *time = NULL;
	int n;

	do {
		if (call->deadline_ns != UINT64_MAX) {
			uint64_t now = bw_net_now();
			uint64_t ns = now < call->deadline_ns ? call->deadline_ns - now : 0;

			left.tv_sec = (time_t)(ns / 1000000000u);
			left.tv_nsec = (long)(ns % 1000000000u);
			time = &left;
		}
		n = ppoll(&p, 1, time, NULL);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	return n < 0 ? -errno : n ? 0 : -ETIMEDOUT;
}

static int connect_err(const struct call *call, int err)
{
	switch (err) {
	case ETIMEDOUT:
		return late_err(call, "no answer");
	case ECONNREFUSED:
		return bw_err(ECONNREFUSED, "connect to %s: nobody listens there: check the name, "
			      "and that its program runs", call->name);
	case EMFILE:
	case ENFILE:
		return bw_err(EMFILE, "connect to %s: too many open files: raise the limit "
			      "(ulimit -n)", call->name);
	case EACCES: /* those two are a firewall's; -EACCES means the secret here */
	case EPERM:
	case EINVAL: /* from a loopback address to another machine */
	case ENETUNREACH:
	case EHOSTUNREACH:
		return bw_err(EHOSTUNREACH, "connect to %s: there is no way to it from %s, on "
			      "which this end listens (%s): listen on the address of the interface "
			      "that leads there", call->name, call->control->self.name,
			      strerror(err));
	}
	return bw_err(err, "connect to %s: %s: check the name and the network", call->name,
		      strerror(err));
}

/* From the address on which we listen: the connection takes the interface that was chosen. */
static int bind_source(const struct call *call, int fd)
{
	struct bw_address from = call->control->at;
	int on = 1;

	if (from.at.ss_family != call->to.at.ss_family)
		return 0;
	if (from.at.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&from.at)->sin6_port = 0;
	else
		((struct sockaddr_in *)&from.at)->sin_port = 0;
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	return bind(fd, (struct sockaddr *)&from.at, from.bytes) ? -errno : 0;
}

/* A free port that the kernel chose for our end may be the very one that we call. */
static bool met_itself(int fd)
{
	struct bw_address here = { .bytes = sizeof(here.at) };
	struct bw_address there = { .bytes = sizeof(there.at) };

	return !getsockname(fd, (struct sockaddr *)&here.at, &here.bytes) &&
	       !getpeername(fd, (struct sockaddr *)&there.at, &there.bytes) &&
	       bw_address_same(&here, &there);
}

static int reach(const struct call *call, struct bw_link *link)
{
	int err = 0, ret = bw_net_socket(&link->fd, call->to.at.ss_family), fd = link->fd.fd;
	socklen_t n = sizeof(err);

	if (!ret)
		ret = bind_source(call, fd);
	if (ret)
		return connect_err(call, -ret);
	if (connect(fd, (const struct sockaddr *)&call->to.at, call->to.bytes)) {
		if (errno != EINPROGRESS && errno != EINTR)
			return connect_err(call, errno);
		ret = wait_for(call, fd, POLLOUT);
		if (!ret && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n))
			ret = -err;
		if (ret)
			return connect_err(call, -ret);
	}
	if (met_itself(fd))
		return connect_err(call, ECONNREFUSED);
	ret = bw_link_tune(link, call->control->liveness_ns);
	return ret ? connect_err(call, -ret) : 0;
}

static int prove(const struct call *call, struct bw_link *link)
{
	struct bw_refusal no;
	int ret;

	link->shake.self = &call->control->self;
	link->shake.connects = true;
	bw_address_name(&call->to, link->shake.to);
	ret = bw_shake_begin(&link->shake, link->out);
	if (ret)
		return bw_err_prefix(ret, "connect to %s", call->name);
	link->out_len = BW_OPEN_BYTES;
	for (;;) {
		bw_link_push(link);
		ret = bw_link_shake(link, &no);
		if (ret > 0)
			return 0;
		if (ret < 0) {
			bw_link_refuse(link, &no);
			return bw_err(no.err, "connect to %s: %s", call->name, no.why.text);
		}
		ret = wait_for(call, link->fd.fd,
			       POLLIN | (link->out_head < link->out_len ? POLLOUT : 0));
		if (ret == -ETIMEDOUT)
			return late_err(call, "it did not prove itself");
		if (ret)
			return connect_err(call, -ret);
	}
}

static int attempt(const struct call *call, struct bw_link **out)
{
	struct bw_link *link = bw_link_new();
	int ret;

	if (!link)
		return -ENOMEM;
	ret = reach(call, link);
	if (!ret)
		ret = prove(call, link);
	if (ret)
		bw_link_close(link);
	else
		*out = link;
	return ret;
}

/* Not all that were sent away come back at once. */
static void pause_for_a_while(const struct call *call)
{
	uint64_t now = bw_net_now(), ns = RETRY_NS + now % RETRY_NS;
	struct timespec t = { 0 };

	if (now >= call->deadline_ns)
		return;
	if (call->deadline_ns - now < ns)
		ns = call->deadline_ns - now;
	t.tv_nsec = (long)ns;
	nanosleep(&t, NULL);
}

int bw_control_connect(const struct bw_control *control, const char *name, uint64_t timeout_ns,
		       struct bw_link **out)
{
	struct call call = { .control = control, .name = name, .begun_ns = bw_net_now() };
	struct bw_sentence before;
	int ret = bw_address_parse(name, true, &call.to);

	if (ret)
		return bw_err_prefix(ret, "connect");
	bw_err_keep(&before);
	if (control->epoll.fd < 0)
		return bw_err(ESTALE, "connect to %s: this end was made by the parent process "
			      "before fork(): open one in this process", name);
	call.deadline_ns = timeout_ns < UINT64_MAX - call.begun_ns ? call.begun_ns + timeout_ns
								    : UINT64_MAX;
	for (;;) {
		ret = attempt(&call, out);
		if (!ret)
			bw_err_put_back(&before);
		if (ret != -EAGAIN)
			return ret;
		if (bw_net_now() >= call.deadline_ns)
			return late_err(&call, "it was too busy to answer");
		pause_for_a_while(&call);
	}
}
