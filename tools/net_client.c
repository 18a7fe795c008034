/* SPDX-License-Identifier: BSD-3-Clause */
/* The end that measures. */
#include "tools/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"

#define CONNECT_NS 10000000000u
#define WARM 16u      /* round trips that do not count */
#define ROW_NS 20e6   /* of a row of transfers, at least, where they are short */
#define ROW_MOST 100000u

/* ---- orders ------------------------------------------------------------------------------- */

/* Waits for an answer that was expected; an error there is one here. */
static int answered(struct net_end *e)
{
	int ret = net_await(e);

	if (ret == 0 && e->notes->answer.error)
		ret = net_failed(e, (int)e->notes->answer.error, "the other end: %s",
				 e->notes->answer.text);
	return ret;
}

static int order(struct net_end *e, const struct net_order *o)
{
	int ret = net_expect(e, true, false);

	if (ret < 0)
		return ret;
	e->notes->order = *o;
	ret = net_tell(e, false);
	return ret < 0 ? ret : answered(e);
}

static int second_answer(struct net_end *e)
{
	int ret = net_expect(e, true, false);

	return ret < 0 ? ret : answered(e);
}

int net_connect(struct net_end *e, const char *name, size_t half, bool host)
{
	const struct net_order o = { .kind = NET_SETUP, .bytes = half, .host = host };
	int ret = barway_peer_connect(e->ep, name, CONNECT_NS, &e->peer);

	if (ret < 0)
		return net_barway(e, ret);
	ret = net_memory_open(e, half, host);
	return ret < 0 ? ret : order(e, &o);
}

void net_disconnect(struct net_end *e)
{
	const struct net_order o = { .kind = NET_BYE };

	if (e->peer)
		order(e, &o);
}

static uint64_t new_seed(void)
{
	static uint64_t seed;

	return ++seed;
}

/* Data that was not there before, at both ends. */
static int fill_both(struct net_end *e, uint64_t seed, size_t bytes)
{
	const struct net_order o = { .kind = NET_FILL, .seed = seed, .bytes = bytes };
	int ret = net_memory_fill(e, seed, bytes);

	return ret < 0 ? ret : order(e, &o);
}

static int keep_path(struct net_end *e, struct barway_transfer *t, struct net_result *out)
{
	struct barway_transfer_info i = { .size = sizeof(i) };

	if (barway_transfer_query(t, &i) < 0)
		return net_barway(e, -EIO);
	memcpy(out->path, i.path, sizeof(out->path));
	out->direct = i.direct;
	return 0;
}

/* ---- ping-pong ---------------------------------------------------------------------------- */

struct pingpong {
	struct net_end *e;
	struct barway_transfer *out, *in; /* @in: of a send, the receive */
	uint32_t operation;
};

static int prepare(struct pingpong *p, const struct net_case *c)
{
	bool get = c->operation == BARWAY_GET, send = c->operation == BARWAY_SEND;
	struct net_transfer what = {
		.operation = c->operation, .path = c->path, .bytes = c->bytes,
		.local = get ? 0 : p->e->half, .remote = get ? p->e->half : 0,
		.key = send ? NULL : c->data, .signal = get || send ? NULL : c->notes,
	};
	int ret = net_prepare(p->e, &what, &p->out);

	what.operation = BARWAY_RECV;
	what.local = 0;
	return ret == 0 && send ? net_prepare(p->e, &what, &p->in) : ret;
}

static int once(struct pingpong *p, double *ns)
{
	struct barway_transfer *last = p->in ? p->in : p->out;
	uint64_t began;
	int ret = p->in ? net_post(p->e, p->in) : 0;

	began = bench_now();
	if (ret == 0)
		ret = net_post(p->e, p->out);
	if (ret == 0)
		ret = p->operation == BARWAY_PUT ? net_wait_signal(p->e)
						 : net_wait(p->e, last, BARWAY_VISIBLE);
	*ns = (double)(bench_now() - began) - bench_clock_cost();
	/* it has to be done before it is posted again: mostly it is, when the answer is here */
	return ret == 0 ? net_wait(p->e, p->out, BARWAY_VISIBLE) : ret;
}

static int play(struct pingpong *p, const struct net_case *c, uint64_t n, double *ns)
{
	const struct net_order o = {
		.kind = NET_ECHO, .operation = c->operation, .path = c->path, .bytes = c->bytes,
		.count = n, .data = p->e->key, .notes = p->e->notes_key,
	};
	bool echo = c->operation != BARWAY_GET;
	int ret;

	p->e->notes->signal = 0;
	ret = echo ? order(p->e, &o) : 0;
	for (uint64_t i = 0; i < n && ret == 0; i++)
		ret = once(p, &ns[i]);
	return ret == 0 && echo ? second_answer(p->e) : ret;
}

static uint64_t rounds(const struct net_case *c, const double *warm)
{
	double least = 1e300, n;

	if (c->reps)
		return c->reps;
	for (unsigned i = 0; i < WARM; i++)
		least = warm[i] < least ? warm[i] : least;
	n = c->seconds * 1e9 / (least > 1 ? least : 1);
	return n < BENCH_MIN_REPS ? BENCH_MIN_REPS :
	       n > BENCH_MAX_REPS ? BENCH_MAX_REPS : (uint64_t)n;
}

