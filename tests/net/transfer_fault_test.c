/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The direct path, over an imitation of a network card that reaches the soft GPU's memory; and all
 * that a network may do and that those at hand do not: much that is late, postings put off,
 * registrations and operations that fail, a rail that dies without a word, memory that is short.
 */
#include "api/net.h"
#include "core/fault.h"
#include "device/soft.h"
#include "net/imitation.h"
#include "held.h"
#include "net/net_int.h"
#include "net/prove.h"
#include "net_test.h"

#define BOTH (BARWAY_REGION_PUT | BARWAY_REGION_GET)

static struct memory ma, mb;

/* What the card sees at a device address. */
static void *gpu_memory(uint64_t addr, size_t bytes)
{
	struct bw_segment seg;

	if (bw_device_resolve(addr, &seg) || !seg.dev)
		return NULL;
	return bw_soft_view(seg.dev, addr, bytes);
}

static struct bw_imitation how(void)
{
	return (struct bw_imitation){ .seed = 1, .again = 16, .late = 24, .gpu = gpu_memory };
}

static struct barway_endpoint_options card(unsigned path)
{
	struct barway_endpoint_options o = end_options("imitation-rdma", 0, 2);

	o.path = path;
	return o;
}

static void begin(const struct barway_endpoint_options *o, bool gpu, size_t bytes)
{
	pair_open_with(o);
	memory_open(&a, &ma, gpu, bytes, BOTH);
	memory_open(&b, &mb, gpu, bytes, BOTH);
}

static void settle(void)
{
	for (int i = 0; i < 500; i++) {
		barway_endpoint_progress(a.ep);
		barway_endpoint_progress(b.ep);
	}
}

static void end(void)
{
	settle();
	memory_close(&a, &ma);
	memory_close(&b, &mb);
	pair_close();
	bw_imitation_set(NULL);
}

static struct barway_transfer *one(struct end *e, struct memory *m, unsigned op, uint64_t local,
				   uint64_t remote, size_t n)
{
	struct barway_part part = { local, remote, n };
	struct barway_transfer_options o = { .operation = op, .tag = 1 };

	o.key = op == BARWAY_PUT || op == BARWAY_GET ? &mb.key : NULL;
	return prepare(e, m, &part, 1, &o);
}

static void same(struct end *x, struct memory *mx, uint64_t at, struct end *y, struct memory *my,
		 uint64_t to, size_t n)
{
	unsigned char *p = malloc(n), *q = malloc(n);

	CHECK(p && q);
	read_from(x, mx, at, p, n);
	read_from(y, my, to, q, n);
	CHECK(!memcmp(p, q, n));
	free(p);
	free(q);
}

/* All three operations; *direct: what they were. */
static void move(size_t n, uint64_t x, uint64_t y, bool *direct)
{
	struct barway_transfer *t, *r;

	*direct = true;
	for (unsigned op = BARWAY_PUT; op <= BARWAY_SEND; op++) {
		memory_fill(&a, &ma, n + op);
		memory_fill(&b, &mb, n + op + 100);
		t = one(&a, &ma, op, x, y, n);
		r = op == BARWAY_SEND ? one(&b, &mb, BARWAY_RECV, y, 0, n) : NULL;
		if (r)
			OK(barway_transfer_post(r));
		OK(barway_transfer_post(t));
		OK(wait_both(t, BARWAY_VISIBLE));
		if (r)
			OK(wait_both(r, BARWAY_VISIBLE));
		same(&a, &ma, x, &b, &mb, y, n);
		*direct = *direct && info_of(t).direct && (!r || info_of(r).direct);
		OK(barway_transfer_free(t));
		if (r)
			OK(barway_transfer_free(r));
	}
}

/* ---- the direct path ------------------------------------------------------------------------- */

static struct barway_region_info query(const struct memory *m)
{
	struct barway_region_info i = { .size = sizeof(i) };

	OK(barway_region_query(m->region, &i));
	return i;
}

static const size_t sizes[] = { 1, 8, 5000, 70000, 3000001 };

