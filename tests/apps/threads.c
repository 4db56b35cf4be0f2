/*
 * threads.c - eight threads take and give memory of every family for some time, near the tenant's limit; then all of it
 * is given back. Prints a line when it has its context and waits for one before it begins; then how often each was
 * refused and how often a call that succeeded changed errno.
 *
 *     threads MILLISECONDS MIB_PER_THREAD
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "libhook/driver/cuda_abi.h"

enum { THREADS = 8, SLOTS = 16, KINDS = 4, MARK = 4711 };

static CUcontext context;
static CUdevice device;
static long milliseconds, most_mib;
static unsigned long taken, refused, changed, wrong;

struct slot {
    int kind; /* 0: empty, else kind + 1 */
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    CUarray array;
};

static CUresult take(struct slot *slot, int kind, size_t bytes) {
    const CUmemAllocationProp prop = {.type = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1024, .Height = bytes / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    slot->kind = kind + 1;
    switch (kind) {
    case 0: return cuMemAlloc_v2(&slot->pointer, bytes);
    case 1: return cuMemAllocAsync(&slot->pointer, bytes, NULL);
    case 2: return cuMemCreate(&slot->handle, (bytes + (2 << 20) - 1) >> 21 << 21, &prop, 0);
    default: return cuArrayCreate_v2(&slot->array, &flat);
    }
}

static void give(struct slot *slot) {
    CUresult result;
    switch (slot->kind) {
    case 0: return;
    case 1: result = cuMemFree_v2(slot->pointer); break;
    case 2: result = cuMemFreeAsync(slot->pointer, NULL); break;
    case 3: result = cuMemRelease(slot->handle); break;
    default: result = cuArrayDestroy(slot->array);
    }
    if (result != CUDA_SUCCESS)
        __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    slot->kind = 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void *work(void *seed_of) {
    unsigned int seed = (unsigned int)(size_t)seed_of;
    struct slot slots[SLOTS] = {0};
    double end = now() + (double)milliseconds;
    cuCtxSetCurrent(context);
    while (now() < end) {
        struct slot *slot = &slots[rand_r(&seed) % SLOTS];
        give(slot);
        size_t bytes = (size_t)(1 + rand_r(&seed) % (most_mib * 64)) << 14;
        errno = MARK;
        CUresult result = take(slot, rand_r(&seed) % KINDS, bytes);
        if (result == CUDA_SUCCESS && errno != MARK)
            __atomic_add_fetch(&changed, 1, __ATOMIC_RELAXED);
        if (result != CUDA_SUCCESS)
            slot->kind = 0;
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
        else if (result != CUDA_SUCCESS)
            __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        else
            __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
        if (rand_r(&seed) % 16 == 0)
            cuCtxSynchronize();
    }
    for (int i = 0; i < SLOTS; i++)
        give(&slots[i]);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread[THREADS];
    size_t free_bytes, total;
    milliseconds = argc > 1 ? atol(argv[1]) : 300;
    most_mib = argc > 2 ? atol(argv[2]) : 16;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
        return 1;
    puts("ready");
    fflush(stdout);
    getchar();
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, work, (void *)(i + 1));
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    cuCtxSynchronize();
    cuMemGetInfo_v2(&free_bytes, &total);
    printf("%lu %lu %lu %lu %zu\n", taken, refused, changed, wrong, total - free_bytes);
    fflush(stdout);
    getchar();
    return 0;
}
