/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels of barway sanity, as PTX and for the soft GPU. Each has one thread and one parameter, a
 * struct by value. None runs for longer than its limit: a GPU that waits for a lost flag comes
 * back.
 */
#ifndef TOOLS_SANITY_KERNELS_H
#define TOOLS_SANITY_KERNELS_H

#include <sched.h>
#include <time.h>

#include "bench/gpu.h"

/*
 * watch_word: looks at the word at @word, of @width bytes, until *@stop is not 0. Writes to @out,
 * words of 8 bytes:
 *	0  1 once it runs; 2 when it left because of @stop; 3: because of the limit
 *	1  how often it found another value than before
 *	2  how often it found one that is neither @old nor @new
 *	3  the first of those
 */
struct watch_word {
	uint64_t word, stop, out;
	uint64_t width;
	uint64_t old, new;
	uint64_t limit_ns;
};

/*
 * watch_flag: for each round from 1 to @rounds waits until *@flag is at least the round (acquire,
 * system scope), adds up @words words of 8 bytes at @data and writes the sum to @out[1], then the
 * round to @out[0]. In the end @out[2] is 1: all rounds done, or 2: the limit was over.
 */
struct watch_flag {
	uint64_t flag, data, out;
	uint64_t words, rounds;
	uint64_t limit_ns; /* for one round */
};

#define PTX_HEAD ".version 6.3\n.target sm_70\n.address_size 64\n"

/* One look at @width bytes: LABEL and what the load is called. */
#define PTX_LOOK(label, type) \
	label ":\n ld.relaxed.sys.global." type " %v, [%word];\n bra LOOKED;\n"

static const char watch_word_ptx[] = PTX_HEAD
	".visible .entry watch_word(.param .align 8 .b8 p[56])\n{\n"
	" .reg .u64 %word, %stop, %out, %width, %old, %new, %limit;\n"
	" .reg .u64 %v, %last, %changes, %bad, %t, %start, %s, %why;\n"
	" .reg .pred %p, %q;\n"
	" ld.param.u64 %word, [p];\n ld.param.u64 %stop, [p+8];\n ld.param.u64 %out, [p+16];\n"
	" ld.param.u64 %width, [p+24];\n ld.param.u64 %old, [p+32];\n ld.param.u64 %new, [p+40];\n"
	" ld.param.u64 %limit, [p+48];\n"
	" mov.u64 %last, %old;\n mov.u64 %changes, 0;\n mov.u64 %bad, 0;\n mov.u64 %why, 2;\n"
	" mov.u64 %start, %globaltimer;\n"
	" st.relaxed.sys.global.u64 [%out], 1;\n"
	"LOOK:\n"
	" setp.eq.u64 %p, %width, 1;\n @%p bra BYTE;\n"
	" setp.eq.u64 %p, %width, 2;\n @%p bra HALF;\n"
	" setp.eq.u64 %p, %width, 4;\n @%p bra WORD;\n"
	PTX_LOOK("LONG", "u64") PTX_LOOK("WORD", "u32")
	PTX_LOOK("HALF", "u16") PTX_LOOK("BYTE", "u8")
	"LOOKED:\n"
	" setp.eq.u64 %p, %v, %last;\n @%p bra TIME;\n"
	" mov.u64 %last, %v;\n add.u64 %changes, %changes, 1;\n"
	" st.relaxed.sys.global.u64 [%out+8], %changes;\n"
	" setp.eq.u64 %p, %v, %old;\n @%p bra TIME;\n setp.eq.u64 %p, %v, %new;\n @%p bra TIME;\n"
	" setp.ne.u64 %q, %bad, 0;\n @%q bra COUNT;\n st.relaxed.sys.global.u64 [%out+24], %v;\n"
	"COUNT:\n add.u64 %bad, %bad, 1;\n st.relaxed.sys.global.u64 [%out+16], %bad;\n"
	"TIME:\n"
	" ld.relaxed.sys.global.u64 %s, [%stop];\n setp.ne.u64 %p, %s, 0;\n @%p bra DONE;\n"
	" mov.u64 %t, %globaltimer;\n sub.u64 %t, %t, %start;\n"
	" setp.lt.u64 %p, %t, %limit;\n @%p bra LOOK;\n mov.u64 %why, 3;\n"
	"DONE:\n st.release.sys.global.u64 [%out], %why;\n ret;\n}\n";

