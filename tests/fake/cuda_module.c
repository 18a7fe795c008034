/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake libcuda: modules and kernels. PTX is read as far as its entries and their parameters;
 * what runs is the stand-in that a test gave for the name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_int.h"

enum { NAME = 64, ENTRIES = 8 };

struct module;

struct function {
	struct module *module;
	char name[NAME];
	size_t bytes; /* of its parameters */
};

struct module {
	struct module *next;
	struct ctx *ctx; /* NULL: unloaded; its handle is not used again before a reset */
	unsigned n;
	struct function function[ENTRIES];
};

struct stand_in {
	struct stand_in *next;
	char name[NAME];
	cuda_fake_kernel *fn;
};

static struct module *modules;
static struct stand_in *stand_ins; /* the test's: outlive a reset */

#define ENTER_CONTEXT(ctx) do { \
	int rc_ = enter(&(ctx)); \
	if (rc_) \
		return rc_; \
} while (0)

FAKE_API int cudaFakeKernel(const char *name, cuda_fake_kernel *fn)
{
	struct stand_in *s;

	if (!name || strlen(name) >= NAME)
		return CUF_INVALID_VALUE;
	pthread_mutex_lock(&cuda.lock); /* before cuInit() too */
	for (s = stand_ins; s && strcmp(s->name, name); s = s->next)
		;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			abort();
		strcpy(s->name, name);
		s->next = stand_ins;
		stand_ins = s;
	}
	s->fn = fn;
	return leave(0);
}

void module_drop_context(struct ctx *ctx)
{
	for (struct module *m = modules; m; m = m->next)
		if (m->ctx == ctx)
			m->ctx = NULL;
}

void module_reset(void)
{
	while (modules) {
		struct module *next = modules->next;

		free(modules);
		modules = next;
	}
}

/* ---- a little PTX ---- */

static size_t skip(const char *p)
{
	return strspn(p, " \t\r\n");
}

/* "x.u64 name" and ".align 8 .b8 name[24]": the bytes of the parameter that begins at @p */
static size_t parameter(const char *p)
{
	const char *end = p + strcspn(p, ",)"), *b8 = strstr(p, ".b8"), *array = strchr(p, '[');

	if (b8 && b8 < end && array && array < end)
		return strtoul(array + 1, NULL, 10);
	for (; p < end; p++) {
		if (p[0] == '.' && strchr("usbf", p[1]) && p[1] && strtoul(p + 2, NULL, 10) >= 8)
			return strtoul(p + 2, NULL, 10) / 8;
	}
	return 0;
}

/* Each on a boundary of its size, as far as that is 8. */
static size_t parameters(const char *p)
{
	size_t total = 0;

	p += skip(p);
	if (*p != '(')
		return 0;
	for (const char *end = p + strcspn(p, ")"); p < end; p += strcspn(p, ",)")) {
		size_t bytes = parameter(++p), to = bytes < 8 && bytes ? bytes : 8;

		total = (total + to - 1) / to * to + bytes;
	}
	return total;
}

static bool is_ptx(const char *text)
{
	const char *version = strstr(text, ".version");

	return version && strstr(version, ".target") && strchr(text, '{') && strrchr(text, '}');
}

static void add_functions(struct module *m, const char *text)
{
	while ((text = strstr(text, ".entry")) && m->n < ENTRIES) {
		struct function *f = &m->function[m->n++];
		size_t n;

		text += strlen(".entry");
		text += skip(text);
		n = strcspn(text, " \t\r\n(");
		f->module = m;
		snprintf(f->name, NAME, "%.*s", (int)n, text);
		f->bytes = parameters(text + n);
	}
}

/* What a compiler would say, into the caller's buffer. */
static void say(const char *what, unsigned n, const int *options, void **values)
{
	char *log = NULL;
	size_t bytes = 0;

	for (unsigned i = 0; i < n; i++) {
		if (options[i] == CUF_JIT_ERROR_LOG)
			log = values[i];
		else if (options[i] == CUF_JIT_ERROR_LOG_BYTES)
			bytes = (uintptr_t)values[i];
	}
	if (log && bytes)
		snprintf(log, bytes, "ptxas application ptx input, line 1; fatal   : %s\n"
			 "ptxas fatal   : Ptx assembly aborted due to errors\n", what);
}

