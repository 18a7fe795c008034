/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handshake. C is the end that connects, L the one that listens:
 *
 *	C  OPEN   its challenge
 *	L  OPEN   its challenge
 *	C  PROOF  its answer, where it listens, whom it means, its hello
 *	L  PROOF  its answer, where it listens, its hello
 *
 * or at any place REFUSED with the reason. The answer of an end is the MAC under the secret of:
 * which end it is, both challenges, what C says of itself, and in L's answer what L says of itself.
 * L answers only to a right answer, so it tells those who do not have the secret nothing but that
 * it is there, and gives them nothing that was computed with it. Whom C means is in its answer, so
 * that nobody can have it connect to himself and pass the answer on to an L of his choice.
 *
 * Integers are little-endian. A message: magic, 8 bytes; version, 2; kind, 2; bytes that follow, 4:
 * all of them in every version. A proof: the answer, 32; lengths of name, of whom it means, and of
 * hello, 2 each; 2 of zero; then those three.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "net/control_int.h"

enum { MESSAGE_OPEN = 1, MESSAGE_PROOF, MESSAGE_REFUSED };

#define MAGIC_BYTES 8u

/* Begins with what no text begins with. */
static const unsigned char magic[MAGIC_BYTES] = { 0xba, 'b', 'a', 'r', 'w', 'a', 'y', '\n' };

static const struct {
	int err;
	const char *what;
} refusals[BW_REFUSED_COUNT] = {
	[BW_REFUSED_LANGUAGE] = { EPROTO, "it did not understand this end" },
	[BW_REFUSED_VERSION] = { EPROTO, "it speaks another version: use the same at both ends" },
	[BW_REFUSED_SECRET] = { EACCES, "its secret is not this end's: give both the same" },
	[BW_REFUSED_ADDRESSEE] = { EACCES, "it has another name than the one that was given here: "
				   "use the name that it gives itself, without translation of "
				   "addresses in between" },
	[BW_REFUSED_BUSY] = { EAGAIN, "too many others knock at its door" },
	[BW_REFUSED_LATE] = { ETIMEDOUT, "this end took too long to prove itself" },
	[BW_REFUSED_FAILED] = { ECONNREFUSED, "it has no memory left, or its libcrypto failed" },
};

