/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the tool that need no library: harness, reference loops, JSON, options, text. */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "bench/cuda.h"
#include "bench/harness.h"
#include "bench/reference.h"
#include "test.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/text.h"

/* ---- statistics -------------------------------------------------------------------------- */

static struct bench_stats of_sequence(size_t n)
{
	static double v[1000];
	struct bench_stats s;

	for (size_t i = 0; i < n; i++)
		v[i] = (double)((i * 7919) % n + 1); /* 1..n in some order: 7919 is a prime */
	bench_stats(v, n, &s);
	return s;
}

static void stats_of_known_data(void)
{
	struct bench_stats s = of_sequence(1);

	CHECK(s.median == 1 && s.p99 == 1 && s.min == 1 && s.max == 1);
	CHECK_EQ(s.samples, 1);
	s = of_sequence(2);
	CHECK(s.median == 1.5 && s.p99 == 2);
	s = of_sequence(7);
	CHECK(s.median == 4 && s.p99 == 7 && s.min == 1 && s.max == 7);
	CHECK(s.q1 == 2 && s.q3 == 6);
	s = of_sequence(99);
	CHECK(s.median == 50 && s.p99 == 99);
	s = of_sequence(100);
	CHECK(s.median == 50.5 && s.p99 == 99 && s.max == 100);
	CHECK(s.q1 == 26 && s.q3 == 75);
	s = of_sequence(101);
	CHECK(s.median == 51 && s.p99 == 100);
	s = of_sequence(1000);
	CHECK(s.median == 500.5 && s.p99 == 990 && s.max == 1000);
	s = of_sequence(0);
	CHECK_EQ(s.samples, 0);
	CHECK(s.median == 0);
}

static void one_outlier_moves_no_median(void)
{
	double v[] = { 5, 5, 5, 1e9, 5 };
	struct bench_stats s;

	bench_stats(v, 5, &s);
	CHECK(s.median == 5 && s.max == 1e9 && s.p99 == 1e9);
}

/* ---- harness ----------------------------------------------------------------------------- */

struct fake {
	char *log;       /* its letter is appended at each run; NULL: none */
	size_t *at;
	char letter;
	unsigned runs, befores, finishes;
	unsigned fail_at; /* the run that fails, from 1; 0: none */
	uint64_t spin_ns;
};

static int fake_run(void *arg)
{
	struct fake *f = arg;
	uint64_t began = f->spin_ns ? bench_now() : 0; /* slow where it is emulated */

	if (f->log)
		f->log[(*f->at)++] = f->letter;
	while (f->spin_ns && bench_now() - began < f->spin_ns)
		;
	return ++f->runs == f->fail_at ? -EILSEQ : 0;
}

static int fake_before(void *arg)
{
	struct fake *f = arg;

	f->befores++;
	return 0;
}

static void clock_is_sane(void)
{
	uint64_t a = bench_now();

	CHECK(bench_now() >= a);
	CHECK(bench_clock_cost() >= 0);
	CHECK(bench_clock_cost() < 1e5);
	CHECK(bench_clock_tick() >= 1 && bench_clock_tick() < 1000);
}

static void interleaves(void)
{
	char log[64] = "";
	size_t at = 0;
	struct fake fakes[3] = {
		{ .log = log, .at = &at, .letter = 'a', .spin_ns = 1000 },
		{ .log = log, .at = &at, .letter = 'b', .spin_ns = 1000 },
		{ .log = log, .at = &at, .letter = 'c', .spin_ns = 1000 },
	};
	struct bench_op ops[3];
	struct bench_plan plan = { .reps = 4, .warmup = 2, .warmup_set = true };
	struct bench_result r[3];

	for (int i = 0; i < 3; i++)
		ops[i] = (struct bench_op){ .run = fake_run, .before = fake_before,
					    .arg = &fakes[i], .single = true };
	CHECK_EQ(bench_run(ops, 3, &plan, r), 0);
	CHECK_STR(log, "abcabc" "abcbcacababc");
	for (int i = 0; i < 3; i++) {
		const struct bench_stats *s = &r[i].alone;

		CHECK_EQ(s->samples, 4);
		CHECK_EQ(fakes[i].befores, 6);
		CHECK(s->min <= s->median && s->median <= s->p99 && s->p99 <= s->max);
	}
}

