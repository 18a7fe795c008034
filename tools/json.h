/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/json: writes JSON while it is made. Keys go before each member of an object; whoever calls
 * keeps begin and end in pairs.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH 16

struct json {
	FILE *out;
	unsigned depth;
	bool filled[JSON_DEPTH + 1]; /* something is in the object or array at this depth */
	bool keyed;                  /* a key waits for its value */
};

void json_init(struct json *j, FILE *out);
void json_object(struct json *j);
void json_object_end(struct json *j);
void json_array(struct json *j);
void json_array_end(struct json *j);
void json_key(struct json *j, const char *key);
void json_string(struct json *j, const char *s); /* NULL: null; bytes that are not UTF-8: U+FFFD */
void json_int(struct json *j, int64_t v);
void json_uint(struct json *j, uint64_t v);
void json_double(struct json *j, double v);      /* null where it is not finite */
void json_bool(struct json *j, bool v);
void json_null(struct json *j);
void json_raw(struct json *j, const char *json);  /* a whole value, which the caller has checked */

#endif
