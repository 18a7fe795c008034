/* SPDX-License-Identifier: BSD-3-Clause */
/* Version, errors, parameters, the log, contexts and their options. */
#include <stdatomic.h>

#include "api_test.h"

static void version(void)
{
	CHECK_EQ(barway_version(), BARWAY_VERSION_MAJOR << 16 | BARWAY_VERSION_MINOR << 8 |
					   BARWAY_VERSION_PATCH);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void *fresh_thread(void *arg)
{
	const char *text = barway_errmsg();

	(void)arg;
	if (!text || *text)
		return "not empty where nothing failed";
	if (barway_param_get(54321, NULL) != -ENOENT || !strstr(barway_errmsg(), "54321"))
		return "not its own";
	return NULL;
}

static void errmsg(void)
{
	char first[1024];
	void *wrong;
	pthread_t t;

	begin();
	FAILS(barway_param_get(12345, NULL), ENOENT, "12345");
	snprintf(first, sizeof(first), "%s", barway_errmsg());
	/* success leaves it alone */
	OK(barway_cache_flush(ctx));
	barway_fence_mixed();
	release(alloc(0, 1));
	CHECK_EQ(barway_device_count(ctx), 2);
	CHECK_STR(barway_errmsg(), first);
	/* each thread has its own */
	CHECK_EQ(pthread_create(&t, NULL, fresh_thread, NULL), 0);
	pthread_join(t, &wrong);
	if (wrong)
		FAIL("%s", (char *)wrong);
	CHECK_STR(barway_errmsg(), first);
	end();
	CHECK_STR(barway_errmsg(), first);
}

/* Every call that succeeds leaves it alone, whatever it had to try on the way. */
static void errmsg_untouched(void)
{
	struct barway_provider_info pi = { .size = sizeof(pi) };
	struct barway_pointer_info po = { .size = sizeof(po) };
	struct barway_param_info pa = { .size = sizeof(pa) };
	struct barway_mapping *m, *big;
	struct barway_context *c;
	struct barway_device *d;
	uint64_t a;
	char byte = 0;

	begin();
	FAILS(barway_param_get(31415, NULL), ENOENT, "31415");
	OK(barway_open(NULL, &c));
	CHECK_EQ(barway_device_count(c), 2);
	OK(barway_device_get(c, 1, &d));
	OK(barway_device_find(c, "GPU-soft-0", &d));
	OK(barway_device_activate(d));
	device_info(0);
	for (unsigned i = 0; i < 2; i++) { /* one of them refuses: that is an answer */
		OK(barway_provider_query(c, d, i, &pi));
		OK(barway_provider_query(c, NULL, i, &pi));
	}
	OK(barway_param_get(0, &pa));
	a = alloc(0, 2 * BAR1);
	OK(barway_pointer_query(c, a, &po));
	OK(barway_pointer_query(c, (uintptr_t)&byte, &po));
	OK(barway_unmap(map(a, BAR1))); /* the aperture is full of it, */
	big = map(a + BAR1, BAR1);      /* and has to give way */
	m = map(a + BAR1 + 10, 10);
	info_of(m);
	OK(barway_copy_to(m, 0, &byte, 1));
	OK(barway_copy_from_by(m, BARWAY_METHOD_CE, &byte, 0, 1));
	OK(barway_flush(m));
	OK(barway_unmap(m));
	OK(barway_unmap(big));
	counters();
	OK(barway_cache_flush(c));
	OK(barway_release_all(c, 0));
	release(a);
	OK(barway_close(c));
	end();
	OK(barway_set_log(NULL, NULL, BARWAY_LOG_WARN));
	CHECK_HAS(barway_errmsg(), "31415");
}

/* operation, object, cause, remedy: with very long names too, and cut visibly */
static void errmsg_long(void)
{
	static char name[5000];

	memset(name, 'x', sizeof(name) - 1);
	CHECK_EQ(barway_param_set(name, "1"), -ENOENT);
	CHECK(strlen(barway_errmsg()) < 1024 && *barway_errmsg());
	CHECK_EQ(barway_param_set("cache_ms", name), -EINVAL);
	CHECK_HAS(barway_errmsg(), "cache_ms");
}

/* ---- options ------------------------------------------------------------------------------- */

struct longer_options {
	struct barway_open_options o;
	unsigned char tail[40];
};

static void options_size(void)
{
	struct longer_options big = { .o = { .devices = BARWAY_DEVICES_SOFT } };
	struct barway_open_options o = { .size = 12, .devices = BARWAY_DEVICES_SOFT, .fallback = 99,
					 .providers = (const char *)1 };
	struct barway_context *c = NULL;

	OK(barway_open(&o, &c)); /* older: fields that it does not have are not read */
	OK(barway_close(c));
	for (o.size = 0; o.size < 12; o.size++)
		FAILS(barway_open(&o, &c), EINVAL, "size");
	big.o.size = sizeof(big);
	OK(barway_open(&big.o, &c)); /* newer, with nothing in it that we do not know */
	OK(barway_close(c));
	for (unsigned i = 0; i < sizeof(big.tail); i += 13) {
		big.tail[i] = 1;
		FAILS(barway_open(&big.o, &c), E2BIG, "not zero");
		big.tail[i] = 0;
	}
	big.o.size = SIZE_MAX; /* never set: its tail is not read */
	FAILS(barway_open(&big.o, &c), E2BIG, "size");
	FAILS(barway_open(NULL, NULL), EINVAL, "out is NULL");
}

static void options_unknown(void)
{
	struct barway_open_options o = { .size = sizeof(o) };
	struct barway_context *const none = (struct barway_context *)7, *c = none;

	o.devices = 3;
	FAILS(barway_open(&o, &c), EINVAL, "devices: 3");
	o.devices = UINT32_MAX;
	FAILS(barway_open(&o, &c), EINVAL, "devices: 4294967295");
	o.devices = BARWAY_DEVICES_SOFT;
	o.fallback = 17;
	FAILS(barway_open(&o, &c), EINVAL, "fallback: 17");
	o.fallback = 0;
	o.providers = "soft,teapot";
	FAILS(barway_open(&o, &c), EINVAL, "teapot");
	o.providers = "soft,"; /* an empty word is none */
	OK(barway_open(&o, &c));
	OK(barway_close(c));
	c = none;
	o.providers = "sof";
	FAILS(barway_open(&o, &c), EINVAL, "'sof'");
	o.providers = "softer";
	FAILS(barway_open(&o, &c), EINVAL, "'softer'");
	CHECK(c == none); /* written only on success */
}

static void options_copied(void)
{
	char providers[] = "soft";
	struct barway_open_options o = { .size = sizeof(o), .providers = providers };
	struct barway_provider_info i = { .size = sizeof(i) };
	struct barway_context *c;

	OK(barway_open(&o, &c));
	memset(providers, 'x', 4);
	memset(&o, 0xff, sizeof(o));
	for (unsigned p = 0; !barway_provider_query(c, NULL, p, &i); p++)
		if (strcmp(i.name, "soft"))
			CHECK_HAS(i.reason, "(soft)");
	OK(barway_close(c));
}

/* ---- contexts ------------------------------------------------------------------------------ */

static void close_twice(void)
{
	struct barway_context *a, *b;

	OK(barway_open(NULL, &a));
	OK(barway_open(NULL, &b));
	CHECK(a != b);
	OK(barway_close(a));
	FAILS(barway_close(a), ESTALE, "closed before");
	CHECK_EQ(barway_device_count(b), 2);
	OK(barway_close(b));
	FAILS(barway_close(b), ESTALE, "closed before");
	FAILS(barway_close(NULL), ESTALE, "NULL");
}

static void *closer(void *arg)
{
	return (void *)(intptr_t)barway_close(arg);
}

static void close_at_once(void)
{
	for (unsigned round = 0; round < 50; round++) {
		struct barway_context *c;
		pthread_t t[4];
		unsigned won = 0;
		void *ret;

		OK(barway_open(NULL, &c));
		for (unsigned i = 0; i < 4; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, closer, c), 0);
		for (unsigned i = 0; i < 4; i++) {
			pthread_join(t[i], &ret);
			won += !ret;
			CHECK(!ret || (intptr_t)ret == -ESTALE);
		}
		CHECK_EQ(won, 1);
	}
}