static void rows_have_a_length(void)
{
	CHECK_EQ(bench_row_calls(0), 10000);
	CHECK_EQ(bench_row_calls(10), 1000); /* 10 us */
	CHECK_EQ(bench_row_calls(100), 100);
	CHECK_EQ(bench_row_calls(200), 64);
	CHECK_EQ(bench_row_calls(1500), 64);
	CHECK_EQ(bench_row_calls(6000), 16); /* 100 us */
	CHECK_EQ(bench_row_calls(40e3), 2);
	CHECK_EQ(bench_row_calls(99e3), 1);
	CHECK_EQ(bench_row_calls(1e9), 1);
}

static void times_alone_and_in_a_row(void)
{
	struct fake fast = { 0 }, slow = { .spin_ns = 200000 };
	struct bench_op ops[] = {
		{ .run = fake_run, .before = fake_before, .arg = &fast },
		{ .run = fake_run, .before = fake_before, .arg = &slow },
	};
	struct bench_plan plan = { .reps = 20, .warmup = 3, .warmup_set = true };
	struct bench_result r[2];
	unsigned tries;

	CHECK_EQ(bench_run(ops, 2, &plan, r), 0);
	CHECK(r[0].calls >= 64);
	CHECK_EQ(r[0].alone.samples, 20);
	CHECK_EQ(r[0].row.samples, 20);
	/* warm-up, rows that were tried, 20 times alone and 20 rows */
	tries = fast.befores - 3 - 20 - 20;
	CHECK(tries > 0);
	CHECK_EQ(fast.runs, 3 + tries * 64 + 20 + 20 * r[0].calls);
	/* too slow for a row: once a round, and both are the same */
	CHECK_EQ(r[1].calls, 1);
	CHECK_EQ(slow.runs, 23);
	CHECK_EQ(slow.befores, 23);
	CHECK(r[1].alone.median > 190000);
	CHECK(r[1].row.median == r[1].alone.median && r[1].row.samples == 20);
}

static int loop(void *arg)
{
	for (volatile unsigned i = *(unsigned *)arg; i; i--)
		;
	return 0;
}

/* All of them between ticks, or none: times of a few ticks, some on each side of one. */
static void median_is_between_quartiles(void)
{
	struct bench_plan plan = { .reps = 300, .warmup = 2, .warmup_set = true };

	for (unsigned turns = 1; turns < 60; turns++) {
		struct bench_op op = { .run = loop, .arg = &turns, .single = true };
		struct bench_result r;
		const struct bench_stats *s = &r.alone;

		CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
		if (s->min > s->q1 || s->q1 > s->median || s->median > s->q3 || s->q3 > s->max)
			FAIL("%u turns: %g %g %g %g %g", turns, s->min, s->q1, s->median, s->q3,
			     s->max);
	}
}

static void single_has_no_row(void)
{
	struct fake fast = { 0 };
	struct bench_op op = { .run = fake_run, .before = fake_before, .arg = &fast,
			       .single = true };
	struct bench_plan plan = { .reps = 10 };
	struct bench_result r;

	CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
	CHECK_EQ(r.calls, 1);
	CHECK_EQ(r.alone.samples, 10);
	CHECK_EQ(r.row.samples, 0);
	CHECK_EQ(fast.runs, fast.befores);
}

/* Like a write that is posted: what comes right after another one waits for it. */
static int posted_run(void *arg)
{
	struct fake *f = arg;

	f->spin_ns = f->runs ? 2000 : 0;
	return fake_run(arg);
}

static int posted_flush(void *arg)
{
	((struct fake *)arg)->runs = 0;
	return 0;
}

static void a_row_and_one_alone_are_not_mixed(void)
{
	struct fake f = { 0 };
	struct bench_op op = { .run = posted_run, .before = posted_flush, .arg = &f };
	struct bench_plan plan = { .reps = 50 };
	struct bench_result r;

	CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
	CHECK(r.calls > 1 && r.calls <= 64);
	CHECK(r.alone.median < 1000);
	CHECK(r.row.median > 1500);
}

/* Is slow now and then when it is timed alone: the harness has @before in front of each time. */
static int tail_before(void *arg)
{
	struct fake *f = arg;

	f->spin_ns = ++f->befores % 40 < 2 ? 200000 : 0; /* one of 20 that are alone */
	return 0;
}

static int tail_run(void *arg)
{
	struct fake *f = arg;
	int ret = fake_run(arg);

	f->spin_ns = 0;
	return ret;
}

static void a_row_does_not_hide_the_tail(void)
{
	struct fake f = { 0 };
	struct bench_plan plan = { .reps = 200, .warmup = 2, .warmup_set = true };
	struct bench_result r;
	struct bench_op op = { .run = tail_run, .before = tail_before, .arg = &f };

	CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
	CHECK(r.calls > 1);
	CHECK(r.alone.p99 >= 190000);
	CHECK(r.alone.median < 100000);
}

