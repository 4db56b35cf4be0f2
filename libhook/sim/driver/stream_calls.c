/* The program's calls about streams. */
#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/event.h"
#include "libhook/sim/driver/event_mark.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/stream.h"

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority) {
    struct CUctx_st *ctx;
    NEED(out && flags <= CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    priority = priority > LEAST_PRIORITY ? LEAST_PRIORITY : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
    pthread_mutex_lock(&driver.lock);
    *out = stream_make(ctx, STREAM_CREATED, flags, priority);
    pthread_mutex_unlock(&driver.lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags) {
    return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    INIT();
    NEED(slab_has(SLAB_STREAM, handle) && handle->kind == STREAM_CREATED, CUDA_ERROR_INVALID_HANDLE);
    capture_abandon(handle);
    pthread_mutex_lock(&driver.lock);
    stream_end(handle); /* what it still holds runs on in its queue */
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) {
    return cuStreamDestroy_v2(handle);
}

static CUresult query(CUstream handle, bool per_thread) {
    struct CUstream_st *stream;
    TRY(stream_of(handle, per_thread, &stream));
    TRY(capture_check_sync(stream));
    return queue_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult synchronize(CUstream handle, bool per_thread) {
    struct CUstream_st *stream;
    TRY(stream_of(handle, per_thread, &stream));
    TRY(capture_check_sync(stream));
    queue_wait_stream(stream);
    pool_trim_all();
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream handle, CUevent event_handle, unsigned int flags, bool per_thread) {
    struct CUstream_st *stream;
    struct CUevent_st *event;
    NEED(flags <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    TRY(event_of(event_handle, &event));
    if (stream_capturing(stream) || capture_event_is_captured(event))
        return capture_wait(stream, event, flags & CU_EVENT_WAIT_EXTERNAL);
    TRY(capture_check_legacy(stream));
    return event_wait(event, stream);
}

static CUresult get_flags(CUstream handle, bool per_thread, unsigned int *flags) {
    struct CUstream_st *stream;
    NEED(flags, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

static CUresult get_priority(CUstream handle, bool per_thread, int *priority) {
    struct CUstream_st *stream;
    NEED(priority, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

static CUresult get_id(CUstream handle, bool per_thread, unsigned long long *id) {
    struct CUstream_st *stream;
    NEED(id, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    *id = stream->id;
    return CUDA_SUCCESS;
}

static CUresult get_ctx(CUstream handle, bool per_thread, CUcontext *ctx, CUgreenCtx *green) {
    struct CUstream_st *stream;
    NEED(ctx, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    *ctx = stream->ctx;
    if (green)
        *green = NULL;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(CUstream handle, bool per_thread, CUstreamAttrID attribute, CUstreamAttrValue *value) {
    struct CUstream_st *stream;
    NEED(value && attribute > 0 && attribute < 20, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    *value = stream->attribute[attribute];
    if (attribute == 8)
        value->priority = stream->priority;
    return CUDA_SUCCESS;
}

static CUresult set_attribute(
    CUstream handle, bool per_thread, CUstreamAttrID attribute, const CUstreamAttrValue *value) {
    struct CUstream_st *stream;
    NEED(value && attribute > 0 && attribute < 20, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    stream->attribute[attribute] = *value;
    return CUDA_SUCCESS;
}

static CUresult copy_attributes(CUstream to_handle, CUstream from_handle, bool per_thread) {
    struct CUstream_st *to, *from;
    TRY(stream_of(to_handle, per_thread, &to));
    TRY(stream_of(from_handle, per_thread, &from));
    memcpy(to->attribute, from->attribute, sizeof(to->attribute));
    return CUDA_SUCCESS;
}

static CUresult attach(CUstream handle, bool per_thread, CUdeviceptr pointer) {
    struct CUstream_st *stream;
    NEED(pointer, CUDA_ERROR_INVALID_VALUE);
    return stream_of(handle, per_thread, &stream); /* managed memory is simply memory here */
}

/* Both flavours of a call, which differ by what stream 0 means. */
#define FLAVOURS(name, parameters, body)                                                                               \
    CUresult name parameters {                                                                                         \
        const bool per_thread = false;                                                                                 \
        return body;                                                                                                   \
    }                                                                                                                  \
    CUresult name##_ptsz parameters {                                                                                  \
        const bool per_thread = true;                                                                                  \
        return body;                                                                                                   \
    }

FLAVOURS(cuStreamQuery, (CUstream stream), query(stream, per_thread))
FLAVOURS(cuStreamSynchronize, (CUstream stream), synchronize(stream, per_thread))
FLAVOURS(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
    wait_event(stream, event, flags, per_thread))
FLAVOURS(cuStreamGetFlags, (CUstream stream, unsigned int *flags), get_flags(stream, per_thread, flags))
FLAVOURS(cuStreamGetPriority, (CUstream stream, int *priority), get_priority(stream, per_thread, priority))
FLAVOURS(cuStreamGetId, (CUstream stream, unsigned long long *id), get_id(stream, per_thread, id))
FLAVOURS(cuStreamGetCtx, (CUstream stream, CUcontext *ctx), get_ctx(stream, per_thread, ctx, NULL))
FLAVOURS(
    cuStreamGetCtx_v2, (CUstream stream, CUcontext *ctx, CUgreenCtx *green), get_ctx(stream, per_thread, ctx, green))
FLAVOURS(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value),
    get_attribute(stream, per_thread, attribute, value))
FLAVOURS(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value),
    set_attribute(stream, per_thread, attribute, value))
FLAVOURS(cuStreamCopyAttributes, (CUstream to, CUstream from), copy_attributes(to, from, per_thread))
FLAVOURS(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned int flags),
    ((void)bytes, (void)flags, attach(stream, per_thread, pointer)))
