/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/counters.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/param.h"
#include "map/cache.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned open_contexts;

static void forget_in_child(void)
{
	open_contexts = 0;
}

__attribute__((constructor(BW_FORK_API))) static void register_fork(void)
{
	bw_fork_lock(&lock);
	bw_fork_forget(forget_in_child);
}

unsigned bw_open_contexts(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = open_contexts;
	pthread_mutex_unlock(&lock);
	return n;
}

/* The place of @word in @words; -1: not there. */
static int place(const char *const *words, int n, const char *word)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(words[i], word))
			return i;
	return -1;
}

static int choice(enum bw_param p, const char *const *words, int n, const char *accepted)
{
	int i = place(words, n, bw_param_text(p));
	struct bw_param_view view;

	if (i >= 0)
		return i;
	bw_param_view(p, &view);
	return bw_err(EINVAL, "parameter %s: '%s' is not one of %s", view.name, view.value, accepted);
}

static const char *const device_words[] = { "auto", "cuda", "soft" };
static const char *const fallback_words[] = { "report", "deny", "quiet" };
static const char *const log_words[] = { "none", "error", "warn", "info", "debug" };

int bw_check_providers(const char *list)
{
	size_t n;

	for (; list && *list; list += n + (list[n] == ',')) {
		bool known = false;

		n = strcspn(list, ",");
		for (int i = 0; bw_map_providers[i]; i++)
			known = known || (strlen(bw_map_providers[i]->name) == n &&
					  !strncmp(bw_map_providers[i]->name, list, n));
		if (!known)
			return bw_err(EINVAL, "providers: '%.*s' is not one of rm, soft", (int)n, list);
	}
	return 0;
}

/* What the first context of the process reads. */
static int load_parameters(void)
{
	const char *bad;
	uint32_t isa;
	int ret = bw_param_load(), level;

	if (ret)
		return ret;
	level = choice(BW_P_LOG, log_words, 5, "none, error, warn, info, debug");
	if (level < 0)
		return level;
	bw_log_default_level(level);
	bw_cache_configure();
	if (!bw_mmio_parse_isa(bw_param_text(BW_P_CPU_MASK), &isa, &bad))
		return bw_err(EINVAL, "parameter cpu_mask: '%s' begins with no instruction set that is "
			      "known: all, or a list of c, sse2, sse41, avx2, avx512, movdir64b, neon", bad);
	bw_mmio_allow(isa);
	ret = bw_check_providers(bw_param_text(BW_P_PROVIDERS));
	if (!ret)
		ret = bw_map_configure();
	return ret ? ret : bw_fault_parse(bw_param_text(BW_P_FAULT));
}

static int fill(struct bw_context *ctx, const struct barway_open_options *o)
{
	const char *providers = o->providers;
	int kinds, fallback, ret;

	kinds = choice(BW_P_DEVICES, device_words, 3, "auto, cuda, soft");
	fallback = choice(BW_P_FALLBACK, fallback_words, 3, "report, deny, quiet");
	if (kinds < 0 || fallback < 0)
		return -EINVAL;
	ctx->kinds = o->devices ? o->devices : (uint32_t)kinds;
	ctx->fallback = o->fallback ? o->fallback : (uint32_t)fallback;
	if (ctx->kinds > BARWAY_DEVICES_SOFT)
		return bw_err(EINVAL, "devices: %u is not a value of enum barway_devices", ctx->kinds);
	if (ctx->fallback > BARWAY_FALLBACK_QUIET)
		return bw_err(EINVAL, "fallback: %u is not a value of enum barway_fallback", ctx->fallback);
	ret = bw_check_providers(providers);
	if (ret)
		return ret;
	if (!providers)
		providers = bw_param_text(BW_P_PROVIDERS);
	ctx->providers = bw_alloc(strlen(providers) + 1);
	if (!ctx->providers)
		return bw_err(ENOMEM, "no memory");
	strcpy(ctx->providers, providers);
	ctx->ndevices = -1;
	pthread_mutex_init(&ctx->lock, NULL);
	return 0;
}

