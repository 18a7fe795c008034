/* SPDX-License-Identifier: BSD-3-Clause */
/* The links of the chain that the system's files tell about: no driver is called for them. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/doctor.h"
#include "tools/info_topo.h"
#include "tools/root.h"

#define OLDEST_DRIVER 515u /* the oldest driver that Barway works with */

/* ---- the GPU ----------------------------------------------------------------------------- */

static void look_at_pci(void *arg, const char *name)
{
	struct doctor *d = arg;
	char path[128], vendor[16], class[16];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.64s/vendor", name);
	if (!root_line(path, vendor, sizeof(vendor)) || strcmp(vendor, "0x10de"))
		return;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.64s/class", name);
	/* base class 3 is a display controller; their sound, USB and NVSwitch are others */
	if (!root_line(path, class, sizeof(class)) || strncmp(class, "0x03", 4) ||
	    d->ngpus == GPUS)
		return;
	snprintf(d->gpu[d->ngpus].address, sizeof(d->gpu[0].address), "%.15s", name);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.64s/driver", name);
	root_link_name(path, d->gpu[d->ngpus].driver, sizeof(d->gpu[0].driver));
	d->ngpus++;
}

static void look_for_container(struct doctor *d)
{
	static const char *const files[] = {
		"/.dockerenv", "/run/.containerenv", "/run/secrets/kubernetes.io",
		"/var/run/secrets/kubernetes.io", "/run/systemd/container",
	};
	static const char *const words[] = { "docker", "kubepods", "containerd", "libpod", "lxc" };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !d->container; i++) {
		d->container = root_exists(files[i]);
		if (d->container)
			snprintf(d->container_why, sizeof(d->container_why), "%s", files[i]);
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && !d->container; i++) {
		d->container = root_has("/proc/1/cgroup", words[i]);
		if (d->container)
			snprintf(d->container_why, sizeof(d->container_why),
				 "'%s' in /proc/1/cgroup", words[i]);
	}
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build" */
static void look_for_module(struct doctor *d)
{
	char line[256] = "";

	d->module_loaded = root_exists("/sys/module/nvidia/version") ||
			   root_exists("/proc/driver/nvidia/version");
	if (root_line("/proc/driver/nvidia/version", line, sizeof(line)))
		find_version(strstr(line, "Module"), d->module_version, sizeof(d->module_version));
	if (!d->module_version[0] && root_line("/sys/module/nvidia/version", line, sizeof(line)))
		find_version(line, d->module_version, sizeof(d->module_version));
}

static bool tegra(char *why, size_t n)
{
	const char *file = root_has("/proc/device-tree/compatible", "nvidia,tegra") ?
			   "nvidia,tegra in /proc/device-tree/compatible" :
			   root_exists("/etc/nv_tegra_release") ? "/etc/nv_tegra_release" :
			   root_exists("/dev/nvmap") ? "/dev/nvmap" : NULL;

	snprintf(why, n, "%s", file ? file : "");
	return file;
}

static void list_gpus(const struct doctor *d, char *text, size_t n)
{
	size_t used = (size_t)snprintf(text, n, "%u NVIDIA GPU%s:", d->ngpus,
				       d->ngpus == 1 ? "" : "s");

	for (unsigned i = 0; i < d->ngpus && used < n; i++)
		used += (size_t)snprintf(text + used, n - used, "%s %s (%s)", i ? "," : "",
					 d->gpu[i].address,
					 *d->gpu[i].driver ? d->gpu[i].driver : "no driver");
}

enum verdict check_pci(struct doctor *d)
{
	char text[512], version[256];

