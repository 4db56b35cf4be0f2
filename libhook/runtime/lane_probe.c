/* lane_probe.c - looks at a lane from outside, and marks what its thread cannot (lane_probe.h). */
#include "libhook/runtime/lane_probe.h"

#include <string.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/cancel.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/lane_event.h"
#include "libhook/runtime/visit.h"

static void foreign_record(const struct visit *visit, struct lane *lane) {
    uint64_t launched = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE);
    CUstream stream = PEEK(lane->stream);

    /* The legacy stream waits for every blocking stream of its context, also for the other threads' own default
     * streams, which nobody but they can name. Not while one of them captures, which this would end: the driver says
     * so when it is asked about the legacy stream. */
    if (lane_is_default(stream))
        stream = CU_STREAM_LEGACY;
    if (lane_event_captures(stream))
        return;
    if (lane_event_record(visit, &lane->foreign_event, stream) == CUDA_SUCCESS) {
        lane->foreign_mark = launched;
        lane->foreign_ns = gate_now();
        lane->foreign_recorded = true;
    }
}

void lane_foreign_record(struct lane *lane) {
    struct visit visit;

    int cancel = cancel_hold();
    lane_lock();
    if (visit_begin(&visit, PEEK(lane->context)))
        foreign_record(&visit, lane);
    visit_end(&visit);
    lane_unlock();
    cancel_release(cancel);
}

/* The newest chunk's event, and when the work before it was over; false where the owner changed it meanwhile. */
static bool query_newest(
    struct lane *lane, uint64_t pushed, uint64_t popped, uint64_t now_ns, struct lane_probe *probe) {
    CUevent base_event = PEEK(lane->base_event), event = PEEK(lane->ring[(pushed - 1) % LANE_CHUNKS].event);
    uint64_t base_ns = lane_base_ns(lane);
    uint64_t span_ns;
    bool based = PEEK(lane->based);

    CUresult result = real.cuEventQuery(event);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    probe->unconfirmed |= result != CUDA_SUCCESS;
    probe->end_ns = lane_event_time(based, base_event, base_ns, event, now_ns, &span_ns);
    if (__atomic_load_n(&lane->pushed, __ATOMIC_ACQUIRE) != pushed)
        return false;
    if (__atomic_load_n(&lane->popped, __ATOMIC_ACQUIRE) != popped) /* reaped: over, and the owner has accounted it */
        probe->end_ns = 0;
    return true;
}

static uint64_t mark_of(const struct lane *lane, const struct chunk *chunk) {
    return lane_began(PEEK(lane->ordinal), PEEK(chunk->cut_ns), PEEK(chunk->held));
}

static void look(const struct visit *visit, struct lane *lane, uint64_t now_ns, struct lane_probe *probe) {
    uint64_t launched = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE);
    uint64_t cut = __atomic_load_n(&lane->cut, __ATOMIC_ACQUIRE);
    uint64_t pushed = __atomic_load_n(&lane->pushed, __ATOMIC_ACQUIRE);
    uint64_t popped = __atomic_load_n(&lane->popped, __ATOMIC_ACQUIRE);

    if (launched == cut) {
        if (pushed != popped && !query_newest(lane, pushed, popped, now_ns, probe))
            return;
        if (pushed != popped)
            probe->mark_ns = mark_of(lane, &lane->ring[(pushed - 1) % LANE_CHUNKS]);
    } else {
        if (!PEEK(lane->stream_gone) && !(lane->foreign_recorded && lane->foreign_mark == launched))
            foreign_record(visit, lane);
        if (!lane->foreign_recorded || lane->foreign_mark != launched)
            return;
        uint64_t span_ns;
        CUresult result = real.cuEventQuery(lane->foreign_event);
        if (result == CUDA_ERROR_NOT_READY)
            return;
        probe->unconfirmed |= result != CUDA_SUCCESS;
        probe->mark_ns = lane->foreign_ns;
        probe->end_ns = lane_event_time(PEEK(lane->based) && pushed == popped, PEEK(lane->base_event),
            lane_base_ns(lane), lane->foreign_event, now_ns, &span_ns);
    }
    probe->finished = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE) == launched;
    if (!probe->finished)
        return;
    POKE(lane->clean_ns, launched == cut ? 0 : probe->end_ns);
    __atomic_store_n(&lane->clean_mark, launched, __ATOMIC_RELEASE);
}

void lane_probe(struct lane *lane, enum lane_look how, uint64_t now_ns, struct lane_probe *probe) {
    uint32_t state = __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE);
    uint64_t launched = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE);

    memset(probe, 0, sizeof *probe);
    uint64_t cut = PEEK(lane->cut), pushed = PEEK(lane->pushed), popped = PEEK(lane->popped);
    uint64_t clean_mark = PEEK(lane->clean_mark), blind_ns = PEEK(lane->blind_ns), end_ns = PEEK(lane->end_ns);

    if (state != LANE_LIVE || clean_mark == launched || (launched == cut && pushed == popped && !blind_ns)) {
        probe->finished = true;
        probe->end_ns = end_ns;
        bool lost = state == LANE_LOST && clean_mark != launched;
        probe->unconfirmed = lost && (launched != cut || pushed != popped);
        if (lost)
            POKE(lane->clean_mark, launched);
        return;
    }
    const struct chunk *head = &lane->ring[popped % LANE_CHUNKS];
    bool queued = pushed != popped;
    probe->wanted_ns = queued ? PEEK(head->wanted_ns) : PEEK(lane->open_wanted_ns);
    probe->start_ns = lane_began(PEEK(lane->ordinal), queued ? PEEK(head->first_ns) : PEEK(lane->open_first_ns),
        queued ? PEEK(head->held) : PEEK(lane->open_held));
    if (probe->start_ns < end_ns)
        probe->start_ns = end_ns;
    uint64_t gone_ns = now_ns > probe->start_ns ? now_ns - probe->start_ns : 0;
    probe->inflight_ns = lane_inflight(lane);
    probe->inflight_ns = probe->inflight_ns > gone_ns ? probe->inflight_ns - gone_ns : 0;
    probe->unconfirmed = __atomic_exchange_n(&lane->unconfirmed, false, __ATOMIC_RELAXED);
    if (blind_ns > now_ns) {
        probe->inflight_ns = blind_ns - now_ns;
        return;
    }
    if (how == LANE_WHEN_DUE && probe->inflight_ns)
        return;
    if (!visit_agent_enters())
        return;
    struct visit visit;
    if (__atomic_load_n(&lane->state, __ATOMIC_SEQ_CST) == LANE_LIVE) {
        if (visit_begin(&visit, PEEK(lane->context)))
            look(&visit, lane, now_ns, probe);
        visit_end(&visit);
    }
    visit_agent_leaves();
}
