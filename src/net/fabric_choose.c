/* SPDX-License-Identifier: BSD-3-Clause */
/* net/fabric_choose: from the name of a network and an interface to libfabric's fi_info. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/fabric.h"

/*
 * tcp: "tcp" and FI_EP_RDM was tcp;ofi_rxm before 1.18, the one that is wanted was called "net".
 * Never "sockets", which does not work. The order is that of "auto".
 */
static const struct bw_fabric_network networks[] = {
	/* It makes dma-bufs itself, with libfabric's own support of CUDA; what it is given it takes
	 * for an address (libfabric's cxip_mr.c, until 2026). */
	{ .name = "cxi", .provider = "cxi", .own_dmabufs = true },
	/* What its cards cannot do it does with messages, which both ends have to poll. */
	{ .name = "efa", .provider = "efa", .target_polls = true },
	{ .name = "verbs", .provider = "verbs;ofi_rxm", .by_address = true },
	{ .name = "tcp", .provider = "tcp", .fallback = "tcp;ofi_rxm", .by_cpu = true,
	  .by_address = true, .target_polls = true, .waits = true },
	{ .name = "tcp", .provider = "net", .fallback = "tcp;ofi_rxm", .by_cpu = true,
	  .by_address = true, .target_polls = true, .waits = true },
	{ .name = "shm", .provider = "shm", .by_cpu = true, .target_polls = true,
	  .keeps_numbers = true },
};
#define N (sizeof(networks) / sizeof(networks[0]))

static bool exists(const struct bw_fabric_lib *lib, const struct bw_fabric_network *net)
{
	bool old = lib->version() < FI_VERSION(1, 18);

	return strcmp(net->provider, old ? "tcp" : "net");
}

static struct fi_info *make_hints(const struct bw_fabric_lib *lib, const char *provider)
{
	struct fi_info *hints = lib->dupinfo(NULL);

	if (!hints)
		return NULL;
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->fabric_attr->prov_name = strdup(provider);
	if (!hints->fabric_attr->prov_name) {
		lib->freeinfo(hints);
		return NULL;
	}
	return hints;
}

/* Without the fabric efa-direct, which has fewer guarantees than its provider's other one. */
static bool is_wanted(const struct fi_info *info, const char *provider, const char *domain)
{
	return !strcmp(info->fabric_attr->prov_name, provider) &&
	       (!info->fabric_attr->name || strcmp(info->fabric_attr->name, "efa-direct")) &&
	       (!domain || (info->domain_attr->name && !strcmp(info->domain_attr->name, domain)));
}

/* All that the provider has on @node (NULL: anywhere); NULL: nothing. */
static struct fi_info *ask(const struct bw_fabric_lib *lib, const char *provider, const char *node)
{
	struct fi_info *hints = make_hints(lib, provider), *list = NULL;

	if (!hints)
		return NULL;
	if (bw_fabric_getinfo(lib, node, node ? FI_SOURCE | FI_NUMERICHOST : 0, hints, &list))
		list = NULL;
	lib->freeinfo(hints);
	return list;
}

/* A copy of the first in the list that is wanted; with @only: of the only one. */
static struct fi_info *pick(const struct bw_fabric_lib *lib, const struct fi_info *list,
			    const char *provider, const char *domain, bool only)
{
	const struct fi_info *found = NULL;

	for (; list; list = list->next) {
		if (!is_wanted(list, provider, domain))
			continue;
		if (found && only && strcmp(list->domain_attr->name, found->domain_attr->name))
			return NULL;
		if (!found)
			found = list;
	}
	return found ? lib->dupinfo(found) : NULL;
}

static void domains(const struct fi_info *list, const char *provider, char *text, size_t room)
{
	size_t n = 0;

	*text = 0;
	for (; list && n < room; list = list->next)
		if (is_wanted(list, provider, NULL) && list->domain_attr->name)
			n += (size_t)snprintf(text + n, room - n, "%s%s", n ? ", " : "",
					      list->domain_attr->name);
}

static bool is_address(const char *text)
{
	unsigned char room[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, text, room) == 1 || inet_pton(AF_INET6, text, room) == 1;
}

/* Does an interface of this machine have it? libfabric finds out much later. */
static bool is_here(const char *text)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	bool old = inet_pton(AF_INET, text, &v4.sin_addr) == 1, here;
	int fd = socket(old ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return true; /* it will say why itself */
	inet_pton(AF_INET6, text, &v6.sin6_addr);
	here = (old ? bind(fd, (struct sockaddr *)&v4, sizeof(v4)) :
		      bind(fd, (struct sockaddr *)&v6, sizeof(v6))) == 0 || errno != EADDRNOTAVAIL;
	close(fd);
	return here;
}

