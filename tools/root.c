/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *root_prefix(void)
{
	const char *prefix = getenv("BARWAY_DOCTOR_ROOT");

	return prefix ? prefix : "";
}

const char *root_path(char path[ROOT_PATH], const char *fmt, ...)
{
	size_t n = (size_t)snprintf(path, ROOT_PATH, "%s", root_prefix());
	int more;
	va_list ap;

	if (n < ROOT_PATH) {
		va_start(ap, fmt);
		more = vsnprintf(path + n, ROOT_PATH - n, fmt, ap);
		va_end(ap);
		if (more >= 0 && n + (size_t)more < ROOT_PATH)
			return path;
	}
	path[0] = 0;
	return path;
}

bool root_exists(const char *path)
{
	char full[ROOT_PATH];

	return !access(root_path(full, "%s", path), F_OK);
}

/* Up to @n bytes of the file; the number, -1: it cannot be read. */
static ssize_t read_some(const char *path, char *text, size_t n)
{
	char full[ROOT_PATH];
	int fd = open(root_path(full, "%s", path), O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t got = -1;

	if (fd < 0)
		return -1;
	do {
		got = read(fd, text + len, n - len);
		if (got > 0)
			len += (size_t)got;
	} while ((got > 0 && len < n) || (got < 0 && errno == EINTR));
	close(fd);
	return got < 0 && !len ? -1 : (ssize_t)len;
}

bool root_line(const char *path, char *line, size_t n)
{
	ssize_t got = read_some(path, line, n - 1);

	line[got > 0 ? got : 0] = 0;
	line[strcspn(line, "\n")] = 0;
	return line[0];
}

bool root_has(const char *path, const char *word)
{
	char full[ROOT_PATH], *line = NULL;
	FILE *f = fopen(root_path(full, "%s", path), "re");
	size_t room = 0, n = strlen(word);
	ssize_t got;
	bool found = false;

	while (f && !found && (got = getline(&line, &room, f)) > 0)
		found = memmem(line, (size_t)got, word, n) != NULL;
	free(line);
	if (f)
		fclose(f);
	return found;
}

bool root_link_name(const char *path, char *name, size_t n)
{
	char full[ROOT_PATH], target[ROOT_PATH];
	ssize_t got = readlink(root_path(full, "%s", path), target, sizeof(target) - 1);
	const char *slash;

	name[0] = 0;
	if (got <= 0)
		return false;
	target[got] = 0;
	slash = strrchr(target, '/');
	snprintf(name, n, "%s", slash ? slash + 1 : target);
	return name[0];
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

int root_list(const char *path, void (*each)(void *arg, const char *name), void *arg)
{
	char full[ROOT_PATH];
	struct dirent **list;
	int n = scandir(root_path(full, "%s", path), &list, visible, alphasort);

	for (int i = 0; i < n; i++) {
		each(arg, list[i]->d_name);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return n < 0 ? -1 : n;
}
