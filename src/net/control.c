/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening: who knocks, who is let in, who is refused. */
#include "net/control.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/log.h"
#include "net/control_int.h"

#define PROVE_NS 1000000000u  /* for the whole of a handshake */
#define BUSY_NS 100000000u    /* one that has had so long makes room for others */
#define PAUSE_NS 100000000u   /* after accept failed */
#define LOG_NS 10000000000u   /* one line about refusals in so long */
#define BACKLOG 512
#define EVENTS 64
#define LINK_EVENTS (EPOLLIN | EPOLLRDHUP)

/* ---- the set of epoll ---------------------------------------------------------------------- */

static int watch(struct bw_control *c, int fd, void *what, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = what };

	return epoll_ctl(c->epoll.fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void bw_control_wants(struct bw_link *link)
{
	bool out = link->out_head < link->out_len;
	struct epoll_event event = { .events = LINK_EVENTS | (out ? EPOLLOUT : 0),
				     .data.ptr = link };

	if (!link->control || link->fd.fd < 0 || out == link->wants_out)
		return;
	link->wants_out = out;
	epoll_ctl(link->control->epoll.fd, EPOLL_CTL_MOD, link->fd.fd, &event);
}

void bw_control_unwatch(struct bw_link *link)
{
	if (link->control && link->fd.fd >= 0)
		epoll_ctl(link->control->epoll.fd, EPOLL_CTL_DEL, link->fd.fd, NULL);
}

/* ---- open, close ---------------------------------------------------------------------------- */

static int listen_err(const struct bw_control *c, int err)
{
	const char *remedy = "give another address or port";

	if (err == EADDRINUSE)
		remedy = "another program has it: take another port, or none";
	else if (err == EADDRNOTAVAIL)
		remedy = "no interface of this machine has it: give the address of one";
	else if (err == EMFILE)
		remedy = "raise the limit of open files (ulimit -n)";

	return bw_err(err, "listen on %s: %s: %s", c->self.name, strerror(err), remedy);
}

static int open_listener(struct bw_control *c)
{
	int on = 1, ret = bw_net_socket(&c->listener, c->at.at.ss_family), fd = c->listener.fd;

	bw_address_name(&c->at, c->self.name);
	if (ret)
		return listen_err(c, -ret);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (c->at.at.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&c->at.at, c->at.bytes) || listen(fd, BACKLOG) ||
	    getsockname(fd, (struct sockaddr *)&c->at.at, &c->at.bytes))
		return listen_err(c, errno);
	bw_address_name(&c->at, c->self.name); /* with the port that was chosen */
	return 0;
}

static int open_set(struct bw_control *c)
{
	int ret = bw_net_epoll(&c->epoll);

	if (!ret)
		ret = bw_net_timer(&c->timer);
	if (!ret)
		ret = watch(c, c->listener.fd, &c->listener, EPOLLIN);
	if (!ret)
		ret = watch(c, c->timer.fd, &c->timer, EPOLLIN);
	if (ret)
		return bw_err(-ret, "listen on %s: epoll: %s: raise the limit of open files "
			      "(ulimit -n)", c->self.name, strerror(-ret));
	return 0;
}

static int check(const struct bw_control_options *o, struct bw_address *at)
{
	int ret = bw_address_parse(o->listen ? o->listen : "127.0.0.1", false, at);

	if (ret)
		return bw_err_prefix(ret, "listen");
	if (bw_address_any(at))
		return bw_err(EINVAL, "listen on %s: it means every address, and peers have to be "
			      "told one: give the address of an interface", o->listen);
	if (!o->secret || o->secret_bytes < 16 ||
	    o->secret_bytes > sizeof(((struct bw_identity *)0)->secret))
		return bw_err(EINVAL, "listen on %s: the secret has %zu bytes: give 16 to %zu "
			      "random ones", o->listen ? o->listen : "127.0.0.1",
			      o->secret ? o->secret_bytes : 0,
			      sizeof(((struct bw_identity *)0)->secret));
	if (o->hello_bytes > BW_HELLO_MAX)
		return bw_err(EINVAL, "listen: a hello of %zu bytes: it has at most %u",
			      o->hello_bytes, BW_HELLO_MAX);
	if (!o->liveness_ns)
		return bw_err(EINVAL, "listen: a liveness time of 0: give nanoseconds");
	return bw_mac_ready();
}

