/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barway_channel_abi.h: the memory that the two ends of a channel share: what the library writes
 * and what GPU code reads, and the other way round. Programs need barway.h, kernels
 * barway_device.cuh; both include this.
 *
 * A channel is two rings of lines. To the GPU: in GPU memory, written by the CPU through a
 * mapping, polled by the GPU in its own memory. To the CPU: in pinned host memory, written by the
 * GPU, polled by the CPU in its cache. So each side polls what is near and only writes what is far.
 *
 * A line is 64 bytes: eight words of eight bytes. Positions count lines since the channel was
 * opened and never wrap (64 bits); line p lies at place p % lines. A message takes as many lines in
 * a row as it needs: seven words of each line carry its bytes, word 0 is the control word.
 *
 * No order among the stores of a message is relied on, neither within a line nor between lines,
 * and no access larger than eight bytes is taken to be one (a vector access is several accesses,
 * PTX ISA "Vector Data Types" of the memory consistency model). Therefore bit 63 of EVERY word is
 * a mark: it tells the lap that the word was written in, and a reader takes a line when all eight
 * marks are those of the lap it is in. The bits that the marks displace travel in the control
 * word.
 *
 *   control word   63     mark
 *                  62-56  bit 63 of the data words 6, 4, 2, 7, 5, 3, 1, as threads of a GPU that
 *                         have two words each find them by two votes: BARWAY_LINE_TOP()
 *                  55-44  first line of a message: its size in bytes; else BARWAY_LINE_MORE
 *                  43-32  first line: the caller's tag; else 0
 *                  31-0   the low half of the line's position
 *
 * One bit suffices as a mark because a place is written again only after its reader has said that
 * it is done with it: every word of it then bears the mark of the lap before.
 *
 * A ring to the GPU of BARWAY_RING_TWIN_LINES lines, its smallest, is there twice, in two pages of
 * 4 KiB side by side; the CPU stores each line into both, and a reader may take either. Large GPUs
 * keep neighbouring pages in different parts of their L2 cache, and one of these is nearer to a
 * multiprocessor than the other: 0.2 us of a round trip (H200, driver 580.159.04, 2026-11-30). Of
 * the twin that nobody reads no credit tells that a line has arrived: that it does within a lap
 * follows from the fence after each message and the order of posted writes.
 */
#ifndef BARWAY_CHANNEL_ABI_H
#define BARWAY_CHANNEL_ABI_H

#include <stdint.h>

#define BARWAY_LINE_BYTES 64u
#define BARWAY_LINE_WORDS 8u
#define BARWAY_LINE_DATA 56u        /* bytes of a message in a line */
#define BARWAY_LINE_MORE 0xfffu     /* in the place of the size: not the first line */
#define BARWAY_MESSAGE_MAX 1024u    /* bytes */
#define BARWAY_MESSAGE_LINES 19u    /* of the longest message */
#define BARWAY_TAG_MAX 0xfffu
#define BARWAY_LINE_TOP(i) (((i) % 2 ? 56u : 59u) + (i) / 2) /* where bit 63 of word i is, 1 to 7 */
#define BARWAY_RING_LINES_MIN 64u
#define BARWAY_RING_LINES_MAX 1048576u
#define BARWAY_RING_TWIN_LINES BARWAY_RING_LINES_MIN /* a ring to the GPU of so many is twins */
#define BARWAY_RING_TWIN 4096u                       /* from a line to its twin, bytes */

/* Lines of a message of @bytes: at least one. */
#define BARWAY_MESSAGE_LINES_OF(bytes) \
	((bytes) ? ((bytes) + BARWAY_LINE_DATA - 1) / BARWAY_LINE_DATA : 1)

/* In the GPU's memory: offsets from struct barway_channel_gpu.gpu, bytes. */
#define BARWAY_GPU_TX_CREDIT 0u    /* written by the CPU: lines of the ring to the CPU it took */
#define BARWAY_GPU_CLOSED 8u       /* written by the CPU: not 0: it has closed the channel */
#define BARWAY_GPU_TX_RESERVED 128u /* GPU's own: lines that producers asked for */
#define BARWAY_GPU_TX_HEAD 192u    /* GPU's own: lines that producers were given */
#define BARWAY_GPU_RX_TAIL 256u    /* GPU's own: lines of the ring to the GPU it took */
#define BARWAY_GPU_RX_SAID 264u    /* GPU's own: what it told the CPU of that */
#define BARWAY_GPU_LEFT 272u       /* GPU's own: how often a kernel has left */
#define BARWAY_GPU_TWIN 280u       /* GPU's own: of which multiprocessor which twin is nearer */
#define BARWAY_GPU_RING 4096u      /* the ring to the GPU; there addresses divide by 8192 */

/* In pinned host memory: offsets from struct barway_channel_gpu.host, bytes. */
#define BARWAY_HOST_RX_CREDIT 0u   /* written by the GPU: lines of the ring to the GPU it took */
#define BARWAY_HOST_LEFT 64u       /* written by the GPU: how often a kernel has left */
#define BARWAY_HOST_CLOSED 72u     /* written by the GPU: not 0: it has closed the channel */
#define BARWAY_HOST_RING 4096u     /* the ring to the CPU */

/* A reader that has taken this part of the ring says so before it looks for the next message. */
#define BARWAY_CREDIT_PART 4u

/*
 * What leaving takes: last looks, fences, the end of the kernel (H200, driver 580.159.04,
 * 2026-11-30: 8 to 10 us, "channel_end_test idle"); and how long a kernel waits that is to be gone
 * after @ns.
 */
#define BARWAY_GPU_LEAVE_NS 12000ull
#define BARWAY_GPU_IDLE_FOR(ns) \
	((ns) > 2 * BARWAY_GPU_LEAVE_NS ? (ns) - BARWAY_GPU_LEAVE_NS : (ns) / 2)

/* Bytes of the part in GPU memory. */
#define BARWAY_GPU_BYTES(rx_lines)                                                              \
	(BARWAY_GPU_RING + (uint64_t)(rx_lines) * BARWAY_LINE_BYTES +                           \
	 ((rx_lines) == BARWAY_RING_TWIN_LINES ? BARWAY_RING_TWIN : 0))

/* What a kernel is given of a channel, by value: barway_channel_gpu(). */
struct barway_channel_gpu {
	uint64_t gpu;        /* device address of the part in GPU memory */
	uint64_t host;       /* device address of the part in pinned host memory */
	uint32_t rx_lines;   /* of the ring to the GPU; a power of two */
	uint32_t tx_lines;   /* of the ring to the CPU; a power of two */
	uint64_t reserved[2];
};

/* The mark of a line at a position, 0 or 1: 1 in the first lap, so that zeroed memory is nothing.
 * As a ring has 2^n lines the lap's lowest bit is the position's bit n. */
#define BARWAY_LINE_MARK(position, lines) (((position) & (lines)) == 0)

#endif
