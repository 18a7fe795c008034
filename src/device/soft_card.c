/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file behind one soft GPU: a memfd, or a file in /dev/shm where it is shared by name. Both are
 * handled alike; a private soft GPU is a shared one whose file has no name.
 *
 * A process that uses the file has a slot in it, and a lock on the slot's byte, which the kernel
 * drops when the last descriptor and the last mapping of that process are gone: so a lock that is
 * gone means a process that is gone, whatever became of its pid. What it left is freed by the next
 * process that looks. The last process to exit in good order removes the name; a file that nobody
 * has locked is begun afresh by the next one that opens it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/log.h"
#include "core/param.h"
#include "device/soft_int.h"

#define SOFT_MAGIC 0x3174666f73776262ull
#define SOFT_VERSION 1u
#define SOFT_GATE 4000  /* the byte that is locked while the file is opened or left */
#define SOFT_STAYS 1000 /* and on, by slot: locked until the process begins to exit */
#define SOFT_PAGES_MAX (1u << 26) /* 4 TiB: the most that soft_memory may be */

/* ---- locks on bytes of the file ----------------------------------------------------------- */

static int byte_lock(int fd, int cmd, short type, off_t byte)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
	int ret;

	do
		ret = fcntl(fd, cmd, &l);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : 0;
}

/* Does another process have a lock in [first, first + n)? Where it cannot be told: yes. */
static bool slots_alive(int fd, unsigned first, unsigned n)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = n };

	return fcntl(fd, F_OFD_GETLK, &l) < 0 || l.l_type != F_UNLCK;
}

/* ---- pages; the caller holds the card's lock ----------------------------------------------- */

static uint32_t *slot_row(struct soft_card *c, unsigned slot)
{
	return (uint32_t *)(c->pages + c->hdr->npages) + (uint64_t)slot * c->hdr->npages;
}

static uint64_t block_refs(struct soft_card *c, uint64_t page)
{
	uint64_t refs = 0;

	for (unsigned s = 0; s < SOFT_SLOTS; s++)
		if (c->hdr->live[s])
			refs += slot_row(c, s)[page];
	return refs;
}

static void block_free(struct soft_card *c, uint64_t page)
{
	uint64_t bytes = (uint64_t)c->pages[page].pages << SOFT_SHIFT;

	/* gives the memory back and makes it zeroes; where it cannot, the old bytes stay */
	(void)!fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)(c->control_bytes + (page << SOFT_SHIFT)), (off_t)bytes);
	c->pages[page].pages = 0;
}

static void block_free_if_unused(struct soft_card *c, uint64_t page)
{
	if (block_refs(c, page))
		return;
	c->hdr->used -= c->pages[page].pages;
	block_free(c, page);
}

static void slot_clear(struct soft_card *c, unsigned slot)
{
	uint32_t *row = slot_row(c, slot);
	uint64_t n;

	for (uint64_t i = 0; i < c->hdr->npages; i += n) {
		n = c->pages[i].pages ? c->pages[i].pages : 1;
		if (!c->pages[i].pages || !row[i])
			continue;
		row[i] = 0;
		block_free_if_unused(c, i);
	}
	c->hdr->held[slot] = 0;
	c->hdr->live[slot] = 0;
}

static void reclaim_dead(struct soft_card *c)
{
	for (unsigned s = 0; s < SOFT_SLOTS; s++)
		if (s != c->slot && c->hdr->live[s] && !slots_alive(c->fd, s, 1))
			slot_clear(c, s);
}

/* A process died with the lock held: pages that it took but did not yet count as its own. */
static void repair(struct soft_card *c)
{
	uint64_t n, used = 0;

	for (uint64_t i = 0; i < c->hdr->npages; i += n) {
		n = c->pages[i].pages ? c->pages[i].pages : 1;
		if (c->pages[i].pages && !block_refs(c, i))
			block_free(c, i);
		else if (c->pages[i].pages)
			used += n;
	}
	c->hdr->used = used;
}

