/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core/probe: places at which a tracer can look into a running process (USDT probes): perf,
 * bpftrace, SystemTap. One that nobody looks at is a nop; where the library was built without
 * sys/sdt.h (Debian: systemtap-sdt-dev) there are none. docs/paths.md lists them.
 */
#ifndef BW_CORE_PROBE_H
#define BW_CORE_PROBE_H

#ifdef BW_HAVE_SDT
#include <sys/sdt.h>
#define BW_PROBE2(name, a, b) STAP_PROBE2(barway, name, a, b)
#define BW_PROBE3(name, a, b, c) STAP_PROBE3(barway, name, a, b, c)
#define BW_PROBE4(name, a, b, c, d) STAP_PROBE4(barway, name, a, b, c, d)
#else
#define BW_PROBE2(name, a, b) ((void)(a), (void)(b))
#define BW_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define BW_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
