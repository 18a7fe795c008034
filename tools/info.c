/* SPDX-License-Identifier: BSD-3-Clause */
/* barway info: what there is, and which way to it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "barway.h"
#include "tools/info_topo.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/text.h"

static const char help[] =
	"usage: barway info [-d DEV] [--params] [--json]\n"
	"\n"
	"Shows each device, its way over PCIe to the root port and how far the NUMA\n"
	"nodes are from it, how full its BAR1 aperture is, which provider can map its\n"
	"memory or why not and what to do about it, the CPU kernels chosen, and the\n"
	"parameters that are not at their default.\n"
	"\n"
	"  -d, --device DEV   this device only: index, PCI address or UUID\n"
	"      --params       all parameters\n"
	"      --json         one JSON object, schema barway-info-1\n"
	"  -h, --help         this text\n"
	"\n"
	"exit status: 0 some device has a provider that takes it, 1 none has, 2 usage\n";

static const struct option longs[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "params", no_argument, NULL, 'P' },
	{ "json", no_argument, NULL, 'J' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct info {
	const char *device; /* -d; NULL: all */
	bool params;        /* all of them */
	bool json;
	struct barway_context *ctx;
	int first, count;   /* the devices to show */
	char no_device[512]; /* why there are none */
	bool usable;        /* some provider takes some device */
};

/* ---- asking ------------------------------------------------------------------------------ */

static int next_provider(struct info *in, struct barway_device *dev, unsigned i,
			 struct barway_provider_info *p)
{
	*p = (struct barway_provider_info){ .size = sizeof(*p) };
	return barway_provider_query(in->ctx, dev, i, p);
}

/* The next parameter to show at @i or after it; false at the end. */
static bool next_param(const struct info *in, unsigned *i, struct barway_param_info *p)
{
	for (;; ++*i) {
		*p = (struct barway_param_info){ .size = sizeof(*p) };
		if (barway_param_get(*i, p) < 0)
			return false;
		if (in->params || strcmp(p->source, "default"))
			return true;
	}
}

static int get_device(struct info *in, int i, struct barway_device **dev,
		      struct barway_device_info *d)
{
	int ret = barway_device_get(in->ctx, i, dev);

	*d = (struct barway_device_info){ .size = sizeof(*d) };
	return ret < 0 ? ret : barway_device_query(*dev, d);
}

static const char *kind_name(uint32_t kind)
{
	return kind == BARWAY_DEVICE_CUDA ? "cuda"
	       : kind == BARWAY_DEVICE_SOFT ? "soft" : "unknown";
}

static bool is_soft(struct info *in)
{
	struct barway_device *dev;
	struct barway_device_info d;

	return in->count && get_device(in, in->first, &dev, &d) == 0 &&
	       d.kind == BARWAY_DEVICE_SOFT;
}

/* ---- for people -------------------------------------------------------------------------- */

#define PROVIDER_INDENT 15

static int print_providers(struct info *in, struct barway_device *dev)
{
	struct barway_provider_info p;
	unsigned i;
	int ret;

	puts("  providers");
	for (i = 0; (ret = next_provider(in, dev, i, &p)) == 0; i++) {
		printf("    %-10s ", p.name);
		if (p.score < 0)
			puts("refuses");
		else
			printf("score %d; memory freed under a mapping %s\n", p.score,
			       p.keeps_alive ? "stays alive" : "is revoked");
		if (*p.reason) {
			printf("%*s", PROVIDER_INDENT, "");
			text_wrap(stdout, p.reason, PROVIDER_INDENT, PROVIDER_INDENT);
		}
		in->usable = in->usable || (dev && p.score >= 0);
	}
	if (!i)
		puts("    none");
	return ret == -ENOENT ? 0 : ret;
}

/* What providers say without a device: why there may be no GPU. */
static int print_machine(struct info *in)
{
	puts("\nthis machine, before a device is chosen");
	return print_providers(in, NULL);
}

static void print_room(const char *label, uint64_t total, uint64_t free, const char *why_not)
{
	char a[32], b[32], text[160];

	if (total == UINT64_MAX)
		snprintf(text, sizeof(text), "unknown");
	else if (free == UINT64_MAX)
		snprintf(text, sizeof(text), "%s; use unknown%s", text_bytes(total, a, sizeof(a)),
			 why_not);
	else
		snprintf(text, sizeof(text), "%s, %s in use", text_bytes(total, a, sizeof(a)),
			 text_bytes(total > free ? total - free : 0, b, sizeof(b)));
	text_field(stdout, label, text);
}

