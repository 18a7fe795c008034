/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/peer: connecting, and the end of it. The control connection says who is there; then each end
 * tells the other what messages to it have to carry (a random token), and the end that connected
 * greets on each rail, so that the network's own connections are made from one side and before they
 * are needed.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/fault.h"
#include "core/log.h"
#include "net/net_int.h"

#define PEERS_MAX 65535u
#define GREETING_NS 10000000000u /* an accepted peer has so long to greet */
#define DYING_NS 5000000u
#define GREETINGS 2u             /* receives on each rail beside those that credit is given for */

/* ---- making one ------------------------------------------------------------------------------ */

static int check_hello(const struct bw_ep *ep, const struct bw_link *link,
		       const struct bw_wire_hello *h, size_t bytes)
{
	const struct bw_rail_info *mine = &ep->rail[0].info;

	if (bytes != sizeof(*h) || h->version != BW_WIRE_VERSION || h->order != BW_WIRE_ORDER)
		return bw_err(EPROTO, "%s: it speaks another version: use the same one at both "
			"ends",
			      bw_link_name(link));
	if (!h->nrails || h->nrails > BW_WIRE_RAILS || !h->chunk)
		return bw_err(EPROTO, "%s: it says that it has %u rails", bw_link_name(link),
			      h->nrails);
	for (unsigned i = 0; i < h->nrails; i++)
		if (h->rail[i].bytes > sizeof(h->rail[i].at))
			return bw_err(EPROTO, "%s: it has an address of %u bytes",
				      bw_link_name(link), h->rail[i].bytes);
	if (strncmp(h->network, mine->network, sizeof(h->network)))
		return bw_err(ENOTSUP, "%s: it uses network %.31s, and we use %s: name the same "
			      "one at both ends", bw_link_name(link), h->network, mine->network);
	return 0;
}

static int take_index(struct bw_ep *ep, struct bw_peer *p)
{
	unsigned i = 0, n = ep->nby_index ? 2 * ep->nby_index : 16;
	uint64_t random = 0;
	struct bw_peer **list;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return bw_err(EIO, "the system gives no random bytes: %s", strerror(errno));
	while (i < ep->nby_index && ep->by_index[i])
		i++;
	if (i == PEERS_MAX)
		return bw_err(ENOSPC, "%u peers are connected: close some", PEERS_MAX);
	if (i == ep->nby_index) {
		list = bw_alloc_array(n, sizeof(struct bw_peer *));
		if (!list)
			return bw_err(ENOMEM, "no memory for a peer: free some");
		if (i)
			memcpy(list, ep->by_index, i * sizeof(struct bw_peer *));
		free(ep->by_index);
		ep->by_index = list;
		ep->nby_index = n;
	}
	ep->by_index[i] = p;
	p->index = i;
	p->token = (random & ~(uint64_t)0xffff) | i;
	return 0;
}

struct bw_peer *bw_peer_of(struct bw_ep *ep, uint64_t token)
{
	unsigned i = token & 0xffff;
	struct bw_peer *p = i < ep->nby_index ? ep->by_index[i] : NULL;

	return p && p->token == token ? p : NULL;
}

static unsigned receives(unsigned rail)
{
	return (rail ? 0 : BW_WIRE_CREDITS) + GREETINGS;
}

static void disconnect(struct bw_peer *p)
{
	for (unsigned i = 0; i < p->nrails; i++) {
		struct bw_netrail *r = &p->ep->rail[i];

		bw_rail_lock(r);
		BW_CALL(r, disconnect, p->rail[i]);
		bw_rail_unlock(r);
		r->spare += receives(i);
	}
}

static int connect_rails(struct bw_peer *p)
{
	struct bw_ep *ep = p->ep;
	unsigned want = p->hello.nrails < ep->nrails ? p->hello.nrails : ep->nrails;
	int ret = 0;

	while (p->nrails < want && !ret) {
		struct bw_netrail *r = &ep->rail[p->nrails];

		ret = bw_rx_add(ep, r, receives(p->nrails));
		if (ret)
			return ret;
		bw_rail_lock(r);
		ret = BW_CALL(r, connect, p->hello.rail[p->nrails].at,
			      p->hello.rail[p->nrails].bytes, &p->rail[p->nrails]);
		bw_rail_unlock(r);
		if (ret)
			r->spare += receives(p->nrails);
		else
			p->nrails++;
	}
	return ret;
}

