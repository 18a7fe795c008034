/* SPDX-License-Identifier: BSD-3-Clause */
#include "table.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(unsigned long) == 8, "a handle has 64 bits");

_Atomic(struct pin *) pin_chunks[CHUNKS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of these */
static struct client *clients;
static uintptr_t last_id;
static struct pin *free_pins;
static unsigned nchunks;

/* ---- fork ------------------------------------------------------------------------------------ */

static void drop(struct pin *pin);

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (struct client *s = clients; s; s = s->next) {
		while (s->pins)
			drop(s->pins);
		s->ctx = NULL; /* the parent's */
		s->users = 1;  /* the threads of other calls are not here */
	}
}

__attribute__((constructor)) static void start(void)
{
	/* no memory: then the context, which is Barway's to tell apart, refuses in the child */
	(void)pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- slots, with the lock held --------------------------------------------------------------- */

static bool grow(void)
{
	struct pin *chunk;

	if (nchunks == CHUNKS)
		return false;
	chunk = aligned_alloc(_Alignof(struct pin), CHUNK_PINS * sizeof(*chunk));
	if (!chunk)
		return false;
	memset((void *)chunk, 0, CHUNK_PINS * sizeof(*chunk));
	for (unsigned i = CHUNK_PINS; i-- > 0;) {
		chunk[i].index = nchunks << CHUNK_BITS | i;
		chunk[i].next = free_pins;
		free_pins = &chunk[i];
	}
	atomic_store_explicit(&pin_chunks[nchunks++], chunk, memory_order_release);
	return true;
}

/* Ends the life of a pin. Copies that hold its old handle may be reading it, now and later. */
static void drop(struct pin *pin)
{
	atomic_store_explicit(&pin->live, 0, memory_order_release);
	atomic_store_explicit(&pin->base, 0, memory_order_release);
	if (pin->prev)
		pin->prev->next = pin->next;
	else
		pin->client->pins = pin->next;
	if (pin->next)
		pin->next->prev = pin->prev;
	pin->client = NULL;
	pin->prev = NULL;
	pin->next = free_pins;
	free_pins = pin;
}

static struct pin *of_client(struct client *s, gdr_mh_t handle)
{
	struct pin *pin = pin_find(handle);

	return pin && pin->client == s ? pin : NULL;
}

/* ---- clients --------------------------------------------------------------------------------- */

struct client *client_new(void)
{
	struct client *s = calloc(1, sizeof(*s));

	if (s)
		s->users = 1;
	return s;
}

gdr_t client_publish(struct client *s)
{
	pthread_mutex_lock(&lock);
	s->id = ++last_id;
	s->open = true;
	s->next = clients;
	clients = s;
	pthread_mutex_unlock(&lock);
	return (gdr_t)s->id;
}

static struct client **place(gdr_t g)
{
	struct client **at = &clients;

	while (*at && (*at)->id != (uintptr_t)g)
		at = &(*at)->next;
	return at;
}

struct client *client_get(gdr_t g)
{
	struct client *s;

	pthread_mutex_lock(&lock);
	s = *place(g);
	if (s)
		s->users++;
	pthread_mutex_unlock(&lock);
	return s;
}

void client_put(struct client *s)
{
	unsigned users;

	pthread_mutex_lock(&lock);
	users = --s->users;
	pthread_mutex_unlock(&lock);
	if (users)
		return;
	if (s->ctx)
		barway_close(s->ctx);
	free(s);
}

struct barway_context *client_context(struct client *s, int (*open)(struct client *s))
{
	struct barway_context *ctx;

	pthread_mutex_lock(&lock);
	if (!s->ctx && open(s))
		s->ctx = NULL;
	ctx = s->ctx;
	pthread_mutex_unlock(&lock);
	return ctx;
}

void client_note(struct client *s, const char *provider, bool keeps_alive, bool coherent)
{
	pthread_mutex_lock(&lock);
	snprintf(s->in_use.provider, sizeof(s->in_use.provider), "%s", provider);
	s->in_use.keeps_alive = keeps_alive;
	s->in_use.coherent = s->in_use.coherent || coherent;
	pthread_mutex_unlock(&lock);
}

struct in_use client_in_use(struct client *s)
{
	struct in_use u;

	pthread_mutex_lock(&lock);
	u = s->in_use;
	pthread_mutex_unlock(&lock);
	return u;
}

bool client_close(gdr_t g)
{
	struct client **at, *s;

	pthread_mutex_lock(&lock);
	at = place(g);
	s = *at;
	if (!s) {
		pthread_mutex_unlock(&lock);
		return false;
	}
	*at = s->next;
	s->open = false;
	while (s->pins) {
		struct barway_mapping *m = s->pins->p.mapping;

		drop(s->pins);
		pthread_mutex_unlock(&lock);
		barway_unmap(m);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	client_put(s);
	return true;
}

/* ---- pins ------------------------------------------------------------------------------------ */

int pin_publish(struct client *s, const struct pinned *p, gdr_mh_t *handle)
{
	struct pin *pin;
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!s->open) {
		ret = EINVAL;
	} else if (!free_pins && !grow()) {
		ret = ENOMEM;
	} else {
		pin = free_pins;
		free_pins = pin->next;
		pin->client = s;
		pin->prev = NULL;
		pin->next = s->pins;
		if (pin->next)
			pin->next->prev = pin;
		s->pins = pin;
		pin->p = *p;
		atomic_store_explicit(&pin->mapping, p->mapping, memory_order_release);
		atomic_store_explicit(&pin->live, ++pin->generation, memory_order_release);
		handle->h = pin->generation << INDEX_BITS | pin->index;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

bool pin_retire(struct client *s, gdr_mh_t handle, struct pinned *p)
{
	struct pin *pin;

	pthread_mutex_lock(&lock);
	pin = of_client(s, handle);
	if (pin) {
		*p = pin->p;
		drop(pin);
	}
	pthread_mutex_unlock(&lock);
	return pin;
}

bool pin_look(struct client *s, gdr_mh_t handle, struct pinned *p, bool *mapped)
{
	struct pin *pin;

	pthread_mutex_lock(&lock);
	pin = of_client(s, handle);
	if (pin) {
		*p = pin->p;
		*mapped = atomic_load_explicit(&pin->base, memory_order_relaxed);
	}
	pthread_mutex_unlock(&lock);
	return pin;
}

int pin_map(struct client *s, gdr_mh_t handle, size_t reach)
{
	struct pin *pin;
	int ret;

	pthread_mutex_lock(&lock);
	pin = of_client(s, handle);
	ret = !pin ? EINVAL : atomic_load_explicit(&pin->base, memory_order_relaxed) ? EAGAIN : 0;
	if (!ret) {
		atomic_store_explicit(&pin->reach, reach, memory_order_release);
		atomic_store_explicit(&pin->base, (uintptr_t)pin->p.ptr, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

int pin_unmap(struct client *s, gdr_mh_t handle, const void *va)
{
	struct pin *pin;
	uintptr_t base = 0;
	int ret;

	pthread_mutex_lock(&lock);
	pin = of_client(s, handle);
	if (pin)
		base = atomic_load_explicit(&pin->base, memory_order_relaxed);
	ret = !pin ? EINVAL : !base ? EAGAIN : base != (uintptr_t)va ? EFAULT : 0;
	if (!ret)
		atomic_store_explicit(&pin->base, 0, memory_order_release);
	pthread_mutex_unlock(&lock);
	return ret;
}
