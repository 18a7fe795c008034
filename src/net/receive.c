/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/receive: what comes from peers. Nothing in a message is believed: lengths are checked against
 * what came, ids against the peer's own flows, keys and ranges against the regions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "net/net_int.h"

void bw_message_wrong(struct bw_peer *p, const char *what)
{
	bw_peer_fail(p, EPROTO, "it sent %s: both ends need the same version", what);
}

const void *bw_message_take(struct bw_message *m, uint64_t bytes)
{
	const void *at = m->at;

	if (bytes > m->left)
		return NULL;
	m->at += bytes;
	m->left -= bytes;
	return at;
}

/* ---- flows under way ------------------------------------------------------------------------- */

static void on_send(struct bw_peer *p, struct bw_message *m)
{
	const unsigned char *data = m->at;

	if (m->head->flags & BW_WIRE_EAGER && !bw_message_take(m, m->head->b)) {
		bw_message_wrong(p, "a message that is too short");
		return;
	}
	bw_match_message(p, m->head, data);
}

static void on_receives_parts(struct bw_flow *f, struct bw_message *m)
{
	struct bw_bulk *b = f->bulk;
	const struct bw_wire *h = m->head;
	const void *parts = bw_message_take(m, (uint64_t)h->n * sizeof(b->to[0]));
	struct bw_wire_grant grant;

	if (!b || !parts || !b->to || h->n > b->nto - b->got_to) {
		bw_message_wrong(f->peer, "pieces that nobody asked for");
		return;
	}
	memcpy(b->to + b->got_to, parts, h->n * sizeof(b->to[0]));
	b->got_to += h->n;
	if (b->got_to < b->nto || f->state != BW_FLOW_ASKED)
		return;
	grant = b->grant;
	bw_source_granted(f, &grant);
}

static void on_parts(struct bw_peer *p, struct bw_message *m)
{
	const struct bw_wire *h = m->head;
	struct bw_flow *f = h->dst ? bw_flow_find(p, h->dst) : NULL;
	const void *parts;

	if (h->dst) { /* a receive's, for our send; late where there is none */
		if (f && f->side == BW_SOURCE && f->op == BW_SEND)
			on_receives_parts(f, m);
		return;
	}
	for (f = p->flows; f && (f->other != h->src || f->xfer); f = f->next)
		;
	if (!f || f->state != BW_FLOW_PARTS)
		return; /* it was refused */
	parts = bw_message_take(m, (uint64_t)h->n * sizeof(f->one));
	if (!parts || h->n > f->n - f->nparts_done) {
		bw_message_wrong(p, "pieces that nobody asked for");
		return;
	}
	memcpy(f->parts + f->nparts_done, parts, h->n * sizeof(f->one));
	f->nparts_done += h->n;
	if (f->nparts_done == f->n)
		bw_serve_begin(f);
}

static void on_grant(struct bw_flow *f, struct bw_message *m)
{
	const struct bw_wire *h = m->head;
	const struct bw_wire_grant *grant = bw_message_take(m, sizeof(*grant));
	struct bw_bulk *b;

	if (f->side != BW_SOURCE || !f->xfer || f->state != BW_FLOW_ASKED || f->bulk || f->eager)
		return;
	f->other = h->src;
	if (!grant || !h->n || h->n > 65536) {
		bw_message_wrong(f->peer, "a grant that is none");
		return;
	}
	if (bw_flow_bulk(f)) {
		bw_flow_leave(f, ENOMEM);
		return;
	}
	b = f->bulk;
	b->grant = *grant;
	if (f->op == BW_SEND && grant->mode == BW_GRANT_DIRECT) {
		b->nto = h->n;
		b->to = bw_alloc_array(h->n, sizeof(b->to[0]));
		if (!b->to) {
			bw_flow_leave(f, ENOMEM);
			return;
		}
		if (h->n > 1)
			return; /* its pieces are next */
		b->got_to = 1;
		b->to[0] = (struct bw_wire_part){ .to = grant->to, .bytes = f->bytes };
	}
	bw_source_granted(f, grant);
}

