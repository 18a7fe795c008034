/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel: rings between the kernels of a device and this process. include/barway_channel_abi.h has
 * what the two sides share; this is the CPU's side.
 *
 *   open.c    memory, the mapping, closing
 *   send.c    to the GPU
 *   recv.c    from the GPU
 *   wait.c    waiting, launching the kernel again, failures
 *   line.h    messages to lines and back; line_avx512.c: a line in one register
 *
 * The fast ways, sending with room and taking what is there, make no system call and read no clock.
 * All functions are thread-safe but bw_channel_close(), and return 0 or -errno with bw_err() set.
 */
#ifndef BW_CHANNEL_H
#define BW_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "barway_channel_abi.h"
#include "channel/line.h"
#include "core/clock.h"
#include "map/map.h"

#define BW_CHANNEL_FOREVER UINT64_MAX
#define BW_CHANNEL_POLLS 32 /* between two looks at the clock */

/* Why a channel does not work any more: bits of struct bw_channel.stopped. */
enum {
	BW_CHANNEL_SHUT = 1,    /* by this side */
	BW_CHANNEL_FAILED = 2,  /* the device: what it sent before is still good */
	BW_CHANNEL_GARBLED = 4, /* what stands in a ring cannot be */
};

/* What a poll may find. */
enum {
	BW_CHANNEL_READABLE = 1, /* as BARWAY_CHANNEL_... */
	BW_CHANNEL_WRITABLE = 2,
	BW_CHANNEL_CLOSED = 4,
};

/* There is no room, or no message, and no time to wait for it. */
#define BW_CHANNEL_NOTHING 1

struct bw_channel_params {
	uint32_t to_gpu_lines, to_cpu_lines; /* powers of two */
	int (*launch)(void *arg);
	void *launch_arg;
	uint64_t spin_ns;
};

/* One direction, as this side knows it. */
struct bw_channel_way {
	_Alignas(64) pthread_mutex_t lock; /* of who writes or takes a message */
	_Atomic uint64_t position;         /* lines sent, or taken; written under the lock */
	_Atomic uint64_t messages;
	/* of what was sent, what the GPU was known to have taken; of what was taken, what the GPU
	 * has been told */
	_Atomic uint64_t credit;
	_Atomic unsigned lines; /* of the last message that was taken */
};

struct bw_channel {
	/* never changes */
	unsigned char *gpu;   /* mapping of the part in GPU memory */
	unsigned char *host;  /* the part in host memory */
	bw_store_fn *store;
	const struct bw_line_kernel *line;
	bw_line_send_fn *send_line; /* of line; NULL where lines have to go by way of store */
	const struct bw_window *win;
	uint32_t to_gpu_lines, to_cpu_lines;
	int (*launch)(void *arg);
	void *launch_arg;
	uint64_t spin_ns;
	_Atomic unsigned stopped;

	struct bw_channel_way to_gpu, to_cpu;

	_Alignas(64) pthread_mutex_t launching; /* held while launch() runs */
	_Atomic uint64_t launches;              /* that succeeded */
	/* what the GPU had taken at the last one after this side shut the channel down */
	_Atomic uint64_t shut_launch;
	_Atomic unsigned idle;                  /* calls that found nothing and did not wait */
	_Atomic uint64_t asked_ns;              /* when the device was asked last */
	pthread_mutex_t failing;                /* of what follows */
	struct bw_reason why;

	struct bw_device *dev;
	void *owner; /* the device's context: other threads may have another one, or none */
	struct bw_window *window;
	uint64_t gpu_addr, host_addr;
	uint64_t gpu_block; /* the memory that gpu_addr lies in */
	uint64_t gpu_id;    /* of that, as struct bw_segment has it */
	void *memory; /* what this lies in */
};

int bw_channel_open(struct bw_device *dev, const struct bw_map_policy *policy,
		    const struct bw_channel_params *params, struct bw_channel **out);
/* Nobody uses it any more. May wait for kernels, those of other channels too. */
void bw_channel_close(struct bw_channel *ch);
void bw_channel_shutdown(struct bw_channel *ch);
/* The same, but that what was sent before may stay where it is. */
void bw_channel_end_kernels(struct bw_channel *ch);

