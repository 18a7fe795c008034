/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barway_device.cuh: a kernel's end of a channel. For nvcc and clang, and, as plain C, for kernels
 * of the soft GPU (barway_soft.h). Nothing to link; no CUDA header is needed.
 *
 * READ THIS FIRST. While a kernel runs, cudaFree, cudaFreeHost, cuModuleLoadData and
 * cudaDeviceSynchronize of its process wait until it ends. A kernel that waits for messages
 * therefore has to leave when none has come for a while (BARWAY_GPU_IDLE_NS is a good while) with
 * barway_gpu_leave(); the library launches it again for the next message, see barway_launch_fn in
 * barway.h. Every wait here has a bound; there is none for ever.
 *
 *     extern "C" __global__ void serve(struct barway_channel_gpu handle)
 *     {
 *             struct barway_gpu_channel ch;
 *             uint64_t message[BARWAY_MESSAGE_MAX / 8];
 *             uint32_t bytes, tag;
 *
 *             barway_gpu_attach(&ch, &handle, BARWAY_GPU_SOLE);
 *             while (!barway_gpu_recv(&ch, message, sizeof(message), &bytes, &tag,
 *                                     BARWAY_GPU_IDLE_NS, 0))
 *                     if (barway_gpu_send(&ch, message, bytes, tag, BARWAY_GPU_WAIT_MAX_NS, 0))
 *                             break; // the CPU has closed, or takes nothing any more
 *             barway_gpu_leave(&ch);
 *     }
 *
 * Who may call what at once:
 *   sending    any number of threads, warps and blocks; or one only, with BARWAY_GPU_SOLE, which
 *              saves two atomic operations
 *   receiving  one thread, warp or block of all kernels that run; another may take over that
 *              attaches after the one before has left
 *   forms      name() by one thread; name_warp() by all 32 threads of a warp together, name_block()
 *              by all threads of a block together, with the same arguments; name_each() by all
 *              threads of a warp together, each with a message of its own; in registers,
 *              name_line() by one thread, of one line, and name_words() by a warp. Warps are
 *              whole ones: a block has 32 threads at least. A thread
 *              that is SOLE and sends by one form does not send by another; receiving, too, keeps
 *              to one form, and barway_gpu_leave() is by the first thread of those that received
 *              (of a block: its first thread). On the soft GPU, where a block has one thread, all
 *              are the same, and name_words() has one line; as C it needs POSIX (gnu11).
 *
 * Memory ordering. A message needs none: every eight bytes of it are marked (barway_channel_abi.h).
 * Fences are there for OTHER memory that a message announces:
 *   before a message is stored   fence.acq_rel.sys by every thread that takes part: what these
 *                                threads wrote before (for name_block(): what all threads of the
 *                                block wrote, through its barrier) is seen by the CPU that has
 *                                taken the message, and by whoever the CPU tells
 *   after a message was taken    ld.acquire.sys of its control word: what the CPU stored through a
 *                                mapping of this GPU before it sent, and host memory that it wrote
 *                                before, is seen by loads that follow, of all threads that take
 *                                part
 * BARWAY_GPU_RELAXED leaves these out, for messages that stand for themselves. The fence is the
 * dear one: it waits until all that the thread stored before has arrived, half a microsecond on an
 * H200.
 *
 * What is used, by target:
 *                  sm_70 and newer                      older
 *   loads          ld.relaxed.sys                       ld.volatile
 *   acquiring      ld.acquire.sys                       ld.volatile, membar.sys
 *   stores         st.relaxed.sys                       st.volatile
 *   fence          fence.acq_rel.sys                    membar.sys
 *   counters       atom.relaxed.gpu.add                 atom.add
 *   twins          atom.relaxed.sys.add                 atom.add
 *   warps          shfl.sync, vote.sync                 shfl, vote
 *
 * Results are 0 or negative Linux errno values, by these names:
 */
#ifndef BARWAY_DEVICE_CUH
#define BARWAY_DEVICE_CUH

#include <stdint.h>

#include "barway_channel_abi.h"

#define BARWAY_GPU_EAGAIN (-11)    /* nothing there, or no room, and no time was given */
#define BARWAY_GPU_EINVAL (-22)    /* tag too large */
#define BARWAY_GPU_EPIPE (-32)     /* the CPU has closed the channel */
#define BARWAY_GPU_EBADMSG (-74)   /* what stands in the ring is not a message */
#define BARWAY_GPU_EMSGSIZE (-90)  /* longer than BARWAY_MESSAGE_MAX, or than the room given */
#define BARWAY_GPU_ETIMEDOUT (-110)

#define BARWAY_GPU_SOLE 1u    /* attach: nobody else sends while this one is attached */
#define BARWAY_GPU_RELAXED 2u /* send, receive: other memory is not ordered with the message */

#define BARWAY_GPU_IDLE_NS BARWAY_GPU_IDLE_FOR(200000ull) /* a good time to wait before leaving */
#define BARWAY_GPU_WAIT_MAX_NS 10000000000ull /* longer waits are cut to this */

#if defined(__CUDACC__) || defined(__clang__)
#define BARWAY_GPU_UNROLL _Pragma("unroll")
#else
#define BARWAY_GPU_UNROLL _Pragma("GCC unroll 8")
#endif

/* ---- what differs between CUDA and the soft GPU ---------------------------------------------- */

#if defined(__CUDACC__) || defined(__CUDA__)

#define BARWAY_GPU_FN static __inline__ __attribute__((device, always_inline, unused))
#define BARWAY_GPU_SHARED static __attribute__((shared))

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#define BARWAY_PTX_LD "ld.volatile.global"
#define BARWAY_PTX_ACQUIRE "ld.volatile.global"
#define BARWAY_PTX_ST "st.volatile.global"
#define BARWAY_PTX_FENCE "membar.sys;"
#define BARWAY_PTX_ADD "atom.global.add.u64"
#define BARWAY_PTX_ADD_SYS "atom.global.add.u64"
#define BARWAY_PTX_SHFL "shfl.idx.b32 %0, %1, %2, 31;"
#define BARWAY_PTX_VOTE "vote.ballot.b32 %0, p;"
#define BARWAY_PTX_VOTE_ALL "vote.all.pred q, p;"
#define BARWAY_PTX_SYNCWARP ""
#else
#define BARWAY_PTX_LD "ld.relaxed.sys.global"
#define BARWAY_PTX_ACQUIRE "ld.acquire.sys.global"
#define BARWAY_PTX_ST "st.relaxed.sys.global"
#define BARWAY_PTX_FENCE "fence.acq_rel.sys;"
#define BARWAY_PTX_ADD "atom.relaxed.gpu.global.add.u64"
#define BARWAY_PTX_ADD_SYS "atom.relaxed.sys.global.add.u64"
#define BARWAY_PTX_SHFL "shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"
#define BARWAY_PTX_VOTE "vote.sync.ballot.b32 %0, p, 0xffffffff;"
#define BARWAY_PTX_VOTE_ALL "vote.sync.all.pred q, p, 0xffffffff;"
#define BARWAY_PTX_SYNCWARP "bar.warp.sync 0xffffffff;"
#endif