/* Each call with each handle stale; and with a handle of another kind. */
static void stale(struct barway_context *c, struct barway_device *d, struct barway_mapping *m,
		  const char *text)
{
	struct barway_device_info di = { .size = sizeof(di) };
	struct barway_provider_info pi = { .size = sizeof(pi) };
	struct barway_pointer_info po = { .size = sizeof(po) };
	struct barway_mapping_info mi = { .size = sizeof(mi) };
	struct barway_counters co = { .size = sizeof(co) };
	struct barway_mapping *out = NULL;
	struct barway_device *dev = NULL;
	uint64_t addr = 0;
	char byte = 0;

	FAILS(barway_device_count(c), ESTALE, text);
	FAILS(barway_device_get(c, 0, &dev), ESTALE, text);
	FAILS(barway_device_find(c, "0", &dev), ESTALE, text);
	FAILS(barway_provider_query(c, NULL, 0, &pi), ESTALE, text);
	FAILS(barway_pointer_query(c, (uintptr_t)&byte, &po), ESTALE, text);
	FAILS(barway_mem_free(c, 4096), ESTALE, text);
	FAILS(barway_map(c, 4096, 1, NULL, &out), ESTALE, text);
	FAILS(barway_cache_flush(c), ESTALE, text);
	FAILS(barway_release_all(c, 0), ESTALE, text);
	FAILS(barway_counters_get(c, &co), ESTALE, text);
	FAILS(barway_device_query(d, &di), ESTALE, text);
	FAILS(barway_device_activate(d), ESTALE, text);
	FAILS(barway_mem_alloc(d, 1, &addr), ESTALE, text);
	FAILS(barway_unmap(m), ESTALE, text);
	FAILS(barway_mapping_query(m, &mi), ESTALE, text);
	FAILS(barway_copy_to(m, 0, &byte, 1), ESTALE, text);
	FAILS(barway_copy_from(m, &byte, 0, 1), ESTALE, text);
	FAILS(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, &byte, 1), ESTALE, text);
	FAILS(barway_copy_from_by(m, BARWAY_METHOD_CPU, &byte, 0, 1), ESTALE, text);
	FAILS(barway_flush(m), ESTALE, text);
	CHECK(!barway_mapping_ptr(m));
	CHECK(!out && !dev && !addr && !byte);
}

