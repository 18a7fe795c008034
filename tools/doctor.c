/* SPDX-License-Identifier: BSD-3-Clause */
/* barway doctor: what is wrong, and the one thing to do next. */
#include "tools/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"

#define SECONDS 60

static const char help[] =
	"usage: barway doctor [-d DEV] [-t SECONDS] [--json]\n"
	"       barway doctor --list [--json]\n"
	"\n"
	"Runs 'barway info' and 'barway sanity --quick', follows the way to the GPU link\n"
	"by link (GPU on the bus, kernel driver, device nodes, permission, libcuda,\n"
	"cuInit, provider, BAR1 aperture, mapping, sanity), and says what is wrong and\n"
	"the one thing to do next: that for the first link which is broken. When all is\n"
	"well it says which way data will travel.\n"
	"\n"
	"  -d, --device DEV      this device only: index, PCI address or UUID\n"
	"  -t, --time SECONDS    time limit of each part, 1 to 3600; default 60\n"
	"      --list            all diagnoses, with what they mean and what to do\n"
	"      --json            one JSON object, schema barway-doctor-1\n"
	"  -h, --help            this text\n"
	"\n"
	"exit status: 0 all is well, or there is no GPU; 1 something is wrong; 2 usage\n";

static const struct option longs[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "time", required_argument, NULL, 't' },
	{ "list", no_argument, NULL, 'L' },
	{ "json", no_argument, NULL, 'J' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* ---- evidence and findings ----------------------------------------------------------------- */

void saw(struct doctor *d, enum check check, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(d->saw[check], sizeof(d->saw[check]), fmt, ap);
	va_end(ap);
}

enum verdict found(struct doctor *d, enum diagnosis_id id, const char *action, const char *fmt, ...)
{
	struct finding *f = &d->finding[d->nfindings];
	bool problem = diagnoses[id].kind == PROBLEM;
	va_list ap;

	if (d->nfindings == FINDINGS)
		return WRONG;
	d->nfindings++;
	f->id = id;
	f->check = d->now;
	va_start(ap, fmt);
	vsnprintf(f->evidence, sizeof(f->evidence), fmt, ap);
	va_end(ap);
	snprintf(f->action, sizeof(f->action), "%s", action ? action : diagnoses[id].action);
	if (problem && d->now < CHECKS)
		memcpy(d->saw[d->now], f->evidence, sizeof(f->evidence));
	return problem ? WRONG : GOOD;
}

bool has_found(const struct doctor *d, enum diagnosis_id id)
{
	for (unsigned i = 0; i < d->nfindings; i++)
		if (d->finding[i].id == id)
			return true;
	return false;
}

static const struct finding *first_of(const struct doctor *d, enum kind kind)
{
	for (unsigned i = 0; i < d->nfindings; i++)
		if (diagnoses[d->finding[i].id].kind == kind)
			return &d->finding[i];
	return NULL;
}

bool has_kind(const struct doctor *d, enum kind kind)
{
	return first_of(d, kind);
}

/* Findings are in the order of the chain, so the first problem is the first cause. */
const struct finding *next_step(const struct doctor *d)
{
	const struct finding *f = first_of(d, PROBLEM);

	if (!f && has_found(d, D_NO_GPU))
		f = first_of(d, NOTE);
	return f ? f : first_of(d, ADVICE);
}

bool find_version(const char *text, char *version, size_t n)
{
	while (text && *(text += strcspn(text, "0123456789"))) {
		size_t all = strspn(text, "0123456789."), len = all;

		while (text[len - 1] == '.')
			len--;
		if (memchr(text, '.', len) && len < n) {
			memcpy(version, text, len);
			version[len] = 0;
			return true;
		}
		text += all;
	}
	return false;
}

/* ---- the verb ------------------------------------------------------------------------------ */

static void follow_chain(struct doctor *d)
{
	static enum verdict (*const checks[CHECKS])(struct doctor *) = {
		[CHECK_PCI] = check_pci, [CHECK_DRIVER] = check_driver, [CHECK_NODES] = check_nodes,
		[CHECK_PERMISSION] = check_permission, [CHECK_LIBCUDA] = check_libcuda,
		[CHECK_CUINIT] = check_cuinit, [CHECK_PROVIDER] = check_provider,
		[CHECK_BAR1] = check_bar1, [CHECK_MAPPING] = check_mapping,
		[CHECK_SANITY] = check_sanity,
	};

	for (int i = 0; i < CHECKS; i++) {
		d->now = (enum check)i;
		d->verdict[i] = checks[i](d);
		if (d->verdict[i] == WRONG || d->verdict[i] == ABSENT)
			break;
	}
	d->now = CHECKS;
}

/* Of the one device, if that has been found: else all may help to see why not. */
static void run_info(struct doctor *d)
{
	const struct probe *p = d->soft_probe ? d->soft_probe : d->probe;
	char program[] = "barway", verb[] = "info", json[] = "--json", device[300];
	char *argv[] = { program, verb, NULL, NULL, NULL };
	int n = 2;

	snprintf(device, sizeof(device), "--device=%s", d->device ? d->device : "");
	if (d->json)
		argv[n++] = json;
	if (d->device && p && p->ndevices)
		argv[n++] = device;
	run_barway(&d->info, argv, NULL, NULL, d->seconds);
}

/* Why -d names no device; NULL: it does, or there are none. */
static const char *no_such_device(const struct doctor *d, const struct probe *p)
{
	return d->device && p && p->count > 0 && !p->ndevices && *p->message ? p->message : NULL;
}

static int examine(struct doctor *d)
{
	const char *why;

	follow_chain(d);
	if (d->verdict[CHECK_PCI] == ABSENT)
		check_soft(d);
	why = no_such_device(d, d->soft_probe ? d->soft_probe : d->probe);
	if (why)
		return usage_error("doctor", "-d: %s", why);
	look_beside(d);
	/* what hangs or crashes does so once */
	if (!has_found(d, D_STUCK) && !has_found(d, D_CRASHED))
		run_info(d);
	if (d->json)
		doctor_json(d);
	else
		doctor_print(d);
	return has_kind(d, PROBLEM) ? TOOL_FAILED : TOOL_OK;
}

static int parse(int argc, char **argv, struct doctor *d, bool *done)
{
	uint64_t seconds;
	bool list = false;
	int c;

	while ((c = next_option(argc, argv, ":d:t:h", longs)) != -1) {
		switch (c) {
		case 'd':
			d->device = optarg;
			break;
		case 't':
			if (!parse_count(optarg, 1, 3600, &seconds))
				return usage_error("doctor", "-t: '%s' is not a number from 1 to "
						   "3600", optarg);
			d->seconds = (unsigned)seconds;
			break;
		case 'J':
			d->json = true;
			break;
		case 'L':
			list = true;
			break;
		case 'h':
			fputs(help, stdout);
			*done = true;
			return TOOL_OK;
		default:
			return TOOL_USAGE;
		}
	}
	if (list)
		doctor_list(d->json);
	*done = list;
	return TOOL_OK;
}

int tool_doctor(int argc, char **argv)
{
	struct doctor *d = calloc(1, sizeof(*d));
	bool done = false;
	int code;

	if (!d)
		return failure("doctor", "no memory");
	d->seconds = SECONDS;
	code = parse(argc, argv, d, &done);
	if (!code && !done)
		code = examine(d);
	run_free(&d->info);
	free(d);
	return code;
}
