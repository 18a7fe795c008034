/* SPDX-License-Identifier: BSD-3-Clause */
/* core/err, log, fault, topo, counters; param, handle and fork have programs of their own */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/counters.h"
#include "core/err.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/topo.h"
#include "test.h"

/* The next calls are interrupted by a signal, as it were. */
static _Atomic int interrupts;

static bool interrupted(void)
{
	if (atomic_load(&interrupts) <= 0)
		return false;
	atomic_fetch_sub(&interrupts, 1);
	errno = EINTR;
	return true;
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (flags & O_CREAT) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return interrupted() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int ioctl(int fd, unsigned long request, ...)
{
	void *arg;
	va_list ap;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	return interrupted() ? -1 : (int)syscall(SYS_ioctl, fd, request, arg);
}

static void nap(long us)
{
	nanosleep(&(struct timespec){ 0, us * 1000 }, NULL);
}

/* ---- err ---- */

static void sentences(void)
{
	CHECK_EQ(bw_err(EINVAL, "map %s: %d bytes: give more", "x", 0), -EINVAL);
	CHECK_STR(bw_err_text(), "map x: 0 bytes: give more");
	CHECK(bw_err(INT_MIN, "what a caller's function returned, negated") < 0);
	CHECK_EQ(bw_err(EIO, "%s", ""), -EIO);
	CHECK_STR(bw_err_text(), "");
	bw_err(EIO, "inner");
	bw_err(EIO, "outer: %s", bw_err_text()); /* its own argument */
	CHECK_STR(bw_err_text(), "outer: inner");
}

static void prefixes(void)
{
	bw_err(EIO, "cause");
	CHECK_EQ(bw_err_prefix(-ENOMEM, "open %d", 3), -ENOMEM);
	CHECK_STR(bw_err_text(), "open 3: cause");
	CHECK_EQ(bw_err_prefix(-EIO, "%s", bw_err_text()), -EIO);
	CHECK_STR(bw_err_text(), "open 3: cause: open 3: cause");
	CHECK_EQ(bw_err_prefix(0, "fine"), 0);
	CHECK_EQ(bw_err_prefix(7, "fine"), 7);
	CHECK_STR(bw_err_text(), "open 3: cause: open 3: cause");
}

/* Whatever the lengths: it ends within the buffer, and a cut shows. */
static void long_sentences(void)
{
	static char text[3000];
	struct bw_reason why;

	for (size_t n = 1015; n < 1030; n++) {
		memset(text, 'x', n);
		text[n] = 0;
		bw_err(EIO, "%s", text);
		if (n < 1024)
			CHECK_STR(bw_err_text(), text);
		else
			CHECK_STR(bw_err_text() + 1020, "...");
		bw_err_prefix(-EIO, "p");
		CHECK(!memcmp(bw_err_text(), "p: x", 4));
		CHECK_EQ(strlen(bw_err_text()), n + 3 < 1024 ? n + 3 : 1023);
		if (n + 3 >= 1024)
			CHECK_STR(bw_err_text() + 1020, "...");
		bw_err(EIO, "rest");
		bw_err_prefix(-EIO, "%s", text);
		CHECK(strlen(bw_err_text()) <= 1023);
		CHECK_STR(bw_err_text() + strlen(bw_err_text()) - 3, n + 6 < 1024 ? "est" : "...");
	}
	memset(text, 'y', sizeof(text) - 1);
	bw_err(EIO, "%s", text);
	CHECK_EQ(strlen(bw_err_text()), 1023);
	bw_err_prefix(-EIO, "%s", text);
	CHECK_EQ(strlen(bw_err_text()), 1023);

	bw_reason_set(&why, "%s", text);
	CHECK_EQ(strlen(why.text), sizeof(why.text) - 1);
	CHECK_STR(why.text + sizeof(why.text) - 4, "...");
	bw_reason_set(&why, "score %d", 5);
	bw_reason_set(&why, "%s, so", why.text);
	CHECK_STR(why.text, "score 5, so");
}

static void *other_thread(void *arg)
{
	*(bool *)arg = !strcmp(bw_err_text(), "");
	bw_err(EIO, "the other's");
	return NULL;
}

static void each_thread_has_its_own(void)
{
	bool was_empty = false;
	pthread_t t;

	bw_err(EIO, "mine");
	CHECK(!pthread_create(&t, NULL, other_thread, &was_empty));
	pthread_join(t, NULL);
	CHECK(was_empty);
	CHECK_STR(bw_err_text(), "mine");
}

struct v1 {
	size_t size;
	uint32_t a, b;
};

struct v2 {
	size_t size;
	uint32_t a, b;
	uint64_t c;
};

static void struct_in(void)
{
	struct v2 big = { sizeof(big), 1, 2, 3 }, into;
	struct v1 small = { sizeof(small), 4, 5 }, known;
	char unaligned[64] = { 0 };

	CHECK_EQ(bw_struct_in(&into, sizeof(into), sizeof(small), &big, "v"), 0);
	CHECK(into.a == 1 && into.b == 2 && into.c == 3);
	memset(&into, 0xff, sizeof(into)); /* an older caller: what it lacks is zero */
	CHECK_EQ(bw_struct_in(&into, sizeof(into), sizeof(small), &small, "v"), 0);
	CHECK(into.a == 4 && into.b == 5 && into.c == 0);
	/* a newer caller */
	CHECK_EQ(bw_struct_in(&known, sizeof(known), sizeof(known), &big, "struct v"), -E2BIG);
	CHECK_HAS(bw_err_text(), "struct v");
	CHECK_HAS(bw_err_text(), "byte 16 ");
	big.c = 0;
	CHECK_EQ(bw_struct_in(&known, sizeof(known), sizeof(known), &big, "v"), 0);
	CHECK(known.a == 1 && known.b == 2);
	for (unsigned i = 0; i < 8; i++) { /* each byte of the tail counts */
		big.c = 1ull << (8 * i + 7);
		CHECK_EQ(bw_struct_in(&known, sizeof(known), 16, &big, "v"), -E2BIG);
	}
	small.size = sizeof(small) - 1;
	CHECK_EQ(bw_struct_in(&into, sizeof(into), sizeof(small), &small, "struct v"), -EINVAL);
	CHECK_HAS(bw_err_text(), "set it to sizeof(struct v)");
	small.size = 0;
	CHECK_EQ(bw_struct_in(&into, sizeof(into), sizeof(small), &small, "op: struct v"), -EINVAL);
	CHECK_HAS(bw_err_text(), "op: struct v: its size field is 0");
	CHECK_HAS(bw_err_text(), "set it to sizeof(struct v)");
	small.size = SIZE_MAX; /* never set: is not read to its end */
	CHECK_EQ(bw_struct_in(&into, sizeof(into), sizeof(small), &small, "v"), -E2BIG);
	CHECK_EQ(bw_struct_in(&into, sizeof(into), sizeof(small), NULL, "v"), -EINVAL);
	CHECK_HAS(bw_err_text(), "NULL");
	small.size = sizeof(small);
	memcpy(unaligned + 1, &small, sizeof(small));
	CHECK_EQ(bw_struct_in(&into, sizeof(into), sizeof(small), unaligned + 1, "v"), 0);
	CHECK_EQ(into.a, 4);
}

static void struct_out(void)
{
	const struct v2 ours = { 999, 1, 2, 3 };
	struct {
		struct v2 v;
		uint64_t tail, guard;
	} theirs;

	memset(&theirs, 0xee, sizeof(theirs)); /* the same version */
	theirs.v.size = sizeof(struct v2);
	CHECK_EQ(bw_struct_out(&theirs.v, &ours, sizeof(ours), 16, "v"), 0);
	CHECK_EQ(theirs.v.size, sizeof(struct v2));
	CHECK(theirs.v.a == 1 && theirs.v.b == 2 && theirs.v.c == 3);
	CHECK_EQ(theirs.tail, 0xeeeeeeeeeeeeeeee);

	for (size_t n = 8; n < sizeof(ours); n++) { /* older ones: nothing past their end */
		unsigned char *b = (unsigned char *)&theirs;

		memset(&theirs, 0xee, sizeof(theirs));
		theirs.v.size = n;
		CHECK_EQ(bw_struct_out(&theirs.v, &ours, sizeof(ours), 8, "v"), 0);
		CHECK_EQ(theirs.v.size, n);
		CHECK(!memcmp(b + 8, (const char *)&ours + 8, n - 8));
		for (size_t i = n; i < sizeof(theirs); i++)
			CHECK_EQ(b[i], 0xee);
	}

	theirs.v.size = sizeof(struct v2) + 8; /* a newer one */
	theirs.tail = 0;
	CHECK_EQ(bw_struct_out(&theirs.v, &ours, sizeof(ours), 16, "v"), 0);
	CHECK_EQ(theirs.v.size, sizeof(struct v2) + 8);
	CHECK(theirs.v.c == 3 && theirs.tail == 0 && theirs.guard == 0xeeeeeeeeeeeeeeee);
	theirs.tail = 1;
	theirs.v.a = 77;
	CHECK_EQ(bw_struct_out(&theirs.v, &ours, sizeof(ours), 16, "v"), -E2BIG);
	CHECK_EQ(theirs.v.a, 77); /* written only on success */
	theirs.v.size = 15;
	CHECK_EQ(bw_struct_out(&theirs.v, &ours, sizeof(ours), 16, "v"), -EINVAL);
	CHECK_EQ(bw_struct_out(NULL, &ours, sizeof(ours), 16, "v"), -EINVAL);
}

/* ---- log ---- */

struct lines {
	unsigned n;
	int level;
	char text[2048];
	_Atomic int inside, overlapped;
	_Atomic unsigned count;
};

static void collect(void *arg, int level, const char *text)
{
	struct lines *l = arg;

	if (atomic_fetch_add(&l->inside, 1))
		atomic_store(&l->overlapped, 1);
	l->n++;
	l->level = level;
	snprintf(l->text, sizeof(l->text), "%s", text);
	errno = 0;
	atomic_fetch_add(&l->count, 1);
	atomic_fetch_sub(&l->inside, 1);
}

/* What is written to standard error by @fn. */
static void capture(void (*fn)(void), char *text, size_t n)
{
	int fd = memfd_create("stderr", 0), saved = dup(2);
	ssize_t got;

	CHECK(fd >= 0 && saved >= 0);
	fflush(stderr);
	dup2(fd, 2);
	fn();
	fflush(stderr);
	dup2(saved, 2);
	close(saved);
	got = pread(fd, text, n - 1, 0);
	close(fd);
	CHECK(got >= 0);
	text[got] = 0;
}

static void one_of_each(void)
{
	bw_log(BW_LOG_ERROR, "e %d", 1);
	bw_log(BW_LOG_WARN, "w %d", 2);
	bw_log(BW_LOG_INFO, "i %d", 3);
	bw_log(BW_LOG_DEBUG, "d %d", 4);
}

static void debug_error(void)
{
	bw_err(EIO, "the sentence");
}

/* First: nothing has called bw_log_set() yet. */
static void log_to_stderr(void)
{
	char text[1024];

	capture(one_of_each, text, sizeof(text));
	CHECK_STR(text, "barway: error: e 1\nbarway: warning: w 2\n");
	bw_log_default_level(BW_LOG_DEBUG);
	capture(one_of_each, text, sizeof(text));
	CHECK_STR(text, "barway: error: e 1\nbarway: warning: w 2\nbarway: info: i 3\n"
		  "barway: debug: d 4\n");
	capture(debug_error, text, sizeof(text));
	CHECK_STR(text, "barway: debug: the sentence\n");
	bw_log_default_level(99);
	bw_log_default_level(-1);
	CHECK(bw_log_on(BW_LOG_DEBUG));
	bw_log_default_level(0);
	capture(one_of_each, text, sizeof(text));
	CHECK_STR(text, "");
	bw_log_default_level(BW_LOG_WARN);
}

static void log_levels(void)
{
	struct lines l = { 0 };

	for (int level = 0; level <= BW_LOG_DEBUG; level++) {
		CHECK_EQ(bw_log_set(collect, &l, level), 0);
		l.n = 0;
		one_of_each();
		CHECK_EQ(l.n, level);
		for (int k = -2; k <= BW_LOG_DEBUG + 2; k++)
			CHECK_EQ(bw_log_on(k), k >= 1 && k <= level);
	}
	CHECK_EQ(l.level, BW_LOG_DEBUG);
	CHECK_STR(l.text, "d 4");
	bw_log(BW_LOG_INFO, "two\nlines\n");
	CHECK_STR(l.text, "two lines ");
	bw_err(EIO, "an error");
	CHECK(l.level == BW_LOG_DEBUG && !strcmp(l.text, "an error"));

	CHECK_EQ(bw_log_set(collect, &l, BW_LOG_DEBUG + 1), -EINVAL);
	CHECK_EQ(bw_log_set(collect, &l, -1), -EINVAL);
	CHECK_HAS(bw_err_text(), "level -1");
	bw_log_default_level(BW_LOG_ERROR); /* too late: it was set by call */
	CHECK(bw_log_on(BW_LOG_DEBUG));
	CHECK_EQ(bw_log_set(NULL, NULL, BW_LOG_WARN), 0);
}

static void log_keeps_errno(void)
{
	struct lines l = { 0 };

	bw_log_set(collect, &l, BW_LOG_DEBUG);
	errno = EXDEV;
	bw_err(EIO, "x");
	CHECK_EQ(errno, EXDEV);
	CHECK_EQ(l.n, 1);
	bw_log_set(NULL, NULL, BW_LOG_WARN);
}

static void log_long_line(void)
{
	static char text[4000];
	struct lines l = { 0 };

	memset(text, 'z', sizeof(text) - 1);
	bw_log_set(collect, &l, BW_LOG_WARN);
	bw_log(BW_LOG_WARN, "%s", text);
	CHECK(strlen(l.text) >= 1024);
	CHECK_EQ(strspn(l.text, "z"), strlen(l.text));
	bw_log_set(NULL, NULL, BW_LOG_WARN);
}

static int reentered[2];

static void calls_back(void *arg, int level, const char *text)
{
	(void)level;
	(void)text;
	++*(int *)arg;
	bw_log(BW_LOG_ERROR, "again");
	bw_log_default_level(0);
	reentered[0] = bw_log_set(NULL, NULL, 0);
}

/* Not allowed, and yet no deadlock. */
static void log_from_the_log(void)
{
	int calls = 0;

	bw_log_set(calls_back, &calls, BW_LOG_DEBUG);
	bw_log(BW_LOG_ERROR, "once");
	CHECK_EQ(calls, 1);
	CHECK_EQ(reentered[0], -EDEADLK);
	bw_log_set(NULL, NULL, BW_LOG_WARN);
}

static _Atomic bool stop;

static void *logger(void *arg)
{
	for (unsigned i = 0; !atomic_load(&stop); i++)
		bw_log(BW_LOG_WARN, "line %u", i);
	return arg;
}

/* One at a time, and never again after bw_log_set() came back. */
static void log_from_many_threads(void)
{
	static struct lines l[2];
	pthread_t t[8];

	bw_log_set(collect, &l[0], BW_LOG_WARN);
	atomic_store(&stop, false);
	for (unsigned i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, logger, NULL));
	for (unsigned i = 0; i < 100; i++) {
		unsigned was, now;

		while (!atomic_load(&l[i % 2].count))
			nap(50);
		bw_log_set(collect, &l[(i + 1) % 2], BW_LOG_WARN);
		was = atomic_load(&l[i % 2].count);
		CHECK(!atomic_load(&l[i % 2].inside));
		nap(200);
		now = atomic_load(&l[i % 2].count);
		CHECK_EQ(now, was);
		atomic_store(&l[i % 2].count, 0);
	}
	bw_log_set(NULL, NULL, 0);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	bw_log_set(NULL, NULL, BW_LOG_WARN);
	CHECK(!l[0].overlapped && !l[1].overlapped);
}

