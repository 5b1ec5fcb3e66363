// Old symbol versions, so that a library built on a new system loads in old training containers.
// glibc 2.34 moved threads and dlopen into libc under new versions; the old ones are still there.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(MYCROFT_OLD_SYMBOLS)
// NOLINTBEGIN: the directive names the version to link against, nothing else.
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.2.5");
__asm__(".symver pthread_sigmask, pthread_sigmask@GLIBC_2.2.5");
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlclose, dlclose@GLIBC_2.2.5");
// NOLINTEND
#endif