static void direct_by(const char *rung, struct bw_imitation h)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_DIRECT);
	bool was;

	for (unsigned seed = 1; seed < 4; seed++) {
		h.seed = seed;
		bw_imitation_set(&h);
		begin(&o, true, 4 * MIB);
		CHECK_EQ(query(&ma).direct, 1);
		CHECK_STR(query(&ma).rung, rung);
		for (unsigned k = 0; k < N(sizes); k++) {
			move(sizes[k], 17 * k, 4096 + 3 * k, &was);
			CHECK(was);
		}
		end();
	}
}

/* The card knows the memory by the descriptor alone. */
static void direct_by_dmabuf(void)
{
	struct bw_imitation h = how();

	h.gpu = NULL;
	direct_by("dmabuf", h);
	bw_imitation_set(&h);
	pair_open("imitation-rdma", 0, 2);
	memory_open(&a, &ma, true, MIB, BOTH);
	CHECK_STR(query(&ma).reason, "the network card reaches it: dmabuf");
	memory_close(&a, &ma);
	pair_close();
}

static void direct_by_peermem(void)
{
	struct bw_imitation h = how();

	h.dmabuf_error = -EOPNOTSUPP;
	direct_by("peermem", h);
	bw_imitation_set(&h);
	pair_open("imitation-rdma", 0, 2);
	memory_open(&a, &ma, true, MIB, BOTH);
	CHECK_HAS(query(&ma).reason, "the network card reaches it: peermem; by dma-buf: ");
	CHECK_HAS(query(&ma).reason, strerror(EOPNOTSUPP));
	memory_close(&a, &ma);
	pair_close();
}

/* Both ends' regions begin and end anywhere, and nothing beside them is written. */
static void part_of(uint64_t base_a, uint64_t base_b, size_t at, size_t n)
{
	struct memory all = { .addr = base_b, .bytes = n + 2 * at, .gpu = true };
	unsigned char *was = malloc(all.bytes), *is = malloc(all.bytes);
	struct barway_transfer *t;

	ma = (struct memory){ .addr = base_a + 3 * at, .bytes = n, .gpu = true };
	mb = (struct memory){ .addr = base_b + at, .bytes = n, .gpu = true };
	CHECK(was && is);
	memory_fill(&b, &all, n + at);
	read_from(&b, &all, 0, was, all.bytes);
	OK(barway_region_open(a.ep, ma.addr, n, BOTH, &ma.region));
	OK(barway_region_open(b.ep, mb.addr, n, BOTH, &mb.region));
	OK(barway_region_key(mb.region, &mb.key));
	CHECK_STR(query(&ma).rung, "dmabuf");
	CHECK_STR(query(&mb).rung, "dmabuf");
	memory_fill(&a, &ma, at + 1);
	t = one(&a, &ma, BARWAY_PUT, 0, 0, n);
	OK(barway_transfer_post(t));
	OK(wait_both(t, BARWAY_VISIBLE));
	CHECK(info_of(t).direct);
	OK(barway_transfer_free(t));
	same(&a, &ma, 0, &b, &mb, 0, n);
	read_from(&b, &all, 0, is, all.bytes);
	CHECK(!memcmp(is, was, at) && !memcmp(is + at + n, was + at + n, at));
	settle();
	OK(barway_region_close(ma.region));
	OK(barway_region_close(mb.region));
	free(was);
	free(is);
}

static void direct_anywhere(void)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_DIRECT);
	struct bw_imitation h = how();
	uint64_t x, y, small[5];

	h.gpu = NULL;
	bw_imitation_set(&h);
	pair_open_with(&o);
	OK(barway_mem_alloc(a.gpu, MIB, &x));
	OK(barway_mem_alloc(b.gpu, MIB, &y));
	part_of(x, y, 1, 1);
	part_of(x, y, 4095, 2);
	part_of(x, y, 4097, 8191);
	part_of(x, y, 65537, 70001);
	part_of(x, y, 100003, 300007);
	OK(barway_mem_free(a.ctx, x));
	OK(barway_mem_free(b.ctx, y));
	for (unsigned i = 0; i < N(small); i++) /* that share a block, and pages */
		OK(bw_soft_malloc(bw_soft_device(0), 2100, &small[i]));
	CHECK(small[4] % 4096);
	part_of(small[3], small[4], 5, 1000);
	part_of(small[0], small[2], 513, 511);
	for (unsigned i = 0; i < N(small); i++)
		OK(bw_soft_free(small[i]));
	pair_close();
	bw_imitation_set(NULL);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Opens a region of [addr, addr + n) at @a, and counts files; an error, or 0 with its @info. */
