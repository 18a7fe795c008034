/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors, in a list that a forked child closes. They are made under the lock that fork()
 * takes: there is none that the list has not. Closing is all that a child does: an epoll set, a
 * timer and a connection are one thing that both processes have, and a call on them would change
 * the parent's.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/fork.h"
#include "net/control_int.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bw_net_fd *all;

static void close_in_child(void)
{
	while (all) {
		struct bw_net_fd *node = all;

		all = node->next;
		close(node->fd);
		bw_net_fd_none(node);
	}
}

__attribute__((constructor)) static void register_fork(void)
{
	bw_fork_leaf_lock(&lock);
	bw_fork_forget(close_in_child);
}

uint64_t bw_net_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void bw_net_fd_none(struct bw_net_fd *node)
{
	node->fd = -1;
	node->next = NULL;
	node->at = NULL;
}

enum kind { SOCKET, ACCEPT, EPOLL, TIMER };

static int make(enum kind kind, int arg)
{
	int fd = -1;

	if (bw_fault_hit(BW_FAULT_OPEN))
		return -EMFILE;
	switch (kind) {
	case SOCKET:
		fd = socket(arg, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		break;
	case ACCEPT: /* of a listener that does not block */
		fd = accept4(arg, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		break;
	case EPOLL:
		fd = epoll_create1(EPOLL_CLOEXEC);
		break;
	case TIMER:
		fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		break;
	}
	return fd < 0 ? -errno : bw_above_stdio(fd);
}

static int add(struct bw_net_fd *node, enum kind kind, int arg)
{
	int fd;

	pthread_mutex_lock(&lock);
	fd = make(kind, arg);
	if (fd >= 0) {
		node->fd = fd;
		node->next = all;
		node->at = &all;
		if (all)
			all->at = &node->next;
		all = node;
	}
	pthread_mutex_unlock(&lock);
	return fd < 0 ? fd : 0;
}

int bw_net_socket(struct bw_net_fd *node, int family)
{
	return add(node, SOCKET, family);
}

int bw_net_accept(struct bw_net_fd *node, int listener)
{
	return add(node, ACCEPT, listener);
}

int bw_net_epoll(struct bw_net_fd *node)
{
	return add(node, EPOLL, 0);
}

int bw_net_timer(struct bw_net_fd *node)
{
	return add(node, TIMER, 0);
}

void bw_net_close(struct bw_net_fd *node)
{
	pthread_mutex_lock(&lock);
	if (node->fd >= 0) {
		*node->at = node->next;
		if (node->next)
			node->next->at = node->at;
		close(node->fd);
		bw_net_fd_none(node);
	}
	pthread_mutex_unlock(&lock);
}
