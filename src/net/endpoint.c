/* SPDX-License-Identifier: BSD-3-Clause */
/* net/endpoint: rails, buffers of messages, who we are; opening and closing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/log.h"
#include "net/net_int.h"

#define TX_BUFFERS 64u
#define TX_GREETINGS 4u /* of the rails that carry no other messages */
#define LINE 64u
#define EXPECTED_PEERS 64u

/* ---- buffers ------------------------------------------------------------------------------- */

static int slab_new(struct bw_ep *ep, struct bw_netrail *r, unsigned n, size_t head_bytes,
		    struct bw_slab **out)
{
	size_t each = (ep->message_bytes + LINE - 1) & ~(size_t)(LINE - 1);
	struct bw_slab *s = bw_alloc(sizeof(*s));
	struct bw_reg_request request = { .bytes = n * each, .dmabuf = -1 };
	int ret = 0;

	if (!s)
		return bw_err(ENOMEM, "no memory for buffers of messages: free some");
	s->rail = r;
	s->n = n;
	s->heads = bw_alloc_array(n, head_bytes);
	if (!s->heads || bw_fault_hit(BW_FAULT_ALLOC) || posix_memalign(&s->memory, 4096, n * each))
		ret = bw_err(ENOMEM, "no memory for %u buffers of messages, %zu bytes: free "
			"some", n,
			     n * each);
	if (!ret) {
		memset(s->memory, 0, n * each);
		request.ptr = s->memory;
		bw_rail_lock(r);
		ret = BW_CALL(r, reg, &request, &s->reg);
		bw_rail_unlock(r);
	}
	if (ret) {
		free(s->memory);
		free(s->heads);
		free(s);
		return ret;
	}
	s->next = ep->slabs;
	ep->slabs = s;
	*out = s;
	return 0;
}

int bw_tx_add(struct bw_ep *ep, struct bw_netrail *r)
{
	unsigned n = r->index ? TX_GREETINGS : TX_BUFFERS;
	size_t each = (ep->message_bytes + LINE - 1) & ~(size_t)(LINE - 1);
	struct bw_slab *s;
	struct bw_tx *tx;
	int ret = slab_new(ep, r, n, sizeof(*tx), &s);

	if (ret)
		return ret;
	s->tx = true;
	tx = s->heads;
	for (unsigned i = 0; i < n; i++) {
		tx[i].token.kind = BW_TOKEN_TX;
		tx[i].rail = r;
		tx[i].at = (unsigned char *)s->memory + i * each;
		tx[i].desc = s->reg.desc;
		tx[i].next = r->tx;
		r->tx = &tx[i];
	}
	return 0;
}

void bw_rx_post(struct bw_ep *ep, struct bw_rx *rx)
{
	struct bw_netrail *r = &ep->rail[rx->rail];
	int ret;

	bw_rail_lock(r);
	ret = BW_CALL(r, recv, rx->at, ep->message_bytes, rx->desc, rx);
	bw_rail_unlock(r);
	if (!ret)
		return;
	rx->next = r->again;
	r->again = rx;
	bw_ep_attend(ep);
}

/* All of a list, which is empty then. */
static void post_all(struct bw_ep *ep, struct bw_rx **list)
{
	struct bw_rx *rx = *list;

	*list = NULL;
	while (rx) {
		struct bw_rx *next = rx->next;

		bw_rx_post(ep, rx);
		rx = next;
	}
}

void bw_rx_retry(struct bw_ep *ep, struct bw_netrail *r)
{
	post_all(ep, &r->again);
}

void bw_rx_renew(struct bw_ep *ep, struct bw_netrail *r)
{
	r->nspent = 0;
	post_all(ep, &r->spent);
}

/* The first rail, where messages come, has so many more than peers may need at once. */
void bw_rx_spent(struct bw_ep *ep, struct bw_rx *rx)
{
	struct bw_netrail *r = &ep->rail[rx->rail];

	rx->next = r->spent;
	r->spent = rx;
	if (++r->nspent == BW_NET_SPENT || r->index)
		bw_rx_renew(ep, r);
}

int bw_rx_add(struct bw_ep *ep, struct bw_netrail *r, unsigned n)
{
	size_t each = (ep->message_bytes + LINE - 1) & ~(size_t)(LINE - 1);
	unsigned have = r->spare < n ? r->spare : n;
	struct bw_slab *s;
	struct bw_rx *rx;
	int ret;

	if (n > have) {
		ret = slab_new(ep, r, n - have, sizeof(*rx), &s);
		if (ret)
			return ret;
		rx = s->heads;
		for (unsigned i = 0; i < n - have; i++) {
			rx[i].token.kind = BW_TOKEN_RX;
			rx[i].rail = (uint8_t)r->index;
			rx[i].at = (unsigned char *)s->memory + i * each;
			rx[i].desc = s->reg.desc;
			bw_rx_post(ep, &rx[i]);
		}
	}
	r->spare -= have;
	return 0;
}

static void slabs_unregister(struct bw_ep *ep)
{
	for (struct bw_slab *s = ep->slabs; s; s = s->next)
		BW_CALL(s->rail, unreg, &s->reg);
}