static int try_region(uint64_t addr, size_t n, struct barway_region_info *info)
{
	struct barway_region *region;
	int files = open_files(), ret = barway_region_open(a.ep, addr, n, BOTH, &region);

	CHECK_EQ(open_files(), files); /* also while it is open */
	if (ret)
		return ret;
	*info = (struct barway_region_info){ .size = sizeof(*info) };
	OK(barway_region_query(region, info));
	OK(barway_region_close(region));
	CHECK_EQ(open_files(), files);
	return 0;
}

static void no_descriptor_stays(void)
{
	static const enum bw_fault faults[] = { BW_FAULT_ALLOC, BW_FAULT_MMAP };
	struct barway_region_info i;
	struct bw_imitation h = how();
	unsigned failed = 0, n, rounds = 0;
	int files, ret;
	bool fired;

	bw_imitation_set(&h);
	pair_open("imitation-rdma", 0, 2); /* what stays for the process */
	pair_close();
	files = open_files();
	pair_open("imitation-rdma", 0, 2);
	OK(barway_mem_alloc(a.gpu, MIB, &ma.addr));
	OK(try_region(ma.addr, MIB, &i));
	for (unsigned k = 0; k < 2; k++)
		for (n = 1, fired = true; fired && n < 100; n++) {
			bw_fault_arm(faults[k], n);
			ret = try_region(ma.addr + n, MIB / 2, &i);
			fired = !bw_fault_pending(faults[k]);
			bw_fault_disarm_all();
			failed += ret < 0 || strcmp(i.rung, "dmabuf");
			rounds++;
		}
	CHECK(rounds < 100 && failed > 2);
	h.dmabuf_error = -ENOMEM;
	bw_imitation_set(&h);
	OK(try_region(ma.addr, MIB, &i));
	CHECK_STR(i.rung, "peermem");
	h.peermem_error = -ENOMEM;
	bw_imitation_set(&h);
	OK(try_region(ma.addr, MIB, &i));
	CHECK_STR(i.rung, "staged");
	OK(barway_mem_free(a.ctx, ma.addr));
	/* an endpoint that is closed with its regions */
	bw_imitation_set(NULL);
	memory_open(&a, &ma, true, MIB, BOTH);
	OK(barway_endpoint_close(a.ep));
	a.ep = NULL;
	OK(barway_mem_free(a.ctx, ma.addr));
	pair_close();
	CHECK_EQ(open_files(), files);
	bw_imitation_set(NULL);
}

/* The device gives none: the process has as many files open as it may. */
static void no_descriptor_left(void)
{
	struct barway_region_info i;
	struct bw_imitation h = how();

	bw_imitation_set(&h);
	pair_open("imitation-rdma", 0, 1);
	OK(barway_mem_alloc(a.gpu, MIB, &ma.addr));
	OK(try_region(ma.addr, MIB, &i)); /* what is made once is there */
	bw_fault_arm(BW_FAULT_OPEN, 1);
	OK(try_region(ma.addr, MIB, &i));
	CHECK(!bw_fault_pending(BW_FAULT_OPEN));
	CHECK_STR(i.rung, "peermem");
	CHECK_HAS(i.reason, "by dma-buf: ");
	CHECK_HAS(i.reason, "raise the limit");
	h.peermem_error = -EFAULT;
	bw_imitation_set(&h);
	bw_fault_arm(BW_FAULT_OPEN, 1);
	OK(try_region(ma.addr, MIB, &i));
	CHECK_STR(i.rung, "staged");
	CHECK_HAS(i.reason, "raise the limit");
	CHECK_HAS(i.reason, strerror(EFAULT));
	OK(barway_mem_free(a.ctx, ma.addr));
	pair_close();
	bw_imitation_set(NULL);
}

