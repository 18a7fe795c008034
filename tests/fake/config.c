/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake's state, configuration and counters.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rm.h"

struct rm *_Atomic rm_state;
static pthread_mutex_t make_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*reset_hook[4])(void);

struct key {
	const char *name;
	size_t at;       /* of a long in struct rm_config or struct rm_counters */
	long min, max, dflt;
};

#define CONFIG(name, min, max, dflt) { #name, offsetof(struct rm_config, name), min, max, dflt }
static const struct key config_keys[] = {
	CONFIG(gpus, 0, RM_GPUS, 1),
	CONFIG(fb_mb, 2, RM_FB_CHUNKS * 2, 1024),
	CONFIG(bar1_mb, 0, RM_BAR_PAGES * 2, 0),
	CONFIG(bar1_page_kb, 64, 2048, 2048),
	CONFIG(minor_base, 0, 200, 0),
	CONFIG(instance_base, 0, 20, 2),
	CONFIG(nodes, 0, 1, 1),
	CONFIG(ctl, 0, 1, 1),
	CONFIG(open_module, 0, 1, 1),
	CONFIG(sysfs_version, 0, 1, 1),
	CONFIG(proc_version, 0, 1, 1),
	CONFIG(gdrdrv, 0, 1, 0),
	CONFIG(wsl, 0, 1, 0),
	CONFIG(jetson, 0, 1, 0),
	CONFIG(mig, 0, 1, 0),
	CONFIG(cc, 0, 2, 0),
	CONFIG(cc_caps, 0, 6, 0),
	CONFIG(virt, 0, 4, 0),
	CONFIG(dmabuf, 0, 1, 1),
	CONFIG(coherent, 0, 1, 0),
	CONFIG(ordered, 0, 1, 1),
	CONFIG(admin, -1, 1, -1),
	CONFIG(lost, 0, 1, 0),
	CONFIG(memops, 0, 1, 1),
	CONFIG(host_alias, 0, 1, 0),
	CONFIG(host_skew, 0, 1, 0),
	CONFIG(jit, 0, 999, 0),
	CONFIG(cuinit, -2, 999, 0),
	CONFIG(destroyed, 0, 1, 0),
	{ 0 }
};

#define COUNT(name) { #name, offsetof(struct rm_counters, name), 0, 0, 0 }
static const struct key counter_keys[] = {
	COUNT(opens), COUNT(ioctls), COUNT(exports), COUNT(total_dups), COUNT(total_maps),
	COUNT(total_unmaps), COUNT(total_frees), COUNT(order_violations),
	COUNT(invalid_parent_dups), COUNT(wrong_gpu_dups), COUNT(foreign_calls), COUNT(shares_all),
	COUNT(null_stream_uses), COUNT(contexts_created), COUNT(graphs_dropped),
	COUNT(stale_uses), COUNT(streams_created),
	{ 0 }
};

static const char *const tampers[] = {
	"", "dup_zero_handle", "dup_class", "dup_addrspace", "dup_regmem", "dup_physsize",
	"dup_wrong_memory", "export_client", "export_short", "export_wrong_dev", "export_none",
	"export_pool", "map_address", "map_caching", "map_wrong_offset", "gpu_id", "uuid", "alias",
	NULL
};

static const char *const bar1_modes[] = { "auto", "static", "dynamic", NULL };

static const struct key *find_key(const struct key *keys, const char *name)
{
	for (; keys->name; keys++)
		if (!strcmp(keys->name, name))
			return keys;
	return NULL;
}

static long *long_at(void *base, const struct key *key)
{
	return (long *)((char *)base + key->at);
}

void rm_lock(void)
{
	struct rm *rm = rm_get();

	pthread_mutex_lock(&rm->lock);
}

void rm_unlock(void)
{
	pthread_mutex_unlock(&rm_state->lock);
}

bool rm_tampers(const struct rm *rm, const struct rm_file *file, const char *what)
{
	return !(file && file->trusted) && !strcmp(rm->config.tamper, what);
}

/* kern_bus_tu102.c: static by default since 580, if it fits and without confidential computing */
bool rm_bar1_static(const struct rm *rm)
{
	const struct rm_config *c = &rm->config;

	if (c->bar1_mode == BAR1_DYNAMIC || c->cc || rm->gpu[0].bar1_bytes < rm->gpu[0].fb_bytes)
		return false;
	return c->bar1_mode == BAR1_STATIC || rm->major >= 580;
}

bool rm_admin(const struct rm *rm)
{
	return rm->config.admin >= 0 ? rm->config.admin : geteuid() == 0;
}

