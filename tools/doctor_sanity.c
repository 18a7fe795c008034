/* SPDX-License-Identifier: BSD-3-Clause */
/* barway sanity --quick, run by this program and read. */
#include <stdio.h>
#include <string.h>

#include "tools/doctor.h"
#include "tools/json_read.h"

/* Numbers of cases; -1: it is none. */
static int count(const struct json_value *top, const char *name)
{
	double n = json_get_number(top, name, -1);

	return n >= 0 && n < 1e6 && (double)(int)n == n ? (int)n : -1;
}

/* Believes it only where the cases add up to the numbers. */
static bool read_result(struct sanity *s, const struct json_value *top)
{
	const struct json_value *cases = json_get(top, "cases");
	int passed = count(top, "passed"), failed = count(top, "failed");
	int waived = count(top, "waived");
	unsigned seen[3] = { 0 };

	if (!cases || cases->type != JSON_ARRAY || passed < 0 || failed < 0 || waived < 0)
		return false;
	for (const struct json_value *c = cases->first; c; c = c->next) {
		const char *verdict = json_get_string(c, "verdict", "");
		int which = !strcmp(verdict, "passed") ? 0 : !strcmp(verdict, "failed") ? 1 :
			    !strcmp(verdict, "waived") ? 2 : -1;

		if (which < 0)
			return false;
		if (!seen[which]++ && which == 1) {
			snprintf(s->first_failed, sizeof(s->first_failed), "%s",
				 json_get_string(c, "name", "?"));
			snprintf(s->reason, sizeof(s->reason), "%s",
				 json_get_string(c, "reason", "no reason given"));
		}
	}
	s->passed = (unsigned)passed;
	s->failed = (unsigned)failed;
	s->waived = (unsigned)waived;
	return seen[0] == s->passed && seen[1] == s->failed && seen[2] == s->waived &&
	       seen[0] + seen[1] + seen[2];
}

static void judge(struct sanity *s, const struct run *r, unsigned seconds)
{
	char error[160] = "";
	struct json_value *top;
	size_t n = strcspn(r->err ? r->err : "", "\n");

	if (r->end == RUN_STUCK) {
		snprintf(s->why_not, sizeof(s->why_not), "it did not end within %u s", seconds);
	} else if (r->end == RUN_CRASHED) {
		snprintf(s->why_not, sizeof(s->why_not), "it ended with: %s", strsignal(r->code));
	} else if (r->end == RUN_NOT_STARTED) {
		snprintf(s->why_not, sizeof(s->why_not), "it could not be started: %s",
			 strerror(r->code));
	} else if (r->code > 1) {
		snprintf(s->why_not, sizeof(s->why_not), "its exit status is %d: %.*s", r->code,
			 n < 180 ? (int)n : 180, r->err);
	} else if (!r->out || !r->err) {
		snprintf(s->why_not, sizeof(s->why_not), "no memory for its output");
	} else {
		top = json_read(r->out, strlen(r->out), error, sizeof(error));
		if (top && read_result(s, top) && (r->code == 1) == (s->failed != 0))
			s->end = SANITY_RAN;
		else
			snprintf(s->why_not, sizeof(s->why_not), "its answer does not make sense: "
				 "%s", *error ? error : n ? r->err : "the numbers do not add up");
		json_free(top);
	}
}

void doctor_sanity(struct sanity *s, bool soft, int device, unsigned seconds)
{
	char program[] = "barway", verb[] = "sanity", quick[] = "--quick", json[] = "--json";
	char d[] = "-d", number[16];
	char *argv[] = { program, verb, quick, json, d, number, NULL };
	struct run r;

	snprintf(number, sizeof(number), "%d", device);
	*s = (struct sanity){ .end = SANITY_NOT_RUN };
	run_barway(&r, argv, "BARWAY_DEVICES", soft ? "soft" : "cuda", seconds);
	judge(s, &r, seconds);
	run_free(&r);
}
