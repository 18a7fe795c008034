/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots come in chunks that are aligned to their size, so the chunk of a slot is found by masking.
 * Slot 0 holds the way back to the chunk's book, which lies in ordinary memory: what has to outlive
 * an object, or be readable in a forked child where the slots are wiped, is there.
 */
#include "core/handle.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/err.h"
#include "core/fault.h"
#include "core/fork.h"

#define CHUNK_BYTES 65536
#define CHUNK_SLOTS (CHUNK_BYTES / BW_SLOT_BYTES)
#define LAST_GENERATION 65535
#define ADDRESS_MASK (((uintptr_t)1 << BW_HANDLE_SHIFT) - 1)

struct chunk;

struct book {
	struct chunk *chunk;
	struct book *next; /* while it is free */
	uint16_t generation; /* of the present life, or of the last one */
	uint16_t kind;
	bool used;
};

struct chunk {
	struct chunk *next;
	char *base;
	struct book book[CHUNK_SLOTS]; /* [0] is not used */
};

/* What is in slot 0. */
struct head {
	struct bw_slot never_live;
	struct chunk *chunk;
};

_Static_assert(sizeof(struct bw_slot) == 8, "an object's memory begins right after it");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of these */
static struct chunk *chunks;
static struct chunk *inherited; /* the parent's: only told apart, never used */
static struct book *free_head, **free_tail = &free_head;

/* First in, first out: a slot rests as long as can be, and generations are spread evenly. */
static void push_free(struct book *b)
{
	b->next = NULL;
	*free_tail = b;
	free_tail = &b->next;
}

static struct book *pop_free(void)
{
	struct book *b = free_head;

	free_head = b->next;
	if (!free_head)
		free_tail = &free_head;
	return b;
}

static struct bw_slot *slot_of(const struct book *b)
{
	return (struct bw_slot *)(b->chunk->base + (size_t)(b - b->chunk->book) * BW_SLOT_BYTES);
}

/* NULL for what a fork took away. */
static struct book *book_of(const void *object)
{
	const struct bw_slot *slot = object;
	const struct head *head =
		(const struct head *)((uintptr_t)object & ~(uintptr_t)(CHUNK_BYTES - 1));

	if (!head->chunk || !slot->index || slot->index >= CHUNK_SLOTS)
		return NULL;
	return &head->chunk->book[slot->index];
}