static void closed_handles(void)
{
	struct barway_provider_info pi = { .size = sizeof(pi) };
	struct barway_mapping *m, *closed_map;
	struct barway_context *closed;
	struct barway_device *closed_dev;
	uint64_t a;

	begin();
	closed = ctx;
	closed_dev = gpu[0];
	a = alloc(0, 4096);
	closed_map = map(a, 100);
	end();
	stale(closed, closed_dev, closed_map, "closed before");
	begin(); /* new ones, perhaps in the same place, are not taken for the old ones */
	m = map(a, 100);
	stale(closed, closed_dev, closed_map, "closed before");
	FAILS(barway_provider_query(ctx, closed_dev, 0, &pi), ESTALE, "device");
	CHECK(barway_mapping_ptr(m));
	OK(barway_unmap(m));
	release(a);
	end();
}

static void no_handles(void)
{
	stale(NULL, NULL, NULL, "NULL");
}

/* Memory that a caller allocated outlives the context. */
static void other_kinds(void)
{
	struct barway_mapping *m;
	uint64_t a;

	begin();
	a = alloc(0, 4096);
	m = map(a, 100);
	stale((struct barway_context *)gpu[0], (struct barway_device *)m,
	      (struct barway_mapping *)ctx, "is not the handle of a");
	stale((struct barway_context *)m, (struct barway_device *)ctx,
	      (struct barway_mapping *)gpu[1], "is not the handle of a");
	stale((struct barway_context *)&a, (struct barway_device *)&a, (struct barway_mapping *)&a,
	      "is not the handle of a");
	OK(barway_unmap(m));
	release(a);
	end();
}

