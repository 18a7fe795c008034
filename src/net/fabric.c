/* SPDX-License-Identifier: BSD-3-Clause */
/* net/fabric: rails over libfabric: opening, addresses, peers. */
#include "net/fabric.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/log.h"

#define ADDRESS_MAX 256u
#define OPS_MAX 16384u /* operations under way, at first */
#define NAMES 256u     /* that are tried where some are taken */

static int fabric_usable(struct bw_reason *why)
{
	const struct bw_fabric_lib *lib = bw_fabric_lib(why);

	if (!lib)
		return bw_err(ENOTSUP, "%s", why->text);
	bw_reason_set(why, "libfabric %u.%u", FI_MAJOR(lib->version()), FI_MINOR(lib->version()));
	return 0;
}

static void fabric_list(struct bw_reason *list)
{
	const struct bw_fabric_lib *lib = bw_fabric_lib(NULL);

	list->text[0] = 0;
	if (!lib)
		return;
	bw_fabric_environment(0);
	bw_fabric_networks(lib, list);
}

static void close_fid(struct fid *fid, const char *what)
{
	int ret = fid ? fi_close(fid) : 0;

	if (ret)
		bw_log(BW_LOG_DEBUG, "close rail: libfabric keeps its %s: %d", what, ret);
}

static bool is_rxm(const struct bw_fabric_rail *r)
{
	return r->info && strstr(r->info->fabric_attr->prov_name, "ofi_rxm");
}

/*
 * ofi_rxm closes a connection, then looks at what it has received on it and answers there: it
 * crashes. So all of that is looked at before. One call takes one message, and says nothing when it
 * is one that nobody waits for: as many calls as 16 peers' connections have receives (128 each).
 */
static void look_at_all(struct bw_fabric_rail *r)
{
	struct bw_event events[16];
	unsigned calls = 0, nothing = 0;

	while (nothing < 16 * 128 && calls++ < 65536) {
		int n = bw_fabric_poll(&r->rail, events, 16);

		if (n < 0)
			break;
		nothing = n ? 0 : nothing + 1;
	}
}

static void fabric_close(struct bw_rail *rail)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);

	if (r->ep && r->cq && is_rxm(r))
		look_at_all(r);
	if (r->edges >= 0)
		close(r->edges);
	close_fid(r->ep ? &r->ep->fid : NULL, "endpoint");
	close_fid(r->cq ? &r->cq->fid : NULL, "queue");
	close_fid(r->av ? &r->av->fid : NULL, "addresses");
	close_fid(r->domain ? &r->domain->fid : NULL, "domain");
	close_fid(r->fabric ? &r->fabric->fid : NULL, "fabric");
	if (r->info)
		r->lib->freeinfo(r->info);
	while (r->blocks) {
		struct bw_fabric_ops_block *next = r->blocks->next;

		free(r->blocks);
		r->blocks = next;
	}
	free(r);
}

static int failed(const struct bw_fabric_rail *r, const char *call, int ret)
{
	return bw_err(bw_fabric_errno(ret), "open a rail of %s (%s): %s: %s%s", r->network->name,
		      r->info->fabric_attr->prov_name, call, r->lib->strerror(-ret),
		      ret == -FI_ENOMEM && !r->network->by_cpu ?
		      ": locked memory may be limited: raise ulimit -l" : "");
}

/* With a descriptor where that costs nothing; sleeping is polling where there is none. */
static int open_queue(struct bw_fabric_rail *r, size_t ops)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_DATA,
		.size = r->network->by_cpu ? ops : 0, /* else the provider counts better */
		.wait_obj = r->network->waits ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	int ret = fi_cq_open(r->domain, &attr, &r->cq, NULL);

	if (ret && r->network->waits) {
		attr.wait_obj = FI_WAIT_NONE;
		ret = fi_cq_open(r->domain, &attr, &r->cq, NULL);
	}
	if (!ret && attr.wait_obj == FI_WAIT_FD && fi_control(&r->cq->fid, FI_GETWAIT, &r->fd))
		r->fd = -1;
	return ret;
}