/* Memory that the device gives none of: two handles that are mapped in a row. */
static void several_handles(void)
{
	struct bw_soft_handle *handle[2];
	struct barway_region_info i;
	struct bw_imitation h = how();
	uint64_t at;

	bw_imitation_set(&h);
	pair_open("imitation-rdma", 0, 1);
	OK(bw_soft_reserve(MIB, &at));
	for (unsigned k = 0; k < 2; k++) {
		OK(bw_soft_handle_create(bw_soft_device(0), MIB / 2, &handle[k]));
		OK(bw_soft_mem_map(at + k * MIB / 2, handle[k]));
	}
	OK(try_region(at + 5, MIB / 2 - 5, &i));
	CHECK_STR(i.rung, "dmabuf");
	OK(try_region(at + 5, MIB - 9, &i));
	CHECK_STR(i.rung, "staged");
	CHECK_HAS(i.reason, "mapped in a row: take each by itself");
	CHECK_HAS(i.reason, "by peer memory: ");
	for (unsigned k = 0; k < 2; k++) {
		OK(bw_soft_mem_unmap(at + k * MIB / 2));
		bw_soft_handle_release(handle[k]);
	}
	OK(bw_soft_unreserve(at, MIB));
	pair_close();
	bw_imitation_set(NULL);
}

/* A child has nothing of it, and what it does disturbs nobody. */
static void in_a_child(void)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_DIRECT);
	struct barway_region_info i = { .size = sizeof(i) };
	struct bw_imitation h = how();
	int status;
	pid_t pid;
	bool was;

	h.gpu = NULL;
	bw_imitation_set(&h);
	begin(&o, true, 4 * MIB);
	move(70000, 1, 2, &was);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(barway_region_query(ma.region, &i) != -ESTALE ||
		      barway_region_close(mb.region) != -ESTALE ||
		      barway_endpoint_close(a.ep) != -ESTALE);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	move(3000001, 1, 2, &was);
	CHECK(was);
	end();
}

static void direct_refused(void)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_DIRECT);
	struct barway_region_info i = { .size = sizeof(i) };
	struct bw_imitation h = how();
	struct barway_region *region;
	bool was;

	h.peermem_error = -EFAULT;
	h.dmabuf_error = -EOPNOTSUPP;
	bw_imitation_set(&h);
	pair_open_with(&o);
	OK(barway_mem_alloc(a.gpu, MIB, &ma.addr));
	FAILS(barway_region_open(a.ep, ma.addr, MIB, 0, &region), ENOTSUP, "by dma-buf");
	CHECK_HAS(barway_errmsg(), "by peer memory");
	OK(barway_mem_free(a.ctx, ma.addr));
	pair_close();
	/* not required: staged, and it says why */
	o.path = BARWAY_PATH_AUTO;
	begin(&o, true, 4 * MIB);
	OK(barway_region_query(ma.region, &i));
	CHECK_EQ(i.direct, 0);
	CHECK_STR(i.rung, "staged");
	CHECK_HAS(i.reason, strerror(EOPNOTSUPP));
	CHECK_HAS(i.reason, strerror(EFAULT));
	move(3000001, 5, 9, &was);
	CHECK(!was);
	{
		struct barway_part part = { 0, 0, 8 };
		struct barway_transfer_options t = { .size = sizeof(t), .operation = BARWAY_PUT,
						     .key = &mb.key, .path = BARWAY_PATH_DIRECT };
		struct barway_transfer *x;

		FAILS(barway_transfer_prepare(a.peer, ma.region, &part, 1, &t, &x), ENOTSUP,
		      "direct path");
	}
	end();
	/* a network without cards */
	o = end_options("imitation", 0, 1);
	o.path = BARWAY_PATH_DIRECT;
	pair_open_with(&o);
	OK(barway_mem_alloc(a.gpu, MIB, &ma.addr));
	FAILS(barway_region_open(a.ep, ma.addr, MIB, 0, &region), ENOTSUP, "CPUs move");
	OK(barway_mem_free(a.ctx, ma.addr));
	pair_close();
}

/* ---- proved with data ------------------------------------------------------------------------ */

/* What a region of GPU memory gets now. */
static void gets(const struct bw_imitation *h, const char *rung, const char *reason)
{
	struct bw_imitation none = how();

	bw_imitation_set(&none);
	pair_open("imitation-rdma", 0, 2);
	bw_imitation_set(h);
	memory_open(&a, &ma, true, MIB, BOTH);
	CHECK_STR(query(&ma).rung, rung);
	CHECK_HAS(query(&ma).reason, reason);
	memory_close(&a, &ma);
	bw_imitation_set(&none);
	pair_close();
}

