/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/mac.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static struct bw_crypto crypto;
static struct bw_reason refusal;
static int state; /* 0: usable; -ENOTSUP: see refusal; written once */

static bool find(void *lib, const char *symbol, void *to, struct bw_reason *why)
{
	void *f = dlsym(lib, symbol);

	if (f)
		memcpy(to, &f, sizeof(f));
	else
		bw_reason_set(why, "it has no %s", symbol);
	return f != NULL;
}

/* The second test case of RFC 4231, and "abc" of FIPS 180-4: a library may be anything. */
static bool computes_right(const struct bw_crypto *c)
{
	static const char key[] = "Jefe", text[] = "what do ya want for nothing?";
	static const unsigned char mac[BW_MAC_BYTES] = {
		0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
		0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
		0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43,
	};
	static const unsigned char digest[BW_MAC_BYTES] = {
		0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
		0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
		0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad,
	};
	unsigned char out[BW_MAC_BYTES];
	unsigned n = 0;

	if (!c->hmac(c->sha256_kind(), key, 4, (const unsigned char *)text, strlen(text), out,
		     &n) ||
	    n != BW_MAC_BYTES || memcmp(out, mac, n))
		return false;
	return c->sha256((const unsigned char *)"abc", 3, out) && !memcmp(out, digest, n);
}

static bool take(const char *name, struct bw_crypto *out, struct bw_reason *why)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	struct bw_crypto c;

	if (!lib) {
		bw_reason_set(why, "%s", dlerror());
		return false;
	}
	if (find(lib, "HMAC", &c.hmac, why) && find(lib, "EVP_sha256", &c.sha256_kind, why) &&
	    find(lib, "SHA256", &c.sha256, why)) {
		if (computes_right(&c)) {
			*out = c; /* stays open */
			return true;
		}
		bw_reason_set(why, "it computes a wrong HMAC-SHA256, or none");
	}
	dlclose(lib);
	return false;
}

int bw_crypto_open(const char *const names[], struct bw_crypto *out, struct bw_reason *why)
{
	struct bw_reason each, all = { "" };

	for (; *names; names++) {
		if (take(*names, out, &each))
			return 0;
		bw_reason_set(&all, "%s%s%.60s: %.120s", all.text, all.text[0] ? "; " : "", *names,
			      each.text);
	}
	bw_reason_set(why, "no library for HMAC-SHA256 can be used (%.400s): install OpenSSL's "
		      "libcrypto (Debian: libssl3)", all.text);
	return -ENOTSUP;
}

static void open_once(void)
{
	static const char *const names[] = { "libcrypto.so.3", "libcrypto.so.1.1", NULL };

	state = bw_crypto_open(names, &crypto, &refusal);
}

int bw_mac_ready(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_once);
	return state ? bw_err(-state, "%s", refusal.text) : 0;
}

int bw_mac(const void *key, size_t key_bytes, const void *data, size_t bytes,
	   unsigned char out[BW_MAC_BYTES])
{
	unsigned n = 0;

	if (key_bytes > INT_MAX ||
	    !crypto.hmac(crypto.sha256_kind(), key, (int)key_bytes, data, bytes, out, &n) ||
	    n != BW_MAC_BYTES)
		return bw_err(EIO, "HMAC-SHA256 of %zu bytes: libcrypto failed: is there memory?",
			      bytes);
	return 0;
}

int bw_digest(const void *data, size_t bytes, unsigned char out[BW_MAC_BYTES])
{
	if (!crypto.sha256(data, bytes, out))
		return bw_err(EIO, "SHA256 of %zu bytes: libcrypto failed: is there memory?",
			      bytes);
	return 0;
}

bool bw_mac_equal(const unsigned char a[BW_MAC_BYTES], const unsigned char b[BW_MAC_BYTES])
{
	unsigned char differ = 0;

	for (unsigned i = 0; i < BW_MAC_BYTES; i++) {
		differ |= a[i] ^ b[i];
		__asm__ volatile("" : "+r"(differ)); /* else the loop may be left early */
	}
	return !differ;
}

int bw_random(void *out, size_t bytes)
{
	unsigned char *at = out;

	while (bytes) {
		ssize_t n = getrandom(at, bytes, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return bw_err(EIO, "random bytes: getrandom: %s: a Linux 3.17 or newer has "
				      "it, if no filter of system calls forbids it",
				      n ? strerror(errno) : "it gave none");
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}
