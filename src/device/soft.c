/* SPDX-License-Identifier: BSD-3-Clause */
/* The soft GPUs of this process: found, forgotten in a forked child, and the table of functions. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/fork.h"
#include "core/param.h"
#include "device/soft_int.h"

static pthread_mutex_t soft_lock = PTHREAD_MUTEX_INITIALIZER;
unsigned soft_epoch;

static struct soft_card cards[SOFT_MAX];
static struct bw_device *list[SOFT_MAX];
static unsigned count;
static bool ready;

static void forget(void)
{
	for (unsigned i = 0; i < count; i++)
		soft_card_forget(&cards[i]);
	soft_memory_forget();
	ready = false;
	count = 0;
	soft_epoch++;
}

static void register_fork(void)
{
	bw_fork_lock(&soft_lock);
	bw_fork_forget(forget);
}

void soft_take_lock(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	/* at first use and no earlier: after the locks of the layers that call with theirs held */
	pthread_once(&once, register_fork);
	pthread_mutex_lock(&soft_lock);
}

/* Threads may still run: memory and slots go when the process does. */
__attribute__((destructor)) static void soft_at_exit(void)
{
	if (pthread_mutex_trylock(&soft_lock))
		return;
	for (unsigned i = 0; i < count; i++)
		soft_card_leave(&cards[i]);
	pthread_mutex_unlock(&soft_lock);
}

static int start_one(unsigned i)
{
	struct bw_device *dev = &cards[i].dev;
	int ret = soft_card_open(&cards[i], (int)i);

	if (ret)
		return ret;
	dev->ops = &bw_soft_ops;
	dev->ordered = true;
	snprintf(dev->name, sizeof(dev->name), "Barway soft GPU");
	snprintf(dev->uuid, sizeof(dev->uuid), "GPU-soft-%u", i);
	list[i] = dev;
	count = i + 1;
	return 0;
}

static int start(void)
{
	uint64_t want = bw_param_size(BW_P_SOFT_DEVICES), memory = 0; /* 1 to SOFT_MAX */
	int ret = 0;

	for (unsigned i = 0; i < want && !ret; i++) {
		ret = start_one(i);
		memory += cards[i].dev.memory_total;
	}
	if (!ret)
		ret = soft_memory_start(memory);
	for (unsigned i = count; ret && i--; count = i)
		soft_card_close(&cards[i]);
	ready = !ret;
	return ret;
}

int soft_enter(struct soft_card *c)
{
	int ret = 0;

	soft_take_lock();
	if (!ready)
		ret = start();
	if (!ret && c && !c->open)
		ret = bw_err(ENODEV,
			     "soft GPU %d: this process has %u: raise the parameter soft_devices",
			     c->dev.index, count);
	if (ret)
		pthread_mutex_unlock(&soft_lock);
	return ret;
}

void soft_leave(void)
{
	pthread_mutex_unlock(&soft_lock);
}

static int soft_enumerate(struct bw_device ***out, struct bw_reason *why)
{
	int n;

	if (soft_enter(NULL)) {
		bw_reason_set(why, "%s", bw_err_text());
		return 0;
	}
	n = (int)count;
	*out = list;
	soft_leave();
	return n;
}

static bool soft_maybe(struct bw_reason *why)
{
	bw_reason_set(why, "the soft GPU needs no hardware");
	return true;
}

struct bw_device *bw_soft_device(int index)
{
	struct bw_device *dev;

	if (soft_enter(NULL))
		return NULL;
	dev = index >= 0 && (unsigned)index < count ? list[index] : NULL;
	if (!dev)
		bw_err(ENODEV, "soft GPU %d: there are %u: raise the parameter soft_devices", index,
		       count);
	soft_leave();
	return dev;
}

void bw_soft_aperture(struct bw_device *dev, uint64_t *total, uint64_t *free)
{
	struct soft_card *c = soft_card_of(dev);
	uint64_t pages;

	*total = *free = 0;
	if (soft_enter(c))
		return;
	soft_card_info(c, &pages, free);
	*free <<= SOFT_SHIFT;
	*total = c->hdr->aperture << SOFT_SHIFT;
	soft_leave();
}

static int soft_mem_info(struct bw_device *dev, uint64_t *total, uint64_t *free)
{
	struct soft_card *c = soft_card_of(dev);
	uint64_t pages, aperture;
	int ret = soft_enter(c);

	if (ret)
		return ret;
	soft_card_info(c, &pages, &aperture);
	*total = dev->memory_total;
	*free = pages << SOFT_SHIFT;
	soft_leave();
	return 0;
}

