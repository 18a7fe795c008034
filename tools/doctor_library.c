/* SPDX-License-Identifier: BSD-3-Clause */
/* The links of the chain that only using the driver and the library tells about. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "barway.h"
#include "tools/doctor.h"
#include "tools/root.h"
#include "tools/text.h"

/* The child that looked hung or crashed at the link that is being looked at. */
static bool ended_badly(struct doctor *d)
{
	const struct probe *p = d->probe;

	if (!p || p->end == PROBE_NO_CHILD) {
		found(d, D_CRASHED, "end some programs: processes or memory are used up",
		      "no process could be made to use the driver");
		return true;
	}
	if (p->end == PROBE_DONE || p->at != d->now)
		return false;
	if (p->end == PROBE_STUCK)
		found(d, D_STUCK, NULL, "%s did not come back within %u s", p->stage, d->seconds);
	else
		found(d, D_CRASHED, NULL, "%s ended its process: %s", p->stage, p->signal ?
		      strsignal(p->signal) : "it called exit()");
	return true;
}

/* ---- libcuda ------------------------------------------------------------------------------ */

/* A folder that has the library although the loader does not find it; NULL: none. */
static const char *libcuda_folder(void)
{
	static const char *const folders[] = {
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
		"/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib",
		"/run/opengl-driver/lib", "/usr/local/cuda/compat",
	};
	char path[128];

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, sizeof(path), "%s/libcuda.so.1", folders[i]);
		if (root_exists(path))
			return folders[i];
	}
	return NULL;
}

static enum verdict not_loaded(struct doctor *d)
{
	const struct probe *p = d->probe;
	bool no_file = strstr(p->load_error, "No such file") || strstr(p->load_error, "not found");
	const char *folder = libcuda_folder();
	char action[256];

	if (strcmp(p->libcuda, "libcuda.so.1"))
		return found(d, no_file ? D_LIBCUDA_MISSING : D_LIBCUDA_BROKEN,
			     "unset BARWAY_LIBCUDA, which names that library, or correct it", "%s",
			     p->load_error);
	if (!no_file)
		return found(d, D_LIBCUDA_BROKEN, NULL, "%s", p->load_error);
	if (folder) {
		snprintf(action, sizeof(action), "echo %s | sudo tee "
			 "/etc/ld.so.conf.d/libcuda.conf && sudo ldconfig", folder);
		return found(d, D_LIBCUDA_NOT_FOUND, action, "%s, but %s/libcuda.so.1 is there",
			     p->load_error, folder);
	}
	return found(d, d->container ? D_CONTAINER_NO_LIBCUDA : D_LIBCUDA_MISSING, NULL, "%s",
		     p->load_error);
}

enum verdict check_libcuda(struct doctor *d)
{
	const struct probe *p;

	d->probe = probe_run(false, d->device, d->seconds);
	if (ended_badly(d))
		return WRONG;
	p = d->probe;
	if (!p->loaded)
		return not_loaded(d);
	if (strstr(p->file, "/stubs/") || p->cuinit == 34)
		return found(d, D_LIBCUDA_STUB, NULL, "%s is %s", p->libcuda, p->file);
	if (!p->has_init)
		return found(d, D_LIBCUDA_BROKEN, NULL, "%s is %s, which has no cuInit()",
			     p->libcuda, p->file);
	saw(d, CHECK_LIBCUDA, "%s is %s", p->libcuda, p->file);
	return GOOD;
}

/* ---- cuInit ------------------------------------------------------------------------------- */

/* The version in the name of the file, where it is not the kernel module's. */
static bool other_version(const struct doctor *d, char *version, size_t n)
{
	const char *name = strrchr(d->probe->file, '/');

	return find_version(name ? strstr(name, ".so.") : NULL, version, n) &&
	       d->module_version[0] && strcmp(version, d->module_version) != 0;
}

static enum verdict mismatch(struct doctor *d, const char *version)
{
	const struct probe *p = d->probe;

	return found(d, D_LIBCUDA_MISMATCH, d->container ?
		     "take libcuda out of the image, so that the container toolkit can put the "
		     "host's in its place" : NULL,
		     "cuInit: %s (%d); libcuda is %s (%s), the kernel module is %s",
		     p->cuinit_name, p->cuinit, *version ? version : "of unknown version", p->file,
		     d->module_version[0] ? d->module_version : "of unknown version");
}

