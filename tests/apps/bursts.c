/*
 * bursts.c - BURSTS bursts of LAUNCHES kernels of KERNEL_US, a synchronise and GAP_US of host time after each; one more
 * kernel and a context-wide synchronise at the end. Linked against libcuda.so.1.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

int main(int argc, char **argv) {
    int bursts = argc > 1 ? atoi(argv[1]) : 10, launches = argc > 2 ? atoi(argv[2]) : 10;
    uint64_t kernel_ns = (argc > 3 ? (uint64_t)atoi(argv[3]) : 100) * 1000;
    useconds_t gap_us = argc > 4 ? (useconds_t)atoi(argv[4]) : 5000;
    void *arguments[] = {&kernel_ns};
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream;

    need(cuInit(0), "cuInit");
    need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "gemini_spin"), "cuModuleGetFunction");
    need(cuStreamCreate(&stream, 0), "cuStreamCreate");
    for (int burst = 0; burst < bursts; burst++) {
        for (int i = 0; i < launches; i++)
            need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
        need(cuStreamSynchronize(stream), "cuStreamSynchronize");
        usleep(gap_us);
    }
    need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
    need(cuCtxSynchronize(), "cuCtxSynchronize");
    return 0;
}
