/* SPDX-License-Identifier: BSD-3-Clause */
/* What the doctor says, to people and to programs. */
#include <stdio.h>
#include <string.h>

#include "barway.h"
#include "tools/doctor.h"
#include "tools/json_read.h"
#include "tools/text.h"

static const char *version_text(char *buf, size_t n)
{
	unsigned v = barway_version();

	snprintf(buf, n, "%u.%u.%u", v >> 16, v >> 8 & 255, v & 255);
	return buf;
}

static const char *caching_name(uint32_t caching)
{
	return caching == BARWAY_WRITE_COMBINED ? "write-combined"
	       : caching == BARWAY_CACHED ? "cached"
	       : caching == BARWAY_UNCACHED ? "uncached" : "unknown";
}

static const char *result_name(const struct doctor *d)
{
	return has_kind(d, PROBLEM) ? "wrong" : has_found(d, D_NO_GPU) ? "no-gpu" : "well";
}

/* ---- for people ---------------------------------------------------------------------------- */

static void print_list(void)
{
	for (int i = 0; i < DIAGNOSES; i++) {
		printf("%s (%s)\n", diagnoses[i].id, kind_name(diagnoses[i].kind));
		text_field(stdout, "means", diagnoses[i].meaning);
		text_field(stdout, "do", diagnoses[i].action ? diagnoses[i].action :
			   "what the output of barway doctor says");
	}
}

static void print_chain(const struct doctor *d)
{
	static const char *const words[] = {
		[GOOD] = "ok", [UNKNOWN] = "unknown",
		[ABSENT] = "none", [WRONG] = "WRONG",
	};
	char text[600];

	puts("the way to a GPU, link by link");
	for (int i = 0; i < CHECKS; i++) {
		if (d->verdict[i] == NOT_REACHED) {
			text_field(stdout, check_titles[i], "needs what is before it");
			return;
		}
		snprintf(text, sizeof(text), "%s%s%s", words[d->verdict[i]],
			 *d->saw[i] ? ": " : "", d->saw[i]);
		text_field(stdout, check_titles[i], text);
	}
}

static void print_findings(const struct doctor *d)
{
	for (unsigned i = 0; i < d->nfindings; i++) {
		const struct finding *f = &d->finding[i];

		printf("\n%s: %s\n", kind_name(diagnoses[f->id].kind), diagnoses[f->id].id);
		text_field(stdout, "seen", f->evidence);
		text_field(stdout, "means", diagnoses[f->id].meaning);
		text_field(stdout, "do", f->action);
	}
}

static void print_tests(const struct sanity *s)
{
	char text[96];

	if (s->end == SANITY_NOT_RUN)
		return;
	snprintf(text, sizeof(text), "%u passed, %u failed, %u waived", s->passed, s->failed,
		 s->waived);
	text_field(stdout, "quick tests", text);
}

static void print_paths(const struct probe *p)
{
	char text[512];

	for (unsigned i = 0; p && i < p->ndevices; i++) {
		const struct probe_device *dev = &p->device[i];

		if (dev->reached != DEVICE_GOOD)
			continue;
		printf("\ndata of device %d (%s) travels\n", dev->index, dev->name);
		snprintf(text, sizeof(text), "%s%s%s", dev->path_provider, *dev->route ?
			 ", memory found by " : "", dev->route);
		text_field(stdout, "provider", text);
		text_field(stdout, "mapping", caching_name(dev->caching));
		snprintf(text, sizeof(text), "store %s, load %s", dev->store, dev->load);
		text_field(stdout, "CPU kernels", text);
	}
}

void doctor_print(const struct doctor *d)
{
	const struct finding *next = next_step(d);

	if (d->soft_probe && (!d->info.out || strncmp(d->info.out, TEXT_SOFT, strlen(TEXT_SOFT))))
		puts(TEXT_SOFT "\n");
	if (d->info.out && *d->info.out)
		printf("%s\n", d->info.out);
	print_chain(d);
	print_findings(d);
	print_paths(d->probe);
	print_paths(d->soft_probe);
	if (d->soft_probe)
		print_tests(&d->sanity);
	if (has_kind(d, PROBLEM))
		fputs("\nresult: something is wrong\n", stdout);
	else if (has_found(d, D_NO_GPU))
		fputs("\nresult: no GPU, nothing is wrong; the soft GPU works\n", stdout);
	else
		fputs("\nresult: all is well\n", stdout);
	fputs("next: ", stdout);
	text_wrap(stdout, next ? next->action : "nothing to do", 6, 6);
}

/* ---- for programs -------------------------------------------------------------------------- */

static void json_text(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value && *value ? value : NULL);
}

