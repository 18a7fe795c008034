/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a channel: made, zeroed, mapped, told to be closed, given back. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "core/fault.h"
#include "mmio/fence.h"

#define PAIR (2 * BARWAY_RING_TWIN) /* twins lie in the two pages of one */
#define LEAVING_NS 10000000u /* a kernel needs microseconds for it, where it gets to run */

void bw_channel_tell(const struct bw_channel *ch, unsigned offset, uint64_t value)
{
	ch->store(ch->gpu + offset, &value, sizeof(value));
	bw_fence_publish();
}

/* What was stored is there when this returns: a load does not pass the stores before it. */
static void arrive(const struct bw_channel *ch)
{
	uint64_t word;

	bw_fence_mixed();
	ch->win->kernels.load->load(&word, ch->gpu, sizeof(word));
	bw_fence_mixed();
}

static size_t gpu_bytes(const struct bw_channel *ch)
{
	return BARWAY_GPU_BYTES(ch->to_gpu_lines);
}

static size_t host_bytes(const struct bw_channel *ch)
{
	return BARWAY_HOST_RING + (size_t)ch->to_cpu_lines * BARWAY_LINE_BYTES;
}

static void clear(const struct bw_channel *ch)
{
	static const unsigned char zero[4096];

	for (size_t at = 0; at < gpu_bytes(ch); at += sizeof(zero)) /* a multiple of it */
		ch->store(ch->gpu + at, zero, sizeof(zero));
	arrive(ch);
	memset(ch->host, 0, host_bytes(ch));
}

static int map(struct bw_channel *ch, const struct bw_map_policy *policy)
{
	struct bw_map_policy mine = *policy;
	bool cached;
	int ret;

	/* Kept by the cache it would hold memory that was freed. */
	mine.uncached = true;
	mine.clamp = false;
	ret = bw_window_get(ch->gpu_addr, gpu_bytes(ch), &mine, &ch->window, &cached);
	if (ret)
		return bw_err_prefix(ret, "map the ring to the GPU");
	ch->win = ch->window;
	ch->gpu = ch->win->cpu + (ch->gpu_addr - ch->win->addr);
	ch->store = ch->win->kernels.store->store;
	ch->line = bw_line_kernel(bw_mmio_allowed());
	if (ch->win->kernels.store == bw_mmio_choose(BW_WC, bw_mmio_allowed()).store)
		ch->send_line = ch->line->send; /* a line is one store by either */
	return 0;
}

static void let_go(struct bw_channel *ch)
{
	const struct bw_device_ops *ops = ch->dev->ops;

	if (ch->host) /* first: it waits for kernels, which poll the other part too */
		ops->host_free(ch->host);
	if (ch->window)
		bw_window_put(ch->window);
	/* it may have gone with its context, and something else be there now */
	if (ch->gpu_block && (!ch->gpu_id || ops->identity(ch->gpu_block) == ch->gpu_id))
		ops->scratch_free(ch->dev, ch->owner, ch->gpu_block);
	free(ch->memory);
}

static int get(struct bw_channel *ch, const struct bw_map_policy *policy)
{
	struct bw_device *dev = ch->dev;
	struct bw_segment seg;
	void *host;
	int ret = dev->ops->scratch_alloc(dev, NULL, gpu_bytes(ch) + PAIR, &ch->gpu_block);

	if (ret)
		return bw_err_prefix(ret, "memory for the ring to the GPU");
	ch->gpu_addr = (ch->gpu_block + BARWAY_GPU_RING + PAIR - 1) / PAIR * PAIR - BARWAY_GPU_RING;
	if (dev->ops->resolve(ch->gpu_addr, &seg))
		return bw_err(EIO, "memory for the ring to the GPU: the device that gave it does "
			      "not know it");
	ch->owner = seg.owner;
	ch->gpu_id = seg.id;
	ret = map(ch, policy);
	if (ret)
		return ret;
	ret = dev->ops->host_alloc(dev, host_bytes(ch), &host, &ch->host_addr);
	if (ret)
		return bw_err_prefix(ret, "memory for the ring to the CPU");
	ch->host = host;
	clear(ch);
	return 0;
}

