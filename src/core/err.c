/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/err.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"

#define TEXT_BYTES sizeof(struct bw_sentence)

/* A larger size field is one that was never set, and its tail must not be read. */
#define STRUCT_MAX 65536

static _Thread_local char sentence[TEXT_BYTES];

/* Cuts visibly: half a remedy is worse than one that shows that it is half. */
static void format(char *text, size_t n, const char *fmt, va_list ap)
{
	int len = vsnprintf(text, n, fmt, ap);

	if (len < 0)
		text[0] = 0;
	else if ((size_t)len >= n)
		memcpy(text + n - 4, "...", 4);
}

void bw_reason_set(struct bw_reason *why, const char *fmt, ...)
{
	char text[sizeof(why->text)]; /* the arguments may lie in @why */
	va_list ap;

	if (!why)
		return;
	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(why->text, text, strlen(text) + 1);
}

/* What callers' functions returned may have no counterpart. */
static int negative(int err)
{
	return err == INT_MIN ? INT_MIN : -err;
}

int bw_err(int err, const char *fmt, ...)
{
	char text[TEXT_BYTES]; /* the arguments may lie in the old sentence */
	va_list ap;

	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(sentence, text, strlen(text) + 1);
	bw_log(BW_LOG_DEBUG, "%s", sentence);
	return negative(err);
}

int bw_err_often(int err, const char *text)
{
	memcpy(sentence, text, strlen(text) + 1);
	return negative(err);
}

int bw_err_prefix(int ret, const char *fmt, ...)
{
	char text[TEXT_BYTES];
	size_t len, rest;
	va_list ap;

	if (ret >= 0)
		return ret; /* a call that succeeds leaves the sentence alone */
	va_start(ap, fmt);
	format(text, sizeof(text) - 2, fmt, ap);
	va_end(ap);
	len = strlen(text);
	memcpy(text + len, ": ", 3);
	len += 2;
	rest = strlen(sentence);
	if (len + rest < sizeof(text)) {
		memcpy(text + len, sentence, rest + 1);
	} else {
		memcpy(text + len, sentence, sizeof(text) - 1 - len);
		memcpy(text + sizeof(text) - 4, "...", 4);
	}
	memcpy(sentence, text, strlen(text) + 1);
	return ret;
}

void bw_err_keep(struct bw_sentence *kept)
{
	memcpy(kept->text, sentence, strlen(sentence) + 1);
}

void bw_err_put_back(const struct bw_sentence *kept)
{
	memcpy(sentence, kept->text, strlen(kept->text) + 1);
}

const char *bw_err_text(void)
{
	return sentence;
}

/* @what ends with it; see err.h. */
static const char *struct_name(const char *what)
{
	const char *name = strstr(what, "struct ");

	return name ? name : "the struct that is passed";
}

/* Checks a caller's struct and reads its size. */
static int struct_size(size_t *size, size_t known, size_t least, const void *theirs,
		       const char *what)
{
	const unsigned char *bytes = theirs;

	if (!theirs)
		return bw_err(EINVAL, "%s: the pointer is NULL: give a struct", what);
	memcpy(size, theirs, sizeof(*size));
	if (*size < least)
		return bw_err(EINVAL, "%s: its size field is %zu, less than %zu: "
			      "set it to sizeof(%s)", what, *size, least, struct_name(what));
	if (*size > STRUCT_MAX)
		return bw_err(E2BIG, "%s: its size field is %zu, which cannot be: "
			      "set it to sizeof(%s)", what, *size, struct_name(what));
	for (size_t i = known; i < *size; i++)
		if (bytes[i])
			return bw_err(E2BIG, "%s: byte %zu is not zero, and this version of the "
				      "library knows only the first %zu: zero the struct before "
				      "setting its size, or use a newer library",
				      what, i, known);
	return 0;
}

int bw_struct_in(void *dst, size_t known, size_t least, const void *src, const char *what)
{
	size_t size, both;
	int ret = struct_size(&size, known, least, src, what);

	if (ret)
		return ret;
	both = size < known ? size : known;
	memcpy(dst, src, both);
	memset((char *)dst + both, 0, known - both);
	return 0;
}

int bw_struct_out(void *dst, const void *src, size_t known, size_t least, const char *what)
{
	size_t size, both;
	int ret = struct_size(&size, known, least, dst, what);

	if (ret)
		return ret;
	both = size < known ? size : known;
	if (both > sizeof(size))
		memcpy((char *)dst + sizeof(size), (const char *)src + sizeof(size),
		       both - sizeof(size));
	return 0;
}
