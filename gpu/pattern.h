/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu/pattern: what stands in a message, so that both of its ends know. For kernels and for the
 * CPU.
 */
#ifndef GPU_PATTERN_H
#define GPU_PATTERN_H

#include <stdint.h>

#if defined(__CUDACC__) || defined(__CUDA__)
#define GPU_PATTERN_FN static __inline__ __attribute__((host, device, unused))
#else
#define GPU_PATTERN_FN static inline __attribute__((unused))
#endif

/* Every bit of @x reaches every bit of the result (a bijection: shifts and odd factors). */
GPU_PATTERN_FN uint64_t gpu_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ull;
	x ^= x >> 29;
	x *= 0xd1342543de82ef95ull;
	return x ^ x >> 32;
}

/* Names message @n of producer @who. */
GPU_PATTERN_FN uint64_t gpu_message_key(uint32_t who, uint64_t n)
{
	return (uint64_t)who << 44 ^ n;
}

GPU_PATTERN_FN uint32_t gpu_message_bytes(uint64_t key, uint32_t least, uint32_t most)
{
	return least + (uint32_t)((gpu_mix(~key) >> 32) * (most - least + 1ull) >> 32);
}

/* The message's eight bytes from @i * 8 on; behind its end they are 0. */
GPU_PATTERN_FN uint64_t gpu_message_word(uint64_t key, uint32_t bytes, uint32_t i)
{
	uint64_t v = gpu_mix(key + ((uint64_t)i + 1) * 0x9fb21c651e98df25ull);

	return bytes - i * 8 >= 8 ? v : v & ((1ull << (bytes - i * 8) * 8) - 1);
}

#if !defined(__CUDACC__) && !defined(__CUDA__)

/* For the CPU. @data has room for whole words. */
GPU_PATTERN_FN void gpu_message_make(uint64_t *data, uint64_t key, uint32_t bytes)
{
	for (uint32_t i = 0; i * 8 < bytes; i++)
		data[i] = gpu_message_word(key, bytes, i);
}

/* Is it that message? What is behind its end, in the last word, does not matter. */
GPU_PATTERN_FN int gpu_message_right(const uint64_t *data, uint64_t key, uint32_t bytes)
{
	uint64_t wrong = 0;

	for (uint32_t i = 0; i * 8 + 8 <= bytes; i++)
		wrong |= data[i] ^ gpu_message_word(key, bytes, i);
	if (bytes % 8)
		wrong |= (data[bytes / 8] ^ gpu_message_word(key, bytes, bytes / 8)) <<
			 (64 - bytes % 8 * 8);
	return !wrong;
}

#endif
#endif
