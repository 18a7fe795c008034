/* SPDX-License-Identifier: BSD-3-Clause */
/* net/flow: what both ends of a movement of bytes share: ids, lists, beginning, ending. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "net/net_int.h"

/* ---- ids: a place and a generation, so that what comes late is known to be late -------------- */

static uint32_t id_of(const struct bw_ep *ep, unsigned place)
{
	return place | (uint32_t)ep->generations[place] << 16;
}

int bw_flow_id(struct bw_ep *ep, struct bw_flow *f)
{
	for (unsigned i = 0; i < BW_NET_FLOWS - 1; i++) {
		unsigned place = ep->next_flow;

		ep->next_flow = place + 1 < BW_NET_FLOWS ? place + 1 : 1;
		if (ep->flows[place])
			continue;
		ep->flows[place] = f;
		ep->generations[place]++;
		f->id = id_of(ep, place);
		return 0;
	}
	return bw_err(ENOSPC, "%u transfers of this endpoint are prepared or under way: free some",
		      BW_NET_FLOWS - 1);
}

void bw_flow_new_id(struct bw_ep *ep, struct bw_flow *f)
{
	unsigned place = f->id & 0xffff;

	ep->generations[place]++;
	f->id = id_of(ep, place);
}

void bw_flow_no_id(struct bw_ep *ep, struct bw_flow *f)
{
	ep->flows[f->id & 0xffff] = NULL;
	f->id = 0;
}

struct bw_flow *bw_flow_find(struct bw_peer *p, uint32_t id)
{
	struct bw_flow *f = p->ep->flows[id & 0xffff];

	return f && f->id == id && f->peer == p && f->listed ? f : NULL;
}

struct bw_flow *bw_flow_of_other(struct bw_peer *p, uint32_t other, enum bw_flow_side side)
{
	struct bw_flow *f = p->flows;

	while (f && (f->other != other || f->side != (uint8_t)side))
		f = f->next;
	return f;
}

/* ---- those of peers ------------------------------------------------------------------------- */

void bw_flow_list(struct bw_flow *f)
{
	struct bw_peer *p = f->peer;

	f->listed = true;
	f->prev = NULL;
	f->next = p->flows;
	if (f->next)
		f->next->prev = f;
	p->flows = f;
	f->region->uses++;
	f->region->own += f->xfer != NULL;
}

struct bw_flow *bw_flow_take(struct bw_peer *p, enum bw_flow_side side, enum bw_operation op)
{
	struct bw_ep *ep = p->ep;
	struct bw_flow *f = ep->free_flows;

	if (f)
		ep->free_flows = f->next;
	else
		f = bw_alloc(sizeof(*f));
	if (!f)
		return NULL;
	memset(f, 0, sizeof(*f));
	f->peer = p;
	f->side = (uint8_t)side;
	f->op = (uint8_t)op;
	if (bw_flow_id(ep, f)) {
		f->next = ep->free_flows;
		ep->free_flows = f;
		return NULL;
	}
	return f;
}

/* ---- bulk ----------------------------------------------------------------------------------- */

int bw_flow_bulk(struct bw_flow *f)
{
	struct bw_ep *ep = f->peer->ep;
	struct bw_bulk *b = ep->free_bulks;

	if (b)
		ep->free_bulks = b->next;
	else
		b = bw_alloc(sizeof(*b));
	if (!b)
		return bw_err(ENOMEM, "no memory for a transfer: free some");
	memset(b, 0, sizeof(*b));
	b->expected = UINT32_MAX;
	for (unsigned i = 0; i < BW_NET_DEPTH; i++) {
		b->chunk[i].token.kind = BW_TOKEN_CHUNK;
		b->chunk[i].flow = f;
		b->chunk[i].staging = UINT_MAX;
	}
	f->bulk = b;
	return 0;
}

/* What was given to the network and never came back stays its. */
static void bulk_put(struct bw_flow *f)
{
	struct bw_ep *ep = f->peer->ep;
	struct bw_bulk *b = f->bulk;
	bool lost = b->outstanding;

	free(b->to);
	b->to = NULL;
	for (unsigned i = 0; i < BW_NET_DEPTH; i++) {
		bw_source_unload(&b->chunk[i]);
		b->chunk[i].flow = NULL;
	}
	b->next = lost ? ep->lost_bulks : ep->free_bulks;
	*(lost ? &ep->lost_bulks : &ep->free_bulks) = b;
	f->bulk = NULL;
}

/* ---- ending --------------------------------------------------------------------------------- */

static void uncount(struct bw_flow *f)
{
	struct bw_peer *p = f->peer;

	if (!f->counted)
		return;
	f->counted = false;
	if (!f->xfer) {
		p->ops_in--;
	} else if (f->op == BW_SEND) {
		p->sends_out--;
		if (f->eager)
			p->eager_out -= f->bytes;
	} else {
		p->ops_out--;
	}
}

static void unuse(struct bw_region *r)
{
	if (!--r->uses && r->closing)
		bw_ep_wake_callers(r->ep);
}

static void unlist(struct bw_flow *f)
{
	if (!f->listed)
		return;
	f->listed = false;
	if (f->prev)
		f->prev->next = f->next;
	else
		f->peer->flows = f->next;
	if (f->next)
		f->next->prev = f->prev;
	f->region->own -= f->xfer != NULL;
	unuse(f->region);
	if (f->sig_region)
		unuse(f->sig_region);
	f->sig_region = NULL;
}

void bw_flow_end(struct bw_flow *f, int error, const char *text)
{
	struct bw_ep *ep = f->peer->ep;
	struct bw_xfer *t = f->xfer;
	bool sink = f->side == BW_SINK;

	if (t ? !f->listed : !f->id)
		return; /* what was to be said of its end has failed the peer, and ended it */
	bw_flow_unsend(f);
	bw_flow_busy(f, false);
	if (t && t->matching)
		bw_match_remove(t);
	if (f->bulk) {
		if (sink)
			bw_sink_let_go(f);
		else
			bw_source_let_go(f);
		bulk_put(f);
	}
	uncount(f);
	unlist(f);
	f->state = BW_FLOW_IDLE;
	if (t) {
		bw_flow_new_id(ep, f); /* what comes now is late */
		bw_xfer_end(t, error, text);
		return;
	}
	bw_flow_no_id(ep, f);
	if (f->parts != &f->one)
		free(f->parts);
	f->parts = NULL;
	f->next = ep->free_flows;
	ep->free_flows = f;
}

void bw_flow_tell(struct bw_flow *f, int error)
{
	struct bw_wire head = { .kind = BW_WIRE_DONE, .src = f->id, .dst = f->other,
				.error = -error };

	if (error)
		bw_peer_say(f->peer, &head);
	else
		bw_peer_ack(f->peer, f->other);
}

void bw_flow_leave(struct bw_flow *f, int error)
{
	if (f->state == BW_FLOW_LEAVING)
		return;
	f->leave_by = bw_now_ns() + f->peer->ep->options.liveness_ns;
	bw_ep_look_by(f->peer->ep, f->leave_by);
	if (f->side == BW_SOURCE)
		bw_source_leave(f, error);
	else
		bw_sink_leave(f, error);
}

void bw_flow_turn(struct bw_flow *f)
{
	if (f->side == BW_SOURCE)
		bw_source_turn(f);
	else
		bw_sink_turn(f);
}
