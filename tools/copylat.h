/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/copylat: the verb, and what it prints. */
#ifndef TOOLS_COPYLAT_H
#define TOOLS_COPYLAT_H

#include "bench/mapping.h"
#include "tools/copyverb.h"

struct copylat {
	struct copyverb v;
	struct mapping_times map;
	struct bench_result flush;
};

void copylat_print_head(const struct copylat *l);
void copylat_print_titles(const struct copyverb *v, enum copies_direction dir);
void copylat_print_row(const struct copyverb *v, const struct copies_result *r);
void copylat_print_slower(const struct copylat *l);
void copylat_json(struct json *j, void *copylat);

#endif
