/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registration of GPU memory with libfabric, beside a domain that is not there: what is passed
 * to it, and that each rung of the ladder is tried, and its refusal told.
 */
#include <errno.h>
#include <unistd.h>

#include "net/fabric.h"
#include "test.h"

/* struct fi_mr_attr and struct fi_mr_dmabuf as libfabric 2.x has them. */
struct attr_2 {
	const struct dmabuf_2 {
		int fd;
		uint64_t offset;
		size_t bytes;
		void *base;
	} *dmabuf;
	size_t count;
	uint64_t access, offset, key;
	void *context;
	size_t auth_key_size;
	uint8_t *auth_key;
	int iface;
	uint64_t device;
	void *hmem_data;
	size_t page_size;
	const void *base_mr;
	size_t sub_mr_count;
};

#define ADDRESS 0x7f0000012345ull
#define FD 33
#define OFFSET 0x3345ull

static bool module_loaded;
static uint32_t version;
static int dmabuf_error, peermem_error, no_key, bind_error; /* fi_errno values; times */
static unsigned dmabufs, peermems, closed;
static struct attr_2 attr;
static struct dmabuf_2 dmabuf;
static uint64_t attr_flags;

/* In place of libc's. */
int access(const char *path, int mode)
{
	(void)mode;
	CHECK_STR(path, "/sys/module/nvidia_peermem");
	errno = ENOENT;
	return module_loaded ? 0 : -1;
}

/* ---- a domain ------------------------------------------------------------------------------ */

static int mr_close(struct fid *fid)
{
	(void)fid;
	closed++;
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	(void)fid;
	(void)to;
	(void)flags;
	return -bind_error;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	(void)fid;
	(void)command;
	(void)arg;
	return 0;
}

static struct fi_ops fid_ops = {
	.size = sizeof(fid_ops), .close = mr_close, .bind = mr_bind, .control = mr_control,
};
static struct fid_mr mr = { .fid.ops = &fid_ops, .mem_desc = &mr, .key = 77 };

static int reg(struct fid *fid, const void *p, size_t n, uint64_t access, uint64_t offset,
	       uint64_t key, uint64_t flags, struct fid_mr **out, void *ctx)
{
	(void)fid;
	(void)ctx;
	(void)key;
	CHECK((uintptr_t)p == ADDRESS && n == 5000 && !offset && !flags);
	CHECK(access & FI_REMOTE_WRITE && !(access & FI_REMOTE_READ));
	peermems++;
	*out = &mr;
	return -peermem_error;
}

static int regattr(struct fid *fid, const struct fi_mr_attr *given, uint64_t flags,
		   struct fid_mr **out)
{
	(void)fid;
	memcpy(&attr, given, sizeof(attr));
	dmabuf = *attr.dmabuf;
	attr_flags = flags;
	dmabufs++;
	*out = &mr;
	if (no_key && no_key--)
		return -FI_ENOKEY;
	return -dmabuf_error;
}

static uint32_t lib_version(void)
{
	return version;
}

static const char *lib_strerror(int error)
{
	return strerror(error);
}

static struct fi_ops_mr mr_ops = { .size = sizeof(mr_ops), .reg = reg, .regattr = regattr };
static struct fid_domain domain = { .mr = &mr_ops };
static struct fi_domain_attr domain_attr = { .mr_key_size = 8 };
static struct fi_info info = { .domain_attr = &domain_attr };
static struct fid_ep ep;
static struct bw_fabric_lib lib = { .version = lib_version, .strerror = lib_strerror };
static struct bw_fabric_network network;
static struct bw_fabric_rail rail = {
	.lib = &lib, .network = &network, .info = &info, .domain = &domain, .ep = &ep,
};
static struct bw_reason passed;

static void begin(void)
{
	module_loaded = true;
	version = FI_VERSION(1, 20);
	dmabuf_error = peermem_error = no_key = bind_error = 0;
	dmabufs = peermems = closed = 0;
	domain_attr.mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	network = (struct bw_fabric_network){ .name = "verbs", .provider = "verbs;ofi_rxm" };
	passed.text[0] = 0;
	bw_err(EPERM, "as it was");
}

static int try(int fd, const char *why, struct bw_reg *out)
{
	struct bw_reg_request request = {
		.ptr = (void *)(uintptr_t)ADDRESS, .bytes = 5000, .gpu = true, .dmabuf = fd,
		.dmabuf_offset = OFFSET, .no_dmabuf = why, .passed = &passed,
		.remote_write = true,
	};

	return bw_fabric_reg(&rail.rail, &request, out);
}

/* ---- cases --------------------------------------------------------------------------------- */

