/*
 * floor.h - what the simulated driver and the load generator need besides driver/floor.h, which goes before this, to
 * load on glibc 2.28: no older one is met, for the wheels of the Python packages beside them need it too.
 *
 * A program's start file is the C library's own and asks for the newest __libc_start_main; the linker is told to lead
 * it to the wrapper below (libhook/build.py). The old version does the same when it is given no init function, and the
 * start file gives none.
 */
#ifndef GEMINI_SIM_FLOOR_H
#define GEMINI_SIM_FLOOR_H
#ifndef __ASSEMBLER__

FLOOR(dlopen, "GLIBC_2.2.5");
FLOOR(dlsym, "GLIBC_2.2.5");
FLOOR(pthread_mutex_timedlock, "GLIBC_2.2.5");
FLOOR(pthread_rwlock_init, "GLIBC_2.2.5");
FLOOR(pthread_rwlock_rdlock, "GLIBC_2.2.5");
FLOOR(pthread_rwlock_unlock, "GLIBC_2.2.5");
FLOOR(pthread_rwlock_wrlock, "GLIBC_2.2.5");

#ifdef GEMINI_PROGRAM
typedef int floor_main(int, char **, char **);
typedef void floor_hook(void);
int floor_start(
    floor_main *run, int argc, char **argv, floor_hook *init, floor_hook *fini, floor_hook *rtld_fini, void *stack_end);
__asm__(".symver floor_start,__libc_start_main@GLIBC_2.2.5");
__attribute__((weak)) int __wrap___libc_start_main( /* a program may have several sources */
    floor_main *run, int argc, char **argv, floor_hook *init, floor_hook *fini, floor_hook *rtld_fini, void *stack_end);

int __wrap___libc_start_main(floor_main *run, int argc, char **argv, floor_hook *init, floor_hook *fini,
    floor_hook *rtld_fini, void *stack_end) {
    return floor_start(run, argc, argv, init, fini, rtld_fini, stack_end);
}
#endif

#endif /* __ASSEMBLER__ */
#endif
