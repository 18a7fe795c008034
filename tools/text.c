/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/text.h"

#include <stdbool.h>
#include <string.h>
#include <sys/utsname.h>

#define LABEL_WIDTH 18u /* the longest name of a parameter has 16 */

const char *text_bytes(uint64_t bytes, char *buf, size_t n)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	unsigned u = 0;

	while (v >= 1024 && u < 6) {
		v /= 1024;
		u++;
	}
	if (bytes % ((uint64_t)1 << (10 * u)))
		snprintf(buf, n, "%.1f %s", v, units[u]);
	else
		snprintf(buf, n, "%.0f %s", v, units[u]);
	return buf;
}

const char *text_us(double ns, char *buf, size_t n)
{
	double us = ns / 1e3;

	snprintf(buf, n, "%.*f", us < 9.9995 ? 3 : us < 99.995 ? 2 : us < 999.95 ? 1 : 0, us);
	return buf;
}

static void put_ascii(FILE *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fputc(s[i] > ' ' && s[i] < 0x7f ? s[i] : '?', out);
}

void text_wrap(FILE *out, const char *text, unsigned column, unsigned indent)
{
	static const char space[] = " \t\r\n";
	bool first = true;

	for (text += strspn(text, space); *text; text += strspn(text, space)) {
		size_t n = strcspn(text, space);

		if (!first && column + 1 + n > TEXT_WIDTH) {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (!first) {
			fputc(' ', out);
			column++;
		}
		put_ascii(out, text, n);
		column += (unsigned)n;
		text += n;
		first = false;
	}
	fputc('\n', out);
}

void text_field(FILE *out, const char *label, const char *value)
{
	fprintf(out, "  %-*s", (int)LABEL_WIDTH, label);
	text_wrap(out, value, LABEL_WIDTH + 2, LABEL_WIDTH + 2);
}

/* The value of the line "@key ...: value" of /proc/cpuinfo. */
static bool cpuinfo(const char *key, char *buf, size_t n)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[512];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');
		size_t k = strlen(key);

		if (!colon || strncmp(line, key, k) || (line[k] != '\t' && line[k] != ' ' &&
							 line[k] != ':'))
			continue;
		colon += strspn(colon, ": \t");
		colon[strcspn(colon, "\n")] = 0;
		snprintf(buf, n, "%s", colon);
		found = *buf;
	}
	if (f)
		fclose(f);
	return found;
}

const char *text_cpu(char *buf, size_t n)
{
	struct utsname u;

	/* x86 says "model name", ppc64 "cpu"; arm64 has numbers only */
	if (cpuinfo("model name", buf, n) || cpuinfo("cpu", buf, n))
		return buf;
	snprintf(buf, n, "%s", uname(&u) ? "unknown CPU" : u.machine);
	return buf;
}
