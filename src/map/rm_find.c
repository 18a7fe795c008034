/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map/rm_find: which RM object, and where in it, is behind a device address.
 *
 * libcuda knows, and tells the kernel when it is asked for a dma-buf of a range
 * (cuMemGetHandleForAddressRange): the ioctl NV_ESC_EXPORT_TO_DMABUF_FD carries the client, the
 * objects, offsets and sizes. So it is asked, and that ioctl is looked at on its way. Nobody wants
 * the dma-buf, and making it takes about half of a first mapping (82 us with it, 44 without:
 * hw_test mapping, H200, driver 580.159.04, 2026-11-30), so the kernel is not asked: libcuda is
 * told that there is no memory for it. That is done only after this process has seen once that both
 * ways name the same memory and that a real export still works afterwards. Routes:
 *
 *   tap   the process has an `ioctl` in front of libc that lets us look (libbarway-tap.so,
 *         preloaded)
 *   hook  the one slot through which libcuda calls `ioctl` points to us for the time of the call
 *   vmm   memory with a POSIX handle: exported and imported, both documented
 *   ipc   the words of a cudaIpc handle; off by default, since that call opens the memory to every
 *         process that can open the GPU's device node
 *
 * The hook lives in a library that is never unloaded (linked with -z nodelete, and pinned again
 * here), so a thread that is inside it when the slot is put back returns to code that is still
 * there. Other threads' calls pass through. `ioctl` is not exported by this library.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/param.h"
#include "map/rm.h"

/* What a look at one export saw; several ioctls where there are more than 128 objects. */
struct capture {
	unsigned calls;
	bool odd;      /* a size or number that we do not know: nothing of it is used */
	bool withhold; /* answer in the kernel's place */
	int fd;
	struct rm_found *found;
	uint64_t total;
};

typedef int ioctl_fn(int fd, unsigned long request, void *arg);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one export is looked at at a time */
static __thread struct capture *capturing;
static _Atomic(ioctl_fn *) next_ioctl;

__attribute__((constructor(BW_FORK_RM_FIND))) static void register_fork(void)
{
	bw_fork_lock(&lock);
}

/* ---- looking -------------------------------------------------------------------------------- */

static void look_at_objects(struct capture *c, uint32_t client, uint32_t n, uint32_t index,
			    uint64_t total, const uint32_t *handles, const uint64_t *offsets,
			    const uint64_t *sizes)
{
	struct rm_found *f = c->found;

	if (!index)
		f->n = 0; /* the first part, also of a second try */
	if (!n || index != f->n || n > RM_EXPORT_OBJECTS - f->n || (f->n && client != f->client)) {
		c->odd = true;
		return;
	}
	f->client = client;
	c->total = total;
	for (uint32_t i = 0; i < n; i++)
		f->part[f->n++] = (struct rm_part){ handles[i], offsets[i], sizes[i] };
}

/* Sees a call on its way. True: it has been answered, the kernel is not to be asked. */
static bool look(struct capture *c, int fd, unsigned long request, void *arg)
{
	struct rm_export_565 *e = arg; /* both forms begin alike */
	struct rm_export_570 *e570 = _IOC_SIZE(request) == sizeof(*e570) ? arg : NULL;

	if (_IOC_TYPE(request) != 'F' || _IOC_NR(request) != RM_EXPORT_TO_DMABUF)
		return false;
	if (c->calls++ && fd != c->fd)
		c->odd = true;
	c->fd = fd;
	if (!e570 && _IOC_SIZE(request) != sizeof(*e)) {
		c->odd = true;
		return false;
	}
	look_at_objects(c, e->client, e->n, e->index, e->total_bytes,
			e570 ? e570->handles : e->handles, e570 ? e570->offsets : e->offsets,
			e570 ? e570->sizes : e->sizes);
	if (!c->withhold || e->n != e->total_objects)
		return false;
	*(e570 ? &e570->status : &e->status) = RM_NO_MEMORY;
	return true;
}

