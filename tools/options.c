/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One line whatever the user or the library put into it. */
static void complain(const char *verb, const char *fmt, va_list ap)
{
	char text[2048];

	vsnprintf(text, sizeof(text), fmt, ap);
	for (char *p = text; *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	}
	fprintf(stderr, "barway%s%s: %s\n", verb ? " " : "", verb ? verb : "", text);
}

int usage_error(const char *verb, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(verb, fmt, ap);
	va_end(ap);
	return TOOL_USAGE;
}

int failure(const char *verb, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(verb, fmt, ap);
	va_end(ap);
	return TOOL_FAILED;
}

static const char *long_name(const struct option *longs, int value)
{
	for (; longs->name; longs++) {
		if (longs->val == value)
			return longs->name;
	}
	return NULL;
}

/* What was wrong with the option that getopt_long() refused. */
static void bad_option(char **argv, const struct option *longs, int kind)
{
	const char *text = argv[optind - 1], *name = optopt ? long_name(longs, optopt) : NULL;
	const char *verb = argv[0];
	bool is_long = !strncmp(text, "--", 2);

	if (kind == ':')
		usage_error(verb, "%s needs a value; see 'barway %s --help'", text, verb);
	else if (is_long && name)
		usage_error(verb, "--%s takes no value; see 'barway %s --help'", name, verb);
	else if (is_long || !optopt)
		usage_error(verb, "unknown option '%s'; see 'barway %s --help'", text, verb);
	else
		usage_error(verb, "unknown option '-%c'; see 'barway %s --help'", optopt, verb);
}

int next_option_only(int argc, char **argv, const char *shorts, const struct option *longs)
{
	int c;

	opterr = 0;
	c = getopt_long(argc, argv, shorts, longs, NULL);
	if (c == '?' || c == ':') {
		bad_option(argv, longs, c);
		return '?';
	}
	return c;
}

int next_option(int argc, char **argv, const char *shorts, const struct option *longs)
{
	int c = next_option_only(argc, argv, shorts, longs);

	if (c == -1 && optind < argc) {
		usage_error(argv[0], "unexpected argument '%s'; see 'barway %s --help'",
			    argv[optind], argv[0]);
		return '?';
	}
	return c;
}

/* Of which number this is a digit; 16: of none. */
static unsigned digit(char c)
{
	return c >= '0' && c <= '9' ? (unsigned)(c - '0') :
	       (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (unsigned)((c | 0x20) - 'a') + 10 : 16;
}

/* Decimal, or 0x and hexadecimal. */
static bool digits(const char **text, uint64_t *n)
{
	const char *p = *text;
	unsigned base = p[0] == '0' && (p[1] | 0x20) == 'x' ? 16 : 10;

	p += base == 16 ? 2 : 0;
	if (digit(*p) >= base)
		return false;
	for (*n = 0; digit(*p) < base; p++) {
		if (__builtin_mul_overflow(*n, (uint64_t)base, n) ||
		    __builtin_add_overflow(*n, (uint64_t)digit(*p), n))
			return false;
	}
	*text = p;
	return true;
}

bool parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMG";
	const char *unit;
	uint64_t n;

	if (!digits(&text, &n))
		return false;
	if (*text) {
		unit = strchr(units, *text & ~0x20); /* upper case */
		if (!unit || !*unit || text[1] ||
		    __builtin_mul_overflow(n, (uint64_t)1 << (10 * (unit - units + 1)), &n))
			return false;
	}
	*bytes = n;
	return true;
}

bool parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *n)
{
	uint64_t v;

	if (!digits(&text, &v) || *text || v < least || v > most)
		return false;
	*n = v;
	return true;
}