static void card_lock(struct soft_card *c)
{
	if (pthread_mutex_lock(&c->hdr->lock) != EOWNERDEAD)
		return;
	repair(c);
	pthread_mutex_consistent(&c->hdr->lock);
}

static void card_unlock(struct soft_card *c)
{
	pthread_mutex_unlock(&c->hdr->lock);
}

static bool find_run(struct soft_card *c, uint64_t want, uint32_t *page, uint64_t *largest)
{
	uint64_t n, run = 0;

	*largest = 0;
	for (uint64_t i = 0; i < c->hdr->npages; i += n) {
		n = c->pages[i].pages ? c->pages[i].pages : 1;
		run = c->pages[i].pages ? 0 : run + 1;
		*largest = run > *largest ? run : *largest;
		if (run == want) {
			*page = (uint32_t)(i + 1 - want);
			return true;
		}
	}
	return false;
}

/* A named file lies in /dev/shm, which may be small: better an error now than SIGBUS later. */
static int commit(struct soft_card *c, off_t offset, uint64_t bytes)
{
	int ret;

	if (!c->path[0])
		return 0;
	do
		ret = fallocate(c->fd, 0, offset, (off_t)bytes);
	while (ret && errno == EINTR);
	if (!ret)
		return 0;
	return bw_err(
		errno == ENOSPC ? ENOMEM : errno,
		"soft GPU %d: %s: %s: needs %llu bytes of /dev/shm: make it larger, or use less",
		c->dev.index, c->path, strerror(errno), (unsigned long long)bytes);
}

int soft_card_take(struct soft_card *c, uint64_t npages, uint32_t *page)
{
	uint64_t largest;
	uint32_t p;
	int ret = 0;

	card_lock(c);
	if (!find_run(c, npages, &p, &largest)) {
		reclaim_dead(c);
		if (!find_run(c, npages, &p, &largest)) {
			ret = bw_err(ENOMEM,
				     "allocate on soft GPU %d: needs %llu bytes in one piece, "
				     "%llu are free, %llu in one piece: free memory or raise the "
				     "parameter soft_memory",
				     c->dev.index, (unsigned long long)npages << SOFT_SHIFT,
				     (unsigned long long)(c->hdr->npages - c->hdr->used)
					     << SOFT_SHIFT,
				     (unsigned long long)largest << SOFT_SHIFT);
			goto out;
		}
	}
	ret = commit(c, (off_t)(c->control_bytes + ((uint64_t)p << SOFT_SHIFT)),
		     npages << SOFT_SHIFT);
	if (ret)
		goto out;
	c->pages[p].serial = ++c->hdr->serial;
	__atomic_store_n(&c->pages[p].pages, (uint32_t)npages, __ATOMIC_RELEASE);
	__atomic_store_n(&c->row[p], 1, __ATOMIC_RELEASE);
	c->hdr->used += npages;
	*page = p;
out:
	card_unlock(c);
	return ret;
}

void soft_card_get(struct soft_card *c, uint32_t page)
{
	card_lock(c);
	c->row[page]++;
	card_unlock(c);
}

void soft_card_put(struct soft_card *c, uint32_t page)
{
	card_lock(c);
	if (!--c->row[page])
		block_free_if_unused(c, page);
	card_unlock(c);
}

int soft_card_import(struct soft_card *c, uint32_t page, uint64_t serial)
{
	int ret = -ENOENT;

	card_lock(c);
	if (page < c->hdr->npages && c->pages[page].pages && c->pages[page].serial == serial) {
		c->row[page]++;
		ret = 0;
	}
	card_unlock(c);
	return ret;
}

uint64_t soft_card_serial(struct soft_card *c, uint32_t page)
{
	return c->pages[page].serial; /* does not change while the caller has a reference */
}

uint32_t soft_card_pages(struct soft_card *c, uint32_t page)
{
	return c->pages[page].pages;
}

