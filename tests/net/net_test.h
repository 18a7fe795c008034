/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of transfers share: two endpoints of a process, and memory of both kinds. */
#ifndef NET_TEST_H
#define NET_TEST_H

#include <barway_net.h>
#include <barway_soft.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sanitized_child.h"
#include "test.h"

#define KIB 1024ull
#define MIB (1024ull * 1024ull)
#define SECOND 1000000000ull
#define MS 1000000ull
#define N(x) (sizeof(x) / sizeof((x)[0]))

/* libfabric keeps what it found. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so";
}

#define OK(call) do { \
	int ret_ = (call); \
	if (ret_) FAIL("%s: %d: %s", #call, ret_, barway_errmsg()); \
} while (0)

/* @call fails with -@err and a sentence that has @text in it. */
#define FAILS(call, err, text) do { \
	int fails_ = (call); \
	if (fails_ != -(err)) \
		FAIL("%s is %d (%s), expected -%s", #call, fails_, \
		     fails_ ? barway_errmsg() : "", #err); \
	fails_text_ = (text); \
	CHECK_HAS(barway_errmsg(), fails_text_); \
} while (0)

static const char *volatile fails_text_; /* gcc warns of an empty constant */

static const char secret[] = "a secret of the tests, not random";

static inline double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void sleep_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

/* The address between which control connections go, as messages begin to name it. */
static inline const char *here(void)
{
	const char *listen = getenv("BARWAY_NET_LISTEN");

	return listen ? listen : "127.0.0.1";
}

static inline void param(const char *name, const char *value)
{
	OK(barway_param_set(name, value));
}

/* ---- what to test it on ---------------------------------------------------------------------- */

static const char *network;
static int threads; /* of each end */
static unsigned rails;

/* Before the cases; a failure here is one of the caller's setjmp(test_jump). */
static inline void net_begin(void)
{
	network = getenv("NET_NETWORK") ? getenv("NET_NETWORK") : "tcp";
	threads = getenv("NET_THREADS") ? atoi(getenv("NET_THREADS")) : 0;
	rails = getenv("NET_RAILS") ? (unsigned)atoi(getenv("NET_RAILS")) : 1;
	param("devices", "soft");
	param("soft_memory", "128M");
}

static inline int net_main(int argc, char **argv, const struct test_case *cases)
{
	if (setjmp(test_jump))
		return 1;
	net_begin();
	return test_main(argc, argv, cases);
}

/* ---- one end -------------------------------------------------------------------------------- */

struct memory {
	uint64_t addr;
	size_t bytes;
	bool gpu;
	struct barway_region *region;
	struct barway_key key;
};

struct end {
	struct barway_context *ctx;
	struct barway_device *gpu;
	struct barway_endpoint *ep;
	struct barway_peer *peer;
};

static inline struct barway_endpoint_options end_options(const char *net, int nthreads,
							 unsigned nrails)
{
	return (struct barway_endpoint_options){
		.size = sizeof(struct barway_endpoint_options), .network = net,
		.secret = secret, .secret_bytes = sizeof(secret), .threads = nthreads,
		.rails = nrails, .path = getenv("NET_STAGED") ? BARWAY_PATH_STAGED : 0,
	};
}

static inline void end_open(struct end *e, const struct barway_endpoint_options *options)
{
	OK(barway_open(NULL, &e->ctx));
	OK(barway_device_get(e->ctx, 0, &e->gpu));
	OK(barway_endpoint_open(e->ctx, options, &e->ep));
	e->peer = NULL;
}

static inline void end_close(struct end *e)
{
	if (e->ep)
		OK(barway_endpoint_close(e->ep));
	if (e->ctx)
		OK(barway_close(e->ctx));
	memset(e, 0, sizeof(*e));
}

/* ---- memory --------------------------------------------------------------------------------- */

static inline void write_to(struct end *e, const struct memory *m, size_t at, const void *src,
			    size_t n)
{
	struct barway_mapping *map;

	if (!m->gpu) {
		memcpy((char *)(uintptr_t)m->addr + at, src, n);
		return;
	}
	if (!n)
		return;
	OK(barway_map(e->ctx, m->addr + at, n, NULL, &map));
	OK(barway_copy_to_by(map, BARWAY_METHOD_CE, 0, src, n));
	OK(barway_unmap(map));
}