/* Closing one context leaves the other's mappings alone. */
static void two_contexts(void)
{
	struct barway_mapping *m, *theirs;
	struct barway_context *other;
	struct barway_device *dev;
	uint64_t a;
	char *p;

	begin();
	a = alloc(0, GRANULE);
	OK(barway_open(NULL, &other));
	OK(barway_device_get(other, 0, &dev));
	CHECK(dev != gpu[0]);
	m = map(a, 4096);
	OK(barway_map(other, a, 4096, NULL, &theirs));
	CHECK(m != theirs);
	CHECK(info_of(theirs).device == dev);
	CHECK(info_of(m).device == gpu[0]);
	OK(barway_close(other));
	FAILS(barway_unmap(theirs), ESTALE, "closed before");
	p = barway_mapping_ptr(m);
	p[10] = 5;
	OK(barway_copy_to(m, 20, "x", 1));
	CHECK(p[10] == 5 && p[20] == 'x');
	OK(barway_unmap(m));
	release(a);
	end();
}

/* ---- parameters ---------------------------------------------------------------------------- */

static struct barway_param_info param_of(const char *name)
{
	struct barway_param_info i = { .size = sizeof(i) };

	for (unsigned n = 0; !barway_param_get(n, &i); n++)
		if (!strcmp(i.name, name))
			return i;
	FAIL("there is no parameter %s", name);
}

static void param_list(void)
{
	static const char *const some[] = {
		"log",         "devices",  "providers",      "fallback",
		"cache_bytes", "cache_ms", "cache_sweep_ms", "soft_memory"
	};
	struct barway_param_info i = { .size = sizeof(i) };
	unsigned n = 0;

	for (; !barway_param_get(n, &i); n++) {
		CHECK(i.size == sizeof(i));
		CHECK(i.name && *i.name && i.value && i.dflt && i.help && *i.help);
		CHECK(!strcmp(i.source, "default") || !strcmp(i.source, "environment") ||
		      !strcmp(i.source, "call"));
		CHECK(strcmp(i.source, "default") || !strcmp(i.value, i.dflt));
	}
	CHECK(n >= N(some));
	FAILS(barway_param_get(n, &i), ENOENT, "no parameter");
	FAILS(barway_param_get(UINT32_MAX, &i), ENOENT, "no parameter");
	for (unsigned k = 0; k < N(some); k++)
		param_of(some[k]);
	i = param_of("soft_devices");
	CHECK(!strcmp(i.value, "2") && !strcmp(i.dflt, "1") && !strcmp(i.source, "call"));
}

static void param_struct(void)
{
	struct {
		struct barway_param_info i;
		char tail[16];
	} big;
	struct barway_param_info i;

	memset(&i, 0x33, sizeof(i));
	for (i.size = 0; i.size < 16; i.size++)
		FAILS(barway_param_get(0, &i), EINVAL, "size");
	i.size = 16; /* the name alone */
	OK(barway_param_get(0, &i));
	CHECK_STR(i.name, "log");
	CHECK(i.value == (const char *)0x3333333333333333);
	memset(&big, 0, sizeof(big));
	big.i.size = sizeof(big);
	OK(barway_param_get(0, &big.i));
	CHECK(big.i.name && !strcmp(big.i.name, "log"));
	big.tail[3] = 1;
	big.i.help = NULL;
	FAILS(barway_param_get(0, &big.i), E2BIG, "not zero");
	CHECK(!big.i.help);
	FAILS(barway_param_get(0, NULL), EINVAL, "NULL");
}

static void param_set(void)
{
	struct barway_context *c;

	FAILS(barway_param_set("cache_byte", "1"), ENOENT, "cache_byte");
	FAILS(barway_param_set("", "1"), ENOENT, "no such name");
	FAILS(barway_param_set(NULL, "1"), EINVAL, "NULL");
	FAILS(barway_param_set("cache_ms", NULL), EINVAL, "NULL");
	FAILS(barway_param_set("cache_ms", ""), EINVAL, "cache_ms");
	FAILS(barway_param_set("cache_ms", "-1"), EINVAL, "cache_ms");
	FAILS(barway_param_set("cache_ms", "5x"), EINVAL, "\"5x\"");
	FAILS(barway_param_set("cache_ms", "99999999999999999999"), EINVAL, "cache_ms");
	FAILS(barway_param_set("devices", "gpu"), EINVAL, "auto");
	FAILS(barway_param_set("log", "loud"), EINVAL, "debug");
	FAILS(barway_param_set("fallback", "no"), EINVAL, "deny");
	FAILS(barway_param_set("soft_devices", "17"), EINVAL, "16");
	FAILS(barway_param_set("fault", "nothing@1"), EINVAL, "device-alloc");
	param("cache_ms", "2K");
	CHECK_STR(param_of("cache_ms").value, "2K");
	CHECK_STR(param_of("cache_ms").source, "call");
	OK(barway_open(NULL, &c));
	FAILS(barway_param_set("cache_ms", "1"), EBUSY, "a context is open");
	CHECK_STR(param_of("cache_ms").value, "2K");
	OK(barway_close(c));
	param("cache_ms", "10000");
}

