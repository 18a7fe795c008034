/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of kernels, what this CPU can run, and which kernel a mapping gets. */
#include "core/param.h"
#include "mmio/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

const struct bw_mmio_kernel *const bw_mmio_kernels[] = {
	&bw_mmio_c,
#if defined(__x86_64__)
	&bw_mmio_sse2,
	&bw_mmio_sse2_cached,
	&bw_mmio_sse41,
	&bw_mmio_avx2,
	&bw_mmio_avx2_cached,
	&bw_mmio_avx512,
	&bw_mmio_avx512_cached,
	&bw_mmio_movdir64b,
#elif defined(__aarch64__)
	&bw_mmio_neon,
#endif
	NULL
};

/* All words of a list, also of other architectures: a configuration may be shared between them. */
static const struct {
	const char *word;
	uint32_t mask;
} words[] = {
	{ "all", ~0u },
	{ "c", BW_ISA_C },
	{ "sse2", BW_ISA_SSE2 },
	{ "sse41", BW_ISA_SSE41 },
	{ "avx2", BW_ISA_AVX2 },
	{ "avx512", BW_ISA_AVX512 },
	{ "movdir64b", BW_ISA_MOVDIR64B },
	{ "neon", BW_ISA_NEON },
};

#if defined(__x86_64__)

/*
 * Intel SDM vol. 2, "CPUID" for the feature bits; vol. 1, "Detection of AVX Instructions" and
 * "Detection of AVX-512 Foundation Instructions" for the register state that the operating system
 * must have enabled.
 */
#define LEAF1_ECX_SSE41 (1u << 19)
#define LEAF1_ECX_OSXSAVE (1u << 27)
#define LEAF1_ECX_AVX (1u << 28)
#define LEAF7_EBX_AVX2 (1u << 5)
#define LEAF7_EBX_AVX512F (1u << 16)
#define LEAF7_ECX_MOVDIR64B (1u << 28)
#define XCR0_YMM 0x06u /* SSE and upper halves of YMM */
#define XCR0_ZMM 0xe6u /* and opmask, upper halves of ZMM0-15, ZMM16-31 */

static uint32_t xcr0(void)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

static uint32_t arch_isa(void)
{
	uint32_t a, b, c, d, state = 0, isa = BW_ISA_SSE2;
	bool avx;

	if (!__get_cpuid(1, &a, &b, &c, &d))
		return isa;
	if (c & LEAF1_ECX_SSE41)
		isa |= BW_ISA_SSE41;
	if (c & LEAF1_ECX_OSXSAVE)
		state = xcr0();
	avx = (c & LEAF1_ECX_AVX) && (state & XCR0_YMM) == XCR0_YMM;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return isa;
	if (avx && (b & LEAF7_EBX_AVX2))
		isa |= BW_ISA_AVX2;
	if (avx && (b & LEAF7_EBX_AVX512F) && (state & XCR0_ZMM) == XCR0_ZMM)
		isa |= BW_ISA_AVX512;
	if (c & LEAF7_ECX_MOVDIR64B)
		isa |= BW_ISA_MOVDIR64B;
	return isa;
}

#elif defined(__aarch64__)

static uint32_t arch_isa(void)
{
	return BW_ISA_NEON;
}

#else

static uint32_t arch_isa(void)
{
	return 0;
}

#endif

/* Asked once: under a hypervisor each question to the CPU takes a while. */
uint32_t bw_mmio_cpu_isa(void)
{
	static _Atomic uint32_t known;
	uint32_t isa = known;

	if (!isa)
		known = isa = BW_ISA_C | arch_isa();
	return isa;
}

static uint32_t isa_of(const char *word, size_t n)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (bw_word_is(word, n, words[i].word))
			return words[i].mask;
	return 0;
}

bool bw_mmio_parse_isa(const char *list, uint32_t *mask, const char **bad, size_t *n)
{
	uint32_t sum = 0, isa;

	while (bw_list_next(&list, bad, n)) {
		isa = isa_of(*bad, *n);
		if (!isa)
			return false;
		sum |= isa;
	}
	if (!sum)
		return false;
	*mask = sum;
	return true;
}

struct bw_mmio_choice bw_mmio_choose(enum bw_caching caching, uint32_t isa)
{
	struct bw_mmio_choice best = { &bw_mmio_c, &bw_mmio_c };

	for (size_t i = 0; bw_mmio_kernels[i]; i++) {
		const struct bw_mmio_kernel *k = bw_mmio_kernels[i];

		if (!(k->isa & isa) || !(k->caching & 1u << caching))
			continue;
		if (k->store && k->store_score > best.store->store_score)
			best.store = k;
		if (k->load && k->load_score > best.load->load_score)
			best.load = k;
	}
	return best;
}

static _Atomic uint32_t allowed = ~0u;

void bw_mmio_allow(uint32_t isa)
{
	allowed = isa;
}

uint32_t bw_mmio_allowed(void)
{
	return allowed & bw_mmio_cpu_isa();
}