static struct bw_channel *new_channel(void)
{
	const size_t line = _Alignof(struct bw_channel);
	void *memory = bw_alloc(sizeof(struct bw_channel) + line);
	struct bw_channel *ch;

	if (!memory)
		return NULL;
	ch = (struct bw_channel *)(((uintptr_t)memory + line - 1) & ~(uintptr_t)(line - 1));
	ch->memory = memory;
	return ch;
}

int bw_channel_open(struct bw_device *dev, const struct bw_map_policy *policy,
		    const struct bw_channel_params *params, struct bw_channel **out)
{
	struct bw_channel *ch = new_channel();
	int ret;

	if (!ch)
		return bw_err(ENOMEM, "no memory for a channel: free some");
	ch->dev = dev;
	ch->to_gpu_lines = params->to_gpu_lines;
	ch->to_cpu_lines = params->to_cpu_lines;
	ch->launch = params->launch;
	ch->launch_arg = params->launch_arg;
	ch->spin_ns = params->spin_ns;
	atomic_init(&ch->shut_launch, UINT64_MAX);
	ret = get(ch, policy);
	if (ret) {
		let_go(ch);
		return ret;
	}
	pthread_mutex_init(&ch->to_gpu.lock, NULL);
	pthread_mutex_init(&ch->to_cpu.lock, NULL);
	pthread_mutex_init(&ch->launching, NULL);
	pthread_mutex_init(&ch->failing, NULL);
	*out = ch;
	return 0;
}

/*
 * For what was sent before. A kernel that is about to leave may have had its last look before that:
 * it takes the messages, or says that it has left, within moments.
 */
void bw_channel_shutdown(struct bw_channel *ch)
{
	uint64_t until = bw_now_ns() + LEAVING_NS;

	bw_channel_end_kernels(ch);
	do {
		bw_channel_still_to_take(ch);
		if (!ch->launch || atomic_load(&ch->stopped) & (BW_CHANNEL_FAILED |
								BW_CHANNEL_GARBLED) ||
		    !bw_channel_untaken(ch, bw_channel_word(ch, BARWAY_HOST_RX_CREDIT)))
			return;
		sched_yield();
	} while (bw_now_ns() < until);
}

void bw_channel_end_kernels(struct bw_channel *ch)
{
	/* with both locks: nobody is half way through a message */
	pthread_mutex_lock(&ch->to_gpu.lock);
	pthread_mutex_lock(&ch->to_cpu.lock);
	atomic_fetch_or(&ch->stopped, BW_CHANNEL_SHUT);
	if (!ch->win->revoked)
		bw_channel_tell(ch, BARWAY_GPU_CLOSED, 1);
	pthread_mutex_unlock(&ch->to_cpu.lock);
	pthread_mutex_unlock(&ch->to_gpu.lock);
}

void bw_channel_close(struct bw_channel *ch)
{
	bw_channel_end_kernels(ch);
	if (!ch->win->revoked)
		arrive(ch); /* kernels are told before their memory goes */
	pthread_mutex_destroy(&ch->failing);
	pthread_mutex_destroy(&ch->launching);
	pthread_mutex_destroy(&ch->to_cpu.lock);
	pthread_mutex_destroy(&ch->to_gpu.lock);
	let_go(ch);
}

void bw_channel_path(const struct bw_channel *ch, char *text, size_t n)
{
	const struct bw_window *win = ch->win;
	const char *line = ch->send_line ? ", one line from a register" : "";

	snprintf(text, n, "to the GPU: %u lines in GPU memory, mapped by %s (%s), stored by "
		 "%s%s; to the CPU: %u lines in pinned host memory, stored by kernels",
		 ch->to_gpu_lines, win->provider->name, win->pieces[0].route,
		 win->kernels.store->name, line, ch->to_cpu_lines);
}
