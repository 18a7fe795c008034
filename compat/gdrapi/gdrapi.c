/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compat/gdrapi: GDRCopy's interface over barway.h. A pin is a Barway mapping; mapping it is only
 * making it known to copies, so that what can fail fails at the pin.
 */
#pragma GCC visibility push(default)
#include "gdrapi.h"
#undef gdr_get_info /* here it is the symbol */
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v1_t *info);
#pragma GCC visibility pop

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "method.h"
#include "table.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define CPU_PAGE 4096ul
#define NS_PER_MS 1000000u

_Static_assert(sizeof(gdr_info_v1_t) == 40 && sizeof(gdr_info_v2_t) == 48, "layouts");

/* What Barway's errors are here. */
static int errno_of(int ret)
{
	switch (ret) {
	case -EFAULT: /* not GPU memory */
	case -ESTALE:
		return EINVAL;
	default:
		return -ret;
	}
}

static int not_open(const char *operation, gdr_t g)
{
	return refuse(EINVAL, "%s: %p is not open: it was closed, or never came from gdr_open(): "
		      "open it first",
		      operation, (void *)g);
}

static int not_pinned(const char *operation, gdr_mh_t handle)
{
	return refuse(EINVAL, "%s: 0x%lx is not pinned here: it was unpinned before, is the parent "
		      "process's, or another gdr_t's: pin it again", operation, handle.h);
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_context(struct client *s)
{
	struct barway_open_options o = {
		.size = sizeof(o),
		.devices = s->soft ? BARWAY_DEVICES_SOFT : BARWAY_DEVICES_CUDA,
		.providers = s->providers,
		.copy_method = s->method,
	};

	return barway_open(&o, &s->ctx);
}

static int reopen_context(struct client *s)
{
	barway_close(s->ctx);
	s->ctx = NULL;
	return open_context(s);
}

/* Only who asks for the soft GPU by name gets it. */
static bool soft_is_asked_for(void)
{
	struct barway_param_info p = { .size = sizeof(p) };

	for (unsigned i = 0; !barway_param_get(i, &p); i++)
		if (!strcmp(p.name, "devices"))
			return !strcmp(p.value, "soft");
	return false;
}

/* The most eager provider that can be judged without CUDA; false: all refuse, as @why says. */
static bool find_provider(struct client *s, char *why, size_t bytes)
{
	struct barway_provider_info p = { .size = sizeof(p) };
	const char *dmabuf = getenv("GDRCOPY_USE_DMABUF_MMAP");
	bool wants_dmabuf = dmabuf && atoi(dmabuf);
	int best = -1;
	size_t used = 0;

	*why = 0;
	for (unsigned i = 0; !barway_provider_query(s->ctx, NULL, i, &p); i++) {
		bool wanted = wants_dmabuf && !strcmp(p.name, "dmabuf");

		if (s->soft != !strcmp(p.name, "soft"))
			continue;
		if (p.score < 0 && used < bytes)
			used += (size_t)snprintf(why + used, bytes - used, "%s%s: %s",
						 used ? "; " : "", p.name, p.reason);
		if (p.score < 0 || (p.score <= best && !wanted) || s->providers)
			continue;
		best = p.score;
		client_note(s, p.name, p.keeps_alive, false);
		if (wanted)
			s->providers = "dmabuf";
	}
	if (wants_dmabuf && best >= 0 && !s->providers)
		log_line(LOG_INFO,
			 "gdr_open: GDRCOPY_USE_DMABUF_MMAP: dma-bufs cannot be mapped here, "
			 "provider %s is used",
			 client_in_use(s).provider);
	return best >= 0;
}

static bool open_client(struct client *s)
{
	char why[1024];
	int ret;

	if (!method_wished_for(&s->method))
		return false;
	ret = open_context(s);
	if (!ret && soft_is_asked_for()) {
		s->soft = true;
		ret = reopen_context(s);
	}
	if (ret) {
		log_line(LOG_ERROR, "gdr_open: %s", barway_errmsg());
		return false;
	}
	if (!method_can_be(s->method))
		return false;
	if (!find_provider(s, why, sizeof(why))) {
		log_line(LOG_ERROR, "gdr_open: no GPU memory can be mapped on this machine: %s",
			 why);
		return false;
	}
	if (s->providers && reopen_context(s)) {
		log_line(LOG_ERROR, "gdr_open: %s", barway_errmsg());
		return false;
	}
	return true;
}

gdr_t gdr_open(void)
{
	struct in_use in_use;
	struct client *s;
	bool soft;
	gdr_t g;

	log_configure();
	s = client_new();
	if (!s) {
		log_line(LOG_ERROR, "gdr_open: no memory");
		return NULL;
	}
	if (!open_client(s)) {
		client_put(s);
		return NULL;
	}
	in_use = client_in_use(s);
	soft = s->soft;
	g = client_publish(s);
	log_line(LOG_INFO, "gdr_open: Barway %u.%u.%u in place of GDRCopy, provider %s%s",
		 barway_version() >> 16, barway_version() >> 8 & 0xff, barway_version() & 0xff,
		 in_use.provider, soft ? " (BARWAY_DEVICES=soft: no GPU is used)" : "");
	return g;
}

int gdr_close(gdr_t g)
{
	if (!client_close(g))
		return not_open("gdr_close", g);
	log_line(LOG_DEBUG, "gdr_close: done");
	return 0;
}

/* ---- pin ------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Does every GPU page that the range touches hold some of its memory? Then it is a range that was
 * rounded to GPU pages, or joined from several such. Finds an address of the memory too.
 */
static bool is_rounded(struct barway_context *ctx, uint64_t addr, uint64_t size, struct pinned *p)
{
	enum { STEP = 512 }; /* CUDA's allocations begin at multiples of it */
	uint64_t end = addr + size, missing = addr & GPU_PAGE_MASK;
	bool found = false;

	for (uint64_t at = addr; at < end && at < missing + GPU_PAGE_SIZE;) {
		struct barway_pointer_info info = { .size = sizeof(info) };

		if (barway_pointer_query(ctx, at, &info))
			return false;
		if (info.kind == BARWAY_MEM_HOST) {
			at = (at + STEP) & ~(uint64_t)(STEP - 1);
			continue;
		}
		if (!found) {
			found = true;
			p->probe = at;
			p->id = info.id;
		}
		at = info.base + info.bytes;
		missing = ((at - 1) & GPU_PAGE_MASK) + GPU_PAGE_SIZE;
	}
	return found && missing >= end;
}

static int make_mapping(struct barway_context *ctx, uint64_t addr, size_t size, struct pinned *p)
{
	struct barway_map_options clamp = { .size = sizeof(clamp), .flags = BARWAY_MAP_CLAMP };
	struct barway_pointer_info info = { .size = sizeof(info) };
	int ret = barway_pointer_query(ctx, addr, &info);

	if (ret)
		return ret;
	p->probe = addr;
	p->id = info.id;
	ret = barway_map(ctx, addr, size, NULL, &p->mapping);
	/* neighbours in the same GPU page come and go: a few tries */
	for (int i = 0; i < 4 && ret == -EFAULT && is_rounded(ctx, addr, size, p); i++)
		ret = barway_map(ctx, addr, size, &clamp, &p->mapping);
	return ret;
}

static gdr_mapping_type_t type_of(uint32_t caching)
{
	return caching == BARWAY_WRITE_COMBINED ? GDR_MAPPING_TYPE_WC :
	       caching == BARWAY_CACHED ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_DEVICE;
}

static int pin(const char *operation, struct client *s, uint64_t addr, size_t size, uint32_t flags,
	       gdr_mh_t *handle)
{
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct barway_context *ctx = client_context(s, open_context);
	struct pinned p = { .addr = addr, .size = size };
	uint64_t start = now_ns();
	int ret;

	if (!ctx)
		return refuse(EIO, "%s: %s", operation, barway_errmsg());
	ret = make_mapping(ctx, addr, size, &p);
	if (ret)
		return refuse(errno_of(ret), "%s: %s", operation, barway_errmsg());
	ret = barway_mapping_query(p.mapping, &info);
	if (ret) { /* the context was closed meanwhile */
		barway_unmap(p.mapping);
		return refuse(errno_of(ret), "%s: %s", operation, barway_errmsg());
	}
	client_note(s, info.provider, info.keeps_alive, info.caching == BARWAY_CACHED);
	p.ptr = info.ptr;
	p.type = type_of(info.caching);
	p.took_ns = now_ns() - start;
	if (flags == GDR_PIN_FLAG_FORCE_PCIE && p.type == GDR_MAPPING_TYPE_CACHING) {
		barway_unmap(p.mapping);
		return refuse(ENOTSUP,
			      "%s(0x%llx, %zu bytes): this memory is reached over a coherent "
			      "link, not over PCIe: pin it with flags 0",
			      operation, (unsigned long long)addr, size);
	}
	ret = pin_publish(s, &p, handle);
	if (ret) {
		barway_unmap(p.mapping);
		return refuse(ret, "%s(0x%llx, %zu bytes): %s", operation,
			      (unsigned long long)addr, size, ret == ENOMEM ?
			      "no memory for a handle" : "closed by another thread");
	}
	log_line(LOG_DEBUG, "%s(0x%llx, %zu bytes): 0x%lx: provider %s, route %s, %u piece(s), "
		 "%llu us", operation, (unsigned long long)addr, size, handle->h, info.provider,
		 info.route, info.pieces, (unsigned long long)p.took_ns / 1000);
	return 0;
}

static int pin_checked(const char *operation, gdr_t g, unsigned long addr, size_t size,
		       uint32_t flags, gdr_mh_t *handle)
{
	struct client *s;
	int ret;

	if (!handle || !size)
		return refuse(EINVAL, "%s(0x%lx, %zu bytes): %s", operation, addr, size,
			      handle ? "give the size in bytes" : "handle is NULL");
	if (flags > GDR_PIN_FLAG_FORCE_PCIE)
		return refuse(EINVAL, "%s: flags 0x%x: only 0 and GDR_PIN_FLAG_FORCE_PCIE are "
			      "known", operation, flags);
	s = client_get(g);
	if (!s)
		return not_open(operation, g);
	ret = pin(operation, s, addr, size, flags, handle);
	client_put(s);
	return ret;
}

int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
		   gdr_mh_t *handle)
{
	(void)p2p_token;
	(void)va_space;
	return pin_checked("gdr_pin_buffer", g, addr, size, GDR_PIN_FLAG_DEFAULT, handle);
}

