/* grid.c - the multiprocessors of the cards (grid.h). */
#include "libhook/hooks/grid.h"

#include "libhook/core/peek.h"
#include "libhook/core/wire.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/context.h"

enum { MULTIPROCESSORS = 16 /* of cuDeviceGetAttribute */, MOST_RESIDENT = 32 /* blocks of a multiprocessor */ };

/* Of the current context's device; 0: it does not say. */
static uint64_t multiprocessors(void) {
    static int known[WIRE_MAX_DEVICES]; /* any thread */
    int ordinal = context_current()->ordinal, count = 0;
    CUdevice device;

    if (ordinal < 0 || ordinal >= WIRE_MAX_DEVICES)
        return 0;
    if (PEEK(known[ordinal]))
        return (uint64_t)PEEK(known[ordinal]);
    if (!real_has(cuDeviceGetAttribute) || !real_has(cuCtxGetDevice) || real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        real.cuDeviceGetAttribute(&count, MULTIPROCESSORS, device) != CUDA_SUCCESS || count <= 0)
        return 0;
    POKE(known[ordinal], count);
    return (uint64_t)count;
}

bool grid_is_fixed(uint64_t blocks) {
    uint64_t count = multiprocessors();

    return count && blocks && blocks % count == 0 && blocks <= count * MOST_RESIDENT;
}