static int hook_ioctl(int fd, unsigned long request, void *arg)
{
	if (capturing && look(capturing, fd, request, arg))
		return 0;
	return atomic_load_explicit(&next_ioctl, memory_order_acquire)(fd, request, arg);
}

/* ---- the slot ------------------------------------------------------------------------------- */

struct slot_search {
	uintptr_t inside; /* an address in the library */
	_Atomic(ioctl_fn *) *slot;
	uintptr_t low, high; /* where the library lies */
	bool found_library, read_only;
};

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#define RELOCATION_TYPE(info) ELF64_R_TYPE(info)
#elif defined(__aarch64__)
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#define RELOCATION_TYPE(info) ELF64_R_TYPE(info)
#else
#define JUMP_SLOT R_PPC64_JMP_SLOT
#define RELOCATION_TYPE(info) ELF64_R_TYPE(info)
#endif

static bool library_holds(const struct dl_phdr_info *lib, struct slot_search *s)
{
	s->low = UINTPTR_MAX;
	s->high = 0;
	for (int i = 0; i < lib->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &lib->dlpi_phdr[i];
		uintptr_t from = lib->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		s->low = from < s->low ? from : s->low;
		s->high = from + p->p_memsz > s->high ? from + p->p_memsz : s->high;
	}
	return s->inside >= s->low && s->inside < s->high;
}

/* glibc relocates these pointers when it loads the library, others leave them relative */
static uintptr_t dynamic_pointer(const struct dl_phdr_info *lib, ElfW(Addr) value)
{
	return value < lib->dlpi_addr ? lib->dlpi_addr + value : value;
}

static int search_library(struct dl_phdr_info *lib, size_t size, void *arg)
{
	struct slot_search *s = arg;
	const ElfW(Dyn) *dyn = NULL;
	const ElfW(Phdr) *relro = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	const ElfW(Rela) *rela = NULL;
	size_t bytes = 0;

	(void)size;
	if (!library_holds(lib, s))
		return 0;
	s->found_library = true;
	for (int i = 0; i < lib->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &lib->dlpi_phdr[i];

		if (p->p_type == PT_DYNAMIC)
			dyn = (const ElfW(Dyn) *)(lib->dlpi_addr + p->p_vaddr);
		if (p->p_type == PT_GNU_RELRO)
			relro = p;
	}
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_SYMTAB)
			symbols = (const ElfW(Sym) *)dynamic_pointer(lib, dyn->d_un.d_ptr);
		else if (dyn->d_tag == DT_STRTAB)
			strings = (const char *)dynamic_pointer(lib, dyn->d_un.d_ptr);
		else if (dyn->d_tag == DT_JMPREL)
			rela = (const ElfW(Rela) *)dynamic_pointer(lib, dyn->d_un.d_ptr);
		else if (dyn->d_tag == DT_PLTRELSZ)
			bytes = dyn->d_un.d_val;
	}
	if (!symbols || !strings || !rela)
		return 1;
	for (size_t i = 0; i < bytes / sizeof(*rela); i++) {
		const ElfW(Sym) *sym = &symbols[ELF64_R_SYM(rela[i].r_info)];
		uintptr_t at = lib->dlpi_addr + rela[i].r_offset;

		if (RELOCATION_TYPE(rela[i].r_info) != JUMP_SLOT ||
		    strcmp(strings + sym->st_name, "ioctl") != 0)
			continue;
		if (relro && at - (lib->dlpi_addr + relro->p_vaddr) < relro->p_memsz)
			s->read_only = true;
		else
			s->slot = (_Atomic(ioctl_fn *) *)at;
		return 1;
	}
	return 1;
}

/* Searched once: libcuda is never unloaded. With the lock held. */
static int find_slot(const struct bw_cuda *cuda, const struct slot_search **found)
{
	static struct slot_search s;

	if (!s.found_library) {
		memcpy(&s.inside, &cuda->range_handle, sizeof(s.inside));
		dl_iterate_phdr(search_library, &s);
	}
	*found = &s;
	if (s.slot)
		return 0;
	return bw_err(ENOTSUP, "find the slot through which libcuda calls ioctl: %s: preload "
		      "libbarway-tap.so instead",
		      !s.found_library ? "libcuda is not among the loaded libraries" :
		      s.read_only ? "it is read-only (linked with -z now and relro)" :
				    "libcuda has none");
}

