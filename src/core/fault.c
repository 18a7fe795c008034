/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/param.h"

static const char *const names[BW_FAULT_COUNT] = {
	[BW_FAULT_ALLOC] = "alloc",
	[BW_FAULT_OPEN] = "open",
	[BW_FAULT_IOCTL] = "ioctl",
	[BW_FAULT_MMAP] = "mmap",
	[BW_FAULT_DEVICE_ALLOC] = "device-alloc",
	[BW_FAULT_APERTURE] = "aperture",
	[BW_FAULT_COPY] = "copy",
	[BW_FAULT_THREAD] = "thread",
	[BW_FAULT_CUDA] = "cuda",
};

static _Atomic unsigned left[BW_FAULT_COUNT]; /* calls until the failing one; 0: not armed */

void bw_fault_arm(enum bw_fault kind, unsigned nth)
{
	atomic_store(&left[kind], nth);
}

void bw_fault_disarm_all(void)
{
	for (unsigned i = 0; i < BW_FAULT_COUNT; i++)
		atomic_store(&left[i], 0);
}

bool bw_fault_pending(enum bw_fault kind)
{
	return atomic_load(&left[kind]) != 0;
}

bool bw_fault_hit(enum bw_fault kind)
{
	unsigned n = atomic_load_explicit(&left[kind], memory_order_relaxed);

	while (__builtin_expect(n, 0))
		if (atomic_compare_exchange_weak(&left[kind], &n, n - 1))
			return n == 1;
	return false;
}

/* One "kind@N" of @len bytes. */
static bool parse_one(const char *s, size_t len, unsigned *kind, unsigned *nth)
{
	const char *at = memchr(s, '@', len), *end = s + len;
	unsigned long long n = 0;

	if (!at || at + 1 == end)
		return false;
	for (const char *c = at + 1; c < end; c++) {
		if (*c < '0' || *c > '9')
			return false;
		n = n * 10 + (unsigned)(*c - '0');
		if (n > UINT_MAX)
			return false;
	}
	*nth = (unsigned)n;
	for (*kind = 0; *kind < BW_FAULT_COUNT; ++*kind)
		if (strlen(names[*kind]) == (size_t)(at - s) && !memcmp(names[*kind], s, at - s))
			return n > 0;
	return false;
}

bool bw_fault_check(const char *list)
{
	unsigned kind, nth;
	const char *word;
	size_t n;

	while (bw_list_next(&list, &word, &n))
		if (!parse_one(word, n, &kind, &nth))
			return false;
	return true;
}

void bw_fault_arm_list(const char *list)
{
	unsigned kind, nth;
	const char *word;
	size_t n;

	while (bw_list_next(&list, &word, &n))
		if (parse_one(word, n, &kind, &nth))
			bw_fault_arm(kind, nth);
}

void *bw_alloc(size_t bytes)
{
	return bw_alloc_array(1, bytes);
}

void *bw_alloc_array(size_t n, size_t bytes)
{
	size_t total;

	if (bw_fault_hit(BW_FAULT_ALLOC) || __builtin_mul_overflow(n, bytes, &total) ||
	    total > PTRDIFF_MAX) {
		errno = ENOMEM;
		return NULL;
	}
	return calloc(1, total ? total : 1); /* NULL means one thing only */
}

int bw_above_stdio(int fd)
{
	int up;

	if (fd < 0 || fd > 2)
		return fd;
	up = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (up < 0)
		up = -errno;
	close(fd);
	return up;
}

int bw_open(const char *path, int flags)
{
	int fd;

	if (bw_fault_hit(BW_FAULT_OPEN))
		return -EMFILE;
	do
		fd = open(path, flags | O_CLOEXEC, 0600);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : bw_above_stdio(fd);
}

int bw_ioctl(int fd, unsigned long request, void *arg)
{
	int ret;

	if (bw_fault_hit(BW_FAULT_IOCTL))
		return -EIO;
	do
		ret = ioctl(fd, request, arg);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

int bw_mmap(void **out, void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	void *p;

	if (bw_fault_hit(BW_FAULT_MMAP))
		return -ENOMEM;
	do
		p = mmap(at, bytes, prot, flags, fd, offset);
	while (p == MAP_FAILED && errno == EINTR);
	if (p == MAP_FAILED)
		return -errno;
	*out = p;
	return 0;
}
