/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/send: messages to a peer. Those that cannot go now, for want of credit, of a buffer or
 * because the network puts them off, wait in queues: answers before questions, so that what is
 * under way comes to its end; sends in the order of posting.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/probe.h"
#include "net/net_int.h"

void bw_queue_init(struct bw_queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
}

/* ---- one message --------------------------------------------------------------------------- */

static int tx_get(struct bw_ep *ep, unsigned rail, struct bw_tx **out)
{
	struct bw_netrail *r = &ep->rail[rail];

	if (!r->tx && bw_tx_add(ep, r))
		return -EAGAIN;
	*out = r->tx;
	r->tx = (*out)->next;
	return 0;
}

static void tx_put(struct bw_tx *tx)
{
	tx->next = tx->rail->tx;
	tx->rail->tx = tx;
}

/* @tx holds a message of @bytes, which it takes over. -EAGAIN: later. */
static int send_on(struct bw_peer *p, struct bw_tx *tx, size_t bytes)
{
	struct bw_netrail *r = tx->rail;
	bool copied = bytes <= r->info.inject_bytes;
	int ret;

	bw_rail_lock(r);
	ret = BW_CALL(r, send, p->rail[r->index], tx->at, bytes, tx->desc, tx);
	bw_rail_unlock(r);
	if (!ret && !copied) {
		tx->peer = p;
		p->unsent++;
		bw_ep_news(p->ep); /* it may be gone already */
		return 0;
	}
	tx_put(tx);
	if (ret == -EAGAIN)
		bw_n_count(p->ep, BW_N_AGAIN, 1);
	else if (ret)
		bw_peer_fail(p, EIO, "send over %s: %s (%s)", r->info.network, bw_err_text(),
			     strerror(-ret));
	return ret;
}

/* Credit comes back with every message. */
static int send_message(struct bw_peer *p, struct bw_tx *tx, size_t bytes)
{
	struct bw_wire *head = (struct bw_wire *)tx->at;
	unsigned owed = p->owed;
	int ret;

	head->token = p->their_token;
	head->credits = (uint16_t)owed;
	ret = send_on(p, tx, bytes);
	if (!ret) {
		p->owed -= owed;
		p->credits--;
	}
	return ret;
}

int bw_peer_greet(struct bw_peer *p, unsigned rail)
{
	struct bw_wire head = { .kind = p->connects ? BW_WIRE_HELLO : BW_WIRE_WELCOME, .n = rail,
				.token = p->their_token };
	struct bw_tx *tx;
	int ret = tx_get(p->ep, rail, &tx);

	if (ret)
		return ret;
	memcpy(tx->at, &head, sizeof(head));
	return send_on(p, tx, sizeof(head));
}

/* ---- ends that are told --------------------------------------------------------------------- */

/*
 * Ends that are told: at once, or with the next message where the peer was answered so soon each of
 * the last times that this saves a message. They do not wait longer than until nothing comes, see
 * tell_held() in proxy.c.
 */
#define SOON_TIMES 8u

static void ask_with_ack(struct bw_flow *f, struct bw_wire *head)
{
	struct bw_peer *p = f->peer;
	uint64_t now = atomic_load_explicit(&p->ep->idle_turns, memory_order_relaxed);

	if (p->nacks)
		head->dst = p->acks[p->nacks - 1];
	else if (p->acked_at != UINT64_MAX && now - p->acked_at <= bw_ack_turns(p->ep))
		p->replies_soon++;
	else
		p->replies_soon = 0;
	p->acked_at = UINT64_MAX;
}

void bw_peer_say_acks(struct bw_peer *p)
{
	while (p->nacks) {
		struct bw_wire head = { .kind = BW_WIRE_DONE, .dst = p->acks[--p->nacks] };

		bw_peer_say(p, &head);
	}
}

