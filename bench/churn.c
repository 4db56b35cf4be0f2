/*
 * churn.c - an always-busy program whose memory comes and goes: one thread launches kernels of KERNEL_US without end, another
 * takes BLOCK_MIB of device memory every 10 ms and gives it back 5 ms later. HELD_MIB are held throughout. Until SIGTERM.
 * Refused memory is counted and asked for again later; any other error ends the program. Linked against libcuda.so.1.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "libhook/driver/cuda_abi.h"

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0)\n{\n    ret;\n}\n";
static CUcontext context;
static size_t block_bytes;

static void need(CUresult result, const char *what) {
    if (result) {
        fprintf(stderr, "%s: %d\n", what, (int)result);
        exit(1);
    }
}

static void rest(void) {
    struct timespec away = {.tv_nsec = 5000000};
    nanosleep(&away, NULL);
}

static void *churn(void *unused) {
    (void)unused;
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (;;) {
        CUdeviceptr block;
        CUresult result = cuMemAlloc_v2(&block, block_bytes);
        rest();
        if (result == CUDA_SUCCESS)
            need(cuMemFree_v2(block), "cuMemFree");
        else if (result != CUDA_ERROR_OUT_OF_MEMORY)
            need(result, "cuMemAlloc");
        rest();
    }
    return NULL;
}

int main(int argc, char **argv) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr held;
    CUstream stream;
    pthread_t thread;

    if (argc != 4) {
        fprintf(stderr, "usage: churn KERNEL_US HELD_MIB BLOCK_MIB\n");
        return 2;
    }
    uint64_t kernel_ns = (uint64_t)atol(argv[1]) * 1000;
    void *arguments[] = {&kernel_ns};
    block_bytes = (size_t)atol(argv[3]) << 20;
    need(cuInit(0), "cuInit");
    need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "gemini_spin"), "cuModuleGetFunction");
    need(cuStreamCreate(&stream, 0), "cuStreamCreate");
    need(cuMemAlloc_v2(&held, (size_t)atol(argv[2]) << 20), "cuMemAlloc");
    if (block_bytes && pthread_create(&thread, NULL, churn, NULL))
        return 1;
    for (;;)
        need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
}
