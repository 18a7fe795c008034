/* SPDX-License-Identifier: BSD-3-Clause */
/* The end that does what it is told. Each order has one answer; NET_ECHO and NET_SINK a second. */
#include "tools/net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/options.h"

static int answer(struct net_end *e, int ret)
{
	struct net_answer *a = &e->notes->answer;

	a->error = ret;
	snprintf(a->text, sizeof(a->text), "%.511s", ret < 0 ? e->error : "");
	return net_tell(e, true);
}

static int setup(struct net_end *e, const struct net_order *o)
{
	struct barway_region_info region = { .size = sizeof(region) };
	struct barway_device_info device = { .size = sizeof(device) };
	struct net_answer *a = &e->notes->answer;
	int ret;

	if (o->bytes > NET_MOST)
		return net_failed(e, -EINVAL, "more memory than %u bytes is asked for", NET_MOST);
	ret = net_memory_open(e, o->bytes, o->host);
	if (ret < 0)
		return ret;
	ret = barway_region_query(e->region, &region);
	if (ret == 0)
		ret = barway_device_query(e->dev, &device);
	if (ret < 0)
		return net_barway(e, ret);
	a->data = e->key;
	a->notes = e->notes_key;
	a->direct = region.direct;
	a->soft = device.kind == BARWAY_DEVICE_SOFT;
	snprintf(a->device, sizeof(a->device), "%s", device.name);
	snprintf(a->rung, sizeof(a->rung), "%s", region.rung);
	snprintf(a->reason, sizeof(a->reason), "%s", region.reason);
	return 0;
}

/* ---- ping-pong ---------------------------------------------------------------------------- */

static int echo_puts(struct net_end *e, const struct net_order *o)
{
	const struct net_transfer what = {
		.operation = BARWAY_PUT, .path = o->path, .bytes = o->bytes,
		.key = &o->data, .signal = &o->notes,
	};
	struct barway_transfer *put = NULL;
	int ret = net_prepare(e, &what, &put);

	e->notes->signal = 0;
	ret = answer(e, ret) < 0 ? -EIO : ret;
	for (uint64_t i = 0; i < o->count && ret == 0; i++) {
		ret = net_wait_signal(e);
		if (ret == 0 && i)
			ret = net_wait(e, put, BARWAY_VISIBLE);
		if (ret == 0)
			ret = net_post(e, put);
	}
	if (ret == 0 && o->count)
		ret = net_wait(e, put, BARWAY_VISIBLE);
	net_free(put);
	return ret;
}

static int echo_sends(struct net_end *e, const struct net_order *o)
{
	struct net_transfer what = { .operation = BARWAY_RECV, .path = o->path, .bytes = o->bytes };
	struct barway_transfer *receive = NULL, *send = NULL;
	int ret = net_prepare(e, &what, &receive);

	what.operation = BARWAY_SEND;
	if (ret == 0)
		ret = net_prepare(e, &what, &send);
	if (ret == 0 && o->count)
		ret = net_post(e, receive);
	ret = answer(e, ret) < 0 ? -EIO : ret;
	for (uint64_t i = 0; i < o->count && ret == 0; i++) {
		ret = net_wait(e, receive, BARWAY_VISIBLE);
		/* the next one comes after the answer to this one has been taken */
		if (ret == 0 && i + 1 < o->count)
			ret = net_post(e, receive);
		if (ret == 0 && i)
			ret = net_wait(e, send, BARWAY_VISIBLE);
		if (ret == 0)
			ret = net_post(e, send);
	}
	if (ret == 0 && o->count)
		ret = net_wait(e, send, BARWAY_VISIBLE);
	net_free(receive);
	net_free(send);
	return ret;
}

/* ---- many at once ------------------------------------------------------------------------- */

static int sink(struct net_end *e, const struct net_order *o)
{
	struct net_transfer what = { .operation = BARWAY_RECV, .path = o->path, .bytes = o->bytes };
	struct barway_transfer *receive[NET_WINDOW_MAX] = { 0 };
	uint64_t posted = 0;
	int ret = 0;

	if (!o->slots || !o->window || o->window > NET_WINDOW_MAX)
		ret = net_failed(e, -EINVAL, "a window of %u is out of range", o->window);
	for (unsigned i = 0; ret == 0 && i < o->window; i++) {
		what.local = i % o->slots * o->bytes;
		ret = net_prepare(e, &what, &receive[i]);
		if (ret == 0 && posted < o->count) {
			ret = net_post(e, receive[i]);
			posted++;
		}
	}
	ret = answer(e, ret) < 0 ? -EIO : ret;
	for (uint64_t i = 0; i < o->count && ret == 0; i++) {
		ret = net_wait(e, receive[i % o->window], BARWAY_VISIBLE);
		if (ret == 0 && posted < o->count) {
			ret = net_post(e, receive[i % o->window]);
			posted++;
		}
	}
	for (unsigned i = 0; i < NET_WINDOW_MAX; i++)
		net_free(receive[i]);
	return ret;
}

/* ------------------------------------------------------------------------------------------- */

static int obey(struct net_end *e, const struct net_order *o)
{
	switch (o->kind) {
	case NET_SETUP:
		return setup(e, o);
	case NET_FILL:
		return net_memory_fill(e, o->seed, o->bytes);
	case NET_CHECK:
		return net_memory_check(e, o->seed, o->bytes);
	case NET_ECHO:
		return o->operation == BARWAY_PUT ? echo_puts(e, o) : echo_sends(e, o);
	case NET_SINK:
		return sink(e, o);
	case NET_BYE:
		return 0;
	default:
		return net_failed(e, -EPROTO, "an unknown order %u", o->kind);
	}
}

int net_serve(struct net_end *e)
{
	struct net_order o;
	int ret, sent;

	do {
		ret = net_expect(e, false, true);
		if (ret == 0)
			ret = net_await(e);
		if (ret < 0)
			return ret;
		o = e->notes->order;
		ret = obey(e, &o);
		sent = answer(e, ret);
	} while (sent == 0 && o.kind != NET_BYE);
	return sent;
}
