/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/clients: libgdrapi.so.2 as programs use it: loaded by name, with prototypes and structs of
 * their own. Where: on the soft GPU if BARWAY_DEVICES=soft, over the fake driver if the test is
 * built with WITH_FAKENV (BARWAY_LIBCUDA names the fake libcuda), else on the first real GPU.
 *
 * Each case runs in a process of its own, as most of them stand for a program.
 */
#ifndef TEST_CLIENTS_H
#define TEST_CLIENTS_H

#include <barway.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "held.h"
#include "test.h"
#ifdef WITH_FAKENV
#include "fakenv.h"
#endif

/* A program that never closes: what it holds to its end is no leak. */
static bool never_closes;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return never_closes;
}

#define GPU_PAGE 65536ull
#define DOWN(x) ((uint64_t)(x) & ~(GPU_PAGE - 1))
#define UP(x) DOWN((uint64_t)(x) + GPU_PAGE - 1)
#define KIB 1024u
#define MIB (1024u * 1024u)

/* ---- the library, as a program sees it ------------------------------------------------------- */

struct mh {
	unsigned long h;
};

struct info_v1 { /* 40 bytes */
	uint64_t va, mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1, wc_mapping : 1;
};

struct info_v2 { /* 48 bytes */
	uint64_t va, mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1, wc_mapping : 1;
	int32_t mapping_type;
};

_Static_assert(sizeof(struct info_v1) == 40 && sizeof(struct info_v2) == 48, "layouts");

#define GDR_FUNCTIONS(F)                                                                         \
	F(void *, open, (void))                                                                  \
	F(int, close, (void *))                                                                  \
	F(int, pin_buffer, (void *, unsigned long, size_t, uint64_t, uint32_t, struct mh *))     \
	F(int, pin_buffer_v2, (void *, unsigned long, size_t, uint32_t, struct mh *))            \
	F(int, unpin_buffer, (void *, struct mh))                                                \
	F(int, get_callback_flag, (void *, struct mh, int *))                                    \
	F(int, get_info, (void *, struct mh, struct info_v1 *))                                  \
	F(int, get_info_v2, (void *, struct mh, struct info_v2 *))                               \
	F(int, map, (void *, struct mh, void **, size_t))                                        \
	F(int, map_v2, (void *, struct mh, void **, size_t, int))                                \
	F(int, unmap, (void *, struct mh, void *, size_t))                                       \
	F(int, copy_to_mapping, (struct mh, void *, const void *, size_t))                       \
	F(int, copy_from_mapping, (struct mh, void *, const void *, size_t))                     \
	F(void, runtime_get_version, (int *, int *))                                             \
	F(int, driver_get_version, (void *, int *, int *))                                       \
	F(int, get_attribute, (void *, int, int *))                                              \
	F(int, get_mapping_type_string, (int, const char **))

static struct {
#define F(type, name, params) type(*name) params;
	GDR_FUNCTIONS(F)
#undef F
} gdr;
static void *gdr_library;

static inline void load(const char *name, int flags)
{
	static const char *const names[] = {
#define F(type, name, params) "gdr_" #name,
		GDR_FUNCTIONS(F)
#undef F
	};

	gdr_library = dlopen(name, flags);
	if (!gdr_library)
		FAIL("dlopen: %s (LD_LIBRARY_PATH has to have its folder)", dlerror());
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *f = dlsym(gdr_library, names[i]);

		if (!f)
			FAIL("%s has no %s", name, names[i]);
		memcpy((char *)&gdr + i * sizeof(void *), &f, sizeof(f));
	}
}

#define OK(call) do { \
	int ok_ = (call); \
	if (ok_) FAIL("%s: %d (%s): %s", #call, ok_, strerror(ok_), barway_errmsg()); \
} while (0)

/* A struct of the program's with bytes behind it that are not the library's. */
#define GUARD 24
struct guarded_v1 {
	struct info_v1 info;
	unsigned char guard[GUARD];
};
struct guarded_v2 {
	struct info_v2 info;
	unsigned char guard[GUARD];
};

static inline void check_guard(const unsigned char *guard)
{
	for (int i = 0; i < GUARD; i++)
		CHECK_EQ(guard[i], 0xa5);
}

static inline struct info_v1 info_v1(void *g, struct mh mh)
{
	struct guarded_v1 v;

	memset(&v, 0xa5, sizeof(v));
	OK(gdr.get_info(g, mh, &v.info));
	check_guard(v.guard);
	return v.info;
}

static inline struct info_v2 info_v2(void *g, struct mh mh)
{
	struct guarded_v2 v;

	memset(&v, 0xa5, sizeof(v));
	OK(gdr.get_info_v2(g, mh, &v.info));
	check_guard(v.guard);
	return v.info;
}

/* ---- device memory, written and read without the library ------------------------------------- */

struct cu_prop { /* CUmemAllocationProp */
	int type, handle_types, location_type, location_id;
	void *win32;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};
struct cu_access {
	int location_type, location_id, flags;
};

