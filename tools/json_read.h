/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/json_read: reads JSON (RFC 8259) that comes from files, so from anybody. Strict: what is
 * not JSON to the letter is refused, with the line.
 */
#ifndef TOOLS_JSON_READ_H
#define TOOLS_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>

enum json_type {
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
};

struct json_value {
	enum json_type type;
	bool boolean;
	double number;
	char *string;             /* UTF-8; text with \u0000 in it is refused */
	char *key;                /* of a member of an object; NULL in an array */
	struct json_value *first; /* elements and members, in their order */
	struct json_value *next;
};

/* Returns NULL after a failure: @error says what and where. The text needs no end mark. */
struct json_value *json_read(const char *text, size_t n, char *error, size_t error_size);

/* A whole file of at most 64 MiB. */
struct json_value *json_read_file(const char *path, char *error, size_t error_size);

void json_free(struct json_value *v);

/* The member "a" of an object, or "a.b" of the object in it; NULL where it is not there. */
const struct json_value *json_get(const struct json_value *v, const char *path);

/* The member where it has that type, else @dflt. */
const char *json_get_string(const struct json_value *v, const char *path, const char *dflt);
double json_get_number(const struct json_value *v, const char *path, double dflt);

#endif
