/* load.c - functions that a program was given and has not launched yet, and loading them (load.h). */
#include "libhook/hooks/load.h"

#include "libhook/core/peek.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"

#define PLACES 4096 /* of handles given; one that lost its place to another loads as it would without us */

/* Handles are addresses of the driver's, so their last bits are free. */
enum kind { FUNCTION = 1, KERNEL = 2 };

static uint64_t given[PLACES]; /* handle and kind; any thread */

static uint64_t *place_of(uint64_t handle) {
    return &given[handle * 0x9E3779B97F4A7C15ull >> 52];
}

static void know(uint64_t handle, enum kind kind) {
    if (handle && !(handle & 3))
        POKE(*place_of(handle), handle | kind);
}

void load_know_functions(const CUfunction *functions, unsigned int count) {
    for (unsigned int i = 0; i < count; i++)
        know((uint64_t)(uintptr_t)functions[i], FUNCTION);
}

void load_know_kernels(const CUkernel *kernels, unsigned int count) {
    for (unsigned int i = 0; i < count; i++)
        know((uint64_t)(uintptr_t)kernels[i], KERNEL);
}

void load_before_launch(CUfunction function) {
    uint64_t handle = (uint64_t)(uintptr_t)function;
    uint64_t *place = place_of(handle), known = PEEK(*place);

    if ((known ^ handle) > KERNEL || known == handle || gate_mode == GATE_INERT)
        return;
    if (__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE) || !real_has(cuFuncLoad))
        return;
    POKE(*place, 0);
    if ((known ^ handle) == FUNCTION)
        real.cuFuncLoad(function);
    else if (real_has(cuKernelGetFunction) && /* of the context that is current, where it will be launched */
             real.cuKernelGetFunction(&function, (CUkernel)function) == CUDA_SUCCESS)
        real.cuFuncLoad(function);
}

void load_forget(void) {
    for (int i = 0; i < PLACES; i++)
        POKE(given[i], 0);
}
