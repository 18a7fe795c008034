/* SPDX-License-Identifier: BSD-3-Clause */
/* HMAC-SHA256 against RFC 4231, and what happens where there is no library for it. */
#include "net/mac.h"

#include <errno.h>

#include "test.h"

static void hex(const unsigned char *p, char text[2 * BW_MAC_BYTES + 1])
{
	for (unsigned i = 0; i < BW_MAC_BYTES; i++)
		sprintf(text + 2 * i, "%02x", p[i]);
}

static void need_library(void)
{
	if (bw_mac_ready())
		SKIP("%s", bw_err_text());
}

static void check_mac(const char *key, size_t key_bytes, const char *data, const char *want)
{
	unsigned char out[BW_MAC_BYTES];
	char text[2 * BW_MAC_BYTES + 1];

	CHECK_EQ(bw_mac(key, key_bytes, data, strlen(data), out), 0);
	hex(out, text);
	CHECK_STR(text, want);
}

static void published_examples(void)
{
	char key[131];

	need_library();
	memset(key, 0x0b, 20);
	check_mac(key, 20, "Hi There",
		  "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	memset(key, 0xaa, sizeof(key));
	check_mac(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
		  "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void digest_of_nothing(void)
{
	unsigned char out[BW_MAC_BYTES];
	char text[2 * BW_MAC_BYTES + 1];

	need_library();
	CHECK_EQ(bw_digest("", 0, out), 0);
	hex(out, text);
	CHECK_STR(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void equal_looks_at_every_bit(void)
{
	unsigned char a[BW_MAC_BYTES], b[BW_MAC_BYTES];

	test_fill(a, sizeof(a), 1);
	memcpy(b, a, sizeof(a));
	CHECK(bw_mac_equal(a, b));
	for (unsigned i = 0; i < 8 * BW_MAC_BYTES; i++) {
		b[i / 8] ^= 1u << i % 8;
		CHECK(!bw_mac_equal(a, b));
		b[i / 8] ^= 1u << i % 8;
	}
}

static void random_bytes_differ(void)
{
	unsigned char a[1000] = { 0 }, b[1000] = { 0 };
	unsigned same = 0;

	CHECK_EQ(bw_random(a, sizeof(a)), 0);
	CHECK_EQ(bw_random(b, sizeof(b)), 0);
	for (unsigned i = 0; i < sizeof(a); i++)
		same += a[i] == b[i];
	CHECK(same < 50); /* 4 are to be expected */
}

static void no_library(void)
{
	static const char *const names[] = { "libcrypto.so.0", "libm.so.6", NULL };
	struct bw_crypto c;
	struct bw_reason why;

	CHECK_EQ(bw_crypto_open(names, &c, &why), -ENOTSUP);
	CHECK_HAS(why.text, "libcrypto.so.0: ");
	CHECK_HAS(why.text, "libm.so.6: it has no HMAC");
	CHECK_HAS(why.text, "install OpenSSL's libcrypto");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(published_examples), TEST(digest_of_nothing), TEST(equal_looks_at_every_bit),
		TEST(random_bytes_differ), TEST(no_library), { 0 }
	};

	return test_main(argc, argv, cases);
}