/* ---- aperture ------------------------------------------------------------------------------ */

static uint64_t aperture_held(struct soft_card *c)
{
	uint64_t held = 0;

	for (unsigned s = 0; s < SOFT_SLOTS; s++)
		held += c->hdr->held[s];
	return held;
}

int soft_card_hold(struct soft_card *c, uint64_t npages)
{
	uint64_t free_pages;
	int ret = 0;

	card_lock(c);
	free_pages = c->hdr->aperture - aperture_held(c);
	if (free_pages < npages) {
		reclaim_dead(c);
		free_pages = c->hdr->aperture - aperture_held(c);
	}
	if (free_pages < npages)
		ret = bw_err(
			ENOMEM,
			"map on soft GPU %d: the BAR1 aperture is full: needs %llu bytes, "
			"%llu are free of %llu: unmap something or raise the parameter soft_bar1",
			c->dev.index, (unsigned long long)npages << SOFT_SHIFT,
			(unsigned long long)free_pages << SOFT_SHIFT,
			(unsigned long long)c->hdr->aperture << SOFT_SHIFT);
	else
		c->hdr->held[c->slot] += npages;
	card_unlock(c);
	return ret;
}

void soft_card_unhold(struct soft_card *c, uint64_t npages)
{
	card_lock(c);
	c->hdr->held[c->slot] -= npages;
	card_unlock(c);
}

void soft_card_info(struct soft_card *c, uint64_t *free_pages, uint64_t *free_aperture)
{
	card_lock(c);
	reclaim_dead(c);
	*free_pages = c->hdr->npages - c->hdr->used;
	*free_aperture = c->hdr->aperture - aperture_held(c);
	card_unlock(c);
}

/* ---- opening ------------------------------------------------------------------------------- */

static int name_path(struct soft_card *c, int index)
{
	const char *name = bw_param_text(BW_P_SOFT_SHARED);

	c->path[0] = 0;
	if (!name || !*name)
		return 0;
	if (strlen(name) > 64 || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					      "0123456789._-") != strlen(name))
		return bw_err(EINVAL, "parameter soft_shared \"%.80s\": not a name: use up to 64 "
			      "letters, digits, '.', '_' and '-'", name);
	snprintf(c->path, sizeof(c->path), "/dev/shm/barway-%u-%s-%d", (unsigned)geteuid(), name,
		 index);
	return 0;
}

static uint64_t control_size(uint64_t npages)
{
	uint64_t bytes = 4096 + npages * (sizeof(struct soft_page) + SOFT_SLOTS * sizeof(uint32_t));

	return (bytes + BW_SOFT_PAGE - 1) & ~(uint64_t)(BW_SOFT_PAGE - 1);
}

static int memory_file(void)
{
	int fd;

	if (bw_fault_hit(BW_FAULT_OPEN))
		return -EMFILE;
	fd = memfd_create("barway-soft", MFD_CLOEXEC);
	return fd < 0 ? -errno : bw_above_stdio(fd);
}

/* Opens the file and takes its gate: nobody else opens or leaves it until it is let go. */
static int file_open(struct soft_card *c)
{
	struct stat st;
	int ret;

	for (;;) {
		ret = c->path[0] ? bw_open(c->path, O_RDWR | O_CREAT | O_NOFOLLOW) : memory_file();
		if (ret < 0)
			return bw_err(-ret, "open soft GPU %d: %s: %s", c->dev.index,
				      c->path[0] ? c->path : "memfd_create", strerror(-ret));
		c->fd = ret;
		ret = byte_lock(c->fd, F_OFD_SETLKW, F_WRLCK, SOFT_GATE);
		if (ret || fstat(c->fd, &st))
			return bw_err(ret ? -ret : errno,
				      "open soft GPU %d: cannot lock its file: %s", c->dev.index,
				      strerror(ret ? -ret : errno));
		if (!c->path[0])
			return 0;
		if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
			return bw_err(EACCES,
				      "open soft GPU %d: %s is not a file of this user alone: "
				      "remove it or choose another name for soft_shared",
				      c->dev.index, c->path);
		if (st.st_nlink)
			return 0;
		close(c->fd); /* its last user removed the name after we had opened it */
		c->fd = -1;
	}
}

