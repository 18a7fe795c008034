/* SPDX-License-Identifier: BSD-3-Clause */
/* net/fabric_lib: opening libfabric. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fork.h"
#include "net/fabric.h"

#define NAME "libfabric.so.1"
#define OLDEST FI_VERSION(1, 11)
#define NEWEST FI_VERSION(1, 20) /* the interface that this file was written for */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bw_fabric_lib lib;
static bool ready, told;

__attribute__((constructor)) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
}

void bw_fabric_keep_handlers(struct bw_fabric_handlers *h)
{
	for (int s = 1; s < 32; s++)
		h->known[s] = !sigaction(s, NULL, &h->action[s]);
}

void bw_fabric_put_handlers_back(const struct bw_fabric_handlers *h)
{
	struct sigaction now;

	for (int s = 1; s < 32; s++)
		if (h->known[s] && !sigaction(s, NULL, &now) &&
		    now.sa_handler != h->action[s].sa_handler)
			sigaction(s, &h->action[s], NULL);
}

static void *open_library(void)
{
	struct bw_fabric_handlers mine;
	void *so;

	bw_fabric_keep_handlers(&mine);
	so = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
	bw_fabric_put_handlers_back(&mine);
	return so;
}

static bool load(struct bw_reason *why)
{
	static const struct {
		const char *symbol;
		void *where;
	} functions[] = {
		{ "fi_getinfo", &lib.getinfo }, { "fi_freeinfo", &lib.freeinfo },
		{ "fi_dupinfo", &lib.dupinfo }, { "fi_fabric", &lib.fabric },
		{ "fi_version", &lib.version }, { "fi_strerror", &lib.strerror },
	};
	void *so = open_library();

	if (!so) {
		bw_reason_set(why, "libfabric cannot be opened (%s): install it (Debian: "
			      "libfabric1), or have LD_LIBRARY_PATH name its folder", dlerror());
		return false;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *f = dlsym(so, functions[i].symbol);

		if (!f) {
			bw_reason_set(why, NAME " has no %s: install libfabric 1.11 or newer",
				      functions[i].symbol);
			dlclose(so);
			return false;
		}
		memcpy(functions[i].where, &f, sizeof(f));
	}
	lib.api = lib.version();
	if (lib.api < OLDEST) {
		bw_reason_set(why, "libfabric %u.%u is too old: install 1.11 or newer",
			      FI_MAJOR(lib.api), FI_MINOR(lib.api));
		dlclose(so);
		return false;
	}
	if (lib.api > NEWEST)
		lib.api = NEWEST;
	return true; /* stays open: what it began (threads, handlers of signals) cannot be undone */
}

const struct bw_fabric_lib *bw_fabric_lib(struct bw_reason *why)
{
	struct bw_reason unused;
	bool ok;

	pthread_mutex_lock(&lock);
	ok = ready = ready || load(why ? why : &unused);
	pthread_mutex_unlock(&lock);
	return ok ? &lib : NULL;
}

void bw_fabric_environment(unsigned peers)
{
	char text[16];

	pthread_mutex_lock(&lock);
	if (!told) {
		told = true;
		/* Left to itself libfabric initialises CUDA, on GPU 0, with a context of 600 MB. */
		setenv("FI_HMEM", "system", 0);
		/* Through cross memory attach the kernel refuses mappings of GPU memory; and on one
		 * machine copies through shared memory were the faster ones from 8 KiB on. */
		setenv("FI_SHM_DISABLE_CMA", "1", 0);
		/* Its cache of registrations does not see GPU memory being freed. And peers may
		 * read and write what is in it, by the same key, whatever it was registered for,
		 * also when that is over. */
		setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
		setenv("FI_EFA_MR_CACHE_ENABLE", "0", 0); /* efa asks for it by itself (fi_efa) */
		/* The queues of verbs are sized by it, and 1024, its default, is more than some
		 * cards have. */
		snprintf(text, sizeof(text), "%u", peers < 16 ? 16 : peers);
		setenv("FI_UNIVERSE_SIZE", text, 0);
	}
	pthread_mutex_unlock(&lock);
}

int bw_fabric_getinfo(const struct bw_fabric_lib *l, const char *node, uint64_t flags,
		      const struct fi_info *hints, struct fi_info **info)
{
	struct bw_fabric_handlers mine;
	int ret;

	bw_fabric_keep_handlers(&mine);
	ret = l->getinfo(l->api, node, NULL, flags, hints, info);
	bw_fabric_put_handlers_back(&mine);
	return ret;
}

int bw_fabric_errno(int error)
{
	if (error < 0)
		error = -error;
	if (error == FI_ETRUNC || error == FI_ETOOSMALL)
		return EMSGSIZE;
	return error && error < FI_ERRNO_OFFSET ? error : EIO;
}