/* *@call: which one failed. */
static int open_end(struct bw_fabric_rail *r, const char **call)
{
	int ret = fi_endpoint(r->domain, r->info, &r->ep, NULL);

	*call = "fi_endpoint";
	if (ret)
		return ret;
	*call = "fi_ep_bind";
	ret = fi_ep_bind(r->ep, &r->av->fid, 0);
	if (!ret)
		ret = fi_ep_bind(r->ep, &r->cq->fid, FI_TRANSMIT | FI_RECV);
	if (ret)
		return ret;
	*call = "fi_enable";
	return fi_enable(r->ep);
}

/*
 * shm names its memory by the process's number and a count. What a process of the same number has
 * left, when it was killed, is in the way then: the next one in the count is not.
 */
static int open_free_end(struct bw_fabric_rail *r, const char **call)
{
	int ret;

	for (unsigned i = 0; (ret = open_end(r, call)) == -FI_EBUSY && i < NAMES; i++) {
		fi_close(&r->ep->fid);
		r->ep = NULL;
	}
	return ret;
}

static int open_objects(struct bw_fabric_rail *r, unsigned peers, size_t ops)
{
	struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC, .count = peers };
	const char *call = "fi_fabric";
	int ret = r->lib->fabric(r->info->fabric_attr, &r->fabric, NULL);

#define THEN(name, expression) do { \
	if (!ret) { \
		call = name; \
		ret = (expression); \
	} \
} while (0)
	THEN("fi_domain", fi_domain(r->fabric, r->info, &r->domain, NULL));
	THEN("fi_cq_open", open_queue(r, ops));
	THEN("fi_av_open", fi_av_open(r->domain, &av_attr, &r->av, NULL));
#undef THEN
	if (!ret)
		ret = open_free_end(r, &call);
	return ret ? failed(r, call, ret) : 0;
}

static size_t ops_for(const struct fi_info *info, unsigned peers)
{
	size_t n = info->tx_attr->size + info->rx_attr->size;

	n *= peers < 1 ? 1 : peers > 8 ? 8 : peers;
	return n < 512 ? 512 : n > OPS_MAX ? OPS_MAX : n;
}

static int set_up(struct bw_fabric_rail *r, const struct bw_rail_options *options)
{
	size_t ops = ops_for(r->info, options->peers);
	struct bw_fabric_handlers mine;
	int ret;

	r->inject_bytes = r->info->tx_attr->inject_size;
	r->write_bytes = r->info->ep_attr->max_msg_size;
	r->data_bytes = r->info->domain_attr->cq_data_size >= 8 ? 8 :
			r->info->domain_attr->cq_data_size >= 4 ? 4 : 0;
	r->data_mask = r->data_bytes == 8 ? UINT64_MAX : r->data_bytes ? UINT32_MAX : 0;
	if (options->message_bytes > r->write_bytes)
		return bw_err(EMSGSIZE, "open a rail of %s: messages of %zu bytes: it has at most "
			      "%llu", r->network->name, options->message_bytes,
			      (unsigned long long)r->write_bytes);
	ret = bw_fabric_add_ops(r, ops);
	if (ret)
		return ret;
	bw_fabric_keep_handlers(&mine);
	ret = open_objects(r, options->peers, ops);
	bw_fabric_put_handlers_back(&mine);
	return ret ? ret : bw_fabric_watch(r);
}

extern const struct bw_net_engine bw_fabric_engine;

static int fabric_open(const struct bw_rail_options *options, struct bw_rail **out)
{
	struct bw_reason why;
	const struct bw_fabric_lib *lib = bw_fabric_lib(&why);
	struct bw_fabric_rail *r;
	int ret;

	if (!lib)
		return bw_err(ENOTSUP, "network %s: %s", options->network, why.text);
	r = bw_alloc(sizeof(*r));
	if (!r)
		return bw_err(ENOMEM, "network %s: no memory for a rail", options->network);
	r->rail.engine = &bw_fabric_engine;
	r->lib = lib;
	r->fd = r->edges = -1;
	bw_fabric_environment(options->peers);
	ret = bw_fabric_choose(lib, options, &r->network, &r->info);
	if (!ret)
		ret = set_up(r, options);
	if (ret) {
		fabric_close(&r->rail);
		return ret;
	}
	*out = &r->rail;
	return 0;
}

