/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/fabric_post: what is on the way of every message. No lock, no allocation, no call but the
 * provider's.
 */
#include <errno.h>

#include "core/fault.h"
#include "net/fabric.h"

int bw_fabric_add_ops(struct bw_fabric_rail *r, size_t n)
{
	struct bw_fabric_ops_block *block = bw_alloc(sizeof(*block) + n * sizeof(block->ops[0]));

	if (!block)
		return bw_err(ENOMEM, "network %s: no memory for %zu operations",
			      r->network->name, n);
	block->n = n;
	block->next = r->blocks;
	r->blocks = block;
	while (n--) {
		block->ops[n].next = r->free;
		r->free = &block->ops[n];
	}
	return 0;
}

/*
 * Those of @peer that are under way may never end, and their memory is the provider's until they
 * do: as many new ones take their place. Returns how many, or -ENOMEM.
 */
int bw_fabric_forget_ops(struct bw_fabric_rail *r, fi_addr_t peer)
{
	size_t n = 0, writes = 0;

	for (struct bw_fabric_ops_block *b = r->blocks; b; b = b->next)
		for (size_t i = 0; i < b->n; i++) {
			struct bw_fabric_op *op = &b->ops[i];

			if (!op->kind || op->orphan || op->peer != peer)
				continue;
			op->orphan = true;
			n++;
			writes += op->kind == BW_EVENT_WRITTEN || op->kind == BW_EVENT_READ;
		}
	if (writes && r->network->keeps_numbers)
		r->stuck = true;
	if (n && bw_fabric_add_ops(r, n))
		return -ENOMEM;
	return (int)n;
}

static inline struct bw_fabric_op *take(struct bw_fabric_rail *r, enum bw_event_kind kind,
					fi_addr_t peer, void *ctx)
{
	struct bw_fabric_op *op = r->free;

	if (__builtin_expect(!op, 0))
		return NULL;
	r->free = op->next;
	op->kind = kind;
	op->peer = peer;
	op->ctx = ctx;
	return op;
}

__attribute__((cold, noinline))
static int not_posted(struct bw_fabric_rail *r, struct bw_fabric_op *op, const char *what,
		      ssize_t ret)
{
	int err = bw_fabric_errno((int)ret);

	if (op) {
		op->kind = 0;
		op->next = r->free;
		r->free = op;
	}
	if (ret == -FI_EAGAIN)
		return -EAGAIN;
	return bw_err(err, "%s over %s: %s", what, r->network->name, r->lib->strerror((int)-ret));
}

int bw_fabric_send(struct bw_rail *rail, uint64_t peer, const void *message, size_t bytes,
		   void *desc, void *ctx)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	struct bw_fabric_op *op = NULL;
	ssize_t ret;

	if (bytes <= r->inject_bytes) {
		ret = fi_inject(r->ep, message, bytes, peer);
	} else {
		op = take(r, BW_EVENT_SENT, peer, ctx);
		if (!op)
			return -EAGAIN;
		ret = fi_send(r->ep, message, bytes, desc, peer, &op->context);
	}
	return __builtin_expect(!ret, 1) ? 0 : not_posted(r, op, "send", ret);
}

int bw_fabric_recv(struct bw_rail *rail, void *message, size_t room, void *desc, void *ctx)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	struct bw_fabric_op *op = take(r, BW_EVENT_RECEIVED, FI_ADDR_UNSPEC, ctx);
	ssize_t ret;

	if (!op)
		return -EAGAIN;
	ret = fi_recv(r->ep, message, room, desc, FI_ADDR_UNSPEC, &op->context);
	return __builtin_expect(!ret, 1) ? 0 : not_posted(r, op, "receive", ret);
}

/* With the one completion that says that the bytes are there, which costs a way back. */
static ssize_t write_arrived(struct bw_fabric_rail *r, struct bw_fabric_op *op,
			     const struct fi_rma_iov *to, const void *src, void *desc,
			     bool has_data, uint64_t data)
{
	struct iovec from = { .iov_base = (void *)(uintptr_t)src, .iov_len = to->len };
	struct fi_msg_rma msg = {
		.msg_iov = &from, .desc = &desc, .iov_count = 1, .addr = op->peer, .rma_iov = to,
		.rma_iov_count = 1, .context = &op->context, .data = data,
	};

	return fi_writemsg(r->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE |
			   (has_data ? FI_REMOTE_CQ_DATA : 0));
}

__attribute__((cold, noinline))
static int bad_write(struct bw_fabric_rail *r, size_t bytes, uint64_t data)
{
	if (bytes > r->write_bytes)
		return bw_err(EMSGSIZE, "write over %s: %zu bytes, and one write has at most %llu: "
			      "write in pieces", r->network->name, bytes,
			      (unsigned long long)r->write_bytes);
	return bw_err(ENOTSUP, "write over %s: data 0x%llx, and a write brings %u bytes of it: "
		      "send a message instead", r->network->name, (unsigned long long)data,
		      r->data_bytes);
}

int bw_fabric_write(struct bw_rail *rail, uint64_t peer, const void *src, size_t bytes, void *desc,
		    uint64_t addr, uint64_t key, bool has_data, uint64_t data, unsigned flags,
		    void *ctx)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	struct bw_fabric_op *op;
	ssize_t ret;

	if (bytes > r->write_bytes || (has_data && (!r->data_bytes || (data & ~r->data_mask))))
		return bad_write(r, bytes, data);
	op = take(r, BW_EVENT_WRITTEN, peer, ctx);
	if (!op)
		return -EAGAIN;
	if ((flags & BW_WRITE_ARRIVED) && bytes) { /* of 0 bytes shm 1.17 never tells */
		struct fi_rma_iov to = { .addr = addr, .len = bytes, .key = key };

		ret = write_arrived(r, op, &to, src, desc, has_data, data);
	} else if (has_data) {
		ret = fi_writedata(r->ep, src, bytes, desc, data, peer, addr, key, &op->context);
	} else {
		ret = fi_write(r->ep, src, bytes, desc, peer, addr, key, &op->context);
	}
	return __builtin_expect(!ret, 1) ? 0 : not_posted(r, op, "write", ret);
}

int bw_fabric_read(struct bw_rail *rail, uint64_t peer, void *dst, size_t bytes, void *desc,
		   uint64_t addr, uint64_t key, void *ctx)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	struct bw_fabric_op *op = take(r, BW_EVENT_READ, peer, ctx);
	ssize_t ret;

	if (!op)
		return -EAGAIN;
	ret = fi_read(r->ep, dst, bytes, desc, peer, addr, key, &op->context);
	return __builtin_expect(!ret, 1) ? 0 : not_posted(r, op, "read", ret);
}
