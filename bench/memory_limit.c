/*
 * memory_limit.c - allocates blocks of one kind until the driver refuses, then says how many it got and waits; or times
 * allocate-and-free pairs. Runs as a tenant or without. Kinds: alloc pool vmm array.
 *
 *     memory_limit fill KIND BLOCK_BYTES      says "context", waits for a byte, prints {"blocks": N, "code": C},
 *                                             ends when stdin does
 *     memory_limit time KIND BLOCK_BYTES N    prints {"pair_ns": [...]}, N batches of 20 pairs
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct location {
    int type, id;
};
struct allocation_prop { /* CUmemAllocationProp */
    int type, handle_types;
    struct location location;
    void *win32;
    unsigned char flags[8];
};
struct array_descriptor { /* CUDA_ARRAY_DESCRIPTOR */
    size_t width, height;
    int format;
    unsigned channels;
};
union block {
    uint64_t pointer;
    void *handle;
};

static void *library;

#define CALL(symbol, prototype, ...) ((int(*) prototype)dlsym(library, #symbol))(__VA_ARGS__)

static int take(const char *kind, size_t bytes, union block *out) {
    if (strcmp(kind, "alloc") == 0)
        return CALL(cuMemAlloc_v2, (uint64_t *, size_t), &out->pointer, bytes);
    if (strcmp(kind, "pool") == 0)
        return CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), &out->pointer, bytes, NULL);
    if (strcmp(kind, "vmm") == 0) {
        struct allocation_prop prop = {.type = 1, .location = {.type = 1, .id = 0}};
        return CALL(
            cuMemCreate, (uint64_t *, size_t, const void *, unsigned long long), &out->pointer, bytes, &prop, 0);
    }
    struct array_descriptor descriptor = {.width = 1024, .height = bytes / 4096, .format = 0x20, .channels = 1};
    return CALL(cuArrayCreate_v2, (void **, const void *), &out->handle, &descriptor);
}

static int give(const char *kind, union block block) {
    if (strcmp(kind, "alloc") == 0)
        return CALL(cuMemFree_v2, (uint64_t), block.pointer);
    if (strcmp(kind, "pool") == 0)
        return CALL(cuMemFreeAsync, (uint64_t, void *), block.pointer, NULL);
    if (strcmp(kind, "vmm") == 0)
        return CALL(cuMemRelease, (uint64_t), block.pointer);
    return CALL(cuArrayDestroy, (void *), block.handle);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: memory_limit fill|time alloc|pool|vmm|array BLOCK_BYTES [BATCHES]\n");
        return 2;
    }
    const char *kind = argv[2];
    size_t bytes = strtoull(argv[3], NULL, 10);
    void *context;
    int device, code;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || CALL(cuInit, (unsigned), 0) || CALL(cuDeviceGet, (int *, int), &device, 0) ||
        (code = CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device)) ||
        CALL(cuCtxSetCurrent, (void *), context)) {
        fprintf(stderr, "memory_limit: no context\n");
        return 1;
    }
    union block block;
    if (strcmp(argv[1], "fill") == 0) {
        int blocks = 0;
        char word;
        printf("context\n");
        fflush(stdout);
        if (read(0, &word, 1) != 1)
            return 0;
        while ((code = take(kind, bytes, &block)) == 0)
            blocks++;
        printf("{\"blocks\": %d, \"code\": %d}\n", blocks, code);
        fflush(stdout);
        while (read(0, &word, 1) > 0)
            ;
        return 0;
    }
    int batches = argc > 4 ? atoi(argv[4]) : 100;
    printf("{\"pair_ns\": [");
    for (int i = 0; i < batches; i++) {
        double begin = now_ns();
        for (int j = 0; j < 20; j++)
            if ((code = take(kind, bytes, &block)) || (code = give(kind, block))) {
                fprintf(stderr, "memory_limit: %s: %d\n", kind, code);
                return 1;
            }
        printf("%s%.0f", i ? ", " : "", (now_ns() - begin) / 20);
    }
    printf("]}\n");
    return 0;
}
