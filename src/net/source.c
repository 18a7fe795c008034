/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/source: the end that has the bytes and writes them, in chunks, over all rails. Host memory,
 * and GPU memory that the network reaches, is written from where it lies; other GPU memory is
 * copied to pinned chunks first, so that chunk k+1 is copied while chunk k is on the wire.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/probe.h"
#include "net/net_int.h"

#define POSTS 4u /* by a rail's thread, between two polls */

static struct bw_netrail *rails(const struct bw_flow *f)
{
	return f->peer->ep->rail;
}

static bool brings_data(const struct bw_flow *f)
{
	return rails(f)->info.data_bytes >= 4;
}

static bool is_ring(const struct bw_bulk *b)
{
	return b->grant.mode == BW_GRANT_RING;
}

static bool staged(const struct bw_flow *f)
{
	const struct bw_region *r = f->region;

	if (r->map && (!r->direct || f->flags & BW_WIRE_STAGED))
		return true;
	return is_ring(f->bulk) && f->n > 1; /* a slot is filled by one write */
}

/* With this thread's sentence. */
static void fail(struct bw_flow *f, int err)
{
	if (f->xfer)
		snprintf(f->xfer->why, sizeof(f->xfer->why), "%s", bw_err_text());
	bw_flow_leave(f, err);
}

/* ---- cutting -------------------------------------------------------------------------------- */

static const struct bw_wire_part *to_list(const struct bw_flow *f, size_t *n)
{
	const struct bw_bulk *b = f->bulk;

	*n = b->to ? b->nto : f->n;
	return b->to ? b->to : f->parts;
}

static void skip_empty(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;
	size_t nto;
	const struct bw_wire_part *to = to_list(f, &nto);

	while (b->i_from < f->n && b->in_from == f->parts[b->i_from].bytes) {
		b->i_from++;
		b->in_from = 0;
	}
	while (b->i_to < nto && b->in_to == to[b->i_to].bytes) {
		b->i_to++;
		b->in_to = 0;
	}
}

static size_t least(size_t a, uint64_t b)
{
	return b < a ? (size_t)b : a;
}

/* The next bytes that one write can carry. false: there are none. */
static bool cut(struct bw_flow *f, bool stage, struct bw_chunk *c)
{
	struct bw_bulk *b = f->bulk;
	const struct bw_wire_part *to;
	size_t nto, n = least(f->peer->chunk, f->bytes - b->at);

	skip_empty(f);
	to = to_list(f, &nto);
	if (!n || b->i_from >= f->n)
		return false;
	if (!is_ring(b)) {
		if (b->i_to >= nto)
			return false; /* the sink has less room than it said */
		n = least(n, to[b->i_to].bytes - b->in_to);
		c->to = to[b->i_to].to + b->in_to;
	}
	c->from = f->parts[b->i_from].from + b->in_from;
	if (!stage)
		n = least(n, f->parts[b->i_from].bytes - b->in_from);
	c->bytes = n;
	return true;
}

/* Past what was cut: pieces of the source by pieces of the sink. */
static void advance(struct bw_flow *f, size_t n)
{
	struct bw_bulk *b = f->bulk;

	b->at += n;
	b->in_to += is_ring(b) ? 0 : n;
	while (n) {
		size_t part = least(n, f->parts[b->i_from].bytes - b->in_from);

		b->in_from += part;
		n -= part;
		if (n)
			skip_empty(f);
	}
}

/* ---- chunks --------------------------------------------------------------------------------- */

/* A free chunk takes the next bytes. false: there is none, or nothing to take. */
static bool fill_one(struct bw_flow *f, struct bw_chunk *c, unsigned index, bool stage)
{
	struct bw_bulk *b = f->bulk;
	uint64_t at = b->at;
	int ret = 0;

	if (!cut(f, stage, c))
		return false;
	c->slot = is_ring(b) ? (uint8_t)(at / b->grant.chunk % b->grant.slots) : 0;
	c->lap = is_ring(b) ? (uint32_t)(at / b->grant.chunk / b->grant.slots) : 0;
	c->copy = NULL;
	if (stage) {
		unsigned char *memory = b->ring->at + index * f->peer->ep->options.chunk;

		c->src = memory;
		c->staging = index;
		ret = bw_stage_copy(f->region, f->parts, f->n, at, memory, c->bytes, false,
				    &c->copy);
	} else {
		c->src = f->region->map && f->region->direct ?
			 (const unsigned char *)(uintptr_t)(f->region->addr + c->from) :
			 f->region->host + c->from;
		c->staging = UINT_MAX;
	}
	if (ret) {
		fail(f, -ret);
		return false;
	}
	advance(f, c->bytes);
	c->state = c->copy ? BW_CHUNK_COPYING : BW_CHUNK_READY;
	return true;
}