int barway_open(const struct barway_open_options *options, struct barway_context **out)
{
	struct barway_open_options o = { 0 };
	struct bw_context *ctx;
	int ret;

	if (!out)
		return bw_err(EINVAL, "barway_open: out is NULL");
	if (options) {
		ret = bw_struct_in(&o, sizeof(o), offsetof(struct barway_open_options, fallback), options,
				   "barway_open: options");
		if (ret)
			return ret;
	}
	pthread_mutex_lock(&lock);
	ctx = NULL;
	ret = open_contexts ? 0 : load_parameters();
	if (!ret) {
		ctx = bw_object_new(BW_OBJECT_CONTEXT);
		ret = ctx ? fill(ctx, &o) : bw_err(ENOMEM, "no memory");
	}
	if (!ret) {
		open_contexts++;
		*out = bw_object_publish(ctx);
	} else if (ctx) {
		bw_object_free(ctx);
	}
	pthread_mutex_unlock(&lock);
	return bw_err_prefix(ret, "barway_open");
}

int barway_close(struct barway_context *handle)
{
	struct bw_context *ctx = bw_object_retire(handle, BW_OBJECT_CONTEXT);
	struct bw_mapping *m;

	if (!ctx)
		return bw_handle_stale(handle, "barway_close", "context");
	while (true) {
		pthread_mutex_lock(&ctx->lock);
		m = ctx->mappings;
		if (m) {
			ctx->mappings = m->next;
			if (m->next)
				m->next->prev = NULL;
		}
		pthread_mutex_unlock(&ctx->lock);
		if (!m)
			break;
		/* whoever retires it ends it: a barway_unmap() may be under way */
		if (bw_object_retire(bw_object_handle(m), BW_OBJECT_MAPPING))
			bw_mapping_end(m);
	}
	for (int i = 0; i < ctx->ndevices; i++) {
		struct bw_device_object *d = ctx->devices[i];

		bw_object_retire(bw_object_handle(d), BW_OBJECT_DEVICE);
		if (d->active)
			d->dev->ops->deactivate(d->dev);
		bw_object_free(d);
	}
	free(ctx->devices);
	free(ctx->providers);
	pthread_mutex_destroy(&ctx->lock);
	bw_object_free(ctx);
	pthread_mutex_lock(&lock);
	if (!--open_contexts)
		bw_map_release(true, false);
	pthread_mutex_unlock(&lock);
	return 0;
}

int barway_cache_flush(struct barway_context *handle)
{
	if (!bw_context_get(handle))
		return bw_handle_stale(handle, "barway_cache_flush", "context");
	bw_cache_flush();
	return 0;
}

int barway_release_all(struct barway_context *handle, uint32_t flags)
{
	int ret;

	if (!bw_context_get(handle))
		return bw_handle_stale(handle, "barway_release_all", "context");
	if (flags & ~BARWAY_RELEASE_FORCE)
		return bw_err(EINVAL, "barway_release_all: flags 0x%x: only BARWAY_RELEASE_FORCE is known",
			      flags);
	pthread_mutex_lock(&lock);
	ret = bw_map_release(flags & BARWAY_RELEASE_FORCE, true);
	pthread_mutex_unlock(&lock);
	return bw_err_prefix(ret, "barway_release_all");
}

int barway_counters_get(struct barway_context *handle, struct barway_counters *counters)
{
	struct barway_counters c = {
		.maps = bw_counter(BW_C_MAPS),
		.map_errors = bw_counter(BW_C_MAP_ERRORS),
		.unmaps = bw_counter(BW_C_UNMAPS),
		.cache_hits = bw_counter(BW_C_CACHE_HITS),
		.cache_misses = bw_counter(BW_C_CACHE_MISSES),
		.cache_evictions = bw_counter(BW_C_CACHE_EVICTIONS),
		.cache_stale = bw_counter(BW_C_CACHE_STALE),
		.cache_bytes = bw_counter(BW_C_CACHE_BYTES),
		.live_mappings = bw_counter(BW_C_LIVE_MAPPINGS),
		.live_bytes = bw_counter(BW_C_LIVE_BYTES),
		.self_tests = bw_counter(BW_C_SELF_TESTS),
		.self_test_failures = bw_counter(BW_C_SELF_TEST_FAILURES),
		.driver_maps = bw_counter(BW_C_DRIVER_MAPS),
		.driver_unmaps = bw_counter(BW_C_DRIVER_UNMAPS),
	};

	if (!bw_context_get(handle))
		return bw_handle_stale(handle, "barway_counters_get", "context");
	return bw_struct_out(counters, &c, sizeof(c), offsetof(struct barway_counters, map_errors),
			     "barway_counters_get");
}