/* What is checked when the first context opens; the message names the parameter. */
static void param_bad_at_open(void)
{
	struct barway_context *c;

	param("cpu_mask", "sse2, abacus");
	FAILS(barway_open(NULL, &c), EINVAL,
	      "barway_open: parameter cpu_mask \"sse2, abacus\": 'abacus' is not one of all, c,");
	param("cpu_mask", "");
	FAILS(barway_open(NULL, &c), EINVAL, "parameter cpu_mask \"\": '' is not one of all, c,");
	param("cpu_mask", "all");
	param("providers", "soft,gdr ,x");
	FAILS(barway_open(NULL, &c), EINVAL,
	      "parameter providers \"soft,gdr ,x\": 'gdr' is not one of rm, soft: set it");
	param("providers", "");
	OK(barway_open(NULL, &c));
	OK(barway_close(c));
}

/* Spaces and empty words do not matter, in a parameter and in an option. */
static void lists_with_spaces(void)
{
	struct barway_open_options o = { .size = sizeof(o), .providers = " soft , rm,," };
	struct barway_provider_info i = { .size = sizeof(i) };
	struct barway_context *c;

	param("providers", " , soft ,");
	param("cpu_mask", "c , sse2 , ");
	OK(barway_open(NULL, &c));
	OK(barway_provider_query(c, NULL, 0, &i));
	CHECK_HAS(i.reason, "not among the allowed providers");
	OK(barway_provider_query(c, NULL, 1, &i));
	CHECK(i.score >= 0 && !strstr(i.reason, "allowed"));
	OK(barway_close(c));
	OK(barway_open(&o, &c));
	OK(barway_provider_query(c, NULL, 0, &i));
	CHECK(!strstr(i.reason, "allowed"));
	OK(barway_close(c));
	o.providers = "soft, gdr";
	FAILS(barway_open(&o, &c), EINVAL,
	      "barway_open: option providers \"soft, gdr\": 'gdr' is not one of rm, soft: give");
	param("providers", "");
	param("cpu_mask", "all");
}

/* In a child: only there nothing was set by a call. */
static void environment(void)
{
	struct barway_context *c;

	setenv("BARWAY_RM_ROUTES", "vmm", 1);
	setenv("BARWAY_SOFT_DEVICES", "5", 1);
	setenv("BARWAY_RM_ALLOW_UNKNOWN", "0", 1);
	OK(barway_open(NULL, &c));
	CHECK_STR(param_of("rm_routes").value, "vmm");
	CHECK_STR(param_of("rm_routes").source, "environment");
	CHECK_STR(param_of("rm_allow_unknown").value, "0");
	CHECK_STR(param_of("soft_devices").value, "2"); /* the call goes before */
	CHECK_STR(param_of("soft_devices").source, "call");
	setenv("BARWAY_RM_ROUTES", "hook", 1); /* read when the first context is opened */
	CHECK_STR(param_of("rm_routes").value, "vmm");
	OK(barway_close(c));
	OK(barway_open(NULL, &c));
	CHECK_STR(param_of("rm_routes").value, "hook");
	OK(barway_close(c));
	setenv("BARWAY_RM_ROUTES", " hook , vmm ,", 1);
	OK(barway_open(NULL, &c));
	OK(barway_close(c));
	setenv("BARWAY_RM_ROUTES", "hook, wish", 1);
	FAILS(barway_open(NULL, &c), EINVAL, "environment BARWAY_RM_ROUTES=\"hook, wish\": 'wish' "
	      "is not one of tap, hook, vmm, ipc: give a comma-separated list of these, or "
	      "unset it");
	unsetenv("BARWAY_RM_ROUTES");
	setenv("BARWAY_RM_ALLOW_UNKNOWN", "perhaps", 1);
	FAILS(barway_open(NULL, &c), EINVAL, "BARWAY_RM_ALLOW_UNKNOWN");
	CHECK_HAS(barway_errmsg(), "perhaps");
	unsetenv("BARWAY_RM_ALLOW_UNKNOWN");
	OK(barway_open(NULL, &c));
	CHECK_STR(param_of("rm_routes").source, "default");
	OK(barway_close(c));
}

