/* SPDX-License-Identifier: BSD-3-Clause */
/* net/fabric_poll: completions, in words of the engine. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/fault.h"
#include "net/fabric.h"

#define BATCH 16u

/* Gives the operation back; false: it is not to be told of. */
static inline bool finish(struct bw_fabric_rail *r, struct bw_fabric_op *op, size_t bytes,
			  struct bw_event *event)
{
	bool told = !op->orphan;

	event->kind = (enum bw_event_kind)op->kind;
	event->ctx = op->ctx;
	event->bytes = op->kind == BW_EVENT_RECEIVED ? bytes : 0;
	event->data = 0;
	event->error = 0;
	event->text[0] = 0;
	op->kind = 0;
	op->orphan = false;
	op->next = r->free;
	r->free = op;
	return told;
}

static inline bool translate(struct bw_fabric_rail *r, const struct fi_cq_data_entry *entry,
			     struct bw_event *event)
{
	if (entry->flags & (FI_REMOTE_CQ_DATA | FI_REMOTE_WRITE)) {
		event->kind = BW_EVENT_REMOTE;
		event->ctx = NULL;
		event->bytes = 0;
		event->data = entry->data;
		event->error = 0;
		event->text[0] = 0;
		return entry->flags & FI_REMOTE_CQ_DATA;
	}
	if (!entry->op_context)
		return false;
	return finish(r, entry->op_context, entry->len, event);
}

/* 1: an event; 0: none, the operation has nobody who waits for it. */
__attribute__((cold, noinline))
static int read_error(struct bw_fabric_rail *r, struct bw_event *event)
{
	/* Newer libraries have a longer struct. */
	union {
		struct fi_cq_err_entry entry;
		char room[sizeof(struct fi_cq_err_entry) + 128];
	} err;
	char provider[64] = "";
	const char *text;
	ssize_t ret;

	memset(&err, 0, sizeof(err));
	ret = fi_cq_readerr(r->cq, &err.entry, 0);
	if (ret == -FI_EAGAIN || !ret)
		return 0;
	if (ret < 0)
		return bw_err(bw_fabric_errno((int)ret), "poll %s: fi_cq_readerr: %s",
			      r->network->name, r->lib->strerror((int)-ret));
	if (!err.entry.op_context)
		return 0;
	if (!finish(r, err.entry.op_context, err.entry.olen ? err.entry.len : 0, event))
		return 0;
	text = fi_cq_strerror(r->cq, err.entry.prov_errno, err.entry.err_data, provider,
			      sizeof(provider));
	event->error = -bw_fabric_errno(err.entry.err);
	snprintf(event->text, sizeof(event->text), "%s (%.60s, %d)",
		 r->lib->strerror(err.entry.err), text ? text : provider, err.entry.prov_errno);
	return 1;
}

int bw_fabric_poll(struct bw_rail *rail, struct bw_event *events, unsigned n)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	struct fi_cq_data_entry entries[BATCH];
	unsigned found = 0;
	ssize_t got;

	if (__builtin_expect(r->stuck, 0))
		return bw_err(EIO, "poll %s: a peer went with writes under way, and it completes "
			      "none after those", r->network->name);
	if (__builtin_expect(r->kept, 0) && n) {
		r->kept = false;
		return translate(r, &r->entry, events);
	}
	r->unpolled = false;
	got = fi_cq_read(r->cq, entries, n < BATCH ? n : BATCH);
	if (got == -FI_EAGAIN)
		return 0;
	if (got == -FI_EAVAIL)
		return n ? read_error(r, events) : 0;
	if (got < 0)
		return bw_err(bw_fabric_errno((int)got), "poll %s: fi_cq_read: %s",
			      r->network->name, r->lib->strerror((int)-got));
	r->readable = 0;
	for (ssize_t i = 0; i < got; i++)
		found += translate(r, &entries[i], &events[found]);
	return (int)found;
}

/*
 * "net" of libfabric 1.17 sets a signal with each completion and never takes it back: its
 * descriptor stays readable, but it becomes so anew with whatever comes. Of that an epoll set of
 * our own tells. It does not tell of what was completed within the call that posted it: send_on()
 * in send.c.
 */
int bw_fabric_watch(struct bw_fabric_rail *r)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int fd;

	if (r->fd < 0 || strcmp(r->info->fabric_attr->prov_name, "net"))
		return 0;
	fd = bw_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, r->fd, &event)) {
		if (fd >= 0)
			close(fd);
		return bw_err(EMFILE, "open a rail of %s: watch its descriptor: close some files, "
			      "or raise 'ulimit -n'", r->network->name);
	}
	r->edges = fd;
	return 0;
}

/* A blocking read with the shortest time, a millisecond, takes the signal back. It may read an
 * event. */
static void take_signal_back(struct bw_fabric_rail *r)
{
	r->kept = fi_cq_sread(r->cq, &r->entry, 1, NULL, 1) == 1;
}

int bw_fabric_arm(struct bw_rail *rail)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	struct fid *fids[] = { &r->cq->fid };
	struct pollfd fd = { .fd = r->fd, .events = POLLIN };
	struct epoll_event event;

	if (r->fd < 0 || r->kept || fi_trywait(r->fabric, fids, 1))
		return -EAGAIN;
	if (r->edges >= 0) { /* it is told once: kept until somebody has polled */
		r->unpolled = epoll_wait(r->edges, &event, 1, 0) || r->unpolled;
		return r->unpolled ? -EAGAIN : 0;
	}
	if (poll(&fd, 1, 0) == 0) {
		r->readable = 0;
		return 0;
	}
	/* What there is was not polled yet, the first time; or it is a signal that stays. */
	if (r->readable++ >= 2)
		take_signal_back(r);
	return -EAGAIN;
}

void bw_fabric_interrupt(struct bw_rail *rail)
{
	fi_cq_signal(bw_fabric_rail(rail)->cq);
}
