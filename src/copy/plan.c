/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/plan.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy/resident.h"
#include "core/fault.h"
#include "core/fork.h"
#include "core/log.h"

/* ---- plans of devices ------------------------------------------------------------------------ */

struct known {
	struct known *next;
	const struct bw_device *dev;
	struct bw_plan plan;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *_Atomic known; /* grows at its head; entries stay until bw_plan_forget() */

__attribute__((constructor(BW_FORK_PLAN))) static void register_fork(void)
{
	bw_fork_lock(&lock);
}

static const struct bw_plan *look(const struct bw_device *dev)
{
	for (struct known *k = known; k; k = k->next)
		if (k->dev == dev)
			return &k->plan;
	return NULL;
}

static void fill_limits(struct bw_plan *plan);

static void find(const struct bw_device *dev, struct bw_plan *plan)
{
	char ignored[sizeof(plan->ignored)] = "";
	struct bw_sentence kept;
	int ret;

	bw_err_keep(&kept);
	ret = bw_plan_read(dev, plan);
	if (ret && ret != -ENOENT)
		snprintf(ignored, sizeof(ignored), "%s", bw_err_text());
	bw_err_put_back(&kept);
	if (*ignored)
		bw_log(BW_LOG_WARN, "%s: the built-in plan is taken", ignored);
	if (ret)
		bw_plan_built_in(dev, plan);
	memcpy(plan->ignored, ignored, sizeof(ignored));
	fill_limits(plan);
}

const struct bw_plan *bw_plan_of(struct bw_device *dev)
{
	const struct bw_plan *plan = look(dev);
	struct known *k;

	if (plan)
		return plan;
	pthread_mutex_lock(&lock);
	plan = look(dev);
	if (!plan) {
		k = bw_alloc(sizeof(*k));
		if (k) {
			k->dev = dev;
			k->next = known;
			find(dev, &k->plan);
			known = k;
			plan = &k->plan;
		}
	}
	pthread_mutex_unlock(&lock);
	return plan ? plan : bw_plan_least();
}

void bw_plan_forget(void)
{
	struct known *k;

	pthread_mutex_lock(&lock);
	k = known;
	known = NULL;
	pthread_mutex_unlock(&lock);
	while (k) {
		struct known *next = k->next;

		free(k);
		k = next;
	}
}

/* ---- curves ---------------------------------------------------------------------------------- */

uint64_t bw_curve_ns(const struct bw_curve *c, uint64_t bytes)
{
	unsigned i = 0;
	double slope, ns;

	if (!c->n)
		return UINT64_MAX;
	if (c->n == 1 || bytes <= c->bytes[0])
		return c->ns[0];
	while (i + 2 < c->n && bytes > c->bytes[i + 1])
		i++;
	/* past the end: on along the last stretch, but never down */
	if (bytes > c->bytes[i + 1] && c->ns[i + 1] < c->ns[i])
		return c->ns[i + 1];
	slope = ((double)c->ns[i + 1] - (double)c->ns[i]) /
		(double)(c->bytes[i + 1] - c->bytes[i]);
	ns = (double)c->ns[i] + slope * (double)(bytes - c->bytes[i]);
	/* a steep one may leave the type, whose last value says that there is no curve */
	return ns < 0x1p64 ? (uint64_t)ns : UINT64_MAX - 1;
}

/* Another method than one CPU thread has to be better by this part: it costs more to begin, and CPU
 * caches. */
#define PREFERENCE 32

static bool better(uint64_t ns, uint64_t cpu_ns)
{
	return ns != UINT64_MAX && ns < cpu_ns - cpu_ns / PREFERENCE;
}

/*
 * The resident copier has to be better than the next best by so many percent. It takes a
 * multiprocessor from the program's kernels, holds up what waits for the device, and its times
 * depend on more than theirs: to the GPU 1 MiB took it 27 us of memory that was in the CPU's
 * cache and 43 of other memory, where the copy engine took 29 and 37 (H200, driver 580.159.04). A
 * gain that is lost with the next buffer is none.
 */
#define RESIDENT_GAIN 15

static bool clearly_better(uint64_t ns, uint64_t next_ns)
{
	return ns != UINT64_MAX && (double)ns <= (double)next_ns * (100 - RESIDENT_GAIN) / 100;
}

static enum bw_method best_but_resident(const uint64_t ns[BW_METHODS])
{
	unsigned best = BW_METHOD_CPU + 1;

	for (unsigned id = best; id < BW_METHODS; id++)
		if (id != BW_METHOD_RESIDENT && ns[id] < ns[best])
			best = id;
	return better(ns[best], ns[BW_METHOD_CPU]) ? best : BW_METHOD_CPU;
}

enum bw_method bw_plan_best(const uint64_t ns[BW_METHODS])
{
	enum bw_method best = best_but_resident(ns);

