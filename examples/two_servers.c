/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * examples/two_servers: from a kernel on one server to a kernel on another.
 *
 *     server 0, "client"                        server 1, "server"
 *     A: GPU 0 computes x = [1, 2, 3, 4]
 *     send x, after A on A's stream   ------>   receive into y; the stream waits for it
 *                                               B: GPU 1 doubles y: [2, 4, 6, 8]
 *
 * A has finished before x is read, and B begins after x is VISIBLE in y. Both are matters of the
 * two streams: no program waits for its GPU before it goes on, and all is queued first.
 *
 *     two_servers                      both, as two processes of this machine
 *     two_servers server [ADDRESS]     server 1: prints its name, and waits
 *     two_servers client NAME          server 0: NAME is what the other one printed
 *
 * Two machines need the same secret: a file that BARWAY_NET_SECRET_FILE names, 16 or more random
 * bytes. With --direct before the rest nothing but the network card may touch GPU memory, or the
 * program says why that cannot be had here; it is one line below.
 */
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barway_net.h>

#include "examples/example.h"
#include "examples/two_servers.h"

#include "examples/two_servers.cu" /* as kernels of the soft GPU */

extern const char two_servers_ptx[]; /* and for CUDA */

static const struct bench_kernel kernel_a = {
	.name = "two_servers_compute", .ptx = two_servers_ptx, .soft = two_servers_compute,
};
static const struct bench_kernel kernel_b = {
	.name = "two_servers_double", .ptx = two_servers_ptx, .soft = two_servers_double,
};

#define COUNT 4u
#define BYTES (COUNT * sizeof(uint64_t))
#define TAG 1
#define WAIT 60000000000u /* nanoseconds */

static bool direct;
static unsigned char secret[32];
static size_t secret_bytes; /* 0: it is in the file that the parameter names */

/* What both ends have: four values in GPU memory, and a connection. */
struct end {
	struct example e;
	struct barway_endpoint *ep;
	struct barway_peer *peer;
	struct barway_region *region;
	struct two_servers param;
};

static void open_end(struct end *end, int gpu, const char *listen)
{
	struct barway_endpoint_options o = {
		.size = sizeof(o),
		.path = direct ? BARWAY_PATH_DIRECT : BARWAY_PATH_STAGED, /* the whole difference */
		.listen = listen,
		.secret = secret_bytes ? secret : NULL,
		.secret_bytes = secret_bytes,
		.threads = 1, /* it moves things on, so that we need not */
	};

	example_open_on(&end->e, gpu);
	GPU_OK(&end->e, bench_gpu_load(end->e.gpu, &kernel_a));
	GPU_OK(&end->e, bench_gpu_load(end->e.gpu, &kernel_b));
	OK(barway_endpoint_open(end->e.ctx, &o, &end->ep));
	OK(barway_mem_alloc(end->e.dev, BYTES, &end->param.at));
	end->param.count = COUNT;
	OK(barway_region_open(end->ep, end->param.at, BYTES, 0, &end->region));
}

static void close_end(struct end *end)
{
	OK(barway_endpoint_close(end->ep)); /* with its region, peer and transfer */
	OK(barway_mem_free(end->e.ctx, end->param.at));
	example_close(&end->e);
}

/* Puts a send or a receive of the four values on the stream; @hold: what follows waits for it. */
static struct barway_transfer *queue_transfer(struct end *end, uint32_t operation, int hold)
{
	const struct barway_part all = { .bytes = BYTES };
	const struct barway_transfer_options o = {
		.size = sizeof(o), .operation = operation, .tag = TAG,
	};
	struct barway_transfer *t;

	OK(barway_transfer_prepare(end->peer, end->region, &all, 1, &o, &t));
	OK(barway_transfer_post_on_stream(t, bench_stream_handle(end->e.stream), hold));
	return t;
}

static void queue_kernel(struct end *end, const struct bench_kernel *kernel)
{
	GPU_OK(&end->e, bench_gpu_launch(end->e.stream, kernel, 1, 32, &end->param,
					 sizeof(end->param)));
}

