/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core/param: the parameters of the process. core/params.def is the one list: name, default, kind,
 * help. Environment: BARWAY_ and the name in capitals. Read when the first context is opened.
 */
#ifndef BW_CORE_PARAM_H
#define BW_CORE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
/* The place of the value among the words of the parameter, which must be one of log (by level),
 * devices, fallback and copy_method (as in their enums). */
uint32_t bw_param_choice(enum bw_param p);
/* -EINVAL for what only the part that has the words can tell: the value has the word [@word, +@n),
 * which is none of @known, "a, b, c". Names the variable or the call that gave the value. */
int bw_param_refuse(enum bw_param p, const char *word, size_t n, const char *known);
/* The same where the value is no list but one of @known. */
int bw_param_refuse_value(enum bw_param p, const char *known);
/* The place of the value among @words, which end with NULL; or that. */
int bw_param_word(enum bw_param p, const char *const *words, const char *known);

/*
 * Lists, in every parameter and option that is one: words separated by commas; spaces around a
 * word and empty words are skipped. The next word of the list at *@at, which moves past it:
 * @n bytes from *@word; false: no more. A NULL list has none.
 */
bool bw_list_next(const char **at, const char **word, size_t *n);
/* Is @word in @list? A list without words, or NULL, has every word. */
bool bw_list_has(const char *list, const char *word);

static inline bool bw_word_is(const char *word, size_t n, const char *text)
{
	return strlen(text) == n && !memcmp(word, text, n);
}

#endif
