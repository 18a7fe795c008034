/* SPDX-License-Identifier: BSD-3-Clause */
/* net/fabric_reg: memory that the network may reach, and the ladder for that of GPUs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "net/fabric.h"

#define PEERMEM "/sys/module/nvidia_peermem"
#define DMABUF_SINCE FI_VERSION(1, 20)
#define MR_DMABUF (1ull << 40)

/* As they are since 1.20; older headers have a shorter fi_mr_attr, and newer libraries read all. */
struct mr_dmabuf {
	int fd;
	uint64_t offset;
	size_t bytes;
	void *base;
};

struct mr_attr {
	const void *memory; /* struct iovec or mr_dmabuf */
	size_t count;
	uint64_t access, offset, key;
	void *ctx;
	size_t auth_key_size;
	uint8_t *auth_key;
	int iface; /* 0: system memory, which asks nothing of libfabric's own support of GPUs */
	uint64_t device;
	void *hmem_data;
	size_t page_size;
	const void *base_mr;
	size_t sub_mr_count;
	uint64_t room[8];
};

_Static_assert(offsetof(struct mr_attr, access) == offsetof(struct fi_mr_attr, access) &&
	       offsetof(struct mr_attr, iface) == offsetof(struct fi_mr_attr, iface) &&
	       offsetof(struct mr_attr, device) == offsetof(struct fi_mr_attr, device) &&
	       sizeof(struct mr_attr) >= sizeof(struct fi_mr_attr),
	       "fi_mr_attr as libfabric has it");

static uint64_t access_of(const struct bw_reg_request *request)
{
	return FI_SEND | FI_RECV | FI_WRITE | FI_READ |
	       (request->remote_write ? FI_REMOTE_WRITE : 0) |
	       (request->remote_read ? FI_REMOTE_READ : 0);
}

/* Where keys are ours to choose they are random: nobody is to meet one by chance. */
static uint64_t new_key(const struct bw_fabric_rail *r)
{
	size_t bytes = r->info->domain_attr->mr_key_size;
	uint64_t key = 0;

	if (r->info->domain_attr->mr_mode & FI_MR_PROV_KEY)
		return 0;
	if (bytes > sizeof(key))
		bytes = sizeof(key);
	if (getrandom(&key, bytes, 0) != (ssize_t)bytes)
		key = (uint64_t)(uintptr_t)&key ^ (uint64_t)getpid() << 32;
	return key;
}

static int register_once(struct bw_fabric_rail *r, const struct bw_reg_request *request,
			 bool dmabuf, struct fid_mr **mr)
{
	struct mr_dmabuf of = {
		.fd = request->dmabuf, .offset = request->dmabuf_offset, .bytes = request->bytes,
		.base = (char *)request->ptr - request->dmabuf_offset,
	};
	struct mr_attr attr = {
		.memory = &of, .count = 1, .access = access_of(request), .key = new_key(r),
	};

	if (!dmabuf)
		return fi_mr_reg(r->domain, request->ptr, request->bytes, attr.access, 0, attr.key,
				 0, mr, NULL);
	return fi_mr_regattr(r->domain, (const struct fi_mr_attr *)(const void *)&attr, MR_DMABUF,
			     mr);
}

/* 0 or a negative fi_errno value. */
static int do_register(struct bw_fabric_rail *r, const struct bw_reg_request *request, bool dmabuf,
		       struct fid_mr **mr)
{
	int ret = -FI_ENOKEY;

	for (int i = 0; i < 8 && ret == -FI_ENOKEY; i++)
		ret = register_once(r, request, dmabuf, mr);
	if (ret || !(r->info->domain_attr->mr_mode & FI_MR_ENDPOINT))
		return ret;
	ret = fi_mr_bind(*mr, &r->ep->fid, 0);
	if (!ret)
		ret = fi_mr_enable(*mr);
	if (ret)
		fi_close(&(*mr)->fid);
	return ret;
}

static void fill(const struct bw_fabric_rail *r, const struct bw_reg_request *request,
		 struct fid_mr *mr, const char *rung, struct bw_reg *out)
{
	memset(out, 0, sizeof(*out));
	out->handle = mr;
	out->desc = fi_mr_desc(mr);
	out->key = fi_mr_key(mr);
	if (r->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		out->addr = (uint64_t)(uintptr_t)request->ptr;
	snprintf(out->rung, sizeof(out->rung), "%s", rung);
}

static int reg_host(struct bw_fabric_rail *r, const struct bw_reg_request *request,
		    struct bw_reg *out)
{
	struct fid_mr *mr;
	int ret = do_register(r, request, false, &mr);

