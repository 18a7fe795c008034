/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links: bytes to and from the socket, the handshake on them, notes.
 *
 * After the handshake there are frames: type, 2 bytes; kind, 2; value, 4. A NOTE has value bytes
 * after it. CREDIT: so many bytes of notes, frames included, were taken by the program at the other
 * end; no more than BW_LINK_WINDOW are ever on their way, so the buffer here holds all that can
 * come and what is there can always be read. Notes have no MAC: see control.h.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fault.h"
#include "net/control_int.h"

enum { FRAME_NOTE = 1, FRAME_CREDIT };

#define INHERITED \
	"connection: it was made by the parent process before fork(): open one in this process"

static unsigned get16(const unsigned char *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

static size_t get32(const unsigned char *p)
{
	return get16(p) | (size_t)get16(p + 2) << 16;
}

static void put_frame(unsigned char *p, unsigned type, unsigned kind, size_t value)
{
	p[0] = (unsigned char)type;
	p[1] = 0;
	p[2] = (unsigned char)kind;
	p[3] = (unsigned char)(kind >> 8);
	for (unsigned i = 0; i < 4; i++)
		p[4 + i] = (unsigned char)(value >> 8 * i);
}

struct bw_link *bw_link_new(void)
{
	struct bw_link *link = bw_alloc(sizeof(*link));

	if (!link)
		bw_err(ENOMEM, "connection: no memory for its buffers, %zu bytes: free some",
		       sizeof(*link));
	else
		bw_net_fd_none(&link->fd);
	return link;
}

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) ? -errno : 0;
}

/*
 * The kernel looks after an idle connection only each whole second, and takes it for dead where
 * nothing has come for TCP_USER_TIMEOUT then: which is a quarter less than liveness, to be in time.
 */
int bw_link_tune(struct bw_link *link, uint64_t liveness_ns)
{
	uint64_t ms = liveness_ns / 1000000u, s = liveness_ns / 4000000000u;
	int fd = link->fd.fd, idle = s < 1 ? 1 : s > 30000 ? 30000 : (int)s, ret;

	link->liveness_ns = liveness_ns;
	ms = ms > INT32_MAX ? INT32_MAX : ms;
	ms -= ms / 4;
	ret = set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (!ret)
		ret = set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	if (!ret)
		ret = set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
	if (!ret)
		ret = set(fd, IPPROTO_TCP, TCP_KEEPINTVL, idle);
	if (!ret)
		ret = set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms ? (int)ms : 1);
	return ret;
}

/* ---- death ---------------------------------------------------------------------------------- */

void bw_link_die(struct bw_link *link, const char *fmt, ...)
{
	va_list ap;

	if (link->dead[0])
		return;
	va_start(ap, fmt);
	vsnprintf(link->dead, sizeof(link->dead), fmt, ap);
	va_end(ap);
	bw_control_unwatch(link);
	bw_net_close(&link->fd);
	link->out_head = link->out_len = 0;
}

/* The words for an errno value of the socket's. */
static void die_of(struct bw_link *link, int err)
{
	if (err == ETIMEDOUT)
		bw_link_die(link, "connection to %s: nothing was heard of it within %llu ms: its "
			    "machine or the network failed", link->name,
			    (unsigned long long)(link->liveness_ns / 1000000u));
	else
		bw_link_die(link, "connection to %s: %s: its process ended, or the network failed",
			    link->name, strerror(err));
}

static void die_of_frame(struct bw_link *link, const char *what)
{
	bw_link_die(link, "connection to %s: it sent %s: its memory was overwritten, or somebody "
		    "changed what it sent", link->name, what);
}

const char *bw_link_dead(const struct bw_link *link)
{
	if (link->dead[0])
		return link->dead;
	return link->fd.fd < 0 ? INHERITED : NULL;
}

static int dead_err(const struct bw_link *link)
{
	return bw_err(link->dead[0] ? EIO : ESTALE, "%s", bw_link_dead(link));
}

/* ---- out ------------------------------------------------------------------------------------ */

static void compact(unsigned char *buffer, size_t *head, size_t *len)
{
	memmove(buffer, buffer + *head, *len - *head);
	*len -= *head;
	*head = 0;
}

static bool has_room(struct bw_link *link, size_t bytes)
{
	if (sizeof(link->out) - link->out_len < bytes)
		compact(link->out, &link->out_head, &link->out_len);
	return sizeof(link->out) - link->out_len >= bytes;
}