/*
 * Minor numbers, device instances and the order on the PCI bus (which is CUDA's) are three
 * different orders, as on real machines.
 */
void rm_build_gpus(struct rm *rm)
{
	const struct rm_config *c = &rm->config;
	unsigned n = (unsigned)c->gpus;

	rm->major = atoi(c->driver);
	for (unsigned i = 0; i < n; i++) {
		struct rm_gpu *gpu = &rm->gpu[i];
		uint64_t bar1 = (uint64_t)c->bar1_mb << 20;

		gpu->fb_bytes = (uint64_t)c->fb_mb << 20;
		if (!bar1)
			bar1 = c->bar1_mode != BAR1_DYNAMIC ? 2 * gpu->fb_bytes : 256ull << 20;
		gpu->bar1_bytes = bar1;
		gpu->minor = (unsigned)c->minor_base + i;
		gpu->instance = (unsigned)c->instance_base + (i + 1) % n;
		gpu->domain = 0;
		gpu->bus = 0x1b + 0x10 * (n - 1 - i);
		gpu->gpu_id = gpu->bus << 8;
		gpu->reg_address = 0xd0000000ull + i * 0x1000000ull;
		gpu->fb_address = 0x200000000000ull + i * 0x1000000000ull;
		for (unsigned b = 0; b < 16; b++)
			gpu->uuid[b] = (unsigned char)(0x5a + 31 * b + 101 * gpu->bus);
	}
}

static int set_text(struct rm *rm, const char *key, const char *value)
{
	struct rm_config *c = &rm->config;

	if (!strcmp(key, "driver")) {
		if (atoi(value) < 515 || strlen(value) >= sizeof(c->driver))
			return -1;
		memset(c->driver, 0, sizeof(c->driver));
		strcpy(c->driver, value);
		return 0;
	}
	if (!strcmp(key, "tamper")) {
		for (int i = 0; tampers[i]; i++) {
			if (!strcmp(tampers[i], value)) {
				strcpy(c->tamper, value);
				return 0;
			}
		}
		return -1;
	}
	if (!strcmp(key, "bar1")) {
		for (int i = 0; bar1_modes[i]; i++) {
			if (!strcmp(bar1_modes[i], value)) {
				c->bar1_mode = i;
				return 0;
			}
		}
		return -1;
	}
	if (!strcmp(key, "dev_mode")) {
		c->eacces = !strcmp(value, "eacces") ? EACCES : !strcmp(value, "eperm") ? EPERM : 0;
		return c->eacces || !strcmp(value, "ok") ? 0 : -1;
	}
	return 1;
}

static int set_locked(struct rm *rm, const char *name, const char *value)
{
	const struct key *key;
	char *end;
	long v;
	int rc = set_text(rm, name, value);

	if (rc <= 0) {
		if (!rc)
			rm_build_gpus(rm);
		return rc;
	}
	v = strtol(value, &end, 0);
	if (!*value || *end)
		return -1;
	key = find_key(counter_keys, name);
	if (key) {
		*long_at(&rm->count, key) = v;
		return 0;
	}
	if (!strncmp(name, "nr_", 3)) {
		rm->count.nr[strtoul(name + 3, NULL, 16) & 0xff] = v;
		return 0;
	}
	key = find_key(config_keys, name);
	if (!key || v < key->min || v > key->max)
		return -1;
	*long_at(&rm->config, key) = v;
	rm_build_gpus(rm);
	return 0;
}

