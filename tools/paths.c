/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * barway paths: for each GPU, network and address of this machine, which way bytes would take to
 * another process, why not a better one, and how fast that is.
 */
#include "tools/paths.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "tools/options.h"
#include "tools/progress.h"

#define VERB "paths"
#define ADDRESSES 16u
#define WINDOW 4u

static const char help[] =
	"usage: barway paths [NAME | --local] [OPTION]...\n"
	"\n"
	"Says for each GPU, network and address of this machine which way bytes would\n"
	"take between its memory and another process: direct, the network card reads and\n"
	"writes GPU memory itself, or staged, through host memory; and why not the better\n"
	"one. With another end it also measures: a send of 8 bytes (half a round trip)\n"
	"and puts of 4 MiB, whose data is checked.\n"
	"\n"
	"  NAME                  the other end, as 'barway netlat --server' printed it\n"
	"  -l, --local           the other end is a process that this one starts, on\n"
	"                        another GPU where there is one\n"
	"  -d, --device DEV      this GPU only: index, PCI address or UUID\n"
	"      --network NET     this network only: tcp, shm, verbs, efa or cxi\n"
	"      --listen ADDR     this address of this machine only; default: those of all\n"
	"                        its interfaces; with NAME the parameter net_listen\n"
	"      --secret-file F   the secret of both ends, 16 to 1024 random bytes;\n"
	"                        default: the parameter net_secret_file\n"
	"      --json            one JSON object instead\n"
	"      --save FILE       write that object to FILE, too\n"
	"  -h, --help            this text\n"
	"\n"
	"exit status: 0 done, 1 failed, or there is no way at all, 2 usage\n";

static const struct option longs[] = {
	{ "local", no_argument, NULL, 'l' },
	{ "device", required_argument, NULL, 'd' },
	{ "network", required_argument, NULL, 1002 },
	{ "listen", required_argument, NULL, 1004 },
	{ "secret-file", required_argument, NULL, 1005 },
	{ "json", no_argument, NULL, 'J' },
	{ "save", required_argument, NULL, 'S' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* ---- what there is ------------------------------------------------------------------------ */

struct addresses {
	char text[ADDRESSES][64];
	unsigned n;
};

static void add_address(struct addresses *a, const char *text)
{
	if (a->n < ADDRESSES)
		snprintf(a->text[a->n++], sizeof(a->text[0]), "%s", text);
}

/* Of all interfaces that are up: IPv4, loopback first. */
static void find_addresses(struct addresses *a)
{
	struct ifaddrs *list = NULL;
	char text[64];

	if (getifaddrs(&list))
		return add_address(a, "127.0.0.1");
	for (int loopback = 1; loopback >= 0; loopback--)
		for (struct ifaddrs *i = list; i; i = i->ifa_next) {
			const struct sockaddr_in *in = (const void *)i->ifa_addr;

			if (!in || in->sin_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
			    !!(i->ifa_flags & IFF_LOOPBACK) != loopback)
				continue;
			if (inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)))
				add_address(a, text);
		}
	freeifaddrs(list);
	if (!a->n)
		add_address(a, "127.0.0.1");
}

static void choose_addresses(const struct paths *p, struct addresses *a)
{
	a->n = 0;
	if (p->net.listen)
		add_address(a, p->net.listen);
	else if (p->net.name)
		add_address(a, measure_parameter("net_listen"));
	else
		find_addresses(a);
}

/* ---- one way ------------------------------------------------------------------------------ */

static int measure_row(struct paths *p, struct net_end *e, struct paths_row *r, const char *name)
{
	struct net_case c = {
		.operation = BARWAY_SEND, .bytes = PATHS_SMALL, .window = WINDOW, .slots = WINDOW,
		.seconds = 0.05,
	};
	struct barway_key data, notes;
	int ret;

	ret = net_connect(e, name, (size_t)PATHS_LARGE * WINDOW, false);
	if (ret < 0)
		return ret;
	data = e->notes->answer.data;
	notes = e->notes->answer.notes;
	c.data = &data;
	c.notes = &notes;
	ret = net_latency(e, &c, &r->small);
	c.operation = BARWAY_PUT;
	c.bytes = PATHS_LARGE;
	c.seconds = 0.1;
	if (ret == 0)
		ret = net_bandwidth(e, &c, &r->large);
	r->measured = ret == 0;
	if (ret == 0)
		net_disconnect(e);
	(void)p;
	return ret;
}

/* What this end's memory gets, without a peer. */
static int look(struct net_end *e, struct paths_row *r)
{
	int ret = net_memory_open(e, 65536, false);

	r->region.size = sizeof(r->region);
	if (ret == 0 && barway_region_query(e->region, &r->region) < 0)
		ret = net_barway(e, -1);
	net_memory_close(e);
	return ret;
}

/* Where the other end is: NULL: there is none. An exit code, with its line printed. */
static int other_end(struct paths *p, const struct net_options *o, int device, char name[64],
		     const char **out)
{
	int count = barway_device_count(p->m.ctx), code = TOOL_OK;
	char text[16];

	*out = p->net.name;
	if (p->local.child) {
		snprintf(text, sizeof(text), "%d", count > 1 ? (device + 1) % count : 0);
		code = net_local_open(&p->local, VERB, text, o, name);
		*out = name;
	}
	return code;
}

