/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes of using the driver and the library, in a process of its own that leaves its results
 * in shared memory as it goes: also where it hangs or crashes it can be seen how far it came.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barway.h"
#include "tools/doctor.h"

#define PROBE_BYTES 65536u

__attribute__((format(printf, 3, 4)))
static void stage(struct probe *p, enum check at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->stage, sizeof(p->stage), fmt, ap);
	va_end(ap);
	p->at = at;
}

/* ---- libcuda by itself --------------------------------------------------------------------- */

/* The library as the process would load it: its parameter names it, else its usual name. */
static void probe_libcuda(struct probe *p)
{
	const char *name = getenv("BARWAY_LIBCUDA");
	int (*init)(unsigned) = NULL, (*error_name)(int, const char **) = NULL;
	const char *text = NULL;
	struct link_map *map;
	char *real = NULL;
	void *lib, *f;

	snprintf(p->libcuda, sizeof(p->libcuda), "%s", name && *name ? name : "libcuda.so.1");
	stage(p, CHECK_LIBCUDA, "loading libcuda");
	lib = dlopen(name && *name ? name : p->libcuda, RTLD_NOW | RTLD_LOCAL);
	p->loaded = lib;
	if (!lib) {
		snprintf(p->load_error, sizeof(p->load_error), "%s", dlerror());
		return;
	}
	if (!dlinfo(lib, RTLD_DI_LINKMAP, &map))
		real = realpath(map->l_name, NULL);
	snprintf(p->file, sizeof(p->file), "%s", real ? real : "an unknown file");
	free(real);
	f = dlsym(lib, "cuInit");
	memcpy(&init, &f, sizeof(f));
	f = dlsym(lib, "cuGetErrorName");
	memcpy(&error_name, &f, sizeof(f));
	p->has_init = init;
	if (!init)
		return;
	stage(p, CHECK_CUINIT, "cuInit");
	p->cuinit = init(0);
	snprintf(p->cuinit_name, sizeof(p->cuinit_name), "%s", error_name &&
		 !error_name(p->cuinit, &text) && text ? text : "an error without a name");
}

/* ---- a device through the library ---------------------------------------------------------- */

static void list_providers(struct barway_context *ctx, struct barway_device *dev,
			   struct probe_device *d)
{
	struct barway_provider_info info;

	for (unsigned i = 0; i < PROBE_PROVIDERS; i++) {
		struct probe_provider *to = &d->provider[d->nproviders];

		info = (struct barway_provider_info){ .size = sizeof(info) };
		if (barway_provider_query(ctx, dev, i, &info) < 0)
			return;
		snprintf(to->name, sizeof(to->name), "%s", info.name);
		snprintf(to->reason, sizeof(to->reason), "%s", info.reason);
		to->score = info.score;
		d->nproviders++;
	}
}

static bool failed(struct probe_device *d, int ret, int step)
{
	d->reached = step;
	d->error = ret < 0 ? -ret : 0;
	snprintf(d->message, sizeof(d->message), "%s", ret < 0 ? barway_errmsg() :
		 "the bytes that came back are not those that were written");
	return false;
}

/* Some bytes at an odd place there and back. */
static bool copy_both_ways(struct probe_device *d, struct barway_mapping *map)
{
	unsigned char want[4099], got[sizeof(want)] = { 0 };
	int ret;

	for (size_t i = 0; i < sizeof(want); i++)
		want[i] = (unsigned char)(i * 37 + (i >> 8) + 1);
	ret = barway_copy_to(map, 13, want, sizeof(want));
	if (!ret)
		ret = barway_flush(map);
	if (!ret)
		ret = barway_copy_from(map, got, 13, sizeof(got));
	if (ret || memcmp(want, got, sizeof(want)))
		return failed(d, ret, DEVICE_COPY);
	d->reached = DEVICE_GOOD;
	return true;
}

