/*
 * Green contexts: parts of a device's SMs. They can be split and made; here all run on the one compute engine, in the
 * primary context of the device, which each of them holds.
 */
#include "libhook/sim/driver/driver.h"

enum { LEAST_SMS = 8 };

struct CUdevResourceDesc_st {
    struct slab_head head;
    CUdevResource sm;
};

struct CUgreenCtx_st {
    struct slab_head head;
    CUdevice device;
    CUcontext context;
    CUdevResource sm;
};

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
    int count;
    INIT();
    NEED(resource && type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_VALUE);
    TRY(cuDeviceGetAttribute(&count, 16 /* multiprocessors */, device));
    *resource = (CUdevResource){.type = type, .sm = {(unsigned int)count}};
    return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input,
    CUdevResource *remaining, unsigned int flags, unsigned int least) {
    INIT();
    NEED(groups && input && input->type == CU_DEV_RESOURCE_TYPE_SM && flags <= 3, CUDA_ERROR_INVALID_VALUE);
    unsigned int each = least > LEAST_SMS ? (least + LEAST_SMS - 1) / LEAST_SMS * LEAST_SMS : LEAST_SMS;
    NEED(each <= input->sm.smCount, CUDA_ERROR_INVALID_VALUE);
    unsigned int most = input->sm.smCount / each;
    unsigned int count = result && *groups < most ? *groups : most;
    for (unsigned int i = 0; result && i < count; i++)
        result[i] = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM, .sm = {each}};
    if (remaining)
        *remaining = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM, .sm = {input->sm.smCount - count * each}};
    *groups = count;
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources, unsigned int count) {
    INIT();
    NEED(desc && resources && count == 1 && resources->type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_VALUE);
    *desc = slab_take(SLAB_RESOURCES, sizeof(**desc));
    NEED(*desc, CUDA_ERROR_OUT_OF_MEMORY);
    (*desc)->sm = *resources;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device, unsigned int flags) {
    CUcontext context;
    INIT();
    NEED(out && slab_has(SLAB_RESOURCES, desc) && flags == CU_GREEN_CTX_DEFAULT_STREAM, CUDA_ERROR_INVALID_VALUE);
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    struct CUgreenCtx_st *green = slab_take(SLAB_GREEN, sizeof(*green));
    if (!green) {
        cuDevicePrimaryCtxRelease_v2(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    green->device = device;
    green->context = context;
    green->sm = desc->sm;
    *out = green;
    return CUDA_SUCCESS;
}

static CUresult check(CUgreenCtx ctx) {
    INIT();
    NEED(slab_has(SLAB_GREEN, ctx), CUDA_ERROR_INVALID_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx ctx) {
    TRY(check(ctx));
    CUdevice device = ctx->device;
    slab_give(SLAB_GREEN, ctx);
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx ctx) {
    TRY(check(ctx));
    NEED(context, CUDA_ERROR_INVALID_VALUE);
    *context = ctx->context;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx ctx, CUdevResource *resource, CUdevResourceType type) {
    TRY(check(ctx));
    NEED(resource && type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_VALUE);
    *resource = ctx->sm;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx ctx, unsigned int flags, int priority) {
    CUcontext popped;
    TRY(check(ctx));
    NEED(flags == CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    TRY(cuCtxPushCurrent_v2(ctx->context));
    CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
    cuCtxPopCurrent_v2(&popped);
    return result;
}