static void stops_in_time(void)
{
	struct fake f = { .spin_ns = 2000000 };
	struct bench_op op = { .run = fake_run, .arg = &f };
	struct bench_plan plan = { .seconds = 0.05 };
	struct bench_result r;

	CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
	CHECK(r.alone.samples >= BENCH_MIN_REPS);
	CHECK(f.runs <= 26); /* 25 fill the time, the warm-up's too */
	f = (struct fake){ .spin_ns = 2000000 };
	plan.seconds = 0.001;
	CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
	CHECK_EQ(r.alone.samples, BENCH_MIN_REPS);
}

static void gives_back_an_error(void)
{
	struct bench_plan plan = { .reps = 5, .warmup = 2, .warmup_set = true };
	struct bench_result r = { .calls = 12345 };
	/* single: 7 runs; else also in the rows that are tried and in those that count */
	static const unsigned ends[] = { 8, 300 };

	for (int k = 0; k < 2; k++) {
		for (unsigned at = 1; at < ends[k]; at++) {
			struct fake f = { .fail_at = at, .spin_ns = 1000 };
			struct bench_op op = { .run = fake_run, .arg = &f, .single = k == 0 };

			int ret = bench_run(&op, 1, &plan, &r);

			if (!ret && at > 40) { /* rows are shorter on a busy machine */
				CHECK(f.runs < at);
				r.calls = 12345;
				continue;
			}
			CHECK_EQ(ret, -EILSEQ);
			CHECK_EQ(f.runs, at);
			CHECK_EQ(r.calls, 12345);
		}
	}
}

static int fake_finish(void *arg)
{
	struct fake *f = arg;
	uint64_t began = bench_now();

	f->finishes++;
	while (bench_now() - began < 5000)
		;
	return 0;
}

static void rows_only_with_their_end(void)
{
	struct fake fast = { .spin_ns = 1000 }, slow = { .spin_ns = 300000 };
	struct bench_op ops[] = {
		{ .run = fake_run, .before = fake_before, .finish = fake_finish, .arg = &fast },
		{ .run = fake_run, .arg = &slow },
	};
	struct bench_plan plan = { .reps = 10, .warmup = 2, .warmup_set = true, .rows_only = true };
	struct bench_result r[2];

	CHECK_EQ(bench_run(ops, 2, &plan, r), 0);
	CHECK_EQ(fast.befores, fast.finishes); /* both once in a row, however long it is */
	CHECK(fast.runs > fast.befores);
	CHECK_EQ(r[0].alone.samples, 0);
	CHECK_EQ(r[0].row.samples, 10);
	/* the end is in the time: the 5 us of it over the calls of the row */
	CHECK(r[0].row.median * r[0].calls > 4500 + 1000 * r[0].calls * 0.9);
	CHECK_EQ(r[1].calls, 1);
	CHECK_EQ(r[1].row.samples, 10);
	CHECK(r[1].row.median > 290000);
	/* it spins: nearly all of its time is CPU time, unless others were given the CPU */
	CHECK(r[1].cpu > 0 && r[1].cpu < 1.5 * r[1].row.max);
}

static void no_cpu_time_where_it_was_not_asked(void)
{
	struct fake f = { 0 };
	struct bench_op op = { .run = fake_run, .arg = &f };
	struct bench_plan plan = { .reps = 5 };
	struct bench_result r;

	CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
	CHECK(r.cpu == 0);
}

static void histograms_count(void)
{
	struct bench_histogram h = { 0 };
	struct fake f = { .spin_ns = 200000 };
	struct bench_op op = { .run = fake_run, .arg = &f, .single = true, .histogram = &h };
	struct bench_plan plan = { .reps = 7 };
	struct bench_result r;
	size_t n = 0, fast = 0;

	CHECK_EQ(bench_run(&op, 1, &plan, &r), 0);
	for (int i = 0; i < BENCH_BUCKETS; i++) {
		n += h.bucket[i];
		fast += i < 17 ? h.bucket[i] : 0; /* less than 131 us */
	}
	CHECK_EQ(n, 7);
	CHECK_EQ(fast, 0);
	h = (struct bench_histogram){ 0 };
	bench_histogram_add(&h, -5);
	bench_histogram_add(&h, 0);
	bench_histogram_add(&h, 1.9);
	bench_histogram_add(&h, 2);
	bench_histogram_add(&h, 1023.9);
	bench_histogram_add(&h, 1024);
	bench_histogram_add(&h, 1e30);
	CHECK(h.bucket[0] == 3 && h.bucket[1] == 1 && h.bucket[9] == 1 && h.bucket[10] == 1);
	CHECK(h.bucket[BENCH_BUCKETS - 1] == 1);
}

