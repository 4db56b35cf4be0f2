/* load.c - which functions were seen, and loading the others (load.h). */
#include "libhook/hooks/load.h"

#include <string.h>

#include "libhook/core/peek.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"

#define PLACES 4096 /* of functions seen; one that lost its place is asked for again, which costs a call */

static uint64_t seen[PLACES]; /* any thread */

static uint64_t *place_of(CUfunction function) {
    return &seen[(uint64_t)(uintptr_t)function * 0x9E3779B97F4A7C15ull >> 52];
}

void load_before_launch(CUfunction function) {
    uint64_t *place = place_of(function);
    CUfunction of_kernel;

    if (PEEK(*place) == (uint64_t)(uintptr_t)function || !function || gate_mode == GATE_INERT)
        return;
    if (__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE) || !real_has(cuFuncLoad))
        return;
    /* The handle may be a kernel of a library, of which the current context has a function. */
    if (real.cuFuncLoad(function) != CUDA_SUCCESS && real_has(cuKernelGetFunction) &&
        real.cuKernelGetFunction(&of_kernel, (CUkernel)function) == CUDA_SUCCESS)
        real.cuFuncLoad(of_kernel);
    POKE(*place, (uint64_t)(uintptr_t)function);
}

void load_forget(void) {
    for (int i = 0; i < PLACES; i++)
        POKE(seen[i], 0);
}