/* Where libcuda's call has to go on to: what the slot held, or what it would have been bound to. */
static ioctl_fn *onward(ioctl_fn *held, const struct slot_search *s)
{
	uintptr_t target;
	void *global;
	ioctl_fn *f;

	memcpy(&target, &held, sizeof(target));
	if (target < s->low || target >= s->high)
		return held;
	/* not bound yet: it holds libcuda's own stub, which would bind over us */
	global = dlsym(RTLD_DEFAULT, "ioctl");
	if (!global)
		return held;
	memcpy(&f, &global, sizeof(f));
	return f;
}

/* Never unloaded once hooked, also where we are part of somebody's plugin. */
static void pin_this_library(void)
{
	static bool pinned;
	Dl_info info;
	void *self;
	ioctl_fn *f = hook_ioctl;

	if (pinned)
		return;
	memcpy(&self, &f, sizeof(self));
	if (dladdr(self, &info) && info.dli_fname)
		dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	pinned = true;
}

static int export_range(const struct bw_cuda *cuda, uint64_t addr, uint64_t bytes, int *error)
{
	int fd = -1;

	*error = cuda->range_handle(&fd, addr, bytes, BW_CU_RANGE_DMA_BUF_FD, 0);
	if (!*error && fd >= 0)
		close(fd); /* only the question was wanted */
	return *error;
}

static int export_hooked(const struct bw_cuda *cuda, struct capture *c, uint64_t addr,
			 uint64_t bytes, int *error)
{
	const struct slot_search *s;
	ioctl_fn *held, *mine;
	int ret = find_slot(cuda, &s);

	if (ret)
		return ret;
	pin_this_library();
	/* a thread that binds the slot lazily meanwhile takes it from us: then look again */
	for (int attempt = 0; attempt < 8; attempt++) {
		mine = hook_ioctl;
		held = atomic_load_explicit(s->slot, memory_order_acquire);
		/* another copy of this library may have left us in the slot: then we know the
		 * way */
		if (held != mine)
			atomic_store_explicit(&next_ioctl, onward(held, s), memory_order_release);
		if (!atomic_compare_exchange_strong(s->slot, &held, mine))
			continue;
		capturing = c;
		export_range(cuda, addr, bytes, error);
		capturing = NULL;
		if (atomic_compare_exchange_strong(s->slot, &mine, held) || c->calls)
			return 0;
	}
	return bw_err(EAGAIN, "look at libcuda's ioctl: other threads took the slot each time");
}

/* libbarway-tap.so: void barway_ioctl_tap(function, argument), for the calling thread. The function
 * returns 1 where it has answered the call. */
typedef int tap_seen(void *arg, int fd, unsigned long request, void *params);
typedef void tap_fn(tap_seen *seen, void *arg);

static int tap_look(void *arg, int fd, unsigned long request, void *params)
{
	return look(arg, fd, request, params);
}

static int export_tapped(const struct bw_cuda *cuda, struct capture *c, uint64_t addr,
			 uint64_t bytes, int *error)
{
	void *symbol = dlsym(RTLD_DEFAULT, "barway_ioctl_tap");
	tap_fn *tap;

	if (!symbol)
		return -ENOTSUP;
	memcpy(&tap, &symbol, sizeof(tap));
	tap(tap_look, c);
	export_range(cuda, addr, bytes, error);
	tap(NULL, NULL);
	return 0;
}

/* ---- what was seen -------------------------------------------------------------------------- */

