/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake libcuda by itself, second part: streams, kernels, pinned memory. What it says must be
 * what a driver says, or the tests that stand on it prove nothing.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_fake.h"
#include "fakenv.h"
#include "test.h"

static struct cuda_fake cu;
static void *ctx, *stream;
static unsigned long long gpu; /* 64 KiB of GPU memory */
static unsigned long long *host; /* a page of pinned memory */

static void load(void)
{
	static const char *const names[] = {
#define NAME(name, args) #name,
		CUF_LIST(NAME)
#undef NAME
	};
	void *lib = dlopen(getenv("BARWAY_LIBCUDA"), RTLD_NOW);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *f = lib ? dlsym(lib, names[i]) : NULL;

		if (!f) {
			fprintf(stderr, "no %s: %s\n", names[i], lib ? "not in it" : dlerror());
			exit(1);
		}
		memcpy((char *)&cu + i * sizeof(f), &f, sizeof(f));
	}
}

static void start(const char *key, const char *value)
{
	void *p;

	fakenv_reset();
	if (key)
		CHECK_EQ(fakenv_set(key, value), 0);
	CHECK_EQ(cu.cuInit(0), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	CHECK_EQ(cu.cuCtxSetCurrent(ctx), 0);
	CHECK_EQ(cu.cuStreamCreate(&stream, 1), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&gpu, 65536), 0);
	CHECK_EQ(cu.cuMemAllocHost_v2(&p, 4096), 0);
	host = p;
	memset(host, 0, 4096);
}

static void sleep_ms(unsigned ms)
{
	struct timespec t = { 0, (long)ms * 1000000 };

	nanosleep(&t, NULL);
}

static unsigned long long at(unsigned word)
{
	return (uintptr_t)&host[word];
}

static unsigned long long get(unsigned word)
{
	return __atomic_load_n(&host[word], __ATOMIC_ACQUIRE);
}

/* Work waits for its turn; a source that is not pinned is taken at once, one that is, later. */
static void in_turn(void)
{
	unsigned long long pageable = 5, back = 0;

	start(NULL, NULL);
	host[8] = 1;
	CHECK_EQ(cu.cuStreamQuery(stream), 0);
	CHECK_EQ(cu.cuStreamWaitValue64_v2(stream, at(0), 1, 0), 0);
	CHECK_EQ(cu.cuMemcpyHtoDAsync_v2(gpu, &pageable, 8, stream), 0);
	CHECK_EQ(cu.cuMemcpyHtoDAsync_v2(gpu + 8, &host[8], 8, stream), 0);
	CHECK_EQ(cu.cuMemcpyDtoHAsync_v2(&host[16], gpu, 16, stream), 0);
	CHECK_EQ(cu.cuStreamWriteValue64_v2(stream, at(1), 77, 0), 0);
	pageable = 6;
	host[8] = 2;
	sleep_ms(20);
	CHECK_EQ(cu.cuStreamQuery(stream), CUF_NOT_READY);
	CHECK(!get(1) && !get(16));
	__atomic_store_n(&host[0], 1, __ATOMIC_RELEASE);
	CHECK_EQ(cu.cuStreamSynchronize(stream), 0);
	CHECK(get(1) == 77 && get(16) == 5 && get(17) == 2);
	CHECK_EQ(cu.cuMemcpyDtoHAsync_v2(&back, gpu, 8, stream), 0);
	CHECK_EQ(back, 5); /* pageable memory: it is there when the call returns */
}

static void add_one(void *arg)
{
	__atomic_fetch_add((unsigned long long *)arg, 1, __ATOMIC_RELEASE);
}

static void host_functions(void)
{
	start(NULL, NULL);
	CHECK_EQ(cu.cuLaunchHostFunc(stream, add_one, &host[3]), 0);
	CHECK_EQ(cu.cuLaunchHostFunc(stream, add_one, &host[3]), 0);
	CHECK_EQ(cu.cuStreamDestroy_v2(stream), 0); /* its work goes on */
	CHECK_EQ(cu.cuCtxSynchronize(), 0);
	CHECK_EQ(get(3), 2);
	CHECK_EQ(cu.cuLaunchHostFunc(stream, add_one, &host[3]), CUF_INVALID_HANDLE);
	CHECK_EQ(fakenv_get("stale_uses"), 1);
}

