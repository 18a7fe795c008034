/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interposer: libc's file functions, for the NVIDIA driver's files.
 *
 * A device file is a memfd of its own, so its number behaves like any other. It is recognised by
 * its inode, so that copies made by dup(), fork() or SCM_RIGHTS are recognised too. Its open file
 * description carries a lock; a file is gone when nobody holds that lock any more, which can be
 * seen from another description of the same inode.
 *
 * Until the constructor has run (a sanitizer's run-time may come this way before) the system calls
 * are made directly; afterwards whatever follows in the search order is called.
 */

/* Both make open() and others into something else, which here have to be defined. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "rm.h"

#define NV_MAJOR 195 /* nv.c: NV_MAJOR_DEVICE_NUMBER */
#define NV_CTL_MINOR 255
#define LINUX_ENOTSUPP 524

static struct {
	int (*openat)(int, const char *, int, ...);
	int (*close)(int);
	int (*ioctl)(int, unsigned long, ...);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	int (*fstat)(int, struct stat *);
	int (*stat)(const char *, struct stat *);
	int (*lstat)(const char *, struct stat *);
	int (*access)(const char *, int);
	FILE *(*fopen)(const char *, const char *);
} real;

__attribute__((constructor)) static void resolve(void)
{
	/* ISO C has no conversion from void * to a function pointer; POSIX has it by memcpy */
#define RESOLVE(name) do { \
	void *p_ = dlsym(RTLD_NEXT, #name); \
	memcpy(&real.name, &p_, sizeof(p_)); \
} while (0)
	RESOLVE(openat);
	RESOLVE(close);
	RESOLVE(ioctl);
	RESOLVE(mmap);
	RESOLVE(munmap);
	RESOLVE(fstat);
	RESOLVE(stat);
	RESOLVE(lstat);
	RESOLVE(access);
	RESOLVE(fopen);
}

void *sys_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
}

int sys_munmap(void *addr, size_t len)
{
	return (int)syscall(SYS_munmap, addr, len);
}

