/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text of a plan:
 *
 *     barway-plan 1
 *     gpu NVIDIA H200
 *     driver 580.159.04, open kernel modules
 *     cpu Intel(R) Xeon(R) Platinum 8468
 *     source barway tune, 2026-11-30
 *     threads 4
 *     cpu to pageable 64:118 1024:160 ...
 *     ce from pinned 64:6100 65536:7600 ...
 *
 * The last kind of line has a curve: method, direction, host memory ("any": both kinds), then
 * bytes:nanoseconds in ascending order. What is not of this version or this machine, or does not
 * say of which, is not taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "copy/plan.h"
#include "core/fault.h"
#include "core/param.h"

#define FORMAT "barway-plan 1"
#define FILE_MAX 65536

static const char *const names[BW_CURVES] = { "auto", "cpu", "ce", "threads", "resident",
					      "ce-helped" };
static const char *const directions[2] = { "to", "from" };
static const char *const hosts[2] = { "pageable", "pinned" };

/* ---- which machine --------------------------------------------------------------------------- */

static void cpu_model(char *text, size_t n)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(text, n, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (!colon || (strncmp(line, "model name", 10) && strncmp(line, "cpu\t", 4) &&
			       strncmp(line, "CPU part", 8)))
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(text, n, "%s", colon + 1 + strspn(colon + 1, " "));
		break;
	}
	if (f)
		fclose(f);
}

struct machine {
	char gpu[96], driver[96], cpu[96];
};

static void machine_of(const struct bw_device *dev, struct machine *m)
{
	snprintf(m->gpu, sizeof(m->gpu), "%s", dev->name);
	snprintf(m->driver, sizeof(m->driver), "%s", dev->ops->driver());
	cpu_model(m->cpu, sizeof(m->cpu));
}

static uint64_t fnv(uint64_t h, const char *text)
{
	do
		h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
	while (*text++);
	return h;
}

/* Where plans are kept; -ENOENT where the user has no such place. */
static int folder(char *path, size_t n)
{
	const char *given = bw_param_text(BW_P_PLAN_DIR), *home = getenv("HOME");
	const char *cache = getenv("XDG_CACHE_HOME");
	int len;

	if (*given)
		len = snprintf(path, n, "%s", given);
	else if (cache && *cache == '/')
		len = snprintf(path, n, "%s/barway", cache);
	else if (home && *home == '/')
		len = snprintf(path, n, "%s/.cache/barway", home);
	else
		return bw_err(ENOENT, "plan: no folder for it: set BARWAY_PLAN_DIR or HOME");
	return (size_t)len < n ? 0 : bw_err(ENOENT, "plan: the folder's name is too long");
}

