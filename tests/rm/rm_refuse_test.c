/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Machines and drivers that are refused, each with a sentence that says what and what to do, in
 * barway_provider_query() as in the error of barway_map(); and refusals of single calls.
 */
#include "rm_test.h"

/* A version file of a driver that the fake does not have. */
static const char *version_text;

static int version_file(const char *path, int flags, unsigned mode)
{
	static int (*next)(int dir, const char *path, int flags, ...);
	int fd[2];

	if (!next) {
		void *p = dlsym(RTLD_NEXT, "openat");

		memcpy(&next, &p, sizeof(p));
	}
	if (!version_text || strcmp(path, "/proc/driver/nvidia/version"))
		return next(AT_FDCWD, path, flags, mode);
	if (pipe2(fd, O_CLOEXEC))
		return -1;
	if (write(fd[1], version_text, strlen(version_text)) < 0)
		return -1;
	close(fd[1]);
	return fd[0];
}

/* In front of the fake's; open64() with a 64-bit off_t. */
int open(const char *path, int flags, ...);

int open(const char *path, int flags, ...)
{
	va_list ap;
	unsigned mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, unsigned) : 0;
	va_end(ap);
	return version_file(path, flags, mode);
}

static struct barway_device *dev0;
static uint64_t mem;

static void begin(void)
{
	start();
	OK(barway_device_get(ctx, 0, &dev0));
	mem = gpu_alloc(100000);
}

static void end(void)
{
	gpu_free(mem);
	finish();
}

static struct barway_provider_info rm_says(struct barway_device *dev)
{
	struct barway_provider_info p = { .size = sizeof(p) };

	OK(barway_provider_query(ctx, dev, 0, &p));
	CHECK_STR(p.name, "rm");
	return p;
}

static void takes(void)
{
	struct barway_provider_info p = rm_says(dev0);

	if (p.score < 0)
		FAIL("refused: %s", p.reason);
	prove(mem + 3, 70000, mem, 100000, BARWAY_MAP_UNCACHED);
}

/* All @words (separated by |) are in the reason, for the device and in the error of a map. */
static void refuses(int err, const char *words, bool without_device_too)
{
	char *list = strdup(words), *save = NULL;
	struct barway_mapping *m = (void *)1;
	struct barway_pointer_info info = { .size = sizeof(info) };
	struct live before = live_now();

	for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
		struct barway_provider_info p = rm_says(dev0);

		CHECK(p.score < 0);
		CHECK_HAS(p.reason, w);
		if (without_device_too) {
			p = rm_says(NULL);
			CHECK(p.score < 0);
			CHECK_HAS(p.reason, w);
		}
		CHECK_EQ(barway_map(ctx, mem, 100, NULL, &m), -err);
		CHECK_HAS(barway_errmsg(), w);
		CHECK_HAS(barway_errmsg(), "barway_map(0x");
		CHECK(m == (void *)1);
	}
	OK(barway_pointer_query(ctx, mem, &info));
	CHECK_EQ(info.mappable, 0);
	CHECK_EQ(fakenv_get("vmas"), before.n[6]);
	CHECK_EQ(fakenv_get("mappings"), 0);
	CHECK_EQ(fakenv_get("dups"), 0);
	free(list);
}

/* ---- the device files ------------------------------------------------------------------------ */

static void no_nodes(void)
{
	begin();
	set("nodes", "0");
	refuses(ENOTSUP, "open /dev/nvidia0|No such file|have the container toolkit inject", false);
	set("nodes", "1");
	takes(); /* nothing of it sticks */
	end();
}

static void no_control_node(void)
{
	begin();
	set("ctl", "0");
	refuses(ENOTSUP, "/dev/nvidiactl|No such file|load the NVIDIA driver", true);
	set("ctl", "1");
	takes();
	end();
}

static void no_permission(void)
{
	begin();
	set("dev_mode", "eacces");
	refuses(EACCES, "/dev/nvidiactl|Permission denied|give this user read and write permission",
		true);
	set("dev_mode", "ok");
	takes();
	/* also after a first success: the files that carry mappings are opened anew each time */
	set("dev_mode", "eacces");
	{
		struct barway_mapping *m;

		REFUSED(barway_map(ctx, mem, 100, NULL, &m), EACCES, "give this user");
		CHECK_HAS(barway_errmsg(), "/dev/nvidia0");
	}
	set("dev_mode", "ok");
	takes();
	end();
}