/* ---- fault ---- */

static void the_nth_call(void)
{
	for (unsigned kind = 0; kind < BW_FAULT_COUNT; kind++) {
		CHECK(!bw_fault_pending(kind));
		CHECK(!bw_fault_hit(kind));
		for (unsigned nth = 1; nth < 5; nth++) {
			bw_fault_arm(kind, nth);
			for (unsigned i = 1; i < 8; i++) {
				CHECK_EQ(bw_fault_pending(kind), i <= nth);
				CHECK(!bw_fault_hit((kind + 1) % BW_FAULT_COUNT));
				CHECK_EQ(bw_fault_hit(kind), i == nth);
			}
		}
		bw_fault_arm(kind, 1);
		bw_fault_arm(kind, 0);
		CHECK(!bw_fault_hit(kind));
		bw_fault_arm(kind, 1);
		bw_fault_disarm_all();
		CHECK(!bw_fault_pending(kind) && !bw_fault_hit(kind));
	}
}

static _Atomic unsigned hits;

static void *hitter(void *arg)
{
	for (unsigned i = 0; i < 10000; i++)
		if (bw_fault_hit(BW_FAULT_COPY))
			atomic_fetch_add(&hits, 1);
	return arg;
}

static void one_call_of_many_threads(void)
{
	pthread_t t[8];

	bw_fault_arm(BW_FAULT_COPY, 40000);
	for (unsigned i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, hitter, NULL));
	for (unsigned i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(atomic_load(&hits), 1);
}

