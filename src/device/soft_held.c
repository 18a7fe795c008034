/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stores of kernels that arrive shuffled (parameter soft_shuffle): what a block stores is kept for
 * a while and arrives in random order, but for stores to the same address. All of it has arrived
 * when the block makes a fence or ends; what it leaves alone arrives little by little.
 */
#include <string.h>

#include "device/soft_int.h"

/* xorshift64*, as good as any for this. */
static uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

static unsigned random_below(struct soft_held *h, unsigned n)
{
	return (unsigned)((random_next(&h->random) >> 32) % n);
}

/* One of those that wait; of those to its address the first. */
static void arrive_one(struct soft_held *h)
{
	unsigned pick = random_below(h, h->n), i = 0;

	while (h->store[i].at != h->store[pick].at)
		i++;
	if (h->store[i].release)
		__atomic_store_n(h->store[i].at, h->store[i].value, __ATOMIC_RELEASE);
	else
		__atomic_store_n(h->store[i].at, h->store[i].value, __ATOMIC_RELAXED);
	h->n--;
	memmove(h->store + i, h->store + i + 1, (h->n - i) * sizeof(h->store[0]));
}

void soft_held_begin(struct soft_held *h, uint64_t seed)
{
	pthread_mutex_lock(&h->lock);
	h->random = (seed + 1) * 0x9e3779b97f4a7c15ull | 1;
	h->n = 0;
	h->keep = random_below(h, SOFT_HELD);
	pthread_mutex_unlock(&h->lock);
}

void soft_held_store(struct soft_held *h, uint64_t *at, uint64_t value, bool release)
{
	pthread_mutex_lock(&h->lock);
	h->store[h->n++] = (struct soft_store){ at, value, release };
	if (!random_below(h, 16))
		h->keep = random_below(h, SOFT_HELD);
	while (h->n > h->keep)
		arrive_one(h);
	pthread_mutex_unlock(&h->lock);
}

void soft_held_arrive(struct soft_held *h, bool all)
{
	pthread_mutex_lock(&h->lock);
	for (unsigned left = all || !h->n ? h->n : 1 + random_below(h, h->n); left--;)
		arrive_one(h);
	pthread_mutex_unlock(&h->lock);
}