static void fill(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;
	unsigned depth = f->peer->ep->options.depth;
	bool stage = staged(f);

	for (unsigned i = 0; i < depth && f->state == BW_FLOW_MOVING; i++) {
		unsigned k = (b->next_chunk + i) % depth;

		if (b->chunk[k].state != BW_CHUNK_FREE)
			continue;
		if (!fill_one(f, &b->chunk[k], k, stage))
			return;
		b->next_chunk = (k + 1) % depth;
	}
}

/* Those whose copies are done become ready. */
static void poll_copies(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;

	for (unsigned i = 0; i < BW_NET_DEPTH; i++) {
		struct bw_chunk *c = &b->chunk[i];
		int ret;

		if (c->state != BW_CHUNK_COPYING)
			continue;
		ret = bw_request_poll(c->copy);
		if (ret == -EBUSY)
			continue;
		bw_request_free(c->copy);
		c->copy = NULL;
		c->state = BW_CHUNK_READY;
		if (ret) {
			fail(f, EIO);
			return;
		}
	}
}

struct write {
	uint64_t peer, addr, key, data;
	const void *src;
	size_t bytes;
	void *desc;
	bool has_data;
};

static struct write write_of(const struct bw_chunk *c, const struct bw_netrail *r)
{
	const struct bw_flow *f = c->flow;
	const struct bw_bulk *b = f->bulk;
	unsigned rail = r->index;

	return (struct write){
		.peer = f->peer->rail[rail],
		.addr = b->grant.rail[rail].addr +
			(is_ring(b) ? (uint64_t)c->slot * b->grant.chunk : c->to - b->grant.base),
		.key = b->grant.rail[rail].key,
		.data = BW_WIRE_DATA32(f->other, c->slot),
		.src = c->src,
		.bytes = c->bytes,
		.desc = c->staging != UINT_MAX ? b->ring->reg[rail].desc :
			f->region->nregs ? f->region->reg[rail].desc : NULL,
		.has_data = brings_data(f),
	};
}

/* With rail->lock held. */
static int write_on(struct bw_netrail *r, const struct write *w, struct bw_chunk *c)
{
	return BW_CALL(r, write, w->peer, w->src, w->bytes, w->desc, w->addr, w->key, w->has_data,
		       w->data, w->has_data ? 0 : BW_WRITE_ARRIVED, c);
}

static void write_failed(struct bw_peer *p, int ret)
{
	bw_peer_fail(p, EIO, "write over %s: %s (%s)", p->ep->rail[0].info.network, bw_err_text(),
		     strerror(-ret));
}

/* ---- rails ---------------------------------------------------------------------------------- */

void bw_source_unload(struct bw_chunk *c)
{
	if (c->on)
		c->on->load--;
	c->on = NULL;
}

/*
 * Which rail is to have the next write? Of what is short the first. Else the one with the fewest
 * writes whose transfers are under way: that a write is gone from here says little, many have room
 * on the way.
 */
static unsigned choose_rail(const struct bw_flow *f)
{
	const struct bw_bulk *b = f->bulk;
	unsigned n = b->grant.nrails, best = b->next_rail % n;

	for (unsigned i = 1; i < n && f->bytes > BW_NET_SPLIT; i++) {
		unsigned k = (b->next_rail + i) % n;

		if (rails(f)[k].load < rails(f)[best].load)
			best = k;
	}
	return best;
}

static void chose_rail(struct bw_flow *f, struct bw_chunk *c, struct bw_netrail *r)
{
	f->bulk->rails_used |= 1ull << r->index;
	if (f->bytes > BW_NET_SPLIT)
		f->bulk->next_rail = r->index + 1;
	c->on = r;
	r->load++;
}

