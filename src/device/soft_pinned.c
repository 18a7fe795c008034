/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pinned host memory of the soft GPU. It has a device address beside its CPU address, out of the
 * reserved region, so that whoever takes one for the other finds out. A table sorted by CPU address
 * finds it by that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/fault.h"
#include "device/soft_range.h"

static struct soft_range **pinned; /* by ->host; they do not overlap */
static size_t npinned, room;

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* How many begin at @host or before it. */
static size_t before(uint64_t host)
{
	size_t lo = 0, hi = npinned;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if ((uintptr_t)pinned[mid]->host <= host)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct soft_range *soft_pinned_at(uint64_t host)
{
	size_t n = before(host);
	struct soft_range *r = n ? pinned[n - 1] : NULL;

	return r && host - (uintptr_t)r->host < r->one.bytes ? r : NULL;
}

static bool overlaps(uint64_t host, uint64_t bytes)
{
	size_t n = before(host);

	return soft_pinned_at(host) ||
	       (n < npinned && (uintptr_t)pinned[n]->host - host < bytes);
}

static int make_room(void)
{
	size_t more = room ? 2 * room : 16;
	struct soft_range **p;

	if (npinned < room)
		return 0;
	p = bw_alloc_array(more, sizeof(struct soft_range *));
	if (!p)
		return bw_err(ENOMEM, "soft GPU: no host memory");
	if (npinned)
		memcpy(p, pinned, npinned * sizeof(struct soft_range *));
	free(pinned);
	pinned = p;
	room = more;
	return 0;
}

/* Gives [host, host + bytes), whole pages, a device address. Takes soft_lock. */
static int pin(struct soft_card *c, void *host, uint64_t bytes, const void *given,
	       uint64_t *addr)
{
	struct soft_range *r;
	size_t n;
	int ret = soft_enter(c);

	if (ret)
		return ret;
	if (overlaps((uintptr_t)host, bytes))
		ret = bw_err(EEXIST, "pin %p: a part of its %llu bytes is pinned already: "
			     "unregister that first", host, (unsigned long long)bytes);
	else
		ret = make_room();
	if (!ret)
		ret = soft_range_new(RANGE_PINNED, bytes, 0, &r);
	if (!ret) {
		r->host = host;
		r->given = given;
		r->one = (struct soft_alloc){ r->addr, bytes, soft_next_id() };
		soft_range_add(r, c, 0);
		n = before((uintptr_t)host);
		memmove(pinned + n + 1, pinned + n, (npinned - n) * sizeof(*pinned));
		pinned[n] = r;
		npinned++;
		*addr = r->addr;
	}
	soft_leave();
	return ret;
}

/*
 * Undoes it, and waits for kernels, as a driver does. @host as its owner knows it. Returns the
 * size, 0: there is no such.
 */
static uint64_t unpin(const void *host, bool registered)
{
	struct soft_card *card = NULL;
	struct soft_range *r;
	uint64_t bytes = 0;

	soft_take_lock();
	r = soft_pinned_at((uintptr_t)host);
	if (r && (registered ? r->given == host : !r->given && r->host == host)) {
		size_t n = before((uintptr_t)host);

		bytes = r->one.bytes;
		card = r->card;
		memmove(pinned + n - 1, pinned + n, (npinned - n) * sizeof(*pinned));
		npinned--;
		soft_range_delete(r);
	}
	soft_leave();
	if (card)
		soft_kernels_end(card);
	return bytes;
}

/* In a forked child: the ranges are freed with the others; of memory, nothing came along. */
void soft_pinned_forget(void)
{
	free(pinned);
	pinned = NULL;
	npinned = room = 0;
}

int soft_host_alloc(struct bw_device *dev, size_t bytes, void **host, uint64_t *addr)
{
	uint64_t whole = soft_round_up(bytes, page_size());
	void *p;
	int ret;

	if (!bytes || whole < bytes)
		return bw_err(bytes ? ENOMEM : EINVAL,
			      "allocate pinned memory: %zu bytes: give the size in bytes", bytes);
	ret = bw_mmap(&p, NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ret)
		return bw_err(ENOMEM, "allocate pinned memory: %zu bytes: %s", bytes,
			      strerror(-ret));
	(void)madvise(p, whole, MADV_DONTFORK);
	ret = pin(soft_card_of(dev), p, whole, NULL, addr);
	if (ret)
		munmap(p, whole);
	else
		*host = p;
	return ret;
}

int soft_host_free(void *host)
{
	uint64_t bytes = unpin(host, false);

	if (!bytes)
		return bw_err(ENOENT, "free %p: not the start of pinned memory of the soft GPU",
			      host);
	munmap(host, bytes);
	return 0;
}

/* ---- memory of the caller's ---------------------------------------------------------------- */

/*
 * Why [from, end) cannot be pinned; NULL: it can. As a driver has it: memory that can be read and
 * written, and not a mapping of a GPU's.
 */
static const char *unfit(FILE *maps, uint64_t from, uint64_t end)
{
	unsigned long long lo, hi;
	char line[512], perms[8];

	while (from < end) {
		if (!fgets(line, sizeof(line), maps))
			return "a part of it is not mapped";
		if (sscanf(line, "%llx-%llx %7s", &lo, &hi, perms) != 3 || hi <= from)
			continue; /* the rest of a long line, or what lies before it */
		if (lo > from)
			return "a part of it is not mapped";
		if (strncmp(perms, "rw", 2))
			return "a part of it cannot be read and written";
		if (strstr(line, "/memfd:barway-soft") || strstr(line, "/dev/shm/barway-"))
			return "it is a mapping of GPU memory";
		from = hi;
	}
	return NULL;
}

static int fit(const void *host, uint64_t from, uint64_t end)
{
	int fd = bw_open("/proc/self/maps", 0);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	const char *why = NULL;

	if (!maps) {
		if (fd >= 0)
			close(fd);
		return bw_err(fd < 0 ? -fd : ENOMEM, "pin %p: /proc/self/maps: %s", host,
			      strerror(fd < 0 ? -fd : ENOMEM));
	}
	why = unfit(maps, from, end);
	fclose(maps);
	return why ? bw_err(ENOTSUP, "pin %p: %s: give host memory of the process's own", host,
			    why) : 0;
}

int soft_host_register(struct bw_device *dev, void *host, size_t bytes, uint64_t *addr)
{
	uint64_t at = (uintptr_t)host, from = at & ~(page_size() - 1), end, base;
	int ret;

	if (!host || !bytes || at + bytes < at || at + bytes > UINT64_MAX - page_size())
		return bw_err(EINVAL, "pin %p, %zu bytes: not a range: give its start and size",
			      host, bytes);
	end = soft_round_up(at + bytes, page_size());
	ret = fit(host, from, end);
	if (!ret)
		ret = pin(soft_card_of(dev), (void *)(uintptr_t)from, end - from, host, &base);
	if (!ret)
		*addr = base + (at - from);
	return ret;
}

int soft_host_unregister(void *host)
{
	return unpin(host, true) ? 0 :
	       bw_err(ENOENT, "unregister %p: it is not registered with the soft GPU", host);
}