static const char *or_unknown(const char *s)
{
	return *s ? s : "unknown";
}

static void print_place(const struct barway_device_info *d)
{
	struct topo topo;
	char text[16];
	int node;

	topo_read(&topo, d->pci);
	node = d->numa_node < 0 ? topo.node : d->numa_node;
	snprintf(text, sizeof(text), "%d", node);
	text_field(stdout, "NUMA node", node < 0 ? "unknown" : text);
	text_field(stdout, "CPUs near it", or_unknown(d->near_cpus));
	topo_print(&topo);
}

static int print_device(struct info *in, int i)
{
	struct barway_device *dev;
	struct barway_device_info d;
	char text[64];
	int ret = get_device(in, i, &dev, &d);

	if (ret < 0)
		return ret;
	printf("\ndevice %d: ", i);
	text_wrap(stdout, d.name, 0, 2);
	text_field(stdout, "kind", kind_name(d.kind));
	if (d.kind != BARWAY_DEVICE_SOFT)
		text_field(stdout, "PCI address", or_unknown(d.pci));
	text_field(stdout, "UUID", or_unknown(d.uuid));
	text_field(stdout, "driver", or_unknown(d.driver));
	print_place(&d);
	print_room("memory", d.memory_total, d.memory_free, " (needs a CUDA context)");
	print_room("BAR1 aperture", d.bar1_total, d.bar1_free, "");
	snprintf(text, sizeof(text), "store %s, load %s", or_unknown(d.store_kernel),
		 or_unknown(d.load_kernel));
	text_field(stdout, "CPU kernels", text);
	return print_providers(in, dev);
}

static void print_params(const struct info *in)
{
	struct barway_param_info p;
	unsigned i = 0, shown = 0;
	char text[512];

	puts(in->params ? "\nparameters" : "\nparameters not at their default");
	for (; next_param(in, &i, &p); i++, shown++) {
		snprintf(text, sizeof(text), "%s (%s%s%s)", *p.value ? p.value : "empty", p.source,
			 strcmp(p.source, "default") ? "; default: " : "",
			 !strcmp(p.source, "default") ? "" : *p.dflt ? p.dflt : "empty");
		text_field(stdout, p.name, text);
		if (in->params)
			text_field(stdout, "", p.help);
	}
	if (!shown)
		puts("  none");
}

static int print_info(struct info *in)
{
	unsigned v = barway_version();
	int ret = 0;

	if (is_soft(in))
		puts(TEXT_SOFT "\n");
	printf("barway %u.%u.%u\n", v >> 16, v >> 8 & 255, v & 255);
	for (int i = in->first; i < in->first + in->count && ret == 0; i++)
		ret = print_device(in, i);
	if (!in->count) {
		fputs("\nno device: ", stdout);
		text_wrap(stdout, in->no_device, 11, 2);
		ret = print_providers(in, NULL);
	} else if (ret == 0 && is_soft(in)) {
		ret = print_machine(in);
	}
	if (ret == 0)
		print_params(in);
	return ret;
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_text(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value && *value ? value : NULL);
}

/* UINT64_MAX: unknown */
static void json_amount(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	if (v == UINT64_MAX)
		json_null(j);
	else
		json_uint(j, v);
}

static int json_providers(struct json *j, struct info *in, const char *key,
			  struct barway_device *dev)
{
	struct barway_provider_info p;
	int ret;

	json_key(j, key);
	json_array(j);
	for (unsigned i = 0; (ret = next_provider(in, dev, i, &p)) == 0; i++) {
		json_object(j);
		json_text(j, "name", p.name);
		json_key(j, "score");
		json_int(j, p.score);
		json_key(j, "refuses");
		json_bool(j, p.score < 0);
		json_text(j, "reason", p.reason);
		json_key(j, "keeps_alive");
		json_bool(j, p.keeps_alive);
		json_object_end(j);
		in->usable = in->usable || (dev && p.score >= 0);
	}
	json_array_end(j);
	return ret == -ENOENT ? 0 : ret;
}