/* No driver at all, before any CUDA: opening a context works, the reason is told. */
static void no_driver(void)
{
	struct barway_open_options o = { .size = sizeof(o), .devices = BARWAY_DEVICES_CUDA };
	struct barway_provider_info p;

	load_cuda();
	set("ctl", "0");
	set("nodes", "0");
	OK(barway_open(&o, &ctx));
	p = rm_says(NULL);
	CHECK(p.score < 0);
	CHECK_HAS(p.reason, "load the NVIDIA driver");
	REFUSED(barway_device_count(ctx), ENODEV, "no GPU is visible");
	OK(barway_close(ctx));
	CHECK_EQ(fakenv_get("fds"), 0);
	CHECK_EQ(fakenv_get("contexts_created"), 0);
}

/* ---- machines and modes ---------------------------------------------------------------------- */

static void wsl(void)
{
	begin();
	refuses(ENOTSUP, "WSL2|cudaMemcpy", true);
	end();
}

static void jetson(void)
{
	begin();
	refuses(ENOTSUP, "Jetson|cudaHostAlloc", true);
	end();
}

/* An integrated GPU with NVIDIA's files. */
static void integrated(void)
{
	begin();
	set("jetson", "0");
	refuses(ENOTSUP, "no memory of its own|cudaHostAlloc", false);
	end();
}

static void old_driver(void)
{
	version_text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May\n";
	begin();
	refuses(ENOTSUP, "470.256.02|too old|515 or newer", true);
	end();
}

static void refused_by_mode(void)
{
	begin();
	refuses(ENOTSUP, rm_arg, false);
	end();
}

/* The answer is looked for again after barway_release_all(). */
static void mode_changes(void)
{
	begin();
	refuses(ENOTSUP, "confidential computing", false);
	set("cc", "0");
	refuses(ENOTSUP, "confidential computing", false);
	OK(barway_release_all(ctx, 0));
	takes();
	end();
}

static void passthrough_is_fine(void)
{
	begin();
	takes();
	end();
}

static void unknown_driver(void)
{
	struct barway_provider_info p;

	begin();
	p = rm_says(dev0);
	CHECK(p.score >= 0 && p.score < 100);
	CHECK_HAS(p.reason, "the self-test decides");
	CHECK_HAS(p.reason, rm_arg);
	takes();
	end();
}

static void unknown_driver_refused(void)
{
	begin();
	refuses(ENOTSUP, rm_arg, true);
	end();
}

/* No dma-buf export: nothing is found but by the ipc route, which is off by default. */
static void closed_modules(void)
{
	begin();
	refuses(ENOTSUP, "does not export dma-bufs|open kernel modules|BARWAY_RM_ROUTES=vmm,ipc",
		false);
	CHECK_EQ(fakenv_get("shares_all"), 0);
	end();
}

static void closed_modules_with_ipc(void)
{
	struct vmm v;

	begin();
	takes();
	CHECK(fakenv_get("shares_all") > 0);
	vmm_alloc(&v, 2, CUF_HANDLE_POSIX_FD, NULL);
	prove(v.addr + VMM_STEP - 5000, 10000, v.addr, 2 * VMM_STEP, 0);
	vmm_free(&v);
	end();
}

/* ---- refusals of single calls ---------------------------------------------------------------- */

static const struct {
	int status, err;
	const char *name;
} statuses[] = {
	{ 0x0f, ENODEV, "the GPU is lost" },
	{ 0x1a, ENOMEM, "insufficient resources" },
	{ 0x1b, EACCES, "insufficient permissions" },
	{ 0x1f, EIO, "invalid argument" },
	{ 0x20, EIO, "invalid base" },
	{ 0x23, EIO, "not this process's client" },
	{ 0x29, EIO, "invalid flags" },
	{ 0x2e, EIO, "invalid limit" },
	{ 0x33, EIO, "invalid object" },
	{ 0x36, EIO, "invalid parent" },
	{ 0x3a, EIO, "invalid parameter structure" },
	{ 0x51, ENOMEM, "no memory" },
	{ 0x56, ENOTSUP, "not supported" },
	{ 0x57, EIO, "object not found" },
	{ 0x5f, EIO, "protection fault" },
	{ 0x63, EIO, "in use" },
	{ 0x7e, EIO, "refused" }, /* one without a name */
};
enum { STATUSES = sizeof(statuses) / sizeof(statuses[0]) };