/* A card that takes the registration and reaches something else. */
static void unproved(void)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_DIRECT);
	struct bw_imitation h = how();
	struct barway_region *region;
	bool was;

	bw_prove_forget();
	h.gpu = NULL;
	h.dmabuf_shift = 4096;
	gets(&h, "staged", "the card does not read what the copy engine wrote");
	h.dmabuf_shift = 0;
	gets(&h, "staged", "the card does not read"); /* that was a verdict */
	h.gpu = gpu_memory; /* the next rung is taken, and proved */
	gets(&h, "peermem", "by dma-buf: the proof of dmabuf over imitation-rdma");
	/* required: an error, not another path */
	h.gpu = NULL;
	bw_imitation_set(&h);
	pair_open_with(&o);
	OK(barway_mem_alloc(a.gpu, MIB, &ma.addr));
	FAILS(barway_region_open(a.ep, ma.addr, MIB, 0, &region), ENOTSUP, "does not read");
	OK(barway_mem_free(a.ctx, ma.addr));
	pair_close();
	bw_prove_forget();
	begin(&o, true, MIB);
	move(70000, 1, 2, &was);
	CHECK(was);
	end();
	bw_imitation_set(NULL);
}

/* A card that fails in the proof is none that reaches the wrong memory: it may try again. */
static void proof_fails(void)
{
	struct bw_imitation h = how();

	bw_prove_forget();
	h.gpu = NULL;
	h.event_error = -EREMOTEIO;
	h.event_every = 1;
	gets(&h, "staged", "the proof of dmabuf");
	h.event_error = 0;
	h.event_every = 0;
	gets(&h, "dmabuf", "reaches it");
	bw_imitation_set(NULL);
}

/* The far end's memory cannot have the path that this end requires. */
static void direct_refused_there(void)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_AUTO);
	struct barway_part part = { 0, 0, 100000 };
	struct barway_transfer_options options = { .operation = BARWAY_PUT, .key = &mb.key,
						   .path = BARWAY_PATH_DIRECT };
	struct bw_imitation h = how();
	struct barway_transfer *t;

	bw_imitation_set(&h);
	pair_open_with(&o);
	memory_open(&a, &ma, true, MIB, BOTH);
	h.peermem_error = h.dmabuf_error = -EFAULT;
	bw_imitation_set(&h);
	memory_open(&b, &mb, true, MIB, BOTH);
	t = prepare(&a, &ma, &part, 1, &options);
	OK(barway_transfer_post(t));
	FAILS(wait_both(t, BARWAY_VISIBLE), ENOTSUP, "direct path is required");
	OK(barway_transfer_free(t));
	end();
}

/* ---- what networks do ------------------------------------------------------------------------ */

static void late_and_put_off(void)
{
	static const char *const networks[] = { "imitation", "imitation-rdma" };
	struct bw_imitation h = how();
	bool was;

	for (unsigned n = 0; n < N(networks); n++)
		for (unsigned seed = 1; seed < 4; seed++) {
			struct barway_endpoint_options o = end_options(networks[n], 0, 3);

			h = how();
			h.seed = seed;
			h.again = 2;
			h.late = 300;
			bw_imitation_set(&h);
			begin(&o, seed & 1, 4 * MIB);
			move(100, 1, 2, &was);
			move(3000000, 1, 2, &was);
			end();
		}
}

/* Operations that fail: the transfer ends with the network's words, and the peer is lost. */
static void operations_fail(void)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_AUTO);
	struct bw_imitation h = how();
	struct barway_transfer *t;
	unsigned failures = 0;

	bw_imitation_set(&h);
	begin(&o, false, 4 * MIB);
	for (unsigned i = 0; i < 12; i++) {
		int ret;

		t = one(&a, &ma, i % 2 ? BARWAY_PUT : BARWAY_GET, 0, 0, 3000000);
		h.event_error = -EIO;
		h.event_every = 6;
		h.seed = i + 1;
		bw_imitation_set(&h);
		OK(barway_transfer_post(t));
		ret = wait_both(t, BARWAY_VISIBLE);
		h.event_every = 0;
		bw_imitation_set(&h);
		if (ret && ret != -EIO)
			FAIL("%d: %s", ret, barway_errmsg());
		if (ret) {
			failures++;
			CHECK_HAS(barway_errmsg(), "127.0.0.1:");
		}
		OK(barway_transfer_free(t));
		settle();
		sleep_ms(6);
		settle();
		OK(barway_peer_close(a.peer));
		OK(barway_peer_close(b.peer));
		pair_connect();
	}
	CHECK(failures > 3);
	t = one(&a, &ma, BARWAY_PUT, 0, 0, 3000000);
	OK(barway_transfer_post(t));
	OK(wait_both(t, BARWAY_VISIBLE));
	OK(barway_transfer_free(t));
	end();
}

