/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put before the library with LD_PRELOAD: barway_copy_to() and barway_copy_from() spoil the last
 * byte of every copy, so that who checks data can be seen to find it.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <barway.h>

BARWAY_API int barway_copy_to(struct barway_mapping *map, size_t offset, const void *src,
			      size_t bytes)
{
	int (*real)(struct barway_mapping *, size_t, const void *, size_t);
	unsigned char *copy = malloc(bytes);
	int ret;

	*(void **)&real = dlsym(RTLD_NEXT, "barway_copy_to");
	if (!real || !copy)
		abort();
	memcpy(copy, src, bytes);
	if (bytes)
		copy[bytes - 1] ^= 0x40;
	ret = real(map, offset, copy, bytes);
	free(copy);
	return ret;
}

BARWAY_API int barway_copy_from(struct barway_mapping *map, void *dst, size_t offset, size_t bytes)
{
	int (*real)(struct barway_mapping *, void *, size_t, size_t);
	int ret;

	*(void **)&real = dlsym(RTLD_NEXT, "barway_copy_from");
	if (!real)
		abort();
	ret = real(map, dst, offset, bytes);
	if (bytes)
		((unsigned char *)dst)[bytes - 1] ^= 0x40;
	return ret;
}