static void fill(struct bw_peer *p, struct bw_ep *ep, struct bw_link *link, bool connects)
{
	p->ep = ep;
	p->link = link;
	p->connects = connects;
	p->since_ns = bw_now_ns();
	p->eager = p->hello.eager < ep->options.eager ? p->hello.eager :
		   (unsigned)ep->options.eager;
	p->chunk = p->hello.chunk < ep->options.chunk ? p->hello.chunk : ep->options.chunk;
	p->hello.network[sizeof(p->hello.network) - 1] = 0;
	p->hello.provider[sizeof(p->hello.provider) - 1] = 0;
	p->hello.host[sizeof(p->hello.host) - 1] = 0;
	snprintf(p->name, sizeof(p->name), "%s", bw_link_name(link));
	p->credits = BW_WIRE_CREDITS;
	p->say_tail = &p->say;
	bw_queue_init(&p->replies);
	bw_queue_init(&p->ops);
	bw_queue_init(&p->sends);
}

static int say_token(struct bw_peer *p)
{
	struct bw_wire_note note = { .token = p->token, .nrails = p->nrails };

	return bw_link_send(p->link, BW_NOTE_TOKEN, &note, sizeof(note));
}

/* With ep->lock held. On failure @link stays the caller's. */
static int peer_new(struct bw_ep *ep, struct bw_link *link, bool connects, struct bw_peer **out)
{
	struct bw_peer *p = bw_alloc(sizeof(*p));
	size_t bytes;
	const void *hello = bw_link_hello(link, &bytes);
	int ret;

	if (!p)
		return bw_err(ENOMEM, "no memory for a peer: free some");
	memcpy(&p->hello, hello, bytes < sizeof(p->hello) ? bytes : sizeof(p->hello));
	ret = check_hello(ep, link, &p->hello, bytes);
	fill(p, ep, link, connects);
	if (!ret)
		ret = take_index(ep, p);
	if (!ret) {
		ret = connect_rails(p);
		if (!ret && connects)
			ret = bw_control_watch(ep->control, link);
		if (!ret)
			ret = say_token(p);
		if (ret) {
			disconnect(p);
			ep->by_index[p->index] = NULL;
		}
	}
	if (ret) {
		free(p);
		return ret;
	}
	p->next = ep->peers;
	if (p->next)
		p->next->prev = p;
	ep->peers = p;
	atomic_fetch_add(&ep->npeers, 1);
	bw_ep_wake(ep); /* who sleeps because there was none */
	*out = p;
	return 0;
}

/* ---- greeting -------------------------------------------------------------------------------- */

static uint32_t all_rails(const struct bw_peer *p)
{
	return (1u << p->nrails) - 1;
}

static void greet(struct bw_peer *p)
{
	for (unsigned i = 0; i < p->nrails && !p->failed; i++)
		if (p->hello_todo >> i & 1 && !bw_peer_greet(p, i))
			p->hello_todo &= ~(1u << i);
	if (p->hello_todo && !p->failed)
		bw_ep_attend(p->ep); /* the rail does not take it yet, and nothing tells when */
	if (p->hello_todo || p->failed || p->up || p->hello_seen != all_rails(p))
		return;
	p->up = true;
	bw_peer_push(p);
	bw_ep_wake(p->ep);
}

bool bw_peer_greet_on(struct bw_peer *p)
{
	if (p->hello_todo && p->their_token && !p->failed)
		greet(p);
	return p->hello_todo && p->their_token && !p->failed;
}

void bw_peer_greeted(struct bw_peer *p, unsigned rail, bool welcome)
{
	if (welcome != p->connects || rail >= p->nrails || p->hello_seen >> rail & 1)
		return;
	p->hello_seen |= 1u << rail;
	if (!p->connects)
		p->hello_todo |= 1u << rail;
	if (p->their_token) /* a rail may be faster than the control connection */
		greet(p);
}

/* What it sent before on the rails may say that transfers have ended well: that is taken first. */
static void die(struct bw_peer *p, const char *why)
{
	if (p->dying_since)
		return;
	p->dying_since = bw_now_ns();
	snprintf(p->failure, sizeof(p->failure), "%s", why);
}