/* After the rails: until then the network may read and write them. */
static void slabs_free(struct bw_ep *ep)
{
	while (ep->slabs) {
		struct bw_slab *next = ep->slabs->next;

		free(ep->slabs->memory);
		free(ep->slabs->heads);
		free(ep->slabs);
		ep->slabs = next;
	}
}

/* ---- rails --------------------------------------------------------------------------------- */

/* "10.0.0.1:4000", "[::1]:0" without the port. */
static void host_part(const char *listen, char *out, size_t room)
{
	const char *end = strrchr(listen, ':'), *from = listen;

	if (*from == '[') {
		from++;
		end = strchr(from, ']');
	} else if (end && strchr(listen, ':') != end) {
		end = NULL; /* an IPv6 address alone */
	}
	snprintf(out, room, "%.*s", end ? (int)(end - from) : (int)strlen(from), from);
}

static int rail_open(struct bw_ep *ep, const char *interface)
{
	struct bw_netrail *r = &ep->rail[ep->nrails];
	struct bw_rail_options options = {
		.network = ep->options.network, .interface = interface, .peers = EXPECTED_PEERS,
		.message_bytes = ep->message_bytes,
	};
	int ret = bw_rail_open(&options, &r->rail);

	if (ret)
		return bw_err_prefix(ret, "network %s on %s", ep->options.network, interface);
	r->index = ep->nrails++;
	r->out_tail = &r->out;
	snprintf(r->interface, sizeof(r->interface), "%s", interface);
	bw_mutex_init(&r->lock);
	pthread_mutex_init(&r->polling, NULL);
	BW_CALL(r, info, &r->info);
	r->address_bytes = sizeof(r->address);
	ret = BW_CALL(r, address, r->address, &r->address_bytes);
	if (ret)
		return ret;
	if (strcmp(r->info.network, ep->rail[0].info.network))
		return bw_err(EINVAL, "interfaces %s: %s has network %s, and %s has %s: name the "
			      "one network that all "
				"have", ep->interfaces, interface, r->info.network,
			      ep->rail[0].info.network, ep->rail[0].info.network);
	return 0;
}

static unsigned rails_of(const struct bw_ep *ep, unsigned interfaces)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (ep->options.rails)
		return ep->options.rails;
	if (interfaces > 1)
		return interfaces < BW_WIRE_RAILS ? interfaces : BW_WIRE_RAILS;
	/* a rail that CPUs move bytes for gains from others where each has a thread of its own */
	if (cpus < 16 || !ep->options.threads || !strcmp(ep->options.network, "shm"))
		return 1;
	return ep->options.threads < 4 ? (unsigned)ep->options.threads : 4;
}

static int rails_open(struct bw_ep *ep)
{
	const char *word, *list = ep->interfaces;
	char name[BW_WIRE_RAILS][64];
	unsigned n = 0, want;
	size_t len;
	int ret;

	while (n < BW_WIRE_RAILS && bw_list_next(&list, &word, &len)) {
		if (len >= sizeof(name[0]))
			return bw_err(EINVAL, "interfaces \"%s\": '%.*s' is no address",
				      ep->interfaces, (int)len, word);
		snprintf(name[n++], sizeof(name[0]), "%.*s", (int)len, word);
	}
	if (!n)
		return bw_err(EINVAL, "interfaces \"%s\": it has no address: give some, or NULL",
			      ep->interfaces);
	want = rails_of(ep, n);
	ret = rail_open(ep, name[0]);
	if (!ret && !ep->options.rails && n == 1 && !ep->rail[0].info.by_cpu)
		want = 1; /* a card saturates by itself */
	for (unsigned i = 1; i < want && !ret; i++)
		ret = rail_open(ep, name[i % n]);
	return ret;
}

/* ---- who we are ---------------------------------------------------------------------------- */

static int control_open(struct bw_ep *ep)
{
	struct bw_wire_hello *hello = bw_alloc(sizeof(*hello));
	struct bw_control_options options = {
		.listen = ep->options.listen, .secret = ep->options.secret,
		.secret_bytes = ep->options.secret_bytes, .hello = hello,
		.hello_bytes = sizeof(*hello), .liveness_ns = ep->options.liveness_ns,
	};
	int ret;

	_Static_assert(sizeof(*hello) <= BW_HELLO_MAX, "fits");
	if (!hello)
		return bw_err(ENOMEM, "no memory: free some");
	hello->version = BW_WIRE_VERSION;
	hello->order = BW_WIRE_ORDER;
	hello->pid = (uint32_t)getpid();
	hello->eager = (uint32_t)ep->options.eager;
	hello->chunk = (uint32_t)ep->options.chunk;
	hello->nrails = ep->nrails;
	snprintf(hello->network, sizeof(hello->network), "%s", ep->rail[0].info.network);
	snprintf(hello->provider, sizeof(hello->provider), "%s", ep->rail[0].info.provider);
	gethostname(hello->host, sizeof(hello->host) - 1);
	for (unsigned i = 0; i < ep->nrails; i++) {
		hello->rail[i].bytes = (uint32_t)ep->rail[i].address_bytes;
		memcpy(hello->rail[i].at, ep->rail[i].address, ep->rail[i].address_bytes);
	}
	ret = bw_control_open(&options, &ep->control);
	free(hello);
	return ret;
}