/* ---- reference loops --------------------------------------------------------------------- */

static void reference_loops_copy_exactly(void)
{
	static unsigned char src[512], dst[512];
	static const size_t sizes[] = { 0, 1, 3, 8, 15, 16, 17, 31, 63, 64, 65, 100, 255 };

	test_fill(src, sizeof(src), 1);
	for (size_t a = 0; a < 33; a++) {
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			size_t n = sizes[k];

			memset(dst, 0x11, sizeof(dst));
			bench_reference_to(dst + a, src + 7, n);
			CHECK(!memcmp(dst + a, src + 7, n));
			CHECK(dst[a + n] == 0x11 && (!a || dst[a - 1] == 0x11));
			memset(dst, 0x22, sizeof(dst));
			bench_reference_from(dst + 5, src + a, n);
			CHECK(!memcmp(dst + 5, src + a, n));
			CHECK(dst[4] == 0x22 && dst[5 + n] == 0x22);
		}
	}
}

static void no_cuda_has_a_reason(void)
{
	char reason[200] = "";

	CHECK(!bench_cuda_open("libnot-there.so.9", "0000:01:00.0", 64, reason, sizeof(reason)));
	CHECK_HAS(reason, "libnot-there.so.9");
	/* a library that is there and is not CUDA */
	CHECK(!bench_cuda_open("libc.so.6", "0000:01:00.0", 64, reason, sizeof(reason)));
	CHECK_HAS(reason, "libc.so.6 has no cuInit");
}

/* ---- JSON -------------------------------------------------------------------------------- */

static char *json_text;
static size_t json_size;

static struct json json_start(void)
{
	struct json j;
	FILE *f = open_memstream(&json_text, &json_size);

	CHECK(f);
	json_init(&j, f);
	return j;
}

static void json_is(struct json *j, const char *want)
{
	fclose(j->out);
	CHECK_STR(json_text, want);
	free(json_text);
}

static void json_nests(void)
{
	struct json j = json_start();

	json_object(&j);
	json_key(&j, "a");
	json_int(&j, -1);
	json_key(&j, "b");
	json_array(&j);
	json_uint(&j, 1);
	json_object(&j);
	json_object_end(&j);
	json_array(&j);
	json_array_end(&j);
	json_array_end(&j);
	json_key(&j, "c");
	json_null(&j);
	json_object_end(&j);
	json_is(&j, "{\n  \"a\": -1,\n  \"b\": [\n    1,\n    {},\n    []\n  ],\n"
		    "  \"c\": null\n}\n");
}

static void json_values(void)
{
	struct json j = json_start();

	json_array(&j);
	json_uint(&j, UINT64_MAX);
	json_int(&j, INT64_MIN);
	json_double(&j, 0.125);
	json_double(&j, 1234567.25);
	json_double(&j, NAN);
	json_double(&j, -INFINITY);
	json_bool(&j, true);
	json_bool(&j, false);
	json_string(&j, NULL);
	json_array_end(&j);
	json_is(&j, "[\n  18446744073709551615,\n  -9223372036854775808,\n  0.125,\n"
		    "  1234567.25,\n  null,\n  null,\n  true,\n  false,\n  null\n]\n");
}

static void json_string_is(const char *s, const char *want)
{
	struct json j = json_start();

	json_string(&j, s);
	json_is(&j, want);
}