static void fault_lists(void)
{
	static const struct {
		const char *list;
		bool ok;
	} t[] = {
		{ NULL, true }, { "", true }, { "ioctl@3,mmap@1", true },
		{ "alloc@1,open@2,ioctl@3,mmap@4,device-alloc@5,aperture@6,copy@7,thread@8,cuda@9",
		  true },
		{ "copy@4294967295", true }, { "copy@4294967296", false },
		{ "copy@99999999999999999999999", false },
		{ "ioctl", false }, { "ioctl@", false }, { "ioctl@0", false }, { "@1", false },
		{ "ioctl@-1", false }, { "ioctl@1x", false }, { "ioctl@1 2", false },
		{ "ioctls@1", false }, { "ioct@1", false }, { "IOCTL@1", false },
		{ "ioctl@1,", true }, { ",ioctl@1", true }, { " ioctl@1 ,, mmap@1 ", true },
		{ "ioctl@1,bogus@1", false }, { "device_alloc@1", false }, { "ioctl @1", false },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		bool any = false;

		if (bw_fault_check(t[i].list) != t[i].ok)
			FAIL("check %s", t[i].list);
		for (unsigned k = 0; k < BW_FAULT_COUNT; k++)
			CHECK(!bw_fault_pending(k));
		if (!t[i].ok)
			continue;
		bw_fault_arm_list(t[i].list);
		for (unsigned k = 0; k < BW_FAULT_COUNT; k++)
			any = any || bw_fault_pending(k);
		CHECK_EQ(any, t[i].list && t[i].list[0]);
		bw_fault_disarm_all();
	}
	bw_fault_arm_list("mmap@1, ioctl@2");
	CHECK(!bw_fault_hit(BW_FAULT_IOCTL));
	CHECK(bw_fault_hit(BW_FAULT_IOCTL));
	CHECK(bw_fault_hit(BW_FAULT_MMAP));
}

