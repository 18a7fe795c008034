/* SPDX-License-Identifier: BSD-3-Clause */
/* core/param. A value set by call stays, so each case has parameters of its own. */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/err.h"
#include "core/fault.h"
#include "core/param.h"
#include "test.h"

static bool view_of(const char *name, struct bw_param_view *view)
{
	for (unsigned i = 0; bw_param_view(i, view); i++)
		if (!strcmp(view->name, name))
			return true;
	return false;
}

static const char *variable(const char *name)
{
	static char text[64];

	snprintf(text, sizeof(text), "BARWAY_%s", name);
	for (char *c = text; *c; c++)
		*c = (char)toupper((unsigned char)*c);
	return text;
}

static void clear_environment(void)
{
	struct bw_param_view v;

	for (unsigned i = 0; bw_param_view(i, &v); i++)
		unsetenv(variable(v.name));
}

static void defaults(void)
{
	struct bw_param_view v, w;
	unsigned n;

	clear_environment();
	CHECK_EQ(bw_param_load(), 0);
	for (n = 0; bw_param_view(n, &v); n++) {
		CHECK(v.name[0] && v.help[0]);
		CHECK_STR(v.source, "default");
		CHECK_STR(v.value, v.dflt);
		CHECK(view_of(v.name, &w) && w.help == v.help);
		setenv(variable(v.name), v.dflt, 1); /* each default is a value that is accepted */
	}
	CHECK_EQ(n, BW_P_COUNT);
	CHECK(!bw_param_view(BW_P_COUNT, &v));
	CHECK(!bw_param_view(~0u, &v));
	CHECK_EQ(bw_param_load(), 0);
	for (n = 0; bw_param_view(n, &v); n++) {
		CHECK_STR(v.source, "environment");
		CHECK_STR(v.value, v.dflt);
	}
	clear_environment();
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_size(BW_P_SOFT_MEMORY), 1ull << 30);
	CHECK_EQ(bw_param_size(BW_P_RM_ALLOW_UNKNOWN), 1);
	CHECK_EQ(bw_param_size(BW_P_LIBCUDA), 0);
	CHECK_STR(bw_param_text(BW_P_LIBCUDA), "libcuda.so.1");
}

static const struct {
	const char *text;
	bool ok;
	uint64_t value;
} sizes[] = {
	{ "0", true, 0 },
	{ "1", true, 1 },
	{ "010", true, 10 },
	{ "64K", true, 65536 },
	{ "64k", true, 65536 },
	{ "3M", true, 3 << 20 },
	{ "1G", true, 1 << 30 },
	{ "2g", true, 2ull << 30 },
	{ "1T", true, 1ull << 40 },
	{ "0x10", true, 16 },
	{ "0XfF", true, 255 },
	{ "0x10K", true, 16384 },
	{ "0x0", true, 0 },
	{ "18446744073709551615", true, UINT64_MAX },
	{ "0xffffffffffffffff", true, UINT64_MAX },
	{ "16777215T", true, 16777215ull << 40 },
	{ "00000000000000000000000000001", true, 1 },
	{ "18446744073709551616", false, 0 },
	{ "184467440737095516150", false, 0 },
	{ "0x10000000000000000", false, 0 },
	{ "16777216T", false, 0 },
	{ "18014398509481984K", false, 0 },
	{ "18014398509481983K", true, 18014398509481983ull << 10 },
	{ "", false, 0 },
	{ "K", false, 0 },
	{ "0x", false, 0 },
	{ "0xK", false, 0 },
	{ "x10", false, 0 },
	{ "-1", false, 0 },
	{ "+1", false, 0 },
	{ " 1", false, 0 },
	{ "1 ", false, 0 },
	{ "1 K", false, 0 },
	{ "1KB", false, 0 },
	{ "1KK", false, 0 },
	{ "1P", false, 0 },
	{ "1.5G", false, 0 },
	{ "ff", false, 0 },
	{ "1f", false, 0 },
	{ "1,2", false, 0 },
	{ "64K\n", false, 0 },
};