/* Returns an exit code: that there is no such way is a finding, not a failure. */
static int try_way(struct paths *p, struct barway_device *dev, struct paths_row *r)
{
	struct net_options o = p->net;
	struct net_end e = { .ctx = p->m.ctx, .dev = dev, .soft = p->m.soft };
	const char *other = NULL;
	char name[64];
	int code = TOOL_OK;

	o.network = r->network;
	o.listen = r->address;
	o.local = !p->net.name; /* our own secret */
	progress("GPU %d, network %s, %s", r->device, r->network, r->address);
	if (net_end_open(&e, &o) < 0 || look(&e, r) < 0)
		snprintf(r->refused, sizeof(r->refused), "%.511s", e.error);
	progress_clear();
	if (!*r->refused)
		code = other_end(p, &o, r->device, name, &other);
	if (code == TOOL_OK && other) {
		progress("GPU %d, network %s, %s", r->device, r->network, r->address);
		if (measure_row(p, &e, r, other) < 0)
			snprintf(r->unmeasured, sizeof(r->unmeasured), "%.511s", e.error);
		progress_clear();
	}
	net_end_close(&e);
	return code;
}

/* ---- all ---------------------------------------------------------------------------------- */

/* A network with its addresses. Where none of them can be had one row says so. */
static int try_network(struct paths *p, struct barway_device *dev,
		       const struct barway_device_info *info, const char *network)
{
	struct addresses a;
	size_t first = p->rows;
	int code = TOOL_OK;

	choose_addresses(p, &a);
	if (!strcmp(network, "shm"))
		a.n = 1; /* it does not go by any */
	for (unsigned i = 0; i < a.n && code == TOOL_OK && p->rows < PATHS_ROWS; i++) {
		struct paths_row *r = &p->row[p->rows];

		*r = (struct paths_row){ .device = info->index };
		memcpy(r->device_name, info->name, sizeof(r->device_name));
		snprintf(r->network, sizeof(r->network), "%s", network);
		memcpy(r->address, a.text[i], sizeof(r->address));
		code = try_way(p, dev, r);
		if (*r->refused && (p->rows > first || i + 1 < a.n))
			continue; /* of refusals the last one alone, and where all are */
		p->rows++;
	}
	for (size_t i = first; i < p->rows && !p->m.json; i++)
		paths_print_row(p, &p->row[i]);
	return code;
}

static int try_device(struct paths *p, struct barway_device *dev)
{
	struct barway_device_info info = { .size = sizeof(info) };
	int code = TOOL_OK;

	if (barway_device_activate(dev) < 0 || barway_device_query(dev, &info) < 0)
		return failure(VERB, "%s", barway_errmsg());
	if (!p->m.json)
		printf("\nGPU %d: %s%s%s\n", info.index, info.name, *info.pci ? ", " : "",
		       info.pci);
	if (p->net.network)
		return try_network(p, dev, &info, p->net.network);
	for (size_t i = 0; net_network_names[i] && code == TOOL_OK; i++)
		code = try_network(p, dev, &info, net_network_names[i]);
	return code;
}

static int check_found(const struct paths *p)
{
	for (size_t i = 0; i < p->rows; i++)
		if (!*p->row[i].refused && !*p->row[i].unmeasured)
			return TOOL_OK;
	if (p->rows && !*p->row[0].refused)
		return failure(VERB, "no way to the other end: %s", p->row[0].unmeasured);
	return failure(VERB, "no network can be used: %s",
		       p->rows ? p->row[0].refused : "there is no device");
}

static int run(struct paths *p)
{
	struct barway_device *dev;
	int code = measure_open(&p->m), n;

	if (code)
		return code;
	if (p->net.local)
		net_take_share(&p->net, false);
	n = barway_device_count(p->m.ctx);
	if (!p->m.json)
		measure_print_head(&p->m, NULL);
	if (p->m.device)
		code = try_device(p, p->m.dev);
	for (int i = 0; i < n && !p->m.device && code == TOOL_OK; i++)
		code = barway_device_get(p->m.ctx, i, &dev) < 0
		       ? failure(VERB, "%s", barway_errmsg()) : try_device(p, dev);
	if (code == TOOL_OK)
		code = measure_finish(&p->m, paths_json, p);
	return code ? code : check_found(p);
}

static int parse(struct paths *p, int argc, char **argv)
{
	int c, code = TOOL_OK;

	while (code == TOOL_OK && (c = next_option_only(argc, argv, ":d:lh", longs)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return -1;
		}
		code = measure_option(&p->m, c);
		if (code == MEASURE_OTHER)
			code = net_option(&p->m, &p->net, c);
	}
	if (code)
		return code;
	if (argc - optind > 1)
		return usage_error(VERB, "unexpected argument '%s'; see 'barway paths --help'",
				   argv[optind + 1]);
	p->net.name = argv[optind];
	if (p->net.name && p->net.local)
		return usage_error(VERB, "--local starts the other end itself: not together with "
				   "the name of another");
	code = net_check_addresses(&p->m, &p->net);
	if (code)
		return code;
	if (p->net.secret_file && !p->net.name)
		return usage_error(VERB, "--secret-file is for the name of another end: leave it "
				   "away");
	if (p->net.secret_file && barway_param_set("net_secret_file", p->net.secret_file) < 0)
		return failure(VERB, "--secret-file: %s", barway_errmsg());
	return measure_check(&p->m);
}

int tool_paths(int argc, char **argv)
{
	static struct paths p = {
		.m = { .verb = VERB, .schema = "barway-paths-1" },
		.net = { .threads = -1 },
	};
	int code = parse(&p, argc, argv);

	if (code)
		return code < 0 ? TOOL_OK : code;
	progress_begin();
	if (p.net.local)
		code = net_local_start(&p.local, &p.m, &p.net);
	else if (getrandom(p.net.secret, sizeof(p.net.secret), 0) != sizeof(p.net.secret))
		code = failure(VERB, "the system gives no random bytes");
	if (code == TOOL_OK)
		code = run(&p);
	measure_close(&p.m);
	net_local_end(&p.local);
	return code;
}