static void by_dmabuf(void)
{
	const struct attr_2 rest = { .dmabuf = NULL };
	struct bw_reg out;

	begin();
	CHECK_EQ(try(FD, NULL, &out), 0);
	CHECK_STR(out.rung, "dmabuf");
	CHECK_STR(passed.text, "");
	CHECK_STR(bw_err_text(), "as it was");
	CHECK(out.handle == &mr && out.desc == &mr && out.key == 77 && out.addr == ADDRESS);
	CHECK_EQ(attr_flags, 1ull << 40); /* FI_MR_DMABUF */
	CHECK(dmabuf.fd == FD && dmabuf.offset == OFFSET && dmabuf.bytes == 5000);
	CHECK_EQ((uintptr_t)dmabuf.base, ADDRESS - OFFSET); /* the address is base + offset */
	CHECK_EQ((uintptr_t)dmabuf.base % 4096, 0);
	CHECK(attr.count == 1 && !attr.offset && !attr.key); /* FI_MR_PROV_KEY */
	CHECK_EQ(attr.access, FI_SEND | FI_RECV | FI_WRITE | FI_READ | FI_REMOTE_WRITE);
	CHECK(!memcmp(&attr.context, &rest.context, sizeof(attr) -
		      offsetof(struct attr_2, context))); /* and system memory */
	CHECK_EQ(peermems, 0);
	bw_fabric_unreg(&rail.rail, &out);
	CHECK(closed == 1 && !out.handle);
}

/* Where keys are ours to choose, they are chosen until one is free. */
static void keys(void)
{
	struct bw_reg out;

	begin();
	domain_attr.mr_mode = 0;
	no_key = 3;
	CHECK_EQ(try(FD, NULL, &out), 0);
	CHECK_EQ(dmabufs, 4);
	CHECK(attr.key && !out.addr); /* from 0 */
}

static void by_peermem(void)
{
	static const struct {
		int fd;
		const char *no_dmabuf;
		int error;
		uint32_t version;
		bool own;
		const char *words;
	} cases[] = {
		{ -1, NULL, 0, FI_VERSION(2, 6), false, "none was given" },
		{ -1, "because", 0, FI_VERSION(2, 6), false, "by dma-buf: because" },
		{ FD, NULL, 0, FI_VERSION(1, 19), false, "libfabric 1.19 does not register them" },
		{ FD, NULL, EOPNOTSUPP, FI_VERSION(2, 6), false, "Operation not supported" },
		{ FD, NULL, 0, FI_VERSION(2, 6), true, "cxi registers none but its own" },
	};
	struct bw_reg out;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int loaded = 1; loaded >= 0; loaded--) {
			begin();
			module_loaded = loaded;
			version = cases[i].version;
			dmabuf_error = cases[i].error;
			if (cases[i].own)
				network = (struct bw_fabric_network){
					.name = "cxi", .provider = "cxi", .own_dmabufs = true,
				};
			CHECK_EQ(try(cases[i].fd, cases[i].no_dmabuf, &out),
				 loaded ? 0 : -ENOTSUP);
			CHECK_EQ(dmabufs, cases[i].error ? 1 : 0);
			CHECK_EQ(peermems, loaded);
			CHECK_HAS(loaded ? passed.text : bw_err_text(), cases[i].words);
			if (loaded)
				CHECK_STR(out.rung, "peermem");
			else
				CHECK_HAS(bw_err_text(), "nvidia_peermem is not loaded");
		}
	}
}

static void by_none(void)
{
	struct bw_reg out = { .key = 5 };

	begin();
	dmabuf_error = EINVAL;
	peermem_error = EFAULT;
	CHECK_EQ(try(FD, NULL, &out), -ENOTSUP);
	CHECK_HAS(bw_err_text(), "by dma-buf: Invalid argument; by peer memory: Bad address");
	CHECK_STR(passed.text, "");
	CHECK_EQ(out.key, 5);
	begin();
	network.by_cpu = true;
	CHECK_EQ(try(FD, NULL, &out), -ENOTSUP);
	CHECK_HAS(bw_err_text(), "CPUs move its bytes");
	CHECK(!dmabufs && !peermems);
}

/* What cannot be bound to its endpoint is closed, and the next rung tried. */
static void by_endpoint(void)
{
	struct bw_reg out;

	begin();
	domain_attr.mr_mode |= FI_MR_ENDPOINT;
	bind_error = EBUSY;
	CHECK_EQ(try(FD, NULL, &out), -ENOTSUP);
	CHECK(dmabufs == 1 && peermems == 1 && closed == 2);
	begin();
	domain_attr.mr_mode |= FI_MR_ENDPOINT;
	CHECK_EQ(try(FD, NULL, &out), 0);
	CHECK_EQ(closed, 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(by_dmabuf), TEST(keys), TEST(by_peermem), TEST(by_none), TEST(by_endpoint),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
