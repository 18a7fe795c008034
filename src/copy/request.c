/* SPDX-License-Identifier: BSD-3-Clause */
#include "copy/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "copy/ce.h"
#include "copy/pause.h"
#include "copy/plan.h"
#include "core/fault.h"
#include "core/log.h"

union job_room {
	struct bw_job job; /* .method NULL: it is done */
	unsigned char bytes[BW_JOB_BYTES];
};

struct bw_request {
	struct bw_worker_link link; /* must come first */
	pthread_mutex_t lock;       /* whoever moves it on */
	_Atomic int result;         /* -EBUSY until it is done */
	int fd;                     /* eventfd, -1: none */
	bool notified;              /* the worker will be told of what the device does now */
	uint64_t bytes;             /* on their way when the call returned; to wait by */
	int error;                  /* of the jobs so far, and its sentence */
	struct bw_sentence why;
	size_t njobs;
	union job_room jobs[];
};

/* ---- which method for which copy ------------------------------------------------------------- */

/* The copies of a call by how they are done: in this order. */
enum way { BY_ENGINE, STARTED, BLOCKING, BY_THREAD, WAYS };

struct choice {
	struct bw_copy *copies; /* in groups, by way */
	const struct bw_copy_method **methods;
	size_t from[WAYS + 1];  /* where each group begins */
	bool pageable;          /* the engine's part has some */
};

static enum way way_of(const struct bw_copy_method *method)
{
	if (method == &bw_copy_ce)
		return BY_ENGINE;
	if (method->id == BW_METHOD_CPU)
		return BY_THREAD;
	return method->start ? STARTED : BLOCKING;
}

static void choice_free(struct choice *c)
{
	free(c->copies);
	free(c->methods);
}

static int choose_one(struct bw_copy *copy, enum bw_method id,
		      const struct bw_copy_method **method)
{
	if (id != BW_METHOD_CPU)
		bw_copy_find_host(copy);
	*method = id == BW_METHOD_AUTO ? bw_plan_choose(copy, NULL, NULL) : bw_copy_method(id);
	return id == BW_METHOD_AUTO ? 0 : bw_copy_refused(*method, copy);
}

/* One pass for each group; empty copies are in none. */
static void group(struct choice *c, const struct bw_copy *copies,
		  const struct bw_copy_method *const *methods, size_t n)
{
	size_t at = 0;

	for (int way = 0; way < WAYS; way++) {
		c->from[way] = at;
		for (size_t i = 0; i < n; i++) {
			if (!copies[i].bytes || (int)way_of(methods[i]) != way)
				continue;
			c->copies[at] = copies[i];
			c->methods[at++] = methods[i];
			c->pageable = c->pageable || (way == BY_ENGINE && !copies[i].pinned);
		}
	}
	c->from[WAYS] = at;
}

