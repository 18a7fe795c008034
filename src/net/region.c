/* SPDX-License-Identifier: BSD-3-Clause */
/* net/region: memory that transfers go to and come from, and the keys by which peers name it. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "copy/threads.h"
#include "core/fault.h"
#include "net/net_int.h"
#include "net/prove.h"

#define REGIONS_MAX 65536u
#define END_NS 50000000u
#define SHARED_LOAD 2048u /* bytes that one thread loads, whatever the plan */

/* ---- bytes by the CPU ------------------------------------------------------------------------ */

void bw_region_store(struct bw_region *r, uint64_t offset, const void *src, size_t n)
{
	struct bw_mapping *m = r->map;

	if (!m)
		memcpy(r->host + offset, src, n);
	else if (!bw_store_word(m->ptr + offset, src, n))
		m->store(m->ptr + offset, src, n);
}

/*
 * From where on another method is sooner, helper threads are: the others take a call to begin. Not
 * where the program has said by which method it wants its copies, unless by this one.
 */
bool bw_region_shares_load(const struct bw_region *r, size_t n)
{
	const struct bw_mapping *m = r->map;

	return m && m->copy_threads && n > SHARED_LOAD && n > m->cpu_from &&
	       (m->copy_method == BW_METHOD_AUTO || m->copy_method == BW_METHOD_THREADS);
}