static int check_capture(struct rm_gpu *gpu, const struct capture *c, uint64_t bytes)
{
	const struct rm_found *f = c->found;
	uint64_t sum = 0;
	struct stat st;

	if (!c->calls)
		return bw_err(ENOTSUP, "libcuda answered without asking the kernel");
	if (c->odd)
		return bw_err(EIO, "libcuda's request has a form that is not known");
	if (fstat(c->fd, &st) || !S_ISCHR(st.st_mode) || minor(st.st_rdev) != gpu->minor)
		return bw_err(EIO, "libcuda asked through another file than GPU %d's /dev/nvidia%u",
			      gpu->dev->index, gpu->minor);
	for (unsigned i = 0; i < f->n; i++) {
		if (f->part[i].offset % BW_PAGE || f->part[i].bytes % BW_PAGE ||
		    !f->part[i].bytes || f->part[i].bytes > bytes - sum)
			return bw_err(EIO, "libcuda named a part of 0x%llx bytes at 0x%llx, which "
				      "does not fit the range",
				      (unsigned long long)f->part[i].bytes,
				      (unsigned long long)f->part[i].offset);
		sum += f->part[i].bytes;
	}
	if (sum != bytes || c->total != bytes)
		return bw_err(EIO, "libcuda named 0x%llx bytes where 0x%llx were asked for",
			      (unsigned long long)sum, (unsigned long long)bytes);
	/* the first client seen was proved with data by the self-test, which comes first */
	if (!rm_same_cuda_client(gpu, f->client))
		return bw_err(EIO, "libcuda named client 0x%x, in the self-test it was another",
			      f->client);
	return 0;
}

/* Keeps [skip, skip + bytes) of what was found. */
static void trim(struct rm_found *f, uint64_t skip, uint64_t bytes)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->n && bytes; i++) {
		struct rm_part p = f->part[i];
		uint64_t cut = skip < p.bytes ? skip : p.bytes;

		skip -= cut;
		p.offset += cut;
		p.bytes -= cut;
		if (!p.bytes)
			continue;
		if (p.bytes > bytes)
			p.bytes = bytes;
		bytes -= p.bytes;
		f->part[n++] = p;
	}
	f->n = n;
}

typedef int export_fn(const struct bw_cuda *cuda, struct capture *c, uint64_t addr, uint64_t bytes,
		      int *error);

static int ask(struct rm_gpu *gpu, export_fn *export, bool withhold, uint64_t addr, uint64_t bytes,
	       struct rm_found *found)
{
	struct capture c = { .fd = -1, .found = found, .withhold = withhold };
	int error = 0, ret;

	found->n = 0;
	ret = export(bw_cuda(NULL), &c, addr, bytes, &error);
	if (ret)
		return ret;
	if (error && !(withhold && c.calls))
		return bw_err(ENOTSUP,
			      "cuMemGetHandleForAddressRange(0x%llx, 0x%llx): CUDA error %d",
			      (unsigned long long)addr, (unsigned long long)bytes, error);
	return check_capture(gpu, &c, bytes);
}

static bool same(const struct rm_found *a, const struct rm_found *b)
{
	return a->client == b->client && a->n == b->n &&
	       !memcmp(a->part, b->part, a->n * sizeof(a->part[0]));
}

/* May libcuda be answered in the kernel's place? Found out once per process, with @found at
 * hand. */
static bool try_withholding(struct rm_gpu *gpu, export_fn *export, uint64_t addr, uint64_t bytes,
			    const struct rm_found *found)
{
	struct rm_found *other = bw_alloc(sizeof(*other));
	bool fine = other && !ask(gpu, export, true, addr, bytes, other) && same(found, other) &&
		    !ask(gpu, export, false, addr, bytes, other) && same(found, other);

	free(other);
	bw_log(BW_LOG_DEBUG, "dma-buf exports are %s",
	       fine ? "looked at and withheld from the kernel" :
		      "looked at on their way to the kernel");
	return fine;
}

