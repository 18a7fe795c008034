/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy/request: copies that go on after the call that started them.
 *
 * A request is a list of jobs (copy.h). Jobs whose method can be started and needs no CPU are the
 * device's; the others are moved on by whoever polls or waits, or by the worker: one thread of the
 * process (worker.c), started by the first request that needs it and gone when there was none for a
 * while. What no method can start is done before the call returns.
 */
#ifndef BW_COPY_REQUEST_H
#define BW_COPY_REQUEST_H

#include "copy/copy.h"

struct bw_request;

/*
 * @copies: in one direction, checked to be inside the mapping; their host side is found here.
 * @driven: by the worker. @event: an eventfd tells the end. Errors as copy.h's copy: after those
 * but -EIO no byte has moved. With BW_METHOD_AUTO one CPU thread does what another method cannot.
 */
int bw_request_start(const struct bw_copy *copies, size_t n, enum bw_method method, bool driven,
		     bool event, struct bw_request **out);
int bw_request_poll(struct bw_request *req);                      /* 0, -EBUSY, -EIO */
int bw_request_wait(struct bw_request *req, uint64_t timeout_ns); /* and -ETIMEDOUT */
int bw_request_fd(const struct bw_request *req);                  /* -1: has none */
void bw_request_free(struct bw_request *req);                     /* waits */

/* ---- what worker.c and request.c share ------------------------------------------------------- */

struct bw_worker_link {
	struct bw_worker_link *next;
	bool listed;
};

/* It stays until bw_worker_add(). -EAGAIN, -ENOMEM: there is no worker and none can be had. */
int bw_worker_start(void);
/* Turns @link's request until it is done. NULL: there is none after all. */
void bw_worker_add(struct bw_worker_link *link);
/* Returns when the worker does not know @link any more. */
void bw_worker_remove(struct bw_worker_link *link);
/* Ends the worker, which has nothing to do any more. */
void bw_worker_end(void);

/* request.c: a bounded piece of work. false: it is done. *@idle: there was nothing to do. */
bool bw_request_turn(struct bw_worker_link *link, bool *idle);
/* Calls bw_worker_wake() when the device has done what it has to do now; false: it will not. */
bool bw_request_notify(struct bw_worker_link *link);
void bw_worker_wake(void *unused);

#endif
