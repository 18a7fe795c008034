/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses and networks that options name, looked at before anything is opened. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/net.h"
#include "tools/options.h"

const char *const net_network_names[] = { "tcp", "shm", "verbs", "efa", "cxi", NULL };

int net_check_network(const struct measure *m, const char *name)
{
	static const char *const others[] = { "auto", "imitation",
					       "imitation-rdma" }; /* these two: for tests */

	for (size_t i = 0; net_network_names[i]; i++)
		if (!strcmp(name, net_network_names[i]))
			return TOOL_OK;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(name, others[i]))
			return TOOL_OK;
	return usage_error(m->verb, "--network %s: there is no such network: give auto, tcp, shm, "
			   "verbs, efa or cxi", name);
}

/* Cuts "ADDRESS:PORT" or "[ADDRESS]:PORT". Returns the port; NULL: there is none. */
static char *cut(char *text, char **host)
{
	char *end = strchr(text, ':');

	*host = text;
	if (*text == '[' && strchr(text, ']')) {
		*host = text + 1;
		end = strchr(text, ']');
		*end++ = 0;
		return *end ? end + (*end == ':') : NULL;
	}
	if (!end || strchr(end + 1, ':'))
		return NULL; /* none, or the colons of IPv6 */
	*end = 0;
	return end + 1;
}

static bool is_mine(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool mine = fd < 0 || !bind(fd, a->ai_addr, a->ai_addrlen) || errno != EADDRNOTAVAIL;

	if (fd >= 0)
		close(fd);
	return mine;
}

/* What is wrong with it; NULL: nothing that can be seen. @peer: of another end, with its port. */
static const char *wrong_with(const char *text, bool peer)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM };
	char copy[128], *host, *port;
	struct addrinfo *list;
	uint64_t n;
	bool mine;

	snprintf(copy, sizeof(copy), "%s", text);
	port = cut(copy, &host);
	if (!*host || getaddrinfo(host, NULL, &hints, &list))
		return "not an IPv4 or IPv6 address in numbers";
	mine = is_mine(list);
	freeaddrinfo(list);
	if (peer && !port)
		return "it has no port";
	if (port && !parse_count(port, peer, 65535, &n))
		return "its port is not a number up to 65535";
	return peer || mine ? NULL : "no interface of this machine has the address; 'ip address' "
				     "shows what they have";
}

int net_check_addresses(const struct measure *m, const struct net_options *o)
{
	const char *why = o->listen ? wrong_with(o->listen, false) : NULL;

	if (why)
		return usage_error(m->verb, "%s '%s': %s", o->server && o->name ? "--server" :
				   "--listen", o->listen, why);
	why = o->name && !o->server ? wrong_with(o->name, true) : NULL;
	return why ? usage_error(m->verb, "'%s': %s: give the name that the other end's --server "
				 "printed, such as 10.0.0.1:4000", o->name, why) : TOOL_OK;
}
