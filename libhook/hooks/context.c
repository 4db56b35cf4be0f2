/*
 * context.c - the calls that change which context is current, and the cached answer of context.h.
 *
 * Every wrapper calls the driver first and keeps its result; a failed call too makes the cached answer stale, which
 * costs one look-up and cannot be wrong.
 */
#include "libhook/hooks/context.h"

#include "libhook/driver/real.h"

__thread struct context_now context_cached __attribute__((tls_model("initial-exec"))) = {.ordinal = -1};
uint32_t context_round = 1;

const struct context_now *context_look_up(void) {
    uint32_t round = __atomic_load_n(&context_round, __ATOMIC_ACQUIRE);
    struct context_now *now = &context_cached;
    CUdevice device = -1;
    now->context = NULL;
    now->ordinal = -1;
    now->round = 0; /* no context: ask again next time, for a context may come by a way that we do not see */
    if (real.cuCtxGetCurrent(&now->context) == CUDA_SUCCESS && now->context != NULL &&
        real.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        now->ordinal = device;
        now->round = round;
    }
    return now;
}

void context_ended(void) {
    if (__atomic_add_fetch(&context_round, 1, __ATOMIC_RELEASE) == 0)
        __atomic_add_fetch(&context_round, 1, __ATOMIC_RELEASE); /* 0 means stale */
    context_changed();
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device) {
    CUresult result = real.cuCtxCreate(ctx, flags, device);
    context_changed();
    return result;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device) {
    CUresult result = real.cuCtxCreate_v2(ctx, flags, device);
    context_changed();
    return result;
}

CUresult cuCtxCreate_v3(
    CUcontext *ctx, CUexecAffinityParam *params_array, int num_params, unsigned int flags, CUdevice device) {
    CUresult result = real.cuCtxCreate_v3(ctx, params_array, num_params, flags, device);
    context_changed();
    return result;
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *ctx_create_params, unsigned int flags, CUdevice device) {
    CUresult result = real.cuCtxCreate_v4(ctx, ctx_create_params, flags, device);
    context_changed();
    return result;
}

CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags) {
    CUresult result = real.cuCtxAttach(ctx, flags);
    context_changed();
    return result;
}

CUresult cuCtxDetach(CUcontext ctx) {
    CUresult result = real.cuCtxDetach(ctx);
    context_ended();
    return result;
}

CUresult cuCtxDestroy(CUcontext ctx) {
    CUresult result = real.cuCtxDestroy(ctx);
    context_ended();
    return result;
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    CUresult result = real.cuCtxDestroy_v2(ctx);
    context_ended();
    return result;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
    CUresult result = real.cuCtxSetCurrent(ctx);
    context_changed();
    return result;
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
    CUresult result = real.cuCtxPushCurrent(ctx);
    context_changed();
    return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    CUresult result = real.cuCtxPushCurrent_v2(ctx);
    context_changed();
    return result;
}

CUresult cuCtxPopCurrent(CUcontext *ctx) {
    CUresult result = real.cuCtxPopCurrent(ctx);
    context_changed();
    return result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
    CUresult result = real.cuCtxPopCurrent_v2(ctx);
    context_changed();
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device) {
    return real.cuDevicePrimaryCtxRetain(ctx, device);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    CUresult result = real.cuDevicePrimaryCtxRelease(device);
    context_ended();
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult result = real.cuDevicePrimaryCtxRelease_v2(device);
    context_ended();
    return result;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    CUresult result = real.cuDevicePrimaryCtxReset(device);
    context_ended();
    return result;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    CUresult result = real.cuDevicePrimaryCtxReset_v2(device);
    context_ended();
    return result;
}