int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle)
{
	return pin_checked("gdr_pin_buffer_v2", g, addr, size, flags, handle);
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
	struct client *s = client_get(g);
	struct pinned p;
	bool ours;

	if (!s)
		return not_open("gdr_unpin_buffer", g);
	ours = pin_retire(s, handle, &p);
	if (ours)
		barway_unmap(p.mapping);
	client_put(s);
	if (!ours)
		return not_pinned("gdr_unpin_buffer", handle);
	log_line(LOG_DEBUG, "gdr_unpin_buffer(0x%lx): done", handle.h);
	return 0;
}

/* ---- what a pin is --------------------------------------------------------------------------- */

static int look(const char *operation, gdr_t g, gdr_mh_t handle, struct pinned *p, bool *mapped)
{
	struct client *s = client_get(g);
	bool ours;

	if (!s)
		return not_open(operation, g);
	ours = pin_look(s, handle, p, mapped);
	client_put(s);
	return ours ? 0 : not_pinned(operation, handle);
}

static bool was_freed(struct barway_context *ctx, const struct pinned *p)
{
	struct barway_pointer_info info = { .size = sizeof(info) };

	return !ctx || barway_pointer_query(ctx, p->probe, &info) || info.id != p->id;
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
	struct client *s;
	struct pinned p;
	bool mapped;
	int ret;

	if (!flag)
		return refuse(EINVAL, "gdr_get_callback_flag: flag is NULL");
	ret = look("gdr_get_callback_flag", g, handle, &p, &mapped);
	if (ret)
		return ret;
	s = client_get(g);
	if (!s)
		return not_open("gdr_get_callback_flag", g);
	*flag = was_freed(client_context(s, open_context), &p);
	client_put(s);
	return 0;
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
	struct pinned p;
	bool mapped;
	int ret;

	if (!info)
		return refuse(EINVAL, "gdr_get_info: info is NULL");
	ret = look("gdr_get_info", g, handle, &p, &mapped);
	if (ret)
		return ret;
	*info = (gdr_info_v2_t){
		.va = p.addr,
		.mapped_size = p.size,
		.page_size = GPU_PAGE_SIZE,
		.tm_cycles = p.took_ns,
		.cycles_per_ms = NS_PER_MS,
		.mapped = mapped,
		.wc_mapping = mapped && p.type == GDR_MAPPING_TYPE_WC,
		.mapping_type = mapped ? p.type : GDR_MAPPING_TYPE_NONE,
	};
	return 0;
}

