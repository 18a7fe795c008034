/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real NCCL between two GPUs of one process: all-reduce and send/recv are right, and how long 8
 * bytes take. run-nccl.sh sets the environment that makes NCCL go over sockets, with and without
 * GDRCopy.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <time.h>

#include "test.h"

#define RANKS 2
#define MOST (4u << 20) /* floats */

static ncclComm_t comm[RANKS];
static cudaStream_t stream[RANKS];
static float *in[RANKS], *out[RANKS];
static float *host[RANKS], *got;
static uint64_t seed = 1;

#define CUDA(call) do { \
	cudaError_t cuda_ = (call); \
	if (cuda_ != cudaSuccess) FAIL("%s: %s", #call, cudaGetErrorString(cuda_)); \
} while (0)
#define NCCL(call) do { \
	ncclResult_t nccl_ = (call); \
	if (nccl_ != ncclSuccess) FAIL("%s: %s", #call, ncclGetErrorString(nccl_)); \
} while (0)

static void start(void)
{
	int devices = 0, device[RANKS] = { 0, 1 };

	if (comm[0])
		return;
	if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < RANKS)
		SKIP("%d GPUs, two are needed", devices);
	NCCL(ncclCommInitAll(comm, RANKS, device));
	got = malloc(MOST * sizeof(float));
	for (int r = 0; r < RANKS; r++) {
		CUDA(cudaSetDevice(r));
		CUDA(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking));
		CUDA(cudaMalloc((void **)&in[r], MOST * sizeof(float)));
		CUDA(cudaMalloc((void **)&out[r], MOST * sizeof(float)));
		host[r] = malloc(MOST * sizeof(float));
	}
}

static void fill(size_t n)
{
	for (int r = 0; r < RANKS; r++) {
		for (size_t i = 0; i < n; i++)
			host[r][i] = (float)(test_random(&seed) % 1000); /* sums are exact */
		CUDA(cudaSetDevice(r));
		CUDA(cudaMemcpy(in[r], host[r], n * sizeof(float), cudaMemcpyHostToDevice));
		CUDA(cudaMemset(out[r], 0xff, n * sizeof(float)));
		CUDA(cudaDeviceSynchronize());
	}
}

static void finish(void)
{
	for (int r = 0; r < RANKS; r++) {
		CUDA(cudaSetDevice(r));
		CUDA(cudaStreamSynchronize(stream[r]));
	}
}

static void queue_all_reduce(size_t n)
{
	NCCL(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		NCCL(ncclAllReduce(in[r], out[r], n, ncclFloat, ncclSum, comm[r], stream[r]));
	NCCL(ncclGroupEnd());
}

static void queue_send_recv(size_t n)
{
	NCCL(ncclGroupStart());
	for (int r = 0; r < RANKS; r++) {
		NCCL(ncclSend(in[r], n, ncclFloat, 1 - r, comm[r], stream[r]));
		NCCL(ncclRecv(out[r], n, ncclFloat, 1 - r, comm[r], stream[r]));
	}
	NCCL(ncclGroupEnd());
}

static void all_sizes(void (*queue)(size_t), int sums)
{
	start();
	for (size_t n = 2; n <= MOST; n = n < 64 ? n + 1 : n * 7 + 3) {
		fill(n);
		queue(n);
		finish();
		for (int r = 0; r < RANKS; r++) {
			CUDA(cudaSetDevice(r));
			CUDA(cudaMemcpy(got, out[r], n * sizeof(float), cudaMemcpyDeviceToHost));
			for (size_t i = 0; i < n; i++)
				if (got[i] != host[1 - r][i] + (sums ? host[r][i] : 0.0f))
					FAIL("%zu floats, rank %d: float %zu is wrong", n, r, i);
		}
	}
}

static void all_reduce(void)
{
	all_sizes(queue_all_reduce, 1);
}

static void send_recv(void)
{
	all_sizes(queue_send_recv, 0);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void time_it(const char *name, void (*queue)(size_t))
{
	enum { WARM = 500, N = 3000, BATCH = 50 };
	static double alone[N], row[N / BATCH];

	start();
	for (int i = 0; i < WARM; i++) {
		queue(2);
		finish();
	}
	for (int i = 0; i < N; i++) {
		double t = now_us();

		queue(2);
		finish();
		alone[i] = now_us() - t;
	}
	for (int k = 0; k < N / BATCH; k++) {
		double t = now_us();

		for (int i = 0; i < BATCH; i++)
			queue(2);
		finish();
		row[k] = (now_us() - t) / BATCH;
	}
	qsort(alone, N, sizeof(double), ascending);
	qsort(row, N / BATCH, sizeof(double), ascending);
	printf("latency %s 8 B: alone %.2f us (p10 %.2f, p90 %.2f), in a row %.2f us\n", name,
	       alone[N / 2], alone[N / 10], alone[N * 9 / 10], row[N / BATCH / 2]);
}

static void latency(void)
{
	time_it("all-reduce", queue_all_reduce);
	time_it("send/recv", queue_send_recv);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(all_reduce),
		TEST(send_recv),
		TEST(latency),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