BARWAY_GPU_FN uint64_t barway_gpu_ld(uint64_t at)
{
	uint64_t v;

	__asm__ volatile(BARWAY_PTX_LD ".u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}

/* Two loads in one instruction: each of the two is one access, the pair is not. */
BARWAY_GPU_FN void barway_gpu_ld2(uint64_t at, uint64_t *a, uint64_t *b)
{
	__asm__ volatile(BARWAY_PTX_LD ".v2.u64 {%0, %1}, [%2];"
			 : "=l"(*a), "=l"(*b) : "l"(at) : "memory");
}

/* Loads that follow see what was stored before what this one sees. */
BARWAY_GPU_FN uint64_t barway_gpu_ld_acquire(uint64_t at)
{
	uint64_t v;

	__asm__ volatile(BARWAY_PTX_ACQUIRE ".u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}

BARWAY_GPU_FN void barway_gpu_st(uint64_t at, uint64_t v)
{
	__asm__ volatile(BARWAY_PTX_ST ".u64 [%0], %1;" : : "l"(at), "l"(v) : "memory");
}

BARWAY_GPU_FN void barway_gpu_st2(uint64_t at, uint64_t a, uint64_t b)
{
	__asm__ volatile(BARWAY_PTX_ST ".v2.u64 [%0], {%1, %2};"
			 : : "l"(at), "l"(a), "l"(b) : "memory");
}

/* The same where @yes is not 0. No branch: threads that part, even for one store, cost the others
 * more than the store. */
BARWAY_GPU_FN void barway_gpu_st_if(uint32_t yes, uint64_t at, uint64_t v)
{
	__asm__ volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p " BARWAY_PTX_ST
			 ".u64 [%1], %2; }" : : "r"(yes), "l"(at), "l"(v) : "memory");
}

BARWAY_GPU_FN void barway_gpu_st2_if(uint32_t yes, uint64_t at, uint64_t a, uint64_t b)
{
	__asm__ volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p " BARWAY_PTX_ST
			 ".v2.u64 [%1], {%2, %3}; }"
			 : : "r"(yes), "l"(at), "l"(a), "l"(b) : "memory");
}

BARWAY_GPU_FN void barway_gpu_fence(void)
{
	__asm__ volatile(BARWAY_PTX_FENCE : : : "memory");
}

BARWAY_GPU_FN uint64_t barway_gpu_add(uint64_t at, uint64_t v)
{
	uint64_t old;

	__asm__ volatile(BARWAY_PTX_ADD " %0, [%1], %2;" : "=l"(old) : "l"(at), "l"(v) : "memory");
	return old;
}

BARWAY_GPU_FN uint64_t barway_gpu_now(void)
{
	uint64_t ns;

	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* Between polls that found nothing; @polls: how many so far. */
BARWAY_GPU_FN void barway_gpu_pause(unsigned polls)
{
	(void)polls;
}

/* For those who are many and in each other's way: some time between @ns and twice that. */
BARWAY_GPU_FN void barway_gpu_back_off(uint32_t ns)
{
	uint32_t clock;

	__asm__ volatile("mov.u32 %0, %%clock;" : "=r"(clock));
	ns += (clock ^ clock >> 7) & (ns - 1);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
	for (uint32_t now = clock; now - clock < ns;) /* cycles, which are less than that long */
		__asm__ volatile("mov.u32 %0, %%clock;" : "=r"(now));
#else
	__asm__ volatile("nanosleep.u32 %0;" : : "r"(ns) : "memory");
#endif
}

BARWAY_GPU_FN unsigned barway_gpu_lane(void)
{
	unsigned lane;

	__asm__("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
}

BARWAY_GPU_FN uint32_t barway_gpu_shfl(uint32_t v, unsigned lane)
{
	uint32_t out;

	__asm__ volatile(BARWAY_PTX_SHFL : "=r"(out) : "r"(v), "r"(lane));
	return out;
}

BARWAY_GPU_FN uint64_t barway_gpu_shfl64(uint64_t v, unsigned lane)
{
	return (uint64_t)barway_gpu_shfl((uint32_t)(v >> 32), lane) << 32 |
	       barway_gpu_shfl((uint32_t)v, lane);
}

BARWAY_GPU_FN uint32_t barway_gpu_ballot(int yes)
{
	uint32_t out;

	__asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; " BARWAY_PTX_VOTE " }"
			 : "=r"(out) : "r"(yes));
	return out;
}

BARWAY_GPU_FN int barway_gpu_all(int yes)
{
	int out;

	__asm__ volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; " BARWAY_PTX_VOTE_ALL
			 " selp.s32 %0, 1, 0, q; }" : "=r"(out) : "r"(yes));
	return out;
}

/* Which bit is the @n-th, from 1, of those that are set; ~0: there are fewer. */
BARWAY_GPU_FN uint32_t barway_gpu_nth_bit(uint32_t bits, uint32_t n)
{
	uint32_t out;

	__asm__("fns.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(bits), "r"(n));
	return out;
}

BARWAY_GPU_FN uint32_t barway_gpu_count_bits(uint32_t bits)
{
	uint32_t out;

	__asm__("popc.b32 %0, %1;" : "=r"(out) : "r"(bits));
	return out;
}

BARWAY_GPU_FN void barway_gpu_sync_warp(void)
{
	__asm__ volatile(BARWAY_PTX_SYNCWARP : : : "memory");
}

/* Barrier 0 of the block, what __syncthreads() uses. */
BARWAY_GPU_FN void barway_gpu_sync_block(void)
{
	__asm__ volatile("bar.sync 0;" : : : "memory");
}

/* The thread's place in its block, x fastest, as warps are formed. */
BARWAY_GPU_FN unsigned barway_gpu_thread(void)
{
	unsigned x, y, z, nx, ny;

	__asm__("mov.u32 %0, %%tid.x;" : "=r"(x));
	__asm__("mov.u32 %0, %%tid.y;" : "=r"(y));
	__asm__("mov.u32 %0, %%tid.z;" : "=r"(z));
	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(nx));
	__asm__("mov.u32 %0, %%ntid.y;" : "=r"(ny));
	return (z * ny + y) * nx + x;
}

/* The multiprocessor that this runs on. */
BARWAY_GPU_FN uint32_t barway_gpu_place(void)
{
	uint32_t id;

	__asm__ volatile("mov.u32 %0, %%smid;" : "=r"(id));
	return id;
}

/*
 * How far it is to the word at @at, in cycles: by an atomic operation that changes nothing, because
 * that is done where the memory is at home. A load may find a copy that is nearer. Of system scope:
 * the CPU may be storing the word. Each thread of a warp takes a word of its own: else they would
 * be done one after the other.
 */
BARWAY_GPU_FN uint32_t barway_gpu_distance(uint64_t at)
{
	uint32_t began, ended = 0;
	uint64_t v;

	at += barway_gpu_lane() * 8;
	__asm__ volatile("mov.u32 %0, %%clock;" : "=r"(began) : : "memory");
	__asm__ volatile(BARWAY_PTX_ADD_SYS " %0, [%1], 0;" : "=l"(v) : "l"(at) : "memory");
	/* the second look at the clock waits for what was there, whatever it is */
	__asm__ volatile("{ .reg .pred p; setp.ne.u64 p, %1, 0x8badf00d8badf00d;"
			 " @p mov.u32 %0, %%clock; }" : "+r"(ended) : "l"(v) : "memory");
	return ended - began;
}

#elif defined(BARWAY_GPU_LANES) /* for tests: the same functions, of lanes that are played */

#include BARWAY_GPU_LANES

#else /* the soft GPU, in C */

#include <sched.h>
#include <time.h>

#include "barway_soft.h"

#define BARWAY_GPU_SOFT 1
#define BARWAY_GPU_FN static inline __attribute__((unused))

BARWAY_GPU_FN uint64_t barway_gpu_ld(uint64_t at)
{
	return __atomic_load_n((const uint64_t *)(uintptr_t)at, __ATOMIC_RELAXED);
}

BARWAY_GPU_FN void barway_gpu_ld2(uint64_t at, uint64_t *a, uint64_t *b)
{
	*a = barway_gpu_ld(at);
	*b = barway_gpu_ld(at + 8);
}

BARWAY_GPU_FN uint64_t barway_gpu_ld_acquire(uint64_t at)
{
	return __atomic_load_n((const uint64_t *)(uintptr_t)at, __ATOMIC_ACQUIRE);
}

/* To the GPU's own memory. */
BARWAY_GPU_FN void barway_gpu_st(uint64_t at, uint64_t v)
{
	__atomic_store_n((uint64_t *)(uintptr_t)at, v, __ATOMIC_RELAXED);
}

BARWAY_GPU_FN void barway_gpu_st_if(uint32_t yes, uint64_t at, uint64_t v)
{
	if (yes)
		barway_gpu_st(at, v);
}

BARWAY_GPU_FN uint64_t barway_gpu_add(uint64_t at, uint64_t v)
{
	return __atomic_fetch_add((uint64_t *)(uintptr_t)at, v, __ATOMIC_RELAXED);
}

BARWAY_GPU_FN uint64_t barway_gpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

BARWAY_GPU_FN void barway_gpu_pause(unsigned polls)
{
	if (polls % 64 == 63)
		sched_yield();
}

BARWAY_GPU_FN void barway_gpu_back_off(uint32_t ns)
{
	(void)ns;
	sched_yield();
}

/* Another one each time, so that either twin is read now and then. */
BARWAY_GPU_FN uint32_t barway_gpu_place(void)
{
	return (uint32_t)barway_gpu_now();
}

BARWAY_GPU_FN uint32_t barway_gpu_distance(uint64_t at)
{
	(void)at;
	return (uint32_t)barway_gpu_now() & 15;
}

#endif

/*
 * Is other memory ordered with the message? Asked anew each time where that is not known when it is
 * compiled: kept over a loop, ptxas 13.0 forgets the answer in places and always fences.
 */
BARWAY_GPU_FN int barway_gpu_ordered(unsigned flags)
{
#if defined(__CUDA__) && defined(__clang__)
	if (!__builtin_constant_p(flags))
		__asm__ volatile("" : "+r"(flags));
#endif
	return !(flags & BARWAY_GPU_RELAXED);
}

/* ---- the kernel's end ------------------------------------------------------------------------ */

/* A thread's, warp's or block's own view of a channel; every thread that takes part has one. */
struct barway_gpu_channel {
	uint64_t gpu, host;  /* where the parts lie, as this code addresses them */
	uint64_t rx_ring;    /* where the ring to the GPU lies, or the twin of it that is nearer */
	uint32_t rx_lines, tx_lines;
	uint32_t sole;
	uint64_t tx_credit;  /* lines that the CPU was known to have taken */
	uint64_t tx_head;    /* SOLE: lines sent */
	uint32_t tx_room;    /* SOLE: lines that are known to be free */
	uint32_t rx_loads;   /* _words(): lines to look at, those of the message before */
	uint64_t rx_tail;    /* lines taken */
	uint64_t rx_said;    /* what the CPU has been told of that */
#ifdef BARWAY_GPU_SOFT
	struct barway_soft_block *block;
#endif
};

/*
 * The one way out of a function that may fail. Compilers for GPUs do not lead success past the
 * question whether it was one, unless all that is returned is 0 and one value that is not put
 * together from others.
 */
BARWAY_GPU_FN int barway_gpu_failed(int error)
{
#if defined(__CUDACC__) || defined(__CUDA__)
	__asm__ volatile("" : "+r"(error));
#endif
	return error;
}

#ifdef BARWAY_GPU_SOFT
#define BARWAY_GPU_ST_HOST(c, at, v) \
	barway_soft_store64((c)->block, (void *)(uintptr_t)(at), (v))
#define BARWAY_GPU_FENCE(c) barway_soft_fence((c)->block)
#define BARWAY_GPU_DEAD(c) barway_soft_trapped((c)->block)
#else
#define BARWAY_GPU_ST_HOST(c, at, v) barway_gpu_st((at), (v))
#define BARWAY_GPU_FENCE(c) barway_gpu_fence()
#define BARWAY_GPU_DEAD(c) 0
#endif

BARWAY_GPU_FN void barway_gpu_load(struct barway_gpu_channel *c, unsigned flags)
{
	c->sole = flags & BARWAY_GPU_SOLE;
	c->tx_room = 0;
	c->rx_loads = 8;
	c->tx_credit = barway_gpu_ld(c->gpu + BARWAY_GPU_TX_CREDIT);
	c->tx_head = barway_gpu_ld(c->gpu + BARWAY_GPU_TX_HEAD);
	c->rx_tail = barway_gpu_ld(c->gpu + BARWAY_GPU_RX_TAIL);
	c->rx_said = barway_gpu_ld(c->gpu + BARWAY_GPU_RX_SAID);
}

/*
 * Which of two twins is nearer: found out once for each multiprocessor in a row that the kernel
 * runs on. Threads that decide differently all read what is right.
 */
BARWAY_GPU_FN void barway_gpu_choose_twin(struct barway_gpu_channel *c)
{
	uint32_t best[2] = { 0xffffffff, 0xffffffff }, took;
	uint64_t known, place = barway_gpu_place();

	if (c->rx_lines != BARWAY_RING_TWIN_LINES)
		return;
	known = barway_gpu_ld(c->gpu + BARWAY_GPU_TWIN);
	if (known >> 1 != place + 1) {
		for (uint32_t i = 0; i < 8; i++) {
			took = barway_gpu_distance(c->rx_ring + (i & 1) * BARWAY_RING_TWIN);
			best[i & 1] = took < best[i & 1] ? took : best[i & 1];
		}
		known = (place + 1) << 1 | (best[1] < best[0]);
		barway_gpu_st(c->gpu + BARWAY_GPU_TWIN, known);
	}
	c->rx_ring += (known & 1) * BARWAY_RING_TWIN;
}

#ifdef BARWAY_GPU_SOFT
#define BARWAY_GPU_BLOCK_PARAM , struct barway_soft_block *block
#define BARWAY_GPU_BLOCK_ARG , block
#else
#define BARWAY_GPU_BLOCK_PARAM
#define BARWAY_GPU_BLOCK_ARG
#endif

/* Where the parts lie; the positions, and which twin, are the caller's to set. */
BARWAY_GPU_FN int barway_gpu_point(struct barway_gpu_channel *c,
				   const struct barway_channel_gpu *handle BARWAY_GPU_BLOCK_PARAM)
{
	c->rx_lines = handle->rx_lines;
	c->tx_lines = handle->tx_lines;
#ifdef BARWAY_GPU_SOFT
	c->block = block;
	c->gpu = (uintptr_t)barway_soft_deref(block, handle->gpu,
					      BARWAY_GPU_BYTES(handle->rx_lines));
	c->host = (uintptr_t)barway_soft_deref(block, handle->host, BARWAY_HOST_RING +
					       (uint64_t)handle->tx_lines * BARWAY_LINE_BYTES);
	c->rx_ring = c->gpu + BARWAY_GPU_RING;
	return c->gpu && c->host ? 0 : BARWAY_GPU_EINVAL;
#else
	c->gpu = handle->gpu;
	c->host = handle->host;
	c->rx_ring = c->gpu + BARWAY_GPU_RING;
	return 0;
#endif
}

/*
 * barway_gpu_attach() - begin to use a channel; by each thread that will
 * @handle: what barway_channel_gpu() gave
 * @flags:  0 or BARWAY_GPU_SOLE
 * On the soft GPU it takes the block as well, and returns BARWAY_GPU_EINVAL where the handle's
 * memory is not there; on a GPU it returns 0.
 */
BARWAY_GPU_FN int barway_gpu_attach(struct barway_gpu_channel *c,
				    const struct barway_channel_gpu *handle,
				    unsigned flags BARWAY_GPU_BLOCK_PARAM)
{
	int error = barway_gpu_point(c, handle BARWAY_GPU_BLOCK_ARG);

	if (!error) {
		barway_gpu_load(c, flags);
		barway_gpu_choose_twin(c);
	}
	return error;
}

/* The word at @at, and the fence that older targets need for an acquiring load. */
BARWAY_GPU_FN uint64_t barway_gpu_acquired(uint64_t at)
{
	uint64_t v = barway_gpu_ld_acquire(at);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
	barway_gpu_fence();
#endif
	return v;
}

/* Has the CPU closed the channel? What it sent before is there at the next look. */
BARWAY_GPU_FN int barway_gpu_closed(const struct barway_gpu_channel *c)
{
	return barway_gpu_acquired(c->gpu + BARWAY_GPU_CLOSED) != 0 || BARWAY_GPU_DEAD(c);
}

/* One thread says what was taken of the ring to the GPU. */
BARWAY_GPU_FN void barway_gpu_say_taken(struct barway_gpu_channel *c)
{
	BARWAY_GPU_FENCE(c); /* the loads of those lines are done */
	BARWAY_GPU_ST_HOST(c, c->host + BARWAY_HOST_RX_CREDIT, c->rx_tail);
	barway_gpu_st(c->gpu + BARWAY_GPU_RX_SAID, c->rx_tail);
}

/*
 * barway_gpu_leave() - the kernel that receives is about to end; by one thread, last of all
 * No message is lost: one that comes now makes the CPU launch the kernel again.
 */
BARWAY_GPU_FN void barway_gpu_leave(struct barway_gpu_channel *c)
{
	uint64_t left = barway_gpu_ld(c->gpu + BARWAY_GPU_LEFT) + 1;

	barway_gpu_say_taken(c);
	barway_gpu_st(c->gpu + BARWAY_GPU_LEFT, left);
	BARWAY_GPU_FENCE(c);
	BARWAY_GPU_ST_HOST(c, c->host + BARWAY_HOST_LEFT, left);
}

/* barway_gpu_close() - the CPU's side gets -EPIPE when it has taken what was sent; by one thread */
BARWAY_GPU_FN void barway_gpu_close(struct barway_gpu_channel *c)
{
	BARWAY_GPU_FENCE(c);
	BARWAY_GPU_ST_HOST(c, c->host + BARWAY_HOST_CLOSED, 1);
}

/*
 * A bound of a wait. Whether it is over, and whether the channel was closed, is asked after every
 * sixteenth poll only: those questions take as long as a poll. With no time at all, after each.
 */
struct barway_gpu_wait {
	uint64_t began, bound;
	uint32_t polls;
	uint32_t last; /* the channel was closed: what was sent before is there at the next look */
};

BARWAY_GPU_FN void barway_gpu_wait_for(struct barway_gpu_wait *w, uint64_t timeout_ns)
{
	w->began = 0;
	w->last = 0;
	w->bound = timeout_ns < BARWAY_GPU_WAIT_MAX_NS ? timeout_ns : BARWAY_GPU_WAIT_MAX_NS;
	w->polls = w->bound ? 0 : 15;
}

/* Counts a poll that found nothing: is it time to ask? */
BARWAY_GPU_FN int barway_gpu_polled(struct barway_gpu_wait *w)
{
	barway_gpu_pause(w->polls);
	return !__builtin_expect(++w->polls % 16, 1);
}

BARWAY_GPU_FN int barway_gpu_over(struct barway_gpu_wait *w)
{
	uint64_t now;

	if (!w->bound) {
		w->polls |= 15;
		return BARWAY_GPU_EAGAIN;
	}
	now = barway_gpu_now();
	if (!w->began)
		w->began = now;
	return now - w->began >= w->bound ? BARWAY_GPU_ETIMEDOUT : 0;
}

/* For kernels that poll words of their own, after each poll that found nothing: 0 to go on. */
BARWAY_GPU_FN int barway_gpu_expired(struct barway_gpu_wait *w)
{
	return barway_gpu_polled(w) ? barway_gpu_over(w) : 0;
}

/* It is time to ask: 0 to look again. */
BARWAY_GPU_FN int barway_gpu_ask(const struct barway_gpu_channel *c, struct barway_gpu_wait *w)
{
	if (w->last)
		return BARWAY_GPU_EPIPE;
	w->last = (uint32_t)barway_gpu_closed(c);
	if (!w->last)
		return barway_gpu_over(w);
	w->polls |= 15; /* one look more */
	return 0;
}

/* After a look that found nothing: 0 to look again. */
BARWAY_GPU_FN int barway_gpu_waited(const struct barway_gpu_channel *c, struct barway_gpu_wait *w)
{
	return barway_gpu_polled(w) ? barway_gpu_ask(c, w) : 0;
}

/* ---- sending --------------------------------------------------------------------------------- */

BARWAY_GPU_FN int barway_gpu_has_room(struct barway_gpu_channel *c, uint64_t end)
{
	if (end - c->tx_credit <= c->tx_lines)
		return 1;
	c->tx_credit = barway_gpu_ld(c->gpu + BARWAY_GPU_TX_CREDIT);
	return end - c->tx_credit <= c->tx_lines;
}

/* SOLE: @n lines, if it needs no look at the credit: nearly always. The same for all of a warp. */
BARWAY_GPU_FN int barway_gpu_take_room(struct barway_gpu_channel *c, uint32_t n, uint64_t *position)
{
	if (n > c->tx_room)
		return 0;
	*position = c->tx_head;
	c->tx_head += n;
	c->tx_room -= n;
	return 1;
}

BARWAY_GPU_FN void barway_gpu_count_room(struct barway_gpu_channel *c)
{
	if (c->sole)
		c->tx_room = c->tx_lines - (uint32_t)(c->tx_head - c->tx_credit);
}

/*
 * One of many producers: takes back what it asked for in vain, so whoever is given a position has
 * room there, now, and nobody has to wait for him longer than it takes to store a message.
 */
BARWAY_GPU_FN int barway_gpu_claim(struct barway_gpu_channel *c, uint64_t n, uint64_t *position)
{
	if (barway_gpu_has_room(c, barway_gpu_add(c->gpu + BARWAY_GPU_TX_RESERVED, n) + n)) {
		*position = barway_gpu_add(c->gpu + BARWAY_GPU_TX_HEAD, n);
		return 1;
	}
	barway_gpu_add(c->gpu + BARWAY_GPU_TX_RESERVED, 0 - n);
	return 0;
}

/* Who is short of room: until there is some, only looks; and has others go first. */
struct barway_gpu_turn {
	uint32_t looks, pause_ns;
};

/* By one thread: 1: it has @n lines in a row, in which there is room, from *@position on. */
BARWAY_GPU_FN int barway_gpu_try_lines(struct barway_gpu_channel *c, uint64_t n,
				       struct barway_gpu_turn *turn, uint64_t *position)
{
	if (turn->looks &&
	    !barway_gpu_has_room(c, n + (c->sole ? c->tx_head :
					 barway_gpu_ld(c->gpu + BARWAY_GPU_TX_HEAD))))
		return 0;
	turn->looks = 1;
	if (c->sole) {
		if (!barway_gpu_has_room(c, c->tx_head + n))
			return 0;
		*position = c->tx_head;
		c->tx_head += n;
		return 1;
	}
	if (barway_gpu_claim(c, n, position))
		return 1;
	/* what thousands ask for in vain at once is more than the ring: none would ever be given
	 * any if they did not become fewer */
	barway_gpu_back_off(turn->pause_ns);
	turn->pause_ns = turn->pause_ns < 32768 ? turn->pause_ns * 2 : turn->pause_ns;
	return 0;
}

BARWAY_GPU_FN int barway_gpu_take_lines(struct barway_gpu_channel *c, uint64_t n,
					uint64_t timeout_ns, uint64_t *position)
{
	struct barway_gpu_turn turn = { 0, 64 };
	struct barway_gpu_wait wait;
	int error;

	barway_gpu_wait_for(&wait, timeout_ns);
	while (!barway_gpu_try_lines(c, n, &turn, position)) {
		error = barway_gpu_waited(c, &wait);
		if (error)
			return error;
		barway_gpu_back_off(64);
	}
	return 0;
}

/* SOLE: for who attaches later. By one thread, when the lines are stored, which are urgent. */
BARWAY_GPU_FN void barway_gpu_say_sent(const struct barway_gpu_channel *c, int leader)
{
	if (!c->sole)
		return;
	barway_gpu_st_if((uint32_t)leader, c->gpu + BARWAY_GPU_TX_RESERVED, c->tx_head);
	barway_gpu_st_if((uint32_t)leader, c->gpu + BARWAY_GPU_TX_HEAD, c->tx_head);
}

/* Lines of a message of @bytes, at most BARWAY_MESSAGE_MAX: for those the product is exact. */
BARWAY_GPU_FN uint32_t barway_gpu_lines_of(uint32_t bytes)
{
	return bytes <= BARWAY_LINE_DATA ? 1 : (bytes + BARWAY_LINE_DATA - 1) * 1171 >> 16;
}

BARWAY_GPU_FN int barway_gpu_check_message(uint32_t bytes, uint32_t tag)
{
	if (bytes > BARWAY_MESSAGE_MAX)
		return BARWAY_GPU_EMSGSIZE;
	return tag > BARWAY_TAG_MAX ? BARWAY_GPU_EINVAL : 0;
}

/* The last word of a message: @n of its bytes are the message's, 1 to 7. */
BARWAY_GPU_FN uint64_t barway_gpu_last_word(const uint64_t *at, uint32_t n)
{
	const unsigned char *p = (const unsigned char *)at;
	uint64_t v = 0;

	for (uint32_t k = 0; k < n; k++)
		v |= (uint64_t)p[k] << 8 * k;
	return v;
}

/* The control word, without mark and displaced bits, of line @line of a message. */
BARWAY_GPU_FN uint64_t barway_gpu_control(uint64_t position, uint32_t line, uint32_t bytes,
					  uint32_t tag)
{
	uint64_t low = (uint32_t)(position + line);

	return line ? low | (uint64_t)BARWAY_LINE_MORE << 44 :
		      low | (uint64_t)bytes << 44 | (uint64_t)tag << 32;
}

#define BARWAY_GPU_TOP (1ull << 63)

/* Seven words of a message and its control word as the line at @p. */
BARWAY_GPU_FN void barway_gpu_store_line(struct barway_gpu_channel *c, uint64_t p,
					 uint64_t control, const uint64_t *v)
{
	uint64_t mark = BARWAY_LINE_MARK((uint32_t)p, c->tx_lines) ? BARWAY_GPU_TOP : 0;
	uint64_t at = c->host + BARWAY_HOST_RING +
		      (uint64_t)((uint32_t)p & (c->tx_lines - 1)) * BARWAY_LINE_BYTES;
	uint64_t w[BARWAY_LINE_WORDS];

	w[0] = control | mark;
	BARWAY_GPU_UNROLL
	for (uint32_t i = 1; i < BARWAY_LINE_WORDS; i++) {
		w[0] |= v[i - 1] >> 63 << BARWAY_LINE_TOP(i);
		w[i] = (v[i - 1] & ~BARWAY_GPU_TOP) | mark;
	}
#ifdef BARWAY_GPU_SOFT
	for (uint32_t i = 0; i < BARWAY_LINE_WORDS; i++)
		BARWAY_GPU_ST_HOST(c, at + i * 8, w[i]);
#else
	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < BARWAY_LINE_WORDS; i += 2)
		barway_gpu_st2(at + i * 8, w[i], w[i + 1]);
#endif
}

