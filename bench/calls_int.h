/* SPDX-License-Identifier: BSD-3-Clause */
/* The two halves of bench/calls: Barway's calls, and those of libgdrapi.so.2. */
#ifndef BENCH_CALLS_INT_H
#define BENCH_CALLS_INT_H

#include "bench/calls.h"

struct calls_case {
	const char *call, *how;
	bool sized;              /* once for each size; else once, and without one */
	size_t bytes;            /* of a copy: shown, nothing more */
	int (*run)(void *calls);
	int (*before)(void *calls);
	bool repeats;            /* may run many times without @before */
	int (*check)(struct calls *c); /* of the data; NULL: it moves none */
};

extern const struct calls_case calls_barway[], calls_gdrapi[]; /* end with call NULL */

/* Keeps the sentence of a failure of Barway. */
static inline int calls_by_barway(struct calls *c, int ret)
{
	if (ret < 0)
		c->error = barway_errmsg();
	return ret;
}

/* Is @word in GPU memory, by the copy engine's word? */
int calls_check_word(struct calls *c);

/* Puts a new random word into @word, and its complement into GPU memory. */
int calls_new_word(struct calls *c);

/* Undoes whatever a case of gdrapi left. */
void gdrapi_settle(struct calls *c);
int gdrapi_open(struct calls *c);
void gdrapi_close(struct calls *c);

#endif
