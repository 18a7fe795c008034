/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of requests share: one is started, and ended in one of five ways. */
#ifndef REQUEST_TEST_H
#define REQUEST_TEST_H

#include <poll.h>

#include "api_test.h"

#define BYTES (4u * MIB)

static unsigned char host[BYTES], back[BYTES];

static inline struct barway_request *start(struct barway_mapping *m, uint32_t direction,
					   uint32_t method, size_t offset, void *p, size_t n,
					   uint32_t flags)
{
	struct barway_piece piece = { offset, p, n };
	struct barway_request *r = NULL;

	OK(barway_copy_start(m, direction, method, &piece, 1, flags, &r));
	CHECK(r);
	memset(&piece, 0xff, sizeof(piece)); /* it was copied */
	return r;
}

/* ---- the ways to its end ------------------------------------------------------------------- */

static inline void end_polled(struct barway_request *r)
{
	int ret;

	while ((ret = barway_request_poll(r)) == -EBUSY)
		sched_yield();
	OK(ret);
	OK(barway_request_poll(r)); /* and again */
}

static inline void end_waited(struct barway_request *r)
{
	OK(barway_request_wait(r, BARWAY_FOREVER));
	OK(barway_request_wait(r, 0));
}

static inline void end_in_turns(struct barway_request *r)
{
	int ret;

	while ((ret = barway_request_wait(r, 1000)) == -ETIMEDOUT)
		CHECK_HAS(barway_errmsg(), "not done after 1000 ns");
	OK(ret);
}

static inline void end_by_fd(struct barway_request *r)
{
	struct pollfd p = { .fd = barway_request_fd(r), .events = POLLIN };

	CHECK(p.fd > 2);
	CHECK_EQ(poll(&p, 1, 30000), 1); /* nobody polls or waits: the library does */
	OK(barway_request_poll(r));
	CHECK_EQ(poll(&p, 1, 0), 1);
}

static inline void end_by_free(struct barway_request *r)
{
	(void)r;
}

#endif
