/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines of a channel, bit by bit as include/barway_channel_abi.h has them: written here once more
 * from that text, so that both sides of src/channel/line.h cannot be wrong in the same way.
 */
#include "channel/line.h"
#include "test.h"

#include "mmio/mmio.h"

#define LINES 64u

static const struct bw_line_kernel *kernel; /* that is tested */

static unsigned bit_of(const uint64_t *line, unsigned word, unsigned bit)
{
	return line[word] >> bit & 1;
}

/* Bit @bit of word @word of what the line carries, which ends after @n bytes. */
static unsigned want_bit(const unsigned char *data, size_t n, unsigned word, unsigned bit)
{
	size_t at = (word - 1) * 8 + bit / 8;

	return at < n ? data[at] >> bit % 8 & 1 : 0;
}

static void check_line(const uint64_t *line, uint64_t position, const unsigned char *data,
		       size_t n, unsigned size, unsigned tag)
{
	static const unsigned where[] = { 63, 56, 60, 57, 61, 58, 62, 59 };
	unsigned mark = position / LINES % 2 == 0;

	for (unsigned w = 0; w < 8; w++)
		CHECK_EQ(bit_of(line, w, 63), mark);
	for (unsigned w = 1; w < 8; w++) {
		for (unsigned b = 0; b < 63; b++)
			CHECK_EQ(bit_of(line, w, b), want_bit(data, n, w, b));
		CHECK_EQ(bit_of(line, 0, where[w]), want_bit(data, n, w, 63));
	}
	CHECK_EQ(line[0] >> 44 & 0xfff, size);
	CHECK_EQ(line[0] >> 32 & 0xfff, tag);
	CHECK_EQ(line[0] & 0xffffffff, position & 0xffffffff);
}

static void check_message(uint64_t position, size_t bytes, unsigned tag, unsigned kind)
{
	_Alignas(64) uint64_t ring[BARWAY_MESSAGE_LINES][8];
	unsigned char data[BARWAY_MESSAGE_MAX + 1], back[BARWAY_LINE_DATA];
	uint64_t w[8];
	size_t done = 0;
	unsigned n;

	test_fill(data, sizeof(data), bytes + position);
	if (kind)
		memset(data, kind == 1 ? 0xff : 0, sizeof(data));
	n = kernel->put(ring, position, LINES, data + 1, bytes, tag);
	CHECK_EQ(n, bytes ? (bytes + 55) / 56 : 1);
	for (unsigned i = 0; i < n; i++, done += BARWAY_LINE_DATA) {
		size_t part = bytes - done < BARWAY_LINE_DATA ? bytes - done : BARWAY_LINE_DATA;

		check_line(ring[i], position + i, data + 1 + done, part,
			   i ? 0xfff : (unsigned)bytes, i ? 0 : tag);
		memset(back, 0x5a, sizeof(back));
		memcpy(w, ring[i], sizeof(w));
		kernel->take(back, part, w);
		CHECK(!memcmp(back, data + 1 + done, part));
		for (size_t k = part; k < sizeof(back); k++)
			CHECK_EQ(back[k], 0x5a);
	}
}

/* The same line, in both places, and nothing beside them. */
static void check_sent(uint64_t position, size_t bytes, unsigned tag)
{
	_Alignas(64) unsigned char at[5][64], untouched[64];
	unsigned char data[BARWAY_LINE_DATA + 1];
	uint64_t line[8];

	test_fill(data, sizeof(data), bytes + position);
	for (size_t twin = 0; twin <= 128; twin += 128) {
		memset(at, 0x5a, sizeof(at));
		memset(untouched, 0x5a, sizeof(untouched));
		kernel->send(at[1], twin, bw_line_control(position, bytes, tag),
			     bw_line_mark(position, LINES), data + 1, bytes);
		for (unsigned i = 0; i < 5; i++) {
			if (i != 1 && !(twin && i == 3)) {
				CHECK(!memcmp(at[i], untouched, 64));
				continue;
			}
			memcpy(line, at[i], sizeof(line));
			check_line(line, position, data + 1, bytes, (unsigned)bytes, tag);
		}
	}
}

static void straight_to_the_ring_by(void)
{
	for (unsigned bytes = 0; kernel->send && bytes <= BARWAY_LINE_DATA; bytes++)
		for (uint64_t position = bytes; position < 4 * LINES; position += 57)
			check_sent(position, bytes, bytes * 71 & 0xfff);
}

static void every_size_by(void)
{
	for (unsigned bytes = 0; bytes <= BARWAY_MESSAGE_MAX; bytes++)
		for (unsigned kind = 0; kind < 3; kind++)
			check_message(bytes * 7, bytes, bytes * 4 & 0xfff, kind);
}

static void positions_beyond_32_bits_by(void)
{
	static const uint64_t from[] = { LINES - 1, 2 * LINES - 1, 0xfffffff0, 0xffffffff,
					 1ull << 32, (1ull << 40) - 3, UINT64_MAX - 100 };

	for (unsigned i = 0; i < sizeof(from) / sizeof(from[0]); i++)
		check_message(from[i], BARWAY_MESSAGE_MAX, 0xfff, 0);
}

/* Nothing stands in zeroed memory, and a line is there when all words bear the mark of its lap. */
static void all_eight_marks_by(void)
{
	_Alignas(64) uint64_t ring[LINES][8] = { { 0 } };
	uint64_t line[1][8], w[8];

	for (uint64_t position = 0; position < 4 * LINES; position++) {
		uint64_t *at = ring[position % LINES];

		kernel->put(line, position, LINES, "0123456789", 10, 5);
		CHECK(!kernel->get(w, (void *)ring, position, LINES));
		for (unsigned all = 0; all < 255; all++) { /* every set of words but the full one */
			uint64_t old[8];

			memcpy(old, at, sizeof(old));
			for (unsigned i = 0; i < 8; i++)
				if (all >> i & 1)
					at[i] = line[0][i];
			CHECK(!kernel->get(w, (void *)ring, position, LINES));
			memcpy(at, old, sizeof(old));
		}
		memcpy(at, line[0], sizeof(line[0]));
		CHECK(kernel->get(w, (void *)ring, position, LINES));
		CHECK(!memcmp(w, line[0], sizeof(w)));
	}
}

/* By each of the kernels that this CPU can run. */
static void by_each(void (*test)(void))
{
	kernel = &bw_line_c;
	test();
	kernel = bw_line_kernel(bw_mmio_cpu_isa());
	if (kernel != &bw_line_c)
		test();
}

static void every_size(void)
{
	by_each(every_size_by);
}

static void straight_to_the_ring(void)
{
	by_each(straight_to_the_ring_by);
}

static void positions_beyond_32_bits(void)
{
	by_each(positions_beyond_32_bits_by);
}

static void all_eight_marks(void)
{
	by_each(all_eight_marks_by);
}

/* What is not allowed is not used. */
static void as_allowed(void)
{
	CHECK(bw_line_kernel(BW_ISA_C | BW_ISA_AVX2) == &bw_line_c);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(every_size),
		TEST(straight_to_the_ring),
		TEST(positions_beyond_32_bits),
		TEST(all_eight_marks),
		TEST(as_allowed),
		{ 0 },
	};

	return test_main(argc, argv, cases);
}
