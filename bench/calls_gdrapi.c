/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of libgdrapi.so.2, whoever made it: Barway's drop-in or GDRCopy's own. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/calls_int.h"

#define LIBRARY "libgdrapi.so.2"

struct handle {
	unsigned long h;
};

/* Our own declarations of what is used; each returns 0 or a positive errno value. */
#define GDRAPI_FUNCTIONS(F) \
	F(int, gdr_close, (void *g)) \
	F(int, gdr_pin_buffer, (void *g, unsigned long addr, size_t size, uint64_t token, \
				uint32_t space, struct handle *handle)) \
	F(int, gdr_unpin_buffer, (void *g, struct handle handle)) \
	F(int, gdr_get_info, (void *g, struct handle handle, void *info)) \
	F(int, gdr_map, (void *g, struct handle handle, void **va, size_t size)) \
	F(int, gdr_unmap, (void *g, struct handle handle, void *va, size_t size)) \
	F(int, gdr_copy_to_mapping, (struct handle handle, void *to, const void *from, size_t n)) \
	F(int, gdr_copy_from_mapping, (struct handle handle, void *to, const void *from, size_t n))

struct gdrapi {
	void *lib;
	void *(*gdr_open)(void);
#define DECLARE(type, name, args) type (*name) args;
	GDRAPI_FUNCTIONS(DECLARE)
#undef DECLARE
	void *g;          /* opened all the time */
	void *second;     /* what is opened and closed */
	struct handle pin;
	bool pinned;
	void *va;         /* NULL: not mapped */
	char error[128];
};

static int check(struct calls *c, const char *call, int error)
{
	struct gdrapi *a = c->gdrapi;

	if (!error)
		return 0;
	snprintf(a->error, sizeof(a->error), "%s: %s: GDRCOPY_ENABLE_LOGGING=1 says more", call,
		 strerror(error));
	c->error = a->error;
	return -error;
}

#define CALL(c, name, ...) check(c, #name, (c)->gdrapi->name(__VA_ARGS__))

static int run_open(void *arg)
{
	struct calls *c = arg;

	c->gdrapi->second = c->gdrapi->gdr_open();
	return check(c, "gdr_open", c->gdrapi->second ? 0 : EIO);
}

static int run_close(void *arg)
{
	struct calls *c = arg;
	void *g = c->gdrapi->second;

	c->gdrapi->second = NULL;
	return g ? CALL(c, gdr_close, g) : 0;
}

static int run_unmap(void *arg)
{
	struct calls *c = arg;
	void *va = c->gdrapi->va;

	c->gdrapi->va = NULL;
	return va ? CALL(c, gdr_unmap, c->gdrapi->g, c->gdrapi->pin, va, c->bytes) : 0;
}

static int run_unpin(void *arg)
{
	struct calls *c = arg;
	bool pinned = c->gdrapi->pinned;

	c->gdrapi->pinned = false;
	return pinned ? CALL(c, gdr_unpin_buffer, c->gdrapi->g, c->gdrapi->pin) : 0;
}

static int run_pin(void *arg)
{
	struct calls *c = arg;
	int ret = CALL(c, gdr_pin_buffer, c->gdrapi->g, c->addr, c->bytes, 0, 0, &c->gdrapi->pin);

	c->gdrapi->pinned = ret == 0;
	return ret;
}

static int run_map(void *arg)
{
	struct calls *c = arg;

	return CALL(c, gdr_map, c->gdrapi->g, c->gdrapi->pin, &c->gdrapi->va, c->bytes);
}

static int run_get_info(void *arg)
{
	struct calls *c = arg;
	uint64_t info[16]; /* 40 bytes are written, 48 by later versions */

	return CALL(c, gdr_get_info, c->gdrapi->g, c->gdrapi->pin, info);
}

static int run_copy_to(void *arg)
{
	struct calls *c = arg;

	return CALL(c, gdr_copy_to_mapping, c->gdrapi->pin, c->gdrapi->va, c->word,
		    sizeof(c->word));
}

static int run_copy_from(void *arg)
{
	struct calls *c = arg;
	unsigned char word[sizeof(c->word)];

	return CALL(c, gdr_copy_from_mapping, c->gdrapi->pin, word, c->gdrapi->va, sizeof(word));
}

/* ---- what has to be so before ------------------------------------------------------------ */

static int unpinned(void *arg)
{
	int ret = run_unmap(arg);

	return ret ? ret : run_unpin(arg);
}

/* And Barway's cache is empty; GDRCopy's own library has none. */
static int unpinned_cold(void *arg)
{
	struct calls *c = arg;
	int ret = unpinned(arg);

	return ret ? ret : calls_by_barway(c, barway_cache_flush(c->ctx));
}

