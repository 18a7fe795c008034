/* SPDX-License-Identifier: BSD-3-Clause */
/* net/stage: rings of pinned memory, and the copies between them and regions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/log.h"
#include "copy/plan.h"
#include "net/net_int.h"

#define FEW 16u

/* ---- rings ---------------------------------------------------------------------------------- */

static size_t ring_bytes(const struct bw_ep *ep)
{
	return ep->options.chunk * ep->options.depth;
}

static int ring_memory(struct bw_ep *ep, struct bw_ring *ring)
{
	struct bw_sentence kept;
	void *memory = NULL;
	uint64_t addr;

	bw_err_keep(&kept);
	if (ring->dev && !ring->dev->ops->host_alloc(ring->dev, ring_bytes(ep), &memory, &addr)) {
		ring->at = memory;
		return 0;
	}
	if (ring->dev)
		bw_log(BW_LOG_WARN, "pinned memory for transfers, %zu bytes: %s: plain memory is "
		       "used instead, which is slower", ring_bytes(ep), bw_err_text());
	bw_err_put_back(&kept);
	if (bw_fault_hit(BW_FAULT_ALLOC) || posix_memalign(&memory, 4096, ring_bytes(ep)))
		return bw_err(ENOMEM, "no memory for chunks, %zu bytes: free some", ring_bytes(ep));
	ring->plain = true;
	ring->at = memory;
	return 0;
}

static void ring_unregister(struct bw_ep *ep, struct bw_ring *ring)
{
	for (unsigned i = 0; i < ring->nregs; i++) {
		struct bw_netrail *r = &ep->rail[i];

		bw_rail_lock(r);
		BW_CALL(r, unreg, &ring->reg[i]);
		bw_rail_unlock(r);
	}
	ring->nregs = 0;
}

static void ring_free(struct bw_ring *ring)
{
	if (ring->at && ring->plain)
		free(ring->at);
	else if (ring->at)
		ring->dev->ops->host_free(ring->at);
	free(ring);
}

static int ring_register(struct bw_ep *ep, struct bw_ring *ring)
{
	struct bw_reg_request request = {
		.ptr = ring->at, .bytes = ring_bytes(ep), .dmabuf = -1, .remote_write = ring->sink,
	};
	int ret = 0;

	while (ring->nregs < ep->nrails && !ret) {
		struct bw_netrail *r = &ep->rail[ring->nregs];

		bw_rail_lock(r);
		ret = BW_CALL(r, reg, &request, &ring->reg[ring->nregs]);
		bw_rail_unlock(r);
		if (!ret)
			ring->nregs++;
	}
	return ret;
}

static int ring_new(struct bw_ep *ep, struct bw_device *dev, bool sink, struct bw_ring **out)
{
	struct bw_ring *ring = bw_alloc(sizeof(*ring));
	int ret;

	if (!ring)
		return bw_err(ENOMEM, "no memory for chunks: free some");
	ring->dev = dev;
	ring->sink = sink;
	ret = ring_memory(ep, ring);
	if (!ret)
		ret = ring_register(ep, ring);
	if (ret) {
		ring_unregister(ep, ring);
		ring_free(ring);
		return ret;
	}
	ep->nrings[sink]++;
	*out = ring;
	return 0;
}

int bw_ring_get(struct bw_ep *ep, struct bw_device *dev, bool sink, struct bw_ring **out)
{
	struct bw_ring **at = &ep->rings, *ring;

	while (*at && ((*at)->dev != dev || (*at)->sink != sink))
		at = &(*at)->next;
	if (*at) {
		*out = *at;
		*at = (*at)->next;
		return 0;
	}
	if (ep->nrings[sink] < BW_NET_RINGS)
		return ring_new(ep, dev, sink, out);
	/* one of another device's that is free makes room */
	for (at = &ep->rings; *at && (*at)->sink != sink; at = &(*at)->next)
		;
	if (!*at)
		return -EAGAIN;
	ring = *at;
	*at = ring->next;
	ep->nrings[sink]--;
	ring_unregister(ep, ring);
	ring_free(ring);
	return ring_new(ep, dev, sink, out);
}