static bool use_mapping(struct probe *p, struct probe_device *d, struct barway_context *ctx,
			uint64_t addr)
{
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct barway_mapping *map;
	bool good;
	int ret;

	stage(p, CHECK_MAPPING, "a mapping of device %d", d->index);
	ret = barway_map(ctx, addr, PROBE_BYTES, NULL, &map);
	if (ret < 0)
		return failed(d, ret, DEVICE_MAP);
	if (!barway_mapping_query(map, &info)) {
		snprintf(d->path_provider, sizeof(d->path_provider), "%s", info.provider);
		snprintf(d->route, sizeof(d->route), "%s", info.route);
		snprintf(d->store, sizeof(d->store), "%s", info.store_kernel);
		snprintf(d->load, sizeof(d->load), "%s", info.load_kernel);
		d->caching = info.caching;
	}
	stage(p, CHECK_MAPPING, "copies to and from device %d", d->index);
	good = copy_both_ways(d, map);
	barway_unmap(map);
	return good;
}

static void probe_device(struct probe *p, struct barway_context *ctx, struct barway_device *dev)
{
	struct barway_device_info info = { .size = sizeof(info) };
	struct probe_device *d = &p->device[p->ndevices];
	uint64_t addr;
	int ret;

	if (barway_device_query(dev, &info) < 0)
		return;
	p->ndevices++;
	d->index = info.index;
	snprintf(d->name, sizeof(d->name), "%s", info.name);
	snprintf(d->pci, sizeof(d->pci), "%s", info.pci);
	snprintf(d->driver, sizeof(d->driver), "%s", info.driver);
	d->memory_total = info.memory_total;
	d->bar1_total = info.bar1_total;
	d->bar1_free = info.bar1_free;
	stage(p, CHECK_PROVIDER, "the providers of device %d", d->index);
	list_providers(ctx, dev, d);
	stage(p, CHECK_MAPPING, "a CUDA context on device %d", d->index);
	ret = barway_device_activate(dev);
	if (ret < 0) {
		failed(d, ret, DEVICE_ACTIVATE);
		return;
	}
	stage(p, CHECK_MAPPING, "memory of device %d", d->index);
	ret = barway_mem_alloc(dev, PROBE_BYTES, &addr);
	if (ret < 0) {
		failed(d, ret, DEVICE_ALLOC);
		return;
	}
	use_mapping(p, d, ctx, addr);
	stage(p, CHECK_MAPPING, "giving back the memory of device %d", d->index);
	barway_mem_free(ctx, addr);
}

static void probe_library(struct probe *p, bool soft, const char *device)
{
	struct barway_open_options o = {
		.size = sizeof(o), .devices = soft ? BARWAY_DEVICES_SOFT : BARWAY_DEVICES_CUDA,
	};
	struct barway_context *ctx;
	struct barway_device *dev;
	int ret;

	stage(p, CHECK_CUINIT, "barway_open");
	ret = barway_open(&o, &ctx);
	p->open_error = ret < 0 ? -ret : 0;
	if (ret < 0) {
		snprintf(p->message, sizeof(p->message), "%s", barway_errmsg());
		return;
	}
	stage(p, CHECK_CUINIT, "barway_device_count");
	p->count = barway_device_count(ctx);
	if (p->count < 0)
		snprintf(p->message, sizeof(p->message), "%s", barway_errmsg());
	for (int i = 0; i < p->count && i < PROBE_DEVICES && !device; i++)
		if (!barway_device_get(ctx, i, &dev))
			probe_device(p, ctx, dev);
	if (p->count > 0 && device) {
		if (!barway_device_find(ctx, device, &dev))
			probe_device(p, ctx, dev);
		else
			snprintf(p->message, sizeof(p->message), "%s", barway_errmsg());
	}
	stage(p, CHECK_MAPPING, "barway_close");
	barway_close(ctx);
}

static void child(struct probe *p, bool soft, const char *device)
{
	barway_set_log(NULL, NULL, 0);
	p->cuinit = -1;
	if (!soft)
		probe_libcuda(p);
	if (soft || !p->cuinit)
		probe_library(p, soft, device);
	_exit(0); /* libcuda's own end, at exit, is not in question */
}

struct probe *probe_run(bool soft, const char *device, unsigned seconds)
{
	struct probe *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			       -1, 0);
	int status;
	pid_t pid;

	if (p == MAP_FAILED)
		return NULL;
	fflush(stdout);
	pid = fork();
	if (!pid)
		child(p, soft, device);
	if (pid < 0) {
		p->end = PROBE_NO_CHILD;
	} else if (!child_wait(pid, seconds, &status)) {
		p->end = PROBE_STUCK;
	} else if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		p->end = PROBE_CRASHED;
		p->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	} else {
		p->end = PROBE_DONE;
	}
	return p;
}