static void allocations(void)
{
	unsigned char *p = bw_alloc(1000), *q;

	CHECK(p);
	for (unsigned i = 0; i < 1000; i++)
		CHECK_EQ(p[i], 0);
	free(p);
	p = bw_alloc_array(10, 100);
	CHECK(p);
	for (unsigned i = 0; i < 1000; i++)
		CHECK_EQ(p[i], 0);
	free(p);
	p = bw_alloc(0);
	q = bw_alloc_array(0, SIZE_MAX);
	CHECK(p && q);
	free(p);
	free(q);
	CHECK(!bw_alloc_array(SIZE_MAX, 2));
	CHECK(!bw_alloc_array(SIZE_MAX / 2 + 2, 2));
	CHECK(!bw_alloc_array((size_t)1 << 32, (size_t)1 << 32));
	CHECK(!bw_alloc(SIZE_MAX));

	bw_fault_arm(BW_FAULT_ALLOC, 2);
	p = bw_alloc(1);
	CHECK(p);
	free(p);
	errno = 0;
	CHECK(!bw_alloc_array(1, 1));
	CHECK_EQ(errno, ENOMEM);
	p = bw_alloc(1);
	CHECK(p);
	free(p);
}

static void opens(void)
{
	char path[] = "/tmp/barway_core_XXXXXX";
	struct stat st;
	int fd;

	fd = bw_open("/dev/null", O_RDWR);
	CHECK(fd >= 0);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	CHECK_EQ(bw_open("/no/such/file", O_RDONLY), -ENOENT);
	bw_fault_arm(BW_FAULT_OPEN, 1);
	CHECK(bw_open("/dev/null", O_RDWR) < 0);
	atomic_store(&interrupts, 3);
	fd = bw_open("/dev/null", O_RDWR);
	CHECK(fd >= 0);
	CHECK_EQ(atomic_load(&interrupts), 0);
	close(fd);

	CHECK(mkdtemp(path)); /* made files are the user's alone */
	CHECK(!chdir(path));
	fd = bw_open("file", O_RDWR | O_CREAT | O_EXCL);
	CHECK(fd >= 0);
	CHECK(!fstat(fd, &st));
	CHECK_EQ(st.st_mode & 077, 0);
	close(fd);
	CHECK(!unlink("file"));
	CHECK(!chdir("/"));
	CHECK(!rmdir(path));
}

