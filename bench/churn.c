/*
 * churn.c - an always-busy program whose memory comes and goes: one thread launches kernels of KERNEL_US without end, another
 * takes BLOCK_MIB of device memory every 10 ms and gives it back 5 ms later. HELD_MIB are held throughout. Until SIGTERM.
 * Refused memory is asked for again later; any other error ends the program. With REST_US it is not busy: it waits for the
 * end of each kernel, and then rests for so long.
 */
#include <pthread.h>

#include "bench/spin.h"

#define HALF_NS 5000000

static size_t block_bytes;

static void *churn(void *unused) {
    (void)unused;
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (;;) {
        CUdeviceptr block;
        CUresult result = cuMemAlloc_v2(&block, block_bytes);
        rest_ns(HALF_NS);
        if (result == CUDA_SUCCESS)
            need(cuMemFree_v2(block), "cuMemFree");
        else if (result != CUDA_ERROR_OUT_OF_MEMORY)
            need(result, "cuMemAlloc");
        rest_ns(HALF_NS);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CUdeviceptr held;
    pthread_t thread;

    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: churn KERNEL_US HELD_MIB BLOCK_MIB [REST_US]\n");
        return 2;
    }
    uint64_t kernel_ns = (uint64_t)atol(argv[1]) * 1000;
    block_bytes = (size_t)atol(argv[3]) << 20;
    start();
    need(cuMemAlloc_v2(&held, (size_t)atol(argv[2]) << 20), "cuMemAlloc");
    if (block_bytes && pthread_create(&thread, NULL, churn, NULL))
        return 1;
    uint64_t gap_ns = argc == 5 ? (uint64_t)atol(argv[4]) * 1000 : 0;
    for (;;) {
        launch(kernel_ns);
        if (gap_ns) {
            need(cuStreamSynchronize(stream), "cuStreamSynchronize");
            rest_ns(gap_ns);
        }
    }
}