static enum verdict no_device(struct doctor *d)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (visible)
		return found(d, D_CUDA_NO_DEVICE, "unset CUDA_VISIBLE_DEVICES", "cuInit: %s (%d); "
			     "CUDA_VISIBLE_DEVICES is '%.64s'", d->probe->cuinit_name,
			     d->probe->cuinit, visible);
	return found(d, D_CUDA_NO_DEVICE, "nvidia-smi -L: where MIG is on without an instance, "
		     "turn it off: sudo nvidia-smi -mig 0", "cuInit: %s (%d)",
		     d->probe->cuinit_name, d->probe->cuinit);
}

static enum verdict init_failed(struct doctor *d)
{
	const struct probe *p = d->probe;
	char version[64] = "";
	bool other = other_version(d, version, sizeof(version));

	switch (p->cuinit) {
	case 100: /* CUDA_ERROR_NO_DEVICE, and so on: cuda.h */
		return no_device(d);
	case 802:
		return found(d, D_FABRIC_MANAGER, NULL, "cuInit: %s (802)", p->cuinit_name);
	case 803:
		return mismatch(d, version);
	case 804:
		return found(d, D_CUDA_COMPAT, NULL, "cuInit: %s (804); libcuda is %s",
			     p->cuinit_name, p->file);
	default:
		if (other)
			return mismatch(d, version);
		return found(d, D_CUINIT, NULL, "cuInit: %s (%d)", p->cuinit_name, p->cuinit);
	}
}

/* The library's sentence has the variable, and what to do. */
static enum verdict bad_parameter(struct doctor *d, const struct probe *p)
{
	const char *variable = strstr(p->message, "BARWAY_");

	return found(d, D_BAD_PARAMETER, variable, "%s", p->message);
}

enum verdict check_cuinit(struct doctor *d)
{
	const struct probe *p = d->probe;
	char version[64];

	if (ended_badly(d))
		return WRONG;
	if (p->cuinit)
		return init_failed(d);
	if (p->open_error)
		return bad_parameter(d, p);
	if (p->count <= 0)
		return found(d, D_CUINIT, "do what the sentence above says", "%s",
			     *p->message ? p->message : "CUDA starts, and has no device");
	saw(d, CHECK_CUINIT, "%d device%s", p->count, p->count == 1 ? "" : "s");
	if (other_version(d, version, sizeof(version)))
		found(d, D_LIBCUDA_OTHER, NULL, "libcuda is %s, the kernel module %s", version,
		      d->module_version);
	return GOOD;
}

/* ---- provider ------------------------------------------------------------------------------ */

static const struct probe_provider *best(const struct probe_device *dev)
{
	const struct probe_provider *p = NULL;

	for (unsigned i = 0; i < dev->nproviders; i++)
		if (dev->provider[i].score >= 0 && (!p || dev->provider[i].score > p->score))
			p = &dev->provider[i];
	return p;
}

/* The library says why in words, for people; these are the words that it uses. */
static const struct {
	const char *words;
	enum diagnosis_id id;
} refusals[] = {
	{ "MIG is on", D_MIG },
	{ "confidential computing is on", D_CONFIDENTIAL },
	{ "a vGPU", D_VGPU },
	{ "no memory of its own", D_JETSON },
	{ "Jetson", D_JETSON },
	{ "WSL2", D_WSL2 },
	{ "too old", D_DRIVER_OLD },
	{ "does not export dma-bufs", D_CLOSED_MODULES },
	{ "BARWAY_RM_ALLOW_UNKNOWN=1", D_DRIVER_UNKNOWN },
	{ "not among the allowed providers", D_PROVIDERS_EXCLUDED },
};

