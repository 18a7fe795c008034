/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside net/control*.c: addresses, descriptors, the handshake, links. Each part names its file. */
#ifndef BW_NET_CONTROL_INT_H
#define BW_NET_CONTROL_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/err.h"
#include "net/control.h"
#include "net/mac.h"

uint64_t bw_net_now(void); /* CLOCK_MONOTONIC */

/* ---- control_name.c: addresses and their names -------------------------------------------- */

#define BW_NET_NAME_MAX 64 /* "[ADDRESS]:PORT" and its end */

struct bw_address {
	struct sockaddr_storage at;
	socklen_t bytes;
};

/* "A.B.C.D", "A.B.C.D:PORT", "[A::B]", "[A::B%eth0]:PORT", "A::B". Without a port: port 0, which
 * is -EINVAL where @need_port. Numbers only: no name is looked up. */
int bw_address_parse(const char *text, bool need_port, struct bw_address *out);
void bw_address_name(const struct bw_address *a, char name[BW_NET_NAME_MAX]);
bool bw_address_same(const struct bw_address *a, const struct bw_address *b);
bool bw_address_any(const struct bw_address *a); /* 0.0.0.0, [::] */

/* ---- control_fd.c: descriptors that a forked child closes at once -------------------------- */

/* A child that kept them would keep its parent's connections alive after that has died. */
struct bw_net_fd {
	int fd; /* -1: none, or the parent process's */
	struct bw_net_fd *next, **at;
};

void bw_net_fd_none(struct bw_net_fd *node);
int bw_net_socket(struct bw_net_fd *node, int family);
int bw_net_accept(struct bw_net_fd *node, int listener); /* errors without a sentence */
int bw_net_epoll(struct bw_net_fd *node);
int bw_net_timer(struct bw_net_fd *node);
void bw_net_close(struct bw_net_fd *node);

/* ---- control_shake.c: the handshake, as messages ------------------------------------------- */

#define BW_HEAD_BYTES 16u
#define BW_CHALLENGE_BYTES 32u
#define BW_OPEN_BYTES (BW_HEAD_BYTES + BW_CHALLENGE_BYTES)
#define BW_PROOF_HEAD 40u /* the answer, and the lengths of what follows */
#define BW_PROOF_MAX (BW_HEAD_BYTES + BW_PROOF_HEAD + 2 * BW_NET_NAME_MAX + BW_HELLO_MAX)
#define BW_REFUSED_BYTES (BW_HEAD_BYTES + 4u)
#define BW_CONTROL_VERSION 1u

enum bw_refused {
	BW_REFUSED_LANGUAGE = 1, /* it does not speak it, or wrongly */
	BW_REFUSED_VERSION,
	BW_REFUSED_SECRET,
	BW_REFUSED_ADDRESSEE,    /* it means somebody else */
	BW_REFUSED_BUSY,         /* too many that have not proved themselves: try again */
	BW_REFUSED_LATE,
	BW_REFUSED_FAILED,       /* the refusing end has no memory, no random bytes */
	BW_REFUSED_COUNT
};

struct bw_refusal {
	int err;                 /* a positive errno value; EAGAIN: busy */
	enum bw_refused code;    /* what the other end is told; 0: nothing */
	struct bw_reason why;
};

/* What this end says of itself. */
struct bw_identity {
	char name[BW_NET_NAME_MAX];
	size_t secret_bytes, hello_bytes;
	unsigned char secret[1024];
	unsigned char hello[BW_HELLO_MAX];
};

struct bw_shake {
	const struct bw_identity *self;
	bool connects;                 /* this end does */
	bool opened;                   /* challenges were exchanged: proofs are next */
	char to[BW_NET_NAME_MAX];      /* the end that connects: whom it means */
	unsigned char challenge[2][BW_CHALLENGE_BYTES]; /* of the end that connects; that listens */
	unsigned char said[BW_MAC_BYTES];  /* digest of what the end that connects says of itself */
};

/* In the body of a proof that was right; not terminated. */
struct bw_proof {
	const char *name;
	size_t name_bytes;
	const void *hello;
	size_t hello_bytes;
};

