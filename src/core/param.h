/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core/param: the parameters of the process. core/params.def is the one list: name, default, kind,
 * help. Environment: BARWAY_ and the name in capitals. Read when the first context is opened.
 */
#ifndef BW_CORE_PARAM_H
#define BW_CORE_PARAM_H

#include <stdbool.h>
#include <stdint.h>

enum bw_param_kind {
	BW_PARAM_SIZE, /* number, K M G T are powers of 1024 */
	BW_PARAM_BOOL, /* 0, 1, yes, no, on, off */
	BW_PARAM_TEXT,
};

enum bw_param {
#define PARAM(id, name, kind, dflt, help) BW_P_##id,
#include "core/params.def"
#undef PARAM
	BW_P_COUNT
};

struct bw_param_view {
	const char *name, *value, *dflt, *help, *source;
};

int bw_param_load(void);     /* reads the environment; -EINVAL names the bad one */
int bw_param_set(const char *name, const char *value); /* -ENOENT, -EINVAL */
bool bw_param_view(unsigned index, struct bw_param_view *view);

uint64_t bw_param_size(enum bw_param p); /* SIZE and BOOL */
const char *bw_param_text(enum bw_param p);

/* Is @word in the comma-separated @list? An empty or NULL list has every word. */
bool bw_list_has(const char *list, const char *word);

#endif
