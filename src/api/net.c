/* SPDX-License-Identifier: BSD-3-Clause */
/* api: endpoints and peers. */
#include "api/net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(BW_PATH_STAGED == (int)BARWAY_PATH_STAGED &&
	       BW_PATH_DIRECT == (int)BARWAY_PATH_DIRECT, "as in the public header");

/* ---- handles --------------------------------------------------------------------------------- */

struct bw_net_object *bw_net_object_new(struct bw_endpoint_object *ep, enum bw_object kind)
{
	struct bw_net_object *o = bw_object_new(kind);

	if (!o) {
		bw_err(ENOMEM, "no memory for a handle: free some");
		return NULL;
	}
	o->kind = kind;
	o->ep = ep;
	return o;
}

void *bw_net_object_publish(struct bw_net_object *o)
{
	void *handle;

	pthread_mutex_lock(&o->ep->lock);
	o->next = o->ep->objects;
	if (o->next)
		o->next->prev = o;
	o->ep->objects = o;
	handle = bw_object_publish(o);
	pthread_mutex_unlock(&o->ep->lock);
	return handle;
}

void bw_net_object_unlist(struct bw_net_object *o)
{
	pthread_mutex_lock(&o->ep->lock);
	if (o->prev)
		o->prev->next = o->next;
	else if (o->ep->objects == o)
		o->ep->objects = o->next;
	if (o->next)
		o->next->prev = o->prev;
	pthread_mutex_unlock(&o->ep->lock);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static int read_options(const struct barway_endpoint_options *options, struct bw_ep_options *out)
{
	struct barway_endpoint_options o = { .threads = -1 };
	int ret = 0;

	if (options)
		ret = bw_struct_in(&o, sizeof(o), offsetof(struct barway_endpoint_options, rails),
				   options, "struct barway_endpoint_options");
	if (!ret && o.reserved)
		ret = bw_err(EINVAL, "options: the reserved field is not 0");
	*out = (struct bw_ep_options){
		.listen = o.listen, .network = o.network, .interfaces = o.interfaces,
		.secret = o.secret, .secret_bytes = o.secret_bytes, .path = o.path,
		.rails = o.rails, .threads = o.threads, .deadline_ns = o.deadline_ns,
		.liveness_ns = o.liveness_ns,
	};
	return ret;
}

static int open_with(struct bw_context *ctx, struct bw_ep_options *options,
		     struct barway_endpoint **out)
{
	struct bw_endpoint_object *o = bw_object_new(BW_OBJECT_ENDPOINT);
	int ret;

	if (!o)
		return bw_err(ENOMEM, "no memory for a handle: free some");
	ret = bw_ep_open(options, &o->ep);
	if (ret) {
		bw_object_free(o);
		return ret;
	}
	o->ctx = ctx;
	pthread_mutex_init(&o->lock, NULL);
	pthread_mutex_lock(&ctx->lock);
	o->next = ctx->endpoints;
	if (o->next)
		o->next->prev = o;
	ctx->endpoints = o;
	*out = bw_object_publish(o);
	pthread_mutex_unlock(&ctx->lock);
	return 0;
}

int barway_endpoint_open(struct barway_context *handle,
			 const struct barway_endpoint_options *options,
			 struct barway_endpoint **out)
{
	struct bw_context *ctx = bw_context_get(handle);
	struct bw_ep_options o;
	unsigned char secret[1025];
	int ret;

	if (!ctx)
		return bw_handle_stale(handle, "barway_endpoint_open", "context");
	ret = out ? read_options(options, &o) : bw_err(EINVAL, "out is NULL");
	if (!ret)
		ret = bw_ep_defaults(&o, secret, sizeof(secret));
	if (!ret)
		ret = open_with(ctx, &o, out);
	explicit_bzero(secret, sizeof(secret));
	return bw_err_prefix(ret, "barway_endpoint_open");
}

/* Takes the first object of @kind from the list and out of use. */
static struct bw_net_object *next_of(struct bw_endpoint_object *e, enum bw_object kind)
{
	struct bw_net_object *o;

	pthread_mutex_lock(&e->lock);
	for (o = e->objects; o && o->kind != kind; o = o->next)
		;
	if (o && !bw_object_retire(bw_object_handle(o), kind))
		o = NULL; /* whoever closes it at this moment ends it */
	pthread_mutex_unlock(&e->lock);
	if (o)
		bw_net_object_unlist(o);
	return o;
}

/* Retired, and on no list any more. */
static void end(struct bw_endpoint_object *e)
{
	struct bw_net_object *o;

	bw_ep_shut(e->ep);
	while ((o = next_of(e, BW_OBJECT_TRANSFER))) {
		bw_xfer_free(o->xfer);
		bw_object_free(o);
	}
	while ((o = next_of(e, BW_OBJECT_REGION))) {
		bw_region_drop(o->region);
		if (o->map)
			barway_unmap(o->map);
		bw_object_free(o);
	}
	while ((o = next_of(e, BW_OBJECT_PEER))) {
		bw_peer_close(o->peer);
		bw_object_free(o);
	}
	bw_ep_free(e->ep);
	pthread_mutex_destroy(&e->lock);
	bw_object_free(e);
}

int barway_endpoint_close(struct barway_endpoint *handle)
{
	struct bw_endpoint_object *e = bw_object_retire(handle, BW_OBJECT_ENDPOINT);

	if (!e)
		return bw_handle_stale(handle, "barway_endpoint_close", "endpoint");
	pthread_mutex_lock(&e->ctx->lock);
	if (e->prev)
		e->prev->next = e->next;
	else if (e->ctx->endpoints == e)
		e->ctx->endpoints = e->next;
	if (e->next)
		e->next->prev = e->prev;
	pthread_mutex_unlock(&e->ctx->lock);
	end(e);
	return 0;
}

void bw_context_close_endpoints(struct bw_context *ctx)
{
	struct bw_endpoint_object *e;

	for (;;) {
		pthread_mutex_lock(&ctx->lock);
		e = ctx->endpoints;
		if (e) {
			ctx->endpoints = e->next;
			if (e->next)
				e->next->prev = NULL;
		}
		pthread_mutex_unlock(&ctx->lock);
		if (!e)
			return;
		if (bw_object_retire(bw_object_handle(e), BW_OBJECT_ENDPOINT))
			end(e);
	}
}

int barway_endpoint_name(struct barway_endpoint *handle, char *name, size_t room)
{
	struct bw_endpoint_object *e = bw_endpoint_object_get(handle);
	const char *text;

	if (!e)
		return bw_handle_stale(handle, "barway_endpoint_name", "endpoint");
	text = bw_ep_name(e->ep);
	if (!name || strlen(text) >= room)
		return bw_err(ENOSPC, "barway_endpoint_name: %zu bytes are too few for \"%s\": "
			      "give 64", name ? room : 0, text);
	memcpy(name, text, strlen(text) + 1);
	return 0;
}

int barway_endpoint_progress(struct barway_endpoint *handle)
{
	struct bw_endpoint_object *e = bw_endpoint_object_get(handle);

	if (unlikely(!e))
		return bw_handle_stale(handle, "barway_endpoint_progress", "endpoint");
	return bw_ep_progress(e->ep);
}

int barway_net_counters_get(struct barway_endpoint *handle, struct barway_net_counters *counters)
{
	struct bw_endpoint_object *e = bw_endpoint_object_get(handle);
	struct barway_net_counters c = { 0 };

	if (!e)
		return bw_handle_stale(handle, "barway_net_counters_get", "endpoint");
	c.bytes_out = bw_ep_counter(e->ep, BW_N_BYTES_OUT);
	c.bytes_in = bw_ep_counter(e->ep, BW_N_BYTES_IN);
	c.eager_out = bw_ep_counter(e->ep, BW_N_EAGER_OUT);
	c.eager_in = bw_ep_counter(e->ep, BW_N_EAGER_IN);
	c.chunks_out = bw_ep_counter(e->ep, BW_N_CHUNKS_OUT);
	c.chunks_in = bw_ep_counter(e->ep, BW_N_CHUNKS_IN);
	c.done = bw_ep_counter(e->ep, BW_N_DONE);
	c.failed = bw_ep_counter(e->ep, BW_N_FAILED);
	c.again = bw_ep_counter(e->ep, BW_N_AGAIN);
	c.sleeps = bw_ep_counter(e->ep, BW_N_SLEEPS);
	c.wakes = bw_ep_counter(e->ep, BW_N_WAKES);
	c.peers_lost = bw_ep_counter(e->ep, BW_N_LOST);
	c.peers_refused = bw_ep_refused(e->ep);
	c.read_backs = bw_ep_counter(e->ep, BW_N_READ_BACKS);
	return bw_struct_out(counters, &c, sizeof(c),
			     offsetof(struct barway_net_counters, bytes_in),
			     "barway_net_counters_get: struct barway_net_counters");
}

/* ---- peers ----------------------------------------------------------------------------------- */

static int give_peer(struct bw_endpoint_object *e, struct bw_net_object *o, int ret,
		     struct barway_peer **out)
{
	(void)e;
	if (ret)
		bw_object_free(o);
	else
		*out = bw_net_object_publish(o);
	return ret;
}

int barway_peer_connect(struct barway_endpoint *handle, const char *name, uint64_t timeout_ns,
			struct barway_peer **out)
{
	struct bw_endpoint_object *e = bw_endpoint_object_get(handle);
	struct bw_net_object *o;
	int ret;

	if (!e)
		return bw_handle_stale(handle, "barway_peer_connect", "endpoint");
	if (!name || !out)
		return bw_err(EINVAL, "barway_peer_connect: %s is NULL", name ? "out" : "name");
	o = bw_net_object_new(e, BW_OBJECT_PEER);
	ret = o ? bw_peer_connect(e->ep, name, timeout_ns, &o->peer) : -ENOMEM;
	if (o)
		ret = give_peer(e, o, ret, out);
	return bw_err_prefix(ret, "barway_peer_connect(%.64s)", name);
}

int barway_peer_accept(struct barway_endpoint *handle, uint64_t timeout_ns,
		       struct barway_peer **out)
{
	struct bw_endpoint_object *e = bw_endpoint_object_get(handle);
	struct bw_net_object *o;
	int ret;

	if (!e)
		return bw_handle_stale(handle, "barway_peer_accept", "endpoint");
	if (!out)
		return bw_err(EINVAL, "barway_peer_accept: out is NULL");
	o = bw_net_object_new(e, BW_OBJECT_PEER);
	ret = o ? bw_peer_accept(e->ep, timeout_ns, &o->peer) : -ENOMEM;
	if (o)
		ret = give_peer(e, o, ret, out);
	return bw_err_prefix(ret, "barway_peer_accept");
}

int barway_peer_close(struct barway_peer *handle)
{
	struct bw_net_object *o = bw_object_retire(handle, BW_OBJECT_PEER);

	if (!o)
		return bw_handle_stale(handle, "barway_peer_close", "peer");
	bw_net_object_unlist(o);
	bw_peer_close(o->peer);
	bw_object_free(o);
	return 0;
}

int barway_peer_query(struct barway_peer *handle, struct barway_peer_info *info)
{
	struct bw_net_object *o = bw_peer_object_get(handle);
	struct barway_peer_info i = { 0 };
	struct bw_peer_view view;

	if (!o)
		return bw_handle_stale(handle, "barway_peer_query", "peer");
	bw_peer_view(o->peer, &view);
	snprintf(i.name, sizeof(i.name), "%s", view.name);
	snprintf(i.host, sizeof(i.host), "%s", view.host);
	i.pid = view.pid;
	i.alive = view.alive;
	snprintf(i.network, sizeof(i.network), "%.15s:%.15s", view.network, view.provider);
	i.rails = view.rails;
	snprintf(i.failure, sizeof(i.failure), "%s", view.failure);
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_peer_info, host),
			     "barway_peer_query: struct barway_peer_info");
}
