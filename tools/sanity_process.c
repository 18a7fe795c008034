/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of barway sanity: forks, and memory of another process. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/sanity.h"

#define MIB (1024u * 1024u)

/* ---- fork -------------------------------------------------------------------------------- */

struct inherited {
	struct barway_mapping *map;
	volatile unsigned char *ptr;
	uint64_t addr;
};

/* A program of its own. */
static void afresh(struct sanity *s, void *arg)
{
	struct bench_memory mem;

	(void)arg;
	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	sanity_prove(s, mem.addr + 5, 100000, mem.addr, MIB);
	sanity_free(s, &mem);
	sanity_close(s);
}

static void context_is_stale(struct sanity *s, void *arg)
{
	(void)arg;
	REFUSED(barway_device_count(s->ctx), ESTALE);
	REFUSED(barway_close(s->ctx), ESTALE);
}

static void all_is_stale(struct sanity *s, void *arg)
{
	const struct inherited *in = arg;
	struct barway_mapping *m;
	uint64_t addr;
	char byte = 0;

	context_is_stale(s, NULL);
	REFUSED(barway_mem_alloc(s->dev, 1, &addr), ESTALE);
	REFUSED(barway_mem_free(s->ctx, in->addr), ESTALE);
	REFUSED(barway_map(s->ctx, in->addr, 1, NULL, &m), ESTALE);
	REFUSED(barway_copy_to(in->map, 0, &byte, 1), ESTALE);
	REFUSED(barway_copy_from(in->map, &byte, 0, 1), ESTALE);
	REFUSED(barway_flush(in->map), ESTALE);
	REFUSED(barway_unmap(in->map), ESTALE);
	CHECK(!barway_mapping_ptr(in->map), "a forked child is given a pointer");
	CHECK(sanity_faults(in->ptr, false) && sanity_faults(in->ptr, true),
	      "a forked child's loads and stores reach the parent's memory");
}

/* Nobody says anything: it just ends. */
static void ends(struct sanity *s, void *arg)
{
	(void)s;
	(void)arg;
}

static void forks(struct sanity *s)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };
	struct bench_memory mem;
	struct inherited in;

	/* before anything, and after a context was opened, which touches no device yet */
	sanity_join(sanity_fork(afresh, s, NULL));
	if (s->soft)
		o.devices = BARWAY_DEVICES_SOFT;
	OK(barway_open(&o, &s->ctx));
	sanity_join(sanity_fork(context_is_stale, s, NULL));
	sanity_join(sanity_fork(afresh, s, NULL));
	OK(barway_close(s->ctx));

	sanity_open(s);
	sanity_alloc(s, BENCH_MEMORY_BARWAY, MIB, &mem);
	OK(barway_map(s->ctx, mem.addr, 65536, NULL, &in.map));
	in.ptr = barway_mapping_ptr(in.map);
	in.addr = mem.addr;
	for (int i = 0; i < 3; i++) {
		in.ptr[0] = 77;
		sanity_join(sanity_fork(i == 1 ? ends : all_is_stale, s, &in));
		CHECK(in.ptr[0] == 77, "the parent's data changed when a forked child ended");
		sanity_prove(s, mem.addr, MIB, mem.addr, MIB);
	}
	OK(barway_unmap(in.map));
	sanity_free(s, &mem);
	sanity_close(s);
}

/* ---- memory of another process ----------------------------------------------------------- */

#define SHARED_BYTES (4u * MIB)

struct parcel {
	uint64_t bytes; /* 0: there is none */
	unsigned char mark[64];
};

static void send_parcel(int sock, const struct parcel *parcel, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec v = { (void *)(uintptr_t)parcel, sizeof(*parcel) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.room);
		CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	}
	CHECK(sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*parcel), "send to the other "
	      "process: %s", strerror(errno));
}