void bw_peer_ack(struct bw_peer *p, uint32_t id)
{
	struct bw_wire head = { .kind = BW_WIRE_DONE, .dst = id };
	struct bw_ep *ep = p->ep;

	if (p->replies_soon >= SOON_TIMES && p->nacks < BW_NET_ACKS) {
		p->acks[p->nacks++] = id;
		p->held_at = atomic_load_explicit(&ep->idle_turns, memory_order_relaxed);
		atomic_store_explicit(&ep->holding, true, memory_order_relaxed);
		bw_ep_news(ep);
		return;
	}
	bw_peer_say(p, &head);
	p->acked_at = atomic_load_explicit(&ep->idle_turns, memory_order_relaxed);
}

/* ---- messages of flows ---------------------------------------------------------------------- */

static size_t put_parts(struct bw_flow *f, unsigned char *at, size_t room)
{
	size_t n = room / sizeof(f->parts[0]);

	if (n > f->n - f->nparts_done)
		n = f->n - f->nparts_done;
	memcpy(at, f->parts + f->nparts_done, n * sizeof(f->parts[0]));
	return n;
}

/* The bytes of an eager message. */
static void gather(struct bw_flow *f, unsigned char *at)
{
	bw_region_before_load(f->region);
	for (size_t i = 0; i < f->n; at += f->parts[i++].bytes)
		bw_region_load(f->region, at, f->parts[i].from, f->parts[i].bytes);
}

/* PUT, SEND, GET. Returns its length; *@parts: how many pieces it carries. */
static size_t build_ask(struct bw_flow *f, unsigned char *at, size_t *parts)
{
	struct bw_xfer *t = f->xfer;
	struct bw_wire *head = (struct bw_wire *)at;
	size_t len = sizeof(*head), room = sizeof(struct bw_wire_grant) + f->peer->eager, list;

	memcpy(head, &t->head, sizeof(*head));
	head->src = f->id;
	head->flags = (uint8_t)(t->head.flags | (f->eager ? BW_WIRE_EAGER : 0));
	head->n = (uint32_t)f->n;
	ask_with_ack(f, head);
	if (head->flags & BW_WIRE_SIGNAL) {
		memcpy(at + len, &t->signal, sizeof(t->signal));
		len += sizeof(t->signal);
	}
	if (f->op == BW_GET && !f->eager) {
		bw_sink_grant(f, (struct bw_wire_grant *)(at + len));
		len += sizeof(struct bw_wire_grant);
		room -= sizeof(struct bw_wire_grant);
	}
	*parts = f->n;
	if (f->n > 1 && f->op != BW_SEND) {
		list = f->n * sizeof(f->parts[0]);
		if (f->op == BW_PUT && f->eager) {
			*parts = put_parts(f, at + len, list);
			len += list;
		} else if (list <= room) {
			*parts = put_parts(f, at + len, room);
			len += list;
		} else {
			head->flags |= BW_WIRE_MORE;
			*parts = 0;
		}
	}
	if (f->eager && f->op != BW_GET) {
		gather(f, at + len);
		len += f->bytes;
	}
	return len;
}

static size_t build_parts(struct bw_flow *f, unsigned char *at, size_t *parts)
{
	struct bw_wire *head = (struct bw_wire *)at;

	*head = (struct bw_wire){ .kind = BW_WIRE_PARTS, .src = f->id, .dst = f->other };
	*parts = put_parts(f, at + sizeof(*head), f->peer->eager);
	head->n = (uint32_t)*parts;
	return sizeof(*head) + *parts * sizeof(f->parts[0]);
}

static size_t build_grant(struct bw_flow *f, unsigned char *at)
{
	struct bw_wire *head = (struct bw_wire *)at;

	*head = (struct bw_wire){ .kind = BW_WIRE_GRANT, .src = f->id, .dst = f->other,
				  .n = (uint32_t)f->n };
	bw_sink_grant(f, (struct bw_wire_grant *)(at + sizeof(*head)));
	return sizeof(*head) + sizeof(struct bw_wire_grant);
}

static size_t build_data(struct bw_flow *f, unsigned char *at)
{
	struct bw_wire *head = (struct bw_wire *)at;

	*head = (struct bw_wire){ .kind = BW_WIRE_DATA, .src = f->id, .dst = f->other,
				  .b = f->bytes };
	gather(f, at + sizeof(*head));
	return sizeof(*head) + f->bytes;
}

