/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/channel.h"

#include <errno.h>
#include <string.h>

#include "api/api.h"
#include "core/param.h"

_Static_assert(BW_CHANNEL_READABLE == (int)BARWAY_CHANNEL_READABLE &&
	       BW_CHANNEL_WRITABLE == (int)BARWAY_CHANNEL_WRITABLE &&
	       BW_CHANNEL_CLOSED == (int)BARWAY_CHANNEL_CLOSED &&
	       BW_CHANNEL_FOREVER == BARWAY_FOREVER, "as in the public header");

#define RING_BYTES 65536u

struct bw_channel_object {
	struct bw_slot slot;
	struct bw_channel *ch;
	struct bw_context *ctx;
	struct bw_channel_object *prev, *next;
};
_Static_assert(sizeof(struct bw_channel_object) <= BW_SLOT_BYTES, "bw_channel_object");

static inline struct bw_channel_object *object_get(const struct barway_channel *handle)
{
	return bw_object_get(handle, BW_OBJECT_CHANNEL);
}

/* ---- open and close -------------------------------------------------------------------------- */

static int lines_of(uint32_t bytes, const char *field, uint32_t *lines)
{
	if (!bytes)
		bytes = RING_BYTES;
	*lines = bytes / BARWAY_LINE_BYTES;
	if (bytes & (bytes - 1) || *lines < BARWAY_RING_LINES_MIN ||
	    *lines > BARWAY_RING_LINES_MAX)
		return bw_err(EINVAL, "option %s: %u: give a power of two, %u to %u bytes, or 0",
			      field, bytes, BARWAY_RING_LINES_MIN * BARWAY_LINE_BYTES,
			      BARWAY_RING_LINES_MAX * BARWAY_LINE_BYTES);
	return 0;
}

static int read_options(const struct barway_channel_options *options,
			struct bw_channel_params *params)
{
	struct barway_channel_options o = { 0 };
	int ret = 0;

	if (options)
		ret = bw_struct_in(&o, sizeof(o),
				   offsetof(struct barway_channel_options, launch), options,
				   "struct barway_channel_options");
	if (!ret && o.reserved)
		ret = bw_err(EINVAL, "options: the reserved field is not 0");
	if (!ret)
		ret = lines_of(o.to_gpu_bytes, "to_gpu_bytes", &params->to_gpu_lines);
	if (!ret)
		ret = lines_of(o.to_cpu_bytes, "to_cpu_bytes", &params->to_cpu_lines);
	params->launch = o.launch;
	params->launch_arg = o.launch_arg;
	params->spin_ns = (o.spin_us ? o.spin_us : bw_param_size(BW_P_CHANNEL_SPIN_US)) * 1000;
	return ret;
}

static int open_on(struct bw_device_object *d, const struct bw_channel_params *params,
		   struct barway_channel **out)
{
	struct bw_channel_object *o = bw_object_new(BW_OBJECT_CHANNEL);
	struct bw_context *ctx = d->ctx;
	struct bw_map_policy policy = { .providers = ctx->providers, .fallback = ctx->fallback };
	int ret;

	if (!o)
		return bw_err(ENOMEM, "no memory for a channel: free some");
	ret = bw_channel_open(d->dev, &policy, params, &o->ch);
	if (ret) {
		bw_object_free(o);
		return ret;
	}
	o->ctx = ctx;
	pthread_mutex_lock(&ctx->lock);
	o->next = ctx->channels;
	if (o->next)
		o->next->prev = o;
	ctx->channels = o;
	*out = bw_object_publish(o);
	pthread_mutex_unlock(&ctx->lock);
	return 0;
}

int barway_channel_open(struct barway_device *handle, const struct barway_channel_options *options,
			struct barway_channel **out)
{
	struct bw_device_object *d = bw_device_object_get(handle);
	struct bw_channel_params params;
	int ret;

	if (!d)
		return bw_handle_stale(handle, "barway_channel_open", "device");
	ret = out ? read_options(options, &params) : bw_err(EINVAL, "out is NULL");
	if (!ret)
		ret = open_on(d, &params, out);
	return bw_err_prefix(ret, "barway_channel_open");
}

static void end(struct bw_channel_object *o)
{
	bw_channel_close(o->ch);
	bw_object_free(o);
}

int barway_channel_close(struct barway_channel *handle)
{
	struct bw_channel_object *o = bw_object_retire(handle, BW_OBJECT_CHANNEL);

	if (!o)
		return bw_handle_stale(handle, "barway_channel_close", "channel");
	pthread_mutex_lock(&o->ctx->lock);
	if (o->prev)
		o->prev->next = o->next;
	else if (o->ctx->channels == o)
		o->ctx->channels = o->next;
	if (o->next)
		o->next->prev = o->prev;
	pthread_mutex_unlock(&o->ctx->lock);
	end(o);
	return 0;
}

