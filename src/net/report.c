/* SPDX-License-Identifier: BSD-3-Clause */
/* net/report: by what way a transfer's bytes moved, and why not by a better one. */
#include <stdio.h>
#include <string.h>

#include "net/net_int.h"

/* What the CPU does in a first message. */
static const char *by_cpu(const struct bw_flow *f)
{
	if (f->side == BW_SINK)
		return "written by the CPU";
	for (size_t i = 0; i < f->n; i++)
		if (bw_region_shares_load(f->region, f->parts[i].bytes))
			return "read by several CPU threads";
	return "read by the CPU";
}

/* The leg at this end. */
static void local_leg(const struct bw_xfer *t, char *text, size_t room)
{
	const struct bw_region *r = t->flow.region;
	bool source = t->flow.side == BW_SOURCE;
	const char *after = !source && r->read_back ? ", read back" : "";

	if (!r->map)
		snprintf(text, room, "host memory");
	else if (t->was_eager)
		snprintf(text, room, "GPU memory %s through its mapping (%s)%s", by_cpu(&t->flow),
			 source ? r->map->load_name : r->map->store_name, after);
	else if (source ? t->was_ring_out : t->was_ring_in)
		snprintf(text, room, "GPU memory through pinned chunks%s", after);
	else if (r->direct)
		snprintf(text, room, "GPU memory by the network card (%s)%s", r->rung, after);
	else
		snprintf(text, room, "GPU memory written through its mapping by what receives%s",
			 after);
}

void bw_xfer_view(struct bw_xfer *t, struct bw_xfer_view *view)
{
	const struct bw_flow *f = &t->flow;
	const struct bw_ep *ep = f->peer->ep;
	const struct bw_rail_info *info = &ep->rail[0].info;
	const char *why = "";
	char leg[128];

	memset(view, 0, sizeof(*view));
	bw_ep_lock(f->peer->ep);
	view->eager = t->was_eager;
	view->direct = !t->was_eager && !info->by_cpu && !t->was_ring_in && !t->was_ring_out;
	view->rails = t->was_eager ? 1 : t->rails;
	view->chunks = t->chunks;
	view->bytes = f->op == BW_RECV ? t->message_bytes : t->bytes;
	view->tag = f->op == BW_RECV ? t->message_tag : t->tag;
	view->posted_ns = t->posted_ns;
	view->returned_ns = atomic_load_explicit(&t->returned_ns, memory_order_relaxed);
	view->ready_ns = t->ready_ns;
	view->local_ns = t->local_ns;
	view->arrived_ns = t->arrived_ns;
	view->visible_ns = t->visible_ns;
	local_leg(t, leg, sizeof(leg));
	if (f->region->map && !view->direct && !f->region->closed)
		why = f->region->reason.text;
	snprintf(view->path, sizeof(view->path), "%s: %s; network %s (%s), %s%s%.180s",
		 view->direct ? "direct" : "staged", leg, info->network, info->provider,
		 t->was_eager ? "in the first message" : f->op == BW_GET || f->op == BW_RECV ?
		 "written by the peer" : t->was_ring_in ? "to the peer's pinned chunks" :
		 "to the peer's memory", *why ? "; not direct because: " : "", why);
	bw_ep_unlock(f->peer->ep);
}
