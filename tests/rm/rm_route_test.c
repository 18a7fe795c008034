/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How memory is found: through the hook, the tap, an exported handle, an ipc handle, or not at all.
 * Built a second time with libbarway-tap.so in front of the fake (WITH_TAP), and run on each fake
 * libcuda: bound late, bound at start, read-only.
 */
#include <elf.h>
#include <link.h>

#include "rm_test.h"

#ifdef WITH_TAP
/* so that it is linked in any case, sanitizers have an ioctl of their own */
typedef int tap_seen(void *arg, int fd, unsigned long request, void *params);
void barway_ioctl_tap(tap_seen *seen, void *arg);
#define ROUTE "dma-buf tap"
#else
#define ROUTE "dma-buf hook"
#endif

/* ---- libcuda's slot for ioctl, found without Barway ------------------------------------------ */

static void *volatile *slot;
static bool slot_read_only;

static int look_for_slot(struct dl_phdr_info *lib, size_t size, void *arg)
{
	const ElfW(Dyn) *dyn = NULL;
	const ElfW(Sym) *symbols = NULL;
	const ElfW(Rela) *rela = NULL;
	const char *strings = NULL;
	size_t bytes = 0;
	uintptr_t relro = 0, relro_end = 0;

	(void)size;
	(void)arg;
	if (!strstr(lib->dlpi_name, "libcuda.so.1"))
		return 0;
	for (int i = 0; i < lib->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &lib->dlpi_phdr[i];

		if (p->p_type == PT_DYNAMIC)
			dyn = (const ElfW(Dyn) *)(lib->dlpi_addr + p->p_vaddr);
		if (p->p_type == PT_GNU_RELRO) {
			relro = lib->dlpi_addr + p->p_vaddr;
			relro_end = relro + p->p_memsz;
		}
	}
	for (; dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_SYMTAB)
			symbols = (const ElfW(Sym) *)dyn->d_un.d_ptr;
		if (dyn->d_tag == DT_STRTAB)
			strings = (const char *)dyn->d_un.d_ptr;
		if (dyn->d_tag == DT_JMPREL)
			rela = (const ElfW(Rela) *)dyn->d_un.d_ptr;
		if (dyn->d_tag == DT_PLTRELSZ)
			bytes = dyn->d_un.d_val;
	}
	for (size_t i = 0; i < bytes / sizeof(*rela); i++) {
		if (strcmp(strings + symbols[ELF64_R_SYM(rela[i].r_info)].st_name, "ioctl"))
			continue;
		slot = (void *volatile *)(lib->dlpi_addr + rela[i].r_offset);
		slot_read_only = (uintptr_t)slot >= relro && (uintptr_t)slot < relro_end;
	}
	return 1;
}

static uint64_t mem;
static void *slot_before;

static void begin(void)
{
#ifdef WITH_TAP
	barway_ioctl_tap(NULL, NULL);
#endif
	start();
	barway_set_log(NULL, NULL, 0);
	dl_iterate_phdr(look_for_slot, NULL);
	CHECK(slot);
	slot_before = *slot;
	mem = gpu_alloc(300000);
}

static void end(void)
{
	CHECK(*slot == slot_before);
	gpu_free(mem);
	finish();
	CHECK_EQ(fakenv_get("dmabufs"), 0);
}

static void expect_route(uint64_t addr, size_t n, const char *route)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping_info info = { .size = sizeof(info) };
	struct barway_mapping *m;

	OK(barway_map(ctx, addr, n, &o, &m));
	CHECK(*slot == slot_before);
	OK(barway_mapping_query(m, &info));
	CHECK_STR(info.route, route);
	OK(barway_unmap(m));
	prove(addr, n, addr, n, BARWAY_MAP_UNCACHED);
	CHECK(*slot == slot_before);
}

static bool can_look(void)
{
#ifdef WITH_TAP
	return true;
#else
	return !slot_read_only;
#endif
}

