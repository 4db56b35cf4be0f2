/*
 * plugin.c - a library that plugins.c opens, and that uses the card. It opens the driver itself; with LINKED it is linked
 * against it. AT_LOAD: by what a constructor of it looked up, and it stays on the card until its stdin ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KERNEL_NS = 50 * 1000, LAUNCHES = 40 };

static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                            ".visible .entry gemini_spin(.param .u64 nanoseconds)\n{ ret; }\n";
#define GRID unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned
#define FUNCTIONS(F)                                                                                                   \
    F(cuInit, (unsigned))                                                                                              \
    F(cuDevicePrimaryCtxRetain, (void **, int))                                                                        \
    F(cuCtxSetCurrent, (void *))                                                                                       \
    F(cuMemGetInfo_v2, (size_t *, size_t *))                                                                           \
    F(cuMemAlloc_v2, (uint64_t *, size_t))                                                                             \
    F(cuModuleLoadData, (void **, const void *))                                                                       \
    F(cuModuleGetFunction, (void **, void *, const char *))                                                            \
    F(cuLaunchKernel, (void *, GRID, void *, void **, void **))                                                        \
    F(cuCtxSynchronize, (void))

#ifdef LINKED
#define DECLARE(name, prototype) int name prototype;
FUNCTIONS(DECLARE)
#define USED(name) name
static int open_driver(const char *driver) {
    return driver == NULL;
}
#else
#define DECLARE(name, prototype) static int(*found_##name) prototype;
FUNCTIONS(DECLARE)
#define USED(name) found_##name
static int open_driver(const char *driver) {
    void *handle = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "plugin: %s\n", dlerror());
        return 1;
    }
#define FIND(name, prototype) found_##name = (__typeof__(found_##name))dlsym(handle, #name);
    FUNCTIONS(FIND)
    return found_cuInit == NULL;
}
#endif

#ifdef AT_LOAD
__attribute__((constructor)) static void at_load(void) {
    open_driver("libcuda.so.1");
}
#endif

#define CALL(name, ...)                                                                                                \
    do {                                                                                                               \
        int code = USED(name)(__VA_ARGS__);                                                                            \
        if (code) {                                                                                                    \
            fprintf(stderr, "plugin: %s: %d\n", #name, code);                                                          \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

__attribute__((visibility("default"))) int plugin_work(const char *driver) {
    void *context, *module, *function;
    uint64_t ns = KERNEL_NS, pointer;
    void *parameters[] = {&ns};
    size_t free_bytes, total_bytes;
#ifndef AT_LOAD
    if (open_driver(driver))
        return 1;
#endif
    (void)driver;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuMemAlloc_v2, &pointer, 1 << 20);
    CALL(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    CALL(cuModuleLoadData, &module, image);
    CALL(cuModuleGetFunction, &function, module, "gemini_spin");
    for (int i = 0; i < LAUNCHES; i++)
        CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    CALL(cuCtxSynchronize);
    printf("worked %d\nsees %zu MiB\n", (int)getpid(), total_bytes >> 20);
    fflush(stdout);
#ifdef AT_LOAD
    getchar();
#endif
    return 0;
}