int bw_control_open(const struct bw_control_options *options, struct bw_control **out)
{
	struct bw_address at;
	struct bw_control *c;
	int ret = check(options, &at);

	if (ret)
		return ret;
	c = bw_alloc(sizeof(*c));
	if (!c)
		return bw_err(ENOMEM, "listen: no memory, %zu bytes: free some", sizeof(*c));
	bw_net_fd_none(&c->listener);
	bw_net_fd_none(&c->epoll);
	bw_net_fd_none(&c->timer);
	c->at = at;
	c->liveness_ns = options->liveness_ns;
	c->self.secret_bytes = options->secret_bytes;
	memcpy(c->self.secret, options->secret, options->secret_bytes);
	c->self.hello_bytes = options->hello_bytes;
	if (options->hello_bytes)
		memcpy(c->self.hello, options->hello, options->hello_bytes);
	ret = open_listener(c);
	if (!ret)
		ret = open_set(c);
	if (ret)
		bw_control_close(c);
	else
		*out = c;
	return ret;
}

static void close_list(struct bw_link *list)
{
	while (list) {
		struct bw_link *next = list->next;

		bw_link_close(list);
		list = next;
	}
}

void bw_control_close(struct bw_control *c)
{
	if (!c)
		return;
	close_list(c->pending);
	close_list(c->ready);
	close_list(c->links);
	bw_net_close(&c->listener);
	bw_net_close(&c->timer);
	bw_net_close(&c->epoll);
	explicit_bzero(c, sizeof(*c));
	free(c);
}

const char *bw_control_name(const struct bw_control *c)
{
	return c->self.name;
}

int bw_control_fd(const struct bw_control *c)
{
	return c->epoll.fd;
}

uint64_t bw_control_refused(const struct bw_control *c)
{
	return c->refused;
}

/* ---- those that have not proved themselves --------------------------------------------------- */

static void put(struct bw_link **list, struct bw_link *link)
{
	link->next = *list;
	link->at = list;
	if (*list)
		(*list)->at = &link->next;
	*list = link;
}

static void put_last(struct bw_control *c, struct bw_link *link)
{
	struct bw_link **end = &c->pending;

	while (*end) /* BW_PENDING_MAX at most */
		end = &(*end)->next;
	put(end, link);
	c->npending++;
}

static void unpend(struct bw_control *c, struct bw_link *link)
{
	bw_link_unlist(link);
	c->npending--;
}

/* Whoever wants to can have us refuse him: so one line in a while, with the number of others. */
static void log_refused(struct bw_control *c, const char *whom, const char *why)
{
	uint64_t now = bw_net_now();

	if (c->logged_ns && now - c->logged_ns < LOG_NS) {
		c->unlogged++;
		bw_log(BW_LOG_DEBUG, "%s: refused %s: %s", c->self.name, whom, why);
		return;
	}
	if (c->unlogged)
		bw_log(BW_LOG_WARN, "%s: refused %s: %s (and %llu since the last such line)",
		       c->self.name, whom, why, (unsigned long long)c->unlogged);
	else
		bw_log(BW_LOG_WARN, "%s: refused %s: %s", c->self.name, whom, why);
	c->logged_ns = now;
	c->unlogged = 0;
}

static void refuse(struct bw_control *c, struct bw_link *link, const struct bw_refusal *no)
{
	bw_link_refuse(link, no);
	c->refused++;
	log_refused(c, link->from, no->why.text);
	unpend(c, link);
	bw_link_close(link);
}