/* Machines have a file each, so that a home folder may be shared. */
static int file_of(const struct machine *m, char *path, size_t n)
{
	uint64_t h = fnv(fnv(fnv(0xcbf29ce484222325ull, m->gpu), m->driver), m->cpu);
	int ret = folder(path, n - 32);

	if (!ret)
		snprintf(path + strlen(path), 32, "/plan-%016llx", (unsigned long long)h);
	return ret;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int place_of(const char *word, size_t len, const char *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (strlen(list[i]) == len && !memcmp(list[i], word, len))
			return i;
	return -1;
}

static bool next_word(const char **at, const char **word, size_t *n)
{
	*word = *at += strspn(*at, " ");
	*n = strcspn(*at, " ");
	*at += *n;
	return *n != 0;
}

static bool parse_points(const char *at, struct bw_curve *curve)
{
	unsigned long long bytes, ns;
	const char *word;
	size_t n;
	int used;

	curve->n = 0;
	while (next_word(&at, &word, &n)) {
		if (curve->n == BW_PLAN_POINTS || *word < '0' || *word > '9' ||
		    sscanf(word, "%20llu:%20llu%n", &bytes, &ns, &used) != 2 ||
		    (size_t)used != n || !bytes || bytes > 1ull << 44 || ns > 1ull << 44 ||
		    (curve->n && bytes <= curve->bytes[curve->n - 1]))
			return false;
		curve->bytes[curve->n] = bytes;
		curve->ns[curve->n++] = ns;
	}
	return curve->n != 0;
}

static bool parse_curve(const char *line, struct bw_plan *plan)
{
	int method, direction, host;
	struct bw_curve curve = { 0 };
	const char *word;
	bool any;
	size_t n;

	if (!next_word(&line, &word, &n) || (method = place_of(word, n, names, BW_CURVES)) <= 0)
		return false;
	if (!next_word(&line, &word, &n) || (direction = place_of(word, n, directions, 2)) < 0)
		return false;
	if (!next_word(&line, &word, &n))
		return false;
	any = bw_word_is(word, n, "any");
	host = place_of(word, n, hosts, 2);
	if ((host < 0 && !any) || !parse_points(line, &curve))
		return false;
	for (int i = 0; i < 2; i++)
		if (any || i == host)
			plan->curve[method][direction][i] = curve;
	return true;
}

enum { HAS_GPU = 1, HAS_DRIVER = 2, HAS_CPU = 4, HAS_ALL = 7 };

/* 1 taken, 0 not of this machine, -1 not understood. @has: what has been said of the machine. */
static int parse_line(const char *line, const struct machine *m, struct bw_plan *plan,
		      unsigned *has)
{
	unsigned long threads;
	char *end;

	if (!strncmp(line, "gpu ", 4)) {
		*has |= HAS_GPU;
		return !m || !strcmp(line + 4, m->gpu);
	}
	if (!strncmp(line, "driver ", 7)) {
		*has |= HAS_DRIVER;
		return !m || !strcmp(line + 7, m->driver);
	}
	if (!strncmp(line, "cpu to ", 7) || !strncmp(line, "cpu from ", 9))
		return parse_curve(line, plan) ? 1 : -1;
	if (!strncmp(line, "cpu ", 4)) {
		*has |= HAS_CPU;
		return !m || !strcmp(line + 4, m->cpu);
	}
	if (!strncmp(line, "source ", 7)) {
		snprintf(plan->source, sizeof(plan->source), "%s", line + 7);
		return 1;
	}
	if (!strncmp(line, "threads ", 8) && line[8] >= '0' && line[8] <= '9') {
		threads = strtoul(line + 8, &end, 10);
		plan->threads = (unsigned)threads;
		return *end || threads > 64 ? -1 : 1;
	}
	return parse_curve(line, plan) ? 1 : -1;
}

/* @text is changed. @m NULL: of any machine. 0 or -EBADMSG. */
static int parse(char *text, const struct machine *m, struct bw_plan *plan, const char *path)
{
	unsigned number = 0, has = 0;
	char *line;
	int ret;

	memset(plan, 0, sizeof(*plan));
	while ((line = strsep(&text, "\n"))) {
		number++;
		if (number == 1) {
			if (strcmp(line, FORMAT))
				return bw_err(EBADMSG, "plan %s: not a plan of this version: run "
					      "'barway tune'", path);
			continue;
		}
		if (!*line || *line == '#')
			continue;
		ret = parse_line(line, m, plan, &has);
		if (!ret)
			return bw_err(EBADMSG, "plan %s: of another machine or driver: run "
				      "'barway tune'", path);
		if (ret < 0)
			return bw_err(EBADMSG, "plan %s: line %u is not understood: remove the "
				      "file, or run 'barway tune'", path, number);
	}
	if (m && has != HAS_ALL)
		return bw_err(EBADMSG, "plan %s: it does not say which GPU, driver and CPU it is "
			      "of: remove the file, or run 'barway tune'", path);
	if (!plan->curve[BW_METHOD_CPU][0][0].n || !plan->curve[BW_METHOD_CPU][1][0].n)
		return bw_err(EBADMSG, "plan %s: it has no figures of one CPU thread: remove the "
			      "file, or run 'barway tune'", path);
	return 0;
}

static int slurp(const char *path, char *text, size_t room)
{
	size_t got = 0;
	ssize_t n;
	int fd = bw_open(path, O_RDONLY | O_NONBLOCK);

	if (fd < 0)
		return fd == -ENOENT ? bw_err(ENOENT, "plan %s: none", path) :
		       bw_err(-fd, "open plan %s: %s", path, strerror(-fd));
	while ((n = read(fd, text + got, room - 1 - got)) > 0)
		got += (size_t)n;
	text[got] = '\0';
	close(fd);
	if (n < 0)
		return bw_err(EIO, "read plan %s: %s", path, strerror(errno));
	return got + 1 < room && strlen(text) == got ? 0 :
	       bw_err(EBADMSG, "plan %s: not a plan: remove the file", path);
}

int bw_plan_read(const struct bw_device *dev, struct bw_plan *plan)
{
	struct machine m;
	char path[4096];
	char *text;
	int ret;

	machine_of(dev, &m);
	ret = file_of(&m, path, sizeof(path));
	if (ret)
		return ret;
	text = bw_alloc(FILE_MAX);
	if (!text)
		return bw_err(ENOMEM, "read plan %s: no memory", path);
	ret = slurp(path, text, FILE_MAX);
	if (!ret)
		ret = parse(text, &m, plan, path);
	if (!ret && strlen(path) < sizeof(plan->file))
		strcpy(plan->file, path);
	free(text);
	return ret;
}

int bw_plan_parse(const char *text, struct bw_plan *plan)
{
	size_t n = strlen(text) + 1;
	char *copy = bw_alloc(n);
	int ret;

	if (!copy)
		return bw_err(ENOMEM, "plan: no memory");
	memcpy(copy, text, n);
	ret = parse(copy, NULL, plan, "built in");
	free(copy);
	return ret;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool same(const struct bw_curve *a, const struct bw_curve *b)
{
	return a->n == b->n && !memcmp(a->bytes, b->bytes, a->n * sizeof(a->bytes[0])) &&
	       !memcmp(a->ns, b->ns, a->n * sizeof(a->ns[0]));
}

static void print_curve(FILE *f, int method, int direction, const char *host,
			const struct bw_curve *c)
{
	if (!c->n)
		return;
	fprintf(f, "%s %s %s", names[method], directions[direction], host);
	for (unsigned i = 0; i < c->n; i++)
		fprintf(f, " %llu:%llu", (unsigned long long)c->bytes[i],
			(unsigned long long)c->ns[i]);
	fputc('\n', f);
}

static void print(FILE *f, const struct machine *m, const struct bw_plan *plan)
{
	fprintf(f, FORMAT "\ngpu %s\ndriver %s\ncpu %s\nsource %s\nthreads %u\n", m->gpu,
		m->driver, m->cpu, plan->source, plan->threads);
	for (int id = BW_METHOD_CPU; id < BW_CURVES; id++) {
		for (int d = 0; d < 2; d++) {
			const struct bw_curve *c = plan->curve[id][d];

			if (same(&c[0], &c[1])) {
				print_curve(f, id, d, "any", &c[0]);
				continue;
			}
			print_curve(f, id, d, hosts[0], &c[0]);
			print_curve(f, id, d, hosts[1], &c[1]);
		}
	}
}

static int make_folders(char *path)
{
	for (char *p = path + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		if (mkdir(path, 0777) && errno != EEXIST) {
			int ret = bw_err(errno, "make folder %s: %s", path, strerror(errno));

			*p = '/';
			return ret;
		}
		*p = '/';
	}
	return 0;
}

/* What is to be replaced: behind a link, which stays, the file; never what is none. */
static int resolve(char path[PATH_MAX])
{
	char real[PATH_MAX];
	struct stat st;

	if (lstat(path, &st))
		return 0; /* there is nothing yet, or making it will say why not */
	if (!realpath(path, real) || stat(real, &st))
		return bw_err(errno, "write plan %s: %s: give a file", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return bw_err(EINVAL, "write plan %s: not a regular file: give another name", path);
	strcpy(path, real);
	return 0;
}

/* Under a name of its own first, so that a reader and another writer see whole files only. */
static int replace(const char *path, const struct machine *m, const struct bw_plan *plan,
		   const char *remedy)
{
	char temporary[PATH_MAX + 16];
	bool written;
	FILE *f;
	int fd;

	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	fd = bw_above_stdio(mkostemp(temporary, O_CLOEXEC));
	if (fd < 0)
		return bw_err(errno, "write plan %s: %s: %s", path, strerror(errno), remedy);
	fchmod(fd, 0644);
	f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		unlink(temporary);
		return bw_err(ENOMEM, "write plan %s: no memory", path);
	}
	print(f, m, plan);
	written = !fflush(f) && !ferror(f) && !fsync(fd);
	if (fclose(f) || !written || rename(temporary, path)) {
		int ret = bw_err(errno ? errno : EIO, "write plan %s: %s", path, strerror(errno));

		unlink(temporary);
		return ret;
	}
	return 0;
}

int bw_plan_write(const struct bw_device *dev, const struct bw_plan *plan, const char *given)
{
	struct machine m;
	char path[PATH_MAX];
	int ret = 0;

	machine_of(dev, &m);
	if (given) {
		if (strlen(given) >= sizeof(path))
			return bw_err(ENAMETOOLONG, "write plan: the name is too long");
		strcpy(path, given);
	} else {
		ret = file_of(&m, path, sizeof(path));
		if (!ret)
			ret = make_folders(path);
	}
	if (!ret)
		ret = resolve(path);
	return ret ? ret : replace(path, &m, plan, given ? "give a file in a folder of yours" :
				   "set BARWAY_PLAN_DIR to a folder of yours");
}