static int find_from(struct rm_gpu *gpu, export_fn *export, uint64_t from, uint64_t addr,
		     uint64_t bytes, struct rm_found *found)
{
	static enum { UNKNOWN, WITHHOLD, ASK } manner; /* under the lock */
	uint64_t want = addr + bytes - from;
	int ret = ask(gpu, export, manner == WITHHOLD, from, want, found);

	if (ret)
		return ret;
	if (manner == UNKNOWN)
		manner = try_withholding(gpu, export, from, want, found) ? WITHHOLD : ASK;
	trim(found, addr - from, bytes);
	return 0;
}

static int find_by_export(struct rm_gpu *gpu, export_fn *export, const struct bw_segment *seg,
			  uint64_t addr, uint64_t bytes, struct rm_found *found)
{
	const struct bw_cuda *cuda = bw_cuda(NULL);
	struct bw_cuda_scope scope;
	bool base, pool;
	int ret;

	if (!cuda || !cuda->range_handle)
		return bw_err(ENOTSUP, "libcuda has no cuMemGetHandleForAddressRange");
	ret = bw_cuda_enter(gpu->dev, seg->owner, &scope);
	if (ret)
		return ret;
	pthread_mutex_lock(&lock);
	/*
	 * Of pool memory, 580.159.04 asks the kernel for a wrong size unless the range begins where
	 * the pool's own mapping does; of other memory the page itself will do.
	 */
	base = seg->map_base && seg->map_base < addr && seg->map_base % BW_PAGE == 0;
	pool = seg->kind == BW_MEM_POOL && base;
	ret = find_from(gpu, export, pool ? seg->map_base : addr, addr, bytes, found);
	if (ret == -ENOTSUP && base)
		ret = find_from(gpu, export, pool ? addr : seg->map_base, addr, bytes, found);
	pthread_mutex_unlock(&lock);
	bw_cuda_leave(&scope);
	return ret;
}

/* ---- the other routes ----------------------------------------------------------------------- */

static int find_by_import(struct rm_gpu *gpu, const struct bw_segment *seg, uint64_t addr,
			  uint64_t bytes, struct rm_found *found)
{
	const struct bw_cuda *cuda = bw_cuda(NULL);
	uint64_t handle;
	uint32_t object;
	int fd = -1, error, ret;

	if (seg->kind != BW_MEM_VMM || !seg->posix_handle || !cuda || !cuda->vmm_export)
		return bw_err(ENOTSUP, "not memory with a POSIX handle");
	error = cuda->vmm_retain(&handle, (void *)(uintptr_t)addr);
	if (error)
		return bw_cuda_err(error, "cuMemRetainAllocationHandle");
	error = cuda->vmm_export(&fd, handle, BW_CU_HANDLE_POSIX_FD, 0);
	cuda->vmm_release(handle);
	if (error)
		return bw_cuda_err(error, "cuMemExportToShareableHandle");
	ret = rm_import(gpu, fd, &object);
	close(fd);
	if (ret)
		return ret;
	/* cuMemMap maps a handle from its start (its offset parameter must be 0) */
	found->client = 0;
	found->n = 1;
	found->part[0] = (struct rm_part){ object, addr - seg->map_base, bytes };
	return 0;
}

/*
 * The words of a cudaIpc handle, as seen on 580.159.04: 2 the process, 4-5 the size of the
 * allocation, 6 the size of its block in pages of 4 KiB, 7 its offset in the block, 8 the gpu_id,
 * 12 client, 13 object. Not documented: whatever does not fit is refused.
 */