static void by_default(void)
{
	struct barway_mapping *m;
	unsigned long long pool;
	struct vmm v;

	begin();
	if (!can_look()) {
		REFUSED(barway_map(ctx, mem, 100, NULL, &m), ENOTSUP, "it is read-only");
		CHECK_HAS(barway_errmsg(), "preload libbarway-tap.so");
		vmm_alloc(&v, 2, CUF_HANDLE_POSIX_FD, NULL); /* needs no look */
		expect_route(v.addr + 77, VMM_STEP, "vmm import");
		vmm_free(&v);
		CHECK_EQ(fakenv_get("shares_all"), 0);
		end();
		return;
	}
	for (int i = 0; i < 20; i++)
		expect_route(mem + 4096u * (unsigned)i + 7, 5000, ROUTE);
	CU_OK(cuMemAllocAsync(&pool, 70000, stream));
	expect_route(pool, 70000, ROUTE);
	CU_OK(cuMemFreeAsync(pool, stream));
	for (int with = 0; with < 2; with++) {
		vmm_alloc(&v, 3, with ? CUF_HANDLE_POSIX_FD : 0, NULL);
		expect_route(v.addr + VMM_STEP + 77, VMM_STEP, ROUTE);
		vmm_free(&v);
	}
	/* a refused map leaves the slot alone too */
	REFUSED(barway_map(ctx, mem, 9u << 20, NULL, &m), EFAULT, "ends beyond");
	set("tamper", "export_short");
	REFUSED(barway_map(ctx, mem, 5000, NULL, &m), EIO, "libcuda named");
	CHECK(*slot == slot_before);
	set("tamper", "");
	/* the program's own use of what was looked at */
	{
		int fd = -1;

		CU_OK(cuMemGetHandleForAddressRange(&fd, mem & ~4095ull, 4096, 1, 0));
		CHECK_EQ(fakenv_get("dmabufs"), 1);
		close(fd);
	}
	CHECK_EQ(fakenv_get("shares_all"), 0);
	end();
}

/* After a few exports to get to know libcuda the kernel is not bothered with them. */
static void exports_are_withheld(void)
{
	long exports;

	begin();
	if (!can_look()) {
		end();
		return;
	}
	expect_route(mem, 100, ROUTE);
	exports = fakenv_get("exports");
	CHECK(exports > 0);
	for (int i = 0; i < 10; i++)
		expect_route(mem + 100 + (unsigned)i, 100000, ROUTE);
	CHECK_EQ(fakenv_get("exports"), exports);
	end();
}

/* Where one of them fails, all go to the kernel, and the mappings are right. */
static void exports_go_on_to_the_kernel(void)
{
	struct vmm v;
	long exports;

	begin();
	if (!can_look()) {
		end();
		return;
	}
	fakenv_fail_ioctl(0xd9, 2, 0x51);
	expect_route(mem, 100, ROUTE);
	exports = fakenv_get("exports");
	for (int i = 0; i < 10; i++)
		expect_route(mem + 100 + (unsigned)i, 100000, ROUTE);
	CHECK(fakenv_get("exports") >= exports + 20);
	vmm_alloc(&v, 2, 0, NULL);
	expect_route(v.addr + 100, 2 * VMM_STEP - 200, ROUTE);
	vmm_free(&v);
	end();
}

/* The tap and the hook may be chosen by parameter. */
static void the_hook_alone(void)
{
	struct barway_mapping *m;

	begin();
	if (slot_read_only) {
		REFUSED(barway_map(ctx, mem, 100, NULL, &m), EIO, "it is read-only");
		CHECK(!strstr(barway_errmsg(), "tap: "));
	} else {
		expect_route(mem + 5, 70000, "dma-buf hook");
	}
	end();
}

static void the_tap_alone(void)
{
	struct barway_mapping *m;

	begin();
#ifdef WITH_TAP
	(void)m;
	expect_route(mem + 5, 70000, "dma-buf tap");
#else
	REFUSED(barway_map(ctx, mem, 100, NULL, &m), EIO, "libbarway-tap.so is not preloaded");
	CHECK(!strstr(barway_errmsg(), "hook: "));
#endif
	end();
}