/* A rail that dies: quietly, so that only the deadline tells; or loudly. */
/* A peer that takes nothing any more holds up nobody else on its rail. */
static void dead_beside_alive(void)
{
	struct barway_endpoint_options o = end_options("imitation", 1, 1);
	struct barway_part part = { 0, 0, 4 * MIB };
	struct barway_transfer_options put = { .operation = BARWAY_PUT };
	struct barway_transfer *dead[8], *alive;
	struct bw_imitation h = how();
	struct memory mc;
	struct end c;
	pthread_t thread;
	char name[64];

	bw_imitation_set(&h);
	param("net_chunk", "64K"); /* many */
	o.deadline_ns = 20 * SECOND;
	begin(&o, false, 4 * MIB);
	end_open(&c, &o);
	OK(barway_endpoint_name(c.ep, name, sizeof(name)));
	CHECK(!pthread_create(&thread, NULL, acceptor, &c));
	put.key = &mb.key;
	for (unsigned i = 0; i < N(dead); i++)
		dead[i] = prepare(&a, &ma, &part, 1, &put);
	OK(barway_peer_connect(a.ep, name, 10 * SECOND, &a.peer));
	CHECK(!pthread_join(thread, NULL));
	memory_open(&c, &mc, false, 4 * MIB, BOTH);
	put.key = &mc.key;
	alive = prepare(&a, &ma, &part, 1, &put);
	for (unsigned i = 0; i < N(dead); i++)
		OK(barway_transfer_post(dead[i]));
	while (counters_of(&a).chunks_out < 40) /* of 512: all of them have begun */
		sched_yield();
	bw_imitation_kill(bw_endpoint_object_get(b.ep)->ep->rail[0].rail, false);
	for (unsigned i = 0; i < 5; i++) {
		double from = seconds();

		OK(barway_transfer_post(alive));
		OK(barway_transfer_wait(alive, BARWAY_VISIBLE, 10 * SECOND));
		CHECK(seconds() - from < 5);
	}
	OK(barway_endpoint_close(a.ep));
	a.ep = NULL;
	memory_close(&c, &mc);
	end_close(&c);
	OK(barway_endpoint_close(b.ep));
	b.ep = NULL;
	free((void *)(uintptr_t)ma.addr);
	free((void *)(uintptr_t)mb.addr);
	pair_close();
	param("net_chunk", "1M");
	bw_imitation_set(NULL);
}

static void rail_dies(void)
{
	struct bw_imitation h = how();

	for (unsigned loud = 0; loud < 2; loud++)
		for (unsigned n = 0; n < 3; n++) {
			struct barway_endpoint_options o = card(BARWAY_PATH_AUTO);
			struct barway_transfer *t;
			double from = seconds();
			int ret;

			bw_imitation_set(&h);
			o.deadline_ns = 200 * MS;
			o.liveness_ns = 300 * MS;
			begin(&o, false, 4 * MIB);
			t = one(&a, &ma, BARWAY_PUT, 0, 0, n ? 3000000 : 8);
			if (n == 2) {
				OK(barway_transfer_post(t));
				for (int i = 0; i < 30; i++) {
					barway_endpoint_progress(a.ep);
					barway_endpoint_progress(b.ep);
				}
			}
			bw_imitation_kill(bw_endpoint_object_get(b.ep)->ep->rail[0].rail, loud);
			bw_imitation_kill(bw_endpoint_object_get(b.ep)->ep->rail[1].rail, loud);
			if (n < 2)
				OK(barway_transfer_post(t));
			ret = wait_both(t, BARWAY_VISIBLE);
			if (ret != -ETIMEDOUT && ret != -EIO && !(n == 2 && !ret))
				FAIL("%d: %s", ret, barway_errmsg());
			if (ret)
				CHECK_HAS(barway_errmsg(), "imitation-rdma");
			CHECK(seconds() - from < 3);
			OK(barway_transfer_free(t));
			OK(barway_endpoint_close(a.ep));
			OK(barway_endpoint_close(b.ep));
			a.ep = b.ep = NULL;
			free((void *)(uintptr_t)ma.addr);
			free((void *)(uintptr_t)mb.addr);
			pair_close();
		}
	bw_imitation_set(NULL);
}

