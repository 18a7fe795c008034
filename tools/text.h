/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/text: what people read: plain ASCII, lines of at most TEXT_WIDTH columns. */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_WIDTH 80

/* The first line of whatever was made on the soft GPU. */
#define TEXT_SOFT "Soft GPU: there is no GPU here. Figures taken on it mean nothing about one."

/* "16 MiB", "139.8 GiB"; returns @buf */
const char *text_bytes(uint64_t bytes, char *buf, size_t n);

/* Microseconds in at most 8 columns: "0.139", "23545"; returns @buf */
const char *text_us(double ns, char *buf, size_t n);

/*
 * Prints @text word by word and ends the line. @column is where the cursor is; further lines begin
 * at @indent. What is not plain ASCII becomes '?'.
 */
void text_wrap(FILE *out, const char *text, unsigned column, unsigned indent);

/* "  label           value": the value is wrapped below itself. */
void text_field(FILE *out, const char *label, const char *value);

/* The processor's name; the architecture where the system does not say. Returns @buf. */
const char *text_cpu(char *buf, size_t n);

#endif