static void handles_and_ipc(void)
{
	struct barway_mapping *m;
	struct vmm v;

	begin();
	CHECK_EQ(fakenv_get("shares_all"), 0);
	expect_route(mem + 512, 70000, "ipc handle");
	CHECK(fakenv_get("shares_all") > 0);
	vmm_alloc(&v, 2, CUF_HANDLE_POSIX_FD, NULL);
	expect_route(v.addr + VMM_STEP - 10000, 20000, "vmm import");
	vmm_free(&v);
	vmm_alloc(&v, 1, 0, NULL); /* cannot be exported */
	REFUSED(barway_map(ctx, v.addr, 100, NULL, &m), ENOTSUP, "not memory with a POSIX handle");
	CHECK_HAS(barway_errmsg(), "ipc: not cudaMalloc memory");
	vmm_free(&v);
	CHECK_EQ(fakenv_get("exports"), 0);
	end();
}

/* A neighbour of 512 bytes lies before it: its page is in the block, not in the allocation. */
static void ipc_in_a_shared_block(void)
{
	uint64_t a[8], big;

	begin();
	for (int i = 0; i < 8; i++)
		a[i] = gpu_alloc(600);
	for (int i = 0; i < 8; i++)
		prove(a[i], 600, a[i], 600, BARWAY_MAP_UNCACHED);
	big = gpu_alloc(5u << 20);
	prove(big + 4097, 4u << 20, big, 5u << 20, BARWAY_MAP_UNCACHED);
	gpu_free(big);
	for (int i = 0; i < 8; i++)
		gpu_free(a[i]);
	end();
}

/* Handles alone do for memory that has one; the self-test is made with such memory then. */
static void handles_alone(void)
{
	struct barway_mapping *m;
	struct vmm v;

	begin();
	vmm_alloc(&v, 2, CUF_HANDLE_POSIX_FD, NULL);
	expect_route(v.addr + VMM_STEP - 10000, 20000, "vmm import");
	vmm_free(&v);
	REFUSED(barway_map(ctx, mem, 100, NULL, &m), ENOTSUP, "not memory with a POSIX handle");
	CHECK_HAS(barway_errmsg(), "no route does it");
	CHECK_EQ(fakenv_get("exports"), 0);
	CHECK_EQ(fakenv_get("shares_all"), 0);
	CHECK_EQ(fakenv_get("nr_34"), 0);
	end();
}

/* Opening says so, not the first mapping. */
static void no_such_route(void)
{
	struct barway_context *c;

	CHECK_EQ(setenv("BARWAY_RM_ROUTES", "hook,nothing", 1), 0);
	REFUSED(barway_open(NULL, &c), EINVAL, "'nothing' is not one of tap, hook, vmm, ipc");
	CHECK_EQ(setenv("BARWAY_RM_ROUTES", "hook", 1), 0);
	OK(barway_open(NULL, &c));
	OK(barway_close(c));
}

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(by_default),
		CASE_ENV(by_default, "FAKENV=driver=535.288.01"),
		CASE_ENV(by_default, "LD_BIND_NOW=1"),
		CASE(exports_are_withheld),
		CASE_ENV(exports_are_withheld, "FAKENV=driver=550.163.01"),
		CASE(exports_go_on_to_the_kernel),
		CASE_ENV(exports_go_on_to_the_kernel, "FAKENV=driver=550.163.01"),
		CASE_ENV(the_hook_alone, "BARWAY_RM_ROUTES=hook"),
		CASE_ENV(the_tap_alone, "BARWAY_RM_ROUTES=tap"),
		CASE_ENV(handles_and_ipc, "BARWAY_RM_ROUTES=vmm,ipc"),
		CASE_ENV(ipc_in_a_shared_block, "BARWAY_RM_ROUTES=ipc"),
		CASE_ENV(handles_alone, "BARWAY_RM_ROUTES=vmm"),
		CASE(no_such_route),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
