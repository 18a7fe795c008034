/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tools/doctor: what is wrong with the way to a GPU, and the one thing to do next.
 *
 * The way is a chain of checks, each of which needs the one before it: doctor_system.c looks at the
 * machine's files, doctor_library.c at what came of using the driver and the library. That use
 * happens in processes with a time limit (doctor_probe.c, doctor_run.c), because a broken driver
 * can hang or crash whoever calls it. What a check finds is a diagnosis out of doctor_list.c with
 * the evidence for it. The first link of the chain that is broken decides what to do next.
 */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/json.h"

/* ---- the chain and what is found ----------------------------------------------------------- */

enum check {
	CHECK_PCI,
	CHECK_DRIVER,
	CHECK_NODES,
	CHECK_PERMISSION,
	CHECK_LIBCUDA,
	CHECK_CUINIT,
	CHECK_PROVIDER,
	CHECK_BAR1,
	CHECK_MAPPING,
	CHECK_SANITY,
	CHECKS,
};

enum verdict {
	NOT_REACHED = 0, /* a link before it is broken */
	GOOD,
	UNKNOWN,         /* cannot be seen here; the next link will tell */
	ABSENT,          /* there is no GPU, and nothing is wrong */
	WRONG,
};

enum kind {
	PROBLEM, /* keeps Barway from using a GPU that is there */
	ADVICE,  /* it works, and can do better */
	NOTE,    /* nothing to do */
};

enum diagnosis_id {
	D_WSL2, D_JETSON, D_NO_GPU, D_NOUVEAU, D_VFIO, D_DRIVER_MISSING, D_DRIVER_NOT_LOADED,
	D_DRIVER_OLD, D_NO_NODES, D_CONTAINER_NO_NODES, D_NO_UVM_NODE, D_NO_PERMISSION,
	D_CONTAINER_NO_PERMISSION, D_GPU_INIT, D_LIBCUDA_MISSING, D_CONTAINER_NO_LIBCUDA,
	D_LIBCUDA_NOT_FOUND, D_LIBCUDA_BROKEN, D_LIBCUDA_STUB, D_LIBCUDA_MISMATCH,
	D_CUDA_COMPAT, D_CUDA_NO_DEVICE, D_FABRIC_MANAGER, D_CUINIT, D_STUCK, D_CRASHED,
	D_BAD_PARAMETER, D_MIG, D_CONFIDENTIAL, D_VGPU, D_CLOSED_MODULES, D_DRIVER_UNKNOWN,
	D_PROVIDERS_EXCLUDED, D_PROVIDER, D_NO_CONTEXT, D_GPU_MEMORY_FULL, D_BAR1_FULL, D_GPU_LOST,
	D_MAPPING, D_SANITY, D_SANITY_NOT_RUN, D_SOFT_GPU, D_BAR1_SMALL, D_PCIE_WIDTH,
	D_DEVICES_SOFT, D_DEVICES_CUDA, D_GDRDRV_NO_DEVICE, D_GDRDRV_STALE, D_GDRDRV_GDRCOPY,
	D_LIBCUDA_OTHER, DIAGNOSES,
};

struct diagnosis {
	const char *id;
	enum kind kind;
	enum check check;
	const char *meaning; /* a sentence */
	const char *action;  /* what to do; can be replaced where more is known */
};

extern const struct diagnosis diagnoses[DIAGNOSES];
extern const char *const check_names[CHECKS];  /* of the JSON */
extern const char *const check_titles[CHECKS]; /* for people */
const char *kind_name(enum kind kind);
const char *verdict_name(enum verdict verdict);

struct finding {
	enum diagnosis_id id;
	enum check check; /* the link that is broken; CHECKS: none */
	char evidence[512];
	char action[512];
};

/* ---- what came of using the driver and the library (doctor_probe.c) ------------------------- */

#define PROBE_DEVICES 16
#define PROBE_PROVIDERS 8

struct probe_provider {
	char name[16], reason[512];
	int score;
};

struct probe_device {
	int index;
	char name[96], pci[16], driver[96];
	uint64_t memory_total, bar1_total, bar1_free;
	unsigned nproviders;
	struct probe_provider provider[PROBE_PROVIDERS];
	enum { DEVICE_NOT_TRIED, DEVICE_ACTIVATE, DEVICE_ALLOC, DEVICE_MAP, DEVICE_COPY,
	       DEVICE_GOOD } reached; /* the step that failed, or DEVICE_GOOD */
	int error;                    /* errno of that step */
	char message[512];
	char path_provider[16], route[24], store[24], load[24];
	uint32_t caching; /* enum barway_caching */
};

