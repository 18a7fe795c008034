/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/serve: what peers ask for: puts into regions of ours and gets from them. Keys, access and
 * ranges are checked before a byte moves; what is refused is told with the reason's errno.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "net/net_int.h"

static void say_done(struct bw_peer *p, uint32_t dst, int error)
{
	struct bw_wire head = { .kind = BW_WIRE_DONE, .dst = dst, .error = -error };

	if (error)
		bw_peer_say(p, &head);
	else
		bw_peer_ack(p, dst);
}

/* May the peer do this to the region? 0 or an errno. */
static int allowed(const struct bw_region *r, uint32_t access, const struct bw_wire_part *parts,
		   size_t n, uint64_t bytes)
{
	uint64_t sum = 0;

	if (!r || !(r->access & access))
		return EACCES;
	for (size_t i = 0; i < n; i++) {
		uint64_t offset = access == BW_REGION_PUT ? parts[i].to : parts[i].from;

		if (!bw_region_has(r, offset, parts[i].bytes))
			return ERANGE;
		sum += parts[i].bytes; /* each is less than the region: n of them do not wrap */
	}
	return sum == bytes ? 0 : ERANGE;
}

static int signal_allowed(struct bw_ep *ep, const struct bw_wire_signal *sig)
{
	struct bw_region *r = bw_region_find(ep, sig->region, sig->secret);

	if (!r || !(r->access & BW_REGION_PUT))
		return EACCES;
	return sig->offset % 8 || !bw_region_has(r, sig->offset, 8) ? ERANGE : 0;
}

/* Short and whole: no flow is needed. */
static void eager_put(struct bw_peer *p, struct bw_region *r, const struct bw_wire *head,
		      const struct bw_wire_signal *sig, const struct bw_wire_part *parts,
		      const unsigned char *data)
{
	for (uint32_t i = 0; i < head->n; i++) {
		bw_region_store(r, parts[i].to, data, parts[i].bytes);
		data += parts[i].bytes;
	}
	bw_sink_publish(r, sig ? bw_region_find(p->ep, sig->region, sig->secret) : NULL, sig);
	bw_n_count(p->ep, BW_N_EAGER_IN, 1);
	bw_n_count(p->ep, BW_N_BYTES_IN, head->b);
	say_done(p, head->src, 0);
}

/* A flow for what a peer has asked. NULL: there is none to be had, and it was told. */
static struct bw_flow *peers_flow(struct bw_peer *p, struct bw_region *r,
				  const struct bw_wire *head, enum bw_flow_side side,
				  const struct bw_wire_part *parts)
{
	enum bw_operation op = side == BW_SINK ? BW_PUT : BW_GET;
	struct bw_flow *f;

	if (p->ops_in >= BW_WIRE_OPS) {
		bw_message_wrong(p, "more puts and gets than may be under way");
		return NULL;
	}
	f = bw_flow_take(p, side, op);
	if (f) {
		f->n = head->n;
		f->parts = head->n == 1 ? &f->one : bw_alloc_array(head->n, sizeof(f->one));
		if (!f->parts) {
			f->parts = &f->one;
			bw_flow_end(f, ENOMEM, NULL);
			f = NULL;
		}
	}
	if (!f) {
		say_done(p, head->src, ENOMEM);
		return NULL;
	}
	f->region = r;
	f->other = head->src;
	f->bytes = head->b;
	f->flags = head->flags & (BW_WIRE_STAGED | BW_WIRE_DIRECT);
	f->eager = head->flags & BW_WIRE_EAGER;
	if (parts) {
		memcpy(f->parts, parts, head->n * sizeof(*parts));
		f->nparts_done = head->n;
	}
	f->counted = true;
	p->ops_in++;
	f->state = BW_FLOW_PARTS;
	bw_flow_list(f);
	return f;
}

/* All pieces are here. */
void bw_serve_begin(struct bw_flow *f)
{
	uint32_t access = f->side == BW_SINK ? BW_REGION_PUT : BW_REGION_GET;
	int error = allowed(f->region, access, f->parts, f->n, f->bytes);

	if (error) {
		bw_flow_tell(f, error);
		bw_flow_end(f, error, NULL);
	} else if (f->side == BW_SINK) {
		bw_sink_begin(f);
	} else if (f->eager) {
		bw_flow_send(f, BW_TX_DATA);
	} else {
		struct bw_wire_grant grant = f->bulk->grant;

		bw_source_granted(f, &grant);
	}
}

