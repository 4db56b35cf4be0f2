/*
 * starved.c - a CUDA program that cannot have something: starved WHAT [ROUNDS]
 *
 *     clone eventfd socket     refused by a seccomp filter, as pids.max and strict profiles do
 *     nproc                    no process more for this user, who is not root
 *     files | file             no descriptor is left; but one
 *     memory                   no address space is left, from its first launch on
 *     nothing                  has all
 *
 * Each round prints "CONTEXT ALLOC LAUNCH MILLISECONDS" (CUresults; -1: not tried) and waits for a line on stdin, after
 * which descriptors are there again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/driver/cuda_abi.h"

static const char PTX[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry gemini_spin(.param .u64 nanoseconds) { ret; }\n";
static int opened[4096], files;

/* These two system calls answer `error`; all others are as ever. */
static void forbid(int number, int other, int error) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)other, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof *rules, .filter = rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        exit(77);
}

static void limit(int resource, rlim_t value) {
    struct rlimit both = {value, value};
    if (setrlimit(resource, &both))
        exit(77);
}

static void use_up_files(int left) {
    struct rlimit both = {256, 256};
    setrlimit(RLIMIT_NOFILE, &both);
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;)
        opened[files++] = fd;
    while (left-- > 0)
        close(opened[--files]);
}

static void starve(const char *what) {
    if (!strcmp(what, "clone"))
        forbid(SYS_clone, SYS_clone3, EAGAIN);
    else if (!strcmp(what, "eventfd"))
        forbid(SYS_eventfd, SYS_eventfd2, EPERM);
    else if (!strcmp(what, "socket"))
        forbid(SYS_socket, SYS_socket, EPERM);
    else if (!strcmp(what, "nproc")) {
        limit(RLIMIT_NPROC, 0);
        if (setresuid(65534, 65534, 65534))
            exit(77);
    } else if (!strcmp(what, "files"))
        use_up_files(0);
    else if (!strcmp(what, "file"))
        use_up_files(1);
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "nothing";
    char line[16];
    CUcontext context = NULL;
    CUmodule module;
    CUfunction spin;
    CUstream stream;

    if (cuInit(0))
        return 1;
    starve(what);
    do {
        uint64_t begin_ms = now_ms(), ns = 5000000;
        void *parameters[] = {&ns};
        CUdeviceptr pointer;
        int codes[3] = {-1, -1, -1};
        codes[0] = cuDevicePrimaryCtxRetain(&context, 0);
        if (!codes[0]) {
            cuCtxSetCurrent(context);
            codes[1] = cuMemAlloc_v2(&pointer, 64 << 20);
            if (cuModuleLoadData(&module, PTX) || cuModuleGetFunction(&spin, module, "gemini_spin") ||
                cuStreamCreate(&stream, 1))
                return 1;
            if (!strcmp(what, "memory"))
                limit(RLIMIT_AS, 1 << 20);
            codes[2] = cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
            if (!codes[2] && cuStreamSynchronize(stream))
                return 1;
        }
        printf("%d %d %d %llu\n", codes[0], codes[1], codes[2], (unsigned long long)(now_ms() - begin_ms));
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            return 0;
        while (files > 0)
            close(opened[--files]);
    } while (1);
}