void bw_link_push(struct bw_link *link)
{
	while (!bw_link_dead(link) && link->out_head < link->out_len) {
		ssize_t n = send(link->fd.fd, link->out + link->out_head,
				 link->out_len - link->out_head, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM))
			break;
		if (n < 0) {
			int err = errno;

			link->out_head = link->out_len = 0;
			if (!link->proved)
				return; /* reading will tell: it may have said why */
			bw_link_pull(link); /* what it said before it went */
			die_of(link, err);
			return;
		}
		link->out_head += (size_t)n;
	}
	if (link->out_head == link->out_len)
		link->out_head = link->out_len = 0;
	bw_control_wants(link);
}

/* Tells the other end what was taken, now and then; where there is no room, the next time. */
static void give_credit(struct bw_link *link)
{
	if (link->taken < BW_LINK_WINDOW / 4 || bw_link_dead(link) ||
	    !has_room(link, BW_FRAME_BYTES))
		return;
	put_frame(link->out + link->out_len, FRAME_CREDIT, 0, link->taken);
	link->out_len += BW_FRAME_BYTES;
	link->taken = 0;
	bw_link_push(link);
}

int bw_link_send(struct bw_link *link, uint16_t kind, const void *data, size_t bytes)
{
	if (!bytes || bytes > BW_NOTE_MAX)
		return bw_err(EINVAL, "note of kind %u: %zu bytes: a note has 1 to %u", kind, bytes,
			      BW_NOTE_MAX);
	if (bw_link_dead(link))
		return dead_err(link);
	if (!link->control)
		bw_link_pull(link); /* there may be credit */
	if (bw_link_dead(link))
		return dead_err(link);
	if (link->on_way + BW_FRAME_BYTES + bytes > BW_LINK_WINDOW ||
	    !has_room(link, BW_FRAME_BYTES + bytes))
		return -EAGAIN;
	put_frame(link->out + link->out_len, FRAME_NOTE, kind, bytes);
	memcpy(link->out + link->out_len + BW_FRAME_BYTES, data, bytes);
	link->out_len += BW_FRAME_BYTES + bytes;
	link->on_way += BW_FRAME_BYTES + bytes;
	bw_link_push(link);
	return bw_link_dead(link) ? dead_err(link) : 0;
}

/* ---- in ------------------------------------------------------------------------------------- */

/* One frame at in_notes; false: it is not whole. */
static bool take_frame(struct bw_link *link)
{
	unsigned char *at = link->in + link->in_notes;
	size_t have = link->in_len - link->in_notes, value;

	if (have < BW_FRAME_BYTES)
		return false;
	value = get32(at + 4);
	switch (get16(at)) {
	case FRAME_CREDIT:
		if (get16(at + 2) || !value || value > link->on_way) {
			die_of_frame(link, "credit for what was not sent");
			return false;
		}
		link->on_way -= value;
		memmove(at, at + BW_FRAME_BYTES, have - BW_FRAME_BYTES);
		link->in_len -= BW_FRAME_BYTES;
		return true;
	case FRAME_NOTE:
		if (!value || value > BW_NOTE_MAX) {
			die_of_frame(link, "a note that is too long or empty");
			return false;
		}
		if (have < BW_FRAME_BYTES + value)
			return false;
		link->in_notes += BW_FRAME_BYTES + value;
		return true;
	}
	die_of_frame(link, "a frame of unknown type");
	return false;
}

/* What was not taken here and what it was not told of is what it has on its way, at the least. */
static void take_frames(struct bw_link *link)
{
	while (take_frame(link))
		;
	if (link->in_len - link->in_head + link->taken > BW_LINK_WINDOW + BW_FRAME_BYTES)
		die_of_frame(link, "more than it had credit for");
	if (link->dead[0])
		link->in_len = link->in_notes;
}

