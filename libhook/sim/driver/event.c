#include "libhook/sim/driver/event.h"

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/stream.h"

CUresult event_of(CUevent handle, struct CUevent_st **out) {
    INIT();
    NEED(slab_has(SLAB_EVENT, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

void event_keep_time(uint32_t queue, struct sim_entry *entry) {
    struct CUevent_st *event = (struct CUevent_st *)entry->arg;
    uint64_t index = atomic_load(&entry->index);
    if (!slab_has(SLAB_EVENT, event) || event->queue != queue || event->index != index || event->done_ns)
        return;
    if (atomic_load(&entry->done) & SIM_PENDING)
        sim_commit(&driver.seat, NULL, NULL); /* writes out what another process has left undone */
    event->done_ns = queue_event_ns(queue, index);
}

CUresult event_record(struct CUevent_st *event, struct CUstream_st *stream) {
    uint64_t index;
    NEED(event->ctx == stream->ctx, CUDA_ERROR_INVALID_HANDLE);
    TRY(queue_push(stream, &(struct work){.kind = SIM_EVENT, .arg = (uint64_t)event}, &index));
    event->done_ns = 0;
    event->queue = stream->queue->number;
    event->index = index;
    event->captured = NULL;
    event->recorded = true;
    return CUDA_SUCCESS;
}

CUresult event_wait(struct CUevent_st *event, struct CUstream_st *stream) {
    if (!event->recorded || sim_seen_retired(&driver.seat, event->queue, event->index))
        return CUDA_SUCCESS;
    return queue_push(stream, &(struct work){.kind = SIM_WAIT, .arg = event->queue, .until = event->index}, NULL);
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    struct CUctx_st *ctx;
    NEED(event && flags < 8, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    struct CUevent_st *made = slab_take(SLAB_EVENT, sizeof(*made));
    NEED(made, CUDA_ERROR_OUT_OF_MEMORY);
    made->ctx = ctx;
    made->flags = flags;
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
    struct CUevent_st *event;
    TRY(event_of(handle, &event));
    capture_free_tips(&event->tips);
    slab_give(SLAB_EVENT, event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
    return cuEventDestroy_v2(handle);
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned int flags, bool per_thread) {
    struct CUevent_st *event;
    struct CUstream_st *stream;
    TRY(event_of(handle, &event));
    NEED(flags <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(stream_handle, per_thread, &stream));
    if (stream_capturing(stream))
        return capture_record(stream, event, flags & CU_EVENT_RECORD_EXTERNAL);
    NEED(!flags, CUDA_ERROR_ILLEGAL_STATE);
    TRY(capture_check_legacy(stream));
    return event_record(event, stream);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return record(event, stream, 0, false);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return record(event, stream, 0, true);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, flags, false);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, flags, true);
}

CUresult cuEventQuery(CUevent handle) {
    struct CUevent_st *event;
    TRY(event_of(handle, &event));
    TRY(capture_guard());
    TRY(capture_check_event(event));
    if (!event->recorded || event->done_ns)
        return CUDA_SUCCESS;
    return queue_entry_done(event->queue, event->index) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    struct CUevent_st *event;
    TRY(event_of(handle, &event));
    TRY(capture_guard());
    TRY(capture_check_event(event));
    if (event->recorded && !event->done_ns)
        queue_wait_entry(event->queue, event->index);
    pool_trim_all();
    return CUDA_SUCCESS;
}

/* When did it happen? */
static CUresult time_of(struct CUevent_st *event, uint64_t *ns) {
    NEED(event->recorded && !(event->flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    TRY(capture_check_event(event));
    if (!event->done_ns) {
        NEED(queue_entry_done(event->queue, event->index), CUDA_ERROR_NOT_READY);
        event->done_ns = queue_event_ns(event->queue, event->index);
        if (!event->done_ns) {
            sim_commit(&driver.seat, NULL, NULL);
            event->done_ns = queue_event_ns(event->queue, event->index);
        }
    }
    *ns = event->done_ns;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle, CUevent end_handle) {
    struct CUevent_st *start, *end;
    uint64_t start_ns, end_ns;
    NEED(milliseconds, CUDA_ERROR_INVALID_VALUE);
    TRY(event_of(start_handle, &start));
    TRY(event_of(end_handle, &end));
    NEED(start->ctx == end->ctx, CUDA_ERROR_INVALID_HANDLE);
    TRY(time_of(start, &start_ns));
    TRY(time_of(end, &end_ns));
    *milliseconds = (float)((double)(int64_t)(end_ns - start_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
