/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/net: what netlat, netbw and paths share: an end of a connection with memory that can be
 * moved, orders from the end that measures to the one that serves, and the measurements.
 *
 *   net_end.c      an end: endpoint, memory, transfers, messages
 *   net_serve.c    the end that does what it is told
 *   net_local.c    the same as a process of our own
 *   net_client.c   the end that measures
 *   net_options.c  the options that the verbs share
 *   net_address.c  addresses and networks in them
 */
#ifndef TOOLS_NET_H
#define TOOLS_NET_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "barway_net.h"
#include "bench/gpu.h"
#include "bench/harness.h"
#include "tools/measure.h"

#define NET_SECRET_BYTES 32u
#define NET_WINDOW_MAX 64u
#define NET_OPERATIONS 3u /* put, get, send: enum barway_operation less one */
#define NET_PATHS 3u      /* enum barway_path */
#define NET_MOST (256u << 20)

/* "put", "get", "send"; "auto", "staged", "direct" */
extern const char *const net_operation_names[NET_OPERATIONS];
extern const char *const net_path_names[NET_PATHS];

/* ---- options ------------------------------------------------------------------------------ */

struct net_options {
	const char *network, *interfaces, *listen, *secret_file, *peer_device;
	uint64_t rails;
	int32_t threads;
	bool host, local, server, once;
	const char *name; /* of the other end; of a server: its own address */
	unsigned char secret[NET_SECRET_BYTES]; /* of --local */
};

#define NET_LONGS \
	{ "local", no_argument, NULL, 'l' }, \
	{ "server", no_argument, NULL, 1000 }, \
	{ "once", no_argument, NULL, 1001 }, \
	{ "network", required_argument, NULL, 1002 }, \
	{ "interfaces", required_argument, NULL, 1003 }, \
	{ "listen", required_argument, NULL, 1004 }, \
	{ "secret-file", required_argument, NULL, 1005 }, \
	{ "peer-device", required_argument, NULL, 1006 }, \
	{ "rails", required_argument, NULL, 1007 }, \
	{ "threads", required_argument, NULL, 1008 }

#define NET_HELP_ENDS \
	"  NAME                  the other end, as its --server printed it\n" \
	"  -l, --local           the other end is a process that this one starts, on\n" \
	"                        another GPU where there is one\n" \
	"      --peer-device DEV its GPU: index, PCI address or UUID\n"
#define NET_HELP_SERVER \
	"      --server [ADDR]   be the other end: prints its name, serves one client\n" \
	"                        after another; ADDR: address, or address:port, to listen\n" \
	"                        on; default: the parameter net_listen\n" \
	"      --once            serve one client, then end\n"
#define NET_HELP_NETWORK \
	"      --listen ADDR     address of this machine that data goes by; default: the\n" \
	"                        parameter net_listen, which is 127.0.0.1\n" \
	"      --interfaces LIST addresses for data, separated by commas: rails\n" \
	"      --network NET     tcp, shm, verbs, efa, cxi or auto\n" \
	"      --secret-file F   the secret of both ends, 16 to 1024 random bytes;\n" \
	"                        default: the parameter net_secret_file\n" \
	"      --rails N         connections in parallel, 1 to 16\n" \
	"      --threads N       progress threads of each end, 0 to 16; default: the\n" \
	"                        parameter net_threads\n"

/* One option of NET_LONGS; MEASURE_OTHER: it is none. */
int net_option(const struct measure *m, struct net_options *o, int c);

/* After the options: the arguments from @argv[optind] on, and what does not go together. */
int net_check(const struct measure *m, struct net_options *o, int argc, char **argv);

/* "tcp", "shm" ...; NULL ends. */
extern const char *const net_network_names[];

/* Is @name a network, are the addresses some, and those to listen on this machine's? */
int net_check_network(const struct measure *m, const char *name);
int net_check_addresses(const struct measure *m, const struct net_options *o);

/* ---- an end ------------------------------------------------------------------------------- */

enum net_kind {
	NET_SETUP = 1, /* @bytes of memory twice: what comes, then what goes; @host: host memory */
	NET_FILL,      /* what comes with zeros, what goes with @seed's data */
	NET_CHECK,     /* is @seed's data there: what comes, @bytes */
	NET_ECHO,      /* @count times: what comes goes back */
	NET_SINK,      /* @count messages, @window at once, @bytes each */
	NET_BYE,
};

struct net_order {
	uint64_t magic;
	uint32_t kind, operation, path, host, window, slots;
	uint64_t bytes, count, seed;
	struct barway_key data, notes; /* of NET_ECHO: where puts go back to */
};

