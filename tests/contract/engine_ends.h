/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of struct bw_net_engine: rails, their memory, and what has happened on them. */
#ifndef TEST_ENGINE_ENDS_H
#define TEST_ENGINE_ENDS_H

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "net/engine.h"
#include "net/imitation.h"
#include "test.h"

/* For the leak sanitizer: "net" of libfabric 1.17 loses some memory with each endpoint. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so";
}

#define MEMORY (4u << 20)
#define MOST_EVENTS 8192u
#define MOST_SECONDS 20

struct end {
	struct bw_rail *rail;
	const struct bw_net_engine *engine;
	struct bw_rail_info info;
	unsigned char *memory;
	struct bw_reg reg;
	uint64_t peer;
	unsigned n[BW_EVENT_REMOTE + 1], failed; /* events by kind; those with an error */
	struct bw_event events[MOST_EVENTS];
	unsigned nevents;
	void (*seen)(struct end *end, const struct bw_event *event);
};

/* Those that a process has; "imitation-rdma" is a network card as far as the contract goes. */
static const char *const all_networks[] = { "imitation", "imitation-rdma", "tcp", "shm", "verbs",
						   NULL };

static inline double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* NULL with the reason where this machine has no such network, on $INTERFACE if that is set. */
static inline struct end *end_try(const char *network)
{
	struct bw_rail_options options = { .network = network, .peers = 4,
					   .interface = getenv("INTERFACE"),
					   .message_bytes = 1u << 20 };
	struct bw_reg_request request = { .bytes = MEMORY, .dmabuf = -1, .remote_write = true,
					  .remote_read = true };
	struct end *end = calloc(1, sizeof(*end));
	int ret;

	CHECK(end);
	ret = bw_rail_open(&options, &end->rail);
	if (ret) {
		CHECK_EQ(ret, -ENOTSUP);
		CHECK(*bw_err_text());
		free(end);
		return NULL;
	}
	end->engine = end->rail->engine;
	end->engine->info(end->rail, &end->info);
	CHECK_STR(end->info.network, network);
	end->memory = aligned_alloc(4096, MEMORY);
	CHECK(end->memory);
	memset(end->memory, 0, MEMORY);
	request.ptr = end->memory;
	if (end->engine->reg(end->rail, &request, &end->reg))
		FAIL("%s: %s", network, bw_err_text());
	CHECK_STR(end->reg.rung, "host");
	return end;
}

static inline void end_close(struct end *end)
{
	end->engine->unreg(end->rail, &end->reg);
	end->engine->close(end->rail);
	free(end->memory);
	free(end);
}

static inline void end_connect(struct end *from, struct end *to)
{
	unsigned char address[256];
	size_t n = sizeof(address);

	if (to->engine->address(to->rail, address, &n) ||
	    from->engine->connect(from->rail, address, n, &from->peer))
		FAIL("%s: %s", from->info.network, bw_err_text());
	CHECK(n > 0 && n <= 256);
}

/* One poll of it; what it says is kept. */
static inline unsigned end_poll(struct end *end)
{
	struct bw_event *events = &end->events[end->nevents];
	int n = end->engine->poll(end->rail, events, 7);

	if (n < 0)
		FAIL("%s: poll: %s", end->info.network, bw_err_text());
	CHECK(n <= 7);
	end->nevents += (unsigned)n; /* @seen may poll again */
	CHECK(end->nevents + 8 < MOST_EVENTS);
	for (int i = 0; i < n; i++) {
		CHECK(events[i].kind >= BW_EVENT_SENT && events[i].kind <= BW_EVENT_REMOTE);
		CHECK(events[i].error <= 0);
		end->n[events[i].kind]++;
		end->failed += events[i].error != 0;
		CHECK(!events[i].error || *events[i].text);
		CHECK(events[i].kind != BW_EVENT_REMOTE || !events[i].ctx);
		if (end->seen)
			end->seen(end, &events[i]);
	}
	return (unsigned)n;
}

static inline void both_poll(struct end *a, struct end *b)
{
	end_poll(a);
	if (b)
		end_poll(b);
}

/* Polls @a, and @b unless NULL, until @done; fails when that takes too long. */
#define UNTIL(a, b, done) do { \
	double until_ = seconds() + MOST_SECONDS; \
	while (!(done)) { \
		both_poll(a, b); \
		if (seconds() > until_) \
			FAIL("%s: never came: %s", (a)->info.network, #done); \
	} \
} while (0)

/* Posts; polls both while the network puts it off. */
#define POST(a, b, call) do { \
	double post_until_ = seconds() + MOST_SECONDS; \
	int post_ret_; \
	while ((post_ret_ = (call)) == -EAGAIN) { \
		both_poll(a, b); \
		if (seconds() > post_until_) \
			FAIL("%s: put off for ever: %s", (a)->info.network, #call); \
	} \
	if (post_ret_) \
		FAIL("%s: %s: %s", (a)->info.network, #call, bw_err_text()); \
} while (0)

static inline void poll_for(struct end *a, struct end *b, double time)
{
	double until = seconds() + time;

	while (seconds() < until)
		both_poll(a, b);
}

static inline int send_at(struct end *e, size_t at, size_t bytes, void *ctx)
{
	return e->engine->send(e->rail, e->peer, e->memory + at, bytes, e->reg.desc, ctx);
}

static inline int recv_at(struct end *e, size_t at, size_t room, void *ctx)
{
	return e->engine->recv(e->rail, e->memory + at, room, e->reg.desc, ctx);
}

/* From @from at an offset to @to at an offset. */
static inline int write_at(struct end *from, size_t src, struct end *to, size_t dst, size_t bytes,
			   bool has_data, uint64_t data, unsigned flags, void *ctx)
{
	return from->engine->write(from->rail, from->peer, from->memory + src, bytes,
				   from->reg.desc, to->reg.addr + dst, to->reg.key, has_data, data,
				   flags, ctx);
}

static inline const struct bw_event *find_event(const struct end *end, enum bw_event_kind kind,
						const void *ctx)
{
	for (unsigned i = 0; i < end->nevents; i++)
		if (end->events[i].kind == kind && end->events[i].ctx == ctx)
			return &end->events[i];
	return NULL;
}

static inline void *tag(uintptr_t n)
{
	return (void *)(0x10000 + n); /* never dereferenced */
}

/* Runs @fn with two connected rails of each network that is there; of $NETWORK alone if set, which
 * then has to be there. */
static inline void each_network(void (*fn)(struct end *a, struct end *b))
{
	const char *only = getenv("NETWORK");
	bool any = false;

	for (unsigned i = 0; all_networks[i]; i++) {
		struct end *a, *b;

		if (only && strcmp(only, all_networks[i]))
			continue;
		a = end_try(all_networks[i]);
		if (!a)
			continue;
		any = true;
		b = end_try(all_networks[i]);
		CHECK(b);
		end_connect(a, b);
		end_connect(b, a);
		fn(a, b);
		end_close(a);
		end_close(b);
	}
	if (!any)
		FAIL("no network %s: %s", only ? only : "at all", bw_err_text());
}

#endif
