/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libbarway-tap.so: an `ioctl` in front of libc, for LD_PRELOAD.
 *
 * Only for programs whose libcuda cannot be hooked (its slot is read-only): it passes every call
 * on, and shows the calling thread's calls to the function that this thread gave to
 * barway_ioctl_tap(). The rm provider finds that symbol and uses it instead of the hook
 * (map/rm_find.c).
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

typedef int ioctl_fn(int fd, unsigned long request, ...);
typedef int tap_seen(void *arg, int fd, unsigned long request, void *params);

#define EXPORT __attribute__((visibility("default")))

static __thread tap_seen *seen;
static __thread void *seen_arg;
static _Atomic(ioctl_fn *) real_ioctl;

EXPORT void barway_ioctl_tap(tap_seen *function, void *arg);
EXPORT int ioctl(int fd, unsigned long request, ...);

EXPORT void barway_ioctl_tap(tap_seen *function, void *arg)
{
	seen_arg = arg;
	seen = function;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	ioctl_fn *next = atomic_load_explicit(&real_ioctl, memory_order_acquire);
	va_list ap;
	void *params;

	va_start(ap, request);
	params = va_arg(ap, void *);
	va_end(ap);
	if (!next) {
		void *symbol = dlsym(RTLD_NEXT, "ioctl");

		if (!symbol) {
			errno = ENOSYS;
			return -1;
		}
		memcpy(&next, &symbol, sizeof(next));
		atomic_store_explicit(&real_ioctl, next, memory_order_release);
	}
	if (seen && seen(seen_arg, fd, request, params))
		return 0; /* it has answered */
	return next(fd, request, params);
}