static void values(void)
{
	start("memops", "0");
	CHECK_EQ(cu.cuStreamWriteValue64_v2(stream, at(0), 1, 0), CUF_NOT_SUPPORTED);
	CHECK_EQ(cu.cuStreamWaitValue64(stream, at(0), 1, 0), CUF_NOT_SUPPORTED);
	start(NULL, NULL);
	CHECK_EQ(cu.cuStreamWriteValue64(stream, at(0) + 4, 1, 0), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuStreamWriteValue64(stream, at(0), 1, 1), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuStreamWriteValue64(stream, (uintptr_t)&ctx, 1, 0), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuStreamWriteValue64(stream, gpu + 8, 9, 0), 0);
	CHECK_EQ(cu.cuStreamWaitValue64(stream, gpu + 8, 8, 0), 0);
	CHECK_EQ(cu.cuStreamSynchronize(stream), 0);
}

/* ---- kernels ---- */

static const char ptx[] =
	".version 6.4\n.target sm_70\n"
	".visible .entry count(.param .u64 p, .param .u32 q, .param .align 8 .b8 r[16])\n"
	"{\nret;\n}\n"
	".visible .entry nothing()\n{\nret;\n}\n";

struct count {
	unsigned long long p;
	unsigned q;
	unsigned long long r[2];
};

static int count(const struct cuda_fake_block *block, void *param)
{
	const struct count *c = param;

	if (c->q != 5 || c->r[1] != 6 || block->count != 3 || block->threads != 32)
		return CUF_ILLEGAL_ADDRESS;
	__atomic_fetch_add((unsigned long long *)(uintptr_t)c->p, block->index + 1,
			   __ATOMIC_RELEASE);
	/* all blocks run at the same time */
	while (__atomic_load_n((unsigned long long *)(uintptr_t)c->p, __ATOMIC_ACQUIRE) != 6)
		sleep_ms(1);
	return 0;
}

static int nothing(const struct cuda_fake_block *block, void *param)
{
	(void)block;
	(void)param;
	return CUF_LAUNCH_FAILED;
}

static int launch(void *function, size_t bytes, const struct count *c)
{
	void *extra[] = { (void *)CUF_LAUNCH_BUFFER, (void *)(uintptr_t)c,
			  (void *)CUF_LAUNCH_BYTES, &bytes, (void *)CUF_LAUNCH_END };

	return cu.cuLaunchKernel(function, 3, 1, 1, 32, 1, 1, 0, stream, NULL, extra);
}

static void kernels(void)
{
	int options[] = { CUF_JIT_ERROR_LOG, CUF_JIT_ERROR_LOG_BYTES };
	char log[200] = "";
	void *values[] = { log, (void *)sizeof(log) }, *module, *function, *other;
	struct count c = { 0, 5, { 0, 6 } };

	start(NULL, NULL);
	c.p = at(0);
	CHECK_EQ(cu.cuModuleLoadDataEx(&module, "rubbish", 2, options, values), CUF_INVALID_PTX);
	CHECK_HAS(log, "ptxas");
	CHECK_EQ(cu.cuModuleLoadDataEx(&module, ptx, 2, options, values), 0);
	CHECK_EQ(cu.cuModuleGetFunction(&function, module, "other"), CUF_NOT_FOUND);
	CHECK_EQ(cu.cuModuleGetFunction(&function, module, "count"), 0);
	CHECK_EQ(launch(function, sizeof(c), &c), CUF_NOT_FOUND); /* no stand-in yet */
	CHECK_EQ(cu.cudaFakeKernel("count", count), 0);
	CHECK_EQ(launch(function, sizeof(c) - 8, &c), CUF_INVALID_VALUE);
	CHECK_EQ(launch(function, sizeof(c), &c), 0);
	c.q = 0; /* copied */
	CHECK_EQ(cu.cuStreamSynchronize(stream), 0);
	CHECK_EQ(get(0), 6);
	/* of another context */
	CHECK_EQ(cu.cuCtxCreate_v2(&other, 0, 0), 0);
	CHECK_EQ(launch(function, sizeof(c), &c), CUF_INVALID_HANDLE);
	CHECK_EQ(cu.cuCtxDestroy_v2(other), 0);
	CHECK_EQ(fakenv_get("stale_uses"), 0);
	CHECK_EQ(cu.cuModuleUnload(module), 0);
	CHECK_EQ(launch(function, sizeof(c), &c), CUF_INVALID_HANDLE);
	CHECK_EQ(fakenv_get("stale_uses"), 1);
}

