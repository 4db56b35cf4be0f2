/*
 * pauses.c - a program that comes and goes, and now and then stays away: bursts of BURST_US of GPU time in kernels of 100 us,
 * a synchronise and GAP_US of host time after each; after every STRETCH bursts PAUSE_US instead. Until SIGTERM, or for
 * BURSTS bursts, printing when each began (CLOCK_MONOTONIC) and what it took, from before its first launch until the
 * synchronise was done, in nanoseconds.
 * Linked against libcuda.so.1.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "libhook/driver/cuda_abi.h"

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0)\n{\n    ret;\n}\n";

static void need(CUresult result, const char *what) {
    if (result) {
        fprintf(stderr, "%s: %d\n", what, (int)result);
        exit(1);
    }
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void rest(long us) {
    struct timespec away = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&away, NULL);
}

int main(int argc, char **argv) {
    uint64_t kernel_ns = 100000;
    void *arguments[] = {&kernel_ns};
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream;

    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: pauses BURST_US GAP_US STRETCH PAUSE_US [BURSTS]\n");
        return 2;
    }
    long launches = atol(argv[1]) / 100, gap_us = atol(argv[2]), stretch = atol(argv[3]), pause_us = atol(argv[4]);
    long bursts = argc == 6 ? atol(argv[5]) : 0;
    prctl(PR_SET_TIMERSLACK, 1UL);
    need(cuInit(0), "cuInit");
    need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "gemini_spin"), "cuModuleGetFunction");
    need(cuStreamCreate(&stream, 0), "cuStreamCreate");
    for (long burst = 1; !bursts || burst <= bursts; burst++) {
        int64_t start_ns = now_ns();
        for (long i = 0; i < launches; i++)
            need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
        need(cuStreamSynchronize(stream), "cuStreamSynchronize");
        if (bursts)
            printf("%lld %lld\n", (long long)start_ns, (long long)(now_ns() - start_ns));
        rest(burst % stretch ? gap_us : pause_us);
    }
    return 0;
}