int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v1_t *info)
{
	gdr_info_v2_t v2;
	int ret;

	if (!info)
		return refuse(EINVAL, "gdr_get_info: info is NULL");
	ret = gdr_get_info_v2(g, handle, &v2);
	if (!ret)
		*info = (gdr_info_v1_t){
			.va = v2.va,
			.mapped_size = v2.mapped_size,
			.page_size = v2.page_size,
			.tm_cycles = v2.tm_cycles,
			.cycles_per_ms = v2.cycles_per_ms,
			.mapped = v2.mapped,
			.wc_mapping = v2.wc_mapping,
		};
	return ret;
}

/* ---- map ------------------------------------------------------------------------------------- */

static int check_map(const char *operation, const struct pinned *p, size_t size, int flags)
{
	if (!size || size > p->size)
		return refuse(EINVAL, "%s: %zu bytes: 1 to %llu are pinned: pin more", operation,
			      size, (unsigned long long)p->size);
	if (flags < GDR_MAP_FLAG_DEFAULT || flags > GDR_MAP_FLAG_REQ_DEVICE_MAPPING)
		return refuse(EINVAL, "%s: flags %d: 0 to 3 are known", operation, flags);
	if (flags && (gdr_mapping_type_t)flags != p->type)
		return refuse(EINVAL, "%s: flags %d: the memory has mapping type %d only: take "
			      "flags 0", operation, flags, (int)p->type);
	return 0;
}

