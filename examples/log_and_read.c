/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * examples/log_and_read FILE: a kernel asks the CPU for the pieces of a file while it runs, and
 * logs lines. The CPU stores the pieces into GPU memory through a mapping and answers with a
 * message. Then both compare what the words of the file add up to.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "examples/example.h"
#include "examples/log_and_read.h"

#include "examples/log_and_read.cu" /* as a kernel of the soft GPU */

extern const char log_and_read_ptx[]; /* and for CUDA */

static const struct bench_kernel kernel = {
	.name = "log_and_read",
	.ptx = log_and_read_ptx,
	.soft = log_and_read,
};

#define PIECE 65536u
#define WAIT 10000000000u /* nanoseconds */

static uint64_t file_sum;
static double file_us;
static unsigned reads;

/* Reads what the kernel asked for, through the mapping of its buffer at @addr. */
static int64_t read_piece(int fd, const struct read_request *r, struct barway_mapping *map,
			  uint64_t addr)
{
	static uint64_t piece[PIECE / 8];
	double began = now_us();
	ssize_t n;

	if (r->bytes > PIECE || r->to != addr)
		return -EINVAL;
	memset(piece, 0, sizeof(piece)); /* the last word of the file */
	n = pread(fd, piece, r->bytes, (off_t)r->offset);
	if (n < 0)
		return -errno;
	OK(barway_copy_to(map, 0, piece, ((size_t)n + 7) / 8 * 8));
	file_us += now_us() - began;
	reads++;
	for (ssize_t i = 0; i < (n + 7) / 8; i++)
		file_sum += piece[i];
	return n;
}

/* Does what the kernel says, until it is done. Returns what it added up. */
static uint64_t serve(struct barway_channel *channel, int fd, struct barway_mapping *map,
		      uint64_t addr)
{
	union {
		struct log_line line;
		struct read_request request;
	} m;
	struct read_answer answer;
	unsigned tag;

	for (;;) {
		OK(barway_channel_recv(channel, &m, sizeof(m), NULL, &tag, WAIT));
		if (tag == TAG_READ) {
			answer.bytes = read_piece(fd, &m.request, map, addr);
			OK(barway_channel_send(channel, &answer, sizeof(answer), TAG_ANSWER, WAIT));
			continue;
		}
		printf("kernel: %.*s %llu\n", (int)sizeof(m.line.text), m.line.text,
		       (unsigned long long)m.line.number);
		if (tag == TAG_DONE)
			return m.line.number;
	}
}

int main(int argc, char **argv)
{
	int fd = open(argc > 1 ? argv[1] : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct log_and_read param = { .piece = PIECE };
	struct barway_channel *channel;
	struct barway_mapping *map;
	struct example e;
	uint64_t sum;
	double began;

	if (argc > 2 || fd < 0) {
		fprintf(stderr, "usage: log_and_read [FILE]: %s\n",
			fd < 0 ? strerror(errno) : "more than one file");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	example_open(&e);
	OK(barway_mem_alloc(e.dev, PIECE, &param.buffer));
	OK(barway_map(e.ctx, param.buffer, PIECE, NULL, &map));
	OK(barway_channel_open(e.dev, NULL, &channel));
	OK(barway_channel_gpu(channel, &param.channel));
	GPU_OK(&e, bench_gpu_load(e.gpu, &kernel));

	began = now_us();
	GPU_OK(&e, bench_gpu_launch(e.stream, &kernel, 1, 32, &param, sizeof(param)));
	sum = serve(channel, fd, map, param.buffer);
	GPU_OK(&e, bench_stream_sync(e.stream));
	began = now_us() - began;

	printf("CPU: its words add up to %llu: %s\n", (unsigned long long)file_sum,
	       sum == file_sum ? "the same" : "NOT THE SAME");
	printf("%u requests in %.1f us, one in %.2f us, of which reading the file and storing it "
	       "into GPU memory takes %.2f us\n", reads, began, began / reads, file_us / reads);
	OK(barway_channel_close(channel));
	OK(barway_unmap(map));
	OK(barway_mem_free(e.ctx, param.buffer));
	example_close(&e);
	close(fd);
	return sum == file_sum ? 0 : 1;
}
