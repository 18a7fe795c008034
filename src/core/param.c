/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/param.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/err.h"
#include "core/fault.h"
#include "core/fork.h"

static const struct {
	const char *name, *dflt, *help;
	enum bw_param_kind kind;
} table[BW_P_COUNT] = {
#define PARAM(id, name, kind, dflt, help) { name, dflt, help, BW_PARAM_##kind },
#include "core/params.def"
#undef PARAM
};

/* Values that are given, by call and by environment; NULL: not given. */
static struct {
	_Atomic(const char *) call, env;
} given[BW_P_COUNT];

/* Copies of all values ever given, each once: a string handed out stays good whatever is set. */
static struct copy {
	struct copy *next;
	char text[];
} *copies;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for writers */

__attribute__((constructor)) static void register_lock(void)
{
	bw_fork_leaf_lock(&lock);
}

static const char *keep(const char *text)
{
	size_t bytes = strlen(text) + 1;
	struct copy *c;

	for (c = copies; c; c = c->next)
		if (!strcmp(c->text, text))
			return c->text;
	c = bw_alloc(sizeof(*c) + bytes);
	if (!c)
		return NULL;
	memcpy(c->text, text, bytes);
	c->next = copies;
	copies = c;
	return c->text;
}

static bool parse_size(const char *s, uint64_t *value)
{
	static const char units[] = "KMGT";
	unsigned base = 10, shift;
	uint64_t v = 0;
	const char *unit;

	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
		base = 16;
		s += 2;
	}
	if (!isxdigit((unsigned char)*s))
		return false;
	for (; isxdigit((unsigned char)*s); s++) {
		unsigned c = (unsigned)tolower((unsigned char)*s);
		unsigned digit = c <= '9' ? c - '0' : c - 'a' + 10;

		if (digit >= base || __builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)digit, &v))
			return false;
	}
	if (*s) {
		unit = strchr(units, toupper((unsigned char)*s));
		if (!unit || s[1])
			return false;
		shift = 10 * (unsigned)(1 + unit - units);
		if (v > UINT64_MAX >> shift)
			return false;
		v <<= shift;
	}
	*value = v;
	return true;
}

static bool parse_bool(const char *s, uint64_t *value)
{
	static const char *const words[] = { "0", "1", "no", "yes", "off", "on" };

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcasecmp(s, words[i])) {
			*value = i % 2;
			return true;
		}
	return false;
}

/* The place of @value in @list; -1: it is not there. */
static int place(const char *list, const char *value)
{
	const char *word;
	size_t n;

	for (int i = 0; bw_list_next(&list, &word, &n); i++)
		if (bw_word_is(word, n, value))
			return i;
	return -1;
}

static const char *words_of(unsigned p)
{
	switch (p) {
	case BW_P_LOG:
		return "none,error,warn,info,debug";
	case BW_P_DEVICES:
		return "auto,cuda,soft";
	case BW_P_FALLBACK:
		return "report,deny,quiet";
	case BW_P_COPY_METHOD:
		return "auto,cpu,ce,threads,resident";
	default:
		return "";
	}
}

/* What is accepted where @value is not; NULL: it is fine. */
static const char *refused(unsigned p, const char *value)
{
	uint64_t v = 0;

	if (table[p].kind == BW_PARAM_SIZE && !parse_size(value, &v))
		return "a number below 2^64, decimal or 0x and hexadecimal, with an optional "
		       "K, M, G or T (1024s)";
	if (table[p].kind == BW_PARAM_BOOL && !parse_bool(value, &v))
		return "0, 1, no, yes, off or on";
	switch (p) {
	case BW_P_SOFT_DEVICES:
		return v >= 1 && v <= 16 ? NULL : "1 to 16";
	case BW_P_SOFT_MEMORY: /* room for the self-test's blocks and something beside them */
		return v >= 16ull << 20 && v <= 4ull << 40 ? NULL : "16M to 4T";
	case BW_P_SOFT_BAR1:
		return v >= 1ull << 20 ? NULL : "1M or more";
	case BW_P_CHANNEL_SPIN_US:
		return v <= UINT32_MAX ? NULL : "0 to 4294967295";
	case BW_P_LOG:
		return place(words_of(p), value) >= 0 ? NULL : "none, error, warn, info or debug";
	case BW_P_DEVICES:
		return place(words_of(p), value) >= 0 ? NULL : "auto, cuda or soft";
	case BW_P_FALLBACK:
		return place(words_of(p), value) >= 0 ? NULL : "report, deny or quiet";
	case BW_P_COPY_METHOD:
		return place(words_of(p), value) >= 0 ?
			       NULL : "auto, cpu, ce, threads or resident";
	case BW_P_COPY_THREADS:
		return v <= 64 ? NULL : "0 to 64";
	case BW_P_FAULT:
		return bw_fault_check(value) ?
			       NULL : "a list of kind@N with N from 1 and the kind one of alloc, "
				      "open, ioctl, mmap, device-alloc, aperture, copy, thread, "
				      "cuda";
	default:
		return NULL;
	}
}