static void set_defaults(struct rm *rm)
{
	char text[1024], *save = NULL;
	const char *env = getenv("FAKENV");

	memset(&rm->config, 0, sizeof(rm->config));
	for (const struct key *key = config_keys; key->name; key++)
		*long_at(&rm->config, key) = key->dflt;
	strcpy(rm->config.driver, "580.159.04");
	rm_build_gpus(rm);
	if (!env)
		return;
	snprintf(text, sizeof(text), "%s", env);
	for (char *p = strtok_r(text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		char *value = strchr(p, '=');

		if (value)
			*value++ = 0;
		if (!value || set_locked(rm, p, value)) {
			fprintf(stderr, "FAKENV: bad setting %s=%s\n", p, value ? value : "");
			abort();
		}
	}
}

/* Everything but the lock and the file of all memory, which is emptied. */
static void clear(struct rm *rm)
{
	const size_t from = offsetof(struct rm, major);

	for (int i = 0; i < RM_FILES; i++)
		if (rm->file[i].used && rm->file[i].closed && rm->file[i].keeper_pid == getpid())
			sys_close(rm->file[i].keeper);
	memset((char *)rm + from, 0, sizeof(*rm) - from);
	if (ftruncate(rm->fb_fd, 0) || ftruncate(rm->fb_fd, (off_t)(RM_GPUS * RM_FB_STRIDE)))
		abort();
	rm->next_client = 0xc1d00001;
	set_defaults(rm);
}

static struct rm *make(void)
{
	pthread_mutexattr_t attr;
	struct rm *rm;
	int fd, high;

	rm = sys_mmap(NULL, sizeof(*rm), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	fd = (int)syscall(SYS_memfd_create, "fakenv-fb", 1u /* MFD_CLOEXEC */);
	if (rm == MAP_FAILED || fd < 0)
		abort();
	/* out of the way of the numbers that programs see */
	high = fcntl(fd, F_DUPFD_CLOEXEC, 900);
	if (high >= 0) {
		sys_close(fd);
		fd = high;
	}
	rm->fb_fd = fd;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&rm->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	clear(rm);
	return rm;
}

struct rm *rm_get(void)
{
	struct rm *rm = rm_state;

	if (rm)
		return rm;
	pthread_mutex_lock(&make_lock);
	rm = rm_state;
	if (!rm) {
		rm = make();
		rm_state = rm;
	}
	pthread_mutex_unlock(&make_lock);
	return rm;
}

FAKE_API void fakenv_on_reset(void (*hook)(void))
{
	rm_lock();
	for (unsigned i = 0; i < 4; i++) {
		if (reset_hook[i] == hook)
			break;
		if (!reset_hook[i]) {
			reset_hook[i] = hook;
			break;
		}
	}
	rm_unlock();
}

FAKE_API void fakenv_reset(void)
{
	struct rm *rm = rm_get();
	void (*hook[4])(void);

	rm_lock();
	memcpy(hook, reset_hook, sizeof(hook));
	rm_unlock();
	for (unsigned i = 0; i < 4; i++)
		if (hook[i])
			hook[i]();
	rm_lock();
	clear(rm);
	rm_unlock();
}

FAKE_API int fakenv_set(const char *key, const char *value)
{
	struct rm *rm = rm_get();
	int rc;

	rm_lock();
	rc = set_locked(rm, key, value);
	rm_unlock();
	return rc;
}

/* What exists now, counted when asked. */
static bool live_count(struct rm *rm, const char *key, long *out)
{
	long n = 0;
	bool kinds[4] = { !strcmp(key, "fds"), false, !strcmp(key, "dmabufs"), false };

	kinds[FILE_DEV] = kinds[FILE_CTL];
	if (kinds[FILE_CTL] || kinds[FILE_DMABUF]) {
		for (int i = 0; i < RM_FILES; i++)
			n += rm->file[i].used && kinds[rm->file[i].kind];
	} else if (!strcmp(key, "clients")) {
		for (int i = 0; i < RM_CLIENTS; i++)
			n += rm->client[i].used;
	} else if (!strcmp(key, "objects")) {
		for (int i = 0; i < RM_OBJECTS; i++)
			n += rm->object[i].used;
	} else if (!strcmp(key, "dups")) {
		for (int i = 0; i < RM_OBJECTS; i++)
			n += rm->object[i].used && rm->object[i].dup;
	} else if (!strcmp(key, "mappings")) {
		for (int i = 0; i < RM_MAPS; i++)
			n += rm->map[i].used;
	} else if (!strcmp(key, "vmas")) {
		n = rm->nvmas;
	} else if (!strcmp(key, "bar1_used")) {
		for (int g = 0; g < RM_GPUS; g++)
			for (int i = 0; i < RM_BAR_PAGES; i++)
				n += rm->gpu[g].bar_page[i] ? rm->config.bar1_page_kb << 10 : 0;
	} else if (!strcmp(key, "fb_used")) {
		for (int g = 0; g < RM_GPUS; g++)
			for (int i = 0; i < RM_FB_CHUNKS; i++)
				n += rm->gpu[g].chunk[i] ? (long)RM_CHUNK : 0;
	} else if (!strncmp(key, "fb_used:", 8)) {
		for (int g = 0; g < rm->config.gpus; g++)
			for (int i = 0; i < RM_FB_CHUNKS; i++)
				if (rm->gpu[g].minor == (unsigned)atoi(key + 8))
					n += rm->gpu[g].chunk[i] ? (long)RM_CHUNK : 0;
	} else {
		return false;
	}
	*out = n;
	return true;
}

FAKE_API long fakenv_get(const char *name)
{
	struct rm *rm = rm_get();
	const struct key *key;
	long v = -1;

	rm_lock();
	rm_reap(rm);
	if (live_count(rm, name, &v))
		;
	else if ((key = find_key(counter_keys, name)))
		v = *long_at(&rm->count, key);
	else if ((key = find_key(config_keys, name)))
		v = *long_at(&rm->config, key);
	else if (!strncmp(name, "nr_", 3))
		v = rm->count.nr[strtoul(name + 3, NULL, 16) & 0xff];
	else if (!strncmp(name, "tamper:", 7))
		v = !strcmp(rm->config.tamper, name + 7);
	else if (!strcmp(name, "driver"))
		v = rm->major;
	rm_unlock();
	return v;
}

FAKE_API void fakenv_count(const char *counter, long by)
{
	struct rm *rm = rm_get();
	const struct key *key = find_key(counter_keys, counter);

	if (!key)
		abort();
	rm_lock();
	*long_at(&rm->count, key) += by;
	rm_unlock();
}

static void add_fault(bool control, unsigned nr, unsigned nth, int result)
{
	struct rm *rm = rm_get();

	rm_lock();
	for (int i = 0; i < RM_FAULTS; i++) {
		struct rm_fault *fault = &rm->fault[i];

		if (!fault->used) {
			*fault = (struct rm_fault){ true, control, nr, nth ? nth : 1, result };
			break;
		}
	}
	rm_unlock();
}

FAKE_API void fakenv_fail_ioctl(unsigned nr, unsigned nth, int result)
{
	add_fault(false, nr, nth, result);
}

FAKE_API void fakenv_fail_control(unsigned cmd, unsigned nth, int result)
{
	add_fault(true, cmd, nth, result);
}

FAKE_API void fakenv_trust_fd(int fd)
{
	struct rm *rm = rm_get();
	struct rm_file *file;

	rm_lock();
	file = rm_file_of_fd(rm, fd);
	if (file)
		file->trusted = true;
	rm_unlock();
}

FAKE_API int fakenv_gpu(unsigned minor, uint32_t pci[4], unsigned char uuid[16])
{
	struct rm *rm = rm_get();
	int rc = -1;

	rm_lock();
	for (int i = 0; i < rm->config.gpus; i++) {
		if (rm->gpu[i].minor != minor)
			continue;
		pci[0] = rm->gpu[i].domain;
		pci[1] = rm->gpu[i].bus;
		pci[2] = pci[3] = 0;
		memcpy(uuid, rm->gpu[i].uuid, 16);
		rc = 0;
	}
	rm_unlock();
	return rc;
}

/* Where this process has the memory of a GPU. With the lock held. */
static unsigned char *memory_of(struct rm *rm, int gpu)
{
	static unsigned char *base[RM_GPUS]; /* shared, so good after fork */
	void *map;

	if (!base[gpu]) {
		map = sys_mmap(NULL, RM_FB_STRIDE, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_NORESERVE, rm->fb_fd,
			       (off_t)((uint64_t)gpu * RM_FB_STRIDE));
		base[gpu] = map == MAP_FAILED ? NULL : map;
	}
	return base[gpu];
}

FAKE_API void *fakenv_fb(uint32_t hclient, uint32_t hmemory, uint64_t offset, uint64_t length)
{
	struct rm *rm = rm_get();
	struct rm_client *client;
	struct rm_object *object = NULL;
	unsigned char *base, *p = NULL;

	rm_lock();
	client = rm_find_client(rm, hclient);
	if (client)
		object = rm_find_object(rm, client, hmemory);
	if (object && object->mem >= 0) {
		struct rm_mem *mem = &rm->mem[object->mem];

		base = memory_of(rm, mem->gpu);
		if (base && offset <= mem->size && length <= mem->size - offset)
			p = base + mem->phys + offset;
	}
	rm_unlock();
	return p;
}

FAKE_API void *fakenv_dmabuf(int fd, uint64_t offset, uint64_t length)
{
	struct rm *rm = rm_get();
	struct rm_file *file;
	unsigned char *p = NULL;

	rm_lock();
	file = rm_file_of_fd(rm, fd);
	for (int i = 0; file && file->kind == FILE_DMABUF && i < file->nmems; i++) {
		struct rm_mem *mem = &rm->mem[file->mems[i]];

		if (offset < file->mem_bytes[i]) {
			if (length <= file->mem_bytes[i] - offset && memory_of(rm, mem->gpu))
				p = memory_of(rm, mem->gpu) + mem->phys + file->mem_offset[i] +
				    offset;
			break;
		}
		offset -= file->mem_bytes[i];
	}
	rm_unlock();
	return p;
}