/* After a passed self-test: this map fails with the number in its sentence, the next one works. */
static void one_refusal(int status, int err, const char *name, const char *operation)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_UNCACHED };
	struct live before = live_now();
	struct barway_mapping *m;
	char number[32];

	snprintf(number, sizeof(number), "0x%x", (unsigned)status);
	if (barway_map(ctx, mem, 100, &o, &m) != -err)
		FAIL("status 0x%x: expected %d: %s", (unsigned)status, -err, barway_errmsg());
	CHECK_HAS(barway_errmsg(), operation);
	if (name) {
		CHECK_HAS(barway_errmsg(), number);
		CHECK_HAS(barway_errmsg(), name);
	}
	check_live(&before, number);
	takes();
}

static void dup_refused(void)
{
	begin();
	takes();
	for (int i = 0; i < STATUSES; i++) {
		int s = statuses[i].status;
		/* what libcuda named a moment ago is gone: freed meanwhile */
		int err = s == 0x33 || s == 0x57 ? EFAULT : statuses[i].err;

		fakenv_fail_ioctl(0x34, 1, s);
		one_refusal(s, err, statuses[i].name, "dup");
	}
	fakenv_fail_ioctl(0x34, 1, -EIO);
	one_refusal(0, EIO, NULL, "dup");
	fakenv_fail_ioctl(0x34, 1, -ENOMEM);
	one_refusal(0, ENOMEM, NULL, "dup");
	end();
}

static void map_refused(void)
{
	begin();
	takes();
	for (int i = 0; i < STATUSES; i++) {
		fakenv_fail_ioctl(0x4e, 1, statuses[i].status);
		if (statuses[i].status == 0x51) /* has a sentence of its own */
			one_refusal(0x51, ENOMEM, NULL, "map: the BAR1 aperture of GPU 0 is");
		else
			one_refusal(statuses[i].status, statuses[i].err, statuses[i].name, "map");
	}
	fakenv_fail_ioctl(0x4e, 1, -EFAULT);
	one_refusal(0, EFAULT, NULL, "map memory object");
	end();
}

static void control_refused(void)
{
	static const unsigned cmds[] = { 0xd01, 0xd02, 0x410110 };

	begin();
	takes();
	for (int c = 0; c < 3; c++)
		for (int i = 0; i < STATUSES; i++) {
			char what[32];

			snprintf(what, sizeof(what), "RM control 0x%x", cmds[c]);
			fakenv_fail_control(cmds[c], 1, statuses[i].status);
			one_refusal(statuses[i].status, statuses[i].err, statuses[i].name, what);
		}
	end();
}

/* While the GPU is opened. Nothing of it is kept: the next try works. */
static void opening_refused(void)
{
	static const struct {
		unsigned nr, cmd;
		const char *words;
	} calls[] = {
		{ 0x2b, 0, "allocate RM class 0x41" }, /* the client */
		{ 0xc8, 0, "list the NVIDIA driver's cards" },
		{ 0xc9, 0, "register /dev/nvidia0" },
		{ 0, 0x205, "RM control 0x205" },
		{ 0, 0x2080014a, "RM control 0x2080014a" },
	};
	struct barway_provider_info p;
	struct live before;

	begin();
	before = live_now();
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (calls[i].nr)
			fakenv_fail_ioctl(calls[i].nr, 1, calls[i].nr < 0xc0 ? 0x1a : -EIO);
		else
			fakenv_fail_control(calls[i].cmd, 1, 0x1a);
		p = rm_says(dev0);
		CHECK(p.score < 0);
		CHECK_HAS(p.reason, calls[i].words);
		takes();
		OK(barway_release_all(ctx, 0));
		check_live(&before, calls[i].words);
	}
	/* the device and the subdevice: the 2nd and the 3rd RM_ALLOC */
	for (unsigned n = 2; n <= 3; n++) {
		OK(barway_release_all(ctx, 0));
		fakenv_fail_ioctl(0x2b, n, 0x1b);
		p = rm_says(dev0);
		CHECK(p.score < 0);
		CHECK_HAS(p.reason, n == 2 ? "allocate RM class 0x80" : "allocate RM class 0x2080");
		CHECK_HAS(p.reason, "insufficient permissions");
		takes();
	}
	end();
}