int net_latency(struct net_end *e, const struct net_case *c, struct net_result *out)
{
	struct pingpong p = { .e = e, .operation = c->operation };
	uint64_t seed = new_seed(), n;
	double warm[WARM], *ns = NULL;
	int ret = fill_both(e, seed, c->bytes);

	if (ret == 0)
		ret = prepare(&p, c);
	if (ret == 0)
		ret = play(&p, c, WARM, warm);
	if (ret == 0) {
		n = rounds(c, warm);
		ns = malloc(n * sizeof(*ns));
		ret = ns ? play(&p, c, n, ns) : net_failed(e, -ENOMEM, "out of memory");
	}
	if (ret == 0)
		ret = keep_path(e, p.out, out);
	if (ret == 0)
		ret = net_memory_check(e, seed, c->bytes);
	if (ret == 0) {
		for (uint64_t i = 0; i < n; i++)
			ns[i] = c->operation == BARWAY_GET ? ns[i] : ns[i] / 2;
		bench_stats(ns, n, &out->stats);
	}
	free(ns);
	net_free(p.out);
	net_free(p.in);
	return ret;
}

/* ---- many at once ------------------------------------------------------------------------- */

struct many {
	struct net_end *e;
	const struct net_case *c;
	struct barway_transfer *t[NET_WINDOW_MAX];
};

static int prepare_many(struct many *m)
{
	const struct net_case *c = m->c;
	bool get = c->operation == BARWAY_GET;
	int ret = 0;

	for (unsigned i = 0; i < c->window && ret == 0; i++) {
		uint64_t at = i % c->slots * c->bytes;
		const struct net_transfer what = {
			.operation = c->operation, .path = c->path, .bytes = c->bytes,
			.local = at + (get ? 0 : m->e->half), .remote = at + (get ? m->e->half : 0),
			.key = c->operation == BARWAY_SEND ? NULL : c->data,
		};

		ret = net_prepare(m->e, &what, &m->t[i]);
	}
	return ret;
}

/* @n transfers, a window of them under way at once, until the last one is VISIBLE. */
static int row(struct many *m, uint64_t n, double *ns)
{
	uint64_t began = bench_now(), posted = 0;
	unsigned w = m->c->window;
	int ret = 0;

	while (posted < n && posted < w && ret == 0)
		ret = net_post(m->e, m->t[posted++]);
	for (uint64_t i = 0; i < n && ret == 0; i++) {
		ret = net_wait(m->e, m->t[i % w], BARWAY_VISIBLE);
		if (ret == 0 && posted < n) {
			ret = net_post(m->e, m->t[i % w]);
			posted++;
		}
	}
	*ns = (double)(bench_now() - began);
	return ret;
}

static int all_rows(struct many *m, uint64_t rows, uint64_t each, double *ns)
{
	const struct net_case *c = m->c;
	const struct net_order o = {
		.kind = NET_SINK, .operation = c->operation, .path = c->path, .bytes = c->bytes,
		.window = c->window, .slots = c->slots, .count = rows * each,
	};
	int ret = c->operation == BARWAY_SEND ? order(m->e, &o) : 0;

	for (uint64_t i = 0; i < rows && ret == 0; i++)
		ret = row(m, each, &ns[i]);
	return ret == 0 && c->operation == BARWAY_SEND ? second_answer(m->e) : ret;
}

/* How many transfers make a row, and how many rows: one of a window took @ns. */
static void plan(const struct net_case *c, double ns, uint64_t *each, uint64_t *rows)
{
	double one = ns / c->window, n = ROW_NS / (one > 1 ? one : 1);

	*each = n < c->window ? c->window : n > ROW_MOST ? ROW_MOST : (uint64_t)n;
	*each -= *each % c->window; /* a row begins with the window's first place at both ends */
	n = c->seconds * 1e9 / (one * (double)*each);
	*rows = c->reps ? c->reps : n < BENCH_MIN_REPS ? BENCH_MIN_REPS :
		n > BENCH_MAX_REPS ? BENCH_MAX_REPS : (uint64_t)n;
	if (c->reps) /* quickly: as for tests */
		*each = c->window;
}

static int check_many(struct net_end *e, const struct net_case *c, uint64_t seed)
{
	const struct net_order o = {
		.kind = NET_CHECK, .seed = seed, .bytes = c->slots * c->bytes,
	};

	return c->operation == BARWAY_GET ? net_memory_check(e, seed, o.bytes) : order(e, &o);
}

int net_bandwidth(struct net_end *e, const struct net_case *c, struct net_result *out)
{
	struct many m = { .e = e, .c = c };
	uint64_t seed = new_seed(), each, n;
	double warm[2], *ns = NULL;
	int ret = fill_both(e, seed, c->slots * c->bytes);

	if (ret == 0)
		ret = prepare_many(&m);
	if (ret == 0)
		ret = all_rows(&m, 2, c->window, warm);
	if (ret == 0) {
		plan(c, warm[1], &each, &n);
		ns = malloc(n * sizeof(*ns));
		ret = ns ? all_rows(&m, n, each, ns) : net_failed(e, -ENOMEM, "out of memory");
	}
	if (ret == 0)
		ret = keep_path(e, m.t[0], out);
	if (ret == 0)
		ret = check_many(e, c, seed);
	if (ret == 0) {
		for (uint64_t i = 0; i < n; i++)
			ns[i] /= (double)each * (double)c->bytes;
		bench_stats(ns, n, &out->stats);
	}
	free(ns);
	for (unsigned i = 0; i < NET_WINDOW_MAX; i++)
		net_free(m.t[i]);
	return ret;
}
