/*
 * floor.h - the oldest C library that the preload library loads on: glibc 2.17 (2012). The build puts this file before
 * every source of it.
 *
 * Newer C libraries moved libdl and libpthread into libc.so.6, and gave the functions a new version with it. Linked
 * plainly, our library would ask for that version, and a process on an older system would not start at all, whether it
 * touches CUDA or not. So versions.h asks for the old versions by name: new C libraries have them too.
 * tests/libhook/hooks/test_guest.py checks the list against the library.
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

#include "versions.h"

#endif /* __ASSEMBLER__ */
#endif