void bw_region_load(struct bw_region *r, void *dst, uint64_t offset, size_t n)
{
	struct bw_mapping *m = r->map;
	const struct bw_copy copy = {
		.map = m, .offset = offset, .host = dst, .bytes = n, .direction = BW_FROM_GPU,
	};

	if (!m)
		memcpy(dst, r->host + offset, n);
	else if (bw_region_shares_load(r, n))
		bw_copy_threads.copy(&copy);
	else
		m->load(dst, m->ptr + offset, n);
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct key {
	char magic[8];
	uint64_t bytes, check;
	uint32_t id, reserved;
	unsigned char secret[16];
	uint64_t zero[2];
};
_Static_assert(sizeof(struct key) == BW_KEY_BYTES, "struct barway_key");

static const char magic[8] = "barway1";

/* Against keys that were damaged or are none; against forgers there is the secret. */
static uint64_t checksum(const struct key *key)
{
	const unsigned char *p = (const unsigned char *)key;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof(*key); i++)
		if (i < offsetof(struct key, check) || i >= offsetof(struct key, id))
			h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

bool bw_key_parse(const unsigned char *bytes, uint32_t *id, unsigned char secret[16])
{
	struct key key;

	memcpy(&key, bytes, sizeof(key));
	if (memcmp(key.magic, magic, sizeof(magic)) || key.check != checksum(&key))
		return false;
	*id = key.id;
	memcpy(secret, key.secret, sizeof(key.secret));
	return true;
}

int bw_region_key(struct bw_region *r, unsigned char out[BW_KEY_BYTES])
{
	struct key key = { .bytes = r->bytes, .id = r->id };

	if (!r->access)
		return bw_err(EACCES, "the region was opened for no peer: give BARWAY_REGION_PUT "
			      "or BARWAY_REGION_GET");
	memcpy(key.magic, magic, sizeof(magic));
	memcpy(key.secret, r->secret, sizeof(key.secret));
	key.check = checksum(&key);
	memcpy(out, &key, sizeof(key));
	return 0;
}

/* In a time that does not depend on where they differ. */
static bool same_secret(const unsigned char *a, const unsigned char *b)
{
	uint64_t x[2], y[2];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
}

struct bw_region *bw_region_find(struct bw_ep *ep, uint32_t id, const unsigned char *secret)
{
	unsigned place = id & 0xffff;
	struct bw_region *r = place < ep->nregion_ids ? ep->region_by_id[place] : NULL;

	return r && r->id == id && r->access && !r->closed && !r->closing &&
	       same_secret(r->secret, secret) ? r : NULL;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static int grow(struct bw_ep *ep)
{
	unsigned n = ep->nregion_ids ? 2 * ep->nregion_ids : 64;
	struct bw_region **list;
	uint16_t *generations;

	if (n > REGIONS_MAX)
		return bw_err(ENOSPC, "%u regions are open: close some", REGIONS_MAX);
	list = bw_alloc_array(n, sizeof(struct bw_region *));
	generations = bw_alloc_array(n, sizeof(*generations));
	if (!list || !generations) {
		free(list);
		free(generations);
		return bw_err(ENOMEM, "no memory for a region: free some");
	}
	if (ep->nregion_ids) {
		memcpy(list, ep->region_by_id, ep->nregion_ids * sizeof(struct bw_region *));
		memcpy(generations, ep->region_generations,
		       ep->nregion_ids * sizeof(*generations));
	}
	free(ep->region_by_id);
	free(ep->region_generations);
	ep->region_by_id = list;
	ep->region_generations = generations;
	ep->nregion_ids = n;
	return 0;
}

static int take_id(struct bw_ep *ep, struct bw_region *r)
{
	unsigned i = 0;
	int ret = 0;

	while (i < ep->nregion_ids && ep->region_by_id[i])
		i++;
	if (i == ep->nregion_ids)
		ret = grow(ep);
	if (ret)
		return ret;
	ep->region_by_id[i] = r;
	r->id = i | (uint32_t)++ep->region_generations[i] << 16;
	return 0;
}

/* ---- registration ---------------------------------------------------------------------------- */

static void unregister(struct bw_region *r)
{
	for (unsigned i = 0; i < r->nregs; i++) {
		struct bw_netrail *rail = &r->ep->rail[i];

		bw_rail_lock(rail);
		BW_CALL(rail, unreg, &r->reg[i]);
		bw_rail_unlock(rail);
	}
	r->nregs = 0;
}

static int register_on_rails(struct bw_region *r, const struct bw_reg_request *request)
{
	int ret = 0;

	while (r->nregs < r->ep->nrails && !ret) {
		struct bw_netrail *rail = &r->ep->rail[r->nregs];

		bw_rail_lock(rail);
		ret = BW_CALL(rail, reg, request, &r->reg[r->nregs]);
		bw_rail_unlock(rail);
		if (!ret)
			r->nregs++;
	}
	if (ret)
		unregister(r);
	return ret;
}

/* Host memory; where CPUs move the bytes each transfer registers its own range. */
static int open_host(struct bw_region *r)
{
	struct bw_reg_request request = { .ptr = r->host, .bytes = r->bytes, .dmabuf = -1,
					  .remote_write = true, .remote_read = true };

	snprintf(r->rung, sizeof(r->rung), "host");
	bw_reason_set(&r->reason, "host memory");
	r->direct = !r->ep->rail[0].info.by_cpu;
	return r->ep->rail[0].info.by_cpu ? 0 : register_on_rails(r, &request);
}

/* A dma-buf of the region for the time of its registration: what it leads to stays by itself. */
struct dmabuf {
	int fd; /* -1: none, and @why */
	uint64_t offset;
	struct bw_reason why;
};

static bool may_be_direct(const struct bw_region *r)
{
	return r->ep->rail[0].info.reaches_gpu && r->ep->options.path != BW_PATH_STAGED;
}

/* This and registering are not done under the endpoint's lock: both may take their time. */
static void export_dmabuf(const struct bw_region *r, struct dmabuf *d)
{
	if (r->map && may_be_direct(r) &&
	    r->dev->ops->export_dmabuf(r->dev, r->addr, r->bytes, &d->fd, &d->offset))
		bw_reason_set(&d->why, "%s", bw_err_text());
}

/* The lowest rung of those that the rails got. */
static const char *lowest_rung(const struct bw_region *r)
{
	for (unsigned i = 0; i < r->nregs; i++)
		if (strcmp(r->reg[i].rung, "dmabuf"))
			return r->reg[i].rung;
	return "dmabuf";
}

/* Each rail's rung, with data. */
static int prove(const struct bw_region *r)
{
	int ret = 0;

	for (unsigned i = 0; i < r->nregs && !ret; i++) {
		const struct bw_netrail *rail = &r->ep->rail[i];

		ret = bw_prove(rail->info.network, rail->interface, r->dev,
			       r->map->win->segs[0].owner, r->reg[i].rung);
	}
	return ret;
}

static int try_direct(struct bw_region *r, const struct dmabuf *d)
{
	struct bw_reason passed = { "" }, unproved;
	struct bw_reg_request request = {
		.ptr = (void *)(uintptr_t)r->addr, .bytes = r->bytes, .gpu = true,
		.dmabuf = d->fd, .dmabuf_offset = d->fd < 0 ? 0 : d->offset,
		.no_dmabuf = d->why.text, .passed = &passed,
		.remote_write = true, .remote_read = true,
	};
	int ret;

	while (!(ret = register_on_rails(r, &request)) && (ret = prove(r)) && request.dmabuf >= 0) {
		unregister(r);
		bw_reason_set(&unproved, "%s", bw_err_text());
		request.no_dmabuf = unproved.text;
		request.dmabuf = -1;
	}
	if (ret) {
		unregister(r);
		return ret;
	}
	r->direct = true;
	snprintf(r->rung, sizeof(r->rung), "%s", lowest_rung(r));
	bw_reason_set(&r->reason, "the network card reaches it: %s%s%s", r->rung,
		      passed.text[0] ? "; " : "", passed.text);
	return 0;
}

/* GPU memory: the ladder, each rung's refusal told. */
static int open_gpu(struct bw_region *r, const struct dmabuf *d)
{
	const struct bw_rail_info *info = &r->ep->rail[0].info;
	int ret = -ENOTSUP;

	snprintf(r->rung, sizeof(r->rung), "staged");
	if (!info->reaches_gpu)
		bw_reason_set(&r->reason, "network %s: CPUs move its bytes, no card reaches GPU "
			      "memory: use verbs, efa or cxi", info->network);
	else if (r->ep->options.path == BW_PATH_STAGED)
		bw_reason_set(&r->reason, "the endpoint was opened for the staged path");
	else
		ret = try_direct(r, d);
	if (ret && may_be_direct(r))
		bw_reason_set(&r->reason, "%s", bw_err_text());
	if (ret && r->ep->options.path == BW_PATH_DIRECT)
		return bw_err(ENOTSUP, "the endpoint requires the direct path, and this memory "
			      "cannot have it: %s", r->reason.text);
	return 0;
}

/*
 * Is all of it mapped, and may peers that put write it? What a peer moves later would else end this
 * process with a signal.
 */
static int is_there(const unsigned char *p, size_t bytes, bool write)
{
	unsigned long at = (unsigned long)(uintptr_t)p, end = at + bytes, from, to;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], may[8];
	int ret = 0;

	if (!maps)
		return 0; /* cannot tell */
	while (at < end && !ret && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, may) != 3 || to <= at)
			continue;
		if (from > at)
			break;
		if (may[0] != 'r' || (write && may[1] != 'w'))
			ret = bw_err(EFAULT, "it may not be %s at 0x%lx", may[0] != 'r' ? "read" :
				     "written, as BARWAY_REGION_PUT lets peers do,", at);
		at = to;
	}
	fclose(maps);
	if (!ret && at < end)
		ret = bw_err(EFAULT, "nothing is there at 0x%lx: give memory that is mapped", at);
	return ret;
}