static int pinned(void *arg)
{
	struct calls *c = arg;
	int ret = run_unmap(arg);

	return ret || c->gdrapi->pinned ? ret : run_pin(arg);
}

static int mapped(void *arg)
{
	struct calls *c = arg;
	int ret = 0;

	c->bytes = c->bytes ? c->bytes : CALLS_LEAST < c->max ? CALLS_LEAST : c->max;
	if (!c->gdrapi->va)
		ret = pinned(arg);
	return ret || c->gdrapi->va ? ret : run_map(arg);
}

static int mapped_and_flushed(void *arg)
{
	struct calls *c = arg;
	int ret = mapped(arg);

	return ret ? ret : calls_by_barway(c, barway_flush(c->map));
}

static int check_copy_to(struct calls *c)
{
	int ret = calls_new_word(c);

	if (ret == 0)
		ret = run_copy_to(c);
	if (ret == 0)
		ret = calls_by_barway(c, barway_flush(c->map));
	return ret ? ret : calls_check_word(c);
}

static int check_copy_from(struct calls *c)
{
	unsigned char word[sizeof(c->word)];
	int ret = calls_new_word(c);

	if (ret == 0)
		ret = calls_by_barway(c, barway_copy_to_by(c->map, BARWAY_METHOD_CE, 0, c->word,
							   sizeof(c->word)));
	if (ret == 0)
		ret = CALL(c, gdr_copy_from_mapping, c->gdrapi->pin, word, c->gdrapi->va,
			   sizeof(word));
	if (ret || !memcmp(word, c->word, sizeof(word)))
		return ret;
	c->error = "gdr_copy_from_mapping: wrong data";
	return -EILSEQ;
}

#define WORD sizeof(((struct calls *)0)->word)

const struct calls_case calls_gdrapi[] = {
	{ "gdr_open", NULL, .run = run_open, .before = run_close },
	{ "gdr_close", NULL, .run = run_close, .before = run_open },
	{ "gdr_pin_buffer", "cold", .sized = true, .run = run_pin, .before = unpinned_cold },
	{ "gdr_pin_buffer", "cached", .sized = true, .run = run_pin, .before = unpinned },
	{ "gdr_map", NULL, .sized = true, .run = run_map, .before = pinned },
	{ "gdr_unmap", NULL, .sized = true, .run = run_unmap, .before = mapped },
	{ "gdr_unpin_buffer", NULL, .sized = true, .run = run_unpin, .before = pinned },
	{ "gdr_get_info", NULL, .run = run_get_info, .before = mapped },
	{ "gdr_copy_to_mapping", NULL, .bytes = WORD, .run = run_copy_to,
	  .before = mapped_and_flushed, .check = check_copy_to },
	{ "gdr_copy_from_mapping", NULL, .bytes = WORD, .run = run_copy_from, .before = mapped,
	  .check = check_copy_from },
	{ 0 },
};

/* ---- opening ----------------------------------------------------------------------------- */

static int load(struct calls *c, struct gdrapi *a)
{
	a->lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!a->lib) {
		snprintf(c->reason, sizeof(c->reason), "%s", dlerror());
		return -ENOENT;
	}
#define LOAD(type, name, args) \
	*(void **)&a->name = dlsym(a->lib, #name); \
	if (!a->name) { \
		snprintf(c->reason, sizeof(c->reason), LIBRARY " has no %s", #name); \
		return -ENOSYS; \
	}
	LOAD(void *, gdr_open, (void))
	GDRAPI_FUNCTIONS(LOAD)
#undef LOAD
	a->g = a->gdr_open();
	if (a->g)
		return 0;
	snprintf(c->reason, sizeof(c->reason),
		 "gdr_open failed: GDRCOPY_ENABLE_LOGGING=1 says why");
	return -EIO;
}

int gdrapi_open(struct calls *c)
{
	struct gdrapi *a = calloc(1, sizeof(*a));
	int ret = a ? load(c, a) : -ENOMEM;

	if (ret == 0) {
		c->gdrapi = a;
		return 0;
	}
	c->error = a ? c->reason : "out of memory";
	if (a && a->lib)
		dlclose(a->lib);
	free(a);
	return ret;
}

void gdrapi_settle(struct calls *c)
{
	unpinned(c);
	run_close(c);
}

void gdrapi_close(struct calls *c)
{
	gdrapi_settle(c);
	c->gdrapi->gdr_close(c->gdrapi->g);
	/* the library stays loaded: it may have threads of its own */
	free(c->gdrapi);
	c->gdrapi = NULL;
}

const char *calls_gdrapi_path(const struct calls *c, char *buf, size_t n)
{
	struct link_map *map = NULL;

	*buf = 0;
	if (c->gdrapi && dlinfo(c->gdrapi->lib, RTLD_DI_LINKMAP, &map) == 0)
		snprintf(buf, n, "%s", map->l_name);
	return buf;
}
