/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/rm: the code of the rm provider, run against a driver and a libcuda that are not there
 * (tests/fake). Through the public interface, plus the injected faults of core/fault.h.
 *
 * What a process learns about a driver (devices, self-tests, libcuda's slot) it keeps, so each case
 * runs in a process of its own, with its own environment: "@<place in the table>" as the only
 * argument runs one in this one. A case begins with start() and ends
 * with finish(), which looks that everything was given back and nothing forbidden was done.
 */
#ifndef RM_TEST_H
#define RM_TEST_H

#include <barway.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_fake.h"
#include "fakenv.h"
#include "held.h"
#include "test.h"

struct rm_case {
	const char *name;
	void (*run)(void);
	const char *env; /* "NAME=value NAME=value", or NULL */
	const char *arg; /* for the case, as rm_arg */
};

#define CASE(fn) { #fn, fn, NULL, NULL }
#define CASE_ENV(fn, env) { #fn, fn, env, NULL }

static const char *rm_arg;
static struct cuda_fake cu;
static struct barway_context *ctx;
static void *primary; /* CUDA's primary context of GPU 0 */
static void *stream;  /* the test's own: the default stream is left to be counted */
static long own_contexts; /* made by the case itself since start() */

#define OK(call) do { \
	int ret_ = (call); \
	if (ret_ < 0) FAIL("%s: %d: %s", #call, ret_, barway_errmsg()); \
} while (0)
#define REFUSED(call, err, words) do { \
	int ret_ = (call); \
	if (ret_ != -(err)) FAIL("%s: %d (%s), expected -%s", #call, ret_, \
				 ret_ ? barway_errmsg() : "no error", #err); \
	CHECK_HAS(barway_errmsg(), words); \
} while (0)
#define CU_OK(call) do { \
	int cu_ = (cu.call); \
	if (cu_) FAIL("%s: CUDA error %d", #call, cu_); \
} while (0)

/* ---- what exists ----------------------------------------------------------------------------- */

static const char *const live_names[] = {
	"fds", "dmabufs", "clients", "objects", "dups", "mappings", "vmas", "bar1_used", "fb_used",
};
enum { LIVE = sizeof(live_names) / sizeof(live_names[0]) };

struct live {
	long n[LIVE], contexts;
	int files;
};

static struct live at_start;

static inline struct live live_now(void)
{
	struct live l;

	for (int i = 0; i < LIVE; i++)
		l.n[i] = fakenv_get(live_names[i]);
	l.contexts = fakenv_get("contexts_created");
	l.files = open_files();
	return l;
}

static inline void check_live(const struct live *want, const char *when)
{
	struct live l = live_now();

	for (int i = 0; i < LIVE; i++)
		if (l.n[i] != want->n[i])
			FAIL("%s: %s: %ld, before %ld", when, live_names[i], l.n[i], want->n[i]);
	if (l.files != want->files)
		FAIL("%s: open files: %d, before %d", when, l.files, want->files);
}

/* What must not have happened, whatever else did. */
static inline void check_conduct(void)
{
	CHECK_EQ(fakenv_get("order_violations"), 0);
	CHECK_EQ(fakenv_get("invalid_parent_dups"), 0);
	CHECK_EQ(fakenv_get("wrong_gpu_dups"), 0);
	CHECK_EQ(fakenv_get("foreign_calls"), 0);
	CHECK_EQ(fakenv_get("null_stream_uses"), 0);
	CHECK_EQ(fakenv_get("graphs_dropped"), 0);
	CHECK_EQ(fakenv_get("contexts_created"), at_start.contexts + own_contexts);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static inline void load_cuda(void)
{
	const char *path = getenv("BARWAY_LIBCUDA");
	void *lib = path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;

	if (!lib)
		SKIP("BARWAY_LIBCUDA does not name the fake libcuda: %s",
		     path ? dlerror() : "not set");
#define LOAD(name, args) do { \
	void *p_ = dlsym(lib, #name); \
	if (!p_) FAIL("no %s", #name); \
	memcpy(&cu.name, &p_, sizeof(p_)); \
} while (0);
	CUF_LIST(LOAD)
#undef LOAD
}

static inline void open_context(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };

	OK(barway_open(&o, &ctx));
}

static inline void start(void)
{
	load_cuda();
	CU_OK(cuInit(0));
	CU_OK(cuDevicePrimaryCtxRetain(&primary, 0));
	CU_OK(cuCtxSetCurrent(primary));
	CU_OK(cuStreamCreate(&stream, 1));
	at_start = live_now();
	open_context();
}

static inline void finish(void)
{
	void *current;
	unsigned flags;
	int active;

	OK(barway_close(ctx));
	ctx = NULL;
	check_live(&at_start, "at the end");
	check_conduct();
	CU_OK(cuCtxGetCurrent(&current));
	CHECK(current == primary);
	/* nobody but the case holds its context */
	if (primary) {
		CU_OK(cuCtxSetCurrent(NULL));
		CU_OK(cuDevicePrimaryCtxRelease_v2(0));
	}
	CU_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_EQ(active, 0);
}

static inline struct barway_counters counters(void)
{
	struct barway_counters c = { .size = sizeof(c) };

	OK(barway_counters_get(ctx, &c));
	return c;
}

static inline double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline void set(const char *key, const char *value)
{
	if (fakenv_set(key, value))
		FAIL("fakenv_set(%s, %s)", key, value);
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t seed = 1;

static inline uint64_t gpu_alloc(size_t bytes)
{
	unsigned long long a = 0;

	CU_OK(cuMemAlloc_v2(&a, bytes));
	return a;
}

static inline void gpu_free(uint64_t addr)
{
	CU_OK(cuMemFree_v2(addr));
}

static inline void gpu_write(uint64_t addr, const void *src, size_t n)
{
	CU_OK(cuMemcpyHtoDAsync_v2(addr, src, n, stream));
	CU_OK(cuStreamSynchronize(stream));
}

static inline void gpu_read(void *dst, uint64_t addr, size_t n)
{
	CU_OK(cuMemcpyDtoHAsync_v2(dst, addr, n, stream));
	CU_OK(cuStreamSynchronize(stream));
}

/* Maps [addr, addr + n) of [base, base + bytes): CPU to GPU, GPU to CPU, and no byte beside it. */
static inline void prove(uint64_t addr, size_t n, uint64_t base, size_t bytes, uint32_t flags)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = flags };
	struct barway_mapping *m;
	unsigned char *want = malloc(bytes), *got = malloc(bytes);
	size_t off = addr - base;

	test_fill(want, bytes, ++seed);
	gpu_write(base, want, bytes);
	OK(barway_map(ctx, addr, n, &o, &m));
	OK(barway_copy_from(m, got, 0, n));
	if (memcmp(got, want + off, n))
		FAIL("0x%llx + %zu: the CPU does not see what the GPU has",
		     (unsigned long long)addr, n);
	test_fill(want + off, n, ++seed);
	OK(barway_copy_to(m, 0, want + off, n));
	OK(barway_flush(m));
	gpu_read(got, base, bytes);
	if (memcmp(got, want, bytes))
		FAIL("0x%llx + %zu: the GPU does not see what the CPU wrote, or a byte beside it "
		     "changed", (unsigned long long)addr, n);
	((volatile unsigned char *)barway_mapping_ptr(m))[n - 1] ^= 0xff;
	OK(barway_flush(m));
	gpu_read(got, addr + n - 1, 1);
	CHECK_EQ(got[0], (unsigned char)(want[off + n - 1] ^ 0xff));
	OK(barway_unmap(m));
	free(want);
	free(got);
}

/* A large range, mapped as a whole and proved at both ends. */
static inline void prove_ends(uint64_t addr, size_t n)
{
	static unsigned char want[65536], got[65536];
	struct barway_mapping *m;

	OK(barway_map(ctx, addr, n, NULL, &m));
	for (int end = 0; end < 2; end++) {
		size_t at = end ? n - sizeof(want) : 0;

		test_fill(want, sizeof(want), ++seed);
		gpu_write(addr + at, want, sizeof(want));
		OK(barway_copy_from(m, got, at, sizeof(got)));
		CHECK(!memcmp(want, got, sizeof(got)));
		test_fill(want, sizeof(want), ++seed);
		OK(barway_copy_to(m, at, want, sizeof(want)));
		OK(barway_flush(m));
		gpu_read(got, addr + at, sizeof(got));
		CHECK(!memcmp(want, got, sizeof(got)));
	}
	OK(barway_unmap(m));
}

/* Memory that nobody may write. */
struct witness {
	uint64_t addr;
	size_t bytes;
	uint64_t seed;
};

static struct witness witnesses[64];
static int nwitnesses;

static inline uint64_t witness(size_t bytes)
{
	struct witness *w = &witnesses[nwitnesses++];
	unsigned char *p = malloc(bytes);

	*w = (struct witness){ gpu_alloc(bytes), bytes, ++seed };
	test_fill(p, bytes, w->seed);
	gpu_write(w->addr, p, bytes);
	free(p);
	return w->addr;
}

static inline void check_witnesses(const char *when)
{
	for (int i = 0; i < nwitnesses; i++) {
		struct witness *w = &witnesses[i];
		unsigned char *want = malloc(w->bytes), *got = malloc(w->bytes);

		test_fill(want, w->bytes, w->seed);
		gpu_read(got, w->addr, w->bytes);
		for (size_t k = 0; k < w->bytes; k++)
			if (want[k] != got[k])
				FAIL("%s: byte %zu of other memory (%d) was written", when, k, i);
		free(want);
		free(got);
	}
}

static inline void free_witnesses(void)
{
	while (nwitnesses)
		gpu_free(witnesses[--nwitnesses].addr);
}

/* ---- VMM ------------------------------------------------------------------------------------- */

#define VMM_STEP (2u << 20)

struct vmm {
	uint64_t addr;
	unsigned long long handle[8];
	int n;
};

/* @n handles of 2 MiB side by side, on the devices in @dev (NULL: 0). */
static inline void vmm_alloc(struct vmm *v, int n, int handle_types, const int *dev)
{
	unsigned long long addr;

	v->n = n;
	CU_OK(cuMemAddressReserve(&addr, (size_t)n * VMM_STEP, 0, 0, 0));
	v->addr = addr;
	for (int i = 0; i < n; i++) {
		struct cuf_prop p = {
			.type = CUF_ALLOCATION_PINNED, .handle_types = handle_types,
			.location = { CUF_LOCATION_DEVICE, dev ? dev[i] : 0 },
		};
		struct cuf_access access = { { CUF_LOCATION_DEVICE, dev ? dev[i] : 0 }, 3 };
		uint64_t at = v->addr + (uint64_t)i * VMM_STEP;

		CU_OK(cuMemCreate(&v->handle[i], VMM_STEP, &p, 0));
		CU_OK(cuMemMap(at, VMM_STEP, 0, v->handle[i], 0));
		CU_OK(cuMemSetAccess(at, VMM_STEP, &access, 1));
	}
}

static inline void vmm_free(struct vmm *v)
{
	CU_OK(cuMemUnmap(v->addr, (size_t)v->n * VMM_STEP));
	for (int i = 0; i < v->n; i++)
		CU_OK(cuMemRelease(v->handle[i]));
	CU_OK(cuMemAddressFree(v->addr, (size_t)v->n * VMM_STEP));
}

/* ---- the cases ------------------------------------------------------------------------------- */

static int rm_place; /* of the case, in the table */

/* In a child: the case anew. */
__attribute__((noreturn)) static inline void rm_again(void)
{
	char place[16];

	snprintf(place, sizeof(place), "@%d", rm_place);
	execl("/proc/self/exe", program_invocation_name, place, (char *)NULL);
	_exit(126);
}

/* In the child: the same program anew, with the environment of the case. */
__attribute__((noreturn)) static inline void rm_exec(const struct rm_case *c)
{
	char *env = strdup(c->env ? c->env : ""), *save = NULL;

	for (char *p = strtok_r(env, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
		char *value = strchr(p, '=');

		*value++ = 0;
		setenv(p, value, 1);
	}
	free(env);
	rm_again();
}

__attribute__((noreturn)) static inline void rm_one(const struct rm_case *c)
{
	rm_arg = c->arg;
	alarm(200);
	switch (setjmp(test_jump)) {
	case 0:
		c->run();
		exit(0);
	case 2:
		printf("skipped: %s\n", test_skip_reason);
		exit(77);
	default:
		exit(1);
	}
}

/* As test_main(), with a process for each case: @argv chooses by substring of name or argument. */
static inline int rm_main(int argc, char **argv, const struct rm_case *cases)
{
	const char *prog = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	int passed = 0, failed = 0, skipped = 0, status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && argv[1][0] == '@') {
		rm_place = atoi(argv[1] + 1);
		rm_one(&cases[rm_place]);
	}
	for (const struct rm_case *c = cases; c->name; c++) {
		bool wanted = argc < 2;
		pid_t pid;

		for (int i = 1; i < argc; i++)
			wanted = wanted || strstr(c->name, argv[i]) ||
				 (c->arg && strstr(c->arg, argv[i]));
		if (!wanted)
			continue;
		rm_place = (int)(c - cases);
		pid = fork();
		if (!pid)
			rm_exec(c);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			status = -1;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
			passed++;
		} else if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
			skipped++;
			printf("%s: %s: skipped\n", prog, c->name);
		} else {
			failed++;
			printf("%s: %s%s%s: FAILED (%s %d)\n", prog, c->name, c->arg ? " " : "",
			       c->arg ? c->arg : "", WIFSIGNALED(status) ? "signal" : "exit code",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		}
	}
	printf("%s: %d passed, %d failed, %d skipped\n", prog, passed, failed, skipped);
	return failed ? 1 : passed ? 0 : skipped ? 77 : 1;
}

#endif
