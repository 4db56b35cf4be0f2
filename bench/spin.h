/*
 * spin.h - what the small programs of this folder have in common: a context, one stream, and gemini_spin, the kernel that
 * runs for as long as it is told (on a simulated card; a real one ends it at once). Linked against libcuda.so.1.
 */
#ifndef GEMINI_BENCH_SPIN_H
#define GEMINI_BENCH_SPIN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "libhook/driver/cuda_abi.h"

static CUcontext context;
static CUfunction function;
static CUstream stream;

/* Ends the program with one line where it was no success. */
static inline void need(CUresult result, const char *what) {
    if (result) {
        fprintf(stderr, "%s: %d\n", what, (int)result);
        exit(1);
    }
}

/* CLOCK_MONOTONIC. */
static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void rest_ns(uint64_t ns) {
    struct timespec away = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    nanosleep(&away, NULL);
}

/* Makes the three above, on the first card. */
static inline void start(void) {
    static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                              ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0)\n{\n    ret;\n}\n";
    CUmodule module;

    need(cuInit(0), "cuInit");
    need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "gemini_spin"), "cuModuleGetFunction");
    need(cuStreamCreate(&stream, 0), "cuStreamCreate");
}

static inline void launch(uint64_t kernel_ns) {
    void *arguments[] = {&kernel_ns};
    need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
}

#endif
