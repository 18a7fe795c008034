/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/mac: HMAC-SHA256 (RFC 2104, FIPS 180-4) of libcrypto, which is opened when it is first needed
 * and stays open, and random bytes of the kernel's.
 */
#ifndef BW_NET_MAC_H
#define BW_NET_MAC_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

#define BW_MAC_BYTES 32u

/* Opens libcrypto, once, and has it compute a published example. -ENOTSUP with the remedy. */
int bw_mac_ready(void);

/* Both need bw_mac_ready() to have succeeded. -EIO libcrypto failed. */
int bw_mac(const void *key, size_t key_bytes, const void *data, size_t bytes,
	   unsigned char out[BW_MAC_BYTES]);
int bw_digest(const void *data, size_t bytes, unsigned char out[BW_MAC_BYTES]);

/* Takes the same time wherever they differ. */
bool bw_mac_equal(const unsigned char a[BW_MAC_BYTES], const unsigned char b[BW_MAC_BYTES]);

/* getrandom(2): blocks only while the machine boots. -EIO. */
int bw_random(void *out, size_t bytes);

/* The functions that are used of libcrypto, 1.1 and 3; what bw_mac_ready() does, for tests. */
struct bw_crypto {
	unsigned char *(*hmac)(const void *kind, const void *key, int key_bytes,
			       const unsigned char *data, size_t bytes, unsigned char *out,
			       unsigned *out_bytes);
	const void *(*sha256_kind)(void);
	unsigned char *(*sha256)(const unsigned char *data, size_t bytes, unsigned char *out);
};
int bw_crypto_open(const char *const names[], struct bw_crypto *out, struct bw_reason *why);

#endif