static void on_note(struct bw_peer *p, uint16_t kind, const unsigned char *data, size_t bytes)
{
	struct bw_wire_note note;

	if (kind == BW_NOTE_BYE) {
		die(p, "it disconnected");
		return;
	}
	if (kind != BW_NOTE_TOKEN || bytes != sizeof(note) || p->their_token)
		return;
	memcpy(&note, data, sizeof(note));
	p->their_token = note.token;
	if (note.nrails != p->nrails || !note.token)
		bw_peer_fail(p, EPROTO, "it counts %u rails, and we count %u", note.nrails,
			     p->nrails);
	else if (p->connects)
		p->hello_todo = all_rails(p);
}

static void look_at(struct bw_peer *p)
{
	unsigned char data[BW_NOTE_MAX];
	char why[sizeof(p->failure)];
	uint16_t kind;
	int n;

	while (!p->failed && (n = bw_link_recv(p->link, &kind, data, sizeof(data))) > 0)
		on_note(p, kind, data, (size_t)n);
	if (!p->failed && bw_link_dead(p->link))
		die(p, bw_link_dead(p->link));
	if (!p->failed && p->dying_since && bw_now_ns() - p->dying_since > DYING_NS) {
		snprintf(why, sizeof(why), "%s", p->failure);
		bw_peer_fail(p, EIO, "%s", why);
	}
	if (p->failed || p->up)
		return;
	if (p->their_token)
		greet(p);
	if (!p->up && !p->failed && bw_now_ns() - p->since_ns > GREETING_NS)
		bw_peer_fail(p, ETIMEDOUT, "it did not greet within 10 s");
}

