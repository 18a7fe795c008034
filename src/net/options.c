/* SPDX-License-Identifier: BSD-3-Clause */
/* net/options: what a caller leaves open is taken from the parameters; all of it is checked. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fault.h"
#include "net/net_int.h"

#define SECRET_LEAST 16u
#define SECRET_MOST 1024u
#define MS 1000000u

static int read_secret(const char *path, unsigned char *room, size_t *bytes)
{
	int fd = bw_open(path, O_RDONLY);
	ssize_t n = 0;
	struct stat st;
	size_t len = 0;

	if (fd < 0)
		return bw_err(ENOKEY, "net_secret_file %s: %s: name a file with %u to %u random "
			      "bytes that you alone can read", path, strerror(-fd), SECRET_LEAST,
			      SECRET_MOST);
	if (fstat(fd, &st) || st.st_mode & (S_IRWXG | S_IRWXO)) {
		close(fd);
		return bw_err(ENOKEY, "net_secret_file %s: others than its owner may use it: chmod "
			      "600", path);
	}
	while (len <= SECRET_MOST && (n = read(fd, room + len, SECRET_MOST + 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	if (n < 0 || len < SECRET_LEAST || len > SECRET_MOST)
		return bw_err(ENOKEY, "net_secret_file %s: it has %zu bytes: it has to have %u to "
			      "%u random ones", path, len, SECRET_LEAST, SECRET_MOST);
	*bytes = len;
	return 0;
}

static int find_secret(struct bw_ep_options *o, unsigned char *room, size_t bytes)
{
	const char *path = bw_param_text(BW_P_NET_SECRET_FILE);

	(void)bytes;
	if (!o->secret) {
		if (!*path)
			return bw_err(ENOKEY, "no secret: give the same %u to %u random bytes at "
				      "both ends, or name a file that has them (net_secret_file)",
				      SECRET_LEAST, SECRET_MOST);
		o->secret = room;
		return read_secret(path, room, &o->secret_bytes);
	}
	if (o->secret_bytes < SECRET_LEAST || o->secret_bytes > SECRET_MOST)
		return bw_err(ENOKEY, "the secret has %zu bytes: give %u to %u random ones",
			      o->secret_bytes, SECRET_LEAST, SECRET_MOST);
	return 0;
}

static int find_threads(struct bw_ep_options *o)
{
	const char *text = bw_param_text(BW_P_NET_THREADS);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), n;
	char *end;

	if (o->threads < -1 || o->threads > (int)BW_WIRE_RAILS)
		return bw_err(EINVAL, "threads: %d: give 0 to %u, or "
			"-1", o->threads, BW_WIRE_RAILS);
	if (o->threads >= 0)
		return 0;
	if (!strcmp(text, "auto")) {
		o->threads = cpus < 4 ? 0 : (int)BW_WIRE_RAILS; /* at most one for each rail */
		return 0;
	}
	n = strtol(text, &end, 10);
	if (end == text || *end || n < 0 || n > (long)BW_WIRE_RAILS)
		return bw_param_refuse_value(BW_P_NET_THREADS, "auto, 0 to 16");
	o->threads = (int)n;
	return 0;
}

static int find_read_back(struct bw_ep_options *o)
{
	static const char *const words[] = { "auto", "always", "never", NULL };
	int way = bw_param_word(BW_P_NET_READ_BACK, words, "auto, always, never");

	if (way < 0)
		return way;
	o->read_back = (enum bw_read_back)way;
	return 0;
}

static int sizes(struct bw_ep_options *o)
{
	uint64_t depth = bw_param_size(BW_P_NET_DEPTH);

	o->eager = bw_param_size(BW_P_NET_EAGER);
	o->chunk = bw_param_size(BW_P_NET_CHUNK);
	o->depth = (unsigned)depth;
	o->spin_ns = bw_param_size(BW_P_NET_SPIN_US) * 1000;
	if (o->eager < 256 || o->eager > 1u << 20)
		return bw_err(EINVAL, "net_eager: %zu: give 256 to 1M", o->eager);
	if (o->chunk < 4096 || o->chunk > 64u << 20 || o->chunk % 4096)
		return bw_err(EINVAL, "net_chunk: %zu: give 4K to 64M, a multiple of 4K", o->chunk);
	if (depth < 2 || depth > BW_NET_DEPTH)
		return bw_err(EINVAL, "net_depth: %llu: give 2 to %u", (unsigned long long)depth,
			      BW_NET_DEPTH);
	return 0;
}

int bw_ep_defaults(struct bw_ep_options *o, unsigned char *secret_room, size_t room)
{
	uint64_t rails = o->rails ? o->rails : bw_param_size(BW_P_NET_RAILS);
	int ret;

	if (!o->listen)
		o->listen = bw_param_text(BW_P_NET_LISTEN);
	if (!o->network)
		o->network = bw_param_text(BW_P_NET_NETWORK);
	if (rails > BW_WIRE_RAILS)
		return bw_err(EINVAL, "rails: %llu: give 1 to %u, or 0", (unsigned long long)rails,
			      BW_WIRE_RAILS);
	o->rails = (uint32_t)rails;
	if (o->path > BW_PATH_DIRECT)
		return bw_err(EINVAL, "path: %u is not a value of enum barway_path", o->path);
	o->path = o->path ? o->path : BW_PATH_AUTO;
	if (!o->deadline_ns)
		o->deadline_ns = bw_param_size(BW_P_NET_DEADLINE_MS) * MS;
	if (!o->liveness_ns)
		o->liveness_ns = bw_param_size(BW_P_NET_LIVENESS_MS) * MS;
	if (!o->deadline_ns || !o->liveness_ns)
		return bw_err(EINVAL, "net_deadline_ms and net_liveness_ms have to be 1 or more");
	ret = find_threads(o);
	if (!ret)
		ret = find_read_back(o);
	if (!ret)
		ret = sizes(o);
	return ret ? ret : find_secret(o, secret_room, room);
}
