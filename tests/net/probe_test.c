/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The probes of core/probe.h, as a tracer sees them: their notes are read from the library's file,
 * a breakpoint is put at each place, and transfers have to pass it.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <ucontext.h>

#include "net_test.h"

static const char *const names[] = {
	"net_ready", "net_message", "net_write", "net_written", "net_arrived", "net_publish",
	"net_end", "net_sleep", "net_wake",
};

static struct place {
	unsigned char *at, was;
	const char *name;
	_Atomic unsigned hits;
} places[64];
static unsigned nplaces;

/* ---- what the file says ---------------------------------------------------------------------- */

static unsigned char *file;
static size_t file_bytes;

static void read_file(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && !fstat(fd, &st));
	file_bytes = (size_t)st.st_size;
	file = mmap(NULL, file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(file != MAP_FAILED);
	close(fd);
}

static const ElfW(Shdr) *section(const char *name)
{
	const ElfW(Ehdr) *head = (const void *)file;
	const ElfW(Shdr) *s = (const void *)(file + head->e_shoff);
	const char *text = (const char *)file + s[head->e_shstrndx].sh_offset;

	for (unsigned i = 0; i < head->e_shnum; i++)
		if (!strcmp(text + s[i].sh_name, name))
			return &s[i];
	return NULL;
}

/* A note's contents: where it is, where .stapsdt.base was, a semaphore, three strings. */
static void add_place(const unsigned char *note, ElfW(Addr) load, ElfW(Addr) base)
{
	const char *provider = (const char *)note + 3 * sizeof(ElfW(Addr));
	ElfW(Addr) word[3];
	struct place *p = &places[nplaces];

	memcpy(word, note, sizeof(word));
	if (strcmp(provider, "barway"))
		return;
	CHECK(nplaces < N(places));
	CHECK_EQ(word[2], 0);
	p->name = provider + strlen(provider) + 1;
	p->at = (unsigned char *)(load + word[0] + base - word[1]); /* NOLINT: an address */
	nplaces++;
}

static void read_notes(void)
{
	const ElfW(Shdr) *notes, *base;
	Dl_info info;

	CHECK(dladdr((void *)(uintptr_t)barway_endpoint_open, &info));
	read_file(info.dli_fname);
	notes = section(".note.stapsdt");
	base = section(".stapsdt.base");
	if (!notes || !base)
		return;
	for (size_t at = 0; at < notes->sh_size;) {
		const ElfW(Nhdr) *n = (const void *)(file + notes->sh_offset + at);

		at += sizeof(*n) + ((n->n_namesz + 3u) & ~3u);
		add_place(file + notes->sh_offset + at, (ElfW(Addr))info.dli_fbase, base->sh_addr);
		at += (n->n_descsz + 3u) & ~3u;
	}
}

static bool has(const char *name)
{
	for (unsigned i = 0; i < nplaces; i++)
		if (!strcmp(places[i].name, name))
			return true;
	return false;
}

/* Each that is documented is there, and no other. */
static void notes(void)
{
	if (!nplaces)
		SKIP("built without sys/sdt.h (Debian: systemtap-sdt-dev)");
	for (unsigned i = 0; i < N(names); i++)
		if (!has(names[i]))
			FAIL("there is no probe %s", names[i]);
	for (unsigned i = 0; i < nplaces; i++) {
		unsigned k = 0;

		while (k < N(names) && strcmp(names[k], places[i].name))
			k++;
		if (k == N(names))
			FAIL("a probe %s is not known", places[i].name);
	}
}

/* ---- looked at ------------------------------------------------------------------------------- */

#if defined(__x86_64__)

#define NOP 0x90
#define INT3 0xcc

static void on_trap(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *u = context;
	unsigned char *at = (unsigned char *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP] - 1;

	(void)sig;
	(void)info;
	for (unsigned i = 0; i < nplaces; i++)
		if (places[i].at == at)
			atomic_fetch_add(&places[i].hits, 1);
	/* in the place of a nop: what follows it goes on */
}

/* Code has no shadow memory of the thread sanitizer's. */
__attribute__((no_sanitize("thread")))
static void put(struct place *p, unsigned char what)
{
	uintptr_t page = (uintptr_t)p->at & ~(uintptr_t)4095;

	CHECK(!mprotect((void *)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
	p->was = *p->at;
	*p->at = what;
	CHECK(!mprotect((void *)page, 4096, PROT_READ | PROT_EXEC));
}

static unsigned hits(const char *name)
{
	unsigned n = 0;

	for (unsigned i = 0; i < nplaces; i++)
		n += strcmp(places[i].name, name) ? 0 : places[i].hits;
	return n;
}

static void move(size_t n)
{
	struct barway_part part = { 0, 0, n };
	struct barway_transfer_options o = { .operation = BARWAY_PUT };
	struct memory ma, mb;
	struct barway_transfer *t;

	pair_open("imitation", 0, 1);
	memory_open(&a, &ma, true, MIB, 0);
	memory_open(&b, &mb, true, MIB, BARWAY_REGION_PUT);
	o.key = &mb.key;
	t = prepare(&a, &ma, &part, 1, &o);
	OK(barway_transfer_post(t));
	OK(wait_both(t, BARWAY_VISIBLE));
	OK(barway_transfer_free(t));
	FAILS(barway_peer_accept(b.ep, 20 * MS, &b.peer), ETIMEDOUT, ""); /* meanwhile it sleeps */
	memory_close(&a, &ma);
	memory_close(&b, &mb);
	pair_close();
}

static void passed(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };

	if (!nplaces)
		SKIP("built without sys/sdt.h (Debian: systemtap-sdt-dev)");
	CHECK(!sigaction(SIGTRAP, &action, NULL));
	for (unsigned i = 0; i < nplaces; i++) {
		put(&places[i], INT3);
		CHECK_EQ(places[i].was, NOP);
	}
	move(MIB);
	for (unsigned i = 0; i < nplaces; i++)
		put(&places[i], NOP);
	for (unsigned i = 0; i < N(names); i++)
		if (!hits(names[i]))
			FAIL("nothing passed the probe %s", names[i]);
	CHECK_EQ(hits("net_ready"), 1);
	CHECK_EQ(hits("net_end"), 1);
	CHECK_EQ(hits("net_write"), hits("net_written"));
	CHECK_EQ(hits("net_write"), hits("net_arrived"));
}

#else

static void passed(void)
{
	SKIP("breakpoints are put on x86_64 only");
}

#endif

int main(int argc, char **argv)
{
	static const struct test_case cases[] = { TEST(notes), TEST(passed), { 0 } };

	read_notes();
	return net_main(argc, argv, cases);
}
