/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/sink: the end that the bytes come to. It says where they may be written: into the memory
 * itself, where the network can reach that; where CPUs move the bytes, into GPU memory too, through
 * its mapping; else into a ring of pinned chunks, out of which they are copied on. It counts what
 * arrives and takes nothing else for arrival; then it publishes: a fence, and a load from there
 * where the GPU needs one, so that a kernel sees the bytes; then the signal.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/probe.h"
#include "net/net_int.h"

static struct bw_netrail *rails(const struct bw_flow *f)
{
	return f->peer->ep->rail;
}

/* ---- where to -------------------------------------------------------------------------------- */

/* Shared memory between processes is moved by the kernel, which cannot reach pages of a device. */
static bool through_mapping(const struct bw_flow *f)
{
	return rails(f)->info.by_cpu && strcmp(rails(f)->info.network, "shm");
}

static bool direct(const struct bw_flow *f)
{
	const struct bw_region *r = f->region;

	if (!r->map)
		return true;
	if (f->flags & BW_WIRE_STAGED)
		return false;
	return rails(f)->info.by_cpu ? through_mapping(f) : r->direct;
}

/* The range of the region in which all pieces lie. */
static void range(const struct bw_flow *f, uint64_t *from, uint64_t *to)
{
	*from = UINT64_MAX;
	*to = 0;
	for (size_t i = 0; i < f->n; i++) {
		const struct bw_wire_part *p = &f->parts[i];

		if (!p->bytes)
			continue;
		if (p->to < *from)
			*from = p->to;
		if (p->to + p->bytes > *to)
			*to = p->to + p->bytes;
	}
	if (*from > *to)
		*from = *to = 0;
}

static void unregister(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;

	for (unsigned i = 0; i < b->nregs; i++) {
		struct bw_netrail *r = &rails(f)[i];

		bw_rail_lock(r);
		BW_CALL(r, unreg, &b->reg[i]);
		bw_rail_unlock(r);
	}
	b->nregs = 0;
}

/* For this transfer alone: when it is over nobody can write there any more. */
static int register_range(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;
	struct bw_reg_request request = { .dmabuf = -1, .remote_write = true };
	unsigned want = f->bytes > BW_NET_SPLIT ? f->peer->nrails : 1;
	uint64_t to;
	int ret = 0;

	range(f, &b->base, &to);
	request.ptr = f->region->host + b->base;
	request.bytes = to - b->base;
	while (b->nregs < want && !ret) {
		struct bw_netrail *r = &rails(f)[b->nregs];

		bw_rail_lock(r);
		ret = BW_CALL(r, reg, &request, &b->reg[b->nregs]);
		bw_rail_unlock(r);
		if (!ret)
			b->nregs++;
	}
	if (ret)
		unregister(f);
	return ret;
}

/* 0: it may be granted. -EAGAIN: later. */
static int find_place(struct bw_flow *f)
{
	bool want_direct = f->flags & BW_WIRE_DIRECT, by_cpu = rails(f)->info.by_cpu;
	int ret = 0;

	if (want_direct && f->region->map && (by_cpu || !f->region->direct))
		return bw_err(ENOTSUP, "the direct path is required, and the sink's memory cannot "
			      "have it: %.300s", f->region->reason.text);
	if (!f->bytes)
		return 0; /* nothing will be written */
	if (direct(f)) {
		if (f->region->nregs)
			return 0;
		ret = register_range(f);
		if (!ret || want_direct || !f->region->map)
			return ret;
	}
	return bw_ring_get(f->peer->ep, f->region->dev, true, &f->bulk->ring);
}

static void refuse(struct bw_flow *f, int err)
{
	struct bw_reason why;

	bw_reason_set(&why, "%s", bw_err_text());
	if (f->op != BW_GET)
		bw_flow_tell(f, err);
	bw_flow_end(f, err, why.text);
}

void bw_sink_begin(struct bw_flow *f)
{
	int ret = f->bulk ? 0 : bw_flow_bulk(f);

	if (!ret)
		ret = find_place(f);
	if (ret == -EAGAIN) {
		f->state = BW_FLOW_RING;
		bw_flow_busy(f, true);
		return;
	}
	bw_flow_busy(f, false);
	if (ret) {
		refuse(f, -ret);
		return;
	}
	f->bulk->ring_chunk = f->peer->chunk;
	f->state = BW_FLOW_QUEUED;
	bw_flow_send(f, f->op == BW_GET ? BW_TX_ASK : BW_TX_GRANT);
}

static unsigned granted_rails(const struct bw_flow *f)
{
	const struct bw_bulk *b = f->bulk;

	return !b->ring && b->nregs ? b->nregs : f->peer->nrails;
}