static void ioctls(void)
{
	int fds[2], n = 0;

	CHECK(!pipe(fds));
	CHECK_EQ(write(fds[1], "abc", 3), 3);
	CHECK_EQ(bw_ioctl(fds[0], FIONREAD, &n), 0);
	CHECK_EQ(n, 3);
	n = 0;
	atomic_store(&interrupts, 2);
	CHECK_EQ(bw_ioctl(fds[0], FIONREAD, &n), 0);
	CHECK_EQ(n, 3);
	CHECK_EQ(atomic_load(&interrupts), 0);
	CHECK_EQ(bw_ioctl(-1, FIONREAD, &n), -EBADF);
	bw_fault_arm(BW_FAULT_IOCTL, 1);
	CHECK(bw_ioctl(fds[0], FIONREAD, &n) < 0);
	close(fds[0]);
	close(fds[1]);
}

static void mmaps(void)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *p = &p;

	CHECK_EQ(bw_mmap(&p, NULL, 0, prot, flags, -1, 0), -EINVAL);
	CHECK(p == &p); /* written only on success */
	bw_fault_arm(BW_FAULT_MMAP, 1);
	CHECK_EQ(bw_mmap(&p, NULL, 4096, prot, flags, -1, 0), -ENOMEM);
	CHECK(p == &p);
	CHECK_EQ(bw_mmap(&p, NULL, 4096, prot, MAP_SHARED, -1, 0), -EBADF);
	CHECK_EQ(bw_mmap(&p, NULL, 4096, prot, flags, -1, 0), 0);
	CHECK(p != &p);
	*(int *)p = 1;
	munmap(p, 4096);
}