static void on_data(struct bw_flow *f, struct bw_message *m)
{
	const unsigned char *data = m->at;

	if (f->op != BW_GET || f->side != BW_SINK || !f->eager || f->state != BW_FLOW_ASKED)
		return;
	if (m->head->b != f->bytes || !bw_message_take(m, f->bytes)) {
		bw_message_wrong(f->peer, "other bytes than were asked for");
		return;
	}
	bw_sink_eager(f, data);
	bw_flow_end(f, 0, NULL);
}

static void on_done(struct bw_flow *f, const struct bw_wire *h)
{
	int error = h->error < 0 && h->error > -4096 ? -h->error : h->error ? EPROTO : 0;

	if (f->side == BW_SINK) { /* a get that was refused: nothing was written */
		if (f->xfer && f->op == BW_GET && error)
			bw_flow_end(f, error, NULL);
		return;
	}
	if (!f->xfer)
		return;
	f->answered = true;
	if (f->state == BW_FLOW_LEAVING)
		return; /* ends when its writes have */
	if (error) {
		bw_flow_leave(f, error);
	} else if (f->eager || f->state == BW_FLOW_WRITTEN) {
		bw_flow_end(f, 0, NULL);
	}
}

static void on_cancel(struct bw_peer *p, const struct bw_wire *h)
{
	struct bw_flow *f = h->dst ? bw_flow_find(p, h->dst) :
				     bw_flow_of_other(p, h->src, BW_SINK);
	int error = h->error < 0 && h->error > -4096 ? -h->error : ECANCELED;

	if (!f && bw_match_forget(p, h->src))
		return;
	if (!f || f->side != BW_SINK)
		return;
	if (f->xfer && f->state != BW_FLOW_LEAVING)
		bw_xfer_why(f->xfer, "the other end gave up");
	if (!f->bulk) {
		f->other = 0; /* it wants no answer */
		bw_flow_end(f, error, NULL);
		return;
	}
	f->bulk->abandoned = true;
	if (f->state != BW_FLOW_LEAVING)
		bw_flow_leave(f, error);
	if (f->listed && f->bulk && f->state == BW_FLOW_LEAVING)
		bw_sink_expect(f, h->n);
}

/* The source of a get whose sink does not know our id. */
static struct bw_flow *source_of(struct bw_peer *p, const struct bw_wire *h)
{
	struct bw_flow *f = p->flows;

	if (h->dst)
		return bw_flow_find(p, h->dst);
	while (f && (f->other != h->src || f->xfer || f->op != BW_GET))
		f = f->next;
	return f;
}

static void on_freed(struct bw_flow *f, uint64_t slots)
{
	if (!f || f->side != BW_SOURCE || !f->bulk)
		return;
	f->bulk->free_slots |= slots;
	bw_source_turn(f);
}

