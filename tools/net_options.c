/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/net.h"

#include <string.h>

#include "tools/options.h"

static int take_threads(const struct measure *m, struct net_options *o)
{
	uint64_t n;
	int code = measure_count(m, "--threads", optarg, 0, 16, &n);

	if (code == TOOL_OK)
		o->threads = (int32_t)n;
	return code;
}

int net_option(const struct measure *m, struct net_options *o, int c)
{
	switch (c) {
	case 'l':
		o->local = true;
		return TOOL_OK;
	case 1000:
		o->server = true;
		return TOOL_OK;
	case 1001:
		o->once = true;
		return TOOL_OK;
	case 1002:
		o->network = optarg;
		return net_check_network(m, optarg);
	case 1003:
		o->interfaces = optarg;
		return optarg[strspn(optarg, ", ")] ? TOOL_OK :
		       usage_error(m->verb, "--interfaces '%s': there is no address in it", optarg);
	case 1004:
		o->listen = optarg;
		return TOOL_OK;
	case 1005:
		o->secret_file = optarg;
		return TOOL_OK;
	case 1006:
		o->peer_device = optarg;
		return TOOL_OK;
	case 1007:
		return measure_count(m, "--rails", optarg, 1, 16, &o->rails);
	case 1008:
		return take_threads(m, o);
	default:
		return MEASURE_OTHER;
	}
}

static int check_together(const struct measure *m, const struct net_options *o)
{
	const char *verb = m->verb;

	if (o->local && (o->server || o->name))
		return usage_error(verb, "--local starts the other end itself: not together with "
				   "%s", o->server ? "--server" : "the name of another");
	if (o->local && o->secret_file)
		return usage_error(verb, "--local has a secret of its own: leave --secret-file "
				   "away");
	if (o->once && !o->server)
		return usage_error(verb, "--once is for --server");
	if (o->peer_device && !o->local)
		return usage_error(verb, "--peer-device is for --local: the other end chooses its "
				   "own device, by -d");
	if (o->server && (m->json || m->save || m->plot || m->compare))
		return usage_error(verb, "--server has no result: give --json, --save, --plot and "
				   "--compare to the other end");
	if (o->server && o->name && o->listen)
		return usage_error(verb, "--server %s and --listen %s: give the address once",
				   o->name, o->listen);
	if (!o->local && !o->server && !o->name)
		return usage_error(verb, "say where the other end is: the name that its --server "
				   "printed, or --local; see 'barway %s --help'", verb);
	return TOOL_OK;
}

int net_check(const struct measure *m, struct net_options *o, int argc, char **argv)
{
	int code;

	if (argc - optind > 1)
		return usage_error(m->verb, "unexpected argument '%s'; see 'barway %s --help'",
				   argv[optind + 1], m->verb);
	o->name = argv[optind];
	code = check_together(m, o);
	if (code)
		return code;
	if (o->server && o->name)
		o->listen = o->name;
	code = net_check_addresses(m, o);
	if (code)
		return code;
	if (o->secret_file && barway_param_set("net_secret_file", o->secret_file) < 0)
		return failure(m->verb, "--secret-file: %s", barway_errmsg());
	return TOOL_OK;
}
