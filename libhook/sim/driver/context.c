/*
 * Contexts: created and primary ones, and each thread's stack of them. A process takes spec.context_bytes of the card
 * for each. On the device all contexts of a process are one for the time slices: a process is scheduled, not its
 * contexts.
 */
#include "libhook/sim/driver/array.h"
#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/module.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/stream.h"

static const size_t limits[LIMITS] = {1024 /* stack */, 7 << 20 /* printf */, 8 << 20 /* heap */, 2, 2048, 64};

/* What a limit sets aside of the card, beyond what is in the context from the start: the stack for each thread that the
 * card can hold at once. Taken when it is set, all of it. */
static uint64_t set_aside(int limit, size_t value) {
    int multiprocessors, threads;
    uint64_t each = 1, bytes;
    if (limit > 2 || value <= limits[limit])
        return 0;
    if (limit == 0) {
        cuDeviceGetAttribute(&multiprocessors, 16, 0);
        cuDeviceGetAttribute(&threads, 39, 0);
        each = (uint64_t)multiprocessors * (uint64_t)threads;
    }
    return __builtin_mul_overflow(value - limits[limit], each, &bytes) ? UINT64_MAX : card_room(bytes);
}

/* With driver.lock held. */
static CUresult make(CUdevice device, unsigned int flags, bool primary, struct CUctx_st **out) {
    TRY(card_change(device, spec()->context_bytes, true, 1));
    struct CUctx_st *ctx = slab_take(SLAB_CONTEXT, sizeof(*ctx));
    NEED(ctx, CUDA_ERROR_OUT_OF_MEMORY);
    ctx->device = device;
    ctx->flags = flags | CU_CTX_MAP_HOST;
    ctx->primary = primary;
    ctx->api_version = 13000;
    ctx->id = atomic_fetch_add(&driver.next_id, 1) + 1;
    memcpy(ctx->limit, limits, sizeof(limits));
    ctx->shared_config = 1;
    ctx->legacy = stream_make(ctx, STREAM_LEGACY, 0, 0);
    driver.contexts[device]++;
    *out = ctx;
    return CUDA_SUCCESS;
}

static void end(struct CUctx_st *ctx) {
    queue_wait_context(ctx);
    memory_end_context(ctx);
    array_end_context(ctx);
    module_end_context(ctx);
    pthread_mutex_lock(&driver.lock);
    while (ctx->streams) {
        struct CUstream_st *stream = ctx->streams;
        pthread_mutex_unlock(&driver.lock);
        capture_abandon(stream);
        pthread_mutex_lock(&driver.lock);
        stream_end(stream);
    }
    queue_end_context(ctx);
    uint64_t bytes = spec()->context_bytes + (ctx->grown ? spec()->growth_bytes : 0);
    for (int limit = 0; limit < LIMITS; limit++)
        bytes += set_aside(limit, ctx->limit[limit]);
    card_change(ctx->device, bytes, false, -1);
    driver.contexts[ctx->device]--;
    slab_give(SLAB_CONTEXT, ctx);
    pthread_mutex_unlock(&driver.lock);
}