/* The words of line @line of a message of @bytes: what is past its end is 0. */
BARWAY_GPU_FN void barway_gpu_get_words(const uint64_t *data, uint32_t bytes, uint32_t line,
					uint64_t *v)
{
	uint32_t words = bytes / 8, first = line * 7;

	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < BARWAY_LINE_WORDS - 1; i++)
		v[i] = first + i < words ? data[first + i] : 0;
	if (bytes % 8 && words - first < 7) {
		uint64_t last = barway_gpu_last_word(data + words, bytes % 8);

		BARWAY_GPU_UNROLL
		for (uint32_t i = 0; i < BARWAY_LINE_WORDS - 1; i++)
			v[i] = first + i == words ? last : v[i];
	}
}

BARWAY_GPU_FN void barway_gpu_store_message(struct barway_gpu_channel *c, uint64_t position,
					    const uint64_t *data, uint32_t bytes, uint32_t tag)
{
	uint32_t lines = barway_gpu_lines_of(bytes);
	uint64_t v[BARWAY_LINE_WORDS - 1];

	for (uint32_t line = 0; line < lines; line++) {
		barway_gpu_get_words(data, bytes, line, v);
		barway_gpu_store_line(c, position + line,
				      barway_gpu_control(position, line, bytes, tag), v);
	}
}