static void refused(struct doctor *d, const struct probe_device *dev)
{
	enum diagnosis_id id = D_PROVIDER;
	const struct probe_provider *p = dev->provider;

	for (size_t r = 0; r < sizeof(refusals) / sizeof(refusals[0]) && id == D_PROVIDER; r++) {
		for (unsigned i = 0; i < dev->nproviders && id == D_PROVIDER; i++) {
			if (!strstr(dev->provider[i].reason, refusals[r].words))
				continue;
			id = refusals[r].id;
			p = &dev->provider[i];
		}
	}
	if (dev->nproviders)
		found(d, id, NULL, "device %d (%s, %s), provider %s: %.350s", dev->index, dev->name,
		      dev->pci, p->name, p->reason);
	else
		found(d, id, NULL, "device %d (%s, %s) has no provider", dev->index, dev->name,
		      dev->pci);
}

enum verdict check_provider(struct doctor *d)
{
	const struct probe *p = d->probe;
	char text[512] = "";
	size_t used = 0;

	for (unsigned i = 0; i < p->ndevices; i++) {
		const struct probe_provider *b = best(&p->device[i]);

		if (!b && p->end == PROBE_DONE)
			refused(d, &p->device[i]);
		if (b && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 "%sdevice %d: %s", used ? ", " : "",
						 p->device[i].index, b->name);
	}
	if (ended_badly(d))
		return WRONG;
	if (!used && !has_kind(d, PROBLEM) && !d->device)
		found(d, D_PROVIDER, NULL, "the library says nothing about any of %d devices",
		      p->count);
	if (!used)
		return WRONG;
	saw(d, CHECK_PROVIDER, "%s", text);
	return GOOD;
}

/* ---- BAR1 ---------------------------------------------------------------------------------- */

static void room_text(const struct probe_device *dev, char *text, size_t n)
{
	char total[32], used[32];

	if (dev->bar1_total == UINT64_MAX)
		snprintf(text, n, "of unknown size");
	else
		snprintf(text, n, "%s, %s in use",
			 text_bytes(dev->bar1_total, total, sizeof(total)),
			 dev->bar1_free > dev->bar1_total ? "an unknown part" :
			 text_bytes(dev->bar1_total - dev->bar1_free, used, sizeof(used)));
}

enum verdict check_bar1(struct doctor *d)
{
	const struct probe *p = d->probe;
	unsigned full = 0, usable = 0, small = 0;
	char text[96], memory[32];

	for (unsigned i = 0; i < p->ndevices; i++) {
		const struct probe_device *dev = &p->device[i];

		if (!best(dev))
			continue;
		room_text(dev, text, sizeof(text));
		usable++;
		if (!d->saw[CHECK_BAR1][0])
			saw(d, CHECK_BAR1, "device %d: %s", dev->index, text);
		if (dev->reached == DEVICE_MAP && dev->error == ENOMEM &&
		    strstr(dev->message, "BAR1 aperture")) {
			full++;
			found(d, D_BAR1_FULL, NULL, "device %d (%s): %.350s", dev->index, dev->name,
			      dev->message);
		}
		if (dev->bar1_total < dev->memory_total && !small++)
			found(d, D_BAR1_SMALL, NULL, "device %d (%s): the aperture is %s; the "
			      "memory has %s", dev->index, dev->name, text,
			      text_bytes(dev->memory_total, memory, sizeof(memory)));
	}
	return full == usable ? WRONG : GOOD;
}

/* ---- mapping ------------------------------------------------------------------------------- */

static void mapping_failed(struct doctor *d, const struct probe_device *dev)
{
	static const char *const steps[] = {
		[DEVICE_ACTIVATE] = "make a CUDA context", [DEVICE_ALLOC] = "allocate 64 KiB",
		[DEVICE_MAP] = "map 64 KiB", [DEVICE_COPY] = "copy there and back",
	};
	enum diagnosis_id id = D_MAPPING;

	if (dev->reached == DEVICE_MAP && strstr(dev->message, "BAR1 aperture"))
		return; /* said before */
	if (dev->error == ENOMEM && (dev->reached <= DEVICE_ALLOC ||
				     strstr(dev->message, "GPU's memory is used up")))
		id = D_GPU_MEMORY_FULL;
	else if (dev->reached == DEVICE_ACTIVATE)
		id = D_NO_CONTEXT;
	else if (strstr(dev->message, "GPU is lost"))
		id = D_GPU_LOST;
	found(d, id, NULL, "device %d (%s), %s: %.350s", dev->index, dev->name,
	      steps[dev->reached], dev->message);
}