static inline void read_from(struct end *e, const struct memory *m, size_t at, void *dst, size_t n)
{
	struct barway_mapping *map;

	if (!m->gpu) {
		memcpy(dst, (char *)(uintptr_t)m->addr + at, n);
		return;
	}
	if (!n)
		return;
	OK(barway_map(e->ctx, m->addr + at, n, NULL, &map));
	OK(barway_copy_from_by(map, BARWAY_METHOD_CE, dst, 0, n));
	OK(barway_unmap(map));
}

static inline void memory_open(struct end *e, struct memory *m, bool gpu, size_t bytes,
			       unsigned access)
{
	m->bytes = bytes;
	m->gpu = gpu;
	if (gpu) {
		OK(barway_mem_alloc(e->gpu, bytes, &m->addr));
	} else {
		m->addr = (uintptr_t)calloc(1, bytes);
		CHECK(m->addr);
	}
	OK(barway_region_open(e->ep, m->addr, bytes, access, &m->region));
	if (access)
		OK(barway_region_key(m->region, &m->key));
}

static inline void memory_close(struct end *e, struct memory *m)
{
	OK(barway_region_close(m->region));
	if (m->gpu)
		OK(barway_mem_free(e->ctx, m->addr));
	else
		free((void *)(uintptr_t)m->addr);
	m->region = NULL;
}

static inline void memory_fill(struct end *e, const struct memory *m, uint64_t seed)
{
	unsigned char *data = malloc(m->bytes);

	CHECK(data);
	test_fill(data, m->bytes, seed);
	write_to(e, m, 0, data, m->bytes);
	free(data);
}

static inline void memory_zero(struct end *e, const struct memory *m)
{
	unsigned char *data = calloc(1, m->bytes);

	CHECK(data);
	write_to(e, m, 0, data, m->bytes);
	free(data);
}

/* ---- transfers ------------------------------------------------------------------------------ */

static inline struct barway_transfer *prepare(struct end *e, const struct memory *m,
					      const struct barway_part *parts, size_t n,
					      const struct barway_transfer_options *o)
{
	struct barway_transfer_options options = *o;
	struct barway_transfer *t = NULL;

	options.size = sizeof(options);
	OK(barway_transfer_prepare(e->peer, m->region, parts, n, &options, &t));
	return t;
}

static inline struct barway_transfer_info info_of(struct barway_transfer *t)
{
	struct barway_transfer_info i = { .size = sizeof(i) };

	OK(barway_transfer_query(t, &i));
	return i;
}

static inline struct barway_net_counters counters_of(struct end *e)
{
	struct barway_net_counters c = { .size = sizeof(c) };

	OK(barway_net_counters_get(e->ep, &c));
	return c;
}

/* ---- two ends in one process ----------------------------------------------------------------- */

static struct end a, b;

/* A thread that makes progress at @arg until it is told to stop. */
static _Atomic bool helper_stop;

static inline void *helper(void *arg)
{
	struct end *e = arg;

	while (!helper_stop)
		if (!barway_endpoint_progress(e->ep))
			sched_yield();
	return NULL;
}

static inline void *acceptor(void *arg)
{
	struct end *e = arg;

	return (void *)(intptr_t)barway_peer_accept(e->ep, 10 * SECOND, &e->peer);
}

static inline void pair_connect(void)
{
	pthread_t thread;
	void *result;
	char name[64];

	OK(barway_endpoint_name(b.ep, name, sizeof(name)));
	CHECK(!pthread_create(&thread, NULL, acceptor, &b));
	OK(barway_peer_connect(a.ep, name, 10 * SECOND, &a.peer));
	CHECK(!pthread_join(thread, &result));
	CHECK_EQ((intptr_t)result, 0);
}

static inline void pair_open_with(const struct barway_endpoint_options *options)
{
	end_close(&a); /* what a failed case left */
	end_close(&b);
	end_open(&a, options);
	end_open(&b, options);
	pair_connect();
}

static inline void pair_open(const char *net, int nthreads, unsigned nrails)
{
	struct barway_endpoint_options o = end_options(net, nthreads, nrails);

	pair_open_with(&o);
}

static inline void pair_close(void)
{
	end_close(&a);
	end_close(&b);
}

/* Waits for @t of @e while both ends make progress. */
static inline int wait_both(struct barway_transfer *t, unsigned moment)
{
	double until = seconds() + 30;
	int ret;

	while ((ret = barway_transfer_poll(t, moment)) == -EBUSY && seconds() < until) {
		barway_endpoint_progress(a.ep);
		barway_endpoint_progress(b.ep);
	}
	return ret;
}

#endif