void bw_sink_grant(struct bw_flow *f, struct bw_wire_grant *out)
{
	struct bw_bulk *b = f->bulk;
	const struct bw_reg *reg = b->ring ? b->ring->reg : b->nregs ? b->reg : f->region->reg;

	memset(out, 0, sizeof(*out));
	out->mode = b->ring ? BW_GRANT_RING : BW_GRANT_DIRECT;
	out->nrails = (uint8_t)granted_rails(f);
	out->slots = b->ring ? (uint16_t)f->peer->ep->options.depth : 0;
	out->chunk = b->ring ? (uint32_t)b->ring_chunk : 0;
	out->base = b->base;
	out->to = f->parts[0].to;
	for (unsigned i = 0; i < out->nrails; i++) {
		out->rail[i].addr = reg[i].addr;
		out->rail[i].key = reg[i].key;
	}
}

/* ---- publishing ------------------------------------------------------------------------------ */

static void store_signal(struct bw_region *r, uint64_t offset, uint64_t value)
{
	if (r->map) {
		bw_region_store(r, offset, &value, sizeof(value));
		bw_fence_publish();
	} else if (!((uintptr_t)(r->host + offset) % sizeof(value))) {
		__atomic_store_n((uint64_t *)(void *)(r->host + offset), value, __ATOMIC_RELEASE);
	} else {
		memcpy(r->host + offset, &value, sizeof(value));
	}
}

/* What the GPU promises is for its own work: not for another one that is told by a signal. */
static bool reads_back(const struct bw_region *r, const struct bw_region *word)
{
	bool one_gpu = !word || !word->map || (r->sole && word->sole == r->sole);

	return r->read_back ||
	       (r->map && !one_gpu && r->ep->options.read_back != BW_READ_BACK_NEVER);
}

void bw_sink_publish(struct bw_region *r, struct bw_region *word, const struct bw_wire_signal *sig)
{
	/* the bytes are VISIBLE before anything says so */
	if (reads_back(r, sig ? word : NULL)) {
		bw_copy_flush(r->map); /* begins with a fence */
		bw_n_count(r->ep, BW_N_READ_BACKS, 1);
	} else if (r->map || (sig && word->map)) {
		bw_fence_publish();
	}
	BW_PROBE2(net_publish, r, sig != NULL);
	if (sig)
		store_signal(word, sig->offset, sig->value);
}

static void note(struct bw_flow *f, bool eager)
{
	struct bw_xfer *t = f->xfer;

	bw_n_count(f->peer->ep, BW_N_BYTES_IN, f->bytes);
	if (!t)
		return;
	t->message_bytes = f->bytes;
	t->was_eager = eager;
	if (eager)
		return;
	t->chunks = f->bulk->count;
	t->was_ring_in = f->bulk->ring != NULL;
	t->rails = granted_rails(f);
}

static void complete(struct bw_flow *f)
{
	note(f, false);
	bw_sink_publish(f->region, f->sig_region, f->signal ? &f->sig : NULL);
	if (f->op != BW_GET)
		bw_flow_tell(f, 0);
	bw_flow_end(f, 0, NULL);
}

void bw_sink_eager(struct bw_flow *f, const unsigned char *data)
{
	uint64_t left = f->bytes;

	for (size_t i = 0; i < f->n && left; i++) {
		size_t n = f->parts[i].bytes < left ? f->parts[i].bytes : left;

		bw_region_store(f->region, f->parts[i].to, data, n);
		data += n;
		left -= n;
	}
	bw_n_count(f->peer->ep, BW_N_EAGER_IN, 1);
	note(f, true);
	bw_sink_publish(f->region, NULL, NULL);
}

/* ---- counting -------------------------------------------------------------------------------- */

static void finish_leaving(struct bw_flow *f)
{
	if (f->op == BW_RECV && !f->bulk->abandoned)
		bw_flow_tell(f, f->error);
	bw_flow_end(f, f->error, NULL);
}

static void check(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;

	if (b->count != b->expected)
		return;
	if (f->state == BW_FLOW_LEAVING)
		finish_leaving(f);
	else if (f->state == BW_FLOW_MOVING && (!b->ring || b->landed == f->bytes))
		complete(f);
}

void bw_sink_expect(struct bw_flow *f, uint32_t n)
{
	f->bulk->expected = n;
	check(f);
}

/* ---- out of the ring ------------------------------------------------------------------------- */

static void fail(struct bw_flow *f, int err)
{
	if (f->xfer)
		snprintf(f->xfer->why, sizeof(f->xfer->why), "%s", bw_err_text());
	bw_flow_leave(f, err);
}