static const struct bw_wire_part *parts_of(struct bw_message *m, struct bw_wire_part *one, bool put)
{
	const struct bw_wire *h = m->head;

	if (h->n != 1)
		return bw_message_take(m, (uint64_t)h->n * sizeof(*one));
	*one = (struct bw_wire_part){ .bytes = h->b };
	*(put ? &one->to : &one->from) = h->a;
	return one;
}

void bw_serve_put(struct bw_peer *p, struct bw_message *m)
{
	const struct bw_wire *h = m->head;
	const struct bw_wire_signal *sig = NULL;
	const struct bw_wire_part *parts = NULL;
	const unsigned char *data = NULL;
	struct bw_region *r = bw_region_find(p->ep, h->region, h->secret);
	struct bw_wire_part one;
	struct bw_flow *f;
	int error = 0;

	if (h->flags & BW_WIRE_SIGNAL && !(sig = bw_message_take(m, sizeof(*sig)))) {
		bw_message_wrong(p, "a put that is too short");
		return;
	}
	if (!(h->flags & BW_WIRE_MORE))
		parts = parts_of(m, &one, true);
	if (h->flags & BW_WIRE_EAGER)
		data = bw_message_take(m, h->b);
	if (!h->n || h->n > 65536 || (!parts && !(h->flags & BW_WIRE_MORE)) ||
	    (!data && h->flags & BW_WIRE_EAGER) || (h->flags & BW_WIRE_EAGER && !parts)) {
		bw_message_wrong(p, "a put that is no put");
		return;
	}
	error = parts ? allowed(r, BW_REGION_PUT, parts, h->n, h->b) :
		allowed(r, BW_REGION_PUT, NULL, 0, 0);
	if (!error && sig)
		error = signal_allowed(p->ep, sig);
	if (error) {
		say_done(p, h->src, error);
		return;
	}
	if (h->flags & BW_WIRE_EAGER) {
		eager_put(p, r, h, sig, parts, data);
		return;
	}
	f = peers_flow(p, r, h, BW_SINK, parts);
	if (!f)
		return;
	f->signal = sig;
	if (sig) {
		f->sig = *sig;
		f->sig_region = bw_region_find(p->ep, sig->region, sig->secret);
		f->sig_region->uses++;
	}
	if (parts)
		bw_serve_begin(f);
}

void bw_serve_get(struct bw_peer *p, struct bw_message *m)
{
	const struct bw_wire *h = m->head;
	bool eager = h->flags & BW_WIRE_EAGER, more = h->flags & BW_WIRE_MORE;
	const struct bw_wire_grant *grant = eager ? NULL : bw_message_take(m, sizeof(*grant));
	struct bw_region *r = bw_region_find(p->ep, h->region, h->secret);
	const struct bw_wire_part *parts = NULL;
	struct bw_wire_part one;
	struct bw_flow *f;
	int error;

	if (!more)
		parts = parts_of(m, &one, false);
	if (!h->n || h->n > 65536 || (!eager && !grant) || (!parts && !more) ||
	    (eager && (more || h->b > p->eager))) {
		bw_message_wrong(p, "a get that is no get");
		return;
	}
	error = parts ? allowed(r, BW_REGION_GET, parts, h->n, h->b) :
		allowed(r, BW_REGION_GET, NULL, 0, 0);
	if (error) {
		say_done(p, h->src, error);
		return;
	}
	f = peers_flow(p, r, h, BW_SOURCE, parts);
	if (!f)
		return;
	if (!eager && bw_flow_bulk(f)) {
		bw_flow_tell(f, ENOMEM);
		bw_flow_end(f, ENOMEM, NULL);
		return;
	}
	if (grant) {
		f->bulk->grant = *grant;
		if (h->n == 1)
			f->one.to = grant->to;
	}
	if (parts)
		bw_serve_begin(f);
}
