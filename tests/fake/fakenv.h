/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control interface of libfakenv.so: an NVIDIA resource manager in the process, behind the
 * device files /dev/nvidiactl and /dev/nvidia<N>, for machines without a GPU.
 *
 * Keys for fakenv_set() and for the environment variable FAKENV ("key=value,key=value", read when
 * the fake is first used and at fakenv_reset()). What is built at first use (GPUs, memory sizes,
 * driver layouts, paths) is to be set before cuInit() and before Barway opens files.
 *
 *	driver=580.159.04  driver version; the struct layouts follow its major number
 *	gpus=1             number of GPUs, 1 to 8
 *	fb_mb=1024         memory of each GPU, MiB, up to 16384
 *	bar1=auto          static, dynamic, or auto: static since 580 and if it fits
 *	bar1_mb=0          BAR1 size, MiB, up to 32768; 0: 256 if bar1=dynamic, else 2 * fb_mb
 *	bar1_page_kb=2048  page size of dynamic BAR1
 *	minor_base=0       minor number of the first GPU
 *	instance_base=2    lowest device instance
 *	nodes=1            0: no /dev/nvidia<N>
 *	ctl=1              0: no /dev/nvidiactl
 *	dev_mode=ok        eacces, eperm: opening the device files gives that error
 *	open_module=1      0: the closed kernel module's text in /proc/driver/nvidia/version
 *	sysfs_version=1    0: no /sys/module/nvidia/version
 *	proc_version=1     0: no /proc/driver/nvidia/version
 *	gdrdrv=0           1: /dev/gdrdrv exists (opening it gives a file without any ioctl)
 *	wsl=0              1: /dev/dxg exists, no nvidia files; CUDA works
 *	jetson=0           1: /dev/nvmap exists, no nvidia files; CUDA works, integrated
 *	mig=0 cc=0 virt=0  partitioned; confidential computing feature; virtualization mode
 *	cc_caps=0          size in bytes that the confidential computing query wants, 5 or 6;
 *	                   0: by driver
 *	dmabuf=1           0: CUDA exports no dma-buf
 *	coherent=0         1: cached mappings outside BAR1, CU_DEVICE_ATTRIBUTE 100 is 1
 *	ordered=1          0: the GPU promises no order of what comes in through BAR1:
 *	                   CU_DEVICE_ATTRIBUTE 118 is 0
 *	admin=-1           1 or 0: is the caller an administrator; -1: effective uid 0
 *	lost=0             1: the GPU is lost: maps and mmaps are refused
 *	memops=1           0: no cuStreamWriteValue64() and cuStreamWaitValue64()
 *	host_alias=0       1: registered host memory has another address on the device
 *	host_skew=0        1: cuMemHostAlloc() gives memory that begins within a page
 *	jit=0              the CUDA error that compiling a kernel ends with
 *	cuinit=0           what cuInit() returns in place of success; -1: it never returns, -2: it
 *	                   ends the process
 *	destroyed=0        naming a context that was destroyed ends the program; 1: is an error
 *	tamper=            what is wrong with the driver, see below; empty: nothing
 *	<counter>=N        sets a counter (usually to 0)
 *
 * Values of tamper; they can be set at any time. libcuda's own files never see them, except where
 * libcuda is what is wrong.
 *
 *	dup_zero_handle    a dup succeeds with handle 0 and without an object
 *	dup_class          NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO gives another class
 *	dup_addrspace      the address space is said to be system memory
 *	dup_regmem         ... register memory
 *	dup_physsize       the memory is said to be one page long
 *	dup_wrong_memory   a dup refers to other memory
 *	export_client      libcuda exports through a client that it has not used before
 *	export_short       the exported sizes are one page short
 *	export_wrong_dev   libcuda exports on the file of another GPU (of nvidiactl if there is one)
 *	export_none        libcuda answers without asking the driver
 *	export_pool        libcuda exports a page less of pool memory, unless it is asked for from
 *	                   where the pool's mapping begins
 *	map_address        pLinearAddress is outside BAR1
 *	map_caching        the flags say cached
 *	map_wrong_offset   the CPU sees the page after the one asked for
 *	gpu_id             the gpu_ids in CARD_INFO are exchanged (one GPU: wrong)
 *	uuid               UUIDs of gpu_ids and subdevices are not those that CUDA says
 *	alias              mappings of less than 1 MiB all begin at offset 0 of the memory
 *
 * Counters for fakenv_get(); "live" ones say what exists now:
 *
 *	fds                live: open files of nvidiactl and nvidia<N> (libcuda's too)
 *	dmabufs            live: open dma-buf files
 *	clients objects    live: clients; objects below clients
 *	dups               live: objects made by RM_DUP_OBJECT or an import
 *	mappings           live: RM_MAP_MEMORY without RM_UNMAP_MEMORY
 *	vmas               live: CPU mappings of GPU memory
 *	bar1_used fb_used  live: bytes, all GPUs together
 *	fb_used:<minor>    ... of the GPU with that minor number
 *	opens ioctls       opened device files; ioctls on them
 *	exports            NV_ESC_EXPORT_TO_DMABUF_FD
 *	nr_<hex>           ioctls with this number, not libcuda's
 *	total_dups total_maps total_unmaps total_frees  calls that succeeded, not libcuda's
 *	order_violations   RM_UNMAP_MEMORY or RM_FREE under a live CPU mapping, RM_FREE under a
 *	                   mapping, or a client that goes with its last file under a CPU mapping
 *	invalid_parent_dups, wrong_gpu_dups   must stay 0
 *	foreign_calls      RM_FREE or RM_UNMAP_MEMORY on the client of another process
 *	shares_all         RM_SHARE with type ALL
 *	null_stream_uses contexts_created graphs_dropped streams_created  counted by libcuda
 *	stale_uses         uses of a stream, module or function that is gone, counted by libcuda
 *	any configuration key of which the value is a number
 *
 * Paths that begin with the value of BARWAY_DOCTOR_ROOT, under which the tool looks at a machine,
 * are the fake's as without it, unless there is such a file.
 *
 * State is shared with forked children, as a kernel's would be; every call is thread-safe.
 */
#ifndef FAKENV_H
#define FAKENV_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Forgets every file, client and object, sets all counters to 0 and the configuration to its
 * defaults and FAKENV. A fake libcuda that is loaded is brought back to before its cuInit().
 * Nothing else may be using the fake at that time, in this process or in a forked one.
 */
void fakenv_reset(void);

/* 0, or -1 for an unknown key or a bad value. */
int fakenv_set(const char *key, const char *value);

/* The counter, or -1 if there is none of that name. */
long fakenv_get(const char *key);

/*
 * The @nth (1 = next) ioctl of number @nr fails: with RM status @result if positive, else with the
 * negative errno value @result. libcuda's own calls count for NV_ESC_EXPORT_TO_DMABUF_FD only.
 */
void fakenv_fail_ioctl(unsigned nr, unsigned nth, int result);

/* The same for RM_CONTROL with command @cmd; an RM status, or a negative errno value. */
void fakenv_fail_control(unsigned cmd, unsigned nth, int result);

/* For libcuda: where the CPU finds a range of a memory object; NULL if there is no such range. */
void *fakenv_fb(uint32_t hclient, uint32_t hmemory, uint64_t offset, uint64_t length);

/* Where the CPU finds a range of a dma-buf, as a card would; NULL: not in one of its parts. */
void *fakenv_dmabuf(int fd, uint64_t offset, uint64_t length);

/* For libcuda: this file is libcuda's own: no tampering, no injected failures. */
void fakenv_trust_fd(int fd);

/* For libcuda: called (without locks held) at fakenv_reset(), before the state is cleared. */
void fakenv_on_reset(void (*hook)(void));

/* For libcuda: adds to a counter. */
void fakenv_count(const char *counter, long by);

/* For libcuda: the address on the PCI bus and the UUID of the GPU with that minor number. */
int fakenv_gpu(unsigned minor, uint32_t pci[4], unsigned char uuid[16]);

#ifdef __cplusplus
}
#endif

#endif