static void count_asked(struct bw_flow *f)
{
	f->counted = true;
	if (f->op != BW_SEND) {
		f->peer->ops_out++;
		return;
	}
	f->peer->sends_out++;
	if (f->eager)
		f->peer->eager_out += f->bytes;
}

/* It has gone out. May end the flow. */
static void sent(struct bw_flow *f, unsigned what, size_t parts)
{
	struct bw_peer *p = f->peer;
	struct bw_xfer *t = f->xfer;

	if (what == BW_TX_ASK || what == BW_TX_PARTS)
		f->nparts_done += parts;
	if (what != BW_TX_PARTS || f->nparts_done >= f->n)
		f->tx &= (uint8_t)~what;
	if (what == BW_TX_ASK) {
		if (f->op != BW_SEND && f->nparts_done < f->n)
			f->tx |= BW_TX_PARTS;
		f->state = f->op == BW_GET && !f->eager ? BW_FLOW_MOVING : BW_FLOW_ASKED;
		count_asked(f);
		if (f->eager) {
			bw_n_count(p->ep, BW_N_EAGER_OUT, 1);
			if (f->op != BW_GET) {
				bw_n_count(p->ep, BW_N_BYTES_OUT, f->bytes);
				bw_xfer_reach(t, BW_LOCAL);
			}
		}
	} else if (what == BW_TX_GRANT) {
		f->state = BW_FLOW_MOVING;
		if (f->op == BW_RECV && f->n > 1 && f->bulk && !f->bulk->ring)
			f->tx |= BW_TX_PARTS;
	} else if (what == BW_TX_DATA) {
		bw_n_count(p->ep, BW_N_EAGER_OUT, 1);
		bw_n_count(p->ep, BW_N_BYTES_OUT, f->bytes);
		bw_flow_end(f, 0, NULL);
	}
}

/* Sends the next message of the flow. -EAGAIN; else it was sent, or the flow has ended. */
static int flow_message(struct bw_flow *f)
{
	unsigned what = f->tx & -f->tx;
	struct bw_peer *p = f->peer;
	size_t parts = 0, len;
	struct bw_tx *tx;
	bool acks;
	int ret = tx_get(p->ep, 0, &tx);

	if (ret)
		return ret;
	len = what == BW_TX_ASK ? build_ask(f, tx->at, &parts) :
	      what == BW_TX_PARTS ? build_parts(f, tx->at, &parts) :
	      what == BW_TX_GRANT ? build_grant(f, tx->at) : build_data(f, tx->at);
	acks = what == BW_TX_ASK && ((struct bw_wire *)tx->at)->dst;
	ret = send_message(p, tx, len);
	if (ret)
		return ret;
	p->nacks -= acks;
	BW_PROBE3(net_message, f, what, len);
	sent(f, what, parts);
	return 0;
}

/* ---- queues -------------------------------------------------------------------------------- */

static struct bw_queue *queue_of(const struct bw_flow *f)
{
	if (!(f->tx & BW_TX_ASK))
		return &f->peer->replies;
	return f->op == BW_SEND ? &f->peer->sends : &f->peer->ops;
}

static void enqueue(struct bw_flow *f)
{
	struct bw_queue *q = queue_of(f);

	f->in = q;
	f->queued = true;
	f->next_tx = NULL;
	*q->tail = f;
	q->tail = &f->next_tx;
}

static void dequeue(struct bw_queue *q)
{
	struct bw_flow *f = q->head;

	f->queued = false;
	q->head = f->next_tx;
	if (!q->head)
		q->tail = &q->head;
}

void bw_flow_unsend(struct bw_flow *f)
{
	struct bw_queue *q;
	struct bw_flow **at;

	f->tx = 0;
	if (!f->queued)
		return;
	f->queued = false;
	q = f->in;
	for (at = &q->head; *at && *at != f; at = &(*at)->next_tx)
		;
	if (!*at)
		return; /* it is being sent */
	*at = f->next_tx;
	if (!*at)
		q->tail = at;
}

