/* SPDX-License-Identifier: BSD-3-Clause */
/* core/err: the sentence of this thread's last failure. */
#ifndef BW_CORE_ERR_H
#define BW_CORE_ERR_H

#include <stddef.h>

#define BW_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* A reason: why something refuses or was chosen, as a sentence. */
struct bw_reason {
	char text[512];
};

void bw_reason_set(struct bw_reason *why, const char *fmt, ...) BW_PRINTF(2, 3);

/*
 * Sets the thread's sentence, logs it at debug level, and returns -@err, so that a failure is one
 * line: return bw_err(EINVAL, "map 0x%llx: 0 bytes: give the size in bytes", addr);
 * The form is "operation object: cause: remedy". @err is a positive errno value.
 */
int bw_err(int err, const char *fmt, ...) BW_PRINTF(2, 3);

/* The same for what happens all the time where programs try and do not wait: nothing is formatted
 * or logged. @text is the whole sentence, a constant. */
int bw_err_often(int err, const char *text);

/* Puts "prefix: " in front of the thread's sentence: outer layers know the operation. Returns
 * @ret, and does nothing where that is not negative. */
int bw_err_prefix(int ret, const char *fmt, ...) BW_PRINTF(2, 3);

const char *bw_err_text(void);

/*
 * A call that succeeds leaves the sentence alone, also where something inside it failed on the way:
 * keep before, put back on success.
 */
struct bw_sentence {
	char text[1024];
};
void bw_err_keep(struct bw_sentence *kept);
void bw_err_put_back(const struct bw_sentence *kept);

/*
 * The growing-struct rule. @src is a caller's struct that begins with its own size. Copies what
 * both sides know into @dst (of @known bytes) and zeroes the rest. -EINVAL: smaller than @least;
 * -E2BIG: has a non-zero byte that we do not know. @what names it in the message, and ends with
 * "struct NAME", which the remedy gives.
 */
int bw_struct_in(void *dst, size_t known, size_t least, const void *src, const char *what);
/* The other way: @dst is the caller's, keeps its size field; unknown tail is left zero. */
int bw_struct_out(void *dst, const void *src, size_t known, size_t least, const char *what);

#endif