/* The way to send, by one thread: checks, takes @position, fences. */
BARWAY_GPU_FN int barway_gpu_begin(struct barway_gpu_channel *c, uint32_t bytes, uint32_t tag,
				   uint64_t timeout_ns, unsigned flags, uint64_t *position)
{
	int error = barway_gpu_check_message(bytes, tag);
	uint32_t lines = barway_gpu_lines_of(bytes);

	if (!__builtin_expect(!error && barway_gpu_take_room(c, lines, position), 1)) {
		if (!error) {
			error = barway_gpu_take_lines(c, lines, timeout_ns, position);
			barway_gpu_count_room(c);
		}
		if (error)
			return barway_gpu_failed(error);
	}
	if (barway_gpu_ordered(flags))
		BARWAY_GPU_FENCE(c);
	return 0;
}

/**
 * barway_gpu_send() - send a message to the CPU; by one thread
 * @data:       8-byte aligned
 * @bytes:      0 to BARWAY_MESSAGE_MAX
 * @tag:        0 to BARWAY_TAG_MAX, comes with it
 * @timeout_ns: how long to wait for room; 0: not at all
 * @flags:      0 or BARWAY_GPU_RELAXED
 * Returns 0 or BARWAY_GPU_EAGAIN, _ETIMEDOUT, _EPIPE, _EMSGSIZE, _EINVAL: then nothing was sent.
 * That the CPU has closed is noticed when there is no room.
 */
BARWAY_GPU_FN int barway_gpu_send(struct barway_gpu_channel *c, const void *data, uint32_t bytes,
				  uint32_t tag, uint64_t timeout_ns, unsigned flags)
{
	uint64_t position;
	int error = barway_gpu_begin(c, bytes, tag, timeout_ns, flags, &position);

	if (!error) {
		barway_gpu_store_message(c, position, (const uint64_t *)data, bytes, tag);
		barway_gpu_say_sent(c, 1);
	}
	return error;
}

/**
 * barway_gpu_send_line() - send a message of at most 56 bytes, from registers; by one thread
 * @words: seven; those past @bytes have to be 0
 * The shortest way: what the compiler knows of @words and @bytes costs nothing. The rest as
 * barway_gpu_send().
 */