	look_for_container(d);
	look_for_module(d);
	d->pci_seen = root_list("/sys/bus/pci/devices", look_at_pci, d) > 0;
	if (root_exists("/dev/dxg") && !root_exists("/dev/nvidiactl")) {
		if (!root_line("/proc/version", version, sizeof(version)))
			snprintf(version, sizeof(version), "unreadable");
		return found(d, D_WSL2, NULL, "/dev/dxg is there and /dev/nvidiactl is not; "
			     "/proc/version: %.60s", version);
	}
	if (!d->ngpus && tegra(text, sizeof(text)))
		return found(d, D_JETSON, NULL, "this is a Tegra (%.100s), without another GPU on "
			     "the PCI bus", text);
	if (d->ngpus) {
		list_gpus(d, text, sizeof(text));
		saw(d, CHECK_PCI, "%s", text);
		return GOOD;
	}
	snprintf(text, sizeof(text), d->pci_seen ? "no NVIDIA GPU among /sys/bus/pci/devices" :
		 "nothing in /sys/bus/pci/devices");
	if (d->module_loaded || root_exists("/dev/nvidiactl")) {
		saw(d, CHECK_PCI, "%s, but the NVIDIA driver is here", text);
		return UNKNOWN;
	}
	saw(d, CHECK_PCI, "%s", text);
	found(d, D_NO_GPU, d->container ? "to use a GPU: run this container on a machine that has "
	      "one, with docker run --gpus all" : NULL, "%s, no NVIDIA kernel module, no "
	      "/dev/nvidiactl", text);
	return ABSENT;
}

/* ---- the kernel driver ------------------------------------------------------------------- */

unsigned driver_major(const char *version)
{
	return (unsigned)strtoul(version, NULL, 10);
}

static unsigned bound_to(const struct doctor *d, const char *driver)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->ngpus; i++)
		n += !strcmp(d->gpu[i].driver, driver);
	return n;
}

static bool module_installed(void)
{
	struct utsname u;
	char path[256];

	if (uname(&u))
		return false;
	snprintf(path, sizeof(path), "/lib/modules/%.100s/modules.dep", u.release);
	return root_has(path, "/nvidia.ko");
}

static enum verdict no_module(struct doctor *d)
{
	char text[512], action[128];

	list_gpus(d, text, sizeof(text));
	if (d->ngpus && bound_to(d, "nouveau") == d->ngpus)
		return found(d, D_NOUVEAU, NULL, "%.400s", text);
	if (d->ngpus && bound_to(d, "vfio-pci") == d->ngpus) {
		snprintf(action, sizeof(action), "run barway in that virtual machine, or give the "
			 "GPU back: sudo driverctl unset-override %s", d->gpu[0].address);
		return found(d, D_VFIO, action, "%.400s", text);
	}
	if (d->module_loaded)
		return GOOD;
	if (module_installed())
		return found(d, D_DRIVER_NOT_LOADED, NULL, "no /proc/driver/nvidia/version; "
			     "nvidia.ko is in modules.dep of this kernel; %.300s", text);
	return found(d, D_DRIVER_MISSING, d->container ?
		     "install the NVIDIA driver, 515 or newer, on the host of this container" :
		     NULL, "no /proc/driver/nvidia/version, no nvidia.ko for this kernel; %.300s",
		     text);
}

/* The module is loaded; has it taken a GPU? */
static bool taken(const struct doctor *d)
{
	char path[64];
	bool any = !d->ngpus || bound_to(d, "nvidia");

	for (unsigned i = 0; i < d->ngpus && !any; i++) {
		snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s", d->gpu[i].address);
		any = root_exists(path);
	}
	return any;
}

enum verdict check_driver(struct doctor *d)
{
	const char *kind = root_has("/proc/driver/nvidia/version", "Open Kernel Module") ?
			   ", open kernel modules" :
			   root_exists("/proc/driver/nvidia/version") ? ", closed kernel modules" :
			   "";
	char text[512];

	if (!d->module_loaded && !d->ngpus) {
		saw(d, CHECK_DRIVER, "/proc/driver/nvidia and /sys/module are hidden here");
		return UNKNOWN;
	}
	if (no_module(d) == WRONG)
		return WRONG;
	if (d->module_version[0] && driver_major(d->module_version) < OLDEST_DRIVER)
		return found(d, D_DRIVER_OLD, NULL, "the NVIDIA kernel module is %s",
			     d->module_version);
	if (!taken(d)) {
		list_gpus(d, text, sizeof(text));
		return found(d, D_GPU_INIT, NULL, "the NVIDIA kernel module %s has taken no GPU; "
			     "%.300s", d->module_version, text);
	}
	saw(d, CHECK_DRIVER, "%s%s", d->module_version[0] ? d->module_version :
	    "of unknown version", kind);
	return GOOD;
}

