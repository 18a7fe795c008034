/* SPDX-License-Identifier: BSD-3-Clause */
/* What the program was built with: gcc says it by a macro, clang by a feature. */
#ifndef TEST_SANITIZERS_H
#define TEST_SANITIZERS_H

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#elif __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifndef TSAN
#define TSAN 0 /* it allows no threads in the child of a process that has some */
#endif
#ifndef ASAN
#define ASAN 0
#endif
#define SANITIZED (TSAN || ASAN)

#endif