void bw_link_pull(struct bw_link *link)
{
	while (!bw_link_dead(link)) {
		size_t room;
		ssize_t n;

		if (sizeof(link->in) - link->in_len < 4096) {
			link->in_notes -= link->in_head;
			compact(link->in, &link->in_head, &link->in_len);
		}
		room = sizeof(link->in) - link->in_len;
		n = recv(link->fd.fd, link->in + link->in_len, room, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			die_of(link, errno);
		else if (!n)
			bw_link_die(link, "connection to %s: closed by the other end: its process "
				    "ended, or it wants no more of it", link->name);
		if (n <= 0)
			break;
		link->in_len += (size_t)n;
		take_frames(link);
		if ((size_t)n < room)
			break; /* what came since makes the descriptor readable */
	}
}

int bw_link_recv(struct bw_link *link, uint16_t *kind, void *data, size_t room)
{
	unsigned char *at;
	size_t bytes;

	if (link->fd.fd < 0 && !link->dead[0])
		return dead_err(link); /* the parent process's, with what it has not taken */
	if (!link->control) {
		bw_link_push(link);
		if (link->in_head == link->in_notes)
			bw_link_pull(link);
	}
	if (link->in_head == link->in_notes)
		return bw_link_dead(link) ? dead_err(link) : 0;
	at = link->in + link->in_head;
	bytes = get32(at + 4);
	if (bytes > room)
		return bw_err(EMSGSIZE, "note of %zu bytes: there is room for %zu: give %u",
			      bytes, room, BW_NOTE_MAX);
	*kind = (uint16_t)get16(at + 2);
	memcpy(data, at + BW_FRAME_BYTES, bytes);
	link->in_head += BW_FRAME_BYTES + bytes;
	if (link->in_head == link->in_len)
		link->in_head = link->in_notes = link->in_len = 0;
	link->taken += BW_FRAME_BYTES + bytes;
	give_credit(link);
	return (int)bytes;
}

/* ---- the handshake -------------------------------------------------------------------------- */

/* Reads no byte beyond the message: what follows the last one are frames. */
static int read_message(struct bw_link *link, size_t *bytes, struct bw_refusal *no)
{
	for (;;) {
		int need = bw_shake_need(&link->shake, link->in, link->in_len, no);
		ssize_t n;

		if (need < 0)
			return need;
		*bytes = (size_t)need;
		if (link->in_len == *bytes)
			return 1;
		n = recv(link->fd.fd, link->in + link->in_len, *bytes - link->in_len, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0) {
			no->err = EPROTO;
			no->code = 0;
			bw_reason_set(&no->why, "it ended the connection before it had proved "
				      "itself (%s): not Barway, or its process ended",
				      n ? strerror(errno) : "closed");
			return -EPROTO;
		}
		link->in_len += (size_t)n;
	}
}

static int keep_proof(struct bw_link *link, const struct bw_proof *proof, struct bw_refusal *no)
{
	link->hello = bw_alloc(proof->hello_bytes);
	if (!link->hello) {
		no->err = ENOMEM;
		no->code = BW_REFUSED_FAILED;
		bw_reason_set(&no->why, "no memory for its hello: free some");
		return -ENOMEM;
	}
	memcpy(link->hello, proof->hello, proof->hello_bytes);
	link->hello_bytes = proof->hello_bytes;
	memset(link->name, 0, sizeof(link->name));
	memcpy(link->name, proof->name, proof->name_bytes); /* is shorter */
	return 0;
}

int bw_link_shake(struct bw_link *link, struct bw_refusal *no)
{
	struct bw_proof proof = { 0 };
	size_t bytes, answer;
	int ret;

	do {
		ret = read_message(link, &bytes, no);
		if (ret <= 0)
			return ret;
		ret = bw_shake_take(&link->shake, link->in, bytes, link->out + link->out_len,
				    &answer, &proof, no);
		if (ret > 0 && keep_proof(link, &proof, no))
			return -no->err;
		link->in_len = 0;
		if (ret < 0)
			return ret;
		link->out_len += answer;
		link->proved = ret > 0;
		bw_link_push(link);
	} while (!ret);
	return 1;
}

void bw_link_refuse(struct bw_link *link, const struct bw_refusal *no)
{
	unsigned char message[BW_REFUSED_BYTES], rest[1024];
	int fd = link->fd.fd;

	if (fd < 0 || !no->code)
		return;
	(void)!send(fd, message, bw_shake_refused(message, no->code), MSG_DONTWAIT | MSG_NOSIGNAL);
	/* A close with unread bytes would take the message along. */
	shutdown(fd, SHUT_WR);
	for (unsigned i = 0; i < 16 && recv(fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; i++)
		;
}

/* ---- for those who have one ----------------------------------------------------------------- */

const void *bw_link_hello(const struct bw_link *link, size_t *bytes)
{
	*bytes = link->hello_bytes;
	return link->hello;
}

const char *bw_link_name(const struct bw_link *link)
{
	return link->name;
}

void bw_link_unlist(struct bw_link *link)
{
	if (link->at)
		*link->at = link->next;
	if (link->next)
		link->next->at = link->at;
	link->next = NULL;
	link->at = NULL;
}

/* The shutdown is for where another process has the socket, between fork and exec. */
void bw_link_close(struct bw_link *link)
{
	if (!link)
		return;
	if (link->fd.fd >= 0) {
		bw_link_push(link);
		if (link->fd.fd >= 0)
			shutdown(link->fd.fd, SHUT_RDWR);
	}
	bw_control_unwatch(link);
	bw_net_close(&link->fd);
	bw_link_unlist(link);
	free(link->hello);
	free(link);
}
