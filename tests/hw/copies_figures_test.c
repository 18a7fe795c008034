/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is the choice right? Copies as planned take at most a tenth longer than the better one of one
 * CPU thread and cuMemcpy of the same kind of memory. The three take turns in one run; medians of
 * copies in a row. Figures of a machine that is busy with something else mean nothing, so this is
 * done only where it is asked for, and on a GPU:
 *
 *     COPIES_FIGURES=1 copies_figures_test [--json FILE]
 *
 * The plan is that of the device: built in, or what 'barway tune' has written. COPIES_HELPERS=N:
 * with so many helper threads; COPIES_RESIDENT=1: with the resident copier.
 */
#include "bench/harness.h"
#include "hw/copies.h"

#define LIMIT 1.10
#define LARGEST (256 * MIB)
#define ROW_ONLY MIB /* from here on, no copies by themselves */

enum { AUTO, CPU, CUMEMCPY, WAYS };
static const char *const way_names[WAYS] = { "auto", "cpu", "cumemcpy" };

struct figure {
	uint32_t direction;
	unsigned kind;
	size_t bytes;
	double ns[WAYS];
	char method[16];
	bool again; /* measured twice: the first time it was too slow */
};

static struct {
	struct barway_context *ctx;
	struct barway_device *dev;
	struct barway_mapping *map;
	uint64_t addr;
	unsigned char *host[2];
	size_t most;
	char source[96];
	struct figure figures[128];
	unsigned n;
} fig;

static const char *json_file;

struct call {
	const struct figure *f;
	int way;
};

static int one(void *arg)
{
	const struct call *c = arg;
	size_t n = c->f->bytes;
	void *host = fig.host[c->f->kind];
	bool to = c->f->direction == BARWAY_TO_GPU;

	if (c->way == AUTO)
		return to ? barway_copy_to(fig.map, 0, host, n) :
			    barway_copy_from(fig.map, host, 0, n);
	if (c->way == CPU)
		return to ? barway_copy_to_by(fig.map, BARWAY_METHOD_CPU, 0, host, n) :
			    barway_copy_from_by(fig.map, BARWAY_METHOD_CPU, host, 0, n);
	return -(to ? gpu.cuMemcpyHtoD_v2(fig.addr, host, n) :
		      gpu.cuMemcpyDtoH_v2(host, fig.addr, n));
}

/* Nothing is under way any more: of posted writes, and of the copy engine's work. */
static int before(void *arg)
{
	const struct call *c = arg;
	int ret = c->way == CUMEMCPY ? -gpu.cuCtxSynchronize() : 0;

	return ret ? ret : barway_flush(fig.map);
}

static void measure(struct figure *f, double seconds)
{
	const struct bench_plan plan = { .seconds = seconds, .rows_only = f->bytes >= ROW_ONLY };
	struct bench_result results[WAYS];
	struct bench_op ops[WAYS];
	struct call calls[WAYS];
	int ret;

	for (int w = 0; w < WAYS; w++) {
		calls[w] = (struct call){ f, w };
		ops[w] = (struct bench_op){ .run = one, .before = before, .arg = &calls[w] };
	}
	ret = bench_run(ops, WAYS, &plan, results);
	if (ret)
		FAIL("%zu bytes %s GPU, %s: %d: %s", f->bytes, direction_names[f->direction],
		     kind_names[f->kind], ret, barway_errmsg());
	for (int w = 0; w < WAYS; w++)
		f->ns[w] = results[w].row.median;
}

static double ratio(const struct figure *f)
{
	double best = f->ns[CPU] < f->ns[CUMEMCPY] ? f->ns[CPU] : f->ns[CUMEMCPY];

	return f->ns[AUTO] / best;
}

/* ---- the table --------------------------------------------------------------------------- */

static void print_titles(uint32_t direction, unsigned kind)
{
	printf("\n%s GPU, %s memory, microseconds, plan: %s\n%10s %10s %10s %10s %7s  %s\n",
	       direction_names[direction], kind_names[kind], fig.source, "bytes", way_names[AUTO],
	       way_names[CPU], way_names[CUMEMCPY], "ratio", "method");
}

static void print_figure(const struct figure *f)
{
	printf("%10zu %10.3f %10.3f %10.3f %7.2f  %s%s%s\n", f->bytes, f->ns[AUTO] / 1e3,
	       f->ns[CPU] / 1e3, f->ns[CUMEMCPY] / 1e3, ratio(f), f->method,
	       f->again ? ", measured twice" : "", ratio(f) > LIMIT ? "  TOO SLOW" : "");
}