/* What was in the slot is where it belongs. */
static void landed(struct bw_flow *f, unsigned slot, uint64_t *freed)
{
	struct bw_bulk *b = f->bulk;
	struct bw_slot_in *s = &b->slot[slot];
	unsigned depth = f->peer->ep->options.depth;

	s->busy = false;
	b->landed += s->bytes;
	if (((uint64_t)s->laps * depth + slot) * b->ring_chunk < f->bytes)
		*freed |= 1ull << slot;
}

static void say_freed(struct bw_flow *f, uint64_t freed)
{
	struct bw_wire head = { .kind = BW_WIRE_FREED, .src = f->id, .dst = f->other, .b = freed };

	if (freed)
		bw_peer_say(f->peer, &head);
}

static void from_ring(struct bw_flow *f, unsigned slot)
{
	struct bw_bulk *b = f->bulk;
	struct bw_slot_in *s = &b->slot[slot];
	unsigned depth = f->peer->ep->options.depth;
	uint64_t at = ((uint64_t)s->laps * depth + slot) * b->ring_chunk, freed = 0;
	int ret;

	if (slot >= depth || s->busy || at >= f->bytes) {
		bw_peer_fail(f->peer, EPROTO, "it wrote a chunk that was not free: both ends need "
			     "the same version");
		return;
	}
	s->laps++;
	s->busy = true;
	s->bytes = f->bytes - at < b->ring_chunk ? f->bytes - at : b->ring_chunk;
	ret = bw_stage_copy(f->region, f->parts, f->n, at, b->ring->at + slot * b->ring_chunk,
			    s->bytes, true, &s->copy);
	if (ret) {
		s->busy = false;
		fail(f, -ret);
		return;
	}
	if (s->copy) {
		bw_flow_busy(f, true);
		return;
	}
	landed(f, slot, &freed);
	say_freed(f, freed);
}

void bw_sink_arrived(struct bw_flow *f, unsigned slot)
{
	if (f->state != BW_FLOW_MOVING && f->state != BW_FLOW_LEAVING)
		return;
	f->bulk->count++;
	BW_PROBE2(net_arrived, f, slot);
	bw_n_count(f->peer->ep, BW_N_CHUNKS_IN, 1);
	if (f->bulk->ring && f->state == BW_FLOW_MOVING)
		from_ring(f, slot);
	if (f->bulk)
		check(f);
}

void bw_sink_turn(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;
	uint64_t freed = 0;
	bool busy = false;

	if (f->state == BW_FLOW_RING) {
		bw_sink_begin(f);
		return;
	}
	for (unsigned i = 0; b && i < BW_NET_DEPTH; i++) {
		struct bw_slot_in *s = &b->slot[i];
		int ret;

		if (!s->copy)
			continue;
		ret = bw_request_poll(s->copy);
		if (ret == -EBUSY) {
			busy = true;
			continue;
		}
		bw_request_free(s->copy);
		s->copy = NULL;
		if (ret && f->state == BW_FLOW_MOVING) {
			fail(f, EIO);
			return;
		}
		landed(f, i, &freed);
	}
	bw_flow_busy(f, busy);
	if (f->state == BW_FLOW_MOVING)
		say_freed(f, freed);
	if (b && f->bulk == b)
		check(f);
}

/* ---- giving up ------------------------------------------------------------------------------- */

void bw_sink_leave(struct bw_flow *f, int error)
{
	struct bw_wire head = { .kind = BW_WIRE_STOP, .src = f->id, .dst = f->other,
				.error = -error };
	bool granted = f->state == BW_FLOW_MOVING;

	f->error = error;
	if (!granted) {
		if (f->other && f->state != BW_FLOW_MATCH && f->op == BW_RECV)
			bw_flow_tell(f, error);
		bw_flow_end(f, error, NULL);
		return;
	}
	f->state = BW_FLOW_LEAVING;
	bw_flow_unsend(f);
	if (!f->bulk->abandoned)
		bw_peer_say(f->peer, &head);
	if (f->listed && f->bulk)
		check(f);
}

void bw_sink_let_go(struct bw_flow *f)
{
	struct bw_bulk *b = f->bulk;

	for (unsigned i = 0; i < BW_NET_DEPTH; i++) {
		if (b->slot[i].copy)
			bw_request_free(b->slot[i].copy);
		b->slot[i].copy = NULL;
	}
	unregister(f);
	if (b->ring)
		bw_ring_put(f->peer->ep, b->ring, b->count != b->expected);
	b->ring = NULL;
}
