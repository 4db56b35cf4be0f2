#include "libhook/sim/driver/event_mark.h"

CUresult event_of(CUevent handle, struct CUevent_st **out) {
    driver_alive();
    INIT();
    NEED(slab_has(SLAB_EVENT, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

uint64_t event_mark_kept_ns(struct CUevent_st *event, uint64_t mark) {
    if (atomic_load(&event->done_mark) != mark)
        return 0;
    uint64_t ns = atomic_load(&event->done_ns);
    return atomic_load(&event->done_mark) == mark ? ns : 0;
}

void event_mark_keep_time(uint32_t queue, struct sim_entry *entry) {
    struct CUevent_st *event = (struct CUevent_st *)entry->arg;
    uint64_t index = atomic_load(&entry->index), mark = event_mark(queue, index);
    if (!slab_has(SLAB_EVENT, event) || atomic_load(&event->mark) != mark)
        return;
    if (atomic_load(&entry->done) & SIM_PENDING)
        sim_commit(&driver.seat, NULL, NULL); /* writes out what another process has left undone */
    uint64_t done = atomic_load_explicit(&entry->done, memory_order_acquire);
    atomic_store(&event->done_ns, done & SIM_PENDING ? 0 : done);
    atomic_store(&event->done_mark, mark);
}