/* On a rail that takes it. -EAGAIN: none does now. */
static int post_now(struct bw_flow *f, struct bw_chunk *c)
{
	struct bw_bulk *b = f->bulk;
	struct bw_ep *ep = f->peer->ep;
	unsigned first = choose_rail(f);
	int ret = -EAGAIN;

	for (unsigned i = 0; i < b->grant.nrails && ret == -EAGAIN; i++) {
		struct bw_netrail *r = &rails(f)[(first + i) % b->grant.nrails];
		struct write w = write_of(c, r);

		bw_rail_lock(r);
		ret = write_on(r, &w, c);
		bw_rail_unlock(r);
		if (!ret)
			chose_rail(f, c, r);
		else if (ret == -EAGAIN)
			bw_n_count(ep, BW_N_AGAIN, 1);
	}
	if (!ret) { /* it may be gone already: whose rail it is looks */
		BW_PROBE3(net_write, f, c->slot, c->bytes);
		if (ep->threaded && c->on->index % ep->threaded)
			bw_ep_wake_rail(ep, c->on->index);
		else
			bw_ep_news(ep);
	} else if (ret != -EAGAIN) {
		write_failed(f->peer, ret);
	}
	return ret;
}

/*
 * Left to the thread of the rail. Software networks copy the bytes within the call that posts them:
 * under the endpoint's lock rails would take turns.
 */
static void post_later(struct bw_flow *f, struct bw_chunk *c)
{
	struct bw_netrail *r = &rails(f)[choose_rail(f)];
	struct bw_ep *ep = f->peer->ep;

	chose_rail(f, c, r);
	c->rail = r;
	c->next_out = NULL;
	*r->out_tail = c;
	r->out_tail = &c->next_out;
	atomic_fetch_add(&r->nout, 1);
	atomic_fetch_add(&ep->outs, 1);
	bw_ep_wake_rail(ep, r->index);
}

static void take_out(struct bw_chunk *c)
{
	struct bw_netrail *r = c->rail;
	struct bw_chunk **at = &r->out;

	while (*at != c)
		at = &(*at)->next_out;
	*at = c->next_out;
	if (!*at)
		r->out_tail = at;
	if (r->posting == c)
		r->posting = NULL;
	c->rail = NULL;
	atomic_fetch_sub(&r->nout, 1);
	atomic_fetch_sub(&c->flow->peer->ep->outs, 1);
}

static void was_not_posted(struct bw_chunk *c)
{
	bw_source_unload(c);
	c->state = BW_CHUNK_FREE;
	c->flow->bulk->outstanding--;
	c->flow->bulk->count--;
}

/* Its flow gives up: what was not posted never will be. */
static void unpost(struct bw_chunk *c)
{
	struct bw_netrail *r = c->rail;
	bool posted = false;

	if (r->posting == c) { /* just now */
		bw_rail_lock(r);
		posted = !r->posted;
		bw_rail_unlock(r);
	}
	take_out(c);
	if (!posted)
		was_not_posted(c);
}

/* Behind the others: its peer may take nothing any more, and they go to other peers. */
static void put_off(struct bw_netrail *r)
{
	struct bw_chunk *c = r->out;

	if (!c->next_out)
		return;
	r->out = c->next_out;
	c->next_out = NULL;
	*r->out_tail = c;
	r->out_tail = &c->next_out;
}

/* The first one, without the endpoint's lock while the network has it. */
static void post_first(struct bw_ep *ep, struct bw_netrail *r)
{
	struct bw_chunk *c;
	struct write w;
	int ret;

	bw_ep_lock(ep);
	c = r->out;
	if (!c) {
		bw_ep_unlock(ep);
		return;
	}
	w = write_of(c, r);
	r->posting = c;
	bw_rail_lock(r);
	pthread_mutex_unlock(&ep->lock); /* what was left to us meanwhile begins below */
	ret = write_on(r, &w, c);
	r->posted = ret;
	bw_rail_unlock(r);
	bw_ep_lock(ep);
	if (ret == -EAGAIN)
		bw_n_count(ep, BW_N_AGAIN, 1);
	if (r->posting == c && !ret) {
		BW_PROBE3(net_write, c->flow, c->slot, c->bytes);
		take_out(c);
	} else if (r->posting == c && ret == -EAGAIN) {
		put_off(r);
	} else if (r->posting == c) {
		take_out(c);
		was_not_posted(c);
		write_failed(c->flow->peer, ret);
	}
	r->posting = NULL;
	bw_ep_unlock(ep);
}