static int map_checked(const char *operation, gdr_t g, gdr_mh_t handle, void **va, size_t size,
		       int flags)
{
	struct client *s;
	struct pinned p;
	bool mapped;
	size_t reach;
	int ret;

	if (!va)
		return refuse(EINVAL, "%s: va is NULL", operation);
	s = client_get(g);
	if (!s)
		return not_open(operation, g);
	if (!pin_look(s, handle, &p, &mapped)) {
		ret = not_pinned(operation, handle);
	} else {
		ret = check_map(operation, &p, size, flags);
		reach = size <= p.size - (p.size & (CPU_PAGE - 1)) ?
				(size + CPU_PAGE - 1) & ~(CPU_PAGE - 1) : p.size;
		if (!ret)
			ret = pin_map(s, handle, reach);
		if (ret == EAGAIN)
			refuse(ret, "%s: 0x%lx is mapped already: unmap it first", operation,
			       handle.h);
	}
	client_put(s);
	if (!ret)
		*va = p.ptr;
	return ret;
}

int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
	return map_checked("gdr_map", g, handle, va, size, GDR_MAP_FLAG_DEFAULT);
}

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags)
{
	return map_checked("gdr_map_v2", g, handle, va, size, flags);
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
	struct client *s = client_get(g);
	int ret;

	(void)size;
	if (!s)
		return not_open("gdr_unmap", g);
	ret = pin_unmap(s, handle, va);
	client_put(s);
	switch (ret) {
	case EINVAL:
		return not_pinned("gdr_unmap", handle);
	case EAGAIN:
		return refuse(EINVAL, "gdr_unmap: 0x%lx is not mapped: unmap what gdr_map() "
			      "mapped, once", handle.h);
	case EFAULT:
		return refuse(EINVAL, "gdr_unmap: %p is not where 0x%lx is mapped: give what "
			      "gdr_map() gave", va, handle.h);
	}
	return 0;
}

/* ---- copies ---------------------------------------------------------------------------------- */

__attribute__((noinline, cold)) static int refuse_copy(const char *operation, gdr_mh_t handle,
							 const void *map_d_ptr, size_t size)
{
	struct pin *pin = pin_find(handle);

	if (!pin)
		return refuse(EINVAL, "%s: 0x%lx is not pinned: it was unpinned before, or is the "
			      "parent process's: pin it again", operation, handle.h);
	if (!atomic_load(&pin->base))
		return refuse(EINVAL, "%s: 0x%lx is not mapped: call gdr_map() first", operation,
			      handle.h);
	return refuse(EINVAL, "%s: %zu bytes at %p: 0x%lx is mapped at %p, %zu bytes: stay "
		      "inside, or map more", operation, size, map_d_ptr, handle.h,
		      (void *)atomic_load(&pin->base), atomic_load(&pin->reach));
}