void bw_ring_put(struct bw_ep *ep, struct bw_ring *ring, bool lost)
{
	struct bw_ring **list = lost ? &ep->lost_rings : &ep->rings;

	if (lost)
		ep->nrings[ring->sink]--;
	ring->next = *list;
	*list = ring;
}

void bw_rings_unregister(struct bw_ep *ep)
{
	for (struct bw_ring *r = ep->rings; r; r = r->next)
		ring_unregister(ep, r);
	for (struct bw_ring *r = ep->lost_rings; r; r = r->next)
		ring_unregister(ep, r);
}

void bw_rings_free(struct bw_ep *ep)
{
	for (int lost = 0; lost < 2; lost++) {
		struct bw_ring **list = lost ? &ep->lost_rings : &ep->rings;

		while (*list) {
			struct bw_ring *next = (*list)->next;

			ring_free(*list);
			*list = next;
		}
	}
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Calls @fn for each run of [at, at + bytes) of the stream that @parts are. */
struct run {
	uint64_t offset; /* in the region */
	unsigned char *memory;
	size_t bytes;
};

static size_t next_run(const struct bw_wire_part *parts, size_t n, size_t *i, uint64_t *skip,
		       bool to_region, struct run *run, size_t left)
{
	while (*i < n && *skip >= parts[*i].bytes) {
		*skip -= parts[*i].bytes;
		(*i)++;
	}
	if (*i >= n)
		return 0;
	run->offset = (to_region ? parts[*i].to : parts[*i].from) + *skip;
	run->bytes = parts[*i].bytes - *skip < left ? parts[*i].bytes - *skip : left;
	*skip += run->bytes;
	return run->bytes;
}

static void copy_host(struct bw_region *r, const struct bw_wire_part *parts, size_t n, uint64_t at,
		      unsigned char *memory, size_t bytes, bool to_region)
{
	struct run run;
	size_t i = 0;

	while (bytes && next_run(parts, n, &i, &at, to_region, &run, bytes)) {
		if (to_region)
			memcpy(r->host + run.offset, memory, run.bytes);
		else
			memcpy(memory, r->host + run.offset, run.bytes);
		memory += run.bytes;
		bytes -= run.bytes;
	}
}

static size_t count_runs(const struct bw_wire_part *parts, size_t n, uint64_t at, size_t bytes)
{
	size_t i = 0, runs = 0;
	struct run run;

	while (bytes && next_run(parts, n, &i, &at, true, &run, bytes)) {
		bytes -= run.bytes;
		runs++;
	}
	return runs;
}

int bw_stage_copy(struct bw_region *r, const struct bw_wire_part *parts, size_t n, uint64_t at,
		  unsigned char *memory, size_t bytes, bool to_region, struct bw_request **req)
{
	size_t runs = 1, i = 0, k = 0;
	struct bw_copy few[FEW] = { { 0 } }, *copies = few;
	struct run run;
	int ret;

	*req = NULL;
	if (!r->map) {
		copy_host(r, parts, n, at, memory, bytes, to_region);
		return 0;
	}
	if (n > 1)
		runs = count_runs(parts, n, at, bytes);
	if (runs > FEW)
		copies = bw_alloc_array(runs, sizeof(*copies));
	if (!copies)
		return bw_err(ENOMEM, "no memory for %zu pieces: free some", runs);
	for (; k < runs && next_run(parts, n, &i, &at, to_region, &run, bytes); k++) {
		copies[k] = (struct bw_copy){
			.map = r->map, .offset = run.offset, .host = memory, .bytes = run.bytes,
			.direction = to_region ? BW_TO_GPU : BW_FROM_GPU,
		};
		memory += run.bytes;
		bytes -= run.bytes;
	}
	ret = bw_request_start(copies, k, r->map->copy_method, false, false, req);
	if (copies != few)
		free(copies);
	if (ret)
		return bw_err_prefix(ret, "copy %s GPU memory", to_region ? "to" : "from");
	ret = bw_request_poll(*req);
	if (ret == -EBUSY)
		return 0;
	bw_request_free(*req);
	*req = NULL;
	return ret;
}