static int choose(struct choice *c, const struct bw_copy *copies, size_t n, enum bw_method id)
{
	const struct bw_copy_method **methods = bw_alloc_array(n, sizeof(*methods));
	struct bw_copy *found = bw_alloc_array(n, sizeof(*found));
	int ret = 0;

	c->copies = bw_alloc_array(n, sizeof(*c->copies));
	c->methods = bw_alloc_array(n, sizeof(*c->methods));
	if (!methods || !found || !c->copies || !c->methods)
		ret = bw_err(ENOMEM, "no memory for %zu copies: free some", n);
	for (size_t i = 0; i < n && !ret; i++) {
		found[i] = copies[i];
		ret = choose_one(&found[i], id, &methods[i]);
	}
	if (!ret)
		group(c, found, methods, n);
	free(methods);
	free(found);
	if (ret)
		choice_free(c);
	return ret;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void this_thread(const struct bw_copy *copies, size_t n)
{
	bool to = n && copies->direction == BW_TO_GPU;

	if (n && !to)
		bw_fence_read();
	for (size_t i = 0; i < n; i++) {
		const struct bw_mapping *m = copies[i].map;

		if (!to)
			m->load(copies[i].host, m->ptr + copies[i].offset, copies[i].bytes);
		else if (!bw_store_word(m->ptr + copies[i].offset, copies[i].host, copies[i].bytes))
			m->store(m->ptr + copies[i].offset, copies[i].host, copies[i].bytes);
	}
	if (to)
		bw_fence_publish();
}

/* Did a method refuse before it began, so that this thread may copy instead? Says so once. */
static bool instead(const struct bw_copy_method *method, enum bw_method asked, int ret)
{
	static _Atomic bool told;

	if (asked != BW_METHOD_AUTO ||
	    (ret != -EFAULT && ret != -ENOTSUP && ret != -ENOMEM && ret != -EAGAIN &&
	     ret != -ENODEV))
		return false;
	if (!told) {
		told = true;
		bw_log(BW_LOG_WARN, "copy by %s: %s: one CPU thread copies instead", method->name,
		       bw_err_text());
	}
	return true;
}

static int begin_engine(struct bw_request *req, const struct choice *c, enum bw_method asked)
{
	size_t n = c->from[BY_ENGINE + 1];
	struct bw_job *job = &req->jobs[req->njobs].job;
	struct bw_sentence kept;
	int ret;

	if (!n)
		return 0;
	bw_err_keep(&kept);
	ret = bw_ce_start_all(job, c->copies, n);
	if (!ret) {
		req->njobs++;
		for (size_t i = 0; i < n; i++)
			req->bytes += c->copies[i].bytes;
	} else {
		memset(job, 0, BW_JOB_BYTES);
		if (!instead(&bw_copy_ce, asked, ret))
			return ret;
		this_thread(c->copies, n);
		bw_err_put_back(&kept);
	}
	return 0;
}

static int begin_others(struct bw_request *req, const struct choice *c, enum bw_method asked)
{
	struct bw_sentence kept;

	for (size_t i = c->from[STARTED]; i < c->from[BY_THREAD]; i++) {
		const struct bw_copy_method *method = c->methods[i];
		struct bw_job *job = &req->jobs[req->njobs].job;
		int ret;

		bw_err_keep(&kept);
		if (method->start) {
			job->method = method;
			job->copy = c->copies[i];
			ret = method->start(job);
			if (!ret) {
				req->njobs++;
				req->bytes += job->copy.bytes;
				continue;
			}
			memset(job, 0, BW_JOB_BYTES);
		} else {
			ret = method->copy(&c->copies[i]);
		}
		if (!ret)
			continue;
		if (!instead(method, asked, ret)) /* -EIO where others have moved bytes */
			return i == c->from[STARTED] && !req->njobs ? ret :
			       bw_err(EIO, "%s", bw_err_text());
		this_thread(&c->copies[i], 1);
		bw_err_put_back(&kept);
	}
	return 0;
}

/* What goes on after the call is begun first. */
static int begin(struct bw_request *req, const struct choice *c, enum bw_method asked)
{
	int ret = begin_engine(req, c, asked);

	if (ret)
		return ret;
	ret = begin_others(req, c, asked);
	if (ret)
		return ret;
	this_thread(c->copies + c->from[BY_THREAD], c->from[WAYS] - c->from[BY_THREAD]);
	return 0;
}

static int event_open(int *fd)
{
	int ret = bw_fault_hit(BW_FAULT_OPEN) ? -EMFILE :
		  bw_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));

	if (ret == -1)
		ret = -errno;
	if (ret < 0)
		return bw_err(-ret, "make an eventfd: %s: close some files, or raise 'ulimit -n'",
			      strerror(-ret));
	*fd = ret;
	return 0;
}

static int request_new(size_t njobs, bool event, struct bw_request **out)
{
	struct bw_request *req;
	int ret;

	req = bw_alloc(sizeof(*req) + njobs * sizeof(req->jobs[0]));
	if (!req)
		return bw_err(ENOMEM, "no memory for a request of %zu jobs: free some", njobs);
	req->fd = -1;
	ret = event ? event_open(&req->fd) : 0;
	if (ret) {
		free(req);
		return ret;
	}
	req->result = -EBUSY;
	pthread_mutex_init(&req->lock, NULL);
	*out = req;
	return 0;
}

static void complete(struct bw_request *req)
{
	uint64_t one = 1;

	req->result = req->error;
	if (req->fd >= 0 && write(req->fd, &one, sizeof(one)) < 0)
		bw_log(BW_LOG_ERROR, "tell the end of a request: %s", strerror(errno));
}