static void param_environment(void)
{
	CHECK_EQ(in_child(environment), 0);
}

/* ---- the log ------------------------------------------------------------------------------- */

static struct {
	atomic_uint lines, inside, together, worst;
	unsigned slow_ms;
	char last[512];
} heard;

static void hear(void *arg, int level, const char *text)
{
	if (atomic_fetch_add(&heard.inside, 1))
		heard.together++;
	if (arg != &heard || level < BARWAY_LOG_ERROR || level > BARWAY_LOG_DEBUG ||
	    strchr(text, '\n'))
		heard.together += 1000;
	if ((unsigned)level > heard.worst)
		heard.worst = (unsigned)level;
	snprintf(heard.last, sizeof(heard.last), "%s", text);
	if (heard.slow_ms)
		sleep_ms(heard.slow_ms);
	heard.lines++;
	atomic_fetch_sub(&heard.inside, 1);
}

static void hear_from(int level)
{
	memset(&heard, 0, sizeof(heard));
	OK(barway_set_log(hear, &heard, level));
}

static void deaf(void)
{
	OK(barway_set_log(NULL, NULL, BARWAY_LOG_WARN));
}

static void log_levels(void)
{
	uint64_t a;

	begin();
	a = alloc(0, 4096);
	for (int level = 0; level <= BARWAY_LOG_DEBUG; level++) {
		hear_from(level);
		OK(barway_unmap(map_uncached(a, 10)));         /* info: which way */
		barway_param_get(999, NULL);                  /* debug: every sentence */
		CHECK(heard.worst <= (unsigned)level);
		CHECK_EQ(heard.lines > 0, level >= BARWAY_LOG_INFO);
		CHECK_EQ(heard.worst == BARWAY_LOG_DEBUG, level == BARWAY_LOG_DEBUG);
		CHECK_EQ(heard.together, 0);
	}
	CHECK_HAS(heard.last, "999");
	deaf();
	FAILS(barway_set_log(hear, &heard, 5), EINVAL, "5");
	FAILS(barway_set_log(hear, &heard, -1), EINVAL, "-1");
	barway_param_get(999, NULL);
	CHECK(!strstr(heard.last, "level")); /* it was not set */
	release(a);
	end();
}

static void *talker(void *arg)
{
	for (unsigned i = 0; i < 300; i++)
		barway_param_get(1000 + i, NULL);
	return arg;
}

static void log_one_at_a_time(void)
{
	pthread_t t[4];

	hear_from(BARWAY_LOG_DEBUG);
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, talker, NULL), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(heard.lines, 1200);
	CHECK_EQ(heard.together, 0);
	deaf();
}

/* When barway_set_log() returns, the previous function is not running and stays away. */
static void log_handover(void)
{
	pthread_t t;

	for (unsigned round = 0; round < 10; round++) {
		unsigned lines;

		hear_from(BARWAY_LOG_DEBUG);
		heard.slow_ms = 1;
		CHECK_EQ(pthread_create(&t, NULL, talker, NULL), 0);
		while (!heard.lines)
			sched_yield();
		OK(barway_set_log(NULL, NULL, 0));
		CHECK_EQ(heard.inside, 0);
		lines = heard.lines;
		sleep_ms(5);
		CHECK_EQ(heard.lines, lines);
		pthread_join(t, NULL);
		CHECK_EQ(heard.lines, lines);
	}
	deaf();
}

static int said_fd;

static void speaks(void)
{
	struct barway_context *c;

	if (dup2(said_fd, 2) != 2)
		_exit(3);
	setenv("BARWAY_LOG", "debug", 1);
	OK(barway_open(NULL, &c));
	barway_param_get(4711, NULL);
	OK(barway_set_log(NULL, NULL, BARWAY_LOG_ERROR)); /* goes before the parameter */
	barway_param_get(4712, NULL);
	OK(barway_close(c));
	OK(barway_open(NULL, &c));
	barway_param_get(4713, NULL);
	OK(barway_close(c));
}