/* Is it its turn, of those that begin something? How many may be under way is bounded. */
static bool may_ask(struct bw_flow *f)
{
	struct bw_peer *p = f->peer;

	if (!(f->tx & BW_TX_ASK))
		return true;
	if (f->op == BW_SEND) {
		if (p->sends_out >= BW_WIRE_SENDS)
			return false;
		/* so that what nobody receives stays with us */
		f->eager = f->xfer->fits && p->eager_out + f->bytes <= BW_NET_EAGER_HELD;
		f->xfer->was_eager = f->eager;
		return true;
	}
	return p->ops_out < BW_WIRE_OPS;
}

/* false: no more can be sent now. */
static bool push_queue(struct bw_peer *p, struct bw_queue *q)
{
	while (q->head && !p->failed) {
		struct bw_flow *f = q->head;

		if (p->credits < 2)
			return false;
		if (!may_ask(f))
			return true;
		dequeue(q);
		f->queued = true; /* what it does meanwhile does not queue it again */
		if (flow_message(f) == -EAGAIN) {
			f->next_tx = q->head; /* in front again */
			if (!q->head)
				q->tail = &f->next_tx;
			q->head = f;
			return false;
		}
		if (f->queued) {
			f->queued = false;
			if (f->tx && f->listed)
				enqueue(f);
		}
	}
	return true;
}

/* The last credit is for giving credit back. */
static bool push_says(struct bw_peer *p)
{
	while (p->say && !p->failed) {
		struct bw_say *s = p->say;
		struct bw_tx *tx;

		if (p->credits < 2 || tx_get(p->ep, 0, &tx))
			return false;
		memcpy(tx->at, &s->head, sizeof(s->head));
		if (send_message(p, tx, sizeof(s->head)))
			return false;
		p->say = s->next;
		if (!p->say)
			p->say_tail = &p->say;
		free(s);
	}
	return true;
}

static bool push_credit(struct bw_peer *p)
{
	struct bw_wire head = { .kind = BW_WIRE_CREDIT };
	struct bw_tx *tx;

	if (p->owed < BW_WIRE_CREDITS / 2 || !p->credits)
		return true;
	if (tx_get(p->ep, 0, &tx))
		return false;
	memcpy(tx->at, &head, sizeof(head));
	return !send_message(p, tx, sizeof(head));
}

void bw_peer_push(struct bw_peer *p)
{
	if (!p->up || p->failed)
		return;
	p->stuck = !push_says(p) || !push_queue(p, &p->replies) || !push_queue(p, &p->ops) ||
		   !push_queue(p, &p->replies) || /* what those have to say besides */
		   !push_queue(p, &p->sends) || !push_credit(p);
	if (p->stuck && p->credits < 2)
		p->stuck = !push_credit(p); /* a message of theirs will set it free */
	if (p->stuck)
		bw_ep_attend(p->ep);
}

void bw_flow_send(struct bw_flow *f, unsigned tx)
{
	f->tx |= (uint8_t)tx;
	if (f->queued)
		return;
	enqueue(f);
	bw_peer_push(f->peer);
}

void bw_peer_say(struct bw_peer *p, const struct bw_wire *head)
{
	struct bw_say *s;
	struct bw_tx *tx;

	if (p->failed)
		return;
	if (p->up && !p->say && p->credits >= 2 && !tx_get(p->ep, 0, &tx)) {
		memcpy(tx->at, head, sizeof(*head));
		if (send_message(p, tx, sizeof(*head)) != -EAGAIN)
			return;
	}
	s = bw_alloc(sizeof(*s));
	if (!s) {
		bw_peer_fail(p, ENOMEM, "no memory for a message: free some");
		return;
	}
	s->head = *head;
	*p->say_tail = s;
	p->say_tail = &s->next;
	p->stuck = true;
	bw_ep_attend(p->ep);
}
