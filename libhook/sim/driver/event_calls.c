/* The program's calls about events. */
#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/event.h"
#include "libhook/sim/driver/event_mark.h"
#include "libhook/sim/driver/event_shared.h"
#include "libhook/sim/driver/op.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/stream.h"
#include "libhook/sim/driver/tips.h"

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    struct CUctx_st *ctx;
    NEED(event && flags < 8, CUDA_ERROR_INVALID_VALUE);
    NEED(!(flags & CU_EVENT_INTERPROCESS) || flags & CU_EVENT_DISABLE_TIMING, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    struct CUevent_st *made = slab_take(SLAB_EVENT, sizeof(*made));
    NEED(made, CUDA_ERROR_OUT_OF_MEMORY);
    made->ctx = ctx;
    made->flags = flags;
    if (flags & CU_EVENT_INTERPROCESS && event_share(made)) {
        slab_give(SLAB_EVENT, made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
    struct CUevent_st *event;
    TRY(event_of(handle, &event));
    tips_free(&event->tips);
    event_unshare(event);
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
    if (event_foreign(event))
        return event_foreign_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    uint64_t mark = atomic_load(&event->mark);
    if (!event->recorded || event_mark_kept_ns(event, mark))
        return CUDA_SUCCESS;
    return queue_entry_done(event_mark_queue(mark), event_mark_index(mark)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    struct CUevent_st *event;
    TRY(event_of(handle, &event));
    TRY(capture_guard());
    TRY(capture_check_event(event));
    if (event_foreign(event))
        event_foreign_synchronize(event);
    uint64_t mark = atomic_load(&event->mark);
    if (event->recorded && !event_foreign(event) && !event_mark_kept_ns(event, mark))
        queue_wait_entry(event_mark_queue(mark), event_mark_index(mark));
    pool_trim_all();
    return CUDA_SUCCESS;
}

/* When did it happen? */
static CUresult time_of(struct CUevent_st *event, uint64_t *ns) {
    NEED(event->recorded && !(event->flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    TRY(capture_check_event(event));
    uint64_t mark = atomic_load(&event->mark);
    *ns = event_mark_kept_ns(event, mark);
    if (*ns)
        return CUDA_SUCCESS;
    NEED(queue_entry_done(event_mark_queue(mark), event_mark_index(mark)), CUDA_ERROR_NOT_READY);
    *ns = queue_event_ns(event_mark_queue(mark), event_mark_index(mark));
    if (!*ns) {
        sim_commit(&driver.seat, NULL, NULL);
        *ns = queue_event_ns(event_mark_queue(mark), event_mark_index(mark));
    }
    if (!*ns) /* it left the queue meanwhile */
        *ns = event_mark_kept_ns(event, mark);
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
