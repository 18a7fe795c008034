/* SPDX-License-Identifier: BSD-3-Clause */
/* The resident copier: starting, proving, stopping. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "copy/resident_int.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/param.h"

#define RING_LINES BARWAY_RING_TWIN_LINES
#define IDLE_NS 200000ull
#define STAY_NS 10000000ull
#define PROOF_BYTES 4000u /* both ways, at other offsets */
#define PROOF_ROOM 4096u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of starting and stopping */
static struct copier *_Atomic copiers; /* grows at its head; they stay as long as the process */
static _Atomic unsigned running;

static void forget_in_child(void)
{
	for (struct copier *c = copiers; c; c = c->next) {
		c->now = NULL;
		c->users = 0;
	}
	running = 0;
}

__attribute__((constructor(BW_FORK_THREADS))) static void register_fork(void)
{
	bw_fork_lock(&lock);
	bw_fork_forget(forget_in_child);
}

bool bw_resident_any(void)
{
	return atomic_load_explicit(&running, memory_order_relaxed) != 0;
}

/* ---- who may look at it ---------------------------------------------------------------------- */

struct copier *resident_of(const struct bw_device *dev)
{
	for (struct copier *c = copiers; c; c = c->next)
		if (c->dev == dev)
			return c;
	return NULL;
}

struct resident *resident_enter(struct copier *c)
{
	struct resident *r;

	atomic_fetch_add(&c->users, 1);
	r = c->now;
	if (!r)
		atomic_fetch_sub(&c->users, 1);
	return r;
}

