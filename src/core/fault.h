/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core/fault: make the Nth call of a kind fail, and the system calls and allocations that go
 * through it. Everything in the library allocates and calls the driver through these (never on the
 * copy path), so one test loop over N reaches every error path.
 */
#ifndef BW_CORE_FAULT_H
#define BW_CORE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum bw_fault {
	BW_FAULT_ALLOC,
	BW_FAULT_OPEN,
	BW_FAULT_IOCTL,
	BW_FAULT_MMAP,
	BW_FAULT_DEVICE_ALLOC, /* soft GPU memory */
	BW_FAULT_APERTURE,     /* BAR1 of the soft GPU */
	BW_FAULT_COPY,         /* the soft GPU's copy engine */
	BW_FAULT_THREAD,
	BW_FAULT_CUDA,         /* a call into libcuda */
	BW_FAULT_COUNT
};

/* Fails the @nth call from now on (1: the next one), once; 0 disarms. */
void bw_fault_arm(enum bw_fault kind, unsigned nth);
void bw_fault_disarm_all(void);
bool bw_fault_pending(enum bw_fault kind); /* armed and not yet fired */
bool bw_fault_check(const char *list);     /* is it a list of faults: "ioctl@3,mmap@1"? */
void bw_fault_arm_list(const char *list);  /* arms what a list has, which was checked before */
bool bw_fault_hit(enum bw_fault kind);     /* true: this call has to fail */

/* malloc family: zeroed; freed with free(). NULL sets no message. */
void *bw_alloc(size_t bytes);
void *bw_alloc_array(size_t n, size_t bytes);

/* As the system calls, with O_CLOEXEC, restarted on EINTR; -errno on failure. */
int bw_open(const char *path, int flags);
/* A file that took the place of a closed standard stream is moved: what the program prints must not
 * go there. Takes @fd over; also passes a negative one on. -errno on failure. */
int bw_above_stdio(int fd);
int bw_ioctl(int fd, unsigned long request, void *arg);
int bw_mmap(void **out, void *at, size_t bytes, int prot, int flags, int fd, off_t offset);

#endif
