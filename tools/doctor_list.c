/* SPDX-License-Identifier: BSD-3-Clause */
/* Every diagnosis that the doctor knows; docs/doctor.md has the same list. */
#include "tools/doctor.h"

#include <stddef.h>

#define INSTALL "install the NVIDIA driver, 515 or newer, with the open kernel modules " \
	"(Ubuntu: sudo ubuntu-drivers install; elsewhere the package nvidia-open), and reboot"
#define KERNEL_LOG "sudo dmesg | grep -E 'NVRM|Xid'"

const char *const check_names[CHECKS] = {
	[CHECK_PCI] = "pci", [CHECK_DRIVER] = "driver", [CHECK_NODES] = "nodes",
	[CHECK_PERMISSION] = "permission", [CHECK_LIBCUDA] = "libcuda", [CHECK_CUINIT] = "cuinit",
	[CHECK_PROVIDER] = "provider", [CHECK_BAR1] = "bar1", [CHECK_MAPPING] = "mapping",
	[CHECK_SANITY] = "sanity",
};

const char *const check_titles[CHECKS] = {
	[CHECK_PCI] = "GPU on the bus", [CHECK_DRIVER] = "kernel driver",
	[CHECK_NODES] = "device nodes", [CHECK_PERMISSION] = "permission",
	[CHECK_LIBCUDA] = "libcuda", [CHECK_CUINIT] = "cuInit", [CHECK_PROVIDER] = "provider",
	[CHECK_BAR1] = "BAR1 aperture", [CHECK_MAPPING] = "mapping", [CHECK_SANITY] = "sanity",
};

