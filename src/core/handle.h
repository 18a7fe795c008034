/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core/handle: objects behind opaque handles that can be asked for by a stale handle without harm.
 *
 * Objects live in slots of memory that is never given back and is wiped in a forked child. A handle
 * is the address of the slot with its generation in the 16 top bits, which user addresses do not
 * use (x86_64 and arm64: 47 or 48 bits). A generation is used once for a slot: after 65,535 lives
 * the slot is retired, so a stale handle never becomes valid again. No lock, no global on lookup.
 */
#ifndef BW_CORE_HANDLE_H
#define BW_CORE_HANDLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum bw_object {
	BW_OBJECT_CONTEXT = 1,
	BW_OBJECT_DEVICE,
	BW_OBJECT_MAPPING,
	BW_OBJECT_SOFT_STREAM,
	BW_OBJECT_REQUEST,
	BW_OBJECT_CHANNEL,
	BW_OBJECT_ENDPOINT,
	BW_OBJECT_PEER,
	BW_OBJECT_REGION,
	BW_OBJECT_TRANSFER,
};

/* First member of every object. */
struct bw_slot {
	_Atomic uint32_t live; /* (kind << 16) | generation, 0: not live (or wiped by fork) */
	uint32_t index;
};

#define BW_SLOT_BYTES 256 /* what an object may take, slot included */
#define BW_HANDLE_SHIFT 48

/* A zeroed, not yet live object; NULL: no memory. */
void *bw_object_new(enum bw_object kind);
/* Makes it live and gives its handle. */
void *bw_object_publish(void *object);
/* Takes the handle out of use; of several callers exactly one gets the object, the others NULL. */
void *bw_object_retire(void *handle, enum bw_object kind);
/* Gives the slot back (after retire, or when never published). */
void bw_object_free(void *object);
/* The handle of a live object. */
void *bw_object_handle(void *object);

static inline void *bw_object_get(const void *handle, enum bw_object kind)
{
	uintptr_t h = (uintptr_t)handle;
	struct bw_slot *slot = (struct bw_slot *)(h & (((uintptr_t)1 << BW_HANDLE_SHIFT) - 1));
	uint32_t want = (uint32_t)kind << 16 | (uint32_t)(h >> BW_HANDLE_SHIFT);

	if (__builtin_expect((uintptr_t)slot == h, 0)) /* NULL, or without a generation */
		return NULL;
	if (__builtin_expect(atomic_load_explicit(&slot->live, memory_order_acquire) != want, 0))
		return NULL;
	return slot;
}

/* -ESTALE with the sentence that fits: NULL, not a handle, closed before, or inherited by fork. */
int bw_handle_stale(const void *handle, const char *operation, const char *what);

#endif
