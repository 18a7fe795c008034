/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy/plan: which method for which copy.
 *
 * A plan is a set of curves: for each method, direction and kind of host memory, times of copies at
 * a few sizes, between which times are interpolated. They are built in for known machines, or read
 * from a file that bw_tune() wrote on this one. The choice is the method that can (its score) with
 * the least time; one CPU thread, unless another is better by more than 1/32; the resident copier
 * only where it is better by much (RESIDENT_GAIN in plan.c). What is asked on every copy, "is it so
 * small that this thread does it?", is two sizes kept in the mapping (bw_mapping.cpu_to,
 * .cpu_from): up to them no other method is asked.
 */
#ifndef BW_COPY_PLAN_H
#define BW_COPY_PLAN_H

#include "copy/copy.h"

#define BW_PLAN_POINTS 32

/* One for each method, and the copy engine's where helper threads copy between the caller's
 * pageable memory and its ring. */
#define BW_CURVE_CE_HELPED BW_METHODS
#define BW_CURVES (BW_METHODS + 1)

struct bw_curve {
	unsigned n;                     /* 0: not known, never chosen */
	uint64_t bytes[BW_PLAN_POINTS]; /* ascending */
	uint64_t ns[BW_PLAN_POINTS];
};

/* Sizes of copies, bytes, from and to; 0 and 0: none. */
struct bw_sizes {
	uint32_t first, last;
};

struct bw_plan {
	char source[96];
	char file[512]; /* which it was read from, "": built in */
	char ignored[512]; /* why a file that is there was not taken; "": there is none such */
	unsigned threads; /* helpers and the caller, with which the curves of threads were taken */
	struct bw_curve curve[BW_CURVES][2][2]; /* [method][direction - 1][pinned] */
	/* Sizes up to which one CPU thread is the choice whatever the host memory is, of all
	 * methods but those of a set of BW_PLAN_WITHOUT_...; filled by bw_plan_of(). */
	uint32_t cpu_limit[4][2]; /* [set][direction - 1] */
	struct bw_sizes for_threads[4][2]; /* the same of several: a question less to the driver */
};

#define BW_PLAN_WITHOUT_THREADS 1u
#define BW_PLAN_WITHOUT_RESIDENT 2u

/* The plan of a device: found at the first call, kept; never NULL. */
const struct bw_plan *bw_plan_of(struct bw_device *dev);
/* Forgets them all; they are found again. Between contexts only. */
void bw_plan_forget(void);

/* Nanoseconds; UINT64_MAX where there is no curve, and only there. */
uint64_t bw_curve_ns(const struct bw_curve *curve, uint64_t bytes);

/* The choice of these times, each of a method; UINT64_MAX: it cannot. One CPU thread always can. */
enum bw_method bw_plan_best(const uint64_t ns[BW_METHODS]);

/* The curve for this copy by a method. */
const struct bw_curve *bw_plan_curve(const struct bw_plan *plan, enum bw_method method,
				     const struct bw_copy *copy);

/* Works these limits out, for all methods. */
void bw_plan_limits(const struct bw_plan *plan, size_t *cpu_to, size_t *cpu_from);
/* And for which sizes several threads are, of all methods but those of the set @without. */
struct bw_sizes bw_plan_for_threads(const struct bw_plan *plan, unsigned without,
				    enum bw_direction direction);

/* The method for a copy whose host side has been found; never NULL: one CPU thread always can.
 * @why, unless NULL: each method's estimate, or why it refuses. */
const struct bw_copy_method *bw_plan_choose(const struct bw_copy *copy, uint64_t *estimate_ns,
					    struct bw_reason *why);

/* A blocking copy by @method; BW_METHOD_AUTO: as planned, by the next best where that cannot. */
int bw_copy_run(struct bw_copy *copy, enum bw_method method);

/* ---- built in: plan_built_in.c --------------------------------------------------------------- */

/* The figures for this device, or those of the machine that is most like it; says so in source. */
void bw_plan_built_in(const struct bw_device *dev, struct bw_plan *plan);
/* One CPU thread for everything. */
const struct bw_plan *bw_plan_least(void);

/* ---- the file: plan_file.c ------------------------------------------------------------------- */

/* A plan in the text of such a file, of whatever machine. */
int bw_plan_parse(const char *text, struct bw_plan *plan);

/* Reads the plan of @dev from its file; -ENOENT there is none, -EBADMSG it cannot be taken. */
int bw_plan_read(const struct bw_device *dev, struct bw_plan *plan);
/* Replaces the file as a whole. @path NULL: its place, made where it is missing. */
int bw_plan_write(const struct bw_device *dev, const struct bw_plan *plan, const char *path);

/* ---- measuring: tune.c ----------------------------------------------------------------------- */

struct bw_tune_point {
	enum bw_direction direction;
	enum bw_method method;
	bool pinned;
	unsigned threads;
	uint64_t bytes, ns, min_ns, p99_ns;
	unsigned done, total;
};
int bw_tune(struct bw_mapping *map, int (*fn)(void *arg, const struct bw_tune_point *point),
	    void *arg, struct bw_plan *out);

#endif