static void log_default(void)
{
	char text[4096] = "";
	int fd[2], ret;
	ssize_t n;

	CHECK_EQ(pipe(fd), 0);
	said_fd = fd[1];
	ret = in_child(speaks);
	close(fd[1]);
	n = read(fd[0], text, sizeof(text) - 1);
	close(fd[0]);
	CHECK_EQ(ret, 0);
	CHECK(n > 0);
	CHECK_HAS(text, "barway: ");
	CHECK_HAS(text, "4711");
	CHECK(!strstr(text, "4712") && !strstr(text, "4713"));
}

/* ---- no GPU -------------------------------------------------------------------------------- */

static void without_gpu(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };
	struct barway_device *d = NULL;
	struct barway_context *c;

	hear_from(BARWAY_LOG_WARN);
	OK(barway_open(&o, &c)); /* does not fail because there is none */
	FAILS(barway_device_count(c), ENODEV, "no-such-library.so");
	FAILS(barway_device_get(c, 0, &d), ENODEV, "no-such-library.so");
	CHECK(!d);
	OK(barway_close(c));

	param("devices", "auto");
	o.devices = BARWAY_DEVICES_AUTO;
	o.fallback = BARWAY_FALLBACK_DENY;
	OK(barway_open(&o, &c));
	FAILS(barway_device_count(c), ENODEV, "no-such-library.so");
	OK(barway_close(c));
	o.fallback = BARWAY_FALLBACK_QUIET;
	OK(barway_open(&o, &c));
	CHECK_EQ(barway_device_count(c), 2);
	OK(barway_close(c));
	CHECK_EQ(heard.lines, 0);
	o.fallback = BARWAY_FALLBACK_REPORT;
	for (unsigned i = 0; i < 3; i++) { /* once */
		OK(barway_open(&o, &c));
		CHECK_EQ(barway_device_count(c), 2);
		OK(barway_close(c));
	}
	CHECK_EQ(heard.lines, 1);
	CHECK_EQ(heard.worst, BARWAY_LOG_WARN);
	CHECK_HAS(heard.last, "no-such-library.so");
	CHECK_HAS(heard.last, "soft GPU");

	param("fallback", "deny"); /* the parameter is the default */
	OK(barway_open(NULL, &c));
	FAILS(barway_device_count(c), ENODEV, "no-such-library.so");
	OK(barway_close(c));
	param("fallback", "report");
	param("devices", "cuda");
	OK(barway_open(NULL, &c));
	FAILS(barway_device_count(c), ENODEV, "no-such-library.so");
	OK(barway_close(c));
	param("devices", "soft");
	deaf();
}

/* Memory of a kind of device that the context does not have. */
static void not_its_device(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };
	struct barway_pointer_info i = { .size = sizeof(i) };
	struct barway_mapping *m = NULL;
	struct barway_context *c;
	uint64_t a;

	begin();
	a = alloc(0, 4096);
	OK(barway_open(&o, &c));
	FAILS(barway_map(c, a, 10, NULL, &m), ENODEV, "soft device 0");
	CHECK(!m);
	OK(barway_pointer_query(c, a, &i));
	CHECK(!i.device);
	OK(barway_close(c));
	release(a);
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(version),
		TEST(errmsg),
		TEST(errmsg_long),
		TEST(options_size),
		TEST(options_unknown),
		TEST(options_copied),
		TEST(close_twice),
		TEST(close_at_once),
		TEST(closed_handles),
		TEST(no_handles),
		TEST(other_kinds),
		TEST(two_contexts),
		TEST(param_list),
		TEST(param_struct),
		TEST(param_set),
		TEST(param_bad_at_open),
		TEST(lists_with_spaces),
		TEST(param_environment),
		TEST(log_default), /* before those that set it */
		TEST(errmsg_untouched),
		TEST(log_levels),
		TEST(log_one_at_a_time),
		TEST(log_handover),
		TEST(without_gpu),
		TEST(not_its_device),
		{ 0 },
	};

	if (barway_errmsg()[0])
		return 1;
	return api_main(argc, argv, cases);
}
