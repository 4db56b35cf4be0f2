/* driver.c - the driver as the probes see it: opened as any program opens it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include "libhook/probe/probe.h"

/* Runs for as many nanoseconds as its argument says. A simulated card knows it by its name. */
static const char spin_ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                               ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0)\n{\n"
                               "    .reg .pred %p<2>;\n    .reg .b64 %rd<5>;\n"
                               "    ld.param.u64 %rd1, [gemini_spin_param_0];\n    mov.u64 %rd2, %globaltimer;\n"
                               "$spin:\n    mov.u64 %rd3, %globaltimer;\n    sub.u64 %rd4, %rd3, %rd2;\n"
                               "    setp.lt.u64 %p1, %rd4, %rd1;\n    @%p1 bra $spin;\n    ret;\n}\n";

struct driver cu;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, size_t count) {
    qsort(values, count, sizeof(values[0]), order);
    return count == 0 ? 0 : (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static int absent(void) {
    return 500; /* CUDA_ERROR_NOT_FOUND */
}

void open_driver(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    need(handle == NULL ? 500 : 0, "dlopen of libcuda.so.1");
#define FIND(name, arguments)                                                                                          \
    cu.name = (__typeof__(cu.name))dlsym(handle, #name);                                                               \
    if (cu.name == NULL)                                                                                               \
        cu.name = (__typeof__(cu.name))(void *)absent;
    DRIVER(FIND)
#undef FIND
    NEED(cu.cuInit(0));
}

struct card open_card(void) {
    struct card card = {0};
    void *module;
    open_driver();
    NEED(cu.cuDevicePrimaryCtxRetain(&card.context, 0));
    NEED(cu.cuCtxSetCurrent(card.context));
    NEED(cu.cuModuleLoadData(&module, spin_ptx));
    NEED(cu.cuModuleGetFunction(&card.spin, module, "gemini_spin"));
    NEED(cu.cuStreamCreate(&card.stream, NON_BLOCKING));
    NEED(spin(&card, 1000, card.stream)); /* loaded, then */
    NEED(cu.cuStreamSynchronize(card.stream));
    return card;
}

int spin(const struct card *card, uint64_t ns, void *stream) {
    void *arguments[] = {&ns};
    return cu.cuLaunchKernel(card->spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

double elapsed_ns(void *begin, void *end) {
    float ms = 0;
    NEED(cu.cuEventElapsedTime(&ms, begin, end));
    return (double)ms * 1e6;
}