static void json_list(void)
{
	struct json j;

	json_init(&j, stdout);
	json_object(&j);
	json_text(&j, "schema", "barway-doctor-list-1");
	json_key(&j, "diagnoses");
	json_array(&j);
	for (int i = 0; i < DIAGNOSES; i++) {
		json_object(&j);
		json_text(&j, "id", diagnoses[i].id);
		json_text(&j, "kind", kind_name(diagnoses[i].kind));
		json_text(&j, "check", diagnoses[i].check < CHECKS ?
			  check_names[diagnoses[i].check] : NULL);
		json_text(&j, "meaning", diagnoses[i].meaning);
		json_text(&j, "action", diagnoses[i].action);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
}

void doctor_list(bool json)
{
	if (json)
		json_list();
	else
		print_list();
}

static void json_chain(struct json *j, const struct doctor *d)
{
	json_key(j, "chain");
	json_array(j);
	for (int i = 0; i < CHECKS; i++) {
		json_object(j);
		json_text(j, "check", check_names[i]);
		json_text(j, "verdict", verdict_name(d->verdict[i]));
		json_text(j, "saw", d->saw[i]);
		json_object_end(j);
	}
	json_array_end(j);
}

static void json_findings(struct json *j, const struct doctor *d)
{
	json_key(j, "findings");
	json_array(j);
	for (unsigned i = 0; i < d->nfindings; i++) {
		const struct finding *f = &d->finding[i];

		json_object(j);
		json_text(j, "id", diagnoses[f->id].id);
		json_text(j, "kind", kind_name(diagnoses[f->id].kind));
		json_text(j, "check", f->check < CHECKS ? check_names[f->check] : NULL);
		json_text(j, "evidence", f->evidence);
		json_text(j, "meaning", diagnoses[f->id].meaning);
		json_text(j, "action", f->action);
		json_object_end(j);
	}
	json_array_end(j);
}

static void json_paths(struct json *j, const struct doctor *d)
{
	const struct probe *p = d->soft_probe ? d->soft_probe : d->probe;

	json_key(j, "paths");
	json_array(j);
	for (unsigned i = 0; p && i < p->ndevices; i++) {
		const struct probe_device *dev = &p->device[i];

		if (dev->reached != DEVICE_GOOD)
			continue;
		json_object(j);
		json_key(j, "device");
		json_int(j, dev->index);
		json_key(j, "soft");
		json_bool(j, p == d->soft_probe);
		json_text(j, "name", dev->name);
		json_text(j, "pci", dev->pci);
		json_text(j, "provider", dev->path_provider);
		json_text(j, "route", dev->route);
		json_text(j, "caching", caching_name(dev->caching));
		json_text(j, "store_kernel", dev->store);
		json_text(j, "load_kernel", dev->load);
		json_object_end(j);
	}
	json_array_end(j);
}

static void json_sanity(struct json *j, const struct sanity *s)
{
	json_key(j, "sanity");
	json_object(j);
	json_key(j, "ran");
	json_bool(j, s->end == SANITY_RAN);
	json_text(j, "why_not", s->why_not);
	json_key(j, "passed");
	json_uint(j, s->passed);
	json_key(j, "failed");
	json_uint(j, s->failed);
	json_key(j, "waived");
	json_uint(j, s->waived);
	json_text(j, "first_failed", s->first_failed);
	json_text(j, "reason", s->reason);
	json_object_end(j);
}

/* What barway info --json said, if it is JSON. */
static void json_info(struct json *j, const struct run *r)
{
	char error[160];
	size_t n = r->out ? strlen(r->out) : 0;
	struct json_value *v = n ? json_read(r->out, n, error, sizeof(error)) : NULL;

	while (n && r->out[n - 1] == '\n')
		r->out[--n] = 0;
	json_key(j, "info");
	if (v)
		json_raw(j, r->out);
	else
		json_null(j);
	json_free(v);
}

void doctor_json(const struct doctor *d)
{
	const struct finding *next = next_step(d);
	char version[48];
	struct json j;

	json_init(&j, stdout);
	json_object(&j);
	json_text(&j, "schema", "barway-doctor-1");
	json_text(&j, "version", version_text(version, sizeof(version)));
	json_key(&j, "soft");
	json_bool(&j, d->soft_probe);
	json_text(&j, "note", d->soft_probe ? TEXT_SOFT : NULL);
	json_text(&j, "result", result_name(d));
	json_key(&j, "next");
	if (next) {
		json_object(&j);
		json_text(&j, "id", diagnoses[next->id].id);
		json_text(&j, "action", next->action);
		json_object_end(&j);
	} else {
		json_null(&j);
	}
	json_chain(&j, d);
	json_findings(&j, d);
	json_paths(&j, d);
	json_sanity(&j, &d->sanity);
	json_info(&j, &d->info);
	json_object_end(&j);
}