void bw_peers_look(struct bw_ep *ep)
{
	struct bw_peer *p, *next;
	struct bw_link *link;

	while (bw_control_step(ep->control, &link) == 1) {
		if (ep->shut || peer_new(ep, link, false, &p)) {
			bw_log(BW_LOG_WARN, "refused a peer: %s", bw_err_text());
			bw_link_close(link);
		}
	}
	for (p = ep->peers; p; p = next) {
		next = p->next;
		if (!p->failed)
			look_at(p);
		if (p->failed && !p->connects && !p->given) {
			p->refs = 1; /* nobody has seen it */
			bw_peer_unref(p);
		}
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What the network has of it stays the network's. */
static void lose_messages(struct bw_peer *p)
{
	for (struct bw_slab *s = p->ep->slabs; s; s = s->next)
		for (unsigned i = 0; s->tx && i < s->n; i++) {
			struct bw_tx *tx = (struct bw_tx *)s->heads + i;

			if (tx->peer == p)
				tx->peer = NULL;
		}
}

static void drop_says(struct bw_peer *p)
{
	while (p->say) {
		struct bw_say *next = p->say->next;

		free(p->say);
		p->say = next;
	}
	p->say_tail = &p->say;
}

/* At once, not one by one as they end. */
static void drop_queue(struct bw_queue *q)
{
	for (struct bw_flow *f = q->head, *next; f; f = next) {
		next = f->next_tx;
		f->queued = false;
		f->tx = 0;
	}
	bw_queue_init(q);
}

static void end_flows(struct bw_peer *p, int err)
{
	char text[sizeof(p->failure)];

	memcpy(text, p->failure, sizeof(text));
	while (p->flows)
		bw_flow_end(p->flows, p->flows->state == BW_FLOW_LEAVING && p->flows->error ?
			    p->flows->error : err == ECANCELED ? err : EIO, text);
}

void bw_peer_fail(struct bw_peer *p, int err, const char *fmt, ...)
{
	unsigned char bye = 0;
	struct bw_sentence kept;
	va_list ap;

	if (p->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(p->failure, sizeof(p->failure), fmt, ap);
	va_end(ap);
	bw_err_keep(&kept);
	if (err == ECANCELED)
		bw_peer_say_acks(p);
	p->failed = err;
	p->stuck = false;
	p->ep->by_index[p->index] = NULL;
	if (err != ECANCELED) {
		bw_n_count(p->ep, BW_N_LOST, 1);
		bw_log(BW_LOG_INFO, "peer %s failed: %s", p->name, p->failure);
	}
	disconnect(p);
	lose_messages(p);
	drop_queue(&p->replies);
	drop_queue(&p->ops);
	drop_queue(&p->sends);
	end_flows(p, err);
	drop_says(p);
	bw_match_free(p);
	if (!bw_link_dead(p->link))
		bw_link_send(p->link, BW_NOTE_BYE, &bye, 1);
	bw_link_close(p->link);
	p->link = NULL;
	bw_ep_wake(p->ep);
	bw_err_put_back(&kept);
}

void bw_peer_unref(struct bw_peer *p)
{
	if (--p->refs)
		return;
	bw_peer_fail(p, ECANCELED, "it was closed");
	if (p->prev)
		p->prev->next = p->next;
	else
		p->ep->peers = p->next;
	if (p->next)
		p->next->prev = p->prev;
	atomic_fetch_sub(&p->ep->npeers, 1);
	free(p);
}

void bw_peer_close(struct bw_peer *p)
{
	struct bw_ep *ep = p->ep;

	bw_ep_lock(ep);
	bw_peer_fail(p, ECANCELED, "it was closed");
	p->closed = true;
	bw_peer_unref(p);
	bw_ep_unlock(ep);
}

/* ---- connect, accept ------------------------------------------------------------------------- */

static uint64_t until(uint64_t timeout_ns)
{
	uint64_t now = bw_now_ns();

	return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

static int wait_up(struct bw_peer *p, uint64_t until_ns)
{
	struct bw_ep *ep = p->ep;
	struct bw_idle idle = { 0 };
	int failed;

	while (!p->up && !(failed = p->failed)) {
		if (bw_now_ns() >= until_ns)
			return bw_err(ETIMEDOUT, "%s does not answer on network %s: does it make "
				      "progress (accept, poll, wait, or threads)?", p->name,
				      ep->rail[0].info.network);
		atomic_store(&ep->next_look, 0);
		bw_ep_step(ep, &idle, until_ns);
	}
	if (p->up)
		return 0;
	return bw_err(failed == EPROTO ? EPROTO : failed == ETIMEDOUT ? ETIMEDOUT : ECONNREFUSED,
		      "%s: %s", p->name, p->failure);
}

int bw_peer_connect(struct bw_ep *ep, const char *name, uint64_t timeout_ns, struct bw_peer **out)
{
	uint64_t until_ns = until(timeout_ns);
	struct bw_link *link;
	struct bw_peer *p;
	int ret = bw_control_connect(ep->control, name, timeout_ns, &link);

	if (ret)
		return ret;
	bw_ep_lock(ep);
	ret = peer_new(ep, link, true, &p);
	if (ret)
		bw_link_close(link);
	else
		p->refs = 1;
	bw_ep_unlock(ep);
	if (ret)
		return ret;
	ret = wait_up(p, until_ns);
	if (ret)
		bw_peer_close(p);
	else
		*out = p;
	return ret;
}

static struct bw_peer *next_accepted(struct bw_ep *ep)
{
	struct bw_peer *found = NULL;

	for (struct bw_peer *p = ep->peers; p; p = p->next)
		/* what the caller does next may be long without progress: the greeting is out */
		if (!p->connects && p->up && !p->given && !p->failed && !p->unsent)
			found = p; /* the oldest is last */
	return found;
}

int bw_peer_accept(struct bw_ep *ep, uint64_t timeout_ns, struct bw_peer **out)
{
	uint64_t until_ns = until(timeout_ns);
	struct bw_idle idle = { 0 };
	struct bw_peer *p;

	for (;;) {
		bw_ep_lock(ep);
		bw_peers_look(ep);
		p = next_accepted(ep);
		if (p) {
			p->given = true;
			p->refs = 1;
		}
		bw_ep_unlock(ep);
		if (p) {
			*out = p;
			return 0;
		}
		bw_ep_step(ep, &idle, until_ns);
		if (bw_now_ns() >= until_ns)
			return timeout_ns ? bw_err(ETIMEDOUT, "nobody has connected") :
			       bw_err_often(EAGAIN, "nobody has connected: try again, or give "
				"time");
	}
}

void bw_peer_view(struct bw_peer *p, struct bw_peer_view *view)
{
	bw_ep_lock(p->ep);
	view->name = p->name;
	view->host = p->hello.host;
	view->network = p->ep->rail[0].info.network;
	view->provider = p->ep->rail[0].info.provider;
	view->pid = p->hello.pid;
	view->rails = p->nrails;
	view->alive = !p->failed;
	memcpy(view->failure, p->failed ? p->failure : "", p->failed ? sizeof(p->failure) : 1);
	bw_ep_unlock(p->ep);
}