BARWAY_GPU_FN int barway_gpu_send_line(struct barway_gpu_channel *c, const uint64_t *words,
				       uint32_t bytes, uint32_t tag, uint64_t timeout_ns,
				       unsigned flags)
{
	uint64_t position;
	int error = BARWAY_GPU_EMSGSIZE;

	if (bytes <= BARWAY_LINE_DATA)
		error = barway_gpu_begin(c, bytes, tag, timeout_ns, flags, &position);
	if (error)
		return barway_gpu_failed(error);
	barway_gpu_store_line(c, position, barway_gpu_control(position, 0, bytes, tag), words);
	barway_gpu_say_sent(c, 1);
	return 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

BARWAY_GPU_FN uint64_t barway_gpu_line_at(const struct barway_gpu_channel *c, uint64_t p)
{
	return c->rx_ring + (uint64_t)((uint32_t)p & (c->rx_lines - 1)) * BARWAY_LINE_BYTES;
}

/* Loads a line: are its eight marks right? */
BARWAY_GPU_FN int barway_gpu_load_line(const struct barway_gpu_channel *c, uint64_t p, uint64_t *w)
{
	uint32_t all = ~0u, any = 0;
	uint64_t at = barway_gpu_line_at(c, p);

	for (uint32_t i = 0; i < BARWAY_LINE_WORDS; i += 2)
		barway_gpu_ld2(at + i * 8, &w[i], &w[i + 1]);
	/* from the last one on, so that no load waits for what an earlier one brings */
	for (uint32_t i = BARWAY_LINE_WORDS; i--;) {
		all &= (uint32_t)(w[i] >> 32);
		any |= (uint32_t)(w[i] >> 32);
	}
	return (int)(BARWAY_LINE_MARK((uint32_t)p, c->rx_lines) ? all : ~any) < 0;
}

/*
 * The message with the line at @p is there: what was stored before it was sent is seen by what is
 * loaded after this. A load more, because polling by acquiring loads takes twice as long for each
 * poll.
 */
BARWAY_GPU_FN void barway_gpu_acquire(const struct barway_gpu_channel *c, uint64_t p,
				      unsigned flags)
{
	if (barway_gpu_ordered(flags))
		(void)barway_gpu_acquired(barway_gpu_line_at(c, p));
}

/* The size in a message's first control word, or an error. */
BARWAY_GPU_FN int barway_gpu_size(uint64_t control, uint64_t position, uint32_t room)
{
	uint32_t bytes = (uint32_t)(control >> 44) & 0xfff;
	int is_here = (uint32_t)control == (uint32_t)position;

	room = room < BARWAY_MESSAGE_MAX ? room : BARWAY_MESSAGE_MAX;
	if (is_here && bytes <= room)
		return (int)bytes;
	return is_here && bytes <= BARWAY_MESSAGE_MAX ? BARWAY_GPU_EMSGSIZE : BARWAY_GPU_EBADMSG;
}

BARWAY_GPU_FN void barway_gpu_taken(struct barway_gpu_channel *c, uint64_t lines, int leader)
{
	c->rx_tail += lines;
	barway_gpu_st_if((uint32_t)leader, c->gpu + BARWAY_GPU_RX_TAIL, c->rx_tail);
}

/* Tells the CPU what was taken if it was not told of @most lines. */
BARWAY_GPU_FN void barway_gpu_say_from(struct barway_gpu_channel *c, uint32_t most, int leader)
{
	if ((uint32_t)c->rx_tail - (uint32_t)c->rx_said < most)
		return;
	if (leader)
		barway_gpu_say_taken(c);
	c->rx_said = c->rx_tail;
}

/*
 * Before the next message is looked for. Not when it is taken: the fence would hold up what the
 * message asks for.
 */
BARWAY_GPU_FN void barway_gpu_say_due(struct barway_gpu_channel *c, int leader)
{
	barway_gpu_say_from(c, c->rx_lines / BARWAY_CREDIT_PART, leader);
}

/* Word @i of the line @w, with the bit that its mark displaced. */
BARWAY_GPU_FN uint64_t barway_gpu_line_word(const uint64_t *w, unsigned i)
{
	return (w[i] & ~BARWAY_GPU_TOP) | (w[0] << (63 - BARWAY_LINE_TOP(i)) & BARWAY_GPU_TOP);
}

/* The seven words of the line @w. */
BARWAY_GPU_FN void barway_gpu_line_words(const uint64_t *w, uint64_t *words)
{
	BARWAY_GPU_UNROLL
	for (uint32_t i = 1; i < BARWAY_LINE_WORDS; i++)
		words[i - 1] = barway_gpu_line_word(w, i);
}

/* The first @n bytes of the last word @v, less than all. */
BARWAY_GPU_FN void barway_gpu_put_last_word(uint64_t *at, uint32_t n, uint64_t v)
{
	for (uint32_t k = 0; k < n; k++)
		((unsigned char *)at)[k] = (unsigned char)(v >> 8 * k);
}

/* Seven words of a message, those of its line @line, into memory that ends where it does. */
BARWAY_GPU_FN void barway_gpu_put_words(uint64_t *data, uint32_t bytes, uint32_t line,
					const uint64_t *v)
{
	uint32_t words = bytes / 8, first = line * 7;
	uint64_t last = 0;

	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < BARWAY_LINE_WORDS - 1; i++)
		if (first + i < words)
			data[first + i] = v[i];
	if (!(bytes % 8) || words - first >= 7)
		return; /* the last word is whole, or in another line */
	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < BARWAY_LINE_WORDS - 1; i++)
		last = first + i == words ? v[i] : last;
	barway_gpu_put_last_word(data + words, bytes % 8, last);
}

BARWAY_GPU_FN void barway_gpu_put_line(uint64_t *data, uint32_t bytes, uint32_t line,
				       const uint64_t *w)
{
	uint64_t words[BARWAY_LINE_WORDS - 1];

	barway_gpu_line_words(w, words);
	barway_gpu_put_words(data, bytes, line, words);
}

/* A message of one line, and at most @room bytes. */
BARWAY_GPU_FN int barway_gpu_recv_one(struct barway_gpu_channel *c, uint64_t *words, uint32_t room,
				      uint32_t *bytes, uint32_t *tag, uint64_t timeout_ns,
				      unsigned flags)
{
	uint64_t w[BARWAY_LINE_WORDS];
	uint32_t most = room < BARWAY_LINE_DATA ? room : BARWAY_LINE_DATA, size;
	struct barway_gpu_wait wait;
	int there, error;

	barway_gpu_say_due(c, 1);
	barway_gpu_wait_for(&wait, timeout_ns);
	for (;;) {
		there = barway_gpu_load_line(c, c->rx_tail, w);
		size = (uint32_t)(w[0] >> 44) & 0xfff;
		if (there & ((uint32_t)w[0] == (uint32_t)c->rx_tail) & (size <= most))
			break; /* asked all at once */
		error = there ? barway_gpu_size(w[0], c->rx_tail, most) :
			barway_gpu_polled(&wait) ? barway_gpu_ask(c, &wait) : 0;
		if (error)
			return barway_gpu_failed(error);
	}
	barway_gpu_line_words(w, words);
	barway_gpu_acquire(c, c->rx_tail, flags);
	barway_gpu_taken(c, 1, 1);
	if (bytes)
		*bytes = size;
	if (tag)
		*tag = (uint32_t)(w[0] >> 32) & 0xfff;
	return 0;
}

/**
 * barway_gpu_recv_line() - take the next message, of at most 56 bytes, into registers
 * @words: seven; those past its size are 0
 * By one thread, and the shortest way for one: words that it does not look at cost nothing. A
 * longer message is BARWAY_GPU_EMSGSIZE, and stays. The rest as barway_gpu_recv().
 */
BARWAY_GPU_FN int barway_gpu_recv_line(struct barway_gpu_channel *c, uint64_t *words,
				       uint32_t *bytes, uint32_t *tag, uint64_t timeout_ns,
				       unsigned flags)
{
	return barway_gpu_recv_one(c, words, BARWAY_LINE_DATA, bytes, tag, timeout_ns, flags);
}

/**
 * barway_gpu_recv() - take the next message of the CPU's; by one thread
 * @data:       8-byte aligned, room for @room bytes
 * @bytes:      its size; NULL: not wanted
 * @tag:        its tag; NULL: not wanted
 * @timeout_ns: how long to wait for one; 0: not at all
 * @flags:      0 or BARWAY_GPU_RELAXED
 * Returns 0 or BARWAY_GPU_EAGAIN, _ETIMEDOUT; _EPIPE closed, and all that was sent before has been
 * taken; _EMSGSIZE larger than @room: it stays; _EBADMSG. What they point to is written only on 0,
 * but for @data.
 */
BARWAY_GPU_FN int barway_gpu_recv(struct barway_gpu_channel *c, void *data, uint32_t room,
				  uint32_t *bytes, uint32_t *tag, uint64_t timeout_ns,
				  unsigned flags)
{
	uint64_t w[BARWAY_LINE_WORDS], control = 0;
	uint32_t lines = 1, size = 0;
	struct barway_gpu_wait wait;
	int error;

	barway_gpu_say_due(c, 1);
	barway_gpu_wait_for(&wait, timeout_ns);
	for (uint32_t line = 0; line < lines; line++) {
		uint64_t p = c->rx_tail + line;

		while (!barway_gpu_load_line(c, p, w)) {
			error = barway_gpu_waited(c, &wait);
			if (error)
				return error;
		}
		if (!line) {
			error = barway_gpu_size(w[0], p, room);
			if (error < 0)
				return error;
			size = (uint32_t)error;
			control = w[0];
			lines = barway_gpu_lines_of(size);
		} else if ((uint32_t)w[0] != (uint32_t)p ||
			   ((w[0] >> 44) & 0xfff) != BARWAY_LINE_MORE) {
			return BARWAY_GPU_EBADMSG;
		}
		barway_gpu_put_line((uint64_t *)data, size, line, w);
	}
	barway_gpu_acquire(c, c->rx_tail, flags);
	barway_gpu_taken(c, lines, 1);
	if (bytes)
		*bytes = size;
	if (tag)
		*tag = (uint32_t)(control >> 32) & 0xfff;
	return 0;
}

/* ---- by a warp, by a block ------------------------------------------------------------------- */

#ifdef BARWAY_GPU_SOFT

#define BARWAY_GPU_WORDS 7u /* that a thread has of a message in registers: name_words() */

#define barway_gpu_word(i) ((uint32_t)(i))
#define barway_gpu_send_warp barway_gpu_send
#define barway_gpu_send_words barway_gpu_send_line /* of one thread: one line */
#define barway_gpu_recv_words barway_gpu_recv_one
#define barway_gpu_send_block barway_gpu_send
#define barway_gpu_send_each barway_gpu_send
#define barway_gpu_recv_warp barway_gpu_recv
#define barway_gpu_recv_block barway_gpu_recv

BARWAY_GPU_FN int barway_gpu_recv_each(struct barway_gpu_channel *c, void *data, uint32_t room,
				       uint32_t *bytes, uint32_t *tag, uint64_t timeout_ns,
				       unsigned flags)
{
	int error = barway_gpu_recv(c, data, room, bytes, tag, timeout_ns, flags);

	return error ? error : 1;
}

#else

#define BARWAY_GPU_WORDS 6u /* that a thread has of a message in registers: name_words() */

/* Which word of a message name_words() has as this thread's words[@i]; UINT32_MAX: none. */
BARWAY_GPU_FN uint32_t barway_gpu_word(uint32_t i)
{
	uint32_t line = i / 2 * 8 + barway_gpu_lane() / 4, word = barway_gpu_lane() % 4 * 2 + i % 2;

	return word ? line * 7 + word - 1 : UINT32_MAX;
}

