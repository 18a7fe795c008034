/* SPDX-License-Identifier: BSD-3-Clause */
/* What is done with JSON once it is read, and the reading of whole files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json_read.h"

#define FILE_MOST (64u << 20)

struct json_value *json_read_file(const char *path, char *error, size_t error_size)
{
	struct json_value *v = NULL;
	size_t n = 0, room = 1 << 16, got = 1;
	char *text = malloc(room), *more;
	FILE *f = fopen(path, "re");

	errno = f ? 0 : errno;
	while (f && text && got && n < FILE_MOST) {
		got = fread(text + n, 1, room - n, f);
		n += got;
		if (n == room) {
			more = realloc(text, room *= 2);
			if (!more)
				free(text);
			text = more;
		}
	}
	if (!f || ferror(f))
		snprintf(error, error_size, "%s", strerror(errno ? errno : EIO));
	else if (!text || n >= FILE_MOST)
		snprintf(error, error_size, text ? "larger than 64 MiB" : "out of memory");
	else
		v = json_read(text, n, error, error_size);
	if (f)
		fclose(f);
	free(text);
	return v;
}

void json_free(struct json_value *v)
{
	while (v) {
		struct json_value *next = v->next;

		json_free(v->first); /* no deeper than DEPTH */
		free(v->string);
		free(v->key);
		free(v);
		v = next;
	}
}

const struct json_value *json_get(const struct json_value *v, const char *path)
{
	while (v) {
		size_t n = strcspn(path, ".");

		v = v->type == JSON_OBJECT ? v->first : NULL;
		while (v && (strncmp(v->key, path, n) || v->key[n]))
			v = v->next;
		if (!path[n])
			break;
		path += n + 1;
	}
	return v;
}

const char *json_get_string(const struct json_value *v, const char *path, const char *dflt)
{
	v = json_get(v, path);
	return v && v->type == JSON_STRING ? v->string : dflt;
}

double json_get_number(const struct json_value *v, const char *path, double dflt)
{
	v = json_get(v, path);
	return v && v->type == JSON_NUMBER ? v->number : dflt;
}