void bw_source_post(struct bw_ep *ep, struct bw_netrail *r)
{
	struct bw_sentence kept;

	if (!bw_rail_has_out(r))
		return;
	bw_err_keep(&kept);
	for (unsigned i = 0; i < POSTS && bw_rail_has_out(r); i++)
		post_first(ep, r);
	bw_err_put_back(&kept);
}

/* Does it take so long to post its writes that others are to do it? A card is told in no time. */
static bool shares_work(const struct bw_flow *f)
{
	return f->peer->ep->threaded && rails(f)->info.by_cpu && f->bytes > BW_NET_SPLIT;
}

/* 0, -EAGAIN, or the peer has failed. */
static int post(struct bw_flow *f, struct bw_chunk *c)
{
	struct bw_bulk *b = f->bulk;
	int ret = 0;

	bw_source_unload(c);
	if (shares_work(f))
		post_later(f, c);
	else
		ret = post_now(f, c);
	if (ret)
		return ret;
	if (is_ring(b)) {
		b->free_slots &= ~(1ull << c->slot);
		b->laps[c->slot]++;
	}
	c->state = BW_CHUNK_WRITING;
	b->outstanding++;
	b->count++;
	bw_n_count(f->peer->ep, BW_N_CHUNKS_OUT, 1);
	bw_n_count(f->peer->ep, BW_N_BYTES_OUT, c->bytes);
	return 0;
}

/* Posts what is ready. *@again: the network puts some off; *@ready: some are left. */
static void post_ready(struct bw_flow *f, bool *again, bool *left)
{
	struct bw_bulk *b = f->bulk;

	*again = *left = false;
	for (unsigned i = 0; i < BW_NET_DEPTH; i++) {
		struct bw_chunk *c = &b->chunk[i];
		int ret;

		if (c->state == BW_CHUNK_COPYING) {
			*again = *left = true;
			continue;
		}
		if (c->state != BW_CHUNK_READY)
			continue;
		/* the sink knows a slot's chunks by their order */
		if (is_ring(b) && (!(b->free_slots >> c->slot & 1) || c->lap != b->laps[c->slot])) {
			*left = true;
			continue;
		}
		ret = post(f, c);
		if (ret == -EAGAIN)
			*again = *left = true;
		else if (ret)
			return; /* all is over */
	}
}

/* ---- the end -------------------------------------------------------------------------------- */

static void say_sent(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;
	struct bw_wire head = {
		.kind = BW_WIRE_SENT, .src = f->id, .dst = f->other,
		.n = brings_data(f) || is_ring(b) ? b->count : 0,
	};

	b->sent = true;
	bw_peer_say(f->peer, &head);
}

/* Everything is cut and posted. */
static void finish(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;

	if (!b->sent && (brings_data(f) || !b->outstanding))
		say_sent(f);
	if (!b->sent || b->outstanding || f->peer->failed)
		return;
	f->state = BW_FLOW_WRITTEN;
	if (f->xfer)
		bw_xfer_reach(f->xfer, BW_LOCAL);
	if (!f->xfer || f->answered)
		bw_flow_end(f, 0, NULL);
}

static void finish_leaving(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;
	struct bw_wire head = {
		.kind = BW_WIRE_CANCEL, .src = f->id, .dst = f->other, .error = -f->error,
		.n = !b ? 0 : brings_data(f) || is_ring(b) ? b->count : 0,
	};

	if (b && b->outstanding)
		return;
	if (!f->answered)
		bw_peer_say(f->peer, &head);
	bw_flow_end(f, f->error, NULL);
}

