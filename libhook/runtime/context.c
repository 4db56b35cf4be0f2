/*
 * context.c - see context.h.
 */
#include "libhook/runtime/context.h"

#include <stddef.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/devices.h"
#include "libhook/runtime/forks.h"

__thread struct context_now context_cached __attribute__((tls_model(TLS_MODEL))) = {.ordinal = -1};
uint32_t context_round = 1;

const struct context_now *context_look_up(void) {
    static int watching;
    forks_watch(&watching, context_ended); /* a child has none of the parent's contexts */
    uint32_t round = __atomic_load_n(&context_round, __ATOMIC_ACQUIRE);
    struct context_now *now = &context_cached;
    CUdevice device = -1;
    now->context = NULL;
    now->ordinal = now->device = -1;
    now->round = 0; /* no context: ask again next time, for a context may come by a way that we do not see */
    if (real.cuCtxGetCurrent(&now->context) == CUDA_SUCCESS && now->context != NULL &&
        real.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        now->ordinal = devices_of_cuda(device);
        now->device = device;
        now->round = round;
    }
    return now;
}

struct context_now context_of_stream(CUstream stream) {
    struct context_now where = *context_current();
    CUcontext context = NULL, popped;
    CUdevice device = -1;
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD || real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
        context == where.context || real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return where;
    if (real.cuCtxGetDevice(&device) == CUDA_SUCCESS)
        where = (struct context_now){.context = context, .ordinal = devices_of_cuda(device), .device = device};
    real.cuCtxPopCurrent_v2(&popped);
    return where;
}

void context_ended(void) {
    if (__atomic_add_fetch(&context_round, 1, __ATOMIC_RELEASE) == 0)
        __atomic_add_fetch(&context_round, 1, __ATOMIC_RELEASE); /* 0 means stale */
    context_changed();
}
