/* SPDX-License-Identifier: BSD-3-Clause */
/* net/imitation_memory: registered memory of the imitation. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/fault.h"
#include "net/imitation_int.h"

void bw_imitation_free_memory(struct memory *m)
{
	if (m->mapped)
		munmap(m->mapped, m->mapped_bytes);
	free(m);
}

/*
 * The way a card finds the pages of a dma-buf: through the descriptor alone, which it does not
 * keep. The kernel refuses what lies elsewhere in a page of the dma-buf than in one of memory.
 */
static int map_dmabuf(const struct bw_reg_request *request, struct memory *m,
		      struct bw_reason *why)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), head = request->dmabuf_offset % page;
	int ret = bw_imitation_how.dmabuf_error;

	if (!ret && request->dmabuf < 0) {
		bw_reason_set(why, "%s", request->no_dmabuf ? request->no_dmabuf :
							      "none was given");
		return -ENOTSUP;
	}
	if (!ret && head != (uintptr_t)request->ptr % page)
		ret = -EINVAL;
	if (!ret)
		ret = bw_mmap(&m->mapped, NULL, head + request->bytes, PROT_READ | PROT_WRITE,
			      MAP_SHARED, request->dmabuf, (off_t)(request->dmabuf_offset - head +
							   bw_imitation_how.dmabuf_shift));
	if (ret) {
		bw_reason_set(why, "%s", strerror(-ret));
		return ret;
	}
	m->mapped_bytes = head + request->bytes;
	m->ptr = (char *)m->mapped + head;
	return 0;
}

static int find_gpu(const struct bw_reg_request *request, struct memory *m)
{
	if (bw_imitation_how.peermem_error)
		return bw_imitation_how.peermem_error;
	if (!bw_imitation_how.gpu)
		return -ENOTSUP;
	m->ptr = bw_imitation_how.gpu((uint64_t)(uintptr_t)request->ptr, request->bytes);
	return m->ptr ? 0 : -EFAULT;
}

static int reg_gpu(const struct imitation_rail *r, const struct bw_reg_request *request,
		   struct memory *m, const char **rung)
{
	struct bw_reason dmabuf;
	int peermem;

	if (!r->rdma)
		return bw_err(ENOTSUP, "register GPU memory at %p with imitation: CPUs move its "
			      "bytes: register the pointer of a mapping", request->ptr);
	*rung = "dmabuf";
	if (!map_dmabuf(request, m, &dmabuf))
		return 0;
	*rung = "peermem";
	peermem = find_gpu(request, m);
	if (!peermem) {
		if (request->passed)
			bw_reason_set(request->passed, "by dma-buf: %s", dmabuf.text);
		return 0;
	}
	return bw_err(peermem == -ENOMEM ? ENOMEM : ENOTSUP,
		      "register %zu bytes of GPU memory at %p with imitation-rdma: by dma-buf: "
		      "%.200s; by peer memory: %s", request->bytes, request->ptr, dmabuf.text,
		      strerror(-peermem));
}

static int fill_memory(struct imitation_rail *r, const struct bw_reg_request *request,
		       struct memory *m, const char **rung)
{
	*rung = "host";
	m->ptr = request->ptr;
	m->base = (uint64_t)(uintptr_t)request->ptr;
	m->bytes = request->bytes;
	m->addr = r->rdma ? m->base : 0;
	m->remote_write = request->remote_write;
	m->remote_read = request->remote_read;
	if (request->gpu)
		return reg_gpu(r, request, m, rung);
	if (bw_imitation_how.host_error)
		return bw_err(-bw_imitation_how.host_error, "register %zu bytes at %p with an "
			      "imitation: %s", request->bytes, request->ptr,
			      strerror(-bw_imitation_how.host_error));
	return 0;
}

int bw_imitation_reg(struct bw_rail *rail, const struct bw_reg_request *request,
		     struct bw_reg *out)
{
	struct imitation_rail *r = (struct imitation_rail *)rail;
	struct memory *m;
	const char *rung;
	int ret;

	if (!request->bytes)
		return bw_err(EINVAL, "register memory at %p: 0 bytes: give the size",
			      request->ptr);
	m = bw_alloc(sizeof(*m));
	if (!m)
		return bw_err(ENOMEM, "register memory at %p: no memory", request->ptr);
	ret = fill_memory(r, request, m, &rung);
	if (ret) {
		bw_imitation_free_memory(m);
		return ret;
	}
	pthread_mutex_lock(&bw_imitation_lock);
	m->key = bw_imitation_random(UINT64_MAX);
	m->next = r->memories;
	r->memories = m;
	pthread_mutex_unlock(&bw_imitation_lock);
	memset(out, 0, sizeof(*out));
	out->handle = m;
	out->desc = m;
	out->key = m->key;
	out->addr = m->addr;
	snprintf(out->rung, sizeof(out->rung), "%s", rung);
	return 0;
}

void bw_imitation_unreg(struct bw_rail *rail, struct bw_reg *reg)
{
	struct memory **at = &((struct imitation_rail *)rail)->memories;

	if (!reg->handle)
		return;
	pthread_mutex_lock(&bw_imitation_lock);
	while (*at != reg->handle)
		at = &(*at)->next;
	*at = (*at)->next;
	pthread_mutex_unlock(&bw_imitation_lock);
	bw_imitation_free_memory(reg->handle);
	reg->handle = NULL;
}

/* As a card, rdma knows registered memory only. */
int bw_imitation_locate(const struct imitation_rail *r, const void *p, size_t bytes,
			const void *desc, char **out)
{
	const struct memory *m = desc;
	uint64_t at = (uint64_t)(uintptr_t)p;

	*out = (char *)(uintptr_t)p;
	if (!m && !r->rdma)
		return 0;
	if (!m || at < m->base || at - m->base > m->bytes || bytes > m->bytes - (at - m->base))
		return bw_err(EINVAL, "post with an imitation: %zu bytes at %p are not in the "
			      "memory of the descriptor", bytes, p);
	*out = m->ptr + (at - m->base);
	return 0;
}