__attribute__((noinline, cold)) static int failed_copy(const char *operation, int ret)
{
	return refuse(errno_of(ret), "%s: %s", operation, barway_errmsg());
}

/* The mapping that [map_d_ptr, map_d_ptr + size) is in, and where; NULL: refused. */
static inline struct barway_mapping *place_of(gdr_mh_t handle, const void *map_d_ptr, size_t size,
					      size_t *offset)
{
	struct pin *pin = pin_find(handle);
	uintptr_t base = pin ? atomic_load_explicit(&pin->base, memory_order_acquire) : 0;
	struct barway_mapping *m;
	size_t reach;

	if (unlikely(!base))
		return NULL;
	reach = atomic_load_explicit(&pin->reach, memory_order_acquire);
	m = atomic_load_explicit(&pin->mapping, memory_order_acquire);
	*offset = size ? (uintptr_t)map_d_ptr - base : 0;
	if (unlikely(*offset > reach || size > reach - *offset || !pin_lives(pin, handle)))
		return NULL;
	return m;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	size_t offset;
	struct barway_mapping *m = place_of(handle, map_d_ptr, size, &offset);
	int ret;

	if (unlikely(!m))
		return refuse_copy("gdr_copy_to_mapping", handle, map_d_ptr, size);
	if (unlikely(!size))
		return 0;
	ret = barway_copy_to(m, offset, h_ptr, size);
	return likely(!ret) ? 0 : failed_copy("gdr_copy_to_mapping", ret);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	size_t offset;
	struct barway_mapping *m = place_of(handle, map_d_ptr, size, &offset);
	int ret;

	if (unlikely(!m))
		return refuse_copy("gdr_copy_from_mapping", handle, map_d_ptr, size);
	if (unlikely(!size))
		return 0;
	ret = barway_copy_from(m, h_ptr, offset, size);
	return likely(!ret) ? 0 : failed_copy("gdr_copy_from_mapping", ret);
}

/* ---- versions, attributes -------------------------------------------------------------------- */

void gdr_runtime_get_version(int *major, int *minor)
{
	if (major)
		*major = GDR_API_MAJOR_VERSION;
	if (minor)
		*minor = GDR_API_MINOR_VERSION;
}

/* There is no driver of GDRCopy's: callers get the version of the interface. */
int gdr_driver_get_version(gdr_t g, int *major, int *minor)
{
	struct client *s;

	if (!major || !minor)
		return refuse(EINVAL, "gdr_driver_get_version: an output is NULL");
	s = client_get(g);
	if (!s)
		return not_open("gdr_driver_get_version", g);
	client_put(s);
	gdr_runtime_get_version(major, minor);
	return 0;
}

/* Memory is reached over PCIe, but for CPUs that have a coherent link to their GPUs. */
static bool can_force_pcie(const struct in_use *u)
{
#if defined(__x86_64__)
	return !u->coherent;
#else
	(void)u;
	return false;
#endif
}

int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v)
{
	struct client *s;
	struct in_use u;
	int ret = 0;

	if (!v)
		return refuse(EINVAL, "gdr_get_attribute: v is NULL");
	s = client_get(g);
	if (!s)
		return not_open("gdr_get_attribute", g);
	u = client_in_use(s);
	client_put(s);
	switch (attr) {
	case GDR_ATTR_USE_PERSISTENT_MAPPING:
		*v = u.keeps_alive;
		break;
	case GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
		*v = can_force_pcie(&u);
		break;
	case GDR_ATTR_USING_DMA_BUF_MMAP:
		*v = !strcmp(u.provider, "dmabuf");
		break;
	default:
		ret = refuse(EINVAL, "gdr_get_attribute: attribute %d: 1 to 3 are known",
			     (int)attr);
	}
	return ret;
}

int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char **str)
{
	static const char *const names[] = { "None", "Write Combining", "Caching", "Device" };

	if (!str || (unsigned)type >= sizeof(names) / sizeof(names[0]))
		return refuse(EINVAL, "gdr_get_mapping_type_string: %s",
			      str ? "type is not 0 to 3" : "str is NULL");
	*str = names[type];
	return 0;
}