static void refuse_late(struct bw_control *c, struct bw_link *link)
{
	struct bw_refusal no = { .err = ETIMEDOUT, .code = BW_REFUSED_LATE };

	bw_reason_set(&no.why, "it did not prove itself within %u ms", PROVE_NS / 1000000);
	refuse(c, link, &no);
}

/* Makes room where the oldest has had its time: waiting for a second would let 64 connections that
 * say nothing keep everybody out. */
static bool make_room(struct bw_control *c)
{
	struct bw_refusal no = { .err = EAGAIN, .code = BW_REFUSED_BUSY };

	if (c->npending < BW_PENDING_MAX)
		return true;
	if (bw_net_now() - c->pending->since_ns < BUSY_NS)
		return false;
	bw_reason_set(&no.why, "%u connections have not proved themselves, and it is the oldest: "
		      "does somebody scan ports?", BW_PENDING_MAX);
	refuse(c, c->pending, &no);
	return true;
}

static void shake(struct bw_control *c, struct bw_link *link)
{
	struct bw_refusal no;
	int ret = bw_link_shake(link, &no);

	if (!ret)
		return;
	if (ret < 0) {
		refuse(c, link, &no);
		return;
	}
	unpend(c, link);
	put(&c->ready, link);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void listen_on(struct bw_control *c, bool on)
{
	struct epoll_event event = { .events = on ? EPOLLIN : 0, .data.ptr = &c->listener };

	epoll_ctl(c->epoll.fd, EPOLL_CTL_MOD, c->listener.fd, &event);
	c->paused = !on;
}

static void pause_accept(struct bw_control *c, bool full, uint64_t until_ns)
{
	c->full = full;
	c->pause_until_ns = until_ns;
	listen_on(c, false);
}

static void accept_failed(struct bw_control *c, int err)
{
	bw_log(BW_LOG_DEBUG, "%s: accept: %s: tries again in %u ms", c->self.name, strerror(err),
	       PAUSE_NS / 1000000);
	if (err == EMFILE || err == ENFILE)
		log_refused(c, "a connection, for now",
			    "too many open files: raise the limit (ulimit -n)");
	pause_accept(c, false, bw_net_now() + PAUSE_NS);
}

static int admit(struct bw_control *c, struct bw_link *link)
{
	struct bw_address from = { .bytes = sizeof(from.at) };
	int ret;

	if (getpeername(link->fd.fd, (struct sockaddr *)&from.at, &from.bytes))
		return -errno;
	bw_address_name(&from, link->from);
	memcpy(link->name, link->from, sizeof(link->name)); /* until it says its own */
	link->since_ns = bw_net_now();
	link->shake.self = &c->self;
	ret = bw_link_tune(link, c->liveness_ns);
	if (!ret)
		ret = watch(c, link->fd.fd, link, LINK_EVENTS);
	if (ret)
		return ret;
	link->control = c;
	put_last(c, link);
	return 0;
}

/* An error of the new connection's, not of accepting. */
static bool only_this_one(int err)
{
	return err == ECONNABORTED || err == EINTR || err == EPROTO || err == ENETDOWN ||
	       err == ENOPROTOOPT || err == EHOSTDOWN || err == ENONET || err == EHOSTUNREACH ||
	       err == EOPNOTSUPP || err == ENETUNREACH || err == EPERM;
}

static void accept_some(struct bw_control *c)
{
	for (unsigned i = 0; i < BW_PENDING_MAX; i++) {
		struct bw_sentence before;
		struct bw_link *link;
		int ret;

		if (!make_room(c)) {
			pause_accept(c, true, c->pending->since_ns + BUSY_NS);
			return;
		}
		bw_err_keep(&before);
		link = bw_link_new();
		bw_err_put_back(&before); /* step succeeds */
		ret = link ? bw_net_accept(&link->fd, c->listener.fd) : -ENOMEM;
		if (!ret) {
			if (admit(c, link))
				bw_link_close(link);
			continue;
		}
		bw_link_close(link);
		if (ret == -EAGAIN)
			return;
		if (!only_this_one(-ret)) {
			accept_failed(c, -ret);
			return;
		}
	}
}

/* ---- stepping -------------------------------------------------------------------------------- */

static void handle(struct bw_control *c, struct bw_link *link, uint32_t events)
{
	if (events & EPOLLOUT)
		bw_link_push(link);
	if (!link->proved)
		shake(c, link);
	else if (events & ~(uint32_t)EPOLLOUT)
		bw_link_pull(link);
}

/* Links go only by their own event here, so no event is of one that is gone. */
static bool handle_events(struct bw_control *c)
{
	struct epoll_event events[EVENTS];
	bool knocks = false;
	int n;

	for (unsigned i = 0; i < 16; i++) { /* whoever sends without end does not keep us */
		n = epoll_wait(c->epoll.fd, events, EVENTS, 0);
		for (int k = 0; k < n; k++) {
			void *what = events[k].data.ptr;
			uint64_t times;

			if (what == &c->listener) {
				knocks = true;
			} else if (what == &c->timer) {
				(void)!read(c->timer.fd, &times, sizeof(times));
				c->armed_ns = 0;
			} else {
				handle(c, what, events[k].events);
			}
		}
		if (n < EVENTS)
			break;
	}
	return knocks;
}

static void arm(struct bw_control *c)
{
	uint64_t next = c->pending ? c->pending->since_ns + PROVE_NS : 0;
	struct itimerspec at = { 0 };

	if (c->paused && (!next || c->pause_until_ns < next))
		next = c->pause_until_ns;
	if (next == c->armed_ns)
		return;
	at.it_value.tv_sec = (time_t)(next / 1000000000u);
	at.it_value.tv_nsec = (long)(next % 1000000000u);
	timerfd_settime(c->timer.fd, TFD_TIMER_ABSTIME, &at, NULL);
	c->armed_ns = next;
}

/* What has come is looked at before the time is: who calls this late does not blame the others. */
static void work(struct bw_control *c)
{
	bool knocks = handle_events(c);

	while (c->pending && bw_net_now() - c->pending->since_ns >= PROVE_NS)
		refuse_late(c, c->pending);
	if (c->paused && (bw_net_now() >= c->pause_until_ns ||
			  (c->full && c->npending < BW_PENDING_MAX))) {
		listen_on(c, true);
		knocks = true;
	}
	if (knocks)
		accept_some(c);
	arm(c);
}

int bw_control_step(struct bw_control *c, struct bw_link **out)
{
	struct bw_link *link;

	if (c->epoll.fd < 0)
		return bw_err(ESTALE, "step: it was made by the parent process before fork(): open "
			      "one in this process");
	if (!c->ready)
		work(c);
	link = c->ready;
	if (!link)
		return 0;
	bw_link_unlist(link);
	put(&c->links, link);
	*out = link;
	return 1;
}

int bw_control_watch(struct bw_control *c, struct bw_link *link)
{
	int ret;

	if (link->control)
		return bw_err(EALREADY, "watch %s: it is watched already: once is enough",
			      link->name);
	if (c->epoll.fd < 0 || (link->fd.fd < 0 && !link->dead[0]))
		return bw_err(ESTALE, "watch %s: made by the parent process before fork(): open "
			      "one in this process", link->name);
	link->wants_out = false;
	ret = link->dead[0] ? 0 : watch(c, link->fd.fd, link, LINK_EVENTS);
	if (ret)
		return bw_err(-ret, "watch %s: epoll: %s: raise fs.epoll.max_user_watches "
			      "(sysctl), or free memory", link->name, strerror(-ret));
	link->control = c;
	put(&c->links, link);
	bw_control_wants(link);
	return 0;
}
