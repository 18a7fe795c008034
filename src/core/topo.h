/* SPDX-License-Identifier: BSD-3-Clause */
/* core/topo: where a PCI device sits, as the kernel says in sysfs. */
#ifndef BW_CORE_TOPO_H
#define BW_CORE_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bw_pci {
	uint32_t domain;
	uint8_t bus, slot, function;
};

/* "0000:17:00.0", "17:00.0", "00000000:17:00.0" */
bool bw_pci_parse(const char *text, struct bw_pci *pci);
void bw_pci_format(const struct bw_pci *pci, char text[16]);
bool bw_pci_equal(const struct bw_pci *a, const struct bw_pci *b);

/* Where sysfs is, for tests; NULL: /sys. Not thread-safe. */
void bw_topo_root(const char *root);
int bw_topo_numa_node(const struct bw_pci *pci);                    /* -1: unknown */
void bw_topo_near_cpus(const struct bw_pci *pci, char *list, size_t n); /* "": unknown */

#endif
