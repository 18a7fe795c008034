/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/wire: what endpoints say to each other. Messages go by rail 0, in order; bytes of larger
 * transfers by writes on all rails, in none.
 *
 *    put, send    source: PUT or SEND      sink: checks, then GRANT: where to write
 *                 source: writes, SENT     sink: counts, publishes, DONE
 *    get          sink: GET with a grant   source: checks, writes, SENT; the sink counts
 *
 * What fits is eager: the bytes are in PUT and SEND, or in the DATA that answers GET, and nothing
 * is granted. Each end checks what it is told against its own regions; nothing of a peer's is
 * trusted but that it has the secret. Numbers are as the CPU has them, alike at both ends: the
 * hello says so.
 */
#ifndef BW_NET_WIRE_H
#define BW_NET_WIRE_H

#include <stdint.h>

#define BW_WIRE_VERSION 2u
#define BW_WIRE_RAILS 16u
#define BW_WIRE_CREDITS 64u /* messages on their way to a peer that it has not handled */
#define BW_WIRE_SENDS 256u  /* messages that no receive has taken, from one peer */
#define BW_WIRE_OPS 256u    /* puts and gets under way, from one peer */

enum bw_wire_kind {
	BW_WIRE_HELLO = 1,  /* the first on each rail, by the end that connects */
	BW_WIRE_WELCOME,    /* its answer */
	BW_WIRE_CREDIT,
	BW_WIRE_PUT,
	BW_WIRE_SEND,
	BW_WIRE_GET,
	BW_WIRE_PARTS,      /* the next @n pieces of @src's */
	BW_WIRE_GRANT,
	BW_WIRE_FREED,      /* slots of the ring, bits of @b, may be written again; @dst 0, as
			     * in STOP: it is a get, known by @src */
	BW_WIRE_CHUNK,      /* of networks whose writes bring no data: slot @n has arrived */
	BW_WIRE_SENT,       /* all is written, in @n writes */
	BW_WIRE_DATA,       /* an eager get's bytes */
	BW_WIRE_DONE,       /* @error: 0: arrived and visible */
	BW_WIRE_CANCEL,     /* the source gave up, after @n writes; @src is its id */
	BW_WIRE_STOP,       /* the sink gave up: the source is to cancel */
};

#define BW_WIRE_EAGER 1u
#define BW_WIRE_SIGNAL 2u  /* struct bw_wire_signal follows */
#define BW_WIRE_STAGED 4u  /* the sender wants no direct path */
#define BW_WIRE_DIRECT 8u  /* and this one no other */
#define BW_WIRE_MORE 16u   /* the pieces come in PARTS */

/* After it, in this order: the signal, the grant, the pieces, the bytes. */
struct bw_wire {
	uint8_t kind, flags;
	uint16_t credits; /* messages of the receiver's that were handled since the last message */
	uint32_t n;
	uint64_t token;   /* given out by the receiver: who it is from */
	uint32_t src, dst; /* ids of the flow at both ends; 0: not known yet. @dst of what begins
			    * something is another flow's, which is DONE with that */
	uint64_t a;       /* put, get: the offset; send: the tag */
	uint64_t b;       /* bytes */
	uint32_t region;
	int32_t error;
	unsigned char secret[16];
};
_Static_assert(sizeof(struct bw_wire) == 64, "one cache line");

struct bw_wire_signal {
	uint32_t region, reserved;
	unsigned char secret[16];
	uint64_t offset, value;
};
_Static_assert(sizeof(struct bw_wire_signal) == 40, "on the wire");

struct bw_wire_part {
	uint64_t from, to, bytes; /* offsets in the regions of the source and of the sink */
};

enum bw_wire_grant_mode {
	BW_GRANT_DIRECT = 1, /* into the memory itself */
	BW_GRANT_RING = 2,   /* chunk k into slot k % slots, when that is free */
};

struct bw_wire_grant {
	uint8_t mode;
	uint8_t nrails;  /* the first so many may be written on: one for what is short */
	uint16_t slots;
	uint32_t chunk;  /* bytes of a slot; direct: 0 */
	uint64_t base;   /* direct: the offset in the region which @rail[].addr names */
	uint64_t to;     /* direct, one piece: where it begins */
	struct {
		uint64_t addr, key;
	} rail[BW_WIRE_RAILS];
};
_Static_assert(sizeof(struct bw_wire_grant) == 24 + 16 * BW_WIRE_RAILS, "on the wire");

/* The 32 bits that come with a write: the sink's flow, and the slot. */
#define BW_WIRE_DATA32(id, slot) (((uint32_t)(id) & 0xffffffu) | (uint32_t)(slot) << 24)

/* Authenticated: what every peer is told of an endpoint when it connects. */
struct bw_wire_hello {
	uint32_t version, order; /* BW_WIRE_ORDER as the sender's CPU has it */
	uint32_t pid, eager;     /* bytes that fit into a message */
	uint32_t nrails, chunk;
	char network[32], provider[64], host[64];
	struct {
		uint32_t bytes;
		unsigned char at[256];
	} rail[BW_WIRE_RAILS];
};
#define BW_WIRE_ORDER 0x04030201u

/* Notes of the control connection. */
enum bw_wire_note_kind {
	BW_NOTE_TOKEN = 1, /* struct bw_wire_note: what messages to the sender have to carry */
	BW_NOTE_BYE = 2,   /* one byte: the peer was closed on purpose */
};

struct bw_wire_note {
	uint64_t token;
	uint32_t nrails, reserved;
};

#endif