/* A kernel that fails ends the context. */
static void sticky(void)
{
	void *module, *function, *other;
	unsigned long long p;

	start(NULL, NULL);
	CHECK_EQ(cu.cudaFakeKernel("nothing", nothing), 0);
	CHECK_EQ(cu.cuStreamCreate(&other, 1), 0);
	CHECK_EQ(cu.cuModuleLoadData(&module, ptx), 0);
	CHECK_EQ(cu.cuModuleGetFunction(&function, module, "nothing"), 0);
	CHECK_EQ(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), 0);
	CHECK_EQ(cu.cuStreamSynchronize(stream), CUF_LAUNCH_FAILED);
	CHECK_EQ(cu.cuStreamQuery(other), CUF_LAUNCH_FAILED);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 100), CUF_LAUNCH_FAILED);
	CHECK_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), 0);
	CHECK_EQ(cu.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	CHECK_EQ(cu.cuMemAlloc_v2(&p, 100), 0);
}

/* ---- pinned memory, contexts ---- */

static void registration(void)
{
	unsigned char *p = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long long addr, same;
	void *out;

	start("host_alias", "1");
	CHECK(p != MAP_FAILED);
	CHECK_EQ(cu.cuMemHostRegister_v2(p + 1, 4096, 3), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemHostRegister_v2(host, 4096, 3), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemHostRegister_v2(p, 8192, 3), 0);
	CHECK_EQ(cu.cuMemHostRegister_v2(p + 4096, 8192, 3), CUF_ALREADY_REGISTERED);
	CHECK_EQ(cu.cuMemHostGetDevicePointer_v2(&addr, p + 100, 0), 0);
	CHECK(addr != (uintptr_t)p + 100);
	CHECK_EQ(cu.cudaFakeDeref(addr, 10, &out), 0);
	CHECK(out == p + 100);
	CHECK_EQ(cu.cuPointerGetAttribute(&same, CUF_PTR_DEVICE_POINTER, (uintptr_t)p + 100), 0);
	CHECK_EQ(same, addr);
	CHECK_EQ(cu.cuPointerGetAttribute(&same, CUF_PTR_HOST_POINTER, addr), 0);
	CHECK_EQ(same, (uintptr_t)p + 100);
	CHECK_EQ(cu.cuStreamWriteValue64(stream, addr + 4, 4711, 0), 0);
	CHECK_EQ(cu.cuStreamSynchronize(stream), 0);
	CHECK_EQ(*(unsigned long long *)(void *)(p + 104), 4711);
	CHECK_EQ(cu.cuMemFreeHost(p), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemHostUnregister(p), 0);
	CHECK_EQ(cu.cuMemHostUnregister(p), CUF_NOT_REGISTERED);
	CHECK_EQ(cu.cudaFakeDeref(addr, 10, &out), CUF_INVALID_VALUE);
	CHECK_EQ(cu.cuMemHostUnregister(host), CUF_NOT_REGISTERED);
	CHECK_EQ(mprotect(p, 4096, PROT_READ), 0);
	CHECK_EQ(cu.cuMemHostRegister_v2(p, 4096, 3), CUF_INVALID_VALUE);
	munmap(p, 4 * 4096);
	CHECK_EQ(cu.cuMemHostRegister_v2(p, 4096, 3), CUF_INVALID_VALUE);
	start("host_skew", "1");
	CHECK_EQ(cu.cuMemHostAlloc(&out, 100, 3), 0);
	CHECK((uintptr_t)out % 4096);
	CHECK_EQ(cu.cuMemFreeHost(out), 0);
}

