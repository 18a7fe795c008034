/* SPDX-License-Identifier: BSD-3-Clause */
/* net/imitation: rails and posting. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/fork.h"
#include "net/imitation_int.h"

static const struct bw_imitation usual = { .seed = 1, .again = 16, .late = 24 };
struct bw_imitation bw_imitation_how = { .seed = 1, .again = 16, .late = 24 };
struct imitation_rail *bw_imitation_rails;

pthread_mutex_t bw_imitation_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t state = 1, ids;

struct address {
	char magic[8];
	uint64_t id;
};

__attribute__((constructor)) static void register_fork(void)
{
	bw_fork_leaf_lock(&bw_imitation_lock);
}

static struct imitation_rail *mine(struct bw_rail *rail)
{
	return (struct imitation_rail *)rail;
}

uint64_t bw_imitation_random(uint64_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return below ? (state * 0x2545f4914f6cdd1dull >> 16) % below : 0;
}

struct imitation_rail *bw_imitation_find(uint64_t id)
{
	struct imitation_rail *r = bw_imitation_rails;

	while (r && r->id != id)
		r = r->next;
	return r;
}

void bw_imitation_tell(struct imitation_rail *r, struct note **note)
{
	if (!*note)
		return;
	(*note)->next = NULL;
	*r->last_note = *note;
	r->last_note = &(*note)->next;
	*note = NULL;
}

static void free_flight(struct flight *f)
{
	free(f->own);
	free(f->remote);
	free(f->taken);
	free(f);
}

void bw_imitation_drop(struct imitation_rail *r, struct flight **at)
{
	struct flight *f = *at;

	*at = f->next;
	if (!*at)
		r->last = at;
	r->nflights--;
	free_flight(f);
}

void bw_imitation_set(const struct bw_imitation *how)
{
	pthread_mutex_lock(&bw_imitation_lock);
	bw_imitation_how = how ? *how : usual;
	state = bw_imitation_how.seed * 0x9e3779b97f4a7c15ull + 1;
	pthread_mutex_unlock(&bw_imitation_lock);
}

void bw_imitation_kill(struct bw_rail *rail, bool loud)
{
	pthread_mutex_lock(&bw_imitation_lock);
	mine(rail)->dead = true;
	mine(rail)->loud = loud;
	pthread_mutex_unlock(&bw_imitation_lock);
}

/* ---- rails -------------------------------------------------------------------------------- */

extern const struct bw_net_engine bw_imitation_engine;

static int imitation_usable(struct bw_reason *why)
{
	bw_reason_set(why, "for tests, by name only");
	return 0;
}

static void imitation_networks(struct bw_reason *list)
{
	bw_reason_set(list, "imitation, imitation-rdma");
}

static int imitation_open(const struct bw_rail_options *options, struct bw_rail **out)
{
	struct imitation_rail *r;
	bool rdma = !strcmp(options->network, "imitation-rdma");

	if (!rdma && strcmp(options->network, "imitation"))
		return bw_err(ENOTSUP, "network %s: only imitations here, by their names",
			      options->network);
	r = bw_alloc(sizeof(*r));
	if (!r)
		return bw_err(ENOMEM, "network %s: no memory for a rail", options->network);
	r->rail.engine = &bw_imitation_engine;
	r->rdma = rdma;
	r->last = &r->flights;
	r->last_receive = &r->receives;
	r->last_note = &r->notes;
	pthread_mutex_lock(&bw_imitation_lock);
	r->id = ++ids;
	r->next = bw_imitation_rails;
	bw_imitation_rails = r;
	pthread_mutex_unlock(&bw_imitation_lock);
	*out = &r->rail;
	return 0;
}

#define FREE_LIST(list, type, how) do { \
	for (type *one_ = (list), *next_; one_; one_ = next_) { \
		next_ = one_->next; \
		how(one_); \
	} \
} while (0)

static void free_receive(struct receive *recv)
{
	free(recv->note);
	free(recv);
}

static void imitation_close(struct bw_rail *rail)
{
	struct imitation_rail *r = mine(rail), **at = &bw_imitation_rails;

	pthread_mutex_lock(&bw_imitation_lock);
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	pthread_mutex_unlock(&bw_imitation_lock);
	FREE_LIST(r->flights, struct flight, free_flight);
	FREE_LIST(r->receives, struct receive, free_receive);
	FREE_LIST(r->memories, struct memory, bw_imitation_free_memory);
	FREE_LIST(r->notes, struct note, free);
	free(r);
}