int bw_request_start(const struct bw_copy *copies, size_t n, enum bw_method method, bool driven,
		     bool event, struct bw_request **out)
{
	struct bw_request *req = NULL;
	struct choice c = { 0 };
	bool worker = false;
	int ret;

	if (method != BW_METHOD_AUTO && !bw_copy_method(method))
		return bw_err(ENOTSUP, "method %u is not a value of enum barway_method",
			      (unsigned)method);
	ret = choose(&c, copies, n, method);
	if (ret)
		return ret;
	driven = event || (driven && c.pageable);
	ret = request_new(1 + c.from[BLOCKING] - c.from[STARTED], event, &req);
	if (!ret && driven && c.from[BLOCKING]) {
		ret = bw_worker_start();
		worker = !ret;
		if (!event)
			ret = 0; /* without it, those who poll move it on */
	}
	if (!ret)
		ret = begin(req, &c, method);
	choice_free(&c);
	if (!ret && !req->njobs)
		complete(req);
	if (worker)
		bw_worker_add(!ret && req->njobs ? &req->link : NULL);
	if (!ret)
		*out = req;
	else if (req)
		bw_request_free(req);
	return ret;
}

/* ---- moving on ------------------------------------------------------------------------------- */

/* Under the lock. */
static void step(struct bw_request *req, bool *idle)
{
	size_t left = 0;

	*idle = true;
	for (size_t i = 0; i < req->njobs; i++) {
		struct bw_job *job = &req->jobs[i].job;
		bool nothing = false;
		int ret;

		if (!job->method)
			continue;
		ret = job->method->step(job, &nothing);
		if (ret == -EBUSY) {
			left++;
		} else {
			job->method = NULL;
			if (ret && !req->error) {
				req->error = -EIO;
				bw_err_keep(&req->why);
			}
		}
		*idle = *idle && ret == -EBUSY && nothing;
	}
	if (!*idle)
		req->notified = false;
	if (!left)
		complete(req);
}

bool bw_request_turn(struct bw_worker_link *link, bool *idle)
{
	struct bw_request *req = (struct bw_request *)link;

	*idle = true;
	if (req->result == -EBUSY && !pthread_mutex_trylock(&req->lock)) {
		if (req->result == -EBUSY)
			step(req, idle);
		pthread_mutex_unlock(&req->lock);
	}
	return req->result == -EBUSY;
}

bool bw_request_notify(struct bw_worker_link *link)
{
	struct bw_request *req = (struct bw_request *)link;
	struct bw_sentence kept;
	bool told;

	if (pthread_mutex_trylock(&req->lock))
		return false;
	bw_err_keep(&kept);
	for (size_t i = 0; i < req->njobs && !req->notified && req->result == -EBUSY; i++) {
		struct bw_job *job = &req->jobs[i].job;

		req->notified = job->method && job->method->notify &&
				!job->method->notify(job, bw_worker_wake, NULL);
	}
	bw_err_put_back(&kept);
	told = req->notified;
	pthread_mutex_unlock(&req->lock);
	return told;
}

static int answer(const struct bw_request *req)
{
	int ret = req->result;

	return ret && ret != -EBUSY ? bw_err(-ret, "%s", req->why.text) : ret;
}

int bw_request_poll(struct bw_request *req)
{
	struct bw_sentence kept;
	bool idle;

	if (req->result == -EBUSY) {
		bw_err_keep(&kept); /* the sentence is this thread's, the failure the request's */
		bw_request_turn(&req->link, &idle);
		bw_err_put_back(&kept);
	}
	return answer(req);
}

static void wait_until(struct bw_request *req, uint64_t until_ns)
{
	struct bw_sentence kept;
	struct bw_pause pause;
	bool idle;

	bw_err_keep(&kept);
	bw_pause_begin(&pause, req->bytes);
	while (bw_request_turn(&req->link, &idle)) {
		if (until_ns != UINT64_MAX && bw_now_ns() >= until_ns)
			break;
		if (idle)
			bw_pause(&pause, until_ns);
		else
			pause.since_ns = 0;
	}
	bw_err_put_back(&kept);
}

int bw_request_wait(struct bw_request *req, uint64_t timeout_ns)
{
	uint64_t now;

	if (req->result == -EBUSY) {
		now = timeout_ns == UINT64_MAX ? 0 : bw_now_ns();
		wait_until(req, timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns);
	}
	if (req->result == -EBUSY)
		return bw_err(ETIMEDOUT, "it is not done after %llu ns: wait longer, or poll",
			      (unsigned long long)timeout_ns);
	return answer(req);
}

int bw_request_fd(const struct bw_request *req)
{
	return req->fd;
}

void bw_request_free(struct bw_request *req)
{
	if (req->njobs && req->result == -EBUSY)
		wait_until(req, UINT64_MAX);
	bw_worker_remove(&req->link);
	if (req->fd >= 0)
		close(req->fd);
	pthread_mutex_destroy(&req->lock);
	free(req);
}
