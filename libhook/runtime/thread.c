/* thread.c - start a thread of ours (thread.h). */
#define _GNU_SOURCE
#include "libhook/runtime/thread.h"

#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES (256 * 1024) /* beside what the program's thread-local variables take of it */
#define SLICE_NS 100000ull

/* Linux 6.12 and later: a thread that asks for short slices is put on a processor sooner when it wakes. It gets no more
 * time for it, needs no privilege, and older kernels ignore the field. Only for this thread. */
static void ask_for_short_slices(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes};

    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) || attributes.policy != SCHED_OTHER)
        return;
    attributes.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void thread_begins(const char *name) {
    prctl(PR_SET_NAME, name);
    ask_for_short_slices();
    prctl(PR_SET_TIMERSLACK, 1); /* this thread's only; its timers are the ends of quotas */
}

/* glibc puts the thread-local variables of all libraries onto each thread's stack, and starts none that is too small. */
static int add_thread_local(struct dl_phdr_info *info, size_t size, void *stack) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            *(size_t *)stack += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
    return 0;
}

int thread_start(void *(*run)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    /* The new thread inherits the mask: no signal of the program may ever be handled on it. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    size_t stack = STACK_BYTES;
    dl_iterate_phdr(add_thread_local, &stack);
    pthread_attr_setstacksize(&attributes, stack);
    int error = -pthread_create(&thread, &attributes, run, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
