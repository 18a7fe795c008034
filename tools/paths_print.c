/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "tools/paths.h"
#include "tools/text.h"

#define INDENT 28u

/* ---- for people --------------------------------------------------------------------------- */

static void more(const char *label, const char *text)
{
	char all[640];

	snprintf(all, sizeof(all), "%s: %s", label, text);
	printf("%*s", (int)INDENT, "");
	text_wrap(stdout, all, INDENT, INDENT);
}

void paths_print_row(const struct paths *p, const struct paths_row *r)
{
	char where[128], us[32];

	snprintf(where, sizeof(where), "%s%s%s", r->network, strcmp(r->network, "shm") ? ", " : "",
		 strcmp(r->network, "shm") ? r->address : "");
	if (*r->refused) {
		printf("  %-*snot to be had\n", (int)INDENT - 2, r->network);
		more("why", r->refused);
		return;
	}
	printf("  %-*s%s", (int)INDENT - 2, where, r->region.direct ? "direct" : "staged");
	if (r->measured)
		printf(": 8 bytes in %s us, 4 MiB at %.2f GB/s",
		       text_us(r->small.stats.median, us, sizeof(us)), 1 / r->large.stats.median);
	putchar('\n');
	if (r->measured)
		more("4 MiB", r->large.path);
	if (!r->measured || (r->region.direct && strcmp(r->region.rung, "dmabuf")))
		more(r->region.direct ? "why" : "why not direct", r->region.reason);
	if (*r->unmeasured)
		more("no figures", r->unmeasured);
	(void)p;
	fflush(stdout);
}

/* ---- for programs ------------------------------------------------------------------------- */

static void json_flag(struct json *j, const char *key, bool yes)
{
	json_key(j, key);
	json_bool(j, yes);
}

static void json_region(struct json *j, const struct paths_row *r)
{
	json_key(j, "region");
	if (*r->refused) {
		json_null(j);
		return;
	}
	json_object(j);
	json_flag(j, "direct", r->region.direct);
	measure_json_text(j, "rung", r->region.rung);
	measure_json_text(j, "reason", r->region.reason);
	json_object_end(j);
}

static void json_figures(struct json *j, const struct paths_row *r)
{
	json_key(j, "send_8_bytes");
	if (r->measured) {
		json_object(j);
		measure_json_us(j, "median_us", r->small.stats.median);
		measure_json_us(j, "p99_us", r->small.stats.p99);
		measure_json_us(j, "min_us", r->small.stats.min);
		measure_json_text(j, "path", r->small.path);
		json_object_end(j);
	} else {
		json_null(j);
	}
	json_key(j, "put_4_mib");
	if (r->measured) {
		json_object(j);
		measure_json_double(j, "median_gbs", 1 / r->large.stats.median);
		measure_json_double(j, "max_gbs", 1 / r->large.stats.min);
		measure_json_text(j, "path", r->large.path);
		json_object_end(j);
	} else {
		json_null(j);
	}
}

/* Texts are in objects of their own: what is a string of the row is a part of its name. */
static void json_why(struct json *j, const struct paths_row *r)
{
	json_key(j, "why");
	json_object(j);
	measure_json_text(j, "refused", r->refused);
	measure_json_text(j, "unmeasured", r->unmeasured);
	json_object_end(j);
}

void paths_json(struct json *j, void *arg)
{
	const struct paths *p = arg;

	json_object(j);
	measure_json_head(j, &p->m, NULL);
	measure_json_text(j, "peer", p->net.name ? p->net.name : p->net.local ? "local" : NULL);
	json_key(j, "results");
	json_array(j);
	for (size_t i = 0; i < p->rows; i++) {
		const struct paths_row *r = &p->row[i];

		json_object(j);
		measure_json_number(j, "device_index", (uint64_t)r->device);
		measure_json_text(j, "device", r->device_name);
		measure_json_text(j, "network", r->network);
		measure_json_text(j, "address", strcmp(r->network, "shm") ? r->address : NULL);
		json_flag(j, "usable", !*r->refused);
		json_region(j, r);
		json_figures(j, r);
		json_why(j, r);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}