static int soft_activate(struct bw_device *dev)
{
	(void)dev;
	return 0;
}

static void soft_deactivate(struct bw_device *dev)
{
	(void)dev;
}

static int soft_scratch_alloc(struct bw_device *dev, void *owner, size_t bytes, uint64_t *addr)
{
	(void)owner;
	return bw_soft_malloc(dev, bytes, addr);
}

static void soft_scratch_free(struct bw_device *dev, void *owner, uint64_t addr)
{
	(void)dev;
	(void)owner;
	bw_soft_free(addr);
}

static const char *soft_driver(void)
{
	return "soft";
}

/* ---- streams ------------------------------------------------------------------------------- */

static int soft_stream_create(struct bw_device *dev, void *owner, void **stream)
{
	struct bw_soft_stream *s;
	int ret = soft_stream_open(dev, true, &s);

	(void)owner;
	if (!ret)
		*stream = s;
	return ret;
}

static void soft_stream_destroy(struct bw_device *dev, void *stream)
{
	(void)dev;
	bw_soft_stream_destroy(stream);
}

static int soft_stream_query(struct bw_device *dev, void *stream)
{
	(void)dev;
	return bw_soft_stream_query(stream);
}

static int soft_stream_sync(struct bw_device *dev, void *stream)
{
	(void)dev;
	return bw_soft_stream_sync(stream);
}

/* There is one, for ever. */
static uint64_t soft_context_id(struct bw_device *dev, void *owner)
{
	(void)dev;
	(void)owner;
	return 1;
}

static int soft_stream_capturing(struct bw_device *dev, void *stream)
{
	(void)dev;
	(void)stream;
	return 0;
}

static int soft_stream_copy_to(struct bw_device *dev, void *stream, uint64_t addr, const void *src,
			       size_t bytes)
{
	return soft_copy(dev, stream, addr, NULL, src, bytes);
}

static int soft_stream_copy_from(struct bw_device *dev, void *stream, void *dst, uint64_t addr,
				 size_t bytes)
{
	return soft_copy(dev, stream, addr, dst, NULL, bytes);
}

static int soft_kernel_load(struct bw_device *dev, void *owner, const struct bw_kernel *kernel,
			    void **loaded)
{
	(void)owner;
	if (!kernel->soft)
		return bw_err(ENOTSUP, "load the kernel %s: there is none for soft GPU %d",
			      kernel->name, dev->index);
	*loaded = (void *)(uintptr_t)kernel;
	return 0;
}

static int soft_kernel_launch(struct bw_device *dev, void *stream, void *loaded, unsigned blocks,
			      unsigned threads, const void *param, size_t bytes)
{
	const struct bw_kernel *kernel = loaded;

	(void)threads; /* a block is one thread */
	return soft_launch(dev, stream, kernel->soft, blocks, param, bytes);
}

static int soft_alive(struct bw_device *dev, void *owner)
{
	(void)owner;
	return soft_card_of(dev)->trapped ? soft_trap_err(soft_card_of(dev), "use the device") : 0;
}

const struct bw_device_ops bw_soft_ops = {
	.name = "soft",
	.kind = BW_DEVICE_SOFT,
	.enumerate = soft_enumerate,
	.maybe = soft_maybe,
	.resolve = soft_resolve,
	.identity = soft_identity,
	.activate = soft_activate,
	.deactivate = soft_deactivate,
	.mem_alloc = soft_mem_alloc,
	.mem_free = soft_mem_free,
	.mem_info = soft_mem_info,
	.ce_copy_to = soft_ce_copy_to,
	.ce_copy_from = soft_ce_copy_from,
	.scratch_alloc = soft_scratch_alloc,
	.scratch_free = soft_scratch_free,
	.export_dmabuf = soft_export_dmabuf,
	.driver = soft_driver,
	.host_alloc = soft_host_alloc,
	.host_free = soft_host_free,
	.host_register = soft_host_register,
	.host_unregister = soft_host_unregister,
	.stream_create = soft_stream_create,
	.stream_destroy = soft_stream_destroy,
	.context_id = soft_context_id,
	.stream_query = soft_stream_query,
	.stream_sync = soft_stream_sync,
	.stream_capturing = soft_stream_capturing,
	.stream_copy_to = soft_stream_copy_to,
	.stream_copy_from = soft_stream_copy_from,
	.stream_write = soft_stream_write,
	.stream_wait = soft_stream_wait,
	.stream_call = soft_stream_call,
	.kernel_load = soft_kernel_load,
	.kernel_launch = soft_kernel_launch,
	.alive = soft_alive,
};
