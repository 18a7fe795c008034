/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/pause.h"

#include <sched.h>
#include <time.h>

#define BYTES_PER_NS 64     /* more than PCIe 5.0 x16 moves: no sleep beyond the end */
#define BUSY_NS 50000       /* polled so long without a thought for others */
#define EARLY_NS 150000     /* a sleep ends so long before, as it may be late by 50 us and more */
#define LEAST_SLEEP_NS 20000
#define MOST_SLEEP_NS 1000000
#define LATE_SHARE 16       /* what is late is slept for in steps of 1/16 of the time so far */
#define TURNS 16            /* between looks at the clock */

void bw_pause_begin(struct bw_pause *p, uint64_t bytes)
{
	p->since_ns = 0;
	p->expect_ns = bytes / BYTES_PER_NS;
	p->turns = 0;
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

static void sleep_ns(uint64_t ns, uint64_t now, uint64_t until_ns)
{
	struct timespec t;

	if (until_ns - now < ns)
		ns = until_ns - now;
	t.tv_sec = (time_t)(ns / 1000000000);
	t.tv_nsec = (long)(ns % 1000000000);
	nanosleep(&t, NULL);
}

void bw_pause(struct bw_pause *p, uint64_t until_ns)
{
	uint64_t now, passed, late;

	if (++p->turns % TURNS && p->since_ns) {
		relax();
		return;
	}
	now = bw_now_ns();
	if (!p->since_ns)
		p->since_ns = now;
	if (now >= until_ns)
		return;
	passed = now - p->since_ns;
	if (passed + 2 * EARLY_NS < p->expect_ns) {
		sleep_ns(p->expect_ns - passed - EARLY_NS, now, until_ns);
	} else if (passed < p->expect_ns + 2 * EARLY_NS) {
		if (passed < BUSY_NS)
			relax();
		else
			sched_yield();
	} else {
		p->turns = TURNS - 1; /* the clock is looked at after each sleep */
		late = (passed - p->expect_ns) / LATE_SHARE;
		sleep_ns(late < LEAST_SLEEP_NS ? LEAST_SLEEP_NS :
			 late > MOST_SLEEP_NS ? MOST_SLEEP_NS : late, now, until_ns);
	}
}