/* It is time to ask: the first thread does, so that all do the same. */
BARWAY_GPU_FN int barway_gpu_ask_warp(const struct barway_gpu_channel *c,
				      struct barway_gpu_wait *wait)
{
	int error = 0;

	if (!barway_gpu_lane())
		error = barway_gpu_ask(c, wait);
	barway_gpu_sync_warp();
	wait->polls = barway_gpu_shfl(wait->polls, 0);
	return (int)barway_gpu_shfl((uint32_t)error, 0);
}

BARWAY_GPU_FN int barway_gpu_waited_warp(const struct barway_gpu_channel *c,
					 struct barway_gpu_wait *wait)
{
	return barway_gpu_polled(wait) ? barway_gpu_ask_warp(c, wait) : 0;
}

/*
 * Room for @n lines, the same for all. What the first thread tries may part it from the others;
 * how it goes on is voted on each time: a loop of that thread alone would make compilers doubt ever
 * after that all of the warp are together.
 */
BARWAY_GPU_FN int barway_gpu_take_lines_warp(struct barway_gpu_channel *c, uint32_t n,
					     uint64_t timeout_ns, uint64_t *position)
{
	struct barway_gpu_turn turn = { 0, 64 };
	struct barway_gpu_wait wait;
	int error = 0, taken;

	barway_gpu_wait_for(&wait, timeout_ns);
	*position = 0;
	for (;;) {
		taken = 0;
		if (!barway_gpu_lane())
			taken = barway_gpu_try_lines(c, n, &turn, position);
		if (barway_gpu_ballot(taken))
			break;
		error = barway_gpu_waited_warp(c, &wait);
		if (error)
			break;
		barway_gpu_back_off(64);
	}
	*position = barway_gpu_shfl64(*position, 0);
	c->tx_head = barway_gpu_shfl64(c->tx_head, 0);
	/* each thread may have seen another credit when it attached: the first one's is taken */
	c->tx_credit = barway_gpu_shfl64(c->tx_credit, 0);
	barway_gpu_count_room(c);
	return error;
}

/*
 * How a warp shares a message: four threads have a line, 16 bytes of it each, so that eight lines
 * are one load or one store of the warp. A message of more lines takes up to three rounds.
 */
#define BARWAY_GPU_ROUNDS (BARWAY_GPU_WORDS / 2)

BARWAY_GPU_FN uint64_t barway_gpu_pack(uint32_t low, uint32_t high)
{
	return (uint64_t)high << 32 | low;
}

/*
 * Round @round of a message to the CPU. The bits that marks displace come from the other threads of
 * the line to the one that has its control word.
 */
BARWAY_GPU_FN void barway_gpu_store_round(struct barway_gpu_channel *c, uint64_t position,
					  uint32_t round, uint32_t lines, uint32_t bytes,
					  uint32_t tag, const uint64_t *pair)
{
	uint32_t lane = barway_gpu_lane(), line = round * 8 + lane / 4;
	uint32_t a = (uint32_t)(pair[0] >> 32), b = (uint32_t)(pair[1] >> 32);
	uint32_t p = (uint32_t)position + line, low = (uint32_t)pair[0];
	uint32_t mark = BARWAY_LINE_MARK(p, c->tx_lines) ? 1u << 31 : 0;
	uint64_t at = c->host + BARWAY_HOST_RING + lane % 4 * 16 +
		      (uint64_t)(p & (c->tx_lines - 1)) * BARWAY_LINE_BYTES;
	uint32_t first = barway_gpu_ballot((int)a < 0) >> (lane & 28);
	uint32_t second = barway_gpu_ballot((int)b < 0) >> (lane & 28);
	uint32_t control = line ? BARWAY_LINE_MORE << 12 : bytes << 12 | tag;

	control |= (first << 27 & 7u << 28) | (second << 24 & 15u << 24);
	a = lane % 4 ? a : control;
	low = lane % 4 ? low : p;
	barway_gpu_st2_if(line < lines, at, barway_gpu_pack(low, (a & ~(1u << 31)) | mark),
			  barway_gpu_pack((uint32_t)pair[1], (b & ~(1u << 31)) | mark));
}

/**
 * barway_gpu_send_words() - send a message from registers; by a warp
 * @words: BARWAY_GPU_WORDS of each thread: words[i] is the message's word barway_gpu_word(i); those
 *         past @bytes have to be 0, and where that is UINT32_MAX it does not matter
 * The shortest way; what the compiler knows of @bytes is left out. The rest as
 * barway_gpu_send_warp(), which is this and loading the words.
 */
BARWAY_GPU_FN int barway_gpu_send_words(struct barway_gpu_channel *c, const uint64_t *words,
					uint32_t bytes, uint32_t tag, uint64_t timeout_ns,
					unsigned flags)
{
	int error = barway_gpu_check_message(bytes, tag);
	uint32_t lines = barway_gpu_lines_of(bytes);
	uint64_t position;

	if (!__builtin_expect(!error && barway_gpu_take_room(c, lines, &position), 1)) {
		if (!error)
			error = barway_gpu_take_lines_warp(c, lines, timeout_ns, &position);
		if (error)
			return barway_gpu_failed(error);
	}
	if (barway_gpu_ordered(flags)) {
		BARWAY_GPU_FENCE(c);
		barway_gpu_sync_warp(); /* nobody stores before all have fenced */
	}
	barway_gpu_store_round(c, position, 0, lines, bytes, tag, words);
	if (__builtin_expect(bytes > 8 * BARWAY_LINE_DATA, 0)) {
		BARWAY_GPU_UNROLL
		for (uint32_t round = 1; round < BARWAY_GPU_ROUNDS; round++)
			if (lines > round * 8)
				barway_gpu_store_round(c, position, round, lines, bytes, tag,
						       words + 2 * round);
	}
	barway_gpu_say_sent(c, !barway_gpu_lane());
	return 0;
}

/** barway_gpu_send_warp() - barway_gpu_send() by a warp: four threads store a line */
BARWAY_GPU_FN int barway_gpu_send_warp(struct barway_gpu_channel *c, const void *data,
				       uint32_t bytes, uint32_t tag, uint64_t timeout_ns,
				       unsigned flags)
{
	uint32_t lines = barway_gpu_lines_of(bytes), last, mine = BARWAY_GPU_WORDS;
	const uint64_t *from = (const uint64_t *)data;
	uint64_t words[BARWAY_GPU_WORDS] = { 0 };

	barway_gpu_sync_warp(); /* what others of the warp have written of it is there */
	last = bytes % 8 ? bytes / 8 : UINT32_MAX - 1;
	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < BARWAY_GPU_WORDS; i++) {
		uint32_t at = barway_gpu_word(i);

		if (bytes > BARWAY_MESSAGE_MAX || (i == 2 && lines <= 8))
			break;
		if (at < bytes / 8)
			words[i] = from[at];
		mine = at == last ? i : mine;
	}
	if (mine < BARWAY_GPU_WORDS) {
		uint64_t v = barway_gpu_last_word(from + last, bytes % 8);

		BARWAY_GPU_UNROLL
		for (uint32_t i = 0; i < BARWAY_GPU_WORDS; i++)
			words[i] = i == mine ? v : words[i];
	}
	barway_gpu_sync_warp();
	return barway_gpu_send_words(c, words, bytes, tag, timeout_ns, flags);
}

/**
 * barway_gpu_send_each() - every thread of a warp sends a message of its own
 *
 * As barway_gpu_send() by each of the 32, with one claim for all: sizes may differ. All are sent or
 * none: the result is the same for all. _EMSGSIZE, too, where all together are more than the ring.
 */
BARWAY_GPU_FN int barway_gpu_send_each(struct barway_gpu_channel *c, const void *data,
				       uint32_t bytes, uint32_t tag, uint64_t timeout_ns,
				       unsigned flags)
{
	int error = barway_gpu_check_message(bytes, tag);
	unsigned lane = barway_gpu_lane();
	uint32_t lines = error ? 0 : barway_gpu_lines_of(bytes), before = lines, total, bad;
	uint64_t position;

	bad = barway_gpu_ballot(error != 0);
	if (bad) /* that of the first that has one */
		return (int)barway_gpu_shfl((uint32_t)error,
					    barway_gpu_count_bits((bad & (0 - bad)) - 1));
	for (unsigned step = 1; step < 32; step *= 2) {
		uint32_t left = barway_gpu_shfl(before, lane >= step ? lane - step : lane);

		before += lane >= step ? left : 0;
	}
	total = barway_gpu_shfl(before, 31);
	if (total > c->tx_lines)
		return BARWAY_GPU_EMSGSIZE;
	if (!barway_gpu_take_room(c, total, &position)) {
		error = barway_gpu_take_lines_warp(c, total, timeout_ns, &position);
		if (error)
			return error;
	}
	if (barway_gpu_ordered(flags)) {
		BARWAY_GPU_FENCE(c);
		barway_gpu_sync_warp();
	}
	barway_gpu_store_message(c, position + before - lines, (const uint64_t *)data, bytes,
				 tag);
	barway_gpu_say_sent(c, !lane);
	return 0;
}

/*
 * What was taken, as the first thread knows it: it may have taken some by itself. And the twin that
 * it reads: what one thread has found there the others load after it.
 */
BARWAY_GPU_FN void barway_gpu_agree(struct barway_gpu_channel *c)
{
	c->rx_ring = barway_gpu_shfl64(c->rx_ring, 0);
	c->rx_tail = barway_gpu_shfl64(c->rx_tail, 0);
	c->rx_said = barway_gpu_shfl64(c->rx_said, 0);
}

/*
 * What a thread looks for: its 16 bytes of a round of a message. Kept while it polls, so that a
 * look is a load, a few operations without a branch, and a vote. A thread that has no share loads
 * what another does, which costs nothing, and takes it as it comes.
 */
struct barway_gpu_share {
	uint64_t at;          /* where they lie */
	uint32_t marks, mark; /* bit 31 of both words: flipped by this; then to be 1 */
	uint32_t low, more;   /* of a control word: the bits that have to be right, else 0 */
	uint32_t position;
	uint32_t least, span; /* of the first control word: the sizes that are looked for */
};