static void imitation_info(const struct bw_rail *rail, struct bw_rail_info *info)
{
	bool rdma = ((const struct imitation_rail *)rail)->rdma;

	memset(info, 0, sizeof(*info));
	snprintf(info->network, sizeof(info->network), "imitation%s", rdma ? "-rdma" : "");
	snprintf(info->provider, sizeof(info->provider), "imitation");
	info->inject_bytes = rdma ? 32 : 128;
	info->write_bytes = rdma ? 8u << 20 : UINT64_MAX;
	info->data_bytes = rdma ? 4 : 8;
	info->target_polls = !rdma;
	info->by_cpu = !rdma;
	info->reaches_gpu = rdma;
	info->fd = -1;
}

static int imitation_address(struct bw_rail *rail, void *address, size_t *n)
{
	struct address a = { .magic = "imitatn", .id = mine(rail)->id };

	if (*n < sizeof(a))
		return bw_err(ENOSPC, "address of an imitation: %zu bytes, and there is room for "
			      "%zu", sizeof(a), *n);
	memcpy(address, &a, sizeof(a));
	*n = sizeof(a);
	return 0;
}

static int imitation_connect(struct bw_rail *rail, const void *address, size_t n, uint64_t *peer)
{
	struct imitation_rail *to;
	struct address a;
	bool same;

	if (n != sizeof(a) || (memcpy(&a, address, n), strncmp(a.magic, "imitatn", 8)))
		return bw_err(EINVAL, "connect to an imitation: not an address of one");
	pthread_mutex_lock(&bw_imitation_lock);
	to = bw_imitation_find(a.id);
	same = to && to->rdma == mine(rail)->rdma;
	pthread_mutex_unlock(&bw_imitation_lock);
	if (!same)
		return bw_err(EINVAL, "connect to an imitation: it is not in this process, or of "
			      "the other kind");
	*peer = a.id;
	return 0;
}

static void imitation_disconnect(struct bw_rail *rail, uint64_t peer)
{
	struct imitation_rail *r = mine(rail);
	struct flight **at = &r->flights;
	struct note **note = &r->notes;

	pthread_mutex_lock(&bw_imitation_lock);
	while (*at)
		if ((*at)->target == peer)
			bw_imitation_drop(r, at);
		else
			at = &(*at)->next;
	while (*note) {
		struct note *one = *note;

		if (one->peer != peer) {
			note = &one->next;
			continue;
		}
		*note = one->next;
		free(one);
	}
	r->last_note = note;
	pthread_mutex_unlock(&bw_imitation_lock);
}

/* ---- posting ------------------------------------------------------------------------------ */

static struct note *new_note(enum bw_event_kind kind, uint64_t peer, void *ctx)
{
	struct note *note = bw_alloc(sizeof(*note));

	if (note) {
		note->peer = peer;
		note->event.kind = kind;
		note->event.ctx = ctx;
	}
	return note;
}

/* With the lock held: must the caller try again? */
static bool put_off(const struct imitation_rail *r, uint64_t peer)
{
	const struct imitation_rail *to = bw_imitation_find(peer);
	unsigned n = 0;

	if (r->dead || r->nflights >= FLIGHTS_MAX)
		return true;
	if (bw_imitation_how.again && !bw_imitation_random(bw_imitation_how.again))
		return true;
	for (const struct flight *f = r->flights; f; f = f->next)
		n += f->target == peer;
	return n >= (to && (!to->dead || to->loud) ? PEER_TAKES : DEAD_TAKES);
}

/* With the lock held. */
static void launch(struct imitation_rail *r, struct flight *f)
{
	f->local_in = (unsigned)bw_imitation_random(4);
	f->arrives_in = (unsigned)bw_imitation_random(bw_imitation_how.late + 1);
	if (f->own && bw_imitation_how.event_every &&
	    !bw_imitation_random(bw_imitation_how.event_every)) {
		f->own->event.error = bw_imitation_how.event_error;
		snprintf(f->own->event.text, sizeof(f->own->event.text), "a fault on demand");
		bw_imitation_tell(r, &f->own);
		free_flight(f);
		return;
	}
	*r->last = f;
	r->last = &f->next;
	r->nflights++;
}

/* Takes @f over. */
static int post(struct imitation_rail *r, struct flight *f)
{
	bool off;

	pthread_mutex_lock(&bw_imitation_lock);
	off = put_off(r, f->target);
	if (!off)
		launch(r, f);
	pthread_mutex_unlock(&bw_imitation_lock);
	if (!off)
		return 0;
	free_flight(f);
	return -EAGAIN;
}

static int no_memory(struct flight *f)
{
	if (f)
		free_flight(f);
	return bw_err(ENOMEM, "post with an imitation: no memory");
}

