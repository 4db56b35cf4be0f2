/*
 * context.c - the calls that change which context is current, and those that make and end contexts.
 *
 * Every wrapper keeps the driver's result; a failed call too makes the cached answer (runtime/context.h) stale, which
 * costs one look-up and cannot be wrong. Making and ending contexts is where their memory is counted (footprint.h).
 */
#include "libhook/runtime/context.h"

#include <stdbool.h>
#include <stddef.h>

#include "libhook/driver/real.h"
#include "libhook/hooks/footprint.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/devices.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/watch.h"

/* The end of each cuCtxCreate. A context that the tenant has no room for is taken back. */
static CUresult created(struct footprint *footprint, CUresult result, CUcontext *ctx) {
    CUresult settled = footprint_made(footprint, result, result == CUDA_SUCCESS ? *ctx : NULL);
    if (result == CUDA_SUCCESS && settled != CUDA_SUCCESS) {
        real.cuCtxDestroy_v2(*ctx);
        *ctx = NULL;
    }
    context_changed();
    return settled;
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device) {
    struct footprint footprint;
    if (footprint_making(&footprint, device, false) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return created(&footprint, real.cuCtxCreate(ctx, flags, device), ctx);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device) {
    struct footprint footprint;
    if (footprint_making(&footprint, device, false) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return created(&footprint, real.cuCtxCreate_v2(ctx, flags, device), ctx);
}

CUresult cuCtxCreate_v3(
    CUcontext *ctx, CUexecAffinityParam *params_array, int num_params, unsigned int flags, CUdevice device) {
    struct footprint footprint;
    if (footprint_making(&footprint, device, false) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return created(&footprint, real.cuCtxCreate_v3(ctx, params_array, num_params, flags, device), ctx);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *ctx_create_params, unsigned int flags, CUdevice device) {
    struct footprint footprint;
    if (footprint_making(&footprint, device, false) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return created(&footprint, real.cuCtxCreate_v4(ctx, ctx_create_params, flags, device), ctx);
}

CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags) {
    CUresult result = real.cuCtxAttach(ctx, flags);
    context_changed();
    return result;
}

/* Around the driver's call: our own thread leaves the context alone, and learns when its work is no more. False: refused. */
static bool ending(bool *counted) {
    *counted = agent_is_tenant();
    if (!*counted)
        return true;
    footprint_ending();
    if (watch_contexts_hold())
        return true;
    footprint_ended(NULL, false);
    return false;
}

static void ended(bool counted, CUcontext ctx, bool gone) {
    if (counted) {
        watch_contexts_release(gone ? ctx : NULL);
        footprint_ended(ctx, gone);
    }
    context_ended();
}

CUresult cuCtxDetach(CUcontext ctx) {
    unsigned int version;
    bool counted;
    if (!ending(&counted))
        return GATE_REFUSAL;
    CUresult result = real.cuCtxDetach(ctx);
    /* it counts its users; the last one ends it */
    ended(counted, ctx, counted && result == CUDA_SUCCESS && real.cuCtxGetApiVersion(ctx, &version) != CUDA_SUCCESS);
    return result;
}

static CUresult destroy(CUcontext ctx, __typeof__(cuCtxDestroy_v2) *function) {
    bool counted;
    if (!ending(&counted))
        return GATE_REFUSAL;
    CUresult result = function(ctx);
    ended(counted, ctx, result == CUDA_SUCCESS);
    return result;
}

CUresult cuCtxDestroy(CUcontext ctx) {
    return destroy(ctx, real.cuCtxDestroy);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    return destroy(ctx, real.cuCtxDestroy_v2);
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
    struct footprint footprint;
    if (ctx == NULL || !agent_is_tenant())
        return real.cuDevicePrimaryCtxRetain(ctx, device);
    if (footprint_making(&footprint, device, true) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuDevicePrimaryCtxRetain(ctx, device);
    CUresult settled = footprint_made(&footprint, result, result == CUDA_SUCCESS ? *ctx : NULL);
    if (result == CUDA_SUCCESS && settled != CUDA_SUCCESS) {
        real.cuDevicePrimaryCtxRelease_v2(device);
        *ctx = NULL;
    }
    return settled;
}

/* Release and reset. `always`: the context ends whoever else holds it. */
static CUresult release(CUdevice device, __typeof__(cuDevicePrimaryCtxRelease_v2) *function, bool always) {
    unsigned int flags;
    int active = 0;
    bool counted;
    if (!ending(&counted))
        return GATE_REFUSAL;
    CUcontext primary = counted ? footprint_primary(device) : NULL;
    CUresult result = function(device);
    bool gone = counted && result == CUDA_SUCCESS &&
                (always || (real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && !active));
    ended(counted, primary, gone);
    memory_synchronized();
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return release(device, real.cuDevicePrimaryCtxRelease, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return release(device, real.cuDevicePrimaryCtxRelease_v2, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return release(device, real.cuDevicePrimaryCtxReset, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return release(device, real.cuDevicePrimaryCtxReset_v2, true);
}