/* Of round @round of a message of @lines lines and at most @most bytes. */
BARWAY_GPU_FN void barway_gpu_look_for(const struct barway_gpu_channel *c, uint32_t round,
				       uint32_t lines, uint32_t most, struct barway_gpu_share *s)
{
	uint32_t lane = barway_gpu_lane(), line = round * 8 + lane / 4, mine = line < lines;
	uint32_t end = lines * BARWAY_LINE_DATA < most ? lines * BARWAY_LINE_DATA : most;

	s->at = barway_gpu_line_at(c, c->rx_tail + (mine ? line : 0)) + lane % 4 * 16;
	s->mark = mine << 31;
	s->position = (uint32_t)c->rx_tail + line;
	s->marks = BARWAY_LINE_MARK(s->position, c->rx_lines) ? 0 : 1u << 31;
	s->low = mine && lane % 4 == 0 ? ~0u : 0;
	s->more = s->low && line ? BARWAY_LINE_MORE << 12 : 0;
	s->least = lines > 1 ? (lines - 1) * BARWAY_LINE_DATA + 1 : 0;
	s->span = s->low && !line ? end - s->least : ~0u;
}

BARWAY_GPU_FN void barway_gpu_load_share(const struct barway_gpu_share *s, uint64_t *pair)
{
	barway_gpu_ld2(s->at, &pair[0], &pair[1]);
}

/* 0: a share's marks are right. */
BARWAY_GPU_FN uint32_t barway_gpu_unmarked(const struct barway_gpu_share *s, const uint64_t *pair)
{
	uint32_t a = (uint32_t)(pair[0] >> 32), b = (uint32_t)(pair[1] >> 32);

	return ~((a ^ s->marks) & (b ^ s->marks)) & s->mark;
}

/* 0: if it has a control word, that is one of this line. */
BARWAY_GPU_FN uint32_t barway_gpu_misplaced(const struct barway_gpu_share *s, const uint64_t *pair)
{
	uint32_t low = (uint32_t)pair[0], high = (uint32_t)(pair[0] >> 32);

	return ((low ^ s->position) & s->low) | (~high & s->more);
}

/* Does this thread have what it looks for, or nothing to look for? Of a message of any size. */
BARWAY_GPU_FN int barway_gpu_has(const struct barway_gpu_share *s, const uint64_t *pair)
{
	return !(barway_gpu_unmarked(s, pair) | barway_gpu_misplaced(s, pair));
}

/* Which threads have, a bit each. */
BARWAY_GPU_FN uint32_t barway_gpu_there(const struct barway_gpu_share *s, const uint64_t *pair)
{
	return barway_gpu_ballot(barway_gpu_has(s, pair));
}

/* Does this one have it, and is the first control word that of a size that is looked for? */
BARWAY_GPU_FN int barway_gpu_is_there(const struct barway_gpu_share *s, const uint64_t *pair)
{
	uint32_t size = (uint32_t)(pair[0] >> 44) & 0xfff;

	return barway_gpu_has(s, pair) & (size - s->least <= s->span);
}

/* Do some have right marks, but the control word of another line? @need: of whom that is asked. */
BARWAY_GPU_FN int barway_gpu_strays(const struct barway_gpu_share *s, const uint64_t *pair,
				    uint32_t need)
{
	int stray = !barway_gpu_unmarked(s, pair) && barway_gpu_misplaced(s, pair);

	return (barway_gpu_ballot(stray) & need) != 0;
}

/* This thread's two words of a line, if it has some; @control: the high half of the line's control
 * word. */
BARWAY_GPU_FN void barway_gpu_unmark(int mine, const uint64_t *pair, uint32_t control,
				     uint64_t *words)
{
	uint32_t quarter = barway_gpu_lane() % 4, top = 1u << 31;
	uint32_t a = (uint32_t)(pair[0] >> 32), b = (uint32_t)(pair[1] >> 32);

	a = (a & ~top) | (control << (4 - quarter) & top);
	b = (b & ~top) | (control << (7 - quarter) & top);
	words[0] = mine && quarter ? barway_gpu_pack((uint32_t)pair[0], a) : 0;
	words[1] = mine ? barway_gpu_pack((uint32_t)pair[1], b) : 0;
}

/*
 * The first line is there, or may be, and the message is not of as many lines as are looked for, or
 * not all of it is there. Returns 0, or an error; *@lines: how many it has; *@need: who has to have
 * something of it: without its first line only that is known to be the message's.
 */
BARWAY_GPU_FN int barway_gpu_resize(const struct barway_gpu_share *s, const uint64_t *pair,
				    uint32_t first, uint32_t most, uint32_t *lines, uint32_t *need)
{
	uint32_t there = barway_gpu_there(s, pair), size = first >> 12 & 0xfff;

	if ((there & 15) != 15)
		return 0;
	if (size > most)
		return size > BARWAY_MESSAGE_MAX ? BARWAY_GPU_EBADMSG : BARWAY_GPU_EMSGSIZE;
	*lines = barway_gpu_lines_of(size);
	*need = ~0u;
	return 0;
}

/* Waits for round @round of a message of @lines lines, which was loaded. */
BARWAY_GPU_FN int barway_gpu_wait_round(const struct barway_gpu_channel *c, uint32_t round,
					uint32_t lines, uint64_t *pair,
					struct barway_gpu_wait *wait)
{
	struct barway_gpu_share s;
	int error;

	barway_gpu_look_for(c, round, lines, BARWAY_MESSAGE_MAX, &s);
	while (barway_gpu_there(&s, pair) != ~0u) {
		if (barway_gpu_polled(wait)) {
			error = barway_gpu_strays(&s, pair, ~0u) ? BARWAY_GPU_EBADMSG :
				barway_gpu_ask_warp(c, wait);
			if (error)
				return error;
		}
		barway_gpu_load_share(&s, pair);
	}
	return 0;
}

/* Waits for what is past the first eight lines of a message. */
BARWAY_GPU_FN int barway_gpu_wait_rest(const struct barway_gpu_channel *c, uint32_t lines,
				       uint64_t *w, struct barway_gpu_wait *wait)
{
	int error = 0;

	wait->polls |= 15; /* the look before has used up what may be asked with no time at all */
	BARWAY_GPU_UNROLL
	for (uint32_t round = 1; round < BARWAY_GPU_ROUNDS; round++)
		if (!error && lines > round * 8)
			error = barway_gpu_wait_round(c, round, lines, w + 2 * round, wait);
	return error;
}

/* Loads the share of the first eight lines, and of the others where there are any. */
BARWAY_GPU_FN void barway_gpu_load_words(const struct barway_gpu_channel *c,
					 const struct barway_gpu_share *s, uint32_t lines,
					 uint32_t most, uint64_t *w)
{
	struct barway_gpu_share rest;

	barway_gpu_load_share(s, w);
	if (most <= 8 * BARWAY_LINE_DATA || __builtin_expect(lines <= 8, 1))
		return;
	BARWAY_GPU_UNROLL
	for (uint32_t round = 1; round < BARWAY_GPU_ROUNDS; round++) {
		barway_gpu_look_for(c, round, lines, most, &rest);
		barway_gpu_load_share(&rest, w + 2 * round);
	}
}

BARWAY_GPU_FN void barway_gpu_unmark_rest(uint32_t lines, const uint64_t *w, uint64_t *words)
{
	uint32_t lane = barway_gpu_lane(), own;

	BARWAY_GPU_UNROLL
	for (uint32_t round = 1; round < BARWAY_GPU_ROUNDS; round++) {
		if (lines <= round * 8)
			continue;
		own = barway_gpu_shfl((uint32_t)(w[2 * round] >> 32), lane & 28);
		barway_gpu_unmark(round * 8 + lane / 4 < lines, w + 2 * round, own,
				  words + 2 * round);
	}
}

/**
 * barway_gpu_recv_words() - take the next message into registers; by a warp
 * @words: BARWAY_GPU_WORDS of each thread: words[i] becomes the message's word barway_gpu_word(i);
 *         0 past its end, and where that is UINT32_MAX
 * The shortest way, if the compiler knows that @room is at most 448 bytes, eight lines, or 56, one;
 * what is larger stays. The rest as barway_gpu_recv_warp(), which is this and storing the words.
 */
