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
#include "copy/ce.h"
#include "copy/plan.h"
#include "copy/request.h"
#include "copy/resident.h"
#include "copy/threads.h"
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

static const char provider_names[] = "rm, soft"; /* in bw_map_providers */

/* Names an unknown one in *@word and @n. */
static bool providers_known(const char *list, const char **word, size_t *n)
{
	int i;

	while (bw_list_next(&list, word, n)) {
		for (i = 0; bw_map_providers[i]; i++)
			if (bw_word_is(*word, *n, bw_map_providers[i]->name))
				break;
		if (!bw_map_providers[i])
			return false;
	}
	return true;
}

int bw_check_providers(const char *list)
{
	const char *word;
	size_t n;

	if (providers_known(list, &word, &n))
		return 0;
	return bw_err(EINVAL, "option providers \"%.128s\": '%.*s' is not one of %s: give "
		      "a comma-separated list of these, or NULL", list, (int)(n < 128 ? n : 128),
		      word, provider_names);
}

/* What the first context of the process reads. */
static int load_parameters(void)
{
	const char *bad;
	uint32_t isa;
	size_t n;
	int ret = bw_param_load();

	if (ret)
		return ret;
	bw_log_default_level((int)bw_param_choice(BW_P_LOG));
	bw_cache_configure();
	bw_plan_forget(); /* one may have been written since */
	if (!bw_mmio_parse_isa(bw_param_text(BW_P_CPU_MASK), &isa, &bad, &n))
		return bw_param_refuse(BW_P_CPU_MASK, bad, n,
				       "all, c, sse2, sse41, avx2, avx512, movdir64b, neon");
	bw_mmio_allow(isa);
	if (!providers_known(bw_param_text(BW_P_PROVIDERS), &bad, &n))
		return bw_param_refuse(BW_P_PROVIDERS, bad, n, provider_names);
	ret = bw_map_configure();
	if (!ret)
		ret = bw_ce_configure();
	if (!ret)
		bw_fault_arm_list(bw_param_text(BW_P_FAULT));
	return ret;
}

static int fill_copies(struct bw_context *ctx, const struct barway_open_options *o)
{
	uint64_t threads = o->copy_threads ? o->copy_threads : bw_param_size(BW_P_COPY_THREADS);

	ctx->copy_method = o->copy_method ? o->copy_method : bw_param_choice(BW_P_COPY_METHOD);
	if (ctx->copy_method > BARWAY_METHOD_RESIDENT)
		return bw_err(EINVAL, "copy_method: %u is not a value of enum barway_method",
			      ctx->copy_method);
	if (threads > 64)
		return bw_err(EINVAL, "copy_threads: %llu is not 0 to 64",
			      (unsigned long long)threads);
	ctx->copy_threads = (uint32_t)threads;
	return 0;
}

static int fill(struct bw_context *ctx, const struct barway_open_options *o)
{
	const char *providers = o->providers;
	int ret;

	ctx->kinds = o->devices ? o->devices : bw_param_choice(BW_P_DEVICES);
	ctx->fallback = o->fallback ? o->fallback : bw_param_choice(BW_P_FALLBACK);
	if (ctx->kinds > BARWAY_DEVICES_SOFT)
		return bw_err(EINVAL, "devices: %u is not a value of enum barway_devices",
			      ctx->kinds);
	if (ctx->fallback > BARWAY_FALLBACK_QUIET)
		return bw_err(EINVAL, "fallback: %u is not a value of enum barway_fallback",
			      ctx->fallback);
	ret = bw_check_providers(providers);
	if (!ret)
		ret = fill_copies(ctx, o);
	if (ret)
		return ret;
	if (!providers)
		providers = bw_param_text(BW_P_PROVIDERS);
	ctx->providers = bw_alloc(strlen(providers) + 1);
	if (!ctx->providers)
		return bw_err(ENOMEM, "no memory for the list of providers: free some");
	strcpy(ctx->providers, providers);
	ret = bw_threads_enter(ctx->copy_threads,
			       o->copy_cpus ? o->copy_cpus : bw_param_text(BW_P_COPY_CPUS));
	if (ret) {
		free(ctx->providers);
		return ret;
	}
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
		ret = bw_struct_in(&o, sizeof(o), offsetof(struct barway_open_options, fallback),
				   options, "barway_open: struct barway_open_options");
		if (ret)
			return ret;
	}
	pthread_mutex_lock(&lock);
	ctx = NULL;
	ret = open_contexts ? 0 : load_parameters();
	if (!ret) {
		ctx = bw_object_new(BW_OBJECT_CONTEXT);
		ret = ctx ? fill(ctx, &o) :
			    bw_err(ENOMEM, "no memory for a context: free some");
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
	bw_context_close_endpoints(ctx);
	bw_context_end_requests(ctx);
	bw_context_close_channels(ctx);
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
		if (bw_object_retire(bw_object_handle(m), BW_OBJECT_MAPPING))
			bw_mapping_end(m);
	}
	bw_ce_release(); /* while the CUDA contexts that it is of are there */
	for (int i = 0; i < ctx->ndevices; i++) {
		struct bw_device_object *d = ctx->devices[i];

		bw_object_retire(bw_object_handle(d), BW_OBJECT_DEVICE);
		if (d->active)
			d->dev->ops->deactivate(d->dev);
		bw_object_free(d);
	}
	bw_threads_leave(ctx->copy_threads);
	free(ctx->devices);
	free(ctx->providers);
	pthread_mutex_destroy(&ctx->lock);
	bw_object_free(ctx);
	pthread_mutex_lock(&lock);
	if (!--open_contexts) {
		bw_worker_end();
		bw_resident_end();
		bw_ce_release();
		bw_map_release(true, false);
	}
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
		return bw_err(EINVAL, "barway_release_all: flags 0x%x: only BARWAY_RELEASE_FORCE "
			      "is known", flags);
	pthread_mutex_lock(&lock);
	bw_resident_end();
	bw_ce_release();
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
			     "barway_counters_get: struct barway_counters");
}
