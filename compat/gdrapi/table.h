/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compat/gdrapi: what is open and what is pinned.
 *
 * A client is what gdr_open() gave; its gdr_t is a number that is never used again. A pin is a slot
 * of a table that only grows; its handle is the slot's index and a generation, so an old handle
 * never becomes valid again. A copy finds its pin without a lock. Everything else goes through one
 * lock, which is never held across a call that maps or unmaps.
 *
 * A forked child keeps the clients, each with a Barway context of its own once it needs one, and
 * none of the pins.
 */
#ifndef GDRAPI_TABLE_H
#define GDRAPI_TABLE_H

#include <barway.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gdrapi.h"

#define INDEX_BITS 22
#define CHUNK_BITS 10
#define CHUNK_PINS (1u << CHUNK_BITS)
#define CHUNKS (1u << (INDEX_BITS - CHUNK_BITS))

/* The provider in use: of the last pin, else the most eager one. */
struct in_use {
	char provider[16];
	bool keeps_alive;
	bool coherent; /* a pin was reached over another link than PCIe */
};

struct client {
	struct client *next;
	uintptr_t id;
	unsigned users; /* calls under way, and 1 while it is open */
	bool open;
	struct barway_context *ctx; /* NULL: to be opened */
	struct pin *pins;
	bool soft;
	const char *providers; /* allowed ones, NULL: all; static */
	uint32_t method;       /* enum barway_method: of all copies */
	struct in_use in_use;
};

/* What a pin is made of; does not change while it lives. */
struct pinned {
	struct barway_mapping *mapping;
	unsigned char *ptr;  /* the CPU's address of @addr */
	uint64_t addr, size; /* as the caller gave them */
	uint64_t probe, id;  /* an address of its memory, and whose that was */
	uint64_t took_ns;
	gdr_mapping_type_t type;
};

struct pin {
	/* what a copy reads, one cache line; written with release, so that who sees a new life's
	 * values sees that the old one is over */
	_Alignas(64) _Atomic uint64_t live;      /* the generation, 0: not pinned */
	_Atomic(struct barway_mapping *) mapping;
	_Atomic uintptr_t base;                  /* of the mapping; 0: not mapped */
	_Atomic size_t reach;                    /* bytes from there that copies may touch */
	/* under the lock */
	_Alignas(64) struct client *client;
	struct pin *prev, *next; /* of the client; @next also in the list of free ones */
	uint64_t generation;     /* of this life, or of the last one */
	uint32_t index;
	struct pinned p;
};

extern _Atomic(struct pin *) pin_chunks[CHUNKS];

/* NULL: not a live handle. No lock. */
static inline struct pin *pin_find(gdr_mh_t handle)
{
	uint64_t h = handle.h, generation = h >> INDEX_BITS;
	uint32_t index = h & ((1u << INDEX_BITS) - 1);
	struct pin *chunk = atomic_load_explicit(&pin_chunks[index >> CHUNK_BITS],
						 memory_order_acquire);
	struct pin *pin = chunk ? &chunk[index & (CHUNK_PINS - 1)] : NULL;

	if (!pin || !generation ||
	    atomic_load_explicit(&pin->live, memory_order_acquire) != generation)
		return NULL;
	return pin;
}

/* After reading of a pin with acquire: was it still the one of the handle? */
static inline bool pin_lives(struct pin *pin, gdr_mh_t handle)
{
	return atomic_load_explicit(&pin->live, memory_order_relaxed) == handle.h >> INDEX_BITS;
}

/* Opens a client without a context; NULL: no memory. client_publish() gives its gdr_t. */
struct client *client_new(void);
gdr_t client_publish(struct client *s);

/* The client, for the time of a call; NULL: not open. */
struct client *client_get(gdr_t g);
/* Ends the call. The last one of a closed client ends the client. */
void client_put(struct client *s);
/* Its context, made by @open where there is none (in a forked child); NULL: that failed. */
struct barway_context *client_context(struct client *s, int (*open)(struct client *s));
void client_note(struct client *s, const char *provider, bool keeps_alive, bool coherent);
struct in_use client_in_use(struct client *s);
/* Takes it out of use; false: it was not open. Its pins are unmapped. */
bool client_close(gdr_t g);

/* 0, ENOMEM, or EINVAL: the client was closed meanwhile. */
int pin_publish(struct client *s, const struct pinned *p, gdr_mh_t *handle);
/* Takes the handle out of use and gives what was behind it; false: not a live handle of @s. */
bool pin_retire(struct client *s, gdr_mh_t handle, struct pinned *p);
/* Gives a copy of it, and whether it is mapped; false: not a live handle of @s. */
bool pin_look(struct client *s, gdr_mh_t handle, struct pinned *p, bool *mapped);
/* 0, EINVAL: not a live handle of @s, or EAGAIN: mapped already. */
int pin_map(struct client *s, gdr_mh_t handle, size_t reach);
/* 0, EINVAL: not a live handle of @s, EAGAIN: not mapped, or EFAULT: not at @va. */
int pin_unmap(struct client *s, gdr_mh_t handle, const void *va);

#endif
