/* SPDX-License-Identifier: BSD-3-Clause */
/* net/imitation_move: how bytes travel when a rail polls. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/imitation_int.h"

static void fail(struct imitation_rail *r, struct note **note, int error, const char *text)
{
	if (!*note)
		return;
	(*note)->event.error = error;
	snprintf((*note)->event.text, sizeof((*note)->event.text), "%s", text);
	bw_imitation_tell(r, note);
}

/* The memory of @target that @f names, or NULL. */
static char *reach(const struct imitation_rail *target, const struct flight *f)
{
	for (const struct memory *m = target->memories; m; m = m->next) {
		if (m->key != f->key)
			continue;
		if (!(f->kind == BW_EVENT_READ ? m->remote_read : m->remote_write))
			return NULL;
		if (f->addr < m->addr || f->addr - m->addr > m->bytes ||
		    f->bytes > m->bytes - (f->addr - m->addr))
			return NULL;
		return m->ptr + (f->addr - m->addr);
	}
	return NULL;
}

/* A piece of it, and at last the rest; true: all of it is there. */
static bool move_piece(struct flight *f, char *dst, const char *src)
{
	size_t left = f->bytes - f->done;
	size_t n = left < 2 || !bw_imitation_random(3) ? left : 1 + bw_imitation_random(left);

	if (n)
		memcpy(dst + f->done, src + f->done, n);
	f->done += n;
	return f->done == f->bytes;
}

/* Returns true where the flight is over. */
static bool write_arrives(struct imitation_rail *from, struct imitation_rail *to, struct flight *f)
{
	char *dst = reach(to, f);

	if (!dst) {
		if (f->flags & BW_WRITE_ARRIVED)
			fail(from, &f->own, from->rdma ? -EIO : -ECANCELED,
			     from->rdma ? "remote access error" : "the peer closed the connection");
		return true;
	}
	if (!move_piece(f, dst, f->taken)) {
		f->arrives_in = (unsigned)bw_imitation_random(3);
		return false;
	}
	bw_imitation_tell(to, &f->remote);
	bw_imitation_tell(from, &f->own);
	return true;
}

static bool read_arrives(struct imitation_rail *from, struct imitation_rail *to, struct flight *f)
{
	const char *src = reach(to, f);

	if (!src) {
		fail(from, &f->own, -EIO, "remote access error");
		return true;
	}
	if (!move_piece(f, f->here, src)) {
		f->arrives_in = (unsigned)bw_imitation_random(3);
		return false;
	}
	bw_imitation_tell(from, &f->own);
	return true;
}

static bool message_arrives(struct imitation_rail *from, struct imitation_rail *to,
			    struct flight *f)
{
	struct receive *recv = to->receives;

	if (!recv) {
		if (!bw_imitation_how.rnr || ++f->waited < bw_imitation_how.rnr)
			return false;
		/* What is copied when posting has no event, so it is lost. */
		fail(from, &f->own, -EIO, "the receiver was not ready, retries exceeded");
		return true;
	}
	to->receives = recv->next;
	if (!to->receives)
		to->last_receive = &to->receives;
	recv->note->event.bytes = f->bytes;
	if (f->bytes > recv->room) {
		fail(to, &recv->note, -EMSGSIZE, "the message is longer than the receive");
	} else {
		if (f->bytes)
			memcpy(recv->message, f->taken, f->bytes);
		bw_imitation_tell(to, &recv->note);
	}
	free(recv);
	bw_imitation_tell(from, &f->own);
	return true;
}

/* Is there an earlier message to the same rail? They do not pass each other. */
static bool waits_its_turn(const struct imitation_rail *from, const struct flight *f)
{
	if (f->kind != BW_EVENT_SENT)
		return false;
	for (const struct flight *e = from->flights; e != f; e = e->next)
		if (e->kind == BW_EVENT_SENT && e->target == f->target)
			return true;
	return false;
}

/* Its source may be reused: the bytes are copied, and the completion comes before the arrival. */
static bool become_local(struct imitation_rail *from, const struct imitation_rail *to,
			 struct flight *f)
{
	if (f->local_in) {
		f->local_in--;
		return false;
	}
	if (from->rdma && f->kind == BW_EVENT_WRITTEN && !reach(to, f)) {
		fail(from, &f->own, -EIO, "remote access error");
		return true;
	}
	if (!f->taken) {
		f->taken = malloc(f->bytes + 1);
		if (!f->taken)
			return false; /* at another poll */
		memcpy(f->taken, f->here, f->bytes);
	}
	/* A card's message is done when the receiver had room for it. */
	if (!(f->flags & BW_WRITE_ARRIVED) && !(from->rdma && f->kind == BW_EVENT_SENT))
		bw_imitation_tell(from, &f->own);
	return false;
}

static bool arrives(struct imitation_rail *from, struct imitation_rail *to, struct flight *f)
{
	if (f->arrives_in) {
		f->arrives_in--;
		return false;
	}
	if (waits_its_turn(from, f))
		return false;
	return f->kind == BW_EVENT_SENT ? message_arrives(from, to, f) :
	       f->kind == BW_EVENT_READ ? read_arrives(from, to, f) : write_arrives(from, to, f);
}

/* The flights of @from, as @poller polls. */
static void move_flights(struct imitation_rail *from, const struct imitation_rail *poller)
{
	struct flight **at = &from->flights;

	while (*at) {
		struct flight *f = *at;
		struct imitation_rail *to = bw_imitation_find(f->target);
		bool over = false;

		if (!to || to->dead) {
			over = to && to->loud && from == poller;
			if (over)
				fail(from, &f->own, -ECANCELED, "connection reset by peer");
		} else {
			if (from == poller && !f->taken && f->kind != BW_EVENT_READ)
				over = become_local(from, to, f);
			if (!over && (f->taken || f->kind == BW_EVENT_READ) &&
			    poller == (from->rdma ? from : to))
				over = arrives(from, to, f);
		}
		if (over)
			bw_imitation_drop(from, at);
		else
			at = &f->next;
	}
}

void bw_imitation_move(struct imitation_rail *r)
{
	for (struct imitation_rail *from = bw_imitation_rails; from; from = from->next)
		if (!from->dead)
			move_flights(from, r);
}