/* ---- open, close ----------------------------------------------------------------------------- */

static void link_region(struct bw_region *r)
{
	r->next = r->ep->regions;
	if (r->next)
		r->next->prev = r;
	r->ep->regions = r;
}

/* The one that all of it is on, or NULL. */
static struct bw_device *sole_device(const struct bw_mapping *map)
{
	struct bw_device *dev = map->win->pieces[0].seg.dev;

	for (unsigned i = 1; i < map->win->npieces; i++)
		if (map->win->pieces[i].seg.dev != dev)
			return NULL;
	return dev;
}

/*
 * Where the GPU promises order, whoever is told that the bytes are there, by a store through the
 * mapping, by host memory or by the launch of a kernel, is told behind them. Not where the CPU and
 * a network card reach the GPU by different ways.
 */
static bool reads_back(const struct bw_region *r)
{
	const struct bw_window *win = r->map->win;

	if (r->ep->options.read_back != BW_READ_BACK_AUTO)
		return r->ep->options.read_back == BW_READ_BACK_ALWAYS;
	for (unsigned i = 0; i < win->npieces; i++)
		if (!win->pieces[i].seg.dev->ordered ||
		    (r->direct && win->pieces[i].seg.dev->coherent))
			return true;
	return false;
}

int bw_region_open(struct bw_ep *ep, uint64_t addr, size_t bytes, uint32_t access,
		   struct bw_mapping *map, struct bw_device *dev, struct bw_region **out)
{
	struct bw_sentence kept;
	struct dmabuf dmabuf = { .fd = -1 };
	struct bw_region *r;
	int ret;

