/*
 * startup.c - a small CUDA program, and what starts many of it at once.
 *
 *     startup one              one context, one kernel, its end; exit status 0 where all went well
 *     startup many N PRELOAD   N processes of the former: forked, held back until all are there, let go together and
 *                              run by exec under LD_PRELOAD=PRELOAD ("" for none). Prints {"wall_ns": from letting go
 *                              to the end of the last, "cpu_ns": [user and system time of each], "failed": how many}
 *
 * CPU time is what the kernel accounted to the process by its end: loading, the program, every thread of the library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1024, KERNEL_NS = 100 * 1000 };

static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                            ".visible .entry gemini_spin(.param .u64 nanoseconds)\n{ ret; }\n";

#define CALL(symbol, prototype, ...)                                                                                   \
    do {                                                                                                               \
        int(*call) prototype = (int(*) prototype)dlsym(library, #symbol);                                              \
        int code = call ? call(__VA_ARGS__) : -1;                                                                      \
        if (code) {                                                                                                    \
            fprintf(stderr, "startup: %s: %d\n", #symbol, code);                                                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int one(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context, *module, *function;
    uint64_t ns = KERNEL_NS;
    void *parameters[] = {&ns};
    if (!library) {
        fprintf(stderr, "startup: %s\n", dlerror());
        return 1;
    }
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuModuleLoadData, (void **, const void *), &module, image);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "gemini_spin");
    CALL(cuLaunchKernel,
        (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
        function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    CALL(cuCtxSynchronize, (void), );
    return 0;
}

static uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static uint64_t cpu_ns(const struct rusage *usage) {
    uint64_t seconds = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec);
    return seconds * 1000000000u + (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000u;
}

static int many(int count, const char *preload) {
    int ready[2], gate[2], failed = 0;
    char byte;
    if (count < 1 || count > MOST || pipe(ready) || pipe(gate))
        return 2;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0)
            return 2;
        if (child)
            continue;
        close(gate[1]);
        if (write(ready[1], "r", 1) != 1 || read(gate[0], &byte, 1) != 0)
            _exit(2);
        close(ready[0]), close(ready[1]), close(gate[0]);
        if (preload[0])
            setenv("LD_PRELOAD", preload, 1);
        execl("/proc/self/exe", "startup", "one", (char *)NULL);
        _exit(2);
    }
    for (int i = 0; i < count; i++)
        if (read(ready[0], &byte, 1) != 1)
            return 2;
    uint64_t start = now_ns(), end = start;
    close(gate[1]);
    printf("{\"cpu_ns\": [");
    for (int i = 0; i < count; i++) {
        struct rusage usage;
        int status;
        if (wait4(-1, &status, 0, &usage) < 0)
            return 2;
        end = now_ns();
        failed += !WIFEXITED(status) || WEXITSTATUS(status);
        printf("%s%llu", i ? ", " : "", (unsigned long long)cpu_ns(&usage));
    }
    printf("], \"wall_ns\": %llu, \"failed\": %d}\n", (unsigned long long)(end - start), failed);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "one") == 0)
        return one();
    if (argc == 4 && strcmp(argv[1], "many") == 0)
        return many(atoi(argv[2]), argv[3]);
    fprintf(stderr, "startup: one | many N PRELOAD\n");
    return 2;
}
