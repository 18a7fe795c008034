/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/prove.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "copy/pause.h"
#include "core/err.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "device/device.h"

#define BYTES 16384u
#define MESSAGE_BYTES 64u
#define LIMIT_MS 5000u
#define EVENTS 4

struct verdict {
	struct verdict *next;
	const struct bw_device *dev;
	char network[32], interface[64], rung[16];
	struct bw_reason why; /* empty: proved */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verdict *verdicts;

static void forget_in_child(void)
{
	verdicts = NULL;
}

__attribute__((constructor(BW_FORK_PROVE))) static void register_fork(void)
{
	bw_fork_lock(&lock);
	bw_fork_forget(forget_in_child);
}

void bw_prove_forget(void)
{
	pthread_mutex_lock(&lock);
	while (verdicts) {
		struct verdict *next = verdicts->next;

		free(verdicts);
		verdicts = next;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- two rails, scratch memory, and buffers -------------------------------------------------- */

enum { HOST, GPU, ENDS };

struct proof {
	struct bw_device *dev;
	void *owner;
	const char *rung;
	struct bw_rail *rail[ENDS];
	uint64_t peer[ENDS];      /* the other one, as each names it */
	struct bw_reg reg[ENDS];
	bool connected[ENDS], registered[ENDS];
	uint64_t scratch;
	int dmabuf;
	unsigned char *want, *got; /* in one block, which the first rail knows */
	bool data;                /* writes bring data to the other end */
	bool done, arrived, wrong;
	uint64_t until_ns;
};

#define CALL(p, end, fn, ...) ((p)->rail[end]->engine->fn((p)->rail[end], ##__VA_ARGS__))

static int open_rail(struct proof *p, int end, const char *network, const char *interface)
{
	struct bw_rail_options options = { .network = network, .interface = interface, .peers = 1,
					   .message_bytes = MESSAGE_BYTES };

	return bw_rail_open(&options, &p->rail[end]);
}

static int connect_rail(struct proof *p, int end)
{
	unsigned char address[256];
	size_t n = sizeof(address);
	int ret = CALL(p, !end, address, address, &n);

	if (!ret)
		ret = CALL(p, end, connect, address, n, &p->peer[end]);
	p->connected[end] = !ret;
	return ret;
}

static int register_end(struct proof *p, int end, const struct bw_reg_request *request)
{
	int ret = CALL(p, end, reg, request, &p->reg[end]);

	p->registered[end] = !ret;
	return ret;
}

/* As a region would be, by the rung that is to be proved. */
static int register_scratch(struct proof *p)
{
	struct bw_reg_request request = {
		.ptr = (void *)(uintptr_t)p->scratch, .bytes = BYTES, .gpu = true, .dmabuf = -1,
		.no_dmabuf = "another rung is asked for", .remote_write = true, .remote_read = true,
	};
	int ret = 0;

	if (!strcmp(p->rung, "dmabuf")) {
		ret = p->dev->ops->export_dmabuf(p->dev, p->scratch, BYTES, &p->dmabuf,
						 &request.dmabuf_offset);
		request.dmabuf = p->dmabuf;
	}
	if (!ret)
		ret = register_end(p, GPU, &request);
	if (!ret && strcmp(p->reg[GPU].rung, p->rung))
		ret = bw_err(ENOTSUP, "scratch memory of the device got %s", p->reg[GPU].rung);
	return ret;
}

static int set_up(struct proof *p, const char *network, const char *interface)
{
	struct bw_reg_request host = { .bytes = 2 * BYTES, .dmabuf = -1 };
	struct bw_rail_info info;
	int ret = 0;

	for (int end = 0; end < ENDS && !ret; end++)
		ret = open_rail(p, end, network, interface);
	for (int end = 0; end < ENDS && !ret; end++)
		ret = connect_rail(p, end);
	if (ret)
		return ret;
	CALL(p, GPU, info, &info);
	p->data = info.data_bytes >= 4;
	p->want = bw_alloc(2 * BYTES);
	if (!p->want)
		return bw_err(ENOMEM, "no memory");
	p->got = p->want + BYTES;
	host.ptr = p->want;
	ret = register_end(p, HOST, &host);
	if (!ret)
		ret = p->dev->ops->scratch_alloc(p->dev, p->owner, BYTES, &p->scratch);
	return ret ? ret : register_scratch(p);
}

static void tear_down(struct proof *p)
{
	for (int end = 0; end < ENDS; end++)
		if (p->connected[end])
			CALL(p, end, disconnect, p->peer[end]);
	for (int end = 0; end < ENDS; end++)
		if (p->registered[end])
			CALL(p, end, unreg, &p->reg[end]);
	for (int end = 0; end < ENDS; end++)
		if (p->rail[end])
			p->rail[end]->engine->close(p->rail[end]);
	if (p->dmabuf >= 0)
		close(p->dmabuf);
	if (p->scratch)
		p->dev->ops->scratch_free(p->dev, p->owner, p->scratch);
	free(p->want);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int poll_end(struct proof *p, int end)
{
	struct bw_event events[EVENTS];
	int n = CALL(p, end, poll, events, EVENTS);

	for (int i = 0; i < n; i++) {
		if (events[i].error)
			return bw_err(-events[i].error, "%s", events[i].text);
		p->done = p->done || events[i].kind == BW_EVENT_WRITTEN ||
			  events[i].kind == BW_EVENT_READ;
		p->arrived = p->arrived || events[i].kind == BW_EVENT_REMOTE;
	}
	return n < 0 ? n : 0;
}

static int poll_both(struct proof *p)
{
	int ret = poll_end(p, HOST);

	if (!ret)
		ret = poll_end(p, GPU);
	if (!ret && bw_now_ns() > p->until_ns)
		ret = bw_err(ETIMEDOUT, "nothing came within %u s", LIMIT_MS / 1000);
	return ret;
}

static int post(struct proof *p, bool write)
{
	const struct bw_reg *gpu = &p->reg[GPU], *host = &p->reg[HOST];

	return write ? CALL(p, HOST, write, p->peer[HOST], p->want, BYTES, host->desc, gpu->addr,
			    gpu->key, p->data, 1, p->data ? 0 : BW_WRITE_ARRIVED, p) :
		       CALL(p, HOST, read, p->peer[HOST], p->got, BYTES, host->desc, gpu->addr,
			    gpu->key, p);
}

static int move(struct proof *p, bool write)
{
	int ret;

	p->done = false;
	p->arrived = !write || !p->data;
	while ((ret = post(p, write)) == -EAGAIN && !(ret = poll_both(p)))
		;
	while (!ret && !(p->done && p->arrived))
		ret = poll_both(p);
	return ret ? bw_err_prefix(ret, write ? "write" : "read") : 0;
}

static int fill(struct proof *p)
{
	memset(p->got, 0, BYTES);
	for (size_t at = 0; at < BYTES; at += 256) /* so much at once is never cut short */
		if (getrandom(p->want + at, 256, 0) != 256)
			return bw_err(EIO, "the system gives no random bytes: %s", strerror(errno));
	return 0;
}

static int compare(struct proof *p, const char *what)
{
	p->wrong = memcmp(p->want, p->got, BYTES) != 0;
	return p->wrong ? bw_err(EIO, "%s", what) : 0;
}

static int card_reads(struct proof *p)
{
	int ret = fill(p);

	if (!ret)
		ret = p->dev->ops->ce_copy_to(p->dev, p->scratch, p->want, BYTES);
	if (!ret)
		ret = move(p, false);
	return ret ? ret : compare(p, "the card does not read what the copy engine wrote");
}

/* Reading it back pushes what is still under way in PCIe. */
static int card_writes(struct proof *p)
{
	int ret = fill(p);

	if (!ret)
		ret = move(p, true);
	if (!ret)
		ret = move(p, false);
	if (!ret)
		ret = compare(p, "the card does not read what it wrote");
	memset(p->got, 0, BYTES);
	if (!ret)
		ret = p->dev->ops->ce_copy_from(p->dev, p->got, p->scratch, BYTES);
	return ret ? ret : compare(p, "the copy engine does not see what the card wrote");
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static struct verdict *verdict_of(const char *network, const char *interface,
				  const struct bw_device *dev, const char *rung)
{
	struct verdict *v = verdicts;

	while (v && (v->dev != dev || strcmp(v->network, network) || strcmp(v->rung, rung) ||
		     strcmp(v->interface, interface)))
		v = v->next;
	return v;
}

static void keep(struct verdict *v, const char *network, const char *interface,
		 const struct bw_device *dev, const char *rung)
{
	v->dev = dev;
	snprintf(v->network, sizeof(v->network), "%s", network);
	snprintf(v->interface, sizeof(v->interface), "%s", interface);
	snprintf(v->rung, sizeof(v->rung), "%s", rung);
	v->next = verdicts;
	verdicts = v;
}

static int run(const char *network, const char *interface, struct bw_device *dev, void *owner,
	       const char *rung)
{
	struct proof p = { .dev = dev, .owner = owner, .rung = rung, .dmabuf = -1,
			   .until_ns = bw_now_ns() + LIMIT_MS * UINT64_C(1000000) };
	struct verdict *v = bw_alloc(sizeof(*v));
	struct bw_sentence why;
	int ret = v ? set_up(&p, network, interface) : bw_err(ENOMEM, "no memory");

	if (!ret)
		ret = card_reads(&p);
	if (!ret)
		ret = card_writes(&p);
	if (ret)
		bw_err_prefix(ret, "the proof of %s over %s on %s", rung, network, interface);
	bw_err_keep(&why);
	tear_down(&p);
	bw_err_put_back(&why);
	if (ret && ret != -ETIMEDOUT && !p.wrong) {
		free(v);
		return ret;
	}
	if (ret) {
		bw_reason_set(&v->why, "%s", bw_err_text());
		bw_log(BW_LOG_WARN, "%s: not used in this process", v->why.text);
	} else {
		bw_log(BW_LOG_INFO, "%s over %s on %s reaches the memory of %s %d", rung, network,
		       interface, dev->ops->name, dev->index);
	}
	keep(v, network, interface, dev, rung);
	return ret;
}

int bw_prove(const char *network, const char *interface, struct bw_device *dev, void *owner,
	     const char *rung)
{
	const struct verdict *v;
	int ret;

	pthread_mutex_lock(&lock);
	v = verdict_of(network, interface, dev, rung);
	if (!v)
		ret = run(network, interface, dev, owner, rung);
	else
		ret = v->why.text[0] ? bw_err(EIO, "%s", v->why.text) : 0;
	pthread_mutex_unlock(&lock);
	return ret;
}