enum verdict check_mapping(struct doctor *d)
{
	const struct probe *p = d->probe;
	unsigned good = 0;

	for (unsigned i = 0; i < p->ndevices; i++) {
		if (p->device[i].reached == DEVICE_GOOD)
			good++;
		else if (best(&p->device[i]) && p->device[i].reached != DEVICE_NOT_TRIED)
			mapping_failed(d, &p->device[i]);
	}
	if (ended_badly(d))
		return WRONG;
	if (!good)
		return WRONG;
	saw(d, CHECK_MAPPING, "self-test and copies both ways passed on %u of %u device%s", good,
	    p->ndevices, p->ndevices == 1 ? "" : "s");
	return GOOD;
}

/* ---- sanity, and the soft GPU -------------------------------------------------------------- */

static enum verdict judge_sanity(struct doctor *d, const char *where)
{
	const struct sanity *s = &d->sanity;
	char action[160];

	if (s->end == SANITY_NOT_RUN)
		return found(d, D_SANITY_NOT_RUN, NULL, "%s: barway sanity --quick: %s", where,
			     s->why_not);
	if (d->now == CHECK_SANITY)
		saw(d, CHECK_SANITY, "%s: %u passed, %u failed, %u waived", where, s->passed,
		    s->failed, s->waived);
	if (!s->failed)
		return GOOD;
	snprintf(action, sizeof(action), "barway sanity -v %s, and report it with the output of "
		 "barway doctor --json", s->first_failed);
	return found(d, D_SANITY, action, "%s: %u of %u tests failed; %s: %.300s", where, s->failed,
		     s->passed + s->failed, s->first_failed, s->reason);
}

enum verdict check_sanity(struct doctor *d)
{
	const struct probe *p = d->probe;
	char where[32];

	for (unsigned i = 0; i < p->ndevices; i++) {
		if (p->device[i].reached != DEVICE_GOOD)
			continue;
		doctor_sanity(&d->sanity, false, p->device[i].index, d->seconds);
		snprintf(where, sizeof(where), "device %d", p->device[i].index);
		return judge_sanity(d, where);
	}
	return UNKNOWN;
}

/* The variables of the environment that set a parameter: "BARWAY_LOG, BARWAY_FAULT". */
static const char *variables(char *text, size_t n)
{
	struct barway_param_info p = { .size = sizeof(p) };
	char name[64];
	size_t used = 0;

	*text = 0;
	for (unsigned i = 0; !barway_param_get(i, &p) && used < n; i++) {
		snprintf(name, sizeof(name), "BARWAY_%s", p.name);
		for (char *c = name; *c; c++)
			*c = (char)toupper((unsigned char)*c);
		if (getenv(name) && *getenv(name))
			used += (size_t)snprintf(text + used, n - used, "%s%s", used ? ", " : "",
						 name);
	}
	return text;
}

/* The environment can keep it from working, and is looked at before the installation. */
static void soft_failed(struct doctor *d, const struct probe *p)
{
	const struct probe_device *dev = p && p->ndevices ? p->device : NULL;
	char names[256], action[400];

	if (p && p->open_error == EINVAL) {
		bad_parameter(d, p);
	} else if (dev && !best(dev) && dev->nproviders) {
		refused(d, dev);
	} else {
		snprintf(action, sizeof(action), "unset %s; where that does not help: %s",
			 variables(names, sizeof(names)), diagnoses[D_SOFT_GPU].action);
		found(d, D_SOFT_GPU, *names ? action : NULL, "the soft GPU: %s", !p ? "no memory" :
		      p->end != PROBE_DONE ? p->stage : dev ? dev->message : p->message);
	}
}

void check_soft(struct doctor *d)
{
	const struct probe *p;

	d->now = CHECKS;
	d->soft_probe = probe_run(true, d->device, d->seconds);
	p = d->soft_probe;
	if (!p || p->end != PROBE_DONE || !p->ndevices || p->device[0].reached != DEVICE_GOOD) {
		soft_failed(d, p);
		return;
	}
	doctor_sanity(&d->sanity, true, p->device[0].index, d->seconds);
	judge_sanity(d, "the soft GPU");
}