int sys_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static int sys_fstat(int fd, struct stat *st)
{
#ifdef SYS_newfstatat
	return (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
#else
	return (int)syscall(SYS_fstat, fd, st);
#endif
}

/* Makes the memfd of a new file. */
int rm_new_fd(struct rm *rm, enum file_kind kind, int gpu, int flags, struct rm_file **out)
{
	struct rm_file *file = NULL;
	struct stat st;
	int fd;

	for (int i = 0; i < RM_FILES && !file; i++)
		if (!rm->file[i].used)
			file = &rm->file[i];
	if (!file) {
		errno = ENFILE;
		return -1;
	}
	fd = (int)syscall(SYS_memfd_create, "fakenv", flags & O_CLOEXEC ? 1u : 0u);
	if (fd < 0)
		return -1;
	if (sys_fstat(fd, &st) || flock(fd, LOCK_EX | LOCK_NB)) {
		sys_close(fd);
		errno = ENFILE;
		return -1;
	}
	memset(file, 0, sizeof(*file));
	file->used = true;
	file->kind = kind;
	file->gpu = gpu;
	file->pid = getpid();
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	file->ctl = file->map = file->export_mem = -1;
	rm->nfiles++;
	if (kind == FILE_CTL || kind == FILE_DEV)
		rm->count.opens++;
	if (out)
		*out = file;
	return fd;
}

static bool any_files(void)
{
	struct rm *rm = rm_state;

	return rm && rm->nfiles;
}

/* Cheap way out for the great majority: not a memfd. */
static bool may_be_ours(int fd, struct stat *st)
{
	int saved = errno;
	bool may = fd >= 0 && any_files() && !sys_fstat(fd, st) && S_ISREG(st->st_mode) &&
		   !st->st_nlink;

	errno = saved;
	return may;
}

static struct rm_file *find_file(struct rm *rm, const struct stat *st)
{
	for (int i = 0; i < RM_FILES; i++) {
		struct rm_file *file = &rm->file[i];

		if (file->used && file->ino == st->st_ino && file->dev == st->st_dev)
			return file;
	}
	return NULL;
}

struct rm_file *rm_file_of_fd(struct rm *rm, int fd)
{
	struct stat st;

	return may_be_ours(fd, &st) ? find_file(rm, &st) : NULL;
}

/* Nobody has the file open: it goes, unless CPU mappings or other files keep it. */
static void last_close(struct rm *rm, struct rm_file *file)
{
	if (file->closed && file->keeper >= 0 && file->keeper_pid == getpid())
		sys_close(file->keeper);
	file->closed = true;
	file->keeper = -1;
	if (!file->vmas && !file->holds)
		rm_file_gone(rm, file);
}

static bool dead(pid_t pid)
{
	return pid != getpid() && kill(pid, 0) && errno == ESRCH;
}

/*
 * Looks whether files that were closed here, but were open elsewhere, are closed there too now, and
 * clears up after processes that are gone.
 */
void rm_reap(struct rm *rm)
{
	int saved = errno;

	for (int i = 0; i < RM_VMAS && rm->nvmas; i++)
		if (rm->vma[i].used && dead(rm->vma[i].pid))
			rm_map_unref_vma(rm, &rm->vma[i]);
	for (int i = 0; i < RM_FILES; i++) {
		struct rm_file *file = &rm->file[i];

		if (!file->used)
			continue;
		if (file->closed && file->keeper >= 0 && file->keeper_pid == getpid()) {
			if (!flock(file->keeper, LOCK_EX | LOCK_NB))
				last_close(rm, file);
		} else if (dead(file->pid)) {
			last_close(rm, file);
		}
	}
	errno = saved;
}

/* After a close(): gone, if @keeper can have the lock; else open elsewhere still. */
static void closed(struct rm *rm, struct rm_file *file, int keeper)
{
	bool own = file->pid == getpid();
	int high;

	if (!flock(keeper, LOCK_EX | LOCK_NB)) {
		sys_close(keeper);
		last_close(rm, file);
		return;
	}
	if (!own || file->closed) {
		sys_close(keeper);
		return;
	}
	high = fcntl(keeper, F_DUPFD_CLOEXEC, 800);
	if (high >= 0) {
		sys_close(keeper);
		keeper = high;
	}
	file->closed = true;
	file->keeper = keeper;
	file->keeper_pid = getpid();
}

FAKE_API int close(int fd)
{
	char path[64];
	struct rm_file *file;
	struct stat st;
	int keeper = -1, rc;

	if (!may_be_ours(fd, &st))
		return real.close ? real.close(fd) : sys_close(fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rm_lock();
	file = find_file(rm_state, &st);
	if (file)
		keeper = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	rc = real.close ? real.close(fd) : sys_close(fd);
	if (keeper >= 0)
		closed(rm_state, file, keeper);
	rm_unlock();
	return rc;
}

enum path_kind { PATH_NONE, PATH_CTL, PATH_DEV, PATH_PLAIN_DEV, PATH_TEXT, PATH_DIR, PATH_ABSENT };

struct path {
	enum path_kind kind;
	int gpu;
	unsigned minor;
	char text[256];
};

#ifdef __x86_64__
#define MACHINE "x86_64"
#else
#define MACHINE "aarch64"
#endif

static const char DEV_PREFIX[] = "/dev/nvidia";
/* libcuda's way where a machine's libcuda would use other files than the NVIDIA ones */
static const char BACK_PREFIX[] = "/dev/fakenv/nvidia";
static const char CAPS_PREFIX[] = "/proc/driver/nvidia/capabilities";

static void device_path(const struct rm *rm, const char *rest, bool back, struct path *out)
{
	const struct rm_config *c = &rm->config;
	bool other = !back && (c->wsl || c->jetson);
	char *end;
	unsigned long minor;

	out->kind = PATH_ABSENT;
	if (!strcmp(rest, "ctl")) {
		if (c->ctl && !other)
			out->kind = PATH_CTL;
		out->minor = NV_CTL_MINOR;
		return;
	}
	if (!strcmp(rest, "-uvm")) {
		if (c->nodes && !other)
			out->kind = PATH_PLAIN_DEV;
		return;
	}
	if (*rest < '0' || *rest > '9')
		return;
	minor = strtoul(rest, &end, 10);
	for (int i = 0; i < c->gpus; i++) {
		if (!*end && rm->gpu[i].minor == minor && c->nodes && !other) {
			out->kind = PATH_DEV;
			out->gpu = i;
			out->minor = (unsigned)minor;
		}
	}
}

/* ctrl0080gpu.h and nv-caps.c: gpu<minor>/mig/gi<n>/access exists for each GPU instance */
static void caps_path(const struct rm *rm, const char *rest, struct path *out)
{
	unsigned minor;
	int n = 0;

	out->kind = PATH_ABSENT;
	if (!*rest || !strcmp(rest, "/") || !strcmp(rest, "/mig")) {
		out->kind = PATH_DIR;
		return;
	}
	if (!strcmp(rest, "/mig/config") || !strcmp(rest, "/mig/monitor")) {
		out->kind = PATH_TEXT;
		strcpy(out->text, "DeviceFileMinor: 1\nDeviceFileMode: 256\n");
		return;
	}
	if (sscanf(rest, "/gpu%u%n", &minor, &n) != 1)
		return;
	for (int i = 0; i < rm->config.gpus; i++) {
		if (rm->gpu[i].minor != minor)
			continue;
		rest += n;
		if (!*rest || !strcmp(rest, "/mig"))
			out->kind = PATH_DIR;
		if (!rm->config.mig)
			return;
		if (!strcmp(rest, "/mig/gi1") || !strcmp(rest, "/mig/gi1/ci0"))
			out->kind = PATH_DIR;
		if (!strcmp(rest, "/mig/gi1/access") || !strcmp(rest, "/mig/gi1/ci0/access")) {
			out->kind = PATH_TEXT;
			strcpy(out->text, "DeviceFileMinor: 3\nDeviceFileMode: 292\n");
		}
		return;
	}
}

static void text_path(const struct rm *rm, const char *path, struct path *out)
{
	const struct rm_config *c = &rm->config;
	bool absent = c->wsl || c->jetson;

	out->kind = PATH_ABSENT;
	if (!strcmp(path, "/sys/module/nvidia/version")) {
		if (!c->sysfs_version || absent)
			return;
		snprintf(out->text, sizeof(out->text), "%s\n", c->driver);
	} else {
		if (!c->proc_version || absent)
			return;
		/* nv-procfs.c, and NVRM_ID of the two kernel modules */
		snprintf(out->text, sizeof(out->text),
			 "NVRM version: NVIDIA UNIX %s  %s  Release Build  (builder@host)\n"
			 "GCC version:  gcc version 12.2.0\n",
			 c->open_module ? "Open Kernel Module for " MACHINE :
			 MACHINE " Kernel Module",
			 c->driver);
	}
	out->kind = PATH_TEXT;
}

/* What there is at @path for us to answer. */
static enum path_kind look_up(const char *path, struct path *out)
{
	struct rm *rm;
	bool back;

	out->kind = PATH_NONE;
	out->gpu = -1;
	out->minor = 0;
	out->text[0] = 0;
	path = rm_without_root(path);
	if (!path || (strncmp(path, "/dev/", 5) && strncmp(path, "/proc/driver/", 13) &&
		      strncmp(path, "/sys/module/nvidia/", 19)))
		return PATH_NONE;
	rm = rm_get();
	rm_lock();
	back = !strncmp(path, BACK_PREFIX, sizeof(BACK_PREFIX) - 1);
	if (back)
		device_path(rm, path + sizeof(BACK_PREFIX) - 1, true, out);
	else if (!strncmp(path, DEV_PREFIX, sizeof(DEV_PREFIX) - 1))
		device_path(rm, path + sizeof(DEV_PREFIX) - 1, false, out);
	else if (!strcmp(path, "/dev/dxg"))
		out->kind = rm->config.wsl ? PATH_PLAIN_DEV : PATH_ABSENT;
	else if (!strcmp(path, "/dev/nvmap"))
		out->kind = rm->config.jetson ? PATH_PLAIN_DEV : PATH_ABSENT;
	else if (!strcmp(path, "/dev/gdrdrv"))
		out->kind = rm->config.gdrdrv ? PATH_PLAIN_DEV : PATH_ABSENT;
	else if (!strcmp(path, "/sys/module/nvidia/version") ||
		 !strcmp(path, "/proc/driver/nvidia/version"))
		text_path(rm, path, out);
	else if (!strncmp(path, CAPS_PREFIX, sizeof(CAPS_PREFIX) - 1) &&
		 (!path[sizeof(CAPS_PREFIX) - 1] || path[sizeof(CAPS_PREFIX) - 1] == '/'))
		caps_path(rm, path + sizeof(CAPS_PREFIX) - 1, out);
	rm_unlock();
	return out->kind;
}

static int text_fd(const char *text, int flags)
{
	size_t len = strlen(text);
	int fd = (int)syscall(SYS_memfd_create, "fakenv-text", flags & O_CLOEXEC ? 1u : 0u);

	if (fd >= 0 && pwrite(fd, text, len, 0) != (ssize_t)len) {
		sys_close(fd);
		fd = -1;
		errno = ENOSPC;
	}
	return fd;
}

static int open_ours(const struct path *p, int flags)
{
	struct rm *rm = rm_get();
	enum file_kind kind = p->kind == PATH_CTL ? FILE_CTL : p->kind == PATH_DEV ? FILE_DEV :
			      FILE_OTHER;
	int fd = -1;

	switch (p->kind) {
	case PATH_TEXT:
		return text_fd(p->text, flags);
	case PATH_DIR:
		errno = EACCES;
		return -1;
	case PATH_CTL:
	case PATH_DEV:
	case PATH_PLAIN_DEV:
		rm_lock();
		if (rm->config.eacces)
			errno = (int)rm->config.eacces;
		else
			fd = rm_new_fd(rm, kind, p->gpu, flags, NULL);
		rm_unlock();
		return fd;
	default:
		errno = ENOENT;
		return -1;
	}
}

static int do_openat(int dir, const char *path, int flags, unsigned mode)
{
	struct path p;

	if (look_up(path, &p) != PATH_NONE)
		return open_ours(&p, flags);
	if (real.openat)
		return real.openat(dir, path, flags, mode);
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

static bool wants_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

#define MODE_ARGUMENT(flags, mode) do { \
	va_list ap_; \
	va_start(ap_, flags); \
	mode = wants_mode(flags) ? va_arg(ap_, unsigned) : 0; \
	va_end(ap_); \
} while (0)

FAKE_API int open(const char *path, int flags, ...)
{
	unsigned mode;

	MODE_ARGUMENT(flags, mode);
	return do_openat(AT_FDCWD, path, flags, mode);
}

FAKE_API int open64(const char *path, int flags, ...)
{
	unsigned mode;

	MODE_ARGUMENT(flags, mode);
	return do_openat(AT_FDCWD, path, flags, mode);
}

FAKE_API int openat(int dir, const char *path, int flags, ...)
{
	unsigned mode;

	MODE_ARGUMENT(flags, mode);
	return do_openat(dir, path, flags, mode);
}

FAKE_API int openat64(int dir, const char *path, int flags, ...)
{
	unsigned mode;

	MODE_ARGUMENT(flags, mode);
	return do_openat(dir, path, flags, mode);
}

/* what open() becomes under _FORTIFY_SOURCE */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

FAKE_API int __open_2(const char *path, int flags)
{
	return do_openat(AT_FDCWD, path, flags, 0);
}

FAKE_API int __open64_2(const char *path, int flags)
{
	return do_openat(AT_FDCWD, path, flags, 0);
}

FAKE_API int __openat_2(int dir, const char *path, int flags)
{
	return do_openat(dir, path, flags, 0);
}

FAKE_API int __openat64_2(int dir, const char *path, int flags)
{
	return do_openat(dir, path, flags, 0);
}

static FILE *do_fopen(const char *path, const char *mode)
{
	struct path p;
	FILE *f;
	int fd;

	if (look_up(path, &p) == PATH_NONE) {
		void *sym;

		if (real.fopen)
			return real.fopen(path, mode);
		sym = dlsym(RTLD_NEXT, "fopen");
		memcpy(&real.fopen, &sym, sizeof(sym));
		return real.fopen(path, mode);
	}
	fd = open_ours(&p, O_CLOEXEC);
	if (fd < 0)
		return NULL;
	f = fdopen(fd, "r");
	if (!f)
		sys_close(fd);
	return f;
}

FAKE_API FILE *fopen(const char *path, const char *mode)
{
	return do_fopen(path, mode);
}

FAKE_API FILE *fopen64(const char *path, const char *mode)
{
	return do_fopen(path, mode);
}

static void fill_stat(struct stat *st, enum path_kind kind, unsigned minor)
{
	memset(st, 0, sizeof(*st));
	st->st_nlink = 1;
	st->st_blksize = 4096;
	st->st_ino = 1000 + minor;
	switch (kind) {
	case PATH_CTL:
	case PATH_DEV:
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = makedev(NV_MAJOR, minor);
		break;
	case PATH_PLAIN_DEV:
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = makedev(511, 0);
		break;
	case PATH_DIR:
		st->st_mode = S_IFDIR | 0555;
		break;
	default:
		st->st_mode = S_IFREG | 0444;
	}
}

static int stat_ours(const struct path *p, struct stat *st)
{
	if (p->kind == PATH_ABSENT) {
		errno = ENOENT;
		return -1;
	}
	fill_stat(st, p->kind, p->minor);
	return 0;
}

static int do_stat(const char *path, struct stat *st)
{
	struct path p;

	if (look_up(path, &p) != PATH_NONE)
		return stat_ours(&p, st);
	if (real.stat)
		return real.stat(path, st);
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

static int do_lstat(const char *path, struct stat *st)
{
	struct path p;

	if (look_up(path, &p) != PATH_NONE)
		return stat_ours(&p, st);
	if (real.lstat)
		return real.lstat(path, st);
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

static int do_fstat(int fd, struct stat *st)
{
	struct rm_file *file = NULL;
	struct stat mine;

	if (may_be_ours(fd, &mine)) {
		rm_lock();
		file = find_file(rm_state, &mine);
		if (file && file->kind == FILE_DMABUF)
			file = NULL;
		if (file) {
			bool dev = file->kind == FILE_DEV;

			fill_stat(st, dev ? PATH_DEV : file->kind == FILE_CTL ? PATH_CTL :
				  PATH_PLAIN_DEV,
				  dev ? rm_state->gpu[file->gpu].minor : NV_CTL_MINOR);
		}
		rm_unlock();
		if (file)
			return 0;
	}
	return real.fstat ? real.fstat(fd, st) : sys_fstat(fd, st);
}

FAKE_API int stat(const char *restrict path, struct stat *restrict st)
{
	return do_stat(path, st);
}

FAKE_API int lstat(const char *restrict path, struct stat *restrict st)
{
	return do_lstat(path, st);
}

FAKE_API int fstat(int fd, struct stat *st)
{
	return do_fstat(fd, st);
}

/* On the 64-bit machines that this is for, struct stat64 is struct stat. */
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "stat64 is another struct");
_Static_assert(sizeof(off_t) == 8, "off_t is short");

FAKE_API int stat64(const char *restrict path, struct stat64 *restrict st)
{
	return do_stat(path, (struct stat *)(void *)st);
}

FAKE_API int lstat64(const char *restrict path, struct stat64 *restrict st)
{
	return do_lstat(path, (struct stat *)(void *)st);
}

FAKE_API int fstat64(int fd, struct stat64 *st)
{
	return do_fstat(fd, (struct stat *)(void *)st);
}

/* What fstat() and the others were before glibc 2.33, and are to ThreadSanitizer's interceptors. */
int __fxstat(int version, int fd, struct stat *st);
int __fxstat64(int version, int fd, struct stat64 *st);
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);

FAKE_API int __fxstat(int version, int fd, struct stat *st)
{
	(void)version;
	return do_fstat(fd, st);
}

FAKE_API int __fxstat64(int version, int fd, struct stat64 *st)
{
	(void)version;
	return do_fstat(fd, (struct stat *)(void *)st);
}

FAKE_API int __xstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return do_stat(path, st);
}

FAKE_API int __xstat64(int version, const char *path, struct stat64 *st)
{
	(void)version;
	return do_stat(path, (struct stat *)(void *)st);
}

FAKE_API int __lxstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return do_lstat(path, st);
}

