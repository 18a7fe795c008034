/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that is killed in the middle of traffic over a soft GPU that others share: its memory
 * and its aperture come back, and a new process works. CHANNEL_KILLS in the environment: how often.
 */
#include <sys/prctl.h>

#include "channel_test.h"

static char *program;

/* In the new process: echoes until it is killed, or @n messages. */
static int traffic(uint64_t n)
{
	static struct rig rig;

	if (setjmp(test_jump))
		return 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	OK(barway_open(NULL, &ctx));
	OK(barway_device_get(ctx, 0, &gpu[0]));
	rig_begin(&rig, 64, echo);
	for (uint64_t i = 0; i < n; i++)
		round_trip(&rig, i);
	rig_end(&rig);
	end();
	return 0;
}

static pid_t start(uint64_t n)
{
	char count[32];
	pid_t pid;

	snprintf(count, sizeof(count), "%llu", (unsigned long long)n);
	pid = fork();
	if (!pid) {
		execl(program, program, "--traffic", count, (char *)NULL);
		_exit(127);
	}
	CHECK(pid > 0);
	return pid;
}

static void killed_at_random(void)
{
	const char *said = getenv("CHANNEL_KILLS");
	unsigned times = said ? (unsigned)atoi(said) : SANITIZED ? 10 : 50;
	uint64_t state = (uint64_t)getpid(), memory, aperture;
	char name[64];

	snprintf(name, sizeof(name), "channel-test-%d", (int)getpid());
	param("soft_shared", name);
	setenv("BARWAY_SOFT_SHARED", name, 1);
	begin();
	memory = memory_used(0);
	aperture = bar1_used(0);
	for (unsigned i = 0; i < times; i++) {
		pid_t pid = start(UINT64_MAX);
		struct timespec t = { 0, (long)(test_random(&state) % 20000000) };

		nanosleep(&t, NULL);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(child_end(pid), 128 + SIGKILL);
		CHECK_EQ(memory_used(0), memory);
		CHECK_EQ(bar1_used(0), aperture);
		CHECK_EQ(child_end(start(100)), 0);
		CHECK_EQ(memory_used(0), memory);
		CHECK_EQ(bar1_used(0), aperture);
	}
	end();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		TEST(killed_at_random),
		{ 0 },
	};

	program = argv[0];
	setenv("BARWAY_DEVICES", "soft", 1);
	setenv("BARWAY_SOFT_DEVICES", "2", 1);
	setenv("BARWAY_SOFT_MEMORY", "64M", 1);
	setenv("BARWAY_SOFT_BAR1", "8M", 1);
	if (argc == 3 && !strcmp(argv[1], "--traffic"))
		return traffic(strtoull(argv[2], NULL, 10));
	return api_main(argc, argv, cases);
}
