/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

void json_init(struct json *j, FILE *out)
{
	*j = (struct json){ .out = out };
}

static void line(struct json *j)
{
	fputc('\n', j->out);
	for (unsigned i = 0; i < j->depth; i++)
		fputs("  ", j->out);
}

/* What goes before a key or an element: the comma, and a line of its own. */
static void next(struct json *j)
{
	if (j->keyed) {
		j->keyed = false;
		return;
	}
	if (j->filled[j->depth])
		fputc(',', j->out);
	j->filled[j->depth] = true;
	if (j->depth)
		line(j);
}

static void begin(struct json *j, char c)
{
	next(j);
	fputc(c, j->out);
	if (j->depth == JSON_DEPTH)
		abort(); /* a mistake of the program, not of its input */
	j->filled[++j->depth] = false;
}

static void end(struct json *j, char c)
{
	bool filled = j->filled[j->depth--];

	if (filled)
		line(j);
	fputc(c, j->out);
	if (!j->depth)
		fputc('\n', j->out);
}

void json_object(struct json *j)
{
	begin(j, '{');
}

void json_object_end(struct json *j)
{
	end(j, '}');
}

void json_array(struct json *j)
{
	begin(j, '[');
}

void json_array_end(struct json *j)
{
	end(j, ']');
}

/* Length of the UTF-8 sequence at @s, 0: it is none (RFC 3629, section 4). */
static unsigned utf8(const unsigned char *s)
{
	unsigned n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3
		   : s[0] < 0xf5 ? 4 : 0;

	for (unsigned i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0; /* overlong, a surrogate, or past U+10FFFF */
	return n;
}

static void escaped(FILE *out, unsigned char c)
{
	switch (c) {
	case '"':
		fputs("\\\"", out);
		break;
	case '\\':
		fputs("\\\\", out);
		break;
	case '\n':
		fputs("\\n", out);
		break;
	case '\t':
		fputs("\\t", out);
		break;
	default:
		if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
}

static void quoted(struct json *j, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', j->out);
	while (*s) {
		unsigned n = utf8(s);

		if (n == 0) {
			fputs("\\ufffd", j->out);
			s++;
		} else if (n == 1) {
			escaped(j->out, *s++);
		} else {
			fwrite(s, 1, n, j->out);
			s += n;
		}
	}
	fputc('"', j->out);
}

void json_key(struct json *j, const char *key)
{
	next(j);
	quoted(j, key);
	fputs(": ", j->out);
	j->keyed = true;
}

void json_string(struct json *j, const char *s)
{
	if (!s) {
		json_null(j);
		return;
	}
	next(j);
	quoted(j, s);
}

void json_int(struct json *j, int64_t v)
{
	next(j);
	fprintf(j->out, "%" PRId64, v);
}

void json_uint(struct json *j, uint64_t v)
{
	next(j);
	fprintf(j->out, "%" PRIu64, v);
}

void json_double(struct json *j, double v)
{
	if (!isfinite(v)) {
		json_null(j);
		return;
	}
	next(j);
	fprintf(j->out, "%.10g", v); /* the point is a point: the tools never call setlocale() */
}

void json_bool(struct json *j, bool v)
{
	next(j);
	fputs(v ? "true" : "false", j->out);
}

void json_null(struct json *j)
{
	next(j);
	fputs("null", j->out);
}

void json_raw(struct json *j, const char *json)
{
	next(j);
	fputs(json, j->out);
}
