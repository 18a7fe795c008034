/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/compare.h"
#include "tools/machine.h"
#include "tools/options.h"
#include "tools/plot.h"
#include "tools/replace.h"

int measure_option(struct measure *m, int c)
{
	switch (c) {
	case 'd':
		m->device = optarg;
		return TOOL_OK;
	case 'J':
		m->json = true;
		return TOOL_OK;
	case 'S':
		m->save = optarg;
		return TOOL_OK;
	case 'G':
		m->plot = optarg;
		return TOOL_OK;
	case 'C':
		m->compare = optarg;
		return TOOL_OK;
	case 'U':
		if (place_parse(optarg, &m->numa))
			return TOOL_OK;
		return usage_error(m->verb, "--numa: '%s' is not one of near, far, node:N", optarg);
	case '?':
		return TOOL_USAGE;
	default:
		return MEASURE_OTHER;
	}
}

int measure_size(const struct measure *m, const char *option, const char *text, uint64_t least,
		 uint64_t *bytes)
{
	if (!parse_size(text, bytes))
		return usage_error(m->verb, "%s: '%s' is not a size: give bytes with an optional "
				   "K, M or G", option, text);
	if (*bytes < least)
		return usage_error(m->verb, "%s: '%s' is too small: give at least %llu", option,
				   text, (unsigned long long)least);
	return TOOL_OK;
}

int measure_count(const struct measure *m, const char *option, const char *text, uint64_t least,
		  uint64_t most, uint64_t *n)
{
	if (parse_count(text, least, most, n))
		return TOOL_OK;
	return usage_error(m->verb, "%s: '%s' is not a number from %llu to %llu", option, text,
			   (unsigned long long)least, (unsigned long long)most);
}

/* Why the file that @path leads to cannot be replaced, in its folder: an errno value, or 0. */
static int cannot_replace(const char *path, bool there)
{
	char *file = there ? realpath(path, NULL) : strdup(path), *slash;
	int err = 0;

	if (!file || (there && access(file, W_OK))) {
		err = errno;
	} else {
		slash = strrchr(file, '/');
		if (slash)
			slash[1] = 0;
		err = access(slash ? file : ".", W_OK | X_OK) ? errno : 0;
	}
	free(file);
	return err;
}

int measure_check_file(const struct measure *m, const char *option, const char *path, bool anew)
{
	struct stat st;
	bool there = !stat(path, &st);
	int err;

	if (!*path || (anew && !there && !lstat(path, &st))) /* or a link to nothing */
		err = ENOENT;
	else if (there && S_ISDIR(st.st_mode))
		err = EISDIR;
	else if (there && anew && !S_ISREG(st.st_mode))
		return usage_error(m->verb, "%s: '%s' cannot be written: Not a regular file: give "
				   "another name", option, path);
	else if (there && !S_ISREG(st.st_mode))
		err = access(path, W_OK) ? errno : 0;
	else
		err = cannot_replace(path, there);
	return err ? usage_error(m->verb, "%s: '%s' cannot be written: %s: give a file in a folder "
				 "of yours", option, path, strerror(err)) : TOOL_OK;
}

static bool aperture_is_less(const struct measure *m)
{
	return m->info.bar1_total < m->info.memory_total; /* either may be UINT64_MAX */
}

uint64_t measure_room(const struct measure *m)
{
	return aperture_is_less(m) ? m->info.bar1_total : m->info.memory_total;
}

int measure_fits(const struct measure *m, const char *options, uint64_t bytes)
{
	if (bytes <= measure_room(m))
		return TOOL_OK;
	return usage_error(m->verb, "%s: %llu bytes are more than the %llu of the device's %s: "
			   "give less", options, (unsigned long long)bytes,
			   (unsigned long long)measure_room(m),
			   aperture_is_less(m) ? "BAR1 aperture" : "memory");
}

static bool can_be_run(const char *program)
{
	const char *path = getenv("PATH");
	char file[4096];

	for (path = path ? path : "/bin:/usr/bin"; *path; path += *path == ':') {
		size_t n = strcspn(path, ":");

		snprintf(file, sizeof(file), "%.*s/%s", n ? (int)n : 1, n ? path : ".", program);
		if (!access(file, X_OK))
			return true;
		path += n;
	}
	return false;
}

static int check_plot(const struct measure *m)
{
	int code;

	if (!plot_kind(m->schema))
		return usage_error(m->verb, "--plot: this measurement cannot be drawn: leave the "
				   "option away");
	code = plot_check(m->verb, m->plot);
	if (code == TOOL_OK)
		code = measure_check_file(m, "--plot", m->plot, false);
	if (code == TOOL_OK && !can_be_run("gnuplot"))
		code = failure(m->verb, "--plot: gnuplot is not installed: apt-get install "
			       "gnuplot-nox; or --save the result and draw it on another machine "
			       "with 'barway plot'");
	return code;
}