/* The real library writes to where it was; this one ends the program, so that tests see it. */
static void a_destroyed_context_is_not_named(void)
{
	unsigned long long id;
	int status;
	pid_t child;
	void *a;

	for (int call = 0; call < 4; call++) {
		fakenv_reset();
		child = fork();
		CHECK(child >= 0);
		if (!child) {
			close(2);
			start(NULL, NULL);
			if (cu.cuCtxCreate_v2(&a, 0, 0) || cu.cuCtxDestroy_v2(a))
				_exit(1);
			if (call == 0)
				cu.cuCtxPushCurrent_v2(a);
			else if (call == 1)
				cu.cuCtxSetCurrent(a);
			else if (call == 2)
				cu.cuCtxDestroy_v2(a);
			else
				cu.cuCtxGetId(a, &id);
			_exit(0);
		}
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

/* The identity of a context is never used again, its address is. */
static void identities(void)
{
	unsigned long long first = 0, second = 0;
	void *a, *b, *of;

	start(NULL, NULL);
	CHECK_EQ(cu.cuCtxCreate_v2(&a, 0, 0), 0);
	CHECK_EQ(cu.cuCtxGetId(NULL, &first), 0);
	CHECK_EQ(cu.cuStreamGetCtx(stream, &of), 0);
	CHECK(of == ctx);
	CHECK_EQ(cu.cuStreamGetCtx(NULL, &of), 0);
	CHECK(of == a);
	CHECK_EQ(cu.cuCtxDestroy_v2(a), 0);
	CHECK_EQ(cu.cuCtxCreate_v2(&b, 0, 0), 0);
	CHECK_EQ(cu.cuCtxGetId(b, &second), 0);
	CHECK(a == b && first != second);
	start("driver", "515.65.01");
	CHECK_EQ(cu.cuCtxGetId(ctx, &first), CUF_NOT_FOUND);
}

static void capture(void)
{
	void *graph, *blocking;
	int status;
	size_t n;

	start(NULL, NULL);
	CHECK_EQ(cu.cuStreamBeginCapture_v2(stream, CUF_CAPTURE_GLOBAL), 0);
	CHECK_EQ(cu.cuMemcpyHtoDAsync_v2(gpu, host, 8, stream), 0);
	CHECK_EQ(cu.cuStreamWriteValue64(stream, at(0), 1, 0), 0);
	CHECK_EQ(cu.cuLaunchHostFunc(stream, add_one, &host[0]), 0);
	CHECK_EQ(cu.cuStreamEndCapture(stream, &graph), 0);
	CHECK_EQ(cu.cuGraphGetNodes(graph, NULL, &n), 0);
	CHECK_EQ(n, 3);
	CHECK_EQ(cu.cuStreamSynchronize(stream), 0);
	CHECK_EQ(get(0), 0);
	/* a question breaks it; so does the default stream, where the captured one waits for it */
	CHECK_EQ(cu.cuStreamBeginCapture_v2(stream, CUF_CAPTURE_RELAXED), 0);
	CHECK_EQ(cu.cuStreamQuery(stream), CUF_CAPTURE_UNSUPPORTED);
	CHECK_EQ(cu.cuStreamEndCapture(stream, &graph), CUF_CAPTURE_INVALIDATED);
	CHECK_EQ(cu.cuStreamCreate(&blocking, 0), 0);
	CHECK_EQ(cu.cuStreamBeginCapture_v2(blocking, CUF_CAPTURE_RELAXED), 0);
	CHECK_EQ(cu.cuStreamIsCapturing(NULL, &status), CUF_CAPTURE_IMPLICIT);
	CHECK_EQ(cu.cuStreamIsCapturing(blocking, &status), 0);
	CHECK_EQ(status, 1);
	CHECK_EQ(cu.cuLaunchHostFunc(NULL, add_one, &host[0]), CUF_CAPTURE_IMPLICIT);
	CHECK_EQ(cu.cuStreamEndCapture(blocking, &graph), CUF_CAPTURE_INVALIDATED);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(in_turn), TEST(host_functions), TEST(values), TEST(kernels), TEST(sticky),
		TEST(registration), TEST(identities), TEST(capture),
		TEST(a_destroyed_context_is_not_named), { 0 }
	};

	load();
	return test_main(argc, argv, cases);
}