	bw_err_keep(&kept);
	if (access & ~(BW_REGION_PUT | BW_REGION_GET))
		return bw_err(EINVAL, "access 0x%x: only BARWAY_REGION_PUT and BARWAY_REGION_GET "
			      "are known", access);
	r = bw_alloc(sizeof(*r));
	if (!r)
		return bw_err(ENOMEM, "no memory for a region: free some");
	r->ep = ep;
	r->addr = addr;
	r->bytes = bytes;
	r->access = access;
	r->map = map;
	r->dev = dev;
	r->host = map ? map->ptr : (unsigned char *)(uintptr_t)addr;
	ret = map ? 0 : is_there(r->host, bytes, access & BW_REGION_PUT);
	if (!ret && getrandom(r->secret, sizeof(r->secret), 0) != (ssize_t)sizeof(r->secret))
		ret = bw_err(EIO, "the system gives no random bytes: %s", strerror(errno));
	if (!ret)
		export_dmabuf(r, &dmabuf);
	if (!ret)
		ret = map ? open_gpu(r, &dmabuf) : open_host(r);
	if (!ret && map) {
		r->sole = sole_device(map);
		r->read_back = reads_back(r);
	}
	bw_ep_lock(ep);
	if (!ret)
		ret = take_id(ep, r);
	if (!ret)
		link_region(r);
	else
		unregister(r);
	bw_ep_unlock(ep);
	if (dmabuf.fd >= 0)
		close(dmabuf.fd);
	if (ret) {
		free(r);
		return ret;
	}
	bw_err_put_back(&kept);
	*out = r;
	return 0;
}

static void unref(struct bw_region *r)
{
	if (r->closed && !r->refs)
		free(r);
}

void bw_region_unref(struct bw_region *r)
{
	r->refs--;
	unref(r);
}

static void shut(struct bw_region *r)
{
	r->closed = true;
	r->ep->region_by_id[r->id & 0xffff] = NULL;
	if (r->prev)
		r->prev->next = r->next;
	else
		r->ep->regions = r->next;
	if (r->next)
		r->next->prev = r->prev;
	unregister(r);
	explicit_bzero(r->secret, sizeof(r->secret));
	r->map = NULL;
	r->host = NULL;
	unref(r);
}

/* What peers have begun may only lack that somebody here looks. They begin nothing meanwhile. */
static void let_peers_end(struct bw_region *r)
{
	uint64_t until_ns = bw_now_ns() + END_NS;
	struct bw_idle idle = { 0 };
	struct bw_ep *ep = r->ep;
	bool busy = true;

	bw_ep_lock(ep);
	r->closing = true;
	bw_ep_unlock(ep);

	while (busy && bw_now_ns() < until_ns) {
		bw_ep_lock(ep);
		busy = r->uses && !r->own;
		bw_ep_unlock(ep);
		if (busy)
			bw_ep_step(ep, &idle, until_ns);
	}
}

int bw_region_close(struct bw_region *r)
{
	struct bw_ep *ep = r->ep;
	int ret = 0;

	let_peers_end(r);
	bw_ep_lock(ep);
	if (r->own)
		ret = bw_err(EBUSY, "%u transfers of the region are under way: wait for them, or "
			     "cancel them", r->uses);
	else if (r->uses)
		ret = bw_err(EBUSY, "%u transfers of peers' use the region: try again, or close "
			     "the peers with barway_peer_close()", r->uses);
	if (ret)
		r->closing = false;
	else
		shut(r);
	bw_ep_unlock(ep);
	return ret;
}

void bw_region_drop(struct bw_region *r)
{
	struct bw_ep *ep = r->ep;

	pthread_mutex_lock(&ep->lock);
	shut(r);
	pthread_mutex_unlock(&ep->lock);
}

void bw_region_view(const struct bw_region *r, struct bw_region_view *view)
{
	view->addr = r->addr;
	view->bytes = r->bytes;
	view->access = r->access;
	view->direct = r->direct;
	view->rung = r->rung;
	view->reason = r->reason.text;
}