int measure_check(struct measure *m)
{
	int code = TOOL_OK;

	if (m->compare && m->json)
		return usage_error(m->verb, "--compare prints a table: not together with --json; "
				   "use --save FILE");
	if (m->save)
		code = measure_check_file(m, "--save", m->save, false);
	if (code == TOOL_OK && m->plot)
		code = check_plot(m);
	if (code == TOOL_OK && m->compare)
		code = compare_read(m->verb, m->compare, m->schema, &m->old);
	return code;
}

static int choose_device(struct measure *m)
{
	int n = barway_device_count(m->ctx);

	if (n == 0)
		return failure(m->verb, "there is no device: see 'barway info'");
	if (n < 0)
		return failure(m->verb, "%s", barway_errmsg());
	if (m->device && barway_device_find(m->ctx, m->device, &m->dev) < 0)
		return usage_error(m->verb, "-d: %s", barway_errmsg());
	if (!m->device && barway_device_get(m->ctx, 0, &m->dev) < 0)
		return failure(m->verb, "%s", barway_errmsg());
	m->info = (struct barway_device_info){ .size = sizeof(m->info) };
	if (barway_device_activate(m->dev) < 0 || barway_device_query(m->dev, &m->info) < 0)
		return failure(m->verb, "%s", barway_errmsg());
	m->soft = m->info.kind == BARWAY_DEVICE_SOFT;
	return TOOL_OK;
}

/* So many the context has, whoever said so. */
static void know_helpers(struct measure *m)
{
	uint64_t n;

	if (!m->helpers && parse_count(measure_parameter("copy_threads"), 0, 64, &n))
		m->helpers = n;
}

int measure_open(struct measure *m)
{
	const struct barway_open_options options = {
		.size = sizeof(options),
		.copy_threads = (uint32_t)m->helpers,
	};
	int code;

	if (barway_open(&options, &m->ctx) < 0)
		return failure(m->verb, "%s", barway_errmsg());
	know_helpers(m);
	code = choose_device(m);
	if (code == TOOL_OK && m->old)
		code = compare_check(m->verb, m->old, m->soft ? "soft" : "cuda");
	if (code == TOOL_OK)
		code = place_choose(m->verb, &m->numa, m->info.numa_node, &m->bound);
	if (code == TOOL_OK)
		code = place_bind(m->verb, m->bound);
	if (code == TOOL_OK) {
		m->far = place_warn(m->verb, &m->numa, m->info.numa_node);
		machine_read(m);
		if (m->resident && barway_resident_start(m->dev, NULL) < 0)
			code = failure(m->verb, "--resident: %s", barway_errmsg());
	}
	return code;
}

void measure_close(struct measure *m)
{
	if (m->ctx)
		barway_close(m->ctx);
	json_free(m->old);
	m->ctx = NULL;
	m->old = NULL;
}

const char *measure_parameter(const char *name)
{
	struct barway_param_info p = { .size = sizeof(p) };

	for (unsigned i = 0; !barway_param_get(i, &p); i++)
		if (!strcmp(p.name, name))
			return p.value;
	return "";
}

/* ---- the end ----------------------------------------------------------------------------- */

static int save(const struct measure *m, const char *text, size_t n)
{
	int ret = replace_file(m->save, text, n);

	return ret < 0 ? failure(m->verb, "cannot write '%s': %s", m->save, strerror(-ret))
		       : TOOL_OK;
}

static int plot_and_compare(const struct measure *m, const char *text, size_t n)
{
	char error[128];
	struct json_value *now = json_read(text, n, error, sizeof(error));
	struct plot_input input = { .name = m->verb, .json = now };
	int code = TOOL_OK, drawn;

	if (!now)
		return failure(m->verb, "the result cannot be read back: %s", error);
	if (m->old)
		code = compare_print(m->verb, m->old, now, stdout);
	if (m->plot) {
		drawn = plot_draw(m->verb, &input, 1, m->plot);
		if (drawn == TOOL_OK && !m->json)
			printf("\npicture: %s\n", m->plot);
		code = code == TOOL_OK ? drawn : code;
	}
	json_free(now);
	return code;
}

int measure_finish(struct measure *m, void (*write)(struct json *j, void *arg), void *arg)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	int code = TOOL_OK, later;
	struct json j;

	if (!f)
		return failure(m->verb, "out of memory for the result");
	json_init(&j, f);
	write(&j, arg);
	if (fclose(f)) {
		free(text);
		return failure(m->verb, "out of memory for the result");
	}
	if (m->json)
		fwrite(text, 1, n, stdout);
	fflush(stdout);
	if (m->save)
		code = save(m, text, n);
	later = plot_and_compare(m, text, n);
	free(text);
	return code == TOOL_OK ? later : code;
}