static void size_grammar(void)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t before = bw_param_size(BW_P_CACHE_BYTES);
		int ret = bw_param_set("cache_bytes", sizes[i].text);

		if (ret != (sizes[i].ok ? 0 : -EINVAL))
			FAIL("\"%s\": returned %d", sizes[i].text, ret);
		if (bw_param_size(BW_P_CACHE_BYTES) != (sizes[i].ok ? sizes[i].value : before))
			FAIL("\"%s\": %llu", sizes[i].text,
			     (unsigned long long)bw_param_size(BW_P_CACHE_BYTES));
		if (sizes[i].ok) {
			CHECK_STR(bw_param_text(BW_P_CACHE_BYTES), sizes[i].text);
			continue;
		}
		CHECK_HAS(bw_err_text(), "cache_bytes");
		CHECK_HAS(bw_err_text(), sizes[i].text);
		CHECK_HAS(bw_err_text(), "K, M, G or T");
	}
}

static const struct {
	const char *name, *value;
	bool ok;
} words[] = {
	{ "rm_allow_unknown", "0", true },
	{ "rm_allow_unknown", "YES", true },
	{ "rm_allow_unknown", "off", true },
	{ "rm_allow_unknown", "2", false },
	{ "rm_allow_unknown", "", false },
	{ "rm_allow_unknown", "true", false },
	{ "rm_allow_unknown", "01", false },
	{ "soft_devices", "1", true },
	{ "soft_devices", "16", true },
	{ "soft_devices", "0", false },
	{ "soft_devices", "17", false },
	{ "soft_devices", "x", false },
	{ "soft_memory", "16M", true },
	{ "soft_memory", "4T", true },
	{ "soft_memory", "16777215", false },
	{ "soft_memory", "4398046511105", false },
	{ "soft_memory", "0", false },
	{ "channel_spin_us", "0", true },
	{ "channel_spin_us", "4294967295", true },
	{ "channel_spin_us", "4294967296", false },
	{ "soft_bar1", "1M", true },
	{ "soft_bar1", "8192T", true },
	{ "soft_bar1", "1048575", false },
	{ "soft_bar1", "0", false },
	{ "log", "none", true },
	{ "log", "debug", true },
	{ "log", "Debug", false },
	{ "log", "loud", false },
	{ "log", "error,warn", false },
	{ "log", " warn", false },
	{ "log", "", false },
	{ "devices", "soft", true },
	{ "devices", "gpu", false },
	{ "devices", "", false },
	{ "fallback", "deny", true },
	{ "fallback", "denied", false },
	{ "fault", "", true },
	{ "fault", "ioctl@3, mmap@1,", true },
	{ "fault", "ioctl", false },
	{ "providers", "", true },
	{ "providers", "rm,soft", true },
	{ "soft_shared", "any name", true },
};

static void word_grammar(void)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		int ret = bw_param_set(words[i].name, words[i].value);
		struct bw_param_view v;

		if (ret != (words[i].ok ? 0 : -EINVAL))
			FAIL("%s \"%s\": returned %d", words[i].name, words[i].value, ret);
		if (!words[i].ok) {
			CHECK_HAS(bw_err_text(), words[i].name);
			CHECK_HAS(bw_err_text(), words[i].value);
			CHECK_HAS(bw_err_text(), "give ");
			continue;
		}
		CHECK(view_of(words[i].name, &v));
		CHECK_STR(v.value, words[i].value);
		CHECK_STR(v.source, "call");
	}
	CHECK_EQ(bw_param_size(BW_P_RM_ALLOW_UNKNOWN), 0);
	CHECK(!bw_fault_pending(BW_FAULT_IOCTL)); /* checked, not armed */
	CHECK_EQ(bw_param_set("fault", ""), 0);
}