/* ---- topo ---- */

static const struct {
	const char *text, *formatted; /* NULL: refused */
} addresses[] = {
	{ "0000:17:00.0", "0000:17:00.0" },
	{ "17:00.0", "0000:17:00.0" },
	{ "00000000:17:00.0", "0000:17:00.0" },
	{ "0000:AF:1f.7", "0000:af:1f.7" },
	{ "00010000:01:02.3", "10000:01:02.3" },
	{ "0fffffff:ff:1f.7", "fffffff:ff:1f.7" },
	{ "ffffffff:ff:1f.7", NULL },
	{ "000000000:17:00.0", NULL },
	{ "0000:17:20.0", NULL },
	{ "0000:17:00.8", NULL },
	{ "0000:17:00.0 ", NULL },
	{ " 0000:17:00.0", NULL },
	{ "0000:17:00.00", NULL },
	{ "0000:17:00", NULL },
	{ "0000:17:00.", NULL },
	{ "0000:170:00.0", NULL },
	{ "0000:17:000.0", NULL },
	{ "0000:1g:00.0", NULL },
	{ ":17:00.0", NULL },
	{ "0:0:17:00.0", NULL },
	{ "17.00.0", NULL },
	{ "17", NULL },
	{ "GPU-1234", NULL },
	{ "", NULL },
	{ NULL, NULL },
};