/* Written by a child while it goes, read by the parent when it has ended. */
struct probe {
	char stage[64];       /* what it was about to do: "cuInit" */
	enum check at;        /* ... and for which link */
	bool loaded;          /* libcuda is open */
	char libcuda[64], file[512]; /* as asked for; the real file */
	char load_error[512];
	bool has_init;        /* ... and has a cuInit() */
	int cuinit;           /* -1: not called */
	char cuinit_name[64];
	int open_error, count; /* errno of barway_open(); barway_device_count() or its error */
	char message[512];
	unsigned ndevices;
	struct probe_device device[PROBE_DEVICES];
	/* the parent's */
	enum { PROBE_NOT_RUN, PROBE_DONE, PROBE_STUCK, PROBE_CRASHED, PROBE_NO_CHILD } end;
	int signal;
};

/* ---- another run of the same program (doctor_run.c) ----------------------------------------- */

struct run {
	enum { RUN_EXITED, RUN_STUCK, RUN_CRASHED, RUN_NOT_STARTED } end;
	int code;        /* exit status, signal, or errno */
	char *out, *err; /* to be freed with run_free() */
};

/* barway @argv[1..] with the variable @name set to @value (NULL: none), at most @seconds. */
void run_barway(struct run *r, char *const argv[], const char *name, const char *value,
		unsigned seconds);
void run_free(struct run *r);

/* Waits for a child at most @seconds; false: it was killed then. */
bool child_wait(pid_t pid, unsigned seconds, int *status);

/* What barway sanity --quick said. */
struct sanity {
	enum { SANITY_NOT_RUN, SANITY_RAN } end;
	char why_not[256];
	unsigned passed, failed, waived;
	char first_failed[64], reason[512];
};

/* ---- the doctor ---------------------------------------------------------------------------- */

#define FINDINGS 32
#define GPUS 32

struct doctor {
	/* options */
	const char *device; /* -d; NULL: all */
	unsigned seconds;   /* time limit of each part that runs by itself */
	bool json;

	/* facts */
	unsigned ngpus;     /* on the PCI bus */
	bool pci_seen;
	struct {
		char address[16], driver[32];
	} gpu[GPUS];
	bool container;
	char container_why[128];
	char module_version[64];
	bool module_loaded;

	/* the chain */
	enum check now; /* the link that is being looked at; CHECKS: what is beside it */
	enum verdict verdict[CHECKS];
	char saw[CHECKS][512]; /* evidence, good or bad; as long as a finding's */
	unsigned nfindings;
	struct finding finding[FINDINGS];

	struct probe *probe;      /* of CUDA devices */
	struct probe *soft_probe; /* where there is no GPU */
	struct sanity sanity;
	struct run info;
};

void saw(struct doctor *d, enum check check, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* @action NULL: the list's. Returns WRONG for a problem, else GOOD. */
enum verdict found(struct doctor *d, enum diagnosis_id id, const char *action, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
const struct finding *next_step(const struct doctor *d); /* NULL: nothing to do */
bool has_kind(const struct doctor *d, enum kind kind);
bool has_found(const struct doctor *d, enum diagnosis_id id);

/* doctor_system.c */
enum verdict check_pci(struct doctor *d);
enum verdict check_driver(struct doctor *d);
enum verdict check_nodes(struct doctor *d);
enum verdict check_permission(struct doctor *d);
void look_beside(struct doctor *d); /* what is no link of the chain */
unsigned driver_major(const char *version);

/* The first word like "580.159.04" at or after @text; false: none. @text NULL: none. */
bool find_version(const char *text, char *version, size_t n);

/* doctor_library.c */
enum verdict check_libcuda(struct doctor *d);
enum verdict check_cuinit(struct doctor *d);
enum verdict check_provider(struct doctor *d);
enum verdict check_bar1(struct doctor *d);
enum verdict check_mapping(struct doctor *d);
enum verdict check_sanity(struct doctor *d);
void check_soft(struct doctor *d); /* where there is no GPU */

/* doctor_probe.c: NULL: no memory. @soft: of the soft GPU instead. */
struct probe *probe_run(bool soft, const char *device, unsigned seconds);

/* doctor_sanity.c */
void doctor_sanity(struct sanity *s, bool soft, int device, unsigned seconds);

/* doctor_print.c */
void doctor_list(bool json);
void doctor_print(const struct doctor *d);
void doctor_json(const struct doctor *d);

#endif