#define CU_FUNCTIONS(F)                                                                     \
	F(cuInit, (unsigned))                                                               \
	F(cuDeviceGet, (int *, int))                                                        \
	F(cuDevicePrimaryCtxRetain, (void **, int))                                         \
	F(cuDevicePrimaryCtxRelease_v2, (int))                                              \
	F(cuCtxSetCurrent, (void *))                                                        \
	F(cuCtxSynchronize, (void))                                                         \
	F(cuMemAlloc_v2, (uint64_t *, size_t))                                              \
	F(cuMemFree_v2, (uint64_t))                                                         \
	F(cuMemAllocHost_v2, (void **, size_t))                                             \
	F(cuMemFreeHost, (void *))                                                          \
	F(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                \
	F(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                \
	F(cuMemcpyDtoH_v2, (void *, uint64_t, size_t))                                      \
	F(cuMemCreate, (uint64_t *, size_t, const struct cu_prop *, unsigned long long))    \
	F(cuMemRelease, (uint64_t))                                                         \
	F(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long))  \
	F(cuMemAddressFree, (uint64_t, size_t))                                             \
	F(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long))               \
	F(cuMemUnmap, (uint64_t, size_t))                                                   \
	F(cuMemSetAccess, (uint64_t, size_t, const struct cu_access *, size_t))

static struct {
#define F(name, params) int(*name) params;
	CU_FUNCTIONS(F)
#undef F
	void *library, *ctx;
} cu;

#define CU_OK(call) do { \
	int cu_ = (cu.call); \
	if (cu_) FAIL("%s: CUDA error %d", #call, cu_); \
} while (0)

static struct barway_context *soft; /* of the test's own, for memory of the soft GPU */
static struct barway_device *soft_device;

static inline bool on_soft(void)
{
	const char *devices = getenv("BARWAY_DEVICES");

	return devices && !strcmp(devices, "soft");
}

static inline bool on_fake(void)
{
#ifdef WITH_FAKENV
	return true;
#else
	return false;
#endif
}

static inline void start_cuda(void)
{
	static const char *const names[] = {
#define F(name, params) #name,
		CU_FUNCTIONS(F)
#undef F
	};
	const char *path = getenv("BARWAY_LIBCUDA");
	int device;

	cu.library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
	if (!cu.library)
		SKIP("no GPU: %s", dlerror());
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *f = dlsym(cu.library, names[i]);

		if (!f)
			SKIP("libcuda has no %s", names[i]);
		memcpy((char *)&cu + i * sizeof(void *), &f, sizeof(f));
	}
	if (cu.cuInit(0))
		SKIP("no GPU: cuInit fails");
	CU_OK(cuDeviceGet(&device, 0));
	CU_OK(cuDevicePrimaryCtxRetain(&cu.ctx, device));
	CU_OK(cuCtxSetCurrent(cu.ctx));
}

/* The program starts to use the GPU. */
static inline void start_gpu(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_SOFT };

	if (!on_soft()) {
		start_cuda();
		return;
	}
	OK(barway_open(&o, &soft));
	OK(barway_device_get(soft, 0, &soft_device));
}

/* Is there a GPU for the test? Asked in a process of its own, so that this one knows no CUDA
 * yet. */