	return clearly_better(ns[BW_METHOD_RESIDENT], ns[best]) ? BW_METHOD_RESIDENT : best;
}

static const struct bw_curve *curve_of(const struct bw_plan *plan, unsigned method,
				       unsigned direction, bool pinned, bool helped)
{
	if (method == BW_METHOD_CE && !pinned && helped &&
	    plan->curve[BW_CURVE_CE_HELPED][direction][0].n)
		return &plan->curve[BW_CURVE_CE_HELPED][direction][0];
	return &plan->curve[method][direction][pinned];
}

const struct bw_curve *bw_plan_curve(const struct bw_plan *plan, enum bw_method method,
				     const struct bw_copy *copy)
{
	return curve_of(plan, method, copy->direction - 1, copy->pinned,
			copy->map->copy_threads != 0);
}

static bool is_in(unsigned set, unsigned id)
{
	return (set & BW_PLAN_WITHOUT_THREADS &&
		(id == BW_METHOD_THREADS || id == BW_CURVE_CE_HELPED)) ||
	       (set & BW_PLAN_WITHOUT_RESIDENT && id == BW_METHOD_RESIDENT);
}

/* Is the method of a curve taken rather than one CPU thread? */
static bool is_taken(unsigned id, uint64_t ns, uint64_t cpu_ns)
{
	return id == BW_METHOD_RESIDENT ? clearly_better(ns, cpu_ns) : better(ns, cpu_ns);
}

static uint32_t limit(const struct bw_plan *plan, unsigned without, unsigned direction)
{
	const struct bw_curve *cpu = &plan->curve[BW_METHOD_CPU][direction][0], *other;

	for (unsigned shift = 8; shift < 31; shift++) {
		for (unsigned quarter = 0; quarter < 4; quarter++) {
			uint32_t bytes = (4u + quarter) << (shift - 2);
			uint64_t ns = bw_curve_ns(cpu, bytes);

			for (unsigned id = BW_METHOD_CPU + 1; id < BW_CURVES; id++) {
				other = plan->curve[id][direction];
				if (!is_in(without, id) &&
				    (is_taken(id, bw_curve_ns(&other[0], bytes), ns) ||
				     is_taken(id, bw_curve_ns(&other[1], bytes), ns)))
					return bytes - 1;
			}
		}
	}
	return UINT32_MAX;
}

/* Are several threads the choice for pageable memory and for pinned? */
static bool is_for_threads(const struct bw_plan *plan, unsigned without, unsigned direction,
			   uint32_t bytes)
{
	for (unsigned pinned = 0; pinned < 2; pinned++) {
		uint64_t ns[BW_METHODS];

		for (unsigned id = 0; id < BW_METHODS; id++)
			ns[id] = id == BW_METHOD_AUTO || is_in(without, id) ? UINT64_MAX :
				 bw_curve_ns(curve_of(plan, id, direction, pinned, true), bytes);
		if (bw_plan_best(ns) != BW_METHOD_THREADS)
			return false;
	}
	return true;
}

struct bw_sizes bw_plan_for_threads(const struct bw_plan *plan, unsigned without,
				    enum bw_direction direction)
{
	struct bw_sizes sizes = { 0, 0 };

	for (unsigned shift = 8; shift < 31; shift++) {
		for (unsigned quarter = 0; quarter < 4; quarter++) {
			uint32_t bytes = (4u + quarter) << (shift - 2);

			if (is_for_threads(plan, without, direction - 1, bytes)) {
				sizes.first = sizes.first ? sizes.first : bytes;
				sizes.last = bytes;
			} else if (sizes.first) {
				return sizes;
			}
		}
	}
	return sizes;
}

void bw_plan_limits(const struct bw_plan *plan, size_t *cpu_to, size_t *cpu_from)
{
	*cpu_to = limit(plan, 0, BW_TO_GPU - 1);
	*cpu_from = limit(plan, 0, BW_FROM_GPU - 1);
}

static void fill_limits(struct bw_plan *plan)
{
	for (unsigned set = 0; set < 4; set++) {
		for (unsigned direction = 0; direction < 2; direction++) {
			plan->cpu_limit[set][direction] = limit(plan, set, direction);
			plan->for_threads[set][direction] =
				bw_plan_for_threads(plan, set, (enum bw_direction)(direction + 1));
		}
	}
}

/* ---- the choice ------------------------------------------------------------------------------ */

static void explain(struct bw_reason *why, const char *name, uint64_t ns, const char *text)
{
	size_t at = strlen(why->text);

	if (ns == UINT64_MAX)
		snprintf(why->text + at, sizeof(why->text) - at, "%s%s: %s", at ? "; " : "", name,
			 text);
	else
		snprintf(why->text + at, sizeof(why->text) - at, "%s%s: %.*f us", at ? "; " : "",
			 name, ns < 10000 ? 2 : 1, (double)ns / 1000);
}

static void explain_resident(struct bw_reason *why)
{
	size_t at = strlen(why->text);

	snprintf(why->text + at, sizeof(why->text) - at,
		 ", not taken for a gain of less than %u %%", RESIDENT_GAIN);
}

/* UINT64_MAX: it cannot, or there are no figures; with the reason, where somebody wants it. */
static uint64_t estimate(const struct bw_plan *plan, const struct bw_copy_method *method,
			 const struct bw_copy *copy, struct bw_reason *reason)
{
	uint64_t ns;

	if (method->score(copy, reason) < 0)
		return UINT64_MAX;
	ns = bw_curve_ns(bw_plan_curve(plan, method->id, copy), copy->bytes);
	if (ns == UINT64_MAX)
		bw_reason_set(reason, "no figures: run 'barway tune'");
	return ns;
}

const struct bw_copy_method *bw_plan_choose(const struct bw_copy *copy, uint64_t *estimate_ns,
					    struct bw_reason *why)
{
	const struct bw_plan *plan = bw_plan_of(copy->map->win->segs[0].dev);
	uint64_t times[BW_METHODS];
	enum bw_method best;