static bool is_loopback(const char *interface)
{
	return !interface || !strncmp(interface, "127.", 4) || !strcmp(interface, "::1");
}

static int by_address(const struct bw_fabric_lib *lib, const struct bw_fabric_network *net,
		      const char *interface, struct fi_info **info)
{
	const char *node = interface ? interface : "127.0.0.1";
	const char *const names[] = { net->provider, net->fallback };

	if (!is_address(node))
		return bw_err(EINVAL, "network %s: \"%s\" is not an IP address: give that of the "
			      "interface", net->name, node);
	if (!is_here(node))
		return bw_err(EADDRNOTAVAIL, "network %s: no interface of this machine has the "
			      "address %s: \"ip address\" shows what they have", net->name, node);
	for (unsigned i = 0; i < 2 && names[i]; i++) {
		struct fi_info *list = ask(lib, names[i], node);

		*info = pick(lib, list, names[i], NULL, false);
		if (list)
			lib->freeinfo(list);
		if (*info)
			return 0;
	}
	return bw_err(ENOTSUP, "network %s: libfabric %u.%u has no %s on %s: %s", net->name,
		      FI_MAJOR(lib->version()), FI_MINOR(lib->version()), net->provider, node,
		      net->by_cpu ? "give the address of an interface of this machine" :
		      "fi_info -p verbs shows what there is; the port needs this address");
}

/* Their interfaces have names of their own, "cxi0"; an IP address does where there is only one. */
static int by_domain(const struct bw_fabric_lib *lib, const struct bw_fabric_network *net,
		     const char *interface, struct fi_info **info)
{
	bool named = interface && !is_address(interface);
	struct fi_info *list = ask(lib, net->provider, NULL);
	char names[256];

	*info = pick(lib, list, net->provider, named ? interface : NULL, !named);
	domains(list, net->provider, names, sizeof(names));
	if (list)
		lib->freeinfo(list);
	if (*info)
		return 0;
	if (*names)
		return bw_err(ENOTSUP, "network %s: which interface is \"%s\"?: give one of: %s",
			      net->name, interface ? interface : "", names);
	return bw_err(ENOTSUP, "network %s: libfabric %u.%u has no %s on this machine: fi_info -l "
		      "shows what it was built with", net->name, FI_MAJOR(lib->version()),
		      FI_MINOR(lib->version()), net->provider);
}

static int choose(const struct bw_fabric_lib *lib, const struct bw_fabric_network *net,
		  const char *interface, struct fi_info **info)
{
	if (net->by_address)
		return by_address(lib, net, interface, info);
	if (net->by_cpu) /* shm is on no interface */
		interface = NULL;
	return by_domain(lib, net, interface, info);
}

int bw_fabric_choose(const struct bw_fabric_lib *lib, const struct bw_rail_options *options,
		     const struct bw_fabric_network **network, struct fi_info **info)
{
	bool automatic = !strcmp(options->network, "auto");
	struct bw_sentence kept;
	int ret = 0;

	bw_err_keep(&kept);
	for (size_t i = 0; i < N; i++) {
		const struct bw_fabric_network *net = &networks[i];

		if (!exists(lib, net) || (!automatic && strcmp(net->name, options->network)))
			continue;
		if (automatic && (!strcmp(net->name, "shm") ||
				  (is_loopback(options->interface) && !net->by_cpu)))
			continue;
		ret = choose(lib, net, options->interface, info);
		if (!ret) {
			*network = net;
			bw_err_put_back(&kept);
			return 0;
		}
		if (!automatic)
			return ret;
	}
	return ret ? ret : bw_err(ENOTSUP, "network %s: libfabric's here are tcp, shm, verbs, efa "
				  "and cxi", options->network);
}

void bw_fabric_networks(const struct bw_fabric_lib *lib, struct bw_reason *list)
{
	size_t n = 0;

	list->text[0] = 0;
	for (size_t i = 0; i < N; i++) {
		struct fi_info *info;

		if (!exists(lib, &networks[i]))
			continue;
		info = ask(lib, networks[i].provider, NULL);
		if (!info && networks[i].fallback)
			info = ask(lib, networks[i].fallback, NULL);
		if (!info)
			continue;
		lib->freeinfo(info);
		n += (size_t)snprintf(list->text + n, sizeof(list->text) - n, "%s%s", n ? ", " : "",
				      networks[i].name);
	}
}
