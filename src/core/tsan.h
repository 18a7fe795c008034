/* SPDX-License-Identifier: BSD-3-Clause */
/* BW_TSAN: this is built with the thread sanitizer. */
#ifndef BW_CORE_TSAN_H
#define BW_CORE_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define BW_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BW_TSAN 1
#endif
#endif

#endif
