/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/control: TCP connections between endpoints, beside the data: who is there, does he have the
 * secret, what are his rails' addresses, does he still live.
 *
 * Both ends prove that they have the secret: each sends a random challenge; the answer is a MAC
 * (HMAC-SHA256, of libcrypto, which is opened at run time) over which end it is, both challenges,
 * whom the end that connects means, and the hellos, so that an answer can be used for nothing else
 * and by nobody else. The secret itself is never sent. The end that listens says nothing of itself
 * before the other has proved itself; the end that connects shows its hello to whoever listens
 * there. Until the answer is right nothing of what a peer sends is used, no more than a few KiB are
 * read of it, and it has a second for all of it; only so many that have not answered yet are kept.
 * A secret has to be random bytes: whoever sees a handshake can try guesses on it. What is sent
 * after the handshake has no MAC: see barway_net.h.
 *
 * A process that dies closes its connection, which is noticed at once, also where it had forked; of
 * a machine or a cable that dies the kernel tells by keep-alive and TCP_USER_TIMEOUT, within the
 * liveness time, of idle connections in 2 s at the earliest. So no thread and no call is needed for
 * a process to be taken for alive, and one that is stopped is alive.
 *
 * Nothing here has a thread. bw_control_step() does what is to be done; fd is readable when there
 * is something. One thread at a time uses a control with all its links: whoever has it locks it.
 * bw_control_connect(), and links that are not watched yet, need no such lock.
 *
 * In a forked child all of it is closed: calls give -ESTALE, what closes frees the memory.
 */
#ifndef BW_NET_CONTROL_H
#define BW_NET_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define BW_HELLO_MAX 8192u /* bytes */
#define BW_NOTE_MAX 1024u

struct bw_control;
struct bw_link; /* a connection whose other end has the secret */

struct bw_control_options {
	const char *listen;   /* "127.0.0.1", "10.0.0.1:4000", "[::1]:0"; NULL: "127.0.0.1" */
	const void *secret;   /* copied, wiped at close */
	size_t secret_bytes;  /* 16 to 1024 */
	const void *hello;    /* what every peer is told, authenticated; copied */
	size_t hello_bytes;   /* at most BW_HELLO_MAX */
	uint64_t liveness_ns; /* not 0 */
};

/* -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL an option: 0.0.0.0 is none, for peers are told one address;
 * -EMFILE, -ENOMEM, -ENOTSUP no libcrypto. */
int bw_control_open(const struct bw_control_options *options, struct bw_control **out);
/* With all its links: those that step gave, and those that are watched. */
void bw_control_close(struct bw_control *control);

/* "ADDRESS:PORT" that bw_control_connect() of another process takes. */
const char *bw_control_name(const struct bw_control *control);
int bw_control_fd(const struct bw_control *control); /* readable: step has something to do */

/* Accepts, reads, answers; never blocks. 1: *@link is a new peer that connected to us; call again.
 * 0: nothing more. -ESTALE. */
int bw_control_step(struct bw_control *control, struct bw_link **link);
/* How many had not the secret, or did not speak our language. */
uint64_t bw_control_refused(const struct bw_control *control);

/* Blocks until both ends have proved themselves: -ECONNREFUSED, -EHOSTUNREACH no way there from the
 * address on which we listen, -EACCES the secret, -EPROTO, -ETIMEDOUT, -EINVAL the name, -EMFILE,
 * -ENOMEM, -ESTALE. What is stepped meanwhile goes on in other threads: it takes no part of
 * @control. Two processes that have one thread each and connect to each other at the same time both
 * wait in vain. UINT64_MAX: no timeout. */
int bw_control_connect(const struct bw_control *control, const char *name, uint64_t timeout_ns,
		       struct bw_link **out);
/* A link that bw_control_connect() made is watched by step from then on, and closed with @control;
 * before, it reads and sends in its own calls. -EALREADY, -ENOMEM, -ENOSPC, -ESTALE. */
int bw_control_watch(struct bw_control *control, struct bw_link *link);

const void *bw_link_hello(const struct bw_link *link, size_t *bytes);
/* "10.0.0.7:41234": where the other end listens. */
const char *bw_link_name(const struct bw_link *link);

/*
 * Notes: small messages of 1 to BW_NOTE_MAX bytes, in order. send: -EAGAIN without a sentence where
 * the other end's program has to take some first (24 KiB of them or more are on their way);
 * -EINVAL. recv: the length; 0 none; -EMSGSIZE @room, and it stays. Both: -EIO the link is dead
 * (closed, reset, silent, or speaks wrongly), with the sentence: recv after the notes that came
 * before; -ESTALE.
 */
int bw_link_send(struct bw_link *link, uint16_t kind, const void *data, size_t bytes);
int bw_link_recv(struct bw_link *link, uint16_t *kind, void *data, size_t room);
/* NULL: alive; else why not. Cheap. Up to date after bw_control_step(). */
const char *bw_link_dead(const struct bw_link *link);
void bw_link_close(struct bw_link *link); /* NULL does nothing */

#endif