static int imitation_send(struct bw_rail *rail, uint64_t peer, const void *message, size_t bytes,
			  void *desc, void *ctx)
{
	struct imitation_rail *r = mine(rail);
	struct flight *f = bw_alloc(sizeof(*f));
	struct bw_rail_info info;
	int ret;

	if (!f)
		return no_memory(f);
	imitation_info(rail, &info);
	f->target = peer;
	f->kind = BW_EVENT_SENT;
	f->bytes = bytes;
	if (bytes <= info.inject_bytes) {
		f->taken = bw_alloc(bytes);
		if (!f->taken)
			return no_memory(f);
		if (bytes)
			memcpy(f->taken, message, bytes);
		return post(r, f);
	}
	ret = bw_imitation_locate(r, message, bytes, desc, &f->here);
	if (ret) {
		free_flight(f);
		return ret;
	}
	f->own = new_note(BW_EVENT_SENT, peer, ctx);
	return f->own ? post(r, f) : no_memory(f);
}

static int imitation_recv(struct bw_rail *rail, void *message, size_t room, void *desc, void *ctx)
{
	struct imitation_rail *r = mine(rail);
	struct receive *recv;
	char *where;
	int ret = bw_imitation_locate(r, message, room, desc, &where);

	if (ret)
		return ret;
	recv = bw_alloc(sizeof(*recv));
	if (!recv)
		return no_memory(NULL);
	recv->message = where;
	recv->room = room;
	recv->note = new_note(BW_EVENT_RECEIVED, 0, ctx);
	if (!recv->note) {
		free(recv);
		return no_memory(NULL);
	}
	pthread_mutex_lock(&bw_imitation_lock);
	*r->last_receive = recv;
	r->last_receive = &recv->next;
	pthread_mutex_unlock(&bw_imitation_lock);
	return 0;
}

/* A write or a read. */
static int post_rma(struct imitation_rail *r, struct flight *f, const void *memory,
		    const void *desc, void *ctx)
{
	int ret = bw_imitation_locate(r, memory, f->bytes, desc, &f->here);

	if (ret) {
		free_flight(f);
		return ret;
	}
	f->own = new_note(f->kind, f->target, ctx);
	return f->own ? post(r, f) : no_memory(f);
}

static int imitation_write(struct bw_rail *rail, uint64_t peer, const void *src, size_t bytes,
			   void *desc, uint64_t addr, uint64_t key, bool has_data, uint64_t data,
			   unsigned flags, void *ctx)
{
	struct imitation_rail *r = mine(rail);
	struct flight *f;

	if (r->rdma && has_data && data > UINT32_MAX)
		return bw_err(ENOTSUP, "write over imitation-rdma: a write brings 4 bytes of data");
	f = bw_alloc(sizeof(*f));
	if (!f)
		return no_memory(f);
	f->target = peer;
	f->kind = BW_EVENT_WRITTEN;
	f->bytes = bytes;
	f->addr = addr;
	f->key = key;
	f->flags = flags;
	if (has_data) {
		f->remote = new_note(BW_EVENT_REMOTE, 0, NULL);
		if (!f->remote)
			return no_memory(f);
		f->remote->event.data = data;
	}
	return post_rma(r, f, src, desc, ctx);
}

static int imitation_read(struct bw_rail *rail, uint64_t peer, void *dst, size_t bytes, void *desc,
			  uint64_t addr, uint64_t key, void *ctx)
{
	struct flight *f = bw_alloc(sizeof(*f));

	if (!f)
		return no_memory(f);
	f->target = peer;
	f->kind = BW_EVENT_READ;
	f->bytes = bytes;
	f->addr = addr;
	f->key = key;
	return post_rma(mine(rail), f, dst, desc, ctx);
}

static int imitation_poll(struct bw_rail *rail, struct bw_event *events, unsigned n)
{
	struct imitation_rail *r = mine(rail);
	unsigned got = 0;

	pthread_mutex_lock(&bw_imitation_lock);
	if (!r->dead)
		bw_imitation_move(r);
	while (got < n && r->notes && !r->dead) {
		struct note *note = r->notes;

		r->notes = note->next;
		if (!r->notes)
			r->last_note = &r->notes;
		events[got++] = note->event;
		free(note);
	}
	pthread_mutex_unlock(&bw_imitation_lock);
	return (int)got;
}

static int imitation_arm(struct bw_rail *rail)
{
	(void)rail;
	return -EAGAIN;
}

const struct bw_net_engine bw_imitation_engine = {
	.name = "imitation",
	.for_tests = true,
	.usable = imitation_usable,
	.networks = imitation_networks,
	.open = imitation_open,
	.close = imitation_close,
	.info = imitation_info,
	.address = imitation_address,
	.connect = imitation_connect,
	.disconnect = imitation_disconnect,
	.reg = bw_imitation_reg,
	.unreg = bw_imitation_unreg,
	.send = imitation_send,
	.recv = imitation_recv,
	.write = imitation_write,
	.read = imitation_read,
	.poll = imitation_poll,
	.arm = imitation_arm,
};