BARWAY_GPU_FN int barway_gpu_recv_words(struct barway_gpu_channel *c, uint64_t *words,
					uint32_t room, uint32_t *bytes, uint32_t *tag,
					uint64_t timeout_ns, unsigned flags)
{
	uint32_t most = room < BARWAY_MESSAGE_MAX ? room : BARWAY_MESSAGE_MAX;
	uint32_t wanted = barway_gpu_lines_of(most), lane = barway_gpu_lane();
	uint32_t looked = wanted > 1 && c->rx_loads < wanted ? c->rx_loads : wanted;
	uint32_t lines = looked, first, own, need;
	uint64_t w[BARWAY_GPU_WORDS] = { 0 };
	struct barway_gpu_share share;
	struct barway_gpu_wait wait;
	int error, due, may_be, whole;

	barway_gpu_sync_warp();
	barway_gpu_agree(c);
	barway_gpu_say_due(c, !lane);
	barway_gpu_wait_for(&wait, timeout_ns);
	barway_gpu_look_for(c, 0, lines, most, &share);
look:
	barway_gpu_load_words(c, &share, looked, most, w);
	/* what is asked of the others is asked before it is known whether the message is there: the
	 * answers come together */
	first = barway_gpu_shfl((uint32_t)(w[0] >> 32), 0);
	own = barway_gpu_shfl((uint32_t)(w[0] >> 32), lane & 28);
	whole = barway_gpu_is_there(&share, w);
	/* the first line is there: perhaps it is of a message of another size */
	may_be = (barway_gpu_ballot(whole) & 14) == 14;
	whole = barway_gpu_all(whole);
	due = barway_gpu_polled(&wait);
	if (!__builtin_expect(due | may_be, 1)) /* one branch for each look */
		goto look;
	if (__builtin_expect(whole, 1))
		goto found;
	need = 15;
	if (may_be) {
		wanted = lines;
		error = barway_gpu_resize(&share, w, first, most, &lines, &need);
		if (error)
			goto failed;
		if (lines != wanted) {
			barway_gpu_look_for(c, 0, lines, most, &share);
			if (lines > looked) {
				looked = lines;
				wait.polls |= 15; /* that look was none of this many lines */
				goto look;
			}
			if (barway_gpu_all(barway_gpu_is_there(&share, w)))
				goto found;
		}
	}
	if (!due)
		goto look;
	error = barway_gpu_strays(&share, w, need) ? BARWAY_GPU_EBADMSG :
						     barway_gpu_ask_warp(c, &wait);
	if (!error)
		goto look;
failed:
	return barway_gpu_failed(error);
found:
	if (most > 8 * BARWAY_LINE_DATA && __builtin_expect(lines > 8, 0)) {
		error = barway_gpu_wait_rest(c, lines, w, &wait);
		if (error)
			goto failed;
	}
	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < BARWAY_GPU_WORDS; i++)
		words[i] = 0;
	barway_gpu_unmark(lane / 4 < lines, w, own, words);
	if (most > 8 * BARWAY_LINE_DATA && __builtin_expect(lines > 8, 0))
		barway_gpu_unmark_rest(lines, w, words);
	c->rx_loads = lines;
	if (barway_gpu_ordered(flags)) {
		barway_gpu_sync_warp(); /* what one has seen the others load after it */
		barway_gpu_acquire(c, c->rx_tail, flags);
		barway_gpu_sync_warp();
	}
	barway_gpu_taken(c, lines, !lane);
	if (bytes)
		*bytes = first >> 12 & 0xfff;
	if (tag)
		*tag = first & 0xfff;
	return 0;
}

/** barway_gpu_recv_warp() - barway_gpu_recv() by a warp: four threads load a line */
BARWAY_GPU_FN int barway_gpu_recv_warp(struct barway_gpu_channel *c, void *data, uint32_t room,
				       uint32_t *bytes, uint32_t *tag, uint64_t timeout_ns,
				       unsigned flags)
{
	uint64_t words[BARWAY_GPU_WORDS], *to = (uint64_t *)data, last = 0;
	uint32_t size = 0, mine = 0;
	int error = barway_gpu_recv_words(c, words, room, &size, tag, timeout_ns, flags);

	if (error)
		return error;
	BARWAY_GPU_UNROLL
	for (uint32_t i = 0; i < BARWAY_GPU_WORDS; i++) {
		uint32_t at = barway_gpu_word(i);

		if (i == 2 && c->rx_loads <= 8)
			break; /* the message had no more lines */
		if (at < size / 8)
			to[at] = words[i];
		last = at == size / 8 ? words[i] : last;
		mine |= at == size / 8;
	}
	if (mine)
		barway_gpu_put_last_word(to + size / 8, size % 8, last);
	barway_gpu_sync_warp(); /* @data is whole for every thread */
	if (bytes)
		*bytes = size;
	return 0;
}

/* The first line of a message: how many lines that has; 0: it is not one, or it is too large. */
BARWAY_GPU_FN uint32_t barway_gpu_lines_from(uint64_t control, uint32_t room)
{
	uint32_t bytes = (uint32_t)(control >> 44) & 0xfff;

	return bytes <= room && bytes <= BARWAY_MESSAGE_MAX ? barway_gpu_lines_of(bytes) : 0;
}

/*
 * Each thread has the line at its place from the tail on, with control word @control, or it is not
 * there. Which threads have the first line of a message all of which is there, without a gap, a bit
 * each. *@lines: of the message that begins here; *@error: what stands at the tail is no message,
 * or too large.
 */
BARWAY_GPU_FN uint32_t barway_gpu_first_lines(const struct barway_gpu_channel *c, int is_there,
					      uint64_t control, uint32_t room, uint32_t *lines,
					      int *error)
{
	uint32_t lane = barway_gpu_lane(), run, more, wrong, bits = ~barway_gpu_ballot(is_there);
	int mine;

	run = barway_gpu_count_bits((bits & (0 - bits)) - 1); /* the first that is not there */
	more = ((control >> 44) & 0xfff) == BARWAY_LINE_MORE;
	*lines = is_there && !more ? barway_gpu_lines_from(control, room) : 0;
	/* not of this place, of no size that can be, or going on with nothing: there it ends */
	wrong = barway_gpu_ballot(lane < run &&
				  ((uint32_t)control != (uint32_t)(c->rx_tail + lane) ||
				   (!more && ((control >> 44) & 0xfff) > BARWAY_MESSAGE_MAX) ||
				   (more && !lane)));
	if (wrong)
		run = barway_gpu_count_bits((wrong & (0 - wrong)) - 1);
	mine = lane < run;
	if (!mine)
		*lines = 0;
	*error = wrong & 1 ? BARWAY_GPU_EBADMSG : 0;
	if (barway_gpu_ballot(mine && !lane && !*lines))
		*error = BARWAY_GPU_EMSGSIZE;
	/* none after one that is too large, or not all there */
	bits = barway_gpu_ballot(mine && !more && (!*lines || lane + *lines > run));
	return barway_gpu_ballot(*lines != 0) & ((bits & (0 - bits)) - 1);
}

/**
 * barway_gpu_recv_each() - take messages, one for each thread of a warp
 * @data: of each thread its own
 *
 * What is there, at least one: thread k gets the k-th. Returns how many, the same for all; those
 * that get one have its size and tag. The quickest way to take many. Otherwise as
 * barway_gpu_recv().
 */
BARWAY_GPU_FN int barway_gpu_recv_each(struct barway_gpu_channel *c, void *data, uint32_t room,
				       uint32_t *bytes, uint32_t *tag, uint64_t timeout_ns,
				       unsigned flags)
{
	uint32_t lane = barway_gpu_lane(), there, count, lines, start, last;
	uint64_t w[BARWAY_LINE_WORDS], control = 0;
	struct barway_gpu_wait wait;
	int error, mine;

	barway_gpu_sync_warp();
	barway_gpu_agree(c);
	barway_gpu_say_due(c, !lane);
	barway_gpu_wait_for(&wait, timeout_ns);
	for (;;) {
		mine = barway_gpu_load_line(c, c->rx_tail + lane, w);
		there = barway_gpu_first_lines(c, mine, w[0], room, &lines, &error);
		if (!there && !error)
			error = barway_gpu_waited_warp(c, &wait);
		if (there || error)
			break;
	}
	if (!there)
		return error;
	count = barway_gpu_count_bits(there);
	last = barway_gpu_nth_bit(there, count);
	last += barway_gpu_shfl(lines, last); /* the first line that stays */
	start = barway_gpu_nth_bit(there, lane + 1);
	lines = barway_gpu_shfl(lines, start & 31);
	barway_gpu_sync_warp(); /* what one has seen the others load after it */
	mine = 0;
	for (uint32_t line = 0; lane < count && line < lines; line++) {
		mine |= !barway_gpu_load_line(c, c->rx_tail + start + line, w);
		control = line ? control : w[0];
		mine |= line && ((w[0] >> 44) & 0xfff) != BARWAY_LINE_MORE;
		mine |= ((control >> 44) & 0xfff) > room;
		if (mine)
			break;
		barway_gpu_put_line((uint64_t *)data, (uint32_t)(control >> 44) & 0xfff, line, w);
	}
	if (barway_gpu_ballot(mine))
		return BARWAY_GPU_EBADMSG; /* one begins within another: nothing is taken */
	barway_gpu_acquire(c, c->rx_tail + last - 1, flags);
	barway_gpu_sync_warp(); /* all have loaded: the lines may be written again */
	barway_gpu_taken(c, last, !lane);
	/* of the smallest ring that may be nearly all: there stays room for the longest message */
	barway_gpu_say_from(c, c->rx_lines - BARWAY_MESSAGE_LINES + 1, !lane);
	if (bytes && lane < count)
		*bytes = (uint32_t)(control >> 44) & 0xfff;
	if (tag && lane < count)
		*tag = (uint32_t)(control >> 32) & 0xfff;
	return (int)count;
}

/** barway_gpu_send_block() - barway_gpu_send() by a block; its first warp stores */
BARWAY_GPU_FN int barway_gpu_send_block(struct barway_gpu_channel *c, const void *data,
					uint32_t bytes, uint32_t tag, uint64_t timeout_ns,
					unsigned flags)
{
	BARWAY_GPU_SHARED int result;
	int error;

	barway_gpu_sync_block(); /* all have written what they announce */
	if (barway_gpu_thread() < 32) {
		error = barway_gpu_send_warp(c, data, bytes, tag, timeout_ns, flags);
		if (!barway_gpu_lane())
			result = error;
	}
	barway_gpu_sync_block();
	return result;
}

/** barway_gpu_recv_block() - barway_gpu_recv() by a block; its first warp loads */
BARWAY_GPU_FN int barway_gpu_recv_block(struct barway_gpu_channel *c, void *data, uint32_t room,
					uint32_t *bytes, uint32_t *tag, uint64_t timeout_ns,
					unsigned flags)
{
	BARWAY_GPU_SHARED uint32_t result[3];
	uint32_t size = 0, mark = 0;
	int error;

	barway_gpu_sync_block(); /* nobody still reads @data or the last result */
	if (barway_gpu_thread() < 32) {
		error = barway_gpu_recv_warp(c, data, room, &size, &mark, timeout_ns, flags);
		if (!barway_gpu_lane()) {
			result[0] = (uint32_t)error;
			result[1] = size;
			result[2] = mark;
		}
	}
	barway_gpu_sync_block();
	error = (int)result[0];
	if (!error && bytes)
		*bytes = result[1];
	if (!error && tag)
		*tag = result[2];
	return error;
}

#endif
#endif