static void on_stop(struct bw_peer *p, const struct bw_wire *h)
{
	struct bw_flow *f = source_of(p, h);
	int error = h->error < 0 && h->error > -4096 ? -h->error : ECANCELED;

	if (!f || f->side != BW_SOURCE)
		return; /* all is written, and SENT on its way */
	if (f->xfer)
		bw_xfer_why(f->xfer, "the other end gave up");
	if (f->state == BW_FLOW_WRITTEN) {
		bw_flow_end(f, error, NULL); /* SENT has told how much there is */
		return;
	}
	bw_flow_leave(f, error);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void on_flow(struct bw_peer *p, struct bw_message *m)
{
	const struct bw_wire *h = m->head;
	struct bw_flow *f = bw_flow_find(p, h->dst);

	if (!f)
		return; /* it has ended here */
	switch (h->kind) {
	case BW_WIRE_GRANT:
		on_grant(f, m);
		break;
	case BW_WIRE_CHUNK:
		if (f->side == BW_SINK && f->bulk && h->n < BW_NET_DEPTH)
			bw_sink_arrived(f, h->n);
		break;
	case BW_WIRE_SENT:
		if (f->side == BW_SINK && f->bulk) {
			if (f->op == BW_GET && !f->other)
				f->other = h->src;
			bw_sink_expect(f, h->n);
		}
		break;
	case BW_WIRE_DATA:
		on_data(f, m);
		break;
	case BW_WIRE_DONE:
		on_done(f, h);
		break;
	default:
		bw_message_wrong(p, "a message of a kind that there is not");
	}
}

/* What begins something may say besides that another is done. */
static void on_ack(struct bw_peer *p, const struct bw_wire *h)
{
	static const struct bw_wire done = { .kind = BW_WIRE_DONE };
	struct bw_flow *f;

	if (!h->dst || (h->kind != BW_WIRE_PUT && h->kind != BW_WIRE_SEND &&
			h->kind != BW_WIRE_GET))
		return;
	f = bw_flow_find(p, h->dst);
	if (f)
		on_done(f, &done);
}

static void on_message(struct bw_peer *p, struct bw_message *m)
{
	switch (m->head->kind) {
	case BW_WIRE_CREDIT:
		break;
	case BW_WIRE_PUT:
		bw_serve_put(p, m);
		break;
	case BW_WIRE_SEND:
		on_send(p, m);
		break;
	case BW_WIRE_GET:
		bw_serve_get(p, m);
		break;
	case BW_WIRE_PARTS:
		on_parts(p, m);
		break;
	case BW_WIRE_CANCEL:
		on_cancel(p, m->head);
		break;
	case BW_WIRE_FREED:
		on_freed(source_of(p, m->head), m->head->b);
		break;
	case BW_WIRE_STOP:
		on_stop(p, m->head);
		break;
	default:
		on_flow(p, m);
	}
	on_ack(p, m->head); /* last: whoever waits for the bytes has them */
}

static void on_received(struct bw_ep *ep, struct bw_netrail *r, struct bw_rx *rx, size_t bytes)
{
	struct bw_message m = {
		.head = (const struct bw_wire *)rx->at, .at = rx->at + sizeof(struct bw_wire),
		.left = bytes - sizeof(struct bw_wire),
	};
	struct bw_peer *p = bytes < sizeof(struct bw_wire) ? NULL : bw_peer_of(ep, m.head->token);

	if (p && m.head->kind <= BW_WIRE_WELCOME) {
		bw_peer_greeted(p, r->index, m.head->kind == BW_WIRE_WELCOME);
	} else if (p && !p->failed) {
		p->credits += m.head->credits;
		p->owed++;
		on_message(p, &m);
	} else {
		p = NULL;
	}
	bw_rx_spent(ep, rx);
	if (p && !p->failed && (p->say || p->replies.head || p->ops.head || p->sends.head ||
				p->owed >= BW_WIRE_CREDITS / 2))
		bw_peer_push(p);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_remote(struct bw_ep *ep, uint32_t data)
{
	struct bw_flow *f = ep->flows[data & 0xffff];

	if (f && f->listed && f->side == BW_SINK && f->bulk &&
	    (f->id & 0xffffff) == (data & 0xffffff))
		bw_sink_arrived(f, data >> 24);
}

static void on_sent(struct bw_tx *tx, const struct bw_event *event)
{
	struct bw_peer *p = tx->peer;

	if (!p)
		return; /* its peer had failed before */
	if (event->error) {
		bw_peer_fail(p, EIO, "send over %s: %s (%s)", tx->rail->info.network, event->text,
			     strerror(-event->error));
		return;
	}
	if (!--p->unsent && !p->connects && !p->given)
		bw_ep_wake_callers(p->ep); /* bw_peer_accept() waits for it */
	tx->peer = NULL;
	tx->next = tx->rail->tx;
	tx->rail->tx = tx;
}

void bw_ep_event(struct bw_ep *ep, struct bw_netrail *r, struct bw_event *event)
{
	struct bw_token *token = event->ctx;

	if (event->kind == BW_EVENT_REMOTE) {
		on_remote(ep, (uint32_t)event->data);
		return;
	}
	if (!token)
		return;
	if (token->kind == BW_TOKEN_TX) {
		on_sent((struct bw_tx *)token, event);
	} else if (token->kind == BW_TOKEN_CHUNK) {
		bw_source_written((struct bw_chunk *)token, event);
	} else if (event->error) { /* a receive that the network gave back */
		bw_rx_post(ep, (struct bw_rx *)token);
	} else {
		on_received(ep, r, (struct bw_rx *)token, event->bytes);
	}
}
