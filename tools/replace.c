/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Closes @fd, too. */
static int write_all(int fd, const char *text, size_t n, bool to_disk)
{
	int ret = fd < 0 ? -errno : 0;

	while (n && ret == 0) {
		ssize_t done = write(fd, text, n);

		if (done < 0 && errno != EINTR)
			ret = -errno;
		text += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	if (ret == 0 && to_disk && fsync(fd))
		ret = -errno;
	if (fd >= 0 && close(fd) && ret == 0)
		ret = -errno;
	return ret;
}

static mode_t mode_of_new_files(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0666 & ~mask;
}

int replace_file(const char *path, const char *text, size_t n)
{
	struct stat st, link;
	bool there = !stat(path, &st), dangles = !there && !lstat(path, &link);
	char temporary[4096 + 16], *file;
	int fd, ret;

	if (dangles || (there && !S_ISREG(st.st_mode)))
		return write_all(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666), text, n, false);
	file = there ? realpath(path, NULL) : strdup(path);
	if (!file)
		return -errno;
	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", file);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd >= 0)
		fchmod(fd, there ? st.st_mode & 0777 : mode_of_new_files());
	ret = write_all(fd, text, n, true);
	if (ret == 0 && rename(temporary, file))
		ret = -errno;
	if (ret < 0 && fd >= 0)
		unlink(temporary);
	free(file);
	return ret;
}
