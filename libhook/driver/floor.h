/*
 * floor.h - the oldest C library that the preload library loads on: glibc 2.17 (2012). The build puts this file before
 * every source of it.
 *
 * Newer C libraries moved libdl and libpthread into libc.so.6, and gave the functions a new version with it. Linked
 * plainly, our library would ask for that version, and a process on an older system would not start at all, whether it
 * touches CUDA or not. So the old versions are asked for by name: new C libraries have them too.
 *
 * They are weak because on an old system libdl and libpthread may not be there, in a program that has no use for them;
 * libcuda needs both, so where it is, they are. tests/libhook/hooks/test_guest.py checks the list against the file.
 */
#ifndef GEMINI_DRIVER_FLOOR_H
#define GEMINI_DRIVER_FLOOR_H
#ifndef __ASSEMBLER__

#if !defined(__x86_64__)
#error "the symbol versions below are those of x86-64"
#endif

#define _GNU_SOURCE /* before the first header of the file, as its own definition is then too late for it */

#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<sys/random.h>)
#include <sys/random.h>
#endif

/* Functions that older C libraries have under no name at all are system calls here; both set errno alike. */
static inline int floor_fstat(int file, struct stat *status) {
    return (int)syscall(SYS_fstat, file, status);
}

static inline ssize_t floor_getrandom(void *buffer, size_t length, unsigned int flags) {
    return syscall(SYS_getrandom, buffer, length, flags);
}

#define fstat floor_fstat
#define getrandom floor_getrandom

#define FLOOR(symbol, version) __asm__(".symver " #symbol "," #symbol "@" version)

FLOOR(dladdr, "GLIBC_2.2.5");
FLOOR(dladdr1, "GLIBC_2.3.3");
FLOOR(dlclose, "GLIBC_2.2.5");
FLOOR(dlerror, "GLIBC_2.2.5");
FLOOR(dlopen, "GLIBC_2.2.5");
FLOOR(dlvsym, "GLIBC_2.2.5");
FLOOR(pthread_create, "GLIBC_2.2.5");
FLOOR(pthread_detach, "GLIBC_2.2.5");
FLOOR(pthread_join, "GLIBC_2.2.5");
FLOOR(pthread_kill, "GLIBC_2.2.5");
FLOOR(pthread_once, "GLIBC_2.2.5");
FLOOR(pthread_setname_np, "GLIBC_2.12");
FLOOR(pthread_sigmask, "GLIBC_2.2.5");
FLOOR(pthread_key_create, "GLIBC_2.2.5");
FLOOR(pthread_setspecific, "GLIBC_2.2.5");
FLOOR(pthread_getspecific, "GLIBC_2.2.5");
FLOOR(pthread_attr_setstacksize, "GLIBC_2.2.5");

#pragma weak dladdr
#pragma weak dladdr1
#pragma weak dlclose
#pragma weak dlerror
#pragma weak dlopen
#pragma weak dlvsym
#pragma weak pthread_create
#pragma weak pthread_detach
#pragma weak pthread_join
#pragma weak pthread_kill
#pragma weak pthread_once
#pragma weak pthread_setname_np
#pragma weak pthread_sigmask
#pragma weak pthread_key_create
#pragma weak pthread_setspecific
#pragma weak pthread_getspecific
#pragma weak pthread_attr_setstacksize

#endif /* __ASSEMBLER__ */
#endif
