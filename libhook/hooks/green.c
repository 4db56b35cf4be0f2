/*
 * green.c - green contexts: parts of a device's SMs. Each holds the primary context of its device, so making the first may
 * make that one, and ending the last may end it: its memory is counted as if it had been retained (footprint.h).
 */
#include <stddef.h>

#include "libhook/driver/real.h"
#include "libhook/hooks/footprint.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/watch.h"

/* The handle of the device's primary context, which is active. */
static CUcontext primary_of(CUdevice device) {
    CUcontext context = NULL;
    if (real.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS)
        real.cuDevicePrimaryCtxRelease_v2(device);
    return context;
}

CUresult cuGreenCtxCreate(CUgreenCtx *ctx, CUdevResourceDesc desc, CUdevice device, unsigned int flags) {
    struct footprint footprint;
    if (ctx == NULL || !agent_is_tenant())
        return real.cuGreenCtxCreate(ctx, desc, device, flags);
    if (footprint_making(&footprint, device, true) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuGreenCtxCreate(ctx, desc, device, flags);
    CUresult settled = footprint_made(&footprint, result, result == CUDA_SUCCESS ? primary_of(device) : NULL);
    if (result == CUDA_SUCCESS && settled != CUDA_SUCCESS) {
        real.cuGreenCtxDestroy(*ctx);
        *ctx = NULL;
    }
    context_changed();
    return settled;
}

/* The context that a green one is to other calls, and its device. */
static CUcontext context_of(CUgreenCtx ctx, CUdevice *device) {
    CUcontext context = NULL, popped;
    *device = -1;
    if (real.cuCtxFromGreenCtx(&context, ctx) != CUDA_SUCCESS || real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return NULL;
    real.cuCtxGetDevice(device);
    real.cuCtxPopCurrent_v2(&popped);
    return context;
}

CUresult cuGreenCtxDestroy(CUgreenCtx ctx) {
    CUdevice device;
    unsigned int flags;
    int active = 1;
    if (!agent_is_tenant()) {
        CUresult result = real.cuGreenCtxDestroy(ctx);
        context_ended();
        return result;
    }
    CUcontext context = context_of(ctx, &device);
    footprint_ending();
    if (!watch_contexts_hold()) {
        footprint_ended(NULL, false);
        return GATE_REFUSAL;
    }
    CUcontext primary = footprint_primary(device);
    CUresult result = real.cuGreenCtxDestroy(ctx);
    bool gone = result == CUDA_SUCCESS && context != NULL &&
                real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && !active;
    /* The context of its own, where it has one, is no more; the primary one may live on. */
    watch_contexts_release(result == CUDA_SUCCESS && (gone || context != primary) ? context : NULL);
    footprint_ended(primary, gone);
    context_ended();
    return result;
}