/* @bytes and @tag are in range. BW_CHANNEL_NOTHING, -ETIMEDOUT, -EPIPE, -EIO, or what launch()
 * returned. */
int bw_channel_send(struct bw_channel *ch, const void *data, size_t bytes, unsigned tag,
		    uint64_t timeout_ns);
/* As well -EMSGSIZE: *bytes is set. */
int bw_channel_recv(struct bw_channel *ch, void *data, size_t room, size_t *bytes, unsigned *tag,
		    uint64_t timeout_ns);
int bw_channel_poll(struct bw_channel *ch);
/* Where the rings lie and how they are written. */
void bw_channel_path(const struct bw_channel *ch, char *text, size_t n);

/* ---- what its files share -------------------------------------------------------------------- */

/* A word that the GPU writes. What it stored before the word is seen after this. */
static inline uint64_t bw_channel_word(const struct bw_channel *ch, unsigned offset)
{
	return __atomic_load_n((const uint64_t *)(const void *)(ch->host + offset),
			       __ATOMIC_ACQUIRE);
}

/* A word that the GPU reads: one store, on its way when this returns. */
void bw_channel_tell(const struct bw_channel *ch, unsigned offset, uint64_t value);

/* Can a kernel that is launched now take messages? @credit: what was taken. */
bool bw_channel_worth_launching(const struct bw_channel *ch, uint64_t credit);

/* Was more sent than @credit, which was taken? */
static inline bool bw_channel_untaken(const struct bw_channel *ch, uint64_t credit)
{
	/* the GPU may be ahead: it takes a message before that is counted */
	return (int64_t)(atomic_load_explicit(&ch->to_gpu.position, memory_order_acquire) -
			 credit) > 0;
}

/* Are messages waiting for a kernel, and none is there? What it said of them comes before LEFT. */
static inline bool bw_channel_deserted(const struct bw_channel *ch)
{
	uint64_t left, credit;

	if (!ch->launch)
		return false;
	left = bw_channel_word(ch, BARWAY_HOST_LEFT);
	if ((int64_t)(left - atomic_load_explicit(&ch->launches, memory_order_acquire)) < 0)
		return false;
	credit = bw_channel_word(ch, BARWAY_HOST_RX_CREDIT);
	return bw_channel_untaken(ch, credit) && bw_channel_worth_launching(ch, credit);
}

/* Launches the kernel where that is so, unless another thread does. Returns what launch() did. */
int bw_channel_launch(struct bw_channel *ch);

/* The same for calls that fail anyway, as after a shutdown: with their sentence. */
void bw_channel_still_to_take(struct bw_channel *ch);

struct bw_channel_wait {
	uint64_t timeout_ns;
	unsigned polls;
	uint64_t began_ns, sleep_ns;
};

/* Between two polls that found nothing: 0 to go on; BW_CHANNEL_NOTHING the time is over; or an
 * error. */
int bw_channel_pause_slowly(struct bw_channel *ch, struct bw_channel_wait *w);

static inline int bw_channel_pause(struct bw_channel *ch, struct bw_channel_wait *w)
{
	if (++w->polls % BW_CHANNEL_POLLS)
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("yield");
#else
		__asm__ volatile("" ::: "memory");
#endif
	else
		return bw_channel_pause_slowly(ch, w);
	return 0;
}

/* A call that does not wait found nothing: from time to time, what those that wait do. */
int bw_channel_idle(struct bw_channel *ch);

/* It does not work any more, for the reason given. -EIO. */
int bw_channel_fail(struct bw_channel *ch, unsigned how, const char *why);
/* What calls on a channel return that is stopped: -EIO or -EPIPE. */
int bw_channel_stopped_err(const struct bw_channel *ch);
/* Has the GPU closed it, or barway_release_all() taken its mapping away? -EPIPE, -EIO or 0. */
int bw_channel_closed_err(const struct bw_channel *ch);

/* Tells the GPU what was taken, if it does not know. */
void bw_channel_say_taken(struct bw_channel *ch);
bool bw_channel_has_room(struct bw_channel *ch, uint64_t lines);
bool bw_channel_readable(const struct bw_channel *ch);

#endif