/* ---- entries ---- */

FAKE_API int cuModuleLoadDataEx(void **out, const void *image, unsigned n, int *options,
				void **values)
{
	struct module *m;
	struct ctx *ctx;
	int rc;

	ENTER_CONTEXT(ctx);
	rc = capture_check();
	if (rc)
		return leave(rc);
	rc = (int)fakenv.get("jit");
	if (!rc && !is_ptx(image))
		rc = CUF_INVALID_PTX;
	if (rc) {
		say(rc == CUF_INVALID_PTX ? "Missing .version directive at start of file" :
		    "asked for by a test", n, options, values);
		return leave(rc);
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		abort();
	m->ctx = ctx;
	add_functions(m, image);
	m->next = modules;
	modules = m;
	*out = m;
	return leave(0);
}

FAKE_API int cuModuleLoadData(void **out, const void *image)
{
	return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

static struct module *find_module(const void *p)
{
	for (struct module *m = modules; m; m = m->next)
		if (m == p) {
			if (!m->ctx)
				fakenv.count("stale_uses", 1);
			return m->ctx ? m : NULL;
		}
	return NULL;
}

FAKE_API int cuModuleGetFunction(void **out, void *p, const char *name)
{
	struct module *m;
	struct ctx *ctx;

	ENTER_CONTEXT(ctx);
	m = find_module(p);
	if (!m)
		return leave(CUF_INVALID_HANDLE);
	for (unsigned i = 0; i < m->n; i++)
		if (!strcmp(m->function[i].name, name)) {
			*out = &m->function[i];
			return leave(0);
		}
	return leave(CUF_NOT_FOUND);
}

FAKE_API int cuModuleUnload(void *p)
{
	struct module *m;
	struct ctx *ctx;

	ENTER_CONTEXT(ctx);
	m = find_module(p);
	if (!m)
		return leave(CUF_INVALID_HANDLE);
	stream_wait_context(m->ctx);
	m->ctx = NULL;
	return leave(0);
}

static struct function *find_function(const void *p)
{
	for (struct module *m = modules; m; m = m->next)
		for (unsigned i = 0; i < m->n; i++)
			if (&m->function[i] == p)
				return find_module(m) ? &m->function[i] : NULL;
	return NULL;
}

static cuda_fake_kernel *stand_in_of(const char *name)
{
	for (struct stand_in *s = stand_ins; s; s = s->next)
		if (!strcmp(s->name, name))
			return s->fn;
	return NULL;
}

/* The parameters as one piece of @bytes: a buffer, or of one pointer that of the only one. */
static int take_parameters(struct work *w, size_t bytes, void **params, void **extra)
{
	void *buffer = NULL;
	size_t given = bytes;

	for (unsigned i = 0; extra && extra[i] != (void *)CUF_LAUNCH_END; i += 2) {
		if (extra[i] == (void *)CUF_LAUNCH_BUFFER)
			buffer = extra[i + 1];
		else if (extra[i] == (void *)CUF_LAUNCH_BYTES)
			given = *(size_t *)extra[i + 1];
		else
			return CUF_INVALID_VALUE;
	}
	if (params && !extra)
		buffer = params[0];
	if (given != bytes || (bytes && !buffer) || (params && extra))
		return CUF_INVALID_VALUE;
	w->host = buffer;
	w->bytes = bytes;
	w->copied = true;
	return 0;
}

FAKE_API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			    unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
			    void **extra)
{
	struct work w = { .kind = WORK_LAUNCH, .blocks = gx, .threads = bx };
	struct queue *queue;
	struct function *f;
	struct ctx *ctx;
	int error;

	ENTER_CONTEXT(ctx);
	f = find_function(function);
	if (!f || f->module->ctx != ctx)
		return leave(CUF_INVALID_HANDLE);
	if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || shared > 49152 ||
	    take_parameters(&w, f->bytes, params, extra))
		return leave(CUF_INVALID_VALUE);
	w.kernel = stand_in_of(f->name);
	if (!w.kernel)
		return leave(CUF_NOT_FOUND);
	if (stream_work(stream, ctx, &error, &queue) || error)
		return leave(error);
	/* copies may go on a stream of another context, kernels may not */
	return leave(queue->ctx != ctx ? CUF_INVALID_HANDLE : queue_put(queue, &w, false));
}
