#include "libhook/sim/driver/event.h"

#include "libhook/sim/driver/event_mark.h"
#include "libhook/sim/driver/event_shared.h"
#include "libhook/sim/driver/queue.h"

CUresult event_record(struct CUevent_st *event, struct CUstream_st *stream) {
    uint64_t index;
    NEED(event->ctx == stream->ctx, CUDA_ERROR_INVALID_HANDLE);
    TRY(queue_push(stream, &(struct work){.kind = SIM_EVENT, .arg = (uint64_t)event}, &index));
    atomic_store_explicit(&event->captured, NULL, memory_order_relaxed);
    atomic_store_explicit(&event->mark, event_mark(stream->queue->number, index), memory_order_release);
    atomic_store_explicit(&event->recorded, true, memory_order_release);
    if (event->shared)
        event_tell(event, stream->queue->number, index);
    return CUDA_SUCCESS;
}

CUresult event_wait(struct CUevent_st *event, struct CUstream_st *stream) {
    if (event_foreign(event))
        return event_foreign_wait(event, stream);
    uint64_t mark = atomic_load(&event->mark);
    if (!event->recorded || sim_seen_retired(&driver.seat, event_mark_queue(mark), event_mark_index(mark)))
        return CUDA_SUCCESS;
    struct work wait = {.kind = SIM_WAIT, .arg = event_mark_queue(mark), .until = event_mark_index(mark)};
    return queue_push(stream, &wait, NULL);
}