/* ---- device nodes ------------------------------------------------------------------------ */

static bool node(const char *path, struct stat *st)
{
	char full[ROOT_PATH];

	return !stat(root_path(full, "%s", path), st) && S_ISCHR(st->st_mode);
}

static void nodes_text(char *text, size_t n, unsigned *numbered)
{
	struct stat st;
	char path[32];
	size_t used = 0;

	*numbered = 0;
	text[0] = 0;
	for (int i = -1; i < GPUS; i++) {
		snprintf(path, sizeof(path), i < 0 ? "/dev/nvidiactl" : "/dev/nvidia%d", i);
		if (!node(path, &st))
			continue;
		*numbered += i >= 0;
		if (used < n)
			used += (size_t)snprintf(text + used, n - used, "%s%s", used ? ", " : "",
						 path);
	}
}

enum verdict check_nodes(struct doctor *d)
{
	struct stat st;
	char there[400], where[160] = "";
	unsigned numbered;

	nodes_text(there, sizeof(there), &numbered);
	if (d->container)
		snprintf(where, sizeof(where), "; this is a container (%s)", d->container_why);
	if (!node("/dev/nvidiactl", &st) || !numbered)
		return found(d, d->container ? D_CONTAINER_NO_NODES : D_NO_NODES, NULL,
			     "of /dev/nvidiactl and /dev/nvidia0 to /dev/nvidia%d there is: %s%s",
			     GPUS - 1, *there ? there : "none", where);
	if (!node("/dev/nvidia-uvm", &st))
		return found(d, D_NO_UVM_NODE, d->container ?
			     diagnoses[D_CONTAINER_NO_NODES].action : NULL,
			     "%s, but no /dev/nvidia-uvm%s", there, where);
	saw(d, CHECK_NODES, "%s, /dev/nvidia-uvm%s", there, where);
	return GOOD;
}

/* ---- permission -------------------------------------------------------------------------- */

