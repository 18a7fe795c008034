/* SPDX-License-Identifier: BSD-3-Clause */
/* tools/options: what the verbs share in reading their command line. */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

/* Exit codes. */
#define TOOL_OK 0
#define TOOL_FAILED 1
#define TOOL_USAGE 2

int tool_info(int argc, char **argv);    /* argv[0] is the verb; each returns an exit code */
int tool_copylat(int argc, char **argv);
int tool_pplat(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_netlat(int argc, char **argv);
int tool_netbw(int argc, char **argv);
int tool_paths(int argc, char **argv);
int tool_copybw(int argc, char **argv);
int tool_apiperf(int argc, char **argv);
int tool_plot(int argc, char **argv);
int tool_sanity(int argc, char **argv);
int tool_doctor(int argc, char **argv);
int tool_tune(int argc, char **argv);

/* Say "barway VERB: ..." (@verb NULL: "barway: ...") in one line; return the exit code. */
int usage_error(const char *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int failure(const char *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * getopt_long() without its own messages. @shorts begins with ':'. Returns the option, -1 at the
 * end, or '?' after a usage_error(). An argument that is no option is one, too.
 */
int next_option(int argc, char **argv, const char *shorts, const struct option *longs);

/* The same for a verb that takes arguments: they are at argv[optind] at the end. */
int next_option_only(int argc, char **argv, const char *shorts, const struct option *longs);

/* Bytes with an optional K, M or G (1024s). Nothing else may be there. */
bool parse_size(const char *text, uint64_t *bytes);

/* A decimal number from @least to @most. */
bool parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *n);

#endif