FAKE_API int __lxstat64(int version, const char *path, struct stat64 *st)
{
	(void)version;
	return do_lstat(path, (struct stat *)(void *)st);
}

static bool no_access(void)
{
	bool no;

	rm_lock();
	no = rm_state->config.eacces;
	rm_unlock();
	return no;
}

FAKE_API int access(const char *path, int mode)
{
	struct path p;

	switch (look_up(path, &p)) {
	case PATH_NONE:
		if (real.access)
			return real.access(path, mode);
		return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode, 0);
	case PATH_ABSENT:
		errno = ENOENT;
		return -1;
	case PATH_CTL:
	case PATH_DEV:
	case PATH_PLAIN_DEV:
		if (mode & (R_OK | W_OK) && no_access()) {
			errno = EACCES;
			return -1;
		}
		return 0;
	default:
		if (mode & W_OK && geteuid()) {
			errno = EACCES;
			return -1;
		}
		return 0;
	}
}

FAKE_API int ioctl(int fd, unsigned long request, ...)
{
	struct rm_file *file;
	struct stat st;
	struct rm *rm;
	va_list ap;
	void *arg;
	int rc;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (may_be_ours(fd, &st)) {
		rm_lock();
		rm = rm_state;
		file = find_file(rm, &st);
		if (file && file->kind <= FILE_DEV) {
			rc = rm_ioctl(rm, file, _IOC_NR(request), _IOC_SIZE(request), arg);
			rm_unlock();
			if (rc < 0) {
				errno = -rc;
				return -1;
			}
			return rc;
		}
		rm_unlock();
	}
	if (real.ioctl)
		return real.ioctl(fd, request, arg);
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* CPU mappings in [start, end) of this process are gone. */
static void forget_vmas(struct rm *rm, uintptr_t start, uintptr_t end)
{
	pid_t pid = getpid();

	for (int i = 0; i < RM_VMAS && rm->nvmas; i++) {
		struct rm_vma *vma = &rm->vma[i];
		struct rm_vma *rest = NULL;

		if (!vma->used || vma->pid != pid || vma->end <= start || vma->start >= end)
			continue;
		if (vma->start < start && vma->end > end) {
			for (int j = 0; j < RM_VMAS && !rest; j++)
				if (!rm->vma[j].used)
					rest = &rm->vma[j];
			if (!rest)
				abort();
			*rest = *vma;
			rest->start = end;
			vma->end = start;
			rm->file[vma->file].vmas++;
			rm->nvmas++;
		} else if (vma->start < start) {
			vma->end = start;
		} else if (vma->end > end) {
			vma->start = end;
		} else {
			rm_map_unref_vma(rm, vma);
		}
	}
}

static size_t page_up(size_t len)
{
	return (len + RM_PAGE - 1) & ~(size_t)(RM_PAGE - 1);
}

/* nv-mmap.c: nvidia_mmap_helper() */
static void *mmap_device(struct rm *rm, struct rm_file *file, void *addr, size_t len, int prot,
			 int flags, off_t offset)
{
	struct rm_vma *vma = NULL;
	void *p;

	if (file->kind == FILE_DMABUF) {
		errno = LINUX_ENOTSUPP;
		return MAP_FAILED;
	}
	if (file->kind != FILE_DEV || file->map < 0 || offset || rm->config.lost) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (page_up(len) != file->map_bytes) {
		errno = ENXIO;
		return MAP_FAILED;
	}
	for (int i = 0; i < RM_VMAS && !vma; i++)
		if (!rm->vma[i].used)
			vma = &rm->vma[i];
	if (!vma) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	/* MAP_PRIVATE is accepted and means the same for a mapping of device memory */
	flags = (flags & ~MAP_TYPE) | MAP_SHARED;
	p = sys_mmap(addr, len, prot, flags, rm->fb_fd,
		     (off_t)((uint64_t)file->map_gpu * RM_FB_STRIDE + file->map_phys));
	if (p == MAP_FAILED)
		return p;
	if (flags & MAP_FIXED)
		forget_vmas(rm, (uintptr_t)p, (uintptr_t)p + page_up(len));
	vma->used = true;
	vma->pid = getpid();
	vma->start = (uintptr_t)p;
	vma->end = vma->start + page_up(len);
	vma->file = (int)(file - rm->file);
	vma->map = file->map;
	vma->stamp = rm->map_stamp[file->map];
	file->vmas++;
	rm->nvmas++;
	return p;
}

static void *do_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	struct stat st;
	void *p;

	if (!(flags & MAP_ANONYMOUS) && may_be_ours(fd, &st)) {
		struct rm_file *file;

		rm_lock();
		file = find_file(rm_state, &st);
		if (file) {
			p = mmap_device(rm_state, file, addr, len, prot, flags, offset);
			rm_unlock();
			return p;
		}
		rm_unlock();
	}
	p = real.mmap ? real.mmap(addr, len, prot, flags, fd, offset) :
	    sys_mmap(addr, len, prot, flags, fd, offset);
	if (flags & MAP_FIXED && p != MAP_FAILED && rm_state && rm_state->nvmas) {
		rm_lock();
		forget_vmas(rm_state, (uintptr_t)p, (uintptr_t)p + page_up(len));
		rm_unlock();
	}
	return p;
}

FAKE_API void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return do_mmap(addr, len, prot, flags, fd, offset);
}

FAKE_API void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return do_mmap(addr, len, prot, flags, fd, offset);
}

FAKE_API int munmap(void *addr, size_t len)
{
	int rc;

	if (!rm_state || !rm_state->nvmas)
		return real.munmap ? real.munmap(addr, len) : sys_munmap(addr, len);
	/* with the lock, so that nobody is given the range before it is forgotten */
	rm_lock();
	rc = real.munmap ? real.munmap(addr, len) : sys_munmap(addr, len);
	if (!rc)
		forget_vmas(rm_state, (uintptr_t)addr, (uintptr_t)addr + page_up(len));
	rm_unlock();
	return rc;
}
