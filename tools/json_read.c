/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 32

struct reader {
	const char *at, *end, *begin;
	unsigned depth;
	const char *wrong; /* what, at @at; NULL: nothing yet */
};

static bool wrong(struct reader *r, const char *what)
{
	if (!r->wrong)
		r->wrong = what;
	return false;
}

static void space(struct reader *r)
{
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' ||
				  *r->at == '\r'))
		r->at++;
}

static char peek(const struct reader *r)
{
	return r->at < r->end ? *r->at : 0; /* a 0 in the text is no JSON either */
}

static bool take(struct reader *r, char c)
{
	if (peek(r) != c)
		return false;
	r->at++;
	return true;
}

static bool digit(const struct reader *r)
{
	return peek(r) >= '0' && peek(r) <= '9';
}

static bool digits(struct reader *r)
{
	if (!digit(r))
		return wrong(r, "a number without a digit");
	while (digit(r))
		r->at++;
	return true;
}

static bool number(struct reader *r, struct json_value *v)
{
	const char *from = r->at;
	char text[64];

	take(r, '-');
	if (!take(r, '0') && !digits(r))
		return false;
	if (take(r, '.') && !digits(r))
		return false;
	if (take(r, 'e') || take(r, 'E')) {
		if (!take(r, '-'))
			take(r, '+');
		if (!digits(r))
			return false;
	}
	if ((size_t)(r->at - from) >= sizeof(text))
		return wrong(r, "a number that is too long");
	memcpy(text, from, (size_t)(r->at - from));
	text[r->at - from] = 0;
	v->type = JSON_NUMBER;
	v->number = strtod(text, NULL); /* the tools never call setlocale() */
	return true;
}

static bool hex4(struct reader *r, unsigned *code)
{
	*code = 0;
	for (int i = 0; i < 4; i++) {
		char c = peek(r);
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
			: c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

		if (d < 0)
			return wrong(r, "\\u without four hexadecimal digits");
		*code = *code * 16 + (unsigned)d;
		r->at++;
	}
	return true;
}

static char *put_utf8(char *to, unsigned c)
{
	if (c < 0x80) {
		*to++ = (char)c;
	} else if (c < 0x800) {
		*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		*to++ = (char)(0xe0 | c >> 12);
		*to++ = (char)(0x80 | (c >> 6 & 63));
		*to++ = (char)(0x80 | (c & 63));
	} else {
		*to++ = (char)(0xf0 | c >> 18);
		*to++ = (char)(0x80 | (c >> 12 & 63));
		*to++ = (char)(0x80 | (c >> 6 & 63));
		*to++ = (char)(0x80 | (c & 63));
	}
	return to;
}

/* After "\u": at most 3 bytes for 6 characters, 4 for the 12 of a pair. */
static char *unicode(struct reader *r, char *to)
{
	unsigned c, low;

	if (!hex4(r, &c))
		return NULL;
	if (c >= 0xd800 && c < 0xdc00) {
		if (!take(r, '\\') || !take(r, 'u') || !hex4(r, &low) || low < 0xdc00 ||
		    low > 0xdfff) {
			wrong(r, "half of a surrogate pair");
			return NULL;
		}
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	} else if (c >= 0xdc00 && c < 0xe000) {
		wrong(r, "half of a surrogate pair");
		return NULL;
	}
	if (!c) {
		wrong(r, "\\u0000 in a string");
		return NULL;
	}
	return put_utf8(to, c);
}

static char *escape(struct reader *r, char *to)
{
	static const char from[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	const char *known;
	char c = peek(r);

	known = c ? strchr(from, c) : NULL;
	if (!known && c != 'u') {
		wrong(r, "an unknown escape in a string");
		return NULL;
	}
	r->at++;
	if (!known)
		return unicode(r, to);
	*to++ = means[known - from];
	return to;
}

/* Never longer than its source. The opening quote has been taken. */
static char *quoted(struct reader *r)
{
	const char *end = r->at;
	char *text, *to;

	while (end < r->end && *end != '"')
		end += *end == '\\' && end + 1 < r->end ? 2 : 1;
	text = to = malloc((size_t)(end - r->at) + 1);
	if (!text) {
		wrong(r, "out of memory");
		return NULL;
	}
	while (to && !take(r, '"')) {
		if (r->at == r->end || (unsigned char)*r->at < 0x20) {
			wrong(r, r->at == r->end ? "a string without its end"
						 : "a control character in a string");
			to = NULL;
		} else if (take(r, '\\')) {
			to = escape(r, to);
		} else {
			*to++ = *r->at++;
		}
	}
	if (to) {
		*to = 0;
		return text;
	}
	free(text);
	return NULL;
}

static struct json_value *value(struct reader *r);

/* "key": */
static char *member_key(struct reader *r)
{
	char *key;

	space(r);
	if (!take(r, '"')) {
		wrong(r, "a member without its name");
		return NULL;
	}
	key = quoted(r);
	space(r);
	if (key && !take(r, ':')) {
		wrong(r, "a name without ':' after it");
		free(key);
		key = NULL;
	}
	return key;
}

/* The elements up to @close, whose bracket has been opened. */
static bool elements(struct reader *r, struct json_value *v, char close)
{
	struct json_value **last = &v->first;

	if (++r->depth > DEPTH)
		return wrong(r, "too many levels");
	space(r);
	if (!take(r, close)) {
		do {
			char *key = v->type == JSON_OBJECT ? member_key(r) : NULL;

			*last = r->wrong ? NULL : value(r);
			if (!*last) {
				free(key);
				return false;
			}
			(*last)->key = key;
			last = &(*last)->next;
			space(r);
		} while (take(r, ','));
		if (!take(r, close))
			return wrong(r, "neither ',' nor the closing bracket");
	}
	r->depth--;
	return true;
}

static bool word(struct reader *r, const char *text)
{
	size_t n = strlen(text);

	if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n))
		return wrong(r, "no value");
	r->at += n;
	return true;
}

static bool fill(struct reader *r, struct json_value *v)
{
	switch (peek(r)) {
	case '{':
	case '[':
		v->type = peek(r) == '{' ? JSON_OBJECT : JSON_ARRAY;
		r->at++;
		return elements(r, v, v->type == JSON_OBJECT ? '}' : ']');
	case '"':
		r->at++;
		v->type = JSON_STRING;
		v->string = quoted(r);
		return v->string;
	case 't':
	case 'f':
		v->type = JSON_BOOL;
		v->boolean = peek(r) == 't';
		return word(r, v->boolean ? "true" : "false");
	case 'n':
		return word(r, "null");
	default:
		return digit(r) || peek(r) == '-' ? number(r, v) : wrong(r, "no value");
	}
}

static struct json_value *value(struct reader *r)
{
	struct json_value *v = calloc(1, sizeof(*v));

	space(r);
	if (v && fill(r, v))
		return v;
	if (!v)
		wrong(r, "out of memory");
	json_free(v);
	return NULL;
}

struct json_value *json_read(const char *text, size_t n, char *error, size_t error_size)
{
	struct reader r = { .at = text, .begin = text, .end = text + n };
	struct json_value *v = value(&r);
	unsigned line = 1;

	space(&r);
	if (v && r.at != r.end) {
		wrong(&r, "something after the end");
		json_free(v);
		v = NULL;
	}
	if (v)
		return v;
	for (const char *p = text; p < r.at; p++)
		line += *p == '\n';
	snprintf(error, error_size, "line %u: not JSON: %s", line, r.wrong);
	return NULL;
}