const char *bw_ep_name(const struct bw_ep *ep)
{
	return bw_control_name(ep->control);
}

uint64_t bw_ep_counter(const struct bw_ep *ep, enum bw_net_counter c)
{
	return atomic_load_explicit(&ep->counter[c], memory_order_relaxed);
}

uint64_t bw_ep_refused(struct bw_ep *ep)
{
	uint64_t n;

	bw_ep_lock(ep);
	n = bw_control_refused(ep->control);
	bw_ep_unlock(ep);
	return n;
}

/* ---- open, close ---------------------------------------------------------------------------- */

static int tables(struct bw_ep *ep)
{
	ep->flows = bw_alloc_array(BW_NET_FLOWS, sizeof(ep->flows[0]));
	ep->generations = bw_alloc_array(BW_NET_FLOWS, sizeof(ep->generations[0]));
	if (!ep->flows || !ep->generations)
		return bw_err(ENOMEM, "no memory for an endpoint: free some");
	ep->next_flow = 1; /* 0 means none */
	return 0;
}

static int set_up(struct bw_ep *ep)
{
	int ret = tables(ep);

	if (ep->options.interfaces && *ep->options.interfaces)
		snprintf(ep->interfaces, sizeof(ep->interfaces), "%s", ep->options.interfaces);
	else
		host_part(ep->options.listen, ep->interfaces, sizeof(ep->interfaces));
	if (!ret)
		ret = rails_open(ep);
	if (!ret)
		ret = control_open(ep);
	if (!ret)
		ret = bw_tx_add(ep, &ep->rail[0]);
	if (!ret)
		ret = bw_rx_add(ep, &ep->rail[0], BW_NET_SPENT);
	if (!ret)
		ret = bw_ep_start_threads(ep);
	return ret;
}

int bw_ep_open(const struct bw_ep_options *options, struct bw_ep **out)
{
	struct bw_ep *ep = bw_alloc(sizeof(*ep));
	int ret;

	if (!ep)
		return bw_err(ENOMEM, "no memory for an endpoint: free some");
	ep->options = *options;
	for (unsigned i = 0; i < BW_NET_BEDS; i++)
		ep->bed[i].fd = -1;
	for (unsigned i = 0; i < BW_WIRE_RAILS; i++)
		ep->thread[i].bed.fd = -1;
	ep->message_bytes = sizeof(struct bw_wire) + sizeof(struct bw_wire_signal) +
			    sizeof(struct bw_wire_grant) + ep->options.eager;
	bw_mutex_init(&ep->lock);
	atomic_store(&ep->next_deadline, UINT64_MAX);
	ret = set_up(ep);
	ep->options.secret = NULL; /* the caller's; what needs it has its own */
	ep->options.listen = ep->options.network = ep->options.interfaces = NULL;
	if (ret) {
		bw_ep_shut(ep);
		bw_ep_free(ep);
		return ret;
	}
	*out = ep;
	return 0;
}

void bw_ep_shut(struct bw_ep *ep)
{
	atomic_store(&ep->shut, true);
	bw_ep_stop_threads(ep);
	pthread_mutex_lock(&ep->lock);
	for (struct bw_peer *p = ep->peers; p; p = p->next)
		bw_peer_fail(p, ECANCELED, "the endpoint was closed");
	pthread_mutex_unlock(&ep->lock);
	bw_ep_lock(ep);
	bw_ep_unlock(ep); /* what was posted meanwhile fails */
}

static void peers_free(struct bw_ep *ep)
{
	while (ep->peers) {
		ep->peers->refs = 1;
		bw_peer_unref(ep->peers);
	}
	free(ep->by_index);
}

static void flows_free(struct bw_ep *ep)
{
	while (ep->free_flows) {
		struct bw_flow *next = ep->free_flows->next;

		free(ep->free_flows);
		ep->free_flows = next;
	}
	for (int lost = 0; lost < 2; lost++) {
		struct bw_bulk **list = lost ? &ep->lost_bulks : &ep->free_bulks;

		while (*list) {
			struct bw_bulk *next = (*list)->next;

			free(*list);
			*list = next;
		}
	}
	free(ep->flows);
	free(ep->generations);
}

void bw_ep_free(struct bw_ep *ep)
{
	peers_free(ep);
	bw_rings_unregister(ep);
	slabs_unregister(ep);
	for (unsigned i = 0; i < ep->nrails; i++) {
		ep->rail[i].rail->engine->close(ep->rail[i].rail);
		pthread_mutex_destroy(&ep->rail[i].lock);
		pthread_mutex_destroy(&ep->rail[i].polling);
	}
	slabs_free(ep);
	bw_rings_free(ep);
	bw_control_close(ep->control);
	bw_words_free(ep);
	flows_free(ep);
	free(ep->region_by_id);
	free(ep->region_generations);
	bw_beds_close(ep);
	pthread_mutex_destroy(&ep->lock);
	free(ep);
}
