/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/match: which receive takes which message. A message goes to the earliest posted receive that
 * takes its tag, a receive to the earliest message that came. Receives of one tag, and messages,
 * are found by a hash of the tag; those that ignore bits are looked through in order.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "net/net_int.h"

static unsigned bucket_of(uint64_t tag)
{
	return (unsigned)((tag * 0x9e3779b97f4a7c15u) >> 58) % BW_NET_BUCKETS;
}

/* ---- receives -------------------------------------------------------------------------------- */

static struct bw_xfer_list *list_of(const struct bw_xfer *t)
{
	struct bw_peer *p = t->flow.peer;

	return t->ignore ? &p->wild : &p->posted[bucket_of(t->tag)];
}

static void wait_for_message(struct bw_xfer *t)
{
	struct bw_xfer_list *list = list_of(t);

	t->matching = true;
	t->order = t->flow.peer->ep->order++;
	t->match_next = NULL;
	t->match_prev = list->tail;
	if (list->tail)
		list->tail->match_next = t;
	else
		list->head = t;
	list->tail = t;
}

void bw_match_remove(struct bw_xfer *t)
{
	struct bw_xfer_list *list = list_of(t);

	if (!t->matching)
		return;
	t->matching = false;
	if (t->match_prev)
		t->match_prev->match_next = t->match_next;
	else
		list->head = t->match_next;
	if (t->match_next)
		t->match_next->match_prev = t->match_prev;
	else
		list->tail = t->match_prev;
}

static struct bw_xfer *first_of(const struct bw_xfer_list *list, uint64_t tag)
{
	struct bw_xfer *t = list->head;

	while (t && (t->tag ^ tag) & ~t->ignore)
		t = t->match_next;
	return t;
}

/* The earliest of those that take @tag. */
static struct bw_xfer *find_receive(struct bw_peer *p, uint64_t tag)
{
	struct bw_xfer *exact = first_of(&p->posted[bucket_of(tag)], tag);
	struct bw_xfer *wild = p->wild.head ? first_of(&p->wild, tag) : NULL;

	if (!exact || !wild)
		return exact ? exact : wild;
	return exact->order < wild->order ? exact : wild;
}

/* ---- messages that came early ---------------------------------------------------------------- */

static void keep(struct bw_peer *p, struct bw_early *e)
{
	unsigned b = bucket_of(e->head.a);

	e->next = NULL;
	e->prev = p->early_last;
	*(p->early_last ? &p->early_last->next : &p->early) = e;
	p->early_last = e;
	e->bucket_next = NULL;
	e->bucket_prev = p->bucket_last[b];
	*(p->bucket_last[b] ? &p->bucket_last[b]->bucket_next : &p->bucket[b]) = e;
	p->bucket_last[b] = e;
	p->sends_in++;
	p->early_bytes += e->head.flags & BW_WIRE_EAGER ? e->head.b : 0;
}

static void let_go(struct bw_peer *p, struct bw_early *e)
{
	unsigned b = bucket_of(e->head.a);

	*(e->prev ? &e->prev->next : &p->early) = e->next;
	*(e->next ? &e->next->prev : &p->early_last) = e->prev;
	*(e->bucket_prev ? &e->bucket_prev->bucket_next : &p->bucket[b]) = e->bucket_next;
	*(e->bucket_next ? &e->bucket_next->bucket_prev : &p->bucket_last[b]) = e->bucket_prev;
	p->sends_in--;
	p->early_bytes -= e->head.flags & BW_WIRE_EAGER ? e->head.b : 0;
}

static struct bw_early *find_message(struct bw_peer *p, const struct bw_xfer *t)
{
	struct bw_early *e = t->ignore ? p->early : p->bucket[bucket_of(t->tag)];

	while (e && (t->tag ^ e->head.a) & ~t->ignore)
		e = t->ignore ? e->next : e->bucket_next;
	return e;
}

void bw_match_free(struct bw_peer *p)
{
	while (p->early) {
		struct bw_early *e = p->early;

		let_go(p, e);
		free(e);
	}
}

bool bw_match_forget(struct bw_peer *p, uint32_t src)
{
	struct bw_early *e = p->early;

	while (e && e->head.src != src)
		e = e->next;
	if (!e)
		return false;
	let_go(p, e);
	free(e);
	return true;
}

/* ---- the two together ------------------------------------------------------------------------ */

static void take(struct bw_xfer *t, const struct bw_wire *head, const unsigned char *data)
{
	struct bw_flow *f = &t->flow;
	uint64_t room = 0;

	f->other = head->src;
	t->message_tag = head->a;
	t->message_bytes = head->b;
	for (size_t i = 0; i < f->n; i++)
		room += f->parts[i].bytes;
	if (head->b > room) {
		bw_flow_tell(f, EMSGSIZE);
		snprintf(t->why, sizeof(t->why), "the message has %llu bytes, the receive has room "
			 "for %llu", (unsigned long long)head->b, (unsigned long long)room);
		bw_flow_end(f, EMSGSIZE, NULL);
		return;
	}
	f->bytes = head->b;
	if (head->flags & BW_WIRE_EAGER) {
		bw_sink_eager(f, data);
		bw_flow_tell(f, 0);
		bw_flow_end(f, 0, NULL);
		return;
	}
	f->flags |= head->flags & (BW_WIRE_STAGED | BW_WIRE_DIRECT);
	bw_sink_begin(f);
}

void bw_match_post(struct bw_xfer *t)
{
	struct bw_peer *p = t->flow.peer;
	struct bw_early *e = find_message(p, t);

	if (!e) {
		t->flow.state = BW_FLOW_MATCH;
		wait_for_message(t);
		return;
	}
	let_go(p, e);
	take(t, &e->head, e->data);
	free(e);
}

void bw_match_message(struct bw_peer *p, const struct bw_wire *head, const unsigned char *data)
{
	size_t bytes = head->flags & BW_WIRE_EAGER ? head->b : 0;
	struct bw_xfer *t = find_receive(p, head->a);
	struct bw_early *e;

	if (t) {
		bw_match_remove(t);
		take(t, head, data);
		return;
	}
	if (p->sends_in >= BW_WIRE_SENDS || p->early_bytes + bytes > BW_NET_EAGER_HELD + p->eager) {
		bw_peer_fail(p, EPROTO, "it sent more than it may before its messages are "
			     "received: both ends need the same version");
		return;
	}
	e = bw_alloc(sizeof(*e) + bytes);
	if (!e) {
		bw_peer_fail(p, ENOMEM, "no memory for a message of %zu bytes: free some", bytes);
		return;
	}
	e->head = *head;
	if (bytes)
		memcpy(e->data, data, bytes);
	keep(p, e);
}