void bw_context_close_channels(struct bw_context *ctx)
{
	struct bw_channel_object *o;

	/* First of all: giving the memory of one back waits for the kernels of all. */
	pthread_mutex_lock(&ctx->lock);
	for (o = ctx->channels; o; o = o->next)
		bw_channel_end_kernels(o->ch);
	pthread_mutex_unlock(&ctx->lock);
	for (;;) {
		pthread_mutex_lock(&ctx->lock);
		o = ctx->channels;
		if (o) {
			ctx->channels = o->next;
			if (o->next)
				o->next->prev = NULL;
		}
		pthread_mutex_unlock(&ctx->lock);
		if (!o)
			return;
		if (bw_object_retire(bw_object_handle(o), BW_OBJECT_CHANNEL))
			end(o);
	}
}

int barway_channel_shutdown(struct barway_channel *handle)
{
	struct bw_channel_object *o = object_get(handle);

	if (!o)
		return bw_handle_stale(handle, "barway_channel_shutdown", "channel");
	bw_channel_shutdown(o->ch);
	return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Out of the way of the fast path. */
__attribute__((cold, noinline))
static int refuse(const char *operation, const struct barway_channel *handle, size_t bytes,
		  unsigned tag)
{
	if (!object_get(handle))
		return bw_handle_stale(handle, operation, "channel");
	if (bytes > BARWAY_MESSAGE_MAX)
		return bw_err(EMSGSIZE, "%s: a message of %zu bytes: give at most %u", operation,
			      bytes, BARWAY_MESSAGE_MAX);
	if (tag > BARWAY_TAG_MAX)
		return bw_err(EINVAL, "%s: tag %u: give 0 to %u", operation, tag, BARWAY_TAG_MAX);
	return bw_err(EINVAL, "%s: the data pointer is NULL", operation);
}

int barway_channel_send(struct barway_channel *handle, const void *data, size_t bytes,
			unsigned tag, uint64_t timeout_ns)
{
	struct bw_channel_object *o = object_get(handle);
	int ret;

	if (unlikely(!o || bytes > BARWAY_MESSAGE_MAX || tag > BARWAY_TAG_MAX ||
		     (!data && bytes)))
		return refuse("barway_channel_send", handle, bytes, tag);
	ret = bw_channel_send(o->ch, data, bytes, tag, timeout_ns);
	if (ret == BW_CHANNEL_NOTHING)
		return bw_err_often(EAGAIN, "barway_channel_send: no room in the ring to the GPU: "
				    "try again, or give time");
	return likely(!ret) ? 0 : bw_err_prefix(ret, "barway_channel_send");
}

int barway_channel_recv(struct barway_channel *handle, void *data, size_t room, size_t *bytes,
			unsigned *tag, uint64_t timeout_ns)
{
	struct bw_channel_object *o = object_get(handle);
	int ret;

	if (unlikely(!o || (!data && room)))
		return refuse("barway_channel_recv", handle, 0, 0);
	ret = bw_channel_recv(o->ch, data, room, bytes, tag, timeout_ns);
	if (ret == BW_CHANNEL_NOTHING)
		return bw_err_often(EAGAIN, "barway_channel_recv: no message from the GPU: "
				    "try again, or give time");
	return likely(!ret) ? 0 : bw_err_prefix(ret, "barway_channel_recv");
}

int barway_channel_poll(struct barway_channel *handle)
{
	struct bw_channel_object *o = object_get(handle);

	if (unlikely(!o))
		return bw_handle_stale(handle, "barway_channel_poll", "channel");
	return bw_err_prefix(bw_channel_poll(o->ch), "barway_channel_poll");
}

/* ---- what it is ------------------------------------------------------------------------------ */

int barway_channel_gpu(struct barway_channel *handle, struct barway_channel_gpu *out)
{
	struct bw_channel_object *o = object_get(handle);

	if (!o)
		return bw_handle_stale(handle, "barway_channel_gpu", "channel");
	if (!out)
		return bw_err(EINVAL, "barway_channel_gpu: out is NULL");
	*out = (struct barway_channel_gpu){
		.gpu = o->ch->gpu_addr,
		.host = o->ch->host_addr,
		.rx_lines = o->ch->to_gpu_lines,
		.tx_lines = o->ch->to_cpu_lines,
	};
	return 0;
}

int barway_channel_query(struct barway_channel *handle, struct barway_channel_info *info)
{
	struct bw_channel_object *o = object_get(handle);
	struct barway_channel_info i;
	struct bw_channel *ch;

	if (!o)
		return bw_handle_stale(handle, "barway_channel_query", "channel");
	ch = o->ch;
	memset(&i, 0, sizeof(i));
	i.left = bw_channel_word(ch, BARWAY_HOST_LEFT);
	i.sent_taken = bw_channel_word(ch, BARWAY_HOST_RX_CREDIT);
	i.sent = ch->to_gpu.position;
	if (i.sent < i.sent_taken) /* the GPU may take a message before it is counted */
		i.sent = i.sent_taken;
	i.received = ch->to_cpu.position;
	i.messages_sent = ch->to_gpu.messages;
	i.messages_received = ch->to_cpu.messages;
	i.launches = ch->launches;
	i.to_gpu_bytes = ch->to_gpu_lines * BARWAY_LINE_BYTES;
	i.to_cpu_bytes = ch->to_cpu_lines * BARWAY_LINE_BYTES;
	bw_channel_path(ch, i.path, sizeof(i.path));
	return bw_struct_out(info, &i, sizeof(i), offsetof(struct barway_channel_info, sent_taken),
			     "barway_channel_query: struct barway_channel_info");
}