static void write_json(void)
{
	FILE *f = json_file ? fopen(json_file, "we") : NULL;

	if (!json_file)
		return;
	if (!f)
		FAIL("%s cannot be written", json_file);
	fprintf(f, "{\"schema\": \"barway-copies-figures-1\", \"plan\": \"%s\", \"limit\": %.2f,\n"
		"\"results\": [\n", fig.source, LIMIT);
	for (unsigned i = 0; i < fig.n; i++) {
		const struct figure *x = &fig.figures[i];

		fprintf(f, "{\"direction\": \"%s\", \"host\": \"%s\", \"size_bytes\": %zu, "
			"\"method\": {\"name\": \"%s\"}", direction_names[x->direction],
			kind_names[x->kind], x->bytes, x->method);
		for (int w = 0; w < WAYS; w++)
			fprintf(f, ", \"%s\": {\"median_us\": %.4f}", way_names[w], x->ns[w] / 1e3);
		fprintf(f, ", \"ratio\": %.3f, \"within\": %s}%s\n", ratio(x),
			ratio(x) > LIMIT ? "false" : "true", i + 1 < fig.n ? "," : "");
	}
	fputs("]}\n", f);
	if (fclose(f))
		FAIL("%s cannot be written", json_file);
}

/* ---- the case ---------------------------------------------------------------------------- */

/* As much as the aperture has room for. */
static void open_memory(void)
{
	for (fig.most = LARGEST; fig.most >= MIB; fig.most /= 2) {
		OK(barway_mem_alloc(fig.dev, fig.most, &fig.addr));
		if (!barway_map(fig.ctx, fig.addr, fig.most, NULL, &fig.map))
			break;
		OK(barway_mem_free(fig.ctx, fig.addr));
	}
	if (!fig.map)
		FAIL("not even 1 MiB can be mapped: %s", barway_errmsg());
	fig.host[PAGEABLE] = aligned_alloc(4096, fig.most);
	CHECK(fig.host[PAGEABLE]);
	OK(barway_host_alloc(fig.dev, fig.most, (void **)&fig.host[PINNED], NULL));
	for (unsigned kind = 0; kind < 2; kind++)
		fill_words(fig.host[kind], fig.most, kind + 1);
	OK(barway_copy_to(fig.map, 0, fig.host[PAGEABLE], fig.most));
}

static void close_memory(void)
{
	OK(barway_unmap(fig.map));
	OK(barway_mem_free(fig.ctx, fig.addr));
	OK(barway_host_free(fig.ctx, fig.host[PINNED]));
	free(fig.host[PAGEABLE]);
	if (setting("COPIES_RESIDENT", 0))
		OK(barway_resident_stop(fig.dev));
	OK(barway_close(fig.ctx));
}

static void ask(struct figure *f)
{
	struct barway_plan_info info = { .size = sizeof(info) };

	OK(barway_plan(fig.map, f->direction, 0, fig.host[f->kind], f->bytes, &info));
	snprintf(f->method, sizeof(f->method), "%s", info.name);
	snprintf(fig.source, sizeof(fig.source), "%s", info.source);
}

static void measure_all(uint32_t direction, unsigned kind)
{
	static const size_t sizes[] = { 1, 64, KIB, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 128 * KIB,
					256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= fig.most; i++) {
		struct figure *f = &fig.figures[fig.n++];

		*f = (struct figure){ .direction = direction, .kind = kind, .bytes = sizes[i] };
		ask(f);
		if (!i)
			print_titles(direction, kind);
		measure(f, 0.25);
		if (ratio(f) > LIMIT) {
			f->again = true;
			measure(f, 1);
		}
		print_figure(f);
	}
}

static void the_choice_is_right(void)
{
	unsigned slow = 0;

	if (!setting("COPIES_FIGURES", 0))
		SKIP("COPIES_FIGURES=1 asks for it");
	open_device((uint32_t)setting("COPIES_HELPERS", 0), &fig.ctx, &fig.dev);
	if (hw.soft)
		SKIP("figures of the soft GPU mean nothing");
	if (setting("COPIES_RESIDENT", 0))
		OK(barway_resident_start(fig.dev, NULL));
	open_memory();
	for (uint32_t d = BARWAY_TO_GPU; d <= BARWAY_FROM_GPU; d++)
		for (unsigned kind = PAGEABLE; kind <= PINNED; kind++)
			measure_all(d, kind);
	write_json();
	close_memory();
	for (unsigned i = 0; i < fig.n; i++)
		slow += ratio(&fig.figures[i]) > LIMIT;
	if (slow)
		FAIL("%u of %u choices take more than %.2f times the best: see the table, and run "
		     "'barway tune'", slow, fig.n, LIMIT);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = { TEST(the_choice_is_right), { 0 } };

	if (argc > 2 && !strcmp(argv[1], "--json")) {
		json_file = argv[2];
		argv[2] = argv[0];
		argv += 2;
		argc -= 2;
	}
	return test_main(argc, argv, cases);
}
