/* SPDX-License-Identifier: BSD-3-Clause */
/* What the cases of barway sanity share. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sanity.h"

void sanity_refused(int ret, int err, const char *call)
{
	CHECK(ret == -err, "%s is %d where it has to be %d (%s)", call, ret, -err, strerror(err));
	CHECK(*barway_errmsg(), "%s is %d, with no sentence that says why", call, ret);
}

/* ---- the device -------------------------------------------------------------------------- */

static void find(struct sanity *s)
{
	const struct barway_device_info *i = &s->target.info;
	char index[16];

	snprintf(index, sizeof(index), "%d", i->index);
	OK(barway_device_find(s->ctx, *i->pci ? i->pci : index, &s->dev));
}

void sanity_open(struct sanity *s)
{
	struct barway_open_options o = { .size = sizeof(o) };
	char why[1024];

	o.devices = s->soft ? BARWAY_DEVICES_SOFT : BARWAY_DEVICES_CUDA;
	OK(barway_open(&o, &s->ctx));
	find(s);
	OK(barway_device_activate(s->dev));
	s->gpu = bench_gpu_open(s->ctx, s->dev, why, sizeof(why));
	CHECK(s->gpu, "use the GPU beside Barway: %s", why);
}

void sanity_close(struct sanity *s)
{
	bench_gpu_close(s->gpu);
	s->gpu = NULL;
	OK(barway_close(s->ctx));
	s->ctx = NULL;
}

bool sanity_try_alloc(struct sanity *s, enum bench_memory_kind kind, size_t bytes,
		      struct bench_memory *mem)
{
	int ret = bench_gpu_alloc(s->gpu, kind, bytes, mem);

	CHECK(ret == 0 || ret == -ENOTSUP, "allocate %zu bytes, kind %s: %s", bytes,
	      bench_memory_names[kind], bench_gpu_error(s->gpu));
	return ret == 0;
}

void sanity_alloc(struct sanity *s, enum bench_memory_kind kind, size_t bytes,
		  struct bench_memory *mem)
{
	if (!sanity_try_alloc(s, kind, bytes, mem))
		sanity_waive("%s; so nothing is said about such memory", bench_gpu_error(s->gpu));
}

void sanity_free(struct sanity *s, struct bench_memory *mem)
{
	GPU_OK(bench_gpu_free(s->gpu, mem));
}

void sanity_held(struct sanity *s, struct sanity_held *held)
{
	struct barway_device_info i = { .size = sizeof(i) };
	DIR *d = opendir("/proc/self/fd");

	CHECK(d, "/proc/self/fd: %s", strerror(errno));
	for (held->files = 0; readdir(d); held->files++)
		; /* three more than there are, the same three each time */
	closedir(d);
	OK(barway_device_query(s->dev, &i));
	held->bar1_free = i.bar1_free;
	held->memory_free = i.memory_free;
}

/* ---- data -------------------------------------------------------------------------------- */

void *sanity_host(size_t bytes)
{
	void *p = malloc(bytes);

	CHECK(p, "no host memory, %zu bytes", bytes);
	return p;
}

/* xorshift64*: the same data in each run. */
uint64_t sanity_random(struct sanity *s)
{
	s->random ^= s->random >> 12;
	s->random ^= s->random << 25;
	s->random ^= s->random >> 27;
	return s->random * 0x2545f4914f6cdd1du;
}

void sanity_fill(struct sanity *s, void *p, size_t bytes)
{
	unsigned char *b = p;

	for (; bytes >= 8; bytes -= 8, b += 8) {
		uint64_t r = sanity_random(s);

		memcpy(b, &r, 8);
	}
	for (; bytes; bytes--)
		*b++ = (unsigned char)(sanity_random(s) >> 32);
}

size_t sanity_differs(const void *a, const void *b, size_t bytes)
{
	const unsigned char *x = a, *y = b;
	size_t i = 0;

	if (!memcmp(a, b, bytes))
		return bytes;
	while (x[i] == y[i])
		i++;
	return i;
}

/* What one side has at @addr is what it has to be. */
static void same(const unsigned char *got, const unsigned char *want, size_t bytes,
		 uint64_t addr, const char *what)
{
	size_t at = sanity_differs(got, want, bytes);

	CHECK(at == bytes, "%s: at byte %zu of %zu at 0x%llx there is 0x%02x, not 0x%02x", what,
	      at, bytes, (unsigned long long)addr, got[at], want[at]);
}

void sanity_prove(struct sanity *s, uint64_t addr, size_t bytes, uint64_t around,
		  size_t around_bytes)
{
	unsigned char *want = sanity_host(around_bytes), *got = sanity_host(around_bytes);
	unsigned char *mine = want + (addr - around);
	volatile unsigned char *p;
	struct barway_mapping *m;

	sanity_fill(s, want, around_bytes);
	GPU_OK(bench_gpu_write(s->gpu, around, want, around_bytes));
	OK(barway_map(s->ctx, addr, bytes, NULL, &m));
	OK(barway_copy_from(m, got, 0, bytes));
	same(got, mine, bytes, addr, "the CPU does not see what the GPU wrote");

	sanity_fill(s, mine, bytes);
	OK(barway_copy_to(m, 0, mine, bytes));
	OK(barway_flush(m));
	GPU_OK(bench_gpu_read(s->gpu, got, around, around_bytes));
	same(got, want, around_bytes, around, "the GPU does not see what the CPU copied, or a byte "
	     "beside it changed");

	p = barway_mapping_ptr(m);
	CHECK(p, "barway_mapping_ptr: %s", barway_errmsg());
	p[0] = mine[0] ^= 0xff;
	p[bytes / 2] = mine[bytes / 2] ^= 0x55;
	p[bytes - 1] = mine[bytes - 1] ^= 0xff;
	OK(barway_flush(m));
	GPU_OK(bench_gpu_read(s->gpu, got, around, around_bytes));
	same(got, want, around_bytes, around, "the GPU does not see what the CPU stored, or a byte "
	     "beside it changed");
	OK(barway_unmap(m));
	free(want);
	free(got);
}

/* ---- faults ------------------------------------------------------------------------------ */

static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(fault_jump, 1);
}

bool sanity_faults(volatile unsigned char *p, bool store)
{
	struct sigaction act = { .sa_handler = on_fault }, segv, bus;
	volatile bool fault = true;

	sigaction(SIGSEGV, &act, &segv);
	sigaction(SIGBUS, &act, &bus);
	if (!sigsetjmp(fault_jump, 1)) {
		if (store)
			*p = 1;
		else
			(void)*p;
		fault = false;
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return fault;
}