/* -1: no file came with it. */
static int receive_parcel(int sock, struct parcel *parcel)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec v = { parcel, sizeof(*parcel) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
			    .msg_controllen = sizeof(control.room) };
	int fd = -1;

	CHECK(recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL) == (ssize_t)sizeof(*parcel),
	      "receive from the other process: %s", strerror(errno));
	if (CMSG_FIRSTHDR(&m) && CMSG_FIRSTHDR(&m)->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void waive_import(const char *why)
{
	sanity_waive("%s; so nothing is said about memory of another process",
		     why);
}

/* Maps what the other process exported, checks its mark, and puts one of its own there. */
static void importer(struct sanity *s, void *arg)
{
	const int *sock = arg;
	struct barway_mapping *m;
	struct bench_memory mem;
	struct parcel parcel;
	unsigned char got[64];
	int fd = receive_parcel(*sock, &parcel), ret;

	if (!parcel.bytes)
		return;
	sanity_open(s);
	ret = bench_gpu_import(s->gpu, fd, parcel.bytes, &mem);
	if (ret == -ENOTSUP)
		waive_import(bench_gpu_error(s->gpu));
	GPU_OK(ret);
	close(fd);
	ret = barway_map(s->ctx, mem.addr, parcel.bytes, NULL, &m);
	if (ret == -ENOTSUP)
		waive_import(barway_errmsg());
	OK(ret);
	OK(barway_copy_from(m, got, 4099, sizeof(got)));
	CHECK(!memcmp(got, parcel.mark, sizeof(got)), "memory of another process has other bytes "
	      "than that process put there");
	sanity_prove(s, mem.addr + SHARED_BYTES / 2, 100000, mem.addr + SHARED_BYTES / 2,
		     SHARED_BYTES / 2);
	s->random ^= 0x5555; /* not what the other process makes, too */
	sanity_fill(s, parcel.mark, sizeof(parcel.mark));
	OK(barway_copy_to(m, 4099, parcel.mark, sizeof(parcel.mark)));
	OK(barway_flush(m));
	send_parcel(*sock, &parcel, -1);
	receive_parcel(*sock, &parcel); /* it was freed there, and others took what is free */
	OK(barway_copy_from(m, got, 4099, sizeof(got)));
	CHECK(!memcmp(got, parcel.mark, sizeof(got)), "memory that is imported changed when its "
	      "exporter freed it");
	OK(barway_unmap(m));
	sanity_free(s, &mem);
	sanity_close(s);
}

/* False: the device exports none; @why. */
static bool export_memory(struct sanity *s, struct bench_memory *mem, int *fd)
{
	int ret;

	if (!sanity_try_alloc(s, BENCH_MEMORY_VMM_FD, SHARED_BYTES, mem))
		return false;
	ret = bench_gpu_export(s->gpu, mem, fd);
	if (ret == -ENOTSUP)
		return false;
	GPU_OK(ret);
	return true;
}

static void other_process(struct sanity *s)
{
	struct parcel parcel = { 0 };
	struct bench_memory mem, other;
	unsigned char got[64];
	int socks[2], fd;
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks), "socketpair: %s",
	      strerror(errno));
	pid = sanity_fork(importer, s, &socks[1]);
	close(socks[1]);
	sanity_open(s);
	if (!export_memory(s, &mem, &fd)) {
		char why[1024];

		snprintf(why, sizeof(why), "%s", bench_gpu_error(s->gpu));
		send_parcel(socks[0], &parcel, -1);
		sanity_join(pid);
		waive_import(why);
	}
	parcel.bytes = mem.bytes;
	sanity_fill(s, parcel.mark, sizeof(parcel.mark));
	GPU_OK(bench_gpu_write(s->gpu, mem.addr + 4099, parcel.mark, sizeof(parcel.mark)));
	send_parcel(socks[0], &parcel, fd);
	close(fd);
	receive_parcel(socks[0], &parcel);
	GPU_OK(bench_gpu_read(s->gpu, got, mem.addr + 4099, sizeof(got)));
	CHECK(!memcmp(got, parcel.mark, sizeof(got)), "the GPU does not see what another process "
	      "wrote through its mapping");
	sanity_free(s, &mem);
	sanity_alloc(s, BENCH_MEMORY_VMM_FD, SHARED_BYTES, &other);
	sanity_prove(s, other.addr, SHARED_BYTES, other.addr, SHARED_BYTES);
	send_parcel(socks[0], &parcel, -1);
	sanity_join(pid);
	sanity_free(s, &other);
	sanity_close(s);
}

const struct sanity_case sanity_process[] = {
	{ "forks", "children forked before and after everything", false, forks },
	{ "other_process", "memory of another process, passed as a file", false, other_process },
	{ 0 },
};
