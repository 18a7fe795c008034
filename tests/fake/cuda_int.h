/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of the fake libcuda.
 */
#ifndef CUDA_INT_H
#define CUDA_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_fake.h"

#define FAKE_API __attribute__((visibility("default")))
#define CHUNK (2ull << 20)

#define CUF_PROTOTYPE(name, args) int name args;
CUF_LIST(CUF_PROTOTYPE)
#undef CUF_PROTOTYPE

enum { MAX_DEVICES = 8 };

struct ctx {
	struct ctx *next;
	int dev;
	bool primary, alive;
	int refs;
	int error;                /* that a kernel left, for good */
	unsigned long long id;    /* never used again */
	struct stream *dflt;      /* its default stream */
};

struct device {
	unsigned minor;
	uint32_t pci[4], gpu_id;
	unsigned char uuid[16];
	int fd;
	uint32_t hdevice, hsubdevice;
	struct ctx *primary;
};

/* What it has in the driver. */
struct cuda {
	pthread_mutex_t lock;
	pid_t pid;             /* of cuInit(), 0 before */
	unsigned generation;   /* of the state: contexts of threads that slept over a reset */
	int ctl;
	uint32_t client, odd_client;
	int ndevices;
	struct device device[MAX_DEVICES];
	struct ctx *contexts;
	unsigned long long next_buffer, next_context;
};

extern struct cuda cuda;

/* fakenv.h, found at run time: this library is linked with nothing but libc */
struct fakenv {
	long (*get)(const char *key);
	void *(*fb)(uint32_t hclient, uint32_t hmemory, uint64_t offset, uint64_t length);
	void (*trust_fd)(int fd);
	void (*on_reset)(void (*hook)(void));
	void (*count)(const char *counter, long by);
	int (*gpu)(unsigned minor, uint32_t pci[4], unsigned char uuid[16]);
};

extern struct fakenv fakenv;

/*
 * Every entry: takes the lock if this process has initialised CUDA. The current context, if any, is
 * told; one that a kernel broke gives its error. A function returns through leave().
 */
int enter(struct ctx **current);
int enter_broken(struct ctx **current); /* in a broken context too */
struct ctx *context_of(const void *p);  /* NULL: it is not one, or was destroyed */
int leave(int result);
bool device_ok(int dev);

/* rm calls, all through the one call of ioctl() in this library */
int nv_ioctl(int fd, unsigned nr, unsigned size, void *arg);
uint32_t nv_alloc(uint32_t parent, uint32_t handle, uint32_t class, void *params, uint32_t *out);
uint32_t nv_free(uint32_t client, uint32_t handle);
uint32_t nv_control(uint32_t object, uint32_t cmd, void *params, uint32_t size);
uint32_t nv_dup(uint32_t client, uint32_t parent, uint32_t from_client, uint32_t from,
		uint32_t *handle);

/* cuda_mem.c */
void mem_drop_context(struct ctx *ctx);
void mem_reset(void);
/* Copies between device memory at @ptr and host memory, one of @out and @in. */
int mem_copy(unsigned long long ptr, unsigned char *out, const unsigned char *in, size_t bytes);
void *mem_at(unsigned long long ptr, size_t bytes); /* NULL: not in one allocation */
bool mem_is_pinned(const void *host);

/* cuda_queue.c: work in order, done by a thread of the stream's */
enum work_kind { WORK_TO, WORK_FROM, WORK_WRITE, WORK_WAIT, WORK_CALL, WORK_LAUNCH };

struct work {
	struct work *next;
	enum work_kind kind;
	unsigned long long addr, value;
	void *host;
	size_t bytes;
	bool copied; /* @host is the work's own */
	void (*fn)(void *arg);
	cuda_fake_kernel *kernel;
	unsigned blocks, threads;
};

struct queue {
	struct ctx *ctx;
	struct work *head, **tail;
	unsigned long long given, done;
	bool started, end, drop; /* end: after its work; drop: without */
};

int queue_put(struct queue *q, const struct work *work, bool wait);
void queue_wait(struct queue *q);
void queue_end(struct queue *q, bool drop);
void queue_wait_ended(void); /* until no thread of a queue runs */

/* cuda_stream.c: CUF_CAPTURE_UNSUPPORTED where the call would break a capture; breaks it */
int capture_check(void);
/*
 * What work on @stream does: 0 goes into *queue, 1 is captured and not done, else an error. @ctx is
 * the current context.
 */
int stream_work(void *stream, struct ctx *ctx, int *error, struct queue **queue);
void stream_wait_context(struct ctx *ctx); /* for all of its streams */
void stream_drop_context(struct ctx *ctx);
void stream_reset(void);

/* cuda_module.c */
void module_drop_context(struct ctx *ctx);
void module_reset(void);

#endif
