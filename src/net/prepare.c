/* SPDX-License-Identifier: BSD-3-Clause */
/* net/prepare: a transfer is checked and made, so that posting it has little left to do. */
#include <errno.h>
#include <stdlib.h>

#include "core/fault.h"
#include "net/net_int.h"

#define PARTS_MAX 65536u

static int check_parts(const struct bw_region *r, const struct bw_part *parts, size_t n,
		       uint64_t *bytes)
{
	if (!parts || !n || n > PARTS_MAX)
		return bw_err(EINVAL, "%zu parts: give 1 to %u", parts ? n : 0, PARTS_MAX);
	*bytes = 0;
	for (size_t i = 0; i < n; i++) {
		if (!bw_region_has(r, parts[i].local, parts[i].bytes))
			return bw_err(EINVAL, "part %zu: %llu bytes at offset %llu: the region has "
				      "%zu", i, (unsigned long long)parts[i].bytes,
				      (unsigned long long)parts[i].local, r->bytes);
		if (parts[i].remote > UINT64_MAX - parts[i].bytes)
			return bw_err(EINVAL, "part %zu: its remote range wraps", i);
		*bytes += parts[i].bytes;
	}
	return 0;
}

static int check_path(const struct bw_region *r, uint32_t path)
{
	if (path > BW_PATH_DIRECT)
		return bw_err(EINVAL, "path: %u is not a value of enum barway_path", path);
	if (path == BW_PATH_DIRECT && r->map && !r->direct)
		return bw_err(ENOTSUP, "the direct path is required, and this memory cannot have "
			      "it: %s", r->reason.text);
	return 0;
}

static int fill_keys(struct bw_xfer *t, const struct bw_xfer_options *o)
{
	bool one_sided = o->operation == BW_PUT || o->operation == BW_GET;

	if (one_sided && !o->key)
		return bw_err(EINVAL, "key is NULL: give the peer's region by its key");
	if (one_sided && !bw_key_parse(o->key, &t->head.region, t->head.secret))
		return bw_err(EACCES, "the key is no key: ship all its bytes, unchanged");
	if (!o->signal)
		return 0;
	if (o->operation != BW_PUT)
		return bw_err(EINVAL, "a signal is for puts");
	if (o->signal_offset % 8)
		return bw_err(EINVAL, "signal_offset: %llu is not a multiple of 8",
			      (unsigned long long)o->signal_offset);
	if (!bw_key_parse(o->signal, &t->signal.region, t->signal.secret))
		return bw_err(EACCES, "the signal's key is no key: ship all its bytes, unchanged");
	t->signal.offset = o->signal_offset;
	t->signal.value = o->signal_value;
	t->head.flags |= BW_WIRE_SIGNAL;
	return 0;
}

/* Do its bytes go in the first message? */
static bool fits(const struct bw_peer *p, const struct bw_xfer *t, uint64_t bytes, size_t n)
{
	uint64_t list = n > 1 ? n * sizeof(struct bw_wire_part) : 0;

	if (t->path == BW_PATH_DIRECT)
		return false; /* those are moved by CPUs */
	switch (t->flow.op) {
	case BW_PUT:
		return bytes + list <= p->eager;
	case BW_GET:
		return bytes <= p->eager && list <= p->eager;
	default:
		return bytes <= p->eager;
	}
}

static int fill_parts(struct bw_flow *f, const struct bw_part *parts, size_t n)
{
	bool source = f->side == BW_SOURCE;

	f->parts = n == 1 ? &f->one : bw_alloc_array(n, sizeof(f->one));
	if (!f->parts)
		return bw_err(ENOMEM, "no memory for %zu parts: free some", n);
	f->n = n;
	for (size_t i = 0; i < n; i++) {
		f->parts[i].from = source ? parts[i].local : parts[i].remote;
		f->parts[i].to = source ? parts[i].remote : parts[i].local;
		f->parts[i].bytes = parts[i].bytes;
	}
	return 0;
}

static int fill(struct bw_xfer *t, struct bw_peer *p, struct bw_region *r,
		const struct bw_part *parts, size_t n, const struct bw_xfer_options *o)
{
	static const uint8_t kinds[] = { 0, BW_WIRE_PUT, BW_WIRE_GET, BW_WIRE_SEND, 0 };
	struct bw_flow *f = &t->flow;
	uint64_t bytes = 0;
	int ret;

	if (o->operation < BW_PUT || o->operation > BW_RECV)
		return bw_err(EINVAL, "operation: %u is not a value of enum barway_operation",
			      o->operation);
	t->path = o->path ? o->path : p->ep->options.path;
	ret = check_path(r, t->path);
	if (!ret)
		ret = check_parts(r, parts, n, &bytes);
	if (!ret)
		ret = fill_keys(t, o);
	if (ret)
		return ret;
	f->op = (uint8_t)o->operation;
	f->side = o->operation == BW_PUT || o->operation == BW_SEND ? BW_SOURCE : BW_SINK;
	f->peer = p;
	f->region = r;
	f->xfer = t;
	f->bytes = t->bytes = bytes;
	f->flags = t->path == BW_PATH_DIRECT ? BW_WIRE_DIRECT :
		   t->path == BW_PATH_STAGED ? BW_WIRE_STAGED : 0;
	ret = fill_parts(f, parts, n);
	if (ret)
		return ret;
	t->fits = fits(p, t, bytes, n);
	t->tag = o->tag;
	t->ignore = o->ignore;
	t->deadline_ns = o->deadline_ns ? o->deadline_ns : p->ep->options.deadline_ns;
	t->head.kind = kinds[o->operation];
	t->head.flags |= f->flags;
	t->head.a = o->operation == BW_SEND ? o->tag : parts[0].remote;
	t->head.b = bytes;
	return 0;
}

int bw_xfer_prepare(struct bw_peer *p, struct bw_region *r, const struct bw_part *parts, size_t n,
		    const struct bw_xfer_options *options, struct bw_xfer **out)
{
	struct bw_ep *ep = p->ep;
	struct bw_xfer *t;
	int ret;

	if (r->ep != ep)
		return bw_err(EINVAL, "the peer and the region are of different endpoints");
	t = bw_alloc(sizeof(*t));
	if (!t)
		return bw_err(ENOMEM, "no memory for a transfer: free some");
	t->reached = BW_REACHED_NEW;
	t->fd = -1;
	ret = fill(t, p, r, parts, n, options);
	if (!ret) {
		bw_ep_lock(ep);
		ret = bw_flow_id(ep, &t->flow);
		if (!ret) {
			p->refs++;
			r->refs++;
		}
		bw_ep_unlock(ep);
	}
	if (ret) {
		if (t->flow.parts != &t->flow.one)
			free(t->flow.parts);
		free(t);
		return ret;
	}
	*out = t;
	return 0;
}