static void variable_name(unsigned p, char *text, size_t n)
{
	snprintf(text, n, "BARWAY_%s", table[p].name);
	for (char *c = text; *c; c++)
		*c = (char)toupper((unsigned char)*c);
}

int bw_param_load(void)
{
	const char *found[BW_P_COUNT], *accepted = NULL;
	char variable[64];
	bool full = false;
	unsigned p;

	pthread_mutex_lock(&lock);
	for (p = 0; p < BW_P_COUNT; p++) { /* all or nothing */
		const char *value;

		variable_name(p, variable, sizeof(variable));
		found[p] = value = secure_getenv(variable);
		if (!value || given[p].call)
			continue;
		accepted = refused(p, value);
		if (accepted)
			break;
		found[p] = keep(value);
		full = !found[p];
		if (full)
			break;
	}
	for (unsigned i = 0; p == BW_P_COUNT && i < BW_P_COUNT; i++)
		if (!given[i].call)
			given[i].env = found[i];
	pthread_mutex_unlock(&lock);

	/* The log's lock is not taken under ours. */
	if (accepted)
		return bw_err(EINVAL, "environment %s=\"%.128s\": not a value for it: give %s, "
			      "or unset it", variable, found[p], accepted);
	if (full)
		return bw_err(ENOMEM, "environment %s: no memory for its value", variable);
	return 0;
}

int bw_param_set(const char *name, const char *value)
{
	const char *accepted = NULL, *copy = NULL;
	unsigned p = 0;

	while (p < BW_P_COUNT && (!name || strcmp(name, table[p].name)))
		p++;
	if (p == BW_P_COUNT)
		return bw_err(ENOENT, "set parameter %.64s: no such name: "
			      "barway_param_get() lists them", name ? name : "NULL");
	if (!value)
		return bw_err(EINVAL, "set parameter %s: the value is NULL: give a string", name);
	accepted = refused(p, value);
	if (accepted)
		return bw_err(EINVAL, "set parameter %s to \"%.128s\": not a value for it: give %s",
			      name, value, accepted);
	pthread_mutex_lock(&lock);
	copy = keep(value);
	if (copy)
		given[p].call = copy;
	pthread_mutex_unlock(&lock);
	return copy ? 0 : bw_err(ENOMEM, "set parameter %s: no memory for its value", name);
}

const char *bw_param_text(enum bw_param p)
{
	const char *text = given[p].call;

	if (!text)
		text = given[p].env;
	return text ? text : table[p].dflt;
}

uint32_t bw_param_choice(enum bw_param p)
{
	/* it was checked when it was given */
	return (uint32_t)place(words_of(p), bw_param_text(p));
}

static int refuse(enum bw_param p, const char *word, size_t n, const char *known,
		  const char *remedy)
{
	char variable[64];

	if (given[p].call)
		return bw_err(EINVAL, "parameter %s \"%.128s\": '%.*s' is not one of %s: set it to "
			      "%s of these", table[p].name, bw_param_text(p),
			      (int)(n < 128 ? n : 128), word, known, remedy);
	variable_name(p, variable, sizeof(variable));
	return bw_err(EINVAL, "environment %s=\"%.128s\": '%.*s' is not one of %s: give %s of "
		      "these, or unset it", variable, bw_param_text(p), (int)(n < 128 ? n : 128),
		      word, known, remedy);
}

int bw_param_refuse(enum bw_param p, const char *word, size_t n, const char *known)
{
	return refuse(p, word, n, known, "a comma-separated list");
}

int bw_param_refuse_value(enum bw_param p, const char *known)
{
	const char *value = bw_param_text(p);

	return refuse(p, value, strlen(value), known, "one");
}

int bw_param_word(enum bw_param p, const char *const *words, const char *known)
{
	const char *value = bw_param_text(p);

	for (int i = 0; words[i]; i++)
		if (!strcmp(value, words[i]))
			return i;
	return bw_param_refuse_value(p, known);
}

uint64_t bw_param_size(enum bw_param p)
{
	const char *text = bw_param_text(p);
	uint64_t v = 0;

	if (table[p].kind == BW_PARAM_BOOL)
		parse_bool(text, &v);
	else if (table[p].kind == BW_PARAM_SIZE)
		parse_size(text, &v);
	return v;
}

bool bw_param_view(unsigned index, struct bw_param_view *view)
{
	if (index >= BW_P_COUNT)
		return false;
	view->name = table[index].name;
	view->value = bw_param_text(index);
	view->dflt = table[index].dflt;
	view->help = table[index].help;
	view->source = given[index].call ? "call" : given[index].env ? "environment" : "default";
	return true;
}

bool bw_list_next(const char **at, const char **word, size_t *n)
{
	const char *s = *at;

	if (!s)
		return false;
	s += strspn(s, ", ");
	*word = s;
	*n = strcspn(s, ",");
	*at = s + *n;
	while (*n && s[*n - 1] == ' ')
		--*n;
	return *n;
}

bool bw_list_has(const char *list, const char *word)
{
	bool none = true;
	const char *w;
	size_t n;

	for (; bw_list_next(&list, &w, &n); none = false)
		if (bw_word_is(w, n, word))
			return true;
	return none;
}