	if (ret)
		return bw_err(bw_fabric_errno(ret), "register %zu bytes at %p with %s: %s%s",
			      request->bytes, request->ptr, r->network->name,
			      r->lib->strerror(-ret), ret != -FI_ENOMEM ? "" :
			      ": locked memory may be limited: raise ulimit -l");
	fill(r, request, mr, "host", out);
	return 0;
}

/* Each rung's refusal goes to @why; 0, or -errno. */
static int try_dmabuf(struct bw_fabric_rail *r, const struct bw_reg_request *request,
		      struct fid_mr **mr, struct bw_reason *why)
{
	uint32_t version = r->lib->version();
	int ret;

	if (r->network->own_dmabufs) {
		bw_reason_set(why, "%s registers none but its own", r->network->provider);
		return -ENOTSUP;
	}
	if (request->dmabuf < 0) {
		bw_reason_set(why, "%s", request->no_dmabuf ? request->no_dmabuf :
							      "none was given");
		return -ENOTSUP;
	}
	if (version < DMABUF_SINCE) {
		bw_reason_set(why, "libfabric %u.%u does not register them, 1.20 does",
			      FI_MAJOR(version), FI_MINOR(version));
		return -ENOTSUP;
	}
	ret = do_register(r, request, true, mr);
	if (ret)
		bw_reason_set(why, "%s", r->lib->strerror(-ret));
	return ret ? -bw_fabric_errno(ret) : 0;
}

static int try_peermem(struct bw_fabric_rail *r, const struct bw_reg_request *request,
		       struct fid_mr **mr, struct bw_reason *why)
{
	int ret;

	if (access(PEERMEM, F_OK)) {
		bw_reason_set(why, "the kernel module nvidia_peermem is not loaded");
		return -ENOTSUP;
	}
	ret = do_register(r, request, false, mr);
	if (ret)
		bw_reason_set(why, "%s", r->lib->strerror(-ret));
	return ret ? -bw_fabric_errno(ret) : 0;
}

static int reg_gpu(struct bw_fabric_rail *r, const struct bw_reg_request *request,
		   struct bw_reg *out)
{
	struct bw_reason dmabuf, peermem;
	struct fid_mr *mr;
	int ret;

	if (r->network->by_cpu)
		return bw_err(ENOTSUP, "register GPU memory at %p with %s: CPUs move its bytes: "
			      "register the pointer of a mapping, or use verbs, efa or cxi",
			      request->ptr, r->network->name);
	if (!try_dmabuf(r, request, &mr, &dmabuf)) {
		fill(r, request, mr, "dmabuf", out);
		return 0;
	}
	ret = try_peermem(r, request, &mr, &peermem);
	if (!ret) {
		fill(r, request, mr, "peermem", out);
		if (request->passed)
			bw_reason_set(request->passed, "by dma-buf: %s", dmabuf.text);
		return 0;
	}
	return bw_err(ret == -ENOMEM ? ENOMEM : ENOTSUP,
		      "register %zu bytes of GPU memory at %p with %s: by dma-buf: %.200s; by peer "
		      "memory: %.120s: load nvidia_peermem, or use a newer libfabric and driver",
		      request->bytes, request->ptr, r->network->name, dmabuf.text, peermem.text);
}

int bw_fabric_reg(struct bw_rail *rail, const struct bw_reg_request *request, struct bw_reg *out)
{
	struct bw_fabric_rail *r = bw_fabric_rail(rail);
	struct bw_sentence kept;
	int ret;

	if (!request->bytes)
		return bw_err(EINVAL, "register memory at %p: 0 bytes: give the size",
			      request->ptr);
	bw_err_keep(&kept);
	ret = request->gpu ? reg_gpu(r, request, out) : reg_host(r, request, out);
	if (!ret)
		bw_err_put_back(&kept);
	return ret;
}

void bw_fabric_unreg(struct bw_rail *rail, struct bw_reg *reg)
{
	struct fid_mr *mr = reg->handle;

	(void)rail;
	if (mr)
		fi_close(&mr->fid);
	reg->handle = NULL;
}