/* Opens the node in a process of its own: a broken GPU can block who opens it. 0 or an errno. */
static int try_open(const struct doctor *d, const char *path)
{
	char full[ROOT_PATH];
	int status;
	pid_t pid;

	root_path(full, "%s", path);
	pid = fork();
	if (pid < 0)
		return errno;
	if (!pid) {
		int fd = open(full, O_RDWR | O_CLOEXEC);

		_exit(fd < 0 ? errno & 0xff : 0);
	}
	if (!child_wait(pid, d->seconds, &status))
		return ETIMEDOUT;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static enum verdict refused(struct doctor *d, const char *path, int err)
{
	struct passwd *user = getpwuid(geteuid());
	struct group *group;
	struct stat st = { 0 };
	char action[256];

	node(path, &st);
	group = getgrgid(st.st_gid);
	if (err == EPERM && d->container)
		return found(d, D_CONTAINER_NO_PERMISSION, NULL, "open %s: %s; this is a container "
			     "(%s)", path, strerror(err), d->container_why);
	snprintf(action, sizeof(action), "sudo usermod -aG %s %s, and log in again",
		 group ? group->gr_name : "?", user ? user->pw_name : "$USER");
	return found(d, D_NO_PERMISSION, group && st.st_gid && (st.st_mode & 066) == 060 ? action :
		     NULL, "open %s as %s: %s; its mode is %04o, its group %s", path,
		     user ? user->pw_name : "this user", strerror(err), st.st_mode & 07777u,
		     group ? group->gr_name : "unknown");
}

enum verdict check_permission(struct doctor *d)
{
	static const char *const always[] = { "/dev/nvidiactl", "/dev/nvidia-uvm" };
	unsigned opened = 0, denied = 0;
	char path[32], first[32] = "";
	struct stat st;
	int err, first_err = 0;

	for (size_t i = 0; i < 2; i++) {
		err = try_open(d, always[i]);
		if (err)
			return refused(d, always[i], err);
	}
	for (int i = 0; i < GPUS; i++) {
		snprintf(path, sizeof(path), "/dev/nvidia%d", i);
		if (!node(path, &st))
			continue;
		err = try_open(d, path);
		opened += !err;
		denied += err != 0;
		if (err && !first_err) {
			first_err = err;
			memcpy(first, path, sizeof(first));
		}
	}
	if (first_err && first_err != EACCES && first_err != EPERM) {
		found(d, D_GPU_INIT, NULL, "open %s: %s", first, first_err == ETIMEDOUT ?
		      "it does not come back" : strerror(first_err));
		return opened ? GOOD : WRONG;
	}
	if (!opened)
		return refused(d, first, first_err);
	/* a batch system can keep some GPUs from its jobs, so that is as it should be */
	saw(d, CHECK_PERMISSION, denied ? "%u GPU nodes can be opened, %u are denied" :
	    "all can be opened", opened, denied);
	return GOOD;
}

/* ---- what is no link of the chain -------------------------------------------------------- */

/* The name of a character device's driver in /proc/devices: "195 nvidia-frontend". */
static bool device_driver(unsigned number, char *name, size_t n)
{
	char full[ROOT_PATH], line[128], word[64];
	FILE *f = fopen(root_path(full, "/proc/devices"), "re");
	unsigned at;
	bool yes = false;

	snprintf(name, n, "none");
	while (f && !yes && fgets(line, sizeof(line), f) && strncmp(line, "Block", 5)) {
		yes = sscanf(line, " %u %63s", &at, word) == 2 && at == number;
		if (yes)
			snprintf(name, n, "%s", word);
	}
	if (f)
		fclose(f);
	return yes;
}

static bool gdrdrv_is_used(const struct doctor *d)
{
	const struct probe_device *dev = d->probe && d->probe->ndevices ? d->probe->device : NULL;

	for (unsigned i = 0; dev && i < dev->nproviders; i++)
		if (!strcmp(dev->provider[i].name, "gdrdrv") && dev->provider[i].score >= 0)
			return true;
	return false;
}

static void look_at_gdrdrv(struct doctor *d)
{
	char full[ROOT_PATH], driver[64], version[64];
	struct stat st;

	if (lstat(root_path(full, "/dev/gdrdrv"), &st) || gdrdrv_is_used(d))
		return;
	if (!S_ISCHR(st.st_mode)) {
		found(d, D_GDRDRV_NO_DEVICE, NULL, "/dev/gdrdrv is %s", S_ISREG(st.st_mode) ?
		      "a plain file" : S_ISDIR(st.st_mode) ? "a folder" : "no character device");
		return;
	}
	device_driver(major(st.st_rdev), driver, sizeof(driver));
	if (strcmp(driver, "gdrdrv")) {
		found(d, D_GDRDRV_STALE, NULL, "/dev/gdrdrv has the device number %u:%u; the "
		      "driver of that in /proc/devices: %s", major(st.st_rdev),
		      minor(st.st_rdev), driver);
		return;
	}
	if (!root_line("/sys/module/gdrdrv/version", version, sizeof(version)))
		snprintf(version, sizeof(version), "unknown");
	found(d, D_GDRDRV_GDRCOPY, NULL, "/dev/gdrdrv is the node of the gdrdrv module, version "
	      "%s", version);
}

static void look_at_width(struct doctor *d)
{
	struct topo t;
	struct topo_rate most;

	for (unsigned g = 0; g < d->ngpus; g++) {
		topo_read(&t, d->gpu[g].address);
		for (unsigned i = 0; i < t.nsteps; i++) {
			if (!topo_narrow(&t, i) || !topo_slow(&t, i, &most))
				continue;
			found(d, D_PCIE_WIDTH, NULL, "the link from %s to %s runs with %u lanes, "
			      "both ends can do %u", t.step[i].address, t.step[i + 1].address,
			      t.step[i].now.width, most.width);
			return;
		}
	}
}

void look_beside(struct doctor *d)
{
	const char *devices = getenv("BARWAY_DEVICES");

	if (devices && !strcmp(devices, "soft") && d->verdict[CHECK_CUINIT] == GOOD)
		found(d, D_DEVICES_SOFT, NULL, "BARWAY_DEVICES is 'soft' in the environment");
	if (devices && !strcmp(devices, "cuda") && d->verdict[CHECK_PCI] == ABSENT)
		found(d, D_DEVICES_CUDA, NULL, "BARWAY_DEVICES is 'cuda' in the environment");
	look_at_width(d);
	look_at_gdrdrv(d);
}