static inline void need_gpu(void)
{
	pid_t pid;
	int status;

	if (on_soft())
		return;
	pid = fork();
	if (!pid) {
		if (setjmp(test_jump))
			_exit(77);
		start_cuda();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
		SKIP("no GPU");
}

static inline uint64_t mem_alloc(size_t bytes)
{
	uint64_t addr = 0;

	if (on_soft())
		OK(barway_mem_alloc(soft_device, bytes, &addr));
	else
		CU_OK(cuMemAlloc_v2(&addr, bytes));
	return addr;
}

static inline void mem_free(uint64_t addr)
{
	if (on_soft())
		OK(barway_mem_free(soft, addr));
	else
		CU_OK(cuMemFree_v2(addr));
}

static inline void soft_copy(uint64_t addr, void *host, size_t n, bool to)
{
	struct barway_mapping *m;

	OK(barway_map(soft, addr, n, NULL, &m));
	if (to)
		OK(barway_copy_to_by(m, BARWAY_METHOD_CE, 0, host, n));
	else
		OK(barway_copy_from_by(m, BARWAY_METHOD_CE, host, 0, n));
	OK(barway_unmap(m));
}

static inline void mem_write(uint64_t addr, const void *src, size_t n)
{
	if (on_soft()) {
		soft_copy(addr, (void *)(uintptr_t)src, n, true);
		return;
	}
	CU_OK(cuMemcpyHtoD_v2(addr, src, n));
	CU_OK(cuCtxSynchronize()); /* from pageable memory it returns before the bytes have
				    * ARRIVED */
}

static inline void mem_read(void *dst, uint64_t addr, size_t n)
{
	if (on_soft())
		soft_copy(addr, dst, n, false);
	else
		CU_OK(cuMemcpyDtoH_v2(dst, addr, n));
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t seed = 1;

static inline void store_fence(void)
{
#if defined(__x86_64__)
	__asm__ volatile("sfence" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	barway_fence_publish();
#endif
}

/* As a program that stores itself makes sure of it: a fence, and a load of what was stored last. */
static inline void flush_by_load(const volatile void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("mfence" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	barway_fence_mixed();
#endif
	(void)*(const volatile uint32_t *)p;
}

/* @ptr is where the CPU sees the device address @addr: words both ways, by loads and stores
 * alone. */
static inline void prove_pointer(void *ptr, uint64_t addr, size_t n)
{
	volatile uint64_t *words = ptr;
	size_t last = n / 8 - 1;
	uint64_t want[2], got[2];
	volatile uint32_t *half = ptr;

	test_fill(want, sizeof(want), ++seed);
	mem_write(addr, &want[0], 8);
	mem_write(addr + last * 8, &want[1], 8);
	CHECK(words[0] == (last ? want[0] : want[1]));
	CHECK(words[last] == want[1]);
	test_fill(want, sizeof(want), ++seed);
	words[last] = want[1];
	half[0] = (uint32_t)want[0];
	half[1] = (uint32_t)(want[0] >> 32);
	store_fence();
	flush_by_load(half);
	mem_read(&got[0], addr, 8);
	mem_read(&got[1], addr + last * 8, 8);
	CHECK(got[0] == want[0]);
	CHECK(!last || got[1] == want[1]);
}

/* gdr_copy_*_mapping() of [addr, addr + n), seen at @ptr: both ways, and no byte beside it in
 * [base, base + bytes). */
static inline void prove_copies(struct mh mh, void *ptr, uint64_t addr, size_t n, uint64_t base,
				size_t bytes)
{
	unsigned char *want = malloc(bytes), *got = malloc(bytes);
	size_t off = addr - base;

	test_fill(want, bytes, ++seed);
	mem_write(base, want, bytes);
	OK(gdr.copy_from_mapping(mh, got, ptr, n));
	if (memcmp(got, want + off, n))
		FAIL("0x%llx + %zu: the CPU does not see what the GPU has",
		     (unsigned long long)addr, n);
	test_fill(want + off, n, ++seed);
	OK(gdr.copy_to_mapping(mh, ptr, want + off, n));
	flush_by_load((void *)((uintptr_t)ptr & ~3ul));
	mem_read(got, base, bytes);
	if (memcmp(got, want, bytes))
		FAIL("0x%llx + %zu: the GPU does not see it, or a byte beside it changed",
		     (unsigned long long)addr, n);
	free(want);
	free(got);
}

/* ---- what is held ---------------------------------------------------------------------------- */

/* The driver, where it can be asked, has nothing of ours, and nothing forbidden was done. */
static inline void check_given_back(void)
{
#ifdef WITH_FAKENV
	CHECK_EQ(fakenv_get("mappings"), 0);
	CHECK_EQ(fakenv_get("dups"), 0);
	CHECK_EQ(fakenv_get("vmas"), 0);
	CHECK_EQ(fakenv_get("order_violations"), 0);
	CHECK_EQ(fakenv_get("invalid_parent_dups"), 0);
	CHECK_EQ(fakenv_get("foreign_calls"), 0);
#endif
}

/* ---- the cases ------------------------------------------------------------------------------- */

static inline int run_case(const struct test_case *c)
{
	unsetenv("GDRCOPY_ENABLE_LOGGING");
	unsetenv("GDRCOPY_LOG_LEVEL");
	unsetenv("GDRCOPY_USE_DMABUF_MMAP");
	unsetenv("BARWAY_GDRAPI_METHOD");
	alarm(600);
	switch (setjmp(test_jump)) {
	case 0:
		c->run();
		if (soft)
			barway_close(soft);
		return 0;
	case 2:
		printf("skipped: %s\n", test_skip_reason);
		return 77;
	default:
		return 1;
	}
}

/* Starts this program again for one case. */
static inline int spawn_case(const char *name)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		execl("/proc/self/exe", "client", "--case", name, (char *)NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid ? -1 : status;
}

/* As test_main(), with a process for each case. */
static inline int client_main(int argc, char **argv, const struct test_case *cases)
{
	const char *prog = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	bool alone = argc == 3 && !strcmp(argv[1], "--case");
	int passed = 0, failed = 0, skipped = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (const struct test_case *c = cases; c->name; c++) {
		bool wanted = argc < 2;
		int status;

		if (alone && !strcmp(argv[2], c->name))
			return run_case(c);
		for (int i = 1; i < argc && !alone; i++)
			wanted = wanted || strstr(c->name, argv[i]);
		if (!wanted)
			continue;
		status = spawn_case(c->name);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
			passed++;
		} else if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
			skipped++;
			printf("%s: %s: skipped: see above\n", prog, c->name);
		} else {
			failed++;
			printf("%s: %s: FAILED (%s %d)\n", prog, c->name,
			       WIFSIGNALED(status) ? "signal" : "exit code",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		}
	}
	printf("%s: %d passed, %d failed, %d skipped\n", prog, passed, failed, skipped);
	return failed ? 1 : passed ? 0 : skipped ? 77 : 1;
}

#endif