static unsigned get16(const unsigned char *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

static uint32_t get32(const unsigned char *p)
{
	return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static void put16(unsigned char *p, unsigned v)
{
	p[0] = (unsigned char)v;
	p[1] = (unsigned char)(v >> 8);
}

static void put_head(unsigned char *p, unsigned kind, size_t bytes)
{
	memcpy(p, magic, MAGIC_BYTES);
	put16(p + 8, BW_CONTROL_VERSION);
	put16(p + 10, kind);
	put16(p + 12, (unsigned)bytes);
	put16(p + 14, 0);
}

static int refuse(struct bw_refusal *no, enum bw_refused code, const char *fmt, ...)
	BW_PRINTF(3, 4);
static int refuse(struct bw_refusal *no, enum bw_refused code, const char *fmt, ...)
{
	char text[384];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	no->code = code;
	no->err = refusals[code].err;
	bw_reason_set(&no->why, "%s", text);
	return -no->err;
}

size_t bw_shake_refused(unsigned char *out, enum bw_refused code)
{
	put_head(out, MESSAGE_REFUSED, 4);
	put16(out + BW_HEAD_BYTES, code);
	put16(out + BW_HEAD_BYTES + 2, 0);
	return BW_REFUSED_BYTES;
}

static int was_refused(const unsigned char *body, struct bw_refusal *no)
{
	uint32_t code = get32(body);
	bool known = code && code < BW_REFUSED_COUNT;

	no->code = 0; /* it knows */
	no->err = known ? refusals[code].err : EPROTO;
	bw_reason_set(&no->why, "the other end refuses: %s",
		      known ? refusals[code].what : "it does not say why in words known here");
	return -no->err;
}

/* ---- what a message is ---------------------------------------------------------------------- */

/* Something that began otherwise than we do, in letters: "GET / HT". */
static int not_ours(const unsigned char *in, size_t have, struct bw_refusal *no)
{
	char text[4 * MAGIC_BYTES + 1];
	size_t n = 0;

	for (size_t i = 0; i < have && i < MAGIC_BYTES; i++)
		if (in[i] >= ' ' && in[i] < 127)
			text[n++] = (char)in[i];
		else
			n += (size_t)snprintf(text + n, sizeof(text) - n, "\\x%02x", in[i]);
	text[n] = 0;
	return refuse(no, BW_REFUSED_LANGUAGE, "it does not speak Barway's language, it began "
		      "with \"%s\": another program: check the port", text);
}

static bool length_right(unsigned kind, uint32_t bytes)
{
	switch (kind) {
	case MESSAGE_OPEN:
		return bytes == BW_CHALLENGE_BYTES;
	case MESSAGE_REFUSED:
		return bytes == BW_REFUSED_BYTES - BW_HEAD_BYTES;
	default:
		return bytes >= BW_PROOF_HEAD && bytes <= BW_PROOF_MAX - BW_HEAD_BYTES;
	}
}

int bw_shake_need(const struct bw_shake *s, const unsigned char *in, size_t have,
		  struct bw_refusal *no)
{
	unsigned kind, version;
	uint32_t bytes;

	if (memcmp(in, magic, have < MAGIC_BYTES ? have : MAGIC_BYTES))
		return not_ours(in, have, no);
	if (have < BW_HEAD_BYTES)
		return BW_HEAD_BYTES;
	version = get16(in + 8);
	kind = get16(in + 10);
	bytes = get32(in + 12);
	if (version != BW_CONTROL_VERSION)
		return refuse(no, BW_REFUSED_VERSION, "it speaks version %u of Barway's language, "
			      "this end version %u: use the same version at both ends",
			      version, BW_CONTROL_VERSION);
	if (kind != (s->opened ? MESSAGE_PROOF : MESSAGE_OPEN) && kind != MESSAGE_REFUSED)
		return refuse(no, BW_REFUSED_LANGUAGE, "it sent a message of kind %u where one of "
			      "kind %u belongs", kind, s->opened ? MESSAGE_PROOF : MESSAGE_OPEN);
	if (!length_right(kind, bytes))
		return refuse(no, BW_REFUSED_LANGUAGE, "it sent a message of kind %u and %u bytes, "
			      "which no such message has", kind, bytes);
	return (int)(BW_HEAD_BYTES + bytes);
}

/* ---- proofs --------------------------------------------------------------------------------- */

/* The answer of one of the ends. @listens: L's, which says @said of itself. */
static int answer(const struct bw_shake *s, bool listens, const unsigned char *said,
		  unsigned char out[BW_MAC_BYTES])
{
	struct {
		char label[32];
		unsigned char challenge[2][BW_CHALLENGE_BYTES];
		unsigned char said[2][BW_MAC_BYTES];
	} all = { .label = "" };

	snprintf(all.label, sizeof(all.label), "barway control %u: %s", BW_CONTROL_VERSION,
		 listens ? "listens" : "connects");
	memcpy(all.challenge, s->challenge, sizeof(all.challenge));
	memcpy(all.said[0], s->said, BW_MAC_BYTES);
	if (listens)
		memcpy(all.said[1], said, BW_MAC_BYTES);
	return bw_mac(s->self->secret, s->self->secret_bytes, &all, sizeof(all), out);
}

static size_t put_proof(struct bw_shake *s, unsigned char *out)
{
	const struct bw_identity *self = s->self;
	size_t name = strlen(self->name), to = s->connects ? strlen(s->to) : 0;
	size_t bytes = BW_PROOF_HEAD + name + to + self->hello_bytes;
	unsigned char *body = out + BW_HEAD_BYTES, *said = body + BW_MAC_BYTES;
	unsigned char digest[BW_MAC_BYTES];

	put_head(out, MESSAGE_PROOF, bytes);
	put16(said, (unsigned)name);
	put16(said + 2, (unsigned)to);
	put16(said + 4, (unsigned)self->hello_bytes);
	put16(said + 6, 0);
	memcpy(body + BW_PROOF_HEAD, self->name, name);
	memcpy(body + BW_PROOF_HEAD + name, s->to, to);
	memcpy(body + BW_PROOF_HEAD + name + to, self->hello, self->hello_bytes);
	if (bw_digest(said, bytes - BW_MAC_BYTES, digest))
		return 0;
	if (s->connects)
		memcpy(s->said, digest, sizeof(digest));
	if (answer(s, !s->connects, digest, body))
		return 0;
	return BW_HEAD_BYTES + bytes;
}

static int failed(struct bw_refusal *no)
{
	return refuse(no, BW_REFUSED_FAILED, "this end cannot: %.300s", bw_err_text());
}

/* 0: it is the right answer. */
static int verify(struct bw_shake *s, const unsigned char *body, size_t bytes,
		  struct bw_refusal *no)
{
	unsigned char digest[BW_MAC_BYTES], right[BW_MAC_BYTES];
	bool same;

	if (bw_digest(body + BW_MAC_BYTES, bytes - BW_MAC_BYTES, digest))
		return failed(no);
	if (!s->connects)
		memcpy(s->said, digest, sizeof(digest));
	if (answer(s, s->connects, digest, right))
		return failed(no);
	same = bw_mac_equal(body, right);
	explicit_bzero(right, sizeof(right)); /* with it a wrong one could be put right */
	if (!same)
		return refuse(no, BW_REFUSED_SECRET, "it does not have this end's secret: give "
			      "both ends the same");
	return 0;
}

static bool is_name(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return bytes && bytes < BW_NET_NAME_MAX;
}

/* Of an end that has the secret; so what is wrong here is a fault of its program's. */
static int take_proof(struct bw_shake *s, const unsigned char *body, size_t bytes,
		      struct bw_proof *proof, struct bw_refusal *no)
{
	const unsigned char *lengths = body + BW_MAC_BYTES;
	size_t name = get16(lengths), to = get16(lengths + 2), hello = get16(lengths + 4);
	const char *text = (const char *)body + BW_PROOF_HEAD;
	int ret;

	if (get16(lengths + 6) || hello > BW_HELLO_MAX ||
	    name + to + hello != bytes - BW_PROOF_HEAD || !is_name(text, name) ||
	    (s->connects ? to != 0 : !is_name(text + name, to)))
		return refuse(no, BW_REFUSED_LANGUAGE, "what it says of itself is not in order");
	ret = verify(s, body, bytes, no);
	if (ret)
		return ret;
	if (!s->connects && (to != strlen(s->self->name) || memcmp(text + name, s->self->name, to)))
		return refuse(no, BW_REFUSED_ADDRESSEE, "it means %.*s, and this is %s: addresses "
			      "are translated in between, or somebody passes it on", (int)to,
			      text + name, s->self->name);
	proof->name = text;
	proof->name_bytes = name;
	proof->hello = text + name + to;
	proof->hello_bytes = hello;
	return 0;
}

/* ---- the sequence --------------------------------------------------------------------------- */

static size_t put_open(struct bw_shake *s, unsigned char *out)
{
	unsigned char *mine = s->challenge[!s->connects];

	if (bw_random(mine, BW_CHALLENGE_BYTES))
		return 0;
	put_head(out, MESSAGE_OPEN, BW_CHALLENGE_BYTES);
	memcpy(out + BW_HEAD_BYTES, mine, BW_CHALLENGE_BYTES);
	return BW_OPEN_BYTES;
}

int bw_shake_begin(struct bw_shake *s, unsigned char *out)
{
	s->opened = false;
	return put_open(s, out) ? 0 : -EIO;
}

static int take_open(struct bw_shake *s, const unsigned char *body, unsigned char *out,
		     size_t *out_bytes, struct bw_refusal *no)
{
	memcpy(s->challenge[s->connects], body, BW_CHALLENGE_BYTES);
	if (s->connects &&
	    !memcmp(s->challenge[0], s->challenge[1], BW_CHALLENGE_BYTES))
		return refuse(no, BW_REFUSED_LANGUAGE, "it sends back what this end sent: not "
			      "Barway, but something that echoes");
	*out_bytes = s->connects ? put_proof(s, out) : put_open(s, out);
	if (!*out_bytes)
		return failed(no);
	s->opened = true;
	return 0;
}

int bw_shake_take(struct bw_shake *s, const unsigned char *in, size_t bytes, unsigned char *out,
		  size_t *out_bytes, struct bw_proof *proof, struct bw_refusal *no)
{
	const unsigned char *body = in + BW_HEAD_BYTES;
	int ret;

	*out_bytes = 0;
	switch (get16(in + 10)) {
	case MESSAGE_REFUSED:
		return was_refused(body, no);
	case MESSAGE_OPEN:
		return take_open(s, body, out, out_bytes, no);
	}
	ret = take_proof(s, body, bytes - BW_HEAD_BYTES, proof, no);
	if (ret)
		return ret;
	if (!s->connects) {
		*out_bytes = put_proof(s, out);
		if (!*out_bytes)
			return failed(no);
	}
	return 1;
}