/* Memory aligned to its size: twice as much, and the ends given back. */
static char *chunk_map(void)
{
	void *p;
	uintptr_t from, base, end;

	if (bw_mmap(&p, NULL, 2 * CHUNK_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
		return NULL;
	from = (uintptr_t)p;
	base = (from + CHUNK_BYTES - 1) & ~(uintptr_t)(CHUNK_BYTES - 1);
	end = from + 2 * CHUNK_BYTES;
	if (end > ADDRESS_MASK) { /* the generation would not fit above it */
		munmap(p, 2 * CHUNK_BYTES);
		return NULL;
	}
	if (base > from)
		munmap(p, base - from);
	if (end > base + CHUNK_BYTES)
		munmap((void *)(base + CHUNK_BYTES), end - base - CHUNK_BYTES);
	return (char *)base;
}

static bool grow(void)
{
	struct chunk *c = bw_alloc(sizeof(*c));

	if (!c)
		return false;
	c->base = chunk_map();
	if (!c->base) {
		free(c);
		return false;
	}
	madvise(c->base, CHUNK_BYTES, MADV_WIPEONFORK); /* forget() does it where this cannot */
	((struct head *)c->base)->chunk = c;
	for (uint32_t i = 1; i < CHUNK_SLOTS; i++) {
		c->book[i].chunk = c;
		push_free(&c->book[i]);
	}
	c->next = chunks;
	chunks = c;
	return true;
}

void *bw_object_new(enum bw_object kind)
{
	struct book *b = NULL;
	struct bw_slot *slot;

	pthread_mutex_lock(&lock);
	if (free_head || grow()) {
		b = pop_free();
		b->generation++;
		b->kind = (uint16_t)kind;
		b->used = true;
	}
	pthread_mutex_unlock(&lock);
	if (!b)
		return NULL;
	slot = slot_of(b);
	/* Not live itself: it is 0, and holders of stale handles may be reading it. */
	memset(slot + 1, 0, BW_SLOT_BYTES - sizeof(*slot));
	slot->index = (uint32_t)(b - b->chunk->book);
	return slot;
}

void *bw_object_publish(void *object)
{
	struct bw_slot *slot = object;
	struct book *b = book_of(object);

	if (!b)
		return NULL;
	atomic_store_explicit(&slot->live, (uint32_t)b->kind << 16 | b->generation,
			      memory_order_release);
	return bw_object_handle(object);
}

void *bw_object_handle(void *object)
{
	struct bw_slot *slot = object;
	uintptr_t generation = atomic_load_explicit(&slot->live, memory_order_relaxed) & 0xffff;

	return generation ? (void *)((uintptr_t)object | generation << BW_HANDLE_SHIFT) : NULL;
}

void *bw_object_retire(void *handle, enum bw_object kind)
{
	struct bw_slot *slot = bw_object_get(handle, kind);
	uint32_t live = (uint32_t)kind << 16 | (uint32_t)((uintptr_t)handle >> BW_HANDLE_SHIFT);

	if (!slot || !atomic_compare_exchange_strong(&slot->live, &live, 0))
		return NULL;
	return slot;
}

void bw_object_free(void *object)
{
	struct bw_slot *slot = object;
	struct book *b = object ? book_of(object) : NULL;

	if (!b)
		return;
	atomic_store_explicit(&slot->live, 0, memory_order_release);
	pthread_mutex_lock(&lock);
	if (b->used) {
		b->used = false;
		if (b->generation < LAST_GENERATION)
			push_free(b);
	}
	pthread_mutex_unlock(&lock);
}

static struct chunk *find(struct chunk *list, uintptr_t address)
{
	while (list && address - (uintptr_t)list->base >= CHUNK_BYTES)
		list = list->next;
	return list;
}

/* Was this handle given out, by this process? */
static bool was_ours(uintptr_t address, unsigned generation)
{
	struct chunk *c = find(chunks, address);
	size_t at;

	if (!c || !generation || address % BW_SLOT_BYTES)
		return false;
	at = (address - (uintptr_t)c->base) / BW_SLOT_BYTES;
	return at && generation <= c->book[at].generation;
}

int bw_handle_stale(const void *handle, const char *operation, const char *what)
{
	uintptr_t address = (uintptr_t)handle & ADDRESS_MASK;
	unsigned generation = (unsigned)((uintptr_t)handle >> BW_HANDLE_SHIFT);
	bool ours, parents, other = false;

	if (!handle)
		return bw_err(ESTALE, "%s: the handle is NULL: give that of a %s", operation, what);
	pthread_mutex_lock(&lock);
	ours = was_ours(address, generation);
	parents = !ours && generation && find(inherited, address);
	pthread_mutex_unlock(&lock);
	if (ours) { /* alive: then it is of another kind */
		struct bw_slot *slot = (struct bw_slot *)address;

		other = (atomic_load(&slot->live) & 0xffff) == generation;
	}
	if (parents)
		return bw_err(ESTALE, "%s: the %s was made by the parent process before fork(): "
			      "open and map anew in the child", operation, what);
	if (!ours || other)
		return bw_err(ESTALE, "%s: %p is not the handle of a %s", operation, handle, what);
	return bw_err(ESTALE, "%s: the %s was closed before", operation, what);
}

/* The child leaves the parent's chunks alone for ever, so no handle into them can become valid. */
static void forget(void)
{
	struct chunk *c = chunks, *next;

	for (; c; c = next) {
		next = c->next;
		if (((struct head *)c->base)->chunk) { /* it was not wiped */
			for (size_t i = 1; i < CHUNK_SLOTS; i++)
				atomic_store(&slot_of(&c->book[i])->live, 0);
			((struct head *)c->base)->chunk = NULL;
		}
		c->next = inherited;
		inherited = c;
	}
	chunks = NULL;
	free_head = NULL;
	free_tail = &free_head;
}

__attribute__((constructor)) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(forget);
}
