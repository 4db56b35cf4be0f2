/*
 * fork_holder.c - launches without end, and leaves behind a forked child that sleeps: its copies of every descriptor
 * outlive it. Prints the child's pid, then "ready" when the first kernel was launched. Linked against libcuda.so.1.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libhook/driver/cuda_abi.h"

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0)\n{\n    ret;\n}\n";

static void need(CUresult result, const char *what) {
    if (result) {
        fprintf(stderr, "%s: %d\n", what, (int)result);
        exit(1);
    }
}

int main(void) {
    CUcontext context;
    CUmodule module;
    CUfunction function;
    uint64_t kernel_ns = 100000;
    void *arguments[] = {&kernel_ns};

    need(cuInit(0), "cuInit");
    need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "gemini_spin"), "cuModuleGetFunction");
    need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    printf("%d\nready\n", (int)child);
    fflush(stdout);
    for (;;)
        need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
}