static int map_shared(void **out, struct soft_card *c, uint64_t bytes, uint64_t offset)
{
	int ret = bw_mmap(out, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			  c->fd, (off_t)offset);

	if (!ret && madvise(*out, bytes, MADV_DONTFORK)) {
		ret = -errno;
		munmap(*out, bytes);
		*out = NULL;
	}
	if (ret)
		return bw_err(-ret,
			      "open soft GPU %d: cannot map %llu bytes: %s: lower the parameter "
			      "soft_memory",
			      c->dev.index, (unsigned long long)bytes, strerror(-ret));
	(void)madvise(*out, bytes, MADV_DONTDUMP);
	return 0;
}

static int map_all(struct soft_card *c, uint64_t npages)
{
	void *p;
	int ret;

	c->control_bytes = control_size(npages);
	ret = map_shared(&p, c, c->control_bytes, 0);
	if (ret)
		return ret;
	c->hdr = p;
	c->pages = (struct soft_page *)((char *)p + 4096);
	ret = map_shared(&p, c, npages << SOFT_SHIFT, c->control_bytes);
	if (ret)
		return ret;
	c->view = p;
	c->dev.memory_total = npages << SOFT_SHIFT;
	return 0;
}

/* Nobody uses the file: whatever is in it is made new. */
static int format(struct soft_card *c, uint64_t npages, uint64_t aperture)
{
	pthread_mutexattr_t attr;
	int ret;

	if (ftruncate(c->fd, 0) ||
	    ftruncate(c->fd, (off_t)(control_size(npages) + (npages << SOFT_SHIFT))))
		return bw_err(errno,
			      "open soft GPU %d: cannot make a file of %llu bytes: %s: lower the "
			      "parameter soft_memory",
			      c->dev.index, (unsigned long long)npages << SOFT_SHIFT,
			      strerror(errno));
	ret = commit(c, 0, 4096 + npages * sizeof(struct soft_page));
	if (!ret)
		ret = map_all(c, npages);
	if (ret)
		return ret;
	*c->hdr = (struct soft_header){
		.version = SOFT_VERSION, .header_bytes = sizeof(struct soft_header),
		.npages = npages, .aperture = aperture,
	};
	if (getrandom(&c->hdr->token, sizeof(c->hdr->token), 0) != sizeof(c->hdr->token))
		return bw_err(EIO, "open soft GPU %d: no random number: %s", c->dev.index,
			      strerror(errno));
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	ret = pthread_mutex_init(&c->hdr->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	c->hdr->magic = SOFT_MAGIC;
	return ret ? bw_err(ret, "open soft GPU %d: no mutex: %s", c->dev.index, strerror(ret)) : 0;
}

/* Other processes use it: it has the size that they gave it. */
static int join(struct soft_card *c, uint64_t npages, uint64_t aperture)
{
	struct soft_header h;
	struct stat st;
	int ret;

	if (pread(c->fd, &h, sizeof(h), 0) != sizeof(h) || fstat(c->fd, &st) ||
	    h.magic != SOFT_MAGIC || h.version != SOFT_VERSION || h.header_bytes != sizeof(h) ||
	    !h.npages || h.npages > SOFT_PAGES_MAX ||
	    (uint64_t)st.st_size != control_size(h.npages) + (h.npages << SOFT_SHIFT))
		return bw_err(EPROTO,
			      "open soft GPU %d: %s was made by another version of Barway: end "
			      "the processes that use it or choose another name for soft_shared",
			      c->dev.index, c->path);
	ret = map_all(c, h.npages);
	if (!ret && (h.npages != npages || h.aperture != aperture))
		bw_log(BW_LOG_INFO, "soft GPU %d: %s is in use with its own sizes: soft_memory and "
		       "soft_bar1 are not looked at", c->dev.index, c->path);
	return ret;
}

static int slot_take(struct soft_card *c)
{
	int ret = -EBUSY;
	unsigned s;

	c->slot = SOFT_SLOTS;
	card_lock(c);
	reclaim_dead(c);
	for (s = 0; s < SOFT_SLOTS; s++)
		if (!c->hdr->live[s] && !byte_lock(c->fd, F_OFD_SETLK, F_WRLCK, s) &&
		    !byte_lock(c->fd, F_OFD_SETLK, F_WRLCK, SOFT_STAYS + s))
			break;
	if (s < SOFT_SLOTS) {
		c->row = slot_row(c, s);
		ret = commit(c, (char *)c->row - (char *)c->hdr, c->hdr->npages * sizeof(*c->row));
		if (!ret) {
			memset(c->row, 0, c->hdr->npages * sizeof(*c->row));
			c->slot = s;
			c->hdr->held[s] = 0;
			__atomic_store_n(&c->hdr->live[s], 1, __ATOMIC_RELEASE);
		}
	}
	card_unlock(c);
	if (ret == -EBUSY)
		return bw_err(EBUSY, "open soft GPU %d: %u processes use %s: end one", c->dev.index,
			      SOFT_SLOTS, c->path);
	return ret;
}

int soft_card_open(struct soft_card *c, int index)
{
	uint64_t npages = bw_param_size(BW_P_SOFT_MEMORY) >> SOFT_SHIFT;
	uint64_t aperture = bw_param_size(BW_P_SOFT_BAR1) >> SOFT_SHIFT;
	int ret;

	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->dev.index = index;
	ret = name_path(c, index);
	if (!ret)
		ret = file_open(c);
	if (!ret)
		ret = c->path[0] && slots_alive(c->fd, 0, SOFT_SLOTS) ? join(c, npages, aperture) :
									format(c, npages, aperture);
	if (!ret)
		ret = slot_take(c);
	if (ret) {
		soft_card_close(c);
		return ret;
	}
	byte_lock(c->fd, F_OFD_SETLK, F_UNLCK, SOFT_GATE);
	c->open = true;
	return 0;
}

void soft_card_leave(struct soft_card *c)
{
	struct stat ours, named;

	if (!c->path[0] || c->fd < 0 || byte_lock(c->fd, F_OFD_SETLKW, F_WRLCK, SOFT_GATE))
		return;
	/* two that exit at once each see the other's slot in use, but not that it means to stay */
	byte_lock(c->fd, F_OFD_SETLK, F_UNLCK, SOFT_STAYS + (off_t)c->slot);
	/* never somebody else's file: an open that failed may have found one */
	if (!slots_alive(c->fd, SOFT_STAYS, SOFT_SLOTS) && !fstat(c->fd, &ours) &&
	    !lstat(c->path, &named) && ours.st_uid == geteuid() && ours.st_dev == named.st_dev &&
	    ours.st_ino == named.st_ino)
		unlink(c->path);
	byte_lock(c->fd, F_OFD_SETLK, F_UNLCK, SOFT_GATE);
}

void soft_card_close(struct soft_card *c)
{
	soft_card_leave(c);
	if (c->view)
		munmap(c->view, c->dev.memory_total);
	if (c->hdr)
		munmap(c->hdr, c->control_bytes);
	if (c->fd >= 0)
		close(c->fd);
	c->view = NULL;
	c->hdr = NULL;
	c->fd = -1;
	c->open = false;
}

void soft_card_forget(struct soft_card *c)
{
	/* the mappings did not come along (MADV_DONTFORK); the descriptor would keep the slot */
	if (c->open)
		close(c->fd);
	c->fd = -1;
	c->open = false;
	c->view = NULL;
	c->hdr = NULL;
	c->ce = NULL;
}