static void json_escapes(void)
{
	json_string_is("", "\"\"");
	json_string_is("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
	json_string_is("\n\t\r\x01\x1f\x7f", "\"\\n\\t\\u000d\\u0001\\u001f\\u007f\"");
	json_string_is("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80",
		       "\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

static void json_repairs_utf8(void)
{
	json_string_is("\xff", "\"\\ufffd\"");
	json_string_is("a\xc3", "\"a\\ufffd\"");             /* ends in the middle */
	json_string_is("\xc3(", "\"\\ufffd(\"");
	json_string_is("\xc0\xaf", "\"\\ufffd\\ufffd\"");    /* overlong */
	json_string_is("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""); /* a surrogate */
	json_string_is("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""); /* past U+10FFFF */
	json_string_is("\xe2\x82", "\"\\ufffd\\ufffd\"");
}

static void json_keys_are_escaped(void)
{
	struct json j = json_start();

	json_object(&j);
	json_key(&j, "\"");
	json_string(&j, "x");
	json_object_end(&j);
	json_is(&j, "{\n  \"\\\"\": \"x\"\n}\n");
}

/* ---- options and text -------------------------------------------------------------------- */

static void sizes_parse(void)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 }, { "1", 1 }, { "4096", 4096 }, { "1K", 1024 }, { "3k", 3072 },
		{ "16M", 16 << 20 }, { "2G", 2ull << 30 }, { "18446744073709551615", UINT64_MAX },
		{ "007", 7 }, { "0x10000", 65536 }, { "0XfFk", 255 << 10 },
		{ "0xffffffffffffffff", UINT64_MAX },
	};
	static const char *const bad[] = {
		"", "K", "abc", "-1", "+1", " 1", "1 ", "1.5M", "1KB", "1KK", "1T", "0x", "1\n",
		"18446744073709551616", "18014398509481984K", "1@", "1+", "1f", "0xg",
		"0x1ffffffffffffffff",
	};
	uint64_t n;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CHECK(parse_size(good[i].text, &n));
		CHECK(n == good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		n = 77;
		if (parse_size(bad[i], &n))
			FAIL("'%s' was taken for a size", bad[i]);
	}
}

static void counts_parse(void)
{
	uint64_t n = 0;

	CHECK(parse_count("1", 1, 5, &n) && n == 1);
	CHECK(parse_count("5", 1, 5, &n) && n == 5);
	CHECK(!parse_count("0", 1, 5, &n));
	CHECK(!parse_count("6", 1, 5, &n));
	CHECK(!parse_count("1K", 1, 5000, &n));
	CHECK(!parse_count("-1", 0, 5, &n));
	CHECK(!parse_count("", 0, 5, &n));
	CHECK_EQ(n, 5);
}

static void amounts_print(void)
{
	char buf[32];

	CHECK_STR(text_bytes(0, buf, sizeof(buf)), "0 B");
	CHECK_STR(text_bytes(1023, buf, sizeof(buf)), "1023 B");
	CHECK_STR(text_bytes(65536, buf, sizeof(buf)), "64 KiB");
	CHECK_STR(text_bytes(256 << 20, buf, sizeof(buf)), "256 MiB");
	CHECK_STR(text_bytes(1536, buf, sizeof(buf)), "1.5 KiB");
	CHECK_STR(text_bytes(UINT64_MAX, buf, sizeof(buf)), "16.0 EiB");
	CHECK_STR(text_us(139, buf, sizeof(buf)), "0.139");
	CHECK_STR(text_us(9999.6, buf, sizeof(buf)), "10.00");
	CHECK_STR(text_us(71600, buf, sizeof(buf)), "71.60");
	CHECK_STR(text_us(327000, buf, sizeof(buf)), "327.0");
	CHECK_STR(text_us(23545000, buf, sizeof(buf)), "23545");
}

static void text_wraps(void)
{
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	CHECK(f);
	text_wrap(f, "one two", 76, 4); /* "one two" ends at 83 */
	text_wrap(f, "", 0, 4);
	text_wrap(f, " caf\xc3\xa9\n\tand  more ", 0, 0);
	fclose(f);
	CHECK_STR(text, "one\n    two\n\ncaf?? and more\n");
	free(text);
}

static void cpu_has_a_name(void)
{
	char buf[128] = "";

	CHECK(*text_cpu(buf, sizeof(buf)));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(stats_of_known_data),
		TEST(one_outlier_moves_no_median),
		TEST(clock_is_sane),
		TEST(interleaves),
		TEST(rows_have_a_length),
		TEST(times_alone_and_in_a_row),
		TEST(median_is_between_quartiles),
		TEST(single_has_no_row),
		TEST(a_row_and_one_alone_are_not_mixed),
		TEST(a_row_does_not_hide_the_tail),
		TEST(stops_in_time),
		TEST(gives_back_an_error),
		TEST(rows_only_with_their_end),
		TEST(no_cpu_time_where_it_was_not_asked),
		TEST(histograms_count),
		TEST(reference_loops_copy_exactly),
		TEST(no_cuda_has_a_reason),
		TEST(json_nests),
		TEST(json_values),
		TEST(json_escapes),
		TEST(json_repairs_utf8),
		TEST(json_keys_are_escaped),
		TEST(sizes_parse),
		TEST(counts_parse),
		TEST(amounts_print),
		TEST(text_wraps),
		TEST(cpu_has_a_name),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