static int json_device(struct json *j, struct info *in, int i)
{
	struct barway_device *dev;
	struct barway_device_info d;
	struct topo topo;
	bool bar1_known;
	int ret = get_device(in, i, &dev, &d);

	if (ret < 0)
		return ret;
	bar1_known = d.bar1_total != UINT64_MAX && d.bar1_free <= d.bar1_total;
	json_object(j);
	json_key(j, "index");
	json_int(j, d.index);
	json_text(j, "kind", kind_name(d.kind));
	json_text(j, "name", d.name);
	json_text(j, "pci", d.pci);
	json_text(j, "uuid", d.uuid);
	json_text(j, "driver", d.driver);
	json_key(j, "numa_node");
	if (d.numa_node < 0)
		json_null(j);
	else
		json_int(j, d.numa_node);
	json_text(j, "near_cpus", d.near_cpus);
	topo_read(&topo, d.pci);
	topo_json(j, &topo);
	json_amount(j, "memory_total_bytes", d.memory_total);
	json_amount(j, "memory_free_bytes", d.memory_free);
	json_amount(j, "bar1_total_bytes", d.bar1_total);
	json_amount(j, "bar1_free_bytes", d.bar1_free);
	json_amount(j, "bar1_used_bytes", bar1_known ? d.bar1_total - d.bar1_free : UINT64_MAX);
	json_text(j, "store_kernel", d.store_kernel);
	json_text(j, "load_kernel", d.load_kernel);
	ret = json_providers(j, in, "providers", dev);
	json_object_end(j);
	return ret;
}

static void json_params(struct json *j, const struct info *in)
{
	struct barway_param_info p;

	json_key(j, "parameters");
	json_array(j);
	for (unsigned i = 0; next_param(in, &i, &p); i++) {
		json_object(j);
		json_key(j, "name");
		json_string(j, p.name);
		json_key(j, "value");
		json_string(j, p.value);
		json_key(j, "default");
		json_string(j, p.dflt);
		json_key(j, "source");
		json_string(j, p.source);
		json_key(j, "help");
		json_string(j, p.help);
		json_object_end(j);
	}
	json_array_end(j);
}

static int json_info(struct info *in)
{
	unsigned v = barway_version();
	char version[48];
	struct json j;
	bool soft = is_soft(in);
	int ret = 0;

	snprintf(version, sizeof(version), "%u.%u.%u", v >> 16, v >> 8 & 255, v & 255);
	json_init(&j, stdout);
	json_object(&j);
	json_text(&j, "schema", "barway-info-1");
	json_text(&j, "version", version);
	json_key(&j, "soft");
	json_bool(&j, soft);
	json_text(&j, "note", soft ? TEXT_SOFT : NULL);
	json_text(&j, "no_device_reason", in->no_device);
	json_key(&j, "devices");
	json_array(&j);
	for (int i = in->first; i < in->first + in->count && ret == 0; i++)
		ret = json_device(&j, in, i);
	json_array_end(&j);
	if (ret == 0)
		ret = json_providers(&j, in, "machine_providers", NULL);
	json_params(&j, in);
	json_object_end(&j);
	return ret;
}

/* ---- the verb ---------------------------------------------------------------------------- */

/* Which devices to show. Returns an exit code. */
static int choose(struct info *in)
{
	struct barway_device *dev;
	struct barway_device_info d = { .size = sizeof(d) };

	in->count = barway_device_count(in->ctx);
	if (in->count <= 0) {
		snprintf(in->no_device, sizeof(in->no_device), "%s",
			 in->count < 0 ? barway_errmsg() : "none found");
		in->count = 0;
	} else if (in->device) {
		if (barway_device_find(in->ctx, in->device, &dev) < 0)
			return usage_error("info", "-d: %s", barway_errmsg());
		if (barway_device_query(dev, &d) < 0)
			return failure("info", "%s", barway_errmsg());
		in->first = d.index;
		in->count = 1;
	}
	return TOOL_OK;
}

static int parse(int argc, char **argv, struct info *in, bool *done)
{
	int c;

	while ((c = next_option(argc, argv, ":d:h", longs)) != -1) {
		switch (c) {
		case 'd':
			in->device = optarg;
			break;
		case 'P':
			in->params = true;
			break;
		case 'J':
			in->json = true;
			break;
		case 'h':
			fputs(help, stdout);
			*done = true;
			return TOOL_OK;
		default:
			return TOOL_USAGE;
		}
	}
	return TOOL_OK;
}

int tool_info(int argc, char **argv)
{
	struct info in = { 0 };
	bool done = false;
	int code = parse(argc, argv, &in, &done);

	if (code || done)
		return code;
	if (barway_open(NULL, &in.ctx) < 0)
		return failure("info", "%s", barway_errmsg());
	code = choose(&in);
	if (code == TOOL_OK && (in.json ? json_info(&in) : print_info(&in)) < 0)
		code = failure("info", "%s", barway_errmsg());
	else if (code == TOOL_OK)
		code = in.usable ? TOOL_OK : TOOL_FAILED;
	barway_close(in.ctx);
	return code;
}
