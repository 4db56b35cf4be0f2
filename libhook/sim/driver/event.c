#include "libhook/sim/driver/event.h"

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/event_shared.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/stream.h"

CUresult event_of(CUevent handle, struct CUevent_st **out) {
    driver_alive();
    INIT();
    NEED(slab_has(SLAB_EVENT, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

/* One word for an entry of a queue, so that nobody sees the queue of one recording and the entry of another. */
static uint64_t mark_of(uint32_t queue, uint64_t index) {
    return index << 8 | queue;
}

static uint32_t mark_queue(uint64_t mark) {
    return (uint32_t)(mark & 0xff);
}

static uint64_t mark_index(uint64_t mark) {
    return mark >> 8;
}

/* When the entry was over, if it has left its queue; 0: it has not. */
static uint64_t kept_ns(struct CUevent_st *event, uint64_t mark) {
    if (atomic_load(&event->done_mark) != mark)
        return 0;
    uint64_t ns = atomic_load(&event->done_ns);
    return atomic_load(&event->done_mark) == mark ? ns : 0;
}

void event_keep_time(uint32_t queue, struct sim_entry *entry) {
    struct CUevent_st *event = (struct CUevent_st *)entry->arg;
    uint64_t index = atomic_load(&entry->index), mark = mark_of(queue, index);
    if (!slab_has(SLAB_EVENT, event) || atomic_load(&event->mark) != mark)
        return;
    if (atomic_load(&entry->done) & SIM_PENDING)
        sim_commit(&driver.seat, NULL, NULL); /* writes out what another process has left undone */
    atomic_store(&event->done_ns, queue_event_ns(queue, index));
    atomic_store(&event->done_mark, mark);
}

CUresult event_record(struct CUevent_st *event, struct CUstream_st *stream) {
    uint64_t index;
    NEED(event->ctx == stream->ctx, CUDA_ERROR_INVALID_HANDLE);
    TRY(queue_push(stream, &(struct work){.kind = SIM_EVENT, .arg = (uint64_t)event}, &index));
    atomic_store_explicit(&event->captured, NULL, memory_order_relaxed);
    atomic_store_explicit(&event->mark, mark_of(stream->queue->number, index), memory_order_release);
    atomic_store_explicit(&event->recorded, true, memory_order_release);
    if (event->shared)
        event_tell(event, stream->queue->number, index);
    return CUDA_SUCCESS;
}

CUresult event_wait(struct CUevent_st *event, struct CUstream_st *stream) {
    if (event_foreign(event))
        return event_foreign_wait(event, stream);
    uint64_t mark = atomic_load(&event->mark);
    if (!event->recorded || sim_seen_retired(&driver.seat, mark_queue(mark), mark_index(mark)))
        return CUDA_SUCCESS;
    struct work wait = {.kind = SIM_WAIT, .arg = mark_queue(mark), .until = mark_index(mark)};
    return queue_push(stream, &wait, NULL);
}

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
    capture_free_tips(&event->tips);
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
    if (!event->recorded || kept_ns(event, mark))
        return CUDA_SUCCESS;
    return queue_entry_done(mark_queue(mark), mark_index(mark)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    struct CUevent_st *event;
    TRY(event_of(handle, &event));
    TRY(capture_guard());
    TRY(capture_check_event(event));
    if (event_foreign(event))
        event_foreign_synchronize(event);
    uint64_t mark = atomic_load(&event->mark);
    if (event->recorded && !event_foreign(event) && !kept_ns(event, mark))
        queue_wait_entry(mark_queue(mark), mark_index(mark));
    pool_trim_all();
    return CUDA_SUCCESS;
}

/* When did it happen? */
static CUresult time_of(struct CUevent_st *event, uint64_t *ns) {
    NEED(event->recorded && !(event->flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    TRY(capture_check_event(event));
    uint64_t mark = atomic_load(&event->mark);
    *ns = kept_ns(event, mark);
    if (*ns)
        return CUDA_SUCCESS;
    NEED(queue_entry_done(mark_queue(mark), mark_index(mark)), CUDA_ERROR_NOT_READY);
    *ns = queue_event_ns(mark_queue(mark), mark_index(mark));
    if (!*ns) {
        sim_commit(&driver.seat, NULL, NULL);
        *ns = queue_event_ns(mark_queue(mark), mark_index(mark));
    }
    if (!*ns) /* it left the queue meanwhile */
        *ns = kept_ns(event, mark);
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
