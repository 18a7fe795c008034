/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/topo.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fault.h"

#define DOMAIN_MAX 0xfffffff /* what bw_pci_format() has room for; Linux uses 16 bits and a few */

static char sysfs[256] = "/sys";

void bw_topo_root(const char *root)
{
	snprintf(sysfs, sizeof(sysfs), "%s", root ? root : "/sys");
}

/* Between @least and @most hexadecimal digits, then @end; moves @text past it. */
static bool hex(const char **text, unsigned least, unsigned most, char end, uint32_t *value)
{
	const char *s = *text;
	unsigned n = 0;

	*value = 0;
	for (; n < most && isxdigit((unsigned char)*s); n++, s++) {
		int c = tolower((unsigned char)*s);

		*value = *value << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	if (n < least || *s != end)
		return false;
	*text = s + 1;
	return true;
}

bool bw_pci_parse(const char *text, struct bw_pci *pci)
{
	uint32_t domain = 0, bus, slot, function;
	const char *s = text;

	if (!s)
		return false;
	if (strchr(s, ':') != strrchr(s, ':') && !hex(&s, 1, 8, ':', &domain))
		return false;
	if (!hex(&s, 1, 2, ':', &bus) || !hex(&s, 1, 2, '.', &slot) || !hex(&s, 1, 1, 0, &function))
		return false;
	if (domain > DOMAIN_MAX || slot > 31 || function > 7)
		return false;
	*pci = (struct bw_pci){ domain, (uint8_t)bus, (uint8_t)slot, (uint8_t)function };
	return true;
}

void bw_pci_format(const struct bw_pci *pci, char text[16])
{
	snprintf(text, 16, "%04x:%02x:%02x.%x", pci->domain & DOMAIN_MAX, pci->bus,
		 pci->slot & 31u, pci->function & 7u);
}

bool bw_pci_equal(const struct bw_pci *a, const struct bw_pci *b)
{
	return a->domain == b->domain && a->bus == b->bus && a->slot == b->slot &&
	       a->function == b->function;
}

/* The first line of a file of the device, cut to @n; false: it cannot be read. */
static bool read_line(const struct bw_pci *pci, const char *file, char *line, size_t n)
{
	char path[sizeof(sysfs) + 64], name[16];
	size_t len = 0;
	ssize_t got;
	int fd;

	bw_pci_format(pci, name);
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s", sysfs, name, file);
	line[0] = 0;
	fd = bw_open(path, O_RDONLY);
	if (fd < 0)
		return false;
	do {
		got = read(fd, line + len, n - 1 - len);
		if (got > 0)
			len += (size_t)got;
	} while ((got > 0 && len < n - 1) || (got < 0 && errno == EINTR));
	close(fd);
	line[len] = 0;
	line[strcspn(line, "\n")] = 0;
	return got >= 0;
}

int bw_topo_numa_node(const struct bw_pci *pci)
{
	char line[32], *end;
	long node;

	if (!read_line(pci, "numa_node", line, sizeof(line)))
		return -1;
	errno = 0;
	node = strtol(line, &end, 10);
	return end == line || *end || errno || node < 0 || node > INT_MAX ? -1 : (int)node;
}

void bw_topo_near_cpus(const struct bw_pci *pci, char *list, size_t n)
{
	char line[4096], *comma;

	if (!n)
		return;
	if (n >= sizeof(line))
		n = sizeof(line) - 1;
	if (!read_line(pci, "local_cpulist", line, sizeof(line)))
		line[0] = 0;
	if (strlen(line) >= n) { /* too long: the ranges that fit, none cut in half */
		line[n] = 0;
		comma = strrchr(line, ',');
		*(comma ? comma : line) = 0;
	}
	memcpy(list, line, strlen(line) + 1);
}