static void pci_addresses(void)
{
	struct bw_pci a, b;
	char text[16];

	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		memset(&a, 0xcc, sizeof(a));
		b = a;
		if (bw_pci_parse(addresses[i].text, &a) != !!addresses[i].formatted)
			FAIL("%s", addresses[i].text);
		if (!addresses[i].formatted) {
			CHECK(!memcmp(&a, &b, sizeof(a)));
			continue;
		}
		bw_pci_format(&a, text);
		CHECK_STR(text, addresses[i].formatted);
		CHECK(bw_pci_parse(text, &b));
		CHECK(bw_pci_equal(&a, &b));
		b.domain++;
		CHECK(!bw_pci_equal(&a, &b));
	}
	CHECK(bw_pci_parse("1:2:3.4", &a) && bw_pci_parse("0001:02:03.4", &b));
	CHECK(bw_pci_equal(&a, &b));
	b.bus++;
	CHECK(!bw_pci_equal(&a, &b));
	b = a;
	b.slot++;
	CHECK(!bw_pci_equal(&a, &b));
	b = a;
	b.function++;
	CHECK(!bw_pci_equal(&a, &b));
	memset(&a, 0xff, sizeof(a));
	bw_pci_format(&a, text); /* nonsense fits, too */
	CHECK(strlen(text) < sizeof(text));
}

static char root[] = "/tmp/barway_topo_XXXXXX";

static void device_file(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/0000:17:00.0/%s", root, name);
	unlink(path);
	if (!text)
		return;
	f = fopen(path, "w");
	CHECK(f);
	fputs(text, f);
	CHECK(!fclose(f));
}