void resident_leave(struct copier *c)
{
	atomic_fetch_sub(&c->users, 1);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Nobody looks at it any more. What went with its context is not touched. */
static void let_go(struct resident *r)
{
	const struct bw_device_ops *ops = r->dev->ops;
	bool lost = r->done && resident_lost(r);
	struct bw_sentence kept;

	bw_err_keep(&kept);
	if (r->ch && !lost)
		bw_channel_end_kernels(r->ch);
	if (r->stream && !lost) {
		ops->stream_sync(r->dev, r->stream);
		ops->stream_destroy(r->dev, r->stream);
	}
	if (r->scratch && !lost)
		ops->scratch_free(r->dev, r->owner, r->scratch);
	if (r->done && !lost) {
		r->final = *r->done;
		ops->host_free(r->done);
	}
	if (r->ch)
		bw_channel_close(r->ch);
	if (r->active)
		ops->deactivate(r->dev);
	bw_err_put_back(&kept);
	r->ended = true;
	resident_put(r);
}

/* Under the lock, when no copy looks at it any more: what was started is finished first. */
static void finish(struct resident *r)
{
	struct resident_values all = { r->value, r->value };
	struct bw_sentence kept;

	bw_err_keep(&kept);
	if (!r->broken && !resident_lost(r))
		resident_await(r, &all);
	bw_err_put_back(&kept);
	let_go(r);
}

/* Under the lock. */
static bool stop(struct copier *c)
{
	struct resident *r = atomic_exchange(&c->now, NULL);

	if (!r)
		return false;
	atomic_fetch_sub(&running, 1);
	while (atomic_load(&c->users))
		sched_yield();
	finish(r);
	return true;
}

int bw_resident_stop(struct bw_device *dev)
{
	struct copier *c;
	bool stopped;

	pthread_mutex_lock(&lock);
	c = resident_of(dev);
	stopped = c && stop(c);
	pthread_mutex_unlock(&lock);
	return stopped ? 0 : bw_err(EALREADY, "no resident copier was started on %s", dev->name);
}

void bw_resident_end(void)
{
	if (!bw_resident_any())
		return;
	pthread_mutex_lock(&lock);
	for (struct copier *c = copiers; c; c = c->next)
		stop(c);
	pthread_mutex_unlock(&lock);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* By the channel, one at a time, when no kernel is there. */
static int launch(void *arg)
{
	struct resident *r = arg;
	int ret = -EIO;

	pthread_mutex_lock(&r->launching);
	if (!r->broken)
		ret = r->dev->ops->kernel_launch(r->dev, r->stream, r->loaded, 1,
						 BW_RESIDENT_THREADS, &r->param, sizeof(r->param));
	if (ret)
		r->broken = true; /* the request stays in the ring: it must never be done now */
	pthread_mutex_unlock(&r->launching);
	return ret;
}

static int open_channel(struct resident *r, const struct bw_map_policy *policy)
{
	struct bw_channel_params params = {
		.to_gpu_lines = RING_LINES, .to_cpu_lines = BARWAY_RING_LINES_MIN,
		.launch = launch, .launch_arg = r,
		.spin_ns = bw_param_size(BW_P_CHANNEL_SPIN_US) * 1000,
	};
	int ret = bw_channel_open(r->dev, policy, &params, &r->ch);

	if (ret)
		return ret;
	r->owner = r->ch->owner;
	r->owner_id = r->dev->ops->context_id(r->dev, r->owner);
	r->param.channel = (struct barway_channel_gpu){
		.gpu = r->ch->gpu_addr, .host = r->ch->host_addr,
		.rx_lines = RING_LINES, .tx_lines = BARWAY_RING_LINES_MIN,
	};
	return 0;
}

/* The context, which is there, stays until the copier ends; then what is made in it. */
static int make(struct resident *r)
{
	const struct bw_device_ops *ops = r->dev->ops;
	void *host;
	int ret = ops->activate(r->dev);

	if (ret)
		return ret;
	r->active = true;
	ret = ops->stream_create(r->dev, r->owner, &r->stream);
	if (!ret)
		ret = ops->kernel_load(r->dev, r->owner, &bw_resident_kernel_def, &r->loaded);
	if (!ret)
		ret = ops->host_alloc(r->dev, 3 * PROOF_ROOM, &host, &r->param.done);
	if (ret)
		return ret;
	r->done = host;
	r->done_id = ops->identity((uintptr_t)host);
	*r->done = 0;
	return 0;
}

/* Moves bytes to the GPU and back, at offsets that are skewed in each way. */
static int prove_at(struct resident *r, uint64_t addr, unsigned skew)
{
	unsigned char *to = (unsigned char *)r->done + PROOF_ROOM, *from = to + PROOF_ROOM;
	uint64_t host = r->param.done + PROOF_ROOM;
	struct resident_values v = { 0, 0 };
	int ret;

	for (unsigned i = 0; i < PROOF_BYTES; i++)
		to[i] = (unsigned char)(i * 7 + (i >> 8) + skew);
	memset(from, 0, PROOF_ROOM);
	ret = resident_send(r, addr + skew, host, PROOF_BYTES, &v);
	if (!ret)
		ret = resident_send(r, host + PROOF_ROOM + 2 * skew, addr + skew, PROOF_BYTES, &v);
	if (!ret)
		ret = resident_await(r, &v);
	if (!ret && memcmp(to, from + 2 * skew, PROOF_BYTES))
		ret = bw_err(EIO, "the resident copier moved wrong data: it is not used");
	return ret;
}

static int prove(struct resident *r)
{
	const struct bw_device_ops *ops = r->dev->ops;
	uint64_t addr;
	int ret = ops->scratch_alloc(r->dev, r->owner, PROOF_ROOM, &addr);

	if (ret)
		return ret;
	r->scratch = addr; /* after a failure the kernel is ended first */
	for (unsigned skew = 0; skew < 8 && !ret; skew += 7)
		ret = prove_at(r, addr, skew);
	if (!ret && r->broken) /* the bytes were there before that was seen */
		ret = bw_err(EIO, "the resident copier failed at its first copies");
	if (!ret) {
		ops->scratch_free(r->dev, r->owner, addr);
		r->scratch = 0;
	}
	return ret;
}

static int begin(struct bw_device *dev, const struct bw_map_policy *policy, uint64_t idle_ns,
		 uint64_t stay_ns, struct resident **out)
{
	struct resident *r = bw_alloc(sizeof(*r));
	int ret;

	if (!r)
		return bw_err(ENOMEM, "no memory: free some");
	r->refs = 1;
	r->dev = dev;
	r->param.idle_ns = BARWAY_GPU_IDLE_FOR(idle_ns ? idle_ns : IDLE_NS);
	r->param.stay_ns = stay_ns ? stay_ns : STAY_NS;
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->launching, NULL);
	ret = open_channel(r, policy);
	if (!ret)
		ret = make(r);
	if (!ret)
		ret = prove(r);
	if (ret)
		let_go(r);
	else
		*out = r;
	return ret;
}

/* Under the lock. */
static struct copier *copier_get(struct bw_device *dev)
{
	struct copier *c = resident_of(dev);

	if (c)
		return c;
	c = bw_alloc(sizeof(*c));
	if (!c)
		return NULL;
	c->dev = dev;
	c->next = copiers;
	copiers = c;
	return c;
}

int bw_resident_start(struct bw_device *dev, const struct bw_map_policy *policy, uint64_t idle_ns,
		      uint64_t stay_ns)
{
	struct resident *r = NULL;
	struct copier *c;
	int ret;

	pthread_mutex_lock(&lock);
	c = copier_get(dev);
	ret = !c ? bw_err(ENOMEM, "no memory: free some") :
	      c->now ? bw_err(EALREADY, "it was started on %s: barway_resident_stop() ends it",
			      dev->name) :
	      begin(dev, policy, idle_ns, stay_ns, &r);
	if (!ret) {
		c->now = r;
		atomic_fetch_add(&running, 1);
	}
	pthread_mutex_unlock(&lock);
	return ret;
}