void context_forget_all(void) {
    memset(driver.primary, 0, sizeof(driver.primary));
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device) {
    INIT();
    NEED(out && !(flags & ~(unsigned)CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    NEED(thread.depth < STACK, CUDA_ERROR_OUT_OF_MEMORY);
    TRY(capture_guard());
    pthread_mutex_lock(&driver.lock);
    CUresult result = make(device, flags, false, out);
    pthread_mutex_unlock(&driver.lock);
    if (!result)
        thread.stack[thread.depth++] = *out;
    return result;
}

CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device) {
    return cuCtxCreate_v2(out, flags, device);
}

CUresult cuCtxCreate_v3(
    CUcontext *out, CUexecAffinityParam *parameters, int count, unsigned int flags, CUdevice device) {
    NEED(count == 0 && !parameters, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return cuCtxCreate_v2(out, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *parameters, unsigned int flags, CUdevice device) {
    NEED(!parameters, CUDA_ERROR_NOT_SUPPORTED);
    return cuCtxCreate_v2(out, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    INIT();
    NEED(slab_has(SLAB_CONTEXT, ctx) && !ctx->primary, CUDA_ERROR_INVALID_CONTEXT);
    TRY(capture_guard());
    if (thread.depth && thread.stack[thread.depth - 1] == ctx)
        thread.depth--;
    end(ctx);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx) {
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *out, unsigned int flags) {
    struct CUctx_st *ctx;
    NEED(out && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    ctx->references++;
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
    INIT();
    NEED(slab_has(SLAB_CONTEXT, ctx) && !ctx->primary, CUDA_ERROR_INVALID_CONTEXT);
    if (ctx->references > 0) {
        ctx->references--;
        return CUDA_SUCCESS;
    }
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    driver_alive();
    INIT();
    NEED(slab_has(SLAB_CONTEXT, ctx), CUDA_ERROR_INVALID_CONTEXT);
    NEED(thread.depth < STACK, CUDA_ERROR_OUT_OF_MEMORY);
    thread.stack[thread.depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
    INIT();
    NEED(thread.depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    thread.depth--;
    if (ctx)
        *ctx = thread.stack[thread.depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx) {
    return cuCtxPopCurrent_v2(ctx);
}

/* The top of the stack is replaced; NULL takes it off. */
CUresult cuCtxSetCurrent(CUcontext ctx) {
    INIT();
    NEED(!ctx || slab_has(SLAB_CONTEXT, ctx), CUDA_ERROR_INVALID_CONTEXT);
    if (thread.depth > 0)
        thread.depth--;
    if (ctx)
        thread.stack[thread.depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
    driver_alive();
    INIT();
    NEED(ctx, CUDA_ERROR_INVALID_VALUE);
    *ctx = thread.depth ? thread.stack[thread.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    struct CUctx_st *ctx;
    NEED(device, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    *device = ctx->device;
    return CUDA_SUCCESS;
}

/* NULL is the current one. */
static CUresult context_of(CUcontext handle, struct CUctx_st **out) {
    if (!handle)
        return context_current(out);
    INIT();
    NEED(slab_has(SLAB_CONTEXT, handle), CUDA_ERROR_INVALID_CONTEXT);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle) {
    struct CUctx_st *ctx;
    NEED(device, CUDA_ERROR_INVALID_VALUE);
    TRY(context_of(handle, &ctx));
    *device = ctx->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
    struct CUctx_st *ctx;
    TRY(context_of(handle, &ctx));
    TRY(capture_check_context(ctx));
    queue_wait_context(ctx);
    pool_trim_all();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    struct CUctx_st *ctx;
    NEED(flags, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    struct CUctx_st *ctx;
    NEED(!(flags & ~(unsigned)CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    ctx->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id) {
    struct CUctx_st *ctx;
    NEED(id, CUDA_ERROR_INVALID_VALUE);
    TRY(context_of(handle, &ctx));
    *id = ctx->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
    struct CUctx_st *ctx;
    NEED(version, CUDA_ERROR_INVALID_VALUE);
    TRY(context_of(handle, &ctx));
    *version = ctx->api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    struct CUctx_st *ctx;
    NEED(value && limit >= 0, CUDA_ERROR_INVALID_VALUE);
    NEED(limit < 8, CUDA_ERROR_UNSUPPORTED_LIMIT);
    TRY(context_current(&ctx));
    *value = ctx->limit[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct CUctx_st *ctx;
    NEED(limit >= 0, CUDA_ERROR_INVALID_VALUE);
    NEED(limit < 8, CUDA_ERROR_UNSUPPORTED_LIMIT);
    TRY(context_current(&ctx));
    uint64_t wanted = set_aside(limit, value);
    pthread_mutex_lock(&driver.lock);
    uint64_t held = set_aside(limit, ctx->limit[limit]);
    uint64_t bytes = wanted > held ? wanted - held : held - wanted;
    CUresult result = card_change(ctx->device, bytes, wanted > held, 0);
    if (!result)
        ctx->limit[limit] = value;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    struct CUctx_st *ctx;
    NEED(config, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    *config = ctx->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    struct CUctx_st *ctx;
    TRY(context_current(&ctx));
    ctx->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    struct CUctx_st *ctx;
    NEED(config, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    *config = ctx->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    struct CUctx_st *ctx;
    TRY(context_current(&ctx));
    ctx->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    struct CUctx_st *ctx;
    TRY(context_current(&ctx));
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) {
    struct CUctx_st *ctx;
    return context_current(&ctx);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    CUresult result = CUDA_SUCCESS;
    INIT();
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&driver.lock);
    if (!driver.primary[device])
        result = make(device, driver.primary_flags[device], true, &driver.primary[device]);
    if (!result)
        driver.primary[device]->references++;
    *out = driver.primary[device];
    pthread_mutex_unlock(&driver.lock);
    return result;
}

static CUresult release(CUdevice device, bool all) {
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    TRY(capture_guard());
    pthread_mutex_lock(&driver.lock);
    struct CUctx_st *ctx = driver.primary[device];
    bool last = ctx && (all || --ctx->references <= 0);
    if (last)
        driver.primary[device] = NULL;
    pthread_mutex_unlock(&driver.lock);
    if (last)
        end(ctx);
    return ctx || all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return release(device, false);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return release(device, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return release(device, true);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return release(device, true);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    INIT();
    NEED(flags && active, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    struct CUctx_st *ctx = driver.primary[device];
    *active = ctx != NULL;
    *flags = ctx ? ctx->flags : driver.primary_flags[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    INIT();
    NEED(!(flags & ~(unsigned)CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    driver.primary_flags[device] = flags;
    if (driver.primary[device])
        driver.primary[device]->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