static void drop_chunks(struct bw_bulk *b)
{
	for (unsigned i = 0; b && i < BW_NET_DEPTH; i++) {
		struct bw_chunk *c = &b->chunk[i];

		if (c->state == BW_CHUNK_COPYING)
			bw_request_free(c->copy); /* waits: it is short */
		if (c->rail)
			unpost(c);
		c->copy = NULL;
		if (c->state != BW_CHUNK_WRITING)
			c->state = BW_CHUNK_FREE;
	}
}

void bw_source_leave(struct bw_flow *f, int error)
{
	f->error = error;
	if (f->state == BW_FLOW_STREAM || (f->state == BW_FLOW_QUEUED && f->xfer)) {
		bw_flow_end(f, error, NULL); /* the peer knows nothing of it */
		return;
	}
	f->state = BW_FLOW_LEAVING;
	bw_flow_unsend(f);
	bw_flow_busy(f, false);
	drop_chunks(f->bulk);
	finish_leaving(f);
}

void bw_source_let_go(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;

	drop_chunks(b);
	if (f->xfer) {
		f->xfer->chunks = b->count;
		f->xfer->rails = (uint32_t)__builtin_popcountll(b->rails_used);
		f->xfer->was_ring_out = b->ring != NULL;
		f->xfer->was_ring_in = is_ring(b);
	}
	if (b->ring)
		bw_ring_put(f->peer->ep, b->ring, b->outstanding);
	b->ring = NULL;
}

/* ---- turns ---------------------------------------------------------------------------------- */

void bw_source_turn(struct bw_flow *f)
{
	struct bw_ep *ep = f->peer->ep;
	bool again, left;
	int ret;

	if (f->state == BW_FLOW_RING) {
		ret = bw_ring_get(ep, f->region->dev, false, &f->bulk->ring);
		if (ret == -EAGAIN)
			return;
		f->state = BW_FLOW_MOVING;
		if (ret) {
			fail(f, -ret);
			return;
		}
	}
	if (f->state != BW_FLOW_MOVING)
		return;
	poll_copies(f);
	if (f->state == BW_FLOW_MOVING)
		fill(f);
	if (f->state != BW_FLOW_MOVING)
		return;
	post_ready(f, &again, &left);
	if (f->state != BW_FLOW_MOVING)
		return;
	bw_flow_busy(f, again);
	if (!left && f->bulk->at == f->bytes)
		finish(f);
}

void bw_source_written(struct bw_chunk *c, const struct bw_event *event)
{
	struct bw_flow *f = c->flow;

	if (!f || c->state != BW_CHUNK_WRITING)
		return; /* its peer had failed before */
	BW_PROBE3(net_written, f, c->bytes, event->error);
	if (event->error) {
		bw_peer_fail(f->peer, EIO, "write over %s: %s (%s)", rails(f)->info.network,
			     event->text, strerror(-event->error));
		return;
	}
	c->state = BW_CHUNK_FREE;
	f->bulk->outstanding--;
	if (is_ring(f->bulk) && !brings_data(f)) {
		struct bw_wire head = { .kind = BW_WIRE_CHUNK, .src = f->id, .dst = f->other,
					.n = c->slot };

		bw_peer_say(f->peer, &head);
	}
	if (f->state == BW_FLOW_LEAVING)
		finish_leaving(f);
	else
		bw_source_turn(f);
}

static bool grant_right(const struct bw_flow *f, const struct bw_wire_grant *g)
{
	if (!g->nrails || g->nrails > f->peer->nrails)
		return false;
	return g->mode == BW_GRANT_DIRECT ||
	       (g->mode == BW_GRANT_RING && g->slots && g->slots <= BW_NET_DEPTH &&
		g->chunk == f->peer->chunk);
}

void bw_source_granted(struct bw_flow *f, const struct bw_wire_grant *grant)
{
	struct bw_bulk *b = f->bulk;

	if (!grant_right(f, grant)) {
		bw_peer_fail(f->peer, EPROTO, "it granted what is no grant: both ends need the "
			     "same version");
		return;
	}
	b->grant = *grant;
	b->free_slots = grant->slots < 64 ? (1ull << grant->slots) - 1 : UINT64_MAX;
	f->state = staged(f) ? BW_FLOW_RING : BW_FLOW_MOVING;
	if (f->state == BW_FLOW_RING)
		bw_flow_busy(f, true);
	bw_source_turn(f);
}
