/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/net.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x31746e7761726162ull /* changes with struct net_order and struct net_answer */
#define TAG_MESSAGE 1u
#define TAG_DATA 2u
#define SIGNAL_NS 30000000000u
#define ANSWER_NS 300000000000u
#define POLLS 256u      /* between looks at the clock and the peer */
#define SPIN_NS 100000u /* then the CPU is offered to others */

const char *const net_operation_names[NET_OPERATIONS] = { "put", "get", "send" };
const char *const net_path_names[NET_PATHS] = { "auto", "staged", "direct" };

int net_failed(struct net_end *e, int ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->error, sizeof(e->error), fmt, ap);
	va_end(ap);
	return ret;
}

int net_barway(struct net_end *e, int ret)
{
	return net_failed(e, ret, "%s", barway_errmsg());
}

/* ---- open, close -------------------------------------------------------------------------- */

static int open_notes(struct net_end *e)
{
	int ret;

	e->notes = aligned_alloc(_Alignof(struct net_notes), sizeof(*e->notes));
	if (!e->notes)
		return net_failed(e, -ENOMEM, "out of memory");
	memset(e->notes, 0, sizeof(*e->notes));
	ret = barway_region_open(e->ep, (uintptr_t)e->notes, sizeof(*e->notes), BARWAY_REGION_PUT,
				 &e->notes_region);
	if (ret == 0)
		ret = barway_region_key(e->notes_region, &e->notes_key);
	return ret < 0 ? net_barway(e, ret) : 0;
}

int net_end_open(struct net_end *e, const struct net_options *o)
{
	struct barway_endpoint_options options = {
		.size = sizeof(options),
		.listen = o->listen,
		.network = o->network,
		.interfaces = o->interfaces,
		.secret = o->local ? o->secret : NULL,
		.secret_bytes = o->local ? sizeof(o->secret) : 0,
		.rails = (uint32_t)o->rails,
		.threads = o->threads,
	};
	int ret = barway_endpoint_open(e->ctx, &options, &e->ep);

	if (ret < 0)
		return net_barway(e, ret);
	ret = open_notes(e);
	if (ret < 0)
		return ret;
	e->gpu = bench_gpu_open(e->ctx, e->dev, e->error, sizeof(e->error));
	return e->gpu ? 0 : -EIO;
}

void net_peer_gone(struct net_end *e)
{
	net_free(e->receive_message);
	e->receive_message = NULL;
	if (e->peer)
		barway_peer_close(e->peer);
	e->peer = NULL;
	net_memory_close(e);
}

void net_end_close(struct net_end *e)
{
	net_peer_gone(e);
	if (e->ep)
		barway_endpoint_close(e->ep);
	bench_gpu_close(e->gpu);
	free(e->notes);
	e->ep = NULL;
	e->gpu = NULL;
	e->notes = NULL;
}

/* ---- memory ------------------------------------------------------------------------------- */

static int allocate(struct net_end *e, bool host, uint64_t *addr)
{
	size_t bytes = (2 * e->half + 4095) / 4096 * 4096;

	e->scratch = malloc(e->half + 8);
	if (host)
		e->host_memory = aligned_alloc(4096, bytes);
	if (!e->scratch || (host && !e->host_memory))
		return net_failed(e, -ENOMEM, "out of memory for twice %zu bytes", e->half);
	if (!host && bench_gpu_alloc(e->gpu, BENCH_MEMORY_BARWAY, bytes, &e->gpu_memory) < 0)
		return net_failed(e, -ENOMEM, "%s", bench_gpu_error(e->gpu));
	*addr = host ? (uintptr_t)e->host_memory : e->gpu_memory.addr;
	return 0;
}

int net_memory_open(struct net_end *e, size_t half, bool host)
{
	uint64_t addr = 0;
	int ret;

	net_memory_close(e);
	e->half = (half + 127) / 128 * 128;
	ret = allocate(e, host, &addr);
	if (ret < 0)
		return ret;
	ret = barway_region_open(e->ep, addr, 2 * e->half, BARWAY_REGION_PUT | BARWAY_REGION_GET,
				 &e->region);
	if (ret == 0)
		ret = barway_region_key(e->region, &e->key);
	return ret < 0 ? net_barway(e, ret) : 0;
}

void net_memory_close(struct net_end *e)
{
	if (e->region)
		barway_region_close(e->region);
	if (e->gpu_memory.addr)
		bench_gpu_free(e->gpu, &e->gpu_memory);
	free(e->host_memory);
	free(e->scratch);
	e->region = NULL;
	e->host_memory = NULL;
	e->scratch = NULL;
}

/* Past Barway, so that what is checked is not checked by itself. */
static int access_memory(struct net_end *e, size_t offset, size_t bytes, bool write)
{
	unsigned char *host = e->host_memory;
	int ret = 0;

	if (host && write)
		memcpy(host + offset, e->scratch, bytes);
	else if (host)
		memcpy(e->scratch, host + offset, bytes);
	else if (write)
		ret = bench_gpu_write(e->gpu, e->gpu_memory.addr + offset, e->scratch, bytes);
	else
		ret = bench_gpu_read(e->gpu, e->scratch, e->gpu_memory.addr + offset, bytes);
	return ret < 0 ? net_failed(e, ret, "%s", bench_gpu_error(e->gpu)) : 0;
}

/* Every bit of both reaches every bit of it. */
static uint64_t word_of(uint64_t seed, size_t i)
{
	uint64_t x = seed * 0x9fb21c651e98df25ull + i;

	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 29) * 0xd1342543de82ef95ull;
	return x ^ x >> 32;
}

static int too_much(struct net_end *e, size_t bytes)
{
	return net_failed(e, -EINVAL, "%zu bytes are more than the memory of %zu", bytes, e->half);
}

