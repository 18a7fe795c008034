/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses by number: "10.0.0.1:4000", "[::1]:4000". */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "net/control_int.h"

#define REMEDY "give ADDRESS:PORT or [ADDRESS]:PORT in numbers, such as 10.0.0.1:4000"

static struct sockaddr_in *v4(const struct bw_address *a)
{
	return (struct sockaddr_in *)(uintptr_t)&a->at;
}

static struct sockaddr_in6 *v6(const struct bw_address *a)
{
	return (struct sockaddr_in6 *)(uintptr_t)&a->at;
}

static bool parse_port(const char *text, in_port_t *port)
{
	unsigned n = 0;

	if (!*text || strlen(text) > 5)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		n = n * 10 + (unsigned)(*text - '0');
	}
	*port = htons((in_port_t)n);
	return n <= 65535;
}

static bool parse_v6(char *host, struct sockaddr_in6 *at)
{
	char *scope = strchr(host, '%');

	if (scope) {
		*scope++ = 0;
		at->sin6_scope_id = if_nametoindex(scope);
		if (!at->sin6_scope_id)
			return false;
	}
	at->sin6_family = AF_INET6;
	return inet_pton(AF_INET6, host, &at->sin6_addr) == 1;
}

static bool parse_v4(const char *host, struct sockaddr_in *at)
{
	at->sin_family = AF_INET;
	return inet_pton(AF_INET, host, &at->sin_addr) == 1;
}

/* Cuts @text into host and port; *@port NULL: there is none. */
static bool split(char *text, char **host, char **port, bool *six)
{
	char *end;

	*host = text;
	*port = NULL;
	if (*text == '[') {
		*six = true;
		*host = text + 1;
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		*end = 0;
		if (end[1])
			*port = end + 2;
		return true;
	}
	end = strchr(text, ':');
	*six = end && strchr(end + 1, ':');
	if (end && !*six) {
		*end = 0;
		*port = end + 1;
	}
	return true;
}

int bw_address_parse(const char *text, bool need_port, struct bw_address *out)
{
	char copy[128], *host, *port;
	struct bw_address a = { 0 };
	in_port_t number = 0;
	bool six;

	if (!text || strlen(text) >= sizeof(copy))
		return bw_err(EINVAL, "address: %s: " REMEDY, text ? "too long" : "NULL");
	memcpy(copy, text, strlen(text) + 1);
	if (!split(copy, &host, &port, &six) ||
	    !(six ? parse_v6(host, v6(&a)) : parse_v4(host, v4(&a))))
		return bw_err(EINVAL, "address %s: not an IPv4 or IPv6 address: " REMEDY, text);
	if (port && !parse_port(port, &number))
		return bw_err(EINVAL, "address %s: its port is not a number up to 65535: " REMEDY,
			      text);
	if (need_port && !number)
		return bw_err(EINVAL, "address %s: it has no port: " REMEDY, text);
	if (six)
		v6(&a)->sin6_port = number;
	else
		v4(&a)->sin_port = number;
	a.bytes = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	*out = a;
	return 0;
}

/* Without the scope of an address that is local to a wire: each machine has its own for it. */
void bw_address_name(const struct bw_address *a, char name[BW_NET_NAME_MAX])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->at.ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &v6(a)->sin6_addr, host, sizeof(host));
		snprintf(name, BW_NET_NAME_MAX, "[%s]:%u", host, ntohs(v6(a)->sin6_port));
	} else {
		inet_ntop(AF_INET, &v4(a)->sin_addr, host, sizeof(host));
		snprintf(name, BW_NET_NAME_MAX, "%s:%u", host, ntohs(v4(a)->sin_port));
	}
}

bool bw_address_same(const struct bw_address *a, const struct bw_address *b)
{
	char one[BW_NET_NAME_MAX], other[BW_NET_NAME_MAX];

	bw_address_name(a, one);
	bw_address_name(b, other);
	return !strcmp(one, other);
}

bool bw_address_any(const struct bw_address *a)
{
	if (a->at.ss_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&v6(a)->sin6_addr);
	return v4(a)->sin_addr.s_addr == htonl(INADDR_ANY);
}