static void fabric_info(const struct bw_rail *rail, struct bw_rail_info *info)
{
	const struct bw_fabric_rail *r = (const struct bw_fabric_rail *)rail;

	memset(info, 0, sizeof(*info));
	snprintf(info->network, sizeof(info->network), "%s", r->network->name);
	snprintf(info->provider, sizeof(info->provider), "%s", r->info->fabric_attr->prov_name);
	info->inject_bytes = r->inject_bytes;
	info->write_bytes = r->write_bytes;
	info->data_bytes = r->data_bytes;
	info->target_polls = r->network->target_polls;
	info->by_cpu = r->network->by_cpu;
	info->reaches_gpu = !r->network->by_cpu;
	info->fd = r->edges >= 0 ? r->edges : r->fd;
}

static int fabric_address(struct bw_rail *rail, void *address, size_t *n)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	unsigned char name[ADDRESS_MAX];
	size_t len = sizeof(name);
	int ret = fi_getname(&r->ep->fid, name, &len);

	if (ret)
		return bw_err(bw_fabric_errno(ret), "address of a rail of %s: %s", r->network->name,
			      r->lib->strerror(-ret));
	if (len > *n)
		return bw_err(ENOSPC, "address of a rail of %s: %zu bytes, and there is room for "
			      "%zu", r->network->name, len, *n);
	memcpy(address, name, len);
	*n = len;
	return 0;
}

/* Of names the provider finds the end itself; of all others it reads as many bytes as ours have. */
static int fabric_connect(struct bw_rail *rail, const void *address, size_t n, uint64_t *peer)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	unsigned char mine[ADDRESS_MAX] = { 0 }, theirs[ADDRESS_MAX + 1] = { 0 };
	size_t len = sizeof(mine);
	fi_addr_t addr = FI_ADDR_NOTAVAIL;
	int ret = fabric_address(rail, mine, &len);

	if (ret)
		return ret;
	if (!n || n > ADDRESS_MAX || (r->info->addr_format != FI_ADDR_STR && n != len))
		return bw_err(EINVAL, "connect over %s: an address of %zu bytes, where ours has "
			      "%zu: both ends need the same network, and the same version of IP",
			      r->network->name, n, len);
	memcpy(theirs, address, n);
	ret = fi_av_insert(r->av, theirs, 1, &addr, 0, NULL);
	if (ret != 1 || addr == FI_ADDR_NOTAVAIL)
		return bw_err(ret < 0 ? bw_fabric_errno(ret) : EINVAL,
			      "connect over %s: libfabric does not take the address%s%s",
			      r->network->name, ret < 0 ? ": " : "",
			      ret < 0 ? r->lib->strerror(-ret) : "");
	*peer = addr;
	return 0;
}

static void fabric_disconnect(struct bw_rail *rail, uint64_t peer)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	fi_addr_t addr = peer;
	int ret;

	/* shm would wait for ever for what the old owner of a number has not finished. */
	if (bw_fabric_forget_ops(r, peer) && r->network->keeps_numbers)
		return;
	/* As in look_at_all(), which cannot be done here: the events of other peers would be lost.
	 * So the connection stays, until the peer's end or ours is closed. */
	if (is_rxm(r))
		return;
	ret = fi_av_remove(r->av, &addr, 1, 0);
	if (ret)
		bw_log(BW_LOG_DEBUG, "disconnect over %s: %s", r->network->name,
		       r->lib->strerror(-ret));
}

const struct bw_net_engine bw_fabric_engine = {
	.name = "libfabric",
	.usable = fabric_usable,
	.networks = fabric_list,
	.open = fabric_open,
	.close = fabric_close,
	.info = fabric_info,
	.address = fabric_address,
	.connect = fabric_connect,
	.disconnect = fabric_disconnect,
	.reg = bw_fabric_reg,
	.unreg = bw_fabric_unreg,
	.send = bw_fabric_send,
	.recv = bw_fabric_recv,
	.write = bw_fabric_write,
	.read = bw_fabric_read,
	.poll = bw_fabric_poll,
	.arm = bw_fabric_arm,
	.interrupt = bw_fabric_interrupt,
};
