/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 2.0   /* seconds */
#define TICK_NS 500000000
#define CLEAR "\r\033[K"

static struct {
	pthread_mutex_t lock;
	bool begun, ticks, shown;
	double start, step; /* when they began, seconds */
	char text[256];     /* of the step; "": there is none */
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* With the lock. Not by stdio, whose own locks others may hold when they fork. */
static void show(void)
{
	double now = seconds();

	if (!*state.text || now - state.start < PATIENCE)
		return;
	if (now - state.step < 1)
		dprintf(STDERR_FILENO, CLEAR "%s ...", state.text);
	else
		dprintf(STDERR_FILENO, CLEAR "%s ... %u s", state.text,
			(unsigned)(now - state.step));
	state.shown = true;
}

static void *tick(void *arg)
{
	const struct timespec t = { .tv_nsec = TICK_NS };

	for (;;) {
		nanosleep(&t, NULL);
		pthread_mutex_lock(&state.lock);
		show();
		pthread_mutex_unlock(&state.lock);
	}
	return arg;
}

/* A step can be long and cannot be asked to say so: a thread does, to which no signal goes. */
static void start_ticking(void)
{
	sigset_t all, before;
	pthread_t thread;

	if (state.ticks)
		return;
	state.ticks = true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!pthread_create(&thread, NULL, tick, NULL))
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_begin(void)
{
	pthread_mutex_lock(&state.lock);
	state.begun = true;
	state.start = seconds();
	pthread_mutex_unlock(&state.lock);
}

void progress_clear(void)
{
	pthread_mutex_lock(&state.lock);
	*state.text = 0;
	if (state.shown)
		dprintf(STDERR_FILENO, CLEAR);
	state.shown = false;
	pthread_mutex_unlock(&state.lock);
}

void progress(const char *fmt, ...)
{
	va_list ap;

	if (!state.begun)
		progress_begin();
	if (!isatty(STDERR_FILENO))
		return;
	pthread_mutex_lock(&state.lock);
	va_start(ap, fmt);
	vsnprintf(state.text, sizeof(state.text), fmt, ap);
	va_end(ap);
	state.step = seconds();
	start_ticking();
	show();
	pthread_mutex_unlock(&state.lock);
}
