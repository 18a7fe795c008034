/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/fabric: the engine over libfabric, between its own files. libfabric is opened when it is
 * first needed, and only the one that the machine has: a second copy in one process would see no
 * devices.
 *
 * Every rail has a fabric, a domain, a completion queue and an endpoint (FI_EP_RDM) of its own, so
 * that rails share no lock. What a network is like is read from its fi_info, never assumed.
 */
#ifndef BW_NET_FABRIC_H
#define BW_NET_FABRIC_H

#include <signal.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "net/engine.h"

/* The few functions that are symbols of libfabric; all else goes through tables in its objects. */
struct bw_fabric_lib {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *ctx);
	uint32_t (*version)(void);
	const char *(*strerror)(int error);
	uint32_t api; /* what is asked for: the library's own version, or the newest known here */
};

/* NULL with the reason where there is none. */
const struct bw_fabric_lib *bw_fabric_lib(struct bw_reason *why);
/* Once, before the first fi_getinfo: what of libfabric is set by environment variables only. */
void bw_fabric_environment(unsigned peers);
/*
 * Libraries that libfabric draws in set handlers of signals when they are opened (libinfinipath, of
 * psm) or when an endpoint is (shm, to remove its file when the process is killed). A program's
 * signals are its own: around those calls they are kept, and put back.
 */
struct bw_fabric_handlers {
	struct sigaction action[32];
	bool known[32];
};

void bw_fabric_keep_handlers(struct bw_fabric_handlers *h);
void bw_fabric_put_handlers_back(const struct bw_fabric_handlers *h);
/* fi_getinfo, with the handlers of signals left as they were; 0 or a negative fi_errno value. */
int bw_fabric_getinfo(const struct bw_fabric_lib *l, const char *node, uint64_t flags,
		      const struct fi_info *hints, struct fi_info **info);
/* A positive errno value for what a libfabric function returned; its own numbers are EIO. */
int bw_fabric_errno(int error);

struct bw_fabric_network {
	const char *name;
	const char *provider, *fallback; /* libfabric's names; NULL: none */
	bool by_cpu, by_address;         /* CPUs move the bytes; interfaces are IP addresses */
	bool target_polls;
	bool keeps_numbers;              /* a dead peer's must not be used again */
	bool waits;                      /* its queues have a descriptor to wait for, at no cost */
	bool own_dmabufs;                /* it takes none of others */
};

/* The fi_info of @options->network on @options->interface, and what network that is. -ENOTSUP with
 * the reason, -EINVAL. */
int bw_fabric_choose(const struct bw_fabric_lib *lib, const struct bw_rail_options *options,
		     const struct bw_fabric_network **network, struct fi_info **info);
void bw_fabric_networks(const struct bw_fabric_lib *lib, struct bw_reason *list);

/* An operation under way. Providers may keep their own things in the first member. */
struct bw_fabric_op {
	struct fi_context2 context;
	struct bw_fabric_op *next; /* free */
	void *ctx;
	fi_addr_t peer;
	uint8_t kind;              /* enum bw_event_kind; 0: free */
	bool orphan;               /* its peer was disconnected: nobody is told */
};

struct bw_fabric_ops_block {
	struct bw_fabric_ops_block *next;
	size_t n;
	struct bw_fabric_op ops[];
};

struct bw_fabric_rail {
	struct bw_rail rail;
	const struct bw_fabric_lib *lib;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct bw_fabric_op *free;
	size_t inject_bytes;
	uint64_t write_bytes;
	uint64_t data_mask;
	unsigned data_bytes;
	struct bw_fabric_ops_block *blocks;
	const struct bw_fabric_network *network;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	int fd;
	int edges;                     /* readable when @fd became so anew; -1: @fd is used */
	bool unpolled;                 /* @edges told so, and nobody has polled since */
	unsigned readable;             /* times that arm found it so, and poll nothing */
	bool kept;                     /* @entry is to be polled first */
	/* shm: a peer went with writes under way, which never complete, nor do any after them */
	bool stuck;
	struct fi_cq_data_entry entry;
};

static inline struct bw_fabric_rail *bw_fabric_rail(struct bw_rail *rail)
{
	return (struct bw_fabric_rail *)rail;
}

/* fabric_post.c */
int bw_fabric_add_ops(struct bw_fabric_rail *r, size_t n); /* -ENOMEM */
int bw_fabric_forget_ops(struct bw_fabric_rail *r, fi_addr_t peer);
int bw_fabric_send(struct bw_rail *rail, uint64_t peer, const void *message, size_t bytes,
		   void *desc, void *ctx);
int bw_fabric_recv(struct bw_rail *rail, void *message, size_t room, void *desc, void *ctx);
int bw_fabric_write(struct bw_rail *rail, uint64_t peer, const void *src, size_t bytes, void *desc,
		    uint64_t addr, uint64_t key, bool has_data, uint64_t data, unsigned flags,
		    void *ctx);
int bw_fabric_read(struct bw_rail *rail, uint64_t peer, void *dst, size_t bytes, void *desc,
		   uint64_t addr, uint64_t key, void *ctx);

/* fabric_poll.c */
int bw_fabric_poll(struct bw_rail *rail, struct bw_event *events, unsigned n);
int bw_fabric_watch(struct bw_fabric_rail *r); /* its descriptor */
int bw_fabric_arm(struct bw_rail *rail);
void bw_fabric_interrupt(struct bw_rail *rail);

/* fabric_reg.c */
int bw_fabric_reg(struct bw_rail *rail, const struct bw_reg_request *request, struct bw_reg *out);
void bw_fabric_unreg(struct bw_rail *rail, struct bw_reg *reg);

#endif