/* What the end that connects sends first, BW_OPEN_BYTES. -EIO. */
int bw_shake_begin(struct bw_shake *s, unsigned char *out);
/* How many bytes the next message has, of which there are @have: at least @have + 1 or exactly
 * @have. Negative, and *@no: it is no message, which is told from its first byte on. */
int bw_shake_need(const struct bw_shake *s, const unsigned char *in, size_t have,
		  struct bw_refusal *no);
/* Takes a message of exactly bw_shake_need() bytes. Puts the answer into @out, *@out_bytes, at most
 * BW_PROOF_MAX. 0: go on; 1: the other end has proved itself, *@proof; negative, and *@no. */
int bw_shake_take(struct bw_shake *s, const unsigned char *in, size_t bytes, unsigned char *out,
		  size_t *out_bytes, struct bw_proof *proof, struct bw_refusal *no);
size_t bw_shake_refused(unsigned char *out, enum bw_refused code);

/* ---- control_link.c: notes ----------------------------------------------------------------- */

#define BW_FRAME_BYTES 8u
/*
 * So many bytes of notes may be on their way that the other end's program has not taken. They fit
 * into what a kernel keeps for a socket at the least, so that the window of TCP never closes: a
 * process that is stopped would else be taken for dead by TCP_USER_TIMEOUT.
 */
#define BW_LINK_WINDOW 32768u

struct bw_link {
	struct bw_net_fd fd;
	struct bw_control *control;  /* that watches it */
	struct bw_link *next, **at;  /* in a list of @control's */
	char name[BW_NET_NAME_MAX];
	void *hello;
	size_t hello_bytes;
	uint64_t liveness_ns;
	char dead[384];              /* "": alive */

	bool proved;                 /* both ends have the secret: what comes are frames */
	char from[BW_NET_NAME_MAX];
	uint64_t since_ns;
	struct bw_shake shake;

	size_t on_way;               /* bytes of notes that the other end has not taken */
	size_t taken;                /* bytes of its notes taken here, which it was not told yet */
	size_t in_head, in_notes, in_len; /* [head, notes): whole notes; [notes, len): the rest */
	size_t out_head, out_len;
	bool wants_out;
	unsigned char in[BW_LINK_WINDOW + BW_HEAD_BYTES + 4096];
	unsigned char out[BW_LINK_WINDOW + BW_PROOF_MAX + 64];
};

struct bw_link *bw_link_new(void); /* NULL: no memory, with the sentence */
/* No more is sent; what was received stays. Does nothing to one that is dead. */
void bw_link_die(struct bw_link *link, const char *fmt, ...) BW_PRINTF(2, 3);
int bw_link_tune(struct bw_link *link, uint64_t liveness_ns); /* options of the socket */
/* Reads what is there; whole notes only become visible. A link that is over is dead afterwards. */
void bw_link_pull(struct bw_link *link);
void bw_link_push(struct bw_link *link); /* sends what is in its buffer, as far as that goes */
/* The handshake: 0: more has to come; 1: proved; negative, and *@no. Never blocks. */
int bw_link_shake(struct bw_link *link, struct bw_refusal *no);
/* Tells the other end why, as far as that goes without waiting. */
void bw_link_refuse(struct bw_link *link, const struct bw_refusal *no);
void bw_link_unlist(struct bw_link *link);

/* ---- control.c ------------------------------------------------------------------------------ */

#define BW_PENDING_MAX 64u

struct bw_control {
	struct bw_net_fd listener, epoll, timer;
	struct bw_identity self;
	struct bw_address at;
	uint64_t liveness_ns;

	struct bw_link *pending;          /* not proved; the oldest first */
	struct bw_link *ready;            /* proved, not yet given out */
	struct bw_link *links;
	unsigned npending;

	bool paused;                      /* nobody is accepted */
	bool full;                        /* because too many have not proved themselves */
	uint64_t pause_until_ns;
	uint64_t armed_ns;                /* the timer */
	uint64_t refused, logged_ns, unlogged;
};

/* What epoll watches of a link follows what the link wants; nothing where none watches it. */
void bw_control_wants(struct bw_link *link);
/* Before its descriptor is closed: another process may have it for a moment, between fork and exec,
 * and it stays in the set of epoll while anybody has it. */
void bw_control_unwatch(struct bw_link *link);

#endif