static int find_by_ipc(struct rm_gpu *gpu, const struct bw_segment *seg, uint64_t addr,
		       uint64_t bytes, struct rm_found *found)
{
	const struct bw_cuda *cuda = bw_cuda(NULL);
	struct bw_cuda_scope scope;
	struct bw_cu_ipc ipc = { { 0 } };
	uint64_t size, block, start;
	int error, ret;

	if (seg->kind != BW_MEM_DEVICE || !cuda || !cuda->ipc_get)
		return bw_err(ENOTSUP, "not cudaMalloc memory");
	ret = bw_cuda_enter(gpu->dev, seg->owner, &scope);
	if (ret)
		return ret;
	error = cuda->ipc_get(&ipc, seg->base);
	bw_cuda_leave(&scope);
	if (error)
		return bw_cuda_err(error, "cuIpcGetMemHandle");
	size = ipc.word[4] | (uint64_t)ipc.word[5] << 32;
	block = (uint64_t)ipc.word[6] * 4096;
	start = seg->base - ipc.word[7]; /* device address of the block */
	if (ipc.word[2] != (uint32_t)getpid() || size != seg->bytes || ipc.word[8] != gpu->gpu_id ||
	    start % (2u << 20) || ipc.word[7] + size > block || addr < start ||
	    addr + bytes > start + block)
		return bw_err(EIO, "the cudaIpc handle's words do not fit the allocation: another "
			      "driver version than the ones known");
	if (!rm_same_cuda_client(gpu, ipc.word[12]))
		return bw_err(EIO, "the cudaIpc handle names client 0x%x, in the self-test it was "
			      "another", ipc.word[12]);
	found->client = ipc.word[12];
	found->n = 1;
	found->part[0] = (struct rm_part){ ipc.word[13], addr - start, bytes };
	return 0;
}

static int find_by_hook(struct rm_gpu *gpu, const struct bw_segment *seg, uint64_t addr,
			uint64_t bytes, struct rm_found *found)
{
	return find_by_export(gpu, export_hooked, seg, addr, bytes, found);
}

static int find_by_tap(struct rm_gpu *gpu, const struct bw_segment *seg, uint64_t addr,
		       uint64_t bytes, struct rm_found *found)
{
	if (!dlsym(RTLD_DEFAULT, "barway_ioctl_tap"))
		return bw_err(ENOTSUP, "libbarway-tap.so is not preloaded");
	return find_by_export(gpu, export_tapped, seg, addr, bytes, found);
}

static const struct {
	const char *name, *label;
	int (*find)(struct rm_gpu *gpu, const struct bw_segment *seg, uint64_t addr, uint64_t bytes,
		    struct rm_found *found);
} routes[] = {
	{ "tap", "dma-buf tap", find_by_tap },
	{ "hook", "dma-buf hook", find_by_hook },
	{ "vmm", "vmm import", find_by_import },
	{ "ipc", "ipc handle", find_by_ipc },
};
enum { ROUTES = sizeof(routes) / sizeof(routes[0]) };

int rm_check_routes(void)
{
	const char *at = bw_param_text(BW_P_RM_ROUTES), *word;
	size_t n, i;

	while (bw_list_next(&at, &word, &n)) {
		for (i = 0; i < ROUTES && !bw_word_is(word, n, routes[i].name); i++)
			;
		if (i == ROUTES)
			return bw_param_refuse(BW_P_RM_ROUTES, word, n, "tap, hook, vmm, ipc");
	}
	return 0;
}

int rm_find(struct rm_gpu *gpu, const struct bw_segment *seg, uint64_t addr, size_t bytes,
	    struct rm_found *found)
{
	const char *allowed = bw_param_text(BW_P_RM_ROUTES);
	char tried[768] = "";
	size_t used = 0;

	for (size_t i = 0; i < ROUTES; i++) {
		int ret, n;

		if (!bw_list_has(allowed, routes[i].name))
			continue;
		ret = routes[i].find(gpu, seg, addr, bytes, found);
		if (!ret) {
			found->route = routes[i].label;
			return 0;
		}
		if (ret != -ENOTSUP)
			return bw_err_prefix(ret, "find %s at 0x%llx (route %s)",
					     bw_mem_kind_name(seg->kind), (unsigned long long)addr,
					     routes[i].name);
		n = snprintf(tried + used, sizeof(tried) - used, "%s%s: %s", used ? "; " : "",
			     routes[i].name, bw_err_text());
		used += n > 0 && (size_t)n < sizeof(tried) - used ? (size_t)n : 0;
	}
	return bw_err(ENOTSUP, "find %s at 0x%llx: no route does it: %s",
		      bw_mem_kind_name(seg->kind), (unsigned long long)addr,
		      tried[0] ? tried : "none is allowed");
}
