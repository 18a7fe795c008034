/* SPDX-License-Identifier: BSD-3-Clause */
/* device/cuda: pinned host memory, the library's and the caller's. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/fork.h"
#include "device/cuda.h"

#define CALL(scope, f) BW_CUDA_CALL((scope)->cu, f)

/* What host_alloc() gave out or host_register() pinned. */
struct pinned {
	struct pinned *next;
	void *host;    /* as the caller knows it */
	void *base;    /* as CUDA knows it */
	uint64_t id;   /* of the memory: it may go with its context, and others come in its place */
	struct bw_device *dev;
	bool allocated;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct pinned *all;

static void forget_in_child(void)
{
	all = NULL;
}

__attribute__((constructor(BW_FORK_DEVICE))) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget_in_child);
}

static void keep(struct pinned *p)
{
	pthread_mutex_lock(&lock);
	p->next = all;
	all = p;
	pthread_mutex_unlock(&lock);
}

static struct pinned *take(const void *host, bool allocated)
{
	struct pinned *p = NULL;

	pthread_mutex_lock(&lock);
	for (struct pinned **at = &all; *at; at = &(*at)->next)
		if ((*at)->host == host && (*at)->allocated == allocated) {
			p = *at;
			*at = p->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	return p;
}

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- near the device ------------------------------------------------------------------------- */

#define NODES 1024u /* as many as the kernel can be built for */
#define WORD (8 * sizeof(unsigned long))
#define PREFERRED 1 /* MPOL_PREFERRED, linux/mempolicy.h */

struct policy {
	bool changed;
	int mode;
	unsigned long nodes[NODES / WORD];
};

/*
 * The driver takes pages as the calling thread's policy says, so that is what is changed meanwhile.
 * A container may forbid it; memory then comes from where the thread runs.
 */
static void prefer_node_of(const struct bw_device *dev, struct policy *old)
{
	unsigned long nodes[NODES / WORD] = { 0 };
	int node = dev->has_pci ? bw_topo_numa_node(&dev->pci) : -1;

	old->changed = false;
	if (node < 0 || (unsigned)node >= NODES)
		return;
	nodes[(unsigned)node / WORD] = 1ul << ((unsigned)node % WORD);
	old->changed = !syscall(SYS_get_mempolicy, &old->mode, old->nodes, (unsigned long)NODES,
				NULL, 0ul) &&
		       !syscall(SYS_set_mempolicy, PREFERRED, nodes, (unsigned long)NODES + 1);
}

static void restore_policy(const struct policy *old)
{
	if (old->changed)
		syscall(SYS_set_mempolicy, old->mode, old->nodes, (unsigned long)NODES + 1);
}

/* ---- allocate -------------------------------------------------------------------------------- */

static int host_err(int error, const char *operation)
{
	if (error == BW_CUDA_OUT_OF_MEMORY)
		return bw_err(ENOMEM, "%s: %s: there is not so much host memory that can be "
			      "pinned: free some, or see the limits of the container and "
			      "\"ulimit -l\"", operation, bw_cuda_error_name(error));
	return bw_cuda_err(error, operation);
}

/*
 * Small pieces of pinned memory may share a page with others', so that the first byte is not at the
 * start of one: then a page more is taken.
 */
static int alloc_pages(struct bw_cuda_scope *scope, size_t bytes, struct pinned *p)
{
	const unsigned flags = BW_CU_HOST_PORTABLE | BW_CU_HOST_DEVICEMAP;
	const size_t page = page_bytes();
	int error = CALL(scope, host_alloc(&p->base, bytes, flags));

	if (error)
		return error;
	if ((uintptr_t)p->base % page) {
		scope->cu->host_free(p->base);
		error = CALL(scope, host_alloc(&p->base, bytes + page, flags));
		if (error)
			return error;
	}
	p->host = (char *)p->base + (page - (uintptr_t)p->base % page) % page;
	return 0;
}

static int alloc_near(struct bw_device *dev, size_t bytes, struct pinned *p, uint64_t *addr)
{
	struct bw_cuda_scope scope;
	struct policy policy;
	int error, ret = bw_cuda_enter(dev, NULL, &scope);

	if (ret)
		return ret;
	if (!scope.cu->host_alloc || !scope.cu->host_free || !scope.cu->host_address) {
		bw_cuda_leave(&scope);
		return bw_cuda_err(BW_CUDA_NOT_SUPPORTED, "cuMemHostAlloc");
	}
	prefer_node_of(dev, &policy);
	error = alloc_pages(&scope, bytes, p);
	restore_policy(&policy);
	if (!error) {
		error = CALL(&scope, host_address(addr, p->host, 0));
		if (error)
			scope.cu->host_free(p->base);
	}
	p->id = error ? 0 : bw_cuda_identity((uintptr_t)p->base);
	bw_cuda_leave(&scope);
	return error ? host_err(error, "cuMemHostAlloc") : 0;
}

int bw_cuda_host_alloc(struct bw_device *dev, size_t bytes, void **host, uint64_t *addr)
{
	const size_t page = page_bytes();
	struct pinned *p;
	uint64_t at;
	int ret;

	if (!bytes)
		return bw_err(EINVAL, "allocate 0 bytes of pinned memory: give the size in bytes");
	if (bytes > SIZE_MAX / 2)
		return bw_err(ENOMEM, "allocate %zu bytes of pinned memory: more than there can be",
			      bytes);
	p = bw_alloc(sizeof(*p));
	if (!p)
		return bw_err(ENOMEM, "allocate %zu bytes of pinned memory: no memory", bytes);
	p->dev = dev;
	p->allocated = true;
	ret = alloc_near(dev, (bytes + page - 1) / page * page, p, &at);
	if (ret) {
		free(p);
		return bw_err_prefix(ret, "allocate %zu bytes of pinned memory for GPU %d", bytes,
				     dev->index);
	}
	*host = p->host;
	*addr = at;
	keep(p);
	return 0;
}

/* ---- register -------------------------------------------------------------------------------- */

static int register_err(int error, const void *base, size_t bytes)
{
	/* what is pinned by other means than cuMemHostRegister() gives another error */
	bool known = error == BW_CUDA_ALREADY_REGISTERED ||
		     bw_cuda_identity((uintptr_t)base) ||
		     bw_cuda_identity((uintptr_t)base + bytes - 1);

	switch (error) {
	case BW_CUDA_ALREADY_REGISTERED:
	case BW_CUDA_INVALID_VALUE:
	case BW_CUDA_OPERATING_SYSTEM:
	case BW_CUDA_NOT_PERMITTED:
	case BW_CUDA_NOT_SUPPORTED:
		if (known)
			return bw_err(EEXIST, "%s: part of these pages is pinned already: register "
				      "memory once, as one range", bw_cuda_error_name(error));
		return bw_err(ENOTSUP, "%s: memory that cannot be pinned: it has to be mapped, "
			      "writable, and neither a device's nor read-only pages of a file: "
			      "register a buffer from malloc() or mmap()",
			      bw_cuda_error_name(error));
	}
	return host_err(error, "cuMemHostRegister");
}

static int register_pages(struct bw_device *dev, struct pinned *p, size_t bytes, uint64_t *addr)
{
	struct bw_cuda_scope scope;
	int error, ret = bw_cuda_enter(dev, NULL, &scope);

	if (ret)
		return ret;
	if (!scope.cu->host_register || !scope.cu->host_unregister || !scope.cu->host_address) {
		bw_cuda_leave(&scope);
		return bw_cuda_err(BW_CUDA_NOT_SUPPORTED, "cuMemHostRegister");
	}
	error = CALL(&scope, host_register(p->base, bytes,
					   BW_CU_HOST_PORTABLE | BW_CU_HOST_DEVICEMAP));
	if (error) {
		ret = register_err(error, p->base, bytes);
	} else {
		error = CALL(&scope, host_address(addr, p->base, 0));
		if (error) {
			scope.cu->host_unregister(p->base);
			ret = bw_cuda_err(error, "cuMemHostGetDevicePointer");
		}
		p->id = bw_cuda_identity((uintptr_t)p->base);
	}
	bw_cuda_leave(&scope);
	return ret;
}

int bw_cuda_host_register(struct bw_device *dev, void *host, size_t bytes, uint64_t *addr)
{
	const size_t page = page_bytes();
	uintptr_t first = (uintptr_t)host & ~(uintptr_t)(page - 1);
	size_t before = (uintptr_t)host - first;
	struct pinned *p;
	uint64_t at = 0;
	int ret;

	if (!bytes || bytes > SIZE_MAX - page || (uintptr_t)host > SIZE_MAX - page - bytes)
		return bw_err(EINVAL, "register host memory %p: %s", host,
			      bytes ? "the range wraps" : "0 bytes: give the size in bytes");
	p = bw_alloc(sizeof(*p));
	if (!p)
		return bw_err(ENOMEM, "register host memory %p: no memory", host);
	p->host = host;
	p->base = (char *)host - before;
	p->dev = dev;
	ret = register_pages(dev, p, (before + bytes + page - 1) / page * page, &at);
	if (ret) {
		free(p);
		return bw_err_prefix(ret, "register %zu bytes of host memory at %p for GPU %d",
				     bytes, host, dev->index);
	}
	*addr = at + before;
	keep(p);
	return 0;
}

/* ---- give back ------------------------------------------------------------------------------- */

static int give_back(struct pinned *p)
{
	const struct bw_cuda *cu = bw_cuda(NULL);
	struct bw_cuda_scope scope;
	struct bw_segment seg;
	int error, ret;

	/* it may have gone with its context, and something else be there now */
	if (!cu || (p->id && bw_cuda_identity((uintptr_t)p->base) != p->id)) {
		free(p);
		return 0;
	}
	ret = bw_cuda_enter(p->dev, bw_cuda_resolve((uintptr_t)p->base, &seg) ? NULL : seg.owner,
			    &scope);
	if (!ret) {
		error = p->allocated ? CALL(&scope, host_free(p->base)) :
				       CALL(&scope, host_unregister(p->base));
		bw_cuda_leave(&scope);
		if (error && !bw_cuda_gone(error))
			ret = bw_cuda_err(error, p->allocated ? "free pinned memory" :
							      "unregister host memory");
	}
	if (ret)
		keep(p);
	else
		free(p);
	return ret;
}

int bw_cuda_host_free(void *host)
{
	struct pinned *p = take(host, true);

	return p ? give_back(p) : -ENOENT;
}

int bw_cuda_host_unregister(void *host)
{
	struct pinned *p = take(host, false);

	return p ? give_back(p) : -ENOENT;
}