struct net_answer {
	uint64_t magic;
	int64_t error; /* 0 or -errno, and then @text says why */
	char text[512];
	/* of NET_SETUP */
	struct barway_key data, notes;
	char device[96], rung[16], reason[512];
	uint32_t direct, soft;
};

/* Where messages and signals lie, in host memory: each has lines of its own. */
struct net_notes {
	_Alignas(128) uint64_t signal; /* the peer sets it to 1 */
	_Alignas(128) uint64_t spare;
	_Alignas(128) struct net_order order;
	_Alignas(128) struct net_answer answer;
};

struct net_end {
	struct barway_context *ctx; /* the caller's, as is @dev */
	struct barway_device *dev;
	struct bench_gpu *gpu;
	bool soft;
	struct barway_endpoint *ep;
	struct barway_peer *peer;
	struct net_notes *notes;
	struct barway_region *notes_region;
	struct barway_key notes_key;

	/* the memory, after net_memory_open(): what comes at 0, what goes at @half */
	struct barway_region *region;
	struct barway_key key;
	struct bench_memory gpu_memory;
	void *host_memory;
	unsigned char *scratch; /* @half bytes */
	size_t half;

	struct barway_transfer *receive_message; /* its room is in the notes */
	char error[1024];                        /* the sentence of the last failure here */
};

/* Keeps a sentence; returns @ret. */
int net_failed(struct net_end *e, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Keeps Barway's sentence. */
int net_barway(struct net_end *e, int ret);

/* @e->ctx and @e->dev are set. On failure @e->error says why; net_end_close() in any case. */
int net_end_open(struct net_end *e, const struct net_options *o);
/* The endpoint goes, the memory too; ready for net_end_open(). */
void net_end_close(struct net_end *e);
/* What belongs to one peer goes. */
void net_peer_gone(struct net_end *e);

int net_memory_open(struct net_end *e, size_t half, bool host);
void net_memory_close(struct net_end *e);
int net_memory_fill(struct net_end *e, uint64_t seed, size_t bytes);
/* -EBADMSG and a sentence: what came is not it. */
int net_memory_check(struct net_end *e, uint64_t seed, size_t bytes);

/* A transfer of @bytes between these offsets. @key NULL: send or receive. */
struct net_transfer {
	uint32_t operation, path;
	uint64_t local, remote, bytes;
	const struct barway_key *key, *signal;
};
int net_prepare(struct net_end *e, const struct net_transfer *what, struct barway_transfer **out);
int net_post(struct net_end *e, struct barway_transfer *t);
int net_wait(struct net_end *e, struct barway_transfer *t, uint32_t moment);
void net_free(struct barway_transfer *t); /* NULL does nothing */
/* Until the peer has set the signal; then it is 0 again. */
int net_wait_signal(struct net_end *e);

/* Messages: posted first, then awaited. @for_ever: until the peer is gone. */
int net_expect(struct net_end *e, bool answer, bool for_ever);
int net_await(struct net_end *e);
int net_tell(struct net_end *e, bool answer);

/* ---- the two ends ------------------------------------------------------------------------- */

/* Does what the connected peer orders until it says that it goes. 0 or an error in @e->error. */
int net_serve(struct net_end *e);
/* --server: returns an exit code. */
int net_server(struct measure *m, struct net_options *o);

/* The other end as a process of our own: started before anything of Barway is opened here. */
struct net_local {
	pid_t child; /* 0: there is none */
	int sock;
};
int net_local_start(struct net_local *l, const struct measure *m, struct net_options *o);
/* Has it open an end on a device, and the network and address of @o. Returns an exit code. */
int net_local_open(struct net_local *l, const char *verb, const char *device,
		   const struct net_options *o, char name[64]);
void net_local_end(struct net_local *l);
/* This thread, and those it starts, keep to a share of the CPUs that it may use, at most one half;
 * that of the other end is another one, beside it. */
void net_take_share(const struct net_options *o, bool second);

/* Connects, and sets up memory at both ends. The answer is in @e->notes->answer. */
int net_connect(struct net_end *e, const char *name, size_t half, bool host);
void net_disconnect(struct net_end *e);

struct net_case {
	uint32_t operation, path;
	size_t bytes;
	unsigned window, slots;         /* of bandwidth */
	uint64_t reps;                  /* 0: what fits in @seconds */
	double seconds;
	const struct barway_key *data, *notes; /* the peer's */
};

struct net_result {
	struct bench_stats stats; /* half round trips (a get: the whole); bandwidth: of one byte */
	char path[512];           /* by which way the bytes went */
	bool direct;
};

int net_latency(struct net_end *e, const struct net_case *c, struct net_result *out);
/* Stats are nanoseconds for each byte. */
int net_bandwidth(struct net_end *e, const struct net_case *c, struct net_result *out);

#endif
