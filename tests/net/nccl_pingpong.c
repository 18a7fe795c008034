/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl_pingpong HOW: what NCCL takes for a message between the GPU memory of two processes, one GPU
 * each, beside which "barway netlat" and "barway netbw" are looked at. run-nccl-pingpong.sh builds
 * it, and sets the environment that makes NCCL go over sockets or over shared memory; HOW is the
 * name of that. Prints one JSON object; microseconds are half of a round trip:
 *
 *    alone      a round trip, and a wait for the stream
 *    in_a_row   of a hundred that are queued on the stream, so that launches overlap
 *
 * Exit status 0, 1, or 77: there are not two GPUs.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ALONE 2000
#define ROWS 50
#define IN_A_ROW 100
#define LARGE (256u << 20)
#define LARGE_ROWS 9
#define LARGE_IN_A_ROW 4

#define CUDA(call) do { \
	cudaError_t cuda_ = (call); \
	if (cuda_ != cudaSuccess) { \
		fprintf(stderr, "nccl_pingpong: %s: %s\n", #call, cudaGetErrorString(cuda_)); \
		exit(1); \
	} \
} while (0)
#define NCCL(call) do { \
	ncclResult_t nccl_ = (call); \
	if (nccl_ != ncclSuccess) { \
		fprintf(stderr, "nccl_pingpong: %s: %s\n", #call, ncclGetErrorString(nccl_)); \
		exit(1); \
	} \
} while (0)

static int rank, sock; /* @sock: to the other process */
static ncclComm_t comm;
static cudaStream_t stream;
static unsigned char *memory;

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

/* Both are here. */
static void meet(void)
{
	char c = 0;

	if (write(sock, &c, 1) != 1 || read(sock, &c, 1) != 1)
		exit(1);
}

static void start(void)
{
	ncclUniqueId id;
	int devices = 0;

	if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) {
		if (!rank)
			fprintf(stderr, "nccl_pingpong: skipped: %d GPUs, two are needed\n",
				devices);
		exit(77);
	}
	CUDA(cudaSetDevice(rank));
	if (!rank) {
		NCCL(ncclGetUniqueId(&id));
		if (write(sock, &id, sizeof(id)) != sizeof(id))
			exit(1);
	} else if (recv(sock, &id, sizeof(id), MSG_WAITALL) != sizeof(id)) {
		exit(1);
	}
	NCCL(ncclCommInitRank(&comm, 2, id, rank));
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&memory, LARGE));
}

/* There and back. */
static void queue_round(size_t n)
{
	for (int i = 0; i < 2; i++) {
		if (i == rank)
			NCCL(ncclSend(memory, n, ncclUint8, 1 - rank, comm, stream));
		else
			NCCL(ncclRecv(memory, n, ncclUint8, 1 - rank, comm, stream));
	}
}

static void queue_one_way(size_t n)
{
	if (!rank)
		NCCL(ncclSend(memory, n, ncclUint8, 1, comm, stream));
	else
		NCCL(ncclRecv(memory, n, ncclUint8, 0, comm, stream));
}

/* Microseconds of one of @count, all queued at once; sorted, in @us. */
static void times(void (*queue)(size_t), size_t n, int rows, int count, double *us)
{
	for (int i = -rows / 10 - 2; i < rows; i++) {
		double t;

		meet();
		t = now_us();
		for (int k = 0; k < count; k++)
			queue(n);
		CUDA(cudaStreamSynchronize(stream));
		if (i >= 0)
			us[i] = (now_us() - t) / count;
	}
	qsort(us, (size_t)rows, sizeof(*us), ascending);
}

/* What rank 0 sends is what rank 1 has, to the last byte. */
static void check(size_t n)
{
	unsigned char *host = malloc(n);

	if (!host)
		exit(1);
	for (size_t i = 0; i < n; i++)
		host[i] = (unsigned char)(rank ? 0 : i * 2654435761u >> 13);
	CUDA(cudaMemcpy(memory, host, n, cudaMemcpyHostToDevice));
	CUDA(cudaDeviceSynchronize());
	meet();
	queue_one_way(n);
	CUDA(cudaStreamSynchronize(stream));
	CUDA(cudaMemcpy(host, memory, n, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < n; i++)
		if (host[i] != (unsigned char)(i * 2654435761u >> 13)) {
			fprintf(stderr, "nccl_pingpong: %zu bytes: byte %zu is wrong\n", n, i);
			exit(1);
		}
	free(host);
}

static void print_us(const char *name, const double *us, int n)
{
	printf(", \"%s_us\": {\"median\": %.3f, \"p99\": %.3f, \"min\": %.3f}", name, us[n / 2] / 2,
	       us[n * 99 / 100] / 2, us[0] / 2);
}

static int run(const char *how)
{
	static const size_t sizes[] = { 8, 64, 512, 4096, 65536, 1048576 };
	static double alone[ALONE], row[ROWS], large[LARGE_ROWS];
	int version = 0;

	start();
	NCCL(ncclGetVersion(&version));
	if (!rank)
		printf("{\"program\": \"nccl_pingpong\", \"nccl\": %d, \"how\": \"%s\", "
		       "\"results\": [", version, how);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		check(sizes[i]);
		times(queue_round, sizes[i], ALONE, 1, alone);
		times(queue_round, sizes[i], ROWS, IN_A_ROW, row);
		if (rank)
			continue;
		printf("\n  {\"bytes\": %zu", sizes[i]);
		print_us("alone", alone, ALONE);
		print_us("in_a_row", row, ROWS);
		printf("},");
	}
	check(LARGE);
	times(queue_one_way, LARGE, LARGE_ROWS, LARGE_IN_A_ROW, large);
	if (rank) /* it has the data */
		return write(sock, &large[LARGE_ROWS / 2], sizeof(double)) != sizeof(double);
	if (recv(sock, &large[0], sizeof(double), MSG_WAITALL) != sizeof(double))
		return 1;
	printf("\n  {\"bytes\": %u, \"gbs\": %.2f}\n]}\n", LARGE, (double)LARGE / large[0] / 1e3);
	return 0;
}

int main(int argc, char **argv)
{
	int pair[2], status, ret;
	pid_t child;

	if (argc != 2 || strpbrk(argv[1], "\"\\")) {
		fprintf(stderr, "usage: nccl_pingpong HOW: \"sockets\", \"shared memory\"\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	child = fork(); /* before there is any CUDA */
	if (child < 0)
		return 1;
	rank = child == 0;
	sock = pair[rank];
	close(pair[!rank]);
	ret = run(argv[1]);
	if (rank)
		return ret;
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && !ret ?
	       WEXITSTATUS(status) : 1;
}