int net_memory_fill(struct net_end *e, uint64_t seed, size_t bytes)
{
	int ret;

	if (!e->region || bytes > e->half)
		return too_much(e, bytes);
	memset(e->scratch, 0, bytes);
	ret = access_memory(e, 0, bytes, true);
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = word_of(seed, i);

		memcpy(e->scratch + i, &word, 8);
	}
	return ret < 0 ? ret : access_memory(e, e->half, bytes, true);
}

int net_memory_check(struct net_end *e, uint64_t seed, size_t bytes)
{
	int ret;

	if (!e->region || bytes > e->half)
		return too_much(e, bytes);
	ret = access_memory(e, 0, bytes, false);
	for (size_t i = 0; i < bytes && ret == 0; i += 8) {
		uint64_t word = word_of(seed, i);
		size_t n = bytes - i < 8 ? bytes - i : 8;

		if (memcmp(e->scratch + i, &word, n))
			ret = net_failed(e, -EBADMSG, "wrong data: of %zu bytes those at %zu are "
					 "not what was sent", bytes, i);
	}
	return ret;
}

/* ---- transfers ---------------------------------------------------------------------------- */

int net_prepare(struct net_end *e, const struct net_transfer *what, struct barway_transfer **out)
{
	const struct barway_part part = { what->local, what->remote, what->bytes };
	const struct barway_transfer_options o = {
		.size = sizeof(o),
		.operation = what->operation,
		.path = what->path,
		.key = what->key,
		.tag = TAG_DATA,
		.signal = what->signal,
		.signal_offset = offsetof(struct net_notes, signal),
		.signal_value = 1,
	};
	int ret = barway_transfer_prepare(e->peer, e->region, &part, 1, &o, out);

	return ret < 0 ? net_barway(e, ret) : 0;
}

int net_post(struct net_end *e, struct barway_transfer *t)
{
	int ret = barway_transfer_post(t);

	return ret < 0 ? net_barway(e, ret) : 0;
}

int net_wait(struct net_end *e, struct barway_transfer *t, uint32_t moment)
{
	int ret = barway_transfer_wait(t, moment, BARWAY_FOREVER);

	return ret < 0 ? net_barway(e, ret) : 0;
}

void net_free(struct barway_transfer *t)
{
	if (t)
		barway_transfer_free(t);
}

static int peer_lives(struct net_end *e)
{
	struct barway_peer_info info = { .size = sizeof(info) };
	int ret = barway_peer_query(e->peer, &info);

	if (ret < 0)
		return net_barway(e, ret);
	return info.alive ? 0 : net_failed(e, -EIO, "the peer has failed: %s", info.failure);
}

int net_wait_signal(struct net_end *e)
{
	uint64_t *signal = &e->notes->signal, began = 0, now = 0;
	int ret = 0;

	for (unsigned polls = 1; !__atomic_load_n(signal, __ATOMIC_ACQUIRE) && ret == 0; polls++) {
		if (barway_endpoint_progress(e->ep) < 0)
			return net_barway(e, -EIO);
		if (now - began > SPIN_NS)
			sched_yield();
		if (polls % POLLS)
			continue;
		now = bench_now();
		began = began ? began : now;
		if (now - began > SIGNAL_NS)
			return net_failed(e, -ETIMEDOUT, "no signal from the peer for 30 s");
		ret = peer_lives(e);
	}
	__atomic_store_n(signal, 0, __ATOMIC_RELAXED);
	return ret;
}

/* ---- messages ----------------------------------------------------------------------------- */

static int message(struct net_end *e, bool answer, bool out, uint64_t deadline,
		   struct barway_transfer **t)
{
	const struct barway_part part = {
		.local = answer ? offsetof(struct net_notes, answer)
				: offsetof(struct net_notes, order),
		.bytes = answer ? sizeof(struct net_answer) : sizeof(struct net_order),
	};
	const struct barway_transfer_options o = {
		.size = sizeof(o),
		.operation = out ? BARWAY_SEND : BARWAY_RECV,
		.tag = TAG_MESSAGE,
		.deadline_ns = deadline,
	};
	int ret = barway_transfer_prepare(e->peer, e->notes_region, &part, 1, &o, t);

	return ret < 0 ? net_barway(e, ret) : net_post(e, *t);
}

int net_expect(struct net_end *e, bool answer, bool for_ever)
{
	net_free(e->receive_message);
	e->receive_message = NULL;
	return message(e, answer, false, for_ever ? UINT64_MAX : ANSWER_NS, &e->receive_message);
}

int net_await(struct net_end *e)
{
	struct barway_transfer_info i = { .size = sizeof(i) };
	int ret = net_wait(e, e->receive_message, BARWAY_VISIBLE);
	uint64_t magic;

	if (ret == 0 && barway_transfer_query(e->receive_message, &i) < 0)
		ret = net_barway(e, -EIO);
	if (ret < 0)
		return ret;
	magic = i.bytes == sizeof(struct net_answer) ? e->notes->answer.magic :
		i.bytes == sizeof(struct net_order) ? e->notes->order.magic : 0;
	if (magic != MAGIC)
		return net_failed(e, -EPROTO, "the other end is another version of this tool: use "
				  "the same at both ends");
	return 0;
}

int net_tell(struct net_end *e, bool answer)
{
	struct barway_transfer *t = NULL;
	int ret;

	*(answer ? &e->notes->answer.magic : &e->notes->order.magic) = MAGIC;
	ret = message(e, answer, true, 0, &t);
	if (ret == 0)
		ret = net_wait(e, t, BARWAY_VISIBLE);
	net_free(t);
	return ret;
}