static const char watch_flag_ptx[] = PTX_HEAD
	".visible .entry watch_flag(.param .align 8 .b8 p[48])\n{\n"
	" .reg .u64 %flag, %data, %out, %words, %rounds, %limit;\n"
	" .reg .u64 %i, %k, %v, %sum, %a, %t, %start, %why;\n .reg .pred %p;\n"
	" ld.param.u64 %flag, [p];\n ld.param.u64 %data, [p+8];\n ld.param.u64 %out, [p+16];\n"
	" ld.param.u64 %words, [p+24];\n ld.param.u64 %rounds, [p+32];\n"
	" ld.param.u64 %limit, [p+40];\n"
	" mov.u64 %i, 1;\n mov.u64 %why, 1;\n"
	"ROUND:\n setp.gt.u64 %p, %i, %rounds;\n @%p bra DONE;\n mov.u64 %start, %globaltimer;\n"
	"WAIT:\n ld.acquire.sys.global.u64 %v, [%flag];\n setp.ge.u64 %p, %v, %i;\n @%p bra SEEN;\n"
	" mov.u64 %t, %globaltimer;\n sub.u64 %t, %t, %start;\n"
	" setp.lt.u64 %p, %t, %limit;\n @%p bra WAIT;\n mov.u64 %why, 2;\n bra DONE;\n"
	"SEEN:\n mov.u64 %sum, 0;\n mov.u64 %k, 0;\n"
	"SUM:\n setp.ge.u64 %p, %k, %words;\n @%p bra ANSWER;\n"
	" mad.lo.u64 %a, %k, 8, %data;\n ld.relaxed.sys.global.u64 %v, [%a];\n"
	" add.u64 %sum, %sum, %v;\n add.u64 %k, %k, 1;\n bra SUM;\n"
	"ANSWER:\n st.relaxed.sys.global.u64 [%out+8], %sum;\n"
	" st.release.sys.global.u64 [%out], %i;\n add.u64 %i, %i, 1;\n bra ROUND;\n"
	"DONE:\n st.release.sys.global.u64 [%out+16], %why;\n ret;\n}\n";

/* ---- the same for the soft GPU ----------------------------------------------------------- */

static inline uint64_t soft_timer(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t soft_look(const void *p, uint64_t width)
{
	switch (width) {
	case 1:
		return __atomic_load_n((const uint8_t *)p, __ATOMIC_RELAXED);
	case 2:
		return __atomic_load_n((const uint16_t *)p, __ATOMIC_RELAXED);
	case 4:
		return __atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED);
	default:
		return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
	}
}

static void watch_word_soft(struct barway_soft_block *block, void *arg)
{
	const struct watch_word *w = arg;
	const void *word = barway_soft_deref(block, w->word, w->width);
	uint64_t *stop = barway_soft_deref(block, w->stop, 8);
	uint64_t *out = barway_soft_deref(block, w->out, 32);
	uint64_t last = w->old, changes = 0, bad = 0, why = 2, start = soft_timer(), v;
	unsigned idle = 0;

	if (!word || !stop || !out) {
		barway_soft_trap(block);
		return;
	}
	__atomic_store_n(&out[0], 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		v = soft_look(word, w->width);
		if (v != last) {
			__atomic_store_n(&out[1], ++changes, __ATOMIC_RELAXED);
			if (v != w->old && v != w->new) {
				if (!bad)
					__atomic_store_n(&out[3], v, __ATOMIC_RELAXED);
				__atomic_store_n(&out[2], ++bad, __ATOMIC_RELAXED);
			}
			last = v;
		} else if (++idle % 256 == 0) {
			sched_yield(); /* the CPU that writes may be the same one */
		}
		if (soft_timer() - start >= w->limit_ns || barway_soft_trapped(block)) {
			why = 3;
			break;
		}
	}
	__atomic_store_n(&out[0], why, __ATOMIC_RELEASE);
}

/* False: the limit was over. */
static inline bool soft_wait(struct barway_soft_block *block, const uint64_t *flag, uint64_t round,
			     uint64_t limit_ns)
{
	uint64_t start = soft_timer();

	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < round) {
		if (soft_timer() - start >= limit_ns || barway_soft_trapped(block))
			return false;
		sched_yield();
	}
	return true;
}

static void watch_flag_soft(struct barway_soft_block *block, void *arg)
{
	const struct watch_flag *w = arg;
	const uint64_t *flag = barway_soft_deref(block, w->flag, 8);
	const uint64_t *data = barway_soft_deref(block, w->data, w->words * 8);
	uint64_t *out = barway_soft_deref(block, w->out, 24);
	uint64_t why = 1;

	if (!flag || !data || !out) {
		barway_soft_trap(block);
		return;
	}
	for (uint64_t i = 1; i <= w->rounds; i++) {
		uint64_t sum = 0;

		if (!soft_wait(block, flag, i, w->limit_ns)) {
			why = 2;
			break;
		}
		for (uint64_t k = 0; k < w->words; k++)
			sum += __atomic_load_n(&data[k], __ATOMIC_RELAXED);
		__atomic_store_n(&out[1], sum, __ATOMIC_RELAXED);
		__atomic_store_n(&out[0], i, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&out[2], why, __ATOMIC_RELEASE);
}

static const struct bench_kernel watch_word_kernel = {
	"watch_word", watch_word_ptx, watch_word_soft,
};
static const struct bench_kernel watch_flag_kernel = {
	"watch_flag", watch_flag_ptx, watch_flag_soft,
};

#endif