/* The order is that of the enums of the public header, and of the log's levels. */
static void choices(void)
{
	static const struct {
		enum bw_param p;
		const char *name, *words[6];
	} t[] = {
		{ BW_P_LOG, "log", { "none", "error", "warn", "info", "debug" } },
		{ BW_P_DEVICES, "devices", { "auto", "cuda", "soft" } },
		{ BW_P_FALLBACK, "fallback", { "report", "deny", "quiet" } },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		for (unsigned k = 0; t[i].words[k]; k++) {
			CHECK_EQ(bw_param_set(t[i].name, t[i].words[k]), 0);
			CHECK_EQ(bw_param_choice(t[i].p), k);
		}
}

/* What only another part can tell: the sentence says where the value came from. */
static void refusals(void)
{
	const char *bad;

	clear_environment();
	setenv("BARWAY_RM_ROUTES", "tap, nothing", 1);
	CHECK_EQ(bw_param_load(), 0);
	bad = bw_param_text(BW_P_RM_ROUTES) + 5;
	CHECK_EQ(bw_param_refuse(BW_P_RM_ROUTES, bad, 7, "tap, hook"), -EINVAL);
	CHECK_STR(bw_err_text(), "environment BARWAY_RM_ROUTES=\"tap, nothing\": 'nothing' is not "
		  "one of tap, hook: give a comma-separated list of these, or unset it");
	clear_environment();
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_set("cpu_mask", "abacus"), 0);
	CHECK_EQ(bw_param_refuse(BW_P_CPU_MASK, "abacus", 6, "all, c"), -EINVAL);
	CHECK_STR(bw_err_text(), "parameter cpu_mask \"abacus\": 'abacus' is not one of all, c: "
		  "set it to a comma-separated list of these");
	CHECK_EQ(bw_param_set("cpu_mask", "all"), 0);
}

static void unknown_names(void)
{
	CHECK_EQ(bw_param_set("no_such", "1"), -ENOENT);
	CHECK_HAS(bw_err_text(), "no_such");
	CHECK_EQ(bw_param_set("", "1"), -ENOENT);
	CHECK_EQ(bw_param_set("CACHE_MS", "1"), -ENOENT);
	CHECK_EQ(bw_param_set(NULL, "1"), -ENOENT);
	CHECK_EQ(bw_param_set("cache_ms", NULL), -EINVAL);
	CHECK_HAS(bw_err_text(), "cache_ms");
}

static void environment(void)
{
	struct bw_param_view v;
	const char *old;

	clear_environment();
	setenv("BARWAY_CACHE_BYTES", "7K", 1);
	setenv("BARWAY_RM_ROUTES", "tap", 1);
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_size(BW_P_CACHE_BYTES), 7168);
	CHECK(view_of("cache_bytes", &v));
	CHECK_STR(v.value, "7K");
	CHECK_STR(v.dflt, "64M");
	CHECK_STR(v.source, "environment");
	CHECK_STR(bw_param_text(BW_P_RM_ROUTES), "tap");

	/* one that is wrong: nothing changes, the sentence says which */
	setenv("BARWAY_CACHE_BYTES", "8K", 1);
	setenv("BARWAY_SOFT_BAR1", "64Q", 1);
	CHECK_EQ(bw_param_load(), -EINVAL);
	CHECK_HAS(bw_err_text(), "BARWAY_SOFT_BAR1=\"64Q\"");
	CHECK_HAS(bw_err_text(), "K, M, G or T");
	CHECK_EQ(bw_param_size(BW_P_CACHE_BYTES), 7168);
	CHECK_EQ(bw_param_size(BW_P_SOFT_BAR1), 256 << 20);

	unsetenv("BARWAY_SOFT_BAR1");
	old = bw_param_text(BW_P_CACHE_BYTES);
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_size(BW_P_CACHE_BYTES), 8192);
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_size(BW_P_CACHE_BYTES), 8192);
	CHECK_STR(old, "7K"); /* a string handed out stays */

	bw_fault_arm(BW_FAULT_ALLOC, 1);
	setenv("BARWAY_CACHE_BYTES", "9K", 1);
	CHECK_EQ(bw_param_load(), -ENOMEM);
	CHECK_HAS(bw_err_text(), "BARWAY_CACHE_BYTES");
	CHECK_EQ(bw_param_size(BW_P_CACHE_BYTES), 8192);

	clear_environment();
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_size(BW_P_CACHE_BYTES), 64 << 20);
	CHECK_STR(bw_param_text(BW_P_RM_ROUTES), "tap,hook,vmm");
}