static double us_after(uint64_t from, uint64_t to)
{
	return ((double)to - (double)from) / 1e3;
}

/* By which path its bytes went, and when it came how far. */
static void report(const char *who, struct barway_transfer *t)
{
	struct barway_transfer_info i = { .size = sizeof(i) };

	OK(barway_transfer_query(t, &i));
	printf("%s: %llu bytes, %s\n", who, (unsigned long long)i.bytes, i.path);
	printf("%s: us after posting: RETURNED %.1f; stream came there %.1f, LOCAL %.1f, "
	       "ARRIVED %.1f, VISIBLE %.1f\n", who, us_after(i.posted_ns, i.returned_ns),
	       us_after(i.posted_ns, i.ready_ns), us_after(i.posted_ns, i.local_ns),
	       us_after(i.posted_ns, i.arrived_ns), us_after(i.posted_ns, i.visible_ns));
}

/* Server 0: kernel A, then the send. */
static int client(const char *name)
{
	struct barway_transfer *send;
	struct end end = { 0 };

	open_end(&end, 0, NULL);
	OK(barway_peer_connect(end.ep, name, WAIT, &end.peer));

	queue_kernel(&end, &kernel_a);
	send = queue_transfer(&end, BARWAY_SEND, 0); /* reads x when A has finished */

	OK(barway_transfer_wait(send, BARWAY_VISIBLE, WAIT));
	report("server 0, send", send);
	close_end(&end);
	return 0;
}

/* Server 1: the receive, then kernel B. @tell: who is to know our name; -1: whoever reads this. */
static int server(const char *address, int tell)
{
	struct barway_transfer *receive;
	struct end end = { 0 };
	uint64_t y[COUNT];
	char name[64] = "";

	open_end(&end, 1, address);
	OK(barway_endpoint_name(end.ep, name, sizeof(name)));
	if (tell < 0)
		printf("server 1: its name is %s\n", name);
	else if (write(tell, name, sizeof(name)) != sizeof(name))
		return 1;
	OK(barway_peer_accept(end.ep, WAIT, &end.peer));

	receive = queue_transfer(&end, BARWAY_RECV, 1); /* what follows sees y */
	queue_kernel(&end, &kernel_b);

	GPU_OK(&end.e, bench_stream_sync(end.e.stream)); /* only to print it */
	OK(barway_transfer_wait(receive, BARWAY_VISIBLE, WAIT)); /* did it fail? */
	GPU_OK(&end.e, bench_gpu_read(end.e.gpu, y, end.param.at, BYTES));
	report("server 1, receive", receive);
	printf("doubled: [%llu, %llu, %llu, %llu]\n", (unsigned long long)y[0],
	       (unsigned long long)y[1], (unsigned long long)y[2], (unsigned long long)y[3]);
	close_end(&end);
	for (unsigned i = 0; i < COUNT; i++)
		if (y[i] != 2 * (i + 1ull))
			return 1;
	return 0;
}

/* Both, with a secret of their own. Nothing of Barway may be open when a process forks. */
static int both(void)
{
	int tell[2], status = 1, ret = 1;
	char name[64];
	pid_t child;

	secret_bytes = sizeof(secret);
	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret) || pipe(tell))
		return 1;
	child = fork();
	if (child == 0) {
		close(tell[0]);
		exit(server(NULL, tell[1]));
	}
	close(tell[1]);
	if (child > 0 && read(tell[0], name, sizeof(name)) == sizeof(name))
		ret = client(name);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	return ret || !WIFEXITED(status) || WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	int i = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (i < argc && !strcmp(argv[i], "--direct")) {
		direct = true;
		i++;
	}
	if (i == argc)
		return both();
	if (!strcmp(argv[i], "server") && argc - i <= 2)
		return server(argv[i + 1], -1);
	if (!strcmp(argv[i], "client") && argc - i == 2)
		return client(argv[i + 1]);
	fprintf(stderr, "usage: two_servers [--direct] [server [ADDRESS] | client NAME]\n");
	return 2;
}