const struct diagnosis diagnoses[DIAGNOSES] = {
	[D_WSL2] = { "wsl2", PROBLEM, CHECK_PCI,
		"This is WSL2: the Windows driver owns the GPU, and its BAR1 aperture is out of "
		"reach of Linux programs.",
		"run on Linux itself to use this GPU with Barway; within WSL2 copy with "
		"cudaMemcpy, and develop with BARWAY_DEVICES=soft" },
	[D_JETSON] = { "jetson", PROBLEM, CHECK_PCI,
		"The GPU has no memory of its own: it uses the CPU's, so there is nothing to map.",
		"allocate with cudaHostAlloc(): the CPU and the GPU use that memory as it is" },
	[D_NO_GPU] = { "no-gpu", NOTE, CHECK_PCI,
		"There is no NVIDIA GPU here. Nothing is wrong; the soft GPU can stand in for one.",
		"to use a GPU: put one in (in a virtual machine: pass one through), then "
		INSTALL },
	[D_NOUVEAU] = { "nouveau", PROBLEM, CHECK_DRIVER,
		"The nouveau driver has the GPU; CUDA and Barway need NVIDIA's.", INSTALL },
	[D_VFIO] = { "vfio", PROBLEM, CHECK_DRIVER,
		"The GPU is set aside for a virtual machine.",
		"run barway in that virtual machine, or give the GPU back to this system" },
	[D_DRIVER_MISSING] = { "driver-missing", PROBLEM, CHECK_DRIVER,
		"There is a GPU, but no driver for it is installed.", INSTALL },
	[D_DRIVER_NOT_LOADED] = { "driver-not-loaded", PROBLEM, CHECK_DRIVER,
		"The NVIDIA kernel module is installed for this kernel, but not loaded.",
		"sudo modprobe nvidia; where that fails (Secure Boot, another kernel) the reason "
		"is in: " KERNEL_LOG },
	[D_DRIVER_OLD] = { "driver-old", PROBLEM, CHECK_DRIVER,
		"This driver is too old: Barway needs 515 or newer.", INSTALL },
	[D_NO_NODES] = { "no-nodes", PROBLEM, CHECK_NODES,
		"The driver is loaded, but nobody has made the device nodes of the GPU.",
		"sudo nvidia-modprobe -c 0 -u; or start nvidia-persistenced, which does it at "
		"each boot" },
	[D_CONTAINER_NO_NODES] = { "container-no-nodes", PROBLEM, CHECK_NODES,
		"This container was started without the GPU.",
		"start it with the GPU: docker run --gpus all (podman: --device "
		"nvidia.com/gpu=all; Kubernetes: resources: limits: nvidia.com/gpu: 1), with the "
		"NVIDIA container toolkit on the host" },
	[D_NO_UVM_NODE] = { "no-uvm-node", PROBLEM, CHECK_NODES,
		"CUDA cannot start without the unified memory module's node.",
		"sudo nvidia-modprobe -u -c 0" },
	[D_NO_PERMISSION] = { "no-permission", PROBLEM, CHECK_PERMISSION,
		"This user may not open the GPU's device nodes.",
		"sudo chmod a+rw /dev/nvidia*; lasting: options nvidia NVreg_DeviceFileMode=0666 "
		"in /etc/modprobe.d" },
	[D_CONTAINER_NO_PERMISSION] = { "container-no-permission", PROBLEM, CHECK_PERMISSION,
		"The device nodes are in this container, but not on its list of allowed devices.",
		"start it with docker run --gpus all, in place of mounting /dev" },
	[D_GPU_INIT] = { "gpu-init", PROBLEM, CHECK_PERMISSION,
		"The driver cannot start the GPU: it is broken, has no power, or has fallen off "
		"the bus.", KERNEL_LOG },
	[D_LIBCUDA_MISSING] = { "libcuda-missing", PROBLEM, CHECK_LIBCUDA,
		"The kernel driver is there, but not its CUDA library for programs.",
		"install libcuda of the same version as the kernel driver (Ubuntu: "
		"libnvidia-compute, Debian: libcuda1, RHEL: nvidia-driver-cuda-libs)" },
	[D_CONTAINER_NO_LIBCUDA] = { "container-no-libcuda", PROBLEM, CHECK_LIBCUDA,
		"The GPU is in this container, but the host's CUDA library is not.",
		"start it with docker run --gpus all -e "
		"NVIDIA_DRIVER_CAPABILITIES=compute,utility" },
	[D_LIBCUDA_NOT_FOUND] = { "libcuda-not-found", PROBLEM, CHECK_LIBCUDA,
		"The CUDA library is installed, but the loader does not look where it is.",
		"sudo ldconfig, with its folder in a file of /etc/ld.so.conf.d" },
	[D_LIBCUDA_BROKEN] = { "libcuda-broken", PROBLEM, CHECK_LIBCUDA,
		"There is a CUDA library, but the loader cannot load it.",
		"install libcuda anew, of the kernel driver's version; in an image: delete the "
		"file, so that the container toolkit can put the host's in its place" },
	[D_LIBCUDA_STUB] = { "libcuda-stub", PROBLEM, CHECK_LIBCUDA,
		"That library is the stub of the CUDA toolkit, made for linking and not for use.",
		"take the folder of stubs out of LD_LIBRARY_PATH and of /etc/ld.so.conf.d" },
	[D_LIBCUDA_MISMATCH] = { "libcuda-mismatch", PROBLEM, CHECK_CUINIT,
		"libcuda and the kernel driver are of different versions and do not work together.",
		"reboot, so that the kernel driver that belongs to libcuda is loaded" },
	[D_CUDA_COMPAT] = { "cuda-compat", PROBLEM, CHECK_CUINIT,
		"The libcuda that was loaded is of a forward compatibility package, which this GPU "
		"does not support.",
		"remove the package cuda-compat, or take its folder out of LD_LIBRARY_PATH" },
	[D_CUDA_NO_DEVICE] = { "cuda-no-device", PROBLEM, CHECK_CUINIT,
		"CUDA starts, and sees no GPU.",
		"nvidia-smi -L; where it lists a GPU, unset CUDA_VISIBLE_DEVICES" },
	[D_FABRIC_MANAGER] = { "fabric-manager", PROBLEM, CHECK_CUINIT,
		"The system is not ready for CUDA: on servers with NVSwitch the fabric manager is "
		"not running.",
		"sudo systemctl start nvidia-fabricmanager" },
	[D_CUINIT] = { "cuinit", PROBLEM, CHECK_CUINIT, "CUDA cannot start.", KERNEL_LOG },
	[D_STUCK] = { "stuck", PROBLEM, CHECK_CUINIT,
		"A call of the driver does not come back.", KERNEL_LOG },
	[D_CRASHED] = { "crashed", PROBLEM, CHECK_CUINIT,
		"A call ended its process.",
		"report it, with the output of barway doctor --json" },
	[D_BAD_PARAMETER] = { "bad-parameter", PROBLEM, CHECK_PROVIDER,
		"A parameter of the environment is not one that Barway understands.",
		"correct or unset that variable; barway info --params lists them all" },
	[D_MIG] = { "mig", PROBLEM, CHECK_PROVIDER,
		"MIG is on: mapping the memory of a MIG instance is refused, because it has not "
		"been tested.",
		"sudo nvidia-smi -mig 0 (it resets the GPU), or copy with cudaMemcpy" },
	[D_CONFIDENTIAL] = { "confidential-computing", PROBLEM, CHECK_PROVIDER,
		"Confidential computing is on: the GPU's memory is closed to the CPU, by design.",
		"copy with cudaMemcpy; or have the host turn the GPU's confidential computing mode "
		"off" },
	[D_VGPU] = { "vgpu", PROBLEM, CHECK_PROVIDER,
		"This is a vGPU: its aperture belongs to the host.",
		"pass a whole GPU through to the virtual machine, or copy with cudaMemcpy" },
	[D_CLOSED_MODULES] = { "closed-modules", PROBLEM, CHECK_PROVIDER,
		"This driver does not export dma-bufs, so memory cannot be found.",
		"install the open kernel modules (package nvidia-open), or allow the ipc route: "
		"BARWAY_RM_ROUTES=vmm,ipc, see barway-params(7)" },
	[D_DRIVER_UNKNOWN] = { "driver-unknown", PROBLEM, CHECK_PROVIDER,
		"BARWAY_RM_ALLOW_UNKNOWN=0 allows known driver versions only, and this is none.",
		"unset BARWAY_RM_ALLOW_UNKNOWN: the self-test then decides" },
	[D_PROVIDERS_EXCLUDED] = { "providers-excluded", PROBLEM, CHECK_PROVIDER,
		"BARWAY_PROVIDERS leaves out every provider that could map this GPU's memory.",
		"unset BARWAY_PROVIDERS" },
	[D_PROVIDER] = { "provider", PROBLEM, CHECK_PROVIDER,
		"No provider can map this GPU's memory.",
		"do what the reasons under 'providers' of barway info say" },
	[D_NO_CONTEXT] = { "no-context", PROBLEM, CHECK_MAPPING,
		"No CUDA context can be made on the GPU.",
		"nvidia-smi -q -d COMPUTE: where the compute mode is exclusive another program has "
		"the GPU, where it is prohibited: sudo nvidia-smi -c 0" },
	[D_GPU_MEMORY_FULL] = { "gpu-memory-full", PROBLEM, CHECK_MAPPING,
		"The GPU's memory is used up.",
		"nvidia-smi shows which programs hold it: end one" },
	[D_BAR1_FULL] = { "bar1-full", PROBLEM, CHECK_BAR1,
		"The BAR1 aperture has no room for a mapping: other mappings hold it.",
		"nvidia-smi -q -d MEMORY shows its use: end what holds it; lasting: turn on "
		"Resizable BAR in the firmware" },
	[D_GPU_LOST] = { "gpu-lost", PROBLEM, CHECK_MAPPING,
		"The GPU has fallen off the bus.", KERNEL_LOG },
	[D_MAPPING] = { "mapping", PROBLEM, CHECK_MAPPING,
		"A mapping could not be made, or did not carry the right bytes; Barway does not "
		"use it then.",
		"report it, with the output of barway doctor --json" },
	[D_SANITY] = { "sanity", PROBLEM, CHECK_SANITY,
		"A test of this installation fails.", NULL },
	[D_SANITY_NOT_RUN] = { "sanity-not-run", PROBLEM, CHECK_SANITY,
		"The tests of this installation did not run to their end.",
		"barway sanity --quick" },
	[D_SOFT_GPU] = { "soft-gpu", PROBLEM, CHECKS,
		"Even the soft GPU, which needs no hardware, does not work: this installation is "
		"broken.",
		"build and install Barway anew, and run its tests" },
	[D_BAR1_SMALL] = { "bar1-small", ADVICE, CHECKS,
		"The BAR1 aperture is smaller than the memory, so not all of that can be mapped at "
		"once.",
		"turn on 'Above 4G Decoding' and 'Resizable BAR' in the firmware" },
	[D_PCIE_WIDTH] = { "pcie-width", ADVICE, CHECKS,
		"The link to the GPU has fewer lanes than both its ends can do: copies are slower.",
		"seat the card anew, or move it to a full-width slot" },
	[D_DEVICES_SOFT] = { "devices-soft", ADVICE, CHECKS,
		"Programs use the soft GPU here, and not the real one.", "unset BARWAY_DEVICES" },
	[D_DEVICES_CUDA] = { "devices-cuda", PROBLEM, CHECKS,
		"Programs are told to use real GPUs only, and there is none: they fail.",
		"unset BARWAY_DEVICES: the soft GPU then stands in for a GPU" },
	[D_GDRDRV_NO_DEVICE] = { "gdrdrv-no-device", ADVICE, CHECKS,
		"/dev/gdrdrv is no device node. Barway does not need it; programs that look for a "
		"gdrdrv are misled.",
		"sudo rm -r /dev/gdrdrv" },
	[D_GDRDRV_STALE] = { "gdrdrv-stale", ADVICE, CHECKS,
		"/dev/gdrdrv is the node of another driver, or of a gdrdrv module that is gone. "
		"Barway does not need it; programs that look for a gdrdrv are misled.",
		"sudo rm /dev/gdrdrv" },
	[D_GDRDRV_GDRCOPY] = { "gdrdrv-foreign", NOTE, CHECKS,
		"Somebody else's gdrdrv module (GDRCopy's) is loaded. Barway does not use it, and "
		"neither disturbs the other.",
		"nothing" },
	[D_LIBCUDA_OTHER] = { "libcuda-other-version", NOTE, CHECKS,
		"libcuda is not of the kernel driver's version (a forward compatibility package), "
		"and works with it.",
		"nothing" },
};

const char *kind_name(enum kind kind)
{
	return kind == PROBLEM ? "problem" : kind == ADVICE ? "advice" : "note";
}

const char *verdict_name(enum verdict verdict)
{
	switch (verdict) {
	case GOOD: return "good";
	case UNKNOWN: return "unknown";
	case ABSENT: return "absent";
	case WRONG: return "wrong";
	default: return "not reached";
	}
}