static void a_call_wins(void)
{
	struct bw_param_view v;
	char value[] = "11";

	clear_environment();
	CHECK_EQ(bw_param_set("cache_sweep_ms", value), 0);
	value[0] = '9'; /* it was copied */
	CHECK_EQ(bw_param_size(BW_P_CACHE_SWEEP_MS), 11);
	setenv("BARWAY_CACHE_SWEEP_MS", "12", 1);
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_size(BW_P_CACHE_SWEEP_MS), 11);
	setenv("BARWAY_CACHE_SWEEP_MS", "nonsense", 1); /* is not used, so does not matter */
	CHECK_EQ(bw_param_load(), 0);
	CHECK_EQ(bw_param_set("cache_sweep_ms", "13"), 0);
	CHECK_EQ(bw_param_size(BW_P_CACHE_SWEEP_MS), 13);
	CHECK(view_of("cache_sweep_ms", &v));
	CHECK_STR(v.source, "call");
	bw_fault_arm(BW_FAULT_ALLOC, 1);
	CHECK_EQ(bw_param_set("cache_sweep_ms", "987"), -ENOMEM);
	CHECK_HAS(bw_err_text(), "cache_sweep_ms");
	CHECK_EQ(bw_param_size(BW_P_CACHE_SWEEP_MS), 13);
	clear_environment();
}

static void long_values(void)
{
	static char text[5000];

	memset(text, '7', sizeof(text) - 1);
	CHECK_EQ(bw_param_set("cache_bytes", text), -EINVAL);
	CHECK_HAS(bw_err_text(), "K, M, G or T"); /* the value does not push the remedy out */
	CHECK_EQ(bw_param_set(text, "1"), -ENOENT);
	CHECK_HAS(bw_err_text(), "no such name");
	CHECK_EQ(bw_param_set("soft_shared", text), 0);
	CHECK_STR(bw_param_text(BW_P_SOFT_SHARED), text);
	CHECK_EQ(bw_param_set("soft_shared", ""), 0);
}

static _Atomic unsigned wrong;

static void *setter(void *arg)
{
	char text[16];

	for (unsigned i = 0; i < 2000; i++) {
		snprintf(text, sizeof(text), "%u", i % 50);
		if (bw_param_set("cache_ms", text) || bw_param_load() ||
		    bw_param_size(BW_P_CACHE_MS) >= 50)
			atomic_fetch_add(&wrong, 1);
	}
	return arg;
}

static void many_threads_set(void)
{
	pthread_t t[8];

	clear_environment();
	for (unsigned i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, setter, NULL));
	for (unsigned i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(atomic_load(&wrong), 0);
}

static void lists(void)
{
	static const struct {
		const char *list, *word;
		bool has;
	} t[] = {
		{ NULL, "rm", true },
		{ "", "rm", true },
		{ "rm", "rm", true },
		{ "soft,rm", "rm", true },
		{ "rm,soft", "rm", true },
		{ "a,rm,b", "rm", true },
		{ " soft , rm ", "rm", true },
		{ " soft , rm ", "soft", true },
		{ "rmx", "rm", false },
		{ "xrm", "rm", false },
		{ "r,m", "rm", false },
		{ "soft", "rm", false },
		{ ",", "rm", true },
		{ "soft,", "rm", false },
		{ ",,rm", "rm", true },
		{ "RM", "rm", false },
		{ "   ", "rm", true },
		{ "r m", "rm", false },
		{ " , r m ,rm", "rm", true },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (bw_list_has(t[i].list, t[i].word) != t[i].has)
			FAIL("\"%s\" has %s", t[i].list, t[i].word);
}

static void words_of_lists(void)
{
	static const struct {
		const char *list, *words; /* each in [] */
	} t[] = {
		{ NULL, "" },
		{ "", "" },
		{ "  ", "" },
		{ " ,, , ", "" },
		{ "a", "[a]" },
		{ "a,bc", "[a][bc]" },
		{ " a , bc ", "[a][bc]" },
		{ ",a,,bc,", "[a][bc]" },
		{ "a b,c", "[a b][c]" },
		{ "a\t,b", "[a\t][b]" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		const char *at = t[i].list, *word;
		char text[64] = "";
		size_t n;

		while (bw_list_next(&at, &word, &n))
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "[%.*s]", (int)n,
				 word);
		CHECK_STR(text, t[i].words);
		CHECK(!bw_list_next(&at, &word, &n));
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(defaults), /* first: nothing is set by call yet */
		TEST(environment),
		TEST(size_grammar),
		TEST(word_grammar),
		TEST(choices),
		TEST(unknown_names),
		TEST(a_call_wins),
		TEST(refusals),
		TEST(long_values),
		TEST(many_threads_set),
		TEST(lists),
		TEST(words_of_lists),
		{ 0 }
	};

	return test_main(argc, argv, cases);
}