static void registrations_fail(void)
{
	struct barway_endpoint_options o = card(BARWAY_PATH_AUTO);
	struct bw_imitation h = how();
	struct barway_endpoint *ep;
	struct barway_region *region;
	char memory[100];

	bw_imitation_set(&h);
	pair_open_with(&o);
	h.host_error = -ENOMEM;
	bw_imitation_set(&h);
	FAILS(barway_region_open(a.ep, (uintptr_t)memory, sizeof(memory), 0, &region), ENOMEM,
	      "register");
	FAILS(barway_endpoint_open(a.ctx, &o, &ep), ENOMEM, "register");
	bw_imitation_set(NULL);
	pair_close();
}

/* ---- memory is short ------------------------------------------------------------------------- */

static uint64_t patience_ns = 300 * MS; /* most of it is for what fails */

static void *accept_once(void *arg)
{
	struct end *e = arg;

	barway_peer_accept(e->ep, patience_ns, &e->peer);
	return NULL;
}

static bool fired;

/* The whole of it, as far as it goes. */
static bool try_all(void)
{
	struct barway_endpoint_options o = end_options("imitation", 0, 1);
	struct barway_part part = { 0, 0, 300000 };
	struct barway_transfer_options put = { .size = sizeof(put), .operation = BARWAY_PUT };
	static unsigned char from[300000], to[300000];
	struct barway_region *ra = NULL, *rb = NULL;
	struct barway_transfer *t = NULL;
	struct barway_key key;
	pthread_t thread;
	char name[64];
	bool all = false;

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	o.deadline_ns = patience_ns;
	memset(to, 0, sizeof(to));
	memset(from, 7, sizeof(from));
	if (barway_open(NULL, &a.ctx) || barway_open(NULL, &b.ctx) ||
	    barway_endpoint_open(a.ctx, &o, &a.ep) || barway_endpoint_open(b.ctx, &o, &b.ep))
		goto out;
	OK(barway_endpoint_name(b.ep, name, sizeof(name)));
	CHECK(!pthread_create(&thread, NULL, accept_once, &b));
	barway_peer_connect(a.ep, name, patience_ns, &a.peer);
	pthread_join(thread, NULL);
	if (!a.peer || !b.peer ||
	    barway_region_open(a.ep, (uintptr_t)from, sizeof(from), 0, &ra) ||
	    barway_region_open(b.ep, (uintptr_t)to, sizeof(to), BARWAY_REGION_PUT, &rb))
		goto out;
	OK(barway_region_key(rb, &key));
	put.key = &key;
	if (barway_transfer_prepare(a.peer, ra, &part, 1, &put, &t))
		goto out;
	if (!barway_transfer_post(t) && !wait_both(t, BARWAY_VISIBLE)) {
		CHECK(!memcmp(from, to, sizeof(to)));
		all = true;
	}
out:
	fired = !bw_fault_pending(BW_FAULT_ALLOC);
	bw_fault_disarm_all();
	if (!all)
		CHECK(barway_errmsg()[0]);
	pair_close();
	return all;
}

/* Each allocation once; then all goes well. */
static void memory_is_short(void)
{
	unsigned n = 0, failed = 0;

	do {
		bw_fault_arm(BW_FAULT_ALLOC, ++n);
		failed += !try_all();
	} while (fired && n < 1000);
	CHECK(n > 20 && n < 1000);
	CHECK(failed > 10);
	patience_ns = 20 * SECOND;
	CHECK(try_all());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(direct_by_dmabuf), TEST(direct_by_peermem), TEST(direct_anywhere),
		TEST(no_descriptor_stays), TEST(no_descriptor_left), TEST(several_handles),
		TEST(in_a_child), TEST(direct_refused), TEST(direct_refused_there),
		TEST(unproved), TEST(proof_fails),
		TEST(late_and_put_off), TEST(operations_fail), TEST(dead_beside_alive),
		TEST(rail_dies),
		TEST(registrations_fail), TEST(memory_is_short), { 0 },
	};

	return net_main(argc, argv, cases);
}