	for (unsigned i = 0; i < BW_METHODS; i++)
		times[i] = UINT64_MAX;
	if (why)
		why->text[0] = '\0';
	for (unsigned i = 0; bw_copy_methods[i]; i++) {
		const struct bw_copy_method *method = bw_copy_methods[i];
		struct bw_reason reason = { "" };
		uint64_t ns = estimate(plan, method, copy, why ? &reason : NULL);

		if (why)
			explain(why, method->name, ns, reason.text);
		times[method->id] = ns;
	}
	best = bw_plan_best(times);
	if (estimate_ns)
		*estimate_ns = times[best];
	if (why && times[BW_METHOD_RESIDENT] < times[best])
		explain_resident(why);
	return bw_copy_method(best);
}

static bool has_not_begun(int ret)
{
	return ret == -EFAULT || ret == -ENOTSUP || ret == -ENOMEM || ret == -EAGAIN ||
	       ret == -ENODEV;
}

/* No silent slow path: once, with what keeps the better one from it. */
static void report(const struct bw_copy_method *method)
{
	static _Atomic bool told;

	if (!told) {
		told = true;
		bw_log(BW_LOG_WARN, "copy by %s: %s: one CPU thread copies instead", method->name,
		       bw_err_text());
	}
}

/* Need nobody be asked whose memory it is? No resident copier is there, whose sizes they are. */
static bool is_for_cpu(const struct bw_copy *copy)
{
	const struct bw_mapping *m = copy->map;
	size_t alone = copy->direction == BW_TO_GPU ? m->cpu_alone_to : m->cpu_alone_from;

	return copy->bytes <= alone && !bw_resident_any();
}

/* The method for a copy of which nobody need be asked whose memory it is; NULL: that matters. */
static const struct bw_copy_method *at_once(const struct bw_copy *copy)
{
	unsigned without = bw_resident_any() ? 0 : BW_PLAN_WITHOUT_RESIDENT;
	const struct bw_sizes *sizes;

	if (is_for_cpu(copy))
		return bw_copy_method(BW_METHOD_CPU);
	if (!copy->map->copy_threads)
		return NULL;
	sizes = &bw_plan_of(copy->map->win->segs[0].dev)->for_threads[without][copy->direction - 1];
	return copy->bytes >= sizes->first && copy->bytes <= sizes->last ?
	       bw_copy_method(BW_METHOD_THREADS) : NULL;
}

int bw_copy_run(struct bw_copy *copy, enum bw_method id)
{
	const struct bw_copy_method *method, *chosen = NULL;
	struct bw_sentence kept;
	int ret;

	method = bw_copy_method(id);
	if (id != BW_METHOD_AUTO && !method)
		return bw_err(ENOTSUP, "method %u is not a value of enum barway_method", id);
	if (!copy->bytes)
		return 0;
	if (id == BW_METHOD_AUTO)
		chosen = at_once(copy);
	if (!chosen && id != BW_METHOD_CPU)
		bw_copy_find_host(copy);
	if (method) { /* asked for by name */
		ret = bw_copy_refused(method, copy);
		return ret ? ret : method->copy(copy);
	}
	method = chosen ? chosen : bw_plan_choose(copy, NULL, NULL);
	bw_err_keep(&kept);
	ret = method->copy(copy);
	if (!has_not_begun(ret))
		return ret;
	report(method);
	bw_err_put_back(&kept);
	return bw_copy_method(BW_METHOD_CPU)->copy(copy);
}