/* Giving back fails: it is logged, nothing more. */
static void giving_back_refused(void)
{
	struct barway_map_options o = { .size = sizeof(o), .flags = BARWAY_MAP_UNCACHED };
	struct barway_mapping *m;

	begin();
	takes();
	barway_set_log(NULL, NULL, 0);
	OK(barway_map(ctx, mem, 100, &o, &m));
	fakenv_fail_ioctl(0x4f, 1, 0x57);
	OK(barway_unmap(m));
	OK(barway_map(ctx, mem, 100, &o, &m));
	fakenv_fail_ioctl(0x29, 1, 0x57);
	OK(barway_unmap(m));
	takes();
	set("order_violations", "0"); /* the object whose mapping could not be undone was freed */
	gpu_free(mem);
	/* what could not be given back goes with the client */
	OK(barway_close(ctx));
	check_live(&at_start, "at the end");
	check_conduct();
}

static void lost_gpu(void)
{
	struct barway_mapping *m;

	begin();
	takes();
	set("lost", "1");
	REFUSED(barway_map(ctx, mem, 100, NULL, &m), ENODEV, "the GPU is lost");
	set("lost", "0");
	takes();
	end();
}

#define MODE(env, words) { "refused_by_mode " env, refused_by_mode, env, words }
#define CC_WORDS "confidential computing is on|closed to the CPU|cudaMemcpy"

int main(int argc, char **argv)
{
	static const struct rm_case cases[] = {
		CASE(no_nodes),
		CASE(no_control_node),
		CASE(no_permission),
		CASE(no_driver),
		CASE_ENV(wsl, "FAKENV=wsl=1"),
		CASE_ENV(jetson, "FAKENV=jetson=1"),
		CASE_ENV(integrated, "FAKENV=jetson=1"),
		CASE(old_driver),
		MODE("FAKENV=mig=1", "MIG is on|turn MIG off"),
		MODE("FAKENV=cc=1", CC_WORDS),
		MODE("FAKENV=cc=2", CC_WORDS),
		MODE("FAKENV=cc=1,cc_caps=5", CC_WORDS),
		MODE("FAKENV=cc=1,cc_caps=6", CC_WORDS),
		MODE("FAKENV=cc=1,driver=525.147.05", CC_WORDS),
		MODE("FAKENV=virt=2", "vGPU|cudaMemcpy"),
		MODE("FAKENV=virt=2,driver=515.105.01", "vGPU|cudaMemcpy"),
		MODE("FAKENV=virt=2,driver=595.45.04", "vGPU|cudaMemcpy"),
		CASE_ENV(mode_changes, "FAKENV=cc=1"),
		CASE_ENV(passthrough_is_fine, "FAKENV=virt=1"),
		CASE_ENV(passthrough_is_fine, "FAKENV=sysfs_version=0"),
		CASE_ENV(passthrough_is_fine, "FAKENV=proc_version=0"),
		{ "unknown_driver 600", unknown_driver, "FAKENV=driver=600.10", "driver 600.10" },
		{ "unknown_driver 540", unknown_driver, "FAKENV=driver=540.10.01",
		  "driver 540.10.01" },
		{ "unknown_driver without a version", unknown_driver,
		  "FAKENV=proc_version=0,sysfs_version=0", "of unknown version" },
		{ "unknown_driver allowed by word", unknown_driver,
		  "FAKENV=driver=600.10 BARWAY_RM_ALLOW_UNKNOWN=1", "driver 600.10" },
		{ "unknown_driver_refused 600", unknown_driver_refused,
		  "FAKENV=driver=600.10 BARWAY_RM_ALLOW_UNKNOWN=0",
		  "driver 600.10|not one that is known|BARWAY_RM_ALLOW_UNKNOWN=1" },
		{ "unknown_driver_refused without a version", unknown_driver_refused,
		  "FAKENV=proc_version=0,sysfs_version=0 BARWAY_RM_ALLOW_UNKNOWN=0",
		  "of unknown version|BARWAY_RM_ALLOW_UNKNOWN=1" },
		CASE_ENV(passthrough_is_fine, "BARWAY_RM_ALLOW_UNKNOWN=0"),
		CASE_ENV(closed_modules, "FAKENV=dmabuf=0,open_module=0"),
		CASE_ENV(closed_modules_with_ipc,
			 "FAKENV=dmabuf=0,open_module=0 BARWAY_RM_ROUTES=vmm,ipc"),
		CASE(dup_refused),
		CASE(map_refused),
		CASE(control_refused),
		CASE(opening_refused),
		CASE(giving_back_refused),
		CASE(lost_gpu),
		{ 0 }
	};

	return rm_main(argc, argv, cases);
}