static void sysfs(void)
{
	static const char *const dirs[] = {
		"/bus", "/bus/pci", "/bus/pci/devices", "/bus/pci/devices/0000:17:00.0",
	};
	static const struct {
		const char *text;
		int node;
	} nodes[] = {
		{ "0\n", 0 }, { "1\n", 1 }, { "-1\n", -1 }, { "12", 12 }, { "", -1 },
		{ "x\n", -1 }, { "1x\n", -1 }, { "99999999999\n", -1 },
		{ "99999999999999999999999999999999999999\n", -1 }, { NULL, -1 },
	};
	struct bw_pci pci = { 0, 0x17, 0, 0 }, none = { 0, 0x18, 0, 0 };
	char path[256], list[256], small[8];
	static char longer[9001];

	CHECK(mkdtemp(root));
	for (unsigned i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s%s", root, dirs[i]);
		CHECK(!mkdir(path, 0700));
	}
	bw_topo_root(root);
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		device_file("numa_node", nodes[i].text);
		CHECK_EQ(bw_topo_numa_node(&pci), nodes[i].node);
	}
	device_file("numa_node", "3\n");
	CHECK_EQ(bw_topo_numa_node(&none), -1);
	bw_fault_arm(BW_FAULT_OPEN, 1);
	CHECK_EQ(bw_topo_numa_node(&pci), -1);
	CHECK_EQ(bw_topo_numa_node(&pci), 3);

	device_file("local_cpulist", "0-15,32-47\n");
	bw_topo_near_cpus(&pci, list, sizeof(list));
	CHECK_STR(list, "0-15,32-47");
	bw_topo_near_cpus(&none, list, sizeof(list));
	CHECK_STR(list, "");
	bw_topo_near_cpus(&pci, small, sizeof(small)); /* too long: whole ranges only */
	CHECK_STR(small, "0-15");
	bw_topo_near_cpus(&pci, small, 5);
	CHECK_STR(small, "0-15");
	bw_topo_near_cpus(&pci, small, 3);
	CHECK_STR(small, "");
	bw_topo_near_cpus(&pci, small, 1);
	CHECK_STR(small, "");
	bw_topo_near_cpus(&pci, small, 0);
	device_file("local_cpulist", "0-63\n");
	for (size_t n = 5; n <= sizeof(small); n++) { /* just fits */
		bw_topo_near_cpus(&pci, small, n);
		CHECK_STR(small, "0-63");
	}
	for (size_t i = 0; i < sizeof(longer) - 1; i += 6)
		memcpy(longer + i, "10-19,", 6);
	device_file("local_cpulist", longer);
	bw_topo_near_cpus(&pci, list, sizeof(list));
	CHECK(strlen(list) > 240 && strlen(list) % 6 == 5);
	bw_topo_near_cpus(&pci, longer, sizeof(longer));
	CHECK(strlen(longer) > 4000 && strlen(longer) % 6 == 5);
	device_file("local_cpulist", "\n");
	bw_topo_near_cpus(&pci, list, sizeof(list));
	CHECK_STR(list, "");

	device_file("local_cpulist", NULL);
	device_file("numa_node", NULL);
	/* a directory opens, and cannot be read */
	snprintf(path, sizeof(path), "%s%s/numa_node", root, dirs[3]);
	CHECK(!mkdir(path, 0700));
	CHECK_EQ(bw_topo_numa_node(&pci), -1);
	CHECK(!rmdir(path));
	for (unsigned i = 4; i-- > 0;) {
		snprintf(path, sizeof(path), "%s%s", root, dirs[i]);
		CHECK(!rmdir(path));
	}
	CHECK(!rmdir(root));
	bw_topo_root(NULL);
	CHECK(bw_topo_numa_node(&(struct bw_pci){ 0xfffffff, 0, 0, 0 }) == -1);
}

/* ---- counters ---- */

static void *counter(void *arg)
{
	for (unsigned i = 0; i < 10000; i++) {
		bw_count(BW_C_MAPS, 2);
		bw_count(BW_C_LIVE_BYTES, 4096);
		bw_count(BW_C_LIVE_BYTES, -4096);
	}
	return arg;
}

static void counts(void)
{
	pthread_t t[4];

	for (unsigned i = 0; i < BW_C_COUNT; i++)
		CHECK_EQ(bw_counter(i), 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, counter, NULL));
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(bw_counter(BW_C_MAPS), 80000);
	CHECK_EQ(bw_counter(BW_C_LIVE_BYTES), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(log_to_stderr), /* first: the defaults */
		TEST(sentences),
		TEST(prefixes),
		TEST(long_sentences),
		TEST(each_thread_has_its_own),
		TEST(struct_in),
		TEST(struct_out),
		TEST(log_levels),
		TEST(log_keeps_errno),
		TEST(log_long_line),
		TEST(log_from_the_log),
		TEST(log_from_many_threads),
		TEST(the_nth_call),
		TEST(one_call_of_many_threads),
		TEST(fault_lists),
		TEST(allocations),
		TEST(opens),
		TEST(ioctls),
		TEST(mmaps),
		TEST(pci_addresses),
		TEST(sysfs),
		TEST(counts),
		{ 0 }
	};

	return test_main(argc, argv, cases);
}
